//! The status of the facilities, and their counters. The types with serde are part of the JSON of the API.
//! This file declares each field and fills it.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_its::ItsDrop;
use carnet_its::cdd::{HeadingValue, SemiAxisLength, SpeedValue, VehicleLengthValue, VehicleWidth};
use carnet_its::ldm::{EventObject, StationObject};
use carnet_its::sa::{self, SaService};
use carnet_wire::geonet::StationType;
use serde::{Deserialize, Serialize};

use super::output::ActionId;
use crate::position::to_degrees;

/// The Local Dynamic Map, or the part of it that a filter selects.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ldm {
    /// Stations that have sent a CAM within the last three seconds.
    pub stations: Vec<LdmStation>,
    /// Events on the road that have not expired.
    pub events: Vec<LdmEvent>,
}

/// A service that a station announces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AnnouncedService {
    /// Station ID of the announcing station; `null` for this station's own services.
    pub station_id: Option<u32>,
    /// Name of the announcing station; `null` without a name.
    pub advertiser: Option<String>,
    /// ITS-AID of the service.
    pub its_aid: u32,
    /// IPv6 address of the service; `null` if the announcement has none.
    pub address: Option<Ipv6Addr>,
    /// Port of the service; `null` if the announcement has none.
    pub port: Option<u16>,
    /// Seconds until the service expires, unless it is announced again; `null` for this station's own
    /// services.
    pub remaining_s: Option<f64>,
}

/// A station of the map, by its last CAM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LdmStation {
    /// Station ID, which changes with the pseudonym.
    pub station_id: u32,
    /// Type of the station: a word of the config's `geonet.station_type`, or a number.
    pub station_type: String,
    /// Degrees, north positive.
    pub latitude: f64,
    /// Degrees, east positive.
    pub longitude: f64,
    /// The longer half axis of the ellipse that has the position with 95 % probability; `null` if unknown.
    pub confidence_m: Option<f64>,
    /// Metres per second; `null` if unknown.
    pub speed_mps: Option<f64>,
    /// Degrees clockwise from North; `null` if unknown.
    pub heading_deg: Option<f64>,
    /// Metres; `null` if unknown.
    pub length_m: Option<f64>,
    /// Metres; `null` if unknown.
    pub width_m: Option<f64>,
    /// Milliseconds since the CAM arrived.
    pub age_ms: u64,
}

/// An event of the map, by the last DENM about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LdmEvent {
    /// Action ID of the event.
    pub action_id: ActionId,
    /// Cause of the event (causeCode); `null` if the message has none.
    pub cause: Option<u8>,
    /// Sub-cause of the event; `null` if the message has none.
    pub sub_cause: Option<u8>,
    /// Quality of the information, 1 to 7; 0 if unknown.
    pub information_quality: u8,
    /// Degrees, north positive.
    pub latitude: f64,
    /// Degrees, east positive.
    pub longitude: f64,
    /// Distance in metres within which the event matters, 10000 for any greater distance; `null` if the
    /// message has none.
    pub relevance_distance_m: Option<u16>,
    /// Type of the sender, as in [`LdmStation::station_type`].
    pub station_type: String,
    /// Time of the detection: milliseconds of TAI since 2004.
    pub detection_time: u64,
    /// Time to which the message refers: milliseconds of TAI since 2004.
    pub reference_time: u64,
    /// Milliseconds since the DENM arrived.
    pub age_ms: u64,
    /// Seconds until the event expires.
    pub remaining_s: u32,
}

impl LdmStation {
    /// Returns the status of a station.
    pub fn new(object: &StationObject, now: Time) -> LdmStation {
        let known = |is: bool, value: f64| is.then_some(value);
        LdmStation {
            station_id: object.station_id.0,
            station_type: StationType::from_value(object.station_type.0).to_string(),
            latitude: to_degrees(object.position.latitude),
            longitude: to_degrees(object.position.longitude),
            confidence_m: known(
                object.confidence < SemiAxisLength::OUT_OF_RANGE,
                f64::from(object.confidence.0) / 100.0,
            ),
            speed_mps: known(object.speed != SpeedValue::UNAVAILABLE, f64::from(object.speed.0) / 100.0),
            heading_deg: known(
                object.heading < HeadingValue::UNAVAILABLE,
                f64::from(object.heading.0) / 10.0,
            ),
            length_m: known(
                object.vehicle_length < VehicleLengthValue::OUT_OF_RANGE,
                f64::from(object.vehicle_length.0) / 10.0,
            ),
            width_m: known(
                object.vehicle_width < VehicleWidth::OUT_OF_RANGE,
                f64::from(object.vehicle_width.0) / 10.0,
            ),
            age_ms: age_milliseconds(object.received_at, now),
        }
    }
}

impl LdmEvent {
    /// Returns the status of an event.
    pub fn new(object: &EventObject, now: Time) -> LdmEvent {
        let left = object.expires_at.saturating_since(now) + Duration::from_millis(999);
        LdmEvent {
            action_id: object.action_id.into(),
            cause: object.event_type.map(|cause| cause.cause_code.0),
            sub_cause: object.event_type.map(|cause| cause.sub_cause_code.0),
            information_quality: object.information_quality.0,
            latitude: to_degrees(object.position.latitude),
            longitude: to_degrees(object.position.longitude),
            relevance_distance_m: object.relevance_distance.map(|distance| distance.to_metres()),
            station_type: StationType::from_value(object.station_type.0).to_string(),
            detection_time: object.detection_time.0,
            reference_time: object.reference_time.0,
            age_ms: age_milliseconds(object.received_at, now),
            remaining_s: u32::try_from(left.as_secs()).unwrap_or(u32::MAX),
        }
    }
}

fn age_milliseconds(received: Time, now: Time) -> u64 {
    u64::try_from(now.saturating_since(received).as_millis()).unwrap_or(u64::MAX)
}

impl From<&sa::AnnouncedService> for AnnouncedService {
    /// Returns the status of an own service.
    fn from(service: &sa::AnnouncedService) -> AnnouncedService {
        AnnouncedService {
            station_id: None,
            advertiser: None,
            its_aid: service.its_aid.0,
            address: service.address,
            port: service.port,
            remaining_s: None,
        }
    }
}

impl AnnouncedService {
    /// Returns the services that this station announces, and those that it has received.
    pub(super) fn announced_and_received_services(sa: &SaService, now: Time) -> Vec<AnnouncedService> {
        let own = sa.announced_services().iter().map(AnnouncedService::from);
        let known = sa.known_advertisements().flat_map(|station| {
            station.services.iter().map(move |service| AnnouncedService {
                station_id: Some(station.station_id.0),
                advertiser: station.identifier.clone(),
                remaining_s: Some(station.expires_at.saturating_since(now).as_secs_f64()),
                ..service.into()
            })
        });
        own.chain(known).collect()
    }
}

/// Counters of the facilities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FacilitiesCounters {
    /// CAMs, DENMs and service announcements that the router accepted for sending.
    pub sent_messages: [u64; 3],
    /// CAMs, DENMs and service announcements that the router delivered.
    pub received_messages: [u64; 3],
    /// Messages that the router refused to send, or that no ticket of the station permits.
    pub unsent_messages: u64,
    pub(crate) dropped: [u64; ItsDrop::ALL.len()],
}

impl FacilitiesCounters {
    /// Returns the number of messages dropped for `reason`.
    pub fn dropped(&self, reason: ItsDrop) -> u64 {
        self.dropped[reason as usize]
    }
}
