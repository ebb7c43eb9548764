//! State of the links between this member and the mobile routers.
//!
//! A lost link counts at once. Restored links count only after a pause, which starts again if they are lost
//! in the meantime. The pause grows each time that restored links are soon lost again.

use std::time::Duration;

use carnet_base::Time;

use crate::config::LeadershipConfig;
use crate::failure_pauses::FailurePauses;

/// State of the links between this member and the mobile routers.
#[derive(Debug)]
pub(crate) struct RouterLinks {
    links_lost_at: Option<Time>,
    /// Time from which restored links count as connected.
    links_connected_from: Time,
    restoration_pause: Duration,
    pauses_after_loss: FailurePauses,
}

impl RouterLinks {
    /// Creates the state of connected links.
    pub(crate) fn new(now: Time) -> RouterLinks {
        RouterLinks {
            links_lost_at: None,
            links_connected_from: now,
            restoration_pause: Duration::ZERO,
            pauses_after_loss: FailurePauses::default(),
        }
    }

    /// Handles a change of the links; returns whether the state has changed.
    pub(crate) fn handle_link_change(
        &mut self,
        now: Time,
        are_there: bool,
        config: &LeadershipConfig,
    ) -> bool {
        if are_there == self.links_lost_at.is_none() {
            return false;
        }
        if are_there {
            self.links_lost_at = None;
            self.links_connected_from = now + self.restoration_pause;
        } else {
            if self.are_links_connected(now) {
                self.restoration_pause = self
                    .pauses_after_loss
                    .next_pause(Some(now.saturating_since(self.links_connected_from)), config);
            }
            self.links_lost_at = Some(now);
        }
        true
    }

    /// Returns the time since which the links are lost; `None` if they are connected.
    pub(crate) fn links_lost_since(&self) -> Option<Time> {
        self.links_lost_at
    }

    /// Returns whether the links are connected and have been for long enough.
    pub(crate) fn are_links_connected(&self, now: Time) -> bool {
        now >= self.links_connected_from()
    }

    /// Returns the time from which the links count as connected; [`Time::MAX`] if they are lost.
    pub(crate) fn links_connected_from(&self) -> Time {
        if self.links_lost_at.is_none() { self.links_connected_from } else { Time::MAX }
    }
}
