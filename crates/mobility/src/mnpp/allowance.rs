//! Limits the answers: to each station, and to all strangers together.
//!
//! A station that asks too much gets no answer; others are not affected. A known station has an allowance of
//! its own, whatever strangers ask. A stranger has one as well, and cannot refill it by asking under other
//! addresses, because only full allowances are removed. Strangers share one limit, which an attacker with
//! many made-up addresses can use up; known stations are not affected. Tests that do not come from a network
//! that their asker has announced have an allowance of their own. So an attacker who names a victim as the
//! asker takes nothing of the victim's allowance.

use std::collections::BTreeMap;
use std::time::Duration;

use carnet_base::{RateLimiter, Time};

use super::LinkAddress;

/// Burst of answers to one station. [`INTERVAL`] is the interval after it.
const BURST: u32 = 16;
const INTERVAL: Duration = Duration::from_millis(100);
/// Burst of answers to all strangers together.
const STRANGERS: u32 = 32;
const STRANGERS_INTERVAL: Duration = Duration::from_millis(20);
/// Most allowances in the table. Fewer are not full at a time: those of [`super::MAX_PEERS`] known stations,
/// and of as many strangers as get answers until an allowance is full again, 32 + 80.
const MOST: usize = 256;

/// Allowance for one kind of answers.
#[derive(Debug)]
pub(super) struct Allowance {
    each: BTreeMap<LinkAddress, RateLimiter>,
    strangers: RateLimiter,
}

impl Allowance {
    pub(super) fn new() -> Allowance {
        Allowance { each: BTreeMap::new(), strangers: RateLimiter::new(STRANGERS, STRANGERS_INTERVAL) }
    }

    /// Whether `station` is answered now.
    pub(super) fn allow(&mut self, now: Time, station: LinkAddress, is_known: bool) -> bool {
        if !is_known && !self.strangers.has_token(now) {
            return false;
        }
        if !self.each.contains_key(&station) && self.each.len() >= MOST {
            self.each.retain(|_, share| !share.is_full(now));
            if self.each.len() >= MOST {
                return false;
            }
        }
        let share = self.each.entry(station).or_insert_with(|| RateLimiter::new(BURST, INTERVAL));
        share.allow(now) && (is_known || self.strangers.allow(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn station(number: u32) -> LinkAddress {
        let [a, b, c, d] = number.to_be_bytes();
        [2, 0, a, b, c, d]
    }

    #[test]
    fn who_asks_too_much_mutes_nobody_else() {
        let (mut allowance, now) = (Allowance::new(), Time::from_secs(100));
        let answered = (0..1000).filter(|_| allowance.allow(now, station(1), false)).count();
        assert_eq!(answered, BURST as usize);
        assert!(allowance.allow(now, station(2), false));
        assert!(allowance.allow(now, station(3), true));
    }

    #[test]
    fn many_strangers_do_not_mute_those_who_are_known_and_are_forgotten() {
        let (mut allowance, mut now) = (Allowance::new(), Time::from_secs(100));
        for number in 0..100_000 {
            allowance.allow(now, station(number), false);
            now += Duration::from_millis(1);
            if number % 250 == 0 {
                assert!(allowance.allow(now, station(u32::MAX), true), "{number}");
            }
            assert!(allowance.each.len() <= MOST);
        }
    }

    /// Asking under other addresses in between does not refill an allowance.
    #[test]
    fn a_used_share_is_not_to_be_had_anew() {
        let (mut allowance, mut now) = (Allowance::new(), Time::from_secs(100));
        while allowance.allow(now, station(0), true) {}
        let mut answered = 0;
        for number in 1..1000 {
            allowance.allow(now, station(number), false);
            answered += u32::from(allowance.allow(now, station(0), true));
            now += Duration::from_millis(1);
        }
        assert!((9..=10).contains(&answered), "{answered}");
    }
}
