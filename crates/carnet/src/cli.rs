//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Keeps the network inside a moving vehicle connected: NEMO mobile router and home agent.
#[derive(Debug, Parser)]
#[command(name = "carnet", version, after_help = HELP, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const HELP: &str = "\
Examples:
  carnet check --config bus-42.toml       look for mistakes in a config
  carnet run --config bus-42.toml         run the station, until SIGTERM or Ctrl-C
  carnet status                           ask the station how it is
  carnet show bindings --json             ask for its bindings, for a program to read

Exit status:
  0  all went well
  1  the station says no, or cannot be reached
  2  a mistake on the command line or in the config";

/// A command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a station in the foreground.
    ///
    /// The station is ready when its socket accepts. SIGTERM or Ctrl-C ends it, and everything that it
    /// changed on the machine is put back.
    #[command(after_help = "\
Examples:
  carnet run --config /etc/carnet/bus-42.toml
  carnet run --config bus-42.toml --log carnet=debug")]
    Run {
        /// The config file; docs/config.md describes it.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// What to log: a level, or targets with levels (default: RUST_LOG, else info).
        #[arg(long, value_name = "FILTER")]
        log: Option<String>,
    },
    /// Look for mistakes in a config file.
    ///
    /// Exits 0 when there are none; else 2, with every mistake on its own line: FILE:LINE:COL: what is
    /// wrong, what was expected. What is legal but unwise is a warning.
    #[command(after_help = "\
Example:
  carnet check --config /etc/carnet/bus-42.toml")]
    Check {
        /// The config file; docs/config.md describes it.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Play a recording (`station.record`) again and print what the station did, as JSON lines.
    #[command(after_help = "\
The same config and recording give the same outputs, to the octet. Nothing is sent anywhere.

Example:
  carnet replay --config /etc/carnet/bus-42.toml bus-42.jsonl")]
    Replay {
        /// The config file that the recording was made with; the recording holds no keys.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// The recording.
        #[arg(value_name = "RECORDING")]
        recording: PathBuf,
    },
    /// Ask a running station how it is.
    #[command(after_help = "\
Examples:
  carnet status
  carnet status --socket /run/carnet/bus-42.sock --json")]
    Status {
        /// The output.
        #[command(flatten)]
        format: Format,
        /// The station.
        #[command(flatten)]
        station: Station,
    },
    /// Show what a running station knows.
    #[command(after_help = "\
Examples:
  carnet show bindings
  carnet show uplinks --json
  carnet show counters --socket /run/carnet/bus-42.sock")]
    Show {
        /// What to show.
        what: Table,
        /// The output.
        #[command(flatten)]
        format: Format,
        /// The station.
        #[command(flatten)]
        station: Station,
    },
    /// Follow the events of a running station, until Ctrl-C or its end.
    #[command(after_help = "\
Examples:
  carnet watch
  carnet watch --json | jq 'select(.event == \"handover\")'")]
    Watch {
        /// The output.
        #[command(flatten)]
        format: Format,
        /// The station.
        #[command(flatten)]
        station: Station,
    },
    /// Make a mobile router use one uplink, or let it choose again.
    #[command(after_help = "\
Examples:
  carnet handover wlan0      use wlan0 and no other
  carnet handover auto       let the station choose again")]
    Handover {
        /// Interface of the uplink, or `auto`.
        uplink: String,
        /// The station.
        #[command(flatten)]
        station: Station,
    },
}

/// How to print.
#[derive(Debug, Args)]
pub struct Format {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Which station to talk to.
#[derive(Debug, Args)]
pub struct Station {
    /// Socket of the station (default: the only one in /run/carnet).
    #[arg(long, value_name = "PATH", env = "CARNET_SOCKET")]
    pub socket: Option<PathBuf>,
}

/// What `carnet show` can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Table {
    /// A mobile router's own with its home agent, a home agent's of its mobile routers.
    Bindings,
    /// Of a mobile router.
    Uplinks,
    /// Between mobile router and home agent.
    Tunnels,
    /// Packets and messages, taken and dropped.
    Counters,
}

impl Table {
    /// Path of the table in the HTTP API.
    pub fn path(self) -> &'static str {
        match self {
            Table::Bindings => "/v1/bindings",
            Table::Uplinks => "/v1/uplinks",
            Table::Tunnels => "/v1/tunnels",
            Table::Counters => "/v1/counters",
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
