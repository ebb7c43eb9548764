//! The Binding Update List entry for the home agent (RFC 6275 11.1, RFC 3963 5.1).
//!
//! An [`Exchange`] is an outstanding Binding Update with its retransmissions; a [`Registration`] is the state
//! that the home agent acknowledged last. Both exist side by side: while the router registers a new care-of
//! address, the old registration still carries traffic.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::mobility::status::Status;

use super::retransmission::{MAX_BINDACK_TIMEOUT, Retransmission, remember};

/// Purpose of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The exchange registers a care-of address.
    Register,
    /// The exchange ends the registration.
    Deregister,
}

/// One Binding Update as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    pub sequence: u16,
    pub at: Time,
    pub timestamp: Option<u64>,
    /// Care-of address that the update left from and registers.
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

/// A Binding Update that has not been acknowledged yet, with all its retransmissions.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub purpose: Purpose,
    /// Index of the uplink that the update leaves by.
    pub uplink: usize,
    /// Care-of addresses of that uplink, at most one of each family. They race in this order, in the manner
    /// of happy eyeballs (RFC 8305 5). A de-registration on the home link has the home address instead.
    pub care_of_addresses: Vec<IpAddr>,
    /// Last transmissions, the latest at the end.
    pub sent: Vec<Sent>,
    pub retransmission: Retransmission,
    /// Router by which the last transmission from each care-of address left.
    routers: BTreeMap<IpAddr, Option<IpAddr>>,
    phase: Phase,
}

/// Phase of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The router retransmits until the home agent answers.
    Retransmitting,
    /// The home agent refused for the moment: neither traffic nor hints hasten the next try.
    Held,
    /// The exchange asks a home agent that has refused: it is sent once and not again.
    Single,
}

/// An event that may change the phase of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A Binding Update left.
    Transmission,
    /// The home agent has answered, and the answer is new.
    Answer,
    /// The home agent refused for the moment.
    Refusal,
}

impl Exchange {
    pub fn new(purpose: Purpose, uplink: usize, care_of_addresses: Vec<IpAddr>, first: bool) -> Self {
        Exchange {
            purpose,
            uplink,
            care_of_addresses,
            sent: Vec::new(),
            retransmission: Retransmission::to_home_agent(first),
            routers: BTreeMap::new(),
            phase: Phase::Retransmitting,
        }
    }

    /// Returns an exchange that asks a home agent that has refused: it is sent once and not again.
    pub fn single(uplink: usize, care_of_addresses: Vec<IpAddr>) -> Self {
        let exchange = Exchange::new(Purpose::Register, uplink, care_of_addresses, true);
        Exchange { phase: Phase::Single, ..exchange }
    }

    /// Changes the phase by an event.
    pub fn apply(&mut self, event: Event) {
        self.phase = match (self.phase, event) {
            (_, Event::Refusal) => Phase::Held,
            (Phase::Held, Event::Transmission) | (Phase::Single, Event::Answer) => Phase::Retransmitting,
            (phase, Event::Transmission | Event::Answer) => phase,
        };
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
        self.sent.last().map(|sent| sent.care_of_address).or_else(|| self.next_care_of_address())
    }

    /// Records a transmission; the timeout doubles for the next one (RFC 6275 11.8). Returns the wait for its
    /// answer before the next one leaves. The wait is short if the next one is about another care-of address.
    pub fn transmitted(&mut self, sent: Sent) -> Duration {
        self.apply(Event::Transmission);
        remember(&mut self.sent, sent);
        self.retransmission.transmitted(sent.at, self.care_of_addresses.len())
    }

    /// Records the router by which a transmission from this care-of address leaves.
    pub fn left_by(&mut self, care_of_address: IpAddr, router: Option<IpAddr>) {
        self.routers.insert(care_of_address, router);
    }

    /// Whether the last transmission from this care-of address left by another router.
    pub fn left_by_another(&self, care_of_address: IpAddr, router: Option<IpAddr>) -> bool {
        self.routers.get(&care_of_address).is_some_and(|known| *known != router)
    }

    /// Returns the transmission that an acknowledgement with this sequence number answers.
    pub fn find(&self, sequence: u16) -> Option<Sent> {
        self.sent.iter().rev().find(|sent| sent.sequence == sequence).copied()
    }

    /// Returns when the last transmission left.
    pub fn last_sent(&self) -> Option<Time> {
        self.sent.last().map(|sent| sent.at)
    }
}

/// Registration that the home agent acknowledged last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// Index of the uplink. The address does not identify it: two uplinks behind NATs of one make may have
    /// the same address.
    pub uplink: usize,
    /// Care-of address as the router sees it: a NAT may have translated it.
    pub care_of_address: IpAddr,
    /// Time since when this address has been registered.
    pub since: Time,
    /// Whether packets go in UDP: there is a NAT on the path, or one side requires UDP (RFC 5555 4.2).
    pub udp: bool,
    /// Granted lifetime.
    pub lifetime: Duration,
    /// End of the lifetime, counted from the sending of the Binding Update (RFC 6275 11.7.3).
    pub expires: Time,
    /// Sequence number of the acknowledged Binding Update.
    pub sequence: u16,
}

impl Registration {
    /// Returns this registration as the successor of `before`. If the care-of address is the same, it keeps
    /// the time since when it has been registered.
    pub(crate) fn after(self, before: Option<&Registration>) -> Registration {
        let here = |other: &&Registration| {
            (other.uplink, other.care_of_address) == (self.uplink, self.care_of_address)
        };
        Registration { since: before.filter(here).map_or(self.since, |before| before.since), ..self }
    }
}

/// Returns a care-of address in the form in which it is authenticated and compared: an IPv4 address as
/// IPv4-mapped.
pub(crate) fn mapped(care_of_address: IpAddr) -> Ipv6Addr {
    match care_of_address {
        IpAddr::V6(address) => address,
        IpAddr::V4(address) => address.to_ipv6_mapped(),
    }
}

/// Reaction to a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Send again after this long.
    Retry(Duration),
    /// De-register and begin anew (the type of registration changed under us).
    StartOver,
    /// Continue as if there had been no answer.
    GoOn,
    /// Stop the service, and ask again after a pause that doubles each time.
    BackOff,
    /// Stop the service, and ask again after a long while.
    Stop,
}

/// Returns the remedy for each status (RFC 6275 11.7.3, RFC 3963 5.4, RFC 4285). With one home agent and one
/// configured mode, "every available mode" has been tried after the first answer.
pub(crate) fn remedy(status: Status) -> Remedy {
    match status {
        Status::TYPE_CHANGE_DISALLOWED => Remedy::StartOver,
        // The operator of the home agent may be changing the key right now.
        Status::AUTHENTICATION_FAILED => Remedy::Retry(Duration::from_secs(30)),
        // A home agent that has just started sends this status until it has received the prefixes of its home
        // link. RFC 6275 11.7.3 permits the node to try again; the pauses double as in 11.8.
        Status::HOME_REGISTRATION_NOT_SUPPORTED
        | Status::NOT_HOME_SUBNET
        | Status::NOT_HOME_AGENT
        | Status::PROHIBITED => Remedy::BackOff,
        // RFC 3963 5.4: the router refrains from sending Binding Updates.
        Status::MOBILE_ROUTER_NOT_PERMITTED
        | Status::INVALID_PREFIX
        | Status::NOT_AUTHORIZED_FOR_PREFIX
        | Status::FORWARDING_SETUP_FAILED
        | Status::MESSAGE_ID_REQUIRED => Remedy::Stop,
        // Among them is 134: the node that has this home address on the home link may be gone soon.
        _ => Remedy::Retry(MAX_BINDACK_TIMEOUT),
    }
}

/// Returns when to renew a registration: a quarter of the lifetime before its end, but not before half of it.
/// The time that is left suffices for three retransmissions. A full uplink loses many Binding Updates and
/// delays all: the router renews over it at half of the lifetime.
pub(crate) fn refresh_after(lifetime: Duration, is_full: bool) -> Duration {
    if is_full {
        return lifetime / 2;
    }
    let margin = (lifetime / 4).max(Duration::from_secs(8)).min(lifetime / 2);
    lifetime.saturating_sub(margin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewal_leaves_time_for_retransmissions() {
        let after = |secs| refresh_after(Duration::from_secs(secs), false).as_secs_f64();
        assert_eq!(after(60), 45.0);
        assert_eq!(refresh_after(Duration::from_secs(60), true), Duration::from_secs(30));
        assert_eq!(after(20), 12.0);
        assert_eq!(after(4), 2.0);
    }
}
