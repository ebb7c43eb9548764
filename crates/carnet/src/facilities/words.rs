//! The standard's numbers (TS 102 894-2) by their names, as operators write them.

use carnet_api::config::StationType;
use carnet_its::cdd::CauseCodeType;

/// Causes of events.
pub const CAUSES: [(&str, u8); 26] = [
    ("traffic_condition", CauseCodeType::TRAFFIC_CONDITION.0),
    ("accident", CauseCodeType::ACCIDENT.0),
    ("roadworks", CauseCodeType::ROADWORKS.0),
    ("impassability", CauseCodeType::IMPASSABILITY.0),
    ("adhesion", CauseCodeType::ADVERSE_WEATHER_CONDITION_ADHESION.0),
    ("aquaplaning", CauseCodeType::AQUAPLANING.0),
    ("surface_condition", CauseCodeType::HAZARDOUS_LOCATION_SURFACE_CONDITION.0),
    ("obstacle_on_the_road", CauseCodeType::HAZARDOUS_LOCATION_OBSTACLE_ON_THE_ROAD.0),
    ("animal_on_the_road", CauseCodeType::HAZARDOUS_LOCATION_ANIMAL_ON_THE_ROAD.0),
    ("human_presence_on_the_road", CauseCodeType::HUMAN_PRESENCE_ON_THE_ROAD.0),
    ("wrong_way_driving", CauseCodeType::WRONG_WAY_DRIVING.0),
    ("rescue_and_recovery_work", CauseCodeType::RESCUE_AND_RECOVERY_WORK_IN_PROGRESS.0),
    ("extreme_weather", CauseCodeType::ADVERSE_WEATHER_CONDITION_EXTREME_WEATHER_CONDITION.0),
    ("visibility", CauseCodeType::ADVERSE_WEATHER_CONDITION_VISIBILITY.0),
    ("precipitation", CauseCodeType::ADVERSE_WEATHER_CONDITION_PRECIPITATION.0),
    ("slow_vehicle", CauseCodeType::SLOW_VEHICLE.0),
    ("dangerous_end_of_queue", CauseCodeType::DANGEROUS_END_OF_QUEUE.0),
    ("vehicle_breakdown", CauseCodeType::VEHICLE_BREAKDOWN.0),
    ("post_crash", CauseCodeType::POST_CRASH.0),
    ("human_problem", CauseCodeType::HUMAN_PROBLEM.0),
    ("stationary_vehicle", CauseCodeType::STATIONARY_VEHICLE.0),
    ("emergency_vehicle_approaching", CauseCodeType::EMERGENCY_VEHICLE_APPROACHING.0),
    ("dangerous_curve", CauseCodeType::HAZARDOUS_LOCATION_DANGEROUS_CURVE.0),
    ("collision_risk", CauseCodeType::COLLISION_RISK.0),
    ("signal_violation", CauseCodeType::SIGNAL_VIOLATION.0),
    ("dangerous_situation", CauseCodeType::DANGEROUS_SITUATION.0),
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
