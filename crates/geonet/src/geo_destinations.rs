//! Areas that the operator sets while the station runs: the management plane of geographic destinations. EN
//! 302 636-6-1 leaves this plane out, and CarGeo6 leaves it for later.
//!
//! An area has a name and, for IPv6, a multicast group. Its centre is a place, this station or another
//! station. An area around a station moves with it, because carnet computes the centre for each packet. An
//! area ends with its lifetime.
//!
//! This station *follows* a station in the centre of an area. If no packet of this station arrives for half
//! the lifetime of a location table entry (`itsGnLifetimeLocTE`), the Location Service searches for it. This
//! station repeats a failed search at growing intervals. While the station's position is unknown, the area
//! has no position, and the router refuses packets to it.
//!
//! Left out: areas that move ahead of a station by its speed and heading, access control, and storage over a
//! restart. Every user of the API may set areas.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::geonet::{GeoArea, GeoAreaShape, GnAddress};

use crate::geodesy::{self, Position};
use crate::location_table::{is_station_mid, mid_key};
use crate::router::Router;

/// Largest number of areas.
pub const MAX_AREAS: usize = 64;
/// Longest interval between two searches for a station that the Location Service does not find.
const MAX_SEARCH_INTERVAL: Duration = Duration::from_secs(300);

/// Centre of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AreaCentre {
    /// A fixed position.
    Place(Position),
    /// The position of this station.
    Here,
    /// Position of the station with this address; only the MID of the address must be right.
    Station(GnAddress),
}

/// An area of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AreaDestination {
    /// Centre of the area.
    pub centre: AreaCentre,
    /// Shape of the area.
    pub shape: GeoAreaShape,
    /// Radius, or half the length along the angle; metres.
    pub distance_a: u16,
    /// Half the length across the angle, metres; 0 for a circle.
    pub distance_b: u16,
    /// Azimuth of distance a, degrees clockwise from North.
    pub angle: u16,
    /// IPv6 multicast group of all stations inside the area.
    pub group: Option<Ipv6Addr>,
}

impl AreaDestination {
    fn area_around(&self, centre: Position) -> GeoArea {
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

/// Reason for which carnet refused to set an area.
#[derive(Debug, Clone, PartialEq)]
pub enum AreaRefusalReason {
    /// [`MAX_AREAS`] areas exist.
    TooMany,
    /// The area has no inside, or the latitude or longitude of its centre is invalid.
    NoArea,
    /// The area exceeds `itsGnMaxGeoAreaSize`.
    TooLarge {
        /// Size of the area, square metres.
        size: f64,
        /// Largest allowed size, square metres.
        largest: f64,
    },
    /// Another area has the multicast group.
    GroupTaken {
        /// Name of the area that already has the multicast group.
        by: String,
    },
    /// The centre is a station with this address, which no station can have.
    NoStation(GnAddress),
}

impl fmt::Display for AreaRefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AreaRefusalReason::TooMany => write!(
                f,
                "this station already has {MAX_AREAS} areas, the largest number: remove an area first"
            ),
            AreaRefusalReason::NoArea => {
                write!(f, "the area is invalid: expected a latitude, a longitude and distances above 0")
            }
            AreaRefusalReason::TooLarge { size, largest } => write!(
                f,
                "the area has {:.2} square kilometres, expected at most {}",
                size / 1e6,
                largest / 1e6
            ),
            AreaRefusalReason::GroupTaken { by } => {
                write!(f, "another area, {by:?}, already has this multicast group")
            }
            AreaRefusalReason::NoStation(address) => write!(f, "{address} is not a station's GN address"),
        }
    }
}

/// Reason for which an area has no position: the position of its centre is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownCentre {
    /// The position of this station is unknown.
    Own,
    /// The position of the station with this address is unknown; the Location Service searches for it.
    Of(GnAddress),
}

impl fmt::Display for UnknownCentre {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnknownCentre::Own => write!(f, "this station has no position yet"),
            UnknownCentre::Of(address) => write!(f, "the position of the station {address} is not known yet"),
        }
    }
}

#[derive(Debug)]
struct AreaEntry {
    destination: AreaDestination,
    expires_at: Option<Time>,
    /// Time of the last search for the station in the centre.
    last_search_at: Option<Time>,
    /// Time from the last search to the next one.
    search_interval: Duration,
}

/// The areas that the operator has set.
#[derive(Debug, Default)]
pub struct GeoDestinations {
    entries: BTreeMap<String, AreaEntry>,
    /// Time at which the next area ends or the next search for a station is due.
    next_check_at: Option<Time>,
}

impl GeoDestinations {
    /// Sets an area for `lifetime`, or without end if `None`. Replaces an area of the same name.
    ///
    /// # Errors
    /// The reason of the refusal; existing areas stay unchanged.
    pub fn set_area(
        &mut self,
        now: Time,
        name: &str,
        destination: AreaDestination,
        lifetime: Option<Duration>,
        router: &Router,
    ) -> Result<(), AreaRefusalReason> {
        self.check_area(name, &destination, router)?;
        let expires = lifetime.map(|lifetime| now + lifetime);
        let entry = AreaEntry {
            destination,
            expires_at: expires,
            last_search_at: None,
            search_interval: time_before_search(router),
        };
        self.entries.insert(name.to_owned(), entry);
        // Handle the timers at once, so that carnet checks the position of the centre now.
        self.next_check_at = Some(now);
        Ok(())
    }

    fn check_area(
        &self,
        name: &str,
        destination: &AreaDestination,
        router: &Router,
    ) -> Result<(), AreaRefusalReason> {
        if !self.entries.contains_key(name) && self.entries.len() >= MAX_AREAS {
            return Err(AreaRefusalReason::TooMany);
        }
        let place = match destination.centre {
            AreaCentre::Place(place) => place,
            AreaCentre::Station(address) if !is_station_mid(address) => {
                return Err(AreaRefusalReason::NoStation(address));
            }
            AreaCentre::Here | AreaCentre::Station(_) => Position::default(),
        };
        let area = destination.area_around(place);
        if !place.is_on_earth() || !geodesy::is_inside(&area, place) {
            return Err(AreaRefusalReason::NoArea);
        }
        let (size, largest) = (geodesy::area_size(&area), router.mib().max_area_size);
        if size > largest {
            return Err(AreaRefusalReason::TooLarge { size, largest });
        }
        let others = self.entries.iter().filter(|(other, _)| *other != name);
        let mut same = others
            .filter(|(_, entry)| destination.group.is_some() && entry.destination.group == destination.group);
        match same.next() {
            Some((other, _)) => Err(AreaRefusalReason::GroupTaken { by: other.clone() }),
            None => Ok(()),
        }
    }

    /// Removes an area; returns false if no area has this name.
    pub fn remove(&mut self, name: &str) -> bool {
        self.entries.remove(name).is_some()
    }

    /// Removes all areas.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.next_check_at = None;
    }

    /// Returns the areas by name, each with the time of its end.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &AreaDestination, Option<Time>)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), &entry.destination, entry.expires_at))
    }

    /// Returns the present position of an area; `None` if no area has this name.
    pub fn area(&self, now: Time, name: &str, router: &Router) -> Option<Result<GeoArea, UnknownCentre>> {
        self.entries.get(name).map(|entry| resolve_area(now, &entry.destination, router))
    }

    /// Returns the multicast groups of the areas, with the present position of each area.
    pub fn groups(
        &self,
        now: Time,
        router: &Router,
    ) -> impl Iterator<Item = (Ipv6Addr, Result<GeoArea, UnknownCentre>)> {
        let destinations = self.entries.values().map(|entry| &entry.destination);
        destinations.filter_map(move |it| Some((it.group?, resolve_area(now, it, router))))
    }

    /// Returns the time at which [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.next_check_at
    }

    /// Removes expired areas. Searches for each station in the centre of an area from which the router has
    /// received no packet for too long.
    pub fn handle_timeout(&mut self, now: Time, router: &mut Router) {
        if self.next_check_at.is_none_or(|due| due > now) {
            return;
        }
        self.entries.retain(|_, entry| entry.expires_at.is_none_or(|expires| expires > now));
        let follow = time_before_search(router);
        let mut due: Option<Time> = None;
        let mut at = |time: Time| due = Some(due.map_or(time, |due| due.min(time)));
        for entry in self.entries.values_mut() {
            entry.expires_at.into_iter().for_each(&mut at);
            let AreaCentre::Station(address) = entry.destination.centre else { continue };
            if mid_key(address) == mid_key(router.address()) {
                continue;
            }
            let table = router.location_table();
            let heard = table
                .find_slot_of_station(now, mid_key(address))
                .map(|slot| table.entry(slot).last_received_at());
            if let Some(heard) = heard.filter(|heard| *heard + follow > now) {
                (entry.last_search_at, entry.search_interval) = (None, follow);
                at(heard + follow);
                continue;
            }
            if entry.last_search_at.is_none_or(|asked| asked + entry.search_interval <= now) {
                // Without a position of its own, the station cannot send the search request; carnet tries
                // again later.
                let _counted = router.locate_station(now, address);
                if entry.last_search_at.is_some() {
                    entry.search_interval = (entry.search_interval * 2).min(MAX_SEARCH_INTERVAL);
                }
                entry.last_search_at = Some(now);
            }
            at(entry.last_search_at.unwrap_or(now) + entry.search_interval);
        }
        self.next_check_at = due;
    }
}

/// Returns how long carnet waits for a packet of a station before it searches for the station.
fn time_before_search(router: &Router) -> Duration {
    (router.mib().lifetime_location_entry / 2).max(Duration::from_secs(1))
}

fn resolve_area(now: Time, destination: &AreaDestination, router: &Router) -> Result<GeoArea, UnknownCentre> {
    let own = || router.position_vector().map(|own| Position::new(own.latitude, own.longitude));
    let centre = match destination.centre {
        AreaCentre::Place(place) => place,
        AreaCentre::Here => own().ok_or(UnknownCentre::Own)?,
        AreaCentre::Station(address) if mid_key(address) == mid_key(router.address()) => {
            own().ok_or(UnknownCentre::Own)?
        }
        AreaCentre::Station(address) => {
            let table = router.location_table();
            let slot = table.find_slot_of_station(now, mid_key(address)).ok_or(UnknownCentre::Of(address))?;
            table.entry(slot).position()
        }
    };
    Ok(destination.area_around(centre))
}
