//! Receives the kernel's netlink events, and notes which state they concern.
//!
//! An event only says *that* the state has changed; the observer then reads the present state. A state that
//! is built from single events would be outdated, and would stay wrong after a lost event. To keep requests
//! rare, the monitor ignores events that concern nothing carnet reads. A filter in the kernel drops events
//! about routes and rules that carnet itself has caused; otherwise ten thousand bindings would overrun the
//! socket.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::task::{Context, Poll};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use socket2::{SockFilter, SockRef};
use tokio::io::unix::AsyncFd;

use super::ipv4::host_on_link;
use super::message::Message;
use super::neighbours::subject;
use super::{RoutingFields, next_hops, split};
use crate::ROUTE_PROTOCOL;
use crate::error::{Error, Result};
use crate::readable::watch;

/// Multicast group of next-hop objects, which kernels before Linux 5.3 lack.
const NEXT_HOP_GROUP: u32 = 32;

/// Multicast groups: links, neighbours, IPv4 addresses, IPv4 routes, IPv4 rules, IPv6 addresses, IPv6 routes,
/// IPv6 rules, IPv4 and IPv6 settings of interfaces (`enum rtnetlink_groups`).
const GROUPS: [u32; 10] = [1, 3, 5, 7, 8, 9, 11, 19, 24, 25];

/// `RTM_NEWNETCONF` and `RTM_DELNETCONF`: a setting of one or of all interfaces has changed, for example
/// `forwarding` or `rp_filter`, or has vanished with its interface.
const NETCONF: [u16; 2] = [80, 81];

/// Parts of the kernel's state that carnet must read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ChangedParts {
    /// Interfaces have changed.
    pub(crate) links: bool,
    /// Addresses have changed.
    pub(crate) addresses: bool,
    /// Default routes, or the rules that lead packets to their tables, have changed.
    pub(crate) routers: bool,
    /// The neighbour state of a default router has changed.
    pub(crate) neighbours: bool,
    /// carnet's own routes have changed.
    pub(crate) own_routes: bool,
    /// carnet's own rules have changed.
    pub(crate) own_rules: bool,
    /// Settings of interfaces have changed.
    pub(crate) settings: bool,
}

impl ChangedParts {
    /// All parts of the kernel's state.
    pub(crate) const ALL: ChangedParts = ChangedParts {
        links: true,
        addresses: true,
        routers: true,
        neighbours: true,
        own_routes: true,
        own_rules: true,
        settings: true,
    };

    /// Returns whether carnet must read any part again.
    pub(crate) fn any(self) -> bool {
        self != ChangedParts::default()
    }
}

/// Summary of the received events that the observer has not processed yet.
#[derive(Debug)]
pub(crate) struct NetlinkChanges {
    /// Parts of the kernel's state that carnet must read again.
    pub(crate) dirty: ChangedParts,
    /// Whether any routing state has changed, of carnet or of another program.
    pub(crate) routing: bool,
    /// Whether routing state other than neighbours has changed.
    pub(crate) routes: bool,
    /// Packet fields that the changed routes and rules use.
    pub(crate) routing_fields: RoutingFields,
    /// Interface and address of each default router, whose neighbour state carnet follows.
    pub(crate) gateways: BTreeSet<(u32, IpAddr)>,
    /// Number of times that the kernel dropped events.
    pub(crate) overruns: u64,
    /// Number of events that carnet could not parse.
    pub(crate) unparsed: u64,
}

impl Default for NetlinkChanges {
    /// Marks all state as changed, so that the observer reads everything at the start.
    fn default() -> NetlinkChanges {
        NetlinkChanges {
            dirty: ChangedParts::ALL,
            routing: true,
            routes: true,
            routing_fields: RoutingFields::default(),
            gateways: BTreeSet::new(),
            overruns: 0,
            unparsed: 0,
        }
    }
}

impl NetlinkChanges {
    /// Notes the events in a datagram of the kernel.
    pub(crate) fn handle_datagram(&mut self, octets: &[u8]) {
        self.routing = true;
        let (mut rest, mut missed) = (octets, false);
        while let Some((this, next)) = split(rest) {
            rest = next;
            // carnet reads the value of a changed setting from its file, so it need not decode the message.
            if kind(this).is_some_and(|kind| NETCONF.contains(&kind)) {
                (self.dirty.settings, self.routes) = (true, true);
                continue;
            }
            // If a next-hop object changes, the kernel sends no events about the routes that use it.
            if kind(this).is_some_and(|kind| matches!(kind, next_hops::NEW | next_hops::DELETED)) {
                (self.dirty.routers, self.routes) = (true, true);
                continue;
            }
            match NetlinkMessage::<Message>::deserialize(this).map(|m| m.payload) {
                Ok(NetlinkPayload::InnerMessage(Message::Route(event))) => {
                    note(&mut self.dirty, &self.gateways, &event);
                    self.routes |= !is_neighbour(&event);
                    self.routing_fields.note_message(&event);
                }
                Ok(NetlinkPayload::Overrun(_)) => missed = true,
                Ok(_) => self.routes = true,
                Err(_) => {
                    // carnet cannot decode the message, which may matter, so read the whole state again.
                    self.unparsed += 1;
                    missed = true;
                }
            }
        }
        if missed {
            self.miss();
        }
    }

    /// Handles the loss of events: the socket was full, so any part of the state may have changed.
    pub(crate) fn overrun(&mut self) {
        self.overruns += 1;
        self.miss();
    }

    fn miss(&mut self) {
        self.dirty = ChangedParts::ALL;
        (self.routing, self.routes, self.routing_fields.may_have_missed_events) = (true, true, true);
    }
}

/// A netlink socket that receives the kernel's events about interfaces, addresses, routes and rules.
#[derive(Debug)]
pub(crate) struct Monitor {
    socket: AsyncFd<Socket>,
    buffer: Vec<u8>,
}

impl Monitor {
    /// Subscribes to the kernel's events. `own` is the port of carnet's socket for requests.
    pub(crate) fn open(own: u32) -> Result<Monitor> {
        let failed = |e: io::Error| Error::kernel("listen to netlink events", e);
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(failed)?;
        socket.bind_auto().map_err(failed)?;
        socket.set_non_blocking(true).map_err(failed)?;
        SockRef::from(&socket).attach_filter(&not_from(own)).map_err(failed)?;
        // The kernel may give less, because it limits the buffer to net.core.rmem_max.
        let _ = socket.set_rx_buf_sz(1u32 << 20);
        for group in GROUPS {
            socket.add_membership(group).map_err(failed)?;
        }
        let _ = socket.add_membership(NEXT_HOP_GROUP);
        let socket = watch(socket).map_err(failed)?;
        let buffer = Vec::with_capacity(super::RECEIVE_BUFFER);
        Ok(Monitor { socket, buffer })
    }

    /// Reads all events that have arrived, so that a burst of events causes one reading of the state.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, news: &mut NetlinkChanges) -> io::Result<()> {
        while let Poll::Ready(guard) = self.socket.poll_read_ready(cx) {
            let mut guard = guard?;
            loop {
                self.buffer.clear();
                match guard.get_inner().recv(&mut self.buffer, 0) {
                    Ok(_) => news.handle_datagram(&self.buffer),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        guard.clear_ready();
                        break;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => news.overrun(),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

/// Returns the type of a netlink message (`nlmsg_type`); `None` if the message is too short.
fn kind(message: &[u8]) -> Option<u16> {
    message.get(4..6)?.first_chunk().map(|octets| u16::from_ne_bytes(*octets))
}

fn is_neighbour(event: &RouteNetlinkMessage) -> bool {
    matches!(event, RouteNetlinkMessage::NewNeighbour(_) | RouteNetlinkMessage::DelNeighbour(_))
}

/// Returns a filter that drops events about routes and rules that the socket with port `own` caused.
///
/// Events about addresses and links pass, because the station needs to know when the kernel has added
/// carnet's own address.
fn not_from(own: u32) -> [SockFilter; 9] {
    const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
    const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    // The filter loads values in network byte order, but netlink writes them in the machine's byte order.
    let kind = |number: u16| u32::from(u16::from_be_bytes(number.to_ne_bytes()));
    [
        SockFilter::new(LOAD_HALF, 0, 0, 4), // Load nlmsg_type.
        SockFilter::new(JUMP_EQUAL, 3, 0, kind(libc::RTM_NEWROUTE)),
        SockFilter::new(JUMP_EQUAL, 2, 0, kind(libc::RTM_DELROUTE)),
        SockFilter::new(JUMP_EQUAL, 1, 0, kind(libc::RTM_NEWRULE)),
        SockFilter::new(JUMP_EQUAL, 0, 3, kind(libc::RTM_DELRULE)),
        SockFilter::new(LOAD_WORD, 0, 0, 12), // Load nlmsg_pid.
        SockFilter::new(JUMP_EQUAL, 0, 1, u32::from_be_bytes(own.to_ne_bytes())),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ]
}

/// Notes in `dirty` to which part of the state `event` belongs.
fn note(dirty: &mut ChangedParts, gateways: &BTreeSet<(u32, IpAddr)>, event: &RouteNetlinkMessage) {
    match event {
        RouteNetlinkMessage::NewLink(_) | RouteNetlinkMessage::DelLink(_) => dirty.links = true,
        RouteNetlinkMessage::NewAddress(_) | RouteNetlinkMessage::DelAddress(_) => dirty.addresses = true,
        RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route) => {
            dirty.own_routes |= u8::from(route.header.protocol) == ROUTE_PROTOCOL;
            dirty.routers |= route.header.destination_prefix_length == 0
                && u8::from(route.header.protocol) != ROUTE_PROTOCOL
                || host_on_link(route).is_some();
        }
        RouteNetlinkMessage::NewRule(rule) | RouteNetlinkMessage::DelRule(rule) => {
            dirty.own_rules |= is_own(rule) || rule.header.table == libc::RT_TABLE_LOCAL;
            dirty.routers |= !is_own(rule);
        }
        RouteNetlinkMessage::NewNeighbour(neighbour) | RouteNetlinkMessage::DelNeighbour(neighbour) => {
            dirty.neighbours |= subject(neighbour).is_some_and(|it| gateways.contains(&it));
        }
        _ => {}
    }
}

fn is_own(rule: &RuleMessage) -> bool {
    rule.attributes.iter().any(|a| matches!(a, RuleAttribute::Protocol(p) if u8::from(*p) == ROUTE_PROTOCOL))
}
