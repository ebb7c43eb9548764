//! Roadside units as access routers: IPv6 over GeoNetworking as an additional uplink.
//!
//! On any other link the kernel detects whether a default router is present, and prefers the first one. On
//! this link the kernel takes each router for present, even if the router is out of range. The reason is that
//! the station itself answers the kernel's Neighbor Solicitations. The kernel lists a router for the lifetime
//! of its last advertisement. GeoNetworking knows which routers are in range. So this module passes the
//! mobile router an interface with only the routers in range, the preferred one first. The mobile router
//! registers with an address of that router's prefix. So a vehicle that passes roadside units changes to the
//! next unit while the previous unit is still in range, and loses no packet.
//!
//! The station solicits a roadside unit that comes into range (RFC 4861 6.3.7). Otherwise the vehicle would
//! have passed the unit before the unit's next advertisement.
//!
//! If the vehicle has another uplink, a router that is about to leave the radio's range no longer counts.
//! Without another uplink, a router counts as long as the station receives its packets. The router in use
//! stays until it is about to leave the range, or until another router is nearer by a third. A router counts
//! only if its advertisement came directly from a neighbour. An advertisement over several hops is from a
//! router out of range. The advertisement must not have expired, and the interface needs an address of the
//! advertised prefix.
//!
//! Any station can advertise itself as a router. By registering, the mobile router finds out which router
//! leads to the home agent. False advertisements must not displace the router in use. A full table first
//! drops a router out of range, then an unusable router, then the newest router, and never the router in use.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Interface, Ipv6Router, RateLimiter, Time};
use carnet_mobility::mobile_router::Attachment;
use carnet_wire::icmpv6;
use carnet_wire::nd::{self, NdOption, RouterAdvertisement};
use ipnet::Ipv6Net;

use super::RouterRole;
use crate::input::Stations;

/// Interval between solicitations, after a burst of three.
const SOLICITATION_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between two checks of the routers' positions.
const POSITION_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Largest number of routers that the station remembers.
const MAX_ROADSIDE_ROUTERS: usize = 32;
/// Largest number of prefixes of one router that the station remembers.
const MAX_PREFIXES_PER_ROUTER: usize = 4;
/// The station prefers another router if its distance is below this share of the distance of the router in
/// use.
const NEARER_ROUTER_DISTANCE_RATIO: f64 = 2.0 / 3.0;

#[derive(Debug)]
struct AccessRouter {
    link_local_address: Ipv6Addr,
    station_mac: [u8; 6],
    prefixes: Vec<Ipv6Net>,
    expires_at: Time,
}

impl AccessRouter {
    /// Returns whether the interface has an address of one of the router's prefixes, and the kernel lists the
    /// router.
    fn is_usable(&self, interface: &Interface) -> bool {
        let has_address = interface.addresses.iter().any(|own| {
            !own.tentative && !own.duplicate && self.prefixes.iter().any(|p| p.contains(&own.address))
        });
        has_address && interface.routers.iter().any(|router| router.gateway == self.link_local_address)
    }
}

fn is_station_near(now: Time, station: [u8; 6], stations: &dyn Stations) -> bool {
    stations.observation(now, station).is_some_and(|sight| sight.is_neighbour)
}

/// The roadside units on the interface to other stations, which is an uplink.
#[derive(Debug)]
pub(crate) struct RoadsideUnits {
    pub(crate) interface: String,
    known_routers: Vec<AccessRouter>,
    /// Interface as reported by the kernel, with all its routers. `None` while it does not exist.
    interface_state: Option<Interface>,
    /// Routers that this module last passed to the mobile router; the first one is in use.
    routers_last_reported: Vec<Ipv6Addr>,
    next_check_at: Option<Time>,
    solicitation_limiter: RateLimiter,
}

impl RoadsideUnits {
    fn new(interface: String) -> RoadsideUnits {
        RoadsideUnits {
            interface,
            known_routers: Vec::new(),
            interface_state: None,
            routers_last_reported: Vec::new(),
            next_check_at: None,
            solicitation_limiter: RateLimiter::new(3, SOLICITATION_INTERVAL),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.next_check_at
    }

    /// Returns a Router Solicitation to a roadside unit that has become a neighbour; `None` above the rate
    /// limit. `own` and `link_local` are the addresses of this station.
    pub(super) fn router_solicitation(
        &mut self,
        now: Time,
        own: [u8; 6],
        link_local: Ipv6Addr,
    ) -> Option<Vec<u8>> {
        self.solicitation_limiter.try_take_token(now).then(|| {
            let message = nd::RouterSolicitation { source_link_address: Some(own) }.emit();
            icmpv6::emit_packet(link_local, nd::ALL_ROUTERS, nd::HOP_LIMIT, message)
        })
    }

    /// Handles a Router Advertisement of a station.
    pub(super) fn handle_advertisement(
        &mut self,
        now: Time,
        station: [u8; 6],
        link_local: Ipv6Addr,
        advertisement: &RouterAdvertisement<'_>,
        stations: &dyn Stations,
    ) {
        if !is_station_near(now, station, stations) {
            return;
        }
        let prefixes = advertisement.options().filter_map(|option| match option {
            NdOption::PrefixInformation(it) => Ipv6Net::new(it.prefix, it.prefix_length).ok(),
            _ => None,
        });
        let router = AccessRouter {
            link_local_address: link_local,
            station_mac: station,
            prefixes: prefixes.take(MAX_PREFIXES_PER_ROUTER).map(|prefix| prefix.trunc()).collect(),
            expires_at: now + Duration::from_secs(advertisement.router_lifetime.into()),
        };
        // A router that is already in the list keeps its place.
        match self.known_routers.iter_mut().find(|known| known.link_local_address == link_local) {
            // RFC 4861 6.3.4: a value that an advertisement omits stays.
            Some(known) if router.prefixes.is_empty() => {
                *known = AccessRouter { prefixes: std::mem::take(&mut known.prefixes), ..router };
            }
            Some(known) => *known = router,
            None => {
                if self.known_routers.len() >= MAX_ROADSIDE_ROUTERS {
                    self.evict_farthest_router(now, stations);
                }
                self.known_routers.push(router);
            }
        }
        self.known_routers.retain(|router| router.expires_at > now);
        self.next_check_at = Some(now);
    }

    fn evict_farthest_router(&mut self, now: Time, stations: &dyn Stations) {
        let current = self.routers_last_reported.first();
        let others =
            self.known_routers.iter().enumerate().filter(|(_, it)| Some(&it.link_local_address) != current);
        let least = others.max_by_key(|(at, router)| {
            let usable = self.interface_state.as_ref().is_some_and(|known| router.is_usable(known));
            (!is_station_near(now, router.station_mac, stations), !usable, *at)
        });
        if let Some(at) = least.map(|(at, _)| at) {
            self.known_routers.remove(at);
        }
    }

    /// Returns the interface for the mobile router, without the routers that are out of range. `others` says
    /// whether another uplink works.
    pub(super) fn handle_interface(
        &mut self,
        now: Time,
        interface: &Interface,
        stations: &dyn Stations,
        others: bool,
    ) -> Interface {
        self.interface_state = Some(interface.clone());
        self.routers_last_reported = self.routers_in_range(now, stations, others);
        self.next_check_at = Some(now + POSITION_CHECK_INTERVAL);
        let routers = self.routers_last_reported.iter().map(|told| {
            let known = interface.routers.iter().find(|router| router.gateway == *told);
            known.copied().unwrap_or_else(|| Ipv6Router::from(*told))
        });
        Interface { routers: routers.collect(), ..interface.clone() }
    }

    pub(super) fn handle_interface_gone(&mut self) {
        (self.interface_state, self.next_check_at) = (None, None);
        self.routers_last_reported.clear();
    }

    /// Returns the interface for the mobile router if the list of routers in range has changed since the last
    /// call, otherwise `None`.
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        stations: &dyn Stations,
        others: bool,
    ) -> Option<Interface> {
        self.next_check_at.filter(|due| *due <= now)?;
        self.next_check_at = (!self.known_routers.is_empty()).then_some(now + POSITION_CHECK_INTERVAL);
        self.known_routers.retain(|router| router.expires_at > now);
        (self.routers_in_range(now, stations, others) != self.routers_last_reported)
            .then(|| self.interface_state.clone())
            .flatten()
    }

    /// Returns the routers in range, the preferred one first.
    fn routers_in_range(&self, now: Time, stations: &dyn Stations, others: bool) -> Vec<Ipv6Addr> {
        let Some(known) = &self.interface_state else { return Vec::new() };
        let current = self.routers_last_reported.first();
        // A router beyond the edge of the range that still sends beacons is better than no router.
        let beacon = stations.beacon_interval();
        let usable =
            self.known_routers.iter().filter(|router| router.expires_at > now && router.is_usable(known));
        let mut present: Vec<(bool, f64, Ipv6Addr)> = usable
            .filter_map(|router| {
                let sight =
                    stations.observation(now, router.station_mac).filter(|sight| sight.is_neighbour)?;
                let is_current = current == Some(&router.link_local_address);
                let away = if is_current { sight.leaves_range } else { !sight.stays_in_range };
                let heard = now.saturating_since(sight.received_at) <= beacon;
                if away && (others || !heard) {
                    return None;
                }
                let handicap = if is_current { NEARER_ROUTER_DISTANCE_RATIO } else { 1.0 };
                Some((
                    away,
                    stations.predicted_distance_of(now, router.station_mac) * handicap,
                    router.link_local_address,
                ))
            })
            .collect();
        present.sort_by(|a, b| (a.0, a.1).partial_cmp(&(b.0, b.1)).unwrap_or(std::cmp::Ordering::Equal));
        // Sort the other routers, so that a change of only their order is not reported.
        let mut routers: Vec<Ipv6Addr> = present.into_iter().map(|(_, _, router)| router).collect();
        if let Some((_, others)) = routers.split_first_mut() {
            others.sort();
        }
        routers
    }

    /// Returns the selection of roadside units; `None` if the interface to other stations is no uplink of the
    /// mobile router. `old` is the present selection, and `ours` the interface to other stations.
    pub(super) fn configured_roadside_units(
        old: Option<RoadsideUnits>,
        ours: Option<&String>,
        router: Option<&RouterRole>,
    ) -> Option<RoadsideUnits> {
        let uplinks = router.into_iter().flat_map(|router| &router.state_machine.config().uplinks);
        let uplink = uplinks.map(|uplink| &uplink.interface).find(|name| ours == Some(name)).cloned();
        let old = old.filter(|old| uplink.as_ref() == Some(&old.interface));
        uplink.map(|interface| old.unwrap_or_else(|| RoadsideUnits::new(interface)))
    }

    /// Returns whether the mobile router has a working uplink other than the interface to other stations.
    pub(super) fn has_other_uplink(&self, router: Option<&RouterRole>) -> bool {
        let uplinks = router.into_iter().flat_map(|router| router.state_machine.uplinks());
        let mut others = uplinks.filter(|uplink| uplink.config.interface != self.interface);
        others.any(|uplink| !matches!(uplink.attachment, Attachment::Down(_)))
    }
}
