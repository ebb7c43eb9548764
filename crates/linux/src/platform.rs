//! The platform gives the station access to all networking of the kernel that it uses.
//!
//! The platform runs in the caller's thread. [`Platform::apply_change`] applies a change before it returns.
//! [`Platform::next_event`] returns events, and installs entries again that the kernel has dropped. So the
//! caller has to await it all the time, for example in a `select!`.

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
use carnet_station::io::{InterfaceOctets, LinkMessage};
use carnet_wire::icmpv6::message_type::ROUTER_ADVERTISEMENT;
use tokio::time::{Interval, interval};

use crate::advertisement_settings::is_conditional_setting;
use crate::counters::PlatformCounters;
use crate::datagrams::DatagramSockets;
use crate::entry_installer::{EntryInstaller, NEIGHBOUR_REPORT_INTERVAL};
use crate::error::{Error, Result};
use crate::event::PlatformEvent;
use crate::fast_path::{
    DataPath, FastPath, FastPathConfig, FastPathCounters, InterfaceRoles, LoadingResult, TunnelEnds,
    TunnelTraffic,
};
use crate::interface_observer::InterfaceObserver;
use crate::ipsec_socket::IpsecSocket;
use crate::kernel_settings::KernelSettings;
use crate::kernel_state_keeper::{KernelStateKeeper, log_closed_fast_path};
use crate::link_sockets::{CapturePoint, LinkSockets, WatchedInterface};
use crate::netlink::{IPV6_MINIMUM_MTU, NetlinkMonitor, NetlinkRequests};
use crate::tunnel::{QUEUE_LENGTH, TunDevice};
use crate::undo_file::UndoFile;
use crate::{interface_counters, kernel_settings, privileges};

/// Returns the first octets of the kernel's boot identifier, or 0 if carnet cannot read it. With 0, carnet
/// recognises a reboot only by counters that have become smaller.
fn boot_identifier() -> u64 {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or_default()
}

/// Interval at which carnet asks the fast path which tunnels and destinations have had packets.
const FAST_PATH_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Notice for the operator if carnet cannot load programs with more room.
const NO_ROOM_MESSAGE: &str = "the fast path has no room for all bindings of the new config: packets of some \
    bindings take the slow path";

/// Config of [`Platform::open`].
#[derive(Debug, Clone)]
pub struct PlatformConfig {
    /// MTU of the TUN device in octets, at least 1280.
    pub device_mtu: u32,
    /// Links on which the platform receives ICMPv6. An interface may appear later.
    pub watched_interfaces: Vec<WatchedInterface>,
    /// Largest number of known remote tunnel ends. Their control messages get a separate queue of the TUN
    /// device, apart from messages of unauthenticated sources. A number from 1 to 1023 counts as 1024. With 0
    /// the device has one queue for all packets.
    pub max_known_senders: usize,
    /// Whether IPsec protects the station's messages.
    pub uses_ipsec: bool,
    /// Path of the undo file, which lists the changes to revert after a crash. Its directory must exist.
    pub undo_file: PathBuf,
}

/// Access to all networking of the kernel that a station uses; see the head of the module.
#[derive(Debug)]
pub struct Platform {
    tunnel_device: TunDevice,
    state_keeper: KernelStateKeeper,
    netlink_monitor: NetlinkMonitor,
    link_sockets: LinkSockets,
    ipsec_socket: IpsecSocket,
    events: VecDeque<PlatformEvent>,
    state_keeper_interval: Interval,
    fast_path_interval: Interval,
    interface_roles: InterfaceRoles,
    /// Number that identifies this boot of the machine.
    boot_identifier: u64,
    /// Number of consecutive failures to read the kernel's state.
    consecutive_failures: u32,
    is_open: bool,
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
        if !kernel_settings::ipv6_exists() {
            let source = io::Error::from_raw_os_error(libc::EAFNOSUPPORT);
            return Err(Error::from_kernel_refusal(
                "use IPv6: the kernel has no IPv6, or a boot parameter turns it off",
                source,
            ));
        }
        privileges::check_capabilities()?;
        // Open the socket for IPsec before any change: if the kernel has no IPsec, nothing has to be
        // reverted.
        let protected = if config.uses_ipsec { IpsecSocket::open()? } else { IpsecSocket::default() };
        // Only one TUN device of this name can exist in a network namespace. So no other station is running
        // in this namespace, and none can start.
        let (tunnel, known) = TunDevice::create_tun_device(config.max_known_senders)?;
        let mut requests = NetlinkRequests::open()?;
        let index =
            requests.link_requests().find_link(TUNNEL_DEVICE)?.map(|link| link.index).ok_or_else(|| {
                Error::from_kernel_refusal(
                    format!("look up {TUNNEL_DEVICE}"),
                    io::Error::from_raw_os_error(libc::ENODEV),
                )
            })?;
        let port = requests.port_id();
        let undo = UndoFile::open(&config.undo_file);
        let mut installer =
            EntryInstaller::open(requests, KernelSettings::for_running_kernel(), undo, index)?;
        installer.known_senders = known;
        let monitor = NetlinkMonitor::open(port)?;
        installer.requests.link_requests().configure_tunnel(index, config.device_mtu, QUEUE_LENGTH)?;
        kernel_settings::enable_ipv6(TUNNEL_DEVICE, &mut installer.kernel_settings.write_count)?;
        // Remove the default queueing discipline while the device is down. When the device comes up, each of
        // its queues would get one.
        if let Err(error) = installer.requests.queueing_discipline_requests().disable_queueing(index) {
            tracing::debug!(
                "cannot remove the tunnel device's queueing discipline ({error}): carnet is slower"
            );
        }
        installer.requests.link_requests().bring_up_tunnel(index)?;
        let mut platform = Platform {
            tunnel_device: tunnel,
            state_keeper: KernelStateKeeper::new(installer),
            netlink_monitor: monitor,
            link_sockets: LinkSockets::open(config.watched_interfaces)?,
            ipsec_socket: protected,
            events: VecDeque::new(),
            state_keeper_interval: interval(NEIGHBOUR_REPORT_INTERVAL),
            fast_path_interval: interval(FAST_PATH_CHECK_INTERVAL),
            interface_roles: InterfaceRoles::default(),
            boot_identifier: boot_identifier(),
            consecutive_failures: 0,
            is_open: true,
        };
        platform.refresh()?;
        Ok(platform)
    }

    /// Opens the first fast path of the list that the kernel supports, and returns the unusable ones before
    /// it, with the reasons. If the kernel supports none, or [`DataPath::Tun`] is the first, every packet
    /// takes the TUN device.
    ///
    /// Returns `None` while a thread loads BPF programs, up to half a minute on a slow processor. Until
    /// [`PlatformEvent::DataPath`] reports the result, every packet takes the TUN device.
    ///
    /// The caller must call this function before the first [`Self::apply_change`].
    pub fn open_fast_path(&mut self, config: &FastPathConfig) -> Option<Vec<(DataPath, String)>> {
        let EntryInstaller { tunnel_index, requests, .. } = &mut self.state_keeper.entry_installer;
        let (fast_path, obstacles) = FastPath::open(config, *tunnel_index, requests);
        self.state_keeper.entry_installer.fast_path = fast_path;
        self.interface_roles = config.interface_roles.clone();
        self.adapt_to_interfaces();
        obstacles
    }

    /// Waits until the loading thread has finished, and returns the unusable fast paths with the reasons.
    /// Only for callers that have no other work meanwhile.
    pub async fn wait_for_fast_path(&mut self) -> Vec<(DataPath, String)> {
        loop {
            if let LoadingResult::Decided(obstacles) = poll_fn(|cx| self.poll_fast_path(cx)).await {
                return obstacles;
            }
        }
    }

    /// Returns the fast path whose programs a thread loads now; `None` if no thread loads any.
    pub fn path_being_loaded(&self) -> Option<DataPath> {
        self.state_keeper.entry_installer.fast_path.path_being_loaded()
    }

    fn poll_fast_path(&mut self, cx: &mut Context<'_>) -> Poll<LoadingResult> {
        match self.state_keeper.entry_installer.poll_fast_path(cx) {
            Some(loaded) => {
                self.adapt_to_interfaces();
                self.commit_to_fast_path();
                Poll::Ready(loaded)
            }
            None => Poll::Pending,
        }
    }

    /// Returns the socket for messages under IPsec.
    pub fn ipsec_socket(&self) -> IpsecSocket {
        self.ipsec_socket.clone()
    }

    /// Opens or closes the socket for messages under IPsec, after a change of the config.
    pub fn set_ipsec(&mut self, wanted: bool) -> Result<()> {
        if wanted != self.ipsec_socket.is_open() {
            self.ipsec_socket = if wanted { IpsecSocket::open()? } else { IpsecSocket::default() };
        }
        Ok(())
    }

    /// Returns the data path in use.
    pub fn data_path(&self) -> DataPath {
        self.state_keeper.entry_installer.fast_path.path()
    }

    /// Returns the data path of one tunnel's packets.
    pub fn data_path_of(&self, local: Endpoint, remote: Endpoint) -> DataPath {
        self.state_keeper.entry_installer.fast_path.path_of(local, remote)
    }

    /// Tells the fast path and the packet sockets which interfaces lead to the mobile network and which are
    /// uplinks.
    pub fn set_interface_roles(&mut self, ports: InterfaceRoles) {
        self.interface_roles = ports.clone();
        self.state_keeper.entry_installer.fast_path.set_interface_roles(ports);
        self.adapt_to_interfaces();
        self.commit_to_fast_path();
    }

    /// Returns whether the kernel itself has to handle a packet that came out of the TUN device. The caller
    /// writes it back unchanged.
    pub fn must_return_to_kernel(&mut self, packet: &[u8]) -> bool {
        let concerns = self.state_keeper.entry_installer.fast_path.is_for_kernel(packet);
        if concerns {
            self.commit_to_fast_path();
        }
        concerns
    }

    /// Applies the tunnel changes since the last commit to the fast path, which keeps its former state until
    /// then. The slow path applies each change at once.
    pub fn commit_to_fast_path(&mut self) {
        self.state_keeper.commit_changes();
    }

    /// Returns the fast path's traffic, by tunnel.
    pub fn tunnel_traffic(&self) -> HashMap<TunnelEnds, TunnelTraffic> {
        self.state_keeper.entry_installer.fast_path.tunnel_traffic()
    }

    /// Makes room in the fast path if this config has more bindings than the fast path has room for.
    pub fn make_room_for_bindings(&mut self, config: &FastPathConfig) {
        if let Err(why) = self.state_keeper.entry_installer.grow_fast_path(config) {
            tracing::warn!("{NO_ROOM_MESSAGE}: {why}");
        }
    }

    /// Returns the fast path's counters.
    pub fn fast_path_counters(&self) -> FastPathCounters {
        self.state_keeper.entry_installer.fast_path.counters()
    }

    fn adapt_to_interfaces(&mut self) {
        let KernelStateKeeper { entry_installer: installer, interface_observer: observer, .. } =
            &mut self.state_keeper;
        follow_links(installer, observer, &mut self.link_sockets, &self.interface_roles);
    }

    /// Applies one change of the desired forwarding state.
    ///
    /// A missing interface, or one that is down, is no error: the platform installs the entry when the
    /// interface is up. After an error the entry stays desired as well; the platform tries again when
    /// interfaces change, and at intervals.
    pub fn apply_change(&mut self, change: &EntryChange) -> Result<()> {
        if let EntryChange::Set(entry) = change
            && matches!(&**entry, ForwardingEntry::Setting(setting) if is_conditional_setting(setting))
        {
            // Read the default routes again, because they depend on this change.
            self.state_keeper.netlink_changes.changed_parts.routers_changed = true;
        }
        self.state_keeper.entry_installer.apply_change(change)
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
                self.consecutive_failures =
                    if let Poll::Ready(Err(_)) = result { self.consecutive_failures + 1 } else { 0 };
                result
            })
            .await?;
        }
    }

    /// Makes the next [`Self::next_event`] check for settings that another program has changed. The kernel
    /// sends events about most of these changes, but not about all.
    pub fn recheck_settings(&mut self) {
        self.state_keeper.recheck_settings();
    }

    /// Returns a message for each difference between this machine's state and the station's needs. Examples
    /// are a setting that another program changes, and an entry that the kernel refuses.
    pub fn obstacle_messages(&self) -> Vec<String> {
        self.state_keeper.entry_installer.obstacle_messages()
    }

    /// Returns how many times in a row [`Self::next_event`] has failed. A complete reading of the state sets
    /// it to 0.
    pub fn consecutive_failures(&self) -> u32 {
        self.consecutive_failures
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let failed =
            |e: io::Error| Error::from_kernel_refusal("receive packets and events from the kernel", e);
        let news = &mut self.state_keeper.netlink_changes;
        self.netlink_monitor.poll_changes(cx, news).map_err(failed)?;
        if std::mem::take(&mut news.routing_changed) {
            let neighbours_only = !std::mem::take(&mut news.routes_changed);
            let heard = std::mem::take(&mut news.routing_fields);
            let EntryInstaller { fast_path, requests, .. } = &mut self.state_keeper.entry_installer;
            log_closed_fast_path(fast_path.invalidate_next_hops(requests, heard, neighbours_only));
        }
        match self.poll_fast_path(cx) {
            Poll::Ready(LoadingResult::Decided(obstacles)) => {
                self.events.push_back(PlatformEvent::DataPath(obstacles));
            }
            Poll::Ready(LoadingResult::Grown) => {
                tracing::info!(
                    "enlarged the BPF maps of the fast path for the bindings of the changed config"
                )
            }
            Poll::Ready(LoadingResult::NotGrown(why)) => tracing::warn!("{NO_ROOM_MESSAGE}: {why}"),
            Poll::Pending => {}
        }
        for complaint in self.state_keeper.entry_installer.fast_path.poll_redirect_targets(cx) {
            tracing::warn!("{complaint}");
        }
        self.state_keeper.poll_packet_rules(cx);
        self.events.extend(
            self.state_keeper.entry_installer.rule_table.take_state_change().map(PlatformEvent::PacketRules),
        );
        if self.state_keeper_interval.poll_tick(cx).is_ready() {
            // Poll the timer again, so that its next tick wakes this task.
            let _ = self.state_keeper_interval.poll_tick(cx);
            self.state_keeper.entry_installer.keep_neighbours_alive();
            self.state_keeper.entry_installer.fast_path.remove_expired();
            let EntryInstaller { fast_path, requests, .. } = &mut self.state_keeper.entry_installer;
            log_closed_fast_path(fast_path.recheck_obstacles(requests));
            self.commit_to_fast_path();
            let used = self.state_keeper.entry_installer.fast_path.take_used_tunnels().into_iter();
            self.events.extend(used.map(|(local, remote)| PlatformEvent::TunnelUsed { local, remote }));
        }
        if self.fast_path_interval.poll_tick(cx).is_ready() {
            let _ = self.fast_path_interval.poll_tick(cx);
            self.state_keeper.advance_one_second();
            let sought = self.state_keeper.entry_installer.fast_path.take_new_flow_destinations();
            if !sought.is_empty() {
                self.events.push_back(PlatformEvent::Destinations(sought));
            }
        }
        self.refresh()?;
        self.report_reachable_neighbours();
        let known = self.events.len();
        self.link_sockets.poll(cx, &mut self.events).map_err(failed)?;
        for event in self.events.iter().skip(known) {
            if let PlatformEvent::Icmpv6(message) = event {
                self.state_keeper
                    .entry_installer
                    .fast_path
                    .handle_icmpv6(message.destination, &message.message);
                if message.message.first() == Some(&ROUTER_ADVERTISEMENT) {
                    self.state_keeper.handle_router_advertisement(&message.interface, message.source);
                }
            }
        }
        if self.events.len() > known {
            self.commit_to_fast_path();
        }
        // Pending makes the caller poll again: `refresh` may have opened a socket, and a socket wakes this
        // task only after it was polled once.
        if self.events.is_empty() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Reads the changed parts of the kernel's state, installs lost entries again, and collects events for
    /// the caller.
    fn refresh(&mut self) -> Result<()> {
        let Platform { state_keeper: keeper, events, link_sockets, interface_roles: ports, .. } = self;
        keeper.refresh(events, |installer, observer| {
            follow_links(installer, observer, link_sockets, ports);
        })
    }

    /// Reports the neighbours on interfaces of the mobile network that the kernel has verified.
    fn report_reachable_neighbours(&mut self) {
        let KernelStateKeeper { netlink_changes, interface_observer: observer, .. } = &mut self.state_keeper;
        for ((index, address), link_address) in std::mem::take(&mut netlink_changes.reachable_neighbours) {
            let mut links = observer.links_by_name.values();
            if let Some(link) = links.find(|link| link.index == index)
                && self.interface_roles.lan_interfaces.contains(&link.name)
            {
                let interface = link.name.clone();
                self.events.push_back(PlatformEvent::NeighbourReachable { interface, address, link_address });
            }
        }
    }

    /// Sends an ICMPv6 message on a link from the source address in it, and fills in its checksum.
    ///
    /// A unicast message needs `LinkMessage::peer` if the link has link-layer addresses. A multicast message
    /// goes to the link-layer address of its group.
    pub fn send_icmpv6(&mut self, message: &LinkMessage) -> Result<()> {
        let known = self.state_keeper.interface_observer.links_by_name.get(&message.interface);
        let operation =
            || format!("send an ICMPv6 message to {} on {}", message.destination, message.interface);
        match known {
            Some(link) => self.link_sockets.send(link, message),
            None => Err(Error::from_kernel_refusal(operation(), io::Error::from_raw_os_error(libc::ENODEV))),
        }
    }

    /// Returns the traffic that rules of the packet filter have counted since the start.
    pub fn counted_traffic(&mut self) -> BTreeMap<CountedTraffic, PacketCount> {
        self.state_keeper.entry_installer.rule_table.counted_traffic()
    }

    /// Returns why the rules of the packet filter are not in force; `None` if they are.
    pub fn packet_rules_failure(&self) -> Option<&str> {
        self.state_keeper.entry_installer.rule_table.error()
    }

    /// Returns the names of the interfaces at which the kernel knows a neighbour with this link-layer
    /// address.
    pub fn interfaces_with_neighbour(&mut self, address: [u8; 6]) -> Result<Vec<String>> {
        let indices = self
            .state_keeper
            .entry_installer
            .requests
            .neighbour_requests()
            .interfaces_with_neighbour(address)?;
        let links = self
            .state_keeper
            .interface_observer
            .links_by_name
            .values()
            .filter(|link| indices.contains(&link.index));
        Ok(links.map(|link| link.name.clone()).collect())
    }

    /// Returns the octets that an interface has received and sent since its creation; `None` if the interface
    /// does not exist.
    pub fn interface_octets(&self, interface: &str) -> Result<Option<InterfaceOctets>> {
        let counted = interface_counters::read_octet_counters(interface)?;
        // The kernel gives each index only once per boot, so the index identifies the interface.
        Ok(counted.map(|(index, received, sent)| InterfaceOctets {
            epoch: self.boot_identifier ^ u64::from(index),
            total: received.saturating_add(sent),
            received,
        }))
    }

    /// Returns the IPv6 addresses at which hosts with these link-layer addresses have lately answered the
    /// kernel on an interface. Asks the kernel to verify their other addresses, and
    /// [`PlatformEvent::NeighbourReachable`] reports those at which they answer.
    pub fn verified_neighbours(
        &mut self,
        interface: &str,
        hosts: &BTreeSet<[u8; 6]>,
    ) -> Result<Vec<(Ipv6Addr, [u8; 6])>> {
        let Ok(index) = nix::net::if_::if_nametoindex(interface) else { return Ok(Vec::new()) };
        let mut neighbours = self.state_keeper.entry_installer.requests.neighbour_requests();
        let mut known = neighbours.list_neighbours(index)?;
        known.retain(|neighbour| hosts.contains(&neighbour.link_address));
        for neighbour in known.iter().filter(|neighbour| !neighbour.is_reachable) {
            // Ignore an error: the kernel may have forgotten the neighbour in the meantime.
            if let Err(error) = neighbours.report_use(index, neighbour.address.into()) {
                tracing::debug!("{error}");
            }
        }
        let verified = known.iter().filter(|neighbour| neighbour.is_reachable);
        Ok(verified.map(|neighbour| (neighbour.address, neighbour.link_address)).collect())
    }

    /// Receives ICMPv6 on these links from now on, in place of the links in
    /// [`PlatformConfig::watched_interfaces`].
    pub fn watch_interfaces(&mut self, watched: Vec<WatchedInterface>) {
        self.link_sockets.set_watched(watched);
        self.link_sockets.update_interfaces(&self.state_keeper.interface_observer.links_by_name);
    }

    /// Returns the reader and writer of the TUN device's packets.
    pub fn tunnel_device(&self) -> TunDevice {
        self.tunnel_device.clone()
    }

    /// Returns the sockets of the tunnels inside IPv4 and UDP.
    pub fn datagram_sockets(&self) -> DatagramSockets {
        self.state_keeper.entry_installer.datagrams.clone()
    }

    /// Returns the counters since [`Platform::open`].
    pub fn counters(&self) -> PlatformCounters {
        let Platform {
            state_keeper: KernelStateKeeper { entry_installer: installer, netlink_changes: news, .. },
            link_sockets,
            ..
        } = self;
        PlatformCounters {
            write_calls: installer.requests.write_requests + installer.kernel_settings.write_count,
            read_requests: installer.requests.read_requests,
            restored_entries: installer.restored_entries,
            event_overruns: news.lost_event_count,
            unparsed_messages: news.unparsed_events + installer.requests.unparsed_answers,
            icmpv6_received: link_sockets.received_messages,
            icmpv6_malformed: link_sockets.malformed_messages,
            icmpv6_sent: link_sockets.sent_messages,
            unsent_datagrams: installer.datagrams.unsent_packets(),
        }
    }

    /// Removes all objects that carnet has created, and restores all settings that it has changed.
    ///
    /// Goes on after an error and returns the first one. Dropping the platform does the same, without
    /// returning an error.
    pub fn close(mut self) -> Result<()> {
        self.is_open = false;
        self.state_keeper.entry_installer.remove_all_entries()
    }
}

/// Adapts packet sockets and fast path to the present interfaces.
fn follow_links(
    installer: &mut EntryInstaller,
    observer: &InterfaceObserver,
    link_sockets: &mut LinkSockets,
    ports: &InterfaceRoles,
) {
    // While a thread loads programs, already use the capture point of their fast path. A later change of the
    // capture point would open new sockets, and lose the packets in the old ones.
    let path = installer.fast_path.path_being_loaded().unwrap_or(installer.fast_path.path());
    link_sockets.set_capture_point(match path {
        DataPath::Bpf | DataPath::Xdp => CapturePoint::BesideIpv6,
        DataPath::Kernel | DataPath::Tun => CapturePoint::First,
    });
    link_sockets.update_interfaces(&observer.links_by_name);
    for complaint in installer.fast_path.update_interfaces(&observer.links_by_name) {
        tracing::warn!("{complaint}");
    }
    // BPF programs run before the kernel merges packets, so merging helps only the TUN device, which delivers
    // a merged burst at once.
    let by_tun = path == DataPath::Tun;
    installer.enable_receive_offload(
        observer.links_by_name.values().filter(|link| by_tun && ports.may_lead_into_tunnel(link)),
    );
}

impl Drop for Platform {
    fn drop(&mut self) {
        if std::mem::take(&mut self.is_open)
            && let Err(error) = self.state_keeper.entry_installer.remove_all_entries()
        {
            tracing::warn!("{error}");
        }
    }
}
