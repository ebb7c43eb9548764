//! The GeoNetworking plane of a station: the router of `carnet_geonet`, and around it the layers that share
//! its packets.
//!
//! IPv6 and the facilities are above the router (EN 302 636-4-1 clause 8). The congestion gate and the link
//! are below it, and the security entity is beside it. So the plane carries the wings of the facilities and
//! of security. The folder has one file for each of these layers.
//!
//! The plane has one queue of outputs. The router has a queue of its own, which the plane empties after each
//! call of the router. A packet must have passed the router's tables before a layer answers it, because the
//! answer is the next input of the router.

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
use carnet_geonet::dcc::Gate;
use carnet_geonet::geo_destinations::GeoDestinations;
use carnet_geonet::ipv6_adaptation::in_order::ReorderingBuffer;
use carnet_geonet::ipv6_adaptation::patience::DuplicateAckDelay;
use carnet_geonet::ipv6_adaptation::{Adaptation, ReorderHold};
use carnet_geonet::multicast::MulticastProxy;
use carnet_geonet::{GeonetDrop, MacAddress, Output as Routed, ReceivedFrame, Router};
use carnet_wire::geonet::GnAddress;

pub use self::congestion::Held;
use self::congestion::{Congestion, NO_DCC, Sender};
use self::echo::Echo;
use self::fast_path::accelerate;
pub use self::stations::StationMessage;
use self::stations::StationMessages;
use super::acceleration::{FastPathReport, SequenceNumbers};
use super::config::GeonetSettings;
use super::input::{GeonetRequest, GeonetTransport, VirtualFrame, next_header};
use super::output::{Delivered, Output};
use crate::facilities::plane::Facilities;
use crate::position::Position;
use crate::security::plane::{Secured, opened};

/// The GeoNetworking part of a station.
#[derive(Debug)]
pub struct Geonet {
    pub(super) router: Router,
    pub(super) ipv6: Option<Adaptation>,
    multicast: Option<MulticastProxy>,
    pub(super) facilities: Option<Box<Facilities>>,
    /// Security entity; `None`: the station sends and accepts unsecured packets.
    pub(super) secured: Option<Secured>,
    /// Gate of congestion control; `None`: packets go to the link at once.
    congestion: Option<Box<Congestion>>,
    /// Areas that operators have set at run time.
    pub(super) destinations: GeoDestinations,
    /// Reordering buffer of packets for hosts; `None` without reordering.
    in_order: Option<ReorderingBuffer<Output>>,
    /// Delays duplicate acknowledgements of hosts while packets are missing; `None` if the config does not
    /// ask for it.
    patience: Option<DuplicateAckDelay<VirtualFrame>>,
    /// GN address at the start; the router's address may have changed since (10.2.1.5).
    address: GnAddress,
    echo_replies: RateLimiter,
    station_messages: StationMessages,
    pub(super) outputs: VecDeque<Output>,
}

impl Geonet {
    /// Creates the plane. The outputs of the start wait in its queue.
    pub fn new(settings: GeonetSettings, address: GnAddress, rng: Rng) -> Geonet {
        let GeonetSettings { mib, ipv6, multicast, facilities, dcc, .. } = settings;
        // Take the seed from a copy of the generator: the further random numbers stay the same, so that older
        // recordings can be replayed.
        let seed = !rng.clone().u64();
        let reorder = ipv6.as_ref().filter(|config| config.reorder_wait > Duration::ZERO);
        let reorder = reorder.map(|config| (config.reorder_hold, config.reorder_rule, config.reorder_wait));
        let mut geonet = Geonet {
            address,
            router: Router::new(mib, address, rng),
            multicast: multicast.map(MulticastProxy::new),
            facilities: facilities.map(|settings| Box::new(Facilities::new(settings, address, seed))),
            in_order: reorder
                .filter(|(hold, ..)| *hold == ReorderHold::Packets)
                .map(|(_, rule, wait)| ReorderingBuffer::new(rule, wait)),
            patience: reorder
                .filter(|(hold, ..)| *hold == ReorderHold::Acknowledgements)
                .map(|(_, rule, wait)| DuplicateAckDelay::new(rule, wait)),
            ipv6: ipv6.map(|config| Adaptation::new(config, address)),
            secured: None,
            congestion: dcc.map(|config| Box::new(Congestion::new(config, address))),
            destinations: GeoDestinations::default(),
            echo_replies: RateLimiter::new(100, Duration::from_millis(10)),
            station_messages: StationMessages::default(),
            outputs: VecDeque::new(),
        };
        geonet.collect_ipv6();
        geonet
    }

    /// Returns the router.
    pub fn router(&self) -> &Router {
        &self.router
    }

    /// Returns the number of packets for hosts that waited for earlier packets, and of packets that came
    /// after later ones; `None` without a reordering buffer.
    pub fn reordered(&self) -> Option<(u64, u64)> {
        self.in_order.as_ref().map(|in_order| (in_order.held_packets, in_order.late_packets))
    }

    /// Returns the number of delayed acknowledgements of hosts, and how many of them the station never sent;
    /// `None` if the config does not delay acknowledgements.
    pub fn acknowledgements(&self) -> Option<(u64, u64)> {
        self.patience.as_ref().map(|patience| (patience.held_acks, patience.suppressed_acks))
    }

    /// Returns the adaptation sublayer of IPv6 over GeoNetworking, if the plane has it.
    pub fn ipv6(&self) -> Option<&Adaptation> {
        self.ipv6.as_ref()
    }

    /// Returns when [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let ipv6 = self.ipv6.as_ref().and_then(Adaptation::poll_timeout);
        let in_order = self.in_order.as_ref().and_then(ReorderingBuffer::poll_timeout);
        let patience = self.patience.as_ref().and_then(DuplicateAckDelay::poll_timeout);
        let destinations = self.destinations.poll_timeout();
        let multicast = self.multicast.as_ref().and_then(MulticastProxy::poll_timeout);
        self.router
            .poll_timeout()
            .into_iter()
            .chain(ipv6)
            .chain(in_order)
            .chain(patience)
            .chain(destinations)
            .chain(multicast)
            .chain(self.facilities.as_ref().and_then(|facilities| facilities.poll_timeout()))
            .chain(self.secured.as_ref().and_then(Secured::poll_timeout))
            .chain(self.congestion.as_ref().and_then(|congestion| congestion.poll_timeout()))
            .min()
    }

    /// Returns the next output; the caller calls this until it returns `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        pop_and_shrink(&mut self.outputs)
    }

    /// Takes back the buffer of an executed [`Output::Frame`] or [`Output::Ipv6`].
    pub fn recycle(&mut self, octets: Vec<u8>) {
        self.router.recycle(octets);
    }

    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        if let Some(congestion) = &mut self.congestion {
            let warning = congestion.handle_timeout(now, self.facilities.as_mut());
            self.outputs.extend(warning.map(Output::Warning));
        }
        self.router.handle_timeout(now);
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.handle_timeout(now);
        }
        if let Some(in_order) = &mut self.in_order {
            in_order.handle_timeout(now, &mut |output| self.outputs.push_back(output));
        }
        if let Some(multicast) = &mut self.multicast {
            multicast.handle_timeout(now);
        }
        if let Some(facilities) = &mut self.facilities {
            facilities.handle_timeout(now);
        }
        multicast::collect_multicast(self.multicast.as_mut(), &mut self.outputs);
        self.collect(now);
        self.take_verified(now);
        self.lose_patience(now);
        self.follow(now);
        self.sender().open_gate(now);
    }

    /// Handles a frame of EtherType 0x8947.
    pub fn handle_frame(&mut self, now: Time, frame: ReceivedFrame<'_>) {
        match self.secured {
            None => self.route_frame(now, frame),
            Some(_) => self.handle_secured_frame(now, frame),
        }
    }

    /// Passes a frame to the router. If the station has a security entity, the entity validates the frame
    /// first.
    fn route_frame(&mut self, now: Time, frame: ReceivedFrame<'_>) {
        if let Some(congestion) = &mut self.congestion {
            congestion.overhear_copy(frame.packet);
        }
        // The router counts the frames that it drops.
        let _counted = self.router.handle_frame(now, frame);
        self.collect(now);
    }

    /// Handles a frame that this station sent to one other station, which did not acknowledge it.
    pub fn handle_unacknowledged(&mut self, now: Time, destination: MacAddress, packet: &[u8]) {
        let packet = self.as_routed(packet);
        let _counted = self.router.handle_unacknowledged(now, destination, &packet);
        self.collect(now);
    }

    /// Returns a packet of the link without its envelope, as the router has sent the packet. A packet without
    /// an envelope stays unchanged.
    fn as_routed<'a>(&self, packet: &'a [u8]) -> Cow<'a, [u8]> {
        if self.secured.is_some() { opened(packet) } else { Cow::Borrowed(packet) }
    }

    /// Handles the present position of the station.
    pub fn handle_position(&mut self, now: Time, position: Position) {
        if let Some(secured) = &mut self.secured {
            secured.handle_position(&position);
        }
        let vector = position.vector(self.router.address());
        let _counted = self.router.handle_position(now, vector);
        if let Some(facilities) = &mut self.facilities {
            facilities.handle_position(now, position, self.router.address());
        }
        self.collect(now);
        self.look_at_pseudonym(now);
    }

    /// Changes the station's GN address (10.2.1.3).
    pub fn handle_address(&mut self, now: Time, address: GnAddress) {
        self.address = address;
        self.router.handle_address(address);
        self.collect(now);
    }

    /// Resets the router to its state after a start.
    pub fn handle_reset(&mut self, now: Time) {
        self.router.reset(now, self.address);
        self.destinations.clear();
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.reset();
        }
        if let Some(in_order) = &mut self.in_order {
            in_order.clear(&mut |output| self.outputs.push_back(output));
        }
        if let Some(patience) = &mut self.patience {
            // Drop the delayed acknowledgements: TCP repeats them by its own timers.
            patience.clear(&mut drop);
        }
        if let Some(congestion) = &mut self.congestion {
            congestion.reset();
        }
        self.collect(now);
    }

    /// Returns the congestion gate in front of the radio, if the station has one.
    pub fn gate(&self) -> Option<&Gate<Held>> {
        self.congestion.as_ref().map(|congestion| congestion.gate())
    }

    /// Handles a report of the channel load, in thousandths.
    ///
    /// # Errors
    ///
    /// Returns an error if the load is above 1000, or if the station has no gate.
    pub fn handle_channel_busy(&mut self, now: Time, thousandths: u16) -> Result<(), String> {
        self.congestion.as_mut().ok_or(NO_DCC)?.handle_channel_busy(now, thousandths)
    }

    /// Returns the parts of the plane by which a packet leaves the station.
    fn sender(&mut self) -> Sender<'_> {
        Sender {
            congestion: self.congestion.as_deref_mut(),
            secured: self.secured.as_mut(),
            router: &mut self.router,
            outputs: &mut self.outputs,
        }
    }

    /// Sets the source from which the router and the fast path draw sequence numbers.
    pub fn share_sequence_numbers(&mut self, numbers: Box<dyn SequenceNumbers>) {
        self.router.share_sequence_numbers(numbers);
    }

    /// Starts the use of a fast path if `is` is true and the station can use one; ends it otherwise.
    pub fn handle_fast_path(&mut self, now: Time, is: bool) {
        // A fast path cannot hold or mark the host's packets, sign packets, or wait for a congestion gate. So
        // a station with one of these functions has no fast path.
        if is
            && self.secured.is_none()
            && self.congestion.is_none()
            && self.patience.is_none()
            && !self.ipv6.as_ref().is_some_and(|ipv6| ipv6.marks())
        {
            let hop_limit = self.ipv6.as_ref().and_then(|ipv6| ipv6.hop_limit());
            self.router.accelerate(hop_limit);
        } else {
            self.router.decelerate();
        }
        self.collect(now);
    }

    /// Handles a report of the fast path about its packets.
    pub fn handle_report(&mut self, now: Time, report: &FastPathReport) {
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.count_accelerated(report.sent, report.delivered);
        }
        self.router.handle_report(now, report);
        self.collect(now);
    }

    /// Starts or ends the queue of [`Self::poll_station_message`]. Packets in this queue do not go to the
    /// host.
    pub fn listen_to_stations(&mut self, listen: bool) {
        self.station_messages.listen(listen);
    }

    /// Returns the next message about neighbouring mobile networks.
    pub fn poll_station_message(&mut self) -> Option<StationMessage> {
        self.station_messages.poll()
    }

    /// Sends an IPv6 packet to all stations within `hops` hops.
    pub fn announce(&mut self, now: Time, hops: u8, packet: &[u8]) {
        let _counted = self.router.handle_request(now, stations::announcement(hops, packet));
        self.collect(now);
    }

    /// Sends an IPv6 packet to one station.
    pub fn send_straight(&mut self, now: Time, hops: u8, station: MacAddress, packet: &[u8]) {
        let _counted = self.router.handle_request(now, stations::unicast(hops, station, packet));
        self.collect(now);
    }

    /// Removes from the router the packets that wait for a station, and returns them.
    pub fn take_back(&mut self, station: MacAddress) -> Vec<Vec<u8>> {
        self.router.take_back(station)
    }

    /// Returns the IPv6 packet of an unacknowledged frame if `wanted` returns true for it, so that it takes
    /// another route. Otherwise returns `None`, and the caller passes the frame to
    /// [`Self::handle_unacknowledged`].
    pub fn take_back_unacknowledged(
        &mut self,
        now: Time,
        station: MacAddress,
        octets: &[u8],
        wanted: impl FnOnce(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        let packet = self.as_routed(octets);
        self.router.take_back_unacknowledged(now, station, &packet, wanted)
    }

    /// Removes expired areas, and searches for the stations in the centres of areas if necessary.
    pub(crate) fn follow(&mut self, now: Time) {
        self.destinations.handle_timeout(now, &mut self.router);
        self.tell_groups(now);
        self.collect(now);
    }

    /// Passes the area of each multicast group to the IPv6 adaptation.
    pub(crate) fn tell_groups(&mut self, now: Time) {
        areas::update_groups(now, &self.router, &self.destinations, self.ipv6.as_mut());
    }

    /// Sends a payload over GeoNetworking.
    ///
    /// # Errors
    /// Returns the reason of a refusal, in words for the operator.
    pub fn handle_request(&mut self, now: Time, request: &GeonetRequest) -> Result<(), String> {
        if let Some(secured) = &mut self.secured {
            secured.check_own(now, next_header(request.next_header), &request.payload)?;
        }
        let result = self.router.handle_request(now, request.request());
        self.collect(now);
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

    /// Carries out the outputs of the router, then those of the services.
    pub(super) fn collect(&mut self, now: Time) {
        self.collect_router(now);
        self.speak(now);
    }

    fn collect_router(&mut self, now: Time) {
        let mut answers = Vec::new();
        if let Some(congestion) = &mut self.congestion {
            congestion.handle_address(self.router.address());
        }
        while let Some(output) = self.router.poll_output() {
            match output {
                Routed::Transmit(transmission) => self.sender().transmit(now, transmission),
                Routed::Deliver(delivery) => {
                    if let Some(delivery) = self.deliver_ipv6(now, delivery) {
                        self.hear(now, &delivery);
                        answers.extend(self.deliver(now, delivery.into()));
                    }
                }
                Routed::Accelerate(told) => {
                    let may_deliver = self.in_order.is_none() && self.patience.is_none();
                    let told = accelerate(told, &self.router, self.ipv6.as_ref(), may_deliver);
                    self.outputs.push_back(Output::Accelerate(told));
                }
                Routed::Event(event) => {
                    self.station_messages.handle_event(&event);
                    self.outputs.extend(event_output(event));
                }
            }
        }
        self.collect_ipv6();
        // The router may take a new request only after its outputs have been executed.
        for answer in answers {
            let _counted = self.router.handle_request(now, answer.request());
            self.collect_router(now);
        }
        self.send_fragments(now);
    }

    /// Passes a payload to its receiver. If the payload is an echo request, returns the answer to send.
    fn deliver(&mut self, now: Time, delivered: Delivered) -> Option<GeonetRequest> {
        if delivered.next_header == echo::NEXT_HEADER
            && let Some(request) = Echo::parse(&delivered.payload).filter(|echo| !echo.is_reply)
        {
            let hops = hops(&delivered);
            return self.echo_replies.allow(now).then(|| GeonetRequest {
                transport: GeonetTransport::GeoUnicast(delivered.source),
                next_header: echo::NEXT_HEADER,
                store_carry_forward: false,
                traffic_class: 0,
                lifetime_ms: None,
                hop_limit: None,
                payload: Echo { is_reply: true, hops, ..request }.emit(),
            });
        }
        self.outputs.push_back(Output::Delivered(delivered));
        None
    }
}

/// Returns the number of hops that a delivered packet took; 1 means that it came from a neighbour.
pub fn hops(delivered: &Delivered) -> u8 {
    delivered.maximum_hop_limit.saturating_sub(delivered.remaining_hop_limit).saturating_add(1)
}

fn event_output(event: carnet_geonet::Event) -> Option<Output> {
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
