//! The IPv4 header (RFC 791 3.1), its fragments, and the ICMP errors of a tunnel's end (RFC 792, RFC 1191).
//!
//! Mobile networks may have IPv4 prefixes, whose packets travel inside tunnels (RFC 5555). The parser checks
//! version, header length and Total Length, and cuts off octets beyond the Total Length. It does not verify
//! the header checksum, because the kernel verifies it before or after this module. If a field changes, the
//! module updates the checksum by the difference alone (RFC 1624), so a wrong checksum stays wrong.
//!
//! Left out: the contents of IP options, ICMP other than Destination Unreachable and Time Exceeded.

use std::net::Ipv4Addr;

use crate::octets::{array_at, slice_at, u16_at};
use crate::{Error, checksum, ipv6};

/// Octets of an IPv4 header without options.
pub const HEADER_LEN: usize = 20;
/// Size in octets of the packet that every host can receive, in fragments if necessary (RFC 791 3.1).
pub const MIN_REASSEMBLY_SIZE: usize = 576;

/// Protocol number of ICMP.
pub const ICMP: u8 = 1;

/// Source of ICMP errors of a node that has no IPv4 address (RFC 7600 4.8, RFC 6890).
pub const DUMMY_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

const DONT_FRAGMENT_FLAG: u16 = 0x4000;
const MORE_FRAGMENTS_FLAG: u16 = 0x2000;
const FRAGMENT_OFFSET_MASK: u16 = 0x1fff;
/// TTL of the ICMP errors of this module.
const ICMP_ERROR_TTL: u8 = 64;
/// Bit in the type of an option: a router that fragments the packet copies the option into each fragment (RFC
/// 791 3.1).
const COPIED_OPTION_FLAG: u8 = 0x80;

/// An IPv4 header, without its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Length of the header with its options, octets.
    pub header_length: usize,
    /// DS field and ECN bits.
    pub traffic_class: u8,
    /// Length of the packet, octets.
    pub total_length: u16,
    /// The Identification, which all fragments of a packet have.
    pub identification: u16,
    /// DF: routers must not fragment the packet.
    pub dont_fragment: bool,
    /// MF: the packet is a fragment, and not the last one.
    pub more_fragments: bool,
    /// Offset of the fragment's data in the payload of the original packet, octets.
    pub fragment_offset: u16,
    /// Number of remaining hops.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// The source address.
    pub source: Ipv4Addr,
    /// The destination address.
    pub destination: Ipv4Addr,
}

impl Header {
    /// Reads the header; the packet may lack its payload.
    ///
    /// # Errors
    /// [`Error::Truncated`] if octets of the header are missing, [`Error::Value`] for another version than 4
    /// or a length that is too small.
    pub fn parse(packet: &[u8]) -> Result<Header, Error> {
        const NAME_IN_ERRORS: &str = "IPv4 header";
        let fixed = array_at::<HEADER_LEN>(packet, 0, NAME_IN_ERRORS)?;
        let [first, traffic_class, ..] = fixed;
        if first >> 4 != 4 {
            return Err(Error::Value { what: "IP version", expected: "4", found: u32::from(first >> 4) });
        }
        let header_length = usize::from(first & 0x0f) * 4;
        if header_length < HEADER_LEN {
            let found = u32::from(first & 0x0f);
            return Err(Error::Value { what: "IPv4 header length", expected: "at least 5", found });
        }
        slice_at(packet, 0, header_length, NAME_IN_ERRORS)?;
        let total_length = u16_at(packet, 2, NAME_IN_ERRORS)?;
        if usize::from(total_length) < header_length {
            let found = u32::from(total_length);
            return Err(Error::Value { what: "IPv4 total length", expected: "the header's at least", found });
        }
        let flags = u16_at(packet, 6, NAME_IN_ERRORS)?;
        Ok(Header {
            header_length,
            traffic_class,
            total_length,
            identification: u16_at(packet, 4, NAME_IN_ERRORS)?,
            dont_fragment: flags & DONT_FRAGMENT_FLAG != 0,
            more_fragments: flags & MORE_FRAGMENTS_FLAG != 0,
            fragment_offset: (flags & FRAGMENT_OFFSET_MASK) << 3,
            ttl: fixed[8],
            protocol: fixed[9],
            source: Ipv4Addr::from(array_at::<4>(packet, 12, NAME_IN_ERRORS)?),
            destination: Ipv4Addr::from(array_at::<4>(packet, 16, NAME_IN_ERRORS)?),
        })
    }

    /// Reads the header of a whole packet; the second value is the packet, cut to the Total Length.
    ///
    /// # Errors
    /// The errors of [`Header::parse`], and [`Error::Truncated`] if the packet lacks octets of the payload.
    pub fn parse_packet(packet: &[u8]) -> Result<(Header, &[u8]), Error> {
        let header = Header::parse(packet)?;
        Ok((header, slice_at(packet, 0, usize::from(header.total_length), "IPv4 packet")?))
    }

    /// Returns whether the packet is a fragment other than the first; such a fragment has no upper-layer
    /// header.
    pub fn is_later_fragment(&self) -> bool {
        self.fragment_offset > 0
    }

    /// Returns the fields in an IPv6 header with IPv4-mapped addresses, so that one table can serve both IP
    /// versions. No packet has such a header.
    pub fn as_ipv6(&self) -> ipv6::Header {
        let payload = usize::from(self.total_length).saturating_sub(self.header_length);
        ipv6::Header {
            traffic_class: self.traffic_class,
            flow_label: 0,
            payload_length: u16::try_from(payload).unwrap_or_default(),
            next_header: self.protocol,
            hop_limit: self.ttl,
            source: self.source.to_ipv6_mapped(),
            destination: self.destination.to_ipv6_mapped(),
        }
    }
}

/// Returns whether an IPv4 address is unicast and routed beyond its link. Private addresses count as routed.
pub fn is_unicast_routable(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    first != 0 && first < 224 && !address.is_loopback() && !address.is_link_local()
}

/// Sets DS field and ECN bits of a packet.
pub fn set_traffic_class(packet: &mut [u8], traffic_class: u8) {
    set_octet(packet, 1, traffic_class);
}

/// Sets the TTL of a packet.
pub fn set_ttl(packet: &mut [u8], ttl: u8) {
    set_octet(packet, 8, ttl);
}

/// Sets an octet of the header, and updates the checksum (RFC 1624 3).
fn set_octet(packet: &mut [u8], at: usize, value: u8) {
    let Some(header) = packet.first_chunk_mut::<HEADER_LEN>() else { return };
    let word = at & !1;
    let old = u16::from_be_bytes([header[word], header[word + 1]]);
    header[at] = value;
    let new = u16::from_be_bytes([header[word], header[word + 1]]);
    let sum = u16::from_be_bytes([header[10], header[11]]);
    let sum = !checksum::ones_complement_add(checksum::ones_complement_add(!sum, !old), new);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Writes the checksum of the header at the beginning of `packet`. Leaves a truncated header unchanged.
pub fn set_checksum(packet: &mut [u8]) {
    let length = packet.first().map_or(0, |first| usize::from(first & 0x0f) * 4);
    let Some(header) = packet.get_mut(..length).filter(|header| header.len() >= HEADER_LEN) else { return };
    header[10..12].fill(0);
    let sum = !checksum::ones_complement_sum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Cuts a packet into fragments of at most `mtu` octets (RFC 791 3.2). `mtu` is at least 68. The packet may
/// itself be a fragment. Returns the packet alone if it fits, and an empty list if the packet is malformed,
/// or is too large and has DF.
pub fn split_into_fragments(packet: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let Ok((header, packet)) = Header::parse_packet(packet) else { return Vec::new() };
    if packet.len() <= mtu {
        return vec![packet.to_vec()];
    }
    let Some((first, payload)) = packet.split_at_checked(header.header_length) else { return Vec::new() };
    if header.dont_fragment {
        return Vec::new();
    }
    let later = later_fragment_header(first);
    let (mut fragments, mut at) = (Vec::new(), 0);
    while at < payload.len() {
        let front = if at == 0 { first } else { &later };
        let room = (mtu.saturating_sub(front.len()) & !7).max(8);
        let piece = payload.get(at..(at + room).min(payload.len())).unwrap_or_default();
        let offset = (usize::from(header.fragment_offset) + at) / 8;
        let more = header.more_fragments || at + piece.len() < payload.len();
        let flags = u16::try_from(offset).unwrap_or(FRAGMENT_OFFSET_MASK)
            | if more { MORE_FRAGMENTS_FLAG } else { 0 };
        let mut fragment = [front, piece].concat();
        let length = u16::try_from(fragment.len()).unwrap_or(u16::MAX);
        fragment[2..4].copy_from_slice(&length.to_be_bytes());
        fragment[6..8].copy_from_slice(&flags.to_be_bytes());
        set_checksum(&mut fragment);
        fragments.push(fragment);
        at += room;
    }
    fragments
}

/// Returns the header for fragments other than the first. It has only the options that each fragment must
/// contain.
fn later_fragment_header(header: &[u8]) -> Vec<u8> {
    let (fixed, options) = header.split_at(HEADER_LEN.min(header.len()));
    let mut copied = fixed.to_vec();
    let mut rest = options;
    while let [kind, ..] = *rest {
        let length = match (kind, rest.get(1)) {
            (0, _) => break,
            (1, _) => 1,
            (_, Some(&length)) if length >= 2 && usize::from(length) <= rest.len() => usize::from(length),
            _ => break,
        };
        let (option, behind) = rest.split_at(length);
        if kind & COPIED_OPTION_FLAG != 0 {
            copied.extend_from_slice(option);
        }
        rest = behind;
    }
    // Fill up with zeros: option 0 ends the list of options.
    copied.resize(copied.len().next_multiple_of(4), 0);
    let words = u8::try_from(copied.len() / 4).unwrap_or(15);
    if let Some(first) = copied.first_mut() {
        *first = 0x40 | words;
    }
    copied
}

/// An ICMP error about a packet (RFC 792, RFC 1191 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcmpErrorMessage {
    /// Destination Unreachable, for example code 1: host unreachable.
    Unreachable {
        /// The Code field.
        code: u8,
    },
    /// Destination Unreachable, code 4: fragmentation needed and DF set.
    FragmentationNeeded {
        /// The MTU of the next hop, octets.
        mtu: u16,
    },
    /// Time Exceeded.
    TimeExceeded {
        /// The Code field.
        code: u8,
    },
}

/// Returns the whole IPv4 packet with an ICMP error about `invoking`, which begins with its IPv4 header. The
/// packet has at most 576 octets (RFC 1812 4.3.2.3).
pub fn error_packet(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    error: IcmpErrorMessage,
    invoking: &[u8],
) -> Vec<u8> {
    let (kind, code, mtu) = match error {
        IcmpErrorMessage::Unreachable { code } => (3, code, 0),
        IcmpErrorMessage::FragmentationNeeded { mtu } => (3, 4, mtu),
        IcmpErrorMessage::TimeExceeded { code } => (11, code, 0),
    };
    let quoted = invoking.get(..MIN_REASSEMBLY_SIZE - HEADER_LEN - 8).unwrap_or(invoking);
    let mut message = vec![kind, code, 0, 0, 0, 0];
    message.extend_from_slice(&mtu.to_be_bytes());
    message.extend_from_slice(quoted);
    let sum = !checksum::ones_complement_sum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let total_length = u16::try_from(HEADER_LEN + message.len()).unwrap_or(u16::MAX);
    let mut packet = Vec::with_capacity(usize::from(total_length));
    // RFC 1812 4.3.2.5: the TOS octet has precedence 6, internetwork control.
    packet.extend_from_slice(&[0x45, 0xc0]);
    packet.extend_from_slice(&total_length.to_be_bytes());
    packet.extend_from_slice(&[0, 0, 0, 0, ICMP_ERROR_TTL, ICMP, 0, 0]);
    packet.extend_from_slice(&source.octets());
    packet.extend_from_slice(&destination.octets());
    set_checksum(&mut packet);
    packet.append(&mut message);
    packet
}

/// Returns whether a node may send an ICMP error about a packet (RFC 1122 3.2.2). A node may not send an
/// error about an ICMP error or a later fragment. Source and destination of the packet must each be the
/// address of a single node.
pub fn may_send_error(invoking: &[u8]) -> bool {
    let Ok(header) = Header::parse(invoking) else { return false };
    if !is_unicast_routable(header.source)
        || !is_unicast_routable(header.destination)
        || header.is_later_fragment()
    {
        return false;
    }
    let kind = invoking.get(header.header_length);
    // About ICMP messages, a node may send errors only if the message is a query (Echo, Timestamp,
    // Information, Address Mask) or the reply to one.
    header.protocol != ICMP || kind.is_some_and(|kind| matches!(kind, 0 | 8 | 13..=18))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(length: usize, options: &[u8]) -> Vec<u8> {
        let header_length = HEADER_LEN + options.len();
        let mut packet = vec![0x40 | (header_length / 4) as u8, 0xb8];
        packet.extend_from_slice(&((header_length + length) as u16).to_be_bytes());
        packet.extend_from_slice(&[0x12, 0x34, 0, 0, 17, 99, 0, 0, 10, 42, 7, 5, 192, 0, 2, 1]);
        packet.extend_from_slice(options);
        set_checksum(&mut packet);
        packet.extend((0..length).map(|at| (at * 7) as u8));
        packet
    }

    fn has_valid_checksum(packet: &[u8]) -> bool {
        let header = Header::parse(packet).expect("a header");
        checksum::ones_complement_sum(&packet[..header.header_length]) == 0xffff
    }

    /// Joins fragments in any order, as a host does.
    fn reassemble(fragments: &[Vec<u8>]) -> Vec<u8> {
        let mut pieces: Vec<_> = fragments.iter().map(|it| Header::parse_packet(it).expect("fine")).collect();
        pieces.sort_by_key(|(header, _)| header.fragment_offset);
        let mut payload = Vec::new();
        for (header, packet) in &pieces {
            assert_eq!(usize::from(header.fragment_offset), payload.len());
            payload.extend_from_slice(&packet[header.header_length..]);
        }
        assert!(!pieces.last().expect("one").0.more_fragments);
        payload
    }

    proptest! {
        #[test]
        fn ipv4_fragments_are_reassembled_to_the_original_packet(
            length in 0usize..9000, mtu in 68usize..2000, words in 0usize..4, further in 68usize..500,
        ) {
            // Option 7 (Record Route) is only in the first fragment; option 0x83 is in each fragment.
            let options = [7, 3, 4, 0x83, 3, 4, 1, 1, 0, 0, 0, 0];
            let whole = packet(length, &options[..4 * words.min(3)]);
            let fragments = split_into_fragments(&whole, mtu);
            for piece in &fragments {
                prop_assert!(piece.len() <= mtu.max(20) && has_valid_checksum(piece));
            }
            // A router on the path may cut the fragments again.
            let finer: Vec<Vec<u8>> =
                fragments.iter().flat_map(|it| split_into_fragments(it, further)).collect();
            let header = Header::parse(&whole).expect("a header");
            prop_assert_eq!(reassemble(&finer), &whole[header.header_length..]);
        }

        #[test]
        fn random_octets_do_not_panic(octets in prop::collection::vec(any::<u8>(), 0..200), mtu: u16) {
            for first in [None, Some(0x45), Some(0x4f)] {
                let mut octets = octets.clone();
                if let (Some(first), Some(place)) = (first, octets.first_mut()) {
                    *place = first;
                }
                if let Ok((header, whole)) = Header::parse_packet(&octets) {
                    prop_assert!(whole.len() >= header.header_length);
                }
                split_into_fragments(&octets, usize::from(mtu).max(68));
                may_send_error(&octets);
                set_ttl(&mut octets, 3);
            }
        }

        #[test]
        fn ipv4_checksum_stays_valid_after_changing_a_field(class: u8, ttl: u8) {
            let mut octets = packet(10, &[]);
            set_traffic_class(&mut octets, class);
            set_ttl(&mut octets, ttl);
            let header = Header::parse(&octets).expect("a header");
            prop_assert!(has_valid_checksum(&octets) && header.traffic_class == class && header.ttl == ttl);
        }
    }

    #[test]
    fn ipv4_packet_with_df_is_not_fragmented() {
        let mut whole = packet(1000, &[]);
        whole[6] = 0x40;
        assert!(split_into_fragments(&whole, 500).is_empty());
        assert_eq!(split_into_fragments(&whole, 1020).len(), 1);
    }

    #[test]
    fn icmp_error_quotes_the_packet_and_draws_no_icmp_error() {
        let whole = packet(1000, &[]);
        assert!(may_send_error(&whole));
        let error = IcmpErrorMessage::FragmentationNeeded { mtu: 1372 };
        let message = error_packet(DUMMY_ADDRESS, Ipv4Addr::new(10, 42, 7, 5), error, &whole);
        let (header, _) = Header::parse_packet(&message).expect("a packet");
        assert!(message.len() == MIN_REASSEMBLY_SIZE && has_valid_checksum(&message));
        assert_eq!((header.source, header.protocol), (DUMMY_ADDRESS, ICMP));
        assert_eq!(message[20..22], [3, 4]);
        assert_eq!(message[24..28], [0, 0, 5, 92]);
        assert_eq!(checksum::ones_complement_sum(&message[20..]), 0xffff);
        assert_eq!(message[28..], whole[..548]);
        assert!(!may_send_error(&message));
        for (at, value) in [(7, 1), (12, 224), (16, 255), (12, 0), (12, 127)] {
            let mut other = whole.clone();
            other[at] = value;
            assert!(!may_send_error(&other), "octet {at}");
        }
    }
}
