//! A binding, as callers of the binding cache see it.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use carnet_base::{Endpoint, Time};
use ipnet::Ipv6Net;

/// Maximum number of bindings of one node.
pub const MAX_BINDINGS: usize = 16;
/// Rank of BID-PRI 0, which a node without priorities sends (RFC 6089 4.1): behind all bindings with a
/// priority.
const PRIORITY_WITHOUT_BID: u8 = 128;

/// State of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindingState {
    /// Duplicate address detection on the home link is running; the home agent does not forward packets yet.
    Testing,
    /// The node is registered.
    Valid,
}

/// Time for which a node has been at its care-of address.
///
/// A time of day would be wrong after the clock was set. A [`Time`] would be wrong after a restart, which
/// bindings survive, because its clock starts anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CareOfAddressAge {
    /// Start in nanoseconds of the monotonic clock. It is negative if it is before the last restart, and
    /// [`CareOfAddressAge::UNKNOWN_START`] if it is unknown.
    started_at: i64,
}

impl CareOfAddressAge {
    const UNKNOWN_START: i64 = i64::MIN;

    /// Returns the age of a care-of address that the node has reached now.
    pub fn beginning_now(now: Time) -> CareOfAddressAge {
        CareOfAddressAge::with_age(now, Some(Duration::ZERO))
    }

    /// Returns the age of a care-of address at which the node has been for `length`; `None` if the length is
    /// unknown.
    pub fn with_age(now: Time, length: Option<Duration>) -> CareOfAddressAge {
        let nanos = |length: Duration| i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
        let now = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
        CareOfAddressAge {
            started_at: length
                .map_or(CareOfAddressAge::UNKNOWN_START, |length| now.saturating_sub(nanos(length))),
        }
    }

    /// Returns for how long the node has been at the address; `None` if that is unknown.
    pub fn age_at(self, now: Time) -> Option<Duration> {
        let nanos = i128::from(now.as_nanos()) - i128::from(self.started_at);
        let known = self.started_at != CareOfAddressAge::UNKNOWN_START;
        known.then(|| Duration::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)))
    }
}

/// A binding cache entry that is a home registration, as callers see it.
#[derive(Debug, Clone)]
pub struct Binding {
    /// The home address.
    pub home_address: Ipv6Addr,
    /// The Binding Identifier, `None` for a plain binding. Home address and identifier together are the key
    /// of the cache.
    pub bid: Option<u16>,
    /// BID-PRI (RFC 6089 4.1): the lower value wins; 0 if the node sent none.
    pub priority: u8,
    /// Registered care-of address as the home agent sees it: behind a NAT, the NAT's outer address and port.
    pub care_of_address: Endpoint,
    /// Time for which the node has been at this address. A new port of the same NAT does not restart it.
    pub care_of_address_age: CareOfAddressAge,
    /// The home agent's address at which the node registered.
    pub agent: Endpoint,
    /// The R flag (RFC 3963 4.1).
    pub mobile_router: bool,
    /// L flag: the home agent defends the link-local address as well (RFC 6275 6.1.7).
    pub link_local: bool,
    /// The prefixes whose packets the home agent forwards to the node, the same for all bindings of a node.
    /// IPv4 prefixes are in IPv4-mapped form.
    pub prefixes: Arc<[Ipv6Net]>,
    /// The last accepted sequence number, which all bindings of a node share (RFC 5648 4.1).
    pub sequence: u16,
    /// Granted lifetime in whole seconds.
    pub lifetime: Duration,
    /// Time at which the lifetime of the binding ends.
    pub expires_at: Time,
    /// State of the binding, see [`BindingState`].
    pub state: BindingState,
    /// Whether the home agent may send packets to the care-of address: the node has answered the test there,
    /// or its config demands no test.
    pub is_care_of_tested: bool,
}

impl Binding {
    /// Returns whether the home agent forwards packets by this binding.
    pub fn is_valid(&self) -> bool {
        self.state == BindingState::Valid
    }

    /// Returns the ends of the tunnel: the home agent's address and the care-of address.
    pub fn tunnel_ends(&self) -> (Endpoint, Endpoint) {
        (self.agent, self.care_of_address)
    }

    /// Returns whether the forwarding stays the same if `other` replaces this binding.
    pub(super) fn forwards_same_as(&self, other: &Binding) -> bool {
        let what = |it: &Binding| {
            (
                it.tunnel_ends(),
                it.preference_rank(),
                it.mobile_router,
                it.link_local,
                it.state,
                it.is_care_of_tested,
            )
        };
        what(self) == what(other)
    }

    /// Returns the rank among the bindings of a node; the best binding has the lowest rank.
    pub(super) fn preference_rank(&self) -> (u8, Option<u16>) {
        preference_rank(self.priority, self.bid)
    }

    /// Returns the link-local address that the L flag derives from the home address (RFC 6275 10.3.1); `None`
    /// without the L flag.
    pub fn link_local_address(&self) -> Option<Ipv6Addr> {
        let interface_identifier = u128::from(self.home_address) & u128::from(u64::MAX);
        self.link_local.then(|| Ipv6Addr::from((0xfe80_u128 << 112) | interface_identifier))
    }
}

/// A binding that this registration creates or renews.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NewBinding {
    pub bid: Option<u16>,
    pub priority: u8,
    /// Ends of the tunnel: the home agent's address and the care-of address.
    pub tunnel_ends: (Endpoint, Endpoint),
}

/// A former path of a binding, from which the home agent still accepts packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormerPath {
    /// The home agent's end of the former tunnel.
    pub agent: Endpoint,
    /// The former care-of address.
    pub care_of_address: Endpoint,
    /// Time until which the home agent accepts packets from the path.
    pub accept_packets_until: Time,
    /// Whether the care-of address was tested, see [`Binding::is_care_of_tested`].
    pub is_care_of_tested: bool,
}

/// Returns the rank among the bindings of a node; the best binding has the lowest rank.
pub(super) fn preference_rank(priority: u8, bid: Option<u16>) -> (u8, Option<u16>) {
    (if priority == 0 { PRIORITY_WITHOUT_BID } else { priority }, bid)
}
