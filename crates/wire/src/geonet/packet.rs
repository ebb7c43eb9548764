//! Whole packets (clause 9.2 to 9.4).

use super::{
    BasicHeader, BasicNextHeader, CommonHeader, CommonNextHeader, Error, ExtendedHeader, Lifetime,
    TrafficClass, VERSION,
};

/// Content of a frame behind the EtherType: a packet, or a secured envelope around one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A packet without a security envelope.
    Plain(Packet<'a>),
    /// A packet in a security envelope.
    Secured(SecuredPacket<'a>),
}

impl<'a> Frame<'a> {
    /// Reads the octets behind the EtherType.
    ///
    /// # Errors
    /// The errors of [`Packet::parse`], except [`Error::Secured`].
    pub fn parse(octets: &'a [u8]) -> Result<Frame<'a>, Error> {
        let basic = BasicHeader::parse(octets)?;
        if basic.next_header == BasicNextHeader::Secured {
            let envelope = octets.get(BasicHeader::LEN..).unwrap_or_default();
            return Ok(Frame::Secured(SecuredPacket { basic, secured_message: envelope }));
        }
        Packet::parse(octets).map(Frame::Plain)
    }
}

/// A secured packet: the Basic Header and the envelope (TS 103 097), which this crate does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecuredPacket<'a> {
    /// The Basic Header, which the signature does not cover.
    pub basic: BasicHeader,
    /// All octets behind the Basic Header; the link may have padded their end.
    pub secured_message: &'a [u8],
}

/// A packet: parsed headers, and a reference to the payload in the received octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The Basic Header.
    pub basic: BasicHeader,
    /// The Common Header. The emitters ignore its `header_type` and `payload_length` and write the values of
    /// `extended` and `payload`, so that the packet cannot contradict itself.
    pub common: CommonHeader,
    /// The extended header.
    pub extended: ExtendedHeader,
    /// The payload, without padding.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Returns a packet of version [`VERSION`] with the header type and payload length of its content. RHL
    /// equals MHL, the source is not mobile, the traffic class is 0.
    pub fn new(
        extended: ExtendedHeader,
        next_header: CommonNextHeader,
        lifetime: Lifetime,
        hop_limit: u8,
        payload: &'a [u8],
    ) -> Packet<'a> {
        Packet {
            basic: BasicHeader {
                version: VERSION,
                next_header: BasicNextHeader::Common,
                lifetime,
                remaining_hop_limit: hop_limit,
            },
            common: CommonHeader {
                next_header,
                header_type: extended.header_type(),
                traffic_class: TrafficClass::default(),
                mobile: false,
                payload_length: payload_length_field(payload),
                maximum_hop_limit: hop_limit,
            },
            extended,
            payload,
        }
    }

    /// Reads the octets behind the EtherType.
    ///
    /// Cuts off all octets behind the payload. They may be the padding of a short Ethernet frame, a Frame
    /// Check Sequence that a driver has not removed, or a trailer.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Version`], [`Error::BasicNextHeader`], [`Error::Secured`],
    /// [`Error::HeaderType`] or [`Error::PayloadLength`], each for one reason.
    pub fn parse(octets: &'a [u8]) -> Result<Packet<'a>, Error> {
        let basic = BasicHeader::parse(octets)?;
        match basic.next_header {
            BasicNextHeader::Any | BasicNextHeader::Common => {}
            BasicNextHeader::Secured => return Err(Error::Secured),
            BasicNextHeader::Unknown(found) => return Err(Error::BasicNextHeader { found }),
        }
        Packet::parse_with_padding(basic, octets.get(BasicHeader::LEN..).unwrap_or_default(), true)
    }

    /// Reads the Common Header, the extended header and the payload from the content of a secured envelope.
    /// `basic` is the Basic Header in front of the envelope. No octets may follow the payload.
    ///
    /// # Errors
    /// The errors of [`Packet::parse`] about the Common Header or the extended header; offsets count from the
    /// start of the faulty header.
    pub fn parse_after_basic(basic: BasicHeader, octets: &'a [u8]) -> Result<Packet<'a>, Error> {
        Packet::parse_with_padding(basic, octets, false)
    }

    fn parse_with_padding(basic: BasicHeader, octets: &'a [u8], padded: bool) -> Result<Packet<'a>, Error> {
        let common = CommonHeader::parse(octets)?;
        let behind = octets.get(CommonHeader::LEN..).unwrap_or_default();
        let extended = ExtendedHeader::parse(common.header_type, behind)?;
        let behind = behind.get(extended.len()..).unwrap_or_default();
        let announced = usize::from(common.payload_length);
        let refused = Error::PayloadLength { announced, available: behind.len() };
        if announced < behind.len() && !padded {
            return Err(refused);
        }
        let payload = behind.get(..announced).ok_or(refused)?;
        Ok(Packet { basic, common, extended, payload })
    }

    /// Returns the length of the packet, octets.
    #[expect(clippy::len_without_is_empty, reason = "no packet is empty")]
    pub const fn len(&self) -> usize {
        self.payload_offset() + self.payload.len()
    }

    /// Offset of the payload in the packet: the length of the three headers, octets.
    pub const fn payload_offset(&self) -> usize {
        BasicHeader::LEN + CommonHeader::LEN + self.extended.len()
    }

    /// Returns whether RHL is above MHL: a receiver discards such a packet (clause 10.3.5).
    pub const fn exceeds_maximum_hop_limit(&self) -> bool {
        self.basic.remaining_hop_limit > self.common.maximum_hop_limit
    }

    /// Returns an error if the kind of payload is undefined. Forwarding does not depend on the kind, so
    /// parsing accepts any value; call this before delivery to the upper layer.
    ///
    /// # Errors
    /// [`Error::CommonNextHeader`] for [`CommonNextHeader::Unknown`].
    pub const fn check_next_header(&self) -> Result<(), Error> {
        match self.common.next_header {
            CommonNextHeader::Unknown(found) => Err(Error::CommonNextHeader { found }),
            _ => Ok(()),
        }
    }

    /// Writes the packet to the beginning of a buffer and returns its length, [`Packet::len`].
    ///
    /// # Errors
    /// [`Error::Truncated`] if the buffer is shorter than the packet, [`Error::PayloadLength`] if the payload
    /// has more than 65535 octets. On an error the buffer stays unchanged.
    pub fn emit_into(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        if self.payload.len() > usize::from(u16::MAX) {
            return Err(Error::PayloadLength {
                announced: usize::from(u16::MAX),
                available: self.payload.len(),
            });
        }
        let found = buffer.len();
        let room = buffer.get_mut(..self.len());
        let room = room.ok_or(Error::Truncated { what: "packet buffer", needed: self.len(), found })?;
        let (headers, payload) = room.split_at_mut(self.payload_offset());
        let (octets, length) = self.emit_headers();
        headers.copy_from_slice(&octets[..length]);
        payload.copy_from_slice(self.payload);
        Ok(self.len())
    }

    /// Appends the packet to a vector, after reserving room for [`Packet::len`] octets.
    ///
    /// A payload of more than 65535 octets does not fit PL, and no link carries it. The function then writes
    /// PL 65535, so that receivers reject the packet.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.len());
        let (octets, length) = self.emit_headers();
        out.extend_from_slice(&octets[..length]);
        out.extend_from_slice(self.payload);
    }

    /// Returns the octets of the packet; see [`Packet::append_to`].
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.append_to(&mut out);
        out
    }

    /// Returns the octets of the three headers and their total length.
    fn emit_headers(&self) -> ([u8; 60], usize) {
        let common = CommonHeader {
            header_type: self.extended.header_type(),
            payload_length: payload_length_field(self.payload),
            ..self.common
        };
        let (extended, length) = self.extended.to_octets();
        let mut octets = [0; 60];
        super::fields::set_field_at::<0, 4, 60>(&mut octets, self.basic.to_octets());
        super::fields::set_field_at::<4, 8, 60>(&mut octets, common.to_octets());
        super::fields::set_field_at::<12, 48, 60>(&mut octets, extended);
        (octets, BasicHeader::LEN + CommonHeader::LEN + length)
    }
}

/// Returns the value of PL for a payload.
fn payload_length_field(payload: &[u8]) -> u16 {
    u16::try_from(payload.len()).unwrap_or(u16::MAX)
}
