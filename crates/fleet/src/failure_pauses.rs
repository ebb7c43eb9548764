//! Pause after a failure. It doubles if the next failure comes soon.

use std::time::Duration;

use crate::config::LeadershipConfig;

/// Maximum number of doublings of the pause.
const MAX_DOUBLINGS: u32 = 8;

/// Number of failures since the last long time of success.
#[derive(Debug, Default)]
pub(crate) struct FailurePauses(u32);

impl FailurePauses {
    /// Returns the pause after a failure. `well` is the time for which the last attempt was successful;
    /// `None` if it never was.
    pub(crate) fn next_pause(&mut self, well: Option<Duration>, config: &LeadershipConfig) -> Duration {
        if well.is_some_and(|well| well > config.pause_after_failure + config.fail_back_delay) {
            self.0 = 0;
        }
        let pause = config.pause_after_failure * (1 << self.0.min(MAX_DOUBLINGS));
        self.0 = self.0.saturating_add(1);
        pause
    }
}
