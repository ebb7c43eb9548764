//! What the programs have counted: packets and octets by tunnel, and what they left alone.

use std::collections::HashMap;

use aya::Pod;
use aya::maps::PerCpuArray;

use super::Programs;
use crate::fast_path::{FastPathCounters, TunnelEnds, TunnelTraffic};

/// `struct traffic`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct TrafficValue([u64; 4]);

// SAFETY: `repr(C)` of integers, without padding, and any octets are a valid value.
unsafe impl Pod for TrafficValue {}

/// `enum outcome` without `TAKEN`, in its order. The last is a loss, the others are left to the slow path.
const OUTCOMES: [&str; 16] = [
    "hop_limit",
    "scope",
    "extension",
    "syn",
    "too_big",
    "no_path",
    "outer_source",
    "inner_source",
    "congestion",
    "malformed",
    "route",
    "neighbour",
    "policy",
    "burst",
    "checksum",
    "failed",
];

/// Slots whose traffic is looked at in one go, a system call for each.
const LOOKS: u32 = 2048;

impl Programs {
    /// The counters of a slot, in the order of its paths.
    pub(super) fn counters_of(&self, slot: u32) -> std::ops::Range<u32> {
        slot * self.counters..(slot + 1) * self.counters
    }

    /// The ends of tunnels into which packets went since they were last named. Looks at [`LOOKS`] slots in their turn.
    pub(in crate::fast_path) fn used(&mut self) -> Vec<TunnelEnds> {
        let slots = self.table.slots_used();
        let turn: Vec<u32> = (0..slots.min(LOOKS)).map(|step| (self.next_look + step) % slots).collect();
        self.next_look = turn.last().map_or(0, |last| last + 1);
        let mut used = Vec::new();
        for slot in turn {
            for (ends, counter) in self.table.sending(slot).to_vec().into_iter().zip(self.counters_of(slot)) {
                let packets = self.traffic_of(counter).encapsulated_packets;
                let before = self.seen.insert(counter, packets).unwrap_or_default();
                if packets > before {
                    used.push(ends);
                }
            }
        }
        used
    }

    /// A counter counts the traffic of another tunnel from now on. Where a slot has one for all, what still arrives by the
    /// former tunnel is taken for the new one's.
    pub(super) fn count_for(&mut self, counter: u32, ends: Option<TunnelEnds>) {
        if self.counting.get(&counter).map(|(ends, _)| *ends) == ends {
            return;
        }
        let now = self.traffic_of(counter);
        let before = match ends {
            Some(ends) => self.counting.insert(counter, (ends, now)),
            None => self.counting.remove(&counter),
        };
        if let Some((ends, since)) = before
            && self.table.has(ends)
        {
            self.counted.entry(ends).or_default().add(now, since);
        }
    }

    /// What was done for each tunnel.
    pub(in crate::fast_path) fn tunnel_traffic(&self) -> HashMap<TunnelEnds, TunnelTraffic> {
        let mut traffic = self.counted.clone();
        for (counter, (ends, since)) in &self.counting {
            traffic.entry(*ends).or_default().add(self.traffic_of(*counter), *since);
        }
        traffic
    }

    /// The sum over all CPUs of a counter of `TRAFFIC`.
    fn traffic_of(&self, counter: u32) -> TunnelTraffic {
        let map = self.ebpf.map("TRAFFIC").and_then(|map| PerCpuArray::<_, TrafficValue>::try_from(map).ok());
        let mut sum = [0u64; 4];
        if let Some(values) = map.and_then(|map| map.get(&counter, 0).ok()) {
            for value in values.iter() {
                for (sum, number) in sum.iter_mut().zip(value.0) {
                    *sum += number;
                }
            }
        }
        let [encapsulated_packets, encapsulated_octets, decapsulated_packets, decapsulated_octets] = sum;
        TunnelTraffic { encapsulated_packets, encapsulated_octets, decapsulated_packets, decapsulated_octets }
    }

    pub(in crate::fast_path) fn counters(&self) -> FastPathCounters {
        let mut total = TunnelTraffic::default();
        for counter in 0..self.table.slots_used() * self.counters {
            let traffic = self.traffic_of(counter);
            total.encapsulated_packets += traffic.encapsulated_packets;
            total.encapsulated_octets += traffic.encapsulated_octets;
            total.decapsulated_packets += traffic.decapsulated_packets;
            total.decapsulated_octets += traffic.decapsulated_octets;
        }
        let counts = self.ebpf.map("COUNTS").and_then(|map| PerCpuArray::<_, u64>::try_from(map).ok());
        let count = |outcome: usize| {
            let key = u32::try_from(outcome + 1).unwrap_or(u32::MAX);
            let values = counts.as_ref().and_then(|map| map.get(&key, 0).ok());
            values.map_or(0, |values| values.iter().sum())
        };
        let left = OUTCOMES.iter().enumerate().map(|(outcome, name)| (*name, count(outcome))).collect();
        FastPathCounters { total, left }
    }
}

#[cfg(test)]
mod tests {
    use super::OUTCOMES;

    /// What is left to the slow path is explained to people, reason by reason.
    #[test]
    fn the_page_of_counters_has_every_outcome() {
        let page = include_str!("../../../../../docs/counters.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `fast_path.left."));
        let names: Vec<&str> = rows.filter_map(|row| row.split_once('`')).map(|(name, _)| name).collect();
        assert_eq!(names, OUTCOMES);
    }
}
