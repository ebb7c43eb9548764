//! Roadside units as access routers: IPv6 over GeoNetworking as one more uplink.
//!
//! On any other link the kernel finds out whether a default router is there, and prefers the first that it
//! has heard. On this one it cannot: its solicitations are answered on the spot, whoever is near, and a
//! router stays in its list for as long as its last advertisement said. GeoNetworking knows better. So what
//! the mobile router is told of the interface has only those routers that are near, the one to be used first;
//! with an address of that one's prefix it registers. A vehicle that drives along roadside units therefore
//! changes to the next one while the last is still in reach, and loses nothing.
//!
//! A roadside unit that comes into range is solicited (RFC 4861 6.3.7): the vehicle will have passed it
//! before its next advertisement is due.
//!
//! A router that is about to leave the radio's range is none where the vehicle has another uplink; where it
//! has not, it is one for as long as it is heard. The router in use stays it until it is about to leave the
//! radio's range, or another is nearer by a third. A router counts when its advertisement was heard from a
//! neighbour (one that came over several hops is of somebody who cannot be reached), when it has not run out,
//! and when the interface has an address of its prefix.
//!
//! Anybody can advertise; which of the routers leads anywhere the mobile router finds out by registering.
//! What somebody makes up does not put out what is in use: of a full table goes who is out of reach, then who
//! could not be used, then the newest, and never the router in use.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Interface, Ipv6Router, RateLimiter, Time, WallTime, sort, sort_by};
use carnet_geonet::Router;
use carnet_mobility::mnpp::Surroundings;
use carnet_mobility::mobile_router::Attachment;
use carnet_wire::icmpv6;
use carnet_wire::nd::{self, NdOption, RouterAdvertisement};
use ipnet::Ipv6Net;

use super::Station;
use crate::geonet::Geonet;
use crate::geonet::neighbours::Around;

/// Three solicitations at once, and one in so long.
const SOLICITATION_INTERVAL: Duration = Duration::from_secs(1);
/// How often positions are looked at.
const LOOK: Duration = Duration::from_millis(250);
/// Routers that are remembered.
const ROUTERS: usize = 32;
/// Prefixes of one router.
const PREFIXES: usize = 4;
/// Another router has to be nearer by this factor.
const NEARER: f64 = 2.0 / 3.0;

#[derive(Debug)]
struct AccessRouter {
    link_local: Ipv6Addr,
    station: [u8; 6],
    prefixes: Vec<Ipv6Net>,
    expires: Time,
}

impl AccessRouter {
    /// Whether the interface has an address of one of its prefixes, and the kernel knows the router.
    fn is_usable(&self, interface: &Interface) -> bool {
        let has_address = interface.addresses.iter().any(|own| {
            !own.tentative && !own.duplicate && self.prefixes.iter().any(|p| p.contains(&own.address))
        });
        has_address && interface.routers.iter().any(|router| router.gateway == self.link_local)
    }
}

fn is_near(now: Time, station: [u8; 6], around: &Around<'_>) -> bool {
    around.sight(now, station).is_some_and(|sight| sight.near)
}

/// The routers on the interface to other stations, which is an uplink.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) interface: String,
    routers: Vec<AccessRouter>,
    /// The interface as the kernel has it.
    known: Option<Interface>,
    /// As it was told: the routers that are near, the one in use first.
    told: Vec<Ipv6Addr>,
    due: Option<Time>,
    solicitations: RateLimiter,
}

impl Access {
    pub(super) fn new(interface: String) -> Access {
        Access {
            interface,
            routers: Vec::new(),
            known: None,
            told: Vec::new(),
            due: None,
            solicitations: RateLimiter::new(3, SOLICITATION_INTERVAL),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.due
    }

    /// The question to a roadside unit that came into range, from the station with this address.
    pub(super) fn solicitation(&mut self, now: Time, own: [u8; 6], link_local: Ipv6Addr) -> Option<Vec<u8>> {
        self.solicitations.allow(now).then(|| {
            let message = nd::RouterSolicitation { source_link_address: Some(own) }.emit();
            icmpv6::packet(link_local, nd::ALL_ROUTERS, nd::HOP_LIMIT, message)
        })
    }

    /// A Router Advertisement of a station.
    pub(super) fn handle_advertisement(
        &mut self,
        now: Time,
        station: [u8; 6],
        link_local: Ipv6Addr,
        advertisement: &RouterAdvertisement<'_>,
        around: &Around<'_>,
    ) {
        if !is_near(now, station, around) {
            return;
        }
        let prefixes = advertisement.options().filter_map(|option| match option {
            NdOption::PrefixInformation(it) => Ipv6Net::new(it.prefix, it.prefix_length).ok(),
            _ => None,
        });
        let router = AccessRouter {
            link_local,
            station,
            prefixes: prefixes.take(PREFIXES).map(|prefix| prefix.trunc()).collect(),
            expires: now + Duration::from_secs(advertisement.router_lifetime.into()),
        };
        // They stay in the order in which they came.
        match self.routers.iter_mut().find(|known| known.link_local == link_local) {
            // RFC 4861 6.3.4: what an advertisement does not say stays as it was.
            Some(known) if router.prefixes.is_empty() => {
                *known = AccessRouter { prefixes: std::mem::take(&mut known.prefixes), ..router };
            }
            Some(known) => *known = router,
            None => {
                if self.routers.len() >= ROUTERS {
                    self.make_room(now, around);
                }
                self.routers.push(router);
            }
        }
        self.routers.retain(|router| router.expires > now);
        self.due = Some(now);
    }

    fn make_room(&mut self, now: Time, around: &Around<'_>) {
        let current = self.told.first();
        let others = self.routers.iter().enumerate().filter(|(_, it)| Some(&it.link_local) != current);
        let least = others.max_by_key(|(at, router)| {
            let usable = self.known.as_ref().is_some_and(|known| router.is_usable(known));
            (!is_near(now, router.station, around), !usable, *at)
        });
        if let Some(at) = least.map(|(at, _)| at) {
            self.routers.remove(at);
        }
    }

    /// The interface as the mobile router shall see it, from how the kernel has it; `others` is whether there
    /// is another uplink to change to.
    pub(super) fn handle_interface(
        &mut self,
        now: Time,
        interface: &Interface,
        around: &Router,
        others: bool,
    ) -> Interface {
        self.known = Some(interface.clone());
        self.told = self.present(now, around, others);
        self.due = Some(now + LOOK);
        let routers = self.told.iter().map(|told| {
            let known = interface.routers.iter().find(|router| router.gateway == *told);
            known.copied().unwrap_or_else(|| Ipv6Router::from(*told))
        });
        Interface { routers: routers.collect(), ..interface.clone() }
    }

    pub(super) fn handle_gone(&mut self) {
        (self.known, self.due) = (None, None);
        self.told.clear();
    }

    /// The interface once more, if it is to be seen otherwise than before.
    pub(super) fn handle_timeout(&mut self, now: Time, around: &Router, others: bool) -> Option<Interface> {
        self.due.filter(|due| *due <= now)?;
        self.due = (!self.routers.is_empty()).then_some(now + LOOK);
        self.routers.retain(|router| router.expires > now);
        (self.present(now, around, others) != self.told).then(|| self.known.clone()).flatten()
    }

    /// The routers that are near, the one to be used first.
    fn present(&self, now: Time, around: &Router, others: bool) -> Vec<Ipv6Addr> {
        let Some(known) = &self.known else { return Vec::new() };
        let seen = Around(around);
        let current = self.told.first();
        // Beyond the edge one that beacons is better than none.
        let mib = around.mib();
        let beacon = mib.beacon_retransmit_timer + mib.beacon_max_jitter;
        let usable = self.routers.iter().filter(|router| router.expires > now && router.is_usable(known));
        let mut present: Vec<(bool, f64, Ipv6Addr)> = usable
            .filter_map(|router| {
                let sight = seen.sight(now, router.station).filter(|sight| sight.near)?;
                let is_current = current == Some(&router.link_local);
                let away = if is_current { sight.leaves } else { !sight.stays };
                let heard = now.saturating_since(sight.heard) <= beacon;
                if away && (others || !heard) {
                    return None;
                }
                let handicap = if is_current { NEARER } else { 1.0 };
                Some((away, seen.distance(now, router.station) * handicap, router.link_local))
            })
            .collect();
        sort_by(&mut present, |a, b| {
            (a.0, a.1).partial_cmp(&(b.0, b.1)).unwrap_or(std::cmp::Ordering::Equal)
        });
        // Those behind the first only say that they are there; their order shall not be news.
        let mut routers: Vec<Ipv6Addr> = present.into_iter().map(|(_, _, router)| router).collect();
        if let Some((_, others)) = routers.split_first_mut() {
            sort(others);
        }
        routers
    }
}

impl Station {
    /// The interface to other stations may be an uplink, too; then their routers are looked after.
    pub(super) fn configure_access(&mut self) {
        let ours = self.virtual_interfaces.first();
        let uplinks = self.router.iter().flat_map(|router| &router.machine.config().uplinks);
        let uplink = uplinks.map(|uplink| &uplink.interface).find(|name| ours == Some(name)).cloned();
        let old = self.access.take().filter(|old| uplink.as_ref() == Some(&old.interface));
        self.access = uplink.map(|interface| old.unwrap_or_else(|| Access::new(interface)));
    }

    /// The interface as the mobile router shall see it, where that is not how the kernel has it.
    pub(super) fn seen_by_access(&mut self, now: Time, interface: &Interface) -> Option<Interface> {
        let others = self.has_other_uplink();
        let access = self.access.as_mut().filter(|access| access.interface == interface.name)?;
        Some(access.handle_interface(now, interface, Geonet::of(&self.geonet)?.router(), others))
    }

    /// The mobile router changes to another roadside unit when it is time.
    pub(super) fn look_at_access(&mut self, now: Time, wall: WallTime) {
        let others = self.has_other_uplink();
        if let (Some(access), Some(geonet)) = (&mut self.access, &self.geonet)
            && let Some(interface) = access.handle_timeout(now, geonet.router(), others)
        {
            // Its timers may have had their turn just now.
            for (output, from_router) in self.take_mobility_outputs(now, wall) {
                self.translate(now, output, from_router);
            }
            self.tell_interface(now, wall, &interface);
            self.forward_router(now);
        }
    }

    /// Whether the mobile router has an uplink that works beside the interface to other stations.
    fn has_other_uplink(&self) -> bool {
        let Some((access, router)) = self.access.as_ref().zip(self.router.as_ref()) else { return false };
        let mut others = router.machine.uplinks().iter().filter(|it| it.config.interface != access.interface);
        others.any(|uplink| !matches!(uplink.attachment, Attachment::Down(_)))
    }
}
