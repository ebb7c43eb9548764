//! Area forwarding by contention (F.3) and advanced area forwarding (F.4).

use std::time::Duration;

use carnet_geonet::mib::AreaForwarding;
use carnet_geonet::{BROADCAST, GeonetDrop, Mib};

use crate::craft::*;

fn cbf() -> Mib {
    Mib { area_forwarding: AreaForwarding::ContentionBased, ..Mib::default() }
}

fn advanced() -> Mib {
    Mib { area_forwarding: AreaForwarding::Advanced, ..Mib::default() }
}

/// Returns an area that contains all stations of these tests.
fn around() -> carnet_wire::geonet::GeoArea {
    circle(HOME, 1500)
}

fn due_ms(iut: &Iut) -> f64 {
    iut.router.poll_timeout().expect("a timer").saturating_since(iut.now).as_secs_f64() * 1e3
}

/// PON_BCA_BV_02: the timer follows the formula at 250, 500, 900 and 1,100 m.
#[test]
fn pon_bca_bv_02_timer() {
    for (metres, milliseconds) in [(250.0, 75.25), (500.0, 50.5), (900.0, 10.9), (1100.0, 1.0)] {
        let mut iut = Iut::quiet(cbf());
        let sender = Station::at(1, place(0.6 * metres, 0.8 * metres));
        iut.knows(&[sender]);
        let frame = Station::c().gbc(around(), b"x");
        iut.hear(&sender, &frame).expect("in contention");
        assert_eq!(iut.delivered.len(), 1);
        iut.nothing_sent();
        assert!((due_ms(&iut) - milliseconds).abs() < 0.05, "{metres} m: {} ms", due_ms(&iut));
        iut.wait_ms(100);
        let sent = iut.one_sent();
        assert_eq!((sent.destination, sent.frame), (BROADCAST, one_hop_later(frame)));
        assert_eq!(iut.router.buffered_octets(), (0, 0, 0));
    }
}

/// PON_BCA_BV_01: a copy of the packet during the contention ends the contention. A later copy has no effect.
#[test]
fn pon_bca_bv_01_copies() {
    let mut iut = Iut::quiet(cbf());
    iut.knows(&[Station::b(), Station::d()]);
    let frame = Station::b().gbc(around(), b"x");
    iut.hear(&Station::b(), &frame).expect("in contention");
    assert_eq!(iut.hear(&Station::d(), &with_hops(frame.clone(), 9)), Err(GeonetDrop::Contention));
    iut.wait_ms(200);
    iut.nothing_sent();
    let frame = Station::b().next().gbc(around(), b"x");
    iut.hear(&Station::b(), &frame).expect("in contention");
    iut.wait_ms(200);
    iut.one_sent();
    assert_eq!(iut.hear(&Station::d(), &with_hops(frame, 8)), Err(GeonetDrop::Duplicate));
    iut.wait_ms(200);
    iut.nothing_sent();
    assert_eq!(iut.delivered.len(), 2);
}

/// PON_BCA_BV_05, PON_BCA_BV_08, PON_BAA_BV_09: for an unknown sender, or one with PAI = 0, the timer has the
/// longest time.
#[test]
fn pon_bca_bv_05_unknown_sender() {
    let mut vague = Station::b();
    vague.pv.accurate = false;
    for (mib, known) in [(cbf(), None), (cbf(), Some(vague)), (advanced(), None), (advanced(), Some(vague))] {
        let mut iut = Iut::quiet(mib);
        iut.knows(known.as_slice());
        iut.hear(&Station::b(), &Station::c().gbc(around(), b"x")).expect("in contention");
        assert!((due_ms(&iut) - 100.0).abs() < 1e-6);
        iut.wait_ms(100);
        iut.one_sent();
    }
}

/// Contention uses up lifetime: the packet leaves with a shorter lifetime, or is dropped.
#[test]
fn contention_time_reduces_packet_lifetime() {
    let mut iut = Iut::quiet(cbf());
    let b = Station::b();
    let lifetime = |station: Station, milliseconds| {
        with_lifetime(station.gbc(around(), b"x"), Duration::from_millis(milliseconds))
    };
    iut.hear(&Station::d(), &lifetime(b, 150)).expect("in contention");
    iut.wait_ms(100);
    assert_eq!(parse(&iut.one_sent().frame).basic.lifetime.milliseconds(), 50);
    iut.hear(&Station::d(), &lifetime(b.next(), 100)).expect("in contention");
    iut.wait_ms(100);
    iut.nothing_sent();
    assert_eq!(iut.dropped(GeonetDrop::LifetimeExpired), 1);
}

/// itsGnCbfPacketBufferSize limits the buffer, which drops its oldest packets.
#[test]
fn the_contention_buffer_is_bounded() {
    let mut iut = Iut::quiet(Mib { cbf_buffer_size: 1000, max_packet_data_rate: None, ..cbf() });
    let mut station = Station::b();
    let mut frames = Vec::new();
    for _ in 0..20 {
        station = station.next();
        frames.push(station.gbc(around(), &[7; 100]));
        iut.hear(&station, frames.last().expect("one")).expect("in contention");
        assert!(iut.router.buffered_octets().2 <= 1000);
    }
    iut.wait_ms(200);
    let kept = 1000 / frames[0].len();
    let sent: Vec<_> = iut.sent.iter().map(|sent| sent.frame.clone()).collect();
    let expected: Vec<_> = frames[20 - kept..].iter().map(|frame| one_hop_later(frame.clone())).collect();
    assert_eq!(sent, expected);
    assert_eq!(iut.dropped(GeonetDrop::ForwardingBufferOverflow), 20 - kept as u64);
}

/// PON_BAA_BV_04, PON_BAA_BV_05: The station forwards a packet in a unicast frame to the next hop at once. It
/// sends the packet again after the longest time unless another station repeats it.
#[test]
fn pon_baa_bv_04_chosen_as_next_hop() {
    let mut iut = Iut::quiet(advanced());
    iut.knows(&[Station::c(), Station::b()]);
    let area = circle(place(0.0, 300.0), 500);
    let frame = Station::c().gbc(area, b"x");
    iut.get(&Station::c(), &frame).expect("forwarded");
    let sent = iut.one_sent();
    assert_eq!((sent.destination, &sent.frame), (Station::b().mac, &with_hops(frame.clone(), 9)));
    assert!((due_ms(&iut) - 100.0).abs() < 1e-6);
    iut.wait_ms(100);
    assert_eq!(iut.one_sent().destination, BROADCAST);
    assert_eq!(iut.delivered.len(), 1);
}

/// PON_BAA_BV_06: a packet in a broadcast frame enters contention.
#[test]
fn pon_baa_bv_06_contention() {
    let mut iut = Iut::quiet(advanced());
    let sender = Station::at(1, place(500.0, 0.0));
    iut.knows(&[sender]);
    iut.hear(&sender, &sender.gbc(around(), b"x")).expect("in contention");
    assert!((due_ms(&iut) - 50.5).abs() < 0.05);
    iut.wait_ms(100);
    iut.one_sent();
}

/// PON_BAA_BV_01: MAX_COUNTER copies end the contention, whatever the positions of their senders.
#[test]
fn pon_baa_bv_01_too_many_copies() {
    let mut iut = Iut::quiet(advanced());
    // This station is outside the sectors of both other stations.
    let sender = Station::at(1, place(100.0, 0.0));
    let others = [Station::at(2, place(300.0, 0.0)), Station::at(3, place(350.0, 50.0))];
    iut.knows(&[sender, others[0], others[1]]);
    let frame = sender.gbc(around(), b"x");
    iut.hear(&sender, &frame).expect("in contention");
    let again = with_hops(frame, 9);
    assert_eq!(iut.hear(&others[0], &again), Err(GeonetDrop::Duplicate));
    assert_eq!(iut.hear(&others[1], &again), Err(GeonetDrop::Contention));
    iut.wait_ms(200);
    iut.nothing_sent();
}

/// PON_BAA_BV_02, PON_BAA_BV_03, PON_BAA_BV_11: a copy ends the contention if this station lies in the sector
/// of its forwarder. Any other copy restarts the timer.
#[test]
fn pon_baa_bv_02_sectors() {
    let sender = Station::at(1, place(-300.0, 0.0));
    for (place, ends) in [
        (place(300.0, 20.0), true),    // beyond this station, in a similar direction
        (place(-300.0, 500.0), false), // in another direction
        (place(-100.0, 0.0), false),   // nearer than this station
    ] {
        let forwarder = Station::at(2, place);
        let mut iut = Iut::quiet(advanced());
        iut.knows(&[sender, forwarder]);
        let frame = sender.gbc(around(), b"x");
        iut.hear(&sender, &frame).expect("in contention");
        iut.wait_ms(10);
        let result = iut.hear(&forwarder, &with_hops(frame, 9));
        if ends {
            assert_eq!(result, Err(GeonetDrop::Contention));
            iut.wait_ms(200);
            iut.nothing_sent();
        } else {
            assert_eq!(result, Err(GeonetDrop::Duplicate));
            let expected = 100.0 - 0.099 * HOME.distance(forwarder.position());
            assert!((due_ms(&iut) - expected).abs() < 0.05, "{} {expected}", due_ms(&iut));
            iut.wait_ms(200);
            iut.one_sent();
        }
    }
}
