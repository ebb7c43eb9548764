//! Mobile Network Prefix Provisioning: vehicles in radio range reach each other's mobile networks without
//! their home agents (Lee, Tsukada, Ernst, draft-jhlee-mext-mnpp). The module also decides when packets go
//! directly.
//!
//! The draft is not available, and no format of it was published. This module implements its idea with
//! published parts:
//!
//! * **Announcements.** A router sends a Router Advertisement to all nodes on the link. It contains a Route
//!   Information option (RFC 4191 2.3) for each mobile network prefix. Its router lifetime is 0 and it has no
//!   prefix of the link, so hosts do not use the router as default router. The router sends it when a
//!   neighbour appears, at most once per second, and every [`MnppConfig::announcement_interval`] while it has
//!   neighbours. Over GeoNetworking the announcement replaces a beacon. Without neighbours the router sends
//!   nothing. When it stops, it sends lifetime 0.
//! * **Authorization**, [`Authorization::HomeAgent`]. Any station can announce any prefix. So the router
//!   accepts a prefix only after a return routability test, as in RFC 6275 5.2.5 and in VARON (Bernardos and
//!   others, 2007). It sends a *Prefix Test Init* through the home agents, to a random address of the prefix.
//!   The message contains a cookie and the announcing station's link-layer address. The home agent of that
//!   prefix delivers it only to the router that has registered the prefix. If that router has announced the
//!   prefix, it returns the cookie directly over the link (*Prefix Test*). If another station has announced
//!   it, this station never receives the cookie, and the router with the registration learns of the false
//!   announcement. A proof is valid for [`PREFIX_PROOF_LIFETIME`], so vehicles that meet again need no home
//!   agent.
//! * **Reachability.** The router uses a route only while it works in both directions. *Probes* and *Answers*
//!   go directly: a first probe when the prefix is proven, then four per second while packets flow, otherwise
//!   one per second. (RFC 4861's reachability detection is the model. Over GeoNetworking it would prove
//!   nothing, because the station itself answers the kernel's solicitations.)
//! * **End of contact.** If position vectors predict the end of radio contact
//!   ([`StationObservation::leaves_range`]), the router ends the route *before* it. When the link reports an
//!   undeliverable frame, the router ends the route at once. Otherwise it ends the route when three probes in
//!   a row get no answer: within 650 ms while packets flow. Packets that still wait for the neighbour then
//!   take the tunnel ([`Output::Withdrawn`]).
//!
//! **What an attacker can do.** Other vehicles cannot get a prefix that is not registered for them. Attackers
//! who cannot read the path of the test cannot get one either. An attacker can answer in place of a vehicle
//! if it is in radio range *and* reads the path between home agents and vehicle. An access network with
//! unencrypted tunnels is such a path. Return routability in general has this weakness. The test does not
//! prove the link-layer address. GeoNetworking without security (TS 103 097) trusts frames. So a station that
//! uses a proven neighbour's address gets that neighbour's packets, as on any Ethernet. The router encrypts
//! neither direct packets nor packets in the tunnel. Test benches may set [`Authorization::Anybody`]: the
//! router then accepts every prefix that [`MnppDrop`] does not refuse.
//!
//! **Meaning of a proof.** The announcing station has received packets to unpredictable addresses of the
//! prefix. Home agents assign a /64 or a longer prefix as a whole, so one address suffices. An attacker may
//! have a part of a shorter prefix, such as a /64 of a /48. So eight addresses in a row must lead to the
//! station. An attacker with a sixteenth of the prefix succeeds once in 2^32 attempts. An attacker with half
//! of it succeeds once in 256 attempts, so it succeeds sooner or later. Only a statement of the home agent
//! would be a better proof, but no message for it exists. A proven longer prefix inside the shorter one still
//! has the better route. So [`MnppConfig::shortest_prefix_length`] is 64 by default. An operator may lower it
//! if home agents assign shorter prefixes as a whole.
//!
//! **Limits.** [`MAX_PEERS`] stations with [`MAX_CLAIMED_PREFIXES`] prefixes each, [`MAX_PREFIX_PROOFS`]
//! proofs. The router answers only stations in range. If the table is full, the router removes a station that
//! has failed its tests. If all have passed, it removes the newest station that has not answered its test
//! within a second. So a flood of forged stations removes only its own entries, and each new station has time
//! to answer. Tests have a rate limit, and the station that has waited longest is next. Answers have limits
//! for each station and kind, see `answer_limit`. The router refuses a prefix that is no unicast prefix, or
//! is shorter than [`MnppConfig::shortest_prefix_length`] (such as a default route). It refuses a prefix that
//! overlaps one of its mobile network prefixes. It also refuses a prefix that contains its home address, its
//! home agent's address or its home prefix.
//!
//! Left out:
//!
//! * The data path `kernel`, whose tunnelled packets do not pass this module: it proves nothing and uses only
//!   the tunnel.
//! * Signatures and certificates.
//! * More than one route to a prefix at a time.

mod answer_limit;
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
use answer_limit::AnswerLimit;
pub use drop_reason::MnppDrop;
use peer::{Peer, RouteState};

/// A link-layer address.
pub type LinkAddress = [u8; 6];

/// Maximum number of stations in the table.
pub const MAX_PEERS: usize = 64;
/// Maximum number of prefixes of one station.
pub const MAX_CLAIMED_PREFIXES: usize = 8;
/// Maximum number of proofs in the table.
pub const MAX_PREFIX_PROOFS: usize = 256;
/// Time for which a proof is valid.
pub const PREFIX_PROOF_LIFETIME: Duration = Duration::from_secs(600);
/// Remaining lifetime of a proof below which the router renews it while the station is in range.
const PREFIX_PROOF_RENEWAL_TIME: Duration = Duration::from_secs(200);
/// Lifetime of an announcement, in intervals.
const LIFETIME_IN_INTERVALS: u32 = 3;
/// Longest lifetime that the router accepts from an announcement.
const MAX_LIFETIME: Duration = Duration::from_secs(600);
/// Minimum time between two announcements, and maximum delay of an announcement, so that one announcement
/// serves several reasons.
const MIN_ANNOUNCEMENT_SPACING: Duration = Duration::from_secs(1);
const MAX_ANNOUNCEMENT_DELAY: Duration = Duration::from_millis(100);
/// Minimum time between two unknown stations that enter a full table. It equals the interval of prefix tests.
const PEER_ADMISSION_INTERVAL: Duration = Duration::from_millis(100);
/// Time for which a new station keeps its entry in a full table, because its answer may still arrive.
const NEW_PEER_PROTECTION_TIME: Duration = Duration::from_secs(1);
/// Minimum time between warnings about stations that announce this router's prefixes.
const CONFLICT_WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Proof that the router demands before it accepts an announced prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Authorization {
    /// A return routability test through the prefix owner's home agent.
    #[default]
    HomeAgent,
    /// None: the router accepts any announcement. For test benches.
    Anybody,
}

/// Config of the announcements and routes.
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
    /// Proof that the router demands before it accepts an announced prefix.
    pub authorization: Authorization,
    /// Minimum length of an accepted prefix.
    pub shortest_prefix_length: u8,
    /// Hop limit of announcements; 1 reaches only neighbours.
    pub announcement_hop_limit: u8,
    /// Longest time between announcements while the router has neighbours.
    pub announcement_interval: Duration,
}

/// Contact with another station, as GeoNetworking or the link observes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StationObservation {
    /// Time of the last frame from the station.
    pub received_at: Time,
    /// Whether the station is a neighbour: frames from it arrive directly.
    pub is_neighbour: bool,
    /// Whether the station is well within radio range, and will be for a while.
    pub stays_in_range: bool,
    /// Whether the station is about to leave radio range.
    pub leaves_range: bool,
}

/// Access to the observations of other stations; the caller implements it.
pub trait StationObserver {
    /// Returns the observation of a station; `None` if the station is unknown.
    fn observation(&self, now: Time, station: LinkAddress) -> Option<StationObservation>;
    /// Returns the link-local address of a station.
    fn link_local(&self, station: LinkAddress) -> Ipv6Addr;
    /// Returns whether any station is in radio range.
    fn has_neighbours(&self) -> bool;
}

/// Formats a link-layer address: `02:00:00:00:00:0a`.
fn format_link_address(station: LinkAddress) -> String {
    station.map(|octet| format!("{octet:02x}")).join(":")
}

/// An output of this module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// An IPv6 packet to send to all stations in range.
    Announce(Vec<u8>),
    /// An IPv6 packet to send directly to a station.
    Straight(LinkAddress, Vec<u8>),
    /// An IPv6 packet from the home address, to send through the tunnel to the home agent.
    ThroughTunnel(Vec<u8>),
    /// The return value of [`Mnpp::routes`] has changed.
    Routes,
    /// Packets no longer go directly to this station: send waiting packets through the tunnel.
    Withdrawn(LinkAddress),
    /// An event for the operator.
    Event(Event),
}

/// State of the route to an announced prefix, for the status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixRoute {
    /// The announced prefix.
    pub prefix: Ipv6Net,
    /// Station that announces the prefix.
    pub station: LinkAddress,
    /// Link-local address of the station.
    pub link_local: Ipv6Addr,
    /// Whether packets to the prefix take the direct route.
    pub is_direct: bool,
    /// Reason for which packets take the direct route, or do not take it.
    pub state_reason: &'static str,
    /// Time since which packets have taken the direct route, or have not taken it.
    pub state_since: Time,
    /// Smoothed round trip of the probes; `None` before the first answer.
    pub rtt: Option<Duration>,
}

/// Counts of events.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// Announcements sent.
    pub sent_announcements: u64,
    /// Announcements received.
    pub received_announcements: u64,
    /// Prefix tests that were started, including repetitions.
    pub tests: u64,
    /// Prefix tests of other stations that this router answered.
    pub answered_tests: u64,
    /// Probes sent.
    pub sent_probes: u64,
    /// Number of direct routes that began.
    pub begun_routes: u64,
    /// Number of direct routes that ended.
    pub ended_routes: u64,
    dropped: BTreeMap<MnppDrop, u64>,
}

impl Counters {
    /// Returns how many messages were dropped for `reason`.
    pub fn dropped(&self, reason: MnppDrop) -> u64 {
        self.dropped.get(&reason).copied().unwrap_or_default()
    }
}

/// State of all neighbouring mobile networks. After each `handle_*` call the caller calls
/// [`Mnpp::poll_output`] until it returns `None`.
#[derive(Debug)]
pub struct Mnpp {
    config: MnppConfig,
    /// This station's own addresses on the link; `None` until they are known.
    own_addresses: Option<(LinkAddress, Ipv6Addr)>,
    /// Whether this router may announce its prefixes.
    may_announce: bool,
    /// Whether the tunnel to the home agent works. Prefix tests go through it.
    has_tunnel: bool,
    peers: BTreeMap<LinkAddress, Peer>,
    /// End time of each proof that a station has a prefix.
    proof_expiry: BTreeMap<(Ipv6Net, LinkAddress), Time>,
    next_announcement_at: Option<Time>,
    last_announcement_at: Option<Time>,
    tests: RateLimiter,
    /// Limits of answers: to tests that come from a network that their sender has announced, to other tests,
    /// and to probes.
    known_sender_answers: AnswerLimit,
    unknown_sender_answers: AnswerLimit,
    probe_answer_limit: AnswerLimit,
    /// Rate limit of unknown stations that get an entry in a full table.
    peer_admission_limit: RateLimiter,
    conflict_warning_limit: RateLimiter,
    /// Routes at the time of the last [`Output::Routes`].
    reported_routes: BTreeMap<Ipv6Net, Ipv6Addr>,
    outputs: VecDeque<Output>,
    counters: Counters,
    rng: Rng,
}

impl Mnpp {
    /// Creates a state that knows no stations.
    pub fn new(config: MnppConfig, rng: Rng) -> Mnpp {
        Mnpp {
            config,
            own_addresses: None,
            may_announce: true,
            has_tunnel: true,
            peers: BTreeMap::new(),
            proof_expiry: BTreeMap::new(),
            next_announcement_at: None,
            last_announcement_at: None,
            tests: RateLimiter::new(16, Duration::from_millis(100)),
            known_sender_answers: AnswerLimit::new(),
            unknown_sender_answers: AnswerLimit::new(),
            probe_answer_limit: AnswerLimit::new(),
            peer_admission_limit: RateLimiter::new(8, PEER_ADMISSION_INTERVAL),
            conflict_warning_limit: RateLimiter::new(1, CONFLICT_WARNING_INTERVAL),
            reported_routes: BTreeMap::new(),
            outputs: VecDeque::new(),
            counters: Counters::default(),
            rng,
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &MnppConfig {
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
        self.peers.values().map(|peer| peer.next_check_at).chain(self.next_announcement_at).min()
    }

    /// Sets this station's own addresses on the link. If they have changed, all contacts with other stations
    /// start anew.
    pub fn handle_own_addresses(&mut self, link_address: LinkAddress, link_local: Ipv6Addr) {
        if self.own_addresses.replace((link_address, link_local)).is_some_and(|old| old.0 != link_address) {
            self.forget_all_peers();
        }
    }

    /// Sets whether this router may announce its prefixes. It may not if the home agent has refused them.
    pub fn set_may_announce(&mut self, now: Time, valid: bool) {
        if std::mem::replace(&mut self.may_announce, valid) != valid {
            if valid {
                self.schedule_announcement(now);
            } else {
                self.send_announcement(now, Duration::ZERO);
                self.next_announcement_at = None;
            }
        }
    }

    /// Sets whether the tunnel exists. Without the tunnel the router sends no tests. When the tunnel is back,
    /// it sends the due tests at once.
    pub fn handle_tunnel_presence(&mut self, now: Time, is_there: bool) {
        if !std::mem::replace(&mut self.has_tunnel, is_there) && is_there {
            self.peers.values_mut().for_each(|peer| peer.next_check_at = peer.next_check_at.min(now));
        }
    }

    /// Handles the arrival of a station in radio range.
    pub fn handle_new_neighbour(&mut self, now: Time) {
        self.schedule_announcement(now);
    }

    /// Handles the timers that are due.
    pub fn handle_timeout(&mut self, now: Time, around: &dyn StationObserver) {
        if self.next_announcement_at.is_some_and(|at| at <= now) {
            self.next_announcement_at = None;
            if around.has_neighbours() {
                self.send_announcement(now, self.config.announcement_interval * LIFETIME_IN_INTERVALS);
                // A quarter of the interval is random, so that stations do not synchronise.
                let least = self.config.announcement_interval.mul_f64(0.75);
                self.next_announcement_at =
                    Some(now + self.rng.duration_between(least, self.config.announcement_interval));
            }
        }
        let due = self.peers.iter().filter(|(_, peer)| peer.next_check_at <= now);
        let mut due: Vec<_> = due.map(|(station, peer)| (peer.last_tested_at, *station)).collect();
        due.sort();
        for (_, station) in due {
            self.check_station(now, station, around);
        }
    }

    /// Withdraws the prefixes: announces them with lifetime 0.
    pub fn handle_shutdown(&mut self, now: Time) {
        if self.last_announcement_at.is_some() {
            self.send_announcement(now, Duration::ZERO);
        }
        self.next_announcement_at = None;
        self.may_announce = false;
    }

    fn schedule_announcement(&mut self, now: Time) {
        let earliest = self.last_announcement_at.map_or(now, |last| last + MIN_ANNOUNCEMENT_SPACING).max(now);
        let due = earliest + self.rng.duration_between(Duration::ZERO, MAX_ANNOUNCEMENT_DELAY);
        self.next_announcement_at = Some(self.next_announcement_at.map_or(due, |planned| planned.min(due)));
    }

    fn send_announcement(&mut self, now: Time, lifetime: Duration) {
        let Some((link_address, link_local)) = self.own_addresses else { return };
        if !lifetime.is_zero() && !self.may_announce {
            return;
        }
        let lifetime = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX);
        let mut options = vec![NdOption::SourceLinkAddress(link_address)];
        options.extend(self.config.prefixes.iter().take(MAX_CLAIMED_PREFIXES).map(|prefix| {
            NdOption::RouteInformation(RouteInformation {
                prefix: prefix.network(),
                prefix_length: prefix.prefix_len(),
                preference: nd::RoutePreference::Medium,
                lifetime,
            })
        }));
        let message = nd::emit_router_advertisement(&nd::RouterAdvertisementRepr {
            options: &options,
            ..nd::RouterAdvertisementRepr::default()
        });
        let packet = icmpv6::emit_packet(link_local, nd::ALL_NODES, nd::HOP_LIMIT, message);
        self.last_announcement_at = Some(now);
        self.counters.sent_announcements += 1;
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
        around: &dyn StationObserver,
    ) {
        let mut routes = advertisement.options().filter_map(|option| match option {
            NdOption::RouteInformation(route) => Some(route),
            _ => None,
        });
        let mut any = false;
        for route in routes.by_ref().take(MAX_CLAIMED_PREFIXES) {
            any = true;
            if let Err(reason) = self.handle_announced_prefix(now, from, source, &route) {
                self.count_drop(reason);
            }
        }
        if routes.next().is_some() {
            self.count_drop(MnppDrop::TooMany);
        }
        if any {
            self.counters.received_announcements += 1;
            // Announce soon if this router has sent no announcement since the station appeared.
            if !self.peers.get(&from).is_some_and(|peer| peer.has_sent_announcement) {
                if let Some(peer) = self.peers.get_mut(&from) {
                    peer.has_sent_announcement = true;
                }
                self.schedule_announcement(now);
            }
            self.check_station(now, from, around);
        }
    }

    fn handle_announced_prefix(
        &mut self,
        now: Time,
        from: LinkAddress,
        source: Ipv6Addr,
        route: &RouteInformation,
    ) -> Result<(), MnppDrop> {
        let prefix = Ipv6Net::new(route.prefix, route.prefix_length).map_err(|_| MnppDrop::BadPrefix)?;
        self.check_claimed_prefix(now, from, prefix)?;
        let lifetime = Duration::from_secs(route.lifetime.into()).min(MAX_LIFETIME);
        if lifetime.is_zero() {
            let claims = self.peers.get_mut(&from).into_iter().flat_map(|peer| &mut peer.announced_prefixes);
            claims.filter(|claim| claim.prefix == prefix).for_each(|claim| claim.expires_at = now);
            return Ok(());
        }
        if !self.peers.contains_key(&from) {
            self.make_room_for_peer(now)?;
        }
        let peer = self.peers.entry(from).or_insert_with(|| Peer::new(now, source));
        peer.link_local = source;
        peer.record_announcement(now, prefix, now + lifetime)
    }

    /// Refuses prefixes that belong to this router or its home agent, or that the config excludes.
    fn check_claimed_prefix(
        &mut self,
        now: Time,
        from: LinkAddress,
        prefix: Ipv6Net,
    ) -> Result<(), MnppDrop> {
        let config = &self.config;
        if !ipv6::is_unicast_routable(prefix.network()) {
            return Err(MnppDrop::BadPrefix);
        }
        if prefix.prefix_len() < config.shortest_prefix_length.max(1) {
            return Err(MnppDrop::TooShort);
        }
        let overlaps = |own: &Ipv6Net| own.contains(&prefix) || prefix.contains(own);
        let ours = config.prefixes.iter().any(overlaps)
            || prefix.contains(&config.home_address)
            || prefix.contains(&config.home_agent)
            || prefix.contains(&config.home_prefix);
        if ours {
            self.warn_of_conflict(now, from, prefix);
            return Err(MnppDrop::OwnPrefix);
        }
        Ok(())
    }

    fn warn_of_conflict(&mut self, now: Time, from: LinkAddress, prefix: Ipv6Net) {
        if self.conflict_warning_limit.try_take_token(now) {
            let message = format!(
                "the station {} announces the prefix {prefix} of this router",
                format_link_address(from)
            );
            self.outputs.push_back(Output::Event(Event::Warning { message }));
        }
    }

    /// Removes a station from a full table: first one that has failed its tests, otherwise the newest one
    /// whose answer is overdue. Removes stations at most at the rate of the tests.
    fn make_room_for_peer(&mut self, now: Time) -> Result<(), MnppDrop> {
        if self.peers.len() < MAX_PEERS {
            return Ok(());
        }
        let strangers =
            self.peers.iter().filter(|(station, peer)| !self.is_known_station(now, **station, peer));
        let waited = strangers.filter(|(_, peer)| {
            peer.has_sent_test && now.saturating_since(peer.last_tested_at) >= NEW_PEER_PROTECTION_TIME
        });
        let least = waited.max_by_key(|(_, peer)| (peer.have_tests_failed(), peer.route_state_since));
        let least = *least.ok_or(MnppDrop::TooMany)?.0;
        if !self.peer_admission_limit.try_take_token(now) {
            return Err(MnppDrop::TooMany);
        }
        self.peers.remove(&least);
        Ok(())
    }

    /// Returns whether a station has a direct route or a proven prefix.
    fn is_known_station(&self, now: Time, station: LinkAddress, peer: &Peer) -> bool {
        let is_proven = |prefix| self.proof_expiry.get(&(prefix, station)).is_some_and(|until| *until > now);
        peer.is_direct() || peer.announced_prefixes.iter().any(|claim| is_proven(claim.prefix))
    }

    /// Handles a message that came directly from the station `from`.
    ///
    /// # Errors
    /// Returns why the message had no effect, and counts the reason.
    pub fn handle_message_of_station(
        &mut self,
        now: Time,
        from: LinkAddress,
        source: Ipv6Addr,
        test: &PrefixTest,
        around: &dyn StationObserver,
    ) -> Result<(), MnppDrop> {
        let result = self.handle_direct_message(now, from, source, test, around);
        if let Err(reason) = result {
            self.count_drop(reason);
        }
        result
    }

    fn handle_direct_message(
        &mut self,
        now: Time,
        from: LinkAddress,
        source: Ipv6Addr,
        test: &PrefixTest,
        around: &dyn StationObserver,
    ) -> Result<(), MnppDrop> {
        let Some((own, _)) = self.own_addresses else { return Err(MnppDrop::NotForUs) };
        match test.kind {
            PrefixTestKind::Init => Err(MnppDrop::NotForUs),
            PrefixTestKind::Probe if test.responder == own && test.requester == from => {
                let answer = PrefixTest { kind: PrefixTestKind::Answer, ..*test };
                self.send_answer_to_station(now, from, source, answer, true, around)
            }
            PrefixTestKind::Test if test.responder == from && test.requester == own => {
                let prefix = Ipv6Net::new(test.prefix, test.prefix_length);
                let prefix = prefix.map_err(|_| MnppDrop::BadPrefix)?;
                let peer = self.peers.get_mut(&from).ok_or(MnppDrop::Unasked)?;
                if peer.record_passed_test(now, prefix, test.cookie)? {
                    self.store_proof(now, prefix, from);
                }
                self.check_station(now, from, around);
                Ok(())
            }
            PrefixTestKind::Answer if test.responder == from && test.requester == own => {
                let peer = self.peers.get_mut(&from).ok_or(MnppDrop::Unasked)?;
                peer.record_probe_answer(now, test.cookie)?;
                self.check_station(now, from, around);
                Ok(())
            }
            _ => Err(MnppDrop::NotForUs),
        }
    }

    /// Handles a Prefix Test Init that came through the tunnel from `source` to an address of a prefix.
    /// Returns false if the prefix is not this router's, so that the caller forwards the message. A test of a
    /// prefix that overlaps this router's prefix must not reach the mobile network, because a host there
    /// could answer it.
    pub fn handle_test_init(
        &mut self,
        now: Time,
        source: Ipv6Addr,
        test: &PrefixTest,
        around: &dyn StationObserver,
    ) -> bool {
        let asked = Ipv6Net::new(test.prefix, test.prefix_length).ok();
        let exactly = asked.is_some_and(|asked| self.config.prefixes.contains(&asked));
        let concerns = |asked: Ipv6Net| {
            self.config.prefixes.iter().any(|own| own.contains(&asked) || asked.contains(own))
        };
        let (Some((own, _)), PrefixTestKind::Init, true) =
            (self.own_addresses, test.kind, asked.is_some_and(concerns))
        else {
            return false;
        };
        let result = if test.responder == own && exactly {
            let to = around.link_local(test.requester);
            let test = PrefixTest { kind: PrefixTestKind::Test, ..*test };
            let claims =
                self.peers.get(&test.requester).into_iter().flat_map(|peer| &peer.announced_prefixes);
            let is_at_home = claims.into_iter().any(|claim| claim.prefix.contains(&source));
            self.send_answer_to_station(now, test.requester, to, test, is_at_home, around)
        } else {
            // The test is for this router's prefix but names another station: that station announces the
            // prefix falsely.
            if let Some(prefix) = asked {
                self.warn_of_conflict(now, test.responder, prefix);
            }
            Err(MnppDrop::OwnPrefix)
        };
        match result {
            Ok(()) => self.counters.answered_tests += 1,
            Err(reason) => self.count_drop(reason),
        }
        true
    }

    /// Answers a station in radio range. `is_its_own` is true if the request came from a network that the
    /// station has announced. Only then does the answer count against the station's own limit.
    fn send_answer_to_station(
        &mut self,
        now: Time,
        to: LinkAddress,
        destination: Ipv6Addr,
        test: PrefixTest,
        is_its_own: bool,
        around: &dyn StationObserver,
    ) -> Result<(), MnppDrop> {
        let Some((_, link_local)) = self.own_addresses else { return Err(MnppDrop::NotForUs) };
        let sight = around.observation(now, to);
        if !sight.is_some_and(|sight| sight.is_neighbour || self.config.announcement_hop_limit > 1) {
            return Err(MnppDrop::Unreachable);
        }
        let is_known = self.peers.get(&to).is_some_and(|peer| self.is_known_station(now, to, peer));
        let allowance = match test.kind {
            PrefixTestKind::Test if is_its_own => &mut self.known_sender_answers,
            PrefixTestKind::Test => &mut self.unknown_sender_answers,
            _ => &mut self.probe_answer_limit,
        };
        if !allowance.allow_answer(now, to, is_known) {
            return Err(MnppDrop::RateLimited);
        }
        self.outputs
            .push_back(Output::Straight(to, test.emit_packet(link_local, destination, nd::HOP_LIMIT)));
        Ok(())
    }

    fn store_proof(&mut self, now: Time, prefix: Ipv6Net, station: LinkAddress) {
        self.proof_expiry.retain(|(known, by), until| *until > now && (*known != prefix || *by == station));
        if self.proof_expiry.len() >= MAX_PREFIX_PROOFS
            && let Some(oldest) =
                self.proof_expiry.iter().min_by_key(|(_, until)| **until).map(|(key, _)| *key)
        {
            self.proof_expiry.remove(&oldest);
        }
        self.proof_expiry.insert((prefix, station), now + PREFIX_PROOF_LIFETIME);
    }

    /// Returns the end of the proof that a station has a prefix; `None` without a proof.
    fn proof_expiry(&self, prefix: Ipv6Net, station: LinkAddress) -> Option<Time> {
        match self.config.authorization {
            Authorization::Anybody => Some(Time::MAX),
            Authorization::HomeAgent => self.proof_expiry.get(&(prefix, station)).copied(),
        }
    }

    /// Handles a packet from this vehicle to an address in a station's prefixes.
    pub fn handle_used_station(&mut self, now: Time, station: LinkAddress) {
        if let Some(peer) = self.peers.get_mut(&station) {
            peer.record_sent_packet(now);
        }
    }

    /// Returns whether a packet to a station must take the tunnel although a direct route still exists in the
    /// kernel. This is so if the direct route has just ended.
    pub fn must_use_tunnel(&self, station: LinkAddress, destination: Ipv6Addr) -> bool {
        self.peers.get(&station).is_some_and(|peer| {
            !peer.is_direct()
                && peer.announced_prefixes.iter().any(|claim| claim.prefix.contains(&destination))
        })
    }

    /// Returns the prefixes with a direct route, with the next hop of each.
    pub fn routes(&self) -> BTreeMap<Ipv6Net, Ipv6Addr> {
        let mut routes: BTreeMap<Ipv6Net, (Time, Ipv6Addr)> = BTreeMap::new();
        for (station, peer) in self.peers.iter().filter(|(_, peer)| peer.is_direct()) {
            for claim in &peer.announced_prefixes {
                if self.proof_expiry(claim.prefix, *station).is_some() {
                    let own = (peer.route_state_since, peer.link_local);
                    let first = routes.entry(claim.prefix).or_insert(own);
                    *first = own.min(*first);
                }
            }
        }
        routes.into_iter().map(|(prefix, (_, link_local))| (prefix, link_local)).collect()
    }

    /// Returns all announced prefixes with the state of their routes.
    pub fn prefix_routes(&self) -> Vec<PrefixRoute> {
        let routes = self.routes();
        let mut ways = Vec::new();
        for (station, peer) in &self.peers {
            for claim in &peer.announced_prefixes {
                let direct = routes.get(&claim.prefix) == Some(&peer.link_local);
                let proven = self.proof_expiry(claim.prefix, *station).is_some();
                ways.push(PrefixRoute {
                    prefix: claim.prefix,
                    station: *station,
                    link_local: peer.link_local,
                    is_direct: direct,
                    state_reason: match peer.route_state {
                        _ if !proven => "not authorized by its home agent",
                        RouteState::Direct if direct => "reached straight",
                        RouteState::Direct => "another station has it",
                        RouteState::ViaHomeAgents(reason) => reason,
                    },
                    state_since: peer.route_state_since,
                    rtt: peer.rtt(),
                });
            }
        }
        ways
    }

    fn forget_all_peers(&mut self) {
        let had = !self.routes().is_empty();
        for (station, _) in std::mem::take(&mut self.peers).into_iter().filter(|(_, peer)| peer.is_direct()) {
            self.outputs.push_back(Output::Withdrawn(station));
        }
        if had {
            self.outputs.push_front(Output::Routes);
        }
        self.reported_routes.clear();
    }

    /// Reports the routes if they have changed. Routes change with the contact to a station, and with its
    /// proofs and announcements.
    pub(super) fn report_routes(&mut self) {
        let routes = self.routes();
        if routes != self.reported_routes {
            if !self.outputs.contains(&Output::Routes) {
                self.outputs.push_back(Output::Routes);
            }
            self.reported_routes = routes;
        }
    }

    fn count_drop(&mut self, reason: MnppDrop) {
        *self.counters.dropped.entry(reason).or_default() += 1;
    }

    /// Returns when the next test may be sent; `None` while no test is possible.
    fn next_prefix_test_at(&self, now: Time) -> Option<Time> {
        (self.has_tunnel && self.own_addresses.is_some()).then(|| self.tests.token_available_at(now))
    }

    /// Sends a test through the home agents, and returns its cookie; `None` if it can send no test now.
    fn send_prefix_test(&mut self, now: Time, station: LinkAddress, prefix: Ipv6Net) -> Option<u64> {
        let (asker, _) = self.own_addresses?;
        if !self.has_tunnel || !self.tests.try_take_token(now) {
            return None;
        }
        let cookie = self.rng.random_u64();
        let test = PrefixTest {
            kind: PrefixTestKind::Init,
            cookie,
            responder: station,
            requester: asker,
            prefix: prefix.network(),
            prefix_length: prefix.prefix_len(),
        };
        self.counters.tests += 1;
        let host = u128::MAX.checked_shr(prefix.prefix_len().into()).unwrap_or(0);
        let random = u128::from(self.rng.random_u64()) << 64 | u128::from(self.rng.random_u64());
        let address = Ipv6Addr::from(u128::from(prefix.network()) | random & host);
        // The source is an address of an announced network. So the other router knows which station has
        // sent the test.
        let home = self.config.prefixes.first().map(|own| Ipv6Addr::from(u128::from(own.network()) | 1));
        let packet = test.emit_packet(home.unwrap_or(self.config.home_address), address, HOP_LIMIT);
        self.outputs.push_back(Output::ThroughTunnel(packet));
        Some(cookie)
    }
}
