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
use search::{Judgement, Limits, RoundTrip, Search};

/// Time for which the station uses a path MTU from Packet Too Big (RFC 8201 4).
const LEARNT_LIFETIME: Duration = Duration::from_secs(600);
/// `PMTU_RAISE_TIMER` (RFC 8899 5.1.1): time after which the station tries a larger size.
const RAISE_INTERVAL: Duration = Duration::from_secs(600);
/// `CONFIRMATION_TIMER` (RFC 8899 5.1.1). The actual interval varies by up to a quarter, so that the probes
/// of many paths do not coincide.
const CONFIRMATION_INTERVAL: Duration = Duration::from_secs(60);
/// Pause after a search in which no probe was answered. Each further pause is twice as long, up to
/// [`RAISE_INTERVAL`].
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Rate limit of all paths together: after a burst, one probe for each interval.
const PROBE_INTERVAL: Duration = Duration::from_millis(2);
const PROBE_BURST: u32 = 64;

/// Rate limit of the paths of one home address: after a burst, one probe for each interval.
const PROBE_INTERVAL_OF_ONE: Duration = Duration::from_millis(100);
const PROBE_BURST_OF_ONE: u32 = 64;
/// Number of home addresses in `paid_by` above which the station removes those that may send a full burst
/// again.
const MAX_PAYING: usize = 1024;

/// Local and remote end of a tunnel.
pub type Ends = (Endpoint, Endpoint);

/// Action that the station carries out for this module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// The effective MTU of this path has changed. The station installs the tunnel's entries again.
    Changed(Ends),
    /// The station sends this inner packet through the tunnel, unfragmented.
    Probe(Ends, Vec<u8>),
    /// The station reports the next packet that enters the tunnel with [`PathMtus::handle_traffic`].
    Watch(Ends),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The MTU of a Packet Too Big expires.
    Expiry,
    /// The home address of the path may send probes again, by its rate limit.
    Turn,
    /// A round of probes ends, or the next confirmation of the path MTU is due.
    Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
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
struct Path {
    end: TunnelEnd,
    /// Home addresses whose bindings use this path, and whether they transmit.
    bindings: SmallMap<Ipv6Addr, bool>,
    link: u32,
    /// Whether the path is in encrypted sessions.
    is_encrypted: bool,
    learnt: Option<NonZeroU32>,
    /// MTU from an ICMP message without proof. The next search tests it.
    hint: Option<NonZeroU32>,
    found: Option<NonZeroU32>,
    phase: Phase,
    /// The current search from its first round on. After its end the search stays, because an answer may be
    /// late.
    search: Option<Box<Search>>,
    queued: bool,
    round_trip: Option<RoundTrip>,
    /// Whether a packet has entered the path since its last search.
    used: bool,
    /// Whether a probe on this path was ever answered.
    answered: bool,
    silent: u8,
    raise_at: Time,
}

impl Path {
    /// Returns the largest size that a search may try.
    fn bound(&self) -> u32 {
        self.learnt.map_or(self.link, NonZeroU32::get).min(self.link)
    }

    fn effective(&self) -> u32 {
        self.found.map_or(u32::MAX, NonZeroU32::get).min(self.bound())
    }

    /// Returns the target size of a search that begins now.
    fn target(&self, now: Time) -> u32 {
        if self.raise_at <= now { self.bound() } else { self.effective() }
    }

    fn limits(&self, ends: Ends) -> Limits {
        Limits::of(ends.1, self.is_encrypted)
    }

    fn transmits(&self) -> bool {
        self.bindings.values().any(|transmit| *transmit)
    }
}

/// Counters of probing.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ProbeCounters {
    /// Number of probes sent.
    pub sent: u64,
    /// Number of probes answered.
    pub answered: u64,
}

/// MTUs of all paths.
#[derive(Debug)]
pub struct PathMtus {
    paths: HashMap<Ends, Path>,
    /// Home agent at the far end of the tunnels, by kind of tunnel. For direct routes, which have none, this
    /// station's own home address.
    home_agents: BTreeMap<TunnelEnd, Ipv6Addr>,
    timers: TimerTable<(Ends, Timer)>,
    /// Paths whose next round is due, in the order of their turns; each path is in the queue at most once.
    queue: VecDeque<Ends>,
    /// Time at which all paths together may send a full burst of probes again.
    paid_at: Time,
    /// Time at which the paths of each home address may send a full burst of probes again.
    paid_by: HashMap<Ipv6Addr, Time>,
    rng: Rng,
    orders: VecDeque<Order>,
    counters: ProbeCounters,
}

impl PathMtus {
    /// Creates the table without any path.
    pub fn new(rng: Rng) -> PathMtus {
        PathMtus {
            paths: HashMap::new(),
            home_agents: BTreeMap::new(),
            timers: TimerTable::new(),
            queue: VecDeque::new(),
            paid_at: Time::ZERO,
            paid_by: HashMap::new(),
            rng,
            orders: VecDeque::new(),
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

    /// Returns the next action that the station must carry out.
    pub fn poll_order(&mut self) -> Option<Order> {
        pop_and_shrink(&mut self.orders)
    }

    /// Returns when [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let queue = (!self.queue.is_empty()).then(|| self.paid_at - PROBE_INTERVAL * PROBE_BURST);
        self.timers.next_deadline().into_iter().chain(queue).min()
    }

    /// Returns the effective MTU of a path: the largest inner packet that passes without fragmentation.
    /// `None` for an unknown path.
    pub fn effective(&self, ends: Ends) -> Option<u32> {
        self.paths.get(&ends).map(Path::effective)
    }

    /// Returns this station's role, and the home addresses of the bindings that use a path; `None` for an
    /// unknown path.
    pub fn users(&self, ends: Ends) -> Option<(TunnelEnd, Vec<Ipv6Addr>)> {
        self.paths.get(&ends).map(|path| (path.end, path.bindings.keys().copied().collect()))
    }

    /// Adds the path of a tunnel, whose MTU is that of the link. Returns the effective MTU.
    pub fn admit(&mut self, now: Time, tunnel: &Tunnel) -> u32 {
        let ends = (tunnel.local, tunnel.remote);
        let path = self.paths.entry(ends).or_insert_with(|| Path {
            end: tunnel.end,
            bindings: SmallMap::new(),
            link: tunnel.mtu,
            is_encrypted: tunnel.session.is_some(),
            learnt: None,
            hint: None,
            found: None,
            phase: Phase::Asleep,
            search: None,
            queued: false,
            round_trip: None,
            used: false,
            answered: false,
            silent: 0,
            raise_at: now,
        });
        let transmitted = path.transmits();
        path.bindings.insert(tunnel.home_address, tunnel.transmit);
        let another_link = std::mem::replace(&mut path.link, tunnel.mtu) != tunnel.mtu;
        let effective = path.effective();
        if another_link {
            path.raise_at = now;
            if path.bindings.len() > 1 {
                self.orders.push_back(Order::Changed(ends));
            }
        }
        match (transmitted, path.transmits()) {
            (true, false) => self.rest(ends),
            (false, true) => self.begin(now, ends),
            (true, true) if another_link => self.begin(now, ends),
            _ => {}
        }
        effective
    }

    /// Removes the tunnel of a binding.
    pub fn remove(&mut self, ends: Ends, home_address: Ipv6Addr) {
        let Some(path) = self.paths.get_mut(&ends) else { return };
        path.bindings.remove(&home_address);
        if path.bindings.is_empty() {
            if path.queued {
                self.queue.retain(|queued| *queued != ends);
            }
            self.paths.remove(&ends);
            for timer in [Timer::Expiry, Timer::Turn, Timer::Step] {
                self.timers.stop((ends, timer));
            }
        } else if !path.transmits() {
            self.rest(ends);
        }
    }

    /// Handles a Packet Too Big about a packet that was provably ours; `mtu` excludes the outer header.
    pub fn handle_too_big(&mut self, now: Time, ends: Ends, mtu: u32) {
        let Some(path) = self.paths.get_mut(&ends) else { return };
        let mtu = mtu.max(path.limits(ends).base);
        if mtu > path.bound() || (mtu == path.bound() && path.learnt.is_none()) {
            return;
        }
        // RFC 8201 4: each Packet Too Big starts the lifetime of the path MTU anew.
        self.timers.set((ends, Timer::Expiry), now + LEARNT_LIFETIME);
        if path.learnt == NonZeroU32::new(mtu) {
            return;
        }
        let before = path.effective();
        path.learnt = NonZeroU32::new(mtu);
        if path.effective() != before {
            self.orders.push_back(Order::Changed(ends));
        }
        // RFC 8899 4.6.2: the search continues below the reported size.
        if path.phase == Phase::Searching || path.effective() != before {
            self.begin(now, ends);
        }
    }

    /// Handles an ICMP message without proof that outer packets of at most `mtu` octets pass. Starts a search
    /// that tests the present size and the reported size (RFC 8899 4.6.2).
    pub fn handle_hint(&mut self, now: Time, ends: Ends, mtu: u32) {
        let Some(path) = self.paths.get_mut(&ends) else { return };
        let limits = path.limits(ends);
        let size = limits.inner(mtu).max(limits.base);
        if size >= path.effective() || path.phase == Phase::Searching {
            return;
        }
        path.hint = NonZeroU32::new(size);
        self.begin(now, ends);
    }

    /// Handles an inner packet from a tunnel that is addressed to this station. Returns whether it was the
    /// answer to a probe, which needs no other receiver.
    pub fn handle_inner(&mut self, now: Time, ends: Ends, packet: &[u8]) -> bool {
        let Some(answer) = probe::parse_answer(packet) else { return false };
        let Some(path) = self.paths.get_mut(&ends) else { return false };
        let Some(search) = path.search.as_mut().filter(|search| search.token() == answer.token) else {
            return false;
        };
        let Some(sample) = search.handle_answer(now, answer.round, answer.size) else { return true };
        let target = search.target();
        self.counters.answered += 1;
        path.round_trip = Some(RoundTrip::with(path.round_trip, sample));
        path.answered = true;
        if path.phase == Phase::Searching {
            if answer.size == target {
                self.conclude(now, ends, target);
            }
        } else if answer.size > path.effective() && answer.size <= path.bound() {
            // The answer arrived after the end of its search, but it still proves that the size passes.
            path.found = NonZeroU32::new(answer.size).filter(|size| size.get() < path.bound());
            self.orders.push_back(Order::Changed(ends));
        }
        true
    }

    /// Returns the paths on which the mobile router probes towards this home agent.
    pub fn towards(&self, home_agent: Ipv6Addr) -> Vec<Ends> {
        let remote = Endpoint::from(home_agent);
        let of_router = |(ends, path): (&Ends, &Path)| {
            (path.end == TunnelEnd::MobileRouter && ends.1 == remote).then_some(*ends)
        };
        self.paths.iter().filter_map(of_router).collect()
    }

    /// Handles a packet that entered a watched tunnel.
    pub fn handle_traffic(&mut self, now: Time, ends: Ends) {
        let Some(path) = self.paths.get_mut(&ends) else { return };
        path.used = true;
        if path.phase == Phase::Asleep && path.transmits() {
            self.begin(now, ends);
        }
    }

    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some((ends, timer)) = self.timers.pop_expired(now) {
            match timer {
                Timer::Expiry => self.expire(now, ends),
                Timer::Turn => self.enqueue(ends),
                Timer::Step => self.step(now, ends),
            }
        }
        self.send(now);
    }

    /// Sends the rounds of probes that are due, within the rate limits.
    pub fn send(&mut self, now: Time) {
        while self.paid_at <= now + PROBE_INTERVAL * PROBE_BURST
            && let Some(ends) = pop_and_shrink(&mut self.queue)
        {
            let Some(path) = self.paths.get_mut(&ends) else { continue };
            path.queued = false;
            if path.phase != Phase::Searching {
                continue;
            }
            let Some(home_address) = path.bindings.keys().next().copied() else { continue };
            let turn = self
                .paid_by
                .get(&home_address)
                .map(|paid| *paid - PROBE_INTERVAL_OF_ONE * PROBE_BURST_OF_ONE);
            if let Some(turn) = turn.filter(|turn| *turn > now) {
                self.timers.set((ends, Timer::Turn), turn);
                continue;
            }
            if path.search.is_none() {
                // Create the search only now, to save memory: if a home agent has just started, very many
                // paths wait in the queue.
                let (target, current) = (path.target(now), path.effective());
                let known = path.hint.take().map_or(current, NonZeroU32::get);
                let limits = Limits::of(ends.1, path.is_encrypted);
                let search = Search::new(self.rng.u64(), limits, target, known);
                path.search = Some(Box::new(search));
            }
            let Some(search) = path.search.as_mut() else { continue };
            let (round, sizes) = search.begin_round(now);
            let token = search.token();
            self.timers.set((ends, Timer::Step), now + search.timeout(path.round_trip));
            let Some(home_agent) = self.home_agents.get(&path.end).copied() else { continue };
            let of_one = PROBE_INTERVAL_OF_ONE * u32::try_from(sizes.len()).unwrap_or(u32::MAX);
            if self.paid_by.len() >= MAX_PAYING {
                self.paid_by.retain(|_, paid| *paid > now);
            }
            let paid = self.paid_by.entry(home_address).or_insert(now);
            *paid = (*paid).max(now) + of_one;
            let (source, destination) = match path.end {
                TunnelEnd::HomeAgent | TunnelEnd::Direct => (home_agent, home_address),
                TunnelEnd::MobileRouter => (home_address, home_agent),
            };
            for size in sizes {
                let probe = probe::Answer { token, round, size };
                self.orders.push_back(Order::Probe(ends, probe::emit(source, destination, probe)));
                self.counters.sent += 1;
                self.paid_at = self.paid_at.max(now) + PROBE_INTERVAL;
            }
        }
    }

    /// Starts a search from the beginning.
    fn begin(&mut self, now: Time, ends: Ends) {
        let Some(path) = self.paths.get_mut(&ends) else { return };
        let base = path.limits(ends).base;
        if path.bound() <= base || !path.transmits() {
            return self.rest(ends);
        }
        if path.target(now) <= base {
            return self.settle(now, ends, CONFIRMATION_INTERVAL);
        }
        path.search = None;
        path.phase = Phase::Searching;
        self.timers.stop((ends, Timer::Turn));
        self.timers.stop((ends, Timer::Step));
        self.enqueue(ends);
    }

    fn enqueue(&mut self, ends: Ends) {
        if let Some(path) = self.paths.get_mut(&ends)
            && !std::mem::replace(&mut path.queued, true)
        {
            self.queue.push_back(ends);
        }
    }

    /// Stops the probes on a path until a packet enters it.
    fn rest(&mut self, ends: Ends) {
        if let Some(path) = self.paths.get_mut(&ends) {
            path.phase = Phase::Asleep;
            self.timers.stop((ends, Timer::Turn));
            self.timers.stop((ends, Timer::Step));
        }
    }

    fn step(&mut self, now: Time, ends: Ends) {
        let Some(path) = self.paths.get_mut(&ends) else { return };
        match path.phase {
            Phase::Asleep => {}
            Phase::Settled if path.used => self.begin(now, ends),
            // Do not order another watch of the tunnel, because the forwarder already reports its next
            // packet.
            Phase::Settled => {
                path.phase = Phase::Asleep;
                // Remove the search, because no further answer to it can arrive.
                path.search = None;
            }
            Phase::Searching => match path.search.as_ref().map_or(Judgement::Silent, |search| search.judge())
            {
                Judgement::Open => self.enqueue(ends),
                Judgement::Carries(size) => self.conclude(now, ends, size),
                Judgement::Silent => {
                    path.silent = path.silent.saturating_add(1);
                    let doubled = RETRY_INTERVAL * 2_u32.saturating_pow(u32::from(path.silent.min(8)) - 1);
                    self.settle(now, ends, doubled.min(RAISE_INTERVAL));
                }
                Judgement::Unclear => self.settle(now, ends, CONFIRMATION_INTERVAL),
            },
        }
    }

    /// Ends a search that has shown that the path carries `size`. The path carries no larger packet, unless
    /// `size` is the target.
    fn conclude(&mut self, now: Time, ends: Ends, size: u32) {
        let Some(path) = self.paths.get_mut(&ends) else { return };
        let before = path.effective();
        let target = path.search.as_ref().map_or(path.limits(ends).base, |search| search.target());
        if size < target {
            path.found = NonZeroU32::new(size);
            path.raise_at = now + RAISE_INTERVAL;
        } else if size >= path.bound() {
            path.found = None;
            path.raise_at = now + RAISE_INTERVAL;
        }
        path.silent = 0;
        if path.effective() != before {
            self.orders.push_back(Order::Changed(ends));
        }
        self.settle(now, ends, CONFIRMATION_INTERVAL);
    }

    fn settle(&mut self, now: Time, ends: Ends, interval: Duration) {
        let Some(path) = self.paths.get_mut(&ends) else { return };
        path.phase = Phase::Settled;
        path.used = false;
        let pause = self.rng.duration(interval * 3 / 4, interval * 5 / 4);
        self.timers.set((ends, Timer::Step), now + pause);
        self.orders.push_back(Order::Watch(ends));
    }

    /// Ends the effect of Packet Too Big. If the path answers probes, a probe must succeed before the traffic
    /// uses a larger size.
    fn expire(&mut self, now: Time, ends: Ends) {
        let Some(path) = self.paths.get_mut(&ends) else { return };
        let before = path.effective();
        path.learnt = None;
        path.raise_at = now;
        if path.answered && path.silent == 0 {
            path.found = NonZeroU32::new(before).filter(|size| size.get() < path.bound());
        }
        if path.effective() != before {
            self.orders.push_back(Order::Changed(ends));
        }
        self.begin(now, ends);
    }
}

#[cfg(test)]
mod tests;
