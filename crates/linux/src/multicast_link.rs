//! Multicast of the mobile network, for the proxy that joins it to GeoNetworking.
//!
//! On each interface of the mobile network a packet socket receives and sends the frames to IPv6 groups. They
//! are reports and queries of MLD, and other packets to groups. The proxy forwards itself and not by the
//! kernel's multicast routing, for three reasons. IPv6 over GeoNetworking is on the other side. Every packet
//! passes this program for it in any case, so the kernel would carry each once more. The proxy works on
//! kernels without `CONFIG_IPV6_MROUTE`. And it does not exclude a multicast routing daemon, of which the
//! kernel allows only one for a table.
//!
//! Upstream the kernel is the listener: [`MulticastLinks::subscribe`] joins groups on the virtual interface,
//! with sources (RFC 3678), and the kernel's own MLD reports it there and answers queries.
//!
//! Sockets, memberships and the ALLMULTI flag go with the process.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::net::Ipv6Addr;
use std::os::fd::AsRawFd;

use carnet_base::SmallMap;
use socket2::{Domain, Socket, Type};

use crate::error::Result;
pub use crate::frame_device::FrameCounters;
use crate::frame_device::FrameDevice;
use crate::netlink::{Events, IPV6_ADDRESSES, LINKS, Requests, Watcher, usable};

/// A 48-bit link-layer address.
pub type MacAddress = [u8; 6];

/// `MCAST_EXCLUDE` and `MCAST_INCLUDE` (RFC 3678 5.1).
const EXCLUDE: u32 = 0;
const INCLUDE: u32 = 1;
/// Sources of one group; the kernel takes the same number unless `net.ipv6.mld_max_msf` was changed.
const SOURCES: usize = 64;

/// A packet to a group that came from the mobile network.
#[derive(Debug, Clone, Copy)]
pub struct LanPacket<'a> {
    /// The interface.
    pub interface: &'a str,
    /// Source link-layer address.
    pub source: MacAddress,
    /// The IPv6 packet, with padding perhaps.
    pub packet: &'a [u8],
}

/// Events of [`MulticastLinks::readable`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MulticastEvent {
    /// There may be frames for [`MulticastLinks::try_receive`].
    Frames,
    /// The usable IPv6 addresses of an interface of the mobile network, all of them, with their prefix
    /// lengths; none when it is gone or down.
    Addresses {
        /// The interface.
        interface: String,
        /// Its addresses.
        addresses: Vec<(Ipv6Addr, u8)>,
    },
}

#[derive(Debug)]
struct Lan {
    name: String,
    /// Its index, link-layer address and socket, while it is there.
    port: Option<(u32, MacAddress, FrameDevice)>,
    /// As last told.
    addresses: Option<Vec<(Ipv6Addr, u8)>>,
}

/// Sources of a group to which the proxy listens.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Subscription {
    exclude: bool,
    sources: Vec<Ipv6Addr>,
}

/// The interfaces of the mobile network, and the groups that are joined upstream.
#[derive(Debug)]
pub struct MulticastLinks {
    lans: Vec<Lan>,
    /// The virtual interface, and its index when groups were joined there last.
    upstream: String,
    upstream_index: Option<u32>,
    /// A socket for each group.
    joined: SmallMap<Ipv6Addr, (Subscription, Option<Socket>)>,
    requests: Requests,
    events: Events,
    /// Something has changed about interfaces or addresses.
    dirty: bool,
    counters: FrameCounters,
}

impl MulticastLinks {
    /// Looks after these interfaces of the mobile network; groups are joined on `upstream`. Works in the
    /// network namespace of the calling thread, which must be one of a tokio runtime.
    ///
    /// # Errors
    /// When the kernel's news cannot be had. An interface that is not there is waited for.
    pub fn open(interfaces: &[String], upstream: &str) -> Result<MulticastLinks> {
        let lan = |name: &String| Lan { name: name.clone(), port: None, addresses: None };
        Ok(MulticastLinks {
            lans: interfaces.iter().map(lan).collect(),
            upstream: upstream.to_owned(),
            upstream_index: None,
            joined: SmallMap::new(),
            requests: Requests::open()?,
            events: Events::open(&[LINKS, IPV6_ADDRESSES])?,
            dirty: true,
            counters: FrameCounters::default(),
        })
    }

    /// Waits until there may be frames, or there is news. Safe to cancel; must be awaited all the time, if
    /// only in a `select!`.
    ///
    /// # Errors
    /// When the kernel's news cannot be read, or an interface cannot be listened to.
    pub async fn readable(&mut self) -> Result<MulticastEvent> {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Takes some frames from each interface, without waiting, and hands each to `take`.
    pub fn try_receive(&mut self, mut take: impl FnMut(LanPacket<'_>)) {
        for Lan { name, port, .. } in &mut self.lans {
            if let Some((_, _, device)) = port {
                device.receive(&mut self.counters, |frame| {
                    take(LanPacket { interface: name, source: frame.source, packet: frame.payload });
                });
            }
        }
    }

    /// Sends an IPv6 packet in a frame. A frame that the kernel refuses is counted.
    pub fn write(&mut self, interface: &str, destination: MacAddress, packet: &[u8]) {
        let port = self.lans.iter().find(|lan| lan.name == interface).and_then(|lan| lan.port.as_ref());
        self.counters.written(port.map(|(_, source, device)| device.write(destination, *source, packet)));
    }

    /// Listens on the upstream interface to all sources of a group but these, or to these only; without any,
    /// to none. A refusal of the kernel is logged, and the proxy does not listen to the group there.
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

    fn news(&mut self) -> (&mut Events, &mut bool) {
        (&mut self.events, &mut self.dirty)
    }

    fn look(&mut self) -> Result<Option<MulticastEvent>> {
        let index = self.requests.link(&self.upstream)?.map(|link| link.index);
        if index != self.upstream_index {
            // Memberships went with the interface.
            self.upstream_index = index;
            for (group, (subscription, socket)) in self.joined.iter_mut() {
                *socket = join(index, &self.upstream, *group, subscription, None);
            }
        }
        let known = self.requests.addresses()?;
        for lan in &mut self.lans {
            let link = self.requests.link(&lan.name)?.filter(|link| link.up);
            let there = link.as_ref().and_then(|link| Some((link.index, link.link_address?)));
            let had = lan.port.as_ref().map(|(index, address, _)| (*index, *address));
            if there != had {
                lan.port = match there {
                    Some((index, address)) => {
                        Some((index, address, FrameDevice::groups_on(index, &lan.name)?))
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

/// The socket that is a listener; `old` is one already, of the same group on the same interface.
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
    joined().map_err(|error| tracing::warn!("cannot listen to {group} on {name}: {error}")).ok()
}

/// `struct group_filter` of RFC 3678 5.2.2 with room for all sources.
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
    // SAFETY: integers and arrays of integers, of which all zeros are a value.
    let mut filter: GroupFilter = unsafe { MaybeUninit::zeroed().assume_init() };
    // More than there is room for: the whole group rather than a part of it.
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
    // SAFETY: the kernel reads as many octets of a live value as the length says, which is no more than it
    // has.
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
    // SAFETY: integers and arrays of integers, of which all zeros are a value.
    let mut storage: libc::sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
    let socket = socket2::SockAddr::from(std::net::SocketAddrV6::new(address, 0, 0, 0));
    // SAFETY: both are live, the first is as long as its `len` says, and the second longer than any address.
    unsafe {
        std::ptr::copy_nonoverlapping(
            socket.as_ptr().cast::<u8>(),
            (&raw mut storage).cast::<u8>(),
            socket.len() as usize,
        );
    }
    storage
}
