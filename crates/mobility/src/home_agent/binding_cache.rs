//! The binding cache (RFC 6275 9.1, RFC 3963 6.1.1): entries by home address and Binding Identifier.
//!
//! A node has either one plain binding or one for each Binding Identifier (RFC 5648 4.1). What belongs to all of
//! them, such as the last sequence number and the flow bindings, is kept beside them. A care-of address that
//! has been given up is remembered for a moment, so that packets that are on their way are still let through.
//!
//! Only configured home addresses get an entry, a node has at most [`MAX_BINDINGS`] bindings, and what was
//! given up is bounded as well: so the cache cannot grow beyond the configuration.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use carnet_base::{Endpoint, SmallMap, Time, sort_by_key};
use foldhash::{HashMap, HashMapExt};
use ipnet::Ipv6Net;

use super::AuthorizedNode;
use super::owners::Owners;
use crate::flow::FlowBinding;

/// Bindings that one node may have at a time.
pub const MAX_BINDINGS: usize = 16;
/// Care-of addresses that were given up, of one node; the oldest goes when there are more.
const MAX_FORMER: usize = 2 * MAX_BINDINGS;
/// Stands for BID-PRI 0, which a node sends that knows no priorities (RFC 6089 4.1): behind all that have one.
const NO_PRIORITY: u8 = 128;

/// Where a binding is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindingState {
    /// Duplicate address detection on the home link is under way; nothing is forwarded yet.
    Testing,
    /// Registered.
    Valid,
}

/// For how long a binding has been at its care-of address.
///
/// Not a date: the clock on the wall may be set. Not only a [`Time`]: it begins anew with a restart, which bindings survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stay {
    /// When it came, or, where it is from the time before a restart, when that was.
    pub from: Time,
    /// How long it had been there by then; `None` where nobody knows.
    pub before: Option<Duration>,
}

impl Stay {
    /// One that begins.
    pub fn begun(now: Time) -> Stay {
        Stay { from: now, before: Some(Duration::ZERO) }
    }

    /// How long it has lasted, if that is known.
    pub fn length(self, now: Time) -> Option<Duration> {
        Some(self.before?.saturating_add(now.saturating_since(self.from)))
    }
}

/// A binding cache entry that is a home registration.
#[derive(Debug, Clone)]
pub struct Binding {
    /// The home address.
    pub home_address: Ipv6Addr,
    /// The Binding Identifier, `None` for a plain binding; with the home address the key of the cache.
    pub bid: Option<u16>,
    /// BID-PRI (RFC 6089 4.1): lower wins, 0 when the node said none.
    pub priority: u8,
    /// The registered care-of address, as we see it: behind a NAT, the address and port that the NAT gives it.
    pub care_of_address: Endpoint,
    /// Since when it has been there. Another port, which a NAT has chosen, is no other place.
    pub stay: Stay,
    /// Our end, at which it was registered.
    pub agent: Endpoint,
    /// The R flag (RFC 3963 4.1).
    pub mobile_router: bool,
    /// The L flag: the link-local address is defended as well (RFC 6275 6.1.7).
    pub link_local: bool,
    /// The prefixes for which packets are forwarded, the same for all bindings of a node.
    pub prefixes: Arc<[Ipv6Net]>,
    /// The last sequence number accepted, shared by all bindings of a node (RFC 5648 4.1).
    pub sequence: u16,
    /// The lifetime granted.
    pub lifetime: Duration,
    /// When it ends.
    pub expires: Time,
    /// See [`BindingState`].
    pub state: BindingState,
}

impl Binding {
    /// Whether packets are forwarded by it.
    pub fn is_valid(&self) -> bool {
        self.state == BindingState::Valid
    }

    /// Its ends: ours and the care-of address.
    pub fn ends(&self) -> (Endpoint, Endpoint) {
        (self.agent, self.care_of_address)
    }

    /// Whether packets take the same ways by this one in the other's place.
    pub(super) fn forwards_like(&self, other: &Binding) -> bool {
        let what = |it: &Binding| (it.ends(), it.rank(), it.mobile_router, it.link_local, it.state);
        what(self) == what(other)
    }

    /// The order among the bindings of a node: the best has the least.
    fn rank(&self) -> (u8, Option<u16>) {
        (if self.priority == 0 { NO_PRIORITY } else { self.priority }, self.bid)
    }

    /// The link-local address that the L flag derives from the home address (RFC 6275 10.3.1).
    pub fn link_local_address(&self) -> Option<Ipv6Addr> {
        let interface_identifier = u128::from(self.home_address) & u128::from(u64::MAX);
        self.link_local.then(|| Ipv6Addr::from((0xfe80_u128 << 112) | interface_identifier))
    }
}

/// A path that a binding has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormerPath {
    /// Our end.
    pub agent: Endpoint,
    /// The care-of address.
    pub care_of_address: Endpoint,
    /// Until when packets from it are still accepted.
    pub until: Time,
}

/// What is known of one node.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// By Binding Identifier; a plain binding is alone.
    pub bindings: SmallMap<Option<u16>, Binding>,
    /// The last sequence number accepted; after a de-registration kept for `MAX_DELETE_BCE_TIMEOUT` so that a
    /// late Binding Update from the visited link meets it (RFC 6275 10.3.2).
    pub sequence: Option<u16>,
    /// What packets may still come from, oldest first.
    pub former: Vec<FormerPath>,
    /// What the tunnels of the last bindings carried.
    pub prefixes: Arc<[Ipv6Net]>,
    /// Ordered by priority (RFC 6089 4.3).
    pub flows: Vec<FlowBinding>,
}

impl Node {
    fn is_empty(&self) -> bool {
        self.bindings.is_empty() && self.sequence.is_none() && self.former.is_empty()
    }

    /// Lets packets from this path in until then.
    pub fn retire(&mut self, (agent, care_of_address): (Endpoint, Endpoint), until: Time) {
        self.former.retain(|path| (path.agent, path.care_of_address) != (agent, care_of_address));
        if self.former.len() >= MAX_FORMER {
            self.former.remove(0);
        }
        self.former.push(FormerPath { agent, care_of_address, until });
    }
}

/// Entries by home address and Binding Identifier.
#[derive(Debug)]
pub struct BindingCache {
    /// By home address. A Binding Update asks for its node some twenty times.
    nodes: HashMap<Ipv6Addr, Node>,
    /// The home addresses that are bound to a care-of address.
    bound_to: BTreeSet<(Endpoint, Ipv6Addr)>,
    owners: Owners,
}

impl BindingCache {
    /// An empty cache for these nodes.
    pub(super) fn new(nodes: &[AuthorizedNode]) -> BindingCache {
        BindingCache { nodes: HashMap::new(), bound_to: BTreeSet::new(), owners: Owners::of(nodes) }
    }

    /// Which node an address belongs to, whether it has a binding or not.
    pub(super) fn owners(&self) -> &Owners {
        &self.owners
    }

    /// The valid bindings of a home address, the best first: by BID-PRI, then by Binding Identifier.
    pub fn of(&self, home_address: Ipv6Addr) -> impl Iterator<Item = &Binding> {
        let mut valid: Vec<&Binding> = self.all(home_address).filter(|binding| binding.is_valid()).collect();
        sort_by_key(&mut valid, |binding| binding.rank());
        valid.into_iter()
    }

    /// The best valid binding of a home address.
    pub fn valid(&self, home_address: Ipv6Addr) -> Option<&Binding> {
        self.all(home_address).filter(|binding| binding.is_valid()).min_by_key(|binding| binding.rank())
    }

    /// The binding of a home address with this identifier, whatever its state.
    pub fn get(&self, home_address: Ipv6Addr, bid: Option<u16>) -> Option<&Binding> {
        self.nodes.get(&home_address)?.bindings.get(&bid)
    }

    /// All bindings of a home address, whatever their state.
    pub(super) fn all(&self, home_address: Ipv6Addr) -> impl Iterator<Item = &Binding> {
        self.nodes.get(&home_address).into_iter().flat_map(|node| node.bindings.values())
    }

    /// All valid entries, by home address.
    pub fn iter(&self) -> impl Iterator<Item = &Binding> {
        let mut nodes: Vec<(&Ipv6Addr, &Node)> = self.nodes.iter().collect();
        sort_by_key(&mut nodes, |(home_address, _)| **home_address);
        nodes.into_iter().flat_map(|(_, node)| node.bindings.values()).filter(|binding| binding.is_valid())
    }

    /// The paths that the bindings of a home address have left, from which packets are still accepted.
    pub fn former(&self, home_address: Ipv6Addr) -> &[FormerPath] {
        self.nodes.get(&home_address).map_or(&[], |node| &node.former)
    }

    /// The prefixes that the last bindings of a home address had.
    pub fn prefixes(&self, home_address: Ipv6Addr) -> &[Ipv6Net] {
        self.nodes.get(&home_address).map_or(&[], |node| &node.prefixes)
    }

    /// The flow bindings of a home address, ordered by priority (RFC 6089 4.3).
    pub fn flows(&self, home_address: Ipv6Addr) -> &[FlowBinding] {
        self.nodes.get(&home_address).map_or(&[], |node| &node.flows)
    }

    /// The last sequence number accepted from a home address, as long as it is remembered.
    pub fn sequence(&self, home_address: Ipv6Addr) -> Option<u16> {
        self.nodes.get(&home_address)?.sequence
    }

    /// Whether packets of a home address are accepted from this care-of address: it is a registered one, or was
    /// until now.
    pub fn accepts(&self, home_address: Ipv6Addr, care_of_address: Endpoint) -> bool {
        self.all(home_address).any(|binding| binding.is_valid() && binding.care_of_address == care_of_address)
            || self.former(home_address).iter().any(|path| path.care_of_address == care_of_address)
    }

    /// Somebody whose care-of address this is.
    pub(super) fn bound_to(&self, care_of_address: Endpoint) -> Option<Ipv6Addr> {
        let first = self.bound_to.range((care_of_address, Ipv6Addr::UNSPECIFIED)..).next();
        first.filter(|(bound, _)| *bound == care_of_address).map(|(_, home_address)| *home_address)
    }

    /// The bindings that the packets to this address follow, other than those of one node; also those that are about
    /// to be valid, because their home address is still being tested.
    pub(super) fn leading_to(&self, address: Ipv6Addr, except: Ipv6Addr) -> impl Iterator<Item = &Binding> {
        // What a binding forwards is given to its node.
        self.owners
            .of_prefixes_around(address)
            .filter(move |owner| *owner != except)
            .flat_map(|owner| self.all(owner))
            .filter(move |binding| binding.prefixes.iter().any(|prefix| prefix.contains(&address)))
    }

    pub(super) fn node(&mut self, home_address: Ipv6Addr) -> Option<&mut Node> {
        self.nodes.get_mut(&home_address)
    }

    pub(super) fn node_or_new(&mut self, home_address: Ipv6Addr) -> &mut Node {
        self.nodes.entry(home_address).or_default()
    }

    pub(super) fn insert(&mut self, binding: Binding) {
        let (home_address, bid) = (binding.home_address, binding.bid);
        self.remove(home_address, bid);
        if binding.is_valid() {
            self.bound_to.insert((binding.care_of_address, home_address));
        }
        self.node_or_new(home_address).bindings.insert(bid, binding);
    }

    pub(super) fn remove(&mut self, home_address: Ipv6Addr, bid: Option<u16>) -> Option<Binding> {
        let binding = self.nodes.get_mut(&home_address)?.bindings.remove(&bid)?;
        let care_of_address = binding.care_of_address;
        if !self.all(home_address).any(|other| other.is_valid() && other.care_of_address == care_of_address) {
            self.bound_to.remove(&(care_of_address, home_address));
        }
        Some(binding)
    }

    /// Forgets a node of which nothing is left.
    pub(super) fn tidy(&mut self, home_address: Ipv6Addr) {
        if self.nodes.get(&home_address).is_some_and(Node::is_empty) {
            self.nodes.remove(&home_address);
        }
    }
}
