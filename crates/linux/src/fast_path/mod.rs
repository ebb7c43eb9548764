//! Fast paths: programs and devices of the kernel that forward packets without carnet's process.
//!
//! A fast path forwards packets before they reach the slow path (the TUN device and
//! `carnet_nemo::forwarding`), with the same result. There are three:
//!
//! * `programs`: BPF programs at the ingress of the interfaces, which run on socket buffers (tc,
//!   [`DataPath::Bpf`]) or before the kernel allocates a socket buffer (XDP, [`DataPath::Xdp`]). The programs
//!   handle common packets and leave other packets to the slow path.
//! * `kernel`: tunnel devices of the kernel's own ip6_tunnel module ([`DataPath::Kernel`]). They carry
//!   IPv6 packets only.
//! * `geonet`: BPF programs for IPv6 over GeoNetworking, independent of the other two.
//!
//! BPF programs know tunnels in IPv6, in IPv4 and in UDP in IPv4, and distribute a binding's packets among
//! several tunnels (`flow_rules`). The kernel's devices know one tunnel in IPv6 for all packets of a binding.
//! `binding_selection` leaves tunnels that the devices do not support to the slow path.
//!
//! The tunnels of the desired forwarding state have all data that a fast path needs; `binding_table` converts
//! them to the content of the programs' maps. [`FastPath::set_tunnel`] and [`FastPath::remove_tunnel`]
//! announce a change. It takes effect with [`FastPath::commit_changes`], atomically for a binding.
//!
//! The kernel takes a quarter of a second to verify the programs, and half a minute on a slow processor. A
//! thread loads them (`loading`) while the TUN device serves, and [`FastPath::poll_loading`] attaches them.

mod binding_selection;
mod binding_table;
mod bpf_programs;
mod error_text;
mod flow_rules;
pub mod geonet;
mod kernel;
mod kernel_functions;
mod loading;
mod map_values;
mod program_hook;
mod redirect_targets;
mod routing_knowledge;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::task::{Context, Poll};

use carnet_base::{Endpoint, mapped};
use carnet_nemo::forwarding::desired::{self, TunnelEnd};
use ipnet::Ipv6Net;

use crate::kernel_settings;
use crate::netlink::{AddressInfo, ChangedParts, LinkInfo, NetlinkRequests, RoutingFields};
use binding_selection::{BindingSelections, is_supported_by_programs};
use bpf_programs::{AttachmentKind, LoadedPrograms};
use kernel::KernelTunnels;
pub(crate) use kernel::is_own_device;
use loading::LoadingPrograms;
pub(crate) use map_values::{RuleScope, RulesetValue};
use routing_knowledge::RoutingKnowledge;

/// Device group of the pair of virtual Ethernet devices that GeoNetworking's fast path makes.
const PAIR_DEVICE_GROUP: u32 = 13_501;
/// Why BPF paths are unavailable in a build without BPF programs.
const NO_BPF_PROGRAMS: &str = "this program was built without BPF programs";

/// Path on which the station forwards packets: one of the fast paths, or the TUN device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataPath {
    /// BPF programs at tc ingress. The TUN device handles the packets that they leave.
    Bpf,
    /// XDP programs. The TUN device handles the packets that they leave.
    Xdp,
    /// Tunnel devices of the kernel. The TUN device handles the packets of all other tunnels.
    Kernel,
    /// Only the TUN device; no fast path.
    Tun,
}

impl DataPath {
    /// Returns the name of the path in the config and in carnet's output.
    pub fn name(self) -> &'static str {
        match self {
            DataPath::Bpf => "bpf",
            DataPath::Xdp => "xdp",
            DataPath::Kernel => "kernel",
            DataPath::Tun => "tun",
        }
    }
}

/// Roles of the interfaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterfaceRoles {
    /// Interfaces of the mobile network, from which packets go into the tunnel.
    pub lan_interfaces: Vec<String>,
    /// Uplinks of the mobile router, on which tunnelled packets arrive.
    pub uplinks: Vec<String>,
    /// Whether the station is a home agent, which treats all interfaces alike.
    pub is_home_agent: bool,
    /// Whether a mobile router may have direct routes to other mobile routers. A direct route is selected by
    /// the packet's destination, like a tunnel of a home agent.
    pub direct_routes_enabled: bool,
}

impl InterfaceRoles {
    /// Returns whether packets that arrive at this interface may go into tunnels.
    pub(crate) fn may_lead_into_tunnel(&self, link: &LinkInfo) -> bool {
        // Exclude the loopback interface and the tunnel device, which have no link-layer address.
        link.link_address.is_some() && (self.is_home_agent || self.lan_interfaces.contains(&link.name))
    }
}

/// Config of [`crate::Platform::open_fast_path`].
#[derive(Debug, Clone)]
pub struct FastPathConfig {
    /// Fast paths in the order in which carnet tries them; it uses the first one that the kernel supports.
    /// The TUN device is always the last choice.
    pub paths_by_preference: Vec<DataPath>,
    /// Key of outer flow labels (`Station::flow_label_key`).
    pub flow_label_key: u64,
    /// Number of bindings and prefixes for which the maps need room.
    pub binding_capacity: usize,
    /// Roles of the interfaces.
    pub interface_roles: InterfaceRoles,
}

/// Packets of one tunnel that a fast path has forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TunnelTraffic {
    /// Inner packets sent.
    pub encapsulated_packets: u64,
    /// Octets of the inner packets sent.
    pub encapsulated_octets: u64,
    /// Inner packets received.
    pub decapsulated_packets: u64,
    /// Octets of the inner packets received.
    pub decapsulated_octets: u64,
}

impl TunnelTraffic {
    fn counters_mut(&mut self) -> [&mut u64; 4] {
        let TunnelTraffic {
            encapsulated_packets,
            encapsulated_octets,
            decapsulated_packets,
            decapsulated_octets,
        } = self;
        [encapsulated_packets, encapsulated_octets, decapsulated_packets, decapsulated_octets]
    }

    /// Adds the traffic between two readings of the counters.
    fn add_difference(&mut self, mut now: TunnelTraffic, mut since: TunnelTraffic) {
        for ((sum, now), since) in
            self.counters_mut().into_iter().zip(now.counters_mut()).zip(since.counters_mut())
        {
            *sum += now.saturating_sub(*since);
        }
    }
}

/// Local and remote end of a tunnel.
pub type TunnelEnds = (Endpoint, Endpoint);

/// Counters of the fast path since its start, by name; see `enum outcome` in `bpf/state.h`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FastPathCounters {
    /// Inner packets sent and received, summed over all tunnels.
    pub total_traffic: TunnelTraffic,
    /// Packets that the fast path has passed to the slow path, as `(reason, count)`. The last entry counts
    /// lost packets.
    pub slow_path_packets_by_reason: Vec<(&'static str, u64)>,
}

/// A tunnel of IPv6 in IPv6: those fields of [`desired::Tunnel`] that the kernel's devices use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ipv6Tunnel {
    pub(crate) end: TunnelEnd,
    pub(crate) home_address: Ipv6Addr,
    pub(crate) local: Ipv6Addr,
    pub(crate) remote: Ipv6Addr,
    pub(crate) inner_prefixes: Vec<Ipv6Net>,
    pub(crate) may_transmit: bool,
    pub(crate) mtu: u32,
}

impl Ipv6Tunnel {
    /// Converts a tunnel for this fast path; `None` for kinds that it does not support. A device receives all
    /// packets that have no more specific route, so a direct route cannot have a device.
    fn from_desired(tunnel: &desired::Tunnel) -> Option<Ipv6Tunnel> {
        if tunnel.end == TunnelEnd::Direct || tunnel.session.is_some() {
            return None;
        }
        let desired::Tunnel { end, home_address, bid: _, local, remote, inner, transmit, mtu, .. } = tunnel;
        Some(Ipv6Tunnel {
            end: *end,
            home_address: *home_address,
            local: local.ipv6()?,
            remote: remote.ipv6()?,
            // The devices carry IPv6 only; the slow path carries IPv4.
            inner_prefixes: inner
                .iter()
                .copied()
                .filter(|prefix| mapped::to_ipv4(*prefix).is_none())
                .collect(),
            may_transmit: *transmit,
            mtu: *mtu,
        })
    }
}

/// Key of a binding: kind of the tunnel end, and home address.
type BindingKey = (TunnelEnd, Ipv6Addr);

/// Removes the kernel objects that a crashed carnet has left, except routes and rules.
pub(crate) fn remove_leftovers(requests: &mut NetlinkRequests) -> crate::error::Result<()> {
    for link in requests.link_requests().list_links()? {
        if is_own_device(&link) {
            requests.link_requests().delete_link(link.index)?;
        } else if requests.filter_requests().delete_filters(link.index, program_hook::TC_FILTER_PRIORITY)? {
            requests.filter_requests().delete_idle_clsact(link.index)?;
        }
    }
    Ok(())
}

/// The fast path in use, and the tunnels, sockets and ports from which it is computed.
#[derive(Debug, Default)]
pub(crate) struct FastPath {
    path_in_use: PathInUse,
    binding_selection: BindingSelections,
    /// Sockets of tunnels inside IPv4, each with the index of its interface; 0 if the socket is bound to no
    /// interface.
    interface_by_socket: BTreeMap<desired::TunnelSocket, u32>,
    /// Key of outer flow labels and of the distribution of packets.
    flow_hash_key: u64,
    routing_knowledge: RoutingKnowledge,
    /// Prefixes of mobile networks whose packets the kernel must see, because NAT changes their addresses.
    prefixes_left_to_kernel: Vec<Ipv6Net>,
    /// Programs that a thread is loading, perhaps to replace the programs in use; `None` if no thread runs.
    loading_programs: Option<LoadingPrograms>,
    filtered_interfaces: FilteredInterfaces,
    /// Data about the packet filter's rules, as the programs get them.
    known_ruleset: RulesetValue,
}

/// Interfaces whose packets, in either direction, carnet's own rules of the packet filter use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FilteredInterfaces {
    /// Parts of the packets that the rules use, by interface.
    pub(crate) scope_by_interface: BTreeMap<String, RuleScope>,
    /// Parts of the packets that the rules of all interfaces use.
    pub(crate) scope_of_all_interfaces: RuleScope,
}

impl FilteredInterfaces {
    /// Returns the scope of the rules for each interface that exists and has rules, by its index.
    fn scopes(&self, links: &BTreeMap<String, LinkInfo>) -> BTreeMap<u32, RuleScope> {
        let scope_of = |link: &LinkInfo| {
            self.scope_by_interface
                .get(&link.name)
                .copied()
                .unwrap_or_default()
                .max(self.scope_of_all_interfaces)
        };
        let scopes = links.values().map(|link| (link.index, scope_of(link)));
        scopes.filter(|(_, scope)| *scope != RuleScope::Nothing).collect()
    }
}

/// Result of a thread that loads programs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LoadingResult {
    /// carnet has chosen a path. The list has the paths that it could not use, with the reasons.
    Decided(Vec<(DataPath, String)>),
    /// The path in use now has room for more bindings.
    Grown,
    /// The path in use could not get room for more bindings; the text says why.
    NotGrown(String),
}

#[derive(Debug, Default)]
enum PathInUse {
    /// No fast path is in use: all packets pass the TUN device.
    #[default]
    None,
    /// BPF programs.
    Programs(Box<LoadedPrograms>),
    /// Tunnel devices of the kernel.
    Kernel(Box<KernelTunnels>),
}

impl FastPath {
    /// Opens the first fast path of the list that the kernel supports. Returns the unusable paths before it,
    /// with the reasons. Returns `None` while a thread loads BPF programs, see [`Self::poll_loading`].
    pub(crate) fn open(
        config: &FastPathConfig,
        tunnel_device: u32,
        requests: &mut NetlinkRequests,
    ) -> (FastPath, Option<Vec<(DataPath, String)>>) {
        let mut fast_path = FastPath { flow_hash_key: config.flow_label_key, ..FastPath::default() };
        let obstacles =
            fast_path.try_paths(config, &config.paths_by_preference, Vec::new(), tunnel_device, requests);
        (fast_path, obstacles)
    }

    /// Opens the first supported fast path among the paths not tried yet, as [`Self::open`] does.
    fn try_paths(
        &mut self,
        config: &FastPathConfig,
        paths: &[DataPath],
        mut obstacles: Vec<(DataPath, String)>,
        tunnel_device: u32,
        requests: &mut NetlinkRequests,
    ) -> Option<Vec<(DataPath, String)>> {
        for (at, path) in paths.iter().enumerate() {
            let kind = match path {
                DataPath::Bpf => AttachmentKind::Tc,
                DataPath::Xdp => AttachmentKind::Xdp,
                DataPath::Kernel => {
                    match KernelTunnels::open(requests, tunnel_device, config.interface_roles.clone()) {
                        Ok(kernel) => {
                            self.path_in_use = PathInUse::Kernel(Box::new(kernel));
                            return Some(obstacles);
                        }
                        Err(why) => obstacles.push((*path, why)),
                    }
                    continue;
                }
                DataPath::Tun => break,
            };
            match LoadingPrograms::begin_loading(kind, config, tunnel_device, requests) {
                Ok(mut loading) => {
                    (loading.fallback_paths, loading.unavailable_paths) =
                        (paths[at + 1..].to_vec(), obstacles);
                    self.loading_programs = Some(loading);
                    return None;
                }
                Err(why) => obstacles.push((*path, why)),
            }
        }
        Some(obstacles)
    }

    /// Returns the result of the loading thread, once. After new programs are in use, the caller has to pass
    /// all tunnels and interfaces again.
    pub(crate) fn poll_loading(
        &mut self,
        cx: &mut Context<'_>,
        tunnel_device: u32,
        requests: &mut NetlinkRequests,
    ) -> Option<LoadingResult> {
        let Poll::Ready(result) = self.loading_programs.as_mut()?.poll_loaded(cx) else { return None };
        let LoadingPrograms {
            config,
            fallback_paths: others,
            unavailable_paths: obstacles,
            data_path: path,
            ..
        } = self.loading_programs.take()?;
        let grows = !matches!(self.path_in_use, PathInUse::None);
        let taken = result.and_then(|programs| match programs.has_room_for(&config) {
            true => self.replace_programs(programs, &config, requests).map(|()| true),
            // The config has changed while the thread was loading, and now needs more room than these
            // programs have.
            false => Ok(false),
        });
        match taken {
            Ok(true) if grows => Some(LoadingResult::Grown),
            Ok(true) => Some(LoadingResult::Decided(obstacles)),
            Ok(false) => {
                let paths: Vec<DataPath> = [path].into_iter().chain(others).collect();
                let decided = self.try_paths(&config, &paths, obstacles, tunnel_device, requests);
                decided.map(LoadingResult::Decided)
            }
            Err(why) if grows => Some(LoadingResult::NotGrown(why)),
            Err(why) => {
                let obstacles = [obstacles, vec![(path, why)]].concat();
                let decided = self.try_paths(&config, &others, obstacles, tunnel_device, requests);
                decided.map(LoadingResult::Decided)
            }
        }
    }

    /// Attaches new programs in place of the present programs, because an interface can have only one
    /// program.
    fn replace_programs(
        &mut self,
        mut programs: Box<LoadedPrograms>,
        config: &FastPathConfig,
        requests: &mut NetlinkRequests,
    ) -> Result<(), String> {
        if let Err(error) = kernel_settings::forward_ipv4_from(desired::TUNNEL_DEVICE) {
            tracing::debug!("tunnel packets inside IPv4 take the slow path at the home agent: {error}");
        }
        programs.interface_roles = config.interface_roles.clone();
        programs.set_ruleset(self.known_ruleset)?;
        programs.begin_watching_redirect_targets();
        let before = std::mem::take(&mut self.path_in_use);
        let is_first = matches!(before, PathInUse::None);
        drop(before);
        if !is_first {
            self.routing_knowledge.write_to_programs(&mut programs)?;
        }
        self.path_in_use = PathInUse::Programs(programs);
        if is_first && let Err(why) = self.read_routing_tables(requests) {
            tracing::debug!("{why}");
        }
        let known: Vec<(BindingKey, bool)> = self.binding_selection.stored_bindings().collect();
        known.into_iter().for_each(|(binding, others)| self.set_binding_path(binding, others));
        let sockets: BTreeSet<Endpoint> =
            self.interface_by_socket.keys().map(|socket| socket.local).collect();
        sockets.into_iter().for_each(|local| self.update_socket_interface(local));
        Ok(())
    }

    /// Returns the path for which a thread loads programs now; `None` if no thread loads any.
    pub(crate) fn path_being_loaded(&self) -> Option<DataPath> {
        self.loading_programs.as_ref().map(|loading| loading.data_path)
    }

    /// Returns the path in use.
    pub(crate) fn path(&self) -> DataPath {
        match &self.path_in_use {
            PathInUse::None => DataPath::Tun,
            PathInUse::Programs(programs) => programs.data_path(),
            PathInUse::Kernel(_) => DataPath::Kernel,
        }
    }

    /// Returns the path that forwards the packets of one tunnel.
    pub(crate) fn path_of(&self, local: Endpoint, remote: Endpoint) -> DataPath {
        let carries = match &self.path_in_use {
            PathInUse::None => false,
            PathInUse::Programs(programs) => programs.binding_table.has_tunnel((local, remote)),
            PathInUse::Kernel(kernel) => {
                local.ipv6().zip(remote.ipv6()).is_some_and(|ends| kernel.has_device_between(ends))
            }
        };
        if carries { self.path() } else { DataPath::Tun }
    }

    /// Returns whether the path handles tunnelled packets in IPv4, or will handle them after loading. The
    /// kernel must then not merge these packets into bursts.
    pub(crate) fn handles_datagrams(&self) -> bool {
        self.loading_programs.is_some() || matches!(self.path_in_use, PathInUse::Programs(_))
    }

    /// Sets the prefixes of mobile networks whose packets the kernel must see. The slow path handles all
    /// packets from and to mobile networks inside these prefixes. The caller must remove all tunnels before
    /// this call, and set them again after it.
    pub(crate) fn leave_prefixes_to_kernel(&mut self, prefixes: Vec<Ipv6Net>) {
        self.prefixes_left_to_kernel = prefixes;
    }

    /// Returns whether the kernel must see the packets of a mobile network.
    fn is_left_to_kernel(&self, network: &Ipv6Net) -> bool {
        self.prefixes_left_to_kernel.iter().any(|prefix| prefix.contains(network) || network.contains(prefix))
    }

    /// Returns the tunnel without the mobile networks whose packets the kernel must see.
    fn tunnel_for_programs(&self, tunnel: &Arc<desired::Tunnel>) -> Arc<desired::Tunnel> {
        if !tunnel.inner.iter().any(|network| self.is_left_to_kernel(network)) {
            return tunnel.clone();
        }
        let inner = tunnel.inner.iter().filter(|network| !self.is_left_to_kernel(network)).copied().collect();
        Arc::new(desired::Tunnel { inner, ..desired::Tunnel::clone(tunnel) })
    }

    /// Converts a tunnel for the kernel's devices; `None` if the kernel's devices are not in use or cannot
    /// carry this tunnel. NAT does not see the packets of a device, so a tunnel with IPv6 networks that need
    /// NAT has no device.
    fn tunnel_for_kernel(&self, tunnel: &desired::Tunnel) -> Option<Ipv6Tunnel> {
        if !matches!(self.path_in_use, PathInUse::Kernel(_)) {
            return None;
        }
        let tunnel = Ipv6Tunnel::from_desired(tunnel)?;
        let needs_nat = tunnel.inner_prefixes.iter().any(|network| self.is_left_to_kernel(network));
        (!needs_nat).then_some(tunnel)
    }

    /// Adds or changes a tunnel.
    pub(crate) fn set_tunnel(&mut self, tunnel: &Arc<desired::Tunnel>) {
        let (tunnel, for_kernel) = (&self.tunnel_for_programs(tunnel), self.tunnel_for_kernel(tunnel));
        match &mut self.path_in_use {
            PathInUse::None => return,
            PathInUse::Programs(programs) if is_supported_by_programs(tunnel) => {
                return programs.binding_table.set_tunnel(tunnel);
            }
            PathInUse::Programs(_) => {}
            PathInUse::Kernel(kernel) => {
                if let Some(tunnel) = for_kernel {
                    return kernel.set_tunnel(&tunnel);
                }
            }
        }
        let others = self.binding_selection.add_unsupported_tunnel(tunnel);
        self.set_binding_path((tunnel.end, tunnel.home_address), others);
    }

    /// Removes a tunnel.
    pub(crate) fn remove_tunnel(&mut self, tunnel: &desired::Tunnel) {
        let for_kernel = self.tunnel_for_kernel(tunnel);
        match &mut self.path_in_use {
            PathInUse::None => return,
            PathInUse::Programs(programs) if is_supported_by_programs(tunnel) => {
                return programs.remove_tunnel(tunnel);
            }
            PathInUse::Programs(_) => {}
            PathInUse::Kernel(kernel) => {
                if let Some(tunnel) = for_kernel {
                    return kernel.remove_tunnel(&tunnel);
                }
            }
        }
        let others = self.binding_selection.remove_unsupported(tunnel);
        self.set_binding_path((tunnel.end, tunnel.home_address), others);
    }

    /// Adds a socket of tunnels inside IPv4, bound to the interface of this index, or to none with 0.
    pub(crate) fn set_socket(&mut self, socket: &desired::TunnelSocket, index: u32) {
        self.interface_by_socket.insert(socket.clone(), index);
        self.update_socket_interface(socket.local);
    }

    /// Removes a socket of tunnels inside IPv4.
    pub(crate) fn remove_socket(&mut self, socket: &desired::TunnelSocket) {
        self.interface_by_socket.remove(socket);
        self.update_socket_interface(socket.local);
    }

    fn update_socket_interface(&mut self, local: Endpoint) {
        let PathInUse::Programs(programs) = &mut self.path_in_use else { return };
        let mut indices = self
            .interface_by_socket
            .iter()
            .filter(|(known, _)| known.local == local)
            .map(|(_, index)| *index);
        // If several sockets have this local end, the interface is ambiguous, so use none.
        let index = indices.next().filter(|_| indices.next().is_none());
        programs.binding_table.set_socket_interface(local, index);
    }

    /// Sets whether a binding's packets are distributed among its tunnels.
    pub(crate) fn set_distribution(&mut self, distribution: &desired::FlowDistribution, is: bool) {
        self.binding_selection.set_distribution(distribution, self.flow_hash_key, is);
        let binding = (distribution.end, distribution.home_address);
        let others =
            self.binding_selection.stored_bindings().any(|(known, others)| known == binding && others);
        self.set_binding_path(binding, others);
    }

    /// Decides whether the fast path sends the packets of a binding. `others` says that the binding also has
    /// tunnels that the fast path does not support; then the slow path sends all its packets.
    fn set_binding_path(&mut self, binding: BindingKey, others: bool) {
        let distributor = self.binding_selection.distributor_of(binding);
        match &mut self.path_in_use {
            PathInUse::None => {}
            PathInUse::Programs(programs) => {
                programs.binding_table.leave_to_slow_path(binding, others);
                programs.binding_table.set_distribution(binding, distributor.map(flow_rules::flow_rules_of));
            }
            PathInUse::Kernel(kernel) => kernel.leave_to_slow_path(binding, others || distributor.is_some()),
        }
    }

    /// Applies the changes since the last commit. If that fails, closes the fast path, so that the slow path
    /// forwards all packets; the error says why. `slow` has table and destination of each route into the TUN
    /// device; `None` if they are unchanged.
    pub(crate) fn commit_changes(
        &mut self,
        requests: &mut NetlinkRequests,
        slow: Option<BTreeSet<(u32, Ipv6Net)>>,
    ) -> Result<(), String> {
        let result = match &mut self.path_in_use {
            PathInUse::None => Ok(()),
            PathInUse::Programs(programs) => programs.commit_entries(),
            PathInUse::Kernel(kernel) => kernel.commit_tunnels(requests, slow),
        };
        if result.is_err() {
            self.remove_all_entries(requests);
        }
        result
    }

    /// Invalidates cached next hops after a change of routes, rules or addresses. `narrow` says that only
    /// neighbours or carnet's own routes into the TUN device have changed. Then less is invalidated, because
    /// cached next hops stay right. A new route of carnet leads further packets to the TUN device, and a
    /// removed route belonged to a binding that is gone. May close the fast path, like
    /// [`Self::commit_changes`].
    pub(crate) fn invalidate_next_hops(
        &mut self,
        requests: &mut NetlinkRequests,
        heard: RoutingFields,
        narrow: bool,
    ) -> Result<(), String> {
        let PathInUse::Programs(programs) = &mut self.path_in_use else { return Ok(()) };
        let known = programs.contains_long_prefix_halves(&heard.upper_halves_of_long_prefixes);
        let result = match narrow
            && known
            && heard
                == (RoutingFields {
                    upper_halves_of_long_prefixes: heard.upper_halves_of_long_prefixes.clone(),
                    ..RoutingFields::default()
                }) {
            true => programs.invalidate_flow_lookups(),
            false => self.routing_knowledge.handle_changes(programs, requests, heard),
        };
        if result.is_err() {
            self.path_in_use = PathInUse::None;
        }
        result
    }

    /// Reads all rules and routes again if a route or rule has kept the programs from caching next hops. This
    /// obstacle may be gone.
    pub(crate) fn recheck_obstacles(&mut self, requests: &mut NetlinkRequests) -> Result<(), String> {
        if self.routing_knowledge.may_remove_obstacle() { self.read_routing_tables(requests) } else { Ok(()) }
    }

    fn read_routing_tables(&mut self, requests: &mut NetlinkRequests) -> Result<(), String> {
        let PathInUse::Programs(programs) = &mut self.path_in_use else { return Ok(()) };
        let result = self.routing_knowledge.read_all_routes_and_rules(programs, requests);
        if result.is_err() {
            self.path_in_use = PathInUse::None;
        }
        result
    }

    /// Marks entries that the kernel has lost; the next [`Self::commit_changes`] installs them again. Returns
    /// their number.
    pub(crate) fn mark_removed_entries(
        &mut self,
        requests: &mut NetlinkRequests,
        dirty: ChangedParts,
        links: &BTreeMap<String, LinkInfo>,
        addresses: &[AddressInfo],
    ) -> crate::error::Result<u64> {
        match &mut self.path_in_use {
            PathInUse::Kernel(kernel) => kernel.mark_removed_entries(requests, dirty, links, addresses),
            PathInUse::None | PathInUse::Programs(_) => Ok(0),
        }
    }

    /// Returns whether the fast path has, or will have, rules that precede the rule of the local table.
    pub(crate) fn has_rules_before_local_table(&self) -> bool {
        matches!(&self.path_in_use, PathInUse::Kernel(kernel) if kernel.has_rules_before_local_table())
    }

    /// Removes all entries of the path.
    pub(crate) fn remove_all_entries(&mut self, requests: &mut NetlinkRequests) {
        if let PathInUse::Kernel(kernel) = &mut self.path_in_use
            && let Err(error) = kernel.remove_all(requests)
        {
            tracing::warn!("{error}");
        }
        (self.path_in_use, self.loading_programs) = (PathInUse::None, None);
    }

    /// Attaches programs to new interfaces, and detaches them from vanished ones. Returns the errors, each
    /// reason once.
    pub(crate) fn update_interfaces(&mut self, links: &BTreeMap<String, LinkInfo>) -> Vec<String> {
        let PathInUse::Programs(programs) = &mut self.path_in_use else { return Vec::new() };
        // Set the filtered interfaces first, so that a new program leaves their packets to the kernel at
        // once.
        if let Err(why) = programs.set_filter_scopes(self.filtered_interfaces.scopes(links)) {
            self.path_in_use = PathInUse::None;
            return vec![format!(
                "carnet has closed the fast path, because its packets would bypass nftables: {why}"
            )];
        }
        let mut complaints = programs.update_interfaces(links);
        complaints.extend(programs.update_note_programs(links));
        complaints
    }

    /// Sets what programs have to know about the rules of the packet filter. The caller calls
    /// [`Self::update_interfaces`] afterwards. May close the fast path, like [`Self::commit_changes`].
    pub(crate) fn set_ruleset(&mut self, ruleset: RulesetValue) -> Result<(), String> {
        self.known_ruleset = ruleset;
        let PathInUse::Programs(programs) = &mut self.path_in_use else { return Ok(()) };
        let result = programs.set_ruleset(ruleset);
        if result.is_err() {
            self.path_in_use = PathInUse::None;
        }
        result
    }

    /// Returns whether the path forwards packets of tracked connections, which the packet filter's rules use.
    pub(crate) fn has_tracked_flows(&self) -> bool {
        matches!(&self.path_in_use, PathInUse::Programs(programs) if programs.has_tracked_flows())
    }

    /// Returns why programs cannot forward packets of flows that the packet filter's rules use; `None` if
    /// they can.
    pub(crate) fn conntrack_obstacle(&self) -> Option<&str> {
        match &self.path_in_use {
            PathInUse::Programs(programs) => programs.conntrack_obstacle_message(),
            PathInUse::None | PathInUse::Kernel(_) => None,
        }
    }

    /// Sets the interfaces whose packets the kernel's packet filter must see. Returns whether they have
    /// changed; then the caller calls [`Self::update_interfaces`].
    pub(crate) fn set_filtered_interfaces(&mut self, filtered: FilteredInterfaces) -> bool {
        let has_changed = self.filtered_interfaces != filtered;
        self.filtered_interfaces = filtered;
        has_changed
    }

    /// Continues [`Self::update_interfaces`] when the set of interfaces that accept redirected frames has
    /// changed, and registers the caller's wake-up. Returns the errors of interfaces.
    pub(crate) fn poll_redirect_targets(&mut self, cx: &mut Context<'_>) -> Vec<String> {
        match &mut self.path_in_use {
            PathInUse::Programs(programs) => match programs.redirect_targets.poll(cx) {
                true => programs.update_redirect_targets(),
                false => Vec::new(),
            },
            PathInUse::None | PathInUse::Kernel(_) => Vec::new(),
        }
    }

    /// Sets which interfaces are links of the mobile network and which are uplinks. Takes effect with the
    /// next [`Self::update_interfaces`] and [`Self::commit_changes`].
    pub(crate) fn set_interface_roles(&mut self, ports: InterfaceRoles) {
        if let Some(loading) = &mut self.loading_programs {
            loading.config.interface_roles = ports.clone();
        }
        match &mut self.path_in_use {
            PathInUse::None => {}
            PathInUse::Programs(programs) => {
                programs.interface_roles = ports;
                self.routing_knowledge.mark_incomplete();
            }
            PathInUse::Kernel(kernel) => kernel.set_interface_roles(ports),
        }
    }

    /// Returns the ends of the tunnels into which packets went since the last call of this function.
    pub(crate) fn take_used_tunnels(&mut self) -> Vec<TunnelEnds> {
        match &mut self.path_in_use {
            PathInUse::Programs(programs) => programs.used(),
            _ => Vec::new(),
        }
    }

    /// Returns the destinations of new flows through a mobile router's tunnel since the last call. Some paths
    /// do not record them.
    pub(crate) fn take_new_flow_destinations(&mut self) -> Vec<Ipv6Addr> {
        match &mut self.path_in_use {
            PathInUse::Programs(programs) => programs.take_new_flow_destinations(),
            PathInUse::None | PathInUse::Kernel(_) => Vec::new(),
        }
    }

    /// Returns the neighbours to which the path has sent packets within this time, each with its interface's
    /// index.
    pub(crate) fn neighbours_used_within(&self, within: std::time::Duration) -> Vec<(u32, std::net::IpAddr)> {
        match &self.path_in_use {
            PathInUse::None | PathInUse::Kernel(_) => Vec::new(),
            PathInUse::Programs(programs) => programs.neighbours_used_within(within),
        }
    }

    /// Returns whether the kernel itself has to handle a packet that came out of the TUN device. carnet
    /// writes it back unchanged.
    pub(crate) fn is_for_kernel(&mut self, packet: &[u8]) -> bool {
        match &mut self.path_in_use {
            PathInUse::Kernel(kernel) => kernel.is_error_about_device(packet),
            PathInUse::None | PathInUse::Programs(_) => false,
        }
    }

    /// Handles an ICMPv6 message to an address of this machine; takes effect with the next
    /// [`Self::commit_changes`].
    pub(crate) fn handle_icmpv6(&mut self, destination: Ipv6Addr, message: &[u8]) {
        if let PathInUse::Kernel(kernel) = &mut self.path_in_use {
            kernel.handle_icmpv6(destination, message);
        }
    }

    /// Removes temporary entries that have expired, such as paths that were too narrow. Takes effect with the
    /// next [`Self::commit_changes`].
    pub(crate) fn remove_expired(&mut self) {
        if let PathInUse::Kernel(kernel) = &mut self.path_in_use {
            kernel.expire_small_mtus();
        }
    }

    /// Returns the traffic of each tunnel on this path.
    pub(crate) fn tunnel_traffic(&self) -> HashMap<TunnelEnds, TunnelTraffic> {
        match &self.path_in_use {
            PathInUse::None => HashMap::new(),
            PathInUse::Programs(programs) => programs.tunnel_traffic(),
            PathInUse::Kernel(kernel) => kernel.tunnel_traffic(),
        }
    }

    /// Makes room for the bindings of this config. If the programs in use have too little room, a thread
    /// loads larger ones, and the old ones stay in use meanwhile.
    pub(crate) fn grow_maps(
        &mut self,
        config: &FastPathConfig,
        tunnel_device: u32,
        requests: &mut NetlinkRequests,
    ) -> Result<(), String> {
        if let Some(loading) = &mut self.loading_programs {
            // After the thread has finished, its programs may be too small for the new config; the thread
            // then starts again.
            loading.config = FastPathConfig {
                paths_by_preference: loading.config.paths_by_preference.clone(),
                ..config.clone()
            };
            return Ok(());
        }
        let PathInUse::Programs(programs) = &self.path_in_use else { return Ok(()) };
        if !programs.has_room_for(config) {
            self.loading_programs =
                Some(LoadingPrograms::begin_loading(programs.kind(), config, tunnel_device, requests)?);
        }
        Ok(())
    }

    /// Returns the counters of the path.
    pub(crate) fn counters(&self) -> FastPathCounters {
        match &self.path_in_use {
            PathInUse::None => FastPathCounters::default(),
            PathInUse::Programs(programs) => programs.counters_per_processor(),
            PathInUse::Kernel(kernel) => kernel.counters(),
        }
    }
}
