//! Forwarding: executes the decisions of the algorithms of [`crate::forwarding`].

use carnet_base::Time;
use carnet_wire::geonet::{
    CommonNextHeader, ExtendedHeader, GeoArea, LongPositionVector, Packet, TrafficClass, set_destination,
    set_remaining_hop_limit,
};

use super::receive::ReceivedPacket;
use super::{MAX_PERIMETER_PACKETS, Router, Timer, UNREACHABLE_STATION_TIME};
use crate::forwarding::perimeter::{
    PERIMETER_NEXT_HEADER, PlanarGraphView, RecoveryHeader, planar_neighbours,
};
use crate::forwarding::predictive::NeighbourPredictor;
use crate::forwarding::{AreaForwardingDecision, contention_based, decide_for_area};
use crate::geodesy::{DistanceMetric, Position};
use crate::io::{Event, Output, Transmission};
use crate::location_table::{EntrySlot, LearnOutcome, LocationTableEntry, mac_key, mid_key};
use crate::mib::{AreaForwarding, NonAreaForwarding, Planarisation, Prediction, VoidRecovery};
use crate::packet::{BufferedPacket, ForwardingTarget, PacketProperties};
use crate::packet_rate::{PacketShaperDecision, yielding_rate_limit};
use crate::{BROADCAST, GeonetDrop, MacAddress};

/// Whether a packet to forward comes from this station or from another one.
#[derive(Debug, Clone, Copy)]
pub(super) enum PacketOrigin<'a> {
    /// The packet comes from this station itself, or from one of its buffers.
    Here,
    /// The packet has just arrived from another station.
    Received(&'a ReceivedPacket<'a>),
}

impl Router {
    /// Performs the forwarder operations that all packets have in common; `source` is the entry of the
    /// packet's source.
    pub(super) fn forward_received(
        &mut self,
        now: Time,
        received: &ReceivedPacket<'_>,
        source: EntrySlot,
        target: ForwardingTarget,
    ) -> Result<(), GeonetDrop> {
        let packet = &received.packet;
        let remaining = packet.basic.remaining_hop_limit;
        if remaining <= 1 {
            return Err(GeonetDrop::HopLimit);
        }
        if self.own_position_vector.is_none() && target.distance_metric().is_some() {
            return Err(GeonetDrop::NoPosition);
        }
        self.check_packet_rate(now, received, Some(source))?;
        let mut frame = self.take_buffer();
        if received.recovery.is_some() {
            packet.append_to(&mut frame);
        } else {
            // The link may have padded a short frame: copy only the octets of the packet.
            frame.extend_from_slice(&received.frame.packet[..packet.len()]);
        }
        set_remaining_hop_limit(&mut frame, remaining - 1)?;
        let mut target = target;
        if let (ForwardingTarget::Station { mid, .. }, Some(told)) = (target, packet.extended.destination())
            && let Some(slot) = self.location_table.find_slot_of_station(now, mid)
        {
            // C.3: correct the position of the destination if it is a neighbour with a newer position in the
            // location table.
            let entry = self.location_table.entry(slot);
            if entry.is_neighbour() && entry.position_vector().timestamp.is_newer_than(told.timestamp) {
                let mut known = entry.position_vector().to_short();
                known.address = told.address;
                set_destination(&mut frame, &known)?;
                target = ForwardingTarget::towards_station(mid, entry.position());
            }
        }
        let traffic_class = packet.common.traffic_class;
        let request = matches!(packet.extended, ExtendedHeader::LocationServiceRequest { .. });
        let meta = PacketProperties {
            identity: (mid_key(received.source().address), packet.extended.sequence().unwrap_or(0)),
            target,
            traffic_class,
            profile: None,
            // PON_LOS_BV_10: the router does not buffer LS requests.
            may_wait_for_next_hop: traffic_class.store_carry_forward && !request,
            lifetime: packet.basic.lifetime,
            waiting_since: now,
            is_own: false,
        };
        self.send_or_buffer(now, BufferedPacket { frame, properties: meta }, PacketOrigin::Received(received))
    }

    /// Checks the packet data rate (B.2): the router does not forward packets of a source or sender above the
    /// limit. `source` is the location table entry of the packet's source, if there is one. Counts the
    /// packet, except a yielding one.
    fn check_packet_rate(
        &mut self,
        now: Time,
        received: &ReceivedPacket<'_>,
        source: Option<EntrySlot>,
    ) -> Result<(), GeonetDrop> {
        let Some(limit) = self.parameters.max_packet_data_rate else { return Ok(()) };
        let (octets, beta) = (received.frame.packet.len(), self.parameters.packet_data_rate_beta);
        let sender = self
            .location_table
            .find_slot_of_station(now, mac_key(received.frame.source))
            .filter(|slot| Some(*slot) != source);
        let both = [source, sender];
        let excessive = if received.is_yielding_traffic() {
            let most = yielding_rate_limit(limit);
            let mut rates = both.into_iter().flatten();
            let full = rates
                .any(|slot| !self.location_table.entry_mut(slot).packet_rate.is_below_limit(now, most, beta));
            if !full {
                for slot in both.into_iter().flatten() {
                    self.location_table.entry_mut(slot).packet_rate.count_packet(now, octets, beta);
                }
            }
            full
        } else {
            let sent = sender
                .map(|slot| self.location_table.entry_mut(slot).packet_rate.count_packet(now, octets, beta));
            let made =
                source.map(|slot| self.location_table.entry(slot).packet_rate.average_octets_per_second());
            [made, sent].into_iter().flatten().any(|rate| rate > limit as f32)
        };
        if !excessive {
            return Ok(());
        }
        if !std::mem::replace(&mut self.has_reported_data_rate, true) {
            self.push_event(Event::PacketDataRate { source: received.source().address, limit });
        }
        Err(GeonetDrop::PacketDataRate)
    }

    /// Sends an own yielding packet. A packet over several hops goes through the shaper, so that forwarders
    /// have capacity left for warnings.
    pub(super) fn send_shaped(
        &mut self,
        now: Time,
        urgent: bool,
        packet: BufferedPacket,
    ) -> Result<(), GeonetDrop> {
        let Some(limit) = self.parameters.max_packet_data_rate else {
            return self.send_or_buffer(now, packet, PacketOrigin::Here);
        };
        if let ForwardingTarget::Station { mid, .. } = packet.properties.target
            && self.greedy_next_hop(now, &packet.properties.target).is_some_and(|next| mac_key(next) == mid)
        {
            return self.send_or_buffer(now, packet, PacketOrigin::Here);
        }
        match self.shaper.shape_packet(now, limit, urgent, packet) {
            PacketShaperDecision::Goes(packet) => self.send_or_buffer(now, packet, PacketOrigin::Here),
            PacketShaperDecision::Waits(due) => {
                if let Some(due) = due {
                    self.timers.set_deadline(Timer::Shaper, due);
                }
                Ok(())
            }
            PacketShaperDecision::Overflow(packet) => {
                self.recycle_buffer(packet.frame);
                Err(GeonetDrop::OwnDataRate)
            }
        }
    }

    /// Sends own packets that the shaper releases.
    pub(super) fn send_shaped_packets(&mut self, now: Time) {
        let Some(limit) = self.parameters.max_packet_data_rate else { return };
        loop {
            match self.shaper.poll_packet(now, limit) {
                Ok(mut packet) => {
                    if !packet.subtract_waiting_time(now) {
                        self.count_drop(GeonetDrop::LifetimeExpired);
                        self.recycle_buffer(packet.frame);
                        continue;
                    }
                    let result = match packet.properties.target {
                        ForwardingTarget::Station { mid, .. } => self.dispatch_to_station(now, mid, packet),
                        _ => self.send_or_buffer(now, packet, PacketOrigin::Here),
                    };
                    if let Err(reason) = result {
                        self.count_drop(reason);
                    }
                }
                Err(due) => {
                    if let Some(due) = due {
                        self.timers.set_deadline(Timer::Shaper, due);
                    }
                    return;
                }
            }
        }
    }

    /// Sends a packet by the forwarding algorithm for its type, or buffers it.
    pub(super) fn send_or_buffer(
        &mut self,
        now: Time,
        packet: BufferedPacket,
        origin: PacketOrigin<'_>,
    ) -> Result<(), GeonetDrop> {
        if packet.properties.may_wait_for_next_hop && self.location_table.neighbour_count() == 0 {
            self.buffer_packet(packet);
            return Ok(());
        }
        let area = match packet.properties.target {
            ForwardingTarget::Everybody => {
                self.transmit_packet(BROADCAST, packet);
                return Ok(());
            }
            ForwardingTarget::Station { .. } => return self.forward_towards_target(now, packet, origin),
            // A station inside the area has already delivered a received GAC and does not forward it
            // (10.3.12.2). So such a packet does not get to this code.
            ForwardingTarget::Area { area, .. } | ForwardingTarget::Anybody { area, .. } => area,
        };
        match self.decide_for_area(now, &area, origin) {
            AreaForwardingDecision::Area => self.forward_to_area(now, packet, origin),
            AreaForwardingDecision::NonArea => return self.forward_towards_target(now, packet, origin),
            AreaForwardingDecision::Broadcast => self.transmit_packet(BROADCAST, packet),
            AreaForwardingDecision::Discard => {
                self.recycle_buffer(packet.frame);
                return Err(GeonetDrop::SenderInsideArea);
            }
        }
        Ok(())
    }

    /// Makes the decision of annex D for this packet.
    fn decide_for_area(&self, now: Time, area: &GeoArea, origin: PacketOrigin<'_>) -> AreaForwardingDecision {
        let sender = match origin {
            PacketOrigin::Here => None,
            PacketOrigin::Received(received) => self
                .location_table
                .find_slot_of_station(now, mac_key(received.frame.source))
                .map(|slot| self.location_table.entry(slot).position_vector()),
        };
        decide_for_area(
            area,
            self.own_coordinates(),
            matches!(origin, PacketOrigin::Here),
            sender,
            self.parameters.unknown_sender,
        )
    }

    /// Forwards a packet inside its area (annex F).
    fn forward_to_area(&mut self, now: Time, packet: BufferedPacket, origin: PacketOrigin<'_>) {
        let PacketOrigin::Received(received) = origin else {
            return self.transmit_packet(BROADCAST, packet);
        };
        match self.parameters.area_forwarding {
            AreaForwarding::Simple => self.transmit_packet(BROADCAST, packet),
            AreaForwarding::ContentionBased => {
                let distance = self.distance_to_sender(now, received);
                self.start_contention(
                    now,
                    packet,
                    received,
                    false,
                    contention_based::contention_timeout(&self.parameters, distance),
                );
            }
            AreaForwarding::Advanced if received.is_unicast() => {
                // F.4: the previous hop chose this station as the next hop, so the station forwards the
                // packet at once. The contention timer still runs, in case the packet does not reach this
                // station's next hop.
                if let Some(next) = self.greedy_next_hop(now, &packet.properties.target) {
                    let mut frame = self.take_buffer();
                    frame.extend_from_slice(&packet.frame);
                    let now_sent = BufferedPacket { frame, properties: packet.properties };
                    self.transmit_packet(next, now_sent);
                }
                self.start_contention(now, packet, received, true, self.parameters.cbf_max_time);
            }
            AreaForwarding::Advanced => {
                let distance = self.distance_to_sender(now, received);
                self.start_contention(
                    now,
                    packet,
                    received,
                    true,
                    contention_based::contention_timeout(&self.parameters, distance),
                );
            }
        }
    }

    fn distance_to_sender(&self, now: Time, received: &ReceivedPacket<'_>) -> Option<f64> {
        self.sender_position(now, received).map(|sender| self.own_coordinates().distance_to(sender))
    }

    /// Forwards a packet outside its area, or a unicast packet (annex E).
    fn forward_towards_target(
        &mut self,
        now: Time,
        packet: BufferedPacket,
        origin: PacketOrigin<'_>,
    ) -> Result<(), GeonetDrop> {
        if self.parameters.non_area_forwarding == NonAreaForwarding::ContentionBased {
            return self.forward_by_contention(now, packet, origin);
        }
        if let Some(next) = self.greedy_next_hop(now, &packet.properties.target) {
            self.transmit_packet(next, packet);
            return Ok(());
        }
        if let VoidRecovery::Perimeter(planarisation) = self.parameters.recovery
            && self.enter_perimeter(&packet, planarisation)
        {
            self.recycle_buffer(packet.frame);
            return Ok(());
        }
        if packet.properties.may_wait_for_next_hop {
            self.buffer_packet(packet);
        } else {
            self.transmit_packet(BROADCAST, packet);
        }
        Ok(())
    }

    /// Returns the next hop by greedy forwarding (E.2). If the destination is a neighbour, it is the next
    /// hop.
    pub(super) fn greedy_next_hop(&mut self, now: Time, target: &ForwardingTarget) -> Option<MacAddress> {
        if let Some(prediction) = self.parameters.prediction {
            return self.predicted_next_hop(now, target, prediction);
        }
        if let ForwardingTarget::Station { mid, .. } = target
            && let Some(slot) = self.location_table.find_slot_of_station(now, *mid)
            && self.location_table.entry(slot).is_neighbour()
        {
            return Some(self.neighbour_mac(slot));
        }
        let (ego, metric) = (self.own_coordinates(), target.distance_metric()?);
        let nearer = |place: Position| metric.squared_distance(place) < metric.squared_distance(ego);
        let held = self
            .retained_next_hop(now, target)
            .filter(|&slot| self.location_table.neighbour_index().position(slot).is_some_and(nearer));
        let next = match held {
            Some(slot) => slot,
            None => {
                let chosen = self.next_hop_cache.next_hop(&self.location_table, metric, ego)?;
                self.retain_next_hop(now, target, chosen);
                chosen
            }
        };
        Some(self.neighbour_mac(next))
    }

    /// Returns the next hop that the router holds for packets to a target; `None` if it holds no next hop or
    /// the hold time is over.
    fn retained_next_hop(&self, now: Time, target: &ForwardingTarget) -> Option<EntrySlot> {
        let hold = self.parameters.next_hop_hold;
        if hold.is_zero() { None } else { self.retained_next_hops.get(now, target, hold) }
    }

    fn retain_next_hop(&mut self, now: Time, target: &ForwardingTarget, next_hop: EntrySlot) {
        if !self.parameters.next_hop_hold.is_zero() {
            self.retained_next_hops.store_next_hop(now, target, next_hop);
        }
    }

    /// Returns the next hop by predicted positions.
    fn predicted_next_hop(
        &mut self,
        now: Time,
        target: &ForwardingTarget,
        prediction: Prediction,
    ) -> Option<MacAddress> {
        let range = self.parameters.max_communication_range;
        let view = NeighbourPredictor::new(now, self.own_position_vector?, range, prediction.link_lifetime);
        let reached = |mid: u64, heard: Time| {
            let failed = |&(other, when): &(u64, Time)| {
                other == mid && when >= heard && now.saturating_since(when) < UNREACHABLE_STATION_TIME
            };
            !self.unreachable_stations.iter().any(failed)
        };
        if let ForwardingTarget::Station { mid, metric } = target {
            let (within, heard) = match self
                .location_table
                .find_slot_of_station(now, *mid)
                .map(|slot| self.location_table.entry(slot))
            {
                Some(entry) if entry.is_neighbour() => (view.is_in_range(entry), entry.last_received_at()),
                Some(entry) => (view.is_in_range(entry), Time::ZERO),
                None => (view.is_position_in_range(metric.destination), Time::ZERO),
            };
            if within && reached(*mid, heard) {
                let [_, _, mac @ ..] = mid.to_be_bytes();
                return Some(mac);
            }
        }
        let metric = target.distance_metric()?;
        let accepted =
            |entry: &LocationTableEntry| reached(mid_key(entry.address()), entry.last_received_at());
        let held = self.retained_next_hop(now, target).filter(|&slot| {
            let entry = self.location_table.entry(slot);
            self.location_table.neighbour_index().position(slot).is_some()
                && view.is_in_range_and_nearer(metric, entry)
                && accepted(entry)
        });
        let next = match held {
            Some(slot) => slot,
            None => {
                let chosen = view.next_hop(&self.location_table, metric, accepted)?;
                self.retain_next_hop(now, target, chosen);
                chosen
            }
        };
        Some(self.neighbour_mac(next))
    }

    /// Forwards a packet by contention (E.3).
    fn forward_by_contention(
        &mut self,
        now: Time,
        packet: BufferedPacket,
        origin: PacketOrigin<'_>,
    ) -> Result<(), GeonetDrop> {
        let (PacketOrigin::Received(received), Some(metric)) =
            (origin, packet.properties.target.distance_metric())
        else {
            self.transmit_packet(BROADCAST, packet);
            return Ok(());
        };
        let progress = self.sender_position(now, received).map(|sender| {
            metric.destination.distance_to(sender) - metric.destination.distance_to(self.own_coordinates())
        });
        if progress.is_some_and(|metres| metres <= 0.0) {
            self.recycle_buffer(packet.frame);
            return Err(GeonetDrop::NoProgress);
        }
        self.start_contention(
            now,
            packet,
            received,
            false,
            contention_based::contention_timeout(&self.parameters, progress),
        );
        Ok(())
    }

    fn start_contention(
        &mut self,
        now: Time,
        packet: BufferedPacket,
        received: &ReceivedPacket<'_>,
        advanced: bool,
        timeout: std::time::Duration,
    ) {
        let identity = packet.properties.identity;
        let mut pushed_out = Vec::new();
        let limit = self.parameters.cbf_buffer_size;
        self.timers.set_deadline(Timer::Contention(identity), now + timeout);
        self.contention_buffer
            .insert(packet, received.frame.source, advanced, limit, |old| pushed_out.push(old));
        for old in pushed_out {
            self.timers.stop_timer(Timer::Contention(old.properties.identity));
            self.count_drop(GeonetDrop::ForwardingBufferOverflow);
            self.recycle_buffer(old.frame);
        }
    }

    /// Sends a packet after its contention timer has expired, because no other station has forwarded it
    /// first.
    pub(super) fn end_contention(&mut self, now: Time, identity: (u64, u16)) {
        let Some(contender) = self.contention_buffer.remove(identity) else { return };
        let mut packet = contender.packet;
        if packet.subtract_waiting_time(now) {
            self.output_transmission(BROADCAST, packet, !contender.uses_advanced_forwarding);
        } else {
            self.count_drop(GeonetDrop::LifetimeExpired);
            self.recycle_buffer(packet.frame);
        }
    }

    /// Stores a packet in the forwarding packet buffer (8.5).
    fn buffer_packet(&mut self, packet: BufferedPacket) {
        let (buffer, limit) = match packet.properties.target {
            ForwardingTarget::Station { .. } => {
                (&mut self.unicast_buffer, self.parameters.unicast_buffer_size)
            }
            _ => (&mut self.broadcast_buffer, self.parameters.broadcast_buffer_size),
        };
        let mut pushed_out = Vec::new();
        buffer.push(packet, limit, |old| pushed_out.push(old));
        for old in pushed_out {
            self.count_drop(GeonetDrop::ForwardingBufferOverflow);
            self.recycle_buffer(old.frame);
        }
        self.schedule_buffer_timers();
    }

    /// Handles a source whose position the location table has just stored: packets that waited for this
    /// station may leave.
    pub(super) fn handle_learned_source(
        &mut self,
        now: Time,
        learnt: LearnOutcome,
        source: &LongPositionVector,
    ) {
        self.counters.from_the_future += u64::from(learnt.from_the_future);
        if learnt.is_new_neighbour {
            self.push_event(Event::NewNeighbour(source.address));
        }
        if (learnt.is_new || learnt.is_new_neighbour) && !self.is_table_timer_set {
            self.schedule_table_timer();
        }
        if !self.running_searches.is_empty() {
            self.end_location_search(now, learnt.slot);
        }
        if learnt.is_position_updated || learnt.is_new_neighbour {
            self.flush_buffers(now, learnt.slot);
        }
    }

    /// Sends the waiting packets for which the station in `slot` is the destination, or a neighbour nearer to
    /// the destination.
    fn flush_buffers(&mut self, now: Time, slot: EntrySlot) {
        if self.unicast_buffer.is_empty() && self.broadcast_buffer.is_empty() {
            return;
        }
        let entry = self.location_table.entry(slot);
        let (mid, position, neighbour) = (mid_key(entry.address()), entry.position(), entry.is_neighbour());
        let ego = self.own_coordinates();
        let helps = |meta: &PacketProperties| match meta.target {
            ForwardingTarget::Station { mid: wanted, .. } if wanted == mid => true,
            ForwardingTarget::Station { metric, .. } => {
                neighbour && metric.squared_distance(position) < metric.squared_distance(ego)
            }
            ForwardingTarget::Everybody => neighbour,
            ForwardingTarget::Area { area, metric } | ForwardingTarget::Anybody { area, metric } => {
                neighbour
                    && (metric.squared_distance(position) < metric.squared_distance(ego)
                        || crate::geodesy::is_inside(&area, ego))
            }
        };
        let mut packets = self.unicast_buffer.remove_matching(helps);
        packets.extend(self.broadcast_buffer.remove_matching(helps));
        for mut packet in packets {
            if !packet.subtract_waiting_time(now) {
                self.count_drop(GeonetDrop::LifetimeExpired);
                self.recycle_buffer(packet.frame);
            } else if let Err(reason) = self.send_or_buffer(now, packet, PacketOrigin::Here) {
                self.count_drop(reason);
            }
        }
    }

    /// Passes a packet to the link.
    pub(super) fn transmit_packet(&mut self, destination: MacAddress, packet: BufferedPacket) {
        self.output_transmission(destination, packet, false);
    }

    fn output_transmission(&mut self, destination: MacAddress, packet: BufferedPacket, contended: bool) {
        if packet.properties.is_own {
            self.counters.sent_packets += 1;
        } else {
            self.counters.forwarded_packets += 1;
        }
        let PacketProperties { traffic_class, profile, is_own: own, .. } = packet.properties;
        self.outputs.push_back(Output::Transmit(Transmission {
            destination,
            traffic_class,
            profile,
            is_own: own,
            is_after_contention: contended,
            frame: packet.frame,
        }));
    }

    /// Starts perimeter mode for a packet and sends it along the first edge. Returns false if this station
    /// has no edge in the planar graph.
    fn enter_perimeter(&mut self, packet: &BufferedPacket, planarisation: Planarisation) -> bool {
        let Some(metric) = packet.properties.target.distance_metric() else { return false };
        let Ok(view) = Packet::parse(&packet.frame) else { return false };
        let ego = self.own_coordinates();
        let walk = self.planar_view(ego, metric, planarisation);
        let Some((header, next)) = walk.enter_perimeter(ego, view.common.next_header) else { return false };
        let mac = walk.mac_of(next);
        let frame = with_recovery_header(&view, &header, view.basic.remaining_hop_limit);
        self.counters.perimeter_recoveries += 1;
        self.transmit_packet(mac, BufferedPacket { frame, properties: packet.properties });
        true
    }

    /// Returns the view of the planar subgraph from this station for a destination.
    fn planar_view(
        &mut self,
        ego: Position,
        metric: &DistanceMetric,
        planarisation: Planarisation,
    ) -> PlanarGraphView<'_> {
        let mac = self.mac();
        let generation = self.location_table.neighbour_generation();
        let planar = match self.planar_subgraph.take() {
            Some(planar) if planar.0 == generation && planar.1 == ego => planar,
            _ => (generation, ego, planar_neighbours(&self.location_table, ego, planarisation)),
        };
        let (_, _, neighbours) = self.planar_subgraph.insert(planar);
        PlanarGraphView::new(&self.location_table, neighbours, mac, ego, metric.destination)
    }

    /// Sends a packet in perimeter mode along its next edge. Returns `None` if perimeter mode ends: the
    /// station is nearer to the destination than the point of entry, or the destination is a neighbour.
    pub(super) fn continue_perimeter_mode(
        &mut self,
        now: Time,
        received: &ReceivedPacket<'_>,
        recovery: &RecoveryHeader,
        metric: DistanceMetric,
        destination: Option<u64>,
    ) -> Option<Result<(), GeonetDrop>> {
        let VoidRecovery::Perimeter(planarisation) = self.parameters.recovery else {
            return Some(Err(GeonetDrop::BadRecoveryHeader));
        };
        if self.own_position_vector.is_none() {
            return Some(Err(GeonetDrop::NoPosition));
        }
        let ego = self.own_coordinates();
        let arrived = destination
            .and_then(|mid| self.location_table.find_slot_of_station(now, mid))
            .is_some_and(|slot| self.location_table.entry(slot).is_neighbour());
        if arrived || metric.squared_distance(ego) < metric.squared_distance(recovery.greedy_failure_position)
        {
            return None;
        }
        let packet = &received.packet;
        let remaining = packet.basic.remaining_hop_limit;
        if remaining <= 1 {
            return Some(Err(GeonetDrop::HopLimit));
        }
        let source = received.source();
        let step = (mid_key(source.address), packet.extended.sequence().unwrap_or(0), remaining);
        if self.seen_perimeter_packets.contains(&step) {
            return Some(Err(GeonetDrop::Duplicate));
        }
        if self.seen_perimeter_packets.len() >= MAX_PERIMETER_PACKETS {
            self.seen_perimeter_packets.pop_front();
        }
        self.seen_perimeter_packets.push_back(step);
        if let Err(excessive) = self.check_packet_rate(now, received, None) {
            return Some(Err(excessive));
        }
        let sender = self
            .location_table
            .find_slot_of_station(now, mac_key(received.frame.source))
            .map(|slot| self.location_table.entry(slot).position());
        let walk = self.planar_view(ego, &metric, planarisation);
        let (header, next) = match walk.next_edge(recovery, sender) {
            Ok(step) => step,
            Err(reason) => return Some(Err(reason)),
        };
        let mac = walk.mac_of(next);
        let frame = with_recovery_header(packet, &header, remaining - 1);
        self.counters.forwarded_packets += 1;
        let traffic_class = packet.common.traffic_class;
        let own = false;
        self.outputs.push_back(Output::Transmit(Transmission {
            destination: mac,
            traffic_class,
            profile: None,
            is_own: own,
            is_after_contention: false,
            frame,
        }));
        Some(Ok(()))
    }
}

/// Returns the octets of the packet with its recovery header.
fn with_recovery_header(packet: &Packet<'_>, header: &RecoveryHeader, remaining_hop_limit: u8) -> Vec<u8> {
    let mut payload = Vec::with_capacity(RecoveryHeader::LEN + packet.payload.len());
    payload.extend_from_slice(&header.to_octets());
    payload.extend_from_slice(packet.payload);
    let mut walking = Packet { payload: &payload, ..*packet };
    walking.basic.remaining_hop_limit = remaining_hop_limit;
    walking.common.next_header = CommonNextHeader::Unknown(PERIMETER_NEXT_HEADER);
    walking.emit()
}

/// Traffic class of beacons and Location Service packets.
pub(super) const OWN_TRAFFIC_CLASS: TrafficClass =
    TrafficClass { store_carry_forward: false, channel_offload: false, id: 0 };
