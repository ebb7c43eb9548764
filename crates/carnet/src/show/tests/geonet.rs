//! Tests of printed GeoNetworking answers.

use carnet_api::model::{GnPingAnswer, GnTarget};
use serde_json::{Value, json};

use super::show_table;
use crate::cli::Table;
use crate::show::format_status;
use crate::show::geonet::{format_ping_answer, format_ping_summary};

fn location_answer(last: &str, age_ms: u64, neighbour: bool) -> Value {
    json!({"gn_address": format!("1400:0200:0000:{last}"), "mac": "02:00:00:00:00:02", "latitude": 48.8375,
           "longitude": -2.1008, "speed_mps": 13.888, "heading_deg": 90.04, "age_ms": age_ms,
           "neighbour": neighbour, "added_later": 1})
}

#[test]
fn show_neighbours_and_locations_print_tables() {
    assert_eq!(
        show_table(Table::Neighbours, json!([location_answer("0002", 120, true)]), None),
        "\
ADDRESS              MAC                POSITION                SPEED     HEADING  AGE
1400:0200:0000:0002  02:00:00:00:00:02  48.8375000, -2.1008000  13.9 m/s  90.0°    120 ms
"
    );
    assert_eq!(
        show_table(
            Table::Locations,
            json!([location_answer("0002", 120, true), location_answer("0003", 12_345, false)]),
            None
        ),
        "\
ADDRESS              MAC                POSITION                SPEED     HEADING  AGE     IN RANGE
1400:0200:0000:0002  02:00:00:00:00:02  48.8375000, -2.1008000  13.9 m/s  90.0°    120 ms  yes
1400:0200:0000:0003  02:00:00:00:00:02  48.8375000, -2.1008000  13.9 m/s  90.0°    12 s    no
"
    );
}

#[test]
fn show_areas_prints_a_table() {
    assert_eq!(
        show_table(
            Table::Areas,
            json!([{"name": "crossing", "shape": "circle", "latitude": 48.8375, "longitude": 2.1008,
                    "distance_a_m": 300, "distance_b_m": null, "angle_deg": null, "inside": true},
                   {"name": "motorway", "shape": "rectangle", "latitude": 48.8375, "longitude": 2.1008,
                    "distance_a_m": 1000, "distance_b_m": 40, "angle_deg": 45, "inside": false}]),
            Some(90)
        ),
        "\
AREA      SHAPE      CENTER                 RADIUS OR A  B     ANGLE  INSIDE
crossing  circle     48.8375000, 2.1008000  300 m        -     -      yes
motorway  rectangle  48.8375000, 2.1008000  1000 m       40 m  45°    no
"
    );
}

#[test]
fn unknown_area_is_an_error() {
    let moving = json!({"name": "convoy", "origin": "api", "shape": "circle",
        "around": {"station": "1400:0200:0000:000a"}, "latitude": null, "longitude": null, "distance_a_\
            m": 300,
        "distance_b_m": null, "angle_deg": null, "inside": null, "group": "ff1e::42", "remaining_s": 60});
    assert_eq!(
        show_table(Table::Areas, json!([moving]), Some(200)),
        "\
AREA    SHAPE   CENTER     RADIUS OR A  AROUND               GROUP     SET BY    ENDS IN
convoy  circle  not known  300 m        1400:0200:0000:000a  ff1e::42  operator  60 s
"
    );
}

#[test]
fn status_prints_congestion_control() {
    assert_eq!(
        show_table(
            Table::Dcc,
            json!({"algorithm": "reactive", "busy_percent": 42.5, "told_ms": 120, "state": "active_2",
                   "duty_cycle_percent": null, "closed_ms": 250.0, "waiting": [0, 0, 3, 1]}),
            None
        ),
        "\
algorithm      reactive
channel busy   42.5 %, told 120 ms ago
state          active 2
gate           closed for 250.0 ms
waiting        DP0: 0, DP1: 0, DP2: 3, DP3: 1
"
    );
    assert_eq!(
        show_table(
            Table::Dcc,
            json!({"algorithm": "adaptive", "busy_percent": 0.0, "told_ms": null, "state": null,
                   "duty_cycle_percent": 1.53, "closed_ms": 0.0, "waiting": [0, 0, 0, 0]}),
            None
        ),
        "\
algorithm      adaptive
channel busy   0.0 %, assumed: no program reports it
duty cycle     1.530 %
gate           open
waiting        DP0: 0, DP1: 0, DP2: 0, DP3: 0
"
    );
}

#[test]
fn empty_geonet_tables_print_a_sentence() {
    for (what, text) in [
        (Table::Neighbours, "no neighbours\n"),
        (Table::Locations, "no locations\n"),
        (Table::Areas, "no areas\n"),
    ] {
        assert_eq!(show_table(what, json!([]), None), text);
    }
}

#[test]
fn status_of_a_station_with_geonetworking_alone() {
    let text =
        |latitude: Value, longitude: Value, position: &str| {
            format_status(json!({
            "name": "car-7", "version": "0.1.0", "uptime_s": 1, "roles": ["geonet"], "dataplane": null,
            "mobile_router": null, "home_agent": null,
            "geonet": {"gn_address": "1400:0200:0000:000a", "path": "bpf", "position": position, "latitud\
                e": latitude,
                       "longitude": longitude, "neighbours": 3, "locations": 12},
        }), json!([]))
        .expect("a status")
        };
    assert_eq!(
        text(json!(48.8375), json!(2.1008), "fix"),
        "\
station           car-7, carnet 0.1.0
up                1s
geonet            1400:0200:0000:000a
  dataplane       bpf
  position        48.8375000, 2.1008000, fix
  stations        3 in range, 12 known
"
    );
    assert!(text(Value::Null, Value::Null, "no_fix").contains("\n  position        no fix\n"));
}

#[test]
fn gnping_prints_one_line_for_each_answer() {
    let mut one: GnPingAnswer = serde_json::from_value(json!({
        "sequence": 7, "gn_address": "1400:0200:0000:000a", "mac": "02:00:00:00:00:0a", "latitude": 48.8375,
        "longitude": 2.1008, "rtt_ms": 0.2449, "hops": 2,
        "path": ["1400:0200:0000:0002", "1400:0200:0000:000a"],
    }))
    .expect("an answer");
    assert_eq!(
        format_ping_answer(&one),
        "7: 1400:0200:0000:000a (02:00:00:00:00:0a) at 48.8375000, 2.1008000, 2 hops, 0.245 ms, by \
         1400:0200:0000:0002 > 1400:0200:0000:000a"
    );
    (one.hops, one.path) = (1, None);
    assert!(format_ping_answer(&one).ends_with(", 1 hop, 0.245 ms"));
    let target: GnTarget = "area:crossing".parse().expect("a target");
    assert_eq!(
        format_ping_summary(&target, 4, 3, &[0.4, 0.1, 0.2, 0.3]),
        "area:crossing: 4 sent, 3 answered, least 0.100 ms, median 0.250 ms, most 0.400 ms"
    );
    assert_eq!(format_ping_summary(&target, 4, 0, &[]), "area:crossing: 4 sent, 0 answered");
}
