//! Packets from the tunnel device or a socket, and the parts of the station that receive them.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use carnet_base::{DropReason, Endpoint, Time, WallTime};
use carnet_mobility::home_agent::CARE_OF_TEST_LEN;
use carnet_mobility::{MobilityDrop, MobilityMessage};
use carnet_wire::extension::ExtensionHeaders;
use carnet_wire::icmpv6::{self, Icmpv6ErrorMessage};
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wire::mobility::message_type;

use super::path_mtus::is_probe_answer;
use super::{HomeAgentRole, Nemo};
use crate::drop_reason::TunnelDropReason;
use crate::forwarding::forwarder::{ForwardingVerdict, IcmpErrorOutcome};
use crate::forwarding::inner_packet;
use crate::forwarding::packet::PacketBuffer;
use crate::forwarding::path_mtu::TunnelEnds;
use crate::input::{OptionalStations, PacketArrival};

/// Outer header of a packet that arrived inside IPv4 or UDP.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReceivedOuterHeader {
    /// Local and remote end of the tunnel.
    ends: TunnelEnds,
    /// DSCP and ECN of the outer header, as one octet.
    traffic_class: u8,
}

/// Counters of the messages of Mobile IPv6.
#[derive(Debug, Default)]
pub(crate) struct MessageCounters {
    pub(crate) received_by_name: BTreeMap<&'static str, u64>,
    pub(crate) dropped_messages: BTreeMap<MobilityDrop, u64>,
}

impl MessageCounters {
    /// Returns the verdict on a Mobility Header message. If the station drops the message, counts the reason.
    pub(super) fn verdict_on_message(&mut self, result: Result<(), MobilityDrop>) -> ForwardingVerdict {
        match result {
            Ok(()) => ForwardingVerdict::Consumed,
            Err(reason) => {
                *self.dropped_messages.entry(reason).or_default() += 1;
                ForwardingVerdict::Dropped(reason.name())
            }
        }
    }
}

impl Nemo {
    /// Handles a packet from the tunnel device, without allocation for common packets. On
    /// [`ForwardingVerdict::Forward`] the buffer holds the packet to write back. On
    /// [`ForwardingVerdict::Encapsulate`] it holds the packet to send by a socket. Other outputs may wait in
    /// addition.
    pub fn handle_packet(&mut self, at: PacketArrival<'_>, buffer: &mut PacketBuffer) -> ForwardingVerdict {
        let PacketArrival { now, wall_time: wall, .. } = at;
        let Ok((header, length)) = inner_packet::parse(buffer.as_slice()) else {
            return self.data_path.forwarder.count_drop(TunnelDropReason::Malformed);
        };
        buffer.strip_front(0, length);
        if inner_packet::is_ipv4(buffer.as_slice()) {
            return self.encapsulate_from_host(now, wall, &header, buffer);
        }
        let (roles, data_path, messages) = (&self.roles, &mut self.data_path, &mut self.message_counters);
        if let Some(protection) = &mut self.ipsec_protection
            && let Some(verdict) =
                protection.process_tunnel_device_packet(now, roles, data_path, messages, &header, buffer)
        {
            return verdict;
        }
        if self.is_to_this_station(&header) {
            return self.deliver_to_station(at, &header, None, buffer, true);
        }
        if self.direct_routes.is_direct_route_message(&header, self.roles.router_role.as_ref()) {
            return self.direct_routes.handle_message(now, None, buffer.as_slice());
        }
        if let Some(direct) = &mut self.direct_routes.state_machine {
            direct.handle_used_destination(now, header.destination);
        }
        self.encapsulate_from_host(now, wall, &header, buffer)
    }

    /// Encapsulates a packet of a host behind this station. If the packet has no tunnel, the mobile router
    /// tries to register sooner.
    fn encapsulate_from_host(
        &mut self,
        now: Time,
        wall: WallTime,
        header: &Header,
        buffer: &mut PacketBuffer,
    ) -> ForwardingVerdict {
        let verdict = self.data_path.forwarder.encapsulate(now, header, buffer);
        if verdict == ForwardingVerdict::from(TunnelDropReason::NotRegistered)
            && let Some(router) = &mut self.roles.router_role
        {
            router.state_machine.handle_waiting_packet(now, wall);
        }
        verdict
    }

    /// Handles a packet that arrived at `ends.0` from `ends.1` inside IPv4 or UDP. `traffic_class` is the
    /// outer header's octet with DSCP and ECN. The packet is for this station, such as a Mobility Header
    /// message (RFC 5555 4.1), or comes out of a tunnel.
    pub fn handle_datagram(
        &mut self,
        at: PacketArrival<'_>,
        ends: TunnelEnds,
        traffic_class: u8,
        buffer: &mut PacketBuffer,
    ) -> ForwardingVerdict {
        let Ok((header, length)) = inner_packet::parse(buffer.as_slice()) else {
            return self.data_path.forwarder.count_drop(TunnelDropReason::Malformed);
        };
        buffer.strip_front(0, length);
        let outer = ReceivedOuterHeader { ends, traffic_class };
        if inner_packet::is_ipv4(buffer.as_slice()) {
            return self.decapsulate(at, outer, None, 0, buffer);
        }
        let to_agent = self
            .roles
            .agent_role
            .as_ref()
            .is_some_and(|a| a.state_machine.config().address == header.destination);
        let to_router = self.roles.router_role.as_ref().is_some_and(|router| {
            let config = router.state_machine.config();
            header.destination == config.home_address && router.is_home_agent(header.source)
        });
        let control = matches!(header.next_header, protocol::MOBILITY | protocol::DESTINATION_OPTIONS);
        match control && (to_agent || to_router) {
            true => self.deliver_to_station(at, &header, Some(outer), buffer, false),
            false => self.decapsulate(at, outer, None, 0, buffer),
        }
    }

    /// Handles a packet that came out of an encrypted session, `at.session_peer`. `ends` are the tunnel ends
    /// by the header of the datagram. Inside IPv6, a packet between the addresses of these ends is a message
    /// of Mobile IPv6. Every other packet is an inner packet of the tunnel.
    pub fn handle_session_packet(
        &mut self,
        at: PacketArrival<'_>,
        ends: TunnelEnds,
        traffic_class: u8,
        buffer: &mut PacketBuffer,
    ) -> ForwardingVerdict {
        let (Endpoint::Ipv6(local), Endpoint::Ipv6(remote)) = ends else {
            return self.handle_datagram(at, ends, traffic_class, buffer);
        };
        let Ok((header, length)) = inner_packet::parse(buffer.as_slice()) else {
            return self.data_path.forwarder.count_drop(TunnelDropReason::Malformed);
        };
        buffer.strip_front(0, length);
        if inner_packet::is_ipv4(buffer.as_slice()) || (header.source, header.destination) != (remote, local)
        {
            let outer = ReceivedOuterHeader { ends, traffic_class };
            return self.decapsulate(at, outer, None, 0, buffer);
        }
        if self.direct_routes.is_direct_route_message(&header, self.roles.router_role.as_ref()) {
            return self.direct_routes.handle_message(at.now, at.session_peer, buffer.as_slice());
        }
        // Fragments do not occur here: the sender of a session fragments the datagrams, not the packets
        // inside.
        let is_message = matches!(
            header.next_header,
            protocol::MOBILITY | protocol::DESTINATION_OPTIONS | protocol::ROUTING | protocol::ICMPV6
        );
        if !is_message || !self.is_to_this_station(&header) {
            return self.data_path.forwarder.count_drop(TunnelDropReason::UpperLayer);
        }
        self.deliver_to_station(at, &header, None, buffer, false)
    }

    /// Returns whether a packet from the tunnel device is for the local address of a tunnel or for a control
    /// address of this station. All other packets are for hosts behind the station.
    fn is_to_this_station(&self, header: &Header) -> bool {
        let to_agent = self.roles.agent_role.as_ref().is_some_and(|agent| {
            agent.state_machine.config().address == header.destination
                || agent.state_machine.anycast_addresses().contains(&header.destination)
        });
        let to_router = self.roles.router_role.as_ref().is_some_and(|router| {
            let config = router.state_machine.config();
            router.is_home_agent(header.source)
                && (header.destination == config.home_address
                    || self.data_path.forwarder.has_tunnel(header.destination, header.source))
        });
        let straight = || self.direct_routes.came_through_direct_tunnel(header, &self.data_path.forwarder);
        to_agent || to_router || straight()
    }

    /// Handles a packet to this station itself. `outer` is its outer header in IPv4 or UDP.
    fn deliver_to_station(
        &mut self,
        at: PacketArrival<'_>,
        header: &Header,
        outer: Option<ReceivedOuterHeader>,
        buffer: &mut PacketBuffer,
        may_reassemble: bool,
    ) -> ForwardingVerdict {
        let PacketArrival { now, wall_time: wall, session_peer: session, .. } = at;
        // For a tunnel in IPv6, the addresses of the packet are the tunnel ends.
        let tunnel = outer.unwrap_or(ReceivedOuterHeader {
            ends: (header.destination.into(), header.source.into()),
            traffic_class: header.traffic_class,
        });
        if matches!(header.next_header, protocol::IPV6 | protocol::IPV4) {
            return self.decapsulate(at, tunnel, None, HEADER_LEN, buffer);
        }
        let extensions = match ExtensionHeaders::parse(buffer.as_slice()) {
            Ok(extensions) => extensions,
            Err(error) => {
                if let Some(problem) = error.parameter_problem(HEADER_LEN)
                    && outer.is_none()
                {
                    self.data_path.forwarder.send_error(now, header.destination, problem, buffer.as_slice());
                }
                return self.data_path.forwarder.count_drop(TunnelDropReason::Malformed);
            }
        };
        if let Some(fragment) = extensions.fragment {
            if !may_reassemble || header.next_header != protocol::FRAGMENT {
                return self.data_path.forwarder.count_drop(TunnelDropReason::Fragment);
            }
            let payload = buffer.as_slice().get(extensions.upper_layer_offset..).unwrap_or_default();
            let stranger = !self.data_path.forwarder.has_tunnel(header.destination, header.source);
            return match self.data_path.reassembler.handle_fragment(now, header, &fragment, payload, stranger)
            {
                Ok(None) => ForwardingVerdict::Consumed,
                Ok(Some(whole)) => {
                    buffer.copy_from(&whole);
                    match Header::parse(buffer.as_slice()) {
                        Ok(header) => self.deliver_to_station(at, &header, None, buffer, false),
                        Err(_) => self.data_path.forwarder.count_drop(TunnelDropReason::Malformed),
                    }
                }
                Err(_) => self.data_path.forwarder.count_drop(TunnelDropReason::Fragment),
            };
        }
        match extensions.protocol {
            protocol::IPV6 | protocol::IPV4 => {
                self.decapsulate(at, tunnel, extensions.sequence, extensions.upper_layer_offset, buffer)
            }
            protocol::MOBILITY => {
                let Some(message) = MobilityMessage::new(buffer.as_slice(), header, &extensions) else {
                    return self.data_path.forwarder.count_drop(TunnelDropReason::Malformed);
                };
                let message = match outer {
                    Some(ReceivedOuterHeader { ends: (local, remote), .. }) => {
                        message.inside_tunnel(local, remote)
                    }
                    None => message,
                };
                self.handle_mobility_message(now, wall, MobilityMessage { session, ..message })
            }
            _ if outer.is_some() => self.data_path.forwarder.count_drop(TunnelDropReason::UpperLayer),
            _ => self.handle_upper_layer(now, wall, header, &extensions, buffer),
        }
    }

    fn decapsulate(
        &mut self,
        at: PacketArrival<'_>,
        outer: ReceivedOuterHeader,
        sequence: Option<u32>,
        offset: usize,
        buffer: &mut PacketBuffer,
    ) -> ForwardingVerdict {
        let PacketArrival { now, stations_in_range: in_range, session_peer: session, .. } = at;
        let ReceivedOuterHeader { ends, traffic_class } = outer;
        if let Some(agent) = &self.roles.agent_role
            && agent.state_machine.is_peer_home_agent(ends.1)
            && ends.0 == agent.state_machine.config().address
            && session.is_none()
        {
            let peer = |remote| agent.state_machine.is_peer_home_agent(remote);
            return self.data_path.forwarder.relay_packet(now, ends, traffic_class, offset, buffer, peer);
        }
        let forwarder = &mut self.data_path.forwarder;
        match forwarder.decapsulate_from(session, ends, traffic_class, sequence, offset, buffer) {
            Ok(()) => match self.handle_packet_for_station(now, in_range, ends, buffer.as_slice()) {
                true => ForwardingVerdict::Consumed,
                false => ForwardingVerdict::Forward,
            },
            Err((reason, inner)) => {
                if let (TunnelDropReason::OuterSource, Some(inner), Some(agent)) =
                    (reason, inner, &mut self.roles.agent_role)
                {
                    let machine = &mut agent.state_machine;
                    if ends.1.ipv6().is_none() {
                        machine.answer_unbound_packet(now, ends.0, ends.1, inner.source);
                    } else if machine.home_address_without_binding(ends.1, inner.source).is_some() {
                        // RFC 6275 10.4.5: drop the packet. 9.3.3 demands a Binding Error only for a Home
                        // Address option. So answer like a machine without such a tunnel (RFC 4443 3.1).
                        let no_tunnel = Icmpv6ErrorMessage::DestinationUnreachable { code: 4 };
                        let address = machine.config().address;
                        self.data_path.forwarder.send_error(now, address, no_tunnel, buffer.as_slice());
                    }
                }
                self.data_path.forwarder.count_drop(reason)
            }
        }
    }

    /// Handles a packet out of a tunnel if it is a test or an answer for this station. Returns whether the
    /// function has handled the packet.
    fn handle_packet_for_station(
        &mut self,
        now: Time,
        in_range: OptionalStations<'_>,
        ends: TunnelEnds,
        inner: &[u8],
    ) -> bool {
        self.neighbour_routes
            .as_mut()
            .is_some_and(|neighbours| neighbours.answer_prefix_test(now, in_range, inner))
            || self.direct_routes.handle_prefix_test(now, ends, inner, &self.data_path.forwarder)
            || self.answers_care_of_test(ends, inner)
            || is_probe_answer(&mut self.roles, &mut self.data_path.path_mtus, now, ends, inner)
    }

    /// Answers the home agent's test of a care-of address, through the tunnel of the test. If the kernel
    /// answered it, a firewall on board could stop all packets to the mobile network. Larger Echo Requests go
    /// to the kernel.
    fn answers_care_of_test(&mut self, ends: TunnelEnds, inner: &[u8]) -> bool {
        if inner.len() != CARE_OF_TEST_LEN || inner.get(6) != Some(&protocol::ICMPV6) {
            return false;
        }
        let (Some(router), Ok(header)) = (&self.roles.router_role, Header::parse(inner)) else {
            return false;
        };
        if header.destination != router.state_machine.config().home_address
            || !router.is_home_agent(header.source)
        {
            return false;
        }
        let Some(reply) = icmpv6::answer_echo_request(inner) else { return false };
        self.data_path.forwarder.send_own_packet(ends, &reply);
        true
    }

    pub(super) fn handle_mobility_message(
        &mut self,
        now: Time,
        wall: WallTime,
        message: MobilityMessage<'_>,
    ) -> ForwardingVerdict {
        *self
            .message_counters
            .received_by_name
            .entry(mobility_message_name(message.octets()))
            .or_default() += 1;
        let MobilityMessage { source, destination, .. } = message;
        let for_agent = |agent: &&mut HomeAgentRole| agent.state_machine.config().address == destination;
        let result = match (self.roles.agent_role.as_mut().filter(for_agent), &mut self.roles.router_role) {
            (Some(agent), _) => agent.state_machine.handle_message(now, wall, message),
            (None, Some(router)) => match router.home_agent_selection.mobile_router_of(source) {
                Some(beside) if router.state_machine.config().home_agent != source => {
                    beside.handle_message(now, wall, message)
                }
                _ => router.state_machine.handle_message(now, wall, message),
            },
            (None, None) => Err(MobilityDrop::WrongParty),
        };
        self.message_counters.verdict_on_message(result)
    }

    /// Handles a packet to the home agents' anycast address (RFC 6275 10.5): only discovery requests are
    /// accepted.
    fn handle_home_agent_discovery(
        &mut self,
        now: Time,
        header: &Header,
        extensions: &ExtensionHeaders,
        packet: &[u8],
    ) -> ForwardingVerdict {
        let message = packet.get(extensions.upper_layer_offset..).unwrap_or_default();
        let Some(agent) = &mut self.roles.agent_role else {
            return self.data_path.forwarder.count_drop(TunnelDropReason::UpperLayer);
        };
        if extensions.protocol != protocol::ICMPV6
            || message.first() != Some(&icmpv6::message_type::DHAAD_REQUEST)
        {
            return self.data_path.forwarder.count_drop(TunnelDropReason::UpperLayer);
        }
        *self.message_counters.received_by_name.entry("home_agent_discovery_request").or_default() += 1;
        let result =
            agent.state_machine.handle_discovery_request(now, header.source, header.destination, message);
        self.message_counters.verdict_on_message(result)
    }

    /// Handles a Mobile Prefix Solicitation. Returns `None` for another message, or if the node has no
    /// binding; the caller then answers as for any other packet.
    fn handle_prefix_solicitation(
        &mut self,
        now: Time,
        header: &Header,
        extensions: &ExtensionHeaders,
        packet: &[u8],
    ) -> Option<ForwardingVerdict> {
        let message = packet.get(extensions.upper_layer_offset..).unwrap_or_default();
        let kind = (extensions.protocol == protocol::ICMPV6).then(|| message.first()).flatten();
        if kind != Some(&icmpv6::message_type::MOBILE_PREFIX_SOLICITATION) {
            return None;
        }
        let (agent, home_address) = (self.roles.agent_role.as_mut()?, extensions.home_address?);
        *self.message_counters.received_by_name.entry("mobile_prefix_solicitation").or_default() += 1;
        let result =
            agent.state_machine.handle_prefix_solicitation(now, header.source, home_address, message);
        let bound = result != Err(MobilityDrop::WrongParty);
        let verdict = self.message_counters.verdict_on_message(result);
        bound.then_some(verdict)
    }

    /// Returns the tunnel from which a packet to this station came, as far as its addresses show it. The data
    /// path has decapsulated the packet, and does not name the tunnel. `None` if no tunnel fits.
    fn tunnel_of_arrival(&self, header: &Header) -> Option<TunnelEnds> {
        let is_router =
            |router: &&super::RouterRole| router.state_machine.config().home_address == header.destination;
        match self.roles.router_role.as_ref().filter(is_router) {
            Some(router) => {
                let in_use = router.state_machine.paths().into_iter().find(|path| path.may_transmit)?;
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
        extensions: &ExtensionHeaders,
        packet: &[u8],
    ) -> bool {
        let (Some(home_address), Some(agent)) = (extensions.home_address, &self.roles.agent_role) else {
            return false;
        };
        let message = packet.get(extensions.upper_layer_offset..).unwrap_or_default();
        if extensions.protocol != protocol::ICMPV6
            || message.first() != Some(&icmpv6::message_type::ECHO_REPLY)
        {
            return false;
        }
        // RFC 6275 9.3.1: the Home Address option counts only if a binding to that care-of address exists.
        let sender: Endpoint = header.source.into();
        if !agent
            .state_machine
            .bindings()
            .bindings_of(home_address)
            .any(|bound| bound.care_of_address == sender)
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

    /// Handles a packet of an upper-layer protocol, such as ICMPv6: to the home agent's address, or from the
    /// home agent to the home address.
    fn handle_upper_layer(
        &mut self,
        now: Time,
        wall: WallTime,
        header: &Header,
        extensions: &ExtensionHeaders,
        buffer: &mut PacketBuffer,
    ) -> ForwardingVerdict {
        let packet = buffer.as_slice();
        let is_anycast =
            |agent: &HomeAgentRole| agent.state_machine.anycast_addresses().contains(&header.destination);
        if self.roles.agent_role.as_ref().is_some_and(is_anycast) {
            return self.handle_home_agent_discovery(now, header, extensions, packet);
        }
        if let Some(verdict) = self.handle_prefix_solicitation(now, header, extensions, packet) {
            return verdict;
        }
        if extensions.protocol == protocol::ICMPV6
            && let Some(ends) = self.tunnel_of_arrival(header)
            && is_probe_answer(&mut self.roles, &mut self.data_path.path_mtus, now, ends, packet)
        {
            return ForwardingVerdict::Consumed;
        }
        if self.is_probe_answer_of_correspondent(now, header, extensions, packet) {
            return ForwardingVerdict::Consumed;
        }
        if self
            .roles
            .router_role
            .as_ref()
            .is_some_and(|r| r.state_machine.config().home_address == header.destination)
        {
            // The kernel has the home address, so the kernel gets the packet.
            return ForwardingVerdict::Forward;
        }
        if let (Some(home_address), Some(agent)) = (extensions.home_address, &mut self.roles.agent_role) {
            // RFC 6275 9.3.1, 9.3.2: the home agent is a correspondent node of a node with a binding; it
            // answers only pings.
            let sender: Endpoint = header.source.into();
            let message = packet.get(extensions.upper_layer_offset..).unwrap_or_default();
            if extensions.protocol == protocol::ICMPV6
                && agent
                    .state_machine
                    .bindings()
                    .bindings_of(home_address)
                    .any(|bound| bound.care_of_address == sender)
                && let Some(reply) = icmpv6::emit_echo_reply_to_home_address(header, message, home_address)
            {
                buffer.copy_from(&reply);
                return ForwardingVerdict::Forward;
            }
            // RFC 6275 9.3.1: the packet has a Home Address option without a matching binding.
            agent.state_machine.answer_unbound_packet(
                now,
                header.destination.into(),
                header.source.into(),
                home_address,
            );
            return self.data_path.forwarder.count_drop(TunnelDropReason::UpperLayer);
        }
        if extensions.protocol == protocol::ICMPV6 {
            if let Some(reply) = icmpv6::answer_echo_request(packet) {
                if self.data_path.send_echo_reply_in_fragments(&reply) {
                    return ForwardingVerdict::Consumed;
                }
                buffer.copy_from(&reply);
                return ForwardingVerdict::Forward;
            }
            let message = packet.get(extensions.upper_layer_offset..).unwrap_or_default();
            if icmpv6::verify_checksum(header.source, header.destination, message).is_ok()
                && let Ok((error, invoking)) = icmpv6::parse_error(message)
                && self.handle_icmp_error(now, wall, header.source, header.destination, error, invoking)
            {
                return ForwardingVerdict::Consumed;
            }
        } else if matches!(extensions.protocol, protocol::TCP | protocol::UDP) {
            let closed = Icmpv6ErrorMessage::DestinationUnreachable { code: 4 };
            self.data_path.forwarder.send_error(now, header.destination, closed, packet);
        }
        self.data_path.forwarder.count_drop(TunnelDropReason::UpperLayer)
    }

    /// Handles an ICMPv6 error about a packet that `local` sent. Returns whether the error was about a
    /// tunnel.
    pub(super) fn handle_icmp_error(
        &mut self,
        now: Time,
        wall: WallTime,
        source: Ipv6Addr,
        local: Ipv6Addr,
        error: Icmpv6ErrorMessage,
        invoking: &[u8],
    ) -> bool {
        match self.data_path.forwarder.handle_icmp_error(now, source, local, error, invoking) {
            IcmpErrorOutcome::Foreign => return false,
            IcmpErrorOutcome::Handled => {}
            IcmpErrorOutcome::PathMtu(ends, mtu) => self.data_path.path_mtus.handle_too_big(now, ends, mtu),
            IcmpErrorOutcome::Broken(ends) => self.direct_routes.handle_broken_route(now, ends),
            IcmpErrorOutcome::Refused(_) => {
                if let Some(router) = &mut self.roles.router_role
                    && let Err(reason) = router.state_machine.handle_tunnel_error(now, wall, source)
                {
                    *self.message_counters.dropped_messages.entry(reason).or_default() += 1;
                }
            }
        }
        true
    }

    /// Handles a message that the kernel's IPsec has verified.
    pub fn handle_ipsec_message(
        &mut self,
        now: Time,
        wall: WallTime,
        ends: (Ipv6Addr, Ipv6Addr),
        label: u32,
        message: Vec<u8>,
    ) {
        let protection = self.ipsec_protection.as_mut();
        let opened = protection
            .and_then(|protection| protection.restore_packet_on_wire(&self.roles, ends, label, message));
        let Some(packet) = opened else {
            self.message_counters.verdict_on_message(Err(MobilityDrop::NotProtected));
            return;
        };
        if let (Ok(header), Ok(extensions)) = (Header::parse(&packet), ExtensionHeaders::parse(&packet))
            && let Some(message) = MobilityMessage::new(&packet, &header, &extensions)
        {
            self.handle_mobility_message(now, wall, message.under_ipsec());
        }
    }
}

/// Returns the counter name of a Mobility Header message.
fn mobility_message_name(octets: &[u8]) -> &'static str {
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
