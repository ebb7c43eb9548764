//! Paths to addresses of visited links: over the link itself, or over a parent that offers its network.

use std::net::Ipv6Addr;

use carnet_wire::ipv6::is_unicast_routable;
use carnet_wire::nd::nesting::MAX_PREFIXES;
use ipnet::Ipv6Net;

use super::Nesting;
use super::entry::Entry;
use crate::mobile_router::{Attachment, MobileRouter};

/// Most networks of which this router has an own address over one parent: the one in use and the next.
const MAX_OWN: usize = 2;

/// A network that offers addresses, over an uplink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Way {
    pub network: Ipv6Addr,
    pub interface: String,
    /// The router that accepts registrations; `None` if the uplink's link is itself the visited one.
    pub parent: Option<(Ipv6Addr, Option<[u8; 6]>)>,
}

impl Way {
    pub fn over(&self) -> (String, Option<Ipv6Addr>) {
        (self.interface.clone(), self.parent.map(|(router, _)| router))
    }
}

impl Nesting {
    pub(super) fn ways_of(&self, router: &MobileRouter, unsuitable: &[String]) -> Vec<Way> {
        let mut order: Vec<usize> = (0..router.uplinks().len()).collect();
        order.sort_by_key(|index| (router.active_uplink() != Some(*index), *index));
        let mut ways: Vec<Way> = Vec::new();
        for index in order {
            let Some(uplink) = router.uplinks().get(index) else { continue };
            let Attachment::Foreign { ipv6: Some((_, gateway)), .. } = uplink.attachment else { continue };
            let interface = &uplink.config.interface;
            if unsuitable.contains(interface) {
                continue;
            }
            let offered = uplink.parent().filter(|parent| !parent.information.prefixes.is_empty());
            let found: Vec<(Ipv6Addr, _)> = match offered {
                Some(parent) => {
                    // The next hop comes from the kernel, its link-layer address from the parent's
                    // advertisement.
                    let router = if gateway.is_unspecified() { parent.router } else { gateway };
                    let parent_is = Some((router, parent.link_address));
                    {
                        let offered = parent.information.prefixes.iter().take(MAX_PREFIXES);
                        offered.map(|network| (*network, parent_is)).collect()
                    }
                }
                None => uplink.link_network().map(|network| (network, None)).into_iter().collect(),
            };
            for (network, parent) in found.into_iter().filter(|(network, _)| self.is_suitable(*network)) {
                let way = Way { network, interface: interface.clone(), parent };
                if ways.iter().all(|other| (other.network, other.over()) != (network, way.over())) {
                    ways.push(way);
                }
            }
        }
        ways
    }

    /// Whether addresses of a network may be care-of addresses: the network is neither this router's nor the
    /// home link's.
    pub(super) fn is_suitable(&self, network: Ipv6Addr) -> bool {
        let touches = |prefix: &Ipv6Net| {
            prefix.contains(&network) || network_of(network).is_some_and(|it| it.contains(&prefix.network()))
        };
        is_unicast_routable(network)
            && !self.config.prefixes.iter().any(touches)
            && !touches(&self.config.home_prefix)
    }

    pub(super) fn way_of(&self, address: Ipv6Addr) -> Option<&Way> {
        self.ways.iter().find(|way| way.network == network(address))
    }

    pub(super) fn has_own(&self, way: &Way) -> bool {
        self.own(way).is_some()
    }

    /// Returns the router's own address on this path.
    pub(super) fn own(&self, way: &Way) -> Option<(Ipv6Addr, &Entry)> {
        let found = self.entries.iter().find(|(address, entry)| {
            entry.child.is_none() && network(**address) == way.network && entry.over == way.over()
        });
        found.map(|(address, entry)| (*address, &**entry))
    }

    /// Returns the paths on which this router wants an address.
    pub(super) fn offered(&self) -> impl Iterator<Item = &Way> {
        let offered = self.ways.iter().filter(|way| way.parent.is_some());
        offered.filter(|way| {
            let before = self.ways.iter().take_while(|other| other != way);
            before.filter(|other| other.over() == way.over()).count() < MAX_OWN
        })
    }
}

/// Returns the first 64 bits of an address.
pub(super) fn network(address: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(address) & !u128::from(u64::MAX))
}

fn network_of(network: Ipv6Addr) -> Option<Ipv6Net> {
    Ipv6Net::new(network, 64).ok()
}
