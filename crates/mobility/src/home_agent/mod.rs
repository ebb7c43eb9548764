//! The home agent (RFC 6275 section 10, RFC 3963 section 6), without I/O.
//!
//! `registration` judges Binding Updates, `binding_cache` keeps what was accepted, `home_link` and `defence`
//! speak Neighbor Discovery for nodes that are away, `answers` puts into packets what is said to them. This
//! module joins them: it carries out the verdict, grants lifetimes and lets them run out, tests addresses
//! before it defends them.
//!
//! A refused Binding Update leaves the existing binding untouched (RFC 3963 6.2 says "discard"); a refresh
//! that changes nothing but the lifetime asks for no forwarding change. After a move the old care-of address
//! is accepted as outer source for [`OLD_PATH_GRACE`].
//!
//! What is said to Binding Updates that are refused is limited for each node, for they may be recordings that
//! somebody plays again, or forgeries; see `Limits`.
//!
//! Left out: DHAAD and mobile prefix discovery, Binding Refresh Advice (the state survives restarts instead),
//! key management mobility (the K flag is always answered with 0).

mod answers;
mod binding_cache;
mod care_of_address;
mod defence;
mod home_link;
mod limits;
mod owners;
mod registration;

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Interface, LinkMessage, RateLimiter, Time, TimerTable, WallTime};
use carnet_wire::mobility::status::Status;
use carnet_wire::mobility::{BindingError, BindingUpdate, Message, message_type};
use ipnet::Ipv6Net;

pub use binding_cache::{Binding, BindingCache, BindingState, StoredBinding, StoredRegistration};
use care_of_address::is_acceptable;
pub(crate) use home_link::ND_HOP_LIMIT;
use home_link::{Heard, HomeLink};
use limits::Limits;
use registration::{Replay, Request, Verdict, judge};

use crate::{Authentication, Event, MobilityDrop, MobilityMessage, OLD_PATH_GRACE, Output, lifetime_units};

/// How long duplicate address detection listens: one probe and `RetransTimer` (RFC 4862 5.4, RFC 4861 10).
const DAD_WAIT: Duration = Duration::from_secs(1);
/// `MAX_DELETE_BCE_TIMEOUT` (RFC 6275 12).
const MAX_DELETE_BCE_TIMEOUT: Duration = Duration::from_secs(10);

/// What the operator says about the home agent.
#[derive(Debug, Clone)]
pub struct HomeAgentConfig {
    /// The home agent's address; nobody else assigns it.
    pub address: Ipv6Addr,
    /// The home prefix.
    pub home_prefix: Ipv6Net,
    /// The interface on the home link, `None` for a virtual one.
    pub home_link: Option<String>,
    /// The longest lifetime granted.
    pub max_lifetime: Duration,
    /// Who may register; anybody else may not.
    pub nodes: Vec<AuthorizedNode>,
}

impl HomeAgentConfig {
    /// Whether any node has a mobile network; if none, the R flag is refused with 140 (RFC 3963 6.6).
    pub fn serves_mobile_routers(&self) -> bool {
        self.nodes.iter().any(|node| !node.prefixes.is_empty())
    }
}

/// A mobile node or router that may register, a row of the Prefix Table (RFC 3963 6.1.2).
#[derive(Debug, Clone)]
pub struct AuthorizedNode {
    /// Its home address.
    pub home_address: Ipv6Addr,
    /// The only prefixes that it may register; none for a mobile node.
    pub prefixes: Vec<Ipv6Net>,
    /// How its messages are known to be its own.
    pub authentication: Authentication,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// When duplicate address detection for a home address has heard nothing.
    Dad(Ipv6Addr),
    /// When a binding's lifetime ends.
    Expire(Ipv6Addr),
    /// When packets from the previous care-of address are no longer accepted.
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
    nodes: BTreeMap<Ipv6Addr, AuthorizedNode>,
    replay: BTreeMap<Ipv6Addr, Replay>,
    cache: BindingCache,
    home_link: Option<HomeLink>,
    /// Requests that wait for duplicate address detection.
    testing: BTreeMap<Ipv6Addr, Request>,
    /// Unsolicited Neighbor Advertisements still to be sent, by target.
    announcements: BTreeMap<Ipv6Addr, u8>,
    timers: TimerTable<Timer>,
    outputs: VecDeque<Output>,
    binding_errors: RateLimiter,
    /// Answers to those that nothing authenticated.
    strangers: RateLimiter,
    /// Refusals, by home address.
    limits: BTreeMap<Ipv6Addr, Limits>,
    conflict_warnings: RateLimiter,
}

impl HomeAgent {
    /// A home agent without bindings.
    pub fn new(config: HomeAgentConfig) -> Self {
        HomeAgent {
            nodes: config.nodes.iter().map(|node| (node.home_address, node.clone())).collect(),
            replay: BTreeMap::new(),
            cache: BindingCache::of(&config.nodes),
            home_link: config.home_link.clone().map(HomeLink::new),
            testing: BTreeMap::new(),
            announcements: BTreeMap::new(),
            timers: TimerTable::new(),
            outputs: VecDeque::new(),
            binding_errors: RateLimiter::new(50, Duration::from_millis(10)),
            strangers: RateLimiter::new(20, Duration::from_millis(50)),
            limits: BTreeMap::new(),
            conflict_warnings: RateLimiter::new(1, Duration::from_secs(60)),
            config,
        }
    }

    /// Its configuration.
    pub fn config(&self) -> &HomeAgentConfig {
        &self.config
    }

    /// The binding cache.
    pub fn bindings(&self) -> &BindingCache {
        &self.cache
    }

    /// The next thing to be done. To be called until it returns `None` after every `handle_*`.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The drain rule: whatever came of the last input has been taken.
    fn assert_drained(&self) {
        debug_assert!(self.outputs.is_empty(), "poll_output was not called until it returned None");
    }

    /// When [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next_deadline()
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
                self.binding_update(now, wall, request, &update, header.octets())
            }
            Ok(Message::Other(kind)) if kind > message_type::BINDING_ERROR => {
                // RFC 6275 9.2: unknown types are answered with a Binding Error.
                let home_address = message.home_address.unwrap_or(Ipv6Addr::UNSPECIFIED);
                self.binding_error(now, message.source, home_address, BindingError::UNKNOWN_MESSAGE_TYPE);
                Err(MobilityDrop::UnknownType)
            }
            Ok(_) => Err(MobilityDrop::UnknownType),
            Err(error) => Err(self.malformed(now, &message, error)),
        }
    }

    /// Whether a home address is one that this agent could serve (RFC 3963 6.2): in the home prefix or in a
    /// mobile network prefix that it knows.
    fn serves(&self, address: Ipv6Addr) -> bool {
        self.config.home_prefix.contains(&address)
            || self.cache.owners().of_prefixes_around(address).next().is_some()
    }

    /// A packet came out of the tunnel whose sender has no binding, or none to this care-of address: the
    /// sender believes in one that we lost or never accepted. It is told by a Binding Error, as RFC 6275 9.3.1
    /// and 9.3.3 do it for a Home Address option whose binding is missing or has another care-of address. Told
    /// only to the owners of addresses that are configured here, and not too often.
    pub fn handle_unbound(&mut self, now: Time, outer_source: Ipv6Addr, inner_source: Ipv6Addr) {
        self.assert_drained();
        let owners = self.cache.owners();
        let owner = match owners.is_home_address(inner_source) {
            true => Some(inner_source),
            false => owners.of_prefixes_around(inner_source).next(),
        };
        if let Some(home_address) = owner
            && !self.cache.valid(home_address).is_some_and(|binding| binding.accepts(outer_source))
            && !self.testing.contains_key(&home_address)
        {
            self.binding_error(now, outer_source, home_address, BindingError::UNKNOWN_BINDING);
        }
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
            let bound: Vec<Ipv6Addr> = self.cache.iter().map(|b| b.home_address).collect();
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
        match HomeLink::read(message)? {
            Heard::Solicitation { target, source, peer } => {
                if let Some(router) = self.defended(target) {
                    let answer = link.answer(target, router, source, peer);
                    self.outputs.extend(answer.map(Output::Link));
                } else if source.is_unspecified() {
                    self.duplicate(target);
                }
            }
            Heard::Advertisement { target } => {
                if self.defended(target).is_some() {
                    if self.conflict_warnings.allow(now) {
                        let message = format!(
                            "another node on the home link claims {target}, which this home agent defends"
                        );
                        self.outputs.push_back(Output::Event(Event::Warning { message }));
                    }
                } else {
                    self.duplicate(target);
                }
            }
            Heard::Other => {}
        }
        Ok(())
    }

    /// Serves the timers that have run out.
    pub fn handle_timeout(&mut self, now: Time) {
        self.assert_drained();
        while let Some(timer) = self.timers.pop_expired(now) {
            match timer {
                Timer::Dad(home_address) => {
                    if let Some(request) = self.testing.remove(&home_address) {
                        self.commit(now, &request);
                        self.acknowledge_registration(&request);
                        self.announce(now, home_address);
                    }
                }
                Timer::Expire(home_address) => {
                    if self.cache.valid(home_address).is_some() {
                        self.cache.remove(home_address);
                        self.timers.stop(Timer::Grace(home_address));
                        self.outputs.push_back(Output::Forwarding(home_address));
                        self.outputs.push_back(Output::Persist);
                        self.outputs.push_back(Output::Event(Event::BindingRemoved {
                            home_address,
                            reason: "its lifetime ended".into(),
                        }));
                    }
                }
                Timer::Grace(home_address) => {
                    if let Some(binding) = self.cache.get_mut(home_address) {
                        binding.previous_care_of_address = None;
                        self.outputs.push_back(Output::Forwarding(home_address));
                    }
                }
                Timer::Forget(home_address) => {
                    if self.cache.get(home_address).is_some_and(|b| b.state == BindingState::Deleted) {
                        self.cache.remove(home_address);
                    }
                }
                Timer::Announce(target) => self.announce_once(now, target),
            }
        }
    }

    /// All that has to survive a restart.
    pub fn stored(&self, now: Time, wall: WallTime) -> Vec<StoredBinding> {
        self.nodes
            .keys()
            .filter_map(|&home_address| {
                let replay = self.replay.get(&home_address).copied().unwrap_or_default();
                let binding = self.cache.valid(home_address);
                if binding.is_none() && replay.sequence.is_none() && replay.timestamp.is_none() {
                    return None;
                }
                Some(StoredBinding {
                    home_address,
                    sequence: replay.sequence.or(binding.map(|b| b.sequence)),
                    timestamp: replay.timestamp,
                    registration: binding.map(|b| StoredRegistration {
                        care_of_address: b.care_of_address,
                        mobile_router: b.mobile_router,
                        link_local: b.link_local,
                        prefixes: b.prefixes.clone(),
                        lifetime_s: b.lifetime.as_secs(),
                        expires: wall + b.expires.saturating_since(now),
                        previous: b
                            .previous_care_of_address
                            .map(|(previous, until)| (previous, wall + until.saturating_since(now))),
                    }),
                })
            })
            .collect()
    }

    /// Takes back what [`Self::stored`] gave, as far as the configuration still allows it and the lifetimes
    /// have not ended. Duplicate address detection is not repeated: the node kept the address all the while.
    pub fn restore(&mut self, now: Time, wall: WallTime, stored: Vec<StoredBinding>) {
        for entry in stored {
            let Some(node) = self.nodes.get(&entry.home_address) else { continue };
            let authenticated = node.authentication.association().is_some();
            if authenticated {
                let replay = Replay { sequence: entry.sequence, timestamp: entry.timestamp };
                self.replay.insert(entry.home_address, replay);
            }
            let Some(registration) = entry.registration else { continue };
            let lifetime = Duration::from_secs(registration.lifetime_s).min(self.config.max_lifetime);
            let left = |until: WallTime, most: Duration| {
                Duration::from_nanos(until.as_unix_nanos().saturating_sub(wall.as_unix_nanos())).min(most)
            };
            let remaining = left(registration.expires, lifetime);
            let care_of_address = registration.care_of_address;
            let permitted =
                registration.prefixes.iter().all(|p| node.prefixes.iter().any(|own| own.contains(p)))
                    && is_acceptable(&self.config, &self.cache, entry.home_address, care_of_address);
            if remaining.is_zero() || !permitted {
                continue;
            }
            let previous_care_of_address = registration
                .previous
                .map(|(previous, until)| (previous, now + left(until, OLD_PATH_GRACE)))
                .filter(|(_, until)| *until > now);
            if let Some((_, until)) = previous_care_of_address {
                self.timers.set(Timer::Grace(entry.home_address), until);
            }
            self.cache.insert(Binding {
                home_address: entry.home_address,
                care_of_address,
                previous_care_of_address,
                mobile_router: registration.mobile_router,
                link_local: registration.link_local,
                prefixes: registration.prefixes,
                sequence: entry.sequence.unwrap_or(0),
                lifetime,
                expires: now + remaining,
                state: BindingState::Valid,
            });
            self.timers.set(Timer::Expire(entry.home_address), now + remaining);
            self.outputs.push_back(Output::Forwarding(entry.home_address));
            self.announce(now, entry.home_address);
        }
    }

    fn binding_update(
        &mut self,
        now: Time,
        wall: WallTime,
        request: Request,
        update: &BindingUpdate<'_>,
        octets: &[u8],
    ) -> Result<(), MobilityDrop> {
        let home_address = request.home_address;
        let Some(node) = self.nodes.get(&home_address) else {
            // RFC 6275 10.3.1: not on the home link is answered with 132; a home address that could be
            // served but was given to nobody is met with silence.
            if update.flags.home_registration && !self.serves(home_address) && self.strangers.allow(now) {
                let sequence = request.sequence;
                let timestamp = request.timestamp;
                self.acknowledge(&request, Status::NOT_HOME_SUBNET, sequence, Duration::ZERO, timestamp);
                return Err(MobilityDrop::Refused);
            }
            return Err(MobilityDrop::Unauthorized);
        };
        let replay = self.replay.get(&home_address).copied().unwrap_or_default();
        match judge(&self.config, node, &replay, &self.cache, wall, &request, octets) {
            Verdict::Ignore(reason) => Err(reason),
            Verdict::Reject { status, reason, sequence, timestamp } => {
                let limits = self.limits.entry(home_address).or_default();
                let allowed = if reason == MobilityDrop::AuthenticationFailed {
                    if request.source != request.care_of_address {
                        return Err(reason);
                    }
                    limits.unauthentic.allow(now)
                } else if node.authentication.association().is_some() {
                    limits.refused.allow(now)
                } else {
                    self.strangers.allow(now)
                };
                if !allowed {
                    return Err(MobilityDrop::RateLimited);
                }
                self.outputs.push_back(Output::Event(Event::BindingRefused {
                    home_address,
                    care_of_address: request.care_of_address,
                    status: status.0,
                    reason: status.meaning().into(),
                }));
                self.acknowledge(&request, status, sequence, Duration::ZERO, timestamp);
                Err(reason)
            }
            Verdict::Deregister => {
                self.remember(&request);
                self.deregister(now, &request);
                Ok(())
            }
            Verdict::Register { prefixes, lifetime } => {
                self.remember(&request);
                self.register(now, request, prefixes, lifetime);
                Ok(())
            }
        }
    }

    /// Keeps what holds off replays, for nodes that have a key.
    fn remember(&mut self, request: &Request) {
        let authenticated =
            self.nodes.get(&request.home_address).is_some_and(|n| n.authentication.association().is_some());
        if authenticated {
            let replay = self.replay.entry(request.home_address).or_default();
            replay.sequence = Some(request.sequence);
            replay.timestamp = request.timestamp.or(replay.timestamp);
        }
    }

    fn register(&mut self, now: Time, request: Request, prefixes: Vec<Ipv6Net>, lifetime: Duration) {
        let home_address = request.home_address;
        let lifetime = crate::lifetime_from_units(lifetime_units(lifetime));
        let known = self.cache.valid(home_address).is_some();
        // A link that has only just come up is probed like any other; the probe needs no address of ours.
        let tested = known || self.home_link.as_ref().is_none_or(|link| !link.is_running());
        let request = Request {
            prefixes: prefixes.iter().map(|p| (p.network(), p.prefix_len())).collect(),
            lifetime,
            ..request
        };
        if tested {
            self.commit(now, &request);
            self.acknowledge_registration(&request);
            if !known {
                self.announce(now, home_address);
            }
            return;
        }
        // RFC 6275 10.3.1: duplicate address detection before the first acknowledgement, never on a refresh.
        let binding = self.new_binding(now, &request, BindingState::Testing);
        let targets = [Some(home_address), binding.link_local_address()];
        self.cache.insert(binding);
        let first = self.testing.insert(home_address, request).is_none();
        if first {
            self.timers.set(Timer::Dad(home_address), now + DAD_WAIT);
            self.timers.stop(Timer::Forget(home_address));
            if let Some(link) = &self.home_link {
                for target in targets.into_iter().flatten() {
                    self.outputs.extend(link.probe(target).map(Output::Link));
                }
            }
        }
    }

    fn new_binding(&self, now: Time, request: &Request, state: BindingState) -> Binding {
        Binding {
            home_address: request.home_address,
            care_of_address: request.care_of_address,
            previous_care_of_address: None,
            mobile_router: request.mobile_router,
            link_local: request.link_local,
            prefixes: request
                .prefixes
                .iter()
                .filter_map(|&(address, length)| Ipv6Net::new(address, length).ok())
                .collect(),
            sequence: request.sequence,
            lifetime: request.lifetime,
            expires: now + request.lifetime,
            state,
        }
    }

    /// Makes an accepted request the binding.
    fn commit(&mut self, now: Time, request: &Request) {
        let home_address = request.home_address;
        let mut binding = self.new_binding(now, request, BindingState::Valid);
        let change = match self.cache.valid(home_address) {
            None => "created",
            Some(old) => {
                let moved = old.care_of_address != binding.care_of_address;
                binding.previous_care_of_address = if moved {
                    self.timers.set(Timer::Grace(home_address), now + OLD_PATH_GRACE);
                    Some((old.care_of_address, now + OLD_PATH_GRACE))
                } else {
                    old.previous_care_of_address
                };
                if moved { "moved" } else { "refreshed" }
            }
        };
        let event = Event::Binding {
            home_address,
            care_of_address: binding.care_of_address,
            prefixes: binding.prefixes.clone(),
            lifetime_s: u32::try_from(binding.lifetime.as_secs()).unwrap_or(u32::MAX),
            change: change.into(),
        };
        self.timers.stop(Timer::Forget(home_address));
        self.timers.set(Timer::Expire(home_address), binding.expires);
        self.cache.insert(binding);
        self.outputs.push_back(Output::Forwarding(home_address));
        self.outputs.push_back(Output::Persist);
        self.outputs.push_back(Output::Event(event));
    }

    fn deregister(&mut self, now: Time, request: &Request) {
        let home_address = request.home_address;
        // A first registration that is still being tested ends here as well: nothing came of it yet.
        let tested = self.testing.remove(&home_address).is_none();
        self.timers.stop(Timer::Dad(home_address));
        if let Some(binding) = self.cache.get_mut(home_address) {
            binding.state = BindingState::Deleted;
            binding.sequence = request.sequence;
            // Packets that are on their way are still let through, so that coming home loses none.
            binding.previous_care_of_address =
                tested.then_some((binding.care_of_address, now + OLD_PATH_GRACE));
        }
        self.announcements.remove(&home_address);
        self.timers.stop(Timer::Announce(home_address));
        self.timers.stop(Timer::Expire(home_address));
        self.timers.set(Timer::Grace(home_address), now + OLD_PATH_GRACE);
        self.timers.set(Timer::Forget(home_address), now + MAX_DELETE_BCE_TIMEOUT);
        self.outputs.push_back(Output::Forwarding(home_address));
        self.outputs.push_back(Output::Persist);
        if tested {
            self.outputs.push_back(Output::Event(Event::BindingRemoved {
                home_address,
                reason: "the node de-registered".into(),
            }));
        }
        self.acknowledge(request, Status::ACCEPTED, request.sequence, Duration::ZERO, request.timestamp);
    }
}
