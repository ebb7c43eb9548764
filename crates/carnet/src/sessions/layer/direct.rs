//! Sessions with other mobile routers, for direct routes (`docs/tunnel.md`, "Direct routes").
//!
//! The station names the keys of these routers; the config does not have them. Two routers have at most two
//! sessions: one that this end has begun, and one that the other end has begun. The path number says which
//! one. A session has no addresses of its own. The station chooses the addresses of each datagram, because
//! the direct route has tested them, so a handover needs no handshake.

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use carnet_base::{Endpoint, Time};
use carnet_mobility::{SessionPeer, UDP_PORT};
use carnet_wire::ipv6::{Header, protocol};
use carnet_wireguard::{
    DatagramRoute, Output, PathNumber, PeerId, PublicKey, ReceivedDatagram, RemotePeer, SessionPath,
};

use super::{
    MAX_PENDING_PACKETS, MAX_PENDING_TIME, MAX_SIGNALLING_SILENCE, PendingPacket, SIGNALLING_SILENCE,
    SessionArrival, SessionPacketOrigin, Sessions, traffic_class_of,
};

/// Maximum number of local addresses from which direct routes have sessions.
const MAX_LOCAL_ADDRESSES: usize = 16;

/// Path numbers of the two sessions. The end with the smaller public key begins the first session.
const PATH_NUMBERS: [u8; 2] = [1, 2];

/// One of the two sessions with another mobile router. Each end begins one of them.
#[derive(Debug, Clone, Copy)]
struct DirectSession {
    path: SessionPath,
    /// Time of the last message that came out of the session, or of its handshake; `None` before both.
    received_at: Option<Time>,
}

/// Another mobile router, with its sessions for direct routes.
#[derive(Debug)]
struct DirectPeer {
    peer: PeerId,
    key: PublicKey,
    /// The sessions in the order of [`PATH_NUMBERS`].
    sessions: [DirectSession; 2],
    /// Packets that wait for a session, with their routes.
    pending_packets: VecDeque<(PendingPacket, DatagramRoute)>,
    /// Remote address of the last datagram that this station has sent; `None` before the first datagram.
    last_remote: Option<Ipv6Addr>,
    /// Time of the first message to the router since its last answer; `None` if no answer is missing.
    unanswered_since: Option<Time>,
    /// Time of the next handshake if no answer arrives until then. `patience` is the time between two of
    /// these handshakes.
    next_handshake_at: Time,
    silence_limit: Duration,
}

/// All sessions with other mobile routers.
#[derive(Debug, Default)]
pub(super) struct DirectSessions {
    peers: HashMap<SessionPeer, DirectPeer>,
    session_by_peer: HashMap<PeerId, SessionPeer>,
    /// Care-of addresses from which sessions run, each with its socket number in the engine.
    sockets: VecDeque<(u32, Ipv6Addr)>,
}

impl DirectSessions {
    pub(super) fn local_address_of_socket(&self, socket: u32) -> Option<Ipv6Addr> {
        self.sockets.iter().find(|(number, _)| *number == socket).map(|(_, local)| *local)
    }

    pub(super) fn socket_of_local_address(&self, local: Ipv6Addr) -> Option<u32> {
        self.sockets.iter().find(|(_, known)| *known == local).map(|(number, _)| *number)
    }

    /// Returns whether this station last sent to one of the mobile routers at this address.
    pub(super) fn has_remote(&self, remote: Ipv6Addr) -> bool {
        self.peers.values().any(|peer| peer.last_remote == Some(remote))
    }

    fn peer_mut(&mut self, id: PeerId) -> Option<&mut DirectPeer> {
        self.peers.get_mut(self.session_by_peer.get(&id)?)
    }

    pub(super) fn is_direct(&self, id: PeerId) -> bool {
        self.session_by_peer.contains_key(&id)
    }

    pub(super) fn has_session(&self, session: SessionPeer) -> bool {
        self.peers.contains_key(&session)
    }
}

impl DirectPeer {
    /// Records that a message or a handshake has arrived over the session of this path.
    fn record_arrival(&mut self, now: Time, path: SessionPath) {
        for session in self.sessions.iter_mut().filter(|session| session.path == path) {
            session.received_at = Some(now);
        }
        (self.unanswered_since, self.silence_limit) = (None, SIGNALLING_SILENCE);
    }
}

/// Returns whether a packet is a Mobility Header message between these two addresses, as direct routes use
/// it.
fn is_direct_route_message(packet: &[u8], local: Ipv6Addr, remote: Ipv6Addr) -> bool {
    Header::parse(packet).is_ok_and(|header| {
        header.next_header == protocol::MOBILITY && (header.source, header.destination) == (local, remote)
    })
}

impl Sessions {
    /// Sets the local care-of addresses of sessions with other mobile routers. From other addresses there are
    /// no such sessions.
    pub fn set_care_of_addresses(&mut self, addresses: &[Ipv6Addr]) {
        self.direct_sessions.sockets.retain(|(_, local)| addresses.contains(local));
        for address in addresses.iter().take(MAX_LOCAL_ADDRESSES) {
            if self.direct_sessions.socket_of_local_address(*address).is_none() {
                let socket = self.new_socket_number();
                self.direct_sessions.sockets.push_back((socket, *address));
            }
        }
    }

    /// Permits sessions with the mobile router that has this key. `session` is the number by which the
    /// station names the key.
    pub fn accept_key(&mut self, now: Time, session: SessionPeer, key: [u8; 32]) {
        self.end_direct(session);
        let key = PublicKey::from(key);
        let own_keys = self.session_engine.public_keys();
        let is_taken = own_keys.contains(&key)
            || self.remote_peers.values().any(|it| it.remote_peer.public_keys.contains(&key));
        if is_taken {
            return;
        }
        let peer = self.new_peer_id();
        let remote = RemotePeer { peer_id: peer, public_keys: vec![key], preshared_key: None };
        if !self.session_engine.set_peer(now, remote) {
            return;
        }
        let sessions = PATH_NUMBERS.map(|number| DirectSession {
            path: SessionPath { peer_id: peer, path_number: PathNumber::new(number).unwrap_or_default() },
            received_at: None,
        });
        self.direct_sessions.session_by_peer.insert(peer, session);
        self.direct_sessions.peers.insert(
            session,
            DirectPeer {
                peer,
                key,
                sessions,
                pending_packets: VecDeque::new(),
                last_remote: None,
                unanswered_since: None,
                next_handshake_at: now,
                silence_limit: SIGNALLING_SILENCE,
            },
        );
    }

    /// Ends the sessions with a mobile router that [`Self::accept_key`] has permitted.
    pub fn end_direct(&mut self, session: SessionPeer) {
        if let Some(peer) = self.direct_sessions.peers.remove(&session) {
            self.direct_sessions.session_by_peer.remove(&peer.peer);
            self.session_engine.forget_peer(peer.peer);
        }
    }

    /// Ends the direct-route sessions with this key, because the config or a home agent names the same key. A
    /// key belongs to one remote end only.
    pub(super) fn release_key(&mut self, key: PublicKey) {
        let of_key =
            self.direct_sessions.peers.iter().find(|(_, peer)| peer.key == key).map(|(session, _)| *session);
        of_key.into_iter().for_each(|session| self.end_direct(session));
    }

    /// Sends a packet to another mobile router, between the care-of addresses of the station.
    pub(super) fn send_to_other_router(
        &mut self,
        now: Time,
        session: SessionPeer,
        (local, remote): (Endpoint, Endpoint),
        may_fragment: bool,
        packet: &[u8],
    ) {
        let (Endpoint::Ipv6(local), Endpoint::Ipv6(remote)) = (local, remote) else {
            self.unsent_packets += 1;
            return;
        };
        let (Some(socket), Some(peer)) = (
            self.direct_sessions.socket_of_local_address(local),
            self.direct_sessions.peers.get_mut(&session),
        ) else {
            self.unsent_packets += 1;
            return;
        };
        let route = DatagramRoute { socket, remote: SocketAddr::from((remote, UDP_PORT)) };
        peer.last_remote = Some(remote);
        // Compare the newest key of this station: it is the key that the other end knows.
        let is_second =
            self.session_engine.public_keys().first().is_some_and(|own| own.octets() > peer.key.octets());
        let own_path = peer.sessions[usize::from(is_second)].path;
        let mut is_silent = false;
        if is_direct_route_message(packet, local, remote) {
            match peer.unanswered_since {
                None => {
                    peer.unanswered_since = Some(now);
                    peer.next_handshake_at = now + peer.silence_limit;
                }
                Some(_) if peer.next_handshake_at <= now => {
                    peer.silence_limit = (peer.silence_limit * 2).min(MAX_SIGNALLING_SILENCE);
                    peer.next_handshake_at = now + peer.silence_limit;
                    is_silent = true;
                }
                Some(_) => {}
            }
        }
        let path = self.established_path(session);
        // A session that is established, or whose handshake over this route is in progress, needs no further
        // handshake.
        let needs_session = path.is_none() && self.session_engine.route(own_path) != Some(route);
        if is_silent || needs_session {
            self.session_engine.open_session(now, own_path, route);
        }
        if is_silent {
            // The other end does not answer, so it may have lost its sessions.
            self.session_engine.renew_handshake(now, own_path);
        }
        let traffic_class = traffic_class_of(packet);
        if let Some(path) = path {
            if self.session_engine.route(path) != Some(route) {
                self.session_engine.set_path_route(path, route);
            }
            return self.encrypt_packet(now, path, route, traffic_class, may_fragment, packet);
        }
        let Some(peer) = self.direct_sessions.peers.get_mut(&session) else { return };
        peer.pending_packets
            .retain(|(pending, _)| now.saturating_since(pending.queued_at) < MAX_PENDING_TIME);
        if peer.pending_packets.len() < MAX_PENDING_PACKETS {
            let pending =
                PendingPacket { queued_at: now, payload: packet.to_vec(), traffic_class, may_fragment };
            peer.pending_packets.push_back((pending, route));
        } else {
            self.unsent_packets += 1;
        }
    }

    /// Returns the session for packets to a router; `None` if none is established. If both sessions are
    /// established, it is the first one. But if only the second one has lately received messages, the remote
    /// end has lost the first one, and the second one is returned.
    fn established_path(&self, session: SessionPeer) -> Option<SessionPath> {
        let peer = self.direct_sessions.peers.get(&session)?;
        let [first, second] =
            peer.sessions.map(|it| Some(it).filter(|it| self.session_engine.is_established(it.path)));
        match (first, second) {
            (Some(first), Some(second)) => {
                let is_stale_socket =
                    second.received_at > first.received_at.map(|at| at + SIGNALLING_SILENCE);
                Some(if is_stale_socket { second.path } else { first.path })
            }
            (one, other) => one.or(other).map(|it| it.path),
        }
    }

    /// Decrypts a datagram that came to a care-of address from another mobile router.
    pub(super) fn open_from_router(
        &mut self,
        now: Time,
        route: DatagramRoute,
        ends: (Endpoint, Endpoint),
        traffic_class: u8,
        octets: &[u8],
    ) -> SessionArrival {
        let received = self.session_engine.receive_datagram(now, route, octets, &mut self.payload);
        let ReceivedDatagram::Payload { path, payload, .. } = received else {
            return SessionArrival::Consumed;
        };
        let length = payload.len();
        let is_packet = payload.first().is_some_and(|first| matches!(first >> 4, 4 | 6));
        let session = self.direct_sessions.session_by_peer.get(&path.peer_id).copied();
        let (Some(session), true) = (session, is_packet) else {
            self.refused_packets += 1;
            return SessionArrival::Consumed;
        };
        if let Some(peer) = self.direct_sessions.peers.get_mut(&session) {
            peer.record_arrival(now, path);
        }
        self.payload_length = length;
        SessionArrival::Packet(SessionPacketOrigin {
            session_peer: session,
            tunnel_ends: ends,
            traffic_class,
        })
    }

    /// Handles an output of the engine about the session with another mobile router. Returns the output if
    /// it concerns another session.
    pub(super) fn apply_direct(&mut self, now: Time, output: Output) -> Option<Output> {
        let path = match &output {
            Output::Send { .. } | Output::UnknownKey { .. } => return Some(output),
            Output::Established { path, .. }
            | Output::Moved { path, .. }
            | Output::Elsewhere { path, .. }
            | Output::Accepted { path, .. }
            | Output::OldTimestamp { path }
            | Output::NoAnswer { path }
            | Output::Ended { path } => *path,
        };
        if !self.direct_sessions.is_direct(path.peer_id) {
            return Some(output);
        }
        let peer = self.direct_sessions.peer_mut(path.peer_id)?;
        match output {
            Output::Established { .. } => {
                peer.record_arrival(now, path);
                tracing::debug!(
                    "the session with the mobile router with the key {} is established",
                    peer.key
                );
                for (pending, route) in std::mem::take(&mut peer.pending_packets) {
                    self.encrypt_pending(now, path, route, &pending);
                }
            }
            Output::NoAnswer { .. } => {
                // Do not try again here: the next message of the direct route begins a new handshake.
                tracing::debug!("the mobile router with the key {} answers no handshake", peer.key);
                peer.pending_packets.clear();
                self.session_engine.close_session(path);
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests;
