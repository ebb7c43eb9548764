//! Entries of the desired state for packets that leave by an uplink without the tunnel.
//!
//! A policy with the action `breakout` selects packets of hosts on board. They leave by the uplink in use, or
//! by the first usable one of the policy, and get its address as their source. Answers return to the host.
//! Hosts outside cannot begin a connection.
//!
//! * Rules of the packet filter mark the packets before connection tracking sees them. The first policy that
//!   matches decides, as in the tunnel's distribution. No policy applies to packets to the mobile network.
//! * Marked packets belong to a zone of connection tracking. So a packet of a connection that began in the
//!   tunnel begins a new connection with a new source address. The server does not know this connection, so
//!   it ends.
//! * Rules lead packets with the mark of a policy into the table of its uplink. Without a route there,
//!   because the uplink lacks the address family, they take the tunnel.
//! * Answers of hosts to connections that began outside take the tunnel, because the connections came through
//!   it. NAT would not change the source address of these answers.
//! * Packets to the home agent take the tunnel. With the address of the uplink they would look like this
//!   router's own tunnel packets. Connection tracking would then give their senders the home agent's packets.
//! * The mark of the connection leads its answers back. carnet uses only the bits [`MARK_MASK`] of these
//!   marks. The other bits may belong to the operator. Rules make all other packets from an uplink
//!   unreachable.
//! * When the uplink changes, the kernel ends the connections with the address of the former uplink.
//! * A host with access to a captive portal ([`PortalTarget`]) is selected by its link-layer address. All its
//!   packets leave by the uplink of the portal, before any policy. Its DNS queries go to the DNS servers of
//!   that uplink. If the uplink lacks the address family of a packet, the packet is unreachable.
//!
//! Left out: packets of this machine's own programs, and packets on the home link, which need no tunnel.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use carnet_base::mapped::{self, ALL_IPV4_PREFIX};
use carnet_mobility::MobileRouter;
use carnet_mobility::flow::{TrafficSelector, ValueRange};
use carnet_wire::ipv6::protocol;
use ipnet::{Ipv4Net, Ipv6Net};

use super::desired::{
    ForwardingEntry, Ipv4Route, RouteAction, Rule, TABLE_BREAKOUT, TABLE_MAIN, TABLE_UNREACHABLE, priority,
};
use super::packet_rules::{
    ConnectionState, CountedTraffic, Mark, PacketMatch, PacketRule, PortRange, RuleChain, RuleVerdict,
    TrafficKind,
};
use super::route_entries::{ROUTE_METRIC, host_prefix, route_entry};

/// Bits of a packet's mark that carnet uses.
const MARK_MASK: u32 = 0x7f00_0000;
/// Bit of the mark that only packets have which leave without the tunnel.
const MARK_OUTSIDE_TUNNEL: Mark = Mark { mask: 0x4000_0000, value: 0x4000_0000 };
/// Mark of packets about which no policy has decided.
const MARK_OF_UNDECIDED_PACKETS: Mark = Mark { mask: MARK_MASK, value: 0 };
/// Mark of packets that take the tunnel, because a policy has decided so.
const MARK_INSIDE_TUNNEL: Mark = Mark { mask: MARK_MASK, value: 0x3f00_0000 };
/// Zone of connection tracking for packets that leave without the tunnel.
const CONNTRACK_ZONE: u16 = 13_500;
/// Largest number of policies. Each policy has a mark of its own, and the bits of [`MARK_MASK`] have no room
/// for further marks.
const MAX_BREAKOUT_POLICIES: usize = 0x3e;
/// Mark of the packets of a host with access to a captive portal.
const MARK_CAPTIVE_PORTAL: Mark = Mark { mask: MARK_MASK, value: 0x7e00_0000 };
/// Port of DNS servers.
const DNS_PORT: PortRange = PortRange { first: 53, last: 53 };
/// Order of the marking rules. The zone of connection tracking depends on the marks, so it comes last.
mod rule_order {
    pub(super) const NEAR_DESTINATIONS: usize = 0;
    pub(super) const CAPTIVE_PORTAL: usize = 1;
    pub(super) const BREAKOUT_POLICIES: usize = 2;
    pub(super) const CONNTRACK_ZONE: usize = BREAKOUT_POLICIES + super::MAX_BREAKOUT_POLICIES;
}
/// Order of the rules that count packets, in the chain of forwarded packets. They come after the rules that
/// refuse packets. They come before the rules of the inbound filters (doors), which end the chain.
const ORDER_OF_COUNTING_RULES: u32 = 5;
/// Destinations that no uplink forwards.
const NEVER_FORWARDED_DESTINATIONS: [&str; 4] =
    ["fe80::/10", "ff00::/8", "::ffff:224.0.0.0/100", "::ffff:255.255.255.255/128"];

/// A policy that decides whether packets of hosts on board leave without the tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakoutPolicy {
    /// Name of the policy.
    pub name: String,
    /// Whether the packets leave without the tunnel. Otherwise the list has the policy only because it
    /// precedes a policy whose packets do.
    pub breaks_out: bool,
    /// Selectors of the packets, whose source is the correspondent.
    pub flow_selectors: Vec<TrafficSelector>,
    /// Interfaces of the hosts; empty for all.
    pub lan_interfaces: Vec<String>,
    /// Interface names of the uplinks, the preferred first; empty for the uplink in use.
    pub uplinks: Vec<String>,
    /// Number of flow bindings of the policies before this one.
    pub flow_rules_before: usize,
}

/// A host on board whose packets leave by the uplink of a captive portal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PortalTarget<'a> {
    /// Interface name of the uplink.
    pub(crate) uplink: &'a str,
    /// Name of the interface on board at which the host is.
    pub(crate) lan_interface: &'a str,
    /// Link-layer address of the host.
    pub(crate) host_mac: [u8; 6],
    /// DNS servers of the uplink. The first one of each address family gets the host's queries.
    pub(crate) dns_servers: &'a [IpAddr],
}

/// Returns the mark of packets that leave by the policy with this index.
fn mark_of_policy(index: usize) -> Mark {
    let number = u32::try_from(index.min(MAX_BREAKOUT_POLICIES - 1)).unwrap_or_default();
    Mark { mask: MARK_MASK, value: MARK_OUTSIDE_TUNNEL.value | number << 24 }
}

/// Returns the uplink by which packets of a policy leave now; `None` if no uplink of the policy is usable.
pub(crate) fn uplink_of_policy(policy: &BreakoutPolicy, router: &MobileRouter) -> Option<usize> {
    if policy.uplinks.is_empty() {
        return router.uplink_in_use().filter(|index| is_usable_for_breakout(router, *index));
    }
    let position = |name: &String| router.uplinks().iter().position(|it| it.config.interface == *name);
    policy.uplinks.iter().filter_map(position).find(|index| is_usable_for_breakout(router, *index))
}

/// Returns whether packets can leave by this uplink without the tunnel.
pub(crate) fn is_usable_for_breakout(router: &MobileRouter, index: usize) -> bool {
    let uplink = router.uplinks().get(index);
    uplink.is_some_and(|uplink| uplink.ipv6_gateway().is_some() || uplink.ipv4_gateway().is_some())
}

/// Returns the entries for the policies that break out, and for the host with access to a captive portal.
/// `lan` are the interfaces of the mobile network.
pub(crate) fn breakout_entries(
    policies: &[BreakoutPolicy],
    portal: Option<PortalTarget<'_>>,
    router: &MobileRouter,
    lan: &[String],
) -> Vec<ForwardingEntry> {
    let config = router.config();
    let has_breakouts = policies.iter().any(|policy| policy.breaks_out);
    if router.is_at_home() || !(has_breakouts || portal.is_some()) {
        return Vec::new();
    }
    let networks: Vec<Ipv6Net> = config
        .prefixes
        .iter()
        .copied()
        .chain(config.ipv4_prefixes.iter().copied().map(mapped::from_ipv4))
        .collect();
    let mut entries = Vec::new();
    let mut used: BTreeSet<usize> = BTreeSet::new();
    for (index, policy) in policies.iter().enumerate().filter(|(_, policy)| policy.breaks_out) {
        let Some(uplink) = uplink_of_policy(policy, router) else { continue };
        used.insert(uplink);
        let table = TABLE_BREAKOUT.saturating_add(u32::try_from(uplink).unwrap_or_default());
        for (input, network) in lan.iter().flat_map(|input| networks.iter().map(move |it| (input, it))) {
            entries.push(ForwardingEntry::Rule(Box::new(Rule {
                priority: priority::BREAKOUT,
                input_interface: Some(input.clone()),
                from: Some(*network),
                mark: Some(mark_of_policy(index)),
                table,
                ..Rule::default()
            })));
        }
    }
    let position = |name: &str| router.uplinks().iter().position(|it| it.config.interface == name);
    let portal = portal.and_then(|portal| Some((portal, position(portal.uplink)?)));
    if let Some((portal, uplink)) = portal {
        used.insert(uplink);
        entries.extend(portal_rules(portal, uplink, &networks));
    }
    let portal = portal.map(|(portal, _)| portal);
    entries.extend(used.iter().flat_map(|index| uplink_default_routes(router, *index)));
    let agents = [Some(config.home_agent), config.home_agent_ipv4.map(|agent| agent.to_ipv6_mapped())];
    let near: Vec<Ipv6Net> =
        NEVER_FORWARDED_DESTINATIONS.iter().filter_map(|prefix| prefix.parse().ok()).collect();
    let inside: Vec<Ipv6Net> =
        networks.iter().copied().chain(near).chain(agents.into_iter().flatten().map(host_prefix)).collect();
    let indexes = policies.iter().enumerate().filter(|(_, policy)| policy.breaks_out);
    let mut marks: Vec<Mark> = indexes.map(|(index, _)| mark_of_policy(index)).collect();
    marks.extend(portal.map(|_| MARK_CAPTIVE_PORTAL));
    marks.dedup();
    entries.extend(marking_rules(policies, lan, &inside, &marks).into_iter().map(packet_rule_entry));
    for uplink in &config.uplinks {
        let leads_to_portal = portal.is_some_and(|portal| portal.uplink == uplink.interface);
        entries.extend(nat_rules(&uplink.interface, leads_to_portal, &marks).map(packet_rule_entry));
        let of_policies = policies.iter().enumerate().filter(|(_, policy)| policy.breaks_out);
        let of_policies = of_policies
            .map(|(index, policy)| (TrafficKind::Policy(policy.name.clone()), mark_of_policy(index)));
        let of_portal = leads_to_portal.then_some((TrafficKind::Portal, MARK_CAPTIVE_PORTAL));
        for (kind, mark) in of_policies.chain(of_portal) {
            let rules = counting_rules(&uplink.interface, &kind, mark);
            entries.extend(rules.map(packet_rule_entry));
        }
        entries.extend(networks.iter().map(|network| {
            ForwardingEntry::Rule(Box::new(Rule {
                priority: priority::BREAKOUT_ANSWERS,
                input_interface: Some(uplink.interface.clone()),
                to: Some(*network),
                mark: Some(MARK_OUTSIDE_TUNNEL),
                table: TABLE_MAIN,
                ..Rule::default()
            }))
        }));
    }
    entries
}

/// Returns routing rules that refuse IPv4 packets from uplinks, for a kernel that cannot install the rules of
/// the packet filter. The kernel forwards IPv4 of these interfaces.
pub(crate) fn closed_uplink_entries(router: &MobileRouter) -> Vec<ForwardingEntry> {
    let config = router.config();
    let uplinks = config.uplinks.iter().filter(|_| !config.ipv4_prefixes.is_empty());
    let closed = uplinks.map(|uplink| {
        ForwardingEntry::Rule(Box::new(Rule {
            priority: priority::FROM_UPLINK,
            input_interface: Some(uplink.interface.clone()),
            from: Some(ALL_IPV4_PREFIX),
            table: TABLE_UNREACHABLE,
            ..Rule::default()
        }))
    });
    closed.collect()
}

fn packet_rule_entry(rule: PacketRule) -> ForwardingEntry {
    ForwardingEntry::PacketRule(Box::new(rule))
}

/// Returns the default routes out of an uplink.
fn uplink_default_routes(router: &MobileRouter, index: usize) -> Vec<ForwardingEntry> {
    let Some(uplink) = router.uplinks().get(index) else { return Vec::new() };
    let table = TABLE_BREAKOUT.saturating_add(u32::try_from(index).unwrap_or_default());
    let interface = uplink.config.interface.clone();
    let ipv6 = uplink.ipv6_gateway().map(|gateway| {
        let gateway = Some(gateway).filter(|gateway| !gateway.is_unspecified());
        let interface = interface.clone();
        route_entry(table, Ipv6Net::default(), ROUTE_METRIC, RouteAction::Forward { interface, gateway })
    });
    let ipv4 = uplink.ipv4_gateway().map(|gateway| {
        let gateway = Some(gateway).filter(|gateway| !gateway.is_unspecified());
        let interface = interface.clone();
        ForwardingEntry::Ipv4Route(Box::new(Ipv4Route {
            table,
            destination: Ipv4Net::default(),
            interface,
            gateway,
        }))
    });
    ipv6.into_iter().chain(ipv4).collect()
}

/// Returns the rules that mark packets of hosts on board. No policy applies to packets to the networks
/// `inside`. `marks` are the marks of packets that leave without the tunnel. For each of them, one rule
/// copies the mark to the packet's connection. The rule writes only the bits of [`MARK_MASK`]; all other bits
/// belong to the operator's rules.
fn marking_rules(
    policies: &[BreakoutPolicy],
    lan: &[String],
    inside: &[Ipv6Net],
    marks: &[Mark],
) -> Vec<PacketRule> {
    let mut rules = Vec::new();
    for input in lan {
        let from = PacketMatch { input_interface: Some(input.clone()), ..PacketMatch::default() };
        for destination in inside {
            let packets = PacketMatch { destination: Some(*destination), ..from.clone() };
            rules.push(early_marking_rule(
                rule_order::NEAR_DESTINATIONS,
                packets,
                RuleVerdict::SetMark(MARK_INSIDE_TUNNEL),
            ));
        }
        for (index, policy) in policies.iter().enumerate().take(MAX_BREAKOUT_POLICIES) {
            if !policy.lan_interfaces.is_empty() && !policy.lan_interfaces.contains(input) {
                continue;
            }
            let mark = if policy.breaks_out { mark_of_policy(index) } else { MARK_INSIDE_TUNNEL };
            for packets in policy.flow_selectors.iter().flat_map(packet_matches_of) {
                let input_interface = Some(input.clone());
                let packets =
                    PacketMatch { input_interface, mark: Some(MARK_OF_UNDECIDED_PACKETS), ..packets };
                rules.push(early_marking_rule(
                    rule_order::BREAKOUT_POLICIES + index,
                    packets,
                    RuleVerdict::SetMark(mark),
                ));
            }
        }
        let marked = PacketMatch { mark: Some(MARK_OUTSIDE_TUNNEL), ..from };
        rules.push(early_marking_rule(
            rule_order::CONNTRACK_ZONE,
            marked.clone(),
            RuleVerdict::Zone(CONNTRACK_ZONE),
        ));
        let answers = PacketMatch { is_answer: true, ..marked.clone() };
        let saved = marks.iter().map(|mark| {
            let packets = PacketMatch { mark: Some(*mark), ..marked.clone() };
            (1, packets, RuleVerdict::SetConnectionMark(*mark))
        });
        for (order, packets, verdict) in
            std::iter::once((0, answers, RuleVerdict::SetMark(MARK_INSIDE_TUNNEL))).chain(saved)
        {
            let chain = RuleChain::Prerouting;
            rules.push(PacketRule { chain, order, packets, counts: false, total: None, verdict });
        }
    }
    rules
}

fn early_marking_rule(order: usize, packets: PacketMatch, verdict: RuleVerdict) -> PacketRule {
    let order = u32::try_from(order).unwrap_or(u32::MAX);
    PacketRule { chain: RuleChain::Early, order, packets, counts: false, total: None, verdict }
}

/// Returns the entries that lead the packets of a host to a captive portal by the uplink with this index.
fn portal_rules(portal: PortalTarget<'_>, uplink: usize, networks: &[Ipv6Net]) -> Vec<ForwardingEntry> {
    let table = TABLE_BREAKOUT.saturating_add(u32::try_from(uplink).unwrap_or_default());
    let mut entries = Vec::new();
    for network in networks {
        for (priority, table) in
            [(priority::BREAKOUT, table), (priority::PORTAL_UPLINK_ONLY, TABLE_UNREACHABLE)]
        {
            entries.push(ForwardingEntry::Rule(Box::new(Rule {
                priority,
                input_interface: Some(portal.lan_interface.to_owned()),
                from: Some(*network),
                mark: Some(MARK_CAPTIVE_PORTAL),
                table,
                ..Rule::default()
            })));
        }
        let from = PacketMatch {
            input_interface: Some(portal.lan_interface.to_owned()),
            source: Some(*network),
            ..PacketMatch::default()
        };
        let of_host = PacketMatch { link_source: Some(portal.host_mac), ..from.clone() };
        let other = PacketMatch { mark: Some(MARK_OF_UNDECIDED_PACKETS), ..of_host.clone() };
        entries.push(packet_rule_entry(early_marking_rule(
            rule_order::CAPTIVE_PORTAL,
            other,
            RuleVerdict::SetMark(MARK_CAPTIVE_PORTAL),
        )));
        let is_ipv4 = mapped::to_ipv4(*network).is_some();
        let Some(server) = portal.dns_servers.iter().find(|server| server.is_ipv4() == is_ipv4) else {
            continue;
        };
        for protocol in [protocol::UDP, protocol::TCP] {
            // The rule also marks queries to the DNS forwarder on board, although its address is in the
            // mobile network.
            let queries = PacketMatch { protocol: Some(protocol), ports: Some(DNS_PORT), ..of_host.clone() };
            entries.push(packet_rule_entry(early_marking_rule(
                rule_order::CAPTIVE_PORTAL,
                queries,
                RuleVerdict::SetMark(MARK_CAPTIVE_PORTAL),
            )));
            let marked = PacketMatch {
                protocol: Some(protocol),
                ports: Some(DNS_PORT),
                mark: Some(MARK_CAPTIVE_PORTAL),
                ..from.clone()
            };
            entries.push(packet_rule_entry(PacketRule {
                chain: RuleChain::DestinationNat,
                order: 0,
                packets: marked,
                counts: false,
                total: None,
                verdict: RuleVerdict::DestinationAddress(*server),
            }));
        }
    }
    entries
}

/// Returns the rules for packets that leave by one uplink without the tunnel, and for their answers.
///
/// * Outgoing packets get the address of the uplink as their source. The rules refuse packets that would
///   leave with another address.
/// * Answers get the mark of their connection, and keep the bits outside of [`MARK_MASK`]. The rules refuse
///   packets that no host on board has requested.
/// * The rules refuse packets of a captive portal, unless a host has access to the portal by this uplink.
///
/// `marks` are the marks of packets that leave without the tunnel.
fn nat_rules(
    uplink: &str,
    leads_to_portal: bool,
    marks: &[Mark],
) -> impl Iterator<Item = PacketRule> + use<> {
    let from = PacketMatch { input_interface: Some(uplink.to_owned()), ..PacketMatch::default() };
    let to = PacketMatch { output_interface: Some(uplink.to_owned()), ..PacketMatch::default() };
    let answers = PacketMatch {
        connection_mark: Some(MARK_OUTSIDE_TUNNEL),
        states: vec![ConnectionState::Established, ConnectionState::Related],
        ..from.clone()
    };
    // Drop packets that connection tracking considers invalid or leaves out, because it would not change
    // their source address.
    let unchanged = vec![ConnectionState::Invalid, ConnectionState::Untracked];
    let foreign = PacketMatch { mark: Some(MARK_OUTSIDE_TUNNEL), states: unchanged, ..to.clone() };
    // Drop IPv4 packets that no host on board has requested, because the kernel now forwards IPv4 from this
    // interface. For IPv6 the routing rule at priority 115 refuses them.
    let unasked = PacketMatch {
        source: Some(ALL_IPV4_PREFIX),
        mark: Some(Mark { value: 0, ..MARK_OUTSIDE_TUNNEL }),
        states: vec![ConnectionState::Invalid, ConnectionState::New, ConnectionState::Untracked],
        ..from
    };
    let outside = PacketMatch { mark: Some(MARK_OUTSIDE_TUNNEL), ..to };
    // Connection tracking still knows the host's connections to the portal after the access has ended. So
    // drop the answers of these connections.
    let portal = PacketMatch { connection_mark: Some(MARK_CAPTIVE_PORTAL), ..answers.clone() };
    let portal = (!leads_to_portal).then_some((RuleChain::Prerouting, 0, portal, RuleVerdict::Drop));
    // Restore only marks of policies that the config has now. A connection may still have the mark of a
    // former policy until its host sends the next packet.
    let restored = marks.iter().copied().map(|mark| {
        let packets = PacketMatch { connection_mark: Some(mark), ..answers.clone() };
        (RuleChain::Prerouting, 1, packets, RuleVerdict::SetMark(mark))
    });
    let restored: Vec<_> = restored.collect();
    let rules = [
        (RuleChain::Prerouting, 0, answers, RuleVerdict::SetMark(MARK_OUTSIDE_TUNNEL)),
        (RuleChain::Forward, 0, foreign, RuleVerdict::Drop),
        (RuleChain::Forward, 0, unasked, RuleVerdict::Drop),
        (RuleChain::SourceNat, 0, outside, RuleVerdict::Masquerade),
    ];
    let all = rules.into_iter().chain(restored).chain(portal);
    all.map(|(chain, order, packets, verdict)| PacketRule {
        chain,
        order,
        packets,
        counts: !matches!(verdict, RuleVerdict::SetMark(_)),
        total: None,
        verdict,
    })
}

/// Returns the rules that count the packets with this mark, in both directions.
fn counting_rules(uplink: &str, kind: &TrafficKind, mark: Mark) -> [PacketRule; 2] {
    [true, false].map(|is_outgoing| {
        let interface = |is_it: bool| is_it.then(|| uplink.to_owned());
        let packets = PacketMatch {
            input_interface: interface(!is_outgoing),
            output_interface: interface(is_outgoing),
            mark: Some(mark),
            ..PacketMatch::default()
        };
        let (kind, interface) = (kind.clone(), uplink.to_owned());
        counting_rule(packets, CountedTraffic { kind, interface, is_outgoing })
    })
}

/// Returns the rule that counts forwarded packets as traffic of one kind.
pub(super) fn counting_rule(packets: PacketMatch, traffic: CountedTraffic) -> PacketRule {
    PacketRule {
        chain: RuleChain::Forward,
        order: ORDER_OF_COUNTING_RULES,
        packets,
        counts: true,
        total: Some(Box::new(traffic)),
        verdict: RuleVerdict::Continue,
    }
}

/// Returns the conditions on packets from hosts on board that a selector makes.
fn packet_matches_of(selector: &TrafficSelector) -> Vec<PacketMatch> {
    let selector = selector.as_ipv6();
    let only_ipv6 = selector.next_header == Some(ValueRange::single(protocol::ICMPV6));
    let source = selector.destination.and_then(prefix_of_range);
    let destination = selector.source.and_then(prefix_of_range);
    let families = match source.or(destination) {
        Some(_) => vec![source],
        None if only_ipv6 => vec![Some(Ipv6Net::default())],
        None => vec![Some(Ipv6Net::default()), Some(ALL_IPV4_PREFIX)],
    };
    let ports = |range: Option<ValueRange<u16>>| {
        range.map(|range| PortRange { first: range.first, last: range.last })
    };
    let has_ports = selector.source_port.or(selector.destination_port).is_some();
    let protocols = match selector.next_header {
        Some(range) => vec![Some(range.first)],
        None if has_ports => vec![Some(protocol::TCP), Some(protocol::UDP)],
        None => vec![None],
    };
    let each = |source: Option<Ipv6Net>, protocol: Option<u8>| PacketMatch {
        source,
        destination,
        protocol,
        // The correspondent is the source of the selector, and the destination of these packets.
        ports: ports(selector.source_port),
        source_ports: ports(selector.destination_port),
        dscp: selector.traffic_class.map(|class| class.first >> 2),
        ..PacketMatch::default()
    };
    families.iter().flat_map(|source| protocols.iter().map(|protocol| each(*source, *protocol))).collect()
}

/// Returns the prefix with exactly the addresses of this range; `None` if there is no such prefix.
fn prefix_of_range(range: ValueRange<Ipv6Addr>) -> Option<Ipv6Net> {
    let length = (u128::from(range.first) ^ u128::from(range.last)).leading_zeros();
    let prefix = Ipv6Net::new(range.first, u8::try_from(length).ok()?).ok()?;
    (prefix.network() == range.first && prefix.broadcast() == range.last).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use carnet_mobility::flow::{Ipv4Selector, Ipv6Selector};

    fn prefix_of_range_text(text: &str) -> Option<Ipv6Net> {
        Some(text.parse().expect("a prefix"))
    }

    #[test]
    fn address_range_equal_to_a_prefix_becomes_this_prefix() {
        for text in ["2001:db8::/32", "::/0", "::ffff:10.42.7.0/120", "2001:db8::1/128"] {
            let net: Ipv6Net = text.parse().expect("a prefix");
            assert_eq!(prefix_of_range(ValueRange::new(net.network(), net.broadcast())), Some(net));
        }
        let address = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
        assert_eq!(prefix_of_range(ValueRange::new(address("2001:db8::1"), address("2001:db8::2"))), None);
    }

    #[test]
    fn selector_without_addresses_selects_packets_of_both_families() {
        let ports = Some(ValueRange::new(5000, 5010));
        let any = Ipv6Selector::default();
        let found = packet_matches_of(&TrafficSelector::Ipv6(Ipv6Selector { source_port: ports, ..any }));
        let port = Some(PortRange { first: 5000, last: 5010 });
        let of = |source: &str, number| PacketMatch {
            source: prefix_of_range_text(source),
            protocol: Some(number),
            ports: port,
            ..PacketMatch::default()
        };
        let all = "::ffff:0.0.0.0/96";
        assert_eq!(found, [of("::/0", 6), of("::/0", 17), of(all, 6), of(all, 17)]);
        let next_header = Some(ValueRange::single(58));
        let icmpv6 = packet_matches_of(&TrafficSelector::Ipv6(Ipv6Selector { next_header, ..any }));
        assert_eq!(
            icmpv6,
            [PacketMatch {
                source: prefix_of_range_text("::/0"),
                protocol: Some(58),
                ..PacketMatch::default()
            }]
        );
    }

    #[test]
    fn breakout_match_swaps_source_and_destination_of_the_selector() {
        let range = |first: [u8; 4], last: [u8; 4]| Some(ValueRange::new(first.into(), last.into()));
        let selector = Ipv4Selector {
            source: range([192, 0, 2, 0], [192, 0, 2, 255]),
            destination: range([10, 42, 7, 0], [10, 42, 7, 255]),
            destination_port: Some(ValueRange::single(443)),
            differentiated_services: Some(ValueRange::single(46 << 2)),
            protocol: Some(ValueRange::single(6)),
            ..Ipv4Selector::default()
        };
        let expected = PacketMatch {
            source: prefix_of_range_text("::ffff:10.42.7.0/120"),
            destination: prefix_of_range_text("::ffff:192.0.2.0/120"),
            protocol: Some(6),
            source_ports: Some(PortRange { first: 443, last: 443 }),
            dscp: Some(46),
            ..PacketMatch::default()
        };
        assert_eq!(packet_matches_of(&TrafficSelector::Ipv4(selector)), [expected]);
    }
}
