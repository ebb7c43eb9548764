//! Measures the round-trip time of a ping over GeoNetworking, over one hop and over two.
//!
//! Three stations stand in a line. The middle station is at a bridge with two isolated ports, so that the
//! outer stations can reach each other only through it. Beside `carnet gnping` the benchmark measures the
//! kernel's own IPv6 forwarding with `ping` over the same path. The two pings take turns.

use std::path::Path;

use anyhow::{Context, ensure};
use serde::Serialize;
use serde_json::Value;

use super::frame::GeoPosition;
use super::node::{self, CarnetStation};
use super::{median, quantile};
use carnet_testbed::process::{command_in_node, run_for_output, wait_until};
use carnet_testbed::tools;

const PING_NODES: [&str; 3] = ["gn0", "gn1", "gn2"];
/// Positions of the stations, 400 m apart.
const NODE_POSITIONS: [GeoPosition; 3] = [
    GeoPosition { latitude: 488_375_000, longitude: 21_008_000 },
    GeoPosition { latitude: 488_375_000, longitude: 21_062_500 },
    GeoPosition { latitude: 488_375_000, longitude: 21_117_000 },
];
const RADIO_INTERFACES: [&str; 3] = ["radio", "br0", "radio"];

/// Round-trip times of one kind of ping.
#[derive(Debug, Clone, Serialize)]
pub struct RoundTripTimes {
    /// Description of the measurement.
    #[serde(rename = "what")]
    pub ping_kind: &'static str,
    /// Median in microseconds.
    pub median_us: f64,
    /// 95th percentile in microseconds.
    pub p95_us: f64,
    /// Requests sent.
    #[serde(rename = "sent")]
    pub sent_requests: usize,
    /// Answered requests.
    #[serde(rename = "answered")]
    pub answered_requests: usize,
}

/// Builds the nodes and links of the line.
pub fn build_nodes() -> anyhow::Result<()> {
    let mut lines = String::new();
    for node in PING_NODES {
        lines += &format!("netns add {node}\n");
    }
    lines += "-n gn1 link add br0 address 02:00:00:00:b0:01 type bridge mcast_snooping 0\n";
    for (port, node) in [("w", PING_NODES[0]), ("e", PING_NODES[2])] {
        lines += &format!(
            "link add radio netns {node} type veth peer name {port} netns gn1\n\
             -n gn1 link set {port} master br0 up\n\
             -n gn1 link set {port} type bridge_slave isolated on\n\
             -n {node} link set radio up\n"
        );
    }
    lines += "-n gn1 link set br0 up\n";
    for (number, (node, interface)) in PING_NODES.iter().zip(RADIO_INTERFACES).enumerate() {
        lines += &format!("-n {node} addr add fd00::{}/128 dev {interface} nodad\n", number + 1);
    }
    for (node, to, how) in [
        ("gn0", "fd00::2", "dev radio"),
        ("gn0", "fd00::3", "via fd00::2 dev radio"),
        ("gn1", "fd00::1", "dev br0"),
        ("gn1", "fd00::3", "dev br0"),
        ("gn2", "fd00::2", "dev radio"),
        ("gn2", "fd00::1", "via fd00::2 dev radio"),
    ] {
        lines += &format!("-n {node} route add {to}/128 {how}\n");
    }
    node::run_ip_commands(&lines)?;
    // Turn off ICMPv6 redirects. The middle router has both ends on one link, so it would send redirects to a
    // direct path, which the bridge does not allow.
    for (node, interface) in PING_NODES.iter().zip(RADIO_INTERFACES) {
        let script = format!(
            "cd /proc/sys/net/ipv6/conf; echo 1 > all/forwarding; \
             echo 0 > all/accept_redirects; echo 0 > {interface}/accept_redirects"
        );
        run_for_output(command_in_node(node, "sh").args(["-ec", &script]))?;
    }
    Ok(())
}

/// Measures `count` pings of each kind.
pub fn measure_pings(program: &Path, count: usize) -> anyhow::Result<Vec<RoundTripTimes>> {
    let mut stations = Vec::new();
    for ((node, interface), place) in PING_NODES.iter().zip(RADIO_INTERFACES).zip(NODE_POSITIONS) {
        let (latitude, longitude) = place.to_degrees();
        let config = format!(
            "interface = '{interface}'\nposition = 'fixed:{latitude},{longitude}'\n\
             beacon = {{ interval = '500ms', jitter = '100ms' }}\n"
        );
        stations.push(CarnetStation::start(program, node, None, &config)?);
    }
    for (station, neighbours) in stations.iter_mut().zip([1, 2, 1]) {
        station.wait_for_neighbours(neighbours)?;
    }
    let address = |station: &CarnetStation| -> anyhow::Result<String> {
        let status = station.query_json(&["status"])?;
        Ok(status["geonet"]["gn_address"].as_str().context("a station has no address")?.to_owned())
    };
    // Ping until it works, because the kernel's first packets wait for Neighbor Discovery.
    wait_until("the line to stand", 20, &mut [], || {
        Ok(command_in_node(PING_NODES[0], tools::path_of_program("ping"))
            .args(["-6", "-c", "1", "-W", "1", "fd00::3"])
            .output()?
            .status
            .success())
    })?;
    let (middle, east) = (address(&stations[1])?, address(&stations[2])?);
    Ok(vec![
        measure_kernel_ping("ping of the kernel, two hops (baseline)", "fd00::3", count)?,
        measure_gnping("gnping, one hop", &stations[0], &middle, count)?,
        measure_gnping("gnping, two hops", &stations[0], &east, count)?,
    ])
}

fn measure_gnping(
    what: &'static str,
    station: &CarnetStation,
    target: &str,
    count: usize,
) -> anyhow::Result<RoundTripTimes> {
    let number = count.to_string();
    let text = run_for_output(&mut station.carnet_command(&[
        "gnping",
        target,
        "--count",
        &number,
        "--interval",
        "10ms",
    ]))?;
    let times = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|event| event["event"] == "answer")
        .filter_map(|event| event["rtt_ms"].as_f64())
        .collect();
    summarize_round_trips(what, count, times)
}

fn measure_kernel_ping(what: &'static str, target: &str, count: usize) -> anyhow::Result<RoundTripTimes> {
    let mut command = command_in_node(PING_NODES[0], tools::path_of_program("ping"));
    let text = run_for_output(command.args(["-6", "-n", "-i", "0.01", "-c", &count.to_string(), target]))?;
    let times =
        text.lines().filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse().ok()).collect();
    summarize_round_trips(what, count, times)
}

fn summarize_round_trips(
    what: &'static str,
    sent: usize,
    milliseconds: Vec<f64>,
) -> anyhow::Result<RoundTripTimes> {
    ensure!(!milliseconds.is_empty(), "{what}: expected answers to echo requests, received none");
    let mut nanoseconds: Vec<u64> = milliseconds.iter().map(|time| (time * 1e6) as u64).collect();
    nanoseconds.sort_unstable();
    let micro = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
    Ok(RoundTripTimes {
        ping_kind: what,
        median_us: micro(median(nanoseconds.clone())),
        p95_us: micro(quantile(&nanoseconds, 0.95)),
        sent_requests: sent,
        answered_requests: nanoseconds.len(),
    })
}
