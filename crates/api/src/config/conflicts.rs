//! Conflicts between addresses, prefixes and interfaces of several tables.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use super::errors::Sink;
use super::reader::{At, List};

/// Checks that a home address is in the home prefix or in a mobile network prefix (RFC 3963 3).
pub(super) fn home_address(
    address: Option<At<Ipv6Addr>>,
    home_prefix: Option<At<Ipv6Net>>,
    prefixes: &List<Ipv6Net>,
    sink: &Sink<'_>,
) {
    let (Some(address), Some(home_prefix)) = (address, home_prefix) else { return };
    let inside = |prefix: &At<Ipv6Net>| prefix.value.contains(&address.value);
    if prefixes.whole && !inside(&home_prefix) && !prefixes.items.iter().any(inside) {
        let message = format!(
            "home address {} is outside, expected an address in {} or in one of the prefixes",
            address.value, home_prefix.value
        );
        sink.push(address.at, message);
    }
}

/// Checks that no prefix contains the home agent. Otherwise packets to the home agent would enter the tunnel
/// to it.
pub(super) fn not_inside(agent: Option<At<Ipv6Addr>>, prefixes: &List<Ipv6Net>, sink: &Sink<'_>) {
    let Some(agent) = agent else { return };
    for prefix in prefixes.items.iter().filter(|prefix| prefix.value.contains(&agent.value)) {
        let message = format!(
            "{} contains the home agent {} at {}, expected a prefix without it",
            prefix.value,
            agent.value,
            sink.place(agent.at)
        );
        sink.push(prefix.at, message);
    }
}

/// Checks that no prefix is part of another. A home agent's config may have very many prefixes.
pub(super) fn apart(prefixes: &[At<Ipv6Net>], sink: &Sink<'_>) {
    // Index of the first prefix with each first address and length.
    let mut before: BTreeMap<(u128, u8), usize> = BTreeMap::new();
    for (index, prefix) in prefixes.iter().enumerate() {
        let (first, last) = (prefix.value.network(), prefix.value.broadcast());
        let length = prefix.value.prefix_len();
        let around = (0..length).filter_map(|shorter| {
            let network = Ipv6Net::new(first, shorter).ok()?.network();
            before.get(&(u128::from(network), shorter))
        });
        let within = before.range((u128::from(first), length)..=(u128::from(last), u8::MAX));
        let other = around.chain(within.map(|(_, other)| other)).min();
        if let Some(other) = other.and_then(|other| prefixes.get(*other)) {
            let message = format!(
                "{} overlaps {} at {}, expected prefixes that do not overlap",
                prefix.value,
                other.value,
                sink.place(other.at)
            );
            sink.push(prefix.at, message);
        }
        before.entry((u128::from(first), length)).or_insert(index);
    }
}

pub(super) fn taken(interface: &At<String>, what: &str, other: &At<String>, sink: &Sink<'_>) {
    let place = sink.place(other.at);
    sink.push(interface.at, format!("{:?} is {what} already at {place}, expected another", interface.value));
}
