//! Entries of the desired state for mobile routers behind this router, and for this router behind another
//! mobile router.
//!
//! A router behind this router may have a care-of address on a link that this router visits. Each such
//! address has a host route in [`TABLE_NESTED_ROUTERS`]. Packets that arrive on an uplink look up this table
//! first. Packets from the address leave by the uplink of its link. In both directions only tunnelled packets
//! and messages about tunnels pass. Otherwise hosts on board could bypass the home agents (RFC 3963 9), and
//! hosts outside could reach hosts on board past the home agents. The kernel forwards these packets: they
//! enter neither the slow path nor a fast path.
//!
//! Encrypted sessions are datagrams whose port at the mobile router is [`UDP_PORT`]. Rules select packets by
//! port, but a fragment has no port. So the router first rejects the other ports and then passes UDP. Port
//! 65535 passes as well, because no rule of the kernel can name it.
//!
//! This router itself may have addresses on a link that its parent router visits. The entries add these
//! addresses to the uplink through which the router acquired them.

use std::collections::BTreeSet;

use carnet_mobility::{MobileRouter, Nesting, UDP_PORT};
use carnet_wire::ipv6::protocol;

use super::desired::{
    ForwardingEntry, InterfaceAddress, PortMatch, RouteAction, Rule, TABLE_NESTED_ROUTERS, TABLE_UNREACHABLE,
    priority,
};
use super::policy_routing_for_mobile_router::next_hop_table;
use super::route_entries::{ROUTE_METRIC, host_prefix, route_entry};

/// Protocols that pass: tunnelled packets and their fragments, Mobility Headers, ICMPv6 errors about these
/// packets, and encrypted sessions.
const PROTOCOLS_OF_NESTED_ROUTERS: [u8; 5] =
    [protocol::IPV6, protocol::FRAGMENT, protocol::ICMPV6, protocol::MOBILITY, protocol::UDP];
/// Ports of UDP that do not pass, as ranges. The kernel accepts no range that contains 0 or 65535.
const REJECTED_PORTS: [(u16, u16); 2] = [(1, UDP_PORT - 1), (UDP_PORT + 1, u16::MAX - 1)];

/// Returns the routes, rules and addresses.
pub(crate) fn nesting_entries(nesting: &Nesting, router: &MobileRouter) -> Vec<ForwardingEntry> {
    let mut entries = Vec::new();
    let mut inputs = BTreeSet::new();
    for nested in nesting.routes() {
        let position = router.uplinks().iter().position(|uplink| uplink.config.interface == nested.uplink);
        let Some(index) = position else { continue };
        let table = router.uplinks().get(index).map_or(0, |uplink| {
            uplink.care_of_address().map_or(0, |address| uplink.table_of_address(address.into()))
        });
        let way = RouteAction::Forward { interface: nested.lan.clone(), gateway: Some(nested.gateway) };
        entries.push(route_entry(TABLE_NESTED_ROUTERS, host_prefix(nested.address), ROUTE_METRIC, way));
        let rejected = |priority, interface: &str, from, to, ports| {
            ForwardingEntry::Rule(Box::new(Rule {
                priority,
                input_interface: Some(interface.to_owned()),
                from,
                to,
                protocol: Some(protocol::UDP),
                ports: Some(ports),
                table: TABLE_UNREACHABLE,
                ..Rule::default()
            }))
        };
        for (first, last) in REJECTED_PORTS {
            let (from, to) = (priority::REJECTED_FROM_NESTED_ROUTERS, priority::REJECTED_TO_NESTED_ROUTERS);
            let address = Some(host_prefix(nested.address));
            entries.push(rejected(from, &nested.lan, address, None, PortMatch::Source(first, last)));
            entries.push(rejected(to, &nested.uplink, None, address, PortMatch::Destination(first, last)));
        }
        entries.extend(PROTOCOLS_OF_NESTED_ROUTERS.map(|protocol| {
            ForwardingEntry::Rule(Box::new(Rule {
                priority: priority::FROM_NESTED_ROUTERS,
                input_interface: Some(nested.lan.clone()),
                from: Some(host_prefix(nested.address)),
                to: None,
                protocol: Some(protocol),
                table: next_hop_table(index, table),
                ..Rule::default()
            }))
        }));
        inputs.insert(nested.uplink);
    }
    entries.extend(inputs.into_iter().flat_map(|uplink| {
        PROTOCOLS_OF_NESTED_ROUTERS.map(|protocol| {
            ForwardingEntry::Rule(Box::new(Rule {
                priority: priority::TO_NESTED_ROUTERS,
                input_interface: Some(uplink.clone()),
                from: None,
                to: None,
                protocol: Some(protocol),
                table: TABLE_NESTED_ROUTERS,
                ..Rule::default()
            }))
        })
    }));
    entries.extend(nesting.addresses().into_iter().map(|(interface, address, _)| {
        ForwardingEntry::Address(InterfaceAddress {
            interface,
            address,
            prefix_length: 128,
            deprecated: true,
        })
    }));
    entries
}
