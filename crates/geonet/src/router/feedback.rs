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
use super::{Router, UNREACHED};
use crate::geodesy::{self, Metric, Position};
use crate::location_table::{mac_key, mid_key};
use crate::mib::AreaForwarding;
use crate::packet::{Meta, Target, Waiting};
use crate::{GeonetDrop, MacAddress};

impl Router {
    /// Handles a neighbour that the link could not reach: the station is no longer a neighbour, and packets
    /// take another next hop at once.
    pub fn handle_link_failure(&mut self, now: Time, neighbour: MacAddress) {
        if let Some(slot) = self.table.find(now, mac_key(neighbour)) {
            self.table.demote(now, &self.mib, slot);
        }
        if self.mib.prediction.is_some() {
            if self.unreached.len() >= UNREACHED {
                self.unreached.pop_front();
            }
            self.unreached.push_back((mac_key(neighbour), now));
        }
        self.tell_fast_path(now);
    }

    /// Handles a frame to one station that the link could not deliver; `octets` are those behind its
    /// EtherType.
    ///
    /// # Errors
    /// Reason for which the router does not send the packet again.
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
        let result = self.read(octets).and_then(|(packet, _)| self.reroute(now, &packet));
        if let Err(reason) = result {
            self.count_drop(reason);
        }
        result
    }

    /// Sends a packet again to another next hop.
    fn reroute(&mut self, now: Time, packet: &Packet<'_>) -> Result<(), GeonetDrop> {
        let target = match packet.extended {
            ExtendedHeader::GeoUnicast { destination, .. }
            | ExtendedHeader::LocationServiceReply { destination, .. } => {
                let position = Position::new(destination.latitude, destination.longitude);
                Target::station(mid_key(destination.address), position)
            }
            ExtendedHeader::GeoBroadcast { area, .. } => {
                // F.4: the contention timer of the packet already covers this case.
                let inside = geodesy::is_inside(&area, self.place());
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
        // Restore the packet as it was before the walk around a void.
        packet.append_to(&mut frame);
        let meta = Meta {
            identity: (source, packet.extended.sequence().unwrap_or(0)),
            target,
            traffic_class,
            profile: None,
            store: traffic_class.store_carry_forward,
            lifetime: packet.basic.lifetime,
            since: now,
            own: source == mid_key(self.address),
        };
        self.counters.rerouted += 1;
        self.dispatch(now, Waiting { frame, meta }, Origin::Here)
    }
}
