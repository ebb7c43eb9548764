//! GBC (10.3.11) and GAC (10.3.12), and the choice of the algorithm (annex D).

use carnet_geonet::mib::{AreaForwarding, NonAreaForwarding, UnknownSender};
use carnet_geonet::{BROADCAST, GeonetDrop, Mib, Transport};
use carnet_wire::geonet::HeaderType;

use crate::simulated_stations::*;

fn mib_with_simple_forwarding() -> Mib {
    Mib { area_forwarding: AreaForwarding::Simple, ..Mib::default() }
}

/// PON_GBC_BV_01, PON_GBC_BV_12, PON_GAC_BV_01, FDV_GBC_BV_01: a source inside the area broadcasts at once.
#[test]
fn pon_gbc_bv_01_source_inside() {
    for area_forwarding in [AreaForwarding::Simple, AreaForwarding::ContentionBased, AreaForwarding::Advanced]
    {
        let mut iut = RouterUnderTest::with_rare_beacons(Mib { area_forwarding, ..Mib::default() });
        iut.make_neighbours(&[SimulatedStation::b()]);
        for transport in [Transport::GeoBroadcast(etsi_area_1()), Transport::GeoAnycast(etsi_area_1())] {
            iut.request_payload(transport, b"x").expect("accepted");
            let sent = iut.take_only_transmission();
            assert_eq!(sent.destination, BROADCAST);
            assert_eq!(parse(&sent.frame).extended.area(), Some(&etsi_area_1()));
        }
    }
}

/// PON_GBC_BV_02, PON_GAC_BV_02: a source outside the area sends the packet towards the area.
#[test]
fn pon_gbc_bv_02_source_outside() {
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_simple_forwarding());
    iut.make_neighbours(&[SimulatedStation::b(), SimulatedStation::d(), SimulatedStation::e()]);
    for transport in [Transport::GeoBroadcast(etsi_area_2()), Transport::GeoAnycast(etsi_area_2())] {
        iut.request_payload(transport, b"x").expect("accepted");
        assert_eq!(iut.take_only_transmission().destination, SimulatedStation::b().mac);
    }
}

/// PON_GBC_BV_03, PON_GBC_BO_04, PON_GBC_BV_07, PON_GBC_BV_09, PON_GBC_BO_10: a station inside the area
/// repeats and delivers the packet once.
#[test]
fn pon_gbc_bv_03_inside() {
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_simple_forwarding());
    let frame = SimulatedStation::b().gbc_frame(etsi_area_1(), b"denm");
    iut.receive_broadcast(&SimulatedStation::b(), &frame).expect("forwarded");
    let sent = iut.take_only_transmission();
    assert_eq!((sent.destination, sent.frame), (BROADCAST, with_remaining_hops(frame.clone(), 9)));
    assert_eq!(iut.delivered_payloads[0].area, Some(etsi_area_1()));
    assert_eq!(iut.receive_broadcast(&SimulatedStation::b(), &frame), Err(GeonetDrop::Duplicate));
    assert_eq!(iut.delivered_payloads.len(), 1);
    iut.assert_nothing_sent();
}

/// PON_GBC_BV_05, PON_GBC_BO_06, PON_GBC_BV_11, PON_GAC_BV_04, PON_GAC_BO_05, PON_GAC_BV_06, PON_GAC_BV_10: a
/// station outside the area forwards the packet towards the area once, and does not deliver it.
#[test]
fn pon_gbc_bv_05_outside() {
    let c = SimulatedStation::c();
    for frame in [c.gbc_frame(etsi_area_2(), b"x"), c.gac_frame(etsi_area_2(), b"x")] {
        let mut iut = RouterUnderTest::with_rare_beacons(mib_with_simple_forwarding());
        iut.make_neighbours(&[SimulatedStation::b(), c]);
        iut.receive_unicast(&c, &frame).expect("forwarded");
        let sent = iut.take_only_transmission();
        assert_eq!(
            (sent.destination, sent.frame),
            (SimulatedStation::b().mac, with_remaining_hops(frame.clone(), 9))
        );
        assert_eq!(iut.receive_unicast(&c, &frame), Err(GeonetDrop::Duplicate));
        iut.assert_nothing_sent();
        assert!(iut.delivered_payloads.is_empty());
    }
}

/// PON_GBC_BV_08, PON_GAC_BO_07: a station inside delivers a packet with RHL 1 and does not forward it.
#[test]
fn pon_gbc_bv_08_hop_limit() {
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_simple_forwarding());
    let b = SimulatedStation::b();
    let frame = with_remaining_hops(b.gbc_frame(etsi_area_1(), b"x"), 1);
    assert_eq!(iut.receive_broadcast(&b, &frame), Err(GeonetDrop::HopLimit));
    assert_eq!(iut.delivered_payloads.len(), 1);
    let frame = with_remaining_hops(b.next().gac_frame(etsi_area_2(), b"x"), 1);
    assert_eq!(iut.receive_broadcast(&b, &frame), Err(GeonetDrop::HopLimit));
    iut.assert_nothing_sent();
}

/// PON_GAC_BV_03, PON_GAC_BV_08, PON_GAC_BO_09: a station inside the area delivers a GAC once and does not
/// forward it.
#[test]
fn pon_gac_bv_03_inside() {
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_simple_forwarding());
    let frame = SimulatedStation::b().gac_frame(etsi_area_1(), b"x");
    iut.receive_broadcast(&SimulatedStation::b(), &frame).expect("delivered");
    assert_eq!(iut.receive_broadcast(&SimulatedStation::b(), &frame), Err(GeonetDrop::Duplicate));
    iut.assert_nothing_sent();
    let [delivery] = &iut.delivered_payloads[..] else { panic!() };
    assert_eq!(delivery.header_type, HeaderType::GeoAnycast(etsi_area_1().shape));
}

/// PON_GBC_BO_19, PON_GAC_BO_11: the router does not forward a packet to an area above 10 km2.
#[test]
fn pon_gbc_bo_19_too_large() {
    for inside in [true, false] {
        let centre = if inside { ROUTER_POSITION } else { position_at(0.0, 3000.0) };
        let mut iut = RouterUnderTest::with_rare_beacons(mib_with_simple_forwarding());
        iut.make_neighbours(&[SimulatedStation::b(), SimulatedStation::c()]);
        let c = SimulatedStation::c();
        let area = circular_area(centre, 1800);
        let refused = Err(GeonetDrop::AreaTooLarge);
        assert_eq!(iut.receive_broadcast(&c, &c.gbc_frame(area, b"x")), refused);
        assert_eq!(iut.receive_broadcast(&c, &c.next().gac_frame(area, b"x")), refused);
        iut.assert_nothing_sent();
        let area = circular_area(centre, 1780);
        iut.receive_broadcast(&c, &c.next().next().gbc_frame(area, b"x")).expect("small enough");
        iut.take_only_transmission();
    }
}

/// PON_BCA_BO_04, PON_BAA_BO_08: a station outside does not forward a packet that comes from inside the area.
#[test]
fn pon_bca_bo_04_sender_inside() {
    for area_forwarding in [AreaForwarding::Simple, AreaForwarding::ContentionBased, AreaForwarding::Advanced]
    {
        let mut iut = RouterUnderTest::with_rare_beacons(Mib { area_forwarding, ..Mib::default() });
        iut.make_neighbours(&[SimulatedStation::b(), SimulatedStation::d()]);
        let refused = iut
            .receive_broadcast(&SimulatedStation::b(), &SimulatedStation::b().gbc_frame(etsi_area_2(), b"x"));
        assert_eq!(refused, Err(GeonetDrop::SenderInsideArea));
        iut.advance_milliseconds(200);
        iut.assert_nothing_sent();
    }
}

/// PON_GBC_BV_20, PON_GBC_BV_21, PON_BCA_BV_06, PON_BCA_BV_07, PON_BAA_BV_10: a station outside the area
/// receives the packet from a sender that is unknown or has PAI = 0. By V1.2.1 the station broadcasts at
/// once, by V1.4.1 it uses the non-area algorithm.
#[test]
fn pon_gbc_bv_20_unknown_sender() {
    let mut vague = SimulatedStation::b();
    vague.position_vector.accurate = false;
    for known in [None, Some(vague)] {
        for (unknown_sender, non_area_forwarding, at_once) in [
            (UnknownSender::Broadcast, NonAreaForwarding::Greedy, Some(BROADCAST)),
            (UnknownSender::Broadcast, NonAreaForwarding::ContentionBased, Some(BROADCAST)),
            (UnknownSender::NonAreaForwarding, NonAreaForwarding::Greedy, Some(SimulatedStation::d().mac)),
            (UnknownSender::NonAreaForwarding, NonAreaForwarding::ContentionBased, None),
        ] {
            let mut iut = RouterUnderTest::with_rare_beacons(Mib {
                unknown_sender,
                non_area_forwarding,
                ..Mib::default()
            });
            iut.make_neighbours(known.as_slice());
            // D is nearer to the area than this station. B's position is not accurate, so the router cannot
            // say whether B is inside.
            iut.make_neighbours(&[SimulatedStation::d()]);
            let area = circular_area(position_at(0.0, 300.0), 100);
            let source = SimulatedStation::c();
            let expected = if known.is_some() && at_once == Some(SimulatedStation::d().mac) {
                // The next hop is B, which is a neighbour and nearer to the area than D.
                Some(SimulatedStation::b().mac)
            } else {
                at_once
            };
            iut.receive_broadcast(&SimulatedStation::b(), &source.gbc_frame(area, b"x")).expect("forwarded");
            assert_eq!(iut.sent_transmissions.first().map(|sent| sent.destination), expected);
            iut.advance_milliseconds(100);
            iut.take_only_transmission();
        }
    }
}

/// The area of a packet may be a rectangle or an ellipse with an angle.
#[test]
fn rotated_area_decides_delivery() {
    use carnet_wire::geonet::{GeoArea, GeoAreaShape};
    for shape in [GeoAreaShape::Rectangle, GeoAreaShape::Ellipse] {
        for (angle, inside) in [(90, true), (0, false)] {
            let centre = position_at(400.0, 0.0);
            let area = GeoArea { shape, distance_a: 500, distance_b: 50, angle, ..circular_area(centre, 0) };
            let mut iut = RouterUnderTest::with_rare_beacons(mib_with_simple_forwarding());
            iut.make_neighbours(&[SimulatedStation::b()]);
            iut.receive_broadcast(&SimulatedStation::c(), &SimulatedStation::c().gbc_frame(area, b"x"))
                .expect("forwarded");
            assert_eq!(!iut.delivered_payloads.is_empty(), inside, "{shape:?} {angle}");
        }
    }
}

/// PON_GAC_BV_13: with contention as non-area algorithm, a source outside the area broadcasts at once.
#[test]
fn pon_gac_bv_13_source_outside_contention() {
    let non_area_forwarding = NonAreaForwarding::ContentionBased;
    let mut iut = RouterUnderTest::with_rare_beacons(Mib { non_area_forwarding, ..Mib::default() });
    iut.make_neighbours(&[SimulatedStation::b()]);
    for transport in [Transport::GeoAnycast(etsi_area_2()), Transport::GeoBroadcast(etsi_area_2())] {
        iut.request_payload(transport, b"x").expect("accepted");
        assert_eq!(iut.take_only_transmission().destination, BROADCAST);
    }
}

/// PON_BCA_BV_03, PON_BAA_BV_07: sender and station are outside the area. The station forwards the packet
/// towards the area, whatever algorithm applies inside the area.
#[test]
fn pon_bca_bv_03_line_forwarding() {
    for area_forwarding in [AreaForwarding::ContentionBased, AreaForwarding::Advanced] {
        let mut iut = RouterUnderTest::with_rare_beacons(Mib { area_forwarding, ..Mib::default() });
        iut.make_neighbours(&[SimulatedStation::b(), SimulatedStation::c()]);
        iut.receive_broadcast(&SimulatedStation::c(), &SimulatedStation::c().gbc_frame(etsi_area_2(), b"x"))
            .expect("forwarded");
        assert_eq!(iut.take_only_transmission().destination, SimulatedStation::b().mac);
    }
}
