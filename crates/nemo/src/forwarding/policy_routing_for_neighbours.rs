//! Entries of the desired state for routes to neighbouring mobile networks.
//!
//! Packets from the mobile network look up a table of neighbours before the table of the tunnel. If the table
//! of neighbours has no route, the packets enter the tunnel. So a vehicle that comes into range adds one
//! route, and a vehicle that leaves removes one route. All other entries stay.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use carnet_mobility::mobile_router::MobileRouterConfig;
use ipnet::Ipv6Net;

use super::desired::{ForwardingEntry, RouteAction, Rule, TABLE_MAIN, TABLE_NEIGHBOURS, priority};
use super::policy_routing_for_mobile_router::lan_input_interfaces;
use super::route_entries::{LOOPBACK_INTERFACE, ROUTE_METRIC, host_prefix, route_entry};

/// Returns the rules and routes. `interface` is the interface of IPv6 over GeoNetworking, which may be an
/// uplink as well.
pub(crate) fn neighbour_entries(
    config: &MobileRouterConfig,
    lan: &[String],
    interface: &str,
    routes: &BTreeMap<Ipv6Net, Ipv6Addr>,
) -> Vec<ForwardingEntry> {
    let rule = |priority, input: Option<&str>, from: Option<Ipv6Net>, to: Option<Ipv6Net>, table| {
        let input_interface = input.map(str::to_owned);
        ForwardingEntry::Rule(Box::new(Rule {
            priority,
            input_interface,
            from,
            to,
            table,
            ..Rule::default()
        }))
    };
    let mut entries = Vec::new();
    let is_uplink = config.uplinks.iter().any(|uplink| uplink.interface == interface);
    for prefix in &config.prefixes {
        for input in lan_input_interfaces(lan) {
            entries.push(rule(priority::TO_NEIGHBOURS, input, Some(*prefix), None, TABLE_NEIGHBOURS));
        }
        // On an uplink, accept packets of neighbours before [`priority::FROM_UPLINK`] rejects all other
        // packets for the mobile network.
        if is_uplink {
            entries.push(rule(priority::FROM_NEIGHBOURS, Some(interface), None, Some(*prefix), TABLE_MAIN));
        }
    }
    let home_address = Some(host_prefix(config.home_address));
    entries.push(rule(
        priority::TO_NEIGHBOURS,
        Some(LOOPBACK_INTERFACE),
        home_address,
        None,
        TABLE_NEIGHBOURS,
    ));
    entries.extend(routes.iter().map(|(prefix, gateway)| {
        let action = RouteAction::Forward { interface: interface.to_owned(), gateway: Some(*gateway) };
        route_entry(TABLE_NEIGHBOURS, *prefix, ROUTE_METRIC, action)
    }));
    entries
}
