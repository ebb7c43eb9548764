//! `[geonet.beacon]`: config of beacons.

use std::time::Duration;

use super::super::keys::{
    DeclaredKey, Key, OptionalKey, Section, computed_key, integer_kind, key_with_default, optional_key,
};
use super::super::table::{Table, all};
use super::super::{kinds, values};

/// Values of the config table `geonet.beacon`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beacon {
    /// Interval of beacons.
    pub interval: BeaconInterval,
    /// Whether the speed of the fastest neighbour determines the interval if this station is slower.
    pub uses_neighbour_speed: bool,
    /// Difference in metres between the real position and the one that other stations predict, above which
    /// the station sends a beacon at once.
    pub max_position_error_m: Option<u16>,
    /// Lifetime of a beacon in intervals; `None` if beacons carry no lifetime.
    pub lifetime: Option<u8>,
    /// Whether any broadcast of the station counts as a beacon.
    pub counts_broadcasts_as_beacons: bool,
    /// Beacons over more than one hop; `None` if all go one hop.
    pub multi_hop_beacons: Option<MultiHopBeacons>,
}

/// Interval of beacons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeaconInterval {
    /// A fixed interval, as in the standard.
    Fixed {
        /// `itsGnBeaconServiceRetransmitTimer`
        interval: Duration,
        /// `itsGnBeaconServiceMaxJitter`
        jitter: Duration,
    },
    /// An interval that shrinks with speed: `range` / (`beacons_in_range` * speed).
    Adaptive {
        /// Number of beacons that the station sends while it drives the distance of the radio range.
        beacons_in_range: u32,
        /// Shortest interval.
        shortest: Duration,
        /// Longest interval.
        longest: Duration,
        /// Maximum number of beacons per second of all stations in range together; `None` for no limit.
        load_limit: Option<u32>,
    },
}

/// Beacons over several hops, an extension of the standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MultiHopBeacons {
    /// Hop limit, above 1.
    pub hop_limit: u8,
    /// Number N: one of N beacons goes over several hops, the others go over one hop.
    pub every_nth_beacon: u32,
}

static INTERVAL_KEY: Key<Duration> = key_with_default(
    "interval",
    kinds::duration_kind(parse_beacon_interval),
    "\"3s\"",
    "Time from one beacon to the next, 10 ms to 1 h (`itsGnBeaconServiceRetransmitTimer`).",
);
static JITTER_KEY: OptionalKey<Duration> = computed_key(
    "jitter",
    kinds::duration_kind(parse_jitter),
    "\"750ms\"",
    "Random time up to this that is added to it, 1 h at most (`itsGnBeaconServiceMaxJitter`). A quarter of
     `interval` by default.",
);
static ADAPTIVE_INTERVAL: Key<bool> = key_with_default(
    "adaptive",
    kinds::BOOLEAN_KIND,
    "false",
    "Instead of `interval` and `jitter`: the station sends `beacons_in_range` beacons while it crosses the
     `range` at its speed.",
);
static BEACONS_IN_RANGE: Key<u32> = key_with_default(
    "beacons_in_range",
    integer_kind(1, 1000),
    "16",
    "With `adaptive = true`: the number of beacons.",
);
static SHORTEST_INTERVAL: Key<Duration> = key_with_default(
    "shortest",
    kinds::duration_kind(parse_beacon_interval),
    "\"100ms\"",
    "With `adaptive = true`: the shortest interval.",
);
static LONGEST_INTERVAL: Key<Duration> = key_with_default(
    "longest",
    kinds::duration_kind(parse_beacon_interval),
    "\"2s\"",
    "With `adaptive = true`: the longest interval.",
);
static CHANNEL_LOAD_LIMIT: Key<u32> = key_with_default(
    "load_limit",
    integer_kind(0, 100_000),
    "500",
    "With `adaptive = true`: beacons per second of all stations in range together. Above it the interval
     grows, also beyond `longest`. 0 for no limit.",
);
static COMPANY_SPEED: Key<bool> = key_with_default(
    "company_speed",
    kinds::BOOLEAN_KIND,
    "false",
    "With `adaptive = true`: the speed of the fastest neighbour counts if this station is slower. The speeds
     of both decide how long two stations are in range.",
);
static DEVIATION_KEY: OptionalKey<u16> = optional_key(
    "deviation",
    kinds::LENGTH_KIND,
    "With `adaptive = true`: distance between the real position and the one that the last beacon predicts.
     Beyond it, when the station turns or brakes, a beacon goes as soon as `shortest` allows. Use it with
     `link_lifetime`.",
);
static LIFETIME_KEY: OptionalKey<u8> = optional_key(
    "lifetime",
    integer_kind(1, 63),
    "How many intervals a beacon counts. Beacons carry this in their lifetime field, and a neighbour ends if
     no beacon follows in that time. An extension of the standard, for all stations or for none.",
);
static COUNT_BROADCASTS_KEY: Key<bool> = key_with_default(
    "piggyback",
    kinds::BOOLEAN_KIND,
    "false",
    "Every own broadcast counts as a beacon, and every station that is received directly is a neighbour. An
     extension of the standard, for all stations or for none.",
);
static HOP_LIMIT_KEY: Key<u8> = key_with_default(
    "hops",
    integer_kind(1, 255),
    "1",
    "How many hops some of the beacons go, which saves requests of the Location Service. Above 1 it is an
     extension of the standard.",
);
static EVERY_NTH_BEACON: Key<u32> = key_with_default(
    "every",
    integer_kind(1, 10_000),
    "1",
    "With `hops` above 1: one of this number of beacons goes that far.",
);

/// Keys of the config table `[geonet.beacon]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[geonet.beacon]",
    "geonet.beacon",
    &[
        &INTERVAL_KEY,
        &JITTER_KEY,
        &ADAPTIVE_INTERVAL,
        &BEACONS_IN_RANGE,
        &SHORTEST_INTERVAL,
        &LONGEST_INTERVAL,
        &CHANNEL_LOAD_LIMIT,
        &COMPANY_SPEED,
        &DEVIATION_KEY,
        &LIFETIME_KEY,
        &COUNT_BROADCASTS_KEY,
        &HOP_LIMIT_KEY,
        &EVERY_NTH_BEACON,
    ],
);

/// Reads the table; `None` if it has an error.
pub(super) fn read_table(table: &Table<'_>) -> Option<Beacon> {
    let adaptive = table.read_key(&ADAPTIVE_INTERVAL);
    let interval = read_interval(table, adaptive);
    let multi_hop = all!(MultiHopBeacons {
        hop_limit: table.read_key(&HOP_LIMIT_KEY),
        every_nth_beacon: table.read_key(&EVERY_NTH_BEACON)
    });
    all!(Beacon {
        interval: interval,
        uses_neighbour_speed: table.read_key(&COMPANY_SPEED),
        max_position_error_m: table.read_key(&DEVIATION_KEY),
        lifetime: table.read_key(&LIFETIME_KEY),
        counts_broadcasts_as_beacons: table.read_key(&COUNT_BROADCASTS_KEY),
        multi_hop_beacons: multi_hop.map(|beacons| (beacons.hop_limit > 1).then_some(beacons)),
    })
}

/// Reads the interval of beacons. Keys of the other kind of interval are errors.
fn read_interval(table: &Table<'_>, adaptive: Option<bool>) -> Option<BeaconInterval> {
    let interval = table.read_key(&INTERVAL_KEY);
    let jitter = match table.read_key(&JITTER_KEY) {
        Some(None) => interval.map(|interval| interval / 4),
        given => given.flatten(),
    };
    let beacons_in_range = table.read_key(&BEACONS_IN_RANGE);
    let shortest = table.read_key(&SHORTEST_INTERVAL);
    let longest = table.read_key(&LONGEST_INTERVAL);
    let load_limit = table.read_key(&CHANNEL_LOAD_LIMIT);
    let (others, what): (&[&dyn DeclaredKey], &str) = match adaptive {
        Some(true) => (&[&INTERVAL_KEY, &JITTER_KEY], "needs a fixed interval, expected adaptive = false"),
        Some(false) => (
            &[
                &BEACONS_IN_RANGE,
                &SHORTEST_INTERVAL,
                &LONGEST_INTERVAL,
                &CHANNEL_LOAD_LIMIT,
                &COMPANY_SPEED,
                &DEVIATION_KEY,
            ],
            "needs adaptive beacons, expected adaptive = true",
        ),
        None => (&[], ""),
    };
    for value in others.iter().filter_map(|key| table.value_of_key(*key)) {
        value.report_error(what);
    }
    if let (Some(least), Some(most), Some(value)) =
        (shortest, longest, table.value_of_key(&LONGEST_INTERVAL).or(table.value_of_key(&SHORTEST_INTERVAL)))
        && least > most
    {
        value.report_error(
            "the longest interval is shorter than the shortest, expected `shortest` up to `longest`",
        );
    }
    if adaptive? {
        Some(BeaconInterval::Adaptive {
            beacons_in_range: beacons_in_range?,
            shortest: shortest?,
            longest: longest?,
            load_limit: load_limit.map(|limit| (limit > 0).then_some(limit))?,
        })
    } else {
        Some(BeaconInterval::Fixed { interval: interval?, jitter: jitter? })
    }
}

/// Parses the interval between two beacons.
fn parse_beacon_interval(text: &str) -> Result<Duration, String> {
    let interval = values::parse_duration(text)?;
    if interval < Duration::from_millis(10) || interval > Duration::from_secs(3600) {
        return Err(format!("{text:?} is out of range, expected 10ms to 1h"));
    }
    Ok(interval)
}

/// Parses the maximum random time that is added to the interval of beacons.
fn parse_jitter(text: &str) -> Result<Duration, String> {
    let jitter = values::parse_duration(text)?;
    if jitter > Duration::from_secs(3600) {
        return Err(format!("{text:?} is out of range, expected 0s to 1h"));
    }
    Ok(jitter)
}
