//! Return to IPv6 after an outage of it: of two care-of addresses an uplink prefers the IPv6 one (RFC 5555
//! 4.4.1).
//!
//! If the home agent does not answer over IPv6 but does over IPv4, the uplink is registered with its IPv4
//! care-of address. From then on the router tries IPv6 again every [`AGAIN`]: a Binding Update leaves from
//! the IPv6 care-of address, and one from the IPv4 address follows if no acknowledgement has come (RFC 8305
//! 5). Traffic stays on IPv4 until the home agent has acknowledged the IPv6 care-of address, and packets to
//! the IPv4 one are still accepted then.
//!
//! If Binding Updates arrive over IPv6 but no answer comes back, each attempt moves the binding to a path
//! that loses packets, while the router waits for the acknowledgement. The heartbeats show that: the home
//! agent answers none from the IPv4 care-of address meanwhile. Then the interval doubles, up to
//! [`MAX_AGAIN`].

use std::net::IpAddr;
use std::time::Duration;

use carnet_base::Time;

use super::Uplink;
use super::liveness::PathState;

/// Interval between two attempts over IPv6.
const AGAIN: Duration = Duration::from_secs(30);
/// Longest interval if IPv6 works in one direction only.
const MAX_AGAIN: Duration = Duration::from_secs(960);
/// Time within which the home agent answers the Binding Update that follows over IPv4.
const ATTEMPT: Duration = Duration::from_secs(1);

impl Uplink {
    /// Returns when the uplink, which is registered with this care-of address, tries IPv6 again; `None` if
    /// IPv6 has not failed or is registered.
    pub(super) fn next_ipv6_attempt(&mut self, now: Time, care_of_address: IpAddr) -> Option<Time> {
        let is_lost = self.lost.is_some_and(|lost| lost.is_ipv6());
        if !care_of_address.is_ipv4() || !is_lost {
            self.path.ipv6_interval = None;
            return None;
        }
        Some(now + *self.path.ipv6_interval.get_or_insert(AGAIN))
    }

    /// Lets the IPv6 care-of address be tried again; returns false if it has not failed.
    pub(super) fn try_ipv6_again(&mut self, now: Time) -> bool {
        let is_lost = self.lost.take_if(|lost| lost.is_ipv6()).is_some();
        if is_lost {
            self.path.ipv6_tried_at = Some(now);
        }
        is_lost
    }
}

impl PathState {
    /// Judges by the heartbeats, after an answer of the home agent, whether IPv6 works in one direction only.
    pub(super) fn judge_ipv6_attempt(&mut self, now: Time) {
        let Some(tried) = self.ipv6_tried_at.take_if(|at| now.saturating_since(*at) <= ATTEMPT) else {
            return;
        };
        let is_one_way = self.is_unanswered_since(now, tried);
        if let Some(interval) = &mut self.ipv6_interval {
            *interval = if is_one_way { (*interval * 2).min(MAX_AGAIN) } else { AGAIN };
        }
    }
}
