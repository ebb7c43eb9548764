//! Limits how often the installer corrects a setting that another program on this machine changes again and
//! again. The place of the local table's rule counts as a setting.
//!
//! The installer corrects the first [`AT_ONCE`] changes of a setting at once. That is enough for a hardening
//! file that is applied once, or a network manager that restarts. If a program changes the setting more
//! often, the pauses before a correction grow to [`LONGEST_PAUSE`] seconds. So the two programs do not keep
//! the machine busy. The installer never gives up, because the vehicle's network depends on it. An operator
//! who wants another value stops the station.

/// Number of changes that the installer corrects at once.
const AT_ONCE: u32 = 3;
/// Longest time between a change and its correction, in seconds.
const LONGEST_PAUSE: u32 = 64;
/// Seconds without another change after which the earlier changes no longer count.
const CALM: u32 = 120;

/// State of the contest for one setting.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Contest {
    /// Changes by another program that followed each other within [`CALM`] seconds.
    changes: u32,
    /// Seconds until the installer corrects the setting; 0 if the installer may correct it now or has
    /// corrected it.
    wait: u32,
    /// Seconds since the last correction.
    calm: u32,
    /// Value that the other program has set, in words.
    found: String,
}

/// Action that is due after one more second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Second {
    /// The installer has nothing to do.
    Nothing,
    /// The pause is over: the installer has to correct the setting now.
    Due,
    /// No program has changed the setting for [`CALM`] seconds, so the contest is over.
    Over,
}

impl Contest {
    /// Counts another change of the setting to the value `found`, and starts the pause before the correction.
    /// Returns a text for the operator.
    pub(crate) fn change(&mut self, found: &str) -> String {
        self.changes = self.changes.saturating_add(1);
        self.wait = match self.changes.checked_sub(AT_ONCE + 1) {
            None => 0,
            Some(earlier) => (1_u32 << earlier.min(16)).min(LONGEST_PAUSE),
        };
        (self.calm, self.found) = (0, found.to_owned());
        match self.wait {
            0 => format!(
                "another program changed a setting that this station needs: {found}; it is put right now"
            ),
            wait => format!(
                "another program changed a setting that this station needs, {} times so far: {found}; it is \
                 put right in {wait} s",
                self.changes
            ),
        }
    }

    /// Returns whether the pause before the correction still lasts.
    pub(crate) fn waits(&self) -> bool {
        self.wait > 0
    }

    /// Advances the contest by one second.
    pub(crate) fn tick(&mut self) -> Second {
        if self.wait > 0 {
            self.wait -= 1;
            return if self.wait == 0 { Second::Due } else { Second::Nothing };
        }
        self.calm += 1;
        if self.calm >= CALM { Second::Over } else { Second::Nothing }
    }

    /// Returns the text of the obstacle while the setting has the other program's value; `None` otherwise.
    pub(crate) fn obstacle(&self) -> Option<String> {
        match (self.wait, self.changes) {
            (0, 0..=AT_ONCE) => None,
            (0, changes) => Some(format!(
                "another program changes a setting that this station needs again and again, {changes} times \
                 so far: {}; it is right now",
                self.found
            )),
            (wait, _) => Some(format!("{}; this station puts it right in {wait} s", self.found)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets time pass until the correction is due, and returns the seconds.
    fn seconds_until_due(contest: &mut Contest) -> u32 {
        let mut seconds = 0;
        while contest.waits() {
            contest.tick();
            seconds += 1;
        }
        seconds
    }

    #[test]
    fn pauses_begin_after_three_changes_and_double_up_to_a_minute() {
        let mut contest = Contest::default();
        let pauses: Vec<u32> = (0..12)
            .map(|_| {
                contest.change("x is 0");
                seconds_until_due(&mut contest)
            })
            .collect();
        assert_eq!(pauses, [0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 64, 64]);
    }

    #[test]
    fn contest_is_over_after_two_minutes_without_a_change() {
        let mut contest = Contest::default();
        (0..5).for_each(|_| drop(contest.change("x is 0")));
        assert_eq!(contest.obstacle().as_deref(), Some("x is 0; this station puts it right in 2 s"));
        assert_eq!([contest.tick(), contest.tick()], [Second::Nothing, Second::Due]);
        assert!(contest.obstacle().is_some_and(|text| text.contains("5 times so far: x is 0")));
        let calm: Vec<Second> = (0..CALM).map(|_| contest.tick()).collect();
        assert_eq!(
            calm.iter().filter(|second| **second != Second::Nothing).collect::<Vec<_>>(),
            [&Second::Over]
        );
        assert_eq!(calm.last(), Some(&Second::Over));
    }
}
