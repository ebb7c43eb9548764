//! How much is answered: so much to one station, and so much to all of which nothing is proven.
//!
//! Whoever asks too much is not heard, and nobody else: a station that is known has a share of its own,
//! whatever strangers ask; a stranger has one as well, which it cannot have filled anew by asking under other
//! addresses, as nothing is forgotten but full shares. Only strangers as a whole have a limit in common, and
//! whoever makes up that many addresses can use it up; those that are known do not notice. Tests that do not
//! come from a network which their asker has announced have an allowance of their own: to name somebody else
//! as the asker takes nothing from him.

use std::collections::BTreeMap;
use std::time::Duration;

use carnet_base::{RateLimiter, Time};

use super::LinkAddress;

/// One station: so many at once, and one more after so long.
const BURST: u32 = 16;
const INTERVAL: Duration = Duration::from_millis(100);
/// All strangers together.
const STRANGERS: u32 = 32;
const STRANGERS_INTERVAL: Duration = Duration::from_millis(20);
/// Shares that are not full at a time are fewer: those of [`super::MAX_PEERS`] stations that are known, and
/// of as many strangers as are answered in the time in which a share is full again, 32 + 80.
const MOST: usize = 256;

/// One kind of answers.
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

    /// More addresses in between do not give anybody a fresh share.
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
