//! The binding cache (RFC 6275 9.1, RFC 3963 6.1.1): entries by home address and Binding Identifier.
//!
//! A node has either one plain binding or one for each Binding Identifier (RFC 5648 4.1). The cache keeps
//! shared state, such as the last sequence number and the flow bindings, once for each node. It remembers a
//! former care-of address for a grace period, so that packets on their way still pass.
//!
//! A node keeps its bindings in compact form (`node`); the cache builds a [`Binding`] for each caller.
//!
//! Only configured home addresses get an entry, a node has at most [`MAX_BINDINGS`] bindings, and its former
//! addresses are bounded too. So the cache cannot grow beyond the configuration.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use carnet_base::{Endpoint, Time};
use foldhash::fast::RandomState;
use ipnet::Ipv6Net;

use super::node::{Due, Entry, Node, rank};
use super::owners::Owners;
use super::registration::Replay;
use super::stored::KeyNumbers;
use super::{AuthorizedNode, Timer};
use crate::Authentication;
use crate::flow::FlowBinding;

/// Bindings that one node may have at a time.
pub const MAX_BINDINGS: usize = 16;
/// State of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindingState {
    /// Duplicate address detection on the home link is running; nothing is forwarded yet.
    Testing,
    /// Registered.
    Valid,
}

/// Time for which a binding has been at its care-of address.
///
/// The value is no time of day, because the clock may be set. A [`Time`] would not do either: it begins anew
/// with a restart, which bindings survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stay {
    /// Begin in nanoseconds of the monotonic clock. It is negative if it lies before the last restart, and
    /// [`Stay::UNKNOWN`] if it is unknown.
    since: i64,
}

impl Stay {
    const UNKNOWN: i64 = i64::MIN;

    /// A stay that begins now.
    pub fn begun(now: Time) -> Stay {
        Stay::lasting(now, Some(Duration::ZERO))
    }

    /// A stay that has lasted for `length`; `None` if that is unknown.
    pub fn lasting(now: Time, length: Option<Duration>) -> Stay {
        let nanos = |length: Duration| i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
        let now = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
        Stay { since: length.map_or(Stay::UNKNOWN, |length| now.saturating_sub(nanos(length))) }
    }

    /// Returns how long the stay has lasted; `None` if that is unknown.
    pub fn length(self, now: Time) -> Option<Duration> {
        let nanos = i128::from(now.as_nanos()) - i128::from(self.since);
        let known = self.since != Stay::UNKNOWN;
        known.then(|| Duration::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)))
    }
}

/// A binding cache entry that is a home registration, as callers see it.
#[derive(Debug, Clone)]
pub struct Binding {
    /// The home address.
    pub home_address: Ipv6Addr,
    /// The Binding Identifier, `None` for a plain binding; with the home address the key of the cache.
    pub bid: Option<u16>,
    /// BID-PRI (RFC 6089 4.1): the lower value wins; 0 if the node sent none.
    pub priority: u8,
    /// Registered care-of address as the home agent sees it: behind a NAT, the NAT's outer address and port.
    pub care_of_address: Endpoint,
    /// Time since the node has been at this address. Another port that a NAT has chosen does not count as a
    /// move.
    pub stay: Stay,
    /// The home agent's address at which the node registered.
    pub agent: Endpoint,
    /// The R flag (RFC 3963 4.1).
    pub mobile_router: bool,
    /// L flag: the home agent defends the link-local address as well (RFC 6275 6.1.7).
    pub link_local: bool,
    /// The prefixes for which packets are forwarded, the same for all bindings of a node.
    pub prefixes: Arc<[Ipv6Net]>,
    /// The last sequence number accepted, shared by all bindings of a node (RFC 5648 4.1).
    pub sequence: u16,
    /// Granted lifetime in whole seconds.
    pub lifetime: Duration,
    /// End of the lifetime.
    pub expires: Time,
    /// State of the binding, see [`BindingState`].
    pub state: BindingState,
    /// Whether the home agent may send packets to the care-of address: the node has answered there, or needs
    /// no test.
    pub care_of_tested: bool,
}

impl Binding {
    /// Whether the home agent forwards packets by this binding.
    pub fn is_valid(&self) -> bool {
        self.state == BindingState::Valid
    }

    /// Returns the ends of the tunnel: the home agent's address and the care-of address.
    pub fn ends(&self) -> (Endpoint, Endpoint) {
        (self.agent, self.care_of_address)
    }

    /// Whether forwarding is the same with `other` in place of this binding.
    pub(super) fn forwards_like(&self, other: &Binding) -> bool {
        let what = |it: &Binding| {
            (it.ends(), it.rank(), it.mobile_router, it.link_local, it.state, it.care_of_tested)
        };
        what(self) == what(other)
    }

    /// Returns the rank among the bindings of a node: the best has the least.
    fn rank(&self) -> (u8, Option<u16>) {
        rank(self.priority, self.bid)
    }

    /// The link-local address that the L flag derives from the home address (RFC 6275 10.3.1).
    pub fn link_local_address(&self) -> Option<Ipv6Addr> {
        let interface_identifier = u128::from(self.home_address) & u128::from(u64::MAX);
        self.link_local.then(|| Ipv6Addr::from((0xfe80_u128 << 112) | interface_identifier))
    }
}

/// A path that a binding has used before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormerPath {
    /// The home agent's end.
    pub agent: Endpoint,
    /// The care-of address.
    pub care_of_address: Endpoint,
    /// Time until which the home agent accepts packets from the path.
    pub until: Time,
    /// Whether the care-of address was tested, see [`Binding::care_of_tested`].
    pub care_of_tested: bool,
}

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
