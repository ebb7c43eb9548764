//! Addresses (10.2.1): duplicate address detection and pseudonyms.

use std::time::Duration;

use carnet_geonet::mib::AddressConfiguration;
use carnet_geonet::{Event, GeonetDrop, Mib, Repetition, Request, Transport};
use carnet_wire::geonet::{CommonNextHeader, HeaderType, Timestamp};

use crate::simulated_stations::*;

fn station_with_same_address() -> SimulatedStation {
    let mut station = SimulatedStation::b();
    station.mac = ROUTER_MAC;
    station.position_vector.address = address(ROUTER_MAC);
    station
}

/// PON_GNA_BV_02: an SHB from this station's address makes the station choose another address.
#[test]
fn pon_gna_bv_02_duplicate_address_detection() {
    for frame in [
        station_with_same_address().shb_frame(b"x"),
        station_with_same_address().beacon_frame(),
        station_with_same_address().tsb_frame(b"x"),
    ] {
        let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
        iut.request_payload(Transport::SingleHop([0; 4]), b"x").expect("accepted");
        iut.sent_transmissions.clear();
        let old = iut.router.address();
        assert_eq!(
            iut.receive_broadcast(&station_with_same_address(), &frame),
            Err(GeonetDrop::DuplicateAddress)
        );
        let new = iut.router.address();
        assert_ne!(old.mid(), new.mid());
        assert_eq!((new.mid()[0] & 3, new.station_type(), new.is_manual()), (2, old.station_type(), false));
        assert_eq!(iut.events, [Event::AddressConflict { address: old, replacement: new }]);
        assert!(iut.delivered_payloads.is_empty() && iut.router.location_table().is_empty());
        iut.request_payload(Transport::SingleHop([0; 4]), b"x").expect("accepted");
        assert_eq!(parse(&iut.take_only_transmission().frame).extended.source().address, new);
        // After this station has changed its address, the other station is an ordinary neighbour.
        iut.receive_broadcast(
            &station_with_same_address(),
            &station_with_same_address().next().shb_frame(b"x"),
        )
        .expect("a neighbour");
    }
}

/// A neighbour buffers a packet of this station (SCF) and sends it after this station's restart. This is no
/// address conflict: a station with the same address would send beacons.
#[test]
fn own_packets_from_before_a_restart_are_no_address_conflict() {
    let before = |iut: &RouterUnderTest| {
        SimulatedStation { position_vector: iut.position_vector(), ..station_with_same_address() }
            .with_earlier_timestamp(5_000)
    };
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let old = before(&iut);
    for frame in [
        old.tsb_frame(b"x"),
        old.gbc_frame(etsi_area_1(), b"x"),
        old.guc_frame(&SimulatedStation::a().position_vector, b"x"),
    ] {
        assert_eq!(iut.receive_broadcast(&SimulatedStation::b(), &frame), Err(GeonetDrop::OwnEcho));
    }
    assert_eq!((iut.router.address(), iut.events.len()), (address(ROUTER_MAC), 0));
    assert_eq!(
        iut.receive_broadcast(&SimulatedStation::b(), &old.beacon_frame()),
        Err(GeonetDrop::DuplicateAddress)
    );
    assert_ne!(iut.router.address(), address(ROUTER_MAC));

    // Before its first position this station has sent no packets, so it has no own position vectors for
    // comparison.
    let mut iut = RouterUnderTest::without_position(Mib::default());
    assert_eq!(
        iut.receive_broadcast(&SimulatedStation::b(), &station_with_same_address().tsb_frame(b"x")),
        Err(GeonetDrop::OwnEcho)
    );
    // After a reset the router still recognises its recent packets as its own.
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    iut.request_payload(Transport::GeoBroadcast(etsi_area_1()), b"x").expect("accepted");
    let frame = forwarded_by_one_hop(iut.take_only_transmission().frame);
    iut.router.reset_to_initial(iut.now, address(ROUTER_MAC));
    assert_eq!(iut.receive_broadcast(&SimulatedStation::b(), &frame), Err(GeonetDrop::OwnEcho));
    assert_eq!(iut.router.address(), address(ROUTER_MAC));
}

/// 10.2.1.5: after a conflict the router changes only an automatic address. It reports the conflict in both
/// cases.
#[test]
fn router_keeps_configured_address_after_conflict() {
    for method in [AddressConfiguration::Managed, AddressConfiguration::Anonymous] {
        let mut iut =
            RouterUnderTest::with_rare_beacons(Mib { address_configuration: method, ..Mib::default() });
        let refused =
            iut.receive_broadcast(&station_with_same_address(), &station_with_same_address().shb_frame(b"x"));
        assert_eq!(refused, Err(GeonetDrop::DuplicateAddress));
        assert_eq!(iut.router.address(), address(ROUTER_MAC));
        assert_eq!(iut.events.len(), 1);
    }
}

/// 10.2.1.4: no packet links a new pseudonym to the old one.
#[test]
fn new_pseudonym_clears_location_table_and_sequence_number() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    iut.make_neighbours(&[SimulatedStation::b()]);
    iut.request_payload(Transport::GeoBroadcast(etsi_area_1()), b"x").expect("accepted");
    iut.sent_transmissions.clear();
    iut.router.handle_address(address([2, 9, 9, 9, 9, 9]));
    assert!(iut.router.location_table().is_empty());
    iut.request_payload(Transport::GeoBroadcast(etsi_area_1()), b"x").expect("accepted");
    let sent = iut.take_only_transmission();
    let extended = parse(&sent.frame).extended;
    assert_eq!((extended.sequence(), extended.source().address.mid()), (Some(0), [2, 9, 9, 9, 9, 9]));
}

/// After a change of pseudonym the router drops its waiting packets, because they contain the old address.
#[test]
fn new_pseudonym_drops_waiting_packets_of_the_old_one() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    iut.request_payload_with_scf(Transport::GeoBroadcast(etsi_area_1()), b"x").expect("kept");
    iut.request_payload(Transport::GeoUnicast(SimulatedStation::a().position_vector.address), b"x")
        .expect("kept");
    let (_, broadcast, _) = iut.router.buffered_octets();
    assert!(broadcast > 0);
    iut.sent_transmissions.clear();
    iut.router.handle_address(address([2, 9, 9, 9, 9, 9]));
    assert_eq!(iut.router.buffered_octets(), (0, 0, 0));
    iut.make_neighbours(&[SimulatedStation::a(), SimulatedStation::b()]);
    iut.advance_time(Duration::from_secs(20));
    iut.assert_nothing_sent();
    assert_eq!(iut.dropped_packets(GeonetDrop::AddressChanged), 2);
}

/// 10.2.1.5: after a conflict the old address belongs to the other station, so the router sends no more
/// packets that contain it.
#[test]
fn router_sends_no_packet_with_its_old_address_after_conflict() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    iut.request_payload_with_scf(Transport::GeoBroadcast(etsi_area_1()), b"x").expect("kept");
    iut.request_payload(Transport::GeoUnicast(SimulatedStation::a().position_vector.address), b"x")
        .expect("kept");
    let interval = Duration::from_millis(500);
    let repetition = Some(Repetition { interval, maximum_time: Duration::from_secs(60) });
    let request = Request::new(Transport::TopologicallyScoped, CommonNextHeader::BtpB, b"x");
    iut.request(Request { repetition, ..request }).expect("accepted");
    iut.sent_transmissions.clear();
    assert_eq!(
        iut.receive_broadcast(&station_with_same_address(), &station_with_same_address().beacon_frame()),
        Err(GeonetDrop::DuplicateAddress)
    );
    iut.make_neighbours(&[SimulatedStation::a(), SimulatedStation::b()]);
    iut.advance_time(Duration::from_secs(20));
    iut.assert_nothing_sent();
    assert_eq!(iut.dropped_packets(GeonetDrop::AddressChanged), 2);
}

/// The upper tester of a conformance test requests this initial state before each case.
#[test]
fn initial_state_uses_configured_address() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    iut.make_neighbours(&[SimulatedStation::b()]);
    iut.request_payload(Transport::GeoBroadcast(etsi_area_1()), b"x").expect("accepted");
    iut.request_payload(Transport::GeoUnicast(address([2, 7, 7, 7, 7, 7])), b"x").expect("accepted");
    iut.sent_transmissions.clear();
    let (counters, now) = (iut.router.counters().sent_packets, iut.now);
    iut.router.reset_to_initial(now, address([2, 9, 9, 9, 9, 9]));
    assert!(iut.router.location_table().is_empty());
    assert_eq!(iut.router.buffered_octets(), (0, 0, 0));
    assert_eq!(iut.router.counters().sent_packets, counters, "counters never go back");
    iut.advance_time(Duration::from_millis(3750));
    // After the reset the router continues no earlier search. The station sends only beacons, with the new
    // address.
    assert!(!iut.sent_transmissions.is_empty());
    for sent in &iut.sent_transmissions {
        let packet = parse(&sent.frame);
        assert_eq!(packet.common.header_type, HeaderType::Beacon);
        assert_eq!(packet.extended.source().address.mid(), [2, 9, 9, 9, 9, 9]);
    }
    iut.sent_transmissions.clear();
    iut.request_payload(Transport::GeoBroadcast(etsi_area_1()), b"x").expect("accepted");
    assert_eq!(parse(&iut.take_only_transmission().frame).extended.sequence(), Some(0));
}

/// PON_GUC_BV_05: a station accepts a GUC whose destination address has its MID but other type bits. The IPv6
/// adaptation knows only the MID of an address.
#[test]
fn router_accepts_packet_to_its_mid_with_other_address_bits() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let mut to = iut.position_vector();
    to.address.0 ^= 0xfc00_0000_0000_0000;
    to.timestamp = Timestamp(1);
    iut.receive_unicast(&SimulatedStation::b(), &SimulatedStation::b().guc_frame(&to, b"x"))
        .expect("delivered");
    assert_eq!(iut.delivered_payloads.len(), 1);
}

/// An attacker sends a frame with each new address of the station; the station does not change its address
/// with every such frame.
#[test]
fn address_changes_after_conflicts_are_limited() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    for _ in 0..100 {
        let mut impostor = station_with_same_address();
        impostor.position_vector.address = iut.router.address();
        let refused = iut.receive_broadcast(&SimulatedStation::b(), &impostor.shb_frame(b"x"));
        assert_eq!(refused, Err(GeonetDrop::DuplicateAddress));
    }
    assert_eq!(iut.events.len(), 3);
}
