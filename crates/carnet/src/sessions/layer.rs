//! The sessions, and the addresses between which they run.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use anyhow::Context;
use carnet_api::config::{Config, PublicKey as ConfigKey, SessionKeys};
use carnet_base::{Endpoint, Time};
use carnet_linux::clock;
use carnet_mobility::{SessionPeer, UDP_PORT};
use carnet_nemo::forwarding::fragments::Reassembler;
use carnet_nemo::forwarding::packet::PacketBuffer;
use carnet_wire::checksum::upper_layer_checksum;
use carnet_wire::extension::Extensions;
use carnet_wire::fragment::{FRAGMENT_HEADER_LEN, FragmentHeader};
use carnet_wire::icmpv6;
use carnet_wire::ipv6::{HEADER_LEN, Header, MIN_MTU, protocol};
use carnet_wireguard::{
    DatagramRoute, EngineSettings, Output, PathNumber, PeerId, PresharedKey, PrivateKey, PublicKey,
    ReceivedDatagram, RemotePeer, SessionEngine, SessionPath, WireguardDropReason, date_at_start,
};

mod keys;

use self::keys::{KEY_MESSAGE, KeyExchange};
use super::state::StateFile;
use super::{Arrival, Datagram, Departure, FromSession};

/// Octets of a UDP header.
const UDP_LEN: usize = 8;
/// Hop limit of the outer header: 64 on the wire, because the kernel decrements it.
const HOP_LIMIT: u8 = 64 + 1;
/// Largest datagram.
const MAX_DATAGRAM: usize = 65_535;
/// Largest payload that passes each path of IPv6 without fragments of the datagram.
const MIN_PAYLOAD: usize = 1184;
/// Packets that wait for the handshake of a path, and the time for which they wait.
const MAX_PENDING: usize = 16;
const MAX_PENDING_TIME: Duration = Duration::from_secs(2);
/// Time without an answer to signalling after which the mobile router begins a handshake.
const SILENCE: Duration = Duration::from_millis(1200);
/// Longest time between two of these handshakes; the time doubles from [`SILENCE`] on.
const MAX_SILENCE: Duration = Duration::from_secs(15);
/// Time without packets after which a mobile router ends the session of an address.
const IDLE: Duration = Duration::from_secs(180);
/// Addresses of one path to which a home agent may send: those from which authentic packets came last.
const MAX_ENDS: usize = 4;
/// Handshakes that one turn decrypts; the others wait in the engine's queue, so that data go first.
const HANDSHAKES: usize = 8;
/// Remote ends for which packets of the home agent wait, and packets for each of them.
const MAX_AWAITING: usize = 1024;
const MAX_AWAITING_PACKETS: usize = 4;
/// Numbers of the home agent's two sockets in the engine. A mobile router's addresses have the next numbers.
const AGENT_IPV6: u32 = 0;
const AGENT_IPV4: u32 = 1;
const FIRST_SOCKET: u32 = 2;

/// A datagram that is ready, with its way.
#[derive(Debug)]
struct Ready {
    socket: u32,
    remote: SocketAddr,
    traffic_class: u8,
    may_fragment: bool,
    octets: Box<[u8]>,
}

/// The home agent of this station.
#[derive(Debug, Clone, Copy)]
struct Agent {
    address: Ipv6Addr,
    ipv4: Option<Ipv4Addr>,
    port: u16,
}

/// A home agent of the mobile router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HomeAgent {
    peer: PeerId,
    address: Ipv6Addr,
    ipv4: Option<Ipv4Addr>,
    port: u16,
}

/// A remote end.
#[derive(Debug)]
struct Remote {
    /// Key in the config. The keys that are valid now are in `peer`.
    key: PublicKey,
    peer: RemotePeer,
    session: SessionPeer,
    /// Name for the log.
    name: String,
}

/// An address of the mobile router, with its session to a home agent.
#[derive(Debug)]
struct Slot {
    path: SessionPath,
    local: Endpoint,
    home_agent: HomeAgent,
    socket: u32,
    remote: SocketAddr,
    /// Time of the last packet in either direction.
    used: Time,
    /// Time of the first signalling message since the last received packet.
    asked: Option<Time>,
    /// Time of the next handshake if no packet arrives, and the time between two of them.
    renews: Time,
    patience: Duration,
    /// Whether the log has said that nothing answers.
    is_unanswered: bool,
}

/// A packet that waits for a handshake.
#[derive(Debug)]
struct Pending {
    at: Time,
    payload: Vec<u8>,
    traffic_class: u8,
    may_fragment: bool,
}

/// The sessions of this station.
pub struct Sessions {
    engine: SessionEngine,
    agent: Option<Agent>,
    home_agents: Vec<HomeAgent>,
    remotes: BTreeMap<PeerId, Remote>,
    ids: HashMap<PublicKey, PeerId>,
    next_id: u32,
    /// Session nodes of the home agent, by home address.
    nodes: HashMap<Ipv6Addr, PeerId>,
    /// Key of each number that the station uses.
    peers: HashMap<SessionPeer, PeerId>,
    slots: Vec<Slot>,
    next_socket: u32,
    pending: HashMap<SessionPath, VecDeque<Pending>>,
    /// Paths of the home agent by the remote end from which their authentic packets came.
    paths: HashMap<Endpoint, Vec<(PeerId, SessionPath, DatagramRoute)>>,
    ends: HashMap<SessionPath, VecDeque<Endpoint>>,
    /// Packets of the home agent to remote ends from which no authentic packet has come yet.
    awaiting: HashMap<(PeerId, Endpoint), VecDeque<Pending>>,
    ready: VecDeque<Ready>,
    messages: VecDeque<String>,
    reassembler: Reassembler,
    identification: u32,
    labels: RandomState,
    /// Room for the payload of a received datagram, and the payload's length.
    payload: Vec<u8>,
    payload_length: usize,
    scratch: Vec<u8>,
    wire: PacketBuffer,
    state: StateFile,
    exchange: KeyExchange,
    /// Packets that had no session, and payloads whose addresses do not fit their session.
    unsent: u64,
    refused: u64,
}

impl Sessions {
    /// Creates the sessions of a config; `None` if the config has no key of a remote end. A member of a fleet
    /// accepts no next keys, because the other members would not know them.
    ///
    /// # Errors
    /// Returns an error if the kernel has no random numbers.
    pub fn new(config: &Config, seed_time: Time, is_member: bool) -> anyhow::Result<Option<Sessions>> {
        let Some(private_key) = config.station.private_key.as_ref().filter(|_| config.has_sessions()) else {
            return Ok(None);
        };
        let seed = clock::random_octets().context("cannot get randomness from the kernel")?;
        let state = StateFile::open(config.station.state_dir.as_deref(), &config.station.name);
        let system = Duration::from_nanos(clock::wall_time().as_unix_nanos());
        let engine = SessionEngine::new(EngineSettings {
            private_key: PrivateKey::from_random(private_key.present.octets()),
            random_seed: seed,
            now: seed_time,
            unix_time_at_start: date_at_start(system, state.newest()),
        });
        let mut sessions = Sessions {
            engine,
            agent: None,
            home_agents: Vec::new(),
            remotes: BTreeMap::new(),
            ids: HashMap::new(),
            next_id: 0,
            nodes: HashMap::new(),
            peers: HashMap::new(),
            slots: Vec::new(),
            next_socket: FIRST_SOCKET,
            pending: HashMap::new(),
            paths: HashMap::new(),
            ends: HashMap::new(),
            awaiting: HashMap::new(),
            ready: VecDeque::new(),
            messages: VecDeque::new(),
            reassembler: Reassembler::default(),
            identification: u32::from_le_bytes([seed[0], seed[1], seed[2], seed[3]]).rotate_left(7),
            labels: RandomState::new(),
            payload: vec![0; MAX_DATAGRAM],
            payload_length: 0,
            scratch: vec![0; MAX_DATAGRAM],
            wire: PacketBuffer::new(),
            state,
            exchange: KeyExchange::of(is_member),
            unsent: 0,
            refused: 0,
        };
        sessions.reconfigure(seed_time, config);
        Ok(Some(sessions))
    }

    /// Takes the keys and addresses of a config. Sessions of keys that stay are not interrupted.
    pub fn reconfigure(&mut self, now: Time, config: &Config) {
        let mut wanted: Vec<Remote> = Vec::new();
        let mut kept: HashMap<PublicKey, PeerId> = HashMap::new();
        self.nodes.clear();
        self.agent = config.home_agent.as_ref().map(|agent| Agent {
            address: agent.address,
            ipv4: agent.ipv4_address,
            port: agent.tunnel_port,
        });
        for (node, number) in config.home_agent.iter().flat_map(|agent| &agent.mobile_routers).zip(0..) {
            let Some(keys) = node.auth.sessions() else { continue };
            let name = format!("mobile router {}", node.home_address);
            for key in &keys.public_keys {
                let id = self.id_of(*key, &mut kept);
                self.nodes.insert(node.home_address, id);
                let (key, peer) = (PublicKey::from(key.0), self.peer(id, *key, keys));
                wanted.push(Remote { key, peer, session: SessionPeer(number), name: name.clone() });
            }
        }
        self.home_agents.clear();
        if let Some((router, keys)) =
            config.mobile_router.as_ref().and_then(|router| Some((router, router.auth.sessions()?)))
        {
            for (index, address) in router.home_agents.addresses.iter().enumerate() {
                let Some(key) = keys.public_keys.get(index).or(keys.public_keys.first()) else { continue };
                let id = self.id_of(*key, &mut kept);
                let ipv4 = router.home_agents.ipv4_addresses.get(index).copied();
                let port = router.home_agent_port;
                self.home_agents.push(HomeAgent { peer: id, address: *address, ipv4, port });
                let name = format!("home agent {address}");
                let (key, peer) = (PublicKey::from(key.0), self.peer(id, *key, keys));
                wanted.push(Remote { key, peer, session: carnet_settings::HOME_AGENT, name });
            }
        }
        for id in self.remotes.keys().filter(|id| !kept.values().any(|kept| kept == *id)) {
            self.engine.remove_peer(*id);
        }
        self.ids = kept;
        self.remotes.clear();
        self.peers.clear();
        for remote in wanted {
            let id = remote.peer.peer_id;
            self.engine.set_peer(now, remote.peer.clone());
            for key in &remote.peer.public_keys {
                for (number, timestamp) in self.state.accepted(*key) {
                    self.engine.restore_timestamp(*key, number, timestamp);
                }
            }
            self.peers.insert(remote.session, id);
            self.remotes.entry(id).or_insert(remote);
        }
        if let Some(key) = &config.station.private_key {
            self.set_private_keys(now, key);
        }
        let engine = &self.engine;
        let home_agents = &self.home_agents;
        self.slots.retain(|slot| engine.route(slot.path).is_some() && home_agents.contains(&slot.home_agent));
        self.paths.retain(|_, paths| {
            paths.retain(|(_, path, _)| engine.route(*path).is_some());
            !paths.is_empty()
        });
        self.ends.retain(|path, _| engine.route(*path).is_some());
        self.pending.clear();
    }

    fn id_of(&mut self, key: ConfigKey, kept: &mut HashMap<PublicKey, PeerId>) -> PeerId {
        let key = PublicKey::from(key.0);
        let next = &mut self.next_id;
        let id = *self.ids.entry(key).or_insert_with(|| {
            *next += 1;
            PeerId(*next)
        });
        kept.insert(key, id);
        id
    }

    /// Returns a peer with the keys that are valid now.
    fn peer(&self, id: PeerId, key: ConfigKey, keys: &SessionKeys) -> RemotePeer {
        let preshared_key = keys.preshared_key.as_ref().map(|key| PresharedKey::from_random(key.octets()));
        RemotePeer { peer_id: id, public_keys: self.state.keys(PublicKey::from(key.0)), preshared_key }
    }

    /// Returns the socket that the home agent needs for sessions inside IPv4.
    pub fn agent_socket(&self) -> Option<SocketAddrV4> {
        let agent = self.agent.filter(|_| !self.nodes.is_empty())?;
        agent.ipv4.map(|address| SocketAddrV4::new(address, agent.port))
    }

    /// Returns the number of sessions, and the number of drops for each reason that has any.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let drops = WireguardDropReason::ALL.iter().map(|reason| {
            (
                format!("session.dropped.{}", carnet_base::DropReason::name(*reason)),
                self.engine.drop_count(*reason),
            )
        });
        drops
            .chain([
                ("session.sessions".to_owned(), self.engine.session_count() as u64),
                ("session.unsent".to_owned(), self.unsent),
                ("session.refused".to_owned(), self.refused),
            ])
            .collect()
    }

    /// Handles a packet from the tunnel device, which the buffer has.
    pub fn receive_packet(&mut self, now: Time, buffer: &mut PacketBuffer) -> Arrival {
        let arrival = self.open_packet(now, buffer.as_slice());
        self.take_payload(&arrival, buffer);
        arrival
    }

    /// Puts the payload that came out of a session into the buffer, in place of the datagram.
    fn take_payload(&self, arrival: &Arrival, buffer: &mut PacketBuffer) {
        if matches!(arrival, Arrival::Packet(_)) {
            buffer.copy_from(self.payload.get(..self.payload_length).unwrap_or_default());
        }
    }

    fn open_packet(&mut self, now: Time, packet: &[u8]) -> Arrival {
        let Ok((header, payload)) = Header::parse_packet(packet) else { return Arrival::Foreign };
        let is_ours = self.agent.is_some_and(|agent| agent.address == header.destination)
            || self.home_agents.iter().any(|agent| agent.address == header.source);
        if !is_ours {
            return Arrival::Foreign;
        }
        match header.next_header {
            protocol::UDP => self.open_udp(now, &header, payload),
            protocol::FRAGMENT => {
                let Ok(fragment) = FragmentHeader::parse(payload) else { return Arrival::Foreign };
                if fragment.next_header != protocol::UDP {
                    return Arrival::Foreign;
                }
                let content = payload.get(FRAGMENT_HEADER_LEN..).unwrap_or_default();
                let stranger = !self.is_end(&header);
                let whole = self.reassembler.handle_fragment(now, &header, &fragment, content, stranger);
                let Ok(Some(whole)) = whole else { return Arrival::Consumed };
                match Header::parse_packet(&whole) {
                    Ok((header, payload)) => match self.open_udp(now, &header, payload) {
                        Arrival::Foreign => Arrival::Consumed,
                        arrival => arrival,
                    },
                    Err(_) => Arrival::Consumed,
                }
            }
            _ => Arrival::Foreign,
        }
    }

    /// Returns whether the other end of a received packet has a session.
    fn is_end(&self, header: &Header) -> bool {
        self.paths.contains_key(&Endpoint::Ipv6(header.source))
            || self.slots.iter().any(|slot| slot.local == Endpoint::Ipv6(header.destination))
    }

    fn open_udp(&mut self, now: Time, header: &Header, datagram: &[u8]) -> Arrival {
        let Some((&[a, b, c, d, e, f, _, _], octets)) = datagram.split_first_chunk::<UDP_LEN>() else {
            return Arrival::Foreign;
        };
        let (from, to) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let length = usize::from(u16::from_be_bytes([e, f])).saturating_sub(UDP_LEN);
        let Some(octets) = octets.get(..length) else { return Arrival::Consumed };
        let ends = (Endpoint::Ipv6(header.destination), Endpoint::Ipv6(header.source));
        let remote = SocketAddr::from((header.source, from));
        let is_agent = self.agent.is_some_and(|agent| {
            (agent.address, agent.port) == (header.destination, to) && !self.nodes.is_empty()
        });
        if is_agent {
            let route = DatagramRoute { socket: AGENT_IPV6, remote };
            return self.open(now, route, ends, header.traffic_class, octets);
        }
        if to != UDP_PORT {
            return Arrival::Foreign;
        }
        self.open_at_router(now, ends, remote, header.traffic_class, octets)
    }

    /// Handles a datagram from a tunnel socket, which the buffer has.
    pub fn receive_datagram(
        &mut self,
        now: Time,
        ends: (Endpoint, Endpoint),
        traffic_class: u8,
        buffer: &mut PacketBuffer,
    ) -> Arrival {
        let arrival = self.open_datagram(now, ends, traffic_class, buffer.as_slice());
        self.take_payload(&arrival, buffer);
        arrival
    }

    fn open_datagram(
        &mut self,
        now: Time,
        (local, remote): (Endpoint, Endpoint),
        traffic_class: u8,
        octets: &[u8],
    ) -> Arrival {
        let (Endpoint::Udp(here), Endpoint::Udp(there)) = (local, remote) else { return Arrival::Foreign };
        if self.agent_socket() == Some(here) {
            let route = DatagramRoute { socket: AGENT_IPV4, remote: there.into() };
            return self.open(now, route, (local, remote), traffic_class, octets);
        }
        let of_session = |agent: &HomeAgent| agent.ipv4 == Some(*there.ip()) && agent.port == there.port();
        if !self.home_agents.iter().any(of_session) {
            return Arrival::Foreign;
        }
        let ends = (local, Endpoint::Udp(SocketAddrV4::new(*there.ip(), UDP_PORT)));
        self.open_at_router(now, ends, there.into(), traffic_class, octets)
    }

    fn open_at_router(
        &mut self,
        now: Time,
        ends: (Endpoint, Endpoint),
        remote: SocketAddr,
        traffic_class: u8,
        octets: &[u8],
    ) -> Arrival {
        let slot = self.slots.iter().find(|slot| slot.local == ends.0 && slot.remote == remote);
        let Some(socket) = slot.map(|slot| slot.socket) else { return Arrival::Consumed };
        self.open(now, DatagramRoute { socket, remote }, ends, traffic_class, octets)
    }

    /// Opens a datagram. For [`Arrival::Packet`], the first `payload_length` octets of `payload` have the
    /// packet.
    fn open(
        &mut self,
        now: Time,
        route: DatagramRoute,
        ends: (Endpoint, Endpoint),
        traffic_class: u8,
        octets: &[u8],
    ) -> Arrival {
        let (path, pair, length) = match self.engine.receive_datagram(now, route, octets, &mut self.payload) {
            ReceivedDatagram::Payload { path, pair, payload } => (path, pair, payload.len()),
            ReceivedDatagram::Handled | ReceivedDatagram::Queued | ReceivedDatagram::Dropped(_) => {
                return Arrival::Consumed;
            }
        };
        let Some(remote) = self.remotes.get(&path.peer_id) else { return Arrival::Consumed };
        let session = remote.session;
        let payload = self.payload.get(..length).unwrap_or_default();
        // A payload is an IP packet or a message about keys. Other first octets are for later versions.
        let first = payload.first().copied().unwrap_or_default();
        if !matches!(first >> 4, 4 | 6) && first != KEY_MESSAGE {
            self.refused += 1;
            return Arrival::Consumed;
        }
        match self.slots.iter_mut().find(|slot| slot.socket == route.socket) {
            Some(slot) => {
                // One home agent must not speak for another one.
                let source = Header::parse(payload).ok().map(|header| header.source);
                let own = slot.home_agent.address;
                if slot.path != path
                    || source.is_some_and(|source| {
                        source != own && self.home_agents.iter().any(|agent| agent.address == source)
                    })
                {
                    self.refused += 1;
                    return Arrival::Consumed;
                }
                slot.used = now;
                slot.asked = None;
                slot.patience = SILENCE;
                slot.is_unanswered = false;
            }
            None => self.learn(now, path, route, ends.1),
        }
        self.payload_length = length;
        if first == KEY_MESSAGE {
            self.handle_key_message(now, path, pair, route);
            return Arrival::Consumed;
        }
        Arrival::Packet(FromSession { session, ends, traffic_class })
    }

    /// Stores from which remote end an authentic packet of a path came.
    fn learn(&mut self, now: Time, path: SessionPath, route: DatagramRoute, end: Endpoint) {
        let paths = self.paths.entry(end).or_default();
        match paths.iter_mut().find(|(peer, _, _)| *peer == path.peer_id) {
            Some((_, known, known_route)) if *known == path && *known_route == route => return,
            Some(known) => *known = (path.peer_id, path, route),
            None => paths.push((path.peer_id, path, route)),
        }
        let ends = self.ends.entry(path).or_default();
        ends.retain(|known| *known != end);
        ends.push_back(end);
        if ends.len() > MAX_ENDS
            && let Some(old) = ends.pop_front()
        {
            self.forget(path, old);
        }
        for pending in self.awaiting.remove(&(path.peer_id, end)).unwrap_or_default() {
            self.seal_pending(now, path, route, &pending);
        }
    }

    fn seal_pending(&mut self, now: Time, path: SessionPath, route: DatagramRoute, pending: &Pending) {
        if now.saturating_since(pending.at) < MAX_PENDING_TIME {
            self.seal(now, path, route, pending.traffic_class, pending.may_fragment, &pending.payload);
        }
    }

    fn forget(&mut self, path: SessionPath, end: Endpoint) {
        if let Some(paths) = self.paths.get_mut(&end) {
            paths.retain(|(_, known, _)| *known != path);
            if paths.is_empty() {
                self.paths.remove(&end);
            }
        }
    }

    /// Sends an inner packet through the session of a remote key, between the tunnel ends of the station.
    pub fn send(
        &mut self,
        now: Time,
        session: SessionPeer,
        (local, remote): (Endpoint, Endpoint),
        may_fragment: bool,
        packet: &[u8],
    ) {
        let traffic_class = traffic_class_of(packet);
        if session == carnet_settings::HOME_AGENT {
            self.send_to_home_agent(now, (local, remote), traffic_class, may_fragment, false, packet);
        } else if let Some(peer) = self.peers.get(&session).copied() {
            self.send_to_router(now, peer, remote, traffic_class, may_fragment, packet);
        } else {
            self.unsent += 1;
        }
    }

    /// Sends a packet that the station writes into the tunnel device, if it is a message to or from a node
    /// with a session.
    pub fn send_packet(&mut self, now: Time, packet: &[u8]) -> Departure {
        let Ok(header) = Header::parse(packet) else { return Departure::Clear };
        let may_fragment = packet.len() > MIN_PAYLOAD;
        let class = header.traffic_class;
        if self.home_agents.iter().any(|agent| agent.address == header.destination) {
            let ends = (header.source.into(), header.destination.into());
            self.send_to_home_agent(now, ends, class, may_fragment, true, packet);
            return Departure::Consumed;
        }
        if self.agent.is_none_or(|agent| agent.address != header.source) || self.nodes.is_empty() {
            return Departure::Clear;
        }
        let remote = Endpoint::Ipv6(header.destination);
        let Ok(extensions) = Extensions::parse(packet) else { return Departure::Clear };
        // Tunnel packets of nodes in the clear.
        if !matches!(extensions.protocol, protocol::MOBILITY | protocol::ICMPV6) {
            return Departure::Clear;
        }
        if let Some(home) = extensions.routing_home_address {
            let Some(peer) = self.nodes.get(&home).copied() else { return Departure::Clear };
            self.send_to_router(now, peer, remote, class, may_fragment, packet);
            return Departure::Consumed;
        }
        // A message without a home address, such as the answer to a heartbeat.
        let peers: Vec<PeerId> =
            self.paths.get(&remote).into_iter().flatten().map(|(peer, _, _)| *peer).collect();
        for peer in &peers {
            self.send_to_router(now, *peer, remote, class, may_fragment, packet);
        }
        if peers.is_empty() { Departure::Clear } else { Departure::Consumed }
    }

    /// Sends a message that the station sends inside IPv4, if it is one to or from a node with a session.
    pub fn send_inside_ipv4(&mut self, now: Time, ends: (Endpoint, Endpoint), packet: &[u8]) -> Departure {
        let Ok(header) = Header::parse(packet) else { return Departure::Clear };
        let class = header.traffic_class;
        if self.home_agents.iter().any(|agent| agent.address == header.destination) {
            self.send_to_home_agent(now, ends, class, true, true, packet);
            return Departure::Consumed;
        }
        match self.nodes.get(&header.destination).copied() {
            Some(peer) => {
                self.send_to_router(now, peer, ends.1, class, true, packet);
                Departure::Consumed
            }
            None => Departure::Clear,
        }
    }

    fn send_to_router(
        &mut self,
        now: Time,
        peer: PeerId,
        remote: Endpoint,
        traffic_class: u8,
        may_fragment: bool,
        packet: &[u8],
    ) {
        let paths = self.paths.get(&remote).map(Vec::as_slice).unwrap_or_default();
        match paths.iter().find(|(known, _, _)| *known == peer).copied() {
            Some((_, path, route)) => self.seal(now, path, route, traffic_class, may_fragment, packet),
            // The test of a care-of address may be early: the session from there is about to begin.
            None => self.wait_for(now, (peer, remote), traffic_class, may_fragment, packet),
        }
    }

    fn wait_for(
        &mut self,
        now: Time,
        key: (PeerId, Endpoint),
        traffic_class: u8,
        may_fragment: bool,
        packet: &[u8],
    ) {
        if self.awaiting.len() >= MAX_AWAITING {
            let is_late = |pending: &Pending| now.saturating_since(pending.at) >= MAX_PENDING_TIME;
            self.awaiting.retain(|_, pending| !pending.back().is_none_or(is_late));
        }
        let has_room = self.awaiting.len() < MAX_AWAITING || self.awaiting.contains_key(&key);
        if has_room {
            let pending = self.awaiting.entry(key).or_default();
            pending.push_back(Pending { at: now, payload: packet.to_vec(), traffic_class, may_fragment });
            if pending.len() <= MAX_AWAITING_PACKETS {
                return;
            }
            pending.pop_front();
        }
        self.unsent += 1;
    }

    /// Begins the session from an address of the mobile router, so that its handshake is over when
    /// packets need it.
    pub fn prepare(&mut self, now: Time, ends: (Endpoint, Endpoint)) {
        if let Some(index) = self.slot_of(now, ends.0, ends.1)
            && let Some(slot) = self.slots.get_mut(index)
        {
            slot.used = now;
        }
    }

    fn send_to_home_agent(
        &mut self,
        now: Time,
        (local, remote): (Endpoint, Endpoint),
        traffic_class: u8,
        may_fragment: bool,
        is_signalling: bool,
        packet: &[u8],
    ) {
        let Some(index) = self.slot_of(now, local, remote) else {
            self.unsent += 1;
            return;
        };
        let Some(slot) = self.slots.get_mut(index) else { return };
        slot.used = now;
        let (path, route) = (slot.path, DatagramRoute { socket: slot.socket, remote: slot.remote });
        if is_signalling && self.engine.is_established(path) {
            match slot.asked {
                None => {
                    slot.asked = Some(now);
                    slot.renews = now + slot.patience;
                }
                Some(_) if slot.renews <= now => {
                    slot.patience = (slot.patience * 2).min(MAX_SILENCE);
                    slot.renews = now + slot.patience;
                    self.engine.renew_handshake(now, path);
                }
                Some(_) => {}
            }
        }
        if self.engine.is_established(path) {
            return self.seal(now, path, route, traffic_class, may_fragment, packet);
        }
        let pending = self.pending.entry(path).or_default();
        pending.retain(|pending| now.saturating_since(pending.at) < MAX_PENDING_TIME);
        if pending.len() < MAX_PENDING {
            pending.push_back(Pending { at: now, payload: packet.to_vec(), traffic_class, may_fragment });
        } else {
            self.unsent += 1;
        }
    }

    /// Returns the slot of a local address and a home agent; begins its session if it is new.
    fn slot_of(&mut self, now: Time, local: Endpoint, remote: Endpoint) -> Option<usize> {
        let is_remote = |agent: &&HomeAgent| match remote.address() {
            IpAddr::V6(address) => agent.address == address,
            IpAddr::V4(address) => agent.ipv4 == Some(address),
        };
        let home_agent = *self.home_agents.iter().find(is_remote)?;
        let known = self.slots.iter().position(|slot| slot.local == local && slot.home_agent == home_agent);
        if known.is_some() {
            return known;
        }
        let remote = SocketAddr::new(remote.address(), home_agent.port);
        let mut of_peer: Vec<(Time, u8)> = Vec::new();
        for slot in self.slots.iter().filter(|slot| slot.path.peer_id == home_agent.peer) {
            of_peer.push((slot.used, slot.path.path_number.get()));
        }
        let free =
            (1..=PathNumber::MAX_NUMBER).find(|number| !of_peer.iter().any(|(_, used)| used == number));
        let number = match free {
            Some(number) => number,
            None => of_peer.iter().min()?.1,
        };
        let path = SessionPath { peer_id: home_agent.peer, path_number: PathNumber::new(number)? };
        self.end(path);
        let socket = self.next_socket;
        self.next_socket = socket.checked_add(1).unwrap_or(FIRST_SOCKET);
        self.slots.push(Slot {
            path,
            local,
            home_agent,
            socket,
            remote,
            used: now,
            asked: None,
            renews: now,
            patience: SILENCE,
            is_unanswered: false,
        });
        self.engine.open_session(now, path, DatagramRoute { socket, remote });
        Some(self.slots.len() - 1)
    }

    /// Ends the session of a slot.
    fn end(&mut self, path: SessionPath) {
        self.slots.retain(|slot| slot.path != path);
        self.pending.remove(&path);
        self.engine.close_session(path);
    }

    /// Encrypts a packet.
    fn seal(
        &mut self,
        now: Time,
        path: SessionPath,
        route: DatagramRoute,
        traffic_class: u8,
        may_fragment: bool,
        packet: &[u8],
    ) {
        match self.engine.send_by_route(now, path, packet, &mut self.scratch) {
            Ok(length) => {
                let octets = self.scratch.get(..length).unwrap_or_default().into();
                let DatagramRoute { socket, remote } = route;
                self.ready.push_back(Ready { socket, remote, traffic_class, may_fragment, octets });
            }
            Err(_) => self.unsent += 1,
        }
    }

    /// Returns the next datagram to send, and puts its octets into [`Self::wire`].
    pub fn poll_datagram(&mut self) -> Option<Datagram> {
        while let Some(ready) = self.ready.pop_front() {
            let Ready { socket, remote, traffic_class, may_fragment, octets } = ready;
            let Some((local, port)) = self.local(socket) else { continue };
            self.wire.copy_from(&octets);
            match (local, remote) {
                (Endpoint::Ipv6(local), SocketAddr::V6(remote)) => {
                    let label = self.label(local, *remote.ip());
                    if self.wrap((local, port), (*remote.ip(), remote.port()), traffic_class, label) {
                        return Some(Datagram::Ipv6 { may_fragment });
                    }
                }
                (Endpoint::Udp(_), SocketAddr::V4(remote)) => {
                    let remote = Endpoint::Udp(remote);
                    return Some(Datagram::Udp { local, remote, traffic_class, may_fragment });
                }
                _ => self.unsent += 1,
            }
        }
        None
    }

    /// Returns the octets of the datagram that [`Self::poll_datagram`] has returned last.
    pub fn wire(&mut self) -> &mut PacketBuffer {
        &mut self.wire
    }

    /// Returns the fragments of the IPv6 packet in [`Self::wire`].
    pub fn fragments(&mut self) -> Vec<Vec<u8>> {
        self.identification = self.identification.wrapping_add(1);
        carnet_nemo::forwarding::fragments::cut_into_fragments(
            self.wire.as_slice(),
            MIN_MTU,
            self.identification,
        )
    }

    /// Puts the headers of IPv6 and UDP before the datagram in `wire`.
    fn wrap(
        &mut self,
        (source, from): (Ipv6Addr, u16),
        (destination, to): (Ipv6Addr, u16),
        traffic_class: u8,
        flow_label: u32,
    ) -> bool {
        let Ok(length) = u16::try_from(self.wire.as_slice().len() + UDP_LEN) else { return false };
        let mut udp = [0; UDP_LEN];
        for (field, value) in udp.chunks_exact_mut(2).zip([from, to, length, 0]) {
            field.copy_from_slice(&value.to_be_bytes());
        }
        if !self.wire.prepend(&udp) {
            return false;
        }
        let sum = upper_layer_checksum(source, destination, protocol::UDP, self.wire.as_slice());
        // RFC 8200 8.1: zero means no checksum, which IPv6 forbids.
        let sum = if sum == 0 { 0xffff } else { sum };
        if let Some(field) = self.wire.as_mut_slice().get_mut(6..UDP_LEN) {
            field.copy_from_slice(&sum.to_be_bytes());
        }
        let header = Header {
            traffic_class,
            flow_label,
            payload_length: length,
            next_header: protocol::UDP,
            hop_limit: HOP_LIMIT,
            source,
            destination,
        };
        self.wire.prepend(&header.emit())
    }

    /// Returns the flow label of the outer packets between two addresses. Others cannot guess this keyed
    /// hash. So an ICMPv6 error with it quotes a packet of this station.
    fn label(&self, source: Ipv6Addr, destination: Ipv6Addr) -> u32 {
        (self.labels.hash_one((source, destination)) & 0xf_ffff) as u32
    }

    /// Returns the local end and port of a socket in the engine.
    fn local(&self, socket: u32) -> Option<(Endpoint, u16)> {
        match (socket, self.agent) {
            (AGENT_IPV6, Some(agent)) => Some((agent.address.into(), agent.port)),
            (AGENT_IPV4, Some(agent)) => {
                Some((Endpoint::Udp(SocketAddrV4::new(agent.ipv4?, agent.port)), agent.port))
            }
            _ => {
                let slot = self.slots.iter().find(|slot| slot.socket == socket)?;
                Some((slot.local, UDP_PORT))
            }
        }
    }

    /// Returns the tunnel ends and the MTU of an ICMPv6 Packet Too Big, if it provably quotes a datagram of a
    /// session.
    pub fn too_big(&self, local: Ipv6Addr, message: &[u8]) -> Option<((Endpoint, Endpoint), u32)> {
        let (error, quoted) = icmpv6::parse_error(message).ok()?;
        let icmpv6::ErrorMessage::PacketTooBig { mtu } = error else { return None };
        let header = Header::parse(quoted).ok()?;
        let is_ours = header.next_header == protocol::UDP
            && header.source == local
            && header.flow_label == self.label(header.source, header.destination);
        (is_ours && mtu >= MIN_MTU as u32).then_some(((header.source.into(), header.destination.into()), mtu))
    }

    /// Returns the tunnel ends for the station of an ICMP report about a datagram of a session inside IPv4.
    pub fn ends_of_report(&self, local: Endpoint, remote: Endpoint) -> (Endpoint, Endpoint) {
        match remote {
            Endpoint::Udp(there)
                if self
                    .home_agents
                    .iter()
                    .any(|agent| agent.ipv4 == Some(*there.ip()) && agent.port == there.port()) =>
            {
                (local, Endpoint::Udp(SocketAddrV4::new(*there.ip(), UDP_PORT)))
            }
            _ => (local, remote),
        }
    }

    /// Returns the time of the next [`Self::handle`].
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.engine.has_handshakes() {
            return Some(Time::ZERO);
        }
        let idle = self.slots.iter().map(|slot| slot.used + IDLE).min();
        [self.engine.poll_timeout(), idle, self.keys_due()].into_iter().flatten().min()
    }

    /// Handles the handshakes that wait and the timers that are due. [`Self::poll_datagram`] and
    /// [`Self::poll_message`] return the results.
    pub fn handle(&mut self, now: Time) {
        self.engine.handle_handshakes(now, HANDSHAKES);
        if self.engine.poll_timeout().is_some_and(|due| due <= now) {
            self.engine.handle_timeout(now);
        }
        let is_idle = |slot: &&Slot| now.saturating_since(slot.used) >= IDLE;
        let idle: Vec<SessionPath> = self.slots.iter().filter(is_idle).map(|slot| slot.path).collect();
        idle.into_iter().for_each(|path| self.end(path));
        self.handle_keys(now);
        while let Some(output) = self.engine.poll_output() {
            self.apply(now, output);
        }
        self.state.store_newest(self.engine.newest_timestamp());
        self.state.store_accepted(now);
    }

    fn apply(&mut self, now: Time, output: Output) {
        match output {
            Output::Send { route: DatagramRoute { socket, remote }, datagram } => {
                self.ready.push_back(Ready {
                    socket,
                    remote,
                    traffic_class: 0,
                    may_fragment: false,
                    octets: datagram,
                });
            }
            Output::Established { path, pair, route } => {
                self.use_keys(now, path, pair, route);
                tracing::debug!("the session of {} is established", self.name(path));
                if let Some(slot) = self.slots.iter_mut().find(|slot| slot.path == path) {
                    (slot.asked, slot.is_unanswered) = (None, false);
                }
                for pending in self.pending.remove(&path).unwrap_or_default() {
                    self.seal_pending(now, path, route, &pending);
                }
                // The handshake has proved that the router receives there.
                if matches!(route.socket, AGENT_IPV6 | AGENT_IPV4) {
                    let end = match route.remote {
                        SocketAddr::V6(remote) => Endpoint::Ipv6(*remote.ip()),
                        SocketAddr::V4(remote) => Endpoint::Udp(remote),
                    };
                    self.learn(now, path, route, end);
                }
            }
            // The station decides to which address it sends: see `learn`.
            Output::Moved { .. } | Output::Elsewhere { .. } => {}
            Output::Accepted { path, remote, timestamp } => {
                self.state.accept(now, remote, path.path_number, timestamp);
            }
            Output::OldTimestamp { path } => {
                let message = format!(
                    "old timestamp: a handshake of {} is not newer than the last one; its clock went back, \
                     or somebody repeats a recording",
                    self.name(path)
                );
                self.messages.push_back(message);
            }
            Output::NoAnswer { path } => {
                let name = self.name(path);
                let Some(slot) = self.slots.iter_mut().find(|slot| slot.path == path) else { return };
                if !std::mem::replace(&mut slot.is_unanswered, true) {
                    self.messages.push_back(format!(
                        "no answer: key, clock or path: the {name} does not answer the handshakes from {}",
                        slot.local.address()
                    ));
                }
            }
            Output::Ended { path } => {
                for end in self.ends.remove(&path).unwrap_or_default() {
                    self.forget(path, end);
                }
            }
        }
    }

    fn name(&self, path: SessionPath) -> String {
        self.remotes.get(&path.peer_id).map(|remote| remote.name.clone()).unwrap_or_default()
    }

    /// Returns the next message for the log and for the events.
    pub fn poll_message(&mut self) -> Option<String> {
        self.messages.pop_front()
    }

    /// Stores the timestamps at the end of the run.
    pub fn close(&mut self) {
        self.state.store();
    }
}

/// Returns DSCP and ECN of an IPv6 or IPv4 packet.
fn traffic_class_of(packet: &[u8]) -> u8 {
    match packet {
        [first, second, ..] if first >> 4 == 4 => *second,
        [first, second, ..] => first << 4 | second >> 4,
        _ => 0,
    }
}

// A data message and its outer headers fit into the room of a buffer.
const _: () = assert!(HEADER_LEN + UDP_LEN <= 96);
