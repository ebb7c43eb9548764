//! Follows the areas that operators set while the station runs.

use carnet_base::Time;

use super::Geonet;

impl Geonet {
    /// Removes expired areas, and searches for the stations in the centres of areas if necessary.
    pub(crate) fn follow(&mut self, now: Time) {
        self.destinations.handle_timeout(now, &mut self.router);
        self.tell_groups(now);
        self.collect(now);
    }

    /// Passes the area of each multicast group to the IPv6 adaptation.
    pub(crate) fn tell_groups(&mut self, now: Time) {
        let Geonet { router, ipv6: Some(ipv6), destinations, .. } = self else { return };
        ipv6.handle_groups(destinations.groups(now, router).map(|(group, area)| (group, area.ok())));
    }
}
