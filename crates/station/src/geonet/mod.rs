//! GeoNetworking in a station: the router of `carnet_geonet`, the echo of `carnet gnping`, and the messages
//! of neighbouring mobile routers.

mod areas;
pub mod dcc;
pub mod echo;
pub mod facilities;
mod fast_path;
mod ipv6;
mod multicast;
pub(crate) mod neighbours;
pub mod security;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use carnet_base::{RateLimiter, Rng, Time, next_of, parts};
use carnet_geonet::geo_destinations::GeoDestinations;
use carnet_geonet::ipv6_adaptation::in_order::InOrder;
use carnet_geonet::ipv6_adaptation::patience::Patience;
use carnet_geonet::ipv6_adaptation::{Adaptation, Hold, Ipv6Config};
use carnet_geonet::multicast::{MulticastConfig, MulticastProxy};
use carnet_geonet::{GeonetDrop, MacAddress, Mib, Output as Routed, ReceivedFrame, Router};
use carnet_wire::geonet::GnAddress;

pub use self::areas::GeoDestination;
use self::dcc::Congestion;
use self::echo::Echo;
use self::facilities::{Facilities, FacilitiesSettings};
use self::neighbours::Heard;
use self::security::Secured;
use crate::geonet_io::{Delivered, GeonetRequest, GeonetTransport, Position, VirtualFrame, next_header};
use crate::io::{Event, Output};

/// Error for a request about facility messages if the station has no facilities.
const NO_FACILITIES: &str = "this station has no facilities: there is no [facilities] in its config";

/// Settings of a station's GeoNetworking router.
#[derive(Debug, Clone)]
pub struct GeonetSettings {
    /// Parameters of the GeoNetworking router.
    pub mib: Mib,
    /// GN address of the station; its MID is the link-layer address. `None` if the address is not known yet:
    /// [`crate::io::Input::GeonetAddress`] will set it.
    pub address: Option<GnAddress>,
    /// Settings of IPv6 over GeoNetworking; `None` without it.
    pub ipv6: Option<Ipv6Config>,
    /// Settings of multicast forwarding between the mobile network and IPv6 over GeoNetworking; `None`
    /// without it.
    pub multicast: Option<MulticastConfig>,
    /// Settings of the facilities above the router; `None` without them.
    pub facilities: Option<FacilitiesSettings>,
    /// Settings of the congestion gate in front of the radio; `None`: packets go to the link at once.
    pub dcc: Option<carnet_geonet::dcc::Config>,
}

/// The GeoNetworking part of a station.
#[derive(Debug)]
pub(crate) struct Geonet {
    /// Proof that this program is built with the GeoNetworking part.
    _part: parts::Geonet,
    router: Router,
    ipv6: Option<Adaptation>,
    multicast: Option<MulticastProxy>,
    facilities: Option<Box<Facilities>>,
    /// Security entity; `None`: the station sends and accepts unsecured packets.
    secured: Option<Secured>,
    /// Gate of congestion control; `None`: packets go to the link at once.
    congestion: Option<Box<Congestion>>,
    /// Areas that operators have set at run time.
    destinations: GeoDestinations,
    /// Reordering buffer of packets for hosts; `None` without reordering.
    in_order: Option<InOrder<Output>>,
    /// Holds duplicate acknowledgements of hosts while packets are missing; `None` without holding.
    patience: Option<Patience<VirtualFrame>>,
    /// GN address at the start; the router's address may have changed since (10.2.1.5).
    address: GnAddress,
    echo_replies: RateLimiter,
    /// Queue of messages for routes to neighbouring mobile networks; `None` if the station uses no such
    /// routes.
    heard: Option<VecDeque<Heard>>,
    outputs: VecDeque<Output>,
}

impl Geonet {
    /// Returns the GeoNetworking part, if the station has it. The function matches the concrete type, unlike
    /// `Option::as_ref`. So in a program that is built without this part, the compiler knows that the result
    /// is `None`.
    #[allow(clippy::match_as_ref)]
    pub(crate) fn of(geonet: &Option<Geonet>) -> Option<&Geonet> {
        match geonet {
            Some(geonet) => Some(geonet),
            None => None,
        }
    }

    /// Returns the GeoNetworking part for changes, if the station has it.
    #[allow(clippy::match_as_ref)]
    pub(crate) fn of_mut(geonet: &mut Option<Geonet>) -> Option<&mut Geonet> {
        match geonet {
            Some(geonet) => Some(geonet),
            None => None,
        }
    }

    pub(crate) fn new(part: parts::Geonet, settings: GeonetSettings, address: GnAddress, rng: Rng) -> Geonet {
        let GeonetSettings { mib, ipv6, multicast, facilities, dcc, .. } = settings;
        // The seed comes from a copy of the generator, so that older recordings replay with the same random
        // numbers.
        let seed = !rng.clone().u64();
        let reorder = ipv6.as_ref().filter(|config| config.reorder_wait > Duration::ZERO);
        let reorder = reorder.map(|config| (config.reorder_hold, config.reorder_rule, config.reorder_wait));
        let mut geonet = Geonet {
            _part: part,
            address,
            router: Router::new(mib, address, rng),
            multicast: multicast.map(MulticastProxy::new),
            facilities: facilities.map(|settings| Box::new(Facilities::new(settings, address, seed))),
            in_order: reorder
                .filter(|(hold, ..)| *hold == Hold::Packets)
                .map(|(_, rule, wait)| InOrder::new(rule, wait)),
            patience: reorder
                .filter(|(hold, ..)| *hold == Hold::Acknowledgements)
                .map(|(_, rule, wait)| Patience::new(rule, wait)),
            ipv6: ipv6.map(|config| Adaptation::new(config, address)),
            secured: None,
            congestion: dcc.map(|config| Box::new(Congestion::new(config, address))),
            destinations: GeoDestinations::default(),
            echo_replies: RateLimiter::new(100, Duration::from_millis(10)),
            heard: None,
            outputs: VecDeque::new(),
        };
        geonet.collect_ipv6();
        geonet
    }

    pub(crate) fn router(&self) -> &Router {
        &self.router
    }

    /// Returns the number of packets for hosts that waited for earlier packets, and the number of packets
    /// that came too late.
    pub(crate) fn reordered(&self) -> Option<(u64, u64)> {
        self.in_order.as_ref().map(|in_order| (in_order.held, in_order.late))
    }

    /// Returns the number of acknowledgements of hosts that the station held, and the number of those that it
    /// never sent.
    pub(crate) fn acknowledgements(&self) -> Option<(u64, u64)> {
        self.patience.as_ref().map(|patience| (patience.held, patience.spared))
    }

    pub(crate) fn ipv6(&self) -> Option<&Adaptation> {
        self.ipv6.as_ref()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let ipv6 = self.ipv6.as_ref().and_then(Adaptation::poll_timeout);
        let in_order = self.in_order.as_ref().and_then(InOrder::poll_timeout);
        let patience = self.patience.as_ref().and_then(Patience::poll_timeout);
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

    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        next_of(&mut self.outputs)
    }

    pub(crate) fn recycle(&mut self, octets: Vec<u8>) {
        self.router.recycle(octets);
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.look_at_channel(now);
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
        self.collect_multicast();
        self.collect(now);
        self.take_verified(now);
        self.lose_patience(now);
        self.follow(now);
        self.open_gate(now);
    }

    pub(crate) fn handle_frame(&mut self, now: Time, frame: ReceivedFrame<'_>) {
        match self.secured {
            None => self.route_frame(now, frame),
            Some(_) => self.handle_secured_frame(now, frame),
        }
    }

    /// Passes a frame to the router. If the station has a security entity, the entity validates the frame
    /// first.
    fn route_frame(&mut self, now: Time, frame: ReceivedFrame<'_>) {
        self.overhear_copy(frame.packet);
        // The router counts the frames that it drops.
        let _counted = self.router.handle_frame(now, frame);
        self.collect(now);
    }

    pub(crate) fn handle_unacknowledged(&mut self, now: Time, destination: MacAddress, packet: &[u8]) {
        let packet = self.as_routed(packet);
        let _counted = self.router.handle_unacknowledged(now, destination, &packet);
        self.collect(now);
    }

    /// Returns a packet from the link in the form that the router has sent: without the envelope.
    fn as_routed<'a>(&self, packet: &'a [u8]) -> Cow<'a, [u8]> {
        if self.secured.is_some() { security::opened(packet) } else { Cow::Borrowed(packet) }
    }

    pub(crate) fn handle_position(&mut self, now: Time, position: Position) {
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
    pub(crate) fn handle_address(&mut self, now: Time, address: GnAddress) {
        self.address = address;
        self.router.handle_address(address);
        self.collect(now);
    }

    /// Resets the router to its state after a start.
    pub(crate) fn handle_reset(&mut self, now: Time) {
        self.router.reset(now, self.address);
        self.destinations.clear();
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.reset();
        }
        if let Some(in_order) = &mut self.in_order {
            in_order.clear(&mut |output| self.outputs.push_back(output));
        }
        if let Some(patience) = &mut self.patience {
            // The station drops the held acknowledgements, because TCP has timers of its own.
            patience.clear(&mut drop);
        }
        if let Some(congestion) = &mut self.congestion {
            congestion.reset();
        }
        self.collect(now);
    }

    /// Sends a payload over GeoNetworking.
    ///
    /// # Errors
    /// Returns the reason of a refusal, in words for the operator.
    pub(crate) fn handle_request(&mut self, now: Time, request: &GeonetRequest) -> Result<(), String> {
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

    /// Executes the outputs of the router, and then those of the services.
    fn collect(&mut self, now: Time) {
        self.collect_router(now);
        self.speak(now);
    }

    fn collect_router(&mut self, now: Time) {
        let mut answers = Vec::new();
        self.follow_address();
        while let Some(output) = self.router.poll_output() {
            match output {
                Routed::Transmit(transmission) => self.transmit(now, transmission),
                Routed::Deliver(delivery) => {
                    if let Some(delivery) = self.deliver_ipv6(now, delivery) {
                        self.hear(now, &delivery);
                        answers.extend(self.deliver(now, delivery.into()));
                    }
                }
                Routed::Accelerate(told) => self.outputs.push_back(Output::Accelerate(self.accelerate(told))),
                Routed::Event(event) => {
                    self.overhear(&event);
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

/// Returns the number of hops that a delivered packet took: 1 if it came from a neighbour.
pub fn hops(delivered: &Delivered) -> u8 {
    delivered.maximum_hop_limit.saturating_sub(delivered.remaining_hop_limit).saturating_add(1)
}

fn event_output(event: carnet_geonet::Event) -> Option<Output> {
    let message = match event {
        // Neighbours change often, so they are no events for operators; `carnet show neighbours` lists them.
        carnet_geonet::Event::NewNeighbour(_) => return None,
        carnet_geonet::Event::AddressConflict { address, replacement } if address == replacement => {
            format!("another station uses this station's GN address {address}")
        }
        carnet_geonet::Event::AddressConflict { address, replacement } => {
            format!("another station uses the GN address {address}; this station is {replacement} now")
        }
        carnet_geonet::Event::PacketDataRate { source, limit } => format!(
            "packets of {source} are not forwarded: more than geonet.mib.max_packet_data_rate = {} allows \
             (kilobytes per second; IPv6 has four fifths of it, 0 is no limit)",
            limit / 1000
        ),
        carnet_geonet::Event::LocationUnknown(address) => {
            format!("nobody knows where the station {address} is")
        }
    };
    Some(Output::Event(Event::Warning { message }))
}
