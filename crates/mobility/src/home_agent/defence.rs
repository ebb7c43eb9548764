//! Proxy Neighbor Discovery: which addresses the home agent defends on the home link, and its advertisements
//! (RFC 6275 10.3.1, 10.4.1, RFC 3963 6.2).
//!
//! In an aggregated home network (RFC 4887 6) the mobile networks are parts of the home prefix, so hosts on
//! the home link solicit their addresses there. While a mobile router is away, the home agent answers for all
//! of its mobile network. This also keeps visitors from configuring such an address (RFC 4887 6.4.1). At home
//! the router answers (RFC 4887 6.2.1).

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::mobility::status::Status;

use super::answers::Answer;
use super::{HomeAgent, Tested, Timer};
use crate::Output;

/// `MAX_NEIGHBOR_ADVERTISEMENT` and `RetransTimer` (RFC 4861 10).
const MAX_NEIGHBOR_ADVERTISEMENT: u8 = 3;
const RETRANS_TIMER: Duration = Duration::from_secs(1);

impl HomeAgent {
    /// Whether the home agent answers for an address on the home link; if so, with which Router bit.
    pub(super) fn defended(&self, target: Ipv6Addr) -> Option<bool> {
        if target == self.config.address || self.anycast.contains(&target) {
            return Some(true);
        }
        if let Some(binding) = self.cache.valid(target) {
            return Some(binding.mobile_router);
        }
        if target.is_unicast_link_local() {
            return self
                .cache
                .iter()
                .find(|b| b.link_local_address() == Some(target))
                .map(|binding| binding.mobile_router);
        }
        // RFC 4887 6.4.1: the target is a host in the mobile network and no router, whichever node answers
        // for it (RFC 4861 4.4).
        self.is_away(target).then_some(false)
    }

    /// Whether an address of the home prefix lies in the mobile network of a router that is away.
    fn is_away(&self, target: Ipv6Addr) -> bool {
        let home_prefix = self.config.home_prefix;
        let around = |home_address: Ipv6Addr| {
            self.cache.is_bound(home_address)
                && self.cache.prefixes(home_address).iter().any(|prefix| prefix.contains(&target))
        };
        home_prefix.contains(&target) && self.cache.owners().of_prefixes_around(target).any(around)
    }

    /// Ends the registrations of a home address for which duplicate address detection has found another node
    /// (RFC 6275 10.3.1).
    pub(super) fn duplicate(&mut self, target: Ipv6Addr) {
        let home_address = self.testing.keys().copied().find(|&home_address| {
            home_address == target
                || self.cache.all(home_address).any(|binding| binding.link_local_address() == Some(target))
        });
        if let Some(home_address) = home_address {
            self.timers.stop(Timer::Dad(home_address));
            let status = Status::DUPLICATE_ADDRESS;
            for Tested { request, .. } in self.stop_testing(home_address) {
                self.refused(&request, status);
                self.outputs.push_back(Output::Persist(home_address));
                self.acknowledge(&request, status, &Answer::plain(&request));
            }
        }
    }

    /// Begins to advertise on the home link that `target` is at the home agent's link-layer address.
    pub(super) fn announce(&mut self, now: Time, target: Ipv6Addr) {
        if self.home_link.is_some() {
            self.announcements.insert(target, MAX_NEIGHBOR_ADVERTISEMENT);
            self.announce_once(now, target);
        }
    }

    pub(super) fn announce_once(&mut self, now: Time, target: Ipv6Addr) {
        let router = self.defended(target);
        let left = self.announcements.remove(&target).map_or(0, |left| left.saturating_sub(1));
        let (Some(router), Some(link)) = (router, &self.home_link) else { return };
        if left > 0 {
            self.announcements.insert(target, left);
            self.timers.set(Timer::Announce(target), now + RETRANS_TIMER);
        }
        let link_local = self.cache.valid(target).and_then(|binding| binding.link_local_address());
        for address in [Some(target), link_local].into_iter().flatten() {
            self.outputs.extend(link.announcement(address, router).map(Output::Link));
        }
    }
}
