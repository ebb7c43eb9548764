//! Pause after a failure: it doubles each time that the next failure comes soon.

use std::time::Duration;

use crate::config::SeatConfig;

/// Largest number of doublings.
const MOST_DOUBLINGS: u32 = 8;

/// Number of failures without a long time of success between them.
#[derive(Debug, Default)]
pub(crate) struct Retries(u32);

impl Retries {
    /// Returns the pause after a failure; `well` is the time of success before it.
    pub(crate) fn pause(&mut self, well: Option<Duration>, config: &SeatConfig) -> Duration {
        if well.is_some_and(|well| well > config.rest + config.settled) {
            self.0 = 0;
        }
        let pause = config.rest * (1 << self.0.min(MOST_DOUBLINGS));
        self.0 = self.0.saturating_add(1);
        pause
    }
}
