//! Planned maintenance: the home agent asks all registered nodes to go to another home agent (RFC 5142).
//!
//! The home agent sends each node a Home Agent Switch message with the address of another home agent. It
//! repeats the message after 5, 10 and 20 s; the fourth message names the next address of the list. The node
//! registers with the other home agent and then de-registers here. RFC 5142 5.2 defines this de-registration
//! as the answer to the message.
//!
//! RFC 5142 7 requires a slow rate or a feedback. So the home agent waits for at most
//! [`MAX_OUTSTANDING_REQUESTS`] nodes at a time. It asks the next node when one of them leaves or does not
//! answer in time. It asks nodes again only after it has asked all nodes once.
//!
//! **The home agent loses no packet** of a node that moves. On a real home link the other home agent takes
//! over the home address by Neighbor Advertisements. On a virtual home link the operator's routing still
//! sends packets of the nodes' prefixes to this home agent, until the operator changes the routes. So this
//! home agent *relays* packets of a node that has left to the home agent that its last message named. The
//! relay is a tunnel whose far end is that home agent, in place of the care-of address. The other home agent
//! accepts such packets from its peers ([`super::PeerHomeAgent`]) for nodes that are bound there.
//!
//! A relay ends when the node registers here again, and after [`RELAY_LIFETIME`] at the latest. No message
//! reports where a node has gone. So the home agent names another address only when nodes no longer try the
//! address before. A node whose bindings end without a de-registration may also have gone to the other home
//! agent. So the home agent relays its packets as well. If the node is not there, the other home agent drops
//! them.
//!
//! During the drain a renewed binding lasts at most until the end of the drain, and the home agent accepts no
//! new binding. After the drain it refuses renewals (status 129, RFC 5142 5.3) until the operator cancels the
//! drain.
//!
//! Left out: the Binding Refresh Advice option, because nodes need not wait.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Endpoint, Time, WallTime};
use carnet_wire::mobility::MobilityHeaderBuilder;
use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

use super::{HomeAgent, HomeAgentTimer};
use crate::{Event, LIFETIME_UNIT, Output, is_unicast_routable};

/// First pause before a message is repeated, and the longest: `INITIAL-HA-SWITCH-TIMEOUT` and
/// `MAX-HA-SWITCH-TIMEOUT` (RFC 5142 8).
const INITIAL_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of nodes that the home agent has asked to leave and that still have time to answer.
const MAX_OUTSTANDING_REQUESTS: usize = 16;
/// Number of messages to a node that name the same home agent. With the timeouts above, 20 s pass between the
/// last message with one address and the first message with the next. A router needs less time to try a home
/// agent ([`crate::agents`]).
const MAX_REQUESTS_PER_NODE: u32 = 3;
/// Time for which the home agent relays packets for a node that has left. After this time the operator's
/// routes lead to the other home agent.
pub(super) const RELAY_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// Pause between the departure of a node and the next requests. It limits how often the home agent reads all
/// bindings to find the next node.
const PAUSE_AFTER_DEPARTURE: Duration = Duration::from_millis(10);

/// Phase of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DrainPhase {
    /// The home agent is asking nodes to leave.
    Running,
    /// All nodes have left.
    Done,
    /// The drain has reached its end, and some nodes are still registered.
    Expired,
}

/// Progress of a drain, as the API shows it: the home agent sends its mobile routers to others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// `running`, `done` (all have left) or `expired` (time is up, and some have not).
    pub state: String,
    /// The home agents to go to.
    pub to: Vec<Ipv6Addr>,
    /// Mobile routers that were registered when the drain began.
    pub routers: u64,
    /// Home addresses of the mobile routers that are still registered.
    pub left: Vec<Ipv6Addr>,
}

/// State of a drain.
#[derive(Debug)]
pub(super) struct DrainState {
    phase: DrainPhase,
    target_agents: Vec<Ipv6Addr>,
    node_count: usize,
    ends_at: Time,
    switch_requests: BTreeMap<Ipv6Addr, Box<SwitchRequest>>,
    /// Start of the drain, by the monotonic clock and by the time of day.
    began_at: (Time, WallTime),
}

/// State of the request to one node to leave.
#[derive(Debug)]
struct SwitchRequest {
    messages_sent: u32,
    target_agent: Ipv6Addr,
    next_message_at: Time,
    answer_timeout: Duration,
}

/// Tunnel for packets of a node that has left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relay {
    /// Address of the other home agent.
    pub to: Ipv6Addr,
    /// Prefixes that the node had registered.
    pub prefixes: Vec<Ipv6Net>,
}

impl HomeAgent {
    /// Begins a drain: the home agent asks all nodes to leave, until the time that the operator has given. It
    /// sends them to the home agents in `to`, or to all other known home agents if `to` is empty.
    ///
    /// # Errors
    /// Returns a message for the operator if no other home agent is known.
    pub fn handle_drain(
        &mut self,
        now: Time,
        wall: WallTime,
        to: &[Ipv6Addr],
        within: Duration,
    ) -> Result<(), String> {
        self.assert_drained();
        let own = self.config.address;
        if let Some(odd) = to.iter().find(|address| **address == own || !is_unicast_routable(**address)) {
            return Err(format!("{odd} is not the address of another home agent"));
        }
        let to = if to.is_empty() { self.other_home_agents(now) } else { to.to_vec() };
        if to.is_empty() {
            return Err(
                "cannot drain: found no other home agent, expected a [[home_agent.peer]] in the config or \
                 Router Advertisements of one on the home link"
                    .into(),
            );
        }
        let nodes = self.registered_nodes().len();
        self.drain = Some(DrainState {
            phase: DrainPhase::Running,
            target_agents: to,
            node_count: nodes,
            ends_at: now + within,
            switch_requests: BTreeMap::new(),
            began_at: (now, wall),
        });
        self.advance_drain(now);
        Ok(())
    }

    /// Ends a drain: the home agent accepts registrations again.
    ///
    /// # Errors
    /// Returns a message for the operator if no drain is running.
    pub fn handle_drain_end(&mut self) -> Result<(), String> {
        self.assert_drained();
        self.timers.stop_timer(HomeAgentTimer::Drain);
        self.drain.take().map(|_| ()).ok_or_else(|| "cannot end the drain: no drain is running".to_string())
    }

    /// Returns the status of the last drain; `None` before the first.
    pub fn drain(&self) -> Option<Drain> {
        let drain = self.drain.as_ref()?;
        Some(Drain {
            state: match drain.phase {
                DrainPhase::Running => "running",
                DrainPhase::Done => "done",
                DrainPhase::Expired => "expired",
            }
            .into(),
            to: drain.target_agents.clone(),
            routers: drain.node_count as u64,
            left: self.registered_nodes(),
        })
    }

    /// Returns the relay for packets of a node that has left for another home agent; `None` without a relay.
    pub fn relay_of_node(&self, home_address: Ipv6Addr) -> Option<&Relay> {
        self.relays.get(&home_address).map(Box::as_ref)
    }

    /// Returns whether `remote` is a peer, another home agent that may relay packets of a node that has come
    /// here.
    pub fn is_peer_home_agent(&self, remote: Endpoint) -> bool {
        self.config.other_agents.peers.iter().any(|peer| remote == peer.address)
    }

    /// Returns whether an address on the home link belongs to a node that the home agent has asked to leave.
    pub(super) fn is_switch_requested(&self, address: Ipv6Addr) -> bool {
        let Some(drain) = &self.drain else { return false };
        let is_of = |home_address: &&Ipv6Addr| {
            self.cache.all_bindings_of(**home_address).any(|it| it.link_local_address() == Some(address))
                || self.cache.prefixes(**home_address).iter().any(|prefix| prefix.contains(&address))
        };
        drain.switch_requests.contains_key(&address)
            || drain.switch_requests.keys().any(|home_address| is_of(&home_address))
    }

    /// Returns whether a drain is running.
    pub(super) fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// Returns the nodes that have a binding, by home address.
    fn registered_nodes(&self) -> Vec<Ipv6Addr> {
        let mut nodes: Vec<Ipv6Addr> = self.cache.iter().map(|binding| binding.home_address).collect();
        nodes.dedup();
        nodes
    }

    /// Returns whether a node may register now. During a drain, shortens `lifetime` to the end of the drain.
    pub(super) fn may_register_while_draining(
        &self,
        now: Time,
        home_address: Ipv6Addr,
        lifetime: &mut Duration,
    ) -> bool {
        if self.is_revoking(home_address) {
            return false;
        }
        let Some(drain) = &self.drain else { return true };
        *lifetime = (*lifetime).min(drain.ends_at.saturating_since(now).max(LIFETIME_UNIT));
        drain.phase == DrainPhase::Running && self.cache.is_bound(home_address)
    }

    /// Asks the next nodes to leave, and ends the drain if all nodes have left or its time is over.
    pub(super) fn advance_drain(&mut self, now: Time) {
        let registered = self.registered_nodes();
        let Some(drain) = self.drain.as_mut().filter(|drain| drain.phase == DrainPhase::Running) else {
            return;
        };
        let ended = if registered.is_empty() {
            drain.phase = DrainPhase::Done;
            Some(format!("drained: all {} nodes have left", drain.node_count))
        } else if drain.ends_at <= now {
            drain.phase = DrainPhase::Expired;
            Some(format!("the drain has ended: {} of {} nodes left", registered.len(), drain.node_count))
        } else {
            None
        };
        if let Some(message) = ended {
            self.timers.stop_timer(HomeAgentTimer::Drain);
            self.outputs.push_back(Output::Event(Event::Warning { message }));
            return;
        }
        let fresh = |asked: &SwitchRequest| asked.messages_sent == 1 && asked.next_message_at > now;
        // `binary_search` works because the cache returns the nodes sorted by home address.
        drain.switch_requests.retain(|home_address, _| registered.binary_search(home_address).is_ok());
        let room = MAX_OUTSTANDING_REQUESTS
            .saturating_sub(drain.switch_requests.values().filter(|asked| fresh(asked)).count());
        // The home agent asks nodes that it has not asked yet first, so that nodes without an answer do
        // not delay them.
        let first = registered
            .iter()
            .filter(|home_address| !drain.switch_requests.contains_key(home_address))
            .copied();
        let mut again: Vec<(Time, Ipv6Addr)> = drain
            .switch_requests
            .iter()
            .map(|(node, asked)| (asked.next_message_at, *node))
            .filter(|(at, _)| *at <= now)
            .collect();
        again.sort();
        let turn: Vec<Ipv6Addr> = first.chain(again.into_iter().map(|(_, node)| node)).take(room).collect();
        for home_address in turn {
            self.request_home_agent_switch(now, home_address);
        }
        if let Some(drain) = &self.drain {
            let next = drain
                .switch_requests
                .values()
                .map(|asked| asked.next_message_at)
                .filter(|at| *at > now)
                .min();
            let next = next.map_or(drain.ends_at, |next| next.min(drain.ends_at));
            self.timers.set_deadline(HomeAgentTimer::Drain, next);
        }
    }

    /// Sends a Home Agent Switch message with one address of the list.
    fn request_home_agent_switch(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(drain) = self.drain.as_mut() else { return };
        let (began, wall) = drain.began_at;
        let first = drain.target_agents.first().copied().unwrap_or(Ipv6Addr::UNSPECIFIED);
        let asked = drain.switch_requests.entry(home_address).or_insert_with(|| {
            Box::new(SwitchRequest {
                messages_sent: 0,
                target_agent: first,
                next_message_at: now,
                answer_timeout: INITIAL_TIMEOUT,
            })
        });
        // Name each address in [`MAX_REQUESTS_PER_NODE`] messages in a row, because a message may be lost.
        let turn = (asked.messages_sent / MAX_REQUESTS_PER_NODE) as usize % drain.target_agents.len().max(1);
        asked.target_agent = drain.target_agents.get(turn).copied().unwrap_or(first);
        asked.next_message_at = now + asked.answer_timeout;
        asked.answer_timeout = (asked.answer_timeout * 2).min(MAX_TIMEOUT);
        asked.messages_sent = asked.messages_sent.saturating_add(1);
        let (to, sent) = (asked.target_agent, asked.messages_sent as usize);
        // Each message uses another binding of the node, because the path of one may have failed.
        let bindings: Vec<_> = self.cache.bindings_of(home_address).collect();
        let chosen = bindings.get((sent - 1) % bindings.len().max(1)).cloned();
        if let Some(binding) = chosen {
            let builder = MobilityHeaderBuilder::home_agent_switch(&[to]);
            self.send_notice(wall + now.saturating_since(began), &binding, builder);
        }
    }

    /// Begins a relay if a node has no binding left during a drain.
    pub(super) fn handle_node_departure(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(drain) = &self.drain else { return };
        let to = drain.switch_requests.get(&home_address).map(|asked| asked.target_agent);
        // Relay packets only on a virtual home link. On a real home link the other home agent answers for the
        // home address.
        if let Some(to) = to.filter(|_| self.config.home_link.is_none()) {
            let prefixes = self.cache.prefixes(home_address).to_vec();
            self.begin_relay(home_address, Relay { to, prefixes }, now + RELAY_LIFETIME);
        }
        self.timers.set_deadline(HomeAgentTimer::Drain, now + PAUSE_AFTER_DEPARTURE);
    }

    /// Relays packets of a node to another home agent until the time `until`.
    pub(super) fn begin_relay(&mut self, home_address: Ipv6Addr, relay: Relay, until: Time) {
        self.relays.insert(home_address, Box::new(relay));
        self.timers.set_deadline(HomeAgentTimer::Relay(home_address), until);
    }

    /// Returns for how long the home agent still relays packets of a node; `None` without a relay.
    pub(super) fn remaining_relay_time(&self, now: Time, home_address: Ipv6Addr) -> Option<Duration> {
        self.timers.get(HomeAgentTimer::Relay(home_address)).map(|until| until.saturating_since(now))
    }

    /// Ends the relay of a node.
    pub(super) fn end_relay(&mut self, home_address: Ipv6Addr) {
        if self.relays.remove(&home_address).is_some() {
            self.outputs.push_back(Output::Forwarding(home_address));
            self.outputs.push_back(Output::Persist(home_address));
        }
    }
}
