//! Entries of the desired state for direct routes to other mobile routers.
//!
//! On every uplink, rules capture the messages about direct routes between care-of addresses, and the
//! datagrams of encrypted sessions between mobile routers. Rules capture
//! tunnelled packets only from the care-of addresses of a router with a direct route. Most packets for a
//! direct route enter the tunnel device anyway. The routes matter only if kernel tunnels carry the traffic to
//! the home agent, because kernel tunnels know no direct routes.

use std::sync::Arc;

use carnet_mobility::direct;
use carnet_mobility::{MobileRouter, UDP_PORT};
use carnet_wire::ipv6::protocol;
use ipnet::Ipv6Net;

use super::desired::{
    ForwardingEntry, PortMatch, Rule, TABLE_CAPTURE, TABLE_TUNNEL, TABLE_UNREACHABLE, TUNNEL_DEVICE, Tunnel,
    TunnelEnd, priority,
};
use super::path_mtu::inner_mtu;
use super::route_entries::{ROUTE_METRIC, host_prefix, route_entry, route_into_tunnel_device};

/// Returns the rules, routes and tunnels of all direct routes.
pub(crate) fn direct_entries(
    router: &MobileRouter,
    requires_sessions: bool,
    tunnels: impl Iterator<Item = direct::DirectTunnel>,
) -> Vec<ForwardingEntry> {
    let uplinks = || router.config().uplinks.iter().map(|uplink| uplink.interface.as_str());
    let capture = |uplink: &str, from: Option<Ipv6Net>, protocol: u8| {
        ForwardingEntry::Rule(Box::new(Rule {
            priority: if from.is_some() {
                priority::TUNNEL_CAPTURE
            } else {
                priority::DIRECT_ROUTE_MESSAGE_CAPTURE
            },
            input_interface: Some(uplink.to_owned()),
            from,
            to: None,
            protocol: Some(protocol),
            table: TABLE_CAPTURE,
            ..Rule::default()
        }))
    };
    let mut entries: Vec<ForwardingEntry> =
        uplinks().map(|uplink| capture(uplink, None, protocol::MOBILITY)).collect();
    if requires_sessions {
        entries.extend(uplinks().map(|uplink| {
            ForwardingEntry::Rule(Box::new(Rule {
                priority: priority::DIRECT_ROUTE_MESSAGE_CAPTURE,
                input_interface: Some(uplink.to_owned()),
                protocol: Some(protocol::UDP),
                ports: Some(PortMatch::Destination(UDP_PORT, UDP_PORT)),
                table: TABLE_CAPTURE,
                ..Rule::default()
            }))
        }));
    }
    for tunnel in tunnels {
        for uplink in uplinks() {
            for protocol in [protocol::IPV6, protocol::FRAGMENT] {
                entries.push(capture(uplink, Some(host_prefix(tunnel.remote)), protocol));
            }
        }
        for prefix in &tunnel.proven_prefixes {
            entries.push(ForwardingEntry::Rule(Box::new(Rule {
                priority: priority::FROM_DIRECT_ROUTES,
                input_interface: Some(TUNNEL_DEVICE.to_owned()),
                from: Some(*prefix),
                to: None,
                protocol: None,
                table: TABLE_UNREACHABLE,
                ..Rule::default()
            })));
            entries.push(route_entry(TABLE_TUNNEL, *prefix, ROUTE_METRIC, route_into_tunnel_device()));
        }
        let mut over = router.uplinks().iter();
        let mtu = over
            .find(|uplink| uplink.care_of_addresses().contains(&tunnel.local.into()))
            .map_or(1280, |uplink| uplink.mtu());
        entries.push(ForwardingEntry::Tunnel(Arc::new(Tunnel {
            end: TunnelEnd::Direct,
            home_address: tunnel.home_address,
            bid: None,
            local: tunnel.local.into(),
            remote: tunnel.remote.into(),
            inner: tunnel.proven_prefixes,
            transmit: tunnel.may_transmit,
            mtu: inner_mtu(mtu, tunnel.remote.into(), tunnel.session.is_some()),
            session: tunnel.session,
        })));
    }
    entries
}
