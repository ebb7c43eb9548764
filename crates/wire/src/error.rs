//! Errors of the parsers.
//!
//! An [`Error`] names the expected and the found value. If a standard requires an ICMPv6 Parameter Problem
//! for the error, [`Error::parameter_problem`] returns its code and pointer. A node does not answer any other
//! error. [`crate::icmpv6::may_send_error`] decides by RFC 4443 2.4 (e) whether the node may send the answer
//! at all.

use crate::icmpv6::Icmpv6ErrorMessage;

/// A parser's error, with the expected and the found value.
///
/// Offsets are in octets. The offsets of errors from [`crate::extension`] count from the start of the IPv6
/// packet. The offsets of [`Error::PayloadProtocol`] and [`Error::HeaderLength`] count from the start of the
/// Mobility Header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The octets end before the structure does.
    #[error("{what}: expected at least {needed} octets, found {found}")]
    Truncated {
        /// Name of the structure.
        what: &'static str,
        /// Octets that the structure needs, counted from the start of the input.
        needed: usize,
        /// Octets that the input has.
        found: usize,
    },
    /// A length that the structure does not allow.
    #[error("{what}: expected length {expected}, found {found}")]
    Length {
        /// Name of the structure.
        what: &'static str,
        /// Lengths that the structure allows.
        expected: &'static str,
        /// Received length, in the unit of its field.
        found: usize,
    },
    /// A value that the field does not allow.
    #[error("{what}: expected value {expected}, found {found}")]
    Value {
        /// Name of the field.
        what: &'static str,
        /// Values that the field allows.
        expected: &'static str,
        /// Received value.
        found: u32,
    },
    /// A checksum that does not fit the octets and addresses.
    #[error("{what}: the received checksum {found:#06x} does not match the content")]
    Checksum {
        /// Name of the message.
        what: &'static str,
        /// Received checksum field.
        found: u16,
    },
    /// A header or option that may occur once has occurred again (RFC 6275 6.3, RFC 4285 5).
    #[error("{what}: expected at most one in a message, found two")]
    Repeated {
        /// Name of the repeated header or option.
        what: &'static str,
    },
    /// A header or option is misplaced: it follows another that must be last, or precedes another that must
    /// be first (RFC 4285 5).
    #[error("{what} in the wrong order: expected {expected}")]
    Order {
        /// Name of the misplaced header or option.
        what: &'static str,
        /// Required place of the header or option.
        expected: &'static str,
    },
    /// The packet has more than [`crate::extension::MAX_HEADERS`] extension headers.
    #[error("expected at most {limit} extension headers in a packet, found more")]
    TooManyHeaders {
        /// The most extension headers that the parser reads.
        limit: usize,
    },
    /// An unknown option whose type demands that the receiver discard the packet (RFC 8200 4.2).
    #[error(
        "unknown option of type {option_type:#04x} at octet {offset}: its type demands that the receiver \
         drops the packet"
    )]
    UnrecognizedOption {
        /// Type of the option; its two highest bits are 01, 10 or 11.
        option_type: u8,
        /// Offset of the Option Type octet in the packet.
        offset: usize,
    },
    /// A Hop-by-Hop Options header that does not stand directly behind the IPv6 header (RFC 8200 4).
    #[error("hop-by-hop options announced at octet {offset}: expected directly behind the IPv6 header only")]
    MisplacedHopByHop {
        /// Offset in the packet of the Next Header octet with value 0.
        offset: usize,
    },
    /// A routing header of an unknown type with segments left (RFC 8200 4.4).
    #[error(
        "unknown routing header type {routing_type} at octet {offset}: expected no segments left, found \
         some"
    )]
    UnrecognizedRouting {
        /// Received Routing Type.
        routing_type: u8,
        /// Offset of the Routing Type octet in the packet.
        offset: usize,
    },
    /// An invalid type 2 routing header, which RFC 6275 11.3.3 discards without an answer.
    #[error("type 2 routing header: {what} {found} at octet {offset}, expected {expected}")]
    HomeAddressRouting {
        /// Name of the field.
        what: &'static str,
        /// The only value that the field may have.
        expected: u8,
        /// Received value.
        found: u8,
        /// Offset of the field in the packet.
        offset: usize,
    },
    /// A Mobility Header whose Payload Proto is not 59 (RFC 6275 9.2).
    #[error("mobility header: expected payload protocol 59 (no next header), found {found}")]
    PayloadProtocol {
        /// Received Payload Proto, the first octet of the Mobility Header.
        found: u8,
    },
    /// A Mobility Header that is shorter than its MH Type requires (RFC 6275 9.2).
    #[error("mobility header of type {message_type}: {found} octets, expected at least {needed}")]
    HeaderLength {
        /// The MH Type.
        message_type: u8,
        /// Octets of the fixed part of the message.
        needed: usize,
        /// Length in octets by the Header Len field, the second octet of the Mobility Header.
        found: usize,
    },
}

impl Error {
    /// Returns the Parameter Problem that the standards require, or `None` if they require no answer.
    ///
    /// `upper_layer_offset` is the offset of the upper layer (here: the Mobility Header) in the packet. Only
    /// [`Error::PayloadProtocol`] and [`Error::HeaderLength`] use it. RFC 6275 9.2 requires the receiver to
    /// verify the checksum before it answers these two errors: see
    /// [`crate::mobility::MobilityHeader::parse_verified`].
    pub fn parameter_problem(&self, upper_layer_offset: usize) -> Option<Icmpv6ErrorMessage> {
        let (code, offset) = match *self {
            // RFC 8200 4.2: a receiver answers an unknown option whose type begins with the bits 10 or 11,
            // and does not answer one with 01. Only for a multicast destination do 10 and 11 differ;
            // `may_send_error` checks this.
            Error::UnrecognizedOption { option_type, offset } if option_type & 0x80 != 0 => (2, offset),
            Error::MisplacedHopByHop { offset } => (1, offset),
            Error::UnrecognizedRouting { offset, .. } => (0, offset),
            Error::PayloadProtocol { .. } => (0, upper_layer_offset),
            Error::HeaderLength { .. } => (0, upper_layer_offset.saturating_add(1)),
            _ => return None,
        };
        let pointer = u32::try_from(offset).ok()?;
        Some(Icmpv6ErrorMessage::ParameterProblem { code, pointer })
    }
}
