//! The command line.

#[path = "cli/facilities.rs"]
mod facilities;
#[path = "cli/geonet.rs"]
mod geonet;
#[path = "cli/support.rs"]
mod support;

use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use carnet_api::config::parse_duration;
use carnet_wire::address::MacAddress;
use clap::{Args, Parser, Subcommand, ValueEnum};

pub use facilities::DenmCommand;
pub use geonet::{AreaCommand, GnPing, GnRecv, GnSend};
pub use support::SupportBundle;

/// Keeps the network inside a moving vehicle connected: NEMO mobile router, home agent, GeoNetworking router.
#[derive(Debug, Parser)]
#[command(name = "carnet", version, after_help = HELP_TEMPLATE, disable_help_subcommand = true)]
pub struct Cli {
    /// Command.
    #[command(subcommand)]
    pub command: Command,
}

const HELP_TEMPLATE: &str = "\
Examples:
  carnet check --config bus-42.toml       look for mistakes in a config
  carnet run --config bus-42.toml         run the station, until SIGTERM or Ctrl-C
  carnet status                           show the station's status
  carnet show bindings --json             print its bindings as JSON

Exit status:
  0  success
  1  the station refused the request, or cannot be reached
  2  a mistake on the command line or in the config";

/// `carnet ipsec`.
#[derive(Debug, Args)]
pub struct Ipsec {
    /// The config file; docs/config.md describes it.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Address of the home agent's machine at which its IKE daemon listens. This is not the home agent's own
    /// address, which is on no interface.
    #[arg(long, value_name = "ADDRESS")]
    pub gateway: Ipv6Addr,
    /// Method by which the two IKE daemons authenticate each other.
    #[arg(long, value_enum, default_value_t = IpsecAuth::Psk)]
    pub auth: IpsecAuth,
    /// Also encrypt tunnelled packets; needs dataplane.path = "tun".
    #[arg(long)]
    pub data: bool,
}

/// How IKE authenticates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IpsecAuth {
    /// By a secret that both daemons have.
    Psk,
    /// By certificates that name the mobile router's home address, or the home agent's address.
    Pubkey,
}

/// A command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a station in the foreground.
    ///
    /// The station is ready when its socket accepts connections. SIGTERM or Ctrl-C ends it. At its end it
    /// restores everything that it has changed on the machine.
    #[command(after_help = "\
Examples:
  carnet run --config /etc/carnet/bus-42.toml           run the station of this config
  carnet run --config bus-42.toml --log carnet=debug    also log what carnet does in detail")]
    Run {
        /// The config file; docs/config.md describes it.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Log filter: a level such as `debug`, or targets with levels such as `carnet=debug` (default:
        /// RUST_LOG, else info).
        #[arg(long, value_name = "FILTER")]
        log: Option<String>,
        /// Store the state through the program that listens at this socket, instead of in station.state_dir.
        /// carnet-fleet sets this option.
        #[arg(long, value_name = "SOCKET", hide = true)]
        store: Option<PathBuf>,
    },
    /// Find mistakes in a config file.
    ///
    /// Exit status: 0 without mistakes, otherwise 2. Each mistake is printed on its own line: FILE:LINE:COL,
    /// what is wrong, what was expected. A setting that is valid but probably not intended gives a warning.
    #[command(after_help = "\
Examples:
  carnet check /etc/carnet/bus-42.toml             print the mistakes in this config file
  carnet check --config /etc/carnet/bus-42.toml    the same, with the option of `carnet run`")]
    Check {
        /// The config file.
        #[command(flatten)]
        file: ConfigFile,
    },
    /// Print a swanctl config for strongSwan that fits `auth = "ipsec"`.
    ///
    /// Writes to standard output and changes nothing. Run it on both machines, each with its own carnet
    /// config.
    #[command(after_help = "\
Examples:
  IPsec for the signalling alone, with a shared secret:
  carnet ipsec --config bus-42.toml --gateway 2001:db8:ff::2 >/etc/swanctl/conf.d/carnet.conf

  IPsec also for the tunnelled traffic, with certificates:
  carnet ipsec --config bus-42.toml --gateway 2001:db8:ff::2 --data --auth pubkey")]
    Ipsec(Ipsec),
    #[cfg(feature = "wireguard")]
    /// Make a key pair for the encrypted tunnel (X25519, in WireGuard's base64).
    ///
    /// With --out the private key goes into the file, with mode 0600, and the public key to standard output.
    /// Without it the private key goes to standard output, and the public key to standard error.
    #[command(after_help = "\
Examples:
  carnet key --out /etc/carnet/bus-42.key    make a key file, and print the public key
  carnet key >bus-42.key                     the same as `wg genkey`, with the mode of the shell's umask
  carnet key public /etc/carnet/bus-42.key   print the public key of this file, as `wg pubkey` does
  carnet key rotate --config /etc/carnet/bus-42.toml
                                             change the key of a running station")]
    #[command(args_conflicts_with_subcommands = true)]
    Key {
        /// New file for the private key. The command does not overwrite a file.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Command for the key of a station.
        #[command(subcommand)]
        command: Option<KeyCommand>,
    },
    #[cfg(feature = "replay")]
    /// Replay a recording (`station.record`), and print what the station did, as JSON lines.
    #[command(after_help = "\
The same config and recording always give the same outputs, to the octet. The command sends
no packets.

Example:
  carnet replay --config /etc/carnet/bus-42.toml bus-42.jsonl")]
    Replay {
        /// The config file with which the recording was made; the recording contains no keys.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// The recording.
        #[arg(value_name = "RECORDING")]
        recording: PathBuf,
    },
    /// Show the status of a running station.
    #[command(after_help = "\
Examples:
  carnet status                                            the one station of this machine
  carnet status --socket /run/carnet/bus-42.sock --json    one of several stations
  carnet status --wait registered --timeout 30s            in scripts: wait until the mobile
                                    router is registered; exit status 1 after 30 s")]
    Status {
        /// Wait until the station has reached this state; also waits for a station that does not run yet.
        #[arg(long, value_enum, value_name = "STATE")]
        wait: Option<AwaitedState>,
        /// Longest time to wait, with --wait.
        #[arg(long, value_name = "TIME", value_parser = parse_waiting_time, default_value = "60s",
            requires = "wait")]
        timeout: Duration,
        /// The output.
        #[command(flatten)]
        format: Format,
        /// The station.
        #[command(flatten)]
        station: Station,
    },
    /// Show the state of a running station.
    #[command(after_help = "\
Examples:
  carnet show bindings          the binding cache, or the Binding Update List
  carnet show uplinks --json    state of each uplink, as JSON
  carnet show neighbours        GeoNetworking stations in radio range
  carnet show counters --socket /run/carnet/bus-42.sock    one of several stations")]
    Show {
        /// Show a table of a running station.
        what: Table,
        /// The output.
        #[command(flatten)]
        format: Format,
        /// The station.
        #[command(flatten)]
        station: Station,
    },
    /// Print the events of a running station, until Ctrl-C or the station's end.
    #[command(after_help = "\
Examples:
  carnet watch                  print each event as a line of text
  carnet watch --json | jq 'select(.event == \"handover\")'    only handovers, as JSON")]
    Watch {
        /// The output.
        #[command(flatten)]
        format: Format,
        /// The station.
        #[command(flatten)]
        station: Station,
    },
    /// Select the uplink of a mobile router, or let the router select again.
    #[command(after_help = "\
Examples:
  carnet handover wlan0      prefer wlan0 to all others for as long as it can be used
  carnet handover auto       let the mobile router select the uplink again
  carnet handover wwan0 --policy video
                             select wwan0 for the packets of the policy video

If the selected uplink is down, or the home agent does not answer over it, the mobile router
uses another uplink until the selected one works again.")]
    Handover {
        /// Interface of the uplink, or `auto`.
        uplink: String,
        /// Name of a policy in the config: only its packets use the uplink. The selection lasts until `auto`,
        /// or until carnet reloads the config.
        #[arg(long, value_name = "NAME")]
        policy: Option<String>,
        /// The station.
        #[command(flatten)]
        station: Station,
    },
    /// Let one host on board reach the captive portal of an uplink, so that a user can accept its terms.
    #[command(after_help = "\
All packets of the host leave by this uplink without the tunnel, with the uplink's address (NAT).
Its DNS queries go to the DNS servers of the uplink: those of --dns, or those that systemd-resolved,
systemd-networkd, dhclient or dhcpcd has stored for the uplink, or those that Router Advertisements
on the uplink name. Other hosts have no access. The access ends when its time is over, when the
uplink goes down, or at a restart.
`carnet show lan` lists MAC addresses of hosts.

Examples:
  carnet portal wlan0 --host 5e:f3:01:9a:77:20                       for five minutes
  carnet portal wlan0 --host 5e:f3:01:9a:77:20 --for 20m --dns 192.168.1.1
  carnet portal wlan0 --end                                          end it now")]
    Portal(Portal),
    /// Move all mobile routers to another home agent, without packet loss, before maintenance of this one.
    #[command(after_help = "\
Each mobile router first registers with the other home agent, and then de-registers with this
one. The command shows the progress. It ends when all mobile routers have left, or when the
time of --within is over. From then on this home agent accepts no registration until
`carnet drain --end` or a restart.

Examples:
  carnet drain                    move them to a home agent of the config or of the home link
  carnet drain --to 2001:db8:1::2 --within 2m
                                  move them to this home agent, within two minutes
  carnet drain --end              let mobile routers register with this home agent again")]
    Drain(Drain),
    /// End the bindings of a mobile router at its home agent.
    #[command(after_help = "\
The home agent sends the mobile router a Binding Revocation Indication. The mobile router tries
to register again after ten minutes. If its config names several home agents, it registers with
the next one: revoke its bindings there as well.

Examples:
  carnet revoke 2001:db8:1::1234            all bindings of this home address
  carnet revoke 2001:db8:1::1234 --bid 2    only its binding with BID 2
  carnet revoke --all                       all bindings of all mobile routers")]
    Revoke {
        /// Home address of the mobile router.
        #[arg(required_unless_present = "all")]
        home_address: Option<Ipv6Addr>,
        /// Binding Identifier (default: all bindings). May be given several times.
        #[arg(long, value_name = "BID")]
        bid: Vec<u16>,
        /// Revoke all mobile routers that are registered.
        #[arg(long, conflicts_with_all = ["home_address", "bid"])]
        all: bool,
        /// The station.
        #[command(flatten)]
        station: Station,
    },
    #[cfg(feature = "geonet")]
    /// Set or remove a geographical area for GeoNetworking packets while the station runs.
    #[command(after_help = "\
The centre of the area is a place or a station. An area around a station moves with the station.
GeoNetworking delivers packets to the area's IPv6 multicast group to all stations in the area.

Examples:
  carnet area jam --around 48.8375,2.1008 --radius 300m --group ff1e::42 --lifetime 10m
                               a circle around a place, for ten minutes
  carnet area near --around here --radius 500m --group ff1e::43
                               a circle around this station
  carnet area convoy --around 1400:0200:0000:000a --radius 200m
                               a circle around the station with this GeoNetworking address
  carnet area near --remove    remove the area `near`")]
    Area(AreaCommand),
    #[cfg(feature = "geonet")]
    /// Ping stations over GeoNetworking: shows their address, position, number of hops and round trip.
    #[command(after_help = "\
Only stations that run carnet answer. If no station answers, the exit status is 1.

Examples:
  carnet gnping 1400:0200:0000:000a              by GeoNetworking address
  carnet gnping 02:00:00:00:00:0a --count 10     by MAC address
  carnet gnping area:crossing --timeout 500ms    all stations in a named area")]
    Gnping(GnPing),
    #[cfg(feature = "geonet")]
    /// Send one packet over GeoNetworking.
    #[command(after_help = "\
Transport types of GeoNetworking: guc reaches one station (--to), gac one station in an area,
gbc all stations in an area (--area or --circle), shb all stations in radio range, tsb all
stations within --hops hops.

Examples:
  carnet gnsend shb --payload 0102
  carnet gnsend guc --to 1400:0200:0000:000a --payload 0102
  carnet gnsend gbc --area crossing --lifetime 10s --next-header btp-b --port 2002 --payload 0102
  carnet gnsend gac --circle 48.8375,2.1008,300 --scf --payload 0102
  carnet gnsend tsb --hops 3 --payload 0102")]
    Gnsend(GnSend),
    #[cfg(feature = "geonet")]
    /// Print the payloads that GeoNetworking delivers to this station, as JSON lines, until Ctrl-C.
    #[command(after_help = "\
Examples:
  carnet gnrecv                                  all payloads
  carnet gnrecv --port 2002                      only BTP-A and BTP-B packets to this port
  carnet gnrecv --next-header btp-b              only BTP-B packets
  carnet gnrecv | jq 'select(.type == \"gbc\") | .payload'
                                                 only payloads of geographical broadcasts")]
    Gnrecv(GnRecv),
    #[cfg(feature = "geonet")]
    /// Report an event on the road, or its end, to other stations (DENM).
    #[command(after_help = "\
Stations that receive the message store the event in their Local Dynamic Map (`carnet show ldm`).

Examples:
  carnet denm trigger stationary_vehicle --relevance 500m --every 500ms --for 10m
  carnet denm trigger accident --at 48.8375,2.1008 --area crossing
  carnet denm update 305419896:1 stationary_vehicle --sub-cause 2
  carnet denm cancel 305419896:1                 say that this station's event is over
  carnet denm negate 2712847316:7                say that another station's event is over")]
    Denm(DenmCommand),
    /// Collect information about a fault for a maintainer in an archive, without secrets.
    #[command(after_help = "\
The archive contains the version, the machine, the config, all tables of the running station,
the routes, rules and links of its network namespace, the BPF programs, and the last lines of
its log. It contains no keys and no tokens, but it contains names, addresses and positions. Its
file manifest.json lists what the command could not collect, for example without root rights or
without a running station.

Examples:
  carnet support-bundle             the one station of this machine
  carnet support-bundle --out /tmp/bus-42.tar.gz --socket /run/carnet/bus-42.sock
                                    one of several stations, in this file
  carnet support-bundle --config /etc/carnet/bus-42.toml
                                    a station that does not start")]
    SupportBundle(SupportBundle),
}

/// Commands of `carnet key`.
#[cfg(feature = "wireguard")]
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Print the public key of a private key file.
    ///
    /// The file must have mode 0600. During a change of the key, FILE.next has the next key.
    #[command(after_help = "\
Example:
  carnet key public /etc/carnet/bus-42.key    the value for `public_key` in the home agent's config")]
    Public {
        /// File with the private key.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Change the key of a running station, without a pause of its traffic.
    ///
    /// The next key is in a file beside the present one, with the ending `.next`. The station announces it
    /// to the other ends inside the encrypted sessions. When all of them use it, the command puts the file in
    /// place of the present one. Until then both keys are valid.
    #[command(after_help = "\
The command may be interrupted, and continues when it runs again. At a home agent, that takes
until the last mobile router has been connected.

Examples:
  carnet key rotate --config /etc/carnet/bus-42.toml
  carnet key rotate --config /etc/carnet/north.toml --timeout 24h
  carnet key rotate --config /etc/carnet/north.toml --finish
                               end the change, without the mobile routers that have not
                               been connected: they need the new key in their config")]
    Rotate(RotateArguments),
}

/// `carnet key rotate`
#[cfg(feature = "wireguard")]
#[derive(Debug, Args)]
pub struct RotateArguments {
    /// The config file of the station.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Longest time to wait for the other ends.
    #[arg(long, value_name = "TIME", value_parser = parse_waiting_time, default_value = "30s")]
    pub timeout: Duration,
    /// Remove the present key at the end of this time, although other ends do not use the next one.
    #[arg(long)]
    pub finish: bool,
}

/// `carnet portal`
#[derive(Debug, Args)]
pub struct Portal {
    /// Interface of the uplink.
    pub uplink: String,
    /// MAC address of the host on board, such as 02:00:00:00:00:0a.
    #[arg(long, value_name = "MAC", required_unless_present = "end", conflicts_with = "end")]
    pub host: Option<MacAddress>,
    /// Time for which the host has access, from 1s to 1h.
    #[arg(long = "for", value_name = "TIME", default_value = "5m", value_parser = parse_portal_time)]
    pub duration: Duration,
    /// DNS server of the uplink, at most 4; may be given several times. The first one of each address family
    /// gets the queries of the host.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "end")]
    pub dns: Vec<IpAddr>,
    /// End the access.
    #[arg(long)]
    pub end: bool,
    /// The station.
    #[command(flatten)]
    pub station: Station,
}

/// `carnet drain`
#[derive(Debug, Args)]
pub struct Drain {
    /// Address of the home agent to which the mobile routers go; may be given several times.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "end")]
    pub to: Vec<Ipv6Addr>,
    /// Time for which the home agent asks mobile routers to leave, such as 90s or 5m.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_waiting_time)]
    pub within: Duration,
    /// End the drain: mobile routers may register here again.
    #[arg(long)]
    pub end: bool,
    /// The station.
    #[command(flatten)]
    pub station: Station,
}

/// Parses a time from one second to one day.
fn parse_waiting_time(text: &str) -> Result<Duration, String> {
    const EXPECTED_WAITING_TIME: &str = "expected a time from 1s to 24h, such as 90s or 5m";
    let time = parse_duration(text).map_err(|error| format!("{error}, {EXPECTED_WAITING_TIME}"))?;
    let possible = Duration::from_secs(1)..=Duration::from_secs(86_400);
    if possible.contains(&time) { Ok(time) } else { Err(EXPECTED_WAITING_TIME.into()) }
}

/// Parses a time from one second to one hour.
fn parse_portal_time(text: &str) -> Result<Duration, String> {
    const EXPECTED_PORTAL_TIME: &str = "expected a time from 1s to 1h, such as 90s or 5m";
    let time = parse_duration(text).map_err(|error| format!("{error}, {EXPECTED_PORTAL_TIME}"))?;
    let possible = Duration::from_secs(1)..=Duration::from_secs(3600);
    if possible.contains(&time) { Ok(time) } else { Err(EXPECTED_PORTAL_TIME.into()) }
}

/// State of a station for which `--wait` waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AwaitedState {
    /// The station answers requests.
    Up,
    /// The mobile router is registered or at home, over every uplink that is up.
    Registered,
}

/// The path of a config file, as an argument or as the option `--config`.
#[derive(Debug, Args)]
pub struct ConfigFile {
    /// The config file; docs/config.md describes it.
    #[arg(value_name = "FILE", required_unless_present = "config_option")]
    config: Option<PathBuf>,
    /// The config file, as an option instead of an argument.
    #[arg(long = "config", value_name = "FILE", conflicts_with = "config")]
    config_option: Option<PathBuf>,
}

impl ConfigFile {
    /// Returns the path of the config file.
    pub fn path(self) -> PathBuf {
        // clap has checked that one of the two is present.
        self.config.or(self.config_option).unwrap_or_default()
    }
}

/// Output format.
#[derive(Debug, Args)]
pub struct Format {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// The station to which the command connects.
#[derive(Debug, Args)]
pub struct Station {
    /// Socket of the station (default: the only one in /run/carnet).
    #[arg(long, value_name = "PATH", env = "CARNET_SOCKET")]
    pub socket: Option<PathBuf>,
}

/// Tables of `carnet show`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Table {
    /// Bindings: of a mobile router with its home agent, or of a home agent's mobile routers.
    Bindings,
    /// Uplinks of a mobile router, with their state.
    Uplinks,
    /// Tunnels between mobile router and home agent.
    Tunnels,
    /// Routes of a mobile router's packets: directly to another vehicle, or through the home agent.
    Routes,
    /// Policies of a mobile router: the uplinks that their packets use, and the home agent's answer.
    Policies,
    /// Mobile network: what hosts are told, and hosts with a lease.
    Lan,
    /// Public keys of this station, and the other ends that do not use the newest one yet.
    Keys,
    /// Counters of packets and messages, processed and dropped; docs/counters.md explains each.
    Counters,
    /// Stations in radio range (GeoNetworking).
    Neighbours,
    /// Stations whose position the router knows (GeoNetworking).
    Locations,
    /// Areas: from the config, set by `carnet area`, or learnt (GeoNetworking).
    Areas,
    /// Stations and events on the road, from received messages (Local Dynamic Map).
    Ldm,
    /// Congestion control: load of the channel, and waiting packets (GeoNetworking).
    Dcc,
    /// Services that this station and others announce (GeoNetworking).
    Services,
    /// Multicast groups with listeners in the mobile network (GeoNetworking).
    Groups,
    /// Security: tickets, messages that wait for verification, and accepted and rejected messages
    /// (GeoNetworking).
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
            Table::Lan => "/v1/lan",
            Table::Keys => "/v1/keys",
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
    fn command_line_definition_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
