//! A request and its retransmissions until the answer (RFC 6275 11.8). The entries of the Binding Update List
//! and the direct routes use the same state machine.
//!
//! An [`Exchange`] registers a care-of address, ends a binding, or tests an address of a direct route: see
//! its `purpose`. It has the time of the next transmission, and the last transmissions, whose answers the
//! router still accepts. Only an [`ExchangeEvent`] changes its phase. A registration may exist at the same
//! time: while the router registers a new care-of address, the old registration still carries traffic.

use std::collections::BTreeMap;
use std::net::IpAddr;

use carnet_base::Time;

use super::retransmission::{Retransmission, push_bounded_transmission};

/// Purpose of a request to the home agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestPurpose {
    /// The exchange registers a care-of address.
    Register,
    /// The exchange ends the registration.
    Deregister,
}

/// One transmission of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transmission {
    pub sequence: u16,
    pub sent_at: Time,
    pub timestamp: Option<u64>,
    /// Care-of address that the message registers or tests.
    pub care_of_address: IpAddr,
}

/// A request and its retransmissions, until its answer.
#[derive(Debug, Clone)]
pub(crate) struct Exchange<P = RequestPurpose> {
    pub purpose: P,
    /// Care-of addresses that the request may register or test. The router tries them in this order without
    /// waiting for each answer, like happy eyeballs (RFC 8305 5). A de-registration on the home link has the
    /// home address instead.
    pub care_of_addresses: Vec<IpAddr>,
    /// Last transmissions, the latest last.
    pub transmissions: Vec<Transmission>,
    pub retransmission: Retransmission,
    /// Router through which the last transmission from each care-of address was sent.
    router_by_care_of_address: BTreeMap<IpAddr, Option<IpAddr>>,
    phase: ExchangePhase,
    /// Time of the next transmission; `None` if the router sends no further message.
    next_transmission_at: Option<Time>,
}

/// Phase of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExchangePhase {
    /// The router retransmits until the peer answers.
    Retransmitting,
    /// The peer refused for the moment: the router sends nothing until a pause ends. Waiting packets do not
    /// end the pause, nor does a hint that the peer has lost the binding.
    Held,
    /// The router asks a home agent again that has refused before: it sends the update once, without
    /// retransmission.
    Single,
}

/// An event that may change the phase of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExchangeEvent {
    /// The router sent a message for one of `rivals` care-of addresses that it tries at the same time.
    Transmission {
        /// Number of care-of addresses that the router tries at the same time, at least 1.
        rivals: usize,
    },
    /// The peer answered one of the transmissions, with any status.
    Response,
    /// The peer answered for the first time, and the answer does not ask for a corrected request.
    Answer,
    /// The answer asks for another request at once.
    Correction,
    /// The peer refused, and the router must not ask again before this time.
    Refusal(Time),
    /// Packets wait for a registration, or a message suggests that the peer has lost the binding.
    Haste,
    /// Another request has precedence: this request leaves at this time at the earliest.
    Delay(Time),
    /// The failed path carries packets again.
    Recovery,
}

impl<P> Exchange<P> {
    /// Creates a request. The router sends its first message at `next`.
    pub fn new(
        purpose: P,
        care_of_addresses: Vec<IpAddr>,
        next: Time,
        retransmission: Retransmission,
    ) -> Self {
        Exchange {
            purpose,
            care_of_addresses,
            transmissions: Vec::new(),
            retransmission,
            router_by_care_of_address: BTreeMap::new(),
            phase: ExchangePhase::Retransmitting,
            next_transmission_at: Some(next),
        }
    }

    /// Changes the phase, the retransmission and the time of the next transmission after an event.
    pub fn apply_event(&mut self, now: Time, event: ExchangeEvent) {
        (self.phase, self.next_transmission_at) = match (self.phase, event) {
            (phase, ExchangeEvent::Transmission { rivals }) => {
                let next = now + self.retransmission.record_transmission(now, rivals);
                match phase {
                    ExchangePhase::Single => (phase, None),
                    ExchangePhase::Retransmitting | ExchangePhase::Held => {
                        (ExchangePhase::Retransmitting, Some(next))
                    }
                }
            }
            (phase, ExchangeEvent::Response) => {
                self.retransmission.record_answer();
                (phase, self.next_transmission_at)
            }
            (ExchangePhase::Single, ExchangeEvent::Answer) => {
                (ExchangePhase::Retransmitting, self.next_transmission_at)
            }
            (phase, ExchangeEvent::Answer) => (phase, self.next_transmission_at),
            (phase, ExchangeEvent::Correction) => (
                phase,
                if self.retransmission.record_immediate_retry() {
                    Some(now)
                } else {
                    self.next_transmission_at
                },
            ),
            (_, ExchangeEvent::Refusal(until)) => (ExchangePhase::Held, Some(until)),
            (ExchangePhase::Retransmitting, ExchangeEvent::Haste) => {
                (ExchangePhase::Retransmitting, self.next_transmission_at.map(|next| next.min(now)))
            }
            (phase @ (ExchangePhase::Held | ExchangePhase::Single), ExchangeEvent::Haste) => {
                (phase, self.next_transmission_at)
            }
            (phase, ExchangeEvent::Delay(until)) => {
                (phase, self.next_transmission_at.map(|next| next.max(until)))
            }
            (phase @ (ExchangePhase::Held | ExchangePhase::Retransmitting), ExchangeEvent::Recovery) => {
                (phase, Some(now))
            }
            (ExchangePhase::Single, ExchangeEvent::Recovery) => {
                (ExchangePhase::Single, self.next_transmission_at)
            }
        };
    }

    /// Records a transmission, so that the router accepts its answer.
    pub fn record_transmission(&mut self, sent: Transmission) {
        push_bounded_transmission(&mut self.transmissions, sent);
    }

    /// Sets the time of the next transmission.
    pub fn schedule_transmission(&mut self, at: Time) {
        self.next_transmission_at = Some(at);
    }

    /// Returns the time of the next transmission; `None` if no message follows.
    pub fn next_transmission(&self) -> Option<Time> {
        self.next_transmission_at
    }

    /// Returns whether the next transmission is due.
    pub fn is_due(&self, now: Time) -> bool {
        self.next_transmission_at.is_some_and(|next| next <= now)
    }

    /// Handles an answer that asks for another request at once. Returns false if the peer sent more such
    /// answers than permitted.
    pub fn retry_immediately(&mut self, now: Time) -> bool {
        self.apply_event(now, ExchangeEvent::Correction);
        self.retransmission.may_retry_immediately()
    }

    /// Returns whether the peer refused for the moment, so that not even waiting packets make the router send
    /// a request.
    pub fn is_transmission_held(&self) -> bool {
        self.phase == ExchangePhase::Held
    }

    /// Returns whether the router sends the update only once.
    pub fn is_never_retransmitted(&self) -> bool {
        self.phase == ExchangePhase::Single
    }

    /// Returns the care-of address of the next transmission; `None` if the request has none.
    pub fn next_care_of_address(&self) -> Option<IpAddr> {
        self.care_of_addresses
            .get(self.retransmission.address_index())
            .or(self.care_of_addresses.first())
            .copied()
    }

    /// Returns the care-of address of the last transmission; before the first transmission, the next care-of
    /// address. `None` if the request has neither.
    pub fn care_of_address(&self) -> Option<IpAddr> {
        self.last_transmission().map(|sent| sent.care_of_address).or_else(|| self.next_care_of_address())
    }

    /// Records the router that a transmission from this care-of address is sent through.
    pub fn record_router(&mut self, care_of_address: IpAddr, router: Option<IpAddr>) {
        self.router_by_care_of_address.insert(care_of_address, router);
    }

    /// Returns whether the last transmission from this care-of address was sent through another router.
    pub fn used_other_router(&self, care_of_address: IpAddr, router: Option<IpAddr>) -> bool {
        self.router_by_care_of_address.get(&care_of_address).is_some_and(|known| *known != router)
    }

    /// Returns the transmission with this sequence number, which an answer names; `None` if the router no
    /// longer stores it.
    pub fn find_transmission(&self, sequence: u16) -> Option<Transmission> {
        self.transmissions.iter().rev().find(|sent| sent.sequence == sequence).copied()
    }

    /// Returns the last transmission; `None` before the first.
    pub fn last_transmission(&self) -> Option<&Transmission> {
        self.transmissions.last()
    }

    /// Returns whether the router has sent a message of this request.
    pub fn was_transmitted(&self) -> bool {
        !self.transmissions.is_empty()
    }
}

impl Exchange {
    /// Creates the state for a request to the home agent. `is_first` is true if the home agent does not know
    /// the home address yet.
    pub fn to_home_agent(
        purpose: RequestPurpose,
        addresses: Vec<IpAddr>,
        next: Time,
        is_first: bool,
    ) -> Self {
        Exchange::new(purpose, addresses, next, Retransmission::to_home_agent(is_first))
    }

    /// Creates an exchange that is sent once, without retransmission, to a home agent that has refused
    /// before.
    pub fn new_without_retransmission(care_of_addresses: Vec<IpAddr>, next: Time) -> Self {
        let exchange = Exchange::to_home_agent(RequestPurpose::Register, care_of_addresses, next, true);
        Exchange { phase: ExchangePhase::Single, ..exchange }
    }

    /// Creates a request to register that the router does not send before `until`.
    pub fn new_held_until(until: Time) -> Self {
        let mut exchange = Exchange::to_home_agent(RequestPurpose::Register, Vec::new(), until, false);
        exchange.apply_event(until, ExchangeEvent::Refusal(until));
        exchange
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Time = Time::from_secs(1);

    fn exchange() -> Exchange {
        Exchange::to_home_agent(RequestPurpose::Register, Vec::new(), Time::ZERO, false)
    }

    #[test]
    fn trigger_does_not_send_refused_exchange_before_its_scheduled_time() {
        let mut exchange = exchange();
        exchange.apply_event(Time::ZERO, ExchangeEvent::Transmission { rivals: 1 });
        exchange.apply_event(Time::ZERO, ExchangeEvent::Refusal(Time::from_secs(32)));
        exchange.apply_event(SECOND, ExchangeEvent::Haste);
        assert_eq!(
            (exchange.is_transmission_held(), exchange.next_transmission()),
            (true, Some(Time::from_secs(32)))
        );
        exchange.apply_event(Time::from_secs(32), ExchangeEvent::Transmission { rivals: 1 });
        exchange.apply_event(Time::from_secs(33), ExchangeEvent::Haste);
        assert_eq!(
            (exchange.is_transmission_held(), exchange.next_transmission()),
            (false, Some(Time::from_secs(33)))
        );
    }

    #[test]
    fn exchange_without_rivals_is_transmitted_once_until_its_answer() {
        let mut exchange = Exchange::new_without_retransmission(Vec::new(), Time::ZERO);
        exchange.apply_event(Time::ZERO, ExchangeEvent::Transmission { rivals: 1 });
        for event in [
            ExchangeEvent::Haste,
            ExchangeEvent::Recovery,
            ExchangeEvent::Delay(SECOND),
            ExchangeEvent::Response,
        ] {
            exchange.apply_event(SECOND, event);
            assert_eq!(
                (exchange.is_never_retransmitted(), exchange.next_transmission()),
                (true, None),
                "{event:?}"
            );
        }
        exchange.apply_event(SECOND, ExchangeEvent::Answer);
        assert!(!exchange.is_never_retransmitted());
    }

    #[test]
    fn fourth_corrected_request_is_not_sent_early() {
        let mut exchange = exchange();
        exchange.schedule_transmission(Time::from_secs(9));
        for second in 1..4 {
            assert!(exchange.retry_immediately(Time::from_secs(second)));
            assert_eq!(exchange.next_transmission(), Some(Time::from_secs(second)));
        }
        assert!(!exchange.retry_immediately(Time::from_secs(4)));
        assert_eq!(exchange.next_transmission(), Some(Time::from_secs(3)));
    }
}
