//! Mobile prefix discovery (RFC 6275 6.7 and 6.8): a mobile node asks its home agent for the prefixes of the
//! home link.
//!
//! Each of the two messages is an ICMPv6 message. The functions in [`crate::icmpv6`] verify and set the
//! checksum: parsers here expect a verified checksum, and emitters leave the field zero. The packet of a
//! solicitation has a Home Address option, the packet of an advertisement a type 2 routing header; the caller
//! adds both.

use crate::Error;
use crate::discovery::{emit_header, parse_identifier_and_flags};
use crate::icmpv6::message_type;
use crate::nd::{NdOption, NdOptions};
use crate::octets::octets_from;

/// Mobile Prefix Solicitation, ICMPv6 type 146.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MobilePrefixSolicitation {
    /// Number that an advertisement copies from its solicitation.
    pub identifier: u16,
}

impl MobilePrefixSolicitation {
    /// Reads the message.
    ///
    /// # Errors
    /// [`Error::Truncated`] if there are fewer than 8 octets, [`Error::Value`] for another type or a code
    /// other than 0.
    pub fn parse(message: &[u8]) -> Result<Self, Error> {
        let (identifier, _) =
            parse_identifier_and_flags(message, message_type::MOBILE_PREFIX_SOLICITATION, "146")?;
        Ok(MobilePrefixSolicitation { identifier })
    }

    /// Returns the octets of the message with a zero checksum.
    pub fn emit(&self) -> Vec<u8> {
        emit_header(message_type::MOBILE_PREFIX_SOLICITATION, self.identifier, 0)
    }
}

/// A received Mobile Prefix Advertisement, ICMPv6 type 147.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MobilePrefixAdvertisement<'a> {
    /// Identifier of the solicitation.
    pub identifier: u16,
    /// M: nodes on the home link get addresses by DHCPv6.
    pub managed: bool,
    /// O: nodes on the home link get other configuration by DHCPv6.
    pub other_configuration: bool,
    /// Prefix Information options.
    pub options: NdOptions<'a>,
}

impl<'a> MobilePrefixAdvertisement<'a> {
    /// Reads the message.
    ///
    /// # Errors
    /// The errors of [`MobilePrefixSolicitation::parse`], and [`Error::Length`] for an option of length 0.
    pub fn parse(message: &'a [u8]) -> Result<Self, Error> {
        let (identifier, flags) =
            parse_identifier_and_flags(message, message_type::MOBILE_PREFIX_ADVERTISEMENT, "147")?;
        Ok(MobilePrefixAdvertisement {
            identifier,
            managed: flags & 0x8000 != 0,
            other_configuration: flags & 0x4000 != 0,
            options: NdOptions::parse(octets_from(message, 8, NAME_IN_ERRORS)?)?,
        })
    }
}

/// Returns a Mobile Prefix Advertisement with a zero checksum, M and O clear.
pub fn emit_prefix_advertisement(identifier: u16, options: &[NdOption<'_>]) -> Vec<u8> {
    let mut message = emit_header(message_type::MOBILE_PREFIX_ADVERTISEMENT, identifier, 0);
    for option in options {
        option.emit_into(&mut message);
    }
    message
}

const NAME_IN_ERRORS: &str = "mobile prefix discovery";
