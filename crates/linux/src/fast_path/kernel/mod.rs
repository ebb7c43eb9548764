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
//! directly. Errors to the home agent's address come to carnet. [`KernelTunnels::is_error_about_device`]
//! recognises errors about a device's packets. carnet writes these errors back into the TUN device, and a
//! special rule leads them to the kernel.
//!
//! **Narrow paths.** The kernel does not fragment outer packets. Inner packets of up to 1280 octets must
//! always pass (RFC 2473 7.1 (b)). With the outer header they do not fit a path with an MTU below 1320. So a
//! tunnel whose MTU is below 1280 has no device and uses the slow path. After a Packet Too Big with such an
//! MTU, a tunnel uses the slow path for [`SMALL_MTU_LIFETIME`]. A Packet Too Big with an MTU below 1280 is
//! false (RFC 8201 4).
//!
//! **Answers to path MTU probes** come out of a tunnel device, addressed to the tunnel end itself. At the
//! home agent they reach carnet like all packets for its address. A mobile router has a rule for ICMPv6 from
//! the home agent to the home address. Then carnet writes all other packets that match the rule back into the
//! TUN device.
//!
//! **Differences to the other paths.** The outer flow label is the kernel's hash of the inner flow (RFC
//! 6438), not carnet's. So carnet accepts a Packet Too Big without checking the label. If an inner packet has
//! a congestion mark, the kernel writes ECT(0) into the outer header (RFC 3168 9.1.1). RFC 6040 would copy
//! the mark. The kernel decapsulates by RFC 6040. The kernel does not clamp TCP's segment size. Also, carnet
//! does not see when a path is used. So it probes the path MTU only at a registration or handover. A rule
//! drops packets with a wrong inner source without counting them. Every packet passes the rules of all
//! devices one after the other. So this path serves some hundred bindings, and tunnels beyond
//! [`MAX_TUNNEL_DEVICES`] take the slow path.
//!
//! Devices have the device group [`DEVICE_GROUP`]. After a crash, carnet recognises its devices by this group
//! and the device kind.

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

use super::{FastPathCounters, InterfaceRoles, Ipv6Tunnel, TunnelEnds, TunnelTraffic};
use crate::ROUTE_PROTOCOL;
use crate::error::{Error, Result};
use crate::netlink::{
    AddressInfo, ChangedParts, IPV6_MINIMUM_MTU, LinkInfo, NetlinkRequests, NewIp6Tunnel, effective_metric,
};
use crate::{clock, kernel_settings};
use plan::{
    DesiredTunnels, KernelEntryKey, KernelEntryValue, TABLE_HOME_AGENT, TUNNEL_ROUTE_METRIC, TunnelAddresses,
    plan_entries,
};

/// Device group of carnet's tunnel devices.
pub(crate) const DEVICE_GROUP: u32 = 13_500;
/// Maximum number of pairs of tunnel ends with a device; further pairs take the slow path.
const MAX_TUNNEL_DEVICES: usize = 256;
/// Tunnel Hop Limit (RFC 2473 6.3, RFC 3963 5.5).
const TUNNEL_HOP_LIMIT: u8 = 64;
/// Tunnel ends that no node uses (RFC 6666), to test whether the kernel supports tunnel devices.
const UNUSED_TUNNEL_ADDRESSES: TunnelAddresses =
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 2));

/// Lowest MTU of a path that carries an inner packet of 1280 octets.
const LOWEST_SUFFICIENT_MTU: u32 = IPV6_MINIMUM_MTU + IPV6_HEADER_LENGTH as u32;

/// Time for which carnet regards a path as too narrow for a device. RFC 8201 4 requires at least five minutes
/// and recommends ten.
const SMALL_MTU_LIFETIME: Duration = Duration::from_secs(600);

const PACKET_TOO_BIG: u8 = 2;
const PROTOCOL_ICMPV6: u8 = 58;
const PROTOCOL_IPV6: u8 = 41;
const IPV6_HEADER_LENGTH: usize = 40;
const ICMPV6_HEADER_LENGTH: usize = 8;

/// The tunnel devices of the kernel, with their rules, routes and addresses.
#[derive(Debug)]
pub(crate) struct KernelTunnels {
    tunnel_device_index: u32,
    desired_tunnels: DesiredTunnels,
    pub(super) interface_roles: InterfaceRoles,
    /// Table and destination of each route into the TUN device.
    slow_path_routes: BTreeSet<(u32, Ipv6Net)>,
    device_names: BTreeMap<TunnelAddresses, String>,
    device_indices: BTreeMap<TunnelAddresses, u32>,
    /// Tunnel ends for which the kernel refused a device.
    refused_tunnel_addresses: BTreeSet<TunnelAddresses>,
    /// Tunnel ends whose path is too narrow for a device: outer packets would have to be fragmented. The
    /// value is the time at which carnet tries a device again.
    paths_with_small_mtu: BTreeMap<TunnelAddresses, Time>,
    installed_entries: BTreeMap<KernelEntryKey, KernelEntryValue>,
    needs_update: bool,
    has_too_many_tunnels: bool,
    /// Sum of the counts of all deleted devices.
    deleted_device_counts: FastPathCounts,
    /// Number of settings that this path has written.
    pub(super) setting_writes: u64,
}

/// Traffic counts of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct FastPathCounts {
    tunnel_traffic: TunnelTraffic,
    failed_packets: u64,
}

impl FastPathCounts {
    fn add_counts(&mut self, other: FastPathCounts) {
        self.tunnel_traffic.encapsulated_packets += other.tunnel_traffic.encapsulated_packets;
        self.tunnel_traffic.encapsulated_octets += other.tunnel_traffic.encapsulated_octets;
        self.tunnel_traffic.decapsulated_packets += other.tunnel_traffic.decapsulated_packets;
        self.tunnel_traffic.decapsulated_octets += other.tunnel_traffic.decapsulated_octets;
        self.failed_packets += other.failed_packets;
    }
}

/// Returns the first name of the form `cnN` that no interface has.
fn free_device_name<'a>(taken: impl Fn(&str) -> bool + 'a) -> String {
    (0u32..).map(|number| format!("cn{number}")).find(|name| !taken(name)).unwrap_or_default()
}

impl KernelTunnels {
    /// Opens this fast path, if the kernel can create ip6_tunnel devices.
    ///
    /// # Errors
    ///
    /// Returns why the kernel cannot create them, in one line.
    pub(crate) fn open(
        requests: &mut NetlinkRequests,
        tunnel_device: u32,
        ports: InterfaceRoles,
    ) -> std::result::Result<KernelTunnels, String> {
        let probe = |requests: &mut NetlinkRequests| {
            let links = requests.link_requests().list_links()?;
            let name = free_device_name(|name| links.iter().any(|link| link.name == name));
            let (local, remote) = UNUSED_TUNNEL_ADDRESSES;
            let device = NewIp6Tunnel {
                name: &name,
                device_group: DEVICE_GROUP,
                local,
                remote,
                hop_limit: TUNNEL_HOP_LIMIT,
            };
            requests.link_requests().add_ip6_tunnel(&device)?;
            match requests.link_requests().find_link(&name)? {
                Some(link) => requests.link_requests().delete_link(link.index),
                None => Ok(()),
            }
        };
        probe(requests).map_err(|error: Error| match error.raw_os_error() {
            Some(libc::EOPNOTSUPP) => "this kernel has no tunnel devices (module ip6_tunnel)".to_owned(),
            _ => error.to_string(),
        })?;
        Ok(KernelTunnels {
            tunnel_device_index: tunnel_device,
            desired_tunnels: DesiredTunnels::default(),
            interface_roles: ports,
            slow_path_routes: BTreeSet::new(),
            device_names: BTreeMap::new(),
            device_indices: BTreeMap::new(),
            refused_tunnel_addresses: BTreeSet::new(),
            paths_with_small_mtu: BTreeMap::new(),
            installed_entries: BTreeMap::new(),
            needs_update: false,
            has_too_many_tunnels: false,
            deleted_device_counts: FastPathCounts::default(),
            setting_writes: 0,
        })
    }

    pub(super) fn set_tunnel(&mut self, tunnel: &Ipv6Tunnel) {
        self.desired_tunnels.set_tunnel(tunnel);
        self.needs_update = true;
    }

    pub(super) fn remove_tunnel(&mut self, tunnel: &Ipv6Tunnel) {
        self.desired_tunnels.remove_tunnel(tunnel);
        self.needs_update = true;
    }

    pub(super) fn leave_to_slow_path(&mut self, binding: (TunnelEnd, Ipv6Addr), held: bool) {
        self.desired_tunnels.leave_to_slow_path(binding, held);
        self.needs_update = true;
    }

    pub(super) fn set_interface_roles(&mut self, ports: InterfaceRoles) {
        self.needs_update |= self.interface_roles != ports;
        self.interface_roles = ports;
    }

    /// Returns whether this path has, or will have, rules with a priority before that of the `local` table.
    pub(super) fn has_rules_before_local_table(&self) -> bool {
        !self.installed_entries.is_empty() || !self.desired_tunnels.addresses_of_devices().is_empty()
    }

    /// Changes the kernel's state to the desired tunnels. `slow` has the present routes into the TUN device;
    /// `None` if they are unchanged.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses an entry that this fast path needs. If the kernel only refuses a tunnel
    /// device, the tunnel's packets take the slow path, and the function succeeds.
    pub(super) fn commit_tunnels(
        &mut self,
        requests: &mut NetlinkRequests,
        slow: Option<BTreeSet<(u32, Ipv6Net)>>,
    ) -> std::result::Result<(), String> {
        let moved =
            slow.is_some_and(|slow| std::mem::replace(&mut self.slow_path_routes, slow.clone()) != slow);
        if !std::mem::take(&mut self.needs_update) && !moved {
            return Ok(());
        }
        self.assign_device_names(requests).map_err(|error| error.to_string())?;
        loop {
            let wanted = plan_entries(
                &self.desired_tunnels,
                &self.usable_devices(),
                &self.slow_path_routes,
                &self.interface_roles.uplinks,
            );
            match self.install_missing_entries(requests, &wanted) {
                Ok(()) => break self.remove_all_except(requests, &wanted).map_err(|error| error.to_string()),
                // Retry without the device that the kernel refused. Each retry excludes one more device, so
                // the loop ends.
                Err((Some(ends), error)) if self.refused_tunnel_addresses.insert(ends) => {
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

    fn usable_devices(&self) -> BTreeMap<TunnelAddresses, String> {
        let wide = self.desired_tunnels.addresses_of_paths_with_sufficient_mtu();
        let usable = self.device_names.iter().filter(|(ends, _)| {
            wide.contains(ends)
                && !self.refused_tunnel_addresses.contains(ends)
                && !self.paths_with_small_mtu.contains_key(ends)
        });
        usable.map(|(ends, name)| (*ends, name.clone())).collect()
    }

    /// Finds a name for each new device, and forgets the names of removed tunnels.
    fn assign_device_names(&mut self, requests: &mut NetlinkRequests) -> Result<()> {
        let ends = self.desired_tunnels.addresses_of_devices();
        self.device_names.retain(|known, _| ends.contains(known));
        self.refused_tunnel_addresses.retain(|known| ends.contains(known));
        self.paths_with_small_mtu.retain(|known, _| ends.contains(known));
        if ends.len() == self.device_names.len() {
            return Ok(());
        }
        let links = requests.link_requests().list_links()?;
        for new in ends {
            if self.device_names.contains_key(&new) {
                continue;
            }
            if self.device_names.len() >= MAX_TUNNEL_DEVICES {
                if !std::mem::replace(&mut self.has_too_many_tunnels, true) {
                    tracing::warn!(
                        "carnet makes at most {MAX_TUNNEL_DEVICES} tunnel devices in the kernel: packets of \
                         the further tunnels take the slow path"
                    );
                }
                break;
            }
            let name = free_device_name(|name| {
                links.iter().any(|link| link.name == name)
                    || self.device_names.values().any(|known| known == name)
            });
            self.device_names.insert(new, name);
        }
        Ok(())
    }

    /// Installs missing entries, in the order of [`KernelEntryKey`]. An error contains the tunnel ends whose
    /// entry the kernel refused; `None` for an entry of no tunnel.
    fn install_missing_entries(
        &mut self,
        requests: &mut NetlinkRequests,
        wanted: &BTreeMap<KernelEntryKey, KernelEntryValue>,
    ) -> std::result::Result<(), (Option<TunnelAddresses>, Error)> {
        for (key, value) in wanted {
            let before = self.installed_entries.get(key);
            if before == Some(value) {
                continue;
            }
            let replace = before.is_some();
            let ends = match key {
                KernelEntryKey::Device(ends) => Some(*ends),
                KernelEntryKey::Route(..) => {
                    self.device_names.iter().find(|(_, n)| **n == value.device_name).map(|(ends, _)| *ends)
                }
                _ => None,
            };
            self.install_entry(requests, key, value, replace).map_err(|error| (ends, error))?;
            self.installed_entries.insert(key.clone(), value.clone());
        }
        Ok(())
    }

    fn install_entry(
        &mut self,
        requests: &mut NetlinkRequests,
        key: &KernelEntryKey,
        value: &KernelEntryValue,
        replace: bool,
    ) -> Result<()> {
        match key {
            KernelEntryKey::AgentRoute => requests.route_requests().set_route(
                &route_to_home_agent_table(),
                Some(self.tunnel_device_index),
                replace,
            ),
            KernelEntryKey::Guard((rule, action)) | KernelEntryKey::Accept((rule, action)) => {
                requests.rule_requests().add_rule_with_action(rule, *action, ROUTE_PROTOCOL)
            }
            KernelEntryKey::Address(address) => {
                match requests.address_requests().add_deprecated_address(
                    self.tunnel_device_index,
                    TUNNEL_DEVICE,
                    *address,
                ) {
                    Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
                    other => other,
                }
            }
            KernelEntryKey::Device(ends) => self.install_device(requests, *ends, value),
            KernelEntryKey::Route(table, destination) => {
                let index = self.device_index(&value.device_name);
                let route = route_into_device(*table, *destination, &value.device_name);
                requests.route_requests().set_route(&route, index, replace)
            }
        }
    }

    fn device_index(&self, device: &str) -> Option<u32> {
        let ends = self.device_names.iter().find(|(_, name)| *name == device).map(|(ends, _)| *ends)?;
        self.device_indices.get(&ends).copied()
    }

    fn install_device(
        &mut self,
        requests: &mut NetlinkRequests,
        ends: TunnelAddresses,
        value: &KernelEntryValue,
    ) -> Result<()> {
        let name = value.device_name.as_str();
        let known = requests
            .link_requests()
            .find_link(name)?
            .filter(|link| self.device_indices.get(&ends) == Some(&link.index));
        let index = match known {
            Some(link) => link.index,
            None => {
                let (local, remote) = ends;
                let device = NewIp6Tunnel {
                    name,
                    device_group: DEVICE_GROUP,
                    local,
                    remote,
                    hop_limit: TUNNEL_HOP_LIMIT,
                };
                requests.link_requests().add_ip6_tunnel(&device)?;
                let link = requests.link_requests().find_link(name)?.ok_or_else(|| {
                    Error::from_kernel_refusal(
                        format!("look up {name}"),
                        std::io::Error::from_raw_os_error(libc::ENODEV),
                    )
                })?;
                self.device_indices.insert(ends, link.index);
                kernel_settings::enable_ipv6(name, &mut self.setting_writes)?;
                link.index
            }
        };
        requests.link_requests().configure_ip6_tunnel(index, name, value.mtu)
    }

    /// Removes the installed entries that `wanted` does not contain, in reverse order of [`KernelEntryKey`].
    fn remove_all_except(
        &mut self,
        requests: &mut NetlinkRequests,
        wanted: &BTreeMap<KernelEntryKey, KernelEntryValue>,
    ) -> Result<()> {
        let mut result = Ok(());
        let stale: Vec<KernelEntryKey> =
            self.installed_entries.keys().rev().filter(|key| !wanted.contains_key(key)).cloned().collect();
        for key in stale {
            let value = self.installed_entries.remove(&key).unwrap_or_default();
            if let Err(error) = self.remove_entry(requests, &key, &value) {
                tracing::warn!("{error}");
                result = Err(error);
            }
        }
        result
    }

    fn remove_entry(
        &mut self,
        requests: &mut NetlinkRequests,
        key: &KernelEntryKey,
        value: &KernelEntryValue,
    ) -> Result<()> {
        match key {
            KernelEntryKey::AgentRoute => {
                let route = route_to_home_agent_table();
                requests.route_requests().delete_route(route.table, route.destination, route.metric)
            }
            KernelEntryKey::Guard((rule, action)) | KernelEntryKey::Accept((rule, action)) => {
                requests.rule_requests().delete_rule_with_action(rule, *action, ROUTE_PROTOCOL)
            }
            KernelEntryKey::Address(address) => requests.address_requests().delete_address(
                self.tunnel_device_index,
                TUNNEL_DEVICE,
                *address,
                128,
            ),
            KernelEntryKey::Device(ends) => {
                self.deleted_device_counts
                    .add_counts(parse_device_counts(&read_device_statistics(), &value.device_name));
                match self.device_indices.remove(ends) {
                    Some(index) => requests.link_requests().delete_link(index),
                    None => Ok(()),
                }
            }
            KernelEntryKey::Route(table, destination) => {
                requests.route_requests().delete_route(*table, *destination, TUNNEL_ROUTE_METRIC)
            }
        }
    }

    /// Removes all entries of this path from the kernel.
    pub(super) fn remove_all(&mut self, requests: &mut NetlinkRequests) -> Result<()> {
        self.remove_all_except(requests, &BTreeMap::new())
    }

    /// Marks installed entries that another program has removed; the next commit installs them again. Returns
    /// their number.
    pub(crate) fn mark_removed_entries(
        &mut self,
        requests: &mut NetlinkRequests,
        dirty: ChangedParts,
        links: &BTreeMap<String, LinkInfo>,
        addresses: &[AddressInfo],
    ) -> Result<u64> {
        if self.installed_entries.is_empty()
            || !(dirty.links_changed
                || dirty.addresses_changed
                || dirty.own_routes_changed
                || dirty.own_rules_changed)
        {
            return Ok(0);
        }
        let routes = requests.route_requests().list_routes(None, Some(ROUTE_PROTOCOL))?;
        let rules = requests.rule_requests().list_rules()?;
        let is_there = |key: &KernelEntryKey, value: &KernelEntryValue| match key {
            KernelEntryKey::AgentRoute => routes.iter().any(|route| route.table == TABLE_HOME_AGENT),
            KernelEntryKey::Guard((rule, action)) | KernelEntryKey::Accept((rule, action)) => {
                rules.iter().any(|found| {
                    found.protocol == ROUTE_PROTOCOL && found.rule == *rule && found.rule_action == *action
                })
            }
            KernelEntryKey::Address(address) => addresses
                .iter()
                .any(|found| found.index == self.tunnel_device_index && found.address.address == *address),
            KernelEntryKey::Device(ends) => links
                .get(&value.device_name)
                .is_some_and(|link| link.is_up && self.device_indices.get(ends) == Some(&link.index)),
            KernelEntryKey::Route(table, destination) => routes.iter().any(|route| {
                (route.table, route.destination, route.metric) == (*table, *destination, TUNNEL_ROUTE_METRIC)
                    && matches!(route.next_hops.as_slice(),
[hop] if links.get(&value.device_name).is_some_and(|link| link.index == hop.index))
            }),
        };
        let before = self.installed_entries.len();
        let lost: Vec<KernelEntryKey> = self
            .installed_entries
            .iter()
            .filter(|(key, value)| !is_there(key, value))
            .map(|(key, _)| key.clone())
            .collect();
        for key in &lost {
            tracing::debug!(
                ?key,
                "the kernel has lost this entry of the fast path: carnet installs it again"
            );
            self.installed_entries.remove(key);
        }
        self.needs_update |= !lost.is_empty();
        Ok((before - self.installed_entries.len()) as u64)
    }

    /// Returns whether a packet is an ICMPv6 error about a packet that a tunnel device has sent. The caller
    /// writes such an error back into the TUN device, so that the kernel gets it.
    pub(super) fn is_error_about_device(&mut self, packet: &[u8]) -> bool {
        let Some((destination, message)) = parse_icmpv6_packet(packet) else { return false };
        let concerns = quoted_tunnel_addresses(destination, message)
            .is_some_and(|ends| self.installed_entries.contains_key(&KernelEntryKey::Device(ends)));
        concerns && {
            self.handle_icmpv6(destination, message);
            true
        }
    }

    /// Handles an ICMPv6 message to an address of this machine. If it reports a path MTU that is too small
    /// for a tunnel device, the next commit removes the device.
    pub(super) fn handle_icmpv6(&mut self, destination: Ipv6Addr, message: &[u8]) {
        let Some(ends) = quoted_tunnel_addresses(destination, message) else { return };
        if let Some(mtu) = parse_small_mtu(message)
            && self.installed_entries.contains_key(&KernelEntryKey::Device(ends))
            && self.paths_with_small_mtu.insert(ends, clock::monotonic_time() + SMALL_MTU_LIFETIME).is_none()
        {
            tracing::info!(
                "the path between {} and {} has an MTU of only {mtu} octets: its tunnel packets take the \
                 slow path",
                ends.0,
                ends.1
            );
            self.needs_update = true;
        }
    }

    /// Forgets paths that were too narrow more than [`SMALL_MTU_LIFETIME`] ago, so that the next commit
    /// tries a device again.
    pub(super) fn expire_small_mtus(&mut self) {
        let (now, before) = (clock::monotonic_time(), self.paths_with_small_mtu.len());
        self.paths_with_small_mtu.retain(|_, until| *until > now);
        self.needs_update |= self.paths_with_small_mtu.len() < before;
    }

    /// Returns whether a device carries the packets between these ends.
    pub(super) fn has_device_between(&self, ends: TunnelAddresses) -> bool {
        self.installed_entries.contains_key(&KernelEntryKey::Device(ends))
    }

    /// Returns the traffic of each device, by its tunnel ends.
    pub(super) fn tunnel_traffic(&self) -> HashMap<TunnelEnds, TunnelTraffic> {
        let text = read_device_statistics();
        let devices = self.installed_entries.iter().filter_map(|(key, value)| match key {
            KernelEntryKey::Device((local, remote)) => Some((
                ((*local).into(), (*remote).into()),
                parse_device_counts(&text, &value.device_name).tunnel_traffic,
            )),
            _ => None,
        });
        devices.collect()
    }

    pub(super) fn counters(&self) -> FastPathCounters {
        let (text, mut sum) = (read_device_statistics(), self.deleted_device_counts);
        for (key, value) in &self.installed_entries {
            if let KernelEntryKey::Device(_) = key {
                sum.add_counts(parse_device_counts(&text, &value.device_name));
            }
        }
        FastPathCounters {
            total_traffic: sum.tunnel_traffic,
            slow_path_packets_by_reason: vec![("failed", sum.failed_packets)],
        }
    }
}

/// Returns the MTU in a Packet Too Big if it is too low for an inner packet of 1280 octets. A message with an
/// MTU below 1280 is discarded, because every IPv6 path carries that much (RFC 8201 4).
fn parse_small_mtu(message: &[u8]) -> Option<u32> {
    let [PACKET_TOO_BIG, _, _, _, a, b, c, d, ..] = *message else { return None };
    Some(u32::from_be_bytes([a, b, c, d]))
        .filter(|mtu| (IPV6_MINIMUM_MTU..LOWEST_SUFFICIENT_MTU).contains(mtu))
}

/// Returns whether carnet created this device.
pub(crate) fn is_own_device(link: &LinkInfo) -> bool {
    link.device_group == DEVICE_GROUP && link.is_ip6_tunnel
}

fn route_to_home_agent_table() -> Route {
    Route {
        table: TABLE_HOME_AGENT,
        destination: Ipv6Net::default(),
        metric: effective_metric(0),
        action: RouteAction::Forward { interface: TUNNEL_DEVICE.to_owned(), gateway: None }.into(),
        source: None,
    }
}

fn route_into_device(table: u32, destination: Ipv6Net, device: &str) -> Route {
    let action = RouteAction::Forward { interface: device.to_owned(), gateway: None };
    Route { table, destination, metric: TUNNEL_ROUTE_METRIC, action: action.into(), source: None }
}

fn address_at(octets: &[u8], at: usize) -> Option<Ipv6Addr> {
    Some(<[u8; 16]>::try_from(octets.get(at..at + 16)?).ok()?.into())
}

/// Returns destination and message of an ICMPv6 packet without extension headers; ICMPv6 errors have none.
/// Returns `None` for any other packet.
fn parse_icmpv6_packet(packet: &[u8]) -> Option<(Ipv6Addr, &[u8])> {
    (*packet.get(6)? == PROTOCOL_ICMPV6)
        .then_some((address_at(packet, 24)?, packet.get(IPV6_HEADER_LENGTH..)?))
}

/// Returns the tunnel ends in the packet that an ICMPv6 error quotes. Returns `None` if the error was not
/// sent to the source of that packet.
fn quoted_tunnel_addresses(destination: Ipv6Addr, message: &[u8]) -> Option<TunnelAddresses> {
    // Types 1 to 4 are errors (RFC 4443 3).
    let is_error = (1..=4).contains(message.first()?);
    let quoted = message.get(ICMPV6_HEADER_LENGTH..)?;
    // A device sends only packets with IPv6 as next header, and no fragments. So any other quoted packet is
    // not of a device.
    if !is_error || *quoted.get(6)? != PROTOCOL_IPV6 {
        return None;
    }
    let (local, remote) = (address_at(quoted, 8)?, address_at(quoted, 24)?);
    (destination == local).then_some((local, remote))
}

/// Reads the kernel's statistics of the devices in this network namespace.
fn read_device_statistics() -> String {
    fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default()
}

/// Returns the packet counts of a device from the text of the kernel's statistics. A line is `NAME: octets
/// packets errs drop ...`: 8 columns for received packets, then 8 columns for sent packets.
fn parse_device_counts(statistics: &str, device: &str) -> FastPathCounts {
    let line = statistics.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
    let numbers: Vec<u64> = line
        .map(|rest| rest.split_whitespace().map(|number| number.parse().unwrap_or(0)).collect())
        .unwrap_or_default();
    let number = |column: usize| numbers.get(column).copied().unwrap_or(0);
    FastPathCounts {
        tunnel_traffic: TunnelTraffic {
            encapsulated_packets: number(9),
            encapsulated_octets: number(8),
            decapsulated_packets: number(1),
            decapsulated_octets: number(0),
        },
        failed_packets: number(2) + number(3) + number(10) + number(11),
    }
}
