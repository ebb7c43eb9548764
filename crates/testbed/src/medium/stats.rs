//! Counters of each radio of a medium.

use std::ops::Sub;

/// Counters of a radio.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of frames on the air without acknowledgements; each try counts.
    pub sent: u64,
    /// Number of repeated tries, which are included in `sent`.
    pub retries: u64,
    /// Unicast frames that the radio gave up without an acknowledgement.
    pub unacknowledged: u64,
    /// Frames that the full queue dropped.
    pub overflow: u64,
    /// Frames for this node that the radio received.
    pub received: u64,
    /// Frames for this node within range that overlapping frames spoiled.
    pub collided: u64,
    /// Frames for this node that the radio missed because it was sending.
    pub half_duplex: u64,
    /// Frames for this node that the radio lost at random.
    pub lost: u64,
    /// Nanoseconds of sending, including acknowledgements.
    pub airtime: u64,
    /// Nanoseconds in which the medium was busy at this radio: own frames and sensed frames.
    pub busy: u64,
}

impl Counters {
    /// Returns the counters' names and values, for metrics.
    pub fn named(&self) -> [(&'static str, f64); 9] {
        [
            ("sent", self.sent as f64),
            ("retries", self.retries as f64),
            ("unacknowledged", self.unacknowledged as f64),
            ("overflow", self.overflow as f64),
            ("received", self.received as f64),
            ("collided", self.collided as f64),
            ("half_duplex", self.half_duplex as f64),
            ("lost", self.lost as f64),
            ("airtime_ms", self.airtime as f64 / 1e6),
        ]
    }
}

impl Sub for Counters {
    type Output = Counters;

    fn sub(self, earlier: Counters) -> Counters {
        Counters {
            sent: self.sent - earlier.sent,
            retries: self.retries - earlier.retries,
            unacknowledged: self.unacknowledged - earlier.unacknowledged,
            overflow: self.overflow - earlier.overflow,
            received: self.received - earlier.received,
            collided: self.collided - earlier.collided,
            half_duplex: self.half_duplex - earlier.half_duplex,
            lost: self.lost - earlier.lost,
            airtime: self.airtime - earlier.airtime,
            busy: self.busy - earlier.busy,
        }
    }
}
