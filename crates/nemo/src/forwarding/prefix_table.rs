//! Longest-prefix match for the few prefix lengths that tunnels have.
//!
//! The table has one hash map for each prefix length in use, the longest prefixes first. With home addresses
//! (/128) and mobile network prefixes of one or two lengths, a lookup costs two or three probes for any
//! number of bindings. [`SortedPrefixes`] needs less memory, and more time for a lookup.

use std::net::Ipv6Addr;

use foldhash::{HashMap, HashMapExt};
use ipnet::Ipv6Net;

/// Map from prefixes to values.
#[derive(Debug, Clone)]
pub struct PrefixTable<V> {
    /// Prefix lengths in use, descending, each with its map.
    values_by_length: Vec<(u8, HashMap<u128, V>)>,
}

impl<V> PrefixTable<V> {
    /// Returns an empty table.
    pub fn new() -> Self {
        PrefixTable { values_by_length: Vec::new() }
    }

    /// Sets the value of a prefix and returns the previous one; `None` if the prefix had none.
    pub fn insert(&mut self, prefix: Ipv6Net, value: V) -> Option<V> {
        let length = prefix.prefix_len();
        let at = match self.values_by_length.binary_search_by(|(l, _)| length.cmp(l)) {
            Ok(at) => at,
            Err(at) => {
                self.values_by_length.insert(at, (length, HashMap::new()));
                at
            }
        };
        self.values_by_length[at].1.insert(masked_address(prefix.addr(), length), value)
    }

    /// Removes a prefix and returns its value; `None` if the table does not have the prefix.
    pub fn remove(&mut self, prefix: Ipv6Net) -> Option<V> {
        let length = prefix.prefix_len();
        let at = self.values_by_length.binary_search_by(|(l, _)| length.cmp(l)).ok()?;
        let value = self.values_by_length[at].1.remove(&masked_address(prefix.addr(), length));
        if self.values_by_length[at].1.is_empty() {
            self.values_by_length.remove(at);
        }
        value
    }

    /// Returns the value of exactly this prefix, not of a shorter one. `None` if the table does not have the
    /// prefix.
    pub fn get(&self, prefix: Ipv6Net) -> Option<&V> {
        let length = prefix.prefix_len();
        let at = self.values_by_length.binary_search_by(|(l, _)| length.cmp(l)).ok()?;
        self.values_by_length[at].1.get(&masked_address(prefix.addr(), length))
    }

    /// Returns the value of the longest prefix that contains `address`; `None` if no prefix does.
    pub fn lookup(&self, address: Ipv6Addr) -> Option<&V> {
        self.values_by_length.iter().find_map(|(length, map)| map.get(&masked_address(address, *length)))
    }
}

/// Map from very many prefixes to values, for data that seldom changes and that common packets do not need.
/// Its lists are sorted and have no unused places, to save memory. A lookup costs one binary search for each
/// prefix length.
#[derive(Debug, Clone)]
pub struct SortedPrefixes<V> {
    /// Prefix lengths in use, descending, each with its prefixes in order.
    values_by_length: Vec<(u8, Vec<(Ipv6Addr, V)>)>,
}

impl<V> SortedPrefixes<V> {
    /// Adds prefixes with their values. If a prefix comes twice, its last value counts.
    pub fn add(&mut self, prefixes: impl IntoIterator<Item = (Ipv6Net, V)>) {
        for (prefix, value) in prefixes {
            let length = prefix.prefix_len();
            let at = match self.values_by_length.binary_search_by(|(known, _)| length.cmp(known)) {
                Ok(at) => at,
                Err(at) => {
                    self.values_by_length.insert(at, (length, Vec::new()));
                    at
                }
            };
            self.values_by_length[at].1.push((prefix.network(), value));
        }
        for (_, values) in &mut self.values_by_length {
            values.sort_by_key(|(network, _)| *network);
            values.dedup_by(|later, earlier| {
                let is_same = later.0 == earlier.0;
                if is_same {
                    std::mem::swap(later, earlier);
                }
                is_same
            });
            values.shrink_to_fit();
        }
    }

    /// Returns the value of the longest prefix that contains `address`; `None` if no prefix does.
    pub fn lookup(&self, address: Ipv6Addr) -> Option<(Ipv6Net, &V)> {
        self.values_by_length.iter().find_map(|(length, values)| {
            let network = Ipv6Addr::from(masked_address(address, *length));
            let at = values.binary_search_by_key(&network, |(known, _)| *known).ok()?;
            Some((Ipv6Net::new(network, *length).ok()?, &values[at].1))
        })
    }
}

impl<V> Default for SortedPrefixes<V> {
    fn default() -> Self {
        SortedPrefixes { values_by_length: Vec::new() }
    }
}

impl<V> Default for PrefixTable<V> {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns whether a prefix contains an address. The equivalent function of `ipnet` has ten times as many
/// instructions.
#[inline]
pub(super) fn prefix_contains(prefix: Ipv6Net, address: Ipv6Addr) -> bool {
    masked_address(address, prefix.prefix_len()) == masked_address(prefix.addr(), prefix.prefix_len())
}

#[inline]
fn masked_address(address: Ipv6Addr, length: u8) -> u128 {
    u128::from(address) & u128::MAX.checked_shl(128 - u32::from(length.min(128))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares both tables with a linear search through a list.
        #[test]
        fn prefix_map_finds_same_prefix_as_linear_search(
            entries in prop::collection::vec((0u128..64, 120u8..=128), 0..40),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
            wanted in 0u128..64,
        ) {
            let mut table = PrefixTable::new();
            let mut list: Vec<(Ipv6Net, usize)> = Vec::new();
            for (value, (address, length)) in entries.iter().enumerate() {
                let prefix = Ipv6Net::new(Ipv6Addr::from(*address), *length).expect("length").trunc();
                table.insert(prefix, value);
                list.retain(|(p, _)| *p != prefix);
                list.push((prefix, value));
            }
            for index in removed {
                if !list.is_empty() {
                    let (prefix, value) = list.remove(index.index(list.len()));
                    prop_assert_eq!(table.remove(prefix), Some(value));
                }
            }
            let wanted = Ipv6Addr::from(wanted);
            let best = list.iter().filter(|(p, _)| p.contains(&wanted)).max_by_key(|(p, _)| p.prefix_len());
            prop_assert_eq!(table.lookup(wanted), best.map(|(_, value)| value));
            let mut sorted = SortedPrefixes::default();
            let (first, second) = list.split_at(list.len() / 2);
            sorted.add(first.iter().map(|(prefix, _)| (*prefix, usize::MAX)));
            sorted.add(first.iter().copied());
            sorted.add(second.iter().copied());
            prop_assert_eq!(sorted.lookup(wanted), best.map(|(prefix, value)| (*prefix, value)));
        }
    }

    proptest! {
        #[test]
        fn prefix_contains_same_addresses_as_ipnet(
            prefix in (any::<u128>(), 0u8..=128),
            address in any::<u128>(),
            shared in 0u8..=128,
        ) {
            let net = Ipv6Net::new(Ipv6Addr::from(prefix.0), prefix.1).expect("length");
            let near = masked_address(net.addr(), shared)
                | (address & !masked_address(Ipv6Addr::from(u128::MAX), shared));
            for address in [Ipv6Addr::from(address), Ipv6Addr::from(near)] {
                prop_assert_eq!(prefix_contains(net, address), net.contains(&address));
            }
        }
    }

    #[test]
    fn default_prefix_matches_every_address() {
        let mut table = PrefixTable::new();
        table.insert("::/0".parse().expect("prefix"), 1);
        assert_eq!(table.lookup("2001:db8::1".parse().expect("address")), Some(&1));
    }
}
