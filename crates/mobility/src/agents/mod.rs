//! Selects the home agent with which a mobile router registers, if there are several (RFC 6275 11.4.1, RFC
//! 3963 7, RFC 5142 6).
//!
//! A [`MobileRouter`] knows one home agent. To try another home agent, this module creates a second
//! `MobileRouter`, which takes over the state of the uplinks and registers beside the first. When it is
//! registered, the two change places: the first de-registers, and still accepts packets for a moment. So a
//! change of the home agent is make before break, as a change of the uplink is. Until the new home agent has
//! acknowledged, traffic goes through the old one, and the router accepts packets from both.
//!
//! The router tries another home agent in three cases:
//!
//! * The present one refuses a registration, or does not answer for five seconds. A refusal is any status of
//!   128 or more, unless the router can correct a value and try again.
//! * The present one sends a Home Agent Switch message ([`crate::mobile_router::HomeAgentSwitchRequest`]).
//!   The router ignores it if both home agents have the same key. An attacker could then record messages to
//!   one home agent and replay them to the other.
//! * The router knows no home agent. Then it discovers one (`discovery`).
//!
//! `prefix_discovery` handles the present home agent's advertisements of the home prefix.
//!
//! The router tries first the configured home agents in their order, then the discovered ones. After it has
//! tried each once, it pauses; each further pause is twice as long. It does not return to a preferred home
//! agent by itself: it changes only if the present home agent fails or sends it away. It stores the home
//! agent with which it was registered last, and tries this one first after a restart (RFC 6275 11.4.1: "MUST
//! attempt any new registration first with that home agent").

mod discovery;
mod prefix_discovery;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{Interface, LinkMessage, Rng, Time, WallTime};
use carnet_wire::icmpv6::message_type::{DHAAD_REPLY, MOBILE_PREFIX_ADVERTISEMENT};

use crate::mobile_router::{
    HomeAgentSwitchRequest, InterfaceOctets, MobileRouter, MobileRouterConfig, PortalProbe, State,
};
use crate::{Event, MobilityDrop, OLD_PATH_GRACE, Output};
use discovery::HomeAgentDiscovery;
use prefix_discovery::PrefixDiscovery;

/// Time after which the router tries another home agent if the present one does not answer. It is longer than
/// `InitialBindackTimeoutFirstReg`.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// First and longest pause after the router has tried all home agents without success. The pause doubles each
/// time.
const PAUSE_BETWEEN_AGENT_ROUNDS: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(64));
/// Time that the router gives its other uplinks to register with a new home agent after the first uplink has
/// registered.
const FURTHER_UPLINKS_WAIT: Duration = Duration::from_secs(2);
/// Maximum number of former home agents with which the router is still de-registering.
const MAX_FORMER_AGENTS: usize = 2;

/// The operator's config of the home agents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HomeAgentSelectionConfig {
    /// Configured home agents, in the order in which the router tries them.
    pub agents: Vec<HomeAgentAddress>,
    /// Whether the router discovers further home agents.
    pub discovers_agents: bool,
    /// Whether the router asks the home agent for changes of the home prefix (RFC 6275 11.4.2).
    pub prefix_discovery: bool,
}

/// Addresses of a home agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HomeAgentAddress {
    /// IPv6 address of the home agent.
    pub address: Ipv6Addr,
    /// IPv4 address, if the home agent has one (RFC 5555).
    pub ipv4_address: Option<Ipv4Addr>,
}

impl HomeAgentSelectionConfig {
    /// Returns the home agent to register with first. That is `last`, the home agent of the last
    /// registration, if the config still permits it; otherwise the first of the config. Returns `None` if no
    /// home agent is known.
    pub fn first_agent(&self, last: Option<Ipv6Addr>) -> Option<HomeAgentAddress> {
        let known = |address| self.agents.iter().find(|agent| agent.address == address).copied();
        let again = last.and_then(|last| {
            known(last)
                .or(self.discovers_agents.then_some(HomeAgentAddress { address: last, ipv4_address: None }))
        });
        again.or(self.agents.first().copied())
    }
}

/// A home agent that the router is trying.
#[derive(Debug)]
struct TriedAgent {
    mobile_router: MobileRouter,
    trial_started_at: Time,
    /// Time of the first registration with this home agent, if it has accepted one.
    registered_at: Option<Time>,
    /// Whether the present home agent has demanded the change by a Home Agent Switch message.
    is_demanded_by_current_agent: bool,
}

/// A home agent that the router is leaving.
#[derive(Debug)]
struct FormerAgent {
    mobile_router: MobileRouter,
    /// Time until which the router accepts packets from this home agent. `None` until the router has
    /// de-registered.
    accept_packets_until: Option<Time>,
}

/// Selection of the home agent; see the module documentation.
#[derive(Debug)]
pub struct HomeAgentSelection {
    config: HomeAgentSelectionConfig,
    /// Discovered home agents, in the order in which the router tries them.
    discovered_agents: Vec<HomeAgentAddress>,
    discovery: HomeAgentDiscovery,
    prefix_discovery: PrefixDiscovery,
    tried_agent: Option<TriedAgent>,
    former_agents: Vec<FormerAgent>,
    /// Time since which the present home agent has not answered; `None` if no answer is outstanding.
    unanswered_since: Option<Time>,
    /// Home agents that the router has tried since `unanswered_since`.
    tried_since_unanswered: Vec<Ipv6Addr>,
    /// Time at which the router tries all home agents again; `None` unless all have failed.
    next_agent_round_at: Option<Time>,
    /// Length of the last pause between two rounds through all home agents.
    last_pause_between_agent_rounds: Duration,
    /// Home agents that the present one has named in a Home Agent Switch message and that the router has not
    /// tried yet.
    agents_to_switch_to: VecDeque<HomeAgentAddress>,
    /// Whether the present home agent has sent the router away without the address of another home agent.
    must_leave_agent: bool,
    rng: Rng,
    outputs: VecDeque<Output>,
}

impl HomeAgentSelection {
    /// Creates the selection; the router has not tried any home agent yet.
    pub fn new(config: HomeAgentSelectionConfig, rng: Rng) -> HomeAgentSelection {
        HomeAgentSelection {
            prefix_discovery: PrefixDiscovery::new(config.prefix_discovery),
            config,
            discovered_agents: Vec::new(),
            discovery: HomeAgentDiscovery::default(),
            tried_agent: None,
            former_agents: Vec::new(),
            unanswered_since: None,
            tried_since_unanswered: Vec::new(),
            next_agent_round_at: None,
            last_pause_between_agent_rounds: Duration::ZERO,
            agents_to_switch_to: VecDeque::new(),
            must_leave_agent: false,
            rng,
            outputs: VecDeque::new(),
        }
    }

    /// Returns whether the router knows, or may discover, more than one home agent.
    pub fn has_several_agents(&self) -> bool {
        self.config.discovers_agents || self.config.agents.len() > 1
    }

    /// Returns all known home agents, in the order in which they are tried.
    pub fn known_agents(&self) -> Vec<HomeAgentAddress> {
        let mut known = self.config.agents.clone();
        for agent in &self.discovered_agents {
            if !known.iter().any(|other| other.address == agent.address) {
                known.push(*agent);
            }
        }
        known
    }

    /// Returns the home agent that the router is trying while it is registered with the present one; `None`
    /// if it tries no other.
    pub fn tried_home_agent(&self) -> Option<Ipv6Addr> {
        self.tried_agent.as_ref().map(|trial| trial.mobile_router.config().home_agent)
    }

    /// Returns the `MobileRouter`s for other home agents: the one that this router tries, and those that it
    /// is leaving.
    pub fn other_mobile_routers(&self) -> impl Iterator<Item = &MobileRouter> {
        let left = self.former_agents.iter().map(|left| &left.mobile_router);
        self.tried_agent.iter().map(|trial| &trial.mobile_router).chain(left)
    }

    fn other_mobile_routers_mut(&mut self) -> impl Iterator<Item = &mut MobileRouter> {
        let left = self.former_agents.iter_mut().map(|left| &mut left.mobile_router);
        self.tried_agent.iter_mut().map(|trial| &mut trial.mobile_router).chain(left)
    }

    /// Returns the `MobileRouter` for the home agent with this address; `None` if it is the present home
    /// agent or not in use.
    pub fn mobile_router_of(&mut self, home_agent: Ipv6Addr) -> Option<&mut MobileRouter> {
        self.other_mobile_routers_mut().find(|machine| machine.config().home_agent == home_agent)
    }

    /// Returns the next output; `None` if no output is left.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.collect_outputs();
        self.outputs.pop_front()
    }

    /// Collects the outputs of the `MobileRouter`s for other home agents. Only the `MobileRouter` of the
    /// present home agent reports handovers and volumes.
    fn collect_outputs(&mut self) {
        let mut wanted = Vec::new();
        for machine in self.other_mobile_routers_mut() {
            while let Some(output) = machine.poll_output() {
                if !matches!(output, Output::Event(Event::Handover { .. } | Event::VolumeReached { .. })) {
                    wanted.push(output);
                }
            }
        }
        self.outputs.extend(wanted);
    }

    /// Returns when [`Self::handle_timeout`] is due next; `None` if no timer runs.
    pub fn poll_timeout(&self) -> Option<Time> {
        let machines = self.other_mobile_routers().filter_map(MobileRouter::poll_timeout);
        let left = self.former_agents.iter().filter_map(|left| left.accept_packets_until);
        let trial = self.tried_agent.as_ref().map(|trial| match trial.registered_at {
            Some(at) => at + FURTHER_UPLINKS_WAIT,
            None => trial.trial_started_at + ANSWER_TIMEOUT,
        });
        let waiting = self.tried_agent.is_none();
        let pause = self.next_agent_round_at.filter(|_| waiting);
        // The answer timeout of the present home agent applies only until the router has tried another home
        // agent, and not during a pause.
        let patient = waiting && self.tried_since_unanswered.is_empty() && pause.is_none();
        let unanswered = self.unanswered_since.filter(|_| patient).map(|since| since + ANSWER_TIMEOUT);
        let asked = self.discovery.poll_timeout().into_iter().chain(self.prefix_discovery.poll_timeout());
        machines.chain(left).chain(trial).chain(unanswered).chain(pause).chain(asked).min()
    }

    /// Handles the timers of the `MobileRouter`s for other home agents. [`Self::review_agents`] handles the
    /// timers of the selection itself.
    pub fn handle_timeout(&mut self, now: Time, wall: WallTime) {
        self.other_mobile_routers_mut().for_each(|machine| machine.handle_timeout(now, wall));
    }

    /// Takes over the state of an interface, as [`MobileRouter::handle_interface`] does.
    pub fn handle_interface(&mut self, now: Time, wall: WallTime, interface: &Interface) {
        self.other_mobile_routers_mut().for_each(|machine| machine.handle_interface(now, wall, interface));
    }

    /// Handles the removal of an interface.
    pub fn handle_interface_gone(&mut self, now: Time, wall: WallTime, name: &str) {
        self.other_mobile_routers_mut().for_each(|machine| machine.handle_interface_gone(now, wall, name));
    }

    /// Passes the signal strength of an uplink to the `MobileRouter`s for other home agents.
    pub fn handle_signal(&mut self, now: Time, wall: WallTime, interface: &str, dbm: Option<i32>) {
        self.other_mobile_routers_mut().for_each(|machine| machine.handle_signal(now, wall, interface, dbm));
    }

    /// Tells the `MobileRouter`s for other home agents whether an uplink's modem roams.
    pub fn handle_roaming(&mut self, now: Time, wall: WallTime, interface: &str, roaming: Option<bool>) {
        self.other_mobile_routers_mut()
            .for_each(|machine| machine.handle_roaming(now, wall, interface, roaming));
    }

    /// Passes the result of a probe for a captive portal to the `MobileRouter`s for other home agents.
    pub fn handle_portal_probe(&mut self, now: Time, wall: WallTime, interface: &str, probe: &PortalProbe) {
        self.other_mobile_routers_mut()
            .for_each(|machine| machine.handle_portal_probe(now, wall, interface, probe));
    }

    /// Passes the number of octets that an uplink has carried to the `MobileRouter`s for other home agents.
    pub fn handle_octets(&mut self, now: Time, wall: WallTime, interface: &str, octets: InterfaceOctets) {
        self.other_mobile_routers_mut()
            .for_each(|machine| machine.handle_octets(now, wall, interface, octets));
    }

    /// Handles an ICMPv6 message from an uplink, as [`MobileRouter::handle_link_message`] does. Also handles
    /// answers to home agent discovery and to mobile prefix discovery.
    ///
    /// # Errors
    /// Returns why an answer was dropped.
    pub fn handle_link_message(
        &mut self,
        now: Time,
        wall: WallTime,
        current: &MobileRouter,
        message: &LinkMessage,
    ) -> Result<(), MobilityDrop> {
        if message.message.first() == Some(&MOBILE_PREFIX_ADVERTISEMENT) {
            let news = self.prefix_discovery.handle_prefix_advertisement(now, current, message)?;
            self.outputs.extend(news.map(|message| Output::Event(Event::Warning { message })));
            return Ok(());
        }
        if message.message.first() != Some(&DHAAD_REPLY) {
            // Ignore the errors here: the `MobileRouter` of the present home agent gets the same message and
            // reports its faults.
            self.other_mobile_routers_mut().for_each(|machine| {
                let _ = machine.handle_link_message(now, wall, message);
            });
            return Ok(());
        }
        let found = self.discovery.handle_discovery_reply(message, current.config())?;
        self.discovered_agents = found.into_iter().map(|address| self.known_address_of(address)).collect();
        self.begin_first_agent_round();
        if std::mem::take(&mut self.must_leave_agent) {
            let present = current.config().home_agent;
            self.agents_to_switch_to =
                self.discovered_agents.iter().copied().filter(|agent| agent.address != present).collect();
        }
        Ok(())
    }

    /// Returns the known addresses of a home agent, with the IPv4 address if the config has one.
    fn known_address_of(&self, address: Ipv6Addr) -> HomeAgentAddress {
        let named = self.config.agents.iter().find(|agent| agent.address == address);
        named.copied().unwrap_or(HomeAgentAddress { address, ipv4_address: None })
    }

    /// Decides whether to try, change or leave home agents. `current` is the `MobileRouter` of the present
    /// home agent. Call this function after every input, when the outputs of `current` have been taken.
    pub fn review_agents(&mut self, now: Time, wall: WallTime, current: &mut MobileRouter) {
        self.collect_outputs();
        if let Some(switch) = current.take_home_agent_switch() {
            self.follow_home_agent_switch(now, current, switch);
        }
        self.remove_former_agents(now);
        let solicitation = self.prefix_discovery.next_solicitation(now, &mut self.rng, current);
        self.outputs.extend(solicitation.map(Output::Packet));
        let state = current.state();
        if matches!(state, State::Stopped | State::Home) {
            self.unanswered_since = None;
            self.begin_first_agent_round();
            return self.handle_shutdown(now, wall);
        }
        self.review_agent_trial(now, wall, current);
        let trouble =
            if self.has_several_agents() { self.reason_to_change_agent(now, current) } else { None };
        if trouble.is_none() {
            self.begin_first_agent_round();
            if let Some(trial) = self.tried_agent.take_if(|trial| !trial.is_demanded_by_current_agent) {
                self.leave_agent(now, wall, trial.mobile_router);
            }
        }
        if self.tried_agent.is_none() {
            self.try_next_agent(now, wall, current, trouble);
        }
        let nobody = current.config().home_agent.is_unspecified() || self.next_agent_round_at.is_some();
        if self.must_leave_agent || (self.config.discovers_agents && self.tried_agent.is_none() && nobody) {
            self.discovery.start_discovery(now, &mut self.rng);
        }
        if let Some(packet) = self.discovery.next_request(now, current) {
            // Output the forwarding rules before the packet: without the rules the packet would not leave
            // through its uplink.
            self.outputs.push_back(Output::Forwarding(current.config().home_address));
            self.outputs.push_back(Output::Packet(packet));
        }
    }

    /// Handles a Home Agent Switch message: the router tries the named addresses in their order (RFC 5142
    /// 6.2). If the message is not authenticated, the router uses only home agents of the config or of the
    /// discovery.
    fn follow_home_agent_switch(
        &mut self,
        now: Time,
        current: &MobileRouter,
        switch: HomeAgentSwitchRequest,
    ) {
        let present = current.config().home_agent;
        let under_way = self.tried_agent.as_ref().is_some_and(|trial| trial.is_demanded_by_current_agent)
            || !self.agents_to_switch_to.is_empty();
        if under_way {
            return; // A repeated message changes nothing.
        }
        // Warn only if the router has no other home agent: with several home agents a valid config has a key
        // for each.
        let authentication = &current.config().authentication;
        if authentication.is_shared_by_all_agents() && !self.has_several_agents() {
            let message = format!(
                "the home agent {present} asks this router to use another home agent, but its key \
                 is the same at all home agents: expected per_agent = true in their configs"
            );
            return self.outputs.push_back(Output::Event(Event::Warning { message }));
        }
        let known = self.known_agents();
        let mut to: Vec<HomeAgentAddress> =
            switch.target_agents.iter().map(|address| self.known_address_of(*address)).collect();
        if to.is_empty() {
            to.clone_from(&known);
        }
        to.retain(|agent| {
            let named = known.iter().any(|other| other.address == agent.address);
            let usable = crate::is_unicast_routable(agent.address)
                && !current.config().prefixes.iter().any(|prefix| prefix.contains(&agent.address));
            agent.address != present && usable && (switch.is_authenticated || named)
        });
        let message = if !to.is_empty() {
            format!("the home agent {present} asks this router to use the home agent {}", to[0].address)
        } else if self.config.discovers_agents {
            self.must_leave_agent = true;
            self.discovery.stop_discovery();
            self.discovery.start_discovery(now, &mut self.rng);
            format!(
                "the home agent {present} asks this router to use another home agent, which it now discovers"
            )
        } else {
            format!(
                "the home agent {present} asks this router to use another home agent, but names no home \
                 agent of the config"
            )
        };
        self.agents_to_switch_to = to.into();
        self.outputs.push_back(Output::Event(Event::Warning { message }));
    }

    /// Returns why the present home agent does not serve this router; `None` if it does, or if there is no
    /// other home agent to try.
    fn reason_to_change_agent(&mut self, now: Time, current: &MobileRouter) -> Option<&'static str> {
        let trouble = if current.config().home_agent.is_unspecified() {
            Some("none was known")
        } else if matches!(current.state(), State::Refused(_)) || current.temporary_refusal().is_some() {
            Some("it refused")
        } else {
            None
        };
        if trouble.is_some() || !current.is_unanswered() {
            self.unanswered_since = None;
            return trouble;
        }
        let since = *self.unanswered_since.get_or_insert(now);
        (now.saturating_since(since) >= ANSWER_TIMEOUT).then_some("it did not answer")
    }

    /// Starts to register with the next home agent that the router has not tried.
    fn try_next_agent(
        &mut self,
        now: Time,
        wall: WallTime,
        current: &mut MobileRouter,
        trouble: Option<&'static str>,
    ) {
        if let Some(agent) = self.agents_to_switch_to.pop_front() {
            return self.begin_agent_trial(now, wall, current, agent, true);
        }
        if trouble.is_none() {
            return;
        }
        if self.next_agent_round_at.is_some_and(|at| at > now) {
            return;
        }
        let present = current.config().home_agent;
        let known = self.known_agents();
        if self.next_agent_round_at.take().is_some() {
            self.tried_since_unanswered.clear();
        }
        let untried = |agent: &&HomeAgentAddress| {
            agent.address != present && !self.tried_since_unanswered.contains(&agent.address)
        };
        if let Some(agent) = known.iter().find(untried).copied() {
            self.tried_since_unanswered.push(agent.address);
            self.begin_agent_trial(now, wall, current, agent, false);
        } else if !present.is_unspecified() {
            self.last_pause_between_agent_rounds = (self.last_pause_between_agent_rounds * 2)
                .clamp(PAUSE_BETWEEN_AGENT_ROUNDS.0, PAUSE_BETWEEN_AGENT_ROUNDS.1);
            self.next_agent_round_at = Some(now + self.last_pause_between_agent_rounds);
        }
    }

    fn begin_agent_trial(
        &mut self,
        now: Time,
        wall: WallTime,
        current: &mut MobileRouter,
        agent: HomeAgentAddress,
        ordered: bool,
    ) {
        let config = MobileRouterConfig {
            home_agent: agent.address,
            home_agent_ipv4: agent.ipv4_address,
            ..current.config().clone()
        };
        // If the router tries a former home agent again, it stops the de-registration from that home agent.
        self.former_agents.retain(|left| left.mobile_router.config().home_agent != agent.address);
        let mut machine = MobileRouter::new(config, &mut self.rng);
        machine.adopt_state_of(now, wall, current);
        if current.config().home_agent.is_unspecified() {
            self.outputs.push_back(agent_changed_event(None, agent.address, "it was found"));
            *current = machine;
        } else {
            self.tried_agent = Some(TriedAgent {
                mobile_router: machine,
                trial_started_at: now,
                registered_at: None,
                is_demanded_by_current_agent: ordered,
            });
        }
    }

    /// Decides whether the home agent that the router is trying becomes the present one, or has failed.
    fn review_agent_trial(&mut self, now: Time, wall: WallTime, current: &mut MobileRouter) {
        let Some(trial) = &mut self.tried_agent else { return };
        let machine = &trial.mobile_router;
        if machine.has_registration() {
            let first = *trial.registered_at.get_or_insert(now);
            let whole =
                current.working_uplinks().all(|uplink| machine.working_uplinks().any(|u| u == uplink));
            if whole || now.saturating_since(first) >= FURTHER_UPLINKS_WAIT {
                self.switch_to_tried_agent(now, wall, current);
            }
            return;
        }
        trial.registered_at = None;
        let refused = matches!(machine.state(), State::Refused(_)) || machine.temporary_refusal().is_some();
        // No home agent can answer if the router has no usable uplink, so this is no failure.
        if machine.state() == State::Disconnected {
            trial.trial_started_at = now;
        }
        if (refused || now.saturating_since(trial.trial_started_at) >= ANSWER_TIMEOUT)
            && let Some(trial) = self.tried_agent.take()
        {
            self.leave_agent(now, wall, trial.mobile_router);
        }
    }

    /// Makes the tried home agent the present one, and the present one a former one.
    fn switch_to_tried_agent(&mut self, now: Time, wall: WallTime, current: &mut MobileRouter) {
        let Some(trial) = self.tried_agent.take() else { return };
        let reason = match (trial.is_demanded_by_current_agent, current.state()) {
            (true, _) => "the former home agent asked for it",
            (false, State::Refused(_)) => "the former home agent refused",
            (false, _) => "the former home agent did not answer",
        };
        let old = std::mem::replace(current, trial.mobile_router);
        let from = old.config().home_agent;
        self.outputs.push_back(Output::Forwarding(current.config().home_address));
        self.outputs.push_back(Output::Persist(current.config().home_address));
        self.outputs.push_back(agent_changed_event(Some(from), current.config().home_agent, reason));
        self.leave_agent(now, wall, old);
        self.unanswered_since = None;
        self.begin_first_agent_round();
        self.agents_to_switch_to.clear();
        self.must_leave_agent = false;
        self.discovery.stop_discovery();
    }

    /// De-registers with a home agent, whether or not it has accepted a registration. Still accepts its
    /// packets for a while.
    fn leave_agent(&mut self, now: Time, wall: WallTime, mut machine: MobileRouter) {
        while let Some(output) = machine.poll_output() {
            self.outputs.push_back(output);
        }
        machine.handle_shutdown(now, wall);
        if self.former_agents.len() >= MAX_FORMER_AGENTS {
            self.former_agents.remove(0);
        }
        self.former_agents.push(FormerAgent { mobile_router: machine, accept_packets_until: None });
        self.collect_outputs();
    }

    /// Allows the router to try all home agents again at once.
    fn begin_first_agent_round(&mut self) {
        self.tried_since_unanswered.clear();
        self.next_agent_round_at = None;
        self.last_pause_between_agent_rounds = Duration::ZERO;
    }

    /// Removes former home agents whose grace period has ended.
    fn remove_former_agents(&mut self, now: Time) {
        let before = self.former_agents.len();
        for left in &mut self.former_agents {
            if left.accept_packets_until.is_none() && left.mobile_router.is_quiescent() {
                left.accept_packets_until = Some(now + OLD_PATH_GRACE);
            }
        }
        self.former_agents.retain(|left| left.accept_packets_until.is_none_or(|until| until > now));
        if self.former_agents.len() < before {
            // `Output::Forwarding` has no home address here, because a station has only one mobile router.
            self.outputs.push_back(Output::Forwarding(Ipv6Addr::UNSPECIFIED));
        }
    }

    /// Handles a shutdown, or the return to the home link: the router stops trying other home agents, and
    /// de-registers with all former ones.
    pub fn handle_shutdown(&mut self, now: Time, wall: WallTime) {
        self.agents_to_switch_to.clear();
        self.must_leave_agent = false;
        self.discovery.stop_discovery();
        if let Some(trial) = self.tried_agent.take() {
            self.leave_agent(now, wall, trial.mobile_router);
        }
    }

    /// Returns whether all de-registrations of a shutdown have ended.
    pub fn is_quiescent(&self) -> bool {
        self.other_mobile_routers().all(MobileRouter::is_quiescent)
    }

    /// Applies the operator's choice of an uplink also to the mobile router that tries another home agent.
    pub fn handle_handover(&mut self, now: Time, wall: WallTime, uplink: Option<&str>) {
        if let Some(trial) = &mut self.tried_agent {
            // Ignore an error: if the choice is invalid, the mobile router of the present home agent has
            // reported it.
            let _ = trial.mobile_router.handle_handover(now, wall, uplink);
        }
    }
}

fn agent_changed_event(from: Option<Ipv6Addr>, to: Ipv6Addr, reason: &str) -> Output {
    Output::Event(Event::HomeAgent { from, to, reason: reason.into() })
}
