//! Counters of a link.

use carnet_base::DropReason;

carnet_base::drop_reasons! {
    /// Why a frame died on the link.
    pub enum FrameDrop {
        /// To be sent: the interface is missing or down.
        Down = "link_down",
        /// To be sent: longer than the MTU.
        TooLong = "link_too_long",
        /// To be sent: the kernel took none for so long that the queue was full.
        QueueFull = "link_queue_full",
        /// To be sent: the kernel or the driver refused it, for instance because a queue there is full.
        Refused = "link_refused",
        /// Received: too short for its addresses, cut off, or from a group address.
        Malformed = "link_malformed",
        /// Received: for another station (only on UDP, where the kernel does not know).
        OtherStation = "link_other_station",
        /// Received: a datagram from a machine that is no peer.
        Stranger = "link_stranger",
        /// Received: the kernel had no room because it was not read in time (only on interfaces).
        Overrun = "link_overrun",
    }
}

/// Counts since [`super::FrameLink::open`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameCounters {
    /// Frames handed to the caller.
    pub received: u64,
    /// Frames that the kernel took, once each, to however many peers they went.
    pub sent: u64,
    /// Frames to one station that were acknowledged, where the driver tells.
    pub acknowledged: u64,
    /// Frames to one station that the driver reported as not acknowledged.
    pub unacknowledged: u64,
    dropped: [u64; FrameDrop::ALL.len()],
}

impl FrameCounters {
    /// Frames that died for this reason.
    pub fn dropped(&self, reason: FrameDrop) -> u64 {
        self.dropped[reason as usize]
    }

    /// Every reason's name and count.
    pub fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        FrameDrop::ALL.iter().map(|reason| (reason.name(), self.dropped(*reason)))
    }

    pub(super) fn count(&mut self, reason: FrameDrop, frames: u64) {
        self.dropped[reason as usize] += frames;
    }
}
