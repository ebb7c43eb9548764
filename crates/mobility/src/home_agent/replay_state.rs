//! Replay protection state of a node, which remains when its bindings end.

use serde::{Deserialize, Serialize};

/// Replay protection state of a node.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReplayState {
    /// Last sequence number that the home agent accepted from the node; `None` before the first one.
    pub sequence: Option<u16>,
    /// Last NTP timestamp that the home agent accepted from the node; `None` before the first one.
    pub timestamp: Option<u64>,
}

/// Number of sequence numbers that a node has used under one key: those from the first to the last accepted
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyNumbers {
    /// Fingerprint of the key: 64 bits computed from key and SPI. They do not reveal key or SPI.
    pub key: u64,
    /// Number of used sequence numbers.
    pub numbers: u32,
}
