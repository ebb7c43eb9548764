//! Stations in a line, joined by a radio of limited range in virtual time. GeoNetworking packets and the echo
//! of `carnet gnping` pass through whole stations.

use std::collections::VecDeque;
use std::time::Duration;

use carnet_base::{Rng, Time, WallTime};
use carnet_geonet::{BROADCAST, Mib};
use carnet_station::geonet::{echo, hops};
use carnet_station::io::{
    Area, AreaShape, Command, Delivered, DeliveredKind, Frame, GeonetRequest, GeonetTransport, Input, Output,
    Position,
};
use carnet_station::{GeonetSettings, PersistentState, Station, StationConfig};
use carnet_wire::geonet::{
    CommonNextHeader, ExtendedHeader, GnAddress, Lifetime, LongPositionVector, Packet, StationType, Timestamp,
};

const WALL: WallTime = WallTime::from_unix_nanos(1_800_000_000_000_000_000);
/// Distance of about 800 m in tenths of a microdegree: each station receives only its direct neighbours.
const STEP: i32 = 72_000;

/// A row of stations, one every 800 m northwards.
struct Air {
    now: Time,
    stations: Vec<Station>,
    delivered: Vec<(usize, Delivered)>,
}

fn mac(index: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, u8::try_from(index + 1).expect("few stations")]
}

fn address(index: usize) -> u64 {
    GnAddress::new(false, StationType::PassengerCar, mac(index)).0
}

impl Air {
    fn new(count: usize) -> Air {
        let stations = (0..count)
            .map(|index| {
                let settings = GeonetSettings {
                    mib: Mib::default(),
                    address: Some(GnAddress(address(index))),
                    ipv6: None,
                    multicast: None,
                    facilities: None,
                    dcc: None,
                };
                let config = StationConfig { geonet: Some(settings), ..StationConfig::default() };
                Station::new(config, PersistentState::default(), Rng::new(index as u64), Time::ZERO, WALL)
            })
            .collect();
        let mut air = Air { now: Time::from_secs(10), stations, delivered: Vec::new() };
        for round in 0..10 {
            for index in 0..count {
                let position = Position {
                    timestamp: 1_000_000 + round * 1000,
                    latitude: 488_375_000 + STEP * i32::try_from(index).expect("few stations"),
                    longitude: 21_008_000,
                    accurate: true,
                    speed: 0,
                    heading: 0,
                };
                air.tell(index, Input::Position(position));
            }
            air.sleep(Duration::from_secs(1));
        }
        air
    }

    fn tell(&mut self, index: usize, input: Input) {
        // The input is converted to the recording's format and back, to test that the format is complete.
        let line = serde_json::to_string(&input).expect("serialises");
        let input = serde_json::from_str(&line).expect("deserialises");
        self.stations[index].handle_input(self.now, WALL, input).expect("accepted");
        self.carry(index);
    }

    /// Takes the outputs of a station, and passes its frames to every station in range, one after the other.
    fn carry(&mut self, index: usize) {
        let mut flying = self.drain(index);
        while let Some((from, frame)) = flying.pop_front() {
            assert_eq!(frame.source, mac(from));
            for to in [from.wrapping_sub(1), from + 1] {
                if to < self.stations.len()
                    && (frame.destination == mac(to) || frame.destination == BROADCAST)
                {
                    let input = Input::Frame(frame.clone());
                    self.stations[to].handle_input(self.now, WALL, input).expect("accepted");
                    flying.extend(self.drain(to));
                }
            }
        }
    }

    fn drain(&mut self, index: usize) -> VecDeque<(usize, Frame)> {
        let mut frames = VecDeque::new();
        while let Some(output) = self.stations[index].poll_output() {
            match output {
                Output::Frame(frame) => frames.push_back((index, frame)),
                Output::Delivered(delivered) => self.delivered.push((index, delivered)),
                _ => {}
            }
        }
        frames
    }

    fn sleep(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some((next, index)) = self
            .stations
            .iter()
            .enumerate()
            .filter_map(|(index, station)| Some((station.poll_timeout()?, index)))
            .min()
            .filter(|(next, _)| *next <= end)
        {
            self.now = next.max(self.now);
            self.tell(index, Input::Timeout);
        }
        self.now = end;
    }

    fn send(&mut self, index: usize, transport: GeonetTransport, next_header: u8, payload: Vec<u8>) {
        self.delivered.clear();
        let request = GeonetRequest {
            transport,
            next_header,
            store_carry_forward: false,
            traffic_class: 0,
            lifetime_ms: None,
            hop_limit: None,
            payload,
        };
        self.tell(index, Input::Geonet(request));
        self.sleep(Duration::from_secs(3));
    }
}

#[test]
fn an_echo_comes_back_over_three_hops_and_counts_them() {
    let mut air = Air::new(4);
    let request = echo::Echo { is_reply: false, hops: 0, identifier: 7, sequence: 1 };
    air.send(0, GeonetTransport::GeoUnicast(address(3)), echo::NEXT_HEADER, request.emit());
    let [(0, reply)] = &air.delivered[..] else { panic!("{:?}", air.delivered) };
    assert_eq!((reply.source, reply.kind, hops(reply)), (address(3), DeliveredKind::Guc, 3));
    let echo = echo::Echo::parse(&reply.payload).expect("an echo");
    assert_eq!(echo, echo::Echo { is_reply: true, hops: 3, ..request });
}

#[test]
fn an_area_is_reached_and_nobody_else() {
    let mut air = Air::new(5);
    let area = Area {
        shape: AreaShape::Circle,
        latitude: 488_375_000 + STEP * 7 / 2,
        longitude: 21_008_000,
        distance_a: 600,
        distance_b: 0,
        angle: 0,
    };
    air.send(0, GeonetTransport::GeoBroadcast(area), 0, vec![1, 2, 3]);
    let mut reached: Vec<usize> = air.delivered.iter().map(|(index, _)| *index).collect();
    reached.sort_unstable();
    assert_eq!(reached, [3, 4]);
    assert!(air.delivered.iter().all(|(_, d)| d.payload == [1, 2, 3] && d.source == address(0)));
}

/// If the link returns a frame, the router removes the neighbour and broadcasts the packet.
#[test]
fn a_frame_that_nobody_acknowledged_goes_another_way() {
    let mut air = Air::new(2);
    let request = GeonetRequest {
        transport: GeonetTransport::GeoUnicast(address(1)),
        next_header: 0,
        store_carry_forward: false,
        traffic_class: 0,
        lifetime_ms: None,
        hop_limit: None,
        payload: vec![1],
    };
    air.stations[0].handle_input(air.now, WALL, Input::Geonet(request)).expect("accepted");
    let (_, sent) = air.drain(0).pop_front().expect("a frame");
    assert_eq!(sent.destination, mac(1));
    air.delivered.clear();
    air.tell(0, Input::Unacknowledged(sent));
    let counters = air.stations[0].geonet().expect("GeoNetworking").counters();
    assert_eq!((counters.unacknowledged, counters.rerouted), (1, 1));
    assert!(
        matches!(&air.delivered[..], [(1, delivered)] if delivered.payload == [1]),
        "{:?}",
        air.delivered
    );
}

/// The upper tester of the conformance tests requests this reset before each test.
#[test]
fn geonetworking_begins_anew() {
    let mut air = Air::new(2);
    let known = |air: &Air| air.stations[0].geonet().expect("GeoNetworking").location_table().len();
    assert_eq!(known(&air), 1);
    // Another station uses this station's address, so this station changes its own.
    let pv = LongPositionVector {
        address: GnAddress(address(0)),
        timestamp: Timestamp(7),
        ..LongPositionVector::default()
    };
    let extended = ExtendedHeader::Beacon { source: pv };
    let lifetime = Lifetime::from_duration(Duration::from_secs(60));
    let packet = Packet::new(extended, CommonNextHeader::Any, lifetime, 1, &[]).emit();
    let beacon = Frame { source: mac(7), profile: None, destination: BROADCAST, packet };
    air.tell(0, Input::Frame(beacon));
    assert_ne!(air.stations[0].geonet().expect("GeoNetworking").address().0, address(0));
    air.drain(0);
    air.tell(0, Input::Command(Command::ResetGeonet));
    assert_eq!(known(&air), 0);
    assert_eq!(air.stations[0].geonet().expect("GeoNetworking").address().0, address(0));
    air.sleep(Duration::from_secs(5));
    assert_eq!(known(&air), 1, "beacons are heard and sent again");
    let refusal =
        Station::new(StationConfig::default(), PersistentState::default(), Rng::new(1), Time::ZERO, WALL)
            .handle_input(Time::ZERO, WALL, Input::Command(Command::ResetGeonet));
    assert_eq!(refusal, Err("this station does no GeoNetworking".into()));
}

#[test]
fn a_station_without_the_job_says_so() {
    let mut station =
        Station::new(StationConfig::default(), PersistentState::default(), Rng::new(1), Time::ZERO, WALL);
    let request = GeonetRequest {
        transport: GeonetTransport::SingleHop,
        next_header: 0,
        store_carry_forward: false,
        traffic_class: 0,
        lifetime_ms: None,
        hop_limit: None,
        payload: vec![],
    };
    let refusal = station.handle_input(Time::ZERO, WALL, Input::Geonet(request));
    assert_eq!(refusal, Err("this station does no GeoNetworking".into()));
}
