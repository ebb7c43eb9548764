//! Formats the Local Dynamic Map for people.

use carnet_api::model::{AnnouncedService, Ldm};

use super::geonet::{format_age, format_position};
use super::{format_table, value_or_absent};
use crate::facilities::named_numbers::{self, CAUSE_NAMES};

/// Formats a table of announced services.
pub(super) fn format_services(services: &[AnnouncedService], width: Option<usize>) -> String {
    let rows = services.iter().map(|service| {
        vec![
            service.station_id.map_or_else(|| "own".to_owned(), |station| station.to_string()),
            value_or_absent(service.advertiser.as_ref()),
            service.its_aid.to_string(),
            value_or_absent(service.address),
            value_or_absent(service.port),
            value_or_absent(service.remaining_s.map(|seconds| format!("{seconds:.0} s"))),
        ]
    });
    let columns = ["station", "advertiser", "its-aid", "address", "port", "ends in"];
    format_table("no services", &columns, rows.collect(), width)
}

/// Formats the stations and the events on the road.
pub(super) fn format_ldm(ldm: &Ldm, width: Option<usize>) -> String {
    let stations = ldm.stations.iter().map(|station| {
        vec![
            station.station_id.to_string(),
            station.station_type.clone(),
            format_position(station.latitude, station.longitude),
            value_or_absent(station.speed_mps.map(|speed| format!("{speed:.1} m/s"))),
            value_or_absent(station.heading_deg.map(|heading| format!("{heading:.1}°"))),
            format_age(station.age_ms),
        ]
    });
    let columns = ["station", "type", "position", "speed", "heading", "age"];
    let stations = format_table("no stations", &columns, stations.collect(), width);
    let events = ldm.events.iter().map(|event| {
        let id = event.action_id;
        vec![
            format!("{}:{}", id.originating_station_id, id.sequence_number),
            value_or_absent(event.cause.map(|cause| named_numbers::name_of_number(&CAUSE_NAMES, cause))),
            value_or_absent(event.sub_cause.filter(|sub_cause| *sub_cause > 0)),
            format_position(event.latitude, event.longitude),
            value_or_absent(event.relevance_distance_m.map(|metres| format!("{metres} m"))),
            event.station_type.clone(),
            format_age(event.age_ms),
            format!("{} s", event.remaining_s),
        ]
    });
    let columns = ["event", "cause", "sub-cause", "position", "matters within", "said by", "age", "ends in"];
    let events = format_table("no events", &columns, events.collect(), width);
    format!("{stations}\n{events}")
}
