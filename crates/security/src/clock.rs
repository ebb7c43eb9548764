//! Detection of a wrong own clock from the signed messages of neighbours.
//!
//! A station with a wrong clock rejects the messages of all others, and they reject its messages. The station
//! detects this if all arriving signed messages are out of time: [`MESSAGES`] within [`SPELL`], without a
//! verified message among them. These messages are not authenticated, because the time check comes before the
//! signature. So the station only reports the difference, and one verified message ends the report.

use std::time::Duration;

use carnet_base::Time;

/// Number of messages out of time that indicate a wrong clock.
const MESSAGES: u32 = 10;
/// Time without a verified message after which the clock counts as wrong.
const SPELL: Duration = Duration::from_secs(5);
/// Time for which the last message out of time counts.
const RECENT: Duration = Duration::from_secs(30);
/// Least time between two evaluated messages, which limits the cost of a flood.
const INTERVAL: Duration = Duration::from_millis(50);

/// Counts messages out of time since the last verified message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OwnClock {
    count: u32,
    first: Time,
    last: Time,
    ahead_ms: i64,
}

impl OwnClock {
    /// Returns whether the station should evaluate another message out of time.
    pub fn listens(&self, now: Time) -> bool {
        self.count == 0 || now.saturating_since(self.last) >= INTERVAL
    }

    /// Notes a message out of time; by its time the own clock is `ahead_ms` milliseconds ahead.
    pub fn note(&mut self, now: Time, ahead_ms: i64) {
        if self.count == 0 || now.saturating_since(self.last) >= RECENT {
            (self.count, self.first) = (0, now);
        }
        (self.count, self.last, self.ahead_ms) = (self.count.saturating_add(1), now, ahead_ms);
    }

    /// Handles a verified message: the own clock is right.
    pub fn is_right(&mut self) {
        self.count = 0;
    }

    /// Returns the milliseconds by which the own clock is ahead of the neighbours' clocks, if all recent
    /// messages are out of time.
    pub fn ahead(&self, now: Time) -> Option<i64> {
        let says = self.count >= MESSAGES
            && self.last.saturating_since(self.first) >= SPELL
            && now.saturating_since(self.last) < RECENT;
        says.then_some(self.ahead_ms)
    }
}
