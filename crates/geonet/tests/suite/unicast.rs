//! GUC (10.3.8) by greedy forwarding (E.2) and by contention (E.3), and its effect on the location table.

use std::time::Duration;

use carnet_geonet::mib::NonAreaForwarding;
use carnet_geonet::{BROADCAST, GeonetDrop, Mib, Transport};
use carnet_wire::geonet::{ExtendedHeader, HeaderType};

use crate::craft::*;

fn cbf() -> Mib {
    Mib { non_area_forwarding: NonAreaForwarding::ContentionBased, ..Mib::default() }
}

/// PON_GUC_BV_01, FDV_GUC_BV_01: the source sends to the neighbour nearest to the destination.
#[test]
fn pon_guc_bv_01_source_greedy() {
    let mut iut = Iut::quiet(Mib::default());
    let (a, b) = (Station::a(), Station::b());
    iut.knows(&[b, Station::c(), Station::d()]);
    // The router knows station A only from a forwarded packet, so A is not a neighbour.
    iut.hear(&b, &a.tsb(b"x")).expect("forwarded");
    iut.sent.clear();
    iut.ask(Transport::GeoUnicast(a.pv.address), b"payload").expect("accepted");
    let sent = iut.one_sent();
    assert_eq!(sent.destination, b.mac);
    let packet = parse(&sent.frame);
    let ExtendedHeader::GeoUnicast { sequence, source, destination } = packet.extended else { panic!() };
    assert_eq!((sequence, source, destination), (0, iut.pv(), a.pv.to_short()));
    assert_eq!((packet.payload, packet.basic.remaining_hop_limit), (&b"payload"[..], 10));
}

/// PON_GUC_BV_02, PON_GUC_BV_03: a forwarder sends to the neighbour nearest to the destination and changes
/// only RHL.
#[test]
fn pon_guc_bv_02_forwarder_greedy() {
    let mut iut = Iut::quiet(Mib::default());
    iut.knows(&[Station::b(), Station::c(), Station::d()]);
    let frame = Station::c().guc(&Station::a().pv, b"payload");
    iut.get(&Station::c(), &frame).expect("forwarded");
    let sent = iut.one_sent();
    assert_eq!((sent.destination, sent.frame), (Station::b().mac, with_hops(frame, 9)));
    assert!(iut.delivered.is_empty());
}

/// E.2: the next hop changes when neighbours appear, move or leave.
#[test]
fn annex_e_2_greedy_forwarding_selects_best_neighbour() {
    let mut iut = Iut::quiet(Mib::default());
    let (a, b, d) = (Station::a(), Station::b(), Station::d());
    iut.knows(&[d]);
    let mut source = Station::c();
    let mut next_hop = |iut: &mut Iut| {
        source = source.next();
        iut.get(&Station::c(), &source.guc(&a.pv, b"x")).expect("forwarded");
        iut.one_sent().destination
    };
    assert_eq!(next_hop(&mut iut), d.mac);
    iut.knows(&[b]);
    assert_eq!(next_hop(&mut iut), b.mac);
    iut.knows(&[b.later(1).moved(Station::e().position())]);
    assert_eq!(next_hop(&mut iut), d.mac);
    // This station moves beyond D, so no neighbour is nearer to the destination, and the router broadcasts
    // the packet (PON_FPB_BV_12_01).
    iut.locate(Station::b().position(), 1_000_100);
    assert_eq!(next_hop(&mut iut), BROADCAST);
    iut.locate(HOME, 1_000_200);
    assert_eq!(next_hop(&mut iut), d.mac);
    iut.router.handle_link_failure(iut.now, d.mac);
    assert_eq!(next_hop(&mut iut), BROADCAST);
}

/// A neighbour at the same distance from the destination is no next hop: otherwise two stations would
/// exchange a packet endlessly.
#[test]
fn annex_e_2_greedy_next_hop_is_strictly_nearer() {
    let mut iut = Iut::quiet(Mib::default());
    iut.knows(&[Station::b().moved(HOME)]);
    iut.get(&Station::c(), &Station::c().guc(&Station::a().pv, b"x")).expect("forwarded");
    assert_eq!(iut.one_sent().destination, BROADCAST);
}

/// With a hold time, a flow keeps its next hop when a better neighbour appears, but not when the next hop has
/// left.
#[test]
fn hold_time_keeps_next_hop_of_a_flow() {
    let mut iut = Iut::quiet(Mib { next_hop_hold: Duration::from_millis(500), ..Mib::default() });
    let (a, b, d) = (Station::a(), Station::b(), Station::d());
    iut.knows(&[d]);
    let mut source = Station::c();
    let mut next_hop = |iut: &mut Iut| {
        source = source.next();
        iut.get(&Station::c(), &source.guc(&a.pv, b"x")).expect("forwarded");
        iut.one_sent().destination
    };
    assert_eq!(next_hop(&mut iut), d.mac);
    iut.knows(&[b]);
    assert_eq!(next_hop(&mut iut), d.mac);
    iut.wait_ms(500);
    assert_eq!(next_hop(&mut iut), b.mac);
    iut.router.handle_link_failure(iut.now, b.mac);
    assert_eq!(next_hop(&mut iut), d.mac);
}

/// PON_GUC_BO_04: the router does not forward packets with RHL 1 or 0.
#[test]
fn pon_guc_bo_04_hop_limit() {
    let mut iut = Iut::quiet(Mib::default());
    iut.knows(&[Station::b()]);
    let c = Station::c();
    for (sequence, hops) in [(1, 1), (2, 0)] {
        let frame = with_hops(Station { sequence, ..c }.guc(&Station::a().pv, b"x"), hops);
        assert_eq!(iut.get(&c, &frame), Err(GeonetDrop::HopLimit));
    }
    iut.nothing_sent();
}

/// PON_GUC_BV_05, PON_GUC_BO_13: the destination delivers the packet once.
#[test]
fn pon_guc_bv_05_destination() {
    let mut iut = Iut::quiet(Mib::default());
    let b = Station::b();
    let frame = with_hops(b.guc(&iut.pv(), b"payload"), 1);
    iut.get(&b, &frame).expect("delivered");
    assert_eq!(iut.get(&b, &frame), Err(GeonetDrop::Duplicate));
    iut.nothing_sent();
    let [delivery] = &iut.delivered[..] else { panic!() };
    assert_eq!((delivery.header_type, &delivery.payload[..]), (HeaderType::GeoUnicast, &b"payload"[..]));
    assert_eq!(delivery.destination, Some(address(IUT_MAC)));
}

/// PON_GUC_BO_12: the router does not forward a packet twice.
#[test]
fn pon_guc_bo_12_duplicates() {
    let mut iut = Iut::quiet(Mib::default());
    iut.knows(&[Station::b()]);
    let frame = Station::c().guc(&Station::a().pv, b"x");
    iut.get(&Station::c(), &frame).expect("forwarded");
    iut.sent.clear();
    assert_eq!(iut.get(&Station::c(), &frame), Err(GeonetDrop::Duplicate));
    iut.nothing_sent();
}

/// C.3: the router corrects the destination's position if the destination is a neighbour with a newer
/// position in the location table.
#[test]
fn annex_c_3_position_of_the_destination() {
    let b = Station::b();
    let newer = b.later(100).moved(place(50.0, 250.0));
    for (told, known, is_neighbour, expected) in [
        (b, newer, true, newer.pv.to_short()),
        (newer, b, true, newer.pv.to_short()),
        (b, newer, false, b.pv.to_short()),
    ] {
        let mut iut = Iut::quiet(Mib::default());
        if is_neighbour {
            iut.knows(&[known]);
        } else {
            iut.hear(&Station::d(), &known.tsb(b"x")).expect("forwarded");
            iut.sent.clear();
        }
        iut.get(&Station::c(), &Station::c().guc(&told.pv, b"x")).expect("forwarded");
        let sent = iut.one_sent();
        assert_eq!(parse(&sent.frame).extended.destination(), Some(&expected));
        assert_eq!(sent.destination, if is_neighbour { b.mac } else { BROADCAST });
    }
}

/// PON_LOT_BV_02, PON_LOT_BV_03_01 to 08: any packet makes an entry of its source; only a single-hop packet
/// makes the source a neighbour.
#[test]
fn pon_lot_bv_03_entries_from_extended_headers() {
    let b = Station::b();
    let me = address(IUT_MAC);
    let iut_pv = Iut::quiet(Mib::default()).pv();
    for (frame, neighbour) in [
        (b.beacon(), true),
        (b.shb(b"x"), true),
        (b.tsb(b"x"), false),
        (b.guc(&iut_pv, b"x"), false),
        (b.gbc(area1(), b"x"), false),
        (b.gac(area1(), b"x"), false),
        (b.ls_request(me), false),
        (b.ls_reply(&iut_pv), false),
    ] {
        let mut iut = Iut::quiet(Mib::default());
        iut.hear(&b, &frame).expect("received");
        let table = iut.router.location_table();
        let (_, entry) = table.iter().next().expect("an entry");
        assert_eq!((*entry.position_vector(), entry.is_neighbour()), (b.pv, neighbour));
        // PON_LOT_BV_05: a packet with an older position does not change the location table.
        let old = b.next();
        let mut older = old;
        older.pv.timestamp = older.pv.timestamp.wrapping_sub(Duration::from_secs(1));
        older.pv.latitude += 5000;
        iut.hear(&b, &older.tsb(b"x")).expect("received");
        assert_eq!(*iut.router.location_table().iter().next().expect("an entry").1.position_vector(), b.pv);
    }
}

/// PON_LOT_BV_04: after 20 s the station's entry has expired, and the Location Service seeks it.
#[test]
fn pon_lot_bv_04_expiry() {
    let mut iut = Iut::quiet(Mib::default());
    iut.knows(&[Station::b()]);
    iut.wait(Duration::from_millis(19_999));
    iut.ask(Transport::GeoUnicast(Station::b().pv.address), b"x").expect("accepted");
    assert_eq!(iut.one_sent().frame[5], 0x20);
    iut.wait_ms(1);
    assert!(iut.router.location_table().is_empty());
    iut.ask(Transport::GeoUnicast(Station::b().pv.address), b"x").expect("accepted");
    assert_eq!(iut.one_sent().frame[5], 0x60);
}

/// PON_GUC_BV_06, PON_GUC_BV_07: contention by progress; more progress gives a shorter timer.
#[test]
fn pon_guc_bv_06_contention_by_progress() {
    // E is 111 m south of this station, so the packet came 111 m nearer: 100 ms - 99 ms * 0.111 = 89.0 ms.
    // For C it is 667 m, 33.9 ms.
    for (sender, milliseconds) in [(Station::e(), 88.99), (Station::c(), 33.94)] {
        let mut iut = Iut::quiet(cbf());
        iut.knows(&[sender]);
        let frame = sender.guc(&Station::a().pv, b"x");
        iut.hear(&sender, &frame).expect("in contention");
        iut.nothing_sent();
        let due = iut.router.poll_timeout().expect("a timer").saturating_since(iut.now).as_secs_f64() * 1e3;
        assert!((due - milliseconds).abs() < 0.1, "{due} ms");
        iut.wait_ms(100);
        let sent = iut.one_sent();
        assert_eq!((sent.destination, sent.frame), (BROADCAST, one_hop_later(frame)));
    }
    // Beyond the communication range the timer has the least time.
    let far = Station::at(7, place(0.0, -1200.0));
    let mut iut = Iut::quiet(cbf());
    iut.knows(&[far]);
    iut.hear(&far, &far.guc(&Station::a().pv, b"x")).expect("in contention");
    iut.wait_ms(1);
    iut.one_sent();
}

/// PON_GUC_BV_08: another station repeats the packet first and ends the contention.
#[test]
fn pon_guc_bv_08_contention_lost() {
    let mut iut = Iut::quiet(cbf());
    iut.knows(&[Station::c(), Station::d()]);
    let frame = Station::c().guc(&Station::a().pv, b"x");
    iut.hear(&Station::c(), &frame).expect("in contention");
    iut.wait_ms(5);
    let lost = iut.hear(&Station::d(), &with_hops(frame.clone(), 9));
    assert_eq!(lost, Err(GeonetDrop::Contention));
    iut.wait(Duration::from_secs(1));
    // A late copy does not restart the contention.
    assert_eq!(iut.hear(&Station::d(), &with_hops(frame, 8)), Err(GeonetDrop::Duplicate));
    iut.wait(Duration::from_secs(1));
    iut.nothing_sent();
    assert_eq!(iut.router.buffered_octets(), (0, 0, 0));
}

/// PON_GUC_BV_10: for an unknown sender, or one with PAI = 0, the timer has the longest time. E.3: without
/// progress the station does not forward.
#[test]
fn pon_guc_bv_10_contention_with_an_unknown_sender() {
    let mut vague = Station::c();
    vague.pv.accurate = false;
    for known in [None, Some(vague)] {
        let mut iut = Iut::quiet(cbf());
        iut.knows(known.as_slice());
        iut.hear(&Station::c(), &Station::b().guc(&Station::a().pv, b"x")).expect("in contention");
        iut.wait_ms(99);
        iut.nothing_sent();
        iut.wait_ms(1);
        iut.one_sent();
    }
    let mut iut = Iut::quiet(cbf());
    iut.knows(&[Station::d()]);
    let backwards = iut.hear(&Station::d(), &Station::d().guc(&Station::a().pv, b"x"));
    assert_eq!(backwards, Err(GeonetDrop::NoProgress));
}

/// PON_GUC_BV_11: with contention the source broadcasts at once.
#[test]
fn pon_guc_bv_11_source_contention() {
    let mut iut = Iut::quiet(cbf());
    iut.knows(&[Station::b()]);
    iut.ask(Transport::GeoUnicast(Station::b().pv.address), b"x").expect("accepted");
    assert_eq!(iut.one_sent().destination, BROADCAST);
}
