//! Packets from the tunnel device or a socket, and the parts of the station that receive them.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use carnet_base::{DropReason, Endpoint, Time, WallTime};
use carnet_mobility::home_agent::CARE_OF_TEST_LEN;
use carnet_mobility::{MobilityDrop, MobilityMessage};
use carnet_wire::extension::Extensions;
use carnet_wire::icmpv6::{self, ErrorMessage};
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wire::mobility::message_type;

use super::path_mtus::is_probe_answer;
use super::{Agent, Nemo};
use crate::drop_reason::TunnelDrop;
use crate::forwarding::forwarder::{ErrorOutcome, Verdict};
use crate::forwarding::inner;
use crate::forwarding::packet::PacketBuffer;
use crate::forwarding::path_mtu::Ends;
use crate::input::{Arrival, InRange};

/// Outer header of a packet that arrived inside IPv4 or UDP.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outer {
    /// Local and remote end of the tunnel.
    ends: Ends,
    /// DSCP and ECN as one octet.
    traffic_class: u8,
}

/// Counters of the messages of Mobile IPv6.
#[derive(Debug, Default)]
pub(crate) struct MessageCounters {
    pub(crate) received: BTreeMap<&'static str, u64>,
    pub(crate) dropped: BTreeMap<MobilityDrop, u64>,
}

impl MessageCounters {
    /// Returns the verdict on a Mobility Header message. If the station drops the message, counts the reason.
    pub(super) fn verdict(&mut self, result: Result<(), MobilityDrop>) -> Verdict {
        match result {
            Ok(()) => Verdict::Consumed,
            Err(reason) => {
                *self.dropped.entry(reason).or_default() += 1;
                Verdict::Dropped(reason.name())
            }
        }
    }
}

impl Nemo {
    /// Handles a packet from the tunnel device, without allocation for common packets. On
    /// [`Verdict::Forward`] the buffer holds the packet to write back. On [`Verdict::Encapsulate`] it holds
    /// the packet to send by a socket. Other outputs may wait in addition.
    pub fn handle_packet(&mut self, at: Arrival<'_>, buffer: &mut PacketBuffer) -> Verdict {
        let Arrival { now, wall, .. } = at;
        let Ok((header, length)) = inner::parse(buffer.as_slice()) else {
            return self.data_path.forwarder.drop(TunnelDrop::Malformed);
        };
        buffer.strip(0, length);
        if inner::is_ipv4(buffer.as_slice()) {
            return self.encapsulate(now, wall, &header, buffer);
        }
        let (roles, data_path, messages) = (&self.roles, &mut self.data_path, &mut self.messages);
        if let Some(protection) = &mut self.protection
            && let Some(verdict) = protection.process(now, roles, data_path, messages, &header, buffer)
        {
            return verdict;
        }
        if self.is_own(&header) {
            return self.deliver(at, &header, None, buffer, true);
        }
        if self.direct.is_message(&header, self.roles.router.as_ref()) {
            return self.direct.handle_message(now, buffer.as_slice());
        }
        if let Some(direct) = &mut self.direct.machine {
            direct.handle_use(now, header.destination);
        }
        self.encapsulate(now, wall, &header, buffer)
    }

    /// Encapsulates a packet of a host behind this station. A packet without a tunnel makes the mobile router
    /// register sooner.
    fn encapsulate(
        &mut self,
        now: Time,
        wall: WallTime,
        header: &Header,
        buffer: &mut PacketBuffer,
    ) -> Verdict {
        let verdict = self.data_path.forwarder.encapsulate(now, header, buffer);
        if verdict == Verdict::from(TunnelDrop::NotRegistered)
            && let Some(router) = &mut self.roles.router
        {
            router.machine.handle_demand(now, wall);
        }
        verdict
    }

    /// Handles a packet that arrived at `ends.0` from `ends.1` inside IPv4 or UDP. `traffic_class` is the
    /// outer header's octet with DSCP and ECN. The packet is for this station, such as a Mobility Header
    /// message (RFC 5555 4.1), or comes out of a tunnel.
    pub fn handle_datagram(
        &mut self,
        at: Arrival<'_>,
        ends: Ends,
        traffic_class: u8,
        buffer: &mut PacketBuffer,
    ) -> Verdict {
        let Ok((header, length)) = inner::parse(buffer.as_slice()) else {
            return self.data_path.forwarder.drop(TunnelDrop::Malformed);
        };
        buffer.strip(0, length);
        let outer = Outer { ends, traffic_class };
        if inner::is_ipv4(buffer.as_slice()) {
            return self.decapsulate(at, outer, None, 0, buffer);
        }
        let to_agent =
            self.roles.agent.as_ref().is_some_and(|a| a.machine.config().address == header.destination);
        let to_router = self.roles.router.as_ref().is_some_and(|router| {
            let config = router.machine.config();
            header.destination == config.home_address && router.is_home_agent(header.source)
        });
        let control = matches!(header.next_header, protocol::MOBILITY | protocol::DESTINATION_OPTIONS);
        match control && (to_agent || to_router) {
            true => self.deliver(at, &header, Some(outer), buffer, false),
            false => self.decapsulate(at, outer, None, 0, buffer),
        }
    }

    /// Handles a packet that came out of an encrypted session, `at.session`. `ends` are the tunnel ends by
    /// the header of the datagram. Inside IPv6, a message of Mobile IPv6 has this header itself, and
    /// every other packet comes without an outer header.
    pub fn handle_session_packet(
        &mut self,
        at: Arrival<'_>,
        ends: Ends,
        traffic_class: u8,
        buffer: &mut PacketBuffer,
    ) -> Verdict {
        let (Endpoint::Ipv6(local), Endpoint::Ipv6(remote)) = ends else {
            return self.handle_datagram(at, ends, traffic_class, buffer);
        };
        let Ok((header, length)) = inner::parse(buffer.as_slice()) else {
            return self.data_path.forwarder.drop(TunnelDrop::Malformed);
        };
        buffer.strip(0, length);
        if inner::is_ipv4(buffer.as_slice()) || (header.source, header.destination) != (remote, local) {
            let outer = Outer { ends, traffic_class };
            return self.decapsulate(at, outer, None, 0, buffer);
        }
        // No fragments: the sender of a session fragments its datagrams.
        let is_message = matches!(
            header.next_header,
            protocol::MOBILITY | protocol::DESTINATION_OPTIONS | protocol::ROUTING | protocol::ICMPV6
        );
        if !is_message || !self.is_own(&header) {
            return self.data_path.forwarder.drop(TunnelDrop::UpperLayer);
        }
        self.deliver(at, &header, None, buffer, false)
    }

    /// Returns whether a packet from the tunnel device is for the local address of a tunnel or for a control
    /// address of this station. All other packets are for hosts behind the station.
    fn is_own(&self, header: &Header) -> bool {
        let to_agent = self.roles.agent.as_ref().is_some_and(|agent| {
            agent.machine.config().address == header.destination
                || agent.machine.anycast_addresses().contains(&header.destination)
        });
        let to_router = self.roles.router.as_ref().is_some_and(|router| {
            let config = router.machine.config();
            router.is_home_agent(header.source)
                && (header.destination == config.home_address
                    || self.data_path.forwarder.has_tunnel(header.destination, header.source))
        });
        let straight = || self.direct.is_tunnel(header, &self.data_path.forwarder);
        to_agent || to_router || straight()
    }

    /// Handles a packet to this station itself. `outer` is its outer header in IPv4 or UDP.
    fn deliver(
        &mut self,
        at: Arrival<'_>,
        header: &Header,
        outer: Option<Outer>,
        buffer: &mut PacketBuffer,
        may_reassemble: bool,
    ) -> Verdict {
        let Arrival { now, wall, session, .. } = at;
        // For a tunnel in IPv6, the addresses of the packet are the tunnel ends.
        let tunnel = outer.unwrap_or(Outer {
            ends: (header.destination.into(), header.source.into()),
            traffic_class: header.traffic_class,
        });
        if matches!(header.next_header, protocol::IPV6 | protocol::IPV4) {
            return self.decapsulate(at, tunnel, None, HEADER_LEN, buffer);
        }
        let extensions = match Extensions::parse(buffer.as_slice()) {
            Ok(extensions) => extensions,
            Err(error) => {
                if let Some(problem) = error.parameter_problem(HEADER_LEN)
                    && outer.is_none()
                {
                    self.data_path.forwarder.error(now, header.destination, problem, buffer.as_slice());
                }
                return self.data_path.forwarder.drop(TunnelDrop::Malformed);
            }
        };
        if let Some(fragment) = extensions.fragment {
            if !may_reassemble || header.next_header != protocol::FRAGMENT {
                return self.data_path.forwarder.drop(TunnelDrop::Fragment);
            }
            let payload = buffer.as_slice().get(extensions.upper_layer_offset..).unwrap_or_default();
            let stranger = !self.data_path.forwarder.has_tunnel(header.destination, header.source);
            return match self.data_path.reassembler.handle(now, header, &fragment, payload, stranger) {
                Ok(None) => Verdict::Consumed,
                Ok(Some(whole)) => {
                    buffer.copy_from(&whole);
                    match Header::parse(buffer.as_slice()) {
                        Ok(header) => self.deliver(at, &header, None, buffer, false),
                        Err(_) => self.data_path.forwarder.drop(TunnelDrop::Malformed),
                    }
                }
                Err(_) => self.data_path.forwarder.drop(TunnelDrop::Fragment),
            };
        }
        match extensions.protocol {
            protocol::IPV6 | protocol::IPV4 => {
                self.decapsulate(at, tunnel, extensions.sequence, extensions.upper_layer_offset, buffer)
            }
            protocol::MOBILITY => {
                let Some(message) = MobilityMessage::new(buffer.as_slice(), header, &extensions) else {
                    return self.data_path.forwarder.drop(TunnelDrop::Malformed);
                };
                let message = match outer {
                    Some(Outer { ends: (local, remote), .. }) => message.inside_tunnel(local, remote),
                    None => message,
                };
                self.mobility(now, wall, MobilityMessage { session, ..message })
            }
            _ if outer.is_some() => self.data_path.forwarder.drop(TunnelDrop::UpperLayer),
            _ => self.upper_layer(now, wall, header, &extensions, buffer),
        }
    }

    fn decapsulate(
        &mut self,
        at: Arrival<'_>,
        outer: Outer,
        sequence: Option<u32>,
        offset: usize,
        buffer: &mut PacketBuffer,
    ) -> Verdict {
        let Arrival { now, in_range, session, .. } = at;
        let Outer { ends, traffic_class } = outer;
        if let Some(agent) = &self.roles.agent
            && agent.machine.is_peer(ends.1)
            && ends.0 == agent.machine.config().address
            && session.is_none()
        {
            let peer = |remote| agent.machine.is_peer(remote);
            return self.data_path.forwarder.relay(now, ends, traffic_class, offset, buffer, peer);
        }
        let forwarder = &mut self.data_path.forwarder;
        match forwarder.decapsulate_from(session, ends, traffic_class, sequence, offset, buffer) {
            Ok(()) => match self.is_for_this_station(now, in_range, ends, buffer.as_slice()) {
                true => Verdict::Consumed,
                false => Verdict::Forward,
            },
            Err((reason, inner)) => {
                if let (TunnelDrop::OuterSource, Some(inner), Some(agent)) =
                    (reason, inner, &mut self.roles.agent)
                {
                    let machine = &mut agent.machine;
                    if ends.1.ipv6().is_none() {
                        machine.handle_unbound(now, ends.0, ends.1, inner.source);
                    } else if machine.misses_binding(ends.1, inner.source).is_some() {
                        // RFC 6275 10.4.5: drop the packet. 9.3.3 demands a Binding Error only for a Home
                        // Address option. So answer like a machine without such a tunnel (RFC 4443 3.1).
                        let no_tunnel = ErrorMessage::DestinationUnreachable { code: 4 };
                        let address = machine.config().address;
                        self.data_path.forwarder.error(now, address, no_tunnel, buffer.as_slice());
                    }
                }
                self.data_path.forwarder.drop(reason)
            }
        }
    }

    /// Handles a packet out of a tunnel if it is a test or an answer for this station. Returns whether it was
    /// one.
    fn is_for_this_station(&mut self, now: Time, in_range: InRange<'_>, ends: Ends, inner: &[u8]) -> bool {
        self.neighbours.as_mut().is_some_and(|neighbours| neighbours.is_prefix_test(now, in_range, inner))
            || self.direct.is_test(now, ends, inner, &self.data_path.forwarder)
            || self.answers_care_of_test(ends, inner)
            || is_probe_answer(&mut self.roles, &mut self.data_path.path_mtus, now, ends, inner)
    }

    /// Answers the home agent's test of a care-of address, through the tunnel of the test. If the kernel
    /// answered it, a firewall on board could stop all packets to the mobile network. Larger Echo Requests go
    /// to the kernel.
    fn answers_care_of_test(&mut self, ends: Ends, inner: &[u8]) -> bool {
        if inner.len() != CARE_OF_TEST_LEN || inner.get(6) != Some(&protocol::ICMPV6) {
            return false;
        }
        let (Some(router), Ok(header)) = (&self.roles.router, Header::parse(inner)) else { return false };
        if header.destination != router.machine.config().home_address || !router.is_home_agent(header.source)
        {
            return false;
        }
        let Some(reply) = icmpv6::echo_reply(inner) else { return false };
        self.data_path.forwarder.send(ends, &reply);
        true
    }

    pub(super) fn mobility(&mut self, now: Time, wall: WallTime, message: MobilityMessage<'_>) -> Verdict {
        *self.messages.received.entry(message_name(message.octets())).or_default() += 1;
        let MobilityMessage { source, destination, .. } = message;
        let for_agent = |agent: &&mut Agent| agent.machine.config().address == destination;
        let result = match (self.roles.agent.as_mut().filter(for_agent), &mut self.roles.router) {
            (Some(agent), _) => agent.machine.handle_message(now, wall, message),
            (None, Some(router)) => match router.agents.mobile_router_of(source) {
                Some(beside) if router.machine.config().home_agent != source => {
                    beside.handle_message(now, wall, message)
                }
                _ => router.machine.handle_message(now, wall, message),
            },
            (None, None) => Err(MobilityDrop::WrongParty),
        };
        self.messages.verdict(result)
    }

    /// Handles a packet to the home agents' anycast address (RFC 6275 10.5): only discovery requests are
    /// accepted.
    fn discovery(&mut self, now: Time, header: &Header, extensions: &Extensions, packet: &[u8]) -> Verdict {
        let message = packet.get(extensions.upper_layer_offset..).unwrap_or_default();
        let Some(agent) = &mut self.roles.agent else {
            return self.data_path.forwarder.drop(TunnelDrop::UpperLayer);
        };
        if extensions.protocol != protocol::ICMPV6 || message.first() != Some(&icmpv6::types::DHAAD_REQUEST) {
            return self.data_path.forwarder.drop(TunnelDrop::UpperLayer);
        }
        *self.messages.received.entry("home_agent_discovery_request").or_default() += 1;
        let result = agent.machine.handle_discovery(now, header.source, header.destination, message);
        self.messages.verdict(result)
    }

    /// Handles a Mobile Prefix Solicitation. Returns `None` for another message, or if the node has no
    /// binding; the caller then answers as for any other packet.
    fn prefix_solicitation(
        &mut self,
        now: Time,
        header: &Header,
        extensions: &Extensions,
        packet: &[u8],
    ) -> Option<Verdict> {
        let message = packet.get(extensions.upper_layer_offset..).unwrap_or_default();
        let kind = (extensions.protocol == protocol::ICMPV6).then(|| message.first()).flatten();
        if kind != Some(&icmpv6::types::MOBILE_PREFIX_SOLICITATION) {
            return None;
        }
        let (agent, home_address) = (self.roles.agent.as_mut()?, extensions.home_address?);
        *self.messages.received.entry("mobile_prefix_solicitation").or_default() += 1;
        let result = agent.machine.handle_prefix_solicitation(now, header.source, home_address, message);
        let bound = result != Err(MobilityDrop::WrongParty);
        let verdict = self.messages.verdict(result);
        bound.then_some(verdict)
    }

    /// Returns the tunnel from which a packet to this station came. `None` if the data path has decapsulated
    /// it and does not say.
    fn came_through(&self, header: &Header) -> Option<Ends> {
        let is_router = |router: &&super::Router| router.machine.config().home_address == header.destination;
        match self.roles.router.as_ref().filter(is_router) {
            Some(router) => {
                let in_use = router.machine.paths().into_iter().find(|path| path.may_transmit)?;
                Some((in_use.local, in_use.remote))
            }
            None => self.data_path.forwarder.tunnel_towards(header.source).map(|(ends, _)| ends),
        }
    }

    /// Returns whether a packet is a node's answer to a path MTU probe outside the tunnel. A node may treat
    /// the home agent as a correspondent node with a binding. The node then answers from its care-of address
    /// with a Home Address option (RFC 6275 11.3.1). RFC 8899 only requires that an answer identifies the
    /// probe that has arrived.
    fn is_probe_answer_of_correspondent(
        &mut self,
        now: Time,
        header: &Header,
        extensions: &Extensions,
        packet: &[u8],
    ) -> bool {
        let (Some(home_address), Some(agent)) = (extensions.home_address, &self.roles.agent) else {
            return false;
        };
        let message = packet.get(extensions.upper_layer_offset..).unwrap_or_default();
        if extensions.protocol != protocol::ICMPV6 || message.first() != Some(&icmpv6::types::ECHO_REPLY) {
            return false;
        }
        // RFC 6275 9.3.1: the Home Address option counts only if a binding to that care-of address exists.
        let sender: Endpoint = header.source.into();
        if !agent.machine.bindings().bindings_of(home_address).any(|bound| bound.care_of_address == sender)
            || icmpv6::verify_checksum(home_address, header.destination, message).is_err()
        {
            return false;
        }
        let Ok(payload_length) = u16::try_from(message.len()) else { return false };
        // Upper layers treat the address in the Home Address option as the source.
        let seen = Header { source: home_address, next_header: protocol::ICMPV6, payload_length, ..*header };
        let ends = (header.destination.into(), sender);
        is_probe_answer(
            &mut self.roles,
            &mut self.data_path.path_mtus,
            now,
            ends,
            &[&seen.emit(), message].concat(),
        )
    }

    /// Handles a packet of another protocol: to the home agent's address, or from the home agent to the home
    /// address.
    fn upper_layer(
        &mut self,
        now: Time,
        wall: WallTime,
        header: &Header,
        extensions: &Extensions,
        buffer: &mut PacketBuffer,
    ) -> Verdict {
        let packet = buffer.as_slice();
        let is_anycast = |agent: &Agent| agent.machine.anycast_addresses().contains(&header.destination);
        if self.roles.agent.as_ref().is_some_and(is_anycast) {
            return self.discovery(now, header, extensions, packet);
        }
        if let Some(verdict) = self.prefix_solicitation(now, header, extensions, packet) {
            return verdict;
        }
        if extensions.protocol == protocol::ICMPV6
            && let Some(ends) = self.came_through(header)
            && is_probe_answer(&mut self.roles, &mut self.data_path.path_mtus, now, ends, packet)
        {
            return Verdict::Consumed;
        }
        if self.is_probe_answer_of_correspondent(now, header, extensions, packet) {
            return Verdict::Consumed;
        }
        if self.roles.router.as_ref().is_some_and(|r| r.machine.config().home_address == header.destination) {
            // The kernel has this address, so the kernel gets the packet.
            return Verdict::Forward;
        }
        if let (Some(home_address), Some(agent)) = (extensions.home_address, &mut self.roles.agent) {
            // RFC 6275 9.3.1, 9.3.2: the home agent is a correspondent node of a node with a binding; it
            // answers only pings.
            let sender: Endpoint = header.source.into();
            let message = packet.get(extensions.upper_layer_offset..).unwrap_or_default();
            if extensions.protocol == protocol::ICMPV6
                && agent
                    .machine
                    .bindings()
                    .bindings_of(home_address)
                    .any(|bound| bound.care_of_address == sender)
                && let Some(reply) = icmpv6::echo_reply_to_home(header, message, home_address)
            {
                buffer.copy_from(&reply);
                return Verdict::Forward;
            }
            // RFC 6275 9.3.1: the packet has a Home Address option without a matching binding.
            agent.machine.handle_unbound(now, header.destination.into(), header.source.into(), home_address);
            return self.data_path.forwarder.drop(TunnelDrop::UpperLayer);
        }
        if extensions.protocol == protocol::ICMPV6 {
            if let Some(reply) = icmpv6::echo_reply(packet) {
                if self.data_path.answer_in_fragments(&reply) {
                    return Verdict::Consumed;
                }
                buffer.copy_from(&reply);
                return Verdict::Forward;
            }
            let message = packet.get(extensions.upper_layer_offset..).unwrap_or_default();
            if icmpv6::verify_checksum(header.source, header.destination, message).is_ok()
                && let Ok((error, invoking)) = icmpv6::parse_error(message)
                && self.handle_error(now, wall, header.source, header.destination, error, invoking)
            {
                return Verdict::Consumed;
            }
        } else if matches!(extensions.protocol, protocol::TCP | protocol::UDP) {
            let closed = ErrorMessage::DestinationUnreachable { code: 4 };
            self.data_path.forwarder.error(now, header.destination, closed, packet);
        }
        self.data_path.forwarder.drop(TunnelDrop::UpperLayer)
    }

    /// Handles an ICMPv6 error about a packet that `local` sent. Returns whether the error was about a
    /// tunnel.
    pub(super) fn handle_error(
        &mut self,
        now: Time,
        wall: WallTime,
        source: Ipv6Addr,
        local: Ipv6Addr,
        error: ErrorMessage,
        invoking: &[u8],
    ) -> bool {
        match self.data_path.forwarder.handle_error(now, source, local, error, invoking) {
            ErrorOutcome::Foreign => return false,
            ErrorOutcome::Handled => {}
            ErrorOutcome::PathMtu(ends, mtu) => self.data_path.path_mtus.handle_too_big(now, ends, mtu),
            ErrorOutcome::Broken(ends) => self.direct.handle_broken(now, ends),
            ErrorOutcome::Refused(_) => {
                if let Some(router) = &mut self.roles.router
                    && let Err(reason) = router.machine.handle_tunnel_error(now, wall, source)
                {
                    *self.messages.dropped.entry(reason).or_default() += 1;
                }
            }
        }
        true
    }

    /// Handles a message that the kernel's IPsec has verified.
    pub fn handle_protected(
        &mut self,
        now: Time,
        wall: WallTime,
        ends: (Ipv6Addr, Ipv6Addr),
        label: u32,
        message: Vec<u8>,
    ) {
        let protection = self.protection.as_mut();
        let opened = protection.and_then(|protection| protection.open(&self.roles, ends, label, message));
        let Some(packet) = opened else {
            self.messages.verdict(Err(MobilityDrop::NotProtected));
            return;
        };
        if let (Ok(header), Ok(extensions)) = (Header::parse(&packet), Extensions::parse(&packet))
            && let Some(message) = MobilityMessage::new(&packet, &header, &extensions)
        {
            self.mobility(now, wall, message.under_ipsec());
        }
    }
}

/// Returns the counter name of a Mobility Header message.
fn message_name(octets: &[u8]) -> &'static str {
    match octets.get(2).copied() {
        Some(message_type::BINDING_REFRESH_REQUEST) => "binding_refresh_request",
        Some(message_type::BINDING_UPDATE) => "binding_update",
        Some(message_type::BINDING_ACKNOWLEDGEMENT) => "binding_acknowledgement",
        Some(message_type::BINDING_ERROR) => "binding_error",
        Some(message_type::HOME_AGENT_SWITCH) => "home_agent_switch",
        Some(message_type::HEARTBEAT) => "heartbeat",
        Some(message_type::BINDING_REVOCATION) => "binding_revocation",
        _ => "other",
    }
}
