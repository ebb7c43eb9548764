//! Acknowledgements of bindings with identifiers (RFC 5648 5.7, RFC 6089 5.2.6, RFC 5555 4.4.2).
//!
//! A binding's status is that of its Binding Identifier option, or of the message where the option says 0. An
//! acknowledgement without any such option comes from a home agent that does not know them and has registered
//! a plain binding instead; from then on the router registers plainly.

use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_wire::mobility::status::Status;
use carnet_wire::mobility::{BindingAcknowledgement, MobilityOption};

use super::{Contradicted, MobileRouter, Registration, Timer};
use crate::binding_update_list::{Attempt, Member, Update};
use crate::binding_update_list::{MAX_BINDACK_TIMEOUT, Remedy, remedy};
use crate::sequence::is_later;
use crate::{Event, MobilityDrop, Output, is_newer, lifetime_from_units};

/// Answers that ask for another try at once are followed this often.
const MAX_CORRECTIONS: u32 = 3;

impl MobileRouter {
    /// Whether an acknowledgement is for bindings with identifiers.
    pub(super) fn answers_bindings(&self, acknowledgement: &BindingAcknowledgement<'_>) -> bool {
        self.answered_sequence(acknowledgement)
            .is_some_and(|sequence| self.list.updates.iter().any(|update| update.sequence == sequence))
    }

    /// The number of the Binding Update that an acknowledgement answers. Status 135 bears the number that the
    /// home agent has accepted last instead (RFC 6275 9.5.1): it can answer nothing but the outstanding one.
    pub(super) fn answered_sequence(&self, acknowledgement: &BindingAcknowledgement<'_>) -> Option<u16> {
        match Status(acknowledgement.status) {
            Status::SEQUENCE_OUT_OF_WINDOW => self.list.outstanding.map(|outstanding| outstanding.sequence),
            _ => Some(acknowledgement.sequence),
        }
    }

    /// Handles an acknowledgement of bindings with identifiers, which is known to be for us.
    pub(super) fn bindings_acknowledged(
        &mut self,
        now: Time,
        wall: WallTime,
        acknowledgement: &BindingAcknowledgement<'_>,
        octets: &[u8],
    ) -> Result<(), MobilityDrop> {
        let sequence = self.answered_sequence(acknowledgement).ok_or(MobilityDrop::Unexpected)?;
        let position = self.list.updates.iter().position(|update| update.sequence == sequence);
        let position = position.ok_or(MobilityDrop::Unexpected)?;
        let update = self.list.updates[position].clone();
        self.verify_acknowledgement(now, octets, update.authenticated)?;
        let status = Status(acknowledgement.status);
        if status == Status::SEQUENCE_OUT_OF_WINDOW {
            // A number that the last transmission has passed already: a duplicate, or a late answer.
            if is_newer(self.numbers.sequence, acknowledgement.sequence) {
                return Err(MobilityDrop::Unexpected);
            }
            self.numbers.sequence = acknowledgement.sequence;
            self.list.outstanding = None;
            return self.correct_bindings(now, wall, &update);
        }
        self.list.updates.remove(position);
        let timestamp = acknowledgement.options.iter().find_map(|option| match option {
            Ok(MobilityOption::MessageIdentifier(timestamp)) => Some(timestamp),
            _ => None,
        });
        if status == Status::ID_MISMATCH {
            self.learn_clock(wall, update.timestamp, timestamp);
            return self.correct_bindings(now, wall, &update);
        }
        if status == Status::MESSAGE_ID_REQUIRED && self.take_up_timestamps() {
            return self.correct_bindings(now, wall, &update);
        }
        if update.timestamp.is_some() && update.timestamp != timestamp {
            return Err(MobilityDrop::Timestamp);
        }
        if !status.is_rejection() {
            self.timestamp_acknowledged(update.at, update.timestamp, timestamp, !update.removal);
        }
        // RFC 6275 10.3.1: before the first registration the home agent does duplicate address detection.
        let known =
            self.list.registration.is_some() || self.list.bindings.iter().any(|b| b.registration.is_some());
        self.path_answered(now, update.via.0, known.then(|| now.saturating_since(update.at)));
        if update.removal {
            // 133: there was nothing to forget. Whatever else it says, the lifetime ends it (RFC 5648 5.7 on
            // 167).
            for member in &update.members {
                self.list.bindings[member.binding].removal = None;
            }
            self.flows_acknowledged(&update, acknowledgement);
            self.reconcile(now, wall);
            return Ok(());
        }
        let statuses = identifier_statuses(acknowledgement);
        if statuses.is_empty() && !status.is_rejection() {
            self.identifiers_unknown(now, wall, &update, acknowledgement);
            return Ok(());
        }
        if !status.is_rejection() && self.taken_for_a_host(acknowledgement) {
            self.not_a_mobile_router(now, wall, update.via.0, update.via.1);
            return Ok(());
        }
        self.superseded(&update);
        let mut registered = false;
        for member in &update.members {
            let bid = self.list.bindings[member.binding].bid;
            let own = statuses.iter().find(|(other, _)| *other == bid).map_or(0, |(_, status)| *status);
            let own = if own == 0 { status } else { Status(own) };
            if own.is_rejection() {
                self.binding_refused(now, wall, &update, *member, own);
                if self.refusals.status.is_some() || !self.is_multiple() {
                    return Ok(());
                }
            } else if statuses.iter().any(|(other, _)| *other == bid) {
                registered |= self.binding_registered(now, &update, *member, acknowledgement);
            }
        }
        if registered {
            self.after_registration(now, &update);
        }
        self.flows_acknowledged(&update, acknowledgement);
        self.reconcile(now, wall);
        let reason = self.reason_to_move(now);
        self.forwarding_changed(&reason);
        Ok(())
    }

    /// An acknowledgement bears the timestamp of its Binding Update again. That of a registration without
    /// one bears the home agent's time; that of a de-registration bears none, which says nothing.
    pub(super) fn timestamp_acknowledged(
        &mut self,
        sent_at: Time,
        sent: Option<u64>,
        told: Option<u64>,
        registers: bool,
    ) {
        if sent.is_none() {
            if !registers {
                return;
            }
            return self
                .orders
                .notices
                .clock_told(sent_at, told.filter(|_| self.numbers.authentication.authenticates()));
        }
        let newest = self.numbers.acknowledged_timestamp;
        self.numbers.acknowledged_timestamp =
            told.filter(|new| newest.is_none_or(|old| is_later(*new, old))).or(newest);
    }

    /// Of two that raced the first acknowledged wins (RFC 8305 5): what was sent later about the same
    /// binding, and about another care-of address, is undone by another Binding Update.
    fn superseded(&mut self, update: &Update) {
        for member in &update.members {
            let mut overtaken = false;
            for other in &mut self.list.updates {
                let later = is_newer(other.sequence, update.sequence);
                overtaken |= later
                    && other
                        .members
                        .iter()
                        .any(|m| m.binding == member.binding && m.care_of_address != member.care_of_address);
                overtaken |=
                    later && other.overwrite && other.members.iter().all(|m| m.binding != member.binding);
                other.members.retain(|m| m.binding != member.binding);
            }
            // Ended since, whether that has been answered or not.
            let removed = self.list.bindings[member.binding].removed.take();
            overtaken |= removed.is_some_and(|it| is_newer(it, update.sequence));
            self.list.bindings[member.binding].again = overtaken;
        }
    }

    /// Takes over what the home agent has acknowledged for one binding; false when it granted no time.
    fn binding_registered(
        &mut self,
        now: Time,
        update: &Update,
        member: Member,
        acknowledgement: &BindingAcknowledgement<'_>,
    ) -> bool {
        // Not more than was asked for, and counted from when it was asked for.
        let lifetime = lifetime_from_units(acknowledgement.lifetime).min(self.config.lifetime);
        let uplink = self.list.bindings[member.binding].uplink;
        if lifetime.is_zero() {
            self.hold_binding(now, member.binding, MAX_BINDACK_TIMEOUT);
            return false;
        }
        let registration = Registration {
            uplink,
            care_of_address: member.care_of_address,
            since: now,
            udp: self.takes_udp(uplink, member.care_of_address, acknowledgement),
            lifetime,
            expires: update.at + lifetime,
            sequence: update.sequence,
        };
        let binding = &mut self.list.bindings[member.binding];
        let registration = registration.after(binding.registration.as_ref());
        let before = binding.registration.replace(registration);
        binding.priority = member.priority;
        self.refusals.setback = None;
        self.registration_acknowledged();
        let binding = &mut self.list.bindings[member.binding];
        let attempt = binding.attempt.take();
        binding.removal = None;
        let started = attempt.as_ref().and_then(|attempt| attempt.started).unwrap_or(update.at);
        if let Some(attempt) = attempt {
            // The addresses that were tried before this one and brought no answer.
            let before = attempt.sent.iter().filter(|(sequence, _)| !is_newer(*sequence, update.sequence));
            let losers = before.map(|(_, address)| *address);
            self.uplinks[uplink].race_decided(now, member.care_of_address, losers);
            self.watch_candidates(now, uplink);
        }
        if let Some(before) = before.filter(|b| b.care_of_address != registration.care_of_address) {
            self.retire(now, before.care_of_address);
        }
        let same = before.is_some_and(|b| b.care_of_address == registration.care_of_address);
        if !same {
            self.hints = super::Hints::default();
        }
        self.path_registered(now, uplink, registration, same);
        let latency = now.saturating_since(started);
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        self.outputs.push_back(Output::Event(Event::Registered {
            home_agent: self.config.home_agent,
            care_of_address: self.local_end(uplink, &registration),
            bid: Some(self.list.bindings[member.binding].bid),
            uplink: self.uplinks[uplink].config.interface.clone(),
            latency_us: u64::try_from(latency.as_micros()).unwrap_or(u64::MAX),
            lifetime_s: u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX),
            refresh: same,
        }));
        true
    }

    /// Something is registered: the home agent has our bindings and no others, and answers.
    fn after_registration(&mut self, now: Time, update: &Update) {
        if !self.list.abilities.bootstrapped {
            for binding in &mut self.list.bindings {
                // What had to wait for this.
                if let Some(attempt) = binding.attempt.as_mut().filter(|attempt| attempt.sent.is_empty()) {
                    attempt.next = now;
                }
            }
        }
        self.list.abilities.bootstrapped = true;
        self.list.back_off = None;
        if update.overwrite {
            // The plain binding that there may have been is replaced.
            if let Some(registration) = self.list.registration.take() {
                self.retire(now, registration.care_of_address);
                self.unregister_plain();
            }
            let gone: Vec<usize> = (0..self.list.bindings.len())
                .filter(|&index| {
                    let older = self.list.bindings[index]
                        .registration
                        .is_some_and(|r| is_newer(update.sequence, r.sequence));
                    older && update.members.iter().all(|member| member.binding != index)
                })
                .collect();
            for index in gone {
                self.list.bindings[index].again = true;
            }
        }
    }

    /// The home agent objected to something that has been corrected: again at once, but not for ever.
    fn correct_bindings(&mut self, now: Time, wall: WallTime, update: &Update) -> Result<(), MobilityDrop> {
        let mut patient = false;
        for member in &update.members {
            let binding = &mut self.list.bindings[member.binding];
            let attempt = if update.removal { &mut binding.removal } else { &mut binding.attempt };
            if let Some(attempt) = attempt {
                attempt.corrections += 1;
                if attempt.corrections <= MAX_CORRECTIONS {
                    attempt.next = now;
                    attempt.rounds = 0;
                    attempt.turn = 0;
                    patient = true;
                }
            }
        }
        self.reconcile(now, wall);
        if patient { Ok(()) } else { Err(MobilityDrop::RateLimited) }
    }

    /// The remedy for each status that a binding may be refused with.
    fn binding_refused(
        &mut self,
        now: Time,
        wall: WallTime,
        update: &Update,
        member: Member,
        status: Status,
    ) {
        let uplink = self.list.bindings[member.binding].uplink;
        let name = self.uplinks[uplink].config.interface.clone();
        let held = self.list.bindings[member.binding].registration.is_some();
        let after = match status {
            // RFC 5648 5.7: "MUST set 'O' flag".
            Status::MCOA_NON_MCOA_BINDING_EXISTS => {
                self.list.abilities.bootstrapped = false;
                self.retry_binding(now, member.binding);
                Some("replacing the plain binding".to_string())
            }
            // "needs to stop using bulk registrations".
            Status::MCOA_BULK_PROHIBITED if update.count > 1 => {
                self.list.abilities.bulk = false;
                self.retry_binding(now, member.binding);
                Some("registering one at a time".to_string())
            }
            // "SHOULD send a Binding Identifier mobility option including the Care-of Address field": it is
            // always there, so the home agent has forgotten between the two.
            Status::MCOA_UNKNOWN_CARE_OF_ADDRESS => {
                self.correct_binding(now, member.binding).then(|| "trying again".to_string())
            }
            // "MUST stop registering multiple bindings".
            Status::MCOA_PROHIBITED => {
                self.list.abilities.identifiers = false;
                Some("registering without binding identifiers".to_string())
            }
            Status::AUTHENTICATION_FAILED if held => {
                Some("registered all the same, trying again".to_string())
            }
            _ => None,
        };
        let remedy = remedy(status);
        let what = match (&after, remedy) {
            (Some(what), _) => what.clone(),
            (None, Remedy::Retry(after)) => format!("trying again in {} s", after.as_secs()),
            (None, Remedy::StartOver) => "de-registering first".into(),
            (None, Remedy::GoOn) => "trying again".into(),
            (None, Remedy::BackOff | Remedy::Stop) => {
                self.clear_bindings(now);
                self.refuse(now, status);
                self.service_stops(now)
            }
        };
        self.outputs.push_back(Output::Event(Event::Rejected {
            status: status.0,
            reason: format!("{name}: {}; {what}", status.meaning()),
        }));
        if status == Status::MCOA_PROHIBITED {
            self.clear_bindings(now);
            self.evaluate(now, wall, "the home agent permits one care-of address only");
        }
        if after.is_some() {
            return;
        }
        match remedy {
            Remedy::Retry(after) => {
                // As it is with RFC 6275 11.7.3: what was registered before stays as it is.
                self.refusals.setback = Some(status);
                self.hold_binding(now, member.binding, after);
            }
            Remedy::GoOn => {}
            Remedy::StartOver => {
                let (uplink, address) = update.via;
                self.clear_bindings(now);
                self.deregister_from(now, wall, uplink, address);
                self.forwarding_changed("the home agent refused");
            }
            Remedy::BackOff | Remedy::Stop => {
                let Update { sequence, authenticated, .. } = *update;
                self.refusals.contradicted = Some(Contradicted { sequence, authenticated });
                self.forwarding_changed("the home agent refused");
            }
        }
    }

    fn retry_binding(&mut self, now: Time, index: usize) {
        self.list.bindings[index].attempt = Some(Attempt::new(now, false));
        self.list.bindings[index].again = true;
    }

    fn correct_binding(&mut self, now: Time, index: usize) -> bool {
        let Some(attempt) = &mut self.list.bindings[index].attempt else { return false };
        attempt.corrections += 1;
        attempt.next = now;
        attempt.corrections <= MAX_CORRECTIONS
    }

    /// A binding is not asked for again before `after` has passed.
    pub(super) fn hold_binding(&mut self, now: Time, index: usize, after: Duration) {
        self.list.bindings[index].attempt = None;
        self.list.bindings[index].held_until = Some(now + after);
        // Whatever is wanted of it now is wanted then.
        self.list.bindings[index].again = true;
    }

    /// RFC 5648 5.7: no Binding Identifier option in the answer. The home agent has registered the care-of
    /// address that the Binding Update came from, as RFC 6275 has it.
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
        let (uplink, care_of_address) = update.via;
        let lifetime = lifetime_from_units(acknowledgement.lifetime).min(self.config.lifetime);
        if !self.taken_for_a_host(acknowledgement) && !lifetime.is_zero() {
            let registration = Registration {
                uplink,
                care_of_address,
                since: now,
                udp: self.takes_udp(uplink, care_of_address, acknowledgement),
                lifetime,
                expires: update.at + lifetime,
                sequence: update.sequence,
            };
            self.list.registration = Some(registration);
            // An IPv4 care-of address was not named in a way that such an agent understands.
            self.list.doubtful = care_of_address.is_ipv4();
            self.timers.set(Timer::Expire, registration.expires);
        }
        self.evaluate(now, wall, "the home agent knows no binding identifiers");
    }
}

/// The Binding Identifier options of an acknowledgement: identifier and status of each.
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
