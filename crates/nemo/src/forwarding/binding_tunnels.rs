//! Selects the tunnels that transmit, from registrations and flow bindings. The rules are the same at both
//! ends.
//!
//! If one tunnel carries all packets, there is no distribution, and only that tunnel transmits. A fast path
//! can forward such traffic.

use std::net::Ipv6Addr;

use carnet_mobility::flow::{FlowAction, FlowBinding};

use super::desired::{DistributionMember, DistributionRule, FlowDistribution, TunnelEnd};
use super::path_mtu::TunnelEnds;
use super::policy_routing_for_breakouts::BreakoutPolicy;

/// Tunnels that a home address uses, and the distribution of its packets.
#[derive(Debug, Default)]
pub(crate) struct BindingTunnels {
    /// Tunnels into which the station sends packets of the home address.
    pub transmitting_tunnels: Vec<TunnelEnds>,
    /// Distribution of the packets; `None` if one tunnel carries all packets.
    pub distribution: Option<FlowDistribution>,
}

/// Divides the packets of a home address among its valid registrations by the flow bindings. `living` are the
/// valid registrations, the preferred one first.
pub(crate) fn divide_among_tunnels(
    end: TunnelEnd,
    home_address: Ipv6Addr,
    home_agent: Ipv6Addr,
    living: &[(Option<u16>, TunnelEnds)],
    flows: &[FlowBinding],
    breakouts: &[BreakoutPolicy],
) -> BindingTunnels {
    let Some((_, best)) = living.first() else { return BindingTunnels::default() };
    let member = |(bid, (local, remote)): &(Option<u16>, TunnelEnds), weight| DistributionMember {
        bid: *bid,
        local: *local,
        remote: *remote,
        weight,
    };
    let mut rules: Vec<DistributionRule> = Vec::new();
    let mut breakouts = breakouts.iter().filter(|policy| policy.breaks_out).peekable();
    for flow in flows {
        let is_before = |policy: &&BreakoutPolicy| policy.flow_rules_before < usize::from(flow.fid);
        while let Some(policy) = breakouts.next_if(is_before) {
            rules.extend(rules_for_traffic_outside_tunnels(policy));
        }
        let chosen = flow.bids.iter().filter_map(|(bid, weight)| {
            living.iter().find(|(known, _)| *known == Some(*bid)).map(|way| member(way, *weight))
        });
        let members: Vec<DistributionMember> = chosen.collect();
        if !members.is_empty() {
            rules.push(DistributionRule { selector: Some(flow.selector), action: flow.action, members });
        }
    }
    rules.extend(breakouts.flat_map(rules_for_traffic_outside_tunnels));
    let to_the_best = |rule: &DistributionRule| {
        let first = rule.members.first().is_some_and(|member| (member.local, member.remote) == *best);
        match rule.action {
            FlowAction::Failover => first,
            FlowAction::Balance => first && rule.members.len() == 1,
            // A packet of a `duplicate` rule has a number even if only one tunnel is left. Copies of earlier
            // packets may still be in transit in other tunnels.
            FlowAction::Duplicate => false,
        }
    };
    if rules.iter().all(to_the_best) {
        return BindingTunnels { transmitting_tunnels: vec![*best], distribution: None };
    }
    rules.push(DistributionRule {
        selector: None,
        action: FlowAction::Failover,
        members: living.iter().map(|way| member(way, 1)).collect(),
    });
    BindingTunnels {
        transmitting_tunnels: living.iter().map(|(_, ends)| *ends).collect(),
        distribution: Some(FlowDistribution { end, home_address, home_agent, rules }),
    }
}

/// Returns the rules for packets that leave without the tunnel. They name no tunnel. A fast path leaves such
/// packets to the kernel, which leads them to the uplink. The slow path gets them only if the uplink cannot
/// take them, and goes on with the next rule.
fn rules_for_traffic_outside_tunnels(policy: &BreakoutPolicy) -> impl Iterator<Item = DistributionRule> + '_ {
    policy.flow_selectors.iter().map(|selector| DistributionRule {
        selector: Some(*selector),
        action: FlowAction::Failover,
        members: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use carnet_mobility::flow::{Ipv6Selector, TrafficSelector};

    fn tunnels_with_bids(bids: &[u16]) -> Vec<(Option<u16>, TunnelEnds)> {
        let ends = |bid: &u16| {
            let remote = format!("192.0.2.{bid}").parse().expect("endpoint");
            (Some(*bid), ("198.51.100.1".parse().expect("endpoint"), remote))
        };
        bids.iter().map(ends).collect()
    }

    fn flow_binding(action: FlowAction, bids: &[(u16, u16)]) -> FlowBinding {
        let selector = TrafficSelector::Ipv6(Ipv6Selector::default());
        FlowBinding { fid: 1, priority: 1, selector, action, bids: bids.to_vec() }
    }

    fn tunnels_of_bids(bids: &[u16], flows: &[FlowBinding]) -> BindingTunnels {
        let (home_address, home_agent) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
        divide_among_tunnels(
            TunnelEnd::HomeAgent,
            home_address,
            home_agent,
            &tunnels_with_bids(bids),
            flows,
            &[],
        )
    }

    #[test]
    fn single_tunnel_needs_no_distribution_entry() {
        let to_the_best = [
            flow_binding(FlowAction::Failover, &[(1, 1), (2, 1)]),
            flow_binding(FlowAction::Balance, &[(1, 1), (9, 1)]),
        ];
        for flows in [&[][..], &to_the_best, &[flow_binding(FlowAction::Failover, &[(9, 1)])]] {
            let ways = tunnels_of_bids(&[1, 2], flows);
            assert_eq!(ways.distribution, None);
            assert_eq!(ways.transmitting_tunnels.len(), 1);
        }
        assert!(tunnels_of_bids(&[], &to_the_best).transmitting_tunnels.is_empty());
        // A packet of a `duplicate` rule gets a sequence number, and so needs a distribution, even if only
        // one tunnel exists.
        assert!(
            tunnels_of_bids(&[1], &[flow_binding(FlowAction::Duplicate, &[(1, 1)])]).distribution.is_some()
        );
    }

    #[test]
    fn distribution_rules_keep_the_order_of_breakouts_and_flows() {
        let policy = |port, flows_before, breaks_out| BreakoutPolicy {
            name: String::new(),
            breaks_out,
            flow_selectors: vec![TrafficSelector::Ipv6(Ipv6Selector {
                source_port: Some(carnet_mobility::flow::ValueRange::single(port)),
                ..Ipv6Selector::default()
            })],
            lan_interfaces: Vec::new(),
            uplinks: Vec::new(),
            flow_rules_before: flows_before,
        };
        let breakouts = [policy(1, 0, true), policy(2, 1, false), policy(3, 1, true), policy(4, 2, true)];
        let flows = [1, 2].map(|fid| FlowBinding { fid, ..flow_binding(FlowAction::Failover, &[(1, 1)]) });
        let living = tunnels_with_bids(&[1]);
        let ways = divide_among_tunnels(
            TunnelEnd::MobileRouter,
            Ipv6Addr::LOCALHOST,
            Ipv6Addr::UNSPECIFIED,
            &living,
            &flows,
            &breakouts,
        );
        let port = |rule: &DistributionRule| match rule.selector {
            Some(TrafficSelector::Ipv6(selector)) => selector.source_port.map(|range| range.first),
            _ => None,
        };
        let rules = ways.distribution.expect("a distribution").rules;
        let all: Vec<_> = rules.iter().map(|rule| (port(rule), rule.members.len())).collect();
        assert_eq!(all, [(Some(1), 0), (None, 1), (Some(3), 0), (None, 1), (Some(4), 0), (None, 1)]);
    }

    #[test]
    fn rules_name_working_tunnels_and_end_with_catch_all() {
        let flows = [
            flow_binding(FlowAction::Balance, &[(2, 20), (9, 1), (1, 50)]),
            flow_binding(FlowAction::Duplicate, &[(9, 1)]),
            flow_binding(FlowAction::Duplicate, &[(2, 1)]),
        ];
        let ways = tunnels_of_bids(&[1, 2, 3], &flows);
        assert_eq!(ways.transmitting_tunnels.len(), 3);
        let rules = ways.distribution.expect("a distribution").rules;
        let members = |rule: &DistributionRule| -> Vec<(Option<u16>, u16)> {
            rule.members.iter().map(|member| (member.bid, member.weight)).collect()
        };
        let all: Vec<_> = rules.iter().map(|rule| (rule.action, members(rule))).collect();
        assert_eq!(
            all,
            [
                (FlowAction::Balance, vec![(Some(2), 20), (Some(1), 50)]),
                (FlowAction::Duplicate, vec![(Some(2), 1)]),
                (FlowAction::Failover, vec![(Some(1), 1), (Some(2), 1), (Some(3), 1)]),
            ]
        );
        assert!(rules.last().is_some_and(|rule| rule.selector.is_none()));
    }
}
