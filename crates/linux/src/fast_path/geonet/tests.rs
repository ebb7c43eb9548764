//! The tests run the programs in the kernel on one frame at a time (`BPF_PROG_TEST_RUN`), and compare the
//! result with the slow path. A [`Station`] sets the programs' tasks and processes a copy of the frame.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::process::Command;
use std::time::Duration;

use aya::programs::SchedClassifier;
use aya::{TestRun, TestRunOptions};
use carnet_base::{Rng, Time, WallTime};
use carnet_geonet::Mib;
use carnet_geonet::ipv6_adaptation::{Ipv6Config, addresses};
use carnet_station::io::{Frame, GeonetOutput, Input, Output, Position, VirtualFrame};
use carnet_station::{GeonetSettings, PersistentState, Station, StationConfig};
use carnet_wire::fragment::FragmentHeader;
use carnet_wire::geonet::{
    CommonNextHeader, ExtendedHeader, GnAddress, Lifetime, LongPositionVector, Packet, StationType, Timestamp,
};
use carnet_wire::ipv6::{Header, protocol};
use nix::sched::{CloneFlags, unshare};

use super::{AttachedInterface, FastPathInterfaces, GeonetPath, UPDATE_TIMEOUT};
use crate::clock;
use crate::fast_path::programs::find_program;
use crate::netlink::Requests;

const WALL: WallTime = WallTime::from_unix_nanos(1_800_000_000_000_000_000);
/// Link-layer addresses: the station with the programs, a neighbour, a station behind the neighbour, and a
/// station to the west.
const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const NEAR: [u8; 6] = [2, 0, 0, 0, 0, 2];
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 3];
const WEST: [u8; 6] = [2, 0, 0, 0, 0, 9];
const BROADCAST: [u8; 6] = [0xff; 6];

const PASS: i32 = -1;
const DROP: i32 = 2;
const REDIRECT: i32 = 7;

/// Returns the longitude of a station in tenths of microdegrees. Neighbours are about 350 m apart.
fn longitude(mac: [u8; 6]) -> i32 {
    21_008_000
        + match mac {
            NEAR => 50_000,
            FAR => 100_000,
            WEST => -50_000,
            _ => 0,
        }
}

fn vector(mac: [u8; 6], timestamp: u32) -> LongPositionVector {
    LongPositionVector {
        address: GnAddress::new(false, StationType::PassengerCar, mac),
        timestamp: Timestamp(timestamp),
        latitude: 488_375_000,
        longitude: longitude(mac),
        accurate: true,
        speed: 100,
        heading: 900,
    }
}

fn guc(from: [u8; 6], to: [u8; 6], sequence: u16, next_header: CommonNextHeader, payload: &[u8]) -> Vec<u8> {
    let extended = ExtendedHeader::GeoUnicast {
        sequence,
        source: vector(from, 2000 + u32::from(sequence)),
        destination: vector(to, 1000).to_short(),
    };
    Packet::new(extended, next_header, Lifetime::from_duration(Duration::from_secs(60)), 10, payload).emit()
}

fn beacon(from: [u8; 6]) -> Vec<u8> {
    let extended = ExtendedHeader::Beacon { source: vector(from, 1500) };
    Packet::new(extended, CommonNextHeader::Any, Lifetime::from_duration(Duration::from_secs(1)), 1, &[])
        .emit()
}

fn ipv6(next_header: u8, source: Ipv6Addr, destination: Ipv6Addr, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        traffic_class: 0,
        flow_label: 5,
        payload_length: payload.len() as u16,
        next_header,
        hop_limit: 64,
        source,
        destination,
    };
    [&header.emit()[..], payload].concat()
}

fn udp(source: Ipv6Addr, destination: Ipv6Addr, length: usize) -> Vec<u8> {
    ipv6(protocol::UDP, source, destination, &vec![7; length])
}

/// Returns a Fragment header with the offset `offset` (octets), followed by the data `behind`.
fn fragment(next_header: u8, offset: u16, behind: &[u8]) -> Vec<u8> {
    let header = FragmentHeader { next_header, offset, more_fragments: true, identification: 7 };
    ipv6(protocol::FRAGMENT, host(2), host(1), &[&header.emit(), behind].concat())
}

fn host(number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, 0x100)
}

fn framed(destination: [u8; 6], source: [u8; 6], ether_type: u16, packet: &[u8]) -> Vec<u8> {
    [&destination[..], &source, &ether_type.to_be_bytes(), packet].concat()
}

/// Returns a frame that this station receives from the radio.
fn heard(from: [u8; 6], packet: &[u8]) -> Vec<u8> {
    framed(OWN, from, 0x8947, packet)
}

struct Bench {
    path: GeonetPath,
    station: Station,
    now: Time,
    indices: BTreeMap<String, u32>,
}

/// Runs `body` in a new network namespace. Without the right to create one, prints a message that the test is
/// skipped.
fn on_bench(body: impl FnOnce(&mut Bench) + Send + 'static) {
    let thread = std::thread::spawn(move || {
        let obstacle = match unshare(CloneFlags::CLONE_NEWNET) {
            Err(error) => Some(format!("cannot make a network namespace: {error}")),
            Ok(()) => GeonetPath::open().err().map(|why| format!("the kernel takes no BPF programs: {why}")),
        };
        if let Some(reason) = obstacle {
            assert!(std::env::var("CARNET_REQUIRE_ROOT").as_deref() != Ok("1"), "{reason}");
            println!("\nSKIPPED: {reason}");
            return;
        }
        let mut bench = Bench::new();
        body(&mut bench);
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn station(dcc: Option<carnet_geonet::dcc::GateConfig>) -> Station {
    let ipv6 = Ipv6Config {
        interface: "gn0".into(),
        dynamic_interface: None,
        areas: Vec::new(),
        learnt_links: 0,
        hop_limit: Some(7),
        mtu: 1398,
        reorder_wait: Duration::ZERO,
        reorder_rule: carnet_geonet::ipv6_adaptation::in_order::ReorderRule::Shorter,
        reorder_hold: Default::default(),
        congestion_mark: None,
        fragments: false,
    };
    let mib = Mib { max_packet_data_rate: None, ..Mib::default() };
    let address = Some(GnAddress::new(false, StationType::PassengerCar, OWN));
    let geonet = Some(GeonetSettings {
        router_parameters: mib,
        address,
        ipv6_config: Some(ipv6),
        multicast_config: None,
        facilities_settings: None,
        dcc_config: dcc,
    });
    let config = StationConfig { geonet, ..StationConfig::default() };
    Station::new(config, PersistentState::default(), Rng::new(7), clock::now(), WALL)
}

impl Bench {
    fn new() -> Bench {
        for name in ["radio", "gn0"] {
            let line = format!("link add {name} type veth peer name {name}x");
            assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success());
        }
        let mut requests = Requests::open().unwrap();
        let mut place = |name: &str| {
            let index = requests.links().find(name).unwrap().unwrap().index;
            AttachedInterface { name: name.into(), index }
        };
        let (radio, virtual_interface) = (place("radio"), place("gn0"));
        let mut path = GeonetPath::open().unwrap();
        path.attach(Some(FastPathInterfaces {
            radio,
            virtual_interface: Some(virtual_interface),
            address: OWN,
        }))
        .unwrap();
        let links = requests.links().list().unwrap();
        let indices = links.into_iter().map(|link| (link.name, link.index)).collect();
        let mut bench = Bench { path, station: station(None), now: clock::now(), indices };
        bench.station.share_sequence_numbers(bench.path.sequence_numbers());
        bench.outputs();
        bench.tell(Input::GeonetFastPath(true));
        bench.refresh();
        for (mac, from) in [(NEAR, beacon(NEAR)), (WEST, beacon(WEST))] {
            bench.tell(Input::Frame(Frame {
                source: mac,
                profile: None,
                destination: BROADCAST,
                packet: from,
            }));
        }
        // The station learns FAR from packets that NEAR forwards.
        let tsb = ExtendedHeader::TopologicallyScoped { sequence: 1, source: vector(FAR, 1500) };
        let lifetime = Lifetime::from_duration(Duration::from_secs(60));
        let packet = Packet::new(tsb, CommonNextHeader::BtpB, lifetime, 2, b"data").emit();
        bench.tell(Input::Frame(Frame { source: NEAR, profile: None, destination: BROADCAST, packet }));
        bench
    }

    /// Gives the station an input, and applies the station's update to the fast path.
    fn tell(&mut self, input: Input) -> Vec<Output> {
        self.station.handle_input(self.now, WALL, input).unwrap();
        self.outputs()
    }

    fn outputs(&mut self) -> Vec<Output> {
        let mut rest = Vec::new();
        while let Some(output) = self.station.poll_output() {
            match output {
                Output::Geonet(GeonetOutput::Accelerate(told)) => self.path.apply(self.now, &told),
                other => rest.push(other),
            }
        }
        rest
    }

    /// Sends the station its position and a beacon of each neighbour.
    fn refresh(&mut self) {
        self.now = clock::now();
        let position = Position {
            timestamp: 5000,
            latitude: 488_375_000,
            longitude: longitude(OWN),
            accurate: true,
            speed: 0,
            heading: 0,
        };
        self.tell(Input::Position(position));
        let report = self.path.report();
        self.tell(Input::GeonetReport(report));
    }

    /// Runs a program on a frame. Returns the verdict and the frame.
    fn run(&mut self, program: &str, frame: &[u8]) -> (i32, Vec<u8>) {
        let interface = match program {
            "in" => "radio",
            "out" => "gn0",
            _ => "gn0-i",
        };
        let mut out = vec![0; frame.len() + 256];
        let mut context = vec![0; 192];
        for at in [36, 40] {
            context[at..at + 4].copy_from_slice(&self.indices[interface].to_ne_bytes());
        }
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ctx_in: Some(&context),
            ..TestRunOptions::default()
        };
        let result =
            find_program::<SchedClassifier>(&mut self.path.ebpf, program).unwrap().test_run(options).unwrap();
        out.truncate(result.data_size_out as usize);
        (result.return_value as i32, out)
    }

    /// Returns the frame that the fast path sends for a frame of the host; `None` if it leaves the frame to
    /// the slow path.
    fn sent_fast(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let (verdict, out) = self.run("out", frame);
        assert_eq!(out, frame);
        if verdict == PASS {
            return None;
        }
        assert_eq!(verdict, REDIRECT, "{frame:02x?}");
        let (verdict, out) = self.run("wrap", frame);
        assert_eq!(verdict, REDIRECT, "{frame:02x?}");
        // If the program sends nothing, the test run returns the frame unchanged.
        (out != frame).then_some(out)
    }

    /// Returns the frames that the slow path sends for a frame of the host.
    fn sent_slowly(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let (ethernet, payload) = frame.split_at(14);
        let frame = VirtualFrame {
            link: 0,
            destination: ethernet[..6].try_into().unwrap(),
            source: ethernet[6..12].try_into().unwrap(),
            ether_type: u16::from_be_bytes([ethernet[12], ethernet[13]]),
            payload: payload.to_vec(),
        };
        let outputs = self.tell(Input::VirtualFrame(frame));
        let frames = outputs.into_iter().filter_map(|output| match output {
            Output::Geonet(GeonetOutput::Frame(frame)) => {
                Some(framed(frame.destination, frame.source, 0x8947, &frame.packet))
            }
            _ => None,
        });
        frames.collect()
    }

    /// Returns the slow path's results for a frame of the radio: frames for the host, and forwarded frames.
    fn heard_slowly(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let frame = Frame {
            destination: frame[..6].try_into().unwrap(),
            source: frame[6..12].try_into().unwrap(),
            profile: None,
            packet: frame[14..].to_vec(),
        };
        let outputs = self.tell(Input::Frame(frame));
        let done = outputs.into_iter().filter_map(|output| match output {
            Output::Geonet(GeonetOutput::Frame(frame)) => {
                Some(framed(frame.destination, frame.source, 0x8947, &frame.packet))
            }
            Output::Geonet(GeonetOutput::Ipv6 { destination, source, delivered, .. }) => {
                Some(framed(destination, source, 0x86dd, &delivered.payload))
            }
            _ => None,
        });
        done.collect()
    }

    /// Makes the programs learn a station from its packets, and waits for the settling time.
    fn know(&mut self, from: [u8; 6], to: [u8; 6], sequence: u16) {
        let packet = udp(host(2), host(1), 30);
        let frame = heard(from, &guc(from, to, sequence, CommonNextHeader::Ipv6, &packet));
        if self.run("in", &frame).0 == PASS {
            assert_eq!(self.heard_slowly(&frame).len(), 1);
        }
        std::thread::sleep(super::NEW_STATION_DELAY + Duration::from_millis(10));
        self.refresh();
    }
}

/// Returns the sequence number of a frame.
fn sequence(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[26], frame[27]])
}

fn with_sequence(mut frame: Vec<u8>, sequence: u16) -> Vec<u8> {
    frame[26..28].copy_from_slice(&sequence.to_be_bytes());
    frame
}

/// Returns whether a station with this DCC config gives permissions to a fast path. Needs no kernel.
fn accelerates(dcc: Option<carnet_geonet::dcc::GateConfig>) -> bool {
    let mut station = station(dcc);
    let now = clock::now();
    let position = Position {
        timestamp: 5000,
        latitude: 488_375_000,
        longitude: longitude(OWN),
        accurate: true,
        speed: 0,
        heading: 0,
    };
    let beacon = Frame { source: NEAR, profile: None, destination: BROADCAST, packet: beacon(NEAR) };
    let payload = udp(host(1), host(2), 100);
    let ipv6 = VirtualFrame { link: 0, destination: NEAR, source: OWN, ether_type: 0x86dd, payload };
    let mut outputs = Vec::new();
    outputs.extend(std::iter::from_fn(|| station.poll_output()));
    for input in [
        Input::Position(position),
        Input::GeonetFastPath(true),
        Input::Frame(beacon),
        Input::VirtualFrame(ipv6),
    ] {
        station.handle_input(now, WALL, input).unwrap();
        outputs.extend(std::iter::from_fn(|| station.poll_output()));
    }
    outputs.iter().any(|output| matches!(output, Output::Geonet(GeonetOutput::Accelerate(_))))
}

#[test]
fn station_with_congestion_gate_has_no_fast_path() {
    assert!(accelerates(None));
    assert!(!accelerates(Some(carnet_geonet::dcc::GateConfig::default())));
}

#[test]
fn fast_path_sends_own_packets_like_the_router() {
    on_bench(|bench| {
        for (to, next_hop) in [(NEAR, NEAR), (FAR, NEAR)] {
            let frame = framed(to, OWN, 0x86dd, &udp(host(1), host(2), 100));
            assert_eq!(bench.sent_fast(&frame), None, "nothing is known yet");
            let first = &bench.sent_slowly(&frame)[0];
            assert_eq!(first[..6], next_hop);
            for length in [1, 8, 100, 1358] {
                let frame = framed(to, OWN, 0x86dd, &udp(host(1), host(2), length));
                let before = bench.path.shared.sequence();
                let fast = bench.sent_fast(&frame).unwrap();
                let slow = bench.sent_slowly(&frame).remove(0);
                assert_eq!((sequence(&fast), sequence(&slow)), (before, before + 1));
                assert_eq!(with_sequence(fast, 0), with_sequence(slow, 0), "{length}");
            }
        }
        let report = bench.path.report();
        assert_eq!((report.sent, report.own_packet_destinations), (8, vec![NEAR, FAR]));
        assert!(bench.path.report().own_packet_destinations.is_empty());
    });
}

#[test]
fn uncommon_packets_take_the_slow_path() {
    on_bench(|bench| {
        let good = udp(host(1), host(2), 100);
        bench.sent_slowly(&framed(NEAR, OWN, 0x86dd, &good));
        assert!(bench.sent_fast(&framed(NEAR, OWN, 0x86dd, &good)).is_some());
        let link_local = addresses::link_local_address;
        let icmpv6 = |kind: u8| {
            ipv6(protocol::ICMPV6, link_local(OWN), link_local(NEAR), &[kind, 0, 0, 0, 0, 0, 0, 0])
        };
        for kind in [1, 2, 3, 4, 128, 129] {
            assert!(bench.sent_fast(&framed(NEAR, OWN, 0x86dd, &icmpv6(kind))).is_some(), "{kind}");
        }
        let mut left = vec![
            framed(NEAR, NEAR, 0x86dd, &good),
            framed([0x33, 0x33, 0, 0, 0, 1], OWN, 0x86dd, &good),
            framed(WEST, OWN, 0x86dd, &good),
            framed(NEAR, OWN, 0x0800, &good),
            framed(NEAR, OWN, 0x86dd, &udp(host(1), host(2), 1359)),
            framed(NEAR, OWN, 0x86dd, &[&good[..], &[0]].concat()),
            framed(NEAR, OWN, 0x86dd, &good[..good.len() - 1]),
            framed(NEAR, OWN, 0x86dd, &[&[0x40], &good[1..]].concat()),
            framed(NEAR, OWN, 0x86dd, &ipv6(0, host(1), host(2), &[59, 0, 0, 0, 0, 0, 0, 0])),
            framed(NEAR, OWN, 0x86dd, &udp(host(1), host(2), 0)),
            framed(
                NEAR,
                OWN,
                0x86dd,
                &ipv6(protocol::MOBILITY, host(1), host(2), &[59, 0, 5, 0, 0, 0, 0, 0]),
            ),
        ];
        left.extend(
            [133, 134, 135, 136, 137, 143, 0, 130].map(|kind| framed(NEAR, OWN, 0x86dd, &icmpv6(kind))),
        );
        let odd = [Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST, "ff02::1".parse().unwrap()];
        left.extend(odd.map(|address| framed(NEAR, OWN, 0x86dd, &udp(address, host(2), 100))));
        left.extend(odd.map(|address| framed(NEAR, OWN, 0x86dd, &udp(host(1), address, 100))));
        for frame in left {
            assert_eq!(bench.sent_fast(&frame), None, "{frame:02x?}");
        }
    });
}

/// Only the first fragment of a packet shows whether it is Neighbor Discovery (RFC 6980, RFC 7112).
#[test]
fn fast_path_takes_fragments_of_host_packets() {
    on_bench(|bench| {
        bench.sent_slowly(&framed(NEAR, OWN, 0x86dd, &udp(host(1), host(2), 100)));
        bench.know(NEAR, OWN, 50);
        let mut number = 100;
        let mut taken = |next_header, offset, behind: &[u8]| {
            let packet = fragment(next_header, offset, behind);
            let sent = bench.sent_fast(&framed(NEAR, OWN, 0x86dd, &packet)).is_some();
            number += 1;
            let frame = heard(NEAR, &guc(NEAR, OWN, number, CommonNextHeader::Ipv6, &packet));
            let (verdict, out) = bench.run("in", &frame);
            let slow = bench.heard_slowly(&frame);
            if verdict == REDIRECT {
                assert_eq!(vec![out], slow, "{packet:02x?}");
            }
            assert_eq!(sent, verdict == REDIRECT, "{packet:02x?}");
            sent
        };
        let echo = [128, 0, 0, 0, 0, 0, 0, 0];
        let solicitation = [135, 0, 0, 0, 0, 0, 0, 0];
        assert!(taken(protocol::ICMPV6, 0, &echo));
        assert!(taken(protocol::UDP, 0, &[0; 8]));
        assert!(!taken(protocol::ICMPV6, 0, &solicitation));
        assert!(!taken(protocol::ICMPV6, 0, &[]), "no type to be seen");
        assert!(taken(protocol::ICMPV6, 8, &solicitation), "data of a later fragment");
        for hidden in [
            protocol::HOP_BY_HOP,
            protocol::ROUTING,
            protocol::FRAGMENT,
            protocol::DESTINATION_OPTIONS,
            protocol::MOBILITY,
        ] {
            assert!(!taken(hidden, 0, &echo), "{hidden}");
        }
    });
}

#[test]
fn fast_path_handles_only_permitted_packets() {
    on_bench(|bench| {
        let frame = framed(NEAR, OWN, 0x86dd, &udp(host(1), host(2), 100));
        bench.sent_slowly(&frame);
        assert!(bench.sent_fast(&frame).is_some());
        // The router sends no update for longer than [`UPDATE_TIMEOUT`].
        std::thread::sleep(UPDATE_TIMEOUT + Duration::from_millis(20));
        assert_eq!(bench.sent_fast(&frame), None);
        bench.refresh();
        assert!(bench.sent_fast(&frame).is_some());
        // The second program restores the frame that the first program has changed, if the path has ended
        // meanwhile.
        let (verdict, _) = bench.run("out", &frame);
        assert_eq!(verdict, REDIRECT);
        // The router removes a neighbour that did not acknowledge a frame.
        let lost = Frame {
            source: OWN,
            profile: None,
            destination: NEAR,
            packet: guc(OWN, FAR, 9, CommonNextHeader::Ipv6, b""),
        };
        bench.tell(Input::Unacknowledged(lost));
        let (verdict, out) = bench.run("wrap", &frame);
        assert_eq!((verdict, out), (REDIRECT, frame.clone()));
        assert_eq!(bench.sent_fast(&frame), None);
        // A beacon brings the neighbour back.
        bench.refresh();
        let mut packet = beacon(NEAR);
        packet[20..24].copy_from_slice(&9000u32.to_be_bytes());
        bench.tell(Input::Frame(Frame { source: NEAR, profile: None, destination: BROADCAST, packet }));
        assert!(bench.sent_fast(&frame).is_some());
        // The router resets its state.
        bench.tell(Input::Command(carnet_station::io::Command::ResetGeonet));
        assert_eq!(bench.sent_fast(&frame), None);
    });
}

#[test]
fn fast_path_delivers_packets_like_the_router() {
    on_bench(|bench| {
        bench.know(NEAR, OWN, 50);
        for (number, length) in [(51, 1), (52, 100), (53, 1358)] {
            let packet = udp(host(2), host(1), length);
            let frame = heard(NEAR, &guc(NEAR, OWN, number, CommonNextHeader::Ipv6, &packet));
            let (verdict, out) = bench.run("in", &frame);
            assert_eq!(verdict, REDIRECT);
            assert_eq!(vec![out], bench.heard_slowly(&frame), "{length}");
            // The program drops a second copy of the frame as a duplicate, also with the broadcast address as
            // destination.
            assert_eq!(bench.run("in", &frame).0, DROP);
            assert_eq!(bench.run("in", &[&BROADCAST, &frame[6..]].concat()).0, DROP);
        }
        // The first packet took the slow path because of its type, so its copies must take the slow path as
        // well.
        let btp = heard(NEAR, &guc(NEAR, OWN, 54, CommonNextHeader::BtpB, b"payload"));
        assert_eq!((bench.run("in", &btp).0, bench.run("in", &btp).0), (PASS, PASS));
        let packet = udp(host(2), host(1), 10);
        let copy = guc(NEAR, OWN, 55, CommonNextHeader::Ipv6, &packet);
        assert_eq!(bench.run("in", &framed(BROADCAST, NEAR, 0x8947, &copy)).0, PASS);
        assert_eq!(bench.run("in", &heard(NEAR, &copy)).0, PASS);
        // The duplicate packet list forgets the oldest sequence numbers, as the standard requires.
        for number in 60..68 {
            let frame = heard(NEAR, &guc(NEAR, OWN, number, CommonNextHeader::Ipv6, &packet));
            assert_eq!(bench.run("in", &frame).0, REDIRECT);
        }
        let old = |number| heard(NEAR, &guc(NEAR, OWN, number, CommonNextHeader::Ipv6, &packet));
        assert_eq!((bench.run("in", &old(53)).0, bench.run("in", &old(67)).0), (REDIRECT, DROP));
    });
}

#[test]
fn router_learns_from_fast_path_report() {
    on_bench(|bench| {
        bench.know(NEAR, OWN, 50);
        let packet = udp(host(2), host(1), 100);
        for number in 51..60 {
            let frame = heard(NEAR, &guc(NEAR, OWN, number, CommonNextHeader::Ipv6, &packet));
            assert_eq!(bench.run("in", &frame).0, REDIRECT);
        }
        let report = bench.path.report();
        let [sample] = &report.samples[..] else { panic!("{report:?}") };
        assert_eq!(sample.vector, vector(NEAR, 2059));
        assert_eq!((report.delivered, sample.octets, sample.direct), (9, 9 * 200, true));
        assert_eq!(sample.sequences, (52..60).collect::<Vec<u16>>());
        bench.tell(Input::GeonetReport(report));
        let router = bench.station.geonet().unwrap();
        let (_, entry) = router.location_table().iter().find(|(_, entry)| entry.mac() == NEAR).unwrap();
        assert_eq!(entry.position_vector().timestamp, Timestamp(2059));
        assert!(bench.path.report().samples.is_empty());
        // If the programs no longer know a sequence number, the router recognises the duplicate.
        let frame = heard(NEAR, &guc(NEAR, OWN, 59, CommonNextHeader::Ipv6, &packet));
        assert!(bench.heard_slowly(&frame).is_empty());
    });
}

#[test]
fn fast_path_forwards_packets_like_the_router() {
    on_bench(|bench| {
        for (to, number) in [(FAR, 50), (NEAR, 70)] {
            bench.know(WEST, to, number);
            for next_header in [CommonNextHeader::Ipv6, CommonNextHeader::BtpB, CommonNextHeader::Any] {
                let number = number
                    + 1
                    + u16::from(next_header == CommonNextHeader::BtpB)
                    + 2 * u16::from(next_header == CommonNextHeader::Any);
                let frame = heard(WEST, &guc(WEST, to, number, next_header, &[5; 80]));
                let (verdict, out) = bench.run("in", &frame);
                assert_eq!(verdict, REDIRECT, "{next_header:?}");
                assert_eq!(vec![out], bench.heard_slowly(&frame), "{next_header:?}");
            }
        }
        // A packet on its last hop takes the slow path, and so does a packet with another destination
        // position. A packet whose destination position is newer than the router's is forwarded by the
        // programs.
        let mut last = heard(WEST, &guc(WEST, FAR, 80, CommonNextHeader::Ipv6, &[5; 80]));
        last[14 + 3] = 1;
        assert_eq!(bench.run("in", &last).0, PASS);
        let mut elsewhere = heard(WEST, &guc(WEST, FAR, 81, CommonNextHeader::Ipv6, &[5; 80]));
        elsewhere[14 + 59] ^= 1;
        assert_eq!(bench.run("in", &elsewhere).0, PASS);
        let mut better = heard(WEST, &guc(WEST, NEAR, 82, CommonNextHeader::Ipv6, &[5; 80]));
        better[14 + 48..14 + 52].copy_from_slice(&7000u32.to_be_bytes());
        let (verdict, out) = bench.run("in", &better);
        assert_eq!((verdict, &out[14 + 40..14 + 60]), (REDIRECT, &better[14 + 40..14 + 60]));
        assert_eq!(bench.path.report().forwarded, 4, "since the programs learnt about NEAR");
    });
}

/// The test changes each octet of the headers in turn. The programs must treat each changed frame like the
/// router.
#[test]
fn fast_path_treats_mutated_frames_like_the_router() {
    on_bench(|bench| {
        bench.path.set_addresses([host(9)]);
        bench.know(WEST, FAR, 50);
        bench.know(WEST, OWN, 51);
        let (mut number, mut taken) = (100, 0);
        for to in [OWN, FAR] {
            let source = if to == OWN { addresses::link_local_address(WEST) } else { host(2) };
            // The position of the source may make it the next hop. The programs learn of that from the
            // router's next update.
            let place = if to == FAR { 14 + 28..14 + 36 } else { 0..0 };
            // The last octets that the test changes are a Fragment header.
            for at in (0..14 + 60 + 40 + 9).filter(|at| !place.contains(at)) {
                bench.refresh();
                for change in [0x01, 0x02, 0x10, 0x40, 0x80, 0xff] {
                    number += 1;
                    let whole = at < 14 + 60 + 41;
                    let packet = if whole {
                        udp(source, host(1), 60)
                    } else {
                        fragment(protocol::ICMPV6, 0, &[128; 16])
                    };
                    let mut frame = heard(WEST, &guc(WEST, to, number, CommonNextHeader::Ipv6, &packet));
                    frame[at] ^= change;
                    let (verdict, out) = bench.run("in", &frame);
                    // The router ignores frames of other EtherTypes.
                    let expected =
                        if frame[12..14] == [0x89, 0x47] { bench.heard_slowly(&frame) } else { Vec::new() };
                    match verdict {
                        PASS => assert_eq!(out, frame),
                        REDIRECT => {
                            taken += 1;
                            assert_eq!(vec![out], expected, "octet {at} changed by {change:#x}");
                        }
                        // With the changed octet, the sequence number is one that the program has seen, so
                        // the frame is a duplicate.
                        DROP => assert!(expected.is_empty(), "octet {at} changed by {change:#x}"),
                        _ => panic!("octet {at} changed by {change:#x}: verdict {verdict}"),
                    }
                }
            }
        }
        assert!(taken > 300, "{taken}");
    });
}
