//! Fragmentation below IPv6, for hosts with an MTU of 1500 octets over a radio with a smaller one.
//!
//! By default the host gets Packet Too Big and sends smaller packets, as IPv6 prefers. This method fails if a
//! firewall drops Packet Too Big, or if the radio carries less than the 1280 octets that IPv6 requires. Then
//! both stations may agree to fragment packets below IPv6. ETSI has no standard format for such fragments.
//! This module uses the format of RFC 4944 5.3 as the payload of GUC packets:
//!
//! ```text
//!   first:   1 1 0 0 0 | datagram_size (11) | datagram_tag (16) |                      start of the packet
//!   others:  1 1 1 0 0 | datagram_size (11) | datagram_tag (16) | datagram_offset (8)  rest, 8-octet units
//!   question: 0x01                                  answer: 0x02
//! ```
//!
//! In the payload, [`FRAGMENT_FORMAT_MAGIC`] precedes the fragment. The next header is 0, any (EN 302 636-4-1
//! 9.7.2), because 3 means whole IPv6 packets. Stations before carnet 0.2 sent fragments without the four
//! octets as next header 3. This station accepts that form until the release after 0.2.
//!
//! Unlike in RFC 4944, the packet follows without a dispatch octet. The sublayer can fragment packets of up
//! to 2047 octets.
//!
//! **A station without this extension drops these payloads**: an IPv6 packet begins with version 6, and no
//! fragment does. This station fragments only for a station that has announced reassembly. For the first
//! packet that is too large, this station sends a question; the packet waits for up to a second. Without an
//! answer the host gets a Packet Too Big, and the next question follows after a minute. An answer is valid
//! for ten minutes, and only while the station's position is known. The buffer of the Location Service has
//! room for a question, but not for many fragments. A station sends questions and answers only if its
//! operator has enabled fragmentation.
//!
//! **Bounds.** A packet must be complete within [`REASSEMBLY_TIMEOUT`]. The sublayer holds at most
//! [`MAX_INCOMPLETE_PER_STATION`] incomplete packets of a station and [`MAX_INCOMPLETE_PACKETS`] in all; a
//! new packet replaces the oldest. If fragments overlap or disagree about the size, the sublayer drops their
//! packet. GeoNetworking drops duplicates (A.2).
//!
//! Left out: multicast, whose receivers cannot answer. For a multicast packet that is too large, the host
//! gets Packet Too Big.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use carnet_base::Time;

use crate::MacAddress;
use crate::location_table::mac_key;

/// Largest packet that the sublayer can fragment, octets.
pub const MAX_PACKET_OCTETS: usize = 2047;
/// MTU of the virtual interfaces with fragmentation, octets.
pub const INTERFACE_MTU: u32 = 1500;
/// Time within which all fragments of a packet must arrive.
pub const REASSEMBLY_TIMEOUT: Duration = Duration::from_secs(1);
/// Largest number of incomplete packets of one station.
pub const MAX_INCOMPLETE_PER_STATION: usize = 4;
/// Largest number of incomplete packets of all stations.
pub const MAX_INCOMPLETE_PACKETS: usize = 64;

/// Number that distinguishes payloads of this format from all other payloads with next header 0.
pub const FRAGMENT_FORMAT_MAGIC: [u8; 4] = *b"6frg";
/// Type of the payload that asks a station whether it can reassemble fragments.
const FRAGMENTATION_ABILITY_REQUEST: u8 = 0x01;
/// Type of the payload by which a station answers that it can reassemble fragments.
const FRAGMENTATION_ABILITY_REPLY: u8 = 0x02;
/// Highest bits of the first octet of a packet's first fragment (RFC 4944 5.3).
const FIRST_FRAGMENT_DISPATCH: u8 = 0b1100_0000;
/// Highest bits of the first octet of each later fragment (RFC 4944 5.3).
const NEXT_FRAGMENT_DISPATCH: u8 = 0b1110_0000;
const DISPATCH_MASK: u8 = 0b1111_1000;
/// Header length in octets of all fragments but the first; the header of the first fragment is one octet
/// shorter.
const NEXT_FRAGMENT_HEADER_LENGTH: usize = 5;
/// Unit of fragment offsets, octets.
const FRAGMENT_OFFSET_UNIT: usize = 8;

/// Interval at which the sublayer asks a station whether it can reassemble.
const FRAGMENTATION_ABILITY_REQUEST_INTERVAL: Duration = Duration::from_millis(250);
/// Largest number of questions to a station that does not answer.
const MAX_FRAGMENTATION_ABILITY_REQUESTS: u32 = 4;
/// Time for which a station counts as able to reassemble after its answer.
const FRAGMENTATION_ABILITY_LIFETIME: Duration = Duration::from_secs(600);
/// Time for which a station that did not answer counts as unable to reassemble.
const FRAGMENTATION_INABILITY_LIFETIME: Duration = Duration::from_secs(60);
/// Largest number of stations whose ability is stored.
const MAX_STATIONS_WITH_ABILITY: usize = 256;
/// Largest number of octets that wait for the answer of one station.
const MAX_WAITING_OCTETS: usize = 16_384;

/// Ability of a station to reassemble packets.
#[derive(Debug)]
enum FragmentationAbility<T> {
    /// The sublayer has asked, and the station has not answered yet. The packets to the station wait, each
    /// with its context.
    Asked { questions: u32, next: Time, held: Vec<(T, Vec<u8>)> },
    /// The station has confirmed that it can reassemble packets; the confirmation is valid until this time.
    Able { until: Time },
    /// The station has not answered; until this time the sublayer does not ask it again.
    Unable { until: Time },
}

/// Result for a packet that is too large for one payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OversizeOutcome {
    /// The sublayer has fragmented the packet, or the packet waits for the station's answer.
    Taken,
    /// The host must send smaller packets.
    TooBig,
}

/// Result for a received payload.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PayloadOutcome {
    /// The payload is an IPv6 packet, or another payload that this module does not handle.
    NotFragment,
    /// The sublayer has stored the fragment, and the packet is not complete yet.
    Taken,
    /// The payload is malformed.
    Malformed,
    /// The fragment completes a packet, which has these octets.
    Packet(Vec<u8>),
}

/// A packet of which some fragments have arrived.
#[derive(Debug)]
struct IncompletePacket {
    source: u64,
    datagram_tag: u16,
    octets: Vec<u8>,
    /// Bitmap of the received 8-octet units.
    received_units: [u64; 4],
    /// Number of missing units.
    missing_units: usize,
    deadline: Time,
}

/// Fragments and reassembles packets. `T` is the context of a host packet that waits.
#[derive(Debug)]
pub(super) struct Fragments<T> {
    ability_by_station: BTreeMap<u64, FragmentationAbility<T>>,
    incomplete_packets: VecDeque<IncompletePacket>,
    next_datagram_tag: u16,
    /// Payloads to send, with their destinations.
    outgoing_payloads: VecDeque<(MacAddress, Vec<u8>)>,
    /// Packets whose destination did not answer, with their context.
    refused_packets: Vec<(T, Vec<u8>)>,
    /// Counters of fragmented, reassembled and abandoned packets.
    pub(super) fragmented_packets: u64,
    pub(super) reassembled_packets: u64,
    pub(super) abandoned_packets: u64,
}

impl<T> Default for Fragments<T> {
    fn default() -> Self {
        Fragments {
            ability_by_station: BTreeMap::new(),
            incomplete_packets: VecDeque::new(),
            next_datagram_tag: 0,
            outgoing_payloads: VecDeque::new(),
            refused_packets: Vec::new(),
            fragmented_packets: 0,
            reassembled_packets: 0,
            abandoned_packets: 0,
        }
    }
}

fn mac_of(key: u64) -> MacAddress {
    let [_, _, mac @ ..] = key.to_be_bytes();
    mac
}

impl<T> Fragments<T> {
    /// Returns the next payload to send, and the station to which it goes.
    pub(super) fn poll_payload(&mut self) -> Option<(MacAddress, Vec<u8>)> {
        self.outgoing_payloads.pop_front()
    }

    /// Returns the packets that are too large; the caller answers their hosts with Packet Too Big.
    pub(super) fn take_refused_packets(&mut self) -> Vec<(T, Vec<u8>)> {
        std::mem::take(&mut self.refused_packets)
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let questions = self.ability_by_station.values().filter_map(|peer| match peer {
            FragmentationAbility::Asked { next, .. } => Some(*next),
            _ => None,
        });
        questions.chain(self.incomplete_packets.iter().map(|partial| partial.deadline)).min()
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        let Fragments {
            ability_by_station: peers,
            outgoing_payloads: outgoing,
            refused_packets: refused,
            ..
        } = self;
        for (key, peer) in peers.iter_mut() {
            let FragmentationAbility::Asked { questions, next, held } = peer else { continue };
            if *next > now {
                continue;
            }
            if *questions < MAX_FRAGMENTATION_ABILITY_REQUESTS {
                (*questions, *next) = (*questions + 1, now + FRAGMENTATION_ABILITY_REQUEST_INTERVAL);
                outgoing.push_back((mac_of(*key), vec![FRAGMENTATION_ABILITY_REQUEST]));
            } else {
                refused.append(held);
                *peer = FragmentationAbility::Unable { until: now + FRAGMENTATION_INABILITY_LIFETIME };
            }
        }
        let before = self.incomplete_packets.len();
        self.incomplete_packets.retain(|partial| partial.deadline > now);
        self.abandoned_packets += (before - self.incomplete_packets.len()) as u64;
    }

    /// Accepts a packet for a station; one payload carries `room` octets.
    pub(super) fn send_packet(
        &mut self,
        now: Time,
        to: MacAddress,
        room: usize,
        with: T,
        packet: &[u8],
    ) -> OversizeOutcome {
        if packet.len() > MAX_PACKET_OCTETS || room < NEXT_FRAGMENT_HEADER_LENGTH + FRAGMENT_OFFSET_UNIT {
            return OversizeOutcome::TooBig;
        }
        let key = mac_key(to);
        match self.ability_by_station.get_mut(&key) {
            Some(FragmentationAbility::Able { until }) if *until > now => {
                self.queue_fragments(to, room, packet);
                OversizeOutcome::Taken
            }
            Some(FragmentationAbility::Unable { until }) if *until > now => OversizeOutcome::TooBig,
            Some(FragmentationAbility::Asked { held, .. }) => {
                if held.iter().map(|(_, packet)| packet.len()).sum::<usize>() + packet.len()
                    > MAX_WAITING_OCTETS
                {
                    return OversizeOutcome::TooBig;
                }
                held.push((with, packet.to_vec()));
                OversizeOutcome::Taken
            }
            _ => {
                if !self.ability_by_station.contains_key(&key)
                    && self.ability_by_station.len() >= MAX_STATIONS_WITH_ABILITY
                    && !self.make_room_for_fragmentation_ability(now)
                {
                    return OversizeOutcome::TooBig;
                }
                let held = vec![(with, packet.to_vec())];
                self.ability_by_station.insert(
                    key,
                    FragmentationAbility::Asked {
                        questions: 1,
                        next: now + FRAGMENTATION_ABILITY_REQUEST_INTERVAL,
                        held,
                    },
                );
                self.outgoing_payloads.push_back((to, vec![FRAGMENTATION_ABILITY_REQUEST]));
                OversizeOutcome::Taken
            }
        }
    }

    /// Handles a station whose position has become unknown. Before the next large packet, the sublayer asks
    /// the station again whether it can reassemble.
    pub(super) fn remove_fragmentation_ability(&mut self, station: MacAddress) {
        let key = mac_key(station);
        if matches!(self.ability_by_station.get(&key), Some(FragmentationAbility::Able { .. })) {
            self.ability_by_station.remove(&key);
        }
    }

    /// Makes room for the stored ability of one more station. Returns false if all stored abilities are still
    /// needed.
    fn make_room_for_fragmentation_ability(&mut self, now: Time) -> bool {
        self.ability_by_station.retain(|_, peer| match peer {
            FragmentationAbility::Asked { .. } => true,
            FragmentationAbility::Able { until } | FragmentationAbility::Unable { until } => *until > now,
        });
        if self.ability_by_station.len() >= MAX_STATIONS_WITH_ABILITY {
            // Remove a station that did not answer. The only loss is that the sublayer asks this station
            // again.
            let silent = self
                .ability_by_station
                .iter()
                .find(|(_, peer)| matches!(peer, FragmentationAbility::Unable { .. }));
            if let Some(key) = silent.map(|(key, _)| *key) {
                self.ability_by_station.remove(&key);
            }
        }
        self.ability_by_station.len() < MAX_STATIONS_WITH_ABILITY
    }

    fn queue_fragments(&mut self, to: MacAddress, room: usize, packet: &[u8]) {
        self.fragmented_packets += 1;
        self.next_datagram_tag = self.next_datagram_tag.wrapping_add(1);
        let size = (packet.len() as u16).to_be_bytes();
        let tag = self.next_datagram_tag.to_be_bytes();
        let piece = (room - NEXT_FRAGMENT_HEADER_LENGTH) / FRAGMENT_OFFSET_UNIT * FRAGMENT_OFFSET_UNIT;
        for (number, octets) in packet.chunks(piece).enumerate() {
            let kind = if number == 0 { FIRST_FRAGMENT_DISPATCH } else { NEXT_FRAGMENT_DISPATCH };
            let mut payload = Vec::with_capacity(NEXT_FRAGMENT_HEADER_LENGTH + octets.len());
            payload.extend([kind | size[0], size[1], tag[0], tag[1]]);
            if number > 0 {
                payload.push((number * piece / FRAGMENT_OFFSET_UNIT) as u8);
            }
            payload.extend_from_slice(octets);
            self.outgoing_payloads.push_back((to, payload));
        }
    }

    /// Handles the payload of a unicast packet from a station. If the station now can reassemble, the
    /// sublayer sends it the packets that waited. One payload carries `room` octets.
    pub(super) fn receive_payload(
        &mut self,
        now: Time,
        source: MacAddress,
        room: usize,
        payload: &[u8],
    ) -> PayloadOutcome {
        match payload {
            [FRAGMENTATION_ABILITY_REQUEST, ..] => {
                self.outgoing_payloads.push_back((source, vec![FRAGMENTATION_ABILITY_REPLY]));
                // A station that asks whether this station can reassemble can itself reassemble.
                self.record_fragmentation_ability(now, source, room);
                PayloadOutcome::Taken
            }
            [FRAGMENTATION_ABILITY_REPLY, ..] => {
                self.record_fragmentation_ability(now, source, room);
                PayloadOutcome::Taken
            }
            [kind, size, high, low, rest @ ..]
                if matches!(kind & DISPATCH_MASK, FIRST_FRAGMENT_DISPATCH | NEXT_FRAGMENT_DISPATCH) =>
            {
                let size = usize::from(u16::from_be_bytes([kind & !DISPATCH_MASK, *size]));
                let tag = u16::from_be_bytes([*high, *low]);
                let (offset, octets) = match (kind & DISPATCH_MASK, rest) {
                    (FIRST_FRAGMENT_DISPATCH, octets) => (0, octets),
                    (_, [0, ..] | []) => return PayloadOutcome::Malformed,
                    (_, [offset, octets @ ..]) => (usize::from(*offset), octets),
                };
                self.add_fragment(now, mac_key(source), (tag, size), offset, octets)
            }
            _ => PayloadOutcome::NotFragment,
        }
    }

    /// Stores that a station can reassemble. Ignores an answer to no question, because its entry would take
    /// the room of another station.
    fn record_fragmentation_ability(&mut self, now: Time, station: MacAddress, room: usize) {
        let Some(peer) = self.ability_by_station.get_mut(&mac_key(station)) else { return };
        let before = std::mem::replace(
            peer,
            FragmentationAbility::Able { until: now + FRAGMENTATION_ABILITY_LIFETIME },
        );
        if let FragmentationAbility::Asked { held, .. } = before {
            for (_, packet) in held {
                self.queue_fragments(station, room, &packet);
            }
        }
    }

    fn add_fragment(
        &mut self,
        now: Time,
        source: u64,
        (tag, size): (u16, usize),
        offset: usize,
        octets: &[u8],
    ) -> PayloadOutcome {
        let (begin, end) = (offset * FRAGMENT_OFFSET_UNIT, offset * FRAGMENT_OFFSET_UNIT + octets.len());
        // Each fragment but the last one must consist of whole 8-octet units.
        if octets.is_empty()
            || end > size
            || (end < size && !octets.len().is_multiple_of(FRAGMENT_OFFSET_UNIT))
        {
            return PayloadOutcome::Malformed;
        }
        let at = self
            .incomplete_packets
            .iter()
            .position(|partial| (partial.source, partial.datagram_tag) == (source, tag));
        let at = at.unwrap_or_else(|| {
            self.make_room_for_incomplete_packet(source);
            self.incomplete_packets.push_back(IncompletePacket {
                source,
                datagram_tag: tag,
                octets: vec![0; size],
                received_units: [0; 4],
                missing_units: size.div_ceil(FRAGMENT_OFFSET_UNIT),
                deadline: now + REASSEMBLY_TIMEOUT,
            });
            self.incomplete_packets.len() - 1
        });
        let Some(partial) = self.incomplete_packets.get_mut(at) else { return PayloadOutcome::Malformed };
        let units = offset..offset + octets.len().div_ceil(FRAGMENT_OFFSET_UNIT);
        let is_there = |unit: usize| partial.received_units[unit / 64 % 4] >> (unit % 64) & 1 != 0;
        let fits = partial.octets.len() == size && !units.clone().any(is_there);
        let Some(place) = partial.octets.get_mut(begin..end).filter(|_| fits) else {
            self.incomplete_packets.remove(at);
            self.abandoned_packets += 1;
            return PayloadOutcome::Malformed;
        };
        place.copy_from_slice(octets);
        partial.missing_units -= units.len();
        for unit in units {
            partial.received_units[unit / 64 % 4] |= 1 << (unit % 64);
        }
        if partial.missing_units > 0 {
            return PayloadOutcome::Taken;
        }
        self.reassembled_packets += 1;
        self.incomplete_packets
            .remove(at)
            .map_or(PayloadOutcome::Malformed, |partial| PayloadOutcome::Packet(partial.octets))
    }

    /// Makes room for one more incomplete packet of a station.
    fn make_room_for_incomplete_packet(&mut self, source: u64) {
        let own = self.incomplete_packets.iter().filter(|partial| partial.source == source).count();
        let oldest = if own >= MAX_INCOMPLETE_PER_STATION {
            self.incomplete_packets.iter().position(|partial| partial.source == source)
        } else {
            (self.incomplete_packets.len() >= MAX_INCOMPLETE_PACKETS).then_some(0)
        };
        if let Some(oldest) = oldest {
            self.incomplete_packets.remove(oldest);
            self.abandoned_packets += 1;
        }
    }

    /// Restores the initial state.
    pub(super) fn clear(&mut self) {
        self.ability_by_station.clear();
        self.incomplete_packets.clear();
        self.outgoing_payloads.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MacAddress = [2, 0, 0, 0, 0, 1];
    const B: MacAddress = [2, 0, 0, 0, 0, 2];
    const TEST_TIME: Time = Time::from_secs(100);
    const PAYLOAD_ROOM: usize = 500;

    fn packet(length: usize) -> Vec<u8> {
        (0..length).map(|at| if at == 0 { 0x60 } else { at as u8 }).collect()
    }

    fn take_payloads(fragments: &mut Fragments<()>) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| fragments.poll_payload()).map(|(_, payload)| payload).collect()
    }

    /// Passes payloads of station A to `to`, and returns the results.
    fn receive_all(to: &mut Fragments<()>, payloads: &[Vec<u8>]) -> Vec<PayloadOutcome> {
        payloads.iter().map(|payload| to.receive_payload(TEST_TIME, A, PAYLOAD_ROOM, payload)).collect()
    }

    /// Returns a sender that already knows that station B can reassemble.
    fn sender_knowing_ability() -> Fragments<()> {
        let mut sender = Fragments::default();
        assert_eq!(sender.send_packet(TEST_TIME, B, PAYLOAD_ROOM, (), &packet(600)), OversizeOutcome::Taken);
        assert_eq!(take_payloads(&mut sender), [[FRAGMENTATION_ABILITY_REQUEST]]);
        assert_eq!(
            sender.receive_payload(TEST_TIME, B, PAYLOAD_ROOM, &[FRAGMENTATION_ABILITY_REPLY]),
            PayloadOutcome::Taken
        );
        assert_eq!(take_payloads(&mut sender).len(), 2, "the packet that waited");
        sender
    }

    #[test]
    fn fragments_in_any_order_give_the_original_packet() {
        let (mut from, mut to) = (sender_knowing_ability(), Fragments::default());
        for length in [501, 502, 988, 989, 1500, 2047] {
            let whole = packet(length);
            assert_eq!(from.send_packet(TEST_TIME, B, PAYLOAD_ROOM, (), &whole), OversizeOutcome::Taken);
            let mut pieces = take_payloads(&mut from);
            assert!(pieces.iter().all(|piece| piece.len() <= PAYLOAD_ROOM), "{length}");
            assert_eq!(pieces.len(), length.div_ceil((PAYLOAD_ROOM - 5) / 8 * 8), "{length}");
            pieces.reverse();
            let mut heard = receive_all(&mut to, &pieces);
            assert_eq!(heard.pop(), Some(PayloadOutcome::Packet(whole)), "{length}");
            assert!(heard.iter().all(|heard| *heard == PayloadOutcome::Taken), "{length}");
        }
        assert_eq!((from.fragmented_packets, to.reassembled_packets, to.abandoned_packets), (7, 6, 0));
        assert_eq!(from.send_packet(TEST_TIME, B, PAYLOAD_ROOM, (), &packet(2048)), OversizeOutcome::TooBig);
    }

    #[test]
    fn fragment_header_has_the_format_of_rfc_4944() {
        let mut from = sender_knowing_ability();
        from.send_packet(TEST_TIME, B, PAYLOAD_ROOM, (), &packet(1000));
        let pieces = take_payloads(&mut from);
        // The packet length 1000 is 0x3e8. The second fragment begins at 488 = 61 * 8 octets.
        assert_eq!(pieces[0][..5], [0xc3, 0xe8, 0, 2, 0x60]);
        assert_eq!(pieces[1][..6], [0xe3, 0xe8, 0, 2, 61, 488u16 as u8]);
        assert_eq!(pieces[2].len(), 5 + 1000 - 2 * 488);
    }

    #[test]
    fn station_without_answer_gets_no_fragments_and_is_asked_again_later() {
        let mut from = Fragments::default();
        from.send_packet(TEST_TIME, B, PAYLOAD_ROOM, (), &packet(600));
        let mut now = TEST_TIME;
        let mut questions = 1;
        take_payloads(&mut from);
        while let Some(due) = from.poll_timeout() {
            now = due;
            from.handle_timeout(now);
            questions += take_payloads(&mut from).len();
        }
        assert_eq!((questions, now), (4, TEST_TIME + Duration::from_secs(1)));
        assert_eq!(from.take_refused_packets(), [((), packet(600))]);
        assert_eq!(from.send_packet(now, B, PAYLOAD_ROOM, (), &packet(600)), OversizeOutcome::TooBig);
        assert_eq!(
            from.send_packet(now + FRAGMENTATION_INABILITY_LIFETIME, B, PAYLOAD_ROOM, (), &packet(600)),
            OversizeOutcome::Taken
        );
        // The sublayer accepts a late answer, and ignores an unsolicited one.
        from.receive_payload(
            now + FRAGMENTATION_INABILITY_LIFETIME,
            B,
            PAYLOAD_ROOM,
            &[FRAGMENTATION_ABILITY_REPLY],
        );
        assert_eq!(take_payloads(&mut from).len(), 3);
        from.receive_payload(now, A, PAYLOAD_ROOM, &[FRAGMENTATION_ABILITY_REPLY]);
        assert!(!from.ability_by_station.contains_key(&mac_key(A)));
    }

    #[test]
    fn returning_station_is_asked_again_before_fragments_are_sent() {
        let mut from = sender_knowing_ability();
        from.remove_fragmentation_ability(B);
        assert_eq!(from.send_packet(TEST_TIME, B, PAYLOAD_ROOM, (), &packet(600)), OversizeOutcome::Taken);
        assert_eq!(take_payloads(&mut from), [[FRAGMENTATION_ABILITY_REQUEST]]);
        // If the position of the station becomes unknown, packets that wait for its answer continue to wait.
        from.remove_fragmentation_ability(B);
        assert_eq!(from.send_packet(TEST_TIME, B, PAYLOAD_ROOM, (), &packet(700)), OversizeOutcome::Taken);
        assert_eq!(take_payloads(&mut from).len(), 0);
        from.receive_payload(TEST_TIME, B, PAYLOAD_ROOM, &[FRAGMENTATION_ABILITY_REPLY]);
        assert_eq!(take_payloads(&mut from).len(), 4);
    }

    #[test]
    fn waiting_packets_and_known_stations_are_bounded() {
        let mut from = Fragments::default();
        let taken = (0..100)
            .filter(|_| {
                from.send_packet(TEST_TIME, B, PAYLOAD_ROOM, (), &packet(2000)) == OversizeOutcome::Taken
            })
            .count();
        assert_eq!(taken, MAX_WAITING_OCTETS / 2000);
        for number in 0..2000u16 {
            let [high, low] = number.to_be_bytes();
            from.send_packet(TEST_TIME, [4, 0, 0, 0, high, low], PAYLOAD_ROOM, (), &packet(600));
        }
        assert_eq!(from.ability_by_station.len(), MAX_STATIONS_WITH_ABILITY);
        from.handle_timeout(TEST_TIME + FRAGMENTATION_ABILITY_REQUEST_INTERVAL);
        // A flood of first fragments from one station replaces only packets of that station.
        let mut to: Fragments<()> = Fragments::default();
        let begin = |tag: u16| {
            let [high, low] = tag.to_be_bytes();
            [&[0xc5, 0xdc, high, low][..], &[7; 8]].concat()
        };
        for tag in 0..1000 {
            assert_eq!(to.receive_payload(TEST_TIME, A, PAYLOAD_ROOM, &begin(tag)), PayloadOutcome::Taken);
        }
        assert_eq!(
            (to.incomplete_packets.len(), to.abandoned_packets),
            (MAX_INCOMPLETE_PER_STATION, 1000 - MAX_INCOMPLETE_PER_STATION as u64)
        );
        for station in 0..200 {
            to.receive_payload(TEST_TIME, [6, 0, 0, 0, 0, station], PAYLOAD_ROOM, &begin(1));
        }
        assert_eq!(to.incomplete_packets.len(), MAX_INCOMPLETE_PACKETS);
        to.handle_timeout(TEST_TIME + REASSEMBLY_TIMEOUT);
        assert!(to.incomplete_packets.is_empty() && to.poll_timeout().is_none());
    }

    #[test]
    fn contradicting_fragments_discard_their_packet() {
        let mut from = sender_knowing_ability();
        from.send_packet(TEST_TIME, B, PAYLOAD_ROOM, (), &packet(1000));
        let pieces = take_payloads(&mut from);
        let mut to = Fragments::default();
        assert_eq!(
            receive_all(&mut to, &[pieces[0].clone(), pieces[0].clone()]),
            [PayloadOutcome::Taken, PayloadOutcome::Malformed]
        );
        assert!(to.incomplete_packets.is_empty());
        // Malformed fragments: another packet size, an offset beyond the packet, a length that is not a
        // multiple of 8, no content.
        let mut other = pieces[1].clone();
        other[1] ^= 8;
        assert_eq!(
            receive_all(&mut to, &[pieces[0].clone(), other]),
            [PayloadOutcome::Taken, PayloadOutcome::Malformed]
        );
        let mut beyond = pieces[2].clone();
        beyond[4] = 255;
        let odd = pieces[1][..100].to_vec();
        let empty = pieces[1][..5].to_vec();
        let first_again = [&pieces[1][..4], &[0], &pieces[1][5..]].concat();
        for bad in [beyond, odd, empty, first_again, pieces[1][..4].to_vec(), vec![0xc0, 0, 0, 0]] {
            assert_eq!(receive_all(&mut to, &[bad]), [PayloadOutcome::Malformed]);
        }
        // The sublayer leaves IPv6 packets and other payloads to the caller.
        for other in [vec![0x60, 0], vec![], vec![0x45], vec![0xff, 1, 2, 3, 4], vec![0xc3, 1, 2]] {
            assert_eq!(receive_all(&mut to, &[other]), [PayloadOutcome::NotFragment]);
        }
        assert!(to.incomplete_packets.is_empty());
    }
}
