//! Congestion control in a whole station, in virtual time.

mod common;

use std::time::Duration;

use carnet_base::Time;
use carnet_cits::facilities::FacilitiesSettings;
use carnet_cits::security::{SecurityEntity, status};
use carnet_geonet::dcc::{self, DccDrop};
use carnet_geonet::{MacAddress, Mib, ReceivedFrame, geodesy};
use carnet_security::{Counters, Handled, Now, SecurityDrop, Verified};
use carnet_station::io::{
    Command, Event, Frame, GeonetOutput, GeonetRequest, GeonetTransport, Input, NemoOutput, Output, Position,
};
use carnet_station::{GeonetSettings, StationConfig};
use carnet_wire::geonet::{
    CommonNextHeader, ExtendedHeader, GeoArea, GnAddress, Lifetime, LongPositionVector, Packet, Shape,
    StationType, Timestamp, TrafficClass,
};
use common::WALL;
use common::world::{Network, station};

const MAC: MacAddress = [2, 0, 0, 0, 0, 1];
/// Index of the only station in the world.
const CAR: usize = 0;

/// A radio channel with one station only, and the frames that the station has sent.
struct Channel {
    address: GnAddress,
    /// Time and last octet of each frame.
    sent: Vec<(Time, u8)>,
    /// Lifetimes of the sent frames.
    lifetimes: Vec<Duration>,
    /// DCC profiles of the sent frames.
    profiles: Vec<Option<u8>>,
    warnings: Vec<String>,
}

type World = common::world::World<Channel>;

impl Network for Channel {
    fn carry(world: &mut World, _: usize, output: Output) {
        match output {
            Output::Geonet(GeonetOutput::Frame(frame)) => {
                let [_, _, source @ ..] = world.net.address.0.to_be_bytes();
                assert_eq!(frame.source, source);
                world.net.sent.push((world.now, *frame.packet.last().expect("a packet")));
                world.net.profiles.push(frame.profile);
                world.net.lifetimes.push(Lifetime(frame.packet[2]).duration());
            }
            Output::Nemo(NemoOutput::Event(Event::Warning { message })) => world.net.warnings.push(message),
            _ => {}
        }
    }
}

impl World {
    fn new(dcc: Option<dcc::Config>) -> World {
        World::with(dcc, None, None)
    }

    fn with(
        dcc: Option<dcc::Config>,
        facilities: Option<FacilitiesSettings>,
        security: Option<Box<dyn SecurityEntity>>,
    ) -> World {
        let address = GnAddress::new(false, StationType::PassengerCar, MAC);
        let settings = GeonetSettings {
            // A long interval keeps the station from sending beacons, because each single-hop broadcast
            // restarts the beacon timer.
            mib: Mib { beacon_retransmit_timer: Duration::from_secs(3600), ..Mib::default() },
            facilities,
            dcc,
            ..common::geonet(address)
        };
        let mut car = station(StationConfig { geonet: Some(settings), ..StationConfig::default() }, 1);
        if let Some(security) = security {
            car.secure(Time::ZERO, WALL, security);
        }
        let channel = Channel {
            address,
            sent: Vec::new(),
            lifetimes: Vec::new(),
            profiles: Vec::new(),
            warnings: Vec::new(),
        };
        let mut world = World::of([car], channel);
        world.now = Time::from_secs(10);
        world.stand(488_375_000);
        // Wait until the packets of the start have been sent.
        world.run(Duration::from_secs(10));
        world.net.sent.clear();
        world.net.lifetimes.clear();
        world.net.profiles.clear();
        world
    }

    fn stand(&mut self, latitude: i32) {
        let position = Position {
            timestamp: 1_000_000,
            latitude,
            longitude: 21_008_000,
            accurate: true,
            speed: 0,
            heading: 0,
        };
        self.tell(CAR, Input::Position(position));
    }

    fn send_packet(&mut self, traffic_class: u8, lifetime_ms: u64, content: u8) {
        let request = GeonetRequest {
            transport: GeonetTransport::SingleHop,
            next_header: 0,
            store_carry_forward: false,
            traffic_class,
            lifetime_ms: Some(lifetime_ms),
            hop_limit: None,
            payload: vec![content],
        };
        self.tell(CAR, Input::Geonet(request));
    }

    fn count(&self, name: &str) -> u64 {
        self.counter(CAR, name)
    }

    /// Lets the station drive at a speed at which its movement causes a CAM every 100 ms. `busy` is the
    /// channel load; `often` sends other packets in each step.
    fn drive(&mut self, tenths: u16, busy: u16, mut often: impl FnMut(&mut World)) {
        for tenth in 0..i32::from(tenths) {
            self.stand(488_375_000 + 1000 * tenth);
            self.tell(CAR, Input::ChannelBusy(busy));
            often(self);
            self.run(Duration::from_millis(100));
        }
    }

    /// Returns the contents sent since `start`, each with its time in milliseconds after `start`.
    fn sent_since(&mut self, start: Time) -> Vec<(u128, u8)> {
        let sent = std::mem::take(&mut self.net.sent).into_iter();
        sent.map(|(at, content)| (at.saturating_since(start).as_millis(), content)).collect()
    }
}

#[test]
fn packets_wait_for_the_gate_in_the_order_of_their_profiles() {
    let mut world = World::new(Some(dcc::Config::default()));
    let start = world.now;
    for (class, content) in [(3, 30), (2, 20), (1, 10), (0, 1), (2, 21)] {
        world.send_packet(class, 60_000, content);
    }
    world.run(Duration::from_secs(1));
    // Packets without a traffic class have class 0.
    assert_eq!(world.sent_since(start), [(0, 30), (100, 10), (200, 20), (300, 21), (400, 1)]);
    // The frames carry the profile of their traffic class.
    assert_eq!(world.net.profiles, [3, 1, 2, 2, 3].map(Some));
    // The channel is full, and the radio reports this ten times a second.
    for _ in 0..10 {
        world.tell(CAR, Input::ChannelBusy(900));
        world.run(Duration::from_millis(100));
    }
    let gate = world.stations[CAR].congestion().expect("a gate");
    assert_eq!(
        (gate.state(), gate.reading(world.now).map(|(_, ratio)| ratio)),
        (Some("restrictive"), Some(0.9))
    );
    let counters = world.stations[CAR].counters();
    let named = |name: &str| counters.iter().find(|(counter, _)| counter == name).map(|(_, count)| *count);
    assert_eq!((named("geonet.dcc.sent.dp2"), named("geonet.dcc.held")), (Some(2), Some(4)));
    assert_eq!((named("geonet.dcc.sent.dp0"), named("geonet.dcc.stale")), (Some(0), Some(0)));
}

#[test]
fn a_packet_that_outlives_its_wait_is_dropped() {
    let mut world = World::new(Some(dcc::Config::default()));
    let start = world.now;
    world.send_packet(2, 60_000, 1);
    world.send_packet(2, 50, 2);
    world.send_packet(2, 60_000, 3);
    world.run(Duration::from_secs(1));
    assert_eq!(world.sent_since(start), [(0, 1), (100, 3)]);
    let counters = world.stations[CAR].congestion().expect("a gate").counters();
    assert_eq!(counters.dropped(DccDrop::LifetimeExpired), 1);
}

#[test]
fn reset_station_has_no_waiting_packets() {
    let mut world = World::new(Some(dcc::Config::default()));
    let start = world.now;
    world.send_packet(2, 60_000, 1);
    world.send_packet(2, 60_000, 2);
    world.tell(CAR, Input::Command(Command::ResetGeonet));
    world.run(Duration::from_secs(1));
    assert!(world.sent_since(start).iter().all(|(_, content)| *content != 2));
}

#[test]
fn station_without_gate_sends_at_once_and_refuses_channel_reports() {
    let mut world = World::new(None);
    let start = world.now;
    for content in 0..20 {
        world.send_packet(2, 60_000, content);
    }
    assert_eq!(world.sent_since(start).len(), 20);
    assert_eq!(world.net.profiles, [None; 20]);
    let refused = world.try_tell(CAR, Input::ChannelBusy(1)).expect_err("no gate");
    assert!(refused.contains("no [geonet.dcc]"), "{refused}");
    let mut world = World::new(Some(dcc::Config::default()));
    let refused = world.try_tell(CAR, Input::ChannelBusy(1001)).expect_err("more than always");
    assert!(refused.contains("1001") && refused.contains("0 to 1000"), "{refused}");
}

/// A security entity for tests. Its "signature" is one octet behind the packet: the time of signing in tenths
/// of a second.
#[derive(Debug, Default)]
struct Clock {
    counters: Counters,
}

impl SecurityEntity for Clock {
    fn handle_frame(&mut self, _: Now, _: ReceivedFrame<'_>) -> Result<Handled, SecurityDrop> {
        Ok(Handled::Plain)
    }
    fn poll_verified(&mut self, _: Now) -> Option<Verified> {
        None
    }
    fn secure(&mut self, now: Now, frame: &[u8]) -> Result<Vec<u8>, SecurityDrop> {
        let tenth = now.time.as_nanos() / 100_000_000 % 100;
        Ok([frame, &[u8::try_from(tenth).expect("small")]].concat())
    }
    fn handle_position(&mut self, _: geodesy::Position, _: u16) {}
    fn handle_address(&mut self, _: MacAddress) {}
    fn poll_timeout(&self, _: Time) -> Option<Time> {
        None
    }
    fn overhead(&self) -> usize {
        1000
    }
    fn counters(&self) -> &Counters {
        &self.counters
    }
    fn status(&self, _: Now) -> status::Security {
        status::Security::default()
    }
}

#[test]
fn packet_is_signed_when_it_leaves_the_gate() {
    let mut world = World::with(Some(dcc::Config::default()), None, Some(Box::new(Clock::default())));
    let start = world.now;
    for content in 1..=3 {
        world.send_packet(2, 60_000, content);
    }
    world.run(Duration::from_secs(1));
    // A packet with an air time above a millisecond closes the gate for twice the usual time.
    assert_eq!(world.sent_since(start), [(0, 0), (200, 2), (400, 4)]);
}

#[test]
fn dcc_wait_reduces_lifetime_and_single_hop_packet_waits_a_second() {
    let mut world = World::new(Some(dcc::Config::default()));
    for content in 0..4 {
        world.send_packet(2, 1000, content);
    }
    world.run(Duration::from_secs(1));
    assert_eq!(world.net.lifetimes, [1000, 900, 800, 700].map(Duration::from_millis));
    let mut world = World::new(Some(dcc::Config { queue_length: 20, ..dcc::Config::default() }));
    for content in 0..15 {
        world.send_packet(2, 60_000, content);
    }
    world.run(Duration::from_secs(5));
    assert_eq!((world.net.sent.len(), world.count("geonet.dcc.dropped.lifetime_expired")), (10, 5));
}

#[test]
fn traffic_class_of_forwarded_packet_does_not_raise_its_priority() {
    let mut world = World::new(Some(dcc::Config::default()));
    let start = world.now;
    world.send_packet(3, 60_000, 1);
    let source = LongPositionVector {
        address: GnAddress::new(false, StationType::PassengerCar, [2, 0, 0, 0, 0, 9]),
        timestamp: Timestamp(1_000_000),
        latitude: 488_375_000,
        longitude: 21_008_000,
        accurate: true,
        ..LongPositionVector::default()
    };
    let header = ExtendedHeader::TopologicallyScoped { sequence: 1, source };
    let lifetime = Lifetime::from_duration(Duration::from_secs(60));
    let mut packet = Packet::new(header, CommonNextHeader::Any, lifetime, 5, &[99]);
    packet.common.traffic_class = TrafficClass { id: 1, ..TrafficClass::default() };
    let frame =
        Frame { source: [2, 0, 0, 0, 0, 9], destination: [255; 6], profile: None, packet: packet.emit() };
    world.tell(CAR, Input::Frame(frame));
    world.send_packet(2, 60_000, 2);
    world.run(Duration::from_secs(1));
    assert_eq!(world.sent_since(start), [(0, 1), (100, 2), (200, 99)]);
}

/// EN 302 636-4-1 F.3 at the gate: if another station forwards a packet that waits at the gate, the station
/// drops its own copy.
#[test]
fn packet_forwarded_by_another_station_leaves_the_queue() {
    for (copy, expected) in [(false, vec![(0, 1), (1000, 99)]), (true, vec![(0, 1)])] {
        let mut world = World::new(Some(dcc::Config::default()));
        world.tell(CAR, Input::ChannelBusy(900));
        world.run(Duration::from_millis(100));
        let start = world.now;
        // A packet of this station closes the gate for a second. The contention ends within a tenth of a
        // second.
        world.send_packet(3, 60_000, 1);
        let source = LongPositionVector {
            address: GnAddress::new(false, StationType::PassengerCar, [2, 0, 0, 0, 0, 9]),
            timestamp: Timestamp(1_000_000),
            latitude: 488_375_000,
            longitude: 21_008_000,
            accurate: true,
            ..LongPositionVector::default()
        };
        let area = GeoArea {
            shape: Shape::Circle,
            latitude: 488_375_000,
            longitude: 21_008_000,
            distance_a: 1000,
            distance_b: 0,
            angle: 0,
        };
        let header = ExtendedHeader::GeoBroadcast { sequence: 1, source, area };
        let lifetime = Lifetime::from_duration(Duration::from_secs(60));
        let mut packet = Packet::new(header, CommonNextHeader::Any, lifetime, 5, &[99]);
        let frame = |from, packet: &Packet<'_>| Frame {
            source: [2, 0, 0, 0, 0, from],
            destination: [255; 6],
            profile: None,
            packet: packet.emit(),
        };
        world.tell(CAR, Input::Frame(frame(9, &packet)));
        for _ in 0..5 {
            world.tell(CAR, Input::ChannelBusy(900));
            world.run(Duration::from_millis(100));
        }
        assert_eq!(world.count("geonet.dcc.held"), 1);
        packet.basic.remaining_hop_limit -= 1;
        if copy {
            world.tell(CAR, Input::Frame(frame(8, &packet)));
        }
        for _ in 0..10 {
            world.tell(CAR, Input::ChannelBusy(900));
            world.run(Duration::from_millis(100));
        }
        assert_eq!(world.sent_since(start), expected);
        assert_eq!(world.count("geonet.dcc.dropped.overheard"), u64::from(copy));
    }
}

#[test]
fn own_packets_do_not_outlive_their_address() {
    let mut world = World::new(Some(dcc::Config::default()));
    let start = world.now;
    world.send_packet(2, 60_000, 1);
    world.send_packet(2, 60_000, 2);
    world.net.address = GnAddress::new(false, StationType::PassengerCar, [2, 0, 0, 0, 0, 7]);
    world.tell(CAR, Input::GeonetAddress(world.net.address.0));
    world.send_packet(2, 60_000, 3);
    world.run(Duration::from_secs(1));
    assert_eq!(world.sent_since(start), [(0, 1), (100, 3)]);
    assert_eq!(world.count("geonet.dcc.dropped.address_changed"), 1);
}

#[test]
fn end_of_channel_reports_is_logged_once() {
    let mut world = World::new(Some(dcc::Config::default()));
    for _ in 0..2 {
        world.tell(CAR, Input::ChannelBusy(900));
        world.run(Duration::from_secs(3));
    }
    assert_eq!(
        (world.net.warnings.len(), world.count("geonet.dcc.stale")),
        (1, 2),
        "{:?}",
        world.net.warnings
    );
}

#[test]
fn cam_rate_follows_dcc_gate() {
    let mut world = World::with(Some(dcc::Config::default()), Some(common::passenger_car()), None);
    for (busy, expected) in [(100, 95..=100), (900, 9..=11), (450, 23..=26)] {
        // The drive lasts until the congestion control has its new state and the CAM interval of the previous
        // state is over.
        world.drive(20, busy, |_| {});
        let before = world.count("facilities.cam.sent");
        world.drive(100, busy, |_| {});
        let made = world.count("facilities.cam.sent") - before;
        assert!(expected.contains(&made), "{made} CAMs in 10 s at {busy}, expected {expected:?}");
    }
    assert_eq!(world.count("geonet.dcc.dropped.replaced"), 0);
}

#[test]
fn newer_cam_replaces_waiting_cam() {
    let mut world = World::with(Some(dcc::Config::default()), Some(common::passenger_car()), None);
    world.drive(50, 100, |world| {
        world.send_packet(1, 1000, 1);
        assert!(world.stations[CAR].congestion().expect("a gate").queue_lengths()[2] <= 1);
    });
    assert!(world.count("geonet.dcc.dropped.replaced") > 20);
}
