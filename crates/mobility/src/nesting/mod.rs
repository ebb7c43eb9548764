//! Mobile routers behind mobile routers without the way through every home agent.
//!
//! Plain NEMO wraps the packets of a router once more for each router before it, and each wrapping leads
//! through the home agent of that router (RFC 4888 2.1, 2.3, 2.6). Here a nested router has a care-of address
//! on the link that the *root* visits, the first router of the tree, and registers that one with its own home
//! agent. Its packets leave the tree unwrapped by others and reach it so: one header of 40 octets and one
//! home agent, at every level.
//!
//! The scheme is that of Neighbor Discovery proxies (Jeong and others, "ND-Proxy based Route Optimization for
//! Mobile Nodes in Mobile Network", draft-jeong-nemo-ro-ndproxy; RFC 4889 5.5.3), with today's standards for
//! its two parts:
//!
//! * **Registration**, RFC 8505. A router tells those behind it in its Router Advertisements which networks
//!   they may have addresses of ([`NestingInformation`]). A router behind it takes an address and registers
//!   it by a Neighbor Solicitation with the Extended Address Registration option; each router on the way
//!   registers it with the next one. Of two registrations of one owner the later counts, so that a router may
//!   move inside the tree.
//! * **Standing in for it**, RFC 8929. The root looks whether the address is free on the visited link,
//!   answers solicitations for it there, and each router has a route to it, by way of the child that has
//!   registered it. Packets from it leave by the uplink that it belongs to.
//!
//! Why this and no reverse routing header (draft-thubert-nemo-reverse-routing-header): that one grows by 16
//! octets for each level, needs every home agent to take part, and a routing header that is dropped on the
//! way as the one of type 0 is (RFC 5095). Here nothing outside the tree knows of it: not the home agents,
//! not the networks between. The care-of address is one like any other, bound by the authenticated Binding
//! Update as any other; no packet says by which way it is to go. A router sends what is for an address to the
//! one that registered it, inside of its own network, and nowhere else; nothing is copied, and each hop
//! counts. The price is the one that RFC 4889 5.5.3 names: when the root moves, every router behind it
//! registers anew, and the visited link sees some more addresses of one station.
//!
//! **Fallback.** The address of the parent's own network is there all the time and is plain NEMO. It carries
//! the traffic until the home agent has acknowledged the direct address, and again when it does not answer
//! there: a link may allow its stations one address, a parent may know nothing of all this, and an uplink
//! without IPv6, or with a prefix of another length than 64, has nothing to offer.
//!
//! **What it protects against.** Registrations are believed from the own links only (hop limit 255) and only
//! for what is offered there; who registers gets a way for tunnels and nothing else (the data path passes
//! protocols 41, 44, 58 and 135 from and to exactly these addresses), so that no host on board leaves by the
//! uplink with ordinary packets, nor is it reached by them. An address belongs to who has registered it
//! first; there are [`MAX_REGISTRATIONS`] of them, [`MAX_OF_ONE`] for one sender that the operator has named,
//! [`MAX_OF_UNKNOWN`] for all others together, and they end when they are not renewed. Who is on the mobile
//! network and hears the owner's verifier can take an address over, as with Neighbor Discovery everywhere.
//!
//! This module joins its parts: `ways` knows what is offered, `registering` what becomes of an address,
//! `children` what routers behind this one ask for, `standing_in` what the visited link is told.
//!
//! Rings are not this module's business but `mobile_router::parent`'s, which refuses them before there is
//! anything to register.
//!
//! Left out: answers over more than one link at a time for one address, withdrawal at a shutdown (what is not
//! renewed ends by itself), the link of a router that is at home, and IPv6 over GeoNetworking as the visited
//! link, where addresses are made of those of stations.

mod allowance;
mod children;
mod drop_reason;
mod entry;
mod registering;
mod standing_in;
mod ways;

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv6Addr;

use carnet_base::{Interface, LinkMessage, Rng, SmallMap, Time};
use carnet_wire::nd::nesting::MAX_PREFIXES;
use carnet_wire::nd::{AddressRegistration, NestingInformation};
use ipnet::Ipv6Net;

use allowance::{Allowances, Sender};
pub use drop_reason::NestingDrop;
use entry::{Child, Entry};
use ways::{Way, network};

use crate::home_agent::home_link::{Heard, HomeLink};
use crate::mobile_router::{Attachment, MobileRouter};

/// Addresses of routers behind this one that are kept.
pub const MAX_REGISTRATIONS: usize = 64;
/// Those of them that one sender registers, for itself and for what is behind it.
pub const MAX_OF_ONE: usize = 16;
/// Those that all senders together register whom the operator has not named: link-layer addresses can be made
/// up, so that a bound for each of them would bound nothing. Enough for two routers, one behind the other,
/// that move between two uplinks.
pub const MAX_OF_UNKNOWN: usize = 8;
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
    /// Link-layer addresses of the routers on board that are known.
    pub known: Vec<[u8; 6]>,
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

/// See the module documentation.
#[derive(Debug)]
pub struct Nesting {
    config: NestingConfig,
    /// Interfaces of both sides.
    links: SmallMap<String, HomeLink>,
    /// The preferred one first.
    ways: Vec<Way>,
    entries: BTreeMap<Ipv6Addr, Box<Entry>>,
    /// Own addresses that are no longer registered but may still be sent to: interface, address, until when.
    leaving: Vec<(String, Ipv6Addr, Time)>,
    /// No own address is asked for before then.
    asks_again: Time,
    owner: u64,
    transaction: u8,
    allowances: Allowances,
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
            links: SmallMap::new(),
            ways: Vec::new(),
            entries: BTreeMap::new(),
            leaving: Vec::new(),
            asks_again: Time::ZERO,
            owner,
            transaction: FIRST_TRANSACTION,
            allowances: Allowances::default(),
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
        let entries = self.entries.values().filter_map(|entry| entry.due());
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

    /// The addresses that this router has on its uplinks: interface, address, and whether it may be used as a
    /// care-of address. The preferred ones come first.
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
        let name = &interface.name;
        let link = self.links.get_or_insert_with(name.clone(), || HomeLink::new(name.clone(), None));
        link.handle_interface(interface);
    }

    /// An interface has vanished.
    pub fn handle_interface_gone(&mut self, name: &str) {
        self.links.remove(name);
    }

    /// Takes over how the mobile router is attached; `unsuitable` are interfaces that cannot be visited
    /// links.
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
                } else {
                    let sender = Sender::of(message);
                    let is_known = self.places_of(&sender) > 0;
                    if self.allowances.allow(now, sender.clone(), is_known) {
                        let lan = message.interface.clone();
                        let child = Child { lan, gateway: source, sender, peer, expires: now };
                        self.asked(now, target, registration, child, router)
                    } else {
                        Err(NestingDrop::RateLimited)
                    }
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
}

fn is_down(router: &MobileRouter, uplink: usize) -> bool {
    router.uplinks().get(uplink).is_none_or(|uplink| matches!(uplink.attachment, Attachment::Down(_)))
}
