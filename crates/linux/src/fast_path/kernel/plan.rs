//! Computes from the tunnels which devices, routes, rules and addresses the kernel's ip6_tunnel path needs.
//!
//! This module does not call the kernel: [`plan_entries`] returns the desired entries, and
//! [`super::KernelTunnels`] installs them. The [`KernelEntryKey`]s are in the order of installation; entries
//! are removed in reverse order.
//!
//! | priority | rule | what it does |
//! |---|---|---|
//! | 88 | mobile router: in on a tunnel device, from a prefix of NAT64 | jumps to 90 |
//! | 89 | mobile router: in on a tunnel device, from another address of `::/8` | drops: reserved sources |
//! | 90 | in on a tunnel device, from (home agent) or to (mobile router) a binding's prefix | jumps to 94 |
//! | 92 | in on a tunnel device | drops (RFC 3963 9, RFC 6275 10.4.5) |
//! | 94 | | does nothing: target of the jump from 90 |
//! | 95 | remote to local end, protocol 41 (mobile router: in on an uplink) | `local`: to tunnel device |
//! | 95 | home agent: in on `carnet0`, to the agent, ICMPv6 | `local`: packets from carnet, see [`super`] |
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

use crate::fast_path::Ipv6Tunnel;
use crate::netlink::{IPV6_MINIMUM_MTU, KernelRuleAction};

/// The kernel's table of local addresses.
const TABLE_LOCAL: u32 = 255;
/// Table with one default route into [`TUNNEL_DEVICE`], for packets to the home agent's address that are not
/// for a tunnel device.
pub(crate) const TABLE_HOME_AGENT: u32 = 13_503;
/// Metric of routes into a tunnel device. The kernel prefers them to the route into [`TUNNEL_DEVICE`], which
/// stays installed.
pub(crate) const TUNNEL_ROUTE_METRIC: u32 = 512;

const RULE_PRIORITY_NAT64_SOURCES: u32 = 88;
const RULE_PRIORITY_RESERVED_SOURCES: u32 = 89;
const RULE_PRIORITY_BINDING_PREFIXES: u32 = 90;
const RULE_PRIORITY_OTHER_SOURCES: u32 = 92;
const RULE_PRIORITY_JUMP_TARGET: u32 = 94;
const RULE_PRIORITY_TUNNELLED_PACKETS: u32 = 95;
const RULE_PRIORITY_PROBE_ANSWERS: u32 = 96;
const RULE_PRIORITY_FOREIGN_TUNNELLED_PACKETS: u32 = 97;
const RULE_PRIORITY_HOME_AGENT: u32 = 98;

/// Prefix of reserved source addresses (`is_reserved` of the slow path), except `NAT64_PREFIXES`.
const RESERVED_PREFIX: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 8);
/// Prefixes inside `RESERVED_PREFIX` whose addresses are valid sources (RFC 6052 2.1, RFC 8215).
const NAT64_PREFIXES: [Ipv6Net; 2] = [
    Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96),
    Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48),
];

const PROTOCOL_IPV6: u8 = 41;
const PROTOCOL_ICMPV6: u8 = 58;

/// Local and remote end of a tunnel.
pub(crate) type TunnelAddresses = (Ipv6Addr, Ipv6Addr);

/// A rule and its action.
pub(crate) type RuleWithAction = (Rule, KernelRuleAction);

/// A desired entry of the kernel. The variants are in the order of installation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KernelEntryKey {
    /// The default route of [`TABLE_HOME_AGENT`].
    AgentRoute,
    /// A rule that must exist before the addresses and devices that it concerns.
    Guard(RuleWithAction),
    /// A home agent's address on [`TUNNEL_DEVICE`].
    Address(Ipv6Addr),
    /// A tunnel device.
    Device(TunnelAddresses),
    /// A rule that leads received packets to a tunnel device.
    Accept(RuleWithAction),
    /// A route into a device: its table and its destination.
    Route(u32, Ipv6Net),
}

/// Content of an entry; it can change while the key of the entry stays the same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct KernelEntryValue {
    /// MTU of a device.
    pub(crate) mtu: u32,
    /// Name of the device; for a route, of the device to which it leads.
    pub(crate) device_name: String,
}

/// The tunnels of the desired forwarding state.
#[derive(Debug, Default)]
pub(crate) struct DesiredTunnels {
    tunnels: BTreeMap<(TunnelAddresses, Ipv6Addr), Ipv6Tunnel>,
    /// For each role and home address: the ends of the tunnel that carnet last allowed to transmit.
    last_transmitting_ends: BTreeMap<(bool, Ipv6Addr), TunnelAddresses>,
    /// Home addresses whose packets go through several tunnels. These tunnels have no devices: a device would
    /// send all packets through one tunnel, and would accept every copy of a packet.
    slow_path_bindings: BTreeSet<(bool, Ipv6Addr)>,
}

fn is_home_agent_tunnel(tunnel: &Ipv6Tunnel) -> bool {
    tunnel.end == TunnelEnd::HomeAgent
}

impl DesiredTunnels {
    /// Adds or changes a tunnel.
    pub(crate) fn set_tunnel(&mut self, tunnel: &Ipv6Tunnel) {
        let ends = (tunnel.local, tunnel.remote);
        if tunnel.may_transmit {
            self.last_transmitting_ends.insert((is_home_agent_tunnel(tunnel), tunnel.home_address), ends);
        }
        self.tunnels.insert((ends, tunnel.home_address), tunnel.clone());
    }

    /// Removes a tunnel.
    pub(crate) fn remove_tunnel(&mut self, tunnel: &Ipv6Tunnel) {
        let ends = (tunnel.local, tunnel.remote);
        self.tunnels.remove(&(ends, tunnel.home_address));
        let name = (is_home_agent_tunnel(tunnel), tunnel.home_address);
        if self.last_transmitting_ends.get(&name) == Some(&ends) {
            self.last_transmitting_ends.remove(&name);
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
    pub(crate) fn addresses_of_devices(&self) -> BTreeSet<TunnelAddresses> {
        let is_held = |tunnel: &Ipv6Tunnel| {
            self.slow_path_bindings.contains(&(is_home_agent_tunnel(tunnel), tunnel.home_address))
        };
        let mut ends: BTreeSet<TunnelAddresses> = self.tunnels.keys().map(|(ends, _)| *ends).collect();
        // A device carries the packets of all bindings between its two ends. If one of these bindings needs
        // the slow path, the ends get no device.
        for ((held, _), _) in self.tunnels.iter().filter(|(_, tunnel)| is_held(tunnel)) {
            ends.remove(held);
        }
        ends
    }

    /// Returns the tunnel ends on whose path an inner packet of 1280 octets fits without fragmentation.
    pub(crate) fn addresses_of_paths_with_sufficient_mtu(&self) -> BTreeSet<TunnelAddresses> {
        let mut ends = self.addresses_of_devices();
        for ((narrow, _), tunnel) in &self.tunnels {
            if tunnel.mtu < IPV6_MINIMUM_MTU {
                ends.remove(narrow);
            }
        }
        ends
    }

    /// Returns whether the station sends packets into this tunnel. If a home address has several tunnels,
    /// only the last one that carnet allowed to transmit does.
    fn transmits_into(&self, tunnel: &Ipv6Tunnel) -> bool {
        let latest = self.last_transmitting_ends.get(&(is_home_agent_tunnel(tunnel), tunnel.home_address));
        tunnel.may_transmit && latest.is_none_or(|ends| *ends == (tunnel.local, tunnel.remote))
    }
}

fn rule_with_priority(priority: u32) -> Rule {
    Rule { priority, ..Rule::default() }
}

fn host_prefix(address: Ipv6Addr) -> Option<Ipv6Net> {
    Some(Ipv6Net::from(address))
}

/// Returns all desired entries. `devices` has the name of the device for each pair of ends. `slow` has table
/// and destination of each route into [`TUNNEL_DEVICE`]. `uplinks` are the uplinks of a mobile router.
pub(crate) fn plan_entries(
    tunnels: &DesiredTunnels,
    devices: &BTreeMap<TunnelAddresses, String>,
    slow: &BTreeSet<(u32, Ipv6Net)>,
    uplinks: &[String],
) -> BTreeMap<KernelEntryKey, KernelEntryValue> {
    let mut wanted: BTreeMap<KernelEntryKey, KernelEntryValue> = BTreeMap::new();
    let mut add = |key: KernelEntryKey| wanted.insert(key, KernelEntryValue::default());
    let mut mtus: BTreeMap<TunnelAddresses, u32> = BTreeMap::new();
    for tunnel in tunnels.tunnels.values() {
        let ends = (tunnel.local, tunnel.remote);
        let Some(device) = devices.get(&ends) else { continue };
        let mtu = mtus.entry(ends).or_insert(u32::MAX);
        *mtu = tunnel.mtu.min(*mtu);
        add(KernelEntryKey::Guard((
            rule_with_priority(RULE_PRIORITY_JUMP_TARGET),
            KernelRuleAction::Nothing,
        )));
        let input_interface = Some(device.clone());
        for prefix in tunnel.inner_prefixes.iter().copied().map(Some) {
            let (from, to) = if is_home_agent_tunnel(tunnel) { (prefix, None) } else { (None, prefix) };
            let rule = Rule {
                input_interface: input_interface.clone(),
                from,
                to,
                ..rule_with_priority(RULE_PRIORITY_BINDING_PREFIXES)
            };
            add(KernelEntryKey::Guard((rule, KernelRuleAction::Goto(RULE_PRIORITY_JUMP_TARGET))));
        }
        let not_inner = Rule {
            input_interface: input_interface.clone(),
            ..rule_with_priority(RULE_PRIORITY_OTHER_SOURCES)
        };
        add(KernelEntryKey::Guard((not_inner, KernelRuleAction::Discard)));

        let tunnelled = |priority, input_interface, table| Rule {
            priority,
            input_interface,
            from: host_prefix(tunnel.remote),
            to: host_prefix(tunnel.local),
            protocol: Some(PROTOCOL_IPV6),
            table,
            ..Rule::default()
        };
        if is_home_agent_tunnel(tunnel) {
            let to = host_prefix(tunnel.local);
            add(KernelEntryKey::AgentRoute);
            add(KernelEntryKey::Guard((
                Rule { to, table: TABLE_HOME_AGENT, ..rule_with_priority(RULE_PRIORITY_HOME_AGENT) },
                KernelRuleAction::Lookup,
            )));
            add(KernelEntryKey::Guard((
                Rule {
                    to,
                    input_interface: Some(TUNNEL_DEVICE.to_owned()),
                    protocol: Some(PROTOCOL_ICMPV6),
                    table: TABLE_LOCAL,
                    ..rule_with_priority(RULE_PRIORITY_TUNNELLED_PACKETS)
                },
                KernelRuleAction::Lookup,
            )));
            add(KernelEntryKey::Address(tunnel.local));
            add(KernelEntryKey::Accept((
                tunnelled(RULE_PRIORITY_TUNNELLED_PACKETS, None, TABLE_LOCAL),
                KernelRuleAction::Lookup,
            )));
        } else {
            let from = |from, priority| Rule {
                input_interface: input_interface.clone(),
                from: Some(from),
                ..rule_with_priority(priority)
            };
            for prefix in NAT64_PREFIXES {
                add(KernelEntryKey::Guard((
                    from(prefix, RULE_PRIORITY_NAT64_SOURCES),
                    KernelRuleAction::Goto(RULE_PRIORITY_BINDING_PREFIXES),
                )));
            }
            add(KernelEntryKey::Guard((
                from(RESERVED_PREFIX, RULE_PRIORITY_RESERVED_SOURCES),
                KernelRuleAction::Discard,
            )));
            let probed = Rule {
                input_interface,
                from: host_prefix(tunnel.remote),
                to: host_prefix(tunnel.home_address),
                protocol: Some(PROTOCOL_ICMPV6),
                table: TABLE_CAPTURE,
                ..rule_with_priority(RULE_PRIORITY_PROBE_ANSWERS)
            };
            add(KernelEntryKey::Guard((probed, KernelRuleAction::Lookup)));
            add(KernelEntryKey::Guard((
                tunnelled(RULE_PRIORITY_FOREIGN_TUNNELLED_PACKETS, None, TABLE_UNREACHABLE),
                KernelRuleAction::Lookup,
            )));
            for uplink in uplinks {
                let rule = tunnelled(RULE_PRIORITY_TUNNELLED_PACKETS, Some(uplink.clone()), TABLE_LOCAL);
                add(KernelEntryKey::Accept((rule, KernelRuleAction::Lookup)));
            }
        }
    }
    for (ends, mtu) in mtus {
        let device = devices.get(&ends).cloned().unwrap_or_default();
        wanted.insert(KernelEntryKey::Device(ends), KernelEntryValue { mtu, device_name: device });
    }
    for tunnel in tunnels.tunnels.values().filter(|tunnel| tunnels.transmits_into(tunnel)) {
        let Some(device) = devices.get(&(tunnel.local, tunnel.remote)) else { continue };
        let into = match tunnel.end {
            TunnelEnd::MobileRouter => vec![(TABLE_TUNNEL, Ipv6Net::default())],
            // Tunnels of direct routes have no devices, see `Ipv6Tunnel::from_desired`.
            TunnelEnd::Direct => Vec::new(),
            TunnelEnd::HomeAgent => {
                tunnel.inner_prefixes.iter().map(|prefix| (TABLE_MAIN, *prefix)).collect()
            }
        };
        // Route into the device only the packets that would otherwise take the slow path. At home, for
        // example, no packet takes the slow path.
        for (table, destination) in into.into_iter().filter(|route| slow.contains(route)) {
            wanted.insert(
                KernelEntryKey::Route(table, destination),
                KernelEntryValue { mtu: 0, device_name: device.clone() },
            );
        }
    }
    wanted
}
