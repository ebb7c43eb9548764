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
//! * If that uplink fails, traffic uses the new path as soon as the Binding Update has left: the home agent
//!   accepts packets that arrive after the update.
//! * Without any registration the router sends no packets of the mobile network (RFC 3963 5.3).
//!
//! The router accepts packets from the home agent at every care-of address that it still has.
//!
//! On the home link the router de-registers; after the acknowledgement it routes without a tunnel. After an
//! unauthenticated Binding Error or Binding Refresh Request it registers again, at growing intervals, and
//! changes nothing else (see `binding_loss_hints`). While packets wait and the home agent does not answer,
//! the router sends a Binding Update at least every [`DEMAND_INTERVAL`]. Without waiting packets the pause
//! grows up to `MAX_BINDACK_TIMEOUT`.
//!
//! [`crate::agents`] selects one of several home agents, and creates a `MobileRouter` for each that it tries.
//! `agent_orders` handles the requests of a home agent.
//!
//! Left out: the K and L flags.

mod address_and_router;
mod agent_orders;
mod answers;
mod binding_loss_hints;
mod binding_update_sender;
mod capacity;
mod captive_portal;
mod composer;
mod config;
mod family;
mod flows;
mod home_network;
mod link_routers;
mod liveness;
mod movement;
mod notices;
mod parent;
mod path;
mod path_packets;
mod policies;
mod quality;
mod reachability;
mod refusals;
mod unanswered_uplinks;
mod uplink;
mod uplinks;
mod volume;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{Interface, LinkMessage, Rng, Time, TimerTable, WallTime};
use carnet_wire::mobility::status::Status;
use carnet_wire::mobility::{BindingError, Message, MobilityOption};
use carnet_wire::{icmpv6, nd};
use serde::{Deserialize, Serialize};

pub use address_and_router::Candidate;
use agent_orders::AgentOrders;
pub use agent_orders::SwitchOrder;
use binding_loss_hints::BindingLossHints;
pub use captive_portal::PortalProbe;
use captive_portal::PortalProber;
pub use config::{MobileRouterConfig, RegistrationMode};
use flows::Flows;
pub use flows::{MAX_FLOWS, Policy};
use home_network::HomePresence;
pub use liveness::{Liveness, Quality};
use notices::Notices;
pub use parent::Parent;
use path::Handovers;
pub use path::Path;
pub use path_packets::PathTraffic;
pub use policies::{Agreement, PolicyStatus};
pub use quality::SignalThresholds;
pub use refusals::REFUSED_INTERVAL;
use refusals::Refusals;
pub use unanswered_uplinks::Response;
use uplink::VOLUME_USED_UP;
pub use uplink::{Attachment, MAX_NEXT_HOPS, Uplink, UplinkConfig};
use uplinks::Uplinks;
pub use volume::{Octets, StoredVolume, VolumeAction, VolumePeriod};

use crate::binding_update_list::{self, BindingUpdateList, Outstanding, Purpose, UpdateNumbers};
pub use crate::binding_update_list::{BindingUpdateListEntry, Registration};
use crate::flow::FlowBinding;
use crate::{Event, MAX_UPDATE_RATE, MobilityDrop, MobilityMessage, Output};

/// Longest interval of Binding Updates while packets wait for a registration.
pub const DEMAND_INTERVAL: Duration = Duration::from_secs(2);
/// Binding Error status 2: the peer does not know the message type (RFC 6275 6.1.9).
const UNKNOWN_MESSAGE: u8 = 2;

/// State that must survive a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSequence {
    /// Last sequence number sent, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u16>,
    /// Home agent of this sequence number, if the config has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home_agent: Option<Ipv6Addr>,
    /// NTP timestamp of the last authenticated request of a home agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_notice: Option<u64>,
    /// NTP timestamp of the first request of the uninterrupted sequence up to the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_notice: Option<u64>,
    /// First and last NTP timestamp of requests that came while a home agent's clock was ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_notices: Option<(u64, u64)>,
}

/// State of the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No uplink can be used.
    Disconnected,
    /// No registration exists yet; a Binding Update is outstanding.
    Registering,
    /// At least one registration is valid.
    Registered,
    /// The router is on the home link.
    Home,
    /// The home agent refused. The router asks it again after a pause of at most [`REFUSED_INTERVAL`].
    Refused(Status),
    /// The router has de-registered because the station stops.
    Stopped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The outstanding Binding Update is due for retransmission.
    Retransmit,
    /// The registration is due for renewal.
    Refresh,
    /// The lifetime of the registration ends.
    Expire,
    /// A preferred uplink has been up for long enough to take over the traffic.
    Settle,
    /// The router asks a home agent again that has refused.
    AskAgain,
    /// The grace period of a former care-of address ends.
    Grace,
    /// The router may select an uplink again that had no answers.
    Demotion(usize),
    /// The next solicitation of routers on an uplink is due.
    Solicit(usize),
    /// A router or a candidate of an uplink is due for a check.
    Candidates(usize),
    /// A binding with identifier is due.
    Bindings,
    /// The path over an uplink is due for a check.
    Heartbeat(usize),
    /// The signal strength of an uplink was not reported again in time.
    Signal(usize),
    /// An uplink that is registered over IPv4 is due for another attempt over IPv6.
    Ipv6(usize),
    /// The packet counts of the paths are due for a check.
    Traffic,
    /// Uplinks without answers are due for a check for captive portals.
    Portal,
}

/// The mobile router. The documentation of the module describes its decisions.
#[derive(Debug)]
pub struct MobileRouter {
    config: MobileRouterConfig,
    /// The uplinks with their paths, and the selected one.
    uplinks: Uplinks,
    list: BindingUpdateList,
    /// Sequence numbers, timestamps and keys of Binding Updates.
    numbers: UpdateNumbers,
    refusals: Refusals,
    orders: AgentOrders,
    hints: BindingLossHints,
    home: HomePresence,
    flows: Flows,
    portals: PortalProber,
    handovers: Handovers,
    /// Whether the router is de-registering because the station stops.
    stopping: bool,
    timers: TimerTable<Timer>,
    outputs: VecDeque<Output>,
}

impl MobileRouter {
    /// Creates a router that does not know the state of its interfaces yet.
    pub fn new(config: MobileRouterConfig, rng: &mut Rng) -> Self {
        let identifiers = config.uplinks.iter().enumerate().filter_map(|(index, u)| Some((index, u.bid?)));
        MobileRouter {
            uplinks: Uplinks::new(&config, rng),
            list: BindingUpdateList::new(identifiers),
            numbers: UpdateNumbers::new(config.authentication.with(config.home_agent)),
            refusals: Refusals::default(),
            orders: AgentOrders::default(),
            hints: BindingLossHints::default(),
            home: HomePresence::default(),
            flows: Flows::new(&config.policies),
            portals: PortalProber::default(),
            handovers: Handovers::default(),
            stopping: false,
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

    /// Returns the last acknowledged registration without identifier; `None` after its lifetime.
    pub fn registration(&self) -> Option<&Registration> {
        self.list.plain.registration.as_ref()
    }

    /// Returns the Binding Update List entries with identifiers, in the order of the uplinks.
    pub fn bindings(&self) -> &[BindingUpdateListEntry] {
        &self.list.bindings
    }

    /// Returns the state of the router.
    pub fn state(&self) -> State {
        if self.stopping {
            State::Stopped
        } else if let Some(status) = self.refusals.status {
            State::Refused(status)
        } else if self.home.at_home {
            State::Home
        } else if self.list.has_registration() {
            State::Registered
        } else if self.uplinks.target.is_some() {
            State::Registering
        } else {
            State::Disconnected
        }
    }

    /// Returns whether the router may advertise the mobile network prefixes. It may not after the home agent
    /// has refused them as invalid or as another node's (RFC 3963 5.4.2).
    pub fn may_advertise(&self) -> bool {
        !matches!(self.refusals.status, Some(Status::INVALID_PREFIX | Status::NOT_AUTHORIZED_FOR_PREFIX))
    }

    /// Returns whether the de-registration at a shutdown is complete, or was not necessary.
    pub fn is_quiescent(&self) -> bool {
        self.list.plain.exchange.is_none()
    }

    /// Returns the next output. Call it until it returns `None` after every `handle_*`.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Asserts that the caller has taken all outputs of the last input.
    fn assert_drained(&self) {
        debug_assert!(self.outputs.is_empty(), "poll_output was not called until it returned None");
    }

    /// Returns when [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next_deadline()
    }

    /// Returns the state that must survive a restart.
    pub fn stored(&self) -> StoredSequence {
        let Notices { last: last_notice, first: first_notice, early: early_notices, .. } =
            self.orders.notices;
        let sequence = self.numbers.is_numbered.then_some(self.numbers.sequence);
        StoredSequence { sequence, home_agent: None, last_notice, first_notice, early_notices }
    }

    /// Takes over the state that [`Self::stored`] returned.
    pub fn restore(&mut self, stored: StoredSequence) {
        self.numbers.sequence = stored.sequence.unwrap_or_default();
        self.numbers.is_numbered = stored.sequence.is_some();
        self.orders.notices = Notices {
            last: stored.last_notice,
            first: stored.first_notice.or(stored.last_notice),
            early: stored.early_notices,
            clock: None,
        };
    }

    /// Takes over the state of `old`, the same router with an earlier config, so that the traffic continues
    /// while this router registers with the new config. The caller must report the state of the uplinks
    /// again.
    pub fn adopt(&mut self, now: Time, wall: WallTime, old: &MobileRouter) {
        self.numbers.adopt(&old.numbers);
        self.orders.notices = old.orders.notices.clone();
        if old.config.home_agent != self.config.home_agent {
            self.orders.notices.forget_clock();
        }
        let names: Vec<&str> = self.config.uplinks.iter().map(|uplink| uplink.interface.as_str()).collect();
        let position = |index: usize| {
            let former = old.uplinks.get(index)?.config.interface.as_str();
            names.iter().position(|name| *name == former)
        };
        self.list.outstanding = old
            .list
            .outstanding
            .and_then(|it| Some(Outstanding { via: (position(it.via.0)?, it.via.1), ..it }));
        self.uplinks.forced = old.uplinks.forced.and_then(position);
        for uplink in self.uplinks.iter_mut() {
            if let Some(before) = old.uplinks.iter().find(|u| u.config.interface == uplink.config.interface) {
                uplink.adopt(before, &self.config);
            }
        }
        let same_home = self.config.home_address == old.config.home_address
            && self.config.home_agent == old.config.home_agent;
        if same_home {
            self.refusals.was_acknowledged = old.refusals.was_acknowledged;
            self.uplinks.target = old.uplinks.target.and_then(position);
            self.home.at_home = old.home.at_home && self.uplinks.target.is_some();
            self.home.returned = old.home.returned;
            self.list.previous.clone_from(&old.list.previous);
            self.handovers.reported = old.handovers.reported.and_then(position);
            self.list.adopt(now, &old.list, &position);
            for uplink in self.uplinks.iter_mut() {
                let before = old.uplinks.iter().find(|u| u.config.interface == uplink.config.interface);
                if let Some(before) = before {
                    uplink.path = before.path.clone();
                }
            }
            self.grace_over(now);
            if let Some(registration) = self.list.plain.registration {
                self.timers.set(Timer::Expire, registration.expires);
                // The new config may have other prefixes, another lifetime or another key, so the router
                // registers again.
                self.timers.set(Timer::Refresh, now);
            }
        }
        (0..self.uplinks.len()).for_each(|index| self.expect_signal(index));
        self.evaluate(now, wall, "the configuration changed");
    }

    /// Takes over the state of an interface.
    pub fn handle_interface(&mut self, now: Time, wall: WallTime, interface: &Interface) {
        self.assert_drained();
        let Some(index) = self.uplinks.position(&interface.name) else {
            return;
        };
        let before = self.uplinks[index].attachment;
        if self.uplinks[index].handle_interface(interface.clone(), &self.config) {
            self.solicit(now, index);
        }
        if self.config.probes_portals && self.timers.get(Timer::Portal).is_none() {
            self.timers.set(Timer::Portal, now);
        }
        self.watch_candidates(now, index);
        self.attachment_changed(now, wall, index, before);
    }

    /// Handles the removal of an interface.
    pub fn handle_interface_gone(&mut self, now: Time, wall: WallTime, name: &str) {
        self.assert_drained();
        let Some(index) = self.uplinks.position(name) else { return };
        let before = self.uplinks[index].attachment;
        self.uplinks[index].handle_gone();
        self.timers.stop(Timer::Solicit(index));
        self.watch_candidates(now, index);
        self.attachment_changed(now, wall, index, before);
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
        let Some(index) = self.uplinks.position(&message.interface) else {
            return Ok(());
        };
        if message.message.first() == Some(&icmpv6::types::NEIGHBOR_SOLICITATION) {
            if self.is_home() && self.uplinks.target == Some(index) {
                let answer = self.config.home_answer(&self.uplinks[index], message)?;
                self.outputs.extend(answer.map(Output::Link));
            }
            return Ok(());
        }
        let is_advertisement = match message.message.first() {
            Some(&icmpv6::types::ROUTER_ADVERTISEMENT) => true,
            Some(&icmpv6::types::NEIGHBOR_ADVERTISEMENT) => false,
            _ => return Ok(()),
        };
        // RFC 4861 6.1.2 and 7.1.2. A router sends the advertisement of its link-local address from this
        // address; other sources do not matter.
        if !is_advertisement && !message.source.is_unicast_link_local() {
            return Ok(());
        }
        if message.hop_limit != nd::HOP_LIMIT || !message.source.is_unicast_link_local() {
            return Err(MobilityDrop::NeighborDiscovery);
        }
        icmpv6::verify(message.source, message.destination, &message.message)
            .map_err(|_| MobilityDrop::BadChecksum)?;
        let before = self.uplinks[index].attachment;
        let portal = self.uplinks[index].portal.clone();
        if is_advertisement {
            let question = self.uplinks[index].handle_router_advertisement(now, message, &self.config);
            self.outputs.extend(question.map(Output::Link));
        } else {
            self.uplinks[index].handle_neighbor_advertisement(now, message, &self.config);
        }
        self.watch_candidates(now, index);
        let uplink = &self.uplinks[index];
        if let Some(announced) = uplink.portal.as_ref().filter(|_| uplink.portal != portal)
            && self.portals.events.allow(now)
        {
            let (uplink, uri) = (uplink.config.interface.clone(), announced.uri.clone());
            self.outputs.push_back(Output::Event(Event::CaptivePortal { uplink, uri, redirects: false }));
        }
        self.attachment_changed(now, wall, index, before);
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
        if uplink.set_direct(addresses, &self.config) {
            let same = uplink.attachment == before;
            self.attachment_changed(now, wall, index, before);
            if same {
                self.evaluate(now, wall, "the addresses in the networks of outer mobile routers changed");
            }
        }
    }

    /// Handles the operator's choice of one uplink; `None` ends the choice. It also ends a refusal.
    ///
    /// # Errors
    /// Returns a message for the operator if there is no such uplink.
    pub fn handle_handover(&mut self, now: Time, wall: WallTime, uplink: Option<&str>) -> Result<(), String> {
        self.assert_drained();
        self.uplinks.forced = match uplink {
            None => None,
            Some(name) => Some(self.uplink_called(name)?),
        };
        self.end_refusal();
        self.refusals.pause = None;
        self.hints = BindingLossHints::default();
        self.rehabilitate_all();
        let reason = if uplink.is_some() {
            "the operator selected it"
        } else {
            "the operator ended the choice of an uplink"
        };
        self.evaluate(now, wall, reason);
        Ok(())
    }

    /// Returns the index of the uplink with this name.
    ///
    /// # Errors
    /// Returns a message for the operator if there is no such uplink.
    pub fn uplink_called(&self, name: &str) -> Result<usize, String> {
        self.uplinks.position(name).ok_or_else(|| {
            let names: Vec<&str> = self.uplinks.iter().map(|u| u.config.interface.as_str()).collect();
            format!("cannot find the uplink {name}, expected one of: {}", names.join(", "))
        })
    }

    /// Handles a shutdown of the station: de-registers if the router is registered.
    pub fn handle_shutdown(&mut self, now: Time, wall: WallTime) {
        self.assert_drained();
        let binding = self.transmit_bindings().first().and_then(|&best| {
            let binding = &self.list.bindings[best];
            binding.care_of_address().or(binding.asked_for())
        });
        let asked = self.list.updates.back().map(|update| update.via.1);
        let path = binding.or(self.plain_path()).or(asked).filter(|_| !self.home.at_home);
        self.stopping = true;
        if self.uplinks.iter().any(Uplink::has_unstored_volume) {
            self.outputs.push_back(Output::Persist(self.config.home_address));
        }
        for timer in [Timer::Refresh, Timer::Expire, Timer::Settle, Timer::AskAgain] {
            self.timers.stop(timer);
        }
        self.list.plain.registration = None;
        self.clear_bindings(now);
        // The outstanding request already is a de-registration, so it continues.
        if self.list.plain_request(Purpose::Deregister).is_none() {
            // The home agent may have accepted a Binding Update whose acknowledgement was lost, so the
            // router de-registers its address.
            let given_up = self.list.plain.exchange.take();
            let sent = given_up.and_then(|given_up| Some(given_up.last_sent()?.care_of_address));
            self.watch_exchange();
            let position = |address| self.uplinks.iter().position(|u| u.has_care_of_address(address));
            if let Some(care_of_address) = path.or(sent)
                && let Some(uplink) = position(care_of_address)
            {
                self.deregister_from(now, wall, uplink, vec![care_of_address]);
            }
        }
        self.forwarding_changed("the station stops");
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
        let outer = message.outer.and_then(|(_, remote)| remote.ipv4());
        if message.outer.is_some() && (outer.is_none() || outer != self.config.home_agent_ipv4) {
            return Err(MobilityDrop::WrongParty);
        }
        let header = message.header().map_err(MobilityDrop::from)?;
        let parsed = header.message().map_err(|_| MobilityDrop::Malformed)?;
        // Heartbeats and Binding Errors have no authentication even with a shared key, so IPsec is not
        // required for them.
        if !matches!(parsed, Message::Heartbeat(_) | Message::BindingError(_)) {
            self.numbers.authentication.admit(message.protected)?;
        }
        match parsed {
            Message::BindingAcknowledgement(acknowledgement) => {
                self.acknowledged(now, wall, &message, &acknowledgement, header.octets())
            }
            Message::BindingError(error) => {
                // RFC 6275 11.3.6: status 2 concerns a message type. Of the messages that this router
                // sends, only heartbeats are optional.
                if error.status == UNKNOWN_MESSAGE {
                    return self.heartbeats_unknown(now);
                }
                if error.status != BindingError::UNKNOWN_BINDING {
                    return Err(MobilityDrop::Unexpected);
                }
                // The error of a carnet home agent names the home address of the missing binding.
                if error.home_address != self.config.home_address && !error.home_address.is_unspecified() {
                    return Err(MobilityDrop::WrongParty);
                }
                // The error has no authentication, so it only counts as a hint.
                self.hint(now, wall)?;
                self.mappings_lost(&message);
                Ok(())
            }
            Message::Heartbeat(heartbeat) if heartbeat.response => {
                let counter = heartbeat.options.iter().find_map(|option| match option {
                    Ok(MobilityOption::RestartCounter(counter)) => Some(counter),
                    _ => None,
                });
                self.heartbeat_answered(now, wall, &message, heartbeat.sequence, counter)
            }
            Message::Heartbeat(heartbeat) => self.heartbeat_asked(now, &message, heartbeat.sequence),
            Message::BindingRefreshRequest(_) => self.hint(now, wall),
            Message::HomeAgentSwitch(switch) => {
                self.switch_ordered(now, wall, &message, &switch, header.octets())
            }
            Message::BindingRevocation(revocation) => {
                self.revocation_ordered(now, wall, &message, &revocation, header.octets())
            }
            _ => Err(MobilityDrop::UnknownType),
        }
    }

    /// Handles a packet that cannot be tunnelled because the router is not registered.
    pub fn handle_demand(&mut self, now: Time, wall: WallTime) {
        self.assert_drained();
        if self.is_multiple() {
            if self.list.hasten(now, DEMAND_INTERVAL) {
                self.reconcile(now, wall);
            }
            return;
        }
        let request = self.list.plain_request(Purpose::Register);
        let request = request.filter(|request| !request.is_held() && !request.is_single());
        let last = request.and_then(|request| request.retransmission.last());
        if last.is_some_and(|at| now.saturating_since(at) >= DEMAND_INTERVAL) {
            self.transmit(now, wall);
        }
    }

    /// Handles the timers that are due.
    pub fn handle_timeout(&mut self, now: Time, wall: WallTime) {
        self.assert_drained();
        while let Some(timer) = self.timers.pop_expired(now) {
            match timer {
                Timer::Retransmit => {
                    let given_up = self.stopping
                        && self.list.plain.exchange.as_ref().is_some_and(|e| e.sent.len() >= MAX_UPDATE_RATE);
                    if given_up {
                        self.list.plain.exchange = None;
                    } else {
                        self.transmit(now, wall);
                    }
                }
                Timer::Refresh if self.is_return_unanswered(now) => self.break_off_return(now, wall),
                Timer::Refresh => self.refresh(now, wall),
                Timer::Expire => {
                    self.list.plain.registration = None;
                    self.hints = BindingLossHints::default();
                    self.outputs.push_back(Output::Event(Event::Deregistered {
                        reason: "the lifetime ended without an acknowledgement from the home agent".into(),
                    }));
                    self.forwarding_changed("the registration ended");
                }
                Timer::AskAgain => {
                    // Without an uplink the router cannot ask now; it asks as soon as it has one.
                    self.list.plain.exchange.take_if(|exchange| exchange.is_single());
                    self.watch_exchange();
                    // RFC 6275 11.8: the pause doubles each time.
                    self.refusals.back_off();
                    self.evaluate(now, wall, "the home agent is asked again");
                }
                Timer::Demotion(index) => {
                    self.rehabilitate(index);
                    self.evaluate(now, wall, "the mobile router tries a failed uplink again");
                }
                Timer::Settle => self.evaluate(now, wall, "a preferred uplink is back"),
                Timer::Grace => {
                    self.grace_over(now);
                    self.outputs.push_back(Output::Forwarding(self.config.home_address));
                }
                Timer::Solicit(index) => self.solicit(now, index),
                Timer::Candidates(index) => self.candidates_due(now, wall, index),
                Timer::Bindings => {
                    self.reconcile(now, wall);
                    self.forwarding_changed("a binding changed");
                }
                Timer::Heartbeat(index) => self.heartbeat_due(now, wall, index),
                Timer::Signal(index) => self.signal_expired(now, wall, index),
                Timer::Ipv6(index) => {
                    if self.uplinks.get_mut(index).is_some_and(|uplink| uplink.try_ipv6_again(now)) {
                        self.evaluate(now, wall, "IPv6 is tried again");
                    }
                }
                Timer::Traffic => self.traffic_due(now),
                Timer::Portal => self.probe_portals(now),
            }
        }
        self.schedule_heartbeats(now);
    }

    fn solicit(&mut self, now: Time, index: usize) {
        if let Some((message, again)) = self.uplinks.get_mut(index).and_then(Uplink::solicit) {
            self.outputs.push_back(Output::Link(message));
            self.timers.set(Timer::Solicit(index), now + again);
        }
    }

    /// Sets the timer for the next check of an uplink's routers and candidates.
    pub(super) fn watch_candidates(&mut self, now: Time, index: usize) {
        if let Some(uplink) = self.uplinks.get_mut(index) {
            uplink.watch_home_router(now, &self.config);
        }
        match self.uplinks.get(index).and_then(Uplink::deadline) {
            Some(at) => self.timers.set(Timer::Candidates(index), at),
            None => self.timers.stop(Timer::Candidates(index)),
        }
    }

    fn candidates_due(&mut self, now: Time, wall: WallTime, index: usize) {
        let Some(uplink) = self.uplinks.get_mut(index) else { return };
        let (before, order) = (uplink.attachment, uplink.care_of_addresses());
        let (solicitations, seeking) = uplink.handle_timeout(now, &self.config);
        self.outputs.extend(solicitations.into_iter().flatten().map(Output::Link));
        if seeking {
            self.solicit(now, index);
        }
        self.watch_candidates(now, index);
        let reordered = self.uplinks[index].care_of_addresses() != order;
        if reordered && self.uplinks[index].attachment == before {
            self.evaluate(now, wall, "a care-of address is tried again");
        }
        self.attachment_changed(now, wall, index, before);
    }

    /// Handles a care-of address over which the home agent does not answer: selects another candidate, and
    /// solicits routers. Returns whether a candidate remains that has not failed.
    pub(super) fn candidate_failed(&mut self, now: Time, index: usize, address: IpAddr) -> bool {
        let another = self.uplinks[index].candidate_failed(now, address, &self.config);
        let is_waiting = self.timers.get(Timer::Solicit(index)).is_some();
        if address.is_ipv6() && !(is_waiting && self.uplinks[index].has_solicited()) {
            self.solicit(now, index);
        }
        self.watch_candidates(now, index);
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        another
    }

    /// Takes over the signal strength of an uplink, in dBm; `None` if it is unknown. The value becomes
    /// unknown if it is not reported again, changed or not, within [`UplinkConfig::signal_timeout`].
    pub fn handle_signal(&mut self, now: Time, wall: WallTime, interface: &str, dbm: Option<i32>) {
        self.assert_drained();
        let Some(index) = self.uplinks.position(interface) else { return };
        self.uplinks[index].signal_at = now;
        self.take_signal(now, wall, index, dbm);
        self.expect_signal(index);
    }

    /// Sets the timer after which the signal strength of an uplink becomes unknown.
    pub(super) fn expect_signal(&mut self, index: usize) {
        let uplink = &self.uplinks[index];
        match uplink.config.signal_timeout.filter(|_| uplink.signal.is_some()) {
            Some(timeout) => self.timers.set(Timer::Signal(index), uplink.signal_at + timeout),
            None => self.timers.stop(Timer::Signal(index)),
        }
    }

    /// Handles the end of that timer: the signal strength is unknown now.
    pub(super) fn signal_expired(&mut self, now: Time, wall: WallTime, index: usize) {
        let name = &self.uplinks[index].config.interface;
        let message = format!("the signal of {name} is unknown: no program has reported it in time");
        self.outputs.push_back(Output::Event(Event::Warning { message }));
        self.take_signal(now, wall, index, None);
    }

    /// Takes over the number of octets that an uplink has carried in the present period of its volume.
    pub fn handle_volume(&mut self, now: Time, wall: WallTime, interface: &str, octets: u64) {
        self.assert_drained();
        let Some(index) = self.uplinks.position(interface) else { return };
        let before = self.uplinks[index].is_used_up();
        self.uplinks[index].used = octets;
        self.outputs.extend(self.uplinks[index].volume_event().map(Output::Event));
        if self.uplinks[index].is_used_up() != before {
            let reason = if before { "a new period of its volume began" } else { VOLUME_USED_UP };
            self.attach_anew(now, wall, index);
            self.evaluate(now, wall, reason);
        }
    }

    /// Takes over whether the modem of an uplink roams in another operator's network; `None` if that is
    /// unknown.
    pub fn handle_roaming(&mut self, now: Time, wall: WallTime, interface: &str, roaming: Option<bool>) {
        self.assert_drained();
        let Some(index) = self.uplinks.position(interface) else { return };
        if std::mem::replace(&mut self.uplinks[index].roaming, roaming) != roaming {
            self.attach_anew(now, wall, index);
        }
    }

    /// Determines the attachment of an uplink again, because a reason not to use it may have changed.
    fn attach_anew(&mut self, now: Time, wall: WallTime, index: usize) {
        let before = self.uplinks[index].attachment;
        self.uplinks[index].attach(&self.config);
        self.watch_candidates(now, index);
        self.attachment_changed(now, wall, index, before);
    }

    /// Takes over the capacity of an uplink in kbit/s, which another program has measured. It is the uplink's
    /// weight if flows are balanced. A measurement of the router replaces it.
    pub fn handle_capacity(&mut self, now: Time, wall: WallTime, interface: &str, kbit_s: Option<u32>) {
        self.assert_drained();
        let Some(index) = self.uplinks.position(interface) else { return };
        self.set_capacity(now, wall, index, kbit_s);
    }

    pub(super) fn set_capacity(&mut self, now: Time, wall: WallTime, index: usize, kbit_s: Option<u32>) {
        if self.uplinks[index].capacity != kbit_s {
            self.uplinks[index].capacity = kbit_s;
            self.reconcile(now, wall);
            self.forwarding_changed("the capacity of an uplink changed");
        }
    }

    fn take_signal(&mut self, now: Time, wall: WallTime, index: usize, dbm: Option<i32>) {
        if let Some(reason) = self.uplinks[index].take_signal(dbm) {
            self.evaluate(now, wall, reason);
        }
    }

    /// Takes over the counters of an uplink's interface. If the uplink has no configured volume, they only
    /// appear in the status.
    pub fn handle_octets(&mut self, now: Time, wall: WallTime, interface: &str, octets: Octets) {
        self.assert_drained();
        let Some(index) = self.uplinks.position(interface) else { return };
        let uplink = &mut self.uplinks[index];
        let (used, is_due) = uplink.count_octets(now, wall, octets);
        let was_used_up = uplink.is_used_up();
        self.handle_volume(now, wall, interface, used);
        let uplink = &mut self.uplinks[index];
        if uplink.config.volume.is_some() && (is_due || uplink.is_used_up() != was_used_up) {
            uplink.volume_stored(now, used);
            self.outputs.push_back(Output::Persist(self.config.home_address));
        }
        if let Some(measured) = self.uplinks[index].measure_capacity(now, octets) {
            self.set_capacity(now, wall, index, Some(measured));
        }
    }

    /// Returns the numbers of octets that the uplinks have carried, to store them.
    pub fn volumes(&self) -> impl Iterator<Item = (&str, StoredVolume)> {
        self.uplinks.iter().filter_map(|u| Some((u.config.interface.as_str(), u.meter.volume.clone()?)))
    }

    /// Takes over a stored item of [`Self::volumes`]. Call it before any other input.
    pub fn restore_volume(&mut self, interface: &str, volume: StoredVolume) {
        if let Some(uplink) = self.uplinks.iter_mut().find(|u| u.config.interface == interface) {
            uplink.restore_volume(volume);
        }
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
        self.flows.choose_uplinks(&self.uplinks, name, uplinks)?;
        self.reconcile(now, wall);
        self.forwarding_changed("the operator moved a policy");
        Ok(())
    }

    /// Returns the flow bindings for the data path, by priority. Each has the identifiers of registered
    /// uplinks that work, the best first. If the home agent refused the action of a flow, its action is
    /// failover.
    pub fn flows(&self) -> &[FlowBinding] {
        &self.flows.effective
    }

    /// Returns the policies in the order of the configuration.
    pub fn policy_status(&self) -> Vec<PolicyStatus<'_>> {
        self.flows.status(&self.uplinks)
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
        self.follow_hint(now, wall, true)
    }

    /// Returns the Home Agent Switch message that has arrived since the last call.
    pub fn take_switch(&mut self) -> Option<SwitchOrder> {
        self.orders.switch.take()
    }

    /// Registers an uplink at once after a user has accepted the terms of its captive portal.
    fn portal_passed(&mut self, now: Time, wall: WallTime, index: usize) {
        if let Some(binding) = self.list.binding_of(index).filter(|_| self.is_multiple()) {
            self.list.bindings[binding].resume(now);
            return self.reconcile(now, wall);
        }
        self.rehabilitate(index);
        if let Some(exchange) = self.list.plain.exchange.as_mut().filter(|_| self.list.plain.uplink == index)
        {
            exchange.apply(now, binding_update_list::Event::Recovery);
            self.watch_exchange();
        }
        self.evaluate(now, wall, "a captive portal lets packets pass");
    }

    /// Requests a probe of an uplink without answers, if the config has a URL for it.
    fn probe_portals(&mut self, now: Time) {
        if !self.config.probes_portals || self.stopping {
            return self.timers.stop(Timer::Portal);
        }
        self.timers.set(Timer::Portal, now + captive_portal::LOOK);
        self.portals.expire(now);
        for index in 0..self.uplinks.len() {
            let is_silent = matches!(self.response(index), Response::Silent { .. });
            let answers = !is_silent && self.heartbeat_path(index).is_some();
            let probe = self.portals.look(now, index, &mut self.uplinks[index], (is_silent, answers));
            self.outputs.extend(probe);
        }
    }

    /// Handles the result of a probe for a captive portal over an uplink.
    pub fn handle_portal_probe(&mut self, now: Time, wall: WallTime, interface: &str, probe: &PortalProbe) {
        self.assert_drained();
        let Ok(index) = self.uplink_called(interface) else { return };
        self.portals.finish(index);
        let is_foreign = matches!(self.uplinks[index].attachment, Attachment::Foreign { .. });
        if !self.config.probes_portals || !is_foreign {
            return;
        }
        let (event, has_passed) = self.portals.take(now, &mut self.uplinks[index], probe);
        self.outputs.extend(event.map(Output::Event));
        if has_passed {
            self.portal_passed(now, wall, index);
        }
    }
}
