//! Tests of the config file: accepted configs, refused configs with the position of the error, and
//! `docs/config.md`.

mod conflicts_between_tables;
mod dhcp;
mod errors;
mod geonet;
mod home_network;
mod hostile;
mod ipv4_networks;
mod lan;
mod mobile_node;
mod multicast;
mod page;
mod policies;
mod security;
mod sessions;

use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::Ipv6Net;

use super::*;
use carnet_wire::address::MacAddress;

/// A config with every key.
const CONFIG_WITH_EVERY_KEY: &str = r#"
[station]
name = "bus-42"
socket = "/run/carnet/x.sock"
state_dir = "/var/lib/carnet"
record = "bus-42.jsonl"

[dataplane]
path = "tun"

[home_agent]
address = "2001:db8:2::1"
home_prefix = "2001:db8:2::/64"
home_link = "h0"
max_lifetime = "1h30m"
preference = 10
dhaad = false
ipv4_address = "192.0.2.2"
[[home_agent.mobile_router]]
home_address = "2001:db8:2::1234"
prefixes = ["2001:db8:c::/64", "fd00:1:2::/48"]
auth = { spi = 256, key = "000102030405060708090a0b0c0d0e0f", replay = "timestamp", window = "10s" }
nat = false
[[home_agent.mobile_router]]
home_address = "fd00:2::1"
prefixes = ["fd00:2::/64"]
auth = "none"

[mobile_router]
home_address = "2001:db8:1::1234"
home_prefix = "2001:db8:1::/64"
home_agent = "2001:db8:1::1"
prefixes = ["2001:db8:a::/64"]
registration = "implicit"
lifetime = "63s"
lan = ["i0", "i1"]
advertise = false
auth = { spi = 300, key = "ffffffffffffffffffffffffffffffff" }
home_agent_ipv4 = "192.0.2.1"
[[mobile_router.uplink]]
interface = "wlan0"
priority = 127
signal = { good = -49, poor = -69 }
[[mobile_router.uplink]]
interface = "wwan0"
signal_file = "/run/modem/signal"
[geonet]
interface = "wlan1"
station_type = "bus"
address = "managed:02:00:00:00:00:0a"
position = "gpsd://[::1]:2947"
range = "500m"
standard = "1.3.1"

[geonet.forwarding]
unicast = "cbf"
area = "advanced"
recovery = "gpsr"
planarisation = "rng"

[geonet.beacon]
interval = "3s"
jitter = "500ms"
piggyback = true
hops = 3
every = 5

[[geonet.area]]
name = "crossing"
shape = "rectangle"
center = [48.8375, -2.1008]
distance_a = "300m"
distance_b = "50m"
angle = 45

[conformance]
upper_tester = "[::1]:12345"
anywhere = true

[geonet.mib]
max_packet_data_rate = 200

[facilities]
cam = false
station_id = 42
vehicle_length = 12.5
vehicle_width = 2.5
role = "public_transport"
keep_alive = false
ldm_stations = 100
ldm_events = 10

[security]
policy = "off"
roots = ["pki/root.cert", "/etc/root.cert"]
authorities = ["pki/aa.cert"]
tickets = "pki/tickets"
revoked = ["0123456789abcdef"]
verifications_per_second = 100

[geonet.dcc]
algorithm = "adaptive"
time_on_air = "500us"
data_rate = 12
queue_length = 5
assumed_busy = 30

[[facilities.service]]
its_aid = 36
address = "2001:db8::1"
port = 8080

[[facilities.service]]
its_aid = 540801
"#;

#[test]
fn uplink_bids_must_be_unique_and_valid() {
    let identifiers = |text: &str| -> Vec<Option<u16>> {
        let router = parse(text).mobile_router.expect("a mobile router");
        router.uplinks.iter().map(|uplink| uplink.bid).collect()
    };
    let with = |rest: &str| SMALL_ROUTER_CONFIG.replace("\"wlan0\" }", &format!("\"wlan0\" {rest}"));
    assert_eq!(identifiers(&with("}")), [None]);
    assert_eq!(
        identifiers(&with(", bid = 65535 }, { interface = \"wwan0\", bid = 1 }")),
        [Some(65535), Some(1)]
    );
    for (rest, expected) in [
        (", bid = 0 }", "is out of range, expected"),
        (", bid = 65536 }", "is out of range, expected"),
        (
            ", bid = 7 }, { interface = \"wwan0\", bid = 7 }",
            "7 is the identifier at c.toml:9:41, expected another",
        ),
    ] {
        let errors = Config::parse(&with(rest), "c.toml").expect_err(rest).to_string();
        assert!(errors.contains(expected), "{errors}");
    }
}

/// Config of a mobile router with only the required keys.
const SMALL_ROUTER_CONFIG: &str = r#"
[station]
name = "bus-42"
[mobile_router]
home_address = "2001:db8:1::1234"
home_prefix = "2001:db8:1::/64"
home_agent = "2001:db8:1::1"
auth = "none"
uplink = [{ interface = "wlan0" }]
"#;

fn parse(text: &str) -> Config {
    Config::parse(text, "c.toml").unwrap_or_else(|errors| panic!("{errors}"))
}

fn ipv6_net(text: &str) -> Ipv6Net {
    text.parse().expect("a prefix")
}

fn ipv6_address(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

#[test]
fn home_agent_key_accepts_an_address_a_list_or_discover() {
    let parse = |text: &str| {
        let text = CONFIG_WITH_EVERY_KEY.replace("home_agent_ipv4 = \"192.0.2.1\"\n", "").replace(
            "[mobile_router]\nhome_address = \"2001:db8:1::1234\"\nhome_prefix = \"2001:db8:1::/64\"\n\
             home_agent = \"2001:db8:1::1\"",
            &format!(
                "[mobile_router]\nhome_address = \"2001:db8:1::1234\"\nhome_prefix = \
                 \"2001:db8:1::/64\"\n{text}"
            ),
        );
        let text = text.replace("ffffff\" }", "ffffff\", per_agent = true }");
        let config = Config::parse(&text, "c.toml").expect("a config");
        config.mobile_router.expect("a mobile router").home_agents
    };
    let discover = parse("home_agent = \"discover\"");
    assert_eq!((discover.addresses.len(), discover.discovers_home_agents), (0, true));
    let several = parse("home_agent = [\"2001:db8:1::1\", \"2001:db8:1::2\"]");
    assert_eq!(several.addresses, [ipv6_address("2001:db8:1::1"), ipv6_address("2001:db8:1::2")]);
    let both = parse("home_agent = [\"2001:db8:1::1\", \"discover\"]\nhome_agent_ipv4 = [\"192.0.2.1\"]");
    assert_eq!((both.addresses.len(), both.discovers_home_agents, both.ipv4_addresses.len()), (1, true, 1));
}

#[test]
fn config_with_one_key_for_several_home_agents_must_set_per_agent() {
    let errors = |home_agent: &str, auth: &str| {
        let text = SMALL_ROUTER_CONFIG
            .replace("home_agent = \"2001:db8:1::1\"", &format!("home_agent = {home_agent}"));
        let text = text.replace("\"none\"", auth);
        Config::parse(&text, "c.toml").map_or_else(|errors| errors.to_string(), |_| String::new())
    };
    let key = |rest: &str| format!("{{ spi = 300, key = \"000102030405060708090a0b0c0d0e0f\"{rest} }}");
    let (one, two, found) = ("\"2001:db8:1::1\"", "[\"2001:db8:1::1\", \"2001:db8:1::2\"]", "\"discover\"");
    let refused = "c.toml:8:8: with one key for several home agents an attacker can replay Binding Updates \
                   to one at another, expected per_agent = true";
    for (home_agent, rest, expected) in [
        (one, "", ""),
        (one, ", per_agent = true", ""),
        (one, ", per_agent = false", ""),
        (two, "", refused),
        (two, ", per_agent = false", refused),
        // If several home agents share one key, timestamps do not stop replays. By RFC 4285 6, a home agent
        // accepts a message for some seconds, even a recorded message to another home agent.
        (two, ", replay = \"timestamp\"", refused),
        (two, ", per_agent = true", ""),
        (found, "", refused),
        (found, ", per_agent = true", ""),
    ] {
        assert_eq!(errors(home_agent, &key(rest)), expected, "{home_agent} {rest}");
    }
    assert_eq!(errors(two, "\"none\""), "", "there is a warning for that");
}

#[test]
fn check_warns_of_a_peer_with_another_prefix() {
    let warnings = |peer: &str| {
        let peer = format!("dhaad = false\npeer = [{{ address = \"{peer}\" }}]");
        let text = CONFIG_WITH_EVERY_KEY
            .replace("dhaad = false", &peer)
            .replace("0e0f\", replay", "0e0f\", per_agent = true, replay");
        let config = Config::parse(&text, "c.toml").expect("a config");
        config.warnings().iter().filter(|warning| warning.contains("home_agent.peer")).count()
    };
    assert_eq!((warnings("2001:db8:2::9"), warnings("2001:db8:99::9")), (0, 1));
}

#[test]
fn config_reads_setting_of_multiple_care_of_addresses() {
    let agent = |keys: &str| {
        let text = CONFIG_WITH_EVERY_KEY.replace("dhaad = false", &format!("dhaad = false\n{keys}"));
        let config = Config::parse(&text, "c.toml").map_err(|errors| errors.to_string());
        config.map(|config| config.home_agent.map(|agent| agent.multiple_care_of))
    };
    assert_eq!(agent(""), Ok(Some(MultipleCareOfAddresses::Bulk)));
    for (word, expected) in [
        ("bulk", MultipleCareOfAddresses::Bulk),
        ("single", MultipleCareOfAddresses::Single),
        ("none", MultipleCareOfAddresses::Prohibited),
    ] {
        let keys = format!("multiple_care_of = {word:?}");
        assert_eq!(agent(&keys), Ok(Some(expected)));
    }
    assert!(agent("multiple_care_of = true").is_err());
}

#[test]
fn care_of_test_of_router_defaults_to_that_of_the_home_agent() {
    let of = |own: &str, router: &str| {
        let text = CONFIG_WITH_EVERY_KEY
            .replace("nat = false", &format!("nat = false\n{router}"))
            .replace("dhaad = false", &format!("dhaad = false\n{own}"));
        let agent = Config::parse(&text, "c.toml").expect("a config").home_agent.expect("a home agent");
        agent.mobile_routers.iter().map(|router| router.care_of_test).collect::<Vec<_>>()
    };
    let (on, off) = ("care_of_test = \"on\"", "care_of_test = \"off\"");
    assert_eq!(of("", ""), [true, true]);
    assert_eq!(of(off, ""), [false, false]);
    assert_eq!(of("", off), [false, true]);
    assert_eq!(of(off, on), [true, false]);
}

#[test]
fn every_config_key_reaches_its_field() {
    let expected = Config {
        station: Station {
            name: "bus-42".into(),
            socket: "/run/carnet/x.sock".into(),
            state_dir: Some("/var/lib/carnet".into()),
            private_key: None,
            recording_file: Some("bus-42.jsonl".into()),
            tcp_api: None,
            sandbox: Sandbox::Auto,
        },
        dataplane: Dataplane { path: DataplanePath::Tun },
        home_agent: Some(HomeAgent {
            address: ipv6_address("2001:db8:2::1"),
            ipv4_address: Some(std::net::Ipv4Addr::new(192, 0, 2, 2)),
            multiple_care_of: MultipleCareOfAddresses::Bulk,
            care_of_test: true,
            home_prefix: ipv6_net("2001:db8:2::/64"),
            home_network: None,
            home_link: Some("h0".into()),
            ndp_proxy: None,
            ipv4_nat: None,
            ipv6_nat: None,
            ipv6_nat_prefixes: Vec::new(),
            tunnel_port: 51820,
            always_uses_udp: false,
            max_lifetime: Duration::from_secs(5400),
            preference: 10,
            answers_dhaad: false,
            peer_agents: Vec::new(),
            mobile_routers: vec![
                AllowedRouter {
                    home_address: ipv6_address("2001:db8:2::1234"),
                    prefixes: vec![ipv6_net("2001:db8:c::/64"), ipv6_net("fd00:1:2::/48")],
                    ipv4_prefixes: Vec::new(),
                    node_auth: Auth::Mac(SharedKeyAuth {
                        spi: 256,
                        shared_key: Key::new([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]),
                        replay_protection: ReplayProtection::Timestamp { window: Duration::from_secs(10) },
                        differs_per_home_agent: None,
                    }),
                    allows_nat: false,
                    care_of_test: true,
                },
                AllowedRouter {
                    home_address: ipv6_address("fd00:2::1"),
                    prefixes: vec![ipv6_net("fd00:2::/64")],
                    ipv4_prefixes: Vec::new(),
                    node_auth: Auth::None,
                    allows_nat: true,
                    care_of_test: true,
                },
            ],
        }),
        mobile_router: Some(MobileRouter {
            home_address: ipv6_address("2001:db8:1::1234"),
            home_prefix: ipv6_net("2001:db8:1::/64"),
            home_agents: HomeAgents {
                addresses: vec![ipv6_address("2001:db8:1::1")],
                ipv4_addresses: vec![std::net::Ipv4Addr::new(192, 0, 2, 1)],
                discovers_home_agents: false,
            },
            home_agent_port: 51820,
            always_uses_udp: false,
            heartbeat_intervals: None,
            policies: Vec::new(),
            prefixes: vec![ipv6_net("2001:db8:a::/64")],
            ipv4_prefixes: Vec::new(),
            registration: RegistrationMode::Implicit,
            lifetime: Duration::from_secs(60),
            lan_interfaces: vec![Lan::named("i0", false), Lan::named("i1", false)],
            dns_forward_servers: Vec::new(),
            breaks_out_without_home_agent: false,
            own_traffic: OwnTraffic::Uplinks,
            advertises_on_lan: false,
            nesting_enabled: false,
            nested_routers: Vec::new(),
            direct_routes: Vec::new(),
            requires_direct_encryption: true,
            prefix_discovery: false,
            captive_portal_probe: None,
            auth: Auth::Mac(SharedKeyAuth {
                spi: 300,
                shared_key: Key::new([255; 16]),
                replay_protection: ReplayProtection::Sequence,
                differs_per_home_agent: None,
            }),
            uplinks: vec![
                Uplink {
                    interface: "wlan0".into(),
                    bid: None,
                    uplink_cost: 0,
                    capacity_kbit_s: None,
                    volume_limit: None,
                    volume_period: VolumePeriod::Month,
                    volume_day: 1,
                    volume_action: VolumeAction::LastResort,
                    roaming_use: RoamingUse::Allowed,
                    priority: 127,
                    signal_thresholds: Some(SignalThresholds { good_dbm: -49, poor_dbm: -69 }),
                    signal_file: None,
                    signal_timeout: Duration::from_secs(60),
                },
                Uplink {
                    interface: "wwan0".into(),
                    bid: None,
                    uplink_cost: 0,
                    capacity_kbit_s: None,
                    volume_limit: None,
                    volume_period: VolumePeriod::Month,
                    volume_day: 1,
                    volume_action: VolumeAction::LastResort,
                    roaming_use: RoamingUse::Allowed,
                    priority: 10,
                    signal_thresholds: None,
                    signal_file: Some("/run/modem/signal".into()),
                    signal_timeout: Duration::from_secs(60),
                },
            ],
        }),
        geonet: Some(Geonet {
            interface: GeonetInterface::Frames("wlan1".into()),
            station_type: StationType::Bus,
            address: GeonetAddress::Managed(MacAddress([2, 0, 0, 0, 0, 10])),
            set_link_address: true,
            ipv6: None,
            mnpp: None,
            multicast: None,
            dcc: Some(Dcc {
                algorithm: DccAlgorithm::Adaptive,
                time_on_air: DccTimeOnAir::Half,
                data_rate: 12,
                queue_length: 5,
                assumed_busy: 30,
            }),
            position_source: PositionSource::Gpsd { host: "::1".into(), port: 2947, device: None },
            forwarding: Forwarding {
                unicast_algorithm: NonAreaForwarding::ContentionBased,
                area_algorithm: AreaForwarding::Advanced,
                void_recovery: VoidRecovery::Perimeter(Planarisation::RelativeNeighbourhood),
                link_lifetime: None,
            },
            beacon: Beacon {
                interval: BeaconInterval::Fixed {
                    interval: Duration::from_secs(3),
                    jitter: Duration::from_millis(500),
                },
                uses_neighbour_speed: false,
                max_position_error_m: None,
                lifetime: None,
                counts_broadcasts_as_beacons: true,
                multi_hop_beacons: Some(MultiHopBeacons { hop_limit: 3, every_nth_beacon: 5 }),
            },
            range_m: 500,
            unknown_sender: UnknownSender::Broadcast,
            mib_parameters: Mib { max_packet_data_rate: Some(200), ..geonet::standard_mib() },
            areas: vec![Area {
                name: "crossing".into(),
                area_shape: AreaShape::Rectangle,
                center: Coordinates { latitude: 488_375_000, longitude: -21_008_000 },
                distance_a_m: 300,
                distance_b_m: 50,
                angle_deg: 45,
                group: None,
                prefix: None,
                ipv6_interface: None,
            }],
        }),
        facilities: Some(Facilities {
            sends_cams: false,
            station_id: Some(42),
            vehicle_length_dm: Some(125),
            vehicle_width_dm: Some(25),
            vehicle_role: VehicleRole::PublicTransport,
            keep_alive: false,
            max_ldm_stations: 100,
            max_ldm_events: 10,
            announced_services: vec![
                Service {
                    its_aid: 36,
                    address: Some("2001:db8::1".parse().expect("an address")),
                    port: Some(8080),
                },
                Service { its_aid: 540_801, address: None, port: None },
            ],
        }),
        security: Some(Security {
            unsigned_packet_policy: SecurityPolicy::Off,
            root_files: vec!["pki/root.cert".into(), "/etc/root.cert".into()],
            authority_files: vec!["pki/aa.cert".into()],
            ticket_folder: Some("pki/tickets".into()),
            revoked_certificates: vec![[0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]],
            verifications_per_second: 100,
            pseudonyms: None,
        }),
        conformance: Some(Conformance { upper_tester: "[::1]:12345".parse().expect("an address") }),
    };
    assert_eq!(parse(CONFIG_WITH_EVERY_KEY), expected);
}

#[test]
fn the_smallest_config_has_the_defaults() {
    let config = parse(SMALL_ROUTER_CONFIG);
    assert_eq!(config.station.socket, PathBuf::from("/run/carnet/bus-42.sock"));
    assert_eq!((config.station.state_dir, config.station.recording_file), (None, None));
    assert_eq!(config.dataplane.path, DataplanePath::Auto);
    assert_eq!((config.home_agent, config.geonet), (None, None));
    let router = config.mobile_router.expect("a mobile router");
    assert_eq!(router.registration, RegistrationMode::Explicit);
    assert_eq!(router.lifetime, Duration::from_secs(60));
    assert!(router.prefixes.is_empty() && router.lan_interfaces.is_empty() && router.advertises_on_lan);
}

#[test]
fn debug_output_of_config_shows_no_keys() {
    let text = format!("{:?} {:#?}", parse(CONFIG_WITH_EVERY_KEY), parse(CONFIG_WITH_EVERY_KEY));
    assert!(text.contains("Key(secret)"), "{text}");
    assert!(!text.contains("255") && !text.contains("ffffffff"), "{text}");
}

#[test]
fn check_warns_of_insecure_settings() {
    assert_eq!(
        parse(CONFIG_WITH_EVERY_KEY).warnings(),
        [
            "home_agent.mobile_router fd00:2::1: auth = \"none\": anyone who reaches the home agent can take \
             over the traffic of this mobile router",
            "mobile_router.lan: everyone outside reaches the hosts on i0, i1; expected inbound = \
             \"established\" in a table [[mobile_router.lan]]",
            "conformance.upper_tester: anyone who reaches [::1]:12345 can steer this station",
        ]
    );
    assert_eq!(
        parse(SMALL_ROUTER_CONFIG).warnings(),
        ["mobile_router: auth = \"none\": anyone who reaches the home agent can take over the traffic of \
          this mobile router"]
    );
    let agent = "[station]\nname = 'a'\n[home_agent]\naddress = 'fd00::1'\nhome_prefix = 'fd00::/64'\n";
    assert_eq!(parse(agent).warnings(), ["no [[home_agent.mobile_router]]: no mobile router can register"]);
    let elsewhere = agent.replace("'fd00::1'", "'fd01::1'");
    let warnings = parse(&elsewhere).warnings();
    assert!(warnings[1].starts_with("home_agent.address fd01::1: neither in home_prefix"), "{warnings:?}");
    let router = "[[home_agent.mobile_router]]\nhome_address = 'fd00::2'\n\
                  auth = { spi = 300, key = '000102030405060708090a0b0c0d0e0f' }\n";
    assert_eq!(
        parse(&format!("{agent}{router}")).warnings(),
        ["home_agent without station.state_dir: after a restart the home agent does not detect replayed \
          Binding Updates"]
    );
    let auth = "{ spi = 300, key = '000102030405060708090a0b0c0d0e0f' }";
    let router = SMALL_ROUTER_CONFIG.replace("\"none\"", auth);
    assert_eq!(
        parse(&router).warnings(),
        ["mobile_router without station.state_dir: each start takes its first sequence number from the \
             clock, and uses up the numbers of the key sooner (32768, then the home agent demands \
             timestamps)"]
    );
    let with_state = router.replace("[station]", "[station]\nstate_dir = '/var/lib/carnet'");
    assert!(parse(&with_state).warnings().is_empty());
}

/// Reads the `auth` of [`SMALL_ROUTER_CONFIG`] with these keys in `auth.former`.
fn auth_with_former_keys(former: &str) -> Result<Auth, String> {
    let key = "key = \"ffffffffffffffffffffffffffffffff\", replay = \"timestamp\"";
    let auth = format!("{{ spi = 301, {key}, former = [{former}] }}");
    match Config::parse(&SMALL_ROUTER_CONFIG.replace("\"none\"", &auth), "c.toml") {
        Ok(config) => Ok(config.mobile_router.expect("a mobile router").auth),
        Err(errors) => Err(errors.to_string()),
    }
}

#[test]
fn config_parses_former_keys_beside_the_signing_key() {
    let one =
        |spi: u32| format!("{{ spi = {spi}, key = \"000000000000000000000000000000{:02x}\" }}", spi % 256);
    let auth = auth_with_former_keys(&one(300)).expect("a config");
    let mac = auth.shared_key_auth().expect("a key");
    assert_eq!((mac.spi, &mac.shared_key), (301, &Key::new([255; 16])));
    assert!(matches!(mac.replay_protection, ReplayProtection::Timestamp { .. }), "it is the node's");
    let mut key = Key::new([0; 16]);
    key.octets_mut()[15] = 300_u32 as u8;
    assert_eq!(auth.former_keys(), [FormerKey { spi: 300, former_key: key }]);
    let three = [302, 303, 304].map(one).join(", ");
    assert_eq!(auth_with_former_keys(&three).expect("a config").former_keys().len(), 3);
}

#[test]
fn config_errors_in_former_keys_name_line_and_column() {
    let key = "key = \"00000000000000000000000000000001\"";
    for (former, expected) in [
        ("", "c.toml:8:94: `auth.former`: there are 0 keys, expected 1 to 3, or no `former`".to_owned()),
        (
            &*[300, 302, 303, 304].map(|spi| format!("{{ spi = {spi}, {key} }}")).join(", "),
            "c.toml:8:94: `auth.former`: there are 4 keys, expected 1 to 3, or no `former`".to_owned(),
        ),
        (
            &format!("{{ spi = 301, {key} }}"),
            "c.toml:8:103: 301 is the SPI at c.toml:8:16, expected another".to_owned(),
        ),
        (
            &format!("{{ spi = 300, {key} }}, {{ spi = 300, {key} }}"),
            "c.toml:8:160: 300 is the SPI at c.toml:8:103, expected another".to_owned(),
        ),
        (
            "{ spi = 300 }",
            "c.toml:8:95: `auth.former.key` is missing, expected 32 hexadecimal digits (16 octets) or a \
             `key_file`"
                .to_owned(),
        ),
        (
            &format!("{{ spi = 300, {key}, replay = \"sequence\" }}"),
            "c.toml:8:150: unknown key `replay` in auth.former".to_owned(),
        ),
    ] {
        let errors = auth_with_former_keys(former).expect_err(former);
        assert!(errors.contains(&expected), "expected {expected} in\n{errors}");
        assert!(!errors.contains("ffffff") && !errors.contains("0000001"), "{errors}");
    }
}

/// A home agent may have very many routers with one key each. Support for several keys must not cost memory
/// for them.
#[test]
fn authentication_config_with_one_key_needs_no_heap_memory() {
    assert_eq!(size_of::<Auth>(), size_of::<SharedKeyAuth>());
    assert_eq!(size_of::<SharedKeyAuth>(), 32);
}

#[test]
fn key_file_is_found_in_the_folder_of_the_config() {
    let directory = std::env::temp_dir().join(format!("carnet-api-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    std::fs::write(directory.join("a.key"), "00000000000000000000000000000001\n").expect("a key");
    std::fs::write(directory.join("short.key"), "0001").expect("a key");
    std::fs::write(directory.join("latin.toml"), b"[station]\nname = \"caf\xe9\"\n").expect("a config");
    let text = |file: &str| {
        SMALL_ROUTER_CONFIG.replace("\"none\"", &format!("{{ spi = 300, key_file = \"{file}\" }}"))
    };
    let path = directory.join("c.toml");
    std::fs::write(&path, text("a.key")).expect("a config");
    let auth = Config::load_file(&path).expect("a config").mobile_router.expect("a mobile router").auth;
    let name = path.display().to_string();
    let short = Config::parse(&text("short.key"), &name).expect_err("a short key").to_string();
    let absent = Config::parse(&text("no.key"), &name).expect_err("no key").to_string();
    let nothing = Config::load_file(&directory.join("no.toml")).expect_err("no config").to_string();
    let latin = Config::load_file(&directory.join("latin.toml")).expect_err("no UTF-8").to_string();
    std::fs::remove_dir_all(&directory).expect("gone");

    let directory = directory.display();
    let mut key = [0; 16];
    key[15] = 1;
    let expected = Auth::Mac(SharedKeyAuth {
        spi: 300,
        shared_key: Key::new(key),
        replay_protection: ReplayProtection::Sequence,
        differs_per_home_agent: None,
    });
    assert_eq!(auth, expected);
    assert_eq!(
        short,
        format!(
            "{name}:8:32: `auth.key_file`: the key has 4 digits, expected 32 hexadecimal digits (16 octets)"
        )
    );
    assert_eq!(
        absent,
        format!(
            "{name}:8:32: `auth.key_file`: cannot read {directory}/no.key: No such file or directory \
             (os error 2), expected a file with 32 hexadecimal digits (16 octets)"
        )
    );
    assert_eq!(
        nothing,
        format!(
            "{directory}/no.toml: cannot read the config, expected a readable TOML file: \
             No such file or directory (os error 2)"
        )
    );
    assert_eq!(latin, format!("{directory}/latin.toml:2:12: no UTF-8 here, expected TOML in UTF-8"));
}
