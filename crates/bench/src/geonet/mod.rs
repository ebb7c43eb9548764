//! `carnet-lab bench-geonet`: measures how fast the GeoNetworking router of the real program is.
//!
//! The benchmark measures packets per second of one forwarder (`flood`) and the round trip of a ping
//! (`ping`). It also measures the accuracy of the times of contention-based forwarding (`contention`).
//! Every measurement is repeated in rounds in which all cases take turns. The results contain the medians and
//! all values, and the machine with its load.

mod contention;
mod flood;
mod frame;
mod node;
mod ping;

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

use carnet_testbed::clock::SECOND;
use carnet_testbed::isolate;
use carnet_testbed::machine::{self, MachineDescription};
use carnet_testbed::tools;

/// The command line.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// File for the results.
    #[arg(long, value_name = "FILE", default_value = "out/bench-geonet.json")]
    out: PathBuf,
    /// Path of the carnet program (default: next to carnet-lab, otherwise in PATH).
    #[arg(long, value_name = "PATH")]
    carnet: Option<PathBuf>,
    /// Number of rounds.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Run fewer and shorter rounds, to check that everything works.
    #[arg(long)]
    quick: bool,
    /// Measure only this part.
    #[arg(long, value_enum)]
    only: Option<BenchPart>,
}

/// A part of the bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum BenchPart {
    /// Packets per second.
    Forwarding,
    /// Round-trip times.
    Ping,
    /// Times of contention-based forwarding.
    Contention,
}

/// Content of results.json.
#[derive(Debug, Serialize)]
struct GeonetResults {
    machine: MachineDescription,
    /// Load average of one minute, before and after the run.
    #[serde(rename = "load")]
    load_averages: [f64; 2],
    forwarding: Vec<ForwardingResult>,
    /// Round-trip times of each round.
    ping: Vec<Vec<ping::RoundTripTimes>>,
    /// Contention times of each round.
    #[serde(rename = "contention")]
    contention_delays: Vec<Vec<contention::ForwardingDelays>>,
}

/// Results of one case of the flood over all rounds.
#[derive(Debug, Serialize)]
struct ForwardingResult {
    case: flood::ForwardingCase,
    #[serde(rename = "words")]
    description: &'static str,
    /// Median of the rounds, packets per second.
    #[serde(rename = "throughput")]
    median_throughput: u64,
    /// Median of the rounds, in packets per second of processor time of the forwarder.
    #[serde(rename = "per_core_second")]
    median_packets_per_core_second: u64,
    /// Median of the rounds, packets per second; 0 if every rate lost packets.
    #[serde(rename = "loss_free")]
    median_loss_free_rate: u64,
    rounds: Vec<flood::ForwardingRound>,
}

/// Measures inside the lab's own namespaces.
///
/// # Errors
/// Fails if a measurement is impossible.
pub fn run_geonet_bench(args: &Args) -> anyhow::Result<()> {
    let program = tools::carnet_program(args.carnet.as_deref())?;
    isolate::check_not_below_run_directory("the carnet program", &program)?;
    let before = load_average();
    let (rounds, seconds) = if args.quick { (1, 1) } else { (args.rounds.max(1), 2) };
    let wanted = |part| args.only.is_none_or(|only| only == part);
    flood::build_nodes()?;
    ping::build_nodes()?;
    let (mut measured, mut pings, mut contentions) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        for case in flood::ForwardingCase::ALL_CASES.into_iter().filter(|_| wanted(BenchPart::Forwarding)) {
            let result = flood::measure_case(case, &program, seconds * SECOND)?;
            println!(
                "round {round}: {}: {} packets/s ({} per core second), without loss {}",
                case.case_description(),
                result.throughput.forwarded_packets,
                result.throughput.packets_per_core_second,
                result.loss_free_trial.map_or("never".into(), |trial| trial.forwarded_packets.to_string())
            );
            measured.push(result);
        }
        if wanted(BenchPart::Ping) {
            let times = ping::measure_pings(&program, if args.quick { 100 } else { 1000 })?;
            for row in &times {
                println!(
                    "round {round}: {}: median {:.0} us, 95 % below {:.0} us",
                    row.ping_kind, row.median_us, row.p95_us
                );
            }
            pings.push(times);
        }
        if wanted(BenchPart::Contention) {
            let delays = contention::measure_forwarding_delays(&program, if args.quick { 50 } else { 200 })?;
            for row in &delays {
                println!(
                    "round {round}: contention at {} m: median {:.2} ms, the formula says {:.2} ms ({} of \
                     {})",
                    row.distance_metres,
                    row.median_delay_ms,
                    row.formula_delay_ms,
                    row.forwarded_packets,
                    row.sent_packets
                );
            }
            contentions.push(delays);
        }
    }
    let forwarding = flood::ForwardingCase::ALL_CASES
        .into_iter()
        .map(|case| {
            let rounds: Vec<flood::ForwardingRound> =
                measured.iter().filter(|r| r.case == case).cloned().collect();
            let median_of =
                |value: fn(&flood::ForwardingRound) -> u64| median(rounds.iter().map(value).collect());
            ForwardingResult {
                case,
                description: case.case_description(),
                median_throughput: median_of(|round| round.throughput.forwarded_packets),
                median_packets_per_core_second: median_of(|round| round.throughput.packets_per_core_second),
                median_loss_free_rate: median_of(|round| {
                    round.loss_free_trial.map_or(0, |trial| trial.forwarded_packets)
                }),
                rounds,
            }
        })
        .collect();
    let results = GeonetResults {
        machine: machine::describe_machine(&program, Path::new(".")),
        load_averages: [before, load_average()],
        forwarding,
        ping: pings,
        contention_delays: contentions,
    };
    for row in results.forwarding.iter().filter(|row| !row.rounds.is_empty()) {
        let loss_free = if row.median_loss_free_rate > 0 {
            row.median_loss_free_rate.to_string()
        } else {
            "never".into()
        };
        println!(
            "{:44} {:>9} packets/s, {:>9} per core second, without loss {loss_free:>9}",
            row.description, row.median_throughput, row.median_packets_per_core_second
        );
    }
    if let Some(folder) = args.out.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let text = serde_json::to_string_pretty(&results)?;
    std::fs::write(&args.out, text + "\n").with_context(|| format!("cannot write {}", args.out.display()))?;
    println!(
        "machine: {}, load {before} before; all values: {}",
        results.machine.processor_text(),
        args.out.display()
    );
    Ok(())
}

fn median<T: Ord + Copy + Default>(mut values: Vec<T>) -> T {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Returns a quantile of sorted values.
fn quantile(sorted: &[u64], share: f64) -> u64 {
    sorted.get((sorted.len() as f64 * share) as usize).or(sorted.last()).copied().unwrap_or(0)
}

/// Returns the load average of one minute.
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}
