//! The Common Header (clause 9.7): what kind of packet it is and what it carries.

use super::{Error, Shape};
use std::fmt;

/// Next header of the Common Header: the kind of payload (table 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommonNextHeader {
    /// 0: unspecified, or no payload at all (beacon, Location Service).
    Any,
    /// 1: BTP-A, interactive transport ([`crate::btp::BtpA`]).
    BtpA,
    /// 2: BTP-B, non-interactive transport ([`crate::btp::BtpB`]).
    BtpB,
    /// 3: an IPv6 packet (EN 302 636-6-1).
    Ipv6,
    /// An undefined value, 4 to 15.
    Unknown(u8),
}

impl CommonNextHeader {
    /// The meaning of the four bits.
    pub const fn from_value(value: u8) -> CommonNextHeader {
        match value & 0x0f {
            0 => CommonNextHeader::Any,
            1 => CommonNextHeader::BtpA,
            2 => CommonNextHeader::BtpB,
            3 => CommonNextHeader::Ipv6,
            other => CommonNextHeader::Unknown(other),
        }
    }

    /// The four bits.
    pub const fn value(self) -> u8 {
        match self {
            CommonNextHeader::Any => 0,
            CommonNextHeader::BtpA => 1,
            CommonNextHeader::BtpB => 2,
            CommonNextHeader::Ipv6 => 3,
            CommonNextHeader::Unknown(value) => value & 0x0f,
        }
    }
}

/// Header type and subtype, HT and HST (table 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeaderType {
    /// 0/0: unspecified. Nothing can be read behind it; a receiver discards it (clause 10.3.5).
    Any,
    /// 1/0: beacon.
    Beacon,
    /// 2/0: GUC, GeoUnicast.
    GeoUnicast,
    /// 3/0 to 3/2: GAC, GeoAnycast.
    GeoAnycast(Shape),
    /// 4/0 to 4/2: GBC, GeoBroadcast.
    GeoBroadcast(Shape),
    /// 5/0: SHB, single-hop broadcast.
    SingleHop,
    /// 5/1: TSB, topologically-scoped broadcast over several hops.
    TopologicallyScoped,
    /// 6/0: Location Service request.
    LocationServiceRequest,
    /// 6/1: Location Service reply.
    LocationServiceReply,
    /// An undefined combination: the octet with HT in the high half.
    Unknown(u8),
}

impl HeaderType {
    /// The meaning of the octet.
    pub const fn from_octet(octet: u8) -> HeaderType {
        match octet {
            0x00 => HeaderType::Any,
            0x10 => HeaderType::Beacon,
            0x20 => HeaderType::GeoUnicast,
            0x30 => HeaderType::GeoAnycast(Shape::Circle),
            0x31 => HeaderType::GeoAnycast(Shape::Rectangle),
            0x32 => HeaderType::GeoAnycast(Shape::Ellipse),
            0x40 => HeaderType::GeoBroadcast(Shape::Circle),
            0x41 => HeaderType::GeoBroadcast(Shape::Rectangle),
            0x42 => HeaderType::GeoBroadcast(Shape::Ellipse),
            0x50 => HeaderType::SingleHop,
            0x51 => HeaderType::TopologicallyScoped,
            0x60 => HeaderType::LocationServiceRequest,
            0x61 => HeaderType::LocationServiceReply,
            other => HeaderType::Unknown(other),
        }
    }

    /// The octet, HT in the high half and HST in the low one.
    pub const fn octet(self) -> u8 {
        match self {
            HeaderType::Any => 0x00,
            HeaderType::Beacon => 0x10,
            HeaderType::GeoUnicast => 0x20,
            HeaderType::GeoAnycast(shape) => 0x30 | shape.subtype(),
            HeaderType::GeoBroadcast(shape) => 0x40 | shape.subtype(),
            HeaderType::SingleHop => 0x50,
            HeaderType::TopologicallyScoped => 0x51,
            HeaderType::LocationServiceRequest => 0x60,
            HeaderType::LocationServiceReply => 0x61,
            HeaderType::Unknown(octet) => octet,
        }
    }
}

impl Shape {
    /// The header subtype, 0 to 2.
    pub const fn subtype(self) -> u8 {
        match self {
            Shape::Circle => 0,
            Shape::Rectangle => 1,
            Shape::Ellipse => 2,
        }
    }
}

impl fmt::Display for HeaderType {
    /// HT and HST as numbers with a slash between, as tables have them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.octet() >> 4, self.octet() & 0x0f)
    }
}

/// The Traffic Class field (clause 9.7.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TrafficClass {
    /// SCF: keep the packet when there is no neighbour to give it to.
    pub store_carry_forward: bool,
    /// Channel offload: another channel may be used.
    pub channel_offload: bool,
    /// TC ID, 6 bits: a DCC profile in ITS-G5 (EN 302 636-4-2); what is higher is cut off.
    pub id: u8,
}

impl TrafficClass {
    /// Reads the octet.
    pub const fn from_octet(octet: u8) -> TrafficClass {
        TrafficClass {
            store_carry_forward: octet & 0x80 != 0,
            channel_offload: octet & 0x40 != 0,
            id: octet & 0x3f,
        }
    }

    /// The octet.
    pub const fn octet(self) -> u8 {
        (self.store_carry_forward as u8) << 7 | (self.channel_offload as u8) << 6 | self.id & 0x3f
    }
}

/// The Common Header, 8 octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CommonHeader {
    /// NH: what the payload is.
    pub next_header: CommonNextHeader,
    /// HT and HST: which extended header follows.
    pub header_type: HeaderType,
    /// TC: how the packet wants to be treated.
    pub traffic_class: TrafficClass,
    /// The one flag, `itsGnIsMobile`: the source may move.
    pub mobile: bool,
    /// PL: octets behind the extended header.
    pub payload_length: u16,
    /// MHL: the RHL with which the source sent the packet.
    pub maximum_hop_limit: u8,
}

impl CommonHeader {
    /// Octets of the header.
    pub const LEN: usize = 8;

    /// Reads the header and ignores the octets behind it.
    ///
    /// # Errors
    /// [`Error::Truncated`] under 8 octets. Undefined types are no error here.
    pub fn parse(octets: &[u8]) -> Result<CommonHeader, Error> {
        let Some(&[next, header_type, traffic_class, flags, high, low, maximum_hop_limit, _reserved]) =
            octets.first_chunk::<8>()
        else {
            return Err(Error::Truncated { what: "common header", needed: Self::LEN, found: octets.len() });
        };
        Ok(CommonHeader {
            next_header: CommonNextHeader::from_value(next >> 4),
            header_type: HeaderType::from_octet(header_type),
            traffic_class: TrafficClass::from_octet(traffic_class),
            mobile: flags & 0x80 != 0,
            payload_length: u16::from_be_bytes([high, low]),
            maximum_hop_limit,
        })
    }

    /// The header's octets.
    pub fn to_octets(&self) -> [u8; Self::LEN] {
        let [high, low] = self.payload_length.to_be_bytes();
        [
            self.next_header.value() << 4,
            self.header_type.octet(),
            self.traffic_class.octet(),
            (self.mobile as u8) << 7,
            high,
            low,
            self.maximum_hop_limit,
            0,
        ]
    }
}
