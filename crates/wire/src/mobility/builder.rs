//! Builder of Mobility Headers.
//!
//! The builder writes the fixed part, then each option at the next offset that its alignment allows. Then it
//! pads to a multiple of 8 octets (RFC 6275 6.1.1, 6.2). The builder writes one octet of padding as Pad1, and
//! two or more octets as one PadN. RFC 6275 6.2.2 asks for that, and UMIP and scapy do the same. The checksum
//! stays zero: [`set_checksum`] or [`super::ControlPacket`] sets it when addresses and content are final.

use super::home_agent_switch::MAX_ADDRESSES;
use super::message::{
    ACKNOWLEDGEMENT_KEY_MANAGEMENT, ACKNOWLEDGEMENT_MOBILE_ROUTER, BindingUpdateFlags, HEARTBEAT_RESPONSE,
    HEARTBEAT_UNSOLICITED,
};
use super::message_type;
use super::options::{MobilityOption, option_type};
use super::revocation::{RevocationFlags, RevocationKind};
use crate::Error;
use crate::icmpv6::set_checksum_at;
use crate::ipv6::protocol;
use std::net::Ipv6Addr;

/// Octets of the longest Mobility Header that the Header Len field can express.
pub const MAX_LEN: usize = 256 * 8;

/// A Mobility Header under construction.
#[derive(Debug, Clone)]
pub struct MobilityHeaderBuilder {
    octets: Vec<u8>,
    omitted_option_type: Option<u8>,
}

impl MobilityHeaderBuilder {
    /// Begins a Binding Update (RFC 6275 6.1.7); the lifetime is in units of 4 seconds.
    pub fn binding_update(sequence: u16, flags: BindingUpdateFlags, lifetime: u16) -> MobilityHeaderBuilder {
        let mut builder = MobilityHeaderBuilder::new(message_type::BINDING_UPDATE);
        builder.octets.extend_from_slice(&sequence.to_be_bytes());
        builder.octets.extend_from_slice(&flags.bits().to_be_bytes());
        builder.octets.extend_from_slice(&lifetime.to_be_bytes());
        builder
    }

    /// Begins a Binding Acknowledgement (RFC 6275 6.1.8); the lifetime is in units of 4 seconds.
    pub fn binding_acknowledgement(
        status: u8,
        key_management: bool,
        mobile_router: bool,
        sequence: u16,
        lifetime: u16,
    ) -> MobilityHeaderBuilder {
        let mut flags = 0;
        if key_management {
            flags |= ACKNOWLEDGEMENT_KEY_MANAGEMENT;
        }
        if mobile_router {
            flags |= ACKNOWLEDGEMENT_MOBILE_ROUTER;
        }
        let mut builder = MobilityHeaderBuilder::new(message_type::BINDING_ACKNOWLEDGEMENT);
        builder.octets.extend_from_slice(&[status, flags]);
        builder.octets.extend_from_slice(&sequence.to_be_bytes());
        builder.octets.extend_from_slice(&lifetime.to_be_bytes());
        builder
    }

    /// Begins a Binding Refresh Request (RFC 6275 6.1.2).
    pub fn binding_refresh_request() -> MobilityHeaderBuilder {
        let mut builder = MobilityHeaderBuilder::new(message_type::BINDING_REFRESH_REQUEST);
        builder.octets.extend_from_slice(&[0, 0]);
        builder
    }

    /// Begins a Binding Error (RFC 6275 6.1.9). If the packet had no Home Address option, the home address is
    /// the unspecified address (RFC 6275 9.3.3).
    pub fn binding_error(status: u8, home_address: Ipv6Addr) -> MobilityHeaderBuilder {
        let mut builder = MobilityHeaderBuilder::new(message_type::BINDING_ERROR);
        builder.octets.extend_from_slice(&[status, 0]);
        builder.octets.extend_from_slice(&home_address.octets());
        builder
    }

    /// Begins a Heartbeat request (RFC 5847 3.3).
    pub fn heartbeat_request(sequence: u32) -> MobilityHeaderBuilder {
        MobilityHeaderBuilder::heartbeat(0, sequence)
    }

    /// Begins the Heartbeat response to the request with this sequence number (RFC 5847 3.3).
    pub fn heartbeat_response(sequence: u32) -> MobilityHeaderBuilder {
        MobilityHeaderBuilder::heartbeat(HEARTBEAT_RESPONSE, sequence)
    }

    /// Begins an unsolicited Heartbeat response, which announces a restart; its sequence number has no
    /// meaning.
    pub fn unsolicited_heartbeat() -> MobilityHeaderBuilder {
        MobilityHeaderBuilder::heartbeat(HEARTBEAT_RESPONSE | HEARTBEAT_UNSOLICITED, 0)
    }

    /// Begins a Home Agent Switch message (RFC 5142 4) with the first [`MAX_ADDRESSES`] of these addresses.
    pub fn home_agent_switch(addresses: &[Ipv6Addr]) -> MobilityHeaderBuilder {
        let count = addresses.len().min(MAX_ADDRESSES);
        let mut builder = MobilityHeaderBuilder::new(message_type::HOME_AGENT_SWITCH);
        builder.octets.extend_from_slice(&[count as u8, 0]);
        builder.octets.extend(addresses.iter().take(count).flat_map(Ipv6Addr::octets));
        builder
    }

    /// Begins a Binding Revocation Indication or Acknowledgement (RFC 5846 5).
    pub fn binding_revocation(
        kind: RevocationKind,
        sequence: u16,
        flags: RevocationFlags,
    ) -> MobilityHeaderBuilder {
        let mut builder = MobilityHeaderBuilder::new(message_type::BINDING_REVOCATION);
        builder.octets.extend_from_slice(&kind.type_and_code_octets());
        builder.octets.extend_from_slice(&sequence.to_be_bytes());
        builder.octets.extend_from_slice(&flags.bits().to_be_bytes());
        builder
    }

    fn heartbeat(flags: u16, sequence: u32) -> MobilityHeaderBuilder {
        let mut builder = MobilityHeaderBuilder::new(message_type::HEARTBEAT);
        builder.octets.extend_from_slice(&flags.to_be_bytes());
        builder.octets.extend_from_slice(&sequence.to_be_bytes());
        builder
    }

    /// Returns the length so far in octets, without options that did not fit and without the padding at the
    /// end.
    pub fn header_length(&self) -> usize {
        self.octets.len()
    }

    /// Begins a header with its first six octets; Header Len and checksum are zero.
    fn new(message_type: u8) -> MobilityHeaderBuilder {
        let mut octets = Vec::with_capacity(64);
        octets.extend_from_slice(&[protocol::NO_NEXT_HEADER, 0, message_type, 0, 0, 0]);
        MobilityHeaderBuilder { octets, omitted_option_type: None }
    }

    /// Appends an option at the next offset that its alignment allows.
    ///
    /// Omits an option that does not fit: more than 255 octets of data, or beyond [`MAX_LEN`].
    /// [`MobilityHeaderBuilder::try_finish`] then returns an error.
    pub fn option(mut self, option: &MobilityOption<'_>) -> MobilityHeaderBuilder {
        let length = option.data_length();
        let (unit, offset) = option.alignment();
        let padding = (offset + unit - self.octets.len() % unit) % unit;
        let end = self.octets.len() + padding + 2 + length;
        match u8::try_from(length) {
            Ok(length) if end <= MAX_LEN => {
                self.append_padding(padding);
                self.octets.extend_from_slice(&[option.option_type(), length]);
                option.emit_data(&mut self.octets);
            }
            _ => self.omitted_option_type = self.omitted_option_type.or(Some(option.option_type())),
        }
        self
    }

    /// Pads to a multiple of 8, sets Header Len, and returns the octets; the checksum is zero.
    ///
    /// [`MobilityHeaderBuilder::finish`] does not report an option that did not fit. If the number of options
    /// has no known limit, call [`MobilityHeaderBuilder::try_finish`].
    pub fn finish(mut self) -> Vec<u8> {
        self.append_padding((8 - self.octets.len() % 8) % 8);
        let units = u8::try_from(self.octets.len() / 8 - 1).unwrap_or(u8::MAX);
        if let Some(field) = self.octets.get_mut(1) {
            *field = units;
        }
        self.octets
    }

    /// Finishes like [`MobilityHeaderBuilder::finish`], but returns an error if an option did not fit.
    ///
    /// # Errors
    /// [`Error::Value`] with the type of the first option that did not fit.
    pub fn try_finish(self) -> Result<Vec<u8>, Error> {
        match self.omitted_option_type {
            Some(option_type) => Err(Error::Value {
                what: "mobility option too many for one message, its type",
                expected: "at most 255 octets of data and 2048 octets in all",
                found: u32::from(option_type),
            }),
            None => Ok(self.finish()),
        }
    }

    /// Appends `count` octets of padding: Pad1, or one PadN.
    fn append_padding(&mut self, count: usize) {
        match count {
            0 => {}
            1 => self.octets.push(option_type::PAD1),
            // The cast is exact: alignments are at most 8.
            _ => {
                self.octets.extend_from_slice(&[option_type::PAD_N, (count - 2) as u8]);
                self.octets.extend(std::iter::repeat_n(0, count - 2));
            }
        }
    }
}

/// Writes the checksum of a Mobility Header; for the addresses see
/// [`super::MobilityHeader::verify_checksum`]. Leaves octets too short for the field unchanged.
pub fn set_checksum(mh: &mut [u8], pseudo_source: Ipv6Addr, pseudo_destination: Ipv6Addr) {
    set_checksum_at(mh, 4, pseudo_source, pseudo_destination, protocol::MOBILITY);
}
