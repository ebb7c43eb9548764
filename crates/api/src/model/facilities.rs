//! Facilities: what a station says of its vehicle and of events on the road, and what it has heard of others.

use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::geonet::{GnArea, GnPlace};

/// Body of `PUT /v1/vehicle`: what an application knows of the vehicle, from its bus for example. It takes
/// the place of what was told before; what is absent is not known. What says how the vehicle moves counts for
/// two seconds.
///
/// ```
/// use carnet_api::model::Vehicle;
/// let vehicle = r#"{"speed_mps": 13.9, "yaw_rate_dps": -4.5, "exterior_lights": ["low_beam_headlights_on"]}"#;
/// let vehicle: Vehicle = serde_json::from_str(vehicle).expect("a vehicle");
/// assert_eq!((vehicle.speed_mps, vehicle.heading_deg), (Some(13.9), None));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Vehicle {
    /// Metres per second, up to 163.82; as the position has it where absent.
    pub speed_mps: Option<f64>,
    /// Degrees clockwise from North; as the position has it where absent.
    pub heading_deg: Option<f64>,
    /// `forward` or `backward`.
    pub drive_direction: Option<String>,
    /// Curvature of the way, 1/m, to the left positive: -0.1022 to 0.1022.
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
    /// Which lights are on, in the standard's names: `low_beam_headlights_on` and so on.
    pub exterior_lights: Vec<String>,
    /// Metres; as the config has it where absent.
    pub length_m: Option<f64>,
    /// Metres; as the config has it where absent.
    pub width_m: Option<f64>,
    /// What the vehicle is doing, a word of the config's `facilities.role`; as the config has it where
    /// absent.
    pub role: Option<String>,
    /// Of a vehicle with a role that has them: the light bar is on.
    pub light_bar: bool,
    /// The siren is.
    pub siren: bool,
    /// Of public transport: people get on and off.
    pub embarkation: bool,
}

/// Names an event on the road, whoever speaks of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionId {
    /// The station that spoke of it first.
    pub originating_station_id: u32,
    /// Which of its events.
    pub sequence_number: u16,
}

/// What happens on the road: causeCode of TS 102 894-2. In a request it is a number or one of
/// [`Cause::NAMES`], in an answer a number.
///
/// ```
/// use carnet_api::model::Cause;
/// let read = |text| serde_json::from_str::<Cause>(text).ok();
/// assert_eq!(read("94"), read("\"stationary_vehicle\""));
/// assert_eq!(read("\"boredom\""), None);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Cause(pub u8);

impl Cause {
    /// The names.
    pub const NAMES: [(&str, u8); 26] = [
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
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Cause;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a cause from 0 to 255 or one of ")?;
                let names = Cause::NAMES.map(|(name, _)| name);
                f.write_str(&names.join(", "))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Cause, E> {
                let cause = u8::try_from(number).map(Cause);
                cause.map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Cause, E> {
                let known = Cause::NAMES.iter().find(|(name, _)| *name == word);
                let cause = known.map(|(_, number)| Cause(*number));
                cause.ok_or_else(|| E::invalid_value(Unexpected::Str(word), &self))
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

/// Body of `POST /v1/denm`, and of what may follow it: `/v1/denm/update`, `/v1/denm/cancel` and
/// `/v1/denm/negate`, which name the event. The latter two need no more than that.
///
/// ```
/// use carnet_api::model::DenmRequest;
/// let request = r#"{"cause": 94, "relevance_distance_m": 500, "repetition_interval_ms": 500, "repetition_duration_ms": 60000}"#;
/// let request: DenmRequest = serde_json::from_str(request).expect("a request");
/// assert_eq!((request.cause.0, request.position), (94, None));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DenmRequest {
    /// The event; `null` for a new one.
    pub action_id: Option<ActionId>,
    /// What happens: causeCode of TS 102 894-2, as a number or by its name.
    pub cause: Cause,
    /// More precisely; 0 where nothing is known.
    pub sub_cause: u8,
    /// How sure that is, 1 to 7; 0 if that is unknown.
    pub information_quality: u8,
    /// Where; `null`: where the station is.
    pub position: Option<GnPlace>,
    /// When it was detected, milliseconds as messages count them (TimestampIts: since 2004, without leap
    /// seconds); `null`: now.
    pub detection_time: Option<u64>,
    /// How long it lasts from then on, seconds up to 86400; `null` for 600.
    pub validity_s: Option<u32>,
    /// How often it is told again, milliseconds; `null`: not at all.
    pub repetition_interval_ms: Option<u64>,
    /// For how long, milliseconds.
    pub repetition_duration_ms: Option<u64>,
    /// How far it matters, metres: told as under 50, 100, 200, 500 m, 1, 5, 10 km, or more; `null`: nothing
    /// is said.
    pub relevance_distance_m: Option<u32>,
    /// To whom: `all`, `upstream`, `downstream` or `opposite`; `null`: nothing is said.
    pub relevance_traffic_direction: Option<String>,
    /// How fast the event moves, metres per second.
    pub event_speed_mps: Option<f64>,
    /// Where to, degrees clockwise from North.
    pub event_heading_deg: Option<f64>,
    /// The lane that it is on, as in [`Vehicle::lane`].
    pub lane: Option<i8>,
    /// Temperature of the air there, degrees Celsius.
    pub temperature_c: Option<i8>,
    /// Where the message goes; `null`: as far around the event as it matters, at most 1784 m; 1000 m where
    /// that is not said.
    pub area: Option<GnArea>,
    /// Traffic Class of EN 302 636-4-1 9.7.5; `null` for the service's own.
    pub traffic_class: Option<u8>,
}

/// Answer to `POST /v1/denm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Triggered {
    /// What the event is called from now on.
    pub action_id: ActionId,
}

/// The Local Dynamic Map, or what was asked for of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ldm {
    /// Stations of which CAMs came within the last three seconds.
    pub stations: Vec<LdmStation>,
    /// Events on the road that go on.
    pub events: Vec<LdmEvent>,
}

/// A service that a station announces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AnnouncedService {
    /// Number of the station; `null` for this one's own.
    pub station_id: Option<u32>,
    /// The station's name for people; `null` where it has none.
    pub advertiser: Option<String>,
    /// What it is (ITS-AID).
    pub its_aid: u32,
    /// Where it is reached; `null` where it does not say.
    pub address: Option<std::net::Ipv6Addr>,
    /// Its port; `null` where it does not say.
    pub port: Option<u16>,
    /// Seconds until it is forgotten, unless it is announced again; `null` for this station's own.
    pub remaining_s: Option<f64>,
}

/// A station, as its last CAM has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LdmStation {
    /// Its number, which changes with its pseudonym.
    pub station_id: u32,
    /// What it is: a word of the config's `geonet.station_type`, or a number.
    pub station_type: String,
    /// Degrees, north positive.
    pub latitude: f64,
    /// Degrees, east positive.
    pub longitude: f64,
    /// The longer half axis of the ellipse that holds the position with 95 % probability; `null` if unknown.
    pub confidence_m: Option<f64>,
    /// Metres per second; `null` if unknown.
    pub speed_mps: Option<f64>,
    /// Degrees clockwise from North; `null` if unknown.
    pub heading_deg: Option<f64>,
    /// Metres; `null` if unknown.
    pub length_m: Option<f64>,
    /// Metres; `null` if unknown.
    pub width_m: Option<f64>,
    /// Milliseconds since it was heard.
    pub age_ms: u64,
}

/// An event, as the last DENM about it has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LdmEvent {
    /// What it is called.
    pub action_id: ActionId,
    /// Cause of the event (causeCode); `null` if the message has none.
    pub cause: Option<u8>,
    /// More precisely.
    pub sub_cause: Option<u8>,
    /// How sure that is, 1 to 7; 0 if that is unknown.
    pub information_quality: u8,
    /// Degrees, north positive.
    pub latitude: f64,
    /// Degrees, east positive.
    pub longitude: f64,
    /// Distance in metres within which the event matters, 10000 for any greater distance; `null` if the
    /// message has none.
    pub relevance_distance_m: Option<u16>,
    /// What said so, as in [`LdmStation::station_type`].
    pub station_type: String,
    /// When it was detected: milliseconds of TAI since 2004.
    pub detection_time: u64,
    /// To which state of it the message refers, likewise.
    pub reference_time: u64,
    /// Milliseconds since it was heard of.
    pub age_ms: u64,
    /// Seconds until it is over.
    pub remaining_s: u32,
}
