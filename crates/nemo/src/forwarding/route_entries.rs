//! Parts of the desired state's entries that home agent and mobile router both use.

use std::net::Ipv6Addr;
use std::sync::{Arc, LazyLock};

use carnet_base::mapped;
use ipnet::Ipv6Net;

use super::desired::{ForwardingEntry, Route, RouteAction, TUNNEL_DEVICE};

/// Metric of carnet's own routes: the kernel's default metric for IPv6 routes that a user adds.
pub(super) const ROUTE_METRIC: u32 = 1024;
/// Metric of "unreachable" routes, so high that the kernel prefers each other route of the table.
const LAST_RESORT_METRIC: u32 = 0x7fff_ffff;
/// Interface name in rules for the packets that this machine itself sends.
pub(super) const LOOPBACK_INTERFACE: &str = "lo";

/// Returns the prefix that contains only this address.
pub(super) fn host_prefix(address: Ipv6Addr) -> Ipv6Net {
    Ipv6Net::from(address)
}

/// Returns the first address of a prefix that a host may have: `PREFIX::1`, or `.1` of an IPv4 prefix. The
/// router on board has this address.
pub(crate) fn first_host_address(prefix: Ipv6Net) -> Ipv6Addr {
    match mapped::to_ipv4(prefix) {
        Some(prefix) => prefix.hosts().next().unwrap_or(prefix.network()).to_ipv6_mapped(),
        None => Ipv6Addr::from(u128::from(prefix.network()) | 1),
    }
}

/// Returns a route for all source addresses.
pub(super) fn route_entry(
    table: u32,
    destination: Ipv6Net,
    metric: u32,
    action: impl Into<Arc<RouteAction>>,
) -> ForwardingEntry {
    ForwardingEntry::Route(Route { table, destination, metric, action: action.into(), source: None })
}

/// Returns the action of routes into the tunnel device. All these routes share one value.
pub(super) fn route_into_tunnel_device() -> Arc<RouteAction> {
    static ROUTE_ACTION: LazyLock<Arc<RouteAction>> =
        LazyLock::new(|| Arc::new(RouteAction::Forward { interface: TUNNEL_DEVICE.into(), gateway: None }));
    ROUTE_ACTION.clone()
}

/// Returns a route that makes `destination` unreachable if `table` has no better route.
pub(super) fn unreachable_route(table: u32, destination: Ipv6Net) -> ForwardingEntry {
    static ROUTE_ACTION: LazyLock<Arc<RouteAction>> = LazyLock::new(|| Arc::new(RouteAction::Unreachable));
    route_entry(table, destination, LAST_RESORT_METRIC, ROUTE_ACTION.clone())
}
