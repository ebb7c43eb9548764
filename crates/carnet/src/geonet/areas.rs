//! Named areas: areas of the config, areas that operators have set, and areas learnt from Router
//! Advertisements.

use std::time::Duration;

use carnet_api::address::GnAddress;
use carnet_api::model::{self, AreaOrigin, AreaRequest, AreaShape, GnAround, GnStation};
use carnet_base::Time;
use carnet_cits::geonetworking::GeoDestination;
use carnet_geonet::geo_destinations;
use carnet_geonet::geodesy::{self, Position as Place};
use carnet_station::Station;
use carnet_station::io::{self, Area, AreaOrder, Around, Command};
use carnet_wire::geonet::GeoArea;
use ipnet::Ipv6Net;

use super::{Geonet, degrees, station_address, tenths_of_microdegrees};
use crate::settings::geonet::{wire_area, wire_shape};

/// Largest number of area names in the answer to an unknown name.
const NAMED: usize = 10;

impl Geonet {
    /// Returns the present place of the area with this name.
    ///
    /// # Errors
    /// Returns an error if the area does not exist, or if its place is unknown.
    pub(super) fn named(&self, now: Time, name: &str, station: &Station) -> Result<Area, String> {
        if let Some(area) = self.config.areas.iter().find(|area| area.name == name) {
            return Ok(wire_area(area));
        }
        if let Some(set) = station.geo_destinations(now).find(|set| set.name == name) {
            return set.area.map(Area::from).map_err(|unknown| unknown.to_string());
        }
        let mut learnt = station.ipv6_adaptation().into_iter().flat_map(|ipv6| ipv6.learned_areas());
        let learnt = learnt.find(|learnt| learnt.interface == name);
        learnt.map(|learnt| learnt.area.into()).ok_or_else(|| {
            let known = self.areas(now, station);
            let names: Vec<&str> = known.iter().take(NAMED).map(|area| area.name.as_str()).collect();
            let more = if known.len() > NAMED { ", or another of `carnet show areas`" } else { "" };
            match names.as_slice() {
                [] => format!(
                    "expected the name of an area, found {name:?}: this station has no areas; set one by \
                     `carnet area`"
                ),
                names => format!("expected the name of an area ({}{more}), found {name:?}", names.join(", ")),
            }
        })
    }

    /// Converts the body of `POST /v1/areas` to a command of the station.
    ///
    /// # Errors
    /// Returns an error if the config has an area of this name, or if no station can have this address.
    pub fn area_order(&self, area: AreaRequest) -> Result<Command, String> {
        if self.config.areas.iter().any(|known| known.name == area.name) {
            return Err(format!(
                "the config defines the area {:?}, so only a change of the config can replace it",
                area.name
            ));
        }
        let around = match area.around {
            GnAround::Here => Around::Here,
            GnAround::Station(station) => Around::Station(station_address(station)?),
            GnAround::Place(place) => Around::Place {
                latitude: tenths_of_microdegrees(place.latitude),
                longitude: tenths_of_microdegrees(place.longitude),
            },
        };
        Ok(Command::SetArea(AreaOrder {
            name: area.name,
            around,
            shape: wire_shape(area.shape),
            distance_a: area.distance_a_m,
            distance_b: area.distance_b_m.unwrap_or(0),
            angle: area.angle_deg.unwrap_or(0),
            group: area.group,
            lifetime_ms: area.lifetime_ms,
        }))
    }

    /// Converts the body of `POST /v1/areas/remove` to a command of the station.
    ///
    /// # Errors
    /// Returns an error if the area is in the config.
    pub fn area_removal(&self, name: String) -> Result<Command, String> {
        match self.config.areas.iter().any(|known| known.name == name) {
            true => Err(format!(
                "the config defines the area {name:?}, so only a change of the config can remove it"
            )),
            false => Ok(Command::RemoveArea { name }),
        }
    }

    /// Returns the answer to `GET /v1/areas`.
    pub fn areas(&self, now: Time, station: &Station) -> Vec<model::Area> {
        let own = station.geonet().and_then(|router| router.position_vector());
        let own = own.map(|vector| Place::new(vector.latitude, vector.longitude));
        let configured = self.config.areas.iter().map(|area| model::Area {
            group: area.group,
            prefixes: area.prefix.into_iter().collect(),
            ipv6_interface: area.ipv6_interface.clone(),
            ..shown(&area.name, AreaOrigin::Config, wire_area(area).into(), own)
        });
        let set = station.geo_destinations(now).map(|set| shown_set(&set, now, own));
        let learnt = station.ipv6_adaptation().into_iter().flat_map(|ipv6| ipv6.learned_areas());
        let learnt = learnt.map(|learnt| model::Area {
            prefixes: learnt
                .prefixes
                .iter()
                .filter_map(|prefix| Ipv6Net::new(prefix.address, prefix.length).ok())
                .collect(),
            ipv6_interface: Some(learnt.interface.to_owned()),
            remaining_s: remaining(now, learnt.expires),
            ..shown(learnt.interface, AreaOrigin::Learnt, learnt.area, own)
        });
        configured.chain(set).chain(learnt).collect()
    }
}

fn shown_set(set: &GeoDestination<'_>, now: Time, own: Option<Place>) -> model::Area {
    let destination = set.destination;
    let (a, b, angle) = (destination.distance_a, destination.distance_b, destination.angle);
    let nowhere =
        GeoArea { shape: destination.shape, latitude: 0, longitude: 0, distance_a: a, distance_b: b, angle };
    let area = set.area.ok();
    let mut shown = shown(set.name, AreaOrigin::Api, area.unwrap_or(nowhere), own);
    if area.is_none() {
        (shown.latitude, shown.longitude, shown.inside) = (None, None, None);
    }
    model::Area {
        around: match destination.centre {
            geo_destinations::AreaCentre::Place(_) => None,
            geo_destinations::AreaCentre::Here => Some(GnAround::Here),
            geo_destinations::AreaCentre::Station(address) => {
                Some(GnAround::Station(GnStation::Address(GnAddress(address.0))))
            }
        },
        group: destination.group,
        remaining_s: set.expires.and_then(|expires| remaining(now, expires)),
        ..shown
    }
}

fn shown(name: &str, origin: AreaOrigin, area: GeoArea, own: Option<Place>) -> model::Area {
    let wire = Area::from(area);
    let shape = match wire.shape {
        io::AreaShape::Circle => AreaShape::Circle,
        io::AreaShape::Rectangle => AreaShape::Rectangle,
        io::AreaShape::Ellipse => AreaShape::Ellipse,
    };
    let round = shape == AreaShape::Circle;
    model::Area {
        name: name.to_owned(),
        origin,
        shape,
        around: None,
        latitude: Some(degrees(area.latitude)),
        longitude: Some(degrees(area.longitude)),
        distance_a_m: area.distance_a,
        distance_b_m: (!round).then_some(area.distance_b),
        angle_deg: (!round).then_some(area.angle),
        inside: own.map(|own| geodesy::is_inside(&area, own)),
        group: None,
        prefixes: Vec::new(),
        ipv6_interface: None,
        remaining_s: None,
    }
}

/// Returns the remaining seconds, rounded up, so that an existing area has at least one second. `None` means
/// unlimited.
fn remaining(now: Time, expires: Time) -> Option<u32> {
    let left = expires.saturating_since(now) + Duration::from_millis(999);
    (expires < Time::MAX).then(|| u32::try_from(left.as_secs()).unwrap_or(u32::MAX))
}
