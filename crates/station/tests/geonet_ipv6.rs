//! IPv6 over GeoNetworking between two stations in virtual time, with frames from and to their hosts.

mod common;

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Rng, Time, WallTime};
use carnet_geonet::ipv6_adaptation::{Ipv6Config, addresses};
use carnet_station::io::{
    AreaCentreCommand, AreaCommand, AreaShape, Command, Frame, GeonetOutput, Input, Output, Position,
    VirtualFrame, VirtualLink,
};
use carnet_station::{GeonetSettings, PersistentState, Station, StationConfig};
use carnet_wire::geonet::{
    CommonNextHeader, ExtendedHeader, GnAddress, Lifetime, LongPositionVector, Packet, ShortPositionVector,
    StationType,
};
use carnet_wire::ipv6::{Header, protocol};

const WALL_TIME: WallTime = WallTime::from_unix_nanos(1_800_000_000_000_000_000);
const START_TIME: Time = Time::from_secs(100);
const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];

fn gn_address_of_mac(mac: [u8; 6]) -> GnAddress {
    GnAddress::new(false, StationType::PassengerCar, mac)
}

fn station_config(address: Option<GnAddress>) -> StationConfig {
    let geonet = GeonetSettings {
        ipv6_config: Some(common::geonet_ipv6_config()),
        ..common::geonet_settings(address)
    };
    StationConfig { geonet: Some(geonet), ..StationConfig::default() }
}

fn new_station(mac: [u8; 6]) -> Station {
    Station::new(
        station_config(Some(gn_address_of_mac(mac))),
        PersistentState::default(),
        Rng::new(7),
        START_TIME,
        WALL_TIME,
    )
}

fn feed_and_collect(station: &mut Station, input: Input) -> Vec<Output> {
    station.handle_input(START_TIME, WALL_TIME, input).expect("accepted");
    std::iter::from_fn(|| station.poll_output()).collect()
}

fn created_links(outputs: &[Output]) -> Vec<&VirtualLink> {
    let link = outputs.iter().filter_map(|output| match output {
        Output::Geonet(GeonetOutput::VirtualLink(link)) => Some(link),
        _ => None,
    });
    link.collect()
}

fn position_input(place: i32) -> Input {
    Input::Position(Position {
        timestamp: 1000,
        latitude: 488_375_000,
        longitude: 21_008_000 + place,
        accurate: true,
        speed: 0,
        heading: 0,
    })
}

fn udp_packet(source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
    carnet_virtual::data_packet(source, destination, b"data")
}

/// Passes the frames of one station to the other station, and returns the outputs of that station.
fn deliver_frames(outputs: Vec<Output>, to: &mut Station) -> Vec<Output> {
    let frames = outputs.into_iter().filter_map(|output| match output {
        Output::Geonet(GeonetOutput::Frame(frame)) => Some(frame),
        _ => None,
    });
    frames.flat_map(|frame| feed_and_collect(to, Input::Frame(frame))).collect()
}

#[test]
fn host_packet_leaves_virtual_interface_of_destination_station() {
    let (mut a, mut b) = (new_station(A), new_station(B));
    for (station, mac) in [(&mut a, A), (&mut b, B)] {
        let outputs: Vec<Output> = std::iter::from_fn(|| station.poll_output()).collect();
        let [link] = created_links(&outputs)[..] else { panic!("{outputs:?}") };
        assert_eq!((link.name.as_str(), link.address, link.mtu), ("gn0", mac, 1398));
        assert_eq!(link.link_local, addresses::link_local_address(mac));
    }
    for (place, station) in [(0, &mut a), (1000, &mut b)] {
        feed_and_collect(station, position_input(place));
    }
    let data = udp_packet(addresses::link_local_address(A), addresses::link_local_address(B));
    let frame =
        VirtualFrame { link: 0, destination: B, source: A, ether_type: 0x86dd, payload: data.clone() };
    // The first packet waits for the reply of the Location Service.
    let asked = feed_and_collect(&mut a, Input::VirtualFrame(frame));
    let answered = deliver_frames(asked, &mut b);
    let sent = deliver_frames(answered, &mut a);
    let arrived = deliver_frames(sent, &mut b);
    let [Output::Geonet(GeonetOutput::Ipv6 { link: 0, destination, source, delivered })] = &arrived[..]
    else {
        panic!("{arrived:?}")
    };
    assert_eq!((*destination, *source, &delivered.payload), (B, A, &data));
    let counter = |station: &Station, name: &str| {
        station.counters().into_iter().find(|(known, _)| known == name).map(|(_, count)| count)
    };
    assert_eq!(counter(&a, "geonet.ipv6.sent"), Some(1));
    assert_eq!(counter(&b, "geonet.ipv6.received"), Some(1));
    assert_eq!(counter(&b, "geonet.ipv6.dropped.spoofed_source"), Some(0));
}

#[test]
fn virtual_interfaces_follow_station_address() {
    // The station learns its GN address only now, and then creates the interface.
    let mut station =
        Station::new(station_config(None), PersistentState::default(), Rng::new(7), START_TIME, WALL_TIME);
    assert_eq!(station.poll_output(), None);
    let outputs = feed_and_collect(&mut station, Input::GeonetAddress(gn_address_of_mac(A).0));
    assert_eq!(created_links(&outputs)[0].address, A);
    // An operator or an address conflict changes the address of the station.
    let outputs = feed_and_collect(&mut station, Input::GeonetAddress(gn_address_of_mac(B).0));
    let [link] = created_links(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!((link.id, link.address, link.link_local), (0, B, addresses::link_local_address(B)));
    // The radio now carries only smaller frames.
    let outputs = feed_and_collect(&mut station, Input::GeonetMtu(1400));
    assert_eq!(created_links(&outputs)[0].mtu, 1312);
    assert!(feed_and_collect(&mut station, Input::GeonetMtu(1400)).is_empty());
    // The reset of GeoNetworking keeps the address of the station that it was given last.
    let outputs = feed_and_collect(&mut station, Input::Command(Command::ResetGeonet));
    assert_eq!(
        created_links(&outputs).len(),
        0,
        "the address of the station is the one that it was given last"
    );
}

#[test]
fn station_answers_solicitations_and_knows_host_addresses() {
    let mut station = new_station(A);
    while station.poll_output().is_some() {}
    feed_and_collect(&mut station, position_input(0));
    let (own, other) = (addresses::link_local_address(A), addresses::link_local_address(B));
    let message =
        carnet_wire::nd::NeighborSolicitation { target: other, source_link_address: Some(A) }.emit();
    let question =
        carnet_wire::icmpv6::emit_packet(own, carnet_wire::nd::solicited_node_address(other), 255, message);
    let destination = addresses::group_mac(carnet_wire::nd::solicited_node_address(other));
    let frame = VirtualFrame { link: 0, destination, source: A, ether_type: 0x86dd, payload: question };
    let outputs = feed_and_collect(&mut station, Input::VirtualFrame(frame));
    let [Output::Geonet(GeonetOutput::VirtualFrame(answer))] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!((answer.link, answer.destination, answer.source, answer.ether_type), (0, A, B, 0x86dd));

    // Another station must not send packets with a source address of this station's host.
    let mine: Ipv6Addr = "2001:db8::1".parse().expect("an address");
    feed_and_collect(&mut station, Input::VirtualAddresses { link: 0, addresses: vec![(mine, 64)] });
    let mut liar = self::new_station(B);
    while liar.poll_output().is_some() {}
    feed_and_collect(&mut liar, position_input(1000));
    let group: Ipv6Addr = "ff02::1".parse().expect("an address");
    let lie = VirtualFrame {
        link: 0,
        destination: addresses::group_mac(group),
        source: B,
        ether_type: 0x86dd,
        payload: udp_packet(mine, group),
    };
    let sent = feed_and_collect(&mut liar, Input::VirtualFrame(lie));
    let heard = deliver_frames(sent, &mut station);
    assert!(
        !heard.iter().any(|output| matches!(output, Output::Geonet(GeonetOutput::Ipv6 { .. }))),
        "{heard:?}"
    );
}

/// The path becomes shorter, so packets overtake earlier ones. The station delays these packets until the
/// earlier ones have arrived, up to the time limit.
#[test]
fn packets_that_overtook_others_wait_for_them() {
    let mut config = station_config(Some(gn_address_of_mac(B)));
    if let Some(GeonetSettings { ipv6_config: Some(ipv6), .. }) = &mut config.geonet {
        ipv6.reorder_wait = Duration::from_millis(50);
    }
    let mut b = Station::new(config, PersistentState::default(), Rng::new(7), START_TIME, WALL_TIME);
    while b.poll_output().is_some() {}
    feed_and_collect(&mut b, position_input(0));
    let place = LongPositionVector {
        address: gn_address_of_mac(A),
        latitude: 488_375_000,
        ..LongPositionVector::default()
    };
    let data = udp_packet(addresses::link_local_address(A), addresses::link_local_address(B));
    // Returns a frame with this sequence number whose hop limits say that it came over `hops` hops.
    let frame = |sequence: u16, hops: u8| {
        let destination =
            ShortPositionVector { address: gn_address_of_mac(B), ..ShortPositionVector::default() };
        let extended = ExtendedHeader::GeoUnicast { sequence, source: place, destination };
        let lifetime = Lifetime::from_duration(Duration::from_secs(60));
        let mut packet = Packet::new(extended, CommonNextHeader::Ipv6, lifetime, 10, &data).emit();
        packet[3] = 11 - hops;
        Input::Frame(Frame { source: A, profile: None, destination: B, packet })
    };
    let count = |outputs: Vec<Output>| {
        outputs.iter().filter(|o| matches!(o, Output::Geonet(GeonetOutput::Ipv6 { .. }))).count()
    };
    assert_eq!(count(feed_and_collect(&mut b, frame(1, 3))), 1);
    assert_eq!(count(feed_and_collect(&mut b, frame(3, 2))), 0, "it waits for the second");
    assert_eq!(count(feed_and_collect(&mut b, frame(2, 3))), 2);
    assert_eq!(count(feed_and_collect(&mut b, frame(9, 1))), 0);
    // The missing sequence numbers belonged to packets for other stations, so the wait was useless. The next
    // wait is the shortest possible.
    let due = b.poll_timeout().expect("a wait");
    assert_eq!(due, START_TIME + Duration::from_millis(1));
    b.handle_input(due, WALL_TIME, Input::Timeout).expect("accepted");
    assert_eq!(count(std::iter::from_fn(|| b.poll_output()).collect()), 1);
    let held = b.counters().into_iter().find(|(name, _)| name == "geonet.ipv6.held");
    assert_eq!(held, Some(("geonet.ipv6.held".to_owned(), 2)));
}

/// Returns a TCP segment from port 1 of `source` to port 1 of `destination`.
fn tcp_segment(source: Ipv6Addr, destination: Ipv6Addr, numbers: (u32, u32), length: usize) -> Vec<u8> {
    let (sequence, acknowledgement) = numbers;
    let mut tcp = vec![0, 1, 0, 1];
    tcp.extend(sequence.to_be_bytes());
    tcp.extend(acknowledgement.to_be_bytes());
    tcp.extend([5 << 4, 0x10, 1, 0, 0, 0, 0, 0]);
    tcp.resize(20 + length, 0);
    let header = Header {
        traffic_class: 0b10,
        flow_label: 0,
        payload_length: tcp.len() as u16,
        next_header: protocol::TCP,
        hop_limit: 64,
        source,
        destination,
    };
    [&header.emit()[..], &tcp].concat()
}

fn counter_of(station: &Station, name: &str) -> u64 {
    station
        .counters()
        .into_iter()
        .find(|(known, _)| known == name)
        .map(|(_, count)| count)
        .expect("a counter")
}

/// Returns the IPv6 packets that the outputs send in GeoUnicast frames.
fn sent_ipv6_packets(outputs: Vec<Output>) -> Vec<Vec<u8>> {
    let packets = outputs.into_iter().filter_map(|output| match output {
        Output::Geonet(GeonetOutput::Frame(frame)) => Some(frame.packet),
        _ => None,
    });
    let ipv6 = packets.filter_map(|octets| {
        let packet = Packet::parse(&octets).expect("a packet");
        (packet.common.next_header == CommonNextHeader::Ipv6).then(|| packet.payload.to_vec())
    });
    ipv6.collect()
}

/// Returns station B, which knows A's position. Also returns a function that makes frames of A from sequence
/// number, hop count and data.
fn receiver_knowing_sender(
    configure: impl FnOnce(&mut Ipv6Config),
) -> (Station, impl Fn(u16, u8, &[u8]) -> Input) {
    let mut settings = station_config(Some(gn_address_of_mac(B)));
    configure(settings.geonet.as_mut().and_then(|geonet| geonet.ipv6_config.as_mut()).expect("IPv6"));
    let mut b = Station::new(settings, PersistentState::default(), Rng::new(7), START_TIME, WALL_TIME);
    while b.poll_output().is_some() {}
    feed_and_collect(&mut b, position_input(0));
    let frame = |sequence: u16, hops: u8, data: &[u8]| {
        let source = LongPositionVector {
            address: gn_address_of_mac(A),
            latitude: 488_375_000,
            ..LongPositionVector::default()
        };
        let destination =
            ShortPositionVector { address: gn_address_of_mac(B), ..ShortPositionVector::default() };
        let extended = ExtendedHeader::GeoUnicast { sequence, source, destination };
        let lifetime = Lifetime::from_duration(Duration::from_secs(60));
        let mut packet = Packet::new(extended, CommonNextHeader::Ipv6, lifetime, 10, data).emit();
        packet[3] = 11 - hops;
        Input::Frame(Frame { source: A, profile: None, destination: B, packet })
    };
    (b, frame)
}

/// The station delays the host's duplicate acknowledgement while the missing packet may still arrive by the
/// longer path.
#[test]
fn duplicate_acknowledgements_wait_for_late_packets() {
    let (mut b, frame) = receiver_knowing_sender(|ipv6| {
        ipv6.reorder_wait = Duration::from_millis(50);
        ipv6.reorder_rule = carnet_geonet::ipv6_adaptation::in_order::ReorderRule::Changed;
        ipv6.reorder_hold = carnet_geonet::ipv6_adaptation::ReorderHold::Acknowledgements;
    });
    let (there, here) = (addresses::link_local_address(A), addresses::link_local_address(B));
    let data = |number: u32| tcp_segment(there, here, (number * 100, 0), 100);
    let acknowledge = |number: u32| {
        let payload = tcp_segment(here, there, (0, number * 100), 0);
        Input::VirtualFrame(VirtualFrame { link: 0, destination: A, source: B, ether_type: 0x86dd, payload })
    };
    let delivered = |outputs: &[Output]| {
        outputs.iter().any(|output| matches!(output, Output::Geonet(GeonetOutput::Ipv6 { .. })))
    };
    assert!(delivered(&feed_and_collect(&mut b, frame(1, 3, &data(0)))));
    assert_eq!(sent_ipv6_packets(feed_and_collect(&mut b, acknowledge(1))).len(), 1);
    assert!(delivered(&feed_and_collect(&mut b, frame(3, 2, &data(2)))), "data never waits");
    assert!(sent_ipv6_packets(feed_and_collect(&mut b, acknowledge(1))).is_empty());
    assert!(delivered(&feed_and_collect(&mut b, frame(2, 3, &data(1)))));
    assert_eq!(
        sent_ipv6_packets(feed_and_collect(&mut b, acknowledge(3))).len(),
        1,
        "and the duplicate is never sent"
    );
    // The next gap in the sequence numbers is a real loss: the missing packet never arrives.
    feed_and_collect(&mut b, frame(5, 2, &data(4)));
    assert!(sent_ipv6_packets(feed_and_collect(&mut b, acknowledge(3))).is_empty());
    let due = START_TIME + Duration::from_millis(50);
    assert!(b.poll_timeout().is_some_and(|first| first <= due), "that, or a beacon before");
    b.handle_input(due, WALL_TIME, Input::Timeout).expect("accepted");
    assert_eq!(sent_ipv6_packets(std::iter::from_fn(|| b.poll_output()).collect()).len(), 1);
    let counted = ["held", "spared"].map(|it| counter_of(&b, &format!("geonet.ipv6.acknowledgements.{it}")));
    assert_eq!(counted, [2, 1]);
}

/// If the radio has a backlog, the station's own packets of ECN-capable flows carry a congestion mark.
#[test]
fn backlog_of_radio_marks_packets_with_congestion() {
    let (mut b, frame) = receiver_knowing_sender(|ipv6| ipv6.congestion_mark = Some(5000));
    let (there, here) = (addresses::link_local_address(A), addresses::link_local_address(B));
    feed_and_collect(&mut b, frame(1, 3, &udp_packet(there, here)));
    let capable = tcp_segment(here, there, (0, 0), 100);
    let incapable = udp_packet(here, there);
    let traffic_classes = |b: &mut Station| {
        [&capable, &incapable].map(|payload| {
            let payload = payload.clone();
            let frame = VirtualFrame { link: 0, destination: A, source: B, ether_type: 0x86dd, payload };
            let sent = sent_ipv6_packets(feed_and_collect(b, Input::VirtualFrame(frame)));
            let [packet] = &sent[..] else { panic!("{sent:?}") };
            Header::parse(packet).expect("a header").traffic_class
        })
    };
    assert_eq!(traffic_classes(&mut b), [0b10, 0]);
    feed_and_collect(&mut b, Input::GeonetBacklog(4999));
    assert_eq!(traffic_classes(&mut b), [0b10, 0]);
    feed_and_collect(&mut b, Input::GeonetBacklog(5000));
    assert_eq!(traffic_classes(&mut b), [0b11, 0]);
    assert_eq!(counter_of(&b, "geonet.ipv6.marked"), 1);
    feed_and_collect(&mut b, Input::GeonetBacklog(0));
    assert_eq!(traffic_classes(&mut b), [0b10, 0]);
}

/// An area follows another station. Packets to the area's group go to the position of that station. While the
/// position is unknown, the station does not send them.
#[test]
fn packets_to_group_go_to_present_position_of_its_moving_area() {
    let (mut a, mut b) = (new_station(A), new_station(B));
    for (place, station) in [(0, &mut a), (1000, &mut b)] {
        while station.poll_output().is_some() {}
        feed_and_collect(station, position_input(place));
    }
    let group: Ipv6Addr = "ff1e::42".parse().expect("an address");
    let order = AreaCommand {
        name: "convoy".into(),
        around: AreaCentreCommand::Station(gn_address_of_mac(B).0),
        shape: AreaShape::Circle,
        distance_a: 300,
        distance_b: 0,
        angle: 0,
        group: Some(group),
        lifetime_ms: None,
    };
    let asked = feed_and_collect(&mut a, Input::Command(Command::SetArea(order.clone())));
    let send = |a: &mut Station| {
        let frame = VirtualFrame {
            link: 0,
            destination: addresses::group_mac(group),
            source: A,
            ether_type: 0x86dd,
            payload: udp_packet(addresses::link_local_address(A), group),
        };
        let sent = feed_and_collect(a, Input::VirtualFrame(frame));
        sent.iter().find_map(|output| match output {
            Output::Geonet(GeonetOutput::Frame(frame)) => {
                match Packet::parse(&frame.packet).expect("a packet").extended {
                    ExtendedHeader::GeoBroadcast { area, .. } => Some((area.longitude, area.distance_a)),
                    _ => None,
                }
            }
            _ => None,
        })
    };
    assert_eq!(send(&mut a), None, "nobody knows where");
    let counter = |station: &Station, name: &str| {
        station.counters().into_iter().find(|(known, _)| known == name).map(|(_, count)| count)
    };
    assert_eq!(counter(&a, "geonet.ipv6.dropped.nowhere"), Some(1));
    let answered = deliver_frames(asked, &mut b);
    deliver_frames(answered, &mut a);
    assert_eq!(send(&mut a), Some((21_008_000 + 1000, 300)));

    let refused = |a: &mut Station, order: AreaCommand| {
        a.handle_input(START_TIME, WALL_TIME, Input::Command(Command::SetArea(order))).expect_err("refused")
    };
    let local = AreaCommand { group: Some("ff02::42".parse().expect("an address")), ..order.clone() };
    assert_eq!(refused(&mut a, local), "ff02::42 is no multicast group with more than link scope");
    let second = AreaCommand { name: "second".into(), ..order };
    assert_eq!(refused(&mut a, second), "another area, \"convoy\", already has this multicast group");
    // The area of the group is removed: packets to the group now go to all stations in range.
    feed_and_collect(&mut a, Input::Command(Command::RemoveArea { name: "convoy".into() }));
    assert_eq!(send(&mut a), None);
    assert_eq!(counter(&a, "geonet.ipv6.dropped.nowhere"), Some(1));
}

/// Returns a station with this MAC address. `fragments` says whether it fragments and reassembles packets
/// over GeoNetworking.
fn fragmenting_station(mac: [u8; 6], fragments: bool) -> Station {
    let mut config = station_config(Some(gn_address_of_mac(mac)));
    if let Some(GeonetSettings { ipv6_config: Some(ipv6), .. }) = &mut config.geonet {
        ipv6.fragments_large_packets = fragments;
    }
    Station::new(config, PersistentState::default(), Rng::new(7), START_TIME, WALL_TIME)
}

/// Passes frames between the stations until both have no more to send. Returns all other outputs.
fn exchange_until_quiet(a: &mut Station, b: &mut Station, outputs: Vec<Output>) -> [Vec<Output>; 2] {
    let (mut said, mut from_a) = ([Vec::new(), Vec::new()], true);
    let mut outputs = outputs;
    while !outputs.is_empty() {
        let (frames, rest): (Vec<Output>, Vec<Output>) =
            outputs.into_iter().partition(|output| matches!(output, Output::Geonet(GeonetOutput::Frame(_))));
        said[usize::from(!from_a)].extend(rest);
        outputs = deliver_frames(frames, if from_a { b } else { a });
        from_a = !from_a;
    }
    said
}

/// Stations of the previous release send fragments with next header 3. Payloads of applications with next
/// header 0 are not fragments.
#[test]
fn fragments_of_previous_release_are_reassembled() {
    let (mut b, frame) = receiver_knowing_sender(|ipv6| ipv6.fragments_large_packets = true);
    let data = udp_packet(addresses::link_local_address(A), addresses::link_local_address(B));
    let size = (data.len() as u16).to_be_bytes();
    let (first, second) = data.split_at(24);
    let first = [&[0xc0 | size[0], size[1], 0, 7], first].concat();
    let second = [&[0xe0 | size[0], size[1], 0, 7, 3], second].concat();
    assert!(
        !feed_and_collect(&mut b, frame(1, 1, &first))
            .iter()
            .any(|output| matches!(output, Output::Geonet(GeonetOutput::Ipv6 { .. })))
    );
    let outputs = feed_and_collect(&mut b, frame(2, 1, &second));
    let [Output::Geonet(GeonetOutput::Ipv6 { delivered, .. })] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(delivered.payload, data);
    let Input::Frame(Frame { source, profile, destination, mut packet }) = frame(3, 1, &[1, 2]) else {
        panic!()
    };
    packet[4] &= 0x0f;
    let outputs = feed_and_collect(&mut b, Input::Frame(Frame { source, profile, destination, packet }));
    let [Output::Geonet(GeonetOutput::Delivered(delivered))] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(delivered.payload, [1, 2]);
}

#[test]
fn large_packets_are_fragmented_if_both_stations_support_it() {
    for (other, octets) in [(true, 1500), (true, 1399), (false, 1500)] {
        let (mut a, mut b) = (fragmenting_station(A, true), fragmenting_station(B, other));
        let outputs: Vec<Output> = std::iter::from_fn(|| a.poll_output()).collect();
        assert_eq!(created_links(&outputs)[0].mtu, 1500);
        while b.poll_output().is_some() {}
        feed_and_collect(&mut a, position_input(0));
        feed_and_collect(&mut b, position_input(1000));
        let header =
            Header::parse(&udp_packet(addresses::link_local_address(A), addresses::link_local_address(B)))
                .expect("IPv6");
        let payload_length = octets - 40;
        let data = [
            &Header { payload_length, ..header }.emit()[..],
            &(0..payload_length).map(|at| at as u8).collect::<Vec<u8>>(),
        ]
        .concat();
        let frame = || {
            let payload = data.clone();
            Input::VirtualFrame(VirtualFrame {
                link: 0,
                destination: B,
                source: A,
                ether_type: 0x86dd,
                payload,
            })
        };
        let counter = |station: &Station, name: &str| {
            station.counters().into_iter().find(|(known, _)| known == name).map_or(0, |(_, count)| count)
        };
        let first = feed_and_collect(&mut a, frame());
        let [from_a, from_b] = exchange_until_quiet(&mut a, &mut b, first);
        assert!(from_a.is_empty(), "{from_a:?}");
        if other {
            let [Output::Geonet(GeonetOutput::Ipv6 { delivered, .. })] = &from_b[..] else {
                panic!("{from_b:?}")
            };
            assert_eq!(delivered.payload, data);
            assert_eq!((counter(&a, "geonet.ipv6.fragments.cut"), counter(&a, "geonet.ipv6.sent")), (1, 1));
            assert_eq!(counter(&b, "geonet.ipv6.fragments.joined"), 1);
            // After the answer, the station sends fragments without a further query.
            let second = feed_and_collect(&mut a, frame());
            assert_eq!(second.len(), 2);
            // EN 302 636-4-1 9.7.2: next header 3 means IPv6, so fragments must have another next header.
            for output in &second {
                let Output::Geonet(GeonetOutput::Frame(frame)) = output else { panic!("{output:?}") };
                let packet = Packet::parse(&frame.packet).expect("a packet");
                assert_eq!(packet.common.next_header, CommonNextHeader::Any);
                assert_eq!(packet.common.traffic_class.id, 3);
            }
            continue;
        }
        // A station without this extension drops the query, because the query is not an IPv6 packet.
        assert!(from_b.is_empty(), "{from_b:?}");
        assert_eq!(counter(&b, "geonet.ipv6.dropped.malformed"), 1);
        let mut answers = Vec::new();
        let mut now = START_TIME;
        while answers.is_empty() {
            now = a.poll_timeout().expect("a question").max(now);
            a.handle_input(now, WALL_TIME, Input::Timeout).expect("accepted");
            answers.extend(std::iter::from_fn(|| a.poll_output()).filter_map(|output| match output {
                Output::Geonet(GeonetOutput::VirtualFrame(answer)) => Some(answer),
                _ => None,
            }));
        }
        assert!(now <= START_TIME + Duration::from_secs(1), "{now:?}");
        let message = carnet_wire::icmpv6::parse_error(&answers[0].payload[40..]).expect("an error").0;
        assert_eq!(message, carnet_wire::icmpv6::Icmpv6ErrorMessage::PacketTooBig { mtu: 1398 });
    }
}
