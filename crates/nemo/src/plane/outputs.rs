//! Fills the plane's queue of outputs from its parts, and applies the desired state to the slow path.

use std::net::Ipv6Addr;

use carnet_base::{Time, WallTime};
use carnet_mobility::Event;
use carnet_mobility::mnpp::Output as NeighbourWish;
use carnet_mobility::nesting::Output as Wish;

use super::neighbours::GeonetCommand;
use super::{Nemo, PortalAccess, RouterRole, StateOwner, neighbours};
use crate::forwarding::desired::TunnelEnd;
use crate::forwarding::forwarder::ForwardingVerdict;
use crate::forwarding::packet::PacketBuffer;
use crate::forwarding::path_mtu::PathMtuOutput;
use crate::forwarding::{
    OwnTraffic, breakout_entries, closed_lan_entries, closed_uplink_entries, nesting_entries,
    own_traffic_entries, packet_filter_entries, router_entries, sysctl_entries,
};
use crate::output::Output;
use crate::persistent_state::StoredStatePart;

impl Nemo {
    /// Collects the outputs of all parts, in their order. `geonet_mtu` is the MTU of IPv6 over GeoNetworking.
    pub fn collect_outputs(&mut self, now: Time, wall: WallTime, geonet_mtu: Option<u32>) {
        self.data_path.apply_changed_entries();
        for (output, from_router) in self.take_mobility_outputs(now, wall) {
            self.translate_output(now, output, from_router);
        }
        self.update_nesting(now, wall);
        let router = self.roles.router_role.as_mut();
        if let Some(message) = router.and_then(|router| router.apply_absence_policy(now)) {
            let event = Event::Warning { message: message.to_owned() };
            self.data_path.outputs.push_back(Output::Event(event));
            self.update_router_entries(now);
        }
        let (router, filter_error) = (self.roles.router_role.as_ref(), self.packet_rule_error.as_deref());
        if let Some(reason) =
            self.portal_access.as_ref().and_then(|portal| portal.reason_to_end(now, router, filter_error))
            && let Some(portal) = self.portal_access.take()
        {
            self.end_portal_access(now, portal, reason);
        }
        self.direct_routes.update_care_of_addresses(
            now,
            self.roles.router_role.as_ref(),
            &mut self.data_path,
        );
        self.apply_path_mtu_changes(now);
        if let Some(agent) = &mut self.roles.agent_role {
            agent.update_home_link_advertiser(now);
            if let Some(advertiser) = &mut agent.home_link_advertiser {
                while let Some(message) = advertiser.poll_output() {
                    self.data_path.outputs.push_back(Output::Icmpv6(message));
                }
            }
        }
        if let Some(router) = &mut self.roles.router_role {
            let ends = TunnelEnd::MobileRouter;
            let in_use = self
                .data_path
                .forwarder
                .tunnels()
                .filter(|(tunnel, _)| tunnel.end == ends && tunnel.transmit);
            // Count the MTU of GeoNetworking from the start: otherwise hosts would have to learn a smaller
            // MTU when a neighbour appears.
            let straight = self.neighbour_routes.as_ref().and(geonet_mtu);
            let in_use = in_use.map(|(tunnel, _)| tunnel.mtu).min();
            router.update_lan_advertisers(now, in_use, straight);
            for advertiser in &mut router.advertisers_by_lan {
                while let Some(message) = advertiser.poll_output() {
                    self.data_path.outputs.push_back(Output::Icmpv6(message));
                }
            }
        }
        self.data_path.collect_caused_packets();
    }

    /// Collects the outputs of the home agent and the mobile router. The flag is `true` for an output of the
    /// mobile router.
    pub(crate) fn take_mobility_outputs(
        &mut self,
        now: Time,
        wall: WallTime,
    ) -> Vec<(carnet_mobility::Output, bool)> {
        let mut outputs = Vec::new();
        if let Some(agent) = &mut self.roles.agent_role {
            outputs.extend(std::iter::from_fn(|| agent.state_machine.poll_output()).map(|o| (o, false)));
        }
        if let Some(router) = &mut self.roles.router_role {
            outputs.extend(std::iter::from_fn(|| router.state_machine.poll_output()).map(|o| (o, true)));
            router.home_agent_selection.review_agents(now, wall, &mut router.state_machine);
            // Handle the outputs of the state machines for other home agents last, because they depend on the
            // state machine of the present home agent.
            let home_agent = router.state_machine.config().home_agent;
            self.data_path.path_mtus.set_home_agent(TunnelEnd::MobileRouter, home_agent);
            outputs.extend(std::iter::from_fn(|| router.state_machine.poll_output()).map(|o| (o, true)));
            outputs
                .extend(std::iter::from_fn(|| router.home_agent_selection.poll_output()).map(|o| (o, true)));
        }
        outputs
    }

    pub(crate) fn translate_output(&mut self, now: Time, output: carnet_mobility::Output, from_router: bool) {
        use carnet_mobility::Output as Mobility;
        match output {
            Mobility::Forwarding(_) if from_router => self.update_router_entries(now),
            Mobility::Forwarding(home_address) => self.update_binding_entries(now, home_address),
            Mobility::Persist(_) if from_router => {
                self.data_path.outputs.push_back(Output::Persist(StoredStatePart::Own))
            }
            Mobility::Persist(home_address) => {
                self.data_path.outputs.push_back(Output::Persist(StoredStatePart::Node(home_address)));
            }
            Mobility::Packet(packet) => {
                let output = match &mut self.ipsec_protection {
                    Some(protection) => protection.output_for_packet(&self.roles, packet),
                    None => Output::Packet(packet),
                };
                self.data_path.outputs.push_back(output);
            }
            Mobility::Encapsulated { local, remote, packet } => {
                let may_fragment = true;
                self.data_path.outputs.push_back(Output::Encapsulated {
                    local,
                    remote,
                    packet,
                    may_fragment,
                    session: None,
                });
            }
            Mobility::Tunnelled { local, remote, packet } => {
                self.data_path.forwarder.send_own_packet((local, remote), &packet);
                self.data_path.collect_caused_packets();
            }
            Mobility::ProbePortal { uplink, sources } => {
                self.data_path.outputs.push_back(Output::ProbePortal { uplink, sources });
            }
            Mobility::Link(message) => self.data_path.outputs.push_back(Output::Icmpv6(message)),
            Mobility::Event(event) => self.data_path.outputs.push_back(Output::Event(event)),
        }
    }

    /// Queues the packet in the buffer as an output.
    pub fn carry_out_verdict(&mut self, verdict: ForwardingVerdict, buffer: &PacketBuffer) {
        self.data_path.queue_packet_of_verdict(verdict, buffer);
    }

    /// Recomputes the desired entries of the mobile router.
    pub(super) fn update_router_entries(&mut self, now: Time) {
        if let Some(router) = &self.roles.router_role {
            let assigned = router.lan_addresses();
            let breakouts = router.breakout_policies();
            let mut entries = router_entries(
                &router.state_machine,
                router.home_agent_selection.other_mobile_routers(),
                &router.lan_interfaces,
                &assigned,
                &self.virtual_interfaces,
                &self.interfaces,
                &breakouts,
            );
            let portal = self.portal_access.as_ref().map(PortalAccess::portal_target);
            entries.extend(breakout_entries(
                &breakouts,
                portal,
                &router.state_machine,
                &router.lan_interfaces,
            ));
            entries.extend(nesting_entries(&router.nesting, &router.state_machine));
            if router.own_traffic == OwnTraffic::Tunnel || !router.state_machine.config().is_router() {
                let others = router.home_agent_selection.other_mobile_routers();
                entries.extend(own_traffic_entries(
                    &router.state_machine,
                    others,
                    &router.lan_interfaces,
                    &self.interfaces,
                ));
            }
            if let Some(neighbours) = &mut self.neighbour_routes {
                let is_there = router.state_machine.paths().iter().any(|path| path.may_transmit);
                neighbours.state_machine.handle_tunnel_presence(now, is_there);
            }
            self.data_path.set_scope_entries(now, StateOwner::MobileRouter, entries);
        }
        self.data_path.apply_changed_entries();
    }

    /// Removes the entries of an access to a captive portal, which has just ended.
    pub(super) fn end_portal_access(&mut self, now: Time, portal: PortalAccess, reason: String) {
        // First restore the setting by which the kernel forwards, then remove the rules that refuse packets
        // from uplinks.
        self.update_sysctl_entries();
        self.update_router_entries(now);
        self.data_path.outputs.push_back(Output::Event(portal.end_event(reason)));
    }

    /// Returns whether the config may let packets leave without the tunnel, or packets leave without the
    /// tunnel now.
    fn may_ever_send_outside_tunnel(&self) -> bool {
        let by_config = self.roles.router_role.as_ref().is_some_and(RouterRole::may_ever_send_outside_tunnel);
        by_config || self.portal_access.is_some()
    }

    /// Recomputes the settings of the mobile router's interfaces.
    pub(super) fn update_sysctl_entries(&mut self) {
        let may_break_out = self.may_ever_send_outside_tunnel();
        let Some(router) = &self.roles.router_role else { return };
        let groups = sysctl_entries(&router.state_machine, &router.lan_interfaces, may_break_out);
        for (order, entries) in groups.into_iter().enumerate() {
            self.data_path.desired_state.replace_scope(StateOwner::Settings(order), entries);
        }
    }

    /// Recomputes the rules for the inbound filters (doors) of the mobile network.
    pub(super) fn update_packet_filter_entries(&mut self) {
        let router = self.roles.router_role.as_ref();
        let rules = router.map(|router| {
            let config = router.state_machine.config();
            packet_filter_entries(&config.prefixes, &config.ipv4_prefixes, &router.lan_settings)
        });
        let closed = router.filter(|_| self.packet_rule_error.is_some()).map(|router| {
            let config = router.state_machine.config();
            let mut closed =
                closed_lan_entries(&config.prefixes, &config.ipv4_prefixes, &router.lan_settings);
            if self.may_ever_send_outside_tunnel() {
                closed.extend(closed_uplink_entries(&router.state_machine));
            }
            closed
        });
        self.data_path.desired_state.replace_scope(StateOwner::Doors, rules.unwrap_or_default());
        self.data_path.desired_state.replace_scope(StateOwner::ClosedDoors, closed.unwrap_or_default());
    }

    /// Recomputes the desired entries of one node of the home agent.
    pub(super) fn update_binding_entries(&mut self, now: Time, home_address: Ipv6Addr) {
        if let Some(agent) = &self.roles.agent_role {
            self.data_path.set_binding_entries(now, &agent.state_machine, home_address);
        }
        self.data_path.apply_changed_entries();
    }

    /// Executes the outputs of path MTU discovery.
    pub(super) fn apply_path_mtu_changes(&mut self, now: Time) {
        while let Some(ends) = self.data_path.forwarder.poll_used_tunnel() {
            self.data_path.path_mtus.handle_traffic(now, ends);
        }
        self.data_path.path_mtus.send_due_probes(now);
        while let Some(order) = self.data_path.path_mtus.poll_output() {
            match order {
                PathMtuOutput::Changed(ends) => match self.data_path.path_mtus.users_of_path(ends) {
                    Some((TunnelEnd::MobileRouter, _)) => self.update_router_entries(now),
                    Some((TunnelEnd::Direct, _)) => {
                        self.direct_routes.update_desired_routes(
                            now,
                            self.roles.router_role.as_ref(),
                            &mut self.data_path,
                        );
                    }
                    Some((TunnelEnd::HomeAgent, home_addresses)) => {
                        for home_address in home_addresses {
                            self.update_binding_entries(now, home_address);
                        }
                    }
                    None => {}
                },
                PathMtuOutput::Probe(ends, packet) => self.data_path.forwarder.send_own_packet(ends, &packet),
                PathMtuOutput::Watch(ends) => self.data_path.forwarder.watch_for_next_packet(ends),
            }
            self.data_path.path_mtus.send_due_probes(now);
        }
    }

    /// Executes the outputs of nesting, and the outputs of the mobile router that follow from them.
    fn update_nesting(&mut self, now: Time, wall: WallTime) {
        let Some(router) = &mut self.roles.router_role else { return };
        for wish in router.update_nesting(now, wall, &self.virtual_interfaces) {
            match wish {
                Wish::Forwarding => self.update_router_entries(now),
                Wish::Link(message) => self.data_path.outputs.push_back(Output::Icmpv6(message)),
            }
        }
        for (output, from_router) in self.take_mobility_outputs(now, wall) {
            self.translate_output(now, output, from_router);
        }
        if let Some(router) = &mut self.roles.router_role {
            router.update_nesting_offer(now);
        }
    }

    /// Executes the outputs of the routes to neighbouring mobile networks, up to the next one that concerns
    /// GeoNetworking. The caller carries out that order and calls again, until the result is `None`.
    pub fn poll_geonet_command(&mut self) -> Option<GeonetCommand> {
        loop {
            let neighbours = self.neighbour_routes.as_mut()?;
            let hops = neighbours.state_machine.config().announcement_hop_limit;
            match neighbours.state_machine.poll_output()? {
                NeighbourWish::Announce(packet) => return Some(GeonetCommand::Announce { hops, packet }),
                NeighbourWish::Straight(station, packet) => {
                    return Some(GeonetCommand::Send { hops, station, packet });
                }
                NeighbourWish::Withdrawn(station) => return Some(GeonetCommand::TakeBack(station)),
                NeighbourWish::ThroughTunnel(packet) => {
                    let paths = self.roles.router_role.as_ref().map(|router| router.state_machine.paths());
                    let path = paths.into_iter().flatten().find(|path| path.may_transmit);
                    if let Some(path) = path {
                        self.data_path.forwarder.send_own_packet((path.local, path.remote), &packet);
                        self.data_path.collect_caused_packets();
                    }
                }
                NeighbourWish::Routes => {
                    let router = self.roles.router_role.as_ref();
                    neighbours::update_desired_routes(
                        self.neighbour_routes.as_ref(),
                        router,
                        &mut self.data_path,
                    );
                    self.data_path.apply_changed_entries();
                }
                NeighbourWish::Event(event) => self.data_path.outputs.push_back(Output::Event(event)),
            }
        }
    }
}
