//! Names of the numbers in the standard (TS 102 894-2), as operators write them.

use carnet_api::config::StationType;
use carnet_api::model::Cause;

/// Names and numbers of the causes of events.
pub const CAUSE_NAMES: [(&str, u8); 26] = Cause::CAUSE_NAMES;

/// Returns the name of a number. A number without a name is returned as digits.
pub fn name_of_number(names: &[(&str, u8)], number: u8) -> String {
    let known = names.iter().find(|(_, known)| *known == number);
    known.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
}

/// Returns the number that belongs to a name in `names`; a text of digits is a number itself. Returns `None`
/// for an unknown name.
pub fn number_of_name(names: &[(&str, u8)], text: &str) -> Option<u8> {
    let known = names.iter().find(|(name, _)| *name == text);
    known.map(|(_, number)| *number).or_else(|| text.parse().ok())
}

/// Returns the names and numbers of station types.
pub fn station_type_names() -> [(&'static str, u8); 13] {
    StationType::STATION_TYPE_NAMES.map(|(name, kind)| (name, kind.type_number()))
}

/// Returns the names as a list for a sentence.
pub fn list_names(names: &[(&str, u8)]) -> String {
    names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use carnet_its::cdd::CauseCodeType;

    use super::*;

    /// The API and the module of the standard's causes must have the same names.
    #[test]
    fn names_of_causes_have_the_numbers_of_the_standard() {
        let expected = [
            ("traffic_condition", CauseCodeType::TRAFFIC_CONDITION),
            ("accident", CauseCodeType::ACCIDENT),
            ("roadworks", CauseCodeType::ROADWORKS),
            ("impassability", CauseCodeType::IMPASSABILITY),
            ("adhesion", CauseCodeType::ADVERSE_WEATHER_CONDITION_ADHESION),
            ("aquaplaning", CauseCodeType::AQUAPLANING),
            ("surface_condition", CauseCodeType::HAZARDOUS_LOCATION_SURFACE_CONDITION),
            ("obstacle_on_the_road", CauseCodeType::HAZARDOUS_LOCATION_OBSTACLE_ON_THE_ROAD),
            ("animal_on_the_road", CauseCodeType::HAZARDOUS_LOCATION_ANIMAL_ON_THE_ROAD),
            ("human_presence_on_the_road", CauseCodeType::HUMAN_PRESENCE_ON_THE_ROAD),
            ("wrong_way_driving", CauseCodeType::WRONG_WAY_DRIVING),
            ("rescue_and_recovery_work", CauseCodeType::RESCUE_AND_RECOVERY_WORK_IN_PROGRESS),
            ("extreme_weather", CauseCodeType::ADVERSE_WEATHER_CONDITION_EXTREME_WEATHER_CONDITION),
            ("visibility", CauseCodeType::ADVERSE_WEATHER_CONDITION_VISIBILITY),
            ("precipitation", CauseCodeType::ADVERSE_WEATHER_CONDITION_PRECIPITATION),
            ("slow_vehicle", CauseCodeType::SLOW_VEHICLE),
            ("dangerous_end_of_queue", CauseCodeType::DANGEROUS_END_OF_QUEUE),
            ("vehicle_breakdown", CauseCodeType::VEHICLE_BREAKDOWN),
            ("post_crash", CauseCodeType::POST_CRASH),
            ("human_problem", CauseCodeType::HUMAN_PROBLEM),
            ("stationary_vehicle", CauseCodeType::STATIONARY_VEHICLE),
            ("emergency_vehicle_approaching", CauseCodeType::EMERGENCY_VEHICLE_APPROACHING),
            ("dangerous_curve", CauseCodeType::HAZARDOUS_LOCATION_DANGEROUS_CURVE),
            ("collision_risk", CauseCodeType::COLLISION_RISK),
            ("signal_violation", CauseCodeType::SIGNAL_VIOLATION),
            ("dangerous_situation", CauseCodeType::DANGEROUS_SITUATION),
        ];
        assert_eq!(CAUSE_NAMES, expected.map(|(name, code)| (name, code.0)));
    }
}
