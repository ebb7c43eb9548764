//! Conflicts between addresses, prefixes and interfaces of several tables.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

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
pub(super) fn apart<P: Copy + Display + Into<IpNet>>(prefixes: &[At<P>], sink: &Sink<'_>) {
    // Index of the first prefix in the list, by first address and length.
    let mut before: BTreeMap<(u128, u8), usize> = BTreeMap::new();
    for (index, prefix) in prefixes.iter().enumerate() {
        let (first, last, length) = range(prefix.value.into());
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
                sink.place(other.at)
            );
            sink.push(prefix.at, message);
        }
        before.entry((first, length)).or_insert(index);
    }
}

/// Returns the first and the last address of a prefix, and its length. An IPv4 prefix is in IPv4-mapped form.
fn range(prefix: IpNet) -> (u128, u128, u8) {
    match prefix {
        IpNet::V6(prefix) => (prefix.network().into(), prefix.broadcast().into(), prefix.prefix_len()),
        IpNet::V4(prefix) => {
            let [first, last] = [prefix.network(), prefix.broadcast()].map(|it| it.to_ipv6_mapped().into());
            (first, last, prefix.prefix_len() + 96)
        }
    }
}

/// Checks that no IPv4 prefix contains an IPv4 address of a home agent. Otherwise packets to the home agent
/// would enter the tunnel to it.
pub(super) fn not_inside_ipv4(agents: &[At<Ipv4Addr>], prefixes: &List<Ipv4Net>, sink: &Sink<'_>) {
    for prefix in &prefixes.items {
        for agent in agents.iter().filter(|agent| prefix.value.contains(&agent.value)) {
            let message = format!(
                "{} contains the home agent {} at {}, expected a prefix without it",
                prefix.value,
                agent.value,
                sink.place(agent.at)
            );
            sink.push(prefix.at, message);
        }
    }
}

pub(super) fn taken(interface: &At<String>, what: &str, other: &At<String>, sink: &Sink<'_>) {
    let place = sink.place(other.at);
    sink.push(interface.at, format!("{:?} is {what} already at {place}, expected another", interface.value));
}
