//! Proxy Neighbor Discovery: which addresses the home agent defends on the home link, and its advertisements
//! (RFC 6275 10.3.1, 10.4.1, RFC 3963 6.2).
//!
//! In an aggregated home network (RFC 4887 6) the mobile networks are parts of the home prefix. So hosts on
//! the home link solicit their addresses there. While a mobile router is away, the home agent answers for all
//! of its mobile network. This also keeps visitors from configuring such an address (RFC 4887 6.4.1). At home
//! the router answers (RFC 4887 6.2.1).

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, mapped};
use ipnet::Ipv6Net;

use super::{BindingCache, HomeAgentConfig, HomeAgentContext, HomeAgentTimer, HomeLink, discovery};
use crate::Output;

/// Number of unsolicited Neighbor Advertisements in a row for one address (RFC 4861 10). `RETRANS_TIMER` is
/// the interval between them (`RetransTimer`).
const MAX_NEIGHBOR_ADVERTISEMENT: u8 = 3;
const RETRANS_TIMER: Duration = Duration::from_secs(1);

/// State of proxy Neighbor Discovery.
#[derive(Debug)]
pub(super) struct ProxyNd {
    pub(super) home_link: Option<HomeLink>,
    /// The home agents' anycast addresses at which this home agent answers.
    pub(super) anycast_addresses: Vec<Ipv6Addr>,
    /// Number of unsolicited Neighbor Advertisements still to be sent, by target.
    pub(super) pending_announcements: BTreeMap<Ipv6Addr, u8>,
    pub(super) conflict_warning_limit: RateLimiter,
}

impl ProxyNd {
    pub(super) fn new(config: &HomeAgentConfig) -> ProxyNd {
        let home_link = config.home_link.clone();
        ProxyNd {
            home_link: home_link.map(|name| HomeLink::new(name, Some(config.address))),
            anycast_addresses: discovery::anycast_addresses(config),
            pending_announcements: BTreeMap::new(),
            conflict_warning_limit: RateLimiter::new(1, Duration::from_secs(60)),
        }
    }

    /// Returns whether the home agent answers solicitations for an address on the home link, and the Router
    /// flag of its answer; `None` if it does not answer.
    pub(super) fn advertised_router_flag_of(
        &self,
        config: &HomeAgentConfig,
        cache: &BindingCache,
        target: Ipv6Addr,
    ) -> Option<bool> {
        if let Some(router) = self.router_flag_of_own_or_bound(config, cache, target) {
            return Some(router);
        }
        if target.is_unicast_link_local() {
            return cache
                .iter()
                .find(|b| b.link_local_address() == Some(target))
                .map(|binding| binding.mobile_router);
        }
        // RFC 4887 6.4.1, RFC 4861 4.4: the target is a host in the mobile network. So the Router flag is
        // 0, although a router answers for it.
        is_in_registered_mobile_network(config, cache, target).then_some(false)
    }

    /// Returns the Router flag of the home agent's answer to a solicitation on a link that is not the home
    /// link; `None` if it does not answer.
    pub(super) fn proxied_router_flag(
        &self,
        config: &HomeAgentConfig,
        cache: &BindingCache,
        target: Ipv6Addr,
    ) -> Option<bool> {
        let router = self.router_flag_of_own_or_bound(config, cache, target);
        router.or_else(|| is_in_bound_network(cache, target).then_some(false))
    }

    /// Returns the numbers of single addresses and of mobile networks for which the home agent answers on a
    /// link that is not the home link.
    pub(super) fn count_proxied_targets(&self, cache: &BindingCache) -> (u64, u64) {
        let (mut addresses, mut prefixes) = (1 + self.anycast_addresses.len() as u64, 0);
        let mut last = None;
        // Bindings of one home address follow each other, so count only the first of each home address.
        for binding in
            cache.iter().filter(|binding| last.replace(binding.home_address) != Some(binding.home_address))
        {
            addresses += 1;
            let is_ipv6 = |prefix: &&Ipv6Net| mapped::to_ipv4(**prefix).is_none();
            prefixes += binding.prefixes.iter().filter(is_ipv6).count() as u64;
        }
        (addresses, prefixes)
    }

    /// Returns the Router flag for an address of the home agent itself, or for a bound home address; `None`
    /// for other addresses.
    fn router_flag_of_own_or_bound(
        &self,
        config: &HomeAgentConfig,
        cache: &BindingCache,
        target: Ipv6Addr,
    ) -> Option<bool> {
        if target == config.address || self.anycast_addresses.contains(&target) {
            return Some(true);
        }
        cache.best_valid_binding(target).map(|binding| binding.mobile_router)
    }

    /// Starts to advertise on the home link that `target` has the home agent's link-layer address.
    pub(super) fn announce_address(&mut self, context: HomeAgentContext<'_>, target: Ipv6Addr) {
        if self.home_link.is_some() {
            self.pending_announcements.insert(target, MAX_NEIGHBOR_ADVERTISEMENT);
            self.send_next_announcement(context, target);
        }
    }

    /// Sends the next unsolicited Neighbor Advertisement for an address.
    pub(super) fn send_next_announcement(&mut self, context: HomeAgentContext<'_>, target: Ipv6Addr) {
        let HomeAgentContext { now, config, cache, timers, outputs } = context;
        let router = self.advertised_router_flag_of(config, cache, target);
        let left = self.pending_announcements.remove(&target).map_or(0, |left| left.saturating_sub(1));
        let (Some(router), Some(link)) = (router, &self.home_link) else { return };
        if left > 0 {
            self.pending_announcements.insert(target, left);
            timers.set_deadline(HomeAgentTimer::Announce(target), now + RETRANS_TIMER);
        }
        let link_local = cache.best_valid_binding(target).and_then(|binding| binding.link_local_address());
        for address in [Some(target), link_local].into_iter().flatten() {
            outputs.extend(link.build_unsolicited_advertisement(address, router).map(Output::Link));
        }
    }
}

/// Returns whether an address of the home prefix is in the mobile network of a router that is away.
fn is_in_registered_mobile_network(config: &HomeAgentConfig, cache: &BindingCache, target: Ipv6Addr) -> bool {
    config.home_prefix.contains(&target) && is_in_bound_network(cache, target)
}

/// Returns whether an address is in a mobile network for which a binding exists.
fn is_in_bound_network(cache: &BindingCache, target: Ipv6Addr) -> bool {
    // The cache has the prefixes of IPv4 in IPv4-mapped form, which no node on a link may solicit.
    if target.to_ipv4_mapped().is_some() {
        return false;
    }
    let around = |home_address: Ipv6Addr| {
        cache.is_bound(home_address)
            && cache.prefixes(home_address).iter().any(|prefix| prefix.contains(&target))
    };
    cache.prefix_table().owners_of_covering_prefixes(target).any(around)
}
