//! Settings of the GeoNetworking plane, and of the facilities above it.

use carnet_geonet::Mib;
use carnet_geonet::ipv6_adaptation::Ipv6Config;
use carnet_geonet::multicast::MulticastConfig;
use carnet_wire::geonet::GnAddress;

use crate::facilities::config::FacilitiesSettings;

/// Settings of a station's GeoNetworking router.
#[derive(Debug, Clone)]
pub struct GeonetSettings {
    /// Parameters of the GeoNetworking router.
    pub router_parameters: Mib,
    /// GN address of the station; its MID is the link-layer address. `None` if the address is not known yet:
    /// the station sets it later.
    pub address: Option<GnAddress>,
    /// Settings of IPv6 over GeoNetworking; `None` if the station has no IPv6 over GeoNetworking.
    pub ipv6_config: Option<Ipv6Config>,
    /// Settings of multicast forwarding between mobile network and IPv6 over GeoNetworking; `None` if it is
    /// off.
    pub multicast_config: Option<MulticastConfig>,
    /// Settings of the facilities; `None` if the station has no facilities.
    pub facilities_settings: Option<FacilitiesSettings>,
    /// Settings of the congestion gate in front of the radio; `None`: packets go to the link at once.
    pub dcc_config: Option<carnet_geonet::dcc::GateConfig>,
}
