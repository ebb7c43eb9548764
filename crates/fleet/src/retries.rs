//! How long to wait after something has failed: twice as long each time that it fails soon.

use std::time::Duration;

use crate::config::SeatConfig;

/// How often the time doubles.
const MOST_DOUBLINGS: u32 = 8;

/// How often it has failed, not having been well for long in between.
#[derive(Debug, Default)]
pub(crate) struct Retries(u32);

impl Retries {
    /// The pause after it has failed, for so long before which it was well.
    pub(crate) fn pause(&mut self, well: Option<Duration>, config: &SeatConfig) -> Duration {
        if well.is_some_and(|well| well > config.rest + config.settled) {
            self.0 = 0;
        }
        let pause = config.rest * (1 << self.0.min(MOST_DOUBLINGS));
        self.0 = self.0.saturating_add(1);
        pause
    }
}
