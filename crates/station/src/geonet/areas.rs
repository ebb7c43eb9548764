//! Areas that operators set while the station runs.

use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::geo_destinations::{Destination, NoPlace};
use carnet_wire::geonet::GeoArea;

use super::Geonet;
use crate::geonet_io::AreaOrder;

/// An area for GeoBroadcast or GeoAnycast packets that an operator has set at run time.
#[derive(Debug, Clone, Copy)]
pub struct GeoDestination<'a> {
    /// Name of the area.
    pub name: &'a str,
    /// Shape and centre of the area, or the station that it follows.
    pub destination: &'a Destination,
    /// Time at which the area expires; `None` if it never expires.
    pub expires: Option<Time>,
    /// Present position of the area, which may follow a station.
    pub area: Result<GeoArea, NoPlace>,
}

impl Geonet {
    /// Sets or replaces an area.
    ///
    /// # Errors
    /// Returns an error in words for the operator if the area cannot be set.
    pub(crate) fn handle_area_order(&mut self, now: Time, order: &AreaOrder) -> Result<(), String> {
        if let Some(group) = order.group {
            let ipv6 = self.ipv6.as_ref().ok_or("this station has no IPv6 over GeoNetworking")?;
            if !group.is_multicast() || group.octets()[1] & 0x0f <= 2 {
                return Err(format!("{group} is not a multicast address of more than link scope"));
            }
            if ipv6.is_configured(group) {
                return Err(format!("the group {group} is that of an area of the config"));
            }
        }
        let lifetime = order.lifetime_ms.map(Duration::from_millis);
        let set = self.destinations.set(now, &order.name, order.destination(), lifetime, &self.router);
        set.map_err(|refusal| refusal.to_string())?;
        self.follow(now);
        Ok(())
    }

    /// Removes an area.
    ///
    /// # Errors
    /// Returns an error if no area has this name.
    pub(crate) fn handle_area_removal(&mut self, now: Time, name: &str) -> Result<(), String> {
        if !self.destinations.remove(name) {
            return Err(format!("no area {name:?} was set while the station runs"));
        }
        self.tell_groups(now);
        Ok(())
    }

    /// Removes expired areas, and asks for the positions of stations that areas follow.
    pub(super) fn follow(&mut self, now: Time) {
        self.destinations.handle_timeout(now, &mut self.router);
        self.tell_groups(now);
        self.collect(now);
    }

    /// Tells the IPv6 adaptation the area of each multicast group.
    pub(super) fn tell_groups(&mut self, now: Time) {
        let Geonet { router, ipv6: Some(ipv6), destinations, .. } = self else { return };
        ipv6.handle_groups(destinations.groups(now, router).map(|(group, area)| (group, area.ok())));
    }

    pub(crate) fn geo_destinations(&self, now: Time) -> impl Iterator<Item = GeoDestination<'_>> {
        self.destinations.iter().map(move |(name, destination, expires)| GeoDestination {
            name,
            destination,
            expires,
            area: self.destinations.area(now, name, &self.router).unwrap_or(Err(NoPlace::Own)),
        })
    }
}
