//! The Binding Update List (RFC 6275 11.1, RFC 3963 5.1, RFC 5648 4).
//!
//! A mobile router has one entry without a Binding Identifier, and one for each uplink that has an
//! identifier. Entries with identifiers share Binding Updates ([`Update`]); all share the sequence numbers
//! ([`UpdateNumbers`]).

mod entry;
mod exchange;
mod numbers;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use carnet_base::Time;

pub use entry::Binding;
pub(crate) use entry::{Abilities, Attempt, MAX_UPDATES, Member, Update};
pub use exchange::Registration;
pub(crate) use exchange::{
    CONNECTION_ATTEMPT_DELAY, Exchange, INITIAL_BINDACK_TIMEOUT, MAX_BINDACK_TIMEOUT, Outstanding, Purpose,
    Remedy, Sent, refresh_after, remedy,
};
pub(crate) use numbers::UpdateNumbers;

/// Registrations of a mobile router with its home agent, and those that it is requesting.
#[derive(Debug)]
pub(crate) struct BindingUpdateList {
    /// The binding without identifier.
    pub(crate) registration: Option<Registration>,
    /// A Binding Update for another care-of address was given up unanswered. The home agent may have received
    /// it, so that [`Self::registration`] may be wrong.
    pub(crate) doubtful: bool,
    /// The Binding Update without identifier that waits for its acknowledgement.
    pub(crate) exchange: Option<Exchange>,
    /// The last Binding Update without an answer: no other leaves while that could overtake it.
    pub(crate) outstanding: Option<Outstanding>,
    /// The exchange waits for the answer to the outstanding Binding Update.
    pub(crate) is_waiting: bool,
    /// The bindings with identifiers, in the order of the uplinks.
    pub(crate) bindings: Vec<Binding>,
    /// Whether one of them was on an uplink that lives, at the last look.
    pub(crate) lived: bool,
    /// Binding Updates about them without an answer, the oldest first.
    pub(crate) updates: VecDeque<Update>,
    pub(crate) abilities: Abilities,
    /// The timeout that the next Binding Update begins with, if no uplink has brought an answer.
    pub(crate) back_off: Option<Duration>,
    /// Care-of addresses given up, and until when packets to them are still accepted.
    pub(crate) previous: Vec<(IpAddr, Time)>,
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
        }
    }
}
