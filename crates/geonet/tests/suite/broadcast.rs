//! TSB (10.3.9), SHB (10.3.10), repetition, duplicates and packet data rate.

use std::time::Duration;

use carnet_geonet::{BROADCAST, Event, GeonetDrop, Mib, Repetition, Request, Transport};
use carnet_wire::geonet::{CommonNextHeader, HeaderType};

use crate::simulated_stations::*;

/// PON_TSB_BV_02, PON_TSB_BV_04, PON_TSB_BV_06: the station delivers the packet and forwards it with RHL
/// lower by one and otherwise unchanged.
#[test]
fn pon_tsb_bv_02_forwarded_once() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let frame = SimulatedStation::b().tsb_frame(b"payload");
    iut.receive_broadcast(&SimulatedStation::b(), &frame).expect("forwarded");
    let sent = iut.take_only_transmission();
    assert_eq!((sent.destination, sent.frame), (BROADCAST, with_remaining_hops(frame, 9)));
    let [delivery] = &iut.delivered_payloads[..] else { panic!() };
    assert_eq!(delivery.header_type, HeaderType::TopologicallyScoped);
    assert_eq!((&delivery.payload[..], delivery.remaining_hop_limit), (&b"payload"[..], 10));
    assert_eq!(
        (delivery.source, delivery.link_layer_sender),
        (SimulatedStation::b().position_vector, SimulatedStation::b().mac)
    );
    // The source of the forwarded packet has a location table entry, but is not a neighbour.
    assert_eq!((iut.router.location_table().len(), iut.router.location_table().neighbour_count()), (1, 0));
}

/// PON_TSB_BO_03, PON_TSB_BO_07: the station neither delivers nor forwards a second copy.
#[test]
fn pon_tsb_bo_03_duplicates() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let b = SimulatedStation::b();
    iut.receive_broadcast(&b, &b.tsb_frame(b"x")).expect("forwarded");
    iut.sent_transmissions.clear();
    assert_eq!(
        iut.receive_broadcast(&SimulatedStation::d(), &with_remaining_hops(b.tsb_frame(b"x"), 5)),
        Err(GeonetDrop::Duplicate)
    );
    iut.assert_nothing_sent();
    assert_eq!(iut.delivered_payloads.len(), 1);
    // A packet of another source with the same number is no duplicate, and neither is a packet of the same
    // source with another number.
    let e = SimulatedStation::e();
    iut.receive_broadcast(&e, &e.tsb_frame(b"x")).expect("another source");
    iut.receive_broadcast(&b, &b.next().tsb_frame(b"x")).expect("another number");
}

/// Annex A: the duplicate packet list holds the last itsGnDPLLength sequence numbers.
#[test]
fn annex_a_duplicate_list_keeps_the_last_eight_numbers() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let b = SimulatedStation::b();
    for sequence in 0..9 {
        iut.receive_broadcast(&b, &SimulatedStation { sequence, ..b }.tsb_frame(b"x")).expect("new");
    }
    for sequence in 1..9 {
        let frame = SimulatedStation { sequence, ..b }.tsb_frame(b"x");
        assert_eq!(iut.receive_broadcast(&b, &frame), Err(GeonetDrop::Duplicate));
    }
    iut.receive_broadcast(&b, &SimulatedStation { sequence: 0, ..b }.tsb_frame(b"x")).expect("forgotten");
}

/// PON_TSB_BO_05: the last hop delivers the packet and does not forward it; the station also does not forward
/// a packet with RHL 0.
#[test]
fn pon_tsb_bo_05_the_last_hop() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let b = SimulatedStation::b();
    for (sequence, hops) in [(1, 1), (2, 0)] {
        let frame = with_remaining_hops(SimulatedStation { sequence, ..b }.tsb_frame(b"x"), hops);
        assert_eq!(iut.receive_broadcast(&b, &frame), Err(GeonetDrop::HopLimit));
    }
    iut.assert_nothing_sent();
    assert_eq!(iut.delivered_payloads.len(), 2);
}

/// PON_TSB_BO_08, vanetza#190: the station neither delivers nor forwards an echo of its own packet, and
/// reports no conflict.
#[test]
fn pon_tsb_bo_08_own_echo() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    for transport in [
        Transport::TopologicallyScoped,
        Transport::GeoBroadcast(etsi_area_1()),
        Transport::GeoAnycast(etsi_area_1()),
        Transport::SingleHop([0; 4]),
    ] {
        iut.request_payload(transport, b"x").expect("accepted");
        let mut frame = iut.take_only_transmission().frame;
        frame[3] = frame[3].saturating_sub(1).max(1);
        iut.set_position(position_at(0.5, 0.5), iut.position_vector().timestamp.0 + 100);
        assert_eq!(iut.receive_broadcast(&SimulatedStation::b(), &frame), Err(GeonetDrop::OwnEcho));
        assert_eq!(iut.receive_from(ROUTER_MAC, BROADCAST, &frame), Err(GeonetDrop::OwnEcho));
        iut.assert_nothing_sent();
    }
    // The station also refuses a packet that it has just forwarded and that comes back to it.
    let refused = iut.receive_from(
        ROUTER_MAC,
        BROADCAST,
        &with_remaining_hops(SimulatedStation::b().tsb_frame(b"x"), 9),
    );
    assert_eq!(refused, Err(GeonetDrop::OwnEcho));
    assert!(iut.delivered_payloads.is_empty() && iut.events.is_empty());
    assert_eq!(iut.router.address(), address(ROUTER_MAC));
    assert!(iut.router.location_table().is_empty());
}

/// PON_SHB_BV_02, PON_LOT_BV_03_06: the station delivers the packet, does not forward it, and its source
/// becomes a neighbour.
#[test]
fn pon_shb_bv_02_delivered() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let b = SimulatedStation::b();
    iut.receive_broadcast(&b, &b.shb_frame(b"cam")).expect("delivered");
    iut.assert_nothing_sent();
    assert_eq!(iut.delivered_payloads[0].payload, b"cam");
    assert_eq!(iut.events, [Event::NewNeighbour(b.position_vector.address)]);
    // Single-hop packets are never duplicates. The second packet of a neighbour does not report a new
    // neighbour again.
    iut.receive_broadcast(&b, &b.shb_frame(b"cam")).expect("delivered");
    assert_eq!((iut.delivered_payloads.len(), iut.events.len()), (2, 1));
}

/// The station ignores a frame to another station that the link passes up.
#[test]
fn router_ignores_unicast_frames_for_other_stations() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let b = SimulatedStation::b();
    let frame = b.shb_frame(b"x");
    assert_eq!(iut.receive_from(b.mac, SimulatedStation::d().mac, &frame), Err(GeonetDrop::NotAddressed));
    assert_eq!(iut.receive_from(BROADCAST, BROADCAST, &frame), Err(GeonetDrop::BadSender));
    assert_eq!(iut.receive_from([0; 6], BROADCAST, &frame), Err(GeonetDrop::BadSender));
    assert!(iut.router.location_table().is_empty());
}

/// 10.3.9.2: repetition sends the same packet again until its maximum time ends.
#[test]
fn broadcast_is_repeated_at_its_interval() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let request = Request::new(Transport::TopologicallyScoped, CommonNextHeader::BtpB, b"x");
    let interval = Duration::from_millis(250);
    let repetition = Some(Repetition { interval, maximum_time: Duration::from_secs(1) });
    iut.request(Request { repetition, ..request }).expect("accepted");
    iut.advance_time(Duration::from_secs(3));
    assert_eq!(iut.sent_transmissions.len(), 5);
    assert!(iut.sent_transmissions.iter().all(|sent| sent.frame == iut.sent_transmissions[0].frame));
    let too_often = Repetition { interval: Duration::from_millis(99), maximum_time: interval };
    let refused = iut.request(Request { repetition: Some(too_often), ..request });
    assert_eq!(refused, Err(GeonetDrop::BadRepetition));
}

/// B.2: the station delivers packets of a source or sender above itsGnMaxPacketDataRate but does not forward
/// them.
#[test]
fn annex_b_2_packet_data_rate() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    iut.make_neighbours(&[SimulatedStation::e()]);
    let mut station = SimulatedStation::b();
    let payload = [0; 1000];
    let mut refused = 0;
    for _ in 0..10_000 {
        station = station.next();
        iut.advance_milliseconds(1);
        match iut.receive_broadcast(&station, &station.tsb_frame(&payload)) {
            Ok(()) => assert_eq!(refused, 0, "once above, always above"),
            Err(reason) => {
                assert_eq!(reason, GeonetDrop::PacketDataRate);
                refused += 1;
            }
        }
    }
    assert!(refused > 8_000, "{refused}");
    assert_eq!(iut.delivered_payloads.len(), 10_000);
    // The station still forwards packets of other sources, but only if they do not arrive from the flooding
    // station.
    iut.sent_transmissions.clear();
    let d = SimulatedStation::d();
    iut.receive_broadcast(&SimulatedStation::e(), &d.tsb_frame(b"x")).expect("forwarded");
    let refused = iut.receive_broadcast(&SimulatedStation::b(), &d.next().tsb_frame(b"x"));
    assert_eq!(refused, Err(GeonetDrop::PacketDataRate));
    // After 15 s without packets, the station again forwards packets of the station that flooded it.
    iut.advance_time(Duration::from_secs(15));
    iut.receive_broadcast(&station, &station.with_later_timestamp(25_000).next().tsb_frame(b"x"))
        .expect("forwarded");
}
