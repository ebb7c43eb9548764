//! Limits the answers to each station, and to all unknown stations together.
//!
//! A station that sends too many requests gets no answers; this does not affect other stations. A known
//! station has a limit of its own. An unknown station has one as well. It cannot refill its limit by requests
//! under other addresses, because the table removes only full limits. All unknown stations share one further
//! limit, which an attacker with many forged addresses can use up; known stations do not depend on it. Tests
//! that do not come from a network that their sender has announced have a separate limit. So an attacker who
//! names a victim as the sender does not use up the victim's limit.

use std::collections::BTreeMap;
use std::time::Duration;

use carnet_base::{RateLimiter, Time};

use super::LinkAddress;

/// Number of answers that one station gets at once. [`STATION_INTERVAL`] is the interval for each further
/// answer.
const STATION_BURST: u32 = 16;
const STATION_INTERVAL: Duration = Duration::from_millis(100);
/// Number of answers that all unknown stations together get at once. [`UNKNOWN_STATIONS_INTERVAL`] is the
/// interval for each further answer.
const UNKNOWN_STATIONS_BURST: u32 = 32;
const UNKNOWN_STATIONS_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of limits in the table. Only a station whose limit is not full needs an entry. These are at
/// most [`super::MAX_PEERS`] known stations, and the unknown stations that got an answer in the last 1.6 s.
/// In this time all unknown stations together get at most 32 + 80 answers.
const MAX_STATION_LIMITS: usize = 256;

/// Rate limits of this router's answers to one kind of message.
#[derive(Debug)]
pub(super) struct AnswerLimit {
    limit_by_station: BTreeMap<LinkAddress, RateLimiter>,
    limit_of_unknown_stations: RateLimiter,
}

impl AnswerLimit {
    pub(super) fn new() -> AnswerLimit {
        AnswerLimit {
            limit_by_station: BTreeMap::new(),
            limit_of_unknown_stations: RateLimiter::new(UNKNOWN_STATIONS_BURST, UNKNOWN_STATIONS_INTERVAL),
        }
    }

    /// Returns whether this router may answer `station` now, and counts the answer.
    pub(super) fn allow_answer(&mut self, now: Time, station: LinkAddress, is_known: bool) -> bool {
        if !is_known && !self.limit_of_unknown_stations.has_token(now) {
            return false;
        }
        if !self.limit_by_station.contains_key(&station) && self.limit_by_station.len() >= MAX_STATION_LIMITS
        {
            self.limit_by_station.retain(|_, share| !share.is_bucket_full(now));
            if self.limit_by_station.len() >= MAX_STATION_LIMITS {
                return false;
            }
        }
        let share = self
            .limit_by_station
            .entry(station)
            .or_insert_with(|| RateLimiter::new(STATION_BURST, STATION_INTERVAL));
        share.try_take_token(now) && (is_known || self.limit_of_unknown_stations.try_take_token(now))
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
    fn prefix_tests_above_the_limit_of_one_station_limit_no_other_station() {
        let (mut allowance, now) = (AnswerLimit::new(), Time::from_secs(100));
        let answered = (0..1000).filter(|_| allowance.allow_answer(now, station(1), false)).count();
        assert_eq!(answered, STATION_BURST as usize);
        assert!(allowance.allow_answer(now, station(2), false));
        assert!(allowance.allow_answer(now, station(3), true));
    }

    #[test]
    fn many_unknown_sources_do_not_limit_known_ones() {
        let (mut allowance, mut now) = (AnswerLimit::new(), Time::from_secs(100));
        for number in 0..100_000 {
            allowance.allow_answer(now, station(number), false);
            now += Duration::from_millis(1);
            if number % 250 == 0 {
                assert!(allowance.allow_answer(now, station(u32::MAX), true), "{number}");
            }
            assert!(allowance.limit_by_station.len() <= MAX_STATION_LIMITS);
        }
    }

    /// A station that uses other addresses in between does not get a full limit again.
    #[test]
    fn station_with_many_addresses_gets_no_second_answer_limit() {
        let (mut allowance, mut now) = (AnswerLimit::new(), Time::from_secs(100));
        while allowance.allow_answer(now, station(0), true) {}
        let mut answered = 0;
        for number in 1..1000 {
            allowance.allow_answer(now, station(number), false);
            answered += u32::from(allowance.allow_answer(now, station(0), true));
            now += Duration::from_millis(1);
        }
        assert!((9..=10).contains(&answered), "{answered}");
    }
}
