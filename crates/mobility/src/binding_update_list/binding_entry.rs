//! An entry of the Binding Update List (RFC 6275 11.1), with or without a Binding Identifier (RFC 5648 4).
//!
//! An entry has the registration that the home agent has acknowledged, the outstanding request, and a binding
//! that the home agent must still remove. A [`BindingUpdateContent`] is an outstanding Binding Update, which
//! may concern several entries with identifiers. All entries share one sequence of numbers (RFC 5648 4.1).

use std::net::{IpAddr, Ipv6Addr};

use carnet_base::Time;

use super::acknowledged_registration::{Registration, to_authenticated_form};
use super::exchange::{Exchange, ExchangeEvent, RequestPurpose, Transmission};
use super::{Bid, UplinkStates};
use crate::flow::FlowBinding;

/// Maximum number of Binding Updates that the router stores to recognise their acknowledgements.
pub(crate) const MAX_OUTSTANDING_UPDATES: usize = 32;
/// Maximum number of requests to remove a binding. Without an answer the binding ends with its lifetime.
const MAX_REMOVAL_ATTEMPTS: u32 = 5;

/// One entry of the Binding Update List.
#[derive(Debug, Clone)]
pub struct BindingUpdateListEntry {
    /// Index of the uplink. For the binding without a Binding Identifier, this is the uplink of the last
    /// Binding Update.
    pub uplink: usize,
    /// The Binding Identifier, if the entry has one.
    pub bid: Option<Bid>,
    /// Last acknowledged registration, until its lifetime ends; `None` without one.
    pub registration: Option<Registration>,
    /// BID-PRI of the registration (RFC 6089 4.1).
    pub(crate) bid_priority: u8,
    /// Outstanding request to register the care-of address; `None` without one. While an entry with
    /// identifier must wait, its request is held, see [`Exchange::is_transmission_held`].
    pub(crate) registration_exchange: Option<Exchange>,
    /// Outstanding request to remove a binding that the home agent may still have; `None` without one. Only
    /// an entry with an identifier has such a request.
    pub(crate) removal_exchange: Option<Exchange>,
    /// Sequence number of the last Binding Update that removed the binding; `None` if no removal was sent
    /// since the last registration.
    pub(crate) removal_sequence: Option<u16>,
    /// Whether the router must register the entry again although its uplink did not change. The home agent
    /// may have received a Binding Update that the router gave up, so the registration may be wrong.
    pub(crate) is_request_due_again: bool,
}

impl BindingUpdateListEntry {
    pub(crate) fn new(uplink: usize, bid: Option<Bid>) -> BindingUpdateListEntry {
        BindingUpdateListEntry {
            uplink,
            bid,
            registration: None,
            bid_priority: 0,
            registration_exchange: None,
            removal_exchange: None,
            removal_sequence: None,
            is_request_due_again: false,
        }
    }

    /// Returns the registered care-of address; `None` without a registration.
    pub(crate) fn care_of_address(&self) -> Option<IpAddr> {
        self.registration.map(|registration| registration.care_of_address)
    }

    /// Returns when to renew the registration; `None` without a registration. The time is earlier if the
    /// uplink `is_full`.
    pub(crate) fn refresh_at(&self, is_full: bool) -> Option<Time> {
        self.registration.map(|registration| registration.renew_at(is_full))
    }

    /// Returns the outstanding request; `None` while the entry is held.
    pub(crate) fn outstanding_request(&self) -> Option<&Exchange> {
        self.registration_exchange.as_ref().filter(|exchange| !exchange.is_transmission_held())
    }

    /// Returns the outstanding request, so that the caller can change it; `None` while the entry is held.
    pub(crate) fn outstanding_request_mut(&mut self) -> Option<&mut Exchange> {
        self.registration_exchange.as_mut().filter(|exchange| !exchange.is_transmission_held())
    }

    /// Removes and returns the outstanding request. Returns `None` without a request, or if the request is
    /// held.
    pub(crate) fn take_outstanding_request(&mut self) -> Option<Exchange> {
        self.registration_exchange.take_if(|exchange| !exchange.is_transmission_held())
    }

    /// Creates a request that the router sends at `next`. `is_first` is true if the home agent has no binding
    /// of the home address yet.
    pub(crate) fn begin_request(&mut self, next: Time, is_first: bool) {
        self.registration_exchange =
            Some(Exchange::to_home_agent(RequestPurpose::Register, Vec::new(), next, is_first));
    }

    /// Creates the request to remove the binding, which the router sends at `next`.
    pub(crate) fn begin_removal(&mut self, next: Time) {
        self.removal_exchange =
            Some(Exchange::to_home_agent(RequestPurpose::Deregister, Vec::new(), next, false));
    }

    /// Returns the time until which the router sends no request for this entry; `None` if the entry is not
    /// held.
    pub(crate) fn request_held_until(&self) -> Option<Time> {
        self.registration_exchange
            .as_ref()
            .filter(|exchange| exchange.is_transmission_held())?
            .next_transmission()
    }

    /// Ends a hold, so that the router may send requests again.
    pub(crate) fn end_request_hold(&mut self) {
        self.registration_exchange.take_if(|exchange| exchange.is_transmission_held());
    }

    /// Makes the outstanding request due at once, unless it is held.
    pub(crate) fn make_request_due(&mut self, now: Time) {
        if let Some(exchange) = &mut self.registration_exchange {
            exchange.apply_event(now, ExchangeEvent::Haste);
        }
    }

    /// Ends a hold, and makes the outstanding request due at once.
    pub(crate) fn resume_request(&mut self, now: Time) {
        self.end_request_hold();
        self.make_request_due(now);
    }

    /// Returns whether the home agent may have the binding.
    pub(crate) fn may_agent_have_binding(&self) -> bool {
        self.registration.is_some() || self.outstanding_request().is_some_and(Exchange::was_transmitted)
    }

    /// Returns the care-of address of the last Binding Update that has no answer yet; `None` if no such
    /// update was sent.
    pub(crate) fn requested_care_of_address(&self) -> Option<IpAddr> {
        Some(self.outstanding_request()?.last_transmission()?.care_of_address)
    }

    /// Updates the outstanding request with the present care-of addresses of the uplink.
    pub(crate) fn update_care_of_addresses(&mut self, links: &dyn UplinkStates) {
        let uplink = self.uplink;
        if let Some(exchange) = &mut self.registration_exchange {
            exchange.care_of_addresses = links.care_of_addresses(uplink);
        }
    }

    /// Returns the care-of addresses that the router tries at the same time. To renew a working care-of
    /// address, it does not try an address of the other IP version.
    pub(crate) fn simultaneously_tried_addresses(&self) -> &[IpAddr] {
        let Some(exchange) = &self.registration_exchange else { return &[] };
        let all = exchange.care_of_addresses.as_slice();
        match all.first() {
            Some(first)
                if self.care_of_address() == Some(*first)
                    && exchange.retransmission.unanswered_rounds() == 0 =>
            {
                std::slice::from_ref(first)
            }
            _ => all,
        }
    }

    /// Returns the care-of address of the next Binding Update; `None` without a request.
    pub(crate) fn next_care_of_address(&self) -> Option<IpAddr> {
        let index = self.registration_exchange.as_ref()?.retransmission.address_index();
        let rivals = self.simultaneously_tried_addresses();
        rivals.get(index).or(rivals.first()).copied()
    }

    /// Gives up the request to remove the binding after [`MAX_REMOVAL_ATTEMPTS`] transmissions.
    pub(crate) fn drop_exhausted_removal(&mut self) {
        self.removal_exchange
            .take_if(|removal| removal.retransmission.unanswered_rounds() >= MAX_REMOVAL_ATTEMPTS);
    }
}

/// One entry of a Binding Update with identifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UpdatedBinding {
    /// Index of the binding in the list of entries with identifiers.
    pub binding_index: usize,
    /// Care-of address to register; a removal of the binding does not use it.
    pub care_of_address: IpAddr,
    /// BID-PRI that the update registers for the binding (RFC 6089 4.1).
    pub bid_priority: u8,
}

/// A Binding Update.
#[derive(Debug, Clone)]
pub(crate) struct BindingUpdateContent {
    pub sequence: u16,
    pub sent_at: Time,
    pub timestamp: Option<u64>,
    /// Whether the update concerns the entry without identifier. Then `updated_bindings` is empty.
    pub is_without_identifiers: bool,
    /// O flag: the home agent removes all other bindings.
    pub replaces_all_bindings: bool,
    /// Whether the update removes the bindings in `updated_bindings`.
    pub is_removal: bool,
    /// Uplink and care-of address that the router sent the update from.
    pub sent_from: (usize, IpAddr),
    /// Bindings to which the router will apply the acknowledgement. A binding leaves the list if a later
    /// event makes the acknowledgement useless for it.
    pub updated_bindings: Vec<UpdatedBinding>,
    /// Number of bindings in the update.
    pub binding_count: usize,
    /// Care-of address that the MAC of the acknowledgement covers.
    pub authenticated_address: Ipv6Addr,
    /// Flows that the update described in full.
    pub described_flows: Vec<FlowBinding>,
    /// Identifiers of unchanged flows in the update.
    pub unchanged_flow_ids: Vec<u16>,
}

impl BindingUpdateContent {
    /// Creates a Binding Update of the entry without identifier.
    pub(crate) fn without_identifiers(
        uplink: usize,
        purpose: RequestPurpose,
        sent: Transmission,
    ) -> BindingUpdateContent {
        let Transmission { sequence, sent_at: at, timestamp, care_of_address } = sent;
        BindingUpdateContent {
            sequence,
            sent_at: at,
            timestamp,
            is_without_identifiers: true,
            replaces_all_bindings: false,
            is_removal: purpose == RequestPurpose::Deregister,
            sent_from: (uplink, care_of_address),
            updated_bindings: Vec::new(),
            binding_count: 0,
            authenticated_address: to_authenticated_form(care_of_address),
            described_flows: Vec::new(),
            unchanged_flow_ids: Vec::new(),
        }
    }

    /// Returns the transmission of this update for a care-of address.
    pub(crate) fn transmission_for(&self, care_of_address: IpAddr) -> Transmission {
        Transmission {
            sequence: self.sequence,
            sent_at: self.sent_at,
            timestamp: self.timestamp,
            care_of_address,
        }
    }
}

/// Known support of the home agent for several care-of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MultipleCareOfSupport {
    /// Whether the home agent supports Binding Identifiers; true until it answers otherwise (RFC 5648 5.7).
    pub supports_identifiers: bool,
    /// Whether the home agent accepts several bindings in one Binding Update (it refuses them with status
    /// 168).
    pub supports_bulk_registration: bool,
    /// Whether the home agent has exactly this router's bindings, so that further Binding Updates add to them
    /// (RFC 5648 5.9).
    pub are_agent_bindings_exact: bool,
}

impl Default for MultipleCareOfSupport {
    fn default() -> Self {
        MultipleCareOfSupport {
            supports_identifiers: true,
            supports_bulk_registration: true,
            are_agent_bindings_exact: false,
        }
    }
}
