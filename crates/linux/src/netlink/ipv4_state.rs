//! Reads the IPv4 addresses, default routes, and routes to hosts on the link that other programs have set.
//! carnet changes none of them.
//!
//! Left out: link-local addresses (169.254/16, RFC 3927) and addresses of scope `host`, because other
//! machines cannot reach them. A route whose next hop has an IPv6 address (RFC 8950) counts as a route
//! without a gateway.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;
use netlink_packet_route::address::AddressAttribute;
use netlink_packet_route::address::{AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHopFlags, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::NetlinkRequests;
use super::next_hops::NextHopObjects;
use super::referred_objects::read_referred_objects;
use crate::ROUTE_PROTOCOL;
use crate::error::Result;

/// An IPv4 address and its interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ipv4AddressInfo {
    pub(crate) index: u32,
    /// Address with the prefix length of its subnet.
    pub(crate) address: Ipv4Net,
}

/// Next hops of the routes in a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Ipv4NextHops {
    /// Next hops of the default routes, in the kernel's order of preference.
    pub(crate) default_routes: Vec<Ipv4DefaultRoute>,
    /// Hosts with a route of their own on the link (`ip route add HOST dev INTERFACE`), as next hops of a
    /// default route. A network manager adds such a route for each uplink's gateway, but sometimes no default
    /// route (ConnMan).
    pub(crate) host_routes: Vec<Ipv4DefaultRoute>,
}

/// A next hop of an IPv4 default route, with its interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ipv4DefaultRoute {
    pub(crate) index: u32,
    pub(crate) metric: u32,
    /// Source address that the route prefers (`src`); `None` if the route has none.
    pub(crate) preferred_source: Option<Ipv4Addr>,
    /// Address of the gateway; the unspecified address if the route has no gateway.
    pub(crate) gateway: Ipv4Addr,
}

fn address_of_message(message: &AddressMessage) -> Option<(bool, Ipv4AddressInfo)> {
    let header = &message.header;
    if header.family != AddressFamily::Inet
        || matches!(header.scope, AddressScope::Host | AddressScope::Nowhere)
    {
        return None;
    }
    let mut flags = AddressFlags::from_bits_retain(u32::from(header.flags.bits()));
    let (mut local, mut other) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(IpAddr::V4(address)) => local = Some(*address),
            AddressAttribute::Address(IpAddr::V4(address)) => other = Some(*address),
            AddressAttribute::Flags(all) => flags = *all,
            _ => {}
        }
    }
    // On a point-to-point interface, IFA_ADDRESS is the peer's address and IFA_LOCAL the interface's own
    // address.
    let address = local.or(other).filter(|address| !address.is_link_local() && !address.is_loopback())?;
    let address = Ipv4Net::new(address, header.prefix_len).ok()?;
    Some((flags.contains(AddressFlags::Secondary), Ipv4AddressInfo { index: header.index, address }))
}

/// Returns the host of a route to a host on the link; `None` for other routes.
pub(super) fn directly_routed_host(message: &RouteMessage) -> Option<Ipv4Addr> {
    let header = &message.header;
    let is_one = header.address_family == AddressFamily::Inet
        && header.destination_prefix_length == 32
        && header.kind == RouteType::Unicast
        && header.scope == RouteScope::Link
        && u8::from(header.protocol) != ROUTE_PROTOCOL;
    message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(host)) => Some(*host).filter(|_| is_one),
        _ => None,
    })
}

/// Adds the next hops of a default route, or of a route to a host on the link.
fn collect_next_hops(message: &RouteMessage, objects: &NextHopObjects, found: &mut Ipv4NextHops) {
    let header = &message.header;
    let (mut metric, mut preferred_source) = (0, None);
    let (mut interface, mut gateway, mut hops) = (None, None, Vec::new());
    let gateway_of = |attributes: &[RouteAttribute]| {
        attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Gateway(RouteAddress::Inet(address)) => Some(*address),
            _ => None,
        })
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Priority(number) => metric = *number,
            RouteAttribute::Oif(index) => interface = Some(*index),
            RouteAttribute::Gateway(RouteAddress::Inet(address)) => gateway = Some(*address),
            RouteAttribute::PrefSource(RouteAddress::Inet(address)) => preferred_source = Some(*address),
            RouteAttribute::MultiPath(next_hops) => {
                let usable = next_hops.iter().filter(|hop| !hop.flags.contains(RouteNextHopFlags::Dead));
                hops.extend(usable.map(|hop| (hop.interface_index, gateway_of(&hop.attributes))));
            }
            _ => {}
        }
    }
    let host = directly_routed_host(message);
    let is_default = header.address_family == AddressFamily::Inet
        && header.destination_prefix_length == 0
        && header.kind == RouteType::Unicast
        && u8::from(header.protocol) != ROUTE_PROTOCOL;
    if !(is_default || host.is_some()) || header.flags.contains(RouteFlags::Dead) {
        return;
    }
    hops.extend(interface.map(|index| (index, gateway)));
    hops.extend(objects.next_hops_of(message).into_iter().map(|(index, gateway)| match gateway {
        Some(IpAddr::V4(address)) => (index, Some(address)),
        _ => (index, None),
    }));
    let kind = if is_default { &mut found.default_routes } else { &mut found.host_routes };
    kind.extend(hops.into_iter().map(|(index, gateway)| Ipv4DefaultRoute {
        index,
        metric,
        preferred_source,
        gateway: host.or(gateway).unwrap_or(Ipv4Addr::UNSPECIFIED),
    }));
}

/// Returns the table of a route.
pub(super) fn table_of(message: &RouteMessage) -> u32 {
    let named = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(number) => Some(*number),
        _ => None,
    });
    named.unwrap_or(message.header.table.into())
}

/// Requests about IPv4 addresses and routes of other programs.
pub(crate) struct Ipv4StateRequests<'a>(pub(super) &'a mut NetlinkRequests);

impl Ipv4StateRequests<'_> {
    /// Returns all IPv4 addresses that are reachable from other machines, primary addresses first.
    pub(crate) fn list_ipv4_addresses(&mut self) -> Result<Vec<Ipv4AddressInfo>> {
        let mut question = AddressMessage::default();
        question.header.family = AddressFamily::Inet;
        let answers = self.0.dump_objects(RouteNetlinkMessage::GetAddress(question), || {
            "list the IPv4 addresses".to_owned()
        })?;
        let mut addresses: Vec<(bool, Ipv4AddressInfo)> = answers
            .iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewAddress(message) => address_of_message(message),
                _ => None,
            })
            .collect();
        addresses.sort_by_key(|(secondary, _)| *secondary);
        Ok(addresses.into_iter().map(|(_, address)| address).collect())
    }

    /// Returns the next hops of the IPv4 routes in a table.
    pub(crate) fn read_next_hops(&mut self, table: u32) -> Result<Ipv4NextHops> {
        let mut question = RouteMessage::default();
        question.header.address_family = AddressFamily::Inet;
        question.attributes.push(RouteAttribute::Table(table));
        let answers = self.0.dump_routes(question, || "list the IPv4 routes".to_owned())?;
        let objects = read_referred_objects(self.0, &answers)?;
        let mut found = Ipv4NextHops::default();
        for answer in &answers {
            if let RouteNetlinkMessage::NewRoute(message) = answer
                && table_of(message) == table
            {
                collect_next_hops(message, &objects, &mut found);
            }
        }
        found.default_routes.sort_by_key(|route| route.metric);
        found.host_routes.sort_by_key(|route| route.metric);
        Ok(found)
    }
}
