//! Decides when the next heartbeat leaves, and when a path counts as failed.

use std::time::Duration;

use carnet_base::Time;

use super::PathLiveness;

/// Minimum time until the next check of a path.
const LEAST: Duration = Duration::from_millis(50);

/// Schedule of heartbeats that leave at an interval, whether or not the earlier ones were answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IntervalSchedule {
    /// Current interval between two heartbeats.
    pub(crate) interval: Duration,
    /// Whether quick heartbeats are being sent to decide whether the path has failed.
    pub(crate) is_series: bool,
    /// Time after which an answer is late, so that quick heartbeats begin.
    pub(crate) late: Duration,
    /// Time after which a heartbeat counts as lost.
    pub(crate) timeout: Duration,
    /// Number of heartbeats in a row without an answer after which the path has failed.
    pub(crate) allowed: usize,
}

/// Schedule of heartbeats each of which leaves after the answer to the one before, or when that answer is
/// late.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerSchedule {
    /// Interval between two heartbeats that are answered.
    pub(crate) interval: Duration,
    /// Time after which a heartbeat counts as lost.
    pub(crate) timeout: Duration,
    /// Pause between the quick heartbeats after one without an answer.
    pub(crate) pause: Duration,
    /// Number of heartbeats in a row without an answer after which the path has failed.
    pub(crate) allowed: usize,
}

impl<N: Copy + PartialEq> PathLiveness<N> {
    /// Returns whether enough quick heartbeats have been sent to decide whether the path has failed.
    pub(crate) fn has_enough(&self, timing: &IntervalSchedule) -> bool {
        timing.is_series && self.missed + self.open() >= timing.allowed
    }

    /// Returns whether the next heartbeat is due.
    pub(crate) fn is_due(&self, now: Time, timing: &IntervalSchedule) -> bool {
        self.last_sent.is_none_or(|sent| now.saturating_since(sent) >= timing.interval)
    }

    /// Returns the time of the next check of the path. `has_enough` must be the value of [`Self::has_enough`]
    /// before the last heartbeat was sent.
    pub(crate) fn next(&self, now: Time, timing: &IntervalSchedule, has_enough: bool) -> Time {
        let first_open = self.outstanding.iter().find(|it| !it.is_missed).map(|it| it.sent);
        let time = if timing.is_series || self.has_failed() { timing.timeout } else { timing.late };
        let judged = first_open.map(|at| at + time);
        let next = self.last_sent.unwrap_or(now) + timing.interval;
        let next = match judged {
            Some(judged) if has_enough => judged,
            Some(judged) => judged.min(next),
            None => next,
        };
        if next <= now { now + LEAST } else { next }
    }

    /// Returns when the next heartbeat leaves, or when the path fails without a further answer; `None` before
    /// the first heartbeat.
    pub(crate) fn next_of(&self, sequence: &AnswerSchedule) -> Option<Time> {
        let sent = self.last_sent?;
        Some(match self.outstanding.len() {
            _ if self.has_failed() => sent + sequence.interval,
            0 => sent + sequence.interval,
            1 => sent + sequence.timeout,
            open if open < sequence.allowed => sent + sequence.pause,
            _ => sent + sequence.timeout,
        })
    }

    /// Returns whether all permitted heartbeats are outstanding, so that the path fails at the next due time.
    pub(crate) fn is_exhausted(&self, sequence: &AnswerSchedule) -> bool {
        !self.has_failed() && self.outstanding.len() >= sequence.allowed
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RequiredAnswers, RoundTrip};
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn series_that_has_enough_heartbeats_sends_no_more_and_is_judged_by_the_first() {
        let timing = IntervalSchedule {
            interval: millis(60),
            is_series: true,
            late: millis(40),
            timeout: millis(130),
            allowed: 2,
        };
        let mut path = PathLiveness::new(RequiredAnswers::default(), RoundTrip::default());
        path.sent(at(0), 0);
        let has_enough = path.has_enough(&timing);
        assert!(!has_enough && !path.is_due(at(59), &timing) && path.is_due(at(60), &timing));
        path.sent(at(60), 1);
        assert_eq!(path.next(at(60), &timing, has_enough), at(120), "after the pause");
        assert!(path.has_enough(&timing));
        assert_eq!(path.next(at(120), &timing, true), at(130), "the first is overdue then");
    }

    #[test]
    fn sequence_waits_for_the_answer_and_then_for_its_pauses() {
        let sequence =
            AnswerSchedule { interval: millis(1000), timeout: millis(200), pause: millis(100), allowed: 3 };
        let mut path = PathLiveness::new(RequiredAnswers::default(), RoundTrip::default());
        assert_eq!(path.next_of(&sequence), None);
        for (number, sent, next) in [(0, 0, 200), (1, 200, 300), (2, 300, 500)] {
            assert!(!path.is_exhausted(&sequence));
            path.sent(at(sent), number);
            assert_eq!(path.next_of(&sequence), Some(at(next)), "{number}");
        }
        assert!(path.is_exhausted(&sequence));
        path.fail();
        assert_eq!(path.next_of(&sequence), Some(at(1300)), "a failed path is tried at the interval");
        path.renew();
        assert_eq!(path.next_of(&sequence), Some(at(1300)));
    }
}
