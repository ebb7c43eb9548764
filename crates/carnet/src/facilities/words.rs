//! The standard's numbers (TS 102 894-2) by their names, as operators write them.

use carnet_api::config::StationType;
use carnet_its::cdd::cause;

/// Causes of events.
pub const CAUSES: [(&str, u8); 26] = [
    ("traffic_condition", cause::TRAFFIC_CONDITION.0),
    ("accident", cause::ACCIDENT.0),
    ("roadworks", cause::ROADWORKS.0),
    ("impassability", cause::IMPASSABILITY.0),
    ("adhesion", cause::ADVERSE_WEATHER_ADHESION.0),
    ("aquaplaning", cause::AQUAPLANING.0),
    ("surface_condition", cause::HAZARDOUS_LOCATION_SURFACE_CONDITION.0),
    ("obstacle_on_the_road", cause::HAZARDOUS_LOCATION_OBSTACLE_ON_THE_ROAD.0),
    ("animal_on_the_road", cause::HAZARDOUS_LOCATION_ANIMAL_ON_THE_ROAD.0),
    ("human_presence_on_the_road", cause::HUMAN_PRESENCE_ON_THE_ROAD.0),
    ("wrong_way_driving", cause::WRONG_WAY_DRIVING.0),
    ("rescue_and_recovery_work", cause::RESCUE_AND_RECOVERY_WORK_IN_PROGRESS.0),
    ("extreme_weather", cause::ADVERSE_WEATHER_EXTREME_CONDITION.0),
    ("visibility", cause::ADVERSE_WEATHER_VISIBILITY.0),
    ("precipitation", cause::ADVERSE_WEATHER_PRECIPITATION.0),
    ("slow_vehicle", cause::SLOW_VEHICLE.0),
    ("dangerous_end_of_queue", cause::DANGEROUS_END_OF_QUEUE.0),
    ("vehicle_breakdown", cause::VEHICLE_BREAKDOWN.0),
    ("post_crash", cause::POST_CRASH.0),
    ("human_problem", cause::HUMAN_PROBLEM.0),
    ("stationary_vehicle", cause::STATIONARY_VEHICLE.0),
    ("emergency_vehicle_approaching", cause::EMERGENCY_VEHICLE_APPROACHING.0),
    ("dangerous_curve", cause::HAZARDOUS_LOCATION_DANGEROUS_CURVE.0),
    ("collision_risk", cause::COLLISION_RISK.0),
    ("signal_violation", cause::SIGNAL_VIOLATION.0),
    ("dangerous_situation", cause::DANGEROUS_SITUATION.0),
];

/// A name for a number, the number itself where it has none.
pub fn name(names: &[(&str, u8)], number: u8) -> String {
    let known = names.iter().find(|(_, known)| *known == number);
    known.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
}

/// The number of a name, or one that is written as it is.
pub fn number(names: &[(&str, u8)], text: &str) -> Option<u8> {
    let known = names.iter().find(|(name, _)| *name == text);
    known.map(|(_, number)| *number).or_else(|| text.parse().ok())
}

/// Types of stations.
pub fn station_types() -> [(&'static str, u8); 13] {
    StationType::NAMES.map(|(name, kind)| (name, kind.number()))
}

/// The names, in a sentence.
pub fn list(names: &[(&str, u8)]) -> String {
    names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}
