//! The command line of `carnet-fleet`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Runs a home agent on one of several machines, and moves it to another machine if that one fails.
#[derive(Debug, Parser)]
#[command(name = "carnet-fleet", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Take part in a seat until SIGTERM or SIGINT; then another member takes over. SIGHUP makes the home
    /// agent read its config again.
    Run {
        /// The config file; docs/fleet.md describes it.
        #[command(flatten)]
        file: ConfigFile,
        /// Log filter: a level such as `debug`, or targets with levels such as `carnet=debug` (default:
        /// RUST_LOG, else info).
        #[arg(long, value_name = "FILTER")]
        log: Option<String>,
    },
    /// Find mistakes in a config file, and in the home agent's config that it names. Exit status: 0 without
    /// mistakes, otherwise 2.
    Check {
        /// The config file.
        #[command(flatten)]
        file: ConfigFile,
    },
    /// Show which member is the leader, and which members are alive. Exit status: 0 with a leader, 1 without
    /// one or if etcd does not answer, 2 for a mistake in the config.
    Status {
        /// The config file.
        #[command(flatten)]
        file: ConfigFile,
        /// Print the state as JSON.
        #[arg(long)]
        json: bool,
    },
}

/// The path of a config file, as an argument or as the option `--config`.
#[derive(Debug, Args)]
pub(crate) struct ConfigFile {
    /// The config file.
    #[arg(value_name = "FILE", required_unless_present = "config_option")]
    config: Option<PathBuf>,
    /// The config file, as an option instead of an argument.
    #[arg(long = "config", value_name = "FILE", conflicts_with = "config")]
    config_option: Option<PathBuf>,
}

impl ConfigFile {
    /// Returns the path of the config file.
    pub(crate) fn path(self) -> PathBuf {
        // clap has checked that one of the two is present.
        self.config.or(self.config_option).unwrap_or_default()
    }
}
