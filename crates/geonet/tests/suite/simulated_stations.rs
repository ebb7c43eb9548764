//! A scripted tester, and one router as implementation under test (IUT).

use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_geonet::acceleration::FastPathUpdate;
use carnet_geonet::geodesy::{LocalPlane, Position};
use carnet_geonet::{
    BROADCAST, Delivery, Event, GeonetDrop, MacAddress, Mib, Output, ReceivedFrame, Request, Router,
    Transmission, Transport,
};
use carnet_wire::geonet::{
    CommonNextHeader, ExtendedHeader, GeoArea, GeoAreaShape, GnAddress, Lifetime, LongPositionVector, Packet,
    StationType, Timestamp, TrafficClass,
};

/// Position of the IUT.
pub const ROUTER_POSITION: Position = Position::new(488_375_000, 21_008_000);
pub const ROUTER_MAC: MacAddress = [0x02, 0, 0, 0, 0, 0x01];
pub const STORE_CARRY_FORWARD: TrafficClass =
    TrafficClass { store_carry_forward: true, channel_offload: false, id: 0 };

pub fn address(mac: MacAddress) -> GnAddress {
    GnAddress::new(false, StationType::PassengerCar, mac)
}

/// Returns the position `east` and `north` metres from the IUT.
pub fn position_at(east: f64, north: f64) -> Position {
    LocalPlane::new(ROUTER_POSITION).position_at(east, north)
}

/// A station that the tester simulates.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedStation {
    pub mac: MacAddress,
    pub position_vector: LongPositionVector,
    pub sequence: u16,
}

impl SimulatedStation {
    pub fn station_at(number: u8, position: Position) -> SimulatedStation {
        let mac = [0xba, 0xbe, 0xba, 0xbe, 0, number];
        let pv = LongPositionVector {
            address: address(mac),
            timestamp: Timestamp(1_000_000),
            latitude: position.latitude,
            longitude: position.longitude,
            accurate: true,
            speed: 0,
            heading: 0,
        };
        SimulatedStation { mac, position_vector: pv, sequence: 100 }
    }

    /// Returns a node of the ETSI suite's constellation; offsets in thousandths of a degree from the IUT.
    fn etsi_node(number: u8, latitude: i32, longitude: i32) -> SimulatedStation {
        SimulatedStation::station_at(
            number,
            Position::new(
                ROUTER_POSITION.latitude + latitude * 10_000,
                ROUTER_POSITION.longitude + longitude * 10_000,
            ),
        )
    }

    pub fn a() -> SimulatedStation {
        SimulatedStation::etsi_node(0xa, 10, 0)
    }
    pub fn b() -> SimulatedStation {
        SimulatedStation::etsi_node(0xb, 2, 0)
    }
    pub fn c() -> SimulatedStation {
        SimulatedStation::etsi_node(0xc, -6, 0)
    }
    pub fn d() -> SimulatedStation {
        SimulatedStation::etsi_node(0xd, 1, 0)
    }
    pub fn e() -> SimulatedStation {
        SimulatedStation::etsi_node(0xe, -1, 0)
    }

    pub fn with_later_timestamp(mut self, milliseconds: u64) -> SimulatedStation {
        self.position_vector.timestamp =
            self.position_vector.timestamp.wrapping_add(Duration::from_millis(milliseconds));
        self
    }

    pub fn with_earlier_timestamp(mut self, milliseconds: u64) -> SimulatedStation {
        self.position_vector.timestamp =
            self.position_vector.timestamp.wrapping_sub(Duration::from_millis(milliseconds));
        self
    }

    pub fn moved_to(mut self, position: Position) -> SimulatedStation {
        (self.position_vector.latitude, self.position_vector.longitude) =
            (position.latitude, position.longitude);
        self
    }

    pub fn next(mut self) -> SimulatedStation {
        self.sequence = self.sequence.wrapping_add(1);
        self
    }

    pub fn position(&self) -> Position {
        Position::new(self.position_vector.latitude, self.position_vector.longitude)
    }

    pub fn beacon_frame(&self) -> Vec<u8> {
        self.emit(ExtendedHeader::Beacon { source: self.position_vector }, 1, &[])
    }

    pub fn shb_frame(&self, payload: &[u8]) -> Vec<u8> {
        self.emit(
            ExtendedHeader::SingleHop { source: self.position_vector, media_dependent: [0; 4] },
            1,
            payload,
        )
    }

    pub fn tsb_frame(&self, payload: &[u8]) -> Vec<u8> {
        let extended =
            ExtendedHeader::TopologicallyScoped { sequence: self.sequence, source: self.position_vector };
        self.emit(extended, 10, payload)
    }

    pub fn guc_frame(&self, to: &LongPositionVector, payload: &[u8]) -> Vec<u8> {
        let extended = ExtendedHeader::GeoUnicast {
            sequence: self.sequence,
            source: self.position_vector,
            destination: to.to_short(),
        };
        self.emit(extended, 10, payload)
    }

    pub fn gbc_frame(&self, area: GeoArea, payload: &[u8]) -> Vec<u8> {
        let extended =
            ExtendedHeader::GeoBroadcast { sequence: self.sequence, source: self.position_vector, area };
        self.emit(extended, 10, payload)
    }

    pub fn gac_frame(&self, area: GeoArea, payload: &[u8]) -> Vec<u8> {
        let extended =
            ExtendedHeader::GeoAnycast { sequence: self.sequence, source: self.position_vector, area };
        self.emit(extended, 10, payload)
    }

    pub fn ls_request_frame(&self, request: GnAddress) -> Vec<u8> {
        let extended = ExtendedHeader::LocationServiceRequest {
            sequence: self.sequence,
            source: self.position_vector,
            request,
        };
        self.emit(extended, 10, &[])
    }

    pub fn ls_reply_frame(&self, to: &LongPositionVector) -> Vec<u8> {
        let extended = ExtendedHeader::LocationServiceReply {
            sequence: self.sequence,
            source: self.position_vector,
            destination: to.to_short(),
        };
        self.emit(extended, 10, &[])
    }

    fn emit(&self, extended: ExtendedHeader, hops: u8, payload: &[u8]) -> Vec<u8> {
        let next = if payload.is_empty() { CommonNextHeader::Any } else { CommonNextHeader::BtpB };
        let lifetime = Lifetime::from_duration(Duration::from_secs(60));
        Packet::new(extended, next, lifetime, hops, payload).emit()
    }
}

/// Sets RHL of a frame.
pub fn with_remaining_hops(mut frame: Vec<u8>, remaining: u8) -> Vec<u8> {
    frame[3] = remaining;
    frame
}

/// Returns a frame as a station sends it after contention: RHL is lower by one, and the lifetime is 59 s,
/// which is 60 s less some milliseconds, rounded down.
pub fn forwarded_by_one_hop(frame: Vec<u8>) -> Vec<u8> {
    with_lifetime(with_remaining_hops(frame, 9), Duration::from_secs(59))
}

/// Sets the SCF bit of a frame.
pub fn with_store_carry_forward(mut frame: Vec<u8>) -> Vec<u8> {
    frame[6] |= 0x80;
    frame
}

pub fn with_lifetime(mut frame: Vec<u8>, lifetime: Duration) -> Vec<u8> {
    frame[2] = Lifetime::from_duration(lifetime).0;
    frame
}

pub fn circular_area(centre: Position, radius: u16) -> GeoArea {
    GeoArea {
        shape: GeoAreaShape::Circle,
        latitude: centre.latitude,
        longitude: centre.longitude,
        distance_a: radius,
        distance_b: 0,
        angle: 0,
    }
}

/// Returns AREA1 of the ETSI suite: its centre is D, and the IUT, B and D are inside.
pub fn etsi_area_1() -> GeoArea {
    circular_area(SimulatedStation::d().position(), 556)
}

/// Returns AREA2 of the ETSI suite: its centre is B; B and D are inside, and the IUT is outside.
pub fn etsi_area_2() -> GeoArea {
    circular_area(SimulatedStation::b().position(), 167)
}

/// The router under test.
pub struct RouterUnderTest {
    pub router: Router,
    pub now: Time,
    pub sent_transmissions: Vec<Transmission>,
    pub delivered_payloads: Vec<Delivery>,
    pub events: Vec<Event>,
    pub fast_path_updates: Vec<FastPathUpdate>,
}

impl RouterUnderTest {
    pub fn new(mib: Mib) -> RouterUnderTest {
        let mut iut = RouterUnderTest::without_position(mib);
        iut.set_position(ROUTER_POSITION, 1_000_000);
        iut
    }

    /// Returns a router with beacons only every ten minutes, because most tests do not expect beacons.
    pub fn with_rare_beacons(mib: Mib) -> RouterUnderTest {
        RouterUnderTest::new(Mib { beacon_retransmit_timer: Duration::from_secs(600), ..mib })
            .after_first_beacon()
    }

    pub fn without_position(mib: Mib) -> RouterUnderTest {
        RouterUnderTest {
            router: Router::new(mib, address(ROUTER_MAC), Rng::new(5)),
            now: Time::from_secs(1000),
            sent_transmissions: Vec::new(),
            delivered_payloads: Vec::new(),
            events: Vec::new(),
            fast_path_updates: Vec::new(),
        }
    }

    fn after_first_beacon(mut self) -> RouterUnderTest {
        self.advance_time(Duration::from_secs(1));
        self.sent_transmissions.clear();
        self
    }

    pub fn set_position(&mut self, position: Position, timestamp: u32) {
        let position_vector = LongPositionVector {
            timestamp: Timestamp(timestamp),
            latitude: position.latitude,
            longitude: position.longitude,
            accurate: true,
            ..LongPositionVector::default()
        };
        self.router.handle_position(self.now, position_vector).expect("a place on earth");
        self.collect_outputs();
    }

    pub fn position_vector(&self) -> LongPositionVector {
        *self.router.position_vector().expect("a position")
    }

    pub fn collect_outputs(&mut self) {
        while let Some(output) = self.router.poll_output() {
            match output {
                Output::Transmit(transmission) => self.sent_transmissions.push(transmission),
                Output::Deliver(delivery) => self.delivered_payloads.push(delivery),
                Output::Accelerate(told) => self.fast_path_updates.push(told),
                Output::Event(event) => self.events.push(event),
            }
        }
    }

    /// Passes a broadcast frame of a station to the IUT.
    pub fn receive_broadcast(&mut self, from: &SimulatedStation, frame: &[u8]) -> Result<(), GeonetDrop> {
        self.receive_from(from.mac, BROADCAST, frame)
    }

    /// Passes a unicast frame of a station to the IUT.
    pub fn receive_unicast(&mut self, from: &SimulatedStation, frame: &[u8]) -> Result<(), GeonetDrop> {
        self.receive_from(from.mac, self.router.address().mid(), frame)
    }

    pub fn receive_from(
        &mut self,
        source: MacAddress,
        destination: MacAddress,
        packet: &[u8],
    ) -> Result<(), GeonetDrop> {
        let result = self.router.handle_frame(self.now, ReceivedFrame { source, destination, packet });
        self.collect_outputs();
        result
    }

    /// Tells the router that the link got no acknowledgement of a frame.
    pub fn report_unacknowledged(&mut self, frame: &Transmission) -> Result<(), GeonetDrop> {
        let result = self.router.handle_unacknowledged(self.now, frame.destination, &frame.frame);
        self.collect_outputs();
        result
    }

    /// Makes these stations neighbours of the IUT.
    pub fn make_neighbours(&mut self, stations: &[SimulatedStation]) {
        for station in stations {
            self.receive_broadcast(station, &station.beacon_frame()).expect("a good beacon");
        }
        self.events.clear();
    }

    pub fn request(&mut self, request: Request<'_>) -> Result<(), GeonetDrop> {
        let result = self.router.handle_request(self.now, request);
        self.collect_outputs();
        result
    }

    pub fn request_payload(&mut self, transport: Transport, payload: &[u8]) -> Result<(), GeonetDrop> {
        self.request(Request::new(transport, CommonNextHeader::BtpB, payload))
    }

    pub fn request_payload_with_scf(
        &mut self,
        transport: Transport,
        payload: &[u8],
    ) -> Result<(), GeonetDrop> {
        let request = Request::new(transport, CommonNextHeader::BtpB, payload);
        self.request(Request { traffic_class: STORE_CARRY_FORWARD, ..request })
    }

    /// Advances the time by `span` and handles the timers that become due.
    pub fn advance_time(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(due) = self.router.poll_timeout()
            && due <= end
        {
            self.now = self.now.max(due);
            self.router.handle_timeout(self.now);
            self.collect_outputs();
        }
        self.now = end;
    }

    pub fn advance_milliseconds(&mut self, milliseconds: u64) {
        self.advance_time(Duration::from_millis(milliseconds));
    }

    /// Returns the frame that the IUT sent since the last call. Panics if it sent none or several.
    #[track_caller]
    pub fn take_only_transmission(&mut self) -> Transmission {
        assert_eq!(self.sent_transmissions.len(), 1, "{:?}", self.sent_transmissions);
        self.sent_transmissions.remove(0)
    }

    #[track_caller]
    pub fn assert_nothing_sent(&self) {
        assert!(self.sent_transmissions.is_empty(), "{:?}", self.sent_transmissions);
    }

    pub fn dropped_packets(&self, reason: GeonetDrop) -> u64 {
        self.router.counters().dropped(reason)
    }
}

pub fn parse(frame: &[u8]) -> Packet<'_> {
    Packet::parse(frame).expect("a well-formed packet")
}
