//! The facilities in a station: the services of `carnet_its` above the GeoNetworking router.
//!
//! The router delivers payloads of the ports of CAM, DENM and SAEM (BTP-B 2001, 2002 and 2005) to the service
//! of the port. The services send CAMs as single-hop broadcasts, and DENMs as GeoBroadcasts into their areas.
//! At each new position of the station, the facilities compose the content of the CAM. They use the position,
//! the position's accuracy, and the vehicle data of an application.
//!
//! * *Movement is valid for two seconds*: after that the facilities drop an application's speed, curvature or
//!   yaw rate. Lights, dimensions and the role stay until the application sets them again.
//! * *Event requests and vehicle data are messages themselves*: an application passes an encoded DENM or CAM.
//!   The facilities use only the fields that an application may set. So these inputs need no format of their
//!   own.
//! * *The station ID* follows the GN address, unless the config has a station ID. When the GN address
//!   changes, the facilities change the station ID and clear the path history.
//! * *The date* is that of the last input that had a date, plus the time since that input.
//!
//! Left out: permissions of messages. The security entity below the facilities checks permissions
//! ([`crate::security`]).

use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_geonet::Delivery;
use carnet_geonet::geodesy::Position as Place;
use carnet_its::ca::{CamContent, PathRecorder, StationData};
use carnet_its::cam::{
    BasicVehicleContainerHighFrequency, BasicVehicleContainerLowFrequency, Cam, HighFrequencyContainer,
    LowFrequencyContainer, RsuContainerHighFrequency, SpecialVehicleContainer,
};
use carnet_its::cdd::{
    AltitudeValue, DriveDirection, HeadingValue, ReferencePosition, SemiAxisLength, SpeedValue, StationId,
    StationType, TimestampIts, VehicleLength, VehicleLengthValue, VehicleWidth,
};
use carnet_its::{Facilities as Services, ItsTime};
use carnet_wire::btp::{BtpB, port};
use carnet_wire::geonet::{CommonNextHeader, GnAddress, Timestamp};

use super::config::FacilitiesSettings;
use super::output::{Message, MessageKind};
use super::status::{AnnouncedService, FacilitiesCounters};
use crate::position::{Position, PositionQuality};

/// Error for a request about facilities messages if the station has no facilities.
pub(crate) const NO_FACILITIES_ERROR: &str =
    "this station has no facilities: there is no [facilities] in its config";
/// Time for which the movement that an application has reported is valid.
const MOVEMENT_VALIDITY: Duration = Duration::from_secs(2);
/// Index of service announcements in the counters of sent and received messages; the indexes before it are
/// those of [`MessageKind`].
pub(crate) const SAEM_INDEX: usize = 2;
/// Largest position error in a CAM, in centimetres. The code 4094 of SemiAxisLength means this error or more.
const MAX_POSITION_ERROR_CM: u32 = 4094;

/// The facilities of a station.
#[derive(Debug)]
pub struct Facilities {
    pub(super) services: Services,
    settings: FacilitiesSettings,
    address: GnAddress,
    counters: FacilitiesCounters,
    /// Last date from an input, and the time of that input.
    last_date: (Time, WallTime),
    /// Vehicle data that an application has set, and the time of that input.
    vehicle_data: Option<(Time, Box<Cam>)>,
    position_quality: PositionQuality,
    /// Last known position of the station.
    pub(super) own_position: Option<Position>,
    pub(super) path_recorder: PathRecorder,
}

impl Facilities {
    pub(crate) fn new(settings: FacilitiesSettings, address: GnAddress, seed: u64) -> Facilities {
        let station_id = settings.station_id.unwrap_or_else(|| station_id_of(address));
        let mut services = Services::new(settings.parameters, station_id, settings.station_type, seed);
        let now = ItsTime { time: Time::ZERO, timestamp: TimestampIts::default() };
        services.ca_service.set_active(now, settings.sends_cams);
        let mut counters = FacilitiesCounters::default();
        let announced = services.sa_service.announce_services(
            now,
            settings.advertiser_name.clone(),
            settings.announced_services.clone(),
        );
        if let Err(reason) = announced {
            counters.dropped[reason as usize] += 1;
        }
        Facilities {
            services,
            settings,
            address,
            counters,
            last_date: (Time::ZERO, WallTime::default()),
            vehicle_data: None,
            position_quality: PositionQuality::default(),
            own_position: None,
            path_recorder: PathRecorder::default(),
        }
    }

    /// Returns the services, and the Local Dynamic Map.
    pub fn services(&self) -> &Services {
        &self.services
    }

    pub(crate) fn services_mut(&mut self) -> &mut Services {
        &mut self.services
    }

    /// Counts a message of this kind as sent if the router has accepted it, otherwise as unsent.
    pub(crate) fn count_sent(&mut self, kind: usize, is_sent: bool) {
        let counters = &mut self.counters;
        *(if is_sent { &mut counters.sent_messages[kind] } else { &mut counters.unsent_messages }) += 1;
    }

    /// Counts the messages that the services could not compose.
    pub(crate) fn count_generation_errors(&mut self) {
        let services = &mut self.services;
        for reason in
            [services.ca_service.poll_generation_error(), services.sa_service.poll_announcement_error()]
                .into_iter()
                .flatten()
        {
            self.counters.dropped[reason as usize] += 1;
        }
    }

    /// Returns the services that this and other stations announce; this station's own services come first.
    pub fn service_status(&self, now: Time) -> Vec<AnnouncedService> {
        AnnouncedService::announced_and_received_services(&self.services.sa_service, now)
    }

    /// Returns the counters.
    pub fn counters(&self) -> &FacilitiesCounters {
        &self.counters
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.services.poll_timeout()
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        let now = self.now(now);
        self.services.handle_timeout(now);
    }

    pub(crate) fn handle_date(&mut self, now: Time, wall: WallTime) {
        self.last_date = (now, wall);
    }

    pub(crate) fn handle_quality(&mut self, quality: PositionQuality) {
        self.position_quality = quality;
    }

    /// Stores the vehicle data of an application.
    ///
    /// # Errors
    /// Returns an error if the octets are not a CAM.
    pub(crate) fn handle_vehicle(&mut self, now: Time, octets: &[u8]) -> Result<(), String> {
        let cam =
            Cam::from_octets(octets).map_err(|error| format!("the vehicle data is not a CAM: {error}"))?;
        self.vehicle_data = Some((now, Box::new(cam)));
        if !self.position_quality.lost {
            self.provide_station_data(now);
        }
        Ok(())
    }

    /// Passes to the CA service the shortest interval between CAMs that congestion control permits.
    pub(crate) fn handle_dcc_interval(&mut self, now: Time, interval: Duration) {
        let now = self.now(now);
        self.services.ca_service.set_interval_of_dcc(now, interval);
    }

    /// Handles a position of the station. `address` is the router's GN address.
    pub(crate) fn handle_position(&mut self, now: Time, position: Position, address: GnAddress) {
        self.handle_address(address);
        let place = Place::new(position.latitude, position.longitude);
        self.own_position = Some(position);
        self.path_recorder.handle_position(now, place);
        self.services.handle_position(place);
        // The receiver has no fix: provide no new data. The CA service then sends the last data for two more
        // seconds.
        if !self.position_quality.lost {
            self.provide_station_data(now);
        }
    }

    /// Returns whether the station has an own event that is not over, so that it may repeat the event's
    /// message.
    pub(crate) fn has_own_event(&self) -> bool {
        self.services.den_service.event_counts().0 > 0
    }

    /// Derives the station ID from a new GN address, unless the config has a station ID.
    pub(crate) fn handle_address(&mut self, address: GnAddress) {
        if std::mem::replace(&mut self.address, address) != address && self.settings.station_id.is_none() {
            self.services.set_station_id(station_id_of(address));
            self.path_recorder.clear();
        }
    }

    pub(crate) fn now(&self, now: Time) -> ItsTime {
        let (then, wall) = self.last_date;
        ItsTime {
            time: now,
            timestamp: TimestampIts::from_wall_time(wall).after_duration(now.saturating_since(then)),
        }
    }

    /// Passes the data for the next CAM to the CA service.
    fn provide_station_data(&mut self, now: Time) {
        let Some(position) = self.own_position.filter(|_| self.settings.sends_cams) else { return };
        let at = self.now(now);
        let content = match self.settings.station_type {
            StationType::ROAD_SIDE_UNIT => CamContent::RoadSideUnit(RsuContainerHighFrequency::default()),
            _ => self.cam_content(now, &position),
        };
        let provided = StationData {
            reference_position: self.reference_position(&position),
            position_time: full_timestamp(Timestamp(position.timestamp), at.timestamp),
            content,
        };
        self.services.handle_station_data(at, provided);
    }

    pub(super) fn reference_position(&self, position: &Position) -> ReferencePosition {
        let mut reference = ReferencePosition::at_coordinates(position.latitude, position.longitude);
        if let Some(radius) = self.position_quality.confidence_cm {
            // The position error is a circle: both axes are equal, and the orientation has no meaning.
            let axis = SemiAxisLength(radius.clamp(1, MAX_POSITION_ERROR_CM) as u16);
            let ellipse = &mut reference.position_confidence_ellipse;
            (ellipse.semi_major_confidence, ellipse.semi_minor_confidence) = (axis, axis);
            ellipse.semi_major_orientation = HeadingValue::WGS84_NORTH;
        }
        if let Some(altitude) = self.position_quality.altitude_cm {
            reference.altitude.altitude_value =
                AltitudeValue(altitude.clamp(AltitudeValue::LEAST, AltitudeValue::MOST - 1));
        }
        reference
    }

    /// Composes the content of a CAM from the vehicle data and the position.
    fn cam_content(&self, now: Time, position: &Position) -> CamContent {
        let told = self.vehicle_data.as_ref();
        let parameters = told.map(|(_, cam)| &cam.cam.cam_parameters);
        let told_high = parameters.and_then(|parameters| match &parameters.high_frequency_container {
            HighFrequencyContainer::BasicVehicleContainerHighFrequency(high) => Some(*high),
            _ => None,
        });
        let told_low = parameters.and_then(|parameters| match &parameters.low_frequency_container {
            Some(LowFrequencyContainer::BasicVehicleContainerLowFrequency(low)) => Some(low.clone()),
            _ => None,
        });
        let fresh = told.is_some_and(|(at, _)| now.saturating_since(*at) <= MOVEMENT_VALIDITY);
        let mut high = told_high.filter(|_| fresh).unwrap_or_default();
        let (length, width) =
            told_high.map_or_else(Default::default, |high| (high.vehicle_length, high.vehicle_width));
        let unknown = length.vehicle_length_value == VehicleLengthValue::UNAVAILABLE;
        high.vehicle_length = if unknown { self.vehicle_length() } else { length };
        let unknown = width == VehicleWidth::UNAVAILABLE;
        high.vehicle_width = if unknown { self.settings.vehicle_width } else { width };
        self.add_movement(position, &mut high);
        let mut low = told_low.unwrap_or_else(|| BasicVehicleContainerLowFrequency {
            vehicle_role: self.settings.vehicle_role,
            ..BasicVehicleContainerLowFrequency::default()
        });
        low.path_history = self.path_recorder.path_history();
        let special: Option<SpecialVehicleContainer> =
            parameters.and_then(|parameters| parameters.special_vehicle_container.clone());
        CamContent::Vehicle { high_frequency: high, low_frequency: low, special }
    }

    fn vehicle_length(&self) -> VehicleLength {
        VehicleLength { vehicle_length_value: self.settings.vehicle_length, ..VehicleLength::default() }
    }

    /// Sets speed and heading from the position, unless an application has set them.
    fn add_movement(&self, position: &Position, high: &mut BasicVehicleContainerHighFrequency) {
        let speed = &mut high.speed.speed_value;
        if *speed == SpeedValue::UNAVAILABLE && self.position_quality.moves {
            // The value 16382 means this speed or more.
            *speed = SpeedValue(position.speed.unsigned_abs().min(SpeedValue::UNAVAILABLE.0 - 1));
            if position.speed < 0 && high.drive_direction == DriveDirection::Unavailable {
                high.drive_direction = DriveDirection::Backward;
            }
        }
        let heading = &mut high.heading.heading_value;
        if *heading == HeadingValue::UNAVAILABLE && self.position_quality.heads {
            // Position vector (EN 302 636-4-1 9.5.2) and CAM (TS 102 894-2 A.101) have the same unit.
            *heading = HeadingValue(position.heading % 3600);
        }
    }

    /// Delivers a payload to its service. Returns the message for applications; `None` if the payload is for
    /// no service or the service ignores it.
    pub(crate) fn handle_delivery(&mut self, now: Time, delivery: &Delivery) -> Option<Message> {
        if delivery.next_header != CommonNextHeader::BtpB {
            return None;
        }
        let (btp, octets) = BtpB::parse(&delivery.payload).ok()?;
        let kind = match btp.destination_port {
            port::CAM => Some(MessageKind::Cam),
            port::DENM => Some(MessageKind::Denm),
            // Applications query the stored service announcements, so they get no message.
            port::SAEM => None,
            _ => return None,
        };
        let now = self.now(now);
        match self.services.handle_message(
            now,
            btp.destination_port,
            octets,
            delivery.source.address,
            delivery.area,
        ) {
            Ok(()) => self.counters.received_messages[kind.map_or(SAEM_INDEX, |kind| kind as usize)] += 1,
            Err(reason) => {
                self.counters.dropped[reason as usize] += 1;
                return None;
            }
        }
        Some(Message { kind: kind?, source: delivery.source.address.0, octets: octets.to_vec() })
    }
}

/// Returns the station ID for an address: the last 32 bits of its MID, in which addresses of one manufacturer
/// differ.
fn station_id_of(address: GnAddress) -> StationId {
    StationId(address.0 as u32)
}

/// Returns the full timestamp whose low 32 bits are `time`: the one nearest to the date.
fn full_timestamp(time: Timestamp, date: TimestampIts) -> TimestampIts {
    let ahead = time.0.wrapping_sub(date.0 as u32) as i32;
    TimestampIts(date.0.saturating_add_signed(ahead.into()).min(TimestampIts::MOST))
}
