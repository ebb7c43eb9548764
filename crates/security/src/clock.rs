//! Detection of a wrong own clock from the signed messages of neighbours.
//!
//! A station with a wrong clock rejects the messages of all other stations, and they reject its messages. A
//! message is *out of time* if its generation time is too early or too late. The station reports a wrong
//! clock after [`MIN_MESSAGES_OUT_OF_TIME`] such messages, if it has verified no message for
//! [`MIN_TIME_WITHOUT_VERIFIED_MESSAGE`]. Messages out of time are not authenticated, because the station
//! checks the time before the signature. So the station only reports the difference, and one verified message
//! ends the report.

use std::time::Duration;

use carnet_base::Time;

/// Number of messages out of time that indicate a wrong clock.
const MIN_MESSAGES_OUT_OF_TIME: u32 = 10;
/// Time without a verified message after which the clock counts as wrong.
const MIN_TIME_WITHOUT_VERIFIED_MESSAGE: Duration = Duration::from_secs(5);
/// Time for which a message out of time counts as evidence of a wrong own clock.
const MESSAGE_OUT_OF_TIME_LIFETIME: Duration = Duration::from_secs(30);
/// Least time between two messages that the station evaluates for this check, which limits the cost of a
/// flood.
const MIN_EVALUATION_INTERVAL: Duration = Duration::from_millis(50);

/// Counts received messages whose generation time is too early or too late, since the last verified message.
/// Many of them indicate that the station's own clock is wrong.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClockCheck {
    early_messages: u32,
    first_message_at: Time,
    last_message_at: Time,
    ahead_ms: i64,
}

impl ClockCheck {
    /// Returns whether the station should evaluate a further message out of time now.
    pub fn should_evaluate(&self, now: Time) -> bool {
        self.early_messages == 0 || now.saturating_since(self.last_message_at) >= MIN_EVALUATION_INTERVAL
    }

    /// Stores a message out of time. By the message's generation time this station's clock is `ahead_ms`
    /// milliseconds ahead.
    pub fn record_message_out_of_time(&mut self, now: Time, ahead_ms: i64) {
        if self.early_messages == 0
            || now.saturating_since(self.last_message_at) >= MESSAGE_OUT_OF_TIME_LIFETIME
        {
            (self.early_messages, self.first_message_at) = (0, now);
        }
        (self.early_messages, self.last_message_at, self.ahead_ms) =
            (self.early_messages.saturating_add(1), now, ahead_ms);
    }

    /// Handles a verified message: the own clock is right.
    pub fn record_verified_message(&mut self) {
        self.early_messages = 0;
    }

    /// Returns the milliseconds by which the own clock is ahead of the neighbours' clocks, if all recent
    /// messages are out of time; otherwise `None`.
    pub fn clock_lead_ms(&self, now: Time) -> Option<i64> {
        let says = self.early_messages >= MIN_MESSAGES_OUT_OF_TIME
            && self.last_message_at.saturating_since(self.first_message_at)
                >= MIN_TIME_WITHOUT_VERIFIED_MESSAGE
            && now.saturating_since(self.last_message_at) < MESSAGE_OUT_OF_TIME_LIFETIME;
        says.then_some(self.ahead_ms)
    }
}
