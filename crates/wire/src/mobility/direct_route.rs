//! The messages by which two mobile routers agree on a direct route, in the Experimental Mobility Header (RFC
//! 5096, MH Type 11).
//!
//! These messages have the purpose of those in RFC 6275 5.2 and 6.1.3 to 6.1.8. They extend it to prefixes as
//! in RRNP (C. Ng and J. Hirano, draft-ng-nemo-rrnp). The format is carnet's own, because IANA has assigned
//! no numbers for it. A magic number behind the header distinguishes these messages from other experiments:
//!
//! ```text
//!   0               1               2               3
//!  | Payload Proto |  Header Len   |  MH Type 11   |   Reserved    |
//!  |           Checksum            |     Kind      |   Prefixes    |
//!  |                         Magic  "CNDR"                         |
//!  |           Sequence #          |           Lifetime            |
//!  |                     Cookie (8 octets)                         |
//!  |                     Token (8 octets)                          |
//!  |       Home Nonce Index        |     Care-of Nonce Index       |
//!  |    Status     |  Key Version  |           Reserved            |
//!  |                 Home Address (16 octets)                      |
//!  |                Care-of Address (16 octets)                    |
//!  |                Authenticator (12 octets)                      |
//!  |                          Reserved                             |
//!  then for each prefix:
//!  | Prefix Length |                 Reserved                      |
//!  |                          Reserved                             |
//!  |                     Prefix (16 octets)                        |
//!  then, if Key Version is 1:
//!  |                   Public Key (32 octets)                      |
//! ```
//!
//! `carnet_mobility::direct` describes each kind. Every message has all fields; the sender sets the fields
//! that a kind does not use to zero, and the receiver ignores them. The receiver also ignores octets behind
//! the prefixes and the key.
//!
//! Key Version says whether the sender has encrypted sessions. It is 0 for a message without a key, and 1 for
//! a public key of the WireGuard protocol (X25519). Earlier versions of carnet send 0 and ignore the key. A
//! receiver reads a message with an unknown version as one without a key.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use super::prefix_test::EXPERIMENTAL;
use super::{ControlPacket, MobilityHeader};
use crate::Error;
use crate::ipv6::protocol;
use crate::octets::{address_at, array_at, u8_at, u16_at, u32_at};

/// The most prefixes in one message.
pub const MAX_PREFIXES: usize = 8;
/// Octets of a public key.
pub const PUBLIC_KEY_LEN: usize = 32;
/// Octets of the authenticator (RFC 6275 6.2.7: the first 96 bits).
pub const AUTHENTICATOR_LEN: usize = 12;
/// The magic number, "CNDR" in ASCII.
const MAGIC_NUMBER: u32 = 0x434e_4452;
/// Octets of a message before its prefixes.
const FIXED_PART_LEN: usize = 88;
const PREFIX_LEN: usize = 24;
const AUTHENTICATOR_OFFSET: usize = 72;
const KEY_VERSION_OFFSET: usize = 37;
/// Key Version of a message with a public key of the WireGuard protocol.
const WIREGUARD_KEY: u8 = 1;
const NAME_IN_ERRORS: &str = "direct route message";

/// Kind of a direct route message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectRouteKind {
    /// Sent through the home agents: asks the peer for a home test and lists the sender's prefixes. If the
    /// peer holds a binding of the sender, the message also carries a care-of address and an authenticator.
    HomeTestInit,
    /// Sent through the home agents to the home address of the requester: a token, and the requested prefix.
    HomeTest,
    /// Sent through the home agents to an address of the prefix: a token for the prefix, and the care-of
    /// address.
    PrefixTest,
    /// Sent directly: announces the sender's care-of address.
    CareOfTestInit,
    /// Sent directly: a token for the care-of address.
    CareOfTest,
    /// Sent directly: binds the home address and the prefixes to the care-of address.
    BindingUpdate,
    /// Sent directly: accepts the binding, or gives the reason of the refusal.
    BindingAcknowledgement,
    /// Sent directly: asks the peer for a Heartbeat response, which proves that the direct path works.
    Heartbeat,
    /// Sent directly: answers a Heartbeat.
    HeartbeatResponse,
}

/// Kinds in the order of their numbers, from 1.
const KINDS: [DirectRouteKind; 9] = [
    DirectRouteKind::HomeTestInit,
    DirectRouteKind::HomeTest,
    DirectRouteKind::PrefixTest,
    DirectRouteKind::CareOfTestInit,
    DirectRouteKind::CareOfTest,
    DirectRouteKind::BindingUpdate,
    DirectRouteKind::BindingAcknowledgement,
    DirectRouteKind::Heartbeat,
    DirectRouteKind::HeartbeatResponse,
];

/// A direct route message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectRoute {
    /// Kind of the message.
    pub kind: DirectRouteKind,
    /// Sequence number modulo 2^16: orders the Binding Updates of a home address, or matches a Heartbeat
    /// response to its Heartbeat.
    pub sequence: u16,
    /// Lifetime of the binding, units of 4 seconds; 0 ends the binding.
    pub lifetime: u16,
    /// Number that the requester chooses and the answer copies.
    pub cookie: u64,
    /// A keygen token (RFC 6275 5.2.4).
    pub keygen_token: u64,
    /// Index of the nonce in the tokens for the home address and the prefixes.
    pub home_nonce: u16,
    /// Index of the nonce in the token for the care-of address.
    pub care_of_nonce: u16,
    /// In an answer, the status: values below 128 accept. In a Binding Update, 1 if the sender sends packets
    /// to the correspondent directly.
    pub status: u8,
    /// Home address of the binding that the message concerns. In an answer through the home agents, home
    /// address of the answering router.
    pub home_address: Ipv6Addr,
    /// Care-of address of the sender; unspecified if the message carries none.
    pub care_of_address: Ipv6Addr,
    /// Authenticator over the message, computed with the key of the binding while checksum and authenticator
    /// are zero; zero if the message carries none.
    pub authenticator: [u8; AUTHENTICATOR_LEN],
    /// Mobile network prefixes that the message concerns, at most [`MAX_PREFIXES`].
    pub prefixes: Vec<Ipv6Net>,
    /// Public key with which the sender has encrypted sessions; `None` if the message carries none.
    pub public_key: Option<[u8; PUBLIC_KEY_LEN]>,
}

impl DirectRoute {
    /// Returns a message of this kind with all other fields zero.
    pub fn new(kind: DirectRouteKind) -> DirectRoute {
        DirectRoute {
            kind,
            sequence: 0,
            lifetime: 0,
            cookie: 0,
            keygen_token: 0,
            home_nonce: 0,
            care_of_nonce: 0,
            status: 0,
            home_address: Ipv6Addr::UNSPECIFIED,
            care_of_address: Ipv6Addr::UNSPECIFIED,
            authenticator: [0; AUTHENTICATOR_LEN],
            prefixes: Vec::new(),
            public_key: None,
        }
    }

    /// Reads a message from a checked Mobility Header.
    ///
    /// # Errors
    /// [`Error::Value`] for another MH Type, another magic number, an unknown kind, too many prefixes or an
    /// invalid prefix length; [`Error::Truncated`] if the octets end early.
    pub fn parse(header: &MobilityHeader<'_>) -> Result<DirectRoute, Error> {
        let octets = header.octets();
        let wrong = |what, expected, found: u32| Error::Value { what, expected, found };
        if header.message_type != EXPERIMENTAL {
            return Err(wrong("MH type", "11", u32::from(header.message_type)));
        }
        let magic = u32_at(octets, 8, NAME_IN_ERRORS)?;
        if magic != MAGIC_NUMBER {
            return Err(wrong("magic number of an experiment", "434e4452", magic));
        }
        let kind = u8_at(octets, 6, NAME_IN_ERRORS)?;
        let known = usize::from(kind).checked_sub(1).and_then(|at| KINDS.get(at));
        let count = usize::from(u8_at(octets, 7, NAME_IN_ERRORS)?);
        if count > MAX_PREFIXES {
            return Err(wrong("number of prefixes", "at most 8", count as u32));
        }
        let prefix = |number: usize| {
            let at = FIXED_PART_LEN + number * PREFIX_LEN;
            let length = u8_at(octets, at, NAME_IN_ERRORS)?;
            let network = address_at(octets, at + 8, NAME_IN_ERRORS)?;
            let prefix = Ipv6Net::new(network, length).ok().filter(|prefix| prefix.network() == network);
            prefix.ok_or_else(|| wrong("prefix length", "one that the prefix fits", u32::from(length)))
        };
        let key_offset = FIXED_PART_LEN + count * PREFIX_LEN;
        let public_key = match u8_at(octets, KEY_VERSION_OFFSET, NAME_IN_ERRORS)? {
            WIREGUARD_KEY => Some(array_at(octets, key_offset, NAME_IN_ERRORS)?),
            _ => None,
        };
        Ok(DirectRoute {
            kind: *known.ok_or_else(|| wrong("kind of direct route message", "1 to 9", u32::from(kind)))?,
            sequence: u16_at(octets, 12, NAME_IN_ERRORS)?,
            lifetime: u16_at(octets, 14, NAME_IN_ERRORS)?,
            cookie: u64::from_be_bytes(array_at(octets, 16, NAME_IN_ERRORS)?),
            keygen_token: u64::from_be_bytes(array_at(octets, 24, NAME_IN_ERRORS)?),
            home_nonce: u16_at(octets, 32, NAME_IN_ERRORS)?,
            care_of_nonce: u16_at(octets, 34, NAME_IN_ERRORS)?,
            status: u8_at(octets, 36, NAME_IN_ERRORS)?,
            home_address: address_at(octets, 40, NAME_IN_ERRORS)?,
            care_of_address: address_at(octets, 56, NAME_IN_ERRORS)?,
            authenticator: array_at(octets, AUTHENTICATOR_OFFSET, NAME_IN_ERRORS)?,
            prefixes: (0..count).map(prefix).collect::<Result<_, _>>()?,
            public_key,
        })
    }

    /// Returns the Mobility Header with a zero checksum and the first [`MAX_PREFIXES`] prefixes.
    pub fn octets(&self) -> Vec<u8> {
        let count = self.prefixes.len().min(MAX_PREFIXES);
        let key_offset = FIXED_PART_LEN + count * PREFIX_LEN;
        let mut octets = vec![0; key_offset + self.public_key.map_or(0, |key| key.len())];
        let length = octets.len() / 8 - 1;
        let mut put = |at: usize, field: &[u8]| {
            for (octet, value) in octets.iter_mut().skip(at).zip(field) {
                *octet = *value;
            }
        };
        let kind = KINDS.iter().position(|kind| *kind == self.kind).map_or(0, |at| at as u8 + 1);
        put(0, &[protocol::NO_NEXT_HEADER, length as u8, EXPERIMENTAL]);
        put(6, &[kind, count as u8]);
        put(8, &MAGIC_NUMBER.to_be_bytes());
        put(12, &self.sequence.to_be_bytes());
        put(14, &self.lifetime.to_be_bytes());
        put(16, &self.cookie.to_be_bytes());
        put(24, &self.keygen_token.to_be_bytes());
        put(32, &self.home_nonce.to_be_bytes());
        put(34, &self.care_of_nonce.to_be_bytes());
        put(36, &[self.status]);
        if let Some(key) = &self.public_key {
            put(KEY_VERSION_OFFSET, &[WIREGUARD_KEY]);
            put(key_offset, key);
        }
        put(40, &self.home_address.octets());
        put(56, &self.care_of_address.octets());
        put(AUTHENTICATOR_OFFSET, &self.authenticator);
        for (number, prefix) in self.prefixes.iter().take(count).enumerate() {
            put(FIXED_PART_LEN + number * PREFIX_LEN, &[prefix.prefix_len()]);
            put(FIXED_PART_LEN + number * PREFIX_LEN + 8, &prefix.network().octets());
        }
        octets
    }

    /// Returns an IPv6 packet with the message.
    pub fn emit_packet(&self, source: Ipv6Addr, destination: Ipv6Addr, hop_limit: u8) -> Vec<u8> {
        ControlPacket::without_home_address(source, destination, hop_limit, &mut self.octets()).emit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv6::{HEADER_LEN, Header};

    fn example_message(kind: DirectRouteKind) -> DirectRoute {
        DirectRoute {
            kind,
            sequence: 0x0102,
            lifetime: 105,
            cookie: 0x0102_0304_0506_0708,
            keygen_token: 0x1112_1314_1516_1718,
            home_nonce: 7,
            care_of_nonce: 8,
            status: 1,
            home_address: "2001:db8:1::1234".parse().expect("address"),
            care_of_address: "2001:db8:f1::7".parse().expect("address"),
            authenticator: [9; AUTHENTICATOR_LEN],
            prefixes: vec![
                "2001:db8:a::/64".parse().expect("prefix"),
                "2001:db8:b::/48".parse().expect("prefix"),
            ],
            public_key: None,
        }
    }

    fn parse_packet(packet: &[u8]) -> Result<DirectRoute, Error> {
        let header = Header::parse(packet)?;
        let header =
            MobilityHeader::parse_verified(&packet[HEADER_LEN..], header.source, header.destination)?;
        DirectRoute::parse(&header)
    }

    #[test]
    fn direct_route_message_is_encoded_and_decoded() {
        let (source, destination) =
            ("2001:db8::1".parse().expect("address"), "2001:db8::2".parse().expect("address"));
        for kind in KINDS {
            let message = example_message(kind);
            let packet = message.emit_packet(source, destination, 64);
            assert_eq!(packet.len(), HEADER_LEN + FIXED_PART_LEN + 2 * PREFIX_LEN);
            assert_eq!(parse_packet(&packet), Ok(message));
            let with_key = DirectRoute { public_key: Some([7; PUBLIC_KEY_LEN]), ..example_message(kind) };
            let packet = with_key.emit_packet(source, destination, 64);
            assert_eq!(packet.len(), HEADER_LEN + FIXED_PART_LEN + 2 * PREFIX_LEN + PUBLIC_KEY_LEN);
            assert_eq!(parse_packet(&packet), Ok(with_key));
            let empty = DirectRoute::new(kind);
            assert_eq!(parse_packet(&empty.emit_packet(source, destination, 64)), Ok(empty));
        }
    }

    #[test]
    fn direct_route_parser_refuses_other_and_malformed_messages() {
        let (source, destination) =
            ("2001:db8::1".parse().expect("address"), "2001:db8::2".parse().expect("address"));
        let packet = example_message(DirectRouteKind::BindingUpdate).emit_packet(source, destination, 64);
        let changed = |at: usize, value: u8| {
            let mut octets = packet[HEADER_LEN..].to_vec();
            octets[at] = value;
            super::super::set_checksum(&mut octets, source, destination);
            parse_packet(&[&packet[..HEADER_LEN], &octets].concat())
        };
        assert_eq!(changed(6, 6), Ok(example_message(DirectRouteKind::BindingUpdate)));
        for (at, value) in [
            (2, 13),
            (6, 0),
            (6, 10),
            (7, 3),
            (7, 9),
            (8, 0),
            (FIXED_PART_LEN, 129),
            (FIXED_PART_LEN, 40),
            (1, 5),
        ] {
            assert!(changed(at, value).is_err(), "{at}: {value}");
        }
        for length in HEADER_LEN..packet.len() {
            assert!(parse_packet(&packet[..length]).is_err(), "{length}");
        }
        // The message has Key Version 1, but its key is missing.
        assert!(changed(KEY_VERSION_OFFSET, WIREGUARD_KEY).is_err());
        // The parser ignores a key of an unknown version.
        assert_eq!(
            changed(KEY_VERSION_OFFSET, WIREGUARD_KEY + 1),
            Ok(example_message(DirectRouteKind::BindingUpdate))
        );
    }
}
