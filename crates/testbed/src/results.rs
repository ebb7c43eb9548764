//! Reads and writes `results.json`: all data of a run, in a stable format.
//!
//! The lab makes the report from this file alone. `scenarios/README.md` describes the format. New fields may
//! appear under the same `schema_version`; if the meaning of a field changes, the number rises. Times `..._s`
//! count from the begin of the timetable; earlier events have negative times.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::{MILLISECOND, SECOND};
use crate::expect::{ExpectationOutcome, JudgedExpectation};
use crate::machine::MachineDescription;
use crate::metrics::{Metrics, seconds_since};
use crate::scenario::{LinkEnd, Node, Scenario};
use crate::station::{StationEvent, event_kind};
use crate::traffic::geonet::BroadcastResult;
use crate::traffic::stats::{PacketFlow, percentile};
use crate::traffic::{ProbeResults, TrafficResults};

/// Version of the format of `results.json`.
pub const SCHEMA_VERSION: u32 = 1;

/// All data of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Results {
    /// Version of this format.
    pub schema_version: u32,
    /// Name of the scenario.
    pub scenario: String,
    /// Title of the scenario.
    pub title: String,
    /// Description of the scenario.
    pub about: String,
    /// How the lab ran: `as root` or `without root, in a user namespace`.
    pub mode: String,
    /// True for a run with the shortened timetable.
    pub quick: bool,
    /// Begin of the timetable, as text in UTC.
    pub time: String,
    /// Length of the timetable in seconds.
    pub duration_s: f64,
    /// The machine of the run.
    pub machine: MachineDescription,
    /// True if no expectation failed.
    pub passed: bool,
    /// Metrics by section and name.
    pub metrics: Metrics,
    /// Expectations with their measured values.
    pub expectations: Vec<JudgedExpectation>,
    /// The numbers at the head of the report.
    pub headline: Vec<HeadlineValue>,
    /// Actions that the lab executed, with their times.
    pub actions: Vec<PerformedAction>,
    /// Events of the stations.
    pub events: Vec<RecordedEvent>,
    /// The active uplink of each mobile router against time.
    pub active: Vec<ActiveUplinkPeriod>,
    /// Measured values as curves over the time of the run.
    pub series: Series,
    /// Nodes and links of the testbed, for its picture.
    pub topology: Topology,
    /// Map of the radios' positions and movements; `None` without radios.
    #[serde(default)]
    pub map: Option<Map>,
    /// Warnings for the reader of the report, for example about packets that a station refused to send.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Result of each flow in the whole run.
    #[serde(default)]
    pub flows: Vec<FlowLine>,
    /// Reason why the run has no verdict; `None` if it has one.
    #[serde(default)]
    pub no_verdict: Option<String>,
}

/// A flow and its most important figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowLine {
    /// Name of the traffic.
    pub name: String,
    /// Kind of the flow: `ping`, `probe` and so on.
    pub kind: String,
    /// Figures of the flow; each has name, value and unit.
    pub figures: Vec<(String, Option<f64>, String)>,
}

/// A number at the head of the report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HeadlineValue {
    /// Label of the number.
    pub label: String,
    /// Measured value.
    pub value: Option<f64>,
    /// Unit of the number.
    pub unit: String,
    /// Values of other sources, for comparison.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub beside: String,
}

/// An executed action.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PerformedAction {
    /// Name of the action.
    pub name: String,
    /// Description of the action.
    pub label: String,
    /// Begin of the action, in seconds from the begin of the timetable.
    pub at_s: f64,
}

/// An event of a station.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecordedEvent {
    /// Time of the event, in seconds from the begin of the timetable.
    pub at_s: f64,
    /// Node of the station.
    pub node: String,
    /// Event as the station printed it, in JSON.
    pub event: serde_json::Value,
}

/// A period in which one uplink carried the traffic.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ActiveUplinkPeriod {
    /// Node of the mobile router.
    pub node: String,
    /// Interface of the uplink; `null` without an active uplink.
    pub uplink: Option<String>,
    /// Begin of the period, in seconds from the begin of the timetable.
    pub from_s: f64,
    /// End of the period, in seconds from the begin of the timetable.
    pub to_s: f64,
}

/// A broadcast: seconds, per cent of the nodes inside the circle that received it, median and highest
/// milliseconds until their reception.
pub type BroadcastPoint = (f64, f64, Option<f64>, Option<f64>);

/// Measured values as curves over the time of the run, in seconds from the begin of the timetable.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Series {
    /// Round-trip times: time of the request, milliseconds or `null` if it was lost.
    pub rtt: Vec<NamedSeries<(f64, Option<f64>)>>,
    /// One-way delay in steps of 100 ms: time, median and highest in milliseconds.
    pub delay: Vec<NamedSeries<(f64, f64, f64)>>,
    /// Sending times of the lost probe packets.
    pub lost: Vec<NamedSeries<f64>>,
    /// Throughput: time, Mbit/s from client to server, Mbit/s back.
    pub throughput: Vec<NamedSeries<(f64, f64, f64)>>,
    /// Broadcasts: time, per cent of the nodes inside the circle that received it, median and highest
    /// milliseconds until their reception; `null` if no node received it.
    #[serde(default)]
    pub broadcasts: Vec<NamedSeries<BroadcastPoint>>,
    /// Load of the radio channel: time, mean and highest share of the time in which a radio finds it busy,
    /// per cent.
    #[serde(default)]
    pub load: Vec<(f64, f64, f64)>,
}

/// A curve with the name of its traffic.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NamedSeries<T> {
    /// Name of the traffic.
    pub name: String,
    /// Label for the legend.
    pub label: String,
    /// Points of the series.
    pub points: Vec<T>,
}

/// Nodes and links of the testbed, for its picture.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Topology {
    /// Nodes.
    pub nodes: Vec<TopologyNode>,
    /// Links.
    pub links: Vec<TopologyLink>,
}

/// A node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TopologyNode {
    /// Name of the node.
    pub name: String,
    /// Role of the node.
    pub role: String,
    /// Column in the picture.
    pub x: f64,
    /// Row in the picture.
    pub y: f64,
    /// Whether carnet runs in this node.
    pub carnet: bool,
    /// Addresses to show, by interface.
    pub addresses: BTreeMap<String, Vec<String>>,
}

/// A link.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TopologyLink {
    /// Node and interface of each end.
    pub ends: Vec<(String, String)>,
    /// Label of the link.
    pub label: String,
    /// Whether the link is a bridge.
    pub shared: bool,
}

/// Places of the radios, in metres to the east and north of the origin.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Map {
    /// Distance at which a frame is readable without shadowing, in metres.
    pub range_m: f64,
    /// Nodes that have a radio.
    pub nodes: Vec<MapNode>,
    /// Destination circle of each flow of broadcasts. If the circle moves, it is the circle of the first
    /// packet.
    pub circles: Vec<MapCircle>,
    /// Nodes that ping, or send packets to circles.
    pub senders: Vec<String>,
}

/// A node on the map.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MapNode {
    /// Name of the node.
    pub name: String,
    /// Role of the node.
    pub role: String,
    /// Places of the node while the timetable ran, in metres to the east and north of the origin.
    pub way: Vec<(f64, f64)>,
}

/// A circle on the map.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MapCircle {
    /// Name of the traffic.
    pub name: String,
    /// Centre of the circle in metres.
    pub center: (f64, f64),
    /// Radius of the circle in metres.
    pub radius: f64,
}

/// Returns the flows of a scenario, with their figures from the metrics of the whole run. A series of flows
/// has one line with the sums of its flows.
pub fn flow_lines(scenario: &Scenario, metrics: Option<&BTreeMap<String, f64>>) -> Vec<FlowLine> {
    let line = |name: &str, kind: &str, figures: &[(&str, &str, &str)]| {
        let get = |metric: &str| metrics?.get(&format!("{name}.{metric}")).copied();
        let figure =
            |(what, metric, unit): &(&str, &str, &str)| (what.to_string(), get(metric), unit.to_string());
        FlowLine { name: name.into(), kind: kind.into(), figures: figures.iter().map(figure).collect() }
    };
    let packets = |last| [("sent", "sent", "packets"), ("lost", "lost", "packets"), last];
    let t = &scenario.traffic;
    let mut lines = Vec::new();
    for probe in &t.probe {
        let name = probe.series.as_ref().unwrap_or(&probe.name);
        lines.push(line(name, "probe", &packets(("delay, median", "delay_us.p50", "us"))));
    }
    let round_trip = packets(("round trip, median", "ms.p50", "ms"));
    lines.extend(t.ping.iter().map(|ping| line(&ping.name, "ping", &round_trip)));
    lines.extend(t.gnping.iter().map(|ping| line(&ping.name, "gnping", &round_trip)));
    let rates = [("up", "mbit_up", "Mbit/s"), ("down", "mbit_down", "Mbit/s")];
    lines.extend(t.tcp.iter().map(|tcp| line(&tcp.name, "tcp", &rates)));
    let to_many = [
        ("sent", "sent", "packets"),
        ("delivered", "delivered_percent", "%"),
        ("until delivered, median", "ms.p50", "ms"),
    ];
    lines.extend(t.gnbroadcast.iter().map(|b| line(&b.name, "gnbroadcast", &to_many)));
    lines.extend(t.multicast.iter().map(|m| line(&m.name, "multicast", &to_many)));
    lines.dedup();
    lines
}

/// Number of times in the run at which the map samples a movement.
const TRACK_SAMPLE_COUNT: u64 = 60;

/// Returns the map of a scenario; `None` if it has no radio medium.
pub fn map_of_run(scenario: &Scenario, seen: &TrafficResults, begin: u64, end: u64) -> Option<Map> {
    let medium = scenario.medium.as_ref()?;
    let nodes = scenario.tracks.iter().map(|(name, track)| {
        let moments = (0..=TRACK_SAMPLE_COUNT).map(|n| begin + (end - begin) / TRACK_SAMPLE_COUNT * n);
        let mut way: Vec<(f64, f64)> = moments
            .filter_map(|at| track.position_at(seconds_since(at, scenario.epoch)))
            .map(|p| (p.x, p.y))
            .collect();
        way.dedup();
        let role = scenario.nodes.get(name).map_or(String::new(), |n| n.role.clone());
        MapNode { name: name.clone(), role, way }
    });
    let circles = seen.broadcasts.iter().filter_map(|b| {
        let center = b.broadcasts.iter().find_map(|flood| flood.center)?;
        Some(MapCircle { name: b.name.clone(), center: (center.x, center.y), radius: b.radius })
    });
    let pings = scenario.traffic.gnping.iter().map(|p| &p.from);
    let senders = scenario.traffic.gnbroadcast.iter().map(|b| &b.from).chain(pings);
    Some(Map {
        range_m: medium.range.0,
        nodes: nodes.collect(),
        circles: circles.collect(),
        senders: senders.map(|name| name.get_ref().clone()).collect(),
    })
}

/// Returns name, legend and flows of each curve for probes. A probe has one curve for each direction. All
/// probes of a series together have one curve for each direction.
fn flows_of_probe_lines(seen: &TrafficResults) -> Vec<(String, String, Vec<&PacketFlow>)> {
    let mut lines: Vec<(String, String, Vec<&PacketFlow>)> = Vec::new();
    for ProbeResults { name, series, nodes, flows } in &seen.probes {
        for (d, flow) in flows.iter().enumerate() {
            let (name, label) = match series {
                Some(series) => (series, format!("{series}, {}", ["up", "down"][d])),
                None => (name, format!("{} to {}", nodes[d], nodes[1 - d])),
            };
            match lines.iter_mut().find(|line| line.0 == *name && line.1 == label) {
                Some(line) => line.2.push(flow),
                None => lines.push((name.clone(), label, vec![flow])),
            }
        }
    }
    lines
}

/// Returns the values of all traffic against time.
pub fn series_of_run(seen: &TrafficResults, begin: u64, end: u64) -> Series {
    let mut all = Series::default();
    let inside = |t: u64| (begin..end).contains(&t);
    for (name, label, s) in &seen.pings {
        let points = s
            .requests
            .iter()
            .filter(|r| inside(r.0))
            .map(|(t, rtt)| (seconds_since(*t, begin), *rtt))
            .collect();
        all.rtt.push(NamedSeries { name: name.clone(), label: label.clone(), points });
    }
    for pings in &seen.gnpings {
        let first = |answers: &[(f64, u64)]| answers.iter().map(|a| a.0).reduce(f64::min);
        let points = pings
            .requests
            .iter()
            .filter(|r| inside(r.0))
            .map(|r| (seconds_since(r.0, begin), first(&r.1)))
            .collect();
        all.rtt.push(NamedSeries { name: pings.name.clone(), label: pings.label.clone(), points });
    }
    for b in &seen.broadcasts {
        let point = |f: &BroadcastResult| {
            let mut delays = f.delays_ms.clone();
            delays.sort_by(f64::total_cmp);
            let share = 100.0 * f.received_inside as f64 / f.receivers_inside.max(1) as f64;
            (seconds_since(f.sent_at, begin), share, percentile(&delays, 50.0), percentile(&delays, 100.0))
        };
        // Leave out a packet without nodes in the circle, unless the station refused to send it.
        let judged =
            b.broadcasts.iter().filter(|f| inside(f.sent_at) && (f.receivers_inside > 0 || f.is_refused));
        let points = judged.map(point).collect();
        all.broadcasts.push(NamedSeries { name: b.name.clone(), label: b.label.clone(), points });
    }
    for (name, label, flows) in flows_of_probe_lines(seen) {
        let mut steps: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut lost = Vec::new();
        let packets =
            flows.iter().flat_map(|flow| flow.send_times.iter().copied().zip(flow.first_arrivals()));
        for (sent, arrival) in packets.filter(|(t, _)| inside(*t)) {
            match arrival {
                Some(at) => steps
                    .entry((sent - begin) / (100 * MILLISECOND))
                    .or_default()
                    .push(at.saturating_sub(sent)),
                None => lost.push(seconds_since(sent, begin)),
            }
        }
        let points = steps
            .into_iter()
            .filter_map(|(step, mut delays)| {
                delays.sort_unstable();
                let ms = |p| percentile(&delays, p).map(|d| d as f64 / 1e6);
                Some((step as f64 / 10.0 + 0.05, ms(50.0)?, ms(100.0)?))
            })
            .collect();
        all.delay.push(NamedSeries { name: name.clone(), label: label.clone(), points });
        all.lost.push(NamedSeries { name, label, points: lost });
    }
    for (name, label, t, started) in &seen.transfers {
        let points = t
            .interval_rates
            .iter()
            .map(|(from, to, up, down)| {
                let middle = started + ((from + to) / 2.0 * SECOND as f64) as u64;
                (seconds_since(middle, begin), up / 1e6, down / 1e6)
            })
            .filter(|p| p.0 >= 0.0 && p.0 <= seconds_since(end, begin))
            .collect();
        all.throughput.push(NamedSeries { name: name.clone(), label: label.clone(), points });
    }
    all
}

/// Returns which uplink was active in each period, from the output of `show uplinks` before the timetable and
/// from later handover events.
pub fn active_uplink_periods(
    first: &BTreeMap<String, Option<String>>,
    events: &[StationEvent],
    begin: u64,
    end: u64,
) -> Vec<ActiveUplinkPeriod> {
    let mut all = Vec::new();
    for (node, uplink) in first {
        let mut current = uplink.clone();
        let mut since = begin;
        let mut close = |uplink: Option<String>, from: u64, to: u64| {
            if to > from {
                let (from_s, to_s) = (seconds_since(from, begin), seconds_since(to, begin));
                all.push(ActiveUplinkPeriod { node: node.clone(), uplink, from_s, to_s });
            }
        };
        let moves = events.iter().filter(|e| e.1 == *node && event_kind(&e.2) == "handover");
        for (at, _, event) in moves.filter(|e| (begin..end).contains(&e.0)) {
            let to = event["to"].as_str().map(str::to_string);
            if to != current {
                close(current, since, *at);
                (current, since) = (to, *at);
            }
        }
        close(current, since, end);
    }
    all
}

/// Returns the picture of a scenario. Nodes without a position are in a row. The picture leaves out nodes
/// that have only a radio, because they are on the map. It shows only the first node of a series.
pub fn topology_of(scenario: &Scenario, autoconf: &BTreeMap<String, (String, String)>) -> Topology {
    let linked =
        |name: &String| scenario.links.iter().flat_map(|l| &l.ends).any(|e| e.get_ref().node == *name);
    let first = |node: &Node| node.series.is_none_or(|number| number == node.first);
    let shown = |name: &String, node: &Node| first(node) && (node.radio.is_none() || linked(name));
    let is_shown = |end: &LinkEnd| scenario.nodes.get(&end.node).is_some_and(|node| shown(&end.node, node));
    let shown = scenario.nodes.iter().filter(|(name, node)| shown(name, node));
    let nodes = shown.enumerate().map(|(n, (name, node))| {
        let (x, y) = node.position.unwrap_or((n as f64, 0.0));
        let mut addresses: BTreeMap<String, Vec<String>> =
            node.addresses.iter().map(|(i, a)| (i.get_ref().clone(), a.clone())).collect();
        if let Some((interface, address)) = autoconf.get(name) {
            addresses.entry(interface.clone()).or_default().push(address.clone());
        }
        TopologyNode {
            name: name.clone(),
            role: node.role.clone(),
            x,
            y,
            carnet: node.carnet.is_some(),
            addresses,
        }
    });
    let links = scenario.links.iter().map(|l| {
        let ends = l.ends.iter().map(|end| end.get_ref()).filter(|end| is_shown(end));
        TopologyLink {
            ends: ends.map(|end| (end.node.clone(), end.interface.clone())).collect(),
            label: l.label.clone(),
            shared: l.bridge.is_some(),
        }
    });
    let links = links.filter(|link| link.ends.len() > 1);
    Topology { nodes: nodes.collect(), links: links.collect() }
}

impl Results {
    /// Returns whether the scenario has expectations and the lab has judged them.
    pub fn has_verdict(&self) -> bool {
        self.expectations.iter().any(|e| e.outcome != ExpectationOutcome::Skipped)
    }

    /// Returns true if no expectation failed.
    pub fn no_expectation_failed(expectations: &[JudgedExpectation]) -> bool {
        expectations.iter().all(|e| e.outcome != ExpectationOutcome::Fail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_uplinks_follow_the_handovers() {
        let handover = |at: u64, to: Option<&str>| {
            (at * SECOND, "mr".to_string(), serde_json::json!({"event": "handover", "to": to}))
        };
        let events =
            [handover(0, Some("w9")), handover(12, Some("w1")), handover(15, None), handover(16, Some("w0"))];
        let first = BTreeMap::from([("mr".to_string(), Some("w0".to_string()))]);
        let all = active_uplink_periods(&first, &events, 10 * SECOND, 20 * SECOND);
        let short: Vec<(Option<&str>, f64, f64)> =
            all.iter().map(|a| (a.uplink.as_deref(), a.from_s, a.to_s)).collect();
        assert_eq!(
            short,
            [(Some("w0"), 0.0, 2.0), (Some("w1"), 2.0, 5.0), (None, 5.0, 6.0), (Some("w0"), 6.0, 10.0)]
        );
    }
}
