//! Return to IPv6 after a failure of IPv6. The router prefers IPv6 if an uplink has an IPv4 and an IPv6
//! care-of address (RFC 5555 4.4.1).
//!
//! If the home agent answers only over IPv4, the router registers the uplink with its IPv4 care-of address.
//! From then on it tries IPv6 again every [`IPV6_RETRY_INTERVAL`] and sends a Binding Update from the IPv6
//! care-of address. If no acknowledgement comes, it sends one from the IPv4 address (RFC 8305 5). The traffic
//! stays on IPv4 until the home agent has acknowledged the IPv6 care-of address. After that the router still
//! accepts packets to the IPv4 address for a while.
//!
//! Binding Updates may arrive over IPv6 although their answers are lost. Then each attempt moves the binding
//! to a path that loses packets, while the router waits for the acknowledgement. Heartbeats detect this: the
//! home agent answers none from the IPv4 care-of address in the meantime. Then the interval doubles, up to
//! [`MAX_IPV6_RETRY_INTERVAL`].

use std::net::IpAddr;
use std::time::Duration;

use carnet_base::Time;

use super::Uplink;
use super::liveness::PathState;

/// Interval between two attempts over IPv6.
const IPV6_RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// Longest interval between attempts if packets pass over IPv6 in one direction only.
const MAX_IPV6_RETRY_INTERVAL: Duration = Duration::from_secs(960);
/// Time within which the home agent answers the Binding Update over IPv4 that follows an attempt.
const IPV4_ANSWER_TIME: Duration = Duration::from_secs(1);

impl Uplink {
    /// Returns when the router tries IPv6 again on the uplink, which is registered with this care-of address.
    /// Returns `None` if IPv6 has not failed or is registered.
    pub(super) fn next_ipv6_attempt(&mut self, now: Time, care_of_address: IpAddr) -> Option<Time> {
        let is_lost = self.unanswered_address.is_some_and(|lost| lost.is_ipv6());
        if !care_of_address.is_ipv4() || !is_lost {
            self.path.ipv6_interval = None;
            return None;
        }
        Some(now + *self.path.ipv6_interval.get_or_insert(IPV6_RETRY_INTERVAL))
    }

    /// Allows the router to try the IPv6 care-of address again. Returns false if it has not failed.
    pub(super) fn try_ipv6_again(&mut self, now: Time) -> bool {
        let is_lost = self.unanswered_address.take_if(|lost| lost.is_ipv6()).is_some();
        if is_lost {
            self.path.ipv6_tried_at = Some(now);
        }
        is_lost
    }
}

impl PathState {
    /// Decides after an answer of the home agent whether packets pass over IPv6 in one direction only. The
    /// heartbeats of the last attempt show it.
    pub(super) fn judge_ipv6_attempt(&mut self, now: Time) {
        let Some(tried) = self.ipv6_tried_at.take_if(|at| now.saturating_since(*at) <= IPV4_ANSWER_TIME)
        else {
            return;
        };
        let is_one_way = self.is_unanswered_since(now, tried);
        if let Some(interval) = &mut self.ipv6_interval {
            *interval =
                if is_one_way { (*interval * 2).min(MAX_IPV6_RETRY_INTERVAL) } else { IPV6_RETRY_INTERVAL };
        }
    }
}
