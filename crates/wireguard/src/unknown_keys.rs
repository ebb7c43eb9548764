//! Limits the reports of handshakes with unknown public keys.

use std::collections::VecDeque;
use std::time::Duration;

use carnet_base::{RateLimiter, Time};

use crate::PublicKey;

/// Time for which the engine does not report a key again.
const KEY_REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// Largest number of reports at once. A flood of random keys causes at most 15 log lines in its first minute,
/// and 6 in each later minute.
const MAX_REPORTS_AT_ONCE: u32 = 10;
/// Time after which one more report is possible.
const MIN_TIME_BETWEEN_REPORTS: Duration = Duration::from_secs(10);

/// Time after which the engine reports an unknown key from an address that has a session. Before, the remote
/// end may still announce the key inside the session, as its next key.
const KEY_ANNOUNCEMENT_TIME: Duration = Duration::from_secs(10);
/// Largest number of unknown keys of which the engine waits for an announcement.
const MAX_AWAITED_KEYS: usize = 64;

/// The keys that the engine has reported in the last minute.
#[derive(Debug)]
pub(crate) struct UnknownKeyReports {
    limiter: RateLimiter,
    /// Keys with the time of their report, the oldest key first. The limiter bounds their number.
    reported_keys: VecDeque<(Time, PublicKey)>,
    /// Keys from addresses that have a session, with the time of their first handshake.
    awaited_keys: VecDeque<(Time, PublicKey)>,
}

impl UnknownKeyReports {
    pub(crate) fn new() -> UnknownKeyReports {
        UnknownKeyReports {
            limiter: RateLimiter::new(MAX_REPORTS_AT_ONCE, MIN_TIME_BETWEEN_REPORTS),
            reported_keys: VecDeque::new(),
            awaited_keys: VecDeque::new(),
        }
    }

    /// Returns whether the engine reports this key now. `of_session` says whether a session exists with the
    /// address from which the handshake came.
    pub(crate) fn may_report_key(&mut self, now: Time, key: PublicKey, of_session: bool) -> bool {
        remove_old_keys(&mut self.reported_keys, now);
        remove_old_keys(&mut self.awaited_keys, now);
        if self.reported_keys.iter().any(|(_, reported)| *reported == key) {
            return false;
        }
        if of_session && !self.is_key_announcement_overdue(now, key) {
            return false;
        }
        let is_allowed = self.limiter.try_take_token(now);
        if is_allowed {
            self.reported_keys.push_back((now, key));
        }
        is_allowed
    }

    /// Returns whether the first handshake of a key was so long ago that the remote end of the session should
    /// have announced this key.
    fn is_key_announcement_overdue(&mut self, now: Time, key: PublicKey) -> bool {
        if let Some((first_at, _)) = self.awaited_keys.iter().find(|(_, awaited)| *awaited == key) {
            return now.saturating_since(*first_at) >= KEY_ANNOUNCEMENT_TIME;
        }
        self.awaited_keys.push_back((now, key));
        if self.awaited_keys.len() > MAX_AWAITED_KEYS {
            self.awaited_keys.pop_front();
        }
        false
    }
}

/// Removes the keys whose stored time is at least [`KEY_REPORT_INTERVAL`] ago.
fn remove_old_keys(keys: &mut VecDeque<(Time, PublicKey)>, now: Time) {
    while keys.front().is_some_and(|(at, _)| now.saturating_since(*at) >= KEY_REPORT_INTERVAL) {
        keys.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PrivateKey;

    fn test_key(seed: u8) -> PublicKey {
        PrivateKey::from_random([seed; 32]).public_key()
    }

    #[test]
    fn key_is_reported_once_a_minute() {
        let mut reports = UnknownKeyReports::new();
        let start = Time::from_secs(100);
        assert!(
            reports.may_report_key(start, test_key(1), false)
                && reports.may_report_key(start, test_key(2), false)
        );
        for second in 0..60 {
            assert!(
                !reports.may_report_key(start + Duration::from_secs(second), test_key(1), false),
                "{second}"
            );
        }
        assert!(reports.may_report_key(start + Duration::from_secs(60), test_key(1), false));
    }

    #[test]
    fn flood_of_random_keys_is_limited_in_reports_and_memory() {
        let mut reports = UnknownKeyReports::new();
        let mut count = 0;
        for second in 0..120 {
            for seed in 0..=255 {
                let now = Time::from_secs(100 + second);
                count += usize::from(reports.may_report_key(now, test_key(seed ^ second as u8), seed < 128));
            }
            assert!(reports.reported_keys.len() <= 16, "{}", reports.reported_keys.len());
            assert!(reports.awaited_keys.len() <= MAX_AWAITED_KEYS);
        }
        assert_eq!(count, 21);
    }

    /// A router that replaces its key begins handshakes with the next key before the home agent knows that
    /// key.
    #[test]
    fn key_from_address_with_session_is_reported_if_it_is_not_announced() {
        let mut reports = UnknownKeyReports::new();
        let start = Time::from_secs(100);
        for second in 0..10 {
            assert!(
                !reports.may_report_key(start + Duration::from_secs(second), test_key(1), true),
                "{second}"
            );
        }
        assert!(reports.may_report_key(start + Duration::from_secs(10), test_key(1), true));
        assert!(!reports.may_report_key(start + Duration::from_secs(11), test_key(1), true));
    }
}
