//! Store-carry-forward: the forwarding packet buffers (8.5).

use std::time::Duration;

use carnet_geonet::mib::AreaForwarding;
use carnet_geonet::{BROADCAST, GeonetDrop, Mib, Transport};

use crate::simulated_stations::*;

fn mib_with_simple_forwarding() -> Mib {
    Mib { area_forwarding: AreaForwarding::Simple, max_packet_data_rate: None, ..Mib::default() }
}

/// PON_FPB_BV_01, PON_FPB_BV_03, PON_FPB_BV_09: own GUCs wait for a next hop, leave in order, and their
/// lifetime gets shorter.
#[test]
fn pon_fpb_bv_01_source_unicast() {
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_simple_forwarding());
    iut.receive_broadcast(&SimulatedStation::c(), &SimulatedStation::a().tsb_frame(b"x")).expect("forwarded");
    iut.sent_transmissions.clear();
    iut.request_payload_with_scf(Transport::GeoUnicast(SimulatedStation::a().position_vector.address), b"1")
        .expect("accepted");
    iut.advance_time(Duration::from_secs(3));
    iut.request_payload_with_scf(Transport::GeoUnicast(SimulatedStation::a().position_vector.address), b"2")
        .expect("accepted");
    // A neighbour in the opposite direction is no next hop, so the packets continue to wait.
    iut.make_neighbours(&[SimulatedStation::c()]);
    iut.advance_time(Duration::from_secs(2));
    iut.assert_nothing_sent();
    iut.make_neighbours(&[SimulatedStation::b()]);
    let sent: Vec<_> = iut.sent_transmissions.drain(..).collect();
    assert!(sent.iter().all(|sent| sent.destination == SimulatedStation::b().mac));
    let lifetimes: Vec<_> = sent
        .iter()
        .map(|s| (s.frame[s.frame.len() - 1], parse(&s.frame).basic.lifetime.duration().as_secs()))
        .collect();
    assert_eq!(lifetimes, [(b'1', 55), (b'2', 58)]);
    assert_eq!(iut.router.buffered_octets(), (0, 0, 0));
}

/// PON_FPB_BV_02: a forwarded GUC waits, too; it leaves with one hop less and a shorter lifetime.
#[test]
fn pon_fpb_bv_02_forwarder_unicast() {
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_simple_forwarding());
    iut.make_neighbours(&[SimulatedStation::c()]);
    let frame = with_store_carry_forward(
        SimulatedStation::c().guc_frame(&SimulatedStation::a().position_vector, b"x"),
    );
    iut.receive_unicast(&SimulatedStation::c(), &frame).expect("kept");
    iut.assert_nothing_sent();
    iut.advance_time(Duration::from_secs(10));
    // Only a neighbour nearer to the destination, or the destination itself, releases the waiting packet.
    iut.make_neighbours(&[SimulatedStation::e()]);
    iut.assert_nothing_sent();
    iut.make_neighbours(&[SimulatedStation::a()]);
    let sent = iut.take_only_transmission();
    let expected = with_lifetime(with_remaining_hops(frame, 9), Duration::from_secs(50));
    assert_eq!((sent.destination, sent.frame), (SimulatedStation::a().mac, expected));
}

/// PON_FPB_BV_04, PON_FPB_BV_08: the router drops buffered packets when their lifetime ends.
#[test]
fn pon_fpb_bv_04_lifetime() {
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_simple_forwarding());
    for frame in [
        SimulatedStation::c().guc_frame(&SimulatedStation::a().position_vector, b"x"),
        SimulatedStation::e().gbc_frame(etsi_area_1(), b"x"),
    ] {
        let frame = with_lifetime(with_store_carry_forward(frame), Duration::from_secs(5));
        iut.receive_broadcast(&SimulatedStation::c(), &frame).expect("kept");
    }
    let (unicast, broadcast, _) = iut.router.buffered_octets();
    assert!(unicast > 0 && broadcast > 0);
    iut.advance_time(Duration::from_millis(4999));
    assert_eq!(iut.dropped_packets(GeonetDrop::LifetimeExpired), 0);
    iut.advance_milliseconds(1);
    assert_eq!(iut.dropped_packets(GeonetDrop::LifetimeExpired), 2);
    assert_eq!(iut.router.buffered_octets(), (0, 0, 0));
    iut.make_neighbours(&[SimulatedStation::b()]);
    iut.assert_nothing_sent();
}

/// PON_FPB_BV_06, PON_FPB_BV_07, PON_FPB_BV_10: broadcasts wait for the first neighbour and leave in order.
#[test]
fn pon_fpb_bv_06_source_broadcast() {
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_simple_forwarding());
    iut.request_payload_with_scf(Transport::GeoBroadcast(etsi_area_1()), b"1").expect("accepted");
    iut.request_payload_with_scf(Transport::TopologicallyScoped, b"2").expect("accepted");
    iut.request_payload_with_scf(Transport::SingleHop([0; 4]), b"3").expect("accepted");
    iut.request_payload_with_scf(Transport::GeoAnycast(etsi_area_1()), b"4").expect("accepted");
    iut.advance_time(Duration::from_secs(4));
    iut.assert_nothing_sent();
    // A station known only from forwarded packets is not a neighbour.
    iut.receive_broadcast(&SimulatedStation::b(), &SimulatedStation::a().tsb_frame(b"x")).expect("forwarded");
    iut.take_only_transmission();
    iut.make_neighbours(&[SimulatedStation::c()]);
    let payloads: Vec<u8> =
        iut.sent_transmissions.iter().map(|sent| sent.frame[sent.frame.len() - 1]).collect();
    assert_eq!(payloads, *b"1234");
    for sent in &iut.sent_transmissions {
        assert_eq!(sent.destination, BROADCAST);
        assert_eq!(parse(&sent.frame).basic.lifetime.duration().as_secs(), 56);
    }
}

/// PON_FPB_BV_11_01 to 05, PON_FPB_BV_12_01 to 04: without SCF the router broadcasts every packet at once.
#[test]
fn pon_fpb_bv_11_no_scf() {
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_simple_forwarding());
    let a = SimulatedStation::a();
    iut.receive_broadcast(&SimulatedStation::c(), &a.tsb_frame(b"x")).expect("forwarded");
    iut.sent_transmissions.clear();
    for transport in [
        Transport::GeoUnicast(a.position_vector.address),
        Transport::GeoAnycast(etsi_area_2()),
        Transport::GeoBroadcast(etsi_area_2()),
        Transport::TopologicallyScoped,
        Transport::SingleHop([0; 4]),
    ] {
        iut.request_payload(transport, b"x").expect("accepted");
        assert_eq!(iut.take_only_transmission().destination, BROADCAST);
    }
    let c = SimulatedStation::c();
    for frame in [
        c.guc_frame(&a.position_vector, b"x"),
        c.next().gac_frame(etsi_area_2(), b"x"),
        c.next().next().gbc_frame(etsi_area_2(), b"x"),
        c.next().next().next().tsb_frame(b"x"),
    ] {
        iut.receive_broadcast(&c, &frame).expect("forwarded");
        let sent = iut.take_only_transmission();
        assert_eq!((sent.destination, sent.frame), (BROADCAST, with_remaining_hops(frame, 9)));
    }
}

/// CAP_FPB_BV_01, CAP_FPB_BV_02: octets limit the buffers, which drop their oldest packets.
#[test]
fn cap_fpb_bv_01_overflow() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib {
        unicast_buffer_size: 5000,
        broadcast_buffer_size: 8000,
        ..mib_with_simple_forwarding()
    });
    let mut c = SimulatedStation::c();
    for number in 0..30 {
        c = c.next();
        iut.receive_broadcast(
            &c,
            &with_store_carry_forward(c.guc_frame(&SimulatedStation::a().position_vector, &[number; 940])),
        )
        .expect("kept");
        c = c.next();
        iut.receive_broadcast(&c, &with_store_carry_forward(c.gbc_frame(etsi_area_1(), &[number; 944])))
            .expect("kept");
        let (unicast, broadcast, _) = iut.router.buffered_octets();
        assert!(unicast <= 5000 && broadcast <= 8000);
    }
    iut.make_neighbours(&[SimulatedStation::b()]);
    let kept = |kind: u8| -> Vec<u8> {
        iut.sent_transmissions
            .iter()
            .filter(|s| s.frame[5] == kind)
            .map(|s| s.frame[s.frame.len() - 1])
            .collect()
    };
    assert_eq!(kept(0x20), (25..30).collect::<Vec<u8>>());
    assert_eq!(kept(0x40), (22..30).collect::<Vec<u8>>());
    assert_eq!(iut.dropped_packets(GeonetDrop::ForwardingBufferOverflow), 25 + 22);
}

/// Outside its area, a GBC waits for a neighbour that is nearer to the area.
#[test]
fn geobroadcast_waits_for_a_neighbour_nearer_to_its_area() {
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_simple_forwarding());
    iut.make_neighbours(&[SimulatedStation::e()]);
    iut.request_payload_with_scf(Transport::GeoBroadcast(etsi_area_2()), b"x").expect("accepted");
    iut.make_neighbours(&[SimulatedStation::c(), SimulatedStation::e().with_later_timestamp(10)]);
    iut.assert_nothing_sent();
    iut.make_neighbours(&[SimulatedStation::d()]);
    assert_eq!(iut.take_only_transmission().destination, SimulatedStation::d().mac);
}
