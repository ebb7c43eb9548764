//! Hints that the home agent misses our binding: Binding Error and Binding Refresh Request.
//!
//! Nothing authenticates them and the acknowledgement that follows does not tell whether the binding had been
//! there all along. So the first is followed at once and each further one doubles the time until the next,
//! unless something has changed meanwhile that makes a lost binding likely: another care-of address, or a
//! lifetime that ended.

use std::time::Duration;

use carnet_base::{Time, WallTime};

use super::MobileRouter;
use super::binding_update_list::Exchange;
use crate::MobilityDrop;

/// Between the first hint that is followed and the next, and the least between two Binding Updates.
const HINT_INTERVAL: Duration = Duration::from_secs(1);
/// The interval doubles up to this.
const MAX_HINT_INTERVAL: Duration = Duration::from_secs(64);
/// After so long without any hint the next is a first one again.
const HINT_QUIET: Duration = Duration::from_secs(300);

/// How often hints are followed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hints {
    /// When the last one came, followed or not.
    heard: Option<Time>,
    /// When the next may be followed, and how long the wait after that one is.
    next: Option<(Time, Duration)>,
}

impl Hints {
    /// A hint has come; whether it is one to follow.
    fn allow(&mut self, now: Time) -> bool {
        let quiet = self.heard.is_none_or(|at| now.saturating_since(at) >= HINT_QUIET);
        self.heard = Some(now);
        if quiet {
            self.next = None;
        }
        self.next.is_none_or(|(at, _)| at <= now)
    }

    /// A hint was followed.
    fn followed(&mut self, now: Time) {
        let wait = self.next.map_or(HINT_INTERVAL, |(_, wait)| wait);
        self.next = Some((now + wait, (wait * 2).min(MAX_HINT_INTERVAL)));
    }
}

impl MobileRouter {
    /// An unauthenticated hint that the home agent misses our binding.
    pub(super) fn hint(&mut self, now: Time, wall: WallTime) -> Result<(), MobilityDrop> {
        if self.at_home || self.stopping || self.refused.is_some() {
            return Err(MobilityDrop::Unexpected);
        }
        if !self.hints.allow(now) {
            return Err(MobilityDrop::RateLimited);
        }
        if self.is_multiple() {
            self.register_all_again(now);
            self.reconcile(now, wall);
            self.hints.followed(now);
            return Ok(());
        }
        match self.exchange.as_ref().map(Exchange::last_sent) {
            None => self.refresh(now, wall),
            // The answer to what was just sent may be on its way.
            Some(_) if self.exchange.as_ref().is_some_and(|e| e.held) => return Ok(()),
            Some(last) if last.is_none_or(|at| now.saturating_since(at) >= HINT_INTERVAL) => {
                self.transmit(now, wall);
            }
            Some(_) => return Ok(()),
        }
        self.hints.followed(now);
        Ok(())
    }
}
