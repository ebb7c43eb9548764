//! `[geonet.ipv6]`: IPv6 over GeoNetworking.

use std::time::Duration;

use carnet_geonet::ipv6_adaptation::ReorderHold;
use carnet_geonet::ipv6_adaptation::in_order::ReorderRule;

use super::super::keys::{
    Key, OptionalKey, Section, integer_kind, key_with_default, optional_key, words_kind,
};
use super::super::kinds;
use super::super::reader::Located;
use super::super::table::{Table, all};
use super::values;

/// `geonet.ipv6_interface` and `geonet.ipv6`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ipv6 {
    /// Interface for packets to all stations within the hop limit.
    pub interface: String,
    /// Interface for packets to areas that have no interface of their own.
    pub interface_for_other_areas: Option<String>,
    /// Maximum number of interfaces that Router Advertisements may create.
    pub max_learnt_interfaces: u8,
    /// Hop limit of packets; `None` for `mib.default_hop_limit`.
    pub hop_limit: Option<u8>,
    /// Time for which a packet that has overtaken others may wait for them.
    pub reorder_wait: Duration,
    /// Rule by which a packet counts as having overtaken others.
    pub reorder_rule: ReorderRule,
    /// Whether all later packets wait while an earlier packet is missing, or only duplicate acknowledgements
    /// of the host's TCP.
    pub reorder_hold: ReorderHold,
    /// Number of octets in the radio's queue above which packets are marked with Congestion Experienced.
    pub congestion_mark: Option<u32>,
    /// Whether packets that are too large for the radio are fragmented, for stations that support it.
    pub fragments_large_packets: bool,
}

static DYNAMIC_INTERFACE: OptionalKey<String> = optional_key(
    "dynamic_interface",
    kinds::INTERFACE_KIND,
    "Another interface that carnet makes: packets to areas without an interface come out of it (the standard's
     dynamic geographic virtual link). Without it they come out of `ipv6_interface`.",
);
static LEARNT_LINKS: Key<u8> = key_with_default(
    "learnt_links",
    integer_kind(0, 64),
    "0",
    "How many interfaces carnet makes for areas without one from which Router Advertisements come. The kernel
     gives them addresses by the advertisement, but no default route; carnet removes an interface with its
     last prefix. Nothing authenticates such advertisements. The names are that of `ipv6_interface` with `-1`,
     `-2` and so on.",
);
static HOP_LIMIT: OptionalKey<u8> = optional_key(
    "hop_limit",
    integer_kind(1, 255),
    "Hop limit of packets. As `mib.default_hop_limit` by default.",
);
static REORDER_WAIT: Key<Duration> = key_with_default(
    "reorder_wait",
    kinds::duration_kind(values::parse_reorder_wait),
    "\"0s\"",
    r#"The longest time that a unicast packet waits for packets that it has overtaken; up to 1 s. The station
       learns the real time. TCP takes packets out of order for lost ones. `"0s"`: no packet waits."#,
);
static REORDER_RULE: Key<ReorderRule> = key_with_default(
    "reorder_rule",
    words_kind(&[
        ("shorter", ReorderRule::Shorter),
        ("changed", ReorderRule::Changed),
        ("always", ReorderRule::Always),
    ]),
    "\"shorter\"",
    r#"Which packets wait if sequence numbers before them are missing. `"shorter"`: those that came over fewer
       hops than the packet before. `"changed"`: those over another number of hops. `"always"`: all. A gap may
       also be packets that the source has sent to other stations; with `"always"` a packet behind such a gap
       waits in vain."#,
);
static REORDER_HOLD: Key<ReorderHold> = key_with_default(
    "reorder_hold",
    words_kind(&[("packets", ReorderHold::Packets), ("acknowledgements", ReorderHold::Acknowledgements)]),
    "\"packets\"",
    r#"What waits: the packets themselves, or the duplicate acknowledgements by which the host's TCP reports
       the missing ones. `"acknowledgements"` delays no data, and helps only TCP that is not encrypted."#,
);
static CONGESTION_MARK: OptionalKey<u32> = optional_key(
    "congestion_mark",
    integer_kind(1, 10_000_000),
    "Octets in the radio's queue from which on unicast packets leave with Congestion Experienced, if their
     transport supports ECN (RFC 3168). The kernel adds what it needs for each packet itself, some 1,300
     octets. If the radio's driver does not report its queue, no packet is marked.",
);
static FRAGMENT_LARGE_PACKETS: Key<bool> = key_with_default(
    "fragments",
    kinds::BOOLEAN_KIND,
    "false",
    "Whether the station fragments unicast packets that the radio does not carry, for stations that have this
     as well. The MTU of the interfaces is 1500 then. Other stations ignore the request, and the host gets a
     Packet Too Big after a second. The format is that of RFC 4944 5.3, which no other GeoNetworking station
     is known to have.",
);

/// Keys of the config table `[geonet.ipv6]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[geonet.ipv6]",
    "geonet.ipv6",
    &[
        &DYNAMIC_INTERFACE,
        &LEARNT_LINKS,
        &HOP_LIMIT,
        &REORDER_WAIT,
        &REORDER_RULE,
        &REORDER_HOLD,
        &CONGESTION_MARK,
        &FRAGMENT_LARGE_PACKETS,
    ],
);

/// Values of `[geonet.ipv6]`. The interface is missing here, because it is the key `ipv6_interface` of
/// `[geonet]`.
#[derive(Clone)]
pub(super) struct UncheckedIpv6 {
    pub interface_for_other_areas: Option<Located<String>>,
    max_learnt_interfaces: u8,
    hop_limit: Option<u8>,
    reorder_wait: Duration,
    reorder_rule: ReorderRule,
    reorder_hold: ReorderHold,
    congestion_mark: Option<u32>,
    fragments_large_packets: bool,
}

impl UncheckedIpv6 {
    pub(super) fn with_interface(self, interface: String) -> Ipv6 {
        Ipv6 {
            interface,
            interface_for_other_areas: self.interface_for_other_areas.map(|interface| interface.value),
            max_learnt_interfaces: self.max_learnt_interfaces,
            hop_limit: self.hop_limit,
            reorder_wait: self.reorder_wait,
            reorder_rule: self.reorder_rule,
            reorder_hold: self.reorder_hold,
            congestion_mark: self.congestion_mark,
            fragments_large_packets: self.fragments_large_packets,
        }
    }
}

/// Reads the table; `None` if it has an error.
pub(super) fn read_table(table: &Table<'_>) -> Option<UncheckedIpv6> {
    all!(UncheckedIpv6 {
        interface_for_other_areas: table.find_key_with_offset(&DYNAMIC_INTERFACE),
        max_learnt_interfaces: table.read_key(&LEARNT_LINKS),
        hop_limit: table.read_key(&HOP_LIMIT),
        reorder_wait: table.read_key(&REORDER_WAIT),
        reorder_rule: table.read_key(&REORDER_RULE),
        reorder_hold: table.read_key(&REORDER_HOLD),
        congestion_mark: table.read_key(&CONGESTION_MARK),
        fragments_large_packets: table.read_key(&FRAGMENT_LARGE_PACKETS),
    })
}
