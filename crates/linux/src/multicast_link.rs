//! Receives and sends the multicast packets of the mobile network, for the proxy between the mobile network
//! and GeoNetworking.
//!
//! On each interface of the mobile network a packet socket receives and sends frames to IPv6 groups. The
//! frames contain MLD reports and queries, and other packets to multicast groups. The proxy forwards the
//! packets itself and does not use the kernel's multicast routing. Every packet passes through this program
//! for GeoNetworking anyway, so kernel forwarding would save nothing. The proxy works on kernels without
//! `CONFIG_IPV6_MROUTE`. A multicast routing daemon can run beside it, although the kernel allows only one
//! per table.
//!
//! On the upstream side the kernel is the MLD listener. [`MulticastLinks::subscribe`] joins groups on the
//! virtual interface, with source filters (RFC 3678). The kernel's own MLD reports these groups there and
//! answers queries.
//!
//! The kernel removes sockets, memberships and the ALLMULTI flag when the process ends.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::net::Ipv6Addr;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

use crate::error::Result;
pub use crate::frame_device::FrameCounters;
use crate::frame_device::FrameDevice;
use crate::netlink::{Events, IPV6_ADDRESSES, LINKS, Requests, Watcher, usable};

/// A 48-bit link-layer address.
pub type MacAddress = [u8; 6];

/// Values of the filter mode: `MCAST_EXCLUDE` and `MCAST_INCLUDE` (RFC 3678 5.1).
const EXCLUDE: u32 = 0;
const INCLUDE: u32 = 1;
/// Maximum number of sources of one group: the kernel's default limit (`net.ipv6.mld_max_msf`).
const SOURCES: usize = 64;

/// A packet to a multicast group that arrived from the mobile network.
#[derive(Debug, Clone, Copy)]
pub struct LanPacket<'a> {
    /// Interface at which the packet arrived.
    pub interface: &'a str,
    /// Source link-layer address.
    pub source: MacAddress,
    /// IPv6 packet, perhaps followed by padding.
    pub packet: &'a [u8],
}

/// Events of [`MulticastLinks::readable`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MulticastEvent {
    /// Frames may be ready for [`MulticastLinks::try_receive`].
    Frames,
    /// All usable IPv6 addresses of an interface of the mobile network, with their prefix lengths; an empty
    /// list if the interface is missing or down.
    Addresses {
        /// Name of the interface.
        interface: String,
        /// Addresses of the interface.
        addresses: Vec<(Ipv6Addr, u8)>,
    },
}

#[derive(Debug)]
struct LanInterface {
    name: String,
    /// Index, link-layer address and socket of the interface, while it exists.
    port: Option<(u32, MacAddress, FrameDevice)>,
    /// Addresses in the last event about this interface; `None` before the first event.
    addresses: Option<Vec<(Ipv6Addr, u8)>>,
}

/// Source filter of a group: all sources but these if `exclude`, otherwise only these sources.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Subscription {
    exclude: bool,
    sources: Vec<Ipv6Addr>,
}

/// The interfaces of the mobile network, and the groups that the proxy has joined on the upstream interface.
#[derive(Debug)]
pub struct MulticastLinks {
    lans: Vec<LanInterface>,
    /// Name of the virtual interface. The next field is its index when carnet last joined groups on it.
    upstream: String,
    upstream_index: Option<u32>,
    /// Source filter and socket of each joined group.
    joined: BTreeMap<Ipv6Addr, (Subscription, Option<Socket>)>,
    requests: Requests,
    events: Events,
    /// Whether to read interfaces and addresses again, because of an event.
    dirty: bool,
    counters: FrameCounters,
}

impl MulticastLinks {
    /// Follows these interfaces of the mobile network. [`Self::subscribe`] joins groups on the interface
    /// `upstream`. Works in the network namespace of the calling thread, which must be one of a tokio
    /// runtime.
    ///
    /// # Errors
    /// Fails if the kernel's events are unavailable. A missing interface is no error.
    pub fn open(interfaces: &[String], upstream: &str) -> Result<MulticastLinks> {
        let lan = |name: &String| LanInterface { name: name.clone(), port: None, addresses: None };
        Ok(MulticastLinks {
            lans: interfaces.iter().map(lan).collect(),
            upstream: upstream.to_owned(),
            upstream_index: None,
            joined: BTreeMap::new(),
            requests: Requests::open()?,
            events: Events::open(&[LINKS, IPV6_ADDRESSES])?,
            dirty: true,
            counters: FrameCounters::default(),
        })
    }

    /// Waits until frames may be ready, or interfaces have changed. Safe to cancel; the caller has to await
    /// it all the time, for example in a `select!`.
    ///
    /// # Errors
    /// Fails if the kernel's events are unreadable, or a socket on an interface fails.
    pub async fn readable(&mut self) -> Result<MulticastEvent> {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Receives the packets that are ready on each interface, at most a batch, and passes each to `take`.
    pub fn try_receive(&mut self, mut take: impl FnMut(LanPacket<'_>)) {
        for LanInterface { name, port, .. } in &mut self.lans {
            if let Some((_, _, device)) = port {
                device.receive(&mut self.counters, |frame| {
                    take(LanPacket { interface: name, source: frame.source, packet: frame.payload });
                });
            }
        }
    }

    /// Sends an IPv6 packet in an Ethernet frame. If the kernel refuses it, only a counter records that.
    pub fn write(&mut self, interface: &str, destination: MacAddress, packet: &[u8]) {
        let port = self.lans.iter().find(|lan| lan.name == interface).and_then(|lan| lan.port.as_ref());
        self.counters.written(port.map(|(_, source, device)| device.write(destination, *source, packet)));
    }

    /// Subscribes to a group on the upstream interface: with `exclude` to all sources except these, otherwise
    /// to these sources. An empty list without `exclude` ends the subscription. If the kernel refuses, the
    /// log says so, and the proxy does not get the group.
    pub fn subscribe(&mut self, group: Ipv6Addr, exclude: bool, sources: Vec<Ipv6Addr>) {
        if !exclude && sources.is_empty() {
            self.joined.remove(&group);
            return;
        }
        let subscription = Subscription { exclude, sources };
        let old = self.joined.remove(&group).and_then(|(_, socket)| socket);
        let socket = join(self.upstream_index, &self.upstream, group, &subscription, old);
        self.joined.insert(group, (subscription, socket));
    }

    /// Returns the counters.
    pub fn counters(&self) -> FrameCounters {
        self.counters
    }
}

impl Watcher for MulticastLinks {
    type Event = MulticastEvent;
    const FRAMES: MulticastEvent = MulticastEvent::Frames;

    fn event_socket(&mut self) -> (&mut Events, &mut bool) {
        (&mut self.events, &mut self.dirty)
    }

    fn read_change(&mut self) -> Result<Option<MulticastEvent>> {
        let index = self.requests.links().find(&self.upstream)?.map(|link| link.index);
        if index != self.upstream_index {
            // With the old interface, the kernel has ended its memberships, so join all groups again.
            self.upstream_index = index;
            for (group, (subscription, socket)) in self.joined.iter_mut() {
                *socket = join(index, &self.upstream, *group, subscription, None);
            }
        }
        let known = self.requests.addresses().list()?;
        for lan in &mut self.lans {
            let link = self.requests.links().find(&lan.name)?.filter(|link| link.up);
            let there = link.as_ref().and_then(|link| Some((link.index, link.link_address?)));
            let had = lan.port.as_ref().map(|(index, address, _)| (*index, *address));
            if there != had {
                lan.port = match there {
                    Some((index, address)) => {
                        Some((index, address, FrameDevice::set_multicast_groups(index, &lan.name)?))
                    }
                    None => None,
                };
            }
            let addresses = usable(&known, there.map(|(index, _)| index));
            if lan.addresses.as_ref() != Some(&addresses) {
                lan.addresses = Some(addresses.clone());
                return Ok(Some(MulticastEvent::Addresses { interface: lan.name.clone(), addresses }));
            }
        }
        Ok(None)
    }

    fn devices(&self) -> impl Iterator<Item = &FrameDevice> {
        self.lans.iter().filter_map(|lan| lan.port.as_ref()).map(|(_, _, device)| device)
    }
}

/// Returns a socket that has joined a group on an interface, with the source filter of `subscription`. `old`
/// is a socket that has already joined the group there. `None` if the interface is missing or the kernel
/// refuses.
fn join(
    index: Option<u32>,
    name: &str,
    group: Ipv6Addr,
    subscription: &Subscription,
    old: Option<Socket>,
) -> Option<Socket> {
    let index = index?;
    let joined = || -> io::Result<Socket> {
        let socket = match old {
            Some(socket) => socket,
            None => {
                let socket = Socket::new(Domain::IPV6, Type::DGRAM, None)?;
                socket.join_multicast_v6(&group, index)?;
                socket
            }
        };
        set_filter(&socket, index, group, subscription)?;
        Ok(socket)
    };
    joined()
        .map_err(|error| tracing::warn!("cannot join the multicast group {group} on {name}: {error}"))
        .ok()
}

/// Copy of `struct group_filter` of RFC 3678 5.2.2, with room for all sources.
#[repr(C)]
struct GroupFilter {
    interface: u32,
    group: libc::sockaddr_storage,
    mode: u32,
    count: u32,
    sources: [libc::sockaddr_storage; SOURCES],
}

fn set_filter(socket: &Socket, index: u32, group: Ipv6Addr, subscription: &Subscription) -> io::Result<()> {
    const MCAST_MSFILTER: libc::c_int = 48;
    // SAFETY: the type has integers and arrays of integers, for which all zeros are a valid value.
    let mut filter: GroupFilter = unsafe { MaybeUninit::zeroed().assume_init() };
    // With more than [`SOURCES`] sources, listen to all sources of the group.
    let fits = subscription.sources.len() <= SOURCES;
    let sources = if fits { subscription.sources.as_slice() } else { &[] };
    let exclude = subscription.exclude || !fits;
    filter.interface = index;
    filter.group = storage(group);
    filter.mode = if exclude { EXCLUDE } else { INCLUDE };
    filter.count = sources.len() as u32;
    for (place, source) in filter.sources.iter_mut().zip(sources) {
        *place = storage(*source);
    }
    let unused = (SOURCES - sources.len()) * size_of::<libc::sockaddr_storage>();
    // SAFETY: the kernel reads `length` octets of a live value, which has at least that many.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IPV6,
            MCAST_MSFILTER,
            (&raw const filter).cast(),
            (size_of::<GroupFilter>() - unused) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn storage(address: Ipv6Addr) -> libc::sockaddr_storage {
    // SAFETY: the type has integers and arrays of integers, for which all zeros are a valid value.
    let mut storage: libc::sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
    let socket = socket2::SockAddr::from(std::net::SocketAddrV6::new(address, 0, 0, 0));
    // SAFETY: both values are live. `address` has the length that its `len` returns, and `storage` is longer
    // than any address.
    unsafe {
        std::ptr::copy_nonoverlapping(
            socket.as_ptr().cast::<u8>(),
            (&raw mut storage).cast::<u8>(),
            socket.len() as usize,
        );
    }
    storage
}
