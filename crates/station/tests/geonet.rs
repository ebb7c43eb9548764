//! Stations in a line, joined by a radio of limited range in virtual time. GeoNetworking packets and the echo
//! of `carnet gnping` pass through whole stations.

mod common;

use std::time::Duration;

use carnet_base::Time;
use carnet_cits::geonetworking::{echo, travelled_hops};
use carnet_geonet::BROADCAST;
use carnet_station::StationConfig;
use carnet_station::io::{
    Area, AreaShape, Command, Delivered, Frame, GeonetOutput, GeonetRequest, GeonetTransport, GnPacketType,
    Input, Output, Position,
};
use carnet_wire::geonet::{
    CommonNextHeader, ExtendedHeader, GnAddress, Lifetime, LongPositionVector, Packet, StationType, Timestamp,
};

use common::WALL_TIME;
use common::world::{NetworkBehaviour, station_at_time_zero};

/// Distance of about 800 m in tenths of a microdegree: each station receives only its direct neighbours.
const STATION_DISTANCE: i32 = 72_000;

/// A radio that reaches the direct neighbours, and the packets that it delivered.
#[derive(Default)]
struct NeighbourRadio {
    delivered_payloads: Vec<(usize, Delivered)>,
}

type RadioWorld = common::world::TestNetwork<NeighbourRadio>;

impl NetworkBehaviour for NeighbourRadio {
    fn handle_output(air: &mut RadioWorld, from: usize, output: Output) {
        match output {
            Output::Geonet(GeonetOutput::Frame(frame)) => {
                assert_eq!(frame.source, mac_of_station(from));
                for to in (0..air.stations.len()).filter(|to| to.abs_diff(from) == 1) {
                    if frame.destination == mac_of_station(to) || frame.destination == BROADCAST {
                        air.send_now(to, Input::Frame(frame.clone()));
                    }
                }
            }
            Output::Geonet(GeonetOutput::Delivered(delivered)) => {
                air.network_behaviour.delivered_payloads.push((from, delivered))
            }
            _ => {}
        }
    }
}

fn mac_of_station(index: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, (index + 1) as u8]
}

fn gn_address_of_station(index: usize) -> u64 {
    GnAddress::new(false, StationType::PassengerCar, mac_of_station(index)).0
}

impl RadioWorld {
    /// Returns a row of `count` stations, one every 800 m northwards.
    fn new(count: usize) -> RadioWorld {
        let station = |index| {
            let settings = common::geonet_settings(GnAddress(gn_address_of_station(index)));
            station_at_time_zero(
                StationConfig { geonet: Some(settings), ..StationConfig::default() },
                index as u64,
            )
        };
        let mut air =
            RadioWorld::with_stations((0..count).map(station).collect::<Vec<_>>(), NeighbourRadio::default());
        air.now = Time::from_secs(10);
        for round in 0..10 {
            for index in 0..count {
                let position = Position {
                    timestamp: 1_000_000 + round * 1000,
                    latitude: 488_375_000 + STATION_DISTANCE * i32::try_from(index).expect("few stations"),
                    longitude: 21_008_000,
                    accurate: true,
                    speed: 0,
                    heading: 0,
                };
                air.pass_recorded_input(index, Input::Position(position));
            }
            air.run_for(Duration::from_secs(1));
        }
        air
    }

    fn request_payload(
        &mut self,
        index: usize,
        transport: GeonetTransport,
        next_header: u8,
        payload: Vec<u8>,
    ) {
        self.network_behaviour.delivered_payloads.clear();
        let request = GeonetRequest {
            transport,
            next_header,
            store_carry_forward: false,
            traffic_class: 0,
            lifetime_ms: None,
            hop_limit: None,
            payload,
        };
        self.pass_recorded_input(index, Input::Geonet(request));
        self.run_for(Duration::from_secs(3));
    }
}

#[test]
fn gnping_over_three_hops_reports_three_hops() {
    let mut air = RadioWorld::new(4);
    let request = echo::EchoMessage { is_reply: false, hop_count: 0, identifier: 7, sequence: 1 };
    air.request_payload(
        0,
        GeonetTransport::GeoUnicast(gn_address_of_station(3)),
        echo::BTP_B_NEXT_HEADER,
        request.emit(),
    );
    let [(0, reply)] = &air.network_behaviour.delivered_payloads[..] else {
        panic!("{:?}", air.network_behaviour.delivered_payloads)
    };
    assert_eq!(
        (reply.source, reply.kind, travelled_hops(reply)),
        (gn_address_of_station(3), GnPacketType::Guc, 3)
    );
    let echo = echo::EchoMessage::parse(&reply.payload).expect("an echo");
    assert_eq!(echo, echo::EchoMessage { is_reply: true, hop_count: 3, ..request });
}

#[test]
fn broadcast_reaches_only_stations_in_area() {
    let mut air = RadioWorld::new(5);
    let area = Area {
        shape: AreaShape::Circle,
        latitude: 488_375_000 + STATION_DISTANCE * 7 / 2,
        longitude: 21_008_000,
        distance_a: 600,
        distance_b: 0,
        angle: 0,
    };
    air.request_payload(0, GeonetTransport::GeoBroadcast(area), 0, vec![1, 2, 3]);
    let mut reached: Vec<usize> =
        air.network_behaviour.delivered_payloads.iter().map(|(index, _)| *index).collect();
    reached.sort_unstable();
    assert_eq!(reached, [3, 4]);
    assert!(
        air.network_behaviour
            .delivered_payloads
            .iter()
            .all(|(_, d)| d.payload == [1, 2, 3] && d.source == gn_address_of_station(0))
    );
}

/// If the link returns a frame as unacknowledged, the router removes the neighbour and broadcasts the packet.
#[test]
fn unacknowledged_frame_takes_another_next_hop() {
    let mut air = RadioWorld::new(2);
    let request = GeonetRequest {
        transport: GeonetTransport::GeoUnicast(gn_address_of_station(1)),
        next_header: 0,
        store_carry_forward: false,
        traffic_class: 0,
        lifetime_ms: None,
        hop_limit: None,
        payload: vec![1],
    };
    air.pass_input(0, Input::Geonet(request));
    let Some(Output::Geonet(GeonetOutput::Frame(sent))) = air.stations[0].poll_output() else {
        panic!("a frame")
    };
    assert_eq!(sent.destination, mac_of_station(1));
    air.network_behaviour.delivered_payloads.clear();
    air.pass_recorded_input(0, Input::Unacknowledged(sent));
    let counters = air.stations[0].geonet().expect("GeoNetworking").counters();
    assert_eq!((counters.unacknowledged_frames, counters.rerouted_frames), (1, 1));
    assert!(
        matches!(&air.network_behaviour.delivered_payloads[..], [(1, delivered)] if delivered.payload == [1]),
        "{:?}",
        air.network_behaviour.delivered_payloads
    );
}

/// The upper tester of the conformance tests requests this reset before each test.
#[test]
fn reset_clears_geonetworking_state() {
    let mut air = RadioWorld::new(2);
    let known = |air: &RadioWorld| air.stations[0].geonet().expect("GeoNetworking").location_table().len();
    assert_eq!(known(&air), 1);
    // Another station uses the address of this station, so this station changes its address.
    let pv = LongPositionVector {
        address: GnAddress(gn_address_of_station(0)),
        timestamp: Timestamp(7),
        ..LongPositionVector::default()
    };
    let extended = ExtendedHeader::Beacon { source: pv };
    let lifetime = Lifetime::from_duration(Duration::from_secs(60));
    let packet = Packet::new(extended, CommonNextHeader::Any, lifetime, 1, &[]).emit();
    let beacon = Frame { source: mac_of_station(7), profile: None, destination: BROADCAST, packet };
    air.pass_recorded_input(0, Input::Frame(beacon));
    assert_ne!(air.stations[0].geonet().expect("GeoNetworking").address().0, gn_address_of_station(0));
    air.pass_recorded_input(0, Input::Command(Command::ResetGeonet));
    assert_eq!(known(&air), 0);
    assert_eq!(air.stations[0].geonet().expect("GeoNetworking").address().0, gn_address_of_station(0));
    air.run_for(Duration::from_secs(5));
    assert_eq!(known(&air), 1, "beacons are heard and sent again");
    let refusal = station_at_time_zero(StationConfig::default(), 1).handle_input(
        Time::ZERO,
        WALL_TIME,
        Input::Command(Command::ResetGeonet),
    );
    assert_eq!(refusal, Err("this station does no GeoNetworking".into()));
}

#[test]
fn station_without_role_refuses_its_commands() {
    let mut station = station_at_time_zero(StationConfig::default(), 1);
    let request = GeonetRequest {
        transport: GeonetTransport::SingleHop,
        next_header: 0,
        store_carry_forward: false,
        traffic_class: 0,
        lifetime_ms: None,
        hop_limit: None,
        payload: vec![],
    };
    let refusal = station.handle_input(Time::ZERO, WALL_TIME, Input::Geonet(request));
    assert_eq!(refusal, Err("this station does no GeoNetworking".into()));
}
