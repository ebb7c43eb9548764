//! Converts policies of the config to flow bindings. A policy has one traffic selector for each combination
//! of its values.

use carnet_api::config::{self, PolicyProtocol};
use carnet_mobility::flow::{Ipv6Selector, Range, TrafficSelector};
use carnet_mobility::mobile_router::Policy;
use carnet_wire::ipv6::protocol;

/// Returns the policy in the form that the mobile router uses.
pub fn policy(policy: &config::Policy) -> Policy {
    Policy {
        name: policy.name.clone(),
        selectors: selectors(policy).into_iter().map(TrafficSelector::Ipv6).collect(),
        action: policy.action,
        uplinks: policy.uplinks.clone(),
    }
}

fn selectors(policy: &config::Policy) -> Vec<Ipv6Selector> {
    let next_header = policy.protocol.map(|it| {
        Range::only(match it {
            PolicyProtocol::Tcp => protocol::TCP,
            PolicyProtocol::Udp => protocol::UDP,
            PolicyProtocol::Icmpv6 => protocol::ICMPV6,
        })
    });
    // The DS field is the upper six bits of the Traffic Class.
    let classes = or_any(policy.dscp.iter().map(|dscp| Range::only(dscp << 2)).collect());
    let prefixes = policy.prefixes.iter().map(|prefix| Range::new(prefix.network(), prefix.broadcast()));
    let prefixes = or_any(prefixes.collect());
    let ports = or_any(policy.ports.iter().map(|ports| Range::new(*ports.start(), *ports.end())).collect());
    let mut selectors = Vec::new();
    for traffic_class in classes {
        for source in &prefixes {
            let any = Ipv6Selector { source: *source, traffic_class, next_header, ..Ipv6Selector::default() };
            for port in &ports {
                // The port may be the source port or the destination port, so it gets two selectors.
                selectors.push(Ipv6Selector { source_port: *port, ..any });
                selectors.extend(port.map(|port| Ipv6Selector { destination_port: Some(port), ..any }));
            }
        }
    }
    selectors
}

/// Returns each value as `Some`. If there are no values, returns one `None`, which stands for any value.
fn or_any<T>(values: Vec<T>) -> Vec<Option<T>> {
    if values.is_empty() { vec![None] } else { values.into_iter().map(Some).collect() }
}

#[cfg(test)]
mod tests {
    use carnet_mobility::flow::FlowAction;

    use super::*;

    #[test]
    fn policy_gives_one_selector_for_each_combination() {
        let given = config::Policy {
            name: "video".into(),
            dscp: vec![46, 34],
            protocol: Some(PolicyProtocol::Udp),
            ports: vec![5000..=5000, 6000..=6010],
            prefixes: vec!["2001:db8:1::/48".parse().expect("a prefix")],
            action: FlowAction::Balance,
            uplinks: vec!["wlan0".into()],
        };
        let selectors = selectors(&given);
        assert_eq!(selectors.len(), 8);
        for selector in &selectors {
            assert_eq!(selector.next_header, Some(Range::only(17)));
            let source = selector.source.expect("a prefix");
            assert_eq!(
                source.last,
                "2001:db8:1:ffff:ffff:ffff:ffff:ffff".parse::<std::net::Ipv6Addr>().expect("a")
            );
            assert!(selector.source_port.is_some() != selector.destination_port.is_some());
        }
        assert_eq!(selectors[0].traffic_class, Some(Range::only(0xb8)), "EF");
        let nothing = config::Policy {
            dscp: Vec::new(),
            protocol: None,
            ports: Vec::new(),
            prefixes: Vec::new(),
            ..given
        };
        assert_eq!(super::selectors(&nothing), [Ipv6Selector::default()], "everything");
        assert_eq!(policy(&nothing).action, FlowAction::Balance);
    }
}
