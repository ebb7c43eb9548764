//! Mobile routers behind mobile routers, without a detour through every home agent.
//!
//! In plain NEMO each outer router encapsulates the packets of a nested router once more, and each
//! encapsulation leads through the home agent of that router (RFC 4888 2.1, 2.3, 2.6). Here a nested router
//! has a care-of address on the link that the *root* visits, the first router of the tree. It registers that
//! address with its own home agent. The outer routers forward its packets without another encapsulation, in
//! both directions: one header of 40 octets and one home agent, at every level.
//!
//! The scheme is that of Neighbor Discovery proxies (Jeong and others, "ND-Proxy based Route Optimization for
//! Mobile Nodes in Mobile Network", draft-jeong-nemo-ro-ndproxy; RFC 4889 5.5.3), with today's standards for
//! its two parts:
//!
//! * **Registration**, RFC 8505. A router's Router Advertisements list the networks of which routers behind
//!   it may have addresses ([`NestingInformation`]). A router behind it takes an address and registers it by
//!   a Neighbor Solicitation with the Extended Address Registration option; each router on the path registers
//!   it with the next one. Of two registrations of one owner the later counts, so that a router may move
//!   inside the tree.
//! * **Proxy Neighbor Discovery**, RFC 8929. The root tests whether the address is free on the visited link,
//!   and answers solicitations for it there. Each router has a route to the address by the child that has
//!   registered it. Packets from the address leave by the uplink that it belongs to.
//!
//! Why no reverse routing header (draft-thubert-nemo-reverse-routing-header): it grows by 16 octets for each
//! level and needs the support of every home agent. Networks may also drop the routing header, as they drop
//! type 0 (RFC 5095). Here nothing outside the tree is involved: neither the home agents nor the networks
//! between. The care-of address is an ordinary one, and an authenticated Binding Update binds it; no packet
//! carries its route. A router sends packets for an address only to the child that registered it, inside its
//! own network; it copies nothing, and each hop counts. The price is that of RFC 4889 5.5.3: when the root
//! moves, every router behind it registers anew, and the visited link sees several addresses of one station.
//!
//! **Fallback.** The address of the parent's own network always exists and gives plain NEMO. It carries the
//! traffic until the home agent has acknowledged the direct address, and again when the home agent does not
//! answer there. This covers a link that permits its stations one address, a parent without this protocol,
//! and an uplink that has no IPv6 or a prefix length other than 64.
//!
//! **Protection.** A router accepts registrations from its own links only (hop limit 255), and only for
//! offered networks. A registered address carries only tunnels: the data path passes protocols 41, 44, 58 and
//! 135 from and to exactly these addresses. So no host in the mobile network sends ordinary packets by the
//! uplink, nor receives them from it. An address belongs to its first registrant. There are
//! [`MAX_REGISTRATIONS`] of them, [`MAX_OF_ONE`] for one sender that the operator has named,
//! [`MAX_OF_UNKNOWN`] for all other senders together, and they end without renewal. A node in the mobile
//! network that sees the owner's verifier can take an address over, as with Neighbor Discovery everywhere.
//!
//! This module joins its parts: `ways` has the offered networks, `registering` the life of an address,
//! `children` the registrations of routers behind this one, `standing_in` the Neighbor Discovery on the
//! visited link.
//!
//! `mobile_router::parent` refuses rings before anything can be registered.
//!
//! Left out: answers over more than one link at a time for one address, withdrawal at a shutdown
//! (registrations end without renewal), the link of a router that is at home, and IPv6 over GeoNetworking as
//! the visited link, where addresses derive from those of stations.

mod allowance;
mod children;
mod drop_reason;
mod entry;
mod registering;
mod standing_in;
mod ways;

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv6Addr;

use carnet_base::{Interface, LinkMessage, Rng, Time};
use carnet_wire::nd::nesting::MAX_PREFIXES;
use carnet_wire::nd::{AddressRegistration, NestingInformation};
use ipnet::Ipv6Net;

use allowance::{Allowances, Sender};
pub use drop_reason::NestingDrop;
use entry::{Child, Entry};
use ways::{Way, network};

use crate::home_agent::home_link::{Heard, HomeLink};
use crate::mobile_router::{Attachment, MobileRouter};

/// Most addresses of routers behind this one.
pub const MAX_REGISTRATIONS: usize = 64;
/// Most addresses that one sender registers, for itself and for the routers behind it.
pub const MAX_OF_ONE: usize = 16;
/// Most addresses that all senders together register that the operator has not named. A limit for each of
/// them would limit nothing, because link-layer addresses can be made up. The number suffices for two
/// routers, one behind the other, that move between two uplinks.
pub const MAX_OF_UNKNOWN: usize = 8;
/// First transaction ID after a start (RFC 8505 5.2).
const FIRST_TRANSACTION: u8 = 240;

/// The operator's config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NestingConfig {
    /// Home address of this router.
    pub home_address: Ipv6Addr,
    /// Home prefix of this router.
    pub home_prefix: Ipv6Net,
    /// Mobile network prefixes of this router.
    pub prefixes: Vec<Ipv6Net>,
    /// Interfaces of the mobile network.
    pub lan: Vec<String>,
    /// Whether this router offers direct addresses to others, and takes those that others offer.
    pub direct: bool,
    /// Link-layer addresses of known routers in the mobile network.
    pub known: Vec<[u8; 6]>,
}

/// Route to a router behind this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Address of the router on the visited link.
    pub address: Ipv6Addr,
    /// Uplink that the address belongs to.
    pub uplink: String,
    /// Interface of the mobile network.
    pub lan: String,
    /// Link-local address of the next hop on `lan`.
    pub gateway: Ipv6Addr,
}

/// An output of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// A message of Neighbor Discovery.
    Link(LinkMessage),
    /// Routes or addresses have changed.
    Forwarding,
}

/// The machine, see the module documentation.
#[derive(Debug)]
pub struct Nesting {
    config: NestingConfig,
    /// Interfaces of uplinks and of the mobile network.
    links: BTreeMap<String, HomeLink>,
    /// Paths to addresses of visited links, the preferred one first.
    ways: Vec<Way>,
    entries: BTreeMap<Ipv6Addr, Box<Entry>>,
    /// Own addresses that are no longer registered but may still receive packets: interface, address, end
    /// time.
    leaving: Vec<(String, Ipv6Addr, Time)>,
    /// Time before which the router asks for no own address.
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
    /// A machine that knows no links yet.
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
            allowances: Allowances::default(),
            rng,
            outputs: VecDeque::new(),
            dropped: BTreeMap::new(),
            registered: 0,
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &NestingConfig {
        &self.config
    }

    /// Returns the next output. Call it until it returns `None` after every `handle_*`.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns when [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let entries = self.entries.values().filter_map(|entry| entry.due());
        let leaving = self.leaving.iter().map(|(_, _, until)| *until);
        let wants = self.offered().any(|way| !self.has_own(way));
        entries.chain(leaving).chain(wants.then_some(self.asks_again)).min()
    }

    /// Returns the number of messages that had no effect, by reason.
    pub fn dropped(&self) -> &BTreeMap<NestingDrop, u64> {
        &self.dropped
    }

    /// Returns the number of addresses of routers behind this one that came into use.
    pub fn registered(&self) -> u64 {
        self.registered
    }

    /// Returns the routes to the routers behind this one.
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

    /// Returns the addresses that this router has on its uplinks: interface, address, and whether it may be a
    /// care-of address. The preferred ones come first.
    pub fn addresses(&self) -> Vec<(String, Ipv6Addr, bool)> {
        let of = |way: &Way| {
            let own = self.own(way).filter(|(_, entry)| entry.held);
            own.map(|(address, entry)| (entry.over.0.clone(), address, entry.is_valid()))
        };
        let leaving = self.leaving.iter().map(|(interface, address, _)| (interface.clone(), *address, false));
        self.ways.iter().filter_map(of).chain(leaving).collect()
    }

    /// Returns the offer to routers behind this one, for Router Advertisements.
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

    /// Takes over the state of an interface, of an uplink or of the mobile network.
    pub fn handle_interface(&mut self, interface: &Interface) {
        let name = &interface.name;
        let link = self.links.entry(name.clone()).or_insert_with(|| HomeLink::new(name.clone(), None));
        link.handle_interface(interface);
    }

    /// Handles the removal of an interface.
    pub fn handle_interface_gone(&mut self, name: &str) {
        self.links.remove(name);
    }

    /// Takes over the attachment of the mobile router; `unsuitable` are interfaces that cannot be visited
    /// links.
    pub fn handle_attachments(&mut self, now: Time, router: &MobileRouter, unsuitable: &[String]) {
        let ways = if self.config.direct { self.ways_of(router, unsuitable) } else { Vec::new() };
        if ways != self.ways {
            self.ways = ways;
            let addresses: Vec<Ipv6Addr> = self.entries.keys().copied().collect();
            for address in addresses {
                let Some(entry) = self.entries.get(&address) else { continue };
                // An address keeps its path as long as the path exists.
                if self.ways.iter().any(|way| way.network == network(address) && way.over() == entry.over) {
                    continue;
                }
                // A child's address may change to another path; of its own a router has one address on each
                // path.
                match self.way_of(address).filter(|_| entry.child.is_some()).cloned() {
                    Some(way) => self.begin(now, address, &way),
                    None => self.end(now, address),
                }
            }
            self.outputs.push_back(Output::Forwarding);
        }
        self.want_own(now);
    }

    /// Handles an ICMPv6 message from a link of either side.
    ///
    /// # Errors
    /// Returns why the message had no effect.
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
            // The message is invalid, so it has no sender either.
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

    /// Serves the timers.
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
