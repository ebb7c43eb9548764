//! Measures the processor time for each Gbit/s, at a fixed rate that every path can carry.
//!
//! The figure from `/proc/stat` covers all cores: hosts, routers and the network between them. The load just
//! before the transfer is subtracted. The figure from `/proc/PID/stat` covers the carnet programs alone.

use super::cores::{busy_seconds, process_seconds};
use super::figures::{CpuFigure, Series};
use super::packets::Part;
use super::tcp::direction;
use super::transfer::{TransferTask, transfer};
use super::{Effort, Testbeds};
use carnet_testbed::clock::{self, MILLISECOND, monotonic};
use carnet_testbed::console;

/// Rate of the transfer, in bits per second.
const RATE: u64 = 500_000_000;
/// Time in nanoseconds for which the benchmark measures the machine's other load before a transfer.
const BEFORE: u64 = 400 * MILLISECOND;

/// Measures the processor time of all paths in both directions.
pub fn measure(bed: &Testbeds, effort: &Effort) -> anyhow::Result<Vec<CpuFigure>> {
    let mut figures = Vec::new();
    for down in [false, true] {
        let worlds: Vec<_> = bed.worlds(Part::Both).collect();
        let mut rounds = vec![(Vec::new(), Vec::new(), Vec::new()); worlds.len()];
        for _ in 0..effort.transfers {
            for ((_, world), (machine, carnet, gbit)) in worlds.iter().zip(&mut rounds) {
                let programs = || -> anyhow::Result<f64> {
                    world.daemons.iter().map(|daemon| process_seconds(daemon.id())).sum()
                };
                let (idle, since) = (busy_seconds()?, monotonic());
                clock::sleep(BEFORE);
                let otherwise = (busy_seconds()? - idle) / ((monotonic() - since) as f64 / 1e9);
                let (before, programs_before, start) = (busy_seconds()?, programs()?, monotonic());
                let task = TransferTask { streams: 1, down, seconds: effort.transfer, rate: Some(RATE) };
                let Ok(outcome) = transfer(world, task)? else { continue };
                let elapsed = (monotonic() - start) as f64 / 1e9;
                let transferred = outcome.octets as f64 * 8.0 / 1e9;
                if transferred > 0.0 {
                    machine.push((busy_seconds()? - before - otherwise * elapsed) / transferred);
                    carnet.push((programs()? - programs_before) / transferred);
                    gbit.push(outcome.gbit);
                }
            }
            bed.check_running()?;
        }
        for ((path, _), (machine, carnet, gbit)) in worlds.iter().zip(rounds) {
            figures.push(CpuFigure {
                path: *path,
                direction: direction(down),
                gbit: Series::of(gbit).median,
                machine: Series::of(machine),
                carnet: Series::of(carnet).median,
            });
        }
    }
    console::step("processor time");
    Ok(figures)
}
