//! Round trips of a path, smoothed (RFC 6298 2), and their jitter (RFC 3550 6.4.1).

use std::time::Duration;

/// Round trips of a path.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RoundTrip {
    smoothed_round_trip: Option<Duration>,
    round_trip_variation: Duration,
    last_round_trip: Option<Duration>,
    jitter: Duration,
    /// Whether a short round trip after long ones has a greater weight, because a queue has emptied.
    follows_queue_delay: bool,
}

impl RoundTrip {
    /// Creates round trips for a path with a queue: a short one after long ones has a greater weight than in
    /// RFC 6298.
    pub(crate) fn following_queue_delay() -> RoundTrip {
        RoundTrip { follows_queue_delay: true, ..RoundTrip::default() }
    }

    /// Adds a measured round trip.
    pub(crate) fn add_measurement(&mut self, sample: Duration) {
        match self.smoothed_round_trip {
            None => {
                self.smoothed_round_trip = Some(sample);
                self.round_trip_variation = sample / 2;
            }
            Some(smoothed) if self.follows_queue_delay && sample * 2 < smoothed => {
                self.round_trip_variation /= 2;
                self.smoothed_round_trip = Some((smoothed + sample) / 2);
            }
            Some(smoothed) => {
                self.round_trip_variation = (self.round_trip_variation * 3 + smoothed.abs_diff(sample)) / 4;
                self.smoothed_round_trip = Some((smoothed * 7 + sample) / 8);
            }
        }
        if let Some(last) = self.last_round_trip.replace(sample) {
            self.jitter = (self.jitter * 15 + last.abs_diff(sample)) / 16;
        }
    }

    /// Returns the smoothed round trip; `None` before the first measurement.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed_round_trip
    }

    /// Returns the jitter: the mean difference between successive round trips.
    pub(crate) fn jitter(&self) -> Duration {
        self.jitter
    }

    /// Returns the time to wait for an answer: the smoothed round trip plus four times its variation. Returns
    /// `None` before the first measurement.
    pub(crate) fn answer_timeout(&self) -> Option<Duration> {
        self.smoothed_round_trip.map(|smoothed| smoothed + self.round_trip_variation * 4)
    }
}
