//! Decides by timestamps which messages of the home agent (Home Agent Switch, Binding Revocation) are new.
//!
//! A message must have a later timestamp than all earlier ones, which excludes replays. An attacker on the
//! path could hold back a message and deliver it later. So the timestamp must also be close to the home
//! agent's present time. The router knows this time from the acknowledgement of its last registration, which
//! has the time in a Message-ID option. The router accepts an acknowledgement only as an answer to its own
//! Binding Update. If a home agent sends no time, only the order of timestamps counts. With timestamps in all
//! messages (RFC 4285 6) the router uses its own clock.
//!
//! If the home agent's clock was ahead for a time, the timestamp of the last message is in the future. When
//! an acknowledgement shows this, the router continues with the present time. It never accepts the timestamps
//! of that time again, because an attacker may have recorded those messages.

use std::time::Duration;

use carnet_base::{Time, WallTime};

use crate::security::NOTICE_TIMESTAMP_WINDOW;
use crate::sequence::is_later;

/// Lead of the home agent's clock above which it counts as ahead. If the last timestamp leads the home
/// agent's time by less, the router refuses later messages until that time. If it leads by more, the router
/// continues with the present time.
const MAX_CLOCK_LEAD: Duration = Duration::from_secs(3600);

/// Timestamps of the home agent's messages, and the home agent's time.
#[derive(Debug, Clone, Default)]
pub(super) struct Notices {
    /// NTP timestamp of the last accepted message; `None` before the first one.
    pub(super) last_timestamp: Option<u64>,
    /// NTP timestamp of the first message of the last sequence in which each timestamp is within
    /// [`MAX_CLOCK_LEAD`] of the one before. `None` before the first message.
    pub(super) first_timestamp: Option<u64>,
    /// First and last NTP timestamp of the messages that came while a home agent's clock was ahead; `None`
    /// without such a message.
    pub(super) early_timestamps: Option<(u64, u64)>,
    /// Sending time of the last acknowledged Binding Update, with the home agent's NTP time in the
    /// acknowledgement. `None` if the acknowledgement had no such time.
    pub(super) agent_clock: Option<(Time, u64)>,
}

impl Notices {
    /// Removes the known time of the home agent, because another home agent has another clock.
    pub(super) fn forget_agent_clock(&mut self) {
        self.agent_clock = None;
    }

    /// Handles the acknowledgement of a Binding Update that was sent at this time. `ntp` is the home agent's
    /// time, if the acknowledgement has it.
    pub(super) fn learn_agent_clock(&mut self, sent_at: Time, ntp: Option<u64>) {
        self.agent_clock = ntp.map(|ntp| (sent_at, ntp));
    }

    /// Handles a message whose MAC is correct. Returns false if an attacker may have recorded it or held it
    /// back. `clock` replaces the home agent's reported time; it comes with the permitted difference.
    pub(super) fn accept_timestamp(
        &mut self,
        now: Time,
        time: u64,
        clock: Option<(WallTime, Duration)>,
    ) -> bool {
        let told = || {
            let (then, ntp) = self.agent_clock?;
            // Only the difference of the two times is used, so the NTP era does not matter.
            let near = WallTime::from_ntp(ntp, WallTime::default());
            Some((near + now.saturating_since(then), NOTICE_TIMESTAMP_WINDOW))
        };
        let clock = clock.or_else(told);
        let date = |ntp| clock.map(|(clock, _)| WallTime::from_ntp(ntp, clock));
        if let (Some((clock, window)), Some(date)) = (clock, date(time))
            && date.absolute_difference(clock) > window
        {
            return false;
        }
        if self.early_timestamps.is_some_and(|(first, last)| !is_later(first, time) && !is_later(time, last))
        {
            return false;
        }
        if let Some(last) = self.last_timestamp.filter(|last| !is_later(time, *last)) {
            let ahead = clock.zip(date(last)).is_some_and(|((clock, _), last)| last > clock + MAX_CLOCK_LEAD);
            if !ahead {
                return false;
            }
            let first = self.first_timestamp.unwrap_or(last);
            self.early_timestamps =
                Some(self.early_timestamps.map_or((first, last), |(earliest, latest)| {
                    let earliest = if is_later(earliest, first) { first } else { earliest };
                    (earliest, if is_later(last, latest) { last } else { latest })
                }));
            self.first_timestamp = Some(time);
        } else if self
            .last_timestamp
            .is_none_or(|last| seconds_between(last, time) > MAX_CLOCK_LEAD.as_secs())
        {
            self.first_timestamp = Some(time);
        }
        self.last_timestamp = Some(time);
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

    fn ntp_timestamp(seconds: u64) -> u64 {
        WallTime::from_unix_nanos((START + seconds) * 1_000_000_000).to_ntp()
    }

    /// Returns the state for a home agent that has reported its time at second 0.
    fn notices_with_clock_at_zero() -> Notices {
        let mut notices = Notices::default();
        notices.learn_agent_clock(Time::from_secs(0), Some(ntp_timestamp(0)));
        notices
    }

    #[test]
    fn router_refuses_home_agent_message_older_than_its_timestamp_window() {
        for (received, taken) in [(10, true), (60, true), (80, false), (86_400, false)] {
            let mut notices = notices_with_clock_at_zero();
            assert_eq!(
                notices.accept_timestamp(Time::from_secs(received), ntp_timestamp(5), None),
                taken,
                "after {received} s"
            );
        }
        // The limit applies to the difference between the two clocks, not to the age of the home agent's
        // report. So even a day after the report the router accepts a message of the present time.
        assert!(notices_with_clock_at_zero().accept_timestamp(
            Time::from_secs(86_400),
            ntp_timestamp(86_420),
            None
        ));
        // If a home agent reports no time, the router accepts every later message.
        let mut notices = Notices::default();
        assert!(notices.accept_timestamp(Time::from_secs(0), ntp_timestamp(0), None));
        assert!(notices.accept_timestamp(Time::from_secs(1), ntp_timestamp(1_000_000), None));
        assert!(!notices.accept_timestamp(Time::from_secs(2), ntp_timestamp(2), None));
    }

    #[test]
    fn router_accepts_no_replay_after_home_agents_clock_was_ahead() {
        let year = 31_536_000;
        let mut notices = notices_with_clock_at_zero();
        assert!(notices.accept_timestamp(Time::from_secs(1), ntp_timestamp(1), None));
        // The home agent's clock jumps a year ahead, and the next acknowledgement shows it.
        notices.learn_agent_clock(Time::from_secs(100), Some(ntp_timestamp(year)));
        let ahead = [year + 10, year + 20];
        for time in ahead {
            assert!(notices.accept_timestamp(Time::from_secs(time - year + 100), ntp_timestamp(time), None));
        }
        // The home agent's clock is right again. The router refuses messages until an acknowledgement reports
        // the new time.
        assert!(!notices.accept_timestamp(Time::from_secs(200), ntp_timestamp(200), None));
        notices.learn_agent_clock(Time::from_secs(210), Some(ntp_timestamp(210)));
        assert!(notices.accept_timestamp(Time::from_secs(220), ntp_timestamp(220), None));
        assert!(!notices.accept_timestamp(Time::from_secs(221), ntp_timestamp(220), None), "the same again");
        assert!(!notices.accept_timestamp(Time::from_secs(221), ntp_timestamp(1), None), "one of before");
        // A year later the recorded messages have the present time, and the router still refuses them.
        for time in ahead {
            assert!(
                !notices.clone().accept_timestamp(Time::from_secs(time), ntp_timestamp(time), None),
                "{time}"
            );
        }
        assert!(notices.accept_timestamp(Time::from_secs(year + 21), ntp_timestamp(year + 21), None));
    }

    #[test]
    fn router_with_timestamps_compares_messages_with_its_own_clock() {
        let window = Duration::from_secs(7);
        let clock = |seconds| Some((WallTime::from_unix_nanos((START + seconds) * 1_000_000_000), window));
        let mut notices = notices_with_clock_at_zero();
        assert!(!notices.accept_timestamp(Time::from_secs(10), ntp_timestamp(0), clock(8)));
        assert!(notices.accept_timestamp(Time::from_secs(10), ntp_timestamp(2), clock(8)));
    }
}
