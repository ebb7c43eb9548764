//! Messages that can be trusted: secured GeoNetworking packets by ETSI TS 103 097 V1.3.1 and later, that is
//! IEEE 1609.2.
//!
//! A station signs its packets with short-lived certificates without a name (authorization tickets). It
//! accepts a packet if its signer has a ticket from an authority below a trusted root. The ticket has to
//! permit the content here and now. [`Security`] is the station's entity between the link and the router; its
//! module says how to drive it.
//!
//! * [`coer`], [`message`], [`certificate`], with [`keys`], [`ids`], [`time`], [`region`], [`permissions`]:
//!   what stands in an envelope and in a certificate, read where it lies, and written.
//! * [`crypto`]: back ends behind a trait. This crate has no randomness: signatures are deterministic (RFC
//!   6979), keys come from outside.
//! * [`inspection`]: everything that is checked before any cryptography; [`store`]: chains of certificates;
//!   [`claims`]: what a message says that not everybody may; [`replay`], [`queue`]: what was seen, and what
//!   waits.
//! * [`entity`]: all of it in order, policies, certificates on request.
//! * [`credentials`]: what a station is furnished with.
//! * [`pseudonym`]: when a station becomes another one. [`pki`]: certificates for tests and closed fleets.
//!
//! Every message that dies has its reason ([`SecurityDrop`]), with a counter each.
//!
//! Left out: encrypted messages, enrolment and authorization over the air (TS 102 941), trust and revocation
//! lists, implicit certificates, misbehaviour reports (TS 103 759). Release 1 envelopes before V1.3.1
//! (version 2) are refused as what they are.
#![forbid(unsafe_code)]

pub mod certificate;
pub mod claims;
mod clock;
pub mod coer;
pub mod config;
pub mod credentials;
pub mod crypto;
mod drop_reason;
pub mod entity;
mod envelopes;
pub mod ids;
pub mod inspection;
pub mod keys;
pub mod message;
pub mod permissions;
pub mod pki;
pub mod pseudonym;
pub mod queue;
pub mod region;
pub mod replay;
pub mod store;
pub mod time;

pub use config::{Config, Policy};
pub use credentials::Credentials;
pub use drop_reason::SecurityDrop;
pub use entity::{Counters, Handled, Now, Security, Ticket, Verified, unwrapped};
