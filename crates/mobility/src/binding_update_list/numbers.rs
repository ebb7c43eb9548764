//! Sequence numbers, timestamps and the key, which keep recorded Binding Updates out (RFC 6275 9.5.1, RFC
//! 4285 6).

use std::collections::VecDeque;

use carnet_base::Time;

use crate::Authentication;

/// Sequence numbers and timestamps of the Binding Updates to one home agent. All bindings of a home address
/// share them (RFC 5648 4.1).
#[derive(Debug)]
pub(crate) struct UpdateNumbers {
    /// How the two authenticate their messages.
    pub(crate) authentication: Authentication,
    /// Sequence number of the last Binding Update.
    pub(crate) sequence: u16,
    /// Whether [`Self::sequence`] is that of a Binding Update that was sent: not before the first one of a
    /// router without stored state.
    pub(crate) is_numbered: bool,
    /// Whether the home agent has demanded timestamps (status 145) where the config has none.
    pub(crate) timestamps_demanded: bool,
    /// The home agent's clock less ours, learnt from status 144, in nanoseconds.
    pub(crate) clock_offset: i128,
    /// The greatest NTP timestamp sent.
    pub(crate) newest_timestamp: Option<u64>,
    /// The greatest NTP timestamp acknowledged.
    pub(crate) acknowledged_timestamp: Option<u64>,
    /// When the Binding Updates of the last second were sent.
    pub(crate) sent_at: VecDeque<Time>,
}

impl UpdateNumbers {
    /// The numbers of a router that has sent no Binding Update yet.
    pub(crate) fn new(authentication: Authentication) -> UpdateNumbers {
        UpdateNumbers {
            authentication,
            sequence: 0,
            is_numbered: false,
            timestamps_demanded: false,
            clock_offset: 0,
            newest_timestamp: None,
            acknowledged_timestamp: None,
            sent_at: VecDeque::new(),
        }
    }
}
