//! Tunnel devices of the kernel's ip6_tunnel module: the kernel itself encapsulates and decapsulates packets.
//!
//! Each pair of tunnel ends has a device `cn0`, `cn1` and so on. Routes lead packets into the tunnel device
//! that would otherwise go into the TUN device. Rules lead packets from the remote end to the tunnel device
//! (`plan`). The TUN device and carnet keep all other packets: Mobility Headers, packets of senders without a
//! binding (they get a Binding Error), and all packets while the mobile router has no binding. A handover
//! replaces one route; the old device receives packets until its tunnel is removed.
//!
//! A device accepts packets only for an address that the machine owns. The home agent's address is otherwise
//! only routed to the machine. With this path carnet assigns it to the TUN device, as a deprecated address,
//! so that the kernel does not select it as a source. Rules in front of the `local` table lead all packets
//! for this address to carnet as before, except the bindings' tunnelled packets.
//!
//! **ICMPv6 errors about outer packets.** The kernel handles them on this path (RFC 2473 8). The kernel
//! lowers the path's MTU and informs the inner source. The kernel receives errors to a care-of address
//! directly. Errors to the home agent's address come to carnet. [`Kernel::is_error_about_device`] recognises
//! errors about a device's packets. carnet writes these errors back into the TUN device, and a special rule
//! leads them to the kernel.
//!
//! **Narrow paths.** The kernel does not fragment outer packets. Inner packets of up to 1280 octets must
//! always pass (RFC 2473 7.1 (b)). With the outer header they do not fit a path with an MTU below 1320. So a
//! tunnel whose MTU is below 1280 has no device and uses the slow path. After a Packet Too Big with such an
//! MTU, a tunnel uses the slow path for [`NARROW_FOR`]. A Packet Too Big with an MTU below 1280 is false (RFC
//! 8201 4).
//!
//! **Answers to path MTU probes** come out of a tunnel device, addressed to the tunnel end itself. At the
//! home agent they reach carnet like all packets for its address. A mobile router has a rule for ICMPv6 from
//! the home agent to the home address. Then carnet writes all other packets that match the rule back into the
//! TUN device.
//!
//! **Differences to the other paths.** The outer flow label is the kernel's hash of the inner flow (RFC
//! 6438), not carnet's. So carnet accepts a Packet Too Big without checking the label. A congestion mark of
//! the inner packet becomes ECT(0) outside (RFC 3168 9.1.1; RFC 6040 copies it); Decapsulation follows RFC
//! 6040. The kernel does not clamp TCP's segment size. Also, carnet does not see when a path is used, so it
//!       probes the path MTU only at a registration or handover. A rule drops packets with a wrong inner
//!       source without counting them. Every packet passes the rules of all devices one after the other. So
//!       this path serves some hundred bindings, and tunnels beyond [`DEVICES_MAX`] take the slow path.
//!
//! Devices have the device group [`GROUP`]. After a crash, carnet recognises its devices by this group and
//! the device kind.

mod plan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_nemo::forwarding::desired::{Route, RouteAction, TUNNEL_DEVICE, TunnelEnd};
use ipnet::Ipv6Net;

use super::{FastPathCounters, Ports, Tunnel, TunnelEnds, TunnelTraffic};
use crate::ROUTE_PROTOCOL;
use crate::error::{Error, Result};
use crate::netlink::{
    AddressInfo, ChangedParts, IPV6_MINIMUM_MTU, Ip6Tunnel, LinkInfo, Requests, effective_metric,
};
use crate::{clock, settings};
use plan::{Key, METRIC, TABLE_AGENT, TunnelAddresses, Tunnels, Value, plan};

/// Device group of carnet's tunnel devices.
pub(crate) const GROUP: u32 = 13_500;
/// Maximum number of pairs of tunnel ends with a device; further pairs take the slow path.
const DEVICES_MAX: usize = 256;
/// Tunnel Hop Limit (RFC 2473 6.3, RFC 3963 5.5).
const HOP_LIMIT: u8 = 64;
/// Tunnel ends that no node uses (RFC 6666), to test whether the kernel supports tunnel devices.
const UNUSED_ENDS: TunnelAddresses =
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 2));

/// Lowest MTU of a path that carries an inner packet of 1280 octets.
const NARROW: u32 = IPV6_MINIMUM_MTU + HEADER as u32;

/// Time for which a path counts as narrow. RFC 8201 4 requires at least five minutes and recommends ten.
const NARROW_FOR: Duration = Duration::from_secs(600);

const PACKET_TOO_BIG: u8 = 2;
const ICMPV6: u8 = 58;
const IPV6: u8 = 41;
const HEADER: usize = 40;
const ICMPV6_HEADER: usize = 8;

/// The tunnel devices of the kernel, with their rules, routes and addresses.
#[derive(Debug)]
pub(crate) struct Kernel {
    tunnel_device: u32,
    tunnels: Tunnels,
    pub(super) ports: Ports,
    /// Table and destination of each route into the TUN device.
    slow: BTreeSet<(u32, Ipv6Net)>,
    names: BTreeMap<TunnelAddresses, String>,
    indices: BTreeMap<TunnelAddresses, u32>,
    /// Tunnel ends for which the kernel refused a device.
    refused: BTreeSet<TunnelAddresses>,
    /// Tunnel ends whose path is too narrow for a device: outer packets would have to be fragmented. The
    /// value is the time at which carnet tries a device again.
    narrow: BTreeMap<TunnelAddresses, Time>,
    installed: BTreeMap<Key, Value>,
    dirty: bool,
    crowded: bool,
    /// Sum of the counts of all deleted devices.
    past: FastPathCounts,
    /// Number of settings that this path has written.
    pub(super) setting_writes: u64,
}

/// Traffic counts of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct FastPathCounts {
    traffic: TunnelTraffic,
    failed: u64,
}

impl FastPathCounts {
    fn add(&mut self, other: FastPathCounts) {
        self.traffic.encapsulated_packets += other.traffic.encapsulated_packets;
        self.traffic.encapsulated_octets += other.traffic.encapsulated_octets;
        self.traffic.decapsulated_packets += other.traffic.decapsulated_packets;
        self.traffic.decapsulated_octets += other.traffic.decapsulated_octets;
        self.failed += other.failed;
    }
}

/// Returns the first name of the form `cnN` that no interface has.
fn free_name<'a>(taken: impl Fn(&str) -> bool + 'a) -> String {
    (0u32..).map(|number| format!("cn{number}")).find(|name| !taken(name)).unwrap_or_default()
}

impl Kernel {
    /// Opens this fast path, if the kernel can create ip6_tunnel devices.
    ///
    /// # Errors
    ///
    /// Returns why the kernel cannot create them, in one line.
    pub(crate) fn open(
        requests: &mut Requests,
        tunnel_device: u32,
        ports: Ports,
    ) -> std::result::Result<Kernel, String> {
        let probe = |requests: &mut Requests| {
            let links = requests.links().list()?;
            let name = free_name(|name| links.iter().any(|link| link.name == name));
            let (local, remote) = UNUSED_ENDS;
            let device = Ip6Tunnel { name: &name, group: GROUP, local, remote, hop_limit: HOP_LIMIT };
            requests.links().add_ip6_tunnel(&device)?;
            match requests.links().find(&name)? {
                Some(link) => requests.links().delete(link.index),
                None => Ok(()),
            }
        };
        probe(requests).map_err(|error: Error| match error.raw_os_error() {
            Some(libc::EOPNOTSUPP) => "this kernel has no tunnel devices (module ip6_tunnel)".to_owned(),
            _ => error.to_string(),
        })?;
        Ok(Kernel {
            tunnel_device,
            tunnels: Tunnels::default(),
            ports,
            slow: BTreeSet::new(),
            names: BTreeMap::new(),
            indices: BTreeMap::new(),
            refused: BTreeSet::new(),
            narrow: BTreeMap::new(),
            installed: BTreeMap::new(),
            dirty: false,
            crowded: false,
            past: FastPathCounts::default(),
            setting_writes: 0,
        })
    }

    pub(super) fn set(&mut self, tunnel: &Tunnel) {
        self.tunnels.set(tunnel);
        self.dirty = true;
    }

    pub(super) fn remove(&mut self, tunnel: &Tunnel) {
        self.tunnels.remove(tunnel);
        self.dirty = true;
    }

    pub(super) fn leave_to_slow_path(&mut self, binding: (TunnelEnd, Ipv6Addr), held: bool) {
        self.tunnels.leave_to_slow_path(binding, held);
        self.dirty = true;
    }

    pub(super) fn set_ports(&mut self, ports: Ports) {
        self.dirty |= self.ports != ports;
        self.ports = ports;
    }

    /// Returns whether this path has, or will have, rules before the local table's rule.
    pub(super) fn has_early_rules(&self) -> bool {
        !self.installed.is_empty() || !self.tunnels.ends().is_empty()
    }

    /// Changes the kernel's state to the desired tunnels. `slow` has the present routes into the TUN device;
    /// `None` if they are unchanged.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses an entry that this fast path needs. If the kernel only refuses a tunnel
    /// device, the tunnel's packets take the slow path, and the function succeeds.
    pub(super) fn commit(
        &mut self,
        requests: &mut Requests,
        slow: Option<BTreeSet<(u32, Ipv6Net)>>,
    ) -> std::result::Result<(), String> {
        let moved = slow.is_some_and(|slow| std::mem::replace(&mut self.slow, slow.clone()) != slow);
        if !std::mem::take(&mut self.dirty) && !moved {
            return Ok(());
        }
        self.give_names(requests).map_err(|error| error.to_string())?;
        loop {
            let wanted = plan(&self.tunnels, &self.usable(), &self.slow, &self.ports.uplinks);
            match self.install(requests, &wanted) {
                Ok(()) => break self.take_out_all_but(requests, &wanted).map_err(|error| error.to_string()),
                // Each round excludes one more device, so the loop ends.
                Err((Some(ends), error)) if self.refused.insert(ends) => {
                    tracing::warn!(
                        "{error}; tunnel packets between {} and {} take the slow path",
                        ends.0,
                        ends.1
                    );
                }
                Err((_, error)) => break Err(error.to_string()),
            }
        }
    }

    fn usable(&self) -> BTreeMap<TunnelAddresses, String> {
        let wide = self.tunnels.wide_ends();
        let usable = self.names.iter().filter(|(ends, _)| {
            wide.contains(ends) && !self.refused.contains(ends) && !self.narrow.contains_key(ends)
        });
        usable.map(|(ends, name)| (*ends, name.clone())).collect()
    }

    /// Finds a name for each new device, and forgets the names of removed tunnels.
    fn give_names(&mut self, requests: &mut Requests) -> Result<()> {
        let ends = self.tunnels.ends();
        self.names.retain(|known, _| ends.contains(known));
        self.refused.retain(|known| ends.contains(known));
        self.narrow.retain(|known, _| ends.contains(known));
        if ends.len() == self.names.len() {
            return Ok(());
        }
        let links = requests.links().list()?;
        for new in ends {
            if self.names.contains_key(&new) {
                continue;
            }
            if self.names.len() >= DEVICES_MAX {
                if !std::mem::replace(&mut self.crowded, true) {
                    tracing::warn!(
                        "carnet makes at most {DEVICES_MAX} tunnel devices in the kernel: packets of the \
                         further tunnels take the slow path"
                    );
                }
                break;
            }
            let name = free_name(|name| {
                links.iter().any(|link| link.name == name) || self.names.values().any(|known| known == name)
            });
            self.names.insert(new, name);
        }
        Ok(())
    }

    /// Installs missing entries, in the order of [`Key`]. An error contains the tunnel ends whose entry the
    /// kernel refused; `None` for an entry of no tunnel.
    fn install(
        &mut self,
        requests: &mut Requests,
        wanted: &BTreeMap<Key, Value>,
    ) -> std::result::Result<(), (Option<TunnelAddresses>, Error)> {
        for (key, value) in wanted {
            let before = self.installed.get(key);
            if before == Some(value) {
                continue;
            }
            let replace = before.is_some();
            let ends = match key {
                Key::Device(ends) => Some(*ends),
                Key::Route(..) => self.names.iter().find(|(_, n)| **n == value.device).map(|(ends, _)| *ends),
                _ => None,
            };
            self.put(requests, key, value, replace).map_err(|error| (ends, error))?;
            self.installed.insert(key.clone(), value.clone());
        }
        Ok(())
    }

    fn put(&mut self, requests: &mut Requests, key: &Key, value: &Value, replace: bool) -> Result<()> {
        match key {
            Key::AgentRoute => requests.routes().set(&agent_route(), Some(self.tunnel_device), replace),
            Key::Guard((rule, action)) | Key::Accept((rule, action)) => {
                requests.rules().add_acting(rule, *action, ROUTE_PROTOCOL)
            }
            Key::Address(address) => {
                match requests.addresses().add_deprecated(self.tunnel_device, TUNNEL_DEVICE, *address) {
                    Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
                    other => other,
                }
            }
            Key::Device(ends) => self.put_device(requests, *ends, value),
            Key::Route(table, destination) => {
                let index = self.index_of(&value.device);
                let route = device_route(*table, *destination, &value.device);
                requests.routes().set(&route, index, replace)
            }
        }
    }

    fn index_of(&self, device: &str) -> Option<u32> {
        let ends = self.names.iter().find(|(_, name)| *name == device).map(|(ends, _)| *ends)?;
        self.indices.get(&ends).copied()
    }

    fn put_device(&mut self, requests: &mut Requests, ends: TunnelAddresses, value: &Value) -> Result<()> {
        let name = value.device.as_str();
        let known = requests.links().find(name)?.filter(|link| self.indices.get(&ends) == Some(&link.index));
        let index = match known {
            Some(link) => link.index,
            None => {
                let (local, remote) = ends;
                let device = Ip6Tunnel { name, group: GROUP, local, remote, hop_limit: HOP_LIMIT };
                requests.links().add_ip6_tunnel(&device)?;
                let link = requests.links().find(name)?.ok_or_else(|| {
                    Error::kernel(format!("look up {name}"), std::io::Error::from_raw_os_error(libc::ENODEV))
                })?;
                self.indices.insert(ends, link.index);
                settings::enable_ipv6(name, &mut self.setting_writes)?;
                link.index
            }
        };
        requests.links().configure_ip6_tunnel(index, name, value.mtu)
    }

    /// Removes the installed entries that `wanted` does not contain, in reverse order of [`Key`].
    fn take_out_all_but(&mut self, requests: &mut Requests, wanted: &BTreeMap<Key, Value>) -> Result<()> {
        let mut result = Ok(());
        let stale: Vec<Key> =
            self.installed.keys().rev().filter(|key| !wanted.contains_key(key)).cloned().collect();
        for key in stale {
            let value = self.installed.remove(&key).unwrap_or_default();
            if let Err(error) = self.take_out(requests, &key, &value) {
                tracing::warn!("{error}");
                result = Err(error);
            }
        }
        result
    }

    fn take_out(&mut self, requests: &mut Requests, key: &Key, value: &Value) -> Result<()> {
        match key {
            Key::AgentRoute => {
                let route = agent_route();
                requests.routes().delete(route.table, route.destination, route.metric)
            }
            Key::Guard((rule, action)) | Key::Accept((rule, action)) => {
                requests.rules().delete_acting(rule, *action, ROUTE_PROTOCOL)
            }
            Key::Address(address) => {
                requests.addresses().delete(self.tunnel_device, TUNNEL_DEVICE, *address, 128)
            }
            Key::Device(ends) => {
                self.past.add(counts(&statistics(), &value.device));
                match self.indices.remove(ends) {
                    Some(index) => requests.links().delete(index),
                    None => Ok(()),
                }
            }
            Key::Route(table, destination) => requests.routes().delete(*table, *destination, METRIC),
        }
    }

    /// Removes all entries of this path from the kernel.
    pub(super) fn close(&mut self, requests: &mut Requests) -> Result<()> {
        self.take_out_all_but(requests, &BTreeMap::new())
    }

    /// Marks installed entries that another program has removed; the next commit installs them again. Returns
    /// their number.
    pub(crate) fn mark_removed_entries(
        &mut self,
        requests: &mut Requests,
        dirty: ChangedParts,
        links: &BTreeMap<String, LinkInfo>,
        addresses: &[AddressInfo],
    ) -> Result<u64> {
        if self.installed.is_empty()
            || !(dirty.links || dirty.addresses || dirty.own_routes || dirty.own_rules)
        {
            return Ok(0);
        }
        let routes = requests.routes().list(None, Some(ROUTE_PROTOCOL))?;
        let rules = requests.rules().list()?;
        let is_there = |key: &Key, value: &Value| match key {
            Key::AgentRoute => routes.iter().any(|route| route.table == TABLE_AGENT),
            Key::Guard((rule, action)) | Key::Accept((rule, action)) => rules.iter().any(|found| {
                found.protocol == ROUTE_PROTOCOL && found.rule == *rule && found.action == *action
            }),
            Key::Address(address) => addresses
                .iter()
                .any(|found| found.index == self.tunnel_device && found.address.address == *address),
            Key::Device(ends) => links
                .get(&value.device)
                .is_some_and(|link| link.up && self.indices.get(ends) == Some(&link.index)),
            Key::Route(table, destination) => routes.iter().any(|route| {
                (route.table, route.destination, route.metric) == (*table, *destination, METRIC)
                    && matches!(route.hops.as_slice(),
                        [hop] if links.get(&value.device).is_some_and(|link| link.index == hop.index))
            }),
        };
        let before = self.installed.len();
        let lost: Vec<Key> = self
            .installed
            .iter()
            .filter(|(key, value)| !is_there(key, value))
            .map(|(key, _)| key.clone())
            .collect();
        for key in &lost {
            tracing::debug!(?key, "lost");
            self.installed.remove(key);
        }
        self.dirty |= !lost.is_empty();
        Ok((before - self.installed.len()) as u64)
    }

    /// Returns whether a packet is an ICMPv6 error about a packet that a tunnel device has sent. The caller
    /// writes such an error back into the TUN device, so that the kernel gets it.
    pub(super) fn is_error_about_device(&mut self, packet: &[u8]) -> bool {
        let Some((destination, message)) = icmpv6_of(packet) else { return false };
        let concerns = quoted_ends(destination, message)
            .is_some_and(|ends| self.installed.contains_key(&Key::Device(ends)));
        concerns && {
            self.handle_icmpv6(destination, message);
            true
        }
    }

    /// Handles an ICMPv6 message to an address of this machine. If it reports a path MTU that is too small
    /// for a tunnel device, the next commit removes the device.
    pub(super) fn handle_icmpv6(&mut self, destination: Ipv6Addr, message: &[u8]) {
        let Some(ends) = quoted_ends(destination, message) else { return };
        if let Some(mtu) = narrow_mtu(message)
            && self.installed.contains_key(&Key::Device(ends))
            && self.narrow.insert(ends, clock::monotonic() + NARROW_FOR).is_none()
        {
            tracing::info!(
                "the path between {} and {} has an MTU of only {mtu} octets: its tunnel packets take the \
                 slow path",
                ends.0,
                ends.1
            );
            self.dirty = true;
        }
    }

    /// Forgets paths that were too narrow more than [`NARROW_FOR`] ago, so that the next commit tries a
    /// device again.
    pub(super) fn expire(&mut self) {
        let (now, before) = (clock::monotonic(), self.narrow.len());
        self.narrow.retain(|_, until| *until > now);
        self.dirty |= self.narrow.len() < before;
    }

    /// Returns whether a device carries the packets between these ends.
    pub(super) fn carries(&self, ends: TunnelAddresses) -> bool {
        self.installed.contains_key(&Key::Device(ends))
    }

    /// Returns the traffic of each device, by its tunnel ends.
    pub(super) fn tunnel_traffic(&self) -> HashMap<TunnelEnds, TunnelTraffic> {
        let text = statistics();
        let devices = self.installed.iter().filter_map(|(key, value)| match key {
            Key::Device((local, remote)) => {
                Some((((*local).into(), (*remote).into()), counts(&text, &value.device).traffic))
            }
            _ => None,
        });
        devices.collect()
    }

    pub(super) fn counters(&self) -> FastPathCounters {
        let (text, mut sum) = (statistics(), self.past);
        for (key, value) in &self.installed {
            if let Key::Device(_) = key {
                sum.add(counts(&text, &value.device));
            }
        }
        FastPathCounters { total: sum.traffic, left_to_slow_path: vec![("failed", sum.failed)] }
    }
}

/// Returns the MTU in a Packet Too Big if it is too low for an inner packet of 1280 octets. A message with an
/// MTU below 1280 is discarded, because every IPv6 path carries that much (RFC 8201 4).
fn narrow_mtu(message: &[u8]) -> Option<u32> {
    let [PACKET_TOO_BIG, _, _, _, a, b, c, d, ..] = *message else { return None };
    Some(u32::from_be_bytes([a, b, c, d])).filter(|mtu| (IPV6_MINIMUM_MTU..NARROW).contains(mtu))
}

/// Returns whether carnet created this device.
pub(crate) fn is_ours(link: &LinkInfo) -> bool {
    link.group == GROUP && link.is_ip6_tunnel
}

fn agent_route() -> Route {
    Route {
        table: TABLE_AGENT,
        destination: Ipv6Net::default(),
        metric: effective_metric(0),
        action: RouteAction::Forward { interface: TUNNEL_DEVICE.to_owned(), gateway: None }.into(),
        source: None,
    }
}

fn device_route(table: u32, destination: Ipv6Net, device: &str) -> Route {
    let action = RouteAction::Forward { interface: device.to_owned(), gateway: None };
    Route { table, destination, metric: METRIC, action: action.into(), source: None }
}

fn address_at(octets: &[u8], at: usize) -> Option<Ipv6Addr> {
    Some(<[u8; 16]>::try_from(octets.get(at..at + 16)?).ok()?.into())
}

/// Returns destination and message of an ICMPv6 packet without extension headers; ICMPv6 errors have none.
fn icmpv6_of(packet: &[u8]) -> Option<(Ipv6Addr, &[u8])> {
    (*packet.get(6)? == ICMPV6).then_some((address_at(packet, 24)?, packet.get(HEADER..)?))
}

/// Returns the tunnel ends in the packet that an ICMPv6 error quotes. Returns `None` if the error was not
/// sent to the source of that packet.
fn quoted_ends(destination: Ipv6Addr, message: &[u8]) -> Option<TunnelAddresses> {
    // Types 1 to 4 are errors (RFC 4443 3).
    let is_error = (1..=4).contains(message.first()?);
    let quoted = message.get(ICMPV6_HEADER..)?;
    // The quoted packet of a device has IPv6 as its next header. Devices send no fragments.
    if !is_error || *quoted.get(6)? != IPV6 {
        return None;
    }
    let (local, remote) = (address_at(quoted, 8)?, address_at(quoted, 24)?);
    (destination == local).then_some((local, remote))
}

/// Reads the kernel's statistics of the devices in this network namespace.
fn statistics() -> String {
    fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default()
}

/// Returns the packet counts of a device from the text of the kernel's statistics. A line is `NAME: octets
/// packets errs drop ...`: 8 columns for received packets, then 8 columns for sent packets.
fn counts(statistics: &str, device: &str) -> FastPathCounts {
    let line = statistics.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
    let numbers: Vec<u64> = line
        .map(|rest| rest.split_whitespace().map(|number| number.parse().unwrap_or(0)).collect())
        .unwrap_or_default();
    let number = |column: usize| numbers.get(column).copied().unwrap_or(0);
    FastPathCounts {
        traffic: TunnelTraffic {
            encapsulated_packets: number(9),
            encapsulated_octets: number(8),
            decapsulated_packets: number(1),
            decapsulated_octets: number(0),
        },
        failed: number(2) + number(3) + number(10) + number(11),
    }
}
