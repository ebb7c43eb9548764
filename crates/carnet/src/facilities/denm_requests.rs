//! Converts an application's request about an event on the road to the DENM that the station sends.

use carnet_api::model::DenmRequest;
use carnet_cits::position::to_tenths_of_microdegrees;
use carnet_its::cdd::{
    ActionId, CauseCode, CauseCodeType, Heading, HeadingValue, InformationQuality, Latitude, Longitude,
    RelevanceDistance, RelevanceTrafficDirection, SequenceNumber, Speed, SpeedValue, StationId,
    SubCauseCodeType, Temperature, TimestampIts, TransmissionInterval, ValidityDuration,
};
use carnet_its::denm::{AlacarteContainer, Denm, LocationContainer, SituationContainer};
use carnet_station::io::{Area, DenmAction, DenmCommand};

use super::vehicle_data::{lane_position, scale_value};

/// Maximum repetition duration and validity in milliseconds: one day.
const MAX_DURATION_MS: u64 = 86_400_000;
/// Minimum interval between messages about an event, in milliseconds.
const MIN_REPETITION_MS: u64 = 10;
/// Traffic directions for which an event is relevant, in the standard's order.
const TRAFFIC_DIRECTIONS: [(&str, RelevanceTrafficDirection); 4] = [
    ("all", RelevanceTrafficDirection::AllTrafficDirections),
    ("upstream", RelevanceTrafficDirection::UpstreamTraffic),
    ("downstream", RelevanceTrafficDirection::DownstreamTraffic),
    ("opposite", RelevanceTrafficDirection::OppositeTraffic),
];

/// Returns the DENM that the station sends for a request.
///
/// # Errors
/// Returns the mistake, with the expected value.
pub fn denm_for_station(wish: DenmAction, request: &DenmRequest) -> Result<Vec<u8>, String> {
    let mut denm = Denm::default();
    let management = &mut denm.denm.management;
    match (wish, request.action_id) {
        (DenmAction::Trigger, Some(_)) => {
            return Err("a new event gets its action_id from the station, expected none".into());
        }
        (DenmAction::Trigger, None) => {}
        (_, Some(action)) => {
            management.action_id = ActionId {
                originating_station_id: StationId(action.originating_station_id),
                sequence_number: SequenceNumber(action.sequence_number),
            };
        }
        (_, None) => return Err("action_id is missing: which event?".into()),
    }
    for (name, value) in [
        ("repetition_interval_ms", request.repetition_interval_ms),
        ("repetition_duration_ms", request.repetition_duration_ms),
    ] {
        if let Some(value) = value.filter(|value| !(MIN_REPETITION_MS..=MAX_DURATION_MS).contains(value)) {
            return Err(format!("{name} is {value}, expected {MIN_REPETITION_MS} to {MAX_DURATION_MS}"));
        }
    }
    if request.repetition_interval_ms.is_some() != request.repetition_duration_ms.is_some() {
        return Err(
            "repetition_interval_ms and repetition_duration_ms go together, expected both or none".into()
        );
    }
    if let Some(place) = request.position {
        let (latitude, longitude) = (place.latitude, place.longitude);
        if !(-90.0..=90.0).contains(&latitude) || !(-180.0..=180.0).contains(&longitude) {
            return Err(format!("{latitude}, {longitude} is not on the globe"));
        }
        management.event_position.latitude = Latitude(to_tenths_of_microdegrees(latitude));
        management.event_position.longitude = Longitude(to_tenths_of_microdegrees(longitude));
    }
    if let Some(validity) = request.validity_s {
        if !(1..=ValidityDuration::MOST).contains(&validity) {
            return Err(format!("validity_s is {validity}, expected 1 to {}", ValidityDuration::MOST));
        }
        management.validity_duration = ValidityDuration(validity);
    }
    if let Some(time) = request.detection_time {
        if !(1..=TimestampIts::MOST).contains(&time) {
            return Err(format!("detection_time is {time}, expected 1 to {}", TimestampIts::MOST));
        }
        management.detection_time = TimestampIts(time);
    }
    // Receivers learn from this field when to expect the next message (6.1.2.2 and B.10).
    management.transmission_interval = request
        .repetition_interval_ms
        .and_then(|interval| u16::try_from(interval).ok())
        .filter(|interval| *interval <= TransmissionInterval::MOST)
        .map(TransmissionInterval);
    management.relevance_distance = request.relevance_distance_m.map(relevance_distance);
    management.relevance_traffic_direction = match request.relevance_traffic_direction.as_deref() {
        None => None,
        Some(word) => {
            let known = TRAFFIC_DIRECTIONS.iter().find(|(name, _)| *name == word);
            let names = TRAFFIC_DIRECTIONS.map(|(name, _)| name).join(", ");
            let known = known
                .ok_or_else(|| format!("relevance_traffic_direction is {word:?}, expected one of {names}"))?;
            Some(known.1)
        }
    };
    if matches!(wish, DenmAction::Trigger | DenmAction::Update) {
        if request.cause.0 == 0 {
            return Err("cause is missing: what happens, a causeCode from 1 to 255?".into());
        }
        if request.information_quality > InformationQuality::MOST {
            return Err(format!("information_quality is {}, expected 0 to 7", request.information_quality));
        }
        denm.denm.situation = Some(SituationContainer {
            information_quality: InformationQuality(request.information_quality),
            event_type: CauseCode {
                cause_code: CauseCodeType(request.cause.0),
                sub_cause_code: SubCauseCodeType(request.sub_cause),
            },
            ..SituationContainer::default()
        });
        denm.denm.location = location_container(request)?;
        let temperature = request
            .temperature_c
            .map(|degrees| Temperature(degrees.clamp(Temperature::LEAST, Temperature::MOST)));
        let lane = request.lane.map(lane_position).transpose()?;
        denm.denm.alacarte = (temperature.is_some() || lane.is_some()).then(|| AlacarteContainer {
            lane_position: lane,
            external_temperature: temperature,
            ..AlacarteContainer::default()
        });
    }
    denm.to_octets().map_err(|error| error.to_string())
}

/// Returns the location container for an event that moves; `None` if the request has no movement.
fn location_container(request: &DenmRequest) -> Result<Option<LocationContainer>, String> {
    let speed = scale_value("event_speed_mps", request.event_speed_mps, 100.0, 0, 16_382)?;
    let heading = scale_value("event_heading_deg", request.event_heading_deg, 10.0, 0, 3600)?;
    if speed.is_none() && heading.is_none() {
        return Ok(None);
    }
    Ok(Some(LocationContainer {
        event_speed: speed.map(|speed| Speed { speed_value: SpeedValue(speed as u16), ..Speed::default() }),
        event_position_heading: heading.map(|heading| Heading {
            heading_value: HeadingValue(heading as u16 % 3600),
            ..Heading::default()
        }),
        // The container needs at least one trace; this trace has no points. If the event is at the station's
        // position, the station replaces the trace by its own path.
        traces: carnet_its::cdd::Traces(vec![Default::default()]),
        ..LocationContainer::default()
    }))
}

/// Returns the standard's smallest relevance distance that contains this distance.
fn relevance_distance(metres: u32) -> RelevanceDistance {
    let classes = RelevanceDistance::ALL.iter().copied();
    let mut fitting = classes.filter(|class| *class != RelevanceDistance::Over10km);
    fitting.find(|class| metres <= class.to_metres().into()).unwrap_or(RelevanceDistance::Over10km)
}

/// Returns the order to the station to trigger, update or end the event; `area` is the destination area of
/// the DENM.
pub fn denm_order(wish: DenmAction, denm: Vec<u8>, request: &DenmRequest, area: Option<Area>) -> DenmCommand {
    DenmCommand {
        wish,
        denm,
        repetition_duration_ms: request.repetition_duration_ms,
        repetition_interval_ms: request.repetition_interval_ms,
        area,
        traffic_class: request.traffic_class,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denm_from_json(wish: DenmAction, json: &str) -> Result<Denm, String> {
        let request: DenmRequest = serde_json::from_str(json).expect("a request");
        denm_for_station(wish, &request).map(|octets| Denm::from_octets(&octets).expect("a DENM"))
    }

    #[test]
    fn denm_request_is_converted_to_units_of_the_standard() {
        let told = denm_from_json(
            DenmAction::Trigger,
            r#"{"cause": 94, "sub_cause": 2, "information_quality": 3, "validity_s": 60,
                "position": {"latitude": 48.8375, "longitude": 2.1008}, "relevance_distance_m": 201,
                "relevance_traffic_direction": "upstream", "repetition_interval_ms": 500,
                "repetition_duration_ms": 60000, "event_heading_deg": 90, "temperature_c": -3}"#,
        )
        .expect("a DENM")
        .denm;
        let management = told.management;
        assert_eq!(
            (management.event_position.latitude.0, management.event_position.longitude.0),
            (488_375_000, 21_008_000)
        );
        assert_eq!(management.validity_duration, ValidityDuration(60));
        assert_eq!(management.transmission_interval, Some(TransmissionInterval(500)));
        assert_eq!(management.relevance_distance, Some(RelevanceDistance::LessThan500m));
        let direction = Some(RelevanceTrafficDirection::UpstreamTraffic);
        assert_eq!((management.relevance_traffic_direction, management.detection_time.0), (direction, 0));
        let situation = told.situation.expect("a situation");
        assert_eq!((situation.event_type.cause_code.0, situation.event_type.sub_cause_code.0), (94, 2));
        let heading = told.location.and_then(|location| location.event_position_heading);
        assert_eq!(heading.map(|heading| heading.heading_value.0), Some(900));
        assert_eq!(told.alacarte.and_then(|more| more.external_temperature), Some(Temperature(-3)));
    }

    #[test]
    fn cancelling_an_event_needs_only_its_action_id() {
        let end = r#"{"action_id": {"originating_station_id": 7, "sequence_number": 3}}"#;
        let told = denm_from_json(DenmAction::Cancel, end).expect("a DENM").denm;
        assert_eq!(told.management.action_id.sequence_number, SequenceNumber(3));
        assert_eq!((told.situation, told.location), (None, None));
    }

    #[test]
    fn relevance_distance_becomes_a_class_of_the_standard() {
        for (metres, class) in [
            (0, RelevanceDistance::LessThan50m),
            (50, RelevanceDistance::LessThan50m),
            (51, RelevanceDistance::LessThan100m),
            (10_000, RelevanceDistance::LessThan10km),
            (10_001, RelevanceDistance::Over10km),
        ] {
            assert_eq!(relevance_distance(metres), class, "{metres}");
        }
    }

    #[test]
    fn invalid_denm_requests_are_refused_with_reason() {
        let named = r#"{"cause": 1, "action_id": {"originating_station_id": 7, "sequence_number": 3}}"#;
        for (wish, json, expected) in [
            (DenmAction::Trigger, "{}", "cause is missing"),
            (DenmAction::Trigger, named, "a new event gets its action_id from the station"),
            (DenmAction::Update, r#"{"cause": 1}"#, "action_id is missing"),
            (
                DenmAction::Trigger,
                r#"{"cause": 1, "information_quality": 8}"#,
                "information_quality is 8, expected 0 to 7",
            ),
            (DenmAction::Trigger, r#"{"cause": 1, "validity_s": 0}"#, "validity_s is 0, expected 1 to 86400"),
            (
                DenmAction::Trigger,
                r#"{"cause": 1, "detection_time": 0}"#,
                "detection_time is 0, expected 1 to",
            ),
            (DenmAction::Trigger, r#"{"cause": 1, "repetition_interval_ms": 100}"#, "go together"),
            (
                DenmAction::Trigger,
                r#"{"cause": 1, "repetition_interval_ms": 1, "repetition_duration_ms": 100}"#,
                "repetition_interval_ms is 1, expected 10 to",
            ),
            (
                DenmAction::Trigger,
                r#"{"cause": 1, "position": {"latitude": 91, "longitude": 0}}"#,
                "not on the globe",
            ),
            (
                DenmAction::Trigger,
                r#"{"cause": 1, "relevance_traffic_direction": "left"}"#,
                "relevance_traffic_direction is \"left\", expected one of all, upstream",
            ),
        ] {
            let told = denm_from_json(wish, json).expect_err(json);
            assert!(told.contains(expected), "{json}: {told}");
        }
    }
}
