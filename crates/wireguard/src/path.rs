//! A path: one key of a peer, over one uplink of the mobile router.

use crate::PeerId;

/// Number of an uplink of the mobile router. The handshake of a path carries the number inside its encrypted
/// timestamp (see [`crate::HandshakeTimestamp`]).
///
/// Number 0 stands for a path without a number: a mobile router with one uplink, or a WireGuard peer that
/// does not know carnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PathNumber(u8);

impl PathNumber {
    /// The path without a number.
    pub const UNNUMBERED: PathNumber = PathNumber(0);
    /// The largest path number. So a home agent has at most 16 sessions for each key pair.
    pub const MAX_NUMBER: u8 = 15;

    /// Returns the path of this number; `None` above [`PathNumber::MAX_NUMBER`].
    pub fn new(number: u8) -> Option<PathNumber> {
        (number <= PathNumber::MAX_NUMBER).then_some(PathNumber(number))
    }

    /// Returns the path number.
    pub fn get(self) -> u8 {
        self.0
    }
}

/// One key of a peer, over one uplink of the mobile router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionPath {
    /// The key of the remote end.
    pub peer_id: PeerId,
    /// The uplink of the mobile router.
    pub path_number: PathNumber,
}
