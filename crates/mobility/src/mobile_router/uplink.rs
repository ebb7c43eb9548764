//! One uplink: its usable addresses and routers, and the solicitation of routers on it.
//!
//! An uplink is *attached* when its link is up and it has a *candidate*. A candidate is a usable address with
//! a default router of the same IP version for its packets. [`address_and_router`](super::address_and_router)
//! has their order. IPv4 counts if the home agent has an IPv4 address (RFC 5555). The first candidate is the
//! care-of address. If the home agent does not answer over it, the next candidate replaces it at once.
//!
//! Movement detection (RFC 6275 11.5.1) uses the state of the kernel: carrier, addresses of stateless
//! autoconfiguration, default routers, and neighbour entries. In addition:
//!
//! * carnet sends a Router Solicitation when a link comes up, when a path fails, and when a router no longer
//!   answers. If a router omits a prefix, carnet sends a Router Solicitation to this router (see
//!   `link_routers`).
//! * When another router sends its first advertisement, carnet probes the router in use (Neighbor
//!   Unreachability Detection, RFC 4861 7.3, which RFC 6275 11.5.1 requires).
//! * On the home link no heartbeats are sent. So carnet probes the router that advertises the home prefix at
//!   an interval. Without this, only the next Router Advertisement of a new link would show a move without
//!   loss of carrier. When an answer is late, carnet sends a Router Solicitation (see
//!   [`reachability`](super::reachability)).
//!
//! `attachment` determines whether the uplink is on the home link.
//!
//! If the default router is a mobile router, `parent_router` decides whether it can be this router's parent.
//! [`crate::nesting`] decides which *direct* addresses this router may use: addresses on the link that the
//! outermost router visits. A direct care-of address is preferred.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{Interface, LinkMessage, NeighbourState, Time};
use carnet_wire::{icmpv6, nd};
use ipnet::Ipv6Net;

use super::MobileRouterConfig;
use super::address_and_router::{Candidate, Candidates, FailedCandidates, ProvenCandidates};
use super::capacity::CapacityEstimate;
use super::captive_portal::{CaptivePortal, LinkDns, PortalProbes};
use super::data_volume::{VolumeAction, VolumeMeter, VolumePeriod};
use super::link_routers::{AdvertisementChanges, LinkRouters, RoutersAndPrefixesInUse};
use super::liveness::PathState;
use super::parent_router::{ParentRouter, ParentRouters};
use super::reachability::{DueProbeAction, ProbeToSend, Reachability, SentProbe};
use super::unanswered_returns::UnansweredReturns;
use super::uplink_quality::SignalThresholds;
use crate::UDP_PORT;

/// Pause between the first Router Solicitation and the next. RFC 4861 6.3.7 recommends 4 s. But a bridge that
/// has just come up may lose the first one, and a handover would then take 4 s longer.
const SOLICITATION_INTERVAL: Duration = Duration::from_millis(500);
/// Longest pause between Router Solicitations. The pause doubles while no router answers, as in RFC 7559.
const MAX_SOLICITATION_INTERVAL: Duration = Duration::from_secs(64);

/// Identifier of the Echo Requests to routers.
const ROUTER_PROBE_ECHO_IDENTIFIER: u16 = 0xca53;
/// Reason for which an uplink is down, or for a handover.
pub(super) const VOLUME_USED_UP: &str = "the volume is used up";
/// Pause between an answer of the home router and the next probe. With heartbeats configured, carnet
/// detects a move within 0.5 s if a router of the new link answers, otherwise within 1.45 s. Without
/// heartbeats it takes 0.75 s longer.
const HOME_PROBE_INTERVAL: Duration = Duration::from_millis(250);
const HOME_PROBE_INTERVAL_WITHOUT_HEARTBEATS: Duration = Duration::from_secs(1);
/// Maximum number of routers of an uplink that have their own routing tables at a time.
pub const MAX_NEXT_HOPS: usize = 4;

/// The operator's config of an uplink.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UplinkConfig {
    /// Interface name.
    pub interface: String,
    /// Priority of the uplink; the lower value wins.
    pub priority: u32,
    /// Binding Identifier (RFC 5648), not 0; `None` for an uplink without an identifier. All these uplinks
    /// share the plain binding.
    pub bid: Option<u16>,
    /// Signal thresholds at which the router leaves the uplink and uses it again; `None` if the signal does
    /// not matter.
    pub signal: Option<SignalThresholds>,
    /// Time after which a signal strength that is not reported again becomes unknown; `None` for never.
    pub signal_timeout: Option<Duration>,
    /// Octets that the uplink may carry in a period; `None` without a limit.
    pub volume_octets: Option<u64>,
    /// Period of the volume, and of the count.
    pub volume_period: VolumePeriod,
    /// Action once the volume is used up.
    pub volume_action: VolumeAction,
    /// Whether the router must not use the uplink while its modem roams in another operator's network.
    pub never_roams: bool,
    /// Cost; of two uplinks with equal priority the one with the lower cost is better.
    pub cost: u32,
    /// Capacity in kbit/s; `None` if the config has no such value. It is used until a measurement exists, and
    /// is the upper limit of measurements.
    pub capacity: Option<u32>,
}

/// Attachment of an uplink to the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachment {
    /// The uplink is not usable, for this reason.
    Down(&'static str),
    /// The uplink is on a foreign link and has IPv4, IPv6 or both.
    Foreign {
        /// IPv6 care-of address and its default router; `None` on a link without IPv6.
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
    /// The operator's config of the uplink.
    pub config: UplinkConfig,
    /// Current attachment.
    pub attachment: Attachment,
    /// Time before which this uplink does not replace a working one, because it has just come up again.
    pub settling_until: Time,
    /// Time until which the router prefers other uplinks, because the home agent did not answer over this
    /// one. `None` if the router does not avoid the uplink.
    pub demoted_until: Option<Time>,
    /// Last reported state of the interface; `None` if it does not exist.
    pub(super) interface: Option<Interface>,
    /// Routers and prefixes that were advertised since the link came up.
    pub(super) link_routers: LinkRouters,
    /// Mobile routers that have advertised since the link came up.
    pub(super) parents: ParentRouters,
    /// Direct addresses on this interface, the preferred one first. Each has a flag that says whether the
    /// router may use it.
    pub(super) direct_addresses: Vec<(Ipv6Addr, bool)>,
    /// Captive portal that a router of this link has announced since the link came up; `None` without one.
    pub(super) announced_portal: Option<CaptivePortal>,
    /// DNS servers that a router of this link has announced since the link came up.
    pub(super) link_dns: LinkDns,
    /// Results of probes for captive portals since the link came up.
    pub(super) portal_probes: PortalProbes,
    /// Addresses that can be the care-of address, with their routers. After a return to the home link, they
    /// are those of the previous foreign link on the same interface. The router uses them until the home
    /// agent has acknowledged the return.
    pub(super) candidates: Candidates<Ipv6Addr>,
    pub(super) ipv4_candidates: Candidates<Ipv4Addr>,
    /// Default router of IPv4, also if tunnels cannot use IPv4; `None` without a default route. The address
    /// is unspecified for a default route without gateway.
    pub(super) ipv4_gateway: Option<Ipv4Addr>,
    /// Candidates over which the home agent did not answer.
    pub(super) failed_candidates: FailedCandidates,
    /// Candidates over which the home agent has acknowledged a registration.
    pub(super) proven_candidates: ProvenCandidates,
    /// IPv6 routers that have their own routing table; the index is the number of the table. Several are
    /// necessary if packets of several care-of addresses leave through several routers.
    next_hops: [Option<Ipv6Addr>; MAX_NEXT_HOPS],
    /// IPv4 routers that have their own routing table; unspecified for a default route without gateway.
    ipv4_next_hops: [Option<Ipv4Addr>; MAX_NEXT_HOPS],
    /// Results of Neighbor Unreachability Detection for the routers of the uplink.
    reachability: Reachability,
    /// Whether carnet solicits routers until one advertises.
    is_seeking_router: bool,
    /// Whether a candidate has appeared since the last call of [`Self::take_new_candidate`].
    pub(super) has_new_candidate: bool,
    /// Router that advertises the home prefix on this link now; `None` if no router does.
    pub(super) home_router: Option<Ipv6Addr>,
    /// Whether another router advertises the home prefix on this link. A router over which a return got no
    /// answer does not count.
    pub(super) has_other_home_router: bool,
    /// Last router that advertised the home prefix while the home agent answered a return. `None` without
    /// one.
    pub(super) proven_home_router: Option<Ipv6Addr>,
    /// Whether the home agent has answered a return while a router on this interface advertised the home
    /// prefix.
    pub(super) was_home_prefix_advertised: bool,
    /// Unanswered returns to the home link since the link came up.
    pub(super) unanswered_returns: UnansweredReturns,
    /// Number of Router Solicitations since the link came up.
    sent_solicitations: u32,
    /// Care-of address over which the home agent did not answer, although it answered over the address of the
    /// other IP version. `None` without such an address.
    pub(super) unanswered_address: Option<IpAddr>,
    /// Whether the network loses packets of protocol 41, so that the router requests UDP (RFC 5555 4.4.1).
    pub(super) needs_udp: bool,
    /// This router's UDP port on the uplink: `UDP_PORT`, or another one if a second uplink has the same IPv4
    /// address behind a similar NAT. So the tunnel ends of the two uplinks differ. The home agent accepts any
    /// port (RFC 5555 4.1).
    pub udp_port: u16,
    /// Last reported signal strength in dBm; `None` if no recent report exists.
    pub signal_dbm: Option<i32>,
    /// Time of the last report of the signal strength.
    pub(super) signal_reported_at: Time,
    /// Whether the signal has fallen to the threshold `poor` and has not reached `good` since.
    pub has_poor_signal: bool,
    /// Whether any signal strength was reported.
    pub(super) was_signal_reported: bool,
    /// Number of octets that the uplink has carried in the present period.
    pub used_octets: u64,
    pub(super) volume_meter: VolumeMeter,
    pub(super) capacity_estimate: CapacityEstimate,
    /// Capacity in kbit/s, configured or measured; `None` if it is unknown.
    pub capacity: Option<u32>,
    /// Whether the uplink has just come up while another one works.
    pub(super) is_settling: bool,
    /// Whether the modem roams in another operator's network; `None` if unknown.
    pub is_roaming: Option<bool>,
    /// State of the path to the home agent over this uplink.
    pub(super) path: PathState,
}

impl Uplink {
    pub(super) fn new(config: UplinkConfig, path: PathState) -> Self {
        Uplink {
            capacity: config.capacity,
            config,
            attachment: Attachment::Down("no such interface"),
            settling_until: Time::ZERO,
            demoted_until: None,
            interface: None,
            link_routers: LinkRouters::default(),
            parents: ParentRouters::default(),
            direct_addresses: Vec::new(),
            announced_portal: None,
            link_dns: LinkDns::default(),
            portal_probes: PortalProbes::default(),
            candidates: Candidates::default(),
            ipv4_candidates: Candidates::default(),
            ipv4_gateway: None,
            failed_candidates: FailedCandidates::default(),
            proven_candidates: ProvenCandidates::default(),
            next_hops: [None; MAX_NEXT_HOPS],
            ipv4_next_hops: [None; MAX_NEXT_HOPS],
            reachability: Reachability::default(),
            is_seeking_router: false,
            has_new_candidate: false,
            home_router: None,
            has_other_home_router: false,
            proven_home_router: None,
            was_home_prefix_advertised: false,
            unanswered_returns: UnansweredReturns::default(),
            sent_solicitations: 0,
            unanswered_address: None,
            needs_udp: false,
            udp_port: UDP_PORT,
            signal_dbm: None,
            signal_reported_at: Time::ZERO,
            has_poor_signal: false,
            was_signal_reported: false,
            used_octets: 0,
            volume_meter: VolumeMeter::default(),
            capacity_estimate: CapacityEstimate::default(),
            is_settling: false,
            is_roaming: None,
            path,
        }
    }

    /// Returns how many octets the uplink has carried in this period; `None` if it has not counted yet.
    pub fn volume_used(&self) -> Option<u64> {
        self.volume_meter.stored_volume.as_ref().map(|_| self.used_octets)
    }

    /// Returns the URI of the captive portal to which a probe was redirected. Without one, returns the URI
    /// that a router of the link announces, or `None`.
    pub fn captive_portal(&self) -> Option<&str> {
        let announced = self.announced_portal.as_ref().map(|portal| portal.uri.as_str());
        self.portal_probes.found_portal_url.as_deref().or(announced)
    }

    /// Returns the DNS servers that a router of the link announces and that are valid now.
    pub fn dns_servers(&self, now: Time) -> &[Ipv6Addr] {
        self.link_dns.valid_servers(now)
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
    /// the candidates of the uplink's own link, then the direct addresses that have failed.
    pub fn care_of_addresses(&self) -> Vec<IpAddr> {
        let mut ipv6: Vec<IpAddr> = Vec::new();
        let direct = self.direct_alternates();
        let candidates = self.ipv6_candidates().iter().map(|candidate| candidate.address);
        for address in self.care_of_address().into_iter().chain(direct.iter().copied()).chain(candidates) {
            if !ipv6.contains(&IpAddr::V6(address)) {
                ipv6.push(IpAddr::V6(address));
            }
        }
        let is_direct =
            |address: &IpAddr| self.direct_addresses.iter().any(|(it, _)| IpAddr::V6(*it) == *address);
        ipv6.sort_by_key(|address| is_direct(address) && self.has_failed(*address));
        let known =
            self.ipv4_candidates.best_candidates.iter().map(|candidate| IpAddr::V4(candidate.address));
        let ipv4: Vec<IpAddr> = known.filter(|_| self.ipv4_care_of_address().is_some()).collect();
        // RFC 8305 4: the order alternates between the IP versions. Direct addresses come before this
        // alternation.
        let ipv6_leads = !self.unanswered_address.is_some_and(|lost| lost.is_ipv6());
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
        if self.care_of_address().is_some() { &self.candidates.best_candidates } else { &[] }
    }

    /// Returns whether the home agent did not answer over a care-of address with its present router.
    fn has_failed(&self, address: IpAddr) -> bool {
        self.failed_candidates.contains(address, self.next_hop(address))
    }

    /// Returns the alternatives to a direct care-of address: other direct addresses, and the address of the
    /// uplink's own link. A registered address of the own link works until the home agent has acknowledged
    /// the direct one.
    fn direct_alternates(&self) -> Vec<Ipv6Addr> {
        let (Some(in_use), Some(interface)) = (self.care_of_address(), &self.interface) else {
            return Vec::new();
        };
        let is_direct =
            |address: &Ipv6Addr| self.direct_addresses.iter().any(|(direct, _)| direct == address);
        let direct = self.direct_addresses.iter().filter(|(_, usable)| *usable).map(|(address, _)| *address);
        let there = |address: &Ipv6Addr| interface.addresses.iter().any(|a| a.address == *address);
        let direct: Vec<Ipv6Addr> = direct.filter(|address| *address != in_use && there(address)).collect();
        let plain = self.best_own_link_address().filter(|plain| is_direct(&in_use) && *plain != in_use);
        direct.into_iter().chain(plain).collect()
    }

    /// Returns the best address of the uplink's own link; `None` if it has no candidate.
    pub(super) fn best_own_link_address(&self) -> Option<Ipv6Addr> {
        self.candidates.best_candidates.first().map(|candidate| candidate.address)
    }

    /// Returns the router to which packets from a care-of address go; `None` if it has no router.
    pub fn next_hop(&self, address: IpAddr) -> Option<IpAddr> {
        match address {
            IpAddr::V6(address) => {
                let own =
                    self.candidates.best_candidates.iter().find(|candidate| candidate.address == address);
                own.map(|candidate| candidate.router).or(self.router()).map(IpAddr::V6)
            }
            IpAddr::V4(address) => {
                let own = self
                    .ipv4_candidates
                    .best_candidates
                    .iter()
                    .find(|candidate| candidate.address == address);
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
    pub fn table_of_address(&self, address: IpAddr) -> usize {
        let router = self.next_hop(address);
        let number = match address {
            IpAddr::V6(_) => self.next_hops.iter().position(|known| known.map(IpAddr::V6) == router),
            IpAddr::V4(_) => self.ipv4_next_hops.iter().position(|known| known.map(IpAddr::V4) == router),
        };
        number.unwrap_or(0)
    }

    /// Assigns a routing table to each router in use. A router keeps its table, so that during changes no
    /// packet goes to the router of another address. On the home link, the first table has the routes of the
    /// home link.
    pub(super) fn assign_tables(&mut self) {
        let routers = self.candidates.best_candidates.iter().map(|candidate| candidate.router);
        match self.attachment {
            Attachment::Foreign { ipv6: Some((_, router)), .. } => {
                let wanted: Vec<Ipv6Addr> = std::iter::once(router).chain(routers).collect();
                assign_table_numbers(&mut self.next_hops, &wanted);
            }
            Attachment::Home { .. } => {
                let wanted: Vec<Ipv6Addr> = routers.collect();
                let [home, others @ ..] = &mut self.next_hops;
                *home = None;
                assign_table_numbers(others, &wanted);
            }
            _ => self.next_hops = [None; MAX_NEXT_HOPS],
        }
        let ipv4: Vec<Ipv4Addr> =
            self.ipv4_candidates.best_candidates.iter().map(|candidate| candidate.router).collect();
        assign_table_numbers(&mut self.ipv4_next_hops, &ipv4);
    }

    /// Returns whether a care-of address of the uplink's own link has a router of its own. If so, its packets
    /// leave by that router also on the home link, until the home agent has acknowledged the return.
    pub fn has_own_next_hop(&self, address: Ipv6Addr) -> bool {
        self.candidates.best_candidates.iter().any(|candidate| candidate.address == address)
    }

    /// Returns whether another router of a care-of address has not failed.
    pub(super) fn has_spare_router(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V6(address) => {
                self.candidates.spare_candidates.iter().any(|spare| spare.address == address)
            }
            IpAddr::V4(address) => {
                self.ipv4_candidates.spare_candidates.iter().any(|spare| spare.address == address)
            }
        }
    }

    /// Handles a care-of address over which the home agent does not answer: its candidate comes last from now
    /// on. Returns whether another candidate of the same IP version has not failed.
    pub(super) fn record_failed_candidate(
        &mut self,
        now: Time,
        address: IpAddr,
        config: &MobileRouterConfig,
    ) -> bool {
        let is_first = self.failed_candidates.add(now, address, self.next_hop(address));
        if address.is_ipv6() {
            self.start_seeking_router(is_first);
        }
        self.update_attachment(config);
        let mut family = self.care_of_addresses().into_iter().filter(|it| it.is_ipv6() == address.is_ipv6());
        family.any(|other| !self.has_failed(other))
    }

    /// Records that the home agent has answered over one care-of address, but not over `losers`, which the
    /// router tried before (RFC 8305 5). `is_proven` says whether the answer also concerns its present
    /// router.
    pub(super) fn record_race_winner(
        &mut self,
        now: Time,
        (winner, is_proven): (IpAddr, bool),
        losers: impl Iterator<Item = IpAddr>,
    ) {
        if is_proven {
            self.record_answering_candidate(winner);
        }
        if self.unanswered_address.is_some_and(|lost| lost.is_ipv6() == winner.is_ipv6()) {
            self.unanswered_address = None;
        }
        for loser in losers.filter(|loser| *loser != winner) {
            self.failed_candidates.add(now, loser, self.next_hop(loser));
            if loser.is_ipv6() != winner.is_ipv6() {
                self.unanswered_address = Some(loser);
            }
        }
    }

    /// Records that the home agent answers heartbeats over a care-of address again.
    pub(super) fn record_recovered_candidate(&mut self, address: IpAddr, config: &MobileRouterConfig) {
        if self.is_proven(address) {
            self.failed_candidates.remove(address, self.next_hop(address));
            self.update_attachment(config);
        }
    }

    /// Records that the home agent has acknowledged a registration over a care-of address and its present
    /// router.
    fn record_answering_candidate(&mut self, address: IpAddr) {
        let router = self.next_hop(address);
        self.failed_candidates.remove(address, router);
        self.is_seeking_router = false;
        let Some(router) = router else { return };
        if let IpAddr::V6(router) = router {
            self.link_routers.record_answering_router(router);
        }
        self.proven_candidates.add(address, router);
    }

    /// Returns whether the home agent has acknowledged a registration over a care-of address and its present
    /// router.
    pub(super) fn is_proven(&self, address: IpAddr) -> bool {
        self.next_hop(address).is_some_and(|router| self.proven_candidates.contains(address, router))
    }

    /// Returns whether a candidate has failed and another one has not been tried since.
    pub(super) fn has_untried_candidate(&self) -> bool {
        let all = self.care_of_addresses();
        let first = all.first().is_some_and(|first| !self.has_failed(*first));
        first && all.iter().any(|address| self.has_failed(*address))
    }

    /// Returns whether a candidate has appeared since the last call. Then earlier knowledge concerns another
    /// network.
    pub(super) fn take_new_candidate(&mut self) -> bool {
        std::mem::take(&mut self.has_new_candidate)
    }

    /// Allows the router to try every candidate again.
    pub(super) fn forget_failures(&mut self, config: &MobileRouterConfig) {
        self.failed_candidates = FailedCandidates::default();
        self.update_attachment(config);
    }

    /// Returns the router in use if it does not answer, which is then the reason why the home agent does not
    /// answer. Returns `None` if the router answers or is not known.
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

    /// Returns the default router if it is a mobile router, otherwise `None`.
    pub fn parent(&self) -> Option<&ParentRouter> {
        self.parents.parent_by_address(self.router()?)
    }

    /// Returns the network of the care-of address on the uplink's own link; `None` if its prefix length is
    /// not 64.
    pub fn link_network(&self) -> Option<Ipv6Addr> {
        let plain = self.ipv6_candidates().first()?.address;
        let known = self.interface.as_ref()?.addresses.iter().find(|a| a.address == plain)?;
        (known.prefix_length == 64).then(|| Ipv6Net::new(plain, 64).ok().map(|net| net.network())).flatten()
    }

    /// Returns whether the care-of address is a direct one, on the link that the outermost router visits.
    pub fn is_direct(&self) -> bool {
        self.care_of_address().is_some_and(|in_use| self.direct_addresses.iter().any(|(it, _)| *it == in_use))
    }

    /// Sets the direct addresses; returns whether that changes anything.
    pub(super) fn set_direct_addresses(
        &mut self,
        direct: Vec<(Ipv6Addr, bool)>,
        config: &MobileRouterConfig,
    ) -> bool {
        if self.direct_addresses == direct {
            return false;
        }
        self.direct_addresses = direct;
        self.update_attachment(config);
        true
    }

    /// Returns the link MTU in octets; 1280 while it is unknown.
    pub fn mtu(&self) -> u32 {
        let link = self.interface.as_ref().map_or(1280, |i| i.mtu.max(1280));
        // RFC 4861 6.3.4: use the MTU that the router advertises, if it is smaller. A mobile router
        // advertises an MTU that fits into its own tunnel.
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
    pub(super) fn adopt_state_of(&mut self, old: &Uplink, config: &MobileRouterConfig) {
        self.attachment = old.attachment;
        self.settling_until = old.settling_until;
        self.interface.clone_from(&old.interface);
        self.link_routers.clone_from(&old.link_routers);
        self.parents.clone_from(&old.parents);
        self.direct_addresses.clone_from(&old.direct_addresses);
        self.announced_portal.clone_from(&old.announced_portal);
        self.link_dns.clone_from(&old.link_dns);
        if config.probes_portals {
            self.portal_probes.clone_from(&old.portal_probes);
        }
        self.candidates.clone_from(&old.candidates);
        self.ipv4_candidates.clone_from(&old.ipv4_candidates);
        self.next_hops = old.next_hops;
        self.ipv4_next_hops = old.ipv4_next_hops;
        self.failed_candidates.clone_from(&old.failed_candidates);
        self.proven_candidates.clone_from(&old.proven_candidates);
        self.reachability.adopt_state(&old.reachability);
        self.home_router = old.home_router;
        self.proven_home_router = old.proven_home_router;
        self.was_home_prefix_advertised = old.was_home_prefix_advertised;
        self.unanswered_returns.clone_from(&old.unanswered_returns);
        self.sent_solicitations = old.sent_solicitations;
        self.unanswered_address = old.unanswered_address;
        self.needs_udp = old.needs_udp;
        self.signal_dbm = old.signal_dbm;
        self.signal_reported_at = old.signal_reported_at;
        self.has_poor_signal = old.has_poor_signal && self.config.signal.is_some();
        self.was_signal_reported = old.was_signal_reported;
        self.used_octets = old.used_octets;
        self.volume_meter = old.volume_meter.clone();
        self.udp_port = old.udp_port;
        self.capacity_estimate = old.capacity_estimate;
        self.capacity =
            old.capacity.filter(|_| self.config.capacity == old.config.capacity).or(self.capacity);
        self.is_settling = old.is_settling;
        self.is_roaming = old.is_roaming;
        self.update_attachment(config);
    }

    /// Takes over the state of the interface. Returns whether to send a Router Solicitation: the link has
    /// just come up, a router no longer answers, or the link-local address has become usable. The latter
    /// matters, because a router answers a solicitation without source by multicast, at most once in 3 s (RFC
    /// 4861 6.2.6).
    pub(super) fn handle_interface(&mut self, interface: Interface, config: &MobileRouterConfig) -> bool {
        let was_running = self.interface.as_ref().is_some_and(|i| i.running);
        let came_up = interface.running && !was_running;
        if came_up {
            self.handle_changed_link();
        }
        let had_link_local = self.link_local().is_some();
        let mut failed = false;
        for router in &interface.routers {
            let before = self.interface.iter().flat_map(|known| &known.routers);
            let before = before.into_iter().find(|known| known.gateway == router.gateway);
            if came_up || before.is_none_or(|before| before.neighbour != router.neighbour) {
                failed |= self.link_routers.handle_neighbour_state(router.gateway, router.neighbour);
            }
        }
        self.interface = Some(interface);
        self.is_seeking_router |= failed;
        let has_source = !had_link_local && self.link_local().is_some();
        if has_source {
            self.sent_solicitations = 0;
        }
        self.update_attachment(config);
        came_up || failed || has_source
    }

    /// Clears the state of the link, because the network may be another one now.
    fn handle_changed_link(&mut self) {
        self.link_routers.clear();
        self.parents.clear();
        self.announced_portal = None;
        self.link_dns = LinkDns::default();
        self.portal_probes = PortalProbes::default();
        self.failed_candidates = FailedCandidates::default();
        self.proven_candidates = ProvenCandidates::default();
        self.reachability = Reachability::default();
        self.unanswered_returns = UnansweredReturns::default();
        self.is_seeking_router = false;
        self.sent_solicitations = 0;
    }

    pub(super) fn handle_interface_gone(&mut self) {
        self.interface = None;
        self.handle_changed_link();
        self.was_home_prefix_advertised = false;
        self.proven_home_router = None;
        self.candidates = Candidates::default();
        self.ipv4_candidates = Candidates::default();
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
        self.announced_portal = CaptivePortal::portal_after_advertisement(
            self.announced_portal.take(),
            message.source,
            advertisement.options(),
        );
        self.link_dns.update_servers(now, advertisement.options());
        let in_use = self.router();
        let advertised = self.store_advertisement(now, message, &advertisement, config);
        // If the home agent did not answer over this router, carnet still needs another router.
        self.is_seeking_router &= self.failed_candidates.has_router(message.source.into());
        self.parents.record_advertisement(message, &advertisement, in_use);
        self.reachability.handle_advertisement(
            now,
            message.source,
            advertised.previous_advertisement_at,
            in_use,
        );
        self.update_attachment(config);
        if advertised.wants_solicitation { self.router_solicitation(Some(message.source)) } else { None }
    }

    /// Enters an advertisement into the list of routers. Spares the routers and prefixes in use, because an
    /// attacker can advertise many.
    fn store_advertisement(
        &mut self,
        now: Time,
        message: &LinkMessage,
        advertisement: &nd::RouterAdvertisement<'_>,
        config: &MobileRouterConfig,
    ) -> AdvertisementChanges {
        let in_use = self.router();
        let first = self.candidates.best_candidates.first().copied();
        let (home_router, proven) = (self.home_router, &self.proven_candidates);
        let is_router_in_use = |router: Ipv6Addr| {
            [in_use, home_router, first.map(|first| first.router)].contains(&Some(router))
                || proven.has_router(router.into())
        };
        let is_prefix_in_use = |prefix: &Ipv6Net| {
            config.is_home_link(*prefix)
                || first.is_some_and(|first| prefix.contains(&first.address))
                || proven.addresses().any(|address| prefix.contains(&address))
        };
        let kept = RoutersAndPrefixesInUse { router: &is_router_in_use, prefix: &is_prefix_in_use };
        self.link_routers.handle_advertisement(now, message, advertisement, &kept)
    }

    /// Handles a neighbour's answer to a Neighbor Solicitation (RFC 4861 7.2.5).
    pub(super) fn handle_neighbor_advertisement(
        &mut self,
        now: Time,
        message: &LinkMessage,
        config: &MobileRouterConfig,
    ) {
        let Ok(advertisement) = nd::NeighborAdvertisement::parse(&message.message) else { return };
        if advertisement.solicited {
            self.handle_router_answer(now, advertisement.target, None, config);
        }
    }

    /// Handles a router's answer to an Echo Request (RFC 4443 4.2).
    pub(super) fn handle_echo_reply(
        &mut self,
        now: Time,
        message: &LinkMessage,
        config: &MobileRouterConfig,
    ) {
        if let [_, _, _, _, first, second, high, low, ..] = *message.message
            && [first, second] == ROUTER_PROBE_ECHO_IDENTIFIER.to_be_bytes()
        {
            let number = u16::from_be_bytes([high, low]);
            self.handle_router_answer(now, message.source, Some(number), config);
        }
    }

    /// Handles a router's answer to a probe. `echo` is the sequence number of an Echo Reply.
    fn handle_router_answer(
        &mut self,
        now: Time,
        router: Ipv6Addr,
        echo: Option<u16>,
        config: &MobileRouterConfig,
    ) {
        if self.reachability.handle_answer(now, router, echo)
            && self.link_routers.record_answering_router(router)
        {
            self.update_attachment(config);
        }
    }

    /// Starts to send Router Solicitations until a router advertises, because a path has failed. The pauses
    /// start at their minimum again only if the home agent has answered over the path in the meantime.
    fn start_seeking_router(&mut self, is_first: bool) {
        self.is_seeking_router = true;
        if is_first {
            self.sent_solicitations = 0;
        }
    }

    /// Sets the time of the next probe of the home router. Stops the probe of a home link that the
    /// uplink has left.
    pub(super) fn watch_home_router(&mut self, now: Time, config: &MobileRouterConfig) {
        self.reachability.watch_home_router(now, self.home_router, home_probe_interval(config));
    }

    /// Returns when [`Self::handle_timeout`] is due next; `None` if no timer runs.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        [
            self.reachability.next_deadline(),
            self.link_routers.next_deadline(),
            self.failed_candidates.next_expiry(),
            self.unanswered_returns.home_ignored_until(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Returns the probes of routers that are due, and records missing answers. The flag says whether to send
    /// Router Solicitations until a router advertises.
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        config: &MobileRouterConfig,
    ) -> ([Option<LinkMessage>; 3], bool) {
        let mut lost = self.link_routers.mark_missing_routers(now);
        let mut messages = [None, None, None];
        match self.reachability.due_action(now, self.has_other_home_router) {
            DueProbeAction::Nothing => {}
            DueProbeAction::Unreachable { router, link_since } => {
                lost |= self.link_routers.record_failed_router(router);
                link_since.into_iter().for_each(|since| self.link_routers.mark_routers_failed_before(since));
            }
            DueProbeAction::Probe(ProbeToSend {
                router,
                needs_solicitation: solicits,
                echo_number: echo,
            }) => {
                let solicitation = self.neighbor_solicitation(router).filter(|_| solicits);
                let request = echo.and_then(|number| self.echo_request(router, number));
                let sent =
                    SentProbe { solicitation_sent: solicitation.is_some(), echo_sent: request.is_some() };
                let is_in_doubt = self.reachability.record_sent_probe(now, sent);
                let routers = if is_in_doubt { self.router_solicitation(None) } else { None };
                messages = [solicitation, request, routers];
            }
        }
        let forgiven = self.failed_candidates.expire_failures(now);
        let ended = self.link_routers.end_expired_lifetimes(now);
        let suspected = self.link_routers.suspect_omitted_prefixes(now);
        let undoubted = self.unanswered_returns.end_ignoring_home_if_over(now);
        self.is_seeking_router |= lost;
        if lost || forgiven || ended || suspected || undoubted {
            self.update_attachment(config);
        }
        (messages, lost)
    }

    fn neighbor_solicitation(&self, router: Ipv6Addr) -> Option<LinkMessage> {
        let interface = self.interface.as_ref().filter(|i| i.running)?;
        let source = self.link_local()?;
        let peer = self.link_routers.link_address(router);
        // RFC 4861 7.3.3: send the probe by unicast if the link-layer address is known, otherwise to the
        // solicited-node multicast address.
        let destination = if peer.is_some() { router } else { nd::solicited_node_address(router) };
        let solicitation =
            nd::NeighborSolicitation { target: router, source_link_address: interface.link_address };
        let mut message = solicitation.emit();
        icmpv6::set_checksum(&mut message, source, destination);
        let interface = interface.name.clone();
        Some(LinkMessage { interface, source, destination, hop_limit: nd::HOP_LIMIT, peer, message })
    }

    /// Builds an Echo Request to a router; `None` if its link-layer address is not known.
    fn echo_request(&self, router: Ipv6Addr, number: u16) -> Option<LinkMessage> {
        let interface = self.interface.as_ref().filter(|i| i.running)?;
        let source = self.link_local()?;
        let peer = self.link_routers.link_address(router);
        if peer.is_none() && interface.link_address.is_some() {
            return None;
        }
        let mut message = vec![icmpv6::message_type::ECHO_REQUEST, 0, 0, 0];
        message.extend(ROUTER_PROBE_ECHO_IDENTIFIER.to_be_bytes());
        message.extend(number.to_be_bytes());
        icmpv6::set_checksum(&mut message, source, router);
        let interface = interface.name.clone();
        Some(LinkMessage { interface, source, destination: router, hop_limit: nd::HOP_LIMIT, peer, message })
    }

    /// Returns whether carnet has sent a Router Solicitation since the pauses started at their minimum.
    pub(super) fn has_solicited(&self) -> bool {
        self.sent_solicitations > 0
    }

    /// Returns a Router Solicitation and the pause until the next one; `None` if a router has advertised.
    pub(super) fn next_router_solicitation(&mut self) -> Option<(LinkMessage, Duration)> {
        let interface = self.interface.as_ref().filter(|i| i.running)?;
        let confirmed =
            !self.link_routers.is_empty() && !interface.routers.is_empty() && !self.is_seeking_router;
        if confirmed {
            return None;
        }
        let doublings = self.sent_solicitations.saturating_sub(1).min(7);
        self.sent_solicitations = self.sent_solicitations.saturating_add(1);
        let interval = (SOLICITATION_INTERVAL * 2_u32.pow(doublings)).min(MAX_SOLICITATION_INTERVAL);
        Some((self.router_solicitation(None)?, interval))
    }

    /// Builds a Router Solicitation to one router, or to all routers; `None` if the interface is down.
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

    /// Returns the link-local address of the interface; `None` if it has none that is usable.
    pub(super) fn link_local(&self) -> Option<Ipv6Addr> {
        let addresses = &self.interface.as_ref()?.addresses;
        let usable =
            |a: &&carnet_base::Address| a.address.is_unicast_link_local() && !a.tentative && !a.duplicate;
        addresses.iter().find(usable).map(|a| a.address)
    }
}

/// Assigns a routing table number to each router. A router that has a number keeps it.
fn assign_table_numbers<A: Copy + PartialEq>(places: &mut [Option<A>], routers: &[A]) {
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

/// Returns the pause between an answer of the home router and the next probe.
fn home_probe_interval(config: &MobileRouterConfig) -> Duration {
    if config.liveness.is_some() { HOME_PROBE_INTERVAL } else { HOME_PROBE_INTERVAL_WITHOUT_HEARTBEATS }
}

pub(super) fn ipv6_care_of_address_of(attachment: Attachment) -> Option<Ipv6Addr> {
    match attachment {
        Attachment::Foreign { ipv6, .. } => ipv6.map(|(address, _)| address),
        _ => None,
    }
}

pub(super) fn ipv4_care_of_address_of(attachment: Attachment) -> Option<Ipv4Addr> {
    match attachment {
        Attachment::Foreign { ipv4, .. } => ipv4.map(|(address, _)| address),
        _ => None,
    }
}
