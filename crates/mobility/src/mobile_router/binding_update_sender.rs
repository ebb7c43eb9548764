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
use super::composer::Composer;
use super::movement::care_of_addresses;
use super::unanswered_uplinks::{is_doubtful, is_given_up};
use super::{Attachment, MobileRouter, Timer, Uplink};
use crate::binding_update_list::{
    BindingUpdateListEntry, DueUpdate, Exchange, Outstanding, Purpose, STAGGER, Transmission, Update, mapped,
};
use crate::{Event, MobilityDrop, Output};

/// Number of rounds of Binding Updates without an answer after which an uplink has failed, if the router
/// sends no heartbeats.
const SILENT_ROUNDS: u32 = 3;

/// Number of Binding Updates without an answer after which the router warns the operator.
const SILENT_AFTER: usize = 4;

impl MobileRouter {
    /// Registers all uplinks that have identifiers. Gives up an outstanding Binding Update without
    /// identifier, unless it is a de-registration.
    pub(super) fn register_bindings(&mut self, now: Time, wall: WallTime) {
        if self.refusals.status.is_some() {
            if self.list.plain.exchange.is_none() && self.timers.get(Timer::AskAgain).is_none() {
                self.end_refusal();
            } else {
                return;
            }
        }
        if self.list.plain_request(Purpose::Register).is_some() {
            self.list.abandon();
            self.watch_exchange();
            self.list.abilities.bootstrapped = false;
        }
        self.settle(now);
        self.reconcile(now, wall);
    }

    /// Registers the best care-of address of an uplink, unless it is already registered or its Binding Update
    /// is outstanding.
    pub(super) fn register(&mut self, now: Time, wall: WallTime, uplink: usize) {
        let care_of_addresses = self.uplinks[uplink].care_of_addresses();
        let Some(care_of_address) = care_of_addresses.first().copied() else { return };
        if self.refusals.status.is_some() {
            self.register_refused(now, wall, uplink, care_of_addresses);
            return;
        }
        if let Some(exchange) = &mut self.list.plain.exchange
            && exchange.purpose == Purpose::Register
            && self.list.plain.uplink == uplink
            && exchange.care_of_addresses.contains(&care_of_address)
        {
            exchange.care_of_addresses.retain(|address| care_of_addresses.contains(address));
            // Begin anew if the address has another router than at the last transmission. The kernel keeps
            // addresses and routes of a former link, so earlier updates may have gone to a router that is out
            // of reach.
            let router = self.uplinks[uplink].next_hop(care_of_address);
            if exchange.used_other_router(care_of_address, router) && !exchange.is_held() {
                exchange.care_of_addresses = care_of_addresses;
                exchange.retransmission.begin_anew();
                self.transmit(now, wall);
            }
            return;
        }
        let registered = self
            .list
            .plain
            .registration
            .is_some_and(|r| (r.uplink, r.care_of_address) == (uplink, care_of_address));
        self.list.abandon();
        if registered && !self.list.plain.is_due_again {
            self.watch_exchange();
            if self.timers.get(Timer::Refresh).is_none() {
                // Start the refresh timer again: it was stopped while no uplink was usable.
                let is_full = self.uplinks.is_full(uplink);
                let due = self.list.plain.refresh_at(is_full).unwrap_or(now);
                self.timers.set(Timer::Refresh, due.max(now));
            }
            return;
        }
        self.timers.stop(Timer::Refresh);
        let first = self.list.plain.registration.is_none();
        let mut exchange = Exchange::to_home_agent(Purpose::Register, care_of_addresses, now, first);
        exchange.retransmission.extend(self.list.back_off.unwrap_or_default());
        self.list.begin(uplink, exchange);
        self.transmit(now, wall);
    }

    /// Registers the best care-of address of an uplink after a refusal, when no registration is left. An
    /// outstanding de-registration continues from the router's present address. Otherwise the router sends a
    /// single Binding Update when the pause is over.
    fn register_refused(&mut self, now: Time, wall: WallTime, uplink: usize, addresses: Vec<IpAddr>) {
        if let Some(exchange) = self.list.plain_request(Purpose::Deregister) {
            if exchange.care_of_addresses.first() != addresses.first() {
                self.deregister_from(now, wall, uplink, addresses);
            }
        } else if self.timers.get(Timer::AskAgain).is_none() {
            self.list.begin(uplink, Exchange::single(addresses, now));
            let pause = self
                .refusals
                .status
                .map_or(super::REFUSED_INTERVAL, |status| self.refusals.next_pause(status));
            self.timers.set(Timer::AskAgain, now + pause);
            self.transmit(now, wall);
        }
    }

    pub(super) fn refresh(&mut self, now: Time, wall: WallTime) {
        if self.list.plain.exchange.is_some()
            || self.refusals.status.is_some()
            || self.stopping
            || self.is_multiple()
        {
            return;
        }
        let Some(target) = self.uplinks.target else { return };
        if let Some(care_of_address) = self.uplinks[target].care_of_addresses().first().copied() {
            let addresses = vec![care_of_address];
            let exchange = Exchange::to_home_agent(Purpose::Register, addresses, now, false);
            self.list.begin(target, exchange);
            self.transmit(now, wall);
        }
    }

    /// De-registers from the home address when the router is on its home link (RFC 6275 11.5.5, RFC 3963
    /// 5.8). Until the answer the old path carries the traffic if it works. The router does not renew the
    /// registration: if the renewal is due and the home agent has not answered, the router breaks off the
    /// return.
    pub(super) fn go_home(&mut self, now: Time, wall: WallTime, uplink: usize) {
        let was_home = std::mem::replace(&mut self.home.at_home, true);
        let home_address = self.config.home_address;
        let home_addresses = vec![IpAddr::V6(home_address)];
        let under_way = self
            .list
            .plain_request(Purpose::Deregister)
            .is_some_and(|e| e.care_of_addresses == home_addresses && self.list.plain.uplink == uplink);
        if was_home && (self.home.returned || under_way) {
            return;
        }
        match self.first_renewal() {
            Some(at) => self.timers.set(Timer::Refresh, at.max(now)),
            None => self.timers.stop(Timer::Refresh),
        }
        self.list.updates.clear();
        for binding in &mut self.list.bindings {
            binding.take_request();
            binding.removal = None;
        }
        // The router de-registers even if it knows of no registration, because one from before a restart
        // may still exist.
        self.outputs.push_back(Output::Forwarding(home_address));
        self.deregister_from(now, wall, uplink, home_addresses);
    }

    /// Handles the acknowledgement of the de-registration on the home link: packets no longer use the tunnel.
    pub(super) fn came_home(&mut self, now: Time) {
        if let Some(care_of_address) = self.list.plain.care_of_address() {
            self.retire(now, care_of_address);
        }
        self.clear_bindings(now);
        self.unregister();
        self.list.plain.is_due_again = false;
        self.home.returned = true;
        if let Some(target) = self.uplinks.target {
            self.uplinks[target].return_answered();
        }
        if let Some(uplink) = self.home_link() {
            let announcement = self.config.home_announcement(uplink);
            let interface = uplink.config.interface.clone();
            self.outputs.push_back(Output::Link(announcement));
            self.outputs.push_back(Output::Event(Event::AtHome { interface }));
        }
        self.forwarding_changed("the home agent acknowledged the return");
    }

    /// Returns the time at which the first of the registrations must be renewed; `None` without a
    /// registration.
    fn first_renewal(&self) -> Option<Time> {
        let all = std::iter::once(&self.list.plain).chain(&self.list.bindings);
        all.filter_map(|entry| entry.refresh_at(false)).min()
    }

    /// Returns whether the home agent has not answered the return for too long. If another router of the home
    /// link remains, 3 s suffice. If only a Router Advertisement shows the home link and the uplink has other
    /// candidates, 7 s suffice. Otherwise the router waits until the first registration must be renewed.
    pub(super) fn is_return_unanswered(&self, now: Time) -> bool {
        let Some(exchange) = self.list.plain_request(Purpose::Deregister) else { return false };
        let Some(uplink) = self.uplinks.get(self.list.plain.uplink) else { return false };
        let is_renewal_due = || self.first_renewal().is_none_or(|at| at <= now);
        self.home.at_home
            && !self.stopping
            && !uplink.is_home_doubted()
            && ((is_given_up(exchange, now) && (is_renewal_due() || uplink.may_leave_home_early()))
                || (uplink.has_other_home_router && is_doubtful(exchange, now)))
    }

    /// Tries the return over another router of the home link, because the home agent does not answer it.
    /// After the last router, uses the foreign care-of addresses again.
    pub(super) fn break_off_return(&mut self, now: Time, wall: WallTime) {
        let index = self.list.plain.uplink;
        let before = self.uplinks[index].attachment;
        if self.uplinks[index].return_unanswered(now, &self.config) {
            self.watch_candidates(now, index);
            self.outputs.push_back(Output::Forwarding(self.config.home_address));
            let home_address = IpAddr::V6(self.config.home_address);
            return self.deregister_from(now, wall, index, vec![home_address]);
        }
        let name = &self.uplinks[index].config.interface;
        let reason = format!("no answer from the home agent to the return home over {name}");
        self.outputs.push_back(Output::Event(Event::Warning { message: reason.clone() }));
        self.watch_candidates(now, index);
        if self.uplinks[index].attachment == before {
            self.evaluate(now, wall, &reason);
        } else {
            self.attachment_changed(now, wall, index, before);
        }
    }

    /// Lets the home prefix of an uplink have effect again soon. The home agent did not answer a return, and
    /// now does not answer over the foreign candidates.
    pub(super) fn hasten_return(&mut self, now: Time, index: usize) {
        if self.uplinks.get(index).is_some_and(Uplink::is_home_doubted) {
            self.uplinks[index].hasten_return(now);
            self.watch_candidates(now, index);
        }
    }

    pub(super) fn leave_home(&mut self) {
        if self.home.at_home && self.list.plain_request(Purpose::Deregister).is_some() {
            // Register again after an interrupted de-registration, because the home agent may have received
            // it.
            self.list.abandon();
            self.watch_exchange();
            self.list.bindings.iter_mut().for_each(|binding| binding.is_due_again = true);
            self.list.abilities.bootstrapped = false;
        }
        self.home.at_home = false;
        self.home.returned = false;
    }

    /// Returns whether the router registers bindings with identifiers now.
    pub(super) fn is_multiple(&self) -> bool {
        !self.stopping
            && !self.home.at_home
            && self.refusals.status.is_none()
            && self.list.abilities.identifiers
            && self.list.plain.exchange.is_none()
            && self.uplinks.target.is_some_and(|target| self.has_identifier(target))
    }

    /// Returns whether an uplink has a Binding Identifier and the router uses it.
    pub(super) fn has_identifier(&self, uplink: usize) -> bool {
        self.list.abilities.identifiers && self.uplinks.get(uplink).is_some_and(|u| u.config.bid.is_some())
    }

    /// Sends the Binding Updates that make the home agent's bindings match the uplinks.
    pub(super) fn reconcile(&mut self, now: Time, wall: WallTime) {
        self.expire_bindings(now);
        if !self.is_multiple() {
            let next = self.list.bindings.iter().filter_map(|b| b.registration.map(|r| r.expires)).min();
            match next {
                Some(at) => self.timers.set(Timer::Bindings, at),
                None => self.timers.stop(Timer::Bindings),
            }
            return;
        }
        self.watch_exchange();
        self.timers.stop(Timer::Refresh);
        self.list.hasten_when_alone(&self.uplinks, now);
        self.list.give_up_silent(&self.uplinks, now);
        self.doubt_routers(now);
        let best = self.transmit_bindings().first().copied();
        let carrier = self.flows.carrier(&self.uplinks, &self.list, best);
        self.list.review(&self.uplinks, now, carrier, &|sequence| self.flows.tells(sequence));
        self.watch_grace();
        let mut next = None;
        while let Some(draft) = self.list.draft(&self.uplinks, now) {
            if let Some(at) = self.next_update_allowed(now) {
                next = Some(at);
                break;
            }
            self.send_draft(now, wall, draft);
        }
        let due = next.or_else(|| self.list.next_due(&self.uplinks, now));
        match due {
            Some(at) => self.timers.set(Timer::Bindings, at),
            None => self.timers.stop(Timer::Bindings),
        }
    }

    fn expire_bindings(&mut self, now: Time) {
        for index in 0..self.list.bindings.len() {
            let binding = &mut self.list.bindings[index];
            if binding.registration.is_some_and(|registration| registration.expires <= now) {
                binding.registration = None;
                let name = &self.uplinks[binding.uplink].config.interface;
                let reason =
                    format!("{name}: the lifetime ended without an acknowledgement from the home agent");
                self.outputs.push_back(Output::Event(Event::Deregistered { reason }));
                self.forwarding_changed("a registration ended");
            }
        }
    }

    /// Warns the operator if the first registration of an uplink has no answer. Without heartbeats, also
    /// declares an uplink failed after a few rounds of Binding Updates without an answer.
    fn note_silence(&mut self, now: Time, update: &Update) {
        let plain = self.list.plain_request(Purpose::Register).filter(|_| update.is_plain);
        if plain.is_some_and(|request| request.sent.len() == SILENT_AFTER) {
            self.warn_of_silence(update.via.0);
        }
        for member in &update.members {
            let binding = &self.list.bindings[member.binding];
            let first = !update.removal && binding.registration.is_none();
            let asked = |request: &Exchange| {
                let made = &request.retransmission;
                (made.rounds() as usize, made.address_index()) == (SILENT_AFTER, 0)
            };
            if first && binding.request().is_some_and(asked) {
                self.warn_of_silence(binding.uplink);
            }
            let binding = &self.list.bindings[member.binding];
            let silent = !update.removal
                && binding.registration.is_some()
                && binding.request().is_some_and(|it| it.retransmission.rounds() > SILENT_ROUNDS);
            let uplink = binding.uplink;
            if silent && self.list.others_live(&self.uplinks, uplink) && !self.uplinks.is_heard(now, uplink) {
                self.path_failed(now, uplink);
            }
        }
    }

    /// Handles that an uplink with a binding has got another care-of address, or has lost its address.
    pub(super) fn binding_moved(&mut self, now: Time, uplink: usize, before: Attachment) {
        let Some(index) = self.list.binding_of(uplink) else { return };
        let lost = |router: &MobileRouter, address: IpAddr| {
            care_of_addresses(before).contains(&Some(address))
                && !router.uplinks[uplink].has_care_of_address(address)
        };
        let registered = self.list.bindings[index].care_of_address();
        if let Some(address) = registered.filter(|address| lost(self, *address)) {
            self.retire(now, address);
            // The new address may not reach the home agent. Then a removal over another uplink ends the
            // old binding.
            self.list.bindings[index].begin_removal(now + STAGGER);
        }
        if registered.is_some() && self.list.bindings[index].asked_for().is_some_and(|a| lost(self, a)) {
            self.list.bindings[index].is_due_again = true;
        }
        self.list.bindings[index].resume(now);
    }

    /// Handles an unauthenticated hint that the home agent has lost this router's binding.
    pub(super) fn hint(&mut self, now: Time, wall: WallTime) -> Result<(), MobilityDrop> {
        self.follow_hint(now, wall, false)
    }

    pub(super) fn follow_hint(
        &mut self,
        now: Time,
        wall: WallTime,
        is_proven: bool,
    ) -> Result<(), MobilityDrop> {
        if self.home.at_home || self.stopping || self.refusals.status.is_some() {
            return Err(MobilityDrop::Unexpected);
        }
        if !self.hints.allow(now, is_proven) {
            return Err(MobilityDrop::RateLimited);
        }
        if self.is_multiple() {
            self.list.register_all_again(now);
            self.reconcile(now, wall);
            self.hints.followed(now, is_proven);
            return Ok(());
        }
        let request = self.list.plain.exchange.as_ref();
        match request.map(|request| request.retransmission.last()) {
            None => self.refresh(now, wall),
            // The home agent has refused for the moment, so the router waits.
            Some(_) if request.is_some_and(Exchange::is_held) => return Ok(()),
            Some(last) if last.is_none_or(|at| now.saturating_since(at) >= HINT_INTERVAL) => {
                self.transmit(now, wall);
            }
            Some(_) => return Ok(()),
        }
        self.hints.followed(now, is_proven);
        Ok(())
    }

    /// Removes all bindings with identifiers, without a message to the home agent.
    pub(super) fn clear_bindings(&mut self, now: Time) {
        self.list.clear(now);
        self.watch_grace();
        self.flows.forget();
        self.timers.stop(Timer::Bindings);
    }

    fn send_draft(&mut self, now: Time, wall: WallTime, draft: DueUpdate) {
        let about = (draft.members.as_slice(), draft.removal);
        // Space that the prefixes need in the update, counted in IPv6 prefixes: an IPv4 prefix needs a third
        // of the octets of an IPv6 prefix.
        let prefixes = self.config.prefixes.len() + self.config.ipv4_prefixes.len().div_ceil(3);
        let (flows, summary) = self.flows.described(&self.uplinks, &self.list, about, prefixes);
        let own_address = draft.members.iter().find(|_| !draft.removal).map(|m| mapped(m.care_of_address));
        let source = match draft.via.1 {
            IpAddr::V6(address) => address,
            IpAddr::V4(_) => self.config.home_address,
        };
        let authenticated = own_address.unwrap_or(source);
        let update = Update {
            sequence: 0,
            at: now,
            timestamp: None,
            is_plain: false,
            overwrite: draft.overwrite,
            removal: draft.removal,
            via: draft.via,
            count: draft.members.len(),
            members: draft.members,
            authenticated,
            flows,
            summary,
        };
        self.send(now, wall, update);
    }

    /// Sends a Binding Update with the next sequence number, which all entries share (RFC 5648 4.1). First
    /// outputs the forwarding that the update itself needs for its source address.
    fn send(&mut self, now: Time, wall: WallTime, mut update: Update) {
        let (sequence, timestamp) = self.numbers.next(now, wall);
        (update.sequence, update.timestamp) = (sequence, timestamp);
        let Update { via, authenticated, .. } = update;
        self.list.outstanding = Some(Outstanding { sequence, at: now, via, authenticated });
        let output = self.composer().update(&self.list, &self.flows, &update);
        self.list.transmitted(&self.uplinks, now, &update);
        self.note_silence(now, &update);
        self.flows.sent(sequence, &update.flows);
        self.update_sent(now, via.0);
        if !update.is_plain {
            self.list.push_update(update);
        }
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        self.outputs.push_back(Output::Persist(self.config.home_address));
        self.outputs.push_back(output);
    }

    /// Returns the builder of this router's messages.
    pub(super) fn composer(&self) -> Composer<'_> {
        Composer { config: &self.config, uplinks: &self.uplinks, numbers: &self.numbers }
    }

    /// Sends the outstanding Binding Update with a new sequence number, and sets the timer for the next
    /// transmission. Sends at most `MAX_UPDATE_RATE` per second (RFC 6275 11.8). If this uplink has had no
    /// answers, it uses another one.
    pub(super) fn transmit(&mut self, now: Time, wall: WallTime) {
        if self.is_uplink_silent(now) {
            return self.demote(now, wall);
        }
        if self.is_return_unanswered(now) {
            self.break_off_return(now, wall);
            // If the router is still at home, no other uplink exists, so the de-registration continues.
            if !self.home.at_home {
                return;
            }
        }
        if self.list.plain.exchange.is_none() {
            return;
        }
        self.doubt_routers(now);
        let next = self.next_update_allowed(now);
        self.list.is_waiting = next.is_some() && self.overtaking_until(now).is_some();
        let BindingUpdateListEntry { uplink, exchange: Some(exchange), .. } = &mut self.list.plain else {
            return;
        };
        if let Some(next) = next {
            exchange.schedule(next);
            return self.watch_exchange();
        }
        if exchange.purpose == Purpose::Register && exchange.retransmission.rounds() > 0 {
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
        let sent = Transmission { sequence: 0, at: now, timestamp: None, care_of_address };
        let update = Update::plain(*uplink, exchange.purpose, sent);
        self.send(now, wall, update);
        self.watch_exchange();
    }

    /// Handles rounds of Binding Updates that had no answer: takes another router for each care-of address
    /// that has one.
    fn doubt_routers(&mut self, now: Time) {
        let plain =
            self.list.plain_request(Purpose::Register).map(|request| (self.list.plain.uplink, request));
        let of_bindings = self.list.bindings.iter().filter_map(|it| Some((it.uplink, it.request()?)));
        let is_round_over = |(_, request): &(usize, &Exchange)| {
            let made = &request.retransmission;
            made.rounds() > 0 && made.address_index() == 0 && request.is_due(now)
        };
        let unanswered: Vec<(usize, Vec<IpAddr>, bool)> = plain
            .into_iter()
            .chain(of_bindings)
            .filter(is_round_over)
            .map(|(uplink, request)| (uplink, request.care_of_addresses.clone(), is_doubtful(request, now)))
            .collect();
        for (index, addresses, is_doubtful) in unanswered {
            for address in addresses {
                if self.uplinks.get(index).is_some_and(|uplink| uplink.has_spare_router(address)) {
                    self.candidate_failed(now, index, address);
                }
            }
            if is_doubtful {
                self.hasten_return(now, index);
            }
        }
    }

    /// Sets the timer for the request of the entry without identifier.
    pub(super) fn watch_exchange(&mut self) {
        match self.list.plain.exchange.as_ref().and_then(Exchange::next_transmission) {
            Some(at) => self.timers.set(Timer::Retransmit, at),
            None => self.timers.stop(Timer::Retransmit),
        }
    }

    /// Warns the operator that [`SILENT_AFTER`] Binding Updates over an uplink had no answer. The home agent
    /// does not answer unknown nodes, so only its log shows the cause.
    pub(super) fn warn_of_silence(&mut self, uplink: usize) {
        let config = &self.config;
        let name = self.uplinks.get(uplink).map_or("?", |uplink| uplink.config.interface.as_str());
        let unknown = match self.numbers.authentication.association() {
            Some(association) => {
                format!("the home address {} or the SPI {}", config.home_address, association.spi)
            }
            None => format!("the home address {}", config.home_address),
        };
        let message = format!(
            "no valid acknowledgement from the home agent {} over {name} after {SILENT_AFTER} Binding \
             Updates: the home agent is not reachable over this uplink, or its config lacks {unknown} \
             (see its log)",
            config.home_agent
        );
        self.outputs.push_back(Output::Event(Event::Warning { message }));
    }

    /// Returns when the next Binding Update may leave; `None` if it may leave now. RFC 6275 11.7.1 limits the
    /// rate, and the update must not overtake the outstanding one.
    pub(super) fn next_update_allowed(&mut self, now: Time) -> Option<Time> {
        self.numbers.update_rate_limit(now).max(self.overtaking_until(now))
    }

    /// Returns the time until which a Binding Update could arrive before the outstanding one; `None` if it
    /// cannot.
    fn overtaking_until(&self, now: Time) -> Option<Time> {
        self.list.overtaking_until(now, |uplink, address| {
            let link = self.uplinks.get(uplink)?;
            let at_home = self.home.at_home && address == IpAddr::V6(self.config.home_address);
            let is_usable = at_home || link.has_care_of_address(address);
            (is_usable && !self.uplinks.is_silent(uplink))
                .then(|| self.uplinks.answer_time(uplink).unwrap_or_default())
        })
    }

    /// Handles the answer to the outstanding Binding Update: sends the updates that waited for it.
    pub(super) fn update_answered(&mut self, now: Time, wall: WallTime) {
        if self.is_multiple() {
            self.reconcile(now, wall);
        } else if std::mem::take(&mut self.list.is_waiting) && self.list.plain.exchange.is_some() {
            self.transmit(now, wall);
        }
    }
}
