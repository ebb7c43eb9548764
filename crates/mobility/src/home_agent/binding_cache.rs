//! The binding cache (RFC 6275 9.1, RFC 3963 6.1.1): entries by home address and Binding Identifier.
//!
//! A node has either one plain binding or one for each Binding Identifier (RFC 5648 4.1). The cache keeps
//! shared state, such as the last sequence number and the flow bindings, once for each node. It remembers a
//! former care-of address for a grace period, so that packets on their way still pass.
//!
//! A node keeps its bindings in compact form (`node`); the cache builds a [`Binding`] for each caller.
//!
//! Only configured home addresses get an entry, a node has at most [`MAX_BINDINGS`](super::MAX_BINDINGS)
//! bindings, and its former addresses are bounded too. So the cache cannot grow beyond the configuration.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::net::Ipv6Addr;

use carnet_base::{Endpoint, Time};
use foldhash::fast::RandomState;
use ipnet::Ipv6Net;

use super::binding::{Binding, FormerPath};
use super::node::{Due, Entry, Node};
use super::owners::Owners;
use super::replay::{KeyNumbers, Replay};
use super::{AuthorizedNode, Timer};
use crate::Authentication;
use crate::flow::FlowBinding;

/// Entries by home address and Binding Identifier.
#[derive(Debug)]
pub struct BindingCache {
    /// The home agent's address, its end of the bindings inside IPv6.
    home_agent: Ipv6Addr,
    /// Nodes by place, see [`Owners`]. A Binding Update looks its node up some twenty times.
    nodes: Box<[Option<Box<Node>>]>,
    /// Places of the nodes that are bound to a care-of address, by the hash of the address. The node itself
    /// tells whether the address matches.
    bound_to: BTreeSet<(u32, u32)>,
    hasher: RandomState,
    /// Next due time of each bound node with its reason, ordered by time.
    due: BTreeSet<(Time, Due, u32)>,
    owners: Owners,
}

impl BindingCache {
    /// An empty cache of this home agent for these nodes, which are sorted by home address.
    pub(super) fn new(home_agent: Ipv6Addr, nodes: &[AuthorizedNode]) -> BindingCache {
        let owners = Owners::of(nodes);
        BindingCache {
            home_agent,
            nodes: (0..owners.len()).map(|_| None).collect(),
            bound_to: BTreeSet::new(),
            hasher: RandomState::default(),
            due: BTreeSet::new(),
            owners,
        }
    }

    /// Returns the map from addresses to their nodes, bound or not.
    pub(super) fn owners(&self) -> &Owners {
        &self.owners
    }

    fn known(&self, home_address: Ipv6Addr) -> Option<&Node> {
        self.nodes.get(self.owners.place(home_address)?)?.as_deref()
    }

    fn entries(&self, home_address: Ipv6Addr) -> &[Entry] {
        self.known(home_address).map_or(&[], Node::entries)
    }

    /// The valid bindings of a home address, the best first: by BID-PRI, then by Binding Identifier.
    pub fn of(&self, home_address: Ipv6Addr) -> impl Iterator<Item = Binding> {
        let mut valid: Vec<Binding> = self.all(home_address).filter(Binding::is_valid).collect();
        valid.sort_by_key(Binding::rank);
        valid.into_iter()
    }

    /// The best valid binding of a home address.
    pub fn valid(&self, home_address: Ipv6Addr) -> Option<Binding> {
        let node = self.known(home_address)?;
        let valid = node.entries().iter().filter(|entry| entry.is_valid());
        valid.min_by_key(|entry| entry.rank()).map(|best| node.binding(self.home_agent, home_address, best))
    }

    /// The R flag of the valid bindings of a home address, if it has any.
    pub(super) fn mobile_router(&self, home_address: Ipv6Addr) -> Option<bool> {
        let valid = self.entries(home_address).iter().find(|entry| entry.is_valid());
        valid.map(|entry| entry.mobile_router)
    }

    /// Whether a home address has a valid binding.
    pub fn is_bound(&self, home_address: Ipv6Addr) -> bool {
        self.entries(home_address).iter().any(Entry::is_valid)
    }

    /// The binding of a home address with this identifier, whatever its state.
    pub fn get(&self, home_address: Ipv6Addr, bid: Option<u16>) -> Option<Binding> {
        let node = self.known(home_address)?;
        node.entry(bid).map(|entry| node.binding(self.home_agent, home_address, entry))
    }

    /// All bindings of a home address, whatever their state.
    pub(super) fn all(&self, home_address: Ipv6Addr) -> impl Iterator<Item = Binding> {
        let node = self.known(home_address).into_iter();
        node.flat_map(move |node| {
            let entries = node.entries().iter();
            entries.map(move |entry| node.binding(self.home_agent, home_address, entry))
        })
    }

    /// Returns the Binding Identifiers of all bindings of a home address.
    pub(super) fn bids(&self, home_address: Ipv6Addr) -> impl Iterator<Item = Option<u16>> {
        self.entries(home_address).iter().map(|entry| entry.bid)
    }

    /// All valid entries, by home address.
    pub fn iter(&self) -> impl Iterator<Item = Binding> {
        let known = (0..).zip(&self.nodes).filter_map(|(place, node)| {
            node.as_ref().and_then(|node| Some((self.owners.home_address(place)?, node)))
        });
        known.flat_map(move |(home_address, node)| {
            let valid = node.entries().iter().filter(|entry| entry.is_valid());
            valid.map(move |entry| node.binding(self.home_agent, home_address, entry))
        })
    }

    /// The former paths of a home address from which the home agent still accepts packets.
    pub fn former(&self, home_address: Ipv6Addr) -> &[FormerPath] {
        self.known(home_address).map_or(&[], Node::former)
    }

    /// The prefixes that the last bindings of a home address had.
    pub fn prefixes(&self, home_address: Ipv6Addr) -> &[Ipv6Net] {
        self.known(home_address).map_or(&[], Node::prefixes)
    }

    /// The flow bindings of a home address, ordered by priority (RFC 6089 4.3).
    pub fn flows(&self, home_address: Ipv6Addr) -> &[FlowBinding] {
        self.known(home_address).map_or(&[], Node::flows)
    }

    /// The last sequence number accepted from a home address, as long as it is remembered.
    pub fn sequence(&self, home_address: Ipv6Addr) -> Option<u16> {
        self.known(home_address)?.sequence
    }

    /// Returns the replay protection state of a node, which outlives its bindings.
    pub(super) fn replay(&self, home_address: Ipv6Addr) -> Replay {
        self.known(home_address).map(Node::replay).unwrap_or_default()
    }

    /// Returns how many numbers a key of a node has used (see [`crate::sequence::count`]).
    pub(super) fn numbers(
        &self,
        home_address: Ipv6Addr,
        authentication: &Authentication,
        spi: Option<u32>,
    ) -> u32 {
        self.known(home_address).map_or(0, |node| node.numbers(authentication.other_key(spi)))
    }

    /// Returns the counts of the node's other keys, see [`Node::other_keys`].
    pub(super) fn other_keys(&self, home_address: Ipv6Addr) -> &[KeyNumbers] {
        self.known(home_address).map_or(&[], Node::other_keys)
    }

    /// Whether the home agent accepts packets of a home address from this care-of address, which is
    /// registered or was within the grace period.
    pub fn accepts(&self, home_address: Ipv6Addr, care_of_address: Endpoint) -> bool {
        self.known(home_address).is_some_and(|node| {
            self.is_bound_to(node, |it| it == care_of_address)
                || node.former().iter().any(|path| path.care_of_address == care_of_address)
        })
    }

    /// Whether a home address is or was lately at this care-of address and has passed the test there.
    pub(super) fn is_care_of_tested(
        &self,
        now: Time,
        home_address: Ipv6Addr,
        care_of_address: Endpoint,
    ) -> bool {
        let Some(node) = self.known(home_address) else { return false };
        let is_so = |entry: &&Entry| {
            entry.is_valid() && entry.care_of_tested && entry.ends(self.home_agent).1 == care_of_address
        };
        node.entries().iter().any(|entry| is_so(&entry)) || node.was_tested(now, care_of_address)
    }

    /// Marks the bindings of a home address with these ends as tested. Returns whether the node has such
    /// bindings.
    pub(super) fn set_care_of_tested(&mut self, home_address: Ipv6Addr, ends: (Endpoint, Endpoint)) -> bool {
        let home_agent = self.home_agent;
        self.node(home_address).is_some_and(|node| node.set_tested(home_agent, ends))
    }

    /// Whether a home address has a valid binding to this care-of address.
    pub(super) fn is_bound_at(&self, home_address: Ipv6Addr, care_of_address: Endpoint) -> bool {
        self.known(home_address).is_some_and(|node| self.is_bound_to(node, |it| it == care_of_address))
    }

    /// Whether a node has a valid binding whose care-of address satisfies `is_so`.
    fn is_bound_to(&self, node: &Node, is_so: impl Fn(Endpoint) -> bool) -> bool {
        let mut valid = node.entries().iter().filter(|entry| entry.is_valid());
        valid.any(|entry| is_so(entry.ends(self.home_agent).1))
    }

    /// Returns the hash of a care-of address in `bound_to`.
    fn hash(&self, care_of_address: Endpoint) -> u32 {
        self.hasher.hash_one(care_of_address) as u32
    }

    /// Returns the first node, by home address, with this care-of address.
    pub(super) fn bound_to(&self, care_of_address: Endpoint) -> Option<Ipv6Addr> {
        let hash = self.hash(care_of_address);
        let bound = self.bound_to.range((hash, 0)..=(hash, u32::MAX)).map(|(_, place)| *place);
        let is_bound = |place: &u32| {
            let node = self.nodes.get(*place as usize).and_then(Option::as_deref);
            node.is_some_and(|node| self.is_bound_to(node, |it| it == care_of_address))
        };
        bound.filter(is_bound).find_map(|place| self.owners.home_address(place))
    }

    /// Returns the bindings that packets to this address follow, except those of one node. Bindings whose
    /// home address is still being tested count too.
    pub(super) fn leading_to(&self, address: Ipv6Addr, except: Ipv6Addr) -> impl Iterator<Item = Binding> {
        // A binding forwards prefixes of its own node only.
        self.owners
            .of_prefixes_around(address)
            .filter(move |owner| *owner != except)
            .flat_map(|owner| self.all(owner))
            .filter(move |binding| binding.prefixes.iter().any(|prefix| prefix.contains(&address)))
    }

    pub(super) fn node(&mut self, home_address: Ipv6Addr) -> Option<&mut Node> {
        self.nodes.get_mut(self.owners.place(home_address)?)?.as_deref_mut()
    }

    /// Returns the entry of a node, created if it is missing; `None` for a node that may not register.
    pub(super) fn node_or_new(&mut self, home_address: Ipv6Addr) -> Option<&mut Node> {
        let node = self.nodes.get_mut(self.owners.place(home_address)?)?;
        Some(node.get_or_insert_default())
    }

    /// Changes the bindings of a node, and updates its due time and its care-of addresses in the indexes.
    fn change(&mut self, home_address: Ipv6Addr, bid: Option<u16>, change: impl FnOnce(&mut Node, Ipv6Addr)) {
        let home_agent = self.home_agent;
        let Some(place) = self.owners.place(home_address) else { return };
        let Some(node) = self.nodes.get_mut(place) else { return };
        let node = node.get_or_insert_default();
        let care_of_address = |node: &Node| {
            let entry = node.entry(bid).filter(|entry| entry.is_valid());
            entry.map(|entry| entry.ends(home_agent).1)
        };
        let (due, bound_to) = (node.due(), care_of_address(node));
        change(node, home_agent);
        let (due_now, bound_to_now) = (node.due(), care_of_address(node));
        let key = |(at, due, _): (Time, Due, _)| (at, due, place as u32);
        if due.map(key) != due_now.map(key) {
            if let Some(due) = due {
                self.due.remove(&key(due));
            }
            self.due.extend(due_now.map(key));
        }
        if bound_to != bound_to_now {
            if let Some(bound_to) = bound_to {
                self.unbind(place, bound_to);
            }
            let key = bound_to_now.map(|bound_to| (self.hash(bound_to), place as u32));
            self.bound_to.extend(key);
        }
    }

    /// Removes a node from `bound_to` for this care-of address, unless one of its bindings still has it.
    fn unbind(&mut self, place: usize, care_of_address: Endpoint) {
        let hash = self.hash(care_of_address);
        // Another care-of address of the node may have the same hash.
        let node = self.nodes.get(place).and_then(Option::as_deref);
        if !node.is_some_and(|node| self.is_bound_to(node, |other| self.hash(other) == hash)) {
            self.bound_to.remove(&(hash, place as u32));
        }
    }

    /// Adds a binding, or replaces the one with its identifier. The shared values of a valid binding then
    /// hold for all bindings of the node.
    pub(super) fn insert(&mut self, binding: &Binding) {
        let key = (binding.home_address, binding.bid);
        self.change(key.0, key.1, |node, home_agent| node.insert(home_agent, binding));
    }

    /// Removes a binding.
    pub(super) fn remove(&mut self, home_address: Ipv6Addr, bid: Option<u16>) -> Option<Binding> {
        let binding = self.get(home_address, bid)?;
        self.change(home_address, bid, |node, _| node.remove(bid));
        Some(binding)
    }

    /// Returns the next due time of a binding, with its reason.
    pub(super) fn next_due(&self) -> Option<(Time, Timer)> {
        let (at, due, place) = *self.due.first()?;
        let home_address = self.owners.home_address(place)?;
        let (_, _, bid) = self.nodes.get(place as usize)?.as_ref()?.due()?;
        let timer = match due {
            Due::Expiry => Timer::Expire(home_address, bid),
            Due::RefreshRequest => Timer::RefreshRequest(home_address, bid),
        };
        Some((at, timer))
    }

    /// Marks the renewal of a binding as requested, or as not to be requested.
    pub(super) fn set_asked(&mut self, home_address: Ipv6Addr, bid: Option<u16>) {
        self.change(home_address, bid, |node, _| node.set_asked(bid));
    }

    /// Removes a node's entry if it is empty.
    pub(super) fn tidy(&mut self, home_address: Ipv6Addr) {
        let place = self.owners.place(home_address);
        if let Some(node) = place.and_then(|place| self.nodes.get_mut(place)) {
            node.take_if(|node| node.is_empty());
        }
    }
}
