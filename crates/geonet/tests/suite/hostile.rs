//! Invalid input: truncated, mutated, absurd and fabricated frames. The router drops them with a reason,
//! learns nothing from them, and its memory does not grow.

use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_geonet::location_table::mid_key;
use carnet_geonet::mib::{AreaForwarding, NonAreaForwarding, Planarisation, VoidRecovery};
use carnet_geonet::{BROADCAST, GeonetDrop, Mib, Output, ReceivedFrame, Transport};
use carnet_wire::geonet::{GnAddress, StationType, Timestamp};

use crate::simulated_stations::*;

fn all_frames(station: &SimulatedStation) -> Vec<Vec<u8>> {
    let me = RouterUnderTest::with_rare_beacons(Mib::default()).position_vector();
    vec![
        station.beacon_frame(),
        station.shb_frame(b"payload"),
        station.tsb_frame(b"payload"),
        station.guc_frame(&me, b"payload"),
        station.guc_frame(&SimulatedStation::a().position_vector, b"payload"),
        station.gbc_frame(etsi_area_1(), b"payload"),
        station.gbc_frame(etsi_area_2(), b"payload"),
        station.gac_frame(etsi_area_1(), b"payload"),
        station.ls_request_frame(me.address),
        station.ls_request_frame(SimulatedStation::a().position_vector.address),
        station.ls_reply_frame(&me),
    ]
}

/// The router drops a frame truncated at any octet.
#[test]
fn truncated_frames_are_dropped() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    for frame in all_frames(&SimulatedStation::b()) {
        for length in 0..frame.len() {
            let reason =
                iut.receive_broadcast(&SimulatedStation::b(), &frame[..length]).expect_err("dropped");
            assert!(matches!(reason, GeonetDrop::Malformed | GeonetDrop::PayloadLength), "{reason:?}");
        }
    }
    iut.assert_nothing_sent();
    assert!(iut.delivered_payloads.is_empty() && iut.router.location_table().is_empty());
}

/// The router ignores octets behind a packet (frame check sequence, padding, trailer) and does not forward
/// them.
#[test]
fn router_ignores_octets_after_a_packet() {
    for frame in all_frames(&SimulatedStation::b()) {
        let (mut plain, mut padded) = (
            RouterUnderTest::with_rare_beacons(Mib::default()),
            RouterUnderTest::with_rare_beacons(Mib::default()),
        );
        for behind in [1, 4, 60] {
            let longer = [&frame[..], &vec![0xa5; behind]].concat();
            assert_eq!(
                padded.receive_broadcast(&SimulatedStation::b(), &longer),
                plain.receive_broadcast(&SimulatedStation::b(), &frame)
            );
        }
        assert_eq!(padded.sent_transmissions, plain.sent_transmissions);
        assert_eq!(padded.delivered_payloads, plain.delivered_payloads);
    }
}

/// The router drops packets with positions beyond the poles or the date line, in any position vector or area.
#[test]
fn frames_with_invalid_positions_are_dropped() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    for (latitude, longitude) in
        [(900_000_001, 0), (-900_000_001, 0), (0, 1_800_000_001), (0, i32::MIN), (i32::MAX, i32::MAX)]
    {
        let mut station = SimulatedStation::b();
        (station.position_vector.latitude, station.position_vector.longitude) = (latitude, longitude);
        for frame in all_frames(&station) {
            assert_eq!(iut.receive_broadcast(&station, &frame), Err(GeonetDrop::AbsurdPosition));
        }
        let b = SimulatedStation::b();
        let area = carnet_wire::geonet::GeoArea { latitude, longitude, ..etsi_area_1() };
        for frame in
            [b.guc_frame(&station.position_vector, b"x"), b.gbc_frame(area, b"x"), b.gac_frame(area, b"x")]
        {
            assert_eq!(iut.receive_broadcast(&b, &frame), Err(GeonetDrop::AbsurdPosition));
        }
        assert!(iut.router.handle_position(iut.now, station.position_vector).is_err());
    }
    assert!(iut.router.location_table().is_empty());
    iut.assert_nothing_sent();
}

/// The router sends frames to a neighbour's MID. If a MID were a group address, all receivers would repeat
/// each unicast packet. The router also refuses send requests to such a station.
#[test]
fn frames_with_invalid_addresses_are_dropped() {
    for mac in [BROADCAST, [0x33, 0x33, 0, 0, 0, 1], [0x01, 0x80, 0xc2, 0, 0, 0], [0; 6]] {
        let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
        let mut forged = SimulatedStation::b();
        forged.position_vector.address = address(mac);
        for frame in all_frames(&forged) {
            assert_eq!(iut.receive_broadcast(&forged, &frame), Err(GeonetDrop::BadSender), "{mac:?}");
        }
        assert!(iut.router.location_table().is_empty() && iut.delivered_payloads.is_empty());
        let asked = iut.request_payload(Transport::GeoUnicast(address(mac)), b"x");
        assert_eq!(asked, Err(GeonetDrop::BadDestination), "{mac:?}");
        iut.assert_nothing_sent();
    }
}

/// The poles and the antipode are valid positions.
#[test]
fn extreme_positions_cause_no_overflow() {
    let mut iut =
        RouterUnderTest::with_rare_beacons(Mib { area_forwarding: AreaForwarding::Simple, ..Mib::default() });
    let mut source = SimulatedStation::b();
    for (latitude, longitude) in [
        (900_000_000, 0),
        (-900_000_000, 1_800_000_000),
        (0, -1_800_000_000),
        (-ROUTER_POSITION.latitude, ROUTER_POSITION.longitude - 1_800_000_000),
    ] {
        let place = carnet_geonet::geodesy::Position::new(latitude, longitude);
        let there = SimulatedStation::station_at(9, place);
        source = source.with_later_timestamp(1).next();
        iut.receive_broadcast(&there, &there.beacon_frame()).expect("a neighbour, if a strange one");
        iut.receive_broadcast(
            &source,
            &source.guc_frame(&there.with_later_timestamp(9).position_vector, b"x"),
        )
        .expect("forwarded");
        source = source.next();
        iut.receive_broadcast(&source, &source.gbc_frame(circular_area(place, 1000), b"x"))
            .expect("forwarded");
        assert!(iut.delivered_payloads.is_empty(), "nothing over there is here");
        let slot = iut
            .router
            .location_table()
            .iter()
            .find(|(_, entry)| entry.mac() == there.mac)
            .map(|(slot, _)| slot);
        assert!(slot.is_some());
        iut.router.handle_link_failure(iut.now, there.mac);
        iut.advance_time(Duration::from_secs(21));
    }
}

/// The router accepts timestamps near the wrap and a clock that is hours off. If a station's clock moves
/// backwards, the router follows it after the station's entry has expired.
#[test]
fn timestamps_near_wrap_are_compared_correctly() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let mut b = SimulatedStation::b();
    for timestamp in [u32::MAX - 1, u32::MAX, 0, 1, 3_600_000] {
        if timestamp == 3_600_000 {
            iut.advance_time(Duration::from_secs(21));
        }
        b.position_vector.timestamp = Timestamp(timestamp);
        b.position_vector.latitude += 1;
        iut.receive_broadcast(&b, &b.beacon_frame()).expect("a good beacon");
        let (_, entry) = iut.router.location_table().iter().next().expect("B");
        assert_eq!(*entry.position_vector(), b.position_vector);
    }
}

/// 100,000 mutations of valid frames under all algorithms cause no panic, and the router still works
/// afterwards.
#[test]
fn mutated_frames_cause_no_panic() {
    let mut rng = Rng::new(11);
    for (area_forwarding, non_area_forwarding, recovery) in [
        (AreaForwarding::Simple, NonAreaForwarding::Greedy, VoidRecovery::None),
        (AreaForwarding::ContentionBased, NonAreaForwarding::ContentionBased, VoidRecovery::None),
        (
            AreaForwarding::Advanced,
            NonAreaForwarding::Greedy,
            VoidRecovery::Perimeter(Planarisation::Gabriel),
        ),
        (
            AreaForwarding::ContentionBased,
            NonAreaForwarding::Greedy,
            VoidRecovery::Perimeter(Planarisation::RelativeNeighbourhood),
        ),
    ] {
        let mib = Mib {
            area_forwarding,
            non_area_forwarding,
            recovery,
            max_neighbours: 200,
            max_other_stations: 200,
            unicast_buffer_size: 10_000,
            broadcast_buffer_size: 10_000,
            cbf_buffer_size: 10_000,
            ..Mib::default()
        };
        let mut iut = RouterUnderTest::with_rare_beacons(mib);
        let mut station = SimulatedStation::b();
        let frames = all_frames(&station);
        let mut effects = 0;
        for _ in 0..25_000 {
            station = station.next();
            let mut frame = frames[rng.number_below(frames.len() as u64) as usize].clone();
            if frame.len() > 40 {
                frame[12..14].copy_from_slice(&station.sequence.to_be_bytes());
            }
            for _ in 0..rng.number_below(6) {
                let at = rng.number_below(frame.len() as u64) as usize;
                frame[at] = rng.random_u64() as u8;
            }
            if rng.is_true_with_probability(0.2) {
                // Set the next header of perimeter mode.
                frame[4] = 0xf0;
            }
            let destination =
                if rng.is_true_with_probability(0.5) { BROADCAST } else { iut.router.address().mid() };
            if iut.receive_from(station.mac, destination, &frame).is_ok() {
                effects += 1;
            }
            iut.advance_milliseconds(rng.number_below(20));
            iut.sent_transmissions.clear();
            iut.delivered_payloads.clear();
            let (unicast, broadcast, contention) = iut.router.buffered_octets();
            assert!(unicast <= 10_000 && broadcast <= 10_000 && contention <= 10_000);
            assert!(iut.router.location_table().len() <= 400);
        }
        assert!(effects > 1_000, "{effects}");
        let good = SimulatedStation::station_at(77, position_at(1.0, 1.0));
        iut.receive_broadcast(&good, &good.shb_frame(b"still here")).expect("delivered");
        assert_eq!(iut.delivered_payloads[0].payload, b"still here");
    }
}

/// A flood of fabricated stations does not replace existing neighbours, and the router still forwards
/// packets.
#[test]
fn flood_of_fabricated_stations_keeps_memory_bounded() {
    let mib = Mib { max_neighbours: 500, max_other_stations: 500, ..Mib::default() };
    let mut iut = RouterUnderTest::with_rare_beacons(mib);
    iut.make_neighbours(&[SimulatedStation::b(), SimulatedStation::c()]);
    iut.advance_milliseconds(100);
    iut.make_neighbours(&[
        SimulatedStation::b().with_later_timestamp(100),
        SimulatedStation::c().with_later_timestamp(100),
    ]);
    let mut rng = Rng::new(3);
    let mut sequence = 0u16;
    for number in 0..50_000u32 {
        let [_, x, y, z] = number.to_be_bytes();
        let mut fake = SimulatedStation::station_at(
            0,
            position_at(rng.number_below(2000) as f64 - 1000.0, rng.number_below(2000) as f64 - 1000.0),
        );
        fake.mac = [6, 6, 6, x, y, z];
        fake.position_vector.address = GnAddress::new(false, StationType::PassengerCar, fake.mac);
        fake.sequence = sequence;
        sequence = sequence.wrapping_add(1);
        let frame = if rng.is_true_with_probability(0.5) { fake.beacon_frame() } else { fake.tsb_frame(b"") };
        let _ = iut.receive_broadcast(&fake, &frame);
        iut.sent_transmissions.clear();
        iut.events.clear();
        assert!(iut.router.location_table().len() <= 1000);
    }
    let macs: Vec<_> = iut.router.location_table().iter().map(|(_, entry)| entry.mac()).collect();
    assert!(macs.contains(&SimulatedStation::b().mac) && macs.contains(&SimulatedStation::c().mac));
    iut.receive_unicast(
        &SimulatedStation::c(),
        &SimulatedStation::c()
            .guc_frame(&SimulatedStation::b().with_later_timestamp(100).position_vector, b"x"),
    )
    .expect("forwarded");
    assert_eq!(iut.take_only_transmission().destination, SimulatedStation::b().mac);
}

/// A packet dropped during header processing changes no state.
#[test]
fn router_learns_nothing_from_discarded_packet() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let b = SimulatedStation::b();
    for frame in all_frames(&b) {
        for (at, octet) in
            [(0, 0x21), (0, 0x12), (0, 0x13), (3, 11), (5, 0x00), (5, 0x11), (5, 0x33), (5, 0x62)]
        {
            let mut bad = frame.clone();
            bad[at] = octet;
            let frame = ReceivedFrame { source: b.mac, destination: BROADCAST, packet: &bad };
            iut.router.handle_frame(iut.now, frame).expect_err("dropped");
            assert!(iut.router.poll_output().is_none_or(|output| !matches!(output, Output::Transmit(_))));
        }
    }
    assert!(iut.router.location_table().is_empty());
    assert_eq!(iut.router.counters().delivered_payloads, 0);
}

/// Sends beacons in B's name, each with a lead over the router's clock in milliseconds and a distance in
/// metres. Returns B's distance in the location table after each beacon.
fn distances_after_beacons(iut: &mut RouterUnderTest, beacons: &[(i64, f64)]) -> Vec<f64> {
    let mut places = Vec::new();
    for &(ahead, east) in beacons {
        let clock = i64::from(iut.position_vector().timestamp.0)
            + iut.now.saturating_since(Time::from_secs(1000)).as_millis() as i64;
        let mut station = SimulatedStation::b().moved_to(position_at(east, 0.0));
        station.position_vector.timestamp = Timestamp((clock + ahead) as u32);
        let _ = iut.receive_broadcast(&station, &station.beacon_frame());
        let table = iut.router.location_table();
        let slot = table
            .find_slot_of_station(iut.now, mid_key(station.position_vector.address))
            .expect("B is known");
        let known = table.entry(slot).position();
        let all = beacons.iter().map(|beacon| beacon.1);
        places.extend(all.filter(|east| position_at(*east, 0.0) == known).take(1));
        iut.advance_milliseconds(1000);
    }
    places
}

const DAY_MILLISECONDS: i64 = 24 * 3600 * 1000;

#[test]
fn router_with_forged_time_stamp_of_future_takes_next_true_position() {
    // After a true beacon, a forged beacon with an older timestamp has no effect. If the forged beacon
    // arrives first, its position counts until the true one arrives.
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let told = distances_after_beacons(
        &mut iut,
        &[(0, 10.0), (21 * DAY_MILLISECONDS, 999.0), (0, 20.0), (7_000, 999.0), (-500, 30.0)],
    );
    assert_eq!(told, [10.0, 10.0, 20.0, 20.0, 30.0]);
    assert_eq!(iut.router.counters().from_the_future, 2);
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    let told =
        distances_after_beacons(&mut iut, &[(21 * DAY_MILLISECONDS, 999.0), (-500, 20.0), (500, 30.0)]);
    assert_eq!(told, [999.0, 20.0, 30.0]);
    // The router accepts a time stamp that is ahead of its clock by less than the tolerance.
    let told = distances_after_beacons(&mut iut, &[(5_500, 40.0), (5_900, 50.0)]);
    assert_eq!(told, [40.0, 50.0]);
}

#[test]
fn router_with_slow_clock_still_follows_its_neighbours() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
    // The router's clock is an hour behind the clocks of its neighbours.
    let hour = 3_600_000;
    let told =
        distances_after_beacons(&mut iut, &[(hour, 10.0), (hour, 20.0), (hour - 5_000, 999.0), (hour, 30.0)]);
    assert_eq!(told, [10.0, 20.0, 20.0, 30.0], "newer ones count, older ones do not");
}
