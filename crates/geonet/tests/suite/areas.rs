//! GBC (10.3.11) and GAC (10.3.12), and the choice of the algorithm (annex D).

use carnet_geonet::mib::{AreaForwarding, NonAreaForwarding, UnknownSender};
use carnet_geonet::{BROADCAST, GeonetDrop, Mib, Transport};
use carnet_wire::geonet::HeaderType;

use crate::craft::*;

fn simple() -> Mib {
    Mib { area_forwarding: AreaForwarding::Simple, ..Mib::default() }
}

/// PON_GBC_BV_01, PON_GBC_BV_12, PON_GAC_BV_01, FDV_GBC_BV_01: a source inside the area broadcasts at once.
#[test]
fn pon_gbc_bv_01_source_inside() {
    for area_forwarding in [AreaForwarding::Simple, AreaForwarding::ContentionBased, AreaForwarding::Advanced]
    {
        let mut iut = Iut::quiet(Mib { area_forwarding, ..Mib::default() });
        iut.knows(&[Station::b()]);
        for transport in [Transport::GeoBroadcast(area1()), Transport::GeoAnycast(area1())] {
            iut.ask(transport, b"x").expect("accepted");
            let sent = iut.one_sent();
            assert_eq!(sent.destination, BROADCAST);
            assert_eq!(parse(&sent.frame).extended.area(), Some(&area1()));
        }
    }
}

/// PON_GBC_BV_02, PON_GAC_BV_02: a source outside the area sends the packet towards the area.
#[test]
fn pon_gbc_bv_02_source_outside() {
    let mut iut = Iut::quiet(simple());
    iut.knows(&[Station::b(), Station::d(), Station::e()]);
    for transport in [Transport::GeoBroadcast(area2()), Transport::GeoAnycast(area2())] {
        iut.ask(transport, b"x").expect("accepted");
        assert_eq!(iut.one_sent().destination, Station::b().mac);
    }
}

/// PON_GBC_BV_03, PON_GBC_BO_04, PON_GBC_BV_07, PON_GBC_BV_09, PON_GBC_BO_10: a station inside the area
/// repeats and delivers the packet once.
#[test]
fn pon_gbc_bv_03_inside() {
    let mut iut = Iut::quiet(simple());
    let frame = Station::b().gbc(area1(), b"denm");
    iut.hear(&Station::b(), &frame).expect("forwarded");
    let sent = iut.one_sent();
    assert_eq!((sent.destination, sent.frame), (BROADCAST, with_hops(frame.clone(), 9)));
    assert_eq!(iut.delivered[0].area, Some(area1()));
    assert_eq!(iut.hear(&Station::b(), &frame), Err(GeonetDrop::Duplicate));
    assert_eq!(iut.delivered.len(), 1);
    iut.nothing_sent();
}

/// PON_GBC_BV_05, PON_GBC_BO_06, PON_GBC_BV_11, PON_GAC_BV_04, PON_GAC_BO_05, PON_GAC_BV_06, PON_GAC_BV_10: a
/// station outside the area forwards the packet towards the area once, and does not deliver it.
#[test]
fn pon_gbc_bv_05_outside() {
    let c = Station::c();
    for frame in [c.gbc(area2(), b"x"), c.gac(area2(), b"x")] {
        let mut iut = Iut::quiet(simple());
        iut.knows(&[Station::b(), c]);
        iut.get(&c, &frame).expect("forwarded");
        let sent = iut.one_sent();
        assert_eq!((sent.destination, sent.frame), (Station::b().mac, with_hops(frame.clone(), 9)));
        assert_eq!(iut.get(&c, &frame), Err(GeonetDrop::Duplicate));
        iut.nothing_sent();
        assert!(iut.delivered.is_empty());
    }
}

/// PON_GBC_BV_08, PON_GAC_BO_07: a station inside delivers a packet with RHL 1 and does not forward it.
#[test]
fn pon_gbc_bv_08_hop_limit() {
    let mut iut = Iut::quiet(simple());
    let b = Station::b();
    let frame = with_hops(b.gbc(area1(), b"x"), 1);
    assert_eq!(iut.hear(&b, &frame), Err(GeonetDrop::HopLimit));
    assert_eq!(iut.delivered.len(), 1);
    let frame = with_hops(b.next().gac(area2(), b"x"), 1);
    assert_eq!(iut.hear(&b, &frame), Err(GeonetDrop::HopLimit));
    iut.nothing_sent();
}

/// PON_GAC_BV_03, PON_GAC_BV_08, PON_GAC_BO_09: a station inside the area delivers a GAC once and does not
/// forward it.
#[test]
fn pon_gac_bv_03_inside() {
    let mut iut = Iut::quiet(simple());
    let frame = Station::b().gac(area1(), b"x");
    iut.hear(&Station::b(), &frame).expect("delivered");
    assert_eq!(iut.hear(&Station::b(), &frame), Err(GeonetDrop::Duplicate));
    iut.nothing_sent();
    let [delivery] = &iut.delivered[..] else { panic!() };
    assert_eq!(delivery.header_type, HeaderType::GeoAnycast(area1().shape));
}

/// PON_GBC_BO_19, PON_GAC_BO_11: the router does not forward a packet to an area above 10 km2.
#[test]
fn pon_gbc_bo_19_too_large() {
    for inside in [true, false] {
        let centre = if inside { HOME } else { place(0.0, 3000.0) };
        let mut iut = Iut::quiet(simple());
        iut.knows(&[Station::b(), Station::c()]);
        let c = Station::c();
        let area = circle(centre, 1800);
        let refused = Err(GeonetDrop::AreaTooLarge);
        assert_eq!(iut.hear(&c, &c.gbc(area, b"x")), refused);
        assert_eq!(iut.hear(&c, &c.next().gac(area, b"x")), refused);
        iut.nothing_sent();
        let area = circle(centre, 1780);
        iut.hear(&c, &c.next().next().gbc(area, b"x")).expect("small enough");
        iut.one_sent();
    }
}

/// PON_BCA_BO_04, PON_BAA_BO_08: a station outside does not forward a packet that comes from inside the area.
#[test]
fn pon_bca_bo_04_sender_inside() {
    for area_forwarding in [AreaForwarding::Simple, AreaForwarding::ContentionBased, AreaForwarding::Advanced]
    {
        let mut iut = Iut::quiet(Mib { area_forwarding, ..Mib::default() });
        iut.knows(&[Station::b(), Station::d()]);
        let refused = iut.hear(&Station::b(), &Station::b().gbc(area2(), b"x"));
        assert_eq!(refused, Err(GeonetDrop::SenderInsideArea));
        iut.wait_ms(200);
        iut.nothing_sent();
    }
}

/// PON_GBC_BV_20, PON_GBC_BV_21, PON_BCA_BV_06, PON_BCA_BV_07, PON_BAA_BV_10: a station outside the area
/// receives the packet from a sender that is unknown or has PAI = 0. By V1.2.1 the station broadcasts at
/// once, by V1.4.1 it uses the non-area algorithm.
#[test]
fn pon_gbc_bv_20_unknown_sender() {
    let mut vague = Station::b();
    vague.pv.accurate = false;
    for known in [None, Some(vague)] {
        for (unknown_sender, non_area_forwarding, at_once) in [
            (UnknownSender::Broadcast, NonAreaForwarding::Greedy, Some(BROADCAST)),
            (UnknownSender::Broadcast, NonAreaForwarding::ContentionBased, Some(BROADCAST)),
            (UnknownSender::NonAreaForwarding, NonAreaForwarding::Greedy, Some(Station::d().mac)),
            (UnknownSender::NonAreaForwarding, NonAreaForwarding::ContentionBased, None),
        ] {
            let mut iut = Iut::quiet(Mib { unknown_sender, non_area_forwarding, ..Mib::default() });
            iut.knows(known.as_slice());
            // Station D is nearer to the area. Station B's position is not accurate, so the router cannot say
            // that B is inside.
            iut.knows(&[Station::d()]);
            let area = circle(place(0.0, 300.0), 100);
            let source = Station::c();
            let expected = if known.is_some() && at_once == Some(Station::d().mac) {
                // B is a neighbour and nearer to the area than D.
                Some(Station::b().mac)
            } else {
                at_once
            };
            iut.hear(&Station::b(), &source.gbc(area, b"x")).expect("forwarded");
            assert_eq!(iut.sent.first().map(|sent| sent.destination), expected);
            iut.wait_ms(100);
            iut.one_sent();
        }
    }
}

/// The area of a packet may be a rectangle or an ellipse with an angle.
#[test]
fn rotated_area_decides_delivery() {
    use carnet_wire::geonet::{GeoArea, Shape};
    for shape in [Shape::Rectangle, Shape::Ellipse] {
        for (angle, inside) in [(90, true), (0, false)] {
            let centre = place(400.0, 0.0);
            let area = GeoArea { shape, distance_a: 500, distance_b: 50, angle, ..circle(centre, 0) };
            let mut iut = Iut::quiet(simple());
            iut.knows(&[Station::b()]);
            iut.hear(&Station::c(), &Station::c().gbc(area, b"x")).expect("forwarded");
            assert_eq!(!iut.delivered.is_empty(), inside, "{shape:?} {angle}");
        }
    }
}

/// PON_GAC_BV_13: with contention as non-area algorithm, a source outside the area broadcasts at once.
#[test]
fn pon_gac_bv_13_source_outside_contention() {
    let non_area_forwarding = NonAreaForwarding::ContentionBased;
    let mut iut = Iut::quiet(Mib { non_area_forwarding, ..Mib::default() });
    iut.knows(&[Station::b()]);
    for transport in [Transport::GeoAnycast(area2()), Transport::GeoBroadcast(area2())] {
        iut.ask(transport, b"x").expect("accepted");
        assert_eq!(iut.one_sent().destination, BROADCAST);
    }
}

/// PON_BCA_BV_03, PON_BAA_BV_07: sender and station are outside the area. The station forwards the packet
/// towards the area, whatever the algorithm inside is.
#[test]
fn pon_bca_bv_03_line_forwarding() {
    for area_forwarding in [AreaForwarding::ContentionBased, AreaForwarding::Advanced] {
        let mut iut = Iut::quiet(Mib { area_forwarding, ..Mib::default() });
        iut.knows(&[Station::b(), Station::c()]);
        iut.hear(&Station::c(), &Station::c().gbc(area2(), b"x")).expect("forwarded");
        assert_eq!(iut.one_sent().destination, Station::b().mac);
    }
}
