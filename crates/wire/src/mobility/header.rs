//! The Mobility Header itself (RFC 6275 6.1.1) and the checks of RFC 6275 9.2.
//!
//! ```text
//!   0               1               2               3
//!  | Payload Proto |  Header Len   |   MH Type     |   Reserved    |
//!  |           Checksum            |  message data, mobility options
//! ```
//!
//! Header Len counts units of 8 octets, without the first unit. The parser cuts off octets after the Mobility
//! Header: Payload Proto 59 says that no header follows, and RFC 8200 4.7 has a receiver ignore further
//! octets.

use super::fixed_part_length;
use super::message::ParsedMobilityMessage;
use crate::ipv6::protocol;
use crate::octets::{array_at, slice_at, u16_at};
use crate::{Error, checksum};
use std::net::Ipv6Addr;

const NAME_IN_ERRORS: &str = "mobility header";

/// A Mobility Header. If its MH Type is known, payload protocol and length are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MobilityHeader<'a> {
    /// The MH Type: see [`super::message_type`].
    pub message_type: u8,
    octets: &'a [u8],
}

impl<'a> MobilityHeader<'a> {
    /// Reads a Mobility Header, which begins with the first octet of the upper layer.
    ///
    /// RFC 6275 9.2 requires a node to verify the checksum before it answers a fault with a Parameter
    /// Problem. This function cannot verify the checksum, because it does not know the addresses.
    /// [`MobilityHeader::parse_verified`] verifies the checksum first.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the header is shorter than Header Len says. For known types also
    /// [`Error::PayloadProtocol`] if Payload Proto is not 59, and [`Error::HeaderLength`] if Header Len is
    /// less than the message's fixed part.
    pub fn parse(octets: &'a [u8]) -> Result<Self, Error> {
        Self::truncate_to_header_length(octets)?.check_known_type()
    }

    /// Reads a Mobility Header in the order of RFC 6275 9.2: the checksum first, then the rest.
    ///
    /// For the addresses see [`MobilityHeader::verify_checksum`].
    ///
    /// # Errors
    /// [`Error::Checksum`], and the errors of [`MobilityHeader::parse`].
    pub fn parse_verified(
        octets: &'a [u8],
        pseudo_source: Ipv6Addr,
        pseudo_destination: Ipv6Addr,
    ) -> Result<Self, Error> {
        let header = Self::truncate_to_header_length(octets)?;
        header.verify_checksum(pseudo_source, pseudo_destination)?;
        header.check_known_type()
    }

    /// Cuts the octets to the length that Header Len gives.
    fn truncate_to_header_length(octets: &'a [u8]) -> Result<Self, Error> {
        let [_, length, message_type] = array_at::<3>(octets, 0, NAME_IN_ERRORS)?;
        Ok(MobilityHeader {
            message_type,
            octets: slice_at(octets, 0, (usize::from(length) + 1) * 8, NAME_IN_ERRORS)?,
        })
    }

    /// Checks Payload Proto and Header Len (RFC 6275 9.2) if the MH Type is known. RFC 6275 9.2 checks the
    /// type first: a node answers an unknown type with a Binding Error, whatever values the other fields
    /// have.
    fn check_known_type(self) -> Result<Self, Error> {
        if !self.is_known_type() {
            return Ok(self);
        }
        let [payload_protocol] = array_at::<1>(self.octets, 0, NAME_IN_ERRORS)?;
        if payload_protocol != protocol::NO_NEXT_HEADER {
            return Err(Error::PayloadProtocol { found: payload_protocol });
        }
        match fixed_part_length(self.message_type) {
            Some(needed) if self.octets.len() < needed => {
                Err(Error::HeaderLength { message_type: self.message_type, needed, found: self.octets.len() })
            }
            _ => Ok(self),
        }
    }

    /// Returns the octets of the Mobility Header; their number is a multiple of 8.
    pub fn octets(&self) -> &'a [u8] {
        self.octets
    }

    /// Verifies the checksum (RFC 6275 6.1.1).
    ///
    /// `pseudo_source` is the home address if the packet has a Home Address option, otherwise the packet's
    /// source. `pseudo_destination` is the address in the type 2 routing header if the packet has one,
    /// otherwise the packet's destination.
    ///
    /// # Errors
    /// [`Error::Checksum`] if the checksum is wrong.
    pub fn verify_checksum(
        &self,
        pseudo_source: Ipv6Addr,
        pseudo_destination: Ipv6Addr,
    ) -> Result<(), Error> {
        let sum = checksum::upper_layer_checksum(
            pseudo_source,
            pseudo_destination,
            protocol::MOBILITY,
            self.octets,
        );
        match sum {
            0 => Ok(()),
            _ => {
                Err(Error::Checksum { what: NAME_IN_ERRORS, found: u16_at(self.octets, 4, NAME_IN_ERRORS)? })
            }
        }
    }

    /// Reads the message and checks the structure of its options.
    ///
    /// Returns [`ParsedMobilityMessage::Other`] for a type that this module does not read. The caller decides
    /// whether to send a Binding Error (RFC 6275 9.2), for example by [`MobilityHeader::is_known_type`].
    ///
    /// # Errors
    /// [`Error::Truncated`] if an option exceeds the message.
    pub fn message(&self) -> Result<ParsedMobilityMessage<'a>, Error> {
        ParsedMobilityMessage::parse(self.message_type, self.octets)
    }

    /// Returns whether RFC 6275 defines the MH Type or [`ParsedMobilityMessage`] has a variant for it.
    pub fn is_known_type(&self) -> bool {
        fixed_part_length(self.message_type).is_some()
    }
}
