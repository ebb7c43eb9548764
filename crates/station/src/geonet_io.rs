//! GeoNetworking inputs and outputs as serde types, so that a recording can contain them. The module converts
//! them to and from the router's types.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::hex;
use carnet_geonet::geo_destinations::{self, Destination};
use carnet_geonet::{Delivery, MacAddress, Request, Transport, geodesy};
use carnet_wire::geonet::{
    CommonNextHeader, GeoArea, GnAddress, HeaderType, LongPositionVector, Shape, Timestamp, TrafficClass,
};
use serde::{Deserialize, Serialize};

/// A frame of EtherType 0x8947 (GeoNetworking).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Link-layer source address; in a frame to send, this station's address.
    pub source: MacAddress,
    /// Link-layer destination address.
    pub destination: MacAddress,
    /// DCC profile, 0 to 3, of a frame to send; `None` without a gate of congestion control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<u8>,
    /// Octets of the packet behind the EtherType.
    #[serde(with = "hex")]
    pub packet: Vec<u8>,
}

/// Position of this station, in the units of the wire (EN 302 636-4-1 9.5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Time of the position: TAI milliseconds since 2004-01-01, modulo 2^32.
    pub timestamp: u32,
    /// Latitude in tenths of a microdegree, north positive.
    pub latitude: i32,
    /// Longitude in tenths of a microdegree, east positive.
    pub longitude: i32,
    /// Whether the position is accurate (position accuracy indicator, PAI).
    pub accurate: bool,
    /// Speed in centimetres per second.
    pub speed: i16,
    /// Heading in tenths of a degree clockwise from North.
    pub heading: u16,
}

impl Position {
    pub(crate) fn vector(self, address: GnAddress) -> LongPositionVector {
        LongPositionVector {
            address,
            timestamp: Timestamp(self.timestamp),
            latitude: self.latitude,
            longitude: self.longitude,
            accurate: self.accurate,
            speed: self.speed,
            heading: self.heading,
        }
    }
}

/// An area, in the units of GeoNetworking packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Area {
    /// Shape of the area: circle, rectangle or ellipse.
    pub shape: AreaShape,
    /// Latitude of the centre in tenths of a microdegree, north positive.
    pub latitude: i32,
    /// Longitude of the centre in tenths of a microdegree, east positive.
    pub longitude: i32,
    /// Radius, or half the length along the angle, in metres.
    pub distance_a: u16,
    /// Half the length across the angle, in metres; 0 for a circle.
    pub distance_b: u16,
    /// Angle of the area in degrees clockwise from North.
    pub angle: u16,
}

/// The shape of an [`Area`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AreaShape {
    /// A circle.
    Circle,
    /// A rectangle.
    Rectangle,
    /// An ellipse.
    Ellipse,
}

impl From<AreaShape> for Shape {
    fn from(shape: AreaShape) -> Shape {
        match shape {
            AreaShape::Circle => Shape::Circle,
            AreaShape::Rectangle => Shape::Rectangle,
            AreaShape::Ellipse => Shape::Ellipse,
        }
    }
}

impl From<Shape> for AreaShape {
    fn from(shape: Shape) -> AreaShape {
        match shape {
            Shape::Circle => AreaShape::Circle,
            Shape::Rectangle => AreaShape::Rectangle,
            Shape::Ellipse => AreaShape::Ellipse,
        }
    }
}

impl From<GeoArea> for Area {
    fn from(area: GeoArea) -> Area {
        Area {
            shape: area.shape.into(),
            latitude: area.latitude,
            longitude: area.longitude,
            distance_a: area.distance_a,
            distance_b: area.distance_b,
            angle: area.angle,
        }
    }
}

impl From<Area> for GeoArea {
    fn from(area: Area) -> GeoArea {
        GeoArea {
            shape: area.shape.into(),
            latitude: area.latitude,
            longitude: area.longitude,
            distance_a: area.distance_a,
            distance_b: area.distance_b,
            angle: area.angle,
        }
    }
}

/// Quality of a position that the facilities report in their messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PositionQuality {
    /// Radius of the circle that contains the position with 95 % probability, centimetres; `None` if unknown.
    #[serde(default)]
    pub confidence_cm: Option<u32>,
    /// Altitude above the WGS 84 ellipsoid, centimetres; `None` if unknown.
    #[serde(default)]
    pub altitude_cm: Option<i32>,
    /// Whether the speed of the position is known.
    pub moves: bool,
    /// Whether the heading of the position is known.
    pub heads: bool,
    /// Whether the receiver has lost its position fix, so that the next positions are dead reckoning.
    #[serde(default)]
    pub lost: bool,
}

impl Default for PositionQuality {
    /// Returns the quality of a position for which no quality was reported: speed and heading are valid.
    fn default() -> PositionQuality {
        PositionQuality { confidence_cm: None, altitude_cm: None, moves: true, heads: true, lost: false }
    }
}

/// Type of a message of the facilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageKind {
    /// Cooperative Awareness Message.
    Cam,
    /// Decentralized Environmental Notification Message.
    Denm,
}

/// A message of another station that a service has accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Type of the message.
    pub kind: MessageKind,
    /// GN address of the sender. With keep-alive forwarding the sender is not the originating station.
    pub source: u64,
    /// The message as UPER octets, without the BTP header.
    #[serde(with = "hex")]
    pub octets: Vec<u8>,
}

/// Identifier of an event, which is the same in the messages of every sender (actionID).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// Station ID of the originating station.
    pub originating_station_id: u32,
    /// Number of the event at the originating station.
    pub sequence_number: u16,
}

/// An application's request about an event (EN 302 637-3 5.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DenmWish {
    /// AppDENM_trigger: a new event.
    Trigger,
    /// AppDENM_update: new content of an own event.
    Update,
    /// AppDENM_termination of an own event.
    Cancel,
    /// AppDENM_termination of another station's event.
    Negate,
}

/// An application's request about an event, with the content of the event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DenmOrder {
    /// The application's request.
    pub wish: DenmWish,
    /// Content of the event as a DENM: UPER octets, without the BTP header. The station ignores the DENM's
    /// header, reference time and termination, and the action ID of a new event. A detection time of 0 means
    /// now. Without a position the event is at the station.
    #[serde(with = "hex")]
    pub denm: Vec<u8>,
    /// Duration of the repetition in milliseconds. The station repeats only with both duration and interval.
    pub repetition_duration_ms: Option<u64>,
    /// Interval of the repetition in milliseconds. The station repeats only with both duration and interval.
    pub repetition_interval_ms: Option<u64>,
    /// Destination area; `None`: the relevance area around the event.
    pub area: Option<Area>,
    /// Traffic Class (9.7.5), eight bits; `None`: the default of the service.
    #[serde(default)]
    pub traffic_class: Option<u8>,
}

/// Centre of an area that an operator sets at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Around {
    /// A fixed place, in tenths of a microdegree, north and east positive.
    Place {
        /// Latitude of the place.
        latitude: i32,
        /// Longitude of the place.
        longitude: i32,
    },
    /// The present position of this station.
    Here,
    /// The present position of the station with this GN address.
    Station(u64),
}

/// An operator's order to set an area at run time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AreaOrder {
    /// Name of the area; the area replaces an existing area of the same name.
    pub name: String,
    /// Centre of the area.
    pub around: Around,
    /// Shape of the area: circle, rectangle or ellipse.
    pub shape: AreaShape,
    /// Radius, or half the length along the angle, in metres.
    pub distance_a: u16,
    /// Half the length across the angle, in metres; 0 for a circle.
    pub distance_b: u16,
    /// Angle of the area in degrees clockwise from North.
    pub angle: u16,
    /// IPv6 multicast group of all stations in the area.
    pub group: Option<Ipv6Addr>,
    /// Lifetime of the area in milliseconds; `None`: unlimited.
    pub lifetime_ms: Option<u64>,
}

impl AreaOrder {
    pub(crate) fn destination(&self) -> Destination {
        Destination {
            around: match self.around {
                Around::Place { latitude, longitude } => {
                    geo_destinations::Around::Place(geodesy::Position::new(latitude, longitude))
                }
                Around::Here => geo_destinations::Around::Here,
                Around::Station(address) => geo_destinations::Around::Station(GnAddress(address)),
            },
            shape: self.shape.into(),
            distance_a: self.distance_a,
            distance_b: self.distance_b,
            angle: self.angle,
            group: self.group,
        }
    }
}

/// Transport and destination of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GeonetTransport {
    /// GeoUnicast to a GN address.
    GeoUnicast(u64),
    /// GeoAnycast into an area.
    GeoAnycast(Area),
    /// GeoBroadcast into an area.
    GeoBroadcast(Area),
    /// Topologically-scoped broadcast to all stations within the hop limit.
    TopologicallyScoped,
    /// Single-hop broadcast to the neighbours.
    SingleHop,
}

/// A payload to send (GN-DATA.request).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeonetRequest {
    /// Transport and destination.
    pub transport: GeonetTransport,
    /// NH of the Common Header: 0 any, 1 BTP-A, 2 BTP-B, 3 IPv6.
    pub next_header: u8,
    /// Whether routers store the packet, carry it and forward it later (SCF).
    pub store_carry_forward: bool,
    /// Bits of the Traffic Class behind SCF (9.7.5): channel offload and TC ID, seven bits.
    #[serde(default)]
    pub traffic_class: u8,
    /// Lifetime of the packet in milliseconds; `None`: the default.
    pub lifetime_ms: Option<u64>,
    /// Hop limit of the packet; `None`: the default.
    pub hop_limit: Option<u8>,
    /// Octets of the payload.
    #[serde(with = "hex")]
    pub payload: Vec<u8>,
}

impl GeonetRequest {
    pub(crate) fn request(&self) -> Request<'_> {
        let transport = match self.transport {
            GeonetTransport::GeoUnicast(address) => Transport::GeoUnicast(GnAddress(address)),
            GeonetTransport::GeoAnycast(area) => Transport::GeoAnycast(area.into()),
            GeonetTransport::GeoBroadcast(area) => Transport::GeoBroadcast(area.into()),
            GeonetTransport::TopologicallyScoped => Transport::TopologicallyScoped,
            GeonetTransport::SingleHop => Transport::SingleHop([0; 4]),
        };
        Request {
            traffic_class: TrafficClass {
                store_carry_forward: self.store_carry_forward,
                ..TrafficClass::from_octet(self.traffic_class)
            },
            maximum_lifetime: self.lifetime_ms.map(Duration::from_millis),
            maximum_hop_limit: self.hop_limit,
            ..Request::new(transport, next_header(self.next_header), &self.payload)
        }
    }
}

/// Transport of a received payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveredKind {
    /// GeoUnicast.
    Guc,
    /// GeoAnycast.
    Gac,
    /// GeoBroadcast.
    Gbc,
    /// Topologically-scoped broadcast.
    Tsb,
    /// Single-hop broadcast.
    Shb,
}

/// A virtual interface that the platform creates on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualLink {
    /// Identifier of the interface, constant as long as the station runs.
    pub id: u32,
    /// Name of the interface in the host.
    pub name: String,
    /// Link-layer address of the interface, which is the station's.
    pub address: MacAddress,
    /// IPv6 link-local address that belongs to the link-layer address.
    pub link_local: Ipv6Addr,
    /// Octets of the longest IPv6 packet on the interface.
    pub mtu: u32,
    /// Whether a Router Advertisement caused the interface. The host then configures the interface by that
    /// advertisement.
    pub learnt: bool,
}

/// A frame that the host sends or receives on a virtual interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualFrame {
    /// Identifier of the virtual interface.
    pub link: u32,
    /// Destination link-layer address.
    pub destination: MacAddress,
    /// Source link-layer address.
    pub source: MacAddress,
    /// EtherType.
    pub ether_type: u16,
    /// Octets of the payload behind the EtherType.
    #[serde(with = "hex")]
    pub payload: Vec<u8>,
}

/// A payload for the upper layer (GN-DATA.indication).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// Transport of the payload.
    pub kind: DeliveredKind,
    /// NH of the Common Header: 0 any, 1 BTP-A, 2 BTP-B, 3 IPv6.
    pub next_header: u8,
    /// GN address of the source.
    pub source: u64,
    /// Latitude of the source in tenths of a microdegree, north positive.
    pub latitude: i32,
    /// Longitude of the source in tenths of a microdegree, east positive.
    pub longitude: i32,
    /// Remaining hop limit (RHL) of the received packet.
    pub remaining_hop_limit: u8,
    /// Maximum hop limit (MHL) of the received packet.
    pub maximum_hop_limit: u8,
    /// Octets of the payload.
    #[serde(with = "hex")]
    pub payload: Vec<u8>,
}

impl From<Delivery> for Delivered {
    fn from(delivery: Delivery) -> Delivered {
        Delivered {
            kind: match delivery.header_type {
                HeaderType::GeoUnicast => DeliveredKind::Guc,
                HeaderType::GeoAnycast(_) => DeliveredKind::Gac,
                HeaderType::GeoBroadcast(_) => DeliveredKind::Gbc,
                HeaderType::SingleHop => DeliveredKind::Shb,
                _ => DeliveredKind::Tsb,
            },
            next_header: next_header_number(delivery.next_header),
            source: delivery.source.address.0,
            latitude: delivery.source.latitude,
            longitude: delivery.source.longitude,
            remaining_hop_limit: delivery.remaining_hop_limit,
            maximum_hop_limit: delivery.maximum_hop_limit,
            payload: delivery.payload,
        }
    }
}

pub(crate) fn next_header(number: u8) -> CommonNextHeader {
    match number {
        0 => CommonNextHeader::Any,
        1 => CommonNextHeader::BtpA,
        2 => CommonNextHeader::BtpB,
        3 => CommonNextHeader::Ipv6,
        other => CommonNextHeader::Unknown(other),
    }
}

fn next_header_number(next_header: CommonNextHeader) -> u8 {
    match next_header {
        CommonNextHeader::Any => 0,
        CommonNextHeader::BtpA => 1,
        CommonNextHeader::BtpB => 2,
        CommonNextHeader::Ipv6 => 3,
        CommonNextHeader::Unknown(other) => other,
    }
}
