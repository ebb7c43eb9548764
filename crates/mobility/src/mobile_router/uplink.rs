//! One uplink: its usable addresses and routers, and the solicitation of routers on it.
//!
//! An uplink is *attached* when its link is running and it has a *candidate*: a usable address with a default
//! router of the same family by which its packets can leave ([`candidate`](super::candidate) has the order).
//! IPv4 counts if the home agent has an IPv4 address (RFC 5555). The first candidate is the care-of address;
//! another one takes its place at once if the home agent does not answer over it.
//!
//! Movement detection (RFC 6275 11.5.1) rests on the kernel's own: carrier, addresses that stateless
//! autoconfiguration adds and lets expire, default routers that the kernel learns and loses, and its
//! neighbour entries. Besides:
//!
//! * carnet sends a Router Solicitation when a link comes up, when a path falls silent, and when a router no
//!   longer answers. It sends one to a single router that omits a prefix (see `heard`).
//! * When a router is heard for the first time, carnet sends Neighbor Solicitations to the router in use
//!   (Neighbor Unreachability Detection, RFC 4861 7.3, which 11.5.1 requires).
//! * On the home link, where no heartbeats run, carnet solicits the router that advertises the home prefix at
//!   an interval. Otherwise a move without loss of carrier would show only with the next Router Advertisement
//!   of the new link. As soon as an answer is late, carnet sends a Router Solicitation (see
//!   [`reachability`](super::reachability)).
//!
//! An uplink is on the home link if a router there advertises the home prefix now, or if the operator has
//! configured an address in it on the interface. `home_network` handles home prefixes that contain mobile
//! networks.
//!
//! If the default router is a mobile router, `parent` decides whether it can be this router's parent, and
//! [`crate::nesting`] which addresses of the visited link before it this router may use. Such a *direct*
//! care-of address is preferred.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{Address, Interface, LinkMessage, NeighbourState, RateLimiter, Time};
use carnet_wire::{icmpv6, nd};
use ipnet::Ipv6Net;

use super::MobileRouterConfig;
use super::candidate::{Candidate, FailedCandidates, candidates, ipv4_candidates, is_usable_ipv4};
use super::capacity::Gauge;
use super::captive_portal::{CaptivePortal, PortalProbes};
use super::heard::Heard;
use super::liveness::PathState;
use super::parent::{Parent, Parents};
use super::quality::SignalThresholds;
use super::reachability::{Due, Reachability};
use super::volume::{Meter, VolumeAction, VolumePeriod};
use crate::{UDP_PORT, is_unicast_routable};

/// Pause between the first Router Solicitation and the next. RFC 4861 6.3.7 recommends 4 s. A bridge that has
/// just given carrier may lose the first, and 4 s would be the longest part of a move.
const SOLICITATION_INTERVAL: Duration = Duration::from_millis(500);
/// Longest pause between Router Solicitations, up to which the pause doubles while no router answers (in the
/// manner of RFC 7559).
const MAX_SOLICITATION_INTERVAL: Duration = Duration::from_secs(64);
/// Least time between two Router Solicitations to routers that omit a prefix. Answers within 300 ms may be a
/// part of the same advertisement, so one solicitation may be too few.
const QUESTION_INTERVAL: Duration = Duration::from_millis(100);

/// Reason for which an uplink is down, or traffic moves.
pub(super) const VOLUME_USED_UP: &str = "the volume is used up";
const HOME_ROUTER_SILENT: &str = "the router of the home link does not answer";
/// Pause between an answer of the home link's router and the next solicitation. With heartbeats a move is
/// detected within 0.5 s if a router of the new link answers, otherwise within 1.45 s. Without heartbeats it
/// takes 0.75 s longer.
const HOME_PROBE_INTERVAL: Duration = Duration::from_millis(250);
const HOME_PROBE_INTERVAL_WITHOUT_HEARTBEATS: Duration = Duration::from_secs(1);
/// Most routers whose routes an uplink's own routing tables hold at a time.
pub const MAX_NEXT_HOPS: usize = 4;

/// The operator's config of an uplink.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UplinkConfig {
    /// Interface name.
    pub interface: String,
    /// Priority; the lower value wins.
    pub priority: u32,
    /// Binding Identifier (RFC 5648), not 0. Without one the uplink shares the plain binding with all such
    /// uplinks.
    pub bid: Option<u16>,
    /// Signal thresholds at which the router takes and leaves the uplink.
    pub signal: Option<SignalThresholds>,
    /// Time for which a signal counts that is not renewed; `None` for ever.
    pub signal_timeout: Option<Duration>,
    /// Octets that the uplink may carry in a period.
    pub volume: Option<u64>,
    /// Period of the volume, and of the count.
    pub volume_period: VolumePeriod,
    /// Action once the volume is used up.
    pub volume_action: VolumeAction,
    /// Whether the uplink is not used while its modem is in another operator's network.
    pub never_roams: bool,
    /// Cost: of two uplinks of one priority the one with the lower cost is better.
    pub cost: u32,
    /// Capacity in kbit/s: until it is measured, and at most.
    pub capacity: Option<u32>,
}

/// Attachment of an uplink to the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachment {
    /// Not usable, with the reason.
    Down(&'static str),
    /// On a foreign link; at least one of the families can be used.
    Foreign {
        /// IPv6 care-of address and its default router.
        ipv6: Option<(Ipv6Addr, Ipv6Addr)>,
        /// IPv4 care-of address and its default router; `0.0.0.0` if the default route has no gateway.
        ipv4: Option<(Ipv4Addr, Ipv4Addr)>,
    },
    /// On the home link.
    Home {
        /// Default router there, if any.
        router: Option<Ipv6Addr>,
    },
}

/// State of an uplink.
#[derive(Debug)]
pub struct Uplink {
    /// The operator's config.
    pub config: UplinkConfig,
    /// Current attachment.
    pub attachment: Attachment,
    /// Time before which no working uplink is given up for this one, because it has only just come back.
    pub settles_at: Time,
    /// Time until which other uplinks come first, because the home agent did not answer over this one.
    pub demoted_until: Option<Time>,
    /// Interface as last reported.
    interface: Option<Interface>,
    /// Prefixes advertised since the link came up.
    heard: Heard,
    /// Mobile routers that have advertised since the link came up.
    parents: Parents,
    /// Addresses of a link before the parent's that this router has on this interface, the preferred one
    /// first, with whether each may be used.
    direct: Vec<(Ipv6Addr, bool)>,
    /// Captive portal that a router of the link has announced since it came up.
    pub(super) portal: Option<CaptivePortal>,
    /// Results of probes over the uplink since it came up.
    pub(super) portal_probes: PortalProbes,
    /// Addresses of the link itself with their routers, the best first.
    candidates: Vec<Candidate<Ipv6Addr>>,
    ipv4_candidates: Vec<Candidate<Ipv4Addr>>,
    /// Candidates over which the home agent did not answer.
    failed: FailedCandidates,
    /// Routers with a routing table of their own, by its number among the uplink's: packets of several
    /// care-of addresses leave by several routers at once.
    next_hops: [Option<Ipv6Addr>; MAX_NEXT_HOPS],
    /// IPv4 routers with a routing table of their own; unspecified for a default route without gateway.
    ipv4_next_hops: [Option<Ipv4Addr>; MAX_NEXT_HOPS],
    /// Reachability of the routers.
    reachability: Reachability,
    /// Whether routers are solicited until one is heard.
    seeking: bool,
    /// A candidate has appeared.
    renewed: bool,
    /// Router that advertises the home prefix here now.
    home_router: Option<Ipv6Addr>,
    /// Whether a router here has advertised the home prefix since the interface is known.
    home_was_advertised: bool,
    /// Number of Router Solicitations since the link came up.
    solicitations: u32,
    /// Rate of solicitations to routers that omit a prefix.
    questions: RateLimiter,
    /// Care-of address over which the home agent did not answer, while it answered over the other family's.
    pub(super) lost: Option<IpAddr>,
    /// Whether packets in protocol 41 are lost here, so that the router asks for UDP (RFC 5555 4.4.1).
    pub(super) needs_udp: bool,
    /// This router's UDP port here: `UDP_PORT`, or another one if a second uplink has the same IPv4 address,
    /// as behind NATs of one make. The ends of their tunnels then differ. The home agent accepts any port
    /// (RFC 5555 4.1).
    pub udp_port: u16,
    /// Last reported signal strength in dBm; `None` once the report is too old.
    pub signal: Option<i32>,
    /// Time of the last report.
    pub(super) signal_at: Time,
    /// Whether the signal fell below its threshold and has not been good since.
    pub poor: bool,
    /// Whether there has been a reading.
    pub(super) judged: bool,
    /// Octets that the uplink has carried.
    pub used: u64,
    pub(super) meter: Meter,
    pub(super) gauge: Gauge,
    /// Capacity in kbit/s, configured or measured.
    pub capacity: Option<u32>,
    /// Whether the uplink has only just come up while another works.
    pub(super) settling: bool,
    /// Whether the modem is in another operator's network; `None` if unknown.
    pub roaming: Option<bool>,
    /// Path to the home agent over the uplink.
    pub(super) path: PathState,
}

impl Uplink {
    pub(super) fn new(config: UplinkConfig, path: PathState) -> Self {
        Uplink {
            capacity: config.capacity,
            config,
            attachment: Attachment::Down("no such interface"),
            settles_at: Time::ZERO,
            demoted_until: None,
            interface: None,
            heard: Heard::default(),
            parents: Parents::default(),
            direct: Vec::new(),
            portal: None,
            portal_probes: PortalProbes::default(),
            candidates: Vec::new(),
            ipv4_candidates: Vec::new(),
            failed: FailedCandidates::default(),
            next_hops: [None; MAX_NEXT_HOPS],
            ipv4_next_hops: [None; MAX_NEXT_HOPS],
            reachability: Reachability::default(),
            seeking: false,
            renewed: false,
            home_router: None,
            home_was_advertised: false,
            solicitations: 0,
            questions: RateLimiter::new(2, QUESTION_INTERVAL),
            lost: None,
            needs_udp: false,
            udp_port: UDP_PORT,
            signal: None,
            signal_at: Time::ZERO,
            poor: false,
            judged: false,
            used: 0,
            meter: Meter::default(),
            gauge: Gauge::default(),
            settling: false,
            roaming: None,
            path,
        }
    }

    /// Returns the octets that the uplink has carried in this period; `None` before counting has begun.
    pub fn volume_used(&self) -> Option<u64> {
        self.meter.volume.as_ref().map(|_| self.used)
    }

    /// Returns the URI of the captive portal that a probe was redirected to, otherwise of the one that a
    /// router of the link announces.
    pub fn captive_portal(&self) -> Option<&str> {
        let announced = self.portal.as_ref().map(|portal| portal.uri.as_str());
        self.portal_probes.found.as_deref().or(announced)
    }

    /// Returns the IPv6 care-of address, if there is one.
    pub fn care_of_address(&self) -> Option<Ipv6Addr> {
        match self.attachment {
            Attachment::Foreign { ipv6, .. } => ipv6.map(|(address, _)| address),
            _ => None,
        }
    }

    /// Returns the IPv4 care-of address, if there is one.
    pub fn ipv4_care_of_address(&self) -> Option<Ipv4Addr> {
        match self.attachment {
            Attachment::Foreign { ipv4, .. } => ipv4.map(|(address, _)| address),
            _ => None,
        }
    }

    /// Returns every care-of address, the one to be registered first. IPv6 comes before IPv4 (RFC 5555 4.4.1)
    /// unless the home agent did not answer over IPv6; a direct one comes before that of the link itself,
    /// then the other candidates. In each family failed addresses come last.
    pub fn care_of_addresses(&self) -> Vec<IpAddr> {
        let mut ipv6: Vec<IpAddr> = Vec::new();
        let direct = self.direct_alternates();
        let candidates = self.ipv6_candidates().iter().map(|candidate| candidate.address);
        for address in self.care_of_address().into_iter().chain(direct.iter().copied()).chain(candidates) {
            if !ipv6.contains(&IpAddr::V6(address)) {
                ipv6.push(IpAddr::V6(address));
            }
        }
        ipv6.sort_by_key(|address| self.has_failed(*address));
        let known = self.ipv4_candidates.iter().map(|candidate| IpAddr::V4(candidate.address));
        let ipv4: Vec<IpAddr> = known.filter(|_| self.ipv4_care_of_address().is_some()).collect();
        // RFC 8305 4: the families alternate. Direct addresses go together with the first.
        let ipv6_leads = !self.lost.is_some_and(|lost| lost.is_ipv6());
        let together = 1 + direct.len();
        let (mut first, mut second) = (ipv6.into_iter(), ipv4.into_iter());
        let mut all = Vec::new();
        if ipv6_leads {
            all.extend(first.by_ref().take(together));
            all.extend(second.by_ref().take(1));
        } else {
            all.extend(second.by_ref().take(1));
            all.extend(first.by_ref().take(together));
        }
        all.extend(first.chain(second));
        all
    }

    /// Returns the candidates of the link itself; none if IPv6 cannot be used.
    fn ipv6_candidates(&self) -> &[Candidate<Ipv6Addr>] {
        if self.care_of_address().is_some() { &self.candidates } else { &[] }
    }

    /// Whether the home agent did not answer over a care-of address with its current router.
    fn has_failed(&self, address: IpAddr) -> bool {
        self.failed.contains(address, self.next_hop(address))
    }

    /// Returns the alternatives to a direct care-of address: other direct ones, and that of the link itself.
    /// A registration there still works until the new address is registered.
    fn direct_alternates(&self) -> Vec<Ipv6Addr> {
        let (Some(in_use), Some(interface)) = (self.care_of_address(), &self.interface) else {
            return Vec::new();
        };
        let is_direct = |address: &Ipv6Addr| self.direct.iter().any(|(direct, _)| direct == address);
        let direct = self.direct.iter().filter(|(_, usable)| *usable).map(|(address, _)| *address);
        let there = |address: &Ipv6Addr| interface.addresses.iter().any(|a| a.address == *address);
        let direct: Vec<Ipv6Addr> = direct.filter(|address| *address != in_use && there(address)).collect();
        let plain = self.plain_address().filter(|plain| is_direct(&in_use) && *plain != in_use);
        direct.into_iter().chain(plain).collect()
    }

    /// Returns the best address of the link itself.
    fn plain_address(&self) -> Option<Ipv6Addr> {
        self.candidates.first().map(|candidate| candidate.address)
    }

    /// Returns the router that packets from a care-of address leave by.
    pub fn next_hop(&self, address: IpAddr) -> Option<IpAddr> {
        match address {
            IpAddr::V6(address) => {
                let own = self.candidates.iter().find(|candidate| candidate.address == address);
                own.map(|candidate| candidate.router).or(self.router()).map(IpAddr::V6)
            }
            IpAddr::V4(address) => {
                let own = self.ipv4_candidates.iter().find(|candidate| candidate.address == address);
                own.map(|candidate| IpAddr::V4(candidate.router))
            }
        }
    }

    /// Returns the routers that IPv6 care-of addresses leave by, each with the number of its table among the
    /// uplink's.
    pub fn next_hops(&self) -> impl Iterator<Item = (usize, Ipv6Addr)> {
        let known = self.next_hops.iter().enumerate();
        known.filter_map(|(number, router)| router.map(|router| (number, router)))
    }

    /// Returns the routers that IPv4 care-of addresses leave by, each with the number of its table among the
    /// uplink's; unspecified for a default route without gateway.
    pub fn ipv4_next_hops(&self) -> impl Iterator<Item = (usize, Ipv4Addr)> {
        let known = self.ipv4_next_hops.iter().enumerate();
        known.filter_map(|(number, router)| router.map(|router| (number, router)))
    }

    /// Returns the number of the table that packets from a care-of address are routed by.
    pub fn table_of(&self, address: IpAddr) -> usize {
        let router = self.next_hop(address);
        let number = match address {
            IpAddr::V6(_) => self.next_hops.iter().position(|known| known.map(IpAddr::V6) == router),
            IpAddr::V4(_) => self.ipv4_next_hops.iter().position(|known| known.map(IpAddr::V4) == router),
        };
        number.unwrap_or(0)
    }

    /// Gives each router in use a table, and lets those in use keep theirs: a packet never leaves by the
    /// router of another address while tables change.
    fn assign_tables(&mut self) {
        let mut wanted: Vec<Ipv6Addr> = self.router().into_iter().collect();
        if matches!(self.attachment, Attachment::Foreign { ipv6: Some(_), .. }) {
            wanted.extend(self.candidates.iter().map(|candidate| candidate.router));
        }
        assign(&mut self.next_hops, &wanted);
        let ipv4: Vec<Ipv4Addr> = self.ipv4_candidates.iter().map(|candidate| candidate.router).collect();
        assign(&mut self.ipv4_next_hops, &ipv4);
    }

    /// Handles a care-of address over which the home agent does not answer: its candidate comes last from now
    /// on. Returns true if another candidate of the family has not failed.
    pub(super) fn candidate_failed(
        &mut self,
        now: Time,
        address: IpAddr,
        config: &MobileRouterConfig,
    ) -> bool {
        let is_first = self.failed.add(now, address, self.next_hop(address));
        if address.is_ipv6() {
            self.seek(is_first);
        }
        self.attach(config);
        let mut family = self.care_of_addresses().into_iter().filter(|it| it.is_ipv6() == address.is_ipv6());
        family.any(|other| !self.has_failed(other))
    }

    /// Records that the home agent has answered over one care-of address, and not over `losers`, which were
    /// tried before (RFC 8305 5).
    pub(super) fn race_decided(&mut self, now: Time, winner: IpAddr, losers: impl Iterator<Item = IpAddr>) {
        self.failed.remove(winner, self.next_hop(winner));
        if self.lost.is_some_and(|lost| lost.is_ipv6() == winner.is_ipv6()) {
            self.lost = None;
        }
        for loser in losers.filter(|loser| *loser != winner) {
            self.failed.add(now, loser, self.next_hop(loser));
            if loser.is_ipv6() != winner.is_ipv6() {
                self.lost = Some(loser);
            }
        }
    }

    /// Whether a candidate has failed and another has not been tried since.
    pub(super) fn has_untried_candidate(&self) -> bool {
        let all = self.care_of_addresses();
        let first = all.first().is_some_and(|first| !self.has_failed(*first));
        first && all.iter().any(|address| self.has_failed(*address))
    }

    /// Whether a candidate has appeared since the last call, so that earlier knowledge is about another
    /// network.
    pub(super) fn take_renewed(&mut self) -> bool {
        std::mem::take(&mut self.renewed)
    }

    /// Lets every candidate be tried again.
    pub(super) fn forgive(&mut self, config: &MobileRouterConfig) {
        self.failed = FailedCandidates::default();
        self.attach(config);
    }

    /// Returns the router in use if it does not answer, which explains the home agent's silence.
    pub fn silent_router(&self) -> Option<IpAddr> {
        let first = self.care_of_addresses().first().copied()?;
        match self.next_hop(first)? {
            IpAddr::V6(router) => self.heard.is_unreachable(router).then_some(IpAddr::V6(router)),
            IpAddr::V4(router) => {
                let mut known = self.interface.as_ref()?.ipv4_routers.iter();
                known
                    .any(|known| known.gateway == router && known.neighbour == NeighbourState::Failed)
                    .then_some(IpAddr::V4(router))
            }
        }
    }

    /// Whether the uplink has this care-of address.
    pub fn has_care_of_address(&self, address: IpAddr) -> bool {
        self.care_of_addresses().contains(&address)
    }

    /// Returns the IPv6 default router, if there is one.
    pub fn router(&self) -> Option<Ipv6Addr> {
        match self.attachment {
            Attachment::Foreign { ipv6, .. } => ipv6.map(|(_, router)| router),
            Attachment::Home { router } => router,
            Attachment::Down(_) => None,
        }
    }

    /// Returns the default router here, if it is a mobile router.
    pub fn parent(&self) -> Option<&Parent> {
        self.parents.of(self.router()?)
    }

    /// Returns the network of the plain care-of address's link, if its prefix length is 64.
    pub fn link_network(&self) -> Option<Ipv6Addr> {
        let plain = self.plain_address()?;
        let known = self.interface.as_ref()?.addresses.iter().find(|a| a.address == plain)?;
        (known.prefix_length == 64).then(|| Ipv6Net::new(plain, 64).ok().map(|net| net.network())).flatten()
    }

    /// Whether the care-of address is one of a link before the parent's.
    pub fn is_direct(&self) -> bool {
        self.care_of_address().is_some_and(|in_use| self.direct.iter().any(|(it, _)| *it == in_use))
    }

    /// Sets the direct addresses; returns true if that changes anything.
    pub(super) fn set_direct(&mut self, direct: Vec<(Ipv6Addr, bool)>, config: &MobileRouterConfig) -> bool {
        if self.direct == direct {
            return false;
        }
        self.direct = direct;
        self.attach(config);
        true
    }

    /// Returns the link MTU in octets; 1280 while it is unknown.
    pub fn mtu(&self) -> u32 {
        let link = self.interface.as_ref().map_or(1280, |i| i.mtu.max(1280));
        // RFC 4861 6.3.4. Behind a mobile router it is the MTU that fits into that router's tunnel.
        let told = self.router().and_then(|router| self.heard.mtu(router));
        told.filter(|told| (1280..link).contains(told)).unwrap_or(link)
    }

    /// Returns the 48-bit link-layer address, if there is one.
    pub fn link_address(&self) -> Option<[u8; 6]> {
        self.interface.as_ref().and_then(|i| i.link_address)
    }

    /// Whether the interface has an address, which shows whether an old care-of address still exists.
    pub fn has_address(&self, address: IpAddr) -> bool {
        let Some(interface) = self.interface.as_ref().filter(|i| i.running) else { return false };
        match address {
            IpAddr::V6(address) => interface.addresses.iter().any(|a| a.address == address && !a.duplicate),
            IpAddr::V4(address) => interface.ipv4_addresses.iter().any(|known| known.addr() == address),
        }
    }

    /// Takes over the knowledge about the same interface under an earlier configuration.
    pub(super) fn adopt(&mut self, old: &Uplink, config: &MobileRouterConfig) {
        self.attachment = old.attachment;
        self.settles_at = old.settles_at;
        self.interface.clone_from(&old.interface);
        self.heard.clone_from(&old.heard);
        self.parents.clone_from(&old.parents);
        self.direct.clone_from(&old.direct);
        self.portal.clone_from(&old.portal);
        if config.probes_portals {
            self.portal_probes.clone_from(&old.portal_probes);
        }
        self.candidates.clone_from(&old.candidates);
        self.ipv4_candidates.clone_from(&old.ipv4_candidates);
        self.next_hops = old.next_hops;
        self.ipv4_next_hops = old.ipv4_next_hops;
        self.reachability.adopt(&old.reachability);
        self.home_was_advertised = old.home_was_advertised;
        self.solicitations = old.solicitations;
        self.lost = old.lost;
        self.needs_udp = old.needs_udp;
        self.signal = old.signal;
        self.signal_at = old.signal_at;
        self.poor = old.poor && self.config.signal.is_some();
        self.judged = old.judged;
        self.used = old.used;
        self.meter = old.meter.clone();
        self.udp_port = old.udp_port;
        self.gauge = old.gauge;
        self.capacity =
            old.capacity.filter(|_| self.config.capacity == old.config.capacity).or(self.capacity);
        self.settling = old.settling;
        self.roaming = old.roaming;
        self.attach(config);
    }

    /// Takes over the interface's state. Returns true if a Router Solicitation is due: the link has just come
    /// up, a router no longer answers, or the link-local address has become usable. A router answers a
    /// solicitation without source by multicast, at most once in 3 s (RFC 4861 6.2.6).
    pub(super) fn handle_interface(&mut self, interface: Interface, config: &MobileRouterConfig) -> bool {
        let was_running = self.interface.as_ref().is_some_and(|i| i.running);
        let came_up = interface.running && !was_running;
        if came_up {
            self.link_changed();
        }
        let had_link_local = self.link_local().is_some();
        let mut failed = false;
        for router in &interface.routers {
            let before = self.interface.iter().flat_map(|known| &known.routers);
            let before = before.into_iter().find(|known| known.gateway == router.gateway);
            if came_up || before.is_none_or(|before| before.neighbour != router.neighbour) {
                failed |= self.heard.neighbour_changed(router.gateway, router.neighbour);
            }
        }
        self.interface = Some(interface);
        self.seeking |= failed;
        let has_source = !had_link_local && self.link_local().is_some();
        if has_source {
            self.solicitations = 0;
        }
        self.attach(config);
        came_up || failed || has_source
    }

    /// Clears the knowledge about the link, because the network may be another one.
    fn link_changed(&mut self) {
        self.heard.clear();
        self.parents.clear();
        self.portal = None;
        self.portal_probes = PortalProbes::default();
        self.failed = FailedCandidates::default();
        self.reachability = Reachability::default();
        self.seeking = false;
        self.solicitations = 0;
    }

    pub(super) fn handle_gone(&mut self) {
        self.interface = None;
        self.link_changed();
        self.home_was_advertised = false;
        self.candidates.clear();
        self.ipv4_candidates.clear();
        self.home_router = None;
        self.attachment = Attachment::Down("no such interface");
        self.assign_tables();
    }

    /// Takes over a Router Advertisement. Returns a Router Solicitation to that router if it may have been
    /// renumbered.
    pub(super) fn handle_router_advertisement(
        &mut self,
        now: Time,
        message: &LinkMessage,
        config: &MobileRouterConfig,
    ) -> Option<LinkMessage> {
        let advertisement = nd::RouterAdvertisement::parse(&message.message).ok()?;
        self.portal = CaptivePortal::after(self.portal.take(), message.source, advertisement.options());
        let in_use = self.router();
        let advertised = self.heard.advertised(now, message, &advertisement, in_use);
        self.home_was_advertised |=
            self.heard.advertiser(&[], |prefix| config.is_home_link(*prefix)).is_some();
        self.seeking = false;
        self.parents.note(message, &advertisement, in_use);
        self.reachability.heard(now, message.source, advertised.before, in_use);
        self.attach(config);
        // The answer may omit the prefix again.
        let asks = advertised.omits && self.questions.allow(now);
        if asks { self.router_solicitation(Some(message.source)) } else { None }
    }

    /// Handles a neighbour's answer to a Neighbor Solicitation (RFC 4861 7.2.5).
    pub(super) fn handle_neighbor_advertisement(
        &mut self,
        now: Time,
        message: &LinkMessage,
        config: &MobileRouterConfig,
    ) {
        let Ok(advertisement) = nd::NeighborAdvertisement::parse(&message.message) else { return };
        if advertisement.solicited
            && self.reachability.answered(now, advertisement.target)
            && self.heard.answered(advertisement.target)
        {
            self.attach(config);
        }
    }

    /// Solicits routers until one is heard, because a path has fallen silent. The pauses begin anew only if
    /// the home agent has answered over that path since they began.
    fn seek(&mut self, is_first: bool) {
        self.seeking = true;
        if is_first {
            self.solicitations = 0;
        }
    }

    /// Sets when the router that advertises the home prefix is solicited next, and stops the probe of a home
    /// link that was left.
    pub(super) fn watch_home_router(&mut self, now: Time, config: &MobileRouterConfig) {
        self.reachability.watch_home_router(now, self.home_router, home_probe_interval(config));
    }

    /// Returns when [`Self::handle_timeout`] is due.
    pub(super) fn deadline(&self) -> Option<Time> {
        [self.reachability.deadline(), self.heard.deadline(), self.failed.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Returns the solicitations that are due to routers whose presence is in doubt, and records missing
    /// answers. The flag is true if routers are to be solicited until one is heard.
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        config: &MobileRouterConfig,
    ) -> ([Option<LinkMessage>; 2], bool) {
        let mut lost = self.heard.expire(now);
        let mut messages = [None, None];
        match self.reachability.due(now) {
            Due::Nothing => {}
            Due::Unreachable { router, link_since } => {
                lost |= self.heard.failed(router);
                link_since.into_iter().for_each(|since| self.heard.all_failed_before(since));
            }
            Due::Solicit(router) => {
                let solicitation = self.neighbor_solicitation(router);
                let is_in_doubt = self.reachability.solicited(now, solicitation.is_some());
                messages = [solicitation, if is_in_doubt { self.router_solicitation(None) } else { None }];
            }
        }
        let forgiven = self.failed.expire(now);
        let ended = self.heard.end_lifetimes(now);
        self.seeking |= lost;
        if lost || forgiven || ended {
            self.attach(config);
        }
        (messages, lost)
    }

    fn neighbor_solicitation(&self, router: Ipv6Addr) -> Option<LinkMessage> {
        let interface = self.interface.as_ref().filter(|i| i.running)?;
        let source = self.link_local()?;
        let peer = self.heard.link_address(router);
        // RFC 4861 7.3.3: unicast, to the known link-layer address.
        let destination = if peer.is_some() { router } else { nd::solicited_node(router) };
        let solicitation =
            nd::NeighborSolicitation { target: router, source_link_address: interface.link_address };
        let mut message = solicitation.emit();
        icmpv6::set_checksum(&mut message, source, destination);
        let interface = interface.name.clone();
        Some(LinkMessage { interface, source, destination, hop_limit: nd::HOP_LIMIT, peer, message })
    }

    /// Whether routers have been solicited since the pauses began.
    pub(super) fn has_solicited(&self) -> bool {
        self.solicitations > 0
    }

    /// Returns a Router Solicitation and the pause until the next, while no router has been heard.
    pub(super) fn solicit(&mut self) -> Option<(LinkMessage, Duration)> {
        let interface = self.interface.as_ref().filter(|i| i.running)?;
        let confirmed = !self.heard.is_empty() && !interface.routers.is_empty() && !self.seeking;
        if confirmed {
            return None;
        }
        let doublings = self.solicitations.saturating_sub(1).min(7);
        self.solicitations = self.solicitations.saturating_add(1);
        let interval = (SOLICITATION_INTERVAL * 2_u32.pow(doublings)).min(MAX_SOLICITATION_INTERVAL);
        Some((self.router_solicitation(None)?, interval))
    }

    /// Builds a Router Solicitation to one router, or to all.
    fn router_solicitation(&self, router: Option<Ipv6Addr>) -> Option<LinkMessage> {
        let interface = self.interface.as_ref().filter(|i| i.running)?;
        let source = self.link_local().unwrap_or(Ipv6Addr::UNSPECIFIED);
        let peer = router.and_then(|router| self.heard.link_address(router));
        let destination = router.filter(|_| peer.is_some()).unwrap_or(nd::ALL_ROUTERS);
        let source_link_address = if source.is_unspecified() { None } else { interface.link_address };
        let mut message = nd::RouterSolicitation { source_link_address }.emit();
        icmpv6::set_checksum(&mut message, source, destination);
        let interface = interface.name.clone();
        Some(LinkMessage { interface, source, destination, hop_limit: nd::HOP_LIMIT, peer, message })
    }

    /// Returns the link-local address of the interface.
    pub(super) fn link_local(&self) -> Option<Ipv6Addr> {
        let addresses = &self.interface.as_ref()?.addresses;
        let usable =
            |a: &&carnet_base::Address| a.address.is_unicast_link_local() && !a.tentative && !a.duplicate;
        addresses.iter().find(usable).map(|a| a.address)
    }

    pub(super) fn attach(&mut self, config: &MobileRouterConfig) {
        let known = (self.candidates.clone(), self.ipv4_candidates.clone());
        let attachment = self.attached(config);
        let before = std::mem::replace(&mut self.attachment, attachment);
        self.assign_tables();
        let direct = self.care_of_address().filter(|_| self.is_direct());
        let is_new = self.candidates.iter().any(|candidate| !known.0.contains(candidate))
            || direct.is_some_and(|direct| ipv6_of(before) != Some(direct))
            || std::mem::discriminant(&before) != std::mem::discriminant(&self.attachment);
        if is_new || self.lost.is_some_and(|lost| !self.has_care_of_address(lost)) {
            // The network may be another one: both families are tried again.
            self.lost = None;
        }
        self.renewed |= is_new || self.ipv4_candidates.iter().any(|candidate| !known.1.contains(candidate));
        if self.ipv4_care_of_address() != ipv4_of(before) {
            self.needs_udp = false;
        }
    }

    /// Determines the attachment, with new candidates.
    fn attached(&mut self, config: &MobileRouterConfig) -> Attachment {
        let in_use = (self.plain_address(), self.ipv4_care_of_address());
        self.candidates.clear();
        self.ipv4_candidates.clear();
        self.home_router = None;
        let Some(interface) = &self.interface else { return Attachment::Down("no such interface") };
        if !interface.running {
            return Attachment::Down("no carrier");
        }
        if self.config.never_roams && self.roaming == Some(true) {
            return Attachment::Down("roaming");
        }
        if self.is_stopped() {
            return Attachment::Down(VOLUME_USED_UP);
        }
        let gateways: Vec<Ipv6Addr> = interface.routers.iter().map(|router| router.gateway).collect();
        let own = |a: &&Address| config.prefixes.iter().any(|prefix| prefix.contains(&a.address));
        let is_direct = |a: &&Address| self.direct.iter().any(|(direct, _)| *direct == a.address);
        let usable = interface.addresses.iter().filter(|a| {
            // A care-of address out of the router's own mobile network would be a loop (RFC 3963 1, RFC
            // 4888).
            is_good(a) && a.address != config.home_address && !own(a) && !is_direct(a)
        });
        let is_home = |prefix: &Ipv6Net| config.is_home_link(*prefix);
        let advertised_elsewhere = |address: Ipv6Addr| {
            let elsewhere = |prefix: &Ipv6Net| prefix.contains(&address) && !is_home(prefix);
            self.heard.advertiser(&gateways, elsewhere).is_some()
        };
        let in_home_prefix =
            |own: &&Address| config.is_home_address(own) && !advertised_elsewhere(own.address);
        let advertised = self.heard.advertiser(&gateways, is_home);
        // RFC 6275 11.5.5: the home prefix must be on the link again, which an address that the kernel has
        // kept does not show.
        let stale = self.home_was_advertised && !self.heard.is_empty();
        if advertised.is_some()
            || (!stale && usable.clone().filter(in_home_prefix).any(|address| address.permanent))
        {
            self.home_router = advertised;
            let first = gateways.iter().find(|gateway| Some(**gateway) == advertised);
            let answers = gateways.iter().find(|gateway| !self.heard.is_unreachable(**gateway));
            // The kernel's list may lack the home link's router (see `candidate`).
            let unlisted = || self.heard.default_routers().find(|router| Some(*router) == advertised);
            let router = first.or(answers).copied().or_else(unlisted).or(gateways.first().copied());
            return Attachment::Home { router };
        }
        let left_home = stale && usable.clone().any(|address| in_home_prefix(&address));
        let addresses: Vec<&Address> = usable.filter(|address| !in_home_prefix(address)).collect();
        let mut found = candidates(
            &addresses,
            &interface.routers,
            &self.heard,
            &self.failed,
            in_use.0,
            config.home_agent,
        );
        // A mobile router that cannot be this router's parent is no default router.
        let refusal_of = |candidate: &Candidate<Ipv6Addr>| {
            self.parents.of(candidate.router).and_then(|parent| parent.refusal(config.home_address))
        };
        let refusal = found.first().and_then(refusal_of);
        found.retain(|candidate| refusal_of(candidate).is_none());
        let refusal = refusal.filter(|_| found.is_empty());
        let there = |address: &Ipv6Addr| {
            interface.addresses.iter().any(|a| is_good(&a) && a.address == *address && !own(&a))
        };
        let router = found.first().map(|candidate| candidate.router);
        let router = router.or(gateways.first().copied().filter(|_| refusal.is_none()));
        let mut direct = self.direct.iter().filter(|(_, usable)| *usable).map(|(address, _)| *address);
        let preferred = direct.find(there).or(found.first().map(|candidate| candidate.address));
        let ipv6 = preferred.zip(router);
        let ipv4 = ipv4_candidates(interface, &self.failed, in_use.1);
        let has_ipv4 = !ipv4.is_empty();
        let first = ipv4.first().map(|candidate| (candidate.address, candidate.router));
        let first = first.filter(|_| config.home_agent_ipv4.is_some());
        if ipv6.is_some() || first.is_some() {
            self.candidates = found;
            self.ipv4_candidates = if first.is_some() { ipv4 } else { Vec::new() };
            return Attachment::Foreign { ipv6, ipv4: first };
        }
        Attachment::Down(if let Some(reason) = refusal {
            reason
        } else if !addresses.is_empty() {
            "no default router"
        } else if config.home_agent_ipv4.is_none() && has_ipv4 {
            "IPv4 only, and mobile_router.home_agent_ipv4 is not set"
        } else if interface.addresses.iter().any(|a| own(&a)) {
            "loop: the address there is out of the own mobile network"
        } else if config.home_agent_ipv4.is_some()
            && interface.ipv4_addresses.iter().any(|a| is_usable_ipv4(a.addr()))
        {
            "no default router (IPv4)"
        } else if left_home {
            HOME_ROUTER_SILENT
        } else {
            "no usable address"
        })
    }
}

/// Gives each router an entry, and lets those with an entry keep it.
fn assign<A: Copy + PartialEq>(places: &mut [Option<A>], routers: &[A]) {
    for place in places.iter_mut() {
        *place = place.filter(|router| routers.contains(router));
    }
    for router in routers {
        if !places.contains(&Some(*router))
            && let Some(free) = places.iter_mut().find(|place| place.is_none())
        {
            *free = Some(*router);
        }
    }
}

/// Returns the pause between an answer of the home link's router and the next solicitation.
fn home_probe_interval(config: &MobileRouterConfig) -> Duration {
    if config.liveness.is_some() { HOME_PROBE_INTERVAL } else { HOME_PROBE_INTERVAL_WITHOUT_HEARTBEATS }
}

/// Whether an IPv6 address can be used at all.
fn is_good(address: &&Address) -> bool {
    !address.tentative && !address.duplicate && is_unicast_routable(address.address)
}

fn ipv6_of(attachment: Attachment) -> Option<Ipv6Addr> {
    match attachment {
        Attachment::Foreign { ipv6, .. } => ipv6.map(|(address, _)| address),
        _ => None,
    }
}

pub(super) fn ipv4_of(attachment: Attachment) -> Option<Ipv4Addr> {
    match attachment {
        Attachment::Foreign { ipv4, .. } => ipv4.map(|(address, _)| address),
        _ => None,
    }
}
