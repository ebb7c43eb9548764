//! Public keys of other routers, with which this router has encrypted sessions (`docs/tunnel.md`).
//!
//! A router names its key in the Home Test Init, in the tests and in the Binding Update. The receiver cannot
//! believe a key before the Binding Update has arrived, but the Care-of Test Init before it already needs a
//! session. So the receiver accepts handshakes of the keys that it has read lately, in a table of
//! [`MAX_SESSION_KEYS`]. A session alone permits nothing: a message in it still needs the tokens, and packets
//! need a binding.
//!
//! The tokens derive from the key as well, so tokens that were sent for one key are useless for another one.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use carnet_base::Time;

use super::DirectDrop;
use crate::SessionPeer;

/// A public key of the WireGuard protocol.
pub type PublicKey = [u8; 32];

/// Maximum number of keys with which other routers may begin a session.
pub const MAX_SESSION_KEYS: usize = 128;
/// First number for a key that another router names. Keys in the config have smaller numbers, or
/// [`u32::MAX`].
const FIRST_SESSION_NUMBER: u32 = 1 << 31;

/// Ends of a message that goes directly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DirectEnds {
    /// Care-of address of this router.
    pub(super) local: Ipv6Addr,
    /// Care-of address of the other router.
    pub(super) remote: Ipv6Addr,
    /// Encrypted session that carries the message; `None` in the clear.
    pub(super) session: Option<SessionPeer>,
}

/// A key with which another router may have a session.
#[derive(Debug, Clone, Copy)]
struct KnownKey {
    session: SessionPeer,
    expires_at: Time,
}

/// Public keys of this router and of other routers.
#[derive(Debug)]
pub(super) struct SessionKeys {
    /// Newest public key of this router; `None` until the platform has set it.
    pub(super) own_key: Option<PublicKey>,
    known_keys: BTreeMap<PublicKey, KnownKey>,
    next_session_number: u32,
}

impl Default for SessionKeys {
    fn default() -> SessionKeys {
        SessionKeys { own_key: None, known_keys: BTreeMap::new(), next_session_number: FIRST_SESSION_NUMBER }
    }
}

impl SessionKeys {
    /// Returns the number of a key; `None` if this router accepts no sessions of the key.
    pub(super) fn session_of(&self, key: PublicKey) -> Option<SessionPeer> {
        self.known_keys.get(&key).map(|known| known.session)
    }

    /// Checks that a message came through the session of `remote_key`, or in the clear if `remote_key` is
    /// `None`.
    pub(super) fn check_session(
        &self,
        remote_key: Option<PublicKey>,
        ends: DirectEnds,
    ) -> Result<(), DirectDrop> {
        let expected = remote_key.and_then(|key| self.session_of(key));
        (expected == ends.session).then_some(()).ok_or(DirectDrop::NotInSession)
    }

    /// Accepts sessions of a key until `expires_at`. Returns the number of the key if it is new, otherwise
    /// `None`.
    pub(super) fn insert(&mut self, key: PublicKey, expires_at: Time) -> Option<SessionPeer> {
        if let Some(known) = self.known_keys.get_mut(&key) {
            known.expires_at = expires_at;
            return None;
        }
        let session = self.take_session_number();
        self.known_keys.insert(key, KnownKey { session, expires_at });
        Some(session)
    }

    /// Removes a key, and returns its number; `None` if the table does not have the key.
    pub(super) fn remove(&mut self, key: PublicKey) -> Option<SessionPeer> {
        self.known_keys.remove(&key).map(|known| known.session)
    }

    /// Returns the keys with the ends of their lifetimes.
    pub(super) fn key_expiry_times(&self) -> impl Iterator<Item = (PublicKey, Time)> {
        self.known_keys.iter().map(|(key, known)| (*key, known.expires_at))
    }

    /// Returns whether the table has this key, or room for it.
    pub(super) fn has_room_for(&self, key: PublicKey) -> bool {
        self.known_keys.len() < MAX_SESSION_KEYS || self.known_keys.contains_key(&key)
    }

    pub(super) fn next_key_expiry(&self) -> Option<Time> {
        self.known_keys.values().map(|known| known.expires_at).min()
    }

    fn take_session_number(&mut self) -> SessionPeer {
        let number = self.next_session_number;
        self.next_session_number =
            number.checked_add(1).filter(|next| *next < u32::MAX).unwrap_or(FIRST_SESSION_NUMBER);
        SessionPeer(number)
    }
}
