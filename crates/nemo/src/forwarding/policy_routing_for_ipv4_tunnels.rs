//! The IPv4 tables of a mobile router's uplinks. Each router by which an IPv4 care-of address leaves has a
//! table (RFC 8028 3, for IPv4).
//!
//! The sockets of a tunnel inside IPv4 are bound to their uplink, so the kernel uses only routes by that
//! device. If no such route leads to the home agent, the kernel takes the home agent for a neighbour on the
//! link. A network manager need not give each uplink a default route. Of several default routes of an uplink
//! the kernel takes the first, whatever the source address. So carnet has a table of its own for the router
//! of each address.
//!
//! More specific routes of the main table come first: the route to the uplink's subnet, or an operator's
//! route to the home agent.
//!
//! The rules name the uplink as well as the address, because two uplinks may have the same private address.
//! The rules select only packets of sockets that are bound to the uplink; other programs keep the routes that
//! the network manager has set. An IPv4 table has the same number as the IPv6 table of its uplink.

use std::net::IpAddr;

use carnet_mobility::mobile_router::Uplink;
use ipnet::Ipv4Net;

use super::desired::{ForwardingEntry, Ipv4Route, Ipv4Rule, TABLE_MAIN, priority};

/// Returns the IPv4 routes and rules of an uplink. `table` returns the table of the uplink's router with this
/// number.
pub(super) fn ipv4_uplink_entries(uplink: &Uplink, table: impl Fn(usize) -> u32) -> Vec<ForwardingEntry> {
    let interface = &uplink.config.interface;
    let routes = uplink.ipv4_next_hops().map(|(number, router)| {
        ForwardingEntry::Ipv4Route(Box::new(Ipv4Route {
            table: table(number),
            destination: Ipv4Net::default(),
            interface: interface.clone(),
            gateway: Some(router).filter(|router| !router.is_unspecified()),
        }))
    });
    let ipv4 = uplink.care_of_addresses().into_iter().filter_map(|address| match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    });
    let rules = ipv4.flat_map(|from| {
        let table = table(uplink.table_of_address(from.into()));
        let lookups = [
            (priority::SPECIFIC_IPV4_ROUTES, TABLE_MAIN, true),
            (priority::FROM_CARE_OF_ADDRESS, table, false),
        ];
        lookups.map(|(priority, table, without_default)| {
            let output_interface = interface.clone();
            ForwardingEntry::Ipv4Rule(Box::new(Ipv4Rule {
                priority,
                from,
                output_interface,
                table,
                without_default,
            }))
        })
    });
    routes.chain(rules).collect()
}
