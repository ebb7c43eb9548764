//! One uplink: its usable addresses and routers, and the solicitation of routers on it.
//!
//! An uplink is *attached* when its link is up and it has a *candidate*: a usable address with a default
//! router of the same IP version for its packets ([`candidate`](super::candidate) has the order). IPv4 counts
//! if the home agent has an IPv4 address (RFC 5555). The first candidate is the care-of address. If the home
//! agent does not answer over it, the next candidate replaces it at once.
//!
//! Movement detection (RFC 6275 11.5.1) uses the state of the kernel: carrier, addresses of stateless
//! autoconfiguration, default routers, and neighbour entries. In addition:
//!
//! * carnet sends a Router Solicitation when a link comes up, when a path fails, and when a router no longer
//!   answers. If a router omits a prefix, carnet sends a Router Solicitation to this router (see
//!   `link_routers`).
//! * When another router sends its first advertisement, carnet sends Neighbor Solicitations to the router in
//!   use (Neighbor Unreachability Detection, RFC 4861 7.3, which RFC 6275 11.5.1 requires).
//! * On the home link no heartbeats are sent. So carnet solicits the router that advertises the home prefix
//!   at an interval. Without this, only the next Router Advertisement of a new link would show a move without
//!   loss of carrier. When an answer is late, carnet sends a Router Solicitation (see
//!   [`reachability`](super::reachability)).
//!
//! An uplink is on the home link if a router there advertises the home prefix now, or if the operator has
//! configured an address in it on the interface. `home_network` handles home prefixes that contain mobile
//! networks. Any host on a foreign link can advertise the home prefix. If the home agent does not answer the
//! de-registration, the router uses its other care-of addresses and uplinks for a while.
//!
//! If the default router is a mobile router, `parent` decides whether it can be this router's parent.
//! [`crate::nesting`] decides which *direct* addresses, of the visited link before the parent, this router
//! may use. A direct care-of address is preferred.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{Address, Interface, LinkMessage, NeighbourState, RateLimiter, Time};
use carnet_wire::{icmpv6, nd};
use ipnet::Ipv6Net;

use super::MobileRouterConfig;
use super::address_and_router::{Candidate, FailedCandidates, candidates, ipv4_candidates, is_usable_ipv4};
use super::capacity::CapacityEstimate;
use super::captive_portal::{CaptivePortal, PortalProbes};
use super::link_routers::LinkRouters;
use super::liveness::PathState;
use super::parent::{Parent, Parents};
use super::quality::SignalThresholds;
use super::reachability::{DueAction, Reachability};
use super::volume::{VolumeAction, VolumeMeter, VolumePeriod};
use crate::{UDP_PORT, is_unicast_routable};

/// Pause between the first Router Solicitation and the next. RFC 4861 6.3.7 recommends 4 s. But a bridge that
/// has just come up may lose the first one, and a handover would then take 4 s longer.
const SOLICITATION_INTERVAL: Duration = Duration::from_millis(500);
/// Longest pause between Router Solicitations. The pause doubles while no router answers, as in RFC 7559.
const MAX_SOLICITATION_INTERVAL: Duration = Duration::from_secs(64);
/// Minimum time between two Router Solicitations to routers that omit a prefix. An answer within 300 ms may
/// be a part of the same advertisement, so one solicitation may not suffice.
const QUESTION_INTERVAL: Duration = Duration::from_millis(100);

/// Reason for which an uplink is down, or for a handover.
pub(super) const VOLUME_USED_UP: &str = "the volume is used up";
const HOME_ROUTER_SILENT: &str = "the router of the home link does not answer";
/// Pause between an answer of the home router and the next solicitation. With heartbeats configured, carnet
/// detects a move within 0.5 s if a router of the new link answers, otherwise within 1.45 s. Without
/// heartbeats it takes 0.75 s longer.
const HOME_PROBE_INTERVAL: Duration = Duration::from_millis(250);
const HOME_PROBE_INTERVAL_WITHOUT_HEARTBEATS: Duration = Duration::from_secs(1);
/// Time without effect of the home prefix after a return that the home agent has not answered: the first and
/// the longest. The time doubles with each such return.
const HOME_DOUBTED: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(960));
/// Maximum number of routers of an uplink that have their own routing tables at a time.
pub const MAX_NEXT_HOPS: usize = 4;

/// The operator's config of an uplink.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UplinkConfig {
    /// Interface name.
    pub interface: String,
    /// Priority; the lower value wins.
    pub priority: u32,
    /// Binding Identifier (RFC 5648), not 0. All uplinks without an identifier share the plain binding.
    pub bid: Option<u16>,
    /// Signal thresholds at which the router leaves the uplink and uses it again.
    pub signal: Option<SignalThresholds>,
    /// Time after which a signal strength that is not reported again becomes unknown; `None` for never.
    pub signal_timeout: Option<Duration>,
    /// Octets that the uplink may carry in a period.
    pub volume: Option<u64>,
    /// Period of the volume, and of the count.
    pub volume_period: VolumePeriod,
    /// Action once the volume is used up.
    pub volume_action: VolumeAction,
    /// Whether the router must not use the uplink while its modem roams in another operator's network.
    pub never_roams: bool,
    /// Cost; of two uplinks with equal priority the one with the lower cost is better.
    pub cost: u32,
    /// Capacity in kbit/s. It is used until a measurement exists, and is the upper limit of measurements.
    pub capacity: Option<u32>,
}

/// Attachment of an uplink to the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachment {
    /// The uplink is not usable, for this reason.
    Down(&'static str),
    /// The uplink is on a foreign link and has IPv4, IPv6 or both.
    Foreign {
        /// IPv6 care-of address and its default router.
        ipv6: Option<(Ipv6Addr, Ipv6Addr)>,
        /// IPv4 care-of address and its default router; `0.0.0.0` if the default route has no gateway.
        ipv4: Option<(Ipv4Addr, Ipv4Addr)>,
    },
    /// The uplink is on the home link.
    Home {
        /// Default router on the home link, if any.
        router: Option<Ipv6Addr>,
    },
}

/// State of an uplink.
#[derive(Debug)]
pub struct Uplink {
    /// The operator's config of nesting.
    pub config: UplinkConfig,
    /// Current attachment.
    pub attachment: Attachment,
    /// Time before which this uplink does not replace a working one, because it has just come up again.
    pub settles_at: Time,
    /// Time until which the router prefers other uplinks, because the home agent did not answer over this
    /// one.
    pub demoted_until: Option<Time>,
    /// Last reported state of the interface.
    interface: Option<Interface>,
    /// Routers and prefixes that were advertised since the link came up.
    link_routers: LinkRouters,
    /// Mobile routers that have advertised since the link came up.
    parents: Parents,
    /// Direct addresses on this interface, the preferred one first. Each has a flag that says whether the
    /// router may use it.
    direct: Vec<(Ipv6Addr, bool)>,
    /// Captive portal that a router of this link has announced since the link came up.
    pub(super) portal: Option<CaptivePortal>,
    /// Results of probes for captive portals since the link came up.
    pub(super) portal_probes: PortalProbes,
    /// Addresses of the uplink's own link with their routers, the best first.
    candidates: Vec<Candidate<Ipv6Addr>>,
    ipv4_candidates: Vec<Candidate<Ipv4Addr>>,
    /// Candidates over which the home agent did not answer.
    failed: FailedCandidates,
    /// IPv6 routers that have their own routing table; the index is the number of the table. Several are
    /// necessary if packets of several care-of addresses leave through several routers.
    next_hops: [Option<Ipv6Addr>; MAX_NEXT_HOPS],
    /// IPv4 routers that have their own routing table; unspecified for a default route without gateway.
    ipv4_next_hops: [Option<Ipv4Addr>; MAX_NEXT_HOPS],
    /// Reachability of the routers.
    reachability: Reachability,
    /// Whether carnet solicits routers until one advertises.
    seeking: bool,
    /// Whether a candidate has appeared since the last call of [`Self::take_renewed`].
    renewed: bool,
    /// Router that advertises the home prefix on this link now.
    home_router: Option<Ipv6Addr>,
    /// Whether a router on this interface has ever advertised the home prefix.
    home_was_advertised: bool,
    /// Time until which the home prefix has no effect on this uplink, because the home agent has not
    /// answered a return.
    home_doubted_until: Option<Time>,
    /// Returns that the home agent has not answered since the link came up.
    unanswered_returns: u32,
    /// Number of Router Solicitations since the link came up.
    solicitations: u32,
    /// Rate limit of solicitations to routers that omit a prefix.
    questions: RateLimiter,
    /// Care-of address over which the home agent did not answer, although it answered over the address of the
    /// other IP version.
    pub(super) lost: Option<IpAddr>,
    /// Whether the network loses packets of protocol 41, so that the router requests UDP (RFC 5555 4.4.1).
    pub(super) needs_udp: bool,
    /// This router's UDP port on the uplink: `UDP_PORT`, or another one if a second uplink has the same IPv4
    /// address behind a similar NAT. So the tunnel ends of the two uplinks differ. The home agent accepts any
    /// port (RFC 5555 4.1).
    pub udp_port: u16,
    /// Last reported signal strength in dBm; `None` if no recent report exists.
    pub signal: Option<i32>,
    /// Time of the last report of the signal strength.
    pub(super) signal_at: Time,
    /// Whether the signal has fallen to the threshold `poor` and has not reached `good` since.
    pub poor: bool,
    /// Whether any signal strength was reported.
    pub(super) judged: bool,
    /// Number of octets that the uplink has carried in the present period.
    pub used: u64,
    pub(super) meter: VolumeMeter,
    pub(super) gauge: CapacityEstimate,
    /// Capacity in kbit/s, configured or measured.
    pub capacity: Option<u32>,
    /// Whether the uplink has just come up while another one works.
    pub(super) settling: bool,
    /// Whether the modem roams in another operator's network; `None` if unknown.
    pub roaming: Option<bool>,
    /// State of the path to the home agent over this uplink.
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
            link_routers: LinkRouters::default(),
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
            home_doubted_until: None,
            unanswered_returns: 0,
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
            meter: VolumeMeter::default(),
            gauge: CapacityEstimate::default(),
            settling: false,
            roaming: None,
            path,
        }
    }

    /// Returns how many octets the uplink has carried in this period; `None` if it has not counted yet.
    pub fn volume_used(&self) -> Option<u64> {
        self.meter.volume.as_ref().map(|_| self.used)
    }

    /// Returns the URI of the captive portal to which a probe was redirected. Without one, returns the URI
    /// that a router of the link announces.
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

    /// Returns every care-of address, in the order in which the router tries them. IPv6 comes before IPv4
    /// (RFC 5555 4.4.1), unless the home agent did not answer over IPv6. A direct address comes first, then
    /// the address of the uplink's own link, then the other candidates. Failed addresses come last in each IP
    /// version.
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
        // RFC 8305 4: the order alternates between the IP versions. Direct addresses belong to the first
        // group.
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

    /// Returns the IPv6 candidates of the uplink's own link; none if IPv6 cannot be used.
    fn ipv6_candidates(&self) -> &[Candidate<Ipv6Addr>] {
        if self.care_of_address().is_some() { &self.candidates } else { &[] }
    }

    /// Returns whether the home agent did not answer over a care-of address with its present router.
    fn has_failed(&self, address: IpAddr) -> bool {
        self.failed.contains(address, self.next_hop(address))
    }

    /// Returns the alternatives to a direct care-of address: other direct ones, and the address of the
    /// uplink's own link. If that is registered, it still works until the new address is registered.
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

    /// Returns the best address of the uplink's own link.
    fn plain_address(&self) -> Option<Ipv6Addr> {
        self.candidates.first().map(|candidate| candidate.address)
    }

    /// Returns the router to which packets from a care-of address go.
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

    /// Returns the routers to which packets from IPv6 care-of addresses go, each with the number of its
    /// routing table.
    pub fn next_hops(&self) -> impl Iterator<Item = (usize, Ipv6Addr)> {
        let known = self.next_hops.iter().enumerate();
        known.filter_map(|(number, router)| router.map(|router| (number, router)))
    }

    /// Returns the routers to which packets from IPv4 care-of addresses go, each with the number of its
    /// routing table. A router is unspecified for a default route without gateway.
    pub fn ipv4_next_hops(&self) -> impl Iterator<Item = (usize, Ipv4Addr)> {
        let known = self.ipv4_next_hops.iter().enumerate();
        known.filter_map(|(number, router)| router.map(|router| (number, router)))
    }

    /// Returns the number of the routing table for packets from a care-of address.
    pub fn table_of(&self, address: IpAddr) -> usize {
        let router = self.next_hop(address);
        let number = match address {
            IpAddr::V6(_) => self.next_hops.iter().position(|known| known.map(IpAddr::V6) == router),
            IpAddr::V4(_) => self.ipv4_next_hops.iter().position(|known| known.map(IpAddr::V4) == router),
        };
        number.unwrap_or(0)
    }

    /// Assigns a routing table to each router in use. A router keeps its table, so that during changes no
    /// packet goes to the router of another address.
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
    /// on. Returns whether another candidate of the same IP version has not failed.
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

    /// Records that the home agent has answered over one care-of address, but not over `losers`, which the
    /// router tried before (RFC 8305 5).
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

    /// Returns whether a candidate has failed and another one has not been tried since.
    pub(super) fn has_untried_candidate(&self) -> bool {
        let all = self.care_of_addresses();
        let first = all.first().is_some_and(|first| !self.has_failed(*first));
        first && all.iter().any(|address| self.has_failed(*address))
    }

    /// Returns whether a candidate has appeared since the last call. Then earlier knowledge concerns another
    /// network.
    pub(super) fn take_renewed(&mut self) -> bool {
        std::mem::take(&mut self.renewed)
    }

    /// Allows the router to try every candidate again.
    pub(super) fn forgive(&mut self, config: &MobileRouterConfig) {
        self.failed = FailedCandidates::default();
        self.attach(config);
    }

    /// Returns the router in use if it does not answer. Then this is the reason why the home agent does not
    /// answer.
    pub fn silent_router(&self) -> Option<IpAddr> {
        let first = self.care_of_addresses().first().copied()?;
        match self.next_hop(first)? {
            IpAddr::V6(router) => self.link_routers.is_unreachable(router).then_some(IpAddr::V6(router)),
            IpAddr::V4(router) => {
                let mut known = self.interface.as_ref()?.ipv4_routers.iter();
                known
                    .any(|known| known.gateway == router && known.neighbour == NeighbourState::Failed)
                    .then_some(IpAddr::V4(router))
            }
        }
    }

    /// Returns whether the uplink has this care-of address.
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

    /// Returns the default router if it is a mobile router.
    pub fn parent(&self) -> Option<&Parent> {
        self.parents.of(self.router()?)
    }

    /// Returns the network of the care-of address on the uplink's own link, if its prefix length is 64.
    pub fn link_network(&self) -> Option<Ipv6Addr> {
        let plain = self.plain_address()?;
        let known = self.interface.as_ref()?.addresses.iter().find(|a| a.address == plain)?;
        (known.prefix_length == 64).then(|| Ipv6Net::new(plain, 64).ok().map(|net| net.network())).flatten()
    }

    /// Returns whether the care-of address is a direct one, of the visited link before the parent.
    pub fn is_direct(&self) -> bool {
        self.care_of_address().is_some_and(|in_use| self.direct.iter().any(|(it, _)| *it == in_use))
    }

    /// Sets the direct addresses; returns whether that changes anything.
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
        // RFC 4861 6.3.4. A mobile router advertises the MTU that fits into its own tunnel.
        let told = self.router().and_then(|router| self.link_routers.mtu(router));
        told.filter(|told| (1280..link).contains(told)).unwrap_or(link)
    }

    /// Returns the 48-bit link-layer address, if there is one.
    pub fn link_address(&self) -> Option<[u8; 6]> {
        self.interface.as_ref().and_then(|i| i.link_address)
    }

    /// Returns whether the interface still has this address, for example a former care-of address.
    pub fn has_address(&self, address: IpAddr) -> bool {
        let Some(interface) = self.interface.as_ref().filter(|i| i.running) else { return false };
        match address {
            IpAddr::V6(address) => interface.addresses.iter().any(|a| a.address == address && !a.duplicate),
            IpAddr::V4(address) => interface.ipv4_addresses.iter().any(|known| known.addr() == address),
        }
    }

    /// Takes over the state of the same interface from before a reload of the config.
    pub(super) fn adopt(&mut self, old: &Uplink, config: &MobileRouterConfig) {
        self.attachment = old.attachment;
        self.settles_at = old.settles_at;
        self.interface.clone_from(&old.interface);
        self.link_routers.clone_from(&old.link_routers);
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
        self.failed.clone_from(&old.failed);
        self.reachability.adopt(&old.reachability);
        self.home_router = old.home_router;
        self.home_was_advertised = old.home_was_advertised;
        self.home_doubted_until = old.home_doubted_until;
        self.unanswered_returns = old.unanswered_returns;
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

    /// Takes over the state of the interface. Returns whether to send a Router Solicitation: the link has
    /// just come up, a router no longer answers, or the link-local address has become usable. The latter
    /// matters, because a router answers a solicitation without source by multicast, at most once in 3 s (RFC
    /// 4861 6.2.6).
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
                failed |= self.link_routers.neighbour_changed(router.gateway, router.neighbour);
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

    /// Clears the state of the link, because the network may be another one now.
    fn link_changed(&mut self) {
        self.link_routers.clear();
        self.parents.clear();
        self.portal = None;
        self.portal_probes = PortalProbes::default();
        self.failed = FailedCandidates::default();
        self.reachability = Reachability::default();
        self.return_answered();
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

    /// Handles a Router Advertisement. Returns a Router Solicitation to that router if it may have been
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
        let kept = self.home_router.or(in_use);
        let advertised = self.link_routers.advertised(now, message, &advertisement, kept);
        self.home_was_advertised |=
            self.link_routers.advertisers(&[], |prefix| config.is_home_link(*prefix)).next().is_some();
        self.seeking = false;
        self.parents.note(message, &advertisement, in_use);
        self.reachability.heard(now, message.source, advertised.previous, in_use);
        self.attach(config);
        // The rate is limited, because the answer may omit the prefix again.
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
            && self.link_routers.answered(advertisement.target)
        {
            self.attach(config);
        }
    }

    /// Starts to send Router Solicitations until a router advertises, because a path has failed. The pauses
    /// start at their minimum again only if the home agent has answered over the path in the meantime.
    fn seek(&mut self, is_first: bool) {
        self.seeking = true;
        if is_first {
            self.solicitations = 0;
        }
    }

    /// Handles a return home that the home agent has not answered. For a while the home prefix has no effect,
    /// unless the uplink has no other care-of address.
    pub(super) fn return_unanswered(&mut self, now: Time, config: &MobileRouterConfig) {
        let (first, longest) = HOME_DOUBTED;
        let doubted_for = (first * 2_u32.saturating_pow(self.unanswered_returns)).min(longest);
        self.unanswered_returns = self.unanswered_returns.saturating_add(1);
        self.home_doubted_until = Some(now + doubted_for);
        self.attach(config);
    }

    /// Records that the home agent has answered a return over this uplink.
    pub(super) fn return_answered(&mut self) {
        self.home_doubted_until = None;
        self.unanswered_returns = 0;
    }

    /// Returns whether the home prefix has no effect, because the home agent did not answer a return over
    /// this uplink.
    pub(super) fn is_home_doubted(&self) -> bool {
        self.home_doubted_until.is_some()
    }

    /// Sets the time of the next solicitation of the home router. Stops the probe of a home link that the
    /// uplink has left.
    pub(super) fn watch_home_router(&mut self, now: Time, config: &MobileRouterConfig) {
        self.reachability.watch_home_router(now, self.home_router, home_probe_interval(config));
    }

    /// Returns the time of the next call of [`Self::handle_timeout`].
    pub(super) fn deadline(&self) -> Option<Time> {
        [
            self.reachability.deadline(),
            self.link_routers.deadline(),
            self.failed.deadline(),
            self.home_doubted_until,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Returns the Neighbor Solicitations that are due, and records missing answers. The flag says whether to
    /// send Router Solicitations until a router advertises.
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        config: &MobileRouterConfig,
    ) -> ([Option<LinkMessage>; 2], bool) {
        let mut lost = self.link_routers.expire(now);
        let mut messages = [None, None];
        match self.reachability.due(now) {
            DueAction::Nothing => {}
            DueAction::Unreachable { router, link_since } => {
                lost |= self.link_routers.failed(router);
                link_since.into_iter().for_each(|since| self.link_routers.all_failed_before(since));
            }
            DueAction::Solicit(router) => {
                let solicitation = self.neighbor_solicitation(router);
                let is_in_doubt = self.reachability.solicited(now, solicitation.is_some());
                messages = [solicitation, if is_in_doubt { self.router_solicitation(None) } else { None }];
            }
        }
        let forgiven = self.failed.expire(now);
        let ended = self.link_routers.end_lifetimes(now);
        let undoubted = self.home_doubted_until.take_if(|until| *until <= now).is_some();
        self.seeking |= lost;
        if lost || forgiven || ended || undoubted {
            self.attach(config);
        }
        (messages, lost)
    }

    fn neighbor_solicitation(&self, router: Ipv6Addr) -> Option<LinkMessage> {
        let interface = self.interface.as_ref().filter(|i| i.running)?;
        let source = self.link_local()?;
        let peer = self.link_routers.link_address(router);
        // RFC 4861 7.3.3: unicast, to the known link-layer address.
        let destination = if peer.is_some() { router } else { nd::solicited_node(router) };
        let solicitation =
            nd::NeighborSolicitation { target: router, source_link_address: interface.link_address };
        let mut message = solicitation.emit();
        icmpv6::set_checksum(&mut message, source, destination);
        let interface = interface.name.clone();
        Some(LinkMessage { interface, source, destination, hop_limit: nd::HOP_LIMIT, peer, message })
    }

    /// Returns whether carnet has sent a Router Solicitation since the pauses started at their minimum.
    pub(super) fn has_solicited(&self) -> bool {
        self.solicitations > 0
    }

    /// Returns a Router Solicitation and the pause until the next one; `None` if a router has advertised.
    pub(super) fn solicit(&mut self) -> Option<(LinkMessage, Duration)> {
        let interface = self.interface.as_ref().filter(|i| i.running)?;
        let confirmed = !self.link_routers.is_empty() && !interface.routers.is_empty() && !self.seeking;
        if confirmed {
            return None;
        }
        let doublings = self.solicitations.saturating_sub(1).min(7);
        self.solicitations = self.solicitations.saturating_add(1);
        let interval = (SOLICITATION_INTERVAL * 2_u32.pow(doublings)).min(MAX_SOLICITATION_INTERVAL);
        Some((self.router_solicitation(None)?, interval))
    }

    /// Builds a Router Solicitation to one router, or to all routers.
    fn router_solicitation(&self, router: Option<Ipv6Addr>) -> Option<LinkMessage> {
        let interface = self.interface.as_ref().filter(|i| i.running)?;
        let source = self.link_local().unwrap_or(Ipv6Addr::UNSPECIFIED);
        let peer = router.and_then(|router| self.link_routers.link_address(router));
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
            // The network may be another one now, so the router tries both IP versions again.
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
        let former = self.home_router.take();
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
            // RFC 3963 1, RFC 4888: a care-of address in the router's own mobile network would send
            // packets round in a ring.
            is_good(a) && a.address != config.home_address && !own(a) && !is_direct(a)
        });
        let is_home = |prefix: &Ipv6Net| config.is_home_link(*prefix);
        let advertised_elsewhere = |address: Ipv6Addr| {
            let elsewhere = |prefix: &Ipv6Net| prefix.contains(&address) && !is_home(prefix);
            self.link_routers.advertisers(&gateways, elsewhere).next().is_some()
        };
        let in_home_prefix =
            |own: &&Address| config.is_home_address(own) && !advertised_elsewhere(own.address);
        // Of several routers of the home link, one stays in use until it fails.
        let mut home_routers = self.link_routers.advertisers(&gateways, is_home).peekable();
        let latest = home_routers.peek().copied();
        let advertised = home_routers.find(|router| Some(*router) == former).or(latest);
        // RFC 6275 11.5.5: a router must advertise the home prefix now. An address that the kernel has
        // kept does not show that.
        let stale = self.home_was_advertised && !self.link_routers.is_empty();
        let is_at_home = advertised.is_some()
            || (!stale && usable.clone().filter(in_home_prefix).any(|address| address.permanent));
        let home = is_at_home.then(|| {
            let first = gateways.iter().find(|gateway| Some(**gateway) == advertised);
            let answers = gateways.iter().find(|gateway| !self.link_routers.is_unreachable(**gateway));
            // The kernel's list may lack the home router (see `candidate`).
            let unlisted = || self.link_routers.default_routers().find(|router| Some(*router) == advertised);
            let router = first.or(answers).copied().or_else(unlisted).or(gateways.first().copied());
            Attachment::Home { router }
        });
        if let Some(home) = home.filter(|_| self.home_doubted_until.is_none()) {
            self.home_router = advertised;
            return home;
        }
        let left_home = stale && usable.clone().any(|address| in_home_prefix(&address));
        let addresses: Vec<&Address> = usable.filter(|address| !in_home_prefix(address)).collect();
        let mut found = candidates(
            &addresses,
            &interface.routers,
            &self.link_routers,
            &self.failed,
            in_use.0,
            config.home_agent,
        );
        // A mobile router that cannot be this router's parent cannot be its default router either.
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
        if let Some(home) = home {
            self.home_router = advertised;
            return home;
        }
        Attachment::Down(if let Some(reason) = refusal {
            reason
        } else if !addresses.is_empty() {
            "no default router"
        } else if config.home_agent_ipv4.is_none() && has_ipv4 {
            "IPv4 only, and mobile_router.home_agent_ipv4 is not set"
        } else if interface.addresses.iter().any(|a| own(&a)) {
            "the address is in this router's own mobile network"
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

/// Assigns a table to each router. A router that has one keeps it.
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

/// Returns the pause between an answer of the home router and the next solicitation.
fn home_probe_interval(config: &MobileRouterConfig) -> Duration {
    if config.liveness.is_some() { HOME_PROBE_INTERVAL } else { HOME_PROBE_INTERVAL_WITHOUT_HEARTBEATS }
}

/// Returns whether the state of an IPv6 address allows its use.
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
