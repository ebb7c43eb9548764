//! Connects the areas that operators set while the station runs with the IPv6 adaptation.

use carnet_base::Time;
use carnet_geonet::Router;
use carnet_geonet::geo_destinations::GeoDestinations;
use carnet_geonet::ipv6_adaptation::Ipv6Adaptation;

pub(super) fn update_groups(
    now: Time,
    router: &Router,
    destinations: &GeoDestinations,
    ipv6: Option<&mut Ipv6Adaptation>,
) {
    let Some(ipv6) = ipv6 else { return };
    ipv6.handle_groups(destinations.groups(now, router).map(|(group, area)| (group, area.ok())));
}
