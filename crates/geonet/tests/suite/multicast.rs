//! The multicast proxy: MLD on the mobile network's side (RFC 3810), forwarding between it and GeoNetworking
//! (RFC 4605).

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::multicast::{
    LanPacket, MldTiming, MulticastConfig, MulticastDrop, MulticastProxy, Output, SourceFilter,
};
use carnet_wire::icmpv6;
use carnet_wire::ipv6::{Header, protocol};
use carnet_wire::mld::MldMessage;

use crate::host_and_router::{parse_address, udp_packet};

const ROUTER_ADDRESS: &str = "fe80::5";
const HOST_ADDRESS: &str = "fe80::64";
/// An address in the mobile network.
const SOURCE_ADDRESS: &str = "2001:db8:a::64";
/// An address outside of the mobile network.
const DISTANT_SOURCE: &str = "2001:db8:b::64";
const GROUP_ADDRESS: &str = "ff1e::42";
// Sources in the tests of the tables of RFC 3810 7.4.
const A: &str = "2001:db8::a";
const B: &str = "2001:db8::b";
const C: &str = "2001:db8::c";
const D: &str = "2001:db8::d";
const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x64];

// Record types of RFC 3810 5.2.12.
const MODE_IS_INCLUDE: u8 = 1;
const MODE_IS_EXCLUDE: u8 = 2;
const CHANGE_TO_INCLUDE: u8 = 3;
const CHANGE_TO_EXCLUDE: u8 = 4;
const ALLOW_NEW_SOURCES: u8 = 5;
const BLOCK_OLD_SOURCES: u8 = 6;

fn address_set(addresses: &[&str]) -> BTreeSet<Ipv6Addr> {
    addresses.iter().map(|text| parse_address(text)).collect()
}

fn include_filter(sources: &[&str]) -> SourceFilter {
    SourceFilter::Include(address_set(sources))
}

fn exclude_filter(sources: &[&str]) -> SourceFilter {
    SourceFilter::Exclude(address_set(sources))
}

/// Returns an MLD packet with hop limit 1 and Router Alert.
fn mld_packet(source: Ipv6Addr, destination: &str, mut message: Vec<u8>) -> Vec<u8> {
    let destination = parse_address(destination);
    icmpv6::set_checksum(&mut message, source, destination);
    let header = Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: (8 + message.len()) as u16,
        next_header: protocol::HOP_BY_HOP,
        hop_limit: 1,
        source,
        destination,
    };
    [&header.emit()[..], &[58, 0, 5, 2, 0, 0, 1, 0], &message].concat()
}

/// Returns a version 2 report with one record.
fn version_2_report(kind: u8, group: &str, sources: &[&str]) -> Vec<u8> {
    let mut message = vec![143, 0, 0, 0, 0, 0, 0, 1, kind, 0, 0, sources.len() as u8];
    message.extend_from_slice(&parse_address(group).octets());
    sources.iter().for_each(|source| message.extend_from_slice(&parse_address(source).octets()));
    mld_packet(parse_address(HOST_ADDRESS), "ff02::16", message)
}

fn version_1_message(kind: u8, group: &str) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&parse_address(group).octets());
    mld_packet(parse_address(HOST_ADDRESS), if kind == 132 { "ff02::2" } else { group }, message)
}

/// Returns a query of another router.
fn version_2_query(from: &str, group: &str, robustness: u8, interval: u8, suppress: bool) -> Vec<u8> {
    let mut message = vec![130, 0, 0, 0, 0x03, 0xe8, 0, 0];
    message.extend_from_slice(&parse_address(group).octets());
    message.extend_from_slice(&[u8::from(suppress) << 3 | robustness, interval, 0, 0]);
    mld_packet(parse_address(from), "ff02::1", message)
}

/// A sent query: group, sources, S flag.
type SentQuery = (Option<Ipv6Addr>, Vec<Ipv6Addr>, bool);

struct ProxyAndLan {
    proxy: MulticastProxy,
    now: Time,
    sent_queries: Vec<SentQuery>,
    /// Delivered packets, each with its interface.
    delivered_packets: Vec<(String, Vec<u8>)>,
    subscribed_groups: Vec<(Ipv6Addr, SourceFilter)>,
}

impl ProxyAndLan {
    fn new() -> ProxyAndLan {
        ProxyAndLan::with_config(MulticastConfig {
            downstream: vec!["lan".into(), "lan2".into()],
            timing: MldTiming::default(),
            forwards_unmapped_groups: false,
        })
    }

    /// Returns a proxy that has sent its startup queries.
    fn with_config(config: MulticastConfig) -> ProxyAndLan {
        let mut lan = ProxyAndLan {
            proxy: MulticastProxy::new(config),
            now: Time::from_secs(1000),
            sent_queries: Vec::new(),
            delivered_packets: Vec::new(),
            subscribed_groups: Vec::new(),
        };
        lan.set_addresses("lan", &[(ROUTER_ADDRESS, 64), ("2001:db8:a::1", 64)]);
        lan.advance_time(Duration::from_secs(60));
        lan.sent_queries.clear();
        lan
    }

    fn set_addresses(&mut self, interface: &str, addresses: &[(&str, u8)]) {
        let addresses: Vec<(Ipv6Addr, u8)> =
            addresses.iter().map(|(text, length)| (parse_address(text), *length)).collect();
        self.proxy.handle_addresses(self.now, interface, &addresses);
        self.collect_outputs();
    }

    fn collect_outputs(&mut self) {
        while let Some(output) = self.proxy.poll_output() {
            match output {
                Output::Packet { interface, destination, packet } => {
                    match MldMessage::parse_packet(&packet) {
                        Some(message) => {
                            let (header, MldMessage::Query(query)) = message.expect("a good message") else {
                                panic!("a router asks")
                            };
                            let to = query.group.unwrap_or(parse_address("ff02::1"));
                            assert_eq!(
                                (header.source, header.destination),
                                (parse_address(ROUTER_ADDRESS), to)
                            );
                            assert_eq!(destination[..2], [0x33, 0x33]);
                            let v2 = query.version_2.expect("version 2");
                            self.sent_queries.push((
                                query.group,
                                v2.sources.iter().collect(),
                                v2.suppress_router_timers,
                            ));
                        }
                        None => self.delivered_packets.push((interface, packet)),
                    }
                }
                Output::Subscription { group, filter } => self.subscribed_groups.push((group, filter)),
            }
        }
    }

    fn advance_time(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(due) = self.proxy.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.proxy.handle_timeout(self.now);
            self.collect_outputs();
            assert!(self.proxy.poll_timeout() > Some(self.now), "it would be served for ever");
        }
        self.now = end;
    }

    fn advance_milliseconds(&mut self, milliseconds: u64) {
        self.advance_time(Duration::from_millis(milliseconds));
    }

    /// Passes a packet of a host to the proxy. Returns the packet that leaves over GeoNetworking. Only the
    /// group ff1e::42 has an area.
    fn receive_packet(&mut self, packet: &[u8]) -> Result<Option<Vec<u8>>, MulticastDrop> {
        let lan = LanPacket { interface: "lan", source: HOST_MAC, packet };
        let result =
            self.proxy.handle_lan_packet(self.now, lan, 1398, |group| group == parse_address(GROUP_ADDRESS));
        self.collect_outputs();
        result
    }

    fn send_report(&mut self, kind: u8, sources: &[&str]) {
        assert_eq!(self.receive_packet(&version_2_report(kind, GROUP_ADDRESS, sources)), Ok(None));
    }

    /// Returns the filter of the group on the first interface.
    fn filter_of_group(&self) -> Option<SourceFilter> {
        let mut groups = self
            .proxy
            .memberships()
            .filter(|it| it.interface == "lan" && it.group == parse_address(GROUP_ADDRESS));
        groups.next().map(|it| it.filter)
    }

    fn is_source_accepted(&mut self, source: &str) -> bool {
        let packet = udp_packet(parse_address(source), parse_address(GROUP_ADDRESS), 10);
        self.proxy.handle_upstream_packet(self.now, &packet).expect("good");
        self.collect_outputs();
        !std::mem::take(&mut self.delivered_packets).is_empty()
    }
}

fn query_about_sources(sources: &[&str], suppress: bool) -> SentQuery {
    (Some(parse_address(GROUP_ADDRESS)), sources.iter().map(|text| parse_address(text)).collect(), suppress)
}

/// RFC 3810 9.6, 9.7: the number of startup queries is the Robustness Variable, and their interval a quarter
/// of the Query Interval.
#[test]
fn querier_sends_general_queries_faster_at_startup() {
    let mut lan = ProxyAndLan::new();
    let mut at = Vec::new();
    lan.proxy = MulticastProxy::new(MulticastConfig {
        downstream: vec!["lan".into()],
        timing: MldTiming { robustness_variable: 3, ..MldTiming::default() },
        forwards_unmapped_groups: false,
    });
    let start = lan.now;
    lan.set_addresses("lan", &[(ROUTER_ADDRESS, 64)]);
    for _ in 0..400_000 / 250 {
        at.extend(lan.sent_queries.drain(..).map(|question| {
            assert_eq!(question, (None, Vec::new(), false));
            lan.now.saturating_since(start).as_millis()
        }));
        lan.advance_milliseconds(250);
    }
    assert_eq!(at, [0, 31_250, 62_500, 187_500, 312_500]);
}

/// The tables of RFC 3810 7.4.1 and 7.4.2: state before, report, state and queries after.
#[test]
fn mldv2_reports_change_listener_state_as_in_rfc_3810() {
    type RecordCase<'a> =
        (&'a [(u8, &'a [&'a str])], (u8, &'a [&'a str]), Option<SourceFilter>, Vec<SentQuery>);
    // EXCLUDE ({b}, {c}): a listener wants packets of source b, and no listener wants packets of source c.
    let mixed: &[(u8, &[&str])] = &[(MODE_IS_EXCLUDE, &[C]), (MODE_IS_INCLUDE, &[B])];
    let cases: Vec<RecordCase<'_>> = vec![
        (&[], (MODE_IS_INCLUDE, &[]), None, vec![]),
        (&[], (CHANGE_TO_INCLUDE, &[]), None, vec![]),
        (&[], (BLOCK_OLD_SOURCES, &[A]), None, vec![]),
        (&[], (MODE_IS_INCLUDE, &[A, B]), Some(include_filter(&[A, B])), vec![]),
        (&[], (ALLOW_NEW_SOURCES, &[A]), Some(include_filter(&[A])), vec![]),
        (&[], (MODE_IS_EXCLUDE, &[]), Some(exclude_filter(&[])), vec![]),
        (&[], (CHANGE_TO_EXCLUDE, &[A]), Some(exclude_filter(&[A])), vec![]),
        (&[(MODE_IS_INCLUDE, &[A, B])], (MODE_IS_INCLUDE, &[B, C]), Some(include_filter(&[A, B, C])), vec![]),
        (&[(MODE_IS_INCLUDE, &[A, B])], (MODE_IS_EXCLUDE, &[B, C]), Some(exclude_filter(&[C])), vec![]),
        (&[(MODE_IS_INCLUDE, &[A, B])], (ALLOW_NEW_SOURCES, &[C]), Some(include_filter(&[A, B, C])), vec![]),
        (
            &[(MODE_IS_INCLUDE, &[A, B])],
            (BLOCK_OLD_SOURCES, &[B, C]),
            Some(include_filter(&[A, B])),
            vec![query_about_sources(&[B], false)],
        ),
        (
            &[(MODE_IS_INCLUDE, &[A, B])],
            (CHANGE_TO_EXCLUDE, &[B, C]),
            Some(exclude_filter(&[C])),
            vec![query_about_sources(&[B], false)],
        ),
        (
            &[(MODE_IS_INCLUDE, &[A, B])],
            (CHANGE_TO_INCLUDE, &[B, C]),
            Some(include_filter(&[A, B, C])),
            vec![query_about_sources(&[A], false)],
        ),
        (mixed, (MODE_IS_INCLUDE, &[C, D]), Some(exclude_filter(&[])), vec![]),
        (mixed, (MODE_IS_EXCLUDE, &[C, D]), Some(exclude_filter(&[C])), vec![]),
        (mixed, (ALLOW_NEW_SOURCES, &[C]), Some(exclude_filter(&[])), vec![]),
        (
            mixed,
            (BLOCK_OLD_SOURCES, &[C, D]),
            Some(exclude_filter(&[C])),
            vec![query_about_sources(&[D], false)],
        ),
        (
            mixed,
            (CHANGE_TO_EXCLUDE, &[C, D]),
            Some(exclude_filter(&[C])),
            vec![query_about_sources(&[D], false)],
        ),
        (
            mixed,
            (CHANGE_TO_INCLUDE, &[C]),
            Some(exclude_filter(&[])),
            vec![query_about_sources(&[], false), query_about_sources(&[B], false)],
        ),
    ];
    for (before, (kind, sources), after, questions) in cases {
        let mut lan = ProxyAndLan::new();
        before.iter().for_each(|(kind, sources)| lan.send_report(*kind, sources));
        lan.send_report(kind, sources);
        let told = format!("{before:?}, then {kind} {sources:?}");
        assert_eq!((lan.filter_of_group(), &lan.sent_queries), (after, &questions), "{told}");
    }
}

/// RFC 3810 7.6.3: the router queries a group without listeners twice, a second apart. It forwards packets to
/// the group until the membership ends.
#[test]
fn querier_ends_membership_after_two_queries() {
    let mut lan = ProxyAndLan::new();
    lan.send_report(CHANGE_TO_EXCLUDE, &[]);
    assert!(lan.is_source_accepted(DISTANT_SOURCE));
    assert_eq!(lan.subscribed_groups, [(parse_address(GROUP_ADDRESS), exclude_filter(&[]))]);
    lan.send_report(CHANGE_TO_INCLUDE, &[]);
    assert_eq!(lan.sent_queries, [query_about_sources(&[], false)]);
    lan.advance_milliseconds(1999);
    assert_eq!(lan.sent_queries, vec![query_about_sources(&[], false); 2]);
    assert!(lan.is_source_accepted(DISTANT_SOURCE));
    lan.advance_milliseconds(1);
    assert!(!lan.is_source_accepted(DISTANT_SOURCE));
    assert_eq!(
        (lan.filter_of_group(), lan.subscribed_groups.pop()),
        (None, Some((parse_address(GROUP_ADDRESS), include_filter(&[]))))
    );
    // If another listener answers in time, the membership continues, and the second query has the S flag set.
    lan.sent_queries.clear();
    lan.send_report(CHANGE_TO_EXCLUDE, &[]);
    lan.send_report(CHANGE_TO_INCLUDE, &[]);
    lan.advance_milliseconds(500);
    lan.send_report(MODE_IS_EXCLUDE, &[]);
    lan.advance_milliseconds(5000);
    assert_eq!(lan.sent_queries, [query_about_sources(&[], false), query_about_sources(&[], true)]);
    assert!(lan.is_source_accepted(DISTANT_SOURCE));
}

/// RFC 3810 9.4: without a report the membership ends after the Multicast Address Listening Interval.
#[test]
fn membership_of_silent_listener_expires() {
    let mut lan = ProxyAndLan::new();
    lan.send_report(MODE_IS_EXCLUDE, &[]);
    lan.advance_time(Duration::from_secs(259));
    assert!(lan.is_source_accepted(DISTANT_SOURCE));
    lan.send_report(MODE_IS_EXCLUDE, &[]);
    lan.advance_time(Duration::from_millis(259_999));
    assert!(lan.is_source_accepted(DISTANT_SOURCE));
    lan.advance_milliseconds(1);
    assert!(!lan.is_source_accepted(DISTANT_SOURCE));
    // When the filter timer expires, requested sources stay and the router removes excluded sources (7.5).
    lan.send_report(MODE_IS_EXCLUDE, &[SOURCE_ADDRESS]);
    lan.advance_time(Duration::from_secs(10));
    lan.send_report(MODE_IS_INCLUDE, &[DISTANT_SOURCE]);
    lan.advance_time(Duration::from_millis(249_999));
    assert_eq!(lan.filter_of_group(), Some(exclude_filter(&[SOURCE_ADDRESS])));
    lan.advance_milliseconds(1);
    assert_eq!(lan.filter_of_group(), Some(include_filter(&[DISTANT_SOURCE])));
    lan.advance_time(Duration::from_secs(10));
    assert_eq!(lan.filter_of_group(), None);
}

#[test]
fn multicast_source_filters_are_applied() {
    let mut lan = ProxyAndLan::new();
    lan.send_report(ALLOW_NEW_SOURCES, &[DISTANT_SOURCE]);
    assert!(lan.is_source_accepted(DISTANT_SOURCE) && !lan.is_source_accepted("2001:db8:c::1"));
    assert_eq!(lan.subscribed_groups, [(parse_address(GROUP_ADDRESS), include_filter(&[DISTANT_SOURCE]))]);
    lan.send_report(CHANGE_TO_EXCLUDE, &["2001:db8:c::1"]);
    assert!(
        lan.is_source_accepted(DISTANT_SOURCE)
            && !lan.is_source_accepted("2001:db8:c::1")
            && lan.is_source_accepted("2001:db8:c::2")
    );
}

/// RFC 3810 8.3.2: the router supports version 1 hosts.
#[test]
fn mldv1_reports_are_accepted() {
    let mut lan = ProxyAndLan::new();
    assert_eq!(lan.receive_packet(&version_1_message(131, GROUP_ADDRESS)), Ok(None));
    assert!(lan.is_source_accepted(DISTANT_SOURCE));
    // While a version 1 host is present, the router ignores source lists.
    lan.send_report(CHANGE_TO_EXCLUDE, &[DISTANT_SOURCE]);
    lan.send_report(BLOCK_OLD_SOURCES, &[DISTANT_SOURCE]);
    assert_eq!(lan.filter_of_group(), Some(exclude_filter(&[])));
    assert_eq!(lan.receive_packet(&version_1_message(132, GROUP_ADDRESS)), Ok(None));
    assert_eq!(lan.sent_queries, [query_about_sources(&[], false)]);
    lan.advance_time(Duration::from_secs(2));
    assert_eq!(lan.filter_of_group(), None);
    // A Done message for a group without listeners has no effect.
    assert_eq!(lan.receive_packet(&version_1_message(132, GROUP_ADDRESS)), Ok(None));
    assert_eq!((lan.filter_of_group(), lan.sent_queries.len()), (None, 2));
}

/// RFC 3810 7.6.2: the router with the lowest address is the querier.
#[test]
fn router_with_lowest_address_becomes_querier() {
    let mut lan = ProxyAndLan::new();
    // A query from a higher address has no effect.
    assert_eq!(lan.receive_packet(&version_2_query("fe80::6", "::", 2, 125, false)), Ok(None));
    lan.advance_time(Duration::from_secs(125));
    assert_eq!(lan.sent_queries, [(None, vec![], false)]);
    // A query from a lower address makes its sender the querier, and its Robustness Variable and Query
    // Interval apply.
    assert_eq!(lan.receive_packet(&version_2_query("fe80::4", "::", 3, 20, false)), Ok(None));
    lan.sent_queries.clear();
    lan.send_report(MODE_IS_EXCLUDE, &[]);
    assert_eq!(lan.proxy.memberships().next().expect("one").querier, Some(parse_address("fe80::4")));
    lan.send_report(CHANGE_TO_INCLUDE, &[]);
    assert!(lan.sent_queries.is_empty(), "the other one asks");
    // A query of the other querier lowers the timers of this router (7.6.1), unless the S flag is set.
    lan.receive_packet(&version_2_query("fe80::4", GROUP_ADDRESS, 3, 20, true)).expect("good");
    lan.advance_milliseconds(3500);
    assert!(lan.is_source_accepted(DISTANT_SOURCE));
    lan.receive_packet(&version_2_query("fe80::4", GROUP_ADDRESS, 3, 20, false)).expect("good");
    lan.advance_milliseconds(2999);
    assert!(lan.is_source_accepted(DISTANT_SOURCE));
    lan.advance_milliseconds(1);
    assert!(!lan.is_source_accepted(DISTANT_SOURCE));
    // The other querier is silent for its timeout (3 times 20 s and half of 10 s), so this router becomes the
    // querier again.
    lan.advance_milliseconds(61_999);
    assert!(lan.sent_queries.is_empty());
    lan.advance_milliseconds(1);
    assert_eq!(lan.sent_queries, [(None, vec![], false)]);
    lan.send_report(MODE_IS_EXCLUDE, &[]);
    lan.send_report(CHANGE_TO_INCLUDE, &[]);
    assert_eq!(lan.sent_queries.len(), 2);
}

/// A host on board forges a query with the largest Robustness Variable and Query Interval and a response
/// delay of 0. The router stops its own queries only for its configured timeout, and no membership ends.
#[test]
fn forged_query_silences_querier_temporarily_and_removes_no_listener() {
    let mut lan = ProxyAndLan::new();
    lan.advance_time(Duration::from_secs(125));
    lan.send_report(MODE_IS_EXCLUDE, &[]);
    lan.sent_queries.clear();
    let mut forged = vec![130, 0, 0, 0, 0, 0, 0, 0];
    forged.extend_from_slice(&parse_address(GROUP_ADDRESS).octets());
    forged.extend_from_slice(&[7, 0xff, 0, 0]);
    lan.receive_packet(&mld_packet(parse_address("fe80::1"), "ff02::1", forged)).expect("well formed");
    assert!(lan.is_source_accepted(DISTANT_SOURCE), "the listener has had no time to answer");
    // The listener answers the forged query, because its kernel has received the query, too.
    lan.advance_milliseconds(500);
    lan.send_report(MODE_IS_EXCLUDE, &[]);
    // RFC 3810 9.5 with the configured times gives 2 times 125 s and half of 10 s; the forged times would
    // give 61 hours.
    lan.advance_milliseconds(254_499);
    assert!(lan.sent_queries.is_empty());
    lan.advance_milliseconds(1);
    assert_eq!(lan.sent_queries, [(None, vec![], false)]);
    assert!(lan.is_source_accepted(DISTANT_SOURCE));
}

#[test]
fn invalid_mld_messages_are_dropped() {
    let mut lan = ProxyAndLan::new();
    let good = version_2_report(MODE_IS_EXCLUDE, GROUP_ADDRESS, &[]);
    let changed = |at: usize, octet: u8| {
        let mut packet = good.clone();
        packet[at] = octet;
        packet
    };
    let global = {
        let mut packet = good.clone();
        packet[8..24].copy_from_slice(&parse_address(SOURCE_ADDRESS).octets());
        packet
    };
    // The proxy rejects packets with a wrong hop limit, Router Alert option, checksum or source address.
    for packet in
        [changed(7, 2), changed(42, 1), changed(51, 0), global, version_2_query("::", "::", 2, 125, false)]
    {
        assert_eq!(lan.receive_packet(&packet), Err(MulticastDrop::BadMld));
    }
    assert_eq!(
        lan.receive_packet(&version_2_query(ROUTER_ADDRESS, "::", 2, 125, false)),
        Err(MulticastDrop::BadMld),
        "our own address"
    );
    assert_eq!(lan.filter_of_group(), None);
    assert_eq!(lan.proxy.counters().dropped(MulticastDrop::BadMld), 6);
    // A message truncated at any octet causes no panic.
    for length in 0..good.len() {
        let _ = lan.receive_packet(&good[..length]);
    }
    assert_eq!(lan.filter_of_group(), None);
    // The proxy ignores unknown record types (RFC 3810 5.2.12).
    assert_eq!(lan.receive_packet(&version_2_report(7, GROUP_ADDRESS, &[])), Ok(None));
    assert_eq!(lan.filter_of_group(), None);
}

/// A host on board fills the table of groups, then sends reports repeatedly. The cost of a report depends
/// only on the groups that it names.
#[test]
#[expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the cost is what the test is about; two costs of one machine are compared"
)]
fn report_of_one_group_costs_the_same_however_many_others_there_are() {
    let sources: Vec<String> = (0..64).map(|number| format!("2001:db8:ff::{number:x}")).collect();
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let (mut few, mut many) = (ProxyAndLan::new(), ProxyAndLan::new());
    for number in 0..255 {
        many.receive_packet(&version_2_report(ALLOW_NEW_SOURCES, &format!("ff1e::1:{number:x}"), &sources))
            .expect("there is room");
    }
    let packet = version_2_report(MODE_IS_EXCLUDE, GROUP_ADDRESS, &[]);
    let cost = |lan: &mut ProxyAndLan| {
        let begun = std::time::Instant::now();
        for _ in 0..20 {
            lan.receive_packet(&packet).expect("there is room");
            assert!(lan.proxy.poll_timeout().is_some());
        }
        begun.elapsed()
    };
    // Measure both cases by turns and take the least time of each, because other programs use the processor,
    // too.
    let (mut least_few, mut least_many) = (Duration::MAX, Duration::MAX);
    for _ in 0..20 {
        least_few = least_few.min(cost(&mut few));
        least_many = least_many.min(cost(&mut many));
    }
    assert!(least_many < least_few * 10, "{least_few:?} with one group, {least_many:?} with 256");
}

/// A host on board joins and leaves a group repeatedly. The router sends at most two queries in each Last
/// Listener Query Interval.
#[test]
fn flapping_listener_causes_at_most_two_queries_a_second() {
    let mut lan = ProxyAndLan::new();
    for round in 0..2000 {
        lan.send_report(if round % 2 == 0 { CHANGE_TO_EXCLUDE } else { CHANGE_TO_INCLUDE }, &[]);
        lan.advance_milliseconds(10);
    }
    let about_group = lan.sent_queries.iter().filter(|(group, ..)| group.is_some()).count();
    assert!((20..=41).contains(&about_group), "{about_group} queries in 20 s");
    // The router still removes a listener that really leaves.
    lan.advance_milliseconds(2000);
    assert_eq!(lan.filter_of_group(), None);
}

#[test]
fn number_of_multicast_groups_and_sources_is_bounded() {
    let mut lan = ProxyAndLan::new();
    for number in 0..256 {
        assert_eq!(
            lan.receive_packet(&version_2_report(MODE_IS_EXCLUDE, &format!("ff1e::1:{number:x}"), &[])),
            Ok(None)
        );
    }
    assert_eq!(
        lan.receive_packet(&version_2_report(MODE_IS_EXCLUDE, GROUP_ADDRESS, &[])),
        Err(MulticastDrop::TooManyGroups)
    );
    assert_eq!(lan.proxy.memberships().count(), 256);
    // When the membership of a group ends, the table has room for another group.
    lan.advance_time(Duration::from_secs(300));
    lan.send_report(MODE_IS_EXCLUDE, &[]);

    // If a group has too many sources, the proxy requests packets from all sources.
    let mut lan = ProxyAndLan::new();
    let sources: Vec<String> = (0..80).map(|number| format!("2001:db8::{number:x}")).collect();
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    lan.send_report(MODE_IS_INCLUDE, &sources[..64]);
    assert!(!lan.is_source_accepted(DISTANT_SOURCE));
    lan.send_report(ALLOW_NEW_SOURCES, &sources[64..]);
    assert_eq!(lan.filter_of_group(), Some(exclude_filter(&[])));
    assert!(lan.is_source_accepted(DISTANT_SOURCE));
}

/// The proxy passes a packet of a host to a group with an area to GeoNetworking, with the hop limit
/// decremented.
#[test]
fn packets_of_hosts_are_sent_to_groups_with_area() {
    let mut lan = ProxyAndLan::new();
    let to = |group: &str| udp_packet(parse_address(SOURCE_ADDRESS), parse_address(group), 100);
    let sent = lan.receive_packet(&to(GROUP_ADDRESS)).expect("good").expect("sent");
    let mut expected = to(GROUP_ADDRESS);
    expected[7] = 63;
    assert_eq!(sent, expected);
    // The proxy removes the padding of short frames.
    assert_eq!(lan.receive_packet(&[to(GROUP_ADDRESS), vec![0; 20]].concat()), Ok(Some(expected)));
    assert!(lan.delivered_packets.is_empty(), "it does not come back");
    assert_eq!(lan.receive_packet(&to("ff1e::43")), Err(MulticastDrop::NoArea));
    // Packets of interface and link scope stay on their link.
    for group in ["ff01::42", "ff02::42", "ff12::fb"] {
        assert_eq!(lan.receive_packet(&to(group)), Ok(None), "{group}");
    }
    let from = |source: &str| udp_packet(parse_address(source), parse_address(GROUP_ADDRESS), 100);
    for source in [HOST_ADDRESS, "::", DISTANT_SOURCE, "ff1e::1", "::1"] {
        assert_eq!(lan.receive_packet(&from(source)), Err(MulticastDrop::BadSource), "{source}");
    }
    let mut last = to(GROUP_ADDRESS);
    last[7] = 1;
    assert_eq!(lan.receive_packet(&last), Err(MulticastDrop::HopLimit));
    assert_eq!(lan.proxy.counters().sent_upstream, 2);
}

#[test]
fn unmapped_groups_are_forwarded_except_site_scope() {
    let downstream = vec!["lan".into()];
    let mut lan = ProxyAndLan::with_config(MulticastConfig {
        downstream,
        timing: MldTiming::default(),
        forwards_unmapped_groups: true,
    });
    let mut to = |group: &str| {
        lan.receive_packet(&udp_packet(parse_address(SOURCE_ADDRESS), parse_address(group), 100))
            .map(|sent| sent.is_some())
    };
    assert_eq!((to("ff1e::43"), to("ff08::43")), (Ok(true), Ok(true)));
    assert_eq!((to("ff05::43"), to("ff03::43")), (Err(MulticastDrop::Scope), Err(MulticastDrop::Scope)));
    assert_eq!(to("ff02::43"), Ok(false));
}

#[test]
fn multicast_packet_above_mtu_is_answered_by_packet_too_big() {
    let mut lan = ProxyAndLan::new();
    assert_eq!(
        lan.receive_packet(&udp_packet(parse_address(SOURCE_ADDRESS), parse_address(GROUP_ADDRESS), 1359)),
        Err(MulticastDrop::TooBig)
    );
    let (interface, answer) = lan.delivered_packets.pop().expect("an answer");
    let header = Header::parse(&answer).expect("IPv6");
    assert_eq!(
        (interface.as_str(), header.source, header.destination),
        ("lan", parse_address(ROUTER_ADDRESS), parse_address(SOURCE_ADDRESS))
    );
    assert_eq!((answer[40], &answer[44..48]), (2, &1398u32.to_be_bytes()[..]));
    assert!(
        lan.receive_packet(&udp_packet(parse_address(SOURCE_ADDRESS), parse_address(GROUP_ADDRESS), 1358))
            .is_ok_and(|sent| sent.is_some())
    );
}

#[test]
fn received_multicast_reaches_only_listeners() {
    let mut lan = ProxyAndLan::new();
    lan.set_addresses("lan2", &[(ROUTER_ADDRESS, 64), ("2001:db8:d::1", 64)]);
    assert!(!lan.is_source_accepted(DISTANT_SOURCE), "nobody listens");
    lan.send_report(MODE_IS_EXCLUDE, &[]);
    let data = udp_packet(parse_address(DISTANT_SOURCE), parse_address(GROUP_ADDRESS), 10);
    lan.proxy.handle_upstream_packet(lan.now, &data).expect("good");
    lan.collect_outputs();
    let mut expected = data;
    expected[7] = 63;
    assert_eq!(lan.delivered_packets, [("lan".to_owned(), expected)]);
    lan.delivered_packets.clear();
    let mut refused = |source: &str, hop_limit: u8| {
        let mut packet = udp_packet(parse_address(source), parse_address(GROUP_ADDRESS), 10);
        packet[7] = hop_limit;
        lan.proxy.handle_upstream_packet(lan.now, &packet)
    };
    // The proxy drops packets from the air with a source of the mobile network, which prevents loops.
    assert_eq!(refused(SOURCE_ADDRESS, 64), Err(MulticastDrop::OwnSource));
    assert_eq!(refused("2001:db8:d::9", 64), Err(MulticastDrop::OwnSource));
    assert_eq!(refused("fe80::9", 64), Err(MulticastDrop::BadSource));
    assert_eq!(refused(DISTANT_SOURCE, 1), Err(MulticastDrop::HopLimit));
    assert_eq!(refused(DISTANT_SOURCE, 2), Ok(()));
    // Packets of link scope stay on their link, whatever a listener reports.
    lan.collect_outputs();
    lan.delivered_packets.clear();
    lan.receive_packet(&version_2_report(MODE_IS_EXCLUDE, "ff02::99", &[])).expect("good");
    lan.proxy
        .handle_upstream_packet(
            lan.now,
            &udp_packet(parse_address(DISTANT_SOURCE), parse_address("ff02::99"), 10),
        )
        .expect("good");
    lan.collect_outputs();
    assert!(lan.delivered_packets.is_empty());
    assert!(
        lan.subscribed_groups.iter().all(|(group, _)| *group == parse_address(GROUP_ADDRESS)),
        "{:?}",
        lan.subscribed_groups
    );
}

#[test]
fn proxy_forwards_between_lan_interfaces_and_merges_their_listeners() {
    let mut lan = ProxyAndLan::new();
    lan.set_addresses("lan2", &[("fe80::5", 64), ("2001:db8:d::1", 64)]);
    let report = version_2_report(MODE_IS_INCLUDE, GROUP_ADDRESS, &[DISTANT_SOURCE]);
    let other = LanPacket { interface: "lan2", source: HOST_MAC, packet: &report };
    assert_eq!(lan.proxy.handle_lan_packet(lan.now, other, 1398, |_| true), Ok(None));
    lan.collect_outputs();
    lan.send_report(MODE_IS_EXCLUDE, &[DISTANT_SOURCE, SOURCE_ADDRESS]);
    assert_eq!(
        lan.subscribed_groups.pop(),
        Some((parse_address(GROUP_ADDRESS), exclude_filter(&[SOURCE_ADDRESS])))
    );
    // The proxy forwards between interfaces of the mobile network.
    lan.advance_time(Duration::from_secs(1));
    let report = self::version_2_report(MODE_IS_EXCLUDE, GROUP_ADDRESS, &[]);
    let other = LanPacket { interface: "lan2", source: HOST_MAC, packet: &report };
    assert_eq!(lan.proxy.handle_lan_packet(lan.now, other, 1398, |_| true), Ok(None));
    lan.delivered_packets.clear();
    assert!(
        lan.receive_packet(&udp_packet(parse_address(SOURCE_ADDRESS), parse_address(GROUP_ADDRESS), 10))
            .is_ok_and(|sent| sent.is_some())
    );
    let interfaces: Vec<&str> =
        lan.delivered_packets.iter().map(|(interface, _)| interface.as_str()).collect();
    assert_eq!(interfaces, ["lan2"]);
}

#[test]
fn listeners_vanish_with_their_interface() {
    let mut lan = ProxyAndLan::new();
    lan.send_report(MODE_IS_EXCLUDE, &[]);
    lan.set_addresses("lan", &[]);
    assert_eq!((lan.filter_of_group(), lan.is_source_accepted(DISTANT_SOURCE)), (None, false));
    lan.advance_time(Duration::from_secs(1));
    assert_eq!(lan.subscribed_groups.pop(), Some((parse_address(GROUP_ADDRESS), include_filter(&[]))));
    assert_eq!(
        lan.receive_packet(&version_2_report(MODE_IS_EXCLUDE, GROUP_ADDRESS, &[])),
        Err(MulticastDrop::UnknownInterface)
    );
    assert_eq!(lan.proxy.poll_timeout(), None);
    // When the interface is back, the router sends a query at once.
    lan.set_addresses("lan", &[(ROUTER_ADDRESS, 64)]);
    assert_eq!(lan.sent_queries, [(None, vec![], false)]);
}
