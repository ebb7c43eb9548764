//! Reordering buffer: delivers packets of a source in the order in which the source sent them, within a
//! limited wait.
//!
//! When the path between two stations becomes shorter, packets on the new path overtake packets on the old
//! path. TCP takes the reordering for loss. The sequence number of GeoNetworking shows that numbers are
//! missing. A gap alone says little: one series of numbers serves all packets of the source, so the missing
//! packets may be for other stations. One of three rules ([`ReorderRule`]) decides whether this station
//! expects the missing packets. The first rule requires a shorter path, the second a changed path (TCP over
//! Geo-routing for High Mobility: "a change of hop count tells a change of path"). The third rule requires
//! only the gap. With the first two rules no packet waits on a steady path. The buffer computes the hold time
//! from the lateness of earlier packets: SRTT + 4 VAR, as in TCP's timer, and at most the bound. The buffer
//! delivers a packet at once if it arrives after the hold time.
//!
//! Left out: broadcasts, which arrive over many paths at once and are not streams.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use carnet_base::Time;

/// Largest number of sources whose packets the buffer orders.
const MAX_BUFFERED_SOURCES: usize = 256;
/// Largest number of waiting packets of one source.
const MAX_WAITING_PACKETS: usize = 128;
/// Shortest hold time: the resolution of the timers.
const MIN_HOLD_TIME: Duration = Duration::from_millis(1);

/// Rule that decides whether a packet behind a gap of sequence numbers waits for the missing packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReorderRule {
    /// A packet waits if it came over fewer hops than the packet before it. A packet over as many or more
    /// hops has rarely overtaken another.
    #[default]
    Shorter,
    /// A packet waits if its number of hops differs from the number of the packet before it, as in "TCP over
    /// Geo-routing for High Mobility". A longer path with less load may be faster.
    Changed,
    /// The packet always waits: right for a source that sends (almost) only to this station.
    Always,
}

impl ReorderRule {
    /// Returns whether a packet that came over `hops` hops must wait, after a packet that came over `before`
    /// hops.
    pub(super) fn must_packet_wait(self, before: u8, hops: u8) -> bool {
        match self {
            ReorderRule::Shorter => hops < before,
            ReorderRule::Changed => hops != before,
            ReorderRule::Always => true,
        }
    }
}

#[derive(Debug)]
struct BufferedPacket<T> {
    sequence: u16,
    hop_count: u8,
    arrived_at: Time,
    content: T,
}

#[derive(Debug)]
struct SourceBuffer<T> {
    /// Sequence number of the latest delivered packet.
    latest_delivered_sequence: u16,
    /// Number of hops over which the latest delivered packet came.
    hop_count: u8,
    /// Time of the last packet of the source.
    last_received_at: Time,
    /// Waiting packets in the order of their numbers.
    waiting_packets: VecDeque<BufferedPacket<T>>,
    /// SRTT and VAR of the lateness: the time by which late packets arrive after a packet that waits for
    /// them.
    lateness: Option<(Duration, Duration)>,
}

/// Reordering buffer: delays packets that have overtaken earlier packets.
#[derive(Debug)]
pub struct ReorderingBuffer<T> {
    rule: ReorderRule,
    max_wait: Duration,
    sources: BTreeMap<u64, Box<SourceBuffer<T>>>,
    /// Number of packets that had to wait.
    pub held_packets: u64,
    /// Number of packets that arrived after the buffer had delivered later packets.
    pub late_packets: u64,
}

impl<T> ReorderingBuffer<T> {
    /// Creates a buffer: packets wait according to `rule`, at most for `bound`.
    pub fn new(rule: ReorderRule, bound: Duration) -> ReorderingBuffer<T> {
        ReorderingBuffer { rule, max_wait: bound, sources: BTreeMap::new(), held_packets: 0, late_packets: 0 }
    }

    /// Returns the time at which [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.sources.values().filter_map(|source| source.release_at(self.max_wait)).min()
    }

    /// Accepts a packet of a source with its sequence number and hops; passes the packets to deliver now to
    /// `out`.
    pub fn push(
        &mut self,
        now: Time,
        source: u64,
        sequence: u16,
        hops: u8,
        item: T,
        out: &mut impl FnMut(T),
    ) {
        let rule = self.rule;
        let Some(known) = self.sources.get_mut(&source) else {
            self.make_room_for_source();
            if self.sources.len() >= MAX_BUFFERED_SOURCES {
                // Every source in the table has waiting packets, so the table has no room for another source:
                // deliver the packet at once.
                out(item);
                return;
            }
            let lateness = None;
            let waiting = VecDeque::new();
            let known = SourceBuffer {
                latest_delivered_sequence: sequence,
                hop_count: hops,
                last_received_at: now,
                waiting_packets: waiting,
                lateness,
            };
            self.sources.insert(source, Box::new(known));
            out(item);
            return;
        };
        known.last_received_at = now;
        match sequence_distance(sequence, known.latest_delivered_sequence) {
            // The packet is older than the latest delivered one: the buffer no longer waited for it, or the
            // source has restarted.
            ..=0 => {
                self.late_packets += 1;
                if known.waiting_packets.is_empty()
                    && sequence_distance(sequence, known.latest_delivered_sequence)
                        < -(MAX_WAITING_PACKETS as i16)
                {
                    (known.latest_delivered_sequence, known.hop_count) = (sequence, hops);
                }
                out(item);
            }
            1 => {
                known.update_lateness_average(now);
                (known.latest_delivered_sequence, known.hop_count) = (sequence, hops);
                out(item);
                known.release_packets(None, out);
            }
            _ if known.waiting_packets.is_empty() && !rule.must_packet_wait(known.hop_count, hops) => {
                (known.latest_delivered_sequence, known.hop_count) = (sequence, hops);
                out(item);
            }
            _ => {
                let before = |waiting: &BufferedPacket<T>| sequence_distance(waiting.sequence, sequence) < 0;
                let at = known.waiting_packets.partition_point(before);
                if at == 0 && !known.waiting_packets.is_empty() {
                    known.update_lateness_average(now);
                }
                known
                    .waiting_packets
                    .insert(at, BufferedPacket { sequence, hop_count: hops, arrived_at: now, content: item });
                self.held_packets += 1;
                if known.waiting_packets.len() > MAX_WAITING_PACKETS {
                    let first = known.waiting_packets.front().map(|first| first.sequence);
                    known.release_packets(first, out);
                }
            }
        }
    }

    /// Delivers the packets whose hold time has ended, and the packets that directly follow them.
    pub fn handle_timeout(&mut self, now: Time, out: &mut impl FnMut(T)) {
        for source in self.sources.values_mut() {
            while source.release_at(self.max_wait).is_some_and(|due| due <= now) {
                let wait = source.waiting_time(self.max_wait);
                let over =
                    source.waiting_packets.iter().rev().find(|waiting| waiting.arrived_at + wait <= now);
                let Some(over) = over.map(|over| over.sequence) else { break };
                source.release_packets(Some(over), out);
            }
        }
    }

    /// Removes all sources; passes the waiting packets to `out`.
    pub fn clear(&mut self, out: &mut impl FnMut(T)) {
        for source in std::mem::take(&mut self.sources).into_values() {
            source.waiting_packets.into_iter().for_each(|waiting| out(waiting.content));
        }
    }

    /// If the table is full, removes the source that has been silent for the longest time and has no waiting
    /// packets.
    fn make_room_for_source(&mut self) {
        if self.sources.len() < MAX_BUFFERED_SOURCES {
            return;
        }
        let idle = self.sources.iter().filter(|(_, source)| source.waiting_packets.is_empty());
        if let Some(oldest) =
            idle.min_by_key(|(_, source)| source.last_received_at).map(|(oldest, _)| *oldest)
        {
            self.sources.remove(&oldest);
        }
    }
}

impl<T> SourceBuffer<T> {
    fn waiting_time(&self, bound: Duration) -> Duration {
        let learnt = self.lateness.map_or(bound, |(mean, variation)| mean + variation * 4);
        learnt.max(MIN_HOLD_TIME).min(bound)
    }

    fn release_at(&self, bound: Duration) -> Option<Time> {
        let first = self.waiting_packets.iter().map(|waiting| waiting.arrived_at).min()?;
        Some(first + self.waiting_time(bound))
    }

    /// Updates SRTT and VAR of the lateness when a missing packet arrives. Its lateness is the time that the
    /// first waiting packet has waited.
    fn update_lateness_average(&mut self, now: Time) {
        let Some(since) = self.waiting_packets.iter().map(|waiting| waiting.arrived_at).min() else { return };
        let late = now.saturating_since(since);
        // The formulas and weights are those of RFC 6298 2.
        self.lateness = Some(match self.lateness {
            None => (late, late / 2),
            Some((mean, variation)) => (mean * 7 / 8 + late / 8, variation * 3 / 4 + mean.abs_diff(late) / 4),
        });
    }

    /// Delivers the waiting packets up to the sequence number `up_to`. Then delivers the packets that follow
    /// the latest delivered one without a gap.
    fn release_packets(&mut self, up_to: Option<u16>, out: &mut impl FnMut(T)) {
        while let Some(first) = self.waiting_packets.front() {
            let is_over = up_to.is_some_and(|last| sequence_distance(first.sequence, last) <= 0);
            if !is_over && sequence_distance(first.sequence, self.latest_delivered_sequence) != 1 {
                break;
            }
            let Some(first) = self.waiting_packets.pop_front() else { break };
            (self.latest_delivered_sequence, self.hop_count) = (first.sequence, first.hop_count);
            out(first.content);
        }
    }
}

/// Returns by how much `sequence` is ahead of `of`, modulo 2^16; negative if it is behind.
fn sequence_distance(sequence: u16, of: u16) -> i16 {
    sequence.wrapping_sub(of) as i16
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_WAIT: Duration = Duration::from_millis(50);

    fn time_at_ms(count: u64) -> Time {
        Time::from_millis(1000 + count)
    }

    /// Pushes packets, each given by its time in milliseconds, sequence number and hops. Returns the sequence
    /// numbers that the buffer has delivered after the last push.
    fn push_all(order: &mut ReorderingBuffer<u16>, packets: &[(u64, u16, u8)]) -> Vec<u16> {
        let mut out = Vec::new();
        for (at, sequence, hops) in packets {
            order.handle_timeout(time_at_ms(*at), &mut |item| out.push(item));
            order.push(time_at_ms(*at), 7, *sequence, *hops, *sequence, &mut |item| out.push(item));
        }
        out
    }

    #[test]
    fn packets_over_a_constant_path_do_not_wait() {
        let mut order = ReorderingBuffer::new(ReorderRule::Shorter, MAX_WAIT);
        // The missing packets were for other stations. A packet that came over as many hops as the packet
        // before it, or over more, does not wait.
        assert_eq!(
            push_all(&mut order, &[(0, 1, 2), (1, 2, 2), (2, 5, 2), (3, 9, 3), (4, 10, 3)]),
            [1, 2, 5, 9, 10]
        );
        assert_eq!((order.poll_timeout(), order.held_packets), (None, 0));
    }

    #[test]
    fn packet_that_overtook_others_waits_for_them() {
        let mut order = ReorderingBuffer::new(ReorderRule::Shorter, MAX_WAIT);
        let packets = [(0, 1, 3), (1, 4, 2), (2, 5, 2), (3, 2, 3), (4, 3, 3), (5, 6, 2)];
        assert_eq!(push_all(&mut order, &packets), [1, 2, 3, 4, 5, 6]);
        assert_eq!((order.held_packets, order.late_packets), (2, 0));
        assert_eq!(order.poll_timeout(), None);
    }

    #[test]
    fn each_reorder_rule_buffers_the_expected_packets() {
        // Packet 4 came over more hops than packet 1, and packets 2 and 3 arrive after packet 4. Packet 8
        // came over as many hops as packet 5, and packets 6 and 7 arrive after packet 8.
        let packets =
            [(0, 1, 2), (1, 4, 3), (2, 2, 2), (3, 3, 2), (4, 5, 3), (5, 8, 3), (6, 6, 3), (7, 7, 3)];
        let under = |rule| {
            let mut order = ReorderingBuffer::new(rule, MAX_WAIT);
            (push_all(&mut order, &packets), order.held_packets)
        };
        assert_eq!(under(ReorderRule::Shorter), (vec![1, 4, 2, 3, 5, 8, 6, 7], 0));
        assert_eq!(under(ReorderRule::Changed), (vec![1, 2, 3, 4, 5, 8, 6, 7], 1));
        assert_eq!(under(ReorderRule::Always), (vec![1, 2, 3, 4, 5, 6, 7, 8], 2));
        // The hold time is limited under every rule: the missing packet may be for another station, so it
        // never arrives here.
        for rule in [ReorderRule::Shorter, ReorderRule::Changed, ReorderRule::Always] {
            let mut order = ReorderingBuffer::new(rule, MAX_WAIT);
            assert_eq!(push_all(&mut order, &[(0, 1, 3), (1, 9, 2)]), [1]);
            assert_eq!(order.poll_timeout(), Some(time_at_ms(51)));
            let mut out = Vec::new();
            order.handle_timeout(time_at_ms(51), &mut |item| out.push(item));
            assert_eq!(out, [9]);
        }
    }

    #[test]
    fn packet_waits_at_most_the_reordering_bound() {
        let mut order = ReorderingBuffer::new(ReorderRule::Shorter, MAX_WAIT);
        assert_eq!(push_all(&mut order, &[(0, 1, 3), (10, 4, 2), (20, 5, 2)]), [1]);
        assert_eq!(order.poll_timeout(), Some(time_at_ms(60)));
        let mut out = Vec::new();
        order.handle_timeout(time_at_ms(59), &mut |item| out.push(item));
        assert!(out.is_empty());
        order.handle_timeout(time_at_ms(60), &mut |item| out.push(item));
        assert_eq!(out, [4, 5], "what follows without a gap goes with it");
        assert_eq!(push_all(&mut order, &[(61, 2, 3)]), [2], "too late is not never");
        assert_eq!(order.late_packets, 1);
    }

    #[test]
    fn hold_time_follows_measured_lateness() {
        let mut order = ReorderingBuffer::new(ReorderRule::Shorter, MAX_WAIT);
        assert_eq!(push_all(&mut order, &[(0, 1, 3), (1, 3, 2), (5, 2, 3)]), [1, 2, 3]);
        // A mean lateness of 4 ms and a variation of 2 ms give a hold time of 12 ms.
        assert_eq!(push_all(&mut order, &[(10, 4, 3), (11, 6, 2)]), [4]);
        assert_eq!(order.poll_timeout(), Some(time_at_ms(23)));
        // A lateness of 40 ms gives a computed hold time of 120 ms. The buffer limits it to the bound.
        let mut order = ReorderingBuffer::new(ReorderRule::Shorter, MAX_WAIT);
        assert_eq!(
            push_all(&mut order, &[(0, 1, 3), (1, 3, 2), (41, 2, 3), (50, 4, 3), (51, 6, 2)]),
            [1, 2, 3, 4]
        );
        assert_eq!(order.poll_timeout(), Some(time_at_ms(101)));
    }

    #[test]
    fn reordering_handles_wrapped_numbers_and_restarted_sources() {
        let mut order = ReorderingBuffer::new(ReorderRule::Shorter, MAX_WAIT);
        assert_eq!(
            push_all(&mut order, &[(0, 65_534, 3), (1, 1, 2), (2, 65_535, 3), (3, 0, 3)]),
            [65_534, 65_535, 0, 1]
        );
        let mut order = ReorderingBuffer::new(ReorderRule::Shorter, MAX_WAIT);
        assert_eq!(
            push_all(&mut order, &[(0, 5000, 3), (1, 0, 3), (2, 1, 2), (3, 3, 1), (4, 2, 2)]),
            [5000, 0, 1, 2, 3]
        );
    }

    #[test]
    fn reordering_buffer_bounds_sources_and_waiting_packets() {
        let mut order = ReorderingBuffer::new(ReorderRule::Shorter, MAX_WAIT);
        push_all(&mut order, &[(0, 1, 9)]);
        let flood: Vec<(u64, u16, u8)> = (0..1000).map(|number| (1, 3 + 2 * number, 1)).collect();
        assert!(push_all(&mut order, &flood).len() >= 1000 - MAX_WAITING_PACKETS);
        assert!(order.sources[&7].waiting_packets.len() <= MAX_WAITING_PACKETS);
        for source in 0..10_000 {
            order.push(time_at_ms(2), source, 1, 1, 1, &mut |_| {});
        }
        assert!(order.sources.len() <= MAX_BUFFERED_SOURCES && order.sources.contains_key(&9999));
        let mut rest = 0;
        order.clear(&mut |_| rest += 1);
        assert!(rest > 0 && order.poll_timeout().is_none());
    }
}
