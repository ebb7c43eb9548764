//! Conflicts between addresses, prefixes and interfaces of several tables.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::errors::ErrorSink;
use super::reader::{List, Located};

/// Checks that a home address is in the home prefix or in a mobile network prefix (RFC 3963 3).
pub(super) fn check_home_address(
    address: Option<Located<Ipv6Addr>>,
    home_prefix: Option<Located<Ipv6Net>>,
    prefixes: &List<Ipv6Net>,
    sink: &ErrorSink<'_>,
) {
    let (Some(address), Some(home_prefix)) = (address, home_prefix) else { return };
    let inside = |prefix: &Located<Ipv6Net>| prefix.value.contains(&address.value);
    if prefixes.all_valid && !inside(&home_prefix) && !prefixes.valid_items.iter().any(inside) {
        let message = format!(
            "home address {} is outside, expected an address in {} or in one of the prefixes",
            address.value, home_prefix.value
        );
        sink.push(address.offset, message);
    }
}

/// Checks that no prefix contains the home agent's address. Otherwise packets to the home agent would enter
/// the tunnel that ends there.
pub(super) fn check_home_agent_outside_prefixes(
    agent: Option<Located<Ipv6Addr>>,
    prefixes: &List<Ipv6Net>,
    sink: &ErrorSink<'_>,
) {
    let Some(agent) = agent else { return };
    for prefix in prefixes.valid_items.iter().filter(|prefix| prefix.value.contains(&agent.value)) {
        let message = format!(
            "{} contains the home agent {} at {}, expected a prefix without it",
            prefix.value,
            agent.value,
            sink.format_position(agent.offset)
        );
        sink.push(prefix.offset, message);
    }
}

/// Checks that no two prefixes overlap. Uses a sorted map, because a home agent's config may have very many
/// prefixes.
pub(super) fn check_disjoint<P: Copy + Display + Into<IpNet>>(prefixes: &[Located<P>], sink: &ErrorSink<'_>) {
    // Prefixes checked so far: their index in `prefixes`, by first address and length.
    let mut before: BTreeMap<(u128, u8), usize> = BTreeMap::new();
    for (index, prefix) in prefixes.iter().enumerate() {
        let (first, last, length) = address_range_of_prefix(prefix.value.into());
        let around = (0..length).filter_map(|shorter| {
            let network = first & u128::MAX.checked_shl(128 - u32::from(shorter)).unwrap_or(0);
            before.get(&(network, shorter))
        });
        let within = before.range((first, length)..=(last, u8::MAX));
        let other = around.chain(within.map(|(_, other)| other)).min();
        if let Some(other) = other.and_then(|other| prefixes.get(*other)) {
            let message = format!(
                "{} overlaps {} at {}, expected prefixes that do not overlap",
                prefix.value,
                other.value,
                sink.format_position(other.offset)
            );
            sink.push(prefix.offset, message);
        }
        before.entry((first, length)).or_insert(index);
    }
}

/// Returns the first and the last address of a prefix, and its length. An IPv4 prefix is in IPv4-mapped form.
fn address_range_of_prefix(prefix: IpNet) -> (u128, u128, u8) {
    match prefix {
        IpNet::V6(prefix) => (prefix.network().into(), prefix.broadcast().into(), prefix.prefix_len()),
        IpNet::V4(prefix) => {
            let [first, last] = [prefix.network(), prefix.broadcast()].map(|it| it.to_ipv6_mapped().into());
            (first, last, prefix.prefix_len() + 96)
        }
    }
}

/// Checks that no IPv4 prefix contains an IPv4 address of a home agent. Otherwise packets to the home agent
/// would enter the tunnel that ends there.
pub(super) fn check_ipv4_home_agents_outside_prefixes(
    agents: &[Located<Ipv4Addr>],
    prefixes: &List<Ipv4Net>,
    sink: &ErrorSink<'_>,
) {
    for prefix in &prefixes.valid_items {
        for agent in agents.iter().filter(|agent| prefix.value.contains(&agent.value)) {
            let message = format!(
                "{} contains the home agent {} at {}, expected a prefix without it",
                prefix.value,
                agent.value,
                sink.format_position(agent.offset)
            );
            sink.push(prefix.offset, message);
        }
    }
}

pub(super) fn refuse_taken_interface(
    interface: &Located<String>,
    what: &str,
    other: &Located<String>,
    sink: &ErrorSink<'_>,
) {
    let place = sink.format_position(other.offset);
    sink.push(
        interface.offset,
        format!("{:?} is {what} already at {place}, expected another", interface.value),
    );
}
