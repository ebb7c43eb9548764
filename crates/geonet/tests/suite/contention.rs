//! Area forwarding by contention (F.3) and advanced area forwarding (F.4).

use std::time::Duration;

use carnet_geonet::mib::AreaForwarding;
use carnet_geonet::{BROADCAST, GeonetDrop, Mib};

use crate::simulated_stations::*;

fn mib_with_contention() -> Mib {
    Mib { area_forwarding: AreaForwarding::ContentionBased, ..Mib::default() }
}

fn mib_with_advanced_forwarding() -> Mib {
    Mib { area_forwarding: AreaForwarding::Advanced, ..Mib::default() }
}

/// Returns an area that contains all stations of these tests.
fn area_around_all_stations() -> carnet_wire::geonet::GeoArea {
    circular_area(ROUTER_POSITION, 1500)
}

fn next_timeout_ms(iut: &RouterUnderTest) -> f64 {
    iut.router.poll_timeout().expect("a timer").saturating_since(iut.now).as_secs_f64() * 1e3
}

/// PON_BCA_BV_02: the timer follows the formula at 250, 500, 900 and 1,100 m.
#[test]
fn pon_bca_bv_02_timer() {
    for (metres, milliseconds) in [(250.0, 75.25), (500.0, 50.5), (900.0, 10.9), (1100.0, 1.0)] {
        let mut iut = RouterUnderTest::with_rare_beacons(mib_with_contention());
        let sender = SimulatedStation::station_at(1, position_at(0.6 * metres, 0.8 * metres));
        iut.make_neighbours(&[sender]);
        let frame = SimulatedStation::c().gbc_frame(area_around_all_stations(), b"x");
        iut.receive_broadcast(&sender, &frame).expect("in contention");
        assert_eq!(iut.delivered_payloads.len(), 1);
        iut.assert_nothing_sent();
        assert!(
            (next_timeout_ms(&iut) - milliseconds).abs() < 0.05,
            "{metres} m: {} ms",
            next_timeout_ms(&iut)
        );
        iut.advance_milliseconds(100);
        let sent = iut.take_only_transmission();
        assert_eq!((sent.destination, sent.frame), (BROADCAST, forwarded_by_one_hop(frame)));
        assert_eq!(iut.router.buffered_octets(), (0, 0, 0));
    }
}

/// PON_BCA_BV_01: a copy of the packet during the contention ends the contention. A later copy has no effect.
#[test]
fn pon_bca_bv_01_copies() {
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_contention());
    iut.make_neighbours(&[SimulatedStation::b(), SimulatedStation::d()]);
    let frame = SimulatedStation::b().gbc_frame(area_around_all_stations(), b"x");
    iut.receive_broadcast(&SimulatedStation::b(), &frame).expect("in contention");
    assert_eq!(
        iut.receive_broadcast(&SimulatedStation::d(), &with_remaining_hops(frame.clone(), 9)),
        Err(GeonetDrop::Contention)
    );
    iut.advance_milliseconds(200);
    iut.assert_nothing_sent();
    let frame = SimulatedStation::b().next().gbc_frame(area_around_all_stations(), b"x");
    iut.receive_broadcast(&SimulatedStation::b(), &frame).expect("in contention");
    iut.advance_milliseconds(200);
    iut.take_only_transmission();
    assert_eq!(
        iut.receive_broadcast(&SimulatedStation::d(), &with_remaining_hops(frame, 8)),
        Err(GeonetDrop::Duplicate)
    );
    iut.advance_milliseconds(200);
    iut.assert_nothing_sent();
    assert_eq!(iut.delivered_payloads.len(), 2);
}

/// PON_BCA_BV_05, PON_BCA_BV_08, PON_BAA_BV_09: if the sender is unknown or has PAI = 0, the contention timer
/// has its longest time.
#[test]
fn pon_bca_bv_05_unknown_sender() {
    let mut vague = SimulatedStation::b();
    vague.position_vector.accurate = false;
    for (mib, known) in [
        (mib_with_contention(), None),
        (mib_with_contention(), Some(vague)),
        (mib_with_advanced_forwarding(), None),
        (mib_with_advanced_forwarding(), Some(vague)),
    ] {
        let mut iut = RouterUnderTest::with_rare_beacons(mib);
        iut.make_neighbours(known.as_slice());
        iut.receive_broadcast(
            &SimulatedStation::b(),
            &SimulatedStation::c().gbc_frame(area_around_all_stations(), b"x"),
        )
        .expect("in contention");
        assert!((next_timeout_ms(&iut) - 100.0).abs() < 1e-6);
        iut.advance_milliseconds(100);
        iut.take_only_transmission();
    }
}

/// The time in contention shortens the lifetime of a packet: the packet leaves with a shorter lifetime, or
/// the router drops it.
#[test]
fn contention_time_reduces_packet_lifetime() {
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_contention());
    let b = SimulatedStation::b();
    let lifetime = |station: SimulatedStation, milliseconds| {
        with_lifetime(
            station.gbc_frame(area_around_all_stations(), b"x"),
            Duration::from_millis(milliseconds),
        )
    };
    iut.receive_broadcast(&SimulatedStation::d(), &lifetime(b, 150)).expect("in contention");
    iut.advance_milliseconds(100);
    assert_eq!(parse(&iut.take_only_transmission().frame).basic.lifetime.milliseconds(), 50);
    iut.receive_broadcast(&SimulatedStation::d(), &lifetime(b.next(), 100)).expect("in contention");
    iut.advance_milliseconds(100);
    iut.assert_nothing_sent();
    assert_eq!(iut.dropped_packets(GeonetDrop::LifetimeExpired), 1);
}

/// itsGnCbfPacketBufferSize limits the buffer, which drops its oldest packets.
#[test]
fn the_contention_buffer_is_bounded() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib {
        cbf_buffer_size: 1000,
        max_packet_data_rate: None,
        ..mib_with_contention()
    });
    let mut station = SimulatedStation::b();
    let mut frames = Vec::new();
    for _ in 0..20 {
        station = station.next();
        frames.push(station.gbc_frame(area_around_all_stations(), &[7; 100]));
        iut.receive_broadcast(&station, frames.last().expect("one")).expect("in contention");
        assert!(iut.router.buffered_octets().2 <= 1000);
    }
    iut.advance_milliseconds(200);
    let kept = 1000 / frames[0].len();
    let sent: Vec<_> = iut.sent_transmissions.iter().map(|sent| sent.frame.clone()).collect();
    let expected: Vec<_> =
        frames[20 - kept..].iter().map(|frame| forwarded_by_one_hop(frame.clone())).collect();
    assert_eq!(sent, expected);
    assert_eq!(iut.dropped_packets(GeonetDrop::ForwardingBufferOverflow), 20 - kept as u64);
}

/// PON_BAA_BV_04, PON_BAA_BV_05: The station forwards a packet in a unicast frame to the next hop at once. It
/// sends the packet again after the longest time unless another station repeats it.
#[test]
fn pon_baa_bv_04_chosen_as_next_hop() {
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_advanced_forwarding());
    iut.make_neighbours(&[SimulatedStation::c(), SimulatedStation::b()]);
    let area = circular_area(position_at(0.0, 300.0), 500);
    let frame = SimulatedStation::c().gbc_frame(area, b"x");
    iut.receive_unicast(&SimulatedStation::c(), &frame).expect("forwarded");
    let sent = iut.take_only_transmission();
    assert_eq!(
        (sent.destination, &sent.frame),
        (SimulatedStation::b().mac, &with_remaining_hops(frame.clone(), 9))
    );
    assert!((next_timeout_ms(&iut) - 100.0).abs() < 1e-6);
    iut.advance_milliseconds(100);
    assert_eq!(iut.take_only_transmission().destination, BROADCAST);
    assert_eq!(iut.delivered_payloads.len(), 1);
}

/// PON_BAA_BV_06: a packet in a broadcast frame enters contention.
#[test]
fn pon_baa_bv_06_contention() {
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_advanced_forwarding());
    let sender = SimulatedStation::station_at(1, position_at(500.0, 0.0));
    iut.make_neighbours(&[sender]);
    iut.receive_broadcast(&sender, &sender.gbc_frame(area_around_all_stations(), b"x"))
        .expect("in contention");
    assert!((next_timeout_ms(&iut) - 50.5).abs() < 0.05);
    iut.advance_milliseconds(100);
    iut.take_only_transmission();
}

/// PON_BAA_BV_01: MAX_COUNTER copies end the contention, whatever the positions of their senders.
#[test]
fn pon_baa_bv_01_too_many_copies() {
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_advanced_forwarding());
    // This station is outside the sectors of both forwarders in `others`.
    let sender = SimulatedStation::station_at(1, position_at(100.0, 0.0));
    let others = [
        SimulatedStation::station_at(2, position_at(300.0, 0.0)),
        SimulatedStation::station_at(3, position_at(350.0, 50.0)),
    ];
    iut.make_neighbours(&[sender, others[0], others[1]]);
    let frame = sender.gbc_frame(area_around_all_stations(), b"x");
    iut.receive_broadcast(&sender, &frame).expect("in contention");
    let again = with_remaining_hops(frame, 9);
    assert_eq!(iut.receive_broadcast(&others[0], &again), Err(GeonetDrop::Duplicate));
    assert_eq!(iut.receive_broadcast(&others[1], &again), Err(GeonetDrop::Contention));
    iut.advance_milliseconds(200);
    iut.assert_nothing_sent();
}

/// PON_BAA_BV_02, PON_BAA_BV_03, PON_BAA_BV_11: a copy from another forwarder ends the contention if this
/// station lies in the forwarder's sector. Any other copy restarts the timer.
#[test]
fn pon_baa_bv_02_sectors() {
    let sender = SimulatedStation::station_at(1, position_at(-300.0, 0.0));
    for (place, ends) in [
        (position_at(300.0, 20.0), true), // beyond this station, in a similar direction
        (position_at(-300.0, 500.0), false), // in another direction
        (position_at(-100.0, 0.0), false), // nearer than this station
    ] {
        let forwarder = SimulatedStation::station_at(2, place);
        let mut iut = RouterUnderTest::with_rare_beacons(mib_with_advanced_forwarding());
        iut.make_neighbours(&[sender, forwarder]);
        let frame = sender.gbc_frame(area_around_all_stations(), b"x");
        iut.receive_broadcast(&sender, &frame).expect("in contention");
        iut.advance_milliseconds(10);
        let result = iut.receive_broadcast(&forwarder, &with_remaining_hops(frame, 9));
        if ends {
            assert_eq!(result, Err(GeonetDrop::Contention));
            iut.advance_milliseconds(200);
            iut.assert_nothing_sent();
        } else {
            assert_eq!(result, Err(GeonetDrop::Duplicate));
            let expected = 100.0 - 0.099 * ROUTER_POSITION.distance_to(forwarder.position());
            assert!((next_timeout_ms(&iut) - expected).abs() < 0.05, "{} {expected}", next_timeout_ms(&iut));
            iut.advance_milliseconds(200);
            iut.take_only_transmission();
        }
    }
}
