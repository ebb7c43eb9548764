//! Fragments of outer packets (RFC 8200 4.5, RFC 2473 7).
//!
//! An inner packet of up to 1280 octets passes any path: if the outer packet does not fit, the forwarder
//! sends it in fragments. The receiver reassembles fragments before all other steps. The number of pending
//! packets, their age and their size are bounded. Unauthenticated sources have a tighter bound than tunnel
//! ends, so that their fragments cannot push out the packets of tunnel ends. An overlapping fragment voids
//! the packet (RFC 5722). The reassembler ignores an exact duplicate, and an atomic fragment affects no other
//! packet (RFC 6946).

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::fragment::{FRAGMENT_HEADER_LEN, FragmentHeader};
use carnet_wire::ipv6::{HEADER_LEN, Header, MIN_MTU, protocol};

/// Largest number of incomplete packets of tunnel ends; a new packet replaces the oldest one.
const MAX_INCOMPLETE_PACKETS: usize = 64;
/// Largest number of incomplete packets from unauthenticated sources: a first Binding Update may come in
/// fragments.
const MAX_INCOMPLETE_FROM_OTHER_SOURCES: usize = 16;
/// Largest reassembled packet in octets: a jumbo frame and the outer header, with room to spare.
const MAX_REASSEMBLED_LENGTH: usize = 10_240;
/// Largest number of fragments of a packet.
const MAX_FRAGMENTS_PER_PACKET: usize = 64;
/// RFC 8200 4.5 says 60 s. A shorter time is enough, because tunnel ends are close to each other; the memory
/// is bounded.
const REASSEMBLY_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct IncompletePacket {
    first_fragment_at: Time,
    first_header: Header,
    next_header: u8,
    /// Length of the packet in octets; `None` until its last fragment has arrived.
    total_length: Option<usize>,
    fragments_by_offset: BTreeMap<usize, Vec<u8>>,
    octets: usize,
}

/// Key of a packet in fragments: source, destination and identification (RFC 8200 4.5).
type FragmentKey = (Ipv6Addr, Ipv6Addr, u32);

/// Incomplete packets of one kind of source, the oldest first. A search visits all of them, but their number
/// is small.
#[derive(Debug, Default)]
struct IncompletePackets(VecDeque<(FragmentKey, IncompletePacket)>);

impl IncompletePackets {
    fn remove_expired(&mut self, now: Time) {
        while self
            .0
            .front()
            .is_some_and(|(_, p)| now.saturating_since(p.first_fragment_at) >= REASSEMBLY_TIMEOUT)
        {
            self.0.pop_front();
        }
    }

    /// Returns the index of the packet with this key. If the list already has `limit` packets, a new packet
    /// replaces the oldest one.
    fn position_or_insert(
        &mut self,
        key: FragmentKey,
        limit: usize,
        new: impl FnOnce() -> IncompletePacket,
    ) -> usize {
        if let Some(at) = self.0.iter().position(|(other, _)| *other == key) {
            return at;
        }
        if self.0.len() >= limit {
            self.0.pop_front();
        }
        self.0.push_back((key, new()));
        self.0.len() - 1
    }
}

/// Incomplete packets of tunnel ends and of unauthenticated sources, in separate groups.
#[derive(Debug, Default)]
pub struct Reassembler {
    from_tunnel_ends: IncompletePackets,
    from_other_sources: IncompletePackets,
}

impl Reassembler {
    /// Handles a fragment. Returns the packet without fragment header when its last missing fragment arrives.
    /// `stranger` says that the source is not a tunnel end.
    ///
    /// # Errors
    ///
    /// Returns the reason if the fragment breaks a rule or exceeds a limit.
    pub fn handle_fragment(
        &mut self,
        now: Time,
        header: &Header,
        fragment: &FragmentHeader,
        payload: &[u8],
        stranger: bool,
    ) -> Result<Option<Vec<u8>>, &'static str> {
        let (group, limit) = match stranger {
            true => (&mut self.from_other_sources, MAX_INCOMPLETE_FROM_OTHER_SOURCES),
            false => (&mut self.from_tunnel_ends, MAX_INCOMPLETE_PACKETS),
        };
        group.remove_expired(now);
        let end = usize::from(fragment.offset) + payload.len();
        if payload.is_empty()
            || end > MAX_REASSEMBLED_LENGTH
            || (fragment.more_fragments && !payload.len().is_multiple_of(8))
        {
            return Err("length");
        }
        if fragment.offset == 0 && !fragment.more_fragments {
            return join_fragments(header, fragment.next_header, [payload].into_iter(), payload.len())
                .map(Some);
        }
        let key = (header.source, header.destination, fragment.identification);
        let at = group.position_or_insert(key, limit, || IncompletePacket {
            first_fragment_at: now,
            first_header: *header,
            next_header: fragment.next_header,
            total_length: None,
            fragments_by_offset: BTreeMap::new(),
            octets: 0,
        });
        let Some((_, pending)) = group.0.get_mut(at) else { return Ok(None) };
        match pending.store_fragment(header, fragment, payload) {
            Ok(false) => return Ok(None),
            Ok(true) => {}
            Err(why) => {
                group.0.remove(at);
                return Err(why);
            }
        }
        let Some((_, pending)) = group.0.remove(at) else { return Ok(None) };
        let pieces = pending.fragments_by_offset.values().map(Vec::as_slice);
        join_fragments(&pending.first_header, pending.next_header, pieces, pending.octets).map(Some)
    }
}

impl IncompletePacket {
    /// Stores a fragment, and returns whether its packet is complete.
    fn store_fragment(
        &mut self,
        header: &Header,
        fragment: &FragmentHeader,
        payload: &[u8],
    ) -> Result<bool, &'static str> {
        let offset = usize::from(fragment.offset);
        let end = offset + payload.len();
        if self.fragments_by_offset.get(&offset).is_some_and(|piece| piece == payload) {
            return Ok(false);
        }
        let before =
            self.fragments_by_offset.range(..=offset).next_back().map_or(0, |(at, piece)| at + piece.len());
        let after = self.fragments_by_offset.range(offset..).next().map_or(usize::MAX, |(at, _)| *at);
        let bad_end = match self.total_length {
            Some(total) => end > total || (!fragment.more_fragments && end != total),
            None => {
                !fragment.more_fragments
                    && self.fragments_by_offset.last_key_value().is_some_and(|(at, p)| at + p.len() > end)
            }
        };
        if before > offset
            || after < end
            || bad_end
            || self.fragments_by_offset.len() >= MAX_FRAGMENTS_PER_PACKET
        {
            return Err("overlap");
        }
        if offset == 0 {
            self.first_header = *header;
            self.next_header = fragment.next_header;
        }
        if !fragment.more_fragments {
            self.total_length = Some(end);
        }
        self.octets += payload.len();
        self.fragments_by_offset.insert(offset, payload.to_vec());
        Ok(self.total_length == Some(self.octets))
    }
}

/// Returns the packet, joined from its fragments.
fn join_fragments<'a>(
    header: &Header,
    next_header: u8,
    pieces: impl Iterator<Item = &'a [u8]>,
    octets: usize,
) -> Result<Vec<u8>, &'static str> {
    let payload_length = u16::try_from(octets).map_err(|_| "length")?;
    let mut packet = Vec::with_capacity(HEADER_LEN + octets);
    packet.extend_from_slice(&Header { payload_length, next_header, ..*header }.emit());
    for piece in pieces {
        packet.extend_from_slice(piece);
    }
    Ok(packet)
}

/// Cuts a packet without extension headers into fragments of at most `mtu` octets. `mtu` is at least 1240:
/// the largest inner packet of a tunnel over a path with an MTU of 1280.
pub fn cut_into_fragments(packet: &[u8], mtu: usize, identification: u32) -> Vec<Vec<u8>> {
    let Ok((header, payload)) = Header::parse_packet(packet) else { return Vec::new() };
    let room = (mtu.max(MIN_MTU - HEADER_LEN) - HEADER_LEN - FRAGMENT_HEADER_LEN) & !7;
    let mut fragments = Vec::with_capacity(payload.len().div_ceil(room));
    for (index, piece) in payload.chunks(room).enumerate() {
        let outer = Header {
            payload_length: u16::try_from(FRAGMENT_HEADER_LEN + piece.len()).unwrap_or(u16::MAX),
            next_header: protocol::FRAGMENT,
            ..header
        };
        let fragment = FragmentHeader {
            next_header: header.next_header,
            offset: u16::try_from(index * room).unwrap_or(u16::MAX),
            more_fragments: (index + 1) * room < payload.len(),
            identification,
        };
        let mut octets = Vec::with_capacity(HEADER_LEN + FRAGMENT_HEADER_LEN + piece.len());
        octets.extend_from_slice(&outer.emit());
        octets.extend_from_slice(&fragment.emit());
        octets.extend_from_slice(piece);
        fragments.push(octets);
    }
    fragments
}

#[cfg(test)]
mod tests {
    use super::*;
    use carnet_wire::extension::ExtensionHeaders;
    use proptest::prelude::*;

    fn packet(length: usize) -> Vec<u8> {
        let header = Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: u16::try_from(length).expect("fits"),
            next_header: protocol::IPV6,
            hop_limit: 64,
            source: "2001:db8::1".parse().expect("address"),
            destination: "2001:db8::2".parse().expect("address"),
        };
        let mut packet = header.emit().to_vec();
        packet.extend((0..length).map(|at| at as u8));
        packet
    }

    fn reassemble_fragments(
        reassembler: &mut Reassembler,
        now: Time,
        packet: &[u8],
    ) -> Result<Option<Vec<u8>>, &'static str> {
        let header = Header::parse(packet).expect("header");
        let extensions = ExtensionHeaders::parse(packet).expect("extensions");
        let fragment = extensions.fragment.expect("fragment header");
        reassembler.handle_fragment(
            now,
            &header,
            &fragment,
            &packet[HEADER_LEN + FRAGMENT_HEADER_LEN..],
            true,
        )
    }

    proptest! {
        #[test]
        fn fragments_in_any_order_are_reassembled(
            length in 1241usize..9000,
            order in any::<u64>(),
        ) {
            let whole = packet(length);
            let mut pieces = cut_into_fragments(&whole, 1280, 7);
            prop_assert!(pieces.iter().all(|p| p.len() <= 1280));
            let mut rng = carnet_base::Rng::new(order);
            for at in (1..pieces.len()).rev() {
                pieces.swap(at, rng.number_below(at as u64 + 1) as usize);
            }
            let mut reassembler = Reassembler::default();
            let mut result = None;
            for piece in &pieces {
                prop_assert_eq!(&result, &None);
                result = reassemble_fragments(&mut reassembler, Time::ZERO, piece).expect("valid");
            }
            prop_assert_eq!(result, Some(whole));
            prop_assert!(reassembler.from_other_sources.0.is_empty());
        }
    }

    #[test]
    fn overlapping_fragments_discard_packet_and_memory_is_bounded() {
        let mut reassembler = Reassembler::default();
        let pieces = cut_into_fragments(&packet(3000), 1280, 1);
        assert_eq!(reassemble_fragments(&mut reassembler, Time::ZERO, &pieces[0]), Ok(None));
        assert_eq!(
            reassemble_fragments(&mut reassembler, Time::ZERO, &pieces[0]),
            Ok(None),
            "the same once more"
        );
        let mut other = pieces[0].clone();
        if let Some(last) = other.last_mut() {
            *last ^= 1;
        }
        assert_eq!(reassemble_fragments(&mut reassembler, Time::ZERO, &other), Err("overlap"));
        assert!(reassembler.from_other_sources.0.is_empty());
        for identification in 0..10_000 {
            let pieces = cut_into_fragments(&packet(3000), 1280, identification);
            let _ = reassemble_fragments(&mut reassembler, Time::ZERO, &pieces[0]);
        }
        assert_eq!(reassembler.from_other_sources.0.len(), MAX_INCOMPLETE_FROM_OTHER_SOURCES);
        let atomic = cut_into_fragments(&packet(1000), 9000, 5);
        assert_eq!(reassemble_fragments(&mut reassembler, Time::ZERO, &atomic[0]), Ok(Some(packet(1000))));
        let late = Time::ZERO + REASSEMBLY_TIMEOUT;
        assert_eq!(reassemble_fragments(&mut reassembler, late, &pieces[1]), Ok(None));
        assert_eq!(reassembler.from_other_sources.0.len(), 1);
    }
}
