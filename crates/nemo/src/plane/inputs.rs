//! Passes each input of the platform to the state machines that it concerns.

use std::net::Ipv6Addr;

use carnet_base::{Interface, LinkMessage, Time, WallTime};
use carnet_mobility::Event;
use carnet_mobility::direct::PublicKey;
use carnet_mobility::mobile_router::{InterfaceOctets, PortalProbe};
use carnet_mobility::router_advertiser::RouterAdvertiser;
use carnet_wire::icmpv6;
use carnet_wire::ipv6::Header;

use super::path_mtus::handle_echo_reply;
use super::{Nemo, PortalAccess, StateOwner, neighbours};
use crate::forwarding::delegation_entries;
use crate::forwarding::packet::PacketBuffer;
use crate::forwarding::path_mtu::TunnelEnds;
use crate::input::{DelegatedPrefix, OptionalStations, PortalAccessRequest, Stations, TunnelTraffic};
use crate::output::Output;

/// Name in the message counters for a Home Agent Address Discovery Reply (ICMPv6).
const DISCOVERY_REPLY_NAME: &str = "home_agent_discovery_reply";
const NO_MOBILE_ROUTER_ERROR: &str = "this station is no mobile router";

impl Nemo {
    /// Runs the timers that are due, except for timers that need the stations in radio range.
    pub fn handle_timeout(&mut self, now: Time, wall: WallTime) {
        if let Some(agent) = &mut self.roles.agent_role {
            agent.state_machine.handle_timeout(now);
            if let Some(advertiser) = &mut agent.home_link_advertiser {
                advertiser.handle_timeout(now);
            }
        }
        if let Some(router) = &mut self.roles.router_role {
            let traffic = self.data_path.path_traffic(&router.state_machine);
            router.state_machine.handle_traffic(now, traffic);
            router.state_machine.handle_timeout(now, wall);
            router.nesting.handle_timeout(now);
            router.home_agent_selection.handle_timeout(now, wall);
            for advertiser in &mut router.advertisers_by_lan {
                advertiser.handle_timeout(now);
            }
        }
        if let Some(direct) = &mut self.direct_routes.state_machine {
            direct.handle_timeout(now);
        }
        self.data_path.path_mtus.handle_timeout(now);
    }

    /// Handles the complete state of an interface.
    pub fn handle_interface(
        &mut self,
        now: Time,
        wall: WallTime,
        interface: Interface,
        in_range: OptionalStations<'_>,
    ) {
        self.pass_interface_to_roles(now, wall, &interface, in_range);
        self.interfaces.insert(interface.name.clone(), interface);
        self.update_router_entries(now);
    }

    pub(super) fn pass_interface_to_roles(
        &mut self,
        now: Time,
        wall: WallTime,
        interface: &Interface,
        in_range: OptionalStations<'_>,
    ) {
        let seen = self.interface_for_mobile_router(now, interface, in_range);
        let interface = seen.as_ref().unwrap_or(interface);
        if let Some(agent) = &mut self.roles.agent_role {
            agent.state_machine.handle_interface(interface, now);
            if let Some(advertiser) = &mut agent.home_link_advertiser {
                advertiser.handle_interface(now, interface);
            }
        }
        if let Some(router) = &mut self.roles.router_role {
            for advertiser in &mut router.advertisers_by_lan {
                advertiser.handle_interface(now, interface);
            }
            router.nesting.handle_interface(interface);
            router.state_machine.handle_interface(now, wall, interface);
            router.home_agent_selection.handle_interface(now, wall, interface);
        }
    }

    /// Handles the removal of an interface.
    pub fn handle_interface_gone(&mut self, now: Time, wall: WallTime, name: &str) {
        self.interfaces.remove(name);
        if let Some(access) = self.roadside_units.as_mut().filter(|access| access.interface == name) {
            access.handle_interface_gone();
        }
        if let Some(agent) = &mut self.roles.agent_role {
            agent.state_machine.handle_interface_gone(name);
            if let Some(advertiser) = &mut agent.home_link_advertiser {
                advertiser.handle_interface_gone(name);
            }
        }
        if let Some(router) = &mut self.roles.router_role {
            for advertiser in &mut router.advertisers_by_lan {
                advertiser.handle_interface_gone(name);
            }
            router.nesting.handle_interface_gone(name);
            router.state_machine.handle_interface_gone(now, wall, name);
            router.home_agent_selection.handle_interface_gone(now, wall, name);
        }
        self.update_router_entries(now);
    }

    /// Handles the signal strength of an uplink.
    ///
    /// # Errors
    /// Returns an error, in words for the operator, if the plane has no such uplink.
    pub fn handle_signal(
        &mut self,
        now: Time,
        wall: WallTime,
        interface: &str,
        dbm: i32,
    ) -> Result<(), String> {
        let Some(router) = &mut self.roles.router_role else {
            return Err("this station has no uplinks".into());
        };
        let found = router.state_machine.uplink_by_name(interface).map(|_| ());
        router.state_machine.handle_signal(now, wall, interface, Some(dbm));
        router.home_agent_selection.handle_signal(now, wall, interface, Some(dbm));
        found
    }

    /// Handles a report about an uplink: whether its modem roams; `None` if that is not known.
    pub fn handle_roaming(&mut self, now: Time, wall: WallTime, interface: &str, roaming: Option<bool>) {
        if let Some(router) = &mut self.roles.router_role {
            router.state_machine.handle_roaming(now, wall, interface, roaming);
            router.home_agent_selection.handle_roaming(now, wall, interface, roaming);
        }
    }

    /// Handles the result of a request that [`crate::Output::ProbePortal`] demanded.
    pub fn handle_portal_probe(&mut self, now: Time, wall: WallTime, interface: &str, probe: &PortalProbe) {
        if let Some(router) = &mut self.roles.router_role {
            router.state_machine.handle_portal_probe(now, wall, interface, probe);
            router.home_agent_selection.handle_portal_probe(now, wall, interface, probe);
        }
    }

    /// Handles the counters of an uplink's interface.
    pub fn handle_octets(&mut self, now: Time, wall: WallTime, interface: &str, octets: InterfaceOctets) {
        if let Some(router) = &mut self.roles.router_role {
            router.state_machine.handle_octets(now, wall, interface, octets);
            router.home_agent_selection.handle_octets(now, wall, interface, octets);
        }
    }

    /// Notes that a fast path has sent packets into a tunnel since its last report.
    pub fn handle_tunnel_used(&mut self, now: Time, (local, remote): TunnelEnds) {
        self.data_path.path_mtus.handle_traffic(now, (local, remote));
        if let (Some(direct), Some(remote)) = (&mut self.direct_routes.state_machine, remote.ipv6()) {
            direct.handle_tunnel_used(now, remote);
        }
    }

    /// Handles the newest public key of this station, for encrypted sessions with other mobile routers.
    pub fn handle_own_key(&mut self, now: Time, key: PublicKey) {
        self.direct_routes.handle_own_key(now, key);
    }

    /// Stores the packet counts of a fast path.
    pub fn handle_tunnel_traffic(&mut self, traffic: Vec<TunnelTraffic>) {
        self.data_path.fast_path_traffic = traffic;
    }

    /// Handles destinations of packets that a fast path has sent into the tunnel to the home agent.
    pub fn handle_used_destinations(&mut self, now: Time, destinations: Vec<Ipv6Addr>) {
        if let Some(direct) = &mut self.direct_routes.state_machine {
            destinations.into_iter().for_each(|destination| direct.handle_used_destination(now, destination));
        }
    }

    /// Handles the result of installing the rules of the packet filter; `None` if they are in force. After an
    /// error the router does not forward to the interfaces on board whose inbound filters (doors) need the
    /// rules.
    pub fn handle_packet_rule_result(&mut self, error: Option<String>) {
        self.packet_rule_error = error;
        self.update_packet_filter_entries();
        self.data_path.apply_changed_entries();
    }

    /// Handles an ICMP message from the path (RFC 1191), which proves nothing.
    pub fn handle_datagram_too_big(&mut self, now: Time, ends: TunnelEnds, mtu: u32) {
        self.data_path.path_mtus.handle_unproven_mtu(now, ends, mtu);
    }

    /// Handles an ICMPv6 message received on a link: Neighbor Discovery, or an error about a tunnel packet.
    pub fn handle_link_message(&mut self, now: Time, wall: WallTime, message: &LinkMessage) {
        if message.message.first().is_some_and(|kind| *kind < icmpv6::message_type::ECHO_REQUEST) {
            // The message may be an ICMPv6 error about a packet that this station has sent from a care-of
            // address.
            if icmpv6::verify_checksum(message.source, message.destination, &message.message).is_ok()
                && let Ok((error, invoking)) = icmpv6::parse_error(&message.message)
            {
                self.handle_icmp_error(now, wall, message.source, message.destination, error, invoking);
            }
            return;
        }
        // A router on the link answers an Echo Request of the mobile router from its link-local address. Only
        // answers from other addresses may be answers to path MTU probes.
        let is_link_local = message.source.is_unicast_link_local();
        if message.message.first() == Some(&icmpv6::message_type::ECHO_REPLY) && !is_link_local {
            handle_echo_reply(&mut self.roles, &mut self.data_path, now, message);
            return;
        }
        let mut results = Vec::new();
        if message.message.first() == Some(&icmpv6::message_type::DHAAD_REPLY) {
            *self.message_counters.received_by_name.entry(DISCOVERY_REPLY_NAME).or_default() += 1;
        }
        if let Some(agent) = &mut self.roles.agent_role {
            results.push(agent.state_machine.handle_link_message(now, message));
            if let Some(advertiser) = &mut agent.home_link_advertiser {
                results.push(advertiser.handle_link_message(now, message));
            }
        }
        if let Some(router) = &mut self.roles.router_role {
            results.push(router.state_machine.handle_link_message(now, wall, message));
            // Ignore the result: `Nesting` counts the messages that it rejects.
            let _counted = router.nesting.handle_link_message(now, message, &router.state_machine);
            results.push(router.home_agent_selection.handle_link_message(
                now,
                wall,
                &router.state_machine,
                message,
            ));
            for advertiser in &mut router.advertisers_by_lan {
                results.push(advertiser.handle_link_message(now, message));
                let other =
                    advertiser.take_new_other_router().map(|other| other_router_event(advertiser, other));
                self.data_path.outputs.extend(other);
            }
        }
        for reason in results.into_iter().filter_map(Result::err) {
            *self.message_counters.dropped_messages.entry(reason).or_default() += 1;
        }
    }

    /// Changes the mobile router to another roadside unit if a change is due.
    pub fn handle_access_timeout(&mut self, now: Time, wall: WallTime, in_range: OptionalStations<'_>) {
        let (Some(access), Some(stations)) = (&mut self.roadside_units, in_range) else { return };
        let others = access.has_other_uplink(self.roles.router_role.as_ref());
        if let Some(interface) = access.handle_timeout(now, stations, others) {
            // Take the outputs first, because the timers of the mobile router may have run just before this
            // call.
            for (output, from_router) in self.take_mobility_outputs(now, wall) {
                self.translate_output(now, output, from_router);
            }
            self.pass_interface_to_roles(now, wall, &interface, in_range);
            self.update_router_entries(now);
        }
    }

    /// Returns the interface as the mobile router must see it: with only the roadside units in range as
    /// routers. `None` if the interface is not the one to the roadside units, so that the kernel's state
    /// applies.
    fn interface_for_mobile_router(
        &mut self,
        now: Time,
        interface: &Interface,
        in_range: OptionalStations<'_>,
    ) -> Option<Interface> {
        let access = self.roadside_units.as_mut().filter(|access| access.interface == interface.name)?;
        let others = access.has_other_uplink(self.roles.router_role.as_ref());
        Some(access.handle_interface(now, interface, in_range?, others))
    }

    /// Uses this uplink and no other uplink, for all packets or for those of a policy; `None` ends an earlier
    /// command of this kind.
    ///
    /// # Errors
    /// Returns the reason of a refusal, in words for the operator.
    pub fn handle_handover(
        &mut self,
        now: Time,
        wall: WallTime,
        uplink: Option<String>,
        policy: Option<String>,
    ) -> Result<(), String> {
        self.roles.handle_handover(now, wall, uplink, policy)
    }

    /// Asks all mobile nodes to leave the home agent, for `within_s` seconds.
    ///
    /// # Errors
    /// Returns the reason of a refusal, in words for the operator.
    pub fn handle_drain(
        &mut self,
        now: Time,
        wall: WallTime,
        to: &[Ipv6Addr],
        within_s: u32,
    ) -> Result<(), String> {
        self.roles.handle_drain(now, wall, to, within_s)
    }

    /// Accepts registrations at the home agent again.
    ///
    /// # Errors
    /// Returns the reason of a refusal, in words for the operator.
    pub fn handle_drain_end(&mut self) -> Result<(), String> {
        self.roles.handle_drain_end()
    }

    /// Ends bindings of a mobile node; all bindings of the node if `bids` is empty.
    ///
    /// # Errors
    /// Returns the reason of a refusal, in words for the operator.
    pub fn handle_revocation(
        &mut self,
        now: Time,
        wall: WallTime,
        home_address: Ipv6Addr,
        bids: &[u16],
    ) -> Result<(), String> {
        self.roles.handle_revocation(now, wall, home_address, bids)
    }

    /// Gives a host on board access to the captive portal of an uplink. A repeated command for the same host
    /// sets a new end and new DNS servers.
    ///
    /// # Errors
    /// Returns the reason of a refusal, in words for the operator.
    pub fn handle_portal_access_request(
        &mut self,
        now: Time,
        order: PortalAccessRequest,
    ) -> Result<(), String> {
        let router = self.roles.router_role.as_ref().ok_or(NO_MOBILE_ROUTER_ERROR)?;
        let filter_error = self.packet_rule_error.as_deref();
        let portal = PortalAccess::new(now, order, router, self.portal_access.as_ref(), filter_error)?;
        let event = portal.begin_event(now);
        self.portal_access = Some(portal);
        // First install the rules that refuse packets from uplinks, and then the setting by which the kernel
        // forwards packets.
        self.update_router_entries(now);
        self.update_sysctl_entries();
        self.data_path.apply_changed_entries();
        self.data_path.outputs.push_back(Output::Event(event));
        Ok(())
    }

    /// Sets the prefixes that routers on board have, all together. Packets for them go to these routers.
    ///
    /// # Errors
    /// Returns the reason of a refusal, in words for the operator.
    pub fn handle_delegated_prefixes(&mut self, delegated: &[DelegatedPrefix]) -> Result<(), String> {
        let router = self.roles.router_role.as_ref();
        if router.is_none() && !delegated.is_empty() {
            return Err(NO_MOBILE_ROUTER_ERROR.into());
        }
        let lan = router.map(|router| router.lan_interfaces.as_slice()).unwrap_or_default();
        self.data_path
            .desired_state
            .replace_scope(StateOwner::Delegations, delegation_entries(delegated, lan));
        self.data_path.apply_changed_entries();
        Ok(())
    }

    /// Ends the access to the captive portal of this uplink.
    ///
    /// # Errors
    /// Returns the reason of a refusal, in words for the operator.
    pub fn handle_portal_access_end(&mut self, now: Time, uplink: &str) -> Result<(), String> {
        let router = self.roles.router_role.as_ref().ok_or(NO_MOBILE_ROUTER_ERROR)?;
        router.state_machine.uplink_by_name(uplink)?;
        let Some(portal) = self.portal_access.take_if(|portal| portal.uplink == uplink) else {
            return Err(format!(
                "cannot end the access to the captive portal of {uplink}: no host has access to it"
            ));
        };
        self.end_portal_access(now, portal, "an operator has ended it".to_owned());
        Ok(())
    }

    /// De-registers, and ends the state that peers have about this station.
    pub fn handle_shutdown(&mut self, now: Time, wall: WallTime) {
        self.roles.handle_shutdown(now, wall);
        if let Some(neighbours) = &mut self.neighbour_routes {
            neighbours.state_machine.handle_shutdown(now);
        }
        if let Some(direct) = &mut self.direct_routes.state_machine {
            direct.handle_shutdown(now);
        }
    }

    /// Runs the timers of the routes to neighbouring mobile networks that are due now.
    pub fn handle_neighbour_timeout(&mut self, now: Time, in_range: OptionalStations<'_>) {
        if let (Some(neighbours), Some(stations)) = (&mut self.neighbour_routes, in_range) {
            neighbours.handle_timeout(now, stations);
        }
    }

    /// Stores this station's addresses on the GeoNetworking link.
    pub fn handle_own_station_addresses(&mut self, now: Time, station: [u8; 6], link_local: Ipv6Addr) {
        if let Some(neighbours) = &mut self.neighbour_routes {
            neighbours.state_machine.handle_own_addresses(station, link_local);
            let valid =
                self.roles.router_role.as_ref().is_some_and(|router| router.state_machine.may_advertise());
            neighbours.state_machine.set_may_announce(now, valid);
        }
    }

    /// Handles a station that came into range. `roadside` says whether the station is a roadside unit; `own`
    /// and `link_local` are this station's addresses. Returns a Router Solicitation to all stations in range
    /// if the station is a roadside unit, otherwise `None`.
    pub fn handle_new_station(
        &mut self,
        now: Time,
        roadside: bool,
        own: [u8; 6],
        link_local: Ipv6Addr,
    ) -> Option<Vec<u8>> {
        if let Some(neighbours) = &mut self.neighbour_routes {
            neighbours.state_machine.handle_new_neighbour(now);
        }
        let access = self.roadside_units.as_mut().filter(|_| roadside);
        access.and_then(|access| access.router_solicitation(now, own, link_local))
    }

    /// Handles a message of a neighbouring mobile router or of an access router.
    pub fn handle_station_packet(
        &mut self,
        now: Time,
        station: [u8; 6],
        packet: &[u8],
        stations: &dyn Stations,
    ) {
        let machine = self.neighbour_routes.as_mut().map(|neighbours| &mut neighbours.state_machine);
        neighbours::handle_packet(machine, self.roadside_units.as_mut(), now, station, packet, stations);
    }

    /// Sends a packet of the mobile network into the tunnel instead of the direct route.
    pub fn divert_into_tunnel(&mut self, now: Time, packet: &[u8]) {
        let Ok((header, _)) = Header::parse_packet(packet) else { return };
        if header.source.is_unicast_link_local() || header.destination.is_unicast_link_local() {
            return;
        }
        let mut buffer = PacketBuffer::new();
        buffer.copy_from(packet);
        if let Some(neighbours) = &mut self.neighbour_routes {
            neighbours.diverted_packets += 1;
        }
        let verdict = self.data_path.forwarder.encapsulate(now, &header, &mut buffer);
        self.data_path.queue_packet_of_verdict(verdict, &buffer);
        self.data_path.collect_caused_packets();
    }

    /// Sends a host's packet to a station into the tunnel if the direct route to that station has just ended.
    /// The host does not know this yet. Returns whether the packet took the tunnel.
    pub fn divert_if_route_ended(&mut self, now: Time, station: [u8; 6], packet: &[u8]) -> bool {
        let Some(neighbours) = &mut self.neighbour_routes else { return false };
        neighbours.state_machine.handle_used_station(now, station);
        if !neighbours.diverts_packets_to(station, packet) {
            return false;
        }
        self.divert_into_tunnel(now, packet);
        true
    }

    /// Returns whether a packet to this station takes the tunnel, because its direct route has ended.
    pub fn diverts_packets_to(&self, station: [u8; 6], packet: &[u8]) -> bool {
        self.neighbour_routes
            .as_ref()
            .is_some_and(|neighbours| neighbours.diverts_packets_to(station, packet))
    }

    /// Notes that the fast path has sent packets to these stations, so that the routes over them stay in use.
    pub fn handle_stations_used(&mut self, now: Time, stations: &[[u8; 6]]) {
        if let Some(neighbours) = &mut self.neighbour_routes {
            stations.iter().for_each(|station| neighbours.state_machine.handle_used_station(now, *station));
        }
    }

    /// Notes that a station has not acknowledged a frame. Returns whether the plane has routes to
    /// neighbouring mobile networks.
    pub fn handle_unreachable_station(&mut self, now: Time, station: [u8; 6]) -> bool {
        let Some(neighbours) = &mut self.neighbour_routes else { return false };
        neighbours.state_machine.handle_unreachable_station(now, station);
        true
    }
}

/// Returns the warning that another router serves the hosts on an interface of the mobile network.
fn other_router_event(advertiser: &RouterAdvertiser, other: Ipv6Addr) -> Output {
    let interface = advertiser.interface();
    let message = format!(
        "another router advertises itself to hosts on {interface}: {other}; packets that take it do not pass \
         the tunnel"
    );
    Output::Event(Event::Warning { message })
}
