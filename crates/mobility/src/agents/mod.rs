//! Chooses the home agent with which a mobile router is registered, of several (RFC 6275 11.4.1, RFC 3963 7,
//! RFC 5142 6).
//!
//! A [`MobileRouter`] knows one home agent. To try another home agent, a second `MobileRouter` takes over the
//! state of the uplinks and registers beside the first. When it is registered, the two change places; the
//! first de-registers and still accepts packets for a moment. So a change of the home agent is make before
//! break, as a change of the uplink is: until the new home agent has acknowledged, traffic goes by the old
//! one, and the router accepts packets from both.
//!
//! The router tries another home agent
//! * when the present one refuses (any status of 128 or more that corrects no value of the router), or owes
//!   an answer for five seconds;
//! * when the present one asks for it by a Home Agent Switch message ([`crate::mobile_router::Switch`]). This
//!   is refused if both home agents have the same key: an attacker could then replay to one of them the
//!   messages recorded on the way to the other;
//! * when no home agent is known, by discovery (`discovery`).
//!
//! `prefix_discovery` handles the present home agent's advertisements of the home prefix.
//!
//! The order is that of the configuration, then of discovery. The router tries each home agent once; then it
//! pauses, and the pause doubles. A router never goes back by itself: it changes only when the present home
//! agent fails or sends it away. It stores the home agent with which it was registered last, and tries this
//! one first after a restart (RFC 6275 11.4.1: "MUST attempt any new registration first with that home
//! agent").

mod discovery;
mod prefix_discovery;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{Interface, LinkMessage, Rng, Time, WallTime};
use carnet_wire::icmpv6::types::{DHAAD_REPLY, MOBILE_PREFIX_ADVERTISEMENT};

use crate::mobile_router::{MobileRouter, MobileRouterConfig, Octets, PortalProbe, State, Switch};
use crate::{Event, MobilityDrop, OLD_PATH_GRACE, Output};
use discovery::Discovery;
use prefix_discovery::PrefixDiscovery;

/// Time for which a home agent may owe an answer while there are others. It is longer than
/// `InitialBindackTimeoutFirstReg`.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after all home agents have been tried in vain: the first and the longest. The pause doubles between
/// them.
const PAUSE: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(64));
/// Time for the other uplinks to register with a new home agent after the first one has.
const GATHERING: Duration = Duration::from_secs(2);
/// Most home agents that the router is leaving at a time.
const MAX_LEFT: usize = 2;

/// The operator's config of the home agents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentsConfig {
    /// Configured home agents, the first to be tried first.
    pub agents: Vec<AgentAddress>,
    /// Whether the router discovers further home agents.
    pub discover: bool,
    /// Whether the router asks the home agent for changes of the home prefix (RFC 6275 11.4.2).
    pub prefix_discovery: bool,
}

/// Addresses of a home agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentAddress {
    /// IPv6 address.
    pub address: Ipv6Addr,
    /// IPv4 address, if the home agent has one (RFC 5555).
    pub ipv4_address: Option<Ipv4Addr>,
}

impl AgentsConfig {
    /// Returns the home agent to register with first: the last one, if it is still configured; `None` while
    /// none is known.
    pub fn first(&self, last: Option<Ipv6Addr>) -> Option<AgentAddress> {
        let known = |address| self.agents.iter().find(|agent| agent.address == address).copied();
        let again = last.and_then(|last| {
            known(last).or(self.discover.then_some(AgentAddress { address: last, ipv4_address: None }))
        });
        again.or(self.agents.first().copied())
    }
}

/// A home agent that the router is trying.
#[derive(Debug)]
struct Trial {
    machine: MobileRouter,
    since: Time,
    /// Time of the first registration with this home agent.
    registered: Option<Time>,
    /// Whether the present home agent has asked for the change.
    ordered: bool,
}

/// A home agent that the router is leaving.
#[derive(Debug)]
struct Left {
    machine: MobileRouter,
    /// Time until which the router accepts packets from it. `None` until the router has de-registered.
    until: Option<Time>,
}

/// The choice among home agents; see the module documentation.
#[derive(Debug)]
pub struct Agents {
    config: AgentsConfig,
    /// Discovered home agents, the first to be tried first.
    found: Vec<AgentAddress>,
    discovery: Discovery,
    home_prefix: PrefixDiscovery,
    trial: Option<Trial>,
    left: Vec<Left>,
    /// Time since when the present home agent owes an answer.
    unanswered_since: Option<Time>,
    /// Home agents that the router has tried since that time.
    tried: Vec<Ipv6Addr>,
    /// Time at which the router tries all home agents again, if all have failed.
    pause: Option<Time>,
    /// Length of the last pause.
    paused: Duration,
    /// Home agents to which the present one has sent the router, and which are not tried yet.
    ordered: VecDeque<AgentAddress>,
    /// Whether the present home agent has sent the router away without naming another.
    homeless: bool,
    rng: Rng,
    outputs: VecDeque<Output>,
}

impl Agents {
    /// Creates the choice, without a decision yet.
    pub fn new(config: AgentsConfig, rng: Rng) -> Agents {
        Agents {
            home_prefix: PrefixDiscovery::new(config.prefix_discovery),
            config,
            found: Vec::new(),
            discovery: Discovery::default(),
            trial: None,
            left: Vec::new(),
            unanswered_since: None,
            tried: Vec::new(),
            pause: None,
            paused: Duration::ZERO,
            ordered: VecDeque::new(),
            homeless: false,
            rng,
            outputs: VecDeque::new(),
        }
    }

    /// Whether there is more than one home agent to choose from.
    pub fn is_choice(&self) -> bool {
        self.config.discover || self.config.agents.len() > 1
    }

    /// Returns all known home agents, in the order in which they are tried.
    pub fn known(&self) -> Vec<AgentAddress> {
        let mut known = self.config.agents.clone();
        for agent in &self.found {
            if !known.iter().any(|other| other.address == agent.address) {
                known.push(*agent);
            }
        }
        known
    }

    /// Returns the home agent that the router is trying beside the present one.
    pub fn trying(&self) -> Option<Ipv6Addr> {
        self.trial.as_ref().map(|trial| trial.machine.config().home_agent)
    }

    /// Returns the routers beside the present one: for the home agents that are tried or left.
    pub fn machines(&self) -> impl Iterator<Item = &MobileRouter> {
        let left = self.left.iter().map(|left| &left.machine);
        self.trial.iter().map(|trial| &trial.machine).chain(left)
    }

    fn machines_mut(&mut self) -> impl Iterator<Item = &mut MobileRouter> {
        let left = self.left.iter_mut().map(|left| &mut left.machine);
        self.trial.iter_mut().map(|trial| &mut trial.machine).chain(left)
    }

    /// Returns the router beside the present one whose home agent has this address.
    pub fn machine_of(&mut self, home_agent: Ipv6Addr) -> Option<&mut MobileRouter> {
        self.machines_mut().find(|machine| machine.config().home_agent == home_agent)
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.collect();
        self.outputs.pop_front()
    }

    /// Collects the outputs of the routers beside the present one. Only the present router reports handovers
    /// and volumes.
    fn collect(&mut self) {
        let mut wanted = Vec::new();
        for machine in self.machines_mut() {
            while let Some(output) = machine.poll_output() {
                if !matches!(output, Output::Event(Event::Handover { .. } | Event::VolumeReached { .. })) {
                    wanted.push(output);
                }
            }
        }
        self.outputs.extend(wanted);
    }

    /// Returns when [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let machines = self.machines().filter_map(MobileRouter::poll_timeout);
        let left = self.left.iter().filter_map(|left| left.until);
        let trial = self.trial.as_ref().map(|trial| match trial.registered {
            Some(at) => at + GATHERING,
            None => trial.since + PATIENCE,
        });
        let waiting = self.trial.is_none();
        let pause = self.pause.filter(|_| waiting);
        // Once this time is over, the router waits for the pause, or for an answer to a request.
        let patient = waiting && self.tried.is_empty() && pause.is_none();
        let unanswered = self.unanswered_since.filter(|_| patient).map(|since| since + PATIENCE);
        let asked = self.discovery.poll_timeout().into_iter().chain(self.home_prefix.poll_timeout());
        machines.chain(left).chain(trial).chain(unanswered).chain(pause).chain(asked).min()
    }

    /// Serves the timers of the routers beside the present one. [`Self::review`] serves the others.
    pub fn handle_timeout(&mut self, now: Time, wall: WallTime) {
        self.machines_mut().for_each(|machine| machine.handle_timeout(now, wall));
    }

    /// Takes over the state of an interface, as [`MobileRouter::handle_interface`] does.
    pub fn handle_interface(&mut self, now: Time, wall: WallTime, interface: &Interface) {
        self.machines_mut().for_each(|machine| machine.handle_interface(now, wall, interface));
    }

    /// Handles the removal of an interface.
    pub fn handle_interface_gone(&mut self, now: Time, wall: WallTime, name: &str) {
        self.machines_mut().for_each(|machine| machine.handle_interface_gone(now, wall, name));
    }

    /// Takes over the signal of an uplink.
    pub fn handle_signal(&mut self, now: Time, wall: WallTime, interface: &str, dbm: Option<i32>) {
        self.machines_mut().for_each(|machine| machine.handle_signal(now, wall, interface, dbm));
    }

    /// Takes over whether an uplink's modem roams.
    pub fn handle_roaming(&mut self, now: Time, wall: WallTime, interface: &str, roaming: Option<bool>) {
        self.machines_mut().for_each(|machine| machine.handle_roaming(now, wall, interface, roaming));
    }

    /// Takes over the result of a probe for a captive portal.
    pub fn handle_portal_probe(&mut self, now: Time, wall: WallTime, interface: &str, probe: &PortalProbe) {
        self.machines_mut().for_each(|machine| machine.handle_portal_probe(now, wall, interface, probe));
    }

    /// Takes over the octets that an uplink has carried.
    pub fn handle_octets(&mut self, now: Time, wall: WallTime, interface: &str, octets: Octets) {
        self.machines_mut().for_each(|machine| machine.handle_octets(now, wall, interface, octets));
    }

    /// Handles an ICMPv6 message from an uplink, as [`MobileRouter::handle_link_message`] does. Answers to
    /// discovery, and answers to mobile prefix discovery with the home address as destination, are among
    /// them.
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
            let news = self.home_prefix.advertisement(now, current, message)?;
            self.outputs.extend(news.map(|message| Output::Event(Event::Warning { message })));
            return Ok(());
        }
        if message.message.first() != Some(&DHAAD_REPLY) {
            // The present router reports faults of the message.
            self.machines_mut().for_each(|machine| {
                let _ = machine.handle_link_message(now, wall, message);
            });
            return Ok(());
        }
        let found = self.discovery.answer(message, current.config())?;
        self.found = found.into_iter().map(|address| self.named(address)).collect();
        self.begin_anew();
        if std::mem::take(&mut self.homeless) {
            let present = current.config().home_agent;
            self.ordered = self.found.iter().copied().filter(|agent| agent.address != present).collect();
        }
        Ok(())
    }

    /// Returns the known addresses of a home agent.
    fn named(&self, address: Ipv6Addr) -> AgentAddress {
        let named = self.config.agents.iter().find(|agent| agent.address == address);
        named.copied().unwrap_or(AgentAddress { address, ipv4_address: None })
    }

    /// Checks the state of `current`, the present router, and of the others, and acts on it. Call it after
    /// every input, when the outputs of `current` have been taken.
    pub fn review(&mut self, now: Time, wall: WallTime, current: &mut MobileRouter) {
        self.collect();
        if let Some(switch) = current.take_switch() {
            self.obey(now, current, switch);
        }
        self.let_go(now);
        let solicitation = self.home_prefix.solicitation(now, &mut self.rng, current);
        self.outputs.extend(solicitation.map(Output::Packet));
        let state = current.state();
        if matches!(state, State::Stopped | State::Home) {
            self.unanswered_since = None;
            self.begin_anew();
            return self.handle_shutdown(now, wall);
        }
        self.look_at_trial(now, wall, current);
        let trouble = if self.is_choice() { self.trouble(now, current) } else { None };
        if trouble.is_none() {
            self.begin_anew();
            if let Some(trial) = self.trial.take_if(|trial| !trial.ordered) {
                self.leave(now, wall, trial.machine);
            }
        }
        if self.trial.is_none() {
            self.try_next(now, wall, current, trouble);
        }
        let nobody = current.config().home_agent.is_unspecified() || self.pause.is_some();
        if self.homeless || (self.config.discover && self.trial.is_none() && nobody) {
            self.discovery.start(now, &mut self.rng);
        }
        if let Some(packet) = self.discovery.request(now, current) {
            // The forwarding rules that lead the packet to its uplink must exist before it.
            self.outputs.push_back(Output::Forwarding(current.config().home_address));
            self.outputs.push_back(Output::Packet(packet));
        }
    }

    /// RFC 5142 6.2: takes the named addresses in their order. An unauthenticated message counts only for
    /// home agents that the operator or the discovery has named.
    fn obey(&mut self, now: Time, current: &MobileRouter, switch: Switch) {
        let present = current.config().home_agent;
        let under_way = self.trial.as_ref().is_some_and(|trial| trial.ordered) || !self.ordered.is_empty();
        if under_way {
            return; // A repeated message changes nothing.
        }
        // The check of the config rejects several home agents with one key.
        let authentication = &current.config().authentication;
        if authentication.is_one_for_all_agents() && !self.is_choice() {
            let message = format!(
                "the home agent {present} asks us to leave, but the key is for this home agent only, \
                 expected per_agent = true at all of them"
            );
            return self.outputs.push_back(Output::Event(Event::Warning { message }));
        }
        let known = self.known();
        let mut to: Vec<AgentAddress> = switch.to.iter().map(|address| self.named(*address)).collect();
        if to.is_empty() {
            to.clone_from(&known);
        }
        to.retain(|agent| {
            let named = known.iter().any(|other| other.address == agent.address);
            let usable = crate::is_unicast_routable(agent.address)
                && !current.config().prefixes.iter().any(|prefix| prefix.contains(&agent.address));
            agent.address != present && usable && (switch.authenticated || named)
        });
        let message = if !to.is_empty() {
            format!("the home agent {present} asks us to leave for {}", to[0].address)
        } else if self.config.discover {
            self.homeless = true;
            self.discovery.stop();
            self.discovery.start(now, &mut self.rng);
            format!("the home agent {present} asks us to leave, and another one is looked for")
        } else {
            format!(
                "the home agent {present} asks us to leave, but nobody that may be believed says where to"
            )
        };
        self.ordered = to.into();
        self.outputs.push_back(Output::Event(Event::Warning { message }));
    }

    /// Returns the fault of the present home agent, if another one can be tried.
    fn trouble(&mut self, now: Time, current: &MobileRouter) -> Option<&'static str> {
        let trouble = if current.config().home_agent.is_unspecified() {
            Some("none was known")
        } else if matches!(current.state(), State::Refused(_)) || current.setback().is_some() {
            Some("it refused")
        } else {
            None
        };
        if trouble.is_some() || !current.is_unanswered() {
            self.unanswered_since = None;
            return trouble;
        }
        let since = *self.unanswered_since.get_or_insert(now);
        (now.saturating_since(since) >= PATIENCE).then_some("it did not answer")
    }

    /// Begins to try the next home agent that has not been tried.
    fn try_next(
        &mut self,
        now: Time,
        wall: WallTime,
        current: &mut MobileRouter,
        trouble: Option<&'static str>,
    ) {
        if let Some(agent) = self.ordered.pop_front() {
            return self.begin(now, wall, current, agent, true);
        }
        if trouble.is_none() {
            return;
        }
        if self.pause.is_some_and(|at| at > now) {
            return;
        }
        let present = current.config().home_agent;
        let known = self.known();
        if self.pause.take().is_some() {
            self.tried.clear();
        }
        let untried =
            |agent: &&AgentAddress| agent.address != present && !self.tried.contains(&agent.address);
        if let Some(agent) = known.iter().find(untried).copied() {
            self.tried.push(agent.address);
            self.begin(now, wall, current, agent, false);
        } else if !present.is_unspecified() {
            self.paused = (self.paused * 2).clamp(PAUSE.0, PAUSE.1);
            self.pause = Some(now + self.paused);
        }
    }

    fn begin(
        &mut self,
        now: Time,
        wall: WallTime,
        current: &mut MobileRouter,
        agent: AgentAddress,
        ordered: bool,
    ) {
        let config = MobileRouterConfig {
            home_agent: agent.address,
            home_agent_ipv4: agent.ipv4_address,
            ..current.config().clone()
        };
        // A home agent that is tried again is no longer being left.
        self.left.retain(|left| left.machine.config().home_agent != agent.address);
        let mut machine = MobileRouter::new(config, &mut self.rng);
        machine.adopt(now, wall, current);
        if current.config().home_agent.is_unspecified() {
            self.outputs.push_back(changed(None, agent.address, "it was found"));
            *current = machine;
        } else {
            self.trial = Some(Trial { machine, since: now, registered: None, ordered });
        }
    }

    /// Decides whether the home agent that the router is trying replaces the present one, or has failed.
    fn look_at_trial(&mut self, now: Time, wall: WallTime, current: &mut MobileRouter) {
        let Some(trial) = &mut self.trial else { return };
        let machine = &trial.machine;
        if machine.has_registration() {
            let first = *trial.registered.get_or_insert(now);
            let whole = current.living_uplinks().all(|uplink| machine.living_uplinks().any(|u| u == uplink));
            if whole || now.saturating_since(first) >= GATHERING {
                self.change(now, wall, current);
            }
            return;
        }
        trial.registered = None;
        let refused = matches!(machine.state(), State::Refused(_)) || machine.setback().is_some();
        // Without an uplink no home agent can answer.
        if machine.state() == State::Disconnected {
            trial.since = now;
        }
        if (refused || now.saturating_since(trial.since) >= PATIENCE)
            && let Some(trial) = self.trial.take()
        {
            self.leave(now, wall, trial.machine);
        }
    }

    /// Lets the present router and the trial change places.
    fn change(&mut self, now: Time, wall: WallTime, current: &mut MobileRouter) {
        let Some(trial) = self.trial.take() else { return };
        let reason = match (trial.ordered, current.state()) {
            (true, _) => "the one before asked for it",
            (false, State::Refused(_)) => "the one before refused",
            (false, _) => "the one before did not answer",
        };
        let old = std::mem::replace(current, trial.machine);
        let from = old.config().home_agent;
        self.outputs.push_back(Output::Forwarding(current.config().home_address));
        self.outputs.push_back(Output::Persist(current.config().home_address));
        self.outputs.push_back(changed(Some(from), current.config().home_agent, reason));
        self.leave(now, wall, old);
        self.unanswered_since = None;
        self.begin_anew();
        self.ordered.clear();
        self.homeless = false;
        self.discovery.stop();
    }

    /// De-registers with a home agent, whatever bindings it may have, and still accepts its packets for a
    /// while.
    fn leave(&mut self, now: Time, wall: WallTime, mut machine: MobileRouter) {
        while let Some(output) = machine.poll_output() {
            self.outputs.push_back(output);
        }
        machine.handle_shutdown(now, wall);
        if self.left.len() >= MAX_LEFT {
            self.left.remove(0);
        }
        self.left.push(Left { machine, until: None });
        self.collect();
    }

    /// Permits all home agents to be tried again at once.
    fn begin_anew(&mut self) {
        self.tried.clear();
        self.pause = None;
        self.paused = Duration::ZERO;
    }

    /// Removes home agents that were left long enough ago.
    fn let_go(&mut self, now: Time) {
        let before = self.left.len();
        for left in &mut self.left {
            if left.until.is_none() && left.machine.is_quiescent() {
                left.until = Some(now + OLD_PATH_GRACE);
            }
        }
        self.left.retain(|left| left.until.is_none_or(|until| until > now));
        if self.left.len() < before {
            // Any address will do here: a station has one mobile router.
            self.outputs.push_back(Output::Forwarding(Ipv6Addr::UNSPECIFIED));
        }
    }

    /// Handles a shutdown, or the arrival at home: the router tries no other home agent, and leaves those
    /// that it is leaving.
    pub fn handle_shutdown(&mut self, now: Time, wall: WallTime) {
        self.ordered.clear();
        self.homeless = false;
        self.discovery.stop();
        if let Some(trial) = self.trial.take() {
            self.leave(now, wall, trial.machine);
        }
    }

    /// Whether no de-registration is outstanding at a shutdown.
    pub fn is_quiescent(&self) -> bool {
        self.machines().all(MobileRouter::is_quiescent)
    }

    /// Applies the operator's choice of an uplink to all routers.
    pub fn handle_handover(&mut self, now: Time, wall: WallTime, uplink: Option<&str>) {
        if let Some(trial) = &mut self.trial {
            // The present router has reported any fault of the choice already.
            let _ = trial.machine.handle_handover(now, wall, uplink);
        }
    }
}

fn changed(from: Option<Ipv6Addr>, to: Ipv6Addr, reason: &str) -> Output {
    Output::Event(Event::HomeAgent { from, to, reason: reason.into() })
}
