//! Determines the attachment of an uplink from the state of its interface and the routers of its link (RFC
//! 6275 11.5).
//!
//! An uplink is on the home link if a router there advertises the home prefix now. An address in the home
//! prefix that the operator has configured on the interface shows the home link, too. `home_network` handles
//! home prefixes that contain mobile networks.
//!
//! Any host on a foreign link can advertise the home prefix. So the candidates of the foreign link are
//! determined on the home link, too. Until the home agent has acknowledged the return, packets from the
//! registered care-of address leave by its own router. If the home agent does not answer a return over one
//! router, another home router is used. After the last one the home prefix has no effect for a while, unless
//! the uplink has no other care-of address. If the home agent does not answer over the foreign candidates
//! either, this time ends early.

use std::net::{Ipv4Addr, Ipv6Addr};

use carnet_base::{Address, Interface, Time};
use ipnet::Ipv6Net;

use super::address_and_router::{
    CandidateHistory, Candidates, ipv4_candidates, ipv6_candidates, is_usable_ipv4,
};
use super::unanswered_returns::UnansweredReturns;
use super::uplink::{VOLUME_USED_UP, ipv4_care_of_address_of, ipv6_care_of_address_of};
use super::{Attachment, MobileRouterConfig, Uplink};
use crate::is_unicast_routable;

const HOME_ROUTER_SILENT: &str = "the router of the home link does not answer";

/// The candidates of an uplink, and the reasons why there may be none.
struct FoundCandidates {
    ipv6_candidates: Candidates<Ipv6Addr>,
    ipv4_candidates: Candidates<Ipv4Addr>,
    /// This router's preferred address on the link of its parent router; `None` without one. See
    /// [`crate::nesting`].
    direct_address: Option<Ipv6Addr>,
    /// Reason why the best router cannot be this router's parent; `None` if any candidate has a suitable
    /// router.
    parent_refusal: Option<&'static str>,
    /// First default router of the kernel's list; `None` if the list is empty.
    first_gateway: Option<Ipv6Addr>,
    has_address: bool,
    /// Whether the uplink has left the home link. It may still have an address of that link, but the link's
    /// router does not answer.
    has_left_home: bool,
}

/// The home link as the routers of the link show it.
struct DetectedHomeLink {
    /// Default router on the home link, if any.
    router: Option<Ipv6Addr>,
    /// Router that advertises the home prefix; `None` if the link is the home link for another reason.
    /// `has_other_advertising_router` says whether another router also advertises the home prefix.
    advertising_router: Option<Ipv6Addr>,
    has_other_advertising_router: bool,
}

impl Uplink {
    pub(super) fn update_attachment(&mut self, config: &MobileRouterConfig) {
        let known = (self.candidates.best_candidates.clone(), self.ipv4_candidates.best_candidates.clone());
        let attachment = self.determine_attachment(config);
        let before = std::mem::replace(&mut self.attachment, attachment);
        self.assign_tables();
        let direct = self.care_of_address().filter(|_| self.is_direct());
        let is_new = self.candidates.best_candidates.iter().any(|candidate| !known.0.contains(candidate))
            || direct.is_some_and(|direct| ipv6_care_of_address_of(before) != Some(direct))
            || std::mem::discriminant(&before) != std::mem::discriminant(&self.attachment);
        if is_new || self.unanswered_address.is_some_and(|lost| !self.has_care_of_address(lost)) {
            // The network may be another one now, so the router tries both IP versions again.
            self.unanswered_address = None;
        }
        self.has_new_candidate |= is_new
            || self.ipv4_candidates.best_candidates.iter().any(|candidate| !known.1.contains(candidate));
        if self.ipv4_care_of_address() != ipv4_care_of_address_of(before) {
            self.needs_udp = false;
        }
    }

    /// Determines the attachment, with new candidates.
    fn determine_attachment(&mut self, config: &MobileRouterConfig) -> Attachment {
        let in_use = (self.best_own_link_address(), self.ipv4_care_of_address());
        self.candidates = Candidates::default();
        self.ipv4_candidates = Candidates::default();
        self.ipv4_gateway = None;
        let former = self.home_router.take();
        self.has_other_home_router = false;
        let Some(interface) = &self.interface else { return Attachment::Down("no such interface") };
        if let Some(reason) = self.reason_unusable(interface) {
            return Attachment::Down(reason);
        }
        let home = self.find_home_link(interface, config, former);
        let found = self.find_candidates(interface, config, in_use);
        let is_foreign = found.has_care_of_address(config);
        self.ipv4_gateway = found.ipv4_candidates.best_candidates.first().map(|candidate| candidate.router);
        if let Some(home) = home.filter(|_| !self.is_home_link_doubted() || !is_foreign) {
            self.home_router = home.advertising_router;
            self.has_other_home_router = home.has_other_advertising_router;
            self.candidates = found.ipv6_candidates;
            return Attachment::Home { router: home.router };
        }
        if !is_foreign {
            return Attachment::Down(found.reason_without_care_of_address(interface, config));
        }
        let router = found.ipv6_candidates.best_candidates.first().map(|candidate| candidate.router);
        let router = router.or(found.first_gateway.filter(|_| found.parent_refusal.is_none()));
        let own = found.ipv6_candidates.best_candidates.first().map(|candidate| candidate.address);
        let ipv6 = found.direct_address.or(own).zip(router);
        let ipv4 = found
            .ipv4_candidates
            .best_candidates
            .first()
            .map(|candidate| (candidate.address, candidate.router));
        let ipv4 = ipv4.filter(|_| config.home_agent_ipv4.is_some());
        self.candidates = found.ipv6_candidates;
        if ipv4.is_some() {
            self.ipv4_candidates = found.ipv4_candidates;
        }
        Attachment::Foreign { ipv6, ipv4 }
    }

    /// Returns the default router of IPv6 for packets outside of the tunnel; `None` on the home link or if
    /// the uplink is down. The address is unspecified if a default route has no gateway.
    pub fn ipv6_gateway(&self) -> Option<Ipv6Addr> {
        match self.attachment {
            Attachment::Foreign { ipv6, .. } => ipv6.map(|(_, router)| router),
            Attachment::Down(_) | Attachment::Home { .. } => None,
        }
    }

    /// Returns the default router of IPv4 for packets outside of the tunnel; `None` without an IPv4 default
    /// route. The address is unspecified if a default route has no gateway.
    pub fn ipv4_gateway(&self) -> Option<Ipv4Addr> {
        self.ipv4_gateway
    }

    /// Returns why the uplink cannot be used whatever its addresses are; `None` without such a reason.
    fn reason_unusable(&self, interface: &Interface) -> Option<&'static str> {
        if !interface.running {
            Some("no carrier")
        } else if self.config.never_roams && self.is_roaming == Some(true) {
            Some("roaming")
        } else if self.is_stopped_by_volume() {
            Some(VOLUME_USED_UP)
        } else {
            None
        }
    }

    /// Returns the addresses that can be care-of addresses on the uplink's own link.
    fn usable_addresses<'a>(
        &'a self,
        interface: &'a Interface,
        config: &'a MobileRouterConfig,
    ) -> impl Iterator<Item = &'a Address> {
        let is_direct = |a: &&Address| self.direct_addresses.iter().any(|(direct, _)| *direct == a.address);
        interface.addresses.iter().filter(move |a| {
            // RFC 3963 1, RFC 4888: packets to a care-of address in the router's own mobile network would
            // loop.
            has_usable_state(a)
                && a.address != config.home_address
                && !is_own_address(config, a)
                && !is_direct(a)
        })
    }

    /// Returns whether an address shows the home link, and no foreign prefix contains it.
    fn is_in_home_prefix(&self, gateways: &[Ipv6Addr], config: &MobileRouterConfig, own: &Address) -> bool {
        let elsewhere = |prefix: &Ipv6Net| prefix.contains(&own.address) && !config.is_home_link(*prefix);
        config.is_home_address(own)
            && self.link_routers.routers_advertising(gateways, elsewhere).next().is_none()
    }

    /// Returns whether a home router has advertised on the interface and does not do so now. RFC 6275 11.5.5:
    /// a router must advertise the home prefix now. An address that the kernel has kept does not show that.
    fn is_home_attachment_outdated(&self) -> bool {
        self.was_home_prefix_advertised && !self.link_routers.is_empty()
    }

    /// Returns the home link; `None` if the uplink is not on it. `former` is the router of the home link that
    /// was in use before.
    fn find_home_link(
        &self,
        interface: &Interface,
        config: &MobileRouterConfig,
        former: Option<Ipv6Addr>,
    ) -> Option<DetectedHomeLink> {
        let gateways = default_gateways(interface);
        // Of several routers of the home link, one stays in use until it fails. A router over which the home
        // agent has answered a return comes before an unknown one.
        let is_home = |prefix: &Ipv6Net| config.is_home_link(*prefix);
        let all = self.link_routers.routers_advertising(&gateways, is_home);
        let routers: Vec<Ipv6Addr> =
            all.filter(|router| !self.unanswered_returns.has_router(*router)).collect();
        let chosen = [former, self.proven_home_router].into_iter().flatten();
        let mut chosen = chosen.filter(|router| routers.contains(router));
        let advertised = chosen.next().or(routers.first().copied());
        let is_configured = || {
            let mut own = self.usable_addresses(interface, config).filter(|address| address.permanent);
            own.any(|address| self.is_in_home_prefix(&gateways, config, address))
        };
        if advertised.is_none() && (self.is_home_attachment_outdated() || !is_configured()) {
            return None;
        }
        let first = gateways.iter().find(|gateway| Some(**gateway) == advertised);
        let answers = gateways.iter().find(|gateway| !self.link_routers.is_unreachable(**gateway));
        // The kernel's list may lack the home router (see `address_and_router`).
        let unlisted = || self.link_routers.default_routers().find(|router| Some(*router) == advertised);
        let router = first.or(answers).copied().or_else(unlisted).or(gateways.first().copied());
        Some(DetectedHomeLink {
            router,
            advertising_router: advertised,
            has_other_advertising_router: routers.len() > 1,
        })
    }

    /// Determines the care-of addresses of a foreign link. `in_use` has the present ones.
    fn find_candidates(
        &self,
        interface: &Interface,
        config: &MobileRouterConfig,
        in_use: (Option<Ipv6Addr>, Option<Ipv4Addr>),
    ) -> FoundCandidates {
        let gateways = default_gateways(interface);
        let is_home = |address: &&Address| self.is_in_home_prefix(&gateways, config, address);
        let addresses: Vec<&Address> =
            self.usable_addresses(interface, config).filter(|address| !is_home(address)).collect();
        let experience = CandidateHistory {
            failed_candidates: &self.failed_candidates,
            proven_candidates: &self.proven_candidates,
        };
        let mut ipv6 = ipv6_candidates(
            &addresses,
            &interface.routers,
            &self.link_routers,
            &experience,
            in_use.0,
            config.home_agent,
        );
        // A mobile router that cannot be this router's parent cannot be its default router either.
        let refusal_of = |router: Ipv6Addr| {
            self.parents
                .parent_by_address(router)
                .and_then(|parent| parent.reason_to_refuse(config.home_address))
        };
        let refusal = ipv6.best_candidates.first().and_then(|candidate| refusal_of(candidate.router));
        ipv6.best_candidates.retain(|candidate| refusal_of(candidate.router).is_none());
        ipv6.spare_candidates.retain(|candidate| refusal_of(candidate.router).is_none());
        let there = |address: &Ipv6Addr| {
            interface
                .addresses
                .iter()
                .any(|a| has_usable_state(&a) && a.address == *address && !is_own_address(config, a))
        };
        let mut direct =
            self.direct_addresses.iter().filter(|(_, usable)| *usable).map(|(address, _)| *address);
        FoundCandidates {
            parent_refusal: refusal.filter(|_| ipv6.best_candidates.is_empty()),
            ipv6_candidates: ipv6,
            ipv4_candidates: ipv4_candidates(interface, &experience, in_use.1),
            direct_address: direct.find(there),
            first_gateway: gateways.first().copied(),
            has_address: !addresses.is_empty(),
            has_left_home: self.is_home_attachment_outdated()
                && self.usable_addresses(interface, config).any(|it| is_home(&it)),
        }
    }

    /// Handles a return home that the home agent has not answered. Returns true if another router of the home
    /// link remains. Otherwise the home prefix has no effect for a while, unless the uplink has no other
    /// care-of address.
    pub(super) fn handle_unanswered_return_home(&mut self, now: Time, config: &MobileRouterConfig) -> bool {
        if let Some(router) = self.home_router
            && self.unanswered_returns.add_router(router)
        {
            self.update_attachment(config);
            if self.home_router.is_some() {
                return true;
            }
        }
        self.unanswered_returns.begin_ignoring_home(now);
        self.update_attachment(config);
        false
    }

    /// Lets the home prefix have effect again soon, because the home agent does not answer over the foreign
    /// candidates either.
    pub(super) fn retry_return_home_early(&mut self, now: Time) {
        self.unanswered_returns.end_ignoring_home_early(now);
    }

    /// Records that the home agent has answered a return over this uplink.
    pub(super) fn handle_answered_return_home(&mut self) {
        self.unanswered_returns = UnansweredReturns::default();
        if self.home_router.is_some() {
            self.was_home_prefix_advertised = true;
            self.proven_home_router = self.home_router;
        }
    }

    /// Returns whether the home prefix has no effect, because the home agent did not answer a return over
    /// this uplink.
    pub(super) fn is_home_link_doubted(&self) -> bool {
        self.unanswered_returns.home_ignored_until().is_some()
    }

    /// Returns whether only a Router Advertisement shows the home link, and the uplink has other candidates.
    /// Any host can send the advertisement.
    pub(super) fn may_leave_home_early(&self) -> bool {
        self.home_router.is_some() && !self.candidates.best_candidates.is_empty()
    }
}

impl FoundCandidates {
    fn has_care_of_address(&self, config: &MobileRouterConfig) -> bool {
        let has_router = !self.ipv6_candidates.best_candidates.is_empty()
            || (self.first_gateway.is_some() && self.parent_refusal.is_none());
        let has_ipv6 =
            has_router && (self.direct_address.is_some() || !self.ipv6_candidates.best_candidates.is_empty());
        has_ipv6 || (config.home_agent_ipv4.is_some() && !self.ipv4_candidates.best_candidates.is_empty())
    }

    /// Returns why the uplink has no care-of address.
    fn reason_without_care_of_address(
        &self,
        interface: &Interface,
        config: &MobileRouterConfig,
    ) -> &'static str {
        if let Some(reason) = self.parent_refusal {
            reason
        } else if self.has_address {
            "no default router"
        } else if config.home_agent_ipv4.is_none() && !self.ipv4_candidates.best_candidates.is_empty() {
            "IPv4 only, and mobile_router.home_agent_ipv4 is not set"
        } else if interface.addresses.iter().any(|address| is_own_address(config, address)) {
            "the address is in this router's own mobile network"
        } else if config.home_agent_ipv4.is_some()
            && interface.ipv4_addresses.iter().any(|a| is_usable_ipv4(a.addr()))
        {
            "no default router (IPv4)"
        } else if self.has_left_home {
            HOME_ROUTER_SILENT
        } else {
            "no usable address"
        }
    }
}

fn default_gateways(interface: &Interface) -> Vec<Ipv6Addr> {
    interface.routers.iter().map(|router| router.gateway).collect()
}

/// Returns whether an address is in this router's own mobile network.
fn is_own_address(config: &MobileRouterConfig, address: &Address) -> bool {
    config.prefixes.iter().any(|prefix| prefix.contains(&address.address))
}

/// Returns whether the state of an IPv6 address allows its use.
fn has_usable_state(address: &&Address) -> bool {
    !address.tentative && !address.duplicate && is_unicast_routable(address.address)
}
