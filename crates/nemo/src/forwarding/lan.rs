//! The interfaces of the mobile network, each with its prefixes and its inbound filter (*door*).

use carnet_base::mapped;
use carnet_mobility::router_advertiser::HostConfiguration;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::desired::{ForwardingEntry, RouteAction, TABLE_MAIN};
use super::packet_rules::PortRange;
use super::route_entries::{ROUTE_METRIC, route_entry};
use crate::input::DelegatedPrefix;

/// Packets from outside that reach an interface on board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InboundPackets {
    /// All packets from outside reach the interface.
    #[default]
    Any,
    /// Only packets of connections that hosts on board began reach the interface.
    Established,
}

impl InboundPackets {
    /// Returns the name in config and status.
    pub fn name(self) -> &'static str {
        match self {
            InboundPackets::Any => "any",
            InboundPackets::Established => "established",
        }
    }
}

/// An exception: packets from outside that pass without a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedPackets {
    /// Upper-layer protocol. Of ICMP and ICMPv6 only Echo Requests pass.
    pub protocol: u8,
    /// Destination ports; empty for all.
    pub ports: Vec<PortRange>,
    /// Destinations, in IPv4-mapped form for IPv4. If empty, the exception is for every host of the
    /// interface.
    pub destinations: Vec<Ipv6Net>,
}

/// Settings of the inbound filter (*door*) of one interface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InboundFilter {
    /// Packets from outside that reach the hosts of the interface.
    pub inbound: InboundPackets,
    /// Exceptions from [`InboundPackets::Established`].
    pub allowed_exceptions: Vec<AllowedPackets>,
    /// Whether no packets pass between this interface and other interfaces on board.
    pub is_isolated: bool,
    /// Maximum rate of each host in octets per second and direction; `None` for no limit.
    pub host_rate: Option<u64>,
}

impl InboundFilter {
    /// Returns whether the inbound filter needs rules of the kernel's packet filter.
    pub(crate) fn needs_rules(&self) -> bool {
        self.is_isolated || self.inbound == InboundPackets::Established || self.host_rate.is_some()
    }
}

/// An interface of the mobile network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanSettings {
    /// Name of the interface.
    pub interface: String,
    /// Mobile network prefixes that this interface has. If empty, the interface shares the prefixes that no
    /// other interface names.
    pub prefixes: Vec<Ipv6Net>,
    /// IPv4 prefixes that this interface has. If empty, the interface shares the IPv4 prefixes that no other
    /// interface names.
    pub ipv4_prefixes: Vec<Ipv4Net>,
    /// Whether the router advertises the prefixes on this interface, and assigns `PREFIX::1` to it.
    pub send_router_advertisements: bool,
    /// MTU in the advertisements to hosts; `None` advertises an MTU that fits into the tunnel.
    pub mtu: Option<u32>,
    /// Values for hosts that are neither addresses nor routes.
    pub host_configuration: HostConfiguration,
    /// Filter of packets from outside to the hosts of the interface.
    pub inbound_filter: InboundFilter,
}

impl From<&str> for LanSettings {
    /// Returns the settings of an interface for which the config gives only its name.
    fn from(interface: &str) -> LanSettings {
        LanSettings {
            interface: interface.to_owned(),
            prefixes: Vec::new(),
            ipv4_prefixes: Vec::new(),
            send_router_advertisements: true,
            mtu: None,
            host_configuration: HostConfiguration::default(),
            inbound_filter: InboundFilter::default(),
        }
    }
}

/// Chooses the link prefixes of each LAN interface. A link prefix is the first /64 of a mobile network
/// prefix, or the prefix itself if it is longer.
///
/// An interface has the prefixes that its settings name. The other interfaces share the remaining prefixes:
/// the first interface gets the first prefix, the second interface the second one, and so on. The last
/// interface gets all prefixes that are left.
pub(crate) fn lan_prefixes(prefixes: &[Ipv6Net], lan: &[LanSettings]) -> Vec<(String, Ipv6Net)> {
    let PrefixAssignment { prefixes_of_named_interfaces: named, prefixes_without_interface: shared } =
        assign_prefixes(prefixes, lan.iter().map(|lan| (lan, lan.prefixes.as_slice())));
    let all = shared.into_iter().chain(named);
    all.filter_map(|(lan, prefix)| {
        let link = Ipv6Net::new(prefix.network(), prefix.prefix_len().max(64)).ok()?;
        Some((lan.interface.clone(), link))
    })
    .collect()
}

/// Chooses the IPv4 prefixes of the LAN interfaces, in IPv4-mapped form. An interface gets the prefixes of
/// its settings. The interfaces without such prefixes share the prefixes that no interface names. The first
/// interface gets the first prefix and so on, and the last interface gets all prefixes that are left.
pub(crate) fn lan_ipv4_prefixes(prefixes: &[Ipv4Net], lan: &[LanSettings]) -> Vec<(String, Ipv6Net)> {
    let PrefixAssignment { prefixes_of_named_interfaces: named, prefixes_without_interface: shared } =
        assign_prefixes(prefixes, lan.iter().map(|lan| (lan, lan.ipv4_prefixes.as_slice())));
    let all = named.into_iter().chain(shared).filter(|(lan, _)| lan.send_router_advertisements);
    all.map(|(lan, prefix)| (lan.interface.clone(), mapped::from_ipv4(prefix))).collect()
}

/// Returns the networks of the hosts on each LAN interface, IPv4 in IPv4-mapped form. These are the prefixes
/// that the settings name, and the interface's share of the others. Of an IPv6 share, only the first /64
/// certainly belongs to the interface.
pub(crate) fn lan_networks(
    prefixes: &[Ipv6Net],
    ipv4: &[Ipv4Net],
    lan: &[LanSettings],
) -> Vec<(String, Ipv6Net)> {
    let ipv6 = assign_prefixes(prefixes, lan.iter().map(|lan| (lan, lan.prefixes.as_slice())));
    let ipv4 = assign_prefixes(ipv4, lan.iter().map(|lan| (lan, lan.ipv4_prefixes.as_slice())));
    let links = ipv6.prefixes_without_interface.into_iter().filter_map(|(lan, prefix)| {
        Some((lan, Ipv6Net::new(prefix.network(), prefix.prefix_len().max(64)).ok()?))
    });
    let ipv4 = ipv4.prefixes_of_named_interfaces.into_iter().chain(ipv4.prefixes_without_interface);
    let ipv4 = ipv4.map(|(lan, prefix)| (lan, mapped::from_ipv4(prefix)));
    let all = ipv6.prefixes_of_named_interfaces.into_iter().chain(links).chain(ipv4);
    all.map(|(lan, network)| (lan.interface.clone(), network)).collect()
}

/// Returns the routes to routers on board that have a prefix of the mobile network. `lan` are the names of
/// the interfaces on board; a prefix behind another interface gets no route.
pub(crate) fn delegation_entries(delegated: &[DelegatedPrefix], lan: &[String]) -> Vec<ForwardingEntry> {
    let on_board = delegated.iter().filter(|delegated| lan.contains(&delegated.interface));
    let entries = on_board.map(|DelegatedPrefix { prefix, interface, router }| {
        let action = RouteAction::Forward { interface: interface.clone(), gateway: Some(*router) };
        route_entry(TABLE_MAIN, *prefix, ROUTE_METRIC, action)
    });
    entries.collect()
}

/// Prefixes of one IP version, each with the interface of the mobile network that has it.
#[derive(Debug, Clone)]
pub struct PrefixAssignment<L, P> {
    /// Prefixes that the settings of an interface name.
    pub prefixes_of_named_interfaces: Vec<(L, P)>,
    /// Prefixes that no interface names.
    pub prefixes_without_interface: Vec<(L, P)>,
}

/// Gives the prefixes of a mobile network to its interfaces. `interfaces` are the interfaces, each with the
/// prefixes that its settings name. The interfaces without such prefixes share the prefixes that no interface
/// names. The first interface gets the first prefix and so on, and the last interface gets all prefixes that
/// are left.
pub fn assign_prefixes<'a, L: Copy, P: Copy + Into<IpNet> + 'a>(
    prefixes: &[P],
    interfaces: impl Iterator<Item = (L, &'a [P])>,
) -> PrefixAssignment<L, P> {
    let interfaces: Vec<(L, &[P])> = interfaces.collect();
    let others: Vec<L> =
        interfaces.iter().filter(|(_, own)| own.is_empty()).map(|(interface, _)| *interface).collect();
    let named = interfaces.iter().flat_map(|(interface, own)| own.iter().map(|prefix| (*interface, *prefix)));
    let contains = |prefix: P, part: P| -> bool { prefix.into().contains(&part.into()) };
    let is_named =
        |prefix: P| interfaces.iter().any(|(_, own)| own.iter().any(|part| contains(prefix, *part)));
    let free = prefixes.iter().filter(|prefix| !is_named(**prefix)).enumerate();
    let shared = free.filter_map(|(index, prefix)| Some((*others.get(index).or(others.last())?, *prefix)));
    PrefixAssignment {
        prefixes_of_named_interfaces: named.collect(),
        prefixes_without_interface: shared.collect(),
    }
}
