//! Position and coverage of the MN-HA authentication option (RFC 4285 5), without cryptography.
//!
//! The authentication data are the first 96 bits of an HMAC-SHA1. The HMAC covers the care-of address, the
//! home address, and the Mobility Header up to and including the option's SPI. In this computation the
//! checksum is zero, while the header's length field and the padding before the option have their sent
//! values. A sender builds the message with 12 zero octets of data, writes the MAC there, and then sets the
//! checksum.
//!
//! RFC 4285 5: a message has at most one option of each subtype. MN-HA is the last option, except that an
//! MN-AAA option follows it. Padding may follow, because the header's length is a multiple of 8.

use super::header::MobilityHeader;
use super::message_type;
use super::options::{MN_AAA, MN_HA, RawMobilityOption, option_type};
use crate::Error;
use crate::octets::{octets_from, u8_at, u32_at};
use std::ops::Range;

/// Octets of the authentication data: HMAC-SHA1, truncated to 96 bits (RFC 4285 5.1).
pub const MN_HA_DATA_LEN: usize = 12;

/// The MN-HA authentication option in a Mobility Header. Ranges are octets from the header's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticationField {
    /// The option's subtype: 1, MN-HA.
    pub subtype: u8,
    /// The mobility security parameter index, which identifies the key.
    pub spi: u32,
    /// Range of octets that the MAC covers: from the start of the header to the end of the SPI.
    pub covered_range: Range<usize>,
    /// Range of the authentication data.
    pub data_range: Range<usize>,
}

impl AuthenticationField {
    /// Returns the covered octets of `mh` in three pieces; the middle piece is two zero octets in place of
    /// the checksum. The caller feeds them to the MAC after the care-of address and the home address. Returns
    /// `None` if `mh` is not the header in which the field was found.
    pub fn covered_octets<'a>(&self, mh: &'a [u8]) -> Option<[&'a [u8]; 3]> {
        let covered = mh.get(self.covered_range.clone())?;
        Some([covered.get(..4)?, &[0, 0], covered.get(6..)?])
    }
}

/// Finds the MN-HA authentication option of a Binding Update, Binding Acknowledgement, Home Agent Switch or
/// Binding Revocation. Returns `Ok(None)` for a message without the option or of another type.
///
/// # Errors
/// The errors of [`MobilityHeader::parse`]. [`Error::Truncated`] if an option exceeds the message.
/// [`Error::Length`] if an authentication option is too short for its SPI. [`Error::Repeated`] for a second
/// option of the same subtype. [`Error::Order`] if an option other than padding and MN-AAA follows MN-HA, or
/// if MN-AAA precedes it.
pub fn authentication_field(mh: &[u8]) -> Result<Option<AuthenticationField>, Error> {
    let header = MobilityHeader::parse(mh)?;
    let start = match header.message_type {
        message_type::BINDING_UPDATE | message_type::BINDING_ACKNOWLEDGEMENT => 12,
        message_type::BINDING_REVOCATION => super::revocation::OPTIONS_OFFSET,
        message_type::HOME_AGENT_SWITCH => super::home_agent_switch::options_offset(header.octets())?,
        _ => return Ok(None),
    };
    let options = octets_from(header.octets(), start, "mobility options")?;
    let mut field = None;
    let mut aaa_seen = false;
    let mut at = 0;
    while at < options.len() {
        let option = RawMobilityOption::parse_at(options, at)?;
        let data_at = start + at + 2;
        at = option.next_option_offset;
        if option.is_padding() {
            continue;
        }
        let subtype = match option.option_type {
            option_type::AUTHENTICATION => Some(parse_subtype(option.data)?),
            _ => None,
        };
        match subtype {
            Some(MN_HA) if field.is_some() => {
                return Err(Error::Repeated { what: "MN-HA authentication option" });
            }
            Some(MN_HA) if aaa_seen => {
                return Err(Error::Order {
                    what: "MN-HA authentication option",
                    expected: "before the MN-AAA authentication option",
                });
            }
            Some(MN_HA) => {
                field = Some(AuthenticationField {
                    subtype: MN_HA,
                    spi: u32_at(option.data, 1, "authentication option")?,
                    covered_range: 0..data_at + 5,
                    data_range: data_at + 5..start + option.next_option_offset,
                });
            }
            Some(MN_AAA) if aaa_seen => {
                return Err(Error::Repeated { what: "MN-AAA authentication option" });
            }
            Some(MN_AAA) => aaa_seen = true,
            _ if field.is_some() => {
                return Err(Error::Order {
                    what: "MN-HA authentication option",
                    expected: "no option but MN-AAA behind it",
                });
            }
            _ => {}
        }
    }
    Ok(field)
}

/// Returns the subtype of an authentication option; an error if the option is too short for its SPI.
fn parse_subtype(data: &[u8]) -> Result<u8, Error> {
    if data.len() < 5 {
        return Err(Error::Length {
            what: "authentication option",
            expected: "at least 5",
            found: data.len(),
        });
    }
    u8_at(data, 0, "authentication option")
}
