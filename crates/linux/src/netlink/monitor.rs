//! Receives the kernel's netlink events, and notes which parts of the kernel's state they concern.
//!
//! An event only says *that* a part has changed; the observer then reads its present state. A state that is
//! built from single events would be outdated, and would stay wrong after a lost event. There is one
//! exception: the monitor takes the addresses of verified IPv6 neighbours from events, because the kernel's
//! table does not show past answers.
//!
//! To keep requests rare, the monitor ignores events about state that carnet does not read. A filter in the
//! kernel drops events about routes and rules that carnet itself has caused. Otherwise the changes for ten
//! thousand bindings would overrun the socket.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::task::{Context, Poll};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use socket2::{SockFilter, SockRef};
use tokio::io::unix::AsyncFd;

use super::ipv4_state::directly_routed_host;
use super::message::RtnetlinkMessage;
use super::neighbours::{KnownNeighbour, neighbour_of_message};
use super::{RoutingFields, next_hops, split_first_message};
use crate::ROUTE_PROTOCOL;
use crate::async_descriptor::watch_readable;
use crate::error::{Error, Result};

/// Multicast group of next-hop objects, which kernels before Linux 5.3 lack.
const NEXT_HOP_GROUP: u32 = 32;

/// Multicast groups: links, neighbours, IPv4 addresses, IPv4 routes, IPv4 rules, IPv6 addresses, IPv6 routes,
/// IPv6 rules, IPv4 and IPv6 settings of interfaces (`enum rtnetlink_groups`).
const MULTICAST_GROUPS: [u32; 10] = [1, 3, 5, 7, 8, 9, 11, 19, 24, 25];

/// Maximum number of neighbours in [`NetlinkChanges::reachable_neighbours`].
const MAX_REACHABLE_NEIGHBOURS: usize = 4096;

/// `RTM_NEWNETCONF` and `RTM_DELNETCONF`: a setting of one or of all interfaces has changed, for example
/// `forwarding` or `rp_filter`, or has vanished with its interface.
const NETCONF_MESSAGES: [u16; 2] = [80, 81];

/// Parts of the kernel's state that carnet must read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ChangedParts {
    /// Interfaces have changed.
    pub(crate) links_changed: bool,
    /// Addresses have changed.
    pub(crate) addresses_changed: bool,
    /// Default routes, or the rules that lead packets to their tables, have changed.
    pub(crate) routers_changed: bool,
    /// The neighbour state of a default router has changed.
    pub(crate) neighbours_changed: bool,
    /// carnet's own routes have changed.
    pub(crate) own_routes_changed: bool,
    /// carnet's own rules have changed.
    pub(crate) own_rules_changed: bool,
    /// Settings of interfaces have changed.
    pub(crate) settings_changed: bool,
}

impl ChangedParts {
    /// All parts of the kernel's state.
    pub(crate) const ALL_PARTS_CHANGED: ChangedParts = ChangedParts {
        links_changed: true,
        addresses_changed: true,
        routers_changed: true,
        neighbours_changed: true,
        own_routes_changed: true,
        own_rules_changed: true,
        settings_changed: true,
    };

    /// Returns whether carnet must read any part again.
    pub(crate) fn is_any_changed(self) -> bool {
        self != ChangedParts::default()
    }
}

/// Summary of the received events that the observer has not processed yet.
#[derive(Debug)]
pub(crate) struct NetlinkChanges {
    /// Parts of the kernel's state that carnet must read again.
    pub(crate) changed_parts: ChangedParts,
    /// Whether any route, rule, address or neighbour has changed, of carnet or of another program.
    pub(crate) routing_changed: bool,
    /// Whether routing state other than neighbours has changed.
    pub(crate) routes_changed: bool,
    /// Packet fields that the changed routes and rules use.
    pub(crate) routing_fields: RoutingFields,
    /// Interface and address of each default router, whose neighbour state carnet follows.
    pub(crate) router_neighbours: BTreeSet<(u32, IpAddr)>,
    /// Interface and address of the IPv6 neighbours that the kernel has verified, each with the link-layer
    /// address at which it answered. The neighbour's state may have changed since.
    pub(crate) reachable_neighbours: BTreeMap<(u32, Ipv6Addr), [u8; 6]>,
    /// Number of times that the kernel dropped events.
    pub(crate) lost_event_count: u64,
    /// Number of events that carnet could not parse.
    pub(crate) unparsed_events: u64,
}

impl Default for NetlinkChanges {
    /// Marks all state as changed, so that the observer reads everything at the start.
    fn default() -> NetlinkChanges {
        NetlinkChanges {
            changed_parts: ChangedParts::ALL_PARTS_CHANGED,
            routing_changed: true,
            routes_changed: true,
            routing_fields: RoutingFields::default(),
            router_neighbours: BTreeSet::new(),
            reachable_neighbours: BTreeMap::new(),
            lost_event_count: 0,
            unparsed_events: 0,
        }
    }
}

impl NetlinkChanges {
    /// Notes the events in a datagram of the kernel.
    pub(crate) fn handle_datagram(&mut self, octets: &[u8]) {
        self.routing_changed = true;
        let (mut rest, mut missed) = (octets, false);
        while let Some((this, next)) = split_first_message(rest) {
            rest = next;
            // carnet reads the value of a changed setting from its file, so it need not decode the message.
            if message_type_of(this).is_some_and(|kind| NETCONF_MESSAGES.contains(&kind)) {
                (self.changed_parts.settings_changed, self.routes_changed) = (true, true);
                continue;
            }
            // If a next-hop object changes, the kernel sends no events about the routes that use it. So treat
            // this event as a change of routes.
            if message_type_of(this)
                .is_some_and(|kind| matches!(kind, next_hops::RTM_NEWNEXTHOP | next_hops::RTM_DELNEXTHOP))
            {
                (self.changed_parts.routers_changed, self.routes_changed) = (true, true);
                continue;
            }
            match NetlinkMessage::<RtnetlinkMessage>::deserialize(this).map(|m| m.payload) {
                Ok(NetlinkPayload::InnerMessage(RtnetlinkMessage::Route(event))) => {
                    note_event(&mut self.changed_parts, &self.router_neighbours, &event);
                    self.note_reachable_neighbour(&event);
                    self.routes_changed |= !is_neighbour(&event);
                    self.routing_fields.note_message(&event);
                }
                Ok(NetlinkPayload::Overrun(_)) => missed = true,
                Ok(_) => self.routes_changed = true,
                Err(_) => {
                    // carnet cannot decode this message. It may be about any part, so read the whole state
                    // again.
                    self.unparsed_events += 1;
                    missed = true;
                }
            }
        }
        if missed {
            self.handle_unparsed_event();
        }
    }

    /// Handles the loss of events: the socket was full, so any part of the state may have changed.
    pub(crate) fn handle_overrun(&mut self) {
        self.lost_event_count += 1;
        self.handle_unparsed_event();
    }

    /// Notes the neighbour in an event if the kernel has verified it.
    fn note_reachable_neighbour(&mut self, event: &RouteNetlinkMessage) {
        let RouteNetlinkMessage::NewNeighbour(message) = event else { return };
        let index = message.header.ifindex;
        if let Some(neighbour) = KnownNeighbour::from_message(message, index)
            && neighbour.is_reachable
            && self.reachable_neighbours.len() < MAX_REACHABLE_NEIGHBOURS
        {
            self.reachable_neighbours.insert((index, neighbour.address), neighbour.link_address);
        }
    }

    fn handle_unparsed_event(&mut self) {
        self.changed_parts = ChangedParts::ALL_PARTS_CHANGED;
        (self.routing_changed, self.routes_changed, self.routing_fields.may_have_missed_events) =
            (true, true, true);
    }
}

/// A netlink socket that receives the kernel's events about interfaces, addresses, routes and rules.
#[derive(Debug)]
pub(crate) struct NetlinkMonitor {
    socket: AsyncFd<Socket>,
    receive_buffer: Vec<u8>,
}

impl NetlinkMonitor {
    /// Subscribes to the kernel's events. `own` is the port of carnet's socket for requests.
    pub(crate) fn open(own: u32) -> Result<NetlinkMonitor> {
        let failed = |e: io::Error| Error::from_kernel_refusal("listen to netlink events", e);
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(failed)?;
        socket.bind_auto().map_err(failed)?;
        socket.set_non_blocking(true).map_err(failed)?;
        SockRef::from(&socket).attach_filter(&filter_events_not_from(own)).map_err(failed)?;
        // The kernel may give less, because it limits the buffer to net.core.rmem_max.
        let _ = socket.set_rx_buf_sz(1u32 << 20);
        for group in MULTICAST_GROUPS {
            socket.add_membership(group).map_err(failed)?;
        }
        let _ = socket.add_membership(NEXT_HOP_GROUP);
        let socket = watch_readable(socket).map_err(failed)?;
        let buffer = Vec::with_capacity(super::RECEIVE_BUFFER_SIZE);
        Ok(NetlinkMonitor { socket, receive_buffer: buffer })
    }

    /// Reads all events that have arrived, so that a burst of events causes one reading of the state.
    pub(crate) fn poll_changes(&mut self, cx: &mut Context<'_>, news: &mut NetlinkChanges) -> io::Result<()> {
        while let Poll::Ready(guard) = self.socket.poll_read_ready(cx) {
            let mut guard = guard?;
            loop {
                self.receive_buffer.clear();
                match guard.get_inner().recv(&mut self.receive_buffer, 0) {
                    Ok(_) => news.handle_datagram(&self.receive_buffer),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        guard.clear_ready();
                        break;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => news.handle_overrun(),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

/// Returns the type of a netlink message (`nlmsg_type`); `None` if the message is too short.
fn message_type_of(message: &[u8]) -> Option<u16> {
    message.get(4..6)?.first_chunk().map(|octets| u16::from_ne_bytes(*octets))
}

fn is_neighbour(event: &RouteNetlinkMessage) -> bool {
    matches!(event, RouteNetlinkMessage::NewNeighbour(_) | RouteNetlinkMessage::DelNeighbour(_))
}

/// Returns a filter that drops events about routes and rules that the socket with port `own` caused.
///
/// Events about addresses and links pass, because the station needs to know when the kernel has added
/// carnet's own address.
fn filter_events_not_from(own: u32) -> [SockFilter; 9] {
    const BPF_LOAD_HALF_WORD: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
    const BPF_LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const BPF_JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const BPF_RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    // The filter loads values in network byte order, but netlink writes them in the machine's byte order.
    let kind = |number: u16| u32::from(u16::from_be_bytes(number.to_ne_bytes()));
    [
        SockFilter::new(BPF_LOAD_HALF_WORD, 0, 0, 4), // Load nlmsg_type.
        SockFilter::new(BPF_JUMP_IF_EQUAL, 3, 0, kind(libc::RTM_NEWROUTE)),
        SockFilter::new(BPF_JUMP_IF_EQUAL, 2, 0, kind(libc::RTM_DELROUTE)),
        SockFilter::new(BPF_JUMP_IF_EQUAL, 1, 0, kind(libc::RTM_NEWRULE)),
        SockFilter::new(BPF_JUMP_IF_EQUAL, 0, 3, kind(libc::RTM_DELRULE)),
        SockFilter::new(BPF_LOAD_WORD, 0, 0, 12), // Load nlmsg_pid.
        SockFilter::new(BPF_JUMP_IF_EQUAL, 0, 1, u32::from_be_bytes(own.to_ne_bytes())),
        SockFilter::new(BPF_RETURN, 0, 0, 0),
        SockFilter::new(BPF_RETURN, 0, 0, u32::MAX),
    ]
}

/// Notes in `dirty` to which part of the state `event` belongs.
fn note_event(dirty: &mut ChangedParts, gateways: &BTreeSet<(u32, IpAddr)>, event: &RouteNetlinkMessage) {
    match event {
        RouteNetlinkMessage::NewLink(_) | RouteNetlinkMessage::DelLink(_) => dirty.links_changed = true,
        RouteNetlinkMessage::NewAddress(_) | RouteNetlinkMessage::DelAddress(_) => {
            dirty.addresses_changed = true
        }
        RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route) => {
            dirty.own_routes_changed |= u8::from(route.header.protocol) == ROUTE_PROTOCOL;
            dirty.routers_changed |= route.header.destination_prefix_length == 0
                && u8::from(route.header.protocol) != ROUTE_PROTOCOL
                || directly_routed_host(route).is_some();
        }
        RouteNetlinkMessage::NewRule(rule) | RouteNetlinkMessage::DelRule(rule) => {
            dirty.own_rules_changed |= is_own_rule(rule) || rule.header.table == libc::RT_TABLE_LOCAL;
            dirty.routers_changed |= !is_own_rule(rule);
        }
        RouteNetlinkMessage::NewNeighbour(neighbour) | RouteNetlinkMessage::DelNeighbour(neighbour) => {
            dirty.neighbours_changed |=
                neighbour_of_message(neighbour).is_some_and(|it| gateways.contains(&it));
        }
        _ => {}
    }
}

fn is_own_rule(rule: &RuleMessage) -> bool {
    rule.attributes.iter().any(|a| matches!(a, RuleAttribute::Protocol(p) if u8::from(*p) == ROUTE_PROTOCOL))
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::NetlinkHeader;
    use netlink_packet_route::AddressFamily;
    use netlink_packet_route::neighbour::{
        NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
    };

    use super::*;

    const LINK_ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 9];

    fn numbered_address(number: usize) -> Ipv6Addr {
        Ipv6Addr::from(0x2001_0db8_u128 << 96 | number as u128)
    }

    /// Returns the kernel's event about the state of a neighbour on the interface with index 7.
    fn neighbour_event(address: Ipv6Addr, state: NeighbourState) -> Vec<u8> {
        let mut neighbour = NeighbourMessage::default();
        neighbour.header.family = AddressFamily::Inet6;
        neighbour.header.ifindex = 7;
        neighbour.header.state = state;
        neighbour.attributes = vec![
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)),
            NeighbourAttribute::LinkLayerAddress(LINK_ADDRESS.to_vec()),
        ];
        let message = RtnetlinkMessage::Route(RouteNetlinkMessage::NewNeighbour(neighbour));
        let mut message =
            NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::InnerMessage(message));
        message.finalize();
        let mut octets = vec![0; message.buffer_len()];
        message.serialize(&mut octets);
        octets
    }

    #[test]
    fn verified_neighbour_is_noted_whatever_its_later_state_is() {
        let mut changes = NetlinkChanges::default();
        for (number, states) in [
            (1, vec![NeighbourState::Stale, NeighbourState::Delay, NeighbourState::Probe]),
            (2, vec![NeighbourState::Reachable, NeighbourState::Stale]),
            (3, vec![NeighbourState::Probe, NeighbourState::Reachable, NeighbourState::Failed]),
        ] {
            for state in states {
                changes.handle_datagram(&neighbour_event(numbered_address(number), state));
            }
        }
        let expected = [2, 3].map(|number| ((7, numbered_address(number)), LINK_ADDRESS));
        assert_eq!(changes.reachable_neighbours, BTreeMap::from(expected));
        assert_eq!(changes.unparsed_events, 0);
    }

    #[test]
    fn burst_of_verified_neighbours_is_bounded() {
        let mut changes = NetlinkChanges::default();
        for number in 0..=MAX_REACHABLE_NEIGHBOURS {
            changes.handle_datagram(&neighbour_event(numbered_address(number), NeighbourState::Reachable));
        }
        assert_eq!(changes.reachable_neighbours.len(), MAX_REACHABLE_NEIGHBOURS);
    }
}
