//! GeoNetworking and BTP: what is on the wire, what others put there, and what nobody should.

#[allow(clippy::disallowed_methods, reason = "tests ask the environment which tools there must be")]
#[path = "../common/mod.rs"]
mod common;
mod everything;
mod fixtures;

mod fields;
mod golden;
mod hostile;
mod oracle_crate;
mod oracle_tshark;
mod properties;
mod vanetza;
