//! Messages of neighbouring mobile routers and of access routers, which the station passes to its routes to
//! neighbouring mobile networks.

use std::collections::VecDeque;
use std::time::Duration;

use carnet_geonet::ipv6_adaptation::addresses;
use carnet_geonet::{Delivery, MacAddress, Request, Transport};
use carnet_wire::geonet::{CommonNextHeader, GnAddress, StationType};
use carnet_wire::ipv6::{Header, protocol};
use carnet_wire::nd::{self, NdOption, RouterAdvertisement};

/// Largest number of queued messages; the station empties the queue after each frame.
const MAX_QUEUED_MESSAGES: usize = 64;

/// A message of another station that matters for routes to neighbouring mobile networks.
#[derive(Debug)]
pub enum StationMessage {
    /// A station came into range.
    Neighbour {
        /// Whether the station is a roadside unit.
        roadside: bool,
    },
    /// An IPv6 packet, and the link-layer address of the station that sent it. The packet is an announcement
    /// of prefixes, a test of a prefix, or a Router Advertisement.
    Packet(MacAddress, Vec<u8>),
}

/// Queue of received messages about neighbouring mobile networks; `None` if the station has no routes to
/// them.
#[derive(Debug, Default)]
pub(super) struct StationMessages(Option<VecDeque<StationMessage>>);

impl StationMessages {
    /// Starts or ends the queue.
    pub(super) fn set_listening(&mut self, listen: bool) {
        self.0 = listen.then(VecDeque::new);
    }

    /// Returns the next message of the queue.
    pub(super) fn poll_message(&mut self) -> Option<StationMessage> {
        self.0.as_mut().and_then(VecDeque::pop_front)
    }

    /// Queues a message for each station that comes into range.
    pub(super) fn handle_event(&mut self, event: &carnet_geonet::Event) {
        let (carnet_geonet::Event::NewNeighbour(address), Some(heard)) = (event, &mut self.0) else {
            return;
        };
        if heard.len() < MAX_QUEUED_MESSAGES {
            let roadside = address.station_type() == StationType::RoadSideUnit;
            heard.push_back(StationMessage::Neighbour { roadside });
        }
    }

    /// Queues a message of a neighbouring mobile router; the sublayer has checked its source address. `own`
    /// is this station's GN address. Returns `true` if the host does not need the message.
    pub(super) fn handle_delivery(&mut self, delivery: &Delivery, own: GnAddress) -> bool {
        let Some(heard) = self.0.as_mut().filter(|heard| heard.len() < MAX_QUEUED_MESSAGES) else {
            return false;
        };
        let Ok((header, message)) = Header::parse_packet(&delivery.payload) else { return false };
        let station = delivery.source.address.mid();
        if header.source != addresses::link_local_address(station) {
            return false;
        }
        let own = addresses::link_local_address(own.mid());
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
}

/// Returns the request that sends an IPv6 packet to all stations within `hops` hops.
pub(super) fn build_announcement_request(hops: u8, packet: &[u8]) -> Request<'_> {
    let transport = if hops > 1 { Transport::TopologicallyScoped } else { Transport::SingleHop([0; 4]) };
    let request = Request::new(transport, CommonNextHeader::Ipv6, packet);
    Request { maximum_hop_limit: Some(hops), ..request }
}

/// Returns the request that sends an IPv6 packet to one station.
pub(super) fn build_unicast_request(hops: u8, station: MacAddress, packet: &[u8]) -> Request<'_> {
    let to = GnAddress::new(false, StationType::Unknown, station);
    let request = Request::new(Transport::GeoUnicast(to), CommonNextHeader::Ipv6, packet);
    // The packet has a short lifetime: an answer is useless if it arrives after the asking station has
    // repeated its question.
    Request { maximum_hop_limit: Some(hops), maximum_lifetime: Some(Duration::from_secs(1)), ..request }
}
