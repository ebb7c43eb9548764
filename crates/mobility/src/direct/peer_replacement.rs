//! Selects the entry that a full table removes for a new one: an entry of the network that has the most
//! entries.
//!
//! A party with a /48 has 65,536 networks of 64 bits, and each of them may claim an entry, or cause a
//! request. To share the table fairly, this module counts entries by /48, because the networks of one party
//! are close together. If a /48 has more entries than the newcomer's /48, it loses one. Otherwise the module
//! counts the entries inside the newcomer's /48, which may belong to a whole fleet, by /52, then by /56 and
//! /60.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use carnet_base::Time;
use ipnet::Ipv6Net;

use super::peer::{CandidateNetwork, Peer};
use super::{
    DirectDrop, DirectRouteState, MAX_CANDIDATE_NETWORKS, MAX_PEERS, Output, UNUSED_ROUTE_LIFETIME,
    upper_64_bits,
};

/// Prefix lengths by which entries are counted.
const COUNTED_PREFIX_LENGTHS: [u8; 4] = [48, 52, 56, 60];

/// Returns the entries of which one may be removed for a newcomer. `newcomer` and the second part of each
/// entry are the first 64 bits of an address in the network.
fn replaceable_entries<K: Copy>(newcomer: u64, places: &[(K, u64)]) -> Vec<K> {
    let mut places = places.to_vec();
    for length in COUNTED_PREFIX_LENGTHS {
        let party = |network: u64| network >> (64 - length);
        let mut sizes: BTreeMap<u64, usize> = BTreeMap::new();
        for (_, network) in &places {
            *sizes.entry(party(*network)).or_default() += 1;
        }
        let own = sizes.get(&party(newcomer)).copied().unwrap_or_default();
        let most = sizes.into_iter().max_by_key(|(_, size)| *size).filter(|(_, size)| *size > own + 1);
        if let Some((most, _)) = most {
            return places.iter().filter(|(_, of)| party(*of) == most).map(|(place, _)| *place).collect();
        }
        // The newcomer's network has the most entries, so one of its own entries must be removed: count these
        // by a longer prefix.
        places.retain(|(_, of)| party(*of) == party(newcomer));
    }
    Vec::new()
}

impl DirectRouteState {
    /// Removes a router from a full table to make room for a new one. An unbound and unused router is removed
    /// first. Otherwise it is a router of the network with the most entries, the one to which this router has
    /// sent nothing for the longest time. A newcomer without a proof never replaces a router with a binding
    /// that packets use.
    pub(super) fn make_room_for_peer(
        &mut self,
        now: Time,
        newcomer: Ipv6Net,
        is_proven: bool,
    ) -> Result<(), DirectDrop> {
        if self.peers.len() < MAX_PEERS {
            return Ok(());
        }
        let is_used = |peer: &Peer| {
            peer.last_used_at.is_some_and(|used| now.saturating_since(used) <= UNUSED_ROUTE_LIFETIME)
        };
        let empty = |peer: &Peer| {
            let is_known =
                peer.binding.is_some() || peer.registration.is_some() || peer.last_sequence.is_some();
            !is_known && !is_used(peer)
        };
        let found = self.peers.iter().find(|(_, peer)| empty(peer)).map(|(home_address, _)| *home_address);
        let found = found.or_else(|| {
            let places: Vec<(Ipv6Addr, u64)> = self
                .peers
                .iter()
                .map(|(home_address, peer)| (*home_address, upper_64_bits(peer.network_address)))
                .collect();
            let crowd = replaceable_entries(upper_64_bits(newcomer.network()), &places).into_iter();
            let crowd = crowd.filter_map(|place| Some((self.peers.get(&place)?.last_used_at, place)));
            crowd.min().map(|(_, place)| place).filter(|place| {
                is_proven
                    || self.peers.get(place).is_some_and(|peer| peer.binding.is_none() || !is_used(peer))
            })
        });
        let home_address = found.ok_or(DirectDrop::TooMany)?;
        self.end_registration(now, home_address, "it was removed from a full table");
        if let Some(peer) = self.peers.remove(&home_address) {
            self.removed_sequence_numbers.store_sequence_number(now, home_address, &peer);
            self.outputs.push_back(Output::Routes);
        }
        Ok(())
    }

    /// Removes a candidate network from a full table to make room for a new one; returns false if there is no
    /// room. A network without recent packets is removed first. Otherwise the least recently used candidate
    /// of the /48 (or longer prefix) with the most entries is removed.
    pub(super) fn make_room_for_candidate_network(&mut self, now: Time, newcomer: u64) -> bool {
        if self.candidate_networks.len() < MAX_CANDIDATE_NETWORKS {
            return true;
        }
        let places: Vec<(u64, u64)> = self.candidate_networks.keys().map(|known| (*known, *known)).collect();
        let crowd = replaceable_entries(newcomer, &places);
        let may_go = |at: &u64, known: &CandidateNetwork| {
            now.saturating_since(known.last_used_at) > UNUSED_ROUTE_LIFETIME || crowd.contains(at)
        };
        let those = self.candidate_networks.iter().filter(|(at, known)| may_go(at, known));
        let oldest = those.min_by_key(|(_, known)| known.last_used_at).map(|(at, _)| *at);
        oldest.is_some_and(|oldest| self.candidate_networks.remove(&oldest).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the first half of 2001:db8:PARTY:NUMBER::.
    fn network(party: u16, number: u16) -> u64 {
        0x2001_0db8 << 32 | u64::from(party) << 16 | u64::from(number)
    }

    #[test]
    fn entries_of_network_with_most_entries_are_replaced_first() {
        let mut places: Vec<(usize, u64)> =
            (0..32).map(|number| (number, network(1, number as u16))).collect();
        for number in 0..100 {
            let newcomer = network(2, number);
            let Some(victim) = replaceable_entries(newcomer, &places).first().copied() else { break };
            places.iter_mut().filter(|(place, _)| *place == victim).for_each(|(_, of)| *of = newcomer);
        }
        let has = |party| places.iter().filter(|(_, of)| of >> 16 == network(party, 0) >> 16).count();
        assert_eq!((has(1), has(2)), (16, 16));
        assert!(replaceable_entries(network(1, 31), &places).is_empty());
        assert!(!replaceable_entries(network(3, 0), &places).is_empty());
    }

    /// All stored routers are in one /56. A new router in another /56 of the same /48 may replace each of
    /// them, and a new router in the same /56 none.
    #[test]
    fn members_of_one_48_network_count_separately() {
        let places: Vec<(u16, u64)> = (0..32).map(|number| (number, network(1, 0xab00 | number))).collect();
        assert_eq!(replaceable_entries(network(1, 0x1200), &places).len(), 32);
        assert!(replaceable_entries(network(1, 0xab10), &places).is_empty());
    }
}
