//! Path liveness: heartbeats, failures and round trips (RFC 5847 in purpose).
//!
//! Three kinds of paths use it. They differ in the message that asks, and in the time that they allow for an
//! answer:
//!
//! | path | message | next heartbeat |
//! |---|---|---|
//! | uplink to the home agent | Heartbeat (RFC 5847) | at an interval, answered or not: [`Timing`] |
//! | direct route | Heartbeat of direct routes | after an answer, or when it is late: [`Sequence`] |
//! | neighbouring mobile network | Probe | after an answer, or when it is late: [`Sequence`] |
//!
//! A heartbeat without an answer is followed by a quick series. A path that leaves all of a series unanswered
//! has failed. Left out: the messages themselves, and the consequence of a failure. Both are the owner's.

mod round_trip;
mod schedule;

use std::collections::VecDeque;
use std::time::Duration;

use carnet_base::Time;

pub(crate) use round_trip::RoundTrip;
pub(crate) use schedule::{Sequence, Timing};

/// Most heartbeats without an answer that are remembered: on a full path answers take seconds.
const MAX_OUTSTANDING: usize = 128;

/// State of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Lives,
    /// A series of heartbeats stayed without an answer.
    Failed,
    /// The path has failed and works again, but has not answered often enough yet.
    Proving,
}

/// An event that may change the phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// The other end has answered a heartbeat.
    Answer,
    /// The owner gives the path up.
    Failure,
    /// Another message has shown that the path works. With `proof` it has to prove itself by heartbeats.
    Sign { proof: bool },
    /// The path has changed, or heartbeats show nothing about it.
    Reset,
}

/// Answers in a row that a path must give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Proof {
    /// Number of answers after a failure, until the path works again.
    pub(crate) of_failed: u32,
    /// Number of answers after another sign of life, until the path has proven itself.
    pub(crate) of_proving: u32,
}

impl Default for Proof {
    fn default() -> Proof {
        Proof { of_failed: 1, of_proving: 3 }
    }
}

/// A heartbeat that was sent.
#[derive(Debug, Clone, Copy)]
struct Heartbeat<N> {
    number: N,
    sent: Time,
    /// Whether the answer is overdue.
    is_missed: bool,
}

/// An answer to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) round_trip: Duration,
    /// Whether the path had failed and works again.
    pub(crate) came_back: bool,
    /// Whether the path had to prove itself and has done so.
    pub(crate) is_proven: bool,
}

/// Liveness of one path. `N` is the number or cookie that distinguishes its heartbeats.
#[derive(Debug, Clone)]
pub(crate) struct PathLiveness<N> {
    phase: Phase,
    proof: Proof,
    /// Heartbeats without an answer, the oldest first.
    outstanding: VecDeque<Heartbeat<N>>,
    /// Heartbeats missed in a row.
    missed: usize,
    /// Heartbeats answered in a row.
    answered: u32,
    last_sent: Option<Time>,
    round_trip: RoundTrip,
    /// The last results, the newest lowest; a bit is set for a loss.
    losses: u64,
    /// Number of results, at most 64.
    results: u32,
}

impl<N: Copy + PartialEq> PathLiveness<N> {
    /// A path that works, as far as is known. After a failure it has to give this proof.
    pub(crate) fn new(proof: Proof, round_trip: RoundTrip) -> PathLiveness<N> {
        PathLiveness {
            phase: Phase::Lives,
            proof,
            outstanding: VecDeque::new(),
            missed: 0,
            answered: 0,
            last_sent: None,
            round_trip,
            losses: 0,
            results: 0,
        }
    }

    /// Changes the phase by an event.
    fn apply(&mut self, event: Event) {
        self.phase = match (self.phase, event) {
            (Phase::Failed, Event::Answer) if self.answered >= self.proof.of_failed => Phase::Lives,
            (Phase::Proving, Event::Answer) if self.answered >= self.proof.of_proving => Phase::Lives,
            (phase, Event::Answer) => phase,
            (_, Event::Failure) => Phase::Failed,
            (Phase::Failed, Event::Sign { proof: true }) => Phase::Proving,
            (Phase::Failed, Event::Sign { proof: false }) => Phase::Lives,
            (phase, Event::Sign { .. }) => phase,
            (_, Event::Reset) => Phase::Lives,
        };
    }

    /// Whether the path has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.phase == Phase::Failed
    }

    /// Whether the path has yet to prove itself.
    pub(crate) fn is_proving(&self) -> bool {
        self.phase == Phase::Proving
    }

    /// Returns the round trips.
    pub(crate) fn round_trip(&self) -> &RoundTrip {
        &self.round_trip
    }

    /// Returns the round trips, to be changed.
    pub(crate) fn round_trip_mut(&mut self) -> &mut RoundTrip {
        &mut self.round_trip
    }

    /// Whether the other end has answered a heartbeat lately.
    pub(crate) fn has_answered(&self) -> bool {
        self.results > self.losses.count_ones()
    }

    /// Returns the part of the last heartbeats that was not answered, 0 to 1.
    pub(crate) fn loss(&self) -> f64 {
        if self.results == 0 {
            return 0.0;
        }
        let mask = u64::MAX >> (64 - self.results);
        f64::from((self.losses & mask).count_ones()) / f64::from(self.results)
    }

    /// Whether no heartbeat waits for its answer.
    pub(crate) fn is_quiet(&self) -> bool {
        self.outstanding.is_empty()
    }

    /// Returns when the heartbeat with this number was sent, if it waits for its answer.
    pub(crate) fn sent_at(&self, number: N) -> Option<Time> {
        self.outstanding.iter().find(|heartbeat| heartbeat.number == number).map(|heartbeat| heartbeat.sent)
    }

    /// Whether a heartbeat with this number waits for its answer.
    pub(crate) fn awaits(&self, number: N) -> bool {
        self.sent_at(number).is_some()
    }

    /// Returns the number of the oldest heartbeat without an answer.
    pub(crate) fn oldest(&self) -> Option<N> {
        self.outstanding.front().map(|heartbeat| heartbeat.number)
    }

    /// Returns when the oldest heartbeat without an answer was sent.
    pub(crate) fn oldest_sent(&self) -> Option<Time> {
        self.outstanding.front().map(|heartbeat| heartbeat.sent)
    }

    /// Returns how many heartbeats were missed in a row.
    pub(crate) fn missed(&self) -> usize {
        self.missed
    }

    /// Returns how many heartbeats wait for their answer and are not overdue.
    pub(crate) fn open(&self) -> usize {
        self.outstanding.iter().filter(|heartbeat| !heartbeat.is_missed).count()
    }

    /// Whether an outstanding answer takes longer than `late`.
    pub(crate) fn is_late(&self, now: Time, late: Duration) -> bool {
        self.outstanding.iter().any(|it| !it.is_missed && now.saturating_since(it.sent) >= late)
    }

    /// Whether a heartbeat that was sent since then should have been answered within `due`.
    pub(crate) fn is_unanswered_since(&self, now: Time, since: Time, due: Duration) -> bool {
        self.outstanding.iter().any(|it| it.sent >= since && now.saturating_since(it.sent) > due)
    }

    /// Returns when the last heartbeat was sent.
    pub(crate) fn last_sent(&self) -> Option<Time> {
        self.last_sent
    }

    /// Records that another message was sent that serves as a heartbeat.
    pub(crate) fn note_sent(&mut self, now: Time) {
        self.last_sent = Some(now);
    }

    /// Lets a heartbeat leave at once, unless one was sent within `pause`.
    pub(crate) fn hasten(&mut self, now: Time, pause: Duration) {
        self.last_sent = self.last_sent.filter(|at| now.saturating_since(*at) < pause);
    }

    /// Notes that a heartbeat was sent.
    pub(crate) fn sent(&mut self, now: Time, number: N) {
        self.outstanding.push_back(Heartbeat { number, sent: now, is_missed: false });
        if self.outstanding.len() > MAX_OUTSTANDING {
            self.outstanding.pop_front();
        }
        self.last_sent = Some(now);
    }

    fn note_result(&mut self, lost: bool) {
        self.losses = self.losses << 1 | u64::from(lost);
        self.results = (self.results + 1).min(64);
    }

    /// Notes which answers are overdue by now. Returns how many have become so.
    pub(crate) fn expire(&mut self, now: Time, patience: Duration) -> usize {
        let mut newly = 0;
        for heartbeat in self.outstanding.iter_mut().filter(|heartbeat| !heartbeat.is_missed) {
            if now.saturating_since(heartbeat.sent) >= patience {
                heartbeat.is_missed = true;
                newly += 1;
            }
        }
        for _ in 0..newly {
            self.note_result(true);
        }
        self.missed += newly;
        if newly > 0 {
            self.answered = 0;
        }
        newly
    }

    /// Takes in an answer; `None` if no heartbeat with this number waits for one. A round trip is measured
    /// only if one heartbeat had the number: else it is unknown which of them is answered (Karn's algorithm).
    pub(crate) fn answer(&mut self, now: Time, number: N) -> Option<Answer> {
        let same = self.outstanding.iter().filter(|heartbeat| heartbeat.number == number).count();
        let at = self.outstanding.iter().position(|heartbeat| heartbeat.number == number)?;
        let heartbeat = self.outstanding.remove(at)?;
        let round_trip = now.saturating_since(heartbeat.sent);
        if same == 1 {
            self.round_trip.measure(round_trip);
        }
        if heartbeat.is_missed {
            // The answer was late, not lost.
            self.losses &= !1;
        } else {
            self.note_result(false);
        }
        self.missed = 0;
        // An older heartbeat without an answer is lost, but no longer a sign of a failure.
        let overtaken =
            self.outstanding.iter().filter(|it| !it.is_missed && it.sent < heartbeat.sent).count();
        for _ in 0..overtaken {
            self.note_result(true);
        }
        // Later heartbeats may still be answered, however late.
        self.outstanding.retain(|it| it.sent >= heartbeat.sent);
        self.answered = self.answered.saturating_add(1);
        let before = self.phase;
        self.apply(Event::Answer);
        let changed = |from: Phase| before == from && self.phase == Phase::Lives;
        let (came_back, is_proven) = (changed(Phase::Failed), changed(Phase::Proving));
        Some(Answer { round_trip, came_back, is_proven })
    }

    /// Marks the path as failed.
    pub(crate) fn fail(&mut self) {
        self.apply(Event::Failure);
        self.answered = 0;
    }

    /// Another message has shown that a failed path works. With `proof` it has to prove itself by heartbeats.
    pub(crate) fn show(&mut self, proof: bool) {
        if self.has_failed() {
            self.answered = 0;
        }
        self.apply(Event::Sign { proof });
    }

    /// Excuses the heartbeats that wait for an answer: it may still come, but counts for nothing if it does
    /// not.
    pub(crate) fn excuse(&mut self) {
        self.missed = 0;
        self.outstanding.iter_mut().for_each(|heartbeat| heartbeat.is_missed = true);
    }

    /// Forgets the heartbeats that wait for an answer. Returns whether there were any.
    pub(crate) fn forget(&mut self) -> bool {
        let any = !self.outstanding.is_empty();
        self.outstanding.clear();
        any
    }

    /// Begins to count anew: the path is another one.
    pub(crate) fn restart(&mut self) {
        self.outstanding.clear();
        self.missed = 0;
        self.answered = 0;
    }

    /// Begins anew with a path that works: it has changed, or another message has just shown it.
    pub(crate) fn renew(&mut self) {
        self.restart();
        self.apply(Event::Reset);
    }

    /// Resets the path to one that works and of which nothing is known.
    pub(crate) fn reset(&mut self) {
        self.apply(Event::Reset);
        self.missed = 0;
    }

    /// Takes the heartbeats that wait for an answer away. Returns their numbers.
    pub(crate) fn take_outstanding(&mut self) -> Vec<N> {
        self.outstanding.drain(..).map(|heartbeat| heartbeat.number).collect()
    }

    /// Begins the count of answers in a row anew.
    pub(crate) fn interrupt(&mut self) {
        self.answered = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn failed_path_lives_again_after_the_answers_that_its_owner_demands() {
        for (of_failed, phases) in [(1, [false; 3]), (3, [true, true, false])] {
            let mut path = PathLiveness::new(Proof { of_failed, ..Proof::default() }, RoundTrip::default());
            path.fail();
            for (number, failed) in phases.into_iter().enumerate() {
                path.sent(at(0), number);
                path.answer(at(10), number).expect("an answer to a heartbeat");
                assert_eq!(path.has_failed(), failed, "{of_failed} {number}");
            }
        }
    }

    #[test]
    fn path_that_another_message_has_shown_to_work_proves_itself() {
        let mut path = PathLiveness::new(Proof::default(), RoundTrip::default());
        path.show(true);
        assert!(!path.is_proving(), "it had not failed");
        path.fail();
        path.show(true);
        for number in 0..3 {
            assert!(path.is_proving() && !path.has_failed());
            path.sent(at(0), number);
            assert_eq!(path.answer(at(10), number).map(|it| it.is_proven), Some(number == 2));
        }
        assert!(!path.is_proving());
    }

    #[test]
    fn answer_is_late_and_not_lost_and_older_heartbeats_are() {
        let mut path = PathLiveness::new(Proof::default(), RoundTrip::default());
        for number in 0..3 {
            path.sent(at(number * 100), number);
        }
        assert_eq!(path.expire(at(250), Duration::from_millis(100)), 2);
        assert_eq!((path.missed(), path.open()), (2, 1));
        assert!(path.answer(at(260), 1).is_some());
        assert_eq!((path.missed(), path.open()), (0, 1), "the third may still be answered");
        assert!(path.answer(at(270), 0).is_none(), "the first is lost");
        assert_eq!(path.loss(), 0.5);
    }

    #[test]
    fn round_trip_is_not_measured_if_two_probes_have_one_number() {
        let mut path = PathLiveness::new(Proof::default(), RoundTrip::default());
        path.sent(at(0), 7);
        path.sent(at(100), 7);
        assert!(path.answer(at(150), 7).is_some());
        assert_eq!(path.round_trip().smoothed(), None);
    }
}
