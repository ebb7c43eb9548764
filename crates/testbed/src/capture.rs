//! Captures packets on the interfaces, and counts packets in the captures with tshark.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use nix::sys::signal::Signal;

use crate::clock::{self, MILLISECOND};
use crate::console;
use crate::isolate::IsolationMode;
use crate::process::{BackgroundProgram, command_in_node, run_for_output};
use crate::scenario::{LinkEnd, Node, Scenario};
use crate::tools;

mod outer_headers;

/// Number of octets that a capture keeps of each packet. Every header and every mobility message fits, but
/// not the payload of transfers.
const SNAP_LENGTH: &str = "300";
/// Metrics that count packets in a capture. Each has the last part of the metric's name, and tshark's filter
/// for the packets.
const METRIC_FILTERS: [(&str, &str); 4] = [
    ("binding_updates", "mip6.mhtype == 5"),
    ("binding_acknowledgements", "mip6.mhtype == 6"),
    ("geonetworking", "gnw"),
    ("malformed", "_ws.malformed"),
];
/// Metrics that count packets in the capture of one interface, as [`METRIC_FILTERS`]. Packets outside of
/// sessions are all but messages of WireGuard, neighbour discovery and multicast listener discovery.
const INTERFACE_METRIC_FILTERS: [(&str, &str); 2] = [
    ("in_sessions", "wg"),
    (
        "outside_sessions",
        "(ip || ipv6) && !wg && !(icmpv6.type >= 130 && icmpv6.type <= 137) && !(icmpv6.type == 143)",
    ),
];

/// Returns the capture program and its Debian package. In a user namespace it is dumpcap: tcpdump fails
/// there, because it wants to change its groups.
pub fn capture_program(mode: IsolationMode) -> (&'static str, &'static str) {
    match mode {
        IsolationMode::Root => ("tcpdump", "tcpdump"),
        IsolationMode::User => ("dumpcap", "wireshark-common"),
    }
}

/// All running captures, each with its interface and its file.
#[derive(Debug)]
pub struct Captures {
    running_captures: Vec<(LinkEnd, PathBuf, BackgroundProgram)>,
}

impl Captures {
    /// Starts a capture on each interface of the nodes with carnet, into `NODE-INTERFACE.pcap` in `folder`.
    /// Leaves out the other ends of the links, which have the same packets.
    pub fn start_captures(
        scenario: &Scenario,
        mode: IsolationMode,
        folder: &Path,
        logs: &Path,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let program = capture_program(mode).0;
        let mut running = Vec::new();
        let radio = |(node, n): (&String, &Node)| {
            let interface = n.radio.as_ref()?.get_ref().interface.clone();
            Some(LinkEnd { node: node.clone(), interface })
        };
        let links = scenario.links.iter().flat_map(|l| &l.ends).map(|e| e.get_ref().clone());
        let ends = links.chain(scenario.nodes.iter().filter_map(radio));
        let is_station =
            |name: &str| scenario.nodes.iter().any(|(n, node)| n == name && node.carnet.is_some());
        for end in ends.filter(|end| is_station(&end.node)) {
            let file = folder.join(format!("{}-{}.pcap", end.node, end.interface));
            let mut command = command_in_node(&end.node, tools::path_of_program(program));
            let options: &[&str] = match mode {
                IsolationMode::Root => &["-Z", "root", "-U", "-n"],
                IsolationMode::User => &["-P", "-q"],
            };
            command.args(options).args(["-s", SNAP_LENGTH, "-i", &end.interface, "-w"]).arg(&file);
            let log = logs.join(format!("{program}-{}-{}.log", end.node, end.interface));
            let daemon = BackgroundProgram::start(&format!("{program} on {end}"), &log, &mut command)?;
            running.push((end, file, daemon));
        }
        clock::sleep(500 * MILLISECOND);
        running.iter_mut().try_for_each(|(_, _, daemon)| daemon.check_running())?;
        Ok(Self { running_captures: running })
    }

    /// Ends the captures and counts, for each station: Binding Updates, Binding Acknowledgements,
    /// GeoNetworking packets and malformed packets. For each interface, counts the packets in encrypted
    /// sessions and outside of them. For each ping, also measures the headers around its
    /// packets, and counts the home agents on their path. The metrics begin with `capture.NODE.`.
    pub fn finish_captures(
        mut self,
        scenario: &Scenario,
        folder: &Path,
        addresses: &BTreeMap<String, Ipv6Addr>,
    ) -> anyhow::Result<Vec<(String, f64)>> {
        for (_, _, daemon) in &mut self.running_captures {
            daemon.stop(Signal::SIGINT);
        }
        let Some(tshark) = tools::find_program("tshark") else { return Ok(Vec::new()) };
        let mut counts: Vec<(String, f64)> = Vec::new();
        for (LinkEnd { node, interface }, file, _) in &self.running_captures {
            // Reading a capture takes long, so read it only if the scenario uses one of its metrics.
            let mut wanted =
                METRIC_FILTERS.map(|(name, filter)| (format!("capture.{node}.{name}"), filter)).to_vec();
            wanted.extend(
                INTERFACE_METRIC_FILTERS
                    .map(|(name, filter)| (format!("capture.{node}.{interface}.{name}"), filter)),
            );
            wanted.retain(|(name, _)| needs_capture(scenario, name));
            if !wanted.is_empty() {
                let megabytes = file.metadata().map_or(0, |file| file.len()) / 1_000_000;
                console::print_step(&format!(
                    "tshark reads the capture of {node}:{interface}, {megabytes} MB"
                ));
            }
            for (name, filter) in wanted {
                let mut command = Command::new(&tshark);
                // Run tshark with default settings, because inside the namespaces it may not be able to read
                // the user's settings.
                command.env("HOME", crate::isolate::RUN_DIRECTORY);
                command.args(["-n", "-Y", filter, "-T", "fields", "-e", "frame.number", "-r"]).arg(file);
                let found = run_for_output(&mut command)?.lines().count() as f64;
                match counts.iter_mut().find(|c| c.0 == name) {
                    Some(count) => count.1 += found,
                    None => counts.push((name, found)),
                }
            }
        }
        counts.extend(self.measure_around_pings(scenario, folder, addresses)?);
        Ok(counts)
    }

    /// `capture.NODE.INTERFACE.PING.outer_headers` is the median number of header octets around the Echo
    /// Requests that passed this interface. `capture.PING.home_agents` is the number of home agents that at
    /// least half of the requests passed.
    fn measure_around_pings(
        &self,
        scenario: &Scenario,
        folder: &Path,
        addresses: &BTreeMap<String, Ipv6Addr>,
    ) -> anyhow::Result<Vec<(String, f64)>> {
        let mut metrics = Vec::new();
        let mut seen: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for (end, file, _) in &self.running_captures {
            let octets = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            let requests = outer_headers::outer_headers_of_echo_requests(&octets);
            for ping in &scenario.traffic.ping {
                let (from, to) = (addresses.get(ping.from.get_ref()), addresses.get(ping.to.get_ref()));
                let (Some(from), Some(to)) = (from, to) else { continue };
                let outer = requests.get(&(*from, *to)).map(Vec::as_slice).unwrap_or_default();
                if let Some(median) = outer.get(outer.len() / 2) {
                    let name = format!("capture.{}.{}.{}.outer", end.node, end.interface, ping.name);
                    metrics.push((name, *median as f64));
                }
                *seen.entry((&ping.name, &end.node)).or_default() += outer.len();
            }
        }
        let is_agent = |node: &str| {
            let config = scenario.nodes.get(node).and_then(|node| node.carnet.as_ref());
            config.is_some_and(|config| {
                let text = std::fs::read_to_string(folder.join(config.get_ref()));
                text.is_ok_and(|text| text.contains("[home_agent]"))
            })
        };
        let agents: BTreeSet<&str> =
            seen.keys().map(|(_, node)| *node).filter(|node| is_agent(node)).collect();
        for ping in &scenario.traffic.ping {
            let of = |node: &str| seen.get(&(ping.name.as_str(), node)).copied().unwrap_or(0);
            let most = seen.keys().filter(|(name, _)| *name == ping.name).map(|(_, node)| of(node)).max();
            let half = most.unwrap_or(0) / 2;
            let crossed = agents.iter().filter(|node| of(node) > half).count();
            metrics.push((format!("capture.{}.home_agents", ping.name), crossed as f64));
        }
        Ok(metrics)
    }
}

/// Returns whether the scenario uses this metric in an expectation or in the report.
fn needs_capture(scenario: &Scenario, name: &str) -> bool {
    let expected = scenario.expect.iter().map(|expect| &expect.metric);
    let shown = scenario.headline.iter().map(|headline| &headline.metric);
    let derived = scenario.derived.iter().flat_map(|derived| {
        [Some(&derived.of), derived.plus.as_ref(), derived.minus.as_ref(), derived.over.as_ref()]
    });
    expected.chain(shown).chain(derived.flatten()).any(|metric| metric == name)
}
