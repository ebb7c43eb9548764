//! Measures what handovers cost while packets flow: lost, duplicated and reordered packets.
//!
//! Both uplinks work. The benchmark moves the mobile router between the uplinks again and again, by operator
//! commands, while numbered packets pass at 70 % of the path's rate. It gives the commands from another core
//! if the machine has one. A run without handovers gives the loss of the path itself.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow};

use super::cores::Cores;
use super::figures::{HandoverFigure, Series};
use super::flood::{MAX_PACKETS_IN_FLIGHT, send_packet_flood};
use super::packet::Frame;
use super::packets::{FLOW_ARRANGEMENTS, FlowArrangement, RoutersOnPath};
use super::path::DataPath;
use super::sender::{FRAMES_PER_BATCH, PacketSource};
use super::sink::{NumberedPacketCounts, PacketSink};
use super::tcp::direction_name;
use super::world::TestNetwork;
use super::{MeasurementPlan, Testbeds};
use carnet_testbed::clock::{self, MILLISECOND, SECOND, monotonic_now};
use carnet_testbed::console;
use carnet_testbed::isolate::{Interrupted, has_to_stop};
use carnet_testbed::process::wait_until;
use carnet_testbed::station::Station;

/// Size of the inner packets in octets.
const PACKET_SIZE: usize = 500;
/// Rate of the stream, as a share of the highest rate without loss.
const RATE_SHARE: f64 = 0.7;
/// Time that the sender sleeps between batches, in nanoseconds.
const SEND_INTERVAL: u64 = 200_000;
/// Time between two handovers, in nanoseconds.
const PAUSE_BETWEEN_HANDOVERS: u64 = 200 * MILLISECOND;

/// Counts of a stream of numbered packets at a fixed rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamResult {
    pub sent_packets: u64,
    pub lost_packets: u64,
    pub numbered_packet_counts: NumberedPacketCounts,
    /// Number of packets per second that the sender really sent.
    pub packets_per_second: f64,
}

/// Sends numbered packets at a rate until `stop` is set, and waits until the last packet has arrived.
pub(super) fn send_stream(
    sender: &mut PacketSource,
    sink: &PacketSink,
    frame: &Frame,
    rate: f64,
    stop: &AtomicBool,
) -> anyhow::Result<StreamResult> {
    let mut frames = vec![frame.clone(); FRAMES_PER_BATCH];
    let start = monotonic_now();
    let (mut sent, mut skipped) = (0_u64, 0_u64);
    while !stop.load(Ordering::Relaxed) {
        let now = monotonic_now();
        let due = ((now - start) as f64 * rate / 1e9) as u64;
        let mut debt = due.saturating_sub(sent + skipped);
        // If the sender is late, it sends at most one window of packets at once, and skips the others.
        if debt > MAX_PACKETS_IN_FLIGHT {
            skipped += debt - MAX_PACKETS_IN_FLIGHT;
            debt = MAX_PACKETS_IN_FLIGHT;
        }
        while debt > 0 {
            let count = debt.min(FRAMES_PER_BATCH as u64) as usize;
            for (frame, number) in frames.iter_mut().zip(sent..).take(count) {
                frame.set_packet_number(number as u32);
            }
            let taken = sender.send_frames(&frames, count)? as u64;
            sent += taken;
            debt -= taken.max(1).min(debt);
        }
        clock::sleep_until(now + SEND_INTERVAL);
    }
    let elapsed = monotonic_now() - start;
    let (mut received, mut heard) = (sink.received_packets()?, monotonic_now());
    while received < sent && monotonic_now() - heard < 300 * MILLISECOND {
        clock::sleep(5 * MILLISECOND);
        let now = sink.received_packets()?;
        if now > received {
            (received, heard) = (now, monotonic_now());
        }
    }
    let numbers = sink.numbered_packet_counts()?;
    let first_arrivals = received - numbers.duplicated_packets;
    let rate = sent as f64 * 1e9 / elapsed.max(1) as f64;
    Ok(StreamResult {
        sent_packets: sent,
        lost_packets: sent.saturating_sub(first_arrivals),
        numbered_packet_counts: numbers,
        packets_per_second: rate,
    })
}

/// Moves the router to the other uplink `handovers` times. Waits each time until the router has moved.
fn perform_handovers(router: &Station, handovers: usize) -> anyhow::Result<()> {
    clock::sleep(PAUSE_BETWEEN_HANDOVERS);
    for number in 0..handovers {
        let to = if number % 2 == 0 { "e1" } else { "e0" };
        router.command_handover(to, None)?;
        let until = monotonic_now() + 10 * SECOND;
        while router.active_uplink().as_deref() != Some(to) {
            if has_to_stop() {
                return Err(Interrupted.into());
            }
            anyhow::ensure!(
                monotonic_now() < until,
                "expected the mobile router {} to move to the uplink {to} within 10 s, but it did not",
                router.node
            );
            clock::sleep(5 * MILLISECOND);
        }
        clock::sleep(PAUSE_BETWEEN_HANDOVERS);
    }
    Ok(())
}

fn measure_handovers_in_direction(
    path: DataPath,
    network: &TestNetwork,
    arrangement: &FlowArrangement,
    plan: &MeasurementPlan,
    cores: &Cores,
) -> anyhow::Result<HandoverFigure> {
    let router = network.stations.last().context("a network with carnet has a mobile router")?;
    let frame = arrangement.build_frame(path, PACKET_SIZE)?;
    let mut sender = PacketSource::for_bursts(network, arrangement.source, &frame)?;
    let sink = PacketSink::attach_counting(network, arrangement.sink)?;
    let mut frames = vec![frame.clone()];
    let mut rates = Vec::new();
    for _ in 0..3 {
        rates.push(
            send_packet_flood(&mut sender, &sink, &mut frames, plan.flood_duration, |_, _| {})?
                .packets_per_second(),
        );
    }
    drop(sink);
    let highest = Series::of_rounds(rates).median;
    let mut steady = |action: &(dyn Fn() -> anyhow::Result<()> + Sync)| -> anyhow::Result<StreamResult> {
        let sink = PacketSink::attach_reading_numbers(network, arrangement.sink)?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let orders = scope.spawn(|| {
                let result = cores.allow_all_cores().and_then(|()| action());
                stop.store(true, Ordering::Relaxed);
                result
            });
            let stream = send_stream(&mut sender, &sink, &frame, highest * RATE_SHARE, &stop);
            // Wait for the thread that orders handovers, even if the sender has failed; this thread ends by
            // itself.
            orders.join().map_err(|_| {
                anyhow!("bug: the thread that requests handovers from the mobile router panicked")
            })??;
            stream
        })
    };
    let quiet = steady(&|| {
        clock::sleep(plan.handover_count as u64 * PAUSE_BETWEEN_HANDOVERS);
        Ok(())
    })?;
    let moved = steady(&|| perform_handovers(router, plan.handover_count))?;
    Ok(HandoverFigure {
        path,
        direction: direction_name(arrangement.to_mobile_network),
        highest,
        rate: moved.packets_per_second,
        handovers: plan.handover_count,
        sent: moved.sent_packets,
        lost: moved.lost_packets,
        duplicated: moved.numbered_packet_counts.duplicated_packets,
        reordered: moved.numbered_packet_counts.reordered_packets,
        quiet: [
            quiet.lost_packets,
            quiet.numbered_packet_counts.duplicated_packets,
            quiet.numbered_packet_counts.reordered_packets,
        ],
    })
}

/// Measures all paths that use carnet, in both directions. The number of handovers is even, so the mobile
/// router ends on the uplink on which it began.
pub fn measure_handovers(
    bed: &Testbeds,
    plan: &MeasurementPlan,
    cores: &Cores,
) -> anyhow::Result<Vec<HandoverFigure>> {
    let mut figures = Vec::new();
    for (path, network) in bed.networks_for(RoutersOnPath::Both).filter(|(path, _)| path.uses_carnet()) {
        for arrangement in FLOW_ARRANGEMENTS.iter().filter(|one| one.routers_on_path == RoutersOnPath::Both) {
            figures.push(measure_handovers_in_direction(path, network, arrangement, plan, cores)?);
        }
        if let Some(router) = network.stations.last() {
            router.command_handover("auto", None)?;
            wait_until("uplink e0", 10, &mut [], || Ok(router.active_uplink().as_deref() == Some("e0")))?;
        }
        bed.check_running()?;
        console::print_step(&format!("handovers through {}", path.name()));
    }
    Ok(figures)
}
