//! Sends the Binding Updates that the attachment of the target requires, also after hints. Returns to the
//! home link (RFC 6275 11.5.5 and 11.7.1, RFC 3963 5.2 and 5.8, RFC 5648 5).
//!
//! Every transmission has a new sequence number. If the security association demands it, it also has a
//! timestamp greater than all earlier ones (RFC 4285 6). [`crate::binding_update_list`] decides which
//! bindings are due and when the next update may leave, and [`super::composer`] builds the messages.
//!
//! Left out: bindings to the home link beside others (the H flag, RFC 5648 5.6). On the home link the router
//! ends all bindings, as it does without Binding Identifiers.

use std::net::IpAddr;

use carnet_base::{Time, WallTime};

use super::binding_loss_hints::HINT_INTERVAL;
use super::composer::MessageComposer;
use super::movement::care_of_addresses;
use super::unanswered_uplinks::{is_exchange_given_up, is_router_doubtful};
use super::{Attachment, MobileRouter, MobileRouterTimer, Uplink};
use crate::binding_update_list::{
    BindingUpdateContent, BindingUpdateListEntry, DueUpdate, Exchange, OutstandingUpdate,
    PAUSE_BETWEEN_UPLINKS, RequestPurpose, Transmission, to_authenticated_form,
};
use crate::{Event, MobilityDrop, Output};

/// Number of rounds of Binding Updates without an answer after which an uplink has failed, if the router
/// sends no heartbeats.
const ROUNDS_BEFORE_WARNING: u32 = 3;

/// Number of Binding Updates without an answer after which the router warns the operator.
const UPDATES_BEFORE_WARNING: usize = 4;

impl MobileRouter {
    /// Registers all uplinks that have identifiers. Gives up an outstanding Binding Update without
    /// identifier, unless it is a de-registration.
    pub(super) fn register_bindings(&mut self, now: Time, wall: WallTime) {
        if self.refusal_state.stop_status.is_some() {
            if self.binding_update_list.entry_without_identifier.registration_exchange.is_none()
                && self.timers.get(MobileRouterTimer::AskAgain).is_none()
            {
                self.resume_service();
            } else {
                return;
            }
        }
        if self.binding_update_list.request_without_identifier(RequestPurpose::Register).is_some() {
            self.binding_update_list.abandon_request_without_identifier();
            self.set_exchange_timer();
            self.binding_update_list.multiple_care_of_support.are_agent_bindings_exact = false;
        }
        self.mark_settling_uplinks(now);
        self.reconcile_bindings(now, wall);
    }

    /// Registers the best care-of address of an uplink, unless it is already registered or its Binding Update
    /// is outstanding.
    pub(super) fn register_uplink(&mut self, now: Time, wall: WallTime, uplink: usize) {
        let care_of_addresses = self.uplinks[uplink].care_of_addresses();
        let Some(care_of_address) = care_of_addresses.first().copied() else { return };
        if self.refusal_state.stop_status.is_some() {
            self.request_after_refusal(now, wall, uplink, care_of_addresses);
            return;
        }
        if let Some(exchange) = &mut self.binding_update_list.entry_without_identifier.registration_exchange
            && exchange.purpose == RequestPurpose::Register
            && self.binding_update_list.entry_without_identifier.uplink == uplink
            && exchange.care_of_addresses.contains(&care_of_address)
        {
            exchange.care_of_addresses.retain(|address| care_of_addresses.contains(address));
            // Begin anew if the address has another router than at the last transmission. The kernel keeps
            // addresses and routes of a former link, so earlier updates may have gone to a router that is out
            // of reach.
            let router = self.uplinks[uplink].next_hop(care_of_address);
            if exchange.used_other_router(care_of_address, router) && !exchange.is_transmission_held() {
                exchange.care_of_addresses = care_of_addresses;
                exchange.retransmission.restart_rounds();
                self.transmit_update_without_identifiers(now, wall);
            }
            return;
        }
        let registered = self
            .binding_update_list
            .entry_without_identifier
            .registration
            .is_some_and(|r| (r.uplink, r.care_of_address) == (uplink, care_of_address));
        self.binding_update_list.abandon_request_without_identifier();
        if registered && !self.binding_update_list.entry_without_identifier.is_request_due_again {
            self.set_exchange_timer();
            if self.timers.get(MobileRouterTimer::Refresh).is_none() {
                // Start the refresh timer again: it was stopped while no uplink was usable.
                let is_full = self.uplinks.is_path_saturated(uplink);
                let due =
                    self.binding_update_list.entry_without_identifier.refresh_at(is_full).unwrap_or(now);
                self.timers.set_deadline(MobileRouterTimer::Refresh, due.max(now));
            }
            return;
        }
        self.timers.stop_timer(MobileRouterTimer::Refresh);
        let first = self.binding_update_list.entry_without_identifier.registration.is_none();
        let mut exchange = Exchange::to_home_agent(RequestPurpose::Register, care_of_addresses, now, first);
        exchange.retransmission.extend_timeout(self.binding_update_list.back_off_time.unwrap_or_default());
        self.binding_update_list.begin_request_without_identifier(uplink, exchange);
        self.transmit_update_without_identifiers(now, wall);
    }

    /// Registers the best care-of address of an uplink after a refusal, when no registration is left. An
    /// outstanding de-registration continues from the router's present address. Otherwise the router sends a
    /// single Binding Update when the pause is over.
    fn request_after_refusal(&mut self, now: Time, wall: WallTime, uplink: usize, addresses: Vec<IpAddr>) {
        if let Some(exchange) =
            self.binding_update_list.request_without_identifier(RequestPurpose::Deregister)
        {
            if exchange.care_of_addresses.first() != addresses.first() {
                self.deregister_all_bindings(now, wall, uplink, addresses);
            }
        } else if self.timers.get(MobileRouterTimer::AskAgain).is_none() {
            self.binding_update_list.begin_request_without_identifier(
                uplink,
                Exchange::new_without_retransmission(addresses, now),
            );
            let pause = self
                .refusal_state
                .stop_status
                .map_or(super::REFUSED_INTERVAL, |status| self.refusal_state.next_request_pause(status));
            self.timers.set_deadline(MobileRouterTimer::AskAgain, now + pause);
            self.transmit_update_without_identifiers(now, wall);
        }
    }

    pub(super) fn renew_registration(&mut self, now: Time, wall: WallTime) {
        if self.binding_update_list.entry_without_identifier.registration_exchange.is_some()
            || self.refusal_state.stop_status.is_some()
            || self.is_stopping
            || self.uses_binding_identifiers()
        {
            return;
        }
        let Some(target) = self.uplinks.target_uplink else { return };
        if let Some(care_of_address) = self.uplinks[target].care_of_addresses().first().copied() {
            let addresses = vec![care_of_address];
            let exchange = Exchange::to_home_agent(RequestPurpose::Register, addresses, now, false);
            self.binding_update_list.begin_request_without_identifier(target, exchange);
            self.transmit_update_without_identifiers(now, wall);
        }
    }

    /// De-registers from the home address when the router is on its home link (RFC 6275 11.5.5, RFC 3963
    /// 5.8). Until the answer the old path carries the traffic if it works. The router does not renew the
    /// registration: if the renewal is due and the home agent has not answered, the router breaks off the
    /// return.
    pub(super) fn deregister_at_home(&mut self, now: Time, wall: WallTime, uplink: usize) {
        let was_home = std::mem::replace(&mut self.home_presence.at_home, true);
        let home_address = self.config.home_address;
        let home_addresses = vec![IpAddr::V6(home_address)];
        let under_way = self
            .binding_update_list
            .request_without_identifier(RequestPurpose::Deregister)
            .is_some_and(|e| {
                e.care_of_addresses == home_addresses
                    && self.binding_update_list.entry_without_identifier.uplink == uplink
            });
        if was_home && (self.home_presence.has_deregistered || under_way) {
            return;
        }
        match self.first_renewal_at() {
            Some(at) => self.timers.set_deadline(MobileRouterTimer::Refresh, at.max(now)),
            None => self.timers.stop_timer(MobileRouterTimer::Refresh),
        }
        self.binding_update_list.outstanding_updates.clear();
        for binding in &mut self.binding_update_list.identified_entries {
            binding.take_outstanding_request();
            binding.removal_exchange = None;
        }
        // The router de-registers even if it knows of no registration, because one from before a restart
        // may still exist.
        self.outputs.push_back(Output::Forwarding(home_address));
        self.deregister_all_bindings(now, wall, uplink, home_addresses);
    }

    /// Handles the acknowledgement of the de-registration on the home link: packets no longer use the tunnel.
    pub(super) fn handle_return_home(&mut self, now: Time) {
        if let Some(care_of_address) = self.binding_update_list.entry_without_identifier.care_of_address() {
            self.accept_former_address(now, care_of_address);
        }
        self.clear_bindings(now);
        self.remove_registration();
        self.binding_update_list.entry_without_identifier.is_request_due_again = false;
        self.home_presence.has_deregistered = true;
        if let Some(target) = self.uplinks.target_uplink {
            self.uplinks[target].handle_answered_return_home();
        }
        if let Some(uplink) = self.home_link() {
            let announcement = self.config.home_announcement(uplink);
            let interface = uplink.config.interface.clone();
            self.outputs.push_back(Output::Link(announcement));
            self.outputs.push_back(Output::Event(Event::AtHome { interface }));
        }
        self.report_forwarding_change("the home agent acknowledged the return");
    }

    /// Returns the time at which the first of the registrations must be renewed; `None` without a
    /// registration.
    fn first_renewal_at(&self) -> Option<Time> {
        let all = std::iter::once(&self.binding_update_list.entry_without_identifier)
            .chain(&self.binding_update_list.identified_entries);
        all.filter_map(|entry| entry.refresh_at(false)).min()
    }

    /// Returns whether the home agent has not answered the return for too long. If another router of the home
    /// link remains, 3 s suffice. If only a Router Advertisement shows the home link and the uplink has other
    /// candidates, 7 s suffice. Otherwise the router waits until the first registration must be renewed.
    pub(super) fn is_return_home_unanswered(&self, now: Time) -> bool {
        let Some(exchange) = self.binding_update_list.request_without_identifier(RequestPurpose::Deregister)
        else {
            return false;
        };
        let Some(uplink) = self.uplinks.get(self.binding_update_list.entry_without_identifier.uplink) else {
            return false;
        };
        let is_renewal_due = || self.first_renewal_at().is_none_or(|at| at <= now);
        self.home_presence.at_home
            && !self.is_stopping
            && !uplink.is_home_link_doubted()
            && ((is_exchange_given_up(exchange, now) && (is_renewal_due() || uplink.may_leave_home_early()))
                || (uplink.has_other_home_router && is_router_doubtful(exchange, now)))
    }

    /// Tries the return over another router of the home link, because the home agent does not answer it.
    /// After the last router, uses the foreign care-of addresses again.
    pub(super) fn abandon_return_home(&mut self, now: Time, wall: WallTime) {
        let index = self.binding_update_list.entry_without_identifier.uplink;
        let before = self.uplinks[index].attachment;
        if self.uplinks[index].handle_unanswered_return_home(now, &self.config) {
            self.set_candidate_timer(now, index);
            self.outputs.push_back(Output::Forwarding(self.config.home_address));
            let home_address = IpAddr::V6(self.config.home_address);
            return self.deregister_all_bindings(now, wall, index, vec![home_address]);
        }
        let name = &self.uplinks[index].config.interface;
        let reason = format!("no answer from the home agent to the return home over {name}");
        self.outputs.push_back(Output::Event(Event::Warning { message: reason.clone() }));
        self.set_candidate_timer(now, index);
        if self.uplinks[index].attachment == before {
            self.evaluate_uplinks(now, wall, &reason);
        } else {
            self.handle_changed_attachment(now, wall, index, before);
        }
    }

    /// Lets the home prefix of an uplink have effect again soon. The home agent did not answer a return, and
    /// now does not answer over the foreign candidates.
    pub(super) fn retry_return_home_early(&mut self, now: Time, index: usize) {
        if self.uplinks.get(index).is_some_and(Uplink::is_home_link_doubted) {
            self.uplinks[index].retry_return_home_early(now);
            self.set_candidate_timer(now, index);
        }
    }

    pub(super) fn handle_home_departure(&mut self) {
        if self.home_presence.at_home
            && self.binding_update_list.request_without_identifier(RequestPurpose::Deregister).is_some()
        {
            // Register again after an interrupted de-registration, because the home agent may have received
            // it.
            self.binding_update_list.abandon_request_without_identifier();
            self.set_exchange_timer();
            self.binding_update_list
                .identified_entries
                .iter_mut()
                .for_each(|binding| binding.is_request_due_again = true);
            self.binding_update_list.multiple_care_of_support.are_agent_bindings_exact = false;
        }
        self.home_presence.at_home = false;
        self.home_presence.has_deregistered = false;
    }

    /// Returns whether the router registers bindings with identifiers now.
    pub(super) fn uses_binding_identifiers(&self) -> bool {
        !self.is_stopping
            && !self.home_presence.at_home
            && self.refusal_state.stop_status.is_none()
            && self.binding_update_list.multiple_care_of_support.supports_identifiers
            && self.binding_update_list.entry_without_identifier.registration_exchange.is_none()
            && self.uplinks.target_uplink.is_some_and(|target| self.has_identifier(target))
    }

    /// Returns whether an uplink has a Binding Identifier and the router uses it.
    pub(super) fn has_identifier(&self, uplink: usize) -> bool {
        self.binding_update_list.multiple_care_of_support.supports_identifiers
            && self.uplinks.get(uplink).is_some_and(|u| u.config.bid.is_some())
    }

    /// Sends the Binding Updates that make the home agent's bindings match the uplinks.
    pub(super) fn reconcile_bindings(&mut self, now: Time, wall: WallTime) {
        self.expire_bindings(now);
        if !self.uses_binding_identifiers() {
            let next = self
                .binding_update_list
                .identified_entries
                .iter()
                .filter_map(|b| b.registration.map(|r| r.expires_at))
                .min();
            match next {
                Some(at) => self.timers.set_deadline(MobileRouterTimer::Bindings, at),
                None => self.timers.stop_timer(MobileRouterTimer::Bindings),
            }
            return;
        }
        self.set_exchange_timer();
        self.timers.stop_timer(MobileRouterTimer::Refresh);
        self.binding_update_list.make_requests_due_without_other_uplink(&self.uplinks, now);
        self.binding_update_list.remove_bindings_of_failed_uplinks(&self.uplinks, now);
        self.probe_unanswering_routers(now);
        let best = self.transmit_bindings().first().copied();
        let carrier =
            self.flow_states.binding_for_flow_changes(&self.uplinks, &self.binding_update_list, best);
        self.binding_update_list.request_missing_changes(&self.uplinks, now, carrier, &|sequence| {
            self.flow_states.awaits_answer_to(sequence)
        });
        self.set_grace_timer();
        let mut next = None;
        while let Some(draft) = self.binding_update_list.next_due_update(&self.uplinks, now) {
            if let Some(at) = self.next_update_allowed_at(now) {
                next = Some(at);
                break;
            }
            self.send_drafted_update(now, wall, draft);
        }
        let due = next.or_else(|| self.binding_update_list.next_update_at(&self.uplinks, now));
        match due {
            Some(at) => self.timers.set_deadline(MobileRouterTimer::Bindings, at),
            None => self.timers.stop_timer(MobileRouterTimer::Bindings),
        }
    }

    fn expire_bindings(&mut self, now: Time) {
        for index in 0..self.binding_update_list.identified_entries.len() {
            let binding = &mut self.binding_update_list.identified_entries[index];
            if binding.registration.is_some_and(|registration| registration.expires_at <= now) {
                binding.registration = None;
                let name = &self.uplinks[binding.uplink].config.interface;
                let reason =
                    format!("{name}: the lifetime ended without an acknowledgement from the home agent");
                self.outputs.push_back(Output::Event(Event::Deregistered { reason }));
                self.report_forwarding_change("a registration ended");
            }
        }
    }

    /// Warns the operator if the first registration of an uplink has no answer. Without heartbeats, also
    /// declares an uplink failed after a few rounds of Binding Updates without an answer.
    fn report_unanswered_updates(&mut self, now: Time, update: &BindingUpdateContent) {
        let plain = self
            .binding_update_list
            .request_without_identifier(RequestPurpose::Register)
            .filter(|_| update.is_without_identifiers);
        if plain.is_some_and(|request| request.transmissions.len() == UPDATES_BEFORE_WARNING) {
            self.warn_of_unanswered_updates(update.sent_from.0);
        }
        for member in &update.updated_bindings {
            let binding = &self.binding_update_list.identified_entries[member.binding_index];
            let first = !update.is_removal && binding.registration.is_none();
            let asked = |request: &Exchange| {
                let made = &request.retransmission;
                (made.unanswered_rounds() as usize, made.address_index()) == (UPDATES_BEFORE_WARNING, 0)
            };
            if first && binding.outstanding_request().is_some_and(asked) {
                self.warn_of_unanswered_updates(binding.uplink);
            }
            let binding = &self.binding_update_list.identified_entries[member.binding_index];
            let silent = !update.is_removal
                && binding.registration.is_some()
                && binding
                    .outstanding_request()
                    .is_some_and(|it| it.retransmission.unanswered_rounds() > ROUNDS_BEFORE_WARNING);
            let uplink = binding.uplink;
            if silent
                && self.binding_update_list.is_other_uplink_working(&self.uplinks, uplink)
                && !self.uplinks.has_recent_arrival(now, uplink)
            {
                self.handle_path_failure(now, uplink);
            }
        }
    }

    /// Handles another care-of address of an uplink with a binding, or the loss of its address.
    pub(super) fn handle_moved_binding(&mut self, now: Time, uplink: usize, before: Attachment) {
        let Some(index) = self.binding_update_list.entry_of_uplink(uplink) else { return };
        let lost = |router: &MobileRouter, address: IpAddr| {
            care_of_addresses(before).contains(&Some(address))
                && !router.uplinks[uplink].has_care_of_address(address)
        };
        let registered = self.binding_update_list.identified_entries[index].care_of_address();
        if let Some(address) = registered.filter(|address| lost(self, *address)) {
            self.accept_former_address(now, address);
            // The new address may not reach the home agent. Then a removal over another uplink ends the
            // old binding.
            self.binding_update_list.identified_entries[index].begin_removal(now + PAUSE_BETWEEN_UPLINKS);
        }
        if registered.is_some()
            && self.binding_update_list.identified_entries[index]
                .requested_care_of_address()
                .is_some_and(|a| lost(self, a))
        {
            self.binding_update_list.identified_entries[index].is_request_due_again = true;
        }
        self.binding_update_list.identified_entries[index].resume_request(now);
    }

    /// Handles an unauthenticated hint that the home agent has lost this router's binding.
    pub(super) fn handle_binding_loss_hint(&mut self, now: Time, wall: WallTime) -> Result<(), MobilityDrop> {
        self.follow_binding_loss_hint(now, wall, false)
    }

    pub(super) fn follow_binding_loss_hint(
        &mut self,
        now: Time,
        wall: WallTime,
        is_proven: bool,
    ) -> Result<(), MobilityDrop> {
        if self.home_presence.at_home || self.is_stopping || self.refusal_state.stop_status.is_some() {
            return Err(MobilityDrop::Unexpected);
        }
        if !self.binding_loss_hints.allow_hint(now, is_proven) {
            return Err(MobilityDrop::RateLimited);
        }
        if self.uses_binding_identifiers() {
            self.binding_update_list.register_all_again(now);
            self.reconcile_bindings(now, wall);
            self.binding_loss_hints.record_followed_hint(now, is_proven);
            return Ok(());
        }
        let request = self.binding_update_list.entry_without_identifier.registration_exchange.as_ref();
        match request.map(|request| request.retransmission.last_sent_at()) {
            None => self.renew_registration(now, wall),
            // The home agent has refused for the moment, so the router waits.
            Some(_) if request.is_some_and(Exchange::is_transmission_held) => return Ok(()),
            Some(last) if last.is_none_or(|at| now.saturating_since(at) >= HINT_INTERVAL) => {
                self.transmit_update_without_identifiers(now, wall);
            }
            Some(_) => return Ok(()),
        }
        self.binding_loss_hints.record_followed_hint(now, is_proven);
        Ok(())
    }

    /// Removes all bindings with identifiers, without a message to the home agent.
    pub(super) fn clear_bindings(&mut self, now: Time) {
        self.binding_update_list.end_identified_bindings(now);
        self.set_grace_timer();
        self.flow_states.forget_flow_states();
        self.timers.stop_timer(MobileRouterTimer::Bindings);
    }

    fn send_drafted_update(&mut self, now: Time, wall: WallTime, draft: DueUpdate) {
        let about = (draft.updated_bindings.as_slice(), draft.is_removal);
        // Space that the prefixes need in the update, counted in IPv6 prefixes: an IPv4 prefix needs a third
        // of the octets of an IPv6 prefix.
        let prefixes = self.config.prefixes.len() + self.config.ipv4_prefixes.len().div_ceil(3);
        let (flows, summary) =
            self.flow_states.flows_to_describe(&self.uplinks, &self.binding_update_list, about, prefixes);
        let own_address = draft
            .updated_bindings
            .iter()
            .find(|_| !draft.is_removal)
            .map(|m| to_authenticated_form(m.care_of_address));
        let source = match draft.sent_from.1 {
            IpAddr::V6(address) => address,
            IpAddr::V4(_) => self.config.home_address,
        };
        let authenticated = own_address.unwrap_or(source);
        let update = BindingUpdateContent {
            sequence: 0,
            sent_at: now,
            timestamp: None,
            is_without_identifiers: false,
            replaces_all_bindings: draft.replaces_all_bindings,
            is_removal: draft.is_removal,
            sent_from: draft.sent_from,
            binding_count: draft.updated_bindings.len(),
            updated_bindings: draft.updated_bindings,
            authenticated_address: authenticated,
            described_flows: flows,
            unchanged_flow_ids: summary,
        };
        self.send_update(now, wall, update);
    }

    /// Sends a Binding Update with the next sequence number, which all entries share (RFC 5648 4.1). First
    /// outputs the forwarding that the update itself needs for its source address.
    fn send_update(&mut self, now: Time, wall: WallTime, mut update: BindingUpdateContent) {
        let (sequence, timestamp) = self.update_numbers.next_sequence_and_timestamp(now, wall);
        (update.sequence, update.timestamp) = (sequence, timestamp);
        let BindingUpdateContent { sent_from: via, authenticated_address: authenticated, .. } = update;
        self.binding_update_list.outstanding_update = Some(OutstandingUpdate {
            sequence,
            sent_at: now,
            sent_from: via,
            authenticated_address: authenticated,
        });
        let output =
            self.message_composer().build_update(&self.binding_update_list, &self.flow_states, &update);
        self.binding_update_list.record_sent_update(&self.uplinks, now, &update);
        self.report_unanswered_updates(now, &update);
        self.flow_states.record_sent_flows(sequence, &update.described_flows);
        self.record_sent_update(now, via.0);
        if !update.is_without_identifiers {
            self.binding_update_list.store_outstanding_update(update);
        }
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        self.outputs.push_back(Output::Persist(self.config.home_address));
        self.outputs.push_back(output);
    }

    /// Returns the builder of this router's messages.
    pub(super) fn message_composer(&self) -> MessageComposer<'_> {
        MessageComposer { config: &self.config, uplinks: &self.uplinks, numbers: &self.update_numbers }
    }

    /// Sends the outstanding Binding Update with a new sequence number, and sets the timer for the next
    /// transmission. Sends at most `MAX_UPDATE_RATE` per second (RFC 6275 11.8). If this uplink has had no
    /// answers, it uses another one.
    pub(super) fn transmit_update_without_identifiers(&mut self, now: Time, wall: WallTime) {
        if self.is_uplink_silent(now) {
            return self.demote_target_uplink(now, wall);
        }
        if self.is_return_home_unanswered(now) {
            self.abandon_return_home(now, wall);
            // If the router is still at home, no other uplink exists, so the de-registration continues.
            if !self.home_presence.at_home {
                return;
            }
        }
        if self.binding_update_list.entry_without_identifier.registration_exchange.is_none() {
            return;
        }
        self.probe_unanswering_routers(now);
        let next = self.next_update_allowed_at(now);
        self.binding_update_list.is_request_without_identifier_waiting =
            next.is_some() && self.next_update_may_overtake_until(now).is_some();
        let BindingUpdateListEntry { uplink, registration_exchange: Some(exchange), .. } =
            &mut self.binding_update_list.entry_without_identifier
        else {
            return;
        };
        if let Some(next) = next {
            exchange.schedule_transmission(next);
            return self.set_exchange_timer();
        }
        if exchange.purpose == RequestPurpose::Register && exchange.retransmission.unanswered_rounds() > 0 {
            // The path worked before and has no answers now, so the router also tries the other care-of
            // addresses.
            for address in self.uplinks[*uplink].care_of_addresses() {
                if !exchange.care_of_addresses.contains(&address) {
                    exchange.care_of_addresses.push(address);
                }
            }
        }
        let Some(care_of_address) = exchange.next_care_of_address() else { return };
        exchange.record_router(care_of_address, self.uplinks[*uplink].next_hop(care_of_address));
        let sent = Transmission { sequence: 0, sent_at: now, timestamp: None, care_of_address };
        let update = BindingUpdateContent::without_identifiers(*uplink, exchange.purpose, sent);
        self.send_update(now, wall, update);
        self.set_exchange_timer();
    }

    /// Handles rounds of Binding Updates that had no answer: for each care-of address the next round goes to
    /// another router, if the address has one.
    fn probe_unanswering_routers(&mut self, now: Time) {
        let plain = self
            .binding_update_list
            .request_without_identifier(RequestPurpose::Register)
            .map(|request| (self.binding_update_list.entry_without_identifier.uplink, request));
        let of_bindings = self
            .binding_update_list
            .identified_entries
            .iter()
            .filter_map(|it| Some((it.uplink, it.outstanding_request()?)));
        let is_round_over = |(_, request): &(usize, &Exchange)| {
            let made = &request.retransmission;
            made.unanswered_rounds() > 0 && made.address_index() == 0 && request.is_due(now)
        };
        let unanswered: Vec<(usize, Vec<IpAddr>, bool)> = plain
            .into_iter()
            .chain(of_bindings)
            .filter(is_round_over)
            .map(|(uplink, request)| {
                (uplink, request.care_of_addresses.clone(), is_router_doubtful(request, now))
            })
            .collect();
        for (index, addresses, is_doubtful) in unanswered {
            for address in addresses {
                if self.uplinks.get(index).is_some_and(|uplink| uplink.has_spare_router(address)) {
                    self.handle_failed_candidate(now, index, address);
                }
            }
            if is_doubtful {
                self.retry_return_home_early(now, index);
            }
        }
    }

    /// Sets the timer for the request of the entry without identifier.
    pub(super) fn set_exchange_timer(&mut self) {
        match self
            .binding_update_list
            .entry_without_identifier
            .registration_exchange
            .as_ref()
            .and_then(Exchange::next_transmission)
        {
            Some(at) => self.timers.set_deadline(MobileRouterTimer::Retransmit, at),
            None => self.timers.stop_timer(MobileRouterTimer::Retransmit),
        }
    }

    /// Warns the operator that [`UPDATES_BEFORE_WARNING`] Binding Updates over an uplink had no answer. The
    /// home agent does not answer unknown nodes, so only its log shows the cause.
    pub(super) fn warn_of_unanswered_updates(&mut self, uplink: usize) {
        let config = &self.config;
        let name = self.uplinks.get(uplink).map_or("?", |uplink| uplink.config.interface.as_str());
        let unknown = match self.update_numbers.authentication.signing_association() {
            Some(association) => {
                format!("the home address {} or the SPI {}", config.home_address, association.spi)
            }
            None => format!("the home address {}", config.home_address),
        };
        let message = format!(
            "no valid acknowledgement from the home agent {} over {name} after {UPDATES_BEFORE_WARNING} \
             Binding Updates: the home agent is not reachable over this uplink, or its config lacks \
             {unknown} (see its log)",
            config.home_agent
        );
        self.outputs.push_back(Output::Event(Event::Warning { message }));
    }

    /// Returns when the next Binding Update may leave; `None` if it may leave now. RFC 6275 11.7.1 limits the
    /// rate, and the update must not overtake the outstanding one.
    pub(super) fn next_update_allowed_at(&mut self, now: Time) -> Option<Time> {
        self.update_numbers.update_rate_limit(now).max(self.next_update_may_overtake_until(now))
    }

    /// Returns the time until which a Binding Update could arrive before the outstanding one; `None` if it
    /// cannot.
    fn next_update_may_overtake_until(&self, now: Time) -> Option<Time> {
        self.binding_update_list.next_update_may_overtake_until(now, |uplink, address| {
            let link = self.uplinks.get(uplink)?;
            let at_home = self.home_presence.at_home && address == IpAddr::V6(self.config.home_address);
            let is_usable = at_home || link.has_care_of_address(address);
            (is_usable && !self.uplinks.has_path_failed(uplink))
                .then(|| self.uplinks.answer_time_of(uplink).unwrap_or_default())
        })
    }

    /// Handles the answer to the outstanding Binding Update: sends the updates that waited for it.
    pub(super) fn record_answered_update(&mut self, now: Time, wall: WallTime) {
        if self.uses_binding_identifiers() {
            self.reconcile_bindings(now, wall);
        } else if std::mem::take(&mut self.binding_update_list.is_request_without_identifier_waiting)
            && self.binding_update_list.entry_without_identifier.registration_exchange.is_some()
        {
            self.transmit_update_without_identifiers(now, wall);
        }
    }
}
