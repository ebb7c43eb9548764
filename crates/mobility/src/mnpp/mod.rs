//! Mobile Network Prefix Provisioning: vehicles in radio range reach each other's mobile networks without the
//! home agents (Lee, Tsukada, Ernst, draft-jhlee-mext-mnpp). This module also decides when they do.
//!
//! The draft is not available, and no format of it was published. This module implements its idea with
//! published parts:
//!
//! * **Announcing.** A router sends a Router Advertisement to all nodes on the link with a Route Information
//!   option (RFC 4191 2.3) for each mobile network prefix. Router lifetime 0 and no prefix of the link keep
//!   hosts from using it as default router. The router sends it when a neighbour appears, at most once a
//!   second, and every [`MnppConfig::interval`] while it has neighbours; over GeoNetworking it replaces a
//!   beacon. Without neighbours the router sends nothing. A router that stops sends lifetime 0.
//! * **Authorization**, [`Authorization::HomeAgent`]. Every station can announce any prefix. So the router
//!   accepts a prefix only after a return routability test in the manner of RFC 6275 5.2.5 and VARON
//!   (Bernardos and others, 2007). A *Prefix Test Init* with a cookie and the claimant's link-layer address
//!   goes to a random address of the prefix by the home agents. The owner's home agent delivers it only to
//!   the router that has registered the prefix, over that router's tunnel. If that router is the claimant, it
//!   returns the cookie directly over the link (*Prefix Test*). A claimant of another's prefix never sees the
//!   cookie, and the owner learns of the claim. A proof is valid for [`PROOF_LIFETIME`], so that vehicles
//!   that have met before need no home agent to meet again.
//! * **Reachability.** A route is used only while it works in both directions. *Probes* and *Answers* go
//!   directly: a first one when the prefix is proven, then four a second while packets flow, and one a second
//!   otherwise. (RFC 4861's reachability detection is the model; over GeoNetworking the kernel's
//!   solicitations are answered locally and prove nothing.)
//! * **Parting.** The router gives a route up *before* radio contact ends if positions show it
//!   ([`Sight::leaves`]), and at once when the link reports an undeliverable frame. Otherwise it does so when
//!   three probes in a row get no answer: within 650 ms while packets flow. Packets that still wait for the
//!   neighbour then take the tunnel ([`Output::Withdrawn`]).
//!
//! **Protection and its limits.** Off-path strangers and other vehicles cannot get a prefix that is not
//! registered for them. As with return routability in general, an attacker can answer in a vehicle's place if
//! it reads the path between home agents and vehicle (an access network with unencrypted tunnels) *and* is in
//! radio range. The link-layer address is not proven either. GeoNetworking without security (TS 103 097)
//! trusts frames, so a station that uses a proven neighbour's address gets that neighbour's packets, as on
//! any Ethernet. Direct packets are not encrypted; neither are those in the tunnel. With
//! [`Authorization::Anybody`] the router accepts every prefix that [`MnppDrop`] does not refuse: for test
//! benches.
//!
//! **Meaning of a proof.** The claimant received packets to unpredictable addresses of the prefix. Home
//! agents assign whole networks, so one address suffices for a /64 or a longer prefix. Of a shorter prefix an
//! attacker may have a part, say a /64 out of a /48. So eight addresses in a row must lead to the claimant.
//! An attacker with a sixteenth of the prefix or less succeeds once in 2^32 times; one with half of it
//! succeeds once in 256, and sooner or later does. Only the home agent's own statement would be better, and
//! no message exists for it. A proven prefix that is part of the other has the better route all the same.
//! This is why [`MnppConfig::shortest`] is 64 unless an operator sets another value, knowing that shorter
//! prefixes are assigned whole.
//!
//! **Bounds.** [`MAX_PEERS`] stations, [`MAX_CLAIMS`] prefixes each, [`MAX_PROOFS`] proofs; the router
//! answers only stations in range. A full table drops a station that was tested in vain, otherwise the newest
//! one that was tested and has not answered within a second. So a flood of made-up stations removes only its
//! own entries, and neither proven nor older stations; every station with an entry has time to answer. Tests
//! are limited in rate; the station that has waited longest is next. Answers are limited for each station and
//! for each kind, see `allowance`. The router refuses a prefix that is no unicast prefix, is shorter than
//! [`MnppConfig::shortest`] (a default route above all), or overlaps its own addresses: mobile network
//! prefixes, home address, home agent, and any prefix that contains the home prefix.
//!
//! Left out: the data path `kernel`, whose tunnelled packets do not pass this module, proves nothing and uses
//! only the tunnel; signatures and certificates; more than one route at a time to one prefix.

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

/// Most stations in the table.
pub const MAX_PEERS: usize = 64;
/// Most prefixes of one station.
pub const MAX_CLAIMS: usize = 8;
/// Most proofs in the table.
pub const MAX_PROOFS: usize = 256;
/// Time for which a proof is valid.
pub const PROOF_LIFETIME: Duration = Duration::from_secs(600);
/// Remaining lifetime below which a proof is renewed while its station is in range.
const PROOF_RENEWAL: Duration = Duration::from_secs(200);
/// Lifetime of an announcement, in intervals.
const LIFETIME_INTERVALS: u32 = 3;
/// Longest lifetime that the router accepts from an announcement.
const MAX_LIFETIME: Duration = Duration::from_secs(600);
/// Least time between two announcements, and longest delay by which one announcement serves several reasons.
const MIN_SPACING: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_millis(100);
/// Least time between strangers that enter a full table: the interval of tests.
const ADMISSION_INTERVAL: Duration = Duration::from_millis(100);
/// Time for which a stranger keeps its entry while its answer may come.
const FIRST_ANSWER: Duration = Duration::from_secs(1);
/// Least time between warnings about stations that claim this router's prefixes.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Which statement authorizes a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Authorization {
    /// A return routability test through the prefix owner's home agent.
    #[default]
    HomeAgent,
    /// Any announcement.
    Anybody,
}

/// Config of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MnppConfig {
    /// The mobile network prefixes of this router.
    pub prefixes: Vec<Ipv6Net>,
    /// Home address of the router.
    pub home_address: Ipv6Addr,
    /// Home agent of the router.
    pub home_agent: Ipv6Addr,
    /// Home prefix of the router.
    pub home_prefix: Ipv6Net,
    /// Which statement authorizes a prefix.
    pub authorization: Authorization,
    /// Least length of an accepted prefix.
    pub shortest: u8,
    /// Hop limit of announcements; 1 for neighbours alone.
    pub hops: u8,
    /// Longest time between announcements while there are neighbours.
    pub interval: Duration,
}

/// Observation of a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sight {
    /// Time of the last frame from the station.
    pub heard: Time,
    /// Whether the station is heard directly.
    pub near: bool,
    /// Whether the station is well within radio range, and will be for a while.
    pub stays: bool,
    /// Whether the station is about to leave radio range.
    pub leaves: bool,
}

/// Access to the stations in the neighbourhood.
pub trait Surroundings {
    /// Returns the observation of a station; `None` if the station is unknown.
    fn sight(&self, now: Time, station: LinkAddress) -> Option<Sight>;
    /// Returns the link-local address of a station.
    fn link_local(&self, station: LinkAddress) -> Ipv6Addr;
    /// Whether any station is in radio range.
    fn has_neighbours(&self) -> bool;
}

/// Formats a link-layer address: `02:00:00:00:00:0a`.
fn in_words(station: LinkAddress) -> String {
    station.map(|octet| format!("{octet:02x}")).join(":")
}

/// An output of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// An IPv6 packet to all stations in range.
    Announce(Vec<u8>),
    /// An IPv6 packet directly to a station.
    Straight(LinkAddress, Vec<u8>),
    /// An IPv6 packet from the home address, through the tunnel.
    ThroughTunnel(Vec<u8>),
    /// [`Mnpp::routes`] has changed.
    Routes,
    /// A station is no longer reached directly: packets that wait for it take another path.
    Withdrawn(LinkAddress),
    /// An event for the operator.
    Event(Event),
}

/// The route to a prefix, and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The prefix.
    pub prefix: Ipv6Net,
    /// Station that announces the prefix.
    pub station: LinkAddress,
    /// Link-local address of the station.
    pub link_local: Ipv6Addr,
    /// Whether packets go directly.
    pub direct: bool,
    /// Reason of the current state.
    pub reason: &'static str,
    /// Time since when the state holds.
    pub since: Time,
    /// Round trip of the probes.
    pub rtt: Option<Duration>,
}

/// Counts of events.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// Announcements sent.
    pub announced: u64,
    /// Announcements received.
    pub received: u64,
    /// Prefix tests begun, tries included.
    pub tests: u64,
    /// Prefix tests of other stations that this router answered.
    pub tests_answered: u64,
    /// Probes sent.
    pub probes: u64,
    /// Times that packets began to go directly to a station.
    pub met: u64,
    /// Times that packets ceased to go directly to a station.
    pub parted: u64,
    dropped: BTreeMap<MnppDrop, u64>,
}

impl Counters {
    /// Returns how often something was refused for `reason`.
    pub fn dropped(&self, reason: MnppDrop) -> u64 {
        self.dropped.get(&reason).copied().unwrap_or_default()
    }
}

/// The machine. After each `handle_*` call the caller calls [`Mnpp::poll_output`] until it returns `None`.
#[derive(Debug)]
pub struct Mnpp {
    config: MnppConfig,
    /// This station's own addresses on the link, once known.
    station: Option<(LinkAddress, Ipv6Addr)>,
    /// Whether this router may announce its prefixes.
    valid: bool,
    /// Whether the tunnel works, so that tests can be sent.
    has_tunnel: bool,
    peers: BTreeMap<LinkAddress, Peer>,
    /// End of each proof that a station has a prefix.
    proofs: BTreeMap<(Ipv6Net, LinkAddress), Time>,
    announce_at: Option<Time>,
    announced_at: Option<Time>,
    tests: RateLimiter,
    /// Allowances of answers: to tests from the asker's announced network, to other tests, and to probes.
    vouching: Allowance,
    vouching_others: Allowance,
    answers: Allowance,
    /// Rate of strangers that get an entry in a full table.
    admissions: RateLimiter,
    warnings: RateLimiter,
    /// Routes at the last [`Output::Routes`].
    told: BTreeMap<Ipv6Net, Ipv6Addr>,
    outputs: VecDeque<Output>,
    counters: Counters,
    rng: Rng,
}

impl Mnpp {
    /// A machine that knows no station.
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

    /// Returns the configuration.
    pub fn config(&self) -> &MnppConfig {
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
        self.peers.values().map(|peer| peer.due).chain(self.announce_at).min()
    }

    /// Sets this station's own addresses on the link. After a change all contacts begin anew.
    pub fn handle_station(&mut self, link_address: LinkAddress, link_local: Ipv6Addr) {
        if self.station.replace((link_address, link_local)).is_some_and(|old| old.0 != link_address) {
            self.forget();
        }
    }

    /// Sets whether this router may announce its prefixes: the home agent has not refused them.
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

    /// Sets whether there is a tunnel. Without a tunnel the router sends no tests; it sends them at once when
    /// the tunnel is back.
    pub fn handle_tunnel(&mut self, now: Time, is_there: bool) {
        if !std::mem::replace(&mut self.has_tunnel, is_there) && is_there {
            self.peers.values_mut().for_each(|peer| peer.due = peer.due.min(now));
        }
    }

    /// Handles a station that came into range.
    pub fn handle_neighbour(&mut self, now: Time) {
        self.announce_soon(now);
    }

    /// Serves the timers.
    pub fn handle_timeout(&mut self, now: Time, around: &dyn Surroundings) {
        if self.announce_at.is_some_and(|at| at <= now) {
            self.announce_at = None;
            if around.has_neighbours() {
                self.announce(now, self.config.interval * LIFETIME_INTERVALS);
                // A quarter of the interval is random, so that stations do not synchronise.
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

    /// Withdraws the prefixes: announces them with lifetime 0.
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

    /// Handles a Router Advertisement of the station `from`, whose link-local address is `source`. The caller
    /// has made the checks of RFC 4861 6.1.2.
    pub fn handle_advertisement(
        &mut self,
        now: Time,
        from: LinkAddress,
        source: Ipv6Addr,
        advertisement: &RouterAdvertisement<'_>,
        around: &dyn Surroundings,
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
            // This station may not have heard an announcement of this router yet.
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

    /// Refuses prefixes that no other station may claim.
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

    /// Removes a station from a full table that has proven nothing although it was tested: one tested in vain
    /// for long, otherwise the newest whose answer is not on its way. The rate of removals is that of the
    /// tests.
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

    /// Whether a station is reached directly, or has proven a prefix.
    fn is_known(&self, now: Time, station: LinkAddress, peer: &Peer) -> bool {
        let is_proven = |prefix| self.proofs.get(&(prefix, station)).is_some_and(|until| *until > now);
        peer.is_direct() || peer.claims.iter().any(|claim| is_proven(claim.prefix))
    }

    /// Handles a message that came directly from the station `from`.
    ///
    /// # Errors
    /// Returns why the message had no effect, and counts the reason.
    pub fn handle_straight(
        &mut self,
        now: Time,
        from: LinkAddress,
        source: Ipv6Addr,
        test: &PrefixTest,
        around: &dyn Surroundings,
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
        around: &dyn Surroundings,
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

    /// Handles a Prefix Test Init that came out of the tunnel from `source` to an address of a prefix.
    /// Returns false if the prefix is not this router's. A test for a part of an own prefix, or for a prefix
    /// around it, must not reach the mobile network, because a host there could answer it.
    pub fn handle_init(
        &mut self,
        now: Time,
        source: Ipv6Addr,
        test: &PrefixTest,
        around: &dyn Surroundings,
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
            // Another station claims this router's prefix.
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

    /// Answers a station in range. A stranger who names another station as the asker takes nothing of that
    /// station's own allowance (`is_its_own`).
    fn answer(
        &mut self,
        now: Time,
        to: LinkAddress,
        destination: Ipv6Addr,
        test: PrefixTest,
        is_its_own: bool,
        around: &dyn Surroundings,
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

    /// Returns the end of the proof that a station has a prefix.
    fn proof(&self, prefix: Ipv6Net, station: LinkAddress) -> Option<Time> {
        match self.config.authorization {
            Authorization::Anybody => Some(Time::MAX),
            Authorization::HomeAgent => self.proofs.get(&(prefix, station)).copied(),
        }
    }

    /// Handles the use of a station's prefixes: the host sends packets to it.
    pub fn handle_use(&mut self, now: Time, station: LinkAddress) {
        if let Some(peer) = self.peers.get_mut(&station) {
            peer.used(now);
        }
    }

    /// Whether a packet that the host sends to a station must take the tunnel: the station is no longer
    /// reached directly, and the host's routes have only just changed.
    pub fn diverts(&self, station: LinkAddress, destination: Ipv6Addr) -> bool {
        self.peers.get(&station).is_some_and(|peer| {
            !peer.is_direct() && peer.claims.iter().any(|claim| claim.prefix.contains(&destination))
        })
    }

    /// Returns the prefixes to which packets go directly, with the next hop of each.
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

    /// Returns all prefixes that are announced here, with the routes to them.
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

    /// Reports the routes if they have changed; they also change with proofs and claims of a station that is
    /// reached directly.
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

    /// Returns when the next test may be sent.
    fn test_at(&self, now: Time) -> Option<Time> {
        (self.has_tunnel && self.station.is_some()).then(|| self.tests.ready_at(now))
    }

    /// Sends a test by the home agents; returns its cookie, or `None` if no test can be sent now.
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
        // The source is in the announced network, which shows the other router who asks.
        let home = self.config.prefixes.first().map(|own| Ipv6Addr::from(u128::from(own.network()) | 1));
        let packet = test.packet(home.unwrap_or(self.config.home_address), address, HOP_LIMIT);
        self.outputs.push_back(Output::ThroughTunnel(packet));
        Some(cookie)
    }
}
