//! The home agent (RFC 6275 section 10, RFC 3963 section 6), without I/O.
//!
//! `request` reads Binding Updates; `admission` bounds how many are looked into; `registration` judges them,
//! with `identifiers` for several care-of addresses (RFC 5648), `care_of_address` for IPv4 (RFC 5555) and
//! `flows` for flow bindings (RFC 6089). `carrying_out` does what the verdict says, `binding_cache` keeps
//! what was accepted (of each node in `node`) and `stored` what of it survives a restart. `home_link` and
//! `defence` speak Neighbor Discovery for nodes that are away, `answers` puts into packets what is said to
//! them, `heartbeat` answers who asks whether we are there, `care_of_test` tests new care-of addresses.
//! `discovery` and `home_agents_list` tell who else is a home agent here; `drain` and `revocation`, by
//! `notices`, send nodes there or away. This module joins them and lets time pass.
//!
//! A refused Binding Update leaves the existing bindings untouched (RFC 3963 6.2 says "discard"); a refresh
//! that changes nothing but the lifetime asks for no forwarding change. After a move, or the end of one of
//! several bindings, the old care-of address is accepted as outer source for
//! [`OLD_PATH_GRACE`](crate::OLD_PATH_GRACE). Only Binding Updates move a binding: a packet from a new
//! address, as when a NAT forgets, is answered by a Binding Error, or by an ICMPv6 error where it came out of
//! a tunnel by IPv6.
//!
//! What is said to Binding Updates that are refused is limited for each node, for they may be recordings that
//! somebody plays again, or forgeries; see `Limits`. What is not answered at all the operator is told of, see
//! `silence`.
//!
//! Left out: IPv4 home addresses (asked for, they are refused), simultaneous binding to the home link (status
//! 169), Binding Refresh Advice (the state survives restarts instead), key management mobility (the K flag is
//! always answered with 0).

mod admission;
mod answers;
mod binding_cache;
mod care_of_address;
mod care_of_test;
mod carrying_out;
mod defence;
mod discovery;
mod drain;
mod flows;
mod heartbeat;
mod home_agents_list;
pub(crate) mod home_link;
mod identifiers;
mod limits;
mod node;
mod notices;
mod owners;
mod registration;
mod request;
mod revocation;
mod silence;
mod stored;

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use carnet_base::{Endpoint, Interface, LinkMessage, RateLimiter, Rng, Time, TimerTable, WallTime, next_of};
use carnet_wire::icmpv6::types::ROUTER_ADVERTISEMENT;
use carnet_wire::mobility::{BindingError, Message, message_type};
use ipnet::Ipv6Net;

use admission::{Admission, Shares};
pub use binding_cache::{Binding, BindingCache, BindingState, FormerPath, MAX_BINDINGS, Stay};
use care_of_test::CareOfTests;
pub use care_of_test::{CARE_OF_TEST_LEN, CareOfTestCounters};
use carrying_out::Tested;
use drain::Drain;
pub use drain::{DrainPhase, DrainStatus, Relay};
pub use flows::MAX_FLOWS;
use home_agents_list::HomeAgentsList;
pub use home_agents_list::{OtherAgents, Peer};
pub(crate) use home_link::{Heard, HomeLink, ND_HOP_LIMIT};
use limits::{Limits, Strangers};
use registration::Replay;
use request::Request;
use revocation::Revocation;
use silence::Silence;
pub use stored::{KeyNumbers, StoredBinding, StoredPath, StoredRegistration};

use crate::flow::FlowBinding;
use crate::{Authentication, Event, MobilityDrop, MobilityMessage, Output};

/// What the operator says about the home agent.
#[derive(Debug, Clone)]
pub struct HomeAgentConfig {
    /// The home agent's address; nobody else assigns it.
    pub address: Ipv6Addr,
    /// The home prefix.
    pub home_prefix: Ipv6Net,
    /// All that is routed here, the home prefix and more (RFC 4887 5).
    pub home_network: Option<Ipv6Net>,
    /// The interface on the home link, `None` for a virtual one.
    pub home_link: Option<String>,
    /// The longest lifetime granted.
    pub max_lifetime: Duration,
    /// Where Binding Updates and packets come inside IPv4 (RFC 5555); `None`: nowhere. Assigned by others.
    pub ipv4_address: Option<Ipv4Addr>,
    /// Whether IPv4 care-of addresses get their packets in UDP also where no NAT shows (RFC 5555 3.2.2, F):
    /// for a home agent of which the world sees a forwarded UDP port only.
    pub force_udp: bool,
    /// Whether nodes may have several care-of addresses (RFC 5648).
    pub multiple_care_of_addresses: MultipleCareOfAddresses,
    /// What there is to say of other home agents.
    pub others: OtherAgents,
    /// Who may register; anybody else may not. [`HomeAgent::new`] puts them in the order of their home
    /// addresses, and has their keys for this home agent.
    pub nodes: Vec<AuthorizedNode>,
}

impl HomeAgentConfig {
    /// Whether any node has a mobile network; if none, the R flag is refused with 140 (RFC 3963 6.6).
    pub fn serves_mobile_routers(&self) -> bool {
        self.nodes.iter().any(|node| !node.prefixes.is_empty())
    }

    /// The node with this home address, once they are in order.
    fn node(&self, home_address: Ipv6Addr) -> Option<&AuthorizedNode> {
        // As numbers, which are compared at once: it is asked with each Binding Update, and there may be very
        // many.
        let at = self
            .nodes
            .binary_search_by_key(&home_address.to_bits(), |node| node.home_address.to_bits())
            .ok()?;
        self.nodes.get(at)
    }
}

/// How many care-of addresses a node may have (RFC 5648).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MultipleCareOfAddresses {
    /// Up to [`MAX_BINDINGS`], in one Binding Update or in several.
    #[default]
    Bulk,
    /// The same, but one for each Binding Update; several in one are refused with 168.
    Single,
    /// One; Binding Identifiers are refused with 166.
    Prohibited,
}

/// A mobile node or router that may register, a row of the Prefix Table (RFC 3963 6.1.2).
#[derive(Debug, Clone)]
pub struct AuthorizedNode {
    /// Its home address.
    pub home_address: Ipv6Addr,
    /// The only prefixes that it may register; none for a mobile node.
    pub prefixes: Arc<[Ipv6Net]>,
    /// How its messages are known to be its own.
    pub authentication: Authentication,
    /// Whether there may be a NAT between it and the home agent. If not, an IPv4 care-of address counts only
    /// in a packet from that address.
    pub nat: bool,
    /// Whether a new care-of address carries packets towards it only after an Echo Reply has come from it.
    pub care_of_test: bool,
}

/// What holds off replays of messages of a node that is not in the config any more: it may come back.
#[derive(Debug)]
struct Absent {
    replay: Replay,
    keys: Vec<KeyNumbers>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// When duplicate address detection for a home address has heard nothing.
    Dad(Ipv6Addr),
    /// When a binding's lifetime ends: this and the next are in the cache, not in the table of timers.
    Expire(Ipv6Addr, Option<u16>),
    /// When its node is asked to renew it.
    RefreshRequest(Ipv6Addr, Option<u16>),
    /// When a node is told again that its bindings are revoked.
    Revoke(Ipv6Addr),
    /// When the next Echo Request goes to an untested care-of address.
    CareOfTest(Ipv6Addr, Option<u16>),
    /// When nodes are asked to leave.
    Drain,
    /// When what arrives for a node that has left is no longer sent after it.
    Relay(Ipv6Addr),
    /// When packets from a former care-of address are no longer accepted.
    Grace(Ipv6Addr),
    /// When a de-registered entry is forgotten.
    Forget(Ipv6Addr),
    /// When the next unsolicited Neighbor Advertisement for an address is due.
    Announce(Ipv6Addr),
}

/// The home agent. See the module documentation for how to drive it.
#[derive(Debug)]
pub struct HomeAgent {
    config: HomeAgentConfig,
    /// The SPI that a node with several keys has used last.
    spis: BTreeMap<Ipv6Addr, u32>,
    cache: BindingCache,
    /// Nodes that are not served any more.
    absent: BTreeMap<Ipv6Addr, Absent>,
    home_link: Option<HomeLink>,
    /// Requests that wait for duplicate address detection.
    testing: BTreeMap<Ipv6Addr, Vec<Tested>>,
    /// Unsolicited Neighbor Advertisements still to be sent, by target.
    announcements: BTreeMap<Ipv6Addr, u8>,
    timers: TimerTable<Timer>,
    outputs: VecDeque<Output>,
    binding_errors: RateLimiter,
    /// Answers to those that nothing authenticated.
    strangers: RateLimiter,
    /// Refusals, by home address.
    limits: BTreeMap<Ipv6Addr, Box<Limits>>,
    /// Binding Updates before they are looked into, and when they are authentic.
    admission: Admission,
    shares: Shares,
    conflict_warnings: RateLimiter,
    silence: Silence,
    /// RFC 5847 3.2.
    restart_counter: u32,
    home_agents_list: HomeAgentsList,
    discovery_replies: Strangers,
    /// The home agents' anycast addresses that are answered at.
    anycast: Vec<Ipv6Addr>,
    drain: Option<Drain>,
    /// By home address.
    relays: BTreeMap<Ipv6Addr, Box<Relay>>,
    revocations: BTreeMap<Ipv6Addr, Box<Revocation>>,
    care_of_tests: CareOfTests,
    /// The timestamp of the last notice.
    last_notice: Option<u64>,
    /// The time of day when the last Binding Update came.
    clock: Option<(Time, WallTime)>,
    rng: Rng,
}

impl HomeAgent {
    /// A home agent without bindings.
    pub fn new(mut config: HomeAgentConfig) -> Self {
        config.nodes.sort_by_key(|node| node.home_address);
        config.nodes.shrink_to_fit();
        for node in &mut config.nodes {
            node.authentication = node.authentication.with(config.address);
        }
        HomeAgent {
            spis: BTreeMap::new(),
            cache: BindingCache::new(config.address, &config.nodes),
            absent: BTreeMap::new(),
            home_link: config.home_link.clone().map(|name| HomeLink::new(name, Some(config.address))),
            testing: BTreeMap::new(),
            announcements: BTreeMap::new(),
            timers: TimerTable::new(),
            outputs: VecDeque::new(),
            binding_errors: RateLimiter::new(50, Duration::from_millis(10)),
            strangers: RateLimiter::new(20, Duration::from_millis(50)),
            limits: BTreeMap::new(),
            admission: Admission::new(0),
            shares: Shares::default(),
            conflict_warnings: RateLimiter::new(1, Duration::from_secs(60)),
            silence: Silence::default(),
            restart_counter: 0,
            home_agents_list: HomeAgentsList::default(),
            discovery_replies: Strangers::default(),
            anycast: discovery::anycast_addresses(&config),
            drain: None,
            relays: BTreeMap::new(),
            revocations: BTreeMap::new(),
            care_of_tests: CareOfTests::new(Rng::new(0)),
            last_notice: None,
            clock: None,
            rng: Rng::new(0),
            config,
        }
    }

    /// The same with a source of randomness of its own: for the order of equal home agents, and for sequence
    /// numbers.
    pub fn with_rng(self, rng: Rng) -> Self {
        HomeAgent { rng, ..self }
    }

    /// The same with a secret that decides which sources of Binding Updates share a place where they are
    /// counted.
    pub fn with_secret(self, secret: u64) -> Self {
        HomeAgent { admission: Admission::new(secret), ..self }
    }

    /// The same with a source of the tokens by which care-of addresses are tested, from a seed that is
    /// secret.
    pub fn with_tokens(self, rng: Rng) -> Self {
        HomeAgent { care_of_tests: CareOfTests::new(rng), ..self }
    }

    /// Takes over from the home agent that this one takes the place of, with another configuration, what the
    /// operator has ordered and what is known for a while only; the rest is in [`Self::stored`]. To be called
    /// after [`Self::restore`].
    pub fn adopt(&mut self, now: Time, old: HomeAgent) {
        let config = &self.config;
        self.care_of_tests.adopt(old.care_of_tests, |home_address| config.node(home_address).is_some());
        if old.config.address != self.config.address {
            return;
        }
        self.last_notice = old.last_notice;
        if old.config.home_link == self.config.home_link {
            self.home_agents_list = old.home_agents_list;
        }
        self.drain = old.drain;
        if self.drain.is_some() {
            self.timers.set(Timer::Drain, now);
        }
        for (home_address, revocation) in old.revocations {
            if self.cache.is_bound(home_address) {
                let timer = Timer::Revoke(home_address);
                self.timers.set(timer, old.timers.get(timer).unwrap_or(now));
                self.revocations.insert(home_address, revocation);
            }
        }
        self.shares = old.shares;
        self.limits = old.limits;
        self.limits.retain(|home_address, _| self.config.node(*home_address).is_some());
    }

    /// Its configuration.
    pub fn config(&self) -> &HomeAgentConfig {
        &self.config
    }

    /// The node with this home address, if it may register.
    pub fn node(&self, home_address: Ipv6Addr) -> Option<&AuthorizedNode> {
        self.config.node(home_address)
    }

    /// The binding cache.
    pub fn bindings(&self) -> &BindingCache {
        &self.cache
    }

    /// The flow bindings of a home address, ordered by priority (RFC 6089 4.3). An entry none of whose
    /// bindings is valid matches nothing.
    pub fn flows(&self, home_address: Ipv6Addr) -> &[FlowBinding] {
        self.cache.flows(home_address)
    }

    /// Says how often this home agent has started without the bindings that it had (RFC 5847 3.2); told in
    /// heartbeats.
    pub fn set_restart_counter(&mut self, restart_counter: u32) {
        self.restart_counter = restart_counter;
    }

    /// What [`Self::set_restart_counter`] said.
    pub fn restart_counter(&self) -> u32 {
        self.restart_counter
    }

    /// The next thing to be done. To be called until it returns `None` after every `handle_*`.
    pub fn poll_output(&mut self) -> Option<Output> {
        next_of(&mut self.outputs)
    }

    /// The drain rule: whatever came of the last input has been taken.
    fn assert_drained(&self) {
        debug_assert!(self.outputs.is_empty(), "poll_output was not called until it returned None");
    }

    /// When [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let due = self.cache.next_due().map(|(due, _)| due);
        self.timers.next_deadline().into_iter().chain(due).min()
    }

    /// Handles a packet with a Mobility Header that is addressed to this home agent.
    ///
    /// # Errors
    /// Why the message had no effect; an answer may have been sent all the same.
    pub fn handle_message(
        &mut self,
        now: Time,
        wall: WallTime,
        message: MobilityMessage<'_>,
    ) -> Result<(), MobilityDrop> {
        self.assert_drained();
        let header = match message.header() {
            Ok(header) => header,
            Err(error) => return Err(self.malformed(now, &message, error)),
        };
        match header.message() {
            Ok(Message::BindingUpdate(update)) => {
                let request = Request::parse(&message, &update)?;
                self.admit_update(now, &message, &request, header.octets())?;
                self.binding_update(now, wall, request, header.octets())
            }
            Ok(Message::Heartbeat(heartbeat)) => self.heartbeat(now, &message, &heartbeat),
            Ok(Message::BindingRevocation(revocation)) => {
                self.revocation_message(now, &message, &revocation, header.octets())
            }
            // RFC 6275 9.2: unknown types are answered with a Binding Error; what only nodes understand is
            // not known here.
            Ok(Message::Other(kind)) if kind > message_type::BINDING_ERROR => {
                Err(self.unknown_type(now, &message))
            }
            Ok(Message::HomeAgentSwitch(_)) => Err(self.unknown_type(now, &message)),
            Ok(_) => Err(MobilityDrop::UnknownType),
            Err(error) => Err(self.malformed(now, &message, error)),
        }
    }

    fn unknown_type(&mut self, now: Time, message: &MobilityMessage<'_>) -> MobilityDrop {
        let home_address = message.home_address.unwrap_or(Ipv6Addr::UNSPECIFIED);
        // Anybody may send such; what tells nodes of lost bindings has an allowance of its own.
        if !self.strangers.allow(now) {
            return MobilityDrop::RateLimited;
        }
        let status = BindingError::UNKNOWN_MESSAGE_TYPE;
        self.binding_error(now, message.outer, message.source, home_address, status);
        MobilityDrop::UnknownType
    }

    /// Whether a home address is one that this agent could serve (RFC 3963 6.2): in the home prefix or in a
    /// mobile network prefix that it knows.
    fn serves(&self, address: Ipv6Addr) -> bool {
        self.config.home_prefix.contains(&address)
            || self.cache.owners().of_prefixes_around(address).next().is_some()
    }

    /// A packet with a Home Address option came, at our end `local`, whose sender has no binding, or none to
    /// the care-of address `remote`: RFC 6275 9.3.1 and 9.3.3 want a Binding Error. So is answered what comes
    /// out of a tunnel inside IPv4 or UDP, where RFC 5555 knows no error: its sender may be a node to which
    /// its NAT has given another address. A Binding Error goes to care-of addresses whose inner source
    /// belongs to a configured node, and not too often. The packet itself moves nothing: anybody could have
    /// sent it.
    pub fn handle_unbound(&mut self, now: Time, local: Endpoint, remote: Endpoint, inner_source: Ipv6Addr) {
        self.assert_drained();
        self.unbound(now, local, remote, inner_source);
    }

    fn unbound(&mut self, now: Time, local: Endpoint, remote: Endpoint, inner_source: Ipv6Addr) {
        if let Some(home_address) = self.misses_binding(remote, inner_source) {
            let status = BindingError::UNKNOWN_BINDING;
            match remote {
                Endpoint::Ipv6(address) => self.binding_error(now, None, address, home_address, status),
                _ => self.binding_error(now, Some((local, remote)), home_address, home_address, status),
            }
        }
    }

    /// The home address of the node to which an inner source belongs, if that node has no binding to the
    /// care-of address `remote`: it believes in one that we lost or never accepted.
    pub fn misses_binding(&self, remote: Endpoint, inner_source: Ipv6Addr) -> Option<Ipv6Addr> {
        let owners = self.cache.owners();
        let owner = match owners.is_home_address(inner_source) {
            true => Some(inner_source),
            false => owners.of_prefixes_around(inner_source).next(),
        };
        owner.filter(|owner| !self.cache.accepts(*owner, remote) && !self.testing.contains_key(owner))
    }

    /// Takes over the state of an interface; only the home link's matters.
    pub fn handle_interface(&mut self, interface: &Interface, now: Time) {
        self.assert_drained();
        let Some(link) = self.home_link.as_mut().filter(|link| link.interface == interface.name) else {
            return;
        };
        if link.handle_interface(interface) {
            // Whatever happened on the link meanwhile: these addresses are here.
            self.announce(now, self.config.address);
            let mut bound: Vec<Ipv6Addr> = self.cache.iter().map(|b| b.home_address).collect();
            bound.dedup();
            for home_address in bound {
                self.announce(now, home_address);
            }
        }
    }

    /// An interface has vanished.
    pub fn handle_interface_gone(&mut self, name: &str) {
        self.assert_drained();
        if let Some(link) = self.home_link.as_mut().filter(|link| link.interface == name) {
            link.handle_gone();
        }
    }

    /// Handles a Neighbor Discovery message heard on the home link.
    ///
    /// # Errors
    /// Why it had no effect.
    pub fn handle_link_message(&mut self, now: Time, message: &LinkMessage) -> Result<(), MobilityDrop> {
        self.assert_drained();
        let Some(link) = self.home_link.as_ref().filter(|link| link.interface == message.interface) else {
            return Ok(());
        };
        if message.message.first() == Some(&ROUTER_ADVERTISEMENT) {
            return self.router_heard(now, message);
        }
        match HomeLink::read(message)? {
            Heard::Solicitation { target, source, peer } => {
                if let Some(router) = self.defended(target) {
                    // RFC 4861 7.2.7: an anycast address may have other owners beside us.
                    let override_ = !self.anycast.contains(&target);
                    let answer = link.answer(target, router, override_, source, peer);
                    self.outputs.extend(answer.map(Output::Link));
                } else if source.is_unspecified() {
                    self.duplicate(target);
                }
            }
            Heard::Advertisement { target } if self.anycast.contains(&target) => {}
            Heard::Advertisement { target } => {
                let is_agent = self.home_agents_list.is_heard(now, message.source);
                if self.defended(target).is_some() {
                    // Anybody can call himself a home agent: of one it is expected only when we have sent the
                    // node away.
                    let is_expected = is_agent && self.is_asked_to_leave(target);
                    if !is_expected && self.conflict_warnings.allow(now) {
                        let message = format!(
                            "another node on the home link claims {target}, which this home agent defends"
                        );
                        self.outputs.push_back(Output::Event(Event::Warning { message }));
                    }
                } else if !is_agent {
                    // Another home agent answers for a node until that has come here.
                    self.duplicate(target);
                }
            }
            Heard::Other => {}
        }
        Ok(())
    }

    /// Takes what is to be done by now, the earliest first. What is due of a binding stays until it is done.
    fn pop_expired(&mut self, now: Time) -> Option<Timer> {
        match self.cache.next_due() {
            Some(due) if self.timers.first().is_none_or(|first| due < first) => {
                Some(due).filter(|(at, _)| *at <= now).map(|(_, timer)| timer)
            }
            _ => self.timers.pop_expired(now),
        }
    }

    /// Serves the timers that have run out.
    pub fn handle_timeout(&mut self, now: Time) {
        self.assert_drained();
        while let Some(timer) = self.pop_expired(now) {
            match timer {
                Timer::Dad(home_address) => {
                    for tested in self.stop_testing(home_address) {
                        self.accept(now, &tested.request, &tested.registration);
                    }
                    self.announce(now, home_address);
                }
                Timer::Expire(home_address, bid) => self.expire(now, home_address, bid),
                Timer::RefreshRequest(home_address, bid) => self.request_refresh(now, home_address, bid),
                Timer::Revoke(home_address) => self.revoke(now, home_address),
                Timer::CareOfTest(home_address, bid) => self.send_care_of_test(now, home_address, bid),
                Timer::Drain => self.look_after_drain(now),
                Timer::Relay(home_address) => self.end_relay(home_address),
                Timer::Grace(home_address) => self.end_grace(now, home_address),
                Timer::Forget(home_address) => {
                    if let Some(node) = self.cache.node(home_address)
                        && node.is_unbound()
                    {
                        node.sequence = None;
                    }
                    self.cache.tidy(home_address);
                }
                Timer::Announce(target) => self.announce_once(now, target),
            }
        }
    }
}
