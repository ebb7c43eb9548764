//! Mobility Header messages under IPsec (RFC 4877, RFC 3776): between the station and the kernel's security
//! associations.
//!
//! On the wire such a packet has the care-of address in its IPv6 header. The home address is in a Home
//! Address option or a type 2 routing header. But the security association of the packet is between home
//! address and home agent, so a node's kernel would exchange the two addresses before ESP. Here the station
//! exchanges them, so that the kernel needs no Mobile IPv6:
//!
//! ```text
//!   message -> raw socket -> ESP, home address <-> home agent -> carnet0 -> care-of address in -> uplink
//!   uplink -> carnet0 -> home address in -> ESP -> raw socket, which takes only ESP -> message
//! ```
//!
//! The station remembers the care-of address under a flow label, which ESP in transport mode does not change.
//! ESP does not protect the label, so the label only decides where an answer goes. A Binding Update names the
//! care-of address inside ESP (RFC 6275 11.7.1). If a packet comes back from the kernel without ESP, the
//! kernel had no security association, and the station drops the packet.
//!
//! IPsec protects all messages between a node and its home agent, with two exceptions. Heartbeats are
//! frequent, and prove only that a path works. Binding Errors go to nodes without any association.
//!
//! Left out: IPv4 care-of addresses (for them RFC 5555 has ESP inside UDP), more than one home agent, Mobile
//! Prefix Discovery under IPsec, and AH.

use std::collections::VecDeque;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Time};
use carnet_mobility::{Authentication, Event, HOP_LIMIT, MobilityDrop};
use carnet_wire::extension::{
    ExtensionHeaders, emit_home_address_options_header, emit_home_address_routing_header,
};
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wire::mobility::{ControlPacket, message_type};

use super::data_path::SlowDataPath;
use super::packets::MessageCounters;
use super::{HomeAgentRole, RouterRole, StationRoles};
use crate::drop_reason::TunnelDropReason;
use crate::forwarding::forwarder::{Forwarder, ForwardingVerdict};
use crate::forwarding::packet::PacketBuffer;
use crate::output::Output;

/// Largest number of messages that are in the kernel for IPsec at a time. Beyond it the station forgets the
/// oldest message, which its sender repeats.
const MAX_MESSAGES_IN_KERNEL: usize = 1024;
/// Least interval between warnings about a missing security association.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Care-of addresses of the messages in the kernel.
#[derive(Debug)]
pub(super) struct IpsecProtection {
    /// Flow label and care-of address of each message, at the index of the label's low bits.
    care_of_addresses: Vec<Option<(u32, Ipv6Addr)>>,
    last_label: u32,
    warning_limiter: RateLimiter,
}

impl IpsecProtection {
    fn new() -> IpsecProtection {
        IpsecProtection {
            care_of_addresses: vec![None; MAX_MESSAGES_IN_KERNEL],
            last_label: 0,
            warning_limiter: RateLimiter::new(1, WARNING_INTERVAL),
        }
    }

    /// Stores a care-of address and returns the flow label that stands for it. The label is never 0, because
    /// the kernel would replace 0.
    fn remember_care_of_address(&mut self, care_of_address: Ipv6Addr) -> u32 {
        self.last_label = if self.last_label >= 0x000f_ffff { 1 } else { self.last_label + 1 };
        let place = self.last_label as usize % MAX_MESSAGES_IN_KERNEL;
        if let Some(slot) = self.care_of_addresses.get_mut(place) {
            *slot = Some((self.last_label, care_of_address));
        }
        self.last_label
    }

    fn recall_care_of_address(&mut self, label: u32) -> Option<Ipv6Addr> {
        let slot = self.care_of_addresses.get_mut(label as usize % MAX_MESSAGES_IN_KERNEL)?;
        slot.take_if(|(known, _)| *known == label).map(|(_, care_of_address)| care_of_address)
    }

    /// Returns the state of messages under IPsec; `None` if no role's config demands IPsec. The present state
    /// `old` stays, because its messages are in the kernel.
    pub(super) fn configured_protection(
        old: Option<Box<IpsecProtection>>,
        roles: &StationRoles,
    ) -> Option<Box<IpsecProtection>> {
        let ipsec = |authentication: &Authentication| *authentication == Authentication::Ipsec;
        let agent = roles.agent_role.as_ref().map(|agent| agent.state_machine.config());
        let nodes = agent.into_iter().flat_map(|config| &config.nodes).map(|node| &node.authentication);
        let router = roles.router_role.as_ref().map(|router| &router.state_machine.config().authentication);
        nodes.chain(router).any(ipsec).then(|| old.unwrap_or_else(|| Box::new(IpsecProtection::new())))
    }

    /// Returns the output that sends a packet: through the kernel's IPsec if the packet needs protection.
    pub(super) fn output_for_packet(&mut self, roles: &StationRoles, packet: Vec<u8>) -> Output {
        let (Ok(header), Ok(extensions)) = (Header::parse(&packet), ExtensionHeaders::parse(&packet)) else {
            return Output::Packet(packet);
        };
        let message = packet.get(extensions.upper_layer_offset..).unwrap_or_default();
        let kind = message.get(2).copied();
        let in_the_clear = matches!(kind, Some(message_type::HEARTBEAT | message_type::BINDING_ERROR));
        let source = extensions.home_address.unwrap_or(header.source);
        let destination = extensions.routing_home_address.unwrap_or(header.destination);
        if extensions.protocol != protocol::MOBILITY
            || in_the_clear
            || !roles.protects_packets_between(source, destination)
        {
            return Output::Packet(packet);
        }
        // RFC 6275 11.5.5: at home, the router's message has no Home Address option, and the home agent's
        // answer has no routing header.
        let away = if roles.is_own_home_address(source) { header.source } else { header.destination };
        let label = self.remember_care_of_address(away);
        Output::Protect { source, destination, label, message: message.to_vec() }
    }

    /// Handles a packet from the tunnel device; returns `None` if the packet does not concern IPsec.
    pub(super) fn process_tunnel_device_packet(
        &mut self,
        now: Time,
        roles: &StationRoles,
        data_path: &mut SlowDataPath,
        messages: &mut MessageCounters,
        header: &Header,
        buffer: &mut PacketBuffer,
    ) -> Option<ForwardingVerdict> {
        if matches!(header.next_header, protocol::ESP | protocol::MOBILITY)
            && roles.protects_packets_between(header.source, header.destination)
        {
            return Some(match header.next_header {
                protocol::ESP => self.send_protected_packet(roles, &mut data_path.forwarder, header, buffer),
                _ => {
                    self.warn_about_missing_association(now, &mut data_path.outputs, header);
                    messages.verdict_on_message(Err(MobilityDrop::NotProtected))
                }
            });
        }
        if !matches!(header.next_header, protocol::DESTINATION_OPTIONS | protocol::ROUTING | protocol::ESP) {
            return None;
        }
        let to_agent = |agent: &HomeAgentRole| agent.state_machine.config().address == header.destination;
        let of_agent = |router: &RouterRole| router.state_machine.config().home_agent == header.source;
        if !roles.agent_role.as_ref().is_some_and(to_agent)
            && !roles.router_role.as_ref().is_some_and(of_agent)
        {
            return None;
        }
        let extensions = ExtensionHeaders::parse(buffer.as_slice()).ok()?;
        if extensions.protocol != protocol::ESP || extensions.fragment.is_some() {
            return None;
        }
        let remote = extensions.home_address.unwrap_or(header.source);
        let local = extensions.routing_home_address.unwrap_or(header.destination);
        roles.protects_packets_between(local, remote).then(|| {
            let forwarder = &mut data_path.forwarder;
            self.pass_to_kernel(roles, forwarder, header, &extensions, (local, remote), buffer)
        })
    }

    /// Sends a packet that the kernel has protected to the message's destination.
    fn send_protected_packet(
        &mut self,
        roles: &StationRoles,
        forwarder: &mut Forwarder,
        header: &Header,
        buffer: &mut PacketBuffer,
    ) -> ForwardingVerdict {
        let Some(away) = self.recall_care_of_address(header.flow_label) else {
            return forwarder.count_drop(TunnelDropReason::Malformed);
        };
        let length = buffer.as_slice().len().saturating_sub(HEADER_LEN);
        let mut outer = Header { flow_label: 0, hop_limit: HOP_LIMIT, ..*header };
        let by_router = roles.is_own_home_address(header.source);
        let extension = if by_router && away != header.source {
            (outer.source, outer.next_header) = (away, protocol::DESTINATION_OPTIONS);
            Some(emit_home_address_options_header(protocol::ESP, header.source))
        } else if !by_router && away != header.destination {
            (outer.destination, outer.next_header) = (away, protocol::ROUTING);
            Some(emit_home_address_routing_header(protocol::ESP, header.destination))
        } else {
            None
        };
        let extension = extension.as_ref().map_or(&[][..], |octets| octets);
        outer.payload_length = u16::try_from(length + extension.len()).unwrap_or(u16::MAX);
        buffer.strip_front(HEADER_LEN, length);
        match buffer.prepend(extension) && buffer.prepend(&outer.emit()) {
            true => ForwardingVerdict::Forward,
            false => forwarder.count_drop(TunnelDropReason::Malformed),
        }
    }

    /// Passes an ESP packet to the kernel, between the addresses of its security association.
    fn pass_to_kernel(
        &mut self,
        roles: &StationRoles,
        forwarder: &mut Forwarder,
        header: &Header,
        extensions: &ExtensionHeaders,
        (local, remote): (Ipv6Addr, Ipv6Addr),
        buffer: &mut PacketBuffer,
    ) -> ForwardingVerdict {
        let to_router = roles.is_own_home_address(local);
        let plain = extensions.home_address.is_none() && extensions.routing_home_address.is_none();
        if plain && self.recall_care_of_address(header.flow_label).is_some() {
            // The kernel has refused to protect this packet, which has come back.
            return forwarder.count_drop(TunnelDropReason::UpperLayer);
        }
        let away = if to_router { header.destination } else { header.source };
        let flow_label = self.remember_care_of_address(away);
        let length = buffer.as_slice().len().saturating_sub(extensions.upper_layer_offset);
        let inner = Header {
            flow_label,
            payload_length: u16::try_from(length).unwrap_or(u16::MAX),
            next_header: protocol::ESP,
            source: remote,
            destination: local,
            ..*header
        };
        buffer.strip_front(extensions.upper_layer_offset, length);
        match buffer.prepend(&inner.emit()) {
            true => ForwardingVerdict::Forward,
            false => forwarder.count_drop(TunnelDropReason::Malformed),
        }
    }

    /// Forgets a message that the kernel has sent without protection, and queues a warning.
    fn warn_about_missing_association(&mut self, now: Time, outputs: &mut VecDeque<Output>, header: &Header) {
        let _ = self.recall_care_of_address(header.flow_label);
        if self.warning_limiter.try_take_token(now) {
            let message = format!(
                "the station cannot send a message from {} to {}: the kernel has no IPsec policy for it; \
                 is strongSwan running?",
                header.source, header.destination
            );
            outputs.push_back(Output::Event(Event::Warning { message }));
        }
    }

    /// Returns the packet that was on the wire before the kernel's IPsec verified this message. Returns
    /// `None` if the sender needs no protection, or if the station does not remember the message.
    pub(super) fn restore_packet_on_wire(
        &mut self,
        roles: &StationRoles,
        (source, destination): (Ipv6Addr, Ipv6Addr),
        label: u32,
        mut message: Vec<u8>,
    ) -> Option<Vec<u8>> {
        let away = self
            .recall_care_of_address(label)
            .filter(|_| roles.protects_packets_between(destination, source))?;
        let to_agent = roles
            .agent_role
            .as_ref()
            .is_some_and(|agent| agent.state_machine.config().address == destination);
        let packet = match to_agent {
            true => ControlPacket {
                source: away,
                home_address: (away != source).then_some(source),
                ..ControlPacket::without_home_address(source, destination, HOP_LIMIT, &mut message)
            },
            false => ControlPacket {
                destination: away,
                routing_home_address: (away != destination).then_some(destination),
                ..ControlPacket::without_home_address(source, destination, HOP_LIMIT, &mut message)
            },
        };
        Some(packet.emit())
    }
}

impl StationRoles {
    /// Returns whether `local` is an address of this station, and messages between `local` and `remote` need
    /// protection.
    fn protects_packets_between(&self, local: Ipv6Addr, remote: Ipv6Addr) -> bool {
        let as_agent = self.agent_role.as_ref().is_some_and(|agent| {
            let node = || agent.state_machine.node(remote);
            agent.state_machine.config().address == local
                && node().is_some_and(|node| node.authentication == Authentication::Ipsec)
        });
        let as_router = self.router_role.as_ref().is_some_and(|router| {
            let config = router.state_machine.config();
            config.home_address == local
                && config.home_agent == remote
                && config.authentication == Authentication::Ipsec
        });
        as_agent || as_router
    }

    /// Returns whether this station is the mobile router with this home address.
    fn is_own_home_address(&self, address: Ipv6Addr) -> bool {
        self.router_role.as_ref().is_some_and(|router| router.state_machine.config().home_address == address)
    }
}
