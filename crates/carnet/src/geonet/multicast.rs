//! The interfaces of the mobile network whose multicast packets go over GeoNetworking, and the groups
//! subscribed on the upstream interface.

use std::future::pending;
use std::net::Ipv6Addr;

use carnet_api::config;
use carnet_linux::Result;
use carnet_linux::multicast_link::{MulticastEvent, MulticastLinks, ReceivedMulticast};
use tracing::info;

/// The interfaces of the mobile network with multicast, if the config has any.
#[derive(Debug)]
pub struct MulticastLans {
    multicast_links: Option<MulticastLinks>,
}

impl MulticastLans {
    /// Prepares for the interfaces of the config.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses to report events.
    pub fn open_links(config: &config::Geonet) -> Result<MulticastLans> {
        let links = match (&config.multicast, &config.ipv6) {
            (Some(multicast), Some(ipv6)) => {
                let lan = multicast.lan_interfaces.join(", ");
                info!("carnet forwards IPv6 multicast packets between {lan} and {}", ipv6.interface);
                Some(MulticastLinks::open(&multicast.lan_interfaces, &ipv6.interface)?)
            }
            _ => None,
        };
        Ok(MulticastLans { multicast_links: links })
    }

    /// Waits for multicast packets and events of the kernel; without interfaces it never returns.
    pub async fn next_event(&mut self) -> Result<MulticastEvent> {
        match &mut self.multicast_links {
            Some(links) => links.readable().await,
            None => pending().await,
        }
    }

    /// Receives a batch of packets, and passes each to `take`.
    pub fn receive_packets(&mut self, take: impl FnMut(ReceivedMulticast<'_>)) {
        if let Some(links) = &mut self.multicast_links {
            links.try_receive(take);
        }
    }

    /// Sends a packet on an interface of the mobile network.
    pub fn write_packet(&mut self, interface: &str, destination: [u8; 6], packet: &[u8]) {
        if let Some(links) = &mut self.multicast_links {
            links.write(interface, destination, packet);
        }
    }

    /// Subscribes to a group on the upstream interface: with `exclude` to all sources except these, otherwise
    /// to these sources. An empty list without `exclude` ends the subscription.
    pub fn subscribe_group(&mut self, group: Ipv6Addr, exclude: bool, sources: Vec<Ipv6Addr>) {
        if let Some(links) = &mut self.multicast_links {
            links.subscribe(group, exclude, sources);
        }
    }

    /// Returns the counters of the interfaces, by name.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let Some(links) = &self.multicast_links else { return Vec::new() };
        let named = links.counters().named_counters().into_iter();
        named.map(|(name, count)| (format!("geonet.multicast.interfaces.{name}"), count)).collect()
    }
}
