//! Selects the tunnels that transmit, from registrations and flow bindings. The rules are the same at both
//! ends.
//!
//! If one tunnel carries all packets, there is no distribution, and only that tunnel transmits. A fast path
//! can forward such traffic.

use std::net::Ipv6Addr;

use carnet_mobility::flow::{FlowAction, FlowBinding};

use super::desired::{Distribution, DistributionRule, Member, TunnelEnd};
use super::path_mtu::Ends;
use super::policy_routing_for_breakouts::BreakoutPolicy;

/// Tunnels that a home address uses, and the distribution of its packets.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    /// Tunnels that transmit packets.
    pub transmit: Vec<Ends>,
    /// Distribution of the packets; `None` if one tunnel carries all packets.
    pub distribution: Option<Distribution>,
}

/// Divides the packets of a home address among its valid registrations by the flow bindings. `living` are
/// these registrations, the preferred one first.
pub(crate) fn ways(
    end: TunnelEnd,
    home_address: Ipv6Addr,
    home_agent: Ipv6Addr,
    living: &[(Option<u16>, Ends)],
    flows: &[FlowBinding],
    breakouts: &[BreakoutPolicy],
) -> Ways {
    let Some((_, best)) = living.first() else { return Ways::default() };
    let member = |(bid, (local, remote)): &(Option<u16>, Ends), weight| Member {
        bid: *bid,
        local: *local,
        remote: *remote,
        weight,
    };
    let mut rules: Vec<DistributionRule> = Vec::new();
    let mut breakouts = breakouts.iter().filter(|policy| policy.breaks_out).peekable();
    for flow in flows {
        let is_before = |policy: &&BreakoutPolicy| policy.flows_before < usize::from(flow.fid);
        while let Some(policy) = breakouts.next_if(is_before) {
            rules.extend(past_all_tunnels(policy));
        }
        let chosen = flow.bids.iter().filter_map(|(bid, weight)| {
            living.iter().find(|(known, _)| *known == Some(*bid)).map(|way| member(way, *weight))
        });
        let members: Vec<Member> = chosen.collect();
        if !members.is_empty() {
            rules.push(DistributionRule { selector: Some(flow.selector), action: flow.action, members });
        }
    }
    rules.extend(breakouts.flat_map(past_all_tunnels));
    let to_the_best = |rule: &DistributionRule| {
        let first = rule.members.first().is_some_and(|member| (member.local, member.remote) == *best);
        match rule.action {
            FlowAction::Failover => first,
            FlowAction::Balance => first && rule.members.len() == 1,
            // A packet of a `duplicate` rule has a number even if only one tunnel is left, because copies may
            // still be in transit in others.
            FlowAction::Duplicate => false,
        }
    };
    if rules.iter().all(to_the_best) {
        return Ways { transmit: vec![*best], distribution: None };
    }
    rules.push(DistributionRule {
        selector: None,
        action: FlowAction::Failover,
        members: living.iter().map(|way| member(way, 1)).collect(),
    });
    Ways {
        transmit: living.iter().map(|(_, ends)| *ends).collect(),
        distribution: Some(Distribution { end, home_address, home_agent, rules }),
    }
}

/// Returns the rules for packets that leave without the tunnel. They name no tunnel. A fast path leaves such
/// packets to the kernel, which leads them to the uplink. The slow path gets them only if the uplink cannot
/// take them, and goes on with the next rule.
fn past_all_tunnels(policy: &BreakoutPolicy) -> impl Iterator<Item = DistributionRule> + '_ {
    policy.selectors.iter().map(|selector| DistributionRule {
        selector: Some(*selector),
        action: FlowAction::Failover,
        members: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use carnet_mobility::flow::{Ipv6Selector, TrafficSelector};

    fn living(bids: &[u16]) -> Vec<(Option<u16>, Ends)> {
        let ends = |bid: &u16| {
            let remote = format!("192.0.2.{bid}").parse().expect("endpoint");
            (Some(*bid), ("198.51.100.1".parse().expect("endpoint"), remote))
        };
        bids.iter().map(ends).collect()
    }

    fn flow(action: FlowAction, bids: &[(u16, u16)]) -> FlowBinding {
        let selector = TrafficSelector::Ipv6(Ipv6Selector::default());
        FlowBinding { fid: 1, priority: 1, selector, action, bids: bids.to_vec() }
    }

    fn of(bids: &[u16], flows: &[FlowBinding]) -> Ways {
        let (home_address, home_agent) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
        ways(TunnelEnd::HomeAgent, home_address, home_agent, &living(bids), flows, &[])
    }

    #[test]
    fn single_tunnel_needs_no_distribution_entry() {
        let to_the_best =
            [flow(FlowAction::Failover, &[(1, 1), (2, 1)]), flow(FlowAction::Balance, &[(1, 1), (9, 1)])];
        for flows in [&[][..], &to_the_best, &[flow(FlowAction::Failover, &[(9, 1)])]] {
            let ways = of(&[1, 2], flows);
            assert_eq!(ways.distribution, None);
            assert_eq!(ways.transmit.len(), 1);
        }
        assert!(of(&[], &to_the_best).transmit.is_empty());
        // A copy has a number even if no other tunnel exists now.
        assert!(of(&[1], &[flow(FlowAction::Duplicate, &[(1, 1)])]).distribution.is_some());
    }

    #[test]
    fn breakouts_stand_among_flows_in_the_order_of_policies() {
        let policy = |port, flows_before, breaks_out| BreakoutPolicy {
            name: String::new(),
            breaks_out,
            selectors: vec![TrafficSelector::Ipv6(Ipv6Selector {
                source_port: Some(carnet_mobility::flow::Range::single(port)),
                ..Ipv6Selector::default()
            })],
            lan: Vec::new(),
            uplinks: Vec::new(),
            flows_before,
        };
        let breakouts = [policy(1, 0, true), policy(2, 1, false), policy(3, 1, true), policy(4, 2, true)];
        let flows = [1, 2].map(|fid| FlowBinding { fid, ..flow(FlowAction::Failover, &[(1, 1)]) });
        let living = living(&[1]);
        let ways = ways(
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
            flow(FlowAction::Balance, &[(2, 20), (9, 1), (1, 50)]),
            flow(FlowAction::Duplicate, &[(9, 1)]),
            flow(FlowAction::Duplicate, &[(2, 1)]),
        ];
        let ways = of(&[1, 2, 3], &flows);
        assert_eq!(ways.transmit.len(), 3);
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
