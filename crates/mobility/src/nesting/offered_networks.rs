//! Networks in which this router can have addresses: those of the visited links, and those that parents
//! offer.

use std::net::Ipv6Addr;

use carnet_wire::ipv6::is_unicast_routable;
use carnet_wire::nd::nesting::MAX_PREFIXES;
use ipnet::Ipv6Net;

use super::Nesting;
use super::visited_address::VisitedAddress;
use crate::mobile_router::{Attachment, MobileRouter};

/// Maximum number of networks of one parent in which this router has an own address: the one in use and the
/// next.
const MAX_OWN_ADDRESSES: usize = 2;

/// A network in which addresses are available over an uplink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OfferedNetwork {
    pub network: Ipv6Addr,
    pub interface: String,
    /// The parent router that accepts registrations; `None` if the uplink is attached to the visited link
    /// itself.
    pub parent: Option<(Ipv6Addr, Option<[u8; 6]>)>,
}

impl OfferedNetwork {
    pub fn uplink_and_parent(&self) -> (String, Option<Ipv6Addr>) {
        (self.interface.clone(), self.parent.map(|(router, _)| router))
    }
}

impl Nesting {
    pub(super) fn find_offered_networks(
        &self,
        router: &MobileRouter,
        unsuitable: &[String],
    ) -> Vec<OfferedNetwork> {
        let mut order: Vec<usize> = (0..router.uplinks().len()).collect();
        order.sort_by_key(|index| (router.active_uplink() != Some(*index), *index));
        let mut ways: Vec<OfferedNetwork> = Vec::new();
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
                    // The next hop comes from the kernel's default route, its link-layer address from the
                    // parent's advertisement.
                    let router = if gateway.is_unspecified() { parent.router } else { gateway };
                    let parent_is = Some((router, parent.link_address));
                    {
                        let offered = parent.information.prefixes.iter().take(MAX_PREFIXES);
                        offered.map(|network| (*network, parent_is)).collect()
                    }
                }
                None => uplink.link_network().map(|network| (network, None)).into_iter().collect(),
            };
            for (network, parent) in
                found.into_iter().filter(|(network, _)| self.is_suitable_network(*network))
            {
                let way = OfferedNetwork { network, interface: interface.clone(), parent };
                if ways.iter().all(|other| {
                    (other.network, other.uplink_and_parent()) != (network, way.uplink_and_parent())
                }) {
                    ways.push(way);
                }
            }
        }
        ways
    }

    /// Returns whether care-of addresses may be in this network. They must be neither in this router's own
    /// networks nor on the home link.
    pub(super) fn is_suitable_network(&self, network: Ipv6Addr) -> bool {
        let touches = |prefix: &Ipv6Net| {
            prefix.contains(&network)
                || prefix_of_network(network).is_some_and(|it| it.contains(&prefix.network()))
        };
        is_unicast_routable(network)
            && !self.config.prefixes.iter().any(touches)
            && !touches(&self.config.home_prefix)
    }

    pub(super) fn network_of_address(&self, address: Ipv6Addr) -> Option<&OfferedNetwork> {
        self.offered_networks.iter().find(|way| way.network == network_address_of(address))
    }

    pub(super) fn has_own_address(&self, way: &OfferedNetwork) -> bool {
        self.own_address(way).is_some()
    }

    /// Returns the router's own address in this network, over this uplink and parent; `None` if it has none
    /// there.
    pub(super) fn own_address(&self, way: &OfferedNetwork) -> Option<(Ipv6Addr, &VisitedAddress)> {
        let found = self.addresses.iter().find(|(address, entry)| {
            entry.child.is_none()
                && network_address_of(**address) == way.network
                && entry.uplink_and_parent == way.uplink_and_parent()
        });
        found.map(|(address, entry)| (*address, &**entry))
    }

    /// Returns the networks in which this router requests an own address.
    pub(super) fn networks_of_parents(&self) -> impl Iterator<Item = &OfferedNetwork> {
        let offered = self.offered_networks.iter().filter(|way| way.parent.is_some());
        offered.filter(|way| {
            let before = self.offered_networks.iter().take_while(|other| other != way);
            before.filter(|other| other.uplink_and_parent() == way.uplink_and_parent()).count()
                < MAX_OWN_ADDRESSES
        })
    }
}

/// Returns the first 64 bits of an address.
pub(super) fn network_address_of(address: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(address) & !u128::from(u64::MAX))
}

fn prefix_of_network(network: Ipv6Addr) -> Option<Ipv6Net> {
    Ipv6Net::new(network, 64).ok()
}
