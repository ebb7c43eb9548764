//! Virtual Ethernet interfaces for IPv6 over GeoNetworking.
//!
//! Each interface is a TAP device. It has the station's link-layer address on the air, and the IPv6
//! link-local address that follows from it. (EN 302 636-6-1 demands that the interface identifier comes from
//! the MID. So carnet keeps the kernel from making another link-local address.) When the station gets a new
//! address, for example a new pseudonym, carnet changes both addresses together. No frame with the new
//! link-layer address has the old link-local address. Other addresses of the interface stay. The kernel
//! announces the new link-layer address to neighbours at once (`ndisc_notify`), so that packets to these
//! addresses continue. The devices are not persistent: they vanish with the process, together with their
//! addresses and routes.
//!
//! Frames have a virtio header if the kernel supports it. So carnet reads bursts in one piece and cuts them
//! into packets here, like [`crate::TunnelReader`]. It writes frames to the host one by one.
//!
//! Creating an interface fails if another interface has its name. If another program deletes a device, carnet
//! creates it again.
//!
//! Router Advertisements: the kernel ignores them on the configured interfaces, unless the operator sets
//! `accept_ra` after the start. It uses them on an uplink. On a link that carnet has learnt from a Router
//! Advertisement, the kernel uses advertisements only for addresses. Otherwise any station that reaches this
//! one by GeoBroadcast could become its default router.

use std::future::poll_fn;
use std::io;
use std::net::Ipv6Addr;

use crate::error::{Error, Result};
pub use crate::frame_device::FrameCounters;
use crate::frame_device::FrameDevice;
use crate::kernel_settings;
pub use crate::kernel_settings::AcceptedAdvertisements;
use crate::netlink::{
    FrameDeviceWatcher, GROUP_IPV6_ADDRESSES, GROUP_LINKS, KernelEvents, LinkInfo, NetlinkRequests,
    usable_addresses,
};

/// A 48-bit link-layer address.
pub type MacAddress = [u8; 6];

/// Largest number of frames that wait in the kernel, as many as for the TUN device.
const QUEUE_LENGTH: u32 = 4000;

/// Settings of a virtual interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualLinkConfig {
    /// Number by which the caller identifies the interface.
    pub link_id: u32,
    /// Name of the interface.
    pub name: String,
    /// Link-layer address of the interface.
    pub address: MacAddress,
    /// Link-local address that is derived from the link-layer address.
    pub link_local_address: Ipv6Addr,
    /// MTU of the interface in octets, at least 1280.
    pub mtu: u32,
    /// Parts of Router Advertisements that the kernel uses, even while the machine forwards.
    pub accepted_advertisements: AcceptedAdvertisements,
}

/// A frame that the host sends.
#[derive(Debug, Clone, Copy)]
pub struct HostFrame<'a> {
    /// Number of the interface.
    pub link_id: u32,
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
    frame_device: FrameDevice,
    link_info: LinkInfo,
    /// Addresses in the last event about this interface; `None` before the first event.
    addresses: Option<Vec<(Ipv6Addr, u8)>>,
}

/// All virtual interfaces of a station.
#[derive(Debug)]
pub struct VirtualLinks {
    virtual_links: Vec<VirtualLink>,
    requests: NetlinkRequests,
    events: KernelEvents,
    /// Whether to read interfaces and addresses again, because of an event.
    must_read_state: bool,
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
            virtual_links: Vec::new(),
            requests: NetlinkRequests::open()?,
            events: KernelEvents::open(&[GROUP_LINKS, GROUP_IPV6_ADDRESSES])?,
            must_read_state: false,
            counters: FrameCounters::default(),
        })
    }

    /// Creates an interface, or changes the settings of an existing one.
    ///
    /// # Errors
    /// Fails if the kernel refuses; [`Error::Busy`] if another interface has the name.
    pub fn set_link(&mut self, config: VirtualLinkConfig) -> Result<()> {
        self.must_read_state = true;
        let Some(link) = self.virtual_links.iter_mut().find(|link| link.config.link_id == config.link_id)
        else {
            let link = create(&mut self.requests, config)?;
            self.virtual_links.push(link);
            return Ok(());
        };
        let VirtualLink { config: old, link_info: info, .. } = link;
        if old.mtu != config.mtu {
            self.requests.link_requests().set_mtu(info, config.mtu)?;
        }
        // Remove the old address before the kernel announces the new link-layer address to neighbours.
        let moves = old.link_local_address != config.link_local_address;
        if moves {
            self.requests.address_requests().delete_address(
                info.index,
                &info.name,
                old.link_local_address,
                64,
            )?;
        }
        if old.address != config.address {
            self.requests.link_requests().set_address(info, config.address)?;
        }
        if moves {
            add_link_local(&mut self.requests, info, config.link_local_address)?;
        }
        if old.accepted_advertisements != config.accepted_advertisements {
            kernel_settings::accept_advertisements(&info.name, config.accepted_advertisements)?;
        }
        *old = config;
        Ok(())
    }

    /// Removes an interface. A missing interface is no error.
    pub fn remove_link(&mut self, id: u32) {
        // The device vanishes when its descriptor is closed.
        self.virtual_links.retain(|link| link.config.link_id != id);
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
        for VirtualLink { config, frame_device: device, .. } in &mut self.virtual_links {
            device.receive(&mut self.counters, |frame| {
                take(HostFrame {
                    link_id: config.link_id,
                    destination: frame.destination,
                    source: frame.source,
                    ether_type: frame.ether_type,
                    payload: frame.payload,
                });
            });
        }
    }

    /// Passes an IPv6 packet to the host in an Ethernet frame. If the kernel refuses the packet, only a
    /// counter increases.
    pub fn write(&mut self, link: u32, destination: MacAddress, source: MacAddress, packet: &[u8]) {
        let known = self.virtual_links.iter().find(|known| known.config.link_id == link);
        self.counters.count_write_result(
            known.map(|link| link.frame_device.write_ipv6_frame(destination, source, packet)),
        );
    }

    /// Returns name and index of the interface with the number `id`; `None` if there is no such interface.
    pub fn interface(&self, id: u32) -> Option<(&str, u32)> {
        let link = self.virtual_links.iter().find(|link| link.config.link_id == id)?;
        Some((link.link_info.name.as_str(), link.link_info.index))
    }

    /// Returns the number of netlink requests about interfaces and addresses so far. Packets cause no such
    /// request.
    pub fn netlink_request_count(&self) -> u64 {
        self.requests.read_requests
    }

    /// Returns the counters.
    pub fn counters(&self) -> FrameCounters {
        self.counters
    }
}

impl FrameDeviceWatcher for VirtualLinks {
    type Event = VirtualLinkEvent;
    const FRAMES_EVENT: VirtualLinkEvent = VirtualLinkEvent::Frames;

    fn event_socket(&mut self) -> (&mut KernelEvents, &mut bool) {
        (&mut self.events, &mut self.must_read_state)
    }

    fn read_pending_change(&mut self) -> Result<Option<VirtualLinkEvent>> {
        if self.virtual_links.is_empty() {
            return Ok(None);
        }
        for link in &mut self.virtual_links {
            let there = self.requests.link_requests().find_link(&link.config.name)?;
            if there.is_none_or(|there| there.index != link.link_info.index) {
                tracing::warn!(
                    "another program has deleted the interface {}: carnet creates it again",
                    link.config.name
                );
                *link = create(&mut self.requests, link.config.clone())?;
            }
        }
        let known = self.requests.address_requests().list_ipv6()?;
        for link in &mut self.virtual_links {
            let addresses = usable_addresses(&known, Some(link.link_info.index));
            if link.addresses.as_ref() != Some(&addresses) {
                link.addresses = Some(addresses.clone());
                return Ok(Some(VirtualLinkEvent::Addresses { link: link.config.link_id, addresses }));
            }
        }
        Ok(None)
    }

    fn frame_devices(&self) -> impl Iterator<Item = &FrameDevice> {
        self.virtual_links.iter().map(|link| &link.frame_device)
    }
}

fn create(requests: &mut NetlinkRequests, config: VirtualLinkConfig) -> Result<VirtualLink> {
    let device = FrameDevice::open_tap_device(&config.name)?;
    let gone = || {
        let source = io::Error::from_raw_os_error(libc::ENODEV);
        Error::from_kernel_refusal(format!("look up {}", config.name), source)
    };
    let info = requests.link_requests().find_link(&config.name)?.ok_or_else(gone)?;
    requests.link_requests().configure_virtual_device(&info, config.mtu, QUEUE_LENGTH, config.address)?;
    let mut writes = 0;
    kernel_settings::enable_ipv6(&config.name, &mut writes)?;
    kernel_settings::announce_address_changes(&config.name)?;
    kernel_settings::accept_advertisements(&config.name, config.accepted_advertisements)?;
    requests.link_requests().set_up(&info, true)?;
    add_link_local(requests, &info, config.link_local_address)?;
    Ok(VirtualLink { config, frame_device: device, link_info: info, addresses: None })
}

/// Adds the address without duplicate address detection, because GeoNetworking detects duplicate addresses
/// itself (EN 302 636-4-1 10.2.1.5).
fn add_link_local(requests: &mut NetlinkRequests, info: &LinkInfo, address: Ipv6Addr) -> Result<()> {
    match requests.address_requests().add_address(info.index, &info.name, address, 64) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        other => other,
    }
}
