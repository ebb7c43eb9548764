//! Virtual Ethernet interfaces for IPv6 over GeoNetworking.
//!
//! Each interface is a TAP device. It has the station's link-layer address on the air, and the IPv6
//! link-local address that follows from that. (EN 302 636-6-1 demands that the interface identifier comes
//! from the MID. So carnet keeps the kernel from making another link-local address.) When the station gets a
//! new address, for example a new pseudonym, carnet changes both addresses together. No frame with the new
//! link-layer address has the old link-local address. Other addresses of the interface stay. Neighbours that
//! know them get the new link-layer address at once (`ndisc_notify`), so that packets continue. The devices
//! are not persistent: they vanish with the process, together with their addresses and routes.
//!
//! Frames have a virtio header if the kernel supports it. So carnet reads bursts in one piece and cuts them
//! into packets here, like [`crate::TunnelReader`]. It writes frames to the host one by one.
//!
//! Creating an interface fails if another interface has its name. If another program deletes a device, carnet
//! creates it again.
//!
//! Router Advertisements: interfaces of the configuration ignore them, unless the operator sets `accept_ra`
//! after the start. An uplink uses them. A link that carnet has learnt from a Router Advertisement uses
//! advertisements only for its addresses. Otherwise any station that reaches this one by GeoBroadcast could
//! become its default router.

use std::future::poll_fn;
use std::io;
use std::net::Ipv6Addr;

use crate::error::{Error, Result};
pub use crate::frame_device::FrameCounters;
use crate::frame_device::FrameDevice;
use crate::netlink::{Events, IPV6_ADDRESSES, LINKS, LinkInfo, Requests, Watcher, usable};
use crate::settings;
pub use crate::settings::Advertisements;

/// A 48-bit link-layer address.
pub type MacAddress = [u8; 6];

/// Largest number of frames that wait in the kernel, as many as for the TUN device.
const QUEUE: u32 = 4000;

/// Settings of a virtual interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualLinkConfig {
    /// Number by which the caller identifies the interface.
    pub id: u32,
    /// Name of the interface.
    pub name: String,
    /// Link-layer address of the interface.
    pub address: MacAddress,
    /// Link-local address that is derived from the link-layer address.
    pub link_local: Ipv6Addr,
    /// MTU of the interface in octets, at least 1280.
    pub mtu: u32,
    /// Parts of Router Advertisements that the kernel uses, even while the machine forwards.
    pub advertisements: Advertisements,
}

/// A frame that the host sends.
#[derive(Debug, Clone, Copy)]
pub struct HostFrame<'a> {
    /// Number of the interface.
    pub link: u32,
    /// Destination link-layer address.
    pub destination: MacAddress,
    /// Source link-layer address.
    pub source: MacAddress,
    /// EtherType.
    pub ether_type: u16,
    /// Payload after the EtherType.
    pub payload: &'a [u8],
}

/// Events of [`VirtualLinks::readable`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VirtualLinkEvent {
    /// Frames may be ready for [`VirtualLinks::try_receive`].
    Frames,
    /// All IPv6 addresses of an interface, with their prefix lengths.
    Addresses {
        /// Number of the interface.
        link: u32,
        /// Addresses of the interface, except those whose duplicate address detection has not ended.
        addresses: Vec<(Ipv6Addr, u8)>,
    },
}

#[derive(Debug)]
struct VirtualLink {
    config: VirtualLinkConfig,
    device: FrameDevice,
    info: LinkInfo,
    /// Addresses in the last event about this interface; `None` before the first event.
    addresses: Option<Vec<(Ipv6Addr, u8)>>,
}

/// All virtual interfaces of a station.
#[derive(Debug)]
pub struct VirtualLinks {
    links: Vec<VirtualLink>,
    requests: Requests,
    events: Events,
    /// Whether to read interfaces and addresses again, because of an event.
    dirty: bool,
    counters: FrameCounters,
}

impl VirtualLinks {
    /// Creates an empty set. Works in the network namespace of the calling thread, which must be one of a
    /// tokio runtime.
    ///
    /// # Errors
    /// Fails if the kernel's events are unavailable.
    pub fn open() -> Result<VirtualLinks> {
        Ok(VirtualLinks {
            links: Vec::new(),
            requests: Requests::open()?,
            events: Events::open(&[LINKS, IPV6_ADDRESSES])?,
            dirty: false,
            counters: FrameCounters::default(),
        })
    }

    /// Creates an interface, or changes the settings of an existing one.
    ///
    /// # Errors
    /// Fails if the kernel refuses; [`Error::Busy`] if another interface has the name.
    pub fn set(&mut self, config: VirtualLinkConfig) -> Result<()> {
        self.dirty = true;
        let Some(link) = self.links.iter_mut().find(|link| link.config.id == config.id) else {
            let link = create(&mut self.requests, config)?;
            self.links.push(link);
            return Ok(());
        };
        let VirtualLink { config: old, info, .. } = link;
        if old.mtu != config.mtu {
            self.requests.links().set_mtu(info, config.mtu)?;
        }
        // Remove the old address before the kernel announces the new link-layer address to neighbours.
        let moves = old.link_local != config.link_local;
        if moves {
            self.requests.addresses().delete(info.index, &info.name, old.link_local, 64)?;
        }
        if old.address != config.address {
            self.requests.links().set_address(info, config.address)?;
        }
        if moves {
            add_link_local(&mut self.requests, info, config.link_local)?;
        }
        if old.advertisements != config.advertisements {
            settings::accept_advertisements(&info.name, config.advertisements)?;
        }
        *old = config;
        Ok(())
    }

    /// Removes an interface. A missing interface is no error.
    pub fn remove(&mut self, id: u32) {
        // The device vanishes when its descriptor is closed.
        self.links.retain(|link| link.config.id != id);
    }

    /// Waits until frames may be ready, or interfaces have changed. The future may be dropped, but the caller
    /// has to await the function all the time, for example in a `select!`.
    ///
    /// # Errors
    ///
    /// Fails if carnet cannot read the kernel's events, or cannot create a vanished interface again.
    pub async fn readable(&mut self) -> Result<VirtualLinkEvent> {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Receives the frames that are ready on each interface, at most a batch, and passes each to `take`.
    pub fn try_receive(&mut self, mut take: impl FnMut(HostFrame<'_>)) {
        for VirtualLink { config, device, .. } in &mut self.links {
            device.receive(&mut self.counters, |frame| {
                take(HostFrame {
                    link: config.id,
                    destination: frame.destination,
                    source: frame.source,
                    ether_type: frame.ether_type,
                    payload: frame.payload,
                });
            });
        }
    }

    /// Passes an IPv6 packet to the host in an Ethernet frame. If the kernel refuses it, only a counter
    /// records that.
    pub fn write(&mut self, link: u32, destination: MacAddress, source: MacAddress, packet: &[u8]) {
        let known = self.links.iter().find(|known| known.config.id == link);
        self.counters.written(known.map(|link| link.device.write(destination, source, packet)));
    }

    /// Returns name and index of the interface with the number `id`; `None` if there is no such interface.
    pub fn interface(&self, id: u32) -> Option<(&str, u32)> {
        let link = self.links.iter().find(|link| link.config.id == id)?;
        Some((link.info.name.as_str(), link.info.index))
    }

    /// Returns the number of netlink requests about interfaces and addresses so far. Packets cause no such
    /// request.
    pub fn questions(&self) -> u64 {
        self.requests.reads
    }

    /// Returns the counters.
    pub fn counters(&self) -> FrameCounters {
        self.counters
    }
}

impl Watcher for VirtualLinks {
    type Event = VirtualLinkEvent;
    const FRAMES: VirtualLinkEvent = VirtualLinkEvent::Frames;

    fn event_socket(&mut self) -> (&mut Events, &mut bool) {
        (&mut self.events, &mut self.dirty)
    }

    fn read_change(&mut self) -> Result<Option<VirtualLinkEvent>> {
        if self.links.is_empty() {
            return Ok(None);
        }
        for link in &mut self.links {
            let there = self.requests.links().find(&link.config.name)?;
            if there.is_none_or(|there| there.index != link.info.index) {
                tracing::warn!(
                    "another program has deleted the interface {}: carnet creates it again",
                    link.config.name
                );
                *link = create(&mut self.requests, link.config.clone())?;
            }
        }
        let known = self.requests.addresses().list()?;
        for link in &mut self.links {
            let addresses = usable(&known, Some(link.info.index));
            if link.addresses.as_ref() != Some(&addresses) {
                link.addresses = Some(addresses.clone());
                return Ok(Some(VirtualLinkEvent::Addresses { link: link.config.id, addresses }));
            }
        }
        Ok(None)
    }

    fn devices(&self) -> impl Iterator<Item = &FrameDevice> {
        self.links.iter().map(|link| &link.device)
    }
}

fn create(requests: &mut Requests, config: VirtualLinkConfig) -> Result<VirtualLink> {
    let device = FrameDevice::tap(&config.name)?;
    let gone = || {
        let source = io::Error::from_raw_os_error(libc::ENODEV);
        Error::kernel(format!("look up {}", config.name), source)
    };
    let info = requests.links().find(&config.name)?.ok_or_else(gone)?;
    requests.links().configure_virtual(&info, config.mtu, QUEUE, config.address)?;
    let mut writes = 0;
    settings::enable_ipv6(&config.name, &mut writes)?;
    settings::announce_changes(&config.name)?;
    settings::accept_advertisements(&config.name, config.advertisements)?;
    requests.links().set_up(&info, true)?;
    add_link_local(requests, &info, config.link_local)?;
    Ok(VirtualLink { config, device, info, addresses: None })
}

/// Adds the address without duplicate address detection, because GeoNetworking detects duplicate addresses
/// itself (EN 302 636-4-1 10.2.1.5).
fn add_link_local(requests: &mut Requests, info: &LinkInfo, address: Ipv6Addr) -> Result<()> {
    match requests.addresses().add(info.index, &info.name, address, 64) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        other => other,
    }
}
