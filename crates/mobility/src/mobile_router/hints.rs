//! Hints that the home agent misses our binding: Binding Error, Binding Refresh Request, and ICMPv6 errors
//! from its address about tunnelled packets.
//!
//! Nothing authenticates them and the acknowledgement that follows does not tell whether the binding had been
//! there all along. So the first is followed at once and each further one doubles the time until the next,
//! unless something has changed meanwhile that makes a lost binding likely: another care-of address, or a
//! lifetime that ended.
//!
//! An ICMPv6 error quotes a packet of ours, which the station has checked by its flow label: who made it has
//! seen that packet. Such hints have pauses of their own, so that others, which anybody can forge, do not put
//! them off. While the home agent acknowledges nothing, they are followed every [`DEMAND_INTERVAL`], for they
//! come only while traffic waits.

use std::time::Duration;

use carnet_base::Time;

use super::DEMAND_INTERVAL;

/// Between the first hint that is followed and the next, and the least between two Binding Updates.
pub(super) const HINT_INTERVAL: Duration = Duration::from_secs(1);
/// The interval doubles up to this.
const MAX_HINT_INTERVAL: Duration = Duration::from_secs(64);
/// After so long without any hint the next is a first one again.
const HINT_QUIET: Duration = Duration::from_secs(300);

/// How often hints are followed: those that quote a packet of ours, and all others.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hints {
    proven: Pauses,
    others: Pauses,
}

impl Hints {
    fn of(&mut self, is_proven: bool) -> &mut Pauses {
        if is_proven { &mut self.proven } else { &mut self.others }
    }

    /// Whether the router follows a hint that has come now.
    pub(super) fn allow(&mut self, now: Time, is_proven: bool) -> bool {
        self.of(is_proven).allow(now)
    }

    /// Notes that the router has followed a hint.
    pub(super) fn followed(&mut self, now: Time, is_proven: bool) {
        self.of(is_proven).followed(now);
        if is_proven {
            self.proven.waits_since = Some(now);
        }
    }

    /// The home agent has acknowledged a registration.
    pub(super) fn acknowledged(&mut self) {
        self.proven.waits_since = None;
    }
}

/// How often hints of one kind are followed.
#[derive(Debug, Clone, Copy, Default)]
struct Pauses {
    /// When the last one came, followed or not.
    heard: Option<Time>,
    /// When the next may be followed, and how long the wait after that one is.
    next: Option<(Time, Duration)>,
    /// When one was followed that the home agent has not answered yet by acknowledging a registration.
    waits_since: Option<Time>,
}

impl Pauses {
    /// A hint has come; whether it is one to follow.
    fn allow(&mut self, now: Time) -> bool {
        let quiet = self.heard.is_none_or(|at| now.saturating_since(at) >= HINT_QUIET);
        self.heard = Some(now);
        if quiet {
            self.next = None;
        }
        let waits = self.waits_since.is_some_and(|at| now.saturating_since(at) >= DEMAND_INTERVAL);
        waits || self.next.is_none_or(|(at, _)| at <= now)
    }

    /// A hint was followed.
    fn followed(&mut self, now: Time) {
        let wait = self.next.map_or(HINT_INTERVAL, |(_, wait)| wait);
        self.next = Some((now + wait, (wait * 2).min(MAX_HINT_INTERVAL)));
    }
}
