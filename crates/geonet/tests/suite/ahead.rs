//! Predicted positions and announced validity of beacons: extensions, all off by default.

use std::time::Duration;

use carnet_geonet::mib::{BeaconInterval, Prediction};
use carnet_geonet::{BROADCAST, Mib, Transport};
use carnet_wire::geonet::HeaderType;

use crate::simulated_stations::*;

fn mib_with_prediction() -> Mib {
    Mib {
        prediction: Some(Prediction { link_lifetime: Duration::from_millis(200) }),
        max_communication_range: 250.0,
        ..Mib::default()
    }
}

/// Returns a station at `east` and `north` metres, with a speed in m/s and a heading in degrees.
fn moving_station(number: u8, east: f64, north: f64, speed: i16, heading: u16) -> SimulatedStation {
    let mut station = SimulatedStation::station_at(number, position_at(east, north));
    (station.position_vector.speed, station.position_vector.heading) = (speed * 100, heading * 10);
    station
}

#[test]
fn prediction_chooses_next_hop_that_stays_in_range() {
    let far = SimulatedStation::station_at(9, position_at(1000.0, 0.0));
    for (mib, expected) in [(Mib::default(), 1), (mib_with_prediction(), 2)] {
        let mut iut = RouterUnderTest::with_rare_beacons(mib);
        // Station 1 leaves the range, station 2 stays.
        let leaves = moving_station(1, 240.0, 0.0, 50, 90);
        let stays = moving_station(2, 200.0, 0.0, 0, 0);
        iut.make_neighbours(&[leaves, stays]);
        iut.advance_milliseconds(1000);
        let sender = SimulatedStation::c();
        iut.receive_unicast(&sender, &sender.guc_frame(&far.position_vector, b"x")).expect("forwarded");
        assert_eq!(iut.take_only_transmission().destination[5], expected);
    }
}

/// The destination is not a neighbour, but its position in the packet is in range, so the router sends the
/// packet to it directly. If the link layer cannot reach it, the router tries again only after a second.
#[test]
fn prediction_sends_directly_to_destination_in_range() {
    let near = SimulatedStation::station_at(9, position_at(200.0, 0.0));
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_prediction());
    let sender = SimulatedStation::c();
    iut.receive_unicast(&sender, &sender.guc_frame(&near.position_vector, b"x")).expect("forwarded");
    let sent = iut.take_only_transmission();
    assert_eq!(sent.destination, near.mac);
    iut.report_unacknowledged(&sent).expect("sent on");
    assert_eq!(iut.take_only_transmission().destination, BROADCAST);
    iut.receive_unicast(&sender, &sender.next().guc_frame(&near.position_vector, b"y")).expect("forwarded");
    assert_eq!(iut.take_only_transmission().destination, BROADCAST);
    // After a second the router again sends directly to the destination.
    iut.advance_milliseconds(1001);
    iut.receive_unicast(&sender, &sender.next().next().guc_frame(&near.position_vector, b"z"))
        .expect("forwarded");
    assert_eq!(iut.take_only_transmission().destination, near.mac);
}

/// Greedy forwarding of the standard would choose a neighbour that has left the range; forwarding by
/// prediction does not.
#[test]
fn prediction_skips_neighbour_out_of_range() {
    let mut iut = RouterUnderTest::with_rare_beacons(mib_with_prediction());
    let gone = moving_station(1, 200.0, 0.0, 40, 90);
    iut.make_neighbours(&[gone]);
    iut.advance_milliseconds(3000);
    iut.request_payload(Transport::GeoUnicast(gone.position_vector.address), b"x").expect("accepted");
    assert_eq!(iut.take_only_transmission().destination, BROADCAST);
}

/// The destination position differs in each packet, but the flow keeps its next hop.
#[test]
fn router_keeps_next_hop_to_a_moving_station() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib {
        next_hop_hold: Duration::from_millis(500),
        ..mib_with_prediction()
    });
    let (near, nearer) = (moving_station(1, 150.0, 0.0, 0, 0), moving_station(2, 200.0, 0.0, 0, 0));
    iut.make_neighbours(&[near]);
    let mut sender = SimulatedStation::c();
    let mut next_hop = |iut: &mut RouterUnderTest, east: f64| {
        sender = sender.next();
        let far = SimulatedStation::station_at(9, position_at(east, 0.0));
        iut.receive_unicast(&SimulatedStation::c(), &sender.guc_frame(&far.position_vector, b"x"))
            .expect("forwarded");
        iut.take_only_transmission().destination
    };
    assert_eq!(next_hop(&mut iut, 1000.0), near.mac);
    iut.make_neighbours(&[nearer]);
    assert_eq!(next_hop(&mut iut, 1010.0), near.mac);
    iut.advance_milliseconds(500);
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
    let mut iut = RouterUnderTest::new(mib);
    iut.advance_time(Duration::from_secs(3));
    let beacon = iut.sent_transmissions.remove(0);
    // A station that does not move sends a beacon at least every two seconds, and announces a validity of
    // three intervals: 6 s.
    assert_eq!(parse(&beacon.frame).basic.lifetime.duration(), Duration::from_secs(6));
    let other = with_lifetime(SimulatedStation::b().beacon_frame(), Duration::from_millis(500));
    iut.receive_unicast(&SimulatedStation::b(), &other).expect("learnt");
    assert_eq!(iut.router.location_table().neighbour_count(), 1);
    iut.advance_milliseconds(499);
    assert_eq!(iut.router.location_table().neighbour_count(), 1);
    iut.advance_milliseconds(2);
    assert_eq!(iut.router.location_table().neighbour_count(), 0);
    // After the end of the beacon's validity, the location table still has the station's position.
    assert_eq!(iut.router.location_table().len(), 1);
}

#[test]
fn station_that_turns_sends_beacon_at_once() {
    let mib = Mib {
        beacon_interval: BeaconInterval::ADAPTIVE,
        max_beacon_deviation: Some(5.0),
        max_communication_range: 250.0,
        ..Mib::default()
    };
    let mut iut = RouterUnderTest::new(mib);
    let mut pv = iut.position_vector();
    (pv.speed, pv.heading) = (1000, 0);
    let mut drive = |iut: &mut RouterUnderTest, seconds: u32, north: f64, heading: u16| {
        let start = iut.now;
        let mut beacons = Vec::new();
        for tenth in 1..=seconds * 10 {
            iut.advance_milliseconds(100);
            pv.timestamp = pv.timestamp.wrapping_add(Duration::from_millis(100));
            let at = position_at(0.0, north * f64::from(tenth) / 10.0);
            (pv.latitude, pv.longitude, pv.heading) = (at.latitude, at.longitude, heading);
            iut.router.handle_position(iut.now, pv).expect("a position");
            for sent in iut.sent_transmissions.drain(..) {
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
    // After its turn the station moves away from the predicted position at 20 m/s: 5 m in a quarter of a
    // second.
    let turned = drive(&mut iut, 1, -10.0, 1800);
    assert!(turned.first().is_some_and(|first| *first <= Duration::from_millis(500)), "{turned:?}");
}

#[test]
fn slow_station_sends_beacons_at_the_interval_of_fast_neighbours() {
    for (company_speed, expected) in [(false, 4..=7), (true, 60..=90)] {
        let mib = Mib {
            beacon_interval: BeaconInterval::ADAPTIVE,
            uses_fastest_neighbour_speed: company_speed,
            max_communication_range: 250.0,
            ..Mib::default()
        };
        let mut iut = RouterUnderTest::new(mib);
        let mut fast = moving_station(1, 100.0, 0.0, 100, 90);
        let mut beacons = 0;
        for _ in 0..100 {
            fast = fast.with_later_timestamp(100);
            iut.make_neighbours(&[fast]);
            iut.advance_milliseconds(100);
            beacons += iut.sent_transmissions.drain(..).count();
        }
        assert!(expected.contains(&beacons), "{company_speed}: {beacons}");
    }
}
