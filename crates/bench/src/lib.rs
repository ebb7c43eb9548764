//! `carnet-lab bench`: measures how fast the tunnel's data paths are, beside plain forwarding and the
//! kernel's own tunnel.
//!
//! * `world` builds a network with the real programs. `bed` holds one such network for each data path
//!   (`path`), all at the same time.
//! * `packets` measures packets per second, with `sender`, `sink`, `packet` and the closed loop of `flood`;
//!   `bindings` measures them at a home agent with many bindings, `ipv4` those of IPv4 inside the tunnel, and
//!   `ruleset` those with connection tracking.
//! * `registrations` lets very many routers register. A `fleet` simulates the routers, and `updates` encodes
//!   their messages.
//! * `attack` floods a home agent while routers register and packets pass.
//! * `sessions` measures TCP through encrypted tunnels, beside the library alone (`wireguard_end`).
//!   `handshakes` measures very many routers with sessions, and `session_floods` floods the tunnel port.
//!   `session_routers` simulates the routers with carnet's session engine.
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
mod handshakes;
mod ipv4;
pub mod packet;
pub mod packets;
pub mod path;
mod registrations;
pub mod rtt;
mod ruleset;
pub mod sender;
mod session_floods;
mod session_routers;
mod sessions;
pub mod sink;
pub mod table;
mod takeover;
mod targets;
mod tcp;
pub mod transfer;
mod updates;
pub mod wireguard_end;
pub mod world;

use std::path::PathBuf;

use anyhow::{Context, bail};

use bed::Testbeds;
use carnet_testbed::clock::{self, MILLISECOND, SECOND};
use carnet_testbed::isolate::IsolationMode;
use carnet_testbed::{console, isolate, machine, tools};
use cores::{Cores, ProcessorTimeMeter};
use figures::BenchResults;
use path::{DataPath, SessionLane};

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
    only: Vec<BenchPart>,
    /// Measure only these data paths, and plain forwarding.
    #[arg(long, value_delimiter = ',', value_name = "PATH")]
    paths: Vec<DataPath>,
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
    /// Measure only these tunnels in the measurement of encrypted tunnels.
    #[arg(long, value_delimiter = ',', value_name = "TUNNELS")]
    tunnels: Vec<SessionLane>,
    /// Number of rounds, in place of the default.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
}

/// A measurement of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BenchPart {
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
    /// TCP through encrypted tunnels, beside the library alone.
    Sessions,
    /// Many routers with sessions: handshakes, memory, renewals, and a power cut.
    Handshakes,
    /// A home agent whose tunnel port is flooded with handshakes.
    SessionFloods,
    /// Kills one of several machines that serve as home agents together. Runs only with `--only`.
    Takeover,
}

impl BenchPart {
    /// Returns whether the measurement builds its own networks and so needs no [`Testbeds`].
    fn needs_own_network(self) -> bool {
        matches!(
            self,
            BenchPart::Registrations
                | BenchPart::Attack
                | BenchPart::Takeover
                | BenchPart::Sessions
                | BenchPart::Handshakes
                | BenchPart::SessionFloods
        )
    }
}

/// Numbers and durations of the measurements, which depend on the options `--quick` and `--smoke`.
#[derive(Debug, Clone)]
pub struct MeasurementPlan {
    /// Number of rounds of packets.
    pub round_count: usize,
    /// Duration of a round of packets, in nanoseconds.
    pub flood_duration: u64,
    /// Sizes of inner packets in octets.
    pub packet_sizes: Vec<usize>,
    /// Number of echoes through each path.
    pub echo_count: usize,
    /// Number of rounds of TCP.
    pub transfer_rounds: usize,
    /// Numbers of streams between hosts whose MTU fits the tunnel. If the list is not empty, the benchmark
    /// measures no other TCP.
    pub stream_counts: Vec<usize>,
    /// Duration of a transfer in seconds; 0 for a fraction of a second.
    pub transfer_seconds: u64,
    /// Number of handovers; it is even, so that the router ends on its first uplink.
    pub handover_count: usize,
    /// Numbers of bindings.
    pub binding_counts: Vec<u32>,
    /// Sizes of inner packets in octets, in measurements with many bindings.
    pub packet_sizes_with_bindings: Vec<usize>,
    /// Duration of a round with many bindings, in nanoseconds.
    pub binding_flood_duration: u64,
    /// Numbers of routers that register.
    pub router_counts: Vec<u32>,
    /// Numbers of routers with sessions.
    pub session_router_counts: Vec<u32>,
    /// Tunnels in the measurement of encrypted tunnels; all if the list is empty.
    pub session_lanes: Vec<SessionLane>,
    /// Number of renewals of each router.
    pub renewals_per_router: usize,
    /// Number of routers of a home agent that is flooded.
    pub attacked_router_count: u32,
    /// Duration of a flood, in nanoseconds.
    pub attack_duration: u64,
    /// Number of frames per second of a flood.
    pub attack_frames_per_second: f64,
    /// Whether floods of handshakes also run as fast as the sender can.
    pub floods_without_pause: bool,
    /// Number of simulated routers of the machines that are home agents together.
    pub takeover_router_count: u32,
    /// Number of times that the benchmark kills one of the machines that are home agents together.
    pub kill_count: usize,
    /// Number of routers in a series of faults. It is smaller than without faults, because the series takes
    /// longer.
    pub fault_router_count: u32,
    /// Number of faults over each path.
    pub fault_count: u32,
    /// Seed of the faults.
    pub fault_seed: u64,
    /// Number of home agents (seats). For each of them another machine is first in the list of its machines.
    pub seat_count: usize,
    /// Number of etcd servers.
    pub store_server_count: usize,
}

impl Args {
    fn plan(&self) -> MeasurementPlan {
        let mut plan = self.default_plan();
        if !self.sizes.is_empty() {
            plan.packet_sizes.clone_from(&self.sizes);
            plan.packet_sizes_with_bindings.clone_from(&self.sizes);
        }
        if !self.bindings.is_empty() {
            plan.binding_counts.clone_from(&self.bindings);
        }
        if !self.routers.is_empty() {
            plan.router_counts.clone_from(&self.routers);
            plan.session_router_counts.clone_from(&self.routers);
        }
        if let Some(faults) = self.faults {
            plan.fault_count = faults;
        }
        plan.fault_seed = self.seed.unwrap_or_else(|| clock::realtime_now() % 1_000_000);
        plan.session_lanes.clone_from(&self.tunnels);
        plan.stream_counts = self.streams.iter().map(|streams| usize::from(*streams)).collect();
        if let Some(rounds) = self.rounds {
            (plan.round_count, plan.transfer_rounds) = (rounds.into(), rounds.into());
        }
        plan
    }

    fn default_plan(&self) -> MeasurementPlan {
        if self.smoke {
            return MeasurementPlan {
                round_count: 1,
                flood_duration: 20 * MILLISECOND,
                packet_sizes: vec![64, 1250],
                echo_count: 20,
                transfer_rounds: 1,
                stream_counts: Vec::new(),
                transfer_seconds: 0,
                handover_count: 2,
                binding_counts: vec![1, 100],
                packet_sizes_with_bindings: vec![64],
                binding_flood_duration: 20 * MILLISECOND,
                router_counts: vec![300],
                session_lanes: Vec::new(),
                session_router_counts: vec![300],
                renewals_per_router: 1,
                attacked_router_count: 100,
                attack_duration: 300 * MILLISECOND,
                // A rate that a debug build can handle.
                attack_frames_per_second: 2000.0,
                floods_without_pause: false,
                takeover_router_count: 50,
                kill_count: 1,
                fault_router_count: 50,
                fault_count: 10,
                fault_seed: 0,
                seat_count: 1,
                store_server_count: 1,
            };
        }
        if self.quick {
            return MeasurementPlan {
                round_count: 3,
                flood_duration: 60 * MILLISECOND,
                packet_sizes: vec![64, 500, 1250],
                echo_count: 2000,
                transfer_rounds: 1,
                stream_counts: Vec::new(),
                transfer_seconds: 1,
                handover_count: 4,
                binding_counts: vec![1, 10_000],
                packet_sizes_with_bindings: vec![64],
                binding_flood_duration: 60 * MILLISECOND,
                router_counts: vec![10_000],
                session_lanes: Vec::new(),
                session_router_counts: vec![2000],
                renewals_per_router: 1,
                attacked_router_count: 1000,
                attack_duration: 2 * SECOND,
                attack_frames_per_second: 200_000.0,
                floods_without_pause: true,
                takeover_router_count: 1000,
                kill_count: 3,
                fault_router_count: 300,
                fault_count: 20,
                fault_seed: 0,
                seat_count: 3,
                store_server_count: 3,
            };
        }
        MeasurementPlan {
            round_count: 5,
            flood_duration: 250 * MILLISECOND,
            packet_sizes: vec![64, 250, 500, 750, 1000, 1250],
            echo_count: 20_000,
            transfer_rounds: 15,
            stream_counts: Vec::new(),
            transfer_seconds: 1,
            handover_count: 10,
            binding_counts: vec![1, 100, 10_000, 100_000],
            packet_sizes_with_bindings: vec![64, 500],
            binding_flood_duration: 100 * MILLISECOND,
            router_counts: vec![100_000],
            session_lanes: Vec::new(),
            session_router_counts: vec![10_000],
            renewals_per_router: 1,
            attacked_router_count: 1000,
            attack_duration: 10 * SECOND,
            attack_frames_per_second: 200_000.0,
            floods_without_pause: true,
            takeover_router_count: 1000,
            kill_count: 9,
            fault_router_count: 300,
            fault_count: 200,
            fault_seed: 0,
            seat_count: 3,
            store_server_count: 3,
        }
    }

    fn includes_part(&self, part: BenchPart) -> bool {
        (self.only.is_empty() && part != BenchPart::Takeover) || self.only.contains(&part)
    }
}

/// Programs that only the benchmark uses, each with its Debian package.
const NEEDED_TOOLS: [(&str, &str); 2] = [("ethtool", "ethtool"), ("nft", "nftables")];

/// Checks the arguments and tools before the run builds any network. Returns the folder for results and the
/// carnet program.
pub fn check_before_building(args: &Args, mode: IsolationMode) -> anyhow::Result<(PathBuf, PathBuf)> {
    if mode != IsolationMode::Root {
        bail!("the benchmark must load BPF programs into the kernel: run it as root");
    }
    tools::check_programs(&[])?;
    for (program, package) in NEEDED_TOOLS {
        if tools::find_program(program).is_none() {
            bail!("cannot find the program {program}; install it with: apt-get install {package}");
        }
    }
    let carnet = tools::carnet_program(args.carnet.as_deref())?;
    if args.includes_part(BenchPart::Takeover) {
        let fleet = carnet.with_file_name("carnet-fleet");
        if !fleet.is_file() {
            bail!(
                "cannot find the program {}; build it with: cargo build --bin carnet-fleet",
                fleet.display()
            );
        }
        if takeover::find_etcd().is_none() {
            bail!(
                "cannot find the program etcd; install it with: tools/setup.sh bench, or apt-get install \
                 etcd-server"
            );
        }
    }
    std::fs::create_dir_all(args.out.join("logs"))
        .with_context(|| format!("cannot make {}", args.out.display()))?;
    let out = args.out.canonicalize()?;
    isolate::check_not_below_run_directory("the output folder", &out)?;
    isolate::check_not_below_run_directory("the carnet program", &carnet)?;
    Ok((out, carnet))
}

/// Runs the benchmark inside the lab's namespaces.
pub fn run_benchmark(args: &Args, out: PathBuf, carnet: PathBuf) -> anyhow::Result<()> {
    let begin = clock::monotonic_now();
    let plan = args.plan();
    let cores = Cores::of_current_thread()?;
    let watch = ProcessorTimeMeter::begin()?;
    let mut bench = BenchResults {
        machine: machine::describe_machine(&carnet, &std::env::current_dir()?),
        time: clock::format_utc(clock::realtime_now()),
        load_before: cores::load_averages(),
        quick: args.quick || args.smoke,
        core: cores.measuring_core,
        window: flood::MAX_PACKETS_IN_FLIGHT,
        ..BenchResults::default()
    };
    for why in bench.disturbances() {
        console::print_step(&format!("the figures will not be reliable: {why}"));
    }
    cores.pin_to_measuring_core()?;
    let wanted: Vec<DataPath> = DataPath::ALL_PATHS
        .into_iter()
        .filter(|path| args.paths.is_empty() || *path == DataPath::Plain || args.paths.contains(path))
        .collect();
    let programs = world::Programs { carnet_program: carnet, log_folder: out.join("logs") };
    // Build no shared test networks if every selected measurement builds its own.
    let others = args.only.iter().any(|part| !part.needs_own_network()) || args.only.is_empty();
    let in_bed = if others { &wanted[..] } else { &[] };
    let bed = Testbeds::build(in_bed, &programs, &mut bench.paths)?;
    // The construction of the shared test networks has shown which paths this kernel supports. If none were
    // built, take all requested paths.
    let alone: Vec<DataPath> = if others { bed.supported_paths().collect() } else { wanted };
    if args.includes_part(BenchPart::Registrations) {
        bench.registrations = registrations::measure_registrations(&alone, &plan, &programs, &cores)?;
    }
    if args.includes_part(BenchPart::Attack) {
        bench.attacks = attack::measure_attacks(&alone, &plan, &programs, &cores)?;
    }
    if args.includes_part(BenchPart::Takeover) {
        console::print_step(&format!("the seed of all faults is {}", plan.fault_seed));
        (bench.takeovers, bench.faults) = takeover::measure_takeovers(&alone, &plan, &programs, &cores)?;
    }
    if args.includes_part(BenchPart::Handshakes) {
        bench.handshakes = handshakes::measure_handshakes(&plan, &programs, &cores)?;
    }
    if args.includes_part(BenchPart::SessionFloods) {
        bench.session_floods = session_floods::measure_session_floods(&plan, &programs, &cores)?;
    }
    if args.includes_part(BenchPart::Sessions) {
        bench.sessions = sessions::measure_session_speed(&plan, &programs, &cores)?;
    }
    if args.includes_part(BenchPart::Packets) {
        bench.packets = packets::measure_packet_rates(&bed, &plan)?;
    }
    if args.includes_part(BenchPart::Ipv4) {
        bench.ipv4 = ipv4::measure_ipv4_rates(&bed, &plan)?;
    }
    if args.includes_part(BenchPart::Ruleset) {
        bench.ruleset = ruleset::measure_with_ruleset(&bed, &plan)?;
    }
    if args.includes_part(BenchPart::Rtt) {
        bench.rtt = rtt::measure_round_trips(&bed, &plan)?;
    }
    if args.includes_part(BenchPart::Handover) {
        bench.handover = handover::measure_handovers(&bed, &plan, &cores)?;
    }
    if args.includes_part(BenchPart::Bindings) {
        bench.bindings = bindings::measure_many_bindings(&bed, &plan, &programs, &mut bench.starts)?;
    }
    cores.allow_all_cores()?;
    bed.pin_daemons(&cores, false)?;
    if args.includes_part(BenchPart::Tcp) {
        bench.tcp = tcp::measure_tcp_transfers(&bed, &plan)?;
    }
    if args.includes_part(BenchPart::Ipv4) {
        bench.ipv4_tcp = tcp::measure_ipv4_transfers(&bed, &plan)?;
    }
    if args.includes_part(BenchPart::Cpu) {
        tcp::HostSetting::Fitting.apply_to_all_networks(&bed)?;
        bench.cpu = cpu::measure_processor_time(&bed, &plan)?;
    }
    bench.targets = targets::judge_all(&bench);
    bed.stop_stations();
    bench.core_shares_of_others = watch.busy_shares_of_others()?;
    bench.disturbed = bench.disturbances();
    bench.duration_s = (clock::monotonic_now() - begin) as f64 / 1e9;
    let file = out.join("bench.json");
    std::fs::write(&file, format!("{}\n", serde_json::to_string_pretty(&bench)?))
        .with_context(|| format!("cannot write {}", file.display()))?;
    println!("\n{}", table::bench_report(&bench));
    console::print_step(&format!("{:.0} s; {}", bench.duration_s, file.display()));
    Ok(())
}

/// Returns the page for a `bench.json` in the documentation. Results of the runs in `with` replace its own
/// results. Also returns all results as one `bench.json`.
pub fn benchmark_page(file: &std::path::Path, with: &[PathBuf]) -> anyhow::Result<(String, String)> {
    let read = |file: &std::path::Path| -> anyhow::Result<BenchResults> {
        let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is no bench.json", file.display()))
    };
    let mut bench = read(file)?;
    for file in with {
        bench.merge(read(file)?);
    }
    bench.targets = targets::judge_all(&bench);
    let page = format!(
        "# How fast the data paths are\n\n\
         Written by `make bench-figures` from what `make bench` and `make bench-takeover` measured.\n\n{}",
        table::bench_report(&bench)
    );
    Ok((page, serde_json::to_string(&bench)? + "\n"))
}
