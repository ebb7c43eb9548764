//! Reads, installs and removes IPv6 routes, and the IPv4 routes of mobile networks. A destination in
//! IPv4-mapped form ([`carnet_base::mapped`]) is an IPv4 destination.
//!
//! Table, destination and metric identify a route. `NLM_F_CREATE | NLM_F_REPLACE` exchanges the route with
//! these three values under the kernel's lock, so that a route exists at every moment. Without
//! `NLM_F_REPLACE` the kernel would add a second next hop to the existing route.

use std::net::{IpAddr, Ipv6Addr};

use carnet_base::mapped::{self, ALL_IPV4_PREFIX};
use carnet_nemo::forwarding::desired::{Route, RouteAction};
use ipnet::Ipv6Net;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHopFlags, RoutePreference,
    RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::next_hops::NextHopObjects;
use super::own_routes::{OwnRoute, set_own_route};
use super::referred_objects::read_referred_objects;
use super::{NetlinkRequests, ignore_errors};
use crate::ROUTE_PROTOCOL;
use crate::error::Result;

/// Metric of an IPv6 route that was added without a metric (`IP6_RT_PRIO_USER`).
const DEFAULT_METRIC: u32 = 1024;

/// A next hop of a route: interface and gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextHop {
    pub(crate) index: u32,
    pub(crate) gateway: Option<Ipv6Addr>,
}

/// An IPv6 route in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RouteInfo {
    pub(crate) table: u32,
    pub(crate) destination: Ipv6Net,
    pub(crate) metric: u32,
    /// Origin of the route (`proto` in `ip route`).
    pub(crate) protocol: u8,
    /// Whether the route makes the kernel answer packets with Destination Unreachable.
    pub(crate) is_unreachable: bool,
    /// Whether the kernel forwards packets by this route; false for `unreachable`, `local` and similar
    /// routes.
    pub(crate) is_unicast: bool,
    /// Source prefix for which the route holds; `None` for any source.
    pub(crate) source: Option<Ipv6Net>,
    /// Source address that the route prefers (`src`); `None` if the route has none.
    pub(crate) preferred_source: Option<Ipv6Addr>,
    /// Hundredths of a second until the route expires; negative if it has expired. `None` for a route without
    /// lifetime.
    pub(crate) expires_in_centiseconds: Option<i32>,
    /// Preference of the router (RFC 4191): 1 high, 0 medium, -1 low.
    pub(crate) router_preference: i8,
    pub(crate) next_hops: Vec<NextHop>,
}

/// Returns the metric that the kernel stores for a route with this metric: [`DEFAULT_METRIC`] for 0.
pub(crate) fn effective_metric(metric: u32) -> u32 {
    if metric == 0 { DEFAULT_METRIC } else { metric }
}

impl RouteInfo {
    fn from_message(message: &RouteMessage, objects: &NextHopObjects) -> Option<RouteInfo> {
        let header = &message.header;
        let is_ipv4 = header.address_family == AddressFamily::Inet;
        if !is_ipv4 && header.address_family != AddressFamily::Inet6
            || header.flags.contains(RouteFlags::Cloned)
        {
            return None;
        }
        let mut table = u32::from(header.table);
        let mut destination = if is_ipv4 { ALL_IPV4_PREFIX.addr() } else { Ipv6Addr::UNSPECIFIED };
        let (mut metric, mut preference) = (0, 0);
        let (mut interface, mut gateway, mut hops) = (None, None, Vec::new());
        let (mut source, mut preferred_source, mut expires) = (Ipv6Addr::UNSPECIFIED, None, None);
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Table(number) => table = *number,
                RouteAttribute::Destination(RouteAddress::Inet6(address)) => destination = *address,
                RouteAttribute::Destination(RouteAddress::Inet(address)) => {
                    destination = address.to_ipv6_mapped();
                }
                RouteAttribute::Source(RouteAddress::Inet6(address)) => source = *address,
                RouteAttribute::PrefSource(RouteAddress::Inet6(address)) => preferred_source = Some(*address),
                RouteAttribute::PrefSource(RouteAddress::Inet(address)) => {
                    preferred_source = Some(address.to_ipv6_mapped());
                }
                // The lifetime is signed, in hundredths of a second (USER_HZ). 0 means no limit.
                RouteAttribute::CacheInfo(cached) if cached.expires != 0 => {
                    expires = Some(cached.expires.cast_signed());
                }
                RouteAttribute::Priority(number) => metric = *number,
                RouteAttribute::Oif(index) => interface = Some(*index),
                RouteAttribute::Gateway(RouteAddress::Inet6(address)) => gateway = Some(*address),
                RouteAttribute::Preference(RoutePreference::High) => preference = 1,
                RouteAttribute::Preference(RoutePreference::Low) => preference = -1,
                RouteAttribute::MultiPath(next_hops) => {
                    let usable = next_hops.iter().filter(|hop| !hop.flags.contains(RouteNextHopFlags::Dead));
                    hops.extend(usable.map(|hop| NextHop {
                        index: hop.interface_index,
                        gateway: hop.attributes.iter().find_map(|a| match a {
                            RouteAttribute::Gateway(RouteAddress::Inet6(address)) => Some(*address),
                            _ => None,
                        }),
                    }));
                }
                _ => {}
            }
        }
        if let Some(index) = interface.filter(|_| !header.flags.contains(RouteFlags::Dead)) {
            hops.push(NextHop { index, gateway });
        }
        hops.extend(objects.next_hops_of(message).into_iter().map(|(index, gateway)| NextHop {
            index,
            gateway: match gateway {
                Some(IpAddr::V6(address)) => Some(address),
                _ => None,
            },
        }));
        let front = if is_ipv4 { ALL_IPV4_PREFIX.prefix_len() } else { 0 };
        let source = Ipv6Net::new(source, header.source_prefix_length).ok();
        Some(RouteInfo {
            table,
            destination: Ipv6Net::new(destination, header.destination_prefix_length + front).ok()?,
            metric,
            protocol: header.protocol.into(),
            is_unreachable: header.kind == RouteType::Unreachable,
            is_unicast: header.kind == RouteType::Unicast,
            source: source.filter(|source| source.prefix_len() > 0),
            preferred_source,
            expires_in_centiseconds: expires,
            router_preference: preference,
            next_hops: hops,
        })
    }
}

fn route_message(table: u32, destination: Ipv6Net, metric: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    let (family, address, length) = match mapped::to_ipv4(destination) {
        Some(ipv4) => (AddressFamily::Inet, RouteAddress::Inet(ipv4.addr()), ipv4.prefix_len()),
        None => (AddressFamily::Inet6, RouteAddress::Inet6(destination.addr()), destination.prefix_len()),
    };
    message.header.address_family = family;
    message.header.destination_prefix_length = length;
    message.header.table = u8::try_from(table).unwrap_or(0);
    message.header.protocol = RouteProtocol::from(ROUTE_PROTOCOL);
    message.header.scope = RouteScope::Universe;
    message.attributes = vec![
        RouteAttribute::Table(table),
        RouteAttribute::Destination(address),
        RouteAttribute::Priority(effective_metric(metric)),
    ];
    message
}

fn describe_route(route: &Route) -> String {
    let Route { table, destination, .. } = route;
    let destination = mapped::format_prefix(*destination);
    match &*route.action {
        RouteAction::Forward { interface, gateway: Some(gateway) } => {
            format!("route {destination} via {gateway} dev {interface} to table {table}")
        }
        RouteAction::Forward { interface, gateway: None } => {
            format!("route {destination} dev {interface} to table {table}")
        }
        RouteAction::Local => format!("local route {destination} to table {table}"),
        RouteAction::Unreachable => format!("route unreachable {destination} to table {table}"),
    }
}

/// A route that carnet installs, and the index of its interface.
struct NewRoute<'a> {
    route: &'a Route,
    index: Option<u32>,
}

impl OwnRoute for NewRoute<'_> {
    fn table(&self) -> u32 {
        self.route.table
    }

    fn message(&self) -> RouteMessage {
        let NewRoute { route, index } = *self;
        let mut message = route_message(route.table, route.destination, route.metric);
        message.header.kind = RouteType::Unicast;
        let source = route.source.as_deref().map(|source| match source.to_ipv4_mapped() {
            Some(source) => RouteAddress::Inet(source),
            None => RouteAddress::Inet6(*source),
        });
        message.attributes.extend(source.map(RouteAttribute::PrefSource));
        match &*route.action {
            RouteAction::Forward { gateway, .. } => {
                // An IPv4 route without a gateway has the scope of its link.
                if mapped::to_ipv4(route.destination).is_some() {
                    message.header.scope = RouteScope::Link;
                }
                message.attributes.extend(index.map(RouteAttribute::Oif));
                message.attributes.extend(gateway.map(|g| RouteAttribute::Gateway(RouteAddress::Inet6(g))));
            }
            RouteAction::Unreachable => message.header.kind = RouteType::Unreachable,
            RouteAction::Local => {
                message.header.kind = RouteType::Local;
                message.attributes.extend(index.map(RouteAttribute::Oif));
            }
        }
        message
    }

    fn describe(&self) -> String {
        describe_route(self.route)
    }

    fn route_protocols(&self, requests: &mut NetlinkRequests) -> Result<Vec<u8>> {
        let known = match mapped::to_ipv4(self.route.destination) {
            Some(_) => requests.route_requests().list_ipv4_routes(Some(self.route.table), None)?,
            None => requests.route_requests().list_routes(Some(self.route.table), None)?,
        };
        let (destination, metric) = (self.route.destination, effective_metric(self.route.metric));
        let has_key = |it: &RouteInfo| it.destination == destination && it.metric == metric;
        Ok(known.into_iter().filter(has_key).map(|it| it.protocol).collect())
    }
}

/// Requests about IPv6 routes.
pub(crate) struct RouteRequests<'a>(pub(super) &'a mut NetlinkRequests);

impl RouteRequests<'_> {
    /// Returns the IPv6 routes of a table that have this routing protocol number. `None` means any table, or
    /// any number.
    pub(crate) fn list_routes(&mut self, table: Option<u32>, protocol: Option<u8>) -> Result<Vec<RouteInfo>> {
        self.list_routes_of_family(AddressFamily::Inet6, table, protocol)
    }

    /// Returns the IPv4 routes, as [`Self::list_routes`] does for IPv6, without their gateways. The
    /// destinations are in IPv4-mapped form.
    pub(crate) fn list_ipv4_routes(
        &mut self,
        table: Option<u32>,
        protocol: Option<u8>,
    ) -> Result<Vec<RouteInfo>> {
        self.list_routes_of_family(AddressFamily::Inet, table, protocol)
    }

    fn list_routes_of_family(
        &mut self,
        family: AddressFamily,
        table: Option<u32>,
        protocol: Option<u8>,
    ) -> Result<Vec<RouteInfo>> {
        let mut question = RouteMessage::default();
        question.header.address_family = family;
        question.header.protocol = protocol.unwrap_or(0).into();
        if let Some(number) = table {
            question.attributes.push(RouteAttribute::Table(number));
        }
        let answers = self.0.dump_routes(question, || "list the routes".to_owned())?;
        let objects = read_referred_objects(self.0, &answers)?;
        let routes = answers.iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(message) if message.header.address_family == family => {
                RouteInfo::from_message(message, &objects)
            }
            _ => None,
        });
        let wanted = |route: &RouteInfo| {
            table.is_none_or(|t| t == route.table) && protocol.is_none_or(|p| p == route.protocol)
        };
        Ok(routes.filter(wanted).collect())
    }

    /// Installs a route. `replace` says that carnet itself has installed a route with this key. Otherwise
    /// only a route of an earlier run may be replaced, and the function fails if another program has such a
    /// route.
    ///
    /// `index` is the index of the route's interface; `None` for an unreachable route, which the kernel puts
    /// on the loopback interface.
    pub(crate) fn set_route(&mut self, route: &Route, index: Option<u32>, replace: bool) -> Result<()> {
        set_own_route(self.0, &NewRoute { route, index }, replace)
    }

    /// Removes carnet's route with this key. A missing route is no error.
    pub(crate) fn delete_route(&mut self, table: u32, destination: Ipv6Net, metric: u32) -> Result<()> {
        let mut message = route_message(table, destination, metric);
        if mapped::to_ipv4(destination).is_some() {
            // In a request to delete an IPv4 route, this scope matches any scope.
            message.header.scope = RouteScope::NoWhere;
        }
        let result = self.0.request_change(RouteNetlinkMessage::DelRoute(message), 0, || {
            format!("remove route {} from table {table}", mapped::format_prefix(destination))
        });
        ignore_errors(result, &[libc::ESRCH, libc::ENOENT, libc::ENODEV])
    }
}
