//! Ways around the slow path.
//!
//! A fast path may do the work of the slow path (the TUN device and `carnet_station::forwarding`) sooner,
//! with the same result:
//!
//! * `programs`: BPF programs at the ingress of the interfaces, on socket buffers (tc, [`Path::Bpf`]) or
//!   before there are any (XDP, [`Path::Xdp`]). They take the common packets and leave the others to the slow
//!   path.
//! * `kernel`: tunnel devices of the kernel's own ip6_tunnel module ([`Path::Kernel`]).
//! * `geonet`: BPF programs for IPv6 over GeoNetworking, beside all of these and independent of them.
//!
//! BPF programs know tunnels in IPv6, in IPv4 and in UDP in IPv4, and distribute a binding's packets among
//! several of them (`rules`). The kernel's devices know one tunnel in IPv6 for all of that. `selection`
//! withholds from them what they cannot do, which stays with the slow path.
//!
//! The tunnels of the desired forwarding state have everything that a fast path needs; `table` turns these
//! into the content of the programs' maps. [`FastPath::set`] and [`FastPath::remove`] announce a change. It
//! takes effect with [`FastPath::commit`], all at once for a binding.
//!
//! The kernel takes a quarter of a second to verify the programs, and half a minute on a slow processor. A
//! thread loads them (`loading`) while the TUN device serves, and [`FastPath::poll_loading`] takes them into
//! use.

pub mod geonet;
mod hook;
mod kernel;
mod loading;
mod policy;
mod programs;
mod receivers;
mod rules;
mod selection;
mod table;
mod values;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::task::{Context, Poll};

use carnet_base::{Endpoint, parts};
use carnet_station::forwarding::desired::{self, TunnelEnd};
use ipnet::Ipv6Net;

use crate::netlink::{AddressInfo, Dirty, Heard, LinkInfo, Requests};
use crate::settings;
use kernel::Kernel;
pub(crate) use kernel::is_ours;
use loading::Loading;
use policy::Routing;
use programs::{Kind, Programs};
use selection::{Selection, is_for_programs};

/// Why there are no programs in such a program.
const WITHOUT_BPF: &str = "this program was built without BPF programs";

/// A way that packets take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// BPF programs at tc ingress, with the TUN device behind them.
    Bpf,
    /// XDP programs, with the TUN device behind them.
    Xdp,
    /// Tunnel devices of the kernel, with the TUN device beside them.
    Kernel,
    /// The TUN device alone.
    Tun,
}

impl Path {
    /// Its name in the configuration and in what carnet shows.
    pub fn name(self) -> &'static str {
        match self {
            Path::Bpf => "bpf",
            Path::Xdp => "xdp",
            Path::Kernel => "kernel",
            Path::Tun => "tun",
        }
    }
}

/// Roles of the interfaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ports {
    /// Links of the mobile network: packets from there go into the tunnel.
    pub lan: Vec<String>,
    /// Uplinks of the mobile router: packets come out of the tunnel there.
    pub uplinks: Vec<String>,
    /// Whether the station is a home agent, for which all interfaces are alike.
    pub home_agent: bool,
    /// Whether a mobile router may have direct routes to others, which are found by destination like a home
    /// agent's tunnels.
    pub direct: bool,
}

impl Ports {
    /// Whether packets come in by this interface that go into tunnels.
    pub(crate) fn send(&self, link: &LinkInfo) -> bool {
        // A loopback interface has no link-layer address, nor has the tunnel device.
        link.link_address.is_some() && (self.home_agent || self.lan.contains(&link.name))
    }
}

/// Config of [`crate::Platform::accelerate`].
#[derive(Debug, Clone)]
pub struct FastPathConfig {
    /// The ways to try, the first that the kernel allows is taken. The TUN device is always there, whether or
    /// not it is the last of them.
    pub paths: Vec<Path>,
    /// The key of outer flow labels (`Station::flow_label_key`).
    pub flow_label_key: u64,
    /// How many bindings and prefixes there may be.
    pub bindings: usize,
    /// Roles of the interfaces.
    pub ports: Ports,
}

/// Packets of one tunnel that a fast path has forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TunnelTraffic {
    /// Inner packets sent.
    pub encapsulated_packets: u64,
    /// Octets of these.
    pub encapsulated_octets: u64,
    /// Inner packets received.
    pub decapsulated_packets: u64,
    /// Octets of these.
    pub decapsulated_octets: u64,
}

impl TunnelTraffic {
    fn numbers(&mut self) -> [&mut u64; 4] {
        let TunnelTraffic {
            encapsulated_packets,
            encapsulated_octets,
            decapsulated_packets,
            decapsulated_octets,
        } = self;
        [encapsulated_packets, encapsulated_octets, decapsulated_packets, decapsulated_octets]
    }

    /// Adds what has come since.
    fn add(&mut self, mut now: TunnelTraffic, mut since: TunnelTraffic) {
        for ((sum, now), since) in self.numbers().into_iter().zip(now.numbers()).zip(since.numbers()) {
            *sum += now.saturating_sub(*since);
        }
    }
}

/// Two ends of a tunnel: the local one and the remote one.
pub type TunnelEnds = (Endpoint, Endpoint);

/// Counters of the fast path since its start, by name; see `enum outcome` in `bpf/tunnel.h`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FastPathCounters {
    /// Inner packets sent and received, in all.
    pub total: TunnelTraffic,
    /// Packets that were left to the slow path or, the last, that got lost: `(reason, count)`.
    pub left: Vec<(&'static str, u64)>,
}

/// A tunnel of IPv6 in IPv6: [`desired::Tunnel`] as far as the kernel's devices know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tunnel {
    pub(crate) end: TunnelEnd,
    pub(crate) home_address: Ipv6Addr,
    pub(crate) local: Ipv6Addr,
    pub(crate) remote: Ipv6Addr,
    pub(crate) inner: Vec<Ipv6Net>,
    pub(crate) transmit: bool,
    pub(crate) mtu: u32,
}

impl Tunnel {
    /// `None` for one of another kind. A device takes everything that has no route of its own, so that direct
    /// routes are left to the slow path.
    fn of(tunnel: &desired::Tunnel) -> Option<Tunnel> {
        if tunnel.end == TunnelEnd::Direct {
            return None;
        }
        let desired::Tunnel { end, home_address, bid: _, local, remote, inner, transmit, mtu } = tunnel;
        Some(Tunnel {
            end: *end,
            home_address: *home_address,
            local: local.ipv6()?,
            remote: remote.ipv6()?,
            inner: inner.clone(),
            transmit: *transmit,
            mtu: *mtu,
        })
    }
}

/// Which end, and whose.
type Binding = (TunnelEnd, Ipv6Addr);

/// Removes what a crash of any fast path has left, other than routes and rules.
pub(crate) fn clean(requests: &mut Requests) -> crate::error::Result<()> {
    for link in requests.links()? {
        if is_ours(&link) {
            requests.delete_link(link.index)?;
        } else if requests.delete_ingress_filters(link.index, hook::PRIORITY)? {
            requests.delete_idle_clsact(link.index)?;
        }
    }
    Ok(())
}

/// The fast path in use, and what it is told of.
#[derive(Debug, Default)]
pub(crate) struct FastPath {
    kind: InUse,
    selection: Selection,
    /// Sockets of tunnels inside IPv4, and the interface that each is bound to: 0 for none.
    sockets: BTreeMap<desired::Socket, u32>,
    /// Of outer flow labels, and of what distributes packets.
    key: u64,
    routing: Routing,
    /// Programs that a thread loads, beside or instead of those in use.
    loading: Option<Loading>,
}

/// Result of a thread that loads programs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Loaded {
    /// The path is decided, and these cannot be had.
    Decided(Vec<(Path, String)>),
    /// The path is the same, with room for more bindings.
    Grown,
    /// It has no room for more bindings than before: why.
    NotGrown(String),
}

#[derive(Debug, Default)]
enum InUse {
    /// None: everything goes through the TUN device.
    #[default]
    None,
    /// BPF programs.
    Programs(Box<Programs>, parts::Bpf),
    /// Tunnel devices.
    Kernel(Box<Kernel>),
}

impl FastPath {
    /// The first way of the list that the kernel allows, and why those before it cannot be had; `None` while
    /// a thread loads the programs for one of them, see [`Self::poll_loading`].
    pub(crate) fn open(
        config: &FastPathConfig,
        tunnel_device: u32,
        requests: &mut Requests,
    ) -> (FastPath, Option<Vec<(Path, String)>>) {
        let mut fast_path = FastPath { key: config.flow_label_key, ..FastPath::default() };
        let obstacles = fast_path.try_paths(config, &config.paths, Vec::new(), tunnel_device, requests);
        (fast_path, obstacles)
    }

    /// As [`Self::open`], for the rest of the list.
    fn try_paths(
        &mut self,
        config: &FastPathConfig,
        paths: &[Path],
        mut obstacles: Vec<(Path, String)>,
        tunnel_device: u32,
        requests: &mut Requests,
    ) -> Option<Vec<(Path, String)>> {
        for (at, path) in paths.iter().enumerate() {
            let kind = match path {
                Path::Bpf => Kind::Tc,
                Path::Xdp => Kind::Xdp,
                Path::Kernel => {
                    match Kernel::open(requests, tunnel_device, config.ports.clone()) {
                        Ok(kernel) => {
                            self.kind = InUse::Kernel(Box::new(kernel));
                            return Some(obstacles);
                        }
                        Err(why) => obstacles.push((*path, why)),
                    }
                    continue;
                }
                Path::Tun => break,
            };
            let Some(part) = parts::bpf() else {
                obstacles.push((*path, WITHOUT_BPF.to_owned()));
                continue;
            };
            match Loading::begin(kind, config, tunnel_device, part, requests) {
                Ok(mut loading) => {
                    (loading.others, loading.obstacles) = (paths[at + 1..].to_vec(), obstacles);
                    self.loading = Some(loading);
                    return None;
                }
                Err(why) => obstacles.push((*path, why)),
            }
        }
        Some(obstacles)
    }

    /// Returns the result of the loading thread, once; registers a wake-up while it loads. New programs need
    /// all tunnels and the interfaces from the caller.
    pub(crate) fn poll_loading(
        &mut self,
        cx: &mut Context<'_>,
        tunnel_device: u32,
        requests: &mut Requests,
    ) -> Option<Loaded> {
        let Poll::Ready(result) = self.loading.as_mut()?.poll(cx) else { return None };
        let Loading { config, others, obstacles, path, part, .. } = self.loading.take()?;
        let grows = !matches!(self.kind, InUse::None);
        let taken = result.and_then(|programs| match programs.has_room_for(&config) {
            true => self.take(programs, &config, part, requests).map(|()| true),
            // The config was read again meanwhile.
            false => Ok(false),
        });
        match taken {
            Ok(true) if grows => Some(Loaded::Grown),
            Ok(true) => Some(Loaded::Decided(obstacles)),
            Ok(false) => {
                let paths: Vec<Path> = [path].into_iter().chain(others).collect();
                let decided = self.try_paths(&config, &paths, obstacles, tunnel_device, requests);
                decided.map(Loaded::Decided)
            }
            Err(why) if grows => Some(Loaded::NotGrown(why)),
            Err(why) => {
                let obstacles = [obstacles, vec![(path, why)]].concat();
                let decided = self.try_paths(&config, &others, obstacles, tunnel_device, requests);
                decided.map(Loaded::Decided)
            }
        }
    }

    /// Takes programs into use, in the place of others if there are any: only one can be at an interface.
    fn take(
        &mut self,
        mut programs: Box<Programs>,
        config: &FastPathConfig,
        part: parts::Bpf,
        requests: &mut Requests,
    ) -> Result<(), String> {
        if let Err(error) = settings::forward_ipv4_from(desired::TUNNEL_DEVICE) {
            tracing::debug!("what a home agent sends inside IPv4 takes the slow path: {error}");
        }
        programs.ports = config.ports.clone();
        programs.begin();
        let before = std::mem::take(&mut self.kind);
        let is_first = matches!(before, InUse::None);
        drop(before);
        if !is_first {
            self.routing.tell(&mut programs)?;
        }
        self.kind = InUse::Programs(programs, part);
        if is_first && let Err(why) = self.learn_routing(requests) {
            tracing::debug!("{why}");
        }
        let known: Vec<(Binding, bool)> = self.selection.bindings().collect();
        known.into_iter().for_each(|(binding, others)| self.hold(binding, others));
        let sockets: BTreeSet<Endpoint> = self.sockets.keys().map(|socket| socket.local).collect();
        sockets.into_iter().for_each(|local| self.tell_socket(local));
        Ok(())
    }

    /// The way for which a thread loads programs.
    pub(crate) fn loading(&self) -> Option<Path> {
        self.loading.as_ref().map(|loading| loading.path)
    }

    /// Which way it is.
    pub(crate) fn path(&self) -> Path {
        match &self.kind {
            InUse::None => Path::Tun,
            InUse::Programs(programs, _) => programs.path(),
            InUse::Kernel(_) => Path::Kernel,
        }
    }

    /// Which way the packets of one tunnel take.
    pub(crate) fn path_of(&self, local: Endpoint, remote: Endpoint) -> Path {
        let carries = match &self.kind {
            InUse::None => false,
            InUse::Programs(programs, _) => programs.table.has((local, remote)),
            InUse::Kernel(kernel) => local.ipv6().zip(remote.ipv6()).is_some_and(|ends| kernel.carries(ends)),
        };
        if carries { self.path() } else { Path::Tun }
    }

    /// Whether it takes what comes inside IPv4, packet by packet, or is about to.
    pub(crate) fn takes_datagrams(&self) -> bool {
        self.loading.is_some() || matches!(self.kind, InUse::Programs(..))
    }

    /// A tunnel is there, or is another than before.
    pub(crate) fn set(&mut self, tunnel: &Arc<desired::Tunnel>) {
        match &mut self.kind {
            InUse::None => return,
            InUse::Programs(programs, _) if is_for_programs(tunnel) => return programs.table.set(tunnel),
            InUse::Programs(..) => {}
            InUse::Kernel(kernel) => {
                if let Some(tunnel) = Tunnel::of(tunnel) {
                    return kernel.set(&tunnel);
                }
            }
        }
        let others = self.selection.set_other(tunnel);
        self.hold((tunnel.end, tunnel.home_address), others);
    }

    /// A tunnel is gone.
    pub(crate) fn remove(&mut self, tunnel: &desired::Tunnel) {
        match &mut self.kind {
            InUse::None => return,
            InUse::Programs(programs, _) if is_for_programs(tunnel) => return programs.remove(tunnel),
            InUse::Programs(..) => {}
            InUse::Kernel(kernel) => {
                if let Some(tunnel) = Tunnel::of(tunnel) {
                    return kernel.remove(&tunnel);
                }
            }
        }
        let others = self.selection.remove_other(tunnel);
        self.hold((tunnel.end, tunnel.home_address), others);
    }

    /// A socket of tunnels inside IPv4 is there, bound to the interface of this index or, with 0, to none.
    pub(crate) fn set_socket(&mut self, socket: &desired::Socket, index: u32) {
        self.sockets.insert(socket.clone(), index);
        self.tell_socket(socket.local);
    }

    /// It is gone.
    pub(crate) fn remove_socket(&mut self, socket: &desired::Socket) {
        self.sockets.remove(socket);
        self.tell_socket(socket.local);
    }

    fn tell_socket(&mut self, local: Endpoint) {
        let InUse::Programs(programs, _) = &mut self.kind else { return };
        let mut indices =
            self.sockets.iter().filter(|(known, _)| known.local == local).map(|(_, index)| *index);
        // With several sockets the right one is unknown.
        let index = indices.next().filter(|_| indices.next().is_none());
        programs.table.set_socket(local, index);
    }

    /// Whether a binding's packets are distributed among its tunnels.
    pub(crate) fn distribute(&mut self, distribution: &desired::Distribution, is: bool) {
        self.selection.distribute(distribution, self.key, is);
        let binding = (distribution.end, distribution.home_address);
        let others = self.selection.bindings().any(|(known, others)| known == binding && others);
        self.hold(binding, others);
    }

    /// How a binding sends; with `others` into tunnels that the fast path cannot do.
    fn hold(&mut self, binding: Binding, others: bool) {
        let distributor = self.selection.distributor(binding);
        match &mut self.kind {
            InUse::None => {}
            InUse::Programs(programs, _) => {
                programs.table.hold(binding, others);
                programs.table.distribute(binding, distributor.map(rules::rules));
            }
            InUse::Kernel(kernel) => kernel.hold(binding, others || distributor.is_some()),
        }
    }

    /// Makes the changes since the last commit take effect. A fast path that fails is given up: the slow path
    /// does the work from then on, and the text says why. `slow` are the routes into the TUN device, table
    /// and destination, unless they are the same as before.
    pub(crate) fn commit(
        &mut self,
        requests: &mut Requests,
        slow: Option<BTreeSet<(u32, Ipv6Net)>>,
    ) -> Result<(), String> {
        let result = match &mut self.kind {
            InUse::None => Ok(()),
            InUse::Programs(programs, _) => programs.commit(),
            InUse::Kernel(kernel) => kernel.commit(requests, slow),
        };
        if result.is_err() {
            self.close(requests);
        }
        result
    }

    /// Forgets cached next hops because routes, rules or addresses have changed. With `narrow` only
    /// neighbours changed, or carnet's own routes into the tunnel device. With such a route more packets go
    /// there, and without it its binding is gone. As [`Self::commit`] it may end the fast path.
    pub(crate) fn forget(
        &mut self,
        requests: &mut Requests,
        heard: Heard,
        narrow: bool,
    ) -> Result<(), String> {
        let InUse::Programs(programs, _) = &mut self.kind else { return Ok(()) };
        let known = programs.are_crowded(&heard.crowded);
        let result = match narrow
            && known
            && heard == (Heard { crowded: heard.crowded.clone(), ..Heard::default() })
        {
            true => programs.forget_flows(),
            false => self.routing.follow(programs, requests, heard),
        };
        if result.is_err() {
            self.kind = InUse::None;
        }
        result
    }

    /// Looks at all rules and routes where something that stood in the way may be gone.
    pub(crate) fn look_again(&mut self, requests: &mut Requests) -> Result<(), String> {
        if self.routing.is_doubtful() { self.learn_routing(requests) } else { Ok(()) }
    }

    fn learn_routing(&mut self, requests: &mut Requests) -> Result<(), String> {
        let InUse::Programs(programs, _) = &mut self.kind else { return Ok(()) };
        let result = self.routing.learn(programs, requests);
        if result.is_err() {
            self.kind = InUse::None;
        }
        result
    }

    /// Notes what of it the kernel has lost, which the next [`Self::commit`] puts back, and returns how much
    /// that is.
    pub(crate) fn note_lost(
        &mut self,
        requests: &mut Requests,
        dirty: Dirty,
        links: &BTreeMap<String, LinkInfo>,
        addresses: &[AddressInfo],
    ) -> crate::error::Result<u64> {
        match &mut self.kind {
            InUse::Kernel(kernel) => kernel.note_lost(requests, dirty, links, addresses),
            InUse::None | InUse::Programs(..) => Ok(0),
        }
    }

    /// Whether it has, or is about to have, rules before the one of the local table.
    pub(crate) fn has_early_rules(&self) -> bool {
        matches!(&self.kind, InUse::Kernel(kernel) if kernel.has_early_rules())
    }

    /// Removes all that it has made.
    pub(crate) fn close(&mut self, requests: &mut Requests) {
        if let InUse::Kernel(kernel) = &mut self.kind
            && let Err(error) = kernel.close(requests)
        {
            tracing::warn!("{error}");
        }
        (self.kind, self.loading) = (InUse::None, None);
    }

    /// The interfaces are these now; what could not be done with one of them comes back, once for each
    /// reason.
    pub(crate) fn follow(&mut self, links: &BTreeMap<String, LinkInfo>) -> Vec<String> {
        match &mut self.kind {
            InUse::None | InUse::Kernel(_) => Vec::new(),
            InUse::Programs(programs, _) => programs.follow(links),
        }
    }

    /// Follows what interfaces can do, in the task that waits for it; what could not be done comes back as
    /// from [`Self::follow`].
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Vec<String> {
        match &mut self.kind {
            InUse::Programs(programs, _) => match programs.receivers.poll(cx) {
                true => programs.follow_receivers(),
                false => Vec::new(),
            },
            InUse::None | InUse::Kernel(_) => Vec::new(),
        }
    }

    /// The interfaces have other tasks now; takes effect with the next [`Self::follow`] and [`Self::commit`].
    pub(crate) fn set_ports(&mut self, ports: Ports) {
        if let Some(loading) = &mut self.loading {
            loading.config.ports = ports.clone();
        }
        match &mut self.kind {
            InUse::None => {}
            InUse::Programs(programs, _) => {
                programs.ports = ports;
                self.routing.doubt();
            }
            InUse::Kernel(kernel) => kernel.set_ports(ports),
        }
    }

    /// The ends of tunnels into which packets went since they were last named.
    pub(crate) fn used(&mut self) -> Vec<TunnelEnds> {
        match &mut self.kind {
            InUse::Programs(programs, _) => programs.used(),
            _ => Vec::new(),
        }
    }

    /// Where packets of new flows into the tunnel of a mobile router went since this was asked last, where it
    /// notes that.
    pub(crate) fn sought(&mut self) -> Vec<Ipv6Addr> {
        match &mut self.kind {
            InUse::Programs(programs, _) => programs.sought(),
            InUse::None | InUse::Kernel(_) => Vec::new(),
        }
    }

    /// The neighbours whose link-layer addresses packets got within this time, by interface.
    pub(crate) fn neighbours(&self, within: std::time::Duration) -> Vec<(u32, std::net::IpAddr)> {
        match &self.kind {
            InUse::None | InUse::Kernel(_) => Vec::new(),
            InUse::Programs(programs, _) => programs.neighbours(within),
        }
    }

    /// Whether a packet that came to carnet is for the kernel after all, and is to be written back as it is.
    pub(crate) fn concerns(&mut self, packet: &[u8]) -> bool {
        match &mut self.kind {
            InUse::Kernel(kernel) => kernel.concerns(packet),
            InUse::None | InUse::Programs(..) => false,
        }
    }

    /// An ICMPv6 message came to an address of this machine; what follows takes effect with the next
    /// [`Self::commit`].
    pub(crate) fn hear(&mut self, destination: Ipv6Addr, message: &[u8]) {
        if let InUse::Kernel(kernel) = &mut self.kind {
            kernel.hear(destination, message);
        }
    }

    /// Forgets what is too old; takes effect with the next [`Self::commit`].
    pub(crate) fn expire(&mut self) {
        if let InUse::Kernel(kernel) = &mut self.kind {
            kernel.expire();
        }
    }

    /// Returns its traffic, by tunnel.
    pub(crate) fn tunnel_traffic(&self) -> HashMap<TunnelEnds, TunnelTraffic> {
        match &self.kind {
            InUse::None => HashMap::new(),
            InUse::Programs(programs, _) => programs.tunnel_traffic(),
            InUse::Kernel(kernel) => kernel.tunnel_traffic(),
        }
    }

    /// Makes room if there is not enough for the bindings of this config. A thread loads the programs anew,
    /// and those in use continue meanwhile.
    pub(crate) fn grow(
        &mut self,
        config: &FastPathConfig,
        tunnel_device: u32,
        requests: &mut Requests,
    ) -> Result<(), String> {
        if let Some(loading) = &mut self.loading {
            // It begins anew if that is too little.
            loading.config = FastPathConfig { paths: loading.config.paths.clone(), ..config.clone() };
            return Ok(());
        }
        let InUse::Programs(programs, part) = &self.kind else { return Ok(()) };
        if !programs.has_room_for(config) {
            self.loading = Some(Loading::begin(programs.kind(), config, tunnel_device, *part, requests)?);
        }
        Ok(())
    }

    /// Returns its counters.
    pub(crate) fn counters(&self) -> FastPathCounters {
        match &self.kind {
            InUse::None => FastPathCounters::default(),
            InUse::Programs(programs, _) => programs.counters(),
            InUse::Kernel(kernel) => kernel.counters(),
        }
    }
}
