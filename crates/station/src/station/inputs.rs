//! Passes each input to the part of the station that handles it.

use std::ops::ControlFlow;
use std::slice;
use std::time::Duration;

use carnet_base::{Endpoint, Interface, LinkMessage, Time, WallTime, parts};
use carnet_geonet::ReceivedFrame;
use carnet_geonet::ipv6_adaptation::HostFrame;
use carnet_geonet::multicast::LanPacket;
use carnet_mobility::mobile_router::PathTraffic;
use carnet_wire::geonet::GnAddress;
use carnet_wire::icmpv6;

use super::Station;
use crate::geonet::Geonet;
use crate::io::{Command, Frame, Input, VirtualFrame};
use carnet_nemo::forwarding::forwarder::Verdict;
use carnet_nemo::forwarding::packet::PacketBuffer;

const NO_GEONET: &str = "this station does no GeoNetworking";
const NO_HOME_AGENT: &str = "this station is no home agent";
/// Name in the message counters for a Home Agent Address Discovery Reply (ICMPv6).
const DISCOVERY_REPLY: &str = "home_agent_discovery_reply";

impl Station {
    /// Handles an input.
    ///
    /// # Errors
    /// Returns an error, in words for the operator, if the station refuses an [`Input::Command`],
    /// [`Input::Signal`], [`Input::ChannelBusy`] or [`Input::Vehicle`]. Other inputs never fail.
    pub fn handle_input(&mut self, now: Time, wall: WallTime, input: Input) -> Result<(), String> {
        self.assert_drained();
        self.handle_date(now, wall);
        let input = match self.handle_geonet_input(now, input) {
            ControlFlow::Break(result) => {
                self.flush_geonet(now);
                return result;
            }
            ControlFlow::Continue(input) => input,
        };
        let mut result = Ok(());
        match input {
            Input::Timeout => self.handle_timeout(now, wall),
            Input::Packet(packet) => {
                let mut buffer = PacketBuffer::new();
                buffer.copy_from(&packet);
                let verdict = self.process(now, wall, &mut buffer);
                self.carry_out(verdict, &buffer);
            }
            Input::Datagram { local, remote, traffic_class, packet } => {
                let mut buffer = PacketBuffer::new();
                buffer.copy_from(&packet);
                let verdict = self.process_datagram(now, wall, (local, remote), traffic_class, &mut buffer);
                self.carry_out(verdict, &buffer);
            }
            Input::Protected { source, destination, label, message } => {
                self.handle_protected(now, wall, (source, destination), label, message);
            }
            Input::DatagramTooBig { local, remote, mtu } => {
                self.path_mtus.handle_hint(now, (local, remote), mtu);
            }
            Input::TunnelUsed { local, remote } => {
                self.path_mtus.handle_traffic(now, (local, remote));
                if let (Some(direct), Some(remote)) = (&mut self.direct, remote.ipv6()) {
                    direct.handle_tunnel_used(now, remote);
                }
            }
            Input::TunnelTraffic(traffic) => self.fast_traffic = traffic,
            Input::Destinations(destinations) => {
                if let Some(direct) = &mut self.direct {
                    destinations.into_iter().for_each(|destination| direct.handle_use(now, destination));
                }
            }
            Input::Icmpv6(message) => self.handle_link_message(now, wall, &message),
            Input::Interface(interface) => self.handle_interface(now, wall, interface),
            Input::InterfaceGone { name } => self.handle_interface_gone(now, wall, &name),
            Input::Signal { interface, dbm } => {
                result = match &mut self.router {
                    Some(router) => {
                        let found = router.machine.uplink_called(&interface).map(|_| ());
                        router.machine.handle_signal(now, wall, &interface, Some(dbm));
                        router.agents.handle_signal(now, wall, &interface, Some(dbm));
                        found
                    }
                    None => Err("this station has no uplinks".into()),
                }
            }
            Input::Roaming { interface, roaming } => {
                if let Some(router) = &mut self.router {
                    router.machine.handle_roaming(now, wall, &interface, roaming);
                    router.agents.handle_roaming(now, wall, &interface, roaming);
                }
            }
            Input::PortalProbe { interface, probe } => {
                if let Some(router) = &mut self.router {
                    router.machine.handle_portal_probe(now, wall, &interface, &probe);
                    router.agents.handle_portal_probe(now, wall, &interface, &probe);
                }
            }
            Input::Octets { interface, octets } => {
                if let Some(router) = &mut self.router {
                    router.machine.handle_octets(now, wall, &interface, octets);
                    router.agents.handle_octets(now, wall, &interface, octets);
                }
            }
            Input::Command(command) => result = self.handle_command(now, wall, command),
            // The code above has handled all other inputs.
            _ => {}
        }
        self.flush(now, wall);
        result
    }

    /// Handles frequent inputs that concern only GeoNetworking, without work in any other part. Returns any
    /// other input to the caller.
    fn handle_geonet_input(&mut self, now: Time, input: Input) -> ControlFlow<Result<(), String>, Input> {
        match input {
            Input::Timeout if self.mobility_timeout().is_none_or(|due| due > now) => {
                if let Some(geonet) = &mut self.geonet {
                    geonet.handle_timeout(now);
                }
                self.look_at_neighbours(now);
            }
            Input::Frame(frame) => {
                if let Some(geonet) = &mut self.geonet {
                    let Frame { source, destination, packet, .. } = &frame;
                    geonet.handle_frame(
                        now,
                        ReceivedFrame { source: *source, destination: *destination, packet },
                    );
                }
            }
            Input::Unacknowledged(frame) => {
                if !self.is_unreachable(now, &frame)
                    && let Some(geonet) = &mut self.geonet
                {
                    geonet.handle_unacknowledged(now, frame.destination, &frame.packet);
                }
            }
            Input::VirtualFrame(frame) => {
                let VirtualFrame { link, destination, source, ether_type, payload } = frame;
                if !self.was_diverted(now, destination, &payload)
                    && let Some(geonet) = &mut self.geonet
                {
                    let frame = HostFrame { destination, source, ether_type, payload: &payload };
                    geonet.handle_host_frame(now, link, frame);
                }
            }
            Input::VirtualAddresses { link, addresses } => {
                if let Some(geonet) = &mut self.geonet {
                    geonet.handle_addresses(link, addresses);
                }
            }
            Input::LanPacket { interface, source, packet } => {
                if let Some(geonet) = &mut self.geonet {
                    let lan = LanPacket { interface: &interface, source, packet: &packet };
                    geonet.handle_lan_packet(now, lan);
                }
            }
            Input::LanAddresses { interface, addresses } => match &mut self.geonet {
                Some(geonet) => geonet.handle_lan_addresses(now, &interface, &addresses),
                None => drop(self.lan_addresses.insert(interface, addresses)),
            },
            Input::GeonetMtu(mtu) => {
                if let Some(geonet) = &mut self.geonet {
                    geonet.handle_link_mtu(now, mtu);
                }
            }
            Input::GeonetBacklog(octets) => {
                if let Some(geonet) = &mut self.geonet {
                    geonet.handle_backlog(octets);
                }
            }
            Input::ChannelBusy(thousandths) => {
                return ControlFlow::Break(match &mut self.geonet {
                    Some(geonet) => geonet.handle_channel_busy(now, thousandths),
                    None => Err(NO_GEONET.into()),
                });
            }
            Input::GeonetFastPath(is) => {
                if let Some(geonet) = &mut self.geonet {
                    geonet.handle_fast_path(now, is);
                }
            }
            Input::GeonetReport(report) => {
                self.use_neighbours(now, &report.ways);
                if let Some(geonet) = &mut self.geonet {
                    geonet.handle_report(now, &report);
                }
            }
            Input::Position(position) => {
                if let Some(geonet) = &mut self.geonet {
                    geonet.handle_position(now, position);
                }
            }
            Input::PositionQuality(quality) => {
                if let Some(geonet) = &mut self.geonet {
                    geonet.handle_quality(quality);
                }
            }
            Input::Vehicle(octets) => {
                return ControlFlow::Break(match &mut self.geonet {
                    Some(geonet) => geonet.handle_vehicle(now, &octets),
                    None => Err(NO_GEONET.into()),
                });
            }
            Input::GeonetAddress(address) => {
                return ControlFlow::Break(self.handle_geonet_address(now, GnAddress(address)));
            }
            Input::Geonet(request) => {
                return ControlFlow::Break(match &mut self.geonet {
                    Some(geonet) => geonet.handle_request(now, &request),
                    None => Err(NO_GEONET.into()),
                });
            }
            other @ (Input::Timeout
            | Input::Packet(_)
            | Input::Datagram { .. }
            | Input::Protected { .. }
            | Input::DatagramTooBig { .. }
            | Input::TunnelUsed { .. }
            | Input::TunnelTraffic(_)
            | Input::Destinations(_)
            | Input::Icmpv6(_)
            | Input::Interface(_)
            | Input::InterfaceGone { .. }
            | Input::Signal { .. }
            | Input::Roaming { .. }
            | Input::PortalProbe { .. }
            | Input::Octets { .. }
            | Input::Command(_)) => return ControlFlow::Continue(other),
        }
        ControlFlow::Break(Ok(()))
    }

    /// Sets the date for the next [`Self::handle_frame`], which has no date among its parameters, unlike
    /// [`Self::handle_input`].
    pub fn handle_date(&mut self, now: Time, wall: WallTime) {
        if let Some(geonet) = &mut self.geonet {
            geonet.handle_date(now, wall);
        }
    }

    /// Handles a frame of EtherType 0x8947 without a copy of its octets.
    pub fn handle_frame(&mut self, now: Time, frame: ReceivedFrame<'_>) {
        self.assert_drained();
        if let Some(geonet) = &mut self.geonet {
            geonet.handle_frame(now, frame);
        }
        self.flush_geonet(now);
    }

    /// Handles a frame of the virtual interface `link` without a copy of its octets.
    pub fn handle_host_frame(&mut self, now: Time, link: u32, frame: HostFrame<'_>) {
        self.assert_drained();
        if !self.was_diverted(now, frame.destination, frame.payload)
            && let Some(geonet) = &mut self.geonet
        {
            geonet.handle_host_frame(now, link, frame);
        }
        self.flush_geonet(now);
    }

    /// Handles a multicast packet from an interface of the mobile network without a copy of its octets.
    pub fn handle_lan_packet(&mut self, now: Time, packet: LanPacket<'_>) {
        self.assert_drained();
        if let Some(geonet) = &mut self.geonet {
            geonet.handle_lan_packet(now, packet);
        }
        self.flush_geonet(now);
    }

    /// Handles a packet from the tunnel device, without allocation for common packets. On
    /// [`Verdict::Forward`] the buffer holds the packet to write back. On [`Verdict::Encapsulate`] it holds
    /// the packet to send by a socket. Other outputs may wait in addition.
    pub fn handle_packet(&mut self, now: Time, wall: WallTime, buffer: &mut PacketBuffer) -> Verdict {
        self.assert_drained();
        let verdict = self.process(now, wall, buffer);
        if matches!(verdict, Verdict::Consumed | Verdict::Dropped(_)) {
            self.flush(now, wall);
        }
        verdict
    }

    /// Handles an IPv6 packet that arrived at `ends.0` from `ends.1` inside IPv4 or UDP. `traffic_class` is
    /// the outer header's octet with DSCP and ECN.
    pub fn handle_datagram(
        &mut self,
        now: Time,
        wall: WallTime,
        ends: (Endpoint, Endpoint),
        traffic_class: u8,
        buffer: &mut PacketBuffer,
    ) -> Verdict {
        self.assert_drained();
        let verdict = self.process_datagram(now, wall, ends, traffic_class, buffer);
        if matches!(verdict, Verdict::Consumed | Verdict::Dropped(_)) {
            self.flush(now, wall);
        }
        verdict
    }

    pub(super) fn handle_timeout(&mut self, now: Time, wall: WallTime) {
        if let Some(agent) = &mut self.agent {
            agent.machine.handle_timeout(now);
            if let Some(advertiser) = &mut agent.advertiser {
                advertiser.handle_timeout(now);
            }
        }
        let traffic = self.path_traffic();
        if let Some(router) = &mut self.router {
            router.machine.handle_traffic(now, traffic);
            router.machine.handle_timeout(now, wall);
            router.nesting.handle_timeout(now);
            router.agents.handle_timeout(now, wall);
            for advertiser in &mut router.advertisers {
                advertiser.handle_timeout(now);
            }
        }
        if let Some(direct) = &mut self.direct {
            direct.handle_timeout(now);
        }
        self.path_mtus.handle_timeout(now);
        if let Some(geonet) = &mut self.geonet {
            geonet.handle_timeout(now);
        }
        self.look_at_neighbours(now);
        self.look_at_access(now, wall);
    }

    /// Returns the packet counts of each uplink of the mobile router, the sum of slow path and fast path.
    fn path_traffic(&self) -> Vec<(usize, PathTraffic)> {
        let Some(router) = &self.router else { return Vec::new() };
        let mut traffic = vec![PathTraffic::default(); router.machine.uplinks().len()];
        for path in router.machine.paths() {
            let slow = self.forwarder.traffic((path.local, path.remote));
            let fast = self
                .fast_traffic
                .iter()
                .filter(|fast| (fast.local, fast.remote) == (path.local, path.remote));
            let (sent, received) =
                fast.fold((0, 0), |(sent, received), it| (sent + it.sent, received + it.received));
            if let Some(sum) = traffic.get_mut(path.uplink) {
                sum.sent += slow.packets_out + sent;
                sum.received += slow.packets_in + received;
            }
        }
        traffic.into_iter().enumerate().collect()
    }

    fn handle_interface(&mut self, now: Time, wall: WallTime, interface: Interface) {
        self.tell_interface(now, wall, &interface);
        self.interfaces.insert(interface.name.clone(), interface);
        self.forward_router(now);
    }

    pub(super) fn tell_interface(&mut self, now: Time, wall: WallTime, interface: &Interface) {
        let seen = self.seen_by_access(now, interface);
        let interface = seen.as_ref().unwrap_or(interface);
        if let Some(agent) = &mut self.agent {
            agent.machine.handle_interface(interface, now);
            if let Some(advertiser) = &mut agent.advertiser {
                advertiser.handle_interface(now, interface);
            }
        }
        if let Some(router) = &mut self.router {
            for advertiser in &mut router.advertisers {
                advertiser.handle_interface(now, interface);
            }
            router.nesting.handle_interface(interface);
            router.machine.handle_interface(now, wall, interface);
            router.agents.handle_interface(now, wall, interface);
        }
    }

    fn handle_interface_gone(&mut self, now: Time, wall: WallTime, name: &str) {
        self.interfaces.remove(name);
        if let Some(access) = self.access.as_mut().filter(|access| access.interface == name) {
            access.handle_gone();
        }
        if let Some(agent) = &mut self.agent {
            agent.machine.handle_interface_gone(name);
            if let Some(advertiser) = &mut agent.advertiser {
                advertiser.handle_interface_gone(name);
            }
        }
        if let Some(router) = &mut self.router {
            for advertiser in &mut router.advertisers {
                advertiser.handle_interface_gone(name);
            }
            router.nesting.handle_interface_gone(name);
            router.machine.handle_interface_gone(now, wall, name);
            router.agents.handle_interface_gone(now, wall, name);
        }
        self.forward_router(now);
    }

    fn handle_command(&mut self, now: Time, wall: WallTime, command: Command) -> Result<(), String> {
        match command {
            Command::Handover { uplink, policy } => match (&mut self.router, policy) {
                (Some(router), None) => {
                    router.machine.handle_handover(now, wall, uplink.as_deref())?;
                    router.agents.handle_handover(now, wall, uplink.as_deref());
                    Ok(())
                }
                (Some(router), Some(policy)) => router.machine.handle_policy_uplinks(
                    now,
                    wall,
                    &policy,
                    uplink.as_ref().map(slice::from_ref),
                ),
                (None, _) => Err("this station is no mobile router".into()),
            },
            Command::ResetGeonet => {
                let geonet = Geonet::of_mut(&mut self.geonet).ok_or(NO_GEONET)?;
                geonet.handle_reset(now);
                Ok(())
            }
            Command::SetArea(order) => {
                Geonet::of_mut(&mut self.geonet).ok_or(NO_GEONET)?.handle_area_order(now, &order)
            }
            Command::RemoveArea { name } => {
                Geonet::of_mut(&mut self.geonet).ok_or(NO_GEONET)?.handle_area_removal(now, &name)
            }
            Command::ChangePseudonym => {
                Geonet::of_mut(&mut self.geonet).ok_or(NO_GEONET)?.handle_pseudonym_change(now)
            }
            Command::LockPseudonym { for_s } => {
                let span = Duration::from_secs(for_s.into());
                Geonet::of_mut(&mut self.geonet).ok_or(NO_GEONET)?.handle_pseudonym_lock(now, span)
            }
            Command::Denm(order) => {
                Geonet::of_mut(&mut self.geonet).ok_or(NO_GEONET)?.handle_denm_order(now, &order)
            }
            Command::Drain { to, within_s } => {
                let agent = self.agent.as_mut().ok_or(NO_HOME_AGENT)?;
                agent.machine.handle_drain(now, wall, &to, Duration::from_secs(within_s.into()))
            }
            Command::EndDrain => self.agent.as_mut().ok_or(NO_HOME_AGENT)?.machine.handle_drain_end(),
            Command::Revoke { home_address, bids } => {
                let agent = self.agent.as_mut().ok_or(NO_HOME_AGENT)?;
                agent.machine.handle_revocation(now, wall, home_address, &bids)
            }
            Command::Shutdown => {
                if let Some(advertiser) = self.agent.as_mut().and_then(|agent| agent.advertiser.as_mut()) {
                    advertiser.handle_shutdown(now);
                }
                if let Some(router) = &mut self.router {
                    for advertiser in &mut router.advertisers {
                        advertiser.handle_shutdown(now);
                    }
                    router.machine.handle_shutdown(now, wall);
                    router.agents.handle_shutdown(now, wall);
                }
                if let Some(neighbours) = &mut self.neighbours {
                    neighbours.machine.handle_shutdown(now);
                }
                if let Some(direct) = &mut self.direct {
                    direct.handle_shutdown(now);
                }
                Ok(())
            }
        }
    }

    fn handle_geonet_address(&mut self, now: Time, address: GnAddress) -> Result<(), String> {
        if let Some(geonet) = &mut self.geonet {
            geonet.handle_address(now, address);
        } else if let (Some(part), Some((settings, rng))) = (parts::geonet(), self.awaited.take()) {
            let mut geonet = Geonet::new(part, settings, address, rng);
            for (interface, addresses) in std::mem::take(&mut self.lan_addresses) {
                geonet.handle_lan_addresses(now, &interface, &addresses);
            }
            if let Some(secured) = self.awaited_security.take() {
                geonet.secure(now, secured);
            }
            self.geonet = Some(geonet);
            self.listen_to_neighbours();
        } else {
            return Err(NO_GEONET.into());
        }
        Ok(())
    }

    fn handle_link_message(&mut self, now: Time, wall: WallTime, message: &LinkMessage) {
        if message.message.first().is_some_and(|kind| *kind < icmpv6::types::ECHO_REQUEST) {
            // The message may be an error about a packet that was sent from a care-of address.
            if icmpv6::verify(message.source, message.destination, &message.message).is_ok()
                && let Ok((error, invoking)) = icmpv6::parse_error(&message.message)
            {
                self.handle_error(now, wall, message.source, message.destination, error, invoking);
            }
            return;
        }
        if message.message.first() == Some(&icmpv6::types::ECHO_REPLY) {
            self.handle_echo_reply(now, message);
            return;
        }
        let mut results = Vec::new();
        if message.message.first() == Some(&icmpv6::types::DHAAD_REPLY) {
            *self.received.entry(DISCOVERY_REPLY).or_default() += 1;
        }
        if let Some(agent) = &mut self.agent {
            results.push(agent.machine.handle_link_message(now, message));
            if let Some(advertiser) = &mut agent.advertiser {
                results.push(advertiser.handle_link_message(now, message));
            }
        }
        if let Some(router) = &mut self.router {
            results.push(router.machine.handle_link_message(now, wall, message));
            // `Nesting` counts the messages that it rejects, so the result has no further use.
            let _counted = router.nesting.handle_link_message(now, message, &router.machine);
            results.push(router.agents.handle_link_message(now, wall, &router.machine, message));
            for advertiser in &mut router.advertisers {
                results.push(advertiser.handle_link_message(now, message));
            }
        }
        for reason in results.into_iter().filter_map(Result::err) {
            *self.dropped.entry(reason).or_default() += 1;
        }
    }
}
