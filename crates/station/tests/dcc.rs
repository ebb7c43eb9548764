//! Congestion control in a whole station, in virtual time.

mod common;

use std::time::Duration;

use carnet_base::Time;
use carnet_cits::facilities::FacilitiesSettings;
use carnet_cits::security::{SecurityEntity, status};
use carnet_geonet::dcc::{self, DccDrop};
use carnet_geonet::{MacAddress, Mib, ReceivedFrame, geodesy};
use carnet_security::{Counters, HandledFrame, SecurityDrop, SecurityTime, VerifiedPacket};
use carnet_station::io::{
    Command, Event, Frame, GeonetOutput, GeonetRequest, GeonetTransport, Input, NemoOutput, Output, Position,
};
use carnet_station::{GeonetSettings, StationConfig};
use carnet_wire::geonet::{
    CommonNextHeader, ExtendedHeader, GeoArea, GeoAreaShape, GnAddress, Lifetime, LongPositionVector, Packet,
    StationType, Timestamp, TrafficClass,
};
use common::WALL_TIME;
use common::world::{NetworkBehaviour, station_at_time_zero};

const STATION_MAC: MacAddress = [2, 0, 0, 0, 0, 1];
/// Index of the only station in the world.
const STATION_INDEX: usize = 0;

/// A radio channel with one station only, and the frames that this station has sent.
struct SingleStationChannel {
    address: GnAddress,
    /// Each sent frame: its time, and its last octet.
    sent_frames: Vec<(Time, u8)>,
    /// Lifetimes of the sent frames.
    frame_lifetimes: Vec<Duration>,
    /// DCC profiles of the sent frames.
    frame_profiles: Vec<Option<u8>>,
    warnings: Vec<String>,
}

type ChannelWorld = common::world::TestNetwork<SingleStationChannel>;

impl NetworkBehaviour for SingleStationChannel {
    fn handle_output(world: &mut ChannelWorld, _: usize, output: Output) {
        match output {
            Output::Geonet(GeonetOutput::Frame(frame)) => {
                let [_, _, source @ ..] = world.network_behaviour.address.0.to_be_bytes();
                assert_eq!(frame.source, source);
                world
                    .network_behaviour
                    .sent_frames
                    .push((world.now, *frame.packet.last().expect("a packet")));
                world.network_behaviour.frame_profiles.push(frame.profile);
                world.network_behaviour.frame_lifetimes.push(Lifetime(frame.packet[2]).duration());
            }
            Output::Nemo(NemoOutput::Event(Event::Warning { message })) => {
                world.network_behaviour.warnings.push(message)
            }
            _ => {}
        }
    }
}

impl ChannelWorld {
    fn new(dcc: Option<dcc::GateConfig>) -> ChannelWorld {
        ChannelWorld::world_with(dcc, None, None)
    }

    fn world_with(
        dcc: Option<dcc::GateConfig>,
        facilities: Option<FacilitiesSettings>,
        security: Option<Box<dyn SecurityEntity>>,
    ) -> ChannelWorld {
        let address = GnAddress::new(false, StationType::PassengerCar, STATION_MAC);
        let settings = GeonetSettings {
            // A long interval keeps the station from sending beacons, because each single-hop broadcast
            // restarts the beacon timer.
            router_parameters: Mib { beacon_retransmit_timer: Duration::from_secs(3600), ..Mib::default() },
            facilities_settings: facilities,
            dcc_config: dcc,
            ..common::geonet_settings(address)
        };
        let mut car =
            station_at_time_zero(StationConfig { geonet: Some(settings), ..StationConfig::default() }, 1);
        if let Some(security) = security {
            car.start_security(Time::ZERO, WALL_TIME, security);
        }
        let channel = SingleStationChannel {
            address,
            sent_frames: Vec::new(),
            frame_lifetimes: Vec::new(),
            frame_profiles: Vec::new(),
            warnings: Vec::new(),
        };
        let mut world = ChannelWorld::with_stations([car], channel);
        world.now = Time::from_secs(10);
        world.set_standing_position(488_375_000);
        // Wait until the station has sent the packets of its start.
        world.run_for(Duration::from_secs(10));
        world.network_behaviour.sent_frames.clear();
        world.network_behaviour.frame_lifetimes.clear();
        world.network_behaviour.frame_profiles.clear();
        world
    }

    fn set_standing_position(&mut self, latitude: i32) {
        let position = Position {
            timestamp: 1_000_000,
            latitude,
            longitude: 21_008_000,
            accurate: true,
            speed: 0,
            heading: 0,
        };
        self.pass_recorded_input(STATION_INDEX, Input::Position(position));
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
        self.pass_recorded_input(STATION_INDEX, Input::Geonet(request));
    }

    fn counter_value(&self, name: &str) -> u64 {
        self.counter(STATION_INDEX, name)
    }

    /// Lets the station drive so fast that its movement causes a CAM every 100 ms. `tenths` is the duration
    /// in tenths of a second, `busy` the channel load. The function `often` sends other packets in each step.
    fn drive_under_load(&mut self, tenths: u16, busy: u16, mut often: impl FnMut(&mut ChannelWorld)) {
        for tenth in 0..i32::from(tenths) {
            self.set_standing_position(488_375_000 + 1000 * tenth);
            self.pass_recorded_input(STATION_INDEX, Input::ChannelBusy(busy));
            often(self);
            self.run_for(Duration::from_millis(100));
        }
    }

    /// Returns the last octet of each packet sent since `start`, with its time in milliseconds after `start`.
    fn sent_since(&mut self, start: Time) -> Vec<(u128, u8)> {
        let sent = std::mem::take(&mut self.network_behaviour.sent_frames).into_iter();
        sent.map(|(at, content)| (at.saturating_since(start).as_millis(), content)).collect()
    }
}

#[test]
fn dcc_gate_releases_waiting_packets_in_order_of_their_profiles() {
    let mut world = ChannelWorld::new(Some(dcc::GateConfig::default()));
    let start = world.now;
    for (class, content) in [(3, 30), (2, 20), (1, 10), (0, 1), (2, 21)] {
        world.send_packet(class, 60_000, content);
    }
    world.run_for(Duration::from_secs(1));
    // Packets without a traffic class have class 0.
    assert_eq!(world.sent_since(start), [(0, 30), (100, 10), (200, 20), (300, 21), (400, 1)]);
    // The frames carry the profile of their traffic class.
    assert_eq!(world.network_behaviour.frame_profiles, [3, 1, 2, 2, 3].map(Some));
    // Ten times a second, the radio reports a channel load of 90 %.
    for _ in 0..10 {
        world.pass_recorded_input(STATION_INDEX, Input::ChannelBusy(900));
        world.run_for(Duration::from_millis(100));
    }
    let gate = world.stations[STATION_INDEX].congestion_gate().expect("a gate");
    assert_eq!(
        (gate.reactive_state_name(), gate.busy_ratio_reading(world.now).map(|(_, ratio)| ratio)),
        (Some("restrictive"), Some(0.9))
    );
    let counters = world.stations[STATION_INDEX].counters();
    let named = |name: &str| counters.iter().find(|(counter, _)| counter == name).map(|(_, count)| *count);
    assert_eq!((named("geonet.dcc.sent.dp2"), named("geonet.dcc.held")), (Some(2), Some(4)));
    assert_eq!((named("geonet.dcc.sent.dp0"), named("geonet.dcc.stale")), (Some(0), Some(0)));
}

#[test]
fn gate_drops_packet_that_waits_beyond_its_lifetime() {
    let mut world = ChannelWorld::new(Some(dcc::GateConfig::default()));
    let start = world.now;
    world.send_packet(2, 60_000, 1);
    world.send_packet(2, 50, 2);
    world.send_packet(2, 60_000, 3);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.sent_since(start), [(0, 1), (100, 3)]);
    let counters = world.stations[STATION_INDEX].congestion_gate().expect("a gate").counters();
    assert_eq!(counters.dropped(DccDrop::LifetimeExpired), 1);
}

#[test]
fn reset_station_has_no_waiting_packets() {
    let mut world = ChannelWorld::new(Some(dcc::GateConfig::default()));
    let start = world.now;
    world.send_packet(2, 60_000, 1);
    world.send_packet(2, 60_000, 2);
    world.pass_recorded_input(STATION_INDEX, Input::Command(Command::ResetGeonet));
    world.run_for(Duration::from_secs(1));
    assert!(world.sent_since(start).iter().all(|(_, content)| *content != 2));
}

#[test]
fn station_without_gate_sends_at_once_and_refuses_channel_reports() {
    let mut world = ChannelWorld::new(None);
    let start = world.now;
    for content in 0..20 {
        world.send_packet(2, 60_000, content);
    }
    assert_eq!(world.sent_since(start).len(), 20);
    assert_eq!(world.network_behaviour.frame_profiles, [None; 20]);
    let refused = world.try_recorded_input(STATION_INDEX, Input::ChannelBusy(1)).expect_err("no gate");
    assert!(refused.contains("no [geonet.dcc]"), "{refused}");
    let mut world = ChannelWorld::new(Some(dcc::GateConfig::default()));
    let refused =
        world.try_recorded_input(STATION_INDEX, Input::ChannelBusy(1001)).expect_err("more than always");
    assert!(refused.contains("1001") && refused.contains("0 to 1000"), "{refused}");
}

/// A security entity for tests. Its "signature" is one octet behind the packet: the time of signing in tenths
/// of a second.
#[derive(Debug, Default)]
struct ClockEntity {
    counters: Counters,
}

impl SecurityEntity for ClockEntity {
    fn handle_frame(&mut self, _: SecurityTime, _: ReceivedFrame<'_>) -> Result<HandledFrame, SecurityDrop> {
        Ok(HandledFrame::Plain)
    }
    fn poll_verified(&mut self, _: SecurityTime) -> Option<VerifiedPacket> {
        None
    }
    fn secure(&mut self, now: SecurityTime, frame: &[u8]) -> Result<Vec<u8>, SecurityDrop> {
        let tenth = now.time.as_nanos() / 100_000_000 % 100;
        Ok([frame, &[u8::try_from(tenth).expect("small")]].concat())
    }
    fn handle_position(&mut self, _: geodesy::Position, _: u16) {}
    fn handle_address(&mut self, _: MacAddress) {}
    fn poll_timeout(&self, _: Time) -> Option<Time> {
        None
    }
    fn envelope_overhead(&self) -> usize {
        1000
    }
    fn counters(&self) -> &Counters {
        &self.counters
    }
    fn status(&self, _: SecurityTime) -> status::Security {
        status::Security::default()
    }
}

#[test]
fn packet_is_signed_when_it_leaves_the_gate() {
    let mut world = ChannelWorld::world_with(
        Some(dcc::GateConfig::default()),
        None,
        Some(Box::new(ClockEntity::default())),
    );
    let start = world.now;
    for content in 1..=3 {
        world.send_packet(2, 60_000, content);
    }
    world.run_for(Duration::from_secs(1));
    // A packet that is longer than a millisecond on the air closes the gate for twice the usual time.
    assert_eq!(world.sent_since(start), [(0, 0), (200, 2), (400, 4)]);
}

#[test]
fn dcc_wait_reduces_lifetime_and_single_hop_packet_waits_a_second() {
    let mut world = ChannelWorld::new(Some(dcc::GateConfig::default()));
    for content in 0..4 {
        world.send_packet(2, 1000, content);
    }
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.network_behaviour.frame_lifetimes, [1000, 900, 800, 700].map(Duration::from_millis));
    let mut world =
        ChannelWorld::new(Some(dcc::GateConfig { queue_length: 20, ..dcc::GateConfig::default() }));
    for content in 0..15 {
        world.send_packet(2, 60_000, content);
    }
    world.run_for(Duration::from_secs(5));
    assert_eq!(
        (
            world.network_behaviour.sent_frames.len(),
            world.counter_value("geonet.dcc.dropped.lifetime_expired")
        ),
        (10, 5)
    );
}

#[test]
fn traffic_class_of_forwarded_packet_does_not_raise_its_priority() {
    let mut world = ChannelWorld::new(Some(dcc::GateConfig::default()));
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
    world.pass_recorded_input(STATION_INDEX, Input::Frame(frame));
    world.send_packet(2, 60_000, 2);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.sent_since(start), [(0, 1), (100, 2), (200, 99)]);
}

/// EN 302 636-4-1 F.3 at the gate: if another station forwards a packet that waits at the gate, the station
/// drops its own copy.
#[test]
fn packet_forwarded_by_another_station_leaves_the_queue() {
    for (copy, expected) in [(false, vec![(0, 1), (1000, 99)]), (true, vec![(0, 1)])] {
        let mut world = ChannelWorld::new(Some(dcc::GateConfig::default()));
        world.pass_recorded_input(STATION_INDEX, Input::ChannelBusy(900));
        world.run_for(Duration::from_millis(100));
        let start = world.now;
        // A packet of this station closes the gate for a second. The contention for the next packet ends
        // within a tenth of a second.
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
            shape: GeoAreaShape::Circle,
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
        world.pass_recorded_input(STATION_INDEX, Input::Frame(frame(9, &packet)));
        for _ in 0..5 {
            world.pass_recorded_input(STATION_INDEX, Input::ChannelBusy(900));
            world.run_for(Duration::from_millis(100));
        }
        assert_eq!(world.counter_value("geonet.dcc.held"), 1);
        packet.basic.remaining_hop_limit -= 1;
        if copy {
            world.pass_recorded_input(STATION_INDEX, Input::Frame(frame(8, &packet)));
        }
        for _ in 0..10 {
            world.pass_recorded_input(STATION_INDEX, Input::ChannelBusy(900));
            world.run_for(Duration::from_millis(100));
        }
        assert_eq!(world.sent_since(start), expected);
        assert_eq!(world.counter_value("geonet.dcc.dropped.overheard"), u64::from(copy));
    }
}

#[test]
fn address_change_drops_waiting_packets_of_the_old_address() {
    let mut world = ChannelWorld::new(Some(dcc::GateConfig::default()));
    let start = world.now;
    world.send_packet(2, 60_000, 1);
    world.send_packet(2, 60_000, 2);
    world.network_behaviour.address = GnAddress::new(false, StationType::PassengerCar, [2, 0, 0, 0, 0, 7]);
    world.pass_recorded_input(STATION_INDEX, Input::GeonetAddress(world.network_behaviour.address.0));
    world.send_packet(2, 60_000, 3);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.sent_since(start), [(0, 1), (100, 3)]);
    assert_eq!(world.counter_value("geonet.dcc.dropped.address_changed"), 1);
}

#[test]
fn end_of_channel_reports_is_logged_once() {
    let mut world = ChannelWorld::new(Some(dcc::GateConfig::default()));
    for _ in 0..2 {
        world.pass_recorded_input(STATION_INDEX, Input::ChannelBusy(900));
        world.run_for(Duration::from_secs(3));
    }
    assert_eq!(
        (world.network_behaviour.warnings.len(), world.counter_value("geonet.dcc.stale")),
        (1, 2),
        "{:?}",
        world.network_behaviour.warnings
    );
}

#[test]
fn cam_rate_follows_dcc_gate() {
    let mut world = ChannelWorld::world_with(
        Some(dcc::GateConfig::default()),
        Some(common::facilities_of_passenger_car()),
        None,
    );
    for (busy, expected) in [(100, 95..=100), (900, 9..=11), (450, 23..=26)] {
        // Drive until congestion control has reached its new state and the CAM interval of the previous state
        // has ended.
        world.drive_under_load(20, busy, |_| {});
        let before = world.counter_value("facilities.cam.sent");
        world.drive_under_load(100, busy, |_| {});
        let made = world.counter_value("facilities.cam.sent") - before;
        assert!(expected.contains(&made), "{made} CAMs in 10 s at {busy}, expected {expected:?}");
    }
    assert_eq!(world.counter_value("geonet.dcc.dropped.replaced"), 0);
}

#[test]
fn newer_cam_replaces_waiting_cam() {
    let mut world = ChannelWorld::world_with(
        Some(dcc::GateConfig::default()),
        Some(common::facilities_of_passenger_car()),
        None,
    );
    world.drive_under_load(50, 100, |world| {
        world.send_packet(1, 1000, 1);
        assert!(world.stations[STATION_INDEX].congestion_gate().expect("a gate").queue_lengths()[2] <= 1);
    });
    assert!(world.counter_value("geonet.dcc.dropped.replaced") > 20);
}
