//! The platform: all networking of the kernel that the program uses.
//!
//! One thread handles two directions. Changes go in through [`Platform::apply`] and are in place when it
//! returns. Events come out of [`Platform::next_event`]. The latter also installs entries again that the
//! kernel has dropped, so await it all the time, if only in a `select!`.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::task::{Context, Poll};
use std::time::Duration;

use carnet_base::Endpoint;
use carnet_station::forwarding::desired::{Change, Entry, TUNNEL_DEVICE};
use carnet_station::io::{Interface, LinkMessage, Octets};
use carnet_wire::icmpv6::types::ROUTER_ADVERTISEMENT;
use tokio::time::{Interval, interval};

use crate::advertised::is_conditional;
use crate::counters::Counters;
use crate::datagrams::Datagrams;
use crate::error::{Error, Result};
use crate::fast_path::{
    FastPath, FastPathConfig, FastPathCounters, Loaded, Path, Ports, TunnelEnds, TunnelTraffic,
};
use crate::installer::Installer;
use crate::keeper::{Keeper, give_up};
use crate::link_socket::{LinkSockets, Place};
use crate::netlink::{IPV6_MINIMUM_MTU, Monitor, Requests};
use crate::observer::Observer;
use crate::protected::Protected;
use crate::settings::Switches;
use crate::tunnel::TunnelIo;
use crate::undo::UndoFile;
use crate::{interface_counters, privileges, settings};

/// Returns the first octets of the kernel's random boot identifier; zero if it cannot be read. Restarted
/// counters are then recognised only by lower values.
fn boot() -> u64 {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or_default()
}

/// Most packets that wait in each queue of the tunnel device, about five milliseconds of traffic. That is a
/// TCP window of the kernel's default limit (`tcp_rmem`, 6 MB), so that one connection's burst does not
/// overrun the queue.
pub(crate) const QUEUE: u32 = 4000;

/// Interval at which carnet asks the fast path for its used neighbours, and reports these to the kernel. It
/// is shorter than the kernel's own interval (`base_reachable_time`).
pub(crate) const KEEPING: Duration = Duration::from_secs(10);

/// Interval at which carnet asks the fast path for the paths of packets, if a caller needs them.
const SEEKING: Duration = Duration::from_secs(1);

/// Notice if programs with more room cannot be loaded.
const NO_ROOM: &str =
    "the fast path has no room for all bindings of the new config, some of which take the slow path";

/// Config of [`Platform::open`].
#[derive(Debug, Clone)]
pub struct PlatformConfig {
    /// MTU of the tunnel device in octets, at least 1280.
    pub device_mtu: u32,
    /// Links on which ICMPv6 is received. They need not exist yet.
    pub watched: Vec<WatchedInterface>,
    /// Number of other tunnel ends whose control messages the tunnel device queues apart from those of
    /// unauthenticated sources. A number above 0 gives room for at least 1024; with 0 the device has one
    /// queue for all messages.
    pub senders: usize,
    /// Whether IPsec protects the station's messages.
    pub ipsec: bool,
    /// File with the changes to revert after a crash. Its directory must exist.
    pub undo_file: PathBuf,
}

/// A link on which ICMPv6 is received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedInterface {
    /// Name of the interface.
    pub name: String,
    /// Whether to receive all multicast groups, as a home agent must for proxy Neighbor Discovery.
    pub all_multicast: bool,
}

/// Event of the platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlatformEvent {
    /// State of an interface, at the start and after each change. The tunnel device is left out.
    Interface(Interface),
    /// An interface has vanished.
    InterfaceGone {
        /// Name of the interface.
        name: String,
    },
    /// The fast path has sent packets into this tunnel since the last event about it, or for the first time.
    /// Tunnels are checked in turn: all within ten seconds if there are few, within minutes if there are
    /// many.
    TunnelUsed {
        /// Local end of the tunnel.
        local: Endpoint,
        /// Remote end of the tunnel.
        remote: Endpoint,
    },
    /// Destinations of packets that the fast path has sent into the tunnel to the home agent
    /// ([`crate::Ports::direct`]).
    Destinations(Vec<Ipv6Addr>),
    /// The programs of a fast path are loaded and in use, or the listed paths are unavailable
    /// ([`Platform::accelerate`]).
    DataPath(Vec<(Path, String)>),
    /// Another program on this machine has changed a setting that the station needs. The text is for the
    /// operator.
    Notice(String),
    /// An ICMPv6 message received on a watched link. Types are errors (1 to 4), Neighbor Discovery (133
    /// to 136) and the answer to home agent discovery (145).
    Icmpv6(LinkMessage),
}

/// The kernel's networking, as far as carnet uses it.
#[derive(Debug)]
pub struct Platform {
    tunnel: TunnelIo,
    keeper: Keeper,
    monitor: Monitor,
    link_sockets: LinkSockets,
    protected: Protected,
    events: VecDeque<PlatformEvent>,
    keeping: Interval,
    seeking: Interval,
    ports: Ports,
    /// Number that differs for each boot of the machine.
    boot: u64,
    /// Number of consecutive failures of the kernel's side.
    failures: u32,
    open: bool,
}

impl Platform {
    /// Checks the requirements, removes entries that a crash has left, and creates the tunnel device.
    ///
    /// Works in the network namespace of the calling thread, which must be one of a tokio runtime.
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
                expected: "one of a tokio runtime".into(),
                got: "another".into(),
            });
        }
        if !settings::ipv6_exists() {
            let source = io::Error::from_raw_os_error(libc::EAFNOSUPPORT);
            return Err(Error::kernel(
                "use IPv6: this kernel has none, or it is switched off at boot",
                source,
            ));
        }
        privileges::check()?;
        // Opens this before any change, so that a kernel that lacks it is left unchanged.
        let protected = if config.ipsec { Protected::open()? } else { Protected::default() };
        // From here on no other station can start in this namespace, and none is running.
        let (tunnel, known) = TunnelIo::create(config.senders)?;
        let mut requests = Requests::open()?;
        let index = requests.link(TUNNEL_DEVICE)?.map(|link| link.index).ok_or_else(|| {
            Error::kernel(format!("look up {TUNNEL_DEVICE}"), io::Error::from_raw_os_error(libc::ENODEV))
        })?;
        let port = requests.port();
        let undo = UndoFile::open(&config.undo_file);
        let mut installer = Installer::open(requests, Switches::of_kernel(), undo, index)?;
        installer.known = known;
        let monitor = Monitor::open(port)?;
        installer.requests.configure_tunnel(index, config.device_mtu, QUEUE)?;
        settings::enable_ipv6(TUNNEL_DEVICE, &mut installer.switches.writes)?;
        // Done before the device is up: then it would get a discipline for each of its queues, which may be
        // many.
        if let Err(error) = installer.requests.take_at_once(index) {
            tracing::debug!("{error}: costs nothing but time");
        }
        installer.requests.bring_up_tunnel(index)?;
        let mut platform = Platform {
            tunnel,
            keeper: Keeper::new(installer),
            monitor,
            link_sockets: LinkSockets::open(config.watched)?,
            protected,
            events: VecDeque::new(),
            keeping: interval(KEEPING),
            seeking: interval(SEEKING),
            ports: Ports::default(),
            boot: boot(),
            failures: 0,
            open: true,
        };
        platform.refresh()?;
        Ok(platform)
    }

    /// Opens the first fast path of the list that the kernel supports, and returns why earlier paths are
    /// unavailable. Without any, or with [`Path::Tun`] first, every packet passes the TUN device.
    ///
    /// `None`: a thread loads the programs of a path, which may take half a minute on a slow processor. Until
    /// [`PlatformEvent::DataPath`] reports that they are in use or unavailable, every packet passes the TUN
    /// device.
    ///
    /// Call this before the first [`Self::apply`].
    pub fn accelerate(&mut self, config: &FastPathConfig) -> Option<Vec<(Path, String)>> {
        let Installer { tunnel_index, requests, .. } = &mut self.keeper.installer;
        let (fast_path, obstacles) = FastPath::open(config, *tunnel_index, requests);
        self.keeper.installer.fast_path = fast_path;
        self.ports = config.ports.clone();
        self.follow_links();
        obstacles
    }

    /// Waits for the programs that a thread loads, for a caller without other work.
    pub async fn accelerated(&mut self) -> Vec<(Path, String)> {
        loop {
            if let Loaded::Decided(obstacles) = poll_fn(|cx| self.poll_fast_path(cx)).await {
                return obstacles;
            }
        }
    }

    /// Returns the path for which a thread loads programs.
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

    /// Opens or closes the socket for messages under IPsec, after a reload.
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

    /// Sets new roles of the interfaces.
    pub fn set_ports(&mut self, ports: Ports) {
        self.ports = ports.clone();
        self.keeper.installer.fast_path.set_ports(ports);
        self.follow_links();
        self.commit();
    }

    /// Returns whether the kernel needs a packet that came out of the tunnel device. The caller then writes
    /// the packet back unchanged.
    pub fn concerns_kernel(&mut self, packet: &[u8]) -> bool {
        let concerns = self.keeper.installer.fast_path.concerns(packet);
        if concerns {
            self.commit();
        }
        concerns
    }

    /// Applies the tunnels' changes since the last call to the fast path, which keeps its former state until
    /// then. The slow path is always up to date.
    pub fn commit(&mut self) {
        self.keeper.commit();
    }

    /// Returns the fast path's traffic, by tunnel.
    pub fn tunnel_traffic(&self) -> HashMap<TunnelEnds, TunnelTraffic> {
        self.keeper.installer.fast_path.tunnel_traffic()
    }

    /// Makes room in the fast path if this config has more bindings than fit.
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
        let Keeper { installer, observer, .. } = &mut self.keeper;
        follow_links(installer, observer, &mut self.link_sockets, &self.ports);
    }

    /// Applies one change of the desired forwarding state.
    ///
    /// An entry whose interface is missing or down is no error: the entry stays desired and is installed when
    /// the interface appears. After an error the entry stays desired, too, and is tried again when interfaces
    /// change, and at intervals.
    pub fn apply(&mut self, change: &Change) -> Result<()> {
        if let Change::Set(entry) = change
            && matches!(&**entry, Entry::Setting(setting) if is_conditional(setting))
        {
            // The next reading decides.
            self.keeper.news.dirty.routers = true;
        }
        self.keeper.installer.apply(change)
    }

    /// Returns the next event: at first every interface once, then changes.
    ///
    /// Safe to cancel: no event is lost. After an error the next call reads the whole state again, which is
    /// useless after a [fatal error](Error::is_fatal).
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

    /// Checks with the next [`Self::next_event`] whether another program has changed settings that the
    /// station needs. The kernel sends events about most changes, but not about all.
    pub fn doubt_settings(&mut self) {
        self.keeper.doubt_settings();
    }

    /// Returns what differs on this machine from the station's needs, in words: a setting that another
    /// program changes, an entry that the kernel refuses.
    pub fn obstacles(&self) -> Vec<String> {
        self.keeper.installer.obstacles()
    }

    /// Returns how often in a row [`Self::next_event`] has failed. It counts since the last complete reading,
    /// because there may be no event for days.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let failed = |e: io::Error| Error::kernel("receive from the kernel", e);
        let news = &mut self.keeper.news;
        self.monitor.poll(cx, news).map_err(failed)?;
        if std::mem::take(&mut news.routing) {
            let neighbours_only = !std::mem::take(&mut news.routes);
            let heard = std::mem::take(&mut news.heard);
            let Installer { fast_path, requests, .. } = &mut self.keeper.installer;
            give_up(fast_path.forget(requests, heard, neighbours_only));
        }
        match self.poll_fast_path(cx) {
            Poll::Ready(Loaded::Decided(obstacles)) => {
                self.events.push_back(PlatformEvent::DataPath(obstacles));
            }
            Poll::Ready(Loaded::Grown) => {
                tracing::info!("the fast path has room for the bindings of the new config")
            }
            Poll::Ready(Loaded::NotGrown(why)) => tracing::warn!("{NO_ROOM}: {why}"),
            Poll::Pending => {}
        }
        for complaint in self.keeper.installer.fast_path.poll(cx) {
            tracing::warn!("{complaint}");
        }
        if self.keeping.poll_tick(cx).is_ready() {
            // Poll again, so that the timer wakes this task the next time.
            let _ = self.keeping.poll_tick(cx);
            self.keeper.installer.keep_neighbours();
            self.keeper.installer.fast_path.expire();
            let Installer { fast_path, requests, .. } = &mut self.keeper.installer;
            give_up(fast_path.look_again(requests));
            self.commit();
            let used = self.keeper.installer.fast_path.used().into_iter();
            self.events.extend(used.map(|(local, remote)| PlatformEvent::TunnelUsed { local, remote }));
        }
        if self.seeking.poll_tick(cx).is_ready() {
            let _ = self.seeking.poll_tick(cx);
            self.keeper.tick();
            let sought = self.keeper.installer.fast_path.sought();
            if !sought.is_empty() {
                self.events.push_back(PlatformEvent::Destinations(sought));
            }
        }
        self.refresh()?;
        let known = self.events.len();
        self.link_sockets.poll(cx, &mut self.events).map_err(failed)?;
        for event in self.events.iter().skip(known) {
            if let PlatformEvent::Icmpv6(message) = event {
                self.keeper.installer.fast_path.hear(message.destination, &message.message);
                if message.message.first() == Some(&ROUTER_ADVERTISEMENT) {
                    self.keeper.hear_router(&message.interface, message.source);
                }
            }
        }
        if self.events.len() > known {
            self.commit();
        }
        // A socket that `refresh` has just opened was not registered to wake this task; now it is.
        if self.events.is_empty() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Reads the changed state, installs lost entries again, and collects events.
    fn refresh(&mut self) -> Result<()> {
        let Platform { keeper, events, link_sockets, ports, .. } = self;
        keeper.refresh(events, |installer, observer| {
            follow_links(installer, observer, link_sockets, ports);
        })
    }

    /// Sends an ICMPv6 message on a link with exactly its source address. The checksum is filled in.
    ///
    /// A unicast message needs `peer` if the link has link-layer addresses. A multicast message goes to the
    /// group's link-layer address.
    pub fn send_icmpv6(&mut self, message: &LinkMessage) -> Result<()> {
        let known = self.keeper.observer.links.get(&message.interface);
        let operation =
            || format!("send an ICMPv6 message to {} on {}", message.destination, message.interface);
        match known {
            Some(link) => self.link_sockets.send(link, message),
            None => Err(Error::kernel(operation(), io::Error::from_raw_os_error(libc::ENODEV))),
        }
    }

    /// Returns the counters of an interface, all octets since its creation; `None` if it does not exist.
    pub fn octets(&self, interface: &str) -> Result<Option<Octets>> {
        let counted = interface_counters::octets(interface)?;
        // The kernel does not use an index twice.
        Ok(counted.map(|(index, received, sent)| Octets {
            epoch: self.boot ^ u64::from(index),
            total: received.saturating_add(sent),
            received,
        }))
    }

    /// Receives ICMPv6 on these links from now on, in place of those of [`PlatformConfig::watched`].
    pub fn watch(&mut self, watched: Vec<WatchedInterface>) {
        self.link_sockets.watch(watched);
        self.link_sockets.follow(&self.keeper.observer.links);
    }

    /// Returns the reader and writer of the tunnel device's packets.
    pub fn tunnel(&self) -> TunnelIo {
        self.tunnel.clone()
    }

    /// Returns the sockets for packets inside IPv4 and UDP.
    pub fn datagrams(&self) -> Datagrams {
        self.keeper.installer.datagrams.clone()
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        let Platform { keeper: Keeper { installer, news, .. }, link_sockets, .. } = self;
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

    /// Removes all created objects, and restores all changed ones.
    ///
    /// Continues after an error and returns the first one. Dropping the platform does the same, silently.
    pub fn close(mut self) -> Result<()> {
        self.open = false;
        self.keeper.installer.close()
    }
}

/// Updates sockets and fast path with the present links.
fn follow_links(
    installer: &mut Installer,
    observer: &Observer,
    link_sockets: &mut LinkSockets,
    ports: &Ports,
) {
    // Use the place of a path whose programs are still being loaded: sockets that are opened again would lose
    // the packets in the old ones.
    let path = installer.fast_path.loading().unwrap_or(installer.fast_path.path());
    link_sockets.hear(match path {
        Path::Bpf | Path::Xdp => Place::BesideIpv6,
        Path::Kernel | Path::Tun => Place::First,
    });
    link_sockets.follow(&observer.links);
    for complaint in installer.fast_path.follow(&observer.links) {
        tracing::warn!("{complaint}");
    }
    // Programs handle packets before they are merged, or as they are. The TUN device has a cost for each
    // piece.
    let by_tun = path == Path::Tun;
    installer.gather(observer.links.values().filter(|link| by_tun && ports.send(link)));
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
