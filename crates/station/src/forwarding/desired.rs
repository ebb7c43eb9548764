//! The desired forwarding state: tunnels, routes, rules, addresses and interface settings.
//!
//! Every entry has a key; two entries with one key cannot exist. Each protocol owns *scopes* (one per
//! binding, say) and replaces all entries of a scope at once with [`DesiredState::replace`]. Only what
//! differs becomes a [`Change`], additions before removals, so that a new path is up before the old one
//! goes and a refresh that changes nothing touches nothing.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::net::Ipv6Addr;
use std::sync::Arc;

use carnet_base::{Endpoint, next_of, sort};
pub use carnet_mobility::flow::{FlowAction, Ipv6Selector, Range, TrafficSelector};
use foldhash::{HashMap, HashMapExt};
use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

/// The name of the tunnel device through which every packet of the slow path comes and goes.
pub const TUNNEL_DEVICE: &str = "carnet0";

/// The kernel's main routing table.
pub const TABLE_MAIN: u32 = 254;
/// Holds one default route into [`TUNNEL_DEVICE`]: what arrives for a tunnel's end is handed to carnet
/// before the kernel's own IPv6 input sees it.
pub const TABLE_CAPTURE: u32 = 13_500;
/// Where packets from the mobile network go: into the tunnel, or nowhere.
pub const TABLE_TUNNEL: u32 = 13_501;
/// Where packets go that a mobile router does not forward: nowhere.
pub const TABLE_NOWHERE: u32 = 13_502;
/// The care-of addresses of mobile routers behind this one, on links that this one visits.
pub const TABLE_NESTED: u32 = 13_505;
/// Where the mobile networks of neighbouring vehicles are that are reached straight.
pub const TABLE_NEIGHBOURS: u32 = 13_504;
/// The home agent's address as one of this machine, for what comes under IPsec.
pub const TABLE_PROTECTED: u32 = 13_506;
/// The first of the tables with one uplink's default route; uplink `n` of the config has this plus `n`. That
/// is by the router of its care-of address; a second router at the same time has a table from
/// [`TABLE_NEXT_HOP`] on.
pub const TABLE_UPLINK: u32 = 13_510;

/// The first of the tables for further routers of an uplink, where care-of addresses on it leave by several.
pub const TABLE_NEXT_HOP: u32 = 13_600;

/// Rule priorities, in the order in which the kernel asks them. See `docs/kernel-rules.md`.
pub mod priority {
    /// In on an uplink, to a care-of address of a mobile router behind this one: before [`CAPTURE`], for both
    /// may have the same home agent.
    pub const TO_NESTED: u32 = 99;
    /// Packets that belong to a tunnel's end, taken before the `local` table claims them.
    pub const CAPTURE: u32 = 100;
    /// Messages about direct routes, from anywhere. Not [`CAPTURE`]: the kernel takes a rule without a source
    /// for there already where one with a source is like it otherwise.
    pub const CAPTURE_MESSAGES: u32 = 101;
    /// The `local` table, moved down from 0 so that [`CAPTURE`] comes first.
    pub const LOCAL: u32 = 110;
    /// What carnet hands to IPsec, and what it wants protected.
    pub const PROTECTED: u32 = 111;
    /// To the mobile network, from a neighbouring vehicle, where the interface to these is an uplink as well.
    pub const FROM_NEIGHBOURS: u32 = 112;
    /// What comes in on an uplink and was not captured goes nowhere: a mobile router is no way from one
    /// visited network to another, nor past the home agent into the mobile network.
    pub const FROM_UPLINK: u32 = 115;
    /// To the mobile network: the main table, never the tunnel.
    pub const TO_MOBILE_NETWORK: u32 = 120;
    /// What came straight from another mobile router, and is not for the mobile network, goes nowhere: one is
    /// no way for the other.
    pub const FROM_DIRECT: u32 = 122;
    /// What comes in over GeoNetworking and is not for the mobile network goes nowhere: a vehicle is no way
    /// for others into its uplinks, nor into its tunnel.
    pub const FROM_STATIONS: u32 = 125;
    /// From a care-of address of a mobile router behind this one: its uplink's table, for tunnels.
    pub const FROM_NESTED: u32 = 128;
    /// From a care-of address, by this machine itself: its uplink's table.
    pub const FROM_CARE_OF_ADDRESS: u32 = 130;
    /// The same as [`FROM_MOBILE_NETWORK`], before it: the table of neighbouring vehicles, where it has a
    /// route.
    pub const TO_NEIGHBOURS: u32 = 135;
    /// From the mobile network or the home address: the tunnel's table.
    pub const FROM_MOBILE_NETWORK: u32 = 140;
    /// From a LAN interface, but with somebody else's source address: nowhere (RFC 3963 9).
    pub const FROM_LAN: u32 = 145;
    /// From a mobile node itself, when the sender has chosen no address: the tunnel's table, and with it the
    /// home address.
    pub const FROM_NODE: u32 = 150;
}

/// Which end of a NEMO tunnel this station is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TunnelEnd {
    /// Inner packets *from* [`Tunnel::inner`] go in; inner packets *to* it come out.
    MobileRouter,
    /// Inner packets *to* [`Tunnel::inner`] go in; inner packets *from* it come out.
    HomeAgent,
    /// The same at a mobile router, of another mobile router's networks (`carnet_mobility::direct`): what
    /// comes out is for the own mobile network and nobody else.
    Direct,
}

/// One tunnel for IPv6 packets between a care-of address and a home agent: in IPv6 (RFC 2473), in IPv4, or in
/// UDP (RFC 5555). A home address has several where several of its care-of addresses are registered (RFC
/// 5648).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// Which end this is.
    pub end: TunnelEnd,
    /// Whose binding it follows from. Several home addresses may share a care-of address.
    pub home_address: Ipv6Addr,
    /// Binding Identifier (RFC 5648), where there is one.
    #[serde(default)]
    pub bid: Option<u16>,
    /// Outer source of what is sent, outer destination of what is accepted.
    pub local: Endpoint,
    /// Outer destination of what is sent, outer source of what is accepted (RFC 6275 10.4.5).
    pub remote: Endpoint,
    /// The mobile side: the home address as a /128, and the mobile network prefixes.
    pub inner: Vec<Ipv6Net>,
    /// Whether packets are sent here. `false` after a handover, while packets that were already on
    /// their way over the old path are still accepted. Where several tunnels of a home address say so, a
    /// [`Distribution`] tells which packets each gets.
    pub transmit: bool,
    /// The largest inner packet, in octets, that fits the path without fragmenting the outer packet.
    pub mtu: u32,
}

/// Which of a home address's tunnels each packet takes, where it is not one for all. Key: end and home
/// address, so that a change is one replaced entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// Which end this is.
    pub end: TunnelEnd,
    /// Whose packets.
    pub home_address: Ipv6Addr,
    /// The home agent's address: duplicated packets inside IPv4 have an IPv6 header between it and the home
    /// address.
    pub home_agent: Ipv6Addr,
    /// The first that matches a packet and has a tunnel left decides. The last matches everything.
    pub rules: Vec<DistributionRule>,
}

/// What becomes of some of the packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DistributionRule {
    /// Which packets: described as they go towards the mobile network, at either end. `None`: all.
    pub selector: Option<TrafficSelector>,
    /// What becomes of them.
    pub action: FlowAction,
    /// The tunnels that they may take, the preferred one first.
    pub members: Vec<Member>,
}

/// A tunnel in a [`DistributionRule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its Binding Identifier: conversations stay with it though its addresses become others.
    pub bid: Option<u16>,
    /// Our end.
    pub local: Endpoint,
    /// The other end.
    pub remote: Endpoint,
    /// Its share, relative to the other members', for [`FlowAction::Balance`].
    pub weight: u16,
}

/// A socket for IPv6 packets inside IPv4 or UDP. Key: all of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Socket {
    /// The end that it is.
    pub local: Endpoint,
    /// The interface by which alone its packets come and go, whatever the kernel's routes prefer.
    pub interface: Option<String>,
}

/// What a route does with a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteAction {
    /// Sends it out of an interface, to a gateway or straight to the neighbour.
    Forward {
        /// Name of the interface.
        interface: String,
        /// The next hop; `None` when the destination is on the link.
        gateway: Option<Ipv6Addr>,
    },
    /// Answers with ICMPv6 Destination Unreachable.
    Unreachable,
    /// Hands it to this machine itself, on [`TUNNEL_DEVICE`].
    Local,
}

/// A kernel route. Key: table, destination, metric. A home agent wants some for each of very many bindings,
/// which do all the same: they share what they do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Routing table number.
    pub table: u32,
    /// Destination prefix, host bits zero.
    pub destination: Ipv6Net,
    /// Kernel metric (lower wins).
    pub metric: u32,
    /// What the route does.
    pub action: Arc<RouteAction>,
    /// The address of this machine's own packets here whose sender has chosen none; `None`: the kernel
    /// chooses (RFC 6724).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Box<Ipv6Addr>>,
}

impl Route {
    /// The interface that packets go out of, if any.
    pub fn interface(&self) -> Option<&str> {
        match &*self.action {
            RouteAction::Forward { interface, .. } => Some(interface),
            RouteAction::Unreachable | RouteAction::Local => None,
        }
    }

    /// Whether packets go into [`TUNNEL_DEVICE`].
    pub fn is_into_tunnel_device(&self) -> bool {
        self.interface() == Some(TUNNEL_DEVICE)
    }
}

/// A policy routing rule. Key: all of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rule {
    /// Order among rules (lower is asked first), one of [`priority`].
    pub priority: u32,
    /// Only packets that came in here.
    pub input_interface: Option<String>,
    /// Only packets from here.
    pub from: Option<Ipv6Net>,
    /// Only packets to here.
    pub to: Option<Ipv6Net>,
    /// Only packets whose upper-layer protocol is this one.
    pub protocol: Option<u8>,
    /// The table that is asked.
    pub table: u32,
}

/// An address that carnet puts on an interface (without duplicate address detection). Key: both fields
/// but the prefix length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceAddress {
    /// Name of the interface.
    pub interface: String,
    /// Address and prefix length.
    pub address: Ipv6Addr,
    /// 128 where no on-link prefix shall follow from it.
    pub prefix_length: u8,
    /// The kernel does not choose it as a source by itself (RFC 6724 5, rule 3).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deprecated: bool,
}

/// A `net.ipv6.conf` switch that carnet needs in a certain position and puts back at the end; `rp_filter` is
/// IPv4's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Interface name, or `all`.
    pub interface: String,
    /// The name below `net.ipv6.conf.<interface>`, such as `forwarding`.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// One thing that the data path shall have. A home agent has some for each of very many bindings, so that
/// kinds of which there are few are boxed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// See [`Setting`].
    Setting(Box<Setting>),
    /// See [`InterfaceAddress`].
    Address(InterfaceAddress),
    /// See [`Route`].
    Route(Route),
    /// See [`Socket`].
    Socket(Socket),
    /// See [`Tunnel`]. Shared by those who send packets into it.
    Tunnel(Arc<Tunnel>),
    /// See [`Distribution`].
    Distribution(Box<Distribution>),
    /// See [`Rule`].
    Rule(Box<Rule>),
}

/// What identifies an [`Entry`]. The order is the order of installation: settings, addresses, routes,
/// sockets, tunnels, what is distributed among these, and last the rules that lead packets there; removal
/// goes the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key<'a> {
    /// Interface and name of a setting.
    Setting(&'a str, &'a str),
    /// Interface and address.
    Address(&'a str, Ipv6Addr),
    /// Table, destination, metric.
    Route(u32, Ipv6Net, u32),
    /// A socket is its own key.
    Socket(&'a Socket),
    /// Local end, remote end, home address.
    Tunnel(Endpoint, Endpoint, Ipv6Addr),
    /// End and home address.
    Distribution(TunnelEnd, Ipv6Addr),
    /// A rule is its own key.
    Rule(&'a Rule),
}

impl Entry {
    /// What identifies this entry.
    pub fn key(&self) -> Key<'_> {
        match self {
            Entry::Setting(s) => Key::Setting(&s.interface, &s.name),
            Entry::Address(a) => Key::Address(&a.interface, a.address),
            Entry::Route(r) => Key::Route(r.table, r.destination, r.metric),
            Entry::Socket(s) => Key::Socket(s),
            Entry::Tunnel(t) => Key::Tunnel(t.local, t.remote, t.home_address),
            Entry::Distribution(d) => Key::Distribution(d.end, d.home_address),
            Entry::Rule(r) => Key::Rule(r),
        }
    }
}

/// An entry in a set or map of entries by [`Key`]: it is equal to every entry with its key.
///
/// A home agent has some entries for each of very many bindings. All who keep one share it, and the key is in
/// it.
#[derive(Debug, Clone)]
pub struct Keyed(pub Arc<Entry>);

impl PartialEq for Keyed {
    fn eq(&self, other: &Keyed) -> bool {
        self.0.key() == other.0.key()
    }
}

impl Eq for Keyed {}

impl Hash for Keyed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key().hash(state);
    }
}

impl PartialOrd for Keyed {
    fn partial_cmp(&self, other: &Keyed) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Keyed {
    fn cmp(&self, other: &Keyed) -> Ordering {
        self.0.key().cmp(&other.0.key())
    }
}

/// One difference between what is wanted now and what was wanted before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// This entry shall exist; one with the same key is replaced without a moment in which neither is.
    Set(Arc<Entry>),
    /// This entry shall no longer exist.
    Remove(Arc<Entry>),
}

/// Everything that is wanted, by scope, and the changes not yet fetched.
#[derive(Debug, Clone)]
pub struct DesiredState<S> {
    /// Who wants each. Not in order: that would be a walk through the keys of very many bindings for each of
    /// them.
    entries: HashMap<Keyed, S>,
    /// What each wants, by key.
    scopes: HashMap<S, Box<[Keyed]>>,
    changes: VecDeque<Change>,
}

impl<S: Eq + Hash + Clone> DesiredState<S> {
    /// A state in which nothing is wanted.
    pub fn new() -> Self {
        DesiredState { entries: HashMap::new(), scopes: HashMap::new(), changes: VecDeque::new() }
    }

    /// Makes `entries` all that `scope` wants; of two with one key the last. Costs O(n log m) in the entries
    /// of the scope only.
    ///
    /// A key that another scope holds stays with whoever asked last; when that scope lets go of it, it is
    /// removed. Scopes are cut so that this does not happen in practice.
    pub fn replace(&mut self, scope: S, entries: impl IntoIterator<Item = Entry>) {
        let mut wanted: Vec<Keyed> = entries.into_iter().map(|entry| Keyed(Arc::new(entry))).collect();
        wanted.reverse();
        sort(&mut wanted);
        wanted.dedup();
        let before = self.scopes.get(&scope).map_or(&[][..], |before| before);
        if before.len() == wanted.len() && before.iter().zip(&wanted).all(|(old, new)| old.0 == new.0) {
            return;
        }
        for entry in &mut wanted {
            match self.entries.remove_entry(entry) {
                Some((old, owner)) => {
                    if owner != scope {
                        self.let_go(&owner, &old);
                    }
                    if old.0 == entry.0 {
                        *entry = old;
                    } else {
                        self.changes.push_back(Change::Set(entry.0.clone()));
                    }
                }
                None => self.changes.push_back(Change::Set(entry.0.clone())),
            }
            self.entries.insert(entry.clone(), scope.clone());
        }
        let before = self.scopes.remove(&scope).unwrap_or_default();
        for entry in before.iter().rev().filter(|entry| wanted.binary_search(entry).is_err()) {
            if self.entries.get(entry) == Some(&scope)
                && let Some((entry, _)) = self.entries.remove_entry(entry)
            {
                self.changes.push_back(Change::Remove(entry.0));
            }
        }
        if !wanted.is_empty() {
            self.scopes.insert(scope, wanted.into());
        }
    }

    /// Another scope has asked for the same key.
    fn let_go(&mut self, owner: &S, entry: &Keyed) {
        if let Some(entries) = self.scopes.get_mut(owner) {
            *entries = entries.iter().filter(|kept| *kept != entry).cloned().collect();
        }
    }

    /// Whether a scope wants nothing.
    pub fn is_empty(&self, scope: &S) -> bool {
        !self.scopes.contains_key(scope)
    }

    /// The next change to carry out, oldest first.
    pub fn poll_change(&mut self) -> Option<Change> {
        next_of(&mut self.changes)
    }

    /// All that is wanted, in order of installation.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        let mut entries: Vec<&Keyed> = self.entries.keys().collect();
        sort(&mut entries);
        entries.into_iter().map(|entry| &*entry.0)
    }
}

impl<S: Eq + Hash + Clone> Default for DesiredState<S> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(text: &str, metric: u32) -> Entry {
        Entry::Route(Route {
            table: TABLE_MAIN,
            destination: text.parse().expect("prefix"),
            metric,
            action: RouteAction::Unreachable.into(),
            source: None,
        })
    }

    fn drain(state: &mut DesiredState<u8>) -> Vec<Change> {
        std::iter::from_fn(|| state.poll_change()).collect()
    }

    #[test]
    fn the_same_again_changes_nothing() {
        let mut state = DesiredState::new();
        state.replace(1, [route("2001:db8:a::/64", 1), route("2001:db8:b::/64", 1)]);
        assert_eq!(drain(&mut state).len(), 2);
        state.replace(1, [route("2001:db8:b::/64", 1), route("2001:db8:a::/64", 1)]);
        assert_eq!(drain(&mut state), []);
    }

    #[test]
    fn additions_come_before_removals_and_only_the_scope_is_touched() {
        let mut state = DesiredState::new();
        state.replace(1, [route("2001:db8:a::/64", 1)]);
        state.replace(2, [route("2001:db8:c::/64", 1)]);
        drain(&mut state);
        state.replace(1, [route("2001:db8:b::/64", 1)]);
        assert_eq!(
            drain(&mut state),
            [
                Change::Set(route("2001:db8:b::/64", 1).into()),
                Change::Remove(route("2001:db8:a::/64", 1).into())
            ]
        );
        state.replace(1, []);
        assert_eq!(drain(&mut state), [Change::Remove(route("2001:db8:b::/64", 1).into())]);
        assert_eq!(state.entries().count(), 1);
    }

    #[test]
    fn a_key_is_whose_who_asked_last() {
        let mut state = DesiredState::new();
        let mut other = route("2001:db8:a::/64", 1);
        if let Entry::Route(route) = &mut other {
            route.action = RouteAction::Forward { interface: TUNNEL_DEVICE.into(), gateway: None }.into();
        }
        state.replace(1, [route("2001:db8:a::/64", 1)]);
        state.replace(2, [other.clone()]);
        drain(&mut state);
        // Who had it before, and says the same as before, asks anew.
        state.replace(1, [route("2001:db8:a::/64", 1)]);
        assert_eq!(drain(&mut state), [Change::Set(route("2001:db8:a::/64", 1).into())]);
        state.replace(2, []);
        assert_eq!(drain(&mut state), []);
        state.replace(1, []);
        assert_eq!(drain(&mut state), [Change::Remove(route("2001:db8:a::/64", 1).into())]);
    }

    #[test]
    fn a_changed_value_is_one_replacement() {
        let mut state = DesiredState::new();
        state.replace(1, [route("2001:db8:a::/64", 1)]);
        drain(&mut state);
        let mut other = route("2001:db8:a::/64", 1);
        if let Entry::Route(r) = &mut other {
            r.action = RouteAction::Forward { interface: TUNNEL_DEVICE.into(), gateway: None }.into();
        }
        state.replace(1, [other.clone()]);
        assert_eq!(drain(&mut state), [Change::Set(other.into())]);
    }
}
