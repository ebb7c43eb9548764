//! `[geonet.mib]` as it was read.

use std::time::Duration;

use super::super::mib::Mib;
use super::super::reader::Table;
use super::super::values;
use super::geonet::integer;

/// The longest lifetime that a packet can express: 63 times 100 s (EN 302 636-4-1 9.6.4).
const LIFETIME_MAX: Duration = Duration::from_secs(6300);
const HOUR: Duration = Duration::from_secs(3600);
const MILLISECOND: Duration = Duration::from_millis(1);
const MEGABYTES: u32 = 1 << 28;

/// Reads the table; `None` when something in it is wrong.
pub(super) fn read(table: &Table<'_>) -> Option<Mib> {
    let standard = Mib::default();
    let number = |name, low, high, default| integer(table, name, low, high, default);
    let span = |name, low, high, default| span(table, name, low, high, default);
    let small = |name, low, high, default: u8| {
        number(name, low, high, u32::from(default)).and_then(|number| u8::try_from(number).ok())
    };

    let is_mobile = match table.get("is_mobile") {
        Some(value) => value.boolean().map(Some),
        None => Some(None),
    };
    let max_sdu_size = number("max_sdu_size", 1, 8000, standard.max_sdu_size);
    let second = Duration::from_secs(1);
    let lifetime = span("lifetime_location_entry", second, HOUR, standard.lifetime_location_entry);
    let lifetime_neighbour =
        span("lifetime_neighbour", second, HOUR, lifetime.unwrap_or(standard.lifetime_neighbour));
    not_above(table, "lifetime_neighbour", lifetime_neighbour, "lifetime_location_entry", lifetime);
    let retransmissions =
        number("location_service_max_retransmissions", 0, 255, standard.location_service_max_retransmissions);
    let retransmit_timer = span(
        "location_service_retransmit_timer",
        10 * MILLISECOND,
        HOUR,
        standard.location_service_retransmit_timer,
    );
    let search_buffer =
        number("location_service_buffer_size", 0, MEGABYTES, standard.location_service_buffer_size);
    let pending = number("location_service_max_pending", 1, 65_536, standard.location_service_max_pending);
    let hop_limit = small("default_hop_limit", 1, 255, standard.default_hop_limit);
    let duplicates = number("duplicate_packet_list_length", 1, 16, standard.duplicate_packet_list_length);
    let max_lifetime =
        span("max_packet_lifetime", 50 * MILLISECOND, LIFETIME_MAX, standard.max_packet_lifetime);
    let usual = max_lifetime
        .map_or(standard.default_packet_lifetime, |most| most.min(standard.default_packet_lifetime));
    let default_lifetime = span("default_packet_lifetime", 50 * MILLISECOND, LIFETIME_MAX, usual);
    not_above(table, "default_packet_lifetime", default_lifetime, "max_packet_lifetime", max_lifetime);
    let data_rate = number("max_packet_data_rate", 0, 4_000_000, standard.max_packet_data_rate.unwrap_or(0));
    let beta = small("packet_data_rate_beta", 0, 99, standard.packet_data_rate_beta);
    let max_area_size = number("max_area_size", 1, 100_000, standard.max_area_size);
    let repetition =
        span("min_repetition_interval", 10 * MILLISECOND, HOUR, standard.min_repetition_interval);
    let hold = span("next_hop_hold", Duration::ZERO, HOUR, standard.next_hop_hold);
    let cbf_max = span("cbf_max_time", Duration::ZERO, HOUR, standard.cbf_max_time);
    let least = cbf_max.map_or(standard.cbf_min_time, |most| most.min(standard.cbf_min_time));
    let cbf_min = span("cbf_min_time", Duration::ZERO, HOUR, least);
    not_above(table, "cbf_min_time", cbf_min, "cbf_max_time", cbf_max);
    let sector_angle = number("sector_angle", 1, 180, standard.sector_angle);
    let max_counter = number("advanced_max_counter", 1, 255, standard.advanced_max_counter);
    let unicast = number("unicast_buffer_size", 0, MEGABYTES, standard.unicast_buffer_size);
    let broadcast = number("broadcast_buffer_size", 0, MEGABYTES, standard.broadcast_buffer_size);
    let cbf = number("cbf_buffer_size", 0, MEGABYTES, standard.cbf_buffer_size);
    let neighbours = number("max_neighbours", 1, 1_000_000, standard.max_neighbours);
    let others = number("max_other_stations", 1, 1_000_000, standard.max_other_stations);
    let pai_interval_m = match table.get("pai_interval") {
        Some(value) => value.parse(values::geonet::LENGTH, values::geonet::length).map(|length| length.value),
        None => Some(standard.pai_interval_m),
    };
    let update = span("position_update_interval", 10 * MILLISECOND, HOUR, standard.position_update_interval);

    Some(Mib {
        is_mobile: is_mobile?,
        max_sdu_size: max_sdu_size?,
        lifetime_location_entry: lifetime?,
        lifetime_neighbour: lifetime_neighbour?,
        location_service_max_retransmissions: retransmissions?,
        location_service_retransmit_timer: retransmit_timer?,
        location_service_buffer_size: search_buffer?,
        location_service_max_pending: pending?,
        default_hop_limit: hop_limit?,
        duplicate_packet_list_length: duplicates?,
        max_packet_lifetime: max_lifetime?,
        default_packet_lifetime: default_lifetime?,
        max_packet_data_rate: data_rate.map(|rate| (rate > 0).then_some(rate))?,
        packet_data_rate_beta: beta?,
        max_area_size: max_area_size?,
        min_repetition_interval: repetition?,
        next_hop_hold: hold?,
        cbf_min_time: cbf_min?,
        cbf_max_time: cbf_max?,
        sector_angle: sector_angle?,
        advanced_max_counter: max_counter?,
        unicast_buffer_size: unicast?,
        broadcast_buffer_size: broadcast?,
        cbf_buffer_size: cbf?,
        max_neighbours: neighbours?,
        max_other_stations: others?,
        pai_interval_m: pai_interval_m?,
        position_update_interval: update?,
    })
}

/// A duration within bounds.
fn span(
    table: &Table<'_>,
    name: &'static str,
    low: Duration,
    high: Duration,
    default: Duration,
) -> Option<Duration> {
    let Some(value) = table.get(name) else { return Some(default) };
    let check = |text: &str| {
        let span = values::duration(text)?;
        if (low..=high).contains(&span) {
            return Ok(span);
        }
        Err(format!("{text:?} is out of range, expected {} to {}", shown(low), shown(high)))
    };
    value.parse(values::DURATION, check).map(|span| span.value)
}

/// As an operator would write it.
fn shown(span: Duration) -> String {
    match (span.as_secs(), span.subsec_millis()) {
        (seconds, 0) => format!("{seconds}s"),
        (_, milliseconds) => format!("{milliseconds}ms"),
    }
}

/// Two durations of which the first is not the longer one.
fn not_above(
    table: &Table<'_>,
    name: &'static str,
    span: Option<Duration>,
    limit_name: &'static str,
    limit: Option<Duration>,
) {
    if let (Some(span), Some(limit), Some(value)) = (span, limit, table.get(name).or(table.get(limit_name)))
        && span > limit
    {
        value.refuse(&format!("`{name}` is longer than `{limit_name}`, expected {} at most", shown(limit)));
    }
}
