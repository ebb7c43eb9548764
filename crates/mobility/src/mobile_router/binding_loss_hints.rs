//! Hints that the home agent has lost this router's binding: Binding Error, Binding Refresh Request, and
//! ICMPv6 errors from the home agent's address about tunnelled packets.
//!
//! A hint has no authentication, and the next acknowledgement does not show whether the binding was lost. So
//! the router sends a Binding Update at once after the first hint only. The minimum time until the next
//! update doubles with each further hint that the router follows. The time starts again at its minimum after
//! a change that makes a lost binding likely: another care-of address, or the end of a lifetime.
//!
//! An ICMPv6 error quotes a packet of this router, which the station has checked by its flow label. So its
//! sender is on the path. Such hints have their own pauses, so that forged hints of other kinds do not delay
//! them. While the home agent acknowledges nothing, the router follows them every
//! [`WAITING_PACKET_INTERVAL`], because they arrive only while packets wait.

use std::time::Duration;

use carnet_base::Time;

use super::WAITING_PACKET_INTERVAL;

/// Pause between the first hint that the router follows and the next. It is also the minimum time between two
/// Binding Updates after hints.
pub(super) const HINT_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum pause between two hints that the router follows.
const MAX_HINT_INTERVAL: Duration = Duration::from_secs(64);
/// Time without a hint after which the pause starts again at its minimum.
const HINT_RESET_TIME: Duration = Duration::from_secs(300);

/// Pauses between hints that the router follows: one for hints that quote a packet of this router, and one
/// for all others.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BindingLossHints {
    proven_hint_pauses: HintPauses,
    unproven_hint_pauses: HintPauses,
}

impl BindingLossHints {
    fn pauses_of(&mut self, is_proven: bool) -> &mut HintPauses {
        if is_proven { &mut self.proven_hint_pauses } else { &mut self.unproven_hint_pauses }
    }

    /// Returns whether the router follows a hint that arrives now. `is_proven` says whether the hint quotes a
    /// packet of this router.
    pub(super) fn allow_hint(&mut self, now: Time, is_proven: bool) -> bool {
        self.pauses_of(is_proven).allow_hint(now)
    }

    /// Records that the router has followed a hint.
    pub(super) fn record_followed_hint(&mut self, now: Time, is_proven: bool) {
        self.pauses_of(is_proven).record_followed_hint(now);
        if is_proven {
            self.proven_hint_pauses.waits_for_acknowledgement_since = Some(now);
        }
    }

    /// Records that the home agent has acknowledged a registration.
    pub(super) fn record_acknowledgement(&mut self) {
        self.proven_hint_pauses.waits_for_acknowledgement_since = None;
    }
}

/// Pauses between hints of one kind.
#[derive(Debug, Clone, Copy, Default)]
struct HintPauses {
    /// Time of the last hint, followed or not; `None` before the first one.
    last_hint_at: Option<Time>,
    /// Time from which the router may follow the next hint, and the pause after that hint. `None` if the
    /// router may follow it at once.
    next_allowed_at: Option<(Time, Duration)>,
    /// Time of the first followed hint since the last acknowledged registration; `None` if the router has
    /// followed none since then.
    waits_for_acknowledgement_since: Option<Time>,
}

impl HintPauses {
    /// Handles a hint; returns whether the router follows it.
    fn allow_hint(&mut self, now: Time) -> bool {
        let quiet = self.last_hint_at.is_none_or(|at| now.saturating_since(at) >= HINT_RESET_TIME);
        self.last_hint_at = Some(now);
        if quiet {
            self.next_allowed_at = None;
        }
        let waits = self
            .waits_for_acknowledgement_since
            .is_some_and(|at| now.saturating_since(at) >= WAITING_PACKET_INTERVAL);
        waits || self.next_allowed_at.is_none_or(|(at, _)| at <= now)
    }

    /// Records that the router has followed a hint.
    fn record_followed_hint(&mut self, now: Time) {
        let wait = self.next_allowed_at.map_or(HINT_INTERVAL, |(_, wait)| wait);
        self.next_allowed_at = Some((now + wait, (wait * 2).min(MAX_HINT_INTERVAL)));
    }
}
