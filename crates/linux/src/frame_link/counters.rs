//! Counters of a link.

use carnet_base::DropReason;

carnet_base::drop_reasons! {
    /// Reason why a frame was dropped on the link.
    pub enum FrameDrop {
        /// Sending: the interface is missing or down.
        Down = "link_down",
        /// Sending: the frame is longer than the MTU.
        TooLong = "link_too_long",
        /// Sending: the kernel accepted no frame for so long that the queue was full.
        QueueFull = "link_queue_full",
        /// Sending: the kernel or the driver refused the frame, for instance because a queue there is full.
        Refused = "link_refused",
        /// Receiving: the frame is too short for its addresses, truncated, or from a group address.
        Malformed = "link_malformed",
        /// Receiving: the frame is for another station (only on UDP, where the kernel does not filter).
        OtherStation = "link_other_station",
        /// Receiving: a datagram from a machine that is no peer.
        Stranger = "link_stranger",
        /// Receiving: the kernel had no room because frames were not read in time (only on interfaces).
        Overrun = "link_overrun",
    }
}

/// Counts since [`super::FrameLink::open`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameCounters {
    /// Frames passed to the caller.
    pub received: u64,
    /// Frames that the kernel accepted. A frame to several peers counts once.
    pub sent: u64,
    /// Unicast frames that were acknowledged, if the driver reports it.
    pub acknowledged: u64,
    /// Unicast frames that the driver reported as not acknowledged.
    pub unacknowledged: u64,
    dropped: [u64; FrameDrop::ALL.len()],
}

impl FrameCounters {
    /// Returns the number of frames dropped for this reason.
    pub fn dropped(&self, reason: FrameDrop) -> u64 {
        self.dropped[reason as usize]
    }

    /// Returns the name and count of every reason.
    pub fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        FrameDrop::ALL.iter().map(|reason| (reason.name(), self.dropped(*reason)))
    }

    pub(super) fn count(&mut self, reason: FrameDrop, frames: u64) {
        self.dropped[reason as usize] += frames;
    }
}
