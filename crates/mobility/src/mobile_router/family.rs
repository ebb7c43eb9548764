//! Back to IPv6 after an outage of it: of two care-of addresses an uplink prefers the IPv6 one (RFC 5555
//! 4.4.1).
//!
//! Where the home agent does not answer over IPv6 and does over IPv4, the uplink is registered with its IPv4
//! care-of address. From then on the router tries IPv6 again every [`AGAIN`]: a Binding Update leaves from
//! the IPv6 care-of address, and one from the IPv4 address follows if no acknowledgement has come (RFC 8305
//! 5). Traffic stays on IPv4 until the home agent has acknowledged the IPv6 care-of address, and packets to
//! the IPv4 one are still accepted then.
//!
//! Where Binding Updates arrive over IPv6 and nothing comes back, each attempt moves the binding to where
//! packets are lost, for as long as the acknowledgement is waited for. The heartbeats show that: the home
//! agent answers none from the IPv4 care-of address meanwhile. Then the interval doubles, up to
//! [`MAX_AGAIN`].

use std::net::IpAddr;
use std::time::Duration;

use carnet_base::{Time, WallTime};

use super::{MobileRouter, Registration, Timer};

/// Between two attempts over IPv6.
const AGAIN: Duration = Duration::from_secs(30);
/// The longest interval where IPv6 works one way only.
const MAX_AGAIN: Duration = Duration::from_secs(960);
/// The home agent answers the Binding Update that follows over IPv4 within this time.
const ATTEMPT: Duration = Duration::from_secs(1);

impl MobileRouter {
    /// An uplink is registered: sets the timer for the next attempt over IPv6 if that is over IPv4 for want
    /// of an answer.
    pub(super) fn expect_ipv6(&mut self, now: Time, uplink: usize, registration: Registration) {
        let is_lost = self.uplinks[uplink].lost.is_some_and(|lost| lost.is_ipv6());
        let Some(path) = self.uplinks.path_mut(uplink) else { return };
        if !registration.care_of_address.is_ipv4() || !is_lost {
            path.ipv6_interval = None;
            return self.timers.stop(Timer::Ipv6(uplink));
        }
        if self.timers.get(Timer::Ipv6(uplink)).is_none() {
            let interval = *path.ipv6_interval.get_or_insert(AGAIN);
            self.timers.set(Timer::Ipv6(uplink), now + interval);
        }
    }

    /// The IPv6 care-of address of an uplink has its chance again.
    pub(super) fn try_ipv6_again(&mut self, now: Time, wall: WallTime, uplink: usize) {
        let Some(link) = self.uplinks.get_mut(uplink) else { return };
        if link.lost.is_some_and(|lost| lost.is_ipv6()) {
            link.lost = None;
            if let Some(path) = self.uplinks.path_mut(uplink) {
                path.ipv6_tried_at = Some(now);
            }
            self.evaluate(now, wall, "IPv6 is tried again");
        }
    }

    /// Whether a care-of address is an IPv6 one that is tried while IPv4 carries the uplink. It has to speak
    /// for itself.
    pub(super) fn is_trying_ipv6(&self, index: usize, care_of_address: IpAddr) -> bool {
        let registered = self.list.bindings.get(index).and_then(|binding| binding.care_of_address());
        care_of_address.is_ipv6() && registered.is_some_and(|registered| registered.is_ipv4())
    }

    /// The home agent has answered over an uplink: tells from the heartbeats there whether IPv6 works one way
    /// only.
    pub(super) fn judge_ipv6_attempt(&mut self, now: Time, uplink: usize) {
        let Some(path) = self.uplinks.path_mut(uplink) else { return };
        let Some(tried) = path.ipv6_tried_at.take_if(|at| now.saturating_since(*at) <= ATTEMPT) else {
            return;
        };
        let is_one_way = path.is_unanswered_since(now, tried);
        if let Some(interval) = &mut path.ipv6_interval {
            *interval = if is_one_way { (*interval * 2).min(MAX_AGAIN) } else { AGAIN };
        }
    }
}
