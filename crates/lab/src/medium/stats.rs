//! Counters of a medium, for each radio.

use std::ops::Sub;

/// Counters of a radio.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames on the air, each try, without acknowledgements.
    pub sent: u64,
    /// Of these, tries after the first.
    pub retries: u64,
    /// Frames to one station that were given up without acknowledgement.
    pub unacknowledged: u64,
    /// Frames that the full queue did not take.
    pub overflow: u64,
    /// Frames received, for this node.
    pub received: u64,
    /// Frames in reach and for this node that were spoiled by others.
    pub collided: u64,
    /// Frames that this radio missed because it was sending.
    pub half_duplex: u64,
    /// Frames that this radio lost by chance.
    pub lost: u64,
    /// Nanoseconds on the air, with acknowledgements.
    pub airtime: u64,
    /// Nanoseconds in which the medium was busy here: own frames, and others' that were noticed.
    pub busy: u64,
}

impl Counters {
    /// Their names and values, for metrics.
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
