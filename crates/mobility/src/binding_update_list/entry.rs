//! The Binding Update List of a router with several care-of addresses (RFC 5648): one entry per uplink that
//! has a Binding Identifier.
//!
//! An entry says what the home agent has acknowledged, what is being asked of it and what it has yet to
//! forget. An [`Update`] is a Binding Update on its way, which may be about several entries. All share the
//! sequence number that tells the Binding Updates apart (RFC 5648 4.1).

use std::net::IpAddr;

use carnet_base::Time;

use super::exchange::{Registration, refresh_after};
use super::retransmission::{Retransmission, remember};
use crate::flow::FlowBinding;

/// So many Binding Updates are remembered for their acknowledgements.
pub(crate) const MAX_UPDATES: usize = 32;
/// A binding that the home agent cannot be told to forget ends with its lifetime.
const MAX_REMOVALS: u32 = 5;

/// One uplink's binding.
#[derive(Debug, Clone)]
pub struct Binding {
    /// The uplink, as an index.
    pub uplink: usize,
    /// The Binding Identifier.
    pub bid: u16,
    /// Registration that the home agent acknowledged last, while it lasts.
    pub registration: Option<Registration>,
    /// The BID-PRI that it was registered with.
    pub(crate) priority: u8,
    /// Registration that the router is requesting.
    pub(crate) attempt: Option<Attempt>,
    /// The home agent may have a binding that is no more.
    pub(crate) removal: Option<Attempt>,
    /// The number of the last Binding Update that ended it.
    pub(crate) removed: Option<u16>,
    /// To be registered again although nothing has changed here.
    pub(crate) again: bool,
    /// Not to be registered before.
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

    /// The registered care-of address.
    pub(crate) fn care_of_address(&self) -> Option<IpAddr> {
        self.registration.map(|registration| registration.care_of_address)
    }

    /// When it is to be renewed; earlier over an uplink that `is_full`.
    pub(crate) fn refresh_at(&self, is_full: bool) -> Option<Time> {
        self.registration.map(|r| r.expires - r.lifetime + refresh_after(r.lifetime, is_full))
    }

    /// The home agent may know of it.
    pub(crate) fn is_known(&self) -> bool {
        self.registration.is_some() || self.attempt.as_ref().is_some_and(|attempt| !attempt.sent.is_empty())
    }

    /// The care-of address that the last Binding Update without an answer was about.
    pub(crate) fn asked_for(&self) -> Option<IpAddr> {
        self.attempt.as_ref()?.sent.last().map(|(_, address)| *address)
    }
}

/// Something asked of the home agent until it answers (RFC 6275 11.8).
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// The next transmission.
    pub next: Time,
    /// Sequence numbers and care-of addresses of the last transmissions.
    pub sent: Vec<(u16, IpAddr)>,
    pub retransmission: Retransmission,
}

impl Attempt {
    pub fn new(next: Time, first: bool) -> Attempt {
        Attempt { next, sent: Vec::new(), retransmission: Retransmission::to_home_agent(first) }
    }

    /// Notes a transmission about one of `candidates` care-of addresses, and when the next is due.
    pub fn transmitted(&mut self, now: Time, sequence: u16, address: IpAddr, candidates: usize) {
        remember(&mut self.sent, (sequence, address));
        self.next = now + self.retransmission.transmitted(now, candidates);
    }

    /// Whether a removal has been tried often enough.
    pub fn is_exhausted(&self) -> bool {
        self.retransmission.rounds() >= MAX_REMOVALS
    }
}

/// One entry in a Binding Update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    /// Index into the list of bindings.
    pub binding: usize,
    /// The care-of address; of a removal, any.
    pub care_of_address: IpAddr,
    /// The BID-PRI.
    pub priority: u8,
}

/// A Binding Update on its way.
#[derive(Debug, Clone)]
pub(crate) struct Update {
    pub sequence: u16,
    pub at: Time,
    pub timestamp: Option<u64>,
    /// O: whatever else there was is forgotten.
    pub overwrite: bool,
    /// To forget the members.
    pub removal: bool,
    /// The uplink and the care-of address that it left from.
    pub via: (usize, IpAddr),
    /// Those whose answer still counts.
    pub members: Vec<Member>,
    /// How many there were.
    pub count: usize,
    /// The address that its answer is authenticated with.
    pub authenticated: std::net::Ipv6Addr,
    /// The flows that it described.
    pub flows: Vec<FlowBinding>,
    /// The flows that it only named.
    pub summary: Vec<u16>,
}

/// Support of the home agent for several care-of addresses, as far as the router knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// It knows Binding Identifiers, as far as we know (RFC 5648 5.7).
    pub identifiers: bool,
    /// It takes several in one Binding Update (status 168).
    pub bulk: bool,
    /// It has our bindings and no others: Binding Updates add to them (RFC 5648 5.9).
    pub bootstrapped: bool,
}

impl Default for Abilities {
    fn default() -> Self {
        Abilities { identifiers: true, bulk: true, bootstrapped: false }
    }
}
