//! An address of a visited link: its registration and its state.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;

use super::registration_limits::MessageSender;

/// Pause after the first request to register; it doubles with each request.
pub(super) const FIRST_RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of requests without an answer.
pub(super) const MAX_REGISTRATION_TRIES: u32 = 3;
/// Interval of renewals. A registration lasts for several of them ([`REQUESTED_MINUTES`]).
pub(super) const RENEWAL_INTERVAL: Duration = Duration::from_secs(20);
/// Requested lifetime of a registration, in minutes.
pub(super) const REQUESTED_MINUTES: u16 = 2;
/// Longest accepted lifetime of a registration, in minutes.
pub(super) const MAX_GRANTED_MINUTES: u16 = 10;

/// State of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VisitedAddressState {
    /// Duplicate address detection on the visited link (RFC 4862 5.4) runs until this time.
    Testing(Time),
    /// The router is registering the address with its parent router.
    Registering {
        /// Time of the next request to the parent.
        next: Time,
        /// Number of requests without an answer.
        tries: u32,
    },
    /// The address is usable: the router receives packets to it.
    Valid {
        /// Time of the next renewal with the parent router; `None` if there is no parent.
        renew: Option<Time>,
        /// Number of renewals without an answer.
        tries: u32,
    },
}

/// A router behind this one that has registered an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChildRouter {
    /// Interface of the mobile network to which the child is attached.
    pub lan: String,
    /// Link-local address of the child on this interface.
    pub gateway: Ipv6Addr,
    /// Sender against whose limit the registration counts.
    pub sender: MessageSender,
    /// Link-layer address of the child; `None` if the link has no such addresses.
    pub peer: Option<[u8; 6]>,
    /// Time at which the registration of the child ends.
    pub expires_at: Time,
}

/// One address of a visited link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VisitedAddress {
    /// Registration Ownership Verifier (RFC 8505 5.3): it identifies the owner of the address.
    pub ownership_verifier: u64,
    /// Transaction ID of the last registration of the address.
    pub last_transaction_id: u8,
    /// The child that owns the address; `None` for this router's own address.
    pub child: Option<ChildRouter>,
    /// Uplink interface, and the parent router on it. The parent is `None` if the uplink is attached to the
    /// visited link itself.
    pub uplink_and_parent: (String, Option<Ipv6Addr>),
    pub state: VisitedAddressState,
    /// Whether the address has ever been valid, so that packets may use it.
    pub has_been_valid: bool,
}

impl VisitedAddress {
    pub fn is_valid(&self) -> bool {
        matches!(self.state, VisitedAddressState::Valid { .. })
    }

    /// Returns the time of the next event of this address; `None` if no event will come.
    pub fn next_event_at(&self) -> Option<Time> {
        let state = match self.state {
            VisitedAddressState::Testing(until) => Some(until),
            VisitedAddressState::Registering { next, .. } => Some(next),
            VisitedAddressState::Valid { renew, .. } => renew,
        };
        state.into_iter().chain(self.child.as_ref().map(|child| child.expires_at)).min()
    }
}
