//! Roadside units as access routers: a mobile router whose uplink is IPv6 over GeoNetworking drives past two
//! units. The tests simulate the kernel, which receives Router Advertisements, configures addresses, and
//! stores all routers.

mod common;

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{Address, Interface, LinkMessage, Rng, Time};
use carnet_geonet::Mib;
use carnet_geonet::ipv6_adaptation::{Ipv6Config, addresses};
use carnet_station::io::{GeonetOutput, GeonetRequest, GeonetTransport, Input, NemoOutput, Output, Position};
use carnet_station::{GeonetSettings, PersistentState, Station, StationConfig};
use carnet_wire::geonet::{GnAddress, StationType};
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wire::{icmpv6, nd};
use common::world::{NetworkBehaviour, station_at_time_zero};
use common::{WALL_TIME, router_config};

const RADIO_RANGE: f64 = 250.0;
/// Difference of longitude over one metre at the latitude of the test, in 0.1 microdegree.
const UNITS_PER_METRE: f64 = 136.4;
const BUS_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xb];

fn mac_of_roadside_unit(number: usize) -> [u8; 6] {
    [2, 0, 0, 0, 1, number as u8]
}

fn geonet_settings(mac: [u8; 6], station_type: StationType) -> GeonetSettings {
    GeonetSettings {
        router_parameters: Mib { max_communication_range: RADIO_RANGE, ..Mib::default() },
        ipv6_config: Some(Ipv6Config { hop_limit: Some(1), ..common::geonet_ipv6_config() }),
        ..common::geonet_settings(GnAddress::new(false, station_type, mac))
    }
}

/// A bus, two roadside units at 0 and 300 m along its street, and the radio between them.
struct StreetNetwork {
    bus_place: f64,
    speed: f64,
    /// Interface of the bus, with the addresses and routers that its kernel knows.
    interface: Interface,
    /// Number of Router Solicitations that each unit has received.
    solicitation_counts: [u32; 2],
}

/// World with the station of the bus ([`BUS_STATION`]) first, then the roadside units.
type RoadsideWorld = common::world::TestNetwork<StreetNetwork>;

const BUS_STATION: usize = 0;

impl NetworkBehaviour for StreetNetwork {
    fn handle_output(road: &mut RoadsideWorld, from: usize, output: Output) {
        match (from.checked_sub(1), output) {
            (None, Output::Geonet(GeonetOutput::Frame(frame))) => {
                for unit in [0, 1] {
                    if road.network_behaviour.distance_to_unit(unit) <= RADIO_RANGE {
                        road.send_now(1 + unit, Input::Frame(frame.clone()));
                    }
                }
            }
            (None, Output::Geonet(GeonetOutput::Ipv6 { delivered, .. })) => {
                handle_advertisement(road, &delivered.payload)
            }
            (None, Output::Nemo(NemoOutput::Icmpv6(message))) => {
                answer_neighbour_solicitation(road, &message)
            }
            (Some(unit), Output::Geonet(GeonetOutput::Frame(frame)))
                if road.network_behaviour.distance_to_unit(unit) <= RADIO_RANGE =>
            {
                road.send_now(BUS_STATION, Input::Frame(frame));
            }
            (Some(unit), Output::Geonet(GeonetOutput::Ipv6 { delivered, .. })) => {
                let header = Header::parse(&delivered.payload).expect("a header");
                let solicitation = &delivered.payload[HEADER_LEN..];
                if header.next_header == protocol::ICMPV6
                    && nd::RouterSolicitation::parse(solicitation).is_ok()
                {
                    nd::check_header(&header, solicitation).expect("as RFC 4861 wants it");
                    road.network_behaviour.solicitation_counts[unit] += 1;
                    send_advertisement(road, unit);
                }
            }
            _ => {}
        }
    }
}

impl StreetNetwork {
    fn distance_to_unit(&self, unit: usize) -> f64 {
        (self.bus_place - 300.0 * unit as f64).abs()
    }
}

fn new_road() -> RoadsideWorld {
    road_with_uplinks(&["gn0"])
}

fn road_with_uplinks(uplinks: &[&str]) -> RoadsideWorld {
    let mut config = router_config(&["2001:db8:a::/64"]);
    if let Some(router) = &mut config.mobile_router {
        router.router.uplinks.truncate(uplinks.len());
        for (uplink, name) in router.router.uplinks.iter_mut().zip(uplinks) {
            uplink.interface = (*name).into();
        }
    }
    config.geonet = Some(geonet_settings(BUS_MAC, StationType::Bus));
    let unit = |number| {
        let geonet = Some(geonet_settings(mac_of_roadside_unit(number), StationType::RoadSideUnit));
        station_at_time_zero(StationConfig { geonet, ..StationConfig::default() }, number as u64)
    };
    let interface = Interface {
        name: "gn0".into(),
        running: true,
        mtu: 1398,
        link_address: Some(BUS_MAC),
        addresses: vec![autoconfigured_address(addresses::link_local_address(BUS_MAC))],
        ..Interface::default()
    };
    let street = StreetNetwork {
        bus_place: -400.0,
        speed: 0.0,
        interface: interface.clone(),
        solicitation_counts: [0; 2],
    };
    let mut road = RoadsideWorld::with_stations([station_at_time_zero(config, 9), unit(0), unit(1)], street);
    road.pass_recorded_input(BUS_STATION, Input::Interface(interface));
    road
}

/// Answers a Neighbor Solicitation of the bus for a roadside unit in radio range. (In reality the kernel
/// would send the solicitation over GeoNetworking.)
fn answer_neighbour_solicitation(road: &mut RoadsideWorld, message: &LinkMessage) {
    let Ok(asked) = nd::NeighborSolicitation::parse(&message.message) else { return };
    for number in [0, 1] {
        if asked.target == addresses::link_local_address(mac_of_roadside_unit(number))
            && road.network_behaviour.distance_to_unit(number) <= RADIO_RANGE
        {
            let answer = nd::NeighborAdvertisement {
                target: asked.target,
                router: true,
                solicited: true,
                override_: true,
                target_link_address: None,
            };
            send_from_unit(road, number, message.source, &answer.emit());
        }
    }
}

/// Sends an ICMPv6 message of the kernel of a unit.
fn send_from_unit(road: &mut RoadsideWorld, number: usize, destination: Ipv6Addr, message: &[u8]) {
    let source = addresses::link_local_address(mac_of_roadside_unit(number));
    let request = GeonetRequest {
        transport: GeonetTransport::SingleHop,
        next_header: 3,
        store_carry_forward: false,
        traffic_class: 0,
        lifetime_ms: None,
        hop_limit: None,
        payload: icmpv6::emit_packet(source, destination, nd::HOP_LIMIT, message.to_vec()),
    };
    road.send_now(1 + number, Input::Geonet(request));
}

fn send_advertisement(road: &mut RoadsideWorld, number: usize) {
    let options = [nd::NdOption::PrefixInformation(nd::PrefixInformation {
        prefix: prefix(number),
        prefix_length: 64,
        on_link: true,
        autonomous: true,
        router_address: false,
        valid_lifetime: 300,
        preferred_lifetime: 300,
    })];
    let message = nd::emit_router_advertisement(&nd::RouterAdvertisementRepr {
        router_lifetime: 600,
        options: &options,
        ..nd::RouterAdvertisementRepr::default()
    });
    send_from_unit(road, number, nd::ALL_NODES, &message);
}

/// Simulates the kernel of the bus for an advertisement of a router or neighbour.
fn handle_advertisement(road: &mut RoadsideWorld, packet: &[u8]) {
    let header = Header::parse(packet).expect("a header");
    let message = packet[HEADER_LEN..].to_vec();
    let advertisement = nd::RouterAdvertisement::parse(&message);
    if advertisement.is_err() && nd::NeighborAdvertisement::parse(&message).is_err() {
        return;
    }
    let prefix = advertisement.iter().flat_map(|it| it.options()).find_map(|option| match option {
        nd::NdOption::PrefixInformation(it) => Some(it.prefix),
        _ => None,
    });
    let known = &mut road.network_behaviour.interface;
    if advertisement.is_ok_and(|it| it.router_lifetime > 0)
        && known.routers.iter().all(|router| router.gateway != header.source)
    {
        known.routers.push(header.source.into());
        known.addresses.extend(prefix.map(|prefix| autoconfigured_address(host_address_in(prefix))));
    }
    let updated = known.clone();
    let (interface, source, destination) = ("gn0".into(), header.source, header.destination);
    let peer = addresses::mac_of_address(source);
    let message = LinkMessage { interface, source, destination, hop_limit: 255, peer, message };
    road.send_now(BUS_STATION, Input::Icmpv6(message));
    road.send_now(BUS_STATION, Input::Interface(updated));
}

/// Returns the position of a station, with its speed towards the east.
fn position_input(now: Time, metres: f64, speed: f64) -> Input {
    Input::Position(Position {
        timestamp: 1_000_000 + (now.as_nanos() / 1_000_000) as u32,
        latitude: 488_375_000,
        longitude: 21_008_000 + (metres * UNITS_PER_METRE) as i32,
        accurate: true,
        speed: (speed * 100.0) as i16,
        heading: 900,
    })
}

fn drive_for(road: &mut RoadsideWorld, seconds: f64) {
    for _ in 0..(seconds * 100.0) as u32 {
        road.run_for(Duration::from_millis(10));
        road.network_behaviour.bus_place += road.network_behaviour.speed * 0.01;
        if (road.now.as_nanos() / 1_000_000).is_multiple_of(200) {
            let StreetNetwork { bus_place: place, speed, .. } = road.network_behaviour;
            road.pass_recorded_input(BUS_STATION, position_input(road.now, place, speed));
            for unit in [0, 1] {
                road.pass_recorded_input(1 + unit, position_input(road.now, 300.0 * unit as f64, 0.0));
            }
        }
    }
}

fn care_of_address(road: &RoadsideWorld) -> Option<IpAddr> {
    road.stations[BUS_STATION].nemo().uplink_status(road.now)[0].care_of_address
}

fn autoconfigured_address(address: Ipv6Addr) -> Address {
    Address {
        address,
        prefix_length: 64,
        tentative: false,
        duplicate: false,
        deprecated: false,
        temporary: false,
        permanent: false,
    }
}

fn prefix(number: usize) -> Ipv6Addr {
    format!("2001:db8:e{number}::").parse().expect("an address")
}

fn care_of_address_at(number: usize) -> Ipv6Addr {
    host_address_in(prefix(number))
}

fn host_address_in(prefix: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(prefix) | u128::from(addresses::interface_identifier(BUS_MAC)))
}

#[test]
fn vehicle_changes_to_next_roadside_unit_before_losing_last() {
    let mut road = new_road();
    road.network_behaviour.speed = 30.0;
    let (mut changes, mut before) = (Vec::new(), None);
    while road.network_behaviour.bus_place < 700.0 {
        drive_for(&mut road, 0.1);
        let now = care_of_address(&road);
        if now != before {
            changes.push((road.network_behaviour.bus_place, now));
            before = now;
        }
    }
    let [(first, one), (second, two), (third, none)] = changes[..] else { panic!("{changes:?}") };
    assert_eq!(
        (one, two, none),
        (Some(care_of_address_at(0).into()), Some(care_of_address_at(1).into()), None)
    );
    // A roadside unit sends a beacon every 3 s or a little later. Until then the bus drives up to a hundred
    // metres into the range of the unit.
    assert!((-250.0..-120.0).contains(&first), "{first}");
    // The bus changes to the second unit where this unit is nearer by a third, while the first unit is still
    // in range.
    assert!((175.0..200.0).contains(&second), "{second}");
    // The bus uses its roadside unit until it receives no more frames of the unit.
    assert!((530.0..700.0).contains(&third), "{third}");
    assert_eq!(
        road.network_behaviour.solicitation_counts,
        [2, 1],
        "each was asked when it came into range; the first heard both questions"
    );
    assert_eq!(road.stations[BUS_STATION].nemo().uplink_status(road.now)[0].state, "down: no default router");
}

/// A vehicle with another uplink stops using a roadside unit before it leaves the unit's radio range. It
/// starts to use a unit only if it will stay in the unit's range for a while.
#[test]
fn other_uplink_takes_over_before_leaving_radio_range() {
    let mut road = road_with_uplinks(&["gn0", "w0"]);
    road.pass_recorded_input(
        BUS_STATION,
        Input::Interface(common::interface("w0", common::FIRST_CARE_OF_ADDRESS, true)),
    );
    road.network_behaviour.speed = 30.0;
    let mut there = Vec::new();
    while road.network_behaviour.bus_place < 700.0 {
        drive_for(&mut road, 0.1);
        if care_of_address(&road).is_some() {
            there.push(road.network_behaviour.bus_place);
        }
    }
    let (first, last) = (there.first().expect("one"), there.last().expect("one"));
    assert!((-225.0..-100.0).contains(first), "{first}");
    // The radio range of the unit ends at 550 m. The bus stops using the unit shortly before.
    assert!((490.0..520.0).contains(last), "{last}");
}

#[test]
fn vehicle_between_two_roadside_units_keeps_one() {
    let mut road = new_road();
    (road.network_behaviour.bus_place, road.network_behaviour.speed) = (140.0, 0.0);
    drive_for(&mut road, 8.0);
    let chosen = care_of_address(&road);
    assert!(chosen.is_some());
    // The bus moves to and fro around the point between both units.
    for place in [155.0, 140.0, 160.0, 145.0] {
        road.network_behaviour.bus_place = place;
        drive_for(&mut road, 5.0);
        assert_eq!(care_of_address(&road), chosen, "{place}");
    }
}

/// Returns a frame with a Router Advertisement of an unknown station 200 m away, which `transport` carries.
fn forged_advertisement(road: &RoadsideWorld, number: u8, transport: GeonetTransport) -> Input {
    let mac = [2, 0, 0, 0, 2, number];
    let geonet = Some(geonet_settings(mac, StationType::RoadSideUnit));
    let config = StationConfig { geonet, ..StationConfig::default() };
    let mut station =
        Station::new(config, PersistentState::default(), Rng::new(u64::from(number)), road.now, WALL_TIME);
    let options = [nd::NdOption::PrefixInformation(nd::PrefixInformation {
        prefix: forged_prefix(number),
        prefix_length: 64,
        on_link: true,
        autonomous: true,
        router_address: false,
        valid_lifetime: u32::MAX,
        preferred_lifetime: u32::MAX,
    })];
    let message = nd::emit_router_advertisement(&nd::RouterAdvertisementRepr {
        router_lifetime: u16::MAX,
        options: &options,
        ..nd::RouterAdvertisementRepr::default()
    });
    let payload =
        icmpv6::emit_packet(addresses::link_local_address(mac), nd::ALL_NODES, nd::HOP_LIMIT, message);
    let request = GeonetRequest {
        transport,
        next_header: 3,
        store_carry_forward: false,
        traffic_class: 0,
        lifetime_ms: None,
        hop_limit: None,
        payload,
    };
    for input in
        [position_input(road.now, road.network_behaviour.bus_place + 200.0, 0.0), Input::Geonet(request)]
    {
        while station.poll_output().is_some() {}
        station.handle_input(road.now, WALL_TIME, input).expect("accepted");
    }
    let mut frames = std::iter::from_fn(|| station.poll_output()).filter_map(|output| match output {
        Output::Geonet(GeonetOutput::Frame(frame)) => Some(Input::Frame(frame)),
        _ => None,
    });
    frames.next().expect("a frame")
}

fn forged_prefix(number: u8) -> Ipv6Addr {
    format!("2001:db8:f{number:x}::").parse().expect("an address")
}

#[test]
fn forged_routers_do_not_replace_router_in_use() {
    let mut road = new_road();
    road.network_behaviour.bus_place = -500.0;
    drive_for(&mut road, 1.0);
    let flood = |road: &mut RoadsideWorld, numbers: std::ops::Range<u8>| {
        for number in numbers {
            let frame = forged_advertisement(road, number, GeonetTransport::SingleHop);
            road.pass_recorded_input(BUS_STATION, frame);
            drive_for(road, 0.01);
        }
        drive_for(road, 1.0);
    };
    // The attacker advertises more usable routers than the station's table of routers can hold.
    flood(&mut road, 0..80);
    assert!(care_of_address(&road).is_some());
    // The real unit advertises last, and is the nearest.
    road.network_behaviour.bus_place = 20.0;
    drive_for(&mut road, 5.0);
    assert_eq!(care_of_address(&road), Some(care_of_address_at(0).into()));
    flood(&mut road, 80..200);
    assert_eq!(care_of_address(&road), Some(care_of_address_at(0).into()));
    // After the flood, the table of routers still has room for the next real router.
    road.network_behaviour.speed = 30.0;
    drive_for(&mut road, 10.0);
    assert_eq!(
        care_of_address(&road),
        Some(care_of_address_at(1).into()),
        "{}",
        road.network_behaviour.bus_place
    );
}

#[test]
fn advertisement_of_distant_station_is_ignored() {
    let transports = [
        (GeonetTransport::SingleHop, Some(host_address_in(forged_prefix(7)).into())),
        (GeonetTransport::TopologicallyScoped, None),
    ];
    for (transport, expected) in transports {
        let mut road = new_road();
        road.network_behaviour.bus_place = -2000.0;
        drive_for(&mut road, 1.0);
        let frame = forged_advertisement(&road, 7, transport);
        road.pass_recorded_input(BUS_STATION, frame);
        assert_eq!(road.network_behaviour.interface.routers.len(), 1, "the kernel heard it");
        drive_for(&mut road, 0.5);
        assert_eq!(care_of_address(&road), expected);
    }
}
