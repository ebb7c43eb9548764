//! A mobile router with several uplinks on the road, and its home agent, in virtual time. The networks carry
//! IPv6 and IPv4, lose, delay and drop packets, and have NATs that lose their mappings.
//!
//! Each uplink is in a network of its own. A packet of the router leaves by the uplink that has the source
//! address. A packet of the home agent arrives by the network of its destination. A packet inside IPv4 passes
//! the network's NAT, if there is one, in both directions.
//!
//! Besides the messages the harness checks the traffic of the mobile network. [`Road::is_upstream`] returns
//! whether a packet from it would reach the home agent now. [`Road::is_downstream`] returns whether a packet
//! to it would reach the router now.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::time::Duration;

use carnet_base::{Endpoint, Interface, Rng, Time, WallTime};
use carnet_mobility::home_agent::HomeAgentConfig;
use carnet_mobility::mobile_router::{Liveness, MobileRouterConfig, PathTraffic, UplinkConfig};
use carnet_mobility::{
    Authentication, Event, HomeAgent, MobileRouter, MobilityDrop, MobilityMessage, Output, SessionPeer,
};
use carnet_virtual::Timeline;
use carnet_wire::extension::Extensions;
use carnet_wire::icmpv6::types::ROUTER_SOLICITATION;
use carnet_wire::ipv6::Header;
use carnet_wire::mobility::{Message, MobilityHeader, MobilityOption};

use crate::agent;
use crate::craft::*;
use crate::setup::{UpdateTimes, addresses, router_config};

/// The home agent's IPv4 address.
pub const AGENT_IPV4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

/// Access network of an uplink.
#[derive(Debug, Clone)]
pub struct Network {
    pub delay: (Duration, Duration),
    pub loss: f64,
    /// Whether the network drops all IPv6 packets. The next two fields are the same for IPv4 and for protocol
    /// 41.
    pub ipv6_dead: bool,
    pub ipv4_dead: bool,
    pub protocol41_dead: bool,
    /// Whether the network drops IPv6 packets to the router.
    pub ipv6_deaf: bool,
    /// Queue that packets to the home agent pass, behind the load of others.
    pub queue: Option<Queue>,
    pub nat: Option<Nat>,
}

impl Network {
    fn new() -> Network {
        Network {
            delay: (Duration::from_millis(10), Duration::from_millis(10)),
            loss: 0.0,
            ipv6_dead: false,
            ipv4_dead: false,
            protocol41_dead: false,
            ipv6_deaf: false,
            queue: None,
            nat: None,
        }
    }
}

/// A drop-tail queue that the traffic of others loads.
#[derive(Debug, Clone)]
pub struct Queue {
    /// Load of others as a share of the capacity.
    pub load: f64,
    /// Length of the queue in seconds of sending time.
    pub limit: f64,
    waits: f64,
    looked_at: Time,
}

impl Queue {
    pub fn new(now: Time, load: f64, limit: f64) -> Queue {
        Queue { load, limit, waits: 0.0, looked_at: now }
    }

    /// Returns how long a packet that arrives now waits, and how likely it is dropped.
    fn wait(&mut self, now: Time) -> (Duration, f64) {
        let span = now.saturating_since(self.looked_at).as_secs_f64();
        self.looked_at = now;
        self.waits = (self.waits + span * (self.load - 1.0)).clamp(0.0, self.limit);
        let is_full = self.waits >= self.limit;
        (Duration::from_secs_f64(self.waits), if is_full { 1.0 - 1.0 / self.load } else { 0.0 })
    }
}

/// A network address and port translator for UDP; protocol 41 does not pass it.
#[derive(Debug, Clone)]
pub struct Nat {
    pub address: Ipv4Addr,
    /// Inside address and port, outside port, and time of the last use.
    pub mappings: Vec<(SocketAddrV4, u16, Time)>,
    pub timeout: Duration,
    next_port: u16,
}

impl Nat {
    pub fn new(address: Ipv4Addr, timeout: Duration) -> Nat {
        Nat { address, mappings: Vec::new(), timeout, next_port: 20_000 }
    }

    fn out(&mut self, now: Time, inside: SocketAddrV4) -> SocketAddrV4 {
        let timeout = self.timeout;
        self.mappings.retain(|(_, _, used)| now.saturating_since(*used) < timeout);
        if let Some(mapping) = self.mappings.iter_mut().find(|(address, _, _)| *address == inside) {
            mapping.2 = now;
            return SocketAddrV4::new(self.address, mapping.1);
        }
        self.next_port += 1;
        self.mappings.push((inside, self.next_port, now));
        SocketAddrV4::new(self.address, self.next_port)
    }

    fn back(&self, now: Time, port: u16) -> Option<SocketAddrV4> {
        let fresh = |used: Time| now.saturating_since(used) < self.timeout;
        self.mappings.iter().find(|(_, p, used)| *p == port && fresh(*used)).map(|(inside, _, _)| *inside)
    }
}

enum Flight {
    /// A packet to the home agent, with the ends as the home agent sees them.
    Up(Option<(Endpoint, Endpoint)>, Vec<u8>),
    /// A packet to the router over an uplink, with the ends as the router sees them.
    Down(String, Option<(Endpoint, Endpoint)>, Vec<u8>),
}

/// A Binding Update as the router sent it.
#[derive(Debug, Clone)]
pub struct SentUpdate {
    pub at: Time,
    pub uplink: String,
    /// The router's end if the update left inside IPv4 or UDP.
    pub inside: Option<Endpoint>,
    pub seen: Seen,
    /// BID, BID-PRI and care-of address of each Binding Identifier option.
    pub identifiers: Vec<(u16, u8, Option<IpAddr>)>,
    pub flows: Vec<u16>,
    pub summary: Vec<u16>,
    pub overwrite: bool,
    pub ipv4_care_of: Option<Ipv4Addr>,
}

impl SentUpdate {
    pub fn bids(&self) -> Vec<u16> {
        self.identifiers.iter().map(|(bid, _, _)| *bid).collect()
    }
}

/// A Heartbeat request as the router sent it.
#[derive(Debug, Clone)]
pub struct SentHeartbeat {
    pub at: Time,
    pub uplink: String,
    pub sequence: u32,
}

pub struct Road {
    pub now: Time,
    pub agent: HomeAgent,
    pub agent_config: HomeAgentConfig,
    pub agent_down: bool,
    /// Whether Binding Errors about heartbeats from unregistered addresses are lost.
    pub no_errors: bool,
    pub router: MobileRouter,
    pub config: MobileRouterConfig,
    /// The key of the encrypted sessions through which all messages pass; `None` in the clear.
    pub session: Option<SessionPeer>,
    pub interfaces: BTreeMap<String, Interface>,
    pub networks: BTreeMap<String, Network>,
    pub rng: Rng,
    flights: Timeline<Flight>,
    pub updates: Vec<SentUpdate>,
    pub heartbeats: Vec<SentHeartbeat>,
    /// Heartbeat responses that arrived: uplink and number.
    pub responses: Vec<(String, u32)>,
    pub events: Vec<(Time, Event)>,
    pub agent_events: Vec<Event>,
    pub drops: Vec<MobilityDrop>,
    /// Requests of the captive portal URL: time, uplink, and source addresses.
    pub probes: Vec<(Time, String, Vec<IpAddr>)>,
    /// Router Solicitations: time and uplink.
    pub solicitations: Vec<(Time, String)>,
    /// Counts of tunnelled packets of each uplink, as the station keeps them.
    pub traffic: BTreeMap<usize, PathTraffic>,
    sent_at: UpdateTimes,
    inputs: (Time, usize),
}

/// Returns the config of an uplink with an identifier.
pub fn uplink(interface: &str, priority: u32, bid: u16) -> UplinkConfig {
    UplinkConfig { interface: interface.into(), priority, bid: Some(bid), ..UplinkConfig::default() }
}

/// A router with the uplinks `wifi` (BID 1), `cell` (2) and `sat` (3), with heartbeats and a key.
pub fn config() -> MobileRouterConfig {
    MobileRouterConfig {
        home_agent_ipv4: Some(AGENT_IPV4),
        uplinks: vec![uplink("wifi", 10, 1), uplink("cell", 20, 2), uplink("sat", 30, 3)],
        liveness: Some(Liveness::default()),
        authentication: Authentication::SharedKey(association()),
        ..router_config()
    }
}

pub fn agent_config() -> HomeAgentConfig {
    agent::authenticated()
}

impl Road {
    pub fn new(config: MobileRouterConfig) -> Road {
        Road::with(config, agent_config(), 1)
    }

    pub fn with(config: MobileRouterConfig, agent_config: HomeAgentConfig, seed: u64) -> Road {
        let mut rng = Rng::new(seed);
        Road {
            now: Time::from_secs(100),
            agent: HomeAgent::new(agent_config.clone()),
            agent_config,
            agent_down: false,
            no_errors: false,
            router: MobileRouter::new(config.clone(), &mut rng),
            networks: config.uplinks.iter().map(|u| (u.interface.clone(), Network::new())).collect(),
            config,
            session: None,
            interfaces: BTreeMap::new(),
            rng,
            flights: Timeline::default(),
            updates: Vec::new(),
            heartbeats: Vec::new(),
            responses: Vec::new(),
            events: Vec::new(),
            agent_events: Vec::new(),
            drops: Vec::new(),
            probes: Vec::new(),
            solicitations: Vec::new(),
            traffic: BTreeMap::new(),
            sent_at: UpdateTimes::default(),
            inputs: (Time::ZERO, 0),
        }
    }

    /// [`config`] without a key.
    pub fn unsigned() -> MobileRouterConfig {
        MobileRouterConfig { authentication: Authentication::None, ..config() }
    }

    /// A home agent that demands no key.
    pub fn plain_agent() -> HomeAgentConfig {
        agent::config()
    }

    /// Hands a packet over IPv6 to the home agent.
    pub fn agent_receives(&mut self, packet: &[u8]) {
        self.arrive(Flight::Up(None, packet.to_vec()));
    }

    /// A road whose three uplinks are up on IPv6 and registered.
    pub fn registered() -> Road {
        let mut road = Road::new(config());
        road.attach_all();
        road.run(5.0);
        assert_eq!(road.bound_bids(), [1, 2, 3]);
        road.forget();
        road
    }

    pub fn attach_all(&mut self) {
        self.attach("wifi", Some("2001:db8:f1::10"), None);
        self.attach("cell", Some("2001:db8:f2::10"), None);
        self.attach("sat", Some("2001:db8:f3::10"), None);
    }

    /// Brings an uplink up with these addresses.
    pub fn attach(&mut self, name: &str, ipv6: Option<&str>, ipv4: Option<Ipv4Addr>) {
        let addresses = addresses(&["fe80::2"].into_iter().chain(ipv6).collect::<Vec<_>>());
        let interface = Interface {
            routers: ipv6.iter().map(|_| addr("fe80::ff").into()).collect(),
            ipv4_addresses: ipv4.into_iter().map(Into::into).collect(),
            ipv4_routers: ipv4.iter().map(|_| Ipv4Addr::new(10, 0, 0, 1).into()).collect(),
            ..carnet_virtual::running_interface(name, [2, 0, 0, 0, 1, 0], addresses)
        };
        self.interfaces.insert(name.into(), interface.clone());
        self.router_does(|router, now, wall| router.handle_interface(now, wall, &interface));
    }

    pub fn detach(&mut self, name: &str) {
        let Some(interface) = self.interfaces.get_mut(name) else { return };
        interface.running = false;
        interface.routers.clear();
        interface.ipv4_routers.clear();
        let interface = interface.clone();
        self.router_does(|router, now, wall| router.handle_interface(now, wall, &interface));
    }

    pub fn network(&mut self, name: &str) -> &mut Network {
        self.networks.get_mut(name).expect("a network")
    }

    /// Makes an uplink's path drop everything without an error, or carry packets again.
    pub fn black_hole(&mut self, name: &str, dead: bool) {
        let network = self.network(name);
        network.ipv6_dead = dead;
        network.ipv4_dead = dead;
    }

    pub fn wall(&self) -> WallTime {
        agent::WALL_START + self.now.saturating_since(Time::ZERO)
    }

    // Time

    pub fn step(&mut self, end: Time) -> bool {
        let timers = [self.router.poll_timeout(), self.agent.poll_timeout(), self.flights.next_time()];
        let Some(at) = timers.into_iter().flatten().min().filter(|at| *at <= end) else { return false };
        self.now = self.now.max(at);
        if let Some(flight) = self.flights.pop_due(self.now) {
            self.arrive(flight);
        } else if self.agent.poll_timeout().is_some_and(|at| at <= self.now) {
            let now = self.now;
            self.agent.handle_timeout(now);
            self.drain_agent();
        } else {
            let traffic = self.traffic.clone();
            self.router_does(|router, now, wall| {
                if !traffic.is_empty() {
                    router.handle_traffic(now, traffic);
                }
                router.handle_timeout(now, wall);
            });
        }
        true
    }

    pub fn run(&mut self, seconds: f64) {
        let end = self.now + Duration::from_secs_f64(seconds);
        while self.step(end) {}
        self.now = end;
    }

    /// Runs while `pending` holds; panics after `seconds`. Returns how long it took.
    #[track_caller]
    pub fn run_while(&mut self, seconds: f64, what: &str, pending: impl Fn(&Road) -> bool) -> Duration {
        let start = self.now;
        let end = start + Duration::from_secs_f64(seconds);
        while pending(self) {
            if !self.step(end) {
                panic!("not within {seconds} s: {what}; {}", self.describe());
            }
        }
        self.now.saturating_since(start)
    }

    pub fn describe(&self) -> String {
        let bindings: Vec<String> = self
            .agent
            .bindings()
            .of(self.config.home_address)
            .map(|b| format!("{:?}@{}", b.bid, b.care_of_address))
            .collect();
        format!("{} paths {:#?} bindings {bindings:?}", self.now, self.router.paths())
    }

    pub fn router_does<R>(&mut self, does: impl FnOnce(&mut MobileRouter, Time, WallTime) -> R) -> R {
        if self.inputs.0 == self.now {
            self.inputs.1 += 1;
            assert!(self.inputs.1 < 300, "a loop: {}", self.describe());
        } else {
            self.inputs = (self.now, 0);
        }
        let (now, wall) = (self.now, self.wall());
        let result = does(&mut self.router, now, wall);
        let mut count = 0;
        while let Some(output) = self.router.poll_output() {
            count += 1;
            assert!(count < 64, "a flood");
            match output {
                Output::Packet(packet) => self.up(None, packet),
                Output::Encapsulated { local, remote, packet } => self.up(Some((local, remote)), packet),
                Output::Event(event) => self.events.push((now, event)),
                Output::ProbePortal { uplink, sources } => self.probes.push((now, uplink, sources)),
                Output::Link(message) if message.message.first() == Some(&ROUTER_SOLICITATION) => {
                    self.solicitations.push((now, message.interface));
                }
                _ => {}
            }
        }
        self.check();
        result
    }

    fn drain_agent(&mut self) {
        while let Some(output) = self.agent.poll_output() {
            if self.no_errors
                && let Output::Packet(packet) | Output::Encapsulated { packet, .. } = &output
                && matches!(Seen::read(packet).message, SeenMessage::BindingError { .. })
            {
                continue;
            }
            match output {
                Output::Packet(packet) => {
                    let destination = Header::parse(&packet).expect("an IPv6 header").destination;
                    let uplink = self.uplink_with(IpAddr::V6(destination));
                    if let Some(uplink) = uplink {
                        self.down(&uplink, None, packet);
                    }
                }
                Output::Encapsulated { local, remote, packet } => {
                    if let Some((uplink, inside)) = self.way_down(remote) {
                        self.down(&uplink, Some((inside, local)), packet);
                    }
                }
                Output::Event(event) => self.agent_events.push(event),
                _ => {}
            }
        }
    }

    /// Returns the uplink that a socket is bound to. The port decides if several uplinks have the address.
    fn uplink_at(&self, socket: SocketAddrV4) -> Option<String> {
        let bound = self.router.uplinks().iter().find(|uplink| {
            let interface = self.interfaces.get(&uplink.config.interface);
            uplink.udp_port == socket.port()
                && interface.is_some_and(|it| {
                    it.running && it.ipv4_addresses.iter().any(|a| a.addr() == *socket.ip())
                })
        });
        bound.map(|uplink| uplink.config.interface.clone())
    }

    fn uplink_with(&self, address: IpAddr) -> Option<String> {
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

    /// Returns the uplink that an IPv4 or UDP end leads to, and the router's end.
    fn way_down(&self, remote: Endpoint) -> Option<(String, Endpoint)> {
        for (name, network) in &self.networks {
            if let Some(nat) = &network.nat
                && let Endpoint::Udp(socket) = remote
                && *socket.ip() == nat.address
            {
                let inside = nat.back(self.now, socket.port())?;
                // The interface behind the NAT may have another address by now.
                return (self.uplink_at(inside).as_ref() == Some(name))
                    .then(|| (name.clone(), Endpoint::Udp(inside)));
            }
        }
        let address = remote.ipv4()?;
        let uplink = self.uplink_with(IpAddr::V4(address))?;
        self.networks[&uplink].nat.is_none().then_some((uplink, remote))
    }

    fn up(&mut self, ends: Option<(Endpoint, Endpoint)>, packet: Vec<u8>) {
        let header = Header::parse(&packet).expect("an IPv6 header");
        let (source, uplink) = match ends {
            None => (IpAddr::V6(header.source), self.uplink_with(IpAddr::V6(header.source))),
            Some((local, remote)) => {
                assert_eq!(remote.ipv4(), Some(AGENT_IPV4));
                let source = IpAddr::V4(local.ipv4().expect("an IPv4 end"));
                let uplink = match local {
                    Endpoint::Udp(local) => self.uplink_at(local),
                    _ => self.uplink_with(source),
                };
                (source, uplink)
            }
        };
        let uplink = uplink.unwrap_or_else(|| panic!("from {source}, which no running uplink has"));
        self.note(&uplink, ends, &packet);
        if let Some((delay, outer)) = self.passes(&uplink, ends) {
            self.fly(delay, Flight::Up(outer, packet));
        }
    }

    /// Returns the delay of a packet from the router's end, and its ends as the home agent sees them; `None`
    /// if the packet does not pass now.
    #[allow(clippy::type_complexity, reason = "a pair of ends, twice optional")]
    fn passes(
        &mut self,
        uplink: &str,
        ends: Option<(Endpoint, Endpoint)>,
    ) -> Option<(Duration, Option<(Endpoint, Endpoint)>)> {
        let now = self.now;
        let network = self.networks.get_mut(uplink).expect("a network");
        let outer = match ends {
            None if network.ipv6_dead => return None,
            None => None,
            Some(_) if network.ipv4_dead => return None,
            Some((Endpoint::Udp(inside), remote)) => {
                let seen = network.nat.as_mut().map_or(inside, |nat| nat.out(now, inside));
                Some((remote, Endpoint::Udp(seen)))
            }
            Some(_) if network.nat.is_some() || network.protocol41_dead => return None,
            Some((local, remote)) => Some((remote, local)),
        };
        if self.rng.chance(network.loss) {
            return None;
        }
        let (wait, drop) = network.queue.as_mut().map_or((Duration::ZERO, 0.0), |queue| queue.wait(now));
        if self.rng.chance(drop) {
            return None;
        }
        let delay = self.rng.duration(network.delay.0, network.delay.1) + wait;
        Some((delay, outer))
    }

    fn down(&mut self, uplink: &str, outer: Option<(Endpoint, Endpoint)>, packet: Vec<u8>) {
        let network = &self.networks[uplink];
        let dead = match outer {
            None => network.ipv6_dead || network.ipv6_deaf,
            Some((Endpoint::Ipv4(_), _)) => network.ipv4_dead || network.protocol41_dead,
            Some(_) => network.ipv4_dead,
        };
        let (loss, delay) = (network.loss, network.delay);
        if !dead && !self.rng.chance(loss) {
            let delay = self.rng.duration(delay.0, delay.1);
            self.fly(delay, Flight::Down(uplink.to_string(), outer, packet));
        }
    }

    fn fly(&mut self, delay: Duration, flight: Flight) {
        self.flights.schedule(self.now + delay, flight);
    }

    fn arrive(&mut self, flight: Flight) {
        let (now, wall) = (self.now, self.wall());
        match flight {
            Flight::Up(outer, packet) => {
                if self.agent_down {
                    return;
                }
                let message = mobility_message(&packet).expect("a message");
                let message = MobilityMessage { outer, session: self.session, ..message };
                if let Err(reason) = self.agent.handle_message(now, wall, message) {
                    self.drops.push(reason);
                }
                self.drain_agent();
            }
            Flight::Down(uplink, outer, packet) => {
                if self.interfaces.get(&uplink).is_some_and(|interface| interface.running) {
                    self.router_receives(outer, &packet);
                }
            }
        }
    }

    pub fn router_receives(&mut self, outer: Option<(Endpoint, Endpoint)>, packet: &[u8]) {
        let message = mobility_message(packet).expect("a message");
        let message = MobilityMessage { outer, session: self.session, ..message };
        if let Err(reason) = self.router_does(|router, now, wall| router.handle_message(now, wall, message)) {
            self.drops.push(reason);
        }
    }

    /// Records a message of the router, and checks RFC 6275 11.7.1.
    fn note(&mut self, uplink: &str, ends: Option<(Endpoint, Endpoint)>, packet: &[u8]) {
        let seen = Seen::read(packet);
        let header = Header::parse(packet).expect("an IPv6 header");
        let extensions = Extensions::parse(packet).expect("extension headers");
        let octets = &packet[extensions.upper_layer_offset..];
        let source = extensions.home_address.unwrap_or(header.source);
        let parsed = MobilityHeader::parse_verified(octets, source, header.destination).expect("a message");
        let update = match parsed.message().expect("a message") {
            Message::BindingUpdate(update) => update,
            Message::Heartbeat(heartbeat) if heartbeat.response => {
                return self.responses.push((uplink.to_string(), heartbeat.sequence));
            }
            Message::Heartbeat(heartbeat) => {
                let (at, uplink) = (self.now, uplink.to_string());
                return self.heartbeats.push(SentHeartbeat { at, uplink, sequence: heartbeat.sequence });
            }
            other => panic!("a router sends no {other:?}"),
        };
        let now = self.now;
        self.sent_at.note_update(now);
        let mut sent = SentUpdate {
            at: now,
            uplink: uplink.to_string(),
            inside: ends.map(|(local, _)| local),
            seen,
            identifiers: Vec::new(),
            flows: Vec::new(),
            summary: Vec::new(),
            overwrite: update.flags.overwrite,
            ipv4_care_of: None,
        };
        for option in update.options.iter().flatten() {
            match option {
                MobilityOption::BindingIdentifier { bid, priority, care_of_address, .. } => {
                    sent.identifiers.push((bid, priority, care_of_address));
                }
                MobilityOption::FlowIdentification { fid, .. } => sent.flows.push(fid),
                MobilityOption::FlowSummary(fids) => sent.summary.extend(fids.iter()),
                MobilityOption::Ipv4CareOfAddress(address) => sent.ipv4_care_of = Some(address),
                _ => {}
            }
        }
        self.updates.push(sent);
    }

    pub fn forget(&mut self) {
        self.updates.clear();
        self.heartbeats.clear();
        self.responses.clear();
        self.events.clear();
        self.agent_events.clear();
        self.drops.clear();
        self.probes.clear();
        self.solicitations.clear();
    }

    // Queries

    pub fn bound_bids(&self) -> Vec<u16> {
        let mut bids: Vec<u16> =
            self.agent.bindings().of(self.config.home_address).filter_map(|binding| binding.bid).collect();
        bids.sort_unstable();
        bids
    }

    /// Returns the BIDs that the home agent has registered, the best first.
    pub fn preferred_bids(&self) -> Vec<u16> {
        self.agent.bindings().of(self.config.home_address).filter_map(|binding| binding.bid).collect()
    }

    /// Returns the care-of addresses that the home agent has registered, the best first.
    pub fn bound(&self) -> Vec<Endpoint> {
        self.agent.bindings().of(self.config.home_address).map(|binding| binding.care_of_address).collect()
    }

    /// Returns the uplinks that may carry traffic, the best first.
    pub fn transmits(&self) -> Vec<&str> {
        self.router
            .paths()
            .iter()
            .filter(|path| path.transmit)
            .map(|path| self.config.uplinks[path.uplink].interface.as_str())
            .collect()
    }

    /// Returns whether the home agent receives and accepts a packet from the mobile network.
    pub fn is_upstream(&self) -> bool {
        let paths = self.router.paths();
        let Some(path) = paths.first().filter(|path| path.transmit) else { return false };
        let name = &self.config.uplinks[path.uplink].interface;
        let network = &self.networks[name];
        let running = self.interfaces.get(name).is_some_and(|interface| interface.running);
        let passes = match path.local {
            Endpoint::Ipv6(_) => !network.ipv6_dead,
            Endpoint::Ipv4(_) => !network.ipv4_dead && !network.protocol41_dead && network.nat.is_none(),
            Endpoint::Udp(_) => !network.ipv4_dead,
        };
        let seen = match (path.local, &network.nat) {
            (Endpoint::Udp(inside), Some(nat)) => {
                let mapping = nat.mappings.iter().find(|(address, _, used)| {
                    *address == inside && self.now.saturating_since(*used) < nat.timeout
                });
                mapping.map(|(_, port, _)| Endpoint::Udp(SocketAddrV4::new(nat.address, *port)))
            }
            (local, _) => Some(local),
        };
        running
            && passes
            && seen.is_some_and(|seen| self.agent.bindings().accepts(self.config.home_address, seen))
    }

    /// Returns whether the router receives and accepts a packet to the mobile network.
    pub fn is_downstream(&self) -> bool {
        let Some(best) = self.agent.bindings().of(self.config.home_address).next() else { return false };
        let (uplink, local) = match best.care_of_address {
            Endpoint::Ipv6(address) => match self.uplink_with(IpAddr::V6(address)) {
                Some(uplink) if !self.networks[&uplink].ipv6_dead && !self.networks[&uplink].ipv6_deaf => {
                    (uplink, best.care_of_address)
                }
                _ => return false,
            },
            remote => match self.way_down(remote) {
                Some((uplink, inside)) if !self.networks[&uplink].ipv4_dead => (uplink, inside),
                _ => return false,
            },
        };
        if matches!(local, Endpoint::Ipv4(_)) && self.networks[&uplink].protocol41_dead {
            return false;
        }
        self.router.paths().iter().any(|path| path.local == local)
    }

    pub fn is_carried(&self) -> bool {
        self.is_upstream() && self.is_downstream()
    }

    /// Returns the last Binding Update.
    #[track_caller]
    pub fn last(&self) -> &SentUpdate {
        self.updates.last().expect("a Binding Update")
    }

    /// Restarts the home agent without its state.
    pub fn restart_agent(&mut self) {
        let counter = self.agent.restart_counter();
        self.agent = HomeAgent::new(self.agent_config.clone());
        self.agent.set_restart_counter(counter + 1);
    }

    // Invariants

    fn check(&self) {
        let paths = self.router.paths();
        let transmits: Vec<bool> = paths.iter().map(|path| path.transmit).collect();
        assert!(transmits.is_sorted_by(|a, b| a >= b), "those that transmit come first: {paths:?}");
        for path in paths.iter().filter(|path| path.transmit) {
            let has = match path.local {
                Endpoint::Udp(local) => self.uplink_at(local),
                local => self.uplink_with(local.address()),
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

pub fn care_of(text: &str) -> Endpoint {
    Endpoint::Ipv6(text.parse::<Ipv6Addr>().expect("an address"))
}

pub fn identifier(bid: u16, status: u8) -> MobilityOption<'static> {
    MobilityOption::BindingIdentifier { bid, status, home: false, priority: 1, care_of_address: None }
}
