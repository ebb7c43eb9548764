//! Delay of duplicate acknowledgements of TCP: the packets that they report as missing may only be late.
//!
//! This module is the alternative to [`super::in_order`] for packets that overtake each other. The host gets
//! the overtaking packet at once, and the host's acknowledgement waits. This module implements the receiver
//! of Chen, Gerla and Lee, "TCP over Geo-routing for High Mobility", section 5.2, for hosts without this
//! receiver. If a segment above a gap came over another number of hops than the last segment in order, it
//! took another path ([`ReorderRule`] decides). The duplicate ACK for this segment waits. If the missing
//! segments arrive, the host acknowledges them, and the sublayer never sends the duplicate ACKs. Otherwise it
//! sends them after SRTT + 4 RTTVAR, at the latest after the bound. The receiver computes both values from
//! echoed timestamps (RFC 7323 4). After that time the gap counts as a loss, and no acknowledgement waits for
//! it.
//!
//! A duplicate ACK is defined by RFC 5681 2: no data, only the ACK flag, the same acknowledgement number and
//! the same window. An ACK with SACK blocks is also a duplicate, unless the first block reports a duplicate
//! segment (RFC 2883). All other segments pass, for example window updates.
//!
//! Left out: TCP behind extension headers, in fragments, in tunnels or inside IPsec, which passes unchanged.
//! The number of flows and of waiting acknowledgements is bounded; an acknowledgement without room passes at
//! once.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::ipv6::{Header, protocol};

use super::in_order::ReorderRule;

/// Largest number of flows, and of waiting acknowledgements of one flow.
const MAX_TCP_FLOWS: usize = 256;
const MAX_WAITING_ACKS: usize = 32;
/// Largest number of stored timestamps of own segments.
const MAX_STORED_TIMESTAMPS: usize = 32;
/// Shortest delay: the resolution of the timers.
const MIN_ACK_DELAY: Duration = Duration::from_millis(1);

const TCP_HEADER_LENGTH: usize = 20;
const TCP_FLAG_ACK: u8 = 0x10;
/// Flags that begin or end a connection: FIN, SYN, RST.
const FLAGS_THAT_CHANGE_CONNECTION: u8 = 0x07;
/// Flags with which a segment is not a duplicate acknowledgement: all but ACK and PSH.
const FLAGS_OF_NON_DUPLICATE_ACKS: u8 = 0xe7;
const TCP_OPTION_END: u8 = 0;
const TCP_OPTION_NOP: u8 = 1;
const TCP_OPTION_SACK: u8 = 5;
const TCP_OPTION_TIMESTAMPS: u8 = 8;

/// Address and port of one end of a connection.
type ConnectionEnd = (Ipv6Addr, u16);

/// Fields of a TCP segment that this module uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TcpSegment {
    source: ConnectionEnd,
    destination: ConnectionEnd,
    sequence: u32,
    acknowledgement: u32,
    tcp_flags: u8,
    receive_window: u16,
    /// Length of the payload, octets.
    payload_length: u32,
    /// Timestamp option of the segment: TSval and TSecr.
    timestamps: Option<(u32, u32)>,
    /// The first SACK block lies below the acknowledgement number: it reports a duplicate segment (RFC 2883
    /// 4).
    reports_duplicate_data: bool,
}

impl TcpSegment {
    /// Returns the TCP segment of an IPv6 packet without extension headers; `None` for another packet.
    fn parse(packet: &[u8]) -> Option<TcpSegment> {
        // The next header shows that most packets are not TCP, so the function reads only this octet of them.
        if packet.get(6) != Some(&protocol::TCP) {
            return None;
        }
        let (ip, octets) = Header::parse_packet(packet).ok()?;
        let &[s0, s1, d0, d1, q0, q1, q2, q3, a0, a1, a2, a3, offset, flags, w0, w1, ..] =
            octets.first_chunk::<TCP_HEADER_LENGTH>()?;
        let header =
            octets.get(..usize::from(offset >> 4) * 4).filter(|header| header.len() >= TCP_HEADER_LENGTH)?;
        let acknowledgement = u32::from_be_bytes([a0, a1, a2, a3]);
        let mut segment = TcpSegment {
            source: (ip.source, u16::from_be_bytes([s0, s1])),
            destination: (ip.destination, u16::from_be_bytes([d0, d1])),
            sequence: u32::from_be_bytes([q0, q1, q2, q3]),
            acknowledgement,
            tcp_flags: flags,
            receive_window: u16::from_be_bytes([w0, w1]),
            payload_length: (octets.len() - header.len()) as u32,
            timestamps: None,
            reports_duplicate_data: false,
        };
        let mut rest = &header[TCP_HEADER_LENGTH..];
        while let [kind, after @ ..] = rest {
            rest = match (*kind, after) {
                (TCP_OPTION_END, _) => break,
                (TCP_OPTION_NOP, _) => after,
                (kind, &[length, ..]) if length >= 2 => {
                    let Some((value, after)) = rest.split_at_checked(length.into()) else { break };
                    match (kind, &value[2..]) {
                        (TCP_OPTION_TIMESTAMPS, &[v0, v1, v2, v3, e0, e1, e2, e3]) => {
                            let [value, echo] = [[v0, v1, v2, v3], [e0, e1, e2, e3]].map(u32::from_be_bytes);
                            segment.timestamps = Some((value, echo));
                        }
                        (TCP_OPTION_SACK, &[b0, b1, b2, b3, ..]) => {
                            let begin = u32::from_be_bytes([b0, b1, b2, b3]);
                            segment.reports_duplicate_data = sequence_distance(begin, acknowledgement) < 0;
                        }
                        _ => {}
                    }
                    after
                }
                _ => break,
            };
        }
        Some(segment)
    }
}

/// One direction of a connection: from a distant sender to a host of this station.
#[derive(Debug)]
struct ConnectionDirection<T> {
    last_packet_at: Time,
    /// Sequence number that is expected next.
    next_sequence: u32,
    /// Number of hops of the last segment that arrived in order.
    hop_count: u8,
    /// Acknowledgement number and window of the host's last ACK.
    last_ack: Option<(u32, u16)>,
    /// Number of segments beyond the gap whose ACK may wait.
    acks_allowed_to_wait: usize,
    waiting_acks: VecDeque<T>,
    /// Time at which the waiting acknowledgements leave.
    release_at: Option<Time>,
    /// End of a gap that counts as lost: duplicate ACKs with a lower acknowledgement number do not wait.
    lost_until_sequence: Option<u32>,
    /// TSval values of the host's segments, each with the time of its first use.
    sent_timestamps: VecDeque<(u32, Time)>,
    /// Smoothed round-trip time and its variation: SRTT and RTTVAR.
    round_trip: Option<(Duration, Duration)>,
}

impl<T> ConnectionDirection<T> {
    fn waiting_time(&self, bound: Duration) -> Duration {
        let learnt = self.round_trip.map_or(bound, |(mean, variation)| mean + variation * 4);
        learnt.max(MIN_ACK_DELAY).min(bound)
    }

    /// Updates SRTT and RTTVAR if the peer echoes a stored timestamp. The weights are those of Chen, Gerla
    /// and Lee (1/8 and 1/4).
    fn measure_round_trip(&mut self, now: Time, echo: u32) {
        let Some(at) = self.sent_timestamps.iter().position(|(stamp, _)| *stamp == echo) else { return };
        let sample = now.saturating_since(self.sent_timestamps[at].1);
        // Remove older timestamps: the peer echoes only newer ones from now on.
        self.sent_timestamps.drain(..at);
        self.round_trip = Some(match self.round_trip {
            None => (sample, sample / 2),
            Some((mean, variation)) => {
                let mean = mean * 7 / 8 + sample / 8;
                (mean, variation * 3 / 4 + sample.abs_diff(mean) / 4)
            }
        });
    }

    fn release_acknowledged(&mut self) -> usize {
        (self.acks_allowed_to_wait, self.release_at) = (0, None);
        let spared = self.waiting_acks.len();
        self.waiting_acks.clear();
        spared
    }
}

/// Delays duplicate acknowledgements. `T` is the caller's form of a packet.
#[derive(Debug)]
pub struct DuplicateAckDelay<T> {
    rule: ReorderRule,
    max_wait: Duration,
    /// Flows by their distant end and their end at this station.
    flows: BTreeMap<(ConnectionEnd, ConnectionEnd), ConnectionDirection<T>>,
    /// Number of acknowledgements that had to wait.
    pub held_acks: u64,
    /// Number of waiting acknowledgements that the sublayer never sent.
    pub suppressed_acks: u64,
}

impl<T> DuplicateAckDelay<T> {
    /// Creates the state without flows. `rule` decides whether a segment's acknowledgement waits; `bound` is
    /// the longest wait.
    pub fn new(rule: ReorderRule, bound: Duration) -> DuplicateAckDelay<T> {
        DuplicateAckDelay { rule, max_wait: bound, flows: BTreeMap::new(), held_acks: 0, suppressed_acks: 0 }
    }

    /// Returns the time at which [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.flows.values().filter_map(|flow| flow.release_at).min()
    }

    /// Reads a packet for a host; `hops` is the number of hops of its path.
    pub fn handle_delivery(&mut self, now: Time, packet: &[u8], hops: u8) {
        let Some(segment) = TcpSegment::parse(packet) else { return };
        if segment.payload_length == 0 || segment.tcp_flags & FLAGS_THAT_CHANGE_CONNECTION != 0 {
            return;
        }
        let key = (segment.source, segment.destination);
        if !self.flows.contains_key(&key) && !self.make_room_for_flow() {
            return;
        }
        let flow = self.flows.entry(key).or_insert_with(|| ConnectionDirection {
            last_packet_at: now,
            next_sequence: segment.sequence,
            hop_count: hops,
            last_ack: None,
            acks_allowed_to_wait: 0,
            waiting_acks: VecDeque::new(),
            release_at: None,
            lost_until_sequence: None,
            sent_timestamps: VecDeque::new(),
            round_trip: None,
        });
        flow.last_packet_at = now;
        if let Some((_, echo)) = segment.timestamps {
            flow.measure_round_trip(now, echo);
        }
        let gap = sequence_distance(segment.sequence, flow.next_sequence);
        if gap <= 0 {
            let end = segment.sequence.wrapping_add(segment.payload_length);
            if sequence_distance(end, flow.next_sequence) > 0 {
                (flow.next_sequence, flow.hop_count) = (end, hops);
            }
        } else if self.rule.must_packet_wait(flow.hop_count, hops)
            && flow.lost_until_sequence != Some(flow.next_sequence)
        {
            flow.acks_allowed_to_wait = (flow.acks_allowed_to_wait + 1).min(MAX_WAITING_ACKS);
            let wait = flow.waiting_time(self.max_wait);
            flow.release_at.get_or_insert(now + wait);
        }
    }

    /// Reads a packet of a host and returns whether it leaves now. If it waits, the sublayer stores the value
    /// that `keep` returns.
    pub fn handle_packet(&mut self, now: Time, packet: &[u8], keep: impl FnOnce() -> T) -> bool {
        if self.flows.is_empty() {
            return true;
        }
        let Some(segment) = TcpSegment::parse(packet) else { return true };
        let Some(flow) = self.flows.get_mut(&(segment.destination, segment.source)) else { return true };
        if segment.tcp_flags & FLAGS_THAT_CHANGE_CONNECTION != 0 {
            // The segment begins or ends the connection: remove the flow.
            self.suppressed_acks += flow.release_acknowledged() as u64;
            self.flows.remove(&(segment.destination, segment.source));
            return true;
        }
        if segment.tcp_flags & TCP_FLAG_ACK == 0 {
            return true;
        }
        if let Some((value, _)) = segment.timestamps
            && flow.sent_timestamps.back().is_none_or(|(last, _)| sequence_distance(value, *last) > 0)
        {
            if flow.sent_timestamps.len() >= MAX_STORED_TIMESTAMPS {
                flow.sent_timestamps.pop_front();
            }
            flow.sent_timestamps.push_back((value, now));
        }
        if flow.last_ack.is_some_and(|(number, _)| sequence_distance(segment.acknowledgement, number) < 0) {
            return true;
        }
        let before = flow.last_ack.replace((segment.acknowledgement, segment.receive_window));
        let advances =
            before.is_none_or(|(number, _)| sequence_distance(segment.acknowledgement, number) > 0);
        if advances {
            self.suppressed_acks += flow.release_acknowledged() as u64;
            if sequence_distance(segment.acknowledgement, flow.next_sequence) > 0 {
                // The host has received the missing segments, so all of them are in order now.
                flow.next_sequence = segment.acknowledgement;
            }
            return true;
        }
        let duplicate = before == flow.last_ack
            && segment.payload_length == 0
            && segment.tcp_flags & FLAGS_OF_NON_DUPLICATE_ACKS == 0
            && !segment.reports_duplicate_data;
        if !duplicate
            || flow.acks_allowed_to_wait == 0
            || flow.release_at.is_none()
            || flow.waiting_acks.len() >= MAX_WAITING_ACKS
        {
            return true;
        }
        flow.acks_allowed_to_wait -= 1;
        flow.waiting_acks.push_back(keep());
        self.held_acks += 1;
        false
    }

    /// Passes the acknowledgements whose delay has ended to `out`.
    pub fn handle_timeout(&mut self, now: Time, out: &mut impl FnMut(T)) {
        for flow in self.flows.values_mut() {
            if flow.release_at.is_some_and(|due| due <= now) {
                flow.lost_until_sequence = Some(flow.next_sequence);
                (flow.acks_allowed_to_wait, flow.release_at) = (0, None);
                flow.waiting_acks.drain(..).for_each(&mut *out);
            }
        }
    }

    /// Removes all flows; passes the waiting acknowledgements to `out`.
    pub fn clear(&mut self, out: &mut impl FnMut(T)) {
        std::mem::take(&mut self.flows)
            .into_values()
            .for_each(|flow| flow.waiting_acks.into_iter().for_each(&mut *out));
    }

    /// If the table is full, removes the flow that has been silent for the longest time and has no waiting
    /// acknowledgements.
    fn make_room_for_flow(&mut self) -> bool {
        if self.flows.len() < MAX_TCP_FLOWS {
            return true;
        }
        let idle = self.flows.iter().filter(|(_, flow)| flow.waiting_acks.is_empty());
        let oldest = idle.min_by_key(|(_, flow)| flow.last_packet_at).map(|(key, _)| *key);
        oldest.is_some_and(|oldest| self.flows.remove(&oldest).is_some())
    }
}

/// Returns by how much `number` is ahead of `of`, modulo 2^32; negative if it is behind.
fn sequence_distance(number: u32, of: u32) -> i32 {
    number.wrapping_sub(of) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_WAIT: Duration = Duration::from_millis(100);
    const MSS: u32 = 1000;

    fn time_at_ms(count: u64) -> Time {
        Time::from_millis(1000 + count)
    }

    struct TestSegment {
        from_host: bool,
        sequence: u32,
        acknowledgement: u32,
        flags: u8,
        window: u16,
        length: usize,
        options: Vec<u8>,
    }

    const PLAIN_SEGMENT: TestSegment = TestSegment {
        from_host: false,
        sequence: 0,
        acknowledgement: 0,
        flags: TCP_FLAG_ACK,
        window: 500,
        length: 0,
        options: Vec::new(),
    };

    impl TestSegment {
        fn into_packet(self) -> Vec<u8> {
            let ends = ["2001:db8:a::5", "2001:db8:c::1"].map(|it| it.parse().expect("an address"));
            let ports = [[0x12, 0x34], [0, 80]];
            let ([there, here], [port, own]) = (ends, ports);
            let (source, destination, from, to) =
                if self.from_host { (here, there, own, port) } else { (there, here, port, own) };
            let mut options = self.options;
            options.resize(options.len().next_multiple_of(4), 1);
            let mut tcp = [from, to].concat();
            tcp.extend(self.sequence.to_be_bytes());
            tcp.extend(self.acknowledgement.to_be_bytes());
            tcp.extend([
                u8::try_from((TCP_HEADER_LENGTH + options.len()) / 4).expect("fits") << 4,
                self.flags,
            ]);
            tcp.extend(self.window.to_be_bytes());
            tcp.extend([0; 4]);
            tcp.extend(options);
            tcp.resize(tcp.len() + self.length, 7);
            let header = Header {
                traffic_class: 0,
                flow_label: 0,
                payload_length: u16::try_from(tcp.len()).expect("fits"),
                next_header: protocol::TCP,
                hop_limit: 64,
                source,
                destination,
            };
            [&header.emit()[..], &tcp].concat()
        }
    }

    fn data_segment(number: u32) -> Vec<u8> {
        TestSegment { sequence: number.wrapping_mul(MSS), length: MSS as usize, ..PLAIN_SEGMENT }
            .into_packet()
    }

    fn acknowledgement_segment(number: u32) -> Vec<u8> {
        TestSegment { from_host: true, acknowledgement: number.wrapping_mul(MSS), ..PLAIN_SEGMENT }
            .into_packet()
    }

    fn segment_with_timestamps(value: u32, echo: u32) -> Vec<u8> {
        [
            &[TCP_OPTION_NOP, TCP_OPTION_NOP, TCP_OPTION_TIMESTAMPS, 10][..],
            &value.to_be_bytes(),
            &echo.to_be_bytes(),
        ]
        .concat()
    }

    fn delay_with_rule(rule: ReorderRule) -> DuplicateAckDelay<u32> {
        DuplicateAckDelay::new(rule, MAX_WAIT)
    }

    /// Returns the state after the segments 0 and 1 have arrived over three hops and are acknowledged.
    fn delay_after_two_segments(rule: ReorderRule) -> DuplicateAckDelay<u32> {
        let mut patience = delay_with_rule(rule);
        for number in [0, 1] {
            patience.handle_delivery(time_at_ms(0), &data_segment(number), 3);
            assert!(patience.handle_packet(time_at_ms(0), &acknowledgement_segment(number + 1), || 0));
        }
        patience
    }

    fn passes_without_wait(patience: &mut DuplicateAckDelay<u32>, at: u64, packet: &[u8]) -> bool {
        patience.handle_packet(time_at_ms(at), packet, || 7)
    }

    fn release_at(patience: &mut DuplicateAckDelay<u32>, at: u64) -> Vec<u32> {
        let mut out = Vec::new();
        patience.handle_timeout(time_at_ms(at), &mut |item| out.push(item));
        out
    }

    #[test]
    fn late_segment_causes_no_duplicate_acknowledgements() {
        let mut patience = delay_after_two_segments(ReorderRule::Changed);
        // Segments 3 and 4 overtake segment 2 on a shorter path.
        for number in [3, 4] {
            patience.handle_delivery(time_at_ms(1), &data_segment(number), 2);
            assert!(!passes_without_wait(&mut patience, 1, &acknowledgement_segment(2)));
        }
        assert_eq!((patience.held_acks, patience.poll_timeout()), (2, Some(time_at_ms(101))));
        patience.handle_delivery(time_at_ms(5), &data_segment(2), 3);
        assert!(passes_without_wait(&mut patience, 5, &acknowledgement_segment(5)));
        assert_eq!((patience.suppressed_acks, patience.poll_timeout()), (2, None));
        assert!(release_at(&mut patience, 200).is_empty());
        // Segment 5 arrives in order.
        patience.handle_delivery(time_at_ms(6), &data_segment(5), 2);
        assert!(passes_without_wait(&mut patience, 6, &acknowledgement_segment(6)));
        assert_eq!(patience.held_acks, 2);
    }

    #[test]
    fn only_first_duplicate_ack_of_a_lost_segment_is_delayed() {
        let mut patience = delay_after_two_segments(ReorderRule::Changed);
        patience.handle_delivery(time_at_ms(1), &data_segment(3), 2);
        assert!(!passes_without_wait(&mut patience, 1, &acknowledgement_segment(2)));
        assert!(release_at(&mut patience, 100).is_empty());
        assert_eq!(release_at(&mut patience, 101), [7]);
        for number in [4, 5] {
            patience.handle_delivery(time_at_ms(102), &data_segment(number), 2);
            assert!(
                passes_without_wait(&mut patience, 102, &acknowledgement_segment(2)),
                "the gap is a loss"
            );
        }
        assert_eq!((patience.held_acks, patience.suppressed_acks, patience.poll_timeout()), (1, 0, None));
    }

    #[test]
    fn acknowledgements_do_not_wait_on_an_unchanged_path() {
        for (rule, hops, waits) in [
            (ReorderRule::Changed, 3, false),
            (ReorderRule::Changed, 4, true),
            (ReorderRule::Shorter, 4, false),
            (ReorderRule::Shorter, 2, true),
            (ReorderRule::Always, 3, true),
        ] {
            let mut patience = delay_after_two_segments(rule);
            patience.handle_delivery(time_at_ms(1), &data_segment(3), hops);
            assert_eq!(
                passes_without_wait(&mut patience, 1, &acknowledgement_segment(2)),
                !waits,
                "{rule:?} {hops}"
            );
        }
    }

    #[test]
    fn station_does_not_delay_acks_that_are_no_duplicates() {
        let mut patience = delay_after_two_segments(ReorderRule::Always);
        patience.handle_delivery(time_at_ms(1), &data_segment(3), 2);
        let ack = || TestSegment { from_host: true, acknowledgement: 2 * MSS, ..PLAIN_SEGMENT };
        let others = [
            TestSegment { length: 10, ..ack() },
            TestSegment { flags: TCP_FLAG_ACK | 0x40, ..ack() },
            // The first SACK block is below the acknowledgement number, so the ACK reports a duplicate
            // segment.
            TestSegment {
                options: [&[1, 1, TCP_OPTION_SACK, 10][..], &500u32.to_be_bytes(), &[0; 4]].concat(),
                ..ack()
            },
            TestSegment { window: 400, ..ack() },
            TestSegment { acknowledgement: MSS, window: 400, ..ack() },
        ];
        for other in others {
            assert!(passes_without_wait(&mut patience, 1, &other.into_packet()));
        }
        // The window of this ACK differs, so the ACK is not a duplicate.
        assert!(passes_without_wait(&mut patience, 1, &ack().into_packet()));
        let sack =
            [&[1, 1, TCP_OPTION_SACK, 10][..], &(3 * MSS).to_be_bytes(), &(4 * MSS).to_be_bytes()].concat();
        assert!(
            !passes_without_wait(&mut patience, 1, &TestSegment { options: sack, ..ack() }.into_packet()),
            "the ordinary SACK"
        );
        assert!(passes_without_wait(&mut patience, 1, &ack().into_packet()), "one segment, one duplicate");
        // The end of the connection removes the flow.
        assert!(passes_without_wait(&mut patience, 1, &TestSegment { flags: 0x11, ..ack() }.into_packet()));
        assert!(patience.flows.is_empty());
    }

    #[test]
    fn acknowledgement_delay_follows_the_round_trip_time() {
        let mut patience = delay_with_rule(ReorderRule::Changed);
        let stamped = |sequence: u32, echo| {
            let made = TestSegment {
                sequence: sequence * MSS,
                length: MSS as usize,
                options: segment_with_timestamps(1, echo),
                ..PLAIN_SEGMENT
            };
            made.into_packet()
        };
        let answer = |number: u32, value| {
            let made = TestSegment {
                from_host: true,
                acknowledgement: number * MSS,
                options: segment_with_timestamps(value, 1),
                ..PLAIN_SEGMENT
            };
            made.into_packet()
        };
        patience.handle_delivery(time_at_ms(0), &stamped(0, 0), 3);
        assert!(passes_without_wait(&mut patience, 0, &answer(1, 500)));
        // The peer echoes the timestamp after 20 ms: SRTT 20 ms, RTTVAR 10 ms.
        patience.handle_delivery(time_at_ms(20), &stamped(1, 500), 3);
        assert!(passes_without_wait(&mut patience, 20, &answer(2, 520)));
        patience.handle_delivery(time_at_ms(21), &stamped(3, 499), 2);
        assert!(!passes_without_wait(&mut patience, 21, &answer(2, 521)));
        assert_eq!(patience.poll_timeout(), Some(time_at_ms(21 + 60)));
    }

    #[test]
    fn tcp_sequence_numbers_wrap_around() {
        let mut patience = delay_with_rule(ReorderRule::Changed);
        let last = u32::MAX / MSS;
        // The sequence numbers wrap inside a segment.
        for (number, hops) in [(last, 3), (last.wrapping_add(2), 2)] {
            patience.handle_delivery(time_at_ms(0), &data_segment(number), hops);
        }
        assert!(passes_without_wait(&mut patience, 0, &acknowledgement_segment(last + 1)));
        assert_eq!(patience.poll_timeout(), None, "the acknowledgement is the first word of the host");
        patience.handle_delivery(time_at_ms(1), &data_segment(last.wrapping_add(3)), 2);
        assert!(!passes_without_wait(&mut patience, 1, &acknowledgement_segment(last + 1)));
    }

    #[test]
    fn invalid_segments_and_floods_stay_within_bounds() {
        let mut patience = delay_after_two_segments(ReorderRule::Always);
        for length in 0..data_segment(3).len().min(90) {
            patience.handle_delivery(time_at_ms(1), &data_segment(3)[..length], 2);
            passes_without_wait(&mut patience, 1, &acknowledgement_segment(2)[..length.min(60)]);
        }
        for cut in [0, 1, 4, 15] {
            let mut bad = data_segment(3);
            bad[52] = cut << 4;
            patience.handle_delivery(time_at_ms(1), &bad, 2);
        }
        let endless = TestSegment { options: vec![TCP_OPTION_SACK, 0, 0, 0], ..PLAIN_SEGMENT };
        patience.handle_delivery(time_at_ms(1), &endless.into_packet(), 2);
        for number in 0..500 {
            patience.handle_delivery(time_at_ms(1), &data_segment(3 + number), 2);
            passes_without_wait(&mut patience, 1, &acknowledgement_segment(2));
        }
        assert!(patience.flows.values().all(|flow| flow.waiting_acks.len() <= MAX_WAITING_ACKS
            && flow.acks_allowed_to_wait <= MAX_WAITING_ACKS));
        for port in 0..2000u16 {
            let mut packet = data_segment(0);
            packet[40..42].copy_from_slice(&port.to_be_bytes());
            patience.handle_delivery(time_at_ms(2), &packet, 1);
        }
        assert!(patience.flows.len() <= MAX_TCP_FLOWS);
        let mut rest = 0;
        patience.clear(&mut |_| rest += 1);
        assert!(rest > 0 && patience.poll_timeout().is_none());
    }
}
