//! `[geonet]`: accepted configs besides the full one, and refused ones with the place of the error.

use super::errors::{check_errors, errors};
use super::{
    Area, AreaForwarding, AreaShape, Authorization, Beacon, BeaconInterval, CONFIG_WITH_EVERY_KEY,
    Coordinates, Duration, Forwarding, Geonet, GeonetAddress, GeonetInterface, Mib, Mnpp, NonAreaForwarding,
    PositionSource, ReorderHold, ReorderRule, StationType, UdpLink, UnknownSender, VoidRecovery, parse,
};

/// Config of a station that has only GeoNetworking, with only the required keys.
pub(super) const SMALL_GEONET_CONFIG: &str = r#"
[station]
name = "bus-42"
[geonet]
interface = "udp:[::1]:4747,[::1]:4748"
position = "fixed:48.8375,2.1008"
"#;

pub(super) fn geonet_of(text: &str) -> Geonet {
    parse(text).geonet.expect("a [geonet]")
}

/// Returns the errors of the small config with `lines` appended to it; `lines` begins on line 7.
pub(super) fn refusals_of_lines(lines: &str) -> Vec<String> {
    errors(&format!("{SMALL_GEONET_CONFIG}{lines}"))
}

/// Returns the values of `[geonet.mib]` that the standard gives.
pub(super) fn standard_mib() -> Mib {
    Mib {
        is_mobile: None,
        max_sdu_size: 1398,
        lifetime_location_entry: Duration::from_secs(20),
        lifetime_neighbour: Duration::from_secs(20),
        location_service_max_retransmissions: 10,
        location_service_retransmit_timer: Duration::from_secs(1),
        location_service_buffer_size: 1024,
        location_service_max_pending: 256,
        default_hop_limit: 10,
        duplicate_packet_list_length: 8,
        max_packet_lifetime: Duration::from_secs(600),
        default_packet_lifetime: Duration::from_secs(60),
        max_packet_data_rate: Some(100),
        packet_data_rate_beta: 90,
        max_area_size: 10,
        min_repetition_interval: Duration::from_millis(100),
        next_hop_hold: Duration::ZERO,
        cbf_min_time: Duration::from_millis(1),
        cbf_max_time: Duration::from_millis(100),
        sector_angle: 30,
        advanced_max_counter: 3,
        unicast_buffer_size: 256_000,
        broadcast_buffer_size: 1_024_000,
        cbf_buffer_size: 256_000,
        max_neighbours: 16_384,
        max_other_stations: 16_384,
        pai_interval_m: 80,
        position_update_interval: Duration::from_secs(1),
    }
}

const PARIS: Coordinates = Coordinates { latitude: 488_375_000, longitude: 21_008_000 };

#[test]
fn station_with_only_geonetworking_is_valid() {
    let config = parse(SMALL_GEONET_CONFIG);
    assert_eq!((&config.home_agent, &config.mobile_router), (&None, &None));
    assert!(config.warnings().is_empty());
    assert_eq!(
        config.geonet.expect("a [geonet]"),
        Geonet {
            interface: GeonetInterface::Udp(UdpLink {
                local: "[::1]:4747".parse().expect("an address"),
                interface: None,
                peer_addresses: vec!["[::1]:4748".parse().expect("an address")],
            }),
            station_type: StationType::Unknown,
            address: GeonetAddress::Auto,
            set_link_address: true,
            position_source: PositionSource::Fixed(PARIS),
            ipv6: None,
            mnpp: None,
            multicast: None,
            dcc: None,
            forwarding: Forwarding {
                unicast_algorithm: NonAreaForwarding::Greedy,
                area_algorithm: AreaForwarding::ContentionBased,
                void_recovery: VoidRecovery::None,
                link_lifetime: None,
            },
            beacon: Beacon {
                interval: BeaconInterval::Fixed {
                    interval: Duration::from_secs(3),
                    jitter: Duration::from_millis(750),
                },
                uses_neighbour_speed: false,
                max_position_error_m: None,
                lifetime: None,
                counts_broadcasts_as_beacons: false,
                multi_hop_beacons: None,
            },
            range_m: 1000,
            unknown_sender: UnknownSender::NonAreaForwarding,
            mib_parameters: standard_mib(),
            areas: Vec::new(),
        }
    );
    assert_eq!(PARIS.in_degrees(), (48.8375, 2.1008));
}

#[test]
fn station_types_have_the_numbers_of_the_standard() {
    for (name, number) in [("unknown", 0), ("passenger_car", 5), ("tram", 11), ("road_side_unit", 15)] {
        let geonet = geonet_of(&format!("{SMALL_GEONET_CONFIG}station_type = \"{name}\"\n"));
        assert_eq!(geonet.station_type.type_number(), number, "{name}");
    }
}

#[test]
fn config_accepts_fixed_or_adaptive_beacon_interval() {
    let interval =
        |text: &str| geonet_of(&format!("{SMALL_GEONET_CONFIG}beacon = {{ {text} }}\n")).beacon.interval;
    assert_eq!(
        interval("interval = \"1s\""),
        BeaconInterval::Fixed { interval: Duration::from_secs(1), jitter: Duration::from_millis(250) }
    );
    assert_eq!(
        interval("interval = \"1s\", jitter = \"0s\", adaptive = false"),
        BeaconInterval::Fixed { interval: Duration::from_secs(1), jitter: Duration::ZERO }
    );
    let paper = BeaconInterval::Adaptive {
        beacons_in_range: 16,
        shortest: Duration::from_millis(100),
        longest: Duration::from_secs(2),
        load_limit: Some(500),
    };
    assert_eq!(interval("adaptive = true"), paper);
    assert_eq!(
        interval(
            "adaptive = true, beacons_in_range = 4, shortest = \"1s\", longest = \"1s\", load_limit = 0"
        ),
        BeaconInterval::Adaptive {
            beacons_in_range: 4,
            shortest: Duration::from_secs(1),
            longest: Duration::from_secs(1),
            load_limit: None,
        }
    );
}

#[test]
fn config_reads_areas_of_every_shape() {
    let text = "area = [\n\
                { name = 'a', shape = 'circle', center = [48.8375, 2.1008], radius = '300m' },\n\
                { name = 'b', shape = 'ellipse', center = [-1, 1_0], distance_a = '2km', distance_b = '1m' },\
                \n]\n";
    let area = |name: &str, shape, center, distance_a_m, distance_b_m| Area {
        name: name.to_owned(),
        area_shape: shape,
        center,
        distance_a_m,
        distance_b_m,
        angle_deg: 0,
        group: None,
        prefix: None,
        ipv6_interface: None,
    };
    let there = Coordinates { latitude: -10_000_000, longitude: 100_000_000 };
    assert_eq!(
        geonet_of(&format!("{SMALL_GEONET_CONFIG}{text}")).areas,
        [area("a", AreaShape::Circle, PARIS, 300, 0), area("b", AreaShape::Ellipse, there, 2000, 1)]
    );
}

#[test]
fn position_trace_is_found_in_the_folder_of_the_config() {
    let text = SMALL_GEONET_CONFIG.replace("fixed:48.8375,2.1008", "trace:drive.csv");
    let config = super::Config::parse(&text, "/etc/carnet/c.toml").expect("a config");
    assert_eq!(
        config.geonet.expect("a [geonet]").position_source,
        PositionSource::Trace("/etc/carnet/drive.csv".into())
    );
}

#[test]
fn invalid_geonet_values_are_reported() {
    check_errors(&[
        (
            "planarisation = \"rng\"",
            "planarization = \"rng\"",
            &["c.toml:59:1: unknown key `planarization` in [geonet.forwarding], expected `planarisation`"],
        ),
        (
            "interface = \"wlan1\"\n",
            "",
            &["c.toml:47:1: `geonet.interface` is missing, expected an interface name of 1 to 15 \
                 characters or \"udp:ADDRESS[,PEER...]\""],
        ),
        (
            "position = \"gpsd://[::1]:2947\"\n",
            "",
            &["c.toml:47:1: `geonet.position` is missing, expected \"gpsd://HOST[:PORT]\", \
                 \"fixed:LAT,LON\" in degrees or \"trace:FILE\""],
        ),
        (
            "\"wlan1\"",
            "\"a-very-long-name\"",
            &["c.toml:48:13: `geonet.interface`: \"a-very-long-name\" is too long, expected an interface \
                 name of 1 to 15 characters or \"udp:ADDRESS[,PEER...]\""],
        ),
        (
            "\"wlan1\"",
            "\"udp:4747\"",
            &["c.toml:48:13: `geonet.interface`: \"4747\" is no address with a port, expected [IPV6]:PORT \
                 or IPV4:PORT behind udp:"],
        ),
        (
            "\"bus\"",
            "\"car\"",
            &["c.toml:49:16: `geonet.station_type`: \"car\" is not known, expected \"unknown\", \
                 \"pedestrian\", \"cyclist\", \"moped\", \"motorcycle\", \"passenger_car\", \"bus\", \
                 \"light_truck\", \"heavy_truck\", \"trailer\", \"special_vehicle\", \"tram\" or \
                 \"road_side_unit\""],
        ),
        (
            "\"managed:02:00:00:00:00:0a\"",
            "\"managed:02:00:00\"",
            &["c.toml:50:11: `geonet.address`: \"02:00:00\" is no MAC address, expected six groups of two \
                 hexadecimal digits such as 02:00:00:00:00:0a"],
        ),
        (
            "\"managed:02:00:00:00:00:0a\"",
            "\"managed:ff:ff:ff:ff:ff:ff\"",
            &["c.toml:50:11: `geonet.address`: ff:ff:ff:ff:ff:ff is a group address, expected the address \
               of one station such as 02:00:00:00:00:0a"],
        ),
        (
            "\"managed:02:00:00:00:00:0a\"",
            "\"manual\"",
            &["c.toml:50:11: `geonet.address`: \"manual\" is not known, expected \"auto\", \
                 \"managed:02:00:00:00:00:0a\" or \"anonymous\""],
        ),
        (
            "\"gpsd://[::1]:2947\"",
            "\"gpsd://local host\"",
            &["c.toml:51:12: `geonet.position`: \"gpsd://local host\" names no host, expected \
                 \"gpsd://HOST[:PORT][/DEVICE]\" such as \"gpsd://[::1]:2947\""],
        ),
        (
            "\"gpsd://[::1]:2947\"",
            "\"fixed:48.8375\"",
            &["c.toml:51:12: `geonet.position`: \"48.8375\" is no pair of numbers, expected \
                 \"fixed:LAT,LON\" in degrees"],
        ),
        (
            "\"gpsd://[::1]:2947\"",
            "\"fixed:91,0\"",
            &["c.toml:51:12: `geonet.position`: 91 is no latitude, expected -90 to 90 degrees"],
        ),
        (
            "\"gpsd://[::1]:2947\"",
            "\"trace:\"",
            &["c.toml:51:12: `geonet.position`: the path is empty, expected a path"],
        ),
        (
            "\"gpsd://[::1]:2947\"",
            "\"galileo\"",
            &["c.toml:51:12: `geonet.position`: \"galileo\" is no source of positions, expected \
                 \"gpsd://HOST[:PORT]\", \"fixed:LAT,LON\" in degrees or \"trace:FILE\""],
        ),
        (
            "\"500m\"",
            "\"0m\"",
            &["c.toml:52:9: `geonet.range`: \"0m\" is zero, expected a length from 1 m to 65535 m such \
                 as \"300m\" or \"1km\""],
        ),
        (
            "standard = \"1.3.1\"",
            "standard = 1.3",
            &["c.toml:53:12: `geonet.standard`: a float is not permitted here, expected \"1.4.1\", \
               \"1.3.1\" or \
                 \"1.2.1\""],
        ),
        (
            "unicast = \"cbf\"",
            "unicast = \"simple\"",
            &["c.toml:56:11: `geonet.forwarding.unicast`: \"simple\" is not known, expected \"greedy\" or \
                 \"cbf\""],
        ),
        (
            "recovery = \"gpsr\"",
            "recovery = \"none\"",
            &["c.toml:59:17: `geonet.forwarding.planarisation`: a planarisation needs perimeter recovery, \
               expected recovery = \"gpsr\""],
        ),
    ]);
}

#[test]
fn config_reads_keys_of_predictive_forwarding() {
    let all = geonet_of(&format!(
        "{SMALL_GEONET_CONFIG}forwarding = {{ link_lifetime = '200ms' }}\n\
         beacon = {{ adaptive = true, company_speed = true, deviation = '5m', lifetime = 4 }}\n"
    ));
    assert_eq!(all.forwarding.link_lifetime, Some(Duration::from_millis(200)));
    assert_eq!(
        (all.beacon.uses_neighbour_speed, all.beacon.max_position_error_m, all.beacon.lifetime),
        (true, Some(5), Some(4))
    );
    assert_eq!(
        refusals_of_lines("forwarding = { link_lifetime = '11s' }\n"),
        ["c.toml:7:32: `geonet.forwarding.link_lifetime`: \"11s\" is too long, expected 10s at most"]
    );
    assert_eq!(
        refusals_of_lines("beacon = { deviation = '5m' }\n"),
        ["c.toml:7:24: `geonet.beacon.deviation`: needs adaptive beacons, expected adaptive = true"]
    );
}

#[test]
fn contradicting_beacon_keys_are_refused() {
    check_errors(&[
        (
            "interval = \"3s\"",
            "interval = \"9ms\"",
            &["c.toml:62:12: `geonet.beacon.interval`: \"9ms\" is out of range, expected 10ms to 1h"],
        ),
        (
            "jitter = \"500ms\"",
            "jitter = \"2h\"",
            &["c.toml:63:10: `geonet.beacon.jitter`: \"2h\" is out of range, expected 0s to 1h"],
        ),
        (
            "jitter = \"500ms\"",
            "adaptive = true",
            &["c.toml:62:12: `geonet.beacon.interval`: needs a fixed interval, expected adaptive \
                 = false"],
        ),
        (
            "jitter = \"500ms\"",
            "longest = \"1s\"",
            &["c.toml:63:11: `geonet.beacon.longest`: needs adaptive beacons, expected adaptive = true"],
        ),
        (
            "interval = \"3s\"\njitter = \"500ms\"",
            "adaptive = true\nlongest = \"50ms\"",
            &["c.toml:63:11: `geonet.beacon.longest`: the longest interval is shorter than the shortest, \
                 expected `shortest` up to `longest`"],
        ),
        (
            "hops = 3",
            "hops = 256",
            &["c.toml:65:8: `geonet.beacon.hops`: 256 is out of range, expected an integer from 1 to 255"],
        ),
    ]);
    assert_eq!(
        refusals_of_lines("beacon = \"3s\"\n"),
        ["c.toml:7:10: `geonet.beacon`: a string is not permitted here, expected a table [geonet.beacon]"]
    );
}

#[test]
fn invalid_areas_are_refused() {
    check_errors(&[
        (
            "\"rectangle\"",
            "\"circle\"",
            &[
                "c.toml:68:1: `geonet.area.radius` is missing, expected a length from 1 m to 65535 m such as \
                 \"300m\" or \"1km\"",
                "c.toml:72:14: `geonet.area.distance_a`: a circle does not have this key, expected only \
                 `radius`",
                "c.toml:73:14: `geonet.area.distance_b`: a circle does not have this key, expected only \
                 `radius`",
                "c.toml:74:9: `geonet.area.angle`: a circle does not have this key, expected only `radius`",
            ],
        ),
        (
            "distance_b = \"50m\"",
            "radius = \"50m\"",
            &[
                "c.toml:68:1: `geonet.area.distance_b` is missing, expected a length from 1 m to 65535 m \
                 such as \"300m\" or \"1km\"",
                "c.toml:73:10: `geonet.area.radius`: only a circle has a radius, expected `distance_a` and \
                 `distance_b`",
            ],
        ),
        (
            "angle = 45",
            "angle = 360",
            &["c.toml:74:9: `geonet.area.angle`: 360 is out of range, expected an integer from 0 to 359"],
        ),
        (
            "\"300m\"",
            "\"60km\"",
            &["c.toml:72:14: the area has 12.00 square kilometres, expected 10 at most"],
        ),
        (
            "[48.8375, -2.1008]",
            "[48.8375]",
            &["c.toml:71:10: `geonet.area.center`: an array of 1 is not permitted here, expected \
                 [LATITUDE, LONGITUDE] in degrees"],
        ),
        (
            "[48.8375, -2.1008]",
            "[90.5, \"2\"]",
            &[
                "c.toml:71:11: `geonet.area.center`: 90.5 is no latitude, expected -90 to 90 degrees",
                "c.toml:71:17: `geonet.area.center`: a string is not permitted here, expected a longitude \
                 from \
                 -180 to 180 degrees",
            ],
        ),
        (
            "angle = 45",
            "[[geonet.area]]\nname = \"crossing\"\nshape = \"circle\"\ncenter = [0, nan]\nradius = \"1785m\"",
            &[
                "c.toml:75:8: \"crossing\" is an area already at c.toml:69:8, expected another",
                "c.toml:77:14: `geonet.area.center`: NaN is no longitude, expected -180 to 180 degrees",
                "c.toml:78:10: the area has 10.01 square kilometres, expected 10 at most",
            ],
        ),
    ]);
}

#[test]
fn radio_interface_cannot_also_be_an_uplink_or_lan() {
    check_errors(&[
        (
            "\"wlan1\"",
            "\"wwan0\"",
            &["c.toml:48:13: \"wwan0\" is an uplink already at c.toml:45:13, expected another"],
        ),
        (
            "\"wlan1\"",
            "\"i1\"",
            &["c.toml:48:13: \"i1\" is in the lan already at c.toml:36:14, expected another"],
        ),
        (
            "\"wlan1\"",
            "\"h0\"",
            &["c.toml:48:13: \"h0\" is the home link already at c.toml:14:13, expected another"],
        ),
    ]);
    assert_eq!(
        parse(&CONFIG_WITH_EVERY_KEY.replace("\"wlan1\"", "\"udp:239.1.1.1%wlan0:1\"")).warnings().len(),
        3
    );
}

#[test]
fn mib_keys_have_the_defaults_of_the_standard() {
    let mib = |text: &str| geonet_of(&format!("{SMALL_GEONET_CONFIG}[geonet.mib]\n{text}")).mib_parameters;
    assert_eq!(mib(""), standard_mib());
    let given = mib("lifetime_location_entry = '5s'\nmax_packet_data_rate = 0\npai_interval = '40m'\n");
    assert_eq!(given.lifetime_neighbour, Duration::from_secs(5));
    assert_eq!((given.max_packet_data_rate, given.pai_interval_m), (None, 40));
    let short = mib("cbf_max_time = '0s'\nmax_packet_lifetime = '1s'\nis_mobile = true\n");
    assert_eq!((short.cbf_min_time, short.is_mobile), (Duration::ZERO, Some(true)));
    assert_eq!(short.default_packet_lifetime, Duration::from_secs(1));
    assert_eq!(
        refusals_of_lines(
            "[geonet.mib]\nlifetime_neighbour = '21s'\ncbf_min_time = '1h'\nmax_area_size = 0\n"
        ),
        [
            "c.toml:8:22: `geonet.mib.lifetime_neighbour`: `lifetime_neighbour` is longer than \
             `lifetime_location_entry`, expected 20s at most",
            "c.toml:9:16: `geonet.mib.cbf_min_time`: `cbf_min_time` is longer than `cbf_max_time`, expected \
             100ms at most",
            "c.toml:10:17: `geonet.mib.max_area_size`: 0 is out of range, expected an integer from 1 to \
             100000",
        ]
    );
    assert_eq!(
        refusals_of_lines("[geonet.mib]\nmax_packet_lifetime = '2h'\nmax_packet_rate = 7\n"),
        [
            "c.toml:8:23: `geonet.mib.max_packet_lifetime`: \"2h\" is out of range, expected 50ms to 6300s",
            "c.toml:9:1: unknown key `max_packet_rate` in [geonet.mib], expected `max_packet_data_rate`",
        ]
    );
    // An area may be as large as `max_area_size` permits.
    let large = "[[geonet.area]]\nname = 'a'\nshape = 'circle'\ncenter = [1, 2]\nradius = '3km'\n";
    assert_eq!(refusals_of_lines(large).len(), 1);
    assert_eq!(
        geonet_of(&format!("{SMALL_GEONET_CONFIG}mib = {{ max_area_size = 30 }}\n{large}")).areas.len(),
        1
    );
}

#[test]
fn congestion_control_accepts_only_rates_of_its_g5() {
    let dcc =
        |text: &str| geonet_of(&format!("{SMALL_GEONET_CONFIG}dcc = {{ {text} }}\n")).dcc.expect("a gate");
    assert_eq!((dcc("").data_rate, dcc("queue_length = 100").queue_length), (6, 100));
    for rate in [3, 6, 9, 12, 18, 24, 27] {
        assert_eq!(dcc(&format!("data_rate = {rate}")).data_rate, rate);
    }
    assert_eq!(
        refusals_of_lines("[geonet.dcc]\ndata_rate = 10\nqueue_length = 101\n"),
        [
            "c.toml:8:13: `geonet.dcc.data_rate`: 10 Mbit/s is no rate of 802.11p with 10 MHz, expected 3, \
             6, 9, 12, 18, 24 or 27",
            "c.toml:9:16: `geonet.dcc.queue_length`: 101 is out of range, expected an integer from 1 to 100",
        ]
    );
}

#[test]
fn config_reads_keys_of_ipv6_over_geonetworking() {
    let text = r#"
ipv6_interface = "gn0"
[geonet.ipv6]
dynamic_interface = "gn1"
learnt_links = 4
hop_limit = 5
reorder_wait = '50ms'
reorder_rule = 'changed'
reorder_hold = 'acknowledgements'
congestion_mark = 8000
fragments = true
[[geonet.area]]
name = "a"
shape = "circle"
center = [48.8375, 2.1008]
radius = "300m"
group = "ff3e:40:2001:db8:1::1"
prefix = "2001:db8:1::/64"
ipv6_interface = "gn2"
"#;
    let config = geonet_of(&format!("{SMALL_GEONET_CONFIG}{text}"));
    let ipv6 = config.ipv6.expect("IPv6");
    assert_eq!((ipv6.interface.as_str(), ipv6.interface_for_other_areas.as_deref()), ("gn0", Some("gn1")));
    assert_eq!((ipv6.max_learnt_interfaces, ipv6.hop_limit), (4, Some(5)));
    assert_eq!((ipv6.reorder_wait, ipv6.reorder_rule), (Duration::from_millis(50), ReorderRule::Changed));
    assert_eq!((ipv6.reorder_hold, ipv6.congestion_mark), (ReorderHold::Acknowledgements, Some(8000)));
    assert!(ipv6.fragments_large_packets);
    let area = config.areas.first().expect("an area");
    assert_eq!(area.group, Some("ff3e:40:2001:db8:1::1".parse().expect("an address")));
    assert_eq!(area.prefix, Some("2001:db8:1::/64".parse().expect("a prefix")));
    assert_eq!(area.ipv6_interface.as_deref(), Some("gn2"));

    let plain = geonet_of(&format!("{SMALL_GEONET_CONFIG}ipv6_interface = \"gn0\"\n")).ipv6.expect("IPv6");
    assert_eq!(
        (plain.interface_for_other_areas, plain.max_learnt_interfaces, plain.hop_limit),
        (None, 0, None)
    );
    assert_eq!((plain.reorder_wait, plain.reorder_rule), (Duration::ZERO, ReorderRule::Shorter));
    assert_eq!((plain.reorder_hold, plain.congestion_mark), (ReorderHold::Packets, None));
    assert!(!plain.fragments_large_packets);
    assert_eq!(
        refusals_of_lines("ipv6_interface = 'gn0'\nipv6 = { reorder_wait = '2s' }"),
        ["c.toml:8:25: `geonet.ipv6.reorder_wait`: \"2s\" is too long, expected 1s at most"]
    );
}

#[test]
fn config_reads_keys_of_mnpp() {
    let with = |lines: &str| {
        CONFIG_WITH_EVERY_KEY.replace(
            "interface = \"wlan1\"",
            &format!("ipv6_interface = \"gn0\"\n{lines}\ninterface = \"wlan1\""),
        )
    };
    let mnpp = |lines: &str| parse(&with(lines)).geonet.expect("a [geonet]").mnpp;
    assert_eq!(mnpp(""), None);
    let defaults = Mnpp {
        authorization: Authorization::HomeAgent,
        shortest_prefix: 64,
        hop_limit: 1,
        interval: Duration::from_secs(10),
    };
    assert_eq!(mnpp("mnpp = {}"), Some(defaults));
    let other = Mnpp {
        authorization: Authorization::Anybody,
        shortest_prefix: 56,
        hop_limit: 3,
        interval: Duration::from_secs(5),
    };
    let text = "mnpp = { authorization = 'none', shortest_prefix = 56, hops = 3, interval = '5s' }";
    assert_eq!(mnpp(text), Some(other));
    let found = errors(&with("mnpp = { shortest_prefix = 0, hops = 11, interval = '500ms' }"));
    assert!(found.len() == 3 && found[2].contains("expected 1s to 200s"), "{found:?}");
    assert_eq!(
        refusals_of_lines("mnpp = {}"),
        [
            "c.toml:7:8: the station has no mobile network to announce, expected a section [mobile_router]",
            "c.toml:7:8: needs IPv6 over GeoNetworking, expected `geonet.ipv6_interface`"
        ]
    );
}

#[test]
fn ipv6_interfaces_and_groups_must_be_unique() {
    const AREA_TABLE: &str =
        "[[geonet.area]]\nname = 'NAME'\nshape = 'circle'\ncenter = [1, 2]\nradius = '1km'\n";
    let (a, b) = (AREA_TABLE.replace("NAME", "a"), AREA_TABLE.replace("NAME", "b"));
    let cases: [(String, &[&str]); 9] = [
        (
            "ipv6 = { hop_limit = 5 }".into(),
            &["c.toml:7:8: needs IPv6 over GeoNetworking, expected `geonet.ipv6_interface`"],
        ),
        (
            format!("{a}ipv6_interface = 'gn1'"),
            &["c.toml:12:18: needs IPv6 over GeoNetworking, expected `geonet.ipv6_interface`"],
        ),
        (
            "ipv6_interface = 'gn0'\nipv6 = { dynamic_interface = 'gn0' }".into(),
            &["c.toml:8:30: \"gn0\" is an IPv6 interface already at c.toml:7:18, expected another"],
        ),
        (
            format!("ipv6_interface = 'gn0'\n{a}ipv6_interface = 'gn1'\n{b}ipv6_interface = 'gn1'"),
            &["c.toml:19:18: \"gn1\" is an IPv6 interface already at c.toml:13:18, expected another"],
        ),
        (
            format!("ipv6_interface = 'gn0'\n{a}group = 'ff3e::1'\n{b}group = 'ff3e::1'"),
            &["c.toml:19:9: ff3e::1 is an area's at c.toml:13:9, expected another"],
        ),
        (
            format!("{a}group = 'ff02::1'"),
            &["c.toml:12:9: `geonet.area.group`: \"ff02::1\" does not leave its link, expected a multicast \
                 address of more than link scope such as \"ff3e:40:2001:db8:1::1\""],
        ),
        (
            format!("{a}group = '2001:db8::1'"),
            &["c.toml:12:9: `geonet.area.group`: \"2001:db8::1\" is no multicast address, expected a \
                 multicast address of more than link scope such as \"ff3e:40:2001:db8:1::1\""],
        ),
        (
            format!("{a}prefix = '2001:db8::/65'"),
            &["c.toml:12:10: `geonet.area.prefix`: 2001:db8::/65 has no room for interface identifiers, \
                 expected /64 or shorter"],
        ),
        (
            "ipv6_interface = 'gn0'\nipv6 = { learnt_links = 65, hop_limit = 0 }".into(),
            &[
                "c.toml:8:25: `geonet.ipv6.learnt_links`: 65 is out of range, expected an integer from 0 to \
                 64",
                "c.toml:8:41: `geonet.ipv6.hop_limit`: 0 is out of range, expected an integer from 1 to 255",
            ],
        ),
    ];
    for (lines, expected) in cases {
        assert_eq!(refusals_of_lines(&lines), expected, "{lines}");
    }
    // A roadside unit may be the access router of a vehicle. So the main interface may be an uplink, but no
    // other interface of IPv6 over GeoNetworking may.
    let text = CONFIG_WITH_EVERY_KEY
        .replace("interface = \"wlan1\"", "ipv6_interface = \"wwan0\"\ninterface = \"wlan1\"");
    assert_eq!(parse(&text).geonet.and_then(|it| it.ipv6).map(|it| it.interface), Some("wwan0".into()));
    let text =
        text.replace("\"wwan0\"\ninterface", "\"gn0\"\nipv6 = { dynamic_interface = \"wwan0\" }\ninterface");
    let found = errors(&text);
    assert!(matches!(found.as_slice(), [one] if one.contains("\"wwan0\" is an uplink already")), "{found:?}");
    // An interface that another role or the radio uses is refused.
    let text = CONFIG_WITH_EVERY_KEY
        .replace("interface = \"wlan1\"", "ipv6_interface = \"i0\"\ninterface = \"wlan1\"");
    let found = errors(&text);
    assert!(matches!(found.as_slice(), [one] if one.contains("\"i0\" is in the lan already")), "{found:?}");
    let text = CONFIG_WITH_EVERY_KEY
        .replace("interface = \"wlan1\"", "ipv6_interface = \"wlan1\"\ninterface = \"wlan1\"");
    let found = errors(&text);
    assert!(matches!(found.as_slice(), [one] if one.contains("\"wlan1\" is the radio already")), "{found:?}");
}
