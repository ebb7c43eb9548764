//! Runs traffic through a testbed while its timetable runs, and reads the results.
//!
//! All traffic is real: `ping`, `iperf3`, `carnet gnping`, packets by `gnsend`, and the lab's own probe. The
//! traffic starts a little before the timetable and ends a little after it. So neighbours are resolved and
//! TCP is at full speed when the timetable begins.

pub mod geonet;
pub mod multicast;
pub mod ping;
pub mod probe;
pub mod replay;
pub mod stats;
pub mod tcp;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::sys::signal::Signal;

use crate::clock::{self, MILLISECOND, SECOND};
use crate::process::{BackgroundProgram, command_in_node};
use crate::radio::Medium;
use crate::scenario::{Family, Ping, Probe, Scenario};
use crate::station::Station;
use crate::tools;
use geonet::{BroadcastResults, GnPings, RunningGeonetTraffic};
use stats::PacketFlow;
use tcp::TcpTransfer;

/// Time from the start of the traffic to the begin of the timetable, in nanoseconds.
pub const TIME_FROM_TRAFFIC_START_TO_TIMETABLE: u64 = 2 * SECOND;
/// Time from the end of the timetable to the end of the traffic, in nanoseconds.
const TRAFFIC_TIME_AFTER_TIMETABLE: u64 = 300 * MILLISECOND;
/// Time in nanoseconds after the end of the traffic within which answers count. Probes wait as long.
const ANSWER_TIMEOUT: u64 = SECOND;

/// All running traffic of a scenario.
#[derive(Debug, Default)]
pub struct RunningTraffic {
    /// Probes, each with the due time of its first packet.
    probes: Vec<(Probe, [BackgroundProgram; 2], [PathBuf; 2], u64)>,
    /// Pings, each with the time of its start.
    pings: Vec<(Ping, BackgroundProgram, u64)>,
    transfers: Vec<TcpTransfer>,
    geonet_flows: RunningGeonetTraffic,
    multicasts: Vec<multicast::RunningMulticast>,
    replays: Vec<replay::RunningReplay>,
}

/// Results of a probe.
#[derive(Debug, Default)]
pub struct ProbeResults {
    /// Name of the probe.
    pub name: String,
    /// Name of the series with `{n}`, if the probe belongs to one.
    pub series: Option<String>,
    /// The two nodes of the probe.
    pub nodes: [String; 2],
    /// Flows from the first end to the second, and back.
    pub flows: [PacketFlow; 2],
}

/// Observed results of all traffic.
#[derive(Debug, Default)]
pub struct TrafficResults {
    /// Results of the probes.
    pub probes: Vec<ProbeResults>,
    /// Results of the pings: name, legend, requests.
    pub pings: Vec<(String, String, ping::PingSeries)>,
    /// Results of the transfers: name, legend, iperf3's results, start (monotonic).
    pub transfers: Vec<(String, String, tcp::TransferResult, u64)>,
    /// Results of pings over GeoNetworking.
    pub gnpings: Vec<GnPings>,
    /// Results of broadcasts over GeoNetworking, and of packets from hosts to multicast groups.
    pub broadcasts: Vec<BroadcastResults>,
    /// Packets to multicast groups that arrived at hosts that have not joined: name of the traffic, times of
    /// arrival.
    pub strangers: Vec<(String, Vec<u64>)>,
    /// Results of the replays: name, numbers of received and of replayed frames.
    pub replays: Vec<(String, replay::ReplayCounts)>,
    /// Objects on the maps of the stations, if the scenario has outsiders.
    pub map_object_counts: Option<geonet::MapObjectCounts>,
    /// Texts about packets that stations refused to send, with the reasons.
    pub refusals: Vec<String>,
    /// Longest delay of a probe packet's departure, in nanoseconds.
    pub longest_probe_delay: u64,
}

impl TrafficResults {
    /// Returns the longest delay of a packet's departure, in milliseconds.
    pub fn longest_probe_delay_ms(&self) -> f64 {
        self.longest_probe_delay as f64 / 1e6
    }
}

/// Nodes, stations and medium that the traffic uses, and the folder of its logs.
#[derive(Debug, Clone, Copy)]
pub struct TrafficEnds<'a> {
    /// Address of each node to which traffic goes.
    pub addresses: &'a BTreeMap<String, Ipv6Addr>,
    /// IPv4 address of each node that has one.
    pub ipv4_addresses: &'a BTreeMap<String, Ipv4Addr>,
    /// Stations of the testbed.
    pub stations: &'a [Station],
    /// Medium between radios.
    pub medium: Option<&'a Medium>,
    /// Folder for the logs of the traffic's programs.
    pub folder: &'a Path,
}

impl TrafficEnds<'_> {
    /// Returns the address of a node for traffic of an IP version.
    fn address(&self, node: &str, family: Family) -> anyhow::Result<IpAddr> {
        let (found, name) = match family {
            Family::Ipv6 => (self.addresses.get(node).map(|it| IpAddr::V6(*it)), "IPv6"),
            Family::Ipv4 => (self.ipv4_addresses.get(node).map(|it| IpAddr::V4(*it)), "IPv4"),
        };
        found.with_context(|| format!("node {node} has no {name} address for traffic"))
    }
}

/// Starts all traffic. The timetable will begin at `begin` and end at `end`. `scaled` converts a time of the
/// scenario's timetable to this run's timetable.
pub fn start(
    scenario: &Scenario,
    ends: TrafficEnds<'_>,
    begin: u64,
    end: u64,
    scaled: impl Fn(u64) -> u64,
) -> anyhow::Result<RunningTraffic> {
    let TrafficEnds { stations, medium, folder, .. } = ends;
    let address = |node: &str, family: Family| ends.address(node, family);
    let mut flows = RunningTraffic::default();
    let own = std::env::current_exe()?;
    for (p, probe) in scenario.traffic.probe.iter().enumerate() {
        let nodes = [probe.between.0.get_ref(), probe.between.1.get_ref()];
        let first = probe
            .begin
            .map_or(begin - TIME_FROM_TRAFFIC_START_TO_TIMETABLE + SECOND, |at| begin + scaled(at.0));
        let count = (end + TRAFFIC_TIME_AFTER_TIMETABLE - first) * u64::from(probe.rate) / SECOND;
        let files = nodes.map(|n| folder.join(format!("probe-{}-{n}.json", probe.name)));
        let run = |own_end: usize| -> anyhow::Result<BackgroundProgram> {
            // The probe has one socket for both IP versions, which takes an IPv4 address in its mapped form.
            let peer = match address(nodes[1 - own_end], probe.family)? {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            let mut command = command_in_node(nodes[own_end], &own);
            command
                .arg("probe")
                .args(["--peer", &peer.to_string()])
                .args(["--port", &probe.port.map_or(7700 + p, usize::from).to_string()])
                .args(["--rate", &probe.rate.to_string()])
                .args(["--size", &probe.size.get_ref().to_string()])
                .args(["--count", &count.to_string()])
                .args(["--start", &first.to_string()])
                .args((!probe.direction.sends_data_from(own_end)).then_some("--mute"))
                .arg("--output")
                .arg(&files[own_end]);
            let log = folder.join(format!("probe-{}-{}.log", probe.name, nodes[own_end]));
            BackgroundProgram::start(&format!("probe in node {}", nodes[own_end]), &log, &mut command)
        };
        let ends = [run(0)?, run(1)?];
        flows.probes.push((probe.clone(), ends, files, first));
    }
    for ping in &scenario.traffic.ping {
        let (from, to) = (ping.from.get_ref(), ping.to.get_ref());
        let interval = format!("{:.4}", ping.interval.seconds());
        let mut command = command_in_node(from, tools::path_of_program("ping"));
        command.env("LC_ALL", "C").args(["-6", "-D", "-O", "-n", "-i", &interval]);
        if let Some(size) = ping.size {
            command.args(["-s", &size.to_string()]);
        }
        if let Some(via) = &ping.via {
            command.args(["-I", via]);
        }
        command.arg(address(to, Family::Ipv6)?.to_string());
        let log = folder.join(format!("ping-{}.log", ping.name));
        let started = clock::monotonic_now();
        let daemon = BackgroundProgram::start(&format!("ping in node {from}"), &log, &mut command)?;
        flows.pings.push((ping.clone(), daemon, started));
    }
    for (t, tcp) in scenario.traffic.tcp.iter().enumerate() {
        let port = 5201 + t as u16;
        let from = tcp.begin.map_or(0, |at| begin + scaled(at.0));
        let until = tcp.end.map_or(end + TRAFFIC_TIME_AFTER_TIMETABLE, |at| begin + scaled(at.0));
        let server = address(tcp.server.get_ref(), tcp.family)?;
        flows.transfers.push(TcpTransfer::start_server(tcp, port, server, from..until, folder)?);
    }
    if !flows.transfers.is_empty() {
        // Wait until the servers listen.
        clock::sleep(200 * MILLISECOND);
        flows.start_due_transfers()?;
    }
    for (number, multicast) in scenario.traffic.multicast.iter().enumerate() {
        flows.multicasts.push(multicast::start(number, multicast, begin, end, folder)?);
    }
    for replay in &scenario.traffic.replay {
        flows.replays.push(replay::start(scenario, replay, end, folder)?);
    }
    flows.geonet_flows = geonet::start(scenario, stations, medium, begin, end, folder)?;
    Ok(flows)
}

impl RunningTraffic {
    fn start_due_transfers(&mut self) -> anyhow::Result<()> {
        self.transfers.iter_mut().try_for_each(|transfer| transfer.start_client(clock::monotonic_now()))
    }

    /// Starts the traffic that is due by now. Fails if a program has ended too early, or has failed.
    pub fn start_due_and_check(&mut self) -> anyhow::Result<()> {
        self.start_due_transfers()?;
        for (_, ends, ..) in &mut self.probes {
            ends.iter_mut().try_for_each(BackgroundProgram::check_not_failed)?;
        }
        self.pings.iter_mut().try_for_each(|(_, daemon, _)| daemon.check_running())?;
        self.multicasts.iter_mut().try_for_each(multicast::RunningMulticast::check_running)?;
        self.replays.iter_mut().try_for_each(replay::RunningReplay::check_running)?;
        self.geonet_flows.restart_or_check()
    }

    /// Ends all traffic and reads the results. The caller calls it after the end of the timetable.
    pub fn finish(
        mut self,
        end: u64,
        scenario: &Scenario,
        medium: Option<&Medium>,
    ) -> anyhow::Result<TrafficResults> {
        clock::sleep_until(end + TRAFFIC_TIME_AFTER_TIMETABLE);
        let mut seen = TrafficResults::default();
        for (ping, daemon, started) in &mut self.pings {
            let read = |daemon: &BackgroundProgram| -> anyhow::Result<ping::PingSeries> {
                let transcript =
                    ping::parse_transcript(&String::from_utf8_lossy(&std::fs::read(&daemon.log_file)?));
                let interval = ping.interval.0;
                Ok(ping::PingSeries::new(&transcript, clock::wall_to_monotonic_offset(), *started, interval))
            };
            while clock::monotonic_now() < end + TRAFFIC_TIME_AFTER_TIMETABLE + ANSWER_TIMEOUT
                && read(daemon)?.has_unanswered_before(end)
            {
                clock::sleep(100 * MILLISECOND);
            }
            daemon.stop(Signal::SIGINT);
            seen.pings.push((ping.name.clone(), ping.label.clone(), read(daemon)?));
        }
        for (probe, ends, files, first) in &mut self.probes {
            let limit = probe::longest_probe_run_time(u64::from(probe.rate), probe.rate) + 30 * SECOND;
            for daemon in ends.iter_mut() {
                daemon.wait_at_most(limit);
            }
            let flows = probe::read_results(&files[0], &files[1])?;
            let late = flows
                .each_ref()
                .map(|flow| probe::longest_sending_delay(&flow.send_times, *first, probe.rate));
            // Use the smaller delay of both directions. If an interface has no carrier, the sender's kernel
            // holds its packets back, which delays one direction. A machine that is too slow delays both.
            seen.longest_probe_delay = seen.longest_probe_delay.max(late[0].min(late[1]));
            let nodes = [probe.between.0.get_ref().clone(), probe.between.1.get_ref().clone()];
            seen.probes.push(ProbeResults {
                name: probe.name.clone(),
                series: probe.series.clone(),
                nodes,
                flows,
            });
        }
        for transfer in &mut self.transfers {
            let (name, label) = (transfer.settings.name.clone(), transfer.settings.label.clone());
            let (told, started) = transfer.finish()?;
            seen.transfers.push((name, label, told, started));
        }
        let on_air = medium.map(Medium::transmissions_by_mark).unwrap_or_default();
        seen.map_object_counts = self.geonet_flows.map_object_counts();
        seen.refusals = self.geonet_flows.refusal_messages();
        (seen.gnpings, seen.broadcasts) = self.geonet_flows.finish(scenario, end, &on_air)?;
        for replay in &mut self.replays {
            seen.replays.push((replay.name.clone(), replay.finish()?));
        }
        for multicast in &mut self.multicasts {
            let (broadcasts, strangers) = multicast.finish(scenario)?;
            seen.strangers.push((broadcasts.name.clone(), strangers));
            seen.broadcasts.push(broadcasts);
        }
        Ok(seen)
    }
}
