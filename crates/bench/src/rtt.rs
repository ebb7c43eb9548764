//! Measures round-trip times of a UDP echo between the host in the mobile network and the correspondent.
//!
//! Each turn sends one echo through each path, many times. All programs run on one core, so that the figures
//! compare work and not the time to wake idle cores. Differences to plain forwarding are computed between
//! echoes of the same turn.

use std::net::{Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};

use super::figures::{RttFigure, Series, median};
use super::packets::RoutersOnPath;
use super::path::DataPath;
use super::world::{CORRESPONDENT_ADDRESS, MOBILE_HOST_ADDRESS, TestNetwork, run_in_node};
use super::{MeasurementPlan, Testbeds};
use carnet_testbed::clock::monotonic_now;
use carnet_testbed::console;
use carnet_testbed::traffic::stats::percentile;

/// Port of the echo protocol (RFC 862).
const ECHO_PORT: u16 = 7;
/// Size of an echo's payload in octets.
const ECHO_PACKET_SIZE: usize = 64;

fn open_udp_socket(network: &TestNetwork, role: &str, address: &str, port: u16) -> anyhow::Result<UdpSocket> {
    let address: Ipv6Addr = address.parse()?;
    let socket = run_in_node(&network.node_name(role), || Ok(UdpSocket::bind((address, port))?))?;
    socket.set_read_timeout(Some(Duration::from_millis(500)))?;
    Ok(socket)
}

fn answer_echoes(socket: &UdpSocket, stop: &AtomicBool) {
    let mut buffer = [0; ECHO_PACKET_SIZE];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((length, peer)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], peer);
        }
    }
}

/// Sends one echo request and returns the round-trip time in nanoseconds; `None` without an answer.
fn measure_echo(socket: &UdpSocket, number: u64) -> anyhow::Result<Option<f64>> {
    let mut buffer = [0; ECHO_PACKET_SIZE];
    buffer[..8].copy_from_slice(&number.to_be_bytes());
    let sent = monotonic_now();
    socket.send(&buffer)?;
    loop {
        let mut heard = [0; ECHO_PACKET_SIZE];
        let Ok(length) = socket.recv(&mut heard) else { return Ok(None) };
        // Skip an answer to an earlier echo, which arrives late.
        if length == ECHO_PACKET_SIZE && heard == buffer {
            return Ok(Some((monotonic_now() - sent) as f64));
        }
    }
}

/// Measures the round-trip times of all paths.
pub fn measure_round_trips(bed: &Testbeds, plan: &MeasurementPlan) -> anyhow::Result<Vec<RttFigure>> {
    let (paths, worlds): (Vec<DataPath>, Vec<&TestNetwork>) = bed.networks_for(RoutersOnPath::Both).unzip();
    let times = measure_in_turns(&worlds, plan.echo_count)?;
    bed.check_running()?;
    let lanes: Vec<(DataPath, Vec<f64>)> = paths.into_iter().zip(times).collect();
    let plain = lanes.iter().find(|(path, _)| *path == DataPath::Plain).map(|(_, times)| times.clone());
    let figures = lanes.into_iter().map(|(path, times)| {
        let added_us = plain.as_ref().map(|plain| {
            let differences = times.iter().zip(plain).map(|(time, plain)| (time - plain) / 2e3).collect();
            Series::of_rounds(differences).median
        });
        let mut sorted = times;
        sorted.sort_by(f64::total_cmp);
        let at = |percent| percentile(&sorted, percent).unwrap_or(0.0) / 1e3;
        RttFigure {
            path,
            count: sorted.len(),
            median_us: median(&sorted) / 1e3,
            p10_us: at(10.0),
            p90_us: at(90.0),
            added_us,
        }
    });
    let figures = figures.collect();
    console::print_step(&format!("round-trip times: {} echoes through each path", plan.echo_count));
    Ok(figures)
}

/// Sends `echoes` echoes through each test network, one network after the other in each turn. Returns the
/// round-trip times of each network in nanoseconds: times with the same index are from the same turn.
pub fn measure_in_turns(worlds: &[&TestNetwork], echoes: usize) -> anyhow::Result<Vec<Vec<f64>>> {
    let stop = AtomicBool::new(false);
    let mut servers = Vec::new();
    let mut clients: Vec<(&str, UdpSocket, Vec<f64>)> = Vec::new();
    for network in worlds {
        servers.push(open_udp_socket(network, "cn", CORRESPONDENT_ADDRESS, ECHO_PORT)?);
        let client = open_udp_socket(network, "mnn", MOBILE_HOST_ADDRESS, 0)?;
        client
            .connect((CORRESPONDENT_ADDRESS.parse::<Ipv6Addr>()?, ECHO_PORT))
            .context("cannot connect a socket")?;
        clients.push((&network.name, client, Vec::new()));
    }
    std::thread::scope(|scope| {
        for server in &servers {
            let stop = &stop;
            scope.spawn(move || answer_echoes(server, stop));
        }
        let result = measure_clients_in_turns(&mut clients, echoes);
        stop.store(true, Ordering::Relaxed);
        result
    })?;
    Ok(clients.into_iter().map(|(.., times)| times).collect())
}

fn measure_clients_in_turns(
    clients: &mut [(&str, UdpSocket, Vec<f64>)],
    echoes: usize,
) -> anyhow::Result<()> {
    let mut lost = 0;
    let mut number = 0;
    while clients.first().is_some_and(|(.., times)| times.len() < echoes) {
        number += 1;
        let mut turn = Vec::new();
        for (network, client, _) in clients.iter() {
            match measure_echo(client, number)? {
                Some(time) => turn.push(time),
                None => {
                    lost += 1;
                    ensure!(
                        lost <= 10 + number / 10,
                        "too many echo requests through {network} are lost: expected at most one in ten"
                    );
                    break;
                }
            }
        }
        // Count only complete turns, and skip the first ten, which fill caches.
        if turn.len() == clients.len() && number > 10 {
            for ((.., times), time) in clients.iter_mut().zip(turn) {
                times.push(time);
            }
        }
    }
    Ok(())
}
