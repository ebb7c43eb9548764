//! Measures the processor time for each Gbit/s, at a fixed rate that every path can carry.
//!
//! The figure from `/proc/stat` covers all cores: hosts, routers and the network between them. The load just
//! before the transfer is subtracted. The figure from `/proc/PID/stat` covers the carnet programs alone.

use super::cores::{busy_processor_seconds, process_seconds};
use super::figures::{CpuFigure, Series};
use super::packets::RoutersOnPath;
use super::tcp::direction_name;
use super::transfer::{TransferTask, run_transfer};
use super::{MeasurementPlan, Testbeds};
use carnet_testbed::clock::{self, MILLISECOND, monotonic_now};
use carnet_testbed::console;

/// Rate of the transfer, in bits per second.
const TRANSFER_BITS_PER_SECOND: u64 = 500_000_000;
/// Time in nanoseconds for which the benchmark measures the machine's other load before a transfer.
const WARM_UP_TIME: u64 = 400 * MILLISECOND;

/// Measures the processor time of all paths in both directions.
pub fn measure_processor_time(bed: &Testbeds, plan: &MeasurementPlan) -> anyhow::Result<Vec<CpuFigure>> {
    let mut figures = Vec::new();
    for down in [false, true] {
        let worlds: Vec<_> = bed.networks_for(RoutersOnPath::Both).collect();
        let mut rounds = vec![(Vec::new(), Vec::new(), Vec::new()); worlds.len()];
        for _ in 0..plan.transfer_rounds {
            for ((_, network), (machine, carnet, gbit)) in worlds.iter().zip(&mut rounds) {
                let programs = || -> anyhow::Result<f64> {
                    network.daemons.iter().map(|daemon| process_seconds(daemon.process_id())).sum()
                };
                let (idle, since) = (busy_processor_seconds()?, monotonic_now());
                clock::sleep(WARM_UP_TIME);
                let otherwise = (busy_processor_seconds()? - idle) / ((monotonic_now() - since) as f64 / 1e9);
                let (before, programs_before, start) =
                    (busy_processor_seconds()?, programs()?, monotonic_now());
                let task = TransferTask {
                    stream_count: 1,
                    to_mobile_network: down,
                    duration_seconds: plan.transfer_seconds,
                    bits_per_second: Some(TRANSFER_BITS_PER_SECOND),
                };
                let Ok(outcome) = run_transfer(network, task)? else { continue };
                let elapsed = (monotonic_now() - start) as f64 / 1e9;
                let transferred = outcome.octets as f64 * 8.0 / 1e9;
                if transferred > 0.0 {
                    machine.push((busy_processor_seconds()? - before - otherwise * elapsed) / transferred);
                    carnet.push((programs()? - programs_before) / transferred);
                    gbit.push(outcome.gigabits_per_second);
                }
            }
            bed.check_running()?;
        }
        for ((path, _), (machine, carnet, gbit)) in worlds.iter().zip(rounds) {
            figures.push(CpuFigure {
                path: *path,
                direction: direction_name(down),
                gbit: Series::of_rounds(gbit).median,
                machine: Series::of_rounds(machine),
                carnet: Series::of_rounds(carnet).median,
            });
        }
    }
    console::print_step("processor time");
    Ok(figures)
}
