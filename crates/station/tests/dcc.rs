//! Congestion control in a whole station, in virtual time.

use std::time::Duration;

use carnet_base::{Rng, Time, WallTime};
use carnet_geonet::dcc::{self, DccDrop};
use carnet_geonet::{MacAddress, Mib};
use carnet_station::io::{Command, GeonetRequest, GeonetTransport, Input, Output, Position};
use carnet_station::{GeonetSettings, PersistentState, Station, StationConfig};
use carnet_wire::geonet::{GnAddress, StationType};

const WALL: WallTime = WallTime::from_unix_nanos(1_800_000_000_000_000_000);
const MAC: MacAddress = [2, 0, 0, 0, 0, 1];

/// A station and the frames that it has sent: when, and the last octet.
struct Bench {
    station: Station,
    now: Time,
    sent: Vec<(Time, u8)>,
}

impl Bench {
    fn new(dcc: Option<dcc::Config>) -> Bench {
        let settings = GeonetSettings {
            // No beacons: an SHB sets their timer back, so a long one is enough.
            mib: Mib { beacon_retransmit_timer: Duration::from_secs(3600), ..Mib::default() },
            address: Some(GnAddress::new(false, StationType::PassengerCar, MAC)),
            ipv6: None,
            multicast: None,
            facilities: None,
            dcc,
        };
        let config = StationConfig { geonet: Some(settings), ..StationConfig::default() };
        let state = PersistentState::default();
        let station = Station::new(config, state, Rng::new(1), Time::ZERO, WALL);
        let mut bench = Bench { station, now: Time::from_secs(10), sent: Vec::new() };
        let position = Position {
            timestamp: 1_000_000,
            latitude: 488_375_000,
            longitude: 21_008_000,
            accurate: true,
            speed: 0,
            heading: 0,
        };
        bench.tell(Input::Position(position)).expect("accepted");
        // What a start sends goes.
        bench.pass(Duration::from_secs(10));
        bench.sent.clear();
        bench
    }

    fn tell(&mut self, input: Input) -> Result<(), String> {
        // Through the recording's format, so that it is known to hold everything.
        let line = serde_json::to_string(&input).expect("serialises");
        let input = serde_json::from_str(&line).expect("deserialises");
        let result = self.station.handle_input(self.now, WALL, input);
        while let Some(output) = self.station.poll_output() {
            if let Output::Frame(frame) = output {
                assert_eq!(frame.source, MAC);
                self.sent.push((self.now, *frame.packet.last().expect("a packet")));
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

    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(due) = self.station.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.tell(Input::Timeout).expect("accepted");
        }
        self.now = end;
    }

    /// Milliseconds after `start` and contents of what was sent.
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
    assert_eq!(bench.sent_since(start), [(0, 30), (100, 1), (200, 10), (300, 20), (400, 21)]);
    // The channel is full, and that is told ten times a second.
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
fn what_begins_anew_has_nothing_waiting() {
    let mut bench = Bench::new(Some(dcc::Config::default()));
    let start = bench.now;
    bench.send(2, 60_000, 1);
    bench.send(2, 60_000, 2);
    bench.tell(Input::Command(Command::ResetGeonet)).expect("accepted");
    bench.pass(Duration::from_secs(1));
    assert!(bench.sent_since(start).iter().all(|(_, content)| *content != 2));
}

#[test]
fn without_a_gate_everything_goes_at_once_and_nobody_wants_to_know_the_channel() {
    let mut bench = Bench::new(None);
    let start = bench.now;
    for content in 0..20 {
        bench.send(2, 60_000, content);
    }
    assert_eq!(bench.sent_since(start).len(), 20);
    let refused = bench.tell(Input::ChannelBusy(1)).expect_err("no gate");
    assert!(refused.contains("no [geonet.dcc]"), "{refused}");
    let mut bench = Bench::new(Some(dcc::Config::default()));
    let refused = bench.tell(Input::ChannelBusy(1001)).expect_err("more than always");
    assert!(refused.contains("1001") && refused.contains("0 to 1000"), "{refused}");
}
