//! What signs and verifies, for operators. There is nothing secret in it: no key, and of the own tickets only
//! the name of the one that signs, which everybody hears anyway. Who knew the names of all could follow the
//! vehicle from one pseudonym to the next.

use super::Counters;
use serde::{Deserialize, Serialize};

/// Body of `POST /v1/pseudonym`: without `lock_s` the station is another one at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PseudonymRequest {
    /// Seconds for which the station keeps its pseudonym, because the safety of others depends on recognising
    /// it; 0 ends this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_s: Option<u32>,
}

/// Signed packets of a station, as they stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Security {
    /// Who is believed: `strict` or `accept_unsigned`.
    pub policy: String,
    /// The ticket that signs; `null` where nothing is signed now.
    pub ticket: Option<SecurityTicket>,
    /// Own tickets that hold now.
    pub tickets_now: u64,
    /// Own tickets that will hold later.
    pub tickets_later: u64,
    /// When the last of them ends, in seconds since 1970.
    pub tickets_until: Option<u64>,
    /// Certificates of roots and authorities that are known.
    pub issuers: u64,
    /// Tickets of others that are known.
    pub signers: u64,
    /// Messages that wait for verification.
    pub queued: u64,
    /// So many may wait, then `queue_overflow`.
    pub queue: u64,
    /// Messages that wait for a certificate.
    pub parked: u64,
    /// So many may wait for one, then `waiting_overflow`.
    pub parking: u64,
    /// Verifications in a second at most.
    pub verifications_per_second: u32,
    /// By how many milliseconds this station's clock is ahead of those of all signed neighbours (negative:
    /// behind), where none of their messages is in time; else `null`.
    pub clock_ahead_ms: Option<i32>,
    /// Secured packets that came.
    pub received: u64,
    /// Those of them that were believed.
    pub verified: u64,
    /// Copies of such, which others sent on and which were not verified again.
    pub copies: u64,
    /// Packets in the open that were believed.
    pub plain: u64,
    /// Signatures verified, those of certificates included.
    pub verifications: u64,
    /// Own packets that were signed.
    pub signed: u64,
    /// Packets that were not believed or not sent, by the reason, without those of which there were none.
    pub dropped: Counters,
}

/// A certificate with which a station signs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityTicket {
    /// Its HashedId8, 16 hexadecimal digits.
    pub name: String,
    /// From when it holds, in seconds since 1970.
    pub from: u64,
    /// Until when.
    pub until: u64,
}
