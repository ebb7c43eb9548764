//! A token bucket: it limits the size of a burst and the long-term rate per second.

use std::time::Duration;

use crate::Time;

/// Rate of events: `burst` events at once, and one more per `interval` after that.
///
/// Very many buckets may share one rate: each bucket stores only the time at which it is full again.
#[derive(Debug, Clone, Copy)]
pub struct TokenBucketRate {
    /// Number of tokens in a full bucket.
    pub burst_size: u32,
    /// Time in which the bucket gains one token.
    pub interval: Duration,
}

impl TokenBucketRate {
    /// Takes `count` tokens; takes none and returns false if the bucket has fewer. `full_at` is the time at
    /// which the bucket is full again; the later this time, the fewer tokens the bucket holds.
    pub fn try_take_tokens(self, full_at: &mut Time, now: Time, count: u32) -> bool {
        let later = (*full_at).max(now) + self.interval * count;
        let allowed = later.saturating_since(now) <= self.interval * self.burst_size;
        if allowed {
            *full_at = later;
        }
        allowed
    }
}

/// Permits `burst` events at once and one more per `interval` after that.
#[derive(Debug, Clone)]
pub struct RateLimiter {
    rate: TokenBucketRate,
    bucket_full_at: Time,
}

impl RateLimiter {
    /// Creates a full bucket of `burst` tokens that gains one token per `interval`.
    pub fn new(burst: u32, interval: Duration) -> Self {
        RateLimiter { rate: TokenBucketRate { burst_size: burst, interval }, bucket_full_at: Time::ZERO }
    }

    /// Takes a token and returns true if the bucket has one. The caller may then perform the limited action.
    pub fn try_take_token(&mut self, now: Time) -> bool {
        self.try_take_tokens(now, 1)
    }

    /// Takes `count` tokens and returns true; takes none and returns false if the bucket has fewer.
    pub fn try_take_tokens(&mut self, now: Time, count: u32) -> bool {
        self.rate.try_take_tokens(&mut self.bucket_full_at, now, count)
    }

    /// Returns whether the bucket holds a token, without taking it.
    pub fn has_token(&self, now: Time) -> bool {
        self.token_available_at(now) <= now
    }

    /// Returns the time at which the next token is available if no call takes one before.
    pub fn token_available_at(&self, now: Time) -> Time {
        let others = self.rate.interval * self.rate.burst_size.saturating_sub(1);
        now + self.bucket_full_at.saturating_since(now).saturating_sub(others)
    }

    /// Returns whether the bucket is full. The caller may then drop the limiter, because a new one would be
    /// equal.
    pub fn is_bucket_full(&self, now: Time) -> bool {
        self.bucket_full_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limiter_allows_a_burst_then_the_steady_rate() {
        let mut limiter = RateLimiter::new(3, Duration::from_secs(1));
        let start = Time::from_secs(100);
        assert_eq!((0..10).filter(|_| limiter.try_take_token(start)).count(), 3);
        assert!(!limiter.try_take_token(start + Duration::from_millis(999)));
        assert!(limiter.try_take_token(start + Duration::from_secs(1)));
        assert!(!limiter.try_take_token(start + Duration::from_secs(1)));
        assert_eq!((0..10).filter(|_| limiter.try_take_token(start + Duration::from_secs(60))).count(), 3);
    }

    #[test]
    fn limiter_takes_all_requested_tokens_or_none() {
        let mut limiter = RateLimiter::new(3, Duration::from_secs(1));
        let now = Time::from_secs(100);
        assert!(!limiter.try_take_tokens(now, 4) && limiter.is_bucket_full(now));
        assert!(
            limiter.try_take_tokens(now, 2)
                && !limiter.try_take_tokens(now, 2)
                && limiter.try_take_token(now)
        );
        assert!(!limiter.has_token(now));
    }

    #[test]
    fn limiter_grants_as_many_tokens_as_it_announces() {
        let mut limiter = RateLimiter::new(2, Duration::from_secs(1));
        let mut now = Time::from_secs(100);
        assert!(
            limiter.is_bucket_full(now) && limiter.has_token(now) && limiter.token_available_at(now) == now
        );
        for _ in 0..20 {
            while limiter.has_token(now) {
                assert!(limiter.try_take_token(now));
                assert!(!limiter.is_bucket_full(now));
            }
            assert!(!limiter.try_take_token(now));
            let ready = limiter.token_available_at(now);
            assert!(!limiter.has_token(ready - Duration::from_nanos(1)));
            now = ready;
            assert!(limiter.has_token(now));
        }
        assert!(!limiter.is_bucket_full(now + Duration::from_millis(999)));
        assert!(limiter.is_bucket_full(now + Duration::from_secs(1)));
    }
}
