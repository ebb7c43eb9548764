//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Keeps home agents running on whichever of several machines lives.
#[derive(Debug, Parser)]
#[command(name = "carnet-fleet", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Keep the seat of a config until SIGTERM or SIGINT; then others get it. SIGHUP: the home agent reads its own config again.
    Run {
        /// The config file; docs/fleet.md describes it.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// What to log: a level, or targets with levels (default: RUST_LOG, else info).
        #[arg(long, value_name = "FILTER")]
        log: Option<String>,
    },
    /// Look for mistakes in a config file, and in the home agent's that it names: exits 0 when there are none, else 2.
    Check {
        /// The config file.
        #[arg(value_name = "FILE", required_unless_present = "named")]
        config: Option<PathBuf>,
        /// The same, as for the other commands.
        #[arg(long = "config", value_name = "FILE", conflicts_with = "config")]
        named: Option<PathBuf>,
    },
}
