//! Direct routes: two mobile routers tunnel directly to each other's care-of address, without their home
//! agents.
//!
//! RFC 3963 leaves route optimisation out, and no standard exists for the proposals in RFC 4889. This module
//! implements the correspondent registration of RFC 6275 (5.2, 9.5, 11.6, 11.7.2) between two mobile routers
//! ("correspondent routers" in RFC 4888). It tests prefixes as C. Ng and J. Hirano propose (*Extending Return
//! Routability Procedure for Network Prefix*, draft-ng-nemo-rrnp, RFC 4889 5.2). The messages have a format
//! of carnet's own (`carnet_wire::mobility::direct_route`):
//!
//! ```text
//!   A                HA(A)        HA(B)                B
//!   |== Home Test Init ==>|---------->|== to B's network ==>|   through the home agents
//!   |<== Home Test, to A's home address ====================|
//!   |<== Prefix Test, to an address of each of A's prefixes, with B's care-of address
//!   |-- Care-of Test Init ---------------------------------->|   from care-of address to care-of address
//!   |<- Care-of Test ----------------------------------------|
//!   |-- Binding Update, authenticated by all these tokens -->|
//!   |<- Binding Acknowledgement -----------------------------|
//! ```
//!
//! * **Proofs of router A to router B.** A proves that it has its home address and prefixes: B sends a token
//!   to the home address and to an unpredictable address of each prefix, and A's home agent delivers these
//!   only to A. A proves its care-of address by a token that B sends there. The key of the Binding Update
//!   derives from all tokens (RFC 6275 5.2.6), so A needs every one of them. B stores nothing before the
//!   update (`tokens`).
//! * **Both directions.** B then registers with A in the same way. A route is *direct* when each router has a
//!   binding of the other. Only then do packets go directly, from the registered care-of address to the bound
//!   one. The data path accepts a direct packet only from the bound care-of address, with an inner source in
//!   the proven prefixes ([`DirectRouteState::tunnels`]).
//! * **Requests.** When a packet goes to an address in one of [`DirectConfig::mobile_networks`], this router
//!   sends a Home Test Init to that address. The mobile router of that network finds the message in its
//!   tunnel and answers. If no router answers three messages, this router pauses; each further pause
//!   is longer.
//! * **Lifetime.** `MAX_RR_BINDING_LIFETIME` (420 s, RFC 6275 12). The routers renew it every 180 s while
//!   packets go in either direction. So the tokens are always valid, and a handover needs only a Care-of Test
//!   and a Binding Update.
//! * **Handover.** While the router tests and registers a new care-of address, it uses the old one if the old
//!   link is up. The other router accepts packets from both. If the old link is down, packets go through the
//!   home agent until the other router has acknowledged the new address.
//! * **End.** *Heartbeats* test the direct path, four per second while packets use it and one per second
//!   otherwise. The route ends after four in a row without an answer. It also ends after an ICMPv6 error
//!   about a tunnelled packet, or if the other router answers that it has no binding. Then packets take the
//!   tunnel to the home agent, which always exists. The router detects a failed path within 450 ms plus twice
//!   max(200 ms, 2 RTT + 50 ms): less than a second on short paths. A router that ends a route reports it
//!   (lifetime 0).
//!
//! **Disclosure of care-of addresses.** Prefix Tests contain the care-of address of their sender, so this
//! router sends them only to addresses in [`DirectConfig::mobile_networks`]. A Home Test Init to a registered
//! router also contains it, authenticated by the key. Other Home Test Inits and Home Tests do not contain it,
//! because they may go to any node. A Home Test names only the prefix that was asked for. So the first node
//! that learns a care-of address is one that answers from an address in the networks. No proof is possible
//! before one of the routers has disclosed its address.
//!
//! **Limits.** [`MAX_PEERS`] routers, [`MAX_CANDIDATE_NETWORKS`] networks that this router asks, and one new
//! request per second after a burst of four. If a table is full, a network with the most entries loses one
//! (`peer_replacement`). A binding that packets use is never removed for an unproven router. Rate limits
//! bound the answers and the verification of wrong authenticators: one for each bound router, by its key, and
//! one for all other sources.
//!
//! **What an attacker can do.** An attacker that reads two paths can take over a route while a binding lasts.
//! One is the path between home agents and router, where tunnels are not encrypted. The second is a path of
//! care-of addresses. Return routability in general has this weakness (RFC 6275 15.4.3). If the router of a
//! mobile network has no direct routes, a host in this network can answer for the prefix. This host cannot
//! get the router's home token, but it may bind the prefix to a home address of its own. Each router learns
//! the other's care-of address (RFC 4882).
//!
//! Left out:
//!
//! * Tunnels inside IPv4 and UDP. A router without an IPv6 care-of address uses its home agent.
//! * Several direct paths at a time. Policies apply to the home agent's tunnel.
//! * Mobile nodes and ordinary correspondent nodes (RFC 6275 9).

mod correspondent;
mod drop_reason;
mod liveness;
mod peer;
mod peer_registration;
mod peer_replacement;
mod session_keys;
mod sessions;
mod tokens;

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Rng, Time};
use carnet_wire::mobility::{DirectRoute, DirectRouteKind};
use ipnet::Ipv6Net;

use crate::{Event, HOP_LIMIT, SessionPeer, is_unicast_routable};
pub use drop_reason::DirectDrop;
use peer::{CandidateNetwork, Peer, RemovedSequenceNumbers};
use session_keys::{DirectEnds, SessionKeys};
pub use session_keys::{MAX_SESSION_KEYS, PublicKey};
use tokens::TokenSecret;

/// Maximum number of routers with a direct route or an outstanding request for one.
pub const MAX_PEERS: usize = 32;
/// Maximum number of networks that this router asks for their routers.
pub const MAX_CANDIDATE_NETWORKS: usize = 128;
/// Lifetime of a binding: `MAX_RR_BINDING_LIFETIME` (RFC 6275 12).
pub const MAX_RR_BINDING_LIFETIME: Duration = Duration::from_secs(420);
/// Length of accepted prefixes. A home agent assigns a prefix of this length to one router, so one test
/// proves the whole prefix. If a shorter prefix were accepted, an attacker with a part of it could repeat its
/// requests until all tests went to its part. If longer ones were accepted, an attacker could fill the table
/// with parts of one network.
pub const ASSIGNED_PREFIX_LENGTH: u8 = 64;
/// Maximum number of this router's care-of addresses that direct routes use.
const MAX_CARE_OF_ADDRESSES: usize = 4;
/// Time without a packet after which a route is not renewed.
const UNUSED_ROUTE_LIFETIME: Duration = Duration::from_secs(120);
/// Time after a packet in which this module ignores further packets to the same network.
const REPEATED_PACKET_IGNORE_TIME: Duration = Duration::from_millis(100);

/// Config of direct routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectConfig {
    /// The mobile network prefixes of this router.
    pub prefixes: Vec<Ipv6Net>,
    /// Home address of this router.
    pub home_address: Ipv6Addr,
    /// Home prefix of this router.
    pub home_prefix: Ipv6Net,
    /// Networks whose mobile networks may get direct routes.
    pub mobile_networks: Vec<Ipv6Net>,
    /// Whether packets and messages between the routers go only through encrypted sessions. If false, they go
    /// in the clear.
    pub requires_sessions: bool,
}

/// An output of this module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// An IPv6 packet from the home address, to send through the tunnel to the home agent.
    ThroughTunnel(Vec<u8>),
    /// An IPv6 packet from a care-of address, to send directly to the other router's care-of address.
    Straight(Vec<u8>),
    /// An IPv6 packet between care-of addresses, to send through an encrypted session.
    InSession {
        /// Number of the other router's key.
        session: SessionPeer,
        /// Care-of address of this router.
        local: Ipv6Addr,
        /// Care-of address of the other router.
        remote: Ipv6Addr,
        /// The packet.
        packet: Vec<u8>,
    },
    /// Accept and begin encrypted sessions with the router that has `public_key`. If `public_key` is `None`,
    /// end the sessions with this number.
    SessionKey {
        /// Number of the key in other outputs and inputs.
        session: SessionPeer,
        /// The key; `None` if the number is no longer in use.
        public_key: Option<PublicKey>,
    },
    /// The return value of [`DirectRouteState::tunnels`] has changed.
    Routes,
    /// An event for the operator.
    Event(Event),
}

/// A direct tunnel: this router accepts packets of another router from it, and may also send through it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectTunnel {
    /// Home address of the other router.
    pub home_address: Ipv6Addr,
    /// Care-of address of this router.
    pub local: Ipv6Addr,
    /// Care-of address of the other router.
    pub remote: Ipv6Addr,
    /// Proven addresses of the other router: the home address as a /128, and the prefixes.
    pub proven_prefixes: Vec<Ipv6Net>,
    /// Whether this router sends packets to the `proven_prefixes` through this tunnel.
    pub may_transmit: bool,
    /// Encrypted session that carries the packets; `None` in the clear.
    pub session: Option<SessionPeer>,
}

/// Another mobile router and the path to it, for the status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectRouteStatus {
    /// Home address of the other router.
    pub home_address: Ipv6Addr,
    /// Prefixes of the other router; the router has proven them if it has a binding, see
    /// [`Self::has_proven_binding`].
    pub prefixes: Vec<Ipv6Net>,
    /// Whether the other router has a binding at this router.
    pub has_proven_binding: bool,
    /// Care-of address that this router has registered with the other router; `None` without a registration.
    pub local: Option<Ipv6Addr>,
    /// Care-of address of the other router; `None` if it is unknown.
    pub remote: Option<Ipv6Addr>,
    /// Whether packets to the other router's networks take the direct route.
    pub is_direct: bool,
    /// Whether packets on the direct route are encrypted.
    pub is_encrypted: bool,
    /// Reason for which packets take the direct route, or do not take it.
    pub reason: &'static str,
    /// Time since which packets have taken the direct route, or have not taken it.
    pub state_since: Time,
    /// Round trip of the heartbeats on the direct path; `None` without a measurement.
    pub rtt: Option<Duration>,
}

/// Counts of events.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// Home Test Inits sent.
    pub tests: u64,
    /// Home Tests, Prefix Tests and Care-of Tests sent.
    pub answered_tests: u64,
    /// Binding Updates of this router that other routers accepted.
    pub accepted_own_updates: u64,
    /// Binding Updates of other routers that this router accepted.
    pub accepted_peer_updates: u64,
    /// Heartbeats sent.
    pub sent_heartbeats: u64,
    /// Number of direct routes that began.
    pub begun_routes: u64,
    /// Number of direct routes that ended.
    pub ended_routes: u64,
    dropped: BTreeMap<DirectDrop, u64>,
}

impl Counters {
    /// Returns how many messages were dropped for `reason`.
    pub fn dropped(&self, reason: DirectDrop) -> u64 {
        self.dropped.get(&reason).copied().unwrap_or_default()
    }
}

/// State of all direct routes. After each `handle_*` call the caller calls [`DirectRouteState::poll_output`]
/// until it returns `None`.
#[derive(Debug)]
pub struct DirectRouteState {
    config: DirectConfig,
    /// Care-of addresses of this router, the preferred one first.
    care_of_addresses: Vec<Ipv6Addr>,
    /// Whether a tunnel to the home agent exists, and the home agent has not refused the prefixes.
    has_tunnel: bool,
    token_secret: TokenSecret,
    session_keys: SessionKeys,
    peers: BTreeMap<Ipv6Addr, Box<Peer>>,
    /// Sequence numbers of routers that were removed from a full table.
    removed_sequence_numbers: RemovedSequenceNumbers,
    /// Networks that may have a mobile router, by the first half of the address.
    candidate_networks: BTreeMap<u64, Box<CandidateNetwork>>,
    /// The last packet that [`DirectRouteState::handle_used_destination`] handled: network of its
    /// destination, and time. `None` before the first packet.
    last_handled_packet: Option<(u64, Time)>,
    request_limit: RateLimiter,
    /// Rate limit of answers to unauthenticated sources.
    answer_limit: RateLimiter,
    /// Rate limit of unauthenticated Binding Updates with a wrong key.
    forgery_limit: RateLimiter,
    outputs: VecDeque<Output>,
    counters: Counters,
    rng: Rng,
}

fn upper_64_bits(address: Ipv6Addr) -> u64 {
    (u128::from(address) >> 64) as u64
}

impl DirectRouteState {
    /// Creates a state without other routers.
    pub fn new(config: DirectConfig, mut rng: Rng) -> DirectRouteState {
        DirectRouteState {
            config,
            care_of_addresses: Vec::new(),
            has_tunnel: false,
            token_secret: TokenSecret::new(&mut rng),
            session_keys: SessionKeys::default(),
            peers: BTreeMap::new(),
            removed_sequence_numbers: RemovedSequenceNumbers::default(),
            candidate_networks: BTreeMap::new(),
            last_handled_packet: None,
            request_limit: RateLimiter::new(4, Duration::from_secs(1)),
            answer_limit: RateLimiter::new(64, Duration::from_millis(20)),
            forgery_limit: RateLimiter::new(100, Duration::from_millis(2)),
            outputs: VecDeque::new(),
            counters: Counters::default(),
            rng,
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &DirectConfig {
        &self.config
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the next output; `None` if no output is left.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns when [`Self::handle_timeout`] is due next; `None` if no timer runs.
    pub fn poll_timeout(&self) -> Option<Time> {
        let candidates =
            self.candidate_networks.values().filter_map(|candidate| self.next_network_request_at(candidate));
        let peers = self.peers.values().map(|peer| peer.next_check_at);
        peers.chain(candidates).chain(self.session_keys.next_key_expiry()).min()
    }

    /// Returns all direct tunnels, in a stable order.
    pub fn tunnels(&self) -> Vec<DirectTunnel> {
        let mut tunnels = Vec::new();
        for (home_address, peer) in &self.peers {
            let Some(binding) = &peer.binding else { continue };
            let inner: Vec<Ipv6Net> =
                [Ipv6Net::from(*home_address)].into_iter().chain(binding.prefixes.iter().copied()).collect();
            let in_use = self.path_of_peer(peer).filter(|_| peer.is_direct);
            let remotes = [binding.care_of_address]
                .into_iter()
                .chain(binding.former_care_of_address.map(|(old, _)| old));
            for remote in remotes {
                for &local in &self.care_of_addresses {
                    tunnels.push(DirectTunnel {
                        home_address: *home_address,
                        local,
                        remote,
                        proven_prefixes: inner.clone(),
                        may_transmit: in_use == Some((local, remote)),
                        session: binding.session(&self.session_keys),
                    });
                }
            }
        }
        tunnels
    }

    /// Returns the known routers, and the paths to them.
    pub fn routes(&self) -> impl Iterator<Item = DirectRouteStatus> {
        self.peers.iter().map(|(home_address, peer)| DirectRouteStatus {
            home_address: *home_address,
            prefixes: peer.all_networks(),
            has_proven_binding: peer.binding.is_some(),
            local: peer.registration.as_ref().map(|registration| registration.care_of_address),
            remote: peer
                .binding
                .as_ref()
                .map(|binding| binding.care_of_address)
                .or(peer.remote_care_of_address),
            is_direct: peer.is_direct,
            is_encrypted: self.config.requires_sessions,
            reason: peer.state_reason,
            state_since: peer.state_since,
            rtt: peer.heartbeats.round_trip().smoothed(),
        })
    }

    /// Sets this router's care-of addresses, the preferred one first. `has_tunnel` says whether a tunnel to
    /// the home agent exists and the home agent has not refused the prefixes.
    pub fn handle_care_of_addresses(&mut self, now: Time, mut addresses: Vec<Ipv6Addr>, has_tunnel: bool) {
        addresses.retain(|address| {
            is_unicast_routable(*address) && !self.config.prefixes.iter().any(|own| own.contains(address))
        });
        addresses.truncate(MAX_CARE_OF_ADDRESSES);
        let before = std::mem::replace(&mut self.has_tunnel, has_tunnel);
        if addresses == self.care_of_addresses && before == has_tunnel {
            return;
        }
        let moved = addresses != self.care_of_addresses;
        if addresses.is_empty() {
            // While the direct path still works, tell the other router that the route ends. Otherwise it
            // would need heartbeats to detect the end.
            self.end_all_routes(now, "the care-of address is gone");
        }
        self.care_of_addresses = addresses;
        for peer in self.peers.values_mut() {
            peer.next_check_at = now;
            if moved {
                // Earlier failures concerned another care-of address, so they no longer delay tests.
                (peer.care_of_index, peer.paused_until, peer.failure_count) = (0, now, 0);
                peer.outstanding_exchange.take_if(|exchange| exchange.home_tests().is_none());
            }
        }
        if moved {
            self.outputs.push_back(Output::Routes);
        }
        self.handle_timeout(now);
    }

    /// Handles a packet from the mobile network to `destination`, over any path. The call is cheap, so the
    /// caller may make it for every packet.
    pub fn handle_used_destination(&mut self, now: Time, destination: Ipv6Addr) {
        let network = upper_64_bits(destination);
        if self.last_handled_packet.is_some_and(|(latest, at)| {
            latest == network && now.saturating_since(at) < REPEATED_PACKET_IGNORE_TIME
        }) {
            return;
        }
        self.last_handled_packet = Some((network, now));
        let inside = |networks: &[Ipv6Net]| networks.iter().any(|network| network.contains(&destination));
        // Messages of direct routes themselves do not count as packets that use a route.
        let between_routers = self.peers.contains_key(&destination);
        if !inside(&self.config.mobile_networks) || inside(&self.config.prefixes) || between_routers {
            return;
        }
        let known = self.peers.values_mut().find(|peer| peer.has_network_containing(now, destination));
        if let Some(peer) = known {
            let slept =
                peer.last_used_at.is_none_or(|used| now.saturating_since(used) > liveness::ROUTE_IN_USE_TIME);
            peer.last_used_at = Some(now);
            if slept {
                peer.next_check_at = now;
            }
            return;
        }
        if let Some(candidate) = self.candidate_networks.get_mut(&network) {
            candidate.last_used_at = now;
            return;
        }
        if !self.make_room_for_candidate_network(now, network) {
            return;
        }
        let candidate = CandidateNetwork {
            destination,
            home_test_exchange: peer::Exchange::home_test(self.rng.random_u64(), now),
            failure_count: 0,
            last_used_at: now,
        };
        self.candidate_networks.insert(network, Box::new(candidate));
    }

    /// Handles a report of a fast path: packets go through the direct tunnel to the care-of address `remote`.
    pub fn handle_tunnel_used(&mut self, now: Time, remote: Ipv6Addr) {
        let bound = |peer: &&mut Box<Peer>| {
            peer.binding.as_ref().is_some_and(|binding| binding.care_of_address == remote)
        };
        if let Some(peer) = self.peers.values_mut().find(bound) {
            peer.last_used_at = Some(now);
        }
    }

    /// Handles the timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        let due: Vec<Ipv6Addr> =
            self.peers.iter().filter(|(_, peer)| peer.next_check_at <= now).map(|(home, _)| *home).collect();
        for home_address in due {
            self.check_peer(now, home_address);
        }
        self.send_candidate_tests(now);
        self.expire_keys(now);
    }

    /// Handles a message from the tunnel to the home agent, whose destination is the home address or an
    /// address of the mobile network. The caller must not forward the message, whatever the result.
    ///
    /// # Errors
    /// Returns why the message had no effect, and counts the reason.
    pub fn handle_tunnelled_message(
        &mut self,
        now: Time,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        let result = match message.kind {
            DirectRouteKind::HomeTestInit => self.answer_home_test_init(now, source, destination, message),
            DirectRouteKind::HomeTest => self.handle_home_test(now, source, destination, message),
            DirectRouteKind::PrefixTest => self.handle_prefix_test(now, destination, message),
            _ => Err(DirectDrop::NotForUs),
        };
        self.count_result(result)
    }

    /// Handles a message that came directly and in the clear, from care-of address to care-of address.
    ///
    /// # Errors
    /// Returns why the message had no effect, and counts the reason.
    pub fn handle_unencrypted_message(
        &mut self,
        now: Time,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        self.handle_direct_message(now, None, source, destination, message)
    }

    /// Handles a message that came directly: through the encrypted session `session`, or in the clear if
    /// `session` is `None`.
    ///
    /// # Errors
    /// Returns why the message had no effect, and counts the reason.
    pub fn handle_direct_message(
        &mut self,
        now: Time,
        session: Option<SessionPeer>,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        if !self.care_of_addresses.contains(&destination) {
            return self.count_result(Err(DirectDrop::NotForUs));
        }
        if session.is_some() != self.config.requires_sessions {
            return self.count_result(Err(DirectDrop::NotInSession));
        }
        let ends = DirectEnds { local: destination, remote: source, session };
        let result = match message.kind {
            DirectRouteKind::CareOfTestInit => self.answer_care_of_test_init(now, ends, message),
            DirectRouteKind::CareOfTest => self.handle_care_of_test(now, ends, message),
            DirectRouteKind::BindingUpdate => self.handle_binding_update(now, ends, message),
            DirectRouteKind::BindingAcknowledgement => self.handle_acknowledgement(now, ends, message),
            DirectRouteKind::Heartbeat => self.answer_heartbeat(now, ends, message),
            DirectRouteKind::HeartbeatResponse => self.handle_heartbeat_response(now, ends, message),
            _ => Err(DirectDrop::NotForUs),
        };
        self.count_result(result)
    }

    /// Counts a message that does not parse.
    pub fn handle_malformed_message(&mut self) {
        let _counted = self.count_result(Err(DirectDrop::Malformed));
    }

    /// Handles an ICMPv6 error about a packet of the tunnel between these ends. The caller has checked that
    /// the error quotes a packet of this router.
    pub fn handle_unreachable_peer(&mut self, now: Time, local: Ipv6Addr, remote: Ipv6Addr) {
        let concerned = self
            .peers
            .iter()
            .find(|(_, peer)| peer.is_direct && self.path_of_peer(peer) == Some((local, remote)));
        if let Some(home_address) = concerned.map(|(home_address, _)| *home_address) {
            self.handle_path_failure(now, home_address, "the network reports that it is unreachable");
        }
    }

    /// Ends all routes, and reports it to the other routers.
    pub fn handle_shutdown(&mut self, now: Time) {
        self.end_all_routes(now, "stopped");
        self.candidate_networks.clear();
        self.peers.clear();
        (self.care_of_addresses, self.has_tunnel) = (Vec::new(), false);
        self.end_sessions();
        self.outputs.push_back(Output::Routes);
    }

    fn end_all_routes(&mut self, now: Time, reason: &'static str) {
        let all: Vec<Ipv6Addr> = self.peers.keys().copied().collect();
        for home_address in all {
            self.end_registration(now, home_address, reason);
        }
    }

    fn count_result(&mut self, result: Result<(), DirectDrop>) -> Result<(), DirectDrop> {
        if let Err(reason) = result {
            *self.counters.dropped.entry(reason).or_default() += 1;
        }
        result
    }

    /// Returns the tunnel ends for direct packets; `None` unless each router has a binding of the other.
    fn path_of_peer(&self, peer: &Peer) -> Option<(Ipv6Addr, Ipv6Addr)> {
        let (binding, registration) = (peer.binding.as_ref()?, peer.registration.as_ref()?);
        let local = registration.care_of_address;
        self.care_of_addresses.contains(&local).then_some((local, binding.care_of_address))
    }

    /// Checks the state of one router after an input or a timer.
    fn check_peer(&mut self, now: Time, home_address: Ipv6Addr) {
        self.expire_peer_state(now, home_address);
        if self.peers.contains_key(&home_address) {
            self.send_due_heartbeat(now, home_address);
            self.send_due_registration(now, home_address);
            self.review_route(now, home_address);
        }
    }

    /// Removes those parts of a router's state that have expired.
    fn expire_peer_state(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(peer) = self.peers.get(&home_address) else { return };
        if peer.binding.as_ref().is_some_and(|binding| binding.expires_at <= now) {
            // Output the event before the binding is removed, because the event lists the prefixes of the
            // binding.
            self.set_route_direct(now, home_address, false, "its binding has expired");
        }
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        let mut changed = peer.binding.take_if(|binding| binding.expires_at <= now).is_some();
        if let Some(binding) = &mut peer.binding {
            changed |= binding.former_care_of_address.take_if(|(_, until)| *until <= now).is_some();
        }
        peer.last_sequence.take_if(|(_, until)| *until <= now);
        peer.registration.take_if(|registration| registration.expires_at <= now);
        let is_used =
            peer.last_used_at.is_some_and(|used| now.saturating_since(used) <= UNUSED_ROUTE_LIFETIME);
        let is_empty = peer.binding.is_none() && peer.registration.is_none() && peer.last_sequence.is_none();
        if changed {
            self.outputs.push_back(Output::Routes);
        }
        if is_empty && !is_used {
            if let Some(peer) = self.peers.remove(&home_address)
                && peer.is_direct
            {
                self.report_route(home_address, &peer, false, "not used");
            }
            self.outputs.push_back(Output::Routes);
        }
    }

    /// Decides whether packets go directly, and sets the time of the next check.
    fn review_route(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(peer) = self.peers.get(&home_address) else { return };
        let (direct, reason) = match (self.path_of_peer(peer), &peer.binding, &peer.registration) {
            (Some(_), ..) if peer.heartbeats.has_failed() => (false, "no answer"),
            (Some(_), ..) => (true, "both are bound"),
            (None, _, Some(_)) if peer.binding.is_some() => (false, "the care-of address is gone"),
            _ if peer.lacks_session_key => (false, "it has no key for an encrypted route"),
            (None, Some(_), _) => (false, "it has not accepted this router's registration"),
            (None, ..) => (false, "it is not registered with this router"),
        };
        self.set_route_direct(now, home_address, direct, reason);
        let Some(peer) = self.peers.get(&home_address) else { return };
        let due = self.next_check_at(now, peer);
        if let Some(peer) = self.peers.get_mut(&home_address) {
            peer.next_check_at = due;
        }
    }

    fn set_route_direct(&mut self, now: Time, home_address: Ipv6Addr, direct: bool, reason: &'static str) {
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        let before = std::mem::replace(&mut peer.is_direct, direct);
        if before == direct {
            if !direct && peer.state_reason != reason && !peer.heartbeats.has_failed() {
                peer.state_reason = reason;
            }
            return;
        }
        (peer.state_since, peer.state_reason) = (now, reason);
        let peer = peer.clone();
        self.report_route(home_address, &peer, direct, reason);
    }

    fn report_route(&mut self, home_address: Ipv6Addr, peer: &Peer, direct: bool, reason: &str) {
        *(if direct { &mut self.counters.begun_routes } else { &mut self.counters.ended_routes }) += 1;
        self.outputs.push_back(Output::Routes);
        self.outputs.push_back(Output::Event(Event::Path {
            prefixes: peer.all_networks(),
            station: home_address.to_string(),
            direct,
            reason: reason.into(),
        }));
    }

    /// Returns when the state of a router is due for a check.
    fn next_check_at(&self, now: Time, peer: &Peer) -> Time {
        let binding = peer.binding.iter().flat_map(|binding| {
            [binding.expires_at].into_iter().chain(binding.former_care_of_address.map(|(_, until)| until))
        });
        let heard = peer.last_sequence.map(|(_, until)| until);
        let registration = peer.registration.as_ref().map(|registration| registration.expires_at);
        let idle = peer
            .last_used_at
            .map(|used| used + UNUSED_ROUTE_LIFETIME + Duration::from_millis(1))
            .filter(|at| *at > now);
        let all = binding.chain(heard).chain(registration).chain(idle);
        let all = all.chain(self.next_registration_at(now, peer)).chain(self.next_heartbeat_at(now, peer));
        // A router without any state is checked once more after `UNUSED_ROUTE_LIFETIME`; that check removes
        // it.
        all.min().unwrap_or(now + UNUSED_ROUTE_LIFETIME).max(now + Duration::from_millis(1))
    }

    /// Sends a message from a care-of address directly: through a session, if this router needs one.
    fn send_directly(&mut self, ends: DirectEnds, message: &DirectRoute) {
        let DirectEnds { local, remote, session } = ends;
        let packet = message.emit_packet(local, remote, HOP_LIMIT);
        match session {
            Some(session) => self.outputs.push_back(Output::InSession { session, local, remote, packet }),
            None if self.config.requires_sessions => {}
            None => self.outputs.push_back(Output::Straight(packet)),
        }
    }

    /// Sends a message from the home address, through the home agents.
    fn send_through_home_agents(&mut self, destination: Ipv6Addr, message: &DirectRoute) {
        let packet = message.emit_packet(self.config.home_address, destination, HOP_LIMIT);
        self.outputs.push_back(Output::ThroughTunnel(packet));
    }

    /// Checks whether prefixes may belong to another router: they are valid, no prefixes of this router, and
    /// not proven by a third router.
    fn check_prefixes(&self, home_address: Ipv6Addr, prefixes: &[Ipv6Net]) -> Result<(), DirectDrop> {
        if !is_unicast_routable(home_address) || home_address == self.config.home_address {
            return Err(DirectDrop::HomeAddress);
        }
        let touches = |a: &Ipv6Net, b: &Ipv6Net| a.contains(b) || b.contains(a);
        let own = |prefix: &Ipv6Net| {
            self.config.prefixes.iter().any(|own| touches(own, prefix))
                || prefix.contains(&self.config.home_address)
                || prefix.contains(&self.config.home_prefix)
        };
        let allowed =
            |prefix: &Ipv6Net| self.config.mobile_networks.iter().any(|network| network.contains(prefix));
        let others = self.peers.iter().filter(|(other, _)| **other != home_address);
        let theirs: Vec<&Ipv6Net> =
            others.filter_map(|(_, peer)| peer.binding.as_ref()).flat_map(|b| &b.prefixes).collect();
        let bad = |prefix: &Ipv6Net| {
            prefix.prefix_len() != ASSIGNED_PREFIX_LENGTH
                || !is_unicast_routable(prefix.network())
                || !allowed(prefix)
                || own(prefix)
                || theirs.iter().any(|their| touches(their, prefix))
        };
        // The home address counts as a prefix of 128 bits.
        let inside_other = self.config.prefixes.iter().any(|own| own.contains(&home_address))
            || theirs.iter().any(|their| their.contains(&home_address));
        if prefixes.is_empty() || prefixes.iter().any(bad) || inside_other {
            return Err(DirectDrop::BadPrefix);
        }
        Ok(())
    }
}
