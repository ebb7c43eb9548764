//! Computes statistics of a one-way probe: lost, duplicated, reordered and late packets, and outages.
//!
//! A flow has the sent packets by sequence number, and the arrivals in order. A *window* is a period of the
//! run; it contains the packets that were sent in it. The lab judges each section of the timetable
//! separately.

use std::ops::Range;

use serde::Serialize;

/// One direction of a probe.
#[derive(Debug, Clone, Default)]
pub struct PacketFlow {
    /// Time of sending of each packet, by sequence number from 0, in nanoseconds.
    pub send_times: Vec<u64>,
    /// Sequence number and time of each arrival, in order of arrival.
    pub received_packets: Vec<(u64, u64)>,
}

/// Statistics of a flow in a window.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FlowStats {
    /// Number of packets sent.
    #[serde(rename = "sent")]
    pub sent_packets: u64,
    /// Number of sent packets that never arrived.
    #[serde(rename = "lost")]
    pub lost_packets: u64,
    /// Number of repeated arrivals of a packet.
    #[serde(rename = "duplicated")]
    pub duplicated_packets: u64,
    /// Number of packets that arrived after a packet that was sent later (RFC 4737 3, singleton reordering).
    #[serde(rename = "reordered")]
    pub reordered_packets: u64,
    /// Reordering extent: the longest time by which a packet was sent before another one that overtook it, in
    /// nanoseconds. If two paths with different delays cause the reordering, it is at least the difference of
    /// the delays (RFC 4737 4.3, late time).
    #[serde(rename = "reordered_by")]
    pub longest_reordering_time: u64,
    /// Longest time without an arrival in nanoseconds, between the sending of the first packet and of the
    /// last one. A single late packet is not an outage: it counts as delay and as reordered.
    #[serde(rename = "outage")]
    pub longest_outage: u64,
    /// One-way delays of the first arrivals, in nanoseconds, ascending.
    #[serde(skip)]
    #[serde(rename = "delays")]
    pub sorted_delays: Vec<u64>,
}

impl FlowStats {
    /// Adds another flow's statistics to this one.
    pub fn add(&mut self, other: &FlowStats) {
        self.sent_packets += other.sent_packets;
        self.lost_packets += other.lost_packets;
        self.duplicated_packets += other.duplicated_packets;
        self.reordered_packets += other.reordered_packets;
        self.longest_reordering_time = self.longest_reordering_time.max(other.longest_reordering_time);
        self.longest_outage = self.longest_outage.max(other.longest_outage);
        self.sorted_delays.extend(&other.sorted_delays);
        self.sorted_delays.sort_unstable();
    }
}

impl PacketFlow {
    /// Returns the time of the first arrival of each packet, by sequence number; `None` for a lost packet.
    pub fn first_arrivals(&self) -> Vec<Option<u64>> {
        let mut first = vec![None; self.send_times.len()];
        for (seq, at) in &self.received_packets {
            if let Some(slot) = first.get_mut(*seq as usize)
                && slot.is_none()
            {
                *slot = Some(*at);
            }
        }
        first
    }

    /// Returns the statistics of the packets sent in a window.
    pub fn statistics_of(&self, window: &Range<u64>) -> FlowStats {
        let first = self.first_arrivals();
        let inside = |seq: usize| self.send_times.get(seq).is_some_and(|t| window.contains(t));
        let mut stats = FlowStats::default();
        for (seq, at) in first.iter().enumerate().filter(|(seq, _)| inside(*seq)) {
            stats.sent_packets += 1;
            match at {
                Some(at) => stats.sorted_delays.push(at.saturating_sub(self.send_times[seq])),
                None => stats.lost_packets += 1,
            }
        }
        stats.sorted_delays.sort_unstable();
        let mut seen = vec![false; self.send_times.len()];
        let mut highest: Option<u64> = None;
        for (seq, _) in &self.received_packets {
            let index = *seq as usize;
            if index >= seen.len() {
                continue;
            }
            if seen[index] {
                stats.duplicated_packets += u64::from(inside(index));
                continue;
            }
            seen[index] = true;
            if let Some(highest) = highest.filter(|h| h > seq) {
                if inside(index) {
                    let sent = |seq: u64| self.send_times.get(seq as usize).copied().unwrap_or(0);
                    stats.reordered_packets += 1;
                    stats.longest_reordering_time =
                        stats.longest_reordering_time.max(sent(highest).saturating_sub(sent(*seq)));
                }
            } else {
                highest = Some(*seq);
            }
        }
        stats.longest_outage = self.longest_outage(&first, window);
        stats
    }

    /// Returns the longest time without an arrival that overlaps the window, in nanoseconds.
    fn longest_outage(&self, first: &[Option<u64>], window: &Range<u64>) -> u64 {
        let (Some(begin), Some(end)) = (self.send_times.first(), self.send_times.last()) else { return 0 };
        let mut last = *begin;
        let mut longest = 0;
        let mut arrivals: Vec<u64> = first.iter().flatten().copied().collect();
        arrivals.sort_unstable();
        let mut gap = |from: u64, to: u64| {
            if from < window.end && to > window.start {
                longest = longest.max(to.saturating_sub(from));
            }
        };
        for at in arrivals {
            gap(last, at);
            last = last.max(at);
        }
        gap(last, *end);
        longest
    }
}

/// Returns the lowest value such that `percent` of the sorted values are at most that value (nearest rank).
/// Returns `None` without values.
pub fn percentile<T: Copy>(sorted: &[T], percent: f64) -> Option<T> {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a flow whose packets are sent every 10 ns from 100 on. Each packet arrives 3 ns later, in the
    /// given order.
    fn flow_with_arrivals(sent: u64, arrivals: &[u64]) -> PacketFlow {
        let mut clock = 0;
        let received = arrivals
            .iter()
            .map(|seq| {
                // In this flow, a packet that was overtaken arrives directly after the packet that overtook
                // it.
                clock = (103 + seq * 10).max(clock + 1);
                (*seq, clock)
            })
            .collect();
        PacketFlow { send_times: (0..sent).map(|s| 100 + s * 10).collect(), received_packets: received }
    }

    const WHOLE_FLOW: Range<u64> = 0..u64::MAX;

    #[test]
    fn faultless_flow_has_no_loss_or_outage() {
        let s = flow_with_arrivals(5, &[0, 1, 2, 3, 4]).statistics_of(&WHOLE_FLOW);
        assert_eq!(
            (s.sent_packets, s.lost_packets, s.duplicated_packets, s.reordered_packets, s.longest_outage),
            (5, 0, 0, 0, 10)
        );
        assert_eq!(s.sorted_delays, [3; 5]);
    }

    #[test]
    fn missing_packets_count_as_loss_and_outage() {
        let s = flow_with_arrivals(10, &[0, 1, 2, 7, 8, 9]).statistics_of(&WHOLE_FLOW);
        assert_eq!((s.lost_packets, s.longest_outage, s.reordered_packets), (4, 50, 0));
    }

    #[test]
    fn single_late_packet_is_no_outage() {
        let mut f = flow_with_arrivals(100, &(0..100).collect::<Vec<_>>());
        // Packet 10 waits in a queue until packet 80 has arrived.
        let mut late = f.received_packets.remove(10);
        late.1 = 904;
        f.received_packets.insert(80, late);
        let s = f.statistics_of(&WHOLE_FLOW);
        assert_eq!((s.lost_packets, s.reordered_packets, s.longest_outage), (0, 1, 20));
        assert_eq!(s.sorted_delays.last(), Some(&704));
    }

    #[test]
    fn loss_at_start_and_end_of_flow_is_counted() {
        let s = flow_with_arrivals(10, &[3, 4, 5]).statistics_of(&WHOLE_FLOW);
        assert_eq!(s.lost_packets, 7);
        // The outage lasts from the last arrival (153) to the sending of the last packet (190).
        assert_eq!(s.longest_outage, 37);
        assert_eq!(flow_with_arrivals(10, &[]).statistics_of(&WHOLE_FLOW).longest_outage, 90);
        assert_eq!(flow_with_arrivals(10, &[]).statistics_of(&WHOLE_FLOW).lost_packets, 10);
    }

    #[test]
    fn second_arrival_counts_as_duplicate_only() {
        let s = flow_with_arrivals(4, &[0, 1, 1, 2, 0, 3]).statistics_of(&WHOLE_FLOW);
        assert_eq!((s.lost_packets, s.duplicated_packets, s.reordered_packets), (0, 2, 0));
    }

    #[test]
    fn overtaken_packets_are_reordered() {
        // Packet 3 overtakes packets 1 and 2: two packets are late.
        let s = flow_with_arrivals(5, &[0, 3, 1, 2, 4]).statistics_of(&WHOLE_FLOW);
        assert_eq!((s.lost_packets, s.reordered_packets, s.duplicated_packets), (0, 2, 0));
        // Packet 1 was sent 20 ns before packet 3.
        assert_eq!(
            (
                s.longest_reordering_time,
                flow_with_arrivals(3, &[0, 1, 2]).statistics_of(&WHOLE_FLOW).longest_reordering_time
            ),
            (20, 0)
        );
    }

    #[test]
    fn packets_count_in_the_section_of_their_sending() {
        // Packets 2 and 3, sent at 120 and 130, are lost. Packet 5 arrives twice.
        let f = flow_with_arrivals(8, &[0, 1, 4, 5, 5, 6, 7]);
        let early = f.statistics_of(&(100..130));
        assert_eq!((early.sent_packets, early.lost_packets, early.duplicated_packets), (3, 1, 0));
        let late = f.statistics_of(&(130..1000));
        assert_eq!((late.sent_packets, late.lost_packets, late.duplicated_packets), (5, 1, 1));
        // The gap from 113 to 143 belongs to both windows.
        assert_eq!((early.longest_outage, late.longest_outage), (30, 30));
        assert_eq!(f.statistics_of(&(150..1000)).longest_outage, 10);
    }

    #[test]
    fn unsent_packet_numbers_are_ignored() {
        let s = flow_with_arrivals(2, &[0, 1, 77]).statistics_of(&WHOLE_FLOW);
        assert_eq!((s.sent_packets, s.lost_packets, s.duplicated_packets), (2, 0, 0));
    }

    #[test]
    fn percentiles_are_computed_by_nearest_rank() {
        let v: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&v, 50.0), Some(50));
        assert_eq!(percentile(&v, 99.0), Some(99));
        assert_eq!(percentile(&v, 100.0), Some(100));
        assert_eq!(percentile(&v, 0.0), Some(1));
        assert_eq!(percentile::<u64>(&[], 50.0), None);
    }
}
