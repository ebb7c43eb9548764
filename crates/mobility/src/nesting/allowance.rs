//! What one sender on board may take of what there is for all: places for addresses, and answers.
//!
//! A sender is told by its link-layer address, where the link has such, else by its link-local one. Either
//! can be made up, as with Neighbor Discovery everywhere; so whoever has something registered does not share
//! an allowance with those who have nothing.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{LinkMessage, RateLimiter, Time};

/// Senders that are remembered: of those that have something registered as many as may have, of others as
/// many.
const MAX_SENDERS: usize = super::MAX_REGISTRATIONS;

/// Who asks: the interface, and the address there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sender(String, Result<[u8; 6], Ipv6Addr>);

impl Sender {
    /// Of a message: by the frame that it came in, not by what it says.
    pub fn of(message: &LinkMessage) -> Sender {
        Sender(message.interface.clone(), message.peer.ok_or(message.source))
    }

    /// Whether this is its link-layer address.
    pub fn has(&self, link_address: [u8; 6]) -> bool {
        self.1 == Ok(link_address)
    }
}

/// How often registrations are looked at.
#[derive(Debug)]
pub(super) struct Allowances {
    known: BTreeMap<Sender, RateLimiter>,
    others: BTreeMap<Sender, RateLimiter>,
    /// Of all those that have nothing registered together.
    strangers: RateLimiter,
}

impl Default for Allowances {
    fn default() -> Self {
        let strangers = RateLimiter::new(50, Duration::from_millis(20));
        Allowances { known: BTreeMap::new(), others: BTreeMap::new(), strangers }
    }
}

impl Allowances {
    /// Whether a message of this sender is looked at, who has something registered or not.
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
        // Who has something registered has room, but for those that had until lately.
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

    /// However many others there are, who has something registered has an allowance: so much, and not more.
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
