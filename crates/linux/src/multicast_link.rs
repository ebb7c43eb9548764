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
use crate::netlink::{
    FrameDeviceWatcher, GROUP_IPV6_ADDRESSES, GROUP_LINKS, KernelEvents, NetlinkRequests, usable_addresses,
};

/// A 48-bit link-layer address.
pub type MacAddress = [u8; 6];

/// Values of the filter mode: `MCAST_EXCLUDE` and `MCAST_INCLUDE` (RFC 3678 5.1).
const MCAST_EXCLUDE: u32 = 0;
const MCAST_INCLUDE: u32 = 1;
/// Maximum number of sources of one group: the kernel's default limit (`net.ipv6.mld_max_msf`).
const MAX_SOURCES_PER_GROUP: usize = 64;

/// A packet to a multicast group that arrived from the mobile network.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedMulticast<'a> {
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
struct FollowedInterface {
    name: String,
    /// Index, link-layer address and socket of the interface; `None` while the interface is missing.
    open_device: Option<(u32, MacAddress, FrameDevice)>,
    /// Addresses in the last event about this interface; `None` before the first event.
    addresses: Option<Vec<(Ipv6Addr, u8)>>,
}

/// Source filter of a group: all sources but these if `exclude`, otherwise only these sources.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GroupSubscription {
    excludes_sources: bool,
    sources: Vec<Ipv6Addr>,
}

/// The interfaces of the mobile network, and the groups that the proxy has joined on the upstream interface.
#[derive(Debug)]
pub struct MulticastLinks {
    lan_interfaces: Vec<FollowedInterface>,
    /// Name of the virtual interface on which the proxy joins groups.
    upstream_interface: String,
    /// Index that the upstream interface had when carnet last joined groups; `None` if it has joined none.
    upstream_index: Option<u32>,
    /// Source filter and socket of each joined group.
    joined_groups: BTreeMap<Ipv6Addr, (GroupSubscription, Option<Socket>)>,
    requests: NetlinkRequests,
    events: KernelEvents,
    /// Whether to read interfaces and addresses again, because of an event.
    must_read_state: bool,
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
        let lan =
            |name: &String| FollowedInterface { name: name.clone(), open_device: None, addresses: None };
        Ok(MulticastLinks {
            lan_interfaces: interfaces.iter().map(lan).collect(),
            upstream_interface: upstream.to_owned(),
            upstream_index: None,
            joined_groups: BTreeMap::new(),
            requests: NetlinkRequests::open()?,
            events: KernelEvents::open(&[GROUP_LINKS, GROUP_IPV6_ADDRESSES])?,
            must_read_state: true,
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
    pub fn try_receive(&mut self, mut take: impl FnMut(ReceivedMulticast<'_>)) {
        for FollowedInterface { name, open_device: port, .. } in &mut self.lan_interfaces {
            if let Some((_, _, device)) = port {
                device.receive(&mut self.counters, |frame| {
                    take(ReceivedMulticast { interface: name, source: frame.source, packet: frame.payload });
                });
            }
        }
    }

    /// Sends an IPv6 packet in an Ethernet frame. If the kernel refuses the packet, only a counter increases.
    pub fn write(&mut self, interface: &str, destination: MacAddress, packet: &[u8]) {
        let port = self
            .lan_interfaces
            .iter()
            .find(|lan| lan.name == interface)
            .and_then(|lan| lan.open_device.as_ref());
        self.counters.count_write_result(
            port.map(|(_, source, device)| device.write_ipv6_frame(destination, *source, packet)),
        );
    }

    /// Subscribes to a group on the upstream interface: with `exclude` to all sources except these, otherwise
    /// to these sources. An empty list without `exclude` ends the subscription. If the kernel refuses, the
    /// log says so, and the proxy does not get the group.
    pub fn subscribe(&mut self, group: Ipv6Addr, exclude: bool, sources: Vec<Ipv6Addr>) {
        if !exclude && sources.is_empty() {
            self.joined_groups.remove(&group);
            return;
        }
        let subscription = GroupSubscription { excludes_sources: exclude, sources };
        let old = self.joined_groups.remove(&group).and_then(|(_, socket)| socket);
        let socket = join_group(self.upstream_index, &self.upstream_interface, group, &subscription, old);
        self.joined_groups.insert(group, (subscription, socket));
    }

    /// Returns the counters.
    pub fn counters(&self) -> FrameCounters {
        self.counters
    }
}

impl FrameDeviceWatcher for MulticastLinks {
    type Event = MulticastEvent;
    const FRAMES_EVENT: MulticastEvent = MulticastEvent::Frames;

    fn event_socket(&mut self) -> (&mut KernelEvents, &mut bool) {
        (&mut self.events, &mut self.must_read_state)
    }

    fn read_pending_change(&mut self) -> Result<Option<MulticastEvent>> {
        let index = self.requests.link_requests().find_link(&self.upstream_interface)?.map(|link| link.index);
        if index != self.upstream_index {
            // The former interface is gone, and the kernel has ended its memberships, so join all groups
            // again.
            self.upstream_index = index;
            for (group, (subscription, socket)) in self.joined_groups.iter_mut() {
                *socket = join_group(index, &self.upstream_interface, *group, subscription, None);
            }
        }
        let known = self.requests.address_requests().list_ipv6()?;
        for lan in &mut self.lan_interfaces {
            let link = self.requests.link_requests().find_link(&lan.name)?.filter(|link| link.is_up);
            let there = link.as_ref().and_then(|link| Some((link.index, link.link_address?)));
            let had = lan.open_device.as_ref().map(|(index, address, _)| (*index, *address));
            if there != had {
                lan.open_device = match there {
                    Some((index, address)) => {
                        Some((index, address, FrameDevice::open_multicast_socket(index, &lan.name)?))
                    }
                    None => None,
                };
            }
            let addresses = usable_addresses(&known, there.map(|(index, _)| index));
            if lan.addresses.as_ref() != Some(&addresses) {
                lan.addresses = Some(addresses.clone());
                return Ok(Some(MulticastEvent::Addresses { interface: lan.name.clone(), addresses }));
            }
        }
        Ok(None)
    }

    fn frame_devices(&self) -> impl Iterator<Item = &FrameDevice> {
        self.lan_interfaces.iter().filter_map(|lan| lan.open_device.as_ref()).map(|(_, _, device)| device)
    }
}

/// Returns a socket that has joined a group on an interface, with the source filter of `subscription`. `old`
/// is a socket that has already joined the group there. `None` if the interface is missing or the kernel
/// refuses.
fn join_group(
    index: Option<u32>,
    name: &str,
    group: Ipv6Addr,
    subscription: &GroupSubscription,
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
        set_source_filter(&socket, index, group, subscription)?;
        Ok(socket)
    };
    joined()
        .map_err(|error| tracing::warn!("cannot join the multicast group {group} on {name}: {error}"))
        .ok()
}

/// Copy of `struct group_filter` of RFC 3678 5.2.2, with room for all sources.
#[repr(C)]
struct GroupFilterRequest {
    interface: u32,
    group_address: libc::sockaddr_storage,
    filter_mode: u32,
    source_count: u32,
    source_addresses: [libc::sockaddr_storage; MAX_SOURCES_PER_GROUP],
}

fn set_source_filter(
    socket: &Socket,
    index: u32,
    group: Ipv6Addr,
    subscription: &GroupSubscription,
) -> io::Result<()> {
    const MCAST_MSFILTER: libc::c_int = 48;
    // SAFETY: the type has integers and arrays of integers, for which all zeros are a valid value.
    let mut filter: GroupFilterRequest = unsafe { MaybeUninit::zeroed().assume_init() };
    // With more than [`MAX_SOURCES_PER_GROUP`] sources, listen to all sources of the group.
    let fits = subscription.sources.len() <= MAX_SOURCES_PER_GROUP;
    let sources = if fits { subscription.sources.as_slice() } else { &[] };
    let exclude = subscription.excludes_sources || !fits;
    filter.interface = index;
    filter.group_address = socket_storage(group);
    filter.filter_mode = if exclude { MCAST_EXCLUDE } else { MCAST_INCLUDE };
    filter.source_count = sources.len() as u32;
    for (place, source) in filter.source_addresses.iter_mut().zip(sources) {
        *place = socket_storage(*source);
    }
    let unused = (MAX_SOURCES_PER_GROUP - sources.len()) * size_of::<libc::sockaddr_storage>();
    // SAFETY: the kernel reads as many octets of a live value as the last argument says; the value has them.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IPV6,
            MCAST_MSFILTER,
            (&raw const filter).cast(),
            (size_of::<GroupFilterRequest>() - unused) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn socket_storage(address: Ipv6Addr) -> libc::sockaddr_storage {
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
