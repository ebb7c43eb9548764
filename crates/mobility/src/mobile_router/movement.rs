//! Movement (RFC 6275 11.5, RFC 3963 5.8): takes over the state of the uplinks, and selects the care-of
//! addresses to register.
//!
//! The kernel, modems and other programs report interfaces, messages of routers, signals, volumes and
//! capacities. After each change of an uplink the router selects the care-of addresses again. Then it sends
//! the Binding Updates that register them (see `binding_update_sender`).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{Interface, LinkMessage, Time, WallTime};
use carnet_wire::{icmpv6, nd};

use super::captive_portal::{self, PortalProbe, PortalProbes};
use super::unanswered_uplinks::{AgentResponse, is_exchange_given_up};
use super::uplink::{VOLUME_USED_UP, ipv4_care_of_address_of};
use super::{Attachment, InterfaceOctets, MobileRouter, MobileRouterTimer, StoredVolume, Uplink};
use crate::binding_update_list::{self, RequestPurpose};
use crate::{Event, MobilityDrop, Output, UDP_PORT};

/// Time for which an uplink must be up again before it replaces a working one.
const UPLINK_SETTLING_TIME: Duration = Duration::from_secs(1);

impl MobileRouter {
    /// Takes over the state of an interface.
    pub fn handle_interface(&mut self, now: Time, wall: WallTime, interface: &Interface) {
        self.assert_drained();
        let Some(index) = self.uplinks.index_of(&interface.name) else {
            return;
        };
        let before = self.uplinks[index].attachment;
        if self.uplinks[index].handle_interface(interface.clone(), &self.config) {
            self.send_router_solicitation(now, index);
        }
        if self.config.probes_portals && self.timers.get(MobileRouterTimer::Portal).is_none() {
            self.timers.set_deadline(MobileRouterTimer::Portal, now);
        }
        self.set_candidate_timer(now, index);
        self.handle_changed_attachment(now, wall, index, before);
    }

    /// Handles the removal of an interface.
    pub fn handle_interface_gone(&mut self, now: Time, wall: WallTime, name: &str) {
        self.assert_drained();
        let Some(index) = self.uplinks.index_of(name) else { return };
        let before = self.uplinks[index].attachment;
        self.uplinks[index].handle_interface_gone();
        self.timers.stop_timer(MobileRouterTimer::Solicit(index));
        self.set_candidate_timer(now, index);
        self.handle_changed_attachment(now, wall, index, before);
    }

    /// Handles an ICMPv6 message from an uplink. A Router Advertisement may show a movement. On the home link
    /// neighbours may solicit hosts of the mobile network.
    ///
    /// # Errors
    /// Returns why the message had no effect.
    pub fn handle_link_message(
        &mut self,
        now: Time,
        wall: WallTime,
        message: &LinkMessage,
    ) -> Result<(), MobilityDrop> {
        self.assert_drained();
        let Some(index) = self.uplinks.index_of(&message.interface) else {
            return Ok(());
        };
        if message.message.first() == Some(&icmpv6::message_type::NEIGHBOR_SOLICITATION) {
            if self.is_at_home() && self.uplinks.target_uplink == Some(index) {
                let answer = self.config.answer_on_home_link(&self.uplinks[index], message)?;
                self.outputs.extend(answer.map(Output::Link));
            }
            return Ok(());
        }
        let kind = message.message.first().copied().unwrap_or_default();
        let is_link_local = message.source.is_unicast_link_local();
        // RFC 4861 6.1.2 and 7.1.2: Router Advertisements come from a link-local address. Neighbor
        // Advertisements and Echo Replies matter only from a link-local address. No router forwards packets
        // from such an address, so an Echo Reply needs no check of the hop limit.
        match kind {
            icmpv6::message_type::ROUTER_ADVERTISEMENT => {}
            icmpv6::message_type::NEIGHBOR_ADVERTISEMENT | icmpv6::message_type::ECHO_REPLY
                if is_link_local => {}
            _ => return Ok(()),
        }
        if !is_link_local || (kind != icmpv6::message_type::ECHO_REPLY && message.hop_limit != nd::HOP_LIMIT)
        {
            return Err(MobilityDrop::NeighborDiscovery);
        }
        icmpv6::verify_checksum(message.source, message.destination, &message.message)
            .map_err(|_| MobilityDrop::BadChecksum)?;
        let before = self.uplinks[index].attachment;
        let portal = self.uplinks[index].announced_portal.clone();
        let uplink = &mut self.uplinks[index];
        match kind {
            icmpv6::message_type::ROUTER_ADVERTISEMENT => {
                let question = uplink.handle_router_advertisement(now, message, &self.config);
                self.outputs.extend(question.map(Output::Link));
            }
            icmpv6::message_type::ECHO_REPLY => uplink.handle_echo_reply(now, message, &self.config),
            _ => uplink.handle_neighbor_advertisement(now, message, &self.config),
        }
        self.set_candidate_timer(now, index);
        let uplink = &self.uplinks[index];
        if let Some(announced) =
            uplink.announced_portal.as_ref().filter(|_| uplink.announced_portal != portal)
            && self.portal_prober.event_limit.try_take_token(now)
        {
            let (uplink, uri) = (uplink.config.interface.clone(), announced.uri.clone());
            self.outputs.push_back(Output::Event(Event::CaptivePortal { uplink, uri, redirects: false }));
        }
        self.handle_changed_attachment(now, wall, index, before);
        Ok(())
    }

    /// Sets the router's own addresses in networks of outer routers on an uplink, the preferred one first.
    /// Each has a flag that says whether it may be a care-of address (see [`crate::nesting`]).
    pub fn handle_direct_addresses(
        &mut self,
        now: Time,
        wall: WallTime,
        index: usize,
        addresses: Vec<(Ipv6Addr, bool)>,
    ) {
        let Some(uplink) = self.uplinks.get_mut(index) else { return };
        let before = uplink.attachment;
        if uplink.set_direct_addresses(addresses, &self.config) {
            let same = uplink.attachment == before;
            self.handle_changed_attachment(now, wall, index, before);
            if same {
                self.evaluate_uplinks(
                    now,
                    wall,
                    "the addresses in the networks of outer mobile routers changed",
                );
            }
        }
    }

    pub(super) fn send_router_solicitation(&mut self, now: Time, index: usize) {
        if let Some((message, again)) = self.uplinks.get_mut(index).and_then(Uplink::next_router_solicitation)
        {
            self.outputs.push_back(Output::Link(message));
            self.timers.set_deadline(MobileRouterTimer::Solicit(index), now + again);
        }
    }

    /// Sets the timer for the next check of an uplink's routers and candidates.
    pub(super) fn set_candidate_timer(&mut self, now: Time, index: usize) {
        if let Some(uplink) = self.uplinks.get_mut(index) {
            uplink.watch_home_router(now, &self.config);
        }
        match self.uplinks.get(index).and_then(Uplink::next_deadline) {
            Some(at) => self.timers.set_deadline(MobileRouterTimer::Candidates(index), at),
            None => self.timers.stop_timer(MobileRouterTimer::Candidates(index)),
        }
    }

    pub(super) fn review_candidates(&mut self, now: Time, wall: WallTime, index: usize) {
        let Some(uplink) = self.uplinks.get_mut(index) else { return };
        let (before, order) = (uplink.attachment, uplink.care_of_addresses());
        let (solicitations, seeking) = uplink.handle_timeout(now, &self.config);
        self.outputs.extend(solicitations.into_iter().flatten().map(Output::Link));
        if seeking {
            self.send_router_solicitation(now, index);
        }
        self.set_candidate_timer(now, index);
        let reordered = self.uplinks[index].care_of_addresses() != order;
        if reordered && self.uplinks[index].attachment == before {
            self.evaluate_uplinks(now, wall, "a care-of address is tried again");
        }
        self.handle_changed_attachment(now, wall, index, before);
    }

    /// Handles a care-of address over which the home agent does not answer: selects another candidate, and
    /// solicits routers. Returns whether a candidate remains that has not failed.
    pub(super) fn handle_failed_candidate(&mut self, now: Time, index: usize, address: IpAddr) -> bool {
        let another = self.uplinks[index].record_failed_candidate(now, address, &self.config);
        let is_waiting = self.timers.get(MobileRouterTimer::Solicit(index)).is_some();
        if address.is_ipv6() && !(is_waiting && self.uplinks[index].has_solicited()) {
            self.send_router_solicitation(now, index);
        }
        self.set_candidate_timer(now, index);
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        another
    }

    /// Determines the attachment of an uplink again, because a reason not to use it may have changed.
    fn renew_attachment(&mut self, now: Time, wall: WallTime, index: usize) {
        let before = self.uplinks[index].attachment;
        self.uplinks[index].update_attachment(&self.config);
        self.set_candidate_timer(now, index);
        self.handle_changed_attachment(now, wall, index, before);
    }

    pub(super) fn handle_changed_attachment(
        &mut self,
        now: Time,
        wall: WallTime,
        index: usize,
        before: Attachment,
    ) {
        let after = self.uplinks[index].attachment;
        let renewed = self.uplinks[index].take_new_candidate();
        if before == after {
            return self.verify_router(now, wall, index);
        }
        let was = care_of_addresses(before);
        if self.uplinks[index].ipv4_care_of_address() != ipv4_care_of_address_of(before) {
            self.choose_udp_port(index);
        }
        if let Some(registration) = self.binding_update_list.entry_without_identifier.registration
            && was.contains(&Some(registration.care_of_address))
            && !self.uplinks[index].has_care_of_address(registration.care_of_address)
        {
            self.accept_former_address(now, registration.care_of_address);
        }
        if was != care_of_addresses(after) {
            self.handle_moved_binding(now, index, before);
            // If only the order of the candidates has changed, the measurements and failures of this network
            // stay valid.
            if renewed || self.has_lost_path_address(index) {
                self.handle_moved_path(index);
                self.uplinks[index].forget_capacity();
                self.uplinks[index].portal_probes = PortalProbes::default();
                self.end_demotion(index);
                self.binding_update_list.back_off_time = None;
                self.reported_handovers.last_change = None;
            }
        }
        let reason = match (before, after) {
            (Attachment::Down(_), _) => {
                // At the start no uplink works yet, so the uplink need not wait.
                self.uplinks[index].settling_until = now + UPLINK_SETTLING_TIME;
                "an uplink came up"
            }
            (_, Attachment::Down(reason)) => reason,
            _ => "the care-of address changed",
        };
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        self.evaluate_uplinks(now, wall, reason);
        self.verify_router(now, wall, index);
    }

    /// Renews a registration whose packets leave by another router now, because an attacker may have forged
    /// the advertisements of the new router. If the home agent does not answer, the next router of the
    /// address is used.
    fn verify_router(&mut self, now: Time, wall: WallTime, index: usize) {
        if self.uses_binding_identifiers() {
            let Some(binding) = self.binding_update_list.entry_of_uplink(index) else { return };
            let registered = self.binding_update_list.identified_entries[binding].care_of_address();
            if registered.is_some_and(|address| self.is_address_unverified(index, address)) {
                self.binding_update_list.identified_entries[binding].is_request_due_again = true;
                self.reconcile_bindings(now, wall);
            }
        } else if let Some(registration) =
            self.binding_update_list.entry_without_identifier.registration.filter(|it| it.uplink == index)
            && self.is_address_unverified(index, registration.care_of_address)
        {
            self.renew_registration(now, wall);
        }
    }

    /// Returns whether packets from a care-of address go to an unproven router. The home agent has then not
    /// acknowledged this address over that router since the link came up.
    fn is_address_unverified(&self, index: usize, address: IpAddr) -> bool {
        let uplink = &self.uplinks[index];
        uplink.has_care_of_address(address)
            && !uplink.proven_candidates.is_empty()
            && !uplink.is_proven(address)
    }

    /// Selects the UDP port of an uplink that has got an IPv4 address. It differs from the ports of other
    /// uplinks with the same address. Keeps the present port if possible.
    fn choose_udp_port(&mut self, index: usize) {
        let Some(address) = self.uplinks[index].ipv4_care_of_address() else { return };
        let others = self.uplinks.iter().enumerate().filter(|(other, _)| *other != index);
        let taken: Vec<u16> = others
            .filter(|(_, uplink)| uplink.ipv4_care_of_address() == Some(address))
            .map(|(_, uplink)| uplink.udp_port)
            .collect();
        let uplink = &mut self.uplinks[index];
        if taken.contains(&uplink.udp_port) {
            let free = (UDP_PORT..=u16::MAX).find(|port| !taken.contains(port));
            uplink.udp_port = free.unwrap_or(UDP_PORT);
        }
    }

    /// Selects the uplink to register: the operator's choice, otherwise an uplink on the home link, otherwise
    /// the best by priority. Uplinks over which the home agent does not answer come last. An attached present
    /// uplink stays selected if the best other uplink has only equal priority or has just come up again.
    fn choose_uplink(&mut self, now: Time) -> Option<usize> {
        let usable = |index: &usize| !matches!(self.uplinks[*index].attachment, Attachment::Down(_));
        if let Some(forced) = self.uplinks.forced_uplink.filter(usable) {
            return Some(forced);
        }
        let current = self.uplinks.target_uplink.filter(usable);
        let rank = |index: &usize| {
            let uplink = &self.uplinks[*index];
            let foreign = !matches!(uplink.attachment, Attachment::Home { .. });
            let used_up = uplink.is_volume_used_up();
            let (priority, cost) = (uplink.config.priority, uplink.config.cost);
            let demoted = uplink.demoted_until.is_some() || (!foreign && uplink.is_home_link_doubted());
            (
                demoted,
                used_up,
                uplink.has_poor_signal,
                foreign,
                priority,
                cost,
                Some(*index) != current,
                *index,
            )
        };
        let best = (0..self.uplinks.len()).filter(usable).min_by_key(rank)?;
        match current {
            Some(current)
                if current != best
                    && self.uplinks[best].settling_until > now
                    && !self.should_leave_uplink(current) =>
            {
                self.timers.set_deadline(MobileRouterTimer::Settle, self.uplinks[best].settling_until);
                Some(current)
            }
            _ => Some(best),
        }
    }

    /// Sends the Binding Updates that the present attachments of the uplinks require.
    pub(super) fn evaluate_uplinks(&mut self, now: Time, wall: WallTime, reason: &str) {
        if self.is_stopping {
            return;
        }
        self.uplinks.target_uplink = self.choose_uplink(now);
        if self.config.home_agent.is_unspecified() {
            return self.handle_missing_home_agent(now, reason);
        }
        let Some(target) = self.uplinks.target_uplink else {
            self.handle_home_departure();
            self.binding_update_list.abandon_request_without_identifier();
            self.set_exchange_timer();
            self.timers.stop_timer(MobileRouterTimer::Refresh);
            self.report_forwarding_change(reason);
            return;
        };
        match self.uplinks[target].attachment {
            Attachment::Home { .. } => self.deregister_at_home(now, wall, target),
            Attachment::Foreign { .. } if self.has_identifier(target) => {
                self.handle_home_departure();
                self.register_bindings(now, wall);
            }
            Attachment::Foreign { .. } => {
                self.handle_home_departure();
                self.timers.stop_timer(MobileRouterTimer::Bindings);
                self.register_uplink(now, wall, target);
            }
            Attachment::Down(_) => {}
        }
        self.report_forwarding_change(reason);
    }

    /// Sets the state while no home agent is known. On the home link the router works without a home agent,
    /// because it has no registration to end.
    fn handle_missing_home_agent(&mut self, now: Time, reason: &str) {
        let home = self
            .uplinks
            .target_uplink
            .filter(|&target| matches!(self.uplinks[target].attachment, Attachment::Home { .. }));
        if home.is_none() {
            self.handle_home_departure();
        } else if !std::mem::replace(&mut self.home_presence.at_home, true) {
            self.handle_return_home(now);
        }
        self.report_forwarding_change(reason);
    }

    /// Returns whether traffic should leave this uplink at once. Reasons are a home agent that did not
    /// answer, a poor signal, and a used-up volume.
    fn should_leave_uplink(&self, index: usize) -> bool {
        let uplink = &self.uplinks[index];
        uplink.demoted_until.is_some() || uplink.has_poor_signal || uplink.is_volume_used_up()
    }

    /// Marks uplinks that have just come up, which do not replace a working one yet.
    pub(super) fn mark_settling_uplinks(&mut self, now: Time) {
        let mut next = None;
        for index in 0..self.uplinks.len() {
            let settling_until = self.uplinks[index].settling_until;
            let settling = settling_until > now
                && self.binding_update_list.is_other_uplink_working(&self.uplinks, index);
            self.uplinks[index].is_settling = settling;
            if settling {
                next = Some(next.map_or(settling_until, |at: Time| at.min(settling_until)));
            }
        }
        if let Some(at) = next {
            self.timers.set_deadline(MobileRouterTimer::Settle, at);
        }
    }

    /// Returns whether the outstanding Binding Update has had no answer for long enough to try another
    /// uplink.
    pub(super) fn is_uplink_silent(&self, now: Time) -> bool {
        let Some(exchange) = self.binding_update_list.request_without_identifier(RequestPurpose::Register)
        else {
            return false;
        };
        let uplink = self.binding_update_list.entry_without_identifier.uplink;
        !exchange.is_never_retransmitted()
            && !self.is_stopping
            && self.refusal_state.stop_status.is_none()
            && is_exchange_given_up(exchange, now)
            && self.uplinks.forced_uplink != Some(uplink)
            && !self.uplinks.has_recent_arrival(now, uplink)
            && self.uplinks.has_alternative(uplink)
    }

    /// Avoids the uplink of the outstanding Binding Update for a while, and tries the next uplink.
    pub(super) fn demote_target_uplink(&mut self, now: Time, wall: WallTime) {
        let Some(exchange) = self.binding_update_list.entry_without_identifier.registration_exchange.as_ref()
        else {
            return;
        };
        let (index, timeout) = (
            self.binding_update_list.entry_without_identifier.uplink,
            exchange.retransmission.answer_timeout(),
        );
        let sent: BTreeSet<IpAddr> = exchange.transmissions.iter().map(|sent| sent.care_of_address).collect();
        for address in sent {
            self.handle_failed_candidate(now, index, address);
        }
        self.demote_uplink(now, wall, index, timeout);
    }

    /// Avoids an uplink for a while. If all uplinks have failed, `timeout` is the time to wait for the answer
    /// to the next Binding Update.
    pub(super) fn demote_uplink(&mut self, now: Time, wall: WallTime, index: usize, timeout: Duration) {
        let again = self.uplinks.demote_uplink(now, index);
        self.timers.set_deadline(MobileRouterTimer::Demotion(index), again);
        let name = &self.uplinks[index].config.interface;
        let reason = format!("no answer from the home agent over {name}");
        self.outputs.push_back(Output::Event(Event::Warning { message: reason.clone() }));
        if self.uplinks.are_all_uplinks_demoted() || self.binding_update_list.back_off_time.is_some() {
            self.binding_update_list.back_off_time =
                self.binding_update_list.back_off_time.max(Some(timeout));
        }
        self.evaluate_uplinks(now, wall, &reason);
        if self.binding_update_list.entry_without_identifier.registration_exchange.is_some()
            && self.binding_update_list.entry_without_identifier.uplink == index
        {
            // Send again over the uplink that has failed, because it is still the best one.
            self.transmit_update_without_identifiers(now, wall);
        } else {
            self.reported_handovers.last_change = Some((now, reason));
        }
    }

    /// Allows the router to select an uplink again.
    pub(super) fn end_demotion(&mut self, index: usize) {
        self.timers.stop_timer(MobileRouterTimer::Demotion(index));
        if let Some(uplink) = self.uplinks.get_mut(index) {
            uplink.demoted_until = None;
        }
    }

    /// Allows the router to select all uplinks again, and starts with short timeouts again, because the
    /// situation has changed.
    pub(super) fn end_all_demotions(&mut self) {
        for index in 0..self.uplinks.len() {
            self.end_demotion(index);
            self.uplinks[index].forget_failures(&self.config);
        }
        self.binding_update_list.back_off_time = None;
        self.reported_handovers.last_change = None;
    }

    /// Takes over the signal strength of an uplink, in dBm; `None` if it is unknown. The value becomes
    /// unknown if it is not reported again, changed or not, within [`super::UplinkConfig::signal_timeout`].
    pub fn handle_signal(&mut self, now: Time, wall: WallTime, interface: &str, dbm: Option<i32>) {
        self.assert_drained();
        let Some(index) = self.uplinks.index_of(interface) else { return };
        self.uplinks[index].signal_reported_at = now;
        self.handle_uplink_signal(now, wall, index, dbm);
        self.set_signal_timer(index);
    }

    /// Sets the timer after which the signal strength of an uplink becomes unknown.
    pub(super) fn set_signal_timer(&mut self, index: usize) {
        let uplink = &self.uplinks[index];
        match uplink.config.signal_timeout.filter(|_| uplink.signal_dbm.is_some()) {
            Some(timeout) => self
                .timers
                .set_deadline(MobileRouterTimer::Signal(index), uplink.signal_reported_at + timeout),
            None => self.timers.stop_timer(MobileRouterTimer::Signal(index)),
        }
    }

    /// Handles the end of the time after which an unreported signal strength becomes unknown.
    pub(super) fn expire_signal_report(&mut self, now: Time, wall: WallTime, index: usize) {
        let name = &self.uplinks[index].config.interface;
        let message = format!("the signal of {name} is unknown: no program has reported it in time");
        self.outputs.push_back(Output::Event(Event::Warning { message }));
        self.handle_uplink_signal(now, wall, index, None);
    }

    fn handle_uplink_signal(&mut self, now: Time, wall: WallTime, index: usize, dbm: Option<i32>) {
        if let Some(reason) = self.uplinks[index].update_signal(dbm) {
            self.evaluate_uplinks(now, wall, reason);
        }
    }

    /// Takes over whether the modem of an uplink roams in another operator's network; `None` if that is
    /// unknown.
    pub fn handle_roaming(&mut self, now: Time, wall: WallTime, interface: &str, roaming: Option<bool>) {
        self.assert_drained();
        let Some(index) = self.uplinks.index_of(interface) else { return };
        if std::mem::replace(&mut self.uplinks[index].is_roaming, roaming) != roaming {
            self.renew_attachment(now, wall, index);
        }
    }

    /// Takes over the number of octets that an uplink has carried in the present period of its volume.
    pub fn handle_used_volume(&mut self, now: Time, wall: WallTime, interface: &str, octets: u64) {
        self.assert_drained();
        let Some(index) = self.uplinks.index_of(interface) else { return };
        let before = self.uplinks[index].is_volume_used_up();
        self.uplinks[index].used_octets = octets;
        self.outputs.extend(self.uplinks[index].volume_event().map(Output::Event));
        if self.uplinks[index].is_volume_used_up() != before {
            let reason = if before { "a new period of its volume began" } else { VOLUME_USED_UP };
            self.renew_attachment(now, wall, index);
            self.evaluate_uplinks(now, wall, reason);
        }
    }

    /// Takes over the counters of an uplink's interface. If the uplink has no configured volume, they only
    /// appear in the status.
    pub fn handle_octets(&mut self, now: Time, wall: WallTime, interface: &str, octets: InterfaceOctets) {
        self.assert_drained();
        let Some(index) = self.uplinks.index_of(interface) else { return };
        let uplink = &mut self.uplinks[index];
        let (used, is_due) = uplink.count_octets(now, wall, octets);
        let was_used_up = uplink.is_volume_used_up();
        self.handle_used_volume(now, wall, interface, used);
        let uplink = &mut self.uplinks[index];
        if uplink.config.volume_octets.is_some() && (is_due || uplink.is_volume_used_up() != was_used_up) {
            uplink.volume_stored(now, used);
            self.outputs.push_back(Output::Persist(self.config.home_address));
        }
        if let Some(measured) = self.uplinks[index].measure_capacity(now, octets) {
            self.set_capacity(now, wall, index, Some(measured));
        }
    }

    /// Returns the numbers of octets that the uplinks have carried, to store them.
    pub fn volumes(&self) -> impl Iterator<Item = (&str, StoredVolume)> {
        self.uplinks
            .iter()
            .filter_map(|u| Some((u.config.interface.as_str(), u.volume_meter.stored_volume.clone()?)))
    }

    /// Takes over a stored item of [`Self::volumes`]. Call it before any other input.
    pub fn restore_volume(&mut self, interface: &str, volume: StoredVolume) {
        if let Some(uplink) = self.uplinks.iter_mut().find(|u| u.config.interface == interface) {
            uplink.restore_volume(volume);
        }
    }

    /// Takes over the capacity of an uplink in kbit/s, which another program has measured. It is the uplink's
    /// weight if flows are balanced. A measurement of the router replaces it.
    pub fn handle_capacity(&mut self, now: Time, wall: WallTime, interface: &str, kbit_s: Option<u32>) {
        self.assert_drained();
        let Some(index) = self.uplinks.index_of(interface) else { return };
        self.set_capacity(now, wall, index, kbit_s);
    }

    pub(super) fn set_capacity(&mut self, now: Time, wall: WallTime, index: usize, kbit_s: Option<u32>) {
        if self.uplinks[index].capacity != kbit_s {
            self.uplinks[index].capacity = kbit_s;
            self.reconcile_bindings(now, wall);
            self.report_forwarding_change("the capacity of an uplink changed");
        }
    }

    /// Requests a probe of an uplink without answers, if the config has a URL for it.
    pub(super) fn probe_portals(&mut self, now: Time) {
        if !self.config.probes_portals || self.is_stopping {
            return self.timers.stop_timer(MobileRouterTimer::Portal);
        }
        self.timers.set_deadline(MobileRouterTimer::Portal, now + captive_portal::PORTAL_CHECK_INTERVAL);
        self.portal_prober.expire_probe(now);
        for index in 0..self.uplinks.len() {
            let is_silent = matches!(self.agent_response(index), AgentResponse::Silent { .. });
            let answers = !is_silent && self.heartbeat_path(index).is_some();
            let probe =
                self.portal_prober.next_probe(now, index, &mut self.uplinks[index], (is_silent, answers));
            self.outputs.extend(probe);
        }
    }

    /// Handles the result of a probe for a captive portal over an uplink.
    pub fn handle_portal_probe(&mut self, now: Time, wall: WallTime, interface: &str, probe: &PortalProbe) {
        self.assert_drained();
        let Ok(index) = self.uplink_by_name(interface) else { return };
        self.portal_prober.schedule_next_probe(index);
        let is_foreign = matches!(self.uplinks[index].attachment, Attachment::Foreign { .. });
        if !self.config.probes_portals || !is_foreign {
            return;
        }
        let (event, has_passed) =
            self.portal_prober.handle_probe_result(now, &mut self.uplinks[index], probe);
        self.outputs.extend(event.map(Output::Event));
        if has_passed {
            self.handle_passed_portal(now, wall, index);
        }
    }

    /// Registers an uplink at once after a user has accepted the terms of its captive portal.
    fn handle_passed_portal(&mut self, now: Time, wall: WallTime, index: usize) {
        if let Some(binding) =
            self.binding_update_list.entry_of_uplink(index).filter(|_| self.uses_binding_identifiers())
        {
            self.binding_update_list.identified_entries[binding].resume_request(now);
            return self.reconcile_bindings(now, wall);
        }
        self.end_demotion(index);
        if let Some(exchange) = self
            .binding_update_list
            .entry_without_identifier
            .registration_exchange
            .as_mut()
            .filter(|_| self.binding_update_list.entry_without_identifier.uplink == index)
        {
            exchange.apply_event(now, binding_update_list::ExchangeEvent::Recovery);
            self.set_exchange_timer();
        }
        self.evaluate_uplinks(now, wall, "a captive portal lets packets pass");
    }
}

pub(super) fn care_of_addresses(attachment: Attachment) -> [Option<IpAddr>; 2] {
    match attachment {
        Attachment::Foreign { ipv6, ipv4 } => {
            [ipv6.map(|(address, _)| IpAddr::V6(address)), ipv4.map(|(address, _)| IpAddr::V4(address))]
        }
        _ => [None, None],
    }
}
