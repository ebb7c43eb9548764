//! carnet-lab: a testbed of network namespaces that runs the real programs and measures them.
//!
//! `carnet-lab run SCENARIO` builds the network of a scenario, apart from the host and with or without root,
//! and runs `carnet` in its nodes. It sends real traffic while events happen, checks the scenario's
//! expectations, and leaves a report.
//!
//! The program only reads the command line. `carnet-testbed` plays scenarios, `carnet-bench` measures,
//! `carnet-papers` compares with published figures. The features `bench` and `papers` leave the last two out.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use carnet_testbed::commands::CommandLineError;
use carnet_testbed::isolate::{self, Interrupted, IsolationMode};
use carnet_testbed::run::SlowStartError;
use clap::{Parser, Subcommand};

/// Runs carnet in a testbed of network namespaces and measures it.
#[derive(Debug, Parser)]
#[command(name = "carnet-lab", version, about, after_help = HELP_EXAMPLES, disable_help_subcommand = true)]
struct Cli {
    /// Isolation mode of a lab that already runs inside its namespaces.
    #[arg(long, hide = true, value_enum)]
    inside: Option<IsolationMode>,
    #[command(subcommand)]
    command: Command,
}

const HELP_EXAMPLES: &str = "\
Examples:
  carnet-lab list                           the scenarios
  carnet-lab run two-uplinks                run one; the report goes to out/two-uplinks
  carnet-lab run two-uplinks --hold         keep the testbed up afterwards, and meanwhile:
  carnet-lab shell two-uplinks mr           look into one of its nodes

Root is not needed where users may make namespaces. Exit status: 0 when every expectation held, 1 when one
did not or something went wrong, 2 for a mistake on the command line, 130 when interrupted.";

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Testbed(carnet_testbed::commands::Command),
    #[cfg(feature = "bench")]
    #[command(flatten)]
    Bench(carnet_bench::commands::Command),
    #[cfg(feature = "papers")]
    #[command(flatten)]
    Papers(carnet_papers::commands::Command),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command.execute(cli.inside) {
        Ok(code) => code,
        Err(e) if e.is::<Interrupted>() => {
            eprintln!("carnet-lab: interrupted; everything is cleaned up");
            ExitCode::from(130)
        }
        Err(e) if e.is::<SlowStartError>() => ExitCode::from(isolate::EXIT_CODE_TO_RUN_AGAIN),
        Err(e) => {
            eprintln!("carnet-lab: {e:#}");
            if e.is::<CommandLineError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

impl Command {
    fn execute(&self, inside: Option<IsolationMode>) -> anyhow::Result<ExitCode> {
        match self {
            Command::Testbed(command) => command.execute(inside),
            #[cfg(feature = "bench")]
            Command::Bench(command) => command.execute(inside),
            #[cfg(feature = "papers")]
            Command::Papers(command) => command.execute(inside),
        }
    }
}
