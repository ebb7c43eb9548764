//! Counters of a frame link.

use carnet_base::DropReason;

carnet_base::drop_reasons! {
    /// Reason for which a frame link drops a frame.
    pub enum FrameDropReason {
        /// Sending: the interface is missing or down.
        Down = "link_down",
        /// Sending: the frame is longer than the MTU.
        TooLong = "link_too_long",
        /// Sending: the queue is full, because the kernel has accepted no frame for some time.
        QueueFull = "link_queue_full",
        /// Sending: the kernel or the driver refused the frame, for example because its queue is full.
        Refused = "link_refused",
        /// Receiving: the frame is too short for its addresses, truncated, or from a group address.
        Malformed = "link_malformed",
        /// Receiving: the frame is for another station (only on UDP, where the kernel does not filter).
        OtherStation = "link_other_station",
        /// Receiving: the datagram comes from a machine that the config does not list as a peer.
        Stranger = "link_stranger",
        /// Receiving: the socket's buffer was full, because carnet read too slowly (only with an interface).
        Overrun = "link_overrun",
    }
}

/// Counters since [`super::FrameLink::open`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameCounters {
    /// Frames passed to the caller.
    pub received_frames: u64,
    /// Frames that the kernel accepted. A frame to several peers counts once.
    pub sent_frames: u64,
    /// Unicast frames that the driver reported as acknowledged.
    pub acknowledged_frames: u64,
    /// Unicast frames that the driver reported as not acknowledged.
    pub unacknowledged_frames: u64,
    drop_counts: [u64; FrameDropReason::ALL.len()],
}

impl FrameCounters {
    /// Returns the number of frames dropped for this reason.
    pub fn dropped_frames(&self, reason: FrameDropReason) -> u64 {
        self.drop_counts[reason as usize]
    }

    /// Returns each drop reason with the number of frames dropped for it.
    pub fn drops_by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        FrameDropReason::ALL.iter().map(|reason| (reason.name(), self.dropped_frames(*reason)))
    }

    pub(super) fn count_drop(&mut self, reason: FrameDropReason, frames: u64) {
        self.drop_counts[reason as usize] += frames;
    }
}
