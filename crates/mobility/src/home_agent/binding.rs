//! A binding, as callers of the binding cache see it.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use carnet_base::{Endpoint, Time};
use ipnet::Ipv6Net;

/// Bindings that one node may have at a time.
pub const MAX_BINDINGS: usize = 16;
/// Rank of BID-PRI 0, which a node without priorities sends (RFC 6089 4.1): behind all bindings with a
/// priority.
const NO_PRIORITY: u8 = 128;

/// State of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindingState {
    /// Duplicate address detection on the home link is running; nothing is forwarded yet.
    Testing,
    /// Registered.
    Valid,
}

/// Time for which a binding has been at its care-of address.
///
/// The value is no time of day, because the clock may be set. A [`Time`] would not do either: it begins anew
/// with a restart, which bindings survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stay {
    /// Begin in nanoseconds of the monotonic clock. It is negative if it lies before the last restart, and
    /// [`Stay::UNKNOWN`] if it is unknown.
    since: i64,
}

impl Stay {
    const UNKNOWN: i64 = i64::MIN;

    /// A stay that begins now.
    pub fn begun(now: Time) -> Stay {
        Stay::lasting(now, Some(Duration::ZERO))
    }

    /// A stay that has lasted for `length`; `None` if that is unknown.
    pub fn lasting(now: Time, length: Option<Duration>) -> Stay {
        let nanos = |length: Duration| i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
        let now = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
        Stay { since: length.map_or(Stay::UNKNOWN, |length| now.saturating_sub(nanos(length))) }
    }

    /// Returns how long the stay has lasted; `None` if that is unknown.
    pub fn length(self, now: Time) -> Option<Duration> {
        let nanos = i128::from(now.as_nanos()) - i128::from(self.since);
        let known = self.since != Stay::UNKNOWN;
        known.then(|| Duration::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)))
    }
}

/// A binding cache entry that is a home registration, as callers see it.
#[derive(Debug, Clone)]
pub struct Binding {
    /// The home address.
    pub home_address: Ipv6Addr,
    /// The Binding Identifier, `None` for a plain binding; with the home address the key of the cache.
    pub bid: Option<u16>,
    /// BID-PRI (RFC 6089 4.1): the lower value wins; 0 if the node sent none.
    pub priority: u8,
    /// Registered care-of address as the home agent sees it: behind a NAT, the NAT's outer address and port.
    pub care_of_address: Endpoint,
    /// Time since the node has been at this address. Another port that a NAT has chosen does not count as a
    /// move.
    pub stay: Stay,
    /// The home agent's address at which the node registered.
    pub agent: Endpoint,
    /// The R flag (RFC 3963 4.1).
    pub mobile_router: bool,
    /// L flag: the home agent defends the link-local address as well (RFC 6275 6.1.7).
    pub link_local: bool,
    /// The prefixes for which packets are forwarded, the same for all bindings of a node.
    pub prefixes: Arc<[Ipv6Net]>,
    /// The last sequence number accepted, shared by all bindings of a node (RFC 5648 4.1).
    pub sequence: u16,
    /// Granted lifetime in whole seconds.
    pub lifetime: Duration,
    /// End of the lifetime.
    pub expires: Time,
    /// State of the binding, see [`BindingState`].
    pub state: BindingState,
    /// Whether the home agent may send packets to the care-of address: the node has answered there, or needs
    /// no test.
    pub care_of_tested: bool,
}

impl Binding {
    /// Whether the home agent forwards packets by this binding.
    pub fn is_valid(&self) -> bool {
        self.state == BindingState::Valid
    }

    /// Returns the ends of the tunnel: the home agent's address and the care-of address.
    pub fn ends(&self) -> (Endpoint, Endpoint) {
        (self.agent, self.care_of_address)
    }

    /// Whether forwarding is the same with `other` in place of this binding.
    pub(super) fn forwards_like(&self, other: &Binding) -> bool {
        let what = |it: &Binding| {
            (it.ends(), it.rank(), it.mobile_router, it.link_local, it.state, it.care_of_tested)
        };
        what(self) == what(other)
    }

    /// Returns the rank among the bindings of a node: the best has the least.
    pub(super) fn rank(&self) -> (u8, Option<u16>) {
        rank(self.priority, self.bid)
    }

    /// The link-local address that the L flag derives from the home address (RFC 6275 10.3.1).
    pub fn link_local_address(&self) -> Option<Ipv6Addr> {
        let interface_identifier = u128::from(self.home_address) & u128::from(u64::MAX);
        self.link_local.then(|| Ipv6Addr::from((0xfe80_u128 << 112) | interface_identifier))
    }
}

/// A binding that this registration creates or renews.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Registered {
    pub bid: Option<u16>,
    pub priority: u8,
    /// The home agent's end and the care-of address.
    pub ends: (Endpoint, Endpoint),
}

/// A path that a binding has used before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormerPath {
    /// The home agent's end.
    pub agent: Endpoint,
    /// The care-of address.
    pub care_of_address: Endpoint,
    /// Time until which the home agent accepts packets from the path.
    pub until: Time,
    /// Whether the care-of address was tested, see [`Binding::care_of_tested`].
    pub care_of_tested: bool,
}

/// Returns the rank among the bindings of a node: the best has the least.
pub(super) fn rank(priority: u8, bid: Option<u16>) -> (u8, Option<u16>) {
    (if priority == 0 { NO_PRIORITY } else { priority }, bid)
}
