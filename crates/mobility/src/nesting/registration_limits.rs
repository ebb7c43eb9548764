//! Limits how many table entries and answers one sender in the mobile network can use up.
//!
//! A sender is identified by its link-layer address, or by its link-local address if the link has no
//! link-layer addresses. A sender can forge both, as in Neighbor Discovery in general. So senders with a
//! registration have other limits than senders without one.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{LinkMessage, RateLimiter, Time};

/// Maximum number of senders with a limit of their own: the same for senders with a registration and for
/// senders without.
const MAX_SENDERS: usize = super::MAX_REGISTRATIONS;

/// A sender: the interface, and its address on this interface.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MessageSender(String, Result<[u8; 6], Ipv6Addr>);

impl MessageSender {
    /// Returns the sender of a message by the source address of its frame; by its IPv6 source if the frame
    /// has no source address. The contents of the message do not count.
    pub fn sender_of(message: &LinkMessage) -> MessageSender {
        MessageSender(message.interface.clone(), message.peer.ok_or(message.source))
    }

    /// Returns whether this is the sender's link-layer address.
    pub fn has_link_address(&self, link_address: [u8; 6]) -> bool {
        self.1 == Ok(link_address)
    }
}

/// Rate limits of the registrations that this router processes.
#[derive(Debug)]
pub(super) struct RegistrationLimits {
    known_senders: BTreeMap<MessageSender, RateLimiter>,
    unknown_senders: BTreeMap<MessageSender, RateLimiter>,
    /// Rate limit of all senders without a registration together.
    limit_of_unknown_senders: RateLimiter,
}

impl Default for RegistrationLimits {
    fn default() -> Self {
        let strangers = RateLimiter::new(50, Duration::from_millis(20));
        RegistrationLimits {
            known_senders: BTreeMap::new(),
            unknown_senders: BTreeMap::new(),
            limit_of_unknown_senders: strangers,
        }
    }
}

impl RegistrationLimits {
    /// Returns whether this router processes a message of this sender. `is_known` says whether the sender has
    /// a registration.
    pub fn allow_message(&mut self, now: Time, sender: MessageSender, is_known: bool) -> bool {
        let of = if is_known { &mut self.known_senders } else { &mut self.unknown_senders };
        if !of.contains_key(&sender) && of.len() >= MAX_SENDERS {
            of.retain(|_, limiter| !limiter.is_bucket_full(now));
        }
        let has_room = of.len() < MAX_SENDERS || of.contains_key(&sender);
        // This rate suffices for a router that arrives with a full tree of routers behind it.
        let own = || RateLimiter::new(40, Duration::from_millis(50));
        if has_room && !of.entry(sender).or_insert_with(own).try_take_token(now) {
            return false;
        }
        // There are at most [`MAX_SENDERS`] registrations. So a full table of known senders contains some
        // whose registration has just ended. Then refuse even a sender with a registration.
        if is_known { has_room } else { self.limit_of_unknown_senders.try_take_token(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(number: u16) -> MessageSender {
        let [high, low] = number.to_be_bytes();
        MessageSender("lan0".into(), Ok([2, 0, 0, 0, high, low]))
    }

    /// However many unknown senders exist, a sender with a registration has exactly its own limit.
    #[test]
    fn flood_of_unknown_sources_gives_no_source_extra_rate() {
        let (mut allowances, now) = (RegistrationLimits::default(), Time::from_secs(100));
        let answered =
            (1..1000).filter(|number| allowances.allow_message(now, sender(*number), false)).count();
        assert_eq!(answered, 50);
        assert_eq!((0..1000).filter(|_| allowances.allow_message(now, sender(0), true)).count(), 40);
        assert!(allowances.allow_message(now, sender(2000), true), "another");
        assert!(allowances.known_senders.len() + allowances.unknown_senders.len() <= 2 * MAX_SENDERS);
    }
}
