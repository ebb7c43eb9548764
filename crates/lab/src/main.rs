//! carnet-lab: a testbed of network namespaces that runs the real programs and measures them.
//!
//! `carnet-lab run SCENARIO` builds the network of a scenario, apart from the host and with or without root,
//! and runs `carnet` in its nodes. It sends real traffic while events happen, checks the scenario's
//! expectations, and leaves a report.
#![forbid(unsafe_code)]

mod api;
mod bench;
mod bench_geonet;
mod capture;
mod clock;
mod conformance;
mod console;
mod emulation;
mod eval;
mod expect;
mod isolate;
mod machine;
mod mark;
mod medium;
mod metrics;
mod nat;
mod pki;
mod prepare;
mod process;
mod quota;
mod radio;
mod report;
mod results;
mod run;
mod samples;
mod scenario;
mod station;
mod tools;
mod topology;
mod traffic;
mod trust;
mod values;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

use isolate::{Interrupted, Mode};

/// Runs carnet in a testbed of network namespaces and measures it.
#[derive(Debug, Parser)]
#[command(name = "carnet-lab", version, about, after_help = HELP, disable_help_subcommand = true)]
struct Cli {
    /// The lab inside its namespaces.
    #[arg(long, hide = true, value_enum)]
    inside: Option<Mode>,
    #[command(subcommand)]
    command: Command,
}

const HELP: &str = "\
Examples:
  carnet-lab list                           the scenarios
  carnet-lab run two-uplinks                run one; the report goes to out/two-uplinks
  carnet-lab run two-uplinks --hold         keep the testbed up afterwards, and meanwhile:
  carnet-lab shell two-uplinks mr           look into one of its nodes

Root is not needed where users may make namespaces. Exit status: 0 when every expectation held, 1 when one
did not or something went wrong, 2 for a mistake on the command line, 130 when interrupted.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Build a testbed, run its timetable, judge and report.
    Run(RunArgs),
    /// List the scenarios.
    List {
        /// Folder with the scenarios (default: $CARNET_SCENARIOS, else `scenarios` nearby).
        #[arg(long, value_name = "DIR")]
        scenarios: Option<PathBuf>,
    },
    /// Open a shell, or run a command, in a node of a running testbed.
    Shell {
        /// The scenario that is running.
        scenario: String,
        /// The node.
        node: String,
        /// A command instead of a shell.
        #[arg(trailing_var_arg = true)]
        command: Vec<String>,
    },
    /// Write the report of a results.json again.
    Report {
        /// The results.json.
        results: PathBuf,
        /// The report to write.
        report: PathBuf,
    },
    /// Write the documentation's files from a results.json: SCENARIO.svg, the run against time, and
    /// SCENARIO.json, all data except the curves.
    Figures {
        /// The results.json.
        results: PathBuf,
        /// The folder for the two files.
        folder: PathBuf,
    },
    /// Measure the GeoNetworking router: packets per second that it forwards.
    BenchGeonet(bench_geonet::Args),
    /// Measure the data paths of the tunnel: packets per second, TCP, round-trip times, processor time,
    /// handovers under load, many bindings. Needs root.
    Bench(bench::Args),
    /// Write the tables of a bench.json for documentation.
    BenchTable {
        /// The figures.
        bench: PathBuf,
        /// The file to write; the figures go beside it, as bench.json.
        table: PathBuf,
        /// Another bench.json, whose figures replace the same figures here.
        #[arg(long, value_name = "BENCH")]
        with: Vec<PathBuf>,
    },
    /// Repeat the measurements of papers about mobile routers, beside plain routing, and show them beside the
    /// papers' figures.
    Eval(Box<eval::Args>),
    /// Test an implementation against the clauses of the standards, from outside.
    Conformance(conformance::Args),
    /// Make certificates and keys for signed messages, or list the present ones.
    Pki(pki::Args),
    /// One end of a probe.
    #[command(hide = true)]
    Probe(traffic::probe::ProbeArgs),
    /// A sender to a multicast group, or a listener.
    #[command(hide = true)]
    Multicast(traffic::multicast::MulticastArgs),
    /// An attacker that records frames and sends them again.
    #[command(hide = true)]
    Replay(traffic::replay::ReplayArgs),
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Name of the scenario, or the path of its folder (`./mine`).
    scenario: String,
    /// Folder for report.html, results.json, logs and captures (default: out/SCENARIO).
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The carnet program (default: the one beside carnet-lab, else the one in PATH).
    #[arg(long, value_name = "PATH")]
    carnet: Option<PathBuf>,
    /// Folder with the scenarios (default: $CARNET_SCENARIOS, else `scenarios` nearby).
    #[arg(long, value_name = "DIR")]
    scenarios: Option<PathBuf>,
    /// Shorten the timetable.
    #[arg(long)]
    quick: bool,
    /// Factor of every time in the timetable.
    #[arg(long, value_name = "NUMBER", conflicts_with = "quick")]
    factor: Option<f64>,
    /// Nodes in each series (default: as many as the scenario says).
    #[arg(long, value_name = "COUNT")]
    size: Option<u32>,
    /// Capture packets on every interface.
    #[arg(long)]
    pcap: bool,
    /// Keep the testbed up after the run, until Ctrl-C.
    #[arg(long)]
    hold: bool,
    /// Let the stations log with all details.
    #[arg(long)]
    verbose: bool,
    /// The data path of stations whose config names no path, as `dataplane.path` (docs/config.md).
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Kind of the nodes' radios.
    #[arg(long, value_enum, default_value_t)]
    radio: radio::Kind,
    /// Do not judge times: the machine is emulated, or busy.
    #[arg(long)]
    slow: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match act(&cli) {
        Ok(code) => code,
        Err(e) if e.is::<Interrupted>() => {
            eprintln!("carnet-lab: interrupted; everything is cleaned up");
            ExitCode::from(130)
        }
        Err(e) if e.is::<run::SlowStart>() => ExitCode::from(isolate::AGAIN),
        Err(e) => {
            eprintln!("carnet-lab: {e:#}");
            if e.is::<Mistake>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// An error of the command line that only the scenarios show.
#[derive(Debug)]
struct Mistake(String);

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Mistake {}

fn act(cli: &Cli) -> anyhow::Result<ExitCode> {
    match &cli.command {
        Command::Run(args) => {
            let plan = plan(args, cli.inside.unwrap_or_else(Mode::of_caller))?;
            if cli.inside.is_none() {
                return isolate::enter(plan.mode);
            }
            isolate::settle()?;
            let passed = run::run(&plan)?;
            Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::List { scenarios } => {
            let folder = scenario::folder(scenarios.as_deref())?;
            let mut stdout = io::stdout().lock();
            for name in scenario::names(&folder) {
                let written = match scenario::load(&folder.join(&name), None) {
                    Ok(s) => writeln!(stdout, "{name:24} {}", s.title),
                    Err(e) => writeln!(stdout, "{name:24} cannot be used: {e}"),
                };
                match written {
                    // The reader of the pipe has closed it, as in `carnet-lab list | head`.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
                    written => written?,
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Shell { scenario, node, command } => isolate::shell(scenario, node, command),
        Command::Report { results, report } => {
            let results = read_results(results)?;
            write_file(report, report::html(&results))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Figures { results, folder } => {
            let mut results = read_results(results)?;
            let picture = report::timeline(&results);
            results.series = results::Series::default();
            results.events.clear();
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            let file = |ending| folder.join(format!("{}.{ending}", results.scenario));
            write_file(&file("svg"), picture)?;
            write_file(&file("json"), format!("{}\n", serde_json::to_string_pretty(&results)?))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::BenchGeonet(args) => {
            if cli.inside.is_none() {
                return isolate::enter(Mode::of_caller());
            }
            isolate::settle()?;
            bench_geonet::run(args)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Bench(args) => {
            let mode = cli.inside.unwrap_or_else(Mode::of_caller);
            let (out, carnet) = bench::plan(args, mode)?;
            if cli.inside.is_none() {
                return isolate::enter(mode);
            }
            isolate::settle()?;
            bench::run(args, out, carnet)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::BenchTable { bench, table, with } => {
            let (page, figures) = bench::page(bench, with)?;
            write_file(table, page)?;
            write_file(&table.with_extension("json"), figures)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Eval(args) => {
            if let Some(done) = eval::without_testbed(args)? {
                return Ok(done);
            }
            let mode = cli.inside.unwrap_or_else(Mode::of_caller);
            let plan = eval::plan(args, mode)?;
            if cli.inside.is_none() {
                return isolate::enter(mode);
            }
            isolate::settle()?;
            eval::run(&plan)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Multicast(args) => {
            traffic::multicast::run(args)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Replay(args) => {
            traffic::replay::run(args)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Conformance(args) => {
            conformance::run(args)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Pki(args) => {
            pki::run(args)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Probe(args) => {
            traffic::probe::run(args)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Checks arguments, scenario and tools before a testbed is built.
fn plan(args: &RunArgs, mode: Mode) -> anyhow::Result<run::Plan> {
    let (name, folder) = named(args)?;
    let scenario = scenario::load(&folder, args.size)?;
    let mut used: Vec<(&str, &str)> = args.pcap.then(|| capture::program(mode)).into_iter().collect();
    used.extend(scenario.nodes.values().any(|n| n.nft.is_some()).then_some(("nft", "nftables")));
    used.extend(scenario.links.iter().any(|l| l.emulation.is_some()).then_some(("ethtool", "ethtool")));
    tools::check(&used)?;
    let carnet = tools::carnet(args.carnet.as_deref())?;
    let out = args.out.clone().unwrap_or_else(|| Path::new("out").join(&name));
    std::fs::create_dir_all(&out).with_context(|| {
        format!("cannot make the folder for results, {}; --out names another", out.display())
    })?;
    let out = out.canonicalize()?;
    isolate::visible("the output folder", &out)?;
    isolate::visible("the carnet program", &carnet)?;
    isolate::visible("the scenario", &folder)?;
    Ok(run::Plan {
        name,
        folder,
        carnet,
        out,
        quick: args.quick,
        factor: args.factor,
        size: args.size,
        pcap: args.pcap,
        hold: args.hold,
        verbose: args.verbose,
        path: args.path.clone(),
        radio: args.radio,
        slow: args.slow,
        mode,
    })
}

/// Returns name and folder of the scenario to run. The argument is its name or its folder.
fn named(args: &RunArgs) -> anyhow::Result<(String, PathBuf)> {
    let given = Path::new(&args.scenario);
    if args.scenario.contains('/') {
        if !given.join("scenario.toml").is_file() {
            return Err(Mistake(format!("there is no scenario.toml in {}", given.display())).into());
        }
        let folder = given.canonicalize()?;
        if let Some(name) = folder.file_name().and_then(|name| name.to_str()) {
            return Ok((name.to_owned(), folder.clone()));
        }
    }
    let scenarios = scenario::folder(args.scenarios.as_deref())?;
    let known = scenario::names(&scenarios);
    if !known.contains(&args.scenario) {
        let told = format!("there is no scenario {:?}; there are: {}", args.scenario, known.join(", "));
        return Err(Mistake(told).into());
    }
    Ok((args.scenario.clone(), scenarios.join(&args.scenario)))
}

fn read_results(path: &Path) -> anyhow::Result<results::Results> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is no results.json", path.display()))
}

fn write_file(path: &Path, content: String) -> anyhow::Result<()> {
    std::fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}
