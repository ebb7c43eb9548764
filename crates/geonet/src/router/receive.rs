//! Reception: header processing and the receiver operations of each packet type (10.3.3 to 10.3.12).
//!
//! The router learns from a frame only after it has validated all headers and ruled out an echo and a
//! duplicate.

use carnet_base::Time;
use carnet_wire::geonet::{CommonNextHeader, ExtendedHeader, LongPositionVector, Packet};

use super::{MAX_OWN_POSITIONS, Router, fast_path_permissions};
use crate::forwarding::contention_based;
use crate::forwarding::perimeter::{self, RecoveryHeader};
use crate::geodesy::{self, DistanceMetric, Position};
use crate::io::{Delivery, Event, Output, ReceivedFrame};
use crate::location_table::{EntrySlot, is_station_mid, mac_key, mid_key};
use crate::mib::{AddressConfiguration, VoidRecovery};
use crate::packet::ForwardingTarget;
use crate::packet_rate::is_yielding_traffic;
use crate::{BROADCAST, GeonetDrop};
use carnet_wire::geonet::{GnAddress, StationType};

/// A parsed packet with the frame that carried it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReceivedPacket<'a> {
    pub packet: Packet<'a>,
    pub frame: ReceivedFrame<'a>,
    /// Recovery header of a packet in perimeter mode; `packet` is then the original packet.
    pub recovery: Option<RecoveryHeader>,
}

impl ReceivedPacket<'_> {
    pub fn source(&self) -> &LongPositionVector {
        self.packet.extended.source()
    }

    /// Returns whether the packet is a yielding one: it leaves a fifth of the data rate to other packets
    /// (annex B.2).
    pub fn is_yielding_traffic(&self) -> bool {
        is_yielding_traffic(self.packet.common.next_header, self.packet.common.traffic_class)
    }

    /// Returns the octets that count for the sender's data rate on reception. A yielding packet counts 0
    /// here, because it counts when the router forwards it.
    pub fn octets_counted_for_rate(&self) -> usize {
        if self.is_yielding_traffic() { 0 } else { self.frame.packet.len() }
    }

    /// Returns whether the frame's destination was this station's MAC address.
    pub fn is_unicast(&self) -> bool {
        self.frame.destination != BROADCAST
    }
}

impl Router {
    /// Handles a received frame.
    ///
    /// # Errors
    ///
    /// The reason why the router ignored the packet, or delivered but did not forward it.
    pub fn handle_frame(&mut self, now: Time, frame: ReceivedFrame<'_>) -> Result<(), GeonetDrop> {
        self.assert_drained();
        self.counters.received_frames += 1;
        let result = self.receive_frame(now, frame);
        if let Err(reason) = result {
            self.count_drop(reason);
        }
        fast_path_permissions::output_changed_permissions(self, now);
        result
    }

    fn receive_frame(&mut self, now: Time, frame: ReceivedFrame<'_>) -> Result<(), GeonetDrop> {
        if frame.source[0] & 1 != 0 || frame.source == [0; 6] {
            return Err(GeonetDrop::BadSender);
        }
        if frame.destination != BROADCAST && frame.destination != self.mac() {
            return Err(GeonetDrop::NotAddressed);
        }
        let (packet, recovery) = self.parse_with_recovery_header(frame.packet)?;
        let received = ReceivedPacket { packet, frame, recovery };
        // Only one station may continue perimeter mode. If every receiver of a broadcast frame continued it,
        // the copies would multiply.
        if recovery.is_some() && !received.is_unicast() {
            return Err(GeonetDrop::BadRecoveryHeader);
        }
        // 10.3.5: a packet with RHL above MHL is invalid.
        if packet.exceeds_maximum_hop_limit() {
            return Err(GeonetDrop::HopLimitExceedsMaximum);
        }
        let source = received.source();
        let placed = packet.extended.destination().is_none_or(|pv| pv.is_on_globe())
            && packet.extended.area().is_none_or(|area| area.is_on_globe());
        if !source.is_on_globe() || !placed {
            return Err(GeonetDrop::AbsurdPosition);
        }
        // The router sends frames to this MID. If the MID were a group address, each unicast frame to this
        // station would reach all stations.
        if !is_station_mid(source.address) {
            return Err(GeonetDrop::BadSender);
        }
        let mine = mid_key(source.address) == mid_key(self.address);
        if mine && !(received.recovery.is_some() && self.has_this_router_sent_vector(source)) {
            return Err(self.handle_packet_with_own_address(now, &packet));
        }
        if frame.source == self.mac() {
            return Err(GeonetDrop::OwnEcho);
        }
        match packet.extended {
            ExtendedHeader::Beacon { .. } => self.handle_single_hop(now, &received, false),
            ExtendedHeader::SingleHop { .. } => self.handle_single_hop(now, &received, true),
            ExtendedHeader::TopologicallyScoped { sequence, .. } => {
                let slot = self.learn_multi_hop_source(now, &received, sequence)?;
                // A beacon over several hops has no payload to deliver.
                if !packet.payload.is_empty() || packet.common.next_header != CommonNextHeader::Any {
                    self.deliver_payload(&received);
                }
                self.forward_received(now, &received, slot, ForwardingTarget::Everybody)
            }
            ExtendedHeader::LocationServiceRequest { sequence, request, .. } => {
                let slot = self.learn_multi_hop_source(now, &received, sequence)?;
                if mid_key(request) == mid_key(self.address) {
                    self.reply_location(now, source)
                } else {
                    self.forward_received(now, &received, slot, ForwardingTarget::Everybody)
                }
            }
            ExtendedHeader::GeoUnicast { .. } | ExtendedHeader::LocationServiceReply { .. } => {
                self.handle_unicast(now, &received, mine)
            }
            ExtendedHeader::GeoBroadcast { .. } | ExtendedHeader::GeoAnycast { .. } => {
                self.handle_area_packet(now, &received, mine)
            }
        }
    }

    /// Reads a packet, and the recovery header of a packet in perimeter mode.
    pub(super) fn parse_with_recovery_header<'a>(
        &self,
        octets: &'a [u8],
    ) -> Result<(Packet<'a>, Option<RecoveryHeader>), GeonetDrop> {
        let mut packet = Packet::parse(octets)?;
        if packet.common.next_header != CommonNextHeader::Unknown(perimeter::PERIMETER_NEXT_HEADER)
            || self.parameters.recovery == VoidRecovery::None
        {
            return Ok((packet, None));
        }
        let recovery = RecoveryHeader::parse(packet.payload)?;
        if packet.extended.destination().is_none() && packet.extended.area().is_none() {
            return Err(GeonetDrop::BadRecoveryHeader);
        }
        packet.common.next_header = recovery.next_header;
        packet.common.payload_length -= RecoveryHeader::LEN as u16;
        packet.payload = &packet.payload[RecoveryHeader::LEN..];
        Ok((packet, Some(recovery)))
    }

    fn has_this_router_sent_vector(&self, pv: &LongPositionVector) -> bool {
        self.recent_own_positions.contains(&(pv.timestamp, pv.latitude, pv.longitude))
    }

    /// Handles a packet whose source address is this station's address (10.2.1.5), and returns the reason of
    /// its drop. The packet is an echo of an own packet if its position vector is one of the stored own
    /// vectors. A packet older than all stored vectors counts as an echo, too: neighbours may have buffered
    /// it before this station's restart (SCF, contention). Any other packet shows an address conflict. This
    /// method detects every real conflict, because another station with this address also sends beacons,
    /// which no station buffers.
    fn handle_packet_with_own_address(&mut self, now: Time, packet: &Packet<'_>) -> GeonetDrop {
        let source = packet.extended.source();
        let forgotten = self.recent_own_positions.len() >= MAX_OWN_POSITIONS
            && self
                .recent_own_positions
                .front()
                .is_some_and(|oldest| oldest.0.is_newer_than(source.timestamp));
        let from_before = packet.extended.sequence().is_some()
            && self.first_position_at.is_none_or(|first| first.is_newer_than(source.timestamp));
        if forgotten || from_before || self.has_this_router_sent_vector(source) {
            return GeonetDrop::OwnEcho;
        }
        if !self.conflict_limiter.try_take_token(now) {
            return GeonetDrop::DuplicateAddress;
        }
        let address = self.address;
        if self.parameters.address_configuration == AddressConfiguration::Auto {
            // Choose a random MID, unicast and locally administered.
            let mid = (self.rng.random_u64() & 0xfcff_ffff_ffff) | 0x0200_0000_0000;
            let [_, _, a, b, c, d, e, f] = mid.to_be_bytes();
            let station_type: StationType = address.station_type();
            self.set_address(GnAddress::new(false, station_type, [a, b, c, d, e, f]));
        }
        self.push_event(Event::AddressConflict { address, replacement: self.address });
        GeonetDrop::DuplicateAddress
    }

    /// Handles a single-hop packet (10.3.6.3, 10.3.10.3).
    fn handle_single_hop(
        &mut self,
        now: Time,
        received: &ReceivedPacket<'_>,
        deliver: bool,
    ) -> Result<(), GeonetDrop> {
        let source = *received.source();
        let learnt =
            self.location_table.learn_position(now, &self.parameters, &source, true, self.own_timestamp(now));
        if deliver {
            self.deliver_payload(received);
        }
        let learnt = learnt?;
        self.record_neighbour_speed(now, &source);
        let said = if deliver { None } else { Some(received.packet.basic.lifetime) };
        self.store_beacon_validity(now, learnt.slot, said);
        let (octets, beta) = (received.octets_counted_for_rate(), self.parameters.packet_data_rate_beta);
        self.location_table.entry_mut(learnt.slot).packet_rate.count_packet(now, octets, beta);
        self.handle_learned_source(now, learnt, &source);
        Ok(())
    }

    /// Performs steps 3 to 6 of the receiver operations of all packets with a sequence number: duplicate
    /// detection, location table, Location Service, buffers.
    fn learn_multi_hop_source(
        &mut self,
        now: Time,
        received: &ReceivedPacket<'_>,
        sequence: u16,
    ) -> Result<EntrySlot, GeonetDrop> {
        let source = *received.source();
        let identity = (mid_key(source.address), sequence);
        let listed = self
            .location_table
            .find_slot_of_station(now, identity.0)
            .is_some_and(|slot| self.location_table.entry(slot).duplicates.contains(sequence));
        if listed || self.contention_buffer.contains(identity) {
            return Err(self.handle_duplicate_packet(now, received, identity));
        }
        let direct = self.parameters.is_piggybacking_on
            && received.packet.basic.remaining_hop_limit == received.packet.common.maximum_hop_limit
            && received.frame.source == source.address.mid();
        let learnt = self.location_table.learn_position(
            now,
            &self.parameters,
            &source,
            direct,
            self.own_timestamp(now),
        )?;
        let (octets, beta) = (received.octets_counted_for_rate(), self.parameters.packet_data_rate_beta);
        let length = self.parameters.duplicate_packet_list_length;
        let entry = self.location_table.entry_mut(learnt.slot);
        entry.packet_rate.count_packet(now, octets, beta);
        entry.duplicates.add(sequence, length);
        self.handle_learned_source(now, learnt, &source);
        Ok(learnt.slot)
    }

    /// Handles another copy of a known packet. If this station contends for forwarding the packet, the copy
    /// may end the contention.
    fn handle_duplicate_packet(
        &mut self,
        now: Time,
        received: &ReceivedPacket<'_>,
        identity: (u64, u16),
    ) -> GeonetDrop {
        if self.contention_buffer.is_empty() {
            return GeonetDrop::Duplicate;
        }
        let (ego, mib) = (self.own_coordinates(), &self.parameters);
        let forwarder = self.sender_position(now, received);
        let Some(contender) = self.contention_buffer.get_mut(identity) else { return GeonetDrop::Duplicate };
        contender.copy_count += 1;
        if contender.uses_advanced_forwarding && contender.copy_count < mib.advanced_max_counter {
            // F.4: a station outside the sector continues the contention, with the timeout for the new
            // sender's distance.
            let (sender, copies) = (contender.sender, contender.copy_count);
            let sender = self
                .location_table
                .find_slot_of_station(now, mac_key(sender))
                .map(|slot| self.location_table.entry(slot).position());
            let inside = match (sender, forwarder) {
                (Some(sender), Some(forwarder)) => {
                    crate::forwarding::advanced::is_inside_sector(mib, sender, forwarder, ego)
                }
                _ => false,
            };
            if !inside {
                let distance = forwarder.map(|position| ego.distance_to(position));
                let timeout = contention_based::contention_timeout(mib, distance);
                self.timers.set_deadline(super::Timer::Contention(identity), now + timeout);
                debug_assert!(copies < self.parameters.advanced_max_counter);
                return GeonetDrop::Duplicate;
            }
        }
        self.stop_contention(identity);
        GeonetDrop::Contention
    }

    fn stop_contention(&mut self, identity: (u64, u16)) {
        if let Some(contender) = self.contention_buffer.remove(identity) {
            self.recycle_buffer(contender.packet.frame);
        }
        self.timers.stop_timer(super::Timer::Contention(identity));
    }

    /// Returns the position of this copy's sender, if it is accurate enough for contention (PAI).
    pub(super) fn sender_position(&self, now: Time, received: &ReceivedPacket<'_>) -> Option<Position> {
        let slot = self.location_table.find_slot_of_station(now, mac_key(received.frame.source))?;
        let entry = self.location_table.entry(slot);
        entry.position_vector().accurate.then(|| entry.position())
    }

    /// Handles a GUC (10.3.8.3, 10.3.8.4) or an LS reply (10.3.7.1.4, 10.3.7.2).
    fn handle_unicast(
        &mut self,
        now: Time,
        received: &ReceivedPacket<'_>,
        mine: bool,
    ) -> Result<(), GeonetDrop> {
        let packet = &received.packet;
        let (Some(destination), Some(sequence)) = (packet.extended.destination(), packet.extended.sequence())
        else {
            return Err(GeonetDrop::Malformed);
        };
        let mid = mid_key(destination.address);
        let position = Position::new(destination.latitude, destination.longitude);
        if mid == mid_key(self.address) {
            self.learn_multi_hop_source(now, received, sequence)?;
            if matches!(packet.extended, ExtendedHeader::GeoUnicast { .. }) {
                self.deliver_payload(received);
                fast_path_permissions::record_forwarded_packet_for_fast_path(
                    self,
                    now,
                    mid_key(received.source().address),
                    None,
                );
            }
            return Ok(());
        }
        if let Some(recovery) = received.recovery
            && let Some(result) = self.continue_perimeter_mode(
                now,
                received,
                &recovery,
                DistanceMetric::new(position),
                Some(mid),
            )
        {
            return result;
        }
        if mine {
            return Err(GeonetDrop::Duplicate);
        }
        let slot = self.learn_multi_hop_source(now, received, sequence)?;
        self.forward_received(now, received, slot, ForwardingTarget::towards_station(mid, position))?;
        if received.recovery.is_none() && matches!(packet.extended, ExtendedHeader::GeoUnicast { .. }) {
            fast_path_permissions::record_forwarded_packet_for_fast_path(
                self,
                now,
                mid_key(received.source().address),
                Some((mid, position)),
            );
        }
        Ok(())
    }

    /// Handles a GBC (10.3.11.3) or a GAC (10.3.12.3).
    fn handle_area_packet(
        &mut self,
        now: Time,
        received: &ReceivedPacket<'_>,
        mine: bool,
    ) -> Result<(), GeonetDrop> {
        let packet = &received.packet;
        let (Some(area), Some(sequence)) = (packet.extended.area(), packet.extended.sequence()) else {
            return Err(GeonetDrop::Malformed);
        };
        let inside = geodesy::is_inside(area, self.own_coordinates()) && self.own_position_vector.is_some();
        let metric = DistanceMetric::new(geodesy::centre_of(area));
        if let Some(recovery) = received.recovery
            && !inside
            && let Some(result) = self.continue_perimeter_mode(now, received, &recovery, metric, None)
        {
            return result;
        }
        if mine {
            return Err(GeonetDrop::Duplicate);
        }
        let slot = self.learn_multi_hop_source(now, received, sequence)?;
        if inside {
            self.deliver_payload(received);
        }
        // B.3: the station does not forward a packet to an area that is too large.
        if geodesy::area_size(area) > self.parameters.max_area_size {
            return Err(GeonetDrop::AreaTooLarge);
        }
        let target = match packet.extended {
            // 10.3.12.3: inside the area the station has delivered the GAC and does not forward it.
            ExtendedHeader::GeoAnycast { .. } if inside => return Ok(()),
            ExtendedHeader::GeoAnycast { area, .. } => ForwardingTarget::Anybody { area, metric },
            _ => ForwardingTarget::Area { area: *area, metric },
        };
        self.forward_received(now, received, slot, target)
    }

    fn deliver_payload(&mut self, received: &ReceivedPacket<'_>) {
        if matches!(received.packet.common.next_header, CommonNextHeader::Unknown(_)) {
            // A forwarder accepts any next header, but a destination needs an upper layer that understands
            // it.
            self.count_drop(GeonetDrop::UnknownNextHeader);
            return;
        }
        let mut payload = self.take_buffer();
        payload.extend_from_slice(received.packet.payload);
        let Packet { basic, common, extended, .. } = &received.packet;
        self.counters.delivered_payloads += 1;
        self.outputs.push_back(Output::Deliver(Delivery {
            header_type: common.header_type,
            next_header: common.next_header,
            source: *received.source(),
            sequence: extended.sequence(),
            destination: extended.destination().map(|pv| pv.address),
            area: extended.area().copied(),
            traffic_class: common.traffic_class,
            remaining_hop_limit: basic.remaining_hop_limit,
            maximum_hop_limit: common.maximum_hop_limit,
            remaining_lifetime: basic.lifetime,
            link_layer_sender: received.frame.source,
            payload,
        }));
    }
}
