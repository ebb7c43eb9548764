//! Measures what handovers cost while packets flow: lost, duplicated and reordered packets.
//!
//! Both uplinks work. The benchmark moves the mobile router between the uplinks again and again, by operator
//! commands, while numbered packets pass at 70 % of the path's rate. It gives the commands from another core
//! if the machine has one. A run without handovers gives the loss of the path itself.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow};

use super::cores::Cores;
use super::figures::{HandoverFigure, Series};
use super::flood::{WINDOW, flood};
use super::packet::Frame;
use super::packets::{ARRANGEMENTS, Arrangement, Part};
use super::path::Path;
use super::sender::{BATCH, Sender};
use super::sink::{Numbers, Sink};
use super::tcp::direction;
use super::world::World;
use super::{Effort, Testbeds};
use carnet_testbed::clock::{self, MILLISECOND, SECOND, monotonic};
use carnet_testbed::console;
use carnet_testbed::isolate::{Interrupted, has_to_stop};
use carnet_testbed::process::wait_for;
use carnet_testbed::station::Station;

/// Size of the inner packets in octets.
const SIZE: usize = 500;
/// Rate of the stream, as a share of the highest rate without loss.
const SHARE: f64 = 0.7;
/// Time that the sender sleeps between batches, in nanoseconds.
const TICK: u64 = 200_000;
/// Time between two handovers, in nanoseconds.
const PAUSE: u64 = 200 * MILLISECOND;

/// Counts of a stream of numbered packets at a fixed rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    pub sent: u64,
    pub lost: u64,
    pub numbers: Numbers,
    /// Number of packets per second that the sender really sent.
    pub rate: f64,
}

/// Sends numbered packets at a rate until `stop` is set, and waits until the last packet has arrived.
pub(super) fn stream(
    sender: &mut Sender,
    sink: &Sink,
    frame: &Frame,
    rate: f64,
    stop: &AtomicBool,
) -> anyhow::Result<Stream> {
    let mut frames = vec![frame.clone(); BATCH];
    let start = monotonic();
    let (mut sent, mut skipped) = (0_u64, 0_u64);
    while !stop.load(Ordering::Relaxed) {
        let now = monotonic();
        let due = ((now - start) as f64 * rate / 1e9) as u64;
        let mut debt = due.saturating_sub(sent + skipped);
        // If the sender is late, it sends at most one window of packets at once, and skips the others.
        if debt > WINDOW {
            skipped += debt - WINDOW;
            debt = WINDOW;
        }
        while debt > 0 {
            let count = debt.min(BATCH as u64) as usize;
            for (frame, number) in frames.iter_mut().zip(sent..).take(count) {
                frame.number(number as u32);
            }
            let taken = sender.send(&frames, count)? as u64;
            sent += taken;
            debt -= taken.max(1).min(debt);
        }
        clock::sleep_until(now + TICK);
    }
    let elapsed = monotonic() - start;
    let (mut received, mut heard) = (sink.count()?, monotonic());
    while received < sent && monotonic() - heard < 300 * MILLISECOND {
        clock::sleep(5 * MILLISECOND);
        let now = sink.count()?;
        if now > received {
            (received, heard) = (now, monotonic());
        }
    }
    let numbers = sink.numbers()?;
    let first_arrivals = received - numbers.duplicated;
    let rate = sent as f64 * 1e9 / elapsed.max(1) as f64;
    Ok(Stream { sent, lost: sent.saturating_sub(first_arrivals), numbers, rate })
}

/// Moves the router to the other uplink `handovers` times. Waits each time until the router has moved.
fn hand_over(router: &Station, handovers: usize) -> anyhow::Result<()> {
    clock::sleep(PAUSE);
    for number in 0..handovers {
        let to = if number % 2 == 0 { "e1" } else { "e0" };
        router.handover(to, None)?;
        let until = monotonic() + 10 * SECOND;
        while router.active_uplink().as_deref() != Some(to) {
            if has_to_stop() {
                return Err(Interrupted.into());
            }
            anyhow::ensure!(
                monotonic() < until,
                "expected the mobile router {} to move to the uplink {to} within 10 s, but it did not",
                router.node
            );
            clock::sleep(5 * MILLISECOND);
        }
        clock::sleep(PAUSE);
    }
    Ok(())
}

fn one(
    path: Path,
    world: &World,
    arrangement: &Arrangement,
    effort: &Effort,
    cores: &Cores,
) -> anyhow::Result<HandoverFigure> {
    let router = world.stations.last().context("a world of carnet has a mobile router")?;
    let frame = arrangement.frame(path, SIZE)?;
    let mut sender = Sender::in_bursts(world, arrangement.source, &frame)?;
    let sink = Sink::counting_at(world, arrangement.sink)?;
    let mut frames = vec![frame.clone()];
    let mut rates = Vec::new();
    for _ in 0..3 {
        rates.push(flood(&mut sender, &sink, &mut frames, effort.flood, |_, _| {})?.rate());
    }
    drop(sink);
    let highest = Series::of(rates).median;
    let mut steady = |action: &(dyn Fn() -> anyhow::Result<()> + Sync)| -> anyhow::Result<Stream> {
        let sink = Sink::numbered_at(world, arrangement.sink)?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let orders = scope.spawn(|| {
                let result = cores.unpin().and_then(|()| action());
                stop.store(true, Ordering::Relaxed);
                result
            });
            let stream = stream(&mut sender, &sink, &frame, highest * SHARE, &stop);
            // Wait for the thread that orders handovers, even if the sender has failed; it ends by itself.
            orders.join().map_err(|_| {
                anyhow!("bug: the thread that requests handovers from the mobile router panicked")
            })??;
            stream
        })
    };
    let quiet = steady(&|| {
        clock::sleep(effort.handovers as u64 * PAUSE);
        Ok(())
    })?;
    let moved = steady(&|| hand_over(router, effort.handovers))?;
    Ok(HandoverFigure {
        path,
        direction: direction(arrangement.down),
        highest,
        rate: moved.rate,
        handovers: effort.handovers,
        sent: moved.sent,
        lost: moved.lost,
        duplicated: moved.numbers.duplicated,
        reordered: moved.numbers.reordered,
        quiet: [quiet.lost, quiet.numbers.duplicated, quiet.numbers.reordered],
    })
}

/// Measures all paths that use carnet, in both directions. The number of handovers is even, so the mobile
/// router ends on the uplink on which it began.
pub fn measure(bed: &Testbeds, effort: &Effort, cores: &Cores) -> anyhow::Result<Vec<HandoverFigure>> {
    let mut figures = Vec::new();
    for (path, world) in bed.worlds(Part::Both).filter(|(path, _)| path.is_carnet()) {
        for arrangement in ARRANGEMENTS.iter().filter(|one| one.part == Part::Both) {
            figures.push(one(path, world, arrangement, effort, cores)?);
        }
        if let Some(router) = world.stations.last() {
            router.handover("auto", None)?;
            wait_for("uplink e0", 10, &mut [], || Ok(router.active_uplink().as_deref() == Some("e0")))?;
        }
        bed.check_running()?;
        console::step(&format!("handovers through {}", path.name()));
    }
    Ok(figures)
}
