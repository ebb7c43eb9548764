//! The home agent (RFC 6275 section 10, RFC 3963 section 6), without I/O.
//!
//! `request` reads Binding Updates; `verification_limits` limits how many are verified; `update_checks`
//! validates them, with `binding_identifiers` for several care-of addresses (RFC 5648), `care_of_address` for
//! IPv4 (RFC 5555) and `flows` for flow bindings (RFC 6089). `binding_changes` changes the bindings.
//! `binding_cache` stores each `binding` (the bindings of one node in `node`), `prefix_owners` the nodes to
//! which prefixes belong, and `replay_state` the replay protection state. `stored_bindings` has the part that
//! survives a restart. `home_link` and `proxy_nd` are the proxy Neighbor Discovery for nodes that are away.
//! `proxied_link` does it on another link of this machine. `acknowledgements` builds the answers, `heartbeat`
//! answers heartbeats, and `care_of_test` tests new care-of addresses. `discovery` and `home_agents_list`
//! name the other home agents. `drain` sends nodes to another home agent, and `revocation` ends their
//! bindings; both use the messages of `unsolicited_messages`. This module joins these modules and serves the
//! timers.
//!
//! A refused Binding Update does not change existing bindings (RFC 3963 6.2 says "discard"). A refresh that
//! changes only the lifetime causes no forwarding change. After a move, or after the end of one of several
//! bindings, the home agent accepts packets from the old care-of address for
//! [`OLD_PATH_GRACE`](crate::OLD_PATH_GRACE). Only Binding Updates move a binding. If a packet comes from a
//! new address, for example because a NAT has lost its mapping, the home agent sends a Binding Error. If the
//! packet came through an IPv6 tunnel, it sends an ICMPv6 error instead.
//!
//! The home agent limits its answers to refused Binding Updates for each node, because such updates may be
//! replays or forgeries; see `answer_limits`. It logs updates that it does not answer; see
//! `unanswered_update_log`.
//!
//! `ipv4_homes` validates IPv4 home addresses and prefixes (RFC 5555 4.5). From then on the IPv4 prefixes of
//! a node are with its IPv6 prefixes, in IPv4-mapped form ([`carnet_base::mapped`]).
//!
//! Left out:
//!
//! * Dynamic IPv4 home addresses (status 132).
//! * Proxy ARP for IPv4 home addresses.
//! * Simultaneous binding to the home link (status 169).
//! * Binding Refresh Advice: the state survives restarts, so nodes need not refresh earlier.
//! * Key management mobility: the answer to the K flag is always 0.

mod acknowledgements;
mod answer_limits;
mod binding;
mod binding_cache;
mod binding_changes;
mod binding_identifiers;
mod care_of_address;
mod care_of_test;
mod discovery;
mod drain;
mod flows;
mod heartbeat;
mod home_agents_list;
pub(crate) mod home_link;
mod ipv4_homes;
mod node;
mod prefix_owners;
mod proxied_link;
mod proxy_nd;
mod replay_state;
mod request;
mod revocation;
mod stored_bindings;
mod unanswered_update_log;
mod unsolicited_messages;
mod update_checks;
mod verification_limits;

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use carnet_base::{
    Endpoint, Interface, LinkMessage, RateLimiter, Rng, Time, TimerTable, WallTime, pop_and_shrink,
};
use carnet_wire::icmpv6::message_type::ROUTER_ADVERTISEMENT;
use carnet_wire::mobility::binding_status::BindingStatus;
use carnet_wire::mobility::message::Heartbeat;
use carnet_wire::mobility::{BindingError, MobilityHeaderBuilder, ParsedMobilityMessage, message_type};
use ipnet::Ipv6Net;

use acknowledgements::AcknowledgementContent;
use answer_limits::{NodeAnswerLimits, UnknownSourceLimits};
pub use binding::{Binding, BindingState, CareOfAddressAge, FormerPath, MAX_BINDINGS};
pub use binding_cache::BindingCache;
use binding_changes::UntestedRegistration;
use care_of_test::CareOfTests;
pub use care_of_test::{CARE_OF_TEST_LEN, CareOfTestCounters};
use drain::DrainState;
pub use drain::{Drain, Relay};
pub use flows::MAX_FLOWS;
use home_agents_list::HomeAgentsList;
pub use home_agents_list::{OtherAgents, PeerHomeAgent};
pub(crate) use home_link::{HomeLink, NeighborMessage};
use proxied_link::ProxiedLink;
pub use proxied_link::ProxiedLinkStatus;
use proxy_nd::ProxyNd;
pub use replay_state::KeyNumbers;
use replay_state::ReplayState;
use request::BindingUpdateRequest;
use revocation::RunningRevocation;
pub use stored_bindings::{StoredBinding, StoredPath, StoredRegistration};
use unanswered_update_log::UnansweredUpdateLog;
use unsolicited_messages::NoticeTimestamps;
use verification_limits::{NodeUpdateLimits, UnboundSourceLimits};

use crate::flow::FlowBinding;
use crate::{Authentication, Event, MobilityDrop, MobilityMessage, Output, is_unicast_routable};

/// The operator's config of the home agent.
#[derive(Debug, Clone)]
pub struct HomeAgentConfig {
    /// The home agent's address. carnet assigns it; no other program may assign it to an interface.
    pub address: Ipv6Addr,
    /// The home prefix.
    pub home_prefix: Ipv6Net,
    /// Prefix of the whole network that is routed to this home agent. It contains the home prefix (RFC 4887
    /// 5). `None` if only the home prefix is routed here.
    pub home_network: Option<Ipv6Net>,
    /// Interface on the home link; `None` if the home link is virtual.
    pub home_link: Option<String>,
    /// Interface, not that of the home link, on which the home agent answers Neighbor Solicitations for
    /// registered mobile networks. `None` without proxy Neighbor Discovery on such a link.
    pub ndp_proxy: Option<String>,
    /// NAT for packets of mobile networks.
    pub nat: Nat,
    /// Longest lifetime that the home agent grants.
    pub max_lifetime: Duration,
    /// IPv4 address at which the home agent receives Binding Updates and tunnelled packets (RFC 5555); `None`
    /// without IPv4. The operator assigns it to an interface, carnet does not.
    pub ipv4_address: Option<Ipv4Addr>,
    /// Whether the home agent uses UDP for IPv4 care-of addresses even if no NAT is on the path (RFC 5555
    /// 3.2.2, F). It is for a home agent behind a NAT that forwards only the UDP port.
    pub force_udp: bool,
    /// Number of care-of addresses that each node may have (RFC 5648).
    pub multiple_care_of_addresses: MultipleCareOfAddresses,
    /// Config of other home agents.
    pub other_agents: OtherAgents,
    /// Nodes that may register. [`HomeAgent::new`] sorts them by home address, and derives their keys for
    /// this home agent.
    pub nodes: Vec<AuthorizedNode>,
}

/// Interfaces to the Internet at which the platform gives packets of mobile networks the address of the
/// interface. The home agent itself does not use these values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nat {
    /// Interface for IPv4; `None` if IPv4 mobile networks have plain routes.
    pub ipv4_interface: Option<String>,
    /// Interface for unique local IPv6 addresses (RFC 4193); `None` if they have plain routes.
    pub ipv6_interface: Option<String>,
    /// Unique local prefixes that the platform translates to another prefix at `ipv6_interface`, in both
    /// directions.
    pub ipv6_prefixes: Vec<TranslatedPrefix>,
}

/// A unique local prefix of mobile networks, and the prefix by which the Internet knows it. Both have the
/// same length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TranslatedPrefix {
    /// Unique local prefix of the mobile networks.
    pub inside_prefix: Ipv6Net,
    /// Prefix by which the Internet knows the mobile networks, and which is routed to this machine.
    pub outside_prefix: Ipv6Net,
}

impl HomeAgentConfig {
    /// Returns whether any node has a mobile network. If not, the home agent refuses the R flag with status
    /// 140 (RFC 3963 6.6).
    pub fn serves_mobile_routers(&self) -> bool {
        self.nodes.iter().any(|node| !node.prefixes.is_empty())
    }

    /// Returns the node with this home address; `None` if the config has no such node. The nodes must be
    /// sorted.
    fn node(&self, home_address: Ipv6Addr) -> Option<&AuthorizedNode> {
        // Compares addresses as numbers, because that is fast: every Binding Update needs this search, and
        // there may be very many nodes.
        let at = self
            .nodes
            .binary_search_by_key(&home_address.to_bits(), |node| node.home_address.to_bits())
            .ok()?;
        self.nodes.get(at)
    }
}

/// Number of care-of addresses that a node may have (RFC 5648).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MultipleCareOfAddresses {
    /// Up to [`MAX_BINDINGS`]; one Binding Update may name several.
    #[default]
    Bulk,
    /// Up to [`MAX_BINDINGS`], each in its own Binding Update; the home agent refuses several in one with
    /// status 168.
    Single,
    /// One binding; the home agent refuses Binding Identifiers with status 166.
    Prohibited,
}

/// A mobile node or router that may register: an entry of the prefix table (RFC 3963 6.1.2).
#[derive(Debug, Clone)]
pub struct AuthorizedNode {
    /// Home address of the node.
    pub home_address: Ipv6Addr,
    /// The only prefixes that the node may register, IPv4 prefixes in IPv4-mapped form; empty for a mobile
    /// node.
    pub prefixes: Arc<[Ipv6Net]>,
    /// Method by which the home agent verifies the node's messages.
    pub authentication: Authentication,
    /// Whether a NAT may be between the node and the home agent. If not, the home agent accepts an IPv4
    /// care-of address only in a packet whose source is this address.
    pub nat: bool,
    /// Whether the home agent sends packets to a new care-of address only after an Echo Reply from it.
    pub care_of_test: bool,
}

/// Replay protection state of a node that the operator has removed from the config. The operator may add the
/// node again.
#[derive(Debug)]
struct RemovedNode {
    replay_state: ReplayState,
    key_numbers: Vec<KeyNumbers>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum HomeAgentTimer {
    /// Duplicate address detection for a home address has found no other node.
    Dad(Ipv6Addr),
    /// A binding's lifetime ends. The binding cache has the times of this variant and of
    /// [`HomeAgentTimer::RefreshRequest`]; the home agent's table of timers has those of all other variants.
    Expire(Ipv6Addr, Option<u16>),
    /// The home agent asks the node to renew the binding.
    RefreshRequest(Ipv6Addr, Option<u16>),
    /// The home agent repeats the revocation of a node's bindings.
    Revoke(Ipv6Addr),
    /// The next Echo Request to an untested care-of address is due.
    CareOfTest(Ipv6Addr, Option<u16>),
    /// The home agent asks the next nodes to leave.
    Drain,
    /// The home agent stops relaying packets for a node that has left.
    Relay(Ipv6Addr),
    /// The grace period of a former care-of address ends.
    Grace(Ipv6Addr),
    /// The state of a de-registered node is deleted.
    Forget(Ipv6Addr),
    /// The next unsolicited Neighbor Advertisement for an address is due.
    Announce(Ipv6Addr),
}

/// Fields of the home agent that the methods of its parts (proxy Neighbor Discovery, tests of care-of
/// addresses) need.
struct HomeAgentContext<'a> {
    now: Time,
    config: &'a HomeAgentConfig,
    cache: &'a mut BindingCache,
    timers: &'a mut TimerTable<HomeAgentTimer>,
    outputs: &'a mut VecDeque<Output>,
}

/// The home agent. After each `handle_*` call the caller calls [`HomeAgent::poll_output`] until it returns
/// `None`.
#[derive(Debug)]
pub struct HomeAgent {
    config: HomeAgentConfig,
    /// SPI of the key that each node with several keys used last, by home address.
    last_spi_by_node: BTreeMap<Ipv6Addr, u32>,
    cache: BindingCache,
    /// Nodes that the operator has removed from the config, by home address.
    removed_nodes: BTreeMap<Ipv6Addr, RemovedNode>,
    proxy_nd: ProxyNd,
    proxied_link: Option<ProxiedLink>,
    /// Requests that wait for duplicate address detection, by home address.
    registrations_under_test: BTreeMap<Ipv6Addr, Vec<UntestedRegistration>>,
    timers: TimerTable<HomeAgentTimer>,
    outputs: VecDeque<Output>,
    binding_error_limit: RateLimiter,
    /// Rate limit of answers to unauthenticated sources.
    unknown_source_limits: RateLimiter,
    /// Rate limits of answers to each node, by home address.
    limits_by_node: BTreeMap<Ipv6Addr, Box<NodeAnswerLimits>>,
    /// Limits of Binding Updates before their verification. `node_update_limits` has the limits after
    /// verification.
    unbound_source_limits: UnboundSourceLimits,
    node_update_limits: NodeUpdateLimits,
    unanswered_update_log: UnansweredUpdateLog,
    /// Restart counter, which heartbeat responses carry (RFC 5847 3.2).
    restart_counter: u32,
    home_agents_list: HomeAgentsList,
    discovery_reply_limits: UnknownSourceLimits,
    drain: Option<DrainState>,
    /// Relays of packets for nodes that have left, by home address.
    relays: BTreeMap<Ipv6Addr, Box<Relay>>,
    running_revocations: BTreeMap<Ipv6Addr, Box<RunningRevocation>>,
    care_of_tests: CareOfTests,
    notice_times: NoticeTimestamps,
    rng: Rng,
}

impl HomeAgent {
    /// Creates a home agent without bindings.
    pub fn new(mut config: HomeAgentConfig) -> Self {
        config.nodes.sort_by_key(|node| node.home_address);
        config.nodes.shrink_to_fit();
        for node in &mut config.nodes {
            node.authentication = node.authentication.for_home_agent(config.address);
        }
        HomeAgent {
            last_spi_by_node: BTreeMap::new(),
            cache: BindingCache::new(config.address, &config.nodes),
            removed_nodes: BTreeMap::new(),
            proxy_nd: ProxyNd::new(&config),
            proxied_link: config.ndp_proxy.clone().map(|name| ProxiedLink::new(name, &config)),
            registrations_under_test: BTreeMap::new(),
            timers: TimerTable::new(),
            outputs: VecDeque::new(),
            binding_error_limit: RateLimiter::new(50, Duration::from_millis(10)),
            unknown_source_limits: RateLimiter::new(20, Duration::from_millis(50)),
            limits_by_node: BTreeMap::new(),
            unbound_source_limits: UnboundSourceLimits::new(0),
            node_update_limits: NodeUpdateLimits::default(),
            unanswered_update_log: UnansweredUpdateLog::default(),
            restart_counter: 0,
            home_agents_list: HomeAgentsList::default(),
            discovery_reply_limits: UnknownSourceLimits::default(),
            drain: None,
            relays: BTreeMap::new(),
            running_revocations: BTreeMap::new(),
            care_of_tests: CareOfTests::new(Rng::new(0)),
            notice_times: NoticeTimestamps::default(),
            rng: Rng::new(0),
            config,
        }
    }

    /// Sets the source of random numbers for the order of equal home agents and for sequence numbers.
    pub fn with_rng(self, rng: Rng) -> Self {
        HomeAgent { rng, ..self }
    }

    /// Sets the secret that decides which sources of Binding Updates share a limit.
    pub fn with_hash_secret(self, secret: u64) -> Self {
        HomeAgent { unbound_source_limits: UnboundSourceLimits::new(secret), ..self }
    }

    /// Sets the source of the tokens for tests of care-of addresses. Its seed is secret.
    pub fn with_token_rng(self, rng: Rng) -> Self {
        HomeAgent { care_of_tests: CareOfTests::new(rng), ..self }
    }

    /// Takes over the operator's drains and revocations, and short-lived state, from before a reload of the
    /// config. [`Self::stored_bindings`] has the rest of the state. Call this function after
    /// [`Self::restore`].
    pub fn adopt_state(&mut self, now: Time, old: HomeAgent) {
        let config = &self.config;
        self.care_of_tests.adopt_tests(old.care_of_tests, |home_address| config.node(home_address).is_some());
        if old.config.address != self.config.address {
            return;
        }
        self.notice_times.last_timestamp = old.notice_times.last_timestamp;
        if old.config.home_link == self.config.home_link {
            self.home_agents_list = old.home_agents_list;
        }
        self.drain = old.drain;
        if self.drain.is_some() {
            self.timers.set_deadline(HomeAgentTimer::Drain, now);
        }
        for (home_address, revocation) in old.running_revocations {
            if self.cache.is_bound(home_address) {
                let timer = HomeAgentTimer::Revoke(home_address);
                self.timers.set_deadline(timer, old.timers.get(timer).unwrap_or(now));
                self.running_revocations.insert(home_address, revocation);
            }
        }
        self.node_update_limits = old.node_update_limits;
        self.limits_by_node = old.limits_by_node;
        self.limits_by_node.retain(|home_address, _| self.config.node(*home_address).is_some());
    }

    /// Returns the configuration.
    pub fn config(&self) -> &HomeAgentConfig {
        &self.config
    }

    /// Returns the node with this home address, if it may register.
    pub fn node(&self, home_address: Ipv6Addr) -> Option<&AuthorizedNode> {
        self.config.node(home_address)
    }

    /// Returns the binding cache.
    pub fn bindings(&self) -> &BindingCache {
        &self.cache
    }

    /// Returns the flow bindings of a home address, ordered by priority (RFC 6089 4.3). A flow without a
    /// valid binding matches no packet.
    pub fn flows(&self, home_address: Ipv6Addr) -> &[FlowBinding] {
        self.cache.flows(home_address)
    }

    /// Sets the number of starts at which this home agent had lost its bindings (RFC 5847 3.2). Heartbeat
    /// responses carry this number.
    pub fn set_restart_counter(&mut self, restart_counter: u32) {
        self.restart_counter = restart_counter;
    }

    /// Returns the restart counter, see [`Self::set_restart_counter`].
    pub fn restart_counter(&self) -> u32 {
        self.restart_counter
    }

    /// Returns the next output. Call it until it returns `None` after every `handle_*`.
    pub fn poll_output(&mut self) -> Option<Output> {
        pop_and_shrink(&mut self.outputs)
    }

    /// Asserts that the caller has taken all outputs of the last input.
    fn assert_drained(&self) {
        debug_assert!(self.outputs.is_empty(), "poll_output was not called until it returned None");
    }

    /// Returns when [`Self::handle_timeout`] is due next; `None` if no timer runs.
    pub fn poll_timeout(&self) -> Option<Time> {
        let due = self.cache.next_event().map(|(due, _)| due);
        self.timers.next_deadline().into_iter().chain(due).min()
    }

    /// Handles a packet with a Mobility Header that is addressed to this home agent.
    ///
    /// # Errors
    /// Returns why the message had no effect; the home agent may have sent an answer all the same.
    pub fn handle_message(
        &mut self,
        now: Time,
        wall: WallTime,
        message: MobilityMessage<'_>,
    ) -> Result<(), MobilityDrop> {
        self.assert_drained();
        let header = match message.verified_header() {
            Ok(header) => header,
            Err(error) => return Err(self.answer_malformed_message(now, &message, error)),
        };
        match header.message() {
            Ok(ParsedMobilityMessage::BindingUpdate(update)) => {
                let request = BindingUpdateRequest::parse(&message, &update)?;
                self.check_admission(now, &message, &request, header.octets())?;
                self.handle_binding_update(now, wall, request, header.octets())
            }
            Ok(ParsedMobilityMessage::Heartbeat(heartbeat)) => {
                self.answer_heartbeat(now, &message, &heartbeat)
            }
            Ok(ParsedMobilityMessage::BindingRevocation(revocation)) => {
                self.handle_revocation_message(now, &message, &revocation, header.octets())
            }
            // RFC 6275 9.2: the home agent answers an unknown type with a Binding Error. A type that only
            // mobile nodes receive counts as unknown.
            Ok(ParsedMobilityMessage::Other(kind)) if kind > message_type::BINDING_ERROR => {
                Err(self.answer_unknown_type(now, &message))
            }
            Ok(ParsedMobilityMessage::HomeAgentSwitch(_)) => Err(self.answer_unknown_type(now, &message)),
            Ok(_) => Err(MobilityDrop::UnknownType),
            Err(error) => Err(self.answer_malformed_message(now, &message, error)),
        }
    }

    /// Borrows separate fields: the context for the methods of the parts, the proxy Neighbor Discovery, and
    /// the tests of care-of addresses.
    fn split_context(&mut self, now: Time) -> (HomeAgentContext<'_>, &mut ProxyNd, &mut CareOfTests) {
        let HomeAgent { config, cache, timers, outputs, proxy_nd, care_of_tests, .. } = self;
        (HomeAgentContext { now, config, cache, timers, outputs }, proxy_nd, care_of_tests)
    }

    /// Answers a heartbeat (RFC 5847).
    fn answer_heartbeat(
        &mut self,
        now: Time,
        message: &MobilityMessage<'_>,
        heartbeat: &Heartbeat<'_>,
    ) -> Result<(), MobilityDrop> {
        if heartbeat.response {
            return Err(MobilityDrop::Unexpected);
        }
        let Some(home_address) = heartbeat::sender_of_heartbeat_request(&self.cache, message) else {
            // The node's NAT has chosen another address, or the binding is lost: the home agent treats the
            // request like any packet without a binding.
            if let Some((local, remote)) = message.tunnel_ends {
                self.report_missing_binding(now, local, remote, message.source);
            }
            return Err(MobilityDrop::WrongParty);
        };
        if let Some(node) =
            self.config.node(home_address).filter(|node| node.authentication.requires_session_for_all())
        {
            node.authentication.check_ipsec_protection(message.is_ipsec_protected, message.session)?;
        }
        if !self.limits_by_node.entry(home_address).or_default().heartbeat_limit.try_take_token(now) {
            return Err(MobilityDrop::RateLimited);
        }
        let response =
            heartbeat::build_heartbeat_response(&self.config, self.restart_counter, message, heartbeat);
        self.outputs.push_back(response);
        Ok(())
    }

    /// Sends a Binding Acknowledgement.
    fn send_acknowledgement(
        &mut self,
        request: &BindingUpdateRequest,
        status: BindingStatus,
        answer: &AcknowledgementContent,
    ) {
        self.outputs.push_back(acknowledgements::build_acknowledgement(
            &self.config,
            request,
            status,
            answer,
        ));
    }

    /// Sends a Binding Error to a sender without a binding, at a limited rate.
    fn send_binding_error(
        &mut self,
        now: Time,
        outer: Option<(Endpoint, Endpoint)>,
        destination: Ipv6Addr,
        home_address: Ipv6Addr,
        status: u8,
    ) {
        if is_unicast_routable(destination) && self.binding_error_limit.try_take_token(now) {
            let error =
                acknowledgements::build_binding_error(&self.config, outer, destination, home_address, status);
            self.outputs.push_back(error);
        }
    }

    /// Answers a message that does not parse, and returns the reason to drop it.
    fn answer_malformed_message(
        &mut self,
        now: Time,
        message: &MobilityMessage<'_>,
        error: carnet_wire::Error,
    ) -> MobilityDrop {
        let limiter = &mut self.unknown_source_limits;
        let answer = acknowledgements::build_parameter_problem(&self.config, limiter, now, message, error);
        self.outputs.extend(answer);
        error.into()
    }

    /// Sends a message to the node over a binding. Authenticates the message if the node has a key.
    fn send_notice(&mut self, wall: WallTime, binding: &Binding, builder: MobilityHeaderBuilder) {
        let spi = self.last_spi_by_node.get(&binding.home_address).copied();
        let notice = self.notice_times.build_notice(wall, &self.config, spi, binding, builder);
        self.outputs.push_back(notice);
    }

    /// Asks a node to renew a binding that is about to end. During a drain it asks no node.
    fn request_binding_refresh(&mut self, now: Time, home_address: Ipv6Addr, bid: Option<u16>) {
        self.cache.mark_refresh_requested(home_address, bid);
        let binding = self.cache.get(home_address, bid).filter(Binding::is_valid);
        if let Some(binding) = binding.filter(|binding| binding.expires_at > now)
            && !self.is_draining()
        {
            self.outputs.push_back(unsolicited_messages::build_refresh_request(&self.config, &binding));
        }
    }

    /// Logs, at a limited rate, why a Binding Update got no answer.
    fn log_unanswered_update(
        &mut self,
        now: Time,
        request: &BindingUpdateRequest,
        octets: &[u8],
        reason: MobilityDrop,
    ) {
        self.outputs.extend(self.unanswered_update_log.unanswered_update_warning(
            now,
            &self.config,
            request,
            octets,
            reason,
        ));
    }

    /// Returns whether the home agent answers solicitations for an address on the home link, and the Router
    /// flag of its answer; `None` if it does not answer.
    fn advertised_router_flag_of(&self, target: Ipv6Addr) -> Option<bool> {
        self.proxy_nd.advertised_router_flag_of(&self.config, &self.cache, target)
    }

    /// Starts to advertise on the home link that `target` has the home agent's link-layer address.
    fn announce_address(&mut self, now: Time, target: Ipv6Addr) {
        let (context, proxy_nd, _) = self.split_context(now);
        proxy_nd.announce_address(context, target);
    }

    /// Returns the counters of the tests of care-of addresses.
    pub fn care_of_test_counters(&self) -> CareOfTestCounters {
        self.care_of_tests.counters()
    }

    /// Handles a packet to the home agent that came through a tunnel or without one. Returns whether the
    /// packet answers a test of a care-of address.
    pub fn handle_care_of_test_answer(&mut self, packet: &[u8]) -> bool {
        self.assert_drained();
        let HomeAgent { cache, timers, outputs, care_of_tests, .. } = self;
        care_of_tests.handle_echo_reply(cache, timers, outputs, packet)
    }

    fn answer_unknown_type(&mut self, now: Time, message: &MobilityMessage<'_>) -> MobilityDrop {
        let home_address = message.home_address.unwrap_or(Ipv6Addr::UNSPECIFIED);
        // Any source can send unknown types, so these answers have a limit of their own. They do not use up
        // the limit of Binding Errors for lost bindings.
        if !self.unknown_source_limits.try_take_token(now) {
            return MobilityDrop::RateLimited;
        }
        let status = BindingError::UNKNOWN_MESSAGE_TYPE;
        self.send_binding_error(now, message.tunnel_ends, message.source, home_address, status);
        MobilityDrop::UnknownType
    }

    /// Returns whether a home address is in the home prefix or in a configured mobile network prefix. Only
    /// such an address can be served here (RFC 3963 6.2).
    fn serves_address(&self, address: Ipv6Addr) -> bool {
        self.config.home_prefix.contains(&address)
            || self.cache.prefix_table().owners_of_covering_prefixes(address).next().is_some()
    }

    /// Answers a packet whose sender has no binding to the care-of address `remote`. The packet has a Home
    /// Address option, or came through a tunnel to the home agent's end `local`. RFC 6275 9.3.1 and 9.3.3
    /// require a Binding Error if it has a Home Address option. RFC 5555 defines no error for tunnels inside
    /// IPv4 or UDP. The home agent gives their packets the same answer, because the sender's NAT may have
    /// chosen another address. The home agent answers only if the inner source belongs to a configured node,
    /// and at a limited rate. The packet does not move a binding, because any source could have sent it.
    pub fn answer_unbound_packet(
        &mut self,
        now: Time,
        local: Endpoint,
        remote: Endpoint,
        inner_source: Ipv6Addr,
    ) {
        self.assert_drained();
        self.report_missing_binding(now, local, remote, inner_source);
    }

    fn report_missing_binding(
        &mut self,
        now: Time,
        local: Endpoint,
        remote: Endpoint,
        inner_source: Ipv6Addr,
    ) {
        if let Some(home_address) = self.home_address_without_binding(remote, inner_source) {
            let status = BindingError::UNKNOWN_BINDING;
            match remote {
                Endpoint::Ipv6(address) => self.send_binding_error(now, None, address, home_address, status),
                _ => self.send_binding_error(now, Some((local, remote)), home_address, home_address, status),
            }
        }
    }

    /// Returns the home address of the node that has `inner_source`, if this node has no binding to the
    /// care-of address `remote`. Such a node relies on a binding that the home agent lost or never accepted.
    pub fn home_address_without_binding(&self, remote: Endpoint, inner_source: Ipv6Addr) -> Option<Ipv6Addr> {
        let owners = self.cache.prefix_table();
        let owner = match owners.is_home_address(inner_source) {
            true => Some(inner_source),
            false => owners.owners_of_covering_prefixes(inner_source).next(),
        };
        owner.filter(|owner| {
            !self.cache.accepts_packets_from(*owner, remote)
                && !self.registrations_under_test.contains_key(owner)
        })
    }

    /// Returns the status of proxy Neighbor Discovery on a link that is not the home link; `None` without
    /// `ndp_proxy`.
    pub fn proxied_link(&self) -> Option<ProxiedLinkStatus> {
        self.proxied_link.as_ref().map(|link| link.status(&self.cache, &self.proxy_nd))
    }

    /// Takes over the state of an interface if it is the home link's interface, or that of proxy Neighbor
    /// Discovery.
    pub fn handle_interface(&mut self, interface: &Interface, now: Time) {
        self.assert_drained();
        if let Some(link) = self.proxied_link.as_mut().filter(|link| link.is_on_interface(&interface.name)) {
            self.outputs.extend(link.handle_interface(&self.config, interface).map(Output::Link));
        }
        let Some(link) = self.proxy_nd.home_link.as_mut().filter(|link| link.interface == interface.name)
        else {
            return;
        };
        if link.handle_interface(interface) {
            // The home agent advertises all defended addresses again, because hosts may have missed or
            // forgotten the last advertisements.
            self.announce_address(now, self.config.address);
            let mut bound: Vec<Ipv6Addr> = self.cache.iter().map(|b| b.home_address).collect();
            bound.dedup();
            for home_address in bound {
                self.announce_address(now, home_address);
            }
        }
    }

    /// Handles the removal of an interface.
    pub fn handle_interface_gone(&mut self, name: &str) {
        self.assert_drained();
        if let Some(link) = self.proxy_nd.home_link.as_mut().filter(|link| link.interface == name) {
            link.handle_interface_gone();
        }
        if let Some(link) = self.proxied_link.as_mut().filter(|link| link.is_on_interface(name)) {
            link.handle_interface_gone();
        }
    }

    /// Handles a Neighbor Discovery message from the home link, or from the link of proxy Neighbor Discovery.
    ///
    /// # Errors
    /// Returns why the message had no effect.
    pub fn handle_link_message(&mut self, now: Time, message: &LinkMessage) -> Result<(), MobilityDrop> {
        self.assert_drained();
        if let Some(link) = self.proxied_link.as_mut().filter(|link| link.is_on_interface(&message.interface))
        {
            let parts = (&self.config, &self.cache, &self.proxy_nd);
            let answer = link.handle_message(now, parts, message)?;
            self.outputs.extend(answer.map(Output::Link));
            return Ok(());
        }
        let Some(link) = self.proxy_nd.home_link.as_ref().filter(|link| link.interface == message.interface)
        else {
            return Ok(());
        };
        if message.message.first() == Some(&ROUTER_ADVERTISEMENT) {
            return self.handle_router_advertisement(now, message);
        }
        match HomeLink::read_neighbor_message(message)? {
            NeighborMessage::Solicitation { target, source, peer } => {
                if let Some(router) = self.advertised_router_flag_of(target) {
                    // RFC 4861 7.2.7: other nodes may have the same anycast address, so its advertisement
                    // has no Override flag.
                    let override_ = !self.proxy_nd.anycast_addresses.contains(&target);
                    let answer = link.build_solicited_advertisement(target, router, override_, source, peer);
                    self.outputs.extend(answer.map(Output::Link));
                } else if source.is_unspecified() {
                    self.handle_duplicate_address(target);
                }
            }
            NeighborMessage::Advertisement { target }
                if self.proxy_nd.anycast_addresses.contains(&target) => {}
            NeighborMessage::Advertisement { target } => {
                let is_agent = self.home_agents_list.is_listed_home_agent(now, message.source);
                if self.advertised_router_flag_of(target).is_some() {
                    // Every node on the link can claim to be a home agent. The home agent believes such an
                    // advertisement only if it has asked this node to leave.
                    let is_expected = is_agent && self.is_switch_requested(target);
                    if !is_expected && self.proxy_nd.conflict_warning_limit.try_take_token(now) {
                        let message = format!(
                            "another node on the home link claims {target}, which this home agent defends"
                        );
                        self.outputs.push_back(Output::Event(Event::Warning { message }));
                    }
                } else if !is_agent {
                    // A home agent that still answers for the address of its former node is no duplicate; any
                    // other node is.
                    self.handle_duplicate_address(target);
                }
            }
            NeighborMessage::Other => {}
        }
        Ok(())
    }

    /// Returns the earliest timer that is due by `now`; `None` if no timer is due. The event of a binding
    /// stays in the cache until the home agent has handled it.
    fn pop_expired_timer(&mut self, now: Time) -> Option<HomeAgentTimer> {
        match self.cache.next_event() {
            Some(due) if self.timers.next_timer().is_none_or(|first| due < first) => {
                Some(due).filter(|(at, _)| *at <= now).map(|(_, timer)| timer)
            }
            _ => self.timers.pop_expired(now),
        }
    }

    /// Handles the timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.assert_drained();
        while let Some(timer) = self.pop_expired_timer(now) {
            match timer {
                HomeAgentTimer::Dad(home_address) => {
                    for tested in self.stop_care_of_tests(home_address) {
                        self.accept_registration(now, &tested.request, &tested.registration);
                    }
                    self.announce_address(now, home_address);
                }
                HomeAgentTimer::Expire(home_address, bid) => self.expire_binding(now, home_address, bid),
                HomeAgentTimer::RefreshRequest(home_address, bid) => {
                    self.request_binding_refresh(now, home_address, bid)
                }
                HomeAgentTimer::Revoke(home_address) => self.send_next_indication(now, home_address),
                HomeAgentTimer::CareOfTest(home_address, bid) => {
                    let (context, _, tests) = self.split_context(now);
                    tests.send_next_request(context, home_address, bid);
                }
                HomeAgentTimer::Drain => self.advance_drain(now),
                HomeAgentTimer::Relay(home_address) => self.end_relay(home_address),
                HomeAgentTimer::Grace(home_address) => self.end_grace_period(now, home_address),
                HomeAgentTimer::Forget(home_address) => {
                    if let Some(node) = self.cache.node_mut(home_address)
                        && node.is_unbound()
                    {
                        node.sequence = None;
                    }
                    self.cache.remove_empty_state(home_address);
                }
                HomeAgentTimer::Announce(target) => {
                    let (context, proxy_nd, _) = self.split_context(now);
                    proxy_nd.send_next_announcement(context, target);
                }
            }
        }
    }
}
