//! Formats GeoNetworking for people.

use std::fmt::Write;

use carnet_api::model::{
    Area, AreaOrigin, AreaShape, Dcc, GeonetStatus, GnAround, GnPingAnswer, GnTarget, Group, Location,
};

use super::{ABSENT_VALUE, format_table, state_in_words, value_or_absent};

/// Formats a table of stations. If some stations are out of range, the table has a column that shows which
/// are neighbours.
pub(super) fn format_locations(none: &str, locations: &[Location], width: Option<usize>) -> String {
    let all_near = locations.iter().all(|location| location.neighbour);
    let rows = locations.iter().map(|location| {
        vec![
            location.gn_address.to_string(),
            location.mac.to_string(),
            format_position(location.latitude, location.longitude),
            format!("{:.1} m/s", location.speed_mps),
            format!("{:.1}°", location.heading_deg),
            format_age(location.age_ms),
            match (all_near, location.neighbour) {
                (true, _) => ABSENT_VALUE.to_owned(),
                (false, true) => "yes".to_owned(),
                (false, false) => "no".to_owned(),
            },
        ]
    });
    let columns = ["address", "mac", "position", "speed", "heading", "age", "in range"];
    format_table(none, &columns, rows.collect(), width)
}

/// Formats a table of areas, with the origin of areas that are not in the config.
pub(super) fn format_areas(areas: &[Area], width: Option<usize>) -> String {
    let rows = areas.iter().map(|area| {
        vec![
            area.name.clone(),
            match area.shape {
                AreaShape::Circle => "circle",
                AreaShape::Rectangle => "rectangle",
                AreaShape::Ellipse => "ellipse",
            }
            .to_owned(),
            match area.latitude.zip(area.longitude) {
                Some((latitude, longitude)) => format_position(latitude, longitude),
                None => "not known".to_owned(),
            },
            format!("{} m", area.distance_a_m),
            value_or_absent(area.distance_b_m.map(|distance| format!("{distance} m"))),
            value_or_absent(area.angle_deg.map(|angle| format!("{angle}°"))),
            value_or_absent(area.inside.map(|inside| if inside { "yes" } else { "no" })),
            match area.around {
                Some(GnAround::Here) => "here".to_owned(),
                Some(GnAround::Station(station)) => station.to_string(),
                Some(GnAround::Place(_)) | None => ABSENT_VALUE.to_owned(),
            },
            value_or_absent(area.group),
            match area.prefixes.as_slice() {
                [] => ABSENT_VALUE.to_owned(),
                prefixes => prefixes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            },
            value_or_absent(area.ipv6_interface.clone()),
            match area.origin {
                AreaOrigin::Config => ABSENT_VALUE.to_owned(),
                AreaOrigin::Api => "operator".to_owned(),
                AreaOrigin::Learnt => "advertisement".to_owned(),
            },
            value_or_absent(area.remaining_s.map(|seconds| format!("{seconds} s"))),
        ]
    });
    let columns = [
        "area",
        "shape",
        "center",
        "radius or a",
        "b",
        "angle",
        "inside",
        "around",
        "group",
        "prefixes",
        "interface",
        "set by",
        "ends in",
    ];
    format_table("no areas", &columns, rows.collect(), width)
}

/// Formats the state of congestion control.
pub(super) fn format_dcc(dcc: &Dcc) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<14} {value}");
    };
    line("algorithm", state_in_words(&dcc.algorithm));
    let told = match dcc.told_ms {
        Some(told) => format!("told {} ago", format_age(told)),
        None => "assumed: no program reports it".to_owned(),
    };
    line("channel busy", format!("{:.1} %, {told}", dcc.busy_percent));
    if let Some(state) = &dcc.state {
        line("state", state_in_words(state));
    }
    if let Some(share) = dcc.duty_cycle_percent {
        line("duty cycle", format!("{share:.3} %"));
    }
    let open = dcc.closed_ms <= 0.0;
    line("gate", if open { "open".to_owned() } else { format!("closed for {:.1} ms", dcc.closed_ms) });
    let waiting = dcc.waiting.iter().enumerate().map(|(profile, count)| format!("DP{profile}: {count}"));
    line("waiting", waiting.collect::<Vec<_>>().join(", "));
    out
}

/// Formats a table of subscribed multicast groups.
pub(super) fn format_groups(groups: &[Group], width: Option<usize>) -> String {
    let rows = groups.iter().map(|group| {
        let listed = group.sources.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        vec![
            group.group.to_string(),
            group.interface.clone(),
            match (group.exclude, listed.as_str()) {
                (true, "") => "all".to_owned(),
                (true, listed) => format!("all but {listed}"),
                (false, listed) => listed.to_owned(),
            },
            if group.mapped { "yes" } else { "no" }.to_owned(),
            value_or_absent(group.querier),
            value_or_absent(group.remaining_s.map(|seconds| format!("{seconds:.0} s"))),
        ]
    });
    let columns = ["group", "interface", "sources", "has area", "querier", "ends in"];
    format_table("no groups", &columns, rows.collect(), width)
}

/// Returns the GeoNetworking lines of `carnet status`, as names and values.
pub(super) fn format_geonet_status(status: &GeonetStatus) -> [(&'static str, String); 4] {
    let place = status
        .latitude
        .zip(status.longitude)
        .map(|(latitude, longitude)| format_position(latitude, longitude));
    let position = match place {
        Some(place) => format!("{place}, {}", state_in_words(&status.position)),
        None => state_in_words(&status.position),
    };
    let stations = format!("{} in range, {} known", status.neighbours, status.locations);
    let address = match (&status.gn_address, &status.waits_for) {
        (Some(address), _) if status.link == "up" || status.link.is_empty() => address.to_string(),
        (Some(address), _) => format!("{address}, link {}", status.link),
        (None, Some(what)) => format!("waits for {what}"),
        (None, None) => "has no address yet".into(),
    };
    let next = status.path_loading.as_ref().map(|next| format!(" while {next} is being loaded"));
    let path = Some(&status.path).filter(|path| !path.is_empty());
    let path = path.map(|path| path.to_owned() + next.as_deref().unwrap_or_default());
    [
        ("geonet", address),
        ("  dataplane", value_or_absent(path)),
        ("  position", position),
        ("  stations", stations),
    ]
}

/// Formats an answer to a ping as one line.
pub fn format_ping_answer(answer: &GnPingAnswer) -> String {
    let hops = if answer.hops == 1 { "hop" } else { "hops" };
    let mut line = format!(
        "{}: {} ({}) at {}, {} {hops}, {:.3} ms",
        answer.sequence,
        answer.gn_address,
        answer.mac,
        format_position(answer.latitude, answer.longitude),
        answer.hops,
        answer.rtt_ms
    );
    for (index, station) in answer.path.iter().flatten().enumerate() {
        let _ = write!(line, "{} {station}", if index == 0 { ", by" } else { " >" });
    }
    line
}

/// Formats the summary of a ping, which is its last line.
pub fn format_ping_summary(target: &GnTarget, sent: u32, answered: u32, round_trips: &[f64]) -> String {
    let mut sorted = round_trips.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut line = format!("{target}: {sent} sent, {answered} answered");
    if let (Some(least), Some(most)) = (sorted.first(), sorted.last()) {
        let median = (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0;
        let _ = write!(line, ", least {least:.3} ms, median {median:.3} ms, most {most:.3} ms");
    }
    line
}

/// Formats latitude and longitude in degrees with the resolution of GeoNetworking: seven decimal places,
/// about a centimetre.
pub(super) fn format_position(latitude: f64, longitude: f64) -> String {
    format!("{latitude:.7}, {longitude:.7}")
}

/// Formats an age in milliseconds as `120 ms`, from ten seconds on as `12 s`.
pub(super) fn format_age(milliseconds: u64) -> String {
    match milliseconds {
        0..10_000 => format!("{milliseconds} ms"),
        _ => format!("{} s", milliseconds / 1000),
    }
}
