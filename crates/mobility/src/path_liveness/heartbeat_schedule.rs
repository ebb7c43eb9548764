//! Decides when the next heartbeat leaves, and when a path counts as failed.

use std::time::Duration;

use carnet_base::Time;

use super::PathLiveness;

/// Minimum time until the next check of a path.
const MIN_CHECK_DELAY: Duration = Duration::from_millis(50);

/// Schedule of heartbeats that leave at an interval, whether or not the earlier ones were answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IntervalSchedule {
    /// Current interval between two heartbeats.
    pub(crate) interval: Duration,
    /// Whether quick heartbeats are being sent to decide whether the path has failed.
    pub(crate) is_quick_series: bool,
    /// Time after which an answer is late, so that quick heartbeats begin.
    pub(crate) late_time: Duration,
    /// Time after which a heartbeat counts as lost.
    pub(crate) answer_timeout: Duration,
    /// Number of heartbeats in a row without an answer after which the path has failed.
    pub(crate) max_missed: usize,
}

/// Schedule of heartbeats each of which leaves after the answer to the one before, or when that answer is
/// late.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerSchedule {
    /// Interval between two heartbeats that are answered.
    pub(crate) interval: Duration,
    /// Time after which a heartbeat counts as lost.
    pub(crate) answer_timeout: Duration,
    /// Pause between the quick heartbeats after one without an answer.
    pub(crate) quick_pause: Duration,
    /// Number of heartbeats in a row without an answer after which the path has failed.
    pub(crate) max_missed: usize,
}

impl<N: Copy + PartialEq> PathLiveness<N> {
    /// Returns whether enough quick heartbeats have been sent to decide whether the path has failed.
    pub(crate) fn has_sent_enough_heartbeats(&self, timing: &IntervalSchedule) -> bool {
        timing.is_quick_series
            && self.missed_in_a_row + self.unanswered_heartbeat_count() >= timing.max_missed
    }

    /// Returns whether the next heartbeat is due.
    pub(crate) fn is_due(&self, now: Time, timing: &IntervalSchedule) -> bool {
        self.last_sent_at.is_none_or(|sent| now.saturating_since(sent) >= timing.interval)
    }

    /// Returns the time of the next check of the path. `has_enough` must be the value of
    /// [`Self::has_sent_enough_heartbeats`] before the last heartbeat was sent.
    pub(crate) fn next_check_at(&self, now: Time, timing: &IntervalSchedule, has_enough: bool) -> Time {
        let first_open = self.outstanding_heartbeats.iter().find(|it| !it.is_missed).map(|it| it.sent_at);
        let time = if timing.is_quick_series || self.has_failed() {
            timing.answer_timeout
        } else {
            timing.late_time
        };
        let judged = first_open.map(|at| at + time);
        let next = self.last_sent_at.unwrap_or(now) + timing.interval;
        let next = match judged {
            Some(judged) if has_enough => judged,
            Some(judged) => judged.min(next),
            None => next,
        };
        if next <= now { now + MIN_CHECK_DELAY } else { next }
    }

    /// Returns when the next heartbeat leaves, or when the path fails without a further answer; `None` before
    /// the first heartbeat.
    pub(crate) fn next_event_at(&self, sequence: &AnswerSchedule) -> Option<Time> {
        let sent = self.last_sent_at?;
        Some(match self.outstanding_heartbeats.len() {
            _ if self.has_failed() => sent + sequence.interval,
            0 => sent + sequence.interval,
            1 => sent + sequence.answer_timeout,
            open if open < sequence.max_missed => sent + sequence.quick_pause,
            _ => sent + sequence.answer_timeout,
        })
    }

    /// Returns whether all permitted heartbeats are outstanding, so that the path fails at the next due time.
    pub(crate) fn is_exhausted(&self, sequence: &AnswerSchedule) -> bool {
        !self.has_failed() && self.outstanding_heartbeats.len() >= sequence.max_missed
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RequiredAnswers, RoundTrip};
    use super::*;

    fn time_at_millis(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn heartbeat_series_ends_at_its_limit_and_fails_by_its_first_heartbeat() {
        let timing = IntervalSchedule {
            interval: millis(60),
            is_quick_series: true,
            late_time: millis(40),
            answer_timeout: millis(130),
            max_missed: 2,
        };
        let mut path = PathLiveness::new(RequiredAnswers::default(), RoundTrip::default());
        path.record_sent_heartbeat(time_at_millis(0), 0);
        let has_enough = path.has_sent_enough_heartbeats(&timing);
        assert!(
            !has_enough
                && !path.is_due(time_at_millis(59), &timing)
                && path.is_due(time_at_millis(60), &timing)
        );
        path.record_sent_heartbeat(time_at_millis(60), 1);
        assert_eq!(
            path.next_check_at(time_at_millis(60), &timing, has_enough),
            time_at_millis(120),
            "after the pause"
        );
        assert!(path.has_sent_enough_heartbeats(&timing));
        assert_eq!(
            path.next_check_at(time_at_millis(120), &timing, true),
            time_at_millis(130),
            "the first is overdue then"
        );
    }

    #[test]
    fn next_heartbeat_waits_for_answer_timeout_and_then_for_its_pause() {
        let sequence = AnswerSchedule {
            interval: millis(1000),
            answer_timeout: millis(200),
            quick_pause: millis(100),
            max_missed: 3,
        };
        let mut path = PathLiveness::new(RequiredAnswers::default(), RoundTrip::default());
        assert_eq!(path.next_event_at(&sequence), None);
        for (number, sent, next) in [(0, 0, 200), (1, 200, 300), (2, 300, 500)] {
            assert!(!path.is_exhausted(&sequence));
            path.record_sent_heartbeat(time_at_millis(sent), number);
            assert_eq!(path.next_event_at(&sequence), Some(time_at_millis(next)), "{number}");
        }
        assert!(path.is_exhausted(&sequence));
        path.mark_failed();
        assert_eq!(
            path.next_event_at(&sequence),
            Some(time_at_millis(1300)),
            "a failed path is tried at the interval"
        );
        path.assume_working();
        assert_eq!(path.next_event_at(&sequence), Some(time_at_millis(1300)));
    }
}
