//! The state of a security entity, as the API shows it.
//!
//! The state contains no secret. It contains the name of the own ticket that signs now, which every receiver
//! of a message learns. It does not contain the names of the other tickets. An observer who knew all names
//! could follow the vehicle from one pseudonym to the next.

use carnet_base::Counters;
use serde::{Deserialize, Serialize};

/// Signed packets of a station: state of the security entity, and its counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Security {
    /// Policy for received messages: `strict` or `accept_unsigned`.
    pub policy: String,
    /// The ticket that signs; `null` if no ticket can sign now.
    pub ticket: Option<SecurityTicket>,
    /// Number of own tickets that are valid now.
    pub tickets_now: u64,
    /// Number of own tickets that become valid later.
    pub tickets_later: u64,
    /// End of validity of the own ticket that is valid for longest, in seconds since 1970.
    pub tickets_until: Option<u64>,
    /// Number of known certificates of roots and authorities.
    pub issuers: u64,
    /// Number of known tickets of other stations.
    pub signers: u64,
    /// Number of messages that wait for verification.
    pub queued: u64,
    /// Largest number of messages that may wait for verification; more are `queue_overflow`.
    pub queue: u64,
    /// Number of messages that wait for a certificate.
    pub parked: u64,
    /// Largest number of messages that may wait for a certificate; more are `waiting_overflow`.
    pub parking: u64,
    /// Largest number of verifications in a second.
    pub verifications_per_second: u32,
    /// Milliseconds by which this station's clock is ahead of the clocks of all neighbours that sign
    /// (negative: behind); `null` if the clock of one neighbour agrees.
    pub clock_ahead_ms: Option<i32>,
    /// Secured packets that the station received.
    pub received: u64,
    /// Secured packets that the station accepted.
    pub verified: u64,
    /// Copies of accepted packets, which other stations forwarded. The station does not verify them again.
    pub copies: u64,
    /// Unsecured packets that the station accepted.
    pub plain: u64,
    /// Signatures verified, those of certificates included.
    pub verifications: u64,
    /// Own packets that the station signed.
    pub signed: u64,
    /// Packets that the station did not accept or not send, by the reason. Only reasons that have occurred.
    pub dropped: Counters,
}

/// A certificate with which a station signs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityTicket {
    /// HashedId8 of the ticket, 16 hexadecimal digits.
    pub name: String,
    /// Begin of its validity, in seconds since 1970.
    pub from: u64,
    /// End of its validity, in seconds since 1970.
    pub until: u64,
}
