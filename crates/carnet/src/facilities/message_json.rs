//! CAM and DENM as JSON, in the format that V2X gateways over MQTT use: Orange's `its-client`, schemas of
//! version 1.1.3.
//!
//! Names are those of the standard in snake case. Values are the standard's numbers: 0.1 microdegree, 0.01
//! m/s and so on. A bit string is a text of `0` and `1`. The confidences of all fields of a container are in
//! its object `confidence`. An optional field that the message does not have is absent. A roadside unit's
//! high-frequency container is empty, because the format has no fields for it.
//!
//! Left out, because the format does not have them: special vehicle containers and protected zones of a CAM.
//! Of a DENM's à-la-carte container, the format has only lane and positioning solution.

use carnet_its::cam::{
    BasicVehicleContainerHighFrequency, BasicVehicleContainerLowFrequency, Cam, HighFrequencyContainer,
    LowFrequencyContainer,
};
use carnet_its::cdd::{
    CurvatureCalculationMode, PathHistory, PathPoint, PositioningSolutionType, ReferencePosition,
};
use carnet_its::denm::{Denm, LocationContainer, ManagementContainer, SituationContainer};
use carnet_station::io::MessageKind;
use serde_json::{Map, Value};

use super::ReceivedMessage;

/// Version of the JSON format.
const JSON_FORMAT_VERSION: &str = "1.1.3";

/// Returns a message in the envelope for other gateways, with its source and time (milliseconds since 1970).
pub fn message_in_envelope(kind: MessageKind, source: &str, milliseconds: u64, message: Value) -> Value {
    let kind = match kind {
        MessageKind::Cam => "cam",
        MessageKind::Denm => "denm",
    };
    let mut all = Map::new();
    for (name, text) in
        [("type", kind), ("origin", "self"), ("version", JSON_FORMAT_VERSION), ("source_uuid", source)]
    {
        all.insert(name.to_owned(), text.into());
    }
    all.insert("timestamp".to_owned(), milliseconds.into());
    all.insert("message".to_owned(), message);
    Value::Object(all)
}

/// Returns a JSON object with these numeric fields.
fn object_of_numbers(fields: &[(&str, i64)]) -> Map<String, Value> {
    let mut all = Map::new();
    fields.iter().for_each(|(name, number)| put_value(&mut all, name, *number));
    all
}

fn put_value(object: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    object.insert(name.to_owned(), value.into());
}

/// Returns the first `width` bits as a text of `0` and `1`, the first bit first.
fn bits_as_text(value: u8, width: usize) -> String {
    format!("{value:0width$b}")
}

/// Returns a CAM as JSON without the envelope, and separately the values that filters use.
pub fn cam_as_json(cam: &Cam) -> (ReceivedMessage, Value) {
    let parameters = &cam.cam.cam_parameters;
    let basic = &parameters.basic_container;
    let (position, confidence) = position_as_json(&basic.reference_position);
    let mut container = object_of_numbers(&[("station_type", basic.station_type.0.into())]);
    put_value(&mut container, "reference_position", position);
    put_value(&mut container, "confidence", confidence);
    let mut message = object_of_numbers(&[
        ("protocol_version", cam.header.protocol_version.0.into()),
        ("station_id", cam.header.station_id.0.into()),
        ("generation_delta_time", cam.cam.generation_delta_time.0.into()),
    ]);
    put_value(&mut message, "basic_container", container);
    let high = match &parameters.high_frequency_container {
        HighFrequencyContainer::BasicVehicleContainerHighFrequency(high) => high_frequency_as_json(high),
        _ => Map::new(),
    };
    put_value(&mut message, "high_frequency_container", high);
    if let Some(LowFrequencyContainer::BasicVehicleContainerLowFrequency(low)) =
        &parameters.low_frequency_container
    {
        put_value(&mut message, "low_frequency_container", low_frequency_as_json(low));
    }
    let heard = ReceivedMessage {
        kind: MessageKind::Cam,
        message_position: basic.reference_position.position(),
        station_type: basic.station_type.0,
        event_cause: None,
        json_text: String::new(),
    };
    (heard, message.into())
}

fn high_frequency_as_json(high: &BasicVehicleContainerHighFrequency) -> Map<String, Value> {
    let mode = match high.curvature_calculation_mode {
        CurvatureCalculationMode::YawRateUsed => 0,
        CurvatureCalculationMode::YawRateNotUsed => 1,
        _ => 2,
    };
    let acceleration = high.longitudinal_acceleration;
    let mut container = object_of_numbers(&[
        ("heading", high.heading.heading_value.0.into()),
        ("speed", high.speed.speed_value.0.into()),
        ("drive_direction", high.drive_direction as i64),
        ("vehicle_length", high.vehicle_length.vehicle_length_value.0.into()),
        ("vehicle_width", high.vehicle_width.0.into()),
        ("curvature", high.curvature.curvature_value.0.into()),
        ("curvature_calculation_mode", mode),
        ("longitudinal_acceleration", acceleration.longitudinal_acceleration_value.0.into()),
        ("yaw_rate", high.yaw_rate.yaw_rate_value.0.into()),
    ]);
    let mut confidence = object_of_numbers(&[
        ("heading", high.heading.heading_confidence.0.into()),
        ("speed", high.speed.speed_confidence.0.into()),
        ("vehicle_length", high.vehicle_length.vehicle_length_confidence_indication as i64),
        ("yaw_rate", high.yaw_rate.yaw_rate_confidence as i64),
        ("longitudinal_acceleration", acceleration.longitudinal_acceleration_confidence.0.into()),
        ("curvature", high.curvature.curvature_confidence as i64),
    ]);
    if let Some(control) = high.acceleration_control {
        put_value(&mut container, "acceleration_control", bits_as_text(control.0, 7));
    }
    if let Some(lane) = high.lane_position {
        put_value(&mut container, "lane_position", lane.0);
    }
    if let Some(lateral) = high.lateral_acceleration {
        put_value(&mut container, "lateral_acceleration", lateral.lateral_acceleration_value.0);
        put_value(&mut confidence, "lateral_acceleration", lateral.lateral_acceleration_confidence.0);
    }
    if let Some(vertical) = high.vertical_acceleration {
        put_value(&mut container, "vertical_acceleration", vertical.vertical_acceleration_value.0);
        put_value(&mut confidence, "vertical_acceleration", vertical.vertical_acceleration_confidence.0);
    }
    put_value(&mut container, "confidence", confidence);
    container
}

fn low_frequency_as_json(low: &BasicVehicleContainerLowFrequency) -> Map<String, Value> {
    let mut container = object_of_numbers(&[("vehicle_role", low.vehicle_role as i64)]);
    put_value(&mut container, "exterior_lights", bits_as_text(low.exterior_lights.0, 8));
    put_value(&mut container, "path_history", path_history_as_json(&low.path_history));
    container
}

/// Returns the JSON fields of a position, and separately the confidences of these fields.
fn position_as_json(reference: &ReferencePosition) -> (Map<String, Value>, Map<String, Value>) {
    let ellipse = reference.position_confidence_ellipse;
    let position = object_of_numbers(&[
        ("latitude", reference.latitude.0.into()),
        ("longitude", reference.longitude.0.into()),
        ("altitude", reference.altitude.altitude_value.0.into()),
    ]);
    let mut confidence = object_of_numbers(&[("altitude", reference.altitude.altitude_confidence as i64)]);
    let ellipse = object_of_numbers(&[
        ("semi_major_confidence", ellipse.semi_major_confidence.0.into()),
        ("semi_minor_confidence", ellipse.semi_minor_confidence.0.into()),
        ("semi_major_orientation", ellipse.semi_major_orientation.0.into()),
    ]);
    put_value(&mut confidence, "position_confidence_ellipse", ellipse);
    (position, confidence)
}

fn path_history_as_json(history: &PathHistory) -> Vec<Value> {
    let point = |point: &PathPoint| {
        let delta = point.path_position;
        let position = object_of_numbers(&[
            ("delta_latitude", delta.delta_latitude.0.into()),
            ("delta_longitude", delta.delta_longitude.0.into()),
            ("delta_altitude", delta.delta_altitude.0.into()),
        ]);
        let mut point_ = Map::new();
        put_value(&mut point_, "path_position", position);
        if let Some(time) = point.path_delta_time {
            put_value(&mut point_, "path_delta_time", time.0);
        }
        Value::Object(point_)
    };
    history.0.iter().map(point).collect()
}

/// Returns a DENM as JSON without the envelope, and separately the values that filters use.
pub fn denm_as_json(denm: &Denm) -> (ReceivedMessage, Value) {
    let body = &denm.denm;
    let mut message = object_of_numbers(&[
        ("protocol_version", denm.header.protocol_version.0.into()),
        ("station_id", denm.header.station_id.0.into()),
    ]);
    put_value(&mut message, "management_container", management_as_json(&body.management));
    if let Some(situation) = &body.situation {
        put_value(&mut message, "situation_container", self::situation_as_json(situation));
    }
    if let Some(location) = &body.location {
        put_value(&mut message, "location_container", self::location_as_json(location));
    }
    if let Some(alacarte) = &body.alacarte {
        let mut container = Map::new();
        if let Some(lane) = alacarte.lane_position {
            put_value(&mut container, "lane_position", lane.0);
        }
        if let Some(solution) = alacarte.positioning_solution {
            let number = PositioningSolutionType::ALL.iter().position(|known| *known == solution);
            container.extend(number.map(|number| ("positioning_solution".to_owned(), number.into())));
        }
        put_value(&mut message, "alacarte_container", container);
    }
    let heard = ReceivedMessage {
        kind: MessageKind::Denm,
        message_position: body.management.event_position.position(),
        station_type: body.management.station_type.0,
        event_cause: body.situation.as_ref().map(|situation| situation.event_type.cause_code.0),
        json_text: String::new(),
    };
    (heard, message.into())
}

fn management_as_json(management: &ManagementContainer) -> Map<String, Value> {
    let action = management.action_id;
    let milliseconds = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
    let mut container = object_of_numbers(&[
        ("detection_time", milliseconds(management.detection_time.0)),
        ("reference_time", milliseconds(management.reference_time.0)),
        ("validity_duration", management.validity_duration.0.into()),
        ("station_type", management.station_type.0.into()),
    ]);
    let action = object_of_numbers(&[
        ("originating_station_id", action.originating_station_id.0.into()),
        ("sequence_number", action.sequence_number.0.into()),
    ]);
    put_value(&mut container, "action_id", action);
    let (position, confidence) = position_as_json(&management.event_position);
    put_value(&mut container, "event_position", position);
    put_value(&mut container, "confidence", confidence);
    let optional = [
        ("termination", management.termination.map(|it| it as i64)),
        ("relevance_distance", management.relevance_distance.map(|it| it as i64)),
        ("relevance_traffic_direction", management.relevance_traffic_direction.map(|it| it as i64)),
        ("transmission_interval", management.transmission_interval.map(|it| it.0.into())),
    ];
    for (name, number) in optional {
        container.extend(number.map(|number| (name.to_owned(), number.into())));
    }
    container
}

fn situation_as_json(situation: &SituationContainer) -> Map<String, Value> {
    let mut container = object_of_numbers(&[("information_quality", situation.information_quality.0.into())]);
    for (name, cause) in
        [("event_type", Some(situation.event_type)), ("linked_cause", situation.linked_cause)]
    {
        if let Some(cause) = cause {
            let cause = [("cause", cause.cause_code.0.into()), ("subcause", cause.sub_cause_code.0.into())];
            put_value(&mut container, name, object_of_numbers(&cause));
        }
    }
    container
}

fn location_as_json(location: &LocationContainer) -> Map<String, Value> {
    let (mut container, mut confidence) = (Map::new(), Map::new());
    if let Some(speed) = location.event_speed {
        put_value(&mut container, "event_speed", speed.speed_value.0);
        put_value(&mut confidence, "event_speed", speed.speed_confidence.0);
    }
    if let Some(heading) = location.event_position_heading {
        put_value(&mut container, "event_position_heading", heading.heading_value.0);
        put_value(&mut confidence, "event_position_heading", heading.heading_confidence.0);
    }
    if let Some(road) = location.road_type {
        put_value(&mut container, "road_type", road as i64);
    }
    let trace = |history: &PathHistory| {
        let mut trace = Map::new();
        put_value(&mut trace, "path_history", path_history_as_json(history));
        Value::Object(trace)
    };
    put_value(&mut container, "traces", location.traces.0.iter().map(trace).collect::<Vec<_>>());
    put_value(&mut container, "confidence", confidence);
    container
}

#[cfg(test)]
mod tests {
    use carnet_its::cam::{CamParameters, CoopAwareness, HighFrequencyContainer};
    use carnet_its::cdd::{
        AccelerationControl, CauseCode, CauseCodeType, ExteriorLights, LanePosition, PathDeltaTime,
        StationId, SubCauseCodeType, Traces,
    };
    use carnet_its::denm::{AlacarteContainer, Termination};
    use serde_json::json;

    use super::*;

    fn unavailable_position_as_json() -> (Value, Value) {
        let ellipse = json!({
            "semi_major_confidence": 4095, "semi_minor_confidence": 4095, "semi_major_orientation": 3601
        });
        let position = json!({"latitude": 900_000_001, "longitude": 1_800_000_001, "altitude": 800_001});
        (position, json!({"position_confidence_ellipse": ellipse, "altitude": 15}))
    }

    fn path_point_with_json() -> (PathHistory, Value) {
        let point = PathPoint { path_delta_time: Some(PathDeltaTime(3)), ..PathPoint::default() };
        let delta = json!({"delta_latitude": 131_072, "delta_longitude": 131_072, "delta_altitude": 12_800});
        (PathHistory(vec![point]), json!([{"path_position": delta, "path_delta_time": 3}]))
    }

    #[test]
    fn cam_json_has_the_format_of_mqtt_gateways() {
        let (history, path) = path_point_with_json();
        let high = BasicVehicleContainerHighFrequency {
            acceleration_control: Some(AccelerationControl::BRAKE_PEDAL_ENGAGED),
            lane_position: Some(LanePosition(1)),
            lateral_acceleration: Some(Default::default()),
            ..Default::default()
        };
        let low = BasicVehicleContainerLowFrequency {
            exterior_lights: ExteriorLights::LEFT_TURN_SIGNAL_ON,
            path_history: history,
            ..Default::default()
        };
        let parameters = CamParameters {
            high_frequency_container: HighFrequencyContainer::BasicVehicleContainerHighFrequency(high),
            low_frequency_container: Some(LowFrequencyContainer::BasicVehicleContainerLowFrequency(low)),
            ..CamParameters::default()
        };
        let mut message = Cam {
            cam: CoopAwareness { cam_parameters: parameters, ..CoopAwareness::default() },
            ..Cam::default()
        };
        message.header.station_id = StationId(42);
        let (position, confidence) = unavailable_position_as_json();
        let expected = json!({
            "protocol_version": 2, "station_id": 42, "generation_delta_time": 0,
            "basic_container": {"station_type": 0, "reference_position": position, "confidence": confidence},
            "high_frequency_container": {
                "heading": 3601, "speed": 16383, "drive_direction": 2, "vehicle_length": 1023, "vehicle_widt\
                    h": 62,
                "curvature": 1023, "curvature_calculation_mode": 2, "longitudinal_acceleration": 161,
                "yaw_rate": 32767, "acceleration_control": "1000000", "lane_position": 1, "lateral_accelerati\
                    on": 161,
                "confidence": {"heading": 127, "speed": 127, "vehicle_length": 4, "yaw_rate": 8,
                    "longitudinal_acceleration": 102, "curvature": 7, "lateral_acceleration": 102},
            },
            "low_frequency_container": {"vehicle_role": 0, "exterior_lights": "00100000", "path_histor\
                y": path},
        });
        let (heard, found) = cam_as_json(&message);
        assert_eq!(found, expected);
        assert_eq!((heard.message_position, heard.event_cause), (None, None));
        let whole = message_in_envelope(MessageKind::Cam, "car-7", 1_795_338_000_123, Value::Null);
        let expected = json!({"type": "cam", "origin": "self", "version": "1.1.3", "source_uuid": "car-7",
            "timestamp": 1_795_338_000_123_u64, "message": null});
        assert_eq!(whole, expected);
    }

    #[test]
    fn denm_json_has_the_format_of_mqtt_gateways() {
        let (history, path) = path_point_with_json();
        let cause = CauseCode { cause_code: CauseCodeType(94), sub_cause_code: SubCauseCodeType(2) };
        let mut message = Denm::default();
        message.denm.management.termination = Some(Termination::IsNegation);
        message.denm.situation = Some(SituationContainer { event_type: cause, ..Default::default() });
        message.denm.location = Some(LocationContainer {
            event_speed: Some(Default::default()),
            traces: Traces(vec![history]),
            ..LocationContainer::default()
        });
        message.denm.alacarte = Some(AlacarteContainer {
            lane_position: Some(LanePosition(-1)),
            positioning_solution: Some(PositioningSolutionType::Dgnss),
            ..AlacarteContainer::default()
        });
        let (position, confidence) = unavailable_position_as_json();
        let action = json!({"originating_station_id": 0, "sequence_number": 0});
        let expected = json!({
            "protocol_version": 2, "station_id": 0,
            "management_container": {"action_id": action, "detection_time": 0, "reference_time": 0, "terminat\
                ion": 1,
                "event_position": position, "validity_duration": 600, "station_type": 0, "confidenc\
                    e": confidence},
            "situation_container": {"information_quality": 0, "event_type": {"cause": 94, "subcause": 2}},
            "location_container": {"event_speed": 16383, "traces": [{"path_history": path}],
                "confidence": {"event_speed": 127}},
            "alacarte_container": {"lane_position": -1, "positioning_solution": 2},
        });
        let (heard, found) = denm_as_json(&message);
        assert_eq!((found, heard.event_cause), (expected, Some(94)));
    }
}
