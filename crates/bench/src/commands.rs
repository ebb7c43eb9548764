//! Subcommands of `carnet-lab` that run the benchmarks and write their tables.

use std::path::PathBuf;
use std::process::ExitCode;

use carnet_testbed::commands::write_file;
use carnet_testbed::isolate::{self, IsolationMode};
use clap::Subcommand;

/// A command of the benchmarks.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure the GeoNetworking router: packets per second that it forwards.
    BenchGeonet(crate::geonet::Args),
    /// Measure the data paths of the tunnel: packets per second, TCP, round-trip times, processor time,
    /// handovers under load, many bindings. Needs root.
    Bench(crate::Args),
    /// Run a plain WireGuard end on the library alone. The benchmark starts it in its networks.
    #[command(hide = true)]
    WireguardEnd(crate::wireguard_end::Args),
    /// Write the tables of a bench.json for documentation.
    BenchTable {
        /// The figures.
        bench: PathBuf,
        /// Table file to write. The command writes bench.json into the same folder.
        table: PathBuf,
        /// Further bench.json files, whose figures replace older figures of the same kind.
        #[arg(long, value_name = "BENCH")]
        with: Vec<PathBuf>,
    },
}

impl Command {
    /// Runs the command and returns the exit status of the program. `inside` says how this process, which
    /// runs in the lab's own namespaces, was isolated; `None` if it is outside of them.
    pub fn execute(&self, inside: Option<IsolationMode>) -> anyhow::Result<ExitCode> {
        match self {
            Command::BenchGeonet(args) => {
                if inside.is_none() {
                    return isolate::run_isolated(IsolationMode::of_caller());
                }
                isolate::start_inner_lab()?;
                crate::geonet::run_geonet_bench(args)?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Bench(args) => {
                let mode = inside.unwrap_or_else(IsolationMode::of_caller);
                let (out, carnet) = crate::check_before_building(args, mode)?;
                if inside.is_none() {
                    return isolate::run_isolated(mode);
                }
                isolate::start_inner_lab()?;
                crate::run_benchmark(args, out, carnet)?;
                Ok(ExitCode::SUCCESS)
            }
            Command::WireguardEnd(args) => {
                crate::wireguard_end::run_wireguard_end(args)?;
                Ok(ExitCode::SUCCESS)
            }
            Command::BenchTable { bench, table, with } => {
                let (page, figures) = crate::benchmark_page(bench, with)?;
                write_file(table, page)?;
                write_file(&table.with_extension("json"), figures)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
