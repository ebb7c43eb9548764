//! Nested mobile routers: their packets do not pass the home agents of the outer routers.
//!
//! In plain NEMO each outer router encapsulates the packets of a nested router once more. Each encapsulation
//! leads through the home agent of that router (RFC 4888 2.1, 2.3, 2.6). In this scheme a nested router has a
//! care-of address on the link that the *root* visits, the outermost router of the tree. It registers that
//! address with its own home agent. The outer routers forward its packets without another encapsulation, in
//! both directions. So at every level a packet has one additional header of 40 octets and passes one home
//! agent.
//!
//! The scheme uses Neighbor Discovery proxies (Jeong and others, "ND-Proxy based Route Optimization for
//! Mobile Nodes in Mobile Network", draft-jeong-nemo-ro-ndproxy; RFC 4889 5.5.3), with today's standards for
//! its two parts:
//!
//! * **Registration**, RFC 8505. The Router Advertisements of a router list networks in which nested routers
//!   may have addresses ([`NestingInformation`]). A nested router selects an address and registers it by a
//!   Neighbor Solicitation with the Extended Address Registration option. Each router on the path registers
//!   it with the next outer router. If two registrations of one owner differ, the later one counts, so a
//!   router may move inside the tree.
//! * **Proxy Neighbor Discovery**, RFC 8929. The root tests whether the address is free on the visited link,
//!   and answers solicitations for it there. Each router has a route for the address to the child that has
//!   registered it. Packets from the address leave by the uplink to which it belongs.
//!
//! The module does not use a reverse routing header (draft-thubert-nemo-reverse-routing-header). Such a
//! header grows by 16 octets for each level and needs the support of every home agent. Networks may also drop
//! the routing header, as they drop type 0 (RFC 5095). With this scheme neither the home agents nor the
//! networks between take part. The care-of address is an ordinary one, and an authenticated Binding Update
//! registers it. A router sends packets for an address only to the child that registered it. It does not copy
//! packets, and each hop decrements the hop limit. The scheme has the price of RFC 4889 5.5.3. When the root
//! moves, every nested router registers again, and the visited link sees several addresses of one station.
//!
//! **Fallback.** A nested router always has an address in its parent's own mobile network, with which it can
//! use plain NEMO. This address carries the traffic until the home agent has acknowledged the direct address,
//! and again if the home agent does not answer there. So the router also works on a link that permits each
//! station only one address, and behind a parent without this protocol. It also works over an uplink without
//! IPv6 or with a prefix length other than 64.
//!
//! **Protection.** A router accepts registrations only from its own links (hop limit 255), and only in
//! offered networks. A registered address carries only tunnels. From and to exactly these addresses, the data
//! path passes protocols 41, 44, 58 and 135, and UDP with port 4191. So a host in the mobile network cannot
//! use the address for ordinary packets. An address belongs to its first owner. A router accepts
//! [`MAX_REGISTRATIONS`] addresses: [`MAX_REGISTRATIONS_PER_SENDER`] of each sender that the operator has
//! configured, [`MAX_REGISTRATIONS_OF_UNKNOWN_SENDERS`] of all other senders together. They end without
//! renewal. A node in the mobile network that can read the ownership verifier can take over an address, as in
//! Neighbor Discovery in general.
//!
//! This module joins its parts:
//!
//! * `offered_networks` finds the offered networks.
//! * `address_registration` has the states of an address.
//! * `child_routers` has the registrations of nested routers.
//! * `proxy_nd` does the proxy Neighbor Discovery on the visited link.
//!
//! `mobile_router::parent` detects loops of routers before anything is registered.
//!
//! Left out:
//!
//! * Answers over more than one link at a time for one address.
//! * The end of registrations at a shutdown: they end without renewal.
//! * The link of a router that is at home.
//! * IPv6 over GeoNetworking as the visited link, because its addresses derive from those of stations.

mod address_registration;
mod child_routers;
mod drop_reason;
mod offered_networks;
mod proxy_nd;
mod registration_limits;
mod visited_address;

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv6Addr;

use carnet_base::{Interface, LinkMessage, Rng, Time};
use carnet_wire::nd::nesting::MAX_PREFIXES;
use carnet_wire::nd::{AddressRegistration, NestingInformation};
use ipnet::Ipv6Net;

pub use drop_reason::NestingDrop;
use offered_networks::{OfferedNetwork, network_address_of};
use registration_limits::{MessageSender, RegistrationLimits};
use visited_address::{ChildRouter, VisitedAddress};

use crate::home_agent::home_link::{HomeLink, NeighborMessage};
use crate::mobile_router::{Attachment, MobileRouter};

/// Maximum number of addresses of nested routers.
pub const MAX_REGISTRATIONS: usize = 64;
/// Maximum number of addresses that one configured sender registers, for itself and for the routers behind
/// it.
pub const MAX_REGISTRATIONS_PER_SENDER: usize = 16;
/// Maximum number of addresses of all senders together that the operator has not configured. A limit for each
/// such sender would have no effect, because a sender can forge link-layer addresses. The number suffices for
/// two routers, one behind the other, that move between two uplinks.
pub const MAX_REGISTRATIONS_OF_UNKNOWN_SENDERS: usize = 8;
/// First transaction ID after a start (RFC 8505 5.2).
const FIRST_TRANSACTION_ID: u8 = 240;

/// The operator's config of nesting.
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
    /// Whether this router offers direct addresses to nested routers, and uses those that its parent offers.
    pub uses_direct_addresses: bool,
    /// Link-layer addresses of the routers in the mobile network that the operator has configured.
    pub known_routers: Vec<[u8; 6]>,
}

/// Route to a nested router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Address of the nested router on the visited link.
    pub address: Ipv6Addr,
    /// Uplink that the address belongs to.
    pub uplink: String,
    /// Interface of the mobile network on which the nested router is reached.
    pub lan: String,
    /// Link-local address of the next hop on `lan`.
    pub gateway: Ipv6Addr,
}

/// An output of this module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// A Neighbor Discovery message to send.
    Link(LinkMessage),
    /// The routes or addresses have changed.
    Forwarding,
}

/// State of nesting; see the module documentation.
#[derive(Debug)]
pub struct Nesting {
    config: NestingConfig,
    /// Interfaces of uplinks and of the mobile network.
    links: BTreeMap<String, HomeLink>,
    /// Networks in which this router can have addresses, the preferred one first.
    offered_networks: Vec<OfferedNetwork>,
    addresses: BTreeMap<Ipv6Addr, Box<VisitedAddress>>,
    /// Former own addresses that may still receive packets: interface, address, end time.
    leaving_addresses: Vec<(String, Ipv6Addr, Time)>,
    /// Time before which the router requests no own address.
    next_request_at: Time,
    ownership_verifier: u64,
    last_transaction_id: u8,
    registration_limits: RegistrationLimits,
    rng: Rng,
    outputs: VecDeque<Output>,
    dropped_messages: BTreeMap<NestingDrop, u64>,
    registered_address_count: u64,
}

impl Nesting {
    /// Creates a state that knows no links.
    pub fn new(config: NestingConfig, mut rng: Rng) -> Nesting {
        let owner = rng.random_u64();
        Nesting {
            config,
            links: BTreeMap::new(),
            offered_networks: Vec::new(),
            addresses: BTreeMap::new(),
            leaving_addresses: Vec::new(),
            next_request_at: Time::ZERO,
            ownership_verifier: owner,
            last_transaction_id: FIRST_TRANSACTION_ID,
            registration_limits: RegistrationLimits::default(),
            rng,
            outputs: VecDeque::new(),
            dropped_messages: BTreeMap::new(),
            registered_address_count: 0,
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

    /// Returns when [`Self::handle_timeout`] is due next; `None` if no timer runs.
    pub fn poll_timeout(&self) -> Option<Time> {
        let entries = self.addresses.values().filter_map(|entry| entry.next_event_at());
        let leaving = self.leaving_addresses.iter().map(|(_, _, until)| *until);
        let wants = self.networks_of_parents().any(|way| !self.has_own_address(way));
        entries.chain(leaving).chain(wants.then_some(self.next_request_at)).min()
    }

    /// Returns the number of messages that had no effect, by reason.
    pub fn dropped(&self) -> &BTreeMap<NestingDrop, u64> {
        &self.dropped_messages
    }

    /// Returns how many addresses of nested routers have become valid.
    pub fn registered_address_count(&self) -> u64 {
        self.registered_address_count
    }

    /// Returns the routes to the nested routers.
    pub fn routes(&self) -> impl Iterator<Item = Route> {
        self.addresses.iter().filter(|(_, entry)| entry.is_valid()).filter_map(|(address, entry)| {
            let child = entry.child.as_ref()?;
            Some(Route {
                address: *address,
                uplink: entry.uplink_and_parent.0.clone(),
                lan: child.lan.clone(),
                gateway: child.gateway,
            })
        })
    }

    /// Returns this router's own addresses on its uplinks, the preferred ones first: interface, address, and
    /// whether the address may be a care-of address.
    pub fn addresses(&self) -> Vec<(String, Ipv6Addr, bool)> {
        let of = |way: &OfferedNetwork| {
            let own = self.own_address(way).filter(|(_, entry)| entry.has_been_valid);
            own.map(|(address, entry)| (entry.uplink_and_parent.0.clone(), address, entry.is_valid()))
        };
        let leaving =
            self.leaving_addresses.iter().map(|(interface, address, _)| (interface.clone(), *address, false));
        self.offered_networks.iter().filter_map(of).chain(leaving).collect()
    }

    /// Returns the offered networks, for the Router Advertisements to nested routers. Returns `None` if the
    /// router offers none: then its advertisements tell hosts nothing about home addresses and uplinks.
    pub fn offered_information(&self, router: &MobileRouter) -> Option<NestingInformation> {
        if !self.config.uses_direct_addresses {
            return None;
        }
        let attached = |index: &usize| !is_uplink_down(router, *index);
        let first = (0..router.uplinks().len()).find(attached);
        let before = router.active_uplink().or(first).and_then(|index| router.uplinks().get(index)?.parent());
        let before =
            before.map(|parent| parent.information.path_home_addresses.as_slice()).unwrap_or_default();
        let mut prefixes: Vec<Ipv6Addr> = Vec::new();
        for way in &self.offered_networks {
            if prefixes.len() < MAX_PREFIXES && !prefixes.contains(&way.network) {
                prefixes.push(way.network);
            }
        }
        Some(NestingInformation {
            grounded: first.is_some(),
            prefixes,
            path_home_addresses: [&[self.config.home_address], before].concat(),
        })
    }

    /// Takes over the state of an interface, be it an uplink or of the mobile network.
    pub fn handle_interface(&mut self, interface: &Interface) {
        let name = &interface.name;
        let link = self.links.entry(name.clone()).or_insert_with(|| HomeLink::new(name.clone(), None));
        link.handle_interface(interface);
    }

    /// Handles the removal of an interface.
    pub fn handle_interface_gone(&mut self, name: &str) {
        self.links.remove(name);
    }

    /// Takes over the attachments of the mobile router's uplinks. `unsuitable` lists interfaces that cannot
    /// be visited links.
    pub fn handle_attachments(&mut self, now: Time, router: &MobileRouter, unsuitable: &[String]) {
        let ways = if self.config.uses_direct_addresses {
            self.find_offered_networks(router, unsuitable)
        } else {
            Vec::new()
        };
        if ways != self.offered_networks {
            self.offered_networks = ways;
            let addresses: Vec<Ipv6Addr> = self.addresses.keys().copied().collect();
            for address in addresses {
                let Some(entry) = self.addresses.get(&address) else { continue };
                // An address stays on its uplink and parent as long as they offer its network.
                if self.offered_networks.iter().any(|way| {
                    way.network == network_address_of(address)
                        && way.uplink_and_parent() == entry.uplink_and_parent
                }) {
                    continue;
                }
                // A child's address may move to another uplink or parent. This router's own addresses do
                // not, because it has one on each.
                match self.network_of_address(address).filter(|_| entry.child.is_some()).cloned() {
                    Some(way) => self.begin_visited_address(now, address, &way),
                    None => self.end_visited_address(now, address),
                }
            }
            self.outputs.push_back(Output::Forwarding);
        }
        self.request_own_addresses(now);
    }

    /// Handles an ICMPv6 message from an uplink or from the mobile network.
    ///
    /// # Errors
    /// Returns why the message had no effect.
    pub fn handle_link_message(
        &mut self,
        now: Time,
        message: &LinkMessage,
        router: &MobileRouter,
    ) -> Result<(), NestingDrop> {
        if !self.config.uses_direct_addresses || !self.links.contains_key(&message.interface) {
            return Ok(());
        }
        let heard = match HomeLink::read_neighbor_message(message) {
            Ok(NeighborMessage::Other) => return Ok(()),
            // An invalid message has no sender whose limit it could use.
            Err(_) => return self.count_drop(NestingDrop::NeighborDiscovery),
            Ok(heard) => heard,
        };
        let registration = AddressRegistration::from_message(&message.message);
        let on_board = self.config.lan.contains(&message.interface);
        let result = match (heard, registration) {
            (NeighborMessage::Solicitation { target, source, peer }, Some(registration)) if on_board => {
                if !source.is_unicast_link_local() {
                    Err(NestingDrop::NeighborDiscovery)
                } else {
                    let sender = MessageSender::sender_of(message);
                    let is_known = self.registration_count_of(&sender) > 0;
                    if self.registration_limits.allow_message(now, sender.clone(), is_known) {
                        let lan = message.interface.clone();
                        let child = ChildRouter { lan, gateway: source, sender, peer, expires_at: now };
                        self.handle_registration(now, target, registration, child, router)
                    } else {
                        Err(NestingDrop::RateLimited)
                    }
                }
            }
            (NeighborMessage::Advertisement { target }, Some(registration)) if !on_board => {
                self.handle_parent_answer(now, message, target, registration)
            }
            (NeighborMessage::Solicitation { target, source, peer }, _) if !on_board => {
                self.answer_solicitation(now, &message.interface, target, source, peer);
                Ok(())
            }
            (NeighborMessage::Advertisement { target }, _) if !on_board => {
                self.handle_address_claim(now, &message.interface, target);
                Ok(())
            }
            _ => Ok(()),
        };
        match result {
            Ok(()) => Ok(()),
            Err(reason) => self.count_drop(reason),
        }
    }

    /// Handles the timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        let due: Vec<Ipv6Addr> = self
            .addresses
            .iter()
            .filter(|(_, entry)| entry.next_event_at().is_some_and(|at| at <= now))
            .map(|(address, _)| *address)
            .collect();
        for address in due {
            self.handle_address_timer(now, address);
        }
        let before = self.leaving_addresses.len();
        self.leaving_addresses.retain(|(_, _, until)| *until > now);
        if self.leaving_addresses.len() != before {
            self.outputs.push_back(Output::Forwarding);
        }
        self.request_own_addresses(now);
    }

    fn count_drop(&mut self, reason: NestingDrop) -> Result<(), NestingDrop> {
        *self.dropped_messages.entry(reason).or_default() += 1;
        Err(reason)
    }
}

fn is_uplink_down(router: &MobileRouter, uplink: usize) -> bool {
    router.uplinks().get(uplink).is_none_or(|uplink| matches!(uplink.attachment, Attachment::Down(_)))
}
