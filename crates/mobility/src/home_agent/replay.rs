//! Replay protection state of a node, which outlives its bindings.

use serde::{Deserialize, Serialize};

/// Replay protection state of a node.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Replay {
    /// Last accepted sequence number, which outlives the binding.
    pub sequence: Option<u16>,
    /// Last accepted timestamp.
    pub timestamp: Option<u64>,
}

/// Number of sequence numbers that a key of a node has used: those between the first and the last one that
/// were accepted under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyNumbers {
    /// Fingerprint of the key: 64 bits computed from key and SPI, from which neither can be found.
    pub key: u64,
    /// Count of used numbers.
    pub numbers: u32,
}
