//! Counters of each radio of a medium.

use std::ops::Sub;

/// Counters of a radio.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of frames that the radio has sent, without acknowledgements. Each try counts.
    pub sent_frames: u64,
    /// Number of repeated tries, which are included in `sent_frames`.
    pub retries: u64,
    /// Unicast frames that the radio gave up without an acknowledgement.
    pub unacknowledged_frames: u64,
    /// Frames that the full queue dropped.
    pub queue_overflows: u64,
    /// Frames for this node that the radio received.
    pub received_frames: u64,
    /// Frames for this node within range that overlapping frames spoiled.
    pub collided_frames: u64,
    /// Frames for this node that the radio missed because it was sending.
    pub half_duplex_losses: u64,
    /// Frames for this node that the radio lost at random.
    pub random_losses: u64,
    /// Nanoseconds of sending, including acknowledgements.
    pub airtime_nanoseconds: u64,
    /// Nanoseconds in which the medium was busy at this radio: own frames and sensed frames.
    pub busy_nanoseconds: u64,
}

impl Counters {
    /// Returns the counters' names and values, for metrics.
    pub fn named_values(&self) -> [(&'static str, f64); 9] {
        [
            ("sent", self.sent_frames as f64),
            ("retries", self.retries as f64),
            ("unacknowledged", self.unacknowledged_frames as f64),
            ("overflow", self.queue_overflows as f64),
            ("received", self.received_frames as f64),
            ("collided", self.collided_frames as f64),
            ("half_duplex", self.half_duplex_losses as f64),
            ("lost", self.random_losses as f64),
            ("airtime_ms", self.airtime_nanoseconds as f64 / 1e6),
        ]
    }
}

impl Sub for Counters {
    type Output = Counters;

    fn sub(self, earlier: Counters) -> Counters {
        Counters {
            sent_frames: self.sent_frames - earlier.sent_frames,
            retries: self.retries - earlier.retries,
            unacknowledged_frames: self.unacknowledged_frames - earlier.unacknowledged_frames,
            queue_overflows: self.queue_overflows - earlier.queue_overflows,
            received_frames: self.received_frames - earlier.received_frames,
            collided_frames: self.collided_frames - earlier.collided_frames,
            half_duplex_losses: self.half_duplex_losses - earlier.half_duplex_losses,
            random_losses: self.random_losses - earlier.random_losses,
            airtime_nanoseconds: self.airtime_nanoseconds - earlier.airtime_nanoseconds,
            busy_nanoseconds: self.busy_nanoseconds - earlier.busy_nanoseconds,
        }
    }
}
