//! Congestion control in a whole station, in virtual time.

mod common;

use std::time::Duration;

use carnet_base::{Rng, Time, WallTime};
use carnet_cits::facilities::FacilitiesSettings;
use carnet_cits::security::{SecurityEntity, SecurityState};
use carnet_geonet::dcc::{self, DccDrop};
use carnet_geonet::{MacAddress, Mib, ReceivedFrame, geodesy};
use carnet_security::{Counters, Handled, Now, Policy, SecurityDrop, Verified};
use carnet_station::io::{Command, Event, Frame, GeonetRequest, GeonetTransport, Input, Output, Position};
use carnet_station::{GeonetSettings, PersistentState, Station, StationConfig};
use carnet_wire::geonet::{
    CommonNextHeader, ExtendedHeader, GeoArea, GnAddress, Lifetime, LongPositionVector, Packet, Shape,
    StationType, Timestamp, TrafficClass,
};

const WALL: WallTime = WallTime::from_unix_nanos(1_800_000_000_000_000_000);
const MAC: MacAddress = [2, 0, 0, 0, 0, 1];

/// A station, and the frames that it has sent, as their last octet and their time.
struct Bench {
    station: Station,
    address: GnAddress,
    now: Time,
    sent: Vec<(Time, u8)>,
    /// Lifetimes of the sent frames.
    lifetimes: Vec<Duration>,
    /// DCC profiles of the sent frames.
    profiles: Vec<Option<u8>>,
    warnings: Vec<String>,
}

impl Bench {
    fn new(dcc: Option<dcc::Config>) -> Bench {
        Bench::with(dcc, None, None)
    }

    fn with(
        dcc: Option<dcc::Config>,
        facilities: Option<FacilitiesSettings>,
        security: Option<Box<dyn SecurityEntity>>,
    ) -> Bench {
        let address = GnAddress::new(false, StationType::PassengerCar, MAC);
        let settings = GeonetSettings {
            // A long interval keeps the station from sending beacons, because each single-hop broadcast
            // restarts the beacon timer.
            mib: Mib { beacon_retransmit_timer: Duration::from_secs(3600), ..Mib::default() },
            facilities,
            dcc,
            ..common::geonet(address)
        };
        let config = StationConfig { geonet: Some(settings), ..StationConfig::default() };
        let state = PersistentState::default();
        let mut station = Station::new(config, state, Rng::new(1), Time::ZERO, WALL);
        if let Some(security) = security {
            station.secure(Time::ZERO, WALL, security);
        }
        let now = Time::from_secs(10);
        let (sent, lifetimes, profiles, warnings) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut bench = Bench { station, address, now, sent, lifetimes, profiles, warnings };
        bench.stand(488_375_000);
        // Wait until the packets of the start have been sent.
        bench.pass(Duration::from_secs(10));
        bench.sent.clear();
        bench.lifetimes.clear();
        bench.profiles.clear();
        bench
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
        self.tell(Input::Position(position)).expect("accepted");
    }

    fn tell(&mut self, input: Input) -> Result<(), String> {
        // The input is converted to the recording's format and back, to test that the format is complete.
        let line = serde_json::to_string(&input).expect("serialises");
        let input = serde_json::from_str(&line).expect("deserialises");
        let result = self.station.handle_input(self.now, WALL, input);
        while let Some(output) = self.station.poll_output() {
            match output {
                Output::Frame(frame) => {
                    let [_, _, source @ ..] = self.address.0.to_be_bytes();
                    assert_eq!(frame.source, source);
                    self.sent.push((self.now, *frame.packet.last().expect("a packet")));
                    self.profiles.push(frame.profile);
                    self.lifetimes.push(Lifetime(frame.packet[2]).duration());
                }
                Output::Event(Event::Warning { message }) => self.warnings.push(message),
                _ => {}
            }
        }
        result
    }

    fn send(&mut self, traffic_class: u8, lifetime_ms: u64, content: u8) {
        let request = GeonetRequest {
            transport: GeonetTransport::SingleHop,
            next_header: 0,
            store_carry_forward: false,
            traffic_class,
            lifetime_ms: Some(lifetime_ms),
            hop_limit: None,
            payload: vec![content],
        };
        self.tell(Input::Geonet(request)).expect("accepted");
    }

    fn counter(&self, name: &str) -> u64 {
        let counters = self.station.counters();
        counters.iter().find(|(counter, _)| counter == name).map(|(_, count)| *count).expect("a counter")
    }

    /// Drives with a speed at which the movement causes a CAM every 100 ms; `often` sends other packets each
    /// time.
    fn drive(&mut self, tenths: u16, busy: u16, mut often: impl FnMut(&mut Bench)) {
        for tenth in 0..i32::from(tenths) {
            self.stand(488_375_000 + 1000 * tenth);
            self.tell(Input::ChannelBusy(busy)).expect("accepted");
            often(self);
            self.pass(Duration::from_millis(100));
        }
    }

    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(due) = self.station.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.tell(Input::Timeout).expect("accepted");
        }
        self.now = end;
    }

    /// Returns the contents sent since `start`, each with its time in milliseconds after `start`.
    fn sent_since(&mut self, start: Time) -> Vec<(u128, u8)> {
        let sent = std::mem::take(&mut self.sent).into_iter();
        sent.map(|(at, content)| (at.saturating_since(start).as_millis(), content)).collect()
    }
}

#[test]
fn packets_wait_for_the_gate_in_the_order_of_their_profiles() {
    let mut bench = Bench::new(Some(dcc::Config::default()));
    let start = bench.now;
    for (class, content) in [(3, 30), (2, 20), (1, 10), (0, 1), (2, 21)] {
        bench.send(class, 60_000, content);
    }
    bench.pass(Duration::from_secs(1));
    // Packets without a traffic class have class 0.
    assert_eq!(bench.sent_since(start), [(0, 30), (100, 10), (200, 20), (300, 21), (400, 1)]);
    // The frames carry the profile of their traffic class.
    assert_eq!(bench.profiles, [3, 1, 2, 2, 3].map(Some));
    // The channel is full, and the radio reports this ten times a second.
    for _ in 0..10 {
        bench.tell(Input::ChannelBusy(900)).expect("accepted");
        bench.pass(Duration::from_millis(100));
    }
    let gate = bench.station.congestion().expect("a gate");
    assert_eq!(
        (gate.state(), gate.reading(bench.now).map(|(_, ratio)| ratio)),
        (Some("restrictive"), Some(0.9))
    );
    let counters = bench.station.counters();
    let named = |name: &str| counters.iter().find(|(counter, _)| counter == name).map(|(_, count)| *count);
    assert_eq!((named("geonet.dcc.sent.dp2"), named("geonet.dcc.held")), (Some(2), Some(4)));
    assert_eq!((named("geonet.dcc.sent.dp0"), named("geonet.dcc.stale")), (Some(0), Some(0)));
}

#[test]
fn a_packet_that_outlives_its_wait_is_dropped() {
    let mut bench = Bench::new(Some(dcc::Config::default()));
    let start = bench.now;
    bench.send(2, 60_000, 1);
    bench.send(2, 50, 2);
    bench.send(2, 60_000, 3);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.sent_since(start), [(0, 1), (100, 3)]);
    let counters = bench.station.congestion().expect("a gate").counters();
    assert_eq!(counters.dropped(DccDrop::LifetimeExpired), 1);
}

#[test]
fn reset_station_has_no_waiting_packets() {
    let mut bench = Bench::new(Some(dcc::Config::default()));
    let start = bench.now;
    bench.send(2, 60_000, 1);
    bench.send(2, 60_000, 2);
    bench.tell(Input::Command(Command::ResetGeonet)).expect("accepted");
    bench.pass(Duration::from_secs(1));
    assert!(bench.sent_since(start).iter().all(|(_, content)| *content != 2));
}

#[test]
fn station_without_gate_sends_at_once_and_refuses_channel_reports() {
    let mut bench = Bench::new(None);
    let start = bench.now;
    for content in 0..20 {
        bench.send(2, 60_000, content);
    }
    assert_eq!(bench.sent_since(start).len(), 20);
    assert_eq!(bench.profiles, [None; 20]);
    let refused = bench.tell(Input::ChannelBusy(1)).expect_err("no gate");
    assert!(refused.contains("no [geonet.dcc]"), "{refused}");
    let mut bench = Bench::new(Some(dcc::Config::default()));
    let refused = bench.tell(Input::ChannelBusy(1001)).expect_err("more than always");
    assert!(refused.contains("1001") && refused.contains("0 to 1000"), "{refused}");
}

/// A security entity whose signature is the time: an octet behind the packet, in tenths of a second.
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
    fn state(&self, _: Now) -> SecurityState {
        SecurityState {
            policy: Policy::Off,
            ticket: None,
            own_tickets: (0, 0),
            until: None,
            issuers: 0,
            tickets: 0,
            queued: (0, 0),
            parked: (0, 0),
            verifications_per_second: 0,
            clock_ahead_ms: None,
        }
    }
}

#[test]
fn packet_is_signed_when_it_leaves_the_gate() {
    let mut bench = Bench::with(Some(dcc::Config::default()), None, Some(Box::new(Clock::default())));
    let start = bench.now;
    for content in 1..=3 {
        bench.send(2, 60_000, content);
    }
    bench.pass(Duration::from_secs(1));
    // An air time above a millisecond closes the gate for twice the usual time.
    assert_eq!(bench.sent_since(start), [(0, 0), (200, 2), (400, 4)]);
}

#[test]
fn dcc_wait_reduces_lifetime_and_single_hop_packet_waits_a_second() {
    let mut bench = Bench::new(Some(dcc::Config::default()));
    for content in 0..4 {
        bench.send(2, 1000, content);
    }
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.lifetimes, [1000, 900, 800, 700].map(Duration::from_millis));
    let mut bench = Bench::new(Some(dcc::Config { queue_length: 20, ..dcc::Config::default() }));
    for content in 0..15 {
        bench.send(2, 60_000, content);
    }
    bench.pass(Duration::from_secs(5));
    assert_eq!((bench.sent.len(), bench.counter("geonet.dcc.dropped.lifetime_expired")), (10, 5));
}

#[test]
fn traffic_class_of_forwarded_packet_does_not_raise_its_priority() {
    let mut bench = Bench::new(Some(dcc::Config::default()));
    let start = bench.now;
    bench.send(3, 60_000, 1);
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
    bench.tell(Input::Frame(frame)).expect("accepted");
    bench.send(2, 60_000, 2);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.sent_since(start), [(0, 1), (100, 2), (200, 99)]);
}

/// EN 302 636-4-1 F.3 at the gate: if another station forwards a packet that waits at the gate, the station
/// drops its own copy.
#[test]
fn packet_forwarded_by_another_station_leaves_the_queue() {
    for (copy, expected) in [(false, vec![(0, 1), (1000, 99)]), (true, vec![(0, 1)])] {
        let mut bench = Bench::new(Some(dcc::Config::default()));
        bench.tell(Input::ChannelBusy(900)).expect("accepted");
        bench.pass(Duration::from_millis(100));
        let start = bench.now;
        // A packet of this station closes the gate for a second. The contention ends within a tenth of a
        // second.
        bench.send(3, 60_000, 1);
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
        bench.tell(Input::Frame(frame(9, &packet))).expect("accepted");
        for _ in 0..5 {
            bench.tell(Input::ChannelBusy(900)).expect("accepted");
            bench.pass(Duration::from_millis(100));
        }
        assert_eq!(bench.counter("geonet.dcc.held"), 1);
        packet.basic.remaining_hop_limit -= 1;
        if copy {
            bench.tell(Input::Frame(frame(8, &packet))).expect("accepted");
        }
        for _ in 0..10 {
            bench.tell(Input::ChannelBusy(900)).expect("accepted");
            bench.pass(Duration::from_millis(100));
        }
        assert_eq!(bench.sent_since(start), expected);
        assert_eq!(bench.counter("geonet.dcc.dropped.overheard"), u64::from(copy));
    }
}

#[test]
fn own_packets_do_not_outlive_their_address() {
    let mut bench = Bench::new(Some(dcc::Config::default()));
    let start = bench.now;
    bench.send(2, 60_000, 1);
    bench.send(2, 60_000, 2);
    bench.address = GnAddress::new(false, StationType::PassengerCar, [2, 0, 0, 0, 0, 7]);
    bench.tell(Input::GeonetAddress(bench.address.0)).expect("accepted");
    bench.send(2, 60_000, 3);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.sent_since(start), [(0, 1), (100, 3)]);
    assert_eq!(bench.counter("geonet.dcc.dropped.address_changed"), 1);
}

#[test]
fn end_of_channel_reports_is_logged_once() {
    let mut bench = Bench::new(Some(dcc::Config::default()));
    for _ in 0..2 {
        bench.tell(Input::ChannelBusy(900)).expect("accepted");
        bench.pass(Duration::from_secs(3));
    }
    assert_eq!((bench.warnings.len(), bench.counter("geonet.dcc.stale")), (1, 2), "{:?}", bench.warnings);
}

#[test]
fn cam_rate_follows_dcc_gate() {
    let mut bench = Bench::with(Some(dcc::Config::default()), Some(common::passenger_car()), None);
    for (busy, expected) in [(100, 95..=100), (900, 9..=11), (450, 23..=26)] {
        // The drive waits for the new state, and for the end of the CAM interval of the previous state.
        bench.drive(20, busy, |_| {});
        let before = bench.counter("facilities.cam.sent");
        bench.drive(100, busy, |_| {});
        let made = bench.counter("facilities.cam.sent") - before;
        assert!(expected.contains(&made), "{made} CAMs in 10 s at {busy}, expected {expected:?}");
    }
    assert_eq!(bench.counter("geonet.dcc.dropped.replaced"), 0);
}

#[test]
fn newer_cam_replaces_waiting_cam() {
    let mut bench = Bench::with(Some(dcc::Config::default()), Some(common::passenger_car()), None);
    bench.drive(50, 100, |bench| {
        bench.send(1, 1000, 1);
        assert!(bench.station.congestion().expect("a gate").queue_lengths()[2] <= 1);
    });
    assert!(bench.counter("geonet.dcc.dropped.replaced") > 20);
}
