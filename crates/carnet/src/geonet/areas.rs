//! Named areas: areas of the config, areas that operators have set, and areas learnt from Router
//! Advertisements.

use carnet_api::model::{self, AreaOrigin, AreaRequest, GnAround};
use carnet_base::Time;
use carnet_cits::position::to_tenths_of_microdegrees;
use carnet_station::Station;
use carnet_station::io::{Area, AreaCentreCommand, AreaCommand, Command};

use super::{Geonet, station_address};
use crate::settings::geonet::area_of_config;

/// Maximum number of known area names that the error about an unknown name lists.
const MAX_LISTED_AREAS: usize = 10;

impl Geonet {
    /// Returns the present position of the area with this name.
    ///
    /// # Errors
    /// Returns an error if the area does not exist, or if its position is unknown.
    pub(super) fn area_by_name(&self, now: Time, name: &str, station: &Station) -> Result<Area, String> {
        if let Some(area) = self.config.areas.iter().find(|area| area.name == name) {
            return Ok(area_of_config(area));
        }
        if let Some(set) = station.geo_destinations(now).find(|set| set.name == name) {
            return set.area.map(Area::from).map_err(|unknown| unknown.to_string());
        }
        let mut learnt = station.ipv6_adaptation().into_iter().flat_map(|ipv6| ipv6.learned_areas());
        let learnt = learnt.find(|learnt| learnt.interface == name);
        learnt.map(|learnt| learnt.area.into()).ok_or_else(|| {
            let known = self.list_areas(now, station);
            let names: Vec<&str> =
                known.iter().take(MAX_LISTED_AREAS).map(|area| area.name.as_str()).collect();
            let more =
                if known.len() > MAX_LISTED_AREAS { ", or another of `carnet show areas`" } else { "" };
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
    pub fn area_command(&self, area: AreaRequest) -> Result<Command, String> {
        if self.config.areas.iter().any(|known| known.name == area.name) {
            return Err(format!(
                "the config defines the area {:?}, so only a change of the config can replace it",
                area.name
            ));
        }
        let around = match area.around {
            GnAround::Here => AreaCentreCommand::Here,
            GnAround::Station(station) => AreaCentreCommand::Station(station_address(station)?),
            GnAround::Place(place) => AreaCentreCommand::Place {
                latitude: to_tenths_of_microdegrees(place.latitude),
                longitude: to_tenths_of_microdegrees(place.longitude),
            },
        };
        Ok(Command::SetArea(AreaCommand {
            name: area.name,
            around,
            shape: area.shape,
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
    pub fn area_removal_command(&self, name: String) -> Result<Command, String> {
        match self.config.areas.iter().any(|known| known.name == name) {
            true => Err(format!(
                "the config defines the area {name:?}, so only a change of the config can remove it"
            )),
            false => Ok(Command::RemoveArea { name }),
        }
    }

    /// Returns the answer to `GET /v1/areas`: first the areas of the config, then the areas that operators
    /// have set and that the station has learnt.
    pub fn list_areas(&self, now: Time, station: &Station) -> Vec<model::Area> {
        let plane = station.geonet_plane();
        let own = plane.and_then(|plane| plane.own_position());
        let configured = self.config.areas.iter().map(|area| model::Area {
            group: area.group,
            prefixes: area.prefix.into_iter().collect(),
            ipv6_interface: area.ipv6_interface.clone(),
            ..model::Area::new(&area.name, AreaOrigin::Config, area_of_config(area).into(), own)
        });
        configured.chain(plane.into_iter().flat_map(|plane| plane.area_status(now))).collect()
    }
}
