//! Neighbours and their messages, passed from GeoNetworking to [`carnet_mobility::mnpp`].
//!
//! Neighbours are those of the location table. If the positions of both stations are accurate, dead reckoning
//! predicts when a neighbour comes into range and when it leaves the range. The range is
//! `itsGnDefaultMaxCommunicationRange`. The module leaves a small part of the range unused, so that the route
//! changes while the neighbour is still reachable.

use std::collections::VecDeque;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::approach::distance_in;
use carnet_geonet::ipv6_adaptation::addresses;
use carnet_geonet::location_table::mac_key;
use carnet_geonet::{Delivery, MacAddress, Request, Router, Transport};
use carnet_mobility::mnpp::{Sight, Surroundings};
use carnet_wire::geonet::{CommonNextHeader, GnAddress, LongPositionVector, StationType};
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wire::nd::{self, NdOption, RouterAdvertisement};

use super::Geonet;

/// A station counts as leaving if within [`LEAVING`] it will be further away than this share of the range.
const EDGE: f64 = 0.95;
const LEAVING: Duration = Duration::from_secs(1);
/// A station counts as staying if it is nearer than this share of the range, now and after [`STAYING`].
const INSIDE: f64 = 0.9;
const STAYING: Duration = Duration::from_secs(2);
/// Largest length of the queue; the station empties the queue after each frame.
const HEARD: usize = 64;

/// An event that matters for routes to neighbouring mobile networks.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A station came into range; `roadside` says whether the station is a roadside unit.
    Neighbour { roadside: bool },
    /// An IPv6 packet and the station that sent it: an announcement, a test of a prefix, or a Router
    /// Advertisement.
    Packet(MacAddress, Vec<u8>),
}

/// The stations in range, taken from the router's location table.
#[derive(Debug)]
pub(crate) struct Around<'a>(pub(crate) &'a Router);

impl Surroundings for Around<'_> {
    fn sight(&self, now: Time, station: MacAddress) -> Option<Sight> {
        let Around(router) = self;
        let table = router.location_table();
        let entry = table.entry(table.find(now, mac_key(station))?);
        let near = entry.is_neighbour();
        let unknown = Sight { heard: entry.heard(), near, stays: near, leaves: false };
        let accurate = |vector: &&LongPositionVector| vector.accurate;
        let own = router.position_vector().filter(accurate);
        let Some((own, other)) = own.zip(Some(entry.position_vector()).filter(accurate)) else {
            return Some(unknown);
        };
        let range = router.mib().max_communication_range;
        let (at_once, soon, later) = (
            distance_in(own, other, Duration::ZERO),
            distance_in(own, other, LEAVING),
            distance_in(own, other, STAYING),
        );
        let stays = near && at_once.max(later) <= INSIDE * range;
        Some(Sight { stays, leaves: at_once.max(soon) > EDGE * range, ..unknown })
    }

    fn link_local(&self, station: MacAddress) -> Ipv6Addr {
        addresses::link_local(station)
    }

    fn has_neighbours(&self) -> bool {
        self.0.location_table().neighbours() > 0
    }
}

impl Around<'_> {
    /// Returns the distance of a station in metres; infinite if its position is unknown.
    pub(crate) fn distance(&self, now: Time, station: MacAddress) -> f64 {
        let Around(router) = self;
        let table = router.location_table();
        let other = table.find(now, mac_key(station)).map(|slot| table.entry(slot).position_vector());
        let both = router.position_vector().zip(other);
        both.map_or(f64::INFINITY, |(own, other)| distance_in(own, other, Duration::ZERO))
    }
}

impl Geonet {
    /// Starts or ends the queue of [`Self::poll_heard`]. Packets in this queue do not go to the host.
    pub(crate) fn listen_to_neighbours(&mut self, listen: bool) {
        self.heard = listen.then(VecDeque::new);
    }

    pub(crate) fn poll_heard(&mut self) -> Option<Heard> {
        self.heard.as_mut().and_then(VecDeque::pop_front)
    }

    pub(super) fn overhear(&mut self, event: &carnet_geonet::Event) {
        let (carnet_geonet::Event::NewNeighbour(address), Some(heard)) = (event, &mut self.heard) else {
            return;
        };
        if heard.len() < HEARD {
            let roadside = address.station_type() == StationType::RoadSideUnit;
            heard.push_back(Heard::Neighbour { roadside });
        }
    }

    /// Queues a message of a neighbouring mobile router; the sublayer has checked its source address. Returns
    /// `true` if the host does not need the message.
    pub(super) fn concerns_neighbours(&mut self, delivery: &Delivery) -> bool {
        let Some(heard) = self.heard.as_mut().filter(|heard| heard.len() < HEARD) else { return false };
        let Ok((header, message)) = Header::parse_packet(&delivery.payload) else { return false };
        let station = delivery.source.address.mid();
        if header.source != addresses::link_local(station) {
            return false;
        }
        let own = addresses::link_local(self.router.address().mid());
        let keep = match header.next_header {
            protocol::MOBILITY => header.destination != own,
            protocol::ICMPV6 => match RouterAdvertisement::parse(message) {
                Ok(advertisement) if nd::check_header(&header, message).is_ok() => {
                    let prefix = |option: &NdOption<'_>| matches!(option, NdOption::PrefixInformation(_));
                    advertisement.router_lifetime > 0 || advertisement.options().any(|it| prefix(&it))
                }
                _ => return false,
            },
            _ => return false,
        };
        if header.next_header == protocol::MOBILITY && keep {
            return false;
        }
        heard.push_back(Heard::Packet(station, delivery.payload.clone()));
        !keep
    }

    /// Sends an IPv6 packet to all stations within `hops` hops.
    pub(crate) fn announce(&mut self, now: Time, hops: u8, packet: &[u8]) {
        let transport = if hops > 1 { Transport::TopologicallyScoped } else { Transport::SingleHop([0; 4]) };
        let request = Request::new(transport, CommonNextHeader::Ipv6, packet);
        let _counted = self.router.handle_request(now, Request { maximum_hop_limit: Some(hops), ..request });
        self.collect(now);
    }

    /// Sends an IPv6 packet to one station.
    pub(crate) fn send_straight(&mut self, now: Time, hops: u8, station: MacAddress, packet: &[u8]) {
        let to = GnAddress::new(false, StationType::Unknown, station);
        let request = Request::new(Transport::GeoUnicast(to), CommonNextHeader::Ipv6, packet);
        // The packet has a short lifetime: when the other station repeats its question, the answer to the
        // first question is useless.
        let request = Request {
            maximum_hop_limit: Some(hops),
            maximum_lifetime: Some(Duration::from_secs(1)),
            ..request
        };
        let _counted = self.router.handle_request(now, request);
        self.collect(now);
    }

    /// Removes the packets that still wait for a station from the router, and returns them.
    pub(crate) fn take_back(&mut self, station: MacAddress) -> Vec<Vec<u8>> {
        self.router.take_back(station)
    }

    /// Returns the IPv6 packet of an unacknowledged frame, if the packet is to take another route.
    pub(crate) fn take_back_unacknowledged(
        &mut self,
        now: Time,
        station: MacAddress,
        octets: &[u8],
        wanted: impl FnOnce(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        let packet = self.as_routed(octets);
        self.router.take_back_unacknowledged(now, station, &packet, wanted)
    }
}

/// Returns the destination of an IPv6 packet; `None` if its header is not complete.
pub(crate) fn destination_of(packet: &[u8]) -> Option<Ipv6Addr> {
    let octets: [u8; 16] = packet.get(HEADER_LEN - 16..HEADER_LEN)?.try_into().ok()?;
    Some(octets.into())
}
