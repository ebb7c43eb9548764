//! Answer to `GET /v1/ldm`: the filtered Local Dynamic Map.

use carnet_api::model::{Ldm, LdmEvent, LdmStation};
use carnet_base::Time;
use carnet_its::ldm::{EventObject, LocalDynamicMap, StationTypes};
use carnet_station::io::MessageKind;
use carnet_wire::geonet::GeoArea;

use super::MessageFilter;

/// Returns the objects that pass the filter; `area` is the present position of the filter's area.
pub fn filtered_ldm(map: &LocalDynamicMap, now: Time, filter: &MessageFilter, area: Option<&GeoArea>) -> Ldm {
    let mut ldm = Ldm::default();
    if filter.accepts_kind(MessageKind::Cam) {
        let stations = map.stations_in(now, area, StationTypes::ALL);
        let wanted = stations.iter().filter(|object| filter.has_station_type(object.station_type.0));
        ldm.stations = wanted.map(|object| LdmStation::new(object, now)).collect();
        ldm.stations.sort_by_key(|station| station.station_id);
    }
    if filter.accepts_kind(MessageKind::Denm) {
        let cause = |object: &EventObject| object.event_type.map(|cause| cause.cause_code.0);
        let events = map.events_in(now, area);
        let wanted = events.iter().filter(|object| {
            filter.has_cause(cause(object)) && filter.has_station_type(object.station_type.0)
        });
        ldm.events = wanted.map(|object| LdmEvent::new(object, now)).collect();
    }
    ldm
}
