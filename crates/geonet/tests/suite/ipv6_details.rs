//! Rules of IPv6 over GeoNetworking that the ETSI test purposes do not cover: answers to the host, refused
//! packets, areas of groups.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_geonet::MacAddress;
use carnet_geonet::ipv6_adaptation::addresses::{self, ANYCAST_MAC};
use carnet_geonet::ipv6_adaptation::{HostFrame, Ipv6Area, Ipv6Config, Ipv6Drop, VirtualLink, mtu};
use carnet_wire::geonet::{GeoAreaShape, HeaderType};
use carnet_wire::icmpv6::{self, Icmpv6ErrorMessage};
use carnet_wire::ipv6::{HEADER_LEN, Header};
use carnet_wire::nd::{self, NeighborAdvertisement};

use crate::host_and_router::{
    ALL_NODES_ADDRESS, FIRST_SUBNET_PREFIX, HostAndRouter, IPV6_ETHERTYPE, area_with_link, config,
    neighbor_solicitation, parse_address, parse_prefix, router_advertisement, udp_packet,
};
use crate::simulated_stations::{ROUTER_MAC, SimulatedStation, address, circular_area, etsi_area_1, parse};

const GROUP_ADDRESS: &str = "ff3e:40:2001:db8:1::1";

fn host_with_group() -> HostAndRouter {
    let area = Ipv6Area {
        area: etsi_area_1(),
        group: Some(parse_address(GROUP_ADDRESS)),
        prefix: None,
        interface: Some("sgvl1".into()),
    };
    HostAndRouter::new(Ipv6Config { dynamic_interface: Some("dgvl".into()), areas: vec![area], ..config() })
}

/// Returns the Neighbor Advertisement with which the sublayer answered the host's last solicitation.
#[track_caller]
fn take_advertisement(host: &mut HostAndRouter, link: &str) -> (NeighborAdvertisement, [u8; 6]) {
    assert_eq!(host.frames_for_host.len(), 1, "{:?}", host.frames_for_host);
    let (id, destination, source, packet) = host.frames_for_host.remove(0);
    assert_eq!((id, destination), (host.link_id(link), ROUTER_MAC));
    let (header, message) = Header::parse_packet(&packet).expect("IPv6");
    nd::check_header(&header, message).expect("Neighbor Discovery");
    let advertisement = NeighborAdvertisement::parse(message).expect("an advertisement");
    assert_eq!((header.source, header.destination), (advertisement.target, host.own_link_local()));
    (advertisement, source)
}

#[test]
fn adaptation_answers_solicitation_for_address_with_station_identifier() {
    let mut host = HostAndRouter::with_links();
    let station = SimulatedStation::b();
    let target = addresses::link_local_address(station.mac);
    for to in [addresses::group_mac(nd::solicited_node_address(target)), station.mac] {
        let question = neighbor_solicitation(host.own_link_local(), target, Some(ROUTER_MAC));
        assert_eq!(host.send_packet("tvl0", to, &question), Ok(false));
        let (answer, source) = take_advertisement(&mut host, "tvl0");
        assert_eq!((answer.target_link_address, source), (Some(station.mac), station.mac));
        assert!(answer.solicited && answer.override_ && !answer.router);
    }
    host.iut.assert_nothing_sent();
    assert_eq!(host.adaptation.counters().locally_answered_packets, 2);
}

#[test]
fn advertisement_of_router_station_has_router_flag() {
    let mut host = HostAndRouter::with_links();
    let station = SimulatedStation::b();
    let packet = router_advertisement(&station, parse_prefix("3ffe:0:0:7::"), 30);
    host.receive_frame(&station, station.tsb_frame(&packet)).expect("placed");
    host.iut.sent_transmissions.clear();
    let question = neighbor_solicitation(
        host.own_link_local(),
        addresses::link_local_address(station.mac),
        Some(ROUTER_MAC),
    );
    assert_eq!(host.send_packet("tvl0", station.mac, &question), Ok(false));
    assert!(take_advertisement(&mut host, "tvl0").0.router);
}

#[test]
fn solicitations_for_other_addresses_are_sent_over_radio() {
    let mut host = HostAndRouter::with_links();
    let question =
        neighbor_solicitation(host.own_link_local(), parse_address("2001:db8::1"), Some(ROUTER_MAC));
    host.send_multicast("tvl0", &question);
    assert_eq!(
        parse(&host.iut.take_only_transmission().frame).common.header_type,
        HeaderType::TopologicallyScoped
    );
    host.send_multicast("sgvl1", &question);
    let kind = parse(&host.iut.take_only_transmission().frame).common.header_type;
    assert_eq!(kind, HeaderType::GeoBroadcast(GeoAreaShape::Circle));
}

#[test]
fn geonetworking_detects_duplicates_of_derived_addresses() {
    let mut host = HostAndRouter::with_links();
    let nobody = parse_address("::");
    let own = neighbor_solicitation(nobody, host.own_link_local(), None);
    assert_eq!(host.send_packet("tvl0", [0x33, 0x33, 0xff, 0, 0, 1], &own), Ok(false));
    assert!(host.frames_for_host.is_empty());
    host.iut.assert_nothing_sent();
    // The sublayer does not answer for an address that may belong to another node, or that names another
    // station.
    for other in [parse_address("2001:db8::1"), addresses::link_local_address(SimulatedStation::b().mac)] {
        host.send_multicast("tvl0", &neighbor_solicitation(nobody, other, None));
        host.iut.take_only_transmission();
    }
}

#[test]
fn malformed_solicitation_is_dropped() {
    let mut host = HostAndRouter::with_links();
    let mut question = neighbor_solicitation(
        host.own_link_local(),
        addresses::link_local_address(SimulatedStation::b().mac),
        None,
    );
    question[7] = 64;
    assert_eq!(host.send_packet("tvl0", SimulatedStation::b().mac, &question), Err(Ipv6Drop::Malformed));
    assert_eq!(host.adaptation.counters().dropped(Ipv6Drop::Malformed), 1);
}

#[test]
fn geographic_anycast_has_a_link_layer_address() {
    let mut host = HostAndRouter::with_links();
    let anycast = parse_address("3ffe:0:0:1:fdff:ffff:ffff:fffd");
    let question = neighbor_solicitation(host.own_link_local(), anycast, Some(ROUTER_MAC));
    assert_eq!(host.send_packet("sgvl1", ANYCAST_MAC, &question), Ok(false));
    assert_eq!(take_advertisement(&mut host, "sgvl1").0.target_link_address, Some(ANYCAST_MAC));
    // If the host routes a packet through the anycast address, the packet goes to the area, whatever its IPv6
    // destination.
    let routed = udp_packet(parse_address("2001:db8::1"), parse_address("2001:db8:5::5"), 20);
    assert_eq!(host.send_packet("sgvl1", ANYCAST_MAC, &routed), Ok(true));
    assert_eq!(
        parse(&host.iut.take_only_transmission().frame).common.header_type,
        HeaderType::GeoAnycast(GeoAreaShape::Circle)
    );
    assert_eq!(host.send_packet("tvl0", ANYCAST_MAC, &routed), Err(Ipv6Drop::NoArea));
}

#[test]
fn routed_packet_goes_to_station_of_next_hop_address() {
    let mut host = HostAndRouter::with_links();
    let (router, behind) = (SimulatedStation::b(), SimulatedStation::c());
    host.iut.make_neighbours(&[router, behind]);
    let [_, _, _, _, _, number] = behind.mac;
    let to = parse_address(&format!("2001:db8:5::b8be:baff:febe:{number:x}"));
    assert_eq!(addresses::mac_of_address(to), Some(behind.mac));
    assert_eq!(
        host.send_packet("tvl0", router.mac, &udp_packet(parse_address("2001:db8::1"), to, 20)),
        Ok(true)
    );
    let sent = host.iut.take_only_transmission();
    let destination = parse(&sent.frame).extended.destination().map(|pv| pv.address);
    assert_eq!(destination, Some(router.position_vector.address));
}

#[test]
fn listener_reports_for_link_scope_groups_are_not_sent() {
    let mut host = HostAndRouter::with_links();
    let report = |groups: &[&str]| {
        let mut message = vec![143, 0, 0, 0, 0, 0, 0, groups.len() as u8];
        for group in groups {
            message.extend([4, 0, 0, 0]);
            message.extend(parse_address(group).octets());
        }
        icmpv6::set_checksum(&mut message, host_address(), parse_address("ff02::16"));
        let mut packet = udp_packet(host_address(), parse_address("ff02::16"), 8 + message.len());
        (packet[6], packet[7]) = (0, 1);
        packet[40..48].copy_from_slice(&[58, 0, 5, 2, 0, 0, 1, 0]);
        packet[48..].copy_from_slice(&message);
        packet
    };
    let mac = addresses::group_mac(parse_address("ff02::16"));
    assert_eq!(host.send_packet("tvl0", mac, &report(&["ff02::1:ff00:1", "ff02::2"])), Ok(false));
    assert_eq!(host.send_packet("tvl0", mac, &report(&["ff02::1:ff00:1", GROUP_ADDRESS])), Ok(true));
    host.iut.take_only_transmission();
    // The first report names a group of an old address and a valid group. The sublayer drops this report. It
    // forwards the next report, which names only the valid group.
    let mut left = report(&["ff02::1:ff00:1", GROUP_ADDRESS]);
    left[56] = 3;
    let mut message = left.split_off(48);
    (message[2], message[3]) = (0, 0);
    icmpv6::set_checksum(&mut message, host_address(), parse_address("ff02::16"));
    assert_eq!(host.send_packet("tvl0", mac, &[left, message].concat()), Ok(false));
    // The sublayer forwards a report with fewer records than the report announces.
    let mut short = report(&["ff02::2"]);
    short[55] = 2;
    assert_eq!(host.send_packet("tvl0", mac, &short), Ok(true));
}

fn host_address() -> std::net::Ipv6Addr {
    addresses::link_local_address(ROUTER_MAC)
}

#[test]
fn mapped_group_is_sent_to_its_area_and_received_on_topological_link() {
    let mut host = host_with_group();
    for interface in ["tvl0", "sgvl1", "dgvl"] {
        host.send_multicast(interface, &udp_packet(host.own_link_local(), parse_address(GROUP_ADDRESS), 20));
        let sent = host.iut.take_only_transmission();
        let sent = parse(&sent.frame);
        assert_eq!(sent.common.header_type, HeaderType::GeoBroadcast(GeoAreaShape::Circle), "{interface}");
        assert_eq!(sent.extended.area(), Some(&etsi_area_1()));
    }
    let station = SimulatedStation::b();
    let from = addresses::link_local_address(station.mac);
    // The sender may give the area of the group another geometry than this station's config.
    for area in [etsi_area_1(), circular_area(SimulatedStation::d().position(), 400)] {
        let mut sender = station;
        sender.sequence += area.distance_a;
        let (name, placed) = host
            .receive_frame(
                &sender,
                sender.gbc_frame(area, &udp_packet(from, parse_address(GROUP_ADDRESS), 20)),
            )
            .expect("placed");
        assert_eq!((name.as_str(), placed.destination), ("tvl0", [0x33, 0x33, 0, 0, 0, 1]));
    }
}

#[test]
fn group_without_area_is_not_sent() {
    let mut host = host_with_group();
    let packet = udp_packet(host.own_link_local(), parse_address(ALL_NODES_ADDRESS), 20);
    assert_eq!(host.send_packet("dgvl", [0x33, 0x33, 0, 0, 0, 1], &packet), Err(Ipv6Drop::NoArea));
    assert_eq!(host.adaptation.counters().dropped(Ipv6Drop::NoArea), 1);
}

#[test]
fn without_dynamic_link_packets_of_no_area_arrive_on_topological_link() {
    let mut host = HostAndRouter::new(config());
    let station = SimulatedStation::b();
    let packet = udp_packet(addresses::link_local_address(station.mac), parse_address(ALL_NODES_ADDRESS), 20);
    let (name, _) = host.receive_frame(&station, station.gbc_frame(etsi_area_1(), &packet)).expect("placed");
    assert_eq!(name, "tvl0");
}

#[test]
fn only_complete_ipv6_packets_from_host_address_are_sent() {
    let mut host = HostAndRouter::with_links();
    let station = SimulatedStation::b();
    let good = udp_packet(host.own_link_local(), addresses::link_local_address(station.mac), 20);
    let frame = HostFrame {
        destination: station.mac,
        source: ROUTER_MAC,
        ether_type: IPV6_ETHERTYPE,
        payload: &good,
    };
    let short = &good[..good.len() - 1];
    let from =
        |source: &str| udp_packet(parse_address(source), addresses::link_local_address(station.mac), 20);
    let to = |destination: &str| udp_packet(host_address(), parse_address(destination), 20);
    let cases: [(HostFrame<'_>, Ipv6Drop); 10] = [
        (HostFrame { ether_type: 0x0806, ..frame }, Ipv6Drop::NotIpv6),
        (HostFrame { source: station.mac, ..frame }, Ipv6Drop::ForeignSource),
        (HostFrame { payload: short, ..frame }, Ipv6Drop::Malformed),
        (HostFrame { payload: &[], ..frame }, Ipv6Drop::Malformed),
        (HostFrame { payload: &from("ff02::1"), ..frame }, Ipv6Drop::BadSource),
        (HostFrame { payload: &from("::1"), ..frame }, Ipv6Drop::BadSource),
        (HostFrame { payload: &from("::"), ..frame }, Ipv6Drop::BadSource),
        (HostFrame { payload: &to("::1"), ..frame }, Ipv6Drop::BadDestination),
        (HostFrame { payload: &to("::"), ..frame }, Ipv6Drop::BadDestination),
        (HostFrame { destination: [0xff; 6], payload: &to("2001:db8::1"), ..frame }, Ipv6Drop::Unresolved),
    ];
    for (frame, reason) in cases {
        assert_eq!(host.send_frame("tvl0", frame), Err(reason));
    }
    host.iut.assert_nothing_sent();
    // The host's Ethernet frame has padding, which the station does not send.
    host.iut.make_neighbours(&[station]);
    let padded = [&good[..], &[0; 9]].concat();
    assert_eq!(host.send_frame("tvl0", HostFrame { payload: &padded, ..frame }), Ok(true));
    assert_eq!(parse(&host.iut.take_only_transmission().frame).payload, good);
}

#[test]
fn packet_above_mtu_is_answered_by_packet_too_big() {
    let mut host = HostAndRouter::with_links();
    let station = SimulatedStation::b();
    host.iut.make_neighbours(&[station]);
    let to = addresses::link_local_address(station.mac);
    let fits = udp_packet(host.own_link_local(), to, 1398 - HEADER_LEN);
    assert_eq!(host.send_packet("tvl0", station.mac, &fits), Ok(true));
    let packet = udp_packet(host.own_link_local(), to, 1399 - HEADER_LEN);
    assert_eq!(host.send_packet("tvl0", station.mac, &packet), Err(Ipv6Drop::TooBig));
    host.collect_outputs();
    let (_, destination, source, answer) = host.frames_for_host.remove(0);
    assert_eq!((destination, source), (ROUTER_MAC, ANYCAST_MAC));
    let (header, message) = Header::parse_packet(&answer).expect("IPv6");
    assert_eq!(header.destination, host.own_link_local());
    icmpv6::verify_checksum(header.source, header.destination, message).expect("a right checksum");
    assert_eq!(
        icmpv6::parse_error(message).expect("an error").0,
        Icmpv6ErrorMessage::PacketTooBig { mtu: 1398 }
    );
}

#[test]
fn virtual_interface_mtu_is_bounded_by_radio_and_1280() {
    for (sdu, link, expected) in [
        (1398, None, 1398),
        (1398, Some(1500), 1398),
        (8000, Some(1500), 1412),
        (8000, Some(1400), 1312),
        (1398, Some(1300), 1280),
        (500, None, 1280),
    ] {
        assert_eq!(mtu(sdu, link), expected, "{sdu} {link:?}");
    }
}

/// Returns an unsolicited advertisement (RFC 4861 7.2.6).
fn neighbor_advertisement(target: Ipv6Addr, link_address: MacAddress, source: &SimulatedStation) -> Vec<u8> {
    let advertisement = NeighborAdvertisement {
        target,
        router: false,
        solicited: false,
        override_: true,
        target_link_address: Some(link_address),
    };
    let source = addresses::link_local_address(source.mac);
    icmpv6::emit_packet(source, parse_address(ALL_NODES_ADDRESS), nd::HOP_LIMIT, advertisement.emit())
}

/// Returns the packet behind an extension header of eight octets without content.
fn packet_behind_extension(header: u8, packet: &[u8]) -> Vec<u8> {
    let mut whole = packet.to_vec();
    let extension =
        [whole[6], 0, if header == 60 { 1 } else { 0 }, if header == 60 { 4 } else { 0 }, 0, 0, 0, 0];
    whole[6] = header;
    let length = u16::from_be_bytes([whole[4], whole[5]]) + 8;
    whole[4..6].copy_from_slice(&length.to_be_bytes());
    whole.splice(40..40, extension);
    whole
}

/// Returns the address in a global subnet that names a station.
fn global_address_of(station: &SimulatedStation) -> Ipv6Addr {
    Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(addresses::interface_identifier(station.mac)))
}

#[test]
fn packet_with_address_of_another_station_is_dropped() {
    let (station, other) = (SimulatedStation::b(), SimulatedStation::c());
    let all = parse_address(ALL_NODES_ADDRESS);
    let own = host_address();
    let cases = [
        (udp_packet(addresses::link_local_address(other.mac), all, 20), Ipv6Drop::SpoofedSource),
        (udp_packet(own, all, 20), Ipv6Drop::OwnSource),
        (udp_packet(parse_address("2001:db8::1"), all, 20), Ipv6Drop::OwnSource),
        (udp_packet(parse_address("ff02::2"), all, 20), Ipv6Drop::BadSource),
        (vec![0x60; 8], Ipv6Drop::Malformed),
        (
            neighbor_solicitation(
                parse_address("2001:db8::7"),
                parse_address("2001:db8::1"),
                Some(other.mac),
            ),
            Ipv6Drop::SpoofedSource,
        ),
        // The sublayer also refuses Neighbor Discovery behind an extension header (destination options, a
        // fragment), because hosts would accept it.
        (
            packet_behind_extension(
                60,
                &neighbor_advertisement(addresses::link_local_address(other.mac), station.mac, &station),
            ),
            Ipv6Drop::SpoofedSource,
        ),
        (
            packet_behind_extension(
                44,
                &neighbor_advertisement(addresses::link_local_address(station.mac), station.mac, &station),
            ),
            Ipv6Drop::SpoofedSource,
        ),
        // The sending station may not advertise its link-layer address for the IPv6 address of another
        // station, whatever the scope of that address.
        (
            neighbor_advertisement(addresses::link_local_address(other.mac), station.mac, &station),
            Ipv6Drop::SpoofedSource,
        ),
        (neighbor_advertisement(global_address_of(&other), station.mac, &station), Ipv6Drop::SpoofedSource),
        (
            neighbor_solicitation(global_address_of(&other), parse_address("2001:db8::1"), Some(station.mac)),
            Ipv6Drop::SpoofedSource,
        ),
    ];
    for (number, (payload, reason)) in (0..).zip(cases) {
        let mut host = HostAndRouter::with_links();
        host.adaptation.handle_addresses(host.link_id("sgvl1"), vec![(parse_address("2001:db8::1"), 64)]);
        let mut sender = station;
        sender.sequence += number;
        assert_eq!(
            host.receive_frame(&sender, sender.tsb_frame(&payload)).err(),
            Some(reason),
            "case {number}"
        );
        assert_eq!(host.adaptation.counters().dropped(reason), 1);
    }
    // A packet's source may be a host behind the station, with any address. The station may also have
    // addresses whose interface identifier does not contain its MAC address.
    let mut host = HostAndRouter::with_links();
    let behind = parse_address("2001:db8:5::b8be:baff:febe:c");
    assert_eq!(addresses::mac_of_address(behind), Some(other.mac));
    host.receive_frame(&station, station.tsb_frame(&udp_packet(behind, all, 20))).expect("placed");
    let station = station.next();
    host.receive_frame(&station, station.tsb_frame(&udp_packet(parse_address("fe80::1234"), all, 20)))
        .expect("placed");
    for target in [
        addresses::link_local_address(station.mac),
        global_address_of(&station),
        parse_address("2001:db8::77"),
    ] {
        let station = station.next();
        let mut host = HostAndRouter::with_links();
        let advertisement = neighbor_advertisement(target, station.mac, &station);
        host.receive_frame(&station, station.tsb_frame(&advertisement)).expect("placed");
    }
}

#[test]
fn unicast_packet_in_broadcast_is_delivered_as_multicast_frame() {
    let mut host = HostAndRouter::with_links();
    let station = SimulatedStation::b();
    let packet = udp_packet(parse_address("2001:db8:5::5"), parse_address("2001:db8:6::6"), 20);
    let (_, placed) = host.receive_frame(&station, station.tsb_frame(&packet)).expect("placed");
    assert_eq!(placed.destination, addresses::ALL_NODES_MAC);
}

#[test]
fn number_of_learned_links_follows_config_and_needs_subnet() {
    let router = SimulatedStation::d();
    let areas = vec![area_with_link(etsi_area_1(), "sgvl1", Some(FIRST_SUBNET_PREFIX))];
    let mut host = HostAndRouter::new(Ipv6Config { areas, learnt_links: 1, ..config() });
    let hear = |host: &mut HostAndRouter, radius: u16, seconds: u32| {
        let mut sender = router;
        sender.sequence += radius;
        let packet = router_advertisement(&router, parse_prefix("3ffe:0:0:3::"), seconds);
        let area = circular_area(router.position(), radius);
        host.receive_frame(&sender, sender.gbc_frame(area, &packet)).expect("placed").0
    };
    assert_eq!(hear(&mut host, 300, 0), "tvl0", "no subnet");
    assert_eq!(hear(&mut host, 301, 30), "tvl0-1");
    assert_eq!(hear(&mut host, 302, 30), "tvl0", "one is enough");
    // A packet from the area of the learned link reaches the host on this link.
    let mut sender = router;
    sender.sequence = 1;
    let group = udp_packet(parse_address("3ffe:0:0:3::9"), parse_address("ff3e:40:3ffe:0:0:3:0:99"), 20);
    let area = circular_area(router.position(), 301);
    assert_eq!(host.receive_frame(&sender, sender.gbc_frame(area, &group)).expect("placed").0, "tvl0-1");
    host.iut.sent_transmissions.clear();
    host.send_multicast(
        "tvl0",
        &udp_packet(host.own_link_local(), parse_address("ff3e:40:3ffe:0:0:3:0:99"), 20),
    );
    assert_eq!(parse(&host.iut.take_only_transmission().frame).extended.area(), Some(&area));
    // An advertisement of the router that withdraws its prefix ends the link. A forged advertisement does not
    // end it.
    let mut forged = router_advertisement(&router, parse_prefix("3ffe:0:0:3::"), 0);
    forged[7] = 64;
    sender.sequence = 2;
    host.receive_frame(&sender, sender.gbc_frame(area, &forged)).expect("placed");
    host.adaptation.handle_timeout(host.iut.now);
    host.collect_outputs();
    assert_eq!(host.interfaces.len(), 3);
    sender.sequence = 3;
    host.receive_frame(
        &sender,
        sender.gbc_frame(area, &router_advertisement(&router, parse_prefix("3ffe:0:0:3::"), 0)),
    )
    .expect("placed");
    assert_eq!(host.adaptation.poll_timeout(), Some(host.iut.now));
    host.adaptation.handle_timeout(host.iut.now);
    host.collect_outputs();
    assert_eq!(host.interfaces.len(), 2);
}

/// A router whose prefix appears and disappears repeatedly creates only a limited number of interfaces.
#[test]
fn creation_of_learned_links_is_rate_limited() {
    let mut host = HostAndRouter::new(Ipv6Config { learnt_links: 1, ..config() });
    let (mut router, mut learnt) = (SimulatedStation::d(), 0);
    let mut round = |host: &mut HostAndRouter| {
        for seconds in [30, 0] {
            router = router.next();
            let packet = router_advertisement(&router, parse_prefix("3ffe:0:0:3::"), seconds);
            let area = circular_area(router.position(), 300);
            let (name, _) = host.receive_frame(&router, router.gbc_frame(area, &packet)).expect("placed");
            learnt += u32::from(seconds > 0 && name == "tvl0-1");
            host.adaptation.handle_timeout(host.iut.now);
            host.collect_outputs();
        }
        learnt
    };
    assert_eq!((0..200).map(|_| round(&mut host)).max(), Some(64));
    host.iut.advance_time(Duration::from_secs(2));
    assert_eq!((0..5).map(|_| round(&mut host)).max(), Some(65));
}

#[test]
fn interfaces_follow_the_stations_address_and_the_mtu() {
    let mut host = HostAndRouter::with_links();
    let mac = [2, 0, 0, 0, 0, 9];
    host.adaptation.handle_address(address(mac));
    host.adaptation.handle_mtu(1312);
    host.collect_outputs();
    let is_new = |link: &VirtualLink| link.address == mac && link.mtu == 1312;
    assert!(host.interfaces.iter().all(is_new), "{:?}", host.interfaces);
    let packet = udp_packet(parse_address("2001:db8::1"), parse_address(ALL_NODES_ADDRESS), 20);
    assert_eq!(host.send_packet("tvl0", [0x33, 0x33, 0, 0, 0, 1], &packet), Err(Ipv6Drop::ForeignSource));
}
