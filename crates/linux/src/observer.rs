//! What the station is told of the interfaces.
//!
//! The observer asks for links, addresses and default routes when they have changed, composes each
//! interface's whole state, and tells it when it differs from what was told before.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use carnet_base::{SmallMap, map_of, sort_by_key};
use carnet_station::forwarding::desired::{TABLE_MAIN, TUNNEL_DEVICE};
use carnet_station::io::Interface;

use crate::ROUTE_PROTOCOL;
use crate::error::Result;
use crate::fast_path::is_ours;
use crate::netlink::{AddressInfo, Dirty, Ipv4AddressInfo, Ipv4Router, LinkInfo, Requests, RouteInfo};
use crate::platform::PlatformEvent;

/// Whether there is an interface of this name now.
pub fn interface_exists(name: &str) -> bool {
    nix::net::if_::if_nametoindex(name).is_ok()
}

/// The interfaces as last asked for, and as last told.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    pub(crate) links: BTreeMap<String, LinkInfo>,
    pub(crate) addresses: Vec<AddressInfo>,
    routers: BTreeMap<u32, Vec<Ipv6Addr>>,
    ipv4_addresses: Vec<Ipv4AddressInfo>,
    ipv4_routers: Vec<Ipv4Router>,
    told: SmallMap<String, (u32, Interface)>,
}

impl Observer {
    /// Asks for what has changed.
    pub(crate) fn refresh(&mut self, dirty: Dirty, requests: &mut Requests) -> Result<()> {
        if dirty.links {
            self.links = map_of(requests.links()?.into_iter().map(|link| (link.name.clone(), link)));
        }
        // Addresses and routes go with an interface, on some kernels without a word of their own.
        if dirty.links || dirty.addresses {
            self.addresses = requests.addresses()?;
            self.ipv4_addresses = requests.ipv4_addresses()?;
        }
        if dirty.links || dirty.routers {
            self.routers = default_routers(requests.routes(Some(TABLE_MAIN), None)?);
            self.ipv4_routers = requests.ipv4_routers()?;
        }
        Ok(())
    }

    /// The differences between what is known and what was told, which counts as told from now on.
    pub(crate) fn news(&mut self) -> Vec<PlatformEvent> {
        let mut news = Vec::new();
        let mut told = std::mem::take(&mut self.told);
        for link in self.links.values().filter(|link| link.name != TUNNEL_DEVICE && !is_ours(link)) {
            let interface = self.describe(link);
            match told.remove(&link.name) {
                Some((index, before)) if index == link.index => {
                    if before != interface {
                        news.push(PlatformEvent::Interface(interface.clone()));
                    }
                }
                before => {
                    if before.is_some() {
                        news.push(PlatformEvent::InterfaceGone { name: link.name.clone() });
                    }
                    news.push(PlatformEvent::Interface(interface.clone()));
                }
            }
            self.told.insert(link.name.clone(), (link.index, interface));
        }
        let gone = told.into_iter().map(|(name, _)| PlatformEvent::InterfaceGone { name });
        news.splice(0..0, gone);
        news
    }

    fn describe(&self, link: &LinkInfo) -> Interface {
        let here = |a: &&AddressInfo| a.index == link.index;
        let mut ipv4_routers: Vec<Ipv4Addr> = Vec::new();
        for router in self.ipv4_routers.iter().filter(|router| router.index == link.index) {
            if !ipv4_routers.contains(&router.gateway) {
                ipv4_routers.push(router.gateway);
            }
        }
        let ipv4 = self.ipv4_addresses.iter().filter(|known| known.index == link.index);
        Interface {
            name: link.name.clone(),
            running: link.running,
            mtu: link.mtu,
            link_address: link.link_address,
            addresses: self.addresses.iter().filter(here).map(|a| a.address.clone()).collect(),
            routers: self.routers.get(&link.index).cloned().unwrap_or_default(),
            ipv4_addresses: ipv4.map(|known| known.address).collect(),
            ipv4_routers,
        }
    }
}

/// Gateways of default routes by interface, in the order in which the kernel would take them: the lowest
/// metric first, and among equals the highest preference (RFC 4191 3.2).
fn default_routers(mut routes: Vec<RouteInfo>) -> BTreeMap<u32, Vec<Ipv6Addr>> {
    routes.retain(|r| r.destination.prefix_len() == 0 && r.protocol != ROUTE_PROTOCOL && !r.unreachable);
    sort_by_key(&mut routes, |r| (r.metric, -r.preference));
    let mut routers: BTreeMap<u32, Vec<Ipv6Addr>> = BTreeMap::new();
    for hop in routes.iter().flat_map(|r| &r.hops) {
        // A route into a point-to-point link names no gateway.
        let gateway = hop.gateway.unwrap_or(Ipv6Addr::UNSPECIFIED);
        let list = routers.entry(hop.index).or_default();
        if !list.contains(&gateway) {
            list.push(gateway);
        }
    }
    routers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Hop;

    fn route(metric: u32, preference: i8, protocol: u8, hops: &[(u32, &str)]) -> RouteInfo {
        RouteInfo {
            table: TABLE_MAIN,
            destination: "::/0".parse().expect("prefix"),
            metric,
            protocol,
            unreachable: false,
            preference,
            hops: hops
                .iter()
                .map(|(index, gateway)| Hop { index: *index, gateway: gateway.parse().ok() })
                .collect(),
        }
    }

    #[test]
    fn routers_come_in_the_order_of_the_kernel() {
        let mut narrow = route(1, 0, 3, &[(2, "fe80::9")]);
        narrow.destination = "2001:db8::/32".parse().expect("prefix");
        let routers = default_routers(vec![
            narrow,
            route(1, 1, ROUTE_PROTOCOL, &[(2, "fe80::8")]),
            route(1024, -1, 9, &[(2, "fe80::1")]),
            route(1024, 1, 9, &[(2, "fe80::2")]),
            route(1024, 0, 3, &[(2, "fe80::3"), (3, "fe80::4")]),
            route(512, -1, 3, &[(2, "fe80::5")]),
            route(2000, 0, 3, &[(2, "fe80::5"), (4, "on-link")]),
        ]);
        let parse = |texts: &[&str]| -> Vec<Ipv6Addr> { texts.iter().flat_map(|t| t.parse()).collect() };
        assert_eq!(
            routers,
            BTreeMap::from([
                (2, parse(&["fe80::5", "fe80::2", "fe80::3", "fe80::1"])),
                (3, parse(&["fe80::4"])),
                (4, parse(&["::"]))
            ])
        );
    }
}
