//! Store-carry-forward: the forwarding packet buffers (8.5).

use std::time::Duration;

use carnet_geonet::mib::AreaForwarding;
use carnet_geonet::{BROADCAST, GeonetDrop, Mib, Transport};

use crate::craft::*;

fn simple() -> Mib {
    Mib { area_forwarding: AreaForwarding::Simple, max_packet_data_rate: None, ..Mib::default() }
}

/// PON_FPB_BV_01, PON_FPB_BV_03, PON_FPB_BV_09: own GUCs wait for a next hop, leave in order, and their
/// lifetime gets shorter.
#[test]
fn pon_fpb_bv_01_source_unicast() {
    let mut iut = Iut::quiet(simple());
    iut.hear(&Station::c(), &Station::a().tsb(b"x")).expect("forwarded");
    iut.sent.clear();
    iut.ask_scf(Transport::GeoUnicast(Station::a().pv.address), b"1").expect("accepted");
    iut.wait(Duration::from_secs(3));
    iut.ask_scf(Transport::GeoUnicast(Station::a().pv.address), b"2").expect("accepted");
    // A neighbour in the opposite direction is no next hop, so the packets continue to wait.
    iut.knows(&[Station::c()]);
    iut.wait(Duration::from_secs(2));
    iut.nothing_sent();
    iut.knows(&[Station::b()]);
    let sent: Vec<_> = iut.sent.drain(..).collect();
    assert!(sent.iter().all(|sent| sent.destination == Station::b().mac));
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
    let mut iut = Iut::quiet(simple());
    iut.knows(&[Station::c()]);
    let frame = with_scf(Station::c().guc(&Station::a().pv, b"x"));
    iut.get(&Station::c(), &frame).expect("kept");
    iut.nothing_sent();
    iut.wait(Duration::from_secs(10));
    // Only a neighbour nearer to the destination, or the destination itself, releases the waiting packet.
    iut.knows(&[Station::e()]);
    iut.nothing_sent();
    iut.knows(&[Station::a()]);
    let sent = iut.one_sent();
    let expected = with_lifetime(with_hops(frame, 9), Duration::from_secs(50));
    assert_eq!((sent.destination, sent.frame), (Station::a().mac, expected));
}

/// PON_FPB_BV_04, PON_FPB_BV_08: the router drops buffered packets when their lifetime ends.
#[test]
fn pon_fpb_bv_04_lifetime() {
    let mut iut = Iut::quiet(simple());
    for frame in [Station::c().guc(&Station::a().pv, b"x"), Station::e().gbc(area1(), b"x")] {
        let frame = with_lifetime(with_scf(frame), Duration::from_secs(5));
        iut.hear(&Station::c(), &frame).expect("kept");
    }
    let (unicast, broadcast, _) = iut.router.buffered_octets();
    assert!(unicast > 0 && broadcast > 0);
    iut.wait(Duration::from_millis(4999));
    assert_eq!(iut.dropped(GeonetDrop::LifetimeExpired), 0);
    iut.wait_ms(1);
    assert_eq!(iut.dropped(GeonetDrop::LifetimeExpired), 2);
    assert_eq!(iut.router.buffered_octets(), (0, 0, 0));
    iut.knows(&[Station::b()]);
    iut.nothing_sent();
}

/// PON_FPB_BV_06, PON_FPB_BV_07, PON_FPB_BV_10: broadcasts wait for the first neighbour and leave in order.
#[test]
fn pon_fpb_bv_06_source_broadcast() {
    let mut iut = Iut::quiet(simple());
    iut.ask_scf(Transport::GeoBroadcast(area1()), b"1").expect("accepted");
    iut.ask_scf(Transport::TopologicallyScoped, b"2").expect("accepted");
    iut.ask_scf(Transport::SingleHop([0; 4]), b"3").expect("accepted");
    iut.ask_scf(Transport::GeoAnycast(area1()), b"4").expect("accepted");
    iut.wait(Duration::from_secs(4));
    iut.nothing_sent();
    // A station known only from forwarded packets is not a neighbour.
    iut.hear(&Station::b(), &Station::a().tsb(b"x")).expect("forwarded");
    iut.one_sent();
    iut.knows(&[Station::c()]);
    let payloads: Vec<u8> = iut.sent.iter().map(|sent| sent.frame[sent.frame.len() - 1]).collect();
    assert_eq!(payloads, *b"1234");
    for sent in &iut.sent {
        assert_eq!(sent.destination, BROADCAST);
        assert_eq!(parse(&sent.frame).basic.lifetime.duration().as_secs(), 56);
    }
}

/// PON_FPB_BV_11_01 to 05, PON_FPB_BV_12_01 to 04: without SCF the router broadcasts every packet at once.
#[test]
fn pon_fpb_bv_11_no_scf() {
    let mut iut = Iut::quiet(simple());
    let a = Station::a();
    iut.hear(&Station::c(), &a.tsb(b"x")).expect("forwarded");
    iut.sent.clear();
    for transport in [
        Transport::GeoUnicast(a.pv.address),
        Transport::GeoAnycast(area2()),
        Transport::GeoBroadcast(area2()),
        Transport::TopologicallyScoped,
        Transport::SingleHop([0; 4]),
    ] {
        iut.ask(transport, b"x").expect("accepted");
        assert_eq!(iut.one_sent().destination, BROADCAST);
    }
    let c = Station::c();
    for frame in [
        c.guc(&a.pv, b"x"),
        c.next().gac(area2(), b"x"),
        c.next().next().gbc(area2(), b"x"),
        c.next().next().next().tsb(b"x"),
    ] {
        iut.hear(&c, &frame).expect("forwarded");
        let sent = iut.one_sent();
        assert_eq!((sent.destination, sent.frame), (BROADCAST, with_hops(frame, 9)));
    }
}

/// CAP_FPB_BV_01, CAP_FPB_BV_02: octets limit the buffers, which drop their oldest packets.
#[test]
fn cap_fpb_bv_01_overflow() {
    let mut iut = Iut::quiet(Mib { unicast_buffer_size: 5000, broadcast_buffer_size: 8000, ..simple() });
    let mut c = Station::c();
    for number in 0..30 {
        c = c.next();
        iut.hear(&c, &with_scf(c.guc(&Station::a().pv, &[number; 940]))).expect("kept");
        c = c.next();
        iut.hear(&c, &with_scf(c.gbc(area1(), &[number; 944]))).expect("kept");
        let (unicast, broadcast, _) = iut.router.buffered_octets();
        assert!(unicast <= 5000 && broadcast <= 8000);
    }
    iut.knows(&[Station::b()]);
    let kept = |kind: u8| -> Vec<u8> {
        iut.sent.iter().filter(|s| s.frame[5] == kind).map(|s| s.frame[s.frame.len() - 1]).collect()
    };
    assert_eq!(kept(0x20), (25..30).collect::<Vec<u8>>());
    assert_eq!(kept(0x40), (22..30).collect::<Vec<u8>>());
    assert_eq!(iut.dropped(GeonetDrop::ForwardingBufferOverflow), 25 + 22);
}

/// Outside its area, a GBC waits for a neighbour that is nearer to the area.
#[test]
fn a_broadcast_waits_for_a_neighbour_on_the_way() {
    let mut iut = Iut::quiet(simple());
    iut.knows(&[Station::e()]);
    iut.ask_scf(Transport::GeoBroadcast(area2()), b"x").expect("accepted");
    iut.knows(&[Station::c(), Station::e().later(10)]);
    iut.nothing_sent();
    iut.knows(&[Station::d()]);
    assert_eq!(iut.one_sent().destination, Station::d().mac);
}
