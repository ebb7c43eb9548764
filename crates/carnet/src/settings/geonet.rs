//! `[geonet]`: converts the config section to the settings of the link and the positioning.

use carnet_api::config::{Geonet, GeonetInterface, PositionSource};
use carnet_linux::frame_link::{FrameLinkConfig, MacAddress, UdpConfig};
use carnet_linux::position::{PositionConfig, PositionOptions};
pub use carnet_settings::geonet::{area_of_config, gn_address};

/// Returns the settings of the link for frames. `mid` is the station's link-layer address, if it is known.
pub fn frame_link_config(config: &Geonet, mid: Option<MacAddress>) -> FrameLinkConfig {
    match &config.interface {
        GeonetInterface::Frames(name) => FrameLinkConfig::Interface(name.clone()),
        GeonetInterface::Udp(udp) => FrameLinkConfig::Udp(UdpConfig {
            local: udp.local,
            interface: udp.interface.clone(),
            peer_addresses: udp.peer_addresses.clone(),
            address: mid,
            mtu: UdpConfig::ETHERNET_MTU,
        }),
    }
}

/// Returns the settings of the source of positions.
pub fn position_source_config(config: &Geonet) -> PositionConfig {
    match &config.position_source {
        PositionSource::Gpsd { host, port, device } => {
            PositionConfig::Gpsd { host: host.clone(), port: *port, device: device.clone() }
        }
        PositionSource::Fixed(place) => {
            let (latitude, longitude) = place.in_degrees();
            PositionConfig::Fixed { latitude, longitude }
        }
        PositionSource::Trace(path) => PositionConfig::Trace(path.clone()),
    }
}

/// Returns the options of the positioning.
pub fn position_options(config: &Geonet) -> PositionOptions {
    let standard = PositionOptions::default();
    PositionOptions {
        interval: standard.interval.min(config.mib_parameters.position_update_interval),
        ..standard
    }
}
