//! State of this member's connection to its routers.
//!
//! A lost connection counts at once, a restored connection after a pause. The pause restarts if the links are
//! lost meanwhile, and grows each time that they did not last.

use std::time::Duration;

use carnet_base::Time;

use crate::config::SeatConfig;
use crate::retries::Retries;

/// State of the links between this member and its routers.
#[derive(Debug)]
pub(crate) struct Links {
    lost: Option<Time>,
    /// Time from which restored links count.
    sound: Time,
    pause: Duration,
    losses: Retries,
}

impl Links {
    /// Creates the state of connected links.
    pub(crate) fn new(now: Time) -> Links {
        Links { lost: None, sound: now, pause: Duration::ZERO, losses: Retries::default() }
    }

    /// Handles a change of the links; returns whether the state has changed.
    pub(crate) fn change(&mut self, now: Time, are_there: bool, config: &SeatConfig) -> bool {
        if are_there == self.lost.is_none() {
            return false;
        }
        if are_there {
            self.lost = None;
            self.sound = now + self.pause;
        } else {
            if self.are_sound(now) {
                self.pause = self.losses.pause(Some(now.saturating_since(self.sound)), config);
            }
            self.lost = Some(now);
        }
        true
    }

    /// Returns the time since which the links are lost.
    pub(crate) fn lost(&self) -> Option<Time> {
        self.lost
    }

    /// Returns whether the links are connected and have been for long enough.
    pub(crate) fn are_sound(&self, now: Time) -> bool {
        now >= self.sound_from()
    }

    /// Returns the time from which the links count as connected, as far as known now.
    pub(crate) fn sound_from(&self) -> Time {
        if self.lost.is_none() { self.sound } else { Time::MAX }
    }
}
