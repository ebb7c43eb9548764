//! Entries with Binding Identifiers: several care-of addresses at once (RFC 5648 5.1 to 5.4 and 5.9, RFC 6089
//! 5.2, RFC 5555).
//!
//! After each change the list compares the uplinks with the bindings that the home agent has acknowledged. It
//! puts the differences into as few Binding Updates as RFC 5648 allows. A difference remains until the home
//! agent has acknowledged it, so it is sent again if the update is lost.
//!
//! * The first Binding Update replaces all bindings that the home agent has (O flag, 5.9). If it is not
//!   answered at once, the other uplinks send their first Binding Updates one after the other, as in happy
//!   eyeballs. So one failed uplink does not delay the others.
//! * Further Binding Updates add bindings: all IPv6 bindings together, each IPv4 binding from its own
//!   care-of address. So the home agent detects a NAT (8.1).
//! * If an uplink goes down, the router removes its binding at once, by a Binding Update of lifetime 0 from
//!   another uplink (5.4). So the home agent sends the traffic over another uplink.
//!
//! Left out: bindings to the home link beside others (the H flag, 5.6). On the home link the router
//! de-registers all bindings, as it does without Binding Identifiers.

use std::net::IpAddr;
use std::time::Duration;

use carnet_base::Time;

use super::acknowledged_registration::Registration;
use super::binding_entry::{
    BindingUpdateContent, BindingUpdateListEntry, MAX_OUTSTANDING_UPDATES, UpdatedBinding,
};
use super::exchange::{Exchange, ExchangeEvent};
use super::retransmission::INITIAL_BINDACK_TIMEOUT;
use super::{BindingUpdateList, UplinkStates};
use crate::is_newer;

/// Time that the first Binding Update waits for further uplinks, because at a start they come up one after
/// the other.
const UPDATE_GATHERING_TIME: Duration = Duration::from_millis(10);
/// Pause between Binding Updates from different uplinks until one is answered (RFC 8305 5).
pub(crate) const PAUSE_BETWEEN_UPLINKS: Duration = Duration::from_millis(250);
/// Divisor of the lifetime: a binding whose renewal is due within this part of the lifetime is renewed
/// together with others.
const JOINT_RENEWAL_DIVISOR: u32 = 4;
/// Longest time to wait for an answer over a full uplink, which works but loses many Binding Updates. RFC
/// 6275 11.8 doubles the time only to protect a home agent that does not answer.
pub(crate) const MAX_ANSWER_TIME_ON_FULL_UPLINK: Duration = Duration::from_secs(1);

/// A Binding Update that the router must send now.
pub(crate) struct DueUpdate {
    /// O flag: the home agent removes all other bindings.
    pub(crate) replaces_all_bindings: bool,
    pub(crate) is_removal: bool,
    /// Uplink and care-of address to send the update from.
    pub(crate) sent_from: (usize, IpAddr),
    pub(crate) updated_bindings: Vec<UpdatedBinding>,
}

impl BindingUpdateList {
    /// Returns a care-of address from which the router may send Binding Updates of other uplinks. It is on
    /// the best registered uplink that works, except the uplinks in `except`; `None` if no such uplink
    /// exists.
    fn working_care_of_address(&self, links: &dyn UplinkStates, except: &[usize]) -> Option<(usize, IpAddr)> {
        let mut living: Vec<(bool, u8, usize, IpAddr)> = self
            .identified_entries
            .iter()
            .filter(|binding| !except.contains(&binding.uplink))
            .filter_map(|binding| {
                let address = binding.care_of_address()?;
                let attached = links.has_care_of_address(binding.uplink, address);
                let usable = attached && !links.has_path_failed(binding.uplink);
                usable.then(|| {
                    let proving = links.is_path_recovering(binding.uplink);
                    (proving, links.priority(binding.uplink), binding.uplink, address)
                })
            })
            .collect();
        living.sort_by_key(|(proving, priority, uplink, _)| (*proving, *priority, *uplink));
        living.first().map(|(_, _, uplink, address)| (*uplink, *address))
    }

    /// Returns whether any uplink except `uplink` is registered and works.
    pub(crate) fn is_other_uplink_working(&self, links: &dyn UplinkStates, uplink: usize) -> bool {
        self.working_care_of_address(links, &[uplink]).is_some()
    }

    /// Makes the outstanding requests of the other uplinks due soon, when the last working uplink has failed.
    /// Their retransmission pauses may have grown long in the meantime. One of them may even be registered,
    /// if only its acknowledgement was lost.
    pub(crate) fn make_requests_due_without_other_uplink(&mut self, links: &dyn UplinkStates, now: Time) {
        let lives = self.is_other_uplink_working(links, usize::MAX);
        if !std::mem::replace(&mut self.had_working_binding, lives) || lives {
            return;
        }
        for index in 0..self.identified_entries.len() {
            let silent = links.has_path_failed(self.identified_entries[index].uplink);
            let binding = &mut self.identified_entries[index];
            if silent {
                binding.end_request_hold();
            }
            binding.make_request_due(now);
            if let Some(request) = binding.outstanding_request_mut() {
                request.retransmission.limit_timeout(INITIAL_BINDACK_TIMEOUT);
            }
        }
    }

    /// Returns when the next request, renewal or expiry of a binding with identifier is due; `None` if none
    /// is.
    pub(crate) fn next_update_at(&self, links: &dyn UplinkStates, now: Time) -> Option<Time> {
        let can_remove =
            |binding: &&BindingUpdateListEntry| self.is_other_uplink_working(links, binding.uplink);
        let removals =
            self.identified_entries.iter().filter(can_remove).filter_map(|b| b.removal_exchange.as_ref());
        let requests =
            self.identified_entries.iter().filter_map(|binding| binding.registration_exchange.as_ref());
        let ends =
            self.identified_entries.iter().filter_map(|binding| binding.registration.map(|r| r.expires_at));
        let usable = |b: &&BindingUpdateListEntry| !links.care_of_addresses(b.uplink).is_empty();
        let refresh_at =
            |binding: &BindingUpdateListEntry| binding.refresh_at(links.is_path_saturated(binding.uplink));
        let refreshes = self.identified_entries.iter().filter(usable).filter_map(refresh_at);
        removals
            .chain(requests)
            .filter_map(Exchange::next_transmission)
            .chain(ends)
            .chain(refreshes)
            // Leave out times that are over: such a request waits for a change of the uplinks, not for a
            // time.
            .filter(|at| *at > now)
            .min()
    }

    /// Creates requests for the differences between the uplinks and the registrations.
    pub(crate) fn request_missing_changes(
        &mut self,
        links: &dyn UplinkStates,
        now: Time,
        carrier: Option<usize>,
        tells_flows: &dyn Fn(u16) -> bool,
    ) {
        for index in 0..self.identified_entries.len() {
            let uplink = self.identified_entries[index].uplink;
            let candidates = links.care_of_addresses(uplink);
            let held = self.identified_entries[index].request_held_until().is_some_and(|until| until > now);
            let Some(first) = candidates.first().copied() else {
                self.give_up_request(links, now, index);
                continue;
            };
            let priority = links.priority(uplink);
            let is_full = links.is_path_saturated(uplink);
            let tells = self.identified_entries[index]
                .outstanding_request()
                .and_then(Exchange::last_transmission)
                .is_some_and(|sent| tells_flows(sent.sequence));
            let wants_flows = carrier == Some(index) || tells;
            let binding = &mut self.identified_entries[index];
            if !held {
                binding.end_request_hold();
            }
            let due = binding.refresh_at(is_full).is_some_and(|at| at <= now);
            let differs = binding.is_request_due_again
                || due
                || wants_flows
                || binding.care_of_address() != Some(first)
                || binding.bid_priority != priority;
            if !differs {
                binding.take_outstanding_request();
            } else if binding.outstanding_request().is_some() {
                // Start a new request if the care-of address or its router has changed. A Binding Update to
                // the router of a former link is lost, so a retransmission would not help.
                let is_moot = |address: IpAddr| {
                    let router = links.next_hop(uplink, address);
                    !candidates.contains(&address)
                        || binding
                            .outstanding_request()
                            .is_some_and(|request| request.used_other_router(address, router))
                };
                if binding.requested_care_of_address().is_some_and(is_moot) {
                    binding.begin_request(now, false);
                }
            } else if !held {
                let first = binding.registration.is_none();
                let start = if first && !self.multiple_care_of_support.are_agent_bindings_exact {
                    now + UPDATE_GATHERING_TIME
                } else {
                    now
                };
                binding.begin_request(start, first);
            }
        }
    }

    /// Gives up an uplink that cannot be used. Removes its binding at the home agent over another uplink, if
    /// there is one.
    fn give_up_request(&mut self, links: &dyn UplinkStates, now: Time, index: usize) {
        let uplink = self.identified_entries[index].uplink;
        let others = self.is_other_uplink_working(links, uplink);
        if self.identified_entries[index].may_agent_have_binding() && others {
            self.end_binding(now, index);
        }
        // Drop the request, because the uplink has no address to register. Remove the binding if the request
        // was sent: the home agent may have accepted it although the acknowledgement was lost.
        let request = self.identified_entries[index].take_outstanding_request();
        let binding = &mut self.identified_entries[index];
        if !others
            && request.is_some_and(|request| request.was_transmitted())
            && binding.removal_exchange.is_none()
        {
            binding.begin_removal(now);
        }
    }

    /// Ends a binding, and requests its removal from the home agent.
    pub(crate) fn end_binding(&mut self, now: Time, index: usize) {
        let binding = &mut self.identified_entries[index];
        let known = binding.may_agent_have_binding();
        binding.take_outstanding_request();
        if known {
            binding.begin_removal(now);
        }
        let registration = binding.registration.take();
        for update in &mut self.outstanding_updates {
            update.updated_bindings.retain(|member| member.binding_index != index);
        }
        if let Some(registration) = registration {
            self.accept_former_address(now, registration.care_of_address);
        }
    }

    /// Removes the binding of the uplink that failed last, when another uplink works. Otherwise the home
    /// agent may still send packets over the failed uplink.
    pub(crate) fn remove_bindings_of_failed_uplinks(&mut self, links: &dyn UplinkStates, now: Time) {
        for index in 0..self.identified_entries.len() {
            let uplink = self.identified_entries[index].uplink;
            let kept = self.identified_entries[index].registration.is_some() && links.has_path_failed(uplink);
            if kept && self.is_other_uplink_working(links, uplink) {
                self.end_binding(now, index);
                // Register the uplink again without a pause: all paths had failed, so perhaps the home agent
                // was unreachable.
                self.identified_entries[index].is_request_due_again = true;
            }
        }
    }

    /// Returns the Binding Update to send now, the most urgent first; `None` if none is due.
    pub(crate) fn next_due_update(&mut self, links: &dyn UplinkStates, now: Time) -> Option<DueUpdate> {
        self.draft_removal(links, now).or_else(|| self.draft_registration(links, now))
    }

    fn draft_removal(&self, links: &dyn UplinkStates, now: Time) -> Option<DueUpdate> {
        if !self.multiple_care_of_support.are_agent_bindings_exact {
            return None;
        }
        let due: Vec<usize> = (0..self.identified_entries.len())
            .filter(|&index| {
                self.identified_entries[index].removal_exchange.as_ref().is_some_and(|r| r.is_due(now))
            })
            .collect();
        let except: Vec<usize> = due.iter().map(|&index| self.identified_entries[index].uplink).collect();
        let via = self.working_care_of_address(links, &except)?;
        let take = if self.multiple_care_of_support.supports_bulk_registration { due.len() } else { 1 };
        let members: Vec<UpdatedBinding> = due
            .into_iter()
            .take(take)
            .map(|binding| UpdatedBinding { binding_index: binding, care_of_address: via.1, bid_priority: 0 })
            .collect();
        (!members.is_empty()).then_some(DueUpdate {
            replaces_all_bindings: false,
            is_removal: true,
            sent_from: via,
            updated_bindings: members,
        })
    }

    fn draft_registration(&mut self, links: &dyn UplinkStates, now: Time) -> Option<DueUpdate> {
        let member = |router: &mut BindingUpdateList, index: usize| {
            let binding = &mut router.identified_entries[index];
            binding.update_care_of_addresses(links);
            binding.outstanding_request()?;
            let care_of_address = binding.next_care_of_address()?;
            Some(UpdatedBinding {
                binding_index: index,
                care_of_address,
                bid_priority: links.priority(binding.uplink),
            })
        };
        let mut order: Vec<usize> = (0..self.identified_entries.len()).collect();
        let is_full = |router: &BindingUpdateList, index: usize| {
            links.is_path_saturated(router.identified_entries[index].uplink)
        };
        order.sort_by_key(|&index| {
            (is_full(self, index), links.priority(self.identified_entries[index].uplink), index)
        });
        let due = |router: &BindingUpdateList, index: usize| {
            router.identified_entries[index].outstanding_request().is_some_and(|request| request.is_due(now))
        };
        let soon = |router: &BindingUpdateList, index: usize| {
            router.identified_entries[index].registration.is_some_and(|r| {
                r.expires_at.saturating_since(now) <= r.lifetime / JOINT_RENEWAL_DIVISOR + r.lifetime / 4
            })
        };
        // This Binding Update waits for seconds in the queue of a full uplink. A Binding Update with a higher
        // number that leaves later over another uplink would arrive before it. So first renew all bindings of
        // other uplinks that are due within half a lifetime.
        let begins = |router: &BindingUpdateList, index: usize| {
            router.identified_entries[index]
                .outstanding_request()
                .is_some_and(|request| !request.was_transmitted())
        };
        if order.iter().any(|&index| is_full(self, index) && due(self, index) && begins(self, index)) {
            for &index in &order {
                let binding = &self.identified_entries[index];
                let lasts = |at: Time| binding.registration.is_some_and(|r| at <= now + r.lifetime / 2);
                let is_due_meanwhile = binding.refresh_at(false).is_some_and(lasts);
                if binding.request_held_until().is_none() && !is_full(self, index) && is_due_meanwhile {
                    let binding = &mut self.identified_entries[index];
                    binding.is_request_due_again = true;
                    if binding.registration_exchange.is_none() {
                        binding.begin_request(now, false);
                    }
                }
            }
        }
        let first = order.iter().copied().find(|&index| due(self, index))?;
        let lead = member(self, first)?;
        let overwrite = !self.multiple_care_of_support.are_agent_bindings_exact;
        let mut members = vec![lead];
        // RFC 5648 8.1: the first registration of an IPv4 care-of address needs its own Binding Update. An
        // uplink over which the home agent has not answered yet also gets its own Binding Update.
        let fit = |router: &BindingUpdateList, index: usize, care_of_address: IpAddr| {
            let binding = &router.identified_entries[index];
            care_of_address.is_ipv6()
                && !router.is_trying_ipv6(index, care_of_address)
                && !links.has_path_failed(binding.uplink)
                && binding
                    .outstanding_request()
                    .is_none_or(|request| request.retransmission.has_no_unanswered_transmission())
        };
        if self.multiple_care_of_support.supports_bulk_registration
            && links.sends_heartbeats()
            && fit(self, first, lead.care_of_address)
        {
            for &index in order.iter().filter(|&&index| index != first) {
                if self.identified_entries[index].outstanding_request().is_none() && soon(self, index) {
                    self.identified_entries[index].begin_request(now, false);
                }
                let Some(other) = member(self, index).filter(|_| due(self, index) || overwrite) else {
                    continue;
                };
                if fit(self, index, other.care_of_address) {
                    members.push(other);
                }
            }
        }
        let via = self.care_of_address_to_send_from(links, &members)?;
        Some(DueUpdate {
            replaces_all_bindings: overwrite,
            is_removal: false,
            sent_from: via,
            updated_bindings: members,
        })
    }

    /// Returns the uplink and care-of address to send a Binding Update from. They are those of its first
    /// registered binding, otherwise those of its first binding.
    fn care_of_address_to_send_from(
        &self,
        links: &dyn UplinkStates,
        members: &[UpdatedBinding],
    ) -> Option<(usize, IpAddr)> {
        let own = |member: &UpdatedBinding| {
            (self.identified_entries[member.binding_index].uplink, member.care_of_address)
        };
        let registered = members.iter().find(|member| {
            self.identified_entries[member.binding_index].care_of_address() == Some(member.care_of_address)
        });
        let via = registered.or(members.first()).map(own)?;
        // A renewal of IPv6 care-of addresses may leave over another uplink (RFC 5648 5.3). So it need not
        // wait in the queue of a full uplink.
        let renews = |member: &UpdatedBinding| {
            member.care_of_address.is_ipv6()
                && self.identified_entries[member.binding_index].care_of_address()
                    == Some(member.care_of_address)
        };
        let full: Vec<usize> =
            (0..links.uplink_count()).filter(|&uplink| links.is_path_saturated(uplink)).collect();
        let spared = || self.working_care_of_address(links, &full).filter(|(_, address)| address.is_ipv6());
        if full.contains(&via.0) && members.iter().all(renews) { spared().or(Some(via)) } else { Some(via) }
    }

    /// Makes every binding due for registration, because the home agent may have lost them.
    pub(crate) fn register_all_again(&mut self, now: Time) {
        for binding in &mut self.identified_entries {
            if binding.may_agent_have_binding() {
                binding.is_request_due_again = true;
                binding.resume_request(now);
            }
        }
    }

    /// Makes requests due at once that were sent more than `interval` ago. The caller does so if packets wait
    /// and nothing is registered. Returns whether there are such requests.
    pub(crate) fn make_old_requests_due(&mut self, now: Time, interval: Duration) -> bool {
        let mut due = false;
        for request in
            self.identified_entries.iter_mut().filter_map(BindingUpdateListEntry::outstanding_request_mut)
        {
            if request.retransmission.last_sent_at().is_some_and(|at| now.saturating_since(at) >= interval) {
                request.apply_event(now, ExchangeEvent::Haste);
                due = true;
            }
        }
        due
    }

    /// Removes the other outstanding updates that concern the bindings of an acknowledged update (RFC 8305
    /// 5). If a later update had another care-of address, it may replace the acknowledged one, so the binding
    /// is registered again.
    pub(crate) fn remove_superseded_updates(&mut self, update: &BindingUpdateContent) {
        for member in &update.updated_bindings {
            let mut overtaken = false;
            for other in &mut self.outstanding_updates {
                let later = is_newer(other.sequence, update.sequence);
                overtaken |= later
                    && other.updated_bindings.iter().any(|m| {
                        m.binding_index == member.binding_index && m.care_of_address != member.care_of_address
                    });
                overtaken |= later
                    && other.replaces_all_bindings
                    && other.updated_bindings.iter().all(|m| m.binding_index != member.binding_index);
                other.updated_bindings.retain(|m| m.binding_index != member.binding_index);
            }
            // The binding was removed after this update, so the acknowledgement does not make it valid.
            let removed = self.identified_entries[member.binding_index].removal_sequence.take();
            overtaken |= removed.is_some_and(|it| is_newer(it, update.sequence));
            self.identified_entries[member.binding_index].is_request_due_again = overtaken;
        }
    }

    pub(crate) fn retry_binding(&mut self, now: Time, index: usize) {
        self.identified_entries[index].begin_request(now, false);
        self.identified_entries[index].is_request_due_again = true;
    }

    pub(crate) fn retry_corrected_binding(&mut self, now: Time, index: usize) -> bool {
        self.identified_entries[index]
            .outstanding_request_mut()
            .is_some_and(|request| request.retry_immediately(now))
    }

    /// Delays the next request for a binding by `after`.
    pub(crate) fn hold_binding_request(&mut self, now: Time, index: usize, after: Duration) {
        self.identified_entries[index].registration_exchange = Some(Exchange::new_held_until(now + after));
        // Register the binding again after the delay.
        self.identified_entries[index].is_request_due_again = true;
    }

    /// Makes the bindings of a Binding Update due at once, because the home agent asked for a corrected one.
    /// Returns false if the home agent has asked too often for each of the bindings.
    pub(super) fn retry_corrected_bindings(&mut self, now: Time, update: &BindingUpdateContent) -> bool {
        let mut patient = false;
        for member in &update.updated_bindings {
            let binding = &mut self.identified_entries[member.binding_index];
            let request = if update.is_removal {
                binding.removal_exchange.as_mut()
            } else {
                binding.outstanding_request_mut()
            };
            if let Some(request) = request
                && request.retry_immediately(now)
            {
                request.retransmission.restart_rounds();
                patient = true;
            }
        }
        patient
    }

    /// Records that the home agent has exactly the bindings of this router. If the Binding Update has
    /// replaced the registration without identifier, returns that registration, otherwise `None`.
    pub(crate) fn record_exact_bindings(
        &mut self,
        now: Time,
        update: &BindingUpdateContent,
    ) -> Option<Registration> {
        if !self.multiple_care_of_support.are_agent_bindings_exact {
            for binding in &mut self.identified_entries {
                // Requests that waited for the first acknowledgement are due now.
                if let Some(request) =
                    binding.outstanding_request_mut().filter(|request| !request.was_transmitted())
                {
                    request.schedule_transmission(now);
                }
            }
        }
        self.multiple_care_of_support.are_agent_bindings_exact = true;
        self.back_off_time = None;
        if !update.replaces_all_bindings {
            return None;
        }
        for (index, binding) in self.identified_entries.iter_mut().enumerate() {
            let older = binding.registration.is_some_and(|r| is_newer(update.sequence, r.sequence));
            binding.is_request_due_again |=
                older && update.updated_bindings.iter().all(|member| member.binding_index != index);
        }
        self.entry_without_identifier.registration.take()
    }

    /// Records that a Binding Update of entries with identifiers was sent.
    pub(super) fn record_sent_bindings(
        &mut self,
        links: &dyn UplinkStates,
        now: Time,
        update: &BindingUpdateContent,
    ) {
        let sequence = update.sequence;
        for member in update.updated_bindings.iter().filter(|_| update.is_removal) {
            self.identified_entries[member.binding_index].registration = None;
            self.identified_entries[member.binding_index].removal_sequence = Some(sequence);
        }
        let full: Vec<usize> =
            (0..links.uplink_count()).filter(|&uplink| links.is_path_saturated(uplink)).collect();
        for member in &update.updated_bindings {
            let binding = &mut self.identified_entries[member.binding_index];
            let rivals = if update.is_removal { 1 } else { binding.simultaneously_tried_addresses().len() };
            let is_full = full.contains(&binding.uplink);
            let request = if update.is_removal {
                binding.removal_exchange.as_mut()
            } else {
                binding.outstanding_request_mut()
            };
            if let Some(request) = request {
                if !update.is_removal && update.sent_from.1 == member.care_of_address {
                    request.record_router(
                        update.sent_from.1,
                        links.next_hop(update.sent_from.0, update.sent_from.1),
                    );
                }
                request.record_transmission(update.transmission_for(member.care_of_address));
                request.apply_event(now, ExchangeEvent::Transmission { rivals });
                if is_full {
                    request.retransmission.limit_timeout(MAX_ANSWER_TIME_ON_FULL_UPLINK);
                }
            }
            binding.drop_exhausted_removal();
            if let Some(removal) = binding.removal_exchange.as_mut().filter(|_| !update.is_removal) {
                // Delay the removal: if the home agent accepts the registration, it replaces the binding, and
                // the removal is no longer necessary.
                removal.apply_event(now, ExchangeEvent::Delay(now + PAUSE_BETWEEN_UPLINKS));
            }
        }
        if update.replaces_all_bindings {
            for request in
                self.identified_entries.iter_mut().filter_map(BindingUpdateListEntry::outstanding_request_mut)
            {
                request.apply_event(now, ExchangeEvent::Delay(now + PAUSE_BETWEEN_UPLINKS));
            }
        }
    }

    /// Stores a Binding Update until its acknowledgement arrives.
    pub(crate) fn store_outstanding_update(&mut self, update: BindingUpdateContent) {
        if self.outstanding_updates.len() == MAX_OUTSTANDING_UPDATES {
            self.outstanding_updates.pop_front();
        }
        self.outstanding_updates.push_back(update);
    }
}
