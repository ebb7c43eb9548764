//! Returns own packets to an upper layer that knows a better path. These packets wait for a station, or the
//! link could not deliver them. This is an extension of the standard.

use carnet_base::Time;
use carnet_wire::geonet::{CommonNextHeader, ExtendedHeader};

use super::Router;
use crate::MacAddress;
use crate::location_table::{mac_key, mid_key};
use crate::packet::{PacketProperties, Target};

impl Router {
    /// Removes this station's waiting IPv6 packets to another station, and returns them in order to the upper
    /// layer. They count neither as sent nor as dropped.
    pub fn take_back(&mut self, station: MacAddress) -> Vec<Vec<u8>> {
        let mid = mac_key(station);
        let is_for = |meta: &PacketProperties| {
            meta.own && matches!(meta.target, Target::Station { mid: target, .. } if target == mid)
        };
        let mut packets = self.unicast_buffer.remove_matching(is_for);
        if let Some(search) = self.searches.get_mut(&mid) {
            packets.extend(search.take_waiting_packets());
        }
        self.schedule_buffer_timers();
        let mut payloads = Vec::new();
        for packet in packets {
            payloads.extend(self.own_unicast(station, &packet.frame));
            self.recycle(packet.frame);
        }
        payloads
    }

    /// Returns the packet of an unacknowledged frame to `station`, if `wanted` returns true for it. The upper
    /// layer takes the packet back, and the station is no longer a neighbour. Returns `None` otherwise: the
    /// caller passes the frame to [`Router::handle_unacknowledged`].
    pub fn take_back_unacknowledged(
        &mut self,
        now: Time,
        station: MacAddress,
        octets: &[u8],
        wanted: impl FnOnce(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        let payload = self.own_unicast(station, octets).filter(|payload| wanted(payload))?;
        self.counters.unacknowledged += 1;
        self.handle_link_failure(now, station);
        Some(payload)
    }

    /// Returns the IPv6 packet in an own GeoUnicast to a station.
    fn own_unicast(&self, station: MacAddress, octets: &[u8]) -> Option<Vec<u8>> {
        let (packet, _) = self.parse_with_recovery_header(octets).ok()?;
        let ExtendedHeader::GeoUnicast { source, destination, .. } = packet.extended else { return None };
        let own = mid_key(source.address) == mid_key(self.address);
        let there = mid_key(destination.address) == mac_key(station);
        let is_ipv6 = packet.common.next_header == CommonNextHeader::Ipv6;
        (own && there && is_ipv6).then(|| packet.payload.to_vec())
    }
}
