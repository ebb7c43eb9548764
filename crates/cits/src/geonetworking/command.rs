//! Operators' commands to the GeoNetworking plane, and to the wings that it carries.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::geo_destinations::{self, Destination};
use carnet_geonet::geodesy;
use carnet_wire::btp::port;
use carnet_wire::geonet::GnAddress;
use serde::{Deserialize, Serialize};

use super::output::Output;
use super::plane::Geonet;
use crate::facilities::command::DenmOrder;
use crate::facilities::plane::NO_FACILITIES;
use crate::position::AreaShape;
use crate::security::command::NO_PSEUDONYMS;

/// Centre of an area that an operator sets at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Around {
    /// A fixed place, in tenths of a microdegree, north and east positive.
    Place {
        /// Latitude of the place.
        latitude: i32,
        /// Longitude of the place.
        longitude: i32,
    },
    /// The present position of this station.
    Here,
    /// The area follows the station with this GN address.
    Station(u64),
}

/// An operator's order to set an area at run time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AreaOrder {
    /// Name of the area. An area with the same name is replaced.
    pub name: String,
    /// Centre of the area.
    pub around: Around,
    /// Shape of the area: circle, rectangle or ellipse.
    pub shape: AreaShape,
    /// Radius, or half the length along the angle, in metres.
    pub distance_a: u16,
    /// Half the length across the angle, in metres; 0 for a circle.
    pub distance_b: u16,
    /// Angle of the area in degrees clockwise from North.
    pub angle: u16,
    /// IPv6 multicast group of all stations in the area.
    pub group: Option<Ipv6Addr>,
    /// Lifetime of the area in milliseconds; `None`: unlimited.
    pub lifetime_ms: Option<u64>,
}

impl AreaOrder {
    pub(crate) fn destination(&self) -> Destination {
        Destination {
            centre: match self.around {
                Around::Place { latitude, longitude } => {
                    geo_destinations::AreaCentre::Place(geodesy::Position::new(latitude, longitude))
                }
                Around::Here => geo_destinations::AreaCentre::Here,
                Around::Station(address) => geo_destinations::AreaCentre::Station(GnAddress(address)),
            },
            shape: self.shape.into(),
            distance_a: self.distance_a,
            distance_b: self.distance_b,
            angle: self.angle,
            group: self.group,
        }
    }
}

impl Geonet {
    /// Sets or replaces an area.
    ///
    /// # Errors
    /// Returns an error in words for the operator if the area cannot be set.
    pub fn handle_area_order(&mut self, now: Time, order: &AreaOrder) -> Result<(), String> {
        if let Some(group) = order.group {
            let ipv6 = self.ipv6.as_ref().ok_or("this station has no IPv6 over GeoNetworking")?;
            if !group.is_multicast() || group.octets()[1] & 0x0f <= 2 {
                return Err(format!("{group} is no multicast group with more than link scope"));
            }
            if ipv6.is_configured(group) {
                return Err(format!("an area of the config already has the multicast group {group}"));
            }
        }
        let lifetime = order.lifetime_ms.map(Duration::from_millis);
        let set = self.destinations.set(now, &order.name, order.destination(), lifetime, &self.router);
        set.map_err(|refusal| refusal.to_string())?;
        self.follow(now);
        Ok(())
    }

    /// Removes an area.
    ///
    /// # Errors
    /// Returns an error if no area has this name.
    pub fn handle_area_removal(&mut self, now: Time, name: &str) -> Result<(), String> {
        if !self.destinations.remove(name) {
            return Err(format!(
                "expected the name of an area that was set at run time, found {name:?}; areas of the config \
                 cannot be removed"
            ));
        }
        self.tell_groups(now);
        Ok(())
    }

    /// Executes an application's order about an event.
    ///
    /// # Errors
    /// Returns the reason of a failure, in words for the operator.
    pub fn handle_denm_order(&mut self, now: Time, order: &DenmOrder) -> Result<(), String> {
        self.check_message(now, port::DENM, &order.denm)?;
        let facilities = self.facilities.as_mut().ok_or(NO_FACILITIES)?;
        let largest = self.router.mib().max_area_size;
        if order.area.is_some_and(|area| geodesy::area_size(&area.into()) > largest) {
            return Err(format!(
                "the area is too large, expected at most {} square kilometres (mib.max_area_size)",
                largest / 1e6
            ));
        }
        let made = facilities.handle_order(now, order)?;
        self.outputs.extend(made.map(|action| Output::Triggered(action.into())));
        self.collect(now);
        Ok(())
    }

    /// Changes the pseudonym now, also while an application has locked it.
    ///
    /// # Errors
    ///
    /// Returns the reason of a failure, for the operator.
    pub fn handle_pseudonym_change(&mut self, now: Time) -> Result<(), String> {
        let identity = self.secured.as_mut().ok_or(NO_PSEUDONYMS)?.handle_pseudonym_change(now)?;
        self.become_another(now, Some(identity));
        Ok(())
    }

    /// Locks the pseudonym for a time span; an empty span ends the lock.
    ///
    /// # Errors
    /// Returns the reason of a failure, in words for the operator.
    pub fn handle_pseudonym_lock(&mut self, now: Time, span: Duration) -> Result<(), String> {
        self.secured.as_mut().ok_or(NO_PSEUDONYMS)?.handle_pseudonym_lock(now, span)
    }
}
