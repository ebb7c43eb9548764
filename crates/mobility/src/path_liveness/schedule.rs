//! Decides when the next heartbeat leaves, and when the path is judged.

use std::time::Duration;

use carnet_base::Time;

use super::PathLiveness;

/// Least time until the next check of a path.
const LEAST: Duration = Duration::from_millis(50);

/// Heartbeats that leave at an interval, whether the ones before were answered or not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// Current interval between two heartbeats.
    pub(crate) gap: Duration,
    /// Whether a quick series of heartbeats decides about the path.
    pub(crate) is_series: bool,
    /// Time after which an answer is late. Then a series begins.
    pub(crate) late: Duration,
    /// Time after which an answer is missed.
    pub(crate) patience: Duration,
    /// Heartbeats in a row without an answer that make a path fail.
    pub(crate) allowed: usize,
}

/// Heartbeats each of which waits for the answer to the one before, or until that answer is late.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sequence {
    /// Interval between two heartbeats that are answered.
    pub(crate) interval: Duration,
    /// Time for an answer.
    pub(crate) patience: Duration,
    /// Pause between two heartbeats of the series that follows one without an answer.
    pub(crate) pause: Duration,
    /// Heartbeats in a row without an answer that make a path fail.
    pub(crate) allowed: usize,
}

impl<N: Copy + PartialEq> PathLiveness<N> {
    /// Whether the heartbeats of a series that have left are enough to decide.
    pub(crate) fn has_enough(&self, timing: &Timing) -> bool {
        timing.is_series && self.missed + self.open() >= timing.allowed
    }

    /// Whether the time for the next heartbeat has come.
    pub(crate) fn is_due(&self, now: Time, timing: &Timing) -> bool {
        self.last_sent.is_none_or(|sent| now.saturating_since(sent) >= timing.gap)
    }

    /// Returns when the path is due again. `has_enough` is the state before the heartbeat that may have left
    /// now.
    pub(crate) fn next(&self, now: Time, timing: &Timing, has_enough: bool) -> Time {
        let first_open = self.outstanding.iter().find(|it| !it.is_missed).map(|it| it.sent);
        let time = if timing.is_series || self.has_failed() { timing.patience } else { timing.late };
        let judged = first_open.map(|at| at + time);
        let next = self.last_sent.unwrap_or(now) + timing.gap;
        let next = match judged {
            Some(judged) if has_enough => judged,
            Some(judged) => judged.min(next),
            None => next,
        };
        if next <= now { now + LEAST } else { next }
    }

    /// Returns when the next heartbeat of a sequence leaves, or the path is given up; `None` before the first
    /// one.
    pub(crate) fn next_of(&self, sequence: &Sequence) -> Option<Time> {
        let sent = self.last_sent?;
        Some(match self.outstanding.len() {
            _ if self.has_failed() => sent + sequence.interval,
            0 => sent + sequence.interval,
            1 => sent + sequence.patience,
            open if open < sequence.allowed => sent + sequence.pause,
            _ => sent + sequence.patience,
        })
    }

    /// Whether all heartbeats of a series are outstanding, so that the path is given up when the next is due.
    pub(crate) fn is_exhausted(&self, sequence: &Sequence) -> bool {
        !self.has_failed() && self.outstanding.len() >= sequence.allowed
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Proof, RoundTrip};
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn series_that_has_enough_heartbeats_sends_no_more_and_is_judged_by_the_first() {
        let timing =
            Timing { gap: millis(60), is_series: true, late: millis(40), patience: millis(130), allowed: 2 };
        let mut path = PathLiveness::new(Proof::default(), RoundTrip::default());
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
            Sequence { interval: millis(1000), patience: millis(200), pause: millis(100), allowed: 3 };
        let mut path = PathLiveness::new(Proof::default(), RoundTrip::default());
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
