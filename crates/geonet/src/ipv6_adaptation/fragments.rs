//! Fragmentation below IPv6, for hosts with an MTU of 1500 octets over a radio with a smaller one.
//!
//! By default the host gets Packet Too Big and sends smaller packets, as IPv6 prefers. This method fails if a
//! firewall drops Packet Too Big, or if the radio carries less than the 1280 octets that IPv6 requires. Then
//! both stations may agree to fragment packets below IPv6. ETSI has no standard format for such fragments.
//! This module uses the format of RFC 4944 5.3 as the payload of GUC packets:
//!
//! ```text
//!   first:   1 1 0 0 0 | datagram_size (11) | datagram_tag (16) |                      IPv6 packet, from the start
//!   others:  1 1 1 0 0 | datagram_size (11) | datagram_tag (16) | datagram_offset (8)  the rest; offset in 8 octets
//!   question: 0x01                                  answer: 0x02
//! ```
//!
//! In the payload, [`MAGIC`] precedes the fragment. The next header is 0, any (EN 302 636-4-1 9.7.2), because
//! 3 means whole IPv6 packets. Stations before carnet 0.2 sent fragments without the four octets as next
//! header 3. This station accepts that form until the release after 0.2.
//!
//! Unlike in RFC 4944, the packet follows without a dispatch octet. The module can fragment packets of up to
//! 2047 octets.
//!
//! **A station without this extension drops these payloads**: an IPv6 packet begins with version 6, and no
//! fragment does. This station fragments only for a station that has announced reassembly. For the first
//! packet that is too large, this station sends a question; the packet waits for up to a second. Without an
//! answer the host gets a Packet Too Big, and the next question follows after a minute. An answer is valid
//! for ten minutes, and only while the station's position is known. The buffer of the Location Service has
//! room for a question, but not for many fragments. A station sends questions and answers only if its
//! operator has enabled fragmentation.
//!
//! **Bounds.** A packet must be complete within [`REASSEMBLY`]. The module holds at most [`PER_SOURCE`]
//! incomplete packets of a station and [`MOST`] in all; a new packet replaces the oldest. If fragments
//! overlap or disagree about the size, the module drops their packet. GeoNetworking drops duplicates (A.2).
//!
//! Left out: multicast, whose receivers cannot answer. For a multicast packet that is too large, the host
//! gets Packet Too Big.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use carnet_base::Time;

use crate::MacAddress;
use crate::location_table::mac_key;

/// Largest packet that the module can fragment, octets.
pub const LONGEST: usize = 2047;
/// MTU of the virtual interfaces with fragmentation, octets.
pub const INTERFACE_MTU: u32 = 1500;
/// Time within which all fragments of a packet must arrive.
pub const REASSEMBLY: Duration = Duration::from_secs(1);
/// Largest number of incomplete packets of one station.
pub const PER_SOURCE: usize = 4;
/// Largest number of incomplete packets of all stations.
pub const MOST: usize = 64;

/// Number that distinguishes payloads of this format from others with next header 0.
pub const MAGIC: [u8; 4] = *b"6frg";
/// Payloads that ask for and confirm the ability to reassemble.
const QUESTION: u8 = 0x01;
const ANSWER: u8 = 0x02;
const FIRST: u8 = 0b1100_0000;
const OTHER: u8 = 0b1110_0000;
const DISPATCH: u8 = 0b1111_1000;
/// Octets of the header of a fragment other than the first; the first fragment's header has one octet less.
const OTHER_HEADER: usize = 5;
/// Unit of fragment offsets, octets.
const UNIT: usize = 8;

/// Interval of the questions to a station, and their largest number.
const ASK: Duration = Duration::from_millis(250);
const QUESTIONS: u32 = 4;
/// Time for which an answer, or the lack of an answer, is valid.
const ABLE: Duration = Duration::from_secs(600);
const UNABLE: Duration = Duration::from_secs(60);
/// Largest number of stations whose ability is stored.
const PEERS: usize = 256;
/// Largest number of octets that wait for the answer of one station.
const HELD: usize = 16_384;

/// Ability of a station to reassemble packets.
#[derive(Debug)]
enum Peer<T> {
    /// The station has not answered yet; packets wait, each with its context.
    Asked { questions: u32, next: Time, held: Vec<(T, Vec<u8>)> },
    /// The station has confirmed that it can reassemble packets.
    Able { until: Time },
    /// The station has not answered.
    Unable { until: Time },
}

/// Result for a packet that is too large for one payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Large {
    /// The module has fragmented the packet, or the packet waits.
    Taken,
    /// The host must send smaller packets.
    TooBig,
}

/// Result for a received payload.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The payload is an IPv6 packet, or another payload that this module does not handle.
    NotOurs,
    /// The module has stored the payload; nothing to deliver yet.
    Taken,
    /// The payload is malformed.
    Malformed,
    /// The fragment completes this packet.
    Packet(Vec<u8>),
}

/// A packet of which some fragments have arrived.
#[derive(Debug)]
struct Partial {
    source: u64,
    tag: u16,
    octets: Vec<u8>,
    /// Received units, one bit for each.
    there: [u64; 4],
    /// Number of missing units.
    missing: usize,
    until: Time,
}

/// Fragments and reassembles packets. `T` is the context of a host packet that waits.
#[derive(Debug)]
pub(super) struct Fragments<T> {
    peers: BTreeMap<u64, Peer<T>>,
    partials: VecDeque<Partial>,
    tag: u16,
    /// Payloads to send, with their destinations.
    outgoing: VecDeque<(MacAddress, Vec<u8>)>,
    /// Packets whose destination did not answer, with their context.
    refused: Vec<(T, Vec<u8>)>,
    /// Counters of fragmented, reassembled and abandoned packets.
    pub(super) cut: u64,
    pub(super) joined: u64,
    pub(super) incomplete: u64,
}

impl<T> Default for Fragments<T> {
    fn default() -> Self {
        Fragments {
            peers: BTreeMap::new(),
            partials: VecDeque::new(),
            tag: 0,
            outgoing: VecDeque::new(),
            refused: Vec::new(),
            cut: 0,
            joined: 0,
            incomplete: 0,
        }
    }
}

fn mac_of(key: u64) -> MacAddress {
    let [_, _, mac @ ..] = key.to_be_bytes();
    mac
}

impl<T> Fragments<T> {
    /// Returns the next payload to send, and its destination.
    pub(super) fn poll(&mut self) -> Option<(MacAddress, Vec<u8>)> {
        self.outgoing.pop_front()
    }

    /// Returns the packets that are too large; the caller answers their hosts with Packet Too Big.
    pub(super) fn refused(&mut self) -> Vec<(T, Vec<u8>)> {
        std::mem::take(&mut self.refused)
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let questions = self.peers.values().filter_map(|peer| match peer {
            Peer::Asked { next, .. } => Some(*next),
            _ => None,
        });
        questions.chain(self.partials.iter().map(|partial| partial.until)).min()
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        let Fragments { peers, outgoing, refused, .. } = self;
        for (key, peer) in peers.iter_mut() {
            let Peer::Asked { questions, next, held } = peer else { continue };
            if *next > now {
                continue;
            }
            if *questions < QUESTIONS {
                (*questions, *next) = (*questions + 1, now + ASK);
                outgoing.push_back((mac_of(*key), vec![QUESTION]));
            } else {
                refused.append(held);
                *peer = Peer::Unable { until: now + UNABLE };
            }
        }
        let before = self.partials.len();
        self.partials.retain(|partial| partial.until > now);
        self.incomplete += (before - self.partials.len()) as u64;
    }

    /// Accepts a packet for a station; one payload carries `room` octets.
    pub(super) fn send(&mut self, now: Time, to: MacAddress, room: usize, with: T, packet: &[u8]) -> Large {
        if packet.len() > LONGEST || room < OTHER_HEADER + UNIT {
            return Large::TooBig;
        }
        let key = mac_key(to);
        match self.peers.get_mut(&key) {
            Some(Peer::Able { until }) if *until > now => {
                self.cut(to, room, packet);
                Large::Taken
            }
            Some(Peer::Unable { until }) if *until > now => Large::TooBig,
            Some(Peer::Asked { held, .. }) => {
                if held.iter().map(|(_, packet)| packet.len()).sum::<usize>() + packet.len() > HELD {
                    return Large::TooBig;
                }
                held.push((with, packet.to_vec()));
                Large::Taken
            }
            _ => {
                if !self.peers.contains_key(&key) && self.peers.len() >= PEERS && !self.forget(now) {
                    return Large::TooBig;
                }
                let held = vec![(with, packet.to_vec())];
                self.peers.insert(key, Peer::Asked { questions: 1, next: now + ASK, held });
                self.outgoing.push_back((to, vec![QUESTION]));
                Large::Taken
            }
        }
    }

    /// Handles an unknown position of a station: before the next packet, this station must ask again.
    pub(super) fn doubt(&mut self, station: MacAddress) {
        let key = mac_key(station);
        if matches!(self.peers.get(&key), Some(Peer::Able { .. })) {
            self.peers.remove(&key);
        }
    }

    /// Makes room for another station. Returns false if no room is available.
    fn forget(&mut self, now: Time) -> bool {
        self.peers.retain(|_, peer| match peer {
            Peer::Asked { .. } => true,
            Peer::Able { until } | Peer::Unable { until } => *until > now,
        });
        if self.peers.len() >= PEERS {
            // A station that did not answer loses the least.
            let silent = self.peers.iter().find(|(_, peer)| matches!(peer, Peer::Unable { .. }));
            if let Some(key) = silent.map(|(key, _)| *key) {
                self.peers.remove(&key);
            }
        }
        self.peers.len() < PEERS
    }

    fn cut(&mut self, to: MacAddress, room: usize, packet: &[u8]) {
        self.cut += 1;
        self.tag = self.tag.wrapping_add(1);
        let size = (packet.len() as u16).to_be_bytes();
        let tag = self.tag.to_be_bytes();
        let piece = (room - OTHER_HEADER) / UNIT * UNIT;
        for (number, octets) in packet.chunks(piece).enumerate() {
            let kind = if number == 0 { FIRST } else { OTHER };
            let mut payload = Vec::with_capacity(OTHER_HEADER + octets.len());
            payload.extend([kind | size[0], size[1], tag[0], tag[1]]);
            if number > 0 {
                payload.push((number * piece / UNIT) as u8);
            }
            payload.extend_from_slice(octets);
            self.outgoing.push_back((to, payload));
        }
    }

    /// Handles the payload of a unicast packet from a station. `room` is as in [`Self::send`], for packets
    /// that waited.
    pub(super) fn hear(&mut self, now: Time, source: MacAddress, room: usize, payload: &[u8]) -> Heard {
        match payload {
            [QUESTION, ..] => {
                self.outgoing.push_back((source, vec![ANSWER]));
                // A station that asks can itself reassemble packets.
                self.answered(now, source, room);
                Heard::Taken
            }
            [ANSWER, ..] => {
                self.answered(now, source, room);
                Heard::Taken
            }
            [kind, size, high, low, rest @ ..] if matches!(kind & DISPATCH, FIRST | OTHER) => {
                let size = usize::from(u16::from_be_bytes([kind & !DISPATCH, *size]));
                let tag = u16::from_be_bytes([*high, *low]);
                let (offset, octets) = match (kind & DISPATCH, rest) {
                    (FIRST, octets) => (0, octets),
                    (_, [0, ..] | []) => return Heard::Malformed,
                    (_, [offset, octets @ ..]) => (usize::from(*offset), octets),
                };
                self.join(now, mac_key(source), (tag, size), offset, octets)
            }
            _ => Heard::NotOurs,
        }
    }

    /// Stores that a station can reassemble. Ignores an unsolicited answer, because it would take room.
    fn answered(&mut self, now: Time, station: MacAddress, room: usize) {
        let Some(peer) = self.peers.get_mut(&mac_key(station)) else { return };
        let before = std::mem::replace(peer, Peer::Able { until: now + ABLE });
        if let Peer::Asked { held, .. } = before {
            for (_, packet) in held {
                self.cut(station, room, &packet);
            }
        }
    }

    fn join(
        &mut self,
        now: Time,
        source: u64,
        (tag, size): (u16, usize),
        offset: usize,
        octets: &[u8],
    ) -> Heard {
        let (begin, end) = (offset * UNIT, offset * UNIT + octets.len());
        // All fragments but the last consist of whole units.
        if octets.is_empty() || end > size || (end < size && !octets.len().is_multiple_of(UNIT)) {
            return Heard::Malformed;
        }
        let at = self.partials.iter().position(|partial| (partial.source, partial.tag) == (source, tag));
        let at = at.unwrap_or_else(|| {
            self.make_room(source);
            self.partials.push_back(Partial {
                source,
                tag,
                octets: vec![0; size],
                there: [0; 4],
                missing: size.div_ceil(UNIT),
                until: now + REASSEMBLY,
            });
            self.partials.len() - 1
        });
        let Some(partial) = self.partials.get_mut(at) else { return Heard::Malformed };
        let units = offset..offset + octets.len().div_ceil(UNIT);
        let is_there = |unit: usize| partial.there[unit / 64 % 4] >> (unit % 64) & 1 != 0;
        let fits = partial.octets.len() == size && !units.clone().any(is_there);
        let Some(place) = partial.octets.get_mut(begin..end).filter(|_| fits) else {
            self.partials.remove(at);
            self.incomplete += 1;
            return Heard::Malformed;
        };
        place.copy_from_slice(octets);
        partial.missing -= units.len();
        for unit in units {
            partial.there[unit / 64 % 4] |= 1 << (unit % 64);
        }
        if partial.missing > 0 {
            return Heard::Taken;
        }
        self.joined += 1;
        self.partials.remove(at).map_or(Heard::Malformed, |partial| Heard::Packet(partial.octets))
    }

    /// Makes room for one more incomplete packet of a station.
    fn make_room(&mut self, source: u64) {
        let own = self.partials.iter().filter(|partial| partial.source == source).count();
        let oldest = if own >= PER_SOURCE {
            self.partials.iter().position(|partial| partial.source == source)
        } else {
            (self.partials.len() >= MOST).then_some(0)
        };
        if let Some(oldest) = oldest {
            self.partials.remove(oldest);
            self.incomplete += 1;
        }
    }

    /// Restores the initial state.
    pub(super) fn clear(&mut self) {
        self.peers.clear();
        self.partials.clear();
        self.outgoing.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MacAddress = [2, 0, 0, 0, 0, 1];
    const B: MacAddress = [2, 0, 0, 0, 0, 2];
    const NOW: Time = Time::from_secs(100);
    const ROOM: usize = 500;

    fn packet(length: usize) -> Vec<u8> {
        (0..length).map(|at| if at == 0 { 0x60 } else { at as u8 }).collect()
    }

    fn payloads(fragments: &mut Fragments<()>) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| fragments.poll()).map(|(_, payload)| payload).collect()
    }

    /// Returns the results of `to` for payloads of A.
    fn hears(to: &mut Fragments<()>, payloads: &[Vec<u8>]) -> Vec<Heard> {
        payloads.iter().map(|payload| to.hear(NOW, A, ROOM, payload)).collect()
    }

    /// Returns a sender that knows that B can reassemble packets.
    fn sender() -> Fragments<()> {
        let mut sender = Fragments::default();
        assert_eq!(sender.send(NOW, B, ROOM, (), &packet(600)), Large::Taken);
        assert_eq!(payloads(&mut sender), [[QUESTION]]);
        assert_eq!(sender.hear(NOW, B, ROOM, &[ANSWER]), Heard::Taken);
        assert_eq!(payloads(&mut sender).len(), 2, "the packet that waited");
        sender
    }

    #[test]
    fn packets_come_out_as_they_went_in_in_whatever_order() {
        let (mut from, mut to) = (sender(), Fragments::default());
        for length in [501, 502, 988, 989, 1500, 2047] {
            let whole = packet(length);
            assert_eq!(from.send(NOW, B, ROOM, (), &whole), Large::Taken);
            let mut pieces = payloads(&mut from);
            assert!(pieces.iter().all(|piece| piece.len() <= ROOM), "{length}");
            assert_eq!(pieces.len(), length.div_ceil((ROOM - 5) / 8 * 8), "{length}");
            pieces.reverse();
            let mut heard = hears(&mut to, &pieces);
            assert_eq!(heard.pop(), Some(Heard::Packet(whole)), "{length}");
            assert!(heard.iter().all(|heard| *heard == Heard::Taken), "{length}");
        }
        assert_eq!((from.cut, to.joined, to.incomplete), (7, 6, 0));
        assert_eq!(from.send(NOW, B, ROOM, (), &packet(2048)), Large::TooBig);
    }

    #[test]
    fn the_format_is_that_of_rfc_4944() {
        let mut from = sender();
        from.send(NOW, B, ROOM, (), &packet(1000));
        let pieces = payloads(&mut from);
        // 1000 is 0x3e8; the second fragment begins at 488 = 61 * 8.
        assert_eq!(pieces[0][..5], [0xc3, 0xe8, 0, 2, 0x60]);
        assert_eq!(pieces[1][..6], [0xe3, 0xe8, 0, 2, 61, 488u16 as u8]);
        assert_eq!(pieces[2].len(), 5 + 1000 - 2 * 488);
    }

    #[test]
    fn who_does_not_answer_gets_nothing_cut_and_is_asked_again_later() {
        let mut from = Fragments::default();
        from.send(NOW, B, ROOM, (), &packet(600));
        let mut now = NOW;
        let mut questions = 1;
        payloads(&mut from);
        while let Some(due) = from.poll_timeout() {
            now = due;
            from.handle_timeout(now);
            questions += payloads(&mut from).len();
        }
        assert_eq!((questions, now), (4, NOW + Duration::from_secs(1)));
        assert_eq!(from.refused(), [((), packet(600))]);
        assert_eq!(from.send(now, B, ROOM, (), &packet(600)), Large::TooBig);
        assert_eq!(from.send(now + UNABLE, B, ROOM, (), &packet(600)), Large::Taken);
        // The module accepts a late answer, and ignores an unsolicited one.
        from.hear(now + UNABLE, B, ROOM, &[ANSWER]);
        assert_eq!(payloads(&mut from).len(), 3);
        from.hear(now, A, ROOM, &[ANSWER]);
        assert!(!from.peers.contains_key(&mac_key(A)));
    }

    #[test]
    fn a_station_that_was_lost_is_asked_before_anything_is_cut_for_it() {
        let mut from = sender();
        from.doubt(B);
        assert_eq!(from.send(NOW, B, ROOM, (), &packet(600)), Large::Taken);
        assert_eq!(payloads(&mut from), [[QUESTION]]);
        // Packets that wait for the answer continue to wait.
        from.doubt(B);
        assert_eq!(from.send(NOW, B, ROOM, (), &packet(700)), Large::Taken);
        assert_eq!(payloads(&mut from).len(), 0);
        from.hear(NOW, B, ROOM, &[ANSWER]);
        assert_eq!(payloads(&mut from).len(), 4);
    }

    #[test]
    fn what_waits_and_what_is_known_is_bounded() {
        let mut from = Fragments::default();
        let taken = (0..100).filter(|_| from.send(NOW, B, ROOM, (), &packet(2000)) == Large::Taken).count();
        assert_eq!(taken, HELD / 2000);
        for number in 0..2000u16 {
            let [high, low] = number.to_be_bytes();
            from.send(NOW, [4, 0, 0, 0, high, low], ROOM, (), &packet(600));
        }
        assert_eq!(from.peers.len(), PEERS);
        from.handle_timeout(NOW + ASK);
        // A flood of first fragments from one station replaces only packets of that station.
        let mut to: Fragments<()> = Fragments::default();
        let begin = |tag: u16| {
            let [high, low] = tag.to_be_bytes();
            [&[0xc5, 0xdc, high, low][..], &[7; 8]].concat()
        };
        for tag in 0..1000 {
            assert_eq!(to.hear(NOW, A, ROOM, &begin(tag)), Heard::Taken);
        }
        assert_eq!((to.partials.len(), to.incomplete), (PER_SOURCE, 1000 - PER_SOURCE as u64));
        for station in 0..200 {
            to.hear(NOW, [6, 0, 0, 0, 0, station], ROOM, &begin(1));
        }
        assert_eq!(to.partials.len(), MOST);
        to.handle_timeout(NOW + REASSEMBLY);
        assert!(to.partials.is_empty() && to.poll_timeout().is_none());
    }

    #[test]
    fn fragments_that_contradict_each_other_end_their_packet() {
        let mut from = sender();
        from.send(NOW, B, ROOM, (), &packet(1000));
        let pieces = payloads(&mut from);
        let mut to = Fragments::default();
        assert_eq!(hears(&mut to, &[pieces[0].clone(), pieces[0].clone()]), [Heard::Taken, Heard::Malformed]);
        assert!(to.partials.is_empty());
        // Malformed: another size, an offset beyond the size, a fragment that is not a whole number of units,
        // an empty fragment.
        let mut other = pieces[1].clone();
        other[1] ^= 8;
        assert_eq!(hears(&mut to, &[pieces[0].clone(), other]), [Heard::Taken, Heard::Malformed]);
        let mut beyond = pieces[2].clone();
        beyond[4] = 255;
        let odd = pieces[1][..100].to_vec();
        let empty = pieces[1][..5].to_vec();
        let first_again = [&pieces[1][..4], &[0], &pieces[1][5..]].concat();
        for bad in [beyond, odd, empty, first_again, pieces[1][..4].to_vec(), vec![0xc0, 0, 0, 0]] {
            assert_eq!(hears(&mut to, &[bad]), [Heard::Malformed]);
        }
        // The module does not read IPv6 packets and other payloads.
        for other in [vec![0x60, 0], vec![], vec![0x45], vec![0xff, 1, 2, 3, 4], vec![0xc3, 1, 2]] {
            assert_eq!(hears(&mut to, &[other]), [Heard::NotOurs]);
        }
        assert!(to.partials.is_empty());
    }
}
