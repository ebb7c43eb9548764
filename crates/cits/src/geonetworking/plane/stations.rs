//! Messages of neighbouring mobile routers and of access routers, which the station passes to NEMO.

use std::collections::VecDeque;
use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::ipv6_adaptation::addresses;
use carnet_geonet::{Delivery, MacAddress, Request, Transport};
use carnet_wire::geonet::{CommonNextHeader, GnAddress, StationType};
use carnet_wire::ipv6::{Header, protocol};
use carnet_wire::nd::{self, NdOption, RouterAdvertisement};

use super::Geonet;

/// Largest length of the queue; the station empties the queue after each frame.
const MOST_MESSAGES: usize = 64;

/// A message of another station that matters for routes to neighbouring mobile networks.
#[derive(Debug)]
pub enum StationMessage {
    /// A station came into range.
    Neighbour {
        /// Whether the station is a roadside unit.
        roadside: bool,
    },
    /// An IPv6 packet, and the station that sent it: an announcement of prefixes, a test of a prefix, or a
    /// Router Advertisement.
    Packet(MacAddress, Vec<u8>),
}

impl Geonet {
    /// Starts or ends the queue of [`Self::poll_station_message`]. Packets in this queue do not go to the
    /// host.
    pub fn listen_to_stations(&mut self, listen: bool) {
        self.station_messages = listen.then(VecDeque::new);
    }

    /// Returns the next message of the queue.
    pub fn poll_station_message(&mut self) -> Option<StationMessage> {
        self.station_messages.as_mut().and_then(VecDeque::pop_front)
    }

    pub(super) fn overhear(&mut self, event: &carnet_geonet::Event) {
        let (carnet_geonet::Event::NewNeighbour(address), Some(heard)) = (event, &mut self.station_messages)
        else {
            return;
        };
        if heard.len() < MOST_MESSAGES {
            let roadside = address.station_type() == StationType::RoadSideUnit;
            heard.push_back(StationMessage::Neighbour { roadside });
        }
    }

    /// Queues a message of a neighbouring mobile router; the sublayer has checked its source address. Returns
    /// `true` if the host does not need the message.
    pub(super) fn concerns_stations(&mut self, delivery: &Delivery) -> bool {
        let Some(heard) = self.station_messages.as_mut().filter(|heard| heard.len() < MOST_MESSAGES) else {
            return false;
        };
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
        heard.push_back(StationMessage::Packet(station, delivery.payload.clone()));
        !keep
    }

    /// Sends an IPv6 packet to all stations within `hops` hops.
    pub fn announce(&mut self, now: Time, hops: u8, packet: &[u8]) {
        let transport = if hops > 1 { Transport::TopologicallyScoped } else { Transport::SingleHop([0; 4]) };
        let request = Request::new(transport, CommonNextHeader::Ipv6, packet);
        let _counted = self.router.handle_request(now, Request { maximum_hop_limit: Some(hops), ..request });
        self.collect(now);
    }

    /// Sends an IPv6 packet to one station.
    pub fn send_straight(&mut self, now: Time, hops: u8, station: MacAddress, packet: &[u8]) {
        let to = GnAddress::new(false, StationType::Unknown, station);
        let request = Request::new(Transport::GeoUnicast(to), CommonNextHeader::Ipv6, packet);
        // The packet has a short lifetime: an answer that arrives after the other station has repeated its
        // question is useless.
        let request = Request {
            maximum_hop_limit: Some(hops),
            maximum_lifetime: Some(Duration::from_secs(1)),
            ..request
        };
        let _counted = self.router.handle_request(now, request);
        self.collect(now);
    }

    /// Removes from the router the packets that wait for a station, and returns them.
    pub fn take_back(&mut self, station: MacAddress) -> Vec<Vec<u8>> {
        self.router.take_back(station)
    }

    /// Returns the IPv6 packet of an unacknowledged frame, if the packet is to take another route.
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
}
