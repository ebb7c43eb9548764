//! A token bucket: so many at once, so many per second in the long run.

use std::time::Duration;

use crate::Time;

/// Lets `burst` things pass at once and one more per `interval` after that.
#[derive(Debug, Clone)]
pub struct RateLimiter {
    interval: Duration,
    burst: u32,
    /// When the bucket will be full again; the later it is, the emptier the bucket.
    full_at: Time,
}

impl RateLimiter {
    /// A full bucket of `burst` tokens that gains one token per `interval`.
    pub fn new(burst: u32, interval: Duration) -> Self {
        RateLimiter { interval, burst, full_at: Time::ZERO }
    }

    /// Takes a token if there is one.
    pub fn allow(&mut self, now: Time) -> bool {
        let full_at = self.full_at.max(now) + self.interval;
        let allowed = full_at.saturating_since(now) <= self.interval * self.burst;
        if allowed {
            self.full_at = full_at;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_the_steady_rate() {
        let mut limiter = RateLimiter::new(3, Duration::from_secs(1));
        let start = Time::from_secs(100);
        assert_eq!((0..10).filter(|_| limiter.allow(start)).count(), 3);
        assert!(!limiter.allow(start + Duration::from_millis(999)));
        assert!(limiter.allow(start + Duration::from_secs(1)));
        assert!(!limiter.allow(start + Duration::from_secs(1)));
        assert_eq!((0..10).filter(|_| limiter.allow(start + Duration::from_secs(60))).count(), 3);
    }
}
