//! Counters of the facilities.

use carnet_its::ItsDrop;

/// Counters of the facilities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FacilitiesCounters {
    /// CAMs, DENMs and service announcements that the router accepted for sending.
    pub sent: [u64; 3],
    /// CAMs, DENMs and service announcements that the router delivered.
    pub received: [u64; 3],
    /// Messages that the router refused to send, or that no ticket of the station permits.
    pub unsent: u64,
    pub(crate) dropped: [u64; ItsDrop::ALL.len()],
}

impl FacilitiesCounters {
    /// Returns the number of messages dropped for `reason`.
    pub fn dropped(&self, reason: ItsDrop) -> u64 {
        self.dropped[reason as usize]
    }
}
