//! Outputs of the GeoNetworking plane as serde types, so that a recording can contain them.

use std::net::Ipv6Addr;

use carnet_base::hex;
use carnet_geonet::{Delivery, MacAddress};
use carnet_wire::geonet::{CommonNextHeader, HeaderType};
use serde::{Deserialize, Serialize};

use super::acceleration::Accelerate;
use super::input::{Frame, VirtualFrame};
use crate::facilities::output::{ActionId, Message};

/// An output to the platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// A frame of EtherType 0x8947 for the GeoNetworking link.
    Frame(Frame),
    /// New state for the GeoNetworking fast path.
    Accelerate(Accelerate),
    /// A payload received over GeoNetworking, for a program outside the station.
    Delivered(Delivered),
    /// A message that a service has accepted, for the applications.
    Message(Message),
    /// An event of another station has expired.
    EventOver(ActionId),
    /// Action ID of the event that a [`Trigger`](crate::facilities::command::DenmAction::Trigger) has begun.
    Triggered(ActionId),
    /// The platform must create or change this virtual interface.
    VirtualLink(VirtualLink),
    /// The platform must remove this virtual interface.
    VirtualLinkGone(u32),
    /// A frame for the host that the station itself has composed.
    VirtualFrame(VirtualFrame),
    /// IPv6 packet from GeoNetworking, in a frame for the host. Besides the host, other receivers may get the
    /// same packet.
    Ipv6 {
        /// Identifier of the virtual interface.
        link: u32,
        /// Destination link-layer address.
        destination: MacAddress,
        /// Source link-layer address.
        source: MacAddress,
        /// The packet, with the values of its GeoNetworking headers.
        delivered: Delivered,
    },
    /// An IPv6 packet to be sent on an interface of the mobile network.
    LanPacket {
        /// Name of the interface.
        interface: String,
        /// Destination link-layer address.
        destination: MacAddress,
        /// The IPv6 packet.
        #[serde(with = "hex")]
        packet: Vec<u8>,
    },
    /// The host must listen to this multicast group on the topological link of IPv6 over GeoNetworking.
    Subscription {
        /// Address of the multicast group.
        group: Ipv6Addr,
        /// Whether the filter mode is EXCLUDE: all sources except the listed ones. Otherwise only the listed
        /// sources; an empty list means that the host leaves the group.
        exclude: bool,
        /// Source addresses of the filter.
        sources: Vec<Ipv6Addr>,
    },
    /// A warning for operators, which the station makes an event.
    Warning(String),
}

/// Type of a packet with a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GnPacketType {
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

/// A payload for the upper layer (GN-DATA.indication).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// Transport of the payload.
    pub kind: GnPacketType,
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
                HeaderType::GeoUnicast => GnPacketType::Guc,
                HeaderType::GeoAnycast(_) => GnPacketType::Gac,
                HeaderType::GeoBroadcast(_) => GnPacketType::Gbc,
                HeaderType::SingleHop => GnPacketType::Shb,
                _ => GnPacketType::Tsb,
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

fn next_header_number(next_header: CommonNextHeader) -> u8 {
    match next_header {
        CommonNextHeader::Any => 0,
        CommonNextHeader::BtpA => 1,
        CommonNextHeader::BtpB => 2,
        CommonNextHeader::Ipv6 => 3,
        CommonNextHeader::Unknown(other) => other,
    }
}
