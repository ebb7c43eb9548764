//! Areas that the operator sets while the station runs.

use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::geo_destinations::{
    AreaCentre, AreaDestination, AreaRefusalReason, GeoDestinations, MAX_AREAS, UnknownCentre,
};
use carnet_geonet::geodesy::Position;
use carnet_geonet::{Event, Mib};
use carnet_wire::geonet::{GeoAreaShape, GnAddress, HeaderType};

use crate::host_and_router::parse_address;
use crate::simulated_stations::*;

fn destination_around(around: AreaCentre) -> AreaDestination {
    AreaDestination {
        centre: around,
        shape: GeoAreaShape::Circle,
        distance_a: 300,
        distance_b: 0,
        angle: 0,
        group: None,
    }
}

fn far_station() -> GnAddress {
    SimulatedStation::a().position_vector.address
}

/// The areas that the operator sets, and the router that packets to these areas use.
struct AreasAndRouter {
    iut: RouterUnderTest,
    areas: GeoDestinations,
}

impl AreasAndRouter {
    fn new() -> AreasAndRouter {
        let mut iut = RouterUnderTest::with_rare_beacons(Mib::default());
        iut.make_neighbours(&[SimulatedStation::b()]);
        AreasAndRouter { iut, areas: GeoDestinations::default() }
    }

    fn set_area(
        &mut self,
        name: &str,
        destination: AreaDestination,
        seconds: Option<u64>,
    ) -> Result<(), AreaRefusalReason> {
        let lifetime = seconds.map(Duration::from_secs);
        self.areas.set_area(self.iut.now, name, destination, lifetime, &self.iut.router)?;
        self.handle_area_timers();
        Ok(())
    }

    fn handle_area_timers(&mut self) {
        self.areas.handle_timeout(self.iut.now, &mut self.iut.router);
        self.iut.collect_outputs();
    }

    fn centre_of_area(&self, name: &str) -> Option<Result<Position, UnknownCentre>> {
        let area = self.areas.area(self.iut.now, name, &self.iut.router)?;
        Some(area.map(|area| Position::new(area.latitude, area.longitude)))
    }

    /// Advances the time by `span` and handles the timers of the router and of the areas.
    fn advance_time(&mut self, span: Duration) {
        let end = self.iut.now + span;
        while let Some(due) = self.areas.poll_timeout().filter(|due| *due <= end) {
            self.iut.advance_time(due.saturating_since(self.iut.now));
            self.handle_area_timers();
            assert_ne!(self.areas.poll_timeout(), Some(due), "it would be looked after for ever");
        }
        self.iut.advance_time(end.saturating_since(self.iut.now));
    }

    /// Returns the number of Location Service requests for the far station.
    fn count_location_requests(&mut self) -> usize {
        let sent = std::mem::take(&mut self.iut.sent_transmissions);
        sent.iter()
            .filter(|it| HeaderType::from_octet(it.frame[5]) == HeaderType::LocationServiceRequest)
            .count()
    }
}

#[test]
fn area_around_own_station_moves_with_it_and_fixed_area_stays() {
    let mut plane = AreasAndRouter::new();
    plane
        .set_area("there", destination_around(AreaCentre::Place(SimulatedStation::c().position())), None)
        .expect("set");
    plane.set_area("here", destination_around(AreaCentre::Here), None).expect("set");
    assert_eq!(plane.centre_of_area("there"), Some(Ok(SimulatedStation::c().position())));
    assert_eq!(plane.centre_of_area("here"), Some(Ok(ROUTER_POSITION)));
    assert_eq!(plane.centre_of_area("nowhere"), None);
    plane.iut.set_position(SimulatedStation::d().position(), 1_001_000);
    assert_eq!(plane.centre_of_area("there"), Some(Ok(SimulatedStation::c().position())));
    assert_eq!(plane.centre_of_area("here"), Some(Ok(SimulatedStation::d().position())));
    // The centre of an area may also be this station, named by its own address.
    plane.set_area("me", destination_around(AreaCentre::Station(address(ROUTER_MAC))), None).expect("set");
    assert_eq!(plane.centre_of_area("me"), Some(Ok(SimulatedStation::d().position())));
    plane.iut.assert_nothing_sent();
    assert_eq!(plane.areas.poll_timeout(), None);
}

#[test]
fn area_around_station_has_no_position_before_the_first_one() {
    let mut plane = AreasAndRouter {
        iut: RouterUnderTest::without_position(Mib::default()),
        areas: GeoDestinations::default(),
    };
    plane.set_area("here", destination_around(AreaCentre::Here), None).expect("set");
    plane.set_area("far", destination_around(AreaCentre::Station(far_station())), None).expect("set");
    assert_eq!(plane.centre_of_area("here"), Some(Err(UnknownCentre::Own)));
    assert_eq!(plane.centre_of_area("far"), Some(Err(UnknownCentre::Of(far_station()))));
}

#[test]
fn location_service_follows_station_in_centre_of_area() {
    let mut plane = AreasAndRouter::new();
    plane.set_area("convoy", destination_around(AreaCentre::Station(far_station())), None).expect("set");
    assert_eq!(
        (plane.count_location_requests(), plane.centre_of_area("convoy")),
        (1, Some(Err(UnknownCentre::Of(far_station()))))
    );
    // The reply of the Location Service gives the position of the station.
    let a = SimulatedStation::a();
    let reply = a.ls_reply_frame(&plane.iut.position_vector());
    plane.iut.receive_unicast(&SimulatedStation::b(), &reply).expect("received");
    assert_eq!(plane.centre_of_area("convoy"), Some(Ok(a.position())));
    // The station moves; any of its packets gives the new position.
    let moved = a.next().with_later_timestamp(1).moved_to(SimulatedStation::c().position());
    plane.iut.receive_broadcast(&SimulatedStation::b(), &moved.tsb_frame(b"x")).expect("received");
    assert_eq!(plane.centre_of_area("convoy"), Some(Ok(moved.position())));
    // While packets of the station arrive, carnet sends no search request. It sends the next one before the
    // station's entry expires.
    plane.count_location_requests();
    plane.advance_time(Duration::from_secs(9));
    assert_eq!(plane.count_location_requests(), 0);
    plane.advance_time(Duration::from_secs(2));
    assert_eq!(
        (plane.count_location_requests(), plane.centre_of_area("convoy")),
        (2, Some(Ok(moved.position())))
    );
    let reply = moved.next().with_later_timestamp(11).ls_reply_frame(&plane.iut.position_vector());
    plane.iut.receive_unicast(&SimulatedStation::b(), &reply).expect("received");
    plane.advance_time(Duration::from_secs(9));
    assert_eq!(plane.count_location_requests(), 0);
}

#[test]
fn searches_for_missing_station_in_centre_become_rarer() {
    let mut plane = AreasAndRouter::new();
    plane.set_area("lost", destination_around(AreaCentre::Station(far_station())), None).expect("set");
    let hour = |plane: &mut AreasAndRouter| {
        plane.advance_time(Duration::from_secs(3600));
        let failed =
            plane.iut.events.iter().filter(|event| **event == Event::LocationUnknown(far_station())).count();
        plane.iut.events.clear();
        failed
    };
    let (first, second) = (hour(&mut plane), hour(&mut plane));
    assert!((10..=20).contains(&first) && (10..=13).contains(&second), "{first} {second}");
    // After the area is removed, carnet sends no more requests.
    assert!(plane.areas.remove("lost") && !plane.areas.remove("lost"));
    assert!(hour(&mut plane) <= 1);
    assert_eq!((hour(&mut plane), plane.areas.poll_timeout()), (0, None));
}

#[test]
fn areas_are_replaced_and_removed_and_expire() {
    let mut plane = AreasAndRouter::new();
    plane.set_area("short", destination_around(AreaCentre::Here), Some(5)).expect("set");
    plane.set_area("long", destination_around(AreaCentre::Here), Some(60)).expect("set");
    assert_eq!(plane.areas.poll_timeout(), Some(plane.iut.now + Duration::from_secs(5)));
    plane.advance_time(Duration::from_millis(4999));
    assert!(plane.centre_of_area("short").is_some());
    plane.advance_time(Duration::from_millis(1));
    assert_eq!((plane.centre_of_area("short"), plane.centre_of_area("long").is_some()), (None, true));
    // An area replaces the area of the same name, and its lifetime.
    plane
        .set_area("long", destination_around(AreaCentre::Place(SimulatedStation::c().position())), None)
        .expect("set");
    assert_eq!(plane.centre_of_area("long"), Some(Ok(SimulatedStation::c().position())));
    plane.advance_time(Duration::from_secs(600));
    assert!(plane.centre_of_area("long").is_some());
    let ends: Vec<Option<Time>> = plane.areas.iter().map(|(.., expires)| expires).collect();
    assert_eq!(ends, [None]);
    plane.areas.clear();
    assert_eq!(plane.areas.iter().count(), 0);
}

#[test]
fn invalid_or_surplus_area_is_refused() {
    let mut plane = AreasAndRouter::new();
    let here = destination_around(AreaCentre::Here);
    let pole = Position::new(900_000_001, 0);
    assert_eq!(
        plane.set_area("x", AreaDestination { distance_a: 0, ..here }, None),
        Err(AreaRefusalReason::NoArea)
    );
    assert_eq!(
        plane.set_area("x", AreaDestination { shape: GeoAreaShape::Ellipse, ..here }, None),
        Err(AreaRefusalReason::NoArea)
    );
    assert_eq!(
        plane.set_area("x", destination_around(AreaCentre::Place(pole)), None),
        Err(AreaRefusalReason::NoArea)
    );
    let large = plane.set_area("x", AreaDestination { distance_a: 2000, ..here }, None);
    assert!(matches!(large, Err(AreaRefusalReason::TooLarge { .. })), "{large:?}");
    let everybody = GnAddress(0xffff_ffff_ffff);
    assert_eq!(
        plane.set_area("x", destination_around(AreaCentre::Station(everybody)), None),
        Err(AreaRefusalReason::NoStation(everybody))
    );

    let group = Some(parse_address("ff1e::42"));
    plane.set_area("a", AreaDestination { group, ..here }, None).expect("set");
    let taken = AreaRefusalReason::GroupTaken { by: "a".into() };
    assert_eq!(plane.set_area("b", AreaDestination { group, ..here }, None), Err(taken));
    plane.set_area("a", AreaDestination { group, ..here }, None).expect("it may be replaced");
    for number in 1..MAX_AREAS {
        plane.set_area(&number.to_string(), here, None).expect("set");
    }
    assert_eq!(plane.set_area("b", here, None), Err(AreaRefusalReason::TooMany));
    plane.set_area("a", here, None).expect("it may be replaced");
    assert_eq!(plane.areas.groups(plane.iut.now, &plane.iut.router).count(), 0);
}
