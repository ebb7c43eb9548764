//! The desired forwarding state: tunnels, routes, rules, addresses and interface settings.
//!
//! Every entry has a key, and the state never holds two entries with the same key. Each protocol owns
//! *scopes* (for example one scope for each binding) and replaces all entries of a scope at once with
//! [`DesiredState::replace_scope`]. Only differences become [`EntryChange`]s; a refresh without a difference
//! changes nothing in the kernel. Additions come before removals, so a new path is up before the old path
//! goes.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use carnet_base::{Endpoint, pop_and_shrink};
use carnet_mobility::SessionPeer;
pub use carnet_mobility::flow::{FlowAction, Ipv6Selector, TrafficSelector, ValueRange};
use foldhash::fast::RandomState;
use foldhash::{HashMap, HashMapExt};
use hashbrown::HashTable;
use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

use super::packet_rules::{Mark, PacketRule};

/// Name of the TUN device. All packets of the slow path enter and leave carnet through it.
pub const TUNNEL_DEVICE: &str = "carnet0";

/// The kernel's table of the machine's own addresses.
pub const TABLE_LOCAL: u32 = 255;
/// The kernel's main routing table.
pub const TABLE_MAIN: u32 = 254;
/// Number of a table with one default route into [`TUNNEL_DEVICE`]. Packets for the local address of a tunnel
/// use it, so that carnet gets them instead of the kernel's own IPv6 input.
pub const TABLE_CAPTURE: u32 = 13_500;
/// Table for packets from the mobile network. A route leads these packets into the tunnel; without a tunnel
/// the packets are unreachable.
pub const TABLE_TUNNEL: u32 = 13_501;
/// Table that makes packets unreachable: a mobile router does not forward the packets of this table.
pub const TABLE_UNREACHABLE: u32 = 13_502;
/// Table of the care-of addresses that mobile routers behind this router have, on links that this router
/// visits.
pub const TABLE_NESTED_ROUTERS: u32 = 13_505;
/// Table of the mobile networks of neighbouring vehicles that this router reaches directly.
pub const TABLE_NEIGHBOURS: u32 = 13_504;
/// Table for packets of this machine's own programs. Its default routes lead into the tunnel, and name the
/// source address of the packets.
pub const TABLE_OWN_TRAFFIC: u32 = 13_507;
/// Table that makes the home agent's address local to this machine. Packets that arrive under IPsec use this
/// table.
pub const TABLE_PROTECTED_BY_IPSEC: u32 = 13_506;
/// Number of the table for packets that leave by the first uplink without the tunnel; the uplink with index
/// `n` has this number plus `n`.
pub const TABLE_BREAKOUT: u32 = 13_400;
/// Number of the table of the first uplink in the config; the uplink with index `n` has this number plus `n`.
/// Its default route leads to the router that advertised the care-of address. If the uplink has a second
/// router, the table of that router has a number from [`TABLE_NEXT_HOP`] on.
pub const TABLE_UPLINK: u32 = 13_510;

/// First table number for the further routers of uplinks. An uplink needs several tables if its care-of
/// addresses have different routers.
pub const TABLE_NEXT_HOP: u32 = 13_600;

/// Rule priorities, in the order in which the kernel evaluates them. See `docs/kernel-rules.md`.
pub mod priority {
    /// Rejects (`unreachable`) UDP packets to the care-of address of a mobile router behind this router that
    /// are not datagrams of encrypted sessions.
    pub const REJECTED_TO_NESTED_ROUTERS: u32 = 98;
    /// Packets that arrive on an uplink for a care-of address of a mobile router behind this router. This
    /// rule comes before [`TUNNEL_CAPTURE`], because both routers may have the same home agent.
    pub const TO_NESTED_ROUTERS: u32 = 99;
    /// Rule for packets to the local address of a tunnel. It comes before the rule of the `local` table,
    /// which would deliver them to the kernel.
    pub const TUNNEL_CAPTURE: u32 = 100;
    /// Messages about direct routes, from any source address. The priority must differ from
    /// [`TUNNEL_CAPTURE`]: the kernel refuses a rule without a source if an otherwise equal rule with a
    /// source exists.
    pub const DIRECT_ROUTE_MESSAGE_CAPTURE: u32 = 101;
    /// Packets to the router's own addresses on an interface of the mobile network for which the kernel
    /// cannot install the rules of the packet filter. These addresses stay reachable.
    pub const TO_ROUTER_ON_CLOSED_LAN: u32 = 105;
    /// Packets of the router itself to an interface of [`TO_ROUTER_ON_CLOSED_LAN`] use the main table.
    pub const FROM_ROUTER_TO_CLOSED_LAN: u32 = 106;
    /// All other packets to an interface of [`TO_ROUTER_ON_CLOSED_LAN`] are unreachable.
    pub const TO_CLOSED_LAN: u32 = 107;
    /// The kernel's rule for the `local` table, which carnet moves here from priority 0, so that
    /// [`TUNNEL_CAPTURE`] precedes it.
    pub const LOCAL_TABLE_RULE: u32 = 110;
    /// Packets that carnet passes to IPsec, and packets that carnet sends for IPsec to protect.
    pub const PROTECTED_BY_IPSEC: u32 = 111;
    /// Packets from a neighbouring vehicle to the mobile network, if the interface to that vehicle is an
    /// uplink as well.
    pub const FROM_NEIGHBOURS: u32 = 112;
    /// Rejects (`unreachable`) all other packets from an uplink. A mobile router does not forward between
    /// visited networks, and packets that bypass the home agent do not reach the mobile network.
    pub const FROM_UPLINK: u32 = 115;
    /// Answers to packets that have left without the tunnel use the main table. The priority is before
    /// [`FROM_UPLINK`].
    pub const BREAKOUT_ANSWERS: u32 = 114;
    /// Packets that leave without the tunnel use the table of an uplink.
    pub const BREAKOUT: u32 = 121;
    /// Packets to the mobile network use the main table, never the tunnel.
    pub const TO_MOBILE_NETWORK: u32 = 120;
    /// Rejects (`unreachable`) packets from a direct route that are not for the mobile network. A mobile
    /// router does not forward between two other mobile routers.
    pub const FROM_DIRECT_ROUTES: u32 = 122;
    /// Rejects (`unreachable`) packets of a host with access to a captive portal if the portal's uplink lacks
    /// their address family. They must not take the tunnel past the portal.
    pub const PORTAL_UPLINK_ONLY: u32 = 123;
    /// Rejects (`unreachable`) packets from GeoNetworking that are not for the mobile network. A vehicle does
    /// not forward other vehicles' packets to its uplinks or its tunnel.
    pub const FROM_STATIONS: u32 = 125;
    /// Rejects (`unreachable`) UDP packets from the care-of address of a mobile router behind this router
    /// that are not datagrams of encrypted sessions.
    pub const REJECTED_FROM_NESTED_ROUTERS: u32 = 127;
    /// Packets from the care-of address of a mobile router behind this router use the table of the uplink to
    /// whose link the address belongs.
    pub const FROM_NESTED_ROUTERS: u32 = 128;
    /// Packets from an IPv4 care-of address, sent by a socket that is bound to the uplink, use the main table
    /// without its default routes.
    pub const SPECIFIC_IPV4_ROUTES: u32 = 129;
    /// This machine's own packets from a care-of address use the table of the uplink that has the address.
    pub const FROM_CARE_OF_ADDRESS: u32 = 130;
    /// Packets from the mobile network first use the table of neighbouring vehicles. If it has no route for
    /// them, the rule [`FROM_MOBILE_NETWORK`] decides.
    pub const TO_NEIGHBOURS: u32 = 135;
    /// Packets from the mobile network or the home address use the tunnel's table.
    pub const FROM_MOBILE_NETWORK: u32 = 140;
    /// Makes packets from a LAN interface unreachable if their source address is not of the mobile network
    /// (RFC 3963 9).
    pub const FROM_LAN: u32 = 145;
    /// This machine's own packets from an address of an uplink, and its own packets to the home agent, use
    /// the main table.
    pub const OWN_TRAFFIC_OUTSIDE_TUNNEL: u32 = 147;
    /// This machine's own packets use the main table without its default routes.
    pub const OWN_SPECIFIC_ROUTES: u32 = 148;
    /// This machine's own packets without a firewall mark (`fwmark`) use the table
    /// [`super::TABLE_OWN_TRAFFIC`].
    pub const OWN_TRAFFIC: u32 = 149;
    /// A mobile node's own packets whose sender has chosen no source address use the tunnel's table. The
    /// route in that table gives them the home address.
    pub const FROM_HOME_ADDRESS: u32 = 150;
}

/// Role of this station at the end of a NEMO tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TunnelEnd {
    /// This end is at the mobile router. Packets *from* [`Tunnel::inner`] enter the tunnel; packets *to*
    /// [`Tunnel::inner`] come out of it.
    MobileRouter,
    /// This end is at the home agent. Packets *to* [`Tunnel::inner`] enter the tunnel; packets *from*
    /// [`Tunnel::inner`] come out of it.
    HomeAgent,
    /// Packets *to* [`Tunnel::inner`] enter the tunnel; packets *from* [`Tunnel::inner`] come out of it. This
    /// end is at a mobile router, and [`Tunnel::inner`] are the networks of another mobile router
    /// (`carnet_mobility::direct`). Packets that come out must be for the mobile network of this router.
    Direct,
}

/// Tunnel for IPv6 and IPv4 packets between a care-of address and a home agent. The outer header is IPv6 (RFC
/// 2473), IPv4, or IPv4 and UDP (RFC 5555). A home address has one tunnel for each of its registered care-of
/// addresses (RFC 5648).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// Role of this station at this end of the tunnel.
    pub end: TunnelEnd,
    /// Home address of the binding. Several home addresses may share a care-of address.
    pub home_address: Ipv6Addr,
    /// Binding Identifier (RFC 5648); `None` for a binding without one.
    #[serde(default)]
    pub bid: Option<u16>,
    /// Outer source of sent packets, outer destination of accepted packets.
    pub local: Endpoint,
    /// Outer destination of sent packets, outer source of accepted packets (RFC 6275 10.4.5).
    pub remote: Endpoint,
    /// Addresses on the mobile side: the home address as a /128, and the mobile network prefixes. IPv4
    /// prefixes are in IPv4-mapped form.
    pub inner: Vec<Ipv6Net>,
    /// Whether the station sends packets into this tunnel. After a handover the old tunnel has `false`, and
    /// still accepts packets in transit. If several tunnels of a home address have `true`, a
    /// [`FlowDistribution`] divides the packets among them.
    pub transmit: bool,
    /// The largest inner packet, in octets, that fits the path without fragmenting the outer packet.
    pub mtu: u32,
    /// Remote key of the encrypted sessions that carry the tunnel; `None` for a tunnel in the clear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionPeer>,
}

/// Rules that divide the packets of a home address among its tunnels. Their key is the station's role and the
/// home address, so a changed list of rules replaces the old list as one entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowDistribution {
    /// Role of this station at the tunnels of the home address.
    pub end: TunnelEnd,
    /// Home address of the tunnels.
    pub home_address: Ipv6Addr,
    /// Address of the home agent. A copy of a packet in a tunnel inside IPv4 gets an IPv6 header with this
    /// address and the home address.
    pub home_agent: Ipv6Addr,
    /// Rules in their order: the first rule that matches a packet and has a working tunnel decides. The last
    /// rule matches all packets.
    pub rules: Vec<DistributionRule>,
}

/// Rule for the packets of one flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DistributionRule {
    /// Selects the packets of the flow by their fields in the direction towards the mobile network, at either
    /// end. `None`: all packets.
    pub selector: Option<TrafficSelector>,
    /// Action of the forwarder: failover, balance or duplicate.
    pub action: FlowAction,
    /// Tunnels for these packets, the preferred one first. The list is empty if the packets leave without the
    /// tunnel. The forwarder then goes on with the next rule, and a fast path leaves the packets to the
    /// kernel.
    pub members: Vec<DistributionMember>,
}

/// A tunnel in a [`DistributionRule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DistributionMember {
    /// Binding Identifier of the tunnel. A flow stays with the identifier even if the addresses of the tunnel
    /// change.
    pub bid: Option<u16>,
    /// Local end of the tunnel.
    pub local: Endpoint,
    /// Remote end of the tunnel.
    pub remote: Endpoint,
    /// Weight for [`FlowAction::Balance`]: the member's share of the flows relative to the other members.
    pub weight: u16,
}

/// Socket for packets inside IPv4 or UDP. All its fields together are its key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TunnelSocket {
    /// Local address of the socket.
    pub local: Endpoint,
    /// Interface to which the socket is bound, so that the kernel's routes do not choose another; `None` for
    /// a socket that is not bound.
    pub interface: Option<String>,
}

/// Treatment of packets that take the route, by the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteAction {
    /// Sends packets out of an interface, to a gateway or directly to the neighbour.
    Forward {
        /// Name of the interface.
        interface: String,
        /// Next hop; `None` if the destination is on the link.
        gateway: Option<Ipv6Addr>,
    },
    /// Answers packets with ICMPv6 Destination Unreachable.
    Unreachable,
    /// Packets are delivered to this machine itself, by [`TUNNEL_DEVICE`].
    Local,
}

/// A kernel route. Its key is table, destination and metric. A home agent has several routes for each
/// binding; most have the same action and share one value of it, to save memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Routing table number.
    pub table: u32,
    /// Destination prefix, host bits zero. A prefix in IPv4-mapped form is a route of IPv4.
    pub destination: Ipv6Net,
    /// Kernel metric (lower wins).
    pub metric: u32,
    /// Action of the route: forward, unreachable or local.
    pub action: Arc<RouteAction>,
    /// Source address for this machine's own packets if their sender has chosen no address, in IPv4-mapped
    /// form for a route of IPv4. With `None` the kernel chooses the source address (RFC 6724).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Box<Ipv6Addr>>,
}

impl Route {
    /// Returns the outgoing interface, if the route has one.
    pub fn interface(&self) -> Option<&str> {
        match &*self.action {
            RouteAction::Forward { interface, .. } => Some(interface),
            RouteAction::Unreachable | RouteAction::Local => None,
        }
    }

    /// Returns whether the route leads into [`TUNNEL_DEVICE`].
    pub fn leads_into_tunnel_device(&self) -> bool {
        self.interface() == Some(TUNNEL_DEVICE)
    }
}

/// Range of ports that a [`Rule`] selects. The kernel accepts 1 to 65534.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortMatch {
    /// Source ports, the first and the last one.
    Source(u16, u16),
    /// Destination ports, the first and the last one.
    Destination(u16, u16),
}

/// A policy routing rule. All its fields together are its key. A prefix in IPv4-mapped form makes it a rule
/// of IPv4; [`carnet_base::mapped::ALL_IPV4_PREFIX`] selects any address.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rule {
    /// Order among rules (the kernel evaluates the lowest first), one of [`priority`].
    pub priority: u32,
    /// Selects packets that arrive on this interface; `None`: on any interface.
    pub input_interface: Option<String>,
    /// Selects packets from this prefix; `None`: from any source address.
    pub from: Option<Ipv6Net>,
    /// Selects packets to this prefix; `None`: to any destination address.
    pub to: Option<Ipv6Net>,
    /// Selects packets with this upper-layer protocol; `None`: with any protocol.
    pub protocol: Option<u8>,
    /// Selects UDP packets with these ports; `None`: with any ports. A fragment has no ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<PortMatch>,
    /// Selects packets with this firewall mark (`fwmark`); `None`: with any mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
    /// Routing table for the selected packets.
    pub table: u32,
    /// Whether the rule ignores the default routes of the table (`suppress_prefixlength 0`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_default: bool,
}

/// An IPv4 route out of an uplink, in the table of the router that the route leads to. Its key is table and
/// destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ipv4Route {
    /// Routing table number. IPv4 and IPv6 tables are separate, so an IPv4 table and an IPv6 table may have
    /// the same number.
    pub table: u32,
    /// Destination prefix, host bits zero.
    pub destination: Ipv4Net,
    /// Name of the interface.
    pub interface: String,
    /// Next hop; `None` if the destination is on the link. The next hop may be outside the subnet of the
    /// uplink.
    pub gateway: Option<Ipv4Addr>,
}

/// An IPv4 policy routing rule for this machine's sockets that are bound to an uplink. All its fields
/// together are its key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ipv4Rule {
    /// Order among rules (the kernel evaluates the lowest first), one of [`priority`].
    pub priority: u32,
    /// Selects packets from this address.
    pub from: Ipv4Addr,
    /// Selects packets that leave by this interface, such as the packets of a socket that is bound to the
    /// interface.
    pub output_interface: String,
    /// Routing table for the selected packets.
    pub table: u32,
    /// Whether the rule ignores the default routes of the table (`suppress_prefixlength 0`).
    pub without_default: bool,
}

/// An address that carnet adds to an interface (without duplicate address detection). Its key is interface
/// and address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceAddress {
    /// Name of the interface.
    pub interface: String,
    /// The address that carnet adds; in IPv4-mapped form an IPv4 address.
    pub address: Ipv6Addr,
    /// Prefix length of the mapped form; 128 if the kernel must not derive an on-link prefix.
    pub prefix_length: u8,
    /// Whether the kernel avoids the address as a source address (RFC 6724 5, rule 3).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deprecated: bool,
}

/// A sysctl below `net.ipv6.conf` that carnet needs. Below `net.ipv4.conf` are `rp_filter`, and names that
/// begin with `ipv4_`: `ipv4_forwarding` stands for `forwarding`. When carnet ends, it restores the former
/// value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysctlSetting {
    /// Name of the interface, or `all`.
    pub interface: String,
    /// Name of the sysctl below `net.ipv6.conf.<interface>`, such as `forwarding`.
    pub name: String,
    /// Value of the setting, as text in the kernel's form.
    pub value: String,
}

/// An entry of the desired state. Rare kinds of entries are boxed to save memory, because a home agent has
/// several entries for each binding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForwardingEntry {
    /// See [`PacketRule`].
    PacketRule(Box<PacketRule>),
    /// See [`SysctlSetting`].
    Setting(Box<SysctlSetting>),
    /// See [`InterfaceAddress`].
    Address(InterfaceAddress),
    /// See [`Route`].
    Route(Route),
    /// See [`TunnelSocket`].
    Socket(TunnelSocket),
    /// See [`Tunnel`]. The forwarder and the desired state share it.
    Tunnel(Arc<Tunnel>),
    /// See [`FlowDistribution`].
    Distribution(Box<FlowDistribution>),
    /// See [`Rule`].
    Rule(Box<Rule>),
    /// See [`Ipv4Route`].
    Ipv4Route(Box<Ipv4Route>),
    /// See [`Ipv4Rule`].
    Ipv4Rule(Box<Ipv4Rule>),
}

/// Key of an [`ForwardingEntry`]. Entries are installed in the order of their keys, and removed in the
/// opposite order. First come the rules of the packet filter, so that no packet passes before they are in
/// force. Settings, addresses, routes, sockets, tunnels and distributions follow. Last come the policy
/// routing rules, which lead packets to the routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryKey<'a> {
    /// Key of a rule of the packet filter: the whole rule.
    PacketRule(&'a PacketRule),
    /// Key of a setting: interface and name of the sysctl.
    Setting(&'a str, &'a str),
    /// Key of an interface address: interface and address.
    Address(&'a str, Ipv6Addr),
    /// Key of a route: table, destination and metric.
    Route(u32, Ipv6Net, u32),
    /// Key of an IPv4 route: table and destination.
    Ipv4Route(u32, Ipv4Net),
    /// A socket is its own key.
    Socket(&'a TunnelSocket),
    /// Key of a tunnel: local end, remote end and home address.
    Tunnel(Endpoint, Endpoint, Ipv6Addr),
    /// Key of a distribution: role of the station and home address.
    Distribution(TunnelEnd, Ipv6Addr),
    /// A rule is its own key.
    Rule(&'a Rule),
    /// An IPv4 rule is its own key.
    Ipv4Rule(&'a Ipv4Rule),
}

impl EntryKey<'_> {
    /// Returns the subject of the key: the key without the metric of a route. All routes to a destination in
    /// one table have the same subject.
    fn key_without_metric(self) -> Self {
        match self {
            EntryKey::Route(table, destination, _) => EntryKey::Route(table, destination, 0),
            key => key,
        }
    }
}

impl ForwardingEntry {
    /// Returns the tunnel if the entry is one.
    pub fn as_tunnel(&self) -> Option<&Arc<Tunnel>> {
        match self {
            ForwardingEntry::Tunnel(tunnel) => Some(tunnel),
            _ => None,
        }
    }

    /// Returns the key of this entry.
    pub fn key(&self) -> EntryKey<'_> {
        match self {
            ForwardingEntry::PacketRule(r) => EntryKey::PacketRule(r),
            ForwardingEntry::Setting(s) => EntryKey::Setting(&s.interface, &s.name),
            ForwardingEntry::Address(a) => EntryKey::Address(&a.interface, a.address),
            ForwardingEntry::Route(r) => EntryKey::Route(r.table, r.destination, r.metric),
            ForwardingEntry::Socket(s) => EntryKey::Socket(s),
            ForwardingEntry::Tunnel(t) => EntryKey::Tunnel(t.local, t.remote, t.home_address),
            ForwardingEntry::Distribution(d) => EntryKey::Distribution(d.end, d.home_address),
            ForwardingEntry::Rule(r) => EntryKey::Rule(r),
            ForwardingEntry::Ipv4Route(r) => EntryKey::Ipv4Route(r.table, r.destination),
            ForwardingEntry::Ipv4Rule(r) => EntryKey::Ipv4Rule(r),
        }
    }
}

/// An entry that compares by its [`EntryKey`], for sets and maps: two entries with the same key are equal.
///
/// To save memory, all sets and maps share one entry, and the entry contains its key.
#[derive(Debug, Clone)]
pub struct EntryByKey(pub Arc<ForwardingEntry>);

impl PartialEq for EntryByKey {
    fn eq(&self, other: &EntryByKey) -> bool {
        self.0.key() == other.0.key()
    }
}

impl Eq for EntryByKey {}

impl Hash for EntryByKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key().hash(state);
    }
}

impl PartialOrd for EntryByKey {
    fn partial_cmp(&self, other: &EntryByKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for EntryByKey {
    fn cmp(&self, other: &EntryByKey) -> Ordering {
        self.0.key().cmp(&other.0.key())
    }
}

/// A change from the previous desired state to the present one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryChange {
    /// Install this entry. If an entry with the same key exists, replace it in one step, so that the kernel
    /// always has one of them.
    Set(Arc<ForwardingEntry>),
    /// Remove this entry from the kernel.
    Remove(Arc<ForwardingEntry>),
}

/// A scope, and the hash of a [subject](EntryKey::key_without_metric) of which the scope has entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SubjectOwner {
    /// Hash of the subject.
    hash: u32,
    /// Number of the scope.
    scope: u32,
}

impl SubjectOwner {
    /// Returns the hash for the table of owners. The table uses the highest and the lowest bits.
    fn table_hash(&self) -> u64 {
        u64::from(self.hash) << 32 | u64::from(self.hash)
    }
}

/// The desired state, by scope, and the changes that the caller has not fetched yet.
///
/// To save memory, only the list of its scope holds an entry. All other tables hold hashes of entries and
/// numbers of scopes.
///
/// All routes of a scope to one destination share a place in the table of owners.
#[derive(Debug, Clone)]
pub struct DesiredState<S> {
    /// Number of each scope that has entries: the place of its list in `entries_by_number`.
    number_by_scope: HashMap<S, u32>,
    /// Entries of each scope, by key.
    entries_by_number: Vec<Box<[EntryByKey]>>,
    /// Numbers of scopes that are not in use.
    free_numbers: Vec<u32>,
    /// Owner of each entry: the number of the scope whose list has the entry, found by the hash of the
    /// entry's subject.
    owner_by_subject: HashTable<SubjectOwner>,
    hasher: RandomState,
    changes: VecDeque<EntryChange>,
}

impl<S: Eq + Hash + Clone> DesiredState<S> {
    /// Returns a state without entries.
    pub fn new() -> Self {
        DesiredState {
            number_by_scope: HashMap::new(),
            entries_by_number: Vec::new(),
            free_numbers: Vec::new(),
            owner_by_subject: HashTable::new(),
            hasher: RandomState::default(),
            changes: VecDeque::new(),
        }
    }

    /// Replaces all entries of `scope` by `entries`. If two of them have the same key, the last one counts.
    /// Costs O(n log m) in the number of the scope's entries.
    ///
    /// If two scopes have entries with the same key, the scope that was set last owns the key. When this
    /// scope gives the key up, the state removes the entry, and does not restore the entry of the other
    /// scope. The protocols avoid this: no two scopes have the same key.
    pub fn replace_scope(&mut self, scope: S, entries: impl IntoIterator<Item = ForwardingEntry>) {
        let mut wanted: Vec<EntryByKey> =
            entries.into_iter().map(|entry| EntryByKey(Arc::new(entry))).collect();
        wanted.reverse();
        wanted.sort();
        wanted.dedup();
        let number = match self.number_by_scope.get(&scope) {
            Some(number) => *number,
            None if wanted.is_empty() => return,
            None => self.add_scope(scope.clone()),
        };
        let before = std::mem::take(&mut self.entries_by_number[number as usize]);
        let is_unchanged = before.len() == wanted.len()
            && !wanted.is_empty()
            && before.iter().zip(&wanted).all(|(old, new)| old.0 == new.0);
        if is_unchanged {
            self.entries_by_number[number as usize] = before;
            return;
        }
        for entry in &mut wanted {
            let old = match before.binary_search(entry) {
                Ok(at) => Some(before[at].clone()),
                Err(_) => self.remove_from_other_scope(entry),
            };
            match old {
                Some(old) if old.0 == entry.0 => *entry = old,
                _ => self.changes.push_back(EntryChange::Set(entry.0.clone())),
            }
        }
        for entry in before.iter().rev().filter(|entry| wanted.binary_search(entry).is_err()) {
            self.changes.push_back(EntryChange::Remove(entry.0.clone()));
        }
        self.update_subject_owners(number, &before, &wanted);
        if wanted.is_empty() {
            self.number_by_scope.remove(&scope);
            self.free_numbers.push(number);
        }
        self.entries_by_number[number as usize] = wanted.into();
    }

    /// Gives a scope without a number an unused one, and returns this number.
    fn add_scope(&mut self, scope: S) -> u32 {
        let number = self.free_numbers.pop().unwrap_or_else(|| {
            self.entries_by_number.push(Box::default());
            self.entries_by_number.len() as u32 - 1
        });
        self.number_by_scope.insert(scope, number);
        number
    }

    fn subject_owner(&self, number: u32, entry: &EntryByKey) -> SubjectOwner {
        SubjectOwner { hash: self.hasher.hash_one(entry.0.key().key_without_metric()) as u32, scope: number }
    }

    /// Changes the table of owners from the previous entries of a scope to its new entries.
    fn update_subject_owners(&mut self, number: u32, before: &[EntryByKey], after: &[EntryByKey]) {
        for entry in subjects_without(before, after) {
            let owner = self.subject_owner(number, entry);
            if let Ok(known) = self.owner_by_subject.find_entry(owner.table_hash(), |known| *known == owner) {
                known.remove();
            }
        }
        for entry in subjects_without(after, before) {
            let owner = self.subject_owner(number, entry);
            self.owner_by_subject.insert_unique(owner.table_hash(), owner, SubjectOwner::table_hash);
        }
    }

    /// Removes an entry from the scope that has an entry with the same key, because another scope now owns
    /// this key. Returns the former entry; `None` if no scope has one.
    fn remove_from_other_scope(&mut self, entry: &EntryByKey) -> Option<EntryByKey> {
        let wanted = self.subject_owner(0, entry);
        let place_of =
            |owner: &SubjectOwner| self.entries_by_number[owner.scope as usize].binary_search(entry);
        let is_owner = |owner: &SubjectOwner| owner.hash == wanted.hash && place_of(owner).is_ok();
        let number = self.owner_by_subject.find(wanted.table_hash(), is_owner)?.scope;
        let before = std::mem::take(&mut self.entries_by_number[number as usize]);
        let (taken, kept): (Vec<_>, Vec<_>) = before.iter().cloned().partition(|known| known == entry);
        self.update_subject_owners(number, &before, &kept);
        self.entries_by_number[number as usize] = kept.into();
        taken.into_iter().next()
    }

    /// Returns whether a scope has no entries.
    pub fn is_empty(&self, scope: &S) -> bool {
        !self.number_by_scope.contains_key(scope)
    }

    /// Returns the oldest change that the caller has not fetched yet; `None` if the caller has fetched all.
    pub fn poll_change(&mut self) -> Option<EntryChange> {
        pop_and_shrink(&mut self.changes)
    }

    /// Returns all entries, in order of installation.
    pub fn entries(&self) -> impl Iterator<Item = &ForwardingEntry> {
        let mut entries: Vec<&EntryByKey> =
            self.entries_by_number.iter().flat_map(|entries| entries.iter()).collect();
        entries.sort();
        entries.into_iter().map(|entry| &*entry.0)
    }
}

/// Returns the first entry of each subject that has entries in `entries` but none in `others`. Both lists are
/// in the order of keys, so entries with the same subject follow each other.
fn subjects_without<'a>(
    entries: &'a [EntryByKey],
    others: &'a [EntryByKey],
) -> impl Iterator<Item = &'a EntryByKey> {
    let has_same_subject = |one: &EntryByKey, other: &EntryByKey| {
        one.0.key().key_without_metric() == other.0.key().key_without_metric()
    };
    entries.chunk_by(has_same_subject).filter_map(|chunk| chunk.first()).filter(move |entry| {
        // In the order of keys, a subject comes before all keys with this subject.
        let at = others.partition_point(|other| other.0.key() < entry.0.key().key_without_metric());
        !others.get(at).is_some_and(|other| has_same_subject(entry, other))
    })
}

impl<S: Eq + Hash + Clone> Default for DesiredState<S> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn parse_route(text: &str, metric: u32) -> ForwardingEntry {
        ForwardingEntry::Route(Route {
            table: TABLE_MAIN,
            destination: text.parse().expect("prefix"),
            metric,
            action: RouteAction::Unreachable.into(),
            source: None,
        })
    }

    fn drain_changes(state: &mut DesiredState<u8>) -> Vec<EntryChange> {
        std::iter::from_fn(|| state.poll_change()).collect()
    }

    #[test]
    fn replacing_entries_by_equal_ones_gives_no_change() {
        let mut state = DesiredState::new();
        state.replace_scope(1, [parse_route("2001:db8:a::/64", 1), parse_route("2001:db8:b::/64", 1)]);
        assert_eq!(drain_changes(&mut state).len(), 2);
        state.replace_scope(1, [parse_route("2001:db8:b::/64", 1), parse_route("2001:db8:a::/64", 1)]);
        assert_eq!(drain_changes(&mut state), []);
    }

    #[test]
    fn replace_adds_before_it_removes_and_touches_only_its_scope() {
        let mut state = DesiredState::new();
        state.replace_scope(1, [parse_route("2001:db8:a::/64", 1)]);
        state.replace_scope(2, [parse_route("2001:db8:c::/64", 1)]);
        drain_changes(&mut state);
        state.replace_scope(1, [parse_route("2001:db8:b::/64", 1)]);
        assert_eq!(
            drain_changes(&mut state),
            [
                EntryChange::Set(parse_route("2001:db8:b::/64", 1).into()),
                EntryChange::Remove(parse_route("2001:db8:a::/64", 1).into())
            ]
        );
        state.replace_scope(1, []);
        assert_eq!(
            drain_changes(&mut state),
            [EntryChange::Remove(parse_route("2001:db8:b::/64", 1).into())]
        );
        assert_eq!(state.entries().count(), 1);
    }

    #[test]
    fn forwarding_entry_belongs_to_the_scope_that_set_it_last() {
        let mut state = DesiredState::new();
        let mut other = parse_route("2001:db8:a::/64", 1);
        if let ForwardingEntry::Route(route) = &mut other {
            route.action = RouteAction::Forward { interface: TUNNEL_DEVICE.into(), gateway: None }.into();
        }
        state.replace_scope(1, [parse_route("2001:db8:a::/64", 1)]);
        state.replace_scope(2, [other.clone()]);
        drain_changes(&mut state);
        // The previous owner of the key sets the same entry again.
        state.replace_scope(1, [parse_route("2001:db8:a::/64", 1)]);
        assert_eq!(drain_changes(&mut state), [EntryChange::Set(parse_route("2001:db8:a::/64", 1).into())]);
        state.replace_scope(2, []);
        assert_eq!(drain_changes(&mut state), []);
        state.replace_scope(1, []);
        assert_eq!(
            drain_changes(&mut state),
            [EntryChange::Remove(parse_route("2001:db8:a::/64", 1).into())]
        );
    }

    /// Returns a route into the tunnel device if `is_into_tunnel` is set, otherwise a route with another
    /// action.
    fn numbered_route((destination, metric, is_into_tunnel): (u8, u32, bool)) -> ForwardingEntry {
        let mut entry = parse_route(&format!("2001:db8:{destination}::/64"), metric);
        if let (ForwardingEntry::Route(route), true) = (&mut entry, is_into_tunnel) {
            route.action = RouteAction::Forward { interface: TUNNEL_DEVICE.into(), gateway: None }.into();
        }
        entry
    }

    proptest! {
    /// Compares two results with one map of all entries: the state, and the sum of all its changes.
    #[test]
    fn state_equals_a_map_of_the_last_owners(
    steps in prop::collection::vec(
    (0u8..4, prop::collection::vec((0u8..3, 0u32..3, any::<bool>()), 0..5)),
    0..40,
    ),
    ) {
    let mut state = DesiredState::new();
    let mut model: BTreeMap<(u8, u32), (u8, bool)> = BTreeMap::new();
    let mut installed: BTreeSet<EntryByKey> = BTreeSet::new();
    for (scope, routes) in steps {
    state.replace_scope(scope, routes.iter().copied().map(numbered_route));
    model.retain(|_, (owner, _)| *owner != scope);
    model.extend(routes.into_iter().map(|(to, metric, action)| ((to, metric), (scope, action))));
    while let Some(change) = state.poll_change() {
    match change {
    EntryChange::Set(entry) => drop(installed.replace(EntryByKey(entry))),
    EntryChange::Remove(entry) => prop_assert!(installed.remove(&EntryByKey(entry))),
    }
    }
    let model = model.iter().map(|((to, metric), (_, action))| (*to, *metric, *action));
    let model: Vec<_> = model.map(numbered_route).collect();
    prop_assert!(state.entries().eq(&model));
    prop_assert!(installed.iter().map(|entry| &*entry.0).eq(&model));
    prop_assert!(state.owner_by_subject.len() <= model.len());
    }
    for scope in 0..4 {
    state.replace_scope(scope, []);
    }
    prop_assert!(state.owner_by_subject.is_empty() && state.number_by_scope.is_empty());
    }
    }

    #[test]
    fn changed_entry_is_replaced_in_one_change() {
        let mut state = DesiredState::new();
        state.replace_scope(1, [parse_route("2001:db8:a::/64", 1)]);
        drain_changes(&mut state);
        let mut other = parse_route("2001:db8:a::/64", 1);
        if let ForwardingEntry::Route(r) = &mut other {
            r.action = RouteAction::Forward { interface: TUNNEL_DEVICE.into(), gateway: None }.into();
        }
        state.replace_scope(1, [other.clone()]);
        assert_eq!(drain_changes(&mut state), [EntryChange::Set(other.into())]);
    }
}
