//! Limits what one sender in the mobile network may take of shared resources: entries for addresses, and
//! answers.
//!
//! A sender is identified by its link-layer address, or by its link-local address on a link without
//! link-layer addresses. A sender can make up either, as with Neighbor Discovery everywhere. So senders with
//! a registration do not share an allowance with senders without one.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{LinkMessage, RateLimiter, Time};

/// Most senders that are remembered, separately for those with a registration and those without.
const MAX_SENDERS: usize = super::MAX_REGISTRATIONS;

/// A sender: the interface, and its address there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sender(String, Result<[u8; 6], Ipv6Addr>);

impl Sender {
    /// Returns the sender of a message: by the frame's source, not by the contents.
    pub fn of(message: &LinkMessage) -> Sender {
        Sender(message.interface.clone(), message.peer.ok_or(message.source))
    }

    /// Whether this is the sender's link-layer address.
    pub fn has(&self, link_address: [u8; 6]) -> bool {
        self.1 == Ok(link_address)
    }
}

/// Rates of registrations that are examined.
#[derive(Debug)]
pub(super) struct Allowances {
    known: BTreeMap<Sender, RateLimiter>,
    others: BTreeMap<Sender, RateLimiter>,
    /// Rate of all senders without a registration together.
    strangers: RateLimiter,
}

impl Default for Allowances {
    fn default() -> Self {
        let strangers = RateLimiter::new(50, Duration::from_millis(20));
        Allowances { known: BTreeMap::new(), others: BTreeMap::new(), strangers }
    }
}

impl Allowances {
    /// Whether a message of this sender is examined. `is_known` says whether the sender has a registration.
    pub fn allow(&mut self, now: Time, sender: Sender, is_known: bool) -> bool {
        let of = if is_known { &mut self.known } else { &mut self.others };
        if !of.contains_key(&sender) && of.len() >= MAX_SENDERS {
            of.retain(|_, limiter| !limiter.is_full(now));
        }
        let has_room = of.len() < MAX_SENDERS || of.contains_key(&sender);
        // More than a router needs that has just come with a full tree behind it.
        let own = || RateLimiter::new(40, Duration::from_millis(50));
        if has_room && !of.entry(sender).or_insert_with(own).allow(now) {
            return false;
        }
        // Senders with a registration have room, except for entries of senders that had one until lately.
        if is_known { has_room } else { self.strangers.allow(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(number: u16) -> Sender {
        let [high, low] = number.to_be_bytes();
        Sender("lan0".into(), Ok([2, 0, 0, 0, high, low]))
    }

    /// However many strangers there are, a sender with a registration has its own allowance, and no more.
    #[test]
    fn a_flood_of_strangers_gives_nobody_more_than_his_own() {
        let (mut allowances, now) = (Allowances::default(), Time::from_secs(100));
        let answered = (1..1000).filter(|number| allowances.allow(now, sender(*number), false)).count();
        assert_eq!(answered, 50);
        assert_eq!((0..1000).filter(|_| allowances.allow(now, sender(0), true)).count(), 40);
        assert!(allowances.allow(now, sender(2000), true), "another");
        assert!(allowances.known.len() + allowances.others.len() <= 2 * MAX_SENDERS);
    }
}
