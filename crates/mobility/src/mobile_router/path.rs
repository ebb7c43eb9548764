//! Selects the path of the traffic from the registrations and the state of the uplinks. Keeps former care-of
//! addresses for packets that are still on their way.

use std::net::IpAddr;
use std::time::Duration;

use carnet_base::{Endpoint, Time};
use carnet_wire::mobility::binding_status::BindingStatus;

use super::unanswered_uplinks::{AgentResponse, UPDATES_BEFORE_DEMOTION};
use super::{MobileRouter, MobileRouterTimer, Uplink};
use crate::binding_update_list::{Exchange, RequestPurpose};
use crate::{Event, Output};

/// Time for which the failure of an uplink is reported as the reason of a handover.
const CHANGE_REASON_VALIDITY: Duration = Duration::from_secs(5);

/// A tunnel to the home agent: the router accepts packets from it, and may also send through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Index of the uplink.
    pub uplink: usize,
    /// Binding Identifier of the registration; `None` without one.
    pub bid: Option<u16>,
    /// This router's end of the tunnel.
    pub local: Endpoint,
    /// The home agent's end of the tunnel.
    pub remote: Endpoint,
    /// Priority, sent to the home agent as BID-PRI (RFC 6089 4.1); the lower value wins.
    pub priority: u8,
    /// Whether the router may send packets through this tunnel.
    pub may_transmit: bool,
}

/// Reported handovers between uplinks.
#[derive(Debug, Default)]
pub(super) struct ReportedHandovers {
    /// Uplink that carries the traffic according to the last handover event; `None` if no uplink does.
    pub(super) reported_uplink: Option<usize>,
    /// Time and reason of the last change of the selected uplink, for the event about the next handover;
    /// `None` if an event has already reported it.
    pub(super) last_change: Option<(Time, String)>,
}

impl MobileRouter {
    /// Returns all tunnels from which the router accepts packets: first those that may carry traffic, the
    /// best first. Without Binding Identifiers at most one may carry traffic.
    pub fn paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        let bindings = self.transmit_bindings();
        for &index in &bindings {
            let binding = &self.binding_update_list.identified_entries[index];
            let ends = binding
                .registration
                .filter(|r| self.may_send_from(binding.uplink, r.care_of_address))
                .map(|r| (r.care_of_address, r.uses_udp))
                .or(binding.requested_care_of_address().map(|address| (address, true)));
            if let Some((care_of_address, udp)) = ends {
                self.push_tunnel_ends(&mut paths, binding.uplink, binding.bid, care_of_address, Some(udp));
            }
        }
        let path = self.path_without_identifier().filter(|_| bindings.is_empty());
        let udp = self
            .binding_update_list
            .entry_without_identifier
            .registration
            .is_none_or(|r| Some(r.care_of_address) != path || r.uses_udp);
        let over = path.and_then(|path| self.uplink_with_address(path));
        for (care_of_address, uplink) in self.accepted_care_of_addresses() {
            let transmit = path == Some(care_of_address) && over.is_none_or(|over| over == uplink);
            let bid = self
                .binding_update_list
                .entry_of_uplink(uplink)
                .and_then(|index| self.binding_update_list.identified_entries[index].bid);
            self.push_tunnel_ends(&mut paths, uplink, bid, care_of_address, transmit.then_some(udp));
        }
        // The sort is stable, so the tunnels that carry traffic stay ordered by quality.
        paths.sort_by_key(|path| !path.may_transmit);
        paths
    }

    /// Returns the bindings that traffic may use, the best first: registered ones whose path works. If none
    /// works, returns the best registered one. If none of the registered care-of addresses exists any more,
    /// returns a binding whose Binding Update has left. The home agent accepts packets that arrive after this
    /// update.
    pub(super) fn transmit_bindings(&self) -> Vec<usize> {
        if self.is_stopping || self.refusal_state.stop_status.is_some() || self.is_at_home() {
            return Vec::new();
        }
        let mut order: Vec<usize> = (0..self.binding_update_list.identified_entries.len()).collect();
        order.sort_by_key(|&index| {
            (self.uplinks.priority(self.binding_update_list.identified_entries[index].uplink), index)
        });
        let attached = |index: &usize| {
            let binding = &self.binding_update_list.identified_entries[*index];
            binding.care_of_address().is_some_and(|address| self.may_send_from(binding.uplink, address))
        };
        let lives = |index: &usize| {
            !self.uplinks.has_path_failed(self.binding_update_list.identified_entries[*index].uplink)
        };
        let registered: Vec<usize> = order.iter().copied().filter(attached).collect();
        let living: Vec<usize> = registered.iter().copied().filter(lives).collect();
        if !living.is_empty() {
            return living;
        }
        if let Some(best) = registered.first() {
            return vec![*best];
        }
        let moving = |index: &usize| {
            let binding = &self.binding_update_list.identified_entries[*index];
            let asked = binding
                .requested_care_of_address()
                .is_some_and(|a| self.uplinks[binding.uplink].has_care_of_address(a));
            asked && binding.registration.is_some()
        };
        order.into_iter().find(moving).into_iter().collect()
    }

    /// Returns whether packets may leave from a registered care-of address of an uplink. During a return to
    /// the home link any registered address that the interface still has is usable, because the home agent
    /// still has the binding.
    fn may_send_from(&self, uplink: usize, address: IpAddr) -> bool {
        let uplink = &self.uplinks[uplink];
        uplink.has_care_of_address(address) || (self.home_presence.at_home && uplink.has_address(address))
    }

    /// Returns this router's tunnel end for packets to which no policy applies; `None` if no tunnel may carry
    /// them.
    pub fn path_without_policy(&self) -> Option<Endpoint> {
        self.paths().first().filter(|path| path.may_transmit).map(|path| path.local)
    }

    /// Adds the tunnels of a care-of address. From an IPv4 address the router accepts both encapsulations.
    /// `transmit` is `None` if the router must not send through them, otherwise whether it sends inside UDP.
    fn push_tunnel_ends(
        &self,
        paths: &mut Vec<Path>,
        uplink: usize,
        bid: Option<u16>,
        care_of_address: IpAddr,
        transmit: Option<bool>,
    ) {
        let kinds: &[bool] = if care_of_address.is_ipv4() { &[true, false] } else { &[false] };
        for udp in kinds {
            if let Some((local, remote)) = self.message_composer().tunnel_ends(uplink, care_of_address, *udp)
                && !paths.iter().any(|path| path.local == local && path.uplink == uplink)
            {
                let transmit = transmit.is_some_and(|in_udp| in_udp == *udp || care_of_address.is_ipv6());
                paths.push(Path {
                    uplink,
                    bid,
                    local,
                    remote,
                    priority: self.uplinks.priority(uplink),
                    may_transmit: transmit,
                });
            }
        }
    }

    /// Returns the care-of address from which traffic leaves if bindings have no identifiers; see the module
    /// documentation. Returns `None` if no traffic may leave.
    pub(super) fn path_without_identifier(&self) -> Option<IpAddr> {
        if self.is_stopping || self.refusal_state.stop_status.is_some() {
            return None;
        }
        if self.is_at_home() {
            // On the home link the last care-of address serves only packets that were already on their way
            // into the tunnel.
            return self
                .binding_update_list
                .former_care_of_addresses
                .iter()
                .map(|(previous, _)| *previous)
                .rfind(|previous| self.uplinks.iter().any(|uplink| uplink.has_care_of_address(*previous)));
        }
        let registered = self.binding_update_list.entry_without_identifier.care_of_address()?;
        if self.uplink_with_address(registered).is_some() {
            return Some(registered);
        }
        self.binding_update_list
            .request_without_identifier(RequestPurpose::Register)?
            .last_transmission()
            .map(|sent| sent.care_of_address)
    }

    /// Returns the uplink that carries traffic now, either through a tunnel or on the home link; `None` if no
    /// uplink does.
    pub fn active_uplink(&self) -> Option<usize> {
        if self.is_at_home() {
            return self.uplinks.target_uplink;
        }
        if let Some(&best) = self.transmit_bindings().first() {
            return Some(self.binding_update_list.identified_entries[best].uplink);
        }
        self.uplink_with_address(self.path_without_identifier()?)
    }

    /// Returns the uplink with this care-of address; `None` if no uplink has it. If several have it, because
    /// they are behind similar NATs, returns the registered one. During a return to the home link, an uplink
    /// that still has the address suffices, because the home agent knows no other address yet.
    pub(super) fn uplink_with_address(&self, care_of_address: IpAddr) -> Option<usize> {
        let has = |uplink: &Uplink| uplink.has_care_of_address(care_of_address);
        let chosen = self
            .binding_update_list
            .entry_without_identifier
            .registration
            .filter(|r| r.care_of_address == care_of_address)
            .map(|r| r.uplink);
        let chosen = chosen.filter(|index| self.uplinks.get(*index).is_some_and(has));
        let attached = chosen.or_else(|| self.uplinks.iter().position(has));
        let coming_home = self.home_presence.at_home && !self.is_at_home();
        attached.or_else(|| {
            self.uplinks.iter().position(|u| u.has_address(care_of_address)).filter(|_| coming_home)
        })
    }

    /// Returns the uplink that the operator has selected; `None` without a choice.
    pub fn forced_uplink(&self) -> Option<&Uplink> {
        self.uplinks.forced_uplink.and_then(|forced| self.uplinks.get(forced))
    }

    /// Returns the uplink on the home link, as soon as the router has detected the home link; `None`
    /// elsewhere. The home address belongs on that interface, because the de-registration leaves from there.
    /// Routes to the home link need it too.
    pub fn home_link(&self) -> Option<&Uplink> {
        self.uplinks
            .target_uplink
            .filter(|_| self.home_presence.at_home)
            .and_then(|target| self.uplinks.get(target))
    }

    /// Returns whether the router sends traffic without a tunnel: it is on its home link, and the home agent
    /// has acknowledged the de-registration. Before that the home agent sends all packets to the care-of
    /// address.
    pub fn is_at_home(&self) -> bool {
        self.home_presence.at_home && self.home_presence.has_deregistered
    }

    /// Returns the uplink that carries traffic without a tunnel, on the home link; `None` while a tunnel is
    /// necessary.
    pub fn home_uplink(&self) -> Option<&Uplink> {
        self.home_link().filter(|_| self.is_at_home())
    }

    /// Returns every care-of address at which the router accepts packets from the home agent, with the
    /// uplink's index.
    pub(super) fn accepted_care_of_addresses(&self) -> Vec<(IpAddr, usize)> {
        let mut accepted: Vec<(IpAddr, usize)> = self
            .uplinks
            .iter()
            .enumerate()
            .flat_map(|(index, uplink)| {
                uplink.care_of_addresses().into_iter().map(move |address| (address, index))
            })
            .collect();
        let plain = self
            .binding_update_list
            .entry_without_identifier
            .registration
            .filter(|_| self.home_presence.at_home);
        let registered = self
            .binding_update_list
            .identified_entries
            .iter()
            .filter_map(|binding| binding.registration)
            .chain(plain);
        let previous =
            self.binding_update_list.former_care_of_addresses.iter().map(|(previous, _)| *previous);
        for address in previous.chain(registered.map(|r| r.care_of_address)) {
            if !accepted.iter().any(|(other, _)| *other == address)
                && let Some(index) = self.uplinks.iter().position(|u| u.has_address(address))
            {
                accepted.push((address, index));
            }
        }
        accepted
    }

    /// Returns the reason of a handover after an acknowledgement: a recent failure of an uplink, or the
    /// acknowledgement itself.
    pub(super) fn reason_to_move(&mut self, now: Time) -> String {
        let reason = self
            .reported_handovers
            .last_change
            .take()
            .filter(|(at, _)| now.saturating_since(*at) <= CHANGE_REASON_VALIDITY);
        reason.map_or_else(|| "the home agent acknowledged it".into(), |(_, reason)| reason)
    }

    /// Requests a new computation of the forwarding, and reports a handover if the traffic moves.
    pub(super) fn report_forwarding_change(&mut self, reason: &str) {
        let transmit = self.transmit_bindings();
        let transmit: Vec<usize> =
            transmit.iter().map(|&index| self.binding_update_list.identified_entries[index].uplink).collect();
        self.flow_states.update_effective_flows(&self.uplinks, &transmit);
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        let active = self.active_uplink();
        if active != self.reported_handovers.reported_uplink {
            let name = |index: usize| {
                self.uplinks.get(index).map(|u| u.config.interface.clone()).unwrap_or_default()
            };
            self.outputs.push_back(Output::Event(Event::Handover {
                from: self.reported_handovers.reported_uplink.map(name),
                to: active.map(name),
                reason: reason.to_string(),
            }));
            self.reported_handovers.reported_uplink = active;
            // Clear the reason, because an event has reported it now.
            self.reported_handovers.last_change = None;
        }
    }

    /// Returns the status of a temporary refusal; `None` without one, or if the router has a registration.
    pub fn temporary_refusal(&self) -> Option<BindingStatus> {
        self.refusal_state.temporary_refusal.filter(|_| !self.has_registration())
    }

    /// Returns whether the router has any registration.
    pub fn has_registration(&self) -> bool {
        self.binding_update_list.has_registration()
    }

    /// Returns the uplinks that are registered and have answers.
    pub fn working_uplinks(&self) -> impl Iterator<Item = usize> {
        (0..self.uplinks.len())
            .filter(|&uplink| self.heartbeat_path(uplink).is_some() && !self.uplinks.has_path_failed(uplink))
    }

    /// Returns whether an answer of the home agent is late: the router has a usable uplink but no
    /// registration, or no registered uplink has answers.
    pub fn is_unanswered(&self) -> bool {
        if self.is_stopping
            || self.home_presence.at_home
            || self.uplinks.target_uplink.is_none()
            || self.refusal_state.stop_status.is_some()
        {
            return false;
        }
        let request = self.binding_update_list.entry_without_identifier.registration_exchange.as_ref();
        let given_up = request
            .is_some_and(|request| request.retransmission.unanswered_rounds() >= UPDATES_BEFORE_DEMOTION);
        self.working_uplinks().next().is_none() || given_up
    }

    /// Returns why the home agent refuses to register an uplink, as a text for the operator; `None` if it
    /// does not refuse.
    pub fn refusal_text(&self) -> Option<String> {
        self.refusal_state.refusal_text()
    }

    /// Returns the home agent's response over an uplink.
    pub fn agent_response(&self, uplink: usize) -> AgentResponse {
        if self.refusal_state.stop_status.is_some() {
            return AgentResponse::Refused { again: self.timers.get(MobileRouterTimer::AskAgain) };
        }
        let binding =
            self.binding_update_list.entry_of_uplink(uplink).filter(|_| self.uses_binding_identifiers());
        if let Some(binding) =
            binding.and_then(|index| self.binding_update_list.identified_entries.get(index))
        {
            let request = binding.outstanding_request();
            let next = binding.registration_exchange.as_ref().and_then(Exchange::next_transmission);
            let is_refused =
                binding.request_held_until().is_some() && self.refusal_state.temporary_refusal.is_some();
            if binding.registration.is_none() && (is_refused || self.refusal_state.key_problem.is_some()) {
                return AgentResponse::Refused { again: next };
            }
            let unanswered = request
                .is_some_and(|request| request.retransmission.unanswered_rounds() > UPDATES_BEFORE_DEMOTION)
                && !self.uplinks.is_path_saturated(uplink);
            return if unanswered || self.uplinks.has_path_failed(uplink) {
                AgentResponse::Silent { again: next }
            } else if binding.registration.is_none() && request.is_some() {
                AgentResponse::Asked
            } else {
                AgentResponse::Answers
            };
        }
        if self.uplinks.has_path_failed(uplink) || self.uplinks.demoted_until(uplink).is_some() {
            return AgentResponse::Silent { again: self.uplinks.demoted_until(uplink) };
        }
        let plain = &self.binding_update_list.entry_without_identifier;
        let request = self.binding_update_list.request_without_identifier(RequestPurpose::Register);
        match request.filter(|request| plain.uplink == uplink && !request.is_never_retransmitted()) {
            Some(request)
                if plain.registration.is_none()
                    && (request.is_transmission_held() || self.refusal_state.key_problem.is_some()) =>
            {
                AgentResponse::Refused { again: request.next_transmission() }
            }
            Some(request)
                if request.retransmission.unanswered_rounds() >= UPDATES_BEFORE_DEMOTION
                    && !self.uplinks.is_path_saturated(uplink) =>
            {
                AgentResponse::Silent { again: request.next_transmission() }
            }
            Some(request) => {
                let registered = plain.care_of_address();
                let is_registered = registered.is_some_and(|it| request.care_of_addresses.contains(&it));
                if is_registered { AgentResponse::Answers } else { AgentResponse::Asked }
            }
            None => AgentResponse::Answers,
        }
    }

    /// Accepts packets to a former care-of address for the grace period, because some are still on their way.
    pub(super) fn accept_former_address(&mut self, now: Time, care_of_address: IpAddr) {
        self.binding_update_list.accept_former_address(now, care_of_address);
        self.set_grace_timer();
    }

    /// Sets the timer for the end of the first grace period of a former care-of address.
    pub(super) fn set_grace_timer(&mut self) {
        if let Some(first) = self.binding_update_list.take_next_former_address_expiry() {
            self.timers.set_deadline(MobileRouterTimer::Grace, first);
        }
    }

    /// Removes the former care-of addresses whose grace period has ended.
    pub(super) fn end_grace_period(&mut self, now: Time) {
        if let Some(first) = self.binding_update_list.expire_former_addresses(now) {
            self.timers.set_deadline(MobileRouterTimer::Grace, first);
        }
    }
}
