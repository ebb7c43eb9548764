//! Retransmission of a request with back-off (RFC 6275 11.8), for every entry of the Binding Update List.
//!
//! In one round the router sends the request once from each care-of address that may carry it. The time to
//! wait for an answer doubles from round to round. All requests use it: registrations with and without
//! Binding Identifiers, removals, and the tests and Binding Updates of direct routes.

use std::time::Duration;

use carnet_base::Time;

/// Time to wait for the first answer to a first registration: `InitialBindackTimeoutFirstReg` (RFC 6275 13).
/// It covers duplicate address detection.
pub(super) const FIRST_REGISTRATION_TIMEOUT: Duration = Duration::from_millis(1500);
/// Time to wait for the first answer: `INITIAL_BINDACK_TIMEOUT` (RFC 6275 12).
pub(crate) const INITIAL_BINDACK_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time to wait for an answer: `MAX_BINDACK_TIMEOUT` (RFC 6275 12).
pub(crate) const MAX_BINDACK_TIMEOUT: Duration = Duration::from_secs(32);
/// Time between the transmissions from two care-of addresses in one round (RFC 8305 5).
pub(crate) const CONNECTION_ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Maximum number of answers that make the router send again at once.
const MAX_IMMEDIATE_RETRIES: u32 = 3;
/// Number of last transmissions of a request whose acknowledgements the router accepts.
const MAX_RECORDED_TRANSMISSIONS: usize = 8;

/// State of the transmissions of one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retransmission {
    /// Time of the first transmission of the request; `None` before it.
    first_sent_at: Option<Time>,
    /// Time of the last transmission of the request; `None` before the first one.
    last_sent_at: Option<Time>,
    /// Time of the first transmission since the last answer; `None` if the router has sent nothing since.
    unanswered_since: Option<Time>,
    /// Index of the next care-of address in this round.
    address_index: usize,
    /// Time to wait for an answer in the next round.
    answer_timeout: Duration,
    /// Maximum time to wait for an answer.
    max_answer_timeout: Duration,
    /// Number of rounds since the last answer.
    unanswered_rounds: u32,
    /// Number of answers that made the router send again at once.
    immediate_retry_count: u32,
}

impl Retransmission {
    /// Creates the state for a request to the home agent. `is_first` is true if the home agent does not know
    /// the home address yet.
    pub(crate) fn to_home_agent(is_first: bool) -> Retransmission {
        let timeout = if is_first { FIRST_REGISTRATION_TIMEOUT } else { INITIAL_BINDACK_TIMEOUT };
        Retransmission::new(timeout, MAX_BINDACK_TIMEOUT)
    }

    /// Creates the state for a request with this first and this maximum time to wait for an answer.
    pub(crate) fn new(timeout: Duration, longest: Duration) -> Retransmission {
        Retransmission {
            first_sent_at: None,
            last_sent_at: None,
            unanswered_since: None,
            address_index: 0,
            answer_timeout: timeout,
            max_answer_timeout: longest,
            unanswered_rounds: 0,
            immediate_retry_count: 0,
        }
    }

    /// Records a transmission. `candidates` is the number of care-of addresses of a round. Returns the time
    /// to wait before the next transmission.
    pub(crate) fn record_transmission(&mut self, now: Time, candidates: usize) -> Duration {
        self.first_sent_at.get_or_insert(now);
        self.unanswered_since.get_or_insert(now);
        self.last_sent_at = Some(now);
        self.address_index += 1;
        if self.address_index < candidates {
            return CONNECTION_ATTEMPT_DELAY;
        }
        self.address_index = 0;
        self.unanswered_rounds += 1;
        let wait = self.answer_timeout;
        self.answer_timeout = (self.answer_timeout * 2).min(self.max_answer_timeout);
        wait
    }

    /// Records any answer.
    pub(crate) fn record_answer(&mut self) {
        self.unanswered_rounds = 0;
        self.unanswered_since = None;
    }

    /// Handles an answer that makes the router send again at once. Returns false if there were too many of
    /// them.
    pub(crate) fn record_immediate_retry(&mut self) -> bool {
        self.immediate_retry_count += 1;
        self.may_retry_immediately()
    }

    /// Returns whether the home agent sent at most [`MAX_IMMEDIATE_RETRIES`] answers that asked for another
    /// request at once.
    pub(crate) fn may_retry_immediately(&self) -> bool {
        self.immediate_retry_count <= MAX_IMMEDIATE_RETRIES
    }

    /// Restarts the count of rounds, and lets the next round begin with the first care-of address.
    pub(crate) fn restart_rounds(&mut self) {
        self.unanswered_rounds = 0;
        self.address_index = 0;
    }

    /// Lowers the time to wait for the next answer to at most `timeout`.
    pub(crate) fn limit_timeout(&mut self, timeout: Duration) {
        self.answer_timeout = self.answer_timeout.min(timeout);
    }

    /// Raises the time to wait for the next answer to at least `timeout`.
    pub(crate) fn extend_timeout(&mut self, timeout: Duration) {
        self.answer_timeout = self.answer_timeout.max(timeout);
    }

    /// Returns when the first transmission left; `None` before the first transmission.
    pub(crate) fn first_sent_at(&self) -> Option<Time> {
        self.first_sent_at
    }

    /// Returns when the last transmission left; `None` before the first.
    pub(crate) fn last_sent_at(&self) -> Option<Time> {
        self.last_sent_at
    }

    /// Returns when the first transmission since the last answer left; `None` if the router has sent nothing
    /// since.
    pub(crate) fn unanswered_since(&self) -> Option<Time> {
        self.unanswered_since
    }

    /// Returns the index of the next care-of address.
    pub(crate) fn address_index(&self) -> usize {
        self.address_index
    }

    /// Returns the time to wait for an answer in the next round.
    pub(crate) fn answer_timeout(&self) -> Duration {
        self.answer_timeout
    }

    /// Returns the number of rounds since the last answer.
    pub(crate) fn unanswered_rounds(&self) -> u32 {
        self.unanswered_rounds
    }

    /// Returns whether the router has sent nothing since the last answer.
    pub(crate) fn has_no_unanswered_transmission(&self) -> bool {
        self.unanswered_rounds == 0 && self.address_index == 0
    }
}

/// Records a transmission, and removes the oldest ones. The router accepts acknowledgements only of recorded
/// transmissions.
pub(super) fn push_bounded_transmission<T>(sent: &mut Vec<T>, transmission: T) {
    if sent.len() == MAX_RECORDED_TRANSMISSIONS {
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
            (0..8).map(|_| request.record_transmission(Time::ZERO, 1).as_secs_f64()).collect()
        };
        assert_eq!(waits(true), [1.5, 3.0, 6.0, 12.0, 24.0, 32.0, 32.0, 32.0]);
        assert_eq!(waits(false)[0], 1.0);
    }

    #[test]
    fn second_care_of_address_is_tried_250_ms_after_the_first() {
        let mut request = Retransmission::to_home_agent(true);
        for (index, wait) in [(0, 0.25), (1, 1.5), (0, 0.25), (1, 3.0)] {
            assert_eq!(request.address_index(), index);
            assert_eq!(request.record_transmission(Time::ZERO, 2).as_secs_f64(), wait);
        }
        assert_eq!(request.unanswered_rounds(), 2);
    }

    #[test]
    fn fourth_corrected_request_is_refused() {
        let mut request = Retransmission::to_home_agent(false);
        assert_eq!([(); 4].map(|()| request.record_immediate_retry()), [true, true, true, false]);
    }
}
