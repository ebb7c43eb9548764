//! Configs and addresses of a home agent and of a mobile router with two uplinks, and a passenger car that
//! sends CAMs.
#![allow(dead_code, reason = "each test file uses some of it")]

pub mod world;

use std::time::Duration;

use carnet_base::{Interface, WallTime};
use carnet_cits::facilities::FacilitiesSettings;
use carnet_geonet::Mib;
use carnet_geonet::ipv6_adaptation::{Ipv6Config, in_order};
use carnet_its::cdd::{StationType, VehicleLengthValue, VehicleRole, VehicleWidth};
use carnet_mobility::agents::HomeAgentSelectionConfig;
use carnet_mobility::home_agent::{AuthorizedNode, HomeAgentConfig, MultipleCareOfAddresses, OtherAgents};
use carnet_mobility::mobile_router::{MobileRouterConfig, RegistrationMode, UplinkConfig};
use carnet_mobility::{Authentication, ReplayProtection, SecurityAssociation};
use carnet_station::{GeonetSettings, MobileRouterSettings, OwnTraffic, StationConfig};
pub use carnet_virtual::address;
use carnet_virtual::configured_addresses;
use carnet_wire::geonet::GnAddress;
use carnet_wire::ipv6::HEADER_LEN;

pub const WALL_TIME: WallTime = WallTime::from_unix_nanos(1_800_000_000_000_000_000);
pub const AGENT_ADDRESS: &str = "2001:db8:1::1";
pub const HOME_ADDRESS: &str = "2001:db8:1::1234";
pub const HOST_ADDRESS: &str = "2001:db8:a::5";
pub const CORRESPONDENT_ADDRESS: &str = "2001:db8:99::1";
pub const FIRST_CARE_OF_ADDRESS: &str = "2001:db8:f1::10";
pub const SECOND_CARE_OF_ADDRESS: &str = "2001:db8:f2::10";

/// Returns a GeoNetworking router with default values, without IPv6 and facilities. Without an address, the
/// router waits for one.
pub fn geonet_settings(address: impl Into<Option<GnAddress>>) -> GeonetSettings {
    GeonetSettings {
        router_parameters: Mib::default(),
        address: address.into(),
        ipv6_config: None,
        multicast_config: None,
        facilities_settings: None,
        dcc_config: None,
    }
}

/// Returns IPv6 over GeoNetworking on interface `gn0`, with the default hop limit and without reordering.
pub fn geonet_ipv6_config() -> Ipv6Config {
    Ipv6Config {
        interface: "gn0".into(),
        dynamic_interface: None,
        areas: Vec::new(),
        learnt_links: 0,
        hop_limit: None,
        mtu: 1398,
        reorder_wait: Duration::ZERO,
        reorder_rule: in_order::ReorderRule::Shorter,
        reorder_hold: Default::default(),
        congestion_mark: None,
        fragments_large_packets: false,
    }
}

pub fn facilities_of_passenger_car() -> FacilitiesSettings {
    FacilitiesSettings {
        parameters: Default::default(),
        station_id: None,
        station_type: StationType::PASSENGER_CAR,
        sends_cams: true,
        vehicle_length: VehicleLengthValue(43),
        vehicle_width: VehicleWidth(18),
        vehicle_role: VehicleRole::Default,
        announced_services: Vec::new(),
        advertiser_name: None,
    }
}

/// Returns an IPv6 packet of 60 octets with an upper-layer protocol that no receiver knows.
pub fn data_packet_between(source: &str, destination: &str) -> Vec<u8> {
    carnet_virtual::filled_packet(address(source), address(destination), HEADER_LEN + 60)
}

fn authentication() -> Authentication {
    Authentication::SharedKey(SecurityAssociation {
        spi: 300,
        key: [7; 16].into(),
        replay: ReplayProtection::Sequence,
    })
}

/// Gives a config a key for each home agent, derived from the key that all home agents share.
pub fn per_agent(mut config: StationConfig) -> StationConfig {
    let of_each = |authentication: &mut Authentication| {
        if let Authentication::SharedKey(common) = authentication {
            *authentication = Authentication::PerAgent(common.clone());
        }
    };
    if let Some(agent) = &mut config.home_agent {
        agent.nodes.iter_mut().for_each(|node| of_each(&mut node.authentication));
    }
    if let Some(router) = &mut config.mobile_router {
        of_each(&mut router.router.authentication);
    }
    config
}

pub fn agent_config(prefixes: &[&str]) -> StationConfig {
    StationConfig {
        home_agent: Some(HomeAgentConfig {
            other_agents: OtherAgents::default(),
            address: address(AGENT_ADDRESS),
            home_prefix: "2001:db8:1::/64".parse().expect("a prefix"),
            home_network: None,
            home_link: None,
            ndp_proxy: None,
            nat: Default::default(),
            max_lifetime: Duration::from_secs(600),
            force_udp: false,
            ipv4_address: None,
            multiple_care_of_addresses: MultipleCareOfAddresses::Bulk,
            nodes: vec![AuthorizedNode {
                nat: true,
                care_of_test: false,
                home_address: address(HOME_ADDRESS),
                prefixes: prefixes.iter().map(|p| p.parse().expect("a prefix")).collect(),
                authentication: authentication(),
            }],
        }),
        ..StationConfig::default()
    }
}

pub fn router_config(prefixes: &[&str]) -> StationConfig {
    let uplink = |interface: &str, priority| UplinkConfig {
        interface: interface.into(),
        priority,
        ..UplinkConfig::default()
    };
    StationConfig {
        mobile_router: Some(MobileRouterSettings {
            router: MobileRouterConfig {
                home_address: address(HOME_ADDRESS),
                home_prefix: "2001:db8:1::/64".parse().expect("a prefix"),
                home_agent: address(AGENT_ADDRESS),
                home_agent_ipv4: None,
                probes_portals: false,
                force_udp: false,
                liveness: None,
                policies: Vec::new(),
                ipv4_prefixes: Vec::new(),
                prefixes: prefixes.iter().map(|p| p.parse().expect("a prefix")).collect(),
                mode: RegistrationMode::Explicit,
                lifetime: Duration::from_secs(60),
                authentication: authentication(),
                uplinks: vec![uplink("w0", 10), uplink("w1", 20)],
            },
            lan: vec!["i0".into()],
            agents: HomeAgentSelectionConfig::default(),
            breakouts: Vec::new(),
            breaks_out_when_away: false,
            own_traffic: OwnTraffic::Uplinks,
            nesting_enabled: true,
            nested_routers: Vec::new(),
            direct_networks: Vec::new(),
            requires_direct_encryption: false,
        }),
        ..StationConfig::default()
    }
}

pub fn interface(name: &str, care_of_address: &str, running: bool) -> Interface {
    let mut interface = carnet_virtual::running_interface(name, [2, 0, 0, 0, 0, 1], Vec::new());
    interface.running = running;
    if running {
        interface.addresses = configured_addresses(&["fe80::1", care_of_address]);
        interface.routers = vec![address("fe80::ffff").into()];
    }
    interface
}
