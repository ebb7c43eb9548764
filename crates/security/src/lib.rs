//! Security of messages: secured GeoNetworking packets by ETSI TS 103 097 V1.3.1 and later, a profile of IEEE
//! 1609.2.
//!
//! A station signs its packets with short-lived certificates without a name (authorization tickets). It
//! accepts a packet if its signer has a ticket from an authority below a trusted root. The ticket must permit
//! the content here and now. [`SecurityStation`] is the station's entity between the link and the router; its
//! module says how to drive it.
//!
//! * [`coer`], [`message`], [`certificate`], with [`keys`], [`ids`], [`time`], [`region`], [`permissions`]:
//!   parsers in place and writers for envelopes and certificates.
//! * [`crypto`]: back ends behind a trait. This crate generates no randomness: signatures are deterministic
//!   (RFC 6979), and the caller provides the keys.
//! * [`inspection`]: all checks before any cryptography; [`store`]: certificate chains;
//!   [`message_permissions`]: content of a message that needs permissions; [`replay`]: messages already
//!   accepted; [`queue`]: messages before verification.
//! * [`entity`]: the whole procedure, policies, requests for certificates.
//! * [`credentials`]: trusted certificates and own tickets.
//! * [`pseudonym`]: change of pseudonym. [`pki`]: certificates for tests and closed fleets.
//!
//! Every dropped message has a reason ([`SecurityDrop`]) with its own counter.
//!
//! Left out: encrypted messages, enrolment and authorization over the air (TS 102 941), trust and revocation
//! lists, implicit certificates, misbehaviour reports (TS 103 759). The parser rejects release 1 envelopes
//! before V1.3.1 (version 2) with their own reason.
#![forbid(unsafe_code)]

pub mod certificate;
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
pub mod message_permissions;
pub mod permissions;
pub mod pki;
pub mod pseudonym;
pub mod queue;
pub mod region;
pub mod replay;
pub mod store;
pub mod time;

pub use config::{SecurityConfig, SecurityPolicy};
pub use credentials::Credentials;
pub use drop_reason::SecurityDrop;
pub use entity::{
    Counters, HandledFrame, SecurityStation, SecurityTime, Ticket, VerifiedPacket, packet_without_envelope,
};
