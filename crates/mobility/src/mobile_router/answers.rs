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
use carnet_wire::mobility::options::Options;
use carnet_wire::mobility::status::Status;
use carnet_wire::mobility::{
    BindingAcknowledgement, BindingRevocation, Builder, HomeAgentSwitch, MobilityOption, RevocationKind,
};

use super::agent_orders::{
    AnsweredRevocation, MAX_ALTERNATIVES, Proof, REPETITIONS, SwitchOrder, came_to, judge_revocation,
};
use super::refusals::{REFUSED_INTERVAL, RefusedUpdate};
use super::{BindingLossHints, MobileRouter, Registration, Timer};
use crate::binding_update_list::{
    self, Bid, Exchange, Judgement, MAX_BINDACK_TIMEOUT, Purpose, RefusalReaction, Transmission, Update,
    UpdatedBinding, mapped, refusal_reaction,
};
use crate::{Event, MobilityDrop, MobilityMessage, Output, is_newer, lifetime_from_units};

impl MobileRouter {
    /// Handles a Binding Acknowledgement, and sends the Binding Updates that waited for it.
    pub(super) fn acknowledged(
        &mut self,
        now: Time,
        wall: WallTime,
        message: &MobilityMessage<'_>,
        acknowledgement: &BindingAcknowledgement<'_>,
        octets: &[u8],
    ) -> Result<(), MobilityDrop> {
        let answered = self.list.outstanding.filter(|outstanding| {
            let home_address = self.config.home_address;
            outstanding.sequence == acknowledgement.sequence
                && Status(acknowledgement.status) != Status::SEQUENCE_OUT_OF_WINDOW
                && self.numbers.authentication.verify(octets, outstanding.authenticated, home_address).is_ok()
        });
        if answered.is_some() {
            self.list.outstanding = None;
        }
        let result = self.take_acknowledgement(now, wall, message, acknowledgement, octets);
        if answered.is_some() {
            self.update_answered(now, wall);
        }
        result
    }

    /// Handles a Binding Acknowledgement (RFC 6275 11.7.3, RFC 3963 5.3 and 5.4).
    fn take_acknowledgement(
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
            self.refusals.contradicted.filter(|it| it.sequence == acknowledgement.sequence)
            && !Status(acknowledgement.status).is_rejection()
        {
            self.verify_acknowledgement(now, octets, contradicted.authenticated)?;
            self.end_refusal();
            self.evaluate(now, wall, "the home agent accepted a Binding Update that it had refused before");
            return Ok(());
        }
        let update = self.answered_update(acknowledgement).ok_or(MobilityDrop::Unexpected)?;
        self.verify_acknowledgement(now, octets, update.authenticated)?;
        let status = Status(acknowledgement.status);
        if status == Status::SEQUENCE_OUT_OF_WINDOW {
            if !self.numbers.take_sequence(acknowledgement.sequence) {
                return Err(MobilityDrop::Unexpected);
            }
            self.list.outstanding = None;
            if update.is_plain {
                self.list.responded(now, &update);
            }
            return self.correct(now, wall, &update);
        }
        self.list.responded(now, &update);
        let timestamp = message_identifier(acknowledgement);
        if self.numbers.judge(wall, status, update.timestamp, timestamp)? == Judgement::Repeat {
            return self.correct(now, wall, &update);
        }
        if !status.is_rejection() {
            self.timestamp_acknowledged(&update, timestamp);
        }
        if !status.is_rejection() && !update.removal {
            self.ipv4_acknowledged(acknowledgement);
        }
        if update.is_plain {
            self.plain_acknowledged(now, wall, &update, acknowledgement);
        } else {
            self.bindings_acknowledged(now, wall, &update, acknowledgement);
        }
        Ok(())
    }

    /// Returns the Binding Update that an acknowledgement answers. Status 135 has the last accepted number
    /// instead of the update's (RFC 6275 9.5.1), so it can answer only the outstanding update.
    fn answered_update(&self, acknowledgement: &BindingAcknowledgement<'_>) -> Option<Update> {
        let sequence = match Status(acknowledgement.status) {
            Status::SEQUENCE_OUT_OF_WINDOW => self.list.outstanding?.sequence,
            _ => acknowledgement.sequence,
        };
        self.list.answered(sequence)
    }

    /// Sends the bindings of an update again at once after a correction, a limited number of times.
    fn correct(&mut self, now: Time, wall: WallTime, update: &Update) -> Result<(), MobilityDrop> {
        let may_correct = self.list.correct(now, update);
        if !update.is_plain {
            self.reconcile(now, wall);
        } else if may_correct {
            self.transmit(now, wall);
        }
        if may_correct { Ok(()) } else { Err(MobilityDrop::RateLimited) }
    }

    /// Handles the answer to a Binding Update of the entry without identifier.
    fn plain_acknowledged(
        &mut self,
        now: Time,
        wall: WallTime,
        update: &Update,
        acknowledgement: &BindingAcknowledgement<'_>,
    ) {
        let status = Status(acknowledgement.status);
        if let Some(single) = self.list.plain.exchange.take_if(|exchange| exchange.is_single()) {
            // End the state of the former refusal first, because this answer may set a new one.
            self.end_refusal();
            let exchange = self.list.plain.exchange.insert(single);
            exchange.apply(now, binding_update_list::Event::Answer);
        }
        if update.removal {
            return self.deregistered(now, wall, status);
        }
        if status.is_rejection() {
            return self.rejected(now, wall, update, None, status);
        }
        if self.taken_for_a_host(acknowledgement) {
            return self.not_a_mobile_router(now, wall, update.via);
        }
        let registration = self.granted(now, update, update.via, acknowledgement);
        if registration.lifetime.is_zero() {
            // RFC 6275 11.7.3: with a remaining lifetime of 0 the router is not registered. A later update
            // may succeed.
            self.unregister();
            self.hold(now, MAX_BINDACK_TIMEOUT);
            self.forwarding_changed("the home agent granted a lifetime of 0");
            return;
        }
        let exchange = self.registered(now, update, None, registration);
        self.set_refresh(&registration, acknowledgement);
        self.list.back_off = None;
        let reason = self.reason_to_move(now);
        self.forwarding_changed(&reason);
        // Register again if a later Binding Update named another care-of address. The home agent may have
        // received it, so its binding may differ from this registration.
        let overtakes = |other: &Transmission| {
            other.care_of_address != update.via.1 && is_newer(other.sequence, update.sequence)
        };
        if exchange.is_some_and(|exchange| exchange.sent.iter().any(overtakes)) {
            self.refresh(now, wall);
        }
    }

    /// Sets the timers of the registration without identifier. The home agent may advise an earlier refresh.
    fn set_refresh(&mut self, registration: &Registration, acknowledgement: &BindingAcknowledgement<'_>) {
        let is_full = self.uplinks.is_full(registration.uplink);
        let advised = acknowledgement.options.iter().find_map(|option| match option {
            Ok(MobilityOption::BindingRefreshAdvice(units)) => Some(lifetime_from_units(units)),
            _ => None,
        });
        let advised = advised.filter(|advice| *advice < registration.lifetime && !advice.is_zero());
        let due = registration.renew_at(is_full);
        let due = advised.map_or(due, |advice| due.min(registration.sent_at() + advice));
        self.timers.set(Timer::Refresh, due);
        self.timers.set(Timer::Expire, registration.expires);
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
        let verified = self.numbers.authentication.verify(octets, care_of_address, home_address);
        if let Err(reason) = verified
            && self.refusals.key_warnings.allow(now)
            && !self
                .own_addresses()
                .any(|own| self.numbers.authentication.verify(octets, own, home_address).is_ok())
        {
            let spi = self.numbers.authentication.association().map_or(0, |association| association.spi);
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
            self.refusals.key_trouble = Some(what);
            self.outputs.push_back(Output::Event(Event::Warning { message }));
        }
        verified
    }

    /// Returns all care-of addresses that the MAC of an acknowledgement may cover.
    fn own_addresses(&self) -> impl Iterator<Item = Ipv6Addr> {
        let current = self.accepted_care_of_addresses().into_iter().map(|(address, _)| mapped(address));
        let previous = self.list.previous.iter().map(|(address, _)| mapped(*address));
        let updates = self.list.updates.iter().map(|update| update.authenticated);
        let sent = self.list.plain.exchange.iter().flat_map(|exchange| &exchange.sent);
        let sent = sent.map(|sent| mapped(sent.care_of_address));
        current.chain(previous).chain(updates).chain(sent).chain([self.config.home_address])
    }

    /// Returns whether the home agent registered this mobile router as a mobile node without a network (RFC
    /// 3963 5.3).
    pub(super) fn taken_for_a_host(&self, acknowledgement: &BindingAcknowledgement<'_>) -> bool {
        self.config.is_router() && !acknowledgement.mobile_router
    }

    /// De-registers and stops the service, because the home agent registered the router as a mobile node (RFC
    /// 3963 5.3).
    pub(super) fn not_a_mobile_router(
        &mut self,
        now: Time,
        wall: WallTime,
        (uplink, care_of_address): (usize, IpAddr),
    ) {
        self.clear_bindings(now);
        self.refuse(now, Status::MOBILE_ROUTER_NOT_PERMITTED);
        self.outputs.push_back(Output::Event(Event::Rejected {
            status: Status::ACCEPTED.0,
            reason: "the home agent does not support mobile routers (no R flag in its acknowledgement)"
                .into(),
        }));
        self.deregister_from(now, wall, uplink, vec![care_of_address]);
        self.forwarding_changed("the home agent does not support mobile routers");
    }

    /// De-registers all bindings of this router from the home agent.
    pub(super) fn deregister_from(
        &mut self,
        now: Time,
        wall: WallTime,
        uplink: usize,
        care_of_addresses: Vec<IpAddr>,
    ) {
        let exchange = Exchange::to_home_agent(Purpose::Deregister, care_of_addresses, now, false);
        self.list.begin(uplink, exchange);
        self.transmit(now, wall);
    }

    /// Handles the refusal of a Binding Update: for the entry without identifier, or for the entry of
    /// `member`.
    fn rejected(
        &mut self,
        now: Time,
        wall: WallTime,
        update: &Update,
        member: Option<UpdatedBinding>,
        status: Status,
    ) {
        let entry = member.map_or(&self.list.plain, |member| &self.list.bindings[member.binding]);
        let is_registered = entry.registration.is_some();
        let prefix = match entry.bid {
            Some(_) => format!("{}: ", self.uplinks[entry.uplink].config.interface),
            None => String::new(),
        };
        let correction = member.and_then(|member| self.correct_refused(now, update, member, status));
        let remedy = match correction {
            Some(_) => RefusalReaction::GoOn,
            // The home agent has a binding of this router, so the key was right when it was created. An
            // attacker is a more likely cause than a new key: with a forged update it can make the home agent
            // send this status. So the router ignores it, and the attacker cannot end the registration early.
            None if status == Status::AUTHENTICATION_FAILED && is_registered => RefusalReaction::GoOn,
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
                self.refuse(now, status);
                self.service_stops(now)
            }
        };
        self.outputs.push_back(Output::Event(Event::Rejected {
            status: status.0,
            reason: format!("{prefix}{}; {what}", status.meaning()),
        }));
        match (remedy, member) {
            (RefusalReaction::GoOn, _) => {
                if !update.is_plain && status == Status::MCOA_PROHIBITED {
                    self.clear_bindings(now);
                    self.evaluate(now, wall, "the home agent permits only one care-of address");
                }
                return;
            }
            (RefusalReaction::Retry(after), Some(member)) => {
                // The earlier registration stays valid, as after a refusal of RFC 6275 11.7.3.
                self.refusals.setback = Some(status);
                return self.list.hold_binding(now, member.binding, after);
            }
            (RefusalReaction::Retry(after), None) => {
                self.refusals.setback = Some(status);
                self.hold(now, after);
            }
            (RefusalReaction::StartOver, Some(_)) => {
                self.clear_bindings(now);
                self.deregister_from(now, wall, update.via.0, vec![update.via.1]);
            }
            (RefusalReaction::StartOver, None) => {
                self.unregister();
                let last = self.list.plain.exchange.as_ref().and_then(Exchange::care_of_address);
                self.deregister_from(now, wall, update.via.0, last.into_iter().collect());
            }
            (RefusalReaction::BackOff | RefusalReaction::Stop, _) => {
                let Update { sequence, authenticated, .. } = *update;
                self.refusals.contradicted = Some(RefusedUpdate { sequence, authenticated });
                if update.is_plain {
                    self.list.plain.exchange = None;
                    self.watch_exchange();
                }
            }
        }
        self.forwarding_changed("the home agent refused");
    }

    /// Corrects the requests of an entry with identifier after a refusal that a correction can resolve.
    /// Returns the text for the operator; `None` if the status has the same reaction as without identifier.
    fn correct_refused(
        &mut self,
        now: Time,
        update: &Update,
        member: UpdatedBinding,
        status: Status,
    ) -> Option<&'static str> {
        match status {
            // RFC 5648 5.7: the router "MUST set 'O' flag" in the next update.
            Status::MCOA_NON_MCOA_BINDING_EXISTS => {
                self.list.abilities.bootstrapped = false;
                self.list.retry_binding(now, member.binding);
                Some("replacing the plain binding")
            }
            // RFC 5648 5.7: the router "needs to stop using bulk registrations".
            Status::MCOA_BULK_PROHIBITED if update.count > 1 => {
                self.list.abilities.bulk = false;
                self.list.retry_binding(now, member.binding);
                Some("registering one at a time")
            }
            // RFC 5648 5.7: the router "SHOULD send a Binding Identifier mobility option including the
            // Care-of Address field". This router always includes it, so the status shows that the home agent
            // has lost the binding.
            Status::MCOA_UNKNOWN_CARE_OF_ADDRESS => {
                self.list.correct_binding(now, member.binding).then_some("trying again")
            }
            // RFC 5648 5.7: the router "MUST stop registering multiple bindings".
            Status::MCOA_PROHIBITED => {
                self.list.abilities.identifiers = false;
                Some("registering without binding identifiers")
            }
            _ => None,
        }
    }

    /// Handles the answer to a de-registration. Status 133 means that the home agent had no binding.
    fn deregistered(&mut self, now: Time, wall: WallTime, status: Status) {
        if status.is_rejection() && status != Status::NOT_HOME_AGENT {
            self.outputs.push_back(Output::Event(Event::Rejected {
                status: status.0,
                reason: format!("de-registration: {}", status.meaning()),
            }));
            if self.home.at_home && !self.stopping {
                // The home agent refused to end the binding and still defends the home address, so this
                // router may not use the address yet.
                self.hold(now, MAX_BINDACK_TIMEOUT);
                return;
            }
        }
        self.list.plain.exchange = None;
        self.watch_exchange();
        if self.home.at_home {
            self.came_home(now);
        } else if !self.stopping && self.refusals.status.is_none() {
            self.evaluate(now, wall, "registering anew");
        }
    }

    /// Stops the service (RFC 3963 5.4). The router asks the home agent again after a pause.
    pub(super) fn refuse(&mut self, now: Time, status: Status) {
        self.refusals.status = Some(status);
        self.refusals.contradicted = None;
        let pause = self.refusals.next_pause(status);
        self.timers.set(Timer::AskAgain, now + pause);
        self.unregister();
    }

    /// Returns the text for the operator after a refusal has stopped the service.
    pub(super) fn service_stops(&self, now: Time) -> String {
        let pause = self.timers.get(Timer::AskAgain).map_or(REFUSED_INTERVAL, |at| at.saturating_since(now));
        let pause = match pause.as_secs() {
            seconds if seconds >= 120 => format!("{} min", seconds / 60),
            seconds => format!("{seconds} s"),
        };
        format!("service stops; asking again in {pause}, or after a `carnet handover`, a reload or a restart")
    }

    /// Ends the state that a refusal has set.
    pub(super) fn end_refusal(&mut self) {
        self.refusals.contradicted = None;
        if self.refusals.status.take().is_some() {
            self.timers.stop(Timer::AskAgain);
            self.list.plain.exchange.take_if(|exchange| exchange.is_single());
            self.outputs.push_back(Output::Forwarding(self.config.home_address));
        }
    }

    /// Removes the registration.
    pub(super) fn unregister(&mut self) {
        self.list.plain.registration = None;
        self.timers.stop(Timer::Refresh);
        self.timers.stop(Timer::Expire);
    }

    /// Makes the exchange wait for `after` before the next transmission.
    fn hold(&mut self, now: Time, after: Duration) {
        if let Some(exchange) = &mut self.list.plain.exchange {
            exchange.apply(now, binding_update_list::Event::Refusal(now + after));
            self.watch_exchange();
        }
    }

    /// Handles a Binding Revocation Indication (RFC 5846 10).
    pub(super) fn revocation_ordered(
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
        let answered =
            self.orders.last_revocation.as_ref().filter(|it| it.until > now && it.is_of(message, revocation));
        let answered = answered.cloned();
        let (uplink, registration) =
            self.way_of(message).or(answered.as_ref().map(|it| it.by)).ok_or(MobilityDrop::Unexpected)?;
        self.verify_notice(now, wall, message, revocation.options, octets)?;
        if let Some(AnsweredRevocation { by, status, .. }) = answered {
            self.acknowledge_revocation(by, revocation, status);
            return Ok(());
        }
        let (status, named) = judge_revocation(revocation, &self.list);
        let by = (uplink, registration);
        let (sequence, came_to) = (revocation.sequence, came_to(message));
        let until = now + REPETITIONS;
        self.orders.last_revocation = Some(AnsweredRevocation { sequence, came_to, by, status, until });
        self.acknowledge_revocation(by, revocation, status);
        if status < 128 {
            self.revoked(now, &named);
        }
        Ok(())
    }

    /// Handles a Home Agent Switch message (RFC 5142 6.1).
    pub(super) fn switch_ordered(
        &mut self,
        now: Time,
        wall: WallTime,
        message: &MobilityMessage<'_>,
        switch: &HomeAgentSwitch<'_>,
        octets: &[u8],
    ) -> Result<(), MobilityDrop> {
        self.way_of(message).ok_or(MobilityDrop::Unexpected)?;
        let authenticated = self.verify_notice(now, wall, message, switch.options, octets)?;
        let to = switch.addresses().take(MAX_ALTERNATIVES).collect();
        self.orders.switch = Some(SwitchOrder { to, authenticated });
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
        let builder = Builder::binding_revocation(kind, revocation.sequence, revocation.flags);
        // The MAC covers the address that the message is sent from, in the place of the care-of address,
        // as in messages of the home agent.
        let source = match registration.care_of_address {
            IpAddr::V6(address) => address,
            IpAddr::V4(_) => self.config.home_address,
        };
        let mut mobility_header = self.composer().finish_authenticated(builder, None, source);
        let output = self.composer().heartbeat_packet(uplink, registration, &mut mobility_header);
        self.outputs.push_back(output);
    }

    /// Ends the bindings with these identifiers, or all bindings if `bids` is empty. After a long pause the
    /// router asks the home agent again for the ended bindings, as after a refusal.
    fn revoked(&mut self, now: Time, bids: &[u16]) {
        let is_named = |bid: Option<Bid>| bid.is_some_and(|bid| bids.contains(&bid));
        let all = bids.is_empty()
            || self.list.bindings.iter().filter(|b| b.registration.is_some()).all(|b| is_named(b.bid));
        let what = if all { "the service" } else { "some bindings" };
        self.outputs.push_back(Output::Event(Event::Deregistered {
            reason: format!("the home agent {} has revoked {what}", self.config.home_agent),
        }));
        if all {
            self.list.plain.exchange = None;
            self.watch_exchange();
            self.clear_bindings(now);
            // The operator of the home agent has revoked the binding, so the router waits for the longest
            // pause.
            self.refusals.pause = Some(super::REFUSED_INTERVAL);
            self.refuse(now, Status::PROHIBITED);
        } else {
            for index in 0..self.list.bindings.len() {
                if is_named(self.list.bindings[index].bid) {
                    if let Some(registration) = self.list.bindings[index].registration.take() {
                        self.retire(now, registration.care_of_address);
                    }
                    self.list.hold_binding(now, index, super::REFUSED_INTERVAL);
                }
            }
            self.timers.set(super::Timer::Bindings, now);
        }
        self.forwarding_changed("the home agent revoked a binding");
    }

    /// Returns the registration over whose path a message of the home agent came (RFC 6275 6.4); `None` if it
    /// came over no registered path.
    fn way_of(&self, message: &MobilityMessage<'_>) -> Option<(usize, Registration)> {
        let home_address = self.config.home_address;
        if message.destination != home_address && message.routing_home_address != Some(home_address) {
            return None;
        }
        let came_to = came_to(message);
        let paths = (0..self.uplinks.len()).filter_map(|uplink| Some((uplink, self.heartbeat_path(uplink)?)));
        let mut by = paths
            .filter(|(uplink, registration)| self.composer().local_end(*uplink, registration) == came_to);
        by.next()
    }

    /// Verifies that the home agent sent an unsolicited message, and that it is no replay. Returns the kind
    /// of proof.
    fn verify_notice(
        &mut self,
        now: Time,
        wall: WallTime,
        message: &MobilityMessage<'_>,
        options: Options<'_>,
        octets: &[u8],
    ) -> Result<bool, MobilityDrop> {
        let home_address = self.config.home_address;
        let numbers = (&self.numbers, home_address);
        let proof = self.orders.verify((now, wall), message, options, octets, numbers)?;
        if proof == Proof::Key {
            self.outputs.push_back(Output::Persist(home_address));
        }
        Ok(proof != Proof::None)
    }

    /// Handles the answer to a Binding Update of entries with identifiers.
    fn bindings_acknowledged(
        &mut self,
        now: Time,
        wall: WallTime,
        update: &Update,
        acknowledgement: &BindingAcknowledgement<'_>,
    ) {
        let status = Status(acknowledgement.status);
        // RFC 6275 10.3.1: before a first registration the home agent runs duplicate address detection, so
        // the answer takes longer.
        let known = self.list.has_registration();
        self.path_answered(now, update.via.0, known.then(|| now.saturating_since(update.at)));
        if update.removal {
            // Status 133: the home agent had no such binding. After any other status the binding ends with
            // its lifetime (RFC 5648 5.7 on 167).
            for member in &update.members {
                self.list.bindings[member.binding].removal = None;
            }
            self.flows_acknowledged(update, acknowledgement);
            return self.reconcile(now, wall);
        }
        let statuses = identifier_statuses(acknowledgement);
        if statuses.is_empty() && !status.is_rejection() {
            return self.identifiers_unknown(now, wall, update, acknowledgement);
        }
        if !status.is_rejection() && self.taken_for_a_host(acknowledgement) {
            return self.not_a_mobile_router(now, wall, update.via);
        }
        self.list.superseded(update);
        let mut registered = false;
        for member in &update.members {
            let bid = self.list.bindings[member.binding].bid;
            let own = statuses.iter().find(|(other, _)| Some(*other) == bid).map(|(_, status)| *status);
            match own.filter(|own| *own != 0).map_or(status, Status) {
                refusal if refusal.is_rejection() => {
                    self.rejected(now, wall, update, Some(*member), refusal);
                    if self.refusals.status.is_some() || !self.is_multiple() {
                        return;
                    }
                }
                _ if own.is_some() => {
                    registered |= self.binding_registered(now, update, *member, acknowledgement);
                }
                _ => {}
            }
        }
        if registered && let Some(plain) = self.list.bootstrapped(now, update) {
            self.retire(now, plain.care_of_address);
            self.unregister();
        }
        self.flows_acknowledged(update, acknowledgement);
        self.reconcile(now, wall);
        let reason = self.reason_to_move(now);
        self.forwarding_changed(&reason);
    }

    /// Stores the statuses of the flows, and reports warnings to the operator.
    fn flows_acknowledged(&mut self, update: &Update, acknowledgement: &BindingAcknowledgement<'_>) {
        let warnings = self.flows.acknowledged(update, acknowledgement).into_iter();
        self.outputs.extend(warnings.map(|message| Output::Event(Event::Warning { message })));
    }

    /// Stores the answers about the IPv4 prefixes, and reports changes to the operator.
    fn ipv4_acknowledged(&mut self, acknowledgement: &BindingAcknowledgement<'_>) {
        let changes = self.ipv4_networks.acknowledged(acknowledgement);
        if changes.is_empty() {
            return;
        }
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        for (prefix, state) in changes {
            self.outputs.push_back(Output::Event(state.event(prefix, self.config.home_agent)));
        }
    }

    /// Records the timestamp of an acknowledgement. If the Binding Update had a timestamp, the
    /// acknowledgement repeats it. Otherwise the acknowledgement of a registration contains the home agent's
    /// time, and that of a de-registration contains no timestamp.
    fn timestamp_acknowledged(&mut self, update: &Update, told: Option<u64>) {
        if update.timestamp.is_some() {
            self.numbers.timestamp_acknowledged(told);
        } else if !update.removal {
            let told = told.filter(|_| self.numbers.authentication.authenticates());
            self.orders.notices.clock_told(update.at, told);
        }
    }

    /// Handles the acknowledged registration of one binding. Returns false if its lifetime is 0.
    fn binding_registered(
        &mut self,
        now: Time,
        update: &Update,
        member: UpdatedBinding,
        acknowledgement: &BindingAcknowledgement<'_>,
    ) -> bool {
        let via = (self.list.bindings[member.binding].uplink, member.care_of_address);
        let registration = self.granted(now, update, via, acknowledgement);
        if registration.lifetime.is_zero() {
            self.list.hold_binding(now, member.binding, MAX_BINDACK_TIMEOUT);
            return false;
        }
        self.registered(now, update, Some(member), registration);
        true
    }

    /// Handles an answer without Binding Identifier options: the home agent does not support them (RFC 5648
    /// 5.7). It has registered the source of the Binding Update as the only care-of address (RFC 6275).
    fn identifiers_unknown(
        &mut self,
        now: Time,
        wall: WallTime,
        update: &Update,
        acknowledgement: &BindingAcknowledgement<'_>,
    ) {
        self.list.abilities.identifiers = false;
        let message = format!(
            "the home agent {} knows no binding identifiers (RFC 5648): one uplink at a time is registered",
            self.config.home_agent
        );
        self.outputs.push_back(Output::Event(Event::Warning { message }));
        self.clear_bindings(now);
        let registration = self.granted(now, update, update.via, acknowledgement);
        if !self.taken_for_a_host(acknowledgement) && !registration.lifetime.is_zero() {
            self.list.plain.registration = Some(registration);
            // A home agent without RFC 5648 ignores an IPv4 care-of address in the option, so register it
            // again without identifier.
            self.list.plain.is_due_again = update.via.1.is_ipv4();
            self.timers.set(Timer::Expire, registration.expires);
        }
        self.evaluate(now, wall, "the home agent knows no binding identifiers");
    }

    /// Returns the registration of a care-of address that an acknowledgement grants. The lifetime is at most
    /// the requested one, and begins when the router sent the Binding Update.
    fn granted(
        &self,
        now: Time,
        update: &Update,
        (uplink, care_of_address): (usize, IpAddr),
        acknowledgement: &BindingAcknowledgement<'_>,
    ) -> Registration {
        let lifetime = lifetime_from_units(acknowledgement.lifetime).min(self.config.lifetime);
        Registration {
            uplink,
            care_of_address,
            since: now,
            udp: self.composer().takes_udp(uplink, care_of_address, acknowledgement),
            lifetime,
            expires: update.at + lifetime,
            sequence: update.sequence,
        }
    }

    /// Enters a registration into the Binding Update List: for the entry without identifier, or for the entry
    /// of `member`. Reports it to the operator. Returns the request that the home agent has accepted.
    fn registered(
        &mut self,
        now: Time,
        update: &Update,
        member: Option<UpdatedBinding>,
        registration: Registration,
    ) -> Option<Exchange> {
        let uplink = registration.uplink;
        let bid = member.and_then(|member| self.list.bindings[member.binding].bid);
        let (registration, before) = self.list.register(bid, registration);
        let same = before.is_some_and(|it| it.care_of_address == registration.care_of_address);
        if let Some(before) = before.filter(|_| !same) {
            self.retire(now, before.care_of_address);
        }
        if !same {
            self.hints = BindingLossHints::default();
        }
        self.refusals.setback = None;
        self.refusals.acknowledged();
        self.hints.acknowledged();
        let request = match member {
            Some(member) => {
                let entry = &mut self.list.bindings[member.binding];
                (entry.priority, entry.removal) = (member.priority, None);
                entry.take_request()
            }
            None => {
                self.list.plain.is_due_again = false;
                let request = self.list.plain.exchange.take();
                self.watch_exchange();
                // A plain binding replaces all bindings with identifiers (RFC 5648 6.2).
                self.clear_bindings(now);
                self.rehabilitate(uplink);
                request
            }
        };
        if let Some(request) = &request
            && let Some(uplink) = self.uplinks.get_mut(uplink)
        {
            // The router keeps the first care-of address that got an answer (RFC 8305 5). On this network it
            // no longer prefers the addresses that it tried earlier.
            let before = request.sent.iter().filter(|sent| !is_newer(sent.sequence, update.sequence));
            let winner = registration.care_of_address;
            // If the address has another router since the request was sent, the answer does not prove the new
            // router.
            let is_proven = !request.used_other_router(winner, uplink.next_hop(winner));
            uplink.race_decided(now, (winner, is_proven), before.map(|sent| sent.care_of_address));
            self.watch_candidates(now, registration.uplink);
        }
        let started = request.as_ref().and_then(|request| request.retransmission.started());
        let latency = now.saturating_since(started.unwrap_or(update.at));
        self.path_registered(now, uplink, registration, same);
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        self.outputs.push_back(Output::Event(Event::Registered {
            home_agent: self.config.home_agent,
            care_of_address: self.composer().local_end(uplink, &registration),
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
