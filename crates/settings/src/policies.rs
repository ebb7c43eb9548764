//! Converts policies of the config to flow bindings. A policy has one traffic selector for each combination
//! of its values.

use std::net::{Ipv4Addr, Ipv6Addr};

use carnet_api::config::{self, MobileRouter, PolicyAction, PolicyNetworks, PolicyProtocol, values_or_any};
use carnet_mobility::flow::{Ipv4Selector, Ipv6Selector, TrafficSelector, ValueRange};
use carnet_mobility::mobile_router::Policy;
use carnet_station::BreakoutPolicy;
use carnet_wire::{ipv4, ipv6::protocol};
use ipnet::IpNet;

/// Returns the number of a protocol.
pub fn protocol_number(protocol: PolicyProtocol) -> u8 {
    match protocol {
        PolicyProtocol::Tcp => protocol::TCP,
        PolicyProtocol::Udp => protocol::UDP,
        PolicyProtocol::Icmp => ipv4::ICMP,
        PolicyProtocol::Icmpv6 => protocol::ICMPV6,
    }
}

/// Returns the policies that select uplinks of the tunnel, in the form that the mobile router uses.
pub fn flow_policies(router: &MobileRouter) -> Vec<Policy> {
    let policies = router.policies.iter().filter_map(|policy| {
        let PolicyAction::Tunnel(action) = policy.policy_action else { return None };
        Some(Policy {
            name: policy.name.clone(),
            selectors: traffic_selectors(policy, &policy.prefix_combinations(router)),
            action,
            uplinks: policy.uplinks.clone(),
        })
    });
    policies.collect()
}

/// Returns the policies up to the last one whose packets leave without the tunnel. The list includes policies
/// of the tunnel before it, because the first policy that matches a packet decides.
pub fn breakout_policies(router: &MobileRouter) -> Vec<BreakoutPolicy> {
    let mut flows_before = 0;
    let last = router.policies.iter().rposition(|policy| policy.policy_action == PolicyAction::Breakout);
    let policies = router.policies.iter().take(last.map_or(0, |last| last + 1)).map(|policy| {
        let breaks_out = policy.policy_action == PolicyAction::Breakout;
        let selectors = traffic_selectors(policy, &policy.prefix_combinations(router));
        let before = flows_before;
        flows_before += if breaks_out { 0 } else { selectors.len() };
        BreakoutPolicy {
            name: policy.name.clone(),
            breaks_out,
            flow_selectors: selectors,
            lan_interfaces: policy.lan_interfaces.clone(),
            uplinks: policy.uplinks.clone(),
            flow_rules_before: before,
        }
    });
    policies.collect()
}

/// Fields that the selectors of both address families have.
#[derive(Clone, Copy)]
struct SelectorFields {
    protocol: Option<ValueRange<u8>>,
    /// Value or range of the IPv6 Traffic Class octet, which contains the DS field.
    traffic_class: Option<ValueRange<u8>>,
    source_port: Option<ValueRange<u16>>,
    destination_port: Option<ValueRange<u16>>,
}

fn traffic_selectors(policy: &config::Policy, networks: &[PolicyNetworks]) -> Vec<TrafficSelector> {
    let protocol = policy.protocol.map(|it| ValueRange::single(protocol_number(it)));
    // The DS field is the upper six bits of the octet.
    let classes = values_or_any(policy.code_points.iter().map(|dscp| ValueRange::single(dscp << 2)));
    let ports = values_or_any(policy.ports.iter().map(|ports| ValueRange::new(*ports.start(), *ports.end())));
    let mut selectors = Vec::new();
    for class in classes {
        for networks in networks {
            for port in &ports {
                let source = SelectorFields {
                    protocol,
                    traffic_class: class,
                    source_port: *port,
                    destination_port: None,
                };
                selectors.push(traffic_selector(source, networks));
                // A port of the policy may be the source port or the destination port, so it gets two
                // selectors.
                let destination = SelectorFields { source_port: None, destination_port: *port, ..source };
                selectors.extend(port.map(|_| traffic_selector(destination, networks)));
            }
        }
    }
    selectors
}

/// Returns the traffic selector of these fields. An IPv6 selector without addresses applies to IPv4 packets,
/// too.
fn traffic_selector(fields: SelectorFields, networks: &PolicyNetworks) -> TrafficSelector {
    let SelectorFields { protocol, traffic_class: class, source_port, destination_port } = fields;
    let ends = [networks.remote, networks.on_board];
    let is_ipv4 = ends.iter().flatten().any(|prefix| matches!(prefix, IpNet::V4(_)));
    if is_ipv4 || protocol == Some(ValueRange::single(ipv4::ICMP)) {
        let [source, destination] = ends.map(|prefix| prefix.and_then(ipv4_range));
        return TrafficSelector::Ipv4(Ipv4Selector {
            source,
            destination,
            source_port,
            destination_port,
            differentiated_services: class,
            protocol,
            ..Ipv4Selector::default()
        });
    }
    let [source, destination] = ends.map(|prefix| prefix.and_then(ipv6_range));
    TrafficSelector::Ipv6(Ipv6Selector {
        source,
        destination,
        source_port,
        destination_port,
        traffic_class: class,
        next_header: protocol,
        ..Ipv6Selector::default()
    })
}

fn ipv4_range(prefix: IpNet) -> Option<ValueRange<Ipv4Addr>> {
    match prefix {
        IpNet::V4(prefix) => Some(ValueRange::new(prefix.network(), prefix.broadcast())),
        IpNet::V6(_) => None,
    }
}

fn ipv6_range(prefix: IpNet) -> Option<ValueRange<Ipv6Addr>> {
    match prefix {
        IpNet::V4(_) => None,
        IpNet::V6(prefix) => Some(ValueRange::new(prefix.network(), prefix.broadcast())),
    }
}

#[cfg(test)]
mod tests {
    use carnet_mobility::flow::FlowAction;

    use super::*;

    fn policy_with_prefixes(prefixes: &[&str], protocol: Option<PolicyProtocol>) -> config::Policy {
        config::Policy {
            name: "video".into(),
            code_points: Vec::new(),
            protocol,
            ports: Vec::new(),
            prefixes: prefixes.iter().map(|prefix| prefix.parse().expect("a prefix")).collect(),
            lan_interfaces: Vec::new(),
            policy_action: PolicyAction::Tunnel(FlowAction::Balance),
            uplinks: vec!["wlan0".into()],
        }
    }

    fn policy_networks(remote: Option<&str>, on_board: Option<&str>) -> PolicyNetworks {
        let prefix = |text: &str| text.parse().expect("a prefix");
        PolicyNetworks { remote: remote.map(prefix), on_board: on_board.map(prefix) }
    }

    #[test]
    fn policy_gives_one_selector_for_each_combination() {
        let given = config::Policy {
            code_points: vec![46, 34],
            ports: vec![5000..=5000, 6000..=6010],
            ..policy_with_prefixes(&[], Some(PolicyProtocol::Udp))
        };
        let selectors = traffic_selectors(&given, &[policy_networks(Some("2001:db8:1::/48"), None)]);
        assert_eq!(selectors.len(), 8);
        let of_ipv6: Vec<Ipv6Selector> = selectors
            .iter()
            .filter_map(|selector| match selector {
                TrafficSelector::Ipv6(selector) => Some(*selector),
                TrafficSelector::Ipv4(_) => None,
            })
            .collect();
        assert_eq!(of_ipv6.len(), 8);
        for selector in &of_ipv6 {
            assert_eq!(selector.next_header, Some(ValueRange::single(17)));
            let last: Ipv6Addr = "2001:db8:1:ffff:ffff:ffff:ffff:ffff".parse().expect("an address");
            assert_eq!(selector.source.map(|source| source.last), Some(last));
            assert!(selector.source_port.is_some() != selector.destination_port.is_some());
        }
        assert_eq!(of_ipv6[0].traffic_class, Some(ValueRange::single(0xb8)), "EF");
        let any = super::traffic_selectors(&policy_with_prefixes(&[], None), &[policy_networks(None, None)]);
        assert_eq!(any, [TrafficSelector::Ipv6(Ipv6Selector::default())], "everything");
    }

    #[test]
    fn ipv4_networks_and_icmp_give_ipv4_selectors() {
        let given = policy_with_prefixes(&[], None);
        let pairs =
            [policy_networks(Some("192.0.2.0/24"), None), policy_networks(None, Some("10.42.7.0/24"))];
        let selectors = traffic_selectors(&given, &pairs);
        let range = |first: [u8; 4], last: [u8; 4]| Some(ValueRange::new(first.into(), last.into()));
        let source = range([192, 0, 2, 0], [192, 0, 2, 255]);
        let destination = range([10, 42, 7, 0], [10, 42, 7, 255]);
        let any = Ipv4Selector::default();
        let expected = [Ipv4Selector { source, ..any }, Ipv4Selector { destination, ..any }];
        assert_eq!(selectors, expected.map(TrafficSelector::Ipv4));
        let icmp = super::traffic_selectors(
            &policy_with_prefixes(&[], Some(PolicyProtocol::Icmp)),
            &[policy_networks(None, None)],
        );
        let protocol = Some(ValueRange::single(1));
        assert_eq!(icmp, [TrafficSelector::Ipv4(Ipv4Selector { protocol, ..any })]);
    }
}
