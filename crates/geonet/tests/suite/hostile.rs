//! Invalid input: truncated, mutated, absurd and fabricated frames. The router drops them with a reason,
//! learns nothing from them, and its memory does not grow.

use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_geonet::location_table::mid_key;
use carnet_geonet::mib::{AreaForwarding, NonAreaForwarding, Planarisation, Recovery};
use carnet_geonet::{BROADCAST, GeonetDrop, Mib, Output, ReceivedFrame, Transport};
use carnet_wire::geonet::{GnAddress, StationType, Timestamp};

use crate::craft::*;

fn all_frames(station: &Station) -> Vec<Vec<u8>> {
    let me = Iut::quiet(Mib::default()).pv();
    vec![
        station.beacon(),
        station.shb(b"payload"),
        station.tsb(b"payload"),
        station.guc(&me, b"payload"),
        station.guc(&Station::a().pv, b"payload"),
        station.gbc(area1(), b"payload"),
        station.gbc(area2(), b"payload"),
        station.gac(area1(), b"payload"),
        station.ls_request(me.address),
        station.ls_request(Station::a().pv.address),
        station.ls_reply(&me),
    ]
}

/// The router drops a frame truncated at any octet.
#[test]
fn truncated_frames_are_dropped() {
    let mut iut = Iut::quiet(Mib::default());
    for frame in all_frames(&Station::b()) {
        for length in 0..frame.len() {
            let reason = iut.hear(&Station::b(), &frame[..length]).expect_err("dropped");
            assert!(matches!(reason, GeonetDrop::Malformed | GeonetDrop::PayloadLength), "{reason:?}");
        }
    }
    iut.nothing_sent();
    assert!(iut.delivered.is_empty() && iut.router.location_table().is_empty());
}

/// The router ignores octets behind a packet (frame check sequence, padding, trailer) and does not forward
/// them.
#[test]
fn router_ignores_octets_after_a_packet() {
    for frame in all_frames(&Station::b()) {
        let (mut plain, mut padded) = (Iut::quiet(Mib::default()), Iut::quiet(Mib::default()));
        for behind in [1, 4, 60] {
            let longer = [&frame[..], &vec![0xa5; behind]].concat();
            assert_eq!(padded.hear(&Station::b(), &longer), plain.hear(&Station::b(), &frame));
        }
        assert_eq!(padded.sent, plain.sent);
        assert_eq!(padded.delivered, plain.delivered);
    }
}

/// The router drops packets with positions beyond the poles or the date line, in any position vector or area.
#[test]
fn frames_with_invalid_positions_are_dropped() {
    let mut iut = Iut::quiet(Mib::default());
    for (latitude, longitude) in
        [(900_000_001, 0), (-900_000_001, 0), (0, 1_800_000_001), (0, i32::MIN), (i32::MAX, i32::MAX)]
    {
        let mut station = Station::b();
        (station.pv.latitude, station.pv.longitude) = (latitude, longitude);
        for frame in all_frames(&station) {
            assert_eq!(iut.hear(&station, &frame), Err(GeonetDrop::AbsurdPosition));
        }
        let b = Station::b();
        let area = carnet_wire::geonet::GeoArea { latitude, longitude, ..area1() };
        for frame in [b.guc(&station.pv, b"x"), b.gbc(area, b"x"), b.gac(area, b"x")] {
            assert_eq!(iut.hear(&b, &frame), Err(GeonetDrop::AbsurdPosition));
        }
        assert!(iut.router.handle_position(iut.now, station.pv).is_err());
    }
    assert!(iut.router.location_table().is_empty());
    iut.nothing_sent();
}

/// The router sends frames to a neighbour's MID. If a MID were a group address, all receivers would repeat
/// each unicast packet. The router also refuses send requests to such a station.
#[test]
fn frames_with_invalid_addresses_are_dropped() {
    for mac in [BROADCAST, [0x33, 0x33, 0, 0, 0, 1], [0x01, 0x80, 0xc2, 0, 0, 0], [0; 6]] {
        let mut iut = Iut::quiet(Mib::default());
        let mut forged = Station::b();
        forged.pv.address = address(mac);
        for frame in all_frames(&forged) {
            assert_eq!(iut.hear(&forged, &frame), Err(GeonetDrop::BadSender), "{mac:?}");
        }
        assert!(iut.router.location_table().is_empty() && iut.delivered.is_empty());
        let asked = iut.ask(Transport::GeoUnicast(address(mac)), b"x");
        assert_eq!(asked, Err(GeonetDrop::BadDestination), "{mac:?}");
        iut.nothing_sent();
    }
}

/// The poles and the antipode are valid positions.
#[test]
fn extreme_positions_cause_no_overflow() {
    let mut iut = Iut::quiet(Mib { area_forwarding: AreaForwarding::Simple, ..Mib::default() });
    let mut source = Station::b();
    for (latitude, longitude) in [
        (900_000_000, 0),
        (-900_000_000, 1_800_000_000),
        (0, -1_800_000_000),
        (-HOME.latitude, HOME.longitude - 1_800_000_000),
    ] {
        let place = carnet_geonet::geodesy::Position::new(latitude, longitude);
        let there = Station::at(9, place);
        source = source.later(1).next();
        iut.hear(&there, &there.beacon()).expect("a neighbour, if a strange one");
        iut.hear(&source, &source.guc(&there.later(9).pv, b"x")).expect("forwarded");
        source = source.next();
        iut.hear(&source, &source.gbc(circle(place, 1000), b"x")).expect("forwarded");
        assert!(iut.delivered.is_empty(), "nothing over there is here");
        let slot = iut
            .router
            .location_table()
            .iter()
            .find(|(_, entry)| entry.mac() == there.mac)
            .map(|(slot, _)| slot);
        assert!(slot.is_some());
        iut.router.handle_link_failure(iut.now, there.mac);
        iut.wait(Duration::from_secs(21));
    }
}

/// The router accepts timestamps near the wrap and a clock that is hours off. If a station's clock moves
/// backwards, the router follows it after the station's entry has expired.
#[test]
fn timestamps_near_wrap_are_compared_correctly() {
    let mut iut = Iut::quiet(Mib::default());
    let mut b = Station::b();
    for timestamp in [u32::MAX - 1, u32::MAX, 0, 1, 3_600_000] {
        if timestamp == 3_600_000 {
            iut.wait(Duration::from_secs(21));
        }
        b.pv.timestamp = Timestamp(timestamp);
        b.pv.latitude += 1;
        iut.hear(&b, &b.beacon()).expect("a good beacon");
        let (_, entry) = iut.router.location_table().iter().next().expect("B");
        assert_eq!(*entry.position_vector(), b.pv);
    }
}

/// 100,000 mutations of valid frames under all algorithms cause no panic, and the router still works
/// afterwards.
#[test]
fn mutated_frames_cause_no_panic() {
    let mut rng = Rng::new(11);
    for (area_forwarding, non_area_forwarding, recovery) in [
        (AreaForwarding::Simple, NonAreaForwarding::Greedy, Recovery::None),
        (AreaForwarding::ContentionBased, NonAreaForwarding::ContentionBased, Recovery::None),
        (AreaForwarding::Advanced, NonAreaForwarding::Greedy, Recovery::Perimeter(Planarisation::Gabriel)),
        (
            AreaForwarding::ContentionBased,
            NonAreaForwarding::Greedy,
            Recovery::Perimeter(Planarisation::RelativeNeighbourhood),
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
        let mut iut = Iut::quiet(mib);
        let mut station = Station::b();
        let frames = all_frames(&station);
        let mut effects = 0;
        for _ in 0..25_000 {
            station = station.next();
            let mut frame = frames[rng.below(frames.len() as u64) as usize].clone();
            if frame.len() > 40 {
                frame[12..14].copy_from_slice(&station.sequence.to_be_bytes());
            }
            for _ in 0..rng.below(6) {
                let at = rng.below(frame.len() as u64) as usize;
                frame[at] = rng.u64() as u8;
            }
            if rng.chance(0.2) {
                // Set the next header of perimeter mode.
                frame[4] = 0xf0;
            }
            let destination = if rng.chance(0.5) { BROADCAST } else { iut.router.address().mid() };
            if iut.hear_from(station.mac, destination, &frame).is_ok() {
                effects += 1;
            }
            iut.wait_ms(rng.below(20));
            iut.sent.clear();
            iut.delivered.clear();
            let (unicast, broadcast, contention) = iut.router.buffered_octets();
            assert!(unicast <= 10_000 && broadcast <= 10_000 && contention <= 10_000);
            assert!(iut.router.location_table().len() <= 400);
        }
        assert!(effects > 1_000, "{effects}");
        let good = Station::at(77, place(1.0, 1.0));
        iut.hear(&good, &good.shb(b"still here")).expect("delivered");
        assert_eq!(iut.delivered[0].payload, b"still here");
    }
}

/// A flood of fabricated stations does not replace existing neighbours, and the router still forwards
/// packets.
#[test]
fn flood_of_fabricated_stations_keeps_memory_bounded() {
    let mib = Mib { max_neighbours: 500, max_other_stations: 500, ..Mib::default() };
    let mut iut = Iut::quiet(mib);
    iut.knows(&[Station::b(), Station::c()]);
    iut.wait_ms(100);
    iut.knows(&[Station::b().later(100), Station::c().later(100)]);
    let mut rng = Rng::new(3);
    let mut sequence = 0u16;
    for number in 0..50_000u32 {
        let [_, x, y, z] = number.to_be_bytes();
        let mut fake =
            Station::at(0, place(rng.below(2000) as f64 - 1000.0, rng.below(2000) as f64 - 1000.0));
        fake.mac = [6, 6, 6, x, y, z];
        fake.pv.address = GnAddress::new(false, StationType::PassengerCar, fake.mac);
        fake.sequence = sequence;
        sequence = sequence.wrapping_add(1);
        let frame = if rng.chance(0.5) { fake.beacon() } else { fake.tsb(b"") };
        let _ = iut.hear(&fake, &frame);
        iut.sent.clear();
        iut.events.clear();
        assert!(iut.router.location_table().len() <= 1000);
    }
    let macs: Vec<_> = iut.router.location_table().iter().map(|(_, entry)| entry.mac()).collect();
    assert!(macs.contains(&Station::b().mac) && macs.contains(&Station::c().mac));
    iut.get(&Station::c(), &Station::c().guc(&Station::b().later(100).pv, b"x")).expect("forwarded");
    assert_eq!(iut.one_sent().destination, Station::b().mac);
}

/// A packet dropped during header processing changes no state.
#[test]
fn router_learns_nothing_from_discarded_packet() {
    let mut iut = Iut::quiet(Mib::default());
    let b = Station::b();
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
    assert_eq!(iut.router.counters().delivered, 0);
}

/// Sends beacons in B's name, each with a lead over the router's clock in milliseconds and a distance in
/// metres. Returns B's distance in the location table after each beacon.
fn places_after(iut: &mut Iut, beacons: &[(i64, f64)]) -> Vec<f64> {
    let mut places = Vec::new();
    for &(ahead, east) in beacons {
        let clock = i64::from(iut.pv().timestamp.0)
            + iut.now.saturating_since(Time::from_secs(1000)).as_millis() as i64;
        let mut station = Station::b().moved(place(east, 0.0));
        station.pv.timestamp = Timestamp((clock + ahead) as u32);
        let _ = iut.hear(&station, &station.beacon());
        let table = iut.router.location_table();
        let slot = table.find(iut.now, mid_key(station.pv.address)).expect("B is known");
        let known = table.entry(slot).position();
        let all = beacons.iter().map(|beacon| beacon.1);
        places.extend(all.filter(|east| place(*east, 0.0) == known).take(1));
        iut.wait_ms(1000);
    }
    places
}

const DAYS: i64 = 24 * 3600 * 1000;

#[test]
fn router_with_forged_time_stamp_of_future_takes_next_true_position() {
    // After a true beacon, a forged beacon with an older timestamp has no effect. If the forged beacon
    // arrives first, its position counts until the true one arrives.
    let mut iut = Iut::quiet(Mib::default());
    let told =
        places_after(&mut iut, &[(0, 10.0), (21 * DAYS, 999.0), (0, 20.0), (7_000, 999.0), (-500, 30.0)]);
    assert_eq!(told, [10.0, 10.0, 20.0, 20.0, 30.0]);
    assert_eq!(iut.router.counters().from_the_future, 2);
    let mut iut = Iut::quiet(Mib::default());
    let told = places_after(&mut iut, &[(21 * DAYS, 999.0), (-500, 20.0), (500, 30.0)]);
    assert_eq!(told, [999.0, 20.0, 30.0]);
    // The router accepts a time stamp within the tolerance for true clocks.
    let told = places_after(&mut iut, &[(5_500, 40.0), (5_900, 50.0)]);
    assert_eq!(told, [40.0, 50.0]);
}

#[test]
fn router_with_slow_clock_still_follows_its_neighbours() {
    let mut iut = Iut::quiet(Mib::default());
    // The router's clock is an hour slow.
    let hour = 3_600_000;
    let told = places_after(&mut iut, &[(hour, 10.0), (hour, 20.0), (hour - 5_000, 999.0), (hour, 30.0)]);
    assert_eq!(told, [10.0, 20.0, 20.0, 30.0], "newer ones count, older ones do not");
}
