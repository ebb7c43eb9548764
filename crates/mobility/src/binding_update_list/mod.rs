//! The Binding Update List (RFC 6275 11.1, RFC 3963 5.1, RFC 5648 4).
//!
//! A mobile router has one entry without a Binding Identifier, and one for each uplink that has an
//! identifier. Entries with identifiers share Binding Updates ([`Update`]); all share the sequence numbers
//! ([`UpdateNumbers`]).

mod entry;
mod exchange;
mod identified;
mod links;
mod numbers;
mod retransmission;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use carnet_base::Time;

pub use entry::Binding;
pub(crate) use entry::{Abilities, Attempt, Member, Update};
pub use exchange::Registration;
pub(crate) use exchange::{
    Event, Exchange, Outstanding, Purpose, Remedy, Sent, mapped, refresh_after, remedy,
};
pub(crate) use identified::{Draft, FULL_TIMEOUT, STAGGER};
pub(crate) use links::Links;
pub(crate) use numbers::{Judgement, UpdateNumbers};
pub(crate) use retransmission::{
    CONNECTION_ATTEMPT_DELAY, INITIAL_BINDACK_TIMEOUT, MAX_BINDACK_TIMEOUT, Retransmission,
};

use crate::OLD_PATH_GRACE;

/// A Binding Identifier (RFC 5648 4).
pub(crate) type Bid = u16;

/// Registrations of a mobile router with its home agent, and those that it is requesting.
#[derive(Debug)]
pub(crate) struct BindingUpdateList {
    /// Registration without identifier.
    pub(crate) registration: Option<Registration>,
    /// A Binding Update for another care-of address was given up unanswered. The home agent may have received
    /// it, so that [`Self::registration`] may be wrong.
    pub(crate) doubtful: bool,
    /// The Binding Update without identifier that waits for its acknowledgement.
    pub(crate) exchange: Option<Exchange>,
    /// The last Binding Update without an answer: no other leaves while that could overtake it.
    pub(crate) outstanding: Option<Outstanding>,
    /// Whether the exchange waits for the answer to the outstanding Binding Update.
    pub(crate) is_waiting: bool,
    /// Bindings with identifiers, in the order of the uplinks.
    pub(crate) bindings: Vec<Binding>,
    /// Whether a binding with identifier was on a working uplink at the last review.
    pub(crate) lived: bool,
    /// Outstanding Binding Updates with identifiers, the oldest first.
    pub(crate) updates: VecDeque<Update>,
    pub(crate) abilities: Abilities,
    /// Timeout that the next Binding Update begins with, if no uplink has brought an answer.
    pub(crate) back_off: Option<Duration>,
    /// Former care-of addresses, with the time until which packets to them are accepted.
    pub(crate) previous: Vec<(IpAddr, Time)>,
    /// End of the first grace period, if one was added since [`Self::take_grace`].
    grace: Option<Time>,
}

impl BindingUpdateList {
    /// Returns a list without any registration. `identifiers` are the uplinks that have a Binding Identifier.
    pub(crate) fn new(identifiers: impl Iterator<Item = (usize, u16)>) -> BindingUpdateList {
        BindingUpdateList {
            registration: None,
            doubtful: false,
            exchange: None,
            outstanding: None,
            is_waiting: false,
            bindings: identifiers.map(|(uplink, bid)| Binding::new(uplink, bid)).collect(),
            lived: false,
            updates: VecDeque::new(),
            abilities: Abilities::default(),
            back_off: None,
            previous: Vec::new(),
            grace: None,
        }
    }

    /// Whether a care-of address is an IPv6 one that the router tries while IPv4 carries the uplink. Such an
    /// address needs a Binding Update of its own.
    pub(crate) fn is_trying_ipv6(&self, index: usize, care_of_address: IpAddr) -> bool {
        let registered = self.bindings.get(index).and_then(|binding| binding.care_of_address());
        care_of_address.is_ipv6() && registered.is_some_and(|registered| registered.is_ipv4())
    }

    /// Returns the index of an uplink's binding with identifier.
    pub(crate) fn binding_of(&self, uplink: usize) -> Option<usize> {
        self.bindings.iter().position(|binding| binding.uplink == uplink)
    }

    /// Whether an uplink is registered under its identifier.
    pub(crate) fn is_registered(&self, uplink: usize) -> bool {
        self.binding_of(uplink).is_some_and(|index| self.bindings[index].registration.is_some())
    }

    /// Accepts packets to a former `care_of_address` for the grace period.
    pub(crate) fn retire(&mut self, now: Time, care_of_address: IpAddr) {
        self.previous.retain(|(address, until)| *address != care_of_address && *until > now);
        self.previous.push((care_of_address, now + OLD_PATH_GRACE));
        self.grace = self.previous.first().map(|(_, first)| *first);
    }

    /// Returns when the first old path is closed, if one was added since the last call.
    pub(crate) fn take_grace(&mut self) -> Option<Time> {
        self.grace.take()
    }

    /// Removes the former care-of addresses whose grace period is over. Returns the end of the next grace
    /// period.
    pub(crate) fn expire_previous(&mut self, now: Time) -> Option<Time> {
        self.previous.retain(|(_, until)| *until > now);
        self.previous.first().map(|(_, first)| *first)
    }

    /// Ends all bindings with identifiers. Their care-of addresses are retired.
    pub(crate) fn clear(&mut self, now: Time) {
        for index in 0..self.bindings.len() {
            let binding = &mut self.bindings[index];
            let registration = binding.registration.take();
            *binding = Binding::new(binding.uplink, binding.bid);
            if let Some(registration) = registration {
                self.retire(now, registration.care_of_address);
            }
        }
        self.updates.clear();
        self.abilities.bootstrapped = false;
    }

    /// Returns the registration of an entry, to be changed; `None` if no entry has this identifier.
    fn registration_mut(&mut self, bid: Option<Bid>) -> Option<&mut Option<Registration>> {
        match bid {
            None => Some(&mut self.registration),
            Some(bid) => {
                let entry = self.bindings.iter_mut().find(|entry| entry.bid == bid)?;
                Some(&mut entry.registration)
            }
        }
    }

    /// Registers a care-of address for an entry. Returns the new registration and the former one. The new one
    /// keeps the time since when the care-of address has been registered.
    pub(crate) fn register(
        &mut self,
        bid: Option<Bid>,
        registration: Registration,
    ) -> (Registration, Option<Registration>) {
        let Some(entry) = self.registration_mut(bid) else { return (registration, None) };
        let registration = registration.after(entry.as_ref());
        (registration, entry.replace(registration))
    }

    /// Whether any entry is registered.
    pub(crate) fn has_registration(&self) -> bool {
        self.registration.is_some() || self.bindings.iter().any(|entry| entry.registration.is_some())
    }
}
