//! The tests run the programs in the kernel on one frame at a time (`BPF_PROG_TEST_RUN`), and compare the
//! result with the slow path. A [`Station`] is the slow path: it configures the programs by its updates, and
//! processes a copy of the frame.

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

use super::{AttachedInterface, FastPathInterfaces, GeonetBpfPath, UPDATE_TIMEOUT};
use crate::clock;
use crate::fast_path::bpf_programs::find_program;
use crate::netlink::NetlinkRequests;

const WALL_TIME: WallTime = WallTime::from_unix_nanos(1_800_000_000_000_000_000);
/// Link-layer addresses: the station with the programs, a neighbour, a station behind the neighbour, and a
/// station to the west.
const STATION_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const NEAR_NEIGHBOUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const FAR_STATION_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];
const WESTERN_STATION_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const BROADCAST_MAC: [u8; 6] = [0xff; 6];

const TC_PASS: i32 = -1;
const TC_DROP: i32 = 2;
const TC_REDIRECT: i32 = 7;

/// Returns the longitude of a station in tenths of microdegrees. Neighbours are about 350 m apart.
fn longitude_of(mac: [u8; 6]) -> i32 {
    21_008_000
        + match mac {
            NEAR_NEIGHBOUR_MAC => 50_000,
            FAR_STATION_MAC => 100_000,
            WESTERN_STATION_MAC => -50_000,
            _ => 0,
        }
}

fn position_vector_of(mac: [u8; 6], timestamp: u32) -> LongPositionVector {
    LongPositionVector {
        address: GnAddress::new(false, StationType::PassengerCar, mac),
        timestamp: Timestamp(timestamp),
        latitude: 488_375_000,
        longitude: longitude_of(mac),
        accurate: true,
        speed: 100,
        heading: 900,
    }
}

fn unicast_packet(
    from: [u8; 6],
    to: [u8; 6],
    sequence: u16,
    next_header: CommonNextHeader,
    payload: &[u8],
) -> Vec<u8> {
    let extended = ExtendedHeader::GeoUnicast {
        sequence,
        source: position_vector_of(from, 2000 + u32::from(sequence)),
        destination: position_vector_of(to, 1000).to_short(),
    };
    Packet::new(extended, next_header, Lifetime::from_duration(Duration::from_secs(60)), 10, payload).emit()
}

fn beacon_packet(from: [u8; 6]) -> Vec<u8> {
    let extended = ExtendedHeader::Beacon { source: position_vector_of(from, 1500) };
    Packet::new(extended, CommonNextHeader::Any, Lifetime::from_duration(Duration::from_secs(1)), 1, &[])
        .emit()
}

fn ipv6_packet(next_header: u8, source: Ipv6Addr, destination: Ipv6Addr, payload: &[u8]) -> Vec<u8> {
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

fn udp_packet(source: Ipv6Addr, destination: Ipv6Addr, length: usize) -> Vec<u8> {
    ipv6_packet(protocol::UDP, source, destination, &vec![7; length])
}

/// Returns a Fragment header with the offset `offset` (octets), followed by the data `behind`.
fn fragment_header(next_header: u8, offset: u16, behind: &[u8]) -> Vec<u8> {
    let header = FragmentHeader { next_header, offset, more_fragments: true, identification: 7 };
    ipv6_packet(protocol::FRAGMENT, host_address(2), host_address(1), &[&header.emit(), behind].concat())
}

fn host_address(number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, 0x100)
}

fn ethernet_frame(destination: [u8; 6], source: [u8; 6], ether_type: u16, packet: &[u8]) -> Vec<u8> {
    [&destination[..], &source, &ether_type.to_be_bytes(), packet].concat()
}

/// Returns a frame that this station receives from the radio.
fn frame_from_radio(from: [u8; 6], packet: &[u8]) -> Vec<u8> {
    ethernet_frame(STATION_MAC, from, 0x8947, packet)
}

struct TestBench {
    path: GeonetBpfPath,
    station: Station,
    now: Time,
    interface_indices: BTreeMap<String, u32>,
}

/// Runs `body` in a new network namespace. Without the right to create one, prints a message that the test is
/// skipped.
fn run_on_bench(body: impl FnOnce(&mut TestBench) + Send + 'static) {
    let thread = std::thread::spawn(move || {
        let obstacle = match unshare(CloneFlags::CLONE_NEWNET) {
            Err(error) => Some(format!("cannot make a network namespace: {error}")),
            Ok(()) => {
                GeonetBpfPath::open().err().map(|why| format!("the kernel takes no BPF programs: {why}"))
            }
        };
        if let Some(reason) = obstacle {
            assert!(std::env::var("CARNET_REQUIRE_ROOT").as_deref() != Ok("1"), "{reason}");
            println!("\nSKIPPED: {reason}");
            return;
        }
        let mut bench = TestBench::new();
        body(&mut bench);
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn new_station(dcc: Option<carnet_geonet::dcc::GateConfig>) -> Station {
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
        fragments_large_packets: false,
    };
    let mib = Mib { max_packet_data_rate: None, ..Mib::default() };
    let address = Some(GnAddress::new(false, StationType::PassengerCar, STATION_MAC));
    let geonet = Some(GeonetSettings {
        router_parameters: mib,
        address,
        ipv6_config: Some(ipv6),
        multicast_config: None,
        facilities_settings: None,
        dcc_config: dcc,
    });
    let config = StationConfig { geonet, ..StationConfig::default() };
    Station::new(config, PersistentState::default(), Rng::new(7), clock::now(), WALL_TIME)
}

impl TestBench {
    fn new() -> TestBench {
        for name in ["radio", "gn0"] {
            let line = format!("link add {name} type veth peer name {name}x");
            assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success());
        }
        let mut requests = NetlinkRequests::open().unwrap();
        let mut place = |name: &str| {
            let index = requests.link_requests().find_link(name).unwrap().unwrap().index;
            AttachedInterface { name: name.into(), index }
        };
        let (radio, virtual_interface) = (place("radio"), place("gn0"));
        let mut path = GeonetBpfPath::open().unwrap();
        path.attach_to(Some(FastPathInterfaces {
            radio_interface: radio,
            virtual_interface: Some(virtual_interface),
            address: STATION_MAC,
        }))
        .unwrap();
        let links = requests.link_requests().list_links().unwrap();
        let indices = links.into_iter().map(|link| (link.name, link.index)).collect();
        let mut bench =
            TestBench { path, station: new_station(None), now: clock::now(), interface_indices: indices };
        bench.station.share_sequence_numbers(bench.path.sequence_numbers());
        bench.take_outputs();
        bench.handle_input(Input::GeonetFastPath(true));
        bench.send_position_and_beacons();
        for (mac, from) in [
            (NEAR_NEIGHBOUR_MAC, beacon_packet(NEAR_NEIGHBOUR_MAC)),
            (WESTERN_STATION_MAC, beacon_packet(WESTERN_STATION_MAC)),
        ] {
            bench.handle_input(Input::Frame(Frame {
                source: mac,
                profile: None,
                destination: BROADCAST_MAC,
                packet: from,
            }));
        }
        // The station learns the station behind the neighbour from packets that the neighbour forwards.
        let tsb = ExtendedHeader::TopologicallyScoped {
            sequence: 1,
            source: position_vector_of(FAR_STATION_MAC, 1500),
        };
        let lifetime = Lifetime::from_duration(Duration::from_secs(60));
        let packet = Packet::new(tsb, CommonNextHeader::BtpB, lifetime, 2, b"data").emit();
        bench.handle_input(Input::Frame(Frame {
            source: NEAR_NEIGHBOUR_MAC,
            profile: None,
            destination: BROADCAST_MAC,
            packet,
        }));
        bench
    }

    /// Gives the station an input, and applies the station's update to the fast path.
    fn handle_input(&mut self, input: Input) -> Vec<Output> {
        self.station.handle_input(self.now, WALL_TIME, input).unwrap();
        self.take_outputs()
    }

    fn take_outputs(&mut self) -> Vec<Output> {
        let mut rest = Vec::new();
        while let Some(output) = self.station.poll_output() {
            match output {
                Output::Geonet(GeonetOutput::Accelerate(told)) => self.path.apply_update(self.now, &told),
                other => rest.push(other),
            }
        }
        rest
    }

    /// Sends the station its position and a beacon of each neighbour.
    fn send_position_and_beacons(&mut self) {
        self.now = clock::now();
        let position = Position {
            timestamp: 5000,
            latitude: 488_375_000,
            longitude: longitude_of(STATION_MAC),
            accurate: true,
            speed: 0,
            heading: 0,
        };
        self.handle_input(Input::Position(position));
        let report = self.path.take_report();
        self.handle_input(Input::GeonetReport(report));
    }

    /// Runs a program on a frame. Returns the verdict and the frame.
    fn run_program(&mut self, program: &str, frame: &[u8]) -> (i32, Vec<u8>) {
        let interface = match program {
            "in" => "radio",
            "out" => "gn0",
            _ => "gn0-i",
        };
        let mut out = vec![0; frame.len() + 256];
        let mut context = vec![0; 192];
        for at in [36, 40] {
            context[at..at + 4].copy_from_slice(&self.interface_indices[interface].to_ne_bytes());
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
    fn sent_by_fast_path(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let (verdict, out) = self.run_program("out", frame);
        assert_eq!(out, frame);
        if verdict == TC_PASS {
            return None;
        }
        assert_eq!(verdict, TC_REDIRECT, "{frame:02x?}");
        let (verdict, out) = self.run_program("wrap", frame);
        assert_eq!(verdict, TC_REDIRECT, "{frame:02x?}");
        // If the program sends nothing, the test run returns the frame unchanged.
        (out != frame).then_some(out)
    }

    /// Returns the frames that the slow path sends for a frame of the host.
    fn sent_by_slow_path(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let (ethernet, payload) = frame.split_at(14);
        let frame = VirtualFrame {
            link: 0,
            destination: ethernet[..6].try_into().unwrap(),
            source: ethernet[6..12].try_into().unwrap(),
            ether_type: u16::from_be_bytes([ethernet[12], ethernet[13]]),
            payload: payload.to_vec(),
        };
        let outputs = self.handle_input(Input::VirtualFrame(frame));
        let frames = outputs.into_iter().filter_map(|output| match output {
            Output::Geonet(GeonetOutput::Frame(frame)) => {
                Some(ethernet_frame(frame.destination, frame.source, 0x8947, &frame.packet))
            }
            _ => None,
        });
        frames.collect()
    }

    /// Returns the slow path's results for a frame of the radio: frames for the host, and forwarded frames.
    fn received_by_slow_path(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let frame = Frame {
            destination: frame[..6].try_into().unwrap(),
            source: frame[6..12].try_into().unwrap(),
            profile: None,
            packet: frame[14..].to_vec(),
        };
        let outputs = self.handle_input(Input::Frame(frame));
        let done = outputs.into_iter().filter_map(|output| match output {
            Output::Geonet(GeonetOutput::Frame(frame)) => {
                Some(ethernet_frame(frame.destination, frame.source, 0x8947, &frame.packet))
            }
            Output::Geonet(GeonetOutput::Ipv6 { destination, source, delivered, .. }) => {
                Some(ethernet_frame(destination, source, 0x86dd, &delivered.payload))
            }
            _ => None,
        });
        done.collect()
    }

    /// Makes the programs learn a station from its packets, and waits until they handle its frames
    /// ([`NEW_STATION_DELAY`]).
    fn learn_station(&mut self, from: [u8; 6], to: [u8; 6], sequence: u16) {
        let packet = udp_packet(host_address(2), host_address(1), 30);
        let frame =
            frame_from_radio(from, &unicast_packet(from, to, sequence, CommonNextHeader::Ipv6, &packet));
        if self.run_program("in", &frame).0 == TC_PASS {
            assert_eq!(self.received_by_slow_path(&frame).len(), 1);
        }
        std::thread::sleep(super::NEW_STATION_DELAY + Duration::from_millis(10));
        self.send_position_and_beacons();
    }
}

/// Returns the sequence number of a frame.
fn sequence_number_of(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[26], frame[27]])
}

fn with_sequence_number(mut frame: Vec<u8>, sequence: u16) -> Vec<u8> {
    frame[26..28].copy_from_slice(&sequence.to_be_bytes());
    frame
}

/// Returns whether a station with this DCC config gives permissions to a fast path. Needs no kernel.
fn permits_fast_path_with(dcc: Option<carnet_geonet::dcc::GateConfig>) -> bool {
    let mut station = new_station(dcc);
    let now = clock::now();
    let position = Position {
        timestamp: 5000,
        latitude: 488_375_000,
        longitude: longitude_of(STATION_MAC),
        accurate: true,
        speed: 0,
        heading: 0,
    };
    let beacon = Frame {
        source: NEAR_NEIGHBOUR_MAC,
        profile: None,
        destination: BROADCAST_MAC,
        packet: beacon_packet(NEAR_NEIGHBOUR_MAC),
    };
    let payload = udp_packet(host_address(1), host_address(2), 100);
    let ipv6 = VirtualFrame {
        link: 0,
        destination: NEAR_NEIGHBOUR_MAC,
        source: STATION_MAC,
        ether_type: 0x86dd,
        payload,
    };
    let mut outputs = Vec::new();
    outputs.extend(std::iter::from_fn(|| station.poll_output()));
    for input in [
        Input::Position(position),
        Input::GeonetFastPath(true),
        Input::Frame(beacon),
        Input::VirtualFrame(ipv6),
    ] {
        station.handle_input(now, WALL_TIME, input).unwrap();
        outputs.extend(std::iter::from_fn(|| station.poll_output()));
    }
    outputs.iter().any(|output| matches!(output, Output::Geonet(GeonetOutput::Accelerate(_))))
}

#[test]
fn station_with_congestion_gate_has_no_fast_path() {
    assert!(permits_fast_path_with(None));
    assert!(!permits_fast_path_with(Some(carnet_geonet::dcc::GateConfig::default())));
}

#[test]
fn fast_path_sends_own_packets_like_the_router() {
    run_on_bench(|bench| {
        for (to, next_hop) in
            [(NEAR_NEIGHBOUR_MAC, NEAR_NEIGHBOUR_MAC), (FAR_STATION_MAC, NEAR_NEIGHBOUR_MAC)]
        {
            let frame =
                ethernet_frame(to, STATION_MAC, 0x86dd, &udp_packet(host_address(1), host_address(2), 100));
            assert_eq!(bench.sent_by_fast_path(&frame), None, "nothing is known yet");
            let first = &bench.sent_by_slow_path(&frame)[0];
            assert_eq!(first[..6], next_hop);
            for length in [1, 8, 100, 1358] {
                let frame = ethernet_frame(
                    to,
                    STATION_MAC,
                    0x86dd,
                    &udp_packet(host_address(1), host_address(2), length),
                );
                let before = bench.path.shared_counters.next_sequence_number();
                let fast = bench.sent_by_fast_path(&frame).unwrap();
                let slow = bench.sent_by_slow_path(&frame).remove(0);
                assert_eq!((sequence_number_of(&fast), sequence_number_of(&slow)), (before, before + 1));
                assert_eq!(with_sequence_number(fast, 0), with_sequence_number(slow, 0), "{length}");
            }
        }
        let report = bench.path.take_report();
        assert_eq!(
            (report.sent, report.own_packet_destinations),
            (8, vec![NEAR_NEIGHBOUR_MAC, FAR_STATION_MAC])
        );
        assert!(bench.path.take_report().own_packet_destinations.is_empty());
    });
}

#[test]
fn uncommon_geonetworking_packets_take_the_slow_path() {
    run_on_bench(|bench| {
        let good = udp_packet(host_address(1), host_address(2), 100);
        bench.sent_by_slow_path(&ethernet_frame(NEAR_NEIGHBOUR_MAC, STATION_MAC, 0x86dd, &good));
        assert!(
            bench
                .sent_by_fast_path(&ethernet_frame(NEAR_NEIGHBOUR_MAC, STATION_MAC, 0x86dd, &good))
                .is_some()
        );
        let link_local = addresses::link_local_address;
        let icmpv6 = |kind: u8| {
            ipv6_packet(
                protocol::ICMPV6,
                link_local(STATION_MAC),
                link_local(NEAR_NEIGHBOUR_MAC),
                &[kind, 0, 0, 0, 0, 0, 0, 0],
            )
        };
        for kind in [1, 2, 3, 4, 128, 129] {
            assert!(
                bench
                    .sent_by_fast_path(&ethernet_frame(
                        NEAR_NEIGHBOUR_MAC,
                        STATION_MAC,
                        0x86dd,
                        &icmpv6(kind)
                    ))
                    .is_some(),
                "{kind}"
            );
        }
        let mut left = vec![
            ethernet_frame(NEAR_NEIGHBOUR_MAC, NEAR_NEIGHBOUR_MAC, 0x86dd, &good),
            ethernet_frame([0x33, 0x33, 0, 0, 0, 1], STATION_MAC, 0x86dd, &good),
            ethernet_frame(WESTERN_STATION_MAC, STATION_MAC, 0x86dd, &good),
            ethernet_frame(NEAR_NEIGHBOUR_MAC, STATION_MAC, 0x0800, &good),
            ethernet_frame(
                NEAR_NEIGHBOUR_MAC,
                STATION_MAC,
                0x86dd,
                &udp_packet(host_address(1), host_address(2), 1359),
            ),
            ethernet_frame(NEAR_NEIGHBOUR_MAC, STATION_MAC, 0x86dd, &[&good[..], &[0]].concat()),
            ethernet_frame(NEAR_NEIGHBOUR_MAC, STATION_MAC, 0x86dd, &good[..good.len() - 1]),
            ethernet_frame(NEAR_NEIGHBOUR_MAC, STATION_MAC, 0x86dd, &[&[0x40], &good[1..]].concat()),
            ethernet_frame(
                NEAR_NEIGHBOUR_MAC,
                STATION_MAC,
                0x86dd,
                &ipv6_packet(0, host_address(1), host_address(2), &[59, 0, 0, 0, 0, 0, 0, 0]),
            ),
            ethernet_frame(
                NEAR_NEIGHBOUR_MAC,
                STATION_MAC,
                0x86dd,
                &udp_packet(host_address(1), host_address(2), 0),
            ),
            ethernet_frame(
                NEAR_NEIGHBOUR_MAC,
                STATION_MAC,
                0x86dd,
                &ipv6_packet(
                    protocol::MOBILITY,
                    host_address(1),
                    host_address(2),
                    &[59, 0, 5, 0, 0, 0, 0, 0],
                ),
            ),
        ];
        left.extend(
            [133, 134, 135, 136, 137, 143, 0, 130]
                .map(|kind| ethernet_frame(NEAR_NEIGHBOUR_MAC, STATION_MAC, 0x86dd, &icmpv6(kind))),
        );
        let odd = [Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST, "ff02::1".parse().unwrap()];
        left.extend(odd.map(|address| {
            ethernet_frame(
                NEAR_NEIGHBOUR_MAC,
                STATION_MAC,
                0x86dd,
                &udp_packet(address, host_address(2), 100),
            )
        }));
        left.extend(odd.map(|address| {
            ethernet_frame(
                NEAR_NEIGHBOUR_MAC,
                STATION_MAC,
                0x86dd,
                &udp_packet(host_address(1), address, 100),
            )
        }));
        for frame in left {
            assert_eq!(bench.sent_by_fast_path(&frame), None, "{frame:02x?}");
        }
    });
}

/// Only the first fragment of a packet shows whether it is Neighbor Discovery (RFC 6980, RFC 7112).
#[test]
fn fast_path_takes_fragments_of_host_packets() {
    run_on_bench(|bench| {
        bench.sent_by_slow_path(&ethernet_frame(
            NEAR_NEIGHBOUR_MAC,
            STATION_MAC,
            0x86dd,
            &udp_packet(host_address(1), host_address(2), 100),
        ));
        bench.learn_station(NEAR_NEIGHBOUR_MAC, STATION_MAC, 50);
        let mut number = 100;
        let mut taken = |next_header, offset, behind: &[u8]| {
            let packet = fragment_header(next_header, offset, behind);
            let sent = bench
                .sent_by_fast_path(&ethernet_frame(NEAR_NEIGHBOUR_MAC, STATION_MAC, 0x86dd, &packet))
                .is_some();
            number += 1;
            let frame = frame_from_radio(
                NEAR_NEIGHBOUR_MAC,
                &unicast_packet(NEAR_NEIGHBOUR_MAC, STATION_MAC, number, CommonNextHeader::Ipv6, &packet),
            );
            let (verdict, out) = bench.run_program("in", &frame);
            let slow = bench.received_by_slow_path(&frame);
            if verdict == TC_REDIRECT {
                assert_eq!(vec![out], slow, "{packet:02x?}");
            }
            assert_eq!(sent, verdict == TC_REDIRECT, "{packet:02x?}");
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
    run_on_bench(|bench| {
        let frame = ethernet_frame(
            NEAR_NEIGHBOUR_MAC,
            STATION_MAC,
            0x86dd,
            &udp_packet(host_address(1), host_address(2), 100),
        );
        bench.sent_by_slow_path(&frame);
        assert!(bench.sent_by_fast_path(&frame).is_some());
        // The router sends no update for longer than [`UPDATE_TIMEOUT`].
        std::thread::sleep(UPDATE_TIMEOUT + Duration::from_millis(20));
        assert_eq!(bench.sent_by_fast_path(&frame), None);
        bench.send_position_and_beacons();
        assert!(bench.sent_by_fast_path(&frame).is_some());
        // The second program restores the frame that the first program has changed, if the update has become
        // too old between the two programs.
        let (verdict, _) = bench.run_program("out", &frame);
        assert_eq!(verdict, TC_REDIRECT);
        // The router removes a neighbour that did not acknowledge a frame.
        let lost = Frame {
            source: STATION_MAC,
            profile: None,
            destination: NEAR_NEIGHBOUR_MAC,
            packet: unicast_packet(STATION_MAC, FAR_STATION_MAC, 9, CommonNextHeader::Ipv6, b""),
        };
        bench.handle_input(Input::Unacknowledged(lost));
        let (verdict, out) = bench.run_program("wrap", &frame);
        assert_eq!((verdict, out), (TC_REDIRECT, frame.clone()));
        assert_eq!(bench.sent_by_fast_path(&frame), None);
        // A beacon brings the neighbour back.
        bench.send_position_and_beacons();
        let mut packet = beacon_packet(NEAR_NEIGHBOUR_MAC);
        packet[20..24].copy_from_slice(&9000u32.to_be_bytes());
        bench.handle_input(Input::Frame(Frame {
            source: NEAR_NEIGHBOUR_MAC,
            profile: None,
            destination: BROADCAST_MAC,
            packet,
        }));
        assert!(bench.sent_by_fast_path(&frame).is_some());
        // The router resets its state.
        bench.handle_input(Input::Command(carnet_station::io::Command::ResetGeonet));
        assert_eq!(bench.sent_by_fast_path(&frame), None);
    });
}

#[test]
fn fast_path_delivers_packets_like_the_router() {
    run_on_bench(|bench| {
        bench.learn_station(NEAR_NEIGHBOUR_MAC, STATION_MAC, 50);
        for (number, length) in [(51, 1), (52, 100), (53, 1358)] {
            let packet = udp_packet(host_address(2), host_address(1), length);
            let frame = frame_from_radio(
                NEAR_NEIGHBOUR_MAC,
                &unicast_packet(NEAR_NEIGHBOUR_MAC, STATION_MAC, number, CommonNextHeader::Ipv6, &packet),
            );
            let (verdict, out) = bench.run_program("in", &frame);
            assert_eq!(verdict, TC_REDIRECT);
            assert_eq!(vec![out], bench.received_by_slow_path(&frame), "{length}");
            // The program drops a second copy of the frame as a duplicate, also with the broadcast address as
            // destination.
            assert_eq!(bench.run_program("in", &frame).0, TC_DROP);
            assert_eq!(bench.run_program("in", &[&BROADCAST_MAC, &frame[6..]].concat()).0, TC_DROP);
        }
        // The first packet took the slow path because of its type, so its copies must take the slow path as
        // well.
        let btp = frame_from_radio(
            NEAR_NEIGHBOUR_MAC,
            &unicast_packet(NEAR_NEIGHBOUR_MAC, STATION_MAC, 54, CommonNextHeader::BtpB, b"payload"),
        );
        assert_eq!((bench.run_program("in", &btp).0, bench.run_program("in", &btp).0), (TC_PASS, TC_PASS));
        let packet = udp_packet(host_address(2), host_address(1), 10);
        let copy = unicast_packet(NEAR_NEIGHBOUR_MAC, STATION_MAC, 55, CommonNextHeader::Ipv6, &packet);
        assert_eq!(
            bench.run_program("in", &ethernet_frame(BROADCAST_MAC, NEAR_NEIGHBOUR_MAC, 0x8947, &copy)).0,
            TC_PASS
        );
        assert_eq!(bench.run_program("in", &frame_from_radio(NEAR_NEIGHBOUR_MAC, &copy)).0, TC_PASS);
        // The duplicate packet list forgets the oldest sequence numbers, as the standard requires.
        for number in 60..68 {
            let frame = frame_from_radio(
                NEAR_NEIGHBOUR_MAC,
                &unicast_packet(NEAR_NEIGHBOUR_MAC, STATION_MAC, number, CommonNextHeader::Ipv6, &packet),
            );
            assert_eq!(bench.run_program("in", &frame).0, TC_REDIRECT);
        }
        let old = |number| {
            frame_from_radio(
                NEAR_NEIGHBOUR_MAC,
                &unicast_packet(NEAR_NEIGHBOUR_MAC, STATION_MAC, number, CommonNextHeader::Ipv6, &packet),
            )
        };
        assert_eq!(
            (bench.run_program("in", &old(53)).0, bench.run_program("in", &old(67)).0),
            (TC_REDIRECT, TC_DROP)
        );
    });
}

#[test]
fn router_learns_from_fast_path_report() {
    run_on_bench(|bench| {
        bench.learn_station(NEAR_NEIGHBOUR_MAC, STATION_MAC, 50);
        let packet = udp_packet(host_address(2), host_address(1), 100);
        for number in 51..60 {
            let frame = frame_from_radio(
                NEAR_NEIGHBOUR_MAC,
                &unicast_packet(NEAR_NEIGHBOUR_MAC, STATION_MAC, number, CommonNextHeader::Ipv6, &packet),
            );
            assert_eq!(bench.run_program("in", &frame).0, TC_REDIRECT);
        }
        let report = bench.path.take_report();
        let [sample] = &report.samples[..] else { panic!("{report:?}") };
        assert_eq!(sample.vector, position_vector_of(NEAR_NEIGHBOUR_MAC, 2059));
        assert_eq!((report.delivered, sample.octets, sample.direct), (9, 9 * 200, true));
        assert_eq!(sample.sequences, (52..60).collect::<Vec<u16>>());
        bench.handle_input(Input::GeonetReport(report));
        let router = bench.station.geonet().unwrap();
        let (_, entry) =
            router.location_table().iter().find(|(_, entry)| entry.mac() == NEAR_NEIGHBOUR_MAC).unwrap();
        assert_eq!(entry.position_vector().timestamp, Timestamp(2059));
        assert!(bench.path.take_report().samples.is_empty());
        // If the programs no longer know a sequence number, the router recognises the duplicate.
        let frame = frame_from_radio(
            NEAR_NEIGHBOUR_MAC,
            &unicast_packet(NEAR_NEIGHBOUR_MAC, STATION_MAC, 59, CommonNextHeader::Ipv6, &packet),
        );
        assert!(bench.received_by_slow_path(&frame).is_empty());
    });
}

#[test]
fn fast_path_forwards_packets_like_the_router() {
    run_on_bench(|bench| {
        for (to, number) in [(FAR_STATION_MAC, 50), (NEAR_NEIGHBOUR_MAC, 70)] {
            bench.learn_station(WESTERN_STATION_MAC, to, number);
            for next_header in [CommonNextHeader::Ipv6, CommonNextHeader::BtpB, CommonNextHeader::Any] {
                let number = number
                    + 1
                    + u16::from(next_header == CommonNextHeader::BtpB)
                    + 2 * u16::from(next_header == CommonNextHeader::Any);
                let frame = frame_from_radio(
                    WESTERN_STATION_MAC,
                    &unicast_packet(WESTERN_STATION_MAC, to, number, next_header, &[5; 80]),
                );
                let (verdict, out) = bench.run_program("in", &frame);
                assert_eq!(verdict, TC_REDIRECT, "{next_header:?}");
                assert_eq!(vec![out], bench.received_by_slow_path(&frame), "{next_header:?}");
            }
        }
        // A packet on its last hop takes the slow path, and so does a packet with another destination
        // position. A packet whose destination position is newer than the router's is forwarded by the
        // programs.
        let mut last = frame_from_radio(
            WESTERN_STATION_MAC,
            &unicast_packet(WESTERN_STATION_MAC, FAR_STATION_MAC, 80, CommonNextHeader::Ipv6, &[5; 80]),
        );
        last[14 + 3] = 1;
        assert_eq!(bench.run_program("in", &last).0, TC_PASS);
        let mut elsewhere = frame_from_radio(
            WESTERN_STATION_MAC,
            &unicast_packet(WESTERN_STATION_MAC, FAR_STATION_MAC, 81, CommonNextHeader::Ipv6, &[5; 80]),
        );
        elsewhere[14 + 59] ^= 1;
        assert_eq!(bench.run_program("in", &elsewhere).0, TC_PASS);
        let mut better = frame_from_radio(
            WESTERN_STATION_MAC,
            &unicast_packet(WESTERN_STATION_MAC, NEAR_NEIGHBOUR_MAC, 82, CommonNextHeader::Ipv6, &[5; 80]),
        );
        better[14 + 48..14 + 52].copy_from_slice(&7000u32.to_be_bytes());
        let (verdict, out) = bench.run_program("in", &better);
        assert_eq!((verdict, &out[14 + 40..14 + 60]), (TC_REDIRECT, &better[14 + 40..14 + 60]));
        assert_eq!(bench.path.take_report().forwarded, 4, "since the programs learnt about NEAR");
    });
}

/// The test changes each octet of the headers in turn. The programs must treat each changed frame like the
/// router.
#[test]
fn fast_path_treats_mutated_frames_like_the_router() {
    run_on_bench(|bench| {
        bench.path.set_addresses([host_address(9)]);
        bench.learn_station(WESTERN_STATION_MAC, FAR_STATION_MAC, 50);
        bench.learn_station(WESTERN_STATION_MAC, STATION_MAC, 51);
        let (mut number, mut taken) = (100, 0);
        for to in [STATION_MAC, FAR_STATION_MAC] {
            let source = if to == STATION_MAC {
                addresses::link_local_address(WESTERN_STATION_MAC)
            } else {
                host_address(2)
            };
            // The test does not change the position of the source. A new position may make the source a next
            // hop. The programs learn this only from the router's next update.
            let place = if to == FAR_STATION_MAC { 14 + 28..14 + 36 } else { 0..0 };
            // The last octets that the test changes are a Fragment header.
            for at in (0..14 + 60 + 40 + 9).filter(|at| !place.contains(at)) {
                bench.send_position_and_beacons();
                for change in [0x01, 0x02, 0x10, 0x40, 0x80, 0xff] {
                    number += 1;
                    let whole = at < 14 + 60 + 41;
                    let packet = if whole {
                        udp_packet(source, host_address(1), 60)
                    } else {
                        fragment_header(protocol::ICMPV6, 0, &[128; 16])
                    };
                    let mut frame = frame_from_radio(
                        WESTERN_STATION_MAC,
                        &unicast_packet(WESTERN_STATION_MAC, to, number, CommonNextHeader::Ipv6, &packet),
                    );
                    frame[at] ^= change;
                    let (verdict, out) = bench.run_program("in", &frame);
                    // The router ignores frames of other EtherTypes.
                    let expected = if frame[12..14] == [0x89, 0x47] {
                        bench.received_by_slow_path(&frame)
                    } else {
                        Vec::new()
                    };
                    match verdict {
                        TC_PASS => assert_eq!(out, frame),
                        TC_REDIRECT => {
                            taken += 1;
                            assert_eq!(vec![out], expected, "octet {at} changed by {change:#x}");
                        }
                        // With the changed octet, the sequence number is one that the program has seen, so
                        // the frame is a duplicate.
                        TC_DROP => assert!(expected.is_empty(), "octet {at} changed by {change:#x}"),
                        _ => panic!("octet {at} changed by {change:#x}: verdict {verdict}"),
                    }
                }
            }
        }
        assert!(taken > 300, "{taken}");
    });
}
