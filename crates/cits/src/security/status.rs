//! The state of a security entity.

use carnet_base::WallTime;
use carnet_security::ids::HashedId8;

/// State of a security entity, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityState {
    /// Policy for received messages.
    pub policy: carnet_security::Policy,
    /// Ticket that signs: its name, and its validity period. `None` if no ticket can sign now.
    pub ticket: Option<(HashedId8, WallTime, WallTime)>,
    /// Number of own tickets that are valid now, and number of own tickets that become valid later.
    pub own_tickets: (usize, usize),
    /// End of validity of the own ticket that is valid for longest.
    pub until: Option<WallTime>,
    /// Number of known root certificates and authorities.
    pub issuers: usize,
    /// Number of known tickets of other stations.
    pub tickets: usize,
    /// Number of messages that wait for verification now, and its largest value so far.
    pub queued: (usize, usize),
    /// Number of messages that wait for a certificate now, and its largest value so far.
    pub parked: (usize, usize),
    /// Largest number of verifications in a second.
    pub verifications_per_second: u32,
    /// Milliseconds by which the station's clock is ahead of the clocks of all neighbours that sign; `None`
    /// if the clock of one neighbour agrees.
    pub clock_ahead_ms: Option<i64>,
}
