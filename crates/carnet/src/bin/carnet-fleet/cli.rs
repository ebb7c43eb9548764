//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Keeps home agents running on whichever of several machines lives.
#[derive(Debug, Parser)]
#[command(name = "carnet-fleet", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Keep the seat of a config until SIGTERM or SIGINT; then others get it. SIGHUP: the home agent reads
    /// its own config again.
    Run {
        /// The config file; docs/fleet.md describes it.
        #[command(flatten)]
        file: File,
        /// Log filter: a level, or targets with levels (default: RUST_LOG, else info).
        #[arg(long, value_name = "FILTER")]
        log: Option<String>,
    },
    /// Look for mistakes in a config file, and in the home agent's that it names: exits 0 without mistakes,
    /// else 2.
    Check {
        /// The config file.
        #[command(flatten)]
        file: File,
    },
    /// Ask etcd which member has the seat, and listen for a moment to the members. Exits 0 if a member has
    /// it, 1 if none has or etcd does not answer, 2 with a mistake in the config.
    Status {
        /// The config file.
        #[command(flatten)]
        file: File,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// A config file, with or without its option.
#[derive(Debug, Args)]
pub(crate) struct File {
    /// The config file.
    #[arg(value_name = "FILE", required_unless_present = "named")]
    config: Option<PathBuf>,
    /// The config file, as for the other commands.
    #[arg(long = "config", value_name = "FILE", conflicts_with = "config")]
    named: Option<PathBuf>,
}

impl File {
    /// Returns the path of the config file.
    pub(crate) fn path(self) -> PathBuf {
        // One of the two is present: otherwise clap has refused the command line.
        self.config.or(self.named).unwrap_or_default()
    }
}
