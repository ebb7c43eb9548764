//! One home agent and some mobile routers on a simulated network, in virtual time.
//!
//! The clock jumps to the next event: a packet that arrives or a timer. The network carries packets as
//! octets. A seeded generator decides which packets the network loses, duplicates and delays; different
//! delays change their order. A packet leaves only from an address that an interface has at that moment, and
//! arrives only at such an address. The home link is shared: all its nodes, scripted neighbours among them,
//! receive what one of them sends.
//!
//! After every input the test takes all outputs, and the invariants of [`AgentAndRouters::check_invariants`]
//! hold.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Address, Endpoint, Interface, Ipv6Router, LinkMessage, Rng, Time, WallTime, mapped};
use carnet_mobility::home_agent::{HomeAgentConfig, StoredBinding};
use carnet_mobility::{Event, HomeAgent, MobileRouter, MobilityDrop, Output};
use carnet_virtual::Timeline;
use carnet_wire::ipv6::Header;
use carnet_wire::{icmpv6, nd};

use crate::agent;
use crate::test_messages::*;
pub use crate::test_setup::*;

/// Maximum number of outputs that one input may cause; more would be a flood.
const MAX_OUTPUTS: usize = 32;
/// Maximum number of inputs at one instant; more would be a loop.
const MAX_INPUTS_PER_INSTANT: usize = 500;

pub struct AgentAndRouters {
    pub now: Time,
    /// The time of day at [`Time::ZERO`].
    pub wall_start: WallTime,
    pub agent: HomeAgent,
    pub agent_config: HomeAgentConfig,
    pub agent_stored_bindings: Vec<StoredBinding>,
    /// While true, packets to the home agent are lost, because it is being restarted.
    pub is_agent_down: bool,
    pub routers: Vec<TestRouter>,
    pub link_conditions: Link,
    /// Addresses from and to which packets are lost.
    pub dead_addresses: Vec<Ipv6Addr>,
    /// Default routers that lose the packets of the mobile routers.
    pub dead_routers: Vec<Ipv6Addr>,
    pub rng: Rng,
    messages_underway: Timeline<MessageUnderway>,
    inputs_at_this_time: usize,
    pub sent_packets: Vec<SentPacket>,
    pub events: Vec<(Time, Option<usize>, Event)>,
    pub link_messages: Vec<(Time, Option<usize>, LinkMessage)>,
    pub forwarding_changes: usize,
    pub dropped_messages: Vec<(Time, MobilityDrop)>,
    /// Addresses that a scripted neighbour on the home link has.
    pub neighbour_addresses: Vec<Ipv6Addr>,
    /// Home address and care-of address of every registration that a router has sent for itself.
    requested_bindings: BTreeSet<(Ipv6Addr, Ipv6Addr)>,
    /// Time of the last Neighbor Solicitation of each mobile router for each address.
    last_solicited_at: BTreeMap<(usize, String, Ipv6Addr), Time>,
}

impl AgentAndRouters {
    pub fn new(setup: PairSetup) -> AgentAndRouters {
        let mut rng = Rng::new(setup.seed);
        let routers = setup
            .routers
            .iter()
            .map(|config| TestRouter {
                mobile_router: MobileRouter::new(config.clone(), &mut rng),
                config: config.clone(),
                interfaces: BTreeMap::new(),
                stored_sequence: None,
                clock_lead: Duration::ZERO,
                sent_at: UpdateTimes::default(),
            })
            .collect();
        let mut pair = AgentAndRouters {
            now: Time::from_secs(100),
            wall_start: agent::WALL_START,
            agent: HomeAgent::new(setup.agent.clone()),
            agent_config: setup.agent,
            agent_stored_bindings: Vec::new(),
            is_agent_down: false,
            routers,
            link_conditions: Link::LOSSLESS,
            dead_addresses: Vec::new(),
            dead_routers: Vec::new(),
            rng,
            messages_underway: Timeline::default(),
            inputs_at_this_time: 0,
            sent_packets: Vec::new(),
            events: Vec::new(),
            link_messages: Vec::new(),
            forwarding_changes: 0,
            dropped_messages: Vec::new(),
            neighbour_addresses: Vec::new(),
            requested_bindings: BTreeSet::new(),
            last_solicited_at: BTreeMap::new(),
        };
        pair.agent_home_link();
        pair
    }

    fn agent_home_link(&mut self) {
        if let Some(name) = self.agent_config.home_link.clone() {
            let interface =
                carnet_virtual::running_interface(&name, agent::AGENT_MAC, addresses(&["fe80::1"]));
            let now = self.now;
            self.run_on_agent(|agent| agent.handle_interface(&interface, now));
        }
    }

    /// Returns the true time of day.
    pub fn wall_time(&self) -> WallTime {
        self.wall_start + self.now.saturating_since(Time::ZERO)
    }

    /// Returns the time of day by a router's clock.
    pub fn wall_time_of_router(&self, router: usize) -> WallTime {
        self.wall_time() + self.routers[router].clock_lead
    }

    /// Brings an uplink up, or gives it another address, with a default router.
    pub fn attach_uplink(&mut self, router: usize, name: &str, care_of: &str) {
        self.set_interface(router, name, true, &["fe80::2", care_of], &["fe80::ff"]);
    }

    /// Takes an uplink's carrier away; the kernel keeps the addresses for a while.
    pub fn detach_uplink(&mut self, router: usize, name: &str) {
        let Some(interface) = self.routers[router].interfaces.get_mut(name) else { return };
        interface.running = false;
        interface.routers.clear();
        let interface = interface.clone();
        self.run_on_router(router, |machine, now, wall| machine.handle_interface(now, wall, &interface));
    }

    pub fn set_interface(
        &mut self,
        router: usize,
        name: &str,
        running: bool,
        of: &[&str],
        default_routers: &[&str],
    ) {
        let routers = default_routers.iter().map(|text| addr(text).into()).collect();
        self.set_interface_state(router, name, running, addresses(of), routers);
    }

    /// Gives these addresses and default routes to an uplink that is up.
    pub fn set_uplink_state(
        &mut self,
        router: usize,
        name: &str,
        addresses: Vec<Address>,
        routers: Vec<Ipv6Router>,
    ) {
        self.set_interface_state(router, name, true, addresses, routers);
    }

    fn set_interface_state(
        &mut self,
        router: usize,
        name: &str,
        running: bool,
        addresses: Vec<Address>,
        routers: Vec<Ipv6Router>,
    ) {
        let link_address = [2, 0, 0, 0, 1, router as u8];
        let interface = Interface {
            running,
            routers,
            ..carnet_virtual::running_interface(name, link_address, addresses)
        };
        self.routers[router].interfaces.insert(name.into(), interface.clone());
        self.run_on_router(router, |machine, now, wall| machine.handle_interface(now, wall, &interface));
    }

    /// Delivers a Router Advertisement to router 0.
    pub fn receive_router_advertisement(&mut self, interface: &str, source: &str, prefixes: &[&str]) {
        let message = router_advertisement(interface, source, prefixes);
        self.run_on_router(0, |machine, now, wall| machine.handle_link_message(now, wall, &message))
            .expect("a right advertisement");
    }

    /// Attaches both uplinks of router 0, at [`CARE_OF_ADDRESS`] and [`OTHER_CARE_OF_ADDRESS`].
    pub fn attach_both_uplinks(&mut self) {
        self.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
        self.attach_uplink(0, "cell", OTHER_CARE_OF_ADDRESS);
    }

    /// Returns the time of the next event; `None` if no timer runs and no packet is on its way.
    pub fn next_event_at(&self) -> Option<Time> {
        let timers = self.routers.iter().filter_map(|router| router.mobile_router.poll_timeout());
        timers.chain(self.agent.poll_timeout()).chain(self.messages_underway.next_event_at()).min()
    }

    /// Handles the next event if it is not after `end`; returns false without an event.
    pub fn handle_next_event(&mut self, end: Time) -> bool {
        let Some(at) = self.next_event_at().filter(|at| *at <= end) else { return false };
        self.set_time(at);
        if let Some(flight) = self.messages_underway.pop_due_event(self.now) {
            self.handle_arrival(flight);
        } else if self.agent.poll_timeout().is_some_and(|at| at <= self.now) {
            let now = self.now;
            self.run_on_agent(|agent| agent.handle_timeout(now));
        } else {
            let due = self
                .routers
                .iter()
                .position(|router| router.mobile_router.poll_timeout().is_some_and(|at| at <= self.now))
                .expect("something is due");
            self.run_on_router(due, |machine, now, wall| machine.handle_timeout(now, wall));
        }
        true
    }

    /// Sets the clock to `at`, before the events of that time.
    pub fn set_time(&mut self, at: Time) {
        if at > self.now {
            self.now = at;
            self.inputs_at_this_time = 0;
        }
    }

    pub fn advance_until(&mut self, end: Time) {
        while self.handle_next_event(end) {}
        self.set_time(end);
    }

    pub fn advance_seconds(&mut self, seconds: f64) {
        self.advance_until(self.now + Duration::from_secs_f64(seconds));
    }

    /// Runs while `pending` holds; panics after `seconds`. Returns how long it took.
    #[track_caller]
    pub fn advance_while(
        &mut self,
        seconds: f64,
        what: &str,
        pending: impl Fn(&AgentAndRouters) -> bool,
    ) -> Duration {
        let start = self.now;
        let end = start + Duration::from_secs_f64(seconds);
        while pending(self) {
            assert!(self.handle_next_event(end), "not within {seconds} s: {what}");
        }
        self.now.saturating_since(start)
    }

    #[track_caller]
    pub fn register_router(&mut self) -> Duration {
        self.advance_while(70.0, "registration", |pair| !pair.is_registered(0))
    }

    pub fn first_router(&self) -> &MobileRouter {
        &self.routers[0].mobile_router
    }

    pub fn path_of_first_router(&self) -> Option<Ipv6Addr> {
        self.first_router().path_without_policy().and_then(Endpoint::ipv6)
    }

    /// Returns the care-of address that the home agent has registered for router 0; `None` without a binding.
    pub fn registered_care_of_address(&self) -> Option<Ipv6Addr> {
        self.agent
            .bindings()
            .best_valid_binding(addr(HOME_ADDRESS))
            .and_then(|binding| binding.care_of_address.ipv6())
    }

    /// Returns whether router and home agent agree on a registration that carries traffic.
    pub fn is_registered(&self, router: usize) -> bool {
        let router = &self.routers[router];
        let binding = self.agent.bindings().best_valid_binding(router.config.home_address);
        match (router.mobile_router.registration(), binding) {
            (Some(registration), Some(binding)) => {
                registration.care_of_address == binding.care_of_address.address()
                    && router.mobile_router.path_without_policy() == Some(binding.care_of_address)
                    && mapped::split_by_family(binding.prefixes.iter().copied()).0 == router.config.prefixes
            }
            _ => false,
        }
    }

    /// Returns whether a router's traffic takes the path that the home agent expects, in both directions.
    pub fn is_traffic_carried(&self, router: usize) -> bool {
        let router = &self.routers[router];
        let binding = self.agent.bindings().best_valid_binding(router.config.home_address);
        let bound = binding.map(|b| b.care_of_address);
        router.mobile_router.path_without_policy().is_some()
            && bound == router.mobile_router.path_without_policy()
    }

    /// Returns the Binding Updates of router 0, with the time of each.
    pub fn sent_updates(&self) -> Vec<(Time, ReceivedPacket)> {
        self.sent_packets
            .iter()
            .filter(|sent| sent.sending_router == Some(0) && sent.received_packet.is_update())
            .map(|sent| (sent.sent_at, sent.received_packet.clone()))
            .collect()
    }

    #[track_caller]
    pub fn last_update(&self) -> ReceivedPacket {
        self.sent_updates().pop().expect("a Binding Update").1
    }

    pub fn clear_records(&mut self) {
        self.sent_packets.clear();
        self.events.clear();
        self.link_messages.clear();
        self.dropped_messages.clear();
        self.forwarding_changes = 0;
    }

    pub fn run_on_router<R>(
        &mut self,
        index: usize,
        does: impl FnOnce(&mut MobileRouter, Time, WallTime) -> R,
    ) -> R {
        self.count_input();
        let (now, wall) = (self.now, self.wall_time_of_router(index));
        let result = does(&mut self.routers[index].mobile_router, now, wall);
        let mut count = 0;
        while let Some(output) = self.routers[index].mobile_router.poll_output() {
            count += 1;
            assert!(count <= MAX_OUTPUTS, "too many outputs for one input");
            self.handle_output(Some(index), output);
        }
        self.check_invariants();
        result
    }

    pub fn run_on_agent<R>(&mut self, does: impl FnOnce(&mut HomeAgent) -> R) -> R {
        self.count_input();
        let before: Vec<String> = self.bindings_in_words();
        let sent_before = self.sent_packets.len();
        let result = does(&mut self.agent);
        let mut count = 0;
        while let Some(output) = self.agent.poll_output() {
            count += 1;
            assert!(count <= MAX_OUTPUTS, "too many outputs for one input");
            self.handle_output(None, output);
        }
        let refused = self.sent_packets[sent_before..].iter().any(|sent| {
            matches!(
                sent.received_packet.message,
                ReceivedMessage::Acknowledgement { status, .. } if status >= 128
            )
        });
        if refused {
            assert_eq!(self.bindings_in_words(), before, "a refused update changed a binding");
        }
        self.check_invariants();
        result
    }

    fn bindings_in_words(&self) -> Vec<String> {
        self.agent.bindings().iter().map(|binding| format!("{binding:?}")).collect()
    }

    fn count_input(&mut self) {
        self.inputs_at_this_time += 1;
        assert!(self.inputs_at_this_time <= MAX_INPUTS_PER_INSTANT, "a loop at {}", self.now);
    }

    fn handle_output(&mut self, from: Option<usize>, output: Output) {
        match output {
            Output::Packet(packet) => {
                let seen = ReceivedPacket::parse_packet(&packet);
                if let (Some(router), true) = (from, seen.is_update()) {
                    self.record_update(router, &seen);
                }
                self.sent_packets.push(SentPacket {
                    sent_at: self.now,
                    sending_router: from,
                    received_packet: seen,
                });
                if !from.is_some_and(|router| self.is_sent_to_dead_router(router, &packet)) {
                    self.transmit_packet(packet);
                }
            }
            Output::Encapsulated { local, remote, .. } => {
                panic!("inside IPv4 from {local} to {remote}, where all uplinks have IPv6");
            }
            Output::Tunnelled { .. } => {}
            Output::Link(message) => {
                if let Some(router) = from {
                    self.check_solicitation_rate(router, &message);
                }
                self.link_messages.push((self.now, from, message.clone()));
                let on_home_link = match from {
                    None => true,
                    Some(router) => self.routers[router].is_at_home(),
                };
                if on_home_link {
                    self.schedule_flight(Duration::from_millis(1), MessageUnderway::Link(from, message));
                }
            }
            Output::Event(event) => self.events.push((self.now, from, event)),
            Output::Forwarding(_) => self.forwarding_changes += 1,
            Output::ProbePortal { .. } => {}
            Output::Persist(_) => match from {
                None => self.agent_stored_bindings = self.agent.stored_bindings(self.now, self.wall_time()),
                Some(router) => {
                    self.routers[router].stored_sequence =
                        Some(self.routers[router].mobile_router.stored_state());
                }
            },
        }
    }

    /// Records a Binding Update, and checks RFC 6275 11.8 and the source address.
    fn record_update(&mut self, index: usize, seen: &ReceivedPacket) {
        let now = self.now;
        let router = &mut self.routers[index];
        router.sent_at.record_update(now);
        let home = router.config.home_address;
        let legal = router.has_address(seen.source) || (seen.source == home && router.is_at_home());
        assert!(legal, "Binding Update from {}, which is on no running interface", seen.source);
        if seen.lifetime() > 0 {
            self.requested_bindings
                .insert((home, seen.options().alternate_care_of_address.unwrap_or(seen.source)));
        }
    }

    /// Returns whether a packet of a mobile router goes to a default router that loses it.
    fn is_sent_to_dead_router(&self, router: usize, packet: &[u8]) -> bool {
        let source = Header::parse(packet).expect("an IPv6 header").source;
        let uplinks = self.routers[router].mobile_router.uplinks();
        let by = uplinks.iter().find_map(|uplink| {
            let is_own = uplink.has_care_of_address(source.into()) || uplink.has_own_next_hop(source);
            if is_own { uplink.next_hop(source.into())?.to_string().parse().ok() } else { None }
        });
        let home = self.routers[router].mobile_router.home_link().and_then(|uplink| uplink.router());
        by.or(home).is_some_and(|by| self.dead_routers.contains(&by))
    }

    /// Checks the rate of Neighbor Solicitations to one neighbour (RFC 4861 7.3.3).
    fn check_solicitation_rate(&mut self, router: usize, message: &LinkMessage) {
        if message.message.first() != Some(&icmpv6::message_type::NEIGHBOR_SOLICITATION) {
            return;
        }
        let target = nd::NeighborSolicitation::parse(&message.message).expect("a solicitation").target;
        let before = self.last_solicited_at.insert((router, message.interface.clone(), target), self.now);
        let pause = before.map(|before| self.now.saturating_since(before));
        assert!(pause.is_none_or(|pause| pause >= Duration::from_secs(1)), "{target} again after {pause:?}");
    }

    fn transmit_packet(&mut self, packet: Vec<u8>) {
        let header = Header::parse(&packet).expect("an IPv6 header");
        if self.dead_addresses.contains(&header.source) || self.dead_addresses.contains(&header.destination) {
            return;
        }
        for delay in self.link_conditions.arrival_delays(&mut self.rng) {
            self.schedule_flight(delay, MessageUnderway::Packet(packet.clone()));
        }
    }

    /// Sends a packet that an attacker or the test has made.
    pub fn inject_packet(&mut self, packet: Vec<u8>) {
        self.schedule_flight(Duration::ZERO, MessageUnderway::Packet(packet));
    }

    fn schedule_flight(&mut self, delay: Duration, flight: MessageUnderway) {
        self.messages_underway.schedule_at(self.now + delay, flight);
    }

    fn handle_arrival(&mut self, flight: MessageUnderway) {
        match flight {
            MessageUnderway::Packet(packet) => {
                let destination = Header::parse(&packet).expect("an IPv6 header").destination;
                if destination == self.agent_config.address {
                    if !self.is_agent_down {
                        self.deliver_to_agent(&packet);
                    }
                } else {
                    let index = self.routers.iter().position(|router| {
                        router.has_address(destination)
                            || (router.is_at_home() && destination == router.config.home_address)
                    });
                    if let Some(index) = index {
                        let _ = self.deliver_to_router(index, &packet);
                    }
                }
            }
            MessageUnderway::Link(from, message) => self.handle_link_message(from, &message),
        }
    }

    fn deliver_to_agent(&mut self, packet: &[u8]) {
        let Some(message) = parse_mobility_message(packet) else { return };
        let (now, wall) = (self.now, self.wall_time());
        if let Err(reason) = self.run_on_agent(|agent| agent.handle_message(now, wall, message)) {
            self.dropped_messages.push((now, reason));
        }
    }

    /// Delivers a packet to a router at once, without the simulated network.
    pub fn deliver_to_router(&mut self, index: usize, packet: &[u8]) -> Result<(), MobilityDrop> {
        let Some(message) = parse_mobility_message(packet) else { return Ok(()) };
        let result =
            self.run_on_router(index, |machine, now, wall| machine.handle_message(now, wall, message));
        if let Err(reason) = result {
            self.dropped_messages.push((self.now, reason));
        }
        result
    }

    /// Answers the last update of router 0 in the home agent's place.
    pub fn answer_last_update(&mut self, status: u8) -> Result<(), MobilityDrop> {
        let answer = TestAcknowledgement::answering(&self.last_update(), status);
        self.deliver_to_router(0, &answer.to_packet())
    }

    fn handle_link_message(&mut self, from: Option<usize>, message: &LinkMessage) {
        if from.is_some() {
            let heard = LinkMessage { interface: "h0".into(), ..message.clone() };
            let now = self.now;
            if let Err(reason) = self.run_on_agent(|agent| agent.handle_link_message(now, &heard)) {
                self.dropped_messages.push((now, reason));
            }
        }
        if message.message.first() == Some(&icmpv6::message_type::NEIGHBOR_SOLICITATION) {
            let target = nd::NeighborSolicitation::parse(&message.message).expect("solicitation").target;
            if self.neighbour_addresses.contains(&target) {
                self.neighbour_advertises(target);
            }
        }
    }

    /// Sends an advertisement of a scripted neighbour on the home link, which defends an address.
    pub fn neighbour_advertises(&mut self, target: Ipv6Addr) {
        let advertisement = nd::NeighborAdvertisement {
            target,
            router: false,
            solicited: false,
            override_: true,
            target_link_address: Some([2, 0, 0, 0, 0, 9]),
        };
        let mut message = advertisement.emit();
        icmpv6::set_checksum(&mut message, target, nd::ALL_NODES);
        let message = LinkMessage {
            interface: "h0".into(),
            source: target,
            destination: nd::ALL_NODES,
            hop_limit: 255,
            peer: Some([2, 0, 0, 0, 0, 9]),
            message,
        };
        self.schedule_flight(Duration::from_millis(1), MessageUnderway::Link(Some(usize::MAX), message));
    }

    /// Restarts the home agent, with its stored state or without.
    pub fn restart_agent(&mut self, with_state: bool) {
        self.agent = HomeAgent::new(self.agent_config.clone());
        let (now, wall) = (self.now, self.wall_time());
        if with_state {
            let stored = self.agent_stored_bindings.clone();
            self.run_on_agent(|agent| agent.restore(now, wall, stored));
        } else {
            self.agent_stored_bindings.clear();
        }
        self.agent_home_link();
    }

    /// Restarts a router, with its stored sequence number or without.
    pub fn restart_router(&mut self, index: usize, with_state: bool) {
        let router = &mut self.routers[index];
        router.mobile_router = MobileRouter::new(router.config.clone(), &mut self.rng);
        router.sent_at = UpdateTimes::default();
        if let Some(stored) = router.stored_sequence.filter(|_| with_state) {
            router.mobile_router.restore(stored);
        }
        let interfaces: Vec<Interface> = router.interfaces.values().cloned().collect();
        for interface in interfaces {
            self.run_on_router(index, |machine, now, wall| machine.handle_interface(now, wall, &interface));
        }
    }

    /// Reloads a router's configuration while it runs.
    pub fn reconfigure_router(&mut self, index: usize) {
        let config = self.routers[index].config.clone();
        let old = std::mem::replace(
            &mut self.routers[index].mobile_router,
            MobileRouter::new(config, &mut self.rng),
        );
        self.run_on_router(index, |machine, now, wall| machine.adopt_state_of(now, wall, &old));
        let interfaces: Vec<Interface> = self.routers[index].interfaces.values().cloned().collect();
        for interface in interfaces {
            self.run_on_router(index, |machine, now, wall| machine.handle_interface(now, wall, &interface));
        }
    }

    /// Sends one packet of the mobile network, as a station does. If the router has no path, it registers
    /// sooner because of the waiting packet. The router gets an ICMPv6 error if the home agent cannot forward
    /// the decapsulated packet.
    pub fn send_data_packet(&mut self, index: usize) {
        match self.routers[index].mobile_router.path_without_policy().and_then(Endpoint::ipv6) {
            None => self.run_on_router(index, |machine, now, wall| machine.handle_waiting_packet(now, wall)),
            Some(path) => {
                let home = self.routers[index].config.home_address;
                let bindings = self.agent.bindings();
                let placed = bindings.best_valid_binding(home).is_some()
                    && bindings.accepts_packets_from(home, path.into());
                if !placed
                    && !self.is_agent_down
                    && self.agent.home_address_without_binding(path.into(), home).is_some()
                    && !self.rng.is_true_with_probability(self.link_conditions.loss_probability)
                {
                    // The station sends the ICMPv6 error back at once.
                    let _ = self.run_on_router(index, |machine, now, wall| {
                        machine.handle_tunnel_error(now, wall, addr(HOME_AGENT_ADDRESS))
                    });
                }
            }
        }
    }

    /// Checks the invariants, which hold after every input.
    pub fn check_invariants(&self) {
        for binding in self.agent.bindings().iter() {
            let home = binding.home_address;
            let care_of_address = binding.care_of_address.ipv6();
            assert!(
                care_of_address.is_some_and(|address| self.requested_bindings.contains(&(home, address))),
                "binding of {home} to {}, which its router never asked for",
                binding.care_of_address
            );
            let node = self.agent_config.nodes.iter().find(|node| node.home_address == home);
            let node = node.unwrap_or_else(|| panic!("binding of {home}, which is not configured"));
            for prefix in binding.prefixes.iter() {
                assert!(
                    node.prefixes.iter().any(|own| own.contains(prefix)),
                    "{prefix} is forwarded to {home}, which may not have it"
                );
            }
        }
        for router in &self.routers {
            if let Some(path) = router.mobile_router.path_without_policy().and_then(Endpoint::ipv6) {
                assert!(router.has_address(path), "path {path} is on no running interface");
            }
        }
    }
}
