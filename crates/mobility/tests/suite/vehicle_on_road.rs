//! A mobile router with several uplinks on the road, and its home agent, in virtual time. The networks carry
//! IPv6 and IPv4, lose, delay and drop packets, and have NATs that lose their mappings.
//!
//! Each uplink is in a network of its own. A packet of the router leaves by the uplink that has the source
//! address. A packet of the home agent arrives by the network of its destination. A packet inside IPv4 passes
//! the network's NAT, if there is one, in both directions.
//!
//! Besides the messages the harness checks the traffic of the mobile network.
//! [`VehicleOnRoad::is_traffic_to_agent_carried`] returns whether a packet from it would reach the home agent
//! now. [`VehicleOnRoad::is_traffic_to_router_carried`] returns whether a packet to it would reach the router
//! now.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::time::Duration;

use carnet_base::{Endpoint, Interface, Rng, Time, WallTime};
use carnet_mobility::home_agent::HomeAgentConfig;
use carnet_mobility::mobile_router::{HeartbeatIntervals, MobileRouterConfig, PathTraffic, UplinkConfig};
use carnet_mobility::{
    Authentication, Event, HomeAgent, MobileRouter, MobilityDrop, MobilityMessage, Output, SessionPeer,
};
use carnet_virtual::Timeline;
use carnet_wire::extension::ExtensionHeaders;
use carnet_wire::icmpv6::message_type::ROUTER_SOLICITATION;
use carnet_wire::ipv6::Header;
use carnet_wire::mobility::{MobilityHeader, MobilityOption, ParsedMobilityMessage};

use crate::agent;
use crate::test_messages::*;
use crate::test_setup::{UpdateTimes, addresses, router_config};

/// The home agent's IPv4 address.
pub const AGENT_IPV4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

/// Access network of an uplink.
#[derive(Debug, Clone)]
pub struct AccessNetwork {
    pub delay_range: (Duration, Duration),
    pub loss_probability: f64,
    /// Whether the network drops all IPv6 packets. The next two fields say this for IPv4 and for protocol 41.
    pub loses_ipv6: bool,
    pub loses_ipv4: bool,
    pub loses_protocol41: bool,
    /// Whether the network drops IPv6 packets to the router.
    pub loses_incoming_ipv6: bool,
    /// Queue that packets to the home agent pass, together with traffic of other stations. `None` for a
    /// network without a queue.
    pub queue: Option<LoadedQueue>,
    pub nat: Option<TestNat>,
}

impl AccessNetwork {
    fn new() -> AccessNetwork {
        AccessNetwork {
            delay_range: (Duration::from_millis(10), Duration::from_millis(10)),
            loss_probability: 0.0,
            loses_ipv6: false,
            loses_ipv4: false,
            loses_protocol41: false,
            loses_incoming_ipv6: false,
            queue: None,
            nat: None,
        }
    }
}

/// A drop-tail queue that the traffic of others loads.
#[derive(Debug, Clone)]
pub struct LoadedQueue {
    /// Traffic of other stations, as a share of the capacity.
    pub load_share: f64,
    /// Length of the queue in seconds of sending time.
    pub queue_limit_seconds: f64,
    waiting_seconds: f64,
    updated_at: Time,
}

impl LoadedQueue {
    pub fn new(now: Time, load: f64, limit: f64) -> LoadedQueue {
        LoadedQueue { load_share: load, queue_limit_seconds: limit, waiting_seconds: 0.0, updated_at: now }
    }

    /// Returns how long a packet that arrives now waits, and how likely it is dropped.
    fn delay_and_loss(&mut self, now: Time) -> (Duration, f64) {
        let span = now.saturating_since(self.updated_at).as_secs_f64();
        self.updated_at = now;
        self.waiting_seconds =
            (self.waiting_seconds + span * (self.load_share - 1.0)).clamp(0.0, self.queue_limit_seconds);
        let is_full = self.waiting_seconds >= self.queue_limit_seconds;
        (
            Duration::from_secs_f64(self.waiting_seconds),
            if is_full { 1.0 - 1.0 / self.load_share } else { 0.0 },
        )
    }
}

/// A network address and port translator for UDP; protocol 41 does not pass it.
#[derive(Debug, Clone)]
pub struct TestNat {
    pub address: Ipv4Addr,
    /// Mappings of the NAT: inside address and port, outside port, and time of the last use.
    pub mappings: Vec<(SocketAddrV4, u16, Time)>,
    pub mapping_timeout: Duration,
    next_port: u16,
}

impl TestNat {
    pub fn new(address: Ipv4Addr, timeout: Duration) -> TestNat {
        TestNat { address, mappings: Vec::new(), mapping_timeout: timeout, next_port: 20_000 }
    }

    fn translate_outgoing(&mut self, now: Time, inside: SocketAddrV4) -> SocketAddrV4 {
        let timeout = self.mapping_timeout;
        self.mappings.retain(|(_, _, used)| now.saturating_since(*used) < timeout);
        if let Some(mapping) = self.mappings.iter_mut().find(|(address, _, _)| *address == inside) {
            mapping.2 = now;
            return SocketAddrV4::new(self.address, mapping.1);
        }
        self.next_port += 1;
        self.mappings.push((inside, self.next_port, now));
        SocketAddrV4::new(self.address, self.next_port)
    }

    fn translate_incoming(&self, now: Time, port: u16) -> Option<SocketAddrV4> {
        let fresh = |used: Time| now.saturating_since(used) < self.mapping_timeout;
        self.mappings.iter().find(|(_, p, used)| *p == port && fresh(*used)).map(|(inside, _, _)| *inside)
    }
}

enum PacketUnderway {
    /// A packet to the home agent, with the ends as the home agent sees them.
    Up(Option<(Endpoint, Endpoint)>, Vec<u8>),
    /// A packet to the router over an uplink, with the ends as the router sees them.
    Down(String, Option<(Endpoint, Endpoint)>, Vec<u8>),
}

/// A Binding Update as the router sent it.
#[derive(Debug, Clone)]
pub struct SentUpdate {
    pub sent_at: Time,
    pub uplink: String,
    /// The router's end if the update left inside IPv4 or UDP.
    pub tunnel_end: Option<Endpoint>,
    pub received_packet: ReceivedPacket,
    /// BID, BID-PRI and care-of address of each Binding Identifier option.
    pub binding_identifiers: Vec<(u16, u8, Option<IpAddr>)>,
    pub described_flows: Vec<u16>,
    pub summarized_flows: Vec<u16>,
    pub replaces_all_bindings: bool,
    pub ipv4_care_of: Option<Ipv4Addr>,
}

impl SentUpdate {
    pub fn bids(&self) -> Vec<u16> {
        self.binding_identifiers.iter().map(|(bid, _, _)| *bid).collect()
    }
}

/// A Heartbeat request as the router sent it.
#[derive(Debug, Clone)]
pub struct SentHeartbeat {
    pub sent_at: Time,
    pub uplink: String,
    pub sequence: u32,
}

pub struct VehicleOnRoad {
    pub now: Time,
    pub agent: HomeAgent,
    pub agent_config: HomeAgentConfig,
    pub is_agent_down: bool,
    /// Whether Binding Errors about heartbeats from unregistered addresses are lost.
    pub sends_no_binding_errors: bool,
    pub router: MobileRouter,
    pub config: MobileRouterConfig,
    /// The key of the encrypted sessions through which all messages pass; `None` in the clear.
    pub session: Option<SessionPeer>,
    pub interfaces: BTreeMap<String, Interface>,
    pub networks: BTreeMap<String, AccessNetwork>,
    pub rng: Rng,
    packets_underway: Timeline<PacketUnderway>,
    pub sent_updates: Vec<SentUpdate>,
    pub sent_heartbeats: Vec<SentHeartbeat>,
    /// Heartbeat responses that arrived: uplink and number.
    pub received_responses: Vec<(String, u32)>,
    pub events: Vec<(Time, Event)>,
    pub agent_events: Vec<Event>,
    pub dropped_messages: Vec<MobilityDrop>,
    /// Requests of the captive portal URL: time, uplink, and source addresses.
    pub portal_requests: Vec<(Time, String, Vec<IpAddr>)>,
    /// Router Solicitations: time and uplink.
    pub router_solicitations: Vec<(Time, String)>,
    /// Counts of tunnelled packets of each uplink, as the station keeps them.
    pub traffic_counts: BTreeMap<usize, PathTraffic>,
    sent_at: UpdateTimes,
    inputs_at_time: (Time, usize),
}

/// Returns the config of an uplink with an identifier.
pub fn uplink_config(interface: &str, priority: u32, bid: u16) -> UplinkConfig {
    UplinkConfig { interface: interface.into(), priority, bid: Some(bid), ..UplinkConfig::default() }
}

/// Returns the config of a router with the uplinks `wifi` (BID 1), `cell` (2) and `sat` (3), with heartbeats
/// and a key.
pub fn config() -> MobileRouterConfig {
    MobileRouterConfig {
        home_agent_ipv4: Some(AGENT_IPV4),
        uplinks: vec![
            uplink_config("wifi", 10, 1),
            uplink_config("cell", 20, 2),
            uplink_config("sat", 30, 3),
        ],
        liveness: Some(HeartbeatIntervals::default()),
        authentication: Authentication::SharedKey(test_association()),
        ..router_config()
    }
}

pub fn agent_config() -> HomeAgentConfig {
    agent::authenticated_config()
}

impl VehicleOnRoad {
    pub fn new(config: MobileRouterConfig) -> VehicleOnRoad {
        VehicleOnRoad::with_configs(config, agent_config(), 1)
    }

    pub fn with_configs(
        config: MobileRouterConfig,
        agent_config: HomeAgentConfig,
        seed: u64,
    ) -> VehicleOnRoad {
        let mut rng = Rng::new(seed);
        VehicleOnRoad {
            now: Time::from_secs(100),
            agent: HomeAgent::new(agent_config.clone()),
            agent_config,
            is_agent_down: false,
            sends_no_binding_errors: false,
            router: MobileRouter::new(config.clone(), &mut rng),
            networks: config.uplinks.iter().map(|u| (u.interface.clone(), AccessNetwork::new())).collect(),
            config,
            session: None,
            interfaces: BTreeMap::new(),
            rng,
            packets_underway: Timeline::default(),
            sent_updates: Vec::new(),
            sent_heartbeats: Vec::new(),
            received_responses: Vec::new(),
            events: Vec::new(),
            agent_events: Vec::new(),
            dropped_messages: Vec::new(),
            portal_requests: Vec::new(),
            router_solicitations: Vec::new(),
            traffic_counts: BTreeMap::new(),
            sent_at: UpdateTimes::default(),
            inputs_at_time: (Time::ZERO, 0),
        }
    }

    /// Returns the value of [`config`] without the key.
    pub fn config_without_key() -> MobileRouterConfig {
        MobileRouterConfig { authentication: Authentication::None, ..config() }
    }

    /// Returns the config of a home agent that demands no key.
    pub fn agent_config_without_key() -> HomeAgentConfig {
        agent::config()
    }

    /// Delivers a packet over IPv6 to the home agent.
    pub fn deliver_to_agent(&mut self, packet: &[u8]) {
        self.handle_arrival(PacketUnderway::Up(None, packet.to_vec()));
    }

    /// Creates a vehicle whose three uplinks are up on IPv6 and registered.
    pub fn with_registered_uplinks() -> VehicleOnRoad {
        let mut road = VehicleOnRoad::new(config());
        road.attach_all_uplinks();
        road.advance_seconds(5.0);
        assert_eq!(road.bound_bids(), [1, 2, 3]);
        road.clear_records();
        road
    }

    pub fn attach_all_uplinks(&mut self) {
        self.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
        self.attach_uplink("cell", Some("2001:db8:f2::10"), None);
        self.attach_uplink("sat", Some("2001:db8:f3::10"), None);
    }

    /// Brings an uplink up with these addresses.
    pub fn attach_uplink(&mut self, name: &str, ipv6: Option<&str>, ipv4: Option<Ipv4Addr>) {
        let addresses = addresses(&["fe80::2"].into_iter().chain(ipv6).collect::<Vec<_>>());
        let interface = Interface {
            routers: ipv6.iter().map(|_| addr("fe80::ff").into()).collect(),
            ipv4_addresses: ipv4.into_iter().map(Into::into).collect(),
            ipv4_routers: ipv4.iter().map(|_| Ipv4Addr::new(10, 0, 0, 1).into()).collect(),
            ..carnet_virtual::running_interface(name, [2, 0, 0, 0, 1, 0], addresses)
        };
        self.interfaces.insert(name.into(), interface.clone());
        self.run_on_router(|router, now, wall| router.handle_interface(now, wall, &interface));
    }

    pub fn detach_uplink(&mut self, name: &str) {
        let Some(interface) = self.interfaces.get_mut(name) else { return };
        interface.running = false;
        interface.routers.clear();
        interface.ipv4_routers.clear();
        let interface = interface.clone();
        self.run_on_router(|router, now, wall| router.handle_interface(now, wall, &interface));
    }

    pub fn network_mut(&mut self, name: &str) -> &mut AccessNetwork {
        self.networks.get_mut(name).expect("a network")
    }

    /// Makes an uplink's path drop everything without an error, or carry packets again.
    pub fn set_losing_everything(&mut self, name: &str, dead: bool) {
        let network = self.network_mut(name);
        network.loses_ipv6 = dead;
        network.loses_ipv4 = dead;
    }

    pub fn wall_time(&self) -> WallTime {
        agent::WALL_START + self.now.saturating_since(Time::ZERO)
    }

    pub fn handle_next_event(&mut self, end: Time) -> bool {
        let timers =
            [self.router.poll_timeout(), self.agent.poll_timeout(), self.packets_underway.next_event_at()];
        let Some(at) = timers.into_iter().flatten().min().filter(|at| *at <= end) else { return false };
        self.now = self.now.max(at);
        if let Some(flight) = self.packets_underway.pop_due_event(self.now) {
            self.handle_arrival(flight);
        } else if self.agent.poll_timeout().is_some_and(|at| at <= self.now) {
            let now = self.now;
            self.agent.handle_timeout(now);
            self.handle_agent_outputs();
        } else {
            let traffic = self.traffic_counts.clone();
            self.run_on_router(|router, now, wall| {
                if !traffic.is_empty() {
                    router.handle_traffic(now, traffic);
                }
                router.handle_timeout(now, wall);
            });
        }
        true
    }

    pub fn advance_seconds(&mut self, seconds: f64) {
        let end = self.now + Duration::from_secs_f64(seconds);
        while self.handle_next_event(end) {}
        self.now = end;
    }

    /// Runs while `pending` holds; panics after `seconds`. Returns how long it took.
    #[track_caller]
    pub fn advance_while(
        &mut self,
        seconds: f64,
        what: &str,
        pending: impl Fn(&VehicleOnRoad) -> bool,
    ) -> Duration {
        let start = self.now;
        let end = start + Duration::from_secs_f64(seconds);
        while pending(self) {
            if !self.handle_next_event(end) {
                panic!("not within {seconds} s: {what}; {}", self.describe_state());
            }
        }
        self.now.saturating_since(start)
    }

    pub fn describe_state(&self) -> String {
        let bindings: Vec<String> = self
            .agent
            .bindings()
            .bindings_of(self.config.home_address)
            .map(|b| format!("{:?}@{}", b.bid, b.care_of_address))
            .collect();
        format!("{} paths {:#?} bindings {bindings:?}", self.now, self.router.paths())
    }

    pub fn run_on_router<R>(&mut self, does: impl FnOnce(&mut MobileRouter, Time, WallTime) -> R) -> R {
        if self.inputs_at_time.0 == self.now {
            self.inputs_at_time.1 += 1;
            assert!(self.inputs_at_time.1 < 300, "a loop: {}", self.describe_state());
        } else {
            self.inputs_at_time = (self.now, 0);
        }
        let (now, wall) = (self.now, self.wall_time());
        let result = does(&mut self.router, now, wall);
        let mut count = 0;
        while let Some(output) = self.router.poll_output() {
            count += 1;
            assert!(count < 64, "a flood");
            match output {
                Output::Packet(packet) => self.send_to_agent(None, packet),
                Output::Encapsulated { local, remote, packet } => {
                    self.send_to_agent(Some((local, remote)), packet)
                }
                Output::Event(event) => self.events.push((now, event)),
                Output::ProbePortal { uplink, sources } => self.portal_requests.push((now, uplink, sources)),
                Output::Link(message) if message.message.first() == Some(&ROUTER_SOLICITATION) => {
                    self.router_solicitations.push((now, message.interface));
                }
                _ => {}
            }
        }
        self.check_invariants();
        result
    }

    fn handle_agent_outputs(&mut self) {
        while let Some(output) = self.agent.poll_output() {
            if self.sends_no_binding_errors
                && let Output::Packet(packet) | Output::Encapsulated { packet, .. } = &output
                && matches!(
                    ReceivedPacket::parse_packet(packet).message,
                    ReceivedMessage::BindingError { .. }
                )
            {
                continue;
            }
            match output {
                Output::Packet(packet) => {
                    let destination = Header::parse(&packet).expect("an IPv6 header").destination;
                    let uplink = self.uplink_with_address(IpAddr::V6(destination));
                    if let Some(uplink) = uplink {
                        self.send_to_router(&uplink, None, packet);
                    }
                }
                Output::Encapsulated { local, remote, packet } => {
                    if let Some((uplink, inside)) = self.path_to_router(remote) {
                        self.send_to_router(&uplink, Some((inside, local)), packet);
                    }
                }
                Output::Event(event) => self.agent_events.push(event),
                _ => {}
            }
        }
    }

    /// Returns the uplink that a socket is bound to; `None` if no uplink has the address. The port decides if
    /// several uplinks have it.
    fn uplink_behind_socket(&self, socket: SocketAddrV4) -> Option<String> {
        let bound = self.router.uplinks().iter().find(|uplink| {
            let interface = self.interfaces.get(&uplink.config.interface);
            uplink.udp_port == socket.port()
                && interface.is_some_and(|it| {
                    it.running && it.ipv4_addresses.iter().any(|a| a.addr() == *socket.ip())
                })
        });
        bound.map(|uplink| uplink.config.interface.clone())
    }

    fn uplink_with_address(&self, address: IpAddr) -> Option<String> {
        let has = |interface: &&Interface| {
            interface.running
                && match address {
                    // The home address belongs to the interface that is on the home link.
                    IpAddr::V6(address) if address == self.config.home_address => {
                        interface.addresses.iter().any(|a| self.config.home_prefix.contains(&a.address))
                    }
                    IpAddr::V6(address) => interface.addresses.iter().any(|a| a.address == address),
                    IpAddr::V4(address) => interface.ipv4_addresses.iter().any(|a| a.addr() == address),
                }
        };
        self.interfaces.values().find(has).map(|interface| interface.name.clone())
    }

    /// Returns the uplink by which packets reach this remote end of the home agent's tunnel, and the router's
    /// own end. `None` if the end belongs to no uplink.
    fn path_to_router(&self, remote: Endpoint) -> Option<(String, Endpoint)> {
        for (name, network) in &self.networks {
            if let Some(nat) = &network.nat
                && let Endpoint::Udp(socket) = remote
                && *socket.ip() == nat.address
            {
                let inside = nat.translate_incoming(self.now, socket.port())?;
                // The interface behind the NAT may have another address by now.
                return (self.uplink_behind_socket(inside).as_ref() == Some(name))
                    .then(|| (name.clone(), Endpoint::Udp(inside)));
            }
        }
        let address = remote.ipv4()?;
        let uplink = self.uplink_with_address(IpAddr::V4(address))?;
        self.networks[&uplink].nat.is_none().then_some((uplink, remote))
    }

    fn send_to_agent(&mut self, ends: Option<(Endpoint, Endpoint)>, packet: Vec<u8>) {
        let header = Header::parse(&packet).expect("an IPv6 header");
        let (source, uplink) = match ends {
            None => (IpAddr::V6(header.source), self.uplink_with_address(IpAddr::V6(header.source))),
            Some((local, remote)) => {
                assert_eq!(remote.ipv4(), Some(AGENT_IPV4));
                let source = IpAddr::V4(local.ipv4().expect("an IPv4 end"));
                let uplink = match local {
                    Endpoint::Udp(local) => self.uplink_behind_socket(local),
                    _ => self.uplink_with_address(source),
                };
                (source, uplink)
            }
        };
        let uplink = uplink.unwrap_or_else(|| panic!("from {source}, which no running uplink has"));
        self.record_message(&uplink, ends, &packet);
        if let Some((delay, outer)) = self.pass_through_network(&uplink, ends) {
            self.schedule_packet(delay, PacketUnderway::Up(outer, packet));
        }
    }

    /// Returns the delay of a packet from the router's end, and its ends as the home agent sees them; `None`
    /// if the packet does not pass now.
    #[allow(clippy::type_complexity, reason = "a pair of ends, twice optional")]
    fn pass_through_network(
        &mut self,
        uplink: &str,
        ends: Option<(Endpoint, Endpoint)>,
    ) -> Option<(Duration, Option<(Endpoint, Endpoint)>)> {
        let now = self.now;
        let network = self.networks.get_mut(uplink).expect("a network");
        let outer = match ends {
            None if network.loses_ipv6 => return None,
            None => None,
            Some(_) if network.loses_ipv4 => return None,
            Some((Endpoint::Udp(inside), remote)) => {
                let seen = network.nat.as_mut().map_or(inside, |nat| nat.translate_outgoing(now, inside));
                Some((remote, Endpoint::Udp(seen)))
            }
            Some(_) if network.nat.is_some() || network.loses_protocol41 => return None,
            Some((local, remote)) => Some((remote, local)),
        };
        if self.rng.is_true_with_probability(network.loss_probability) {
            return None;
        }
        let (wait, drop) =
            network.queue.as_mut().map_or((Duration::ZERO, 0.0), |queue| queue.delay_and_loss(now));
        if self.rng.is_true_with_probability(drop) {
            return None;
        }
        let delay = self.rng.duration_between(network.delay_range.0, network.delay_range.1) + wait;
        Some((delay, outer))
    }

    fn send_to_router(&mut self, uplink: &str, outer: Option<(Endpoint, Endpoint)>, packet: Vec<u8>) {
        let network = &self.networks[uplink];
        let dead = match outer {
            None => network.loses_ipv6 || network.loses_incoming_ipv6,
            Some((Endpoint::Ipv4(_), _)) => network.loses_ipv4 || network.loses_protocol41,
            Some(_) => network.loses_ipv4,
        };
        let (loss, delay) = (network.loss_probability, network.delay_range);
        if !dead && !self.rng.is_true_with_probability(loss) {
            let delay = self.rng.duration_between(delay.0, delay.1);
            self.schedule_packet(delay, PacketUnderway::Down(uplink.to_string(), outer, packet));
        }
    }

    fn schedule_packet(&mut self, delay: Duration, flight: PacketUnderway) {
        self.packets_underway.schedule_at(self.now + delay, flight);
    }

    fn handle_arrival(&mut self, flight: PacketUnderway) {
        let (now, wall) = (self.now, self.wall_time());
        match flight {
            PacketUnderway::Up(outer, packet) => {
                if self.is_agent_down {
                    return;
                }
                let message = parse_mobility_message(&packet).expect("a message");
                let message = MobilityMessage { tunnel_ends: outer, session: self.session, ..message };
                if let Err(reason) = self.agent.handle_message(now, wall, message) {
                    self.dropped_messages.push(reason);
                }
                self.handle_agent_outputs();
            }
            PacketUnderway::Down(uplink, outer, packet) => {
                if self.interfaces.get(&uplink).is_some_and(|interface| interface.running) {
                    self.deliver_to_router(outer, &packet);
                }
            }
        }
    }

    pub fn deliver_to_router(&mut self, outer: Option<(Endpoint, Endpoint)>, packet: &[u8]) {
        let message = parse_mobility_message(packet).expect("a message");
        let message = MobilityMessage { tunnel_ends: outer, session: self.session, ..message };
        if let Err(reason) = self.run_on_router(|router, now, wall| router.handle_message(now, wall, message))
        {
            self.dropped_messages.push(reason);
        }
    }

    /// Records a message of the router, and checks RFC 6275 11.7.1.
    fn record_message(&mut self, uplink: &str, ends: Option<(Endpoint, Endpoint)>, packet: &[u8]) {
        let seen = ReceivedPacket::parse_packet(packet);
        let header = Header::parse(packet).expect("an IPv6 header");
        let extensions = ExtensionHeaders::parse(packet).expect("extension headers");
        let octets = &packet[extensions.upper_layer_offset..];
        let source = extensions.home_address.unwrap_or(header.source);
        let parsed = MobilityHeader::parse_verified(octets, source, header.destination).expect("a message");
        let update = match parsed.message().expect("a message") {
            ParsedMobilityMessage::BindingUpdate(update) => update,
            ParsedMobilityMessage::Heartbeat(heartbeat) if heartbeat.response => {
                return self.received_responses.push((uplink.to_string(), heartbeat.sequence));
            }
            ParsedMobilityMessage::Heartbeat(heartbeat) => {
                let (at, uplink) = (self.now, uplink.to_string());
                return self.sent_heartbeats.push(SentHeartbeat {
                    sent_at: at,
                    uplink,
                    sequence: heartbeat.sequence,
                });
            }
            other => panic!("a router sends no {other:?}"),
        };
        let now = self.now;
        self.sent_at.record_update(now);
        let mut sent = SentUpdate {
            sent_at: now,
            uplink: uplink.to_string(),
            tunnel_end: ends.map(|(local, _)| local),
            received_packet: seen,
            binding_identifiers: Vec::new(),
            described_flows: Vec::new(),
            summarized_flows: Vec::new(),
            replaces_all_bindings: update.flags.overwrite,
            ipv4_care_of: None,
        };
        for option in update.options.iter().flatten() {
            match option {
                MobilityOption::BindingIdentifier { bid, priority, care_of_address, .. } => {
                    sent.binding_identifiers.push((bid, priority, care_of_address));
                }
                MobilityOption::FlowIdentification { fid, .. } => sent.described_flows.push(fid),
                MobilityOption::FlowSummary(fids) => sent.summarized_flows.extend(fids.iter()),
                MobilityOption::Ipv4CareOfAddress(address) => sent.ipv4_care_of = Some(address),
                _ => {}
            }
        }
        self.sent_updates.push(sent);
    }

    pub fn clear_records(&mut self) {
        self.sent_updates.clear();
        self.sent_heartbeats.clear();
        self.received_responses.clear();
        self.events.clear();
        self.agent_events.clear();
        self.dropped_messages.clear();
        self.portal_requests.clear();
        self.router_solicitations.clear();
    }

    pub fn bound_bids(&self) -> Vec<u16> {
        let mut bids: Vec<u16> = self
            .agent
            .bindings()
            .bindings_of(self.config.home_address)
            .filter_map(|binding| binding.bid)
            .collect();
        bids.sort_unstable();
        bids
    }

    /// Returns the BIDs that the home agent has registered, the best first.
    pub fn preferred_bids(&self) -> Vec<u16> {
        self.agent
            .bindings()
            .bindings_of(self.config.home_address)
            .filter_map(|binding| binding.bid)
            .collect()
    }

    /// Returns the care-of addresses that the home agent has registered, the best first.
    pub fn registered_endpoints(&self) -> Vec<Endpoint> {
        self.agent
            .bindings()
            .bindings_of(self.config.home_address)
            .map(|binding| binding.care_of_address)
            .collect()
    }

    /// Returns the uplinks that may carry traffic, the best first.
    pub fn transmitting_uplinks(&self) -> Vec<&str> {
        self.router
            .paths()
            .iter()
            .filter(|path| path.may_transmit)
            .map(|path| self.config.uplinks[path.uplink].interface.as_str())
            .collect()
    }

    /// Returns whether the home agent receives and accepts a packet from the mobile network.
    pub fn is_traffic_to_agent_carried(&self) -> bool {
        let paths = self.router.paths();
        let Some(path) = paths.first().filter(|path| path.may_transmit) else { return false };
        let name = &self.config.uplinks[path.uplink].interface;
        let network = &self.networks[name];
        let running = self.interfaces.get(name).is_some_and(|interface| interface.running);
        let passes = match path.local {
            Endpoint::Ipv6(_) => !network.loses_ipv6,
            Endpoint::Ipv4(_) => !network.loses_ipv4 && !network.loses_protocol41 && network.nat.is_none(),
            Endpoint::Udp(_) => !network.loses_ipv4,
        };
        let seen = match (path.local, &network.nat) {
            (Endpoint::Udp(inside), Some(nat)) => {
                let mapping = nat.mappings.iter().find(|(address, _, used)| {
                    *address == inside && self.now.saturating_since(*used) < nat.mapping_timeout
                });
                mapping.map(|(_, port, _)| Endpoint::Udp(SocketAddrV4::new(nat.address, *port)))
            }
            (local, _) => Some(local),
        };
        running
            && passes
            && seen.is_some_and(|seen| {
                self.agent.bindings().accepts_packets_from(self.config.home_address, seen)
            })
    }

    /// Returns whether the router receives and accepts a packet to the mobile network.
    pub fn is_traffic_to_router_carried(&self) -> bool {
        let Some(best) = self.agent.bindings().bindings_of(self.config.home_address).next() else {
            return false;
        };
        let (uplink, local) = match best.care_of_address {
            Endpoint::Ipv6(address) => match self.uplink_with_address(IpAddr::V6(address)) {
                Some(uplink)
                    if !self.networks[&uplink].loses_ipv6 && !self.networks[&uplink].loses_incoming_ipv6 =>
                {
                    (uplink, best.care_of_address)
                }
                _ => return false,
            },
            remote => match self.path_to_router(remote) {
                Some((uplink, inside)) if !self.networks[&uplink].loses_ipv4 => (uplink, inside),
                _ => return false,
            },
        };
        if matches!(local, Endpoint::Ipv4(_)) && self.networks[&uplink].loses_protocol41 {
            return false;
        }
        self.router.paths().iter().any(|path| path.local == local)
    }

    pub fn is_traffic_carried(&self) -> bool {
        self.is_traffic_to_agent_carried() && self.is_traffic_to_router_carried()
    }

    /// Returns the last Binding Update.
    #[track_caller]
    pub fn last_update(&self) -> &SentUpdate {
        self.sent_updates.last().expect("a Binding Update")
    }

    /// Restarts the home agent without its state.
    pub fn restart_agent(&mut self) {
        let counter = self.agent.restart_counter();
        self.agent = HomeAgent::new(self.agent_config.clone());
        self.agent.set_restart_counter(counter + 1);
    }

    fn check_invariants(&self) {
        let paths = self.router.paths();
        let transmits: Vec<bool> = paths.iter().map(|path| path.may_transmit).collect();
        assert!(transmits.is_sorted_by(|a, b| a >= b), "those that transmit come first: {paths:?}");
        for path in paths.iter().filter(|path| path.may_transmit) {
            let has = match path.local {
                Endpoint::Udp(local) => self.uplink_behind_socket(local),
                local => self.uplink_with_address(local.address()),
            };
            let name = &self.config.uplinks[path.uplink].interface;
            assert!(has.is_some(), "path {} is on no running interface", path.local);
            assert_eq!(has.as_ref(), Some(name));
        }
        let bids: Vec<u16> = self.router.bindings().iter().filter_map(|binding| binding.bid).collect();
        for flow in self.router.flows() {
            assert!(!flow.bids.is_empty() && flow.bids.iter().all(|(bid, _)| bids.contains(bid)));
        }
    }
}

pub fn endpoint_of(text: &str) -> Endpoint {
    Endpoint::Ipv6(text.parse::<Ipv6Addr>().expect("an address"))
}

pub fn identifier_option(bid: u16, status: u8) -> MobilityOption<'static> {
    MobilityOption::BindingIdentifier { bid, status, home: false, priority: 1, care_of_address: None }
}
