//! Packet captures of every interface, and what tshark reads in those of the stations.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use nix::sys::signal::Signal;

use crate::clock::{self, MILLISECOND};
use crate::isolate::Mode;
use crate::process::{Daemon, in_node, output};
use crate::scenario::{End, Node, Scenario};
use crate::tools;

/// Octets kept of each packet: every header and every mobility message, not the payload of transfers.
const SNAP_LENGTH: &str = "300";

/// The program that captures, and its Debian package. tcpdump insists on setting its groups, which a user
/// namespace does not allow; dumpcap does not.
pub fn program(mode: Mode) -> (&'static str, &'static str) {
    match mode {
        Mode::Root => ("tcpdump", "tcpdump"),
        Mode::User => ("dumpcap", "wireshark-common"),
    }
}

/// Running captures.
#[derive(Debug)]
pub struct Captures {
    running: Vec<(String, PathBuf, Daemon)>,
}

impl Captures {
    /// Starts a capture on every interface of the nodes in which carnet runs; files are `NODE-INTERFACE.pcap` in
    /// `folder`. The other ends of their links would only tell the same again.
    pub fn start(scenario: &Scenario, mode: Mode, folder: &Path, logs: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let program = program(mode).0;
        let mut running = Vec::new();
        let radio = |(node, n): (&String, &Node)| {
            let interface = n.radio.as_ref()?.get_ref().interface.clone();
            Some(End { node: node.clone(), interface })
        };
        let links = scenario.links.iter().flat_map(|l| &l.ends).map(|e| e.get_ref().clone());
        let ends = links.chain(scenario.nodes.iter().filter_map(radio));
        let is_station =
            |name: &str| scenario.nodes.iter().any(|(n, node)| n == name && node.carnet.is_some());
        for end in ends.filter(|end| is_station(&end.node)) {
            let file = folder.join(format!("{}-{}.pcap", end.node, end.interface));
            let mut command = in_node(&end.node, tools::path(program));
            let options: &[&str] = match mode {
                Mode::Root => &["-Z", "root", "-U", "-n"],
                Mode::User => &["-P", "-q"],
            };
            command.args(options).args(["-s", SNAP_LENGTH, "-i", &end.interface, "-w"]).arg(&file);
            let log = logs.join(format!("{program}-{}-{}.log", end.node, end.interface));
            let daemon = Daemon::start(&format!("{program} on {end}"), &log, &mut command)?;
            running.push((end.node.clone(), file, daemon));
        }
        clock::sleep(500 * MILLISECOND);
        running.iter_mut().try_for_each(|(_, _, daemon)| daemon.check())?;
        Ok(Self { running })
    }

    /// Ends the captures and counts, in those of the stations: Binding Updates, Binding Acknowledgements,
    /// GeoNetworking packets, malformed ones. Metrics are named `capture.NODE....`.
    pub fn finish(mut self, scenario: &Scenario) -> anyhow::Result<Vec<(String, f64)>> {
        for (_, _, daemon) in &mut self.running {
            daemon.stop(Signal::SIGINT);
        }
        let Some(tshark) = tools::find("tshark") else { return Ok(Vec::new()) };
        let mut counts: Vec<(String, f64)> = Vec::new();
        for (node, file, _) in &self.running {
            if scenario.nodes.get(node).is_none_or(|n| n.carnet.is_none()) {
                continue;
            }
            for (name, filter) in [
                ("binding_updates", "mip6.mhtype == 5"),
                ("binding_acknowledgements", "mip6.mhtype == 6"),
                ("geonetworking", "gnw"),
                ("malformed", "_ws.malformed"),
            ] {
                let mut command = Command::new(&tshark);
                // Its own settings, not those of a user that may not be readable here.
                command.env("HOME", crate::isolate::RUN);
                command.args(["-n", "-Y", filter, "-T", "fields", "-e", "frame.number", "-r"]).arg(file);
                let found = output(&mut command)?.lines().count() as f64;
                let name = format!("capture.{node}.{name}");
                match counts.iter_mut().find(|c| c.0 == name) {
                    Some(count) => count.1 += found,
                    None => counts.push((name, found)),
                }
            }
        }
        Ok(counts)
    }
}
