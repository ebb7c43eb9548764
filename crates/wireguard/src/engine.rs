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

use crate::handshake_queue::{HandshakeQueue, Waiting};
use crate::session::{Session, SessionEvent};
use crate::timestamp::Clock;
use crate::{
    OVERHEAD, Path, PathNumber, PresharedKey, PrivateKey, PublicKey, Route, Timestamp, WireguardDrop,
    datagram_length,
};

/// Message types (section 5.4 of the protocol's paper).
const INITIATION: u8 = 1;
const RESPONSE: u8 = 2;
const INITIATION_LENGTH: usize = 148;
const RESPONSE_LENGTH: usize = 92;
/// Sessions whose timers one call handles, so that a call takes some milliseconds at most.
const SESSIONS_PER_TIMEOUT: usize = 64;
/// Time between two checks of the timers of a session that carries data.
const CHECK: Duration = Duration::from_secs(1);
/// Largest age of a stored timestamp.
const STORED: Duration = Duration::from_secs(60);
/// Handshakes a second above which the engine answers with cookies.
const HANDSHAKES_WITHOUT_COOKIE: u64 = 1000;

/// The caller's number of a remote public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// A remote key. A node with two valid keys, while they are exchanged, is two peers.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The caller's number.
    pub id: PeerId,
    /// The public key.
    pub public_key: PublicKey,
    /// The preshared key, if both ends have one.
    pub preshared_key: Option<PresharedKey>,
}

/// Values that an engine needs at its start.
#[derive(Debug)]
pub struct Settings {
    /// The own private key.
    pub private_key: PrivateKey,
    /// 32 octets of the operating system's randomness. All ephemeral keys come from them.
    pub seed: [u8; 32],
    /// The caller's monotonic time.
    pub now: Time,
    /// The date of `now` as the time since the UNIX epoch, from [`date_at_start`].
    pub unix: Duration,
}

/// Returns the date with which an engine starts. It is the later one of two dates: that of the system's
/// clock, and 60 s after the newest timestamp of the last run. `stored` is a value of
/// [`Engine::newest_timestamp`] that is at most 60 s old. So a router without a battery clock sends no
/// timestamp twice.
pub fn date_at_start(system: Duration, stored: Option<Duration>) -> Duration {
    stored.map_or(system, |stored| system.max(stored.saturating_add(STORED)))
}

/// Instruction or report for the caller.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this datagram.
    Send {
        /// Socket and remote address.
        route: Route,
        /// The datagram.
        datagram: Box<[u8]>,
    },
    /// Both ends have the keys: the path carries payloads.
    Established {
        /// The path.
        path: Path,
        /// Route of the path.
        route: Route,
    },
    /// The remote end has another address, and a handshake has proved that it receives there.
    Moved {
        /// The path.
        path: Path,
        /// The new route.
        route: Route,
    },
    /// An authentic and newest message came from another address, without a proof. A NAT may have lost its
    /// mapping, or the remote end forges the address of a victim. The caller tests the address, with
    /// [`Engine::send_by`], and passes it to [`Engine::set_route_of`] after the answer.
    Elsewhere {
        /// The path.
        path: Path,
        /// The unproven route.
        route: Route,
    },
    /// A handshake with this timestamp was accepted. The caller stores it, and passes it to
    /// [`Engine::restore`] after a restart, so that a recorded handshake stays old.
    Accepted {
        /// The path.
        path: Path,
        /// The timestamp.
        timestamp: Timestamp,
    },
    /// A handshake was dropped because its timestamp is old: a recording, or a router whose clock was reset.
    OldTimestamp {
        /// The path.
        path: Path,
    },
    /// Several handshakes had no answer: a key, a clock or the path is wrong.
    NoAnswer {
        /// The path.
        path: Path,
    },
    /// The session has ended. The caller may remove its path.
    Ended {
        /// The path.
        path: Path,
    },
}

/// Result of a received datagram.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<'b> {
    /// An authentic payload, padded with zeros to a multiple of 16 octets.
    Payload {
        /// The path.
        path: Path,
        /// The payload in the caller's buffer.
        payload: &'b mut [u8],
    },
    /// A message of the protocol; [`Engine::poll_output`] has the results.
    Handled,
    /// A handshake message, which waits for [`Engine::handle_handshakes`].
    Queued,
    /// The datagram was dropped.
    Dropped(WireguardDrop),
}

/// The sessions of one private key.
pub struct Engine {
    clock: Clock,
    /// Checks MACs and cookies, and decrypts initiations. It makes no tunnels, so it keeps no timestamps:
    /// the engine compares them itself, for each path.
    authenticator: Interface,
    /// Makes the tunnels.
    factory: Interface,
    public_key: PublicKey,
    peers: HashMap<PublicKey, Peer>,
    keys: BTreeMap<PeerId, PublicKey>,
    sessions: HashMap<Path, Box<Session>>,
    tunnels: HashMap<TunnelId, Path>,
    /// Number of sessions with this remote address.
    remotes: HashMap<SocketAddr, u32>,
    /// Timestamp of the newest accepted handshake of each path.
    floors: BTreeMap<Path, Timestamp>,
    queue: HandshakeQueue,
    timers: TimerTable<Path>,
    outputs: VecDeque<Output>,
    events: Vec<SessionEvent>,
    newest_timestamp: Duration,
    reports: RateLimiter,
    drops: [u64; WireguardDrop::ALL.len()],
}

impl Engine {
    /// Creates an engine without peers.
    pub fn new(settings: Settings) -> Engine {
        let Settings { private_key, seed, now, unix } = settings;
        let mut random = Rng::from_seed(Seed::Octets(seed));
        let clock = Clock::new(now, unix);
        let mut interface = || {
            let mut seed = Zeroizing::new([0; 32]);
            for octets in seed.chunks_exact_mut(8) {
                octets.copy_from_slice(&random.u64().to_le_bytes());
            }
            Interface::new(seed, clock.instant(now), clock.unix_at_start())
                .with_static_private(private_key.secret())
        };
        Engine {
            clock,
            authenticator: interface().with_handshake_limit(HANDSHAKES_WITHOUT_COOKIE),
            factory: interface(),
            public_key: private_key.public_key(),
            peers: HashMap::new(),
            keys: BTreeMap::new(),
            sessions: HashMap::new(),
            tunnels: HashMap::new(),
            remotes: HashMap::new(),
            floors: BTreeMap::new(),
            queue: HandshakeQueue::default(),
            timers: TimerTable::new(),
            outputs: VecDeque::new(),
            events: Vec::new(),
            newest_timestamp: Duration::ZERO,
            reports: RateLimiter::new(20, Duration::from_secs(1)),
            drops: [0; WireguardDrop::ALL.len()],
        }
    }

    /// Returns the own public key.
    pub fn public_key(&self) -> PublicKey {
        self.public_key
    }

    /// Adds a peer, or replaces the one with this number. A peer whose keys have not changed keeps its
    /// sessions. Of two peers with one public key the first one stays, and the function returns `false`.
    pub fn set_peer(&mut self, peer: Peer) -> bool {
        if self.peers.get(&peer.public_key).is_some_and(|other| other.id != peer.id) {
            return false;
        }
        if let Some(old) = self.keys.get(&peer.id).and_then(|key| self.peers.get(key)) {
            let text = |key: &Option<PresharedKey>| key.as_ref().map(PresharedKey::to_text);
            if old.public_key == peer.public_key && text(&old.preshared_key) == text(&peer.preshared_key) {
                return true;
            }
            self.remove_peer(peer.id);
        }
        self.keys.insert(peer.id, peer.public_key);
        self.peers.insert(peer.public_key, peer);
        true
    }

    /// Removes a peer and its sessions. The timestamps of its handshakes stay, in case that it comes back.
    pub fn remove_peer(&mut self, id: PeerId) {
        if let Some(key) = self.keys.remove(&id) {
            self.peers.remove(&key);
        }
        let paths: Vec<Path> = self.sessions.keys().copied().filter(|path| path.peer == id).collect();
        for path in paths {
            self.remove(path);
        }
    }

    /// Restores the timestamp of the newest handshake of a path, from the last run.
    pub fn restore(&mut self, path: Path, timestamp: Timestamp) {
        let floor = self.floors.entry(path).or_insert(timestamp);
        *floor = (*floor).max(timestamp);
    }

    /// Opens a session and keeps it, with handshakes from this end, until [`Engine::disconnect`]. If the
    /// session exists, its datagrams take the new route from now on. Returns whether the peer is known.
    pub fn connect(&mut self, now: Time, path: Path, route: Route) -> bool {
        if self.ensure(now, path).is_err() {
            return false;
        }
        self.set_route(path, route);
        let Some(session) = self.sessions.get_mut(&path) else { return false };
        session.wanted = true;
        if !session.is_established() {
            self.initiate(now, path);
        }
        true
    }

    /// Ends the session of a path.
    pub fn disconnect(&mut self, path: Path) {
        self.remove(path);
    }

    /// Begins a handshake for a session whose remote end may have lost its keys. The keys stay in use until
    /// the response arrives.
    pub fn renew(&mut self, now: Time, path: Path) {
        self.initiate(now, path);
    }

    /// Returns whether the path can carry payloads.
    pub fn is_established(&self, path: Path) -> bool {
        self.sessions.get(&path).is_some_and(|session| session.is_established())
    }

    /// Returns the route of a path.
    pub fn route(&self, path: Path) -> Option<Route> {
        self.sessions.get(&path)?.route
    }

    /// Returns the number of sessions, established or not.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the number of drops for a reason.
    pub fn drops(&self, reason: WireguardDrop) -> u64 {
        self.drops[reason as usize]
    }

    /// Returns the latest date that this end has written into a handshake, as time since the UNIX epoch.
    pub fn newest_timestamp(&self) -> Duration {
        self.newest_timestamp
    }

    /// Handles a received datagram. A payload is decrypted into `buffer`, which is at least as long as the
    /// datagram.
    pub fn receive<'b>(
        &mut self,
        now: Time,
        route: Route,
        datagram: &[u8],
        buffer: &'b mut [u8],
    ) -> Received<'b> {
        let expected = match datagram.first() {
            Some(&INITIATION) => INITIATION_LENGTH,
            Some(&RESPONSE) => RESPONSE_LENGTH,
            _ => 0,
        };
        if expected > 0 {
            if datagram.len() != expected {
                return self.dropped(WireguardDrop::Malformed);
            }
            let of_session = self.remotes.contains_key(&route.remote);
            return match self.queue.push(route, datagram, of_session) {
                true => Received::Queued,
                false => self.dropped(WireguardDrop::QueueFull),
            };
        }
        match self.authenticator.receive(route.remote, datagram, self.clock.instant(now)) {
            Ok(Parsed::Message(ReceivedMessage::TransportData(message))) => {
                self.data(now, route, message, datagram, buffer)
            }
            Ok(Parsed::Message(ReceivedMessage::CookieReply(reply))) => {
                let path = self.tunnels.get(&reply.tunnel_id()).copied();
                let Some((path, session)) = path.and_then(|path| Some((path, self.sessions.get_mut(&path)?)))
                else {
                    return self.dropped(WireguardDrop::Unexpected);
                };
                if let Err(error) = session.tunnel.handle_cookie_reply(reply, self.clock.instant(now)) {
                    return self.dropped(error.into());
                }
                let initiation = session.initiate_with_cookie(&self.clock, now, path);
                self.send_initiation(path, initiation);
                self.schedule(now, path);
                Received::Handled
            }
            Ok(_) => self.dropped(WireguardDrop::Malformed),
            Err(error) => self.dropped(error.into()),
        }
    }

    fn data<'b>(
        &mut self,
        now: Time,
        route: Route,
        message: TransportData,
        datagram: &[u8],
        buffer: &'b mut [u8],
    ) -> Received<'b> {
        let path = self.tunnels.get(&message.tunnel_id()).copied();
        let Some((path, session)) = path.and_then(|path| Some((path, self.sessions.get_mut(&path)?))) else {
            return self.dropped(WireguardDrop::NoSession);
        };
        let at = self.clock.instant(now);
        let committed = session
            .tunnel
            .begin_decapsulate(message, at)
            .and_then(|pending| session.tunnel.commit_decapsulate(pending.decrypt(datagram, buffer), at));
        let committed = match committed {
            Ok(committed) => committed,
            Err(error) => return self.dropped(error.into()),
        };
        // The library has checked the length: the header has 16 octets.
        let index = u32::from_le_bytes([datagram[4], datagram[5], datagram[6], datagram[7]]);
        let counter = u64::from_le_bytes(datagram[8..16].try_into().unwrap_or_default());
        // The initiator keeps its route. The responder follows the newest message, if a handshake has proved
        // that the initiator receives there.
        let differs = session.is_newest(index, counter) && !session.wanted && session.route != Some(route);
        let proven = differs && session.is_proven(index, route);
        let reports = differs && !proven && session.is_unreported(route);
        let was_routed = session.route.is_some();
        session.drain(now, &mut self.events);
        if proven {
            self.set_route(path, route);
            if was_routed {
                self.outputs.push_back(Output::Moved { path, route });
            }
        } else if reports {
            self.outputs.push_back(Output::Elsewhere { path, route });
        }
        self.apply(now, path);
        self.check_soon(now, path);
        match committed {
            Committed::Data { buffer, len } => Received::Payload { path, payload: &mut buffer[..len] },
            Committed::Keepalive => Received::Handled,
        }
    }

    /// Encrypts a payload into `datagram`, and returns where it goes and its length. A payload has at least
    /// one octet, and `datagram` has [`datagram_length`] octets. Without a session the engine begins a
    /// handshake and does not store the payload.
    pub fn send(
        &mut self,
        now: Time,
        path: Path,
        payload: &[u8],
        datagram: &mut [u8],
    ) -> Result<(Route, usize), WireguardDrop> {
        let route = self.route(path);
        let result = route
            .ok_or(WireguardDrop::NotEstablished)
            .and_then(|route| self.encrypt(now, path, payload, datagram).map(|length| (route, length)));
        match result {
            Ok(_) => self.check_soon(now, path),
            Err(reason) => {
                self.count(reason);
                if reason == WireguardDrop::NotEstablished {
                    self.initiate(now, path);
                }
            }
        }
        result
    }

    fn encrypt(
        &mut self,
        now: Time,
        path: Path,
        payload: &[u8],
        datagram: &mut [u8],
    ) -> Result<usize, WireguardDrop> {
        if payload.is_empty() || datagram.len() < datagram_length(payload.len()) {
            return Err(WireguardDrop::Length);
        }
        let session = self.sessions.get_mut(&path).ok_or(WireguardDrop::NotEstablished)?;
        let at = self.clock.instant(now);
        let pending = session.tunnel.begin_encapsulate(at).map_err(|_| WireguardDrop::NotEstablished)?;
        Ok(pending.encrypt(payload, datagram)?.len())
    }

    /// Encrypts a payload for a route that is not the path's own: a test of [`Output::Elsewhere`]. Returns
    /// the length of the datagram.
    pub fn send_by(
        &mut self,
        now: Time,
        path: Path,
        payload: &[u8],
        datagram: &mut [u8],
    ) -> Result<usize, WireguardDrop> {
        let result = self.encrypt(now, path, payload, datagram);
        match result {
            Ok(_) => self.check_soon(now, path),
            Err(reason) => self.count(reason),
        }
        result
    }

    /// Changes the route of a session: the caller has proved that the remote end receives there.
    pub fn set_route_of(&mut self, path: Path, route: Route) {
        self.set_route(path, route);
    }

    /// Returns whether handshake messages wait.
    pub fn has_handshakes(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Handles handshake messages that wait. At most `most` of them are decrypted, and at most 16 times this
    /// number fail the cheap check of their MAC. The caller handles data in between.
    pub fn handle_handshakes(&mut self, now: Time, most: usize) {
        let (mut costly, mut cheap) = (0, 0);
        while costly < most && cheap < most * 16 {
            let Some(waiting) = self.queue.pop() else { return };
            match self.handshake(now, &waiting) {
                Ok(()) => costly += 1,
                Err(reason) => {
                    self.count(reason);
                    match reason {
                        WireguardDrop::Mac | WireguardDrop::Cookie | WireguardDrop::RateLimited => cheap += 1,
                        _ => costly += 1,
                    }
                }
            }
        }
    }

    fn handshake(&mut self, now: Time, waiting: &Waiting) -> Result<(), WireguardDrop> {
        let route = waiting.route;
        match self.authenticator.receive(route.remote, waiting.octets(), self.clock.instant(now))? {
            Parsed::SendCookieReply(reply) => {
                self.outputs.push_back(Output::Send { route, datagram: (*reply).into() });
                Err(WireguardDrop::Cookie)
            }
            Parsed::Message(ReceivedMessage::HandshakeInitiation(initiation)) => {
                self.initiation(now, route, initiation)
            }
            Parsed::Message(ReceivedMessage::HandshakeResponse(response)) => self.response(now, response),
            Parsed::Message(_) => Err(WireguardDrop::Malformed),
        }
    }

    /// Answers an authentic initiation.
    fn initiation(
        &mut self,
        now: Time,
        route: Route,
        initiation: HandshakeInitiation,
    ) -> Result<(), WireguardDrop> {
        let key = PublicKey::from(initiation.peer_static_public().to_bytes());
        let peer = self.peers.get(&key).ok_or(WireguardDrop::UnknownKey)?.id;
        let timestamp = Timestamp(initiation.timestamp());
        let number = PathNumber::new(timestamp.path_number()).ok_or(WireguardDrop::PathNumber)?;
        let path = Path { peer, number };
        if self.floors.get(&path).is_some_and(|&floor| timestamp <= floor) {
            if self.reports.allow(now) {
                self.outputs.push_back(Output::OldTimestamp { path });
            }
            return Err(WireguardDrop::OldTimestamp);
        }
        let session = self.ensure(now, path)?;
        if !session.take_share(now) {
            return Err(WireguardDrop::Share);
        }
        let at = self.clock.instant(now);
        let Some(session) = self.sessions.get_mut(&path) else { return Err(WireguardDrop::NoSession) };
        let response = session.tunnel.handle_handshake_initiation(initiation, at)?;
        let index = u32::from_le_bytes([response[4], response[5], response[6], response[7]]);
        session.remember_answer(index, route);
        self.floors.insert(path, timestamp);
        self.outputs.push_back(Output::Accepted { path, timestamp });
        // The session keeps its route until the initiator confirms: the initiation may come from an attacker
        // who has delayed it.
        self.outputs.push_back(Output::Send { route, datagram: (*response).into() });
        self.schedule(now, path);
        Ok(())
    }

    /// Completes a handshake of this end.
    fn response(&mut self, now: Time, response: HandshakeResponse) -> Result<(), WireguardDrop> {
        let path = self.tunnels.get(&response.tunnel_id()).copied().ok_or(WireguardDrop::Unexpected)?;
        let session = self.sessions.get_mut(&path).ok_or(WireguardDrop::Unexpected)?;
        let keepalive = session.tunnel.handle_handshake_response(response, self.clock.instant(now))?;
        session.finish_handshake();
        let route = session.route;
        session.drain(now, &mut self.events);
        if let Some(route) = route {
            self.outputs.push_back(Output::Send { route, datagram: (*keepalive).into() });
        }
        self.apply(now, path);
        self.schedule(now, path);
        Ok(())
    }

    /// Returns the time at which the caller calls [`Engine::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next_deadline()
    }

    /// Handles the timers that are due, of at most 64 sessions. The next call handles the others.
    pub fn handle_timeout(&mut self, now: Time) {
        for _ in 0..SESSIONS_PER_TIMEOUT {
            let Some(path) = self.timers.pop_expired(now) else { return };
            let Some(session) = self.sessions.get_mut(&path) else { continue };
            session.is_check_due = false;
            session.handle_timeout(&self.clock, now, path, &mut self.events);
            self.apply(now, path);
            self.schedule(now, path);
        }
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Makes outputs of the events of a session.
    fn apply(&mut self, now: Time, path: Path) {
        if self.events.is_empty() {
            return;
        }
        for event in std::mem::take(&mut self.events) {
            let route = self.route(path);
            match (event, route) {
                (SessionEvent::Send(datagram), Some(route)) => {
                    if datagram.first() == Some(&INITIATION) {
                        self.remember_timestamp(path);
                    }
                    self.outputs.push_back(Output::Send { route, datagram });
                }
                (SessionEvent::Established, Some(route)) => {
                    self.outputs.push_back(Output::Established { path, route });
                }
                (SessionEvent::NoAnswer, _) => self.outputs.push_back(Output::NoAnswer { path }),
                (SessionEvent::Expired, _) => self.expire(now, path),
                (SessionEvent::Send(_) | SessionEvent::Established, None) => {}
            }
        }
    }

    /// Replaces the expired tunnel of a wanted session, and removes that of another one.
    fn expire(&mut self, now: Time, path: Path) {
        self.outputs.push_back(Output::Ended { path });
        let wanted = self.sessions.get(&path).is_some_and(|session| session.wanted);
        if !wanted || self.renew_tunnel(now, path).is_err() {
            self.remove(path);
            return;
        }
        let Some(session) = self.sessions.get_mut(&path) else { return };
        let initiation = session.begin_again(&self.clock, now, path);
        self.send_initiation(path, initiation);
    }

    /// Gives a session a new tunnel.
    fn renew_tunnel(&mut self, now: Time, path: Path) -> Result<(), WireguardDrop> {
        let peer =
            self.keys.get(&path.peer).and_then(|key| self.peers.get(key)).ok_or(WireguardDrop::UnknownKey)?;
        let session = self.sessions.get_mut(&path).ok_or(WireguardDrop::NoSession)?;
        self.tunnels.remove(&session.tunnel.id());
        session.replace(&mut self.factory, &self.clock, now, peer)?;
        self.tunnels.insert(session.tunnel.id(), path);
        Ok(())
    }

    /// Returns the session of a path with a tunnel that has not expired; makes it if needed.
    fn ensure(&mut self, now: Time, path: Path) -> Result<&mut Session, WireguardDrop> {
        let expired = self.sessions.get(&path).map(|session| session.tunnel.is_expired());
        match expired {
            Some(false) => {}
            Some(true) => self.renew_tunnel(now, path)?,
            None => {
                let key = self.keys.get(&path.peer).ok_or(WireguardDrop::UnknownKey)?;
                let peer = self.peers.get(key).ok_or(WireguardDrop::UnknownKey)?;
                let session = Session::new(&mut self.factory, &self.clock, now, peer)?;
                self.tunnels.insert(session.tunnel.id(), path);
                self.sessions.insert(path, Box::new(session));
            }
        }
        self.sessions.get_mut(&path).map(Box::as_mut).ok_or(WireguardDrop::NoSession)
    }

    fn remove(&mut self, path: Path) {
        self.timers.stop(path);
        if let Some(session) = self.sessions.remove(&path) {
            self.tunnels.remove(&session.tunnel.id());
            self.forget_remote(session.route);
        }
    }

    fn set_route(&mut self, path: Path, route: Route) {
        let Some(session) = self.sessions.get_mut(&path) else { return };
        let old = session.route.replace(route);
        *self.remotes.entry(route.remote).or_default() += 1;
        self.forget_remote(old);
    }

    fn forget_remote(&mut self, route: Option<Route>) {
        let Some(route) = route else { return };
        if let Some(sessions) = self.remotes.get_mut(&route.remote) {
            *sessions -= 1;
            if *sessions == 0 {
                self.remotes.remove(&route.remote);
            }
        }
    }

    /// Begins a handshake of a session with a route, unless one is in progress.
    fn initiate(&mut self, now: Time, path: Path) {
        let Some(session) = self.sessions.get_mut(&path).filter(|session| session.route.is_some()) else {
            return;
        };
        let initiation = session.initiate(&self.clock, now, path);
        self.send_initiation(path, initiation);
        self.schedule(now, path);
    }

    fn send_initiation(&mut self, path: Path, initiation: Option<Box<[u8]>>) {
        if let (Some(datagram), Some(route)) = (initiation, self.route(path)) {
            self.remember_timestamp(path);
            self.outputs.push_back(Output::Send { route, datagram });
        }
    }

    fn remember_timestamp(&mut self, path: Path) {
        let Some(session) = self.sessions.get(&path) else { return };
        let date = self.clock.date(session.stamped());
        self.newest_timestamp = self.newest_timestamp.max(date);
    }

    /// Sets the timer of a session to its next deadline.
    fn schedule(&mut self, now: Time, path: Path) {
        let Some(session) = self.sessions.get_mut(&path) else { return };
        session.is_check_due = false;
        match session.deadline(&self.clock) {
            Some(deadline) => self.timers.set(path, deadline.max(now + Duration::from_millis(1))),
            None => self.timers.stop(path),
        }
    }

    /// Lets a session that carries data compute its deadlines once a second, and not for each packet.
    fn check_soon(&mut self, now: Time, path: Path) {
        let Some(session) = self.sessions.get_mut(&path).filter(|session| !session.is_check_due) else {
            return;
        };
        session.is_check_due = true;
        let deadline = session.deadline(&self.clock).unwrap_or(Time::MAX);
        self.timers.set(path, deadline.max(now).min(now + CHECK));
    }

    fn dropped<'b>(&mut self, reason: WireguardDrop) -> Received<'b> {
        self.count(reason);
        Received::Dropped(reason)
    }

    fn count(&mut self, reason: WireguardDrop) {
        self.drops[reason as usize] += 1;
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("public_key", &self.public_key)
            .field("peers", &self.peers.len())
            .field("sessions", &self.sessions.len())
            .finish_non_exhaustive()
    }
}

// A data message has a header of 16 octets, which `Engine::data` reads.
const _: () = assert!(OVERHEAD >= 16);
