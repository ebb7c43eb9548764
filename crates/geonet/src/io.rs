//! Inputs and outputs of a router.

use std::time::Duration;

use carnet_wire::geonet::{
    CommonNextHeader, GeoArea, GnAddress, HeaderType, Lifetime, LongPositionVector, TrafficClass,
};

use crate::MacAddress;
use crate::acceleration::Accelerate;
use crate::dcc::Profile;

/// A frame of EtherType 0x8947 as the link handed it over.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedFrame<'a> {
    /// Link-layer address of the station that sent this copy, the "sender" of the standard.
    pub source: MacAddress,
    /// Link-layer destination: this station, or broadcast.
    pub destination: MacAddress,
    /// Octets behind the EtherType.
    pub packet: &'a [u8],
}

/// How a payload shall travel (GN-DATA.request, annex J: "packet transport type" with its destination).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// GUC, to a station. Only the MID of the address has to be right.
    GeoUnicast(GnAddress),
    /// GBC, to everybody in an area.
    GeoBroadcast(GeoArea),
    /// GAC, to any one station in an area.
    GeoAnycast(GeoArea),
    /// TSB, to everybody within some hops.
    TopologicallyScoped,
    /// SHB, to everybody in range; with the octets that belong to the access layer.
    SingleHop([u8; 4]),
    /// A beacon, now; it carries nothing, and the other parameters of the request do not matter.
    Beacon,
}

/// A request to repeat a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repetition {
    /// Once in so long; at least `itsGnMinPacketRepetitionInterval`.
    pub interval: Duration,
    /// For so long.
    pub maximum_time: Duration,
}

/// Request of an upper layer to send a packet (GN-DATA.request).
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// To whom.
    pub transport: Transport,
    /// Kind of payload.
    pub next_header: CommonNextHeader,
    /// How it shall be treated.
    pub traffic_class: TrafficClass,
    /// Its DCC profile, where that is not the one of its traffic class: [`Profile::of`].
    pub profile: Option<Profile>,
    /// How long it may wait on its way; `itsGnDefaultPacketLifetime` if `None`.
    pub maximum_lifetime: Option<Duration>,
    /// How many hops it may go; `itsGnDefaultHopLimit` if `None`. Single-hop packets always go one.
    pub maximum_hop_limit: Option<u8>,
    /// Whether it is sent again and again.
    pub repetition: Option<Repetition>,
    /// The payload.
    pub payload: &'a [u8],
}

impl<'a> Request<'a> {
    /// A request with the default lifetime, hop limit and traffic class, sent once.
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

/// Action that the caller shall perform.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// A frame of EtherType 0x8947 goes to the link.
    Transmit(Transmission),
    /// A payload goes to the upper layer.
    Deliver(Delivery),
    /// Permission for a fast path, if the caller has one ([`crate::Router::accelerate`]).
    Accelerate(Accelerate),
    /// Something that an operator may want to know.
    Event(Event),
}

/// A frame for the link. When it is sent, its octets may go back to [`crate::Router::recycle`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmission {
    /// Link-layer destination.
    pub destination: MacAddress,
    /// How the packet wants to be treated.
    pub traffic_class: TrafficClass,
    /// The DCC profile that the request asked for, if it did.
    pub profile: Option<Profile>,
    /// This station is its source.
    pub own: bool,
    /// The packet won a contention (F.3): once another station repeats it, this station need not send it.
    pub contended: bool,
    /// Octets behind the EtherType.
    pub frame: Vec<u8>,
}

/// A payload for the upper layer (GN-DATA.indication). Its octets may go back to [`crate::Router::recycle`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// How it came.
    pub header_type: HeaderType,
    /// Kind of payload.
    pub next_header: CommonNextHeader,
    /// Position vector of the source (SO PV).
    pub source: LongPositionVector,
    /// SN; `None` for SHB.
    pub sequence: Option<u16>,
    /// To which station, for GUC.
    pub destination: Option<GnAddress>,
    /// To which area, for GBC and GAC.
    pub area: Option<GeoArea>,
    /// How it wanted to be treated.
    pub traffic_class: TrafficClass,
    /// RHL as received.
    pub remaining_hop_limit: u8,
    /// MHL.
    pub maximum_hop_limit: u8,
    /// Remaining lifetime.
    pub remaining_lifetime: Lifetime,
    /// Link-layer address of the last hop.
    pub sender: MacAddress,
    /// The payload.
    pub payload: Vec<u8>,
}

/// Something that an operator may want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A station came into range.
    NewNeighbour(GnAddress),
    /// Another station uses this station's address, which was changed if it is an automatic one (10.2.1.5).
    /// The link-layer address has to follow: it is the MID of the new address.
    AddressConflict {
        /// The address in conflict.
        address: GnAddress,
        /// Address of this station from now on; unchanged if duplicate address detection is off.
        replacement: GnAddress,
    },
    /// The position of a station was sought in vain (10.2.4).
    LocationUnknown(GnAddress),
    /// The first packet that is not forwarded because there are too many of its source or sender (annex B.2).
    PacketDataRate {
        /// Its source.
        source: GnAddress,
        /// `itsGnMaxPacketDataRate`, octets per second.
        limit: u32,
    },
}
