//! Decides by timestamps which notices of the home agent (Home Agent Switch, Binding Revocation) are new.
//!
//! A notice has to be later than every one before, which excludes replays. A notice that an attacker on the
//! path has withheld is still later. So it also has to be close to the home agent's time. The router knows
//! that time from its last registration: the acknowledgement, which answers only a Binding Update of this
//! router, has it in a Message-ID option. If a home agent sends no time there, only the order counts; with
//! timestamps (RFC 4285 6) the router's own clock counts.
//!
//! After a time in which the home agent's clock was ahead, the last notice lies in the future. When an
//! acknowledgement shows that, the router continues from the present time. It refuses the timestamps of that
//! time for good, because an attacker may have recorded those notices.

use std::time::Duration;

use carnet_base::{Time, WallTime};

use crate::security::NOTICE_WINDOW;
use crate::sequence::is_later;

/// Limit of a slight lead. If the last notice leads the home agent's time by less, later notices wait until
/// then. If a notice leads the notice before by more, a time begins in which the clock was ahead.
const SLIGHTLY_AHEAD: Duration = Duration::from_secs(3600);

/// Knowledge of the home agent's notices and of its clock.
#[derive(Debug, Clone, Default)]
pub(super) struct Notices {
    /// NTP timestamp of the last notice.
    pub(super) last: Option<u64>,
    /// NTP timestamp of the first notice of a series within [`SLIGHTLY_AHEAD`] of each other, up to the last.
    pub(super) first: Option<u64>,
    /// First and last NTP timestamp of notices that came while a clock was ahead.
    pub(super) early: Option<(u64, u64)>,
    /// Sending time of the last acknowledged Binding Update, with the home agent's NTP time.
    pub(super) clock: Option<(Time, u64)>,
}

impl Notices {
    /// Clears the clock: another home agent has another one.
    pub(super) fn forget_clock(&mut self) {
        self.clock = None;
    }

    /// Handles the acknowledgement of a Binding Update that was sent at this time, with the home agent's time
    /// if it has one.
    pub(super) fn clock_told(&mut self, sent_at: Time, ntp: Option<u64>) {
        self.clock = ntp.map(|ntp| (sent_at, ntp));
    }

    /// Takes a notice whose MAC is verified; returns false if it may have been recorded or withheld. `clock`,
    /// with the permitted distance from it, replaces the home agent's reported time.
    pub(super) fn accept(&mut self, now: Time, time: u64, clock: Option<(WallTime, Duration)>) -> bool {
        let told = || {
            let (then, ntp) = self.clock?;
            // The era does not matter for distances: any time of the era will do.
            let near = WallTime::from_ntp(ntp, WallTime::default());
            Some((near + now.saturating_since(then), NOTICE_WINDOW))
        };
        let clock = clock.or_else(told);
        let date = |ntp| clock.map(|(clock, _)| WallTime::from_ntp(ntp, clock));
        if let (Some((clock, window)), Some(date)) = (clock, date(time))
            && date.distance(clock) > window
        {
            return false;
        }
        if self.early.is_some_and(|(first, last)| !is_later(first, time) && !is_later(time, last)) {
            return false;
        }
        if let Some(last) = self.last.filter(|last| !is_later(time, *last)) {
            let ahead = clock.zip(date(last)).is_some_and(|((clock, _), last)| last > clock + SLIGHTLY_AHEAD);
            if !ahead {
                return false;
            }
            let first = self.first.unwrap_or(last);
            self.early = Some(self.early.map_or((first, last), |(earliest, latest)| {
                let earliest = if is_later(earliest, first) { first } else { earliest };
                (earliest, if is_later(last, latest) { last } else { latest })
            }));
            self.first = Some(time);
        } else if self.last.is_none_or(|last| seconds_between(last, time) > SLIGHTLY_AHEAD.as_secs()) {
            self.first = Some(time);
        }
        self.last = Some(time);
        true
    }
}

/// Returns the seconds from an NTP timestamp to a later one.
fn seconds_between(earlier: u64, later: u64) -> u64 {
    later.wrapping_sub(earlier) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_700_000_000;

    fn ntp(seconds: u64) -> u64 {
        WallTime::from_unix_nanos((START + seconds) * 1_000_000_000).to_ntp()
    }

    /// Notices of a home agent that has reported its time at second 0.
    fn told_at_zero() -> Notices {
        let mut notices = Notices::default();
        notices.clock_told(Time::from_secs(0), Some(ntp(0)));
        notices
    }

    #[test]
    fn notice_that_was_withheld_for_longer_than_the_window_is_refused() {
        for (received, taken) in [(10, true), (60, true), (80, false), (86_400, false)] {
            let mut notices = told_at_zero();
            assert_eq!(notices.accept(Time::from_secs(received), ntp(5), None), taken, "after {received} s");
        }
        // The window is about the clock: a present notice is accepted however long ago the clock was
        // reported.
        assert!(told_at_zero().accept(Time::from_secs(86_400), ntp(86_420), None));
        // From a home agent that reports no time, every later notice is accepted.
        let mut notices = Notices::default();
        assert!(notices.accept(Time::from_secs(0), ntp(0), None));
        assert!(notices.accept(Time::from_secs(1), ntp(1_000_000), None));
        assert!(!notices.accept(Time::from_secs(2), ntp(2), None));
    }

    #[test]
    fn router_goes_on_after_a_clock_that_was_ahead_and_takes_none_of_its_notices_again() {
        let year = 31_536_000;
        let mut notices = told_at_zero();
        assert!(notices.accept(Time::from_secs(1), ntp(1), None));
        // The clock leaps ahead, and the registration after it shows that.
        notices.clock_told(Time::from_secs(100), Some(ntp(year)));
        let ahead = [year + 10, year + 20];
        for time in ahead {
            assert!(notices.accept(Time::from_secs(time - year + 100), ntp(time), None));
        }
        // The clock is right again. Until a registration reports it, the router refuses notices.
        assert!(!notices.accept(Time::from_secs(200), ntp(200), None));
        notices.clock_told(Time::from_secs(210), Some(ntp(210)));
        assert!(notices.accept(Time::from_secs(220), ntp(220), None));
        assert!(!notices.accept(Time::from_secs(221), ntp(220), None), "the same again");
        assert!(!notices.accept(Time::from_secs(221), ntp(1), None), "one of before");
        // A year later the recordings have the present time.
        for time in ahead {
            assert!(!notices.clone().accept(Time::from_secs(time), ntp(time), None), "{time}");
        }
        assert!(notices.accept(Time::from_secs(year + 21), ntp(year + 21), None));
    }

    #[test]
    fn clock_of_the_router_counts_where_it_sends_timestamps() {
        let window = Duration::from_secs(7);
        let clock = |seconds| Some((WallTime::from_unix_nanos((START + seconds) * 1_000_000_000), window));
        let mut notices = told_at_zero();
        assert!(!notices.accept(Time::from_secs(10), ntp(0), clock(8)));
        assert!(notices.accept(Time::from_secs(10), ntp(2), clock(8)));
    }
}
