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
    CommonNextHeader, ExtendedHeader, GeoArea, GnAddress, Lifetime, LongPositionVector, Packet, Shape,
    StationType, Timestamp, TrafficClass,
};

/// Position of the IUT.
pub const HOME: Position = Position::new(488_375_000, 21_008_000);
pub const IUT_MAC: MacAddress = [0x02, 0, 0, 0, 0, 0x01];
pub const SCF: TrafficClass = TrafficClass { store_carry_forward: true, channel_offload: false, id: 0 };

pub fn address(mac: MacAddress) -> GnAddress {
    GnAddress::new(false, StationType::PassengerCar, mac)
}

/// Returns the position `east` and `north` metres from the IUT.
pub fn place(east: f64, north: f64) -> Position {
    LocalPlane::new(HOME).position_at(east, north)
}

/// A station that the tester simulates.
#[derive(Debug, Clone, Copy)]
pub struct Station {
    pub mac: MacAddress,
    pub pv: LongPositionVector,
    pub sequence: u16,
}

impl Station {
    pub fn at(number: u8, position: Position) -> Station {
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
        Station { mac, pv, sequence: 100 }
    }

    /// Returns a node of the ETSI suite's constellation; offsets in thousandths of a degree from the IUT.
    fn node(number: u8, latitude: i32, longitude: i32) -> Station {
        Station::at(
            number,
            Position::new(HOME.latitude + latitude * 10_000, HOME.longitude + longitude * 10_000),
        )
    }

    pub fn a() -> Station {
        Station::node(0xa, 10, 0)
    }
    pub fn b() -> Station {
        Station::node(0xb, 2, 0)
    }
    pub fn c() -> Station {
        Station::node(0xc, -6, 0)
    }
    pub fn d() -> Station {
        Station::node(0xd, 1, 0)
    }
    pub fn e() -> Station {
        Station::node(0xe, -1, 0)
    }

    pub fn later(mut self, milliseconds: u64) -> Station {
        self.pv.timestamp = self.pv.timestamp.wrapping_add(Duration::from_millis(milliseconds));
        self
    }

    pub fn earlier(mut self, milliseconds: u64) -> Station {
        self.pv.timestamp = self.pv.timestamp.wrapping_sub(Duration::from_millis(milliseconds));
        self
    }

    pub fn moved(mut self, position: Position) -> Station {
        (self.pv.latitude, self.pv.longitude) = (position.latitude, position.longitude);
        self
    }

    pub fn next(mut self) -> Station {
        self.sequence = self.sequence.wrapping_add(1);
        self
    }

    pub fn position(&self) -> Position {
        Position::new(self.pv.latitude, self.pv.longitude)
    }

    pub fn beacon(&self) -> Vec<u8> {
        self.emit(ExtendedHeader::Beacon { source: self.pv }, 1, &[])
    }

    pub fn shb(&self, payload: &[u8]) -> Vec<u8> {
        self.emit(ExtendedHeader::SingleHop { source: self.pv, media_dependent: [0; 4] }, 1, payload)
    }

    pub fn tsb(&self, payload: &[u8]) -> Vec<u8> {
        let extended = ExtendedHeader::TopologicallyScoped { sequence: self.sequence, source: self.pv };
        self.emit(extended, 10, payload)
    }

    pub fn guc(&self, to: &LongPositionVector, payload: &[u8]) -> Vec<u8> {
        let extended = ExtendedHeader::GeoUnicast {
            sequence: self.sequence,
            source: self.pv,
            destination: to.to_short(),
        };
        self.emit(extended, 10, payload)
    }

    pub fn gbc(&self, area: GeoArea, payload: &[u8]) -> Vec<u8> {
        let extended = ExtendedHeader::GeoBroadcast { sequence: self.sequence, source: self.pv, area };
        self.emit(extended, 10, payload)
    }

    pub fn gac(&self, area: GeoArea, payload: &[u8]) -> Vec<u8> {
        let extended = ExtendedHeader::GeoAnycast { sequence: self.sequence, source: self.pv, area };
        self.emit(extended, 10, payload)
    }

    pub fn ls_request(&self, request: GnAddress) -> Vec<u8> {
        let extended =
            ExtendedHeader::LocationServiceRequest { sequence: self.sequence, source: self.pv, request };
        self.emit(extended, 10, &[])
    }

    pub fn ls_reply(&self, to: &LongPositionVector) -> Vec<u8> {
        let extended = ExtendedHeader::LocationServiceReply {
            sequence: self.sequence,
            source: self.pv,
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
pub fn with_hops(mut frame: Vec<u8>, remaining: u8) -> Vec<u8> {
    frame[3] = remaining;
    frame
}

/// Returns a frame as it leaves contention, with one hop less and a lifetime of 59 s. The lifetime is 60 s
/// less some milliseconds, rounded down.
pub fn one_hop_later(frame: Vec<u8>) -> Vec<u8> {
    with_lifetime(with_hops(frame, 9), Duration::from_secs(59))
}

/// Sets the SCF bit of a frame.
pub fn with_scf(mut frame: Vec<u8>) -> Vec<u8> {
    frame[6] |= 0x80;
    frame
}

pub fn with_lifetime(mut frame: Vec<u8>, lifetime: Duration) -> Vec<u8> {
    frame[2] = Lifetime::from_duration(lifetime).0;
    frame
}

pub fn circle(centre: Position, radius: u16) -> GeoArea {
    GeoArea {
        shape: Shape::Circle,
        latitude: centre.latitude,
        longitude: centre.longitude,
        distance_a: radius,
        distance_b: 0,
        angle: 0,
    }
}

/// Returns AREA1 of the ETSI suite: centred on D, with the IUT, B and D inside.
pub fn area1() -> GeoArea {
    circle(Station::d().position(), 556)
}

/// Returns AREA2 of the ETSI suite: centred on B, with B and D inside and the IUT outside.
pub fn area2() -> GeoArea {
    circle(Station::b().position(), 167)
}

/// The router under test.
pub struct Iut {
    pub router: Router,
    pub now: Time,
    pub sent: Vec<Transmission>,
    pub delivered: Vec<Delivery>,
    pub events: Vec<Event>,
    pub fast_path_updates: Vec<FastPathUpdate>,
}

impl Iut {
    pub fn new(mib: Mib) -> Iut {
        let mut iut = Iut::without_position(mib);
        iut.locate(HOME, 1_000_000);
        iut
    }

    /// Returns a router with beacons only every ten minutes, because most tests do not expect beacons.
    pub fn quiet(mib: Mib) -> Iut {
        Iut::new(Mib { beacon_retransmit_timer: Duration::from_secs(600), ..mib }).settled()
    }

    pub fn without_position(mib: Mib) -> Iut {
        Iut {
            router: Router::new(mib, address(IUT_MAC), Rng::new(5)),
            now: Time::from_secs(1000),
            sent: Vec::new(),
            delivered: Vec::new(),
            events: Vec::new(),
            fast_path_updates: Vec::new(),
        }
    }

    fn settled(mut self) -> Iut {
        self.wait(Duration::from_secs(1));
        self.sent.clear();
        self
    }

    pub fn locate(&mut self, position: Position, timestamp: u32) {
        let pv = LongPositionVector {
            timestamp: Timestamp(timestamp),
            latitude: position.latitude,
            longitude: position.longitude,
            accurate: true,
            ..LongPositionVector::default()
        };
        self.router.handle_position(self.now, pv).expect("a place on earth");
        self.drain();
    }

    pub fn pv(&self) -> LongPositionVector {
        *self.router.position_vector().expect("a position")
    }

    pub fn drain(&mut self) {
        while let Some(output) = self.router.poll_output() {
            match output {
                Output::Transmit(transmission) => self.sent.push(transmission),
                Output::Deliver(delivery) => self.delivered.push(delivery),
                Output::Accelerate(told) => self.fast_path_updates.push(told),
                Output::Event(event) => self.events.push(event),
            }
        }
    }

    /// Passes a broadcast frame of a station to the IUT.
    pub fn hear(&mut self, from: &Station, frame: &[u8]) -> Result<(), GeonetDrop> {
        self.hear_from(from.mac, BROADCAST, frame)
    }

    /// Passes a unicast frame of a station to the IUT.
    pub fn get(&mut self, from: &Station, frame: &[u8]) -> Result<(), GeonetDrop> {
        self.hear_from(from.mac, self.router.address().mid(), frame)
    }

    pub fn hear_from(
        &mut self,
        source: MacAddress,
        destination: MacAddress,
        packet: &[u8],
    ) -> Result<(), GeonetDrop> {
        let result = self.router.handle_frame(self.now, ReceivedFrame { source, destination, packet });
        self.drain();
        result
    }

    /// Reports a frame as not acknowledged by the link.
    pub fn unacknowledged(&mut self, frame: &Transmission) -> Result<(), GeonetDrop> {
        let result = self.router.handle_unacknowledged(self.now, frame.destination, &frame.frame);
        self.drain();
        result
    }

    /// Makes these stations neighbours of the IUT.
    pub fn knows(&mut self, stations: &[Station]) {
        for station in stations {
            self.hear(station, &station.beacon()).expect("a good beacon");
        }
        self.events.clear();
    }

    pub fn request(&mut self, request: Request<'_>) -> Result<(), GeonetDrop> {
        let result = self.router.handle_request(self.now, request);
        self.drain();
        result
    }

    pub fn ask(&mut self, transport: Transport, payload: &[u8]) -> Result<(), GeonetDrop> {
        self.request(Request::new(transport, CommonNextHeader::BtpB, payload))
    }

    pub fn ask_scf(&mut self, transport: Transport, payload: &[u8]) -> Result<(), GeonetDrop> {
        let request = Request::new(transport, CommonNextHeader::BtpB, payload);
        self.request(Request { traffic_class: SCF, ..request })
    }

    /// Advances the time by `span` and handles the timers that become due.
    pub fn wait(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(due) = self.router.poll_timeout()
            && due <= end
        {
            self.now = self.now.max(due);
            self.router.handle_timeout(self.now);
            self.drain();
        }
        self.now = end;
    }

    pub fn wait_ms(&mut self, milliseconds: u64) {
        self.wait(Duration::from_millis(milliseconds));
    }

    /// Returns the frame that the IUT sent since the last call. Panics if it sent none or several.
    #[track_caller]
    pub fn one_sent(&mut self) -> Transmission {
        assert_eq!(self.sent.len(), 1, "{:?}", self.sent);
        self.sent.remove(0)
    }

    #[track_caller]
    pub fn nothing_sent(&self) {
        assert!(self.sent.is_empty(), "{:?}", self.sent);
    }

    pub fn dropped(&self, reason: GeonetDrop) -> u64 {
        self.router.counters().dropped(reason)
    }
}

pub fn parse(frame: &[u8]) -> Packet<'_> {
    Packet::parse(frame).expect("a well-formed packet")
}
