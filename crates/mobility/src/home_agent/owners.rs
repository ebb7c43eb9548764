//! Which of the configured nodes an address belongs to (the Prefix Table of RFC 3963 6.1.2, by address).
//!
//! A home agent may have very many nodes, and these questions are asked for every Binding Update: so they are
//! answered by one look-up for each length that prefixes have, not by a look at each node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use super::AuthorizedNode;

/// The address that comes after all others.
const LAST: Ipv6Addr = Ipv6Addr::from_bits(u128::MAX);

/// The owners of addresses.
#[derive(Debug, Default)]
pub(super) struct Owners {
    home_addresses: BTreeSet<Ipv6Addr>,
    /// By length and network, the home addresses of the nodes to which that prefix is given: one, if the
    /// configuration is in order.
    prefixes: BTreeMap<u8, BTreeSet<(Ipv6Addr, Ipv6Addr)>>,
}

impl Owners {
    /// Of these nodes.
    pub fn of(nodes: &[AuthorizedNode]) -> Owners {
        let mut owners = Owners::default();
        for node in nodes {
            owners.home_addresses.insert(node.home_address);
            for prefix in &node.prefixes {
                let of_length = owners.prefixes.entry(prefix.prefix_len()).or_default();
                of_length.insert((prefix.network(), node.home_address));
            }
        }
        owners
    }

    /// Whether a node has this home address.
    pub fn is_home_address(&self, address: Ipv6Addr) -> bool {
        self.home_addresses.contains(&address)
    }

    /// The nodes in whose prefixes the address is, by home address; those with the longest prefix first.
    pub fn of_prefixes_around(&self, address: Ipv6Addr) -> impl Iterator<Item = Ipv6Addr> {
        self.prefixes.iter().rev().flat_map(move |(length, of_length)| {
            let network = Ipv6Net::new(address, *length).ok().map(|prefix| prefix.network());
            let of_network = |network| of_length.range((network, Ipv6Addr::UNSPECIFIED)..=(network, LAST));
            network.map(of_network).into_iter().flatten().map(|(_, home_address)| *home_address)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Authentication;

    #[test]
    fn the_longest_prefix_comes_first_and_a_home_address_is_none() {
        let node = |home_address: &str, prefixes: &[&str]| AuthorizedNode {
            home_address: home_address.parse().expect("address"),
            prefixes: prefixes.iter().map(|prefix| prefix.parse().expect("prefix")).collect(),
            authentication: Authentication::None,
        };
        let owners = Owners::of(&[
            node("2001:db8::1", &["2001:db8:a::/48"]),
            node("2001:db8::2", &["2001:db8:a:1::/64", "2001:db8:b::/64"]),
            node("2001:db8::3", &[]),
        ]);
        let around = |address: &str| -> Vec<String> {
            let around = owners.of_prefixes_around(address.parse().expect("address"));
            around.map(|owner| owner.to_string()).collect()
        };
        assert_eq!(around("2001:db8:a:1::9"), ["2001:db8::2", "2001:db8::1"]);
        assert_eq!(around("2001:db8:a:2::9"), ["2001:db8::1"]);
        assert_eq!(around("2001:db8:b::9"), ["2001:db8::2"]);
        assert!(around("2001:db8::3").is_empty());
        assert!(owners.is_home_address("2001:db8::3".parse().expect("address")));
        assert!(!owners.is_home_address("2001:db8::4".parse().expect("address")));
    }
}
