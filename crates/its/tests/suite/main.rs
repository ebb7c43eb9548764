//! The facilities of one station in virtual time: test purposes, messages of other implementations, and
//! invalid input.
#![allow(clippy::unwrap_used, reason = "a test says no more by expect")]

mod agreement;
mod cam_purposes;
mod denm_purposes;
mod denm_reception;
mod denm_support;
mod facilities;
mod hostile;
mod ldm;
mod messages;
mod oracle_tshark;
mod sam;
mod support;
mod vectors;
