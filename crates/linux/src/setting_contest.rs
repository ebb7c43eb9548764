//! Limits how often the installer corrects a setting that another program on this machine changes again and
//! again. The place of the local table's rule counts as a setting.
//!
//! The installer corrects the first [`IMMEDIATE_CORRECTIONS`] changes of a setting at once. That is enough
//! for a hardening file that is applied once, or a network manager that restarts. If a program changes the
//! setting more often, the pauses before a correction grow to [`MAX_CORRECTION_PAUSE_S`] seconds. So the two
//! programs do not keep the machine busy. The installer never gives up, because the vehicle's network depends
//! on it. An operator who wants another value stops the station.

/// Number of changes that the installer corrects at once.
const IMMEDIATE_CORRECTIONS: u32 = 3;
/// Longest time between a change and its correction, in seconds.
const MAX_CORRECTION_PAUSE_S: u32 = 64;
/// Seconds without another change after which the earlier changes no longer count.
const CONTEST_OVER_AFTER_S: u32 = 120;

/// State of the contest between carnet and another program for the value of one setting.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SettingContest {
    /// Number of changes by another program that followed each other within [`CONTEST_OVER_AFTER_S`] seconds.
    consecutive_changes: u32,
    /// Seconds until the installer restores the setting; 0 if it restores the setting now or has done it.
    seconds_until_correction: u32,
    /// Seconds since the installer last restored the setting.
    seconds_since_correction: u32,
    /// Text about the value that the other program has set.
    foreign_value: String,
}

/// Action that the installer must take after [`SettingContest::advance_one_second`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContestAction {
    /// No action is due.
    Nothing,
    /// The pause is over: the installer has to correct the setting now.
    Due,
    /// The contest is over, because no other program has changed the setting for [`CONTEST_OVER_AFTER_S`]
    /// seconds.
    Over,
}

impl SettingContest {
    /// Counts a change of the setting by another program to the value `found`, and starts the pause before
    /// carnet restores the setting. Returns a message for the operator.
    pub(crate) fn count_foreign_change(&mut self, found: &str) -> String {
        self.consecutive_changes = self.consecutive_changes.saturating_add(1);
        self.seconds_until_correction = match self.consecutive_changes.checked_sub(IMMEDIATE_CORRECTIONS + 1)
        {
            None => 0,
            Some(earlier) => (1_u32 << earlier.min(16)).min(MAX_CORRECTION_PAUSE_S),
        };
        (self.seconds_since_correction, self.foreign_value) = (0, found.to_owned());
        match self.seconds_until_correction {
            0 => format!(
                "another program changed a setting that this station needs: {found}; the station restores \
                 it now"
            ),
            wait => format!(
                "another program has changed a setting that this station needs {} times so far: {found}; \
                 the station restores it in {wait} s",
                self.consecutive_changes
            ),
        }
    }

    /// Returns whether the installer has to wait before it restores the setting.
    pub(crate) fn is_waiting(&self) -> bool {
        self.seconds_until_correction > 0
    }

    /// Advances the contest by one second.
    pub(crate) fn advance_one_second(&mut self) -> ContestAction {
        if self.seconds_until_correction > 0 {
            self.seconds_until_correction -= 1;
            return if self.seconds_until_correction == 0 {
                ContestAction::Due
            } else {
                ContestAction::Nothing
            };
        }
        self.seconds_since_correction += 1;
        if self.seconds_since_correction >= CONTEST_OVER_AFTER_S {
            ContestAction::Over
        } else {
            ContestAction::Nothing
        }
    }

    /// Returns a message for the operator while the setting has the other program's value; otherwise `None`.
    pub(crate) fn obstacle_message(&self) -> Option<String> {
        match (self.seconds_until_correction, self.consecutive_changes) {
            (0, 0..=IMMEDIATE_CORRECTIONS) => None,
            (0, changes) => Some(format!(
                "another program has changed a setting that this station needs {changes} times so far: \
                 {}; at present the setting is correct",
                self.foreign_value
            )),
            (wait, _) => Some(format!("{}; this station restores it in {wait} s", self.foreign_value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets time pass until the correction is due, and returns the seconds.
    fn seconds_until_due(contest: &mut SettingContest) -> u32 {
        let mut seconds = 0;
        while contest.is_waiting() {
            contest.advance_one_second();
            seconds += 1;
        }
        seconds
    }

    #[test]
    fn setting_is_restored_after_doubling_pauses_from_the_fourth_change() {
        let mut contest = SettingContest::default();
        let pauses: Vec<u32> = (0..12)
            .map(|_| {
                contest.count_foreign_change("x is 0");
                seconds_until_due(&mut contest)
            })
            .collect();
        assert_eq!(pauses, [0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 64, 64]);
    }

    #[test]
    fn setting_contest_ends_two_minutes_after_the_last_foreign_change() {
        let mut contest = SettingContest::default();
        (0..5).for_each(|_| drop(contest.count_foreign_change("x is 0")));
        assert_eq!(contest.obstacle_message().as_deref(), Some("x is 0; this station restores it in 2 s"));
        assert_eq!(
            [contest.advance_one_second(), contest.advance_one_second()],
            [ContestAction::Nothing, ContestAction::Due]
        );
        assert!(contest.obstacle_message().is_some_and(|text| text.contains("5 times so far: x is 0")));
        let calm: Vec<ContestAction> =
            (0..CONTEST_OVER_AFTER_S).map(|_| contest.advance_one_second()).collect();
        assert_eq!(
            calm.iter().filter(|second| **second != ContestAction::Nothing).collect::<Vec<_>>(),
            [&ContestAction::Over]
        );
        assert_eq!(calm.last(), Some(&ContestAction::Over));
    }
}
