//! `[geonet.multicast]`: an MLD proxy.

use std::time::Duration;

use super::super::keys::{Key, Section, integer_kind, key_with_default, required_key};
use super::super::kinds;
use super::super::reader::List;
use super::super::table::Table;
use super::values;

/// `geonet.multicast`: an MLD proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Multicast {
    /// Interfaces of the mobile network, at least one.
    pub lan_interfaces: Vec<String>,
    /// Whether the station also sends multicast packets over the radio if the config gives their group no
    /// area.
    pub forwards_unmapped_groups: bool,
    /// MLD's Robustness Variable, 1 to 7.
    pub robustness_variable: u8,
    /// MLD's Query Interval.
    pub query_interval: Duration,
    /// MLD's Query Response Interval, shorter than the Query Interval.
    pub query_response_interval: Duration,
}

static LAN_INTERFACES: Key<List<String>> = required_key(
    "lan",
    kinds::INTERFACES_KIND,
    "The interfaces of the mobile network; they may be those of `mobile_router.lan`. carnet forwards a host's
     packets if the host's address belongs to the interface, so the interface needs an address of the mobile
     network.",
);
static FORWARD_UNMAPPED_GROUPS: Key<bool> = key_with_default(
    "unmapped",
    kinds::BOOLEAN_KIND,
    "false",
    "Whether groups without an area leave the vehicle as well, to all stations within `hop_limit` hops. Groups
     of site scope (`ff05::/16`) and smaller scopes never do.",
);
static ROBUSTNESS_VARIABLE: Key<u8> = key_with_default(
    "robustness",
    integer_kind(1, 7),
    "2",
    "MLD's Robustness Variable: listening survives the loss of this number of messages in a row, less one.",
);
static QUERY_INTERVAL: Key<Duration> = key_with_default(
    "query_interval",
    kinds::duration_kind(values::parse_query_interval),
    "\"125s\"",
    "MLD's Query Interval, from 1 s: how often the router asks hosts which groups they listen to. All routers
     of a link use the same value.",
);
static QUERY_RESPONSE_INTERVAL: Key<Duration> = key_with_default(
    "query_response_interval",
    kinds::duration_kind(values::parse_query_response_interval),
    "\"10s\"",
    "MLD's Query Response Interval, from 100 ms: how long hosts may take to answer. Shorter than
     `query_interval`.",
);

/// Keys of the config table `[geonet.multicast]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[geonet.multicast]",
    "geonet.multicast",
    &[
        &LAN_INTERFACES,
        &FORWARD_UNMAPPED_GROUPS,
        &ROBUSTNESS_VARIABLE,
        &QUERY_INTERVAL,
        &QUERY_RESPONSE_INTERVAL,
    ],
);

/// The parsed table, with the values that the checks compare with other tables.
#[derive(Clone)]
pub(in crate::config) struct UncheckedMulticast {
    /// Position of the table in the file.
    pub at: usize,
    pub lan: List<String>,
    pub config: Option<Multicast>,
}

impl UncheckedMulticast {
    /// Reads the table; `None` if a key other than `lan` has an error.
    pub(super) fn read_table(table: &Table<'_>) -> Option<UncheckedMulticast> {
        let lan = table.read_key(&LAN_INTERFACES).unwrap_or_default();
        let unmapped = table.read_key(&FORWARD_UNMAPPED_GROUPS);
        let robustness = table.read_key(&ROBUSTNESS_VARIABLE);
        let query_interval = table.read_key(&QUERY_INTERVAL);
        let response = table.read_key(&QUERY_RESPONSE_INTERVAL);
        if let (Some(interval), Some(response), Some(value)) = (
            query_interval,
            response,
            table.value_of_key(&QUERY_RESPONSE_INTERVAL).or(table.value_of_key(&QUERY_INTERVAL)),
        ) && response >= interval
        {
            // RFC 3810 9.3: the response interval must be shorter than the query interval.
            value.report_error(
                "hosts would have no time to answer, expected a response interval shorter than the interval",
            );
        }
        let (unmapped, robustness) = (unmapped?, robustness?);
        let (query_interval, query_response_interval) = (query_interval?, response?);
        let config = lan.complete_items().map(|lan| Multicast {
            lan_interfaces: lan,
            forwards_unmapped_groups: unmapped,
            robustness_variable: robustness,
            query_interval,
            query_response_interval,
        });
        Some(UncheckedMulticast { at: table.table_offset(), lan, config })
    }
}
