//! An address of a visited link that is registered, or is to be.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;

use super::allowance::Sender;

/// Between the first two tries to register; doubles.
pub(super) const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Tries without an answer.
pub(super) const MAX_TRIES: u32 = 3;
/// How often a registration is renewed. [`LIFETIME`] outlives several.
pub(super) const RENEWAL: Duration = Duration::from_secs(20);
/// Minutes for which a registration is asked.
pub(super) const LIFETIME: u16 = 2;
/// The longest registration that is taken, minutes.
pub(super) const MAX_LIFETIME: u16 = 10;

/// Where an address is on the way to being usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Duplicate address detection on the visited link (RFC 4862 5.4), which ends then.
    Testing(Time),
    /// The parent is being asked.
    Asking {
        /// When it is asked again.
        next: Time,
        /// How often it has been.
        tries: u32,
    },
    /// It leads here.
    Valid {
        /// When the registration with the parent is renewed, where there is one.
        renew: Option<Time>,
        /// Renewals without an answer.
        tries: u32,
    },
}

/// A router behind this one that has registered an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Child {
    /// The interface of the mobile network that it is on.
    pub lan: String,
    /// Its link-local address there.
    pub gateway: Ipv6Addr,
    /// Whose allowance it takes.
    pub sender: Sender,
    /// Its link-layer address.
    pub peer: Option<[u8; 6]>,
    /// When the registration ends.
    pub expires: Time,
}

/// One address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Registration Ownership Verifier.
    pub owner: u64,
    /// Transaction of the last registration.
    pub transaction: u8,
    /// Whose it is: a child's, or this router's own.
    pub child: Option<Child>,
    /// The uplink's interface, and the parent there; without one the link itself is the visited one.
    pub over: (String, Option<Ipv6Addr>),
    pub state: State,
    /// It has been valid, so that it may be in use.
    pub held: bool,
}

impl Entry {
    pub fn is_valid(&self) -> bool {
        matches!(self.state, State::Valid { .. })
    }

    /// When something is to be done for it.
    pub fn due(&self) -> Option<Time> {
        let state = match self.state {
            State::Testing(until) => Some(until),
            State::Asking { next, .. } => Some(next),
            State::Valid { renew, .. } => renew,
        };
        state.into_iter().chain(self.child.as_ref().map(|child| child.expires)).min()
    }
}
