//! Areas that the operator sets while the station runs.

use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::geo_destinations::{
    AreaCentre, AreaRefusal, Destination, GeoDestinations, MAX_AREAS, UnknownCentre,
};
use carnet_geonet::geodesy::Position;
use carnet_geonet::{Event, Mib};
use carnet_wire::geonet::{GnAddress, HeaderType, Shape};

use crate::craft::*;
use crate::host::ip;

fn around(around: AreaCentre) -> Destination {
    Destination {
        centre: around,
        shape: Shape::Circle,
        distance_a: 300,
        distance_b: 0,
        angle: 0,
        group: None,
    }
}

fn far() -> GnAddress {
    Station::a().pv.address
}

/// The areas that the operator sets, and the router that packets to these areas use.
struct Plane {
    iut: Iut,
    areas: GeoDestinations,
}

impl Plane {
    fn new() -> Plane {
        let mut iut = Iut::quiet(Mib::default());
        iut.knows(&[Station::b()]);
        Plane { iut, areas: GeoDestinations::default() }
    }

    fn set(&mut self, name: &str, destination: Destination, seconds: Option<u64>) -> Result<(), AreaRefusal> {
        let lifetime = seconds.map(Duration::from_secs);
        self.areas.set(self.iut.now, name, destination, lifetime, &self.iut.router)?;
        self.look();
        Ok(())
    }

    fn look(&mut self) {
        self.areas.handle_timeout(self.iut.now, &mut self.iut.router);
        self.iut.drain();
    }

    fn centre(&self, name: &str) -> Option<Result<Position, UnknownCentre>> {
        let area = self.areas.area(self.iut.now, name, &self.iut.router)?;
        Some(area.map(|area| Position::new(area.latitude, area.longitude)))
    }

    /// Advances the time by `span` and handles the timers of the router and of the areas.
    fn wait(&mut self, span: Duration) {
        let end = self.iut.now + span;
        while let Some(due) = self.areas.poll_timeout().filter(|due| *due <= end) {
            self.iut.wait(due.saturating_since(self.iut.now));
            self.look();
            assert_ne!(self.areas.poll_timeout(), Some(due), "it would be looked after for ever");
        }
        self.iut.wait(end.saturating_since(self.iut.now));
    }

    /// Returns the number of Location Service requests for the far station.
    fn questions(&mut self) -> usize {
        let sent = std::mem::take(&mut self.iut.sent);
        sent.iter()
            .filter(|it| HeaderType::from_octet(it.frame[5]) == HeaderType::LocationServiceRequest)
            .count()
    }
}

#[test]
fn area_around_a_place_stays_and_area_around_station_moves() {
    let mut plane = Plane::new();
    plane.set("there", around(AreaCentre::Place(Station::c().position())), None).expect("set");
    plane.set("here", around(AreaCentre::Here), None).expect("set");
    assert_eq!(plane.centre("there"), Some(Ok(Station::c().position())));
    assert_eq!(plane.centre("here"), Some(Ok(HOME)));
    assert_eq!(plane.centre("nowhere"), None);
    plane.iut.locate(Station::d().position(), 1_001_000);
    assert_eq!(plane.centre("there"), Some(Ok(Station::c().position())));
    assert_eq!(plane.centre("here"), Some(Ok(Station::d().position())));
    // The station's own address is a valid centre, too.
    plane.set("me", around(AreaCentre::Station(address(IUT_MAC))), None).expect("set");
    assert_eq!(plane.centre("me"), Some(Ok(Station::d().position())));
    plane.iut.nothing_sent();
    assert_eq!(plane.areas.poll_timeout(), None);
}

#[test]
fn area_around_station_has_no_position_before_the_first_one() {
    let mut plane = Plane { iut: Iut::without_position(Mib::default()), areas: GeoDestinations::default() };
    plane.set("here", around(AreaCentre::Here), None).expect("set");
    plane.set("far", around(AreaCentre::Station(far())), None).expect("set");
    assert_eq!(plane.centre("here"), Some(Err(UnknownCentre::Own)));
    assert_eq!(plane.centre("far"), Some(Err(UnknownCentre::Of(far()))));
}

#[test]
fn location_service_follows_station_in_centre_of_area() {
    let mut plane = Plane::new();
    plane.set("convoy", around(AreaCentre::Station(far())), None).expect("set");
    assert_eq!((plane.questions(), plane.centre("convoy")), (1, Some(Err(UnknownCentre::Of(far())))));
    // The reply gives the position of the station.
    let a = Station::a();
    let reply = a.ls_reply(&plane.iut.pv());
    plane.iut.get(&Station::b(), &reply).expect("received");
    assert_eq!(plane.centre("convoy"), Some(Ok(a.position())));
    // The station moves; any of its packets gives the new position.
    let moved = a.next().later(1).moved(Station::c().position());
    plane.iut.hear(&Station::b(), &moved.tsb(b"x")).expect("received");
    assert_eq!(plane.centre("convoy"), Some(Ok(moved.position())));
    // While packets of the station arrive, the module sends no search. It sends the next search before the
    // station's entry expires.
    plane.questions();
    plane.wait(Duration::from_secs(9));
    assert_eq!(plane.questions(), 0);
    plane.wait(Duration::from_secs(2));
    assert_eq!((plane.questions(), plane.centre("convoy")), (2, Some(Ok(moved.position()))));
    let reply = moved.next().later(11).ls_reply(&plane.iut.pv());
    plane.iut.get(&Station::b(), &reply).expect("received");
    plane.wait(Duration::from_secs(9));
    assert_eq!(plane.questions(), 0);
}

#[test]
fn searches_for_missing_station_in_centre_become_rarer() {
    let mut plane = Plane::new();
    plane.set("lost", around(AreaCentre::Station(far())), None).expect("set");
    let hour = |plane: &mut Plane| {
        plane.wait(Duration::from_secs(3600));
        let failed = plane.iut.events.iter().filter(|event| **event == Event::LocationUnknown(far())).count();
        plane.iut.events.clear();
        failed
    };
    let (first, second) = (hour(&mut plane), hour(&mut plane));
    assert!((10..=20).contains(&first) && (10..=13).contains(&second), "{first} {second}");
    // After the area is removed, the module sends no more requests.
    assert!(plane.areas.remove("lost") && !plane.areas.remove("lost"));
    assert!(hour(&mut plane) <= 1);
    assert_eq!((hour(&mut plane), plane.areas.poll_timeout()), (0, None));
}

#[test]
fn areas_expire_are_replaced_and_removed() {
    let mut plane = Plane::new();
    plane.set("short", around(AreaCentre::Here), Some(5)).expect("set");
    plane.set("long", around(AreaCentre::Here), Some(60)).expect("set");
    assert_eq!(plane.areas.poll_timeout(), Some(plane.iut.now + Duration::from_secs(5)));
    plane.wait(Duration::from_millis(4999));
    assert!(plane.centre("short").is_some());
    plane.wait(Duration::from_millis(1));
    assert_eq!((plane.centre("short"), plane.centre("long").is_some()), (None, true));
    // An area replaces the area of the same name, and its lifetime.
    plane.set("long", around(AreaCentre::Place(Station::c().position())), None).expect("set");
    assert_eq!(plane.centre("long"), Some(Ok(Station::c().position())));
    plane.wait(Duration::from_secs(600));
    assert!(plane.centre("long").is_some());
    let ends: Vec<Option<Time>> = plane.areas.iter().map(|(.., expires)| expires).collect();
    assert_eq!(ends, [None]);
    plane.areas.clear();
    assert_eq!(plane.areas.iter().count(), 0);
}

#[test]
fn invalid_or_surplus_area_is_refused() {
    let mut plane = Plane::new();
    let here = around(AreaCentre::Here);
    let pole = Position::new(900_000_001, 0);
    assert_eq!(plane.set("x", Destination { distance_a: 0, ..here }, None), Err(AreaRefusal::NoArea));
    assert_eq!(plane.set("x", Destination { shape: Shape::Ellipse, ..here }, None), Err(AreaRefusal::NoArea));
    assert_eq!(plane.set("x", around(AreaCentre::Place(pole)), None), Err(AreaRefusal::NoArea));
    let large = plane.set("x", Destination { distance_a: 2000, ..here }, None);
    assert!(matches!(large, Err(AreaRefusal::TooLarge { .. })), "{large:?}");
    let everybody = GnAddress(0xffff_ffff_ffff);
    assert_eq!(
        plane.set("x", around(AreaCentre::Station(everybody)), None),
        Err(AreaRefusal::NoStation(everybody))
    );

    let group = Some(ip("ff1e::42"));
    plane.set("a", Destination { group, ..here }, None).expect("set");
    let taken = AreaRefusal::GroupTaken { by: "a".into() };
    assert_eq!(plane.set("b", Destination { group, ..here }, None), Err(taken));
    plane.set("a", Destination { group, ..here }, None).expect("it may be replaced");
    for number in 1..MAX_AREAS {
        plane.set(&number.to_string(), here, None).expect("set");
    }
    assert_eq!(plane.set("b", here, None), Err(AreaRefusal::TooMany));
    plane.set("a", here, None).expect("it may be replaced");
    assert_eq!(plane.areas.groups(plane.iut.now, &plane.iut.router).count(), 0);
}
