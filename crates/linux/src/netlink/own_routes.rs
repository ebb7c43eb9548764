//! Installs carnet's own routes without replacing a route of another program.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::RouteMessage;

use super::NetlinkRequests;
use crate::ROUTE_PROTOCOL;
use crate::error::{Error, Result};

/// A route that carnet installs.
pub(super) trait OwnRoute {
    /// Returns the number of the route's table.
    fn table(&self) -> u32;

    /// Returns the message that installs the route.
    fn message(&self) -> RouteMessage;

    /// Returns the route in the notation of `ip route`.
    fn describe(&self) -> String;

    /// Reads from the kernel the routing protocol numbers of all routes that have the key of this route.
    fn route_protocols(&self, requests: &mut NetlinkRequests) -> Result<Vec<u8>>;
}

/// Installs a route. `replace` says that carnet itself has installed a route with this key. Otherwise only a
/// route of an earlier run may be replaced, and the function fails if another program has such a route.
pub(super) fn set_own_route(
    requests: &mut NetlinkRequests,
    route: &impl OwnRoute,
    replace: bool,
) -> Result<()> {
    if replace {
        return put_route(requests, route, NLM_F_REPLACE);
    }
    match put_route(requests, route, NLM_F_EXCL) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
        other => return other,
    }
    match route.route_protocols(requests)?.into_iter().find(|protocol| *protocol != ROUTE_PROTOCOL) {
        Some(protocol) => Err(Error::RouteTaken {
            operation: format!("add {}", route.describe()),
            protocol,
            table: route.table(),
        }),
        None => put_route(requests, route, NLM_F_REPLACE),
    }
}

fn put_route(requests: &mut NetlinkRequests, route: &impl OwnRoute, flags: u16) -> Result<()> {
    let message = RouteNetlinkMessage::NewRoute(route.message());
    requests.request_change(message, NLM_F_CREATE | flags, || format!("add {}", route.describe()))
}
