//! An address of a visited link that is registered, or is being registered.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;

use super::allowance::Sender;

/// Pause between the first two tries to register; it doubles with each try.
pub(super) const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Most tries without an answer.
pub(super) const MAX_TRIES: u32 = 3;
/// Interval of renewals. [`LIFETIME`] outlives several.
pub(super) const RENEWAL: Duration = Duration::from_secs(20);
/// Requested lifetime of a registration, in minutes.
pub(super) const LIFETIME: u16 = 2;
/// Longest accepted lifetime of a registration, in minutes.
pub(super) const MAX_LIFETIME: u16 = 10;

/// State of an address on its way to being usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Duplicate address detection on the visited link (RFC 4862 5.4) runs until this time.
    Testing(Time),
    /// The router is registering the address with the parent.
    Asking {
        /// Time of the next try.
        next: Time,
        /// Number of tries.
        tries: u32,
    },
    /// Packets to the address arrive here.
    Valid {
        /// Time of the next renewal with the parent; `None` without a parent.
        renew: Option<Time>,
        /// Number of renewals without an answer.
        tries: u32,
    },
}

/// A router behind this one that has registered an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Child {
    /// Interface of the mobile network that the child is on.
    pub lan: String,
    /// Link-local address of the child there.
    pub gateway: Ipv6Addr,
    /// Sender whose allowance the registration uses.
    pub sender: Sender,
    /// Link-layer address of the child.
    pub peer: Option<[u8; 6]>,
    /// End of the registration.
    pub expires: Time,
}

/// One address of a visited link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Registration Ownership Verifier.
    pub owner: u64,
    /// Transaction ID of the last registration.
    pub transaction: u8,
    /// The child that owns the address; `None` for this router's own address.
    pub child: Option<Child>,
    /// Interface of the uplink, and the parent there; `None` if the uplink's link is itself the visited one.
    pub over: (String, Option<Ipv6Addr>),
    pub state: State,
    /// Whether the address has been valid, so that it may be in use.
    pub held: bool,
}

impl Entry {
    pub fn is_valid(&self) -> bool {
        matches!(self.state, State::Valid { .. })
    }

    /// Returns when the address is due next.
    pub fn due(&self) -> Option<Time> {
        let state = match self.state {
            State::Testing(until) => Some(until),
            State::Asking { next, .. } => Some(next),
            State::Valid { renew, .. } => renew,
        };
        state.into_iter().chain(self.child.as_ref().map(|child| child.expires)).min()
    }
}
