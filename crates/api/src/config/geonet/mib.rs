//! `[geonet.mib]`: parameters of the GeoNetworking router (EN 302 636-4-1 annex H) without a key elsewhere.
//! carnet adds some of its own. The defaults are the standard's.

use std::time::Duration;

use super::super::keys::{
    DeclaredKey, Key, OptionalKey, Section, ValueKind, computed_key, integer_kind, key_with_default,
    optional_key,
};
use super::super::table::{Table, all};
use super::super::{kinds, values};

/// `[geonet.mib]`, with the standard's values as the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mib {
    /// `itsGnIsMobile`; `None` means that a station with a fixed position does not move.
    pub is_mobile: Option<bool>,
    /// `itsGnMaxSduSize`, octets.
    pub max_sdu_size: u32,
    /// `itsGnLifetimeLocTE`
    pub lifetime_location_entry: Duration,
    /// Time after its last frame for which a station counts as neighbour, at most `lifetime_location_entry`.
    pub lifetime_neighbour: Duration,
    /// `itsGnLocationServiceMaxRetrans`
    pub location_service_max_retransmissions: u32,
    /// `itsGnLocationServiceRetransmitTimer`
    pub location_service_retransmit_timer: Duration,
    /// `itsGnLocationServicePacketBufferSize`, octets.
    pub location_service_buffer_size: u32,
    /// Maximum number of stations that the location service seeks at once.
    pub location_service_max_pending: u32,
    /// `itsGnDefaultHopLimit`
    pub default_hop_limit: u8,
    /// `itsGnDPLLength`
    pub duplicate_packet_list_length: u32,
    /// `itsGnMaxPacketLifetime`
    pub max_packet_lifetime: Duration,
    /// `itsGnDefaultPacketLifetime`
    pub default_packet_lifetime: Duration,
    /// `itsGnMaxPacketDataRate`, kilobytes per second; `None` for no limit.
    pub max_packet_data_rate: Option<u32>,
    /// `itsGnMaxPacketDataRateEmaBeta`, percent.
    pub packet_data_rate_beta: u8,
    /// `itsGnMaxGeoAreaSize`, square kilometres.
    pub max_area_size: u32,
    /// `itsGnMinPacketRepetitionInterval`
    pub min_repetition_interval: Duration,
    /// Time for which the router keeps a next hop although a better one has appeared.
    pub next_hop_hold: Duration,
    /// `itsGnCbfMinTime`
    pub cbf_min_time: Duration,
    /// `itsGnCbfMaxTime`, not below `cbf_min_time`.
    pub cbf_max_time: Duration,
    /// `itsGnBroadcastCBFDefSectorAngle`, degrees.
    pub sector_angle: u32,
    /// MAX_COUNTER of the advanced forwarding algorithm (EN 302 636-4-1 F.4).
    pub advanced_max_counter: u32,
    /// `itsGnUcForwardingPacketBufferSize`, octets.
    pub unicast_buffer_size: u32,
    /// `itsGnBcForwardingPacketBufferSize`, octets.
    pub broadcast_buffer_size: u32,
    /// `itsGnCbfPacketBufferSize`, octets.
    pub cbf_buffer_size: u32,
    /// Maximum number of neighbours in the location table.
    pub max_neighbours: u32,
    /// Maximum number of other stations in the location table.
    pub max_other_stations: u32,
    /// `itsGnPaiInterval`, metres.
    pub pai_interval_m: u16,
    /// `itsGnMinUpdateFrequencyLPV`: the longest time between updates of the station's own position.
    pub position_update_interval: Duration,
}

const HOUR: Duration = Duration::from_secs(3600);
/// Longest lifetime that a packet can express: 63 times 100 s (EN 302 636-4-1 9.6.4).
const MAX_LIFETIME: Duration = Duration::from_secs(6300);

const BUFFER_SIZE_KIND: ValueKind<u32> = integer_kind(0, 268_435_456);
const SECONDS_KIND: ValueKind<Duration> =
    kinds::duration_kind(|text| parse_duration_within(text, Duration::from_secs(1), HOUR));
const TIMER_KIND: ValueKind<Duration> =
    kinds::duration_kind(|text| parse_duration_within(text, Duration::from_millis(10), HOUR));
const AT_MOST_ONE_HOUR_KIND: ValueKind<Duration> =
    kinds::duration_kind(|text| parse_duration_within(text, Duration::ZERO, HOUR));
const PACKET_LIFETIME_KIND: ValueKind<Duration> =
    kinds::duration_kind(|text| parse_duration_within(text, Duration::from_millis(50), MAX_LIFETIME));

static IS_MOBILE: OptionalKey<bool> = optional_key(
    "is_mobile",
    kinds::BOOLEAN_KIND,
    "`itsGnIsMobile`: whether packets say that this station moves. By default a station with a `fixed:`
     position does not move, and any other does.",
);
static MAX_SDU_SIZE: Key<u32> = key_with_default(
    "max_sdu_size",
    integer_kind(1, 8000),
    "1398",
    "`itsGnMaxSduSize`: the longest payload, in octets.",
);
static LIFETIME_LOCATION_ENTRY: Key<Duration> = key_with_default(
    "lifetime_location_entry",
    SECONDS_KIND,
    "\"20s\"",
    "`itsGnLifetimeLocTE`: lifetime of a location table entry, 1 s to 1 h.",
);
static LIFETIME_NEIGHBOUR: OptionalKey<Duration> = computed_key(
    "lifetime_neighbour",
    SECONDS_KIND,
    "\"20s\"",
    "How long a station stays a neighbour after its last packet, 1 s to 1 h, at most
     `lifetime_location_entry`. By default it is the same, which is the standard's rule.",
);
static LOCATION_SERVICE_MAX_RETRANSMISSIONS: Key<u32> = key_with_default(
    "location_service_max_retransmissions",
    integer_kind(0, 255),
    "10",
    "`itsGnLocationServiceMaxRetrans`: how often a request for a station is repeated.",
);
static LOCATION_SERVICE_RETRANSMIT_TIMER: Key<Duration> = key_with_default(
    "location_service_retransmit_timer",
    TIMER_KIND,
    "\"1s\"",
    "`itsGnLocationServiceRetransmitTimer`: time between two requests, 10 ms to 1 h.",
);
static LOCATION_SERVICE_BUFFER_SIZE: Key<u32> = key_with_default(
    "location_service_buffer_size",
    BUFFER_SIZE_KIND,
    "1024",
    "`itsGnLocationServicePacketBufferSize`: octets of packets that wait for one requested station. The newest
     packet waits even if it is larger, alone. With 0 no packet waits.",
);
static LOCATION_SERVICE_MAX_PENDING: Key<u32> = key_with_default(
    "location_service_max_pending",
    integer_kind(1, 65_536),
    "256",
    "Stations that are requested at the same time; not in the standard.",
);
static DEFAULT_HOP_LIMIT: Key<u8> = key_with_default(
    "default_hop_limit",
    integer_kind(1, 255),
    "10",
    "`itsGnDefaultHopLimit`: hop limit of a packet that has none of its own.",
);
static DUPLICATE_PACKET_LIST_LENGTH: Key<u32> = key_with_default(
    "duplicate_packet_list_length",
    integer_kind(1, 16),
    "8",
    "`itsGnDPLLength`: packets per source that the station remembers.",
);
static MAX_PACKET_LIFETIME: Key<Duration> = key_with_default(
    "max_packet_lifetime",
    PACKET_LIFETIME_KIND,
    "\"10m\"",
    "`itsGnMaxPacketLifetime`, 50 ms to 6300 s.",
);
static DEFAULT_PACKET_LIFETIME: Key<Duration> = key_with_default(
    "default_packet_lifetime",
    PACKET_LIFETIME_KIND,
    "\"60s\"",
    "`itsGnDefaultPacketLifetime`: lifetime of a packet that has none of its own, at most
     `max_packet_lifetime`.",
);
static MAX_PACKET_DATA_RATE: Key<u32> = key_with_default(
    "max_packet_data_rate",
    integer_kind(0, 4_000_000),
    "100",
    "`itsGnMaxPacketDataRate`: kilobytes per second. The station does not forward packets of a source or
     sender whose average is above this (annex B.2). The standard has one limit for all packets, IPv6
     included. IPv6 and packets of DCC profile DP2 and DP3 have four fifths of it, so that a download leaves
     room for warnings: a forwarder drops them above that. The station itself sends its IPv6 over several hops
     no faster. Vehicles that forward IPv6 for each other need more than 0.8 Mbit/s. With 0, no limit, their
     fast path forwards it.",
);
static PACKET_DATA_RATE_BETA: Key<u8> = key_with_default(
    "packet_data_rate_beta",
    integer_kind(0, 99),
    "90",
    "`itsGnMaxPacketDataRateEmaBeta`: the weight of the past in that average, percent.",
);
static MAX_AREA_SIZE: Key<u32> = key_with_default(
    "max_area_size",
    integer_kind(1, 100_000),
    "10",
    "`itsGnMaxGeoAreaSize`: the largest area to which the station sends and forwards packets, square
     kilometres.",
);
static MIN_REPETITION_INTERVAL: Key<Duration> = key_with_default(
    "min_repetition_interval",
    TIMER_KIND,
    "\"100ms\"",
    "`itsGnMinPacketRepetitionInterval`, 10 ms to 1 h.",
);
static NEXT_HOP_HOLD: Key<Duration> = key_with_default(
    "next_hop_hold",
    AT_MOST_ONE_HOUR_KIND,
    "\"0s\"",
    "How long the station keeps a next hop after a better one appeared, so that packets of a flow do not
     overtake each other; 1 h at most; not in the standard.",
);
static CBF_MIN_TIME: Key<Duration> = key_with_default(
    "cbf_min_time",
    AT_MOST_ONE_HOUR_KIND,
    "\"1ms\"",
    "`itsGnCbfMinTime`: how long the farthest receiver waits before it repeats a packet, 1 h at most and not
     above `cbf_max_time`.",
);
static CBF_MAX_TIME: Key<Duration> = key_with_default(
    "cbf_max_time",
    AT_MOST_ONE_HOUR_KIND,
    "\"100ms\"",
    "`itsGnCbfMaxTime`: how long the nearest receiver waits, 1 h at most.",
);
static SECTOR_ANGLE: Key<u32> = key_with_default(
    "sector_angle",
    integer_kind(1, 180),
    "30",
    "`itsGnBroadcastCBFDefSectorAngle`: degrees.",
);
static ADVANCED_MAX_COUNTER: Key<u32> = key_with_default(
    "advanced_max_counter",
    integer_kind(1, 255),
    "3",
    r#"MAX_COUNTER of annex F.4: with `area = "advanced"`, this number of received copies ends the wait."#,
);
static UNICAST_BUFFER_SIZE: Key<u32> = key_with_default(
    "unicast_buffer_size",
    BUFFER_SIZE_KIND,
    "256000",
    "`itsGnUcForwardingPacketBufferSize`: octets of packets to stations that wait for a next hop.",
);
static BROADCAST_BUFFER_SIZE: Key<u32> = key_with_default(
    "broadcast_buffer_size",
    BUFFER_SIZE_KIND,
    "1024000",
    "`itsGnBcForwardingPacketBufferSize`: octets of packets to areas that wait for a next hop.",
);
static CBF_BUFFER_SIZE: Key<u32> = key_with_default(
    "cbf_buffer_size",
    BUFFER_SIZE_KIND,
    "256000",
    "`itsGnCbfPacketBufferSize`: octets of packets in contention.",
);
static MAX_NEIGHBOURS: Key<u32> = key_with_default(
    "max_neighbours",
    integer_kind(1, 1_000_000),
    "16384",
    "Neighbours that the location table holds; not in the standard. In a full table new neighbours replace
     those that were heard once; others stay until their lifetime ends.",
);
static MAX_OTHER_STATIONS: Key<u32> = key_with_default(
    "max_other_stations",
    integer_kind(1, 1_000_000),
    "16384",
    "Other stations that the location table holds; not in the standard.",
);
static PAI_INTERVAL: Key<u16> = key_with_default(
    "pai_interval",
    kinds::LENGTH_KIND,
    "\"80m\"",
    "`itsGnPaiInterval`: a position is accurate (PAI) if its error is below half of this, with 95 %
     confidence.",
);
static POSITION_UPDATE_INTERVAL: Key<Duration> = key_with_default(
    "position_update_interval",
    TIMER_KIND,
    "\"1s\"",
    "`itsGnMinUpdateFrequencyLPV`: longest time between two updates of the own position, 10 ms to 1 h.",
);

/// Keys of the config table `[geonet.mib]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[geonet.mib]",
    "geonet.mib",
    &[
        &IS_MOBILE,
        &MAX_SDU_SIZE,
        &LIFETIME_LOCATION_ENTRY,
        &LIFETIME_NEIGHBOUR,
        &LOCATION_SERVICE_MAX_RETRANSMISSIONS,
        &LOCATION_SERVICE_RETRANSMIT_TIMER,
        &LOCATION_SERVICE_BUFFER_SIZE,
        &LOCATION_SERVICE_MAX_PENDING,
        &DEFAULT_HOP_LIMIT,
        &DUPLICATE_PACKET_LIST_LENGTH,
        &MAX_PACKET_LIFETIME,
        &DEFAULT_PACKET_LIFETIME,
        &MAX_PACKET_DATA_RATE,
        &PACKET_DATA_RATE_BETA,
        &MAX_AREA_SIZE,
        &MIN_REPETITION_INTERVAL,
        &NEXT_HOP_HOLD,
        &CBF_MIN_TIME,
        &CBF_MAX_TIME,
        &SECTOR_ANGLE,
        &ADVANCED_MAX_COUNTER,
        &UNICAST_BUFFER_SIZE,
        &BROADCAST_BUFFER_SIZE,
        &CBF_BUFFER_SIZE,
        &MAX_NEIGHBOURS,
        &MAX_OTHER_STATIONS,
        &PAI_INTERVAL,
        &POSITION_UPDATE_INTERVAL,
    ],
);

/// Reads the table; `None` if it has an error.
pub(super) fn read_table(table: &Table<'_>) -> Option<Mib> {
    let lifetime_location_entry = table.read_key(&LIFETIME_LOCATION_ENTRY);
    let lifetime_neighbour =
        table.read_key(&LIFETIME_NEIGHBOUR).and_then(|given| given.or(lifetime_location_entry));
    check_not_above(
        table,
        (&LIFETIME_NEIGHBOUR, lifetime_neighbour),
        (&LIFETIME_LOCATION_ENTRY, lifetime_location_entry),
    );
    let max_packet_lifetime = table.read_key(&MAX_PACKET_LIFETIME);
    let default_packet_lifetime =
        check_at_most(table, &DEFAULT_PACKET_LIFETIME, (&MAX_PACKET_LIFETIME, max_packet_lifetime));
    let cbf_max_time = table.read_key(&CBF_MAX_TIME);
    let cbf_min_time = check_at_most(table, &CBF_MIN_TIME, (&CBF_MAX_TIME, cbf_max_time));
    all!(Mib {
        is_mobile: table.read_key(&IS_MOBILE),
        max_sdu_size: table.read_key(&MAX_SDU_SIZE),
        lifetime_location_entry: lifetime_location_entry,
        lifetime_neighbour: lifetime_neighbour,
        location_service_max_retransmissions: table.read_key(&LOCATION_SERVICE_MAX_RETRANSMISSIONS),
        location_service_retransmit_timer: table.read_key(&LOCATION_SERVICE_RETRANSMIT_TIMER),
        location_service_buffer_size: table.read_key(&LOCATION_SERVICE_BUFFER_SIZE),
        location_service_max_pending: table.read_key(&LOCATION_SERVICE_MAX_PENDING),
        default_hop_limit: table.read_key(&DEFAULT_HOP_LIMIT),
        duplicate_packet_list_length: table.read_key(&DUPLICATE_PACKET_LIST_LENGTH),
        max_packet_lifetime: max_packet_lifetime,
        default_packet_lifetime: default_packet_lifetime,
        max_packet_data_rate: table.read_key(&MAX_PACKET_DATA_RATE).map(|rate| (rate > 0).then_some(rate)),
        packet_data_rate_beta: table.read_key(&PACKET_DATA_RATE_BETA),
        max_area_size: table.read_key(&MAX_AREA_SIZE),
        min_repetition_interval: table.read_key(&MIN_REPETITION_INTERVAL),
        next_hop_hold: table.read_key(&NEXT_HOP_HOLD),
        cbf_min_time: cbf_min_time,
        cbf_max_time: cbf_max_time,
        sector_angle: table.read_key(&SECTOR_ANGLE),
        advanced_max_counter: table.read_key(&ADVANCED_MAX_COUNTER),
        unicast_buffer_size: table.read_key(&UNICAST_BUFFER_SIZE),
        broadcast_buffer_size: table.read_key(&BROADCAST_BUFFER_SIZE),
        cbf_buffer_size: table.read_key(&CBF_BUFFER_SIZE),
        max_neighbours: table.read_key(&MAX_NEIGHBOURS),
        max_other_stations: table.read_key(&MAX_OTHER_STATIONS),
        pai_interval_m: table.read_key(&PAI_INTERVAL),
        position_update_interval: table.read_key(&POSITION_UPDATE_INTERVAL),
    })
}

/// Reads a duration that must not exceed the value of another key. A default above that value is lowered to
/// it.
fn check_at_most(
    table: &Table<'_>,
    key: &Key<Duration>,
    (limit_key, limit): (&dyn DeclaredKey, Option<Duration>),
) -> Option<Duration> {
    let span = table.read_key(key);
    if table.value_of_key(key).is_none() {
        return span.map(|span| limit.map_or(span, |limit| span.min(limit)));
    }
    check_not_above(table, (key, span), (limit_key, limit));
    span
}

/// Reads two durations, of which the first must not be longer than the second.
fn check_not_above(
    table: &Table<'_>,
    (key, span): (&dyn DeclaredKey, Option<Duration>),
    (limit_key, limit): (&dyn DeclaredKey, Option<Duration>),
) {
    if let (Some(span), Some(limit), Some(value)) =
        (span, limit, table.value_of_key(key).or(table.value_of_key(limit_key)))
        && span > limit
    {
        let (name, limit_name) = (key.declaration().name, limit_key.declaration().name);
        value.report_error(&format!(
            "`{name}` is longer than `{limit_name}`, expected {} at most",
            format_duration(limit)
        ));
    }
}

fn parse_duration_within(text: &str, low: Duration, high: Duration) -> Result<Duration, String> {
    let span = values::parse_duration(text)?;
    if (low..=high).contains(&span) {
        return Ok(span);
    }
    Err(format!("{text:?} is out of range, expected {} to {}", format_duration(low), format_duration(high)))
}

/// Formats a duration as in the config file.
fn format_duration(span: Duration) -> String {
    match (span.as_secs(), span.subsec_millis()) {
        (seconds, 0) => format!("{seconds}s"),
        (_, milliseconds) => format!("{milliseconds}ms"),
    }
}
