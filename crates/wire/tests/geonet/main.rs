//! GeoNetworking and BTP on the wire: valid packets, packets of other implementations, and invalid packets.

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
