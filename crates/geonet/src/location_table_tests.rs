//! Tests of the location table by clause.

use super::*;
use carnet_wire::geonet::{StationType, Timestamp};
use std::time::Duration;

fn position_vector(station: u32, timestamp: u32) -> LongPositionVector {
    let [a, b, c, d] = station.to_be_bytes();
    LongPositionVector {
        address: GnAddress::new(false, StationType::PassengerCar, [2, 0, a, b, c, d]),
        timestamp: Timestamp(timestamp),
        latitude: 488_000_000 + station as i32,
        longitude: 21_000_000,
        accurate: true,
        ..LongPositionVector::default()
    }
}

fn mid_of_station(station: u32) -> u64 {
    mid_key(position_vector(station, 0).address)
}

const START_TIME: Time = Time::from_secs(100);

/// An entry takes at most 256 octets, including its part of all indexes.
#[test]
fn location_table_entry_takes_at_most_256_octets() {
    const { assert!(ENTRY_OCTETS <= 256) };
}

/// PON_LOT_BV_01, 8.1.2: a beacon makes its source a neighbour, a forwarded packet only makes an entry.
#[test]
fn single_hop_packet_makes_its_sender_a_neighbour() {
    let (mut table, mib) = (LocationTable::new(1), Mib::default());
    let near = table.learn_position(START_TIME, &mib, &position_vector(1, 10), true, None).expect("room");
    assert!(near.is_new && near.is_new_neighbour && table.entry(near.slot).is_neighbour());
    let far = table.learn_position(START_TIME, &mib, &position_vector(2, 10), false, None).expect("room");
    assert!(far.is_new && !far.is_new_neighbour && !table.entry(far.slot).is_neighbour());
    assert_eq!((table.len(), table.neighbour_count()), (2, 1));
    // A later single-hop packet makes the second station a neighbour, too; a later forwarded packet does not
    // end this state.
    assert!(
        table
            .learn_position(START_TIME, &mib, &position_vector(2, 11), true, None)
            .expect("room")
            .is_new_neighbour
    );
    table.learn_position(START_TIME, &mib, &position_vector(1, 11), false, None).expect("room");
    assert_eq!(table.neighbour_count(), 2);
}

/// PON_LOT_BV_05, C.2: the table replaces a position vector only by a newer one, also when the timestamp
/// wraps.
#[test]
fn older_position_vector_is_ignored() {
    let (mut table, mib) = (LocationTable::new(1), Mib::default());
    let moved = |timestamp, latitude| LongPositionVector { latitude, ..position_vector(1, timestamp) };
    let slot =
        table.learn_position(START_TIME, &mib, &moved(u32::MAX - 5, 1), true, None).expect("room").slot;
    assert!(
        !table
            .learn_position(START_TIME, &mib, &moved(u32::MAX - 5, 2), true, None)
            .expect("room")
            .is_position_updated
    );
    assert!(
        !table
            .learn_position(START_TIME, &mib, &moved(u32::MAX - 6, 3), true, None)
            .expect("room")
            .is_position_updated
    );
    assert_eq!(table.entry(slot).position_vector().latitude, 1);
    assert!(
        table.learn_position(START_TIME, &mib, &moved(3, 4), true, None).expect("room").is_position_updated
    );
    assert_eq!(table.entry(slot).position_vector().latitude, 4);
    assert_eq!(table.neighbour_index().position(slot).map(|p| p.latitude), Some(4));
}

/// PON_LOT_BV_04: the table removes an entry after itsGnLifetimeLocTE, and accepts old timestamps again.
#[test]
fn location_table_entry_expires() {
    let (mut table, mib) = (LocationTable::new(1), Mib::default());
    let slot =
        table.learn_position(START_TIME, &mib, &position_vector(1, 10), true, None).expect("room").slot;
    table.entry_mut(slot).duplicates.add(7, 8);
    table
        .learn_position(START_TIME + Duration::from_secs(1), &mib, &position_vector(2, 10), false, None)
        .expect("room");
    assert_eq!(table.next_expiry(), Some(START_TIME + Duration::from_secs(20)));
    let end = START_TIME + Duration::from_secs(20);
    assert!(table.find_slot_of_station(end - Duration::from_nanos(1), mid_of_station(1)).is_some());
    assert!(table.find_slot_of_station(end, mid_of_station(1)).is_none());
    assert!(
        table
            .learn_position(end, &mib, &position_vector(1, 5), true, None)
            .expect("room")
            .is_position_updated
    );
    assert!(!table.entry(slot).duplicates.contains(7));
    table.expire_entries(START_TIME + Duration::from_secs(21), &mib);
    assert_eq!((table.len(), table.neighbour_count()), (1, 1));
    table.expire_entries(START_TIME + Duration::from_secs(40), &mib);
    assert_eq!((table.len(), table.neighbour_count(), table.next_expiry()), (0, 0, None));
}

/// 8.1.3, 10.3.6.3: a station whose position and time never change is a neighbour while it sends beacons.
#[test]
fn repeated_timestamp_still_renews_the_entry() {
    let (mut table, mib) = (LocationTable::new(1), Mib::default());
    table.learn_position(START_TIME, &mib, &position_vector(1, 10), true, None).expect("room");
    table.learn_position(START_TIME, &mib, &position_vector(2, 10), false, None).expect("room");
    for second in 1..60 {
        let now = START_TIME + Duration::from_secs(second);
        let learnt = table.learn_position(now, &mib, &position_vector(1, 10), true, None).expect("known");
        assert!(!learnt.is_new && !learnt.is_new_neighbour && !learnt.is_position_updated);
        table.expire_entries(now, &mib);
        if second < 20 {
            // A forwarded packet with the same position may be old, so it does not renew the entry.
            table.learn_position(now, &mib, &position_vector(2, 10), false, None).expect("known");
        }
        assert_eq!(
            (table.neighbour_count(), table.len()),
            (1, if second < 20 { 2 } else { 1 }),
            "{second} s"
        );
    }
    table.expire_entries(START_TIME + Duration::from_secs(79), &mib);
    assert!(table.is_empty());
    // An entry's lifetime also restarts when its station becomes a neighbour.
    table.learn_position(START_TIME, &mib, &position_vector(4, 10), false, None).expect("room");
    let later = START_TIME + Duration::from_secs(19);
    assert!(
        table
            .learn_position(later, &mib, &position_vector(4, 10), true, None)
            .expect("known")
            .is_new_neighbour
    );
    assert!(table.find_slot_of_station(later + Duration::from_secs(19), mid_of_station(4)).is_some());
}

/// A neighbour leaves the radio range, and other stations forward its packets: the table keeps its entry.
#[test]
fn neighbour_out_of_range_stays_in_table_while_others_forward_its_packets() {
    let mut table = LocationTable::new(1);
    let mib = Mib { lifetime_neighbour: Duration::from_secs(3), ..Mib::default() };
    table.learn_position(START_TIME, &mib, &position_vector(1, 10), true, None).expect("room");
    table
        .learn_position(START_TIME + Duration::from_secs(2), &mib, &position_vector(1, 11), false, None)
        .expect("room");
    table.expire_entries(START_TIME + Duration::from_secs(3), &mib);
    assert_eq!((table.len(), table.neighbour_count()), (1, 0));
    table.expire_entries(START_TIME + Duration::from_secs(22), &mib);
    assert_eq!(table.len(), 0);
}

/// A replayed old beacon does not make its source a neighbour.
#[test]
fn a_replayed_beacon_makes_no_neighbour() {
    let (mut table, mib) = (LocationTable::new(1), Mib::default());
    table.learn_position(START_TIME, &mib, &position_vector(1, 10), false, None).expect("room");
    let learnt = table.learn_position(START_TIME, &mib, &position_vector(1, 9), true, None).expect("known");
    assert!(!learnt.is_new_neighbour);
    assert_eq!(table.neighbour_count(), 0);
}

/// A flood of fabricated stations replaces only fabricated stations, and the table's memory is bounded.
#[test]
fn fabricated_stations_replace_only_each_other() {
    let mut table = LocationTable::new(1);
    let mib = Mib { max_neighbours: 100, max_other_stations: 50, ..Mib::default() };
    for beacon in 0..2 {
        for station in 0..40 {
            table
                .learn_position(START_TIME, &mib, &position_vector(station, beacon), true, None)
                .expect("room");
        }
    }
    for station in 1000..100_000 {
        table
            .learn_position(START_TIME, &mib, &position_vector(station, 0), true, None)
            .expect("room among the fabricated");
        table
            .learn_position(START_TIME, &mib, &position_vector(station + 1_000_000, 0), false, None)
            .expect("room among the far");
        assert!(table.len() <= 150 && table.allocated_entries() <= 151);
    }
    assert!((0..40).all(|station| table.find_slot_of_station(START_TIME, mid_of_station(station)).is_some()));
    // During the flood, a real new station sends beacons regularly: the table stores it and does not replace
    // it.
    table.learn_position(START_TIME, &mib, &position_vector(500, 0), true, None).expect("room");
    table.learn_position(START_TIME, &mib, &position_vector(500, 1), true, None).expect("room");
    for station in 100_000..101_000 {
        table
            .learn_position(START_TIME, &mib, &position_vector(station, 0), true, None)
            .expect("room among the fabricated");
    }
    assert!(table.find_slot_of_station(START_TIME, mid_of_station(500)).is_some());
}

/// Fabricated stations that each send two beacons do not replace established neighbours.
#[test]
fn flood_does_not_remove_established_neighbours() {
    let mut table = LocationTable::new(1);
    let mib = Mib { max_neighbours: 10, ..Mib::default() };
    for station in 0..20 {
        for beacon in 0..2 {
            let learnt =
                table.learn_position(START_TIME, &mib, &position_vector(station, beacon), true, None);
            assert_eq!(learnt.is_ok(), station < 10, "{station}");
        }
    }
    assert!((0..10).all(|station| table.find_slot_of_station(START_TIME, mid_of_station(station)).is_some()));
    assert_eq!(
        table.learn_position(START_TIME, &mib, &position_vector(30, 0), true, None),
        Err(GeonetDrop::LocationTableFull)
    );
    // Established neighbours whose lifetime has ended make room, even before the table's timer has run.
    let later = START_TIME + Duration::from_secs(20);
    assert!(table.learn_position(later, &mib, &position_vector(30, 0), true, None).is_ok());
}

#[test]
fn location_table_lists_stay_consistent_under_random_use() {
    let mut rng = carnet_base::Rng::new(3);
    let mut table = LocationTable::new(9);
    let mib = Mib { max_neighbours: 20, max_other_stations: 20, ..Mib::default() };
    let mut now = START_TIME;
    for step in 0..20_000u32 {
        now += Duration::from_millis(rng.number_below(200));
        let station = rng.number_below(60) as u32;
        match rng.number_below(10) {
            0 => table.expire_entries(now, &mib),
            1 => {
                if let Some(slot) = table.find_slot_of_station(now, mid_of_station(station)) {
                    table.remove_neighbour_status(now, &mib, slot);
                }
            }
            // Some packets repeat the timestamp of the station's previous position, or have an older
            // timestamp.
            _ => drop(table.learn_position(
                now,
                &mib,
                &position_vector(station, step / 32),
                rng.is_true_with_probability(0.5),
                None,
            )),
        }
        for queue in &table.queues[2..] {
            let ends = |slot: u32| table.entries[slot as usize].neighbour_until;
            let next = |slot: &u32| {
                Some(table.entries[*slot as usize].next_in_queue).filter(|&next| next != NO_ENTRY)
            };
            let slots = std::iter::successors(Some(queue.first_entry).filter(|&head| head != NO_ENTRY), next);
            assert!(slots.is_sorted_by_key(ends), "the first one ends first");
        }
        assert_eq!(table.queues.iter().map(|queue| queue.len).sum::<usize>(), table.len());
        assert_eq!(table.iter().filter(|(_, entry)| entry.is_neighbour()).count(), table.neighbour_count());
        assert_eq!(table.queues[2].len + table.queues[3].len, table.neighbour_count());
        assert!(table.len() <= 40);
    }
    table.clear();
    assert!(table.is_empty() && table.next_expiry().is_none());
}
