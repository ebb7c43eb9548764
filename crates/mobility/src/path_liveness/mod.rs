//! Path liveness: heartbeats, failures and round trips. It has the purpose of RFC 5847, for three kinds of
//! paths. These differ in the message, and in the schedule:
//!
//! | path | message | next heartbeat |
//! |---|---|---|
//! | uplink to the home agent | Heartbeat (RFC 5847) | at an interval: [`IntervalSchedule`] |
//! | direct route | Heartbeat of direct routes | after an answer, or when it is late: [`AnswerSchedule`] |
//! | neighbouring mobile network | Probe | after an answer, or when it is late: [`AnswerSchedule`] |
//!
//! After a heartbeat without an answer the station sends several more in quick succession. If none of them is
//! answered, the path has failed. Left out: the messages themselves, and the consequence of a failure. The
//! caller has both.

mod heartbeat_schedule;
mod round_trip;

use std::collections::VecDeque;
use std::time::Duration;

use carnet_base::Time;

pub(crate) use heartbeat_schedule::{AnswerSchedule, IntervalSchedule};
pub(crate) use round_trip::RoundTrip;

/// Maximum number of unanswered heartbeats that are stored. On a full path an answer takes seconds, so a
/// large number is outstanding.
const MAX_OUTSTANDING_HEARTBEATS: usize = 128;

/// State of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathPhase {
    Lives,
    /// Several heartbeats in a row had no answer.
    Failed,
    /// The path has failed and works again, but needs more answers in a row.
    Proving,
}

/// An event that may change the phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathEvent {
    /// The other end has answered a heartbeat.
    Answer,
    /// The caller declares the path failed.
    Failure,
    /// Another message has shown that the path works. If `proof` is true, the path also needs answers to
    /// heartbeats.
    Sign { proof: bool },
    /// Another path replaces this one, or heartbeats do not show whether the path works.
    Reset,
}

/// Numbers of answers in a row after which a path works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequiredAnswers {
    /// Number of answers after the path has failed.
    pub(crate) after_failure: u32,
    /// Number of answers after another message has shown that the path works.
    pub(crate) after_other_sign_of_life: u32,
}

impl Default for RequiredAnswers {
    fn default() -> RequiredAnswers {
        RequiredAnswers { after_failure: 1, after_other_sign_of_life: 3 }
    }
}

/// A heartbeat that has no answer yet.
#[derive(Debug, Clone, Copy)]
struct Heartbeat<N> {
    number: N,
    sent_at: Time,
    /// Whether the answer is overdue.
    is_missed: bool,
}

/// Result of an answer to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeartbeatAnswer {
    pub(crate) round_trip: Duration,
    /// Whether the path had failed and works again with this answer.
    pub(crate) is_path_restored: bool,
    /// Whether the path has now had the last of the required answers.
    pub(crate) is_proven: bool,
}

/// Liveness of one path. `N` is the number or cookie that distinguishes its heartbeats.
#[derive(Debug, Clone)]
pub(crate) struct PathLiveness<N> {
    phase: PathPhase,
    required_answers: RequiredAnswers,
    /// Heartbeats without an answer, the oldest first.
    outstanding_heartbeats: VecDeque<Heartbeat<N>>,
    /// Number of heartbeats in a row without an answer in time.
    missed_in_a_row: usize,
    /// Number of heartbeats in a row with an answer.
    answered_in_a_row: u32,
    last_sent_at: Option<Time>,
    round_trip: RoundTrip,
    /// Results of the last 64 heartbeats, the newest in the lowest bit; 1 is a loss.
    loss_history: u64,
    /// Number of valid bits in `loss_history`.
    result_count: u32,
}

impl<N: Copy + PartialEq> PathLiveness<N> {
    /// Creates the state of a path that is assumed to work. After a failure the path needs the answers that
    /// `proof` requires.
    pub(crate) fn new(proof: RequiredAnswers, round_trip: RoundTrip) -> PathLiveness<N> {
        PathLiveness {
            phase: PathPhase::Lives,
            required_answers: proof,
            outstanding_heartbeats: VecDeque::new(),
            missed_in_a_row: 0,
            answered_in_a_row: 0,
            last_sent_at: None,
            round_trip,
            loss_history: 0,
            result_count: 0,
        }
    }

    /// Changes the phase after an event.
    fn apply_event(&mut self, event: PathEvent) {
        self.phase = match (self.phase, event) {
            (PathPhase::Failed, PathEvent::Answer)
                if self.answered_in_a_row >= self.required_answers.after_failure =>
            {
                PathPhase::Lives
            }
            (PathPhase::Proving, PathEvent::Answer)
                if self.answered_in_a_row >= self.required_answers.after_other_sign_of_life =>
            {
                PathPhase::Lives
            }
            (phase, PathEvent::Answer) => phase,
            (_, PathEvent::Failure) => PathPhase::Failed,
            (PathPhase::Failed, PathEvent::Sign { proof: true }) => PathPhase::Proving,
            (PathPhase::Failed, PathEvent::Sign { proof: false }) => PathPhase::Lives,
            (phase, PathEvent::Sign { .. }) => phase,
            (_, PathEvent::Reset) => PathPhase::Lives,
        };
    }

    /// Returns whether the path has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.phase == PathPhase::Failed
    }

    /// Returns whether the path still needs answers before it counts as working.
    pub(crate) fn is_recovering(&self) -> bool {
        self.phase == PathPhase::Proving
    }

    /// Returns the round trips of the path.
    pub(crate) fn round_trip(&self) -> &RoundTrip {
        &self.round_trip
    }

    /// Returns the round trips of the path for modification.
    pub(crate) fn round_trip_mut(&mut self) -> &mut RoundTrip {
        &mut self.round_trip
    }

    /// Returns whether any of the last 64 heartbeats was answered.
    pub(crate) fn has_answered(&self) -> bool {
        self.result_count > self.loss_history.count_ones()
    }

    /// Returns the fraction of the last heartbeats that had no answer, 0 to 1.
    pub(crate) fn loss_fraction(&self) -> f64 {
        if self.result_count == 0 {
            return 0.0;
        }
        let mask = u64::MAX >> (64 - self.result_count);
        f64::from((self.loss_history & mask).count_ones()) / f64::from(self.result_count)
    }

    /// Returns whether no answer is outstanding.
    pub(crate) fn has_no_outstanding_heartbeat(&self) -> bool {
        self.outstanding_heartbeats.is_empty()
    }

    /// Returns the sending time of the heartbeat with this number; `None` if its answer is not outstanding.
    pub(crate) fn sent_at(&self, number: N) -> Option<Time> {
        self.outstanding_heartbeats
            .iter()
            .find(|heartbeat| heartbeat.number == number)
            .map(|heartbeat| heartbeat.sent_at)
    }

    /// Returns whether the answer to the heartbeat with this number is outstanding.
    pub(crate) fn awaits_answer_to(&self, number: N) -> bool {
        self.sent_at(number).is_some()
    }

    /// Returns the number of the oldest heartbeat whose answer is outstanding; `None` if no answer is
    /// outstanding.
    pub(crate) fn oldest_outstanding_heartbeat(&self) -> Option<N> {
        self.outstanding_heartbeats.front().map(|heartbeat| heartbeat.number)
    }

    /// Returns the sending time of the oldest heartbeat whose answer is outstanding; `None` if no answer is
    /// outstanding.
    pub(crate) fn oldest_sent_at(&self) -> Option<Time> {
        self.outstanding_heartbeats.front().map(|heartbeat| heartbeat.sent_at)
    }

    /// Returns the number of heartbeats in a row without an answer in time.
    pub(crate) fn missed_in_a_row(&self) -> usize {
        self.missed_in_a_row
    }

    /// Returns the number of heartbeats whose answer is outstanding and not overdue.
    pub(crate) fn unanswered_heartbeat_count(&self) -> usize {
        self.outstanding_heartbeats.iter().filter(|heartbeat| !heartbeat.is_missed).count()
    }

    /// Returns whether an outstanding answer takes longer than `late`.
    pub(crate) fn is_answer_late(&self, now: Time, late: Duration) -> bool {
        self.outstanding_heartbeats.iter().any(|it| !it.is_missed && now.saturating_since(it.sent_at) >= late)
    }

    /// Returns whether the answer to a heartbeat sent after `since` has taken longer than `due`.
    pub(crate) fn is_unanswered_since(&self, now: Time, since: Time, due: Duration) -> bool {
        self.outstanding_heartbeats
            .iter()
            .any(|it| it.sent_at >= since && now.saturating_since(it.sent_at) > due)
    }

    /// Returns when the last heartbeat was sent; `None` before the first.
    pub(crate) fn last_sent_at(&self) -> Option<Time> {
        self.last_sent_at
    }

    /// Records that another message was sent that also tests the path.
    pub(crate) fn record_sending_time(&mut self, now: Time) {
        self.last_sent_at = Some(now);
    }

    /// Makes the next heartbeat due at once, unless one was sent within `pause`.
    pub(crate) fn make_next_heartbeat_due(&mut self, now: Time, pause: Duration) {
        self.last_sent_at = self.last_sent_at.filter(|at| now.saturating_since(*at) < pause);
    }

    /// Records that a heartbeat was sent.
    pub(crate) fn record_sent_heartbeat(&mut self, now: Time, number: N) {
        self.outstanding_heartbeats.push_back(Heartbeat { number, sent_at: now, is_missed: false });
        if self.outstanding_heartbeats.len() > MAX_OUTSTANDING_HEARTBEATS {
            self.outstanding_heartbeats.pop_front();
        }
        self.last_sent_at = Some(now);
    }

    fn record_result(&mut self, lost: bool) {
        self.loss_history = self.loss_history << 1 | u64::from(lost);
        self.result_count = (self.result_count + 1).min(64);
    }

    /// Marks heartbeats whose answer is overdue. Returns the number of newly marked ones.
    pub(crate) fn mark_overdue_heartbeats(&mut self, now: Time, patience: Duration) -> usize {
        let mut newly = 0;
        for heartbeat in self.outstanding_heartbeats.iter_mut().filter(|heartbeat| !heartbeat.is_missed) {
            if now.saturating_since(heartbeat.sent_at) >= patience {
                heartbeat.is_missed = true;
                newly += 1;
            }
        }
        for _ in 0..newly {
            self.record_result(true);
        }
        self.missed_in_a_row += newly;
        if newly > 0 {
            self.answered_in_a_row = 0;
        }
        newly
    }

    /// Handles an answer; returns `None` if no heartbeat with this number is outstanding. It measures the
    /// round trip only if one heartbeat has the number. If several have it, nothing shows which of them was
    /// answered (Karn's algorithm).
    pub(crate) fn handle_answer(&mut self, now: Time, number: N) -> Option<HeartbeatAnswer> {
        let same = self.outstanding_heartbeats.iter().filter(|heartbeat| heartbeat.number == number).count();
        let at = self.outstanding_heartbeats.iter().position(|heartbeat| heartbeat.number == number)?;
        let heartbeat = self.outstanding_heartbeats.remove(at)?;
        let round_trip = now.saturating_since(heartbeat.sent_at);
        if same == 1 {
            self.round_trip.add_measurement(round_trip);
        }
        if heartbeat.is_missed {
            // Take back the loss that was counted for this heartbeat, because its answer was only late.
            self.loss_history &= !1;
        } else {
            self.record_result(false);
        }
        self.missed_in_a_row = 0;
        // Older heartbeats without an answer are lost. They no longer count towards a failure, because a
        // later one was answered.
        let overtaken = self
            .outstanding_heartbeats
            .iter()
            .filter(|it| !it.is_missed && it.sent_at < heartbeat.sent_at)
            .count();
        for _ in 0..overtaken {
            self.record_result(true);
        }
        // Keep the later heartbeats, because their answers may still arrive.
        self.outstanding_heartbeats.retain(|it| it.sent_at >= heartbeat.sent_at);
        self.answered_in_a_row = self.answered_in_a_row.saturating_add(1);
        let before = self.phase;
        self.apply_event(PathEvent::Answer);
        let changed = |from: PathPhase| before == from && self.phase == PathPhase::Lives;
        let (came_back, is_proven) = (changed(PathPhase::Failed), changed(PathPhase::Proving));
        Some(HeartbeatAnswer { round_trip, is_path_restored: came_back, is_proven })
    }

    /// Marks the path as failed.
    pub(crate) fn mark_failed(&mut self) {
        self.apply_event(PathEvent::Failure);
        self.answered_in_a_row = 0;
    }

    /// Handles another message that shows that a failed path works. If `proof` is true, the path also needs
    /// answers to heartbeats.
    pub(crate) fn handle_other_sign_of_life(&mut self, proof: bool) {
        if self.has_failed() {
            self.answered_in_a_row = 0;
        }
        self.apply_event(PathEvent::Sign { proof });
    }

    /// Ensures that the outstanding heartbeats do not count as lost if their answers do not arrive.
    pub(crate) fn exempt_outstanding_from_loss(&mut self) {
        self.missed_in_a_row = 0;
        self.outstanding_heartbeats.iter_mut().for_each(|heartbeat| heartbeat.is_missed = true);
    }

    /// Removes the outstanding heartbeats. Returns whether there were any.
    pub(crate) fn remove_outstanding_heartbeats(&mut self) -> bool {
        let any = !self.outstanding_heartbeats.is_empty();
        self.outstanding_heartbeats.clear();
        any
    }

    /// Clears all counts, because another path has replaced the measured one.
    pub(crate) fn clear_loss_counts(&mut self) {
        self.outstanding_heartbeats.clear();
        self.missed_in_a_row = 0;
        self.answered_in_a_row = 0;
    }

    /// Assumes again that the path works, because it has changed, or because another message has just shown
    /// it.
    pub(crate) fn assume_working(&mut self) {
        self.clear_loss_counts();
        self.apply_event(PathEvent::Reset);
    }

    /// Resets the path to its initial state, in which it is assumed to work.
    pub(crate) fn reset_to_initial(&mut self) {
        self.apply_event(PathEvent::Reset);
        self.missed_in_a_row = 0;
    }

    /// Removes the outstanding heartbeats and returns their numbers.
    pub(crate) fn take_outstanding_heartbeats(&mut self) -> Vec<N> {
        self.outstanding_heartbeats.drain(..).map(|heartbeat| heartbeat.number).collect()
    }

    /// Restarts the count of answers in a row.
    pub(crate) fn restart_answer_count(&mut self) {
        self.answered_in_a_row = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_at_millis(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn failed_path_recovers_after_the_configured_number_of_answers() {
        for (of_failed, phases) in [(1, [false; 3]), (3, [true, true, false])] {
            let mut path = PathLiveness::new(
                RequiredAnswers { after_failure: of_failed, ..RequiredAnswers::default() },
                RoundTrip::default(),
            );
            path.mark_failed();
            for (number, failed) in phases.into_iter().enumerate() {
                path.record_sent_heartbeat(time_at_millis(0), number);
                path.handle_answer(time_at_millis(10), number)
                    .expect("the answer belongs to a heartbeat that was sent");
                assert_eq!(path.has_failed(), failed, "{of_failed} {number}");
            }
        }
    }

    #[test]
    fn failed_path_that_delivers_another_message_still_needs_three_answers() {
        let mut path = PathLiveness::new(RequiredAnswers::default(), RoundTrip::default());
        path.handle_other_sign_of_life(true);
        assert!(!path.is_recovering(), "it had not failed");
        path.mark_failed();
        path.handle_other_sign_of_life(true);
        for number in 0..3 {
            assert!(path.is_recovering() && !path.has_failed());
            path.record_sent_heartbeat(time_at_millis(0), number);
            assert_eq!(
                path.handle_answer(time_at_millis(10), number).map(|it| it.is_proven),
                Some(number == 2)
            );
        }
        assert!(!path.is_recovering());
    }

    #[test]
    fn late_heartbeat_answer_counts_and_older_heartbeats_count_as_lost() {
        let mut path = PathLiveness::new(RequiredAnswers::default(), RoundTrip::default());
        for number in 0..3 {
            path.record_sent_heartbeat(time_at_millis(number * 100), number);
        }
        assert_eq!(path.mark_overdue_heartbeats(time_at_millis(250), Duration::from_millis(100)), 2);
        assert_eq!((path.missed_in_a_row(), path.unanswered_heartbeat_count()), (2, 1));
        assert!(path.handle_answer(time_at_millis(260), 1).is_some());
        assert_eq!(
            (path.missed_in_a_row(), path.unanswered_heartbeat_count()),
            (0, 1),
            "the third may still be answered"
        );
        assert!(path.handle_answer(time_at_millis(270), 0).is_none(), "the first is lost");
        assert_eq!(path.loss_fraction(), 0.5);
    }

    #[test]
    fn equal_sequence_numbers_of_two_probes_give_no_round_trip_time() {
        let mut path = PathLiveness::new(RequiredAnswers::default(), RoundTrip::default());
        path.record_sent_heartbeat(time_at_millis(0), 7);
        path.record_sent_heartbeat(time_at_millis(100), 7);
        assert!(path.handle_answer(time_at_millis(150), 7).is_some());
        assert_eq!(path.round_trip().smoothed(), None);
    }
}
