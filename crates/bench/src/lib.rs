//! `carnet-lab bench`: measures how fast the tunnel's data paths are, beside plain forwarding and the
//! kernel's own tunnel.
//!
//! * `world` builds a network with the real programs. `bed` holds one such world for each data path (`path`),
//!   all at the same time.
//! * `packets` measures packets per second, with `sender`, `sink`, `packet` and the closed loop of `flood`;
//!   `bindings` measures them at a home agent with many bindings, `ipv4` those of IPv4 inside the tunnel, and
//!   `ruleset` those with connection tracking.
//! * `registrations` lets very many routers register. A `fleet` simulates the routers, and `updates` encodes
//!   their messages.
//! * `attack` floods a home agent while routers register and packets pass.
//! * `takeover` kills machines of a group of home agents that take over from each other, and causes other
//!   faults.
//! * `tcp`, `rtt`, `cpu` and `handover` measure TCP, round-trip times, processor time and handovers under
//!   load.
//! * `figures` has the results, `table` shows them, `targets` compares them with the targets.
//!
//! The speed of a machine drifts. So the compared paths take turns in many short rounds, and the benchmark
//! computes ratios only between neighbouring rounds. The source passes bursts of single packets to every
//! path, as a network card does (`sender`). Packets, round-trip times and handovers are measured on one core,
//! which sender, routers and sink share: the result is the sum of their work. TCP and processor time use all
//! cores.
#![forbid(unsafe_code)]

mod attack;
mod bed;
mod bindings;
pub mod commands;
pub mod cores;
mod cpu;
pub mod figures;
mod fleet;
pub mod flood;
pub mod geonet;
mod handover;
mod ipv4;
pub mod packet;
pub mod packets;
pub mod path;
mod registrations;
pub mod rtt;
mod ruleset;
pub mod sender;
pub mod sink;
pub mod table;
mod takeover;
mod targets;
mod tcp;
pub mod transfer;
mod updates;
pub mod world;

use std::path::PathBuf;

use anyhow::{Context, bail};

use bed::Testbeds;
use carnet_testbed::clock::{self, MILLISECOND, SECOND};
use carnet_testbed::isolate::IsolationMode;
use carnet_testbed::{console, isolate, machine, tools};
use cores::{Cores, ProcessorTimeWatch};
use figures::Bench;
use path::Path;

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder for bench.json and the logs.
    #[arg(long, value_name = "DIR", default_value = "out/bench")]
    out: PathBuf,
    /// Path of the carnet program (default: next to carnet-lab, otherwise in PATH).
    #[arg(long, value_name = "PATH")]
    carnet: Option<PathBuf>,
    /// Fewer and shorter rounds.
    #[arg(long, conflicts_with = "smoke")]
    quick: bool,
    /// Only check that everything works, with a few packets each; the figures have no meaning.
    #[arg(long)]
    smoke: bool,
    /// Run only these measurements.
    #[arg(long, value_delimiter = ',', value_name = "WHAT")]
    only: Vec<Part>,
    /// Measure only these data paths, and plain forwarding.
    #[arg(long, value_delimiter = ',', value_name = "PATH")]
    paths: Vec<Path>,
    /// Octets of inner packets, in place of the default sizes.
    #[arg(long, value_delimiter = ',', value_name = "OCTETS")]
    sizes: Vec<usize>,
    /// Numbers of bindings, in place of the default numbers.
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    bindings: Vec<u32>,
    /// Numbers of routers that register, in place of the default number.
    #[arg(long, value_delimiter = ',', value_name = "NUMBER\
        S", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    routers: Vec<u32>,
    /// Number of faults per path for machines that are home agents together, in place of the default; 0 for
    /// none.
    #[arg(long, value_name = "NUMBER")]
    faults: Option<u32>,
    /// Seed of the random faults, as printed by an earlier run (default: a new seed for each run).
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Numbers of TCP streams between hosts whose MTU fits the tunnel. Measures no other TCP.
    #[arg(long, value_delimiter = ',', value_name = "NUMBER\
        S", value_parser = clap::value_parser!(u16).range(1..=128))]
    streams: Vec<u16>,
    /// Number of rounds, in place of the default.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
}

/// A measurement of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Packets per second.
    Packets,
    /// Round-trip times.
    Rtt,
    /// TCP.
    Tcp,
    /// IPv4 inside the tunnel: packets per second beside IPv6, and TCP.
    Ipv4,
    /// Packets per second with a ruleset and connection tracking in the routers.
    Ruleset,
    /// Processor time.
    Cpu,
    /// Handovers under load.
    Handover,
    /// A home agent with many bindings.
    Bindings,
    /// Many routers that register.
    Registrations,
    /// A home agent that is flooded.
    Attack,
    /// Kills one of several machines that serve as home agents together. Runs only with `--only`.
    Takeover,
}

impl Part {
    /// Returns whether the measurement builds its own networks and so needs no [`Testbeds`].
    fn is_alone(self) -> bool {
        matches!(self, Part::Registrations | Part::Attack | Part::Takeover)
    }
}

/// Numbers and durations of the benchmark's measurements.
#[derive(Debug, Clone)]
pub struct Effort {
    /// Number of rounds of packets.
    pub rounds: usize,
    /// Duration of a round of packets, in nanoseconds.
    pub flood: u64,
    /// Sizes of inner packets in octets.
    pub sizes: Vec<usize>,
    /// Number of echoes through each path.
    pub echoes: usize,
    /// Number of rounds of TCP.
    pub transfers: usize,
    /// Numbers of streams between hosts whose MTU fits the tunnel. If the list is not empty, the benchmark
    /// measures no other TCP.
    pub streams: Vec<usize>,
    /// Duration of a transfer in seconds; 0 for a fraction of a second.
    pub transfer: u64,
    /// Number of handovers; it is even, so that the router ends on its first uplink.
    pub handovers: usize,
    /// Numbers of bindings.
    pub bindings: Vec<u32>,
    /// Sizes of inner packets in octets, in measurements with many bindings.
    pub bindings_sizes: Vec<usize>,
    /// Duration of a round with many bindings, in nanoseconds.
    pub bindings_flood: u64,
    /// Numbers of routers that register.
    pub routers: Vec<u32>,
    /// Number of renewals of each router.
    pub refreshes: usize,
    /// Number of routers of a home agent that is flooded.
    pub attacked: u32,
    /// Duration of a flood, in nanoseconds.
    pub attack: u64,
    /// Number of frames per second of a flood.
    pub attack_rate: f64,
    /// Number of routers of machines that are home agents together.
    pub carried: u32,
    /// Number of times that the benchmark kills one of the machines that are home agents together.
    pub kills: usize,
    /// Number of routers in a series of faults; smaller, because the series takes longer.
    pub troubled: u32,
    /// Number of faults over each path.
    pub faults: u32,
    /// Seed of the faults.
    pub seed: u64,
    /// Number of home agents. Each has another machine as its first choice.
    pub seats: usize,
    /// Number of etcd servers.
    pub stores: usize,
}

impl Args {
    fn effort(&self) -> Effort {
        let mut effort = self.usual_effort();
        if !self.sizes.is_empty() {
            effort.sizes.clone_from(&self.sizes);
            effort.bindings_sizes.clone_from(&self.sizes);
        }
        if !self.bindings.is_empty() {
            effort.bindings.clone_from(&self.bindings);
        }
        if !self.routers.is_empty() {
            effort.routers.clone_from(&self.routers);
        }
        if let Some(faults) = self.faults {
            effort.faults = faults;
        }
        effort.seed = self.seed.unwrap_or_else(|| clock::realtime() % 1_000_000);
        effort.streams = self.streams.iter().map(|streams| usize::from(*streams)).collect();
        if let Some(rounds) = self.rounds {
            (effort.rounds, effort.transfers) = (rounds.into(), rounds.into());
        }
        effort
    }

    fn usual_effort(&self) -> Effort {
        if self.smoke {
            return Effort {
                rounds: 1,
                flood: 20 * MILLISECOND,
                sizes: vec![64, 1250],
                echoes: 20,
                transfers: 1,
                streams: Vec::new(),
                transfer: 0,
                handovers: 2,
                bindings: vec![1, 100],
                bindings_sizes: vec![64],
                bindings_flood: 20 * MILLISECOND,
                routers: vec![300],
                refreshes: 1,
                attacked: 100,
                attack: 300 * MILLISECOND,
                // A rate that a debug build can handle.
                attack_rate: 2000.0,
                carried: 50,
                kills: 1,
                troubled: 50,
                faults: 10,
                seed: 0,
                seats: 1,
                stores: 1,
            };
        }
        if self.quick {
            return Effort {
                rounds: 3,
                flood: 60 * MILLISECOND,
                sizes: vec![64, 500, 1250],
                echoes: 2000,
                transfers: 1,
                streams: Vec::new(),
                transfer: 1,
                handovers: 4,
                bindings: vec![1, 10_000],
                bindings_sizes: vec![64],
                bindings_flood: 60 * MILLISECOND,
                routers: vec![10_000],
                refreshes: 1,
                attacked: 1000,
                attack: 2 * SECOND,
                attack_rate: 200_000.0,
                carried: 1000,
                kills: 3,
                troubled: 300,
                faults: 20,
                seed: 0,
                seats: 3,
                stores: 3,
            };
        }
        Effort {
            rounds: 5,
            flood: 250 * MILLISECOND,
            sizes: vec![64, 250, 500, 750, 1000, 1250],
            echoes: 20_000,
            transfers: 15,
            streams: Vec::new(),
            transfer: 1,
            handovers: 10,
            bindings: vec![1, 100, 10_000, 100_000],
            bindings_sizes: vec![64, 500],
            bindings_flood: 100 * MILLISECOND,
            routers: vec![100_000],
            refreshes: 1,
            attacked: 1000,
            attack: 10 * SECOND,
            attack_rate: 200_000.0,
            carried: 1000,
            kills: 9,
            troubled: 300,
            faults: 200,
            seed: 0,
            seats: 3,
            stores: 3,
        }
    }

    fn has(&self, part: Part) -> bool {
        (self.only.is_empty() && part != Part::Takeover) || self.only.contains(&part)
    }
}

/// Programs that only the benchmark uses, each with its Debian package.
const TOOLS: [(&str, &str); 2] = [("ethtool", "ethtool"), ("nft", "nftables")];

/// Checks the arguments and tools before the run builds any network. Returns the folder for results and the
/// carnet program.
pub fn plan(args: &Args, mode: IsolationMode) -> anyhow::Result<(PathBuf, PathBuf)> {
    if mode != IsolationMode::Root {
        bail!("the benchmark must load BPF programs into the kernel: run it as root");
    }
    tools::check_programs(&[])?;
    for (program, package) in TOOLS {
        if tools::find_program(program).is_none() {
            bail!("cannot find the program {program}; install it with: apt-get install {package}");
        }
    }
    let carnet = tools::carnet_program(args.carnet.as_deref())?;
    if args.has(Part::Takeover) {
        let fleet = carnet.with_file_name("carnet-fleet");
        if !fleet.is_file() {
            bail!(
                "cannot find the program {}; build it with: cargo build --bin carnet-fleet",
                fleet.display()
            );
        }
        if takeover::etcd().is_none() {
            bail!(
                "cannot find the program etcd; install it with: tools/setup.sh bench, or apt-get install \
                 etcd-server"
            );
        }
    }
    std::fs::create_dir_all(args.out.join("logs"))
        .with_context(|| format!("cannot make {}", args.out.display()))?;
    let out = args.out.canonicalize()?;
    isolate::check_not_below_run("the output folder", &out)?;
    isolate::check_not_below_run("the carnet program", &carnet)?;
    Ok((out, carnet))
}

/// Runs the benchmark inside the lab's namespaces.
pub fn run(args: &Args, out: PathBuf, carnet: PathBuf) -> anyhow::Result<()> {
    let begin = clock::monotonic();
    let effort = args.effort();
    let cores = Cores::of_caller()?;
    let watch = ProcessorTimeWatch::begin()?;
    let mut bench = Bench {
        machine: machine::describe(&carnet, &std::env::current_dir()?),
        time: clock::utc(clock::realtime()),
        load_before: cores::load(),
        quick: args.quick || args.smoke,
        core: cores.measuring_core,
        window: flood::WINDOW,
        ..Bench::default()
    };
    for why in bench.disturbances() {
        console::step(&format!("the figures will not be reliable: {why}"));
    }
    cores.pin()?;
    let wanted: Vec<Path> = Path::ALL
        .into_iter()
        .filter(|path| args.paths.is_empty() || *path == Path::Plain || args.paths.contains(path))
        .collect();
    let programs = world::Programs { carnet, logs: out.join("logs") };
    // Build no bed if every selected measurement builds its own networks.
    let others = args.only.iter().any(|part| !part.is_alone()) || args.only.is_empty();
    let in_bed = if others { &wanted[..] } else { &[] };
    let bed = Testbeds::build(in_bed, &programs, &mut bench.paths)?;
    // The bed knows which paths this kernel supports.
    let alone: Vec<Path> = if others { bed.paths().collect() } else { wanted };
    if args.has(Part::Registrations) {
        bench.registrations = registrations::measure(&alone, &effort, &programs, &cores)?;
    }
    if args.has(Part::Attack) {
        bench.attacks = attack::measure(&alone, &effort, &programs, &cores)?;
    }
    if args.has(Part::Takeover) {
        console::step(&format!("the seed of all faults is {}", effort.seed));
        (bench.takeovers, bench.faults) = takeover::measure(&alone, &effort, &programs, &cores)?;
    }
    if args.has(Part::Packets) {
        bench.packets = packets::measure(&bed, &effort)?;
    }
    if args.has(Part::Ipv4) {
        bench.ipv4 = ipv4::measure(&bed, &effort)?;
    }
    if args.has(Part::Ruleset) {
        bench.ruleset = ruleset::measure(&bed, &effort)?;
    }
    if args.has(Part::Rtt) {
        bench.rtt = rtt::measure(&bed, &effort)?;
    }
    if args.has(Part::Handover) {
        bench.handover = handover::measure(&bed, &effort, &cores)?;
    }
    if args.has(Part::Bindings) {
        bench.bindings = bindings::measure(&bed, &effort, &programs, &mut bench.starts)?;
    }
    cores.unpin()?;
    bed.pin(&cores, false)?;
    if args.has(Part::Tcp) {
        bench.tcp = tcp::measure(&bed, &effort)?;
    }
    if args.has(Part::Ipv4) {
        bench.ipv4_tcp = tcp::measure_ipv4(&bed, &effort)?;
    }
    if args.has(Part::Cpu) {
        tcp::Hosts::Fitting.set_all(&bed)?;
        bench.cpu = cpu::measure(&bed, &effort)?;
    }
    bench.targets = targets::judge(&bench);
    bed.stop();
    bench.others = watch.shares_of_others()?;
    bench.disturbed = bench.disturbances();
    bench.duration_s = (clock::monotonic() - begin) as f64 / 1e9;
    let file = out.join("bench.json");
    std::fs::write(&file, format!("{}\n", serde_json::to_string_pretty(&bench)?))
        .with_context(|| format!("cannot write {}", file.display()))?;
    println!("\n{}", table::text(&bench));
    console::step(&format!("{:.0} s; {}", bench.duration_s, file.display()));
    Ok(())
}

/// Returns the page for a `bench.json` in the documentation. Results of the runs in `with` replace its own
/// results. Also returns all results as one `bench.json`.
pub fn page(file: &std::path::Path, with: &[PathBuf]) -> anyhow::Result<(String, String)> {
    let read = |file: &std::path::Path| -> anyhow::Result<Bench> {
        let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is no bench.json", file.display()))
    };
    let mut bench = read(file)?;
    for file in with {
        bench.merge(read(file)?);
    }
    bench.targets = targets::judge(&bench);
    let page = format!(
        "# How fast the data paths are\n\n\
         Written by `make bench-figures` from what `make bench` and `make bench-takeover` measured.\n\n{}",
        table::text(&bench)
    );
    Ok((page, serde_json::to_string(&bench)? + "\n"))
}
