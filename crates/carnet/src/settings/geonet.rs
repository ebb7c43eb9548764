//! `[geonet]`: from the config file to what the router, the link and the positioning want to know.

use carnet_api::config::{
    AreaForwarding, BeaconInterval, Geonet, GeonetAddress, GeonetInterface, Planarisation, PositionSource,
    Recovery, Standard, UnicastForwarding,
};
use carnet_geonet::{Mib, mib};
use carnet_linux::frame_link::{FrameLinkConfig, MacAddress, UdpConfig};
use carnet_linux::position::PositionConfig;
use carnet_station::GeonetSettings;
use carnet_wire::geonet::{GnAddress, StationType};

/// What the router shall be.
pub fn router(config: &Geonet, address: GnAddress) -> GeonetSettings {
    GeonetSettings { mib: mib(config), address }
}

/// The GN address with this MID.
pub fn address(config: &Geonet, mid: MacAddress) -> GnAddress {
    let manual = matches!(config.address, GeonetAddress::Managed(_));
    GnAddress::new(manual, StationType::from_value(config.station_type.number()), mid)
}

/// The link for frames; `mid` is the link-layer address that the station shall have, where that is known.
pub fn link(config: &Geonet, mid: Option<MacAddress>) -> FrameLinkConfig {
    match &config.interface {
        GeonetInterface::Frames(name) => FrameLinkConfig::Interface(name.clone()),
        GeonetInterface::Udp(udp) => FrameLinkConfig::Udp(UdpConfig {
            local: udp.local,
            interface: udp.interface.clone(),
            peers: udp.peers.clone(),
            address: mid,
            mtu: UdpConfig::MTU,
        }),
    }
}

/// Where positions come from.
pub fn position(config: &Geonet) -> PositionConfig {
    match &config.position {
        PositionSource::Gpsd { host, port, device } => {
            PositionConfig::Gpsd { host: host.clone(), port: *port, device: device.clone() }
        }
        PositionSource::Fixed(place) => {
            let (latitude, longitude) = place.degrees();
            PositionConfig::Fixed { latitude, longitude }
        }
        PositionSource::Trace(path) => PositionConfig::Trace(path.clone()),
    }
}

fn mib(config: &Geonet) -> Mib {
    let standard = Mib::default();
    let (beacon_interval, beacon_retransmit_timer, beacon_max_jitter) = match config.beacon.interval {
        BeaconInterval::Fixed { interval, jitter } => (mib::BeaconInterval::Fixed, interval, jitter),
        BeaconInterval::Adaptive { beacons_in_range, shortest, longest, load_limit } => {
            let interval = mib::BeaconInterval::Adaptive {
                k: f64::from(beacons_in_range),
                shortest,
                longest,
                load_limit: load_limit.map_or(f64::INFINITY, f64::from),
            };
            (interval, standard.beacon_retransmit_timer, standard.beacon_max_jitter)
        }
    };
    Mib {
        address_configuration: match config.address {
            GeonetAddress::Auto => mib::AddressConfiguration::Auto,
            GeonetAddress::Managed(_) => mib::AddressConfiguration::Managed,
            GeonetAddress::Anonymous => mib::AddressConfiguration::Anonymous,
        },
        is_mobile: !matches!(config.position, PositionSource::Fixed(_)),
        beacon_interval,
        beacon_retransmit_timer,
        beacon_max_jitter,
        multi_hop_beacons: config
            .beacon
            .multi_hop
            .map(|beacons| mib::MultiHopBeacons { hops: beacons.hops, every: beacons.every }),
        piggyback: config.beacon.piggyback,
        non_area_forwarding: match config.forwarding.unicast {
            UnicastForwarding::Greedy => mib::NonAreaForwarding::Greedy,
            UnicastForwarding::ContentionBased => mib::NonAreaForwarding::ContentionBased,
        },
        area_forwarding: match config.forwarding.area {
            AreaForwarding::Simple => mib::AreaForwarding::Simple,
            AreaForwarding::ContentionBased => mib::AreaForwarding::ContentionBased,
            AreaForwarding::Advanced => mib::AreaForwarding::Advanced,
        },
        unknown_sender: match config.standard {
            Standard::V1_4_1 => mib::UnknownSender::NonAreaForwarding,
            Standard::V1_3_1 => mib::UnknownSender::Broadcast,
        },
        recovery: match config.forwarding.recovery {
            Recovery::None => mib::Recovery::None,
            Recovery::Gpsr(Planarisation::Gabriel) => mib::Recovery::Perimeter(mib::Planarisation::Gabriel),
            Recovery::Gpsr(Planarisation::RelativeNeighbourhood) => {
                mib::Recovery::Perimeter(mib::Planarisation::RelativeNeighbourhood)
            }
        },
        max_communication_range: f64::from(config.range_m),
        ..standard
    }
}
