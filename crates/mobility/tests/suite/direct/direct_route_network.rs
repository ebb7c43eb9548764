//! Mobile routers with distant home agents and a short path between their care-of addresses, in virtual time.
//! In each step (10 ms unless the test sets another) every router's network sends one packet to each other
//! network. The simulation counts for each packet whether it arrived, and over which path.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_mobility::direct::{DirectConfig, DirectDrop, Output, PublicKey};
use carnet_mobility::{DirectRouteState, Event, SessionPeer};
use carnet_virtual::Timeline;
pub use carnet_virtual::{address, prefix};
use carnet_wire::ipv6::{HEADER_LEN, Header};
use carnet_wire::mobility::{DirectRoute, MobilityHeader};
use ipnet::Ipv6Net;

/// Returns the home address of router `number`.
pub fn home_address_of(number: usize) -> Ipv6Addr {
    address(&format!("2001:db8:{}::{:x}", number + 1, 0x1000 + number))
}

pub fn network_of(number: usize) -> Ipv6Net {
    prefix(&format!("2001:db8:a{number}::/64"))
}

pub fn care_of_address_of(number: usize, uplink: usize) -> Ipv6Addr {
    address(&format!("2001:db8:f{number}{uplink}::10"))
}

pub fn host_address_of(number: usize) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(network_of(number).network()) | 0x99)
}

pub fn config(number: usize) -> DirectConfig {
    DirectConfig {
        prefixes: vec![network_of(number)],
        home_address: home_address_of(number),
        home_prefix: prefix(&format!("2001:db8:{}::/64", number + 1)),
        mobile_networks: vec![prefix("2001:db8:a0::/44")],
        requires_sessions: false,
    }
}

/// Returns the config of a router that demands encrypted sessions.
pub fn encrypted_config(number: usize) -> DirectConfig {
    DirectConfig { requires_sessions: true, ..config(number) }
}

/// Returns the public key of a router.
pub fn key_of(number: usize) -> PublicKey {
    [number as u8 + 1; 32]
}

/// Keys of the two ends of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionKeys {
    pub sender: PublicKey,
    pub receiver: PublicKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketPath {
    Home,
    Straight,
}

/// A packet on its way, with its sender and its path.
#[derive(Debug, Clone)]
pub struct PacketUnderway {
    pub from: usize,
    pub packet_path: PacketPath,
    /// Session that carries the packet; `None` in the clear.
    pub session: Option<SessionKeys>,
    pub octets: Vec<u8>,
}

/// Counts of the packets of one network to another, by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketCounts {
    pub sent_directly: u32,
    pub sent_through_home: u32,
    pub lost_packets: u32,
}

/// A data packet on the direct path.
#[derive(Debug)]
struct DataPacket {
    from: usize,
    receiving_router: usize,
    local_address: Ipv6Addr,
    remote_address: Ipv6Addr,
    session: Option<SessionKeys>,
}

/// Decides whether a message on its way is delivered.
type MessageFilter = Box<dyn FnMut(&PacketUnderway, &DirectRoute) -> bool>;

pub struct DirectRouteNetwork {
    pub now: Time,
    pub routers: Vec<DirectRouteState>,
    /// Keys of other routers, with which each router accepts sessions.
    pub accepted_keys: Vec<BTreeMap<SessionPeer, PublicKey>>,
    /// Private keys of each router, named by their public keys, the newest one first.
    pub own_keys: Vec<Vec<PublicKey>>,
    pub warnings: Vec<(usize, String)>,
    pub delay_through_home: Duration,
    pub direct_delay: Duration,
    /// Care-of addresses whose link is up.
    pub addresses_with_link: BTreeSet<Ipv6Addr>,
    /// Whether the direct path drops everything without an error.
    pub is_direct_path_cut: bool,
    /// Whether the path by the home agents drops everything.
    pub is_home_path_cut: bool,
    /// Decides whether a message passes.
    pub filter: MessageFilter,
    pub sends_data: bool,
    pub step_duration: Duration,
    /// All packets that were sent, for tests that replay them.
    pub sent_packets_log: Vec<PacketUnderway>,
    pub handling_results: Vec<Result<(), DirectDrop>>,
    /// Reports of a router that packets to prefixes go directly (true) or not.
    pub reported_paths: Vec<(usize, Vec<Ipv6Net>, bool)>,
    packets_underway: Timeline<PacketUnderway>,
    data_underway: Timeline<DataPacket>,
    packet_counts: BTreeMap<(usize, usize), PacketCounts>,
}

impl DirectRouteNetwork {
    /// Creates `count` routers, each with its first uplink.
    pub fn new(count: usize) -> DirectRouteNetwork {
        let routers =
            (0..count).map(|number| DirectRouteState::new(config(number), Rng::new(7 + number as u64)));
        DirectRouteNetwork::with_routers(routers.collect())
    }

    /// Creates a network of `count` routers that accept only encrypted direct routes.
    pub fn encrypted(count: usize) -> DirectRouteNetwork {
        let routers = (0..count)
            .map(|number| DirectRouteState::new(encrypted_config(number), Rng::new(7 + number as u64)));
        DirectRouteNetwork::with_routers(routers.collect())
    }

    pub fn with_routers(routers: Vec<DirectRouteState>) -> DirectRouteNetwork {
        let count = routers.len();
        let mut world = DirectRouteNetwork {
            now: Time::from_secs(1000),
            routers,
            accepted_keys: vec![BTreeMap::new(); count],
            own_keys: (0..count).map(|number| vec![key_of(number)]).collect(),
            warnings: Vec::new(),
            delay_through_home: Duration::from_millis(80),
            direct_delay: Duration::from_millis(7),
            addresses_with_link: BTreeSet::new(),
            is_direct_path_cut: false,
            is_home_path_cut: false,
            filter: Box::new(|_, _| true),
            sends_data: true,
            step_duration: Duration::from_millis(10),
            sent_packets_log: Vec::new(),
            handling_results: Vec::new(),
            reported_paths: Vec::new(),
            packets_underway: Timeline::default(),
            data_underway: Timeline::default(),
            packet_counts: BTreeMap::new(),
        };
        for number in 0..count {
            world.routers[number].handle_own_key(world.now, key_of(number));
            world.set_care_of(number, &[care_of_address_of(number, 0)]);
        }
        world
    }

    /// Gives the router these care-of addresses, the best first. Their links are up, and those of its other
    /// addresses are down.
    pub fn set_care_of(&mut self, number: usize, addresses: &[Ipv6Addr]) {
        let own: Vec<Ipv6Addr> = (0..4).map(|uplink| care_of_address_of(number, uplink)).collect();
        self.addresses_with_link.retain(|address| !own.contains(address));
        self.addresses_with_link.extend(addresses);
        self.routers[number].handle_care_of_addresses(self.now, addresses.to_vec(), true);
        self.take_router_outputs(number);
    }

    pub fn take_router_outputs(&mut self, from: usize) {
        while let Some(output) = self.routers[from].poll_output() {
            match output {
                Output::ThroughTunnel(octets) => {
                    let packet_path = PacketPath::Home;
                    self.send_packet(PacketUnderway { from, packet_path, session: None, octets })
                }
                Output::Straight(octets) => {
                    let packet_path = PacketPath::Straight;
                    self.send_packet(PacketUnderway { from, packet_path, session: None, octets })
                }
                Output::InSession { session, local, remote, packet } => {
                    let header = Header::parse(&packet).expect("a packet");
                    assert_eq!((header.source, header.destination), (local, remote));
                    let packet_path = PacketPath::Straight;
                    let session = self.session_keys(from, Some(session));
                    assert!(session.is_some(), "a session with a key");
                    self.send_packet(PacketUnderway { from, packet_path, session, octets: packet })
                }
                Output::SessionKey { session, public_key } => {
                    match public_key {
                        Some(key) => self.accepted_keys[from].insert(session, key),
                        None => self.accepted_keys[from].remove(&session),
                    };
                    let keys = &self.accepted_keys[from];
                    let different: BTreeSet<&PublicKey> = keys.values().collect();
                    assert_eq!(different.len(), keys.len(), "one number for each key");
                }
                Output::Event(Event::Warning { message }) => self.warnings.push((from, message)),
                Output::Event(Event::Path { prefixes, direct, .. }) => {
                    self.reported_paths.push((from, prefixes, direct));
                }
                Output::Routes | Output::Event(_) => {}
            }
        }
    }

    fn session_keys(&self, from: usize, session: Option<SessionPeer>) -> Option<SessionKeys> {
        let receiver = *self.accepted_keys[from].get(&session?)?;
        // A packet goes in the session of the sender's newest key that the receiver knows.
        let to = self.own_keys.iter().position(|keys| keys.contains(&receiver));
        let is_known = |key: &&PublicKey| {
            to.is_some_and(|to| self.accepted_keys[to].values().any(|accepted| accepted == *key))
        };
        let own = &self.own_keys[from];
        Some(SessionKeys { sender: *own.iter().find(is_known).unwrap_or(&own[0]), receiver })
    }

    /// Returns the number of the session from which a packet comes out at a router; `None` if the router
    /// does not accept the session.
    fn accepted_session(&self, to: usize, keys: SessionKeys) -> Option<SessionPeer> {
        let mut accepted = self.accepted_keys[to].iter();
        let number = accepted.find(|(_, key)| **key == keys.sender).map(|(number, _)| *number);
        number.filter(|_| self.own_keys[to].contains(&keys.receiver))
    }

    pub fn send_packet(&mut self, packet: PacketUnderway) {
        let delay =
            if packet.packet_path == PacketPath::Home { self.delay_through_home } else { self.direct_delay };
        self.sent_packets_log.push(packet.clone());
        self.packets_underway.schedule_at(self.now + delay, packet);
    }

    fn deliver_packet(&mut self, packet: PacketUnderway) {
        let header = Header::parse(&packet.octets).expect("a packet");
        let message = parse_message(&packet.octets);
        if !(self.filter)(&packet, &message) {
            return;
        }
        let to = match packet.packet_path {
            PacketPath::Home if self.is_home_path_cut => None,
            PacketPath::Home => (0..self.routers.len()).find(|number| {
                home_address_of(*number) == header.destination
                    || network_of(*number).contains(&header.destination)
            }),
            PacketPath::Straight
                if self.is_direct_path_cut || !self.addresses_with_link.contains(&header.source) =>
            {
                None
            }
            PacketPath::Straight => self.router_at_address(header.destination),
        };
        let Some(to) = to else { return };
        let session = packet.session.map(|keys| self.accepted_session(to, keys));
        if session == Some(None) {
            // The receiver has no session of this key, so it drops the datagram.
            return;
        }
        let router = &mut self.routers[to];
        let result = match packet.packet_path {
            PacketPath::Home => {
                router.handle_tunnelled_message(self.now, header.source, header.destination, &message)
            }
            PacketPath::Straight => router.handle_direct_message(
                self.now,
                session.flatten(),
                header.source,
                header.destination,
                &message,
            ),
        };
        self.handling_results.push(result);
        self.take_router_outputs(to);
    }

    fn router_at_address(&self, care_of_address: Ipv6Addr) -> Option<usize> {
        let has =
            |number: &usize| (0..4).any(|uplink| care_of_address_of(*number, uplink) == care_of_address);
        (0..self.routers.len()).find(has).filter(|_| self.addresses_with_link.contains(&care_of_address))
    }

    /// Lets time pass.
    pub fn advance_time(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            let pairs = (0..self.routers.len()).flat_map(|a| (0..self.routers.len()).map(move |b| (a, b)));
            for (from, to) in pairs.collect::<Vec<_>>() {
                if from != to && self.sends_data {
                    self.send_data(from, to);
                }
            }
            let next = self.now + self.step_duration;
            while self.now < next {
                let timers = self.routers.iter().filter_map(DirectRouteState::poll_timeout).min();
                let arrivals = self
                    .packets_underway
                    .next_event_at()
                    .into_iter()
                    .chain(self.data_underway.next_event_at());
                let at = timers.into_iter().chain(arrivals).min().unwrap_or(next);
                self.now = at.clamp(self.now, next);
                if at > next {
                    break;
                }
                while let Some(data) = self.data_underway.pop_due_event(self.now) {
                    self.receive_data(&data);
                }
                while let Some(packet) = self.packets_underway.pop_due_event(self.now) {
                    self.deliver_packet(packet);
                }
                for number in 0..self.routers.len() {
                    if self.routers[number].poll_timeout().is_some_and(|at| at <= self.now) {
                        self.routers[number].handle_timeout(self.now);
                        self.take_router_outputs(number);
                    }
                }
            }
        }
    }

    fn send_data(&mut self, from: usize, to: usize) {
        self.routers[from].handle_used_destination(self.now, host_address_of(to));
        let tunnels = self.routers[from].tunnels();
        let mut taken = tunnels.iter().filter(|tunnel| {
            tunnel.may_transmit
                && tunnel.proven_prefixes.iter().any(|inner| inner.contains(&host_address_of(to)))
        });
        let tunnel = taken.next();
        let keys = tunnel.and_then(|tunnel| self.session_keys(from, tunnel.session));
        assert_eq!(
            tunnel.is_some_and(|tunnel| tunnel.session.is_some()),
            keys.is_some(),
            "a tunnel with a session has its key"
        );
        assert!(taken.next().is_none(), "one way for each packet");
        let seen = self.packet_counts.entry((from, to)).or_default();
        match tunnel {
            // A packet through the home agents counts as delivered at once.
            None => seen.sent_through_home += 1,
            Some(tunnel) => {
                let data = DataPacket {
                    from,
                    receiving_router: to,
                    local_address: tunnel.local,
                    remote_address: tunnel.remote,
                    session: keys,
                };
                self.data_underway.schedule_at(self.now + self.direct_delay, data);
            }
        }
    }

    fn receive_data(&mut self, data: &DataPacket) {
        let arrives = !self.is_direct_path_cut
            && self.addresses_with_link.contains(&data.local_address)
            && self.router_at_address(data.remote_address) == Some(data.receiving_router);
        let session = data.session.and_then(|keys| self.accepted_session(data.receiving_router, keys));
        let taken = arrives
            && session.is_some() == data.session.is_some()
            && self.routers[data.receiving_router].tunnels().iter().any(|tunnel| {
                (tunnel.local, tunnel.remote) == (data.remote_address, data.local_address)
                    && tunnel.session == session
                    && tunnel.proven_prefixes.iter().any(|inner| inner.contains(&host_address_of(data.from)))
            });
        let seen = self.packet_counts.entry((data.from, data.receiving_router)).or_default();
        *(if taken { &mut seen.sent_directly } else { &mut seen.lost_packets }) += 1;
    }

    /// Takes the counts of the packets since the last call.
    pub fn take_packet_counts(&mut self, from: usize, to: usize) -> PacketCounts {
        self.packet_counts.remove(&(from, to)).unwrap_or_default()
    }

    pub fn clear_packet_counts(&mut self) {
        self.packet_counts.clear();
    }

    pub fn is_direct(&self, from: usize, to: usize) -> bool {
        self.routers[from].routes().any(|route| route.home_address == home_address_of(to) && route.is_direct)
    }

    pub fn dropped_messages(&self, number: usize, reason: DirectDrop) -> u64 {
        self.routers[number].counters().dropped(reason)
    }
}

pub fn parse_message(packet: &[u8]) -> DirectRoute {
    let header = Header::parse(packet).expect("a packet");
    let octets = packet.get(HEADER_LEN..).expect("more than a header");
    let header =
        MobilityHeader::parse_verified(octets, header.source, header.destination).expect("a message");
    DirectRoute::parse(&header).expect("one about direct routes")
}
