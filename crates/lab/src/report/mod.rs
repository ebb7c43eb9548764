//! `report.html`.
use crate::results::Results;
/// The report.
pub fn html(_results: &Results) -> String { String::new() }
