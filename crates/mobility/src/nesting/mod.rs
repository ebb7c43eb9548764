//! Mobile routers behind mobile routers without the way through every home agent.
//!
//! Plain NEMO wraps the packets of a router once more for each router before it, and each wrapping leads through the
//! home agent of that router (RFC 4888 2.1, 2.3, 2.6). Here a nested router has a care-of address on the link that the
//! *root* visits, the first router of the tree, and registers that one with its own home agent. Its packets leave the tree
//! unwrapped by others and reach it so: one header of 40 octets and one home agent, at every level.
//!
//! The scheme is that of Neighbor Discovery proxies (Jeong and others, "ND-Proxy based Route Optimization for Mobile
//! Nodes in Mobile Network", draft-jeong-nemo-ro-ndproxy; RFC 4889 5.6), with today's standards for its two parts:
//!
//! * **Registration**, RFC 8505. A router tells those behind it in its Router Advertisements which networks they may have
//!   addresses of ([`NestingInformation`]). A router behind it takes an address and registers it by a Neighbor
//!   Solicitation with the Extended Address Registration option; each router on the way registers it with the next one.
//!   Of two registrations of one owner the later counts, so that a router may move inside the tree.
//! * **Standing in for it**, RFC 8929. The root looks whether the address is free on the visited link, answers
//!   solicitations for it there, and each router has a route to it, by way of the child that has registered it. Packets
//!   from it leave by the uplink that it belongs to.
//!
//! Why this and no reverse routing header (draft-thubert-nemo-reverse-routing-header): that one grows by 16 octets for
//! each level, needs every home agent to take part, and a routing header that is dropped on the way as the one of type 0
//! is (RFC 5095). Here nothing outside the tree knows of it: not the home agents, not the networks between. The care-of
//! address is one like any other, bound by the authenticated Binding Update as any other; no packet says by which way
//! it is to go. A router sends what is for an address to the one that registered it, inside of its own network, and
//! nowhere else; nothing is copied, and each hop counts. The price is RFC 4889 5.6's as well: when the root moves, every router
//! behind it registers anew, and the visited link sees some more addresses of one station.
//!
//! **Fallback.** The address of the parent's own network is there all the time and is plain NEMO. It carries the traffic
//! until the home agent has acknowledged the direct address, and again when it does not answer there: a link may allow
//! its stations one address, a parent may know nothing of all this, and an uplink without IPv6, or with a prefix of another
//! length than 64, has nothing to offer.
//!
//! **What it protects against.** Registrations are believed from the own links only (hop limit 255) and only for what is
//! offered there; who registers gets a way for tunnels and nothing else (the data path passes protocols 41, 44, 58 and 135
//! from exactly these addresses), so that no host on board leaves by the uplink with ordinary packets. An address belongs to
//! who has registered it first; there are [`MAX_REGISTRATIONS`] of them, and they end when they are not renewed. Who is on the
//! mobile network and hears the owner's verifier can take an address over, as with Neighbor Discovery everywhere.
//!
//! Rings are not this module's business but `mobile_router::parent`'s, which refuses them before there is anything to
//! register.
//!
//! Left out: answers over more than one link at a time for one address, withdrawal at a shutdown (what is not renewed ends
//! by itself), the link of a router that is at home, and IPv6 over GeoNetworking as the visited link, where addresses
//! are made of those of stations.

mod drop_reason;
mod entry;

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Interface, LinkMessage, RateLimiter, Rng, Time};
use carnet_wire::ipv6::is_unicast_routable;
use carnet_wire::nd::nesting::MAX_PREFIXES;
use carnet_wire::nd::registration::{is_later_transaction, next_transaction, status};
use carnet_wire::nd::{self, AddressRegistration, NestingInformation};
use ipnet::Ipv6Net;

pub use drop_reason::NestingDrop;
use entry::{Child, Entry, FIRST_RETRY, LIFETIME, MAX_LIFETIME, MAX_TRIES, RENEWAL, State};

use crate::OLD_PATH_GRACE;
use crate::home_agent::home_link::{Heard, HomeLink};
use crate::mobile_router::{Attachment, MobileRouter};

/// Addresses of routers behind this one that are kept.
pub const MAX_REGISTRATIONS: usize = 16;
/// Networks of which this router has an address of its own by way of one parent: the one in use and the next.
const MAX_OWN: usize = 2;
/// How long duplicate address detection listens (RFC 4862 5.4, RFC 4861 10).
const DAD_WAIT: Duration = Duration::from_secs(1);
/// Until a parent that did not answer, or refused, is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// RFC 8505 5.2: where the numbers of a start begin.
const FIRST_TRANSACTION: u8 = 240;

/// What the operator says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NestingConfig {
    /// Home address of this router.
    pub home_address: Ipv6Addr,
    /// Its home prefix.
    pub home_prefix: Ipv6Net,
    /// Its mobile network prefixes.
    pub prefixes: Vec<Ipv6Net>,
    /// Interfaces of the mobile network.
    pub lan: Vec<String>,
    /// Whether direct addresses are offered to others, and taken where others offer them.
    pub direct: bool,
}

/// The way to a router behind this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Its address on the visited link.
    pub address: Ipv6Addr,
    /// The uplink that the address belongs to.
    pub uplink: String,
    /// The interface of the mobile network,
    pub lan: String,
    /// and the link-local address there by way of which it is reached.
    pub gateway: Ipv6Addr,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// A message of Neighbor Discovery.
    Link(LinkMessage),
    /// Routes or addresses are others now.
    Forwarding,
}

/// A network of which addresses are to be had, by way of an uplink.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Way {
    network: Ipv6Addr,
    interface: String,
    /// The router that takes registrations; where there is none the uplink's link is the visited one.
    parent: Option<(Ipv6Addr, Option<[u8; 6]>)>,
}

impl Way {
    fn over(&self) -> (String, Option<Ipv6Addr>) {
        (self.interface.clone(), self.parent.map(|(router, _)| router))
    }
}

/// See the module documentation.
#[derive(Debug)]
pub struct Nesting {
    config: NestingConfig,
    /// Interfaces of both sides.
    links: BTreeMap<String, HomeLink>,
    /// The preferred one first.
    ways: Vec<Way>,
    entries: BTreeMap<Ipv6Addr, Entry>,
    /// Own addresses that are no longer registered but may still be sent to: interface, address, until when.
    leaving: Vec<(String, Ipv6Addr, Time)>,
    /// No own address is asked for before then.
    asks_again: Time,
    owner: u64,
    transaction: u8,
    limiter: RateLimiter,
    rng: Rng,
    outputs: VecDeque<Output>,
    dropped: BTreeMap<NestingDrop, u64>,
    registered: u64,
}

impl Nesting {
    /// One that knows of no links yet.
    pub fn new(config: NestingConfig, mut rng: Rng) -> Nesting {
        let owner = rng.u64();
        Nesting {
            config,
            links: BTreeMap::new(),
            ways: Vec::new(),
            entries: BTreeMap::new(),
            leaving: Vec::new(),
            asks_again: Time::ZERO,
            owner,
            transaction: FIRST_TRANSACTION,
            limiter: RateLimiter::new(50, Duration::from_millis(20)),
            rng,
            outputs: VecDeque::new(),
            dropped: BTreeMap::new(),
            registered: 0,
        }
    }

    /// Its configuration.
    pub fn config(&self) -> &NestingConfig {
        &self.config
    }

    /// The next thing to be done. To be called until it returns `None` after every `handle_*`.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let entries = self.entries.values().filter_map(Entry::due);
        let leaving = self.leaving.iter().map(|(_, _, until)| *until);
        let wants = self.offered().any(|way| !self.has_own(way));
        entries.chain(leaving).chain(wants.then_some(self.asks_again)).min()
    }

    /// Messages that had no effect, by reason.
    pub fn dropped(&self) -> &BTreeMap<NestingDrop, u64> {
        &self.dropped
    }

    /// Addresses of routers behind this one that came into use.
    pub fn registered(&self) -> u64 {
        self.registered
    }

    /// The ways to the routers behind this one.
    pub fn routes(&self) -> impl Iterator<Item = Route> {
        self.entries.iter().filter(|(_, entry)| entry.is_valid()).filter_map(|(address, entry)| {
            let child = entry.child.as_ref()?;
            Some(Route {
                address: *address,
                uplink: entry.over.0.clone(),
                lan: child.lan.clone(),
                gateway: child.gateway,
            })
        })
    }

    /// The addresses that this router has on its uplinks: interface, address, and whether it may be used as a care-of
    /// address. The preferred ones come first.
    pub fn addresses(&self) -> Vec<(String, Ipv6Addr, bool)> {
        let of = |way: &Way| {
            let own = self.own(way).filter(|(_, entry)| entry.held);
            own.map(|(address, entry)| (entry.over.0.clone(), address, entry.is_valid()))
        };
        let leaving = self.leaving.iter().map(|(interface, address, _)| (interface.clone(), *address, false));
        self.ways.iter().filter_map(of).chain(leaving).collect()
    }

    /// What Router Advertisements tell those behind this router.
    pub fn offer(&self, router: &MobileRouter) -> NestingInformation {
        let attached = |index: &usize| !is_down(router, *index);
        let first = (0..router.uplinks().len()).find(attached);
        let before = router.active_uplink().or(first).and_then(|index| router.uplinks().get(index)?.parent());
        let before = before.map(|parent| parent.information.path.as_slice()).unwrap_or_default();
        let mut prefixes: Vec<Ipv6Addr> = Vec::new();
        for way in self.ways.iter().filter(|_| self.config.direct) {
            if prefixes.len() < MAX_PREFIXES && !prefixes.contains(&way.network) {
                prefixes.push(way.network);
            }
        }
        NestingInformation {
            grounded: first.is_some(),
            prefixes,
            path: [&[self.config.home_address], before].concat(),
        }
    }

    /// Takes over the state of an interface, of either side.
    pub fn handle_interface(&mut self, interface: &Interface) {
        let link = self.links.entry(interface.name.clone());
        link.or_insert_with(|| HomeLink::new(interface.name.clone())).handle_interface(interface);
    }

    /// An interface has vanished.
    pub fn handle_interface_gone(&mut self, name: &str) {
        self.links.remove(name);
    }

    /// Takes over how the mobile router is attached; `unsuitable` are interfaces that cannot be visited links.
    pub fn handle_attachments(&mut self, now: Time, router: &MobileRouter, unsuitable: &[String]) {
        let ways = if self.config.direct { self.ways_of(router, unsuitable) } else { Vec::new() };
        if ways != self.ways {
            self.ways = ways;
            let addresses: Vec<Ipv6Addr> = self.entries.keys().copied().collect();
            for address in addresses {
                let Some(entry) = self.entries.get(&address) else { continue };
                // What is registered by a way stays there as long as it leads anywhere.
                if self.ways.iter().any(|way| way.network == network(address) && way.over() == entry.over) {
                    continue;
                }
                // A child's address may be had by another way; of its own a router has one by each.
                match self.way_of(address).filter(|_| entry.child.is_some()).cloned() {
                    Some(way) => self.begin(now, address, &way),
                    None => self.end(now, address),
                }
            }
            self.outputs.push_back(Output::Forwarding);
        }
        self.want_own(now);
    }

    /// Handles an ICMPv6 message heard on a link of either side.
    ///
    /// # Errors
    /// Why it had no effect.
    pub fn handle_link_message(
        &mut self,
        now: Time,
        message: &LinkMessage,
        router: &MobileRouter,
    ) -> Result<(), NestingDrop> {
        if !self.config.direct || !self.links.contains_key(&message.interface) {
            return Ok(());
        }
        let heard = match HomeLink::read(message) {
            Ok(Heard::Other) => return Ok(()),
            // Whatever else is wrong with it: it is nobody's word.
            Err(_) => return self.count(NestingDrop::NeighborDiscovery),
            Ok(heard) => heard,
        };
        let registration = AddressRegistration::of(&message.message);
        let on_board = self.config.lan.contains(&message.interface);
        let result = match (heard, registration) {
            (Heard::Solicitation { target, source, peer }, Some(registration)) if on_board => {
                if !source.is_unicast_link_local() {
                    Err(NestingDrop::NeighborDiscovery)
                } else if !self.limiter.allow(now) {
                    Err(NestingDrop::RateLimited)
                } else {
                    let child = Child { lan: message.interface.clone(), gateway: source, peer, expires: now };
                    self.asked(now, target, registration, child, router)
                }
            }
            (Heard::Advertisement { target }, Some(registration)) if !on_board => {
                self.answered(now, message, target, registration)
            }
            (Heard::Solicitation { target, source, peer }, _) if !on_board => {
                self.solicited(now, &message.interface, target, source, peer);
                Ok(())
            }
            (Heard::Advertisement { target }, _) if !on_board => {
                self.claimed(now, &message.interface, target);
                Ok(())
            }
            _ => Ok(()),
        };
        match result {
            Ok(()) => Ok(()),
            Err(reason) => self.count(reason),
        }
    }

    /// Serves what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        let due: Vec<Ipv6Addr> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.due().is_some_and(|at| at <= now))
            .map(|(address, _)| *address)
            .collect();
        for address in due {
            self.serve(now, address);
        }
        let before = self.leaving.len();
        self.leaving.retain(|(_, _, until)| *until > now);
        if self.leaving.len() != before {
            self.outputs.push_back(Output::Forwarding);
        }
        self.want_own(now);
    }

    fn count(&mut self, reason: NestingDrop) -> Result<(), NestingDrop> {
        *self.dropped.entry(reason).or_default() += 1;
        Err(reason)
    }

    fn ways_of(&self, router: &MobileRouter, unsuitable: &[String]) -> Vec<Way> {
        let mut order: Vec<usize> = (0..router.uplinks().len()).collect();
        order.sort_by_key(|index| (router.active_uplink() != Some(*index), *index));
        let mut ways: Vec<Way> = Vec::new();
        for index in order {
            let Some(uplink) = router.uplinks().get(index) else { continue };
            let Attachment::Foreign { ipv6: Some((_, gateway)), .. } = uplink.attachment else { continue };
            let interface = &uplink.config.interface;
            if unsuitable.contains(interface) {
                continue;
            }
            let offered = uplink.parent().filter(|parent| !parent.information.prefixes.is_empty());
            let found: Vec<(Ipv6Addr, _)> = match offered {
                Some(parent) => {
                    // The kernel's word for the next hop, the parent's for its link-layer address.
                    let router = if gateway.is_unspecified() { parent.router } else { gateway };
                    let parent_is = Some((router, parent.link_address));
                    {
                        let offered = parent.information.prefixes.iter().take(MAX_PREFIXES);
                        offered.map(|network| (*network, parent_is)).collect()
                    }
                }
                None => uplink.link_network().map(|network| (network, None)).into_iter().collect(),
            };
            for (network, parent) in found.into_iter().filter(|(network, _)| self.is_suitable(*network)) {
                let way = Way { network, interface: interface.clone(), parent };
                if ways.iter().all(|other| (other.network, other.over()) != (network, way.over())) {
                    ways.push(way);
                }
            }
        }
        ways
    }

    /// Whether addresses of a network may be care-of addresses: none of what is ours, nor of the home link.
    fn is_suitable(&self, network: Ipv6Addr) -> bool {
        let touches = |prefix: &Ipv6Net| {
            prefix.contains(&network) || network_of(network).is_some_and(|it| it.contains(&prefix.network()))
        };
        is_unicast_routable(network)
            && !self.config.prefixes.iter().any(touches)
            && !touches(&self.config.home_prefix)
    }

    fn way_of(&self, address: Ipv6Addr) -> Option<&Way> {
        self.ways.iter().find(|way| way.network == network(address))
    }

    fn has_own(&self, way: &Way) -> bool {
        self.own(way).is_some()
    }

    /// The own address by this way.
    fn own(&self, way: &Way) -> Option<(Ipv6Addr, &Entry)> {
        let found = self.entries.iter().find(|(address, entry)| {
            entry.child.is_none() && network(**address) == way.network && entry.over == way.over()
        });
        found.map(|(address, entry)| (*address, entry))
    }

    /// The ways by which this router wants an address.
    fn offered(&self) -> impl Iterator<Item = &Way> {
        let offered = self.ways.iter().filter(|way| way.parent.is_some());
        offered.filter(|way| {
            let before = self.ways.iter().take_while(|other| other != way);
            before.filter(|other| other.over() == way.over()).count() < MAX_OWN
        })
    }

    /// Asks for addresses of the networks that others offer, the preferred ones.
    fn want_own(&mut self, now: Time) {
        if now < self.asks_again {
            return;
        }
        let missing: Vec<Way> = self.offered().filter(|way| !self.has_own(way)).cloned().collect();
        for way in missing {
            let address = Ipv6Addr::from(u128::from(way.network) | u128::from(identifier(&mut self.rng)));
            let entry = Entry {
                owner: self.owner,
                transaction: self.transaction,
                child: None,
                over: way.over(),
                state: State::Testing(now),
                held: false,
            };
            self.entries.insert(address, entry);
            self.begin(now, address, &way);
        }
    }

    /// Sets out to make an address usable by a way: by a test of the link, or by asking the parent.
    fn begin(&mut self, now: Time, address: Ipv6Addr, way: &Way) {
        let Some(entry) = self.entries.get_mut(&address) else { return };
        entry.over = way.over();
        if way.parent.is_some() {
            if entry.child.is_none() {
                self.transaction = next_transaction(self.transaction);
                entry.transaction = self.transaction;
            }
            entry.state = State::Asking { next: now, tries: 0 };
            self.serve(now, address);
            return;
        }
        let link = self.links.get(&way.interface);
        match link.and_then(|link| link.link_address.and(link.probe(address))) {
            Some(probe) => {
                entry.state = State::Testing(now + DAD_WAIT);
                self.outputs.push_back(Output::Link(probe));
            }
            // A link of two ends: nobody else is there.
            None => self.is_valid_now(now, address),
        }
    }

    /// Does what is due for an address.
    fn serve(&mut self, now: Time, address: Ipv6Addr) {
        let Some(entry) = self.entries.get_mut(&address) else { return };
        if entry.child.as_ref().is_some_and(|child| child.expires <= now) {
            return self.end(now, address);
        }
        match &mut entry.state {
            State::Testing(until) if *until <= now => self.is_valid_now(now, address),
            State::Asking { next, tries } if *next <= now => {
                if *tries >= MAX_TRIES {
                    self.asks_again = now + ASK_AGAIN;
                    return self.end(now, address);
                }
                *next = now + FIRST_RETRY * 2_u32.pow(*tries);
                *tries += 1;
                self.ask(address, LIFETIME);
            }
            State::Valid { renew: Some(renew), tries } if *renew <= now => {
                if *tries >= MAX_TRIES {
                    self.asks_again = now + ASK_AGAIN;
                    return self.end(now, address);
                }
                *renew = now + FIRST_RETRY * 2_u32.pow(*tries);
                *tries += 1;
                if entry.child.is_none() {
                    self.transaction = next_transaction(self.transaction);
                    entry.transaction = self.transaction;
                }
                self.ask(address, LIFETIME);
            }
            _ => {}
        }
    }

    /// Asks the parent to register an address, or to forget it (RFC 8505 5).
    fn ask(&mut self, address: Ipv6Addr, lifetime: u16) {
        let Some(entry) = self.entries.get(&address) else { return };
        let Some(link) = self.links.get(&entry.over.0) else { return };
        let Some((source, parent)) = link.link_local.zip(entry.over.1) else { return };
        let solicitation =
            nd::NeighborSolicitation { target: address, source_link_address: link.link_address };
        let mut message = solicitation.emit();
        let registration = AddressRegistration {
            status: status::SUCCESS,
            transaction: entry.transaction,
            lifetime,
            owner: entry.owner,
        };
        registration.emit_into(&mut message);
        let known = self.ways.iter().find_map(|way| way.parent.filter(|(router, _)| *router == parent));
        let peer = known.and_then(|(_, peer)| peer);
        self.outputs.extend(link.message(source, parent, peer, message).map(Output::Link));
    }

    /// Answers a child (RFC 8505 5.1).
    fn answer(&mut self, address: Ipv6Addr, child: &Child, registration: AddressRegistration) {
        let Some(link) = self.links.get(&child.lan) else { return };
        let Some(source) = link.link_local else { return };
        let advertisement = nd::NeighborAdvertisement {
            target: address,
            router: true,
            solicited: true,
            override_: false,
            target_link_address: link.link_address,
        };
        let mut message = advertisement.emit();
        registration.emit_into(&mut message);
        self.outputs.extend(link.message(source, child.gateway, child.peer, message).map(Output::Link));
    }

    fn tell_child(&mut self, now: Time, address: Ipv6Addr, status: u8) {
        let Some(entry) = self.entries.get(&address) else { return };
        let Some(child) = entry.child.clone() else { return };
        let left = child.expires.saturating_since(now).as_secs().div_ceil(60);
        let registration = AddressRegistration {
            status,
            transaction: entry.transaction,
            lifetime: u16::try_from(left).unwrap_or(MAX_LIFETIME),
            owner: entry.owner,
        };
        self.answer(address, &child, registration);
    }

    /// An address can be used from now on.
    fn is_valid_now(&mut self, now: Time, address: Ipv6Addr) {
        let Some(entry) = self.entries.get_mut(&address) else { return };
        let was = entry.held && entry.is_valid();
        let renew = entry.over.1.is_some().then_some(now + RENEWAL);
        entry.state = State::Valid { renew, tries: 0 };
        entry.held = true;
        if was {
            return;
        }
        self.registered += u64::from(entry.child.is_some());
        // The route is there before the child hears of it.
        self.outputs.push_back(Output::Forwarding);
        if entry.over.1.is_none()
            && let Some(link) = self.links.get(&entry.over.0)
        {
            self.outputs.extend(link.announcement(address, false).map(Output::Link));
        }
        self.tell_child(now, address, status::SUCCESS);
    }

    /// An address is no longer to be used; the parent forgets it.
    fn end(&mut self, now: Time, address: Ipv6Addr) {
        if self.entries.get(&address).is_some_and(|entry| entry.held && entry.over.1.is_some()) {
            self.ask(address, 0);
        }
        self.forget(now, address);
    }

    fn forget(&mut self, now: Time, address: Ipv6Addr) {
        let Some(entry) = self.entries.remove(&address) else { return };
        if !entry.held {
            return;
        }
        if entry.child.is_none() {
            self.leaving.retain(|(_, leaving, _)| *leaving != address);
            self.leaving.push((entry.over.0, address, now + OLD_PATH_GRACE));
        }
        self.outputs.push_back(Output::Forwarding);
    }

    /// A router behind this one registers an address.
    fn asked(
        &mut self,
        now: Time,
        address: Ipv6Addr,
        registration: AddressRegistration,
        child: Child,
        router: &MobileRouter,
    ) -> Result<(), NestingDrop> {
        let refuse = |nesting: &mut Nesting, status, reason| {
            nesting.answer(address, &child, AddressRegistration { status, ..registration });
            Err(reason)
        };
        let Some(way) = self.way_of(address).cloned() else {
            return refuse(self, status::TOPOLOGICALLY_INCORRECT, NestingDrop::NotOffered);
        };
        // The link's router (RFC 4291 2.6.1), or ours.
        let is_ours = router.uplinks().iter().any(|uplink| uplink.has_address(address.into()));
        if is_ours || address == way.network {
            return refuse(self, status::DUPLICATE, NestingDrop::Duplicate);
        }
        let known = self.entries.get(&address);
        if known.is_some_and(|entry| entry.owner != registration.owner || entry.child.is_none()) {
            return refuse(self, status::DUPLICATE, NestingDrop::Duplicate);
        }
        let repeats = known.is_some_and(|entry| {
            entry.transaction == registration.transaction
                && entry.child.as_ref().is_some_and(|it| (&it.lan, it.gateway) == (&child.lan, child.gateway))
        });
        let later =
            known.is_none_or(|entry| is_later_transaction(registration.transaction, entry.transaction));
        if !repeats && !later {
            return refuse(self, status::MOVED, NestingDrop::Stale);
        }
        if registration.lifetime == 0 {
            if known.is_some() {
                self.end(now, address);
            }
            self.answer(address, &child, AddressRegistration { status: status::SUCCESS, ..registration });
            return Ok(());
        }
        let children = self.entries.values().filter(|entry| entry.child.is_some()).count();
        if known.is_none() && children >= MAX_REGISTRATIONS {
            return refuse(self, status::FULL, NestingDrop::TooMany);
        }
        let minutes = u64::from(registration.lifetime.min(MAX_LIFETIME));
        let child = Child { expires: now + Duration::from_secs(60 * minutes), ..child };
        match self.entries.get_mut(&address) {
            Some(entry) => {
                let before = entry.child.replace(child);
                entry.transaction = registration.transaction;
                let moved = before.zip(entry.child.as_ref()).is_some_and(|(before, after)| {
                    (&before.lan, before.gateway) != (&after.lan, after.gateway)
                });
                if let State::Valid { renew, .. } = &mut entry.state {
                    // Those before this router learn that what they had from elsewhere is older.
                    *renew = renew.map(|at| if moved { now } else { at });
                    if moved {
                        self.outputs.push_back(Output::Forwarding);
                    }
                    self.tell_child(now, address, status::SUCCESS);
                }
                self.serve(now, address);
            }
            None => {
                let entry = Entry {
                    owner: registration.owner,
                    transaction: registration.transaction,
                    child: Some(child),
                    over: way.over(),
                    state: State::Testing(now),
                    held: false,
                };
                self.entries.insert(address, entry);
                self.begin(now, address, &way);
            }
        }
        Ok(())
    }

    /// The parent has answered.
    fn answered(
        &mut self,
        now: Time,
        message: &LinkMessage,
        address: Ipv6Addr,
        registration: AddressRegistration,
    ) -> Result<(), NestingDrop> {
        let from = (message.interface.as_str(), Some(message.source));
        let known = self.entries.get(&address).filter(|entry| {
            (entry.over.0.as_str(), entry.over.1) == from && entry.owner == registration.owner
        });
        let Some(entry) = known else { return Err(NestingDrop::Unexpected) };
        if registration.status == status::SUCCESS {
            // What is not later than the question answers it; 0 minutes answer the end of an older one.
            if registration.lifetime == 0 || entry.transaction != registration.transaction {
                return Err(NestingDrop::Unexpected);
            }
            self.is_valid_now(now, address);
            return Ok(());
        }
        if entry.transaction != registration.transaction && registration.status != status::REMOVED {
            return Err(NestingDrop::Unexpected);
        }
        self.tell_child(now, address, registration.status);
        let own = entry_is_own(&self.entries, address);
        self.forget(now, address);
        if own && registration.status == status::DUPLICATE {
            // With another address.
            self.asks_again = now + FIRST_RETRY;
        } else if own {
            self.asks_again = now + ASK_AGAIN;
        }
        Ok(())
    }

    /// Somebody on a visited link asks for an address, or tests one.
    fn solicited(
        &mut self,
        now: Time,
        interface: &str,
        target: Ipv6Addr,
        source: Ipv6Addr,
        peer: Option<[u8; 6]>,
    ) {
        let Some(entry) = self.entries.get(&target) else { return };
        if entry.over != (interface.to_owned(), None) {
            return;
        }
        if entry.is_valid() {
            let link = self.links.get(interface);
            let answer = link.and_then(|link| link.answer(target, false, true, source, peer));
            self.outputs.extend(answer.map(Output::Link));
        } else if source.is_unspecified() {
            self.conflict(now, target);
        }
    }

    /// Somebody on a visited link says that an address is theirs.
    fn claimed(&mut self, now: Time, interface: &str, target: Ipv6Addr) {
        let Some(entry) = self.entries.get(&target) else { return };
        if !entry.is_valid() && entry.over == (interface.to_owned(), None) {
            self.conflict(now, target);
        }
    }

    /// Duplicate address detection has found somebody.
    fn conflict(&mut self, now: Time, address: Ipv6Addr) {
        self.tell_child(now, address, status::DUPLICATE);
        self.forget(now, address);
    }
}

fn is_down(router: &MobileRouter, uplink: usize) -> bool {
    router.uplinks().get(uplink).is_none_or(|uplink| matches!(uplink.attachment, Attachment::Down(_)))
}

fn entry_is_own(entries: &BTreeMap<Ipv6Addr, Entry>, address: Ipv6Addr) -> bool {
    entries.get(&address).is_some_and(|entry| entry.child.is_none())
}

/// The first 64 bits of an address.
fn network(address: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(address) & !u128::from(u64::MAX))
}

fn network_of(network: Ipv6Addr) -> Option<Ipv6Net> {
    Ipv6Net::new(network, 64).ok()
}

/// An interface identifier without meaning (RFC 7136), none of those that are reserved (RFC 5453).
fn identifier(rng: &mut Rng) -> u64 {
    loop {
        let identifier = rng.u64();
        let reserved =
            identifier == 0 || identifier >> 8 == 0x00fd_ffff_ffff_ffff || identifier >> 32 == 0x0200_5eff;
        if !reserved {
            return identifier;
        }
    }
}
