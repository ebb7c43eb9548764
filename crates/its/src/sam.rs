//! The Service Announcement Message (EN 302 890-1; ISO/TS 16460): the services of a station and how to reach
//! them.
//!
//! On the air the message is an ITS PDU header and then the `Sam` of ISO/TS 16460 (2016). The `Sam` equals
//! the WAVE Service Advertisement of IEEE 1609.3 V3 bit by bit. ETSI's module `SAEM-PDU-Descriptions` has
//! only these two components. It imports modules of ISO that may not be distributed, so this file transcribes
//! their types.
//!
//! The parser keeps all extension elements as octets with their number, and the encoder writes them
//! unchanged. [`mod@reference`] names the elements that carnet uses, and the methods of [`Extensions`] read
//! them.
//!
//! Left out: the Service Response Message, and the content of system services' contexts.

use std::net::Ipv6Addr;

use carnet_geonet::geodesy::Position;

use crate::cdd::ItsPduHeader;
use crate::uper::macros::{integers, sequences};
use crate::uper::{Error, Null, Reader, Uper, Writer, decode, encode};

/// Numbers of elements of extension (RefExt).
pub mod reference {
    /// Position of the advertiser: [`super::Extensions::advertiser_position`].
    pub const LOCATION_2D: u8 = 5;
    /// Position of the advertiser with an elevation.
    pub const LOCATION_3D: u8 = 6;
    /// Name of the advertiser, for display: [`super::Extensions::extension_text`].
    pub const ADVERTISER_IDENTIFIER: u8 = 7;
    /// Context of a service.
    pub const PROVIDER_SERVICE_CONTEXT: u8 = 8;
    /// IPv6 address of a service.
    pub const IPV6_ADDRESS: u8 = 9;
    /// Port of a service.
    pub const SERVICE_PORT: u8 = 10;
    /// Number of transmissions of the message in 5 s.
    pub const REPEAT_RATE: u8 = 17;
}

/// Protocol version 3, that of ISO/TS 16460 (2016).
pub const VERSION: SamVersion = SamVersion(3);
/// Longest [`reference::ADVERTISER_IDENTIFIER`], octets.
pub const MAX_IDENTIFIER_LENGTH: usize = 32;
/// Longest [`reference::PROVIDER_SERVICE_CONTEXT`], octets.
pub const MAX_CONTEXT_LENGTH: usize = 31;

impl Saem {
    /// Decodes a SAEM.
    ///
    /// # Errors
    ///
    /// An error that says why the octets are not a SAEM.
    #[inline(never)]
    pub fn from_octets(octets: &[u8]) -> Result<Saem, Error> {
        decode(octets)
    }

    /// Returns the octets of the message. Like [`Self::from_octets`], this function exists so that the
    /// compiler generates the encoder only once.
    ///
    /// # Errors
    /// An error with the value that its field cannot hold.
    #[inline(never)]
    pub fn to_octets(&self) -> Result<Vec<u8>, Error> {
        encode(self)
    }
}

integers! {
    /// Version of the message. In its place IEEE 1609.3 has a message number of one bit, 0, and three bits of
    /// version.
    SamVersion(u8) 0..=15, default 3;
    /// Number of an advertisement among the advertisements of its station.
    SaId(u8) 0..=15, default 0;
    /// Content count: changes with the content of the advertisement.
    ContentCount(u8) 0..=15, default 0;
    /// Index of the entry in the list of channels, from 1; 0 for no entry.
    ChannelIndex(u8) 0..=31, default 0 { NOT_USED = 0 };
    /// Number of an extension.
    RefExt(u8) 0..=255, default 0;
    /// IEEE 802.11 operating class.
    OperatingClass(u8) 0..=255, default 0;
    /// Channel number in the operating class.
    ChannelNumber(u8) 0..=255, default 0;
    /// Transmit power, dBm.
    TxPower(i8) -128..=127, default 0;
    /// Data rate, 0.5 Mbit/s.
    ChannelDataRate(u8) 0..=127, default 0;
    /// Time for which the router is a default router, seconds.
    RouterLifetime(u16) 0..=65_535, default 0;
    /// Length of a prefix, bits.
    PrefixLength(u8) 0..=255, default 0;
    /// Port of a service.
    ServiceProviderPort(u16) 0..=65_535, default 0;
}

sequences! {
    /// The message with its ITS PDU header.
    Saem { header: ItsPduHeader, sam: Sam }
    /// The message without its ITS PDU header.
    Sam { version: SamVersion, body: SamBody }
    /// Content of the message.
    SamBody {
        change_count: ChangeCount,
        extensions: Option<Extensions>,
        service_infos: Option<UnboundedList<ServiceInfo>>,
        channel_infos: Option<UnboundedList<ChannelInfo>>,
        routing_advertisement: Option<RoutingAdvertisement>,
    }
    /// Number of the advertisement, and its content count.
    #[derive(Copy)]
    ChangeCount { sa_id: SaId, content_count: ContentCount }
    /// A service.
    ServiceInfo { service_id: ItsAid, channel_index: ChannelIndex, options: ChannelOptions }
    /// Optional parts that describe how to reach a service.
    ChannelOptions {
        system_service: Option<UnboundedList<SystemServiceContext>>,
        service_provider_port: Option<ServiceProviderPort>,
        extensions: Option<Extensions>,
    }
    /// A channel that services use.
    ChannelInfo {
        operating_class: OperatingClass,
        channel_number: ChannelNumber,
        power_level: TxPower,
        adaptable: bool,
        data_rate: ChannelDataRate,
        options: ChannelInfoOptions,
    }
    /// Optional parts of the channel information. One octet of flags says which parts are present; seven of
    /// its bits are unused.
    ChannelInfoOptions {
        option1: Option<Null>,
        option2: Option<Null>,
        option3: Option<Null>,
        option4: Option<Null>,
        option5: Option<Null>,
        option6: Option<Null>,
        option7: Option<Null>,
        extensions: Option<Extensions>,
    }
    /// A router to the Internet.
    RoutingAdvertisement {
        lifetime: RouterLifetime,
        ip_prefix: Address,
        ip_prefix_length: PrefixLength,
        default_gateway: Address,
        primary_dns: Address,
        extensions: Extensions,
    }
    /// An extension element: its number and its encoded value.
    Extension { reference: RefExt, value: OpenTypeOctets }
    /// A system service with its context.
    SystemServiceContext { its_aid: ItsAid, reference: RefExt, value: OpenTypeOctets }
}

/// `VarLengthNumber` (ISO 17419): the ITS-AID of a service, in one to four octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ItsAid(pub u32);

impl ItsAid {
    /// Largest ITS-AID.
    pub const MAX_ITS_AID: u32 = 270_549_119;
}

/// For each length of the encoding: the lowest ITS-AID of this length, and the number of bits that follow the
/// prefix.
const FIRST_AID_AND_BITS_BY_LENGTH: [(u32, u32); 4] = [(0, 7), (128, 14), (16_512, 21), (2_113_664, 28)];

impl Uper for ItsAid {
    const NAME: &'static str = "VarLengthNumber";

    fn decode(reader: &mut Reader<'_>) -> ItsAid {
        let mut longer = 0;
        while longer < 3 && reader.read_bit(Self::NAME) {
            longer += 1;
        }
        if longer == 3 && reader.read_bit(Self::NAME) {
            // After three ones, a 1 marks a longer form (Ext3). No ITS-AID of this length is assigned.
            reader.store_error(Error::OutOfRange {
                what: Self::NAME,
                least: 0,
                most: Self::MAX_ITS_AID.into(),
                found: i64::from(Self::MAX_ITS_AID) + 1,
            });
            return ItsAid(0);
        }
        let (least, width) = FIRST_AID_AND_BITS_BY_LENGTH[longer];
        // The cast is exact: the field has at most 28 bits.
        ItsAid(least + reader.read_bits(width, Self::NAME) as u32)
    }

    fn encode(&self, writer: &mut Writer) {
        if self.0 > Self::MAX_ITS_AID {
            let found = self.0.into();
            return writer.store_error(Error::OutOfRange {
                what: Self::NAME,
                least: 0,
                most: Self::MAX_ITS_AID.into(),
                found,
            });
        }
        let longer =
            FIRST_AID_AND_BITS_BY_LENGTH.iter().rposition(|(least, _)| self.0 >= *least).unwrap_or_default();
        let (least, width) = FIRST_AID_AND_BITS_BY_LENGTH[longer];
        // The prefix has one 1 for each longer form, then a 0. After three ones, this 0 is the extension bit.
        let ones = u64::from((1_u32 << longer) - 1) << 1;
        writer.write_bits(ones, longer as u32 + 1);
        writer.write_bits(u64::from(self.0 - least), width);
    }
}

/// An open type: octets preceded by their length.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenTypeOctets(pub Vec<u8>);

impl Uper for OpenTypeOctets {
    const NAME: &'static str = "open type";

    fn decode(reader: &mut Reader<'_>) -> OpenTypeOctets {
        let length = reader.read_length(Self::NAME);
        OpenTypeOctets(reader.read_octets(length, Self::NAME))
    }

    fn encode(&self, writer: &mut Writer) {
        writer.write_length(self.0.len(), Self::NAME);
        writer.write_octets(&self.0);
    }
}

/// `OCTET STRING (SIZE (16))`: an IPv6 address, or a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address(pub Ipv6Addr);

impl Default for Address {
    fn default() -> Address {
        Address(Ipv6Addr::UNSPECIFIED)
    }
}

impl Uper for Address {
    const NAME: &'static str = "IPv6Address";

    fn decode(reader: &mut Reader<'_>) -> Address {
        let octets = reader.read_octets(16, Self::NAME);
        Address(<[u8; 16]>::try_from(octets).map_or(Ipv6Addr::UNSPECIFIED, Ipv6Addr::from))
    }

    fn encode(&self, writer: &mut Writer) {
        writer.write_octets(&self.0.octets());
    }
}

/// `SEQUENCE OF` without bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnboundedList<T>(pub Vec<T>);

impl<T> Default for UnboundedList<T> {
    fn default() -> UnboundedList<T> {
        UnboundedList(Vec::new())
    }
}

impl<T: Uper> Uper for UnboundedList<T> {
    const NAME: &'static str = T::NAME;

    fn decode(reader: &mut Reader<'_>) -> UnboundedList<T> {
        let mut items = Vec::new();
        for _ in 0..reader.read_length(T::NAME) {
            items.push(T::decode(reader));
            if reader.error().is_some() {
                break;
            }
        }
        UnboundedList(items)
    }

    fn encode(&self, writer: &mut Writer) {
        writer.write_length(self.0.len(), T::NAME);
        self.0.iter().for_each(|item| item.encode(writer));
    }
}

/// List of extension elements.
pub type Extensions = UnboundedList<Extension>;

impl UnboundedList<Extension> {
    fn extension_value(&self, reference: u8) -> Option<&[u8]> {
        self.0.iter().find(|extension| extension.reference.0 == reference).map(|it| it.value.0.as_slice())
    }

    /// Returns an extension of one octet, such as [`reference::REPEAT_RATE`], as a number; `None` without
    /// such an extension.
    pub fn extension_octet(&self, reference: u8) -> Option<u8> {
        match self.extension_value(reference)? {
            [octet] => Some(*octet),
            _ => None,
        }
    }

    /// Returns an extension of two octets, such as [`reference::SERVICE_PORT`], as a number; `None` without
    /// such an extension.
    pub fn extension_number(&self, reference: u8) -> Option<u16> {
        self.extension_value(reference)?.try_into().ok().map(u16::from_be_bytes)
    }

    /// Returns an extension that holds an IPv6 address, such as [`reference::IPV6_ADDRESS`]; `None` without
    /// such an extension.
    pub fn address(&self, reference: u8) -> Option<Ipv6Addr> {
        <[u8; 16]>::try_from(self.extension_value(reference)?).ok().map(Ipv6Addr::from)
    }

    /// Returns the position of the advertiser from [`reference::LOCATION_2D`] or [`reference::LOCATION_3D`];
    /// `None` without a valid position.
    pub fn advertiser_position(&self) -> Option<Position> {
        let value = self
            .extension_value(reference::LOCATION_2D)
            .or_else(|| self.extension_value(reference::LOCATION_3D))?;
        let mut reader = Reader::new(value);
        // Skip a padding bit.
        reader.read_bit("Latitude");
        let latitude = reader.read_constrained_integer(-900_000_000, 900_000_001, "Latitude");
        let longitude = reader.read_constrained_integer(-1_800_000_000, 1_800_000_001, "Longitude");
        let position = Position::new(latitude as i32, longitude as i32);
        (reader.error().is_none() && position.is_on_earth()).then_some(position)
    }

    /// Returns the content of an extension that begins with its own length; `None` if the extension is
    /// missing or the length is wrong. In [`reference::PROVIDER_SERVICE_CONTEXT`] the length has five bits
    /// after three zero bits, in [`reference::ADVERTISER_IDENTIFIER`] eight bits.
    pub fn octets_with_length(&self, reference: u8) -> Option<&[u8]> {
        let (length, octets) = self.extension_value(reference)?.split_first()?;
        (usize::from(*length) == octets.len()).then_some(octets)
    }

    /// Returns the content of an extension as text, like [`Self::octets_with_length`]. Returns `None` also if
    /// the octets are not UTF-8.
    pub fn extension_text(&self, reference: u8) -> Option<&str> {
        std::str::from_utf8(self.octets_with_length(reference)?).ok()
    }

    /// Adds an extension element.
    pub fn add(&mut self, reference: u8, value: &[u8]) {
        self.0.push(Extension { reference: RefExt(reference), value: OpenTypeOctets(value.to_vec()) });
    }

    /// Adds an extension element whose value is these octets with their length in front; at most 127 octets.
    pub fn add_with_length(&mut self, reference: u8, octets: &[u8]) {
        let length = u8::try_from(octets.len()).unwrap_or(u8::MAX);
        self.add(reference, &[&[length], octets].concat());
    }
}
