//! The Binding Update List (RFC 6275 11.1, RFC 3963 5.1, RFC 5648 4).
//!
//! A mobile router has one entry without a Binding Identifier, and one for each uplink that has an
//! identifier. Each is a [`BindingUpdateListEntry`], and the optional identifier is its key. An [`Exchange`]
//! sends the requests of an entry. One Binding Update may contain several entries with identifiers
//! ([`BindingUpdateContent`]). All entries share one sequence of numbers ([`SequenceAndTimestampState`]).
//! Direct routes have no entry here, but an [`Exchange`] sends their requests too.

mod acknowledged_registration;
mod binding_entry;
mod exchange;
mod identified_bindings;
mod outstanding_update;
mod refusal_remedy;
mod retransmission;
mod sequence_and_timestamp;
mod uplink_states;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use carnet_base::Time;

pub use acknowledged_registration::Registration;
pub(crate) use acknowledged_registration::{RenewalRule, to_authenticated_form};
pub use binding_entry::BindingUpdateListEntry;
pub(crate) use binding_entry::{BindingUpdateContent, MultipleCareOfSupport, UpdatedBinding};
pub(crate) use exchange::{Exchange, ExchangeEvent, RequestPurpose, Transmission};
pub(crate) use identified_bindings::{DueUpdate, MAX_ANSWER_TIME_ON_FULL_UPLINK, PAUSE_BETWEEN_UPLINKS};
pub(crate) use outstanding_update::OutstandingUpdate;
pub(crate) use refusal_remedy::{RefusalReaction, refusal_reaction};
pub(crate) use retransmission::{
    CONNECTION_ATTEMPT_DELAY, INITIAL_BINDACK_TIMEOUT, MAX_BINDACK_TIMEOUT, Retransmission,
};
pub(crate) use sequence_and_timestamp::{SequenceAndTimestampState, TimestampVerdict};
pub(crate) use uplink_states::UplinkStates;

use crate::OLD_PATH_GRACE;

/// A Binding Identifier (RFC 5648 4).
pub(crate) type Bid = u16;

/// The registrations of a mobile router with its home agent, acknowledged and outstanding.
#[derive(Debug)]
pub(crate) struct BindingUpdateList {
    /// The entry without identifier.
    pub(crate) entry_without_identifier: BindingUpdateListEntry,
    /// Last Binding Update without an answer; `None` if no answer is outstanding. The router sends no other
    /// Binding Update that could arrive before this one.
    pub(crate) outstanding_update: Option<OutstandingUpdate>,
    /// Whether the request of the entry without identifier waits for the answer to `outstanding_update`.
    pub(crate) is_request_without_identifier_waiting: bool,
    /// Entries with identifiers, in the order of the uplinks.
    pub(crate) identified_entries: Vec<BindingUpdateListEntry>,
    /// Whether a binding with identifier was on a working uplink at the last check.
    pub(crate) had_working_binding: bool,
    /// Outstanding Binding Updates with identifiers, the oldest first.
    pub(crate) outstanding_updates: VecDeque<BindingUpdateContent>,
    pub(crate) multiple_care_of_support: MultipleCareOfSupport,
    /// Time to wait for the first answer to the next Binding Update; `None` after an answer of the home
    /// agent.
    pub(crate) back_off_time: Option<Duration>,
    /// Former care-of addresses, with the time until which the router accepts packets to them.
    pub(crate) former_care_of_addresses: Vec<(IpAddr, Time)>,
    /// End of the first grace period that began since the last call of
    /// [`Self::take_next_former_address_expiry`].
    /// `None` if none has begun.
    next_former_address_expiry: Option<Time>,
}

impl BindingUpdateList {
    /// Creates a list without registrations. `identifiers` are the uplinks that have a Binding Identifier.
    pub(crate) fn new(identifiers: impl Iterator<Item = (usize, Bid)>) -> BindingUpdateList {
        BindingUpdateList {
            entry_without_identifier: BindingUpdateListEntry::new(0, None),
            outstanding_update: None,
            is_request_without_identifier_waiting: false,
            identified_entries: identifiers
                .map(|(uplink, bid)| BindingUpdateListEntry::new(uplink, Some(bid)))
                .collect(),
            had_working_binding: false,
            outstanding_updates: VecDeque::new(),
            multiple_care_of_support: MultipleCareOfSupport::default(),
            back_off_time: None,
            former_care_of_addresses: Vec::new(),
            next_former_address_expiry: None,
        }
    }

    /// Returns the entry with this identifier; for `None` the entry without identifier. Returns `None` if no
    /// entry has the identifier.
    pub(crate) fn entry_mut(&mut self, bid: Option<Bid>) -> Option<&mut BindingUpdateListEntry> {
        std::iter::once(&mut self.entry_without_identifier)
            .chain(&mut self.identified_entries)
            .find(|entry| entry.bid == bid)
    }

    /// Takes over the state of the same home address under an earlier configuration. `position` returns the
    /// present index of a former uplink.
    pub(crate) fn adopt_state(
        &mut self,
        now: Time,
        old: &BindingUpdateList,
        position: &dyn Fn(usize) -> Option<usize>,
    ) {
        self.multiple_care_of_support = MultipleCareOfSupport {
            are_agent_bindings_exact: old.multiple_care_of_support.are_agent_bindings_exact,
            ..MultipleCareOfSupport::default()
        };
        for entry in &mut self.identified_entries {
            let is_former = |other: &&BindingUpdateListEntry| {
                other.bid == entry.bid && position(other.uplink) == Some(entry.uplink)
            };
            if let Some(former) = old.identified_entries.iter().find(is_former) {
                entry.registration = former.registration.filter(|r| r.expires_at > now);
                entry.bid_priority = former.bid_priority;
                // The new config may have other prefixes, another lifetime or another key, so the router
                // registers again.
                entry.is_request_due_again = true;
            }
        }
        // Send the O flag again if the home agent has a binding that the new config lacks, so that it removes
        // this binding.
        let kept = |other: &BindingUpdateListEntry| {
            self.identified_entries.iter().any(|b| b.bid == other.bid && b.registration == other.registration)
        };
        if !old.identified_entries.iter().filter(|binding| binding.may_agent_have_binding()).all(kept) {
            self.multiple_care_of_support.are_agent_bindings_exact = false;
        }
        // The new config may not have the uplink of this registration; then the registration belongs to the
        // first uplink.
        let uplink = |registration: Registration| position(registration.uplink).unwrap_or(0);
        let registration =
            old.entry_without_identifier.registration.filter(|registration| registration.expires_at > now);
        self.entry_without_identifier.registration =
            registration.map(|it| Registration { uplink: uplink(it), ..it });
    }

    /// Sets the outstanding request of the entry without identifier, and its uplink.
    pub(crate) fn begin_request_without_identifier(&mut self, uplink: usize, exchange: Exchange) {
        self.entry_without_identifier.uplink = uplink;
        self.entry_without_identifier.registration_exchange = Some(exchange);
    }

    /// Returns the outstanding request of the entry without identifier, if it has this purpose.
    pub(crate) fn request_without_identifier(&self, purpose: RequestPurpose) -> Option<&Exchange> {
        self.entry_without_identifier
            .registration_exchange
            .as_ref()
            .filter(|exchange| exchange.purpose == purpose)
    }

    /// Returns whether this IPv6 care-of address is tried while an IPv4 address carries the uplink's traffic.
    /// Such an address needs its own Binding Update.
    pub(crate) fn is_trying_ipv6(&self, index: usize, care_of_address: IpAddr) -> bool {
        let registered = self.identified_entries.get(index).and_then(|binding| binding.care_of_address());
        care_of_address.is_ipv6() && registered.is_some_and(|registered| registered.is_ipv4())
    }

    /// Returns the index of an uplink's binding with identifier; `None` if the uplink has no identifier.
    pub(crate) fn entry_of_uplink(&self, uplink: usize) -> Option<usize> {
        self.identified_entries.iter().position(|binding| binding.uplink == uplink)
    }

    /// Returns whether an uplink is registered under its identifier.
    pub(crate) fn is_registered(&self, uplink: usize) -> bool {
        self.entry_of_uplink(uplink)
            .is_some_and(|index| self.identified_entries[index].registration.is_some())
    }

    /// Accepts packets to a former care-of address for the grace period.
    pub(crate) fn accept_former_address(&mut self, now: Time, care_of_address: IpAddr) {
        self.former_care_of_addresses.retain(|(address, until)| *address != care_of_address && *until > now);
        self.former_care_of_addresses.push((care_of_address, now + OLD_PATH_GRACE));
        self.next_former_address_expiry = self.former_care_of_addresses.first().map(|(_, first)| *first);
    }

    /// Returns the end of the first grace period that began since the last call; `None` if none began.
    pub(crate) fn take_next_former_address_expiry(&mut self) -> Option<Time> {
        self.next_former_address_expiry.take()
    }

    /// Removes the former care-of addresses whose grace period is over. Returns the end of the next grace
    /// period; `None` if no former address is left.
    pub(crate) fn expire_former_addresses(&mut self, now: Time) -> Option<Time> {
        self.former_care_of_addresses.retain(|(_, until)| *until > now);
        self.former_care_of_addresses.first().map(|(_, first)| *first)
    }

    /// Ends all bindings with identifiers, and accepts packets to their care-of addresses for the grace
    /// period.
    pub(crate) fn end_identified_bindings(&mut self, now: Time) {
        for index in 0..self.identified_entries.len() {
            let binding = &mut self.identified_entries[index];
            let registration = binding.registration.take();
            *binding = BindingUpdateListEntry::new(binding.uplink, binding.bid);
            if let Some(registration) = registration {
                self.accept_former_address(now, registration.care_of_address);
            }
        }
        self.outstanding_updates.clear();
        self.multiple_care_of_support.are_agent_bindings_exact = false;
    }

    /// Registers a care-of address for an entry. Returns the new registration and the former one. If the
    /// care-of address is the same, the time since which it has been registered stays.
    pub(crate) fn register_care_of_address(
        &mut self,
        bid: Option<Bid>,
        registration: Registration,
    ) -> (Registration, Option<Registration>) {
        let Some(entry) = self.entry_mut(bid) else { return (registration, None) };
        let registration = registration.with_registration_time_of(entry.registration.as_ref());
        (registration, entry.registration.replace(registration))
    }

    /// Returns whether any entry is registered.
    pub(crate) fn has_registration(&self) -> bool {
        self.entry_without_identifier.registration.is_some()
            || self.identified_entries.iter().any(|entry| entry.registration.is_some())
    }

    /// Records that a Binding Update was sent.
    pub(crate) fn record_sent_update(
        &mut self,
        links: &dyn UplinkStates,
        now: Time,
        update: &BindingUpdateContent,
    ) {
        if !update.is_without_identifiers {
            return self.record_sent_bindings(links, now, update);
        }
        if let Some(exchange) = &mut self.entry_without_identifier.registration_exchange {
            exchange.record_transmission(update.transmission_for(update.sent_from.1));
            let rivals = exchange.care_of_addresses.len();
            exchange.apply_event(now, ExchangeEvent::Transmission { rivals });
            if links.is_path_saturated(update.sent_from.0) {
                exchange.retransmission.limit_timeout(MAX_ANSWER_TIME_ON_FULL_UPLINK);
            }
        }
    }

    /// Returns the Binding Update with this number that an acknowledgement may answer; `None` if the router
    /// does not wait for such an answer.
    pub(crate) fn take_answered_update(&self, sequence: u16) -> Option<BindingUpdateContent> {
        let identified = self.outstanding_updates.iter().find(|update| update.sequence == sequence).cloned();
        identified.or_else(|| {
            let exchange = self.entry_without_identifier.registration_exchange.as_ref()?;
            Some(BindingUpdateContent::without_identifiers(
                self.entry_without_identifier.uplink,
                exchange.purpose,
                exchange.find_transmission(sequence)?,
            ))
        })
    }

    /// Records that the home agent has answered a Binding Update, with any status.
    pub(crate) fn record_response_to_update(&mut self, now: Time, update: &BindingUpdateContent) {
        if !update.is_without_identifiers {
            let answered =
                self.outstanding_updates.iter().position(|other| other.sequence == update.sequence);
            answered.and_then(|position| self.outstanding_updates.remove(position));
        } else if let Some(exchange) = &mut self.entry_without_identifier.registration_exchange {
            exchange.apply_event(now, ExchangeEvent::Response);
        }
    }

    /// Makes the request of a Binding Update due at once after a correction. Returns false if the home agent
    /// sent too many corrections.
    pub(crate) fn send_corrected_update(&mut self, now: Time, update: &BindingUpdateContent) -> bool {
        if !update.is_without_identifiers {
            return self.retry_corrected_bindings(now, update);
        }
        self.entry_without_identifier
            .registration_exchange
            .as_mut()
            .is_some_and(|exchange| exchange.retry_immediately(now))
    }

    /// Gives up the request of the entry without identifier. The home agent's binding may then differ from
    /// the registration.
    pub(crate) fn abandon_request_without_identifier(&mut self) {
        let Some(exchange) = self.entry_without_identifier.registration_exchange.take() else { return };
        let registered = self.entry_without_identifier.care_of_address();
        let differs = |sent: &Transmission| registered.is_some_and(|address| sent.care_of_address != address);
        let changes =
            exchange.purpose == RequestPurpose::Deregister || exchange.transmissions.iter().any(differs);
        self.entry_without_identifier.is_request_due_again |= exchange.was_transmitted() && changes;
    }
}
