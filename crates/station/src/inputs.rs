//! Passes each input to the plane that handles it: NEMO or GeoNetworking.

use std::ops::ControlFlow;
use std::time::Duration;

use carnet_base::{Endpoint, Time, WallTime};
use carnet_geonet::ReceivedFrame;
use carnet_geonet::ipv6_adaptation::HostFrame;
use carnet_geonet::multicast::LanPacket;
use carnet_mobility::SessionPeer;
use carnet_nemo::Nemo;
use carnet_nemo::forwarding::forwarder::ForwardingVerdict;
use carnet_nemo::forwarding::packet::PacketBuffer;
use carnet_nemo::input::PacketArrival;
use carnet_wire::geonet::GnAddress;

use crate::io::{Command, Frame, Input, VirtualFrame};
use crate::station::{NO_GEONET_ERROR, Station};

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
                self.complete_geonet_outputs(now);
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
                let (nemo, in_range) = self.nemo_and_stations_in_range();
                let at = PacketArrival {
                    now,
                    wall_time: wall,
                    stations_in_range: in_range.as_optional_stations(),
                    session_peer: None,
                };
                let verdict = nemo.handle_packet(at, &mut buffer);
                nemo.carry_out_verdict(verdict, &buffer);
            }
            Input::Datagram { local, remote, traffic_class, packet } => {
                let mut buffer = PacketBuffer::new();
                buffer.copy_from(&packet);
                let (nemo, in_range) = self.nemo_and_stations_in_range();
                let at = PacketArrival {
                    now,
                    wall_time: wall,
                    stations_in_range: in_range.as_optional_stations(),
                    session_peer: None,
                };
                let verdict = nemo.handle_datagram(at, (local, remote), traffic_class, &mut buffer);
                nemo.carry_out_verdict(verdict, &buffer);
            }
            Input::SessionPacket { session, local, remote, traffic_class, packet } => {
                let mut buffer = PacketBuffer::new();
                buffer.copy_from(&packet);
                let (nemo, in_range) = self.nemo_and_stations_in_range();
                let at = PacketArrival {
                    now,
                    wall_time: wall,
                    stations_in_range: in_range.as_optional_stations(),
                    session_peer: Some(session),
                };
                let verdict = nemo.handle_session_packet(at, (local, remote), traffic_class, &mut buffer);
                nemo.carry_out_verdict(verdict, &buffer);
            }
            Input::Protected { source, destination, label, message } => {
                self.nemo.handle_ipsec_message(now, wall, (source, destination), label, message);
            }
            Input::DatagramTooBig { local, remote, mtu } => {
                self.nemo.handle_datagram_too_big(now, (local, remote), mtu);
            }
            Input::OwnKey { public_key } => {
                if let Ok(key) = public_key.try_into() {
                    self.nemo.handle_own_key(now, key);
                }
            }
            Input::TunnelUsed { local, remote } => self.nemo.handle_tunnel_used(now, (local, remote)),
            Input::TunnelTraffic(traffic) => self.nemo.handle_tunnel_traffic(traffic),
            Input::Destinations(destinations) => self.nemo.handle_used_destinations(now, destinations),
            Input::PacketRules(error) => self.nemo.handle_packet_rule_result(error),
            Input::Icmpv6(message) => self.nemo.handle_link_message(now, wall, &message),
            Input::Interface(interface) => {
                let (nemo, in_range) = self.nemo_and_stations_in_range();
                nemo.handle_interface(now, wall, interface, in_range.as_optional_stations());
            }
            Input::InterfaceGone { name } => self.nemo.handle_interface_gone(now, wall, &name),
            Input::Signal { interface, dbm } => result = self.nemo.handle_signal(now, wall, &interface, dbm),
            Input::Roaming { interface, roaming } => {
                self.nemo.handle_roaming(now, wall, &interface, roaming);
            }
            Input::PortalProbe { interface, probe } => {
                self.nemo.handle_portal_probe(now, wall, &interface, &probe);
            }
            Input::Octets { interface, octets } => self.nemo.handle_octets(now, wall, &interface, octets),
            Input::Command(command) => result = self.handle_command(now, wall, command),
            // The code above has handled all other inputs.
            _ => {}
        }
        self.execute_all_outputs(now, wall);
        result
    }

    /// Handles frequent inputs that concern only GeoNetworking, before the work for other inputs begins.
    /// Returns every other input to the caller.
    fn handle_geonet_input(&mut self, now: Time, input: Input) -> ControlFlow<Result<(), String>, Input> {
        match input {
            Input::Timeout if self.nemo.poll_timeout().is_none_or(|due| due > now) => {
                if let Some(geonet) = self.geonet.get_mut() {
                    geonet.handle_timeout(now);
                }
                let (nemo, in_range) = self.nemo_and_stations_in_range();
                nemo.handle_neighbour_timeout(now, in_range.as_optional_stations());
            }
            Input::Frame(frame) => {
                if let Some(geonet) = self.geonet.get_mut() {
                    let Frame { source, destination, packet, .. } = &frame;
                    geonet.handle_frame(
                        now,
                        ReceivedFrame { source: *source, destination: *destination, packet },
                    );
                }
            }
            Input::Unacknowledged(frame) => {
                if !self.send_again_on_other_route(now, &frame)
                    && let Some(geonet) = self.geonet.get_mut()
                {
                    geonet.handle_unacknowledged(now, frame.destination, &frame.packet);
                }
            }
            Input::VirtualFrame(frame) => {
                let VirtualFrame { link, destination, source, ether_type, payload } = frame;
                if !self.nemo.divert_if_route_ended(now, destination, &payload)
                    && let Some(geonet) = self.geonet.get_mut()
                {
                    let frame = HostFrame { destination, source, ether_type, payload: &payload };
                    geonet.handle_host_frame(now, link, frame);
                }
            }
            Input::VirtualAddresses { link, addresses } => {
                if let Some(geonet) = self.geonet.get_mut() {
                    geonet.handle_addresses(link, addresses);
                }
            }
            Input::LanPacket { interface, source, packet } => {
                if let Some(geonet) = self.geonet.get_mut() {
                    let lan = LanPacket { interface: &interface, source, packet: &packet };
                    geonet.handle_lan_packet(now, lan);
                }
            }
            Input::LanAddresses { interface, addresses } => match self.geonet.get_mut() {
                Some(geonet) => geonet.handle_lan_addresses(now, &interface, &addresses),
                None => drop(self.addresses_by_lan.insert(interface, addresses)),
            },
            Input::GeonetMtu(mtu) => {
                if let Some(geonet) = self.geonet.get_mut() {
                    geonet.handle_link_mtu(now, mtu);
                }
            }
            Input::GeonetBacklog(octets) => {
                if let Some(geonet) = self.geonet.get_mut() {
                    geonet.handle_backlog(octets);
                }
            }
            Input::ChannelBusy(thousandths) => {
                return ControlFlow::Break(match self.geonet.get_mut() {
                    Some(geonet) => geonet.handle_channel_busy(now, thousandths),
                    None => Err(NO_GEONET_ERROR.into()),
                });
            }
            Input::GeonetFastPath(is) => {
                if let Some(geonet) = self.geonet.get_mut() {
                    geonet.handle_fast_path(now, is);
                }
            }
            Input::GeonetReport(report) => {
                self.nemo.handle_stations_used(now, &report.own_packet_destinations);
                if let Some(geonet) = self.geonet.get_mut() {
                    geonet.handle_report(now, &report);
                }
            }
            Input::Position(position) => {
                if let Some(geonet) = self.geonet.get_mut() {
                    geonet.handle_position(now, position);
                }
            }
            Input::PositionQuality(quality) => {
                if let Some(geonet) = self.geonet.get_mut() {
                    geonet.handle_quality(quality);
                }
            }
            Input::Vehicle(octets) => {
                return ControlFlow::Break(match self.geonet.get_mut() {
                    Some(geonet) => geonet.handle_vehicle(now, &octets),
                    None => Err(NO_GEONET_ERROR.into()),
                });
            }
            Input::GeonetAddress(address) => {
                return ControlFlow::Break(self.handle_geonet_address(now, GnAddress(address)));
            }
            Input::Geonet(request) => {
                return ControlFlow::Break(match self.geonet.get_mut() {
                    Some(geonet) => geonet.handle_request(now, &request),
                    None => Err(NO_GEONET_ERROR.into()),
                });
            }
            other @ (Input::Timeout
            | Input::Packet(_)
            | Input::Datagram { .. }
            | Input::SessionPacket { .. }
            | Input::Protected { .. }
            | Input::DatagramTooBig { .. }
            | Input::TunnelUsed { .. }
            | Input::OwnKey { .. }
            | Input::TunnelTraffic(_)
            | Input::Destinations(_)
            | Input::PacketRules(_)
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

    /// Sets the date for the next [`Self::handle_frame`]. That call has no parameter for the date, unlike
    /// [`Self::handle_input`].
    pub fn handle_date(&mut self, now: Time, wall: WallTime) {
        if let Some(geonet) = self.geonet.get_mut() {
            geonet.handle_date(now, wall);
        }
    }

    /// Handles a frame of EtherType 0x8947 without a copy of its octets.
    pub fn handle_frame(&mut self, now: Time, frame: ReceivedFrame<'_>) {
        self.assert_drained();
        if let Some(geonet) = self.geonet.get_mut() {
            geonet.handle_frame(now, frame);
        }
        self.complete_geonet_outputs(now);
    }

    /// Handles a frame of the virtual interface `link` without a copy of its octets.
    pub fn handle_host_frame(&mut self, now: Time, link: u32, frame: HostFrame<'_>) {
        self.assert_drained();
        if !self.nemo.divert_if_route_ended(now, frame.destination, frame.payload)
            && let Some(geonet) = self.geonet.get_mut()
        {
            geonet.handle_host_frame(now, link, frame);
        }
        self.complete_geonet_outputs(now);
    }

    /// Handles a multicast packet from an interface of the mobile network without a copy of its octets.
    pub fn handle_lan_packet(&mut self, now: Time, packet: LanPacket<'_>) {
        self.assert_drained();
        if let Some(geonet) = self.geonet.get_mut() {
            geonet.handle_lan_packet(now, packet);
        }
        self.complete_geonet_outputs(now);
    }

    /// Handles a packet from the tunnel device, without allocation for common packets. On
    /// [`ForwardingVerdict::Forward`] the buffer holds the packet that the caller writes back to the device.
    /// On [`ForwardingVerdict::Encapsulate`] it holds the packet that the caller sends by a socket. Further
    /// outputs may wait in [`Self::poll_output`].
    pub fn handle_packet(
        &mut self,
        now: Time,
        wall: WallTime,
        buffer: &mut PacketBuffer,
    ) -> ForwardingVerdict {
        self.pass_packet(now, wall, None, |nemo, at| nemo.handle_packet(at, buffer))
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
    ) -> ForwardingVerdict {
        self.pass_packet(now, wall, None, |nemo, at| nemo.handle_datagram(at, ends, traffic_class, buffer))
    }

    /// Handles a packet that came out of the encrypted session of a remote key. `ends` are the tunnel ends by
    /// the header of the datagram, and `traffic_class` is its octet with DSCP and ECN.
    pub fn handle_session_packet(
        &mut self,
        now: Time,
        wall: WallTime,
        session: SessionPeer,
        ends: (Endpoint, Endpoint),
        traffic_class: u8,
        buffer: &mut PacketBuffer,
    ) -> ForwardingVerdict {
        self.pass_packet(now, wall, Some(session), |nemo, at| {
            nemo.handle_session_packet(at, ends, traffic_class, buffer)
        })
    }

    /// Passes a packet to the NEMO plane. If the verdict leaves nothing for the caller to send, also
    /// completes the outputs. `session` is the encrypted session out of which the packet came.
    fn pass_packet(
        &mut self,
        now: Time,
        wall: WallTime,
        session: Option<SessionPeer>,
        handle: impl FnOnce(&mut Nemo, PacketArrival<'_>) -> ForwardingVerdict,
    ) -> ForwardingVerdict {
        self.assert_drained();
        let (nemo, in_range) = self.nemo_and_stations_in_range();
        let verdict = handle(
            nemo,
            PacketArrival {
                now,
                wall_time: wall,
                stations_in_range: in_range.as_optional_stations(),
                session_peer: session,
            },
        );
        if matches!(verdict, ForwardingVerdict::Consumed | ForwardingVerdict::Dropped(_)) {
            self.execute_all_outputs(now, wall);
        }
        verdict
    }

    pub(crate) fn handle_timeout(&mut self, now: Time, wall: WallTime) {
        self.nemo.handle_timeout(now, wall);
        if let Some(geonet) = self.geonet.get_mut() {
            geonet.handle_timeout(now);
        }
        let (nemo, in_range) = self.nemo_and_stations_in_range();
        nemo.handle_neighbour_timeout(now, in_range.as_optional_stations());
        nemo.handle_access_timeout(now, wall, in_range.as_optional_stations());
    }

    fn handle_command(&mut self, now: Time, wall: WallTime, command: Command) -> Result<(), String> {
        match command {
            Command::Handover { uplink, policy } => self.nemo.handle_handover(now, wall, uplink, policy),
            Command::ResetGeonet => {
                let geonet = self.geonet.get_mut().ok_or(NO_GEONET_ERROR)?;
                geonet.handle_clock_reset(now);
                Ok(())
            }
            Command::SetArea(order) => {
                self.geonet.get_mut().ok_or(NO_GEONET_ERROR)?.handle_area_command(now, &order)
            }
            Command::RemoveArea { name } => {
                self.geonet.get_mut().ok_or(NO_GEONET_ERROR)?.handle_area_removal(now, &name)
            }
            Command::ChangePseudonym => {
                self.geonet.get_mut().ok_or(NO_GEONET_ERROR)?.handle_pseudonym_change(now)
            }
            Command::LockPseudonym { for_s } => {
                let span = Duration::from_secs(for_s.into());
                self.geonet.get_mut().ok_or(NO_GEONET_ERROR)?.handle_pseudonym_lock(now, span)
            }
            Command::Denm(order) => {
                self.geonet.get_mut().ok_or(NO_GEONET_ERROR)?.handle_denm_command(now, &order)
            }
            Command::Drain { to, within_s } => self.nemo.handle_drain(now, wall, &to, within_s),
            Command::EndDrain => self.nemo.handle_drain_end(),
            Command::Revoke { home_address, bids } => {
                self.nemo.handle_revocation(now, wall, home_address, &bids)
            }
            Command::Portal(order) => self.nemo.handle_portal_access_request(now, order),
            Command::Delegations(delegated) => self.nemo.handle_delegated_prefixes(&delegated),
            Command::EndPortal { uplink } => self.nemo.handle_portal_access_end(now, &uplink),
            Command::Shutdown => {
                self.nemo.handle_shutdown(now, wall);
                Ok(())
            }
        }
    }
}
