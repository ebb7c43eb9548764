//! Counters of the programs: packets and octets by tunnel, and packets left to the slow path.

use std::collections::HashMap;

use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use aya::Ebpf;
use aya::maps::{Map, PerCpuArray};
use portable_atomic::AtomicU64;

use super::LoadedPrograms;
use crate::fast_path::{FastPathCounters, TunnelEnds, TunnelTraffic};

/// Copy of `struct traffic` in C.
type TrafficValue = [AtomicU64; 4];

/// The map `TRAFFIC` in this process's memory: its pages contain the counters that the programs increment.
/// Reading a counter needs no system call.
#[derive(Debug)]
pub(super) struct TrafficMemory {
    first_value: NonNull<TrafficValue>,
    /// Number of counters that each of the `processors` processors has.
    counter_count: usize,
    processor_count: usize,
}

// SAFETY: the value owns the mapping, which no code in this process writes.
unsafe impl Send for TrafficMemory {}

impl TrafficMemory {
    /// Maps the counters of loaded programs: `counters` for each processor.
    ///
    /// # Errors
    /// Returns why the kernel does not map the counters.
    pub(super) fn map_counters(ebpf: &Ebpf, counters: u32, processors: u32) -> Result<TrafficMemory, String> {
        let Some(Map::Array(map)) = ebpf.map("TRAFFIC") else {
            return Err("the BPF object has no map TRAFFIC".into());
        };
        let mut memory = TrafficMemory {
            first_value: NonNull::dangling(),
            counter_count: counters as usize,
            processor_count: processors as usize,
        };
        // SAFETY: the kernel chooses the address, and refuses a length beyond the map's.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                memory.mapping_length(),
                libc::PROT_READ,
                libc::MAP_SHARED,
                map.fd().as_fd().as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(format!(
                "cannot map the BPF map TRAFFIC into memory: {}",
                std::io::Error::last_os_error()
            ));
        }
        memory.first_value =
            NonNull::new(start.cast()).ok_or("the kernel has mapped the BPF map TRAFFIC at address 0")?;
        Ok(memory)
    }

    fn mapping_length(&self) -> usize {
        self.counter_count * self.processor_count * size_of::<TrafficValue>()
    }

    /// Returns the sum of a counter over all processors.
    fn sum_of_counter(&self, counter: u32) -> TunnelTraffic {
        // SAFETY: this number of counters is mapped until the value is dropped. The programs write the eight
        // octets of a value at once, as an atomic write of another thread does.
        let values = unsafe {
            std::slice::from_raw_parts(self.first_value.as_ptr(), self.counter_count * self.processor_count)
        };
        let own = values.iter().skip(counter as usize).step_by(self.counter_count.max(1));
        let mut sum = [0; 4];
        for value in own.take(if (counter as usize) < self.counter_count { self.processor_count } else { 0 })
        {
            for (sum, number) in sum.iter_mut().zip(value) {
                *sum += number.load(Ordering::Relaxed);
            }
        }
        let [encapsulated_packets, encapsulated_octets, decapsulated_packets, decapsulated_octets] = sum;
        TunnelTraffic { encapsulated_packets, encapsulated_octets, decapsulated_packets, decapsulated_octets }
    }
}

impl Drop for TrafficMemory {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped with this length, and no code has a reference into it any more.
        unsafe { libc::munmap(self.first_value.as_ptr().cast(), self.mapping_length()) };
    }
}

/// Names of the values of `enum outcome`, without `TAKEN`, in its order. The last one counts lost packets,
/// all others count packets that the programs passed to the slow path.
const OUTCOME_NAMES: [&str; 17] = [
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
    "filter",
    "failed",
];

/// Number of slots that one call checks for traffic.
const SLOTS_PER_CALL: u32 = 2048;

impl LoadedPrograms {
    /// Returns the counters of a slot, in the order of the binding's paths.
    pub(super) fn counter_range_of_slot(&self, slot: u32) -> std::ops::Range<u32> {
        slot * self.counters_per_slot..(slot + 1) * self.counters_per_slot
    }

    /// Returns the ends of tunnels into which packets went since the last check. Each call checks the next
    /// [`SLOTS_PER_CALL`] slots; successive calls check all slots in turn.
    pub(in crate::fast_path) fn used(&mut self) -> Vec<TunnelEnds> {
        let slots = self.binding_table.used_slot_count();
        let turn: Vec<u32> =
            (0..slots.min(SLOTS_PER_CALL)).map(|step| (self.next_slot_to_check + step) % slots).collect();
        self.next_slot_to_check = turn.last().map_or(0, |last| last + 1);
        let mut used = Vec::new();
        for slot in turn {
            for (ends, counter) in self
                .binding_table
                .transmitting_ends(slot)
                .collect::<Vec<_>>()
                .into_iter()
                .zip(self.counter_range_of_slot(slot))
            {
                let packets = self.traffic_memory.sum_of_counter(counter).encapsulated_packets;
                let before = self.counters_at_last_check.insert(counter, packets).unwrap_or_default();
                if packets > before {
                    used.push(ends);
                }
            }
        }
        used
    }

    /// Assigns a counter to the tunnel between these ends, or to no tunnel (`None`). If all paths of a slot
    /// share a counter, packets in transit through the former tunnel count for the new one.
    pub(super) fn assign_counter(&mut self, counter: u32, ends: Option<TunnelEnds>) {
        if self.tunnel_by_counter.get(&counter).map(|(ends, _)| *ends) == ends {
            return;
        }
        let now = self.traffic_memory.sum_of_counter(counter);
        let before = match ends {
            Some(ends) => self.tunnel_by_counter.insert(counter, (ends, now)),
            None => self.tunnel_by_counter.remove(&counter),
        };
        if let Some((ends, since)) = before
            && self.binding_table.has_tunnel(ends)
        {
            self.traffic_in_reused_counters.entry(ends).or_default().add_difference(now, since);
        }
    }

    /// Returns the traffic of each tunnel.
    pub(in crate::fast_path) fn tunnel_traffic(&self) -> HashMap<TunnelEnds, TunnelTraffic> {
        let mut traffic = self.traffic_in_reused_counters.clone();
        for (counter, (ends, since)) in &self.tunnel_by_counter {
            traffic
                .entry(*ends)
                .or_default()
                .add_difference(self.traffic_memory.sum_of_counter(*counter), *since);
        }
        traffic
    }

    pub(in crate::fast_path) fn counters_per_processor(&self) -> FastPathCounters {
        let mut total = TunnelTraffic::default();
        for counter in 0..self.binding_table.used_slot_count() * self.counters_per_slot {
            let traffic = self.traffic_memory.sum_of_counter(counter);
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
        let left = OUTCOME_NAMES.iter().enumerate().map(|(outcome, name)| (*name, count(outcome))).collect();
        FastPathCounters { total_traffic: total, slow_path_packets_by_reason: left }
    }
}

#[cfg(test)]
mod tests {
    use super::OUTCOME_NAMES;

    /// The documentation of counters explains each reason for which the programs leave a packet to the slow
    /// path.
    #[test]
    fn counters_page_lists_every_fast_path_outcome() {
        let page = include_str!("../../../../../docs/counters.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `fast_path.left."));
        let names: Vec<&str> = rows.filter_map(|row| row.split_once('`')).map(|(name, _)| name).collect();
        assert_eq!(names, OUTCOME_NAMES);
    }
}
