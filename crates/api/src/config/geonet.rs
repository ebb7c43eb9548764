//! `[geonet]`: the GeoNetworking router.

mod area;
mod beacon;
mod dcc;
mod forwarding;
mod ipv6;
mod mib;
mod mnpp;
mod multicast;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;

use carnet_geonet::mib::UnknownSender;
use carnet_wire::address::MacAddress;

use super::keys::{
    Key, OptionalKey, Section, TableKey, ValueKind, key_with_default, named_words_kind, optional_key,
    optional_table, required_key, table_array, text_kind, value_kind, words_kind,
};
use super::kinds;
use super::reader::Located;
use super::table::{Table, all};

pub use crate::model::AreaShape;
pub use area::Area;
pub use beacon::{Beacon, BeaconInterval, MultiHopBeacons};
pub use dcc::{Dcc, DccAlgorithm, DccTimeOnAir};
pub use forwarding::Forwarding;
pub use ipv6::Ipv6;
pub use mib::Mib;
pub use mnpp::Mnpp;
pub use multicast::Multicast;
pub(super) use values::group;

/// Values of the config table `[geonet]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geonet {
    /// Interface for frames.
    pub interface: GeonetInterface,
    /// Type of station (vehicle, roadside unit), which is a part of its GN address.
    pub station_type: StationType,
    /// Source of the GN address.
    pub address: GeonetAddress,
    /// Whether the interface gets the link-layer address of the GN address.
    pub set_link_address: bool,
    /// Source of the position.
    pub position_source: PositionSource,
    /// IPv6 over GeoNetworking; `None` if it is off.
    pub ipv6: Option<Ipv6>,
    /// Direct routes to the mobile networks of vehicles in radio range; `None` if they are off.
    pub mnpp: Option<Mnpp>,
    /// Multicast between the mobile network and IPv6 over GeoNetworking; `None` if it is off.
    pub multicast: Option<Multicast>,
    /// Congestion control; `None` if it is off.
    pub dcc: Option<Dcc>,
    /// Forwarding algorithms.
    pub forwarding: Forwarding,
    /// Config of beacons.
    pub beacon: Beacon,
    /// Radio range in metres (`itsGnDefaultMaxCommunicationRange`).
    pub range_m: u16,
    /// Forwarding of packets from an unknown sender, for which the versions of EN 302 636-4-1 have different
    /// rules.
    pub unknown_sender: UnknownSender,
    /// Parameters of the standard without a key in this table.
    pub mib_parameters: Mib,
    /// Named areas, in the order of the file.
    pub areas: Vec<Area>,
}

/// Value of the config key `geonet.interface`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GeonetInterface {
    /// Frames of EtherType 0x8947 on this network interface.
    Frames(String),
    /// Frames in UDP datagrams.
    Udp(UdpLink),
}

/// Link that sends frames in UDP datagrams, from the text `udp:ADDRESS[,PEER...]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpLink {
    /// Address at which datagrams arrive: an own address, or a multicast group, which is also the
    /// destination.
    pub local: SocketAddr,
    /// Name of the interface of a multicast group: the part after `%`. A numeric scope is in `local`.
    pub interface: Option<String>,
    /// Destinations of datagrams; empty exactly for a multicast group.
    pub peer_addresses: Vec<SocketAddr>,
}

impl GeonetInterface {
    /// Returns the name of the network interface; `None` for UDP.
    pub fn name(&self) -> Option<&str> {
        match self {
            GeonetInterface::Frames(name) => Some(name),
            GeonetInterface::Udp(_) => None,
        }
    }
}

/// `geonet.station_type`: the numbers are those of TS 102 894-2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum StationType {
    /// `unknown`
    Unknown = 0,
    /// `pedestrian`
    Pedestrian = 1,
    /// `cyclist`
    Cyclist = 2,
    /// `moped`
    Moped = 3,
    /// `motorcycle`
    Motorcycle = 4,
    /// `passenger_car`
    PassengerCar = 5,
    /// `bus`
    Bus = 6,
    /// `light_truck`
    LightTruck = 7,
    /// `heavy_truck`
    HeavyTruck = 8,
    /// `trailer`
    Trailer = 9,
    /// `special_vehicle`
    SpecialVehicle = 10,
    /// `tram`
    Tram = 11,
    /// `road_side_unit`
    RoadSideUnit = 15,
}

impl StationType {
    /// All kinds, with their names in the config file.
    pub const STATION_TYPE_NAMES: [(&str, StationType); 13] = [
        ("unknown", StationType::Unknown),
        ("pedestrian", StationType::Pedestrian),
        ("cyclist", StationType::Cyclist),
        ("moped", StationType::Moped),
        ("motorcycle", StationType::Motorcycle),
        ("passenger_car", StationType::PassengerCar),
        ("bus", StationType::Bus),
        ("light_truck", StationType::LightTruck),
        ("heavy_truck", StationType::HeavyTruck),
        ("trailer", StationType::Trailer),
        ("special_vehicle", StationType::SpecialVehicle),
        ("tram", StationType::Tram),
        ("road_side_unit", StationType::RoadSideUnit),
    ];

    /// Returns the number of the station type in a GN address.
    pub fn type_number(self) -> u8 {
        self as u8
    }
}

/// `geonet.address` (`itsGnLocalAddrConfMethod`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GeonetAddress {
    /// The router derives the GN address from the interface's link-layer address. It changes the GN address
    /// if another station has the same one.
    Auto,
    /// The GN address has this link-layer address.
    Managed(MacAddress),
    /// A random address, new at each start.
    Anonymous,
}

/// Value of the config key `geonet.position`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PositionSource {
    /// Positions of a gpsd.
    Gpsd {
        /// Host of the gpsd: a name, or an address without brackets.
        host: String,
        /// Port of the gpsd, 2947 unless configured.
        port: u16,
        /// Path of the only receiver whose positions count; `None` for all.
        device: Option<String>,
    },
    /// The station stays at these coordinates.
    Fixed(Coordinates),
    /// The station moves along the positions in this file; a relative path has been joined to the config
    /// file's directory.
    Trace(PathBuf),
}

/// A position on the globe (WGS 84), in the units of the standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coordinates {
    /// Latitude in 0.1 microdegree, north positive.
    pub latitude: i32,
    /// Longitude in 0.1 microdegree, east positive.
    pub longitude: i32,
}

impl Coordinates {
    /// Returns latitude and longitude in degrees.
    pub fn in_degrees(self) -> (f64, f64) {
        (f64::from(self.latitude) / 1e7, f64::from(self.longitude) / 1e7)
    }
}

const POSITION_KIND: ValueKind<PositionSource> = value_kind("position", values::EXPECTED_POSITION, |value| {
    value.parse(values::EXPECTED_POSITION, |text| values::parse_position(text, value.file()))
});

static INTERFACE: Key<GeonetInterface> = required_key(
    "interface",
    text_kind("radio", values::EXPECTED_LINK, values::parse_link),
    "The radio. A network interface carries frames with EtherType 0x8947. It is for GeoNetworking only: it
     must be no uplink, not in `lan`, and not the home link.",
);
static STATION_TYPE: Key<StationType> = key_with_default(
    "station_type",
    named_words_kind("station type", &StationType::STATION_TYPE_NAMES),
    "\"unknown\"",
    "Type of the station; part of its address.",
);
static ADDRESS: Key<GeonetAddress> = key_with_default(
    "address",
    text_kind(
        r#""auto", "managed:MAC" or "anonymous""#,
        values::EXPECTED_GN_ADDRESS,
        values::parse_gn_address,
    ),
    "\"auto\"",
    r#"`"auto"`: the GeoNetworking address is made from the link-layer address of the interface, and changes
       if another station has the same. `"managed:02:00:00:00:00:0a"`: it is made from this address, even if
       another station has the same. `"anonymous"`: it is made from a random address, new at each start."#,
);
static SET_LINK_ADDRESS: Key<bool> = key_with_default(
    "set_link_address",
    kinds::BOOLEAN_KIND,
    "true",
    "Give the interface the station's link-layer address if the two differ, because it receives no unicast
     frames otherwise. They differ with `managed`, `anonymous`, and with `auto` after another station had the
     same address. At its end the station restores the interface's own address. `false` leaves the interface
     as it is.",
);
static POSITION: Key<PositionSource> = required_key(
    "position",
    POSITION_KIND,
    "Source of the station's position. Before the first fix the station sends nothing. Between fixes it
     computes its position along a straight line, so that packets carry the position at which they are sent.
     Without a fix they say that the position is not accurate (PAI), and after 10 s the station takes itself
     to stand still.",
);
static RANGE_KEY: Key<u16> = key_with_default(
    "range",
    kinds::LENGTH_KIND,
    "\"1km\"",
    "Longest distance that the radio reaches (`itsGnDefaultMaxCommunicationRange`). Contention timers and
     adaptive beacons use it.",
);
static UNKNOWN_SENDER_KEY: Key<UnknownSender> = key_with_default(
    "standard",
    words_kind(&[
        ("1.4.1", UnknownSender::NonAreaForwarding),
        ("1.3.1", UnknownSender::Broadcast),
        ("1.2.1", UnknownSender::Broadcast),
    ]),
    "\"1.4.1\"",
    "The version of the standard that decides where versions differ. Example: a station outside of an area
     gets a packet for the area and does not know where the sender is. By 1.4.1 it continues with the
     `unicast` algorithm; by the older two it broadcasts the packet at once.",
);
static IPV6_INTERFACE: OptionalKey<String> = optional_key(
    "ipv6_interface",
    kinds::INTERFACE_KIND,
    "IPv6 over GeoNetworking (EN 302 636-6-1). carnet makes this Ethernet interface, with the link-layer
     address of the station, a link-local address and an MTU that fits, and removes it at the end. Unicast
     packets go to the station of the next hop over any number of hops. Multicast packets go to all stations
     within `hop_limit` hops, those to an area's `group` to the stations in the area. A packet to a station
     whose place is unknown waits for the Location Service; `mib.location_service_buffer_size` limits how many
     wait, to few. The interface may be an uplink of the mobile router as well
     (`mobile_router.uplink.interface`). Roadside units that send Router Advertisements then are its access
     routers, the nearest in range first; as on any link, nothing authenticates them. A reload may make it an
     uplink, or end that. Without this key there is no IPv6.",
);
static IPV6: TableKey = optional_table(
    "ipv6",
    &ipv6::SECTION,
    "More settings of IPv6 over GeoNetworking, see [[geonet.ipv6]](#geonetipv6).",
);
static MNPP: TableKey = optional_table(
    "mnpp",
    &mnpp::SECTION,
    "Direct paths to the mobile networks of vehicles in radio range, see [[geonet.mnpp]](#geonetmnpp).",
);
static MULTICAST: TableKey = optional_table(
    "multicast",
    &multicast::SECTION,
    "Multicast between the mobile network and IPv6 over GeoNetworking, see
     [[geonet.multicast]](#geonetmulticast).",
);
static DCC: TableKey = optional_table(
    "dcc",
    &dcc::SECTION,
    "Congestion control, see [[geonet.dcc]](#geonetdcc). Without it every packet goes to the radio at once.",
);
static FORWARDING: TableKey = optional_table(
    "forwarding",
    &forwarding::SECTION,
    "Forwarding algorithms, see [[geonet.forwarding]](#geonetforwarding).",
);
static BEACON: TableKey = optional_table(
    "beacon",
    &beacon::SECTION,
    "When the station sends beacons, see [[geonet.beacon]](#geonetbeacon).",
);
static MIB: TableKey = optional_table(
    "mib",
    &mib::SECTION,
    "Parameters of the standard that rarely need another value, see [[geonet.mib]](#geonetmib).",
);
static AREAS: TableKey =
    table_array("area", &area::SECTION, "Areas with a name, see [[[geonet.area]]](#geonetarea).");

/// Keys of the config table `[geonet]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[geonet]",
    "geonet",
    &[
        &INTERFACE,
        &STATION_TYPE,
        &ADDRESS,
        &SET_LINK_ADDRESS,
        &POSITION,
        &RANGE_KEY,
        &UNKNOWN_SENDER_KEY,
        &IPV6_INTERFACE,
        &IPV6,
        &MNPP,
        &MULTICAST,
        &DCC,
        &FORWARDING,
        &BEACON,
        &MIB,
        &AREAS,
    ],
);

/// The parsed `[geonet]`, with the values that the checks compare with other tables.
pub(super) struct UncheckedGeonet {
    pub interface: Option<Located<GeonetInterface>>,
    /// Whether the security entity sets the GN address; also true if the key has an error.
    pub is_anonymous: bool,
    /// Value of `ipv6_interface`, if present; the outer `None` if the key has an error.
    pub ipv6_interface: Option<Option<Located<String>>>,
    pub interface_for_other_areas: Option<Located<String>>,
    /// Position of `[geonet.ipv6]` in the file.
    pub ipv6_offset: Option<usize>,
    /// Position of `[geonet.mnpp]` in the file.
    pub mnpp_offset: Option<usize>,
    pub multicast: Option<multicast::UncheckedMulticast>,
    pub areas: Vec<area::UncheckedArea>,
    /// Config of the table; `None` if the table has an error.
    pub config: Option<Geonet>,
}

impl UncheckedGeonet {
    pub(super) fn read_table(table: &Table<'_>) -> UncheckedGeonet {
        let interface = table.read_key_with_offset(&INTERFACE);
        let position = table.read_key(&POSITION);
        let mib = table.table_or_defaults(&MIB).and_then(|table| mib::read_table(&table));
        let largest = match &mib {
            Some(mib) => Some(mib.max_area_size),
            None => mib::read_table(&table.table_of_defaults(&MIB)).map(|mib| mib.max_area_size),
        };
        let areas = table.subtables(&AREAS);
        let address = table.read_key(&ADDRESS);
        let ipv6_interface = table.find_key_with_offset(&IPV6_INTERFACE);
        let ipv6 = table.table_or_defaults(&IPV6).and_then(|table| ipv6::read_table(&table));
        let mnpp = table.subtable(&MNPP).and_then(|table| match table {
            Some(table) => mnpp::read_table(&table).map(Some),
            None => Some(None),
        });
        let multicast = table.subtable(&MULTICAST).and_then(|table| match table {
            Some(table) => multicast::UncheckedMulticast::read_table(&table).map(Some),
            None => Some(None),
        });
        let dcc = table.subtable(&DCC).and_then(|table| match table {
            Some(table) => dcc::read_table(&table).map(Some),
            None => Some(None),
        });
        let mut areas: Option<Vec<area::UncheckedArea>> = areas.map(|tables| {
            tables
                .iter()
                .map(|table| area::UncheckedArea::read_table(table, largest.unwrap_or_default()))
                .collect()
        });
        let main = ipv6_interface.clone();
        let config = all!(Geonet {
            interface: interface.clone().map(|interface| interface.value),
            station_type: table.read_key(&STATION_TYPE),
            address: address,
            set_link_address: table.read_key(&SET_LINK_ADDRESS),
            position_source: position,
            ipv6: ipv6.as_ref().and_then(|ipv6| {
                Some(main?.map(|interface| ipv6.clone().with_interface(interface.value)))
            }),
            mnpp: mnpp.clone(),
            multicast: multicast.as_ref().and_then(|multicast| match multicast {
                Some(multicast) => multicast.config.clone().map(Some),
                None => Some(None),
            }),
            dcc: dcc,
            forwarding: table.table_or_defaults(&FORWARDING).and_then(|table| forwarding::read_table(&table)),
            beacon: table.table_or_defaults(&BEACON).and_then(|table| beacon::read_table(&table)),
            range_m: table.read_key(&RANGE_KEY),
            unknown_sender: table.read_key(&UNKNOWN_SENDER_KEY),
            mib_parameters: mib,
            areas: areas.as_mut().and_then(|areas| areas.iter_mut().map(|area| area.config.take()).collect()),
        });
        UncheckedGeonet {
            interface,
            is_anonymous: address.is_none_or(|address| address == GeonetAddress::Anonymous),
            ipv6_interface,
            ipv6_offset: ipv6.as_ref().and(table.value_of_key(&IPV6)).map(|value| value.offset()),
            interface_for_other_areas: ipv6.and_then(|ipv6| ipv6.interface_for_other_areas),
            mnpp_offset: mnpp.flatten().and(table.value_of_key(&MNPP)).map(|value| value.offset()),
            multicast: multicast.flatten(),
            areas: areas.unwrap_or_default(),
            config,
        }
    }
}
