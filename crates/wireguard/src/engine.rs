//! The sessions of one private key, and what datagrams and timers do to them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use carnet_base::{RateLimiter, Rng, Seed, Time, TimerTable};
use sanstun::{
    Committed, HandshakeInitiation, HandshakeResponse, Interface, Received as Parsed, ReceivedMessage,
    TransportData, TunnelId,
};
use zeroize::Zeroizing;

use crate::handshake_queue::{HandshakeQueue, WaitingHandshake};
use crate::session::{PathSession, SessionEvent};
use crate::timestamp::HandshakeClock;
use crate::{
    DATA_MESSAGE_OVERHEAD, DatagramRoute, HandshakeTimestamp, PathNumber, PresharedKey, PrivateKey,
    PublicKey, SessionPath, WireguardDropReason, datagram_length,
};

/// Message types (section 5.4 of the protocol's paper).
const MESSAGE_INITIATION: u8 = 1;
const MESSAGE_RESPONSE: u8 = 2;
const INITIATION_LENGTH: usize = 148;
const RESPONSE_LENGTH: usize = 92;
/// Sessions whose timers one call handles, so that a call takes some milliseconds at most.
const SESSIONS_PER_TIMEOUT: usize = 64;
/// Time between two checks of the timers of a session that carries data.
const TIMER_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Largest age of a stored timestamp.
const MAX_STORED_TIMESTAMP_AGE: Duration = Duration::from_secs(60);
/// Handshakes a second above which the engine answers with cookies.
const HANDSHAKES_WITHOUT_COOKIE: u64 = 1000;

/// The caller's number of a remote public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// A remote key. A node with two valid keys, while they are exchanged, is two peers.
#[derive(Debug, Clone)]
pub struct RemotePeer {
    /// The caller's number.
    pub peer_id: PeerId,
    /// The public key.
    pub public_key: PublicKey,
    /// The preshared key, if both ends have one.
    pub preshared_key: Option<PresharedKey>,
}

/// Values that an engine needs at its start.
#[derive(Debug)]
pub struct EngineSettings {
    /// The own private key.
    pub private_key: PrivateKey,
    /// 32 octets of the operating system's randomness. All ephemeral keys come from them.
    pub random_seed: [u8; 32],
    /// The caller's monotonic time.
    pub now: Time,
    /// The date of `now` as the time since the UNIX epoch, from [`date_at_start`].
    pub unix_time_at_start: Duration,
}

/// Returns the date with which an engine starts. It is the later one of two dates: that of the system's
/// clock, and 60 s after the newest timestamp of the last run. `stored` is a value of
/// [`SessionEngine::newest_timestamp`] that is at most 60 s old. So a router without a battery clock sends no
/// timestamp twice.
pub fn date_at_start(system: Duration, stored: Option<Duration>) -> Duration {
    stored.map_or(system, |stored| system.max(stored.saturating_add(MAX_STORED_TIMESTAMP_AGE)))
}

/// Instruction or report for the caller.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this datagram.
    Send {
        /// Socket and remote address.
        route: DatagramRoute,
        /// The datagram.
        datagram: Box<[u8]>,
    },
    /// Both ends have the keys: the path carries payloads.
    Established {
        /// The path.
        path: SessionPath,
        /// Route of the path.
        route: DatagramRoute,
    },
    /// The remote end has another address, and a handshake has proved that it receives there.
    Moved {
        /// The path.
        path: SessionPath,
        /// The new route.
        route: DatagramRoute,
    },
    /// An authentic and newest message came from another address, without a proof. A NAT may have lost its
    /// mapping, or the remote end forges the address of a victim. The caller tests the address, with
    /// [`SessionEngine::send_by_route`], and passes it to [`SessionEngine::set_route_of`] after the answer.
    Elsewhere {
        /// The path.
        path: SessionPath,
        /// The unproven route.
        route: DatagramRoute,
    },
    /// A handshake with this timestamp was accepted. The caller stores it, and passes it to
    /// [`SessionEngine::restore_timestamp`] after a restart, so that a recorded handshake stays old.
    Accepted {
        /// The path.
        path: SessionPath,
        /// The timestamp.
        timestamp: HandshakeTimestamp,
    },
    /// A handshake was dropped because its timestamp is old: a recording, or a router whose clock was reset.
    OldTimestamp {
        /// The path.
        path: SessionPath,
    },
    /// Several handshakes had no answer: a key, a clock or the path is wrong.
    NoAnswer {
        /// The path.
        path: SessionPath,
    },
    /// The session has ended. The caller may remove its path.
    Ended {
        /// The path.
        path: SessionPath,
    },
}

/// Result of a received datagram.
#[derive(Debug, PartialEq, Eq)]
pub enum ReceivedDatagram<'b> {
    /// An authentic payload, padded with zeros to a multiple of 16 octets.
    Payload {
        /// The path.
        path: SessionPath,
        /// The payload in the caller's buffer.
        payload: &'b mut [u8],
    },
    /// A message of the protocol; [`SessionEngine::poll_output`] has the results.
    Handled,
    /// A handshake message, which waits for [`SessionEngine::handle_handshakes`].
    Queued,
    /// The datagram was dropped.
    Dropped(WireguardDropReason),
}

/// The sessions of one private key.
pub struct SessionEngine {
    handshake_clock: HandshakeClock,
    /// Checks MACs and cookies, and decrypts initiations. It makes no tunnels, so it keeps no timestamps:
    /// the engine compares them itself, for each path.
    handshake_authenticator: Interface,
    /// Makes the tunnels.
    tunnel_factory: Interface,
    public_key: PublicKey,
    peers_by_key: HashMap<PublicKey, RemotePeer>,
    key_by_peer_id: BTreeMap<PeerId, PublicKey>,
    sessions_by_path: HashMap<SessionPath, Box<PathSession>>,
    path_by_tunnel: HashMap<TunnelId, SessionPath>,
    /// Number of sessions with this remote address.
    sessions_by_remote_address: HashMap<SocketAddr, u32>,
    /// Timestamp of the newest accepted handshake of each path.
    accepted_timestamps: BTreeMap<SessionPath, HandshakeTimestamp>,
    handshake_queue: HandshakeQueue,
    session_timers: TimerTable<SessionPath>,
    outputs: VecDeque<Output>,
    events: Vec<SessionEvent>,
    newest_timestamp: Duration,
    report_limiter: RateLimiter,
    drops_by_reason: [u64; WireguardDropReason::ALL.len()],
}

impl SessionEngine {
    /// Creates an engine without peers.
    pub fn new(settings: EngineSettings) -> SessionEngine {
        let EngineSettings { private_key, random_seed: seed, now, unix_time_at_start: unix } = settings;
        let mut random = Rng::from_seed(Seed::Octets(seed));
        let clock = HandshakeClock::new(now, unix);
        let mut interface = || {
            let mut seed = Zeroizing::new([0; 32]);
            for octets in seed.chunks_exact_mut(8) {
                octets.copy_from_slice(&random.u64().to_le_bytes());
            }
            Interface::new(seed, clock.instant_of(now), clock.unix_at_start())
                .with_static_private(private_key.to_static_secret())
        };
        SessionEngine {
            handshake_clock: clock,
            handshake_authenticator: interface().with_handshake_limit(HANDSHAKES_WITHOUT_COOKIE),
            tunnel_factory: interface(),
            public_key: private_key.public_key(),
            peers_by_key: HashMap::new(),
            key_by_peer_id: BTreeMap::new(),
            sessions_by_path: HashMap::new(),
            path_by_tunnel: HashMap::new(),
            sessions_by_remote_address: HashMap::new(),
            accepted_timestamps: BTreeMap::new(),
            handshake_queue: HandshakeQueue::default(),
            session_timers: TimerTable::new(),
            outputs: VecDeque::new(),
            events: Vec::new(),
            newest_timestamp: Duration::ZERO,
            report_limiter: RateLimiter::new(20, Duration::from_secs(1)),
            drops_by_reason: [0; WireguardDropReason::ALL.len()],
        }
    }

    /// Returns the own public key.
    pub fn public_key(&self) -> PublicKey {
        self.public_key
    }

    /// Adds a peer, or replaces the one with this number. A peer whose keys have not changed keeps its
    /// sessions. Of two peers with one public key the first one stays, and the function returns `false`.
    pub fn set_peer(&mut self, peer: RemotePeer) -> bool {
        if self.peers_by_key.get(&peer.public_key).is_some_and(|other| other.peer_id != peer.peer_id) {
            return false;
        }
        if let Some(old) = self.key_by_peer_id.get(&peer.peer_id).and_then(|key| self.peers_by_key.get(key)) {
            let text = |key: &Option<PresharedKey>| key.as_ref().map(PresharedKey::to_text);
            if old.public_key == peer.public_key && text(&old.preshared_key) == text(&peer.preshared_key) {
                return true;
            }
            self.remove_peer(peer.peer_id);
        }
        self.key_by_peer_id.insert(peer.peer_id, peer.public_key);
        self.peers_by_key.insert(peer.public_key, peer);
        true
    }

    /// Removes a peer and its sessions. The timestamps of its handshakes stay, in case that it comes back.
    pub fn remove_peer(&mut self, id: PeerId) {
        if let Some(key) = self.key_by_peer_id.remove(&id) {
            self.peers_by_key.remove(&key);
        }
        let paths: Vec<SessionPath> =
            self.sessions_by_path.keys().copied().filter(|path| path.peer_id == id).collect();
        for path in paths {
            self.remove(path);
        }
    }

    /// Restores the timestamp of the newest handshake of a path, from the last run.
    pub fn restore_timestamp(&mut self, path: SessionPath, timestamp: HandshakeTimestamp) {
        let floor = self.accepted_timestamps.entry(path).or_insert(timestamp);
        *floor = (*floor).max(timestamp);
    }

    /// Opens a session and keeps it, with handshakes from this end, until [`SessionEngine::close_session`].
    /// If the session exists, its datagrams take the new route from now on. Returns whether the peer is
    /// known.
    pub fn open_session(&mut self, now: Time, path: SessionPath, route: DatagramRoute) -> bool {
        if self.session_with_tunnel(now, path).is_err() {
            return false;
        }
        self.set_route(path, route);
        let Some(session) = self.sessions_by_path.get_mut(&path) else { return false };
        session.is_wanted = true;
        if !session.is_established() {
            self.begin_handshake(now, path);
        }
        true
    }

    /// Ends the session of a path.
    pub fn close_session(&mut self, path: SessionPath) {
        self.remove(path);
    }

    /// Begins a handshake for a session whose remote end may have lost its keys. The keys stay in use until
    /// the response arrives.
    pub fn renew_handshake(&mut self, now: Time, path: SessionPath) {
        self.begin_handshake(now, path);
    }

    /// Returns whether the path can carry payloads.
    pub fn is_established(&self, path: SessionPath) -> bool {
        self.sessions_by_path.get(&path).is_some_and(|session| session.is_established())
    }

    /// Returns the route of a path.
    pub fn route(&self, path: SessionPath) -> Option<DatagramRoute> {
        self.sessions_by_path.get(&path)?.route
    }

    /// Returns the number of sessions, established or not.
    pub fn session_count(&self) -> usize {
        self.sessions_by_path.len()
    }

    /// Returns the number of drops for a reason.
    pub fn drop_count(&self, reason: WireguardDropReason) -> u64 {
        self.drops_by_reason[reason as usize]
    }

    /// Returns the latest date that this end has written into a handshake, as time since the UNIX epoch.
    pub fn newest_timestamp(&self) -> Duration {
        self.newest_timestamp
    }

    /// Handles a received datagram. A payload is decrypted into `buffer`, which is at least as long as the
    /// datagram.
    pub fn receive_datagram<'b>(
        &mut self,
        now: Time,
        route: DatagramRoute,
        datagram: &[u8],
        buffer: &'b mut [u8],
    ) -> ReceivedDatagram<'b> {
        let expected = match datagram.first() {
            Some(&MESSAGE_INITIATION) => INITIATION_LENGTH,
            Some(&MESSAGE_RESPONSE) => RESPONSE_LENGTH,
            _ => 0,
        };
        if expected > 0 {
            if datagram.len() != expected {
                return self.dropped(WireguardDropReason::Malformed);
            }
            let of_session = self.sessions_by_remote_address.contains_key(&route.remote);
            return match self.handshake_queue.push(route, datagram, of_session) {
                true => ReceivedDatagram::Queued,
                false => self.dropped(WireguardDropReason::QueueFull),
            };
        }
        match self.handshake_authenticator.receive(
            route.remote,
            datagram,
            self.handshake_clock.instant_of(now),
        ) {
            Ok(Parsed::Message(ReceivedMessage::TransportData(message))) => {
                self.receive_data(now, route, message, datagram, buffer)
            }
            Ok(Parsed::Message(ReceivedMessage::CookieReply(reply))) => {
                let path = self.path_by_tunnel.get(&reply.tunnel_id()).copied();
                let Some((path, session)) =
                    path.and_then(|path| Some((path, self.sessions_by_path.get_mut(&path)?)))
                else {
                    return self.dropped(WireguardDropReason::Unexpected);
                };
                if let Err(error) =
                    session.noise_tunnel.handle_cookie_reply(reply, self.handshake_clock.instant_of(now))
                {
                    return self.dropped(error.into());
                }
                let initiation = session.initiate_with_cookie(&self.handshake_clock, now, path);
                self.send_initiation(path, initiation);
                self.schedule_next_deadline(now, path);
                ReceivedDatagram::Handled
            }
            Ok(_) => self.dropped(WireguardDropReason::Malformed),
            Err(error) => self.dropped(error.into()),
        }
    }

    fn receive_data<'b>(
        &mut self,
        now: Time,
        route: DatagramRoute,
        message: TransportData,
        datagram: &[u8],
        buffer: &'b mut [u8],
    ) -> ReceivedDatagram<'b> {
        let path = self.path_by_tunnel.get(&message.tunnel_id()).copied();
        let Some((path, session)) = path.and_then(|path| Some((path, self.sessions_by_path.get_mut(&path)?)))
        else {
            return self.dropped(WireguardDropReason::NoSession);
        };
        let at = self.handshake_clock.instant_of(now);
        let committed = session.noise_tunnel.begin_decapsulate(message, at).and_then(|pending| {
            session.noise_tunnel.commit_decapsulate(pending.decrypt(datagram, buffer), at)
        });
        let committed = match committed {
            Ok(committed) => committed,
            Err(error) => return self.dropped(error.into()),
        };
        // The library has checked the length: the header has 16 octets.
        let index = u32::from_le_bytes([datagram[4], datagram[5], datagram[6], datagram[7]]);
        let counter = u64::from_le_bytes(datagram[8..16].try_into().unwrap_or_default());
        // The initiator keeps its route. The responder follows the newest message, if a handshake has proved
        // that the initiator receives there.
        let differs = session.is_newest(index, counter) && !session.is_wanted && session.route != Some(route);
        let proven = differs && session.is_proven(index, route);
        let reports = differs && !proven && session.is_unreported(route);
        let was_routed = session.route.is_some();
        session.collect_events(now, &mut self.events);
        if proven {
            self.set_route(path, route);
            if was_routed {
                self.outputs.push_back(Output::Moved { path, route });
            }
        } else if reports {
            self.outputs.push_back(Output::Elsewhere { path, route });
        }
        self.apply_session_events(now, path);
        self.schedule_check(now, path);
        match committed {
            Committed::Data { buffer, len } => {
                ReceivedDatagram::Payload { path, payload: &mut buffer[..len] }
            }
            Committed::Keepalive => ReceivedDatagram::Handled,
        }
    }

    /// Encrypts a payload into `datagram`, and returns where it goes and its length. A payload has at least
    /// one octet, and `datagram` has [`datagram_length`] octets. Without a session the engine begins a
    /// handshake and does not store the payload.
    pub fn send_payload(
        &mut self,
        now: Time,
        path: SessionPath,
        payload: &[u8],
        datagram: &mut [u8],
    ) -> Result<(DatagramRoute, usize), WireguardDropReason> {
        let route = self.route(path);
        let result = route.ok_or(WireguardDropReason::NotEstablished).and_then(|route| {
            self.encrypt_payload(now, path, payload, datagram).map(|length| (route, length))
        });
        match result {
            Ok(_) => self.schedule_check(now, path),
            Err(reason) => {
                self.count_drop(reason);
                if reason == WireguardDropReason::NotEstablished {
                    self.begin_handshake(now, path);
                }
            }
        }
        result
    }

    fn encrypt_payload(
        &mut self,
        now: Time,
        path: SessionPath,
        payload: &[u8],
        datagram: &mut [u8],
    ) -> Result<usize, WireguardDropReason> {
        if payload.is_empty() || datagram.len() < datagram_length(payload.len()) {
            return Err(WireguardDropReason::Length);
        }
        let session = self.sessions_by_path.get_mut(&path).ok_or(WireguardDropReason::NotEstablished)?;
        let at = self.handshake_clock.instant_of(now);
        let pending =
            session.noise_tunnel.begin_encapsulate(at).map_err(|_| WireguardDropReason::NotEstablished)?;
        Ok(pending.encrypt(payload, datagram)?.len())
    }

    /// Encrypts a payload for a route that is not the path's own: a test of [`Output::Elsewhere`]. Returns
    /// the length of the datagram.
    pub fn send_by_route(
        &mut self,
        now: Time,
        path: SessionPath,
        payload: &[u8],
        datagram: &mut [u8],
    ) -> Result<usize, WireguardDropReason> {
        let result = self.encrypt_payload(now, path, payload, datagram);
        match result {
            Ok(_) => self.schedule_check(now, path),
            Err(reason) => self.count_drop(reason),
        }
        result
    }

    /// Changes the route of a session: the caller has proved that the remote end receives there.
    pub fn set_route_of(&mut self, path: SessionPath, route: DatagramRoute) {
        self.set_route(path, route);
    }

    /// Returns whether handshake messages wait.
    pub fn has_handshakes(&self) -> bool {
        !self.handshake_queue.is_empty()
    }

    /// Handles handshake messages that wait. At most `most` of them are decrypted, and at most 16 times this
    /// number fail the cheap check of their MAC. The caller handles data in between.
    pub fn handle_handshakes(&mut self, now: Time, most: usize) {
        let (mut costly, mut cheap) = (0, 0);
        while costly < most && cheap < most * 16 {
            let Some(waiting) = self.handshake_queue.pop_next() else { return };
            match self.handle_handshake(now, &waiting) {
                Ok(()) => costly += 1,
                Err(reason) => {
                    self.count_drop(reason);
                    match reason {
                        WireguardDropReason::Mac
                        | WireguardDropReason::Cookie
                        | WireguardDropReason::RateLimited => cheap += 1,
                        _ => costly += 1,
                    }
                }
            }
        }
    }

    fn handle_handshake(&mut self, now: Time, waiting: &WaitingHandshake) -> Result<(), WireguardDropReason> {
        let route = waiting.route;
        match self.handshake_authenticator.receive(
            route.remote,
            waiting.octets(),
            self.handshake_clock.instant_of(now),
        )? {
            Parsed::SendCookieReply(reply) => {
                self.outputs.push_back(Output::Send { route, datagram: (*reply).into() });
                Err(WireguardDropReason::Cookie)
            }
            Parsed::Message(ReceivedMessage::HandshakeInitiation(initiation)) => {
                self.handle_initiation(now, route, initiation)
            }
            Parsed::Message(ReceivedMessage::HandshakeResponse(response)) => {
                self.handle_response(now, response)
            }
            Parsed::Message(_) => Err(WireguardDropReason::Malformed),
        }
    }

    /// Answers an authentic initiation.
    fn handle_initiation(
        &mut self,
        now: Time,
        route: DatagramRoute,
        initiation: HandshakeInitiation,
    ) -> Result<(), WireguardDropReason> {
        let key = PublicKey::from(initiation.peer_static_public().to_bytes());
        let peer = self.peers_by_key.get(&key).ok_or(WireguardDropReason::UnknownKey)?.peer_id;
        let timestamp = HandshakeTimestamp(initiation.timestamp());
        let number = PathNumber::new(timestamp.path_number()).ok_or(WireguardDropReason::PathNumber)?;
        let path = SessionPath { peer_id: peer, path_number: number };
        if self.accepted_timestamps.get(&path).is_some_and(|&floor| timestamp <= floor) {
            if self.report_limiter.allow(now) {
                self.outputs.push_back(Output::OldTimestamp { path });
            }
            return Err(WireguardDropReason::OldTimestamp);
        }
        let session = self.session_with_tunnel(now, path)?;
        if !session.take_handshake_share(now) {
            return Err(WireguardDropReason::Share);
        }
        let at = self.handshake_clock.instant_of(now);
        let Some(session) = self.sessions_by_path.get_mut(&path) else {
            return Err(WireguardDropReason::NoSession);
        };
        let response = session.noise_tunnel.handle_handshake_initiation(initiation, at)?;
        let index = u32::from_le_bytes([response[4], response[5], response[6], response[7]]);
        session.remember_answer(index, route);
        self.accepted_timestamps.insert(path, timestamp);
        self.outputs.push_back(Output::Accepted { path, timestamp });
        // The session keeps its route until the initiator confirms: the initiation may come from an attacker
        // who has delayed it.
        self.outputs.push_back(Output::Send { route, datagram: (*response).into() });
        self.schedule_next_deadline(now, path);
        Ok(())
    }

    /// Completes a handshake of this end.
    fn handle_response(&mut self, now: Time, response: HandshakeResponse) -> Result<(), WireguardDropReason> {
        let path =
            self.path_by_tunnel.get(&response.tunnel_id()).copied().ok_or(WireguardDropReason::Unexpected)?;
        let session = self.sessions_by_path.get_mut(&path).ok_or(WireguardDropReason::Unexpected)?;
        let keepalive =
            session.noise_tunnel.handle_handshake_response(response, self.handshake_clock.instant_of(now))?;
        session.finish_handshake();
        let route = session.route;
        session.collect_events(now, &mut self.events);
        if let Some(route) = route {
            self.outputs.push_back(Output::Send { route, datagram: (*keepalive).into() });
        }
        self.apply_session_events(now, path);
        self.schedule_next_deadline(now, path);
        Ok(())
    }

    /// Returns the time at which the caller calls [`SessionEngine::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        self.session_timers.next_deadline()
    }

    /// Handles the timers that are due, of at most 64 sessions. The next call handles the others.
    pub fn handle_timeout(&mut self, now: Time) {
        for _ in 0..SESSIONS_PER_TIMEOUT {
            let Some(path) = self.session_timers.pop_expired(now) else { return };
            let Some(session) = self.sessions_by_path.get_mut(&path) else { continue };
            session.is_check_due = false;
            session.handle_timeout(&self.handshake_clock, now, path, &mut self.events);
            self.apply_session_events(now, path);
            self.schedule_next_deadline(now, path);
        }
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Makes outputs of the events of a session.
    fn apply_session_events(&mut self, now: Time, path: SessionPath) {
        if self.events.is_empty() {
            return;
        }
        for event in std::mem::take(&mut self.events) {
            let route = self.route(path);
            match (event, route) {
                (SessionEvent::Send(datagram), Some(route)) => {
                    if datagram.first() == Some(&MESSAGE_INITIATION) {
                        self.remember_timestamp(path);
                    }
                    self.outputs.push_back(Output::Send { route, datagram });
                }
                (SessionEvent::Established, Some(route)) => {
                    self.outputs.push_back(Output::Established { path, route });
                }
                (SessionEvent::NoAnswer, _) => self.outputs.push_back(Output::NoAnswer { path }),
                (SessionEvent::Expired, _) => self.expire_tunnel(now, path),
                (SessionEvent::Send(_) | SessionEvent::Established, None) => {}
            }
        }
    }

    /// Replaces the expired tunnel of a wanted session, and removes that of another one.
    fn expire_tunnel(&mut self, now: Time, path: SessionPath) {
        self.outputs.push_back(Output::Ended { path });
        let wanted = self.sessions_by_path.get(&path).is_some_and(|session| session.is_wanted);
        if !wanted || self.renew_tunnel(now, path).is_err() {
            self.remove(path);
            return;
        }
        let Some(session) = self.sessions_by_path.get_mut(&path) else { return };
        let initiation = session.restart_handshake(&self.handshake_clock, now, path);
        self.send_initiation(path, initiation);
    }

    /// Gives a session a new tunnel.
    fn renew_tunnel(&mut self, now: Time, path: SessionPath) -> Result<(), WireguardDropReason> {
        let peer = self
            .key_by_peer_id
            .get(&path.peer_id)
            .and_then(|key| self.peers_by_key.get(key))
            .ok_or(WireguardDropReason::UnknownKey)?;
        let session = self.sessions_by_path.get_mut(&path).ok_or(WireguardDropReason::NoSession)?;
        self.path_by_tunnel.remove(&session.noise_tunnel.id());
        session.replace_tunnel(&mut self.tunnel_factory, &self.handshake_clock, now, peer)?;
        self.path_by_tunnel.insert(session.noise_tunnel.id(), path);
        Ok(())
    }

    /// Returns the session of a path with a tunnel that has not expired; makes it if needed.
    fn session_with_tunnel(
        &mut self,
        now: Time,
        path: SessionPath,
    ) -> Result<&mut PathSession, WireguardDropReason> {
        let expired = self.sessions_by_path.get(&path).map(|session| session.noise_tunnel.is_expired());
        match expired {
            Some(false) => {}
            Some(true) => self.renew_tunnel(now, path)?,
            None => {
                let key = self.key_by_peer_id.get(&path.peer_id).ok_or(WireguardDropReason::UnknownKey)?;
                let peer = self.peers_by_key.get(key).ok_or(WireguardDropReason::UnknownKey)?;
                let session = PathSession::new(&mut self.tunnel_factory, &self.handshake_clock, now, peer)?;
                self.path_by_tunnel.insert(session.noise_tunnel.id(), path);
                self.sessions_by_path.insert(path, Box::new(session));
            }
        }
        self.sessions_by_path.get_mut(&path).map(Box::as_mut).ok_or(WireguardDropReason::NoSession)
    }

    fn remove(&mut self, path: SessionPath) {
        self.session_timers.stop(path);
        if let Some(session) = self.sessions_by_path.remove(&path) {
            self.path_by_tunnel.remove(&session.noise_tunnel.id());
            self.forget_remote_address(session.route);
        }
    }

    fn set_route(&mut self, path: SessionPath, route: DatagramRoute) {
        let Some(session) = self.sessions_by_path.get_mut(&path) else { return };
        let old = session.route.replace(route);
        *self.sessions_by_remote_address.entry(route.remote).or_default() += 1;
        self.forget_remote_address(old);
    }

    fn forget_remote_address(&mut self, route: Option<DatagramRoute>) {
        let Some(route) = route else { return };
        if let Some(sessions) = self.sessions_by_remote_address.get_mut(&route.remote) {
            *sessions -= 1;
            if *sessions == 0 {
                self.sessions_by_remote_address.remove(&route.remote);
            }
        }
    }

    /// Begins a handshake of a session with a route, unless one is in progress.
    fn begin_handshake(&mut self, now: Time, path: SessionPath) {
        let Some(session) = self.sessions_by_path.get_mut(&path).filter(|session| session.route.is_some())
        else {
            return;
        };
        let initiation = session.begin_handshake(&self.handshake_clock, now, path);
        self.send_initiation(path, initiation);
        self.schedule_next_deadline(now, path);
    }

    fn send_initiation(&mut self, path: SessionPath, initiation: Option<Box<[u8]>>) {
        if let (Some(datagram), Some(route)) = (initiation, self.route(path)) {
            self.remember_timestamp(path);
            self.outputs.push_back(Output::Send { route, datagram });
        }
    }

    fn remember_timestamp(&mut self, path: SessionPath) {
        let Some(session) = self.sessions_by_path.get(&path) else { return };
        let date = self.handshake_clock.unix_time_at(session.last_timestamp());
        self.newest_timestamp = self.newest_timestamp.max(date);
    }

    /// Sets the timer of a session to its next deadline.
    fn schedule_next_deadline(&mut self, now: Time, path: SessionPath) {
        let Some(session) = self.sessions_by_path.get_mut(&path) else { return };
        session.is_check_due = false;
        match session.next_deadline(&self.handshake_clock) {
            Some(deadline) => self.session_timers.set(path, deadline.max(now + Duration::from_millis(1))),
            None => self.session_timers.stop(path),
        }
    }

    /// Lets a session that carries data compute its deadlines once a second, and not for each packet.
    fn schedule_check(&mut self, now: Time, path: SessionPath) {
        let Some(session) = self.sessions_by_path.get_mut(&path).filter(|session| !session.is_check_due)
        else {
            return;
        };
        session.is_check_due = true;
        let deadline = session.next_deadline(&self.handshake_clock).unwrap_or(Time::MAX);
        self.session_timers.set(path, deadline.max(now).min(now + TIMER_CHECK_INTERVAL));
    }

    fn dropped<'b>(&mut self, reason: WireguardDropReason) -> ReceivedDatagram<'b> {
        self.count_drop(reason);
        ReceivedDatagram::Dropped(reason)
    }

    fn count_drop(&mut self, reason: WireguardDropReason) {
        self.drops_by_reason[reason as usize] += 1;
    }
}

impl std::fmt::Debug for SessionEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("public_key", &self.public_key)
            .field("peers", &self.peers_by_key.len())
            .field("sessions", &self.sessions_by_path.len())
            .finish_non_exhaustive()
    }
}

// A data message has a header of 16 octets, which `SessionEngine::receive_data` reads.
const _: () = assert!(DATA_MESSAGE_OVERHEAD >= 16);
