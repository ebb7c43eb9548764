//! Why a GeoNetworking packet was refused.

use super::HeaderType;

/// A parser's error, with the expected and the found value. Each reason to drop a packet has a variant, so
/// that a router can count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The octets end before the structure does; or the caller's buffer is too short to write it.
    #[error("{what}: {needed} octets needed, {found} found")]
    Truncated {
        /// The structure.
        what: &'static str,
        /// Octets that it needs, counted from the start of what was given.
        needed: usize,
        /// Octets that there are.
        found: usize,
    },
    /// A protocol version other than 1 (clause 10.3.3).
    #[error("GeoNetworking version {found}, expected 1")]
    Version {
        /// The version that came, 0 to 15.
        found: u8,
    },
    /// An undefined next header of the Basic Header (table 6).
    #[error("basic header: next header {found}, expected 0 (any), 1 (common header) or 2 (secured packet)")]
    BasicNextHeader {
        /// The value that came, 0 to 15.
        found: u8,
    },
    /// A secured packet where a plain one was asked for (table 6).
    #[error("basic header: next header 2 (secured packet), expected 1 (common header)")]
    Secured,
    /// An undefined next header of the Common Header (table 8). [`super::Packet::check_next_header`] returns
    /// it; parsing does not.
    #[error("common header: next header {found}, expected 0 (any), 1 (BTP-A), 2 (BTP-B) or 3 (IPv6)")]
    CommonNextHeader {
        /// The value that came, 0 to 15.
        found: u8,
    },
    /// A header type and subtype without an extended header (table 9, clause 10.3.5).
    #[error("common header: header type and subtype {found}, expected {expected}")]
    HeaderType {
        /// The types that could have stood here.
        expected: &'static str,
        /// The type that came.
        found: HeaderType,
    },
    /// The payload length does not fit the octets behind the headers.
    #[error("common header: payload length {announced}, but {available} octets follow the headers")]
    PayloadLength {
        /// The PL field, octets.
        announced: usize,
        /// Octets that there are.
        available: usize,
    },
}
