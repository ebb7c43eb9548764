//! Secured packets in virtual time: codec, comparison with other implementations, chains, profiles, test
//! purposes, floods, and fairness under floods.
#![allow(clippy::unwrap_used, reason = "a test says no more by expect")]

mod air;
mod captures;
mod clock;
mod codec;
mod fair;
mod oracle_crate;
mod oracle_rasn;
mod parts;
mod purposes_receiving;
mod purposes_sending;

mod strict;
mod support;
