//! Requests of applications to the facilities, and their bodies in the API.

use std::fmt;
use std::time::Duration;

use carnet_base::{Time, hex};
use carnet_its::ItsDrop;
use carnet_its::cdd::{self, Traces};
use carnet_its::den::EventRequest;
use carnet_its::denm::{Denm, LocationContainer};
use carnet_wire::geonet::TrafficClass;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::output::ActionId;
use super::plane::Facilities;
use crate::position::{Area, GnArea, GnPlace};

/// Largest time by which an event's detection time may be ahead of the station's clock.
const MAX_DETECTION_LEAD: Duration = Duration::from_secs(60);

/// Body of `PUT /v1/vehicle`: the data that an application has about the vehicle, from its bus for example.
/// It replaces all data of the request before; an absent value is unknown. Data about the movement is valid
/// for two seconds.
///
/// ```
/// use carnet_cits::facilities::command::Vehicle;
/// let vehicle = r#"{"speed_mps": 13.9, "yaw_rate_dps": -4.5,
///     "exterior_lights": ["low_beam_headlights_on"]}"#;
/// let vehicle: Vehicle = serde_json::from_str(vehicle).expect("a vehicle");
/// assert_eq!((vehicle.speed_mps, vehicle.heading_deg), (Some(13.9), None));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Vehicle {
    /// Speed in metres per second, up to 163.82; that of the position if absent.
    pub speed_mps: Option<f64>,
    /// Heading in degrees clockwise from North; that of the position if absent.
    pub heading_deg: Option<f64>,
    /// `forward` or `backward`.
    pub drive_direction: Option<String>,
    /// Curvature of the path, 1/m, to the left positive: -0.1022 to 0.1022.
    pub curvature_per_m: Option<f64>,
    /// Degrees per second, to the left positive.
    pub yaw_rate_dps: Option<f64>,
    /// Metres per second squared, forwards positive: -16 to 16.
    pub longitudinal_acceleration_mps2: Option<f64>,
    /// Metres per second squared, to the left positive: -16 to 16.
    pub lateral_acceleration_mps2: Option<f64>,
    /// Metres per second squared, upwards positive: -16 to 16.
    pub vertical_acceleration_mps2: Option<f64>,
    /// Degrees, to the left positive: -766.5 to 766.5.
    pub steering_wheel_angle_deg: Option<f64>,
    /// The lane, from inside: 1 is the innermost driving lane, -1 off the road, 0 and 14 the hard shoulders.
    pub lane: Option<i8>,
    /// Controls that act on the speed, by the standard's names, such as `brake_pedal_engaged`; `null` if
    /// unknown.
    pub acceleration_control: Option<Vec<String>>,
    /// Lights that are on, in the standard's names: `low_beam_headlights_on` and so on.
    pub exterior_lights: Vec<String>,
    /// Length in metres; that of the config if absent.
    pub length_m: Option<f64>,
    /// Width in metres; that of the config if absent.
    pub width_m: Option<f64>,
    /// Role of the vehicle, a word of the config's `facilities.role`; that of the config if absent.
    pub role: Option<String>,
    /// Whether the light bar is on, for a vehicle whose role has one.
    pub light_bar: bool,
    /// Whether the siren is on, for a vehicle whose role has one.
    pub siren: bool,
    /// Whether people get on and off, for public transport.
    pub embarkation: bool,
}

/// Cause of an event on the road: causeCode of TS 102 894-2. In a request it is a number or one of
/// [`Cause::CAUSE_NAMES`], in an answer a number.
///
/// ```
/// use carnet_cits::facilities::command::Cause;
/// let read = |text| serde_json::from_str::<Cause>(text).ok();
/// assert_eq!(read("94"), read("\"stationary_vehicle\""));
/// assert_eq!(read("\"boredom\""), None);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Cause(pub u8);

impl Cause {
    /// Each cause's name and its causeCode.
    pub const CAUSE_NAMES: [(&str, u8); 26] = [
        ("traffic_condition", 1),
        ("accident", 2),
        ("roadworks", 3),
        ("impassability", 5),
        ("adhesion", 6),
        ("aquaplaning", 7),
        ("surface_condition", 9),
        ("obstacle_on_the_road", 10),
        ("animal_on_the_road", 11),
        ("human_presence_on_the_road", 12),
        ("wrong_way_driving", 14),
        ("rescue_and_recovery_work", 15),
        ("extreme_weather", 17),
        ("visibility", 18),
        ("precipitation", 19),
        ("slow_vehicle", 26),
        ("dangerous_end_of_queue", 27),
        ("vehicle_breakdown", 91),
        ("post_crash", 92),
        ("human_problem", 93),
        ("stationary_vehicle", 94),
        ("emergency_vehicle_approaching", 95),
        ("dangerous_curve", 96),
        ("collision_risk", 97),
        ("signal_violation", 98),
        ("dangerous_situation", 99),
    ];
}

impl<'de> Deserialize<'de> for Cause {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cause, D::Error> {
        struct CauseVisitor;

        impl Visitor<'_> for CauseVisitor {
            type Value = Cause;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a cause from 0 to 255 or one of ")?;
                let names = Cause::CAUSE_NAMES.map(|(name, _)| name);
                f.write_str(&names.join(", "))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Cause, E> {
                let cause = u8::try_from(number).map(Cause);
                cause.map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Cause, E> {
                let known = Cause::CAUSE_NAMES.iter().find(|(name, _)| *name == word);
                let cause = known.map(|(_, number)| Cause(*number));
                cause.ok_or_else(|| E::invalid_value(Unexpected::Str(word), &self))
            }
        }

        deserializer.deserialize_any(CauseVisitor)
    }
}

/// Body of `POST /v1/denm`, and of the requests about an existing event: `/v1/denm/update`, `/v1/denm/cancel`
/// and `/v1/denm/negate`. These have the action ID, and the latter two need nothing else.
///
/// ```
/// use carnet_cits::facilities::command::DenmRequest;
/// let request = r#"{"cause": 94, "relevance_distance_m": 500, "repetition_interval_ms": 500,
///     "repetition_duration_ms": 60000}"#;
/// let request: DenmRequest = serde_json::from_str(request).expect("a request");
/// assert_eq!((request.cause.0, request.position), (94, None));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DenmRequest {
    /// Action ID of the event; `null` for a new event.
    pub action_id: Option<ActionId>,
    /// Cause of the event: causeCode of TS 102 894-2, as a number or by its name.
    pub cause: Cause,
    /// Sub-cause of the event; 0 if unknown.
    pub sub_cause: u8,
    /// Quality of the information, 1 to 7; 0 if unknown.
    pub information_quality: u8,
    /// Position of the event; `null`: the position of the station.
    pub position: Option<GnPlace>,
    /// Time of the detection in milliseconds as messages count them (TimestampIts: since 2004, without leap
    /// seconds); `null`: now.
    pub detection_time: Option<u64>,
    /// Duration of the event from its detection, seconds up to 86400; `null` for 600.
    pub validity_s: Option<u32>,
    /// Interval of the repetition, milliseconds; `null`: no repetition.
    pub repetition_interval_ms: Option<u64>,
    /// Duration of the repetition, milliseconds.
    pub repetition_duration_ms: Option<u64>,
    /// Distance in metres within which the event matters. The message has it as under 50, 100, 200, 500 m, 1,
    /// 5, 10 km, or more; `null`: the message does not have it.
    pub relevance_distance_m: Option<u32>,
    /// Traffic for which the event matters: `all`, `upstream`, `downstream` or `opposite`; `null`: the
    /// message does not have it.
    pub relevance_traffic_direction: Option<String>,
    /// Speed of the event, metres per second.
    pub event_speed_mps: Option<f64>,
    /// Heading of the event, degrees clockwise from North.
    pub event_heading_deg: Option<f64>,
    /// Lane of the event, as in [`Vehicle::lane`].
    pub lane: Option<i8>,
    /// Temperature of the air at the event, degrees Celsius.
    pub temperature_c: Option<i8>,
    /// Destination area of the message; `null`: the relevance distance around the event, at most 1784 m; 1000
    /// m without a relevance distance.
    pub area: Option<GnArea>,
    /// Traffic Class of EN 302 636-4-1 9.7.5; `null` for the service's own.
    pub traffic_class: Option<u8>,
}

/// Answer to `POST /v1/denm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Triggered {
    /// Action ID of the new event.
    pub action_id: ActionId,
}

/// Kind of an application's request about an event (EN 302 637-3 5.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DenmAction {
    /// AppDENM_trigger: a new event.
    Trigger,
    /// AppDENM_update: new content of an own event.
    Update,
    /// AppDENM_termination of an own event.
    Cancel,
    /// AppDENM_termination of another station's event.
    Negate,
}

/// An application's request about an event, with the content of the event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DenmCommand {
    /// Kind of the request.
    pub wish: DenmAction,
    /// Content of the event as a DENM: UPER octets, without the BTP header. The station ignores the DENM's
    /// header, reference time and termination, and the action ID of a new event. A detection time of 0 means
    /// now. Without a position the event is at the station.
    #[serde(with = "hex")]
    pub denm: Vec<u8>,
    /// Duration of the repetition in milliseconds. The station repeats only with both duration and interval.
    pub repetition_duration_ms: Option<u64>,
    /// Interval of the repetition in milliseconds. The station repeats only with both duration and interval.
    pub repetition_interval_ms: Option<u64>,
    /// Destination area; if `None`, the relevance area around the event.
    pub area: Option<Area>,
    /// Traffic Class (9.7.5), eight bits; `None`: the default of the service.
    #[serde(default)]
    pub traffic_class: Option<u8>,
}

impl Facilities {
    /// Executes an application's request about an event. Returns the action ID of a new event.
    pub(crate) fn handle_denm_command(
        &mut self,
        now: Time,
        order: &DenmCommand,
    ) -> Result<Option<cdd::ActionId>, String> {
        let denm: Denm = Denm::from_octets(&order.denm).map_err(|error| {
            format!(
                "the request does not contain a DENM: \
                 {error}"
            )
        })?;
        let management = denm.denm.management;
        let action_id = management.action_id;
        let at = self.now(now);
        if management.detection_time > at.timestamp.after_duration(MAX_DETECTION_LEAD) {
            return Err(format!(
                "the detection time of the event, {}, is in the future: expected at most {}",
                management.detection_time.0, at.timestamp.0
            ));
        }
        let here = self.own_position.map(|position| self.reference_position(&position));
        let is_here = management.event_position.position().is_none();
        let event_position = if is_here { here.unwrap_or_default() } else { management.event_position };
        // If the event is at the station's own position, the trace that leads to the event is the path of the
        // station.
        let way = || LocationContainer {
            traces: Traces(vec![self.path_recorder.path_history()]),
            ..Default::default()
        };
        let mut location = denm.denm.location.or_else(|| is_here.then(way));
        // An application that states the speed or heading of the event gives either no trace or a trace
        // without points.
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
        let den = &mut self.services.den_service;
        let result = match order.wish {
            DenmAction::Trigger => den.trigger_event(at, &request).map(Some),
            DenmAction::Update => den.update_event(at, action_id, &request).map(|()| None),
            DenmAction::Cancel if !den.is_own_event(action_id) => {
                return Err(format!("event {} does not belong to this station", action_id_text(action_id)));
            }
            DenmAction::Negate if den.is_own_event(action_id) => {
                return Err(format!(
                    "event {} belongs to this station: cancel it instead of negating it",
                    action_id_text(action_id)
                ));
            }
            DenmAction::Cancel | DenmAction::Negate => {
                den.terminate_event(at, action_id, &request).map(|()| None)
            }
        };
        result.map_err(|reason| match reason {
            ItsDrop::UnknownEvent => {
                format!("event {} does not exist, or it has ended", action_id_text(action_id))
            }
            ItsDrop::NoPosition => "the request has no event position, and this station has no position \
                 of its own"
                .into(),
            ItsDrop::Expired => "the event has already ended".into(),
            ItsDrop::TableFull => "this station already has the largest number of events".into(),
            other => format!("the station cannot send the message about the event: {other}"),
        })
    }
}

fn action_id_text(action: cdd::ActionId) -> String {
    format!("{}:{}", action.originating_station_id.0, action.sequence_number.0)
}
