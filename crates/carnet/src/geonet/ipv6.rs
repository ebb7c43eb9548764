//! The virtual interfaces of IPv6 over GeoNetworking in a running station.

use std::collections::BTreeMap;
use std::future::pending;
use std::net::Ipv6Addr;

use carnet_api::model::GnStation;
use carnet_geonet::ipv6_adaptation::addresses;
use carnet_linux::Result;
use carnet_linux::virtual_link::{
    AcceptedAdvertisements, HostFrame, VirtualLinkConfig, VirtualLinkEvent, VirtualLinks,
};
use carnet_station::io::{VirtualFrame, VirtualLink};
use carnet_wire::address::MacAddress;
use tracing::{error, info};

/// The virtual interfaces of a station, if the config has any.
#[derive(Debug)]
pub struct VirtualInterfaces {
    virtual_links: Option<VirtualLinks>,
    /// Virtual interfaces that the station wants, by number.
    desired_links: BTreeMap<u32, VirtualLink>,
    /// Names of the interfaces that are uplinks. On these interfaces the host accepts roadside units as
    /// routers.
    uplinks: Vec<String>,
    /// First error with which the kernel refused to create an interface, until
    /// [`VirtualInterfaces::take_failure`] returns it; otherwise `None`.
    creation_failure: Option<String>,
}

impl VirtualInterfaces {
    /// Prepares for virtual interfaces. The interfaces in `uplinks` accept default routers from Router
    /// Advertisements.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses to report events.
    pub fn open_links(has_ipv6: bool, uplinks: Vec<String>) -> Result<VirtualInterfaces> {
        let links = if has_ipv6 { Some(VirtualLinks::open()?) } else { None };
        Ok(VirtualInterfaces {
            virtual_links: links,
            desired_links: BTreeMap::new(),
            uplinks,
            creation_failure: None,
        })
    }

    /// Returns the reason why an interface could not be created. Returns each reason only once, and otherwise
    /// `None`.
    pub fn take_failure(&mut self) -> Option<String> {
        self.creation_failure.take()
    }

    /// Waits for frames of the host and events of the kernel; without virtual interfaces it never returns.
    pub async fn next_event(&mut self) -> Result<VirtualLinkEvent> {
        match &mut self.virtual_links {
            Some(links) => links.readable().await,
            None => pending().await,
        }
    }

    /// Receives a batch of frames of the host, and passes each to `take`.
    pub fn receive_frames(&mut self, take: impl FnMut(HostFrame<'_>)) {
        if let Some(links) = &mut self.virtual_links {
            links.try_receive(take);
        }
    }

    /// Creates a virtual interface, or changes it.
    pub fn set_interface(&mut self, link: VirtualLink) {
        let Some(links) = &mut self.virtual_links else { return };
        let advertisements = if self.uplinks.contains(&link.name) {
            AcceptedAdvertisements::All
        } else if link.learnt {
            AcceptedAdvertisements::Addresses
        } else {
            AcceptedAdvertisements::Ignored
        };
        let config = VirtualLinkConfig {
            link_id: link.id,
            name: link.name.clone(),
            address: link.address,
            link_local_address: link.link_local,
            mtu: link.mtu,
            accepted_advertisements: advertisements,
        };
        match links.set_link(config) {
            Ok(()) => {
                info!(
                    "created the interface {} of IPv6 over GeoNetworking: address {}, MTU {}",
                    link.name, link.link_local, link.mtu
                );
            }
            Err(error) => {
                error!("cannot create the interface {} of IPv6 over GeoNetworking: {error}", link.name);
                self.creation_failure.get_or_insert_with(|| error.to_string());
            }
        }
        self.desired_links.insert(link.id, link);
    }

    /// Sets the interfaces that are uplinks.
    pub fn set_uplinks(&mut self, uplinks: Vec<String>) {
        let before = std::mem::replace(&mut self.uplinks, uplinks);
        let changed = |link: &&VirtualLink| before.contains(&link.name) != self.uplinks.contains(&link.name);
        for link in self.desired_links.values().filter(changed).cloned().collect::<Vec<_>>() {
            self.set_interface(link);
        }
    }

    /// Removes a virtual interface.
    pub fn remove_interface(&mut self, id: u32) {
        self.desired_links.remove(&id);
        if let Some(links) = &mut self.virtual_links {
            links.remove_link(id);
        }
    }

    /// Passes a frame to the host on its virtual interface.
    pub fn write_frame(&mut self, frame: &VirtualFrame) {
        self.write_packet(frame.link, frame.destination, frame.source, &frame.payload);
    }

    /// Passes an IPv6 packet to the host on a virtual interface.
    pub fn write_packet(&mut self, link: u32, destination: [u8; 6], source: [u8; 6], packet: &[u8]) {
        if let Some(links) = &mut self.virtual_links {
            links.write(link, destination, source, packet);
        }
    }

    /// Returns name and index of the interface on the topological link, which is the first interface; `None`
    /// if it does not exist.
    pub fn topological_interface(&self) -> Option<(&str, u32)> {
        self.virtual_links.as_ref().and_then(|links| links.interface(0))
    }

    /// Returns the counters of the interfaces, by name.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let Some(links) = &self.virtual_links else { return Vec::new() };
        let named = links.counters().named_counters().into_iter();
        named
            .chain([("questions", links.netlink_request_count())])
            .map(|(name, count)| (format!("geonet.ipv6.interfaces.{name}"), count))
            .collect()
    }
}

/// Returns the station to which an IPv6 address belongs, found by the interface identifier.
///
/// # Errors
/// Returns an error if the interface identifier is not that of a station.
pub fn station_of_address(address: Ipv6Addr) -> std::result::Result<GnStation, String> {
    let station = addresses::mac_of_address(address);
    station.map(|mac| GnStation::Mac(MacAddress(mac))).ok_or_else(|| {
        format!(
            "{address} does not name a station, expected an interface identifier that is made of a MAC \
             address (xxxx:xxff:fexx:xxxx), a GeoNetworking or MAC address"
        )
    })
}
