//! `[mobile_router]`, and `[mobile_node]`, which has no mobile network.

mod lan;
mod policy;
mod transport;
mod uplink;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use carnet_mobility::ReplayProtection;
use carnet_mobility::mobile_router::{HeartbeatIntervals, RegistrationMode};
use carnet_nemo::OwnTraffic;
use carnet_nemo::forwarding::assign_prefixes;
use carnet_wire::address::MacAddress;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::auth::{self, Auth};
use super::conflicts::{
    check_disjoint, check_home_address, check_home_agent_outside_prefixes,
    check_ipv4_home_agents_outside_prefixes, refuse_taken_interface,
};
use super::errors::ErrorSink;
use super::keys::{
    Key, OptionalKey, Section, TableKey, ValueKind, integer_kind, key_with_default, optional_key,
    required_key, required_table_array, table_array, text_kind, value_kind, words_kind,
};
use super::reader::{List, Located, LocatedValue};
use super::session_keys::{self, DEFAULT_TUNNEL_PORT, PublicKey, SecretKey, SessionKeys};
use super::table::{Table, all};
use super::{kinds, values};

pub use lan::{AllowedPackets, Dhcp, DhcpOption, DhcpReservation, InboundFilter, InboundPolicy, Lan};
pub use policy::{Policy, PolicyAction, PolicyNetworks, values_or_any};
pub use transport::PolicyProtocol;
pub use uplink::{RoamingUse, Uplink, VolumePeriod};

/// Default interval of heartbeats, with which the router detects a failed path within a second.
const DEFAULT_HEARTBEAT: Duration = Duration::from_millis(250);
/// Maximum number of mobile network prefixes of a router with direct routes.
const MAX_DIRECT_ROUTES: usize = 8;
/// Maximum number of DNS servers of the forwarder.
const MAX_DNS_FORWARD_SERVERS: usize = 8;

/// Values of the config table `[mobile_router]`, or `[mobile_node]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MobileRouter {
    /// Home address.
    pub home_address: Ipv6Addr,
    /// Prefix of the home link.
    pub home_prefix: Ipv6Net,
    /// The home agents.
    pub home_agents: HomeAgents,
    /// UDP port of encrypted sessions at the home agents.
    pub home_agent_port: u16,
    /// Whether packets inside IPv4 always go in UDP.
    pub always_uses_udp: bool,
    /// Intervals of heartbeats; `None` if the router sends no heartbeats.
    pub heartbeat_intervals: Option<HeartbeatIntervals>,
    /// Mobile network prefixes; empty for a mobile node.
    pub prefixes: Vec<Ipv6Net>,
    /// IPv4 prefixes of the mobile network. A mobile node with an IPv4 home address has this address here, as
    /// a prefix of 32 bits.
    pub ipv4_prefixes: Vec<Ipv4Net>,
    /// How the home agent learns the prefixes: from Binding Updates or from its own config. A mobile node has
    /// none.
    pub registration: RegistrationMode,
    /// Requested lifetime, a multiple of 4 s from 4 s to 262140 s.
    pub lifetime: Duration,
    /// Interfaces of the mobile network.
    pub lan_interfaces: Vec<Lan>,
    /// Whether carnet gives the `lan` interfaces an address and advertises their prefixes. The table of an
    /// interface can override it.
    pub advertises_on_lan: bool,
    /// DNS servers that the forwarder on board asks; empty without a forwarder.
    pub dns_forward_servers: Vec<IpAddr>,
    /// Whether packets of hosts on board leave without the tunnel while the home agent does not answer.
    pub breaks_out_without_home_agent: bool,
    /// Whether packets of this machine's own programs take the tunnel or an uplink.
    pub own_traffic: OwnTraffic,
    /// Whether carnet offers care-of addresses of the visited links to nested mobile routers, and uses those
    /// that other routers offer.
    pub nesting_enabled: bool,
    /// Link-layer addresses of known nested mobile routers, which may register more addresses than other
    /// nodes.
    pub nested_routers: Vec<MacAddress>,
    /// Networks that contain all mobile networks to which direct routes may lead; empty if direct routes are
    /// off.
    pub direct_routes: Vec<Ipv6Net>,
    /// Whether packets between vehicles must be encrypted, if the router has a key of its home agent.
    pub requires_direct_encryption: bool,
    /// Whether the router asks the home agent for changes of the home prefix.
    pub prefix_discovery: bool,
    /// URL that the router requests over an uplink on which the home agent does not answer, to find a captive
    /// portal.
    pub captive_portal_probe: Option<ProbeUrl>,
    /// Authentication of Binding Updates.
    pub auth: Auth,
    /// The uplinks in the order of the file, at least one.
    pub uplinks: Vec<Uplink>,
    /// Policies that choose uplinks for packets, in the order of the file.
    pub policies: Vec<Policy>,
}

impl MobileRouter {
    /// Returns whether packets take direct routes only through encrypted sessions.
    pub fn encrypts_direct_routes(&self) -> bool {
        self.requires_direct_encryption && self.auth.session_keys().is_some()
    }
}

/// The home agents of a mobile router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomeAgents {
    /// Addresses, the preferred first.
    pub addresses: Vec<Ipv6Addr>,
    /// IPv4 addresses in the same order, for uplinks without IPv6; empty if such uplinks cannot be used.
    pub ipv4_addresses: Vec<Ipv4Addr>,
    /// Whether the router discovers further home agents (RFC 6275 11.4.1).
    pub discovers_home_agents: bool,
}

/// HTTP URL (without TLS) that the router requests to find a captive portal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeUrl {
    /// Address and port of the web server.
    pub address: SocketAddr,
    /// Host and port as the URL has them.
    pub host_and_port: String,
    /// Path, which begins with `/`.
    pub path: String,
}

impl MobileRouter {
    /// Returns whether the node has a mobile network, so that the table is `[mobile_router]`.
    pub fn is_router(&self) -> bool {
        self.registration != RegistrationMode::Host
    }

    /// Returns the interfaces of the mobile network, each with its first IPv4 prefix.
    pub fn lans_with_ipv4_prefix(&self) -> impl Iterator<Item = (&Lan, Option<Ipv4Net>)> {
        let named = self.lan_interfaces.iter().map(|lan| lan.ipv4_prefixes.as_slice());
        let shares = lan::first_prefix_of_each_lan(&self.ipv4_prefixes, named);
        self.lan_interfaces.iter().zip(shares)
    }

    /// Returns the interfaces of the mobile network, each with every prefix of its hosts.
    pub fn lan_networks(&self) -> Vec<(&Lan, IpNet)> {
        let ipv6 = assign_prefixes(
            &self.prefixes,
            self.lan_interfaces.iter().map(|lan| (lan, lan.prefixes.as_slice())),
        );
        let ipv4 = assign_prefixes(
            &self.ipv4_prefixes,
            self.lan_interfaces.iter().map(|lan| (lan, lan.ipv4_prefixes.as_slice())),
        );
        let ipv6 = ipv6
            .prefixes_of_named_interfaces
            .into_iter()
            .chain(ipv6.prefixes_without_interface)
            .map(|(lan, prefix)| (lan, prefix.into()));
        let ipv4 = ipv4
            .prefixes_of_named_interfaces
            .into_iter()
            .chain(ipv4.prefixes_without_interface)
            .map(|(lan, prefix)| (lan, prefix.into()));
        ipv6.chain(ipv4).collect()
    }

    /// Returns the networks that carnet does not delegate to routers on board: the links of the interfaces,
    /// and the home address.
    pub fn undelegated_networks(&self) -> Vec<Ipv6Net> {
        let links = self.lan_networks().into_iter().filter_map(|(_, network)| match network {
            IpNet::V6(network) => Some(lan::link_prefix(network)),
            IpNet::V4(_) => None,
        });
        links.chain([self.home_address.into()]).collect()
    }

    /// Returns the prefixes that the config assigns to the other interfaces of the mobile network.
    pub fn networks_of_other_lans(&self, lan: &Lan) -> Vec<Ipv6Net> {
        let others = self.lan_interfaces.iter().filter(|other| other.interface != lan.interface);
        others.flat_map(|other| other.prefixes.iter().copied()).collect()
    }

    /// Returns the name of the table in the file.
    pub(super) fn table_name(&self) -> &'static str {
        if self.is_router() { "mobile_router" } else { "mobile_node" }
    }

    /// Returns warnings about a valid table, one line each. `has_state_dir` says whether the station stores
    /// its state.
    pub(super) fn warnings(&self, has_state_dir: bool) -> Vec<String> {
        let mut warnings = Vec::new();
        let table = self.table_name();
        if self.auth == Auth::None {
            warnings.push(format!(
                "{table}: auth = \"none\": anyone who reaches the home agent can take over the traffic of \
                 this {}",
                table.replace('_', " ")
            ));
        }
        let by_sequence = self
            .auth
            .shared_key_auth()
            .is_some_and(|mac| mac.replay_protection == ReplayProtection::Sequence);
        if by_sequence && !has_state_dir {
            warnings.push(format!(
                "{table} without station.state_dir: each start takes its first sequence number from the \
                 clock, and uses up the numbers of the key sooner (32768, then the home agent demands \
                 timestamps)"
            ));
        }
        if matches!(self.auth, Auth::Sessions(_)) && !has_state_dir {
            warnings.push(format!(
                "{table} without station.state_dir: after a restart with an earlier clock the home agent \
                 does not answer, because the timestamps of handshakes must grow"
            ));
        }
        let has_sessions = self.auth.session_keys().is_some();
        if has_sessions && self.always_uses_udp {
            warnings.push(format!(
                "{table}.udp has no effect together with `home_agent_key`: encrypted sessions always use UDP"
            ));
        }
        if !has_sessions && self.home_agent_port != DEFAULT_TUNNEL_PORT {
            warnings.push(format!(
                "{table}.home_agent_port has no effect without `home_agent_key`: it is the port of encrypted \
                 sessions"
            ));
        }
        if self.breaks_out_without_home_agent && self.lan_interfaces.is_empty() {
            warnings.push(format!(
                "{table}.when_home_agent_is_away = \"breakout\" without lan: no packet can leave without the \
                 tunnel"
            ));
        }
        if self.own_traffic == OwnTraffic::Tunnel && self.ipv4_prefixes.is_empty() {
            warnings.push(format!(
                "{table}.own_traffic = \"tunnel\" without ipv4_prefixes: IPv4 of this machine's own programs \
                 leaves by the uplinks"
            ));
        }
        let limited = self.uplinks.iter().filter(|uplink| uplink.volume_limit.is_some());
        for uplink in limited.filter(|_| !has_state_dir) {
            warnings.push(format!(
                "{table}.uplink {}: volume without station.state_dir: the used volume is lost at a restart",
                uplink.interface
            ));
        }
        let gives_addresses = |(lan, prefix): &(&Lan, Option<Ipv4Net>)| {
            prefix.is_some_and(|prefix| lan.dhcp.enabled && lan.dhcp.default_range_in(prefix).is_some())
        };
        let leasing = self.lans_with_ipv4_prefix().filter(gives_addresses);
        let leasing: Vec<&str> = leasing.map(|(lan, _)| lan.interface.as_str()).collect();
        if !leasing.is_empty() && !has_state_dir {
            warnings.push(format!(
                "{table}.lan: DHCP on {} without station.state_dir: leases are lost at a restart, and an \
                 address in use may be given to another host; expected station.state_dir, or dhcp_enabled = \
                 false",
                leasing.join(", ")
            ));
        }
        let limited = self.lan_interfaces.iter().filter(|lan| lan.inbound_filter.rate_limit.is_some());
        let limited: Vec<&str> = limited.map(|lan| lan.interface.as_str()).collect();
        if !limited.is_empty() {
            warnings.push(format!(
                "{table}.lan: rate_limit on {}: the fast path does not carry packets of these hosts",
                limited.join(", ")
            ));
        }
        let open =
            self.lan_interfaces.iter().filter(|lan| lan.inbound_filter.inbound_policy == InboundPolicy::Any);
        let open: Vec<&str> = open.map(|lan| lan.interface.as_str()).collect();
        if !open.is_empty() {
            warnings.push(format!(
                "{table}.lan: everyone outside reaches the hosts on {}; expected inbound = \"established\" \
                 in a table [[{table}.lan]]",
                open.join(", ")
            ));
        }
        warnings
    }
}

/// Expected value in an error message: an array of home agents.
const EXPECTED_HOME_AGENTS: &str = "an address, \"discover\", or an array of addresses";

const HOME_AGENTS_KIND: ValueKind<NamedHomeAgents> = value_kind(
    "address, array of addresses or \"discover\"",
    values::EXPECTED_ADDRESS,
    NamedHomeAgents::read_home_agents,
);
const IPV4_ADDRESSES_KIND: ValueKind<List<Ipv4Addr>> =
    value_kind("IPv4 address or array", values::EXPECTED_IPV4_ADDRESS, |value| {
        if value.is_array() {
            let expected = "an IPv4 address, or an array of them";
            return List::read_array(value, expected, |item| kinds::IPV4_ADDRESS_KIND.read_value(item));
        }
        let address = kinds::IPV4_ADDRESS_KIND
            .read_value(value)
            .map(|address| Located { value: address, offset: value.offset() });
        Some(List { all_valid: address.is_some(), valid_items: address.into_iter().collect() })
    });
/// Type of a config key with an interval of heartbeats; `None` stands for no heartbeats.
const HEARTBEATS_KIND: ValueKind<Option<Duration>> =
    value_kind("duration or \"off\"", "a duration such as \"250ms\", or \"off\"", |value| {
        match value.as_str() {
            Some("off") => Some(None),
            _ => value.parse("a duration such as \"250ms\", or \"off\"", parse_heartbeat_interval).map(Some),
        }
    });
const LINK_LAYER_ADDRESSES_KIND: ValueKind<List<MacAddress>> =
    value_kind("array of link-layer addresses", "an array of link-layer addresses", |value| {
        List::read_array(value, "an array of link-layer addresses", |item| {
            item.parse("a link-layer address such as 02:00:00:00:00:0a", values::parse_own_mac)
        })
    });

static HOME_ADDRESS: Key<Ipv6Addr> = required_key(
    "home_address",
    kinds::ADDRESS_KIND,
    "Home address, in `home_prefix` or in one of `prefixes`.",
);
static HOME_PREFIX: Key<Ipv6Net> = required_key(
    "home_prefix",
    kinds::PREFIX_KIND,
    "Prefix of the home link. A station is at home, and needs no tunnel, if an uplink has this prefix, or a
     part of it with `home_agent` in it. The prefix may contain `prefixes` (RFC 4887 6); at home the station
     then answers on the uplink for hosts on board.",
);
static HOME_AGENT: Key<NamedHomeAgents> = required_key(
    "home_agent",
    HOME_AGENTS_KIND,
    r#"Address of the home agent, not in one of `prefixes`. Of several, the mobile router uses the first that
       answers and does not refuse. It tries the next if the present one refuses, owes an answer for five
       seconds, or says so itself (`carnet drain`). `"discover"`, alone or in the array, finds others (RFC
       6275 11.4.1), over IPv6."#,
);
static HOME_AGENT_IPV4: OptionalKey<List<Ipv4Addr>> = optional_key(
    "home_agent_ipv4",
    IPV4_ADDRESSES_KIND,
    "IPv4 address of the home agent: its `ipv4_address`, or the outer address of the NAT before it. One for
     each address in `home_agent`. Without this key the mobile router cannot use uplinks that have IPv4
     only.",
);
static ALWAYS_UDP: Key<bool> = key_with_default(
    "udp",
    kinds::BOOLEAN_KIND,
    "false",
    "Use UDP inside IPv4 even without a NAT. Behind a NAT, and where a network drops protocol 41, the mobile
     router uses UDP in any case.",
);
static HEARTBEAT_INTERVAL: OptionalKey<Option<Duration>> = optional_key(
    "heartbeat",
    HEARTBEATS_KIND,
    "Time between two heartbeats to the home agent on a path that carries traffic, 50 ms to 1 h. The mobile
     router leaves a path that does not answer. Without this key it is 250 ms if any uplink has a `bid`, which
     detects a dead path within a second, else off.",
);
static IDLE_HEARTBEAT_INTERVAL: Key<Duration> = key_with_default(
    "heartbeat_idle",
    kinds::duration_kind(parse_heartbeat_interval),
    "\"1s\"",
    "Time between two heartbeats on all other paths, at least `heartbeat`.",
);
static PREFIXES: Key<List<Ipv6Net>> = key_with_default(
    "prefixes",
    kinds::PREFIXES_KIND,
    "[]",
    "Prefixes of the mobile network; no two overlap. A station without a prefix is a
     [[mobile_node]](#mobile_node).",
);
static IPV4_PREFIXES: Key<List<Ipv4Net>> = key_with_default(
    "ipv4_prefixes",
    kinds::IPV4_PREFIXES_KIND,
    "[]",
    "IPv4 prefixes of the mobile network, public or private; no two overlap. They are registered and tunnelled
     as `prefixes` are (RFC 5555). The home agent needs them too, see [IPv4 on board](#ipv4-on-board).",
);
static IPV4_HOME_ADDRESS: OptionalKey<Ipv4Addr> = optional_key(
    "ipv4_home_address",
    kinds::IPV4_ADDRESS_KIND,
    "IPv4 home address of the node, public or private (RFC 5555). IPv4 packets of programs take the tunnel
     with this address while the home agent accepts it, and leave by the routes of the system otherwise. At
     the home agent it is a prefix of 32 bits in `ipv4_prefixes`.",
);
static REGISTRATION_MODE: Key<RegistrationMode> = key_with_default(
    "registration",
    words_kind(&[("explicit", RegistrationMode::Explicit), ("implicit", RegistrationMode::Implicit)]),
    "\"explicit\"",
    r#"`"explicit"`: each Binding Update names the prefixes. `"implicit"`: the home agent knows them from its
       own config."#,
);
static LIFETIME: Key<Duration> = key_with_default(
    "lifetime",
    kinds::LIFETIME_KIND,
    "\"60s\"",
    "Lifetime that the mobile router requests; the home agent may grant less.",
);
static LAN_INTERFACES: Key<List<lan::UncheckedLan>> = key_with_default(
    "lan",
    lan::LANS_KIND,
    "[]",
    "Interfaces of the mobile network. They need `prefixes`, and none of them is an uplink. A table instead of
     a name says more about an interface, see [[[mobile_router.lan]]](#mobile_routerlan).",
);
static ADVERTISE_ON_LAN: Key<bool> = key_with_default(
    "advertise",
    kinds::BOOLEAN_KIND,
    "true",
    "Give an interface of `lan` the address `PREFIX::1` if it has no address in the prefix, and send Router
     Advertisements there. Each prefix then is a /64 or shorter. With `false` the operator does both. After a
     reload from `true` to `false` the address stays until the interface has another address in the prefix, or
     carnet ends.",
);
static DNS_FORWARD_SERVERS: Key<List<IpAddr>> = key_with_default(
    "dns_forward",
    lan::SERVERS_KIND,
    "[]",
    "DNS servers that carnet asks for hosts on board, through the tunnel, the preferred first, at most 8. With
     this key carnet answers DNS queries on each interface of `lan` from a cache, knows hosts with a lease by
     their names, and is the DNS server of hosts if the table of the interface has no `dns`, see
     [on-board.md](on-board.md).",
);
static OWN_TRAFFIC: Key<OwnTraffic> = key_with_default(
    "own_traffic",
    words_kind(&[("uplinks", OwnTraffic::Uplinks), ("tunnel", OwnTraffic::Tunnel)]),
    r#""uplinks""#,
    r#"Way of packets of this machine's own programs, such as NTP, DNS and apt. `"uplinks"`: out of an uplink,
       by the routes of the system. `"tunnel"`: through the tunnel, with the home address as their source, or
       an address in `ipv4_prefixes`. [on-board.md](on-board.md#programs-of-the-router-itself) has the
       exceptions."#,
);
static WHEN_HOME_AGENT_IS_AWAY: Key<bool> = key_with_default(
    "when_home_agent_is_away",
    words_kind(&[("block", false), ("breakout", true)]),
    r#""block""#,
    r#"Treatment of packets of hosts on board if the home agent does not answer, or refuses. `"block"`: they
       take the tunnel until the binding's lifetime ends, then they are answered as unreachable. `"breakout"`:
       after 10 seconds they leave by an uplink [past the tunnel](on-board.md#past-the-tunnel) until the home
       agent is back. It needs `lan`."#,
);
static NESTING: Key<bool> = key_with_default(
    "nesting",
    kinds::BOOLEAN_KIND,
    "false",
    "Mobile routers on board may have care-of addresses of the links that this router visits, and this router
     takes one behind another router that offers it. Their packets then do not pass every home agent, see
     [nesting.md](nesting.md). `false` is plain NEMO in both roles. With `true` any host on board can register
     an address of the visited link, and send and receive tunnels and UDP of port 4191 by it: see
     [threats](threats.md#on-board).",
);
static NESTED_ROUTERS: Key<List<MacAddress>> = key_with_default(
    "nested_routers",
    LINK_LAYER_ADDRESSES_KIND,
    "[]",
    "Known mobile routers on board, for `nesting`. Each may register 16 addresses, for itself and for routers
     behind it. All other routers together may register 8.",
);
static DIRECT_ROUTES: Key<List<Ipv6Net>> = key_with_default(
    "direct_routes",
    kinds::PREFIXES_KIND,
    "[]",
    "Networks that contain mobile networks, such as those of the own fleet. If packets go to one of them, this
     router asks its mobile router for a direct route, without the home agents between. Mobile routers of
     these networks that ask get one, see [direct-routes.md](direct-routes.md). It needs a `dataplane.path`
     other than `kernel`, no `[home_agent]` in the same station, and at most 8 `prefixes`, each a /64. If it
     is empty, all packets pass the home agent.",
);
static DIRECT_ENCRYPTION: Key<bool> = key_with_default(
    "direct_encryption",
    words_kind(&[("required", true), ("off", false)]),
    r#""required""#,
    r#"Encryption of packets between vehicles, for a router with `home_agent_key`. With `"required"` direct
       routes use encrypted sessions, and the other router needs a key pair as well. `[geonet.mnpp]` has no
       sessions yet, so `"required"` refuses it. With `"off"` packets between vehicles leave in the clear, and
       those to the home agent are encrypted. Both routers of a direct route need the same value. Without
       `home_agent_key` it has no effect. See [tunnel](tunnel.md#direct-routes)."#,
);
static PREFIX_DISCOVERY: Key<bool> = key_with_default(
    "prefix_discovery",
    kinds::BOOLEAN_KIND,
    "false",
    "Ask the home agent from time to time whether the home link still has the prefix of the home address (RFC
     6275 11.4.2), and warn if it has not. Nothing authenticates the answer, so it has no other effect.",
);
static CAPTIVE_PORTAL_PROBE: OptionalKey<ProbeUrl> = optional_key(
    "captive_portal_probe",
    text_kind("URL", EXPECTED_PROBE_URL, parse_probe_url),
    "URL to request over an uplink, to find a captive portal. The mobile router requests it if the uplink has
     an address and a router and the home agent does not answer over it. The server answers with status 204; a
     redirection or a page means a portal, and `carnet show uplinks` names it. See [captive
     portals](#captive-portals).",
);
static AUTH: OptionalKey<Auth> = optional_key(
    "auth",
    auth::AUTH_KIND,
    "How the home agent authenticates Binding Updates, see [auth](#auth). Required without `home_agent_key`.",
);
/// One public key, or an array of them.
const HOME_AGENT_KEYS: ValueKind<List<PublicKey>> =
    value_kind("key in base64 or array", session_keys::EXPECTED_KEY, |value| {
        if value.is_array() {
            let expected = "a key in base64, or an array of them";
            return List::read_array(value, expected, |item| session_keys::PUBLIC_KEY_KIND.read_value(item));
        }
        let key = session_keys::PUBLIC_KEY_KIND
            .read_value(value)
            .map(|key| Located { value: key, offset: value.offset() });
        Some(List { all_valid: key.is_some(), valid_items: key.into_iter().collect() })
    });
static HOME_AGENT_KEY: OptionalKey<List<PublicKey>> = optional_key(
    "home_agent_key",
    HOME_AGENT_KEYS,
    "Public key of the home agent, in place of `auth`: signalling and traffic then travel in encrypted
     sessions, see [tunnel](tunnel.md). One key for all home agents, or an array in the order of `home_agent`.
     It needs `station.private_key_file`.",
);
static PRESHARED_KEY_FILE: OptionalKey<SecretKey> = optional_key(
    "preshared_key_file",
    session_keys::SECRET_KEY_FILE_KIND,
    "With `home_agent_key`: a file, mode 0600, with the preshared key, as in [auth](#auth).",
);
static HOME_AGENT_PORT: Key<u16> = key_with_default(
    "home_agent_port",
    integer_kind(1, 65_535),
    "51820",
    "With `home_agent_key`: UDP port of the encrypted sessions, the `tunnel_port` of the home agent.",
);
static UPLINKS: TableKey = required_table_array(
    "uplink",
    &uplink::SECTION,
    "at least one table [[mobile_router.uplink]]",
    "The uplinks, see [[[mobile_router.uplink]]](#mobile_routeruplink).",
);
static POLICIES: TableKey = table_array(
    "policy",
    &policy::SECTION,
    "Policies that select uplinks for packets, see [[[mobile_router.policy]]](#mobile_routerpolicy).",
);

/// Keys of the config table `[mobile_router]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[mobile_router]",
    "mobile_router",
    &[
        &HOME_ADDRESS,
        &HOME_PREFIX,
        &HOME_AGENT,
        &HOME_AGENT_IPV4,
        &ALWAYS_UDP,
        &HEARTBEAT_INTERVAL,
        &IDLE_HEARTBEAT_INTERVAL,
        &PREFIXES,
        &IPV4_PREFIXES,
        &REGISTRATION_MODE,
        &LIFETIME,
        &LAN_INTERFACES,
        &ADVERTISE_ON_LAN,
        &DNS_FORWARD_SERVERS,
        &WHEN_HOME_AGENT_IS_AWAY,
        &OWN_TRAFFIC,
        &NESTING,
        &NESTED_ROUTERS,
        &DIRECT_ROUTES,
        &DIRECT_ENCRYPTION,
        &PREFIX_DISCOVERY,
        &CAPTIVE_PORTAL_PROBE,
        &AUTH,
        &HOME_AGENT_KEY,
        &PRESHARED_KEY_FILE,
        &HOME_AGENT_PORT,
        &UPLINKS,
        &POLICIES,
    ],
);

static NODE_UPLINKS: TableKey = required_table_array(
    "uplink",
    &uplink::SECTION_OF_NODE,
    "at least one table [[mobile_node.uplink]]",
    "The uplinks.",
);
static NODE_POLICIES: TableKey =
    table_array("policy", &policy::SECTION_OF_NODE, "Policies that select uplinks for packets.");

/// `[mobile_node]`: the keys of a mobile router without those of its mobile network.
pub(in crate::config) static SECTION_OF_NODE: Section = Section::new(
    "[mobile_node]",
    "mobile_node",
    &[
        &HOME_ADDRESS,
        &HOME_PREFIX,
        &HOME_AGENT,
        &HOME_AGENT_IPV4,
        &ALWAYS_UDP,
        &HEARTBEAT_INTERVAL,
        &IDLE_HEARTBEAT_INTERVAL,
        &IPV4_HOME_ADDRESS,
        &LIFETIME,
        &NESTING,
        &PREFIX_DISCOVERY,
        &CAPTIVE_PORTAL_PROBE,
        &AUTH,
        &HOME_AGENT_KEY,
        &PRESHARED_KEY_FILE,
        &HOME_AGENT_PORT,
        &NODE_UPLINKS,
        &NODE_POLICIES,
    ],
)
.with_meanings(&[
    ("home_address", "Home address, in `home_prefix`."),
    ("home_prefix", "Prefix of the home link."),
    ("home_agent", "Address of the home agent, as in `[mobile_router]`."),
    ("home_agent_ipv4", "IPv4 address of the home agent."),
    ("udp", "Use UDP inside IPv4 even without a NAT."),
    ("heartbeat", "Time between two heartbeats to the home agent on a path that carries traffic."),
    ("heartbeat_idle", "Time between two heartbeats on all other paths."),
    ("lifetime", "Lifetime that the mobile node requests."),
    (
        "nesting",
        "Take a care-of address of the link that a mobile router visits, in the network of a mobile router
         that offers it, see [nesting.md](nesting.md).",
    ),
    (
        "captive_portal_probe",
        "URL to request over an uplink, to find a captive portal, as in `[mobile_router]`.",
    ),
]);

/// Reads `auth`, or `home_agent_key` in its place.
fn read_auth(table: &Table<'_>) -> Option<Located<Auth>> {
    let auth = table.find_key_with_offset(&AUTH);
    let keys = table.find_key_with_offset(&HOME_AGENT_KEY);
    let preshared_key = table.find_key_with_offset(&PRESHARED_KEY_FILE);
    match (table.value_of_key(&AUTH), table.value_of_key(&HOME_AGENT_KEY)) {
        (None, None) => {
            table.report_missing(&AUTH, &format!("{}, or `home_agent_key`", auth::EXPECTED_AUTH));
            None
        }
        (Some(_), Some(key)) => {
            key.report_error("found both `auth` and `home_agent_key`, expected one of them");
            None
        }
        (Some(value), None) => {
            if let Some(preshared) = table.value_of_key(&PRESHARED_KEY_FILE) {
                preshared.report_error("found no `home_agent_key` beside it, expected both");
            }
            let auth = auth??;
            if auth.value.session_keys().is_some() {
                value.report_error("a mobile router names the home agent's key, expected `home_agent_key`");
                return None;
            }
            Some(auth)
        }
        (None, Some(_)) => {
            let keys = keys??;
            let preshared_key = preshared_key?.map(|key| key.value);
            let public_keys = keys.value.complete_items()?;
            Some(Located {
                value: Auth::Sessions(Box::new(SessionKeys { public_keys, preshared_key })),
                offset: keys.offset,
            })
        }
    }
}

/// Home agents that the config names.
#[derive(Clone)]
struct NamedHomeAgents {
    addresses: List<Ipv6Addr>,
    discovers_home_agents: bool,
}

impl NamedHomeAgents {
    /// Reads one address, or an array of addresses.
    fn read_home_agents(value: &LocatedValue<'_>) -> Option<NamedHomeAgents> {
        let (elements, whole) = match value.is_array().then(|| value.read_array(EXPECTED_HOME_AGENTS)) {
            Some(Some(elements)) => (elements, true),
            Some(None) => (Vec::new(), false),
            None => (Vec::new(), true),
        };
        let one = Some(value).filter(|value| !value.is_array());
        let all: Vec<&LocatedValue<'_>> = elements.iter().chain(one).collect();
        let (discover, named): (Vec<&LocatedValue<'_>>, Vec<&LocatedValue<'_>>) =
            all.iter().partition(|value| value.as_str() == Some("discover"));
        let items: Vec<Located<Ipv6Addr>> = named
            .iter()
            .filter_map(|value| {
                Some(Located { value: kinds::ADDRESS_KIND.read_value(value)?, offset: value.offset() })
            })
            .collect();
        let whole = whole && items.len() == named.len();
        if whole && all.is_empty() {
            value.report_error(&format!("found no home agent, expected {EXPECTED_HOME_AGENTS}"));
        }
        let addresses = List { valid_items: items, all_valid: whole && !all.is_empty() };
        Some(NamedHomeAgents { addresses, discovers_home_agents: !discover.is_empty() })
    }
}

/// Keys of the mobile network, which a mobile node lacks.
struct MobileNetworkKeys {
    prefixes: List<Ipv6Net>,
    ipv4_prefixes: List<Ipv4Net>,
    registration: Option<RegistrationMode>,
    lan_interfaces: List<lan::UncheckedLan>,
    advertises_on_lan: Option<bool>,
    dns_forward_servers: List<IpAddr>,
    breaks_out_without_home_agent: Option<bool>,
    own_traffic: Option<OwnTraffic>,
    nested_routers: List<MacAddress>,
    direct_routes: List<Ipv6Net>,
    requires_direct_encryption: Option<bool>,
}

impl MobileNetworkKeys {
    fn read_table(table: &Table<'_>) -> MobileNetworkKeys {
        MobileNetworkKeys {
            prefixes: table.read_key(&PREFIXES).unwrap_or_default(),
            ipv4_prefixes: table.read_key(&IPV4_PREFIXES).unwrap_or_default(),
            registration: table.read_key(&REGISTRATION_MODE),
            lan_interfaces: table.read_key(&LAN_INTERFACES).unwrap_or_default(),
            advertises_on_lan: table.read_key(&ADVERTISE_ON_LAN),
            dns_forward_servers: table.read_key(&DNS_FORWARD_SERVERS).unwrap_or_default(),
            breaks_out_without_home_agent: table.read_key(&WHEN_HOME_AGENT_IS_AWAY),
            own_traffic: table.read_key(&OWN_TRAFFIC),
            nested_routers: table.read_key(&NESTED_ROUTERS).unwrap_or_default(),
            direct_routes: table.read_key(&DIRECT_ROUTES).unwrap_or_default(),
            requires_direct_encryption: table.read_key(&DIRECT_ENCRYPTION),
        }
    }

    /// Returns the interfaces if all of them are valid.
    fn valid_lans(&self) -> Option<Vec<Lan>> {
        let lans = self.lan_interfaces.complete_items()?;
        lans.into_iter().map(|lan| lan.into_lan(self.advertises_on_lan?)).collect()
    }

    /// Returns the values for a mobile node, which has no mobile network. Its IPv4 home address counts as an
    /// IPv4 prefix of 32 bits.
    fn for_mobile_node(table: &Table<'_>) -> MobileNetworkKeys {
        let address = table.find_key_with_offset(&IPV4_HOME_ADDRESS);
        let prefixes =
            address.flatten().map(|it| Located { value: Ipv4Net::from(it.value), offset: it.offset });
        MobileNetworkKeys {
            prefixes: List::default(),
            ipv4_prefixes: List { valid_items: prefixes.into_iter().collect(), all_valid: address.is_some() },
            registration: Some(RegistrationMode::Host),
            lan_interfaces: List::default(),
            advertises_on_lan: Some(true),
            dns_forward_servers: List::default(),
            breaks_out_without_home_agent: Some(false),
            own_traffic: Some(OwnTraffic::Uplinks),
            nested_routers: List::default(),
            direct_routes: List::default(),
            requires_direct_encryption: Some(true),
        }
    }
}

/// The parsed table, with the values that the checks compare with other tables.
pub(super) struct UncheckedMobileRouter {
    /// Whether the table is `[mobile_router]`.
    pub is_router: bool,
    pub home_address: Option<Located<Ipv6Addr>>,
    home_prefix: Option<Located<Ipv6Net>>,
    /// Home agents; `None` if they are missing.
    home_agents: Option<NamedHomeAgents>,
    ipv4_addresses: List<Ipv4Addr>,
    mobile_network: MobileNetworkKeys,
    pub auth: Option<Located<Auth>>,
    pub uplinks: Vec<uplink::UncheckedUplink>,
    policies: Vec<policy::UncheckedPolicy>,
    /// Config of the table; `None` if the table has an error.
    pub config: Option<MobileRouter>,
}

impl UncheckedMobileRouter {
    /// Reads `[mobile_router]`.
    pub(super) fn read_table(table: &Table<'_>) -> UncheckedMobileRouter {
        UncheckedMobileRouter::read_with_sections(table, MobileNetworkKeys::read_table, &UPLINKS, &POLICIES)
    }

    /// Reads `[mobile_node]`.
    pub(super) fn read_mobile_node(table: &Table<'_>) -> UncheckedMobileRouter {
        UncheckedMobileRouter::read_with_sections(
            table,
            MobileNetworkKeys::for_mobile_node,
            &NODE_UPLINKS,
            &NODE_POLICIES,
        )
    }

    fn read_with_sections(
        table: &Table<'_>,
        network: fn(&Table<'_>) -> MobileNetworkKeys,
        uplinks_key: &TableKey,
        policies_key: &TableKey,
    ) -> UncheckedMobileRouter {
        let uplinks = table.subtables(uplinks_key);
        if let Some(value) = table.value_of_key(uplinks_key).filter(LocatedValue::is_empty) {
            value.report_error(&format!("found no uplink, expected {}", uplinks_key.expected_text()));
        }
        let uplinks: Option<Vec<uplink::UncheckedUplink>> =
            uplinks.map(|tables| tables.iter().map(uplink::UncheckedUplink::read_table).collect());
        let home_address = table.read_key_with_offset(&HOME_ADDRESS);
        let home_prefix = table.read_key_with_offset(&HOME_PREFIX);
        let home_agents = table.read_key(&HOME_AGENT);
        let ipv4_addresses = table.read_key(&HOME_AGENT_IPV4).flatten().unwrap_or_default();
        let is_router = uplinks_key.section().path == uplink::SECTION.path;
        let read_policy = |table: &Table<'_>| policy::UncheckedPolicy::read_table(table, is_router);
        let policies: Option<Vec<policy::UncheckedPolicy>> =
            table.subtables(policies_key).map(|tables| tables.iter().map(read_policy).collect());
        let network = network(table);
        let auth = read_auth(table);
        let uplinks_config: Option<Vec<Uplink>> =
            uplinks.as_ref().and_then(|uplinks| uplinks.iter().map(|uplink| uplink.config.clone()).collect());
        let has_bids = uplinks_config.iter().flatten().any(|uplink| uplink.bid.is_some());
        let config = all!(MobileRouter {
            home_address: home_address.map(|address| address.value),
            home_prefix: home_prefix.map(|prefix| prefix.value),
            home_agents: home_agents.as_ref().and_then(|agents| {
                Some(HomeAgents {
                    addresses: agents.addresses.complete_items()?,
                    ipv4_addresses: ipv4_addresses.complete_items()?,
                    discovers_home_agents: agents.discovers_home_agents,
                })
            }),
            home_agent_port: table.read_key(&HOME_AGENT_PORT),
            always_uses_udp: table.read_key(&ALWAYS_UDP),
            heartbeat_intervals: read_heartbeat(table, has_bids),
            prefixes: network.prefixes.complete_items(),
            ipv4_prefixes: network.ipv4_prefixes.complete_items(),
            registration: network.registration,
            lifetime: table.read_key(&LIFETIME),
            lan_interfaces: network.valid_lans(),
            advertises_on_lan: network.advertises_on_lan,
            dns_forward_servers: network.dns_forward_servers.complete_items(),
            breaks_out_without_home_agent: network.breaks_out_without_home_agent,
            own_traffic: network.own_traffic,
            nesting_enabled: table.read_key(&NESTING),
            nested_routers: network.nested_routers.complete_items(),
            direct_routes: network.direct_routes.complete_items(),
            requires_direct_encryption: network.requires_direct_encryption,
            prefix_discovery: table.read_key(&PREFIX_DISCOVERY),
            captive_portal_probe: table.read_key(&CAPTIVE_PORTAL_PROBE),
            auth: auth.as_ref().map(|auth| auth.value.clone()),
            uplinks: uplinks_config,
            policies: policies
                .as_ref()
                .and_then(|policies| policies.iter().map(|policy| policy.config.clone()).collect()),
        });
        UncheckedMobileRouter {
            is_router,
            home_address,
            home_prefix,
            home_agents,
            ipv4_addresses,
            mobile_network: network,
            auth,
            uplinks: uplinks.unwrap_or_default(),
            policies: policies.unwrap_or_default(),
            config,
        }
    }

    /// Returns the valid addresses of home agents.
    pub(super) fn home_agents(&self) -> &[Located<Ipv6Addr>] {
        self.home_agents.as_ref().map_or(&[], |agents| &agents.addresses.valid_items)
    }

    /// Returns the valid IPv4 addresses of home agents.
    pub(super) fn home_agents_ipv4(&self) -> &[Located<Ipv4Addr>] {
        &self.ipv4_addresses.valid_items
    }

    /// Returns whether there may be several home agents.
    pub(super) fn has_several_home_agents(&self) -> bool {
        self.home_agents
            .as_ref()
            .is_some_and(|agents| agents.discovers_home_agents || agents.addresses.valid_items.len() > 1)
    }

    /// Returns the valid interfaces of the mobile network.
    pub(super) fn valid_lan_interfaces(&self) -> Vec<&Located<String>> {
        self.mobile_network
            .lan_interfaces
            .valid_items
            .iter()
            .filter_map(|lan| lan.value.interface.as_ref())
            .collect()
    }

    /// Reports conflicts between values of the table. `is_home_agent` says whether the file also has
    /// `[home_agent]`.
    pub(super) fn check_values(&self, is_home_agent: bool, sink: &ErrorSink<'_>) {
        check_home_address(self.home_address, self.home_prefix, &self.mobile_network.prefixes, sink);
        self.check_home_agents(sink);
        self.check_key_per_home_agent(sink);
        check_disjoint(&self.mobile_network.prefixes.valid_items, sink);
        check_disjoint(&self.mobile_network.ipv4_prefixes.valid_items, sink);
        check_ipv4_home_agents_outside_prefixes(
            self.home_agents_ipv4(),
            &self.mobile_network.ipv4_prefixes,
            sink,
        );
        self.check_advertised_prefixes(sink);
        let MobileNetworkKeys {
            prefixes,
            ipv4_prefixes,
            lan_interfaces: lan,
            advertises_on_lan: advertise,
            ..
        } = &self.mobile_network;
        lan::check_lans(&lan.valid_items, prefixes, ipv4_prefixes, *advertise, sink);
        let home_address = self.home_address.map(|address| address.value);
        lan::check_delegation(&lan.valid_items, prefixes, home_address, *advertise, sink);
        policy::check_policies(&self.policies, &self.uplinks, lan, sink);
        if let Some(router) = &self.config {
            policy::check_flow_bindings(&self.policies, router, sink);
        }
        self.check_dns_forward_servers(sink);
        self.check_interfaces(sink);
        self.check_direct_routes(is_home_agent, sink);
    }

    /// Checks that no home agent is listed twice, and that all or none have an IPv4 address.
    fn check_home_agents(&self, sink: &ErrorSink<'_>) {
        let agents = self.home_agents();
        for (index, agent) in agents.iter().enumerate() {
            if let Some(own) = self.home_address.filter(|own| own.value == agent.value) {
                let place = sink.format_position(own.offset);
                sink.push(
                    agent.offset,
                    format!("{} is the home address at {place}, expected another", own.value),
                );
            }
            if let Some(other) = agents.iter().take(index).find(|other| other.value == agent.value) {
                let place = sink.format_position(other.offset);
                sink.push(
                    agent.offset,
                    format!("{} is there at {place} already, expected another", agent.value),
                );
            }
            check_home_agent_outside_prefixes(Some(*agent), &self.mobile_network.prefixes, sink);
        }
        let whole = self.ipv4_addresses.all_valid
            && self.home_agents.as_ref().is_some_and(|agents| agents.addresses.all_valid);
        let ipv4 = self.home_agents_ipv4();
        if let Some(first) = ipv4.first().filter(|_| whole && ipv4.len() != agents.len()) {
            let message = format!(
                "there are {} IPv4 addresses for {} home agents, expected one for each in `home_agent`",
                ipv4.len(),
                agents.len()
            );
            sink.push(first.offset, message);
        }
    }

    /// Checks that each home agent has a key of its own if there are several. RFC 4285's authenticator does
    /// not cover the home agent's address. If home agents shared a key, an attacker could record a Binding
    /// Update to one of them, and another one would accept it.
    fn check_key_per_home_agent(&self, sink: &ErrorSink<'_>) {
        let Some(auth) = self.auth.as_ref().filter(|_| self.has_several_home_agents()) else { return };
        if auth.value.shared_key_auth().is_some_and(|mac| mac.differs_per_home_agent != Some(true)) {
            let message = "with one key for several home agents an attacker can replay Binding Updates to \
                           one at another, expected per_agent = true";
            sink.push(auth.offset, message);
        }
    }

    /// Checks that the mobile network has prefixes, and that each advertised prefix has at most 64 bits.
    fn check_advertised_prefixes(&self, sink: &ErrorSink<'_>) {
        let (lan, prefixes) = (self.valid_lan_interfaces(), &self.mobile_network.prefixes);
        let Some(interface) = lan.first() else { return };
        if prefixes.valid_items.is_empty() && prefixes.all_valid {
            let message = "the mobile network has no prefix, expected `mobile_router.prefixes`";
            sink.push(interface.offset, message);
        }
        // RFC 4862 5.5.3: hosts derive addresses only from a /64; carnet uses the first /64 of a shorter
        // prefix.
        let lans = self.mobile_network.lan_interfaces.valid_items.iter();
        let mut advertises =
            lans.filter_map(|lan| lan.value.advertise?.or(self.mobile_network.advertises_on_lan));
        if advertises.any(|advertises| advertises) {
            for prefix in prefixes.valid_items.iter().filter(|prefix| prefix.value.prefix_len() > 64) {
                let message = "is too long for Router Advertisements, expected /64 or shorter, \
                               or advertise = false";
                sink.push(prefix.offset, format!("{} {message}", prefix.value));
            }
        }
    }

    /// Checks the DNS servers of the forwarder, which has to reach them through the tunnel.
    fn check_dns_forward_servers(&self, sink: &ErrorSink<'_>) {
        let MobileNetworkKeys { dns_forward_servers: dns_forward, ipv4_prefixes, .. } = &self.mobile_network;
        lan::check_unique(&dns_forward.valid_items, "a server", sink);
        if let Some(more) = dns_forward.valid_items.get(MAX_DNS_FORWARD_SERVERS) {
            sink.push(
                more.offset,
                format!("there are more than {MAX_DNS_FORWARD_SERVERS} servers, expected fewer"),
            );
        }
        for server in &dns_forward.valid_items {
            let wrong = match server.value {
                IpAddr::V6(address) if address.is_unicast_link_local() => {
                    "is link-local, expected a server beyond the tunnel"
                }
                IpAddr::V4(_) if ipv4_prefixes.all_valid && ipv4_prefixes.valid_items.is_empty() => {
                    "needs an IPv4 prefix on board, expected an IPv6 address, or \
                     `mobile_router.ipv4_prefixes`"
                }
                _ => continue,
            };
            sink.push(server.offset, format!("{} {wrong}", server.value));
        }
    }

    /// Checks that no interface is listed twice.
    fn check_interfaces(&self, sink: &ErrorSink<'_>) {
        let mut uplinks: Vec<&Located<String>> = Vec::new();
        for interface in self.uplinks.iter().filter_map(|uplink| uplink.interface.as_ref()) {
            match uplinks.iter().find(|other| other.value == interface.value) {
                Some(other) => refuse_taken_interface(interface, "an uplink", other, sink),
                None => uplinks.push(interface),
            }
        }
        let mut identifiers: Vec<Located<u16>> = Vec::new();
        for bid in self.uplinks.iter().filter_map(|uplink| uplink.bid?) {
            match identifiers.iter().find(|other| other.value == bid.value) {
                Some(other) => {
                    let place = sink.format_position(other.offset);
                    sink.push(
                        bid.offset,
                        format!("{} is the identifier at {place}, expected another", bid.value),
                    );
                }
                None => identifiers.push(bid),
            }
        }
        let lan = self.valid_lan_interfaces();
        for (index, interface) in lan.iter().enumerate() {
            if let Some(other) = lan.iter().take(index).find(|other| other.value == interface.value) {
                refuse_taken_interface(interface, "in the lan", other, sink);
            }
            if let Some(uplink) = uplinks.iter().find(|uplink| uplink.value == interface.value) {
                refuse_taken_interface(interface, "an uplink", uplink, sink);
            }
        }
    }

    /// Checks that the prefixes of a router with direct routes can be proven: at most 8 prefixes, each a /64.
    /// Also checks that the station is no home agent.
    fn check_direct_routes(&self, is_home_agent: bool, sink: &ErrorSink<'_>) {
        let Some(first) = self.mobile_network.direct_routes.valid_items.first() else { return };
        if is_home_agent {
            let message = "a home agent already has tunnels to the mobile networks, expected no \
                 [home_agent] in the same station";
            sink.push(first.offset, message);
        }
        let prefixes = &self.mobile_network.prefixes.valid_items;
        let mut lengths = prefixes.iter().map(|prefix| prefix.value.prefix_len());
        if let Some(prefix) = prefixes.first()
            && (prefixes.len() > MAX_DIRECT_ROUTES || lengths.any(|length| length != 64))
        {
            let message =
                "`direct_routes` cannot prove these prefixes, expected at most 8 prefixes, each a /64";
            sink.push(prefix.offset, message);
        }
    }
}

/// Reads the intervals of heartbeats, on paths that carry traffic and on other paths. Heartbeats are on by
/// default if any uplink has a BID.
fn read_heartbeat(table: &Table<'_>, has_bids: bool) -> Option<Option<HeartbeatIntervals>> {
    let interval = table.read_key(&HEARTBEAT_INTERVAL);
    let idle = table.read_key(&IDLE_HEARTBEAT_INTERVAL)?;
    let interval = interval?.unwrap_or(has_bids.then_some(DEFAULT_HEARTBEAT));
    Some(interval.map(|busy| HeartbeatIntervals { busy_interval: busy, idle_interval: idle.max(busy) }))
}

/// Parses the interval of heartbeats.
fn parse_heartbeat_interval(text: &str) -> Result<Duration, String> {
    let interval = values::parse_duration(text)?;
    if interval < Duration::from_millis(50) || interval > Duration::from_secs(3600) {
        return Err(format!("{text:?} is out of range, expected 50ms to 1h"));
    }
    Ok(interval)
}

/// Expected value in an error message: `captive_portal_probe`.
const EXPECTED_PROBE_URL: &str =
    "a URL with an address, such as \"http://192.0.2.80/generate_204\" or \"http://[2001:db8:80::1]:8080/\"";

/// Maximum length of the URL, in octets.
const MAX_PROBE_URL_LENGTH: usize = 255;

/// Parses the URL that is requested to find captive portals.
fn parse_probe_url(text: &str) -> Result<ProbeUrl, String> {
    let wrong = |what: &str| Err(format!("{text:?} {what}, expected {EXPECTED_PROBE_URL}"));
    if text.len() > MAX_PROBE_URL_LENGTH {
        return Err(format!("the URL has {} octets, expected {MAX_PROBE_URL_LENGTH} at most", text.len()));
    }
    if !text.bytes().all(|octet| octet.is_ascii_graphic()) {
        return wrong("has characters that no URL has");
    }
    let Some(rest) = text.strip_prefix("http://") else {
        return wrong("does not begin with http://");
    };
    let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let address = authority.parse::<SocketAddr>();
    let host = authority.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(authority);
    let is_bracketed = host.len() != authority.len();
    let alone = host.parse::<IpAddr>().ok().filter(|address| address.is_ipv6() == is_bracketed);
    let Some(address) = address.ok().or(alone.map(|address| SocketAddr::new(address, 80))) else {
        return wrong("does not name the host by its address");
    };
    let is_routed = match address.ip() {
        IpAddr::V4(ip) => values::parse_ipv4_address(&ip.to_string()).is_ok(),
        IpAddr::V6(ip) => values::reason_not_routed(ip).is_none(),
    };
    if !is_routed || address.port() == 0 {
        return wrong("has an address to which no packet can be sent");
    }
    Ok(ProbeUrl { address, host_and_port: authority.to_owned(), path: path.to_owned() })
}
