//! Predicted positions and announced validity of beacons: extensions, all off by default.

use std::time::Duration;

use carnet_geonet::mib::{BeaconInterval, Prediction};
use carnet_geonet::{BROADCAST, Mib, Transport};
use carnet_wire::geonet::HeaderType;

use crate::craft::*;

fn ahead() -> Mib {
    Mib {
        prediction: Some(Prediction { link_lifetime: Duration::from_millis(200) }),
        max_communication_range: 250.0,
        ..Mib::default()
    }
}

/// Returns a station with a speed in m/s and a heading in degrees.
fn moving(number: u8, east: f64, north: f64, speed: i16, heading: u16) -> Station {
    let mut station = Station::at(number, place(east, north));
    (station.pv.speed, station.pv.heading) = (speed * 100, heading * 10);
    station
}

#[test]
fn prediction_chooses_next_hop_that_stays_in_range() {
    let far = Station::at(9, place(1000.0, 0.0));
    for (mib, expected) in [(Mib::default(), 1), (ahead(), 2)] {
        let mut iut = Iut::quiet(mib);
        // Station 1 leaves the range, station 2 stays.
        let leaves = moving(1, 240.0, 0.0, 50, 90);
        let stays = moving(2, 200.0, 0.0, 0, 0);
        iut.knows(&[leaves, stays]);
        iut.wait_ms(1000);
        let sender = Station::c();
        iut.get(&sender, &sender.guc(&far.pv, b"x")).expect("forwarded");
        assert_eq!(iut.one_sent().destination[5], expected);
    }
}

/// The destination is not a neighbour, but its position in the packet is in range, so the router sends the
/// packet to it directly. If the link layer cannot reach it, the router tries again only after a second.
#[test]
fn prediction_sends_directly_to_destination_in_range() {
    let near = Station::at(9, place(200.0, 0.0));
    let mut iut = Iut::quiet(ahead());
    let sender = Station::c();
    iut.get(&sender, &sender.guc(&near.pv, b"x")).expect("forwarded");
    let sent = iut.one_sent();
    assert_eq!(sent.destination, near.mac);
    iut.unacknowledged(&sent).expect("sent on");
    assert_eq!(iut.one_sent().destination, BROADCAST);
    iut.get(&sender, &sender.next().guc(&near.pv, b"y")).expect("forwarded");
    assert_eq!(iut.one_sent().destination, BROADCAST);
    // After a second the router again sends directly to the destination.
    iut.wait_ms(1001);
    iut.get(&sender, &sender.next().next().guc(&near.pv, b"z")).expect("forwarded");
    assert_eq!(iut.one_sent().destination, near.mac);
}

/// Greedy forwarding of the standard would choose a neighbour that has left the range; forwarding by
/// prediction does not.
#[test]
fn prediction_skips_neighbour_out_of_range() {
    let mut iut = Iut::quiet(ahead());
    let gone = moving(1, 200.0, 0.0, 40, 90);
    iut.knows(&[gone]);
    iut.wait_ms(3000);
    iut.ask(Transport::GeoUnicast(gone.pv.address), b"x").expect("accepted");
    assert_eq!(iut.one_sent().destination, BROADCAST);
}

/// The destination position differs in each packet, but the flow keeps its next hop.
#[test]
fn router_keeps_next_hop_to_a_moving_station() {
    let mut iut = Iut::quiet(Mib { next_hop_hold: Duration::from_millis(500), ..ahead() });
    let (near, nearer) = (moving(1, 150.0, 0.0, 0, 0), moving(2, 200.0, 0.0, 0, 0));
    iut.knows(&[near]);
    let mut sender = Station::c();
    let mut next_hop = |iut: &mut Iut, east: f64| {
        sender = sender.next();
        let far = Station::at(9, place(east, 0.0));
        iut.get(&Station::c(), &sender.guc(&far.pv, b"x")).expect("forwarded");
        iut.one_sent().destination
    };
    assert_eq!(next_hop(&mut iut, 1000.0), near.mac);
    iut.knows(&[nearer]);
    assert_eq!(next_hop(&mut iut, 1010.0), near.mac);
    iut.wait_ms(500);
    assert_eq!(next_hop(&mut iut, 1020.0), nearer.mac);
}

#[test]
fn neighbour_expires_after_validity_in_its_beacon() {
    let mib = Mib {
        beacon_interval: BeaconInterval::ADAPTIVE,
        beacon_lifetime: Some(3),
        max_communication_range: 250.0,
        ..Mib::default()
    };
    let mut iut = Iut::new(mib);
    iut.wait(Duration::from_secs(3));
    let beacon = iut.sent.remove(0);
    // A station that does not move sends a beacon at least every two seconds.
    assert_eq!(parse(&beacon.frame).basic.lifetime.duration(), Duration::from_secs(6));
    let other = with_lifetime(Station::b().beacon(), Duration::from_millis(500));
    iut.get(&Station::b(), &other).expect("learnt");
    assert_eq!(iut.router.location_table().neighbours(), 1);
    iut.wait_ms(499);
    assert_eq!(iut.router.location_table().neighbours(), 1);
    iut.wait_ms(2);
    assert_eq!(iut.router.location_table().neighbours(), 0);
    // The location table still has the position.
    assert_eq!(iut.router.location_table().len(), 1);
}

#[test]
fn station_that_turns_sends_beacon_at_once() {
    let mib = Mib {
        beacon_interval: BeaconInterval::ADAPTIVE,
        beacon_deviation: Some(5.0),
        max_communication_range: 250.0,
        ..Mib::default()
    };
    let mut iut = Iut::new(mib);
    let mut pv = iut.pv();
    (pv.speed, pv.heading) = (1000, 0);
    let mut drive = |iut: &mut Iut, seconds: u32, north: f64, heading: u16| {
        let start = iut.now;
        let mut beacons = Vec::new();
        for tenth in 1..=seconds * 10 {
            iut.wait_ms(100);
            pv.timestamp = pv.timestamp.wrapping_add(Duration::from_millis(100));
            let at = place(0.0, north * f64::from(tenth) / 10.0);
            (pv.latitude, pv.longitude, pv.heading) = (at.latitude, at.longitude, heading);
            iut.router.handle_position(iut.now, pv).expect("a position");
            for sent in iut.sent.drain(..) {
                if parse(&sent.frame).common.header_type == HeaderType::Beacon {
                    beacons.push(iut.now.saturating_since(start));
                }
            }
        }
        beacons
    };
    // At 10 m/s the interval is 1.17 to 1.56 s.
    let straight = drive(&mut iut, 10, 10.0, 0);
    assert!((6..=9).contains(&straight.len()), "{straight:?}");
    // The station turns round: it deviates by 20 m/s from the prediction, 5 m after a quarter of a second.
    let turned = drive(&mut iut, 1, -10.0, 1800);
    assert!(turned.first().is_some_and(|first| *first <= Duration::from_millis(500)), "{turned:?}");
}

#[test]
fn slow_station_sends_beacons_at_the_interval_of_fast_neighbours() {
    for (company_speed, expected) in [(false, 4..=7), (true, 60..=90)] {
        let mib = Mib {
            beacon_interval: BeaconInterval::ADAPTIVE,
            beacon_company_speed: company_speed,
            max_communication_range: 250.0,
            ..Mib::default()
        };
        let mut iut = Iut::new(mib);
        let mut fast = moving(1, 100.0, 0.0, 100, 90);
        let mut beacons = 0;
        for _ in 0..100 {
            fast = fast.later(100);
            iut.knows(&[fast]);
            iut.wait_ms(100);
            beacons += iut.sent.drain(..).count();
        }
        assert!(expected.contains(&beacons), "{company_speed}: {beacons}");
    }
}
