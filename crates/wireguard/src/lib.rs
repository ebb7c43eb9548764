//! WireGuard sessions of mobile router and home agent, without I/O.
//!
//! A WireGuard session has one remote endpoint, but a mobile router has several uplinks. So each path (one
//! key of a peer, one uplink number) has a session of its own. [`SessionEngine`] holds the sessions of one
//! station. The caller passes datagrams and the time, and sends the datagrams that the engine returns.
//! `docs/tunnel.md` describes the octets.
//!
//! The library `sanstun` implements the whole cryptography and the protocol's state machine. This crate adds:
//!
//! * the path number inside the handshake's timestamp ([`PathNumber`]), and replay protection for each path;
//! * sessions of old and new keys side by side, while an end exchanges its key;
//! * two bounded queues for handshakes, so that data do not wait behind them;
//! * retransmission of a lost handshake after 250 ms, doubled each time;
//! * a least date for the handshake's timestamp, for routers without a battery clock;
//! * counters of drops, by reason.
//!
//! Left out: padding and content of a payload. The caller parses a payload by the lengths in it.
#![forbid(unsafe_code)]

mod drop_reason;
mod engine;
mod handshake_queue;
mod key;
mod path;
mod session;
mod timestamp;
mod unknown_keys;

pub use drop_reason::WireguardDropReason;
pub use engine::{
    EngineSettings, KeyPair, KeyPairId, Output, PeerId, ReceivedDatagram, RemotePeer, SessionEngine,
    engine_start_date,
};
pub use key::{KeyError, PresharedKey, PrivateKey, PublicKey};
pub use path::{PathNumber, SessionPath};
pub use session::DatagramRoute;
pub use timestamp::HandshakeTimestamp;

/// Octets that a data message adds to its padded payload: header 16, authentication tag 16.
pub const DATA_MESSAGE_OVERHEAD: usize = 32;

/// A payload is padded with zeros to a multiple of this number of octets.
pub const PADDING_MULTIPLE: usize = 16;

/// Returns the length of the datagram that carries a payload of `length` octets.
pub fn datagram_length(length: usize) -> usize {
    length.next_multiple_of(PADDING_MULTIPLE) + DATA_MESSAGE_OVERHEAD
}
