//! The Service Announcement Message (EN 302 890-1; ISO/TS 16460): which services a station has, and how they
//! are reached.
//!
//! On the air it is an ITS PDU header and then the `Sam` of ISO/TS 16460 (2016). That is bit by bit the WAVE
//! Service Advertisement of IEEE 1609.3 V3. ETSI's module `SAEM-PDU-Descriptions` has only these two
//! components. The modules of ISO that it imports may not be distributed, so their types are transcribed
//! here.
//!
//! Extension elements are kept as octets with their number, whatever they are, and written again unchanged.
//! Those that matter here have a name in [`mod@reference`], and the methods of [`Extensions`] read them.
//!
//! Left out: the Service Response Message, and system services' contexts beyond their octets.

use std::net::Ipv6Addr;

use carnet_geonet::geodesy::Position;

use crate::cdd::ItsPduHeader;
use crate::uper::macros::{integers, sequences};
use crate::uper::{Error, Null, Reader, Uper, Writer, decode, encode};

/// Numbers of elements of extension (RefExt).
pub mod reference {
    /// Where the advertiser is: [`super::Extensions::location`].
    pub const LOCATION_2D: u8 = 5;
    /// The same with an elevation.
    pub const LOCATION_3D: u8 = 6;
    /// Name of the advertiser, for people: [`super::Extensions::text`].
    pub const ADVERTISER_IDENTIFIER: u8 = 7;
    /// Context of a service.
    pub const PROVIDER_SERVICE_CONTEXT: u8 = 8;
    /// IPv6 address of a service.
    pub const IPV6_ADDRESS: u8 = 9;
    /// Its port.
    pub const SERVICE_PORT: u8 = 10;
    /// How often the message is sent in 5 s.
    pub const REPEAT_RATE: u8 = 17;
}

/// The version of the message: that of 2016.
pub const VERSION: SamVersion = SamVersion(3);
/// Longest [`reference::ADVERTISER_IDENTIFIER`], octets.
pub const LONGEST_IDENTIFIER: usize = 32;
/// Longest [`reference::PROVIDER_SERVICE_CONTEXT`], octets.
pub const LONGEST_CONTEXT: usize = 31;

impl Saem {
    /// Reads a message, compiled here and nowhere else, like [`crate::cam::Cam::from_octets`].
    ///
    /// # Errors
    /// An error that says why the octets are not a SAEM.
    #[inline(never)]
    pub fn from_octets(octets: &[u8]) -> Result<Saem, Error> {
        decode(octets)
    }

    /// The message's octets, compiled here likewise.
    ///
    /// # Errors
    /// Which value does not fit.
    #[inline(never)]
    pub fn to_octets(&self) -> Result<Vec<u8>, Error> {
        encode(self)
    }
}

integers! {
    /// Version of the message. IEEE 1609.3 has a message number of one bit, 0, and three bits of version in
    /// its place.
    SamVersion(u8) 0..=15, default 3;
    /// Which of a station's advertisements this is.
    SaId(u8) 0..=15, default 0;
    /// Changes when its content does.
    ContentCount(u8) 0..=15, default 0;
    /// Which entry of the channels, counted from 1; 0 for none.
    ChannelIndex(u8) 0..=31, default 0 { NOT_USED = 0 };
    /// Number of an extension.
    RefExt(u8) 0..=255, default 0;
    /// IEEE 802.11 operating class.
    OperatingClass(u8) 0..=255, default 0;
    /// Its channel.
    ChannelNumber(u8) 0..=255, default 0;
    /// dBm
    TxPower(i8) -128..=127, default 0;
    /// 0.5 Mbit/s
    ChannelDataRate(u8) 0..=127, default 0;
    /// Seconds for which a router is one.
    RouterLifetime(u16) 0..=65_535, default 0;
    /// Bits of a prefix.
    PrefixLength(u8) 0..=255, default 0;
    /// A port that a service is reached by.
    ServiceProviderPort(u16) 0..=65_535, default 0;
}

sequences! {
    /// The message with its header.
    Saem { header: ItsPduHeader, sam: Sam }
    /// The message.
    Sam { version: SamVersion, body: SamBody }
    /// Its content.
    SamBody {
        change_count: ChangeCount,
        extensions: Option<Extensions>,
        service_infos: Option<ListOf<ServiceInfo>>,
        channel_infos: Option<ListOf<ChannelInfo>>,
        routing_advertisement: Option<RoutingAdvertisement>,
    }
    /// Which advertisement, and which state of it.
    #[derive(Copy)]
    ChangeCount { sa_id: SaId, content_count: ContentCount }
    /// A service.
    ServiceInfo { service_id: ItsAid, channel_index: ChannelIndex, options: ChannelOptions }
    /// How it is reached.
    ChannelOptions {
        system_service: Option<ListOf<SystemServiceContext>>,
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
    /// Optional parts of the channel information: the octet of bits that announce them, seven of them unused.
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
    /// An element of extension: what it is, and its encoding.
    Extension { reference: RefExt, value: Open }
    /// A system service in its context.
    SystemServiceContext { its_aid: ItsAid, reference: RefExt, value: Open }
}

/// `VarLengthNumber` (ISO 17419): the ITS-AID of a service, in one to four octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ItsAid(pub u32);

impl ItsAid {
    /// The greatest one.
    pub const MOST: u32 = 270_549_119;
}

/// Least number of each length, and bits behind its prefix of ones.
const LENGTHS: [(u32, u32); 4] = [(0, 7), (128, 14), (16_512, 21), (2_113_664, 28)];

impl Uper for ItsAid {
    const NAME: &'static str = "VarLengthNumber";

    fn decode(reader: &mut Reader<'_>) -> ItsAid {
        let mut longer = 0;
        while longer < 3 && reader.bit(Self::NAME) {
            longer += 1;
        }
        if longer == 3 && reader.bit(Self::NAME) {
            // Ext3 has an extension marker; no known number uses it.
            reader.fail(Error::OutOfRange {
                what: Self::NAME,
                least: 0,
                most: Self::MOST.into(),
                found: i64::from(Self::MOST) + 1,
            });
            return ItsAid(0);
        }
        let (least, width) = LENGTHS[longer];
        // At most 28 bits.
        ItsAid(least + reader.bits(width, Self::NAME) as u32)
    }

    fn encode(&self, writer: &mut Writer) {
        if self.0 > Self::MOST {
            let found = self.0.into();
            return writer.fail(Error::OutOfRange {
                what: Self::NAME,
                least: 0,
                most: Self::MOST.into(),
                found,
            });
        }
        let longer = LENGTHS.iter().rposition(|(least, _)| self.0 >= *least).unwrap_or_default();
        let (least, width) = LENGTHS[longer];
        // A one for each longer form, and a zero; behind three ones it is the extension bit.
        let ones = u64::from((1_u32 << longer) - 1) << 1;
        writer.bits(ones, longer as u32 + 1);
        writer.bits(u64::from(self.0 - least), width);
    }
}

/// An open type: octets with their length.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Open(pub Vec<u8>);

impl Uper for Open {
    const NAME: &'static str = "open type";

    fn decode(reader: &mut Reader<'_>) -> Open {
        let length = reader.length(Self::NAME);
        Open(reader.octets(length, Self::NAME))
    }

    fn encode(&self, writer: &mut Writer) {
        writer.length(self.0.len(), Self::NAME);
        writer.octets(&self.0);
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
        let octets = reader.octets(16, Self::NAME);
        Address(<[u8; 16]>::try_from(octets).map_or(Ipv6Addr::UNSPECIFIED, Ipv6Addr::from))
    }

    fn encode(&self, writer: &mut Writer) {
        writer.octets(&self.0.octets());
    }
}

/// `SEQUENCE OF` without bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListOf<T>(pub Vec<T>);

impl<T> Default for ListOf<T> {
    fn default() -> ListOf<T> {
        ListOf(Vec::new())
    }
}

impl<T: Uper> Uper for ListOf<T> {
    const NAME: &'static str = T::NAME;

    fn decode(reader: &mut Reader<'_>) -> ListOf<T> {
        let mut items = Vec::new();
        for _ in 0..reader.length(T::NAME) {
            items.push(T::decode(reader));
            if reader.error().is_some() {
                break;
            }
        }
        ListOf(items)
    }

    fn encode(&self, writer: &mut Writer) {
        writer.length(self.0.len(), T::NAME);
        self.0.iter().for_each(|item| item.encode(writer));
    }
}

/// Elements of extension.
pub type Extensions = ListOf<Extension>;

impl ListOf<Extension> {
    fn value(&self, reference: u8) -> Option<&[u8]> {
        self.0.iter().find(|extension| extension.reference.0 == reference).map(|it| it.value.0.as_slice())
    }

    /// A number of one octet: [`reference::REPEAT_RATE`].
    pub fn octet(&self, reference: u8) -> Option<u8> {
        match self.value(reference)? {
            [octet] => Some(*octet),
            _ => None,
        }
    }

    /// A number of two octets: [`reference::SERVICE_PORT`].
    pub fn number(&self, reference: u8) -> Option<u16> {
        self.value(reference)?.try_into().ok().map(u16::from_be_bytes)
    }

    /// An address: [`reference::IPV6_ADDRESS`].
    pub fn address(&self, reference: u8) -> Option<Ipv6Addr> {
        <[u8; 16]>::try_from(self.value(reference)?).ok().map(Ipv6Addr::from)
    }

    /// Where the advertiser is: [`reference::LOCATION_2D`], or what [`reference::LOCATION_3D`] has of it.
    pub fn location(&self) -> Option<Position> {
        let value = self.value(reference::LOCATION_2D).or_else(|| self.value(reference::LOCATION_3D))?;
        let mut reader = Reader::new(value);
        // A bit that fills.
        reader.bit("Latitude");
        let latitude = reader.ranged(-900_000_000, 900_000_001, "Latitude");
        let longitude = reader.ranged(-1_800_000_000, 1_800_000_001, "Longitude");
        let position = Position::new(latitude as i32, longitude as i32);
        (reader.error().is_none() && position.is_on_earth()).then_some(position)
    }

    /// Octets behind their length: [`reference::PROVIDER_SERVICE_CONTEXT`], whose length has five bits behind
    /// three of nothing, and [`reference::ADVERTISER_IDENTIFIER`], whose length has eight; both are short.
    pub fn counted(&self, reference: u8) -> Option<&[u8]> {
        let (length, octets) = self.value(reference)?.split_first()?;
        (usize::from(*length) == octets.len()).then_some(octets)
    }

    /// The same as text.
    pub fn text(&self, reference: u8) -> Option<&str> {
        std::str::from_utf8(self.counted(reference)?).ok()
    }

    /// Adds an element.
    pub fn add(&mut self, reference: u8, value: &[u8]) {
        self.0.push(Extension { reference: RefExt(reference), value: Open(value.to_vec()) });
    }

    /// Adds octets with their length in front, at most 127 of them.
    pub fn add_counted(&mut self, reference: u8, octets: &[u8]) {
        let length = u8::try_from(octets.len()).unwrap_or(u8::MAX);
        self.add(reference, &[&[length], octets].concat());
    }
}
