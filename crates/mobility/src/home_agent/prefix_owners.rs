//! The prefix table (RFC 3963 6.1.2): finds the configured node that owns an address or a prefix.
//!
//! A home agent may have very many nodes, and every Binding Update needs several look-ups. So a look-up takes
//! one search for each prefix length and does not visit each node. The table comes from the config and never
//! changes, so it is sorted and has no free memory. It identifies a node by its *place*: its index in the
//! order of the home addresses.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::net::Ipv6Addr;

use foldhash::fast::RandomState;
use ipnet::Ipv6Net;

use super::AuthorizedNode;

/// Value in an index entry without a node, in place of the node's index.
const NO_NODE: u32 = u32::MAX;

/// The prefix table.
#[derive(Debug, Default)]
pub(super) struct PrefixTable {
    /// Home addresses of all nodes, sorted.
    home_addresses: Box<[Ipv6Addr]>,
    /// Hash table of the places of the home addresses; a collision takes the next free entry. A third of the
    /// entries is free, so that searches are short. The bits of an entry that a place does not need hold bits
    /// of the hash. A different hash shows that the address differs, so the search need not read the address
    /// from memory.
    node_index_by_hash: Box<[u32]>,
    /// Mask of the bits of an index entry that hold the place of a node.
    place_mask: u32,
    hasher: RandomState,
    /// Prefixes by length, the longest first. Each prefix has the place of its owner; a valid config has one
    /// owner for each prefix.
    prefixes_by_length: Box<[(u8, PrefixesOfLength)]>,
}

/// Prefixes of one length, sorted, with the places of their owners.
type PrefixesOfLength = Box<[(Ipv6Addr, u32)]>;

impl PrefixTable {
    /// Builds the table of these nodes, which are sorted by home address.
    pub fn from_nodes(nodes: &[AuthorizedNode]) -> PrefixTable {
        // The key is 128 minus the prefix length, so that the map has the longest prefixes first.
        let mut of_lengths: BTreeMap<u8, Vec<(Ipv6Addr, u32)>> = BTreeMap::new();
        for (place, node) in (0..NO_NODE).zip(nodes) {
            for prefix in node.prefixes.iter() {
                let of_length = of_lengths.entry(128 - prefix.prefix_len()).or_default();
                of_length.push((prefix.network(), place));
            }
        }
        let prefixes = of_lengths.into_iter().map(|(missing, mut of_length)| {
            of_length.sort();
            of_length.dedup();
            (128 - missing, of_length.into_boxed_slice())
        });
        let mut owners = PrefixTable {
            home_addresses: nodes.iter().map(|node| node.home_address).collect(),
            node_index_by_hash: vec![NO_NODE; nodes.len() + nodes.len() / 2 + 1].into(),
            // The mask covers one number more than there are nodes, so that no place equals `NO_NODE`.
            place_mask: u32::try_from(nodes.len())
                .unwrap_or(NO_NODE)
                .checked_ilog2()
                .map_or(0, |bits| NO_NODE >> (31 - bits)),
            prefixes_by_length: prefixes.collect(),
            hasher: RandomState::default(),
        };
        for (place, node) in (0..NO_NODE).zip(nodes) {
            let (at, _) = owners.find_slot(node.home_address);
            let tag = owners.hash_tag(owners.hash(node.home_address));
            if let Some(free) = owners.node_index_by_hash.get_mut(at) {
                *free = tag | place;
            }
        }
        owners
    }

    fn hash(&self, address: Ipv6Addr) -> u64 {
        self.hasher.hash_one(address.to_bits())
    }

    /// Returns the hash bits that an index entry holds beside a place.
    fn hash_tag(&self, hash: u64) -> u32 {
        hash as u32 & !self.place_mask
    }

    /// Returns the index and the value of the entry for an address, or of the free entry at which the search
    /// ends.
    fn find_slot(&self, address: Ipv6Addr) -> (usize, u32) {
        let hash = self.hash(address);
        // The product maps the hash evenly to the length of the index, without a division.
        let mut at = ((u128::from(hash) * self.node_index_by_hash.len() as u128) >> 64) as usize;
        loop {
            let there = self.node_index_by_hash.get(at).copied().unwrap_or(NO_NODE);
            let place = there & self.place_mask;
            if there == NO_NODE {
                return (at, NO_NODE);
            }
            if there & !self.place_mask == self.hash_tag(hash) && self.home_address(place) == Some(address) {
                return (at, place);
            }
            at = if at + 1 < self.node_index_by_hash.len() { at + 1 } else { 0 };
        }
    }

    /// Returns the place of the node with this home address; `None` if no node has it.
    pub fn index_of_node(&self, address: Ipv6Addr) -> Option<usize> {
        let (_, place) = self.find_slot(address);
        (place != NO_NODE).then_some(place as usize)
    }

    /// Returns the home address of the node with this index; `None` if the table has no such node.
    pub fn home_address(&self, place: u32) -> Option<Ipv6Addr> {
        self.home_addresses.get(place as usize).copied()
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.home_addresses.len()
    }

    /// Returns whether a node has this home address.
    pub fn is_home_address(&self, address: Ipv6Addr) -> bool {
        self.index_of_node(address).is_some()
    }

    /// Returns the home addresses of the nodes that own a prefix with this address; the longest prefix first.
    pub fn owners_of_covering_prefixes(&self, address: Ipv6Addr) -> impl Iterator<Item = Ipv6Addr> {
        self.prefixes_by_length.iter().flat_map(move |(length, of_length)| {
            let network = Ipv6Net::new(address, *length).ok().map(|prefix| prefix.network().to_bits());
            let of_network = move |network: u128| {
                let first = of_length.partition_point(|(known, _)| known.to_bits() < network);
                let rest = of_length.iter().skip(first);
                rest.take_while(move |(known, _)| known.to_bits() == network)
            };
            let places = network.map(of_network).into_iter().flatten();
            places.filter_map(|(_, place)| self.home_address(*place))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Authentication;

    fn node(home_address: Ipv6Addr, prefixes: &[&str]) -> AuthorizedNode {
        AuthorizedNode {
            home_address,
            nat: true,
            care_of_test: false,
            prefixes: prefixes.iter().map(|prefix| prefix.parse().expect("prefix")).collect(),
            authentication: Authentication::None,
        }
    }

    #[test]
    fn prefix_owner_lookup_uses_longest_prefix() {
        let node =
            |home_address: &str, prefixes: &[&str]| node(home_address.parse().expect("address"), prefixes);
        let owners = PrefixTable::from_nodes(&[
            node("2001:db8::1", &["2001:db8:a::/48"]),
            node("2001:db8::2", &["2001:db8:a:1::/64", "2001:db8:b::/64"]),
            node("2001:db8::3", &[]),
        ]);
        let around = |address: &str| -> Vec<String> {
            let around = owners.owners_of_covering_prefixes(address.parse().expect("address"));
            around.map(|owner| owner.to_string()).collect()
        };
        assert_eq!(around("2001:db8:a:1::9"), ["2001:db8::2", "2001:db8::1"]);
        assert_eq!(around("2001:db8:a:2::9"), ["2001:db8::1"]);
        assert_eq!(around("2001:db8:b::9"), ["2001:db8::2"]);
        assert!(around("2001:db8::3").is_empty());
        assert!(owners.is_home_address("2001:db8::3".parse().expect("address")));
        assert!(!owners.is_home_address("2001:db8::4".parse().expect("address")));
    }

    #[test]
    fn each_home_address_has_one_index() {
        for count in [0, 1, 2, 3, 4, 255, 256, 1000] {
            let nodes: Vec<AuthorizedNode> =
                (0..count).map(|number| node(Ipv6Addr::from_bits(number * 3), &[])).collect();
            let owners = PrefixTable::from_nodes(&nodes);
            for number in 0..3 * count + 3 {
                let expected = (number % 3 == 0 && number < 3 * count).then_some((number / 3) as usize);
                assert_eq!(
                    owners.index_of_node(Ipv6Addr::from_bits(number)),
                    expected,
                    "{number} of {count}"
                );
            }
            assert_eq!(owners.len(), nodes.len());
        }
    }
}
