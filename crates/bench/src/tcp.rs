//! Measures TCP between the hosts: with one stream and several, in both directions, and also if the hosts'
//! MTU does not fit the tunnel.
//!
//! The hosts have three settings. First their MTU fits the tunnel, for plain forwarding too. Then the MTU is
//! 1500, so the hosts discover the path MTU or a router clamps the segments. Last the MTU is 1500, and a
//! filter at the hosts drops Packet Too Big. A transfer may use all cores. The rate of one transfer depends
//! on the distribution of work to cores, so it says little. So there are many short transfers, and the paths
//! take turns. The result is the median of the ratios of neighbouring transfers, with its uncertainty.

use std::process::{Command, Stdio};

use anyhow::Context;

use super::figures::{Series, TcpFigure};
use super::packets::RoutersOnPath;
use super::path::DataPath;
use super::transfer::{TransferTask, transfer_to};
use super::world::{CORRESPONDENT_ADDRESS, CORRESPONDENT_IPV4_ADDRESS, HOST_INTERFACES, TestNetwork};
use super::{MeasurementPlan, Testbeds};
use carnet_testbed::console;
use carnet_testbed::process::{command_in_node, run_for_output};
use carnet_testbed::tools;

/// Commands that make a host forget the path MTUs of earlier transfers.
const FORGET_PATH_MTUS_COMMANDS: &str =
    "cd /proc/sys/net; echo 1 > ipv6/route/flush; echo 1 > ipv4/route/flush";

/// Setting of the hosts: their MTU, and whether they receive Packet Too Big.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostSetting {
    /// The MTU fits into the tunnel.
    Fitting,
    /// The MTU does not fit into the tunnel.
    Large,
    /// The MTU does not fit, and a filter drops Packet Too Big.
    Deaf,
    /// The MTU does not fit, and the hosts use IPv4.
    LargeIpv4,
}

impl HostSetting {
    /// Returns a description of the setting.
    pub fn setting_description(self) -> &'static str {
        match self {
            HostSetting::Fitting => "hosts with MTU 1460",
            HostSetting::Large => "hosts with MTU 1500",
            HostSetting::Deaf => "hosts with MTU 1500, Packet Too Big filtered",
            HostSetting::LargeIpv4 => "hosts with MTU 1500, IPv4",
        }
    }

    fn mtu(self) -> &'static str {
        if self == HostSetting::Fitting { "1460" } else { "1500" }
    }

    /// Applies the setting to the hosts of all test networks.
    pub fn apply_to_all_networks(self, bed: &Testbeds) -> anyhow::Result<()> {
        bed.networks_for(RoutersOnPath::Both).try_for_each(|(_, network)| self.apply_to_network(network))
    }

    /// Applies the setting to the hosts of a test network.
    pub fn apply_to_network(self, network: &TestNetwork) -> anyhow::Result<()> {
        for (role, interface) in HOST_INTERFACES {
            let node = network.node_name(role);
            run_for_output(command_in_node(&node, tools::path_of_program("ip")).args([
                "link",
                "set",
                interface,
                "mtu",
                self.mtu(),
            ]))?;
            run_for_output(command_in_node(&node, "sh").args(["-ec", FORGET_PATH_MTUS_COMMANDS]))?;
            let mut rules = String::from("table inet filtered\ndelete table inet filtered\n");
            if self == HostSetting::Deaf {
                rules += "table inet filtered {\nchain input {\ntype filter hook input priority 0;\n\
                          icmpv6 type packet-too-big drop\n}\n}\n";
            }
            let mut nft = command_in_node(&node, tools::path_of_program("nft"));
            run_with_input(nft.args(["-f", "-"]), &rules).with_context(|| format!("nft in node {node}"))?;
        }
        Ok(())
    }
}

/// Runs a command with `input` as its standard input.
pub fn run_with_input(command: &mut Command, input: &str) -> anyhow::Result<()> {
    use std::io::Write;
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // Ignore a broken pipe: if the command ends early, its error output says more.
        let _ = stdin.write_all(input.as_bytes());
    }
    let result = child.wait_with_output()?;
    anyhow::ensure!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr).trim());
    Ok(())
}

/// Returns `up` or `down`.
pub fn direction_name(down: bool) -> String {
    if down { "down" } else { "up" }.into()
}

struct PathMeasurement<'a> {
    path: DataPath,
    network: &'a TestNetwork,
    rates: Vec<f64>,
    retransmits: u64,
    error: Option<String>,
}

fn measure_transfers_in_direction(
    bed: &Testbeds,
    rounds: usize,
    hosts: HostSetting,
    task: TransferTask,
) -> anyhow::Result<Vec<TcpFigure>> {
    let mut lanes: Vec<PathMeasurement<'_>> = bed
        .networks_for(RoutersOnPath::Both)
        .filter(|(path, _)| hosts != HostSetting::LargeIpv4 || path.carries_ipv4())
        .map(|(path, network)| PathMeasurement {
            path,
            network,
            rates: Vec::new(),
            retransmits: 0,
            error: None,
        })
        .collect();
    for round in 0..rounds {
        for turn in 0..lanes.len() {
            let at = (turn + round) % lanes.len();
            let lane = &mut lanes[at];
            if hosts != HostSetting::Fitting {
                hosts.apply_to_network(lane.network)?;
            }
            let address = if hosts == HostSetting::LargeIpv4 {
                CORRESPONDENT_IPV4_ADDRESS
            } else {
                CORRESPONDENT_ADDRESS
            };
            match transfer_to(lane.network, address, task)? {
                Ok(outcome) => {
                    lane.rates.push(outcome.gigabits_per_second);
                    lane.retransmits += outcome.retransmits;
                }
                Err(why) => {
                    lane.rates.push(0.0);
                    lane.error = Some(why);
                }
            }
        }
        bed.check_running()?;
    }
    let plain = lanes
        .iter()
        .find(|lane| lane.path == DataPath::Plain)
        .map(|lane| Series::of_rounds(lane.rates.clone()));
    let figure = |lane: PathMeasurement<'_>| {
        let gbit = Series::of_rounds(lane.rates);
        let base = plain.as_ref().filter(|_| lane.path != DataPath::Plain);
        TcpFigure {
            hosts: hosts.setting_description().into(),
            streams: task.stream_count,
            direction: direction_name(task.to_mobile_network),
            path: lane.path,
            ratio_to_plain: plain.as_ref().and_then(|plain| gbit.ratio_to(plain)),
            ratio_confidence_limits: base.and_then(|plain| gbit.ratios_to(plain).confidence_limits()),
            gbit,
            retransmits: lane.retransmits,
            error: lane.error,
        }
    };
    Ok(lanes.into_iter().map(figure).collect())
}

/// Measures TCP over IPv4 between hosts with MTU 1500. Afterwards the hosts have an MTU that fits the tunnel.
pub fn measure_ipv4_transfers(bed: &Testbeds, plan: &MeasurementPlan) -> anyhow::Result<Vec<TcpFigure>> {
    let mut figures = Vec::new();
    HostSetting::LargeIpv4.apply_to_all_networks(bed)?;
    for down in [false, true] {
        let task = TransferTask {
            stream_count: 1,
            to_mobile_network: down,
            duration_seconds: plan.transfer_seconds,
            bits_per_second: None,
        };
        figures.extend(measure_transfers_in_direction(
            bed,
            plan.transfer_rounds,
            HostSetting::LargeIpv4,
            task,
        )?);
    }
    HostSetting::Fitting.apply_to_all_networks(bed)?;
    console::print_step("TCP over IPv4");
    Ok(figures)
}

/// Measures all paths. Afterwards the hosts have an MTU that fits the tunnel.
pub fn measure_tcp_transfers(bed: &Testbeds, plan: &MeasurementPlan) -> anyhow::Result<Vec<TcpFigure>> {
    let mut figures = Vec::new();
    for hosts in [HostSetting::Large, HostSetting::Deaf, HostSetting::Fitting] {
        let streams: &[usize] = match (hosts, &plan.stream_counts[..]) {
            (HostSetting::Fitting, []) => &[1, 8],
            (HostSetting::Fitting, streams) => streams,
            (_, []) => &[1],
            _ => continue,
        };
        hosts.apply_to_all_networks(bed)?;
        for streams in streams.iter().copied() {
            for down in [false, true] {
                let task = TransferTask {
                    stream_count: streams,
                    to_mobile_network: down,
                    duration_seconds: plan.transfer_seconds,
                    bits_per_second: None,
                };
                figures.extend(measure_transfers_in_direction(bed, plan.transfer_rounds, hosts, task)?);
            }
        }
        console::print_step(&format!("TCP: {}", hosts.setting_description()));
    }
    Ok(figures)
}
