//! What a home agent wants from the data path.
//!
//! Its address is routed into the tunnel device, so that control packets reach carnet instead of a kernel
//! that would refuse them. Per node: bound, the home address and the registered prefixes lead into the
//! tunnel; not bound, nothing of it may wander off along a default route (RFC 3963 6.7) - on a virtual home
//! link the prefixes are unreachable, on a real one they are routed to the home address as to any router
//! that is at home (RFC 3963 6.5, example 1); gone to another home agent, on a virtual home link, into a tunnel to that one. Mobile networks that are parts of the home prefix (RFC 4887 6) need no more
//! than that: their routes are longer than the home link's.

use std::net::Ipv6Addr;

use carnet_base::Endpoint;
use carnet_mobility::home_agent::AuthorizedNode;
use carnet_mobility::{HomeAgent, UDP_PORT};
use ipnet::Ipv6Net;

use super::desired::{
    Entry, Route, RouteAction, Setting, Socket, TABLE_MAIN, TUNNEL_DEVICE, Tunnel, TunnelEnd,
};
use super::path_mtu::Ends;
use super::ways::ways;

/// Metric of carnet's own routes: the kernel's default for routes that people add.
pub(crate) const METRIC: u32 = 1024;
/// Metric of routes to nodes that have gone to another home agent: by it a routing daemon tells that these are no longer
/// ours to announce.
pub(crate) const METRIC_RELAYED: u32 = 2048;
/// Metric of "unreachable" routes that catch what nothing better matches.
const METRIC_LAST: u32 = 0x7fff_ffff;
/// The path's MTU until Packet Too Big says otherwise: that of Ethernet.
const PATH_MTU: u32 = 1500;

pub(crate) fn host(address: Ipv6Addr) -> Ipv6Net {
    Ipv6Net::from(address)
}

pub(crate) fn route(table: u32, destination: Ipv6Net, metric: u32, action: RouteAction) -> Entry {
    Entry::Route(Route { table, destination, metric, action, source: None })
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
    if let Some(anycast) = agent.anycast_address() {
        entries.push(route(TABLE_MAIN, host(anycast), METRIC, into_tunnel_device()));
    }
    if config.home_link.is_none() {
        entries.push(unreachable(TABLE_MAIN, config.home_prefix));
    }
    // RFC 4887 5.1: the aggregate is routed here; what of it is nobody's would go back by the default route.
    entries.extend(config.home_network.map(|network| unreachable(TABLE_MAIN, network)));
    if let Some(address) = config.ipv4_address {
        let ends = [Endpoint::Udp((address, UDP_PORT).into()), Endpoint::Ipv4(address)];
        entries.extend(ends.map(|local| Entry::Socket(Socket { local, interface: None })));
    }
    entries
}

/// What one node's bindings, or their absence, ask for.
pub(crate) fn node_entries(agent: &HomeAgent, node: &AuthorizedNode) -> Vec<Entry> {
    let config = agent.config();
    let bindings = agent.bindings();
    let home_address = node.home_address;
    let inner: Vec<Ipv6Net> =
        std::iter::once(host(home_address)).chain(bindings.prefixes(home_address).iter().copied()).collect();
    let bound = bindings.valid(home_address).is_some();
    let living: Vec<_> = bindings.of(home_address).map(|binding| (binding.bid, binding.ends())).collect();
    let flows = bindings.flows(home_address);
    let ways = ways(TunnelEnd::HomeAgent, home_address, config.address, &living, flows);
    let tunnel = |bid, ends: Ends, transmit| {
        let (local, remote) = ends;
        Entry::Tunnel(Tunnel {
            end: TunnelEnd::HomeAgent,
            home_address,
            bid,
            local,
            remote,
            inner: inner.clone(),
            transmit,
            mtu: PATH_MTU.saturating_sub(remote.overhead()),
        })
    };
    let mut entries = Vec::new();
    // What was given up a moment ago is still listened to. When that is all there is, the node has de-registered: new
    // packets find other routes, and those that were on their way into the tunnel still go there.
    let relay = agent.relay(home_address).filter(|_| !bound);
    for path in bindings.former(home_address) {
        entries.push(tunnel(None, (path.agent, path.care_of_address), !bound && relay.is_none()));
    }
    // What arrives for a node that has gone to another home agent goes there as if that were its care-of address.
    if let Some(relay) = relay {
        let inner: Vec<Ipv6Net> = std::iter::once(host(home_address)).chain(relay.prefixes.clone()).collect();
        let remote = Endpoint::Ipv6(relay.to);
        entries.extend(inner.iter().map(|it| route(TABLE_MAIN, *it, METRIC_RELAYED, into_tunnel_device())));
        entries.push(Entry::Tunnel(Tunnel {
            end: TunnelEnd::HomeAgent,
            home_address,
            bid: None,
            local: config.address.into(),
            remote,
            inner,
            transmit: true,
            mtu: PATH_MTU.saturating_sub(remote.overhead()),
        }));
    }
    // One tunnel for each binding. Where two have the same ends, the better one counts.
    for (bid, ends) in living.iter().rev() {
        entries.push(tunnel(*bid, *ends, ways.transmit.contains(ends)));
    }
    entries.extend(ways.distribution.map(Entry::Distribution));
    if bound {
        for destination in inner.iter().copied() {
            entries.push(route(TABLE_MAIN, destination, METRIC, into_tunnel_device()));
        }
    }
    for prefix in &node.prefixes {
        match &config.home_link {
            // RFC 4887 5.3: one whose home address is not the home link's does not come there by it.
            Some(home_link) if !bound && config.home_prefix.contains(&home_address) => entries.push(route(
                TABLE_MAIN,
                *prefix,
                METRIC,
                RouteAction::Forward { interface: home_link.clone(), gateway: Some(home_address) },
            )),
            _ => entries.push(unreachable(TABLE_MAIN, *prefix)),
        }
    }
    entries
}
