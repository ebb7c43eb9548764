//! The binding cache (RFC 6275 9.1, RFC 3963 6.1.1): entries by home address and Binding Identifier.
//!
//! A node has either one plain binding or one binding for each Binding Identifier (RFC 5648 4.1). State that
//! all bindings of a node share, such as the last sequence number and the flow bindings, is stored once per
//! node. The cache stores a former care-of address for a grace period, so that the home agent still accepts
//! packets that were on their way.
//!
//! The module `node` stores the bindings of a node in compact form; the cache builds a [`Binding`] for each
//! caller.
//!
//! Only configured home addresses get an entry, a node has at most [`MAX_BINDINGS`](super::MAX_BINDINGS)
//! bindings, and the number of its former addresses is limited too. So the configuration limits the size of
//! the cache.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::net::Ipv6Addr;

use carnet_base::{Endpoint, Time};
use foldhash::fast::RandomState;
use ipnet::Ipv6Net;

use super::binding::{Binding, FormerPath};
use super::node::{BindingEntry, DueEvent, NodeState};
use super::prefix_owners::PrefixTable;
use super::replay_state::{KeyNumbers, ReplayState};
use super::{AuthorizedNode, HomeAgentTimer};
use crate::Authentication;
use crate::flow::FlowBinding;

/// Bindings by home address and Binding Identifier.
#[derive(Debug)]
pub struct BindingCache {
    /// The home agent's IPv6 address: its tunnel end for bindings over IPv6.
    home_agent: Ipv6Addr,
    /// Nodes in the order of the [`PrefixTable`]. An index finds a node fast: a Binding Update needs its node
    /// about twenty times.
    nodes: Box<[Option<Box<NodeState>>]>,
    /// Hash of the care-of address and index of the node, for each binding. Two addresses may have one hash,
    /// so the caller compares the address in the node.
    nodes_by_care_of_address: BTreeSet<(u32, u32)>,
    hasher: RandomState,
    /// Time and kind of the next event of each bound node, ordered by time.
    next_events: BTreeSet<(Time, DueEvent, u32)>,
    prefix_table: PrefixTable,
}

impl BindingCache {
    /// Creates an empty cache of this home agent for these nodes, which are sorted by home address.
    pub(super) fn new(home_agent: Ipv6Addr, nodes: &[AuthorizedNode]) -> BindingCache {
        let owners = PrefixTable::from_nodes(nodes);
        BindingCache {
            home_agent,
            nodes: (0..owners.len()).map(|_| None).collect(),
            nodes_by_care_of_address: BTreeSet::new(),
            hasher: RandomState::default(),
            next_events: BTreeSet::new(),
            prefix_table: owners,
        }
    }

    /// Returns the prefix table, which contains all configured nodes.
    pub(super) fn prefix_table(&self) -> &PrefixTable {
        &self.prefix_table
    }

    fn known_node(&self, home_address: Ipv6Addr) -> Option<&NodeState> {
        self.nodes.get(self.prefix_table.index_of_node(home_address)?)?.as_deref()
    }

    fn binding_entries_of(&self, home_address: Ipv6Addr) -> &[BindingEntry] {
        self.known_node(home_address).map_or(&[], NodeState::binding_entries)
    }

    /// Returns the valid bindings of a home address, the best first: by BID-PRI, then by Binding Identifier.
    pub fn bindings_of(&self, home_address: Ipv6Addr) -> impl Iterator<Item = Binding> {
        let mut valid: Vec<Binding> = self.all_bindings_of(home_address).filter(Binding::is_valid).collect();
        valid.sort_by_key(Binding::preference_rank);
        valid.into_iter()
    }

    /// Returns the best valid binding of a home address; `None` without a valid binding.
    pub fn best_valid_binding(&self, home_address: Ipv6Addr) -> Option<Binding> {
        let node = self.known_node(home_address)?;
        let valid = node.binding_entries().iter().filter(|entry| entry.is_valid());
        valid
            .min_by_key(|entry| entry.preference_rank())
            .map(|best| node.to_binding(self.home_agent, home_address, best))
    }

    /// Returns the R flag of the valid bindings of a home address; `None` without a valid binding.
    pub(super) fn router_flag_of(&self, home_address: Ipv6Addr) -> Option<bool> {
        let valid = self.binding_entries_of(home_address).iter().find(|entry| entry.is_valid());
        valid.map(|entry| entry.mobile_router)
    }

    /// Returns whether a home address has a valid binding.
    pub fn is_bound(&self, home_address: Ipv6Addr) -> bool {
        self.binding_entries_of(home_address).iter().any(BindingEntry::is_valid)
    }

    /// Returns the binding of a home address with this identifier, in any state. `None` without such a
    /// binding.
    pub fn get(&self, home_address: Ipv6Addr, bid: Option<u16>) -> Option<Binding> {
        let node = self.known_node(home_address)?;
        node.entry(bid).map(|entry| node.to_binding(self.home_agent, home_address, entry))
    }

    /// Returns all bindings of a home address, in any state.
    pub(super) fn all_bindings_of(&self, home_address: Ipv6Addr) -> impl Iterator<Item = Binding> {
        let node = self.known_node(home_address).into_iter();
        node.flat_map(move |node| {
            let entries = node.binding_entries().iter();
            entries.map(move |entry| node.to_binding(self.home_agent, home_address, entry))
        })
    }

    /// Returns the Binding Identifiers of all bindings of a home address.
    pub(super) fn bids(&self, home_address: Ipv6Addr) -> impl Iterator<Item = Option<u16>> {
        self.binding_entries_of(home_address).iter().map(|entry| entry.bid)
    }

    /// Returns all valid bindings, by home address.
    pub fn iter(&self) -> impl Iterator<Item = Binding> {
        let known = (0..).zip(&self.nodes).filter_map(|(place, node)| {
            node.as_ref().and_then(|node| Some((self.prefix_table.home_address(place)?, node)))
        });
        known.flat_map(move |(home_address, node)| {
            let valid = node.binding_entries().iter().filter(|entry| entry.is_valid());
            valid.map(move |entry| node.to_binding(self.home_agent, home_address, entry))
        })
    }

    /// Returns the former paths of a home address from which the home agent still accepts packets.
    pub fn former_paths(&self, home_address: Ipv6Addr) -> &[FormerPath] {
        self.known_node(home_address).map_or(&[], NodeState::former_paths)
    }

    /// Returns the prefixes of the last accepted registration of a home address.
    pub fn prefixes(&self, home_address: Ipv6Addr) -> &[Ipv6Net] {
        self.known_node(home_address).map_or(&[], NodeState::prefixes)
    }

    /// Returns the flow bindings of a home address, ordered by priority (RFC 6089 4.3).
    pub fn flows(&self, home_address: Ipv6Addr) -> &[FlowBinding] {
        self.known_node(home_address).map_or(&[], NodeState::flows)
    }

    /// Returns the last accepted sequence number of a home address; `None` if the cache has stored none, or
    /// has deleted it.
    pub fn sequence(&self, home_address: Ipv6Addr) -> Option<u16> {
        self.known_node(home_address)?.sequence
    }

    /// Returns the replay protection state of a node, which outlives its bindings.
    pub(super) fn replay_state(&self, home_address: Ipv6Addr) -> ReplayState {
        self.known_node(home_address).map(NodeState::replay_state).unwrap_or_default()
    }

    /// Returns how many sequence numbers a node has used under one key (see
    /// [`crate::sequence::count_used_numbers`]).
    pub(super) fn used_sequence_numbers(
        &self,
        home_address: Ipv6Addr,
        authentication: &Authentication,
        spi: Option<u32>,
    ) -> u32 {
        self.known_node(home_address)
            .map_or(0, |node| node.used_sequence_numbers(authentication.fingerprint_of_other_key(spi)))
    }

    /// Returns the used sequence numbers of the node's other keys, see [`NodeState::other_key_numbers`].
    pub(super) fn other_key_numbers(&self, home_address: Ipv6Addr) -> &[KeyNumbers] {
        self.known_node(home_address).map_or(&[], NodeState::other_key_numbers)
    }

    /// Returns whether the home agent accepts packets of a home address from this care-of address. The
    /// address is registered, or the node left it within the grace period.
    pub fn accepts_packets_from(&self, home_address: Ipv6Addr, care_of_address: Endpoint) -> bool {
        self.known_node(home_address).is_some_and(|node| {
            self.is_bound_to(node, |it| it == care_of_address)
                || node.former_paths().iter().any(|path| path.care_of_address == care_of_address)
        })
    }

    /// Returns whether a node has passed the test at this care-of address. The address may be a present one,
    /// or one that the node has left lately.
    pub(super) fn is_care_of_tested(
        &self,
        now: Time,
        home_address: Ipv6Addr,
        care_of_address: Endpoint,
    ) -> bool {
        let Some(node) = self.known_node(home_address) else { return false };
        let is_so = |entry: &&BindingEntry| {
            entry.is_valid()
                && entry.is_care_of_tested
                && entry.tunnel_ends(self.home_agent).1 == care_of_address
        };
        node.binding_entries().iter().any(|entry| is_so(&entry))
            || node.was_address_tested(now, care_of_address)
    }

    /// Marks the bindings of a home address with these tunnel ends as tested. Returns whether the node has
    /// such bindings.
    pub(super) fn set_care_of_tested(&mut self, home_address: Ipv6Addr, ends: (Endpoint, Endpoint)) -> bool {
        let home_agent = self.home_agent;
        self.node_mut(home_address).is_some_and(|node| node.mark_care_of_tested(home_agent, ends))
    }

    /// Returns whether a home address has a valid binding to this care-of address.
    pub(super) fn has_binding_at(&self, home_address: Ipv6Addr, care_of_address: Endpoint) -> bool {
        self.known_node(home_address).is_some_and(|node| self.is_bound_to(node, |it| it == care_of_address))
    }

    /// Returns whether a node has a valid binding whose care-of address satisfies `is_so`.
    fn is_bound_to(&self, node: &NodeState, is_so: impl Fn(Endpoint) -> bool) -> bool {
        let mut valid = node.binding_entries().iter().filter(|entry| entry.is_valid());
        valid.any(|entry| is_so(entry.tunnel_ends(self.home_agent).1))
    }

    /// Returns the hash of a care-of address in `nodes_by_care_of_address`.
    fn hash_address(&self, care_of_address: Endpoint) -> u32 {
        self.hasher.hash_one(care_of_address) as u32
    }

    /// Returns the first node, by home address, with this care-of address; `None` if no node is bound to it.
    pub(super) fn node_bound_to(&self, care_of_address: Endpoint) -> Option<Ipv6Addr> {
        let hash = self.hash_address(care_of_address);
        let bound =
            self.nodes_by_care_of_address.range((hash, 0)..=(hash, u32::MAX)).map(|(_, place)| *place);
        let is_bound = |place: &u32| {
            let node = self.nodes.get(*place as usize).and_then(Option::as_deref);
            node.is_some_and(|node| self.is_bound_to(node, |it| it == care_of_address))
        };
        bound.filter(is_bound).find_map(|place| self.prefix_table.home_address(place))
    }

    /// Returns the bindings through which the home agent forwards packets to this address, without the
    /// bindings of the node `except`. Includes bindings whose home address is still being tested.
    pub(super) fn bindings_leading_to(
        &self,
        address: Ipv6Addr,
        except: Ipv6Addr,
    ) -> impl Iterator<Item = Binding> {
        // Search only the owners of prefixes around the address, because a node may register only its own
        // prefixes.
        self.prefix_table
            .owners_of_covering_prefixes(address)
            .filter(move |owner| *owner != except)
            .flat_map(|owner| self.all_bindings_of(owner))
            .filter(move |binding| binding.prefixes.iter().any(|prefix| prefix.contains(&address)))
    }

    pub(super) fn node_mut(&mut self, home_address: Ipv6Addr) -> Option<&mut NodeState> {
        self.nodes.get_mut(self.prefix_table.index_of_node(home_address)?)?.as_deref_mut()
    }

    /// Returns the state of a node, and creates it if it is missing. Returns `None` if the config does not
    /// allow the node to register.
    pub(super) fn node_or_new(&mut self, home_address: Ipv6Addr) -> Option<&mut NodeState> {
        let node = self.nodes.get_mut(self.prefix_table.index_of_node(home_address)?)?;
        Some(node.get_or_insert_default())
    }

    /// Changes the bindings of a node, and updates `next_events` and `nodes_by_care_of_address`, which depend
    /// on them.
    fn change_bindings(
        &mut self,
        home_address: Ipv6Addr,
        bid: Option<u16>,
        change: impl FnOnce(&mut NodeState, Ipv6Addr),
    ) {
        let home_agent = self.home_agent;
        let Some(place) = self.prefix_table.index_of_node(home_address) else { return };
        let Some(node) = self.nodes.get_mut(place) else { return };
        let node = node.get_or_insert_default();
        let care_of_address = |node: &NodeState| {
            let entry = node.entry(bid).filter(|entry| entry.is_valid());
            entry.map(|entry| entry.tunnel_ends(home_agent).1)
        };
        let (due, bound_to) = (node.next_event(), care_of_address(node));
        change(node, home_agent);
        let (due_now, bound_to_now) = (node.next_event(), care_of_address(node));
        let key = |(at, due, _): (Time, DueEvent, _)| (at, due, place as u32);
        if due.map(key) != due_now.map(key) {
            if let Some(due) = due {
                self.next_events.remove(&key(due));
            }
            self.next_events.extend(due_now.map(key));
        }
        if bound_to != bound_to_now {
            if let Some(bound_to) = bound_to {
                self.unbind_care_of_address(place, bound_to);
            }
            let key = bound_to_now.map(|bound_to| (self.hash_address(bound_to), place as u32));
            self.nodes_by_care_of_address.extend(key);
        }
    }

    /// Removes a node from `nodes_by_care_of_address` for this care-of address, unless one of its bindings
    /// still has it.
    fn unbind_care_of_address(&mut self, place: usize, care_of_address: Endpoint) {
        let hash = self.hash_address(care_of_address);
        // Keep the entry if another care-of address of the node has the same hash.
        let node = self.nodes.get(place).and_then(Option::as_deref);
        if !node.is_some_and(|node| self.is_bound_to(node, |other| self.hash_address(other) == hash)) {
            self.nodes_by_care_of_address.remove(&(hash, place as u32));
        }
    }

    /// Adds a binding, or replaces the binding with the same identifier. The sequence number, flags and
    /// prefixes of a valid binding then apply to all bindings of the node.
    pub(super) fn insert(&mut self, binding: &Binding) {
        let key = (binding.home_address, binding.bid);
        self.change_bindings(key.0, key.1, |node, home_agent| node.insert(home_agent, binding));
    }

    /// Removes and returns the binding with this identifier; `None` without such a binding.
    pub(super) fn remove(&mut self, home_address: Ipv6Addr, bid: Option<u16>) -> Option<Binding> {
        let binding = self.get(home_address, bid)?;
        self.change_bindings(home_address, bid, |node, _| node.remove(bid));
        Some(binding)
    }

    /// Returns time and kind of the next event of a binding; `None` if no event is outstanding.
    pub(super) fn next_event(&self) -> Option<(Time, HomeAgentTimer)> {
        let (at, due, place) = *self.next_events.first()?;
        let home_address = self.prefix_table.home_address(place)?;
        let (_, _, bid) = self.nodes.get(place as usize)?.as_ref()?.next_event()?;
        let timer = match due {
            DueEvent::Expiry => HomeAgentTimer::Expire(home_address, bid),
            DueEvent::RefreshRequest => HomeAgentTimer::RefreshRequest(home_address, bid),
        };
        Some((at, timer))
    }

    /// Records that the home agent has sent a Binding Refresh Request for a binding, so that it sends no
    /// further one.
    pub(super) fn mark_refresh_requested(&mut self, home_address: Ipv6Addr, bid: Option<u16>) {
        self.change_bindings(home_address, bid, |node, _| node.mark_refresh_requested(bid));
    }

    /// Removes the state of a node if it is empty.
    pub(super) fn remove_empty_state(&mut self, home_address: Ipv6Addr) {
        let place = self.prefix_table.index_of_node(home_address);
        if let Some(node) = place.and_then(|place| self.nodes.get_mut(place)) {
            node.take_if(|node| node.is_empty());
        }
    }
}
