//! The platform gives the station access to all networking of the kernel that it uses.
//!
//! The platform runs in the caller's thread. The caller passes changes to [`Platform::apply`], and they are
//! in place when it returns. [`Platform::next_event`] returns events. It also installs entries again that the
//! kernel has dropped. So the caller has to await it all the time, for example in a `select!`.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::task::{Context, Poll};
use std::time::Duration;

use carnet_base::Endpoint;
use carnet_nemo::forwarding::desired::{EntryChange, ForwardingEntry, TUNNEL_DEVICE};
use carnet_nemo::forwarding::packet_rules::{CountedTraffic, PacketCount};
use carnet_station::io::{LinkMessage, Octets};
use carnet_wire::icmpv6::types::ROUTER_ADVERTISEMENT;
use tokio::time::{Interval, interval};

use crate::advertised::is_conditional;
use crate::counters::Counters;
use crate::datagrams::Datagrams;
use crate::error::{Error, Result};
use crate::event::PlatformEvent;
use crate::fast_path::{
    FastPath, FastPathConfig, FastPathCounters, Loaded, Path, Ports, TunnelEnds, TunnelTraffic,
};
use crate::installer::{Installer, NEIGHBOUR_REPORT_INTERVAL};
use crate::keeper::{StateKeeper, log_closed_fast_path};
use crate::link_socket::{CapturePoint, LinkSockets, WatchedInterface};
use crate::netlink::{IPV6_MINIMUM_MTU, Monitor, Requests};
use crate::observer::InterfaceObserver;
use crate::protected::Protected;
use crate::settings::KernelSettings;
use crate::tunnel::{QUEUE, TunnelIo};
use crate::undo::UndoFile;
use crate::{interface_counters, privileges, settings};

/// Returns the first octets of the kernel's boot identifier, or 0 if carnet cannot read it. Then a reboot
/// shows only by smaller counters.
fn boot() -> u64 {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or_default()
}

/// Interval at which carnet asks the fast path which tunnels and destinations have had packets.
const SEEKING: Duration = Duration::from_secs(1);

/// Notice for the operator if carnet cannot load programs with more room.
const NO_ROOM: &str = "the fast path has no room for all bindings of the new config: packets of some \
    bindings take the slow path";

/// Config of [`Platform::open`].
#[derive(Debug, Clone)]
pub struct PlatformConfig {
    /// MTU of the TUN device in octets, at least 1280.
    pub device_mtu: u32,
    /// Links on which the platform receives ICMPv6. An interface may appear later.
    pub watched: Vec<WatchedInterface>,
    /// Largest number of known remote tunnel ends. Their control messages get a separate queue of the TUN
    /// device, apart from messages of unauthenticated sources. A number from 1 to 1023 counts as 1024. With 0
    /// the device has one queue for all packets.
    pub senders: usize,
    /// Whether IPsec protects the station's messages.
    pub ipsec: bool,
    /// Path of the undo file, which lists the changes to revert after a crash. Its directory must exist.
    pub undo_file: PathBuf,
}

/// Access to all networking of the kernel that a station uses; see the head of the module.
#[derive(Debug)]
pub struct Platform {
    tunnel: TunnelIo,
    keeper: StateKeeper,
    monitor: Monitor,
    link_sockets: LinkSockets,
    protected: Protected,
    events: VecDeque<PlatformEvent>,
    keeping: Interval,
    seeking: Interval,
    ports: Ports,
    /// Number that identifies this boot of the machine.
    boot: u64,
    /// Number of consecutive failures to read the kernel's state.
    failures: u32,
    open: bool,
}

impl Platform {
    /// Checks the requirements, removes entries that a crash has left, and creates the TUN device.
    ///
    /// Works in the network namespace of the calling thread, which must be a thread of a tokio runtime.
    pub fn open(config: PlatformConfig) -> Result<Platform> {
        if config.device_mtu < IPV6_MINIMUM_MTU {
            return Err(Error::Invalid {
                what: "device_mtu".into(),
                expected: format!("at least {IPV6_MINIMUM_MTU}"),
                got: config.device_mtu.to_string(),
            });
        }
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(Error::Invalid {
                what: "thread".into(),
                expected: "a thread of a tokio runtime".into(),
                got: "another".into(),
            });
        }
        if !settings::ipv6_exists() {
            let source = io::Error::from_raw_os_error(libc::EAFNOSUPPORT);
            return Err(Error::kernel(
                "use IPv6: the kernel has no IPv6, or a boot parameter turns it off",
                source,
            ));
        }
        privileges::check()?;
        // Open the socket for IPsec first: if the kernel has no IPsec, nothing has been changed yet.
        let protected = if config.ipsec { Protected::open()? } else { Protected::default() };
        // The device exists once per network namespace. So no other station is running in this namespace, and
        // none can start.
        let (tunnel, known) = TunnelIo::create(config.senders)?;
        let mut requests = Requests::open()?;
        let index = requests.links().find(TUNNEL_DEVICE)?.map(|link| link.index).ok_or_else(|| {
            Error::kernel(format!("look up {TUNNEL_DEVICE}"), io::Error::from_raw_os_error(libc::ENODEV))
        })?;
        let port = requests.port();
        let undo = UndoFile::open(&config.undo_file);
        let mut installer = Installer::open(requests, KernelSettings::for_kernel(), undo, index)?;
        installer.known_senders = known;
        let monitor = Monitor::open(port)?;
        installer.requests.links().configure_tunnel(index, config.device_mtu, QUEUE)?;
        settings::enable_ipv6(TUNNEL_DEVICE, &mut installer.switches.writes)?;
        // Change the default queueing discipline while the device is down: when it comes up, each of its
        // queues would get one.
        if let Err(error) = installer.requests.queueing_disciplines().disable(index) {
            tracing::debug!(
                "cannot remove the tunnel device's queueing discipline ({error}): carnet is slower"
            );
        }
        installer.requests.links().bring_up_tunnel(index)?;
        let mut platform = Platform {
            tunnel,
            keeper: StateKeeper::new(installer),
            monitor,
            link_sockets: LinkSockets::open(config.watched)?,
            protected,
            events: VecDeque::new(),
            keeping: interval(NEIGHBOUR_REPORT_INTERVAL),
            seeking: interval(SEEKING),
            ports: Ports::default(),
            boot: boot(),
            failures: 0,
            open: true,
        };
        platform.refresh()?;
        Ok(platform)
    }

    /// Opens the first fast path of the list that the kernel supports, and returns the unusable ones before
    /// it, with the reasons. If the kernel supports none, or [`Path::Tun`] is the first, every packet takes
    /// the TUN device.
    ///
    /// Returns `None` while a thread loads BPF programs, up to half a minute on a slow processor. Until
    /// [`PlatformEvent::DataPath`] reports the result, every packet takes the TUN device.
    ///
    /// The caller must call this function before the first [`Self::apply`].
    pub fn accelerate(&mut self, config: &FastPathConfig) -> Option<Vec<(Path, String)>> {
        let Installer { tunnel_index, requests, .. } = &mut self.keeper.installer;
        let (fast_path, obstacles) = FastPath::open(config, *tunnel_index, requests);
        self.keeper.installer.fast_path = fast_path;
        self.ports = config.ports.clone();
        self.follow_links();
        obstacles
    }

    /// Waits until the loading thread has finished, and returns the unusable fast paths with the reasons. For
    /// callers that have no other work meanwhile.
    pub async fn accelerated(&mut self) -> Vec<(Path, String)> {
        loop {
            if let Loaded::Decided(obstacles) = poll_fn(|cx| self.poll_fast_path(cx)).await {
                return obstacles;
            }
        }
    }

    /// Returns the fast path whose programs a thread loads now; `None` if no thread loads any.
    pub fn loading(&self) -> Option<Path> {
        self.keeper.installer.fast_path.loading()
    }

    fn poll_fast_path(&mut self, cx: &mut Context<'_>) -> Poll<Loaded> {
        match self.keeper.installer.poll_fast_path(cx) {
            Some(loaded) => {
                self.follow_links();
                self.commit();
                Poll::Ready(loaded)
            }
            None => Poll::Pending,
        }
    }

    /// Returns the socket for messages under IPsec.
    pub fn protected(&self) -> Protected {
        self.protected.clone()
    }

    /// Opens or closes the socket for messages under IPsec, after a change of the config.
    pub fn set_ipsec(&mut self, wanted: bool) -> Result<()> {
        if wanted != self.protected.is_open() {
            self.protected = if wanted { Protected::open()? } else { Protected::default() };
        }
        Ok(())
    }

    /// Returns the data path in use.
    pub fn path(&self) -> Path {
        self.keeper.installer.fast_path.path()
    }

    /// Returns the data path of one tunnel's packets.
    pub fn path_of(&self, local: Endpoint, remote: Endpoint) -> Path {
        self.keeper.installer.fast_path.path_of(local, remote)
    }

    /// Tells the fast path and the packet sockets which interfaces lead to the mobile network and which are
    /// uplinks.
    pub fn set_ports(&mut self, ports: Ports) {
        self.ports = ports.clone();
        self.keeper.installer.fast_path.set_ports(ports);
        self.follow_links();
        self.commit();
    }

    /// Returns whether the kernel itself has to handle a packet that came out of the TUN device. The caller
    /// writes it back unchanged.
    pub fn concerns_kernel(&mut self, packet: &[u8]) -> bool {
        let concerns = self.keeper.installer.fast_path.is_for_kernel(packet);
        if concerns {
            self.commit();
        }
        concerns
    }

    /// Applies the tunnel changes since the last commit to the fast path, which keeps its former state until
    /// then. The slow path applies each change at once.
    pub fn commit(&mut self) {
        self.keeper.commit();
    }

    /// Returns the fast path's traffic, by tunnel.
    pub fn tunnel_traffic(&self) -> HashMap<TunnelEnds, TunnelTraffic> {
        self.keeper.installer.fast_path.tunnel_traffic()
    }

    /// Makes room in the fast path if this config has more bindings than it has room for.
    pub fn make_room(&mut self, config: &FastPathConfig) {
        if let Err(why) = self.keeper.installer.grow_fast_path(config) {
            tracing::warn!("{NO_ROOM}: {why}");
        }
    }

    /// Returns the fast path's counters.
    pub fn fast_path_counters(&self) -> FastPathCounters {
        self.keeper.installer.fast_path.counters()
    }

    fn follow_links(&mut self) {
        let StateKeeper { installer, observer, .. } = &mut self.keeper;
        follow_links(installer, observer, &mut self.link_sockets, &self.ports);
    }

    /// Applies one change of the desired forwarding state.
    ///
    /// A missing interface, or one that is down, is no error: the platform installs the entry when the
    /// interface is up. After an error the entry stays desired as well; the platform tries again when
    /// interfaces change, and at intervals.
    pub fn apply(&mut self, change: &EntryChange) -> Result<()> {
        if let EntryChange::Set(entry) = change
            && matches!(&**entry, ForwardingEntry::Setting(setting) if is_conditional(setting))
        {
            // Read the default routes again, because they depend on this change.
            self.keeper.netlink_changes.dirty.routers = true;
        }
        self.keeper.installer.apply(change)
    }

    /// Returns the next event: first the state of each interface, then changes.
    ///
    /// The future may be dropped without losing an event. After an error, the next call reads the whole state
    /// again. After a [fatal error](Error::is_fatal), do not call it again.
    pub async fn next_event(&mut self) -> Result<PlatformEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            poll_fn(|cx| {
                let result = self.poll(cx);
                self.failures = if let Poll::Ready(Err(_)) = result { self.failures + 1 } else { 0 };
                result
            })
            .await?;
        }
    }

    /// Makes the next [`Self::next_event`] check for settings that another program has changed. The kernel
    /// sends events about most of these changes, but not about all.
    pub fn doubt_settings(&mut self) {
        self.keeper.recheck_settings();
    }

    /// Returns a message for each difference between this machine's state and the station's needs. Examples
    /// are a setting that another program changes, and an entry that the kernel refuses.
    pub fn obstacles(&self) -> Vec<String> {
        self.keeper.installer.obstacles()
    }

    /// Returns how many times in a row [`Self::next_event`] has failed. A complete reading of the state sets
    /// it to 0.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let failed = |e: io::Error| Error::kernel("receive from the kernel", e);
        let news = &mut self.keeper.netlink_changes;
        self.monitor.poll(cx, news).map_err(failed)?;
        if std::mem::take(&mut news.routing) {
            let neighbours_only = !std::mem::take(&mut news.routes);
            let heard = std::mem::take(&mut news.routing_fields);
            let Installer { fast_path, requests, .. } = &mut self.keeper.installer;
            log_closed_fast_path(fast_path.forget(requests, heard, neighbours_only));
        }
        match self.poll_fast_path(cx) {
            Poll::Ready(Loaded::Decided(obstacles)) => {
                self.events.push_back(PlatformEvent::DataPath(obstacles));
            }
            Poll::Ready(Loaded::Grown) => {
                tracing::info!(
                    "enlarged the BPF maps of the fast path for the bindings of the changed config"
                )
            }
            Poll::Ready(Loaded::NotGrown(why)) => tracing::warn!("{NO_ROOM}: {why}"),
            Poll::Pending => {}
        }
        for complaint in self.keeper.installer.fast_path.poll(cx) {
            tracing::warn!("{complaint}");
        }
        self.keeper.poll_packet_rules(cx);
        self.events.extend(self.keeper.installer.rule_table.take_news().map(PlatformEvent::PacketRules));
        if self.keeping.poll_tick(cx).is_ready() {
            // Poll again, so that the timer wakes this task next time.
            let _ = self.keeping.poll_tick(cx);
            self.keeper.installer.keep_neighbours();
            self.keeper.installer.fast_path.expire();
            let Installer { fast_path, requests, .. } = &mut self.keeper.installer;
            log_closed_fast_path(fast_path.recheck_obstacles(requests));
            self.commit();
            let used = self.keeper.installer.fast_path.used().into_iter();
            self.events.extend(used.map(|(local, remote)| PlatformEvent::TunnelUsed { local, remote }));
        }
        if self.seeking.poll_tick(cx).is_ready() {
            let _ = self.seeking.poll_tick(cx);
            self.keeper.tick();
            let sought = self.keeper.installer.fast_path.take_new_flow_destinations();
            if !sought.is_empty() {
                self.events.push_back(PlatformEvent::Destinations(sought));
            }
        }
        self.refresh()?;
        let known = self.events.len();
        self.link_sockets.poll(cx, &mut self.events).map_err(failed)?;
        for event in self.events.iter().skip(known) {
            if let PlatformEvent::Icmpv6(message) = event {
                self.keeper.installer.fast_path.handle_icmpv6(message.destination, &message.message);
                if message.message.first() == Some(&ROUTER_ADVERTISEMENT) {
                    self.keeper.handle_router_advertisement(&message.interface, message.source);
                }
            }
        }
        if self.events.len() > known {
            self.commit();
        }
        // `refresh` may have opened a socket, which is registered to wake this task only after it is polled.
        if self.events.is_empty() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Reads the changed parts of the kernel's state, installs lost entries again, and collects events for
    /// the caller.
    fn refresh(&mut self) -> Result<()> {
        let Platform { keeper, events, link_sockets, ports, .. } = self;
        keeper.refresh(events, |installer, observer| {
            follow_links(installer, observer, link_sockets, ports);
        })
    }

    /// Sends an ICMPv6 message on a link from the source address in it, and fills in its checksum.
    ///
    /// A unicast message needs `peer` if the link has link-layer addresses. A multicast message goes to the
    /// link-layer address of its group.
    pub fn send_icmpv6(&mut self, message: &LinkMessage) -> Result<()> {
        let known = self.keeper.observer.links.get(&message.interface);
        let operation =
            || format!("send an ICMPv6 message to {} on {}", message.destination, message.interface);
        match known {
            Some(link) => self.link_sockets.send(link, message),
            None => Err(Error::kernel(operation(), io::Error::from_raw_os_error(libc::ENODEV))),
        }
    }

    /// Returns the traffic that rules of the packet filter have counted since the start.
    pub fn counted_traffic(&mut self) -> BTreeMap<CountedTraffic, PacketCount> {
        self.keeper.installer.rule_table.traffic()
    }

    /// Returns why the rules of the packet filter are not in force; `None` if they are.
    pub fn packet_rules_failure(&self) -> Option<&str> {
        self.keeper.installer.rule_table.error()
    }

    /// Returns the names of the interfaces at which the kernel knows a neighbour with this link-layer
    /// address.
    pub fn interfaces_of(&mut self, address: [u8; 6]) -> Result<Vec<String>> {
        let indices = self.keeper.installer.requests.neighbours().interfaces_of(address)?;
        let links = self.keeper.observer.links.values().filter(|link| indices.contains(&link.index));
        Ok(links.map(|link| link.name.clone()).collect())
    }

    /// Returns the octets that an interface has received and sent since its creation; `None` if the interface
    /// does not exist.
    pub fn octets(&self, interface: &str) -> Result<Option<Octets>> {
        let counted = interface_counters::octets(interface)?;
        // The kernel gives each index only once per boot, so the index identifies the interface.
        Ok(counted.map(|(index, received, sent)| Octets {
            epoch: self.boot ^ u64::from(index),
            total: received.saturating_add(sent),
            received,
        }))
    }

    /// Returns the IPv6 addresses at which hosts with these link-layer addresses have lately answered the
    /// kernel on an interface. Asks the kernel to verify their other addresses, so a later call returns those
    /// at which they answer.
    pub fn verified_neighbours(
        &mut self,
        interface: &str,
        hosts: &BTreeSet<[u8; 6]>,
    ) -> Result<Vec<(Ipv6Addr, [u8; 6])>> {
        let Ok(index) = nix::net::if_::if_nametoindex(interface) else { return Ok(Vec::new()) };
        let mut neighbours = self.keeper.installer.requests.neighbours();
        let mut known = neighbours.list(index)?;
        known.retain(|neighbour| hosts.contains(&neighbour.link_address));
        for neighbour in known.iter().filter(|neighbour| !neighbour.is_reachable) {
            // The kernel may have forgotten the neighbour since.
            if let Err(error) = neighbours.report_use(index, neighbour.address.into()) {
                tracing::debug!("{error}");
            }
        }
        let verified = known.iter().filter(|neighbour| neighbour.is_reachable);
        Ok(verified.map(|neighbour| (neighbour.address, neighbour.link_address)).collect())
    }

    /// Receives ICMPv6 on these links from now on, in place of the links in [`PlatformConfig::watched`].
    pub fn watch(&mut self, watched: Vec<WatchedInterface>) {
        self.link_sockets.watch(watched);
        self.link_sockets.update_interfaces(&self.keeper.observer.links);
    }

    /// Returns the reader and writer of the TUN device's packets.
    pub fn tunnel(&self) -> TunnelIo {
        self.tunnel.clone()
    }

    /// Returns the sockets of the tunnels inside IPv4 and UDP.
    pub fn datagrams(&self) -> Datagrams {
        self.keeper.installer.datagrams.clone()
    }

    /// Returns the counters since [`Platform::open`].
    pub fn counters(&self) -> Counters {
        let Platform { keeper: StateKeeper { installer, netlink_changes: news, .. }, link_sockets, .. } =
            self;
        Counters {
            writes: installer.requests.writes + installer.switches.writes,
            reads: installer.requests.reads,
            restored: installer.restored,
            overruns: news.overruns,
            unparsed: news.unparsed + installer.requests.unparsed,
            icmpv6_received: link_sockets.received,
            icmpv6_malformed: link_sockets.malformed,
            icmpv6_sent: link_sockets.sent,
            datagrams_unsent: installer.datagrams.unsent(),
        }
    }

    /// Removes all objects that carnet has created, and restores all settings that it has changed.
    ///
    /// Goes on after an error and returns the first one. Dropping the platform does the same, without
    /// returning an error.
    pub fn close(mut self) -> Result<()> {
        self.open = false;
        self.keeper.installer.close()
    }
}

/// Adapts packet sockets and fast path to the present interfaces.
fn follow_links(
    installer: &mut Installer,
    observer: &InterfaceObserver,
    link_sockets: &mut LinkSockets,
    ports: &Ports,
) {
    // While a thread loads programs, already use the capture point of their fast path. A later change would
    // open new sockets and lose the packets in the old ones.
    let path = installer.fast_path.loading().unwrap_or(installer.fast_path.path());
    link_sockets.set_capture_point(match path {
        Path::Bpf | Path::Xdp => CapturePoint::BesideIpv6,
        Path::Kernel | Path::Tun => CapturePoint::First,
    });
    link_sockets.update_interfaces(&observer.links);
    for complaint in installer.fast_path.update_interfaces(&observer.links) {
        tracing::warn!("{complaint}");
    }
    // BPF programs run before the kernel merges packets, so merging helps only the TUN device, which delivers
    // a merged burst at once.
    let by_tun = path == Path::Tun;
    installer.enable_receive_offload(observer.links.values().filter(|link| by_tun && ports.send(link)));
}

impl Drop for Platform {
    fn drop(&mut self) {
        if std::mem::take(&mut self.open)
            && let Err(error) = self.keeper.installer.close()
        {
            tracing::warn!("{error}");
        }
    }
}
