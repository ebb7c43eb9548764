//! Requests of upper layers: the source operations (10.3.7.1.2, 10.3.8.2, 10.3.9.2, 10.3.10.2, 10.3.11.2,
//! 10.3.12.2).

use carnet_base::Time;
use carnet_wire::geonet::{
    CommonNextHeader, ExtendedHeader, GeoArea, Lifetime, LongPositionVector, Packet, ShortPositionVector,
    TrafficClass,
};

use super::forward::PacketOrigin;
use super::{MAX_OWN_POSITIONS, MAX_REPETITIONS, Router, Timer, fast_path_permissions};
use crate::GeonetDrop;
use crate::dcc::DccProfile;
use crate::geodesy::{self, DistanceMetric, Position};
use crate::io::{Repetition, Request, Transport};
use crate::location_table::{is_station_mid, mid_key};
use crate::packet::{BufferedPacket, ForwardingTarget, PacketProperties};
use crate::packet_rate::is_yielding_traffic;

/// Next Header value of ICMPv6 (RFC 4443).
const ICMPV6_NEXT_HEADER: u8 = 58;

/// A packet that the router sends repeatedly.
#[derive(Debug)]
pub(super) struct RepeatedPacket {
    frame: Vec<u8>,
    properties: PacketProperties,
    repetition: Repetition,
    repeat_until: Time,
}

/// Fields of an own packet that are not in its extended header.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnPacketFields<'a> {
    pub next_header: CommonNextHeader,
    pub traffic_class: TrafficClass,
    pub profile: Option<DccProfile>,
    pub lifetime: Lifetime,
    pub hop_limit: u8,
    pub payload: &'a [u8],
}

impl Router {
    /// Sends a payload of the upper layer (GN-DATA.request).
    ///
    /// # Errors
    ///
    /// The reason why the router refused the request; it has sent nothing.
    pub fn handle_request(&mut self, now: Time, request: Request<'_>) -> Result<(), GeonetDrop> {
        self.assert_drained();
        let result = self.send_request(now, &request);
        if let Err(reason) = result {
            self.count_drop(reason);
        }
        fast_path_permissions::output_changed_permissions(self, now);
        result
    }

    fn send_request(&mut self, now: Time, request: &Request<'_>) -> Result<(), GeonetDrop> {
        let own = self.check_request(request)?;
        match request.transport {
            Transport::Beacon => self.send_beacon(now),
            Transport::GeoUnicast(destination) => {
                let mid = mid_key(destination);
                if mid == mid_key(self.address) {
                    return Err(GeonetDrop::OwnDestination);
                }
                if !is_station_mid(destination) {
                    return Err(GeonetDrop::BadDestination);
                }
                let known = self.location_table.find_slot_of_station(now, mid);
                let place = match known {
                    Some(slot) => self.location_table.entry(slot).position_vector().to_short(),
                    None => ShortPositionVector { address: destination, ..ShortPositionVector::default() },
                };
                if known.is_none() {
                    self.check_location_search_limit(mid)?;
                }
                let target =
                    ForwardingTarget::towards_station(mid, Position::new(place.latitude, place.longitude));
                let packet = self.compose_own_packet(now, own, target, |sequence, source| {
                    ExtendedHeader::GeoUnicast { sequence, source, destination: place }
                })?;
                self.start_repetition(now, &packet, request.repetition);
                match known {
                    Some(_) => {
                        let ipv6 = request.next_header == CommonNextHeader::Ipv6;
                        let result = self.send_own_packet(now, request, packet);
                        if ipv6
                            && result.is_ok()
                            && let Some(acceleration) = &mut self.acceleration
                        {
                            acceleration.record_own_packet_for_fast_path(now, mid);
                        }
                        result
                    }
                    None => self.start_location_search(now, destination, packet),
                }
            }
            Transport::GeoBroadcast(area) => {
                self.check_area(&area)?;
                let target =
                    ForwardingTarget::Area { area, metric: DistanceMetric::new(geodesy::centre_of(&area)) };
                let packet = self.compose_own_packet(now, own, target, |sequence, source| {
                    ExtendedHeader::GeoBroadcast { sequence, source, area }
                })?;
                self.start_repetition(now, &packet, request.repetition);
                self.send_own_packet(now, request, packet)
            }
            Transport::GeoAnycast(area) => {
                self.check_area(&area)?;
                let target = ForwardingTarget::Anybody {
                    area,
                    metric: DistanceMetric::new(geodesy::centre_of(&area)),
                };
                let packet = self.compose_own_packet(now, own, target, |sequence, source| {
                    ExtendedHeader::GeoAnycast { sequence, source, area }
                })?;
                self.start_repetition(now, &packet, request.repetition);
                self.send_own_packet(now, request, packet)
            }
            Transport::TopologicallyScoped => {
                let packet =
                    self.compose_own_packet(now, own, ForwardingTarget::Everybody, |sequence, source| {
                        ExtendedHeader::TopologicallyScoped { sequence, source }
                    })?;
                self.start_repetition(now, &packet, request.repetition);
                self.send_own_packet(now, request, packet)
            }
            Transport::SingleHop(media_dependent) => {
                let source = self.own_position()?;
                let extended = ExtendedHeader::SingleHop { source, media_dependent };
                let packet = self.compose_with_sequence(now, own, ForwardingTarget::Everybody, extended);
                self.start_repetition(now, &packet, request.repetition);
                self.send_or_buffer(now, packet, PacketOrigin::Here)?;
                // 10.3.10.2: an SHB gives neighbours the information of a beacon.
                self.restart_beacon_timer(now);
                Ok(())
            }
        }?;
        if self.parameters.is_piggybacking_on && !matches!(request.transport, Transport::GeoUnicast(_)) {
            self.restart_beacon_timer(now);
        }
        Ok(())
    }

    /// Sends a composed packet. A yielding packet waits in the shaper. ICMPv6 does not wait, because IPv6
    /// needs it to work.
    fn send_own_packet(
        &mut self,
        now: Time,
        request: &Request<'_>,
        packet: BufferedPacket,
    ) -> Result<(), GeonetDrop> {
        if !is_yielding_traffic(request.next_header, request.traffic_class) {
            return self.send_or_buffer(now, packet, PacketOrigin::Here);
        }
        let ipv6 = request.next_header == CommonNextHeader::Ipv6;
        let urgent = ipv6 && request.payload.get(6) == Some(&ICMPV6_NEXT_HEADER);
        self.send_shaped(now, urgent, packet)
    }

    /// Checks a send request, and sends nothing.
    pub(super) fn check_request<'a>(&self, request: &Request<'a>) -> Result<OwnPacketFields<'a>, GeonetDrop> {
        if request.payload.len() > self.parameters.max_sdu_size {
            return Err(GeonetDrop::SduTooLarge);
        }
        let wanted = request.maximum_lifetime.unwrap_or(self.parameters.default_packet_lifetime);
        let lifetime = Lifetime::from_duration(wanted);
        if wanted > self.parameters.max_packet_lifetime || lifetime.milliseconds() == 0 {
            return Err(GeonetDrop::BadLifetime);
        }
        let hop_limit = match request.transport {
            Transport::SingleHop(_) | Transport::Beacon => 1,
            _ => request.maximum_hop_limit.unwrap_or(self.parameters.default_hop_limit),
        };
        if hop_limit == 0 {
            return Err(GeonetDrop::BadHopLimit);
        }
        if let Some(repetition) = request.repetition
            && (repetition.interval < self.parameters.min_repetition_interval
                || self.repeated_packets.len() >= MAX_REPETITIONS)
        {
            return Err(GeonetDrop::BadRepetition);
        }
        Ok(OwnPacketFields {
            next_header: request.next_header,
            traffic_class: request.traffic_class,
            profile: request.profile,
            lifetime,
            hop_limit,
            payload: request.payload,
        })
    }

    /// Checks the size (B.3) and the position of an area.
    fn check_area(&self, area: &GeoArea) -> Result<(), GeonetDrop> {
        if !area.is_on_globe() {
            return Err(GeonetDrop::AbsurdPosition);
        }
        if geodesy::area_size(area) > self.parameters.max_area_size {
            return Err(GeonetDrop::AreaTooLarge);
        }
        Ok(())
    }

    /// Returns EPV for the header of an own packet, and stores it, so that the router recognises echoes of
    /// the packet.
    pub(super) fn own_position(&mut self) -> Result<LongPositionVector, GeonetDrop> {
        let position = self.own_position_vector.ok_or(GeonetDrop::NoPosition)?;
        let sent = (position.timestamp, position.latitude, position.longitude);
        if self.recent_own_positions.back() != Some(&sent) {
            if self.recent_own_positions.len() >= MAX_OWN_POSITIONS {
                self.recent_own_positions.pop_front();
            }
            self.recent_own_positions.push_back(sent);
        }
        Ok(position)
    }

    /// Composes an own packet whose extended header has the next sequence number.
    pub(super) fn compose_own_packet(
        &mut self,
        now: Time,
        own: OwnPacketFields<'_>,
        target: ForwardingTarget,
        extended: impl FnOnce(u16, LongPositionVector) -> ExtendedHeader,
    ) -> Result<BufferedPacket, GeonetDrop> {
        let source = self.own_position()?;
        let sequence = self.next_sequence_number();
        Ok(self.compose_with_sequence(now, own, target, extended(sequence, source)))
    }

    /// Composes an own packet with this extended header (10.3.2, 10.3.4).
    pub(super) fn compose_with_sequence(
        &mut self,
        now: Time,
        own: OwnPacketFields<'_>,
        target: ForwardingTarget,
        extended: ExtendedHeader,
    ) -> BufferedPacket {
        let mut packet = Packet::new(extended, own.next_header, own.lifetime, own.hop_limit, own.payload);
        packet.common.traffic_class = own.traffic_class;
        packet.common.mobile = self.parameters.is_mobile;
        let mut frame = self.take_buffer();
        packet.append_to(&mut frame);
        let request = matches!(extended, ExtendedHeader::LocationServiceRequest { .. });
        let meta = PacketProperties {
            identity: (mid_key(self.address), extended.sequence().unwrap_or(0)),
            target,
            traffic_class: own.traffic_class,
            profile: own.profile,
            may_wait_for_next_hop: own.traffic_class.store_carry_forward && !request,
            lifetime: own.lifetime,
            waiting_since: now,
            is_own: true,
        };
        BufferedPacket { frame, properties: meta }
    }

    fn start_repetition(&mut self, now: Time, packet: &BufferedPacket, repetition: Option<Repetition>) {
        let Some(repetition) = repetition else { return };
        let until = now + repetition.maximum_time;
        let number = self.next_repetition_number;
        self.next_repetition_number = number.wrapping_add(1);
        let repeated = RepeatedPacket {
            frame: packet.frame.clone(),
            properties: packet.properties,
            repetition,
            repeat_until: until,
        };
        self.repeated_packets.insert(number, repeated);
        self.timers.set_deadline(Timer::Repeat(number), now + repetition.interval);
    }

    /// Sends the next repetition of a packet, with the same sequence number as before.
    pub(super) fn send_repetition(&mut self, now: Time, number: u32) {
        let mut frame = self.take_buffer();
        let Some(repeated) = self.repeated_packets.get(&number) else { return };
        if now > repeated.repeat_until {
            self.repeated_packets.remove(&number);
            return;
        }
        frame.extend_from_slice(&repeated.frame);
        let meta = PacketProperties { waiting_since: now, ..repeated.properties };
        self.timers.set_deadline(Timer::Repeat(number), now + repeated.repetition.interval);
        let packet = BufferedPacket { frame, properties: meta };
        let result = match meta.target {
            ForwardingTarget::Station { mid, .. } => self.dispatch_to_station(now, mid, packet),
            _ => self.send_or_buffer(now, packet, PacketOrigin::Here),
        };
        if let Err(reason) = result {
            self.count_drop(reason);
        }
    }
}
