//! GUC (10.3.8) by greedy forwarding (E.2) and by contention (E.3), and its effect on the location table.

use std::time::Duration;

use carnet_geonet::mib::NonAreaForwarding;
use carnet_geonet::{BROADCAST, GeonetDrop, Mib, Transport};
use carnet_wire::geonet::{ExtendedHeader, HeaderType};

use crate::simulated_stations::*;

fn mib_with_contention() -> Mib {
    Mib { non_area_forwarding: NonAreaForwarding::ContentionBased, ..Mib::default() }
}

/// PON_GUC_BV_01, FDV_GUC_BV_01: the source sends to the neighbour nearest to the destination.
#[test]
fn pon_guc_bv_01_source_greedy() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let (a, b) = (SimulatedStation::a(), SimulatedStation::b());
    iut.make_neighbours(&[b, SimulatedStation::c(), SimulatedStation::d()]);
    // The router knows station A only from a forwarded packet, so A is not a neighbour.
    iut.receive_broadcast(&b, &a.tsb_frame(b"x")).expect("forwarded");
    iut.sent_transmissions.clear();
    iut.request_payload(Transport::GeoUnicast(a.position_vector.address), b"payload").expect("accepted");
    let sent = iut.take_only_transmission();
    assert_eq!(sent.destination, b.mac);
    let packet = parse(&sent.frame);
    let ExtendedHeader::GeoUnicast { sequence, source, destination } = packet.extended else { panic!() };
    assert_eq!((sequence, source, destination), (0, iut.position_vector(), a.position_vector.to_short()));
    assert_eq!((packet.payload, packet.basic.remaining_hop_limit), (&b"payload"[..], 10));
}

/// PON_GUC_BV_02, PON_GUC_BV_03: a forwarder sends to the neighbour nearest to the destination and changes
/// only RHL.
#[test]
fn pon_guc_bv_02_forwarder_greedy() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    iut.make_neighbours(&[SimulatedStation::b(), SimulatedStation::c(), SimulatedStation::d()]);
    let frame = SimulatedStation::c().guc_frame(&SimulatedStation::a().position_vector, b"payload");
    iut.receive_unicast(&SimulatedStation::c(), &frame).expect("forwarded");
    let sent = iut.take_only_transmission();
    assert_eq!((sent.destination, sent.frame), (SimulatedStation::b().mac, with_remaining_hops(frame, 9)));
    assert!(iut.delivered_payloads.is_empty());
}

/// E.2: the next hop changes when neighbours appear, move or leave.
#[test]
fn annex_e_2_greedy_forwarding_selects_best_neighbour() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let (a, b, d) = (SimulatedStation::a(), SimulatedStation::b(), SimulatedStation::d());
    iut.make_neighbours(&[d]);
    let mut source = SimulatedStation::c();
    let mut next_hop = |iut: &mut RouterUnderTest| {
        source = source.next();
        iut.receive_unicast(&SimulatedStation::c(), &source.guc_frame(&a.position_vector, b"x"))
            .expect("forwarded");
        iut.take_only_transmission().destination
    };
    assert_eq!(next_hop(&mut iut), d.mac);
    iut.make_neighbours(&[b]);
    assert_eq!(next_hop(&mut iut), b.mac);
    iut.make_neighbours(&[b.with_later_timestamp(1).moved_to(SimulatedStation::e().position())]);
    assert_eq!(next_hop(&mut iut), d.mac);
    // This station moves beyond D, so no neighbour is nearer to the destination, and the router broadcasts
    // the packet (PON_FPB_BV_12_01).
    iut.set_position(SimulatedStation::b().position(), 1_000_100);
    assert_eq!(next_hop(&mut iut), BROADCAST);
    iut.set_position(ROUTER_POSITION, 1_000_200);
    assert_eq!(next_hop(&mut iut), d.mac);
    iut.router.handle_link_failure(iut.now, d.mac);
    assert_eq!(next_hop(&mut iut), BROADCAST);
}

/// A neighbour at the same distance from the destination is no next hop: otherwise two stations would
/// exchange a packet endlessly.
#[test]
fn annex_e_2_greedy_next_hop_is_strictly_nearer() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    iut.make_neighbours(&[SimulatedStation::b().moved_to(ROUTER_POSITION)]);
    iut.receive_unicast(
        &SimulatedStation::c(),
        &SimulatedStation::c().guc_frame(&SimulatedStation::a().position_vector, b"x"),
    )
    .expect("forwarded");
    assert_eq!(iut.take_only_transmission().destination, BROADCAST);
}

/// With a hold time, a flow keeps its next hop when a better neighbour appears, but not when the next hop has
/// left.
#[test]
fn hold_time_keeps_next_hop_of_a_flow() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib {
        next_hop_hold: Duration::from_millis(500),
        ..Mib::default()
    });
    let (a, b, d) = (SimulatedStation::a(), SimulatedStation::b(), SimulatedStation::d());
    iut.make_neighbours(&[d]);
    let mut source = SimulatedStation::c();
    let mut next_hop = |iut: &mut RouterUnderTest| {
        source = source.next();
        iut.receive_unicast(&SimulatedStation::c(), &source.guc_frame(&a.position_vector, b"x"))
            .expect("forwarded");
        iut.take_only_transmission().destination
    };
    assert_eq!(next_hop(&mut iut), d.mac);
    iut.make_neighbours(&[b]);
    assert_eq!(next_hop(&mut iut), d.mac);
    iut.advance_milliseconds(500);
    assert_eq!(next_hop(&mut iut), b.mac);
    iut.router.handle_link_failure(iut.now, b.mac);
    assert_eq!(next_hop(&mut iut), d.mac);
}

/// PON_GUC_BO_04: the router does not forward packets with RHL 1 or 0.
#[test]
fn pon_guc_bo_04_hop_limit() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    iut.make_neighbours(&[SimulatedStation::b()]);
    let c = SimulatedStation::c();
    for (sequence, hops) in [(1, 1), (2, 0)] {
        let frame = with_remaining_hops(
            SimulatedStation { sequence, ..c }.guc_frame(&SimulatedStation::a().position_vector, b"x"),
            hops,
        );
        assert_eq!(iut.receive_unicast(&c, &frame), Err(GeonetDrop::HopLimit));
    }
    iut.assert_nothing_sent();
}

/// PON_GUC_BV_05, PON_GUC_BO_13: the destination delivers the packet once.
#[test]
fn pon_guc_bv_05_destination() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let b = SimulatedStation::b();
    let frame = with_remaining_hops(b.guc_frame(&iut.position_vector(), b"payload"), 1);
    iut.receive_unicast(&b, &frame).expect("delivered");
    assert_eq!(iut.receive_unicast(&b, &frame), Err(GeonetDrop::Duplicate));
    iut.assert_nothing_sent();
    let [delivery] = &iut.delivered_payloads[..] else { panic!() };
    assert_eq!((delivery.header_type, &delivery.payload[..]), (HeaderType::GeoUnicast, &b"payload"[..]));
    assert_eq!(delivery.destination, Some(address(ROUTER_MAC)));
}

/// PON_GUC_BO_12: the router does not forward a packet twice.
#[test]
fn pon_guc_bo_12_duplicates() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    iut.make_neighbours(&[SimulatedStation::b()]);
    let frame = SimulatedStation::c().guc_frame(&SimulatedStation::a().position_vector, b"x");
    iut.receive_unicast(&SimulatedStation::c(), &frame).expect("forwarded");
    iut.sent_transmissions.clear();
    assert_eq!(iut.receive_unicast(&SimulatedStation::c(), &frame), Err(GeonetDrop::Duplicate));
    iut.assert_nothing_sent();
}

/// C.3: the router corrects the destination's position if the destination is a neighbour with a newer
/// position in the location table.
#[test]
fn annex_c_3_forwarder_updates_position_of_the_destination() {
    let b = SimulatedStation::b();
    let newer = b.with_later_timestamp(100).moved_to(position_at(50.0, 250.0));
    for (told, known, is_neighbour, expected) in [
        (b, newer, true, newer.position_vector.to_short()),
        (newer, b, true, newer.position_vector.to_short()),
        (b, newer, false, b.position_vector.to_short()),
    ] {
        let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
        if is_neighbour {
            iut.make_neighbours(&[known]);
        } else {
            iut.receive_broadcast(&SimulatedStation::d(), &known.tsb_frame(b"x")).expect("forwarded");
            iut.sent_transmissions.clear();
        }
        iut.receive_unicast(
            &SimulatedStation::c(),
            &SimulatedStation::c().guc_frame(&told.position_vector, b"x"),
        )
        .expect("forwarded");
        let sent = iut.take_only_transmission();
        assert_eq!(parse(&sent.frame).extended.destination(), Some(&expected));
        assert_eq!(sent.destination, if is_neighbour { b.mac } else { BROADCAST });
    }
}

/// PON_LOT_BV_02, PON_LOT_BV_03_01 to 08: any packet makes an entry of its source; only a single-hop packet
/// makes the source a neighbour.
#[test]
fn pon_lot_bv_03_entries_from_extended_headers() {
    let b = SimulatedStation::b();
    let me = address(ROUTER_MAC);
    let iut_pv = RouterUnderTest::with_rare_beacons(Mib::default()).position_vector();
    for (frame, neighbour) in [
        (b.beacon_frame(), true),
        (b.shb_frame(b"x"), true),
        (b.tsb_frame(b"x"), false),
        (b.guc_frame(&iut_pv, b"x"), false),
        (b.gbc_frame(etsi_area_1(), b"x"), false),
        (b.gac_frame(etsi_area_1(), b"x"), false),
        (b.ls_request_frame(me), false),
        (b.ls_reply_frame(&iut_pv), false),
    ] {
        let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
        iut.receive_broadcast(&b, &frame).expect("received");
        let table = iut.router.location_table();
        let (_, entry) = table.iter().next().expect("an entry");
        assert_eq!((*entry.position_vector(), entry.is_neighbour()), (b.position_vector, neighbour));
        // PON_LOT_BV_05: a packet with an older position does not change the location table.
        let old = b.next();
        let mut older = old;
        older.position_vector.timestamp =
            older.position_vector.timestamp.wrapping_sub(Duration::from_secs(1));
        older.position_vector.latitude += 5000;
        iut.receive_broadcast(&b, &older.tsb_frame(b"x")).expect("received");
        assert_eq!(
            *iut.router.location_table().iter().next().expect("an entry").1.position_vector(),
            b.position_vector
        );
    }
}

/// PON_LOT_BV_04: after 20 s the station's entry has expired, and the Location Service seeks it.
#[test]
fn pon_lot_bv_04_expiry() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    iut.make_neighbours(&[SimulatedStation::b()]);
    iut.advance_time(Duration::from_millis(19_999));
    iut.request_payload(Transport::GeoUnicast(SimulatedStation::b().position_vector.address), b"x")
        .expect("accepted");
    assert_eq!(iut.take_only_transmission().frame[5], 0x20);
    iut.advance_milliseconds(1);
    assert!(iut.router.location_table().is_empty());
    iut.request_payload(Transport::GeoUnicast(SimulatedStation::b().position_vector.address), b"x")
        .expect("accepted");
    assert_eq!(iut.take_only_transmission().frame[5], 0x60);
}

/// PON_GUC_BV_06, PON_GUC_BV_07: with contention, the station with more progress has a shorter timer.
#[test]
fn pon_guc_bv_06_contention_by_progress() {
    // E is 111 m south of this station, so the hop from E brought the packet 111 m nearer. The timer is 100
    // ms - 99 ms * 0.111 = 89.0 ms. The hop from C brought it 667 m nearer: 33.9 ms.
    for (sender, milliseconds) in [(SimulatedStation::e(), 88.99), (SimulatedStation::c(), 33.94)] {
        let mut iut = RouterUnderTest::with_rare_beacons(mib_with_contention());
        iut.make_neighbours(&[sender]);
        let frame = sender.guc_frame(&SimulatedStation::a().position_vector, b"x");
        iut.receive_broadcast(&sender, &frame).expect("in contention");
        iut.assert_nothing_sent();
        let due = iut.router.poll_timeout().expect("a timer").saturating_since(iut.now).as_secs_f64() * 1e3;
        assert!((due - milliseconds).abs() < 0.1, "{due} ms");
        iut.advance_milliseconds(100);
        let sent = iut.take_only_transmission();
        assert_eq!((sent.destination, sent.frame), (BROADCAST, forwarded_by_one_hop(frame)));
    }
    // If the hop was longer than the communication range, the timer has its shortest time.
    let far = SimulatedStation::station_at(7, position_at(0.0, -1200.0));
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_contention());
    iut.make_neighbours(&[far]);
    iut.receive_broadcast(&far, &far.guc_frame(&SimulatedStation::a().position_vector, b"x"))
        .expect("in contention");
    iut.advance_milliseconds(1);
    iut.take_only_transmission();
}

/// PON_GUC_BV_08: another station repeats the packet first and ends the contention.
#[test]
fn pon_guc_bv_08_contention_lost() {
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_contention());
    iut.make_neighbours(&[SimulatedStation::c(), SimulatedStation::d()]);
    let frame = SimulatedStation::c().guc_frame(&SimulatedStation::a().position_vector, b"x");
    iut.receive_broadcast(&SimulatedStation::c(), &frame).expect("in contention");
    iut.advance_milliseconds(5);
    let lost = iut.receive_broadcast(&SimulatedStation::d(), &with_remaining_hops(frame.clone(), 9));
    assert_eq!(lost, Err(GeonetDrop::Contention));
    iut.advance_time(Duration::from_secs(1));
    // A copy that arrives after the end of the contention does not restart it.
    assert_eq!(
        iut.receive_broadcast(&SimulatedStation::d(), &with_remaining_hops(frame, 8)),
        Err(GeonetDrop::Duplicate)
    );
    iut.advance_time(Duration::from_secs(1));
    iut.assert_nothing_sent();
    assert_eq!(iut.router.buffered_octets(), (0, 0, 0));
}

/// PON_GUC_BV_10: if the sender is unknown or has PAI = 0, the contention timer has its longest time. E.3:
/// without progress the station does not forward.
#[test]
fn pon_guc_bv_10_contention_with_an_unknown_sender() {
    let mut vague = SimulatedStation::c();
    vague.position_vector.accurate = false;
    for known in [None, Some(vague)] {
        let mut iut = RouterUnderTest::with_rare_beacons(mib_with_contention());
        iut.make_neighbours(known.as_slice());
        iut.receive_broadcast(
            &SimulatedStation::c(),
            &SimulatedStation::b().guc_frame(&SimulatedStation::a().position_vector, b"x"),
        )
        .expect("in contention");
        iut.advance_milliseconds(99);
        iut.assert_nothing_sent();
        iut.advance_milliseconds(1);
        iut.take_only_transmission();
    }
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_contention());
    iut.make_neighbours(&[SimulatedStation::d()]);
    let backwards = iut.receive_broadcast(
        &SimulatedStation::d(),
        &SimulatedStation::d().guc_frame(&SimulatedStation::a().position_vector, b"x"),
    );
    assert_eq!(backwards, Err(GeonetDrop::NoProgress));
}

/// PON_GUC_BV_11: with contention the source broadcasts at once.
#[test]
fn pon_guc_bv_11_source_contention() {
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_contention());
    iut.make_neighbours(&[SimulatedStation::b()]);
    iut.request_payload(Transport::GeoUnicast(SimulatedStation::b().position_vector.address), b"x")
        .expect("accepted");
    assert_eq!(iut.take_only_transmission().destination, BROADCAST);
}
