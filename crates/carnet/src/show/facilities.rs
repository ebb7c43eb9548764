//! Formats the Local Dynamic Map for people.

use carnet_api::model::{AnnouncedService, Ldm};

use super::geonet::{age, place};
use super::{lay_out, or_nothing};
use crate::facilities::words::{self, CAUSES};

/// Formats a table of announced services.
pub(super) fn services(services: &[AnnouncedService], width: Option<usize>) -> String {
    let rows = services.iter().map(|service| {
        vec![
            service.station_id.map_or_else(|| "own".to_owned(), |station| station.to_string()),
            or_nothing(service.advertiser.as_ref()),
            service.its_aid.to_string(),
            or_nothing(service.address),
            or_nothing(service.port),
            or_nothing(service.remaining_s.map(|seconds| format!("{seconds:.0} s"))),
        ]
    });
    let columns = ["station", "advertiser", "its-aid", "address", "port", "ends in"];
    lay_out("no services", &columns, rows.collect(), width)
}

/// Formats the stations and the events on the road.
pub(super) fn ldm(ldm: &Ldm, width: Option<usize>) -> String {
    let stations = ldm.stations.iter().map(|station| {
        vec![
            station.station_id.to_string(),
            station.station_type.clone(),
            place(station.latitude, station.longitude),
            or_nothing(station.speed_mps.map(|speed| format!("{speed:.1} m/s"))),
            or_nothing(station.heading_deg.map(|heading| format!("{heading:.1}°"))),
            age(station.age_ms),
        ]
    });
    let columns = ["station", "type", "position", "speed", "heading", "age"];
    let stations = lay_out("no stations", &columns, stations.collect(), width);
    let events = ldm.events.iter().map(|event| {
        let id = event.action_id;
        vec![
            format!("{}:{}", id.originating_station_id, id.sequence_number),
            or_nothing(event.cause.map(|cause| words::name(&CAUSES, cause))),
            or_nothing(event.sub_cause.filter(|sub_cause| *sub_cause > 0)),
            place(event.latitude, event.longitude),
            or_nothing(event.relevance_distance_m.map(|metres| format!("{metres} m"))),
            event.station_type.clone(),
            age(event.age_ms),
            format!("{} s", event.remaining_s),
        ]
    });
    let columns = ["event", "cause", "sub-cause", "position", "matters within", "said by", "age", "ends in"];
    let events = lay_out("no events", &columns, events.collect(), width);
    format!("{stations}\n{events}")
}
