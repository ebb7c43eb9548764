//! Converts the rules that select a path of the binding for each packet into the programs' format (`struct
//! rules` in `bpf/state.h`).
//!
//! Rules, identifiers of their members and weights come from the slow path ([`FlowDistributor`]), so that
//! both select the same tunnel. A rule does not apply if none of its tunnels exists.

use carnet_nemo::forwarding::desired::{FlowAction, Ipv6Selector, TrafficSelector, ValueRange};
use carnet_nemo::forwarding::distribution::FlowDistributor;

use super::TunnelEnds;
use super::map_values::MAX_PATHS_PER_BINDING;

/// Maximum number of rules of one binding (`RULES_MAX` in C).
pub(crate) const MAX_RULES_PER_BINDING: usize = 8;

/// Copy of `struct rule` in C. Each range has its first and last value, in the machine's byte order.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RuleValue {
    source: [u64; 4],
    destination: [u64; 4],
    member_identities: [u64; MAX_PATHS_PER_BINDING],
    member_weights: [u32; MAX_PATHS_PER_BINDING],
    flow_label_range: [u32; 2],
    spi_range: [u32; 2],
    source_port_range: [u16; 2],
    destination_port_range: [u16; 2],
    traffic_class_range: [u8; 2],
    next_header: [u8; 2],
    path_indices: [u8; MAX_PATHS_PER_BINDING],
    path_count: u8,
    flow_action: u8,
    compared_fields: u16,
    padding: u32,
}

/// Copy of `struct rules` in C.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RuleListValue {
    rule_values: [RuleValue; MAX_RULES_PER_BINDING],
    rule_count: u32,
    padding: u32,
}

/// A rule of the slow path, with a tunnel for each of its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlowRule {
    selector: Option<TrafficSelector>,
    action: FlowAction,
    /// Tunnels among which the rule distributes flows. For each: its ends, its number in the distribution's
    /// hash, and its present weight.
    rule_members: Vec<(TunnelEnds, u64, u32)>,
}

/// Returns the rules of a distributor.
pub(crate) fn flow_rules_of(distributor: &FlowDistributor) -> Vec<FlowRule> {
    let rules = distributor.rules().map(|(rule, weights)| {
        let members = rule.members.iter().zip(weights);
        let members = members.map(|(member, (id, weight))| ((member.local, member.remote), *id, *weight));
        FlowRule { selector: rule.selector, action: rule.action, rule_members: members.collect() }
    });
    rules.collect()
}

/// Returns the rules in the format of the programs. `paths` are the binding's sending paths, in the order of
/// the binding's map value. `exists` returns whether a tunnel outside `paths` exists. Returns `None` if the
/// programs cannot execute the rules.
pub(crate) fn to_map_value(
    rules: &[FlowRule],
    paths: &[TunnelEnds],
    exists: impl Fn(&TunnelEnds) -> bool,
) -> Option<RuleListValue> {
    let mut value = RuleListValue::default();
    for rule in rules {
        let mut of = RuleValue { flow_action: encode_flow_action(rule.action), ..RuleValue::default() };
        if let Some(selector) = &rule.selector {
            of.set_selector(&selector.as_ipv6());
        }
        for (ends, known_by, weight) in &rule.rule_members {
            let Some(path) = paths.iter().position(|path| path == ends) else {
                if exists(ends) {
                    return None;
                }
                continue;
            };
            let at = usize::from(of.path_count);
            *of.member_identities.get_mut(at)? = *known_by;
            *of.member_weights.get_mut(at)? = (*weight).max(1);
            *of.path_indices.get_mut(at)? = u8::try_from(path).ok()?;
            of.path_count += 1;
        }
        if rule.rule_members.is_empty() {
            // A rule without tunnels is for packets that leave outside of the tunnel. With the action
            // `Duplicate`, the programs leave these packets to the kernel.
            of.flow_action = encode_flow_action(FlowAction::Duplicate);
        } else if of.path_count == 0 {
            continue;
        }
        *value.rule_values.get_mut(value.rule_count as usize)? = of;
        value.rule_count += 1;
    }
    Some(value)
}

/// Returns the value of `enum action` in C.
fn encode_flow_action(action: FlowAction) -> u8 {
    match action {
        FlowAction::Failover => 0,
        FlowAction::Balance => 1,
        FlowAction::Duplicate => 2,
    }
}

impl RuleValue {
    fn set_selector(&mut self, selector: &Ipv6Selector) {
        fn range_as_pair<T: Copy>(range: ValueRange<T>) -> [T; 2] {
            [range.first, range.last]
        }
        let halves = |range: ValueRange<std::net::Ipv6Addr>| {
            let [first, last] = range_as_pair(range).map(u128::from);
            [(first >> 64) as u64, first as u64, (last >> 64) as u64, last as u64]
        };
        let Ipv6Selector {
            source,
            destination,
            spi,
            flow_label,
            source_port,
            destination_port,
            traffic_class,
            next_header,
        } = *selector;
        // The order of the fields is that of the bits in `fields`, which say what the rule compares.
        let fields = [
            source.map(|range| self.source = halves(range)),
            destination.map(|range| self.destination = halves(range)),
            spi.map(|range| self.spi_range = range_as_pair(range)),
            flow_label.map(|range| self.flow_label_range = range_as_pair(range)),
            source_port.map(|range| self.source_port_range = range_as_pair(range)),
            destination_port.map(|range| self.destination_port_range = range_as_pair(range)),
            // RFC 6088 3.2: the last two bits of the traffic class are ECN, which the rule ignores.
            traffic_class
                .map(|range| self.traffic_class_range = range_as_pair(range).map(|class| class >> 2)),
            next_header.map(|range| self.next_header = range_as_pair(range)),
        ];
        self.compared_fields = fields
            .iter()
            .enumerate()
            .filter(|(_, field)| field.is_some())
            .fold(0, |bits, (bit, _)| bits | 1 << bit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_values_have_size_of_bpf_structs() {
        assert_eq!(size_of::<RuleValue>(), 152);
        assert_eq!(size_of::<RuleListValue>(), 152 * MAX_RULES_PER_BINDING + 8);
    }
}
