//! Filters packets from outside to hosts on board. The filter of an interface is called its *door*.
//!
//! With the door [`InboundPackets::Established`], an interface gets only packets of connections that hosts on
//! board began, and ICMP errors about these. Exceptions permit packets from outside to certain hosts and
//! ports. Packets between interfaces on board pass, except for isolated interfaces. The kernel's packet
//! filter applies the rules of the doors ([`super::packet_rules`]), and limits the rates of hosts.
//!
//! If the kernel cannot install the rules, routing rules make the networks of these interfaces unreachable
//! instead ([`closed_lan_entries`]). Then the hosts still reach the router itself.

use carnet_base::mapped::ALL_IPV4_PREFIX;
use carnet_wire::ipv6::protocol;
use carnet_wire::{icmpv6, ipv4};
use ipnet::{Ipv4Net, Ipv6Net};

use super::desired::{ForwardingEntry, Rule, TABLE_LOCAL, TABLE_MAIN, TABLE_UNREACHABLE, priority};
use super::lan::{
    AllowedPackets, InboundPackets, LanSettings, lan_ipv4_prefixes, lan_networks, lan_prefixes,
};
use super::packet_rules::{
    ConnectionState, HostIdentity, HostRate, LimitedHosts, PacketMatch, PacketRule, PortRange, RuleChain,
    RuleVerdict,
};
use super::route_entries::LOOPBACK_INTERFACE;

/// Type of an Echo Request of IPv4 (RFC 792).
const IPV4_ECHO_REQUEST: u8 = 8;

/// Order of the rules in the chain of forwarded packets.
mod rule_order {
    /// Drops packets of a host above its rate. The next rule (`SHARED_HOST_RATE`) is for hosts without room
    /// in the kernel's table: they share one rate.
    pub(super) const HOST_RATE: u32 = 5;
    pub(super) const SHARED_HOST_RATE: u32 = 6;
    /// Isolated interfaces exchange no packets with other interfaces on board, not even answers. Hosts may
    /// not use the addresses of another interface.
    pub(super) const ISOLATED_INTERFACES: u32 = 10;
    /// Accepts answers, and packets from hosts on board.
    pub(super) const FROM_HOSTS_ON_BOARD: u32 = 20;
    /// Accepts packets that an exception permits.
    pub(super) const ALLOWED_EXCEPTIONS: u32 = 30;
    /// Drops all other packets to the interface.
    pub(super) const REMAINING_PACKETS: u32 = 40;
}

/// Returns the rules of the packet filter for the inbound filters (doors) of these interfaces.
///
/// A host A on one interface could send a packet with the address of a host B on another interface.
/// Connection tracking would then take B for the host that began the connection, and the answers would pass
/// B's door. So the rules drop such packets as soon as any interface needs rules. If no interface needs
/// rules, the result is empty, because the packet filter does not see the packets of the fast path.
pub(crate) fn packet_filter_entries(
    prefixes: &[Ipv6Net],
    ipv4: &[Ipv4Net],
    lan: &[LanSettings],
) -> Vec<ForwardingEntry> {
    let mut rules = Vec::new();
    let networks = lan_networks(prefixes, ipv4, lan);
    let needs_rules = lan.iter().any(|lan| lan.inbound_filter.needs_rules());
    let with_addresses_of = |from: &str, owner: &str| -> Vec<PacketRule> {
        let of_owner = networks.iter().filter(|(name, _)| name == owner);
        let packets = of_owner.map(|(_, network)| PacketMatch {
            input_interface: Some(from.to_owned()),
            source: Some(*network),
            ..PacketMatch::default()
        });
        packets
            .map(|packets| inbound_rule(rule_order::ISOLATED_INTERFACES, packets, RuleVerdict::Drop))
            .collect()
    };
    let between = |from: &str, to: &str| PacketMatch {
        input_interface: Some(from.to_owned()),
        output_interface: Some(to.to_owned()),
        ..PacketMatch::default()
    };
    for (index, settings) in lan.iter().enumerate() {
        let name = settings.interface.as_str();
        rules.extend(
            settings.inbound_filter.host_rate.into_iter().flat_map(|rate| host_rate_rules(name, rate)),
        );
        let others = || lan.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, other)| other);
        for other in others().filter(|_| settings.inbound_filter.is_isolated) {
            rules.push(inbound_rule(
                rule_order::ISOLATED_INTERFACES,
                between(name, &other.interface),
                RuleVerdict::Drop,
            ));
            rules.push(inbound_rule(
                rule_order::ISOLATED_INTERFACES,
                between(&other.interface, name),
                RuleVerdict::Drop,
            ));
        }
        for other in others().filter(|_| needs_rules) {
            rules.extend(with_addresses_of(name, &other.interface));
        }
        if settings.inbound_filter.inbound == InboundPackets::Any {
            continue;
        }
        let inside = std::iter::once(name).chain(others().map(|other| other.interface.as_str()));
        rules.extend(inside.map(|from| {
            inbound_rule(rule_order::FROM_HOSTS_ON_BOARD, between(from, name), RuleVerdict::Accept)
        }));
        let to_lan = PacketMatch { output_interface: Some(name.to_owned()), ..PacketMatch::default() };
        let states = vec![ConnectionState::Established, ConnectionState::Related];
        rules.push(inbound_rule(
            rule_order::FROM_HOSTS_ON_BOARD,
            PacketMatch { states, ..to_lan.clone() },
            RuleVerdict::Accept,
        ));
        for allowed in &settings.inbound_filter.allowed_exceptions {
            rules.extend(exception_rules(&to_lan, allowed));
        }
        let rest = inbound_rule(rule_order::REMAINING_PACKETS, to_lan, RuleVerdict::Drop);
        rules.push(PacketRule { counts: true, ..rest });
    }
    rules.into_iter().map(|rule| ForwardingEntry::PacketRule(Box::new(rule))).collect()
}

fn inbound_rule(order: u32, packets: PacketMatch, verdict: RuleVerdict) -> PacketRule {
    PacketRule { chain: RuleChain::Forward, order, packets, counts: false, total: None, verdict }
}

/// Returns the rules that drop packets of hosts over their rate, from and to the hosts of an interface.
fn host_rate_rules(name: &str, octets_per_s: u64) -> Vec<PacketRule> {
    let interface = || Some(name.to_owned());
    let from = PacketMatch { input_interface: interface(), ..Default::default() };
    let to = PacketMatch { output_interface: interface(), ..Default::default() };
    // The link-layer address identifies a sending host, even if it has many IP addresses. The rules know a
    // receiving host only by its IP address, because the kernel finds its link-layer address after these
    // rules.
    let mut all = vec![(HostIdentity::LinkAddress, from.clone())];
    for family in [Ipv6Net::default(), ALL_IPV4_PREFIX] {
        let source = PacketMatch { source: Some(family), ..from.clone() };
        let destination = PacketMatch { destination: Some(family), ..to.clone() };
        all.extend([source, destination].map(|packets| (HostIdentity::Address, packets)));
    }
    let mut rules = Vec::new();
    for (by, packets) in all {
        let hosts = [
            (rule_order::HOST_RATE, LimitedHosts::Each),
            (rule_order::SHARED_HOST_RATE, LimitedHosts::Others),
        ];
        rules.extend(hosts.map(|(order, hosts)| {
            let over_rate = Some(HostRate { octets_per_s, hosts, by });
            let over = inbound_rule(order, PacketMatch { over_rate, ..packets.clone() }, RuleVerdict::Drop);
            PacketRule { counts: true, ..over }
        }));
    }
    rules
}

/// Returns a rule for each combination of ports and destination of an exception.
fn exception_rules(to_lan: &PacketMatch, allowed: &AllowedPackets) -> Vec<PacketRule> {
    let icmp_type = match allowed.protocol {
        ipv4::ICMP => Some(IPV4_ECHO_REQUEST),
        protocol::ICMPV6 => Some(icmpv6::message_type::ECHO_REQUEST),
        _ => None,
    };
    // The kernel must not accept ICMP inside IPv6, or ICMPv6 inside IPv4.
    let any = match allowed.protocol {
        ipv4::ICMP => Some(ALL_IPV4_PREFIX),
        protocol::ICMPV6 => Some(Ipv6Net::default()),
        _ => None,
    };
    let destinations: Vec<Option<Ipv6Net>> = match allowed.destinations.as_slice() {
        [] => vec![any],
        some => some.iter().copied().map(Some).collect(),
    };
    let ports: Vec<Option<PortRange>> = match allowed.ports.as_slice() {
        [] => vec![None],
        some => some.iter().copied().map(Some).collect(),
    };
    let all = destinations.iter().flat_map(|to| ports.iter().map(move |ports| (*to, *ports)));
    all.map(|(destination, ports)| {
        let protocol = Some(allowed.protocol);
        let packets = PacketMatch { protocol, icmp_type, destination, ports, ..to_lan.clone() };
        inbound_rule(rule_order::ALLOWED_EXCEPTIONS, packets, RuleVerdict::Accept)
    })
    .collect()
}

/// Returns routing rules for a kernel that cannot install rules of the packet filter. They make the networks
/// of an interface unreachable if its inbound filter (door) needs rules of the packet filter. The router
/// itself still exchanges packets with hosts there.
pub(crate) fn closed_lan_entries(
    prefixes: &[Ipv6Net],
    ipv4: &[Ipv4Net],
    lan: &[LanSettings],
) -> Vec<ForwardingEntry> {
    let needs_rules =
        |name: &str| lan.iter().any(|lan| lan.interface == name && lan.inbound_filter.needs_rules());
    let networks: Vec<Ipv6Net> = lan_prefixes(prefixes, lan)
        .into_iter()
        .chain(lan_ipv4_prefixes(ipv4, lan))
        .filter(|(name, _)| needs_rules(name))
        .map(|(_, network)| network)
        .collect();
    let mut entries = Vec::new();
    for network in networks {
        let to = |priority, input: Option<&str>, table| {
            ForwardingEntry::Rule(Box::new(Rule {
                priority,
                input_interface: input.map(str::to_owned),
                from: None,
                to: Some(network),
                protocol: None,
                mark: None,
                table,
                ports: None,
                without_default: false,
            }))
        };
        entries.push(to(priority::TO_ROUTER_ON_CLOSED_LAN, None, TABLE_LOCAL));
        entries.push(to(priority::FROM_ROUTER_TO_CLOSED_LAN, Some(LOOPBACK_INTERFACE), TABLE_MAIN));
        entries.push(to(priority::TO_CLOSED_LAN, None, TABLE_UNREACHABLE));
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::super::lan::InboundFilter;
    use super::*;

    fn lan_settings(name: &str, inbound: InboundPackets) -> LanSettings {
        let door = InboundFilter { inbound, ..InboundFilter::default() };
        LanSettings { inbound_filter: door, ..LanSettings::from(name) }
    }

    /// Returns each rule as text: order, input, output, condition, verdict.
    fn describe_lan_rules(lan: &[LanSettings]) -> Vec<String> {
        describe_rules(&[], &[], lan)
    }

    fn describe_rules(prefixes: &[Ipv6Net], ipv4: &[Ipv4Net], lan: &[LanSettings]) -> Vec<String> {
        let text = |rule: &PacketRule| {
            let PacketMatch { input_interface, output_interface, destination, protocol, ports, .. } =
                &rule.packets;
            let name = |name: &Option<String>| name.clone().unwrap_or("*".into());
            let mut text = format!("{} {} {}", rule.order, name(input_interface), name(output_interface));
            for part in [
                rule.packets.source.map(|it| format!(" from {it}")),
                protocol.map(|it| format!(" {it}")),
                ports.map(|it| format!(" {}-{}", it.first, it.last)),
                destination.map(|it| format!(" to {it}")),
                rule.packets.icmp_type.map(|it| format!(" type {it}")),
                (!rule.packets.states.is_empty()).then(|| " states".to_owned()),
            ] {
                text += &part.unwrap_or_default();
            }
            text + &format!(" {:?}", rule.verdict)
        };
        let mut rules: Vec<PacketRule> = packet_filter_entries(prefixes, ipv4, lan)
            .into_iter()
            .map(|entry| match entry {
                ForwardingEntry::PacketRule(rule) => *rule,
                other => panic!("{other:?}"),
            })
            .collect();
        rules.sort();
        rules.iter().map(text).collect()
    }

    #[test]
    fn lan_interface_open_to_inbound_packets_needs_no_filter_rule() {
        assert_eq!(
            describe_lan_rules(&[
                lan_settings("i0", InboundPackets::Any),
                lan_settings("i1", InboundPackets::Any)
            ]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn inbound_filter_accepts_answers_hosts_on_board_and_exceptions() {
        let mut shut = lan_settings("i0", InboundPackets::Established);
        let port = PortRange { first: 443, last: 443 };
        let host: Ipv6Net = "2001:db8:a::77/128".parse().expect("prefix");
        shut.inbound_filter.allowed_exceptions = vec![
            AllowedPackets { protocol: 6, ports: vec![port], destinations: vec![host] },
            AllowedPackets { protocol: ipv4::ICMP, ports: vec![], destinations: vec![] },
            AllowedPackets { protocol: protocol::ICMPV6, ports: vec![], destinations: vec![] },
        ];
        assert_eq!(
            describe_lan_rules(&[shut, lan_settings("i1", InboundPackets::Any)]),
            [
                "20 * i0 states Accept",
                "20 i0 i0 Accept",
                "20 i1 i0 Accept",
                "30 * i0 58 to ::/0 type 128 Accept",
                "30 * i0 1 to ::ffff:0.0.0.0/96 type 8 Accept",
                "30 * i0 6 443-443 to 2001:db8:a::77/128 Accept",
                "40 * i0 Drop",
            ]
        );
    }

    #[test]
    fn host_rate_limits_both_directions_and_families_before_other_rules() {
        let mut limited = lan_settings("i0", InboundPackets::Established);
        limited.inbound_filter.host_rate = Some(2_500_000);
        let rules: Vec<PacketRule> = packet_filter_entries(&[], &[], &[limited])
            .into_iter()
            .filter_map(|entry| match entry {
                ForwardingEntry::PacketRule(rule) if rule.packets.over_rate.is_some() => Some(*rule),
                _ => None,
            })
            .collect();
        assert_eq!(rules.len(), 10);
        assert!(
            rules
                .iter()
                .all(|rule| rule.order < rule_order::ISOLATED_INTERFACES && rule.verdict == RuleVerdict::Drop)
        );
        let of_hosts = |hosts| {
            rules.iter().filter(move |rule| {
                let rate = rule.packets.over_rate.expect("a rate");
                (rate.octets_per_s, rate.hosts) == (2_500_000, hosts)
            })
        };
        assert_eq!((of_hosts(LimitedHosts::Each).count(), of_hosts(LimitedHosts::Others).count()), (5, 5));
        let by_link: Vec<_> = rules.iter().filter(|rule| rule.packets.source.is_none()).collect();
        let by_link = by_link.into_iter().filter(|rule| rule.packets.destination.is_none());
        let identities: Vec<_> = by_link.filter_map(|rule| Some(rule.packets.over_rate?.by)).collect();
        assert_eq!(identities, [HostIdentity::LinkAddress; 2]);
    }

    #[test]
    fn isolated_interface_exchanges_no_packet_with_others() {
        let mut isolated = lan_settings("i0", InboundPackets::Any);
        isolated.inbound_filter.is_isolated = true;
        assert_eq!(
            describe_lan_rules(&[isolated, lan_settings("i1", InboundPackets::Any)]),
            ["10 i0 i1 Drop", "10 i1 i0 Drop"]
        );
    }

    #[test]
    fn inbound_filter_drops_packets_with_address_of_another_lan_interface() {
        let mut isolated = lan_settings("i1", InboundPackets::Any);
        isolated.inbound_filter.is_isolated = true;
        let named: Ipv6Net = "2001:db8:b::/56".parse().expect("prefix");
        isolated.prefixes = vec![named];
        let prefixes = ["2001:db8:a::/56".parse().expect("prefix"), named];
        let ipv4 = ["10.42.7.0/24".parse().expect("prefix")];
        let mut lans =
            [lan_settings("i0", InboundPackets::Any), isolated, lan_settings("i2", InboundPackets::Any)];
        assert_eq!(
            describe_rules(&prefixes, &ipv4, &lans),
            [
                "10 i0 * from 2001:db8:b::/56 Drop",
                "10 i0 i1 Drop",
                "10 i1 * from ::ffff:10.42.7.0/120 Drop",
                "10 i1 * from 2001:db8:a::/64 Drop",
                "10 i1 i0 Drop",
                "10 i1 i2 Drop",
                "10 i2 * from ::ffff:10.42.7.0/120 Drop",
                "10 i2 * from 2001:db8:a::/64 Drop",
                "10 i2 * from 2001:db8:b::/56 Drop",
                "10 i2 i1 Drop",
            ]
        );
        lans[1].inbound_filter =
            InboundFilter { inbound: InboundPackets::Established, ..InboundFilter::default() };
        let rules = describe_rules(&prefixes, &ipv4, &lans);
        assert_eq!(rules.iter().filter(|rule| rule.starts_with("10 ")).count(), 6, "{rules:?}");
        lans[1].inbound_filter = InboundFilter::default();
        assert_eq!(describe_rules(&prefixes, &ipv4, &lans), Vec::<String>::new());
    }

    #[test]
    fn kernel_without_packet_filter_closes_networks_that_need_one() {
        let prefix = |text: &str| text.parse().expect("prefix");
        let prefixes = [prefix("2001:db8:a::/64"), prefix("2001:db8:b::/64")];
        let lans = [lan_settings("i0", InboundPackets::Any), lan_settings("i1", InboundPackets::Established)];
        let closed = closed_lan_entries(&prefixes, &[], &lans);
        let networks: Vec<_> = closed
            .iter()
            .filter_map(|entry| match entry {
                ForwardingEntry::Rule(rule) => Some((rule.priority, rule.to, rule.table)),
                _ => None,
            })
            .collect();
        let to = Some(prefixes[1]);
        assert_eq!(networks, [(105, to, TABLE_LOCAL), (106, to, TABLE_MAIN), (107, to, TABLE_UNREACHABLE)]);
        assert_eq!(closed_lan_entries(&prefixes, &[], &lans[..1]), []);
    }
}
