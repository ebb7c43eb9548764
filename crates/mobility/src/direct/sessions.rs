//! Use of the keys of other routers: which messages name a key, and for how long this router accepts sessions
//! of a key.

use std::time::Duration;

use carnet_base::Time;
use carnet_wire::mobility::DirectRoute;

use super::peer::Peer;
use super::session_keys::{MAX_SESSION_KEYS, PublicKey};
use super::{DirectDrop, DirectRouteState, Output};
use crate::SessionPeer;

/// Time for which this router accepts handshakes of a key that no route uses.
const UNUSED_KEY_LIFETIME: Duration = Duration::from_secs(30);

impl DirectRouteState {
    /// Sets the newest public key of this router. When it changes, the routes with the former key end, and
    /// begin again with the new one.
    pub fn handle_own_key(&mut self, now: Time, key: PublicKey) {
        let former = self.session_keys.own_key;
        if !self.config.requires_sessions || former == Some(key) {
            return;
        }
        if former.is_some() {
            self.end_all_routes(now, "the key of this router changes");
            for peer in self.peers.values_mut() {
                (peer.home_tokens, peer.paused_until, peer.failure_count) = (None, now, 0);
                peer.next_check_at = now;
            }
        }
        self.session_keys.own_key = Some(key);
        self.handle_timeout(now);
    }

    /// Returns whether this router can send requests and answers: it has a key, or its config demands no
    /// sessions.
    pub(super) fn has_required_own_key(&self) -> bool {
        !self.config.requires_sessions || self.session_keys.own_key.is_some()
    }

    /// Returns the sender's key in a message that begins a route; `None` if routes are in the clear. A
    /// message without a usable key is an error.
    pub(super) fn key_of_new_session(&self, message: &DirectRoute) -> Result<Option<PublicKey>, DirectDrop> {
        if !self.config.requires_sessions {
            return Ok(None);
        }
        let key = message.public_key.ok_or(DirectDrop::NoKey)?;
        if self.session_keys.own_key.is_none_or(|own| own == key) || key == [0; 32] {
            return Err(DirectDrop::NoKey);
        }
        Ok(Some(key))
    }

    /// Returns this router's key for messages that name it; `None` if routes are in the clear.
    pub(super) fn own_key(&self) -> Option<PublicKey> {
        self.session_keys.own_key.filter(|_| self.config.requires_sessions)
    }

    /// Accepts sessions of this key for a while, and for as long as a route uses it.
    pub(super) fn accept_sessions_of(&mut self, now: Time, key: PublicKey) {
        if !self.session_keys.has_room_for(key) {
            let unused = self.session_keys.key_expiry_times().filter(|(key, _)| !self.uses_key(now, *key));
            // The table has more entries than routes can use keys, so it contains an unused key.
            let oldest = unused.min_by_key(|(_, expires_at)| *expires_at);
            oldest.into_iter().for_each(|(oldest, _)| self.refuse_sessions_of(oldest));
        }
        if let Some(session) = self.session_keys.insert(key, now + UNUSED_KEY_LIFETIME) {
            self.outputs.push_back(Output::SessionKey { session, public_key: Some(key) });
        }
    }

    fn refuse_sessions_of(&mut self, key: PublicKey) {
        if let Some(session) = self.session_keys.remove(key) {
            self.outputs.push_back(Output::SessionKey { session, public_key: None });
        }
    }

    /// Returns whether a route or the request for one uses a key.
    fn uses_key(&self, now: Time, key: PublicKey) -> bool {
        let uses = |peer: &Peer| {
            peer.binding.as_ref().is_some_and(|binding| binding.public_key == Some(key))
                || peer.remote_key == Some(key) && DirectRouteState::is_route_used(now, peer)
        };
        self.peers.values().any(|peer| uses(peer))
    }

    /// Removes keys that no route uses.
    pub(super) fn expire_keys(&mut self, now: Time) {
        let lifetimes = self.session_keys.key_expiry_times();
        let due: Vec<PublicKey> =
            lifetimes.filter(|(_, expires_at)| *expires_at <= now).map(|(key, _)| key).collect();
        for key in due {
            if self.uses_key(now, key) {
                self.accept_sessions_of(now, key);
            } else {
                self.refuse_sessions_of(key);
            }
        }
    }

    /// Ends all sessions.
    pub(super) fn end_sessions(&mut self) {
        let keys: Vec<PublicKey> = self.session_keys.key_expiry_times().map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.refuse_sessions_of(key));
    }

    /// Returns the session for messages to a router; `None` if routes are in the clear, or if the router's
    /// key is unknown.
    pub(super) fn session_of_peer(&self, peer: &Peer) -> Option<SessionPeer> {
        self.session_keys.session_of(peer.remote_key?)
    }
}

const _: () = assert!(MAX_SESSION_KEYS > 2 * super::MAX_PEERS);
