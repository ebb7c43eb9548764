//! The Binding Update List of a router with several care-of addresses (RFC 5648): one entry per uplink that
//! has a Binding Identifier.
//!
//! An entry has the registration that the home agent has acknowledged, the outstanding request, and a binding
//! that the home agent has yet to remove. An [`Update`] is an outstanding Binding Update, which may concern
//! several entries. All share the sequence number that distinguishes the Binding Updates (RFC 5648 4.1).

use std::net::IpAddr;

use carnet_base::Time;

use super::exchange::{Registration, refresh_after};
use super::retransmission::{Retransmission, remember};
use crate::flow::FlowBinding;

/// Most Binding Updates that are remembered for their acknowledgements.
pub(crate) const MAX_UPDATES: usize = 32;
/// Most tries of a removal. A binding that the home agent does not remove ends with its lifetime.
const MAX_REMOVALS: u32 = 5;

/// One uplink's binding.
#[derive(Debug, Clone)]
pub struct Binding {
    /// Index of the uplink.
    pub uplink: usize,
    /// The Binding Identifier.
    pub bid: u16,
    /// Registration that the home agent acknowledged last, while it lasts.
    pub registration: Option<Registration>,
    /// BID-PRI of the registration.
    pub(crate) priority: u8,
    /// Registration that the router is requesting.
    pub(crate) attempt: Option<Attempt>,
    /// Request to remove a binding that the home agent may still have.
    pub(crate) removal: Option<Attempt>,
    /// Number of the last Binding Update that ended the binding.
    pub(crate) removed: Option<u16>,
    /// Whether the binding is to be registered again although nothing has changed here.
    pub(crate) again: bool,
    /// Time before which the binding is not registered.
    pub(crate) held_until: Option<Time>,
}

impl Binding {
    pub(crate) fn new(uplink: usize, bid: u16) -> Binding {
        Binding {
            uplink,
            bid,
            registration: None,
            priority: 0,
            attempt: None,
            removal: None,
            removed: None,
            again: false,
            held_until: None,
        }
    }

    /// Returns the registered care-of address.
    pub(crate) fn care_of_address(&self) -> Option<IpAddr> {
        self.registration.map(|registration| registration.care_of_address)
    }

    /// Returns when to renew the registration; earlier over an uplink that `is_full`.
    pub(crate) fn refresh_at(&self, is_full: bool) -> Option<Time> {
        self.registration.map(|r| r.expires - r.lifetime + refresh_after(r.lifetime, is_full))
    }

    /// Whether the home agent may have the binding.
    pub(crate) fn is_known(&self) -> bool {
        self.registration.is_some() || self.attempt.as_ref().is_some_and(|attempt| !attempt.sent.is_empty())
    }

    /// Returns the care-of address of the last Binding Update without an answer.
    pub(crate) fn asked_for(&self) -> Option<IpAddr> {
        self.attempt.as_ref()?.sent.last().map(|(_, address)| *address)
    }
}

/// A request to the home agent until the answer (RFC 6275 11.8).
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// Time of the next transmission.
    pub next: Time,
    /// Sequence numbers and care-of addresses of the last transmissions.
    pub sent: Vec<(u16, IpAddr)>,
    pub retransmission: Retransmission,
}

impl Attempt {
    pub fn new(next: Time, first: bool) -> Attempt {
        Attempt { next, sent: Vec::new(), retransmission: Retransmission::to_home_agent(first) }
    }

    /// Records a transmission about one of `candidates` care-of addresses, and sets the time of the next.
    pub fn transmitted(&mut self, now: Time, sequence: u16, address: IpAddr, candidates: usize) {
        remember(&mut self.sent, (sequence, address));
        self.next = now + self.retransmission.transmitted(now, candidates);
    }

    /// Whether a removal has been tried often enough.
    pub fn is_exhausted(&self) -> bool {
        self.retransmission.rounds() >= MAX_REMOVALS
    }
}

/// One entry of a Binding Update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    /// Index into the list of bindings.
    pub binding: usize,
    /// Care-of address to register; any address in a removal.
    pub care_of_address: IpAddr,
    /// The BID-PRI.
    pub priority: u8,
}

/// An outstanding Binding Update.
#[derive(Debug, Clone)]
pub(crate) struct Update {
    pub sequence: u16,
    pub at: Time,
    pub timestamp: Option<u64>,
    /// O flag: the home agent removes all other bindings.
    pub overwrite: bool,
    /// Whether the update removes the members.
    pub removal: bool,
    /// Uplink and care-of address that the update left from.
    pub via: (usize, IpAddr),
    /// Members whose answer still counts.
    pub members: Vec<Member>,
    /// Number of members when the update left.
    pub count: usize,
    /// Care-of address by which the answer is authenticated.
    pub authenticated: std::net::Ipv6Addr,
    /// Flows that the update described.
    pub flows: Vec<FlowBinding>,
    /// Flows that the update only named.
    pub summary: Vec<u16>,
}

/// Support of the home agent for several care-of addresses, as far as the router knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// Whether the home agent knows Binding Identifiers, as far as the router knows (RFC 5648 5.7).
    pub identifiers: bool,
    /// Whether the home agent accepts several in one Binding Update (status 168).
    pub bulk: bool,
    /// Whether the home agent has this router's bindings and no others, so that Binding Updates add to them
    /// (RFC 5648 5.9).
    pub bootstrapped: bool,
}

impl Default for Abilities {
    fn default() -> Self {
        Abilities { identifiers: true, bulk: true, bootstrapped: false }
    }
}
