//! Answer to `GET /v1/ldm`: the filtered Local Dynamic Map.

use std::time::Duration;

use carnet_api::model::{ActionId, Ldm, LdmEvent, LdmStation};
use carnet_base::Time;
use carnet_its::cdd::{HeadingValue, SemiAxisLength, SpeedValue, VehicleLengthValue, VehicleWidth};
use carnet_its::ldm::{EventObject, LocalDynamicMap, StationObject, StationTypes};
use carnet_station::io::MessageKind;
use carnet_wire::geonet::GeoArea;

use super::Filter;
use super::words::{self, station_types};
use crate::geonet::degrees;

/// Returns the objects that pass the filter; `area` is the present place of the filter's area.
pub fn ldm(map: &LocalDynamicMap, now: Time, filter: &Filter, area: Option<&GeoArea>) -> Ldm {
    let mut ldm = Ldm::default();
    if filter.has(MessageKind::Cam) {
        let stations = map.stations_in(now, area, StationTypes::ALL);
        let wanted = stations.iter().filter(|object| filter.has_station_type(object.station_type.0));
        ldm.stations = wanted.map(|object| station(object, now)).collect();
        ldm.stations.sort_by_key(|station| station.station_id);
    }
    if filter.has(MessageKind::Denm) {
        let cause = |object: &EventObject| object.event_type.map(|cause| cause.cause_code.0);
        let events = map.events_in(now, area);
        let wanted = events.iter().filter(|object| {
            filter.has_cause(cause(object)) && filter.has_station_type(object.station_type.0)
        });
        ldm.events = wanted.map(|object| event(object, now)).collect();
    }
    ldm
}

fn station(object: &StationObject, now: Time) -> LdmStation {
    let known = |is: bool, value: f64| is.then_some(value);
    LdmStation {
        station_id: object.station_id.0,
        station_type: words::name(&station_types(), object.station_type.0),
        latitude: degrees(object.position.latitude),
        longitude: degrees(object.position.longitude),
        confidence_m: known(
            object.confidence < SemiAxisLength::OUT_OF_RANGE,
            f64::from(object.confidence.0) / 100.0,
        ),
        speed_mps: known(object.speed != SpeedValue::UNAVAILABLE, f64::from(object.speed.0) / 100.0),
        heading_deg: known(object.heading < HeadingValue::UNAVAILABLE, f64::from(object.heading.0) / 10.0),
        length_m: known(
            object.vehicle_length < VehicleLengthValue::OUT_OF_RANGE,
            f64::from(object.vehicle_length.0) / 10.0,
        ),
        width_m: known(
            object.vehicle_width < VehicleWidth::OUT_OF_RANGE,
            f64::from(object.vehicle_width.0) / 10.0,
        ),
        age_ms: age(object.received, now),
    }
}

fn event(object: &EventObject, now: Time) -> LdmEvent {
    let left = object.expires.saturating_since(now) + Duration::from_millis(999);
    LdmEvent {
        action_id: ActionId {
            originating_station_id: object.action_id.originating_station_id.0,
            sequence_number: object.action_id.sequence_number.0,
        },
        cause: object.event_type.map(|cause| cause.cause_code.0),
        sub_cause: object.event_type.map(|cause| cause.sub_cause_code.0),
        information_quality: object.information_quality.0,
        latitude: degrees(object.position.latitude),
        longitude: degrees(object.position.longitude),
        relevance_distance_m: object.relevance_distance.map(|distance| distance.metres()),
        station_type: words::name(&station_types(), object.station_type.0),
        detection_time: object.detection_time.0,
        reference_time: object.reference_time.0,
        age_ms: age(object.received, now),
        remaining_s: u32::try_from(left.as_secs()).unwrap_or(u32::MAX),
    }
}

fn age(received: Time, now: Time) -> u64 {
    u64::try_from(now.saturating_since(received).as_millis()).unwrap_or(u64::MAX)
}
