//! Several care-of addresses at once: what is to be registered, and in which Binding Updates (RFC 5648 5.1 to
//! 5.4 and 5.9, RFC 6089 5.2, RFC 5555).
//!
//! Every change leads to one question: in what does the home agent's list of our bindings, as far as it has
//! acknowledged it, differ from what the uplinks are? The differences are put into as few Binding Updates as
//! RFC 5648 allows, and whatever is not acknowledged is a difference still, to be sent again later.
//!
//! * The first Binding Update replaces whatever the home agent has (O flag, 5.9). While it is unanswered, the
//!   other uplinks follow one by one, in the manner of happy eyeballs: one that leads nowhere delays nobody.
//! * From then on bindings are added, each from its own care-of address where it is an IPv4 one (8.1: that is
//!   how a NAT is found), else together.
//! * An uplink that is gone is forgotten by a Binding Update of lifetime 0 from one that lives (5.4), at
//!   once: that is what moves the traffic towards us.
//!
//! Left out: bindings to the home link beside others (the H flag, 5.6): on the home link everything is
//! de-registered, as without Binding Identifiers.

use std::net::IpAddr;
use std::time::Duration;

use carnet_base::{Time, WallTime, sort_by_key};
use carnet_wire::mobility::{BindingUpdateFlags, Builder, MobilityOption};

use super::movement::care_of_addresses;
use super::sending::{SILENT_AFTER, mapped};
use super::{Attachment, DEMAND_INTERVAL, MobileRouter, Timer};
use crate::binding_update_list::INITIAL_BINDACK_TIMEOUT;
use crate::binding_update_list::{Abilities, Attempt, Binding, MAX_UPDATES, Member, Update};
use crate::{Event, Output, lifetime_units};

/// The first Binding Update waits so long for further uplinks: at a start they are found one after the other.
const GATHERING: Duration = Duration::from_millis(10);
/// Between Binding Updates from different uplinks while none has been answered (RFC 8305 5).
const STAGGER: Duration = Duration::from_millis(250);
/// A binding that is to be renewed within this part of its lifetime is renewed together with others.
const TOGETHER: u32 = 4;
/// Rounds of Binding Updates without an answer that make an uplink one that leads nowhere, where nothing
/// else tells.
const SILENT_ROUNDS: u32 = 3;

/// On a full uplink many Binding Updates are lost, and arrivals prove that it lives: the time for an answer
/// does not double beyond this (RFC 6275 11.8 doubles it to spare a home agent that does not answer).
pub(super) const FULL_TIMEOUT: Duration = Duration::from_secs(1);

/// A Binding Update to be.
struct Draft {
    overwrite: bool,
    removal: bool,
    via: (usize, IpAddr),
    members: Vec<Member>,
}

impl MobileRouter {
    /// Whether bindings with identifiers are what is to be registered now.
    pub(super) fn is_multiple(&self) -> bool {
        !self.stopping
            && !self.home.at_home
            && self.refusals.status.is_none()
            && self.list.abilities.identifiers
            && self.list.exchange.is_none()
            && self.uplinks.target.is_some_and(|target| self.has_identifier(target))
    }

    /// Whether an uplink is to be registered under a Binding Identifier.
    pub(super) fn has_identifier(&self, uplink: usize) -> bool {
        self.list.abilities.identifiers && self.uplinks.get(uplink).is_some_and(|u| u.config.bid.is_some())
    }

    /// The binding of an uplink, as an index.
    pub(super) fn binding_of(&self, uplink: usize) -> Option<usize> {
        self.list.bindings.iter().position(|binding| binding.uplink == uplink)
    }

    /// A care-of address to send from on behalf of others than `except`: of the best registered uplink that
    /// lives.
    fn living(&self, except: &[usize]) -> Option<(usize, IpAddr)> {
        let mut living: Vec<(bool, u8, usize, IpAddr)> = self
            .list
            .bindings
            .iter()
            .filter(|binding| !except.contains(&binding.uplink))
            .filter_map(|binding| {
                let address = binding.care_of_address()?;
                let attached = self.uplinks[binding.uplink].has_care_of_address(address);
                let usable = attached && !self.is_silent(binding.uplink);
                usable.then(|| {
                    let proving = self.is_proving(binding.uplink);
                    (proving, self.priority(binding.uplink), binding.uplink, address)
                })
            })
            .collect();
        sort_by_key(&mut living, |(proving, priority, uplink, _)| (*proving, *priority, *uplink));
        living.first().map(|(_, _, uplink, address)| (*uplink, *address))
    }

    /// Whether another uplink than this one is registered and lives.
    pub(super) fn others_live(&self, uplink: usize) -> bool {
        self.living(&[uplink]).is_some()
    }

    /// Brings the home agent's bindings in line with the uplinks.
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
        self.timers.stop(Timer::Retransmit);
        self.timers.stop(Timer::Refresh);
        self.hasten_when_alone(now);
        self.give_up_silent(now);
        self.review(now);
        let mut next = None;
        while let Some(draft) = self.draft(now) {
            if let Some(at) = self.next_update_allowed(now) {
                next = Some(at);
                break;
            }
            self.send_draft(now, wall, draft);
        }
        let due = next.or_else(|| self.next_due(now));
        match due {
            Some(at) => self.timers.set(Timer::Bindings, at),
            None => self.timers.stop(Timer::Bindings),
        }
    }

    /// The last uplink that lived has gone: the others are not left to a back-off that grew while nothing
    /// depended on them. One may even be registered, with the acknowledgement lost.
    fn hasten_when_alone(&mut self, now: Time) {
        let lives = self.others_live(usize::MAX);
        if !std::mem::replace(&mut self.list.lived, lives) || lives {
            return;
        }
        for index in 0..self.list.bindings.len() {
            let silent = self.is_silent(self.list.bindings[index].uplink);
            let binding = &mut self.list.bindings[index];
            binding.held_until = binding.held_until.filter(|_| !silent);
            if let Some(attempt) = &mut binding.attempt {
                attempt.next = attempt.next.min(now);
                attempt.timeout = attempt.timeout.min(INITIAL_BINDACK_TIMEOUT);
            }
        }
    }

    /// When there is something to do for the bindings again.
    fn next_due(&self, now: Time) -> Option<Time> {
        let can_remove = |binding: &&Binding| self.others_live(binding.uplink);
        let removals = self.list.bindings.iter().filter(can_remove).filter_map(|b| b.removal.as_ref());
        let attempts = self.list.bindings.iter().filter_map(|binding| binding.attempt.as_ref());
        let held = self.list.bindings.iter().filter(|b| b.attempt.is_none()).filter_map(|b| b.held_until);
        let ends = self.list.bindings.iter().filter_map(|binding| binding.registration.map(|r| r.expires));
        let usable = |b: &&Binding| !self.uplinks[b.uplink].care_of_addresses().is_empty();
        let refresh_at = |binding: &Binding| binding.refresh_at(self.is_full(binding.uplink));
        let refreshes = self.list.bindings.iter().filter(usable).filter_map(refresh_at);
        removals
            .chain(attempts)
            .map(|attempt| attempt.next)
            .chain(held)
            .chain(ends)
            .chain(refreshes)
            // What is due and could not be done just now waits for something to change.
            .filter(|at| *at > now)
            .min()
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

    /// Notes what differs between the uplinks and what is registered.
    fn review(&mut self, now: Time) {
        let carrier = self.flow_carrier();
        for index in 0..self.list.bindings.len() {
            let uplink = self.list.bindings[index].uplink;
            let candidates = self.uplinks[uplink].care_of_addresses();
            let held = self.list.bindings[index].held_until.is_some_and(|until| until > now);
            let Some(first) = candidates.first().copied() else {
                self.give_up(now, index);
                continue;
            };
            let priority = self.priority(uplink);
            let is_full = self.is_full(uplink);
            let tells = self.list.bindings[index]
                .attempt
                .as_ref()
                .and_then(|attempt| attempt.sent.last())
                .is_some_and(|(sequence, _)| self.tells_flows(*sequence));
            let wants_flows = carrier == Some(index) || tells;
            let binding = &mut self.list.bindings[index];
            if !held {
                binding.held_until = None;
            }
            let due = binding.refresh_at(is_full).is_some_and(|at| at <= now);
            let differs = binding.again
                || due
                || wants_flows
                || binding.care_of_address() != Some(first)
                || binding.priority != priority;
            if !differs {
                binding.attempt = None;
            } else if let Some(attempt) = &mut binding.attempt {
                // Another care-of address, another priority: not a repetition of what was asked.
                let asked = attempt.sent.last().is_none_or(|(_, address)| candidates.contains(address));
                if !asked {
                    *attempt = Attempt::new(now, false);
                }
            } else if !held {
                let first = binding.registration.is_none();
                let start = if first && !self.list.abilities.bootstrapped { now + GATHERING } else { now };
                binding.attempt = Some(Attempt::new(start, first));
            }
        }
    }

    /// An uplink that cannot be used: the home agent is told when there is another to tell it over.
    fn give_up(&mut self, now: Time, index: usize) {
        let uplink = self.list.bindings[index].uplink;
        let others = self.others_live(uplink);
        if self.list.bindings[index].is_known() && others {
            self.forget(now, index);
        }
        // There is nothing to register from here. What was sent and not answered may have been accepted.
        let attempt = self.list.bindings[index].attempt.take();
        if !others && attempt.is_some_and(|attempt| !attempt.sent.is_empty()) {
            self.list.bindings[index].removal.get_or_insert(Attempt::new(now, false));
        }
    }

    /// Ends a binding; the home agent is told.
    pub(super) fn forget(&mut self, now: Time, index: usize) {
        let binding = &mut self.list.bindings[index];
        let known = binding.is_known();
        binding.attempt = None;
        if known {
            binding.removal = Some(Attempt::new(now, false));
        }
        let registration = binding.registration.take();
        for update in &mut self.list.updates {
            update.members.retain(|member| member.binding != index);
        }
        if let Some(registration) = registration {
            self.retire(now, registration.care_of_address);
        }
    }

    /// What is to be sent now, the most urgent first.
    fn draft(&mut self, now: Time) -> Option<Draft> {
        self.draft_removal(now).or_else(|| self.draft_registration(now))
    }

    fn draft_removal(&mut self, now: Time) -> Option<Draft> {
        if !self.list.abilities.bootstrapped {
            return None;
        }
        let due: Vec<usize> = (0..self.list.bindings.len())
            .filter(|&index| self.list.bindings[index].removal.as_ref().is_some_and(|r| r.next <= now))
            .collect();
        let except: Vec<usize> = due.iter().map(|&index| self.list.bindings[index].uplink).collect();
        let via = self.living(&except)?;
        let take = if self.list.abilities.bulk { due.len() } else { 1 };
        let members: Vec<Member> = due
            .into_iter()
            .take(take)
            .map(|binding| Member { binding, care_of_address: via.1, priority: 0 })
            .collect();
        (!members.is_empty()).then_some(Draft { overwrite: false, removal: true, via, members })
    }

    fn draft_registration(&mut self, now: Time) -> Option<Draft> {
        let member = |router: &MobileRouter, index: usize| {
            let binding = &router.list.bindings[index];
            let attempt = binding.attempt.as_ref()?;
            let candidates = router.uplinks[binding.uplink].care_of_addresses();
            // While what works is only to be renewed, the other family stays out of it.
            let alone = binding.care_of_address() == candidates.first().copied() && attempt.rounds == 0;
            let turn = if alone { 0 } else { attempt.turn };
            let care_of_address = *candidates.get(turn).or(candidates.first())?;
            Some(Member { binding: index, care_of_address, priority: router.priority(binding.uplink) })
        };
        let mut order: Vec<usize> = (0..self.list.bindings.len()).collect();
        let is_full =
            |router: &MobileRouter, index: usize| router.is_full(router.list.bindings[index].uplink);
        sort_by_key(&mut order, |&index| {
            (is_full(self, index), self.priority(self.list.bindings[index].uplink), index)
        });
        let due = |router: &MobileRouter, index: usize| {
            router.list.bindings[index].attempt.as_ref().is_some_and(|attempt| attempt.next <= now)
        };
        let soon = |router: &MobileRouter, index: usize| {
            router.list.bindings[index]
                .registration
                .is_some_and(|r| r.expires.saturating_since(now) <= r.lifetime / TOGETHER + r.lifetime / 4)
        };
        // What waits in a full queue for seconds would be overtaken by the next renewals of others. Those
        // that are due before the lifetime over the full uplink can end come before its first Binding Update.
        let begins = |router: &MobileRouter, index: usize| {
            router.list.bindings[index].attempt.as_ref().is_some_and(|attempt| attempt.sent.is_empty())
        };
        if order.iter().any(|&index| is_full(self, index) && due(self, index) && begins(self, index)) {
            for &index in &order {
                let binding = &self.list.bindings[index];
                let lasts = |at: Time| binding.registration.is_some_and(|r| at <= now + r.lifetime / 2);
                let is_due_meanwhile = binding.refresh_at(false).is_some_and(lasts);
                if binding.held_until.is_none() && !is_full(self, index) && is_due_meanwhile {
                    let binding = &mut self.list.bindings[index];
                    binding.again = true;
                    binding.attempt.get_or_insert_with(|| Attempt::new(now, false));
                }
            }
        }
        let first = order.iter().copied().find(|&index| due(self, index))?;
        let lead = member(self, first)?;
        let overwrite = !self.list.abilities.bootstrapped;
        let mut members = vec![lead];
        // RFC 5648 8.1: not the first from an IPv4 care-of address. An uplink that has not answered speaks
        // for itself.
        let fit = |router: &MobileRouter, index: usize, care_of_address: IpAddr| {
            let binding = &router.list.bindings[index];
            care_of_address.is_ipv6()
                && !router.is_trying_ipv6(index, care_of_address)
                && !router.is_silent(binding.uplink)
                && binding.attempt.as_ref().is_none_or(|attempt| attempt.rounds == 0 && attempt.turn == 0)
        };
        if self.list.abilities.bulk && self.is_probing() && fit(self, first, lead.care_of_address) {
            for &index in order.iter().filter(|&&index| index != first) {
                if self.list.bindings[index].attempt.is_none() && soon(self, index) {
                    let attempt = Attempt::new(now, false);
                    self.list.bindings[index].attempt = Some(attempt);
                }
                let Some(other) = member(self, index).filter(|_| due(self, index) || overwrite) else {
                    continue;
                };
                if fit(self, index, other.care_of_address) {
                    members.push(other);
                }
            }
        }
        let via = self.via(&members)?;
        Some(Draft { overwrite, removal: false, via, members })
    }

    /// Where a Binding Update leaves from: the only member's own care-of address; of several, a registered
    /// one's.
    fn via(&self, members: &[Member]) -> Option<(usize, IpAddr)> {
        let own = |member: &Member| (self.list.bindings[member.binding].uplink, member.care_of_address);
        let registered = members.iter().find(|member| {
            self.list.bindings[member.binding].care_of_address() == Some(member.care_of_address)
        });
        let via = registered.or(members.first()).map(own)?;
        // What only renews IPv6 care-of addresses (RFC 5648 5.3) need not wait in a full queue.
        let renews = |member: &Member| {
            member.care_of_address.is_ipv6()
                && self.list.bindings[member.binding].care_of_address() == Some(member.care_of_address)
        };
        let full: Vec<usize> = (0..self.uplinks.len()).filter(|&uplink| self.is_full(uplink)).collect();
        let spared = || self.living(&full).filter(|(_, address)| address.is_ipv6());
        if full.contains(&via.0) && members.iter().all(renews) { spared().or(Some(via)) } else { Some(via) }
    }

    fn send_draft(&mut self, now: Time, wall: WallTime, draft: Draft) {
        let (flows, summary) = self.flows_for(&draft.members, draft.removal);
        let own_address = draft.members.iter().find(|_| !draft.removal).map(|m| mapped(m.care_of_address));
        let source = match draft.via.1 {
            IpAddr::V6(address) => address,
            IpAddr::V4(_) => self.config.home_address,
        };
        let authenticated = own_address.unwrap_or(source);
        let (sequence, timestamp) = self.number_update(now, wall, draft.via, authenticated);
        let update = Update {
            sequence,
            at: now,
            timestamp,
            overwrite: draft.overwrite,
            removal: draft.removal,
            via: draft.via,
            count: draft.members.len(),
            members: draft.members,
            authenticated,
            flows,
            summary,
        };
        let output = self.bindings_update(&update);
        for member in update.members.iter().filter(|_| update.removal) {
            self.list.bindings[member.binding].registration = None;
            self.list.bindings[member.binding].removed = Some(sequence);
        }
        let full: Vec<usize> = (0..self.uplinks.len()).filter(|&uplink| self.is_full(uplink)).collect();
        for member in &update.members {
            let candidates = self.uplinks[self.list.bindings[member.binding].uplink].care_of_addresses();
            let binding = &mut self.list.bindings[member.binding];
            let attempt = if update.removal { &mut binding.removal } else { &mut binding.attempt };
            if let Some(attempt) = attempt {
                let renewal =
                    binding.registration.is_some_and(|r| candidates.first() == Some(&r.care_of_address));
                let rivals =
                    if update.removal || (renewal && attempt.rounds == 0) { 1 } else { candidates.len() };
                attempt.transmitted(now, sequence, member.care_of_address, rivals);
                if full.contains(&binding.uplink) {
                    attempt.timeout = attempt.timeout.min(FULL_TIMEOUT);
                }
            }
            binding.removal.take_if(|removal| removal.is_exhausted());
            if let Some(removal) = binding.removal.as_mut().filter(|_| !update.removal) {
                // This may do as well.
                removal.next = removal.next.max(now + STAGGER);
            }
        }
        if update.overwrite {
            for binding in &mut self.list.bindings {
                if let Some(attempt) = &mut binding.attempt {
                    attempt.next = attempt.next.max(now + STAGGER);
                }
            }
        }
        self.note_silence(now, &update);
        if self.list.updates.len() == MAX_UPDATES {
            self.list.updates.pop_front();
        }
        self.flows_sent(sequence, &update.flows);
        self.update_sent(now, update.via.0);
        self.list.updates.push_back(update);
        self.send_update(output);
    }

    /// The operator is told of an uplink over which no first registration comes about. Where no heartbeats
    /// tell: an uplink over which a few rounds of Binding Updates went unanswered leads nowhere.
    fn note_silence(&mut self, now: Time, update: &Update) {
        for member in &update.members {
            let binding = &self.list.bindings[member.binding];
            let first = !update.removal && binding.registration.is_none();
            let asked = |attempt: &Attempt| (attempt.rounds as usize, attempt.turn) == (SILENT_AFTER, 0);
            if first && binding.attempt.as_ref().is_some_and(asked) {
                self.warn_of_silence(binding.uplink);
            }
            let binding = &self.list.bindings[member.binding];
            let silent = !update.removal
                && binding.registration.is_some()
                && binding.attempt.as_ref().is_some_and(|attempt| attempt.rounds > SILENT_ROUNDS);
            let uplink = binding.uplink;
            if silent && self.others_live(uplink) && !self.is_heard(now, uplink) {
                self.path_failed(now, uplink);
            }
        }
    }

    fn bindings_update(&self, update: &Update) -> Output {
        let flags = BindingUpdateFlags {
            acknowledge: true,
            home_registration: true,
            mobile_router: self.config.is_router(),
            force_udp: update.via.1.is_ipv4() && self.forces_udp(update.via.0),
            overwrite: update.overwrite,
            ..BindingUpdateFlags::default()
        };
        let lifetime = if update.removal { 0 } else { lifetime_units(self.config.lifetime) };
        let mut builder = Builder::binding_update(update.sequence, flags, lifetime);
        for member in &update.members {
            // Design 6: no Alternate Care-of Address and no IPv4 Care-of Address option beside it.
            builder = builder.option(&MobilityOption::BindingIdentifier {
                bid: self.list.bindings[member.binding].bid,
                status: 0,
                home: false,
                // RFC 6089 5.2.1: never 0.
                priority: member.priority.clamp(1, 127),
                care_of_address: (!update.removal).then_some(member.care_of_address),
            });
        }
        if !update.removal {
            builder = self.add_prefixes(builder);
        }
        builder = self.add_flows(builder, &update.flows, &update.summary);
        let mut mobility_header = self.finish_authenticated(builder, update.timestamp, update.authenticated);
        self.control_packet(update.via.0, update.via.1, &mut mobility_header)
    }

    /// The uplink of a binding has another care-of address, or none.
    pub(super) fn binding_moved(&mut self, now: Time, uplink: usize, before: Attachment) {
        let Some(index) = self.binding_of(uplink) else { return };
        let lost = |router: &MobileRouter, address: IpAddr| {
            care_of_addresses(before).contains(&Some(address))
                && !router.uplinks[uplink].has_care_of_address(address)
        };
        let registered = self.list.bindings[index].care_of_address();
        if let Some(address) = registered.filter(|address| lost(self, *address)) {
            self.retire(now, address);
            // The new one may lead nowhere: then the home agent is told over another that the old one is
            // gone.
            self.list.bindings[index].removal = Some(Attempt::new(now + STAGGER, false));
        }
        if registered.is_some() && self.list.bindings[index].asked_for().is_some_and(|a| lost(self, a)) {
            self.list.bindings[index].again = true;
        }
        self.list.bindings[index].held_until = None;
        if let Some(attempt) = &mut self.list.bindings[index].attempt {
            attempt.next = attempt.next.min(now);
        }
    }

    /// Packets wait, and nothing is registered: what is under way is not left to the back-off.
    pub(super) fn hasten_bindings(&mut self, now: Time, wall: WallTime) {
        let mut due = false;
        for attempt in self.list.bindings.iter_mut().filter_map(|binding| binding.attempt.as_mut()) {
            if attempt.last.is_some_and(|at| now.saturating_since(at) >= DEMAND_INTERVAL) {
                attempt.next = attempt.next.min(now);
                due = true;
            }
        }
        if due {
            self.reconcile(now, wall);
        }
    }

    /// Every binding is registered anew at once: the home agent may have lost them.
    pub(super) fn register_all_again(&mut self, now: Time) {
        for binding in &mut self.list.bindings {
            if binding.is_known() {
                binding.again = true;
                binding.held_until = None;
                if let Some(attempt) = &mut binding.attempt {
                    attempt.next = attempt.next.min(now);
                }
            }
        }
    }

    /// Nothing is registered under an identifier any more, as far as we care.
    pub(super) fn clear_bindings(&mut self, now: Time) {
        for index in 0..self.list.bindings.len() {
            let binding = &mut self.list.bindings[index];
            *binding =
                Binding { registration: binding.registration, ..Binding::new(binding.uplink, binding.bid) };
            if let Some(registration) = self.list.bindings[index].registration.take() {
                self.retire(now, registration.care_of_address);
            }
        }
        self.list.updates.clear();
        self.list.abilities.bootstrapped = false;
        self.forget_flows();
        self.timers.stop(Timer::Bindings);
    }

    /// Takes over the bindings of the same uplinks under an earlier configuration.
    pub(super) fn adopt_bindings(&mut self, now: Time, old: &MobileRouter) {
        self.list.abilities =
            Abilities { bootstrapped: old.list.abilities.bootstrapped, ..Abilities::default() };
        for binding in &mut self.list.bindings {
            let name = &self.uplinks[binding.uplink].config.interface;
            let same = |other: &&Binding| {
                other.bid == binding.bid && old.uplinks[other.uplink].config.interface == *name
            };
            if let Some(before) = old.list.bindings.iter().find(same) {
                binding.registration = before.registration.filter(|r| r.expires > now);
                binding.priority = before.priority;
                // The prefixes, the lifetime or the key may be others now.
                binding.again = true;
            }
        }
        // What is registered and not wanted any more is replaced.
        let kept = |other: &Binding| {
            self.list.bindings.iter().any(|b| b.bid == other.bid && b.registration == other.registration)
        };
        if !old.list.bindings.iter().filter(|binding| binding.is_known()).all(kept) {
            self.list.abilities.bootstrapped = false;
        }
        for uplink in self.uplinks.iter_mut() {
            let before = old.uplinks.iter().find(|u| u.config.interface == uplink.config.interface);
            if let Some(before) = before {
                uplink.path = before.path.clone();
            }
        }
    }
}
