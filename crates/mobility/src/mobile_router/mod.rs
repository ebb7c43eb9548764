//! The mobile router (RFC 6275 section 11, RFC 3963 section 5), without I/O. It is also the mobile node,
//! which has no mobile network ([`RegistrationMode::Host`]).
//!
//! The best attached uplink is the *target*. An uplink over which the home agent does not answer is the
//! target only if there is no other (see `unanswered_uplinks`). If another care-of address than the target's
//! is registered, the router sends a Binding Update from the target. The *path* is the care-of address from
//! which traffic leaves. It changes by make before break:
//!
//! * While the uplink of the registered care-of address works, it carries the traffic until the home agent
//!   has acknowledged the new one.
//! * If that uplink fails, traffic uses the new path as soon as the Binding Update has left. The home agent
//!   accepts packets that arrive after the update.
//! * Without any registration the router sends no packets of the mobile network (RFC 3963 5.3).
//!
//! The router accepts packets from the home agent at every care-of address that it still has.
//!
//! On the home link the router de-registers; after the acknowledgement it routes without a tunnel. After an
//! unauthenticated Binding Error or Binding Refresh Request it registers again, at growing intervals, and
//! changes nothing else (see `binding_loss_hints`). While packets wait and the home agent does not answer,
//! the router sends a Binding Update at least every [`WAITING_PACKET_INTERVAL`]. Without waiting packets the
//! pause grows up to `MAX_BINDACK_TIMEOUT`.
//!
//! [`crate::agents`] selects one of several home agents, and creates a `MobileRouter` for each that it tries.
//! `agent_messages` handles the requests of a home agent.
//!
//! `ipv4_networks` has the home agent's answers about IPv4 prefixes (RFC 5555 4.4.2).
//!
//! Left out: the K and L flags.

mod acknowledgements;
mod address_and_router;
mod agent_messages;
mod attachment;
mod binding_loss_hints;
mod binding_update_sender;
mod capacity;
mod captive_portal;
mod composer;
mod config;
mod data_volume;
mod flows;
mod home_network;
mod ipv4_networks;
mod ipv6_attempts;
mod link_routers;
mod liveness;
mod movement;
mod notices;
mod parent_router;
mod path;
mod path_packets;
mod policies;
mod reachability;
mod refusals;
mod state;
mod unanswered_returns;
mod unanswered_uplinks;
mod uplink;
mod uplink_quality;
mod uplinks;

use std::collections::VecDeque;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Rng, Time, TimerTable, WallTime};
use carnet_wire::mobility::binding_status::BindingStatus;
use carnet_wire::mobility::{BindingError, MobilityOption, ParsedMobilityMessage};
use ipnet::Ipv4Net;

pub use address_and_router::Candidate;
use agent_messages::AgentMessages;
pub use agent_messages::HomeAgentSwitchRequest;
use binding_loss_hints::BindingLossHints;
pub use captive_portal::PortalProbe;
use captive_portal::PortalProber;
pub use config::{MobileRouterConfig, RegistrationMode};
pub use data_volume::{InterfaceOctets, StoredVolume, VolumeAction, VolumePeriod};
use flows::FlowPolicies;
pub use flows::{MAX_FLOWS, Policy};
use home_network::HomePresence;
use ipv4_networks::Ipv4Networks;
pub use ipv4_networks::Ipv4PrefixState;
pub use liveness::{HeartbeatIntervals, PathQuality};
use notices::Notices;
pub use parent_router::ParentRouter;
pub use path::Path;
use path::ReportedHandovers;
pub use path_packets::PathTraffic;
pub use policies::{OutsideCount, Policy as PolicyStatus};
pub use refusals::REFUSED_INTERVAL;
use refusals::RefusalState;
use state::MobileRouterTimer;
pub use state::{State, StoredSequence};
pub use unanswered_uplinks::AgentResponse;
pub use uplink::{Attachment, MAX_NEXT_HOPS, Uplink, UplinkConfig};
pub use uplink_quality::SignalThresholds;
use uplinks::Uplinks;

use crate::binding_update_list::{
    BindingUpdateList, OutstandingUpdate, RequestPurpose, SequenceAndTimestampState,
};
pub use crate::binding_update_list::{BindingUpdateListEntry, Registration};
use crate::flow::FlowBinding;
use crate::{Event, MAX_UPDATE_RATE, MobilityDrop, MobilityMessage, Output};

/// Longest interval of Binding Updates while packets wait for a registration.
pub const WAITING_PACKET_INTERVAL: Duration = Duration::from_secs(2);
/// Binding Error status 2: the peer does not know the message type (RFC 6275 6.1.9).
const UNKNOWN_MESSAGE_STATUS: u8 = 2;

/// The mobile router. The documentation of the module describes its decisions.
#[derive(Debug)]
pub struct MobileRouter {
    config: MobileRouterConfig,
    /// The uplinks with their paths, and the selected one.
    uplinks: Uplinks,
    binding_update_list: BindingUpdateList,
    /// Sequence numbers, timestamps and keys of Binding Updates.
    update_numbers: SequenceAndTimestampState,
    refusal_state: RefusalState,
    agent_messages: AgentMessages,
    binding_loss_hints: BindingLossHints,
    home_presence: HomePresence,
    flow_states: FlowPolicies,
    ipv4_networks: Ipv4Networks,
    portal_prober: PortalProber,
    reported_handovers: ReportedHandovers,
    /// Whether the router is de-registering because the station stops.
    is_stopping: bool,
    timers: TimerTable<MobileRouterTimer>,
    outputs: VecDeque<Output>,
}

impl MobileRouter {
    /// Creates a router that does not know the state of its interfaces yet.
    pub fn new(config: MobileRouterConfig, rng: &mut Rng) -> Self {
        let identifiers = config.uplinks.iter().enumerate().filter_map(|(index, u)| Some((index, u.bid?)));
        MobileRouter {
            uplinks: Uplinks::new(&config, rng),
            binding_update_list: BindingUpdateList::new(identifiers),
            update_numbers: SequenceAndTimestampState::new(
                config.authentication.for_home_agent(config.home_agent),
            ),
            refusal_state: RefusalState::default(),
            agent_messages: AgentMessages::default(),
            binding_loss_hints: BindingLossHints::default(),
            home_presence: HomePresence::default(),
            flow_states: FlowPolicies::new(&config.policies),
            ipv4_networks: Ipv4Networks::new(&config.ipv4_prefixes),
            portal_prober: PortalProber::default(),
            reported_handovers: ReportedHandovers::default(),
            is_stopping: false,
            timers: TimerTable::new(),
            outputs: VecDeque::new(),
            config,
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &MobileRouterConfig {
        &self.config
    }

    /// Returns the uplinks, in the order of the configuration.
    pub fn uplinks(&self) -> &[Uplink] {
        &self.uplinks
    }

    /// Returns the uplink of the tunnel that carries traffic. Without a tunnel it is the uplink from which
    /// the router registers, or `None`.
    pub fn uplink_in_use(&self) -> Option<usize> {
        let mut paths = self.paths().into_iter().filter(|path| path.may_transmit);
        paths.next().map(|path| path.uplink).or(self.uplinks.target_uplink)
    }

    /// Returns whether the home agent carries packets of the mobile network: a tunnel transmits, and the home
    /// agent answers over its uplink. On the home link no tunnel is necessary.
    pub fn is_served_by_home_agent(&self) -> bool {
        let answers = |uplink| matches!(self.agent_response(uplink), AgentResponse::Answers);
        self.is_at_home() || self.paths().iter().any(|path| path.may_transmit && answers(path.uplink))
    }

    /// Returns the last acknowledged registration without identifier; `None` after its lifetime.
    pub fn registration(&self) -> Option<&Registration> {
        self.binding_update_list.entry_without_identifier.registration.as_ref()
    }

    /// Returns the Binding Update List entries with identifiers, in the order of the uplinks.
    pub fn bindings(&self) -> &[BindingUpdateListEntry] {
        &self.binding_update_list.identified_entries
    }

    /// Returns the IPv4 prefixes of the config, each with the home agent's last answer.
    pub fn ipv4_prefixes(&self) -> &[(Ipv4Net, Ipv4PrefixState)] {
        self.ipv4_networks.all_prefixes()
    }

    /// Returns the IPv4 prefixes whose packets the tunnel carries.
    pub fn accepted_ipv4_prefixes(&self) -> impl Iterator<Item = Ipv4Net> {
        let prefixes = self.ipv4_prefixes().iter();
        prefixes.filter(|(_, state)| state.is_accepted()).map(|(prefix, _)| *prefix)
    }

    /// Returns the state of the router.
    pub fn state(&self) -> State {
        if self.is_stopping {
            State::Stopped
        } else if let Some(status) = self.refusal_state.stop_status {
            State::Refused(status)
        } else if self.home_presence.at_home {
            State::Home
        } else if self.binding_update_list.has_registration() {
            State::Registered
        } else if self.uplinks.target_uplink.is_some() {
            State::Registering
        } else {
            State::Disconnected
        }
    }

    /// Returns whether the router may advertise the mobile network prefixes. It may not after the home agent
    /// has refused them as invalid or as another node's (RFC 3963 5.4.2).
    pub fn may_advertise(&self) -> bool {
        !matches!(
            self.refusal_state.stop_status,
            Some(BindingStatus::INVALID_PREFIX | BindingStatus::NOT_AUTHORIZED_FOR_PREFIX)
        )
    }

    /// Returns whether the de-registration at a shutdown is complete, or was not necessary.
    pub fn is_quiescent(&self) -> bool {
        self.binding_update_list.entry_without_identifier.registration_exchange.is_none()
    }

    /// Returns the next output. Call it until it returns `None` after every `handle_*`.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Asserts that the caller has taken all outputs of the last input.
    fn assert_drained(&self) {
        debug_assert!(self.outputs.is_empty(), "poll_output was not called until it returned None");
    }

    /// Returns when [`Self::handle_timeout`] is due next; `None` if no timer runs.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next_deadline()
    }

    /// Returns the state that must survive a restart.
    pub fn stored_state(&self) -> StoredSequence {
        let Notices {
            last_timestamp: last_notice,
            first_timestamp: first_notice,
            early_timestamps: early_notices,
            ..
        } = self.agent_messages.notices;
        let sequence = self.update_numbers.has_sent_sequence.then_some(self.update_numbers.sequence);
        StoredSequence { sequence, home_agent: None, last_notice, first_notice, early_notices }
    }

    /// Takes over the state that [`Self::stored_state`] returned.
    pub fn restore(&mut self, stored: StoredSequence) {
        self.update_numbers.sequence = stored.sequence.unwrap_or_default();
        self.update_numbers.has_sent_sequence = stored.sequence.is_some();
        self.agent_messages.notices = Notices {
            last_timestamp: stored.last_notice,
            first_timestamp: stored.first_notice.or(stored.last_notice),
            early_timestamps: stored.early_notices,
            agent_clock: None,
        };
    }

    /// Takes over the state of `old`, the same router with an earlier config. So the traffic continues while
    /// this router registers with the new config. The caller must report the state of the uplinks again.
    pub fn adopt_state_of(&mut self, now: Time, wall: WallTime, old: &MobileRouter) {
        self.update_numbers.adopt_numbers(&old.update_numbers);
        self.agent_messages.notices = old.agent_messages.notices.clone();
        if old.config.home_agent != self.config.home_agent {
            self.agent_messages.notices.forget_agent_clock();
        }
        let names: Vec<&str> = self.config.uplinks.iter().map(|uplink| uplink.interface.as_str()).collect();
        let position = |index: usize| {
            let former = old.uplinks.get(index)?.config.interface.as_str();
            names.iter().position(|name| *name == former)
        };
        self.binding_update_list.outstanding_update =
            old.binding_update_list.outstanding_update.and_then(|it| {
                Some(OutstandingUpdate { sent_from: (position(it.sent_from.0)?, it.sent_from.1), ..it })
            });
        self.uplinks.forced_uplink = old.uplinks.forced_uplink.and_then(position);
        for uplink in self.uplinks.iter_mut() {
            if let Some(before) = old.uplinks.iter().find(|u| u.config.interface == uplink.config.interface) {
                uplink.adopt_state_of(before, &self.config);
            }
        }
        let same_home = self.config.home_address == old.config.home_address
            && self.config.home_agent == old.config.home_agent;
        if same_home {
            self.ipv4_networks.adopt_answers(&old.ipv4_networks);
            self.refusal_state.was_acknowledged = old.refusal_state.was_acknowledged;
            self.uplinks.target_uplink = old.uplinks.target_uplink.and_then(position);
            self.home_presence.at_home = old.home_presence.at_home && self.uplinks.target_uplink.is_some();
            self.home_presence.has_deregistered = old.home_presence.has_deregistered;
            self.binding_update_list
                .former_care_of_addresses
                .clone_from(&old.binding_update_list.former_care_of_addresses);
            self.reported_handovers.reported_uplink =
                old.reported_handovers.reported_uplink.and_then(position);
            self.binding_update_list.adopt_state(now, &old.binding_update_list, &position);
            for uplink in self.uplinks.iter_mut() {
                let before = old.uplinks.iter().find(|u| u.config.interface == uplink.config.interface);
                if let Some(before) = before {
                    uplink.path = before.path.clone();
                }
            }
            self.end_grace_period(now);
            if let Some(registration) = self.binding_update_list.entry_without_identifier.registration {
                self.timers.set_deadline(MobileRouterTimer::Expire, registration.expires_at);
                // The new config may have other prefixes, another lifetime or another key, so the router
                // registers again.
                self.timers.set_deadline(MobileRouterTimer::Refresh, now);
            }
        }
        (0..self.uplinks.len()).for_each(|index| self.set_signal_timer(index));
        self.evaluate_uplinks(now, wall, "the configuration changed");
    }

    /// Handles the operator's choice of one uplink; `None` ends the choice. Each call also ends the pause
    /// after a refusal.
    ///
    /// # Errors
    /// Returns a message for the operator if there is no such uplink.
    pub fn handle_handover(&mut self, now: Time, wall: WallTime, uplink: Option<&str>) -> Result<(), String> {
        self.assert_drained();
        self.uplinks.forced_uplink = match uplink {
            None => None,
            Some(name) => Some(self.uplink_by_name(name)?),
        };
        self.resume_service();
        self.refusal_state.current_request_pause = None;
        self.binding_loss_hints = BindingLossHints::default();
        self.end_all_demotions();
        let reason = if uplink.is_some() {
            "the operator selected it"
        } else {
            "the operator ended the choice of an uplink"
        };
        self.evaluate_uplinks(now, wall, reason);
        Ok(())
    }

    /// Returns the index of the uplink with this name.
    ///
    /// # Errors
    /// Returns a message for the operator if there is no such uplink.
    pub fn uplink_by_name(&self, name: &str) -> Result<usize, String> {
        self.uplinks.index_of(name).ok_or_else(|| {
            let names: Vec<&str> = self.uplinks.iter().map(|u| u.config.interface.as_str()).collect();
            format!("cannot find the uplink {name}, expected one of: {}", names.join(", "))
        })
    }

    /// Handles a shutdown of the station: de-registers if the router is registered.
    pub fn handle_shutdown(&mut self, now: Time, wall: WallTime) {
        self.assert_drained();
        let binding = self.transmit_bindings().first().and_then(|&best| {
            let binding = &self.binding_update_list.identified_entries[best];
            binding.care_of_address().or(binding.requested_care_of_address())
        });
        let asked = self.binding_update_list.outstanding_updates.back().map(|update| update.sent_from.1);
        let path =
            binding.or(self.path_without_identifier()).or(asked).filter(|_| !self.home_presence.at_home);
        self.is_stopping = true;
        if self.uplinks.iter().any(Uplink::has_unstored_volume) {
            self.outputs.push_back(Output::Persist(self.config.home_address));
        }
        for timer in [
            MobileRouterTimer::Refresh,
            MobileRouterTimer::Expire,
            MobileRouterTimer::Settle,
            MobileRouterTimer::AskAgain,
        ] {
            self.timers.stop_timer(timer);
        }
        self.binding_update_list.entry_without_identifier.registration = None;
        self.clear_bindings(now);
        // The outstanding request already is a de-registration, so it continues.
        if self.binding_update_list.request_without_identifier(RequestPurpose::Deregister).is_none() {
            // The home agent may have accepted a Binding Update whose acknowledgement was lost, so the
            // router de-registers its address.
            let given_up = self.binding_update_list.entry_without_identifier.registration_exchange.take();
            let sent = given_up.and_then(|given_up| Some(given_up.last_transmission()?.care_of_address));
            self.set_exchange_timer();
            let position = |address| self.uplinks.iter().position(|u| u.has_care_of_address(address));
            if let Some(care_of_address) = path.or(sent)
                && let Some(uplink) = position(care_of_address)
            {
                self.deregister_all_bindings(now, wall, uplink, vec![care_of_address]);
            }
        }
        self.report_forwarding_change("the station stops");
    }

    /// Handles a packet with a Mobility Header that came to one of this router's addresses.
    ///
    /// # Errors
    /// Returns why the message had no effect.
    pub fn handle_message(
        &mut self,
        now: Time,
        wall: WallTime,
        message: MobilityMessage<'_>,
    ) -> Result<(), MobilityDrop> {
        self.assert_drained();
        if message.source != self.config.home_agent {
            return Err(MobilityDrop::WrongParty);
        }
        let outer = message.tunnel_ends.and_then(|(_, remote)| remote.ipv4());
        if message.tunnel_ends.is_some() && (outer.is_none() || outer != self.config.home_agent_ipv4) {
            return Err(MobilityDrop::WrongParty);
        }
        let header = message.verified_header().map_err(MobilityDrop::from)?;
        let parsed = header.message().map_err(|_| MobilityDrop::Malformed)?;
        // Heartbeats and Binding Errors have no authentication even with a shared key, so IPsec is not
        // required for them. An encrypted session carries them too, so it is required for them if the config
        // demands sessions.
        let open =
            matches!(parsed, ParsedMobilityMessage::Heartbeat(_) | ParsedMobilityMessage::BindingError(_));
        if !open || self.update_numbers.authentication.requires_session_for_all() {
            self.update_numbers
                .authentication
                .check_ipsec_protection(message.is_ipsec_protected, message.session)?;
        }
        match parsed {
            ParsedMobilityMessage::BindingAcknowledgement(acknowledgement) => {
                self.handle_acknowledgement(now, wall, &message, &acknowledgement, header.octets())
            }
            ParsedMobilityMessage::BindingError(error) => {
                // RFC 6275 11.3.6: status 2 means that the home agent does not know a message type. Of the
                // messages that this router sends, only heartbeats are optional, so the error concerns
                // heartbeats.
                if error.status == UNKNOWN_MESSAGE_STATUS {
                    return self.handle_unsupported_heartbeats(now);
                }
                if error.status != BindingError::UNKNOWN_BINDING {
                    return Err(MobilityDrop::Unexpected);
                }
                // The error of a carnet home agent names the home address of the missing binding.
                if error.home_address != self.config.home_address && !error.home_address.is_unspecified() {
                    return Err(MobilityDrop::WrongParty);
                }
                // The error has no authentication, so it only counts as a hint.
                self.handle_binding_loss_hint(now, wall)?;
                self.mappings_lost(&message);
                Ok(())
            }
            ParsedMobilityMessage::Heartbeat(heartbeat) if heartbeat.response => {
                let counter = heartbeat.options.iter().find_map(|option| match option {
                    Ok(MobilityOption::RestartCounter(counter)) => Some(counter),
                    _ => None,
                });
                self.handle_heartbeat_answer(now, wall, &message, heartbeat.sequence, counter)
            }
            ParsedMobilityMessage::Heartbeat(heartbeat) => {
                self.answer_heartbeat(now, &message, heartbeat.sequence)
            }
            ParsedMobilityMessage::BindingRefreshRequest(_) => self.handle_binding_loss_hint(now, wall),
            ParsedMobilityMessage::HomeAgentSwitch(switch) => {
                self.handle_switch_message(now, wall, &message, &switch, header.octets())
            }
            ParsedMobilityMessage::BindingRevocation(revocation) => {
                self.handle_revocation(now, wall, &message, &revocation, header.octets())
            }
            _ => Err(MobilityDrop::UnknownType),
        }
    }

    /// Handles a packet that cannot be tunnelled because the router is not registered.
    pub fn handle_waiting_packet(&mut self, now: Time, wall: WallTime) {
        self.assert_drained();
        if self.uses_binding_identifiers() {
            if self.binding_update_list.make_old_requests_due(now, WAITING_PACKET_INTERVAL) {
                self.reconcile_bindings(now, wall);
            }
            return;
        }
        let request = self.binding_update_list.request_without_identifier(RequestPurpose::Register);
        let request =
            request.filter(|request| !request.is_transmission_held() && !request.is_never_retransmitted());
        let last = request.and_then(|request| request.retransmission.last_sent_at());
        if last.is_some_and(|at| now.saturating_since(at) >= WAITING_PACKET_INTERVAL) {
            self.transmit_update_without_identifiers(now, wall);
        }
    }

    /// Handles the timers that are due.
    pub fn handle_timeout(&mut self, now: Time, wall: WallTime) {
        self.assert_drained();
        while let Some(timer) = self.timers.pop_expired(now) {
            match timer {
                MobileRouterTimer::Retransmit => {
                    let given_up = self.is_stopping
                        && self
                            .binding_update_list
                            .entry_without_identifier
                            .registration_exchange
                            .as_ref()
                            .is_some_and(|e| e.transmissions.len() >= MAX_UPDATE_RATE);
                    if given_up {
                        self.binding_update_list.entry_without_identifier.registration_exchange = None;
                    } else {
                        self.transmit_update_without_identifiers(now, wall);
                    }
                }
                MobileRouterTimer::Refresh if self.is_return_home_unanswered(now) => {
                    self.abandon_return_home(now, wall)
                }
                MobileRouterTimer::Refresh => self.renew_registration(now, wall),
                MobileRouterTimer::Expire => {
                    self.binding_update_list.entry_without_identifier.registration = None;
                    self.binding_loss_hints = BindingLossHints::default();
                    self.outputs.push_back(Output::Event(Event::Deregistered {
                        reason: "the lifetime ended without an acknowledgement from the home agent".into(),
                    }));
                    self.report_forwarding_change("the registration ended");
                }
                MobileRouterTimer::AskAgain => {
                    // Drop the former request. The router creates another one below, or as soon as it has a
                    // usable uplink.
                    self.binding_update_list
                        .entry_without_identifier
                        .registration_exchange
                        .take_if(|exchange| exchange.is_never_retransmitted());
                    self.set_exchange_timer();
                    // RFC 6275 11.8: the pause doubles each time.
                    self.refusal_state.double_request_pause();
                    self.evaluate_uplinks(now, wall, "the home agent is asked again");
                }
                MobileRouterTimer::Demotion(index) => {
                    self.end_demotion(index);
                    self.evaluate_uplinks(now, wall, "the mobile router tries a failed uplink again");
                }
                MobileRouterTimer::Settle => self.evaluate_uplinks(now, wall, "a preferred uplink is back"),
                MobileRouterTimer::Grace => {
                    self.end_grace_period(now);
                    self.outputs.push_back(Output::Forwarding(self.config.home_address));
                }
                MobileRouterTimer::Solicit(index) => self.send_router_solicitation(now, index),
                MobileRouterTimer::Candidates(index) => self.review_candidates(now, wall, index),
                MobileRouterTimer::Bindings => {
                    self.reconcile_bindings(now, wall);
                    self.report_forwarding_change("a binding changed");
                }
                MobileRouterTimer::Heartbeat(index) => self.send_due_heartbeat(now, wall, index),
                MobileRouterTimer::Signal(index) => self.expire_signal_report(now, wall, index),
                MobileRouterTimer::Ipv6(index) => {
                    if self.uplinks.get_mut(index).is_some_and(|uplink| uplink.try_ipv6_again(now)) {
                        self.evaluate_uplinks(now, wall, "IPv6 is tried again");
                    }
                }
                MobileRouterTimer::Traffic => self.sample_traffic(now),
                MobileRouterTimer::Portal => self.probe_portals(now),
            }
        }
        self.schedule_heartbeats(now);
    }

    /// Sets another choice of uplinks for a policy until the station stops; `None` restores the configured
    /// ones.
    ///
    /// # Errors
    /// Returns a message for the operator if the policy or an uplink does not exist.
    pub fn handle_policy_uplinks(
        &mut self,
        now: Time,
        wall: WallTime,
        name: &str,
        uplinks: Option<&[String]>,
    ) -> Result<(), String> {
        self.assert_drained();
        self.flow_states.choose_uplinks(&self.uplinks, name, uplinks)?;
        self.reconcile_bindings(now, wall);
        self.report_forwarding_change("the operator moved a policy");
        Ok(())
    }

    /// Returns the flow bindings for the data path, by priority. Each has the identifiers of registered
    /// uplinks that work, the best first. If the home agent refused the action of a flow, its action is
    /// failover.
    pub fn flows(&self) -> &[FlowBinding] {
        &self.flow_states.effective_flows
    }

    /// Returns the policies in the order of the configuration.
    pub fn policy_status(&self) -> Vec<PolicyStatus> {
        self.flow_states.status(&self.uplinks)
    }

    /// Handles an ICMPv6 error from the home agent's address about a packet that this router has tunnelled to
    /// it. The caller has checked that the error quotes a packet of this router.
    ///
    /// # Errors
    /// Returns why the error had no effect.
    pub fn handle_tunnel_error(
        &mut self,
        now: Time,
        wall: WallTime,
        home_agent: Ipv6Addr,
    ) -> Result<(), MobilityDrop> {
        self.assert_drained();
        if home_agent != self.config.home_agent {
            return Err(MobilityDrop::WrongParty);
        }
        self.follow_binding_loss_hint(now, wall, true)
    }

    /// Returns the Home Agent Switch message that has arrived since the last call; `None` if none has.
    pub fn take_home_agent_switch(&mut self) -> Option<HomeAgentSwitchRequest> {
        self.agent_messages.pending_switch.take()
    }
}
