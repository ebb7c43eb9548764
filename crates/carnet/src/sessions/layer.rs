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
use carnet_wire::extension::ExtensionHeaders;
use carnet_wire::fragment::{FRAGMENT_HEADER_LEN, FragmentHeader};
use carnet_wire::icmpv6;
use carnet_wire::ipv6::{HEADER_LEN, Header, MIN_MTU, protocol};
use carnet_wireguard::{
    DatagramRoute, EngineSettings, Output, PathNumber, PeerId, PresharedKey, PrivateKey, PublicKey,
    ReceivedDatagram, RemotePeer, SessionEngine, SessionPath, WireguardDropReason, engine_start_date,
};

mod direct;
mod fleet;
mod keys;

use self::direct::DirectSessions;
use self::fleet::{HeldItems, StoredRoutes};
use self::keys::{KEY_MESSAGE_FIRST_OCTET, KeyExchange};
use super::state::StoredState;
use super::{OutgoingDatagram, SessionArrival, SessionDeparture, SessionPacketOrigin};
use crate::state::RecordKey;

/// Octets of a UDP header.
const UDP_HEADER_LENGTH: usize = 8;
/// Hop limit of the outer header: 64 on the wire, because the kernel decrements it.
const OUTER_HOP_LIMIT: u8 = 64 + 1;
/// Maximum length of a UDP datagram, in octets.
const MAX_DATAGRAM_LENGTH: usize = 65_535;
/// Largest payload, in octets, whose encrypted datagram passes every IPv6 path without fragments.
const MIN_PAYLOAD_LENGTH: usize = 1184;
/// Maximum number of packets that wait for the handshake of one path. `MAX_PENDING_TIME` is their longest
/// wait.
const MAX_PENDING_PACKETS: usize = 16;
const MAX_PENDING_TIME: Duration = Duration::from_secs(2);
/// Time without an answer to signalling after which the mobile router begins a handshake.
const SIGNALLING_SILENCE: Duration = Duration::from_millis(1200);
/// Longest time between two handshakes that begin because signalling has no answer. The time starts at
/// [`SIGNALLING_SILENCE`] and doubles each time.
const MAX_SIGNALLING_SILENCE: Duration = Duration::from_secs(15);
/// Time without packets after which a mobile router ends the session of one of its addresses.
const IDLE_SESSION_TIMEOUT: Duration = Duration::from_secs(180);
/// Maximum number of addresses of one path to which a home agent may send: those from which authentic packets
/// came last.
const MAX_ENDS_PER_PATH: usize = 4;
/// Maximum number of handshakes that the engine decrypts in one turn. The others wait in its queue, so that
/// data packets go first.
const HANDSHAKES_PER_TURN: usize = 8;
/// Maximum number of remote ends for which packets of the home agent wait. `MAX_AWAITING_PACKETS` is the
/// maximum for each of these remote ends.
const MAX_AWAITING_ENDS: usize = 1024;
const MAX_AWAITING_PACKETS: usize = 4;
/// Number of the home agent's IPv6 socket in the session engine. The next number is its IPv4 socket, and the
/// numbers after that are the addresses of a mobile router.
const HOME_AGENT_IPV6_SOCKET: u32 = 0;
const HOME_AGENT_IPV4_SOCKET: u32 = 1;
const FIRST_ROUTER_SOCKET: u32 = 2;

/// An encrypted datagram that is ready to send, with its local socket and its destination.
#[derive(Debug)]
struct ReadyDatagram {
    socket: u32,
    remote: SocketAddr,
    traffic_class: u8,
    may_fragment: bool,
    octets: Box<[u8]>,
}

/// Addresses and port of this station's own home agent, for sessions.
#[derive(Debug, Clone, Copy)]
struct LocalHomeAgent {
    address: Ipv6Addr,
    ipv4_address: Option<Ipv4Addr>,
    port: u16,
}

/// A home agent in the config of the mobile router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RemoteHomeAgent {
    peer_id: PeerId,
    address: Ipv6Addr,
    ipv4_address: Option<Ipv4Addr>,
    port: u16,
}

/// A remote end whose key is in the config.
#[derive(Debug)]
struct ConfiguredPeer {
    /// Key in the config. The keys that are valid now are in `remote_peer`.
    config_key: PublicKey,
    remote_peer: RemotePeer,
    session_peer: SessionPeer,
    /// Name for the log.
    name: String,
}

/// An address of the mobile router, with its session to a home agent.
#[derive(Debug)]
struct SessionSlot {
    path: SessionPath,
    local: Endpoint,
    home_agent: RemoteHomeAgent,
    socket: u32,
    remote: SocketAddr,
    /// Time of the last packet in either direction.
    last_packet_at: Time,
    /// Time of the first signalling message since the last received packet; `None` if no answer is missing.
    unanswered_since: Option<Time>,
    /// Time of the next handshake if no packet arrives until then. `silence_limit` is the time between two of
    /// these handshakes.
    next_handshake_at: Time,
    silence_limit: Duration,
    /// Whether the log has reported that the home agent does not answer the handshakes.
    is_unanswered: bool,
}

/// A packet that waits for a handshake.
#[derive(Debug)]
struct PendingPacket {
    queued_at: Time,
    payload: Vec<u8>,
    traffic_class: u8,
    may_fragment: bool,
}

/// The sessions of this station.
pub struct Sessions {
    session_engine: SessionEngine,
    local_home_agent: Option<LocalHomeAgent>,
    remote_home_agents: Vec<RemoteHomeAgent>,
    remote_peers: BTreeMap<PeerId, ConfiguredPeer>,
    id_by_key: HashMap<PublicKey, PeerId>,
    next_peer_id: u32,
    /// Mobile routers that have sessions with this station's home agent, by home address.
    peer_by_home_address: HashMap<Ipv6Addr, PeerId>,
    /// Remote end for each number by which the station names a key.
    id_by_session_peer: HashMap<SessionPeer, PeerId>,
    session_slots: Vec<SessionSlot>,
    next_socket_number: u32,
    pending_packets: HashMap<SessionPath, VecDeque<PendingPacket>>,
    /// Paths of the home agent by the remote end from which their authentic packets came.
    paths_by_remote_end: HashMap<Endpoint, Vec<(PeerId, SessionPath, DatagramRoute)>>,
    ends_by_path: HashMap<SessionPath, VecDeque<Endpoint>>,
    /// Packets of the home agent to remote ends from which no authentic packet has come yet.
    packets_awaiting_path: HashMap<(PeerId, Endpoint), VecDeque<PendingPacket>>,
    ready_datagrams: VecDeque<ReadyDatagram>,
    log_messages: VecDeque<String>,
    /// Paths whose handshakes have no answer, until the log reports them.
    unanswered_paths: VecDeque<SessionPath>,
    reassembler: Reassembler,
    fragment_identification: u32,
    flow_label_hasher: RandomState,
    /// Buffer for the payload of a received datagram. `payload_length` is the length of the payload.
    payload: Vec<u8>,
    payload_length: usize,
    scratch_buffer: Vec<u8>,
    outgoing_packet: PacketBuffer,
    state: StoredState,
    key_exchange: KeyExchange,
    /// Paths of mobile routers that the home agent still has to open.
    stored_routes: StoredRoutes,
    /// Handshake responses and announced keys that wait until the store of a fleet has their records.
    held_items: HeldItems,
    direct_sessions: DirectSessions,
    /// Number of packets that could not be sent, mostly for lack of a session. `refused_packets` counts
    /// received payloads that do not fit their session.
    unsent_packets: u64,
    refused_packets: u64,
}

impl Sessions {
    /// Creates the sessions of a config; `None` if the config has no key of a remote end. In a fleet,
    /// `records` are the sessions' records in the store; without a fleet they are `None`.
    ///
    /// # Errors
    /// Returns an error if the kernel has no random numbers, or if a record cannot be read.
    pub fn new(
        config: &Config,
        seed_time: Time,
        records: Option<&[(RecordKey, String)]>,
    ) -> anyhow::Result<Option<Sessions>> {
        let Some(private_key) = config.station.private_key.as_ref().filter(|_| config.has_sessions()) else {
            return Ok(None);
        };
        let seed = clock::random_octets().context("cannot get randomness from the kernel")?;
        let state = match records {
            Some(records) => StoredState::of_records(records)?,
            None => StoredState::read_state_file(config.station.state_dir.as_deref(), &config.station.name),
        };
        let system = Duration::from_nanos(clock::wall_time().as_unix_nanos());
        let engine = SessionEngine::new(EngineSettings {
            private_key: PrivateKey::from_random(private_key.present_key.octets()),
            random_seed: seed,
            now: seed_time,
            unix_time_at_start: engine_start_date(system, state.newest_timestamp()),
        });
        let mut sessions = Sessions {
            session_engine: engine,
            local_home_agent: None,
            remote_home_agents: Vec::new(),
            remote_peers: BTreeMap::new(),
            id_by_key: HashMap::new(),
            next_peer_id: 0,
            peer_by_home_address: HashMap::new(),
            id_by_session_peer: HashMap::new(),
            session_slots: Vec::new(),
            next_socket_number: FIRST_ROUTER_SOCKET,
            pending_packets: HashMap::new(),
            paths_by_remote_end: HashMap::new(),
            ends_by_path: HashMap::new(),
            packets_awaiting_path: HashMap::new(),
            ready_datagrams: VecDeque::new(),
            log_messages: VecDeque::new(),
            unanswered_paths: VecDeque::new(),
            reassembler: Reassembler::default(),
            fragment_identification: u32::from_le_bytes([seed[0], seed[1], seed[2], seed[3]]).rotate_left(7),
            flow_label_hasher: RandomState::new(),
            payload: vec![0; MAX_DATAGRAM_LENGTH],
            payload_length: 0,
            scratch_buffer: vec![0; MAX_DATAGRAM_LENGTH],
            outgoing_packet: PacketBuffer::new(),
            state,
            key_exchange: KeyExchange::default(),
            stored_routes: StoredRoutes::default(),
            held_items: HeldItems::default(),
            direct_sessions: DirectSessions::default(),
            unsent_packets: 0,
            refused_packets: 0,
        };
        sessions.reconfigure(seed_time, config);
        sessions.take_stored_routes();
        Ok(Some(sessions))
    }

    /// Applies the keys and addresses of a config. Sessions are not interrupted if the config still has their
    /// key.
    pub fn reconfigure(&mut self, now: Time, config: &Config) {
        let mut wanted: Vec<ConfiguredPeer> = Vec::new();
        let mut kept: HashMap<PublicKey, PeerId> = HashMap::new();
        self.peer_by_home_address.clear();
        self.local_home_agent = config.home_agent.as_ref().map(|agent| LocalHomeAgent {
            address: agent.address,
            ipv4_address: agent.ipv4_address,
            port: agent.tunnel_port,
        });
        for (node, number) in config.home_agent.iter().flat_map(|agent| &agent.mobile_routers).zip(0..) {
            let Some(keys) = node.node_auth.session_keys() else { continue };
            let name = format!("mobile router {}", node.home_address);
            for key in &keys.public_keys {
                let id = self.peer_id_of_key(*key, &mut kept);
                self.peer_by_home_address.insert(node.home_address, id);
                let (config_key, remote_peer) =
                    (PublicKey::from(key.0), self.session_peer_config(id, *key, keys));
                wanted.push(ConfiguredPeer {
                    config_key,
                    remote_peer,
                    session_peer: SessionPeer(number),
                    name: name.clone(),
                });
            }
        }
        self.remote_home_agents.clear();
        if let Some((router, keys)) =
            config.mobile_router.as_ref().and_then(|router| Some((router, router.auth.session_keys()?)))
        {
            for (index, address) in router.home_agents.addresses.iter().enumerate() {
                let Some(key) = keys.public_keys.get(index).or(keys.public_keys.first()) else { continue };
                let id = self.peer_id_of_key(*key, &mut kept);
                let ipv4 = router.home_agents.ipv4_addresses.get(index).copied();
                let port = router.home_agent_port;
                self.remote_home_agents.push(RemoteHomeAgent {
                    peer_id: id,
                    address: *address,
                    ipv4_address: ipv4,
                    port,
                });
                let name = format!("home agent {address}");
                let (config_key, remote_peer) =
                    (PublicKey::from(key.0), self.session_peer_config(id, *key, keys));
                wanted.push(ConfiguredPeer {
                    config_key,
                    remote_peer,
                    session_peer: carnet_settings::HOME_AGENT_PEER,
                    name,
                });
            }
        }
        for (id, remote) in self.remote_peers.iter().filter(|(id, _)| !kept.values().any(|kept| kept == *id))
        {
            self.session_engine.remove_peer(*id);
            self.state.clear_routes(now, remote.config_key);
        }
        self.id_by_key = kept;
        self.remote_peers.clear();
        self.id_by_session_peer.clear();
        for remote in wanted {
            let id = remote.remote_peer.peer_id;
            for key in &remote.remote_peer.public_keys {
                self.release_key(*key);
            }
            self.session_engine.set_peer(now, remote.remote_peer.clone());
            for key in &remote.remote_peer.public_keys {
                for (number, timestamp) in self.state.accepted_timestamps(*key) {
                    self.session_engine.restore_timestamp(*key, number, timestamp);
                }
            }
            self.id_by_session_peer.insert(remote.session_peer, id);
            self.remote_peers.entry(id).or_insert(remote);
        }
        if let Some(key) = &config.station.private_key {
            self.set_private_keys(now, key);
        }
        let engine = &self.session_engine;
        let home_agents = &self.remote_home_agents;
        self.session_slots
            .retain(|slot| engine.route(slot.path).is_some() && home_agents.contains(&slot.home_agent));
        self.paths_by_remote_end.retain(|_, paths| {
            paths.retain(|(_, path, _)| engine.route(*path).is_some());
            !paths.is_empty()
        });
        self.ends_by_path.retain(|path, _| engine.route(*path).is_some());
        self.pending_packets.clear();
    }

    fn peer_id_of_key(&mut self, key: ConfigKey, kept: &mut HashMap<PublicKey, PeerId>) -> PeerId {
        let key = PublicKey::from(key.0);
        let next = &mut self.next_peer_id;
        let id = *self.id_by_key.entry(key).or_insert_with(|| {
            *next += 1;
            PeerId(*next)
        });
        kept.insert(key, id);
        id
    }

    /// Returns a peer with the keys that are valid now.
    fn session_peer_config(&self, id: PeerId, key: ConfigKey, keys: &SessionKeys) -> RemotePeer {
        let preshared_key = keys.preshared_key.as_ref().map(|key| PresharedKey::from_random(key.octets()));
        RemotePeer { peer_id: id, public_keys: self.state.valid_keys(PublicKey::from(key.0)), preshared_key }
    }

    /// Returns the local address and port for the home agent's sessions inside IPv4; `None` if it needs no
    /// such socket.
    pub fn agent_socket(&self) -> Option<SocketAddrV4> {
        let agent = self.local_home_agent.filter(|_| !self.peer_by_home_address.is_empty())?;
        agent.ipv4_address.map(|address| SocketAddrV4::new(address, agent.port))
    }

    /// Returns the number of sessions, and the number of drops for each reason that has any.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let drops = WireguardDropReason::ALL.iter().map(|reason| {
            (
                format!("session.dropped.{}", carnet_base::DropReason::name(*reason)),
                self.session_engine.drop_count(*reason),
            )
        });
        drops
            .chain([
                ("session.sessions".to_owned(), self.session_engine.session_count() as u64),
                ("session.unsent".to_owned(), self.unsent_packets),
                ("session.refused".to_owned(), self.refused_packets),
            ])
            .collect()
    }

    /// Handles the packet in the buffer, which came from the tunnel device.
    pub fn receive_ipv6_packet(&mut self, now: Time, buffer: &mut PacketBuffer) -> SessionArrival {
        let arrival = self.open_ipv6_packet(now, buffer.as_slice());
        self.extract_payload(&arrival, buffer);
        arrival
    }

    /// Puts the payload that came out of a session into the buffer, in place of the datagram.
    fn extract_payload(&self, arrival: &SessionArrival, buffer: &mut PacketBuffer) {
        if matches!(arrival, SessionArrival::Packet(_)) {
            buffer.copy_from(self.payload.get(..self.payload_length).unwrap_or_default());
        }
    }

    fn open_ipv6_packet(&mut self, now: Time, packet: &[u8]) -> SessionArrival {
        let Ok((header, payload)) = Header::parse_packet(packet) else { return SessionArrival::Foreign };
        let is_ours = self.local_home_agent.is_some_and(|agent| agent.address == header.destination)
            || self.remote_home_agents.iter().any(|agent| agent.address == header.source)
            || self.direct_sessions.socket_of_local_address(header.destination).is_some();
        if !is_ours {
            return SessionArrival::Foreign;
        }
        match header.next_header {
            protocol::UDP => self.open_udp_datagram(now, &header, payload),
            protocol::FRAGMENT => {
                let Ok(fragment) = FragmentHeader::parse(payload) else { return SessionArrival::Foreign };
                if fragment.next_header != protocol::UDP {
                    return SessionArrival::Foreign;
                }
                let content = payload.get(FRAGMENT_HEADER_LEN..).unwrap_or_default();
                let stranger = !self.is_session_end(&header);
                let whole = self.reassembler.handle_fragment(now, &header, &fragment, content, stranger);
                let Ok(Some(whole)) = whole else { return SessionArrival::Consumed };
                match Header::parse_packet(&whole) {
                    Ok((header, payload)) => match self.open_udp_datagram(now, &header, payload) {
                        SessionArrival::Foreign => SessionArrival::Consumed,
                        arrival => arrival,
                    },
                    Err(_) => SessionArrival::Consumed,
                }
            }
            _ => SessionArrival::Foreign,
        }
    }

    /// Returns whether a received packet may belong to a session, judged by its addresses.
    fn is_session_end(&self, header: &Header) -> bool {
        self.paths_by_remote_end.contains_key(&Endpoint::Ipv6(header.source))
            || self.direct_sessions.has_remote(header.source)
            || self.session_slots.iter().any(|slot| slot.local == Endpoint::Ipv6(header.destination))
    }

    fn open_udp_datagram(&mut self, now: Time, header: &Header, datagram: &[u8]) -> SessionArrival {
        let Some((&[a, b, c, d, e, f, _, _], octets)) = datagram.split_first_chunk::<UDP_HEADER_LENGTH>()
        else {
            return SessionArrival::Foreign;
        };
        let (from, to) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let length = usize::from(u16::from_be_bytes([e, f])).saturating_sub(UDP_HEADER_LENGTH);
        let Some(octets) = octets.get(..length) else { return SessionArrival::Consumed };
        let ends = (Endpoint::Ipv6(header.destination), Endpoint::Ipv6(header.source));
        let remote = SocketAddr::from((header.source, from));
        let is_agent = self.local_home_agent.is_some_and(|agent| {
            (agent.address, agent.port) == (header.destination, to) && !self.peer_by_home_address.is_empty()
        });
        if is_agent {
            let route = DatagramRoute { socket: HOME_AGENT_IPV6_SOCKET, remote };
            return self.decrypt_datagram(now, route, ends, header.traffic_class, octets);
        }
        if to != UDP_PORT {
            return SessionArrival::Foreign;
        }
        let is_home_agent = self.remote_home_agents.iter().any(|agent| agent.address == header.source);
        if let Some(socket) =
            self.direct_sessions.socket_of_local_address(header.destination).filter(|_| !is_home_agent)
        {
            if from != UDP_PORT {
                return SessionArrival::Consumed;
            }
            let route = DatagramRoute { socket, remote };
            return self.open_from_router(now, route, ends, header.traffic_class, octets);
        }
        self.open_at_router(now, ends, remote, header.traffic_class, octets)
    }

    /// Handles the datagram in the buffer, which came from a tunnel socket.
    pub fn receive_datagram(
        &mut self,
        now: Time,
        ends: (Endpoint, Endpoint),
        traffic_class: u8,
        buffer: &mut PacketBuffer,
    ) -> SessionArrival {
        let arrival = self.open_ipv4_datagram(now, ends, traffic_class, buffer.as_slice());
        self.extract_payload(&arrival, buffer);
        arrival
    }

    fn open_ipv4_datagram(
        &mut self,
        now: Time,
        (local, remote): (Endpoint, Endpoint),
        traffic_class: u8,
        octets: &[u8],
    ) -> SessionArrival {
        let (Endpoint::Udp(here), Endpoint::Udp(there)) = (local, remote) else {
            return SessionArrival::Foreign;
        };
        if self.agent_socket() == Some(here) {
            let route = DatagramRoute { socket: HOME_AGENT_IPV4_SOCKET, remote: there.into() };
            return self.decrypt_datagram(now, route, (local, remote), traffic_class, octets);
        }
        let of_session =
            |agent: &RemoteHomeAgent| agent.ipv4_address == Some(*there.ip()) && agent.port == there.port();
        if !self.remote_home_agents.iter().any(of_session) {
            return SessionArrival::Foreign;
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
    ) -> SessionArrival {
        let slot = self.session_slots.iter().find(|slot| slot.local == ends.0 && slot.remote == remote);
        let Some(socket) = slot.map(|slot| slot.socket) else { return SessionArrival::Consumed };
        self.decrypt_datagram(now, DatagramRoute { socket, remote }, ends, traffic_class, octets)
    }

    /// Decrypts a datagram. For [`SessionArrival::Packet`], the first `payload_length` octets of `payload`
    /// have the packet.
    fn decrypt_datagram(
        &mut self,
        now: Time,
        route: DatagramRoute,
        ends: (Endpoint, Endpoint),
        traffic_class: u8,
        octets: &[u8],
    ) -> SessionArrival {
        let (path, pair, length) =
            match self.session_engine.receive_datagram(now, route, octets, &mut self.payload) {
                ReceivedDatagram::Payload { path, pair, payload } => (path, pair, payload.len()),
                ReceivedDatagram::Handled | ReceivedDatagram::Queued | ReceivedDatagram::Dropped(_) => {
                    return SessionArrival::Consumed;
                }
            };
        let Some(remote) = self.remote_peers.get(&path.peer_id) else { return SessionArrival::Consumed };
        let session = remote.session_peer;
        let payload = self.payload.get(..length).unwrap_or_default();
        // A payload is an IP packet or a message about keys. Other first octets are for later versions.
        let first = payload.first().copied().unwrap_or_default();
        if !matches!(first >> 4, 4 | 6) && first != KEY_MESSAGE_FIRST_OCTET {
            self.refused_packets += 1;
            return SessionArrival::Consumed;
        }
        match self.session_slots.iter_mut().find(|slot| slot.socket == route.socket) {
            Some(slot) => {
                // A home agent must not send packets whose source is the address of another home agent.
                let source = Header::parse(payload).ok().map(|header| header.source);
                let own = slot.home_agent.address;
                if slot.path != path
                    || source.is_some_and(|source| {
                        source != own && self.remote_home_agents.iter().any(|agent| agent.address == source)
                    })
                {
                    self.refused_packets += 1;
                    return SessionArrival::Consumed;
                }
                slot.last_packet_at = now;
                slot.unanswered_since = None;
                slot.silence_limit = SIGNALLING_SILENCE;
                slot.is_unanswered = false;
            }
            None => self.learn_path_end(now, path, route, ends.1),
        }
        self.payload_length = length;
        if first == KEY_MESSAGE_FIRST_OCTET {
            self.handle_key_message(now, path, pair, route);
            return SessionArrival::Consumed;
        }
        SessionArrival::Packet(SessionPacketOrigin {
            session_peer: session,
            tunnel_ends: ends,
            traffic_class,
        })
    }

    /// Stores from which remote end an authentic packet of a path came.
    fn learn_path_end(&mut self, now: Time, path: SessionPath, route: DatagramRoute, end: Endpoint) {
        let paths = self.paths_by_remote_end.entry(end).or_default();
        match paths.iter_mut().find(|(peer, _, _)| *peer == path.peer_id) {
            Some((_, known, known_route)) if *known == path && *known_route == route => return,
            Some(known) => *known = (path.peer_id, path, route),
            None => paths.push((path.peer_id, path, route)),
        }
        let ends = self.ends_by_path.entry(path).or_default();
        ends.retain(|known| *known != end);
        ends.push_back(end);
        if ends.len() > MAX_ENDS_PER_PATH
            && let Some(old) = ends.pop_front()
        {
            self.forget_path_end(path, old);
        }
        for pending in self.packets_awaiting_path.remove(&(path.peer_id, end)).unwrap_or_default() {
            self.encrypt_pending(now, path, route, &pending);
        }
    }

    fn encrypt_pending(
        &mut self,
        now: Time,
        path: SessionPath,
        route: DatagramRoute,
        pending: &PendingPacket,
    ) {
        if now.saturating_since(pending.queued_at) < MAX_PENDING_TIME {
            self.encrypt_packet(
                now,
                path,
                route,
                pending.traffic_class,
                pending.may_fragment,
                &pending.payload,
            );
        }
    }

    fn forget_path_end(&mut self, path: SessionPath, end: Endpoint) {
        if let Some(paths) = self.paths_by_remote_end.get_mut(&end) {
            paths.retain(|(_, known, _)| *known != path);
            if paths.is_empty() {
                self.paths_by_remote_end.remove(&end);
            }
        }
    }

    /// Encrypts an inner packet for the remote end `session`, and queues it for sending between these tunnel
    /// ends.
    pub fn send_inner_packet(
        &mut self,
        now: Time,
        session: SessionPeer,
        (local, remote): (Endpoint, Endpoint),
        may_fragment: bool,
        packet: &[u8],
    ) {
        let traffic_class = traffic_class_of(packet);
        if session == carnet_settings::HOME_AGENT_PEER {
            self.send_to_home_agent(now, (local, remote), traffic_class, may_fragment, false, packet);
        } else if self.direct_sessions.has_session(session) {
            self.send_to_other_router(now, session, (local, remote), may_fragment, packet);
        } else if let Some(peer) = self.id_by_session_peer.get(&session).copied() {
            self.send_to_router(now, peer, remote, traffic_class, may_fragment, packet);
        } else {
            self.unsent_packets += 1;
        }
    }

    /// Sends a packet for the tunnel device through a session instead, if it is a message to or from a node
    /// with a session.
    pub fn send_outer_packet(&mut self, now: Time, packet: &[u8]) -> SessionDeparture {
        let Ok(header) = Header::parse(packet) else { return SessionDeparture::Clear };
        let may_fragment = packet.len() > MIN_PAYLOAD_LENGTH;
        let class = header.traffic_class;
        if self.remote_home_agents.iter().any(|agent| agent.address == header.destination) {
            let ends = (header.source.into(), header.destination.into());
            self.send_to_home_agent(now, ends, class, may_fragment, true, packet);
            return SessionDeparture::Consumed;
        }
        if self.local_home_agent.is_none_or(|agent| agent.address != header.source)
            || self.peer_by_home_address.is_empty()
        {
            return SessionDeparture::Clear;
        }
        let remote = Endpoint::Ipv6(header.destination);
        let Ok(extensions) = ExtensionHeaders::parse(packet) else { return SessionDeparture::Clear };
        // Only Mobility Header and ICMPv6 messages go through a session here. Other packets are tunnel
        // packets of nodes without encryption.
        if !matches!(extensions.protocol, protocol::MOBILITY | protocol::ICMPV6) {
            return SessionDeparture::Clear;
        }
        if let Some(home) = extensions.routing_home_address {
            let Some(peer) = self.peer_by_home_address.get(&home).copied() else {
                return SessionDeparture::Clear;
            };
            self.send_to_router(now, peer, remote, class, may_fragment, packet);
            return SessionDeparture::Consumed;
        }
        // A message without a home address, such as the answer to a heartbeat, goes to all nodes with a
        // session at its destination address.
        let peers: Vec<PeerId> =
            self.paths_by_remote_end.get(&remote).into_iter().flatten().map(|(peer, _, _)| *peer).collect();
        for peer in &peers {
            self.send_to_router(now, *peer, remote, class, may_fragment, packet);
        }
        if peers.is_empty() { SessionDeparture::Clear } else { SessionDeparture::Consumed }
    }

    /// Sends a message inside IPv4 through a session instead, if it is a message to or from a node with a
    /// session.
    pub fn send_inside_ipv4(
        &mut self,
        now: Time,
        ends: (Endpoint, Endpoint),
        packet: &[u8],
    ) -> SessionDeparture {
        let Ok(header) = Header::parse(packet) else { return SessionDeparture::Clear };
        let class = header.traffic_class;
        if self.remote_home_agents.iter().any(|agent| agent.address == header.destination) {
            self.send_to_home_agent(now, ends, class, true, true, packet);
            return SessionDeparture::Consumed;
        }
        match self.peer_by_home_address.get(&header.destination).copied() {
            Some(peer) => {
                self.send_to_router(now, peer, ends.1, class, true, packet);
                SessionDeparture::Consumed
            }
            None => SessionDeparture::Clear,
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
        let paths = self.paths_by_remote_end.get(&remote).map(Vec::as_slice).unwrap_or_default();
        match paths.iter().find(|(known, _, _)| *known == peer).copied() {
            Some((_, path, route)) => {
                self.encrypt_packet(now, path, route, traffic_class, may_fragment, packet)
            }
            // A test of a care-of address may be sent before the session from this address exists. The
            // session is about to begin, so the packet waits for it.
            None => self.wait_for_handshake(now, (peer, remote), traffic_class, may_fragment, packet),
        }
    }

    fn wait_for_handshake(
        &mut self,
        now: Time,
        key: (PeerId, Endpoint),
        traffic_class: u8,
        may_fragment: bool,
        packet: &[u8],
    ) {
        if self.packets_awaiting_path.len() >= MAX_AWAITING_ENDS {
            let is_late =
                |pending: &PendingPacket| now.saturating_since(pending.queued_at) >= MAX_PENDING_TIME;
            self.packets_awaiting_path.retain(|_, pending| !pending.back().is_none_or(is_late));
        }
        let has_room = self.packets_awaiting_path.len() < MAX_AWAITING_ENDS
            || self.packets_awaiting_path.contains_key(&key);
        if has_room {
            let pending = self.packets_awaiting_path.entry(key).or_default();
            pending.push_back(PendingPacket {
                queued_at: now,
                payload: packet.to_vec(),
                traffic_class,
                may_fragment,
            });
            if pending.len() <= MAX_AWAITING_PACKETS {
                return;
            }
            pending.pop_front();
        }
        self.unsent_packets += 1;
    }

    /// Begins the session from an address of the mobile router, so that the handshake is complete before
    /// packets need the session.
    pub fn prepare_session(&mut self, now: Time, ends: (Endpoint, Endpoint)) {
        if let Some(index) = self.slot_between(now, ends.0, ends.1)
            && let Some(slot) = self.session_slots.get_mut(index)
        {
            slot.last_packet_at = now;
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
        let Some(index) = self.slot_between(now, local, remote) else {
            self.unsent_packets += 1;
            return;
        };
        let Some(slot) = self.session_slots.get_mut(index) else { return };
        slot.last_packet_at = now;
        let (path, route) = (slot.path, DatagramRoute { socket: slot.socket, remote: slot.remote });
        if is_signalling && self.session_engine.is_established(path) {
            match slot.unanswered_since {
                None => {
                    slot.unanswered_since = Some(now);
                    slot.next_handshake_at = now + slot.silence_limit;
                }
                Some(_) if slot.next_handshake_at <= now => {
                    slot.silence_limit = (slot.silence_limit * 2).min(MAX_SIGNALLING_SILENCE);
                    slot.next_handshake_at = now + slot.silence_limit;
                    self.session_engine.renew_handshake(now, path);
                }
                Some(_) => {}
            }
        }
        if self.session_engine.is_established(path) {
            return self.encrypt_packet(now, path, route, traffic_class, may_fragment, packet);
        }
        let pending = self.pending_packets.entry(path).or_default();
        pending.retain(|pending| now.saturating_since(pending.queued_at) < MAX_PENDING_TIME);
        if pending.len() < MAX_PENDING_PACKETS {
            pending.push_back(PendingPacket {
                queued_at: now,
                payload: packet.to_vec(),
                traffic_class,
                may_fragment,
            });
        } else {
            self.unsent_packets += 1;
        }
    }

    fn new_socket_number(&mut self) -> u32 {
        let socket = self.next_socket_number;
        self.next_socket_number = socket.checked_add(1).unwrap_or(FIRST_ROUTER_SOCKET);
        socket
    }

    fn new_peer_id(&mut self) -> PeerId {
        self.next_peer_id = self.next_peer_id.wrapping_add(1);
        PeerId(self.next_peer_id)
    }

    /// Returns the index of the slot of a local address and a home agent. Creates the slot and begins its
    /// session if it is new. Returns `None` if the config does not have this home agent.
    fn slot_between(&mut self, now: Time, local: Endpoint, remote: Endpoint) -> Option<usize> {
        let is_remote = |agent: &&RemoteHomeAgent| match remote.address() {
            IpAddr::V6(address) => agent.address == address,
            IpAddr::V4(address) => agent.ipv4_address == Some(address),
        };
        let home_agent = *self.remote_home_agents.iter().find(is_remote)?;
        let known =
            self.session_slots.iter().position(|slot| slot.local == local && slot.home_agent == home_agent);
        if known.is_some() {
            return known;
        }
        let remote = SocketAddr::new(remote.address(), home_agent.port);
        let mut of_peer: Vec<(Time, u8)> = Vec::new();
        for slot in self.session_slots.iter().filter(|slot| slot.path.peer_id == home_agent.peer_id) {
            of_peer.push((slot.last_packet_at, slot.path.path_number.get()));
        }
        let free =
            (1..=PathNumber::MAX_NUMBER).find(|number| !of_peer.iter().any(|(_, used)| used == number));
        let number = match free {
            Some(number) => number,
            None => of_peer.iter().min()?.1,
        };
        let path = SessionPath { peer_id: home_agent.peer_id, path_number: PathNumber::new(number)? };
        self.end_session(path);
        let socket = self.new_socket_number();
        self.session_slots.push(SessionSlot {
            path,
            local,
            home_agent,
            socket,
            remote,
            last_packet_at: now,
            unanswered_since: None,
            next_handshake_at: now,
            silence_limit: SIGNALLING_SILENCE,
            is_unanswered: false,
        });
        self.session_engine.open_session(now, path, DatagramRoute { socket, remote });
        Some(self.session_slots.len() - 1)
    }

    /// Ends a session of the mobile router, and removes its slot.
    fn end_session(&mut self, path: SessionPath) {
        self.session_slots.retain(|slot| slot.path != path);
        self.pending_packets.remove(&path);
        self.session_engine.close_session(path);
    }

    /// Encrypts a packet through the session of `path`, and queues the datagram for `route`.
    fn encrypt_packet(
        &mut self,
        now: Time,
        path: SessionPath,
        route: DatagramRoute,
        traffic_class: u8,
        may_fragment: bool,
        packet: &[u8],
    ) {
        match self.session_engine.encrypt_for_other_route(now, path, packet, &mut self.scratch_buffer) {
            Ok(length) => {
                let octets = self.scratch_buffer.get(..length).unwrap_or_default().into();
                let DatagramRoute { socket, remote } = route;
                self.ready_datagrams.push_back(ReadyDatagram {
                    socket,
                    remote,
                    traffic_class,
                    may_fragment,
                    octets,
                });
            }
            Err(_) => self.unsent_packets += 1,
        }
    }

    /// Returns the next datagram to send, and puts its octets into [`Self::outgoing_packet_mut`]. Returns
    /// `None` if no datagram waits.
    pub fn poll_datagram(&mut self) -> Option<OutgoingDatagram> {
        while let Some(ready) = self.ready_datagrams.pop_front() {
            let ReadyDatagram { socket, remote, traffic_class, may_fragment, octets } = ready;
            let Some((local, port)) = self.local_end_of_socket(socket) else { continue };
            self.outgoing_packet.copy_from(&octets);
            match (local, remote) {
                (Endpoint::Ipv6(local), SocketAddr::V6(remote)) => {
                    let label = self.flow_label_between(local, *remote.ip());
                    if self.prepend_headers(
                        (local, port),
                        (*remote.ip(), remote.port()),
                        traffic_class,
                        label,
                    ) {
                        return Some(OutgoingDatagram::Ipv6 { may_fragment });
                    }
                }
                (Endpoint::Udp(_), SocketAddr::V4(remote)) => {
                    let remote = Endpoint::Udp(remote);
                    return Some(OutgoingDatagram::Udp { local, remote, traffic_class, may_fragment });
                }
                _ => self.unsent_packets += 1,
            }
        }
        None
    }

    /// Returns the octets of the datagram that [`Self::poll_datagram`] has returned last.
    pub fn outgoing_packet_mut(&mut self) -> &mut PacketBuffer {
        &mut self.outgoing_packet
    }

    /// Returns the fragments of the IPv6 packet in [`Self::outgoing_packet_mut`].
    pub fn outgoing_fragments(&mut self) -> Vec<Vec<u8>> {
        self.fragment_identification = self.fragment_identification.wrapping_add(1);
        carnet_nemo::forwarding::fragments::cut_into_fragments(
            self.outgoing_packet.as_slice(),
            MIN_MTU,
            self.fragment_identification,
        )
    }

    /// Puts the headers of UDP and IPv6 before the datagram in `outgoing_packet`. Returns `false` if the
    /// result is too long.
    fn prepend_headers(
        &mut self,
        (source, from): (Ipv6Addr, u16),
        (destination, to): (Ipv6Addr, u16),
        traffic_class: u8,
        flow_label: u32,
    ) -> bool {
        let Ok(length) = u16::try_from(self.outgoing_packet.as_slice().len() + UDP_HEADER_LENGTH) else {
            return false;
        };
        let mut udp = [0; UDP_HEADER_LENGTH];
        for (field, value) in udp.chunks_exact_mut(2).zip([from, to, length, 0]) {
            field.copy_from_slice(&value.to_be_bytes());
        }
        if !self.outgoing_packet.prepend(&udp) {
            return false;
        }
        let sum = upper_layer_checksum(source, destination, protocol::UDP, self.outgoing_packet.as_slice());
        // RFC 8200 8.1: a UDP checksum of zero means that the datagram has no checksum, which IPv6 forbids.
        let sum = if sum == 0 { 0xffff } else { sum };
        if let Some(field) = self.outgoing_packet.as_mut_slice().get_mut(6..UDP_HEADER_LENGTH) {
            field.copy_from_slice(&sum.to_be_bytes());
        }
        let header = Header {
            traffic_class,
            flow_label,
            payload_length: length,
            next_header: protocol::UDP,
            hop_limit: OUTER_HOP_LIMIT,
            source,
            destination,
        };
        self.outgoing_packet.prepend(&header.emit())
    }

    /// Returns the flow label of the outer packets between two addresses. The label is a keyed hash that
    /// other nodes cannot guess. So an ICMPv6 error that quotes this label is about a packet of this station.
    fn flow_label_between(&self, source: Ipv6Addr, destination: Ipv6Addr) -> u32 {
        (self.flow_label_hasher.hash_one((source, destination)) & 0xf_ffff) as u32
    }

    /// Returns the local address and port of the engine's socket with this number; `None` if no address has
    /// the number.
    fn local_end_of_socket(&self, socket: u32) -> Option<(Endpoint, u16)> {
        match (socket, self.local_home_agent) {
            (HOME_AGENT_IPV6_SOCKET, Some(agent)) => Some((agent.address.into(), agent.port)),
            (HOME_AGENT_IPV4_SOCKET, Some(agent)) => {
                Some((Endpoint::Udp(SocketAddrV4::new(agent.ipv4_address?, agent.port)), agent.port))
            }
            _ => {
                let slot =
                    self.session_slots.iter().find(|slot| slot.socket == socket).map(|slot| slot.local);
                let local = slot
                    .or_else(|| self.direct_sessions.local_address_of_socket(socket).map(Endpoint::Ipv6))?;
                Some((local, UDP_PORT))
            }
        }
    }

    /// Returns the tunnel ends and the MTU of an ICMPv6 Packet Too Big, if it provably quotes a datagram of a
    /// session.
    pub fn mtu_of_too_big(&self, local: Ipv6Addr, message: &[u8]) -> Option<((Endpoint, Endpoint), u32)> {
        let (error, quoted) = icmpv6::parse_error(message).ok()?;
        let icmpv6::Icmpv6ErrorMessage::PacketTooBig { mtu } = error else { return None };
        let header = Header::parse(quoted).ok()?;
        let is_ours = header.next_header == protocol::UDP
            && header.source == local
            && header.flow_label == self.flow_label_between(header.source, header.destination);
        (is_ours && mtu >= MIN_MTU as u32).then_some(((header.source.into(), header.destination.into()), mtu))
    }

    /// Converts the addresses in an ICMP error about a datagram of a session inside IPv4 to the tunnel ends
    /// that the station uses.
    pub fn ends_of_too_big_report(&self, local: Endpoint, remote: Endpoint) -> (Endpoint, Endpoint) {
        match remote {
            Endpoint::Udp(there)
                if self
                    .remote_home_agents
                    .iter()
                    .any(|agent| agent.ipv4_address == Some(*there.ip()) && agent.port == there.port()) =>
            {
                (local, Endpoint::Udp(SocketAddrV4::new(*there.ip(), UDP_PORT)))
            }
            _ => (local, remote),
        }
    }

    /// Returns the time of the next [`Self::handle_due_work`]; `None` if no work is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.session_engine.has_waiting_handshakes() || !self.stored_routes.is_empty() {
            return Some(Time::ZERO);
        }
        let idle = self.session_slots.iter().map(|slot| slot.last_packet_at + IDLE_SESSION_TIMEOUT).min();
        [self.session_engine.poll_timeout(), idle, self.next_key_work_at()].into_iter().flatten().min()
    }

    /// Handles the handshakes that wait and the timers that are due. [`Self::poll_datagram`] and
    /// [`Self::poll_message`] return the results.
    pub fn handle_due_work(&mut self, now: Time) {
        self.session_engine.handle_waiting_handshakes(now, HANDSHAKES_PER_TURN);
        self.open_stored_routes(now);
        if self.session_engine.poll_timeout().is_some_and(|due| due <= now) {
            self.session_engine.handle_timeout(now);
        }
        let is_idle = |slot: &&SessionSlot| now.saturating_since(slot.last_packet_at) >= IDLE_SESSION_TIMEOUT;
        let idle: Vec<SessionPath> =
            self.session_slots.iter().filter(is_idle).map(|slot| slot.path).collect();
        idle.into_iter().for_each(|path| self.end_session(path));
        self.handle_due_key_work(now);
        while let Some(output) = self.session_engine.poll_output() {
            self.apply_engine_output(now, output);
        }
        self.state.store_newest(self.session_engine.newest_timestamp());
        self.state.store_changes(now);
    }

    fn apply_engine_output(&mut self, now: Time, output: Output) {
        let Some(output) = self.apply_direct(now, output) else { return };
        match output {
            Output::Send { route: DatagramRoute { socket, remote }, datagram } => {
                let ready =
                    ReadyDatagram { socket, remote, traffic_class: 0, may_fragment: false, octets: datagram };
                self.send_or_hold(ready);
            }
            Output::Established { path, pair, route } => {
                self.record_keys_in_use(now, path, pair, route);
                tracing::debug!("the encrypted session of {} is established", self.name_of_path(path));
                if let Some(slot) = self.session_slots.iter_mut().find(|slot| slot.path == path) {
                    (slot.unanswered_since, slot.is_unanswered) = (None, false);
                }
                for pending in self.pending_packets.remove(&path).unwrap_or_default() {
                    self.encrypt_pending(now, path, route, &pending);
                }
                // The handshake has proved that the mobile router receives packets at this address.
                if matches!(route.socket, HOME_AGENT_IPV6_SOCKET | HOME_AGENT_IPV4_SOCKET) {
                    let end = match route.remote {
                        SocketAddr::V6(remote) => Endpoint::Ipv6(*remote.ip()),
                        SocketAddr::V4(remote) => Endpoint::Udp(remote),
                    };
                    self.learn_path_end(now, path, route, end);
                    self.handle_established_at_home_agent(now, path, pair, route);
                }
            }
            // The station chooses the address to which it sends (see `learn_path_end`), so only the stored
            // route changes.
            Output::Moved { path, route } => self.store_route(now, path, Some(route)),
            Output::Elsewhere { .. } => {}
            Output::Accepted { path, remote, timestamp } => {
                self.state.record_accepted_timestamp(now, remote, path.path_number, timestamp);
            }
            Output::OldTimestamp { path } => {
                let message = format!(
                    "old timestamp: a handshake of {} is not newer than the last one; its clock went back, \
                     or somebody repeats a recording",
                    self.name_of_path(path)
                );
                self.log_messages.push_back(message);
            }
            Output::UnknownKey { route: DatagramRoute { socket, remote }, remote: key } => {
                let is_agent = matches!(socket, HOME_AGENT_IPV6_SOCKET | HOME_AGENT_IPV4_SOCKET);
                let lacks_key = match is_agent {
                    true => {
                        "no mobile router in the config has this key; if it is a mobile router of yours, \
                         this is the value for `public_key` in its [[home_agent.mobile_router]]"
                    }
                    false => "no other end in the config has this key",
                };
                self.log_messages.push_back(format!(
                    "unknown key: a handshake from {remote} has the public key {key}: {lacks_key}"
                ));
            }
            Output::NoAnswer { path } => {
                let Some(slot) = self.session_slots.iter_mut().find(|slot| slot.path == path) else {
                    return self.give_up_stored_route(now, path);
                };
                if !std::mem::replace(&mut slot.is_unanswered, true) {
                    self.unanswered_paths.push_back(path);
                }
            }
            Output::Ended { path } => {
                self.store_route(now, path, None);
                for end in self.ends_by_path.remove(&path).unwrap_or_default() {
                    self.forget_path_end(path, end);
                }
            }
        }
    }

    fn name_of_path(&self, path: SessionPath) -> String {
        self.remote_peers.get(&path.peer_id).map(|remote| remote.name.clone()).unwrap_or_default()
    }

    /// Returns the next message for the log and for the events. `is_of_uplink` says whether a local address
    /// belongs to a usable uplink. For an address without such an uplink, the function ends the unanswered
    /// session and returns no message.
    pub fn poll_message(&mut self, is_of_uplink: impl Fn(IpAddr) -> bool) -> Option<String> {
        while let Some(path) = self.unanswered_paths.pop_front() {
            let Some(slot) = self.session_slots.iter().find(|slot| slot.path == path) else { continue };
            let (local, remote) = (slot.local.address(), slot.remote);
            if !is_of_uplink(local) {
                // If the address comes back, a new handshake begins at once.
                self.end_session(path);
                continue;
            }
            self.log_messages.push_back(format!(
                "no answer: key, clock or path: the {} does not answer the handshakes from {local} to UDP \
                 port {} of {}",
                self.name_of_path(path),
                remote.port(),
                remote.ip()
            ));
        }
        self.log_messages.pop_front()
    }

    /// Writes the timestamps into the state file when the station stops.
    pub fn store_timestamps(&mut self) {
        self.state.write_file();
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

// The outer headers fit into the 96 octets that a packet buffer has free before the packet.
const _: () = assert!(HEADER_LEN + UDP_HEADER_LENGTH <= 96);
