//! Link-layer feedback: the link reports a unicast frame without acknowledgement.
//!
//! The standard does not use feedback: a neighbour stays a neighbour until its lifetime ends. Until then
//! greedy forwarding loses packets to neighbours that have left. In this router a neighbour without
//! acknowledgement loses its neighbour status until its next packet. GPSR does the same (Karp and Kung,
//! MobiCom 2000, "support for MAC-layer failure feedback"). The undelivered packet takes another next hop, a
//! walk around the void, the buffer, or a broadcast. Each failure removes one neighbour, so the number of
//! attempts is limited.
//!
//! The link returns the frame itself, so the router stores no state for feedback. A link without feedback
//! costs nothing. If only the acknowledgement was lost, two copies of the packet exist, and duplicate
//! detection drops one.
//!
//! An upper layer may know a better path. It can then take back its own packets that wait for a station, or
//! that the link could not deliver. This is an extension of the standard.

use carnet_base::Time;
use carnet_wire::geonet::{CommonNextHeader, ExtendedHeader, Packet};

use super::forward::PacketOrigin;
use super::{MAX_UNREACHABLE_STATIONS, Router, fast_path_permissions};
use crate::geodesy::{self, DistanceMetric, Position};
use crate::location_table::{mac_key, mid_key};
use crate::mib::AreaForwarding;
use crate::packet::{BufferedPacket, ForwardingTarget, PacketProperties};
use crate::{GeonetDrop, MacAddress};

impl Router {
    /// Handles a neighbour that the link layer cannot reach. It is no longer a neighbour, and its packets
    /// take another next hop at once.
    pub fn handle_link_failure(&mut self, now: Time, neighbour: MacAddress) {
        if let Some(slot) = self.location_table.find_slot_of_station(now, mac_key(neighbour)) {
            self.location_table.remove_neighbour_status(now, &self.parameters, slot);
        }
        if self.parameters.prediction.is_some() {
            if self.unreachable_stations.len() >= MAX_UNREACHABLE_STATIONS {
                self.unreachable_stations.pop_front();
            }
            self.unreachable_stations.push_back((mac_key(neighbour), now));
        }
        fast_path_permissions::output_changed_permissions(self, now);
    }

    /// Handles a unicast frame that the link layer could not deliver; `octets` are the octets behind its
    /// EtherType.
    ///
    /// # Errors
    ///
    /// The reason why the router does not send the packet again.
    pub fn handle_unacknowledged(
        &mut self,
        now: Time,
        destination: MacAddress,
        octets: &[u8],
    ) -> Result<(), GeonetDrop> {
        self.assert_drained();
        // Frames to a group have no acknowledgement.
        if destination[0] & 1 != 0 {
            return Ok(());
        }
        self.counters.unacknowledged_frames += 1;
        self.handle_link_failure(now, destination);
        let result = self
            .parse_with_recovery_header(octets)
            .and_then(|(packet, _)| self.send_to_other_next_hop(now, &packet));
        if let Err(reason) = result {
            self.count_drop(reason);
        }
        result
    }

    /// Sends a packet again, now to another next hop.
    fn send_to_other_next_hop(&mut self, now: Time, packet: &Packet<'_>) -> Result<(), GeonetDrop> {
        let target = match packet.extended {
            ExtendedHeader::GeoUnicast { destination, .. }
            | ExtendedHeader::LocationServiceReply { destination, .. } => {
                let position = Position::new(destination.latitude, destination.longitude);
                ForwardingTarget::towards_station(mid_key(destination.address), position)
            }
            ExtendedHeader::GeoBroadcast { area, .. } => {
                // F.4: the contention timer of the packet still runs, and sends the packet if the next hop
                // failed.
                let inside = geodesy::is_inside(&area, self.own_coordinates());
                if inside && self.parameters.area_forwarding == AreaForwarding::Advanced {
                    return Ok(());
                }
                ForwardingTarget::Area { area, metric: DistanceMetric::new(geodesy::centre_of(&area)) }
            }
            ExtendedHeader::GeoAnycast { area, .. } => {
                ForwardingTarget::Anybody { area, metric: DistanceMetric::new(geodesy::centre_of(&area)) }
            }
            // TSB, SHB, beacons and LS requests are broadcast, so they have no next hop that could fail.
            _ => return Ok(()),
        };
        let source = mid_key(packet.extended.source().address);
        let traffic_class = packet.common.traffic_class;
        let mut frame = self.take_buffer();
        // Write the packet as it was before perimeter mode, without the recovery header.
        packet.append_to(&mut frame);
        let meta = PacketProperties {
            identity: (source, packet.extended.sequence().unwrap_or(0)),
            target,
            traffic_class,
            profile: None,
            may_wait_for_next_hop: traffic_class.store_carry_forward,
            lifetime: packet.basic.lifetime,
            waiting_since: now,
            is_own: source == mid_key(self.address),
        };
        self.counters.rerouted_frames += 1;
        self.send_or_buffer(now, BufferedPacket { frame, properties: meta }, PacketOrigin::Here)
    }

    /// Removes this station's waiting IPv6 packets to another station, and returns them in order to the upper
    /// layer. They count neither as sent nor as dropped.
    pub fn remove_packets_for(&mut self, station: MacAddress) -> Vec<Vec<u8>> {
        let mid = mac_key(station);
        let is_for = |meta: &PacketProperties| {
            meta.is_own
                && matches!(meta.target, ForwardingTarget::Station { mid: target, .. } if target == mid)
        };
        let mut packets = self.unicast_buffer.remove_matching(is_for);
        if let Some(search) = self.running_searches.get_mut(&mid) {
            packets.extend(search.take_waiting_packets());
        }
        self.schedule_buffer_timers();
        let mut payloads = Vec::new();
        for packet in packets {
            payloads.extend(self.payload_of_own_unicast(station, &packet.frame));
            self.recycle_buffer(packet.frame);
        }
        payloads
    }

    /// If `wanted` returns true for the packet of an unacknowledged frame to `station`, returns this packet
    /// to the upper layer. The station is then no longer a neighbour. Otherwise returns `None`: the caller
    /// passes the frame to [`Router::handle_unacknowledged`].
    pub fn take_back_unacknowledged(
        &mut self,
        now: Time,
        station: MacAddress,
        octets: &[u8],
        wanted: impl FnOnce(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        let payload = self.payload_of_own_unicast(station, octets).filter(|payload| wanted(payload))?;
        self.counters.unacknowledged_frames += 1;
        self.handle_link_failure(now, station);
        Some(payload)
    }

    /// Returns the IPv6 packet in an own GeoUnicast to `station`; `None` if the frame is another packet.
    fn payload_of_own_unicast(&self, station: MacAddress, octets: &[u8]) -> Option<Vec<u8>> {
        let (packet, _) = self.parse_with_recovery_header(octets).ok()?;
        let ExtendedHeader::GeoUnicast { source, destination, .. } = packet.extended else { return None };
        let own = mid_key(source.address) == mid_key(self.address);
        let there = mid_key(destination.address) == mac_key(station);
        let is_ipv6 = packet.common.next_header == CommonNextHeader::Ipv6;
        (own && there && is_ipv6).then(|| packet.payload.to_vec())
    }
}
