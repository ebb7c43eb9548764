//! The multicast proxy in a station: the mobile network on one side, IPv6 over GeoNetworking on the other.

use std::net::Ipv6Addr;

use carnet_base::Time;
use carnet_geonet::multicast::{self, Filter, LanPacket, MulticastProxy};

use super::Geonet;
use crate::geonetworking::output::Output;

impl Geonet {
    /// Handles a multicast packet from an interface of the mobile network.
    pub fn handle_lan_packet(&mut self, now: Time, packet: LanPacket<'_>) {
        self.tell_groups(now);
        let (Some(proxy), Some(ipv6)) = (&mut self.multicast, &mut self.ipv6) else { return };
        // The proxy and the sublayer count the packets that they drop.
        let onward = proxy.handle_lan_packet(now, packet, ipv6.mtu(), |group| ipv6.is_mapped(group));
        if let Ok(Some(packet)) = onward
            && let Ok(request) = ipv6.handle_forwarded(&packet)
        {
            let _counted = self.router.handle_request(now, request);
        }
        self.collect_multicast();
        self.collect(now);
    }

    /// Handles the list of addresses of an interface of the mobile network.
    pub fn handle_lan_addresses(&mut self, now: Time, interface: &str, addresses: &[(Ipv6Addr, u8)]) {
        if let Some(proxy) = &mut self.multicast {
            proxy.handle_addresses(now, interface, addresses);
        }
        self.collect_multicast();
    }

    /// Returns the multicast proxy, if the station has one.
    pub fn multicast(&self) -> Option<&MulticastProxy> {
        self.multicast.as_ref()
    }

    /// Executes the outputs of the proxy.
    pub(super) fn collect_multicast(&mut self) {
        let Some(proxy) = &mut self.multicast else { return };
        while let Some(output) = proxy.poll_output() {
            self.outputs.push_back(match output {
                multicast::Output::Packet { interface, destination, packet } => {
                    Output::LanPacket { interface, destination, packet }
                }
                multicast::Output::Subscription { group, filter } => {
                    let (exclude, sources) = match filter {
                        Filter::Include(sources) => (false, sources),
                        Filter::Exclude(sources) => (true, sources),
                    };
                    Output::Subscription { group, exclude, sources: sources.into_iter().collect() }
                }
            });
        }
    }
}
