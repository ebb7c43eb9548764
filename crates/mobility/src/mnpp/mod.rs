//! Mobile Network Prefix Provisioning: vehicles in radio range reach each other's mobile networks without the
//! home agents (Lee, Tsukada, Ernst, draft-jhlee-mext-mnpp), and what decides when they do.
//!
//! The draft is not to be had, and no format of it was published. What is here is its idea with published
//! parts:
//!
//! * **Announcing.** A Router Advertisement to all nodes on the link with a Route Information option (RFC
//!   4191 2.3) for each mobile network prefix, router lifetime 0 and no prefix of the link: nobody gets a
//!   default router by it. It is sent when a neighbour appears, not more than once a second, and every
//!   [`MnppConfig::interval`] while there are any; over GeoNetworking it takes the place of a beacon. Nobody
//!   near: nothing is sent. A router that stops says lifetime 0.
//! * **Authorization**, [`Authorization::HomeAgent`]. Anybody can announce anything. So a prefix is believed
//!   after a return routability test in the manner of RFC 6275 5.2.5 and VARON (Bernardos and others, 2007):
//!   a *Prefix Test Init* with a cookie and the claimant's link-layer address goes to a random address of the
//!   prefix by way of the home agents. The owner's home agent delivers it to nobody but the router that has
//!   registered the prefix, over that one's tunnel; if it is the claimant, it returns the cookie straight
//!   over the link (*Prefix Test*). Whoever claims a prefix that is another's never sees the cookie, and its
//!   owner is told. A proof is good for [`PROOF_LIFETIME`], so that vehicles that have met before need no
//!   home agent to meet again.
//! * **Reachability.** A way is used only while it is seen to work in both directions: *Probes* and *Answers*
//!   go straight, first one when the prefix is proven, then four a second where data go and one a second
//!   else. (RFC 4861's reachability detection is the model; over GeoNetworking the kernel's solicitations are
//!   answered on the spot and prove nothing.)
//! * **Parting.** The way is given up *before* the radio ends where positions tell ([`Sight::leaves`]), at
//!   once when the link reports a frame as undeliverable, and else when three probes in a row stay without
//!   answer: within 650 ms where data go. Packets that still wait for the neighbour then take the tunnel
//!   ([`Output::Withdrawn`]).
//!
//! **What this protects against, and what not.** Off-path strangers and other vehicles cannot have a prefix
//! that is not registered for them. As with return routability in general, somebody who reads the way between
//! the home agents and a vehicle (an access network, where tunnels are not encrypted) *and* is in radio range
//! can answer in its place. Nor is the link-layer address proven: GeoNetworking without security (TS 103 097)
//! believes what frames say, and so a station that pretends to be a proven neighbour's address gets that
//! one's packets, as on any Ethernet. Packets that go straight are not encrypted; nor are those in the
//! tunnel. With [`Authorization::Anybody`] everything is believed that is not refused by [`MnppDrop`]: for
//! test benches.
//!
//! **What a proof promises.** That the claimant got what was sent to addresses of the prefix that nobody
//! could foresee. Home agents give out whole networks, so for a /64 or a longer prefix one address is enough.
//! Of a shorter prefix somebody may have a part, say a /64 out of a /48: so there eight addresses in a row
//! have to lead to the claimant. Whoever has a sixteenth of the prefix or less gets through once in 2^32
//! times; whoever has half of it once in 256, and sooner or later does. Nothing but the home agent's own word
//! would be better, and it has no message for that. A prefix that is proven for its owner and is part of the
//! other has the better route all the same. This is why [`MnppConfig::shortest`] is 64 unless an operator
//! says otherwise, who knows that shorter ones are given out whole.
//!
//! **Bounds.** [`MAX_PEERS`] stations, [`MAX_CLAIMS`] prefixes each, [`MAX_PROOFS`] proofs; nobody is
//! answered who is not near. Of a full table goes who was asked about in vain, else the newest that was asked
//! about and has not answered within a second: a flood of made-up stations puts out itself and neither those
//! with a proof nor those before it, and leaves everybody whom it lets in the time to answer. Tests are
//! limited in rate; the station that has waited longest for one is next. Answers are limited for each station
//! and for each kind, see `allowance`. A prefix is refused that is no unicast prefix, shorter than
//! [`MnppConfig::shortest`] (a default route most of all), or touches what is ours: mobile network prefixes,
//! home address, home agent, and any prefix that contains the home prefix.
//!
//! Left out: the data path `kernel`, where tunnelled packets do not come by here, proves nothing and stays
//! with the tunnel; signatures and certificates; more than one way at a time to one prefix.

mod allowance;
mod drop_reason;
mod peer;
mod reachability;

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Rng, Time};
use carnet_wire::mobility::{PrefixTest, PrefixTestKind};
use carnet_wire::nd::{self, NdOption, RouteInformation, RouterAdvertisement};
use carnet_wire::{icmpv6, ipv6};
use ipnet::Ipv6Net;

use crate::{Event, HOP_LIMIT};
use allowance::Allowance;
pub use drop_reason::MnppDrop;
use peer::{Peer, Standing};

/// A link-layer address.
pub type LinkAddress = [u8; 6];

/// Stations whose prefixes are kept.
pub const MAX_PEERS: usize = 64;
/// Prefixes of one station.
pub const MAX_CLAIMS: usize = 8;
/// Proofs that are kept.
pub const MAX_PROOFS: usize = 256;
/// How long a proof is good.
pub const PROOF_LIFETIME: Duration = Duration::from_secs(600);
/// A proof that ends sooner is renewed while its station is near.
const PROOF_RENEWAL: Duration = Duration::from_secs(200);
/// An announcement is good for so many intervals.
const LIFETIME_INTERVALS: u32 = 3;
/// Nothing is believed for longer, whatever an announcement says.
const MAX_LIFETIME: Duration = Duration::from_secs(600);
/// Between two announcements, and the most by which one waits for others that have the same reason.
const MIN_SPACING: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_millis(100);
/// Between strangers that are let into a full table, as often as somebody is asked about.
const ADMISSION_INTERVAL: Duration = Duration::from_millis(100);
/// So long a stranger keeps its place for the answer to come.
const FIRST_ANSWER: Duration = Duration::from_secs(1);
/// Between warnings about somebody who claims what is ours.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Whose word is taken for a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Authorization {
    /// That of the prefix owner's home agent, by a return routability test.
    #[default]
    HomeAgent,
    /// Anybody's.
    Anybody,
}

/// What the router shall do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MnppConfig {
    /// The mobile network prefixes of this router.
    pub prefixes: Vec<Ipv6Net>,
    /// Its home address.
    pub home_address: Ipv6Addr,
    /// Its home agent.
    pub home_agent: Ipv6Addr,
    /// Its home prefix.
    pub home_prefix: Ipv6Net,
    /// Whose word is taken.
    pub authorization: Authorization,
    /// The least length of a prefix that is taken.
    pub shortest: u8,
    /// How many hops announcements go; 1 for neighbours alone.
    pub hops: u8,
    /// The longest time between announcements while there are neighbours.
    pub interval: Duration,
}

/// What is seen of a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sight {
    /// When it was heard last.
    pub heard: Time,
    /// It is heard straight.
    pub near: bool,
    /// It is well inside the radio's range, and will be for a while.
    pub stays: bool,
    /// It is about to leave the radio's range.
    pub leaves: bool,
}

/// Who is around.
pub trait Surroundings {
    /// What is seen of a station; `None` for one that is not known.
    fn sight(&self, now: Time, station: LinkAddress) -> Option<Sight>;
    /// The link-local address that a station has.
    fn link_local(&self, station: LinkAddress) -> Ipv6Addr;
    /// Whether there is anybody in radio range.
    fn has_neighbours(&self) -> bool;
}

/// `02:00:00:00:00:0a`
fn in_words(station: LinkAddress) -> String {
    station.map(|octet| format!("{octet:02x}")).join(":")
}

/// What shall be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// An IPv6 packet to all stations around.
    Announce(Vec<u8>),
    /// An IPv6 packet straight to a station.
    Straight(LinkAddress, Vec<u8>),
    /// An IPv6 packet of the home address, through the tunnel.
    ThroughTunnel(Vec<u8>),
    /// [`Mnpp::routes`] has changed.
    Routes,
    /// A station is no longer reached straight: what waits for it goes another way.
    Withdrawn(LinkAddress),
    /// Something that an operator may want to know.
    Event(Event),
}

/// Which way the packets for a prefix go, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The prefix.
    pub prefix: Ipv6Net,
    /// The station that announces it.
    pub station: LinkAddress,
    /// Its link-local address.
    pub link_local: Ipv6Addr,
    /// Packets go straight.
    pub direct: bool,
    /// Why.
    pub reason: &'static str,
    /// Since when.
    pub since: Time,
    /// Round trip of the probes.
    pub rtt: Option<Duration>,
}

/// How often what happened.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// Announcements sent.
    pub announced: u64,
    /// Announcements received.
    pub received: u64,
    /// Prefix tests begun, tries included.
    pub tests: u64,
    /// Prefix tests of others that were answered.
    pub tests_answered: u64,
    /// Probes sent.
    pub probes: u64,
    /// Times that packets began to go straight to a station.
    pub met: u64,
    /// Times that they ceased to.
    pub parted: u64,
    dropped: BTreeMap<MnppDrop, u64>,
}

impl Counters {
    /// How often something was refused for `reason`.
    pub fn dropped(&self, reason: MnppDrop) -> u64 {
        self.dropped.get(&reason).copied().unwrap_or_default()
    }
}

/// The machine. After each `handle_*` call [`Mnpp::poll_output`] is called until it returns `None`.
#[derive(Debug)]
pub struct Mnpp {
    config: MnppConfig,
    /// Our own addresses on the link, once known.
    station: Option<(LinkAddress, Ipv6Addr)>,
    /// Whether the prefixes are ours to announce.
    valid: bool,
    /// Whether the home agents can be asked.
    has_tunnel: bool,
    peers: BTreeMap<LinkAddress, Peer>,
    /// Until when it is proven that a station has a prefix.
    proofs: BTreeMap<(Ipv6Net, LinkAddress), Time>,
    announce_at: Option<Time>,
    announced_at: Option<Time>,
    tests: RateLimiter,
    /// Answers to tests that came from where their asker says it is at home, to other tests, and to probes.
    vouching: Allowance,
    vouching_others: Allowance,
    answers: Allowance,
    /// Strangers that take a place in a full table.
    admissions: RateLimiter,
    warnings: RateLimiter,
    /// The routes of the last [`Output::Routes`].
    told: BTreeMap<Ipv6Net, Ipv6Addr>,
    outputs: VecDeque<Output>,
    counters: Counters,
    rng: Rng,
}

impl Mnpp {
    /// A router that knows nobody.
    pub fn new(config: MnppConfig, rng: Rng) -> Mnpp {
        Mnpp {
            config,
            station: None,
            valid: true,
            has_tunnel: true,
            peers: BTreeMap::new(),
            proofs: BTreeMap::new(),
            announce_at: None,
            announced_at: None,
            tests: RateLimiter::new(16, Duration::from_millis(100)),
            vouching: Allowance::new(),
            vouching_others: Allowance::new(),
            answers: Allowance::new(),
            admissions: RateLimiter::new(8, ADMISSION_INTERVAL),
            warnings: RateLimiter::new(1, WARNING_INTERVAL),
            told: BTreeMap::new(),
            outputs: VecDeque::new(),
            counters: Counters::default(),
            rng,
        }
    }

    /// What it does.
    pub fn config(&self) -> &MnppConfig {
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
        self.peers.values().map(|peer| peer.due).chain(self.announce_at).min()
    }

    /// Our own addresses on the link. Others than before are another station's: everybody is met anew.
    pub fn handle_station(&mut self, link_address: LinkAddress, link_local: Ipv6Addr) {
        if self.station.replace((link_address, link_local)).is_some_and(|old| old.0 != link_address) {
            self.forget();
        }
    }

    /// Whether the prefixes are ours to announce: the home agent has not refused them.
    pub fn set_valid(&mut self, now: Time, valid: bool) {
        if std::mem::replace(&mut self.valid, valid) != valid {
            if valid {
                self.announce_soon(now);
            } else {
                self.announce(now, Duration::ZERO);
                self.announce_at = None;
            }
        }
    }

    /// Whether there is a tunnel. Without one nobody is asked, and everybody at once when it is there again.
    pub fn handle_tunnel(&mut self, now: Time, is_there: bool) {
        if !std::mem::replace(&mut self.has_tunnel, is_there) && is_there {
            self.peers.values_mut().for_each(|peer| peer.due = peer.due.min(now));
        }
    }

    /// A station came into range.
    pub fn handle_neighbour(&mut self, now: Time) {
        self.announce_soon(now);
    }

    /// Serves what is due.
    pub fn handle_timeout(&mut self, now: Time, around: &impl Surroundings) {
        if self.announce_at.is_some_and(|at| at <= now) {
            self.announce_at = None;
            if around.has_neighbours() {
                self.announce(now, self.config.interval * LIFETIME_INTERVALS);
                // A quarter of it is random, so that stations do not fall into step.
                let least = self.config.interval.mul_f64(0.75);
                self.announce_at = Some(now + self.rng.duration(least, self.config.interval));
            }
        }
        let due = self.peers.iter().filter(|(_, peer)| peer.due <= now);
        let mut due: Vec<_> = due.map(|(station, peer)| (peer.served, *station)).collect();
        due.sort();
        for (_, station) in due {
            self.look(now, station, around);
        }
    }

    /// Says farewell: the prefixes are no longer to be reached here.
    pub fn handle_shutdown(&mut self, now: Time) {
        if self.announced_at.is_some() {
            self.announce(now, Duration::ZERO);
        }
        self.announce_at = None;
        self.valid = false;
    }

    fn announce_soon(&mut self, now: Time) {
        let earliest = self.announced_at.map_or(now, |last| last + MIN_SPACING).max(now);
        let due = earliest + self.rng.duration(Duration::ZERO, MAX_DELAY);
        self.announce_at = Some(self.announce_at.map_or(due, |planned| planned.min(due)));
    }

    fn announce(&mut self, now: Time, lifetime: Duration) {
        let Some((link_address, link_local)) = self.station else { return };
        if !lifetime.is_zero() && !self.valid {
            return;
        }
        let lifetime = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX);
        let mut options = vec![NdOption::SourceLinkAddress(link_address)];
        options.extend(self.config.prefixes.iter().take(MAX_CLAIMS).map(|prefix| {
            NdOption::RouteInformation(RouteInformation {
                prefix: prefix.network(),
                prefix_length: prefix.prefix_len(),
                preference: nd::RoutePreference::Medium,
                lifetime,
            })
        }));
        let message = nd::router_advertisement(&nd::RouterAdvertisementRepr {
            options: &options,
            ..nd::RouterAdvertisementRepr::default()
        });
        let packet = icmpv6::packet(link_local, nd::ALL_NODES, nd::HOP_LIMIT, message);
        self.announced_at = Some(now);
        self.counters.announced += 1;
        self.outputs.push_back(Output::Announce(packet));
    }

    /// A Router Advertisement of the station `from`, whose link-local address is `source`. The caller has
    /// checked what RFC 4861 6.1.2 asks for.
    pub fn handle_advertisement(
        &mut self,
        now: Time,
        from: LinkAddress,
        source: Ipv6Addr,
        advertisement: &RouterAdvertisement<'_>,
        around: &impl Surroundings,
    ) {
        let mut routes = advertisement.options().filter_map(|option| match option {
            NdOption::RouteInformation(route) => Some(route),
            _ => None,
        });
        let mut any = false;
        for route in routes.by_ref().take(MAX_CLAIMS) {
            any = true;
            if let Err(reason) = self.claim(now, from, source, &route) {
                self.count(reason);
            }
        }
        if routes.next().is_some() {
            self.count(MnppDrop::TooMany);
        }
        if any {
            self.counters.received += 1;
            // Whoever it is has not heard us perhaps.
            if !self.peers.get(&from).is_some_and(|peer| peer.greeted) {
                if let Some(peer) = self.peers.get_mut(&from) {
                    peer.greeted = true;
                }
                self.announce_soon(now);
            }
            self.look(now, from, around);
        }
    }

    fn claim(
        &mut self,
        now: Time,
        from: LinkAddress,
        source: Ipv6Addr,
        route: &RouteInformation,
    ) -> Result<(), MnppDrop> {
        let prefix = Ipv6Net::new(route.prefix, route.prefix_length).map_err(|_| MnppDrop::BadPrefix)?;
        self.check(now, from, prefix)?;
        let lifetime = Duration::from_secs(route.lifetime.into()).min(MAX_LIFETIME);
        if lifetime.is_zero() {
            let claims = self.peers.get_mut(&from).into_iter().flat_map(|peer| &mut peer.claims);
            claims.filter(|claim| claim.prefix == prefix).for_each(|claim| claim.expires = now);
            return Ok(());
        }
        if !self.peers.contains_key(&from) {
            self.make_room(now)?;
        }
        let peer = self.peers.entry(from).or_insert_with(|| Peer::new(now, source));
        peer.link_local = source;
        peer.claim(now, prefix, now + lifetime)
    }

    /// What nobody may claim.
    fn check(&mut self, now: Time, from: LinkAddress, prefix: Ipv6Net) -> Result<(), MnppDrop> {
        let config = &self.config;
        if !ipv6::is_unicast_routable(prefix.network()) {
            return Err(MnppDrop::BadPrefix);
        }
        if prefix.prefix_len() < config.shortest.max(1) {
            return Err(MnppDrop::TooShort);
        }
        let overlaps = |own: &Ipv6Net| own.contains(&prefix) || prefix.contains(own);
        let ours = config.prefixes.iter().any(overlaps)
            || prefix.contains(&config.home_address)
            || prefix.contains(&config.home_agent)
            || prefix.contains(&config.home_prefix);
        if ours {
            self.warn(now, from, prefix);
            return Err(MnppDrop::OwnPrefix);
        }
        Ok(())
    }

    fn warn(&mut self, now: Time, from: LinkAddress, prefix: Ipv6Net) {
        if self.warnings.allow(now) {
            let message = format!("the station {} claims {prefix}, which is ours", in_words(from));
            self.outputs.push_back(Output::Event(Event::Warning { message }));
        }
    }

    /// Of a full table a station goes that has proven nothing although it has been asked about: in vain for
    /// long, else the newest whose answer is not on its way. Only so many come in by that as can be asked
    /// about.
    fn make_room(&mut self, now: Time) -> Result<(), MnppDrop> {
        if self.peers.len() < MAX_PEERS {
            return Ok(());
        }
        let strangers = self.peers.iter().filter(|(station, peer)| !self.is_known(now, **station, peer));
        let waited =
            strangers.filter(|(_, peer)| peer.asked && now.saturating_since(peer.served) >= FIRST_ANSWER);
        let least = waited.max_by_key(|(_, peer)| (peer.is_in_vain(), peer.since));
        let least = *least.ok_or(MnppDrop::TooMany)?.0;
        if !self.admissions.allow(now) {
            return Err(MnppDrop::TooMany);
        }
        self.peers.remove(&least);
        Ok(())
    }

    /// Whether a station is reached straight, or has proven something.
    fn is_known(&self, now: Time, station: LinkAddress, peer: &Peer) -> bool {
        let is_proven = |prefix| self.proofs.get(&(prefix, station)).is_some_and(|until| *until > now);
        peer.is_direct() || peer.claims.iter().any(|claim| is_proven(claim.prefix))
    }

    /// A message that came straight from the station `from`.
    ///
    /// # Errors
    /// Why it had no effect; it is counted.
    pub fn handle_straight(
        &mut self,
        now: Time,
        from: LinkAddress,
        source: Ipv6Addr,
        test: &PrefixTest,
        around: &impl Surroundings,
    ) -> Result<(), MnppDrop> {
        let result = self.straight(now, from, source, test, around);
        if let Err(reason) = result {
            self.count(reason);
        }
        result
    }

    fn straight(
        &mut self,
        now: Time,
        from: LinkAddress,
        source: Ipv6Addr,
        test: &PrefixTest,
        around: &impl Surroundings,
    ) -> Result<(), MnppDrop> {
        let Some((own, _)) = self.station else { return Err(MnppDrop::NotForUs) };
        match test.kind {
            PrefixTestKind::Init => Err(MnppDrop::NotForUs),
            PrefixTestKind::Probe if test.responder == own && test.asker == from => {
                let answer = PrefixTest { kind: PrefixTestKind::Answer, ..*test };
                self.answer(now, from, source, answer, true, around)
            }
            PrefixTestKind::Test if test.responder == from && test.asker == own => {
                let prefix = Ipv6Net::new(test.prefix, test.prefix_length);
                let prefix = prefix.map_err(|_| MnppDrop::BadPrefix)?;
                let peer = self.peers.get_mut(&from).ok_or(MnppDrop::Unasked)?;
                if peer.passed(now, prefix, test.cookie)? {
                    self.keep_proof(now, prefix, from);
                }
                self.look(now, from, around);
                Ok(())
            }
            PrefixTestKind::Answer if test.responder == from && test.asker == own => {
                let peer = self.peers.get_mut(&from).ok_or(MnppDrop::Unasked)?;
                peer.answered(now, test.cookie)?;
                self.look(now, from, around);
                Ok(())
            }
            _ => Err(MnppDrop::NotForUs),
        }
    }

    /// A Prefix Test Init that came from `source` to an address of a prefix out of the tunnel. False when it
    /// is none of ours. One for a part of an own prefix, or for more than it, is nobody else's to see: a host
    /// on board could answer it.
    pub fn handle_init(
        &mut self,
        now: Time,
        source: Ipv6Addr,
        test: &PrefixTest,
        around: &impl Surroundings,
    ) -> bool {
        let asked = Ipv6Net::new(test.prefix, test.prefix_length).ok();
        let exactly = asked.is_some_and(|asked| self.config.prefixes.contains(&asked));
        let concerns = |asked: Ipv6Net| {
            self.config.prefixes.iter().any(|own| own.contains(&asked) || asked.contains(own))
        };
        let (Some((own, _)), PrefixTestKind::Init, true) =
            (self.station, test.kind, asked.is_some_and(concerns))
        else {
            return false;
        };
        let result = if test.responder == own && exactly {
            let to = around.link_local(test.asker);
            let test = PrefixTest { kind: PrefixTestKind::Test, ..*test };
            let claims = self.peers.get(&test.asker).into_iter().flat_map(|peer| &peer.claims);
            let is_at_home = claims.into_iter().any(|claim| claim.prefix.contains(&source));
            self.answer(now, test.asker, to, test, is_at_home, around)
        } else {
            // Somebody over there says that it has our prefix.
            if let Some(prefix) = asked {
                self.warn(now, test.responder, prefix);
            }
            Err(MnppDrop::OwnPrefix)
        };
        match result {
            Ok(()) => self.counters.tests_answered += 1,
            Err(reason) => self.count(reason),
        }
        true
    }

    /// Answers a station, if it is there. Whoever names another one as the asker, from anywhere, uses up no
    /// share of what that one asks itself (`is_its_own`).
    fn answer(
        &mut self,
        now: Time,
        to: LinkAddress,
        destination: Ipv6Addr,
        test: PrefixTest,
        is_its_own: bool,
        around: &impl Surroundings,
    ) -> Result<(), MnppDrop> {
        let Some((_, link_local)) = self.station else { return Err(MnppDrop::NotForUs) };
        let sight = around.sight(now, to);
        if !sight.is_some_and(|sight| sight.near || self.config.hops > 1) {
            return Err(MnppDrop::Unreachable);
        }
        let is_known = self.peers.get(&to).is_some_and(|peer| self.is_known(now, to, peer));
        let allowance = match test.kind {
            PrefixTestKind::Test if is_its_own => &mut self.vouching,
            PrefixTestKind::Test => &mut self.vouching_others,
            _ => &mut self.answers,
        };
        if !allowance.allow(now, to, is_known) {
            return Err(MnppDrop::RateLimited);
        }
        self.outputs.push_back(Output::Straight(to, test.packet(link_local, destination, nd::HOP_LIMIT)));
        Ok(())
    }

    fn keep_proof(&mut self, now: Time, prefix: Ipv6Net, station: LinkAddress) {
        self.proofs.retain(|(known, by), until| *until > now && (*known != prefix || *by == station));
        if self.proofs.len() >= MAX_PROOFS
            && let Some(oldest) = self.proofs.iter().min_by_key(|(_, until)| **until).map(|(key, _)| *key)
        {
            self.proofs.remove(&oldest);
        }
        self.proofs.insert((prefix, station), now + PROOF_LIFETIME);
    }

    /// Until when a station is known to have a prefix.
    fn proof(&self, prefix: Ipv6Net, station: LinkAddress) -> Option<Time> {
        match self.config.authorization {
            Authorization::Anybody => Some(Time::MAX),
            Authorization::HomeAgent => self.proofs.get(&(prefix, station)).copied(),
        }
    }

    /// The host sends packets to a station.
    pub fn handle_use(&mut self, now: Time, station: LinkAddress) {
        if let Some(peer) = self.peers.get_mut(&station) {
            peer.used(now);
        }
    }

    /// Whether a packet that the host sends to a station is rather for the tunnel: the station no longer is
    /// reached straight, and the host's routes have only just changed.
    pub fn diverts(&self, station: LinkAddress, destination: Ipv6Addr) -> bool {
        self.peers.get(&station).is_some_and(|peer| {
            !peer.is_direct() && peer.claims.iter().any(|claim| claim.prefix.contains(&destination))
        })
    }

    /// The prefixes to which packets go straight, and by whom.
    pub fn routes(&self) -> BTreeMap<Ipv6Net, Ipv6Addr> {
        let mut routes: BTreeMap<Ipv6Net, (Time, Ipv6Addr)> = BTreeMap::new();
        for (station, peer) in self.peers.iter().filter(|(_, peer)| peer.is_direct()) {
            for claim in &peer.claims {
                if self.proof(claim.prefix, *station).is_some() {
                    let own = (peer.since, peer.link_local);
                    let first = routes.entry(claim.prefix).or_insert(own);
                    *first = own.min(*first);
                }
            }
        }
        routes.into_iter().map(|(prefix, (_, link_local))| (prefix, link_local)).collect()
    }

    /// All prefixes that are announced around here, and the ways to them.
    pub fn ways(&self) -> Vec<Way> {
        let routes = self.routes();
        let mut ways = Vec::new();
        for (station, peer) in &self.peers {
            for claim in &peer.claims {
                let direct = routes.get(&claim.prefix) == Some(&peer.link_local);
                let proven = self.proof(claim.prefix, *station).is_some();
                ways.push(Way {
                    prefix: claim.prefix,
                    station: *station,
                    link_local: peer.link_local,
                    direct,
                    reason: match peer.standing {
                        _ if !proven => "not authorized by its home agent",
                        Standing::Direct if direct => "reached straight",
                        Standing::Direct => "another station has it",
                        Standing::Away(reason) => reason,
                    },
                    since: peer.since,
                    rtt: peer.rtt(),
                });
            }
        }
        ways
    }

    fn forget(&mut self) {
        let had = !self.routes().is_empty();
        for (station, _) in std::mem::take(&mut self.peers).into_iter().filter(|(_, peer)| peer.is_direct()) {
            self.outputs.push_back(Output::Withdrawn(station));
        }
        if had {
            self.outputs.push_front(Output::Routes);
        }
        self.told.clear();
    }

    /// Routes change with proofs and claims of a station that is met, too.
    pub(super) fn tell_routes(&mut self) {
        let routes = self.routes();
        if routes != self.told {
            if !self.outputs.contains(&Output::Routes) {
                self.outputs.push_back(Output::Routes);
            }
            self.told = routes;
        }
    }

    fn count(&mut self, reason: MnppDrop) {
        *self.counters.dropped.entry(reason).or_default() += 1;
    }

    /// When the next test may be sent, as things are.
    fn test_at(&self, now: Time) -> Option<Time> {
        (self.has_tunnel && self.station.is_some()).then(|| self.tests.ready_at(now))
    }

    /// Asks for a proof, by way of the home agents; nothing where that cannot be done now.
    fn test(&mut self, now: Time, station: LinkAddress, prefix: Ipv6Net) -> Option<u64> {
        let (asker, _) = self.station?;
        if !self.has_tunnel || !self.tests.allow(now) {
            return None;
        }
        let cookie = self.rng.u64();
        let test = PrefixTest {
            kind: PrefixTestKind::Init,
            cookie,
            responder: station,
            asker,
            prefix: prefix.network(),
            prefix_length: prefix.prefix_len(),
        };
        self.counters.tests += 1;
        let host = u128::MAX.checked_shr(prefix.prefix_len().into()).unwrap_or(0);
        let random = u128::from(self.rng.u64()) << 64 | u128::from(self.rng.u64());
        let address = Ipv6Addr::from(u128::from(prefix.network()) | random & host);
        // From the network that we announce: by that the other one knows whose question it is.
        let home = self.config.prefixes.first().map(|own| Ipv6Addr::from(u128::from(own.network()) | 1));
        let packet = test.packet(home.unwrap_or(self.config.home_address), address, HOP_LIMIT);
        self.outputs.push_back(Output::ThroughTunnel(packet));
        Some(cookie)
    }
}
