//! Decides which entry of a full table makes room: one of the party with the most entries.
//!
//! Entries cost a party with many networks nothing: each /64 of a /48 may claim one, or make this router ask
//! for it. The networks of one party lie together, whatever the assigned length is. So entries are counted by
//! /48; a party with more than the newcomer's makes room, until both have as many. Then the entries in the
//! newcomer's /48, which may belong to a whole fleet, are counted by /52, and then by /56 and /60.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use carnet_base::Time;
use ipnet::Ipv6Net;

use super::peer::{Candidate, Peer};
use super::{Direct, DirectDrop, IDLE, MAX_CANDIDATES, MAX_PEERS, Output, half};

/// Prefix lengths that a party may have been assigned.
const LENGTHS: [u8; 4] = [48, 52, 56, 60];

/// Returns the entries that may have to make room for a newcomer. Each entry comes with the first half of an
/// address of its party.
fn crowd<K: Copy>(newcomer: u64, places: &[(K, u64)]) -> Vec<K> {
    let mut places = places.to_vec();
    for length in LENGTHS {
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
        // The party has its share. Among its own entries, smaller parties are counted.
        places.retain(|(_, of)| party(*of) == party(newcomer));
    }
    Vec::new()
}

impl Direct {
    /// Makes room for one more router with a network. An unbound and unused router goes first; then the
    /// router of the party with the most entries to which this router has sent nothing for the longest time.
    /// A newcomer without a proof pushes out no router with a binding that packets use.
    pub(super) fn make_room(
        &mut self,
        now: Time,
        newcomer: Ipv6Net,
        is_proven: bool,
    ) -> Result<(), DirectDrop> {
        if self.peers.len() < MAX_PEERS {
            return Ok(());
        }
        let is_used = |peer: &Peer| peer.used.is_some_and(|used| now.saturating_since(used) <= IDLE);
        let empty = |peer: &Peer| {
            let is_known = peer.binding.is_some() || peer.registration.is_some() || peer.heard.is_some();
            !is_known && !is_used(peer)
        };
        let found = self.peers.iter().find(|(_, peer)| empty(peer)).map(|(home_address, _)| *home_address);
        let found = found.or_else(|| {
            let places: Vec<(Ipv6Addr, u64)> =
                self.peers.iter().map(|(home_address, peer)| (*home_address, half(peer.network))).collect();
            let crowd = crowd(half(newcomer.network()), &places).into_iter();
            let crowd = crowd.filter_map(|place| Some((self.peers.get(&place)?.used, place)));
            crowd.min().map(|(_, place)| place).filter(|place| {
                is_proven
                    || self.peers.get(place).is_some_and(|peer| peer.binding.is_none() || !is_used(peer))
            })
        });
        let home_address = found.ok_or(DirectDrop::TooMany)?;
        self.end(now, home_address, "others need its place");
        if let Some(peer) = self.peers.remove(&home_address) {
            self.memory.keep(now, home_address, &peer);
            self.outputs.push_back(Output::Routes);
        }
        Ok(())
    }

    /// Makes room for one more network to be asked for; returns false if there is no room. A network without
    /// recent packets goes first, or one of the party with the most entries, the least recently used first.
    pub(super) fn make_room_to_ask(&mut self, now: Time, newcomer: u64) -> bool {
        if self.candidates.len() < MAX_CANDIDATES {
            return true;
        }
        let places: Vec<(u64, u64)> = self.candidates.keys().map(|known| (*known, *known)).collect();
        let crowd = crowd(newcomer, &places);
        let may_go =
            |at: &u64, known: &Candidate| now.saturating_since(known.used) > IDLE || crowd.contains(at);
        let those = self.candidates.iter().filter(|(at, known)| may_go(at, known));
        let oldest = those.min_by_key(|(_, known)| known.used).map(|(at, _)| *at);
        oldest.is_some_and(|oldest| self.candidates.remove(&oldest).is_some())
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
    fn whoever_has_the_most_makes_room_until_all_have_as_many() {
        let mut places: Vec<(usize, u64)> =
            (0..32).map(|number| (number, network(1, number as u16))).collect();
        for number in 0..100 {
            let newcomer = network(2, number);
            let Some(victim) = crowd(newcomer, &places).first().copied() else { break };
            places.iter_mut().filter(|(place, _)| *place == victim).for_each(|(_, of)| *of = newcomer);
        }
        let has = |party| places.iter().filter(|(_, of)| of >> 16 == network(party, 0) >> 16).count();
        assert_eq!((has(1), has(2)), (16, 16));
        assert!(crowd(network(1, 31), &places).is_empty());
        assert!(!crowd(network(3, 0), &places).is_empty());
    }

    /// A fleet has one /48, and a party in it has a /56.
    #[test]
    fn inside_one_network_its_parts_are_parties() {
        let places: Vec<(u16, u64)> = (0..32).map(|number| (number, network(1, 0xab00 | number))).collect();
        assert_eq!(crowd(network(1, 0x1200), &places).len(), 32);
        assert!(crowd(network(1, 0xab10), &places).is_empty());
    }
}
