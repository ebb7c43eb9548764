//! Areas that the operator sets while the station runs.

use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::geo_destinations::{Around, Destination, GeoDestinations, MAX_AREAS, NoPlace, Refusal};
use carnet_geonet::geodesy::Position;
use carnet_geonet::{Event, Mib};
use carnet_wire::geonet::{GnAddress, HeaderType, Shape};

use crate::craft::*;
use crate::host::ip;

fn around(around: Around) -> Destination {
    Destination { around, shape: Shape::Circle, distance_a: 300, distance_b: 0, angle: 0, group: None }
}

fn far() -> GnAddress {
    Station::a().pv.address
}

/// The areas, and one router.
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

    fn set(&mut self, name: &str, destination: Destination, seconds: Option<u64>) -> Result<(), Refusal> {
        let lifetime = seconds.map(Duration::from_secs);
        self.areas.set(self.iut.now, name, destination, lifetime, &self.iut.router)?;
        self.look();
        Ok(())
    }

    fn look(&mut self) {
        self.areas.handle_timeout(self.iut.now, &mut self.iut.router);
        self.iut.drain();
    }

    fn centre(&self, name: &str) -> Option<Result<Position, NoPlace>> {
        let area = self.areas.area(self.iut.now, name, &self.iut.router)?;
        Some(area.map(|area| Position::new(area.latitude, area.longitude)))
    }

    /// Advances the time and serves the timers of router and areas.
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
fn an_area_around_a_place_stays_and_one_around_this_station_moves_with_it() {
    let mut plane = Plane::new();
    plane.set("there", around(Around::Place(Station::c().position())), None).expect("set");
    plane.set("here", around(Around::Here), None).expect("set");
    assert_eq!(plane.centre("there"), Some(Ok(Station::c().position())));
    assert_eq!(plane.centre("here"), Some(Ok(HOME)));
    assert_eq!(plane.centre("nowhere"), None);
    plane.iut.locate(Station::d().position(), 1_001_000);
    assert_eq!(plane.centre("there"), Some(Ok(Station::c().position())));
    assert_eq!(plane.centre("here"), Some(Ok(Station::d().position())));
    // The station's own address is a valid centre, too.
    plane.set("me", around(Around::Station(address(IUT_MAC))), None).expect("set");
    assert_eq!(plane.centre("me"), Some(Ok(Station::d().position())));
    plane.iut.nothing_sent();
    assert_eq!(plane.areas.poll_timeout(), None);
}

#[test]
fn before_the_first_position_this_station_is_nowhere() {
    let mut plane = Plane { iut: Iut::without_position(Mib::default()), areas: GeoDestinations::default() };
    plane.set("here", around(Around::Here), None).expect("set");
    plane.set("far", around(Around::Station(far())), None).expect("set");
    assert_eq!(plane.centre("here"), Some(Err(NoPlace::Own)));
    assert_eq!(plane.centre("far"), Some(Err(NoPlace::Of(far()))));
}

#[test]
fn a_station_that_an_area_is_around_is_asked_for_and_followed() {
    let mut plane = Plane::new();
    plane.set("convoy", around(Around::Station(far())), None).expect("set");
    assert_eq!((plane.questions(), plane.centre("convoy")), (1, Some(Err(NoPlace::Of(far())))));
    // The reply gives the position of the station.
    let a = Station::a();
    let reply = a.ls_reply(&plane.iut.pv());
    plane.iut.get(&Station::b(), &reply).expect("received");
    assert_eq!(plane.centre("convoy"), Some(Ok(a.position())));
    // The station moves; any of its packets gives the new position.
    let moved = a.next().later(1).moved(Station::c().position());
    plane.iut.hear(&Station::b(), &moved.tsb(b"x")).expect("received");
    assert_eq!(plane.centre("convoy"), Some(Ok(moved.position())));
    // No request leaves while packets of the station arrive; the next request leaves before its entry
    // expires.
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
fn a_station_that_is_not_found_is_asked_for_less_and_less_often() {
    let mut plane = Plane::new();
    plane.set("lost", around(Around::Station(far())), None).expect("set");
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
fn areas_end_are_replaced_and_removed() {
    let mut plane = Plane::new();
    plane.set("short", around(Around::Here), Some(5)).expect("set");
    plane.set("long", around(Around::Here), Some(60)).expect("set");
    assert_eq!(plane.areas.poll_timeout(), Some(plane.iut.now + Duration::from_secs(5)));
    plane.wait(Duration::from_millis(4999));
    assert!(plane.centre("short").is_some());
    plane.wait(Duration::from_millis(1));
    assert_eq!((plane.centre("short"), plane.centre("long").is_some()), (None, true));
    // A new area of the same name replaces the old one and its end.
    plane.set("long", around(Around::Place(Station::c().position())), None).expect("set");
    assert_eq!(plane.centre("long"), Some(Ok(Station::c().position())));
    plane.wait(Duration::from_secs(600));
    assert!(plane.centre("long").is_some());
    let ends: Vec<Option<Time>> = plane.areas.iter().map(|(.., expires)| expires).collect();
    assert_eq!(ends, [None]);
    plane.areas.clear();
    assert_eq!(plane.areas.iter().count(), 0);
}

#[test]
fn what_is_no_area_or_one_too_many_is_refused() {
    let mut plane = Plane::new();
    let here = around(Around::Here);
    let pole = Position::new(900_000_001, 0);
    assert_eq!(plane.set("x", Destination { distance_a: 0, ..here }, None), Err(Refusal::NoArea));
    assert_eq!(plane.set("x", Destination { shape: Shape::Ellipse, ..here }, None), Err(Refusal::NoArea));
    assert_eq!(plane.set("x", around(Around::Place(pole)), None), Err(Refusal::NoArea));
    let large = plane.set("x", Destination { distance_a: 2000, ..here }, None);
    assert!(matches!(large, Err(Refusal::TooLarge { .. })), "{large:?}");
    let everybody = GnAddress(0xffff_ffff_ffff);
    assert_eq!(plane.set("x", around(Around::Station(everybody)), None), Err(Refusal::NoStation(everybody)));

    let group = Some(ip("ff1e::42"));
    plane.set("a", Destination { group, ..here }, None).expect("set");
    let taken = Refusal::GroupTaken { by: "a".into() };
    assert_eq!(plane.set("b", Destination { group, ..here }, None), Err(taken));
    plane.set("a", Destination { group, ..here }, None).expect("it may be replaced");
    for number in 1..MAX_AREAS {
        plane.set(&number.to_string(), here, None).expect("set");
    }
    assert_eq!(plane.set("b", here, None), Err(Refusal::TooMany));
    plane.set("a", here, None).expect("it may be replaced");
    assert_eq!(plane.areas.groups(plane.iut.now, &plane.iut.router).count(), 0);
}
