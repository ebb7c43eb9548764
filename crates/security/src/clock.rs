//! Whether the own clock is wrong, by what signed neighbours say.
//!
//! A station with a wrong clock rejects the messages of all others, and they reject its messages. The station
//! detects this if all signed messages that arrive are out of time: [`MESSAGES`] over [`SPELL`], without a
//! verified one among them. The messages are not authentic, because the time check comes before the
//! signature. So the station only reports the difference, and one verified message ends the report.

use std::time::Duration;

use carnet_base::Time;

/// Messages out of time that say so.
const MESSAGES: u32 = 10;
/// For how long none may have been in time.
const SPELL: Duration = Duration::from_secs(5);
/// How long the last of them counts.
const RECENT: Duration = Duration::from_secs(30);
/// From one look at the time of a message to the next: a flood costs no more than that.
const INTERVAL: Duration = Duration::from_millis(50);

/// Messages out of time since the last one that was verified.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OwnClock {
    count: u32,
    first: Time,
    last: Time,
    ahead_ms: i64,
}

impl OwnClock {
    /// Whether another message out of time says something new.
    pub fn listens(&self, now: Time) -> bool {
        self.count == 0 || now.saturating_since(self.last) >= INTERVAL
    }

    /// Notes a message that is out of time; by its time the own clock is `ahead_ms` ahead.
    pub fn note(&mut self, now: Time, ahead_ms: i64) {
        if self.count == 0 || now.saturating_since(self.last) >= RECENT {
            (self.count, self.first) = (0, now);
        }
        (self.count, self.last, self.ahead_ms) = (self.count.saturating_add(1), now, ahead_ms);
    }

    /// A message was verified.
    pub fn is_right(&mut self) {
        self.count = 0;
    }

    /// How many milliseconds the own clock is ahead of the neighbours', if all of them say so.
    pub fn ahead(&self, now: Time) -> Option<i64> {
        let says = self.count >= MESSAGES
            && self.last.saturating_since(self.first) >= SPELL
            && now.saturating_since(self.last) < RECENT;
        says.then_some(self.ahead_ms)
    }
}
