//! Retransmission of a request with back-off (RFC 6275 11.8), for every entry of the Binding Update List.
//!
//! A round has one transmission for each care-of address that may carry the request. The time for an answer
//! doubles from round to round. Registrations without Binding Identifier, with one, removals, and the tests
//! and Binding Updates of direct routes all use it.

use std::time::Duration;

use carnet_base::Time;

/// Time for the first answer to a first registration: `InitialBindackTimeoutFirstReg` (RFC 6275 13). It
/// suffices for duplicate address detection.
pub(super) const FIRST_REGISTRATION_TIMEOUT: Duration = Duration::from_millis(1500);
/// Time for the first answer: `INITIAL_BINDACK_TIMEOUT` (RFC 6275 12).
pub(crate) const INITIAL_BINDACK_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest time for an answer: `MAX_BINDACK_TIMEOUT` (RFC 6275 12).
pub(crate) const MAX_BINDACK_TIMEOUT: Duration = Duration::from_secs(32);
/// Head start of the first care-of address in a race (RFC 8305 5).
pub(crate) const CONNECTION_ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Most answers that ask for another try at once and that the router follows.
const MAX_CORRECTIONS: u32 = 3;
/// Transmissions of a request whose acknowledgements the router still accepts.
const MAX_SENT: usize = 8;

/// The transmissions of one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retransmission {
    /// Time of the first transmission.
    started: Option<Time>,
    /// Time of the last transmission.
    last: Option<Time>,
    /// Time of the first transmission since the last answer.
    silent_since: Option<Time>,
    /// Index of the care-of address that is next in this round.
    turn: usize,
    /// Time for the answer to the next round.
    timeout: Duration,
    /// Longest time for an answer.
    longest: Duration,
    /// Rounds since the last answer.
    rounds: u32,
    /// Number of answers that have asked for another try at once.
    corrections: u32,
}

impl Retransmission {
    /// A request to the home agent; `is_first` if the home agent does not know the home address yet.
    pub(crate) fn to_home_agent(is_first: bool) -> Retransmission {
        let timeout = if is_first { FIRST_REGISTRATION_TIMEOUT } else { INITIAL_BINDACK_TIMEOUT };
        Retransmission::new(timeout, MAX_BINDACK_TIMEOUT)
    }

    /// A request whose first answer may take `timeout`, and any later one `longest`.
    pub(crate) fn new(timeout: Duration, longest: Duration) -> Retransmission {
        Retransmission {
            started: None,
            last: None,
            silent_since: None,
            turn: 0,
            timeout,
            longest,
            rounds: 0,
            corrections: 0,
        }
    }

    /// Records a transmission about one of `candidates` care-of addresses. Returns the wait for an answer
    /// before the next one.
    pub(crate) fn transmitted(&mut self, now: Time, candidates: usize) -> Duration {
        self.started.get_or_insert(now);
        self.silent_since.get_or_insert(now);
        self.last = Some(now);
        self.turn += 1;
        if self.turn < candidates {
            return CONNECTION_ATTEMPT_DELAY;
        }
        self.turn = 0;
        self.rounds += 1;
        let wait = self.timeout;
        self.timeout = (self.timeout * 2).min(self.longest);
        wait
    }

    /// Records an answer of the other side, of any kind.
    pub(crate) fn answered(&mut self) {
        self.rounds = 0;
        self.silent_since = None;
    }

    /// Handles an answer that asks for another try at once. Returns false if there were too many.
    pub(crate) fn correct(&mut self) -> bool {
        self.corrections += 1;
        self.is_patient()
    }

    /// Whether there were few enough answers that asked for another try at once.
    pub(crate) fn is_patient(&self) -> bool {
        self.corrections <= MAX_CORRECTIONS
    }

    /// Begins with the first care-of address again.
    pub(crate) fn begin_anew(&mut self) {
        self.rounds = 0;
        self.turn = 0;
    }

    /// Limits the wait for the next answer to `timeout`.
    pub(crate) fn limit(&mut self, timeout: Duration) {
        self.timeout = self.timeout.min(timeout);
    }

    /// Raises the wait for the next answer to `timeout`.
    pub(crate) fn extend(&mut self, timeout: Duration) {
        self.timeout = self.timeout.max(timeout);
    }

    /// Returns when the first transmission left.
    pub(crate) fn started(&self) -> Option<Time> {
        self.started
    }

    /// Returns when the last transmission left.
    pub(crate) fn last(&self) -> Option<Time> {
        self.last
    }

    /// Returns when the first transmission since the last answer left.
    pub(crate) fn silent_since(&self) -> Option<Time> {
        self.silent_since
    }

    /// Returns the index of the care-of address that is next.
    pub(crate) fn turn(&self) -> usize {
        self.turn
    }

    /// Returns the time for the answer to the next round.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the rounds since the last answer.
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Whether nothing was sent since the last answer.
    pub(crate) fn is_fresh(&self) -> bool {
        self.rounds == 0 && self.turn == 0
    }
}

/// Records a transmission. Acknowledgements of recorded transmissions are still accepted.
pub(super) fn remember<T>(sent: &mut Vec<T>, transmission: T) {
    if sent.len() == MAX_SENT {
        sent.remove(0);
    }
    sent.push(transmission);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmissions_back_off_to_thirty_two_seconds() {
        let waits = |is_first: bool| -> Vec<f64> {
            let mut request = Retransmission::to_home_agent(is_first);
            (0..8).map(|_| request.transmitted(Time::ZERO, 1).as_secs_f64()).collect()
        };
        assert_eq!(waits(true), [1.5, 3.0, 6.0, 12.0, 24.0, 32.0, 32.0, 32.0]);
        assert_eq!(waits(false)[0], 1.0);
    }

    #[test]
    fn second_care_of_address_follows_a_quarter_of_a_second_behind_the_first() {
        let mut request = Retransmission::to_home_agent(true);
        for (turn, wait) in [(0, 0.25), (1, 1.5), (0, 0.25), (1, 3.0)] {
            assert_eq!(request.turn(), turn);
            assert_eq!(request.transmitted(Time::ZERO, 2).as_secs_f64(), wait);
        }
        assert_eq!(request.rounds(), 2);
    }

    #[test]
    fn fourth_correction_is_not_followed() {
        let mut request = Retransmission::to_home_agent(false);
        assert_eq!([(); 4].map(|()| request.correct()), [true, true, true, false]);
    }
}
