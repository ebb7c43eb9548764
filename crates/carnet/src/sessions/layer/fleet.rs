//! Sessions of a home agent that starts or takes over, and the messages that wait for the store of a fleet.
//!
//! * **Stored routes.** The home agent begins the handshakes itself, by the routes that the last run or the
//!   last leader has stored. It opens a path only while no handshake waits, so data and responses go first.
//!   The first path of each router comes before the second one of any router.
//! * **Released paths.** When a path is established, the home agent leaves its renewal to the router again,
//!   and follows the router to another address.
//! * **Held responses.** In a fleet, the response to an initiation leaves when the store has its timestamp.
//!   So no member answers an initiation that another one has answered.
//! * **Held keys.** In a fleet, the next key of a router is valid when the store has it, and the receipt
//!   follows then. So a new leader knows each key that a router may use.

use std::collections::VecDeque;
use std::net::SocketAddr;

use carnet_base::Time;
use carnet_wireguard::{DatagramRoute, KeyPairId, PeerId, PublicKey, SessionPath};

use super::{HANDSHAKES_PER_TURN, HOME_AGENT_IPV4_SOCKET, HOME_AGENT_IPV6_SOCKET, ReadyDatagram, Sessions};
use crate::state::RecordChange;

/// Type of a handshake response.
const RESPONSE_TYPE: u8 = 2;
/// Largest number of responses and keys that wait for the store. With more of them the home agent drops a
/// new response, and the router sends its initiation again.
const MAX_HELD_ITEMS: usize = 16_384;

/// Paths to open, with the addresses of their routers.
pub(super) type StoredRoutes = VecDeque<(SessionPath, SocketAddr)>;

/// A response or a key that waits for a commit.
#[derive(Debug)]
enum HeldItem {
    Response(ReadyDatagram),
    Keys(NextKeys),
}

/// The keys of a peer, which become valid when they are stored.
#[derive(Debug)]
pub(super) struct NextKeys {
    pub(super) peer: PeerId,
    /// The valid keys, the newest one first.
    pub(super) keys: Vec<PublicKey>,
    /// Session through which the receipt goes.
    pub(super) path: SessionPath,
    pub(super) route: DatagramRoute,
}

/// Responses and keys that wait for commits, in the order of the commits.
#[derive(Debug, Default)]
pub(super) struct HeldItems {
    /// Each item with the number of its commit; `None` if its changes are in no commit yet.
    items: VecDeque<(Option<u64>, HeldItem)>,
    /// Number of the last commit with changes of sessions. `written` is the number of the last commit that
    /// the store has.
    last_commit: u64,
    written_commit: u64,
}

impl HeldItems {
    /// Returns whether an announced next key of this peer waits for the store.
    pub(super) fn has_keys_of(&self, peer: PeerId) -> bool {
        self.items.iter().any(|(_, item)| matches!(item, HeldItem::Keys(next) if next.peer == peer))
    }

    pub(super) fn hold_keys(&mut self, next: NextKeys) {
        self.items.push_back((None, HeldItem::Keys(next)));
    }
}

impl Sessions {
    /// Notes which paths the home agent has to open: those that had a session in the last run, or at the
    /// previous leader.
    pub(super) fn take_stored_routes(&mut self) {
        let mut routes: Vec<(usize, SessionPath, SocketAddr)> = Vec::new();
        for peer in self.peer_by_home_address.values() {
            let Some(remote) = self.remote_peers.get(peer) else { continue };
            let of_router = self.state.routes(remote.config_key).into_iter().enumerate();
            routes.extend(of_router.map(|(rank, (path_number, address))| {
                (rank, SessionPath { peer_id: *peer, path_number }, address)
            }));
        }
        routes.sort_unstable();
        self.stored_routes = routes.into_iter().map(|(_, path, address)| (path, address)).collect();
    }

    /// Begins handshakes for the next stored paths, unless received handshakes wait.
    pub(super) fn open_stored_routes(&mut self, now: Time) {
        for _ in 0..HANDSHAKES_PER_TURN {
            if self.session_engine.has_waiting_handshakes() {
                return;
            }
            let Some((path, remote)) = self.stored_routes.pop_front() else { return };
            // The mobile router may already have begun the session itself.
            if !self.session_engine.is_established(path) {
                let socket = if remote.is_ipv6() { HOME_AGENT_IPV6_SOCKET } else { HOME_AGENT_IPV4_SOCKET };
                self.session_engine.reopen_session(now, path, DatagramRoute { socket, remote });
            }
        }
    }

    /// Handles the establishment of a session with a mobile router: leaves its renewal to the router, and
    /// stores its route.
    pub(super) fn handle_established_at_home_agent(
        &mut self,
        now: Time,
        path: SessionPath,
        pair: KeyPairId,
        route: DatagramRoute,
    ) {
        self.session_engine.release_session(path);
        self.store_route(now, path, Some(route));
        if let Some(pair) = self.session_engine.key_pair(pair) {
            self.state.record_used_own_key(now, pair.local, &self.session_engine.public_keys());
        }
    }

    /// Stores the route of a path of a mobile router; `None` removes the route.
    pub(super) fn store_route(&mut self, now: Time, path: SessionPath, route: Option<DatagramRoute>) {
        if self.session_slots.iter().any(|slot| slot.path == path) {
            return;
        }
        if let Some(remote) = self.remote_peers.get(&path.peer_id) {
            self.state.set_route(now, remote.config_key, path.path_number, route.map(|route| route.remote));
        }
    }

    /// Gives up a stored path at which the mobile router does not answer. The router has another address by
    /// now, and begins a session from there itself.
    pub(super) fn give_up_stored_route(&mut self, now: Time, path: SessionPath) {
        if !self.session_engine.is_established(path) {
            self.session_engine.close_session(path);
            self.store_route(now, path, None);
        }
    }

    /// Sends a datagram. In a fleet, a response waits until the store has the timestamp of its initiation.
    pub(super) fn send_or_hold(&mut self, ready: ReadyDatagram) {
        if !self.state.is_shared() || ready.octets.first() != Some(&RESPONSE_TYPE) {
            self.ready_datagrams.push_back(ready);
        } else if self.held_items.items.len() < MAX_HELD_ITEMS {
            self.held_items.items.push_back((None, HeldItem::Response(ready)));
        } else {
            self.unsent_packets += 1;
        }
    }

    /// Returns the changes for the store of a fleet.
    pub fn take_changes(&mut self) -> Vec<RecordChange> {
        self.state.take_changes()
    }

    /// Assigns the changes that [`Self::take_changes`] has returned to this commit; `None` if it has returned
    /// none. Returns whether a response or a key waits for the commit.
    pub fn hold_until(&mut self, now: Time, commit: Option<u64>) -> bool {
        self.held_items.last_commit = commit.unwrap_or(self.held_items.last_commit);
        let mut has_new = false;
        for (number, _) in self.held_items.items.iter_mut().rev().take_while(|(number, _)| number.is_none()) {
            *number = Some(self.held_items.last_commit);
            has_new = true;
        }
        self.release_written_items(now);
        has_new
    }

    /// Handles the report that the store has the commit with this number.
    pub fn handle_written(&mut self, now: Time, commit: u64) {
        self.held_items.written_commit = commit;
        self.release_written_items(now);
    }

    /// Sends the responses and accepts the keys whose commit the store has.
    fn release_written_items(&mut self, now: Time) {
        let written = self.held_items.written_commit;
        while let Some((_, item)) =
            self.held_items.items.pop_front_if(|(number, _)| number.is_some_and(|number| number <= written))
        {
            match item {
                HeldItem::Response(ready) => self.ready_datagrams.push_back(ready),
                HeldItem::Keys(next) => self.use_stored_keys(now, &next),
            }
        }
    }
}

#[cfg(test)]
mod tests;
