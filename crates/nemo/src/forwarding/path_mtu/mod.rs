//! Finds the largest inner packet that each tunnel carries without outer fragments.
//!
//! The effective MTU of a path (local and remote end) is the smallest of three values. They are the link's
//! MTU, the MTU of Packet Too Big (RFC 8201, RFC 2473 7.1), and the result of probing (RFC 8899). The
//! effective MTU is part of the desired forwarding state, so the slow path, any fast path and the operator
//! see the same number. When it changes, the station sets the tunnel's entry again.
//!
//! **Packet Too Big** counts for ten minutes, and never below 1280. It counts only if the quoted packet was
//! provably ours (the forwarder checks the keyed flow label). The message lowers the MTU at once, shortens a
//! search, and is the upper bound for probes during these ten minutes. After the ten minutes the station
//! probes the larger size before the traffic uses it, so that hosts do not see the MTU flap. If no probe was
//! ever answered, the station uses the larger size without a probe.
//!
//! **Inside IPv4** an ICMP message proves nothing (RFC 1191): sockets show only a few octets of the quoted
//! packet, and IPv4 has no flow label. Such a message is a hint, and begins a search (RFC 8899 4.6.2).
//!
//! **Probing** finds the path MTU if a firewall filters ICMPv6. Either end sends Echo Requests of the size in
//! question through the tunnel (`probe`), from its home address or as the home agent. The station takes the
//! answers out of the tunnel before any other receiver. The other end needs no special support, because every
//! node answers echoes (RFC 4443 4.2). The sender never fragments a probe. The answer may come back in
//! fragments. The answer may be lost if the way back is narrower and the other end does not know this yet.
//! Then the result is too small for ten minutes, which harms little.
//!
//! A path starts with the link's MTU. Probing starts when the path begins to carry traffic (registration,
//! handover, new binding). A search (`search`) takes one probe if the path carries the full size. If large
//! packets vanish, a search takes three rounds: well under a second plus three round trips. While the path is
//! in use, the station confirms the size about once a minute, and after ten minutes tries a larger size. The
//! station does not probe an idle path until a packet enters it. If no probe is answered, the MTU stays, and
//! the next attempts come after 10, 20, 40, at most 600 seconds of use.
//!
//! All paths together send at most 500 probes a second. If a home agent has just started, the probes of its
//! paths wait in a queue. The paths of one home address send at most 10 probes a second after a burst of 64.
//! A node chooses by its registrations where probes go and how many paths exist, so each home address has a
//! limit.
//!
//! A fast path must leave inner packets for the home address or the home agent's address to the slow path. It
//! must also leave TCP SYNs to the slow path, which clamps their MSS. The fast path reports from time to time
//! which paths it uses (`Input::TunnelUsed`).
//!
//! In RFC 8899's terms: `BASE_PLPMTU` and `MIN_PLPMTU` are an outer packet of 1280 octets, inside IPv4 576
//! (RFC 1122 3.3.2). `MAX_PLPMTU` is the MTU of the link.
//!
//! * Implemented: `MAX_PROBES`, `PMTU_RAISE_TIMER`, `CONFIRMATION_TIMER`, probes without user data (4.1),
//!   black hole detection (4.3), and validated Packet Too Big (4.6). The station does not probe idle paths
//!   (5.1.1), and takes the sizes from a table of common MTUs (5.3.2).
//! * Different: the search begins at the largest size and goes down, because the network mostly carries the
//!   link's MTU. The RFC begins at the base and goes up. The search sends the candidates of a round together,
//!   not one after the other. The probe timer follows the measured round trip and is shorter than a second,
//!   as a search has at most one such burst.
//! * Left out: probes with user data, and congestion control of probes beyond their rate limit. Also left out
//!   is the Error state: IPv6 carries 1280 octets by definition, and if no probe is answered the MTU stays.

mod probe;
mod search;

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv6Addr;
use std::num::NonZeroU32;
use std::time::Duration;

use carnet_base::{Endpoint, Rng, SmallMap, Time, TimerTable, pop_and_shrink};
use foldhash::{HashMap, HashMapExt};

use super::desired::{Tunnel, TunnelEnd};
pub(super) use search::inner_mtu;
use search::{PathMtuSearch, RoundTrip, SearchResult, SizeLimits};

/// Time for which the station uses a path MTU from Packet Too Big (RFC 8201 4).
const LEARNT_MTU_LIFETIME: Duration = Duration::from_secs(600);
/// `PMTU_RAISE_TIMER` (RFC 8899 5.1.1): time after which the station tries a larger size.
const MTU_RAISE_INTERVAL: Duration = Duration::from_secs(600);
/// `CONFIRMATION_TIMER` (RFC 8899 5.1.1). The actual interval varies by up to a quarter, so that the probes
/// of many paths do not coincide.
const MTU_CONFIRMATION_INTERVAL: Duration = Duration::from_secs(60);
/// Pause after a search in which no probe was answered. Each further pause is twice as long, up to
/// [`MTU_RAISE_INTERVAL`].
const SEARCH_RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Rate limit of all paths together: after a burst, one probe for each interval.
const PROBE_INTERVAL: Duration = Duration::from_millis(2);
const PROBE_BURST: u32 = 64;

/// Rate limit of the paths of one home address: after a burst, one probe for each interval.
const PROBE_INTERVAL_PER_HOME_ADDRESS: Duration = Duration::from_millis(100);
const PROBE_BURST_PER_HOME_ADDRESS: u32 = 64;
/// Number of home addresses in `probe_bucket_full_at_by_home_address` at which the station removes those that
/// may send a full burst of probes again.
const MAX_SEARCHES_AT_ONCE: usize = 1024;

/// Local and remote end of a tunnel.
pub type TunnelEnds = (Endpoint, Endpoint);

/// Action that path MTU discovery demands of the station.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathMtuOutput {
    /// The effective MTU of this path has changed. The station installs the tunnel's entries again.
    Changed(TunnelEnds),
    /// The station sends this inner packet through the tunnel, unfragmented.
    Probe(TunnelEnds, Vec<u8>),
    /// The station reports the next packet that enters the tunnel with [`PathMtus::handle_traffic`].
    Watch(TunnelEnds),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PathTimer {
    /// The MTU of a Packet Too Big expires.
    Expiry,
    /// The home address of the path may send probes again, by its rate limit.
    Turn,
    /// A round of probes ends, or the next confirmation of the path MTU is due.
    Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchPhase {
    /// No packet has entered the path lately, so no probes are sent.
    Asleep,
    /// A round of probes is running or waits for its turn.
    Searching,
    /// The path MTU is known; the next probe confirms it.
    Settled,
}

/// State of a path. A home agent has one for each of very many bindings. The sizes are `NonZero`, because an
/// `Option` of them then needs no more memory.
#[derive(Debug)]
struct PathState {
    end_role: TunnelEnd,
    /// Home addresses whose bindings use this path, and whether they transmit.
    transmitting_by_home_address: SmallMap<Ipv6Addr, bool>,
    link_mtu: u32,
    /// Whether the path is in encrypted sessions.
    is_encrypted: bool,
    too_big_mtu: Option<NonZeroU32>,
    /// MTU from an ICMP message without proof, which the next search tests. `None` if no such message has
    /// arrived since the last search.
    unproven_mtu: Option<NonZeroU32>,
    probed_mtu: Option<NonZeroU32>,
    phase: SearchPhase,
    /// The current search from its first round on. After its end the search stays, because an answer may be
    /// late. `None` before the first round.
    search: Option<Box<PathMtuSearch>>,
    is_queued: bool,
    round_trip: Option<RoundTrip>,
    /// Whether a packet has entered the path since its last search.
    used_since_last_search: bool,
    /// Whether a probe on this path was ever answered.
    ever_answered_probe: bool,
    unanswered_search_count: u8,
    raise_mtu_at: Time,
}

impl PathState {
    /// Returns the largest size that a search may try.
    fn largest_size_to_try(&self) -> u32 {
        self.too_big_mtu.map_or(self.link_mtu, NonZeroU32::get).min(self.link_mtu)
    }

    fn effective_mtu(&self) -> u32 {
        self.probed_mtu.map_or(u32::MAX, NonZeroU32::get).min(self.largest_size_to_try())
    }

    /// Returns the target size of a search that begins now.
    fn target_size(&self, now: Time) -> u32 {
        if self.raise_mtu_at <= now { self.largest_size_to_try() } else { self.effective_mtu() }
    }

    fn size_limits(&self, ends: TunnelEnds) -> SizeLimits {
        SizeLimits::for_path(ends.1, self.is_encrypted)
    }

    fn is_transmitting(&self) -> bool {
        self.transmitting_by_home_address.values().any(|transmit| *transmit)
    }
}

/// Counters of probing.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ProbeCounters {
    /// Number of probes sent.
    pub sent_probes: u64,
    /// Number of probes answered.
    pub answered_probes: u64,
}

/// MTUs of all paths.
#[derive(Debug)]
pub struct PathMtus {
    paths: HashMap<TunnelEnds, PathState>,
    /// Address of the home agent at one end of the tunnels, by this station's role: source or destination of
    /// the probes. Direct routes have no home agent, so for [`TunnelEnd::Direct`] the value is this station's
    /// own home address.
    home_agents: BTreeMap<TunnelEnd, Ipv6Addr>,
    timers: TimerTable<(TunnelEnds, PathTimer)>,
    /// Paths whose next round is due, in the order of their turns; each path is in the queue at most once.
    due_paths: VecDeque<TunnelEnds>,
    /// Time at which all paths together may send a full burst of probes again.
    probe_bucket_full_at: Time,
    /// Time at which the paths of each home address may send a full burst of probes again.
    probe_bucket_full_at_by_home_address: HashMap<Ipv6Addr, Time>,
    rng: Rng,
    pending_outputs: VecDeque<PathMtuOutput>,
    counters: ProbeCounters,
}

impl PathMtus {
    /// Creates the table without any path.
    pub fn new(rng: Rng) -> PathMtus {
        PathMtus {
            paths: HashMap::new(),
            home_agents: BTreeMap::new(),
            timers: TimerTable::new(),
            due_paths: VecDeque::new(),
            probe_bucket_full_at: Time::ZERO,
            probe_bucket_full_at_by_home_address: HashMap::new(),
            rng,
            pending_outputs: VecDeque::new(),
            counters: ProbeCounters::default(),
        }
    }

    /// Sets the home agent's address of the tunnels of this role; for direct routes, this station's own
    /// address.
    pub fn set_home_agent(&mut self, end: TunnelEnd, address: Ipv6Addr) {
        self.home_agents.insert(end, address);
    }

    /// Returns the counters of probing.
    pub fn counters(&self) -> ProbeCounters {
        self.counters
    }

    /// Returns the next action that the station must carry out; `None` if no action is left.
    pub fn poll_output(&mut self) -> Option<PathMtuOutput> {
        pop_and_shrink(&mut self.pending_outputs)
    }

    /// Returns when [`Self::handle_timeout`] is due next; `None` if no timer runs.
    pub fn poll_timeout(&self) -> Option<Time> {
        let queue =
            (!self.due_paths.is_empty()).then(|| self.probe_bucket_full_at - PROBE_INTERVAL * PROBE_BURST);
        self.timers.next_deadline().into_iter().chain(queue).min()
    }

    /// Returns the effective MTU of a path: the largest inner packet that passes without fragmentation.
    /// `None` for an unknown path.
    pub fn effective_mtu(&self, ends: TunnelEnds) -> Option<u32> {
        self.paths.get(&ends).map(PathState::effective_mtu)
    }

    /// Returns this station's role, and the home addresses of the bindings that use a path; `None` for an
    /// unknown path.
    pub fn users_of_path(&self, ends: TunnelEnds) -> Option<(TunnelEnd, Vec<Ipv6Addr>)> {
        self.paths
            .get(&ends)
            .map(|path| (path.end_role, path.transmitting_by_home_address.keys().copied().collect()))
    }

    /// Adds the path of a tunnel, whose MTU is that of the link. Returns the effective MTU.
    pub fn add_path(&mut self, now: Time, tunnel: &Tunnel) -> u32 {
        let ends = (tunnel.local, tunnel.remote);
        let path = self.paths.entry(ends).or_insert_with(|| PathState {
            end_role: tunnel.end,
            transmitting_by_home_address: SmallMap::new(),
            link_mtu: tunnel.mtu,
            is_encrypted: tunnel.session.is_some(),
            too_big_mtu: None,
            unproven_mtu: None,
            probed_mtu: None,
            phase: SearchPhase::Asleep,
            search: None,
            is_queued: false,
            round_trip: None,
            used_since_last_search: false,
            ever_answered_probe: false,
            unanswered_search_count: 0,
            raise_mtu_at: now,
        });
        let transmitted = path.is_transmitting();
        path.transmitting_by_home_address.insert(tunnel.home_address, tunnel.transmit);
        let another_link = std::mem::replace(&mut path.link_mtu, tunnel.mtu) != tunnel.mtu;
        let effective = path.effective_mtu();
        if another_link {
            path.raise_mtu_at = now;
            if path.transmitting_by_home_address.len() > 1 {
                self.pending_outputs.push_back(PathMtuOutput::Changed(ends));
            }
        }
        match (transmitted, path.is_transmitting()) {
            (true, false) => self.stop_probing_until_used(ends),
            (false, true) => self.begin_search(now, ends),
            (true, true) if another_link => self.begin_search(now, ends),
            _ => {}
        }
        effective
    }

    /// Removes the tunnel of a binding.
    pub fn remove_path_user(&mut self, ends: TunnelEnds, home_address: Ipv6Addr) {
        let Some(path) = self.paths.get_mut(&ends) else { return };
        path.transmitting_by_home_address.remove(&home_address);
        if path.transmitting_by_home_address.is_empty() {
            if path.is_queued {
                self.due_paths.retain(|queued| *queued != ends);
            }
            self.paths.remove(&ends);
            for timer in [PathTimer::Expiry, PathTimer::Turn, PathTimer::Step] {
                self.timers.stop_timer((ends, timer));
            }
        } else if !path.is_transmitting() {
            self.stop_probing_until_used(ends);
        }
    }

    /// Handles a Packet Too Big about a packet that was provably ours; `mtu` excludes the outer header.
    pub fn handle_too_big(&mut self, now: Time, ends: TunnelEnds, mtu: u32) {
        let Some(path) = self.paths.get_mut(&ends) else { return };
        let mtu = mtu.max(path.size_limits(ends).base_size);
        if mtu > path.largest_size_to_try()
            || (mtu == path.largest_size_to_try() && path.too_big_mtu.is_none())
        {
            return;
        }
        // RFC 8201 4: each Packet Too Big starts the lifetime of the path MTU anew.
        self.timers.set_deadline((ends, PathTimer::Expiry), now + LEARNT_MTU_LIFETIME);
        if path.too_big_mtu == NonZeroU32::new(mtu) {
            return;
        }
        let before = path.effective_mtu();
        path.too_big_mtu = NonZeroU32::new(mtu);
        if path.effective_mtu() != before {
            self.pending_outputs.push_back(PathMtuOutput::Changed(ends));
        }
        // RFC 8899 4.6.2: the search continues below the reported size.
        if path.phase == SearchPhase::Searching || path.effective_mtu() != before {
            self.begin_search(now, ends);
        }
    }

    /// Handles an unproven ICMP message, which says that outer packets of at most `mtu` octets pass. Starts a
    /// search that tests the present size and the reported size (RFC 8899 4.6.2).
    pub fn handle_unproven_mtu(&mut self, now: Time, ends: TunnelEnds, mtu: u32) {
        let Some(path) = self.paths.get_mut(&ends) else { return };
        let limits = path.size_limits(ends);
        let size = limits.largest_inner_packet(mtu).max(limits.base_size);
        if size >= path.effective_mtu() || path.phase == SearchPhase::Searching {
            return;
        }
        path.unproven_mtu = NonZeroU32::new(size);
        self.begin_search(now, ends);
    }

    /// Handles an inner packet from a tunnel that is addressed to this station. Returns whether it was the
    /// answer to a probe, which needs no other receiver.
    pub fn handle_inner_packet(&mut self, now: Time, ends: TunnelEnds, packet: &[u8]) -> bool {
        let Some(answer) = probe::parse_answer(packet) else { return false };
        let Some(path) = self.paths.get_mut(&ends) else { return false };
        let Some(search) = path.search.as_mut().filter(|search| search.search_token() == answer.token) else {
            return false;
        };
        let Some(sample) = search.handle_answer(now, answer.round, answer.size) else { return true };
        let target = search.target_size();
        self.counters.answered_probes += 1;
        path.round_trip = Some(RoundTrip::updated_with_sample(path.round_trip, sample));
        path.ever_answered_probe = true;
        if path.phase == SearchPhase::Searching {
            if answer.size == target {
                self.conclude_search(now, ends, target);
            }
        } else if answer.size > path.effective_mtu() && answer.size <= path.largest_size_to_try() {
            // The answer arrived after the end of its search, but it still proves that the size passes.
            path.probed_mtu =
                NonZeroU32::new(answer.size).filter(|size| size.get() < path.largest_size_to_try());
            self.pending_outputs.push_back(PathMtuOutput::Changed(ends));
        }
        true
    }

    /// Returns the paths on which the mobile router probes towards this home agent.
    pub fn paths_towards(&self, home_agent: Ipv6Addr) -> Vec<TunnelEnds> {
        let remote = Endpoint::from(home_agent);
        let of_router = |(ends, path): (&TunnelEnds, &PathState)| {
            (path.end_role == TunnelEnd::MobileRouter && ends.1 == remote).then_some(*ends)
        };
        self.paths.iter().filter_map(of_router).collect()
    }

    /// Handles a packet that entered a watched tunnel.
    pub fn handle_traffic(&mut self, now: Time, ends: TunnelEnds) {
        let Some(path) = self.paths.get_mut(&ends) else { return };
        path.used_since_last_search = true;
        if path.phase == SearchPhase::Asleep && path.is_transmitting() {
            self.begin_search(now, ends);
        }
    }

    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some((ends, timer)) = self.timers.pop_expired(now) {
            match timer {
                PathTimer::Expiry => self.expire_learnt_mtu(now, ends),
                PathTimer::Turn => self.enqueue_path(ends),
                PathTimer::Step => self.advance_search(now, ends),
            }
        }
        self.send_due_probes(now);
    }

    /// Sends the rounds of probes that are due, within the rate limits.
    pub fn send_due_probes(&mut self, now: Time) {
        while self.probe_bucket_full_at <= now + PROBE_INTERVAL * PROBE_BURST
            && let Some(ends) = pop_and_shrink(&mut self.due_paths)
        {
            let Some(path) = self.paths.get_mut(&ends) else { continue };
            path.is_queued = false;
            if path.phase != SearchPhase::Searching {
                continue;
            }
            let Some(home_address) = path.transmitting_by_home_address.keys().next().copied() else {
                continue;
            };
            let turn = self
                .probe_bucket_full_at_by_home_address
                .get(&home_address)
                .map(|paid| *paid - PROBE_INTERVAL_PER_HOME_ADDRESS * PROBE_BURST_PER_HOME_ADDRESS);
            if let Some(turn) = turn.filter(|turn| *turn > now) {
                self.timers.set_deadline((ends, PathTimer::Turn), turn);
                continue;
            }
            if path.search.is_none() {
                // Create the search only now, to save memory: if a home agent has just started, very many
                // paths wait in the queue.
                let (target, current) = (path.target_size(now), path.effective_mtu());
                let known = path.unproven_mtu.take().map_or(current, NonZeroU32::get);
                let limits = SizeLimits::for_path(ends.1, path.is_encrypted);
                let search = PathMtuSearch::new(self.rng.random_u64(), limits, target, known);
                path.search = Some(Box::new(search));
            }
            let Some(search) = path.search.as_mut() else { continue };
            let (round, sizes) = search.begin_round(now);
            let token = search.search_token();
            self.timers.set_deadline((ends, PathTimer::Step), now + search.round_timeout(path.round_trip));
            let Some(home_agent) = self.home_agents.get(&path.end_role).copied() else { continue };
            let of_one = PROBE_INTERVAL_PER_HOME_ADDRESS * u32::try_from(sizes.len()).unwrap_or(u32::MAX);
            if self.probe_bucket_full_at_by_home_address.len() >= MAX_SEARCHES_AT_ONCE {
                self.probe_bucket_full_at_by_home_address.retain(|_, paid| *paid > now);
            }
            let paid = self.probe_bucket_full_at_by_home_address.entry(home_address).or_insert(now);
            *paid = (*paid).max(now) + of_one;
            let (source, destination) = match path.end_role {
                TunnelEnd::HomeAgent | TunnelEnd::Direct => (home_agent, home_address),
                TunnelEnd::MobileRouter => (home_address, home_agent),
            };
            for size in sizes {
                let probe = probe::ProbeAnswer { token, round, size };
                self.pending_outputs
                    .push_back(PathMtuOutput::Probe(ends, probe::emit_probe(source, destination, probe)));
                self.counters.sent_probes += 1;
                self.probe_bucket_full_at = self.probe_bucket_full_at.max(now) + PROBE_INTERVAL;
            }
        }
    }

    /// Starts a search from the beginning.
    fn begin_search(&mut self, now: Time, ends: TunnelEnds) {
        let Some(path) = self.paths.get_mut(&ends) else { return };
        let base = path.size_limits(ends).base_size;
        if path.largest_size_to_try() <= base || !path.is_transmitting() {
            return self.stop_probing_until_used(ends);
        }
        if path.target_size(now) <= base {
            return self.end_search(now, ends, MTU_CONFIRMATION_INTERVAL);
        }
        path.search = None;
        path.phase = SearchPhase::Searching;
        self.timers.stop_timer((ends, PathTimer::Turn));
        self.timers.stop_timer((ends, PathTimer::Step));
        self.enqueue_path(ends);
    }

    fn enqueue_path(&mut self, ends: TunnelEnds) {
        if let Some(path) = self.paths.get_mut(&ends)
            && !std::mem::replace(&mut path.is_queued, true)
        {
            self.due_paths.push_back(ends);
        }
    }

    /// Stops the probes on a path until a packet enters it.
    fn stop_probing_until_used(&mut self, ends: TunnelEnds) {
        if let Some(path) = self.paths.get_mut(&ends) {
            path.phase = SearchPhase::Asleep;
            self.timers.stop_timer((ends, PathTimer::Turn));
            self.timers.stop_timer((ends, PathTimer::Step));
        }
    }

    fn advance_search(&mut self, now: Time, ends: TunnelEnds) {
        let Some(path) = self.paths.get_mut(&ends) else { return };
        match path.phase {
            SearchPhase::Asleep => {}
            SearchPhase::Settled if path.used_since_last_search => self.begin_search(now, ends),
            // Do not order another watch of the tunnel, because the forwarder already reports its next
            // packet.
            SearchPhase::Settled => {
                path.phase = SearchPhase::Asleep;
                // Remove the search, because no further answer to it can arrive.
                path.search = None;
            }
            SearchPhase::Searching => {
                match path.search.as_ref().map_or(SearchResult::Silent, |search| search.search_result()) {
                    SearchResult::Open => self.enqueue_path(ends),
                    SearchResult::Carries(size) => self.conclude_search(now, ends, size),
                    SearchResult::Silent => {
                        path.unanswered_search_count = path.unanswered_search_count.saturating_add(1);
                        let doubled = SEARCH_RETRY_INTERVAL
                            * 2_u32.saturating_pow(u32::from(path.unanswered_search_count.min(8)) - 1);
                        self.end_search(now, ends, doubled.min(MTU_RAISE_INTERVAL));
                    }
                    SearchResult::Unclear => self.end_search(now, ends, MTU_CONFIRMATION_INTERVAL),
                }
            }
        }
    }

    /// Ends a search that has shown that the path carries `size`. If `size` is smaller than the target, the
    /// path carries no larger packet.
    fn conclude_search(&mut self, now: Time, ends: TunnelEnds, size: u32) {
        let Some(path) = self.paths.get_mut(&ends) else { return };
        let before = path.effective_mtu();
        let target =
            path.search.as_ref().map_or(path.size_limits(ends).base_size, |search| search.target_size());
        if size < target {
            path.probed_mtu = NonZeroU32::new(size);
            path.raise_mtu_at = now + MTU_RAISE_INTERVAL;
        } else if size >= path.largest_size_to_try() {
            path.probed_mtu = None;
            path.raise_mtu_at = now + MTU_RAISE_INTERVAL;
        }
        path.unanswered_search_count = 0;
        if path.effective_mtu() != before {
            self.pending_outputs.push_back(PathMtuOutput::Changed(ends));
        }
        self.end_search(now, ends, MTU_CONFIRMATION_INTERVAL);
    }

    fn end_search(&mut self, now: Time, ends: TunnelEnds, interval: Duration) {
        let Some(path) = self.paths.get_mut(&ends) else { return };
        path.phase = SearchPhase::Settled;
        path.used_since_last_search = false;
        let pause = self.rng.duration_between(interval * 3 / 4, interval * 5 / 4);
        self.timers.set_deadline((ends, PathTimer::Step), now + pause);
        self.pending_outputs.push_back(PathMtuOutput::Watch(ends));
    }

    /// Ends the effect of Packet Too Big. If the path answers probes, a probe must succeed before the traffic
    /// uses a larger size.
    fn expire_learnt_mtu(&mut self, now: Time, ends: TunnelEnds) {
        let Some(path) = self.paths.get_mut(&ends) else { return };
        let before = path.effective_mtu();
        path.too_big_mtu = None;
        path.raise_mtu_at = now;
        if path.ever_answered_probe && path.unanswered_search_count == 0 {
            path.probed_mtu = NonZeroU32::new(before).filter(|size| size.get() < path.largest_size_to_try());
        }
        if path.effective_mtu() != before {
            self.pending_outputs.push_back(PathMtuOutput::Changed(ends));
        }
        self.begin_search(now, ends);
    }
}

#[cfg(test)]
mod tests;
