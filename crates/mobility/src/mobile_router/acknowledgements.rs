//! Handles Binding Acknowledgements of the home agent (RFC 6275 11.7.3, RFC 3963 5.3 and 5.4).
//!
//! Some refusals let the router correct a value: status 135 names the sequence number, 144 the time. Then it
//! sends the Binding Update again at once, a limited number of times. After a temporary refusal it waits
//! before the next transmission. If the home agent refuses the router itself, the router stops the service
//! (RFC 3963 5.4). From then on it sends one Binding Update every [`REFUSED_INTERVAL`]. So it registers again
//! without help when the operator has corrected the home agent's config.
//!
//! A home agent may send status 129 and 131 to 133 while it starts. So after these statuses the pauses begin
//! with seconds and double up to [`REFUSED_INTERVAL`]. A refusal may also be the answer to an attacker's
//! message that copies the number of this router's Binding Update. If the home agent accepts that Binding
//! Update after the refusal, the router registers again at once.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_wire::mobility::binding_status::BindingStatus;
use carnet_wire::mobility::options::MobilityOptions;
use carnet_wire::mobility::{
    BindingAcknowledgement, BindingRevocation, HomeAgentSwitch, MobilityHeaderBuilder, MobilityOption,
    RevocationKind,
};

use super::agent_messages::{
    AnsweredRevocation, HomeAgentSwitchRequest, MAX_SWITCH_TARGETS, MessageProof, REVOCATION_REPETITION_TIME,
    judge_revocation, receiving_endpoint,
};
use super::refusals::{REFUSED_INTERVAL, RefusedUpdate};
use super::{BindingLossHints, MobileRouter, MobileRouterTimer, Registration};
use crate::binding_update_list::{
    self, Bid, BindingUpdateContent, Exchange, MAX_BINDACK_TIMEOUT, RefusalReaction, RequestPurpose,
    TimestampVerdict, Transmission, UpdatedBinding, refusal_reaction, to_authenticated_form,
};
use crate::{Event, MobilityDrop, MobilityMessage, Output, is_newer, lifetime_from_units};

impl MobileRouter {
    /// Handles a Binding Acknowledgement, and sends the Binding Updates that waited for it.
    pub(super) fn handle_acknowledgement(
        &mut self,
        now: Time,
        wall: WallTime,
        message: &MobilityMessage<'_>,
        acknowledgement: &BindingAcknowledgement<'_>,
        octets: &[u8],
    ) -> Result<(), MobilityDrop> {
        let answered = self.binding_update_list.outstanding_update.filter(|outstanding| {
            let home_address = self.config.home_address;
            outstanding.sequence == acknowledgement.sequence
                && BindingStatus(acknowledgement.status) != BindingStatus::SEQUENCE_OUT_OF_WINDOW
                && self
                    .update_numbers
                    .authentication
                    .verify(octets, outstanding.authenticated_address, home_address)
                    .is_ok()
        });
        if answered.is_some() {
            self.binding_update_list.outstanding_update = None;
        }
        let result = self.apply_acknowledgement(now, wall, message, acknowledgement, octets);
        if answered.is_some() {
            self.record_answered_update(now, wall);
        }
        result
    }

    /// Handles a Binding Acknowledgement (RFC 6275 11.7.3, RFC 3963 5.3 and 5.4).
    fn apply_acknowledgement(
        &mut self,
        now: Time,
        wall: WallTime,
        message: &MobilityMessage<'_>,
        acknowledgement: &BindingAcknowledgement<'_>,
        octets: &[u8],
    ) -> Result<(), MobilityDrop> {
        // RFC 6275 6.4: away from home the acknowledgement has the router's home address in a type 2
        // routing header.
        let at_home_address = message.destination == self.config.home_address;
        if !at_home_address && message.routing_home_address != Some(self.config.home_address) {
            return Err(MobilityDrop::WrongParty);
        }
        if let Some(contradicted) =
            self.refusal_state.refused_update.filter(|it| it.sequence == acknowledgement.sequence)
            && !BindingStatus(acknowledgement.status).is_rejection()
        {
            self.verify_acknowledgement(now, octets, contradicted.authenticated_address)?;
            self.resume_service();
            self.evaluate_uplinks(
                now,
                wall,
                "the home agent accepted a Binding Update that it had refused before",
            );
            return Ok(());
        }
        let update = self.answered_update(acknowledgement).ok_or(MobilityDrop::Unexpected)?;
        self.verify_acknowledgement(now, octets, update.authenticated_address)?;
        let status = BindingStatus(acknowledgement.status);
        if status == BindingStatus::SEQUENCE_OUT_OF_WINDOW {
            if !self.update_numbers.adopt_sequence_number(acknowledgement.sequence) {
                return Err(MobilityDrop::Unexpected);
            }
            self.binding_update_list.outstanding_update = None;
            if update.is_without_identifiers {
                self.binding_update_list.record_response_to_update(now, &update);
            }
            return self.send_corrected_update(now, wall, &update);
        }
        self.binding_update_list.record_response_to_update(now, &update);
        let timestamp = message_identifier(acknowledgement);
        if self.update_numbers.judge_acknowledgement(wall, status, update.timestamp, timestamp)?
            == TimestampVerdict::Repeat
        {
            return self.send_corrected_update(now, wall, &update);
        }
        if !status.is_rejection() {
            self.record_acknowledged_timestamp(&update, timestamp);
        }
        if !status.is_rejection() && !update.is_removal {
            self.record_ipv4_answers(acknowledgement);
        }
        if update.is_without_identifiers {
            self.handle_acknowledgement_without_identifiers(now, wall, &update, acknowledgement);
        } else {
            self.handle_identified_acknowledgement(now, wall, &update, acknowledgement);
        }
        Ok(())
    }

    /// Returns the Binding Update that an acknowledgement answers; `None` if it answers none. An
    /// acknowledgement with status 135 contains the last accepted number instead of the update's (RFC 6275
    /// 9.5.1), so it can answer only the outstanding update.
    fn answered_update(&self, acknowledgement: &BindingAcknowledgement<'_>) -> Option<BindingUpdateContent> {
        let sequence = match BindingStatus(acknowledgement.status) {
            BindingStatus::SEQUENCE_OUT_OF_WINDOW => self.binding_update_list.outstanding_update?.sequence,
            _ => acknowledgement.sequence,
        };
        self.binding_update_list.take_answered_update(sequence)
    }

    /// Sends the bindings of an update again at once after a correction, a limited number of times.
    fn send_corrected_update(
        &mut self,
        now: Time,
        wall: WallTime,
        update: &BindingUpdateContent,
    ) -> Result<(), MobilityDrop> {
        let may_correct = self.binding_update_list.send_corrected_update(now, update);
        if !update.is_without_identifiers {
            self.reconcile_bindings(now, wall);
        } else if may_correct {
            self.transmit_update_without_identifiers(now, wall);
        }
        if may_correct { Ok(()) } else { Err(MobilityDrop::RateLimited) }
    }

    /// Handles the answer to a Binding Update of the entry without identifier.
    fn handle_acknowledgement_without_identifiers(
        &mut self,
        now: Time,
        wall: WallTime,
        update: &BindingUpdateContent,
        acknowledgement: &BindingAcknowledgement<'_>,
    ) {
        let status = BindingStatus(acknowledgement.status);
        if let Some(single) = self
            .binding_update_list
            .entry_without_identifier
            .registration_exchange
            .take_if(|exchange| exchange.is_never_retransmitted())
        {
            // End the effects of the earlier refusal first, because this answer may be a refusal as well.
            self.resume_service();
            let exchange =
                self.binding_update_list.entry_without_identifier.registration_exchange.insert(single);
            exchange.apply_event(now, binding_update_list::ExchangeEvent::Answer);
        }
        if update.is_removal {
            return self.handle_deregistration_answer(now, wall, status);
        }
        if status.is_rejection() {
            return self.handle_refusal(now, wall, update, None, status);
        }
        if self.was_registered_as_host(acknowledgement) {
            return self.handle_missing_router_flag(now, wall, update.sent_from);
        }
        let registration = self.granted_registration(now, update, update.sent_from, acknowledgement);
        if registration.lifetime.is_zero() {
            // RFC 6275 11.7.3: with a remaining lifetime of 0 the router is not registered. A later update
            // may succeed.
            self.remove_registration();
            self.delay_next_request(now, MAX_BINDACK_TIMEOUT);
            self.report_forwarding_change("the home agent granted a lifetime of 0");
            return;
        }
        let exchange = self.store_registration(now, update, None, registration);
        self.set_refresh_timers(&registration, acknowledgement);
        self.binding_update_list.back_off_time = None;
        let reason = self.reason_to_move(now);
        self.report_forwarding_change(&reason);
        // Register again if a later Binding Update named another care-of address. The home agent may have
        // received it, so its binding may differ from this registration.
        let overtakes = |other: &Transmission| {
            other.care_of_address != update.sent_from.1 && is_newer(other.sequence, update.sequence)
        };
        if exchange.is_some_and(|exchange| exchange.transmissions.iter().any(overtakes)) {
            self.renew_registration(now, wall);
        }
    }

    /// Sets the timers of the registration without identifier. The home agent may advise an earlier refresh.
    fn set_refresh_timers(
        &mut self,
        registration: &Registration,
        acknowledgement: &BindingAcknowledgement<'_>,
    ) {
        let is_full = self.uplinks.is_path_saturated(registration.uplink);
        let advised = acknowledgement.options.iter().find_map(|option| match option {
            Ok(MobilityOption::BindingRefreshAdvice(units)) => Some(lifetime_from_units(units)),
            _ => None,
        });
        let advised = advised.filter(|advice| *advice < registration.lifetime && !advice.is_zero());
        let due = registration.renew_at(is_full);
        let due = advised.map_or(due, |advice| due.min(registration.sent_at() + advice));
        self.timers.set_deadline(MobileRouterTimer::Refresh, due);
        self.timers.set_deadline(MobileRouterTimer::Expire, registration.expires_at);
    }

    /// Verifies the MAC of an acknowledgement, if it must have one. Reports a wrong MAC to the operator,
    /// unless it belongs to an older Binding Update of this router with another care-of address. In that case
    /// the acknowledgement is late and the keys are right.
    pub(super) fn verify_acknowledgement(
        &mut self,
        now: Time,
        octets: &[u8],
        care_of_address: Ipv6Addr,
    ) -> Result<(), MobilityDrop> {
        let home_address = self.config.home_address;
        let verified = self.update_numbers.authentication.verify(octets, care_of_address, home_address);
        if let Err(reason) = verified
            && self.refusal_state.key_warning_limit.try_take_token(now)
            && !self
                .possible_authenticated_addresses()
                .any(|own| self.update_numbers.authentication.verify(octets, own, home_address).is_ok())
        {
            let spi = self
                .update_numbers
                .authentication
                .signing_association()
                .map_or(0, |association| association.spi);
            let agent = self.config.home_agent;
            let what = match reason {
                MobilityDrop::AuthenticationMissing => {
                    "has no authentication option: does the home agent have a key for this router?"
                        .to_string()
                }
                MobilityDrop::UnknownSpi => format!("has an unknown SPI, expected {spi}"),
                MobilityDrop::AuthenticationFailed => {
                    format!("has a wrong MAC: do both ends have the same key for SPI {spi}?")
                }
                other => format!("cannot be verified ({other})"),
            };
            let message = format!("an acknowledgement from the home agent {agent} {what}");
            self.refusal_state.key_problem = Some(what);
            self.outputs.push_back(Output::Event(Event::Warning { message }));
        }
        verified
    }

    /// Returns all care-of addresses that the MAC of an acknowledgement may cover.
    fn possible_authenticated_addresses(&self) -> impl Iterator<Item = Ipv6Addr> {
        let current =
            self.accepted_care_of_addresses().into_iter().map(|(address, _)| to_authenticated_form(address));
        let previous = self
            .binding_update_list
            .former_care_of_addresses
            .iter()
            .map(|(address, _)| to_authenticated_form(*address));
        let updates =
            self.binding_update_list.outstanding_updates.iter().map(|update| update.authenticated_address);
        let sent = self
            .binding_update_list
            .entry_without_identifier
            .registration_exchange
            .iter()
            .flat_map(|exchange| &exchange.transmissions);
        let sent = sent.map(|sent| to_authenticated_form(sent.care_of_address));
        current.chain(previous).chain(updates).chain(sent).chain([self.config.home_address])
    }

    /// Returns whether the home agent registered this mobile router as a mobile node without a network (RFC
    /// 3963 5.3).
    pub(super) fn was_registered_as_host(&self, acknowledgement: &BindingAcknowledgement<'_>) -> bool {
        self.config.is_router() && !acknowledgement.mobile_router
    }

    /// De-registers and stops the service, because the home agent registered the router as a mobile node (RFC
    /// 3963 5.3).
    pub(super) fn handle_missing_router_flag(
        &mut self,
        now: Time,
        wall: WallTime,
        (uplink, care_of_address): (usize, IpAddr),
    ) {
        self.clear_bindings(now);
        self.stop_refused_service(now, BindingStatus::MOBILE_ROUTER_NOT_PERMITTED);
        self.outputs.push_back(Output::Event(Event::Rejected {
            status: BindingStatus::ACCEPTED.0,
            reason: "the home agent does not support mobile routers (no R flag in its acknowledgement)"
                .into(),
        }));
        self.deregister_all_bindings(now, wall, uplink, vec![care_of_address]);
        self.report_forwarding_change("the home agent does not support mobile routers");
    }

    /// De-registers all bindings of this router from the home agent.
    pub(super) fn deregister_all_bindings(
        &mut self,
        now: Time,
        wall: WallTime,
        uplink: usize,
        care_of_addresses: Vec<IpAddr>,
    ) {
        let exchange = Exchange::to_home_agent(RequestPurpose::Deregister, care_of_addresses, now, false);
        self.binding_update_list.begin_request_without_identifier(uplink, exchange);
        self.transmit_update_without_identifiers(now, wall);
    }

    /// Handles the refusal of a Binding Update: for the entry without identifier, or for the entry of
    /// `member`.
    fn handle_refusal(
        &mut self,
        now: Time,
        wall: WallTime,
        update: &BindingUpdateContent,
        member: Option<UpdatedBinding>,
        status: BindingStatus,
    ) {
        let entry = member.map_or(&self.binding_update_list.entry_without_identifier, |member| {
            &self.binding_update_list.identified_entries[member.binding_index]
        });
        let is_registered = entry.registration.is_some();
        let prefix = match entry.bid {
            Some(_) => format!("{}: ", self.uplinks[entry.uplink].config.interface),
            None => String::new(),
        };
        let correction = member
            .and_then(|member| self.send_corrected_update_without_identifiers(now, update, member, status));
        let remedy = match correction {
            Some(_) => RefusalReaction::GoOn,
            // The home agent has a binding of this router, so the key was right when it was created. An
            // attacker is a more likely cause than a new key: with a forged update it can make the home agent
            // send this status. So the router ignores it, and the attacker cannot end the registration early.
            None if status == BindingStatus::AUTHENTICATION_FAILED && is_registered => RefusalReaction::GoOn,
            None => refusal_reaction(status),
        };
        let what = match remedy {
            RefusalReaction::GoOn => {
                correction.unwrap_or("the former registration stays, trying again").into()
            }
            RefusalReaction::Retry(after) => format!("trying again in {} s", after.as_secs()),
            RefusalReaction::StartOver => "de-registering first".into(),
            RefusalReaction::BackOff | RefusalReaction::Stop => {
                // RFC 3963 5.4: after this refusal the home agent has no binding of this router, so clear all
                // bindings with identifiers.
                if member.is_some() {
                    self.clear_bindings(now);
                }
                self.stop_refused_service(now, status);
                self.service_stop_message(now)
            }
        };
        self.outputs.push_back(Output::Event(Event::Rejected {
            status: status.0,
            reason: format!("{prefix}{}; {what}", status.meaning()),
        }));
        match (remedy, member) {
            (RefusalReaction::GoOn, _) => {
                if !update.is_without_identifiers && status == BindingStatus::MCOA_PROHIBITED {
                    self.clear_bindings(now);
                    self.evaluate_uplinks(now, wall, "the home agent permits only one care-of address");
                }
                return;
            }
            (RefusalReaction::Retry(after), Some(member)) => {
                // The earlier registration stays valid, as after a refusal of RFC 6275 11.7.3.
                self.refusal_state.temporary_refusal = Some(status);
                return self.binding_update_list.hold_binding_request(now, member.binding_index, after);
            }
            (RefusalReaction::Retry(after), None) => {
                self.refusal_state.temporary_refusal = Some(status);
                self.delay_next_request(now, after);
            }
            (RefusalReaction::StartOver, Some(_)) => {
                self.clear_bindings(now);
                self.deregister_all_bindings(now, wall, update.sent_from.0, vec![update.sent_from.1]);
            }
            (RefusalReaction::StartOver, None) => {
                self.remove_registration();
                let last = self
                    .binding_update_list
                    .entry_without_identifier
                    .registration_exchange
                    .as_ref()
                    .and_then(Exchange::care_of_address);
                self.deregister_all_bindings(now, wall, update.sent_from.0, last.into_iter().collect());
            }
            (RefusalReaction::BackOff | RefusalReaction::Stop, _) => {
                let BindingUpdateContent { sequence, authenticated_address: authenticated, .. } = *update;
                self.refusal_state.refused_update =
                    Some(RefusedUpdate { sequence, authenticated_address: authenticated });
                if update.is_without_identifiers {
                    self.binding_update_list.entry_without_identifier.registration_exchange = None;
                    self.set_exchange_timer();
                }
            }
        }
        self.report_forwarding_change("the home agent refused");
    }

    /// Corrects the requests of an entry with identifier after a refusal that a correction can resolve.
    /// Returns the text for the operator; `None` if the status has the same reaction as without identifier.
    fn send_corrected_update_without_identifiers(
        &mut self,
        now: Time,
        update: &BindingUpdateContent,
        member: UpdatedBinding,
        status: BindingStatus,
    ) -> Option<&'static str> {
        match status {
            // RFC 5648 5.7: the router "MUST set 'O' flag" in the next update.
            BindingStatus::MCOA_NON_MCOA_BINDING_EXISTS => {
                self.binding_update_list.multiple_care_of_support.are_agent_bindings_exact = false;
                self.binding_update_list.retry_binding(now, member.binding_index);
                Some("replacing the plain binding")
            }
            // RFC 5648 5.7: the router "needs to stop using bulk registrations".
            BindingStatus::MCOA_BULK_PROHIBITED if update.binding_count > 1 => {
                self.binding_update_list.multiple_care_of_support.supports_bulk_registration = false;
                self.binding_update_list.retry_binding(now, member.binding_index);
                Some("registering one at a time")
            }
            // RFC 5648 5.7: the router "SHOULD send a Binding Identifier mobility option including the
            // Care-of Address field". This router always includes it, so the status shows that the home agent
            // has lost the binding.
            BindingStatus::MCOA_UNKNOWN_CARE_OF_ADDRESS => self
                .binding_update_list
                .retry_corrected_binding(now, member.binding_index)
                .then_some("trying again"),
            // RFC 5648 5.7: the router "MUST stop registering multiple bindings".
            BindingStatus::MCOA_PROHIBITED => {
                self.binding_update_list.multiple_care_of_support.supports_identifiers = false;
                Some("registering without binding identifiers")
            }
            _ => None,
        }
    }

    /// Handles the answer to a de-registration. Status 133 means that the home agent had no binding.
    fn handle_deregistration_answer(&mut self, now: Time, wall: WallTime, status: BindingStatus) {
        if status.is_rejection() && status != BindingStatus::NOT_HOME_AGENT {
            self.outputs.push_back(Output::Event(Event::Rejected {
                status: status.0,
                reason: format!("de-registration: {}", status.meaning()),
            }));
            if self.home_presence.at_home && !self.is_stopping {
                // The home agent refused to end the binding and still defends the home address, so this
                // router may not use the address yet.
                self.delay_next_request(now, MAX_BINDACK_TIMEOUT);
                return;
            }
        }
        self.binding_update_list.entry_without_identifier.registration_exchange = None;
        self.set_exchange_timer();
        if self.home_presence.at_home {
            self.handle_return_home(now);
        } else if !self.is_stopping && self.refusal_state.stop_status.is_none() {
            self.evaluate_uplinks(now, wall, "registering anew");
        }
    }

    /// Stops the service (RFC 3963 5.4). The router asks the home agent again after a pause.
    pub(super) fn stop_refused_service(&mut self, now: Time, status: BindingStatus) {
        self.refusal_state.stop_status = Some(status);
        self.refusal_state.refused_update = None;
        let pause = self.refusal_state.next_request_pause(status);
        self.timers.set_deadline(MobileRouterTimer::AskAgain, now + pause);
        self.remove_registration();
    }

    /// Returns the text for the operator after a refusal has stopped the service.
    pub(super) fn service_stop_message(&self, now: Time) -> String {
        let pause = self
            .timers
            .get(MobileRouterTimer::AskAgain)
            .map_or(REFUSED_INTERVAL, |at| at.saturating_since(now));
        let pause = match pause.as_secs() {
            seconds if seconds >= 120 => format!("{} min", seconds / 60),
            seconds => format!("{seconds} s"),
        };
        format!("service stops; asking again in {pause}, or after a `carnet handover`, a reload or a restart")
    }

    /// Ends the state that a refusal has set.
    pub(super) fn resume_service(&mut self) {
        self.refusal_state.refused_update = None;
        if self.refusal_state.stop_status.take().is_some() {
            self.timers.stop_timer(MobileRouterTimer::AskAgain);
            self.binding_update_list
                .entry_without_identifier
                .registration_exchange
                .take_if(|exchange| exchange.is_never_retransmitted());
            self.outputs.push_back(Output::Forwarding(self.config.home_address));
        }
    }

    /// Removes the registration.
    pub(super) fn remove_registration(&mut self) {
        self.binding_update_list.entry_without_identifier.registration = None;
        self.timers.stop_timer(MobileRouterTimer::Refresh);
        self.timers.stop_timer(MobileRouterTimer::Expire);
    }

    /// Makes the exchange wait for `after` before the next transmission.
    fn delay_next_request(&mut self, now: Time, after: Duration) {
        if let Some(exchange) = &mut self.binding_update_list.entry_without_identifier.registration_exchange {
            exchange.apply_event(now, binding_update_list::ExchangeEvent::Refusal(now + after));
            self.set_exchange_timer();
        }
    }

    /// Handles a Binding Revocation Indication (RFC 5846 10).
    pub(super) fn handle_revocation(
        &mut self,
        now: Time,
        wall: WallTime,
        message: &MobilityMessage<'_>,
        revocation: &BindingRevocation<'_>,
        octets: &[u8],
    ) -> Result<(), MobilityDrop> {
        let RevocationKind::Indication { .. } = revocation.kind else {
            return Err(MobilityDrop::UnknownType);
        };
        // Accept an indication over a registered path, or its repetition after a revocation whose
        // acknowledgement was lost.
        let answered = self
            .agent_messages
            .last_revocation
            .as_ref()
            .filter(|it| it.answer_repetitions_until > now && it.is_repetition(message, revocation));
        let answered = answered.cloned();
        let (uplink, registration) = self
            .registration_used_by(message)
            .or(answered.as_ref().map(|it| it.answering_registration))
            .ok_or(MobilityDrop::Unexpected)?;
        self.verify_notice(now, wall, message, revocation.options, octets)?;
        if let Some(AnsweredRevocation { answering_registration: by, status, .. }) = answered {
            self.acknowledge_revocation(by, revocation, status);
            return Ok(());
        }
        let (status, named) = judge_revocation(revocation, &self.binding_update_list);
        let by = (uplink, registration);
        let (sequence, came_to) = (revocation.sequence, receiving_endpoint(message));
        let until = now + REVOCATION_REPETITION_TIME;
        self.agent_messages.last_revocation = Some(AnsweredRevocation {
            sequence,
            received_at_endpoint: came_to,
            answering_registration: by,
            status,
            answer_repetitions_until: until,
        });
        self.acknowledge_revocation(by, revocation, status);
        if status < 128 {
            self.end_revoked_bindings(now, &named);
        }
        Ok(())
    }

    /// Handles a Home Agent Switch message (RFC 5142 6.1).
    pub(super) fn handle_switch_message(
        &mut self,
        now: Time,
        wall: WallTime,
        message: &MobilityMessage<'_>,
        switch: &HomeAgentSwitch<'_>,
        octets: &[u8],
    ) -> Result<(), MobilityDrop> {
        self.registration_used_by(message).ok_or(MobilityDrop::Unexpected)?;
        let authenticated = self.verify_notice(now, wall, message, switch.options, octets)?;
        let to = switch.addresses().take(MAX_SWITCH_TARGETS).collect();
        self.agent_messages.pending_switch =
            Some(HomeAgentSwitchRequest { target_agents: to, is_authenticated: authenticated });
        Ok(())
    }

    /// Acknowledges a revocation over the path over which the indication came.
    fn acknowledge_revocation(
        &mut self,
        (uplink, registration): (usize, Registration),
        revocation: &BindingRevocation<'_>,
        status: u8,
    ) {
        let kind = RevocationKind::Acknowledgement { status };
        let builder = MobilityHeaderBuilder::binding_revocation(kind, revocation.sequence, revocation.flags);
        // The MAC covers the address that the message is sent from, in the place of the care-of address,
        // as in messages of the home agent.
        let source = match registration.care_of_address {
            IpAddr::V6(address) => address,
            IpAddr::V4(_) => self.config.home_address,
        };
        let mut mobility_header = self.message_composer().add_authentication_options(builder, None, source);
        let output =
            self.message_composer().build_heartbeat_packet(uplink, registration, &mut mobility_header);
        self.outputs.push_back(output);
    }

    /// Ends the bindings with these identifiers, or all bindings if `bids` is empty. After a long pause the
    /// router asks the home agent again for the ended bindings, as after a refusal.
    fn end_revoked_bindings(&mut self, now: Time, bids: &[u16]) {
        let is_named = |bid: Option<Bid>| bid.is_some_and(|bid| bids.contains(&bid));
        let all = bids.is_empty()
            || self
                .binding_update_list
                .identified_entries
                .iter()
                .filter(|b| b.registration.is_some())
                .all(|b| is_named(b.bid));
        let what = if all { "the service" } else { "some bindings" };
        self.outputs.push_back(Output::Event(Event::Deregistered {
            reason: format!("the home agent {} has revoked {what}", self.config.home_agent),
        }));
        if all {
            self.binding_update_list.entry_without_identifier.registration_exchange = None;
            self.set_exchange_timer();
            self.clear_bindings(now);
            // The operator of the home agent has revoked the binding, so the router waits for the longest
            // pause.
            self.refusal_state.current_request_pause = Some(super::REFUSED_INTERVAL);
            self.stop_refused_service(now, BindingStatus::PROHIBITED);
        } else {
            for index in 0..self.binding_update_list.identified_entries.len() {
                if is_named(self.binding_update_list.identified_entries[index].bid) {
                    if let Some(registration) =
                        self.binding_update_list.identified_entries[index].registration.take()
                    {
                        self.accept_former_address(now, registration.care_of_address);
                    }
                    self.binding_update_list.hold_binding_request(now, index, super::REFUSED_INTERVAL);
                }
            }
            self.timers.set_deadline(super::MobileRouterTimer::Bindings, now);
        }
        self.report_forwarding_change("the home agent revoked a binding");
    }

    /// Returns the registration over whose path a message of the home agent came (RFC 6275 6.4); `None` if it
    /// came over no registered path.
    fn registration_used_by(&self, message: &MobilityMessage<'_>) -> Option<(usize, Registration)> {
        let home_address = self.config.home_address;
        if message.destination != home_address && message.routing_home_address != Some(home_address) {
            return None;
        }
        let came_to = receiving_endpoint(message);
        let paths = (0..self.uplinks.len()).filter_map(|uplink| Some((uplink, self.heartbeat_path(uplink)?)));
        let mut by = paths.filter(|(uplink, registration)| {
            self.message_composer().local_tunnel_end(*uplink, registration) == came_to
        });
        by.next()
    }

    /// Verifies that the home agent sent an unsolicited message, and that it is no replay. Returns the kind
    /// of proof.
    fn verify_notice(
        &mut self,
        now: Time,
        wall: WallTime,
        message: &MobilityMessage<'_>,
        options: MobilityOptions<'_>,
        octets: &[u8],
    ) -> Result<bool, MobilityDrop> {
        let home_address = self.config.home_address;
        let numbers = (&self.update_numbers, home_address);
        let proof = self.agent_messages.verify_notice((now, wall), message, options, octets, numbers)?;
        if proof == MessageProof::Key {
            self.outputs.push_back(Output::Persist(home_address));
        }
        Ok(proof != MessageProof::None)
    }

    /// Handles the answer to a Binding Update of entries with identifiers.
    fn handle_identified_acknowledgement(
        &mut self,
        now: Time,
        wall: WallTime,
        update: &BindingUpdateContent,
        acknowledgement: &BindingAcknowledgement<'_>,
    ) {
        let status = BindingStatus(acknowledgement.status);
        // RFC 6275 10.3.1: before a first registration the home agent runs duplicate address detection, so
        // the answer takes longer.
        let known = self.binding_update_list.has_registration();
        self.record_path_answer(now, update.sent_from.0, known.then(|| now.saturating_since(update.sent_at)));
        if update.is_removal {
            // Status 133: the home agent had no such binding. After any other status the binding ends with
            // its lifetime (RFC 5648 5.7 on 167).
            for member in &update.updated_bindings {
                self.binding_update_list.identified_entries[member.binding_index].removal_exchange = None;
            }
            self.record_flow_answers(update, acknowledgement);
            return self.reconcile_bindings(now, wall);
        }
        let statuses = identifier_statuses(acknowledgement);
        if statuses.is_empty() && !status.is_rejection() {
            return self.handle_unsupported_identifiers(now, wall, update, acknowledgement);
        }
        if !status.is_rejection() && self.was_registered_as_host(acknowledgement) {
            return self.handle_missing_router_flag(now, wall, update.sent_from);
        }
        self.binding_update_list.remove_superseded_updates(update);
        let mut registered = false;
        for member in &update.updated_bindings {
            let bid = self.binding_update_list.identified_entries[member.binding_index].bid;
            let own = statuses.iter().find(|(other, _)| Some(*other) == bid).map(|(_, status)| *status);
            match own.filter(|own| *own != 0).map_or(status, BindingStatus) {
                refusal if refusal.is_rejection() => {
                    self.handle_refusal(now, wall, update, Some(*member), refusal);
                    if self.refusal_state.stop_status.is_some() || !self.uses_binding_identifiers() {
                        return;
                    }
                }
                _ if own.is_some() => {
                    registered |= self.register_acknowledged_binding(now, update, *member, acknowledgement);
                }
                _ => {}
            }
        }
        if registered && let Some(plain) = self.binding_update_list.record_exact_bindings(now, update) {
            self.accept_former_address(now, plain.care_of_address);
            self.remove_registration();
        }
        self.record_flow_answers(update, acknowledgement);
        self.reconcile_bindings(now, wall);
        let reason = self.reason_to_move(now);
        self.report_forwarding_change(&reason);
    }

    /// Stores the statuses of the flows, and reports warnings to the operator.
    fn record_flow_answers(
        &mut self,
        update: &BindingUpdateContent,
        acknowledgement: &BindingAcknowledgement<'_>,
    ) {
        let warnings = self.flow_states.handle_flow_answers(update, acknowledgement).into_iter();
        self.outputs.extend(warnings.map(|message| Output::Event(Event::Warning { message })));
    }

    /// Stores the answers about the IPv4 prefixes, and reports changes to the operator.
    fn record_ipv4_answers(&mut self, acknowledgement: &BindingAcknowledgement<'_>) {
        let changes = self.ipv4_networks.handle_acknowledgement(acknowledgement);
        if changes.is_empty() {
            return;
        }
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        for (prefix, state) in changes {
            self.outputs.push_back(Output::Event(state.to_event(prefix, self.config.home_agent)));
        }
    }

    /// Records the timestamp of an acknowledgement. If the Binding Update had a timestamp, the
    /// acknowledgement repeats it. Otherwise the acknowledgement of a registration contains the home agent's
    /// time, and that of a de-registration contains no timestamp.
    fn record_acknowledged_timestamp(&mut self, update: &BindingUpdateContent, told: Option<u64>) {
        if update.timestamp.is_some() {
            self.update_numbers.record_acknowledged_timestamp(told);
        } else if !update.is_removal {
            let told = told.filter(|_| self.update_numbers.authentication.detects_forgery());
            self.agent_messages.notices.learn_agent_clock(update.sent_at, told);
        }
    }

    /// Handles the acknowledged registration of one binding. Returns false if its lifetime is 0.
    fn register_acknowledged_binding(
        &mut self,
        now: Time,
        update: &BindingUpdateContent,
        member: UpdatedBinding,
        acknowledgement: &BindingAcknowledgement<'_>,
    ) -> bool {
        let via = (
            self.binding_update_list.identified_entries[member.binding_index].uplink,
            member.care_of_address,
        );
        let registration = self.granted_registration(now, update, via, acknowledgement);
        if registration.lifetime.is_zero() {
            self.binding_update_list.hold_binding_request(now, member.binding_index, MAX_BINDACK_TIMEOUT);
            return false;
        }
        self.store_registration(now, update, Some(member), registration);
        true
    }

    /// Handles an answer without Binding Identifier options: the home agent does not support them (RFC 5648
    /// 5.7). It has registered the source of the Binding Update as the only care-of address (RFC 6275).
    fn handle_unsupported_identifiers(
        &mut self,
        now: Time,
        wall: WallTime,
        update: &BindingUpdateContent,
        acknowledgement: &BindingAcknowledgement<'_>,
    ) {
        self.binding_update_list.multiple_care_of_support.supports_identifiers = false;
        let message = format!(
            "the home agent {} knows no binding identifiers (RFC 5648): one uplink at a time is registered",
            self.config.home_agent
        );
        self.outputs.push_back(Output::Event(Event::Warning { message }));
        self.clear_bindings(now);
        let registration = self.granted_registration(now, update, update.sent_from, acknowledgement);
        if !self.was_registered_as_host(acknowledgement) && !registration.lifetime.is_zero() {
            self.binding_update_list.entry_without_identifier.registration = Some(registration);
            // A home agent without RFC 5648 ignores an IPv4 care-of address in the option, so register it
            // again without identifier.
            self.binding_update_list.entry_without_identifier.is_request_due_again =
                update.sent_from.1.is_ipv4();
            self.timers.set_deadline(MobileRouterTimer::Expire, registration.expires_at);
        }
        self.evaluate_uplinks(now, wall, "the home agent knows no binding identifiers");
    }

    /// Returns the registration of a care-of address that an acknowledgement grants. The lifetime is at most
    /// the requested one, and begins when the router sent the Binding Update.
    fn granted_registration(
        &self,
        now: Time,
        update: &BindingUpdateContent,
        (uplink, care_of_address): (usize, IpAddr),
        acknowledgement: &BindingAcknowledgement<'_>,
    ) -> Registration {
        let lifetime = lifetime_from_units(acknowledgement.lifetime).min(self.config.lifetime);
        Registration {
            uplink,
            care_of_address,
            registered_since: now,
            uses_udp: self.message_composer().needs_udp(uplink, care_of_address, acknowledgement),
            lifetime,
            expires_at: update.sent_at + lifetime,
            sequence: update.sequence,
        }
    }

    /// Enters a registration into the Binding Update List: for the entry without identifier, or for the entry
    /// of `member`. Reports it to the operator. Returns the request that the home agent has accepted.
    fn store_registration(
        &mut self,
        now: Time,
        update: &BindingUpdateContent,
        member: Option<UpdatedBinding>,
        registration: Registration,
    ) -> Option<Exchange> {
        let uplink = registration.uplink;
        let bid =
            member.and_then(|member| self.binding_update_list.identified_entries[member.binding_index].bid);
        let (registration, before) = self.binding_update_list.register_care_of_address(bid, registration);
        let same = before.is_some_and(|it| it.care_of_address == registration.care_of_address);
        if let Some(before) = before.filter(|_| !same) {
            self.accept_former_address(now, before.care_of_address);
        }
        if !same {
            self.binding_loss_hints = BindingLossHints::default();
        }
        self.refusal_state.temporary_refusal = None;
        self.refusal_state.record_acknowledgement();
        self.binding_loss_hints.record_acknowledgement();
        let request = match member {
            Some(member) => {
                let entry = &mut self.binding_update_list.identified_entries[member.binding_index];
                (entry.bid_priority, entry.removal_exchange) = (member.bid_priority, None);
                entry.take_outstanding_request()
            }
            None => {
                self.binding_update_list.entry_without_identifier.is_request_due_again = false;
                let request = self.binding_update_list.entry_without_identifier.registration_exchange.take();
                self.set_exchange_timer();
                // A plain binding replaces all bindings with identifiers (RFC 5648 6.2).
                self.clear_bindings(now);
                self.end_demotion(uplink);
                request
            }
        };
        if let Some(request) = &request
            && let Some(uplink) = self.uplinks.get_mut(uplink)
        {
            // The router keeps the first care-of address that got an answer (RFC 8305 5). On this network it
            // no longer prefers the addresses that it tried earlier.
            let before =
                request.transmissions.iter().filter(|sent| !is_newer(sent.sequence, update.sequence));
            let winner = registration.care_of_address;
            // If the address has another router since the request was sent, the answer does not prove the new
            // router.
            let is_proven = !request.used_other_router(winner, uplink.next_hop(winner));
            uplink.record_race_winner(now, (winner, is_proven), before.map(|sent| sent.care_of_address));
            self.set_candidate_timer(now, registration.uplink);
        }
        let started = request.as_ref().and_then(|request| request.retransmission.first_sent_at());
        let latency = now.saturating_since(started.unwrap_or(update.sent_at));
        self.record_registered_path(now, uplink, registration, same);
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        self.outputs.push_back(Output::Event(Event::Registered {
            home_agent: self.config.home_agent,
            care_of_address: self.message_composer().local_tunnel_end(uplink, &registration),
            bid,
            uplink: self.uplinks[uplink].config.interface.clone(),
            latency_us: u64::try_from(latency.as_micros()).unwrap_or(u64::MAX),
            lifetime_s: u32::try_from(registration.lifetime.as_secs()).unwrap_or(u32::MAX),
            refresh: same,
        }));
        request
    }
}

/// Returns identifier and status of each Binding Identifier option of an acknowledgement.
fn identifier_statuses(acknowledgement: &BindingAcknowledgement<'_>) -> Vec<(u16, u8)> {
    acknowledgement
        .options
        .iter()
        .filter_map(|option| match option {
            Ok(MobilityOption::BindingIdentifier { bid, status, .. }) => Some((bid, status)),
            _ => None,
        })
        .collect()
}

/// Returns the timestamp of an acknowledgement (RFC 4285 6); `None` without a Message-ID option.
fn message_identifier(acknowledgement: &BindingAcknowledgement<'_>) -> Option<u64> {
    acknowledgement.options.iter().find_map(|option| match option {
        Ok(MobilityOption::MessageIdentifier(timestamp)) => Some(timestamp),
        _ => None,
    })
}
