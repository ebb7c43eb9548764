//! Inputs and outputs of a router.

use std::time::Duration;

use carnet_wire::geonet::{
    CommonNextHeader, GeoArea, GnAddress, HeaderType, Lifetime, LongPositionVector, TrafficClass,
};

use crate::MacAddress;
use crate::acceleration::FastPathUpdate;
use crate::dcc::DccProfile;

/// A received frame of EtherType 0x8947.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedFrame<'a> {
    /// Link-layer address of the station that sent this copy, the "sender" of the standard.
    pub source: MacAddress,
    /// Link-layer destination: this station or broadcast.
    pub destination: MacAddress,
    /// Octets behind the EtherType.
    pub packet: &'a [u8],
}

/// Packet transport type of a request, with its destination or parameters (GN-DATA.request, annex J).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Sends a GUC to a station. The router uses only the MID of the address.
    GeoUnicast(GnAddress),
    /// GBC to all stations in an area.
    GeoBroadcast(GeoArea),
    /// GAC to any station in an area.
    GeoAnycast(GeoArea),
    /// TSB to all stations within the maximum hop limit.
    TopologicallyScoped,
    /// SHB to all stations in range, with the media-dependent octets of the access layer.
    SingleHop([u8; 4]),
    /// Sends a beacon at once. The router ignores all other parameters of the request.
    Beacon,
}

/// A request to repeat a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repetition {
    /// Repetition interval; at least `itsGnMinPacketRepetitionInterval`.
    pub interval: Duration,
    /// Time for which the router repeats the packet.
    pub maximum_time: Duration,
}

/// Request of an upper layer to send a packet (GN-DATA.request).
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Packet transport type and destination.
    pub transport: Transport,
    /// Kind of the payload.
    pub next_header: CommonNextHeader,
    /// Traffic class of the packet.
    pub traffic_class: TrafficClass,
    /// DCC profile, if it differs from the profile of the traffic class; see [`DccProfile::dcc_profile_of`].
    pub profile: Option<DccProfile>,
    /// Longest time that the packet may wait in buffers; `itsGnDefaultPacketLifetime` if `None`.
    pub maximum_lifetime: Option<Duration>,
    /// Maximum hop limit; `itsGnDefaultHopLimit` if `None`. Single-hop packets always have 1.
    pub maximum_hop_limit: Option<u8>,
    /// Repetition of the packet; `None` to send it once.
    pub repetition: Option<Repetition>,
    /// The payload.
    pub payload: &'a [u8],
}

impl<'a> Request<'a> {
    /// Returns a request with default lifetime, hop limit and traffic class, without repetition.
    pub fn new(transport: Transport, next_header: CommonNextHeader, payload: &'a [u8]) -> Request<'a> {
        Request {
            transport,
            next_header,
            traffic_class: TrafficClass::default(),
            profile: None,
            maximum_lifetime: None,
            maximum_hop_limit: None,
            repetition: None,
            payload,
        }
    }
}

/// Action that the caller must perform.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// The caller sends a frame of EtherType 0x8947 on the link.
    Transmit(Transmission),
    /// The caller passes a payload to the upper layer.
    Deliver(Delivery),
    /// The caller changes a permission of the fast path, if it has one ([`crate::Router::start_fast_path`]).
    Accelerate(FastPathUpdate),
    /// The caller reports an event to the operator.
    Event(Event),
}

/// A frame for the link. After sending the frame, the caller may return its octets to
/// [`crate::Router::recycle_buffer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmission {
    /// Link-layer destination.
    pub destination: MacAddress,
    /// Traffic class of the packet.
    pub traffic_class: TrafficClass,
    /// DCC profile of the request, if the request named one.
    pub profile: Option<DccProfile>,
    /// Whether this station is the source of the packet.
    pub is_own: bool,
    /// Whether the router sends the packet after a contention (F.3). If another station sends the packet
    /// first, the caller need not send this frame.
    pub is_after_contention: bool,
    /// Octets behind the EtherType.
    pub frame: Vec<u8>,
}

/// A payload for the upper layer (GN-DATA.indication). The caller may return its octets to
/// [`crate::Router::recycle_buffer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Packet transport type of the packet.
    pub header_type: HeaderType,
    /// Kind of the payload.
    pub next_header: CommonNextHeader,
    /// Position vector of the source (SO PV).
    pub source: LongPositionVector,
    /// SN: sequence number; `None` for SHB.
    pub sequence: Option<u16>,
    /// Destination station of a GUC.
    pub destination: Option<GnAddress>,
    /// Destination area of a GBC or GAC.
    pub area: Option<GeoArea>,
    /// Traffic class of the packet.
    pub traffic_class: TrafficClass,
    /// RHL: the received remaining hop limit.
    pub remaining_hop_limit: u8,
    /// MHL: maximum hop limit of the packet.
    pub maximum_hop_limit: u8,
    /// Remaining lifetime of the packet.
    pub remaining_lifetime: Lifetime,
    /// Link-layer address of the station from which the packet arrived.
    pub link_layer_sender: MacAddress,
    /// The payload.
    pub payload: Vec<u8>,
}

/// An event for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A station has become a neighbour.
    NewNeighbour(GnAddress),
    /// Another station uses this station's address. If this station's address was configured automatically,
    /// the router has changed it (10.2.1.5). The caller must set the link-layer address to the MID of the new
    /// address.
    AddressConflict {
        /// Address that the other station uses, too.
        address: GnAddress,
        /// Address of this station after the event; unchanged if duplicate address detection is off.
        replacement: GnAddress,
    },
    /// The Location Service did not find this station (10.2.4).
    LocationUnknown(GnAddress),
    /// The router does not forward the packets of a station, because its data rate is above the limit (annex
    /// B.2). The router reports only the first such packet.
    PacketDataRate {
        /// Source of the packet.
        source: GnAddress,
        /// Limit that the source exceeds (`itsGnMaxPacketDataRate`), octets per second.
        limit: u32,
    },
}
