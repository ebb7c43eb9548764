//! Checks metric names: the scenario must measure each metric that it judges, shows or derives.
//!
//! If the scenario measures no metric of a name, the lab refuses the name before the run. Another check at
//! the end finds metrics without a value ([`crate::expect`]).

use super::scenario_error::join_quoted_names;
use super::{Scenario, WHOLE_RUN_SECTION};
use crate::emulation::way;
use crate::medium::stats::Counters;

/// Names of the percentiles of a distribution.
const PERCENTILE_NAMES: [&str; 4] = ["p50", "p90", "p99", "max"];
/// Names of the metrics of a one-way flow.
const FLOW_METRICS: [&str; 7] =
    ["sent", "lost", "delivered_percent", "duplicated", "reordered", "reordered_by_ms", "outage_ms"];
/// Names of the metrics of a broadcast.
const BROADCAST_METRICS: [&str; 13] = [
    "sent",
    "unsent",
    "inside",
    "received",
    "missed",
    "delivered_percent",
    "complete_percent",
    "duplicated",
    "outside",
    "transmissions.mean",
    "unicast.mean",
    "senders.mean",
    "strangers",
];
/// Names of the metrics of a transfer.
const TCP_METRICS: [&str; 8] =
    ["mbit_up", "mbit_down", "bytes", "bytes_up", "bytes_down", "retransmits", "stall_s", "unbroken"];
/// Names of the metrics of a node.
const NODE_METRICS: [&str; 10] = [
    "handovers",
    "refreshes",
    "registration_ms",
    "first_registration_ms",
    "ready_ms",
    "direct",
    "exit_status",
    "tunnels.ipv6",
    "tunnels.ipv4",
    "tunnels.udp",
];

/// Returns the first metric name that the scenario does not measure, and an error message; `None` if it
/// measures all.
pub(super) fn find_unknown_metric(scenario: &Scenario) -> Option<(&str, String)> {
    let expected = scenario.expect.iter().flat_map(|e| {
        [Some(&e.metric), e.plus.as_ref(), e.times.as_ref()].into_iter().flatten().map(String::as_str)
    });
    let shown = scenario.headline.iter().map(|h| h.metric.as_str());
    let derived = scenario.derived.iter().flat_map(|d| {
        [Some(&d.of), d.plus.as_ref(), d.minus.as_ref(), d.over.as_ref()]
            .into_iter()
            .flatten()
            .map(String::as_str)
    });
    expected
        .chain(shown)
        .chain(derived)
        .find_map(|name| Some((name, explain_unknown_metric(scenario, name)?)))
}

/// Returns the error in a name, if any.
fn explain_unknown_metric(scenario: &Scenario, name: &str) -> Option<String> {
    let metric = match name.split_once('/') {
        Some((section, metric)) => {
            let is_action = scenario.actions.iter().any(|action| action.name.get_ref() == section);
            if section != WHOLE_RUN_SECTION && !is_action {
                return Some(format!(
                    "{name:?}: there is no section {section:?}, expected `run` or an action"
                ));
            }
            metric
        }
        None => name,
    };
    if metric == "order_ms" || metric == "lab.late_ms" || scenario.derived.iter().any(|d| d.name == metric) {
        return None;
    }
    let owners = metric_owners(scenario);
    // Names of nodes, flows and links may contain dots. So take the longest name with which the metric's name
    // begins.
    let fitting = owners.iter().filter_map(|owner| {
        let rest = metric.strip_prefix(owner.name.as_str())?.strip_prefix('.')?;
        Some((owner, rest))
    });
    let mut fitting: Vec<(&MetricOwner, &str)> = fitting.collect();
    fitting.sort_by_key(|(owner, _)| std::cmp::Reverse(owner.name.len()));
    if fitting.iter().any(|(owner, rest)| owner.has_metric(rest)) {
        return None;
    }
    Some(match fitting.first() {
        Some((owner, _)) => {
            let all: Vec<&str> = owner.metric_names.iter().map(String::as_str).collect();
            format!("there is no metric {name:?}; {} has: {}", owner.description, join_quoted_names(all))
        }
        None => {
            format!("there is no metric {name:?}: it begins with the name of no traffic and of no node")
        }
    })
}

/// A node, flow or link with metrics.
struct MetricOwner {
    /// Prefix of the metrics' names.
    name: String,
    /// Name of the object in error messages.
    description: String,
    /// Names of its metrics after the prefix; `*` stands for any word.
    metric_names: Vec<String>,
}

impl MetricOwner {
    fn has_metric(&self, rest: &str) -> bool {
        self.metric_names.iter().any(|known| match known.split_once('*') {
            Some((before, after)) => {
                rest.len() > before.len() + after.len() && rest.starts_with(before) && rest.ends_with(after)
            }
            None => known == rest,
        })
    }
}

fn names_with_percentiles(plain: &[&str], distributions: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = plain.iter().map(|name| (*name).to_owned()).collect();
    all.extend(distributions.iter().flat_map(|name| PERCENTILE_NAMES.map(|p| format!("{name}.{p}"))));
    all
}

fn metric_owners(scenario: &Scenario) -> Vec<MetricOwner> {
    let owner = |name: &str, what: &str, all: Vec<String>| MetricOwner {
        name: name.to_owned(),
        description: format!("the {what} {name:?}"),
        metric_names: all,
    };
    let t = &scenario.traffic;
    let mut owners = Vec::new();
    for probe in &t.probe {
        let flow = names_with_percentiles(&FLOW_METRICS, &["delay_us"]);
        let nodes = [probe.between.0.get_ref(), probe.between.1.get_ref()];
        for (from, to) in [(nodes[0], nodes[1]), (nodes[1], nodes[0])] {
            owners.push(owner(&format!("{}.{from}-{to}", probe.name), "probe", flow.clone()));
        }
        owners.extend(probe.series.iter().map(|series| owner(series, "series of probes", flow.clone())));
        owners.push(owner(&probe.name, "probe", flow));
    }
    let ping = names_with_percentiles(&["sent", "lost", "lost_per_move.*"], &["ms"]);
    owners.extend(t.ping.iter().map(|p| owner(&p.name, "ping", ping.clone())));
    let gnping =
        names_with_percentiles(&["sent", "lost", "answers", "answered_percent", "hops.min"], &["ms", "hops"]);
    owners.extend(t.gnping.iter().map(|p| owner(&p.name, "gnping", gnping.clone())));
    let broadcast = names_with_percentiles(&BROADCAST_METRICS, &["ms", "transmissions"]);
    owners.extend(t.gnbroadcast.iter().map(|b| owner(&b.name, "gnbroadcast", broadcast.clone())));
    owners.extend(t.multicast.iter().map(|m| owner(&m.name, "multicast", broadcast.clone())));
    owners.extend(
        t.tcp.iter().map(|tcp| owner(&tcp.name, "transfer", names_with_percentiles(&TCP_METRICS, &[]))),
    );
    let replay = names_with_percentiles(&["heard", "sent"], &[]);
    owners.extend(t.replay.iter().map(|r| owner(&r.name, "replay", replay.clone())));
    let mut of_node = names_with_percentiles(&NODE_METRICS, &["registration_ms.*"]);
    of_node.extend(
        ["handovers.*", "registrations.*", "registration_ms.*.mean", "active.*", "share.*"]
            .map(str::to_owned),
    );
    owners.extend(scenario.nodes.keys().map(|node| owner(node, "node", of_node.clone())));
    let counters: Vec<&str> = Counters::default().named_values().into_iter().map(|(name, _)| name).collect();
    let medium = names_with_percentiles(&counters, &[]);
    for node in scenario.tracks.keys() {
        owners.push(owner(&format!("medium.{node}"), "radio", medium.clone()));
    }
    let late = [
        "received_percent",
        "refused",
        "busy_percent.mean",
        "busy_percent.max",
        "late_ms.mean",
        "late_ms.max",
    ];
    let all = medium.into_iter().chain(late.map(str::to_owned)).collect();
    owners.push(owner("medium", "group", all));
    let frames: Vec<&str> =
        way::Counters::default().named_values().into_iter().map(|(name, _)| name).collect();
    let frames = names_with_percentiles(&[&frames[..], &["mbit_ip", "mbit_inner"]].concat(), &[]);
    for end in scenario.links.iter().filter(|link| link.emulation.is_some()).flat_map(|link| &link.ends) {
        let end = end.get_ref();
        owners.push(owner(&format!("link.{}.{}", end.node, end.interface), "emulated link", frames.clone()));
    }
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    owners.push(owner("links", "group", words(&["refused", "late_us.p50", "late_us.p99", "late_us.max"])));
    let stations = ["count", "cpu_percent", "memory_mib.mean", "memory_mib.max", "counter.*"];
    owners.push(owner("stations", "group", words(&stations)));
    owners.push(owner("maps", "group", words(&["stations", "outsiders"])));
    owners.push(owner(
        "capture",
        "group",
        words(&[
            "*.outer",
            "*.home_agents",
            "*.binding_updates",
            "*.binding_acknowledgements",
            "*.geonetworking",
            "*.malformed",
            "*.in_sessions",
            "*.outside_sessions",
        ]),
    ));
    owners.push(owner("address", "group", words(&["*.unchanged"])));
    owners.push(owner("ipv4_address", "group", words(&["*.unchanged"])));
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectation_of_unknown_metric_name_is_refused() {
        let text = "title='t'\ntimetable.duration='1s'\n[nodes.a]\naddresses.x=['2001:db8::1/64']\n\
                    [nodes.b]\naddresses.y=['2001:db8::2/64']\n[[links]]\nends=['a:x','b:y']\n\
                    [[traffic.ping]]\nname='rtt'\nfrom='a'\nto='b'\ninterval='1s'\n\
                    [[traffic.probe]]\nname='p'\nbetween=['a','b']\nrate=9\n\
                    [[actions]]\nname='x'\nlabel='x'\nat='0s'\nnothing=true\n";
        let scenario = crate::scenario::parse_scenario(std::path::Path::new("s"), text).expect("is good");
        for good in [
            "rtt.lost",
            "x/rtt.ms.p99",
            "run/p.a-b.delay_us.max",
            "rtt.lost_per_move.w0",
            "a.registration_ms.w0.mean",
            "medium.busy_percent.max",
            "stations.counter.geonet.dropped.malformed",
        ] {
            assert_eq!(explain_unknown_metric(&scenario, good), None, "{good}");
        }
        for (bad, told) in [
            ("rtt.ms.p500", "there is no metric \"rtt.ms.p500\"; the ping \"rtt\" has: sent, lost"),
            ("flo.delivered_percent", "it begins with the name of no traffic"),
            ("p.a-c.lost", "the probe \"p\" has: "),
            ("y/rtt.lost", "there is no section \"y\""),
            ("a.handover", "the node \"a\" has: handovers"),
            ("rtt.lost_per_move.", "the ping \"rtt\" has"),
        ] {
            let found = explain_unknown_metric(&scenario, bad).unwrap_or_default();
            assert!(found.contains(told), "{bad}: {found}");
        }
        let text = format!("{text}[[headline]]\nlabel='l'\nmetric='rtt.p50'\n");
        let fault = crate::scenario::parse_scenario(std::path::Path::new("s"), &text).expect_err("is bad");
        assert_eq!((fault.line, fault.column), (text.lines().count(), 8), "{fault}");
    }
}
