//! `[geonet.mnpp]`: Mobile Network Prefix Provisioning.

use std::time::Duration;

use carnet_mobility::mnpp::Authorization;

use super::super::keys::{Key, Section, integer_kind, key_with_default, words_kind};
use super::super::kinds;
use super::super::table::{Table, all};
use super::values;

/// `geonet.mnpp`: Mobile Network Prefix Provisioning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mnpp {
    /// Proof that the router demands before it accepts an announced prefix.
    pub authorization: Authorization,
    /// Minimum length of an accepted prefix.
    pub shortest_prefix: u8,
    /// Hop limit of announcements, and of packets on direct routes.
    pub hop_limit: u8,
    /// Longest time between announcements while there are neighbours.
    pub interval: Duration,
}

static AUTHORIZATION: Key<Authorization> = key_with_default(
    "authorization",
    words_kind(&[("home_agent", Authorization::HomeAgent), ("none", Authorization::Anybody)]),
    "\"home_agent\"",
    r#"How the router checks that a station owns the prefix that it announces. `"home_agent"`: by the home
       agent of the prefix's owner. The router sends a question to the prefix through the tunnel, and the
       station has to answer it directly; the home agent delivers the question only to the router that has
       registered the prefix. An answer is good for ten minutes, also without a home agent. This needs a data
       path other than `"kernel"`. `"none"`: no check, so every station in radio range can draw the packets
       for any prefix; for test benches."#,
);
static SHORTEST_PREFIX: Key<u8> = key_with_default(
    "shortest_prefix",
    integer_kind(1, 128),
    "64",
    "The router ignores announcements of shorter prefixes. The question of `authorization` goes to an
     unpredictable address of the prefix. A station may own only a part of a prefix shorter than 64 bits, so
     the router asks eight such addresses. A station that owns a sixteenth or less does not get the whole
     prefix, but one that owns half of it may in time. Take less than 64 only if home agents give out prefixes
     of that length as a whole. The router also ignores prefixes that contain one of its own, or are part of
     one.",
);
static HOP_LIMIT_KEY: Key<u8> = key_with_default(
    "hops",
    integer_kind(1, 10),
    "1",
    "How many hops announcements go, and packets to the vehicles that announce. More than one hop costs more
     of the channel, because other stations repeat the announcements. Positions then do not predict when a
     path ends.",
);
static INTERVAL_KEY: Key<Duration> = key_with_default(
    "interval",
    kinds::duration_kind(values::parse_announcement_interval),
    "\"10s\"",
    "The longest time between announcements while the router has neighbours, 1 s to 200 s. An announcement is
     good for three intervals. It counts as a beacon if `hops` is 1.",
);

/// Keys of the config table `[geonet.mnpp]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[geonet.mnpp]",
    "geonet.mnpp",
    &[&AUTHORIZATION, &SHORTEST_PREFIX, &HOP_LIMIT_KEY, &INTERVAL_KEY],
);

/// Reads the table; `None` if it has an error.
pub(super) fn read_table(table: &Table<'_>) -> Option<Mnpp> {
    all!(Mnpp {
        authorization: table.read_key(&AUTHORIZATION),
        shortest_prefix: table.read_key(&SHORTEST_PREFIX),
        hop_limit: table.read_key(&HOP_LIMIT_KEY),
        interval: table.read_key(&INTERVAL_KEY),
    })
}
