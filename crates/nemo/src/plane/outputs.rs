//! Fills the plane's queue of outputs from its parts, and applies the desired state to the slow path.

use std::net::Ipv6Addr;

use carnet_base::{Time, WallTime};
use carnet_mobility::Event;
use carnet_mobility::mnpp::Output as NeighbourWish;
use carnet_mobility::nesting::Output as Wish;

use super::neighbours::GeonetOrder;
use super::{Nemo, PortalAccess, Router, Scope, neighbours};
use crate::forwarding::desired::TunnelEnd;
use crate::forwarding::forwarder::Verdict;
use crate::forwarding::packet::PacketBuffer;
use crate::forwarding::path_mtu::Order;
use crate::forwarding::{
    OwnTraffic, breakout_entries, closed_entries, closed_uplink_entries, door_entries, nesting_entries,
    own_traffic_entries, router_entries, setting_entries,
};
use crate::output::Output;
use crate::persistent_state::Kept;

impl Nemo {
    /// Collects the outputs of all parts, in their order. `geonet_mtu` is the MTU of IPv6 over GeoNetworking.
    pub fn flush(&mut self, now: Time, wall: WallTime, geonet_mtu: Option<u32>) {
        self.data_path.take_changes();
        for (output, from_router) in self.take_mobility_outputs(now, wall) {
            self.translate(now, output, from_router);
        }
        self.follow_nesting(now, wall);
        let router = self.roles.router.as_mut();
        if let Some(message) = router.and_then(|router| router.follow_absence(now)) {
            let event = Event::Warning { message: message.to_owned() };
            self.data_path.outputs.push_back(Output::Event(event));
            self.forward_router(now);
        }
        let (router, filter_error) = (self.roles.router.as_ref(), self.packet_rule_error.as_deref());
        if let Some(reason) = self.portal.as_ref().and_then(|portal| portal.end(now, router, filter_error))
            && let Some(portal) = self.portal.take()
        {
            self.end_portal(now, portal, reason);
        }
        self.direct.follow(now, self.roles.router.as_ref(), &mut self.data_path);
        self.follow_path_mtus(now);
        if let Some(agent) = &mut self.roles.agent {
            agent.inform_advertiser(now);
            if let Some(advertiser) = &mut agent.advertiser {
                while let Some(message) = advertiser.poll_output() {
                    self.data_path.outputs.push_back(Output::Icmpv6(message));
                }
            }
        }
        if let Some(router) = &mut self.roles.router {
            let ends = TunnelEnd::MobileRouter;
            let in_use = self
                .data_path
                .forwarder
                .tunnels()
                .filter(|(tunnel, _)| tunnel.end == ends && tunnel.transmit);
            // Count the MTU of GeoNetworking from the start: otherwise hosts would have to learn a smaller
            // MTU when a neighbour appears.
            let straight = self.neighbours.as_ref().and(geonet_mtu);
            let in_use = in_use.map(|(tunnel, _)| tunnel.mtu).min();
            router.inform_advertisers(now, in_use, straight);
            for advertiser in &mut router.advertisers {
                while let Some(message) = advertiser.poll_output() {
                    self.data_path.outputs.push_back(Output::Icmpv6(message));
                }
            }
        }
        self.data_path.collect_caused();
    }

    /// Collects the outputs of the home agent and the mobile router. The flag is `true` for an output of the
    /// mobile router.
    pub(crate) fn take_mobility_outputs(
        &mut self,
        now: Time,
        wall: WallTime,
    ) -> Vec<(carnet_mobility::Output, bool)> {
        let mut outputs = Vec::new();
        if let Some(agent) = &mut self.roles.agent {
            outputs.extend(std::iter::from_fn(|| agent.machine.poll_output()).map(|o| (o, false)));
        }
        if let Some(router) = &mut self.roles.router {
            outputs.extend(std::iter::from_fn(|| router.machine.poll_output()).map(|o| (o, true)));
            router.agents.review_agents(now, wall, &mut router.machine);
            // Handle the outputs of the state machines for other home agents last, because they depend on the
            // one in use.
            let home_agent = router.machine.config().home_agent;
            self.data_path.path_mtus.set_home_agent(TunnelEnd::MobileRouter, home_agent);
            outputs.extend(std::iter::from_fn(|| router.machine.poll_output()).map(|o| (o, true)));
            outputs.extend(std::iter::from_fn(|| router.agents.poll_output()).map(|o| (o, true)));
        }
        outputs
    }

    pub(crate) fn translate(&mut self, now: Time, output: carnet_mobility::Output, from_router: bool) {
        use carnet_mobility::Output as Mobility;
        match output {
            Mobility::Forwarding(_) if from_router => self.forward_router(now),
            Mobility::Forwarding(home_address) => self.forward_node(now, home_address),
            Mobility::Persist(_) if from_router => {
                self.data_path.outputs.push_back(Output::Persist(Kept::Own))
            }
            Mobility::Persist(home_address) => {
                self.data_path.outputs.push_back(Output::Persist(Kept::Node(home_address)));
            }
            Mobility::Packet(packet) => {
                let output = match &mut self.protection {
                    Some(protection) => protection.output(&self.roles, packet),
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
                self.data_path.forwarder.send((local, remote), &packet);
                self.data_path.collect_caused();
            }
            Mobility::ProbePortal { uplink, sources } => {
                self.data_path.outputs.push_back(Output::ProbePortal { uplink, sources });
            }
            Mobility::Link(message) => self.data_path.outputs.push_back(Output::Icmpv6(message)),
            Mobility::Event(event) => self.data_path.outputs.push_back(Output::Event(event)),
        }
    }

    /// Queues the packet in the buffer as an output.
    pub fn carry_out(&mut self, verdict: Verdict, buffer: &PacketBuffer) {
        self.data_path.carry_out(verdict, buffer);
    }

    /// Recomputes the desired entries of the mobile router.
    pub(super) fn forward_router(&mut self, now: Time) {
        if let Some(router) = &self.roles.router {
            let assigned = router.lan_addresses();
            let breakouts = router.breakouts();
            let mut entries = router_entries(
                &router.machine,
                router.agents.other_mobile_routers(),
                &router.lan,
                &assigned,
                &self.virtual_interfaces,
                &self.interfaces,
                &breakouts,
            );
            let portal = self.portal.as_ref().map(PortalAccess::target);
            entries.extend(breakout_entries(&breakouts, portal, &router.machine, &router.lan));
            entries.extend(nesting_entries(&router.nesting, &router.machine));
            if router.own_traffic == OwnTraffic::Tunnel || !router.machine.config().is_router() {
                let others = router.agents.other_mobile_routers();
                entries.extend(own_traffic_entries(&router.machine, others, &router.lan, &self.interfaces));
            }
            if let Some(neighbours) = &mut self.neighbours {
                let is_there = router.machine.paths().iter().any(|path| path.may_transmit);
                neighbours.machine.handle_tunnel(now, is_there);
            }
            self.data_path.want(now, Scope::MobileRouter, entries);
        }
        self.data_path.take_changes();
    }

    /// Removes the entries of an access to a captive portal, which has just ended.
    pub(super) fn end_portal(&mut self, now: Time, portal: PortalAccess, reason: String) {
        // In the reverse order of the beginning.
        self.forward_settings();
        self.forward_router(now);
        self.data_path.outputs.push_back(Output::Event(portal.end_event(reason)));
    }

    /// Returns whether packets may leave without the tunnel by the config, or do so now.
    fn may_break_out(&self) -> bool {
        let by_config = self.roles.router.as_ref().is_some_and(Router::may_break_out);
        by_config || self.portal.is_some()
    }

    /// Recomputes the settings of the mobile router's interfaces.
    pub(super) fn forward_settings(&mut self) {
        let may_break_out = self.may_break_out();
        let Some(router) = &self.roles.router else { return };
        let groups = setting_entries(&router.machine, &router.lan, may_break_out);
        for (order, entries) in groups.into_iter().enumerate() {
            self.data_path.desired.replace(Scope::Settings(order), entries);
        }
    }

    /// Recomputes the rules for the doors of the mobile network.
    pub(super) fn forward_doors(&mut self) {
        let router = self.roles.router.as_ref();
        let rules = router.map(|router| {
            let config = router.machine.config();
            door_entries(&config.prefixes, &config.ipv4_prefixes, &router.lan_settings)
        });
        let closed = router.filter(|_| self.packet_rule_error.is_some()).map(|router| {
            let config = router.machine.config();
            let mut closed = closed_entries(&config.prefixes, &config.ipv4_prefixes, &router.lan_settings);
            if self.may_break_out() {
                closed.extend(closed_uplink_entries(&router.machine));
            }
            closed
        });
        self.data_path.desired.replace(Scope::Doors, rules.unwrap_or_default());
        self.data_path.desired.replace(Scope::ClosedDoors, closed.unwrap_or_default());
    }

    /// Recomputes the desired entries of one node of the home agent.
    pub(super) fn forward_node(&mut self, now: Time, home_address: Ipv6Addr) {
        if let Some(agent) = &self.roles.agent {
            self.data_path.want_node(now, &agent.machine, home_address);
        }
        self.data_path.take_changes();
    }

    /// Executes the outputs of path MTU discovery.
    pub(super) fn follow_path_mtus(&mut self, now: Time) {
        while let Some(ends) = self.data_path.forwarder.poll_used() {
            self.data_path.path_mtus.handle_traffic(now, ends);
        }
        self.data_path.path_mtus.send(now);
        while let Some(order) = self.data_path.path_mtus.poll_order() {
            match order {
                Order::Changed(ends) => match self.data_path.path_mtus.users(ends) {
                    Some((TunnelEnd::MobileRouter, _)) => self.forward_router(now),
                    Some((TunnelEnd::Direct, _)) => {
                        self.direct.forward(now, self.roles.router.as_ref(), &mut self.data_path);
                    }
                    Some((TunnelEnd::HomeAgent, home_addresses)) => {
                        for home_address in home_addresses {
                            self.forward_node(now, home_address);
                        }
                    }
                    None => {}
                },
                Order::Probe(ends, packet) => self.data_path.forwarder.send(ends, &packet),
                Order::Watch(ends) => self.data_path.forwarder.watch(ends),
            }
            self.data_path.path_mtus.send(now);
        }
    }

    /// Executes the outputs of nesting, and the outputs of the mobile router that follow from them.
    fn follow_nesting(&mut self, now: Time, wall: WallTime) {
        let Some(router) = &mut self.roles.router else { return };
        for wish in router.follow_nesting(now, wall, &self.virtual_interfaces) {
            match wish {
                Wish::Forwarding => self.forward_router(now),
                Wish::Link(message) => self.data_path.outputs.push_back(Output::Icmpv6(message)),
            }
        }
        for (output, from_router) in self.take_mobility_outputs(now, wall) {
            self.translate(now, output, from_router);
        }
        if let Some(router) = &mut self.roles.router {
            router.offer_nesting(now);
        }
    }

    /// Executes the outputs of the routes to neighbouring mobile networks, up to the next one that concerns
    /// GeoNetworking. The caller carries out that order and calls again, until the result is `None`.
    pub fn poll_geonet_order(&mut self) -> Option<GeonetOrder> {
        loop {
            let neighbours = self.neighbours.as_mut()?;
            let hops = neighbours.machine.config().announcement_hop_limit;
            match neighbours.machine.poll_output()? {
                NeighbourWish::Announce(packet) => return Some(GeonetOrder::Announce { hops, packet }),
                NeighbourWish::Straight(station, packet) => {
                    return Some(GeonetOrder::Send { hops, station, packet });
                }
                NeighbourWish::Withdrawn(station) => return Some(GeonetOrder::TakeBack(station)),
                NeighbourWish::ThroughTunnel(packet) => {
                    let paths = self.roles.router.as_ref().map(|router| router.machine.paths());
                    let path = paths.into_iter().flatten().find(|path| path.may_transmit);
                    if let Some(path) = path {
                        self.data_path.forwarder.send((path.local, path.remote), &packet);
                        self.data_path.collect_caused();
                    }
                }
                NeighbourWish::Routes => {
                    let router = self.roles.router.as_ref();
                    neighbours::forward(self.neighbours.as_ref(), router, &mut self.data_path);
                    self.data_path.take_changes();
                }
                NeighbourWish::Event(event) => self.data_path.outputs.push_back(Output::Event(event)),
            }
        }
    }
}
