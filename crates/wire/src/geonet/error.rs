//! Errors of the GeoNetworking parsers and emitters.

use super::HeaderType;

/// Error of a parser, with the expected and the found value. A router counts drops by the variant, so each
/// reason to drop a packet has its own variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The octets end before the structure does, or the caller's buffer is too short for the structure.
    #[error("{what}: expected at least {needed} octets, found {found}")]
    Truncated {
        /// Name of the structure.
        what: &'static str,
        /// Octets that the structure needs, counted from the start of the input.
        needed: usize,
        /// Octets that the input has.
        found: usize,
    },
    /// A protocol version other than 1 (clause 10.3.3).
    #[error("basic header: expected GeoNetworking version 1, found {found}")]
    Version {
        /// Received version, 0 to 15.
        found: u8,
    },
    /// An undefined next header of the Basic Header (table 6).
    #[error("basic header: next header {found}, expected 0 (any), 1 (common header) or 2 (secured packet)")]
    BasicNextHeader {
        /// Received value, 0 to 15.
        found: u8,
    },
    /// A secured packet in a place that requires a plain packet (table 6).
    #[error(
        "basic header inside a secured packet: expected next header 1 (common header), found 2 (secured \
         packet)"
    )]
    Secured,
    /// An undefined next header of the Common Header (table 8). [`super::Packet::check_next_header`] returns
    /// this error; parsing does not.
    #[error("common header: next header {found}, expected 0 (any), 1 (BTP-A), 2 (BTP-B) or 3 (IPv6)")]
    CommonNextHeader {
        /// Received value, 0 to 15.
        found: u8,
    },
    /// A header type and subtype without an extended header (table 9, clause 10.3.5).
    #[error("common header: header type and subtype {found}, expected {expected}")]
    HeaderType {
        /// Header types that are valid in this place.
        expected: &'static str,
        /// Received header type.
        found: HeaderType,
    },
    /// The payload length does not fit the octets behind the headers.
    #[error("common header: expected {announced} octets of payload, found {available} after the headers")]
    PayloadLength {
        /// Payload length by the PL field, octets.
        announced: usize,
        /// Octets behind the headers.
        available: usize,
    },
}
