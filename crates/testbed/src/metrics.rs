//! Computes the metrics of a run, one flat set of numbers per section.
//!
//! A *section* reaches from an action to the next one; `run` is the whole timetable. Metric names are
//! dotted and begin with the name of the traffic, of the node, or with `capture`; `scenarios/README.md`
//! lists them.
//!
//! Without packets a metric has no value. Otherwise a flow that sent nothing would look good, without loss
//! and duplicates. An expectation about such a metric fails as "not measured".

mod geonet;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::clock::SECOND;
use crate::scenario::{DerivedMetric, WHOLE_RUN_SECTION};
use crate::station::{StationEvent, event_kind};
use crate::traffic::stats::{FlowStats, percentile};
use crate::traffic::{ProbeResults, TrafficResults};

/// Metrics by section and name.
pub type Metrics = BTreeMap<String, BTreeMap<String, f64>>;

/// A section of a run: its name, and its begin and end in nanoseconds.
pub type RunSection = (String, Range<u64>);

/// Computes the metrics of all traffic in all sections.
pub fn traffic_metrics(seen: &TrafficResults, sections: &[RunSection]) -> Metrics {
    let mut all = Metrics::new();
    for (section, window) in sections {
        let m = all.entry(section.clone()).or_default();
        let mut sums: BTreeMap<&str, FlowStats> = BTreeMap::new();
        for ProbeResults { name, series, nodes, flows } in &seen.probes {
            let stats = [flows[0].statistics_of(window), flows[1].statistics_of(window)];
            let mut both = FlowStats::default();
            for (d, s) in stats.iter().enumerate() {
                add_flow_metrics(m, &format!("{name}.{}-{}", nodes[d], nodes[1 - d]), s);
                both.add(s);
            }
            add_flow_metrics(m, name, &both);
            if let Some(series) = series {
                sums.entry(series).or_default().add(&both);
            }
        }
        for (name, sum) in sums {
            add_flow_metrics(m, name, &sum);
        }
        for (name, _, series) in &seen.pings {
            let inside: Vec<Option<f64>> =
                series.requests.iter().filter(|(t, _)| window.contains(t)).map(|(_, rtt)| *rtt).collect();
            let mut rtts: Vec<f64> = inside.iter().copied().flatten().collect();
            rtts.sort_by(f64::total_cmp);
            m.insert(format!("{name}.sent"), inside.len() as f64);
            if !inside.is_empty() {
                m.insert(format!("{name}.lost"), (inside.len() - rtts.len()) as f64);
            }
            add_percentiles(m, &format!("{name}.ms"), &rtts);
        }
        for pings in &seen.gnpings {
            geonet::add_ping_metrics(m, pings, window);
        }
        for broadcasts in &seen.broadcasts {
            geonet::add_broadcast_metrics(m, broadcasts, window);
        }
        for (name, arrivals) in &seen.strangers {
            let count = arrivals.iter().filter(|at| window.contains(at)).count();
            if m.get(&format!("{name}.sent")).is_some_and(|sent| *sent > 0.0) {
                m.insert(format!("{name}.strangers"), count as f64);
            }
        }
        for (name, _, t, started) in &seen.transfers {
            if let Some((up, down)) = t.mean_rates(*started, window) {
                m.insert(format!("{name}.mbit_up"), up);
                m.insert(format!("{name}.mbit_down"), down);
            }
        }
        if section == WHOLE_RUN_SECTION {
            for (name, outcome) in &seen.replays {
                m.insert(format!("{name}.heard"), outcome.heard_frames as f64);
                m.insert(format!("{name}.sent"), outcome.sent_frames as f64);
            }
            if let Some(maps) = &seen.map_object_counts {
                m.insert("maps.stations".into(), maps.objects_of_stations as f64);
                if maps.objects_of_stations > 0 {
                    m.insert("maps.outsiders".into(), maps.objects_of_outsiders as f64);
                }
            }
            for (name, _, t, _) in &seen.transfers {
                m.insert(format!("{name}.bytes"), (t.octets_up + t.octets_down) as f64);
                m.insert(format!("{name}.bytes_up"), t.octets_up as f64);
                m.insert(format!("{name}.bytes_down"), t.octets_down as f64);
                if t.octets_up + t.octets_down > 0 {
                    m.insert(format!("{name}.retransmits"), t.retransmits as f64);
                }
                m.extend(t.longest_stall().map(|stall| (format!("{name}.stall_s"), stall)));
                m.insert(format!("{name}.unbroken"), f64::from(u8::from(t.has_no_interruption())));
            }
        }
    }
    all
}

fn add_flow_metrics(m: &mut BTreeMap<String, f64>, name: &str, s: &FlowStats) {
    m.insert(format!("{name}.sent"), s.sent_packets as f64);
    if s.sent_packets > 0 {
        m.insert(format!("{name}.lost"), s.lost_packets as f64);
        m.insert(
            format!("{name}.delivered_percent"),
            100.0 * (s.sent_packets - s.lost_packets) as f64 / s.sent_packets as f64,
        );
        m.insert(format!("{name}.outage_ms"), s.longest_outage as f64 / 1e6);
    }
    if !s.sorted_delays.is_empty() {
        m.insert(format!("{name}.duplicated"), s.duplicated_packets as f64);
        m.insert(format!("{name}.reordered"), s.reordered_packets as f64);
        m.insert(format!("{name}.reordered_by_ms"), s.longest_reordering_time as f64 / 1e6);
    }
    let micros: Vec<f64> = s.sorted_delays.iter().map(|d| *d as f64 / 1e3).collect();
    add_percentiles(m, &format!("{name}.delay_us"), &micros);
}

/// Adds the percentiles of sorted values.
pub fn add_percentiles(m: &mut BTreeMap<String, f64>, name: &str, sorted: &[f64]) {
    for (label, percent) in [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("max", 100.0)] {
        if let Some(value) = percentile(sorted, percent) {
            m.insert(format!("{name}.{label}"), value);
        }
    }
}

/// Adds the metrics from the stations' events.
pub fn add_event_metrics(all: &mut Metrics, events: &[StationEvent], sections: &[RunSection]) {
    let new_registration = |e: &StationEvent| event_kind(&e.2) == "registered" && e.2["refresh"] != true;
    let latency = |e: &StationEvent| e.2["latency_us"].as_f64().map(|us| us / 1e3);
    for (_, node, _) in events {
        let own: Vec<&StationEvent> = events.iter().filter(|e| e.1 == *node).collect();
        for (section, window) in sections {
            let m = all.entry(section.clone()).or_default();
            let inside: Vec<&&StationEvent> = own.iter().filter(|e| window.contains(&e.0)).collect();
            let count = |what: &str| inside.iter().filter(|e| event_kind(&e.2) == what).count() as f64;
            m.insert(format!("{node}.handovers"), count("handover"));
            let refreshes =
                inside.iter().filter(|e| event_kind(&e.2) == "registered" && e.2["refresh"] == true);
            m.insert(format!("{node}.refreshes"), refreshes.count() as f64);
            let slowest =
                inside.iter().filter(|e| new_registration(e)).filter_map(|e| latency(e)).reduce(f64::max);
            if let Some(ms) = slowest {
                m.insert(format!("{node}.registration_ms"), ms);
            }
            add_uplink_metrics(m, node, &inside);
        }
        if let Some(ms) = own.iter().find(|e| new_registration(e)).and_then(|e| latency(e)) {
            all.entry(WHOLE_RUN_SECTION.into())
                .or_default()
                .insert(format!("{node}.first_registration_ms"), ms);
        }
    }
}

/// Adds metrics of each uplink from the events of a section: the number of moves to it, and how long new
/// registrations over it took.
fn add_uplink_metrics(m: &mut BTreeMap<String, f64>, node: &str, events: &[&&StationEvent]) {
    let mut latencies: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut moves: BTreeMap<&str, f64> = BTreeMap::new();
    for (_, _, event) in events {
        if let ("handover", Some(uplink)) = (event_kind(event), event["to"].as_str()) {
            *moves.entry(uplink).or_default() += 1.0;
        }
        if let ("registered", Some(uplink), Some(us)) =
            (event_kind(event), event["uplink"].as_str(), event["latency_us"].as_f64())
            && event["refresh"] != true
        {
            latencies.entry(uplink).or_default().push(us / 1e3);
        }
    }
    m.extend(moves.iter().map(|(uplink, count)| (format!("{node}.handovers.{uplink}"), *count)));
    for (uplink, mut all) in latencies {
        all.sort_by(f64::total_cmp);
        m.insert(format!("{node}.registrations.{uplink}"), all.len() as f64);
        add_percentiles(m, &format!("{node}.registration_ms.{uplink}"), &all);
        m.insert(format!("{node}.registration_ms.{uplink}.mean"), all.iter().sum::<f64>() / all.len() as f64);
    }
}

/// Adds for each ping how many requests were lost per move to another uplink, on average. Only requests
/// within half a second of a move count.
pub fn add_handover_metrics(
    all: &mut Metrics,
    seen: &TrafficResults,
    events: &[StationEvent],
    run: &Range<u64>,
) {
    let m = all.entry(WHOLE_RUN_SECTION.into()).or_default();
    let mut moves: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (at, _, event) in events.iter().filter(|e| event_kind(&e.2) == "handover" && run.contains(&e.0)) {
        if let Some(to) = event["to"].as_str() {
            moves.entry(to).or_default().push(*at);
        }
    }
    for (name, _, series) in &seen.pings {
        for (uplink, times) in &moves {
            let near = |sent: u64| times.iter().any(|at| sent.abs_diff(*at) < SECOND / 2);
            let lost = series.requests.iter().filter(|(sent, rtt)| rtt.is_none() && near(*sent)).count();
            m.insert(format!("{name}.lost_per_move.{uplink}"), lost as f64 / times.len() as f64);
        }
    }
}

/// Returns the metric of this name in this section; `None` if it has no value. With the name
/// `SECTION/METRIC`, returns the metric of that section.
pub fn find_metric(all: &Metrics, section: &str, name: &str) -> Option<f64> {
    let (section, name) = name.split_once('/').unwrap_or((section, name));
    all.get(section)?.get(name).copied()
}

/// Computes the derived metrics of the scenario, in the order of the scenario, and adds them.
pub fn add_derived_metrics(all: &mut Metrics, derived: &[DerivedMetric]) {
    let sections: Vec<String> = all.keys().cloned().collect();
    for d in derived {
        for section in &sections {
            let get = |name: &String| find_metric(all, section, name);
            let value = match (get(&d.of), &d.plus, &d.minus, &d.over) {
                (Some(of), Some(other), None, None) => get(other).map(|other| of + other),
                (Some(of), None, Some(other), None) => get(other).map(|other| of - other),
                (Some(of), None, None, Some(other)) => {
                    get(other).filter(|other| *other != 0.0).map(|other| of / other)
                }
                _ => None,
            };
            if let (Some(value), Some(m)) = (value, all.get_mut(section)) {
                m.insert(d.name.clone(), value);
            }
        }
    }
}

/// Returns the sections of a run: first the whole run, then one section for each action. Such a section lasts
/// until the next action, or until the end.
pub fn sections_of_run(begin: u64, end: u64, actions: &[(String, u64)]) -> Vec<RunSection> {
    let mut sections = vec![(WHOLE_RUN_SECTION.to_string(), begin..end)];
    for (a, (name, at)) in actions.iter().enumerate() {
        let until = actions.get(a + 1).map_or(end, |next| next.1);
        sections.push((name.clone(), *at..until));
    }
    sections
}

/// Converts a time to seconds from the begin of the timetable.
pub fn seconds_since(at: u64, begin: u64) -> f64 {
    (at as f64 - begin as f64) / SECOND as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::geonet::{BroadcastResults, GnPings, MapObjectCounts};
    use crate::traffic::ping::PingSeries;
    use crate::traffic::stats::PacketFlow;

    #[test]
    fn metrics_section_ends_at_the_next_action() {
        let s = sections_of_run(10, 100, &[("a".into(), 20), ("b".into(), 60)]);
        assert_eq!(s, [("run".into(), 10..100), ("a".into(), 20..60), ("b".into(), 60..100)]);
    }

    #[test]
    fn metrics_of_both_directions_are_summed() {
        let there = PacketFlow { send_times: vec![0, 10, 20], received_packets: vec![(0, 5), (2, 25)] };
        let back = PacketFlow {
            send_times: vec![0, 10, 20],
            received_packets: vec![(0, 7), (1, 17), (1, 18), (2, 27)],
        };
        let seen = TrafficResults {
            probes: vec![ProbeResults {
                name: "p".into(),
                nodes: ["a".into(), "b".into()],
                flows: [there, back],
                ..ProbeResults::default()
            }],
            pings: vec![(
                "r".into(),
                String::new(),
                PingSeries { requests: vec![(1, Some(0.5)), (2, None)] },
            )],
            ..TrafficResults::default()
        };
        let m = traffic_metrics(&seen, &sections_of_run(0, 100, &[]));
        let run = &m["run"];
        assert_eq!((run["p.sent"], run["p.lost"], run["p.duplicated"]), (6.0, 1.0, 1.0));
        assert_eq!(run["p.b-a.delivered_percent"], 100.0);
        assert_eq!((run["p.a-b.lost"], run["p.b-a.lost"]), (1.0, 0.0));
        assert_eq!(run["p.outage_ms"], 20.0 / 1e6);
        assert_eq!((run["r.sent"], run["r.lost"], run["r.ms.p50"]), (2.0, 1.0, 0.5));
    }

    #[test]
    fn empty_flow_has_no_metrics() {
        let silent = |received: &[(u64, u64)], sent: &[u64]| ProbeResults {
            name: "p".into(),
            nodes: ["a".into(), "b".into()],
            flows: [
                PacketFlow { send_times: sent.into(), received_packets: received.into() },
                PacketFlow::default(),
            ],
            ..ProbeResults::default()
        };
        let of = |probe: ProbeResults, requests: Vec<(u64, Option<f64>)>| {
            let broadcasts = BroadcastResults { name: "g".into(), ..BroadcastResults::default() };
            let transfer = ("t".into(), String::new(), crate::traffic::tcp::TransferResult::default(), 0);
            let seen = TrafficResults {
                probes: vec![probe],
                pings: vec![("r".into(), String::new(), PingSeries { requests })],
                gnpings: vec![GnPings { name: "n".into(), ..GnPings::default() }],
                broadcasts: vec![broadcasts],
                strangers: vec![("g".into(), Vec::new())],
                transfers: vec![transfer],
                map_object_counts: Some(MapObjectCounts::default()),
                ..TrafficResults::default()
            };
            traffic_metrics(&seen, &sections_of_run(0, 100, &[])).remove(WHOLE_RUN_SECTION).expect("the run")
        };
        let nothing_sent = of(silent(&[], &[]), Vec::new());
        let names: Vec<&str> = nothing_sent.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "g.sent",
                "maps.stations",
                "n.sent",
                "p.a-b.sent",
                "p.b-a.sent",
                "p.sent",
                "r.sent",
                "t.bytes",
                "t.bytes_down",
                "t.bytes_up",
                "t.unbroken"
            ]
        );
        assert!(nothing_sent.values().all(|value| *value == 0.0), "{nothing_sent:?}");
        let nothing_arrived = of(silent(&[], &[1, 2]), vec![(1, None), (2, None)]);
        assert_eq!((nothing_arrived["p.lost"], nothing_arrived["p.delivered_percent"]), (2.0, 0.0));
        assert_eq!((nothing_arrived["r.sent"], nothing_arrived["r.lost"]), (2.0, 2.0));
        for name in ["p.duplicated", "p.reordered", "p.reordered_by_ms", "p.delay_us.p50", "p.b-a.lost"] {
            assert!(!nothing_arrived.contains_key(name), "{name}");
        }
    }

    #[test]
    fn probes_of_a_series_are_summed() {
        let probe = |n: u64| ProbeResults {
            name: format!("p{n}"),
            series: Some("p{n}".into()),
            nodes: [format!("a{n}"), "b".into()],
            flows: [
                PacketFlow { send_times: vec![0, 10, 20], received_packets: vec![(0, 5 + n), (2, 25)] },
                PacketFlow { send_times: vec![0, 10], received_packets: vec![(0, 7), (1, 17), (1, 18)] },
            ],
        };
        let seen = TrafficResults { probes: vec![probe(1), probe(2)], ..TrafficResults::default() };
        let m = traffic_metrics(&seen, &sections_of_run(0, 100, &[]));
        let run = &m["run"];
        assert_eq!((run["p1.sent"], run["p1.lost"], run["p2.a2-b.lost"]), (5.0, 1.0, 1.0));
        assert_eq!((run["p{n}.sent"], run["p{n}.lost"], run["p{n}.duplicated"]), (10.0, 2.0, 2.0));
        assert_eq!(run["p{n}.delay_us.max"], 7.0 / 1e3);
    }

    #[test]
    fn events_are_counted_in_their_section() {
        let registered = |refresh: bool| {
            serde_json::json!({"event": "registered", "latency_us": 1500, "refre\
            sh": refresh})
        };
        let events = [
            (5, "mr".to_string(), registered(false)),
            (30, "mr".to_string(), registered(true)),
            (40, "mr".to_string(), serde_json::json!({"event": "handover", "from": "w0", "to": "w1"})),
        ];
        let mut m = Metrics::new();
        add_event_metrics(&mut m, &events, &sections_of_run(10, 100, &[("a".into(), 35)]));
        assert_eq!((m["run"]["mr.refreshes"], m["run"]["mr.handovers"]), (1.0, 1.0));
        assert_eq!((m["a"]["mr.refreshes"], m["a"]["mr.handovers"]), (0.0, 1.0));
        assert_eq!(m["run"]["mr.first_registration_ms"], 1.5);
        assert!(!m["run"].contains_key("mr.registration_ms"));
    }

    #[test]
    fn moves_and_registrations_are_counted_by_uplink() {
        let at = |ms: u64| SECOND + ms * 1_000_000;
        let registered = |ms: u64, uplink: &str, us: u64, refresh: bool| {
            let event = serde_json::json!({"event": "registered", "uplink": uplink, "latency_us": us,
                                           "refresh": refresh});
            (at(ms), "mr".to_string(), event)
        };
        let moved = |ms: u64, to: &str| {
            (at(ms), "mr".to_string(), serde_json::json!({"event": "handover", "to": to}))
        };
        let events = [
            registered(0, "w0", 3000, false),
            moved(1000, "w1"),
            registered(1000, "w1", 47_000, false),
            moved(3000, "w0"),
            registered(3000, "w0", 5000, false),
            registered(4000, "w0", 99_000, true),
            moved(5000, "w1"),
        ];
        let mut m = Metrics::new();
        let sections = sections_of_run(at(0), at(6000), &[]);
        add_event_metrics(&mut m, &events, &sections);
        let requests = vec![(at(400), None), (at(600), None), (at(1200), Some(1.0)), (at(5100), None)];
        let seen = TrafficResults {
            pings: vec![("p".into(), String::new(), PingSeries { requests })],
            ..TrafficResults::default()
        };
        add_handover_metrics(&mut m, &seen, &events, &sections[0].1);
        let run = &m["run"];
        assert_eq!((run["mr.handovers.w1"], run["mr.handovers.w0"]), (2.0, 1.0));
        assert_eq!((run["mr.registration_ms.w0.mean"], run["mr.registration_ms.w0.max"]), (4.0, 5.0));
        assert_eq!(run["mr.registration_ms.w1.p50"], 47.0);
        assert_eq!((run["p.lost_per_move.w1"], run["p.lost_per_move.w0"]), (1.0, 0.0));
    }

    #[test]
    fn derived_metrics_are_computed() {
        let mut m = Metrics::new();
        m.entry("run".into()).or_default().extend([("a".to_string(), 3.0), ("b".to_string(), 1.0)]);
        m.entry("x".into()).or_default().extend([("a".to_string(), 8.0), ("b".to_string(), 0.0)]);
        let made = |name: &str, of: &str| DerivedMetric {
            name: name.into(),
            of: of.into(),
            ..DerivedMetric::default()
        };
        let other = |name: &str| Some(name.to_string());
        let derived = [
            DerivedMetric { minus: other("b"), ..made("c", "a") },
            DerivedMetric { plus: other("c"), ..made("d", "a") },
            DerivedMetric { over: other("b"), ..made("e", "a") },
            DerivedMetric { over: other("run/d"), ..made("f", "a") },
        ];
        add_derived_metrics(&mut m, &derived);
        assert_eq!((m["run"]["c"], m["run"]["d"], m["run"]["e"]), (2.0, 5.0, 3.0));
        assert_eq!((m["x"]["c"], m["x"]["d"], m["x"]["f"]), (8.0, 16.0, 1.6));
        assert!(!m["x"].contains_key("e"), "nothing is divided by zero");
    }
}
