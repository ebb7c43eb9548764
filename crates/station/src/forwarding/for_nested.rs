//! What mobile routers behind this one want from the data path, and this router behind another one.
//!
//! A care-of address that a router behind this one has on a link that this one visits is a route of one
//! address in a table of its own, which is asked for what comes in on an uplink before anything else is. What
//! comes from that address leaves by the uplink that it belongs to. In both directions these are tunnels,
//! what is said about them, and nothing else, so that nobody on board has a way past the home agents (RFC
//! 3963 9), nor is reached past them. The kernel forwards both; no packet of theirs comes to the slow path,
//! nor does a fast path take it for its own.
//!
//! Addresses that this router has itself on a link before its parent's are put on the uplink by which they
//! were had.

use std::collections::BTreeSet;

use carnet_mobility::{MobileRouter, Nesting};
use carnet_wire::ipv6::protocol;

use super::desired::{Entry, InterfaceAddress, RouteAction, Rule, TABLE_NESTED, priority};
use super::for_home_agent::{METRIC, host, route};
use super::for_mobile_router::next_hop_table;

/// Tunnelled packets and their fragments, Mobility Headers, and errors about either.
const PASSED: [u8; 4] = [protocol::IPV6, protocol::FRAGMENT, protocol::ICMPV6, protocol::MOBILITY];

/// Routes, rules and addresses.
pub(crate) fn nesting_entries(nesting: &Nesting, router: &MobileRouter) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut inputs = BTreeSet::new();
    for nested in nesting.routes() {
        let position = router.uplinks().iter().position(|uplink| uplink.config.interface == nested.uplink);
        let Some(index) = position else { continue };
        let table = router
            .uplinks()
            .get(index)
            .map_or(0, |uplink| uplink.care_of_address().map_or(0, |address| uplink.table_of(address)));
        let way = RouteAction::Forward { interface: nested.lan.clone(), gateway: Some(nested.gateway) };
        entries.push(route(TABLE_NESTED, host(nested.address), METRIC, way));
        entries.extend(PASSED.map(|protocol| {
            Entry::Rule(Box::new(Rule {
                priority: priority::FROM_NESTED,
                input_interface: Some(nested.lan.clone()),
                from: Some(host(nested.address)),
                to: None,
                protocol: Some(protocol),
                table: next_hop_table(index, table),
            }))
        }));
        inputs.insert(nested.uplink);
    }
    entries.extend(inputs.into_iter().flat_map(|uplink| {
        PASSED.map(|protocol| {
            Entry::Rule(Box::new(Rule {
                priority: priority::TO_NESTED,
                input_interface: Some(uplink.clone()),
                from: None,
                to: None,
                protocol: Some(protocol),
                table: TABLE_NESTED,
            }))
        })
    }));
    entries.extend(nesting.addresses().into_iter().map(|(interface, address, _)| {
        Entry::Address(InterfaceAddress { interface, address, prefix_length: 128, deprecated: true })
    }));
    entries
}
