//! Why octets were refused.
//!
//! An [`Error`] says what was expected and what came. Where a standard asks for an ICMPv6 Parameter Problem,
//! [`Error::parameter_problem`] knows its code and pointer; every other error is answered with silence.
//! Whether an answer may be sent at all is RFC 4443 2.4 (e)'s business: see
//! [`crate::icmpv6::may_answer_with`].

use crate::icmpv6::ErrorMessage;

/// A parser's error, with the expected and the found value.
///
/// Offsets are in octets. Those of [`crate::extension`] count from the start of the IPv6 packet; those of
/// [`Error::PayloadProtocol`] and [`Error::HeaderLength`] count from the start of the Mobility Header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The octets end before the structure does.
    #[error("{what}: {needed} octets needed, {found} found")]
    Truncated {
        /// The structure.
        what: &'static str,
        /// Octets that it needs, counted from the start of what was given.
        needed: usize,
        /// Octets that there are.
        found: usize,
    },
    /// A length that the structure does not allow.
    #[error("{what}: length {found}, expected {expected}")]
    Length {
        /// The structure.
        what: &'static str,
        /// The lengths that it allows.
        expected: &'static str,
        /// The length that came, in the unit of its field.
        found: usize,
    },
    /// A value that the field does not allow.
    #[error("{what}: value {found}, expected {expected}")]
    Value {
        /// The field.
        what: &'static str,
        /// The values that it allows.
        expected: &'static str,
        /// The value that came.
        found: u32,
    },
    /// A checksum that does not fit the octets and addresses.
    #[error("{what}: checksum {found:#06x} is wrong")]
    Checksum {
        /// The message.
        what: &'static str,
        /// The checksum field as it came.
        found: u16,
    },
    /// Something that may be there once was there again (RFC 6275 6.3, RFC 4285 5).
    #[error("{what}: more than one")]
    Repeated {
        /// Name of the header or option that may occur once.
        what: &'static str,
    },
    /// Something stood behind what must come last, or before what must come first (RFC 4285 5).
    #[error("{what}: expected {expected}")]
    Order {
        /// Name of the misplaced header or option.
        what: &'static str,
        /// Where it belongs.
        expected: &'static str,
    },
    /// More than [`crate::extension::MAX_HEADERS`] extension headers.
    #[error("more than {limit} extension headers")]
    TooManyHeaders {
        /// How many are followed.
        limit: usize,
    },
    /// An unknown option whose type says that the packet is to be discarded (RFC 8200 4.2).
    #[error(
        "option of type {option_type:#04x} at octet {offset} is not known and asks for discarding the packet"
    )]
    UnrecognizedOption {
        /// The option's type; its two highest bits are 01, 10 or 11.
        option_type: u8,
        /// Where the Option Type octet is in the packet.
        offset: usize,
    },
    /// A Hop-by-Hop Options header that does not follow the IPv6 header at once (RFC 8200 4).
    #[error("hop-by-hop options announced at octet {offset}, expected only in the IPv6 header")]
    MisplacedHopByHop {
        /// Where the Next Header octet of value 0 is in the packet.
        offset: usize,
    },
    /// A routing header of an unknown type with segments left (RFC 8200 4.4).
    #[error("routing header of unknown type {routing_type} at octet {offset} with segments left")]
    UnrecognizedRouting {
        /// The Routing Type that came.
        routing_type: u8,
        /// Where the Routing Type octet is in the packet.
        offset: usize,
    },
    /// A type 2 routing header that RFC 6275 11.3.3 has discarded in silence.
    #[error("type 2 routing header: {what} {found} at octet {offset}, expected {expected}")]
    HomeAddressRouting {
        /// The field.
        what: &'static str,
        /// The one value that it may have.
        expected: u8,
        /// The value that came.
        found: u8,
        /// Where the field is in the packet.
        offset: usize,
    },
    /// A Mobility Header whose Payload Proto is not 59 (RFC 6275 9.2).
    #[error("mobility header: payload protocol {found}, expected 59")]
    PayloadProtocol {
        /// The Payload Proto that came; the field is the Mobility Header's first octet.
        found: u8,
    },
    /// A Mobility Header shorter than its type of message (RFC 6275 9.2).
    #[error("mobility header of type {message_type}: {found} octets, expected at least {needed}")]
    HeaderLength {
        /// The MH Type.
        message_type: u8,
        /// Octets of the fixed part of that message.
        needed: usize,
        /// Octets that the Header Len field, the Mobility Header's second octet, stands for.
        found: usize,
    },
}

impl Error {
    /// The Parameter Problem that the standards ask for, or `None` where they ask for silence.
    ///
    /// `upper_layer_offset` is where the upper layer (here: the Mobility Header) begins in the packet; it
    /// matters for [`Error::PayloadProtocol`] and [`Error::HeaderLength`] only. RFC 6275 9.2 wants the
    /// checksum verified before those two are answered: [`crate::mobility::MobilityHeader::parse_verified`].
    pub fn parameter_problem(&self, upper_layer_offset: usize) -> Option<ErrorMessage> {
        let (code, offset) = match *self {
            // RFC 8200 4.2: 01 discards in silence; 10 and 11 are answered. Which of the two it was matters
            // for multicast destinations only, and `may_answer_with` sees to that.
            Error::UnrecognizedOption { option_type, offset } if option_type & 0x80 != 0 => (2, offset),
            Error::MisplacedHopByHop { offset } => (1, offset),
            Error::UnrecognizedRouting { offset, .. } => (0, offset),
            Error::PayloadProtocol { .. } => (0, upper_layer_offset),
            Error::HeaderLength { .. } => (0, upper_layer_offset.saturating_add(1)),
            _ => return None,
        };
        let pointer = u32::try_from(offset).ok()?;
        Some(ErrorMessage::ParameterProblem { code, pointer })
    }
}
