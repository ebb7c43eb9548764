//! `[security]` of the config file: who is believed, and with what the station signs.

use std::path::PathBuf;
use std::time::Duration;

/// `[security]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Security {
    /// Whom to believe.
    pub policy: SecurityPolicy,
    /// Files with the certificates of roots that are trusted.
    pub roots: Vec<PathBuf>,
    /// Files with the certificates of authorities below them, each behind the one that issued it.
    pub authorities: Vec<PathBuf>,
    /// Folder with the station's tickets and their keys; `None`: it signs nothing.
    pub tickets: Option<PathBuf>,
    /// Names of certificates (HashedId8) that nobody shall believe any more.
    pub revoked: Vec<[u8; 8]>,
    /// Verifications in a second at most.
    pub verifications_per_second: u32,
    /// When the station becomes another one; `None`: it stays who it is.
    pub pseudonyms: Option<Pseudonyms>,
}

/// `[security.pseudonyms]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pseudonyms {
    /// Metres until the first change, from the least to the most.
    pub first_distance_m: (u16, u16),
    /// Metres between changes.
    pub distance_m: u16,
    /// Time on top of that, from the least to the most.
    pub time: (Duration, Duration),
    /// How long a change may be held back.
    pub longest_lock: Duration,
}

/// `security.policy`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecurityPolicy {
    /// Nothing is signed or verified, as without the table.
    Off,
    /// Own packets are signed, signed ones verified, those in the open believed.
    AcceptUnsigned,
    /// What is not signed by somebody who may is dropped.
    Strict,
}

impl SecurityPolicy {
    /// All of them, with their names in the config file.
    pub const NAMES: [(&str, SecurityPolicy); 3] = [
        ("off", SecurityPolicy::Off),
        ("accept_unsigned", SecurityPolicy::AcceptUnsigned),
        ("strict", SecurityPolicy::Strict),
    ];
}
