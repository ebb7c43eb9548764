//! Entries with Binding Identifiers: several care-of addresses at once (RFC 5648 5.1 to 5.4 and 5.9, RFC 6089
//! 5.2, RFC 5555).
//!
//! After each change the list compares the uplinks with the bindings that the home agent has acknowledged. It
//! puts the differences into as few Binding Updates as RFC 5648 allows. A difference without acknowledgement
//! remains one, and is sent again later.
//!
//! * The first Binding Update replaces whatever the home agent has (O flag, 5.9). While it is unanswered, the
//!   other uplinks follow one by one, in the manner of happy eyeballs. So a failed uplink delays none of the
//!   others.
//! * From then on bindings are added: IPv6 ones together, each IPv4 one from its own care-of address. So the
//!   home agent finds a NAT (8.1).
//! * The binding of an uplink that is gone is ended at once, by a Binding Update of lifetime 0 from an uplink
//!   that lives (5.4). That moves the traffic towards us.
//!
//! Left out: bindings to the home link beside others (the H flag, 5.6): on the home link everything is
//! de-registered, as without Binding Identifiers.

use std::net::IpAddr;
use std::time::Duration;

use carnet_base::Time;

use super::entry::{Attempt, Binding, MAX_UPDATES, Member, Update};
use super::exchange::Registration;
use super::retransmission::INITIAL_BINDACK_TIMEOUT;
use super::{BindingUpdateList, Links};
use crate::is_newer;

/// Wait of the first Binding Update for further uplinks: at a start they come up one after the other.
const GATHERING: Duration = Duration::from_millis(10);
/// Pause between Binding Updates from different uplinks while none has been answered (RFC 8305 5).
pub(crate) const STAGGER: Duration = Duration::from_millis(250);
/// Divisor of the lifetime: a binding that is due within this part of its lifetime is renewed together with
/// others.
const TOGETHER: u32 = 4;
/// Longest time for an answer over a full uplink, which loses many Binding Updates but works. RFC 6275 11.8
/// doubles the time to spare a home agent that does not answer.
pub(crate) const FULL_TIMEOUT: Duration = Duration::from_secs(1);

/// A Binding Update that is due.
pub(crate) struct Draft {
    /// O flag: the home agent removes all other bindings.
    pub(crate) overwrite: bool,
    pub(crate) removal: bool,
    /// Uplink and care-of address that the update leaves from.
    pub(crate) via: (usize, IpAddr),
    pub(crate) members: Vec<Member>,
}

impl BindingUpdateList {
    /// Returns a care-of address of the best registered uplink that works, to send from on behalf of uplinks
    /// other than `except`.
    fn living(&self, links: &dyn Links, except: &[usize]) -> Option<(usize, IpAddr)> {
        let mut living: Vec<(bool, u8, usize, IpAddr)> = self
            .bindings
            .iter()
            .filter(|binding| !except.contains(&binding.uplink))
            .filter_map(|binding| {
                let address = binding.care_of_address()?;
                let attached = links.has_care_of_address(binding.uplink, address);
                let usable = attached && !links.is_silent(binding.uplink);
                usable.then(|| {
                    let proving = links.is_proving(binding.uplink);
                    (proving, links.priority(binding.uplink), binding.uplink, address)
                })
            })
            .collect();
        living.sort_by_key(|(proving, priority, uplink, _)| (*proving, *priority, *uplink));
        living.first().map(|(_, _, uplink, address)| (*uplink, *address))
    }

    /// Whether an uplink other than this one is registered and works.
    pub(crate) fn others_live(&self, links: &dyn Links, uplink: usize) -> bool {
        self.living(links, &[uplink]).is_some()
    }

    /// Sends the outstanding requests of the other uplinks soon when the last working uplink has gone. Their
    /// back-off grew while nothing depended on them, and one may even be registered, with a lost
    /// acknowledgement.
    pub(crate) fn hasten_when_alone(&mut self, links: &dyn Links, now: Time) {
        let lives = self.others_live(links, usize::MAX);
        if !std::mem::replace(&mut self.lived, lives) || lives {
            return;
        }
        for index in 0..self.bindings.len() {
            let silent = links.is_silent(self.bindings[index].uplink);
            let binding = &mut self.bindings[index];
            binding.held_until = binding.held_until.filter(|_| !silent);
            if let Some(attempt) = &mut binding.attempt {
                attempt.next = attempt.next.min(now);
                attempt.retransmission.limit(INITIAL_BINDACK_TIMEOUT);
            }
        }
    }

    /// Returns when the bindings are due next.
    pub(crate) fn next_due(&self, links: &dyn Links, now: Time) -> Option<Time> {
        let can_remove = |binding: &&Binding| self.others_live(links, binding.uplink);
        let removals = self.bindings.iter().filter(can_remove).filter_map(|b| b.removal.as_ref());
        let attempts = self.bindings.iter().filter_map(|binding| binding.attempt.as_ref());
        let held = self.bindings.iter().filter(|b| b.attempt.is_none()).filter_map(|b| b.held_until);
        let ends = self.bindings.iter().filter_map(|binding| binding.registration.map(|r| r.expires));
        let usable = |b: &&Binding| !links.care_of_addresses(b.uplink).is_empty();
        let refresh_at = |binding: &Binding| binding.refresh_at(links.is_full(binding.uplink));
        let refreshes = self.bindings.iter().filter(usable).filter_map(refresh_at);
        removals
            .chain(attempts)
            .map(|attempt| attempt.next)
            .chain(held)
            .chain(ends)
            .chain(refreshes)
            // A request that is due and cannot be sent waits for a change.
            .filter(|at| *at > now)
            .min()
    }

    /// Turns differences between the uplinks and the registrations into requests.
    pub(crate) fn review(
        &mut self,
        links: &dyn Links,
        now: Time,
        carrier: Option<usize>,
        tells_flows: &dyn Fn(u16) -> bool,
    ) {
        for index in 0..self.bindings.len() {
            let uplink = self.bindings[index].uplink;
            let candidates = links.care_of_addresses(uplink);
            let held = self.bindings[index].held_until.is_some_and(|until| until > now);
            let Some(first) = candidates.first().copied() else {
                self.give_up(links, now, index);
                continue;
            };
            let priority = links.priority(uplink);
            let is_full = links.is_full(uplink);
            let tells = self.bindings[index]
                .attempt
                .as_ref()
                .and_then(|attempt| attempt.sent.last())
                .is_some_and(|(sequence, _)| tells_flows(*sequence));
            let wants_flows = carrier == Some(index) || tells;
            let binding = &mut self.bindings[index];
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
                // Another care-of address or priority is another request, not a repetition.
                let asked = attempt.sent.last().is_none_or(|(_, address)| candidates.contains(address));
                if !asked {
                    *attempt = Attempt::new(now, false);
                }
            } else if !held {
                let first = binding.registration.is_none();
                let start = if first && !self.abilities.bootstrapped { now + GATHERING } else { now };
                binding.attempt = Some(Attempt::new(start, first));
            }
        }
    }

    /// Gives up an uplink that cannot be used. The home agent learns it over another uplink, if there is one.
    fn give_up(&mut self, links: &dyn Links, now: Time, index: usize) {
        let uplink = self.bindings[index].uplink;
        let others = self.others_live(links, uplink);
        if self.bindings[index].is_known() && others {
            self.forget(now, index);
        }
        // The uplink has nothing to register. A Binding Update without an answer may have been accepted.
        let attempt = self.bindings[index].attempt.take();
        if !others && attempt.is_some_and(|attempt| !attempt.sent.is_empty()) {
            self.bindings[index].removal.get_or_insert(Attempt::new(now, false));
        }
    }

    /// Ends a binding, with a removal at the home agent.
    pub(crate) fn forget(&mut self, now: Time, index: usize) {
        let binding = &mut self.bindings[index];
        let known = binding.is_known();
        binding.attempt = None;
        if known {
            binding.removal = Some(Attempt::new(now, false));
        }
        let registration = binding.registration.take();
        for update in &mut self.updates {
            update.members.retain(|member| member.binding != index);
        }
        if let Some(registration) = registration {
            self.retire(now, registration.care_of_address);
        }
    }

    /// Removes the binding of an uplink that failed as the last one, now that another uplink works. The home
    /// agent may still rank a binding without answers as the best.
    pub(crate) fn give_up_silent(&mut self, links: &dyn Links, now: Time) {
        for index in 0..self.bindings.len() {
            let uplink = self.bindings[index].uplink;
            let kept = self.bindings[index].registration.is_some() && links.is_silent(uplink);
            if kept && self.others_live(links, uplink) {
                self.forget(now, index);
                // The home agent may have been away, so there is no hold-down.
                self.bindings[index].again = true;
            }
        }
    }

    /// Returns the Binding Update that is to be sent now, the most urgent first.
    pub(crate) fn draft(&mut self, links: &dyn Links, now: Time) -> Option<Draft> {
        self.draft_removal(links, now).or_else(|| self.draft_registration(links, now))
    }

    fn draft_removal(&self, links: &dyn Links, now: Time) -> Option<Draft> {
        if !self.abilities.bootstrapped {
            return None;
        }
        let due: Vec<usize> = (0..self.bindings.len())
            .filter(|&index| self.bindings[index].removal.as_ref().is_some_and(|r| r.next <= now))
            .collect();
        let except: Vec<usize> = due.iter().map(|&index| self.bindings[index].uplink).collect();
        let via = self.living(links, &except)?;
        let take = if self.abilities.bulk { due.len() } else { 1 };
        let members: Vec<Member> = due
            .into_iter()
            .take(take)
            .map(|binding| Member { binding, care_of_address: via.1, priority: 0 })
            .collect();
        (!members.is_empty()).then_some(Draft { overwrite: false, removal: true, via, members })
    }

    fn draft_registration(&mut self, links: &dyn Links, now: Time) -> Option<Draft> {
        let member = |router: &BindingUpdateList, index: usize| {
            let binding = &router.bindings[index];
            let attempt = binding.attempt.as_ref()?;
            let candidates = links.care_of_addresses(binding.uplink);
            // A mere renewal of a working care-of address does not involve the other family.
            let alone = binding.care_of_address() == candidates.first().copied()
                && attempt.retransmission.rounds() == 0;
            let turn = if alone { 0 } else { attempt.retransmission.turn() };
            let care_of_address = *candidates.get(turn).or(candidates.first())?;
            Some(Member { binding: index, care_of_address, priority: links.priority(binding.uplink) })
        };
        let mut order: Vec<usize> = (0..self.bindings.len()).collect();
        let is_full = |router: &BindingUpdateList, index: usize| links.is_full(router.bindings[index].uplink);
        order
            .sort_by_key(|&index| (is_full(self, index), links.priority(self.bindings[index].uplink), index));
        let due = |router: &BindingUpdateList, index: usize| {
            router.bindings[index].attempt.as_ref().is_some_and(|attempt| attempt.next <= now)
        };
        let soon = |router: &BindingUpdateList, index: usize| {
            router.bindings[index]
                .registration
                .is_some_and(|r| r.expires.saturating_since(now) <= r.lifetime / TOGETHER + r.lifetime / 4)
        };
        // The next renewals of others would overtake a Binding Update that waits in a full queue for seconds.
        // Renewals that are due before the lifetime over the full uplink can end go before its first Binding
        // Update.
        let begins = |router: &BindingUpdateList, index: usize| {
            router.bindings[index].attempt.as_ref().is_some_and(|attempt| attempt.sent.is_empty())
        };
        if order.iter().any(|&index| is_full(self, index) && due(self, index) && begins(self, index)) {
            for &index in &order {
                let binding = &self.bindings[index];
                let lasts = |at: Time| binding.registration.is_some_and(|r| at <= now + r.lifetime / 2);
                let is_due_meanwhile = binding.refresh_at(false).is_some_and(lasts);
                if binding.held_until.is_none() && !is_full(self, index) && is_due_meanwhile {
                    let binding = &mut self.bindings[index];
                    binding.again = true;
                    binding.attempt.get_or_insert_with(|| Attempt::new(now, false));
                }
            }
        }
        let first = order.iter().copied().find(|&index| due(self, index))?;
        let lead = member(self, first)?;
        let overwrite = !self.abilities.bootstrapped;
        let mut members = vec![lead];
        // RFC 5648 8.1: a first registration from an IPv4 care-of address is no bulk registration. An uplink
        // that has not answered sends its own update.
        let fit = |router: &BindingUpdateList, index: usize, care_of_address: IpAddr| {
            let binding = &router.bindings[index];
            care_of_address.is_ipv6()
                && !router.is_trying_ipv6(index, care_of_address)
                && !links.is_silent(binding.uplink)
                && binding.attempt.as_ref().is_none_or(|attempt| attempt.retransmission.is_fresh())
        };
        if self.abilities.bulk && links.is_probing() && fit(self, first, lead.care_of_address) {
            for &index in order.iter().filter(|&&index| index != first) {
                if self.bindings[index].attempt.is_none() && soon(self, index) {
                    let attempt = Attempt::new(now, false);
                    self.bindings[index].attempt = Some(attempt);
                }
                let Some(other) = member(self, index).filter(|_| due(self, index) || overwrite) else {
                    continue;
                };
                if fit(self, index, other.care_of_address) {
                    members.push(other);
                }
            }
        }
        let via = self.via(links, &members)?;
        Some(Draft { overwrite, removal: false, via, members })
    }

    /// Returns the care-of address that a Binding Update leaves from: the only member's own, or for several
    /// members a registered one.
    fn via(&self, links: &dyn Links, members: &[Member]) -> Option<(usize, IpAddr)> {
        let own = |member: &Member| (self.bindings[member.binding].uplink, member.care_of_address);
        let registered = members
            .iter()
            .find(|member| self.bindings[member.binding].care_of_address() == Some(member.care_of_address));
        let via = registered.or(members.first()).map(own)?;
        // A renewal of IPv6 care-of addresses (RFC 5648 5.3) need not wait in a full queue.
        let renews = |member: &Member| {
            member.care_of_address.is_ipv6()
                && self.bindings[member.binding].care_of_address() == Some(member.care_of_address)
        };
        let full: Vec<usize> = (0..links.count()).filter(|&uplink| links.is_full(uplink)).collect();
        let spared = || self.living(links, &full).filter(|(_, address)| address.is_ipv6());
        if full.contains(&via.0) && members.iter().all(renews) { spared().or(Some(via)) } else { Some(via) }
    }

    /// Registers every binding again at once: the home agent may have lost them.
    pub(crate) fn register_all_again(&mut self, now: Time) {
        for binding in &mut self.bindings {
            if binding.is_known() {
                binding.again = true;
                binding.held_until = None;
                if let Some(attempt) = &mut binding.attempt {
                    attempt.next = attempt.next.min(now);
                }
            }
        }
    }

    /// Hastens the requests that were sent longer than `interval` ago, because packets wait and nothing is
    /// registered. Returns whether there are any.
    pub(crate) fn hasten(&mut self, now: Time, interval: Duration) -> bool {
        let mut due = false;
        for attempt in self.bindings.iter_mut().filter_map(|binding| binding.attempt.as_mut()) {
            if attempt.retransmission.last().is_some_and(|at| now.saturating_since(at) >= interval) {
                attempt.next = attempt.next.min(now);
                due = true;
            }
        }
        due
    }

    /// Drops the other updates that raced for the bindings of an acknowledged one (RFC 8305 5). A binding is
    /// registered again if a later update had another care-of address, because that update undoes the
    /// acknowledged one.
    pub(crate) fn superseded(&mut self, update: &Update) {
        for member in &update.members {
            let mut overtaken = false;
            for other in &mut self.updates {
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
            // The binding was ended after this update, whether or not that was acknowledged.
            let removed = self.bindings[member.binding].removed.take();
            overtaken |= removed.is_some_and(|it| is_newer(it, update.sequence));
            self.bindings[member.binding].again = overtaken;
        }
    }

    pub(crate) fn retry_binding(&mut self, now: Time, index: usize) {
        self.bindings[index].attempt = Some(Attempt::new(now, false));
        self.bindings[index].again = true;
    }

    pub(crate) fn correct_binding(&mut self, now: Time, index: usize) -> bool {
        let Some(attempt) = &mut self.bindings[index].attempt else { return false };
        attempt.next = now;
        attempt.retransmission.correct()
    }

    /// Delays the next request for a binding by `after`.
    pub(crate) fn hold_binding(&mut self, now: Time, index: usize, after: Duration) {
        self.bindings[index].attempt = None;
        self.bindings[index].held_until = Some(now + after);
        // The request is still wanted after the delay.
        self.bindings[index].again = true;
    }

    /// Makes the members of a Binding Update due at once; false if all of them have been corrected too often.
    pub(crate) fn correct_members(&mut self, now: Time, update: &Update) -> bool {
        let mut patient = false;
        for member in &update.members {
            let binding = &mut self.bindings[member.binding];
            let attempt = if update.removal { &mut binding.removal } else { &mut binding.attempt };
            if let Some(attempt) = attempt
                && attempt.retransmission.correct()
            {
                attempt.next = now;
                attempt.retransmission.begin_anew();
                patient = true;
            }
        }
        patient
    }

    /// Records that the home agent has these bindings and no others, and answers. Returns the plain binding
    /// if the Binding Update has replaced it.
    pub(crate) fn bootstrapped(&mut self, now: Time, update: &Update) -> Option<Registration> {
        if !self.abilities.bootstrapped {
            for binding in &mut self.bindings {
                // Requests that have waited for the first acknowledgement are due now.
                if let Some(attempt) = binding.attempt.as_mut().filter(|attempt| attempt.sent.is_empty()) {
                    attempt.next = now;
                }
            }
        }
        self.abilities.bootstrapped = true;
        self.back_off = None;
        if !update.overwrite {
            return None;
        }
        for (index, binding) in self.bindings.iter_mut().enumerate() {
            let older = binding.registration.is_some_and(|r| is_newer(update.sequence, r.sequence));
            binding.again |= older && update.members.iter().all(|member| member.binding != index);
        }
        self.registration.take()
    }

    /// Records that a Binding Update was sent.
    pub(crate) fn transmitted(&mut self, links: &dyn Links, now: Time, update: &Update) {
        let sequence = update.sequence;
        for member in update.members.iter().filter(|_| update.removal) {
            self.bindings[member.binding].registration = None;
            self.bindings[member.binding].removed = Some(sequence);
        }
        let full: Vec<usize> = (0..links.count()).filter(|&uplink| links.is_full(uplink)).collect();
        for member in &update.members {
            let candidates = links.care_of_addresses(self.bindings[member.binding].uplink);
            let binding = &mut self.bindings[member.binding];
            let attempt = if update.removal { &mut binding.removal } else { &mut binding.attempt };
            if let Some(attempt) = attempt {
                let renewal =
                    binding.registration.is_some_and(|r| candidates.first() == Some(&r.care_of_address));
                let rivals = if update.removal || (renewal && attempt.retransmission.rounds() == 0) {
                    1
                } else {
                    candidates.len()
                };
                attempt.transmitted(now, sequence, member.care_of_address, rivals);
                if full.contains(&binding.uplink) {
                    attempt.retransmission.limit(FULL_TIMEOUT);
                }
            }
            binding.removal.take_if(|removal| removal.is_exhausted());
            if let Some(removal) = binding.removal.as_mut().filter(|_| !update.removal) {
                // The registration may replace the removal.
                removal.next = removal.next.max(now + STAGGER);
            }
        }
        if update.overwrite {
            for binding in &mut self.bindings {
                if let Some(attempt) = &mut binding.attempt {
                    attempt.next = attempt.next.max(now + STAGGER);
                }
            }
        }
    }

    /// Remembers a Binding Update for its acknowledgement.
    pub(crate) fn push_update(&mut self, update: Update) {
        if self.updates.len() == MAX_UPDATES {
            self.updates.pop_front();
        }
        self.updates.push_back(update);
    }
}
