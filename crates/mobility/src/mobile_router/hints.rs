//! Hints that the home agent lacks this router's binding: Binding Error, Binding Refresh Request, and ICMPv6
//! errors from its address about tunnelled packets.
//!
//! A hint has no authentication, and the next acknowledgement does not show whether the binding was really
//! missing. So the router follows the first hint at once, and each further one doubles the time until the
//! next. After a change that makes a lost binding likely, the doubling begins anew: another care-of address,
//! or a lifetime that ended.
//!
//! An ICMPv6 error quotes a packet of this router, which the station has checked by its flow label: its
//! sender has seen that packet. Such hints have pauses of their own, so that others, which strangers can
//! forge, do not delay them. While the home agent acknowledges nothing, the router follows them every
//! [`DEMAND_INTERVAL`], because they come only while traffic waits.

use std::time::Duration;

use carnet_base::Time;

use super::DEMAND_INTERVAL;

/// Pause between the first hint that is followed and the next. It is also the least time between two Binding
/// Updates.
pub(super) const HINT_INTERVAL: Duration = Duration::from_secs(1);
/// Longest pause, up to which the pause doubles.
const MAX_HINT_INTERVAL: Duration = Duration::from_secs(64);
/// Time without any hint after which the next counts as a first one.
const HINT_QUIET: Duration = Duration::from_secs(300);

/// Pauses between followed hints: those that quote a packet of this router, and all others.
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

    /// Records that the router has followed a hint.
    pub(super) fn followed(&mut self, now: Time, is_proven: bool) {
        self.of(is_proven).followed(now);
        if is_proven {
            self.proven.waits_since = Some(now);
        }
    }

    /// Records that the home agent has acknowledged a registration.
    pub(super) fn acknowledged(&mut self) {
        self.proven.waits_since = None;
    }
}

/// Pauses between followed hints of one kind.
#[derive(Debug, Clone, Copy, Default)]
struct Pauses {
    /// Time of the last hint, followed or not.
    heard: Option<Time>,
    /// Time from which the next hint may be followed, and the pause after that one.
    next: Option<(Time, Duration)>,
    /// Time of a followed hint that no acknowledged registration has answered yet.
    waits_since: Option<Time>,
}

impl Pauses {
    /// Takes a hint; returns whether to follow it.
    fn allow(&mut self, now: Time) -> bool {
        let quiet = self.heard.is_none_or(|at| now.saturating_since(at) >= HINT_QUIET);
        self.heard = Some(now);
        if quiet {
            self.next = None;
        }
        let waits = self.waits_since.is_some_and(|at| now.saturating_since(at) >= DEMAND_INTERVAL);
        waits || self.next.is_none_or(|(at, _)| at <= now)
    }

    /// Records that a hint was followed.
    fn followed(&mut self, now: Time) {
        let wait = self.next.map_or(HINT_INTERVAL, |(_, wait)| wait);
        self.next = Some((now + wait, (wait * 2).min(MAX_HINT_INTERVAL)));
    }
}
