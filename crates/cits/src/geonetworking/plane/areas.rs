//! Follows the areas that operators set while the station runs.

use carnet_base::Time;

use super::Geonet;

impl Geonet {
    /// Removes expired areas, and asks for the positions of stations that areas follow.
    pub(crate) fn follow(&mut self, now: Time) {
        self.destinations.handle_timeout(now, &mut self.router);
        self.tell_groups(now);
        self.collect(now);
    }

    /// Tells the IPv6 adaptation the area of each multicast group.
    pub(crate) fn tell_groups(&mut self, now: Time) {
        let Geonet { router, ipv6: Some(ipv6), destinations, .. } = self else { return };
        ipv6.handle_groups(destinations.groups(now, router).map(|(group, area)| (group, area.ok())));
    }
}
