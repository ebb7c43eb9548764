//! Direct routes: two mobile routers tunnel directly to each other's care-of address, without the home agents
//! between.
//!
//! RFC 3963 leaves route optimisation out, and the proposals in RFC 4889 have no standard. This module
//! implements the correspondent registration of RFC 6275 (5.2, 9.5, 11.6, 11.7.2) between two mobile routers
//! ("correspondent routers" in RFC 4888). It tests prefixes as C. Ng and J. Hirano propose (*Extending Return
//! Routability Procedure for Network Prefix*, draft-ng-nemo-rrnp, RFC 4889 5.2). The messages have a format
//! of carnet's own (`carnet_wire::mobility::direct_route`):
//!
//! ```text
//!   A                HA(A)        HA(B)                B
//!   |== Home Test Init ==>|---------->|== to B's network ==>|   by way of the home agents
//!   |<== Home Test, to A's home address ====================|
//!   |<== Prefix Test, to an address of each of A's prefixes, with B's care-of address
//!   |-- Care-of Test Init ---------------------------------->|   straight, care-of address to care-of address
//!   |<- Care-of Test ----------------------------------------|
//!   |-- Binding Update, authenticated by all these tokens -->|
//!   |<- Binding Acknowledgement -----------------------------|
//! ```
//!
//! * **Proofs of router A to router B.** The home address and every prefix are A's: A's home agent delivered
//!   the tokens to A alone (to an unpredictable address of the prefix). And A is at its care-of address: it
//!   got a token there. The key of the Binding Update derives from all tokens (5.2.6), so a binding needs
//!   every one of them. B keeps no state before that (`tokens`).
//! * **Both directions.** B then registers with A in the same manner. A route is *direct* when each has the
//!   other's binding: only then do packets go directly, from the registered care-of address to the bound one.
//!   A packet that arrives directly must come from the bound address with an inner source in the proven
//!   prefixes; the data path checks that ([`Direct::tunnels`]).
//! * **Questions.** When packets go to an address in one of [`DirectConfig::networks`], this router asks that
//!   address; the mobile router there takes the question out of its tunnel. A destination without such a
//!   router gets three questions, and then none for a while, longer each time.
//! * **Lifetime.** `MAX_RR_BINDING_LIFETIME` (420 s, RFC 6275 12), renewed every 180 s while packets go in
//!   either direction. So the tokens are always valid, and a handover needs only a Care-of Test and a Binding
//!   Update.
//! * **Handover.** The router tests and registers a new care-of address while the old one stays in use as
//!   long as its link is up; the other end accepts packets from both. If the old one is gone, packets go by
//!   the home agent until the new one is acknowledged.
//! * **End.** *Heartbeats* (RFC 5847 in purpose) go directly, four a second while packets flow and one a
//!   second otherwise. After four in a row without an answer, an ICMPv6 error about a packet of the tunnel,
//!   or an answer that there is no binding, packets take the tunnel to the home agent, which always exists. A
//!   path that fails silently is detected at most 450 ms plus twice max(200 ms, 2 RTT + 50 ms) later: below a
//!   second on short paths. A router that ends a route reports it (lifetime 0).
//!
//! **Disclosure of care-of addresses.** Prefix Tests carry the care-of address, so it goes only to addresses
//! in [`DirectConfig::networks`]. A Home Test Init to a registered router carries it too, with the key. Other
//! questions and Home Tests, which go to anybody, do not, and a Home Test names only the own prefix that was
//! asked. So the first to learn a care-of address is a node that answers from an address in the networks;
//! neither side can prove anything before one of them has disclosed something.
//!
//! **Bounds.** [`MAX_PEERS`] routers, [`MAX_CANDIDATES`] networks that are asked, one new question a second
//! after a burst of four. In a full table the party with the most entries makes room (`places`); a stranger
//! never pushes out a binding that packets use. Answers are limited for strangers as a whole, and for each
//! bound router by its key; so are computations of keys of wrong Binding Updates.
//!
//! **Limits of the protection.** As with return routability in general (RFC 6275 15.4.3), an attacker that
//! reads the path between the home agents and a router, where tunnels are not encrypted, and a care-of path
//! as well, can take the route over while a binding lasts. A host in the mobile network of a router without
//! direct routes can answer for the prefix. It does not get that router's home token, but may bind the prefix
//! under a home address of its own. Each end learns the other's care-of address (RFC 4882).
//!
//! Left out: tunnels inside IPv4 and UDP (a router without an IPv6 care-of address uses its home agent),
//! several direct paths at a time (policies apply to the home agent's tunnel), mobile nodes and ordinary
//! correspondent nodes (RFC 6275 9).

mod correspondent;
mod drop_reason;
mod liveness;
mod peer;
mod places;
mod registering;
mod tokens;

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Rng, Time};
use carnet_wire::mobility::{DirectRoute, DirectRouteKind};
use ipnet::Ipv6Net;

use crate::{Event, HOP_LIMIT, is_unicast_routable};
pub use drop_reason::DirectDrop;
use peer::{Candidate, Memory, Peer};
use tokens::Secret;

/// Most routers with a direct route or a request for one.
pub const MAX_PEERS: usize = 32;
/// Most networks whose routers are asked.
pub const MAX_CANDIDATES: usize = 128;
/// Lifetime of a binding: `MAX_RR_BINDING_LIFETIME` (RFC 6275 12).
pub const MAX_RR_BINDING_LIFETIME: Duration = Duration::from_secs(420);
/// Length of accepted prefixes. Home agents assign prefixes of this length whole, so one test proves one. Of
/// a shorter prefix an attacker may have a part, gets some of the tests, and asks until all have come. With
/// longer ones an attacker could take all entries with a single network.
pub const LENGTH: u8 = 64;
/// Most care-of addresses of this router that are used.
const MAX_CARE_OF_ADDRESSES: usize = 4;
/// Time without a packet after which a route is not renewed.
const IDLE: Duration = Duration::from_secs(120);
/// Least time between two packets to a network that are examined.
const USE_INTERVAL: Duration = Duration::from_millis(100);

/// Config of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectConfig {
    /// The mobile network prefixes of this router.
    pub prefixes: Vec<Ipv6Net>,
    /// Home address of this router.
    pub home_address: Ipv6Addr,
    /// Home prefix of this router.
    pub home_prefix: Ipv6Net,
    /// Networks with the mobile networks to which direct routes may lead.
    pub networks: Vec<Ipv6Net>,
}

/// An output of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// An IPv6 packet from the home address, through the tunnel to the home agent.
    ThroughTunnel(Vec<u8>),
    /// An IPv6 packet from a care-of address.
    Straight(Vec<u8>),
    /// [`Direct::tunnels`] has changed.
    Routes,
    /// An event for the operator.
    Event(Event),
}

/// A pair of ends between which packets of another router are accepted or also sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    /// Home address of the other router.
    pub home_address: Ipv6Addr,
    /// Care-of address of this router.
    pub local: Ipv6Addr,
    /// Care-of address of the other router.
    pub remote: Ipv6Addr,
    /// Proven addresses of the other router: the home address as a /128, and the prefixes.
    pub inner: Vec<Ipv6Net>,
    /// Whether packets to `inner` go through this tunnel.
    pub transmit: bool,
}

/// A router and the path to it, for the status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Home address of the other router.
    pub home_address: Ipv6Addr,
    /// Prefixes of the other router; proven if there is a binding, see [`Self::proven`].
    pub prefixes: Vec<Ipv6Net>,
    /// Whether the other router has a binding here.
    pub proven: bool,
    /// Care-of address of this router that the other router knows.
    pub local: Option<Ipv6Addr>,
    /// Care-of address of the other router.
    pub remote: Option<Ipv6Addr>,
    /// Whether packets go directly.
    pub direct: bool,
    /// Reason of the current state.
    pub reason: &'static str,
    /// Time since when the state holds.
    pub since: Time,
    /// Round trip of the heartbeats.
    pub rtt: Option<Duration>,
}

/// Counts of events.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// Home Test Inits sent.
    pub tests: u64,
    /// Home Tests, Prefix Tests and Care-of Tests sent.
    pub tests_answered: u64,
    /// Own Binding Updates that were accepted.
    pub registered: u64,
    /// Binding Updates of others that were accepted.
    pub bound: u64,
    /// Heartbeats sent.
    pub heartbeats: u64,
    /// Times that packets began to go directly to a router.
    pub met: u64,
    /// Times that packets ceased to go directly to a router.
    pub parted: u64,
    dropped: BTreeMap<DirectDrop, u64>,
}

impl Counters {
    /// Returns how often something was refused for `reason`.
    pub fn dropped(&self, reason: DirectDrop) -> u64 {
        self.dropped.get(&reason).copied().unwrap_or_default()
    }
}

/// The machine. After each `handle_*` call the caller calls [`Direct::poll_output`] until it returns `None`.
#[derive(Debug)]
pub struct Direct {
    config: DirectConfig,
    /// Care-of addresses of this router, the preferred one first.
    care_of_addresses: Vec<Ipv6Addr>,
    /// Whether there is a tunnel to the home agent, and the home agent has not refused the prefixes.
    has_tunnel: bool,
    secret: Secret,
    peers: BTreeMap<Ipv6Addr, Box<Peer>>,
    /// Sequence numbers of routers that had to make room.
    memory: Memory,
    /// Networks that may have a mobile router, by the first half of the address.
    candidates: BTreeMap<u64, Box<Candidate>>,
    /// Network of the last packet, and its time.
    latest: Option<(u64, Time)>,
    questions: RateLimiter,
    /// Rate of answers to strangers.
    answers: RateLimiter,
    /// Rate of strangers' Binding Updates with a wrong key.
    forgeries: RateLimiter,
    outputs: VecDeque<Output>,
    counters: Counters,
    rng: Rng,
}

fn half(address: Ipv6Addr) -> u64 {
    (u128::from(address) >> 64) as u64
}

impl Direct {
    /// A machine that knows no other router.
    pub fn new(config: DirectConfig, mut rng: Rng) -> Direct {
        Direct {
            config,
            care_of_addresses: Vec::new(),
            has_tunnel: false,
            secret: Secret::new(&mut rng),
            peers: BTreeMap::new(),
            memory: Memory::default(),
            candidates: BTreeMap::new(),
            latest: None,
            questions: RateLimiter::new(4, Duration::from_secs(1)),
            answers: RateLimiter::new(64, Duration::from_millis(20)),
            forgeries: RateLimiter::new(100, Duration::from_millis(2)),
            outputs: VecDeque::new(),
            counters: Counters::default(),
            rng,
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &DirectConfig {
        &self.config
    }

    /// Returns the counts.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns when [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let candidates = self.candidates.values().filter_map(|candidate| self.due(candidate));
        self.peers.values().map(|peer| peer.due).chain(candidates).min()
    }

    /// Returns all pairs of ends, in a stable order.
    pub fn tunnels(&self) -> Vec<Tunnel> {
        let mut tunnels = Vec::new();
        for (home_address, peer) in &self.peers {
            let Some(binding) = &peer.binding else { continue };
            let inner: Vec<Ipv6Net> =
                [Ipv6Net::from(*home_address)].into_iter().chain(binding.prefixes.iter().copied()).collect();
            let in_use = self.path_of(peer).filter(|_| peer.direct);
            let remotes = [binding.care_of_address].into_iter().chain(binding.previous.map(|(old, _)| old));
            for remote in remotes {
                for &local in &self.care_of_addresses {
                    tunnels.push(Tunnel {
                        home_address: *home_address,
                        local,
                        remote,
                        inner: inner.clone(),
                        transmit: in_use == Some((local, remote)),
                    });
                }
            }
        }
        tunnels
    }

    /// Returns the known routers, and the paths to them.
    pub fn routes(&self) -> impl Iterator<Item = Route> {
        self.peers.iter().map(|(home_address, peer)| Route {
            home_address: *home_address,
            prefixes: peer.prefixes(),
            proven: peer.binding.is_some(),
            local: peer.registration.as_ref().map(|registration| registration.care_of_address),
            remote: peer.binding.as_ref().map(|binding| binding.care_of_address).or(peer.remote),
            direct: peer.direct,
            reason: peer.reason,
            since: peer.since,
            rtt: peer.heartbeats.round_trip().smoothed(),
        })
    }

    /// Sets this router's care-of addresses, the preferred one first. `has_tunnel` says whether there is a
    /// tunnel to the home agent with prefixes that it has not refused.
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
            // While a direct path still exists, the router reports the end, so that others need not detect it
            // by silence.
            self.end_all(now, "the care-of address is gone");
        }
        self.care_of_addresses = addresses;
        for peer in self.peers.values_mut() {
            peer.due = now;
            if moved {
                // Former failures were from another care-of address.
                (peer.choice, peer.hold, peer.failures) = (0, now, 0);
                peer.exchange.take_if(|exchange| exchange.home_tests().is_none());
            }
        }
        if moved {
            self.outputs.push_back(Output::Routes);
        }
        self.handle_timeout(now);
    }

    /// Handles a packet of the mobile network to this address, over any path. The call is cheap, so that it
    /// can be made for every packet.
    pub fn handle_use(&mut self, now: Time, destination: Ipv6Addr) {
        let network = half(destination);
        if self
            .latest
            .is_some_and(|(latest, at)| latest == network && now.saturating_since(at) < USE_INTERVAL)
        {
            return;
        }
        self.latest = Some((network, now));
        let inside = |networks: &[Ipv6Net]| networks.iter().any(|network| network.contains(&destination));
        // Messages between the two routers do not count as use.
        let between_routers = self.peers.contains_key(&destination);
        if !inside(&self.config.networks) || inside(&self.config.prefixes) || between_routers {
            return;
        }
        let known = self.peers.values_mut().find(|peer| peer.has(now, destination));
        if let Some(peer) = known {
            let slept = peer.used.is_none_or(|used| now.saturating_since(used) > liveness::IN_USE);
            peer.used = Some(now);
            if slept {
                peer.due = now;
            }
            return;
        }
        if let Some(candidate) = self.candidates.get_mut(&network) {
            candidate.used = now;
            return;
        }
        if !self.make_room_to_ask(now, network) {
            return;
        }
        let candidate = Candidate {
            destination,
            exchange: peer::Exchange::home_test(self.rng.u64(), now),
            failures: 0,
            used: now,
        };
        self.candidates.insert(network, Box::new(candidate));
    }

    /// Handles packets into the direct tunnel between these ends, which a fast path has reported.
    pub fn handle_tunnel_used(&mut self, now: Time, remote: Ipv6Addr) {
        let bound = |peer: &&mut Box<Peer>| {
            peer.binding.as_ref().is_some_and(|binding| binding.care_of_address == remote)
        };
        if let Some(peer) = self.peers.values_mut().find(bound) {
            peer.used = Some(now);
        }
    }

    /// Serves the timers.
    pub fn handle_timeout(&mut self, now: Time) {
        let due: Vec<Ipv6Addr> =
            self.peers.iter().filter(|(_, peer)| peer.due <= now).map(|(home, _)| *home).collect();
        for home_address in due {
            self.look(now, home_address);
        }
        self.ask_candidates(now);
    }

    /// Takes a message that came out of the tunnel to the home agent, addressed to the home address or into
    /// the mobile network. Returns whether the message was for this router and must not be forwarded.
    ///
    /// # Errors
    /// Returns why the message had no effect, and counts the reason.
    pub fn handle_inner(
        &mut self,
        now: Time,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        let result = match message.kind {
            DirectRouteKind::HomeTestInit => self.answer_home_test_init(now, source, destination, message),
            DirectRouteKind::HomeTest => self.take_home_test(now, source, destination, message),
            DirectRouteKind::PrefixTest => self.take_prefix_test(now, destination, message),
            _ => Err(DirectDrop::NotForUs),
        };
        self.count(result)
    }

    /// Takes a message that came directly, from one care-of address to another.
    ///
    /// # Errors
    /// Returns why the message had no effect, and counts the reason.
    pub fn handle_straight(
        &mut self,
        now: Time,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        if !self.care_of_addresses.contains(&destination) {
            return self.count(Err(DirectDrop::NotForUs));
        }
        let ends = (destination, source);
        let result = match message.kind {
            DirectRouteKind::CareOfTestInit => self.answer_care_of_test_init(now, ends, message),
            DirectRouteKind::CareOfTest => self.take_care_of_test(now, ends, message),
            DirectRouteKind::BindingUpdate => self.take_binding_update(now, ends, message),
            DirectRouteKind::BindingAcknowledgement => self.take_acknowledgement(now, ends, message),
            DirectRouteKind::Heartbeat => self.answer_heartbeat(now, ends, message),
            DirectRouteKind::HeartbeatResponse => self.take_heartbeat_response(now, ends, message),
            _ => Err(DirectDrop::NotForUs),
        };
        self.count(result)
    }

    /// Counts a message that does not parse.
    pub fn handle_malformed(&mut self) {
        let _counted = self.count(Err(DirectDrop::Malformed));
    }

    /// Handles an ICMPv6 error about a packet of the tunnel between these ends; the error quotes a packet
    /// that only this router can have sent.
    pub fn handle_unreachable(&mut self, now: Time, local: Ipv6Addr, remote: Ipv6Addr) {
        let concerned =
            self.peers.iter().find(|(_, peer)| peer.direct && self.path_of(peer) == Some((local, remote)));
        if let Some(home_address) = concerned.map(|(home_address, _)| *home_address) {
            self.fail(now, home_address, "the network reports it unreachable");
        }
    }

    /// Ends all routes, and reports it to the other routers.
    pub fn handle_shutdown(&mut self, now: Time) {
        self.end_all(now, "stopped");
        self.candidates.clear();
        self.peers.clear();
        (self.care_of_addresses, self.has_tunnel) = (Vec::new(), false);
        self.outputs.push_back(Output::Routes);
    }

    fn end_all(&mut self, now: Time, reason: &'static str) {
        let all: Vec<Ipv6Addr> = self.peers.keys().copied().collect();
        for home_address in all {
            self.end(now, home_address, reason);
        }
    }

    fn count(&mut self, result: Result<(), DirectDrop>) -> Result<(), DirectDrop> {
        if let Err(reason) = result {
            *self.counters.dropped.entry(reason).or_default() += 1;
        }
        result
    }

    /// Returns the ends between which packets may go directly: each router has the other's binding.
    fn path_of(&self, peer: &Peer) -> Option<(Ipv6Addr, Ipv6Addr)> {
        let (binding, registration) = (peer.binding.as_ref()?, peer.registration.as_ref()?);
        let local = registration.care_of_address;
        self.care_of_addresses.contains(&local).then_some((local, binding.care_of_address))
    }

    /// Reviews one router after an input or a timer.
    fn look(&mut self, now: Time, home_address: Ipv6Addr) {
        self.expire(now, home_address);
        if self.peers.contains_key(&home_address) {
            self.beat(now, home_address);
            self.register(now, home_address);
            self.review(now, home_address);
        }
    }

    /// Removes the state of one router that has expired.
    fn expire(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(peer) = self.peers.get(&home_address) else { return };
        if peer.binding.as_ref().is_some_and(|binding| binding.until <= now) {
            // The report about the router names its prefixes, so the binding is removed after it.
            self.set_direct(now, home_address, false, "its binding has run out");
        }
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        let mut changed = peer.binding.take_if(|binding| binding.until <= now).is_some();
        if let Some(binding) = &mut peer.binding {
            changed |= binding.previous.take_if(|(_, until)| *until <= now).is_some();
        }
        peer.heard.take_if(|(_, until)| *until <= now);
        peer.registration.take_if(|registration| registration.until <= now);
        let is_used = peer.used.is_some_and(|used| now.saturating_since(used) <= IDLE);
        let is_empty = peer.binding.is_none() && peer.registration.is_none() && peer.heard.is_none();
        if changed {
            self.outputs.push_back(Output::Routes);
        }
        if is_empty && !is_used {
            if let Some(peer) = self.peers.remove(&home_address)
                && peer.direct
            {
                self.told(home_address, &peer, false, "not used");
            }
            self.outputs.push_back(Output::Routes);
        }
    }

    /// Decides whether packets go directly, and sets the time of the next review.
    fn review(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(peer) = self.peers.get(&home_address) else { return };
        let (direct, reason) = match (self.path_of(peer), &peer.binding, &peer.registration) {
            (Some(_), ..) if peer.heartbeats.has_failed() => (false, "no answer"),
            (Some(_), ..) => (true, "both are bound"),
            (None, _, Some(_)) if peer.binding.is_some() => (false, "the care-of address is gone"),
            (None, Some(_), _) => (false, "it has no binding of ours"),
            (None, ..) => (false, "it has no binding here"),
        };
        self.set_direct(now, home_address, direct, reason);
        let Some(peer) = self.peers.get(&home_address) else { return };
        let due = self.due_of(now, peer);
        if let Some(peer) = self.peers.get_mut(&home_address) {
            peer.due = due;
        }
    }

    fn set_direct(&mut self, now: Time, home_address: Ipv6Addr, direct: bool, reason: &'static str) {
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        let before = std::mem::replace(&mut peer.direct, direct);
        if before == direct {
            if !direct && peer.reason != reason && !peer.heartbeats.has_failed() {
                peer.reason = reason;
            }
            return;
        }
        (peer.since, peer.reason) = (now, reason);
        let peer = peer.clone();
        self.told(home_address, &peer, direct, reason);
    }

    fn told(&mut self, home_address: Ipv6Addr, peer: &Peer, direct: bool, reason: &str) {
        *(if direct { &mut self.counters.met } else { &mut self.counters.parted }) += 1;
        self.outputs.push_back(Output::Routes);
        self.outputs.push_back(Output::Event(Event::Path {
            prefixes: peer.prefixes(),
            station: home_address.to_string(),
            direct,
            reason: reason.into(),
        }));
    }

    /// Returns when a router is due for review.
    fn due_of(&self, now: Time, peer: &Peer) -> Time {
        let binding = peer
            .binding
            .iter()
            .flat_map(|binding| [binding.until].into_iter().chain(binding.previous.map(|(_, until)| until)));
        let heard = peer.heard.map(|(_, until)| until);
        let registration = peer.registration.as_ref().map(|registration| registration.until);
        let idle = peer.used.map(|used| used + IDLE + Duration::from_millis(1)).filter(|at| *at > now);
        let all = binding.chain(heard).chain(registration).chain(idle);
        let all = all.chain(self.registering_due(now, peer)).chain(self.next_beat(now, peer));
        // A peer without any state is reviewed once more, and then removed.
        all.min().unwrap_or(now + IDLE).max(now + Duration::from_millis(1))
    }

    /// Sends a message from a care-of address directly.
    fn send_straight(&mut self, (local, remote): (Ipv6Addr, Ipv6Addr), message: &DirectRoute) {
        self.outputs.push_back(Output::Straight(message.packet(local, remote, HOP_LIMIT)));
    }

    /// Sends a message from the home address, by the home agents.
    fn send_home(&mut self, destination: Ipv6Addr, message: &DirectRoute) {
        let packet = message.packet(self.config.home_address, destination, HOP_LIMIT);
        self.outputs.push_back(Output::ThroughTunnel(packet));
    }

    /// Checks whether prefixes may belong to another router.
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
        let allowed = |prefix: &Ipv6Net| self.config.networks.iter().any(|network| network.contains(prefix));
        let others = self.peers.iter().filter(|(other, _)| **other != home_address);
        let theirs: Vec<&Ipv6Net> =
            others.filter_map(|(_, peer)| peer.binding.as_ref()).flat_map(|b| &b.prefixes).collect();
        let bad = |prefix: &Ipv6Net| {
            prefix.prefix_len() != LENGTH
                || !is_unicast_routable(prefix.network())
                || !allowed(prefix)
                || own(prefix)
                || theirs.iter().any(|their| touches(their, prefix))
        };
        // The home address becomes a prefix as well.
        let inside_other = self.config.prefixes.iter().any(|own| own.contains(&home_address))
            || theirs.iter().any(|their| their.contains(&home_address));
        if prefixes.is_empty() || prefixes.iter().any(bad) || inside_other {
            return Err(DirectDrop::BadPrefix);
        }
        Ok(())
    }
}
