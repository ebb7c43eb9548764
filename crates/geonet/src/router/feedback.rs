//! Link-layer feedback: the link reports a unicast frame without acknowledgement.
//!
//! The standard does not use feedback: a neighbour stays a neighbour until its lifetime ends. Until then
//! greedy forwarding loses packets to neighbours that have left. In this router such a station is not a
//! neighbour until its next packet. GPSR does the same (Karp and Kung, MobiCom 2000, "support for MAC-layer
//! failure feedback"). The undelivered packet takes another next hop, a walk around the void, the buffer, or
//! a broadcast. Each failure removes one neighbour, so the number of attempts is limited.
//!
//! The link returns the frame itself, so the router stores no state for feedback. A link without feedback
//! costs nothing. If only the acknowledgement was lost, two copies of the packet exist, and duplicate
//! detection drops one.

use carnet_base::Time;
use carnet_wire::geonet::{ExtendedHeader, Packet};

use super::forward::Origin;
use super::{MAX_UNREACHABLE_STATIONS, Router};
use crate::geodesy::{self, Metric, Position};
use crate::location_table::{mac_key, mid_key};
use crate::mib::AreaForwarding;
use crate::packet::{BufferedPacket, PacketProperties, Target};
use crate::{GeonetDrop, MacAddress};

impl Router {
    /// Handles a neighbour that the link layer cannot reach. It is no longer a neighbour, and its packets
    /// take another next hop at once.
    pub fn handle_link_failure(&mut self, now: Time, neighbour: MacAddress) {
        if let Some(slot) = self.table.find(now, mac_key(neighbour)) {
            self.table.remove_neighbour_status(now, &self.mib, slot);
        }
        if self.mib.prediction.is_some() {
            if self.unreachable_stations.len() >= MAX_UNREACHABLE_STATIONS {
                self.unreachable_stations.pop_front();
            }
            self.unreachable_stations.push_back((mac_key(neighbour), now));
        }
        self.update_fast_path(now);
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
        self.counters.unacknowledged += 1;
        self.handle_link_failure(now, destination);
        let result =
            self.parse_with_recovery_header(octets).and_then(|(packet, _)| self.reroute(now, &packet));
        if let Err(reason) = result {
            self.count_drop(reason);
        }
        result
    }

    /// Sends a packet again, now to another next hop.
    fn reroute(&mut self, now: Time, packet: &Packet<'_>) -> Result<(), GeonetDrop> {
        let target = match packet.extended {
            ExtendedHeader::GeoUnicast { destination, .. }
            | ExtendedHeader::LocationServiceReply { destination, .. } => {
                let position = Position::new(destination.latitude, destination.longitude);
                Target::station(mid_key(destination.address), position)
            }
            ExtendedHeader::GeoBroadcast { area, .. } => {
                // F.4: the contention timer of the packet already covers this case.
                let inside = geodesy::is_inside(&area, self.own_coordinates());
                if inside && self.mib.area_forwarding == AreaForwarding::Advanced {
                    return Ok(());
                }
                Target::Area { area, metric: Metric::new(geodesy::centre(&area)) }
            }
            ExtendedHeader::GeoAnycast { area, .. } => {
                Target::Anybody { area, metric: Metric::new(geodesy::centre(&area)) }
            }
            // The router broadcasts these packets.
            _ => return Ok(()),
        };
        let source = mid_key(packet.extended.source().address);
        let traffic_class = packet.common.traffic_class;
        let mut frame = self.buffer();
        // Write the packet as it was before perimeter mode, without the recovery header.
        packet.append_to(&mut frame);
        let meta = PacketProperties {
            identity: (source, packet.extended.sequence().unwrap_or(0)),
            target,
            traffic_class,
            profile: None,
            store: traffic_class.store_carry_forward,
            lifetime: packet.basic.lifetime,
            waiting_since: now,
            own: source == mid_key(self.address),
        };
        self.counters.rerouted += 1;
        self.dispatch(now, BufferedPacket { frame, meta }, Origin::Here)
    }
}
