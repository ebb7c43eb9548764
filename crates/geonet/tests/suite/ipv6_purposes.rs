//! The 21 test purposes of TS 102 859-2 for IPv6 over GeoNetworking.

use carnet_geonet::ipv6_adaptation::addresses::{self, ALL_NODES_MAC, ANYCAST_MAC};
use carnet_geonet::ipv6_adaptation::{Ipv6Config, LinkKind};
use carnet_wire::geonet::{CommonNextHeader, ExtendedHeader, GeoAreaShape, HeaderType};

use crate::host_and_router::{
    ALL_NODES_ADDRESS, FIRST_SUBNET_PREFIX, HostAndRouter, area_with_link, config, parse_address,
    router_advertisement, udp_packet,
};
use crate::simulated_stations::{ROUTER_MAC, SimulatedStation, circular_area, etsi_area_1, parse};

/// Checks that a sent packet has next header 3 and contains the unchanged IPv6 packet. Returns its headers.
#[track_caller]
fn check_sent_packet(host: &mut HostAndRouter, payload: &[u8]) -> (HeaderType, ExtendedHeader) {
    let transmission = host.iut.take_only_transmission();
    let sent = parse(&transmission.frame);
    assert_eq!(sent.common.next_header, CommonNextHeader::Ipv6);
    assert_eq!(sent.payload, payload, "the packet is unchanged");
    (sent.common.header_type, sent.extended)
}

#[test]
fn mg_gvl_bv_01_link_local_multicast_is_geobroadcast_to_the_links_area() {
    let mut host = HostAndRouter::with_links();
    let packet = udp_packet(host.own_link_local(), parse_address(ALL_NODES_ADDRESS), 20);
    host.send_multicast("sgvl1", &packet);
    let (kind, extended) = check_sent_packet(&mut host, &packet);
    assert_eq!(kind, HeaderType::GeoBroadcast(GeoAreaShape::Circle));
    assert_eq!(extended.area(), Some(&etsi_area_1()));
}

#[test]
fn mg_gvl_bv_02_a_group_of_the_links_prefix_is_geobroadcast_to_its_area() {
    // The result is the same from every interface: the group decides the area.
    for interface in ["sgvl1", "tvl0", "dgvl"] {
        let mut host = HostAndRouter::with_links();
        let packet = udp_packet(host.own_link_local(), parse_address("ff3e:40:3ffe:0:0:1:0:99"), 20);
        host.send_multicast(interface, &packet);
        let (kind, extended) = check_sent_packet(&mut host, &packet);
        assert_eq!(kind, HeaderType::GeoBroadcast(GeoAreaShape::Circle));
        assert_eq!(extended.area(), Some(&etsi_area_1()));
    }
}

#[test]
fn mg_gvl_bv_03_geographic_anycast_is_geoanycast_to_the_links_area() {
    for identifier in ["fdff:ffff:ffff:fffd", "fd00:0:0:fd"] {
        let to = parse_address(&format!("3ffe:0:0:1:{identifier}"));
        let mut host = HostAndRouter::with_links();
        let packet = udp_packet(host.own_link_local(), to, 20);
        assert_eq!(host.send_packet("sgvl1", ANYCAST_MAC, &packet), Ok(true));
        let (kind, extended) = check_sent_packet(&mut host, &packet);
        assert_eq!(kind, HeaderType::GeoAnycast(GeoAreaShape::Circle));
        assert_eq!(extended.area(), Some(&etsi_area_1()));
    }
}

#[track_caller]
fn check_unicast_by_interface_identifier(interface: &str) {
    let mut host = HostAndRouter::with_links();
    let station = SimulatedStation::b();
    host.iut.make_neighbours(&[station]);
    let packet = udp_packet(host.own_link_local(), addresses::link_local_address(station.mac), 20);
    // The frame's destination is a multicast address, so the interface identifier of the IPv6 destination
    // selects the station.
    assert_eq!(host.send_packet(interface, ALL_NODES_MAC, &packet), Ok(true));
    let (kind, extended) = check_sent_packet(&mut host, &packet);
    assert_eq!(kind, HeaderType::GeoUnicast);
    assert_eq!(extended.destination().map(|pv| pv.address), Some(station.position_vector.address));
}

#[track_caller]
fn check_unicast_by_link_layer_address(interface: &str) {
    let mut host = HostAndRouter::with_links();
    let station = SimulatedStation::b();
    host.iut.make_neighbours(&[station]);
    let packet = udp_packet(host.own_link_local(), parse_address("3ffe:0:0:1::b"), 20);
    assert_eq!(host.send_packet(interface, station.mac, &packet), Ok(true));
    let (kind, extended) = check_sent_packet(&mut host, &packet);
    assert_eq!(kind, HeaderType::GeoUnicast);
    assert_eq!(extended.destination().map(|pv| pv.address), Some(station.position_vector.address));
}

#[test]
fn mg_gvl_bv_04_unicast_is_geounicast_to_the_station_of_the_identifier() {
    check_unicast_by_interface_identifier("sgvl1");
}

#[test]
fn mg_gvl_bv_05_unicast_is_geounicast_to_the_station_of_the_link_layer_address() {
    check_unicast_by_link_layer_address("sgvl1");
}

#[test]
fn mg_tvl_bv_01_unicast_is_geounicast_to_the_station_of_the_identifier() {
    check_unicast_by_interface_identifier("tvl0");
}

#[test]
fn mg_tvl_bv_02_unicast_is_geounicast_to_the_station_of_the_link_layer_address() {
    check_unicast_by_link_layer_address("tvl0");
}

#[test]
fn mg_tvl_bv_03_link_local_multicast_is_topologically_scoped_broadcast() {
    let mut host = HostAndRouter::with_links();
    let packet = udp_packet(host.own_link_local(), parse_address(ALL_NODES_ADDRESS), 20);
    host.send_multicast("tvl0", &packet);
    assert_eq!(check_sent_packet(&mut host, &packet).0, HeaderType::TopologicallyScoped);
}

#[test]
fn mr_gvl_bv_01_geobroadcast_to_the_area_of_a_link_comes_out_there() {
    let mut host = HostAndRouter::with_links();
    let station = SimulatedStation::b();
    let packet = udp_packet(addresses::link_local_address(station.mac), parse_address(ALL_NODES_ADDRESS), 20);
    let (name, placed) =
        host.receive_frame(&station, station.gbc_frame(etsi_area_1(), &packet)).expect("placed");
    assert_eq!((name.as_str(), placed.destination, placed.source), ("sgvl1", ALL_NODES_MAC, station.mac));
}

#[test]
fn mr_gvl_bv_02_geobroadcast_to_another_area_comes_out_of_the_dynamic_link() {
    let mut host = HostAndRouter::with_links();
    let station = SimulatedStation::b();
    let packet = udp_packet(addresses::link_local_address(station.mac), parse_address(ALL_NODES_ADDRESS), 20);
    let area = circular_area(SimulatedStation::d().position(), 400);
    let (name, placed) = host.receive_frame(&station, station.gbc_frame(area, &packet)).expect("placed");
    assert_eq!((name.as_str(), placed.destination, placed.source), ("dgvl", ALL_NODES_MAC, station.mac));
}

#[test]
fn mr_gvl_bv_03_geoanycast_to_the_area_of_a_link_comes_out_there() {
    let mut host = HostAndRouter::with_links();
    let station = SimulatedStation::b();
    let anycast = parse_address("3ffe:0:0:1:fdff:ffff:ffff:fffd");
    let packet = udp_packet(addresses::link_local_address(station.mac), anycast, 20);
    let (name, placed) =
        host.receive_frame(&station, station.gac_frame(etsi_area_1(), &packet)).expect("placed");
    assert_eq!((name.as_str(), placed.destination, placed.source), ("sgvl1", ROUTER_MAC, station.mac));
}

#[test]
fn mr_gvl_bv_04_geoanycast_to_another_area_comes_out_of_the_dynamic_link() {
    let mut host = HostAndRouter::with_links();
    let station = SimulatedStation::b();
    let anycast = parse_address("3ffe:0:0:1:fdff:ffff:ffff:fffd");
    let packet = udp_packet(addresses::link_local_address(station.mac), anycast, 20);
    let area = circular_area(SimulatedStation::d().position(), 400);
    let (name, _) = host.receive_frame(&station, station.gac_frame(area, &packet)).expect("placed");
    assert_eq!(name, "dgvl");
}

/// Receives a Router Advertisement from an area without a link; returns the name of the new link.
#[track_caller]
fn learn_area_link_from_advertisement(host: &mut HostAndRouter, seconds: u32) -> String {
    let station = SimulatedStation::b();
    let packet =
        router_advertisement(&station, crate::host_and_router::parse_prefix("3ffe:0:0:2::"), seconds);
    let area = circular_area(SimulatedStation::d().position(), 400);
    let (name, placed) = host.receive_frame(&station, station.gbc_frame(area, &packet)).expect("placed");
    assert_eq!((placed.destination, placed.source), (ALL_NODES_MAC, station.mac));
    let kind = host.adaptation.links().find(|(_, known, _)| *known == name).map(|(_, _, kind)| *kind);
    assert_eq!(kind, Some(LinkKind::Geographic(area)));
    name
}

#[test]
fn mr_gvl_bv_05_a_router_advertisement_from_another_area_comes_out_of_a_new_link() {
    let mut host = HostAndRouter::with_links();
    let name = learn_area_link_from_advertisement(&mut host, 30);
    assert_eq!(name, "tvl0-1");
    assert_eq!(host.interfaces.len(), 4);
}

/// Returns the interface on which the host gets a unicast packet from `station` to `to`.
#[track_caller]
fn receiving_interface(
    host: &mut HostAndRouter,
    station: &SimulatedStation,
    source: &str,
    to: &str,
) -> String {
    let packet = udp_packet(parse_address(source), parse_address(to), 20);
    let frame = station.guc_frame(&host.iut.position_vector(), &packet);
    let (name, placed) = host.receive_frame(station, frame).expect("placed");
    assert_eq!((placed.destination, placed.source), (ROUTER_MAC, station.mac));
    name
}

#[test]
fn mr_gvl_bv_06_unicast_comes_out_of_the_interface_with_the_address() {
    let mut host = HostAndRouter::with_links();
    host.adaptation.handle_addresses(host.link_id("dgvl"), vec![(parse_address("2001:db8::1"), 128)]);
    assert_eq!(
        receiving_interface(&mut host, &SimulatedStation::b(), "2001:db8:9::9", "2001:db8::1"),
        "dgvl"
    );
    // The destination address is in the subnet of the interface, so this interface gets the packet.
    assert_eq!(
        receiving_interface(&mut host, &SimulatedStation::a(), "2001:db8:9::9", "3ffe:0:0:1::5"),
        "sgvl1"
    );
}

#[test]
fn mr_gvl_bv_07_unicast_to_no_interface_comes_out_of_the_link_where_its_source_is() {
    let mut host = HostAndRouter::with_links();
    assert_eq!(
        receiving_interface(&mut host, &SimulatedStation::b(), "2001:db8:9::9", "2001:db8:5::5"),
        "sgvl1"
    );
}

#[test]
fn mr_gvl_bv_08_unicast_from_no_links_area_comes_out_of_the_dynamic_link() {
    let mut host = HostAndRouter::with_links();
    // Station A is 1.1 km away, outside of the area, so the dynamic interface gets the packet.
    assert_eq!(
        receiving_interface(&mut host, &SimulatedStation::a(), "2001:db8:9::9", "2001:db8:5::5"),
        "dgvl"
    );
}

/// Returns a host with two more geographical virtual links. The areas of both contain station B, and both
/// have subnet 3. The lifetime of one ends before that of the other.
fn host_with_overlapping_links() -> HostAndRouter {
    let mut host = HostAndRouter::new(Ipv6Config {
        dynamic_interface: Some("dgvl".into()),
        areas: vec![area_with_link(etsi_area_1(), "sgvl1", Some(FIRST_SUBNET_PREFIX))],
        learnt_links: 2,
        ..config()
    });
    let router = SimulatedStation::d();
    for (radius, seconds) in [(300, 60), (350, 30)] {
        let packet =
            router_advertisement(&router, crate::host_and_router::parse_prefix("3ffe:0:0:3::"), seconds);
        let area = circular_area(router.position(), radius);
        let mut sender = router;
        sender.sequence += radius;
        host.receive_frame(&sender, sender.gbc_frame(area, &packet)).expect("placed");
    }
    assert_eq!(host.interfaces.len(), 5);
    host
}

#[test]
fn mr_gvl_bv_09_of_several_areas_an_on_link_sources_longest_lived_link_is_taken() {
    let mut host = host_with_overlapping_links();
    assert_eq!(
        receiving_interface(&mut host, &SimulatedStation::b(), "3ffe:0:0:3::9", "2001:db8:5::5"),
        "tvl0-1"
    );
}

#[test]
fn mr_gvl_bv_10_of_several_areas_none_is_taken_for_a_source_that_is_not_on_link() {
    let mut host = host_with_overlapping_links();
    assert_eq!(
        receiving_interface(&mut host, &SimulatedStation::b(), "2001:db8:9::9", "2001:db8:5::5"),
        "dgvl"
    );
}

#[test]
fn mr_tvl_bv_01_topologically_scoped_broadcast_comes_out_of_the_topological_link() {
    let mut host = HostAndRouter::with_links();
    let station = SimulatedStation::b();
    let packet = udp_packet(addresses::link_local_address(station.mac), parse_address(ALL_NODES_ADDRESS), 20);
    let (name, placed) = host.receive_frame(&station, station.tsb_frame(&packet)).expect("placed");
    assert_eq!((name.as_str(), placed.destination, placed.source), ("tvl0", ALL_NODES_MAC, station.mac));
}

#[test]
fn vm_nvi_bv_01_the_interface_of_a_new_link_has_the_stations_link_layer_address() {
    let mut host = HostAndRouter::with_links();
    let name = learn_area_link_from_advertisement(&mut host, 30);
    let interface = host.interfaces.iter().find(|link| link.name == name).expect("an interface");
    assert_eq!(
        (interface.address, interface.mtu, interface.learned_from_advertisement),
        (ROUTER_MAC, 1398, true)
    );
}

#[test]
fn vm_evi_bv_01_a_learnt_link_ends_with_its_last_prefix() {
    let mut host = HostAndRouter::with_links();
    let name = learn_area_link_from_advertisement(&mut host, 30);
    // A later advertisement extends the link's lifetime.
    host.iut.advance_milliseconds(20_000);
    let station = SimulatedStation::b().next().with_later_timestamp(20_000);
    let packet = router_advertisement(&station, crate::host_and_router::parse_prefix("3ffe:0:0:2::"), 30);
    let area = circular_area(SimulatedStation::d().position(), 400);
    assert_eq!(host.receive_frame(&station, station.gbc_frame(area, &packet)).expect("placed").0, name);

    let due = host.adaptation.poll_timeout().expect("a prefix that runs out");
    assert_eq!(due, host.iut.now + std::time::Duration::from_secs(30));
    host.adaptation.handle_timeout(host.iut.now + std::time::Duration::from_secs(29));
    host.collect_outputs();
    assert_eq!(host.interfaces.len(), 4);
    host.adaptation.handle_timeout(due);
    host.collect_outputs();
    assert_eq!(host.interfaces.len(), 3, "{:?}", host.interfaces);
    assert_eq!(host.adaptation.poll_timeout(), None, "the configured prefix does not run out");
    // A link of the config does not end, whatever lifetime routers advertise on it.
    let packet = router_advertisement(&station, crate::host_and_router::parse_prefix(FIRST_SUBNET_PREFIX), 1);
    let mut again = station;
    again.sequence += 1;
    host.receive_frame(&again, again.gbc_frame(etsi_area_1(), &packet)).expect("placed");
    host.adaptation.handle_timeout(due + std::time::Duration::from_secs(10));
    host.collect_outputs();
    assert_eq!(host.interfaces.len(), 3);
    assert_eq!(
        receiving_interface(&mut host, &SimulatedStation::a(), "2001:db8:9::9", "3ffe:0:0:1::5"),
        "sgvl1"
    );
}
