//! Observes the state of the interfaces for the station.
//!
//! The observer reads links, addresses and default routes when they have changed, and composes the whole
//! state of each interface from them. It reports each state that differs from the state that it reported
//! last.
//!
//! **IPv4 without default route.** The network manager ConnMan installs an IPv4 default route only for one of
//! its services. On the interface of every other service it adds a host route to the gateway (`GATEWAY dev
//! INTERFACE scope link`). If an interface has no IPv4 default route, the observer reports the host of such a
//! route as the interface's router. On a point-to-point link without a gateway, ConnMan adds a route to the
//! interface's own address, and the link itself is the next hop.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use carnet_nemo::forwarding::desired::TUNNEL_DEVICE;
use carnet_station::io::{Interface, Ipv4Router, Ipv6Router, NeighbourState};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::ROUTE_PROTOCOL;
use crate::advertisement_settings::RouteAndAddressOrigins;
use crate::error::Result;
use crate::event::PlatformEvent;
use crate::fast_path::is_own_device;
use crate::netlink::{
    AddressInfo, ChangedParts, Ipv4AddressInfo, Ipv4DefaultRoute, LinkInfo, NetlinkRequests, RouteInfo,
    TableLookup, prefix_intersection, table_lookups,
};

/// `RTPROT_RA`: origin of routes that the kernel or a network manager has made from Router Advertisements.
const PROTOCOL_ROUTER_ADVERTISEMENT: u8 = 9;
/// Maximum number of hosts that count as routers on an interface without an IPv4 default route.
const MAX_HOST_ROUTES: usize = 4;
/// Maximum number of routers of one IP version that carnet reports for an interface: the first routers in the
/// kernel's order. Any host on the link can make the kernel install default routes, by Router Advertisements.
const MAX_ROUTERS_PER_INTERFACE: usize = 32;

/// Returns whether an interface of this name exists now.
pub fn interface_exists(name: &str) -> bool {
    nix::net::if_::if_nametoindex(name).is_ok()
}

/// State of all interfaces: the last one that carnet has read, and the last one that it has reported to the
/// station.
#[derive(Debug, Default)]
pub(crate) struct InterfaceObserver {
    pub(crate) links_by_name: BTreeMap<String, LinkInfo>,
    pub(crate) addresses: Vec<AddressInfo>,
    routes: Vec<DefaultRoute>,
    ipv4_addresses: Vec<Ipv4AddressInfo>,
    neighbour_states: BTreeMap<(u32, IpAddr), NeighbourState>,
    /// Time at which the next default route expires; `None` if no route has a lifetime. The kernel sends no
    /// event at that time.
    next_route_expiry: Option<Instant>,
    /// Interface and gateway of each expired default route. An advertisement of the gateway renews the route.
    /// The kernel sends no event about the renewal either.
    expired_routes: BTreeSet<(u32, Ipv6Addr)>,
    reported_interfaces: BTreeMap<String, (u32, Interface)>,
}

impl InterfaceObserver {
    /// Reads the parts of the kernel's state that `dirty` names.
    pub(crate) fn refresh(&mut self, dirty: ChangedParts, requests: &mut NetlinkRequests) -> Result<()> {
        if dirty.links_changed {
            self.links_by_name = requests
                .link_requests()
                .list_links()?
                .into_iter()
                .map(|link| (link.name.clone(), link))
                .collect();
        }
        // Read addresses and routes also if only interfaces have changed: they vanish with an interface, and
        // some kernels send only the event about the interface.
        if dirty.links_changed || dirty.addresses_changed {
            self.addresses = requests.address_requests().list_ipv6()?;
            self.ipv4_addresses = requests.ipv4_requests().list_ipv4_addresses()?;
        }
        if dirty.links_changed || dirty.routers_changed {
            self.look_up_default_routes(requests)?;
        }
        if dirty.links_changed || dirty.routers_changed || dirty.neighbours_changed {
            let gateways = self.default_gateways();
            self.neighbour_states.clear();
            for (index, address) in gateways {
                let state = requests.neighbour_requests().neighbour_state(index, address)?;
                self.neighbour_states.insert((index, address), state);
            }
        }
        Ok(())
    }

    /// Reads the default routes of the tables that the kernel looks up, in the kernel's order.
    fn look_up_default_routes(&mut self, requests: &mut NetlinkRequests) -> Result<()> {
        self.routes.clear();
        let mut tables: BTreeMap<u32, Vec<RouteInfo>> = BTreeMap::new();
        for lookup in table_lookups(requests, false)? {
            let known = match tables.remove(&lookup.table) {
                Some(known) => known,
                None => requests.route_requests().list_routes(Some(lookup.table), None)?,
            };
            self.routes.extend(ipv6_default_routes(&lookup, &known));
            tables.insert(lookup.table, known);
        }
        let lifetimes = tables.values().flatten().filter(|route| is_default_route(route));
        let expired = lifetimes.clone().filter(|route| !is_unexpired(route));
        let hops = expired.flat_map(|route| &route.next_hops);
        self.expired_routes = hops.filter_map(|hop| Some((hop.index, hop.gateway?))).collect();
        let first =
            lifetimes.filter_map(|route| route.expires_in_centiseconds).filter(|expires| *expires > 0).min();
        let ticks = first.and_then(|ticks| u64::try_from(ticks).ok());
        self.next_route_expiry = ticks.map(|ticks| Instant::now() + Duration::from_millis(ticks * 10));
        let mut hosts = Vec::new();
        for lookup in table_lookups(requests, true)? {
            let known = requests.ipv4_requests().read_next_hops(lookup.table)?;
            self.routes.extend(ipv4_default_routes(&lookup, &known.default_routes));
            hosts.extend(ipv4_default_routes(&lookup, &known.host_routes));
        }
        let hosts = host_routes_as_default_routes(hosts, &self.routes);
        self.routes.extend(hosts);
        Ok(())
    }

    /// Returns interface and address of the default routers; the observer needs their neighbour state.
    pub(crate) fn default_gateways(&self) -> BTreeSet<(u32, IpAddr)> {
        let mut counts: BTreeMap<(u32, bool), usize> = BTreeMap::new();
        let named = self.routes.iter().filter(|route| !route.gateway.is_unspecified());
        let first = named.filter(|route| {
            let count = counts.entry((route.index, route.gateway.is_ipv6())).or_default();
            *count += 1;
            *count <= MAX_ROUTERS_PER_INTERFACE
        });
        first.map(|route| (route.index, route.gateway)).collect()
    }

    /// Returns how the machine's default routes and an interface's addresses were configured.
    pub(crate) fn route_and_address_origins(&self, index: u32) -> RouteAndAddressOrigins {
        let is_advertised = |route: &&DefaultRoute| route.index == index && route.is_advertised;
        let advertised = self.routes.iter().filter(is_advertised).count();
        let known = self.routes.iter().filter(|route| route.gateway.is_ipv6()).count();
        let here = self.addresses.iter().filter(|known| known.index == index && !known.is_own_address());
        let global = here.map(|known| &known.address).filter(|it| !it.address.is_unicast_link_local());
        RouteAndAddressOrigins {
            has_advertised_route: advertised > 0,
            has_other_route: known > advertised,
            has_leased_address: global.clone().any(|it| !it.permanent),
            // With an address whose prefix is shorter than 128, the kernel adds an on-link route for the
            // prefix.
            has_permanent_address: global.clone().any(|it| it.permanent && it.prefix_length < 128),
        }
    }

    /// Returns whether a default route has expired since the last reading of the routes.
    pub(crate) fn has_expired_route(&self) -> bool {
        self.next_route_expiry.is_some_and(|at| at <= Instant::now())
    }

    /// Returns whether this router's default route had expired at the last reading of the routes.
    pub(crate) fn had_expired_route(&self, interface: &str, router: Ipv6Addr) -> bool {
        self.links_by_name
            .get(interface)
            .is_some_and(|link| self.expired_routes.contains(&(link.index, router)))
    }

    /// Returns the changes of interfaces since the last call of this function.
    pub(crate) fn interface_changes(&mut self) -> Vec<PlatformEvent> {
        let mut news = Vec::new();
        let mut told = std::mem::take(&mut self.reported_interfaces);
        for link in
            self.links_by_name.values().filter(|link| link.name != TUNNEL_DEVICE && !is_own_device(link))
        {
            let interface = self.describe_interface(link);
            match told.remove(&link.name) {
                Some((index, before)) if index == link.index => {
                    if before != interface {
                        news.push(PlatformEvent::Interface(interface.clone()));
                    }
                }
                before => {
                    if before.is_some() {
                        news.push(PlatformEvent::InterfaceGone { name: link.name.clone() });
                    }
                    news.push(PlatformEvent::Interface(interface.clone()));
                }
            }
            self.reported_interfaces.insert(link.name.clone(), (link.index, interface));
        }
        let gone = told.into_keys().map(|name| PlatformEvent::InterfaceGone { name });
        news.splice(0..0, gone);
        news
    }

    fn describe_interface(&self, link: &LinkInfo) -> Interface {
        let here = |a: &&AddressInfo| a.index == link.index;
        let (mut routers, mut ipv4_routers) = (Vec::new(), Vec::new());
        let here_too = self.ipv4_addresses.iter().filter(|known| known.index == link.index);
        let ipv4_addresses: Vec<Ipv4Net> = here_too.map(|known| known.address).collect();
        let is_own = |address: Ipv4Addr| ipv4_addresses.iter().any(|known| known.addr() == address);
        let own = |route: &&DefaultRoute| {
            route.index == link.index && route.interface.as_ref().is_none_or(|it| *it == link.name)
        };
        for route in self.routes.iter().filter(own) {
            let state = self.neighbour_states.get(&(route.index, route.gateway)).copied();
            let neighbour = state.unwrap_or_default();
            match route.gateway {
                IpAddr::V6(gateway) => add_router(
                    &mut routers,
                    Ipv6Router {
                        gateway,
                        source: route.source.and_then(ipv6_network),
                        preferred_source: route.preferred_source.and_then(ipv6_address),
                        neighbour,
                    },
                ),
                IpAddr::V4(gateway) if is_own(gateway) && !link.is_point_to_point => {}
                IpAddr::V4(gateway) => add_router(
                    &mut ipv4_routers,
                    Ipv4Router {
                        gateway: if is_own(gateway) { Ipv4Addr::UNSPECIFIED } else { gateway },
                        source: route.source.and_then(ipv4_network),
                        preferred_source: route.preferred_source.and_then(ipv4_address),
                        neighbour,
                    },
                ),
            }
        }
        Interface {
            name: link.name.clone(),
            running: link.is_running,
            mtu: link.mtu,
            link_address: link.link_address,
            addresses: self.addresses.iter().filter(here).map(|a| a.address.clone()).collect(),
            routers,
            ipv4_addresses,
            ipv4_routers,
        }
    }
}

/// A next hop of an IPv6 or IPv4 default route.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DefaultRoute {
    index: u32,
    /// Interface that the rule for the route's table names; `None` if the rule names none. The route itself
    /// may have another interface.
    interface: Option<String>,
    gateway: IpAddr,
    source: Option<IpNet>,
    preferred_source: Option<IpAddr>,
    /// Whether the route was made from a Router Advertisement.
    is_advertised: bool,
}

/// Adds a router to a list of at most [`MAX_ROUTERS_PER_INTERFACE`], unless the list already has this router.
fn add_router<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if list.len() < MAX_ROUTERS_PER_INTERFACE && !list.contains(&item) {
        list.push(item);
    }
}

fn ipv6_address(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    }
}

fn ipv4_address(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

fn ipv6_network(network: IpNet) -> Option<Ipv6Net> {
    match network {
        IpNet::V6(network) => Some(network),
        IpNet::V4(_) => None,
    }
}

fn ipv4_network(network: IpNet) -> Option<Ipv4Net> {
    match network {
        IpNet::V4(network) => Some(network),
        IpNet::V6(_) => None,
    }
}

fn is_default_route(route: &RouteInfo) -> bool {
    route.destination.prefix_len() == 0 && route.protocol != ROUTE_PROTOCOL && route.is_unicast
}

fn is_unexpired(route: &RouteInfo) -> bool {
    route.expires_in_centiseconds.is_none_or(|left| left > 0)
}

/// Returns the default routes of a table in the kernel's order of preference: longer source prefix, then
/// lower metric, then higher preference (RFC 4191 3.2). Leaves out expired routes, which the kernel lists for
/// a while but does not use.
fn ipv6_default_routes(lookup: &TableLookup, routes: &[RouteInfo]) -> Vec<DefaultRoute> {
    let usable = |route: &&RouteInfo| is_default_route(route) && is_unexpired(route);
    let mut routes: Vec<&RouteInfo> = routes.iter().filter(usable).collect();
    let length = |route: &RouteInfo| route.source.map_or(0, |source| i16::from(source.prefix_len()));
    routes.sort_by_key(|route| (-length(route), route.metric, -route.router_preference));
    let mut found = Vec::new();
    for route in routes {
        let Ok(source) = prefix_intersection(lookup.source, route.source.map(IpNet::V6)) else { continue };
        found.extend(route.next_hops.iter().map(|hop| DefaultRoute {
            index: hop.index,
            interface: lookup.interface.clone(),
            // A route into a point-to-point link has no gateway.
            gateway: hop.gateway.unwrap_or(Ipv6Addr::UNSPECIFIED).into(),
            source,
            preferred_source: route.preferred_source.map(IpAddr::V6),
            is_advertised: route.protocol == PROTOCOL_ROUTER_ADVERTISEMENT,
        }));
    }
    found
}

fn ipv4_default_routes(lookup: &TableLookup, routes: &[Ipv4DefaultRoute]) -> Vec<DefaultRoute> {
    let route = |route: &Ipv4DefaultRoute| DefaultRoute {
        index: route.index,
        interface: lookup.interface.clone(),
        gateway: route.gateway.into(),
        source: lookup.source,
        preferred_source: route.preferred_source.map(IpAddr::V4),
        is_advertised: false,
    };
    routes.iter().map(route).collect()
}

/// Returns the hosts that count as routers on interfaces without an IPv4 default route.
fn host_routes_as_default_routes(hosts: Vec<DefaultRoute>, routes: &[DefaultRoute]) -> Vec<DefaultRoute> {
    let mut found: Vec<DefaultRoute> = Vec::new();
    for host in hosts {
        let is_here = |route: &&DefaultRoute| route.index == host.index && route.gateway.is_ipv4();
        let usable = ipv4_address(host.gateway).is_some_and(|it| {
            !(it.is_link_local() || it.is_loopback() || it.is_multicast() || it.is_broadcast())
        });
        if usable
            && !routes.iter().any(|route| is_here(&route))
            && found.iter().filter(is_here).count() < MAX_HOST_ROUTES
        {
            found.push(host);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use carnet_nemo::forwarding::desired::TABLE_MAIN;

    use super::*;
    use crate::netlink::NextHop;

    fn route(metric: u32, preference: i8, protocol: u8, hops: &[(u32, &str)]) -> RouteInfo {
        RouteInfo {
            table: TABLE_MAIN,
            destination: "::/0".parse().expect("prefix"),
            metric,
            protocol,
            is_unreachable: false,
            is_unicast: true,
            source: None,
            preferred_source: None,
            expires_in_centiseconds: None,
            router_preference: preference,
            next_hops: hops
                .iter()
                .map(|(index, gateway)| NextHop { index: *index, gateway: gateway.parse().ok() })
                .collect(),
        }
    }

    fn main_table() -> TableLookup {
        TableLookup { table: TABLE_MAIN, source: None, interface: None }
    }

    fn gateways_on(routes: &[DefaultRoute], index: u32) -> Vec<String> {
        let here = routes.iter().filter(|route| route.index == index);
        let mut found: Vec<String> = here.map(|route| route.gateway.to_string()).collect();
        found.dedup();
        found
    }

    #[test]
    fn default_routers_are_in_order_of_kernel_preference() {
        let mut narrow = route(1, 0, 3, &[(2, "fe80::9")]);
        narrow.destination = "2001:db8::/32".parse().expect("prefix");
        let blackhole = RouteInfo { is_unicast: false, ..route(1, 0, 3, &[(2, "fe80::7")]) };
        let routes = ipv6_default_routes(
            &main_table(),
            &[
                narrow,
                blackhole,
                route(1, 1, ROUTE_PROTOCOL, &[(2, "fe80::8")]),
                route(1024, -1, 9, &[(2, "fe80::1")]),
                route(1024, 1, 9, &[(2, "fe80::2")]),
                route(1024, 0, 3, &[(2, "fe80::3"), (3, "fe80::4")]),
                route(512, -1, 3, &[(2, "fe80::5")]),
                route(2000, 0, 3, &[(4, "on-link")]),
            ],
        );
        assert_eq!(gateways_on(&routes, 2), ["fe80::5", "fe80::2", "fe80::3", "fe80::1"]);
        assert_eq!(
            (gateways_on(&routes, 3), gateways_on(&routes, 4)),
            (vec!["fe80::4".into()], vec!["::".into()])
        );
    }

    /// A route `default from PREFIX` with a longer prefix precedes routes with shorter prefixes, whatever
    /// their metric. The observer also reports the source prefix of a rule.
    #[test]
    fn observer_keeps_source_prefixes_of_routes_and_rules() {
        let prefix = |text: &str| -> Ipv6Net { text.parse().expect("a prefix") };
        let from = |source: &str, gateway: &str| RouteInfo {
            source: Some(prefix(source)),
            ..route(2000, 0, 3, &[(2, gateway)])
        };
        let routes = [
            route(1, 0, 3, &[(2, "fe80::1")]),
            from("2001:db8::/32", "fe80::2"),
            from("2001:db8:1::/64", "fe80::3"),
        ];
        let found = ipv6_default_routes(&main_table(), &routes);
        assert_eq!(gateways_on(&found, 2), ["fe80::3", "fe80::2", "fe80::1"]);
        let by_rule = TableLookup { source: Some(prefix("2001:db8:2::/64").into()), ..main_table() };
        let found = ipv6_default_routes(&by_rule, &routes);
        assert_eq!(gateways_on(&found, 2), ["fe80::2", "fe80::1"], "the first is for other addresses");
        assert!(found.iter().all(|route| route.source == by_rule.source));
    }

    #[test]
    fn expired_default_route_is_ignored() {
        let lasting = |expires| RouteInfo {
            expires_in_centiseconds: Some(expires),
            ..route(1024, 0, 9, &[(2, "fe80::1")])
        };
        assert_eq!(ipv6_default_routes(&main_table(), &[lasting(1)]).len(), 1);
        assert_eq!(ipv6_default_routes(&main_table(), &[lasting(-1)]), []);
    }
}
