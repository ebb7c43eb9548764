//! The commands that a program mounts to play scenarios.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;

use crate::isolate::{self, IsolationMode};
use crate::{capture, conformance, dhcp, pki, radio, report, results, run, scenario, tools, traffic};

/// A command of the testbed.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Build a testbed, run its timetable, judge and report.
    Run(RunArgs),
    /// List the scenarios.
    List {
        /// Folder of the scenarios (default: $CARNET_SCENARIOS, otherwise the folder `scenarios` nearest to
        /// the working folder).
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
    /// Write the report of an earlier run again, from its results.json.
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
        /// Folder for the two files that the command writes.
        folder: PathBuf,
    },
    /// Test an implementation against the clauses of the standards, from outside.
    #[command(display_order = HELP_POSITION_AFTER_OTHER_CRATES)]
    Conformance(conformance::ConformanceArgs),
    /// Make certificates and keys for signed messages, or list those in a folder.
    #[command(display_order = HELP_POSITION_AFTER_OTHER_CRATES)]
    Pki(pki::PkiArgs),
    /// Run one end of a one-way probe; the lab starts this command itself.
    #[command(hide = true)]
    Probe(traffic::probe::ProbeArgs),
    /// A sender to a multicast group, or a listener.
    #[command(hide = true)]
    Multicast(traffic::multicast::MulticastArgs),
    /// Run an attacker that records frames and sends them again; the lab starts this command itself.
    #[command(hide = true)]
    Replay(traffic::replay::ReplayArgs),
}

/// Position of these commands in the program's help: after the commands of other crates.
const HELP_POSITION_AFTER_OTHER_CRATES: usize = 100;

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Name of the scenario, or the path of its folder (`./mine`).
    scenario: String,
    /// Folder for report.html, results.json, logs and captures (default: out/SCENARIO).
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Path of the carnet program (default: next to carnet-lab, otherwise in PATH).
    #[arg(long, value_name = "PATH")]
    carnet: Option<PathBuf>,
    /// Folder of the scenarios (default: $CARNET_SCENARIOS, otherwise the folder `scenarios` nearest to the
    /// working folder).
    #[arg(long, value_name = "DIR")]
    scenarios: Option<PathBuf>,
    /// Shorten the timetable.
    #[arg(long)]
    quick: bool,
    /// Factor of every time in the timetable.
    #[arg(long, value_name = "NUMBER", conflicts_with = "quick")]
    factor: Option<f64>,
    /// Number of nodes in each series of the scenario (default: the scenario's own number).
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
    radio: radio::RadioKind,
    /// Do not judge times: the machine is emulated, or busy.
    #[arg(long)]
    slow: bool,
}

/// An error of the command line that the lab finds only when it reads the scenarios.
#[derive(Debug)]
pub struct CommandLineError(pub String);

impl std::fmt::Display for CommandLineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CommandLineError {}

impl Command {
    /// Runs the command and returns the exit status of the program. `inside` is the isolation mode of a lab
    /// that already runs inside its namespaces; `None` outside of them.
    pub fn execute(&self, inside: Option<IsolationMode>) -> anyhow::Result<ExitCode> {
        match self {
            Command::Run(args) => {
                let plan = plan(args, inside.unwrap_or_else(IsolationMode::of_caller))?;
                if inside.is_none() {
                    return isolate::run_isolated(plan.mode);
                }
                isolate::start_inner_lab()?;
                let passed = run::run(&plan)?;
                Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
            }
            Command::List { scenarios } => {
                let folder = scenario::scenarios_folder(scenarios.as_deref())?;
                let mut stdout = io::stdout().lock();
                for name in scenario::scenario_names(&folder) {
                    let written = match scenario::load_scenario(&folder.join(&name), None) {
                        Ok(s) => writeln!(stdout, "{name:24} {}", s.title),
                        Err(e) => writeln!(stdout, "{name:24} cannot be used: {e}"),
                    };
                    match written {
                        // The reader has closed the pipe, as in `carnet-lab list | head`.
                        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
                        written => written?,
                    }
                }
                Ok(ExitCode::SUCCESS)
            }
            Command::Shell { scenario, node, command } => isolate::open_node_shell(scenario, node, command),
            Command::Report { results, report } => {
                let results = read_results(results)?;
                write_file(report, report::html_report(&results))?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Figures { results, folder } => {
                let mut results = read_results(results)?;
                let picture = report::timeline_picture(&results);
                results.series = results::Series::default();
                results.events.clear();
                std::fs::create_dir_all(folder)
                    .with_context(|| format!("cannot make {}", folder.display()))?;
                let file = |ending| folder.join(format!("{}.{ending}", results.scenario));
                write_file(&file("svg"), picture)?;
                write_file(&file("json"), format!("{}\n", serde_json::to_string_pretty(&results)?))?;
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
                traffic::probe::run_probe(args)?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Multicast(args) => {
                traffic::multicast::run(args)?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Replay(args) => {
                traffic::replay::run_replay(args)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Checks arguments, scenario and tools before a testbed is built.
fn plan(args: &RunArgs, mode: IsolationMode) -> anyhow::Result<run::RunPlan> {
    let (name, folder) = scenario_name_and_folder(args)?;
    let scenario = scenario::load_scenario(&folder, args.size)?;
    let mut used: Vec<(&str, &str)> = args.pcap.then(|| capture::capture_program(mode)).into_iter().collect();
    used.extend(scenario.nodes.values().any(|n| n.nft.is_some()).then_some(("nft", "nftables")));
    used.extend(scenario.links.iter().any(|l| l.emulation.is_some()).then_some(("ethtool", "ethtool")));
    used.extend(scenario.nodes.values().any(|n| n.dhcp.is_some()).then_some(dhcp::DHCP_CLIENT));
    tools::check_programs(&used)?;
    let carnet = tools::carnet_program(args.carnet.as_deref())?;
    let out = args.out.clone().unwrap_or_else(|| Path::new("out").join(&name));
    std::fs::create_dir_all(&out).with_context(|| {
        format!("cannot make the results folder {}; choose another with --out", out.display())
    })?;
    let out = out.canonicalize()?;
    isolate::check_not_below_run_directory("the output folder", &out)?;
    isolate::check_not_below_run_directory("the carnet program", &carnet)?;
    isolate::check_not_below_run_directory("the scenario", &folder)?;
    Ok(run::RunPlan {
        name,
        folder,
        carnet,
        out,
        is_quick: args.quick,
        time_factor: args.factor,
        series_size: args.size,
        captures_packets: args.pcap,
        hold_until_ctrl_c: args.hold,
        verbose: args.verbose,
        data_path: args.path.clone(),
        radio: args.radio,
        is_slow_machine: args.slow,
        mode,
    })
}

/// Returns name and folder of the scenario to run. The argument is its name or its folder.
fn scenario_name_and_folder(args: &RunArgs) -> anyhow::Result<(String, PathBuf)> {
    let given = Path::new(&args.scenario);
    if args.scenario.contains('/') {
        if !given.join("scenario.toml").is_file() {
            return Err(CommandLineError(format!("there is no scenario.toml in {}", given.display())).into());
        }
        let folder = given.canonicalize()?;
        if let Some(name) = folder.file_name().and_then(|name| name.to_str()) {
            return Ok((name.to_owned(), folder.clone()));
        }
    }
    let scenarios = scenario::scenarios_folder(args.scenarios.as_deref())?;
    let known = scenario::scenario_names(&scenarios);
    if !known.contains(&args.scenario) {
        let told = format!("there is no scenario {:?}; there are: {}", args.scenario, known.join(", "));
        return Err(CommandLineError(told).into());
    }
    Ok((args.scenario.clone(), scenarios.join(&args.scenario)))
}

fn read_results(path: &Path) -> anyhow::Result<results::Results> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is no results.json", path.display()))
}

/// Writes a file. The error message contains the path.
pub fn write_file(path: &Path, content: String) -> anyhow::Result<()> {
    std::fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}
