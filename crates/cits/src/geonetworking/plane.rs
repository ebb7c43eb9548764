//! The GeoNetworking plane of a station: the router of `carnet_geonet`, and around it the layers that share
//! its packets.
//!
//! IPv6 and the facilities are above the router (EN 302 636-4-1 clause 8). The congestion gate and the link
//! are below it, and the security entity is beside it. The folder has one file for each of these layers.
//!
//! The plane has one queue of outputs. The router has a queue of its own, which the plane empties after each
//! call of the router. If a layer answers a packet, the answer is the router's next input. So the plane
//! passes the answer only after the router has finished with the packet.

mod areas;
mod congestion;
pub mod echo;
mod facilities;
mod fast_path;
mod ipv6;
mod multicast;
mod security;
mod stations;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use carnet_base::{RateLimiter, Rng, Time, pop_and_shrink};
use carnet_geonet::dcc::DccGate;
use carnet_geonet::geo_destinations::GeoDestinations;
use carnet_geonet::ipv6_adaptation::in_order::ReorderingBuffer;
use carnet_geonet::ipv6_adaptation::patience::DuplicateAckDelay;
use carnet_geonet::ipv6_adaptation::{Ipv6Adaptation, ReorderHold};
use carnet_geonet::multicast::MulticastProxy;
use carnet_geonet::{GeonetDrop, MacAddress, Output as Routed, ReceivedFrame, Router};
use carnet_wire::geonet::GnAddress;

pub use self::congestion::HeldPacket;
use self::congestion::{CongestionControl, LinkSender, NO_CONGESTION_CONTROL_ERROR};
use self::echo::EchoMessage;
use self::fast_path::complete_acceleration;
pub use self::stations::StationMessage;
use self::stations::StationMessages;
use super::acceleration::{FastPathReport, SequenceNumbers};
use super::config::GeonetSettings;
use super::input::{GeonetRequest, GeonetTransport, VirtualFrame, next_header_of_number};
use super::output::{Delivered, Output};
use crate::facilities::plane::Facilities;
use crate::position::Position;
use crate::security::plane::{SecurityPlane, packet_without_signature};

/// The GeoNetworking part of a station.
#[derive(Debug)]
pub struct Geonet {
    pub(super) router: Router,
    pub(super) ipv6: Option<Ipv6Adaptation>,
    multicast_proxy: Option<MulticastProxy>,
    pub(super) facilities: Option<Box<Facilities>>,
    /// Security entity; `None`: the station sends and accepts unsecured packets.
    pub(super) security_plane: Option<SecurityPlane>,
    /// Gate of congestion control; `None`: packets go to the link at once.
    congestion_control: Option<Box<CongestionControl>>,
    /// Areas that operators have set at run time.
    pub(super) geo_destinations: GeoDestinations,
    /// Reordering buffer of packets for hosts; `None` without reordering.
    reordering_buffer: Option<ReorderingBuffer<Output>>,
    /// Delays duplicate acknowledgements of hosts while packets are missing; `None` if the config does not
    /// ask for it.
    duplicate_ack_delay: Option<DuplicateAckDelay<VirtualFrame>>,
    /// GN address at the start; the router's address may have changed since (10.2.1.5).
    address: GnAddress,
    echo_reply_limiter: RateLimiter,
    station_messages: StationMessages,
    pub(super) outputs: VecDeque<Output>,
}

impl Geonet {
    /// Creates the plane. Its first outputs wait in its queue.
    pub fn new(settings: GeonetSettings, address: GnAddress, rng: Rng) -> Geonet {
        let GeonetSettings {
            router_parameters: mib,
            ipv6_config: ipv6,
            multicast_config: multicast,
            facilities_settings: facilities,
            dcc_config: dcc,
            ..
        } = settings;
        // Take the seed from a copy of the generator. The generator's later numbers then stay the same as in
        // older recordings, so that these can be replayed.
        let seed = !rng.clone().random_u64();
        let reorder = ipv6.as_ref().filter(|config| config.reorder_wait > Duration::ZERO);
        let reorder = reorder.map(|config| (config.reorder_hold, config.reorder_rule, config.reorder_wait));
        let mut geonet = Geonet {
            address,
            router: Router::new(mib, address, rng),
            multicast_proxy: multicast.map(MulticastProxy::new),
            facilities: facilities.map(|settings| Box::new(Facilities::new(settings, address, seed))),
            reordering_buffer: reorder
                .filter(|(hold, ..)| *hold == ReorderHold::Packets)
                .map(|(_, rule, wait)| ReorderingBuffer::new(rule, wait)),
            duplicate_ack_delay: reorder
                .filter(|(hold, ..)| *hold == ReorderHold::Acknowledgements)
                .map(|(_, rule, wait)| DuplicateAckDelay::new(rule, wait)),
            ipv6: ipv6.map(|config| Ipv6Adaptation::new(config, address)),
            security_plane: None,
            congestion_control: dcc.map(|config| Box::new(CongestionControl::new(config, address))),
            geo_destinations: GeoDestinations::default(),
            echo_reply_limiter: RateLimiter::new(100, Duration::from_millis(10)),
            station_messages: StationMessages::default(),
            outputs: VecDeque::new(),
        };
        geonet.collect_ipv6_outputs();
        geonet
    }

    /// Returns the router.
    pub fn router(&self) -> &Router {
        &self.router
    }

    /// Returns the number of packets for hosts that waited for earlier packets, and of packets that came
    /// after later ones; `None` without a reordering buffer.
    pub fn reordered_counts(&self) -> Option<(u64, u64)> {
        self.reordering_buffer.as_ref().map(|in_order| (in_order.held_packets, in_order.late_packets))
    }

    /// Returns the number of delayed acknowledgements of hosts, and how many of them the station never sent;
    /// `None` if the config does not delay acknowledgements.
    pub fn delayed_ack_counts(&self) -> Option<(u64, u64)> {
        self.duplicate_ack_delay.as_ref().map(|patience| (patience.held_acks, patience.suppressed_acks))
    }

    /// Returns the adaptation sublayer of IPv6 over GeoNetworking, if the plane has it.
    pub fn ipv6(&self) -> Option<&Ipv6Adaptation> {
        self.ipv6.as_ref()
    }

    /// Returns when [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let ipv6 = self.ipv6.as_ref().and_then(Ipv6Adaptation::poll_timeout);
        let in_order = self.reordering_buffer.as_ref().and_then(ReorderingBuffer::poll_timeout);
        let patience = self.duplicate_ack_delay.as_ref().and_then(DuplicateAckDelay::poll_timeout);
        let destinations = self.geo_destinations.poll_timeout();
        let multicast = self.multicast_proxy.as_ref().and_then(MulticastProxy::poll_timeout);
        self.router
            .poll_timeout()
            .into_iter()
            .chain(ipv6)
            .chain(in_order)
            .chain(patience)
            .chain(destinations)
            .chain(multicast)
            .chain(self.facilities.as_ref().and_then(|facilities| facilities.poll_timeout()))
            .chain(self.security_plane.as_ref().and_then(SecurityPlane::poll_timeout))
            .chain(self.congestion_control.as_ref().and_then(|congestion| congestion.poll_timeout()))
            .min()
    }

    /// Returns the next output; the caller calls this until it returns `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        pop_and_shrink(&mut self.outputs)
    }

    /// Takes back the buffer of an executed [`Output::Frame`] or [`Output::Ipv6`].
    pub fn recycle_buffer(&mut self, octets: Vec<u8>) {
        self.router.recycle_buffer(octets);
    }

    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        if let Some(congestion) = &mut self.congestion_control {
            let warning = congestion.handle_timeout(now, self.facilities.as_mut());
            self.outputs.extend(warning.map(Output::Warning));
        }
        self.router.handle_timeout(now);
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.handle_timeout(now);
        }
        if let Some(in_order) = &mut self.reordering_buffer {
            in_order.handle_timeout(now, &mut |output| self.outputs.push_back(output));
        }
        if let Some(multicast) = &mut self.multicast_proxy {
            multicast.handle_timeout(now);
        }
        if let Some(facilities) = &mut self.facilities {
            facilities.handle_timeout(now);
        }
        multicast::collect_multicast_outputs(self.multicast_proxy.as_mut(), &mut self.outputs);
        self.collect_outputs(now);
        self.route_verified_packets(now);
        self.release_delayed_acks(now);
        self.update_areas(now);
        self.link_sender().send_released_packets(now);
    }

    /// Handles a frame of EtherType 0x8947.
    pub fn handle_frame(&mut self, now: Time, frame: ReceivedFrame<'_>) {
        match self.security_plane {
            None => self.route_frame(now, frame),
            Some(_) => self.handle_secured_frame(now, frame),
        }
    }

    /// Passes a frame to the router. If the station has a security entity, the entity validates the frame
    /// first.
    fn route_frame(&mut self, now: Time, frame: ReceivedFrame<'_>) {
        if let Some(congestion) = &mut self.congestion_control {
            congestion.drop_overheard_packet(frame.packet);
        }
        // The router counts the frames that it drops.
        let _counted = self.router.handle_frame(now, frame);
        self.collect_outputs(now);
    }

    /// Handles a frame that this station sent to one other station, which did not acknowledge it.
    pub fn handle_unacknowledged(&mut self, now: Time, destination: MacAddress, packet: &[u8]) {
        let packet = self.remove_envelope(packet);
        let _counted = self.router.handle_unacknowledged(now, destination, &packet);
        self.collect_outputs(now);
    }

    /// Returns a packet that the link returned, without its envelope: as the router sent it. A packet without
    /// an envelope stays unchanged.
    fn remove_envelope<'a>(&self, packet: &'a [u8]) -> Cow<'a, [u8]> {
        if self.security_plane.is_some() { packet_without_signature(packet) } else { Cow::Borrowed(packet) }
    }

    /// Handles the present position of the station.
    pub fn handle_position(&mut self, now: Time, position: Position) {
        if let Some(secured) = &mut self.security_plane {
            secured.handle_position(&position);
        }
        let vector = position.position_vector(self.router.address());
        let _counted = self.router.handle_position(now, vector);
        if let Some(facilities) = &mut self.facilities {
            facilities.handle_position(now, position, self.router.address());
        }
        self.collect_outputs(now);
        self.change_pseudonym_if_due(now);
    }

    /// Changes the station's GN address (10.2.1.3).
    pub fn handle_address(&mut self, now: Time, address: GnAddress) {
        self.address = address;
        self.router.handle_address(address);
        self.collect_outputs(now);
    }

    /// Resets the router to its state after a start.
    pub fn handle_clock_reset(&mut self, now: Time) {
        self.router.reset_to_initial(now, self.address);
        self.geo_destinations.clear();
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.reset_to_initial();
        }
        if let Some(in_order) = &mut self.reordering_buffer {
            in_order.clear(&mut |output| self.outputs.push_back(output));
        }
        if let Some(patience) = &mut self.duplicate_ack_delay {
            // Drop the delayed acknowledgements: TCP repeats them by its own timers.
            patience.clear(&mut drop);
        }
        if let Some(congestion) = &mut self.congestion_control {
            congestion.drop_held_packets();
        }
        self.collect_outputs(now);
    }

    /// Returns the congestion gate in front of the radio, if the station has one.
    pub fn congestion_gate(&self) -> Option<&DccGate<HeldPacket>> {
        self.congestion_control.as_ref().map(|congestion| congestion.dcc_gate())
    }

    /// Handles a report of the channel load, in thousandths.
    ///
    /// # Errors
    ///
    /// Returns an error if the load is above 1000, or if the station has no gate.
    pub fn handle_channel_busy(&mut self, now: Time, thousandths: u16) -> Result<(), String> {
        self.congestion_control
            .as_mut()
            .ok_or(NO_CONGESTION_CONTROL_ERROR)?
            .handle_channel_busy(now, thousandths)
    }

    /// Returns the parts of the plane that pass packets to the link.
    fn link_sender(&mut self) -> LinkSender<'_> {
        LinkSender {
            congestion: self.congestion_control.as_deref_mut(),
            secured: self.security_plane.as_mut(),
            router: &mut self.router,
            outputs: &mut self.outputs,
        }
    }

    /// Sets the source from which the router and the fast path draw sequence numbers.
    pub fn share_sequence_numbers(&mut self, numbers: Box<dyn SequenceNumbers>) {
        self.router.share_sequence_numbers(numbers);
    }

    /// If `is` is true and the station can use a fast path, starts its use; otherwise ends its use.
    pub fn handle_fast_path(&mut self, now: Time, is: bool) {
        // A fast path cannot hold or mark the host's packets, sign packets, or wait for a congestion gate. So
        // a station with one of these functions has no fast path.
        if is
            && self.security_plane.is_none()
            && self.congestion_control.is_none()
            && self.duplicate_ack_delay.is_none()
            && !self.ipv6.as_ref().is_some_and(|ipv6| ipv6.may_mark_congestion())
        {
            let hop_limit = self.ipv6.as_ref().and_then(|ipv6| ipv6.hop_limit());
            self.router.start_fast_path(hop_limit);
        } else {
            self.router.stop_fast_path();
        }
        self.collect_outputs(now);
    }

    /// Handles a report of the fast path about its packets.
    pub fn handle_report(&mut self, now: Time, report: &FastPathReport) {
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.count_fast_path_packets(report.sent, report.delivered);
        }
        self.router.handle_report(now, report);
        self.collect_outputs(now);
    }

    /// Starts or ends the queue of messages for [`Self::poll_station_message`]. The host does not get the
    /// packets in this queue.
    pub fn listen_to_stations(&mut self, listen: bool) {
        self.station_messages.set_listening(listen);
    }

    /// Returns the next message about neighbouring mobile networks.
    pub fn poll_station_message(&mut self) -> Option<StationMessage> {
        self.station_messages.poll_message()
    }

    /// Sends an IPv6 packet to all stations within `hops` hops.
    pub fn send_announcement(&mut self, now: Time, hops: u8, packet: &[u8]) {
        let _counted = self.router.handle_request(now, stations::build_announcement_request(hops, packet));
        self.collect_outputs(now);
    }

    /// Sends an IPv6 packet to one station.
    pub fn send_to_neighbour(&mut self, now: Time, hops: u8, station: MacAddress, packet: &[u8]) {
        let _counted =
            self.router.handle_request(now, stations::build_unicast_request(hops, station, packet));
        self.collect_outputs(now);
    }

    /// Removes from the router the packets that wait for a station, and returns them.
    pub fn remove_packets_for(&mut self, station: MacAddress) -> Vec<Vec<u8>> {
        self.router.remove_packets_for(station)
    }

    /// Returns the IPv6 packet of an unacknowledged frame if `wanted` returns true for it, so that the caller
    /// can send it by another route. Otherwise returns `None`, and the caller passes the frame to
    /// [`Self::handle_unacknowledged`].
    pub fn take_back_unacknowledged(
        &mut self,
        now: Time,
        station: MacAddress,
        octets: &[u8],
        wanted: impl FnOnce(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        let packet = self.remove_envelope(octets);
        self.router.take_back_unacknowledged(now, station, &packet, wanted)
    }

    /// Removes expired areas, and searches for the stations in the centres of areas if necessary.
    pub(crate) fn update_areas(&mut self, now: Time) {
        self.geo_destinations.handle_timeout(now, &mut self.router);
        self.update_groups_if_due(now);
        self.collect_outputs(now);
    }

    /// Passes the area of each multicast group to the IPv6 adaptation.
    pub(crate) fn update_groups_if_due(&mut self, now: Time) {
        areas::update_groups(now, &self.router, &self.geo_destinations, self.ipv6.as_mut());
    }

    /// Sends a payload over GeoNetworking.
    ///
    /// # Errors
    /// Returns the reason of a refusal, in words for the operator.
    pub fn handle_request(&mut self, now: Time, request: &GeonetRequest) -> Result<(), String> {
        if let Some(secured) = &mut self.security_plane {
            secured.check_own_message(now, next_header_of_number(request.next_header), &request.payload)?;
        }
        let result = self.router.handle_request(now, request.to_request());
        self.collect_outputs(now);
        result.map_err(|reason| {
            let largest = self.router.mib().max_area_size / 1e6;
            let more = match reason {
                GeonetDrop::AreaTooLarge => {
                    format!(", expected at most {largest} square kilometres (mib.max_area_size)")
                }
                _ => String::new(),
            };
            format!("the packet was not sent: {reason}{more}")
        })
    }

    /// Executes the outputs of the router, then those of the services.
    pub(super) fn collect_outputs(&mut self, now: Time) {
        self.collect_router_outputs(now);
        self.send_facilities_messages(now);
    }

    fn collect_router_outputs(&mut self, now: Time) {
        let mut answers = Vec::new();
        if let Some(congestion) = &mut self.congestion_control {
            congestion.handle_address(self.router.address());
        }
        while let Some(output) = self.router.poll_output() {
            match output {
                Routed::Transmit(transmission) => self.link_sender().transmit_or_queue(now, transmission),
                Routed::Deliver(delivery) => {
                    if let Some(delivery) = self.deliver_to_ipv6(now, delivery) {
                        self.pass_to_facilities(now, &delivery);
                        answers.extend(self.deliver_payload(now, delivery.into()));
                    }
                }
                Routed::Accelerate(told) => {
                    let may_deliver = self.reordering_buffer.is_none() && self.duplicate_ack_delay.is_none();
                    let told = complete_acceleration(told, &self.router, self.ipv6.as_ref(), may_deliver);
                    self.outputs.push_back(Output::Accelerate(told));
                }
                Routed::Event(event) => {
                    self.station_messages.handle_event(&event);
                    self.outputs.extend(output_of_event(event));
                }
            }
        }
        self.collect_ipv6_outputs();
        // Send the answers only now, because the router's outputs must be executed before its next request.
        for answer in answers {
            let _counted = self.router.handle_request(now, answer.to_request());
            self.collect_router_outputs(now);
        }
        self.send_pending_fragments(now);
    }

    /// Passes a payload to its receiver. If the payload is an echo request, returns the answer to send.
    fn deliver_payload(&mut self, now: Time, delivered: Delivered) -> Option<GeonetRequest> {
        if delivered.next_header == echo::BTP_B_NEXT_HEADER
            && let Some(request) = EchoMessage::parse(&delivered.payload).filter(|echo| !echo.is_reply)
        {
            let hops = travelled_hops(&delivered);
            return self.echo_reply_limiter.try_take_token(now).then(|| GeonetRequest {
                transport: GeonetTransport::GeoUnicast(delivered.source),
                next_header: echo::BTP_B_NEXT_HEADER,
                store_carry_forward: false,
                traffic_class: 0,
                lifetime_ms: None,
                hop_limit: None,
                payload: EchoMessage { is_reply: true, hop_count: hops, ..request }.emit(),
            });
        }
        self.outputs.push_back(Output::Delivered(delivered));
        None
    }
}

/// Returns the number of hops that a delivered packet took; 1 means that it came from a neighbour.
pub fn travelled_hops(delivered: &Delivered) -> u8 {
    delivered.maximum_hop_limit.saturating_sub(delivered.remaining_hop_limit).saturating_add(1)
}

fn output_of_event(event: carnet_geonet::Event) -> Option<Output> {
    let message = match event {
        // Do not report a new neighbour as an event: neighbours change often, and `carnet show neighbours`
        // lists them.
        carnet_geonet::Event::NewNeighbour(_) => return None,
        carnet_geonet::Event::AddressConflict { address, replacement } if address == replacement => {
            format!("another station uses this station's GN address {address}")
        }
        carnet_geonet::Event::AddressConflict { address, replacement } => {
            format!("another station uses the GN address {address}; this station is {replacement} now")
        }
        carnet_geonet::Event::PacketDataRate { source, limit } => format!(
            "the router does not forward the packets of {source}: their data rate exceeds \
             geonet.mib.max_packet_data_rate = {} (kilobytes per second; IPv6 may use four fifths of it, \
             0 means no limit)",
            limit / 1000
        ),
        carnet_geonet::Event::LocationUnknown(address) => {
            format!("the Location Service has not found the station {address}")
        }
    };
    Some(Output::Warning(message))
}
