//! Planned maintenance: the home agent asks all registered nodes to go to another home agent (RFC 5142).
//!
//! The home agent sends each node a Home Agent Switch message with the address of another home agent. It
//! repeats the message after 5, 10 and 20 s; from the fourth message on it names the next address. The node
//! registers there first and then de-registers here, which is the answer that RFC 5142 5.2 expects; until
//! then nothing changes. RFC 5142 7 requires a slow rate or a feedback. So at most [`OUTSTANDING`] nodes are
//! asked at a time, and each that leaves, or does not answer in time, makes room for the next. Nodes that
//! have not been asked come before nodes that have not answered.
//!
//! **No packet is lost**, as far as this home agent decides it. On a real home link the other home agent
//! takes the home address over by Neighbor Advertisements. On a virtual one the operator's routing sends
//! packets of the nodes' prefixes here until it has followed the change. So this home agent *relays* packets
//! for a node that has left to the home agent that the node was sent to. It sends them through a tunnel, as
//! if that home agent were the node's care-of address. The other home agent accepts from its peers
//! ([`super::Peer`]) packets for a node that is bound there. A relay ends when the node registers here again,
//! and after [`RELAY_LIFETIME`] at the latest. It leads to the home agent that the last message named,
//! because no message reports where the node has gone. So the home agent names another address only when
//! nodes no longer try the one before. A node whose bindings end without a de-registration may have gone
//! there as well; if it has not, the other home agent drops the packets.
//!
//! While the drain runs, renewals last at most until its end, and no new binding begins. After the end the
//! home agent refuses renewals (status 129, RFC 5142 5.3), until the operator cancels the drain.
//!
//! Left out: the Binding Refresh Advice option, because nodes need not wait.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Endpoint, Time, WallTime};
use carnet_wire::mobility::Builder;
use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

use super::{HomeAgent, Timer};
use crate::{Event, LIFETIME_UNIT, Output, is_unicast_routable};

/// First pause before a message is repeated, and the longest: `INITIAL-HA-SWITCH-TIMEOUT` and
/// `MAX-HA-SWITCH-TIMEOUT` (RFC 5142 8).
const INITIAL_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_TIMEOUT: Duration = Duration::from_secs(20);
/// Most nodes that have been asked and still have time to answer.
const OUTSTANDING: usize = 16;
/// Messages to a node that name one home agent, before the home agent names the next. With the timeouts above
/// 20 s pass between the last message with one address and the first with the next. A router needs less to
/// try a home agent ([`crate::agents`]).
const ASKED_EACH: u32 = 3;
/// Time for which packets for a node that has left are relayed. By then the routing of its prefixes has
/// followed.
pub(super) const RELAY_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// Pause after a node has left, until the next nodes are asked: the search reads every binding.
const BREATH: Duration = Duration::from_millis(10);

/// Phase of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainPhase {
    /// The home agent is asking nodes to leave.
    Running,
    /// All nodes have left.
    Done,
    /// The time is up, and some nodes have not left.
    Expired,
}

/// Status of a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainStatus {
    /// Phase of the drain.
    pub phase: DrainPhase,
    /// Home agents to which nodes are sent.
    pub to: Vec<Ipv6Addr>,
    /// Number of nodes that were registered when the drain began.
    pub nodes: usize,
    /// Nodes that are registered now.
    pub left: Vec<Ipv6Addr>,
}

#[derive(Debug)]
pub(super) struct Drain {
    phase: DrainPhase,
    to: Vec<Ipv6Addr>,
    nodes: usize,
    until: Time,
    asked: BTreeMap<Ipv6Addr, Box<Asked>>,
    /// Begin of the drain, by both clocks.
    began: (Time, WallTime),
}

/// A node that has been asked to leave.
#[derive(Debug)]
struct Asked {
    sent: u32,
    to: Ipv6Addr,
    next: Time,
    timeout: Duration,
}

/// Tunnel for packets of a node that has left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relay {
    /// The other home agent.
    pub to: Ipv6Addr,
    /// Prefixes that the node had registered.
    pub prefixes: Vec<Ipv6Net>,
}

impl HomeAgent {
    /// Begins a drain: the home agent asks all nodes to leave, for as long as the operator says. They go to
    /// one of `to`, or to any other known home agent if `to` is empty.
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
        let to = if to.is_empty() { self.others(now) } else { to.to_vec() };
        if to.is_empty() {
            return Err(
                "there is no other home agent to go to: the config names no [[home_agent.peer]], and none \
                        has been heard on the home link"
                    .into(),
            );
        }
        let nodes = self.registered().len();
        self.drain = Some(Drain {
            phase: DrainPhase::Running,
            to,
            nodes,
            until: now + within,
            asked: BTreeMap::new(),
            began: (now, wall),
        });
        self.look_after_drain(now);
        Ok(())
    }

    /// Ends a drain: nodes may register here again.
    ///
    /// # Errors
    /// Returns a message if no drain exists.
    pub fn handle_drain_end(&mut self) -> Result<(), String> {
        self.assert_drained();
        self.timers.stop(Timer::Drain);
        self.drain.take().map(|_| ()).ok_or_else(|| "there is no drain".to_string())
    }

    /// Returns the status of the last drain.
    pub fn drain(&self) -> Option<DrainStatus> {
        let drain = self.drain.as_ref()?;
        Some(DrainStatus {
            phase: drain.phase,
            to: drain.to.clone(),
            nodes: drain.nodes,
            left: self.registered(),
        })
    }

    /// Returns the relay for packets of a node that has left for another home agent.
    pub fn relay(&self, home_address: Ipv6Addr) -> Option<&Relay> {
        self.relays.get(&home_address).map(Box::as_ref)
    }

    /// Whether packets from `remote`, which is no node, are accepted: another home agent relays packets of a
    /// node that has come here.
    pub fn is_peer(&self, remote: Endpoint) -> bool {
        self.config.others.peers.iter().any(|peer| remote == peer.address)
    }

    /// Whether an address on the home link belongs to a node that has been asked to leave.
    pub(super) fn is_asked_to_leave(&self, address: Ipv6Addr) -> bool {
        let Some(drain) = &self.drain else { return false };
        let is_of = |home_address: &&Ipv6Addr| {
            self.cache.all(**home_address).any(|it| it.link_local_address() == Some(address))
                || self.cache.prefixes(**home_address).iter().any(|prefix| prefix.contains(&address))
        };
        drain.asked.contains_key(&address) || drain.asked.keys().any(|home_address| is_of(&home_address))
    }

    /// Whether a drain asks nodes to leave.
    pub(super) fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// Returns the nodes that have a binding, by home address.
    fn registered(&self) -> Vec<Ipv6Addr> {
        let mut nodes: Vec<Ipv6Addr> = self.cache.iter().map(|binding| binding.home_address).collect();
        nodes.dedup();
        nodes
    }

    /// Whether a node may register. Shortens the lifetime if the node may stay only for a while.
    pub(super) fn may_stay(&self, now: Time, home_address: Ipv6Addr, lifetime: &mut Duration) -> bool {
        if self.is_revoking(home_address) {
            return false;
        }
        let Some(drain) = &self.drain else { return true };
        *lifetime = (*lifetime).min(drain.until.saturating_since(now).max(LIFETIME_UNIT));
        drain.phase == DrainPhase::Running && self.cache.is_bound(home_address)
    }

    /// Asks the next nodes, and ends the drain.
    pub(super) fn look_after_drain(&mut self, now: Time) {
        let registered = self.registered();
        let Some(drain) = self.drain.as_mut().filter(|drain| drain.phase == DrainPhase::Running) else {
            return;
        };
        let ended = if registered.is_empty() {
            drain.phase = DrainPhase::Done;
            Some(format!("drained: all {} nodes have left", drain.nodes))
        } else if drain.until <= now {
            drain.phase = DrainPhase::Expired;
            Some(format!("the drain ends with {} of {} nodes left", registered.len(), drain.nodes))
        } else {
            None
        };
        if let Some(message) = ended {
            self.timers.stop(Timer::Drain);
            self.outputs.push_back(Output::Event(Event::Warning { message }));
            return;
        }
        let fresh = |asked: &Asked| asked.sent == 1 && asked.next > now;
        // The registered nodes are sorted, as in the cache.
        drain.asked.retain(|home_address, _| registered.binary_search(home_address).is_ok());
        let room = OUTSTANDING.saturating_sub(drain.asked.values().filter(|asked| fresh(asked)).count());
        // Nodes that have not been asked come first, so that silent nodes do not delay the others.
        let first = registered.iter().filter(|home_address| !drain.asked.contains_key(home_address)).copied();
        let mut again: Vec<(Time, Ipv6Addr)> = drain
            .asked
            .iter()
            .map(|(node, asked)| (asked.next, *node))
            .filter(|(at, _)| *at <= now)
            .collect();
        again.sort();
        let turn: Vec<Ipv6Addr> = first.chain(again.into_iter().map(|(_, node)| node)).take(room).collect();
        for home_address in turn {
            self.ask_to_leave(now, home_address);
        }
        if let Some(drain) = &self.drain {
            let next = drain.asked.values().map(|asked| asked.next).filter(|at| *at > now).min();
            let next = next.map_or(drain.until, |next| next.min(drain.until));
            self.timers.set(Timer::Drain, next);
        }
    }

    /// Sends a Home Agent Switch message with one address, the next address in turn.
    fn ask_to_leave(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(drain) = self.drain.as_mut() else { return };
        let (began, wall) = drain.began;
        let first = drain.to.first().copied().unwrap_or(Ipv6Addr::UNSPECIFIED);
        let asked = drain
            .asked
            .entry(home_address)
            .or_insert_with(|| Box::new(Asked { sent: 0, to: first, next: now, timeout: INITIAL_TIMEOUT }));
        // The first messages with an address may be lost.
        let turn = (asked.sent / ASKED_EACH) as usize % drain.to.len().max(1);
        asked.to = drain.to.get(turn).copied().unwrap_or(first);
        asked.next = now + asked.timeout;
        asked.timeout = (asked.timeout * 2).min(MAX_TIMEOUT);
        asked.sent = asked.sent.saturating_add(1);
        let (to, sent) = (asked.to, asked.sent as usize);
        // Each message goes by another binding of the node, the best first.
        let bindings: Vec<_> = self.cache.of(home_address).collect();
        let chosen = bindings.get((sent - 1) % bindings.len().max(1)).cloned();
        if let Some(binding) = chosen {
            let builder = Builder::home_agent_switch(&[to]);
            self.notify(wall + now.saturating_since(began), &binding, builder);
        }
    }

    /// Begins a relay when a node has no binding left.
    pub(super) fn departed(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(drain) = &self.drain else { return };
        let to = drain.asked.get(&home_address).map(|asked| asked.to);
        // On a real home link the other home agent answers for the home address.
        if let Some(to) = to.filter(|_| self.config.home_link.is_none()) {
            let prefixes = self.cache.prefixes(home_address).to_vec();
            self.send_after(home_address, Relay { to, prefixes }, now + RELAY_LIFETIME);
        }
        self.timers.set(Timer::Drain, now + BREATH);
    }

    /// Relays packets of a node until `until`.
    pub(super) fn send_after(&mut self, home_address: Ipv6Addr, relay: Relay, until: Time) {
        self.relays.insert(home_address, Box::new(relay));
        self.timers.set(Timer::Relay(home_address), until);
    }

    /// Returns how long packets of a node are still relayed; `None` without a relay.
    pub(super) fn relayed_for(&self, now: Time, home_address: Ipv6Addr) -> Option<Duration> {
        self.timers.get(Timer::Relay(home_address)).map(|until| until.saturating_since(now))
    }

    /// Ends the relay of a node.
    pub(super) fn end_relay(&mut self, home_address: Ipv6Addr) {
        if self.relays.remove(&home_address).is_some() {
            self.outputs.push_back(Output::Forwarding(home_address));
            self.outputs.push_back(Output::Persist(home_address));
        }
    }
}
