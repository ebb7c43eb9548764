//! A request until its answer (RFC 6275 11.8), by one engine for every entry of the Binding Update List and
//! for direct routes.
//!
//! An [`Exchange`] registers a care-of address, ends a binding, or tests an address of a direct route: its
//! `purpose` says which. It knows when the next message leaves, and the last transmissions, whose answers the
//! router still accepts. Its phase changes by [`Event`]s only. A registration exists beside the exchange:
//! while the router registers a new care-of address, the old registration still carries traffic.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use carnet_base::Time;

use super::retransmission::{Retransmission, remember};

/// Purpose of a request to the home agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The exchange registers a care-of address.
    Register,
    /// The exchange ends the registration.
    Deregister,
}

/// One message as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    pub sequence: u16,
    pub at: Time,
    pub timestamp: Option<u64>,
    /// Care-of address that the message is about.
    pub care_of_address: IpAddr,
}

/// The Binding Update that was sent last, while no acknowledgement has answered it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outstanding {
    pub sequence: u16,
    pub at: Time,
    /// Uplink and care-of address that the update left from.
    pub via: (usize, IpAddr),
    /// Care-of address by which the acknowledgement is authenticated.
    pub authenticated: Ipv6Addr,
}

/// A request with all its retransmissions, until its answer.
#[derive(Debug, Clone)]
pub(crate) struct Exchange<P = Purpose> {
    pub purpose: P,
    /// Care-of addresses that the request may be about. Several race in this order, in the manner of happy
    /// eyeballs (RFC 8305 5). A de-registration on the home link has the home address instead.
    pub care_of_addresses: Vec<IpAddr>,
    /// Last transmissions, the latest at the end.
    pub sent: Vec<Sent>,
    pub retransmission: Retransmission,
    /// Router by which the last transmission from each care-of address left.
    routers: BTreeMap<IpAddr, Option<IpAddr>>,
    phase: Phase,
    /// Time of the next transmission; `None` if no message follows.
    next: Option<Time>,
}

/// Phase of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The router retransmits until the other side answers.
    Retransmitting,
    /// The other side refused for the moment: neither traffic nor hints hasten the next try.
    Held,
    /// The exchange asks a home agent that has refused: it is sent once and not again.
    Single,
}

/// An event that may change the phase of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A message left, about one of `rivals` care-of addresses that race.
    Transmission {
        /// Number of care-of addresses in the race; at least 1.
        rivals: usize,
    },
    /// A message of the other side answers one of the transmissions, whatever it says.
    Response,
    /// The answer is new, and not a correction.
    Answer,
    /// The answer asks for another try at once.
    Correction,
    /// The other side refused until this time.
    Refusal(Time),
    /// Traffic waits, or a hint says that the other side lacks the binding.
    Haste,
    /// Another request goes first: this one leaves at this time at the earliest.
    Delay(Time),
    /// The path carries packets again.
    Recovery,
}

impl<P> Exchange<P> {
    /// A request whose first message leaves at `next`.
    pub fn new(
        purpose: P,
        care_of_addresses: Vec<IpAddr>,
        next: Time,
        retransmission: Retransmission,
    ) -> Self {
        Exchange {
            purpose,
            care_of_addresses,
            sent: Vec::new(),
            retransmission,
            routers: BTreeMap::new(),
            phase: Phase::Retransmitting,
            next: Some(next),
        }
    }

    /// Changes phase, retransmission and time of the next transmission by an event.
    pub fn apply(&mut self, now: Time, event: Event) {
        (self.phase, self.next) = match (self.phase, event) {
            (phase, Event::Transmission { rivals }) => {
                let next = now + self.retransmission.transmitted(now, rivals);
                match phase {
                    Phase::Single => (phase, None),
                    Phase::Retransmitting | Phase::Held => (Phase::Retransmitting, Some(next)),
                }
            }
            (phase, Event::Response) => {
                self.retransmission.answered();
                (phase, self.next)
            }
            (Phase::Single, Event::Answer) => (Phase::Retransmitting, self.next),
            (phase, Event::Answer) => (phase, self.next),
            (phase, Event::Correction) => {
                (phase, if self.retransmission.correct() { Some(now) } else { self.next })
            }
            (_, Event::Refusal(until)) => (Phase::Held, Some(until)),
            (Phase::Retransmitting, Event::Haste) => {
                (Phase::Retransmitting, self.next.map(|next| next.min(now)))
            }
            (phase @ (Phase::Held | Phase::Single), Event::Haste) => (phase, self.next),
            (phase, Event::Delay(until)) => (phase, self.next.map(|next| next.max(until))),
            (phase @ (Phase::Held | Phase::Retransmitting), Event::Recovery) => (phase, Some(now)),
            (Phase::Single, Event::Recovery) => (Phase::Single, self.next),
        };
    }

    /// Records a transmission. Answers to it are accepted from now on.
    pub fn record(&mut self, sent: Sent) {
        remember(&mut self.sent, sent);
    }

    /// Sets the time of the next transmission.
    pub fn schedule(&mut self, at: Time) {
        self.next = Some(at);
    }

    /// Returns the time of the next transmission.
    pub fn next(&self) -> Option<Time> {
        self.next
    }

    /// Whether the next transmission is due.
    pub fn is_due(&self, now: Time) -> bool {
        self.next.is_some_and(|next| next <= now)
    }

    /// Handles an answer that asks for another try at once; returns false if there were too many.
    pub fn correct(&mut self, now: Time) -> bool {
        self.apply(now, Event::Correction);
        self.retransmission.is_patient()
    }

    /// Whether neither traffic nor hints hasten the next try.
    pub fn is_held(&self) -> bool {
        self.phase == Phase::Held
    }

    /// Whether the exchange is sent once and not again.
    pub fn is_single(&self) -> bool {
        self.phase == Phase::Single
    }

    /// Returns the care-of address of the next transmission.
    pub fn next_care_of_address(&self) -> Option<IpAddr> {
        self.care_of_addresses.get(self.retransmission.turn()).or(self.care_of_addresses.first()).copied()
    }

    /// Returns the care-of address of the last transmission; before the first one, that of the next.
    pub fn care_of_address(&self) -> Option<IpAddr> {
        self.last_sent().map(|sent| sent.care_of_address).or_else(|| self.next_care_of_address())
    }

    /// Records the router by which a transmission from this care-of address leaves.
    pub fn left_by(&mut self, care_of_address: IpAddr, router: Option<IpAddr>) {
        self.routers.insert(care_of_address, router);
    }

    /// Whether the last transmission from this care-of address left by another router.
    pub fn left_by_another(&self, care_of_address: IpAddr, router: Option<IpAddr>) -> bool {
        self.routers.get(&care_of_address).is_some_and(|known| *known != router)
    }

    /// Returns the transmission that an answer with this sequence number answers.
    pub fn find(&self, sequence: u16) -> Option<Sent> {
        self.sent.iter().rev().find(|sent| sent.sequence == sequence).copied()
    }

    /// Returns the last transmission.
    pub fn last_sent(&self) -> Option<&Sent> {
        self.sent.last()
    }

    /// Whether a message has left.
    pub fn is_sent(&self) -> bool {
        !self.sent.is_empty()
    }
}

impl Exchange {
    /// A request to the home agent; `is_first` if the home agent does not know the home address yet.
    pub fn to_home_agent(purpose: Purpose, addresses: Vec<IpAddr>, next: Time, is_first: bool) -> Self {
        Exchange::new(purpose, addresses, next, Retransmission::to_home_agent(is_first))
    }

    /// A request to a home agent that has refused: it is sent once and not again.
    pub fn single(care_of_addresses: Vec<IpAddr>, next: Time) -> Self {
        let exchange = Exchange::to_home_agent(Purpose::Register, care_of_addresses, next, true);
        Exchange { phase: Phase::Single, ..exchange }
    }

    /// A registration that begins at `until` at the earliest.
    pub fn held(until: Time) -> Self {
        let mut exchange = Exchange::to_home_agent(Purpose::Register, Vec::new(), until, false);
        exchange.apply(until, Event::Refusal(until));
        exchange
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Time = Time::from_secs(1);

    fn exchange() -> Exchange {
        Exchange::to_home_agent(Purpose::Register, Vec::new(), Time::ZERO, false)
    }

    #[test]
    fn refused_exchange_is_not_hastened_before_its_next_transmission() {
        let mut exchange = exchange();
        exchange.apply(Time::ZERO, Event::Transmission { rivals: 1 });
        exchange.apply(Time::ZERO, Event::Refusal(Time::from_secs(32)));
        exchange.apply(SECOND, Event::Haste);
        assert_eq!((exchange.is_held(), exchange.next()), (true, Some(Time::from_secs(32))));
        exchange.apply(Time::from_secs(32), Event::Transmission { rivals: 1 });
        exchange.apply(Time::from_secs(33), Event::Haste);
        assert_eq!((exchange.is_held(), exchange.next()), (false, Some(Time::from_secs(33))));
    }

    #[test]
    fn single_exchange_is_sent_once_until_its_answer() {
        let mut exchange = Exchange::single(Vec::new(), Time::ZERO);
        exchange.apply(Time::ZERO, Event::Transmission { rivals: 1 });
        for event in [Event::Haste, Event::Recovery, Event::Delay(SECOND), Event::Response] {
            exchange.apply(SECOND, event);
            assert_eq!((exchange.is_single(), exchange.next()), (true, None), "{event:?}");
        }
        exchange.apply(SECOND, Event::Answer);
        assert!(!exchange.is_single());
    }

    #[test]
    fn fourth_correction_does_not_hasten_the_next_transmission() {
        let mut exchange = exchange();
        exchange.schedule(Time::from_secs(9));
        for second in 1..4 {
            assert!(exchange.correct(Time::from_secs(second)));
            assert_eq!(exchange.next(), Some(Time::from_secs(second)));
        }
        assert!(!exchange.correct(Time::from_secs(4)));
        assert_eq!(exchange.next(), Some(Time::from_secs(3)));
    }
}
