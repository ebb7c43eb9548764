//! The command line.

#[path = "cli/facilities.rs"]
mod facilities;
#[path = "cli/geonet.rs"]
mod geonet;
#[path = "cli/support.rs"]
mod support;

use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;

use carnet_api::config::parse_duration;
use clap::{Args, Parser, Subcommand, ValueEnum};

pub use facilities::DenmCommand;
pub use geonet::{AreaCommand, GnPing, GnRecv, GnSend};
pub use support::SupportBundle;

/// Keeps the network inside a moving vehicle connected: NEMO mobile router, home agent, GeoNetworking router.
#[derive(Debug, Parser)]
#[command(name = "carnet", version, after_help = HELP, disable_help_subcommand = true)]
pub struct Cli {
    /// Command.
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

/// `carnet ipsec`.
#[derive(Debug, Args)]
pub struct Ipsec {
    /// The config file; docs/config.md describes it.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Address of the home agent's machine at which its IKE daemon is: not that of the home agent, which is
    /// on no interface.
    #[arg(long, value_name = "ADDRESS")]
    pub gateway: Ipv6Addr,
    /// How the two prove who they are.
    #[arg(long, value_enum, default_value_t = IpsecAuth::Psk)]
    pub auth: IpsecAuth,
    /// Also encrypt what passes the tunnel; takes dataplane.path = "tun".
    #[arg(long)]
    pub data: bool,
}

/// How IKE authenticates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IpsecAuth {
    /// By a secret that both have.
    Psk,
    /// By certificates that name the home address, or the home agent's.
    Pubkey,
}

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
        /// Log filter: a level, or targets with levels (default: RUST_LOG, else info).
        #[arg(long, value_name = "FILTER")]
        log: Option<String>,
        /// Keep the state with who listens at this socket instead of in station.state_dir (carnet-fleet says
        /// so).
        #[arg(long, value_name = "SOCKET", hide = true)]
        store: Option<PathBuf>,
    },
    /// Look for mistakes in a config file.
    ///
    /// Exits 0 without mistakes; else 2, with every mistake on its own line: FILE:LINE:COL: what is wrong,
    /// what was expected. A config that works but is unwise gives a warning.
    #[command(after_help = "\
Examples:
  carnet check /etc/carnet/bus-42.toml
  carnet check --config /etc/carnet/bus-42.toml")]
    Check {
        /// The config file.
        #[command(flatten)]
        file: ConfigFile,
    },
    /// Write what strongSwan needs for `auth = "ipsec"`, as a file for swanctl.
    ///
    /// Writes to standard output and changes nothing. Run it at both ends, each with its own config.
    #[command(after_help = "\
Examples:
  carnet ipsec --config bus-42.toml --gateway 2001:db8:ff::2 >/etc/swanctl/conf.d/carnet.conf
  carnet ipsec --config bus-42.toml --gateway 2001:db8:ff::2 --data --auth pubkey")]
    Ipsec(Ipsec),
    #[cfg(feature = "replay")]
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
  carnet status --socket /run/carnet/bus-42.sock --json
  carnet status --wait registered --timeout 30s    for scripts: exits 1 when it takes longer")]
    Status {
        /// Ask again until the station is so far; one that does not run yet is waited for as well.
        #[arg(long, value_enum, value_name = "STATE")]
        wait: Option<Wanted>,
        /// With --wait: for how long.
        #[arg(long, value_name = "TIME", value_parser = within, default_value = "60s", requires = "wait")]
        timeout: Duration,
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
  carnet show neighbours
  carnet show counters --socket /run/carnet/bus-42.sock")]
    Show {
        /// Table to show.
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
  carnet handover wlan0      prefer wlan0 to all others for as long as it can be used
  carnet handover auto       let the station choose again
  carnet handover wwan0 --policy video
                             the same for the packets of one policy

An uplink that is down or brings no answers is left all the same, until it is back.")]
    Handover {
        /// Interface of the uplink, or `auto`.
        uplink: String,
        /// Name of a policy of the config: only its packets take the uplink. Until `auto`, or a reload.
        #[arg(long, value_name = "NAME")]
        policy: Option<String>,
        /// The station.
        #[command(flatten)]
        station: Station,
    },
    /// Empty a home agent for maintenance: its mobile routers go to another one, without losing packets.
    #[command(after_help = "\
Every mobile router registers with the other home agent first and leaves this one then.
The command shows how far it is, and ends when all have left, or after a time. From then
on nobody can register here, until --end or a restart.

Examples:
  carnet drain                              to a home agent of the config or of the home link
  carnet drain --to 2001:db8:1::2 --within 2m
  carnet drain --end                        mobile routers may register here again")]
    Drain(Drain),
    /// End the bindings of a mobile router at its home agent.
    #[command(after_help = "\
The mobile router is told, and asks again after ten minutes. One that has several home
agents in its config goes to the next one: revoke it there as well.

Examples:
  carnet revoke 2001:db8:1::1234
  carnet revoke 2001:db8:1::1234 --bid 2    one of its uplinks
  carnet revoke --all                       all mobile routers that are registered")]
    Revoke {
        /// Home address of the mobile router.
        #[arg(required_unless_present = "all")]
        home_address: Option<Ipv6Addr>,
        /// Binding Identifier; all bindings without one. May be given several times.
        #[arg(long, value_name = "BID")]
        bid: Vec<u16>,
        /// All mobile routers that are registered.
        #[arg(long, conflicts_with_all = ["home_address", "bid"])]
        all: bool,
        /// The station.
        #[command(flatten)]
        station: Station,
    },
    #[cfg(feature = "geonet")]
    /// Set an area for GeoNetworking packets while the station runs, or remove it.
    #[command(after_help = "\
Around a place, around this station or around another one, with which it moves. Whatever is sent to its IPv6
multicast group goes to everybody inside, as with areas of the config.

Examples:
  carnet area jam --around 48.8375,2.1008 --radius 300m --group ff1e::42 --lifetime 10m
  carnet area near --around here --radius 500m --group ff1e::43
  carnet area convoy --around 1400:0200:0000:000a --radius 200m
  carnet area near --remove")]
    Area(AreaCommand),
    #[cfg(feature = "geonet")]
    /// Ask stations over GeoNetworking to answer: who they are, where, how many hops away and how fast.
    #[command(after_help = "\
Stations that run carnet answer. The exit status is 1 when nobody does.

Examples:
  carnet gnping 1400:0200:0000:000a              by GeoNetworking address
  carnet gnping 02:00:00:00:00:0a --count 10     by MAC address
  carnet gnping area:crossing --timeout 500ms    everybody in an area that has a name")]
    Gnping(GnPing),
    #[cfg(feature = "geonet")]
    /// Send one packet over GeoNetworking.
    #[command(after_help = "\
guc goes to a station (--to), gac and gbc to an area (--area or --circle), tsb and shb to everybody.

Examples:
  carnet gnsend shb --payload 0102
  carnet gnsend guc --to 1400:0200:0000:000a --payload 0102
  carnet gnsend gbc --area crossing --lifetime 10s --next-header btp-b --port 2002 --payload 0102
  carnet gnsend gac --circle 48.8375,2.1008,300 --scf --payload 0102
  carnet gnsend tsb --hops 3 --payload 0102")]
    Gnsend(GnSend),
    #[cfg(feature = "geonet")]
    /// Print what GeoNetworking delivers to this station, one JSON line for each payload, until Ctrl-C.
    #[command(after_help = "\
Examples:
  carnet gnrecv
  carnet gnrecv --port 2002                      BTP to this port, A or B
  carnet gnrecv --next-header btp-b
  carnet gnrecv | jq 'select(.type == \"gbc\") | .payload'")]
    Gnrecv(GnRecv),
    #[cfg(feature = "geonet")]
    /// Tell others of an event on the road, or that it is over (DENM).
    #[command(after_help = "\
Who is told keeps it on his map until it is over: `carnet show ldm`.

Examples:
  carnet denm trigger stationary_vehicle --relevance 500m --every 500ms --for 10m
  carnet denm trigger accident --at 48.8375,2.1008 --area crossing
  carnet denm update 305419896:1 stationary_vehicle --sub-cause 2
  carnet denm cancel 305419896:1                 an event of this station is over
  carnet denm negate 2712847316:7                another station's is")]
    Denm(DenmCommand),
    /// Put into one archive, without secrets, what a maintainer needs to find a fault.
    #[command(after_help = "\
Version, machine, config, all that the running station shows, routes, rules and links of its
network namespace, BPF programs and the last lines of its log. Keys and tokens are left out;
names, addresses and positions are in it. manifest.json says what is there and what is not.
Works without a running station, and as an ordinary user with less in it.

Examples:
  carnet support-bundle
  carnet support-bundle --out /tmp/bus-42.tar.gz --socket /run/carnet/bus-42.sock
  carnet support-bundle --config /etc/carnet/bus-42.toml      a station that does not start")]
    SupportBundle(SupportBundle),
}

/// `carnet drain`
#[derive(Debug, Args)]
pub struct Drain {
    /// Address of the home agent to go to; may be given several times.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "end")]
    pub to: Vec<Ipv6Addr>,
    /// How long mobile routers are asked, such as 90s or 5m.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = within)]
    pub within: Duration,
    /// End a drain: mobile routers may register here again.
    #[arg(long)]
    pub end: bool,
    /// The station.
    #[command(flatten)]
    pub station: Station,
}

/// Parses a time from one second to one day.
fn within(text: &str) -> Result<Duration, String> {
    const EXPECTED: &str = "expected a time from 1s to 24h, such as 90s or 5m";
    let time = parse_duration(text).map_err(|error| format!("{error}, {EXPECTED}"))?;
    let possible = Duration::from_secs(1)..=Duration::from_secs(86_400);
    if possible.contains(&time) { Ok(time) } else { Err(EXPECTED.into()) }
}

/// How far a station is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Wanted {
    /// It answers.
    Up,
    /// Its mobile router is registered or at home, by every uplink that is up.
    Registered,
}

/// A config file, with or without its option.
#[derive(Debug, Args)]
pub struct ConfigFile {
    /// The config file; docs/config.md describes it.
    #[arg(value_name = "FILE", required_unless_present = "named")]
    config: Option<PathBuf>,
    /// The config file, as for the other commands.
    #[arg(long = "config", value_name = "FILE", conflicts_with = "config")]
    named: Option<PathBuf>,
}

impl ConfigFile {
    /// Returns the path of the config file.
    pub fn path(self) -> PathBuf {
        // One of the two is present: otherwise clap has refused the command line.
        self.config.or(self.named).unwrap_or_default()
    }
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

/// Tables of `carnet show`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Table {
    /// A mobile router's own with its home agent, a home agent's of its mobile routers.
    Bindings,
    /// Of a mobile router.
    Uplinks,
    /// Between mobile router and home agent.
    Tunnels,
    /// Of a mobile router's packets: straight to a vehicle near, or by way of the home agent.
    Routes,
    /// Of a mobile router: which uplinks the packets of each take, and what the home agent does about it.
    Policies,
    /// Packets and messages, taken and dropped; docs/counters.md explains each.
    Counters,
    /// Stations in range (GeoNetworking).
    Neighbours,
    /// Stations whose position is known (GeoNetworking).
    Locations,
    /// Areas: of the config, set by `carnet area`, learnt (GeoNetworking).
    Areas,
    /// Stations and events on the road, by their messages (Local Dynamic Map).
    Ldm,
    /// Congestion control: how busy the channel is, and what waits (GeoNetworking).
    Dcc,
    /// Services that are announced, by this station and by others (GeoNetworking).
    Services,
    /// Multicast groups with listeners in the mobile network (GeoNetworking).
    Groups,
    /// Signed packets: tickets, what waits, what was believed and what not (GeoNetworking).
    Security,
}

impl Table {
    /// Returns the path of the table in the HTTP API.
    pub fn path(self) -> &'static str {
        match self {
            Table::Bindings => "/v1/bindings",
            Table::Uplinks => "/v1/uplinks",
            Table::Tunnels => "/v1/tunnels",
            Table::Routes => "/v1/routes",
            Table::Policies => "/v1/policies",
            Table::Counters => "/v1/counters",
            Table::Neighbours => "/v1/neighbours",
            Table::Locations => "/v1/locations",
            Table::Areas => "/v1/areas",
            Table::Dcc => "/v1/dcc",
            Table::Services => "/v1/services",
            Table::Groups => "/v1/groups",
            Table::Ldm => "/v1/ldm",
            Table::Security => "/v1/security",
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
