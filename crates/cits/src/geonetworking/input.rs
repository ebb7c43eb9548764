//! Inputs of the GeoNetworking plane as serde types, so that a recording can contain them.

use std::time::Duration;

use carnet_base::hex;
use carnet_geonet::{MacAddress, Request, Transport};
use carnet_wire::geonet::{CommonNextHeader, GnAddress, TrafficClass};
use serde::{Deserialize, Serialize};

use crate::position::Area;

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
    pub(crate) fn to_request(&self) -> Request<'_> {
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
            ..Request::new(transport, next_header_of_number(self.next_header), &self.payload)
        }
    }
}

pub(crate) fn next_header_of_number(number: u8) -> CommonNextHeader {
    match number {
        0 => CommonNextHeader::Any,
        1 => CommonNextHeader::BtpA,
        2 => CommonNextHeader::BtpB,
        3 => CommonNextHeader::Ipv6,
        other => CommonNextHeader::Unknown(other),
    }
}
