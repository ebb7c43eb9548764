//! The Common Header (clause 9.7): type of the packet and kind of its payload.

use super::{Error, GeoAreaShape};
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
    /// Returns the meaning of the four bits.
    pub const fn from_value(value: u8) -> CommonNextHeader {
        match value & 0x0f {
            0 => CommonNextHeader::Any,
            1 => CommonNextHeader::BtpA,
            2 => CommonNextHeader::BtpB,
            3 => CommonNextHeader::Ipv6,
            other => CommonNextHeader::Unknown(other),
        }
    }

    /// Returns the four bits.
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
    /// 0/0: unspecified. The type defines no extended header, so a receiver discards the packet (clause
    /// 10.3.5).
    Any,
    /// 1/0: beacon.
    Beacon,
    /// 2/0: GUC, GeoUnicast.
    GeoUnicast,
    /// 3/0 to 3/2: GAC, GeoAnycast.
    GeoAnycast(GeoAreaShape),
    /// 4/0 to 4/2: GBC, GeoBroadcast.
    GeoBroadcast(GeoAreaShape),
    /// 5/0: SHB, single-hop broadcast.
    SingleHop,
    /// 5/1: TSB, topologically-scoped broadcast over several hops.
    TopologicallyScoped,
    /// 6/0: Location Service request.
    LocationServiceRequest,
    /// 6/1: Location Service reply.
    LocationServiceReply,
    /// An undefined combination: the octet with HT in its high half.
    Unknown(u8),
}

impl HeaderType {
    /// Returns the header type of the octet.
    pub const fn from_octet(octet: u8) -> HeaderType {
        match octet {
            0x00 => HeaderType::Any,
            0x10 => HeaderType::Beacon,
            0x20 => HeaderType::GeoUnicast,
            0x30 => HeaderType::GeoAnycast(GeoAreaShape::Circle),
            0x31 => HeaderType::GeoAnycast(GeoAreaShape::Rectangle),
            0x32 => HeaderType::GeoAnycast(GeoAreaShape::Ellipse),
            0x40 => HeaderType::GeoBroadcast(GeoAreaShape::Circle),
            0x41 => HeaderType::GeoBroadcast(GeoAreaShape::Rectangle),
            0x42 => HeaderType::GeoBroadcast(GeoAreaShape::Ellipse),
            0x50 => HeaderType::SingleHop,
            0x51 => HeaderType::TopologicallyScoped,
            0x60 => HeaderType::LocationServiceRequest,
            0x61 => HeaderType::LocationServiceReply,
            other => HeaderType::Unknown(other),
        }
    }

    /// Returns the octet, HT in the high half and HST in the low half.
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

impl GeoAreaShape {
    /// Returns the header subtype, 0 to 2.
    pub const fn subtype(self) -> u8 {
        match self {
            GeoAreaShape::Circle => 0,
            GeoAreaShape::Rectangle => 1,
            GeoAreaShape::Ellipse => 2,
        }
    }
}

impl fmt::Display for HeaderType {
    /// Writes HT and HST as two numbers with a slash between, as in table 9.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.octet() >> 4, self.octet() & 0x0f)
    }
}

/// The Traffic Class field (clause 9.7.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TrafficClass {
    /// SCF (store-carry-forward): a forwarder that has no neighbour for the packet buffers it.
    pub store_carry_forward: bool,
    /// Channel offload: the sender may use another channel.
    pub channel_offload: bool,
    /// TC ID, 6 bits: a DCC profile in ITS-G5 (EN 302 636-4-2); the emitter drops higher bits.
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

    /// Returns the octet.
    pub const fn octet(self) -> u8 {
        (self.store_carry_forward as u8) << 7 | (self.channel_offload as u8) << 6 | self.id & 0x3f
    }
}

/// The Common Header, 8 octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CommonHeader {
    /// NH: kind of the payload.
    pub next_header: CommonNextHeader,
    /// HT and HST: type of the extended header.
    pub header_type: HeaderType,
    /// TC: the traffic class.
    pub traffic_class: TrafficClass,
    /// `itsGnIsMobile`, the only flag: the source is a mobile station.
    pub mobile: bool,
    /// PL: length of the payload, octets.
    pub payload_length: u16,
    /// MHL: the RHL (remaining hop limit) with which the source sent the packet.
    pub maximum_hop_limit: u8,
}

impl CommonHeader {
    /// Length of the header, octets.
    pub const LEN: usize = 8;

    /// Reads the header and ignores the octets behind it.
    ///
    /// # Errors
    /// [`Error::Truncated`] if there are fewer than 8 octets. An undefined type is not an error of this
    /// function.
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

    /// Returns the octets of the header.
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
