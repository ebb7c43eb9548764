//! What a home agent wants from the data path.
//!
//! Its address is routed into the tunnel device, so that control packets reach carnet instead of a kernel
//! that would refuse them. Per node: bound, the home address and the registered prefixes lead into the
//! tunnel; not bound, nothing of it may wander off along a default route (RFC 3963 6.7) - on a virtual home
//! link the prefixes are unreachable, on a real one they are routed to the home address as to any router
//! that is at home (RFC 3963 6.5, example 1).

use std::net::Ipv6Addr;

use carnet_base::Endpoint;
use carnet_mobility::home_agent::AuthorizedNode;
use carnet_mobility::{HomeAgent, home_agent::Binding};
use ipnet::Ipv6Net;

use super::desired::{Entry, Route, RouteAction, Setting, TABLE_MAIN, TUNNEL_DEVICE, Tunnel, TunnelEnd};

/// Metric of carnet's own routes: the kernel's default for routes that people add.
pub(crate) const METRIC: u32 = 1024;
/// Metric of "unreachable" routes that catch what nothing better matches.
const METRIC_LAST: u32 = 0x7fff_ffff;
/// The path's MTU until Packet Too Big says otherwise: that of Ethernet.
const PATH_MTU: u32 = 1500;

pub(crate) fn host(address: Ipv6Addr) -> Ipv6Net {
    Ipv6Net::from(address)
}

pub(crate) fn route(table: u32, destination: Ipv6Net, metric: u32, action: RouteAction) -> Entry {
    Entry::Route(Route { table, destination, metric, action })
}

pub(crate) fn into_tunnel_device() -> RouteAction {
    RouteAction::Forward { interface: TUNNEL_DEVICE.into(), gateway: None }
}

/// Catches in `table` what nothing better matches.
pub(crate) fn unreachable(table: u32, destination: Ipv6Net) -> Entry {
    route(table, destination, METRIC_LAST, RouteAction::Unreachable)
}

/// What holds whether or not anybody is registered.
pub(crate) fn agent_entries(agent: &HomeAgent) -> Vec<Entry> {
    let config = agent.config();
    let mut entries = vec![
        Entry::Setting(Setting { interface: "all".into(), name: "forwarding".into(), value: "1".into() }),
        route(TABLE_MAIN, host(config.address), METRIC, into_tunnel_device()),
    ];
    if config.home_link.is_none() {
        entries.push(unreachable(TABLE_MAIN, config.home_prefix));
    }
    entries
}

/// What one node's binding, or its absence, asks for.
pub(crate) fn node_entries(agent: &HomeAgent, node: &AuthorizedNode) -> Vec<Entry> {
    let config = agent.config();
    let binding = agent.bindings().valid(node.home_address);
    let mut entries = Vec::new();
    if let Some(binding) = binding {
        entries.push(tunnel(config.address, binding, binding.care_of_address, true));
        if let Some((previous, _)) = binding.previous_care_of_address {
            entries.push(tunnel(config.address, binding, previous, false));
        }
        for destination in inner(binding) {
            entries.push(route(TABLE_MAIN, destination, METRIC, into_tunnel_device()));
        }
    }
    if let Some(left) = agent.bindings().get(node.home_address).filter(|_| binding.is_none())
        && let Some((previous, _)) = left.previous_care_of_address
    {
        // De-registered a moment ago. New packets find other routes; those that were on their way into or out
        // of the tunnel still pass.
        entries.push(tunnel(config.address, left, previous, true));
    }
    for prefix in &node.prefixes {
        match (&config.home_link, binding) {
            (Some(home_link), None) => entries.push(route(
                TABLE_MAIN,
                *prefix,
                METRIC,
                RouteAction::Forward { interface: home_link.clone(), gateway: Some(node.home_address) },
            )),
            _ => entries.push(unreachable(TABLE_MAIN, *prefix)),
        }
    }
    entries
}

fn inner(binding: &Binding) -> Vec<Ipv6Net> {
    std::iter::once(host(binding.home_address)).chain(binding.prefixes.iter().copied()).collect()
}

fn tunnel(local: Ipv6Addr, binding: &Binding, remote: Ipv6Addr, transmit: bool) -> Entry {
    Entry::Tunnel(Tunnel {
        end: TunnelEnd::HomeAgent,
        home_address: binding.home_address,
        bid: None,
        local: local.into(),
        remote: remote.into(),
        inner: inner(binding),
        transmit,
        mtu: PATH_MTU - Endpoint::from(remote).overhead(),
    })
}
