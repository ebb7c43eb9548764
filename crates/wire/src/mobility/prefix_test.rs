//! The messages by which neighbouring mobile routers test the path between them, in the Experimental Mobility
//! Header (RFC 5096, MH Type 11).
//!
//! MNPP has no published format and no number from IANA, so the messages use the experimental type. A magic
//! number behind the header distinguishes them from other experiments:
//!
//! ```text
//!   0               1               2               3
//!  | Payload Proto |  Header Len   |  MH Type 11   |   Reserved    |
//!  |           Checksum            |     Kind      | Prefix Length |
//!  |                         Magic  "CNPX"                         |
//!  |                          Reserved                             |
//!  |                     Cookie (8 octets)                         |
//!  |     Responder: 2 octets of zero, link-layer address (6)       |
//!  |     Asker: 2 octets of zero, link-layer address (6)           |
//!  |                     Prefix (16 octets)                        |
//! ```
//!
//! `carnet_mobility::mnpp` describes each kind. Every message has all fields; the sender sets the fields that
//! a kind does not use to zero, and the receiver ignores them. The receiver also ignores octets behind the
//! fields.

use std::net::Ipv6Addr;

use super::{ControlPacket, MobilityHeader};
use crate::Error;
use crate::ipv6::protocol;
use crate::octets::{address_at, array_at, u8_at, u32_at};

/// MH Type of experiments (RFC 5096).
pub const EXPERIMENTAL: u8 = 11;
/// Octets of a prefix test message.
pub const MESSAGE_LEN: usize = 56;
/// The magic number, "CNPX" in ASCII.
const MAGIC_NUMBER: u32 = 0x434e_5058;
const NAME_IN_ERRORS: &str = "prefix test";

/// Kind of a prefix test message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefixTestKind {
    /// Sent through the home agents to an address of the prefix: asks whether this station has the prefix.
    Init,
    /// Sent directly by the asked station: confirms the prefix and returns the cookie as proof.
    Test,
    /// Sent directly between stations: asks for an Answer, which proves that the direct path works.
    Probe,
    /// Sent directly: answers a Probe.
    Answer,
}

impl PrefixTestKind {
    fn from_value(value: u8) -> Option<PrefixTestKind> {
        match value {
            1 => Some(PrefixTestKind::Init),
            2 => Some(PrefixTestKind::Test),
            3 => Some(PrefixTestKind::Probe),
            4 => Some(PrefixTestKind::Answer),
            _ => None,
        }
    }

    fn value(self) -> u8 {
        match self {
            PrefixTestKind::Init => 1,
            PrefixTestKind::Test => 2,
            PrefixTestKind::Probe => 3,
            PrefixTestKind::Answer => 4,
        }
    }
}

/// A prefix test message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixTest {
    /// Kind of the message.
    pub kind: PrefixTestKind,
    /// Number that the asking station chooses and the answer copies.
    pub cookie: u64,
    /// Link-layer address of the station that answers.
    pub responder: [u8; 6],
    /// Link-layer address of the station that asks.
    pub requester: [u8; 6],
    /// The prefix in question, with the bits behind its length zero; unspecified in a Probe or an Answer.
    pub prefix: Ipv6Addr,
    /// Length of the prefix, at most 128 bits.
    pub prefix_length: u8,
}

impl PrefixTest {
    /// Reads a message from a checked Mobility Header.
    ///
    /// # Errors
    /// [`Error::Value`] for another MH Type, another magic number, an unknown kind or an invalid prefix
    /// length; [`Error::Truncated`] if the octets end early.
    pub fn parse(header: &MobilityHeader<'_>) -> Result<PrefixTest, Error> {
        let octets = header.octets();
        let wrong = |what, expected, found: u32| Error::Value { what, expected, found };
        if header.message_type != EXPERIMENTAL {
            return Err(wrong("MH type", "11", u32::from(header.message_type)));
        }
        let magic = u32_at(octets, 8, NAME_IN_ERRORS)?;
        if magic != MAGIC_NUMBER {
            return Err(wrong("magic number of an experiment", "434e5058", magic));
        }
        let kind = u8_at(octets, 6, NAME_IN_ERRORS)?;
        let prefix_length = u8_at(octets, 7, NAME_IN_ERRORS)?;
        let prefix = address_at(octets, 40, NAME_IN_ERRORS)?;
        let host = u128::MAX.checked_shr(u32::from(prefix_length)).unwrap_or(0);
        if prefix_length > 128 || u128::from(prefix) & host != 0 {
            return Err(wrong("prefix length", "one that the prefix fits", u32::from(prefix_length)));
        }
        Ok(PrefixTest {
            kind: PrefixTestKind::from_value(kind)
                .ok_or_else(|| wrong("kind of prefix test", "1 to 4", u32::from(kind)))?,
            cookie: u64::from_be_bytes(array_at(octets, 16, NAME_IN_ERRORS)?),
            responder: array_at(octets, 26, NAME_IN_ERRORS)?,
            requester: array_at(octets, 34, NAME_IN_ERRORS)?,
            prefix,
            prefix_length,
        })
    }

    /// Returns an IPv6 packet with the message.
    pub fn emit_packet(&self, source: Ipv6Addr, destination: Ipv6Addr, hop_limit: u8) -> Vec<u8> {
        let mut octets = [0; MESSAGE_LEN];
        let mut put = |at: usize, field: &[u8]| {
            for (octet, value) in octets.iter_mut().skip(at).zip(field) {
                *octet = *value;
            }
        };
        put(0, &[protocol::NO_NEXT_HEADER, (MESSAGE_LEN / 8 - 1) as u8, EXPERIMENTAL]);
        put(6, &[self.kind.value(), self.prefix_length]);
        put(8, &MAGIC_NUMBER.to_be_bytes());
        put(16, &self.cookie.to_be_bytes());
        put(26, &self.responder);
        put(34, &self.requester);
        put(40, &self.prefix.octets());
        ControlPacket::without_home_address(source, destination, hop_limit, &mut octets).emit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv6::{HEADER_LEN, Header};

    fn example_test() -> PrefixTest {
        PrefixTest {
            kind: PrefixTestKind::Init,
            cookie: 0x0102_0304_0506_0708,
            responder: [2, 0, 0, 0, 0, 0xb],
            requester: [2, 0, 0, 0, 0, 0xa],
            prefix: "2001:db8:b::".parse().expect("address"),
            prefix_length: 64,
        }
    }

    fn parse_packet(packet: &[u8]) -> Result<PrefixTest, Error> {
        let header = Header::parse(packet)?;
        let header =
            MobilityHeader::parse_verified(&packet[HEADER_LEN..], header.source, header.destination)?;
        PrefixTest::parse(&header)
    }

    #[test]
    fn prefix_test_is_encoded_and_decoded() {
        let source = "2001:db8:1::1234".parse().expect("address");
        for kind in
            [PrefixTestKind::Init, PrefixTestKind::Test, PrefixTestKind::Probe, PrefixTestKind::Answer]
        {
            let test = PrefixTest { kind, ..example_test() };
            let packet = test.emit_packet(source, test.prefix, 64);
            assert_eq!(packet.len(), HEADER_LEN + MESSAGE_LEN);
            assert_eq!(parse_packet(&packet), Ok(test));
        }
    }

    #[test]
    fn prefix_test_parser_refuses_other_and_malformed_messages() {
        let source = "2001:db8:1::1234".parse().expect("address");
        let destination = "2001:db8:b::".parse().expect("address");
        let packet = example_test().emit_packet(source, destination, 64);
        let changed = |at: usize, value: u8| {
            let mut octets = packet[HEADER_LEN..].to_vec();
            octets[at] = value;
            super::super::set_checksum(&mut octets, source, destination);
            parse_packet(&[&packet[..HEADER_LEN], &octets].concat())
        };
        assert_eq!(changed(7, 64), Ok(example_test()));
        for (at, value) in [(2, 13), (6, 0), (6, 5), (7, 129), (7, 40), (8, 0), (1, 5)] {
            assert!(changed(at, value).is_err(), "{at}: {value}");
        }
        let mut corrupt = packet.clone();
        corrupt[HEADER_LEN + 20] ^= 1;
        assert!(matches!(parse_packet(&corrupt), Err(Error::Checksum { .. })));
        for length in HEADER_LEN..packet.len() {
            assert!(parse_packet(&packet[..length]).is_err(), "{length}");
        }
    }
}
