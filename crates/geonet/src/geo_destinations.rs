//! Areas that the operator sets while the station runs: the management plane of geographic destinations (EN
//! 302 636-6-1 leaves it out, CarGeo6 for later).
//!
//! An area has a name and, for IPv6, a multicast group. Its centre is a place, this station or another
//! station. An area around a station moves with it, because the module computes the centre for each packet.
//! An area ends with its lifetime.
//!
//! The module *follows* a station in the centre of an area. If no packet of it arrives for half the lifetime
//! of a location table entry (`itsGnLifetimeLocTE`), the Location Service searches it. It repeats a failed
//! search at growing intervals. While the station's position is unknown, the area has no position, and the
//! router refuses packets to it.
//!
//! Left out: areas that move ahead of a station by its speed and heading; access control; storage over a
//! restart. Every user of the API may set areas.

use std::fmt;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{SmallMap, Time};
use carnet_wire::geonet::{GeoArea, GnAddress, Shape};

use crate::geodesy::{self, Position};
use crate::location_table::{mid_key, names_station};
use crate::router::Router;

/// Areas at a time.
pub const MAX_AREAS: usize = 64;
/// A station that is not found is asked for no less often than this.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Centre of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Around {
    /// A place.
    Place(Position),
    /// This station.
    Here,
    /// The station with this address; only the MID has to be right.
    Station(GnAddress),
}

/// An area that is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// Where its centre is.
    pub around: Around,
    /// Its shape.
    pub shape: Shape,
    /// Metres: radius, or half the length along the angle.
    pub distance_a: u16,
    /// Metres: half the length across the angle; 0 for a circle.
    pub distance_b: u16,
    /// Degrees clockwise from North.
    pub angle: u16,
    /// The IPv6 multicast group of everybody inside.
    pub group: Option<Ipv6Addr>,
}

impl Destination {
    fn at(&self, centre: Position) -> GeoArea {
        GeoArea {
            shape: self.shape,
            latitude: centre.latitude,
            longitude: centre.longitude,
            distance_a: self.distance_a,
            distance_b: self.distance_b,
            angle: self.angle,
        }
    }
}

/// Why an area was not set.
#[derive(Debug, Clone, PartialEq)]
pub enum Refusal {
    /// There are [`MAX_AREAS`].
    TooMany,
    /// It has no inside, or its centre is not on earth.
    NoArea,
    /// Larger than `itsGnMaxGeoAreaSize`, square metres.
    TooLarge {
        /// Its size.
        size: f64,
        /// The largest that may be.
        largest: f64,
    },
    /// Another area has the group.
    GroupTaken {
        /// Name of the other area.
        by: String,
    },
    /// No station has such an address.
    NoStation(GnAddress),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::TooMany => write!(f, "there are {MAX_AREAS} areas already, and there may be no more"),
            Refusal::NoArea => {
                write!(f, "there is no such area, expected a place on earth and distances above 0")
            }
            Refusal::TooLarge { size, largest } => write!(
                f,
                "the area has {:.2} square kilometres, expected {} at most",
                size / 1e6,
                largest / 1e6
            ),
            Refusal::GroupTaken { by } => write!(f, "the group is that of the area {by:?}"),
            Refusal::NoStation(address) => write!(f, "{address} is the address of no station"),
        }
    }
}

/// The centre whose position is unknown, so that the area has no position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlace {
    /// This station's.
    Own,
    /// That of the station that it is around. It is being asked for.
    Of(GnAddress),
}

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoPlace::Own => write!(f, "this station does not know yet where it is"),
            NoPlace::Of(address) => write!(f, "it is not known yet where the station {address} is"),
        }
    }
}

#[derive(Debug)]
struct Entry {
    destination: Destination,
    expires: Option<Time>,
    /// When the station that it is around was asked for last, and how long the next question waits.
    asked: Option<Time>,
    wait: Duration,
}

/// The areas.
#[derive(Debug, Default)]
pub struct GeoDestinations {
    entries: SmallMap<String, Entry>,
    /// When something runs out or a station has to be looked after.
    due: Option<Time>,
}

impl GeoDestinations {
    /// Sets an area for so long, or for good; one of the same name is replaced.
    ///
    /// # Errors
    /// Why it was not set; what there was before stays.
    pub fn set(
        &mut self,
        now: Time,
        name: &str,
        destination: Destination,
        lifetime: Option<Duration>,
        router: &Router,
    ) -> Result<(), Refusal> {
        self.check(name, &destination, router)?;
        let expires = lifetime.map(|lifetime| now + lifetime);
        let entry = Entry { destination, expires, asked: None, wait: follow(router) };
        self.entries.insert(name.to_owned(), entry);
        // Its station is looked after at once.
        self.due = Some(now);
        Ok(())
    }

    fn check(&self, name: &str, destination: &Destination, router: &Router) -> Result<(), Refusal> {
        if !self.entries.contains_key(name) && self.entries.len() >= MAX_AREAS {
            return Err(Refusal::TooMany);
        }
        let place = match destination.around {
            Around::Place(place) => place,
            Around::Station(address) if !names_station(address) => return Err(Refusal::NoStation(address)),
            Around::Here | Around::Station(_) => Position::default(),
        };
        let area = destination.at(place);
        if !place.is_on_earth() || !geodesy::is_inside(&area, place) {
            return Err(Refusal::NoArea);
        }
        let (size, largest) = (geodesy::area_size(&area), router.mib().max_area_size);
        if size > largest {
            return Err(Refusal::TooLarge { size, largest });
        }
        let others = self.entries.iter().filter(|(other, _)| *other != name);
        let mut same = others
            .filter(|(_, entry)| destination.group.is_some() && entry.destination.group == destination.group);
        match same.next() {
            Some((other, _)) => Err(Refusal::GroupTaken { by: other.clone() }),
            None => Ok(()),
        }
    }

    /// Removes an area; returns false if no area has this name.
    pub fn remove(&mut self, name: &str) -> bool {
        self.entries.remove(name).is_some()
    }

    /// Removes all of them.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.due = None;
    }

    /// The areas, by name, and when each ends.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Destination, Option<Time>)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), &entry.destination, entry.expires))
    }

    /// Returns the present position of an area; `None` if no area has this name.
    pub fn area(&self, now: Time, name: &str, router: &Router) -> Option<Result<GeoArea, NoPlace>> {
        self.entries.get(name).map(|entry| place(now, &entry.destination, router))
    }

    /// The groups, and where their areas are now.
    pub fn groups(
        &self,
        now: Time,
        router: &Router,
    ) -> impl Iterator<Item = (Ipv6Addr, Result<GeoArea, NoPlace>)> {
        let destinations = self.entries.values().map(|entry| &entry.destination);
        destinations.filter_map(move |it| Some((it.group?, place(now, it, router))))
    }

    /// When [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.due
    }

    /// Ends what has run out, and asks for stations that nothing was heard of for long.
    pub fn handle_timeout(&mut self, now: Time, router: &mut Router) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.entries.retain(|_, entry| entry.expires.is_none_or(|expires| expires > now));
        let follow = follow(router);
        let mut due: Option<Time> = None;
        let mut at = |time: Time| due = Some(due.map_or(time, |due| due.min(time)));
        for entry in self.entries.values_mut() {
            entry.expires.into_iter().for_each(&mut at);
            let Around::Station(address) = entry.destination.around else { continue };
            if mid_key(address) == mid_key(router.address()) {
                continue;
            }
            let table = router.location_table();
            let heard = table.find(now, mid_key(address)).map(|slot| table.entry(slot).heard());
            if let Some(heard) = heard.filter(|heard| *heard + follow > now) {
                (entry.asked, entry.wait) = (None, follow);
                at(heard + follow);
                continue;
            }
            if entry.asked.is_none_or(|asked| asked + entry.wait <= now) {
                // Without a position of its own the station cannot ask; it tries again.
                let _counted = router.locate(now, address);
                if entry.asked.is_some() {
                    entry.wait = (entry.wait * 2).min(LONGEST_WAIT);
                }
                entry.asked = Some(now);
            }
            at(entry.asked.unwrap_or(now) + entry.wait);
        }
        self.due = due;
    }
}

/// After how long a silence a station is asked for.
fn follow(router: &Router) -> Duration {
    (router.mib().lifetime_location_entry / 2).max(Duration::from_secs(1))
}

fn place(now: Time, destination: &Destination, router: &Router) -> Result<GeoArea, NoPlace> {
    let own = || router.position_vector().map(|own| Position::new(own.latitude, own.longitude));
    let centre = match destination.around {
        Around::Place(place) => place,
        Around::Here => own().ok_or(NoPlace::Own)?,
        Around::Station(address) if mid_key(address) == mid_key(router.address()) => {
            own().ok_or(NoPlace::Own)?
        }
        Around::Station(address) => {
            let table = router.location_table();
            let slot = table.find(now, mid_key(address)).ok_or(NoPlace::Of(address))?;
            table.entry(slot).position()
        }
    };
    Ok(destination.at(centre))
}
