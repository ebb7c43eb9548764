//! `[geonet.forwarding]`: forwarding algorithms.

use std::time::Duration;

use carnet_geonet::mib::{AreaForwarding, NonAreaForwarding, Planarisation, VoidRecovery};

use super::super::keys::{Key, OptionalKey, Section, key_with_default, optional_key, words_kind};
use super::super::kinds;
use super::super::table::Table;
use super::values;

/// Values of the config table `geonet.forwarding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarding {
    /// Algorithm towards a station, or towards an area from outside.
    pub unicast_algorithm: NonAreaForwarding,
    /// Algorithm inside an area.
    pub area_algorithm: AreaForwarding,
    /// Algorithm if greedy forwarding finds no neighbour nearer to the destination.
    pub void_recovery: VoidRecovery,
    /// Time for which the link to a next hop must last, as position and movement of both stations predict it.
    /// With `None` the router uses only positions, as in the standard.
    pub link_lifetime: Option<Duration>,
}

static UNICAST_ALGORITHM: Key<NonAreaForwarding> = key_with_default(
    "unicast",
    words_kind(&[("greedy", NonAreaForwarding::Greedy), ("cbf", NonAreaForwarding::ContentionBased)]),
    "\"greedy\"",
    r#"Algorithm towards a station, or towards an area from outside. `"greedy"`: to the neighbour that is
       nearest to the destination; if 802.11 reports that it did not receive the packet, to the next best one.
       `"cbf"`, contention-based: the station broadcasts the packet, and the receiver with the most progress
       is the first to repeat it. That is better if neighbours change often and the link reports no loss."#,
);
static AREA_ALGORITHM: Key<AreaForwarding> = key_with_default(
    "area",
    words_kind(&[
        ("simple", AreaForwarding::Simple),
        ("cbf", AreaForwarding::ContentionBased),
        ("advanced", AreaForwarding::Advanced),
    ]),
    "\"cbf\"",
    r#"Algorithm inside an area. `"simple"`: every station repeats a packet once. `"cbf"`: the farthest
       receiver repeats it, and stations that hear that stay silent. `"advanced"`: a selected next hop repeats
       it at once, with contention as the fallback."#,
);
static VOID_RECOVERY: Key<bool> = key_with_default(
    "recovery",
    words_kind(&[("none", false), ("gpsr", true)]),
    "\"none\"",
    r#"What happens if greedy forwarding finds no neighbour that is nearer. `"none"`: the packet waits or is
       broadcast, as the standard says. `"gpsr"`: it walks around the void. That is an extension of the
       standard; stations without it ignore such packets."#,
);
static PLANARISATION: Key<Planarisation> = key_with_default(
    "planarisation",
    words_kind(&[("gabriel", Planarisation::Gabriel), ("rng", Planarisation::RelativeNeighbourhood)]),
    "\"gabriel\"",
    r#"With `recovery = "gpsr"`: the planar graph of the neighbours along which a packet walks, the Gabriel
       graph (shorter paths) or the relative neighbourhood graph (fewer links)."#,
);
static LINK_LIFETIME: OptionalKey<Duration> = optional_key(
    "link_lifetime",
    kinds::duration_kind(values::parse_link_lifetime),
    r#"With `unicast = "greedy"`: the station predicts the neighbours' positions by their speed and heading.
       It selects only neighbours whose link, by the speeds of both and the `range`, lasts this long; 10 s at
       most. A destination in range gets the packet directly, even if it is no known neighbour. This is for
       vehicles that pass each other fast; `range` has to be the real one. It is an extension of the standard
       that other stations need not share. `"0s"`: neighbours that are in range now. Without this key the
       station uses the last received positions, as the standard says."#,
);

/// Keys of the config table `[geonet.forwarding]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[geonet.forwarding]",
    "geonet.forwarding",
    &[&UNICAST_ALGORITHM, &AREA_ALGORITHM, &VOID_RECOVERY, &PLANARISATION, &LINK_LIFETIME],
);

/// Reads the table; `None` if it has an error.
pub(super) fn read_table(table: &Table<'_>) -> Option<Forwarding> {
    let unicast = table.read_key(&UNICAST_ALGORITHM);
    let area = table.read_key(&AREA_ALGORITHM);
    let gpsr = table.read_key(&VOID_RECOVERY);
    let planarisation = table.read_key(&PLANARISATION);
    if let (Some(value), Some(false)) = (table.value_of_key(&PLANARISATION), gpsr) {
        value.report_error("a planarisation needs perimeter recovery, expected recovery = \"gpsr\"");
    }
    let planarisation = planarisation?;
    let recovery = if gpsr? { VoidRecovery::Perimeter(planarisation) } else { VoidRecovery::None };
    let link_lifetime = table.read_key(&LINK_LIFETIME);
    Some(Forwarding {
        unicast_algorithm: unicast?,
        area_algorithm: area?,
        void_recovery: recovery,
        link_lifetime: link_lifetime?,
    })
}
