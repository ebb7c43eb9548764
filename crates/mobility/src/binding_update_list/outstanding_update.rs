//! At most one Binding Update is outstanding at a time.
//!
//! All bindings of a home address share one sequence of numbers (RFC 5648 4.1). The home agent refuses a
//! number that is not greater than the last one (RFC 6275 9.5.1). Two Binding Updates that leave over two
//! uplinks at once may arrive in the other order, because the delays differ. So the router sends the second
//! one when the home agent has answered the first, or when the first must have arrived. If the first left
//! over an uplink that has failed, the router sends the second at once, so that the traffic does not wait.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use carnet_base::Time;

use super::{BindingUpdateList, CONNECTION_ATTEMPT_DELAY};

/// The last Binding Update that was sent, until its acknowledgement arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutstandingUpdate {
    pub sequence: u16,
    pub sent_at: Time,
    /// Uplink and care-of address that the router sent the update from.
    pub sent_from: (usize, IpAddr),
    /// Care-of address that the MAC of the acknowledgement covers.
    pub authenticated_address: Ipv6Addr,
}

impl BindingUpdateList {
    /// Returns the time until which another Binding Update could arrive before the outstanding one; `None` if
    /// it cannot. `answer_time` returns the usual time until an answer over this uplink and care-of address
    /// arrives. It returns `None` if the router can no longer send from there.
    pub(crate) fn next_update_may_overtake_until(
        &self,
        now: Time,
        answer_time: impl FnOnce(usize, IpAddr) -> Option<Duration>,
    ) -> Option<Time> {
        let OutstandingUpdate { sent_at: at, sent_from: (uplink, address), .. } = self.outstanding_update?;
        let arrived = at + answer_time(uplink, address)?.max(CONNECTION_ATTEMPT_DELAY);
        (arrived > now).then_some(arrived)
    }
}
