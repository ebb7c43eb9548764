//! The session engine: the WireGuard sessions of one station, and their reactions to datagrams and timers.
//!
//! While an end replaces its key, it has two key pairs: the next one and the present one. On each path, every
//! combination of an own key and a remote key then has a session of its own. The caller sees only the path.
//! The initiator sends through the established session of the newest keys. The responder sends through the
//! session by which the initiator's data came last.

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
use crate::session::{
    FIRST_REOPENING_INTERVAL, FIRST_RETRANSMISSION_INTERVAL, PathSession, RemoteKeys, SessionEvent,
};
use crate::timestamp::HandshakeClock;
use crate::unknown_keys::UnknownKeyReports;
use crate::{
    DATA_MESSAGE_OVERHEAD, DatagramRoute, HandshakeTimestamp, PathNumber, PresharedKey, PrivateKey,
    PublicKey, SessionPath, WireguardDropReason, datagram_length,
};

/// Message types (section 5.4 of the protocol's paper).
const MESSAGE_INITIATION: u8 = 1;
const MESSAGE_RESPONSE: u8 = 2;
const INITIATION_LENGTH: usize = 148;
const RESPONSE_LENGTH: usize = 92;
/// Largest number of sessions whose timers one call handles, so that a call takes at most some milliseconds.
const MAX_SESSIONS_PER_TIMEOUT: usize = 64;
/// Interval at which the engine computes the deadlines of a session that carries data.
const TIMER_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum age of the stored timestamp when a run of the program ends: the caller stores a timestamp at least
/// this often.
const MAX_STORED_TIMESTAMP_AGE: Duration = Duration::from_secs(60);
/// Number of handshakes a second above which the engine answers with cookies.
const HANDSHAKE_RATE_WITHOUT_COOKIES: u64 = 1000;

/// Number by which the caller identifies a remote end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// A remote end with its keys.
#[derive(Debug, Clone)]
pub struct RemotePeer {
    /// Number by which the caller identifies the remote end.
    pub peer_id: PeerId,
    /// The valid public keys of the remote end, the newest one first. There are two while the remote end
    /// replaces its key.
    pub public_keys: Vec<PublicKey>,
    /// The preshared key of both ends; `None` if they have none.
    pub preshared_key: Option<PresharedKey>,
}

/// An own public key and a remote public key, between which a session exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyPair {
    /// The own public key.
    pub local: PublicKey,
    /// The remote public key.
    pub remote: PublicKey,
}

/// Number of a [`KeyPair`] in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyPairId(pub u32);

/// Key of a session in the engine: a pair of keys, and the number of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct SessionIdentity {
    pair: KeyPairId,
    number: PathNumber,
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
    /// The date of `now` as the time since the UNIX epoch, from [`engine_start_date`].
    pub unix_time_at_start: Duration,
}

/// Returns the date with which an engine starts: the system's date, but at least 60 s after the newest
/// timestamp of the last run. `stored` is a value of [`SessionEngine::newest_timestamp`] that the caller
/// stored at most 60 s before the end of that run. So a router without a battery clock sends no timestamp
/// twice.
pub fn engine_start_date(system: Duration, stored: Option<Duration>) -> Duration {
    stored.map_or(system, |stored| system.max(stored.saturating_add(MAX_STORED_TIMESTAMP_AGE)))
}

/// Action that the caller must perform, or event for the caller.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// The caller sends this datagram.
    Send {
        /// Local socket and remote address.
        route: DatagramRoute,
        /// The datagram.
        datagram: Box<[u8]>,
    },
    /// Both ends have the keys of a session: the path carries payloads.
    Established {
        /// The path.
        path: SessionPath,
        /// The keys of the session.
        pair: KeyPairId,
        /// Route of the path.
        route: DatagramRoute,
    },
    /// The remote end of a session has another address, and a handshake has proved that the remote end
    /// receives there.
    Moved {
        /// The path.
        path: SessionPath,
        /// The new route.
        route: DatagramRoute,
    },
    /// An authentic data message, the newest one of its session, came from another address. No handshake has
    /// proved that the remote end receives there. A NAT may have lost its mapping, or the remote end forges
    /// the address of a victim. The caller tests the address with [`SessionEngine::encrypt_for_other_route`].
    /// After an answer, the caller passes the address to [`SessionEngine::set_path_route`].
    Elsewhere {
        /// The path.
        path: SessionPath,
        /// The unproven route.
        route: DatagramRoute,
    },
    /// The engine has accepted a handshake with this timestamp. The caller stores the timestamp, and passes
    /// it to [`SessionEngine::restore_timestamp`] after a restart. So the engine drops a replay of the
    /// handshake also after a restart.
    Accepted {
        /// The path.
        path: SessionPath,
        /// The initiator's key.
        remote: PublicKey,
        /// The timestamp.
        timestamp: HandshakeTimestamp,
    },
    /// The engine has dropped a handshake because its timestamp is not new. The cause is a replay, or a
    /// router whose clock was reset.
    OldTimestamp {
        /// The path.
        path: SessionPath,
    },
    /// The engine has dropped a handshake because no remote end has the initiator's public key. The engine
    /// reports each key at most once a minute. It also limits the reports of all keys, because every sender
    /// that knows the own public key can send handshakes with random keys.
    UnknownKey {
        /// Route by which the handshake came.
        route: DatagramRoute,
        /// The initiator's public key.
        remote: PublicKey,
    },
    /// Several handshakes on a path had no answer, because a key, a clock or the path is wrong.
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
        /// The keys of the session.
        pair: KeyPairId,
        /// The payload in the caller's buffer.
        payload: &'b mut [u8],
    },
    /// A protocol message without payload; [`SessionEngine::poll_output`] returns the results.
    Handled,
    /// A handshake message, which waits until the caller calls [`SessionEngine::handle_waiting_handshakes`].
    Queued,
    /// The engine has dropped the datagram.
    Dropped(WireguardDropReason),
}

/// A private key of this end, with its public key.
struct OwnPrivateKey {
    private: PrivateKey,
    public: PublicKey,
    /// Checks MACs and cookies of handshakes to this key, and decrypts initiations. This interface makes no
    /// tunnels, so the library compares no timestamps here: the engine compares them for each session.
    handshake_authenticator: Interface,
}

/// Creates the tunnels for all own keys. One interface creates all of them, so that no two tunnels have the
/// same index.
struct TunnelFactory {
    interface: Option<Interface>,
    public: PublicKey,
}

impl TunnelFactory {
    /// Gives the library's interface the private key for the next tunnel, and returns the interface; `None`
    /// if it is missing.
    fn interface_with_key(&mut self, key: &OwnPrivateKey) -> Option<&mut Interface> {
        if self.public != key.public {
            self.interface = self
                .interface
                .take()
                .map(|interface| interface.with_static_private(key.private.to_static_secret()));
            self.public = key.public;
        }
        self.interface.as_mut()
    }
}

/// A remote end with its public keys, and the key pairs of its sessions.
struct RemotePeerState {
    public_keys: Vec<PublicKey>,
    preshared_key: Option<PresharedKey>,
    /// The pairs of each own key and each key of the remote end, the newest keys first.
    key_pairs: Vec<KeyPairId>,
}

/// The sessions of one station.
pub struct SessionEngine {
    handshake_clock: HandshakeClock,
    random: Rng,
    /// The own keys, the newest one first.
    own_keys: Vec<OwnPrivateKey>,
    tunnel_factory: TunnelFactory,
    remote_ends: BTreeMap<PeerId, RemotePeerState>,
    /// The remote end of each public key.
    peer_by_key: HashMap<PublicKey, PeerId>,
    key_pair_by_id: HashMap<KeyPairId, KeyPair>,
    /// Number of each key pair, also of pairs that are no longer valid, because their timestamps stay.
    id_by_key_pair: HashMap<KeyPair, KeyPairId>,
    next_key_pair_id: u32,
    session_by_identity: HashMap<SessionIdentity, Box<PathSession>>,
    /// The key pair through whose session each path sends.
    current_key_pair_by_path: HashMap<SessionPath, KeyPairId>,
    session_identity_by_tunnel: HashMap<TunnelId, SessionIdentity>,
    /// Number of sessions with each remote address.
    session_count_by_address: HashMap<SocketAddr, u32>,
    /// Timestamp of the newest accepted handshake of each session.
    accepted_timestamps: BTreeMap<SessionIdentity, HandshakeTimestamp>,
    /// Timestamps of the last run, by remote key and path number.
    restored_timestamps: BTreeMap<(PublicKey, PathNumber), HandshakeTimestamp>,
    handshake_queue: HandshakeQueue,
    session_timers: TimerTable<SessionIdentity>,
    outputs: VecDeque<Output>,
    events: Vec<SessionEvent>,
    newest_timestamp: Duration,
    report_limiter: RateLimiter,
    unknown_key_reports: UnknownKeyReports,
    drops_by_reason: [u64; WireguardDropReason::ALL.len()],
}

/// Creates an interface of the library with this private key.
fn new_interface(random: &mut Rng, clock: &HandshakeClock, key: &PrivateKey) -> Interface {
    let mut seed = Zeroizing::new([0; 32]);
    for octets in seed.chunks_exact_mut(8) {
        octets.copy_from_slice(&random.random_u64().to_le_bytes());
    }
    let (start, unix) = clock.start_time_and_date();
    Interface::new(seed, clock.instant_of(start), unix).with_static_private(key.to_static_secret())
}

impl SessionEngine {
    /// Creates an engine without remote ends.
    pub fn new(settings: EngineSettings) -> SessionEngine {
        let EngineSettings { private_key, random_seed, now, unix_time_at_start } = settings;
        let mut random = Rng::from_seed(Seed::Octets(random_seed));
        let clock = HandshakeClock::new(now, unix_time_at_start);
        let factory = new_interface(&mut random, &clock, &private_key);
        let mut engine = SessionEngine {
            handshake_clock: clock,
            random,
            own_keys: Vec::new(),
            tunnel_factory: TunnelFactory { interface: Some(factory), public: private_key.public_key() },
            remote_ends: BTreeMap::new(),
            peer_by_key: HashMap::new(),
            key_pair_by_id: HashMap::new(),
            id_by_key_pair: HashMap::new(),
            next_key_pair_id: 0,
            session_by_identity: HashMap::new(),
            current_key_pair_by_path: HashMap::new(),
            session_identity_by_tunnel: HashMap::new(),
            session_count_by_address: HashMap::new(),
            accepted_timestamps: BTreeMap::new(),
            restored_timestamps: BTreeMap::new(),
            handshake_queue: HandshakeQueue::default(),
            session_timers: TimerTable::new(),
            outputs: VecDeque::new(),
            events: Vec::new(),
            newest_timestamp: Duration::ZERO,
            report_limiter: RateLimiter::new(20, Duration::from_secs(1)),
            unknown_key_reports: UnknownKeyReports::new(),
            drops_by_reason: [0; WireguardDropReason::ALL.len()],
        };
        engine.set_private_keys(now, vec![private_key]);
        engine
    }

    /// Returns the own public keys, the newest one first.
    pub fn public_keys(&self) -> Vec<PublicKey> {
        self.own_keys.iter().map(|key| key.public).collect()
    }

    /// Returns the newer one of two own public keys; `None` if there is only one key.
    pub fn next_public_key(&self) -> Option<PublicKey> {
        match &self.own_keys[..] {
            [next, _] => Some(next.public),
            _ => None,
        }
    }

    /// Replaces the own keys; the first is the newest. A key that was there before keeps its sessions. For a
    /// new key, the engine opens sessions on all paths that this end has opened. It ends the sessions of keys
    /// that are no longer there.
    pub fn set_private_keys(&mut self, now: Time, keys: Vec<PrivateKey>) {
        let mut old = std::mem::take(&mut self.own_keys);
        for private in keys {
            let public = private.public_key();
            if self.own_keys.iter().any(|key| key.public == public) {
                continue;
            }
            let key = match old.iter().position(|key| key.public == public) {
                Some(index) => old.swap_remove(index),
                None => {
                    let handshake_authenticator =
                        new_interface(&mut self.random, &self.handshake_clock, &private)
                            .with_handshake_limit(HANDSHAKE_RATE_WITHOUT_COOKIES);
                    OwnPrivateKey { private, public, handshake_authenticator }
                }
            };
            self.own_keys.push(key);
        }
        self.update_all_key_pairs(now);
    }

    /// Removes the own keys except the newest one, and ends their sessions.
    pub fn drop_old_private_keys(&mut self, now: Time) {
        self.own_keys.truncate(1);
        self.update_all_key_pairs(now);
    }

    /// Adds a remote end, or replaces the one with this number. A key that was there before keeps its
    /// sessions, unless the preshared key changes. For a new key, the engine opens sessions on all paths to
    /// this remote end that this end has opened. If one of the public keys belongs to another remote end, the
    /// function changes nothing and returns `false`.
    pub fn set_peer(&mut self, now: Time, peer: RemotePeer) -> bool {
        let RemotePeer { peer_id: id, public_keys, preshared_key } = peer;
        if public_keys.iter().any(|key| self.peer_by_key.get(key).is_some_and(|owner| *owner != id)) {
            return false;
        }
        let text = |key: &Option<PresharedKey>| key.as_ref().map(PresharedKey::to_text);
        let is_other = |old: &RemotePeerState| text(&old.preshared_key) != text(&preshared_key);
        if self.remote_ends.get(&id).is_some_and(is_other) {
            self.remove_peer(id);
        }
        let old = self.remote_ends.remove(&id);
        for key in old.iter().flat_map(|old| &old.public_keys) {
            self.peer_by_key.remove(key);
        }
        self.peer_by_key.extend(public_keys.iter().map(|key| (*key, id)));
        let pairs = old.map(|old| old.key_pairs).unwrap_or_default();
        self.remote_ends.insert(id, RemotePeerState { public_keys, preshared_key, key_pairs: pairs });
        self.update_key_pairs(now, id);
        true
    }

    fn update_all_key_pairs(&mut self, now: Time) {
        let peers: Vec<PeerId> = self.remote_ends.keys().copied().collect();
        peers.into_iter().for_each(|id| self.update_key_pairs(now, id));
    }

    /// Computes the pairs of the own keys and a remote end's keys. Opens sessions for new pairs, and ends the
    /// sessions of pairs that no longer exist.
    fn update_key_pairs(&mut self, now: Time, id: PeerId) {
        let Some(remote) = self.remote_ends.get_mut(&id) else { return };
        let mut pairs = Vec::new();
        for local in &self.own_keys {
            for key in &remote.public_keys {
                let pair = KeyPair { local: local.public, remote: *key };
                let next = &mut self.next_key_pair_id;
                let number = *self.id_by_key_pair.entry(pair).or_insert_with(|| {
                    let number = KeyPairId(*next);
                    *next = next.wrapping_add(1);
                    number
                });
                self.key_pair_by_id.insert(number, pair);
                pairs.push(number);
            }
        }
        let old = std::mem::replace(&mut remote.key_pairs, pairs.clone());
        // First open sessions with the new keys on every path that this end has opened. Only then end the
        // sessions of the old keys.
        let numbers = (0..=PathNumber::MAX_NUMBER).filter_map(PathNumber::new);
        let opened = numbers.filter_map(|number| {
            let path = SessionPath { peer_id: id, path_number: number };
            let session = self.session_by_identity.get(&self.current_session_identity(path)?)?;
            session.route.filter(|_| session.is_opened_by_caller).map(|route| (path, route))
        });
        for (path, route) in opened.collect::<Vec<_>>() {
            self.open_session(now, path, route);
        }
        for pair in old.into_iter().filter(|pair| !pairs.contains(pair)) {
            self.remove_key_pair(pair);
        }
    }

    fn remove_key_pair(&mut self, pair: KeyPairId) {
        for number in (0..=PathNumber::MAX_NUMBER).filter_map(PathNumber::new) {
            self.remove(SessionIdentity { pair, number });
        }
        self.key_pair_by_id.remove(&pair);
    }

    /// Removes a remote end and its sessions. The timestamps of its handshakes stay, because the caller may
    /// add the remote end again.
    pub fn remove_peer(&mut self, id: PeerId) {
        let Some(remote) = self.remote_ends.remove(&id) else { return };
        for key in &remote.public_keys {
            self.peer_by_key.remove(key);
        }
        remote.key_pairs.into_iter().for_each(|pair| self.remove_key_pair(pair));
    }

    /// Removes a peer, its sessions, and the timestamps of its handshakes. A caller whose peers come from
    /// messages of the network calls this function, so that forgotten peers take no memory. If the key comes
    /// back, a recorded handshake may get one answer, but opens no session.
    pub fn forget_peer(&mut self, id: PeerId) {
        let Some(remote) = self.remote_ends.get(&id) else { return };
        let keys = remote.public_keys.clone();
        self.remove_peer(id);
        let pairs = self.id_by_key_pair.iter().filter(|(pair, _)| keys.contains(&pair.remote));
        let gone: Vec<KeyPairId> = pairs.map(|(_, number)| *number).collect();
        self.id_by_key_pair.retain(|_, number| !gone.contains(number));
        self.accepted_timestamps.retain(|line, _| !gone.contains(&line.pair));
        self.restored_timestamps.retain(|(key, _), _| !keys.contains(key));
    }

    /// Returns the own and the remote public key of a pair; `None` if the engine has no pair with this
    /// number.
    pub fn key_pair(&self, pair: KeyPairId) -> Option<KeyPair> {
        self.key_pair_by_id.get(&pair).copied()
    }

    /// Restores the timestamp of the newest handshake in the last run, for a remote key and path number.
    pub fn restore_timestamp(
        &mut self,
        remote: PublicKey,
        number: PathNumber,
        timestamp: HandshakeTimestamp,
    ) {
        let floor = self.restored_timestamps.entry((remote, number)).or_insert(timestamp);
        *floor = (*floor).max(timestamp);
    }

    /// Returns the key of the session through which a path sends; `None` if the path has no session.
    fn current_session_identity(&self, path: SessionPath) -> Option<SessionIdentity> {
        self.current_key_pair_by_path
            .get(&path)
            .map(|pair| SessionIdentity { pair: *pair, number: path.path_number })
    }

    /// Returns the keys of all sessions that a path may have, those of the newest key pair first.
    fn session_identities_of_path(&self, path: SessionPath) -> Vec<SessionIdentity> {
        let remote = self.remote_ends.get(&path.peer_id);
        let pairs = remote.into_iter().flat_map(|remote| &remote.key_pairs);
        pairs.map(|pair| SessionIdentity { pair: *pair, number: path.path_number }).collect()
    }

    fn is_session_established(&self, line: SessionIdentity) -> bool {
        self.session_by_identity.get(&line).is_some_and(|session| session.is_established())
    }

    /// Opens a session on a path. This end keeps the session alive by handshakes until
    /// [`SessionEngine::close_session`]. If the session exists, it sends to the new route from now on. While
    /// an end replaces its key, the engine opens one session for each key pair. If a session of the newest
    /// keys is established, the engine does not renew sessions of older keys. Returns whether the peer is
    /// known.
    pub fn open_session(&mut self, now: Time, path: SessionPath, route: DatagramRoute) -> bool {
        self.open_with_interval(now, path, route, FIRST_RETRANSMISSION_INTERVAL)
    }

    /// Opens a session on a path that an earlier run, or another machine with this end's keys and address,
    /// had open. The network may still route responses to that machine, so the first retransmissions follow
    /// after 62.5 and 125 ms.
    pub fn reopen_session(&mut self, now: Time, path: SessionPath, route: DatagramRoute) -> bool {
        self.open_with_interval(now, path, route, FIRST_REOPENING_INTERVAL)
    }

    fn open_with_interval(
        &mut self,
        now: Time,
        path: SessionPath,
        route: DatagramRoute,
        interval: Duration,
    ) -> bool {
        let mut is_carried = false;
        let mut is_open = false;
        for line in self.session_identities_of_path(path) {
            let has_session = self.session_by_identity.contains_key(&line);
            if is_carried && !has_session || !is_carried && self.session_with_tunnel(now, path, line).is_err()
            {
                continue;
            }
            is_open = true;
            self.set_session_route(line, route);
            let Some(session) = self.session_by_identity.get_mut(&line) else { continue };
            session.is_opened_by_caller = !is_carried;
            is_carried |= session.is_established();
            if session.is_opened_by_caller && !is_carried {
                self.begin_handshake_with_interval(now, line, interval);
            }
        }
        is_open
    }

    /// Leaves the renewal of a path to the remote end, and follows it to another address. A home agent that
    /// has opened a session by a stored route calls this function when the session is established.
    pub fn release_session(&mut self, path: SessionPath) {
        for line in self.session_identities_of_path(path) {
            if let Some(session) = self.session_by_identity.get_mut(&line) {
                session.is_opened_by_caller = false;
            }
        }
    }

    /// Returns the peer that has a public key; `None` if no peer has it.
    pub fn peer_of(&self, key: PublicKey) -> Option<PeerId> {
        self.peer_by_key.get(&key).copied()
    }

    /// Ends the sessions of a path.
    pub fn close_session(&mut self, path: SessionPath) {
        self.session_identities_of_path(path).into_iter().for_each(|line| self.remove(line));
    }

    /// Begins a handshake on a path whose remote end may have lost its session keys. The session keys of this
    /// end stay in use until the response arrives.
    pub fn renew_handshake(&mut self, now: Time, path: SessionPath) {
        self.session_identities_of_path(path).into_iter().for_each(|line| self.begin_handshake(now, line));
    }

    /// Returns whether the path can carry payloads.
    pub fn is_established(&self, path: SessionPath) -> bool {
        self.current_session_identity(path).is_some_and(|line| self.is_session_established(line))
    }

    /// Returns the local socket and the remote address to which a path sends; `None` if the path has no
    /// session or no route.
    pub fn route(&self, path: SessionPath) -> Option<DatagramRoute> {
        self.session_by_identity.get(&self.current_session_identity(path)?)?.route
    }

    /// Returns the number of sessions, established or not.
    pub fn session_count(&self) -> usize {
        self.session_by_identity.len()
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
                return self.drop_datagram(WireguardDropReason::Malformed);
            }
            let of_session = self.session_count_by_address.contains_key(&route.remote);
            return match self.handshake_queue.push(route, datagram, of_session) {
                true => ReceivedDatagram::Queued,
                false => self.drop_datagram(WireguardDropReason::QueueFull),
            };
        }
        // Parse the message by the first own key: only handshake messages depend on the key.
        let Some(own) = self.own_keys.first_mut() else {
            return self.drop_datagram(WireguardDropReason::Malformed);
        };
        match own.handshake_authenticator.receive(
            route.remote,
            datagram,
            self.handshake_clock.instant_of(now),
        ) {
            Ok(Parsed::Message(ReceivedMessage::TransportData(message))) => {
                self.receive_data(now, route, message, datagram, buffer)
            }
            Ok(Parsed::Message(ReceivedMessage::CookieReply(reply))) => {
                let line = self.session_identity_by_tunnel.get(&reply.tunnel_id()).copied();
                let Some((line, session)) =
                    line.and_then(|line| Some((line, self.session_by_identity.get_mut(&line)?)))
                else {
                    return self.drop_datagram(WireguardDropReason::Unexpected);
                };
                if let Err(error) =
                    session.noise_tunnel.handle_cookie_reply(reply, self.handshake_clock.instant_of(now))
                {
                    return self.drop_datagram(error.into());
                }
                let initiation = session.initiate_with_cookie(&self.handshake_clock, now);
                self.send_initiation(line, initiation);
                self.schedule_next_deadline(now, line);
                ReceivedDatagram::Handled
            }
            Ok(_) => self.drop_datagram(WireguardDropReason::Malformed),
            Err(error) => self.drop_datagram(error.into()),
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
        let line = self.session_identity_by_tunnel.get(&message.tunnel_id()).copied();
        let Some((line, session)) =
            line.and_then(|line| Some((line, self.session_by_identity.get_mut(&line)?)))
        else {
            return self.drop_datagram(WireguardDropReason::NoSession);
        };
        let at = self.handshake_clock.instant_of(now);
        let committed = session.noise_tunnel.begin_decapsulate(message, at).and_then(|pending| {
            session.noise_tunnel.commit_decapsulate(pending.decrypt(datagram, buffer), at)
        });
        let committed = match committed {
            Ok(committed) => committed,
            Err(error) => return self.drop_datagram(error.into()),
        };
        // The library has checked the length: the header has 16 octets.
        let index = u32::from_le_bytes([datagram[4], datagram[5], datagram[6], datagram[7]]);
        let counter = u64::from_le_bytes(datagram[8..16].try_into().unwrap_or_default());
        // The initiator does not change its route. The responder changes to the source of the newest message,
        // if a handshake has proved that the initiator receives there.
        let differs = session.record_newest_data_message(index, counter)
            && !session.is_opened_by_caller
            && session.route != Some(route);
        let proven = differs && session.is_route_proven(index, route);
        let reports = differs && !proven && session.record_unproven_route(route);
        let was_routed = session.route.is_some();
        let path = session.path;
        let is_data = matches!(committed, Committed::Data { .. });
        let carries = is_data && !session.is_opened_by_caller && !session.carries_path_traffic;
        session.collect_session_events(now, &mut self.events);
        // The initiator decides which session carries the data, and the responder sends through the same
        // session.
        if carries && !self.is_path_opened_by_caller(path) {
            self.send_over_session(line);
        }
        if proven {
            self.set_session_route(line, route);
            if was_routed {
                self.outputs.push_back(Output::Moved { path, route });
            }
        } else if reports {
            self.outputs.push_back(Output::Elsewhere { path, route });
        }
        self.apply_session_events(now, line);
        self.schedule_session_check(now, line);
        match committed {
            Committed::Data { buffer, len } => {
                ReceivedDatagram::Payload { path, pair: line.pair, payload: &mut buffer[..len] }
            }
            Committed::Keepalive => ReceivedDatagram::Handled,
        }
    }

    /// Encrypts a payload into `datagram`, and returns the route and the length of the datagram. A payload
    /// has at least one octet, and `datagram` has [`datagram_length`] octets. Without an established session
    /// the engine returns an error and begins a handshake; it does not store the payload.
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
        if let Err(reason) = result {
            self.count_drop(reason);
            if reason == WireguardDropReason::NotEstablished
                && let Some(line) = self.current_session_identity(path)
            {
                self.begin_handshake(now, line);
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
        let line = self.current_session_identity(path).ok_or(WireguardDropReason::NotEstablished)?;
        let session = self.session_by_identity.get_mut(&line).ok_or(WireguardDropReason::NotEstablished)?;
        let at = self.handshake_clock.instant_of(now);
        let pending =
            session.noise_tunnel.begin_encapsulate(at).map_err(|_| WireguardDropReason::NotEstablished)?;
        let length = pending.encrypt(payload, datagram)?.len();
        self.schedule_session_check(now, line);
        Ok(length)
    }

    /// Encrypts a payload that the caller sends to another route than the path's own, to test the route of
    /// [`Output::Elsewhere`]. Returns the length of the datagram.
    pub fn encrypt_for_other_route(
        &mut self,
        now: Time,
        path: SessionPath,
        payload: &[u8],
        datagram: &mut [u8],
    ) -> Result<usize, WireguardDropReason> {
        let result = self.encrypt_payload(now, path, payload, datagram);
        if let Err(reason) = result {
            self.count_drop(reason);
        }
        result
    }

    /// Changes the route of a path. The caller has proved that the remote end receives there.
    pub fn set_path_route(&mut self, path: SessionPath, route: DatagramRoute) {
        if let Some(line) = self.current_session_identity(path) {
            self.set_session_route(line, route);
        }
    }

    /// Returns whether handshake messages wait.
    pub fn has_waiting_handshakes(&self) -> bool {
        !self.handshake_queue.is_empty()
    }

    /// Handles waiting handshake messages. Stops after it has decrypted `most` of them, or has rejected 16
    /// times this number by the cheap check of their MAC. Between two calls the caller handles data.
    pub fn handle_waiting_handshakes(&mut self, now: Time, most: usize) {
        let (mut costly, mut cheap) = (0, 0);
        while costly < most && cheap < most * 16 {
            let Some(waiting) = self.handshake_queue.pop_next() else { return };
            match self.handle_waiting_handshake(now, &waiting) {
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

    fn handle_waiting_handshake(
        &mut self,
        now: Time,
        waiting: &WaitingHandshake,
    ) -> Result<(), WireguardDropReason> {
        let route = waiting.route;
        // The first MAC of a handshake message shows for which of the own keys the message is.
        let at = self.handshake_clock.instant_of(now);
        let (mut local, mut parsed) = (None, Err(WireguardDropReason::Mac));
        for own in &mut self.own_keys {
            let result = own.handshake_authenticator.receive(route.remote, waiting.octets(), at);
            (local, parsed) = (Some(own.public), result.map_err(WireguardDropReason::from));
            if !matches!(parsed, Err(WireguardDropReason::Mac)) {
                break;
            }
        }
        match (parsed?, local) {
            (Parsed::SendCookieReply(reply), _) => {
                self.outputs.push_back(Output::Send { route, datagram: (*reply).into() });
                Err(WireguardDropReason::Cookie)
            }
            (Parsed::Message(ReceivedMessage::HandshakeInitiation(initiation)), Some(local)) => {
                self.handle_initiation(now, route, local, initiation)
            }
            (Parsed::Message(ReceivedMessage::HandshakeResponse(response)), _) => {
                self.handle_response(now, response)
            }
            (Parsed::Message(_), _) => Err(WireguardDropReason::Malformed),
        }
    }

    /// Answers an authentic initiation to one of the own keys.
    fn handle_initiation(
        &mut self,
        now: Time,
        route: DatagramRoute,
        local: PublicKey,
        initiation: HandshakeInitiation,
    ) -> Result<(), WireguardDropReason> {
        let remote = PublicKey::from(initiation.peer_static_public().to_bytes());
        let Some(peer) = self.peer_by_key.get(&remote).copied() else {
            let of_session = self.session_count_by_address.contains_key(&route.remote);
            if self.unknown_key_reports.may_report_key(now, remote, of_session) {
                self.outputs.push_back(Output::UnknownKey { route, remote });
            }
            return Err(WireguardDropReason::UnknownKey);
        };
        let pair =
            *self.id_by_key_pair.get(&KeyPair { local, remote }).ok_or(WireguardDropReason::UnknownKey)?;
        let timestamp = HandshakeTimestamp(initiation.timestamp());
        let number = PathNumber::new(timestamp.path_number()).ok_or(WireguardDropReason::PathNumber)?;
        let (path, line) =
            (SessionPath { peer_id: peer, path_number: number }, SessionIdentity { pair, number });
        let floor = self.accepted_timestamps.get(&line).max(self.restored_timestamps.get(&(remote, number)));
        if floor.is_some_and(|&floor| timestamp <= floor) {
            if self.report_limiter.try_take_token(now) {
                self.outputs.push_back(Output::OldTimestamp { path });
            }
            return Err(WireguardDropReason::OldTimestamp);
        }
        let session = self.session_with_tunnel(now, path, line)?;
        if !session.take_handshake_token(now) {
            return Err(WireguardDropReason::Share);
        }
        let at = self.handshake_clock.instant_of(now);
        let Some(session) = self.session_by_identity.get_mut(&line) else {
            return Err(WireguardDropReason::NoSession);
        };
        let response = session.noise_tunnel.handle_handshake_initiation(initiation, at)?;
        let index = u32::from_le_bytes([response[4], response[5], response[6], response[7]]);
        session.record_answered_handshake(index, route);
        self.accepted_timestamps.insert(line, timestamp);
        self.outputs.push_back(Output::Accepted { path, remote, timestamp });
        // Do not change the session's route before the initiator confirms it: an attacker may have delayed
        // the initiation and sent it from another address.
        self.outputs.push_back(Output::Send { route, datagram: (*response).into() });
        self.schedule_next_deadline(now, line);
        Ok(())
    }

    /// Completes a handshake that this end has begun.
    fn handle_response(&mut self, now: Time, response: HandshakeResponse) -> Result<(), WireguardDropReason> {
        let line = self
            .session_identity_by_tunnel
            .get(&response.tunnel_id())
            .copied()
            .ok_or(WireguardDropReason::Unexpected)?;
        let session = self.session_by_identity.get_mut(&line).ok_or(WireguardDropReason::Unexpected)?;
        let keepalive =
            session.noise_tunnel.handle_handshake_response(response, self.handshake_clock.instant_of(now))?;
        session.finish_handshake();
        let route = session.route;
        session.collect_session_events(now, &mut self.events);
        if let Some(route) = route {
            self.outputs.push_back(Output::Send { route, datagram: (*keepalive).into() });
        }
        self.apply_session_events(now, line);
        self.schedule_next_deadline(now, line);
        Ok(())
    }

    /// Returns when the caller must call [`SessionEngine::handle_timeout`]; `None` if no timer runs.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.session_timers.next_deadline()
    }

    /// Handles the timers that are due, of at most 64 sessions. If more are due, the next call handles them.
    pub fn handle_timeout(&mut self, now: Time) {
        for _ in 0..MAX_SESSIONS_PER_TIMEOUT {
            let Some(line) = self.session_timers.pop_expired(now) else { return };
            let Some(session) = self.session_by_identity.get_mut(&line) else { continue };
            session.is_session_check_due = false;
            session.handle_timeout(&self.handshake_clock, now, &mut self.events);
            self.apply_session_events(now, line);
            self.schedule_next_deadline(now, line);
        }
    }

    /// Returns the next output; `None` if no output is left.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Converts the events of a session to outputs.
    fn apply_session_events(&mut self, now: Time, line: SessionIdentity) {
        if self.events.is_empty() {
            return;
        }
        for event in std::mem::take(&mut self.events) {
            let Some(session) = self.session_by_identity.get(&line) else { return };
            let (path, route) = (session.path, session.route);
            match (event, route) {
                (SessionEvent::Send(datagram), Some(route)) => {
                    if datagram.first() == Some(&MESSAGE_INITIATION) {
                        self.store_newest_timestamp(line);
                    }
                    self.outputs.push_back(Output::Send { route, datagram });
                }
                (SessionEvent::Established, Some(route)) => {
                    self.send_over_newest_session(path, line);
                    self.outputs.push_back(Output::Established { path, pair: line.pair, route });
                }
                (SessionEvent::NoAnswer, _) => self.report_unanswered_handshake(now, path, line),
                (SessionEvent::Expired, _) => self.expire_tunnel(now, path, line),
                (SessionEvent::Send(_) | SessionEvent::Established, None) => {}
            }
        }
    }

    /// Returns whether this end has opened the session through which the path sends.
    fn is_path_opened_by_caller(&self, path: SessionPath) -> bool {
        let session =
            self.current_session_identity(path).and_then(|line| self.session_by_identity.get(&line));
        session.is_some_and(|session| session.is_opened_by_caller)
    }

    /// Sends through a session from now on.
    fn send_over_session(&mut self, line: SessionIdentity) {
        let Some(session) = self.session_by_identity.get_mut(&line) else { return };
        session.carries_path_traffic = true;
        let path = session.path;
        if let Some(pair) =
            self.current_key_pair_by_path.insert(path, line.pair).filter(|old| *old != line.pair)
            && let Some(old) =
                self.session_by_identity.get_mut(&SessionIdentity { pair, number: line.number })
        {
            old.carries_path_traffic = false;
        }
    }

    /// If a newly established session has the newest keys, the path sends through this session from now on.
    /// This end no longer renews sessions of older keys.
    fn send_over_newest_session(&mut self, path: SessionPath, line: SessionIdentity) {
        let is_wanted =
            self.session_by_identity.get(&line).is_some_and(|session| session.is_opened_by_caller);
        if !self.is_established(path) {
            self.send_over_session(line);
        }
        if !is_wanted {
            return;
        }
        let newest =
            self.session_identities_of_path(path).into_iter().find(|line| self.is_session_established(*line));
        let Some(newest) = newest else { return };
        self.send_over_session(newest);
        for older in
            self.session_identities_of_path(path).into_iter().skip_while(|line| *line != newest).skip(1)
        {
            if let Some(session) = self.session_by_identity.get_mut(&older) {
                session.is_opened_by_caller = false;
            }
        }
    }

    /// Reports that the remote end does not answer on a path, and begins handshakes with the other key pairs.
    fn report_unanswered_handshake(&mut self, now: Time, path: SessionPath, line: SessionIdentity) {
        if self.current_session_identity(path) != Some(line) {
            return;
        }
        self.outputs.push_back(Output::NoAnswer { path });
        let Some(route) = self.route(path) else { return };
        for other in self.session_identities_of_path(path).into_iter().filter(|other| *other != line) {
            if self.session_with_tunnel(now, path, other).is_ok() {
                self.set_session_route(other, route);
                self.session_by_identity
                    .get_mut(&other)
                    .into_iter()
                    .for_each(|session| session.is_opened_by_caller = true);
                self.begin_handshake(now, other);
            }
        }
    }

    /// If the caller has opened the session, replaces its expired tunnel. Otherwise removes the session.
    fn expire_tunnel(&mut self, now: Time, path: SessionPath, line: SessionIdentity) {
        let mut others = self.session_identities_of_path(path).into_iter().filter(|other| *other != line);
        if !others.any(|other| self.is_session_established(other)) {
            self.outputs.push_back(Output::Ended { path });
        }
        let wanted = self.session_by_identity.get(&line).is_some_and(|session| session.is_opened_by_caller);
        if !wanted || self.renew_tunnel(now, line).is_err() {
            self.remove(line);
            return;
        }
        let Some(session) = self.session_by_identity.get_mut(&line) else { return };
        let initiation = session.restart_handshake(&self.handshake_clock, now);
        self.send_initiation(line, initiation);
    }

    /// Returns the library's interface and the remote keys for a new tunnel of this key pair.
    fn interface_and_remote_keys(
        &mut self,
        peer: PeerId,
        pair: KeyPairId,
    ) -> Result<(&mut Interface, RemoteKeys<'_>), WireguardDropReason> {
        let KeyPair { local, remote } =
            *self.key_pair_by_id.get(&pair).ok_or(WireguardDropReason::UnknownKey)?;
        let own =
            self.own_keys.iter().find(|key| key.public == local).ok_or(WireguardDropReason::UnknownKey)?;
        let interface = self.tunnel_factory.interface_with_key(own).ok_or(WireguardDropReason::UnknownKey)?;
        let preshared_key =
            self.remote_ends.get(&peer).ok_or(WireguardDropReason::UnknownKey)?.preshared_key.as_ref();
        Ok((interface, RemoteKeys { public_key: remote, preshared_key }))
    }

    /// Gives a session a new tunnel.
    fn renew_tunnel(&mut self, now: Time, line: SessionIdentity) -> Result<(), WireguardDropReason> {
        let clock = self.handshake_clock;
        let mut session = self.session_by_identity.remove(&line).ok_or(WireguardDropReason::NoSession)?;
        self.session_identity_by_tunnel.remove(&session.noise_tunnel.id());
        let (interface, remote) = match self.interface_and_remote_keys(session.path.peer_id, line.pair) {
            Ok(found) => found,
            Err(reason) => {
                self.session_by_identity.insert(line, session);
                return Err(reason);
            }
        };
        let replaced = session.replace_tunnel(interface, &clock, now, remote);
        self.session_identity_by_tunnel.insert(session.noise_tunnel.id(), line);
        self.session_by_identity.insert(line, session);
        replaced
    }

    /// Returns the session of a path and a key pair. If the session does not exist or its tunnel has expired,
    /// creates it.
    fn session_with_tunnel(
        &mut self,
        now: Time,
        path: SessionPath,
        line: SessionIdentity,
    ) -> Result<&mut PathSession, WireguardDropReason> {
        let expired = self.session_by_identity.get(&line).map(|session| session.noise_tunnel.is_expired());
        match expired {
            Some(false) => {}
            Some(true) => self.renew_tunnel(now, line)?,
            None => {
                let clock = self.handshake_clock;
                let (interface, remote) = self.interface_and_remote_keys(path.peer_id, line.pair)?;
                let session = PathSession::new(path, interface, &clock, now, remote)?;
                self.session_identity_by_tunnel.insert(session.noise_tunnel.id(), line);
                self.session_by_identity.insert(line, Box::new(session));
                if !self.current_key_pair_by_path.contains_key(&path) {
                    self.send_over_session(line);
                }
            }
        }
        self.session_by_identity.get_mut(&line).map(Box::as_mut).ok_or(WireguardDropReason::NoSession)
    }

    fn remove(&mut self, line: SessionIdentity) {
        self.session_timers.stop_timer(line);
        let Some(session) = self.session_by_identity.remove(&line) else { return };
        self.session_identity_by_tunnel.remove(&session.noise_tunnel.id());
        self.uncount_session_of_address(session.route);
        if !session.carries_path_traffic {
            return;
        }
        // The path now sends through another session, if possible an established one.
        let path = session.path;
        self.current_key_pair_by_path.remove(&path);
        let mut others = self.session_identities_of_path(path);
        others.retain(|line| self.session_by_identity.contains_key(line));
        let established = others.iter().find(|line| self.is_session_established(**line));
        if let Some(other) = established.or(others.first()) {
            self.send_over_session(*other);
        }
    }

    fn set_session_route(&mut self, line: SessionIdentity, route: DatagramRoute) {
        let Some(session) = self.session_by_identity.get_mut(&line) else { return };
        let old = session.route.replace(route);
        *self.session_count_by_address.entry(route.remote).or_default() += 1;
        self.uncount_session_of_address(old);
    }

    fn uncount_session_of_address(&mut self, route: Option<DatagramRoute>) {
        let Some(route) = route else { return };
        if let Some(sessions) = self.session_count_by_address.get_mut(&route.remote) {
            *sessions -= 1;
            if *sessions == 0 {
                self.session_count_by_address.remove(&route.remote);
            }
        }
    }

    /// Begins a handshake of a session that has a route, unless a handshake is in progress.
    fn begin_handshake(&mut self, now: Time, line: SessionIdentity) {
        self.begin_handshake_with_interval(now, line, FIRST_RETRANSMISSION_INTERVAL);
    }

    fn begin_handshake_with_interval(&mut self, now: Time, line: SessionIdentity, interval: Duration) {
        let Some(session) = self.session_by_identity.get_mut(&line).filter(|session| session.route.is_some())
        else {
            return;
        };
        let initiation = session.begin_handshake(&self.handshake_clock, now, interval);
        self.send_initiation(line, initiation);
        self.schedule_next_deadline(now, line);
    }

    fn send_initiation(&mut self, line: SessionIdentity, initiation: Option<Box<[u8]>>) {
        let route = self.session_by_identity.get(&line).and_then(|session| session.route);
        if let (Some(datagram), Some(route)) = (initiation, route) {
            self.store_newest_timestamp(line);
            self.outputs.push_back(Output::Send { route, datagram });
        }
    }

    fn store_newest_timestamp(&mut self, line: SessionIdentity) {
        let Some(session) = self.session_by_identity.get(&line) else { return };
        let date = self.handshake_clock.unix_time_at(session.last_handshake_timestamp());
        self.newest_timestamp = self.newest_timestamp.max(date);
    }

    /// Sets the timer of a session to its next deadline.
    fn schedule_next_deadline(&mut self, now: Time, line: SessionIdentity) {
        let Some(session) = self.session_by_identity.get_mut(&line) else { return };
        session.is_session_check_due = false;
        match session.next_deadline(&self.handshake_clock) {
            Some(deadline) => {
                self.session_timers.set_deadline(line, deadline.max(now + Duration::from_millis(1)))
            }
            None => self.session_timers.stop_timer(line),
        }
    }

    /// Schedules a check of the timers of a session that carries data. So the session computes its deadlines
    /// once a second, and not for each packet.
    fn schedule_session_check(&mut self, now: Time, line: SessionIdentity) {
        let Some(session) =
            self.session_by_identity.get_mut(&line).filter(|session| !session.is_session_check_due)
        else {
            return;
        };
        session.is_session_check_due = true;
        let deadline = session.next_deadline(&self.handshake_clock).unwrap_or(Time::MAX);
        self.session_timers.set_deadline(line, deadline.max(now).min(now + TIMER_CHECK_INTERVAL));
    }

    fn drop_datagram<'b>(&mut self, reason: WireguardDropReason) -> ReceivedDatagram<'b> {
        self.count_drop(reason);
        ReceivedDatagram::Dropped(reason)
    }

    fn count_drop(&mut self, reason: WireguardDropReason) {
        self.drops_by_reason[reason as usize] += 1;
    }
}

impl std::fmt::Debug for SessionEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionEngine")
            .field("public_keys", &self.public_keys())
            .field("peers", &self.remote_ends.len())
            .field("sessions", &self.session_by_identity.len())
            .field("pairs", &self.id_by_key_pair.len())
            .field("timestamps", &(self.accepted_timestamps.len() + self.restored_timestamps.len()))
            .finish_non_exhaustive()
    }
}

// A data message has a header of 16 octets, which `SessionEngine::receive_data` reads.
const _: () = assert!(DATA_MESSAGE_OVERHEAD >= 16);
