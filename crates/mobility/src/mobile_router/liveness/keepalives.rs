//! Keepalives behind a NAT (RFC 5555 4.3): they measure for how long the NAT keeps its mapping.
//!
//! On a path without other packets the interval grows as long as the mapping lasts, and shrinks when it is
//! lost.

use std::time::Duration;

use carnet_base::Time;

use super::{KEEPALIVE_RANGE, MIN_KEEPALIVE, PathState};

impl PathState {
    /// Records a Binding Update over the path, which also is a keepalive.
    pub(super) fn record_sent_update(&mut self, now: Time) {
        if self.liveness.has_no_outstanding_heartbeat() {
            self.liveness.record_sending_time(now);
        }
    }

    /// Lengthens the interval: the NAT kept its mapping for a whole interval without other packets.
    pub(super) fn lengthen_keepalive(&mut self) {
        let current = self.keepalive_interval();
        let longest = self
            .too_long_keepalive
            .map_or(KEEPALIVE_RANGE.2, |too_long| (too_long * 4 / 5).max(MIN_KEEPALIVE));
        self.keepalive_interval = Some((current + KEEPALIVE_RANGE.1).min(longest).max(current.min(longest)));
    }

    /// Shortens the interval: the NAT has lost its mapping within the last interval.
    pub(super) fn shorten_keepalive(&mut self) {
        let current = self.keepalive_interval();
        self.too_long_keepalive = Some(self.too_long_keepalive.map_or(current, |before| before.min(current)));
        self.keepalive_interval = Some((current * 2 / 3).max(MIN_KEEPALIVE));
    }

    /// Returns the interval between keepalives.
    pub(super) fn keepalive_interval(&self) -> Duration {
        self.keepalive_interval.unwrap_or(KEEPALIVE_RANGE.0)
    }
}
