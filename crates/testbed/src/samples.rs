//! Takes samples while the timetable runs: counters of the medium and of emulated links, and the stations'
//! processor time and memory.
//!
//! The lab reads these counters at the begin and end of each section. It also reads the counters of the
//! medium once a second, for the curve of the channel's load.

use std::collections::BTreeMap;

use crate::api;
use crate::clock::SECOND;
use crate::emulation::runner::{DelayHistogram, Emulator};
use crate::emulation::way;
use crate::medium::stats::Counters;
use crate::metrics::{Metrics, RunSection, seconds_since};
use crate::radio::{Medium, MediumLateness};
use crate::scenario::{LinkEnd, WHOLE_RUN_SECTION};
use crate::station::Station;

/// Maximum number of nodes for which each node has its own metrics; with more nodes, the lab computes only
/// sums.
const MAX_NODES_WITH_OWN_METRICS: usize = 20;

/// Length in octets of a frame's Ethernet header.
const ETHERNET_HEADER_LENGTH: u64 = 14;
/// Length in octets of the outer header of a tunnel of IPv6 in IPv6.
const TUNNEL_HEADER_LENGTH: u64 = 40;

/// Samples that the lab takes at certain times of a run.
#[derive(Debug, Default)]
pub struct Samples {
    /// Counters of each radio with the time of reading: at the beginning of the timetable, at each action, at
    /// the end.
    samples_at_section_borders: Vec<(u64, Vec<Counters>)>,
    /// Counters of the frames that each end of an emulated link sent, with the end's name, at the times of
    /// `samples_at_section_borders`.
    link_counters_at_borders: Vec<Vec<(String, way::Counters)>>,
    /// Delays of the frames over emulated links, and the number of frames that the kernel refused, both at
    /// the end.
    link_delays: Option<(DelayHistogram, u64)>,
    /// Counters of each radio once a second, with their time.
    periodic_samples: Vec<(u64, Vec<Counters>)>,
    /// Processor time of each node at the begin, in seconds.
    processor_seconds_at_begin: BTreeMap<String, f64>,
    /// Processor time in seconds and memory in KiB of each node at the end.
    usage_at_end: BTreeMap<String, (f64, f64)>,
    /// Sums of the counters of all stations with a radio at the end, except outsiders.
    station_counters: BTreeMap<String, f64>,
    medium_lateness: MediumLateness,
}

impl Samples {
    /// Takes the samples at the begin of the timetable.
    pub fn begin_sampling(&mut self, stations: &[Station]) {
        let used = |s: &Station| Some((s.node.clone(), s.processor_time_and_memory()?.0));
        self.processor_seconds_at_begin = stations.iter().filter_map(used).collect();
    }

    /// Takes the samples between two sections.
    pub fn sample_section_border(&mut self, now: u64, medium: Option<&Medium>, emulator: Option<&Emulator>) {
        self.samples_at_section_borders.extend(medium.map(|m| (now, m.counters())));
        let name = |end: &LinkEnd| format!("link.{}.{}", end.node, end.interface);
        let counters = |e: &Emulator| e.counters().into_iter().map(|(end, c)| (name(end), c)).collect();
        self.link_counters_at_borders.extend(emulator.map(counters));
    }

    /// Reads the medium's counters if the previous sample is a second old.
    pub fn sample_medium_if_due(&mut self, now: u64, medium: Option<&Medium>) {
        if self.periodic_samples.last().is_none_or(|(at, _)| now >= at + SECOND) {
            self.periodic_samples.extend(medium.map(|m| (now, m.counters())));
        }
    }

    /// Takes the samples at the end of the timetable.
    pub fn end_sampling(
        &mut self,
        now: u64,
        stations: &[Station],
        medium: Option<&Medium>,
        emulator: Option<&Emulator>,
    ) {
        self.link_delays = emulator.map(Emulator::delays_and_refused_frames);
        if self.periodic_samples.last().is_some_and(|(at, _)| now >= at + SECOND / 2) {
            self.periodic_samples.extend(medium.map(|m| (now, m.counters())));
        }
        self.usage_at_end =
            stations.iter().filter_map(|s| Some((s.node.clone(), s.processor_time_and_memory()?))).collect();
        let Some(medium) = medium else { return };
        self.medium_lateness = medium.measured_lateness();
        for station in stations.iter().filter(|s| !s.is_outsider && medium.nodes.contains(&s.node)) {
            let Ok(counters) = api::get(&station.control_socket, "/v1/counters") else { continue };
            for (name, value) in counters.as_object().into_iter().flatten() {
                *self.station_counters.entry(name.clone()).or_default() += value.as_f64().unwrap_or(0.0);
            }
        }
    }

    /// Returns the longest delay of a frame by the medium or an emulated link, in milliseconds.
    pub fn longest_delay_ms(&self) -> f64 {
        let links =
            self.link_delays.as_ref().map_or(0.0, |(late, _)| late.longest_delay_microseconds() / 1e3);
        self.medium_lateness.longest_delay_ms.max(links)
    }

    /// Adds the metrics of all samples.
    pub fn add_metrics(&self, all: &mut Metrics, nodes: &[String], sections: &[RunSection]) {
        let (first, last) = (self.samples_at_section_borders.first(), self.samples_at_section_borders.last());
        for (n, (section, window)) in sections.iter().enumerate() {
            let m = all.entry(section.clone()).or_default();
            self.add_link_metrics(m, n, window.end - window.start);
            let pair = if n == 0 {
                (first, last)
            } else {
                (self.samples_at_section_borders.get(n), self.samples_at_section_borders.get(n + 1))
            };
            let (Some((from, before)), Some((to, after))) = pair else { continue };
            let counters: Vec<Counters> = after.iter().zip(before).map(|(a, b)| *a - *b).collect();
            add_medium_metrics(m, nodes, &counters, to - from);
        }
        let m = all.entry(WHOLE_RUN_SECTION.into()).or_default();
        if first.is_some() {
            m.insert("medium.refused".into(), self.medium_lateness.refused_frames as f64);
            if self.medium_lateness.delivered_frames > 0 {
                m.insert("medium.late_ms.mean".into(), self.medium_lateness.mean_delay_ms);
                m.insert("medium.late_ms.max".into(), self.medium_lateness.longest_delay_ms);
            }
        }
        if let Some((late, refused)) = &self.link_delays {
            m.insert("links.refused".into(), *refused as f64);
            for (name, percent) in [("p50", 50.0), ("p99", 99.0)] {
                m.extend(late.percentile(percent).map(|us| (format!("links.late_us.{name}"), us)));
            }
            m.extend(
                late.percentile(100.0)
                    .map(|_| ("links.late_us.max".into(), late.longest_delay_microseconds())),
            );
        }
        m.extend(self.station_counters.iter().map(|(name, sum)| (format!("stations.counter.{name}"), *sum)));
        let span = sections.first().map_or(0, |(_, window)| window.end - window.start) as f64 / 1e9;
        if self.usage_at_end.is_empty() || span <= 0.0 {
            return;
        }
        let shares = self.usage_at_end.iter().map(|(node, (cpu, _))| {
            (node, 100.0 * (cpu - self.processor_seconds_at_begin.get(node).copied().unwrap_or(0.0)) / span)
        });
        let shares: BTreeMap<&String, f64> = shares.collect();
        let memory: Vec<f64> = self.usage_at_end.values().map(|(_, kib)| kib / 1024.0).collect();
        m.insert("stations.count".into(), self.usage_at_end.len() as f64);
        m.insert("stations.cpu_percent".into(), shares.values().sum());
        m.insert("stations.memory_mib.mean".into(), memory.iter().sum::<f64>() / memory.len() as f64);
        m.insert("stations.memory_mib.max".into(), memory.iter().copied().fold(0.0, f64::max));
    }

    /// Adds metrics of emulated links in section `n`, which is `span` nanoseconds long. Section 0 is the
    /// whole run.
    fn add_link_metrics(&self, m: &mut BTreeMap<String, f64>, n: usize, span: u64) {
        let pair = match n {
            0 => (self.link_counters_at_borders.first(), self.link_counters_at_borders.last()),
            n => (self.link_counters_at_borders.get(n), self.link_counters_at_borders.get(n + 1)),
        };
        let (Some(before), Some(after)) = pair else { return };
        for ((name, before), (_, after)) in before.iter().zip(after) {
            let inside = *after - *before;
            m.extend(inside.named_values().map(|(what, value)| (format!("{name}.{what}"), value)));
            // A rate of one octet per nanosecond is 8000 Mbit/s.
            let rate = |header: u64| {
                let octets = inside.octets.saturating_sub(inside.delivered_frames * header);
                octets as f64 * 8000.0 / span.max(1) as f64
            };
            m.insert(format!("{name}.mbit_ip"), rate(ETHERNET_HEADER_LENGTH));
            m.insert(format!("{name}.mbit_inner"), rate(ETHERNET_HEADER_LENGTH + TUNNEL_HEADER_LENGTH));
        }
    }

    /// Returns the load of the channel against time: seconds, then mean and highest busy share of all radios
    /// in per cent.
    pub fn channel_load(&self, begin: u64, end: u64) -> Vec<(f64, f64, f64)> {
        let share = |pair: &[(u64, Vec<Counters>)]| {
            let [(from, before), (to, after)] = pair else { return None };
            let busy = channel_busy_shares(
                &after.iter().zip(before).map(|(a, b)| *a - *b).collect::<Vec<_>>(),
                to - from,
            );
            let mean = busy.iter().sum::<f64>() / busy.len().max(1) as f64;
            let middle = seconds_since(from / 2 + to / 2, begin);
            (*from >= begin && *to <= end).then(|| (middle, mean, busy.iter().copied().fold(0.0, f64::max)))
        };
        self.periodic_samples.windows(2).filter_map(share).collect()
    }
}

/// Returns the share of the time in which each radio finds the medium busy, in per cent.
fn channel_busy_shares(counters: &[Counters], span: u64) -> Vec<f64> {
    counters.iter().map(|c| 100.0 * c.busy_nanoseconds as f64 / span.max(1) as f64).collect()
}

fn add_medium_metrics(m: &mut BTreeMap<String, f64>, nodes: &[String], counters: &[Counters], span: u64) {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for (node, c) in nodes.iter().zip(counters) {
        for (name, value) in c.named_values() {
            *sums.entry(name).or_default() += value;
            if nodes.len() <= MAX_NODES_WITH_OWN_METRICS {
                m.insert(format!("medium.{node}.{name}"), value);
            }
        }
    }
    let get = |name: &str| sums.get(name).copied().unwrap_or(0.0);
    let in_reach = get("received") + get("collided") + get("half_duplex") + get("lost");
    if in_reach > 0.0 {
        m.insert("medium.received_percent".into(), 100.0 * get("received") / in_reach);
    }
    m.extend(sums.iter().map(|(name, sum)| (format!("medium.{name}"), *sum)));
    let busy = channel_busy_shares(counters, span);
    m.insert("medium.busy_percent.mean".into(), busy.iter().sum::<f64>() / busy.len().max(1) as f64);
    m.insert("medium.busy_percent.max".into(), busy.iter().copied().fold(0.0, f64::max));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_counters_are_differences_of_samples() {
        let at = |sent: u64, busy: u64| {
            vec![
                Counters { sent_frames: sent, busy_nanoseconds: busy, ..Counters::default() },
                Counters { received_frames: sent, ..Counters::default() },
            ]
        };
        let samples = Samples {
            samples_at_section_borders: vec![
                (0, at(10, 0)),
                (SECOND, at(30, SECOND / 2)),
                (3 * SECOND, at(35, SECOND)),
            ],
            periodic_samples: vec![(0, at(0, 0)), (SECOND, at(0, SECOND / 2)), (2 * SECOND, at(0, SECOND))],
            link_counters_at_borders: [1, 5, 6]
                .map(|n| {
                    let counted = way::Counters {
                        lost_frames: n,
                        delivered_frames: n,
                        octets: 1514 * n,
                        ..Default::default()
                    };
                    vec![("link.mr.w0".into(), counted)]
                })
                .into(),
            ..Samples::default()
        };
        let nodes = ["a".to_string(), "b".to_string()];
        let mut all = Metrics::new();
        let sections = crate::metrics::sections_of_run(0, 3 * SECOND, &[("x".into(), SECOND)]);
        samples.add_metrics(&mut all, &nodes, &sections);
        assert_eq!((all["run"]["medium.sent"], all["run"]["medium.b.received"]), (25.0, 25.0));
        assert_eq!((all["x"]["medium.a.sent"], all["x"]["medium.received_percent"]), (5.0, 100.0));
        assert_eq!((all["x"]["medium.busy_percent.max"], all["x"]["medium.busy_percent.mean"]), (25.0, 12.5));
        assert_eq!((all["run"]["link.mr.w0.lost"], all["x"]["link.mr.w0.lost"]), (5.0, 1.0));
        // The link carries one frame of 1500 octets in two seconds; 40 of the octets are the tunnel's header.
        let x = |what: &str| (all["x"][what] * 1e6).round();
        assert_eq!(all["x"]["link.mr.w0.octets"], 1514.0);
        assert_eq!((x("link.mr.w0.mbit_ip"), x("link.mr.w0.mbit_inner")), (6000.0, 5840.0));
        assert_eq!(samples.channel_load(0, 2 * SECOND), [(0.5, 25.0, 50.0), (1.5, 25.0, 50.0)]);
    }
}
