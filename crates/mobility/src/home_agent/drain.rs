//! Planned maintenance: all registered nodes are asked to go to another home agent (RFC 5142).
//!
//! Each node is sent a Home Agent Switch message with the address of another home agent, again after 5, 10
//! and 20 s, and from the fourth message on with the next address. It registers there first and de-registers
//! here then, which is the answer that RFC 5142 5.2 waits for; until it comes everything goes on as before.
//! RFC 5142 7 wants either a slow rate or a feedback: at most [`OUTSTANDING`] nodes are asked at a time, and
//! each that leaves, or has had the time to answer, makes room for the next. Those that have not been asked
//! yet come before those that have not answered.
//!
//! **Nothing is lost on the way**, as far as it is this side's to see to. On a real home link the other home
//! agent takes the home address over by Neighbor Advertisements. On a virtual one whatever routes the nodes'
//! prefixes goes on routing them here until its operator, or his routing daemon, has seen the change; so what
//! arrives for a node that has left is *relayed* to the home agent that it was sent to, through a tunnel of
//! its own, as if that were the node's care-of address. The other takes from its peers ([`super::Peer`]) what
//! is for a node that is bound there. A relay ends when the node registers here again, and after
//! [`RELAY_LIFETIME`] at the latest. Which home agent it leads to is the one that the node was asked to go to
//! last: nobody says where it has gone. So another one is named only when whoever heard of the one before has
//! come to an end with it. A node whose bindings end without a goodbye may have gone there as well; if it has
//! not, nobody is at the other end, and what arrives is dropped there.
//!
//! While the drain runs, bindings are renewed until its end at most, and no new ones begin; after that none
//! are renewed (status 129, RFC 5142 5.3), until the operator cancels it.
//!
//! Left out: the Binding Refresh Advice option, for nodes need not wait.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Endpoint, Time, WallTime};
use carnet_wire::mobility::Builder;
use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

use super::{HomeAgent, Timer};
use crate::{Event, LIFETIME_UNIT, Output, is_unicast_routable};

/// `INITIAL-HA-SWITCH-TIMEOUT` and `MAX-HA-SWITCH-TIMEOUT` (RFC 5142 8).
const INITIAL_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_TIMEOUT: Duration = Duration::from_secs(20);
/// Nodes that have been asked and have not had the time to answer.
const OUTSTANDING: usize = 16;
/// Messages to a node that name one home agent, before the next is named: with the timeouts above there are
/// 20 s between the last of these and the first of those, and a router is through with a home agent after
/// less ([`crate::agents`]).
const ASKED_EACH: u32 = 3;
/// How long what arrives for a node that has left is sent after it. By then whoever routes its prefixes
/// knows.
pub(super) const RELAY_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// After one has left, until the next are asked: looking for them costs a look at every binding.
const BREATH: Duration = Duration::from_millis(10);

/// How a drain stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainPhase {
    /// Nodes are being asked.
    Running,
    /// All have left.
    Done,
    /// Time is up, and some have not.
    Expired,
}

/// A drain for those who want to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainStatus {
    /// How it stands.
    pub phase: DrainPhase,
    /// The home agents that nodes are sent to.
    pub to: Vec<Ipv6Addr>,
    /// Nodes that were registered when it began.
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
    /// Of the beginning, by both clocks.
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

/// Where what arrives for a node that has left goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relay {
    /// The other home agent.
    pub to: Ipv6Addr,
    /// Prefixes that the node had registered.
    pub prefixes: Vec<Ipv6Net>,
}

impl HomeAgent {
    /// The operator wants all nodes to leave: to one of `to`, or, when that is empty, to any other home agent
    /// that is known. They are asked for so long.
    ///
    /// # Errors
    /// When there is nobody to go to, in words for the operator.
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

    /// The operator wants nodes to register here again.
    ///
    /// # Errors
    /// When there is no drain.
    pub fn handle_drain_end(&mut self) -> Result<(), String> {
        self.assert_drained();
        self.timers.stop(Timer::Drain);
        self.drain.take().map(|_| ()).ok_or_else(|| "there is no drain".to_string())
    }

    /// How the last drain stands.
    pub fn drain(&self) -> Option<DrainStatus> {
        let drain = self.drain.as_ref()?;
        Some(DrainStatus {
            phase: drain.phase,
            to: drain.to.clone(),
            nodes: drain.nodes,
            left: self.registered(),
        })
    }

    /// Where what arrives for a node goes that has left for another home agent.
    pub fn relay(&self, home_address: Ipv6Addr) -> Option<&Relay> {
        self.relays.get(&home_address).map(Box::as_ref)
    }

    /// Whether what comes from there is taken although it is no node: another home agent's, about a node that
    /// has come here.
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

    /// Whether nodes are to leave.
    pub(super) fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// The nodes that have a binding, in order.
    fn registered(&self) -> Vec<Ipv6Addr> {
        let mut nodes: Vec<Ipv6Addr> = self.cache.iter().map(|binding| binding.home_address).collect();
        nodes.dedup();
        nodes
    }

    /// Whether a node may register, and, where it may for a while only, for how long.
    pub(super) fn may_stay(&self, now: Time, home_address: Ipv6Addr, lifetime: &mut Duration) -> bool {
        if self.is_revoking(home_address) {
            return false;
        }
        let Some(drain) = &self.drain else { return true };
        *lifetime = (*lifetime).min(drain.until.saturating_since(now).max(LIFETIME_UNIT));
        drain.phase == DrainPhase::Running && self.cache.is_bound(home_address)
    }

    /// Asks those whose turn it is, and notices the end.
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
        // In order, as the cache has them.
        drain.asked.retain(|home_address, _| registered.binary_search(home_address).is_ok());
        let room = OUTSTANDING.saturating_sub(drain.asked.values().filter(|asked| fresh(asked)).count());
        // Who has not been asked yet comes first: those that do not answer shall not keep the others waiting.
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

    /// Sends a Home Agent Switch message with one address, the next one each time.
    fn ask_to_leave(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(drain) = self.drain.as_mut() else { return };
        let (began, wall) = drain.began;
        let first = drain.to.first().copied().unwrap_or(Ipv6Addr::UNSPECIFIED);
        let asked = drain
            .asked
            .entry(home_address)
            .or_insert_with(|| Box::new(Asked { sent: 0, to: first, next: now, timeout: INITIAL_TIMEOUT }));
        // Some of them may be lost.
        let turn = (asked.sent / ASKED_EACH) as usize % drain.to.len().max(1);
        asked.to = drain.to.get(turn).copied().unwrap_or(first);
        asked.next = now + asked.timeout;
        asked.timeout = (asked.timeout * 2).min(MAX_TIMEOUT);
        asked.sent = asked.sent.saturating_add(1);
        let (to, sent) = (asked.to, asked.sent as usize);
        // By another of its bindings each time, the best first.
        let bindings: Vec<_> = self.cache.of(home_address).collect();
        let chosen = bindings.get((sent - 1) % bindings.len().max(1)).cloned();
        if let Some(binding) = chosen {
            let builder = Builder::home_agent_switch(&[to]);
            self.notify(wall + now.saturating_since(began), &binding, builder);
        }
    }

    /// A node has no binding any more.
    pub(super) fn departed(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(drain) = &self.drain else { return };
        let to = drain.asked.get(&home_address).map(|asked| asked.to);
        // On a real home link the other answers for the home address.
        if let Some(to) = to.filter(|_| self.config.home_link.is_none()) {
            let prefixes = self.cache.prefixes(home_address).to_vec();
            self.send_after(home_address, Relay { to, prefixes }, now + RELAY_LIFETIME);
        }
        self.timers.set(Timer::Drain, now + BREATH);
    }

    /// What arrives for a node goes elsewhere until then.
    pub(super) fn send_after(&mut self, home_address: Ipv6Addr, relay: Relay, until: Time) {
        self.relays.insert(home_address, Box::new(relay));
        self.timers.set(Timer::Relay(home_address), until);
    }

    /// How long that lasts, where it is so.
    pub(super) fn relayed_for(&self, now: Time, home_address: Ipv6Addr) -> Option<Duration> {
        self.timers.get(Timer::Relay(home_address)).map(|until| until.saturating_since(now))
    }

    /// What arrives for a node goes nowhere else any more.
    pub(super) fn end_relay(&mut self, home_address: Ipv6Addr) {
        if self.relays.remove(&home_address).is_some() {
            self.outputs.push_back(Output::Forwarding(home_address));
            self.outputs.push_back(Output::Persist(home_address));
        }
    }
}
