//! The binding cache (RFC 6275 9.1, RFC 3963 6.1.1): one entry per home address.
//!
//! Only configured home addresses get an entry, so the cache cannot grow beyond the configuration.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Time, WallTime};
use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

use super::AuthorizedNode;
use super::owners::Owners;

/// Where a binding is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindingState {
    /// Duplicate address detection on the home link is under way; nothing is forwarded yet.
    Testing,
    /// Registered.
    Valid,
    /// De-registered; kept for `MAX_DELETE_BCE_TIMEOUT` so that a late Binding Update from the visited
    /// link meets its sequence number (RFC 6275 10.3.2).
    Deleted,
}

/// A binding cache entry that is a home registration.
#[derive(Debug, Clone)]
pub struct Binding {
    /// The home address, key of the cache.
    pub home_address: Ipv6Addr,
    /// The registered care-of address.
    pub care_of_address: Ipv6Addr,
    /// The care-of address before the last move or the de-registration, and until when packets from it are
    /// still accepted.
    pub previous_care_of_address: Option<(Ipv6Addr, Time)>,
    /// The R flag (RFC 3963 4.1).
    pub mobile_router: bool,
    /// The L flag: the link-local address is defended as well (RFC 6275 6.1.7).
    pub link_local: bool,
    /// The prefixes for which packets are forwarded.
    pub prefixes: Vec<Ipv6Net>,
    /// The last sequence number accepted.
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

    /// Whether packets from this care-of address are accepted: it is the registered one, or was until now.
    pub fn accepts(&self, care_of_address: Ipv6Addr) -> bool {
        self.care_of_address == care_of_address
            || self.previous_care_of_address.is_some_and(|(previous, _)| previous == care_of_address)
    }

    /// The link-local address that the L flag derives from the home address (RFC 6275 10.3.1).
    pub fn link_local_address(&self) -> Option<Ipv6Addr> {
        let interface_identifier = u128::from(self.home_address) & u128::from(u64::MAX);
        self.link_local.then(|| Ipv6Addr::from((0xfe80_u128 << 112) | interface_identifier))
    }
}

/// A binding as it is kept across a restart. Dates are absolute: the monotonic clock starts anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredBinding {
    /// Home address.
    pub home_address: Ipv6Addr,
    /// The last sequence number accepted, if any.
    pub sequence: Option<u16>,
    /// The last NTP timestamp accepted, if any.
    pub timestamp: Option<u64>,
    /// The registration, if there is one.
    pub registration: Option<StoredRegistration>,
}

/// The part of a [`StoredBinding`] that ends with its lifetime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRegistration {
    /// Care-of address.
    pub care_of_address: Ipv6Addr,
    /// The R flag.
    pub mobile_router: bool,
    /// The L flag.
    pub link_local: bool,
    /// Prefixes that are forwarded.
    pub prefixes: Vec<Ipv6Net>,
    /// Granted lifetime in seconds.
    pub lifetime_s: u64,
    /// When it ends.
    pub expires: WallTime,
    /// The care-of address before the last move, and until when packets from it are still accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<(Ipv6Addr, WallTime)>,
}

/// Entries by home address.
#[derive(Debug)]
pub struct BindingCache {
    entries: BTreeMap<Ipv6Addr, Binding>,
    owners: Owners,
}

impl BindingCache {
    /// An empty cache for these nodes.
    pub(super) fn of(nodes: &[AuthorizedNode]) -> BindingCache {
        BindingCache { entries: BTreeMap::new(), owners: Owners::of(nodes) }
    }

    /// Which node an address belongs to, whether it has a binding or not.
    pub(super) fn owners(&self) -> &Owners {
        &self.owners
    }

    /// The entry of a home address, whatever its state.
    pub fn get(&self, home_address: Ipv6Addr) -> Option<&Binding> {
        self.entries.get(&home_address)
    }

    /// The entry of a home address while it is valid.
    pub fn valid(&self, home_address: Ipv6Addr) -> Option<&Binding> {
        self.get(home_address).filter(|binding| binding.is_valid())
    }

    /// All valid entries, by home address.
    pub fn iter(&self) -> impl Iterator<Item = &Binding> {
        self.entries.values().filter(|binding| binding.is_valid())
    }

    /// The binding that the packets to this address follow, other than that of one node; also one that is about to
    /// be valid, because its home address is still being tested.
    pub(super) fn leading_to(&self, address: Ipv6Addr, except: Ipv6Addr) -> Option<&Binding> {
        // What a binding forwards is given to its node.
        self.owners
            .of_prefixes_around(address)
            .filter(|owner| *owner != except)
            .filter_map(|owner| self.get(owner))
            .filter(|binding| binding.state != BindingState::Deleted)
            .find(|binding| binding.prefixes.iter().any(|prefix| prefix.contains(&address)))
    }

    pub(super) fn get_mut(&mut self, home_address: Ipv6Addr) -> Option<&mut Binding> {
        self.entries.get_mut(&home_address)
    }

    pub(super) fn insert(&mut self, binding: Binding) {
        self.entries.insert(binding.home_address, binding);
    }

    pub(super) fn remove(&mut self, home_address: Ipv6Addr) -> Option<Binding> {
        self.entries.remove(&home_address)
    }
}
