//! What a home agent wants from the data path.
//!
//! Its address is routed into the tunnel device, so that control packets reach carnet instead of a kernel
//! that would refuse them. Per node: bound, the home address and the registered prefixes lead into the
//! tunnel; not bound, nothing of it may wander off along a default route (RFC 3963 6.7) - on a virtual home
//! link the prefixes are unreachable, on a real one they are routed to the home address as to any router
//! that is at home (RFC 3963 6.5, example 1).

use std::net::Ipv6Addr;

use carnet_base::Endpoint;
use carnet_mobility::HomeAgent;
use carnet_mobility::home_agent::AuthorizedNode;
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

/// What one node's bindings, or their absence, ask for.
pub(crate) fn node_entries(agent: &HomeAgent, node: &AuthorizedNode) -> Vec<Entry> {
    let config = agent.config();
    let bindings = agent.bindings();
    let home_address = node.home_address;
    let inner: Vec<Ipv6Net> =
        std::iter::once(host(home_address)).chain(bindings.prefixes(home_address).iter().copied()).collect();
    let tunnel = |bid, ends, transmit| tunnel(home_address, bid, ends, inner.clone(), transmit);
    let bound = bindings.valid(home_address).is_some();
    let mut entries = Vec::new();
    // What was given up a moment ago is still listened to. When that is all there is, the node has de-registered: new
    // packets find other routes, and those that were on their way into the tunnel still go there.
    for path in bindings.former(home_address) {
        entries.push(tunnel(None, (path.agent, path.care_of_address), !bound));
    }
    // One tunnel for each binding; the best carries the packets. Where two bindings have the same ends, the better one
    // counts.
    let tunnels: Vec<Entry> =
        bindings.of(home_address).map(|binding| tunnel(binding.bid, binding.ends(), false)).collect();
    let best = tunnels.first().map(Entry::key);
    for mut entry in tunnels.into_iter().rev() {
        let is_best = Some(entry.key()) == best;
        if let Entry::Tunnel(tunnel) = &mut entry {
            tunnel.transmit = is_best;
        }
        entries.push(entry);
    }
    if bound {
        for destination in inner.iter().copied() {
            entries.push(route(TABLE_MAIN, destination, METRIC, into_tunnel_device()));
        }
    }
    for prefix in &node.prefixes {
        match &config.home_link {
            Some(home_link) if !bound => entries.push(route(
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

/// The tunnel between two ends.
fn tunnel(
    home_address: Ipv6Addr,
    bid: Option<u16>,
    (local, remote): (Endpoint, Endpoint),
    inner: Vec<Ipv6Net>,
    transmit: bool,
) -> Entry {
    Entry::Tunnel(Tunnel {
        end: TunnelEnd::HomeAgent,
        home_address,
        bid,
        local,
        remote,
        inner,
        transmit,
        mtu: PATH_MTU.saturating_sub(remote.overhead()),
    })
}
