//! Errors in a scenario's text.

use std::ops::Range;

/// Place of an error in the text, and its description.
pub(super) type ErrorAtPlace = (Range<usize>, String);

/// Formats a list of names, each in quotes, for an error message.
pub(super) fn join_quoted_names(known: Vec<&str>) -> String {
    if known.is_empty() { "none".into() } else { known.join(", ") }
}
