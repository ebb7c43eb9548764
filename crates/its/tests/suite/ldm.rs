//! The map: its objects, their positions and their lifetimes.

use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_geonet::geodesy::is_inside;
use carnet_its::ItsDrop;
use carnet_its::cdd::{
    ActionId, MessageId, SequenceNumber, SpeedValue, StationId, StationType, ValidityDuration,
};
use carnet_its::denm::{Denm, Termination};
use carnet_its::ldm::{LdmParameters, LocalDynamicMap, StationTypes, SubscriptionFilter};
use carnet_its::uper::encode;
use carnet_wire::geonet::{GeoArea, GeoAreaShape};

use crate::support::{cam_of_station, circle_around_home, milliseconds, position_at, reference_position_at};

const TIME_OF_QUERY: Time = Time::from_millis(1);

fn empty_map() -> LocalDynamicMap {
    LocalDynamicMap::new(LdmParameters::default(), 7)
}

fn receive_cam(map: &mut LocalDynamicMap, time: u64, station: u32, east: f64, north: f64) {
    let octets =
        encode(&cam_of_station(station, time as u16, reference_position_at(east, north), 900, 1000)).unwrap();
    assert_eq!(map.handle_cam(Time::from_millis(time), &octets), Ok(StationId(station)));
}

fn station_ids_in(map: &LocalDynamicMap, now: Time, area: Option<&GeoArea>) -> Vec<u32> {
    let mut ids: Vec<u32> =
        map.stations_in(now, area, StationTypes::ALL).iter().map(|station| station.station_id.0).collect();
    ids.sort_unstable();
    ids
}

fn denm_with_number(number: u16) -> Denm {
    let mut denm = Denm::default();
    denm.header.message_id = MessageId::DENM;
    let management = &mut denm.denm.management;
    management.action_id =
        ActionId { originating_station_id: StationId(9), sequence_number: SequenceNumber(number) };
    management.event_position = reference_position_at(10.0, 10.0);
    management.validity_duration = ValidityDuration(10);
    denm.denm.situation = Some(Default::default());
    denm
}

#[test]
fn map_has_last_position_of_station_until_it_expires() {
    let mut map = empty_map();
    receive_cam(&mut map, 0, 1, 0.0, 0.0);
    receive_cam(&mut map, 0, 2, 5000.0, 0.0);
    assert_eq!(station_ids_in(&map, TIME_OF_QUERY, Some(&circle_around_home(100))), [1]);
    receive_cam(&mut map, 1000, 1, 4000.0, 0.0);
    receive_cam(&mut map, 1000, 2, 0.0, 50.0);
    assert_eq!(station_ids_in(&map, TIME_OF_QUERY, Some(&circle_around_home(100))), [2]);
    assert_eq!(station_ids_in(&map, Time::from_millis(3999), None), [1, 2]);
    assert!(station_ids_in(&map, Time::from_millis(4000), None).is_empty());
    // The map removes the expired stations when the next CAM arrives.
    receive_cam(&mut map, 5000, 3, 0.0, 0.0);
    assert_eq!(map.object_counts().0, 1);
}

#[test]
fn map_ignores_older_message() {
    let mut map = empty_map();
    receive_cam(&mut map, 1000, 1, 0.0, 0.0);
    let old = encode(&cam_of_station(1, 900, reference_position_at(500.0, 0.0), 0, 0)).unwrap();
    assert_eq!(map.handle_cam(Time::from_millis(1100), &old), Err(ItsDrop::Outdated));
    assert_eq!(map.station(StationId(1)).map(|station| station.speed), Some(SpeedValue(1000)));
    // The time of the CAMs wraps at 65,536 ms.
    let mut map = LocalDynamicMap::new(LdmParameters::default(), 7);
    receive_cam(&mut map, 65_500, 1, 0.0, 0.0);
    receive_cam(&mut map, 65_600, 1, 10.0, 0.0);
}

#[test]
fn map_query_selects_station_types() {
    let mut map = empty_map();
    receive_cam(&mut map, 0, 1, 0.0, 0.0);
    let mut bus = cam_of_station(2, 0, reference_position_at(0.0, 0.0), 0, 0);
    bus.cam.cam_parameters.basic_container.station_type = StationType::BUS;
    map.handle_cam(Time::ZERO, &encode(&bus).unwrap()).unwrap();
    let types = StationTypes::of_types(&[StationType::BUS, StationType::TRAM]);
    let found = map.stations_in(TIME_OF_QUERY, None, types);
    assert_eq!(found.iter().map(|station| station.station_id.0).collect::<Vec<_>>(), [2]);
    assert!(map.stations_in(TIME_OF_QUERY, None, StationTypes::NONE).is_empty());
}

/// The search by cells finds the same stations as a search of all stations, for every shape and place.
#[test]
fn area_query_returns_stations_inside() {
    let mut rng = Rng::new(4);
    for (latitude, longitude) in [
        (488_375_000, 21_008_000),
        (0, 0),
        (-338_000_000, -703_000_000),
        (850_000_000, 1_000_000),
        (100, 1_799_999_000),
    ] {
        let centre = carnet_geonet::geodesy::LocalPlane::new(carnet_geonet::geodesy::Position::new(
            latitude, longitude,
        ));
        let mut map = empty_map();
        let spread = |rng: &mut Rng| rng.number_below(8000) as f64 - 4000.0;
        for station in 0..2000 {
            let position = centre.position_at(spread(&mut rng), spread(&mut rng));
            let reference =
                carnet_its::cdd::ReferencePosition::at_coordinates(position.latitude, position.longitude);
            map.handle_cam(Time::ZERO, &encode(&cam_of_station(station, 0, reference, 0, 0)).unwrap())
                .unwrap();
        }
        let everybody = map.stations_in(TIME_OF_QUERY, None, StationTypes::ALL);
        assert_eq!(everybody.len(), 2000);
        let mut most = 0;
        for _ in 0..60 {
            let middle = centre.position_at(spread(&mut rng), spread(&mut rng));
            let area = GeoArea {
                shape: [GeoAreaShape::Circle, GeoAreaShape::Rectangle, GeoAreaShape::Ellipse]
                    [rng.number_below(3) as usize],
                latitude: middle.latitude,
                longitude: middle.longitude,
                distance_a: 1 + rng.number_below(3000) as u16,
                distance_b: 1 + rng.number_below(3000) as u16,
                angle: rng.number_below(360) as u16,
            };
            let mut expected: Vec<u32> = everybody
                .iter()
                .filter(|station| is_inside(&area, station.position))
                .map(|station| station.station_id.0)
                .collect();
            expected.sort_unstable();
            assert_eq!(station_ids_in(&map, TIME_OF_QUERY, Some(&area)), expected, "{area:?}");
            most = most.max(expected.len());
        }
        assert!(most > 100, "{most}");
    }
}

/// The lists of the map stay consistent for any order of CAMs. A full map always removes the station without
/// a CAM for the longest time.
#[test]
fn full_map_replaces_longest_silent_station() {
    let parameters = LdmParameters { max_stations: 100, ..LdmParameters::default() };
    let mut map = LocalDynamicMap::new(parameters, 7);
    let mut rng = Rng::new(5);
    let mut last_heard = std::collections::BTreeMap::new();
    for time in 0..20_000_u64 {
        let station = rng.number_below(300) as u32;
        let (east, north) = (rng.number_below(3000) as f64, rng.number_below(3000) as f64);
        receive_cam(&mut map, time, station, east, north);
        last_heard.insert(station, (time, position_at(east, north)));
        if time % 500 == 499 {
            let mut expected: Vec<(u64, u32)> =
                last_heard.iter().map(|(station, (time, _))| (*time, *station)).collect();
            expected.sort_unstable();
            let mut expected: Vec<u32> =
                expected.iter().rev().take(100).map(|(_, station)| *station).collect();
            expected.sort_unstable();
            assert_eq!(station_ids_in(&map, Time::from_millis(time), None), expected);
            for station in expected {
                let found = map.station(StationId(station)).map(|station| station.position);
                assert_eq!(found, last_heard.get(&station).map(|(_, position)| *position));
            }
        }
    }
    assert_eq!(map.object_counts().0, 100);
}

#[test]
fn map_keeps_event_until_it_ends() {
    let mut map = empty_map();
    let expires = Time::from_secs(10);
    map.handle_denm(Time::ZERO, &denm_with_number(1), expires).unwrap();
    assert_eq!(map.events_in(TIME_OF_QUERY, Some(&circle_around_home(100))).len(), 1);
    assert_eq!(map.events_in(TIME_OF_QUERY, Some(&circle_around_home(5))).len(), 0);
    assert_eq!(map.events_in(expires, None).len(), 0);
    let mut over = denm_with_number(1);
    over.denm.situation = None;
    over.denm.management.termination = Some(Termination::IsCancellation);
    map.handle_denm(Time::from_secs(1), &over, expires).unwrap();
    assert_eq!(map.events_in(Time::from_secs(2), None).len(), 0);
    for number in 0..1000 {
        map.handle_denm(Time::from_secs(3), &denm_with_number(number), Time::from_secs(20)).unwrap();
    }
    assert_eq!(map.object_counts().1, LdmParameters::default().max_events);
}

#[test]
fn subscriber_gets_changes_in_its_area() {
    let mut map = empty_map();
    let filter = SubscriptionFilter {
        area: Some(circle_around_home(100)),
        station_types: StationTypes::ALL,
        wants_events: true,
    };
    receive_cam(&mut map, 0, 1, 0.0, 0.0);
    receive_cam(&mut map, 0, 2, 500.0, 0.0);
    let id = map.subscribe(Time::ZERO, filter, Duration::from_millis(500)).unwrap();
    let heard = |map: &mut LocalDynamicMap, time: u64| {
        map.poll_notification(Time::from_millis(time)).map(|notification| {
            assert_eq!(notification.subscription, id);
            let mut stations: Vec<u32> = notification.stations.iter().map(|s| s.station_id.0).collect();
            stations.sort_unstable();
            (stations, notification.events.len())
        })
    };
    // The first notification contains every object.
    assert_eq!(heard(&mut map, 10), Some((vec![1], 0)));
    receive_cam(&mut map, 20, 1, 1.0, 0.0);
    receive_cam(&mut map, 30, 2, 20.0, 0.0);
    receive_cam(&mut map, 40, 3, 900.0, 0.0);
    assert_eq!(heard(&mut map, 509), None, "not before the interval");
    assert_eq!(map.poll_timeout(), Some(Time::from_millis(510)));
    assert_eq!(heard(&mut map, 510), Some((vec![1, 2], 0)));
    assert_eq!(heard(&mut map, 1010), None, "nothing changed");
    // The map reports an event at once.
    map.handle_denm(Time::from_millis(1020), &denm_with_number(1), Time::from_secs(20)).unwrap();
    assert_eq!(heard(&mut map, 1020), Some((vec![], 1)));
    assert_eq!(heard(&mut map, 1021), None);
    assert_eq!(map.poll_timeout(), Some(Time::from_millis(1520)));
    assert!(map.unsubscribe(id) && !map.unsubscribe(id));
    assert_eq!(map.poll_timeout(), None);
}

#[test]
fn subscriptions_are_bounded() {
    let mut map = empty_map();
    let filter = SubscriptionFilter { area: None, station_types: StationTypes::NONE, wants_events: false };
    for _ in 0..LdmParameters::default().max_subscriptions {
        map.subscribe(Time::ZERO, filter, milliseconds(100)).unwrap();
    }
    assert_eq!(map.subscribe(Time::ZERO, filter, milliseconds(100)), Err(ItsDrop::TableFull));
    receive_cam(&mut map, 10, 1, 0.0, 0.0);
    assert_eq!(map.poll_notification(Time::from_millis(10)), None, "nobody wants to hear of anything");
}

#[test]
fn map_ignores_messages_without_position() {
    let mut map = empty_map();
    let nowhere = encode(&cam_of_station(1, 0, Default::default(), 0, 0)).unwrap();
    assert_eq!(map.handle_cam(Time::ZERO, &nowhere), Err(ItsDrop::NoPosition));
    let mut event = denm_with_number(1);
    event.denm.management.event_position = Default::default();
    assert_eq!(map.handle_denm(Time::ZERO, &event, Time::from_secs(1)), Err(ItsDrop::NoPosition));
    assert_eq!(map.object_counts(), (0, 0));
}
