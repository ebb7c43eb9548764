//! Encrypted sessions between mobile routers and home agents (`docs/tunnel.md`): the layer between the
//! station and the wire.
//!
//! The station names the remote key of each packet for a session, and this module encrypts the packet for the
//! path. It finds the key of a signalling message by the message's addresses. A received datagram goes to the
//! station as a packet, with the remote key and with the tunnel ends of the outer header. So no payload
//! decides to which address the home agent sends.
//!
//! * **Paths.** A mobile router has one session for each of its addresses and each home agent. The number in
//!   the handshake is the place of the address in a table of 15. The address that was unused for the longest
//!   time loses its place.
//! * Datagrams over IPv6 pass the tunnel device, as packets in the clear do. Datagrams over IPv4 pass the
//!   tunnel sockets.
//! * A session begins when an uplink has an address. The first packets of a path wait for its handshake, at
//!   most 16 of them.
//! * If signalling has no answer for 1.2 s, the mobile router begins a handshake: the home agent may have
//!   lost its sessions.
//! * `NAME.sessions` in `station.state_dir` has the newest timestamp of this end, the timestamps that it has
//!   accepted, and the routes of paths. In a fleet the store has them.
//! * A home agent that starts or takes over begins handshakes by the stored routes (`layer/fleet.rs`).
//! * While an operator replaces the key of an end, each path has a session for each pair of keys
//!   (`layer/keys.rs`).
//! * Sessions with other mobile routers, for direct routes, have keys that the station names
//!   (`layer/direct.rs`).
//!
//! Left out: sessions with neighbours in radio range, WireGuard in the kernel, and TLS.
#![cfg_attr(
    not(feature = "wireguard"),
    allow(dead_code, reason = "without the feature no packet is of a session")
)]

#[cfg(not(feature = "wireguard"))]
mod absent;
#[cfg(feature = "wireguard")]
mod layer;
#[cfg(feature = "wireguard")]
mod state;

use carnet_base::Endpoint;
use carnet_mobility::SessionPeer;

#[cfg(not(feature = "wireguard"))]
pub use absent::Sessions;
#[cfg(feature = "wireguard")]
pub use layer::Sessions;

/// Whether this program has encrypted sessions.
pub const SESSIONS_BUILT_IN: bool = cfg!(feature = "wireguard");

/// Kind of a received packet or datagram.
#[derive(Debug, PartialEq, Eq)]
pub enum SessionArrival {
    /// The packet or datagram is not for a session, and the station handles it.
    Foreign,
    /// The buffer has the packet that came out of a session.
    Packet(SessionPacketOrigin),
    /// The datagram was a message of the protocol, or the engine has dropped it.
    Consumed,
}

/// Origin of a packet that came out of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionPacketOrigin {
    /// Key of the remote end.
    pub session_peer: SessionPeer,
    /// Tunnel ends in the outer header: local, remote.
    pub tunnel_ends: (Endpoint, Endpoint),
    /// DSCP and ECN of the outer header.
    pub traffic_class: u8,
}

/// Result of sending a packet.
#[derive(Debug, PartialEq, Eq)]
pub enum SessionDeparture {
    /// The packet is not for a session; the caller sends it in the clear.
    Clear,
    /// The packet is consumed; [`Sessions::poll_datagram`] returns the datagrams to send.
    Consumed,
}

/// A datagram to send; its octets are in [`Sessions::outgoing_packet_mut`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutgoingDatagram {
    /// A whole IPv6 packet for the tunnel device.
    Ipv6 {
        /// Whether this station may fragment the packet.
        may_fragment: bool,
    },
    /// The content of a UDP datagram for a tunnel socket.
    Udp {
        /// Local address and port of the tunnel socket.
        local: Endpoint,
        /// Address and port of the destination.
        remote: Endpoint,
        /// DSCP and ECN of the outer header.
        traffic_class: u8,
        /// Whether routers may fragment the datagram.
        may_fragment: bool,
    },
}
