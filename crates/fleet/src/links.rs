//! State of this member's connection to its routers.
//!
//! A lost connection counts at once. A restored one counts after a pause. The pause begins anew if the links
//! are lost meanwhile, and grows each time that they did not last.

use std::time::Duration;

use carnet_base::Time;

use crate::config::SeatConfig;
use crate::retries::Retries;

/// See the module.
#[derive(Debug)]
pub(crate) struct Links {
    lost: Option<Time>,
    /// From when on they count, if they are not lost.
    sound: Time,
    pause: Duration,
    losses: Retries,
}

impl Links {
    /// Links that are there.
    pub(crate) fn new(now: Time) -> Links {
        Links { lost: None, sound: now, pause: Duration::ZERO, losses: Retries::default() }
    }

    /// Takes note whether they are there; whether that is news.
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

    /// Since when they are lost.
    pub(crate) fn lost(&self) -> Option<Time> {
        self.lost
    }

    /// Whether they are there, and have been for long enough.
    pub(crate) fn are_sound(&self, now: Time) -> bool {
        now >= self.sound_from()
    }

    /// When they are, as far as is known now.
    pub(crate) fn sound_from(&self) -> Time {
        if self.lost.is_none() { self.sound } else { Time::MAX }
    }
}
