//! Movement (RFC 6275 11.5, RFC 3963 5.8): selects the target uplink, and registers what its attachment
//! requires.
//!
//! After each change of an uplink the router selects the target. Then it sends the Binding Updates that make
//! the registration match the target.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use carnet_base::{Time, WallTime};

use super::captive_portal::PortalProbes;
use super::unanswered_uplinks::is_given_up;
use super::uplink::ipv4_of;
use super::{Attachment, MobileRouter, Timer};
use crate::binding_update_list::{Exchange, Purpose};
use crate::{Event, Output, UDP_PORT};

/// Time for which an uplink must be up again before it replaces a working one.
const SETTLING_TIME: Duration = Duration::from_secs(1);

impl MobileRouter {
    pub(super) fn attachment_changed(&mut self, now: Time, wall: WallTime, index: usize, before: Attachment) {
        let after = self.uplinks[index].attachment;
        let renewed = self.uplinks[index].take_renewed();
        if before == after {
            return;
        }
        let was = care_of_addresses(before);
        if self.uplinks[index].ipv4_care_of_address() != ipv4_of(before) {
            self.choose_port(index);
        }
        if let Some(registration) = self.list.plain.registration
            && was.contains(&Some(registration.care_of_address))
            && !self.uplinks[index].has_care_of_address(registration.care_of_address)
        {
            self.retire(now, registration.care_of_address);
        }
        if was != care_of_addresses(after) {
            self.binding_moved(now, index, before);
            // If the same candidates are only in another order, the knowledge about them stays valid.
            if renewed || self.path_is_gone(index) {
                self.path_moved(index);
                self.uplinks[index].forget_capacity();
                self.uplinks[index].portal_probes = PortalProbes::default();
                self.rehabilitate(index);
                self.list.back_off = None;
                self.handovers.reason = None;
            }
        }
        let reason = match (before, after) {
            (Attachment::Down(_), _) => {
                // At the start no uplink works yet, so the uplink need not wait.
                self.uplinks[index].settles_at = now + SETTLING_TIME;
                "an uplink came up"
            }
            (_, Attachment::Down(reason)) => reason,
            _ => "the care-of address changed",
        };
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        self.evaluate(now, wall, reason);
    }

    /// Selects the UDP port of an uplink that has got an IPv4 address. It differs from the ports of other
    /// uplinks with the same address. Keeps the present port if possible.
    fn choose_port(&mut self, index: usize) {
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
    /// the best by priority. Uplinks over which the home agent does not answer come last. If the present
    /// uplink is attached, it stays selected against one of equal priority, and against one that has just
    /// come up again.
    fn choose(&mut self, now: Time) -> Option<usize> {
        let usable = |index: &usize| !matches!(self.uplinks[*index].attachment, Attachment::Down(_));
        if let Some(forced) = self.uplinks.forced.filter(usable) {
            return Some(forced);
        }
        let current = self.uplinks.target.filter(usable);
        let rank = |index: &usize| {
            let uplink = &self.uplinks[*index];
            let foreign = !matches!(uplink.attachment, Attachment::Home { .. });
            let used_up = uplink.is_used_up();
            let (priority, cost) = (uplink.config.priority, uplink.config.cost);
            let demoted = uplink.demoted_until.is_some() || (!foreign && uplink.is_home_doubted());
            (demoted, used_up, uplink.poor, foreign, priority, cost, Some(*index) != current, *index)
        };
        let best = (0..self.uplinks.len()).filter(usable).min_by_key(rank)?;
        match current {
            Some(current)
                if current != best && self.uplinks[best].settles_at > now && !self.is_left(current) =>
            {
                self.timers.set(Timer::Settle, self.uplinks[best].settles_at);
                Some(current)
            }
            _ => Some(best),
        }
    }

    /// Sends the Binding Updates that the present attachments of the uplinks require.
    pub(super) fn evaluate(&mut self, now: Time, wall: WallTime, reason: &str) {
        if self.stopping {
            return;
        }
        self.uplinks.target = self.choose(now);
        if self.config.home_agent.is_unspecified() {
            return self.without_home_agent(now, reason);
        }
        let Some(target) = self.uplinks.target else {
            self.leave_home();
            self.list.abandon();
            self.watch_exchange();
            self.timers.stop(Timer::Refresh);
            self.forwarding_changed(reason);
            return;
        };
        match self.uplinks[target].attachment {
            Attachment::Home { .. } => self.go_home(now, wall, target),
            Attachment::Foreign { .. } if self.has_identifier(target) => {
                self.leave_home();
                self.register_bindings(now, wall);
            }
            Attachment::Foreign { .. } => {
                self.leave_home();
                self.timers.stop(Timer::Bindings);
                self.register(now, wall, target);
            }
            Attachment::Down(_) => {}
        }
        self.forwarding_changed(reason);
    }

    /// Handles the time until a home agent is known. On the home link the router needs none, because it has
    /// no registration to end.
    fn without_home_agent(&mut self, now: Time, reason: &str) {
        let home = self
            .uplinks
            .target
            .filter(|&target| matches!(self.uplinks[target].attachment, Attachment::Home { .. }));
        if home.is_none() {
            self.leave_home();
        } else if !std::mem::replace(&mut self.home.at_home, true) {
            self.came_home(now);
        }
        self.forwarding_changed(reason);
    }

    /// Returns whether traffic leaves an uplink for another one that works.
    fn is_left(&self, index: usize) -> bool {
        let uplink = &self.uplinks[index];
        uplink.demoted_until.is_some() || uplink.poor || uplink.is_used_up()
    }

    /// Registers all uplinks that have identifiers. Gives up an outstanding Binding Update without
    /// identifier, unless it is a de-registration.
    fn register_bindings(&mut self, now: Time, wall: WallTime) {
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

    /// Marks uplinks that have just come up, which do not replace a working one yet.
    fn settle(&mut self, now: Time) {
        let mut next = None;
        for index in 0..self.uplinks.len() {
            let settles_at = self.uplinks[index].settles_at;
            let settling = settles_at > now && self.list.others_live(&self.uplinks, index);
            self.uplinks[index].settling = settling;
            if settling {
                next = Some(next.map_or(settles_at, |at: Time| at.min(settles_at)));
            }
        }
        if let Some(at) = next {
            self.timers.set(Timer::Settle, at);
        }
    }

    /// Registers the best care-of address of an uplink, unless it is already registered or its Binding Update
    /// is outstanding.
    fn register(&mut self, now: Time, wall: WallTime, uplink: usize) {
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
            // The kernel keeps addresses and default routes of a link that was left. An update by such a
            // route is lost, and only the advertisement of the link's own router shows it.
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
                // The refresh timer was stopped while no uplink was usable.
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

    /// De-registers from the home address when the router is on its home link (RFC 6275 11.5.5, RFC 3963
    /// 5.8). Until the answer the old path carries the traffic if it works. The router does not renew the
    /// registration: if the renewal is due and the home agent has not answered, the router breaks off the
    /// return.
    fn go_home(&mut self, now: Time, wall: WallTime, uplink: usize) {
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

    /// Returns the time at which the first of the registrations must be renewed.
    fn first_renewal(&self) -> Option<Time> {
        let all = std::iter::once(&self.list.plain).chain(&self.list.bindings);
        all.filter_map(|entry| entry.refresh_at(false)).min()
    }

    /// Returns whether the home agent has not answered the return, although the first registration must be
    /// renewed now.
    pub(super) fn is_return_unanswered(&self, now: Time) -> bool {
        let Some(exchange) = self.list.plain_request(Purpose::Deregister) else { return false };
        self.home.at_home
            && !self.stopping
            && is_given_up(exchange, now)
            && self.first_renewal().is_none_or(|at| at <= now)
            && self.uplinks.get(self.list.plain.uplink).is_some_and(|uplink| !uplink.is_home_doubted())
    }

    /// Uses the foreign care-of addresses again, because the home agent does not answer the return.
    pub(super) fn break_off_return(&mut self, now: Time, wall: WallTime) {
        let index = self.list.plain.uplink;
        let before = self.uplinks[index].attachment;
        self.uplinks[index].return_unanswered(now, &self.config);
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

    fn leave_home(&mut self) {
        if self.home.at_home && self.list.plain_request(Purpose::Deregister).is_some() {
            // The home agent may have received the de-registration.
            self.list.abandon();
            self.watch_exchange();
            self.list.bindings.iter_mut().for_each(|binding| binding.is_due_again = true);
            self.list.abilities.bootstrapped = false;
        }
        self.home.at_home = false;
        self.home.returned = false;
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

    /// Accepts packets to a former care-of address for the grace period, because some are still on their way.
    pub(super) fn retire(&mut self, now: Time, care_of_address: IpAddr) {
        self.list.retire(now, care_of_address);
        self.watch_grace();
    }

    /// Sets the timer for the end of the first grace period of a former care-of address.
    pub(super) fn watch_grace(&mut self) {
        if let Some(first) = self.list.take_grace() {
            self.timers.set(Timer::Grace, first);
        }
    }

    /// Removes the former care-of addresses whose grace period has ended.
    pub(super) fn grace_over(&mut self, now: Time) {
        if let Some(first) = self.list.expire_previous(now) {
            self.timers.set(Timer::Grace, first);
        }
    }

    /// Returns whether the outstanding Binding Update has had no answer for long enough to try another
    /// uplink.
    pub(super) fn is_uplink_silent(&self, now: Time) -> bool {
        let Some(exchange) = self.list.plain_request(Purpose::Register) else { return false };
        let uplink = self.list.plain.uplink;
        !exchange.is_single()
            && !self.stopping
            && self.refusals.status.is_none()
            && is_given_up(exchange, now)
            && self.uplinks.forced != Some(uplink)
            && !self.uplinks.is_heard(now, uplink)
            && self.uplinks.has_alternative(uplink)
    }

    /// Avoids the uplink of the outstanding Binding Update for a while, and tries the next uplink.
    pub(super) fn demote(&mut self, now: Time, wall: WallTime) {
        let Some(exchange) = self.list.plain.exchange.as_ref() else { return };
        let (index, timeout) = (self.list.plain.uplink, exchange.retransmission.timeout());
        let sent: BTreeSet<IpAddr> = exchange.sent.iter().map(|sent| sent.care_of_address).collect();
        for address in sent {
            self.candidate_failed(now, index, address);
        }
        self.demote_uplink(now, wall, index, timeout);
    }

    /// Avoids an uplink for a while. If all uplinks have failed, `timeout` is the time to wait for the answer
    /// to the next Binding Update.
    pub(super) fn demote_uplink(&mut self, now: Time, wall: WallTime, index: usize, timeout: Duration) {
        let again = self.uplinks.demote(now, index);
        self.timers.set(Timer::Demotion(index), again);
        let name = &self.uplinks[index].config.interface;
        let reason = format!("no answer from the home agent over {name}");
        self.outputs.push_back(Output::Event(Event::Warning { message: reason.clone() }));
        if self.uplinks.are_demoted() || self.list.back_off.is_some() {
            self.list.back_off = self.list.back_off.max(Some(timeout));
        }
        self.evaluate(now, wall, &reason);
        if self.list.plain.exchange.is_some() && self.list.plain.uplink == index {
            // Although it failed, this uplink is still the best one.
            self.transmit(now, wall);
        } else {
            self.handovers.reason = Some((now, reason));
        }
    }

    /// Allows the router to select an uplink again.
    pub(super) fn rehabilitate(&mut self, index: usize) {
        self.timers.stop(Timer::Demotion(index));
        if let Some(uplink) = self.uplinks.get_mut(index) {
            uplink.demoted_until = None;
        }
    }

    /// Allows the router to select all uplinks again, and starts with short timeouts again, because the
    /// situation has changed.
    pub(super) fn rehabilitate_all(&mut self) {
        for index in 0..self.uplinks.len() {
            self.rehabilitate(index);
            self.uplinks[index].forgive(&self.config);
        }
        self.list.back_off = None;
        self.handovers.reason = None;
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
