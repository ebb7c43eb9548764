//! Mobile prefix discovery (RFC 6275 6.7 and 6.8): a mobile node asks its home agent for the prefixes of the
//! home link.
//!
//! Two ICMPv6 messages. As everywhere in this crate the checksum is [`crate::icmpv6`]'s: parsers expect it
//! verified, emitters leave it zero. A solicitation has a Home Address option around it, an advertisement a
//! type 2 routing header; both are the caller's.

use crate::Error;
use crate::discovery::{emit, fixed};
use crate::icmpv6::types;
use crate::nd::{NdOption, NdOptions};
use crate::octets::rest;

/// Mobile Prefix Solicitation, ICMPv6 type 146.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixSolicitation {
    /// Matches the advertisement to the solicitation.
    pub identifier: u16,
}

impl PrefixSolicitation {
    /// Reads the message.
    ///
    /// # Errors
    /// [`Error::Truncated`] under 8 octets, [`Error::Value`] for another type or a code that is not 0.
    pub fn parse(message: &[u8]) -> Result<Self, Error> {
        let (identifier, _) = fixed(message, types::MOBILE_PREFIX_SOLICITATION, "146")?;
        Ok(PrefixSolicitation { identifier })
    }

    /// The message with a zero checksum.
    pub fn emit(&self) -> Vec<u8> {
        emit(types::MOBILE_PREFIX_SOLICITATION, self.identifier, 0)
    }
}

/// Mobile Prefix Advertisement, ICMPv6 type 147, as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixAdvertisement<'a> {
    /// The solicitation's identifier.
    pub identifier: u16,
    /// M: addresses of the home link by DHCPv6.
    pub managed: bool,
    /// O: other configuration of the home link by DHCPv6.
    pub other: bool,
    /// Prefix Information options.
    pub options: NdOptions<'a>,
}

impl<'a> PrefixAdvertisement<'a> {
    /// Reads the message.
    ///
    /// # Errors
    /// Those of [`PrefixSolicitation::parse`], [`Error::Length`] for an option of length 0.
    pub fn parse(message: &'a [u8]) -> Result<Self, Error> {
        let (identifier, flags) = fixed(message, types::MOBILE_PREFIX_ADVERTISEMENT, "147")?;
        Ok(PrefixAdvertisement {
            identifier,
            managed: flags & 0x8000 != 0,
            other: flags & 0x4000 != 0,
            options: NdOptions::parse(rest(message, 8, WHAT)?)?,
        })
    }
}

/// A Mobile Prefix Advertisement with a zero checksum, M and O clear.
pub fn prefix_advertisement(identifier: u16, options: &[NdOption<'_>]) -> Vec<u8> {
    let mut message = emit(types::MOBILE_PREFIX_ADVERTISEMENT, identifier, 0);
    for option in options {
        option.emit_into(&mut message);
    }
    message
}

const WHAT: &str = "mobile prefix discovery";
