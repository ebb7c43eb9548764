//! Direct routes: two mobile routers tunnel straight to each other's care-of address, without the home agents
//! between.
//!
//! RFC 3963 leaves route optimisation out, and what RFC 4889 lists has no standard. This is the correspondent
//! registration of RFC 6275 (5.2, 9.5, 11.6, 11.7.2) between two mobile routers ("correspondent routers" in
//! RFC 4888), with prefixes tested as C. Ng and J. Hirano propose (*Extending Return Routability Procedure
//! for Network Prefix*, draft-ng-nemo-rrnp, RFC 4889 5.2). The messages have a format of carnet's own
//! (`carnet_wire::mobility::direct_route`):
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
//! * **What B believes.** That the home address and every prefix are A's, for A's home agent delivered the
//!   tokens to A alone (to an address of the prefix that nobody could foresee); and that A is at its care-of
//!   address, for it got a token there. The key of the Binding Update is made of all of them (5.2.6), so
//!   without one of them there is no binding. B keeps nothing before that (`tokens`).
//! * **Both ways.** B then registers with A likewise. A route is *direct* when each has the other's binding:
//!   only then do packets go straight, from the registered care-of address to the bound one. What arrives
//!   straight has to come from the bound address with an inner source in the proven prefixes; the data path
//!   sees to that ([`Direct::tunnels`]).
//! * **Whom to ask.** Where packets go to an address in one of [`DirectConfig::networks`], that address is
//!   asked; the mobile router there takes the question out of its tunnel. Whoever is no such router lets
//!   three questions pass, and is left alone for a while, longer each time.
//! * **For how long.** `MAX_RR_BINDING_LIFETIME` (420 s, RFC 6275 12), renewed every 180 s while packets go
//!   one way or the other, so that the tokens are good at any time and a handover takes no more than a
//!   Care-of Test and a Binding Update.
//! * **Handover.** With another care-of address the new one is tested and registered while the old one stays
//!   in use as long as its link is up; the other end takes packets from both. If the old one is gone, packets
//!   go by way of the home agent until the new one is acknowledged.
//! * **The end.** *Heartbeats* (RFC 5847 in purpose) go straight, four a second where packets go and one a
//!   second else. Four in a row without answer, an ICMPv6 error about a packet of the tunnel, or an answer
//!   that there is no binding: from then on packets take the tunnel to the home agent, which is there all the
//!   time. A path that is cut in silence is noticed 450 ms plus twice max(200 ms, 2 RTT + 50 ms) later at
//!   most: below a second on short paths. Who ends says so (lifetime 0).
//!
//! **Who is told where a router is.** Prefix Tests carry the care-of address, which so goes to addresses in
//! [`DirectConfig::networks`] alone; a Home Test Init does to who is registered with, and bears the key.
//! Other questions and Home Tests, which go to anybody, have none, and a Home Test of our prefixes only the
//! one that was asked at. So the first who is told is whoever answers from an address in the networks; nobody
//! can prove anything before one of the two has said something.
//!
//! **Bounds.** [`MAX_PEERS`] routers, [`MAX_CANDIDATES`] networks that are asked, one new question a second
//! after a burst of four. Where places are taken, the party with the most makes room (`places`); a binding
//! that is sent packets is never put out by a stranger. Answers are limited for strangers as a whole, and for
//! each router that is bound for what bears its key; and so are Binding Updates whose key is computed in
//! vain.
//!
//! **What it does not protect against.** As with return routability in general (RFC 6275 15.4.3): who reads
//! the way between the home agents and a router, where tunnels are not encrypted, and a care-of path as well,
//! can take the route over, for as long as a binding lasts. Whoever answers for a prefix on board of a router
//! that does no direct routes does not get that router's home token, but may bind the prefix under a home
//! address of its own. Each end learns the other's care-of address (RFC 4882).
//!
//! Left out: tunnels inside IPv4 and UDP (a router without an IPv6 care-of address stays with its home
//! agent), several direct paths at a time (policies are the home agent's tunnel's), mobile nodes and ordinary
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

/// Routers with which there are, or are to be, direct routes.
pub const MAX_PEERS: usize = 32;
/// Networks that are asked after a router.
pub const MAX_CANDIDATES: usize = 128;
/// `MAX_RR_BINDING_LIFETIME` (RFC 6275 12).
pub const MAX_RR_BINDING_LIFETIME: Duration = Duration::from_secs(420);
/// The length of the prefixes that are taken. Home agents give them out whole, so that one test proves one;
/// of a shorter prefix somebody may have a part, who gets some of the tests and asks until he has had them
/// all. Whoever had longer ones could take all places with a single network.
pub const LENGTH: u8 = 64;
/// Our care-of addresses that are used.
const MAX_CARE_OF_ADDRESSES: usize = 4;
/// After so long without a packet a route is not renewed any more.
const IDLE: Duration = Duration::from_secs(120);
/// A packet to a network is looked at so often.
const USE_INTERVAL: Duration = Duration::from_millis(100);

/// What the router shall do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectConfig {
    /// The mobile network prefixes of this router.
    pub prefixes: Vec<Ipv6Net>,
    /// Its home address.
    pub home_address: Ipv6Addr,
    /// Its home prefix.
    pub home_prefix: Ipv6Net,
    /// Networks in which mobile networks are that direct routes shall lead to.
    pub networks: Vec<Ipv6Net>,
}

/// What shall be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// An IPv6 packet of the home address, through the tunnel to the home agent.
    ThroughTunnel(Vec<u8>),
    /// An IPv6 packet of a care-of address.
    Straight(Vec<u8>),
    /// [`Direct::tunnels`] has changed.
    Routes,
    /// Something that an operator may want to know.
    Event(Event),
}

/// A pair of ends between which packets of another router are taken or also sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    /// Its home address.
    pub home_address: Ipv6Addr,
    /// Our care-of address.
    pub local: Ipv6Addr,
    /// Its care-of address.
    pub remote: Ipv6Addr,
    /// What it has proven to be its: the home address as a /128, and the prefixes.
    pub inner: Vec<Ipv6Net>,
    /// Whether packets to these go here.
    pub transmit: bool,
}

/// A router and the way to it, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Its home address.
    pub home_address: Ipv6Addr,
    /// Its prefixes; proven where there is a binding, as [`Self::proven`] says.
    pub prefixes: Vec<Ipv6Net>,
    /// It has a binding here.
    pub proven: bool,
    /// Our care-of address that it knows.
    pub local: Option<Ipv6Addr>,
    /// Its care-of address.
    pub remote: Option<Ipv6Addr>,
    /// Packets go straight.
    pub direct: bool,
    /// Why.
    pub reason: &'static str,
    /// Since when.
    pub since: Time,
    /// Round trip of the heartbeats.
    pub rtt: Option<Duration>,
}

/// How often what happened.
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
    /// Times that packets began to go straight to a router.
    pub met: u64,
    /// Times that they ceased to.
    pub parted: u64,
    dropped: BTreeMap<DirectDrop, u64>,
}

impl Counters {
    /// How often something was refused for `reason`.
    pub fn dropped(&self, reason: DirectDrop) -> u64 {
        self.dropped.get(&reason).copied().unwrap_or_default()
    }
}

/// The machine. After each `handle_*` call [`Direct::poll_output`] is called until it returns `None`.
#[derive(Debug)]
pub struct Direct {
    config: DirectConfig,
    /// Our care-of addresses, the preferred one first.
    care_of_addresses: Vec<Ipv6Addr>,
    /// There is a tunnel to the home agent, and the prefixes are ours.
    has_tunnel: bool,
    secret: Secret,
    peers: BTreeMap<Ipv6Addr, Box<Peer>>,
    /// Of routers that had to make room.
    memory: Memory,
    /// By the first half of the address.
    candidates: BTreeMap<u64, Box<Candidate>>,
    /// The network that a packet went to last, and when.
    latest: Option<(u64, Time)>,
    questions: RateLimiter,
    /// Answers to strangers.
    answers: RateLimiter,
    /// Binding Updates of strangers that have the wrong key.
    forgeries: RateLimiter,
    outputs: VecDeque<Output>,
    counters: Counters,
    rng: Rng,
}

fn half(address: Ipv6Addr) -> u64 {
    (u128::from(address) >> 64) as u64
}

impl Direct {
    /// A router that knows nobody.
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

    /// What it does.
    pub fn config(&self) -> &DirectConfig {
        &self.config
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The next thing to be done.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let candidates = self.candidates.values().filter_map(|candidate| self.due(candidate));
        self.peers.values().map(|peer| peer.due).chain(candidates).min()
    }

    /// All pairs of ends, in a steady order.
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

    /// The routers that are known, and the ways to them.
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

    /// Our care-of addresses, the preferred one first, and whether there is a tunnel to the home agent with
    /// prefixes that it has not refused.
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
            // As long as anything goes straight, the others shall not find out by silence.
            self.end_all(now, "the care-of address is gone");
        }
        self.care_of_addresses = addresses;
        for peer in self.peers.values_mut() {
            peer.due = now;
            if moved {
                // Whatever failed before did so from somewhere else.
                (peer.choice, peer.hold, peer.failures) = (0, now, 0);
                peer.exchange.take_if(|exchange| !matches!(exchange.step, peer::Step::Home(_)));
            }
        }
        if moved {
            self.outputs.push_back(Output::Routes);
        }
        self.handle_timeout(now);
    }

    /// A packet of the mobile network went to this address, by whatever way. Cheap when called for every
    /// packet.
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
        // What the two routers say to each other is no use.
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
            cookie: self.rng.u64(),
            tests: peer::HomeTests::default(),
            retransmission: registering::home_tests(),
            failures: 0,
            used: now,
            next: now,
        };
        self.candidates.insert(network, Box::new(candidate));
    }

    /// Packets went into the direct tunnel between these ends: a fast path saw it.
    pub fn handle_tunnel_used(&mut self, now: Time, remote: Ipv6Addr) {
        let bound = |peer: &&mut Box<Peer>| {
            peer.binding.as_ref().is_some_and(|binding| binding.care_of_address == remote)
        };
        if let Some(peer) = self.peers.values_mut().find(bound) {
            peer.used = Some(now);
        }
    }

    /// Serves what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        let due: Vec<Ipv6Addr> =
            self.peers.iter().filter(|(_, peer)| peer.due <= now).map(|(home, _)| *home).collect();
        for home_address in due {
            self.look(now, home_address);
        }
        self.ask_candidates(now);
    }

    /// Takes a message that came out of the tunnel to the home agent, addressed to the home address or into
    /// the mobile network. Whether it was one for us and is not to go on.
    ///
    /// # Errors
    /// Why it had no effect; counted.
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

    /// Takes a message that came straight, from one care-of address to another.
    ///
    /// # Errors
    /// Why it had no effect; counted.
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

    /// A message that does not parse.
    pub fn handle_malformed(&mut self) {
        let _counted = self.count(Err(DirectDrop::Malformed));
    }

    /// An ICMPv6 error came about a packet of the tunnel between these ends, and quotes what only we can have
    /// sent.
    pub fn handle_unreachable(&mut self, now: Time, local: Ipv6Addr, remote: Ipv6Addr) {
        let concerned =
            self.peers.iter().find(|(_, peer)| peer.direct && self.path_of(peer) == Some((local, remote)));
        if let Some(home_address) = concerned.map(|(home_address, _)| *home_address) {
            self.fail(now, home_address, "the network reports it unreachable");
        }
    }

    /// Ends all routes, and tells the others.
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

    /// The ends between which packets may go straight: each has the other's binding.
    fn path_of(&self, peer: &Peer) -> Option<(Ipv6Addr, Ipv6Addr)> {
        let (binding, registration) = (peer.binding.as_ref()?, peer.registration.as_ref()?);
        let local = registration.care_of_address;
        self.care_of_addresses.contains(&local).then_some((local, binding.care_of_address))
    }

    /// Looks at everything about one router that time or an input may have changed.
    fn look(&mut self, now: Time, home_address: Ipv6Addr) {
        self.expire(now, home_address);
        if self.peers.contains_key(&home_address) {
            self.beat(now, home_address);
            self.register(now, home_address);
            self.review(now, home_address);
        }
    }

    /// Forgets what has run out.
    fn expire(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(peer) = self.peers.get(&home_address) else { return };
        if peer.binding.as_ref().is_some_and(|binding| binding.until <= now) {
            // What is told of it names its prefixes.
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

    /// Whether packets go straight follows from what is known; and when to look again.
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

    /// When a router has to be looked at again.
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
        // A peer without anything is looked at once more, and forgotten.
        all.min().unwrap_or(now + IDLE).max(now + Duration::from_millis(1))
    }

    /// A packet of our own, straight.
    fn send_straight(&mut self, (local, remote): (Ipv6Addr, Ipv6Addr), message: &DirectRoute) {
        self.outputs.push_back(Output::Straight(message.packet(local, remote, HOP_LIMIT)));
    }

    /// A packet of the home address, by way of the home agents.
    fn send_home(&mut self, destination: Ipv6Addr, message: &DirectRoute) {
        let packet = message.packet(self.config.home_address, destination, HOP_LIMIT);
        self.outputs.push_back(Output::ThroughTunnel(packet));
    }

    /// Whether prefixes may be another router's.
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
