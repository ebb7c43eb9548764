//! `[geonet]`: converts the config section to the settings of the GeoNetworking router.

use carnet_api::config::{
    self, BeaconInterval, DccAlgorithm, DccTimeOnAir, Geonet, GeonetAddress, PositionSource,
};
use carnet_geonet::ipv6_adaptation::{self, Ipv6Area, Ipv6Config, Prefix};
use carnet_geonet::multicast::{MldTiming, MulticastConfig};
use carnet_geonet::{MacAddress, Mib, dcc, mib};
use carnet_station::io::Area;
use carnet_station::{GeonetSettings, MnppSettings};
use carnet_wire::geonet::{GnAddress, StationType};

/// Returns the settings of the GeoNetworking router.
pub fn geonet_settings(config: &Geonet, address: Option<GnAddress>) -> GeonetSettings {
    GeonetSettings {
        router_parameters: management_information_base(config),
        address,
        ipv6_config: ipv6_config(config),
        multicast_config: multicast_config(config),
        facilities_settings: None,
        dcc_config: config.dcc.as_ref().map(dcc_config),
    }
}

/// Returns the settings of the congestion gate in front of the radio.
fn dcc_config(config: &config::Dcc) -> dcc::GateConfig {
    let table = match config.time_on_air {
        DccTimeOnAir::Millisecond => dcc::reactive::ReactiveTable::A1,
        DccTimeOnAir::Half => dcc::reactive::ReactiveTable::A2,
    };
    dcc::GateConfig {
        control_algorithm: match config.algorithm {
            DccAlgorithm::Reactive => dcc::ControlAlgorithm::Reactive(table),
            DccAlgorithm::Adaptive => {
                dcc::ControlAlgorithm::Adaptive(dcc::adaptive::LimericParameters::default())
            }
        },
        queue_length: config.queue_length.into(),
        data_rate: config.data_rate,
        assumed_busy_ratio: f64::from(config.assumed_busy) / 100.0,
    }
}

fn ipv6_config(config: &Geonet) -> Option<Ipv6Config> {
    let ipv6 = config.ipv6.as_ref()?;
    let areas = config.areas.iter().map(|area| Ipv6Area {
        area: area_of_config(area).into(),
        group: area.group,
        prefix: area
            .prefix
            .map(|prefix| Prefix { address: prefix.network(), prefix_length: prefix.prefix_len() }),
        interface: area.ipv6_interface.clone(),
    });
    Some(Ipv6Config {
        interface: ipv6.interface.clone(),
        dynamic_interface: ipv6.interface_for_other_areas.clone(),
        areas: areas.collect(),
        learnt_links: ipv6.max_learnt_interfaces.into(),
        hop_limit: ipv6.hop_limit,
        reorder_wait: ipv6.reorder_wait,
        reorder_rule: ipv6.reorder_rule,
        reorder_hold: ipv6.reorder_hold,
        congestion_mark: ipv6.congestion_mark,
        fragments_large_packets: ipv6.fragments_large_packets,
        // This MTU is preliminary until the MTU of the link is known.
        mtu: ipv6_adaptation::mtu(management_information_base(config).max_sdu_size, None),
    })
}

fn multicast_config(config: &Geonet) -> Option<MulticastConfig> {
    let multicast = config.multicast.as_ref()?;
    Some(MulticastConfig {
        downstream: multicast.lan_interfaces.clone(),
        timing: MldTiming {
            robustness_variable: multicast.robustness_variable,
            query_interval: multicast.query_interval,
            query_response_interval: multicast.query_response_interval,
            ..MldTiming::default()
        },
        forwards_unmapped_groups: multicast.forwards_unmapped_groups,
    })
}

/// Returns the settings of routes to the mobile networks of vehicles in radio range. `None` if the config
/// does not use such routes.
pub fn mnpp_settings(config: &Geonet) -> Option<MnppSettings> {
    let (mnpp, ipv6) = (config.mnpp.as_ref()?, config.ipv6.as_ref()?);
    Some(MnppSettings {
        interface: ipv6.interface.clone(),
        authorization: mnpp.authorization,
        shortest_prefix_length: mnpp.shortest_prefix,
        announcement_hop_limit: mnpp.hop_limit,
        interval: mnpp.interval,
    })
}

/// Returns this station's GN address with this MID.
pub fn gn_address(config: &Geonet, mid: MacAddress) -> GnAddress {
    let manual = matches!(config.address, GeonetAddress::Managed(_));
    GnAddress::new(manual, StationType::from_value(config.station_type.type_number()), mid)
}

/// Converts an area of the config to the units that packets use.
pub fn area_of_config(area: &config::Area) -> Area {
    Area {
        shape: area.area_shape,
        latitude: area.center.latitude,
        longitude: area.center.longitude,
        distance_a: area.distance_a_m,
        distance_b: area.distance_b_m,
        angle: area.angle_deg,
    }
}

fn management_information_base(config: &Geonet) -> Mib {
    let standard = Mib::default();
    let given = &config.mib_parameters;
    // A limit that does not fit into `usize` can never be reached, so the largest `usize` replaces it.
    let size = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
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
        is_mobile: given.is_mobile.unwrap_or(!matches!(config.position_source, PositionSource::Fixed(_))),
        max_sdu_size: size(given.max_sdu_size),
        lifetime_location_entry: given.lifetime_location_entry,
        lifetime_neighbour: given.lifetime_neighbour,
        location_service_max_retransmissions: given.location_service_max_retransmissions,
        location_service_retransmit_timer: given.location_service_retransmit_timer,
        location_service_buffer_size: size(given.location_service_buffer_size),
        location_service_max_pending: size(given.location_service_max_pending),
        beacon_interval,
        beacon_retransmit_timer,
        beacon_max_jitter,
        uses_fastest_neighbour_speed: config.beacon.uses_neighbour_speed,
        max_beacon_deviation: config.beacon.max_position_error_m.map(f64::from),
        beacon_lifetime: config.beacon.lifetime.map(u32::from),
        multi_hop_beacons: config.beacon.multi_hop_beacons.map(|beacons| mib::MultiHopBeacons {
            hop_limit: beacons.hop_limit,
            beacon_period: beacons.every_nth_beacon,
        }),
        is_piggybacking_on: config.beacon.counts_broadcasts_as_beacons,
        non_area_forwarding: config.forwarding.unicast_algorithm,
        area_forwarding: config.forwarding.area_algorithm,
        unknown_sender: config.unknown_sender,
        recovery: config.forwarding.void_recovery,
        prediction: config.forwarding.link_lifetime.map(|link_lifetime| mib::Prediction { link_lifetime }),
        max_communication_range: f64::from(config.range_m),
        default_hop_limit: given.default_hop_limit,
        duplicate_packet_list_length: size(given.duplicate_packet_list_length),
        max_packet_lifetime: given.max_packet_lifetime,
        default_packet_lifetime: given.default_packet_lifetime,
        // The config has the unit of the standard, kilobytes; the router has octets.
        max_packet_data_rate: given.max_packet_data_rate.map(|rate| rate.saturating_mul(1000)),
        packet_data_rate_beta: f32::from(given.packet_data_rate_beta) / 100.0,
        max_area_size: f64::from(given.max_area_size) * 1e6,
        min_repetition_interval: given.min_repetition_interval,
        next_hop_hold: given.next_hop_hold,
        cbf_min_time: given.cbf_min_time,
        cbf_max_time: given.cbf_max_time,
        sector_angle: f64::from(given.sector_angle),
        advanced_max_counter: given.advanced_max_counter,
        unicast_buffer_size: size(given.unicast_buffer_size),
        broadcast_buffer_size: size(given.broadcast_buffer_size),
        cbf_buffer_size: size(given.cbf_buffer_size),
        max_neighbours: size(given.max_neighbours),
        max_other_stations: size(given.max_other_stations),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geonet_config(more: &str) -> Geonet {
        let text = format!(
            "[station]\nname = 'a'\n[geonet]\ninterface = 'wlan1'\nposition = 'gpsd://localhost'\n{more}"
        );
        carnet_api::config::Config::parse(&text, "c.toml").expect("a config").geonet.expect("a [geonet]")
    }

    #[test]
    fn geonet_parameters_default_to_the_standard() {
        assert_eq!(management_information_base(&geonet_config("")), Mib::default());
    }

    #[test]
    fn geonet_config_is_converted_to_units_of_the_router() {
        let mib = management_information_base(&geonet_config(
            "[geonet.mib]\nmax_packet_data_rate = 250\npacket_data_rate_beta = 50\nmax_area_size = 2\n\
             cbf_max_time = '80ms'\nis_mobile = false\nmax_neighbours = 7\ndefault_hop_limit = 3\n",
        ));
        assert_eq!((mib.max_packet_data_rate, mib.packet_data_rate_beta), (Some(250_000), 0.5));
        assert_eq!((mib.max_area_size, mib.cbf_max_time.as_millis()), (2e6, 80));
        assert_eq!((mib.is_mobile, mib.max_neighbours, mib.default_hop_limit), (false, 7, 3));
        let unlimited =
            super::management_information_base(&geonet_config("mib = { max_packet_data_rate = 0 }\n"));
        assert_eq!(unlimited.max_packet_data_rate, None);
    }
}
