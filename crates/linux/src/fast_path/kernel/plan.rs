//! Computes from the tunnels which devices, routes, rules and addresses the kernel's ip6_tunnel path needs.
//!
//! This module does not call the kernel: [`plan`] returns the desired entries, and [`super::Kernel`] installs
//! them. The [`Key`]s are in the order of installation; entries are removed in reverse order.
//!
//! | priority | rule | what it does |
//! |---|---|---|
//! | 88 | mobile router: in on a tunnel device, from a prefix of NAT64 | jumps to 90 |
//! | 89 | mobile router: in on a tunnel device, from another address of `::/8` | drops: reserved sources |
//! | 90 | in on a tunnel device, from (home agent) or to (mobile router) a binding's prefix | jumps to 94 |
//! | 92 | in on a tunnel device | drops (RFC 3963 9, RFC 6275 10.4.5) |
//! | 94 | | does nothing: target of the jump from 90 |
//! | 95 | remote to local end, protocol 41 (mobile router: in on an uplink) | `local`: to tunnel device |
//! | 95 | home agent: in on `carnet0`, to it, ICMPv6 | `local`: packets from carnet, see [`super`] |
//! | 96 | mobile router: in on a tunnel device, agent to home address, ICMPv6 | 13500: answers to probes |
//! | 97 | mobile router: remote to local end, protocol 41 | 13502: drops, unless it came by an uplink |
//! | 98 | home agent: to the agent | 13503: `default dev carnet0` |
//!
//! A rule for a protocol matches the protocol after all extension headers. In a fragment it matches the
//! protocol that the Fragment header names. So a rule for tunnelled packets never matches Mobility Headers,
//! even if options or routing headers precede them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use carnet_nemo::forwarding::desired::{
    Rule, TABLE_CAPTURE, TABLE_MAIN, TABLE_TUNNEL, TABLE_UNREACHABLE, TUNNEL_DEVICE, TunnelEnd,
};
use ipnet::Ipv6Net;

use crate::fast_path::Tunnel;
use crate::netlink::{Action, IPV6_MINIMUM_MTU};

/// The kernel's table of local addresses.
const TABLE_LOCAL: u32 = 255;
/// Table with one default route into [`TUNNEL_DEVICE`], for packets to the home agent's address that are not
/// for a tunnel device.
pub(crate) const TABLE_AGENT: u32 = 13_503;
/// Metric of routes into a tunnel device. The kernel prefers them to the route into [`TUNNEL_DEVICE`], which
/// stays installed.
pub(crate) const METRIC: u32 = 512;

const NOT_RESERVED: u32 = 88;
const RESERVED: u32 = 89;
const INNER: u32 = 90;
const NOT_INNER: u32 = 92;
const CHECKED: u32 = 94;
const TAKEN: u32 = 95;
const PROBED: u32 = 96;
const NOT_TAKEN: u32 = 97;
const AGENT: u32 = 98;

/// Prefix of reserved source addresses (`is_reserved` of the slow path). The next constant has exceptions.
const RESERVED_PREFIX: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 8);
const NAT64_PREFIXES: [Ipv6Net; 2] = [
    Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96),
    Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48),
];

const PROTOCOL_IPV6: u8 = 41;
const PROTOCOL_ICMPV6: u8 = 58;

/// Local and remote end of a tunnel.
pub(crate) type TunnelAddresses = (Ipv6Addr, Ipv6Addr);

/// A rule and its action.
pub(crate) type ActingRule = (Rule, Action);

/// A desired entry of the kernel. The variants are in the order of installation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// The default route of [`TABLE_AGENT`].
    AgentRoute,
    /// A rule that must exist before the addresses and devices that it concerns.
    Guard(ActingRule),
    /// A home agent's address on [`TUNNEL_DEVICE`].
    Address(Ipv6Addr),
    /// A tunnel device.
    Device(TunnelAddresses),
    /// A rule that leads received packets to a tunnel device.
    Accept(ActingRule),
    /// A route into a device: its table and its destination.
    Route(u32, Ipv6Net),
}

/// Content of an entry; it can change while the key of the entry stays the same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Value {
    /// MTU of a device.
    pub(crate) mtu: u32,
    /// Name of the device; for a route, of the device to which it leads.
    pub(crate) device: String,
}

/// The tunnels of the desired forwarding state.
#[derive(Debug, Default)]
pub(crate) struct Tunnels {
    tunnels: BTreeMap<(TunnelAddresses, Ipv6Addr), Tunnel>,
    /// For each role and home address: the ends of the tunnel that carnet last allowed to transmit.
    latest: BTreeMap<(bool, Ipv6Addr), TunnelAddresses>,
    /// Home addresses whose packets go through several tunnels. These tunnels have no devices: a device would
    /// send all packets through one tunnel, and would accept every copy of a packet.
    slow_path_bindings: BTreeSet<(bool, Ipv6Addr)>,
}

fn is_agent(tunnel: &Tunnel) -> bool {
    tunnel.end == TunnelEnd::HomeAgent
}

impl Tunnels {
    /// Adds or changes a tunnel.
    pub(crate) fn set(&mut self, tunnel: &Tunnel) {
        let ends = (tunnel.local, tunnel.remote);
        if tunnel.transmit {
            self.latest.insert((is_agent(tunnel), tunnel.home_address), ends);
        }
        self.tunnels.insert((ends, tunnel.home_address), tunnel.clone());
    }

    /// Removes a tunnel.
    pub(crate) fn remove(&mut self, tunnel: &Tunnel) {
        let ends = (tunnel.local, tunnel.remote);
        self.tunnels.remove(&(ends, tunnel.home_address));
        let name = (is_agent(tunnel), tunnel.home_address);
        if self.latest.get(&name) == Some(&ends) {
            self.latest.remove(&name);
        }
    }

    /// Sets whether the tunnels of a home address are left to the slow path (`slow_path_bindings`) or have
    /// devices.
    pub(crate) fn leave_to_slow_path(&mut self, (end, home_address): (TunnelEnd, Ipv6Addr), held: bool) {
        let name = (end == TunnelEnd::HomeAgent, home_address);
        let _ =
            if held { self.slow_path_bindings.insert(name) } else { self.slow_path_bindings.remove(&name) };
    }

    /// Returns the ends of all tunnels that may have devices.
    pub(crate) fn ends(&self) -> BTreeSet<TunnelAddresses> {
        let is_held =
            |tunnel: &Tunnel| self.slow_path_bindings.contains(&(is_agent(tunnel), tunnel.home_address));
        let mut ends: BTreeSet<TunnelAddresses> = self.tunnels.keys().map(|(ends, _)| *ends).collect();
        // A device serves all bindings between its two ends. If one of them needs the slow path, these ends
        // get no device.
        for ((held, _), _) in self.tunnels.iter().filter(|(_, tunnel)| is_held(tunnel)) {
            ends.remove(held);
        }
        ends
    }

    /// Returns the tunnel ends on whose path an inner packet of 1280 octets fits without fragmentation.
    pub(crate) fn wide_ends(&self) -> BTreeSet<TunnelAddresses> {
        let mut ends = self.ends();
        for ((narrow, _), tunnel) in &self.tunnels {
            if tunnel.mtu < IPV6_MINIMUM_MTU {
                ends.remove(narrow);
            }
        }
        ends
    }

    /// Returns whether the station sends packets into this tunnel. If a home address has several tunnels,
    /// only the last one that carnet allowed to transmit does.
    fn transmits(&self, tunnel: &Tunnel) -> bool {
        let latest = self.latest.get(&(is_agent(tunnel), tunnel.home_address));
        tunnel.transmit && latest.is_none_or(|ends| *ends == (tunnel.local, tunnel.remote))
    }
}

fn rule(priority: u32) -> Rule {
    Rule { priority, ..Rule::default() }
}

fn host(address: Ipv6Addr) -> Option<Ipv6Net> {
    Some(Ipv6Net::from(address))
}

/// Returns all desired entries. `devices` has the name of the device for each pair of ends. `slow` has table
/// and destination of each route into [`TUNNEL_DEVICE`]. `uplinks` are the uplinks of a mobile router.
pub(crate) fn plan(
    tunnels: &Tunnels,
    devices: &BTreeMap<TunnelAddresses, String>,
    slow: &BTreeSet<(u32, Ipv6Net)>,
    uplinks: &[String],
) -> BTreeMap<Key, Value> {
    let mut wanted: BTreeMap<Key, Value> = BTreeMap::new();
    let mut add = |key: Key| wanted.insert(key, Value::default());
    let mut mtus: BTreeMap<TunnelAddresses, u32> = BTreeMap::new();
    for tunnel in tunnels.tunnels.values() {
        let ends = (tunnel.local, tunnel.remote);
        let Some(device) = devices.get(&ends) else { continue };
        let mtu = mtus.entry(ends).or_insert(u32::MAX);
        *mtu = tunnel.mtu.min(*mtu);
        add(Key::Guard((rule(CHECKED), Action::Nothing)));
        let input_interface = Some(device.clone());
        for prefix in tunnel.inner.iter().copied().map(Some) {
            let (from, to) = if is_agent(tunnel) { (prefix, None) } else { (None, prefix) };
            let rule = Rule { input_interface: input_interface.clone(), from, to, ..rule(INNER) };
            add(Key::Guard((rule, Action::Goto(CHECKED))));
        }
        let not_inner = Rule { input_interface: input_interface.clone(), ..rule(NOT_INNER) };
        add(Key::Guard((not_inner, Action::Discard)));

        let tunnelled = |priority, input_interface, table| Rule {
            priority,
            input_interface,
            from: host(tunnel.remote),
            to: host(tunnel.local),
            protocol: Some(PROTOCOL_IPV6),
            table,
            ..Rule::default()
        };
        if is_agent(tunnel) {
            let to = host(tunnel.local);
            add(Key::AgentRoute);
            add(Key::Guard((Rule { to, table: TABLE_AGENT, ..rule(AGENT) }, Action::Lookup)));
            add(Key::Guard((
                Rule {
                    to,
                    input_interface: Some(TUNNEL_DEVICE.to_owned()),
                    protocol: Some(PROTOCOL_ICMPV6),
                    table: TABLE_LOCAL,
                    ..rule(TAKEN)
                },
                Action::Lookup,
            )));
            add(Key::Address(tunnel.local));
            add(Key::Accept((tunnelled(TAKEN, None, TABLE_LOCAL), Action::Lookup)));
        } else {
            let from = |from, priority| Rule {
                input_interface: input_interface.clone(),
                from: Some(from),
                ..rule(priority)
            };
            for prefix in NAT64_PREFIXES {
                add(Key::Guard((from(prefix, NOT_RESERVED), Action::Goto(INNER))));
            }
            add(Key::Guard((from(RESERVED_PREFIX, RESERVED), Action::Discard)));
            let probed = Rule {
                input_interface,
                from: host(tunnel.remote),
                to: host(tunnel.home_address),
                protocol: Some(PROTOCOL_ICMPV6),
                table: TABLE_CAPTURE,
                ..rule(PROBED)
            };
            add(Key::Guard((probed, Action::Lookup)));
            add(Key::Guard((tunnelled(NOT_TAKEN, None, TABLE_UNREACHABLE), Action::Lookup)));
            for uplink in uplinks {
                let rule = tunnelled(TAKEN, Some(uplink.clone()), TABLE_LOCAL);
                add(Key::Accept((rule, Action::Lookup)));
            }
        }
    }
    for (ends, mtu) in mtus {
        let device = devices.get(&ends).cloned().unwrap_or_default();
        wanted.insert(Key::Device(ends), Value { mtu, device });
    }
    for tunnel in tunnels.tunnels.values().filter(|tunnel| tunnels.transmits(tunnel)) {
        let Some(device) = devices.get(&(tunnel.local, tunnel.remote)) else { continue };
        let into = match tunnel.end {
            TunnelEnd::MobileRouter => vec![(TABLE_TUNNEL, Ipv6Net::default())],
            // Tunnels of direct routes have no devices, see `Tunnel::of`.
            TunnelEnd::Direct => Vec::new(),
            TunnelEnd::HomeAgent => tunnel.inner.iter().map(|prefix| (TABLE_MAIN, *prefix)).collect(),
        };
        // Route into the device only the packets that would otherwise take the slow path. At home, for
        // example, no packet takes the slow path.
        for (table, destination) in into.into_iter().filter(|route| slow.contains(route)) {
            wanted.insert(Key::Route(table, destination), Value { mtu: 0, device: device.clone() });
        }
    }
    wanted
}
