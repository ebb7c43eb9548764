//! The config file (TOML): types, defaults, reading and checking.
//!
//! [`Config::load`] reads a file and either gives a [`Config`] in which every value has been checked,
//! alone and against the others, or [`ConfigErrors`] with everything that is wrong in the file, each at its
//! line and column. Every key is described for operators in `docs/config.md`; a test compares the two.
//!
//! Only what this version does is accepted. A key that carnet has a meaning for, but not yet, is refused
//! as "not in this version"; any other key is refused as unknown, with the nearest known one.

mod advice;
mod auth;
mod checks;
mod conformance;
mod disclosure;
mod draft;
mod errors;
mod facilities;
mod geonet;
mod mib;
mod reader;
mod schema;
mod security;
mod values;

#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::Ipv6Net;
use toml::de::DeTable;

use crate::address::MacAddress;

use draft::Draft;
use errors::Sink;

pub use auth::{Auth, Changing, FormerKey, Mac, Replay};
pub use carnet_base::Key;
pub use conformance::Conformance;
pub use disclosure::{Disclosed, LEFT_OUT, disclose, secret_keys};
pub use errors::{ConfigError, ConfigErrors};
pub use facilities::{Facilities, Service, VehicleRole};
pub use geonet::{
    Area, AreaForwarding, AreaShape, Authorization, Beacon, BeaconInterval, Coordinates, Dcc, DccAlgorithm,
    DccTimeOnAir, Forwarding, Geonet, GeonetAddress, GeonetInterface, Mnpp, MultiHopBeacons, Planarisation,
    PositionSource, Recovery, ReorderHold, ReorderRule, Standard, StationType, UdpLink, UnicastForwarding,
};
pub use mib::Mib;
pub use security::{Pseudonyms, Security, SecurityPolicy};

/// A checked config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `[station]`
    pub station: Station,
    /// `[dataplane]`
    pub dataplane: Dataplane,
    /// `[home_agent]`; `None` when the station is no home agent.
    pub home_agent: Option<HomeAgent>,
    /// `[mobile_router]`, or `[mobile_node]`, which is one without a mobile network; `None` when the station
    /// is neither.
    pub mobile_router: Option<MobileRouter>,
    /// `[geonet]`; `None` when the station does no GeoNetworking.
    pub geonet: Option<Geonet>,
    /// `[facilities]`; `None` when the station has none.
    pub facilities: Option<Facilities>,
    /// `[security]`; `None` when packets go in the open.
    pub security: Option<Security>,
    /// `[conformance]`; `None` outside of test beds.
    pub conformance: Option<Conformance>,
}

/// `[station]`: what belongs to the running program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Station {
    /// Name of the station.
    pub name: String,
    /// UNIX socket of the API; `/run/carnet/NAME.sock` unless given.
    pub socket: PathBuf,
    /// Directory for bindings and sequence numbers; `None`: a restart forgets them.
    pub state_dir: Option<PathBuf>,
    /// File that takes every input, for `carnet replay`.
    pub record: Option<PathBuf>,
    /// Where the API is served over TCP, beside the socket.
    pub http: Option<Http>,
    /// Whether the process gives up what it does not need.
    pub sandbox: Sandbox,
}

/// `station.sandbox`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sandbox {
    /// As far as the kernel can.
    #[default]
    Auto,
    /// All of it, or the station does not start.
    Required,
    /// It does not.
    Off,
}

/// `station.http`, `station.http_tokens` and `station.http_pages`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// Address and port; one of loopback unless there are tokens.
    pub address: SocketAddr,
    /// File with the tokens of those who may use it.
    pub tokens: Option<PathBuf>,
    /// Directory of the dashboard's files.
    pub pages: PathBuf,
}

/// `[dataplane]`: the way that packets take.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dataplane {
    /// `path`
    pub path: DataplanePath,
}

/// `dataplane.path`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DataplanePath {
    /// The fastest that the kernel offers.
    #[default]
    Auto,
    /// BPF programs at tc ingress.
    Bpf,
    /// XDP programs.
    Xdp,
    /// Tunnel devices of the kernel.
    Kernel,
    /// The TUN device `carnet0`.
    Tun,
}

/// `[home_agent]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomeAgent {
    /// Address of the home agent; carnet owns it.
    pub address: Ipv6Addr,
    /// Address of this machine at which mobile routers in IPv4 networks register; `None`: they cannot.
    pub ipv4_address: Option<Ipv4Addr>,
    /// Inside IPv4 always UDP.
    pub udp: bool,
    /// Whether a mobile router may have several care-of addresses.
    pub multiple_care_of: MultipleCareOf,
    /// `care_of_test` of mobile routers that do not say it.
    pub care_of_test: bool,
    /// Prefix of the home link.
    pub home_prefix: Ipv6Net,
    /// All that is routed to this machine, the home prefix and more, where it is one prefix.
    pub home_network: Option<Ipv6Net>,
    /// Interface of the home link; `None` for a virtual one.
    pub home_link: Option<String>,
    /// Longest lifetime that is granted, a multiple of 4 s from 4 s to 262140 s.
    pub max_lifetime: Duration,
    /// Preference among the home agents of the home link (RFC 6275 7.4); higher wins.
    pub preference: u16,
    /// Whether it answers who asks for home agents (RFC 6275 10.5), and tells the home link of itself.
    pub dhaad: bool,
    /// Other home agents of the same home prefix and mobile routers.
    pub peers: Vec<PeerAgent>,
    /// The mobile routers (and plain mobile nodes) that may register.
    pub mobile_routers: Vec<AllowedRouter>,
}

/// `multiple_care_of` (RFC 5648).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MultipleCareOf {
    /// `"bulk"`: any number of them in one Binding Update.
    #[default]
    Bulk,
    /// `"single"`: one in each Binding Update.
    Single,
    /// `"none"`: one.
    None,
}

/// `[[home_agent.peer]]`: another home agent to which mobile routers can go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAgent {
    /// Its address.
    pub address: Ipv6Addr,
    /// Its preference; higher wins.
    pub preference: u16,
}

/// The home agents of a mobile router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomeAgents {
    /// Their addresses, the preferred first.
    pub addresses: Vec<Ipv6Addr>,
    /// Their IPv4 addresses, in the same order, for uplinks without IPv6; none: these cannot be used.
    pub ipv4_addresses: Vec<Ipv4Addr>,
    /// Whether others are found out (RFC 6275 11.4.1).
    pub discover: bool,
}

/// `[[home_agent.mobile_router]]`: one that may register with this home agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedRouter {
    /// Its home address.
    pub home_address: Ipv6Addr,
    /// The only prefixes that it may register; empty for a plain mobile node.
    pub prefixes: Vec<Ipv6Net>,
    /// How its Binding Updates are authenticated.
    pub auth: Auth,
    /// Whether there may be a NAT between it and the home agent.
    pub nat: bool,
    /// Whether a new care-of address carries packets towards it only after an Echo Reply has come from it
    /// (`care_of_test`).
    pub care_of_test: bool,
}

/// `[mobile_router]`, or `[mobile_node]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MobileRouter {
    /// Home address.
    pub home_address: Ipv6Addr,
    /// Prefix of the home link.
    pub home_prefix: Ipv6Net,
    /// The home agents.
    pub home_agents: HomeAgents,
    /// Inside IPv4 always UDP.
    pub udp: bool,
    /// Heartbeats on paths that carry traffic and on others; `None` for none.
    pub heartbeat: Option<Heartbeat>,
    /// Mobile network prefixes; empty for a mobile node.
    pub prefixes: Vec<Ipv6Net>,
    /// How the prefixes are registered.
    pub registration: Registration,
    /// Lifetime that is asked for, a multiple of 4 s from 4 s to 262140 s.
    pub lifetime: Duration,
    /// Interfaces of the mobile network.
    pub lan: Vec<String>,
    /// Give the `lan` interfaces an address and advertise the prefix there.
    pub advertise: bool,
    /// Offer mobile routers on board care-of addresses of the visited links, and take such where others offer
    /// them.
    pub nesting: bool,
    /// Link-layer addresses of the mobile routers on board that are known, which may have more addresses than
    /// others.
    pub nested_routers: Vec<MacAddress>,
    /// Networks in which mobile networks are that direct routes shall lead to; empty for no direct routes.
    pub direct_routes: Vec<Ipv6Net>,
    /// Ask the home agent what has become of the home prefix.
    pub prefix_discovery: bool,
    /// What is requested over an uplink without answers, to find a captive portal.
    pub captive_portal_probe: Option<ProbeUrl>,
    /// How Binding Updates are authenticated.
    pub auth: Auth,
    /// The uplinks in the order of the file, at least one.
    pub uplinks: Vec<Uplink>,
    /// Which packets take which uplinks, in the order of the file.
    pub policies: Vec<Policy>,
}

/// What is requested to find a captive portal, by plain HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeUrl {
    /// The host and its port.
    pub address: SocketAddr,
    /// Both as the URL has them.
    pub authority: String,
    /// What follows them, with a `/` first.
    pub path: String,
}

/// Between two heartbeats to the home agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// On a path that carries traffic.
    pub busy: Duration,
    /// On another.
    pub idle: Duration,
}

/// `[[mobile_router.policy]]`: packets that match every field that is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Its name; no two have the same.
    pub name: String,
    /// DiffServ code points; any when empty.
    pub dscp: Vec<u8>,
    /// Protocol.
    pub protocol: Option<PolicyProtocol>,
    /// Ports at either end; any when empty.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Prefixes of the hosts at the other end; any when empty.
    pub prefixes: Vec<Ipv6Net>,
    /// What becomes of the packets.
    pub action: PolicyAction,
    /// Uplinks with a `bid`, the preferred first, at least one.
    pub uplinks: Vec<String>,
}

/// `protocol` of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyProtocol {
    /// 6.
    Tcp,
    /// 17.
    Udp,
    /// 58.
    Icmpv6,
}

/// `action` of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyAction {
    /// The first of its uplinks that lives.
    Failover,
    /// Each conversation one of them.
    Balance,
    /// Each packet all of them; the first copy counts.
    Duplicate,
}

/// `mobile_router.registration`: how the home agent learns the prefixes (RFC 3963 5.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Registration {
    /// The Binding Update names each prefix.
    #[default]
    Explicit,
    /// The home agent knows them from its own config.
    Implicit,
    /// There is no mobile network: this is `[mobile_node]`.
    Host,
}

/// `[[mobile_router.uplink]]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uplink {
    /// Interface name.
    pub interface: String,
    /// Binding Identifier (RFC 5648); `None`: it shares the plain binding with all such uplinks.
    pub bid: Option<u16>,
    /// Of two uplinks of one priority the cheaper is better.
    pub cost: u16,
    /// What it can carry, in kbit/s; `None`: nobody knows.
    pub capacity: Option<u32>,
    /// How much may go over it; `None`: as much as it takes.
    pub volume: Option<u64>,
    /// What that is for.
    pub volume_period: VolumePeriod,
    /// The day of a month on which a month of it begins.
    pub volume_day: u8,
    /// What becomes of the uplink once it is used up.
    pub volume_action: VolumeAction,
    /// Whether it is used while its modem is in a network that is not its own operator's.
    pub roaming: Roaming,
    /// Lower wins; among equals the first in the file.
    pub priority: u8,
    /// When it is taken and left by its signal; `None`: that is no matter.
    pub signal: Option<SignalThresholds>,
    /// File whose last line is its signal in dBm; `None`: the kernel is asked.
    pub signal_file: Option<PathBuf>,
    /// How long a signal counts that nobody renews.
    pub signal_timeout: Duration,
}

/// `volume_period` of an uplink, in UTC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VolumePeriod {
    /// From midnight to midnight.
    Day,
    /// From Monday to Sunday.
    Week,
    /// A month, from `volume_day` on.
    #[default]
    Month,
}

/// `volume_action` of an uplink.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VolumeAction {
    /// It is for when no other uplink works.
    #[default]
    LastResort,
    /// It is not used until the next period.
    Stop,
}

/// `roaming` of an uplink.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Roaming {
    /// As in the network of its own operator.
    #[default]
    Allowed,
    /// It is not used.
    Never,
}

/// `signal` of an uplink, in dBm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalThresholds {
    /// At this or more it is taken.
    pub good: i32,
    /// At this or less it is left.
    pub poor: i32,
}

/// Reads a duration as the config file writes it: `"60s"`, `"1h30m"`.
///
/// # Errors
/// What is wrong, and what was expected.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    values::duration(text)
}

/// Reads a length as the config file writes it, in metres: `"300m"`, `"1km"`.
///
/// # Errors
/// What is wrong, and what was expected.
pub fn parse_length(text: &str) -> Result<u16, String> {
    values::geonet::length(text)
}

/// Reads a multicast group that leaves its link.
///
/// # Errors
/// What is wrong, and what was expected.
pub fn parse_group(text: &str) -> Result<std::net::Ipv6Addr, String> {
    values::geonet::group(text)
}

impl MobileRouter {
    /// Whether there is a mobile network: `[mobile_router]`, not `[mobile_node]`.
    pub fn is_router(&self) -> bool {
        self.registration != Registration::Host
    }

    /// Its table in the file.
    fn table(&self) -> &'static str {
        if self.is_router() { "mobile_router" } else { "mobile_node" }
    }
}

impl Config {
    /// Reads and checks a config file.
    pub fn load(path: &Path) -> Result<Config, ConfigErrors> {
        let name = path.display().to_string();
        let octets = std::fs::read(path).map_err(|error| ConfigErrors::unreadable(&name, &error))?;
        match String::from_utf8(octets) {
            Ok(text) => Config::parse(&text, &name),
            Err(error) => {
                let good = error.utf8_error().valid_up_to();
                let text = String::from_utf8_lossy(error.as_bytes());
                Err(ConfigErrors::single(&name, &text, good, "no UTF-8 here, expected TOML in UTF-8"))
            }
        }
    }

    /// Checks the text of a config file. `file_name` is named in errors, and a relative `key_file`, or file
    /// of `[security]`, is looked for beside it.
    pub fn parse(text: &str, file_name: &str) -> Result<Config, ConfigErrors> {
        let sink = Sink::new(file_name, text);
        let (document, syntax) = DeTable::parse_recoverable(text);
        if !syntax.is_empty() {
            return Err(ConfigErrors::syntax(sink, &syntax));
        }
        let draft = Draft::read(document.get_ref(), &sink);
        checks::check(&draft, &sink);
        match (sink.finish(), draft.finish()) {
            (None, Some(config)) => Ok(config),
            (Some(errors), _) => Err(errors),
            // Whatever is missing from a draft has been noted; this is for the day when it has not.
            (None, None) => Err(ConfigErrors::single(file_name, text, 0, "the config is not complete")),
        }
    }

    /// Makes zeros of all keys: whoever has made a station of it needs them no more.
    pub fn wipe_keys(&mut self) {
        let nodes = self.home_agent.iter_mut().flat_map(|agent| &mut agent.mobile_routers);
        let own = self.mobile_router.iter_mut().map(|router| &mut router.auth);
        nodes.map(|router| &mut router.auth).chain(own).for_each(Auth::wipe_keys);
    }

    /// Whether messages come and go under IPsec.
    pub fn has_ipsec(&self) -> bool {
        let routers =
            self.home_agent.iter().flat_map(|agent| &agent.mobile_routers).map(|router| &router.auth);
        let own = self.mobile_router.iter().map(|router| &router.auth);
        routers.chain(own).any(|auth| *auth == Auth::Ipsec)
    }

    /// What an operator should know about a config that is otherwise in order, one line each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(agent) = &self.home_agent {
            if agent.mobile_routers.is_empty() {
                warnings.push("no [[home_agent.mobile_router]]: nobody can register".to_owned());
            }
            for router in agent.mobile_routers.iter().filter(|router| router.auth == Auth::None) {
                warnings.push(format!(
                    "home_agent.mobile_router {}: auth = \"none\": anyone who reaches the home agent can \
                     take over the traffic of this mobile router",
                    router.home_address
                ));
            }
            let by_sequence =
                |router: &AllowedRouter| router.auth.mac().is_some_and(|mac| mac.replay == Replay::Sequence);
            let shared =
                |router: &AllowedRouter| router.auth.mac().is_some_and(|mac| mac.per_agent.is_none());
            if agent.dhaad && agent.home_link.is_some() && agent.mobile_routers.iter().any(shared) {
                warnings.push(
                    "home_agent.mobile_router: auth without `per_agent`: if another home agent of the home link has the \
                     same key, what is recorded on the way to one can be played again at the other"
                        .to_owned(),
                );
            }
            let known = std::iter::once(agent.home_prefix).chain(agent.home_network);
            if !known.into_iter().any(|prefix| prefix.contains(&agent.address)) {
                warnings.push(format!(
                    "home_agent.address {}: neither in home_prefix nor in home_network; it has to be an address that \
                     this machine has on no interface, and that is routed to it",
                    agent.address
                ));
            }
            for peer in &agent.peers {
                let known = std::iter::once(agent.home_prefix).chain(agent.home_network);
                if !known.into_iter().any(|prefix| prefix.contains(&peer.address)) {
                    warnings.push(format!(
                        "home_agent.peer {}: neither in home_prefix nor in home_network; is it a home agent of this \
                         home prefix?",
                        peer.address
                    ));
                }
            }
            if self.station.state_dir.is_none() && agent.mobile_routers.iter().any(by_sequence) {
                warnings.push(
                    "home_agent without station.state_dir: a restart forgets the sequence numbers, and \
                     with them which Binding Updates are replays"
                        .to_owned(),
                );
            }
        }
        if let Some(router) = &self.mobile_router {
            let table = router.table();
            if router.auth == Auth::None {
                warnings.push(format!(
                    "{table}: auth = \"none\": anyone who reaches the home agent can take over the traffic of \
                     this {}",
                    table.replace('_', " ")
                ));
            }
            let by_sequence = router.auth.mac().is_some_and(|mac| mac.replay == Replay::Sequence);
            if by_sequence && self.station.state_dir.is_none() {
                warnings.push(format!(
                    "{table} without station.state_dir: each start takes its first sequence number from the clock, and \
                     uses up the numbers of the key sooner (32768, then the home agent demands timestamps)"
                ));
            }
            let limited = router.uplinks.iter().filter(|uplink| uplink.volume.is_some());
            for uplink in limited.filter(|_| self.station.state_dir.is_none()) {
                warnings.push(format!(
                    "{table}.uplink {}: volume without station.state_dir: a restart forgets what was used",
                    uplink.interface
                ));
            }
        }
        if let Some(conformance) = &self.conformance {
            warnings.push(format!(
                "conformance.upper_tester: anyone who reaches {} can steer this station",
                conformance.upper_tester
            ));
        }
        warnings
    }
}
