//! The facilities in a station: the services of `carnet_its` above the GeoNetworking router.
//!
//! The router delivers payloads of the ports of CAM, DENM and SAEM (BTP-B 2001, 2002 and 2005) to the service
//! of the port. The services send CAMs as single-hop broadcasts, and DENMs as GeoBroadcasts into their areas.
//! At each position of the station, this module composes the content of the CAM. It uses the position, its
//! accuracy, and the vehicle data of an application.
//!
//! * *Movement is valid for two seconds*: after that the module drops an application's speed, curvature or
//!   yaw rate. Lights, dimensions and the role stay until the application sets them again.
//! * *Orders and vehicle data are messages themselves*: an application passes an encoded DENM or CAM. Only
//!   the fields count that an application may set. So orders and vehicle data need no further format as
//!   inputs.
//! * *The station ID* follows the GN address, unless the config has a station ID. When the GN address
//!   changes, the station ID changes and the path behind the vehicle begins again.
//! * *The date* is that of the last input that had a date, plus the time since that input.
//!
//! Left out: permissions of messages. The security entity below the facilities checks permissions
//! ([`super::security`]).

use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_geonet::geodesy::{self, Position as Place};
use carnet_geonet::{Delivery, Request};
use carnet_its::ca::{Content, PathRecorder, Provided};
use carnet_its::cam::{
    BasicVehicleContainerHighFrequency, BasicVehicleContainerLowFrequency, Cam, HighFrequencyContainer,
    LowFrequencyContainer, RsuContainerHighFrequency, SpecialVehicleContainer,
};
use carnet_its::cdd::{
    ActionId, AltitudeValue, DriveDirection, HeadingValue, ReferencePosition, SemiAxisLength, SpeedValue,
    StationId, StationType, TimestampIts, Traces, VehicleLength, VehicleLengthValue, VehicleRole,
    VehicleWidth,
};
use carnet_its::den::{self, EventRequest};
use carnet_its::denm::{Denm, LocationContainer};
use carnet_its::facilities::{Output as Done, Parameters};
use carnet_its::sa::Service;
use carnet_its::{Facilities as Services, ItsDrop, Now};
use carnet_wire::btp::{BtpB, port};
use carnet_wire::geonet::{CommonNextHeader, GnAddress, TrafficClass};

use super::{Geonet, NO_FACILITIES};
use crate::geonet_io::{Action, DenmOrder, DenmWish, Message, MessageKind, Position, PositionQuality};
use crate::io::Output;

/// Time for which the movement that an application has reported is valid.
const MOVEMENT: Duration = Duration::from_secs(2);
/// Largest time by which an event's detection time may be ahead of the station's clock.
const DETECTION_AHEAD: Duration = Duration::from_secs(60);
/// Index of service announcements in the counters; it follows the kinds of messages.
const SAEM: usize = 2;
/// Bound of the reported position error, in centimetres (SemiAxisLength: 4094 is out of range).
const OUT_OF_RANGE: u32 = 4094;

/// Settings of a station's facilities.
#[derive(Debug, Clone, PartialEq)]
pub struct FacilitiesSettings {
    /// Bounds and intervals of the services.
    pub parameters: Parameters,
    /// Station ID; `None`: the station derives it from the GN address.
    pub station_id: Option<StationId>,
    /// Type of the station.
    pub station_type: StationType,
    /// Whether the station sends CAMs.
    pub cam: bool,
    /// Length of the vehicle, until an application sets another length.
    pub vehicle_length: VehicleLengthValue,
    /// Width of the vehicle, until an application sets another width.
    pub vehicle_width: VehicleWidth,
    /// Role of the vehicle, until an application sets another role.
    pub vehicle_role: VehicleRole,
    /// Services that the station announces.
    pub services: Vec<Service>,
    /// Name of the station in its service announcements, for people: 1 to 32 octets.
    pub advertiser: Option<String>,
}

/// Counters of the facilities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FacilitiesCounters {
    /// CAMs, DENMs and service announcements that the router accepted for sending.
    pub sent: [u64; 3],
    /// CAMs, DENMs and service announcements that the router delivered.
    pub received: [u64; 3],
    /// Messages that the router refused to send, or that no ticket of the station permits.
    pub unsent: u64,
    dropped: [u64; ItsDrop::ALL.len()],
}

impl FacilitiesCounters {
    /// Returns the number of messages dropped for `reason`.
    pub fn dropped(&self, reason: ItsDrop) -> u64 {
        self.dropped[reason as usize]
    }
}

/// The facilities of a station.
#[derive(Debug)]
pub struct Facilities {
    services: Services,
    settings: FacilitiesSettings,
    address: GnAddress,
    counters: FacilitiesCounters,
    /// Date of the last input with a date, and the time of that input.
    date: (Time, WallTime),
    /// Vehicle data that an application has set, and the time of that input.
    vehicle: Option<(Time, Box<Cam>)>,
    quality: PositionQuality,
    /// Last known position of the station.
    position: Option<Position>,
    path: PathRecorder,
}

impl Facilities {
    pub(super) fn new(settings: FacilitiesSettings, address: GnAddress, seed: u64) -> Facilities {
        let station_id = settings.station_id.unwrap_or_else(|| number(address));
        let mut services = Services::new(settings.parameters, station_id, settings.station_type, seed);
        let now = Now { time: Time::ZERO, date: TimestampIts::default() };
        services.ca.set_active(now, settings.cam);
        let mut counters = FacilitiesCounters::default();
        let announced = services.sa.announce(now, settings.advertiser.clone(), settings.services.clone());
        if let Err(reason) = announced {
            counters.dropped[reason as usize] += 1;
        }
        Facilities {
            services,
            settings,
            address,
            counters,
            date: (Time::ZERO, WallTime::default()),
            vehicle: None,
            quality: PositionQuality::default(),
            position: None,
            path: PathRecorder::default(),
        }
    }

    /// Returns the services, and the Local Dynamic Map.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// Returns the counters.
    pub fn counters(&self) -> &FacilitiesCounters {
        &self.counters
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.services.poll_timeout()
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        let now = self.now(now);
        self.services.handle_timeout(now);
    }

    pub(super) fn handle_date(&mut self, now: Time, wall: WallTime) {
        self.date = (now, wall);
    }

    pub(super) fn handle_quality(&mut self, quality: PositionQuality) {
        self.quality = quality;
    }

    /// Stores the vehicle data of an application.
    ///
    /// # Errors
    /// Returns an error if the octets are not a CAM.
    pub(super) fn handle_vehicle(&mut self, now: Time, octets: &[u8]) -> Result<(), String> {
        let cam = Cam::from_octets(octets).map_err(|error| format!("the vehicle is no CAM: {error}"))?;
        self.vehicle = Some((now, Box::new(cam)));
        if !self.quality.lost {
            self.provide(now);
        }
        Ok(())
    }

    /// Passes the interval between CAMs that congestion control demands to the CA service.
    pub(super) fn handle_interval_of_dcc(&mut self, now: Time, interval: Duration) {
        let now = self.now(now);
        self.services.ca.set_interval_of_dcc(now, interval);
    }

    /// Handles a position of the station. `address` is the router's GN address.
    pub(super) fn handle_position(&mut self, now: Time, position: Position, address: GnAddress) {
        self.follow(address);
        let place = Place::new(position.latitude, position.longitude);
        self.position = Some(position);
        self.path.handle_position(now, place);
        self.services.handle_position(place);
        // Without a new position the CA service sends the last content for two more seconds, and then stops.
        if !self.quality.lost {
            self.provide(now);
        }
    }

    /// Returns whether the station repeats the message of an own event that is not over.
    pub(super) fn is_telling(&self) -> bool {
        self.services.den.sizes().0 > 0
    }

    /// Changes the station ID to follow a new GN address.
    pub(super) fn follow(&mut self, address: GnAddress) {
        if std::mem::replace(&mut self.address, address) != address && self.settings.station_id.is_none() {
            self.services.set_station_id(number(address));
            self.path.clear();
        }
    }

    fn now(&self, now: Time) -> Now {
        let (then, wall) = self.date;
        Now { time: now, date: TimestampIts::of(wall).later(now.saturating_since(then)) }
    }

    /// Gives the CA service the content of the next CAM.
    fn provide(&mut self, now: Time) {
        let Some(position) = self.position.filter(|_| self.settings.cam) else { return };
        let at = self.now(now);
        let content = match self.settings.station_type {
            StationType::ROAD_SIDE_UNIT => Content::RoadSideUnit(RsuContainerHighFrequency::default()),
            _ => self.vehicle(now, &position),
        };
        let provided = Provided {
            reference_position: self.reference(&position),
            position_time: full(Timestamp(position.timestamp), at.date),
            content,
        };
        self.services.handle_provided(at, provided);
    }

    fn reference(&self, position: &Position) -> ReferencePosition {
        let mut reference = ReferencePosition::at(position.latitude, position.longitude);
        if let Some(radius) = self.quality.confidence_cm {
            // The position error is a circle: both axes are equal, and the orientation has no meaning.
            let axis = SemiAxisLength(radius.clamp(1, OUT_OF_RANGE) as u16);
            let ellipse = &mut reference.position_confidence_ellipse;
            (ellipse.semi_major_confidence, ellipse.semi_minor_confidence) = (axis, axis);
            ellipse.semi_major_orientation = HeadingValue::WGS84_NORTH;
        }
        if let Some(altitude) = self.quality.altitude_cm {
            reference.altitude.altitude_value =
                AltitudeValue(altitude.clamp(AltitudeValue::LEAST, AltitudeValue::MOST - 1));
        }
        reference
    }

    /// Composes the content of a CAM from the vehicle data and the position.
    fn vehicle(&self, now: Time, position: &Position) -> Content {
        let told = self.vehicle.as_ref();
        let parameters = told.map(|(_, cam)| &cam.cam.cam_parameters);
        let told_high = parameters.and_then(|parameters| match &parameters.high_frequency_container {
            HighFrequencyContainer::BasicVehicleContainerHighFrequency(high) => Some(*high),
            _ => None,
        });
        let told_low = parameters.and_then(|parameters| match &parameters.low_frequency_container {
            Some(LowFrequencyContainer::BasicVehicleContainerLowFrequency(low)) => Some(low.clone()),
            _ => None,
        });
        let fresh = told.is_some_and(|(at, _)| now.saturating_since(*at) <= MOVEMENT);
        let mut high = told_high.filter(|_| fresh).unwrap_or_default();
        let (length, width) =
            told_high.map_or_else(Default::default, |high| (high.vehicle_length, high.vehicle_width));
        let unknown = length.vehicle_length_value == VehicleLengthValue::UNAVAILABLE;
        high.vehicle_length = if unknown { self.length() } else { length };
        let unknown = width == VehicleWidth::UNAVAILABLE;
        high.vehicle_width = if unknown { self.settings.vehicle_width } else { width };
        self.add_movement(position, &mut high);
        let mut low = told_low.unwrap_or_else(|| BasicVehicleContainerLowFrequency {
            vehicle_role: self.settings.vehicle_role,
            ..BasicVehicleContainerLowFrequency::default()
        });
        low.path_history = self.path.history();
        let special: Option<SpecialVehicleContainer> =
            parameters.and_then(|parameters| parameters.special_vehicle_container.clone());
        Content::Vehicle { high_frequency: high, low_frequency: low, special }
    }

    fn length(&self) -> VehicleLength {
        VehicleLength { vehicle_length_value: self.settings.vehicle_length, ..VehicleLength::default() }
    }

    /// Adds speed and heading of the position, unless an application has set them.
    fn add_movement(&self, position: &Position, high: &mut BasicVehicleContainerHighFrequency) {
        let speed = &mut high.speed.speed_value;
        if *speed == SpeedValue::UNAVAILABLE && self.quality.moves {
            // The value 16382 means this speed or more.
            *speed = SpeedValue(position.speed.unsigned_abs().min(SpeedValue::UNAVAILABLE.0 - 1));
            if position.speed < 0 && high.drive_direction == DriveDirection::Unavailable {
                high.drive_direction = DriveDirection::Backward;
            }
        }
        let heading = &mut high.heading.heading_value;
        if *heading == HeadingValue::UNAVAILABLE && self.quality.heads {
            // EN 302 636-4-1 9.5.2 and TS 102 894-2 A.101 have the same unit.
            *heading = HeadingValue(position.heading % 3600);
        }
    }

    /// Delivers a payload to its service. Returns the message for applications. Returns `None` if the payload
    /// is for no service, or has no effect.
    fn hear(&mut self, now: Time, delivery: &Delivery) -> Option<Message> {
        if delivery.next_header != CommonNextHeader::BtpB {
            return None;
        }
        let (btp, octets) = BtpB::parse(&delivery.payload).ok()?;
        let kind = match btp.destination_port {
            port::CAM => Some(MessageKind::Cam),
            port::DENM => Some(MessageKind::Denm),
            // Applications query service announcements; the service passes them no message.
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
            Ok(()) => self.counters.received[kind.map_or(SAEM, |kind| kind as usize)] += 1,
            Err(reason) => {
                self.counters.dropped[reason as usize] += 1;
                return None;
            }
        }
        Some(Message { kind: kind?, source: delivery.source.address.0, octets: octets.to_vec() })
    }

    /// Executes an application's order about an event. Returns the action ID of a new event.
    fn handle_order(&mut self, now: Time, order: &DenmOrder) -> Result<Option<ActionId>, String> {
        let denm: Denm =
            Denm::from_octets(&order.denm).map_err(|error| format!("the order is no DENM: {error}"))?;
        let management = denm.denm.management;
        let action_id = management.action_id;
        let at = self.now(now);
        if management.detection_time > at.date.later(DETECTION_AHEAD) {
            return Err(format!(
                "the event was detected at {}, later than now, expected at most {}",
                management.detection_time.0, at.date.0
            ));
        }
        let here = self.position.map(|position| self.reference(&position));
        let is_here = management.event_position.position().is_none();
        let event_position = if is_here { here.unwrap_or_default() } else { management.event_position };
        // If the event is at the station's own position, the event's trace is the path of the station.
        let way = || LocationContainer { traces: Traces(vec![self.path.history()]), ..Default::default() };
        let mut location = denm.denm.location.or_else(|| is_here.then(way));
        // An application that states the event's movement sends either no trace or a trace without points.
        let has_none =
            |location: &LocationContainer| location.traces.0.iter().all(|trace| trace.0.is_empty());
        if let Some(location) = location.as_mut().filter(|location| is_here && has_none(location)) {
            location.traces = way().traces;
        }
        let milliseconds = |span: Option<u64>| span.map(Duration::from_millis);
        let request = EventRequest {
            detection_time: Some(management.detection_time).filter(|time| time.0 > 0),
            event_position,
            validity_duration: Some(management.validity_duration),
            repetition_duration: milliseconds(order.repetition_duration_ms),
            repetition_interval: milliseconds(order.repetition_interval_ms),
            transmission_interval: management
                .transmission_interval
                .map(|interval| Duration::from_millis(interval.0.into())),
            relevance_distance: management.relevance_distance,
            relevance_traffic_direction: management.relevance_traffic_direction,
            situation: denm.denm.situation,
            location,
            alacarte: denm.denm.alacarte,
            destination_area: order.area.map(Into::into),
            traffic_class: order.traffic_class.map(TrafficClass::from_octet),
        };
        let den = &mut self.services.den;
        let result = match order.wish {
            DenmWish::Trigger => den.trigger(at, &request).map(Some),
            DenmWish::Update => den.update(at, action_id, &request).map(|()| None),
            DenmWish::Cancel if !den.is_own(action_id) => {
                return Err(format!("{} is no event of this station's own", words(action_id)));
            }
            DenmWish::Negate if den.is_own(action_id) => {
                return Err(format!(
                    "{} is an event of this station's own, which cancels it",
                    words(action_id)
                ));
            }
            DenmWish::Cancel | DenmWish::Negate => den.terminate(at, action_id, &request).map(|()| None),
        };
        result.map_err(|reason| match reason {
            ItsDrop::UnknownEvent => format!("there is no event {}, or it is over", words(action_id)),
            ItsDrop::NoPosition => "the event has no position, and this station knows none of its own".into(),
            ItsDrop::Expired => "the event is over already".into(),
            ItsDrop::TableFull => "this station speaks of too many events at once".into(),
            other => format!("the event cannot be told: {other}"),
        })
    }
}

fn words(action: ActionId) -> String {
    format!("{}:{}", action.originating_station_id.0, action.sequence_number.0)
}

/// Returns the station ID of this address: the last 32 bits of its MID. Addresses of one maker differ in
/// these bits.
fn number(address: GnAddress) -> StationId {
    StationId(address.0 as u32)
}

use carnet_wire::geonet::Timestamp;

/// Returns the full time of a position vector's low 32 bits: the time nearest to the date.
fn full(time: Timestamp, date: TimestampIts) -> TimestampIts {
    let ahead = time.0.wrapping_sub(date.0 as u32) as i32;
    TimestampIts(date.0.saturating_add_signed(ahead.into()).min(TimestampIts::MOST))
}

impl Geonet {
    pub(crate) fn facilities(&self) -> Option<&Facilities> {
        self.facilities.as_deref()
    }

    pub(crate) fn handle_date(&mut self, now: Time, wall: WallTime) {
        if let Some(facilities) = &mut self.facilities {
            facilities.handle_date(now, wall);
        }
        if let Some(secured) = &mut self.secured {
            secured.handle_date(now, wall);
        }
    }

    pub(crate) fn handle_quality(&mut self, quality: PositionQuality) {
        if let Some(facilities) = &mut self.facilities {
            facilities.handle_quality(quality);
        }
        if let Some(secured) = &mut self.secured {
            secured.handle_quality(&quality);
        }
    }

    /// Handles the vehicle data of an application.
    ///
    /// # Errors
    /// Returns an error if the octets are not a CAM, or if the station has no facilities.
    pub(crate) fn handle_vehicle(&mut self, now: Time, octets: &[u8]) -> Result<(), String> {
        self.check_message(now, port::CAM, octets)?;
        self.facilities.as_mut().ok_or(NO_FACILITIES)?.handle_vehicle(now, octets)?;
        self.collect(now);
        Ok(())
    }

    /// Executes an application's order about an event.
    ///
    /// # Errors
    /// Returns the reason of a failure, in words for the operator.
    pub(crate) fn handle_denm_order(&mut self, now: Time, order: &DenmOrder) -> Result<(), String> {
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

    /// Checks whether a ticket of this station permits a message of a service.
    ///
    /// # Errors
    /// Returns an error if no ticket permits the message.
    fn check_service(&mut self, now: Time, request: Request<'_>) -> Result<(), String> {
        let Some(secured) = &mut self.secured else { return Ok(()) };
        let result = secured.check_service(now, request.next_header, request.payload);
        self.outputs.extend(secured.poll_warning().map(Output::Event));
        result
    }

    /// Checks whether the ticket permits a message of an application.
    ///
    /// # Errors
    /// Returns an error if the ticket does not permit the message.
    fn check_message(&mut self, now: Time, port: u16, message: &[u8]) -> Result<(), String> {
        self.secured.as_mut().map_or(Ok(()), |secured| secured.check_message(now, port, message))
    }

    /// Passes a payload that the router has delivered to its service.
    pub(super) fn hear(&mut self, now: Time, delivery: &Delivery) {
        if let Some(facilities) = &mut self.facilities
            && let Some(message) = facilities.hear(now, delivery)
        {
            self.outputs.push_back(Output::Message(message));
        }
    }

    /// Passes the messages of the services to the router.
    pub(super) fn speak(&mut self, now: Time) {
        while let Some(facilities) = &mut self.facilities {
            let at = facilities.now(now);
            match facilities.services.poll_output(at) {
                Some(Done::Transmit(transmission)) => {
                    let port = transmission.payload.get(..2);
                    let ports = [port::CAM, port::DENM].map(u16::to_be_bytes);
                    let kind = ports.iter().position(|it| port == Some(&it[..])).unwrap_or(SAEM);
                    // On failure the security entity has queued a warning, or the router has counted the
                    // reason.
                    let sent = self.check_service(now, transmission.request()).is_ok()
                        && self.router.handle_request(now, transmission.request()).is_ok();
                    if let Some(facilities) = &mut self.facilities {
                        let counters = &mut facilities.counters;
                        let counter = if sent { &mut counters.sent[kind] } else { &mut counters.unsent };
                        *counter += 1;
                    }
                    self.collect_router(now);
                }
                Some(Done::Event(den::Event::Ended(action))) => {
                    self.outputs.push_back(Output::EventOver(action.into()));
                }
                // `hear` has already reported the received messages to the applications.
                Some(Done::Event(den::Event::Received { .. }) | Done::Cam(_)) => {}
                None => {
                    let services = &mut facilities.services;
                    for reason in
                        [services.ca.poll_refused(), services.sa.poll_refused()].into_iter().flatten()
                    {
                        facilities.counters.dropped[reason as usize] += 1;
                    }
                    return;
                }
            }
        }
    }
}

impl From<ActionId> for Action {
    fn from(action: ActionId) -> Action {
        Action {
            originating_station_id: action.originating_station_id.0,
            sequence_number: action.sequence_number.0,
        }
    }
}
