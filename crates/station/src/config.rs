//! Config of a station: the settings of NEMO and of GeoNetworking.

use carnet_cits::geonetworking::GeonetSettings;
use carnet_mobility::home_agent::HomeAgentConfig;
use carnet_nemo::{MnppSettings, MobileRouterSettings, NemoConfig};

/// Config of a station. A role that is absent is inactive.
#[derive(Debug, Clone, Default)]
pub struct StationConfig {
    /// Config of the home agent; `None` if the station is no home agent.
    pub home_agent: Option<HomeAgentConfig>,
    /// Settings of the mobile router; `None` if the station is no mobile router.
    pub mobile_router: Option<MobileRouterSettings>,
    /// Settings of the GeoNetworking router; `None` if the station is no GeoNetworking router.
    pub geonet: Option<GeonetSettings>,
    /// Routes to the mobile networks of neighbouring vehicles, for a mobile router with IPv6 over
    /// GeoNetworking.
    pub mnpp: Option<MnppSettings>,
}

impl StationConfig {
    /// Returns the settings of the NEMO plane.
    pub(crate) fn into_nemo_config(self) -> NemoConfig {
        NemoConfig { home_agent: self.home_agent, mobile_router: self.mobile_router, mnpp: self.mnpp }
    }
}
