//! Entries of the desired state that lead traffic of this machine's own programs into the tunnel.
//!
//! A program that has chosen no source address gets the home address, and for IPv4 an address of the mobile
//! network. IPv4 packets of a mobile node get its IPv4 home address, as soon as the home agent has accepted
//! this address. The default route of [`TABLE_OWN_TRAFFIC`] names the source address. These packets then take
//! the tunnel as packets of the mobile network do. Four kinds of packets do not enter the tunnel:
//!
//! * packets from an address of an uplink, such as answers to a host that asked there;
//! * packets to the home agent, such as those of a key exchange for IPsec;
//! * packets to networks for which the main table has a more specific route than a default route;
//! * packets with a mark: a tunnel below carnet, such as WireGuard, marks its own packets.
//!
//! carnet's signalling is not affected. It leaves from a care-of address, or by a socket that is bound to its
//! uplink, and rules of a higher priority select both.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use carnet_base::Interface;
use carnet_base::mapped::{self, ALL_IPV4_PREFIX};
use carnet_mobility::MobileRouter;
use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

use super::desired::{ForwardingEntry, Route, Rule, TABLE_MAIN, TABLE_OWN_TRAFFIC, priority};
use super::packet_rules::Mark;
use super::route_entries::{
    LOOPBACK_INTERFACE, ROUTE_METRIC, host_prefix, route_into_tunnel_device, unreachable_route,
};

/// Where traffic of this machine's own programs goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnTraffic {
    /// The packets leave by an uplink, according to the main table.
    #[default]
    Uplinks,
    /// The packets enter the tunnel.
    Tunnel,
}

/// Condition that selects packets whose firewall mark (`fwmark`) is 0.
const UNMARKED_PACKETS: Mark = Mark { mask: u32::MAX, value: 0 };

/// Returns the entries for [`OwnTraffic::Tunnel`]. For a mobile node these are only the entries of IPv4,
/// because its IPv6 packets take the tunnel in any case. `others` are the state machines for further home
/// agents. On the home link there are no entries, because packets need no tunnel there.
pub(crate) fn own_traffic_entries<'a>(
    router: &'a MobileRouter,
    others: impl Iterator<Item = &'a MobileRouter>,
    lan: &[String],
    interfaces: &BTreeMap<String, Interface>,
) -> Vec<ForwardingEntry> {
    if router.is_at_home() {
        return Vec::new();
    }
    let ipv4_source = ipv4_source_address(router, lan, interfaces);
    let ipv6_source = router.config().is_router().then_some(router.config().home_address);
    let families = [(Ipv6Net::default(), ipv6_source), (ALL_IPV4_PREFIX, ipv4_source)];
    let served = families.into_iter().filter_map(|(all, source)| Some((all, source?)));
    let mut entries = Vec::new();
    for (all, source) in served {
        let source = Some(Box::new(source));
        let action = route_into_tunnel_device();
        let into_tunnel =
            Route { table: TABLE_OWN_TRAFFIC, destination: all, metric: ROUTE_METRIC, action, source };
        // If the tunnel device disappears, packets must not leave by another route.
        entries.extend([ForwardingEntry::Route(into_tunnel), unreachable_route(TABLE_OWN_TRAFFIC, all)]);
        let own = Rule {
            input_interface: Some(LOOPBACK_INTERFACE.into()),
            from: Some(all).filter(|all| *all == ALL_IPV4_PREFIX),
            ..Rule::default()
        };
        let specific = Rule {
            priority: priority::OWN_SPECIFIC_ROUTES,
            table: TABLE_MAIN,
            without_default: true,
            ..own.clone()
        };
        let rest = Rule {
            priority: priority::OWN_TRAFFIC,
            table: TABLE_OWN_TRAFFIC,
            mark: Some(UNMARKED_PACKETS),
            ..own
        };
        entries.extend([specific, rest].map(|rule| ForwardingEntry::Rule(Box::new(rule))));
    }
    let outside = |from: Option<Ipv6Net>, to: Option<Ipv6Net>| {
        let input_interface = Some(LOOPBACK_INTERFACE.into());
        let priority = priority::OWN_TRAFFIC_OUTSIDE_TUNNEL;
        let rule = Rule { priority, input_interface, from, to, table: TABLE_MAIN, ..Rule::default() };
        ForwardingEntry::Rule(Box::new(rule))
    };
    for config in std::iter::once(router).chain(others).map(MobileRouter::config) {
        let agent = Some(config.home_agent).filter(|agent| !agent.is_unspecified());
        let both = [agent, config.home_agent_ipv4.map(|agent| agent.to_ipv6_mapped())];
        entries.extend(both.into_iter().flatten().map(|agent| outside(None, Some(host_prefix(agent)))));
    }
    for uplink in &router.config().uplinks {
        let Some(interface) = interfaces.get(&uplink.interface) else { continue };
        let addresses =
            routable_addresses(interface).filter(|address| *address != router.config().home_address);
        entries.extend(addresses.map(|address| outside(Some(host_prefix(address)), None)));
    }
    entries
}

/// Returns an address of this machine in an IPv4 mobile network that the tunnel carries, in IPv4-mapped form.
/// Returns `None` if the machine has no such address. For a mobile node, returns its IPv4 home address.
fn ipv4_source_address(
    router: &MobileRouter,
    lan: &[String],
    interfaces: &BTreeMap<String, Interface>,
) -> Option<Ipv6Addr> {
    let networks: Vec<Ipv6Net> = router.accepted_ipv4_prefixes().map(mapped::from_ipv4).collect();
    if !router.config().is_router() {
        return networks.first().map(Ipv6Net::network);
    }
    let is_inside = |name: &String| lan.is_empty() || lan.contains(name);
    let mut own =
        interfaces.iter().filter(|(name, _)| is_inside(name)).flat_map(|(_, it)| routable_addresses(it));
    own.find(|address| networks.iter().any(|network| network.contains(address)))
}

/// Returns the routable addresses of an interface, IPv4 addresses in IPv4-mapped form.
fn routable_addresses(interface: &Interface) -> impl Iterator<Item = Ipv6Addr> + '_ {
    let ipv4 = interface.ipv4_addresses.iter().map(|address| address.addr().to_ipv6_mapped());
    let ipv6 = interface.addresses.iter().map(|address| address.address);
    ipv6.filter(|address| !address.is_unicast_link_local()).chain(ipv4)
}
