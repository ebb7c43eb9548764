//! `[facilities]`: the layer above GeoNetworking.

use std::net::Ipv6Addr;

use super::keys::{
    Key, OptionalKey, Section, TableKey, ValueKind, integer_kind, key_with_default, named_words_kind,
    optional_key, required_key, table_array, text_kind, value_kind,
};
use super::kinds;
use super::reader::LocatedValue;
use super::table::{Table, all};

/// Values of the config table `[facilities]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facilities {
    /// Whether the station sends CAMs.
    pub sends_cams: bool,
    /// Station ID in messages; with `None` the station derives it from the GN address.
    pub station_id: Option<u32>,
    /// Length of the vehicle, decimetres; `None`: unknown.
    pub vehicle_length_dm: Option<u16>,
    /// Width of the vehicle, decimetres; `None`: unknown.
    pub vehicle_width_dm: Option<u8>,
    /// Present use of the vehicle.
    pub vehicle_role: VehicleRole,
    /// Whether the station repeats the DENMs of other stations (keep-alive forwarding, EN 302 637-3 6.1.4).
    pub keep_alive: bool,
    /// Maximum number of stations in the Local Dynamic Map.
    pub max_ldm_stations: u32,
    /// Maximum number of events in the Local Dynamic Map.
    pub max_ldm_events: u32,
    /// Services that the station announces.
    pub announced_services: Vec<Service>,
}

/// Values of the config table `[[facilities.service]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// ITS application identifier.
    pub its_aid: u32,
    /// Address at which the service is reached.
    pub address: Option<std::net::Ipv6Addr>,
    /// Port of the service.
    pub port: Option<u16>,
}

/// `facilities.role`: the numbers are those of TS 102 894-2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "named values of the standard")]
pub enum VehicleRole {
    Default = 0,
    PublicTransport = 1,
    SpecialTransport = 2,
    DangerousGoods = 3,
    RoadWork = 4,
    Rescue = 5,
    Emergency = 6,
    SafetyCar = 7,
    Agriculture = 8,
    Commercial = 9,
    Military = 10,
    RoadOperator = 11,
    Taxi = 12,
}

impl VehicleRole {
    /// All roles, with their names in the config file and the API.
    pub const NAMES: [(&str, VehicleRole); 13] = [
        ("default", VehicleRole::Default),
        ("public_transport", VehicleRole::PublicTransport),
        ("special_transport", VehicleRole::SpecialTransport),
        ("dangerous_goods", VehicleRole::DangerousGoods),
        ("road_work", VehicleRole::RoadWork),
        ("rescue", VehicleRole::Rescue),
        ("emergency", VehicleRole::Emergency),
        ("safety_car", VehicleRole::SafetyCar),
        ("agriculture", VehicleRole::Agriculture),
        ("commercial", VehicleRole::Commercial),
        ("military", VehicleRole::Military),
        ("road_operator", VehicleRole::RoadOperator),
        ("taxi", VehicleRole::Taxi),
    ];
}

/// Maximum number of services in one announcement.
const MAX_SERVICES: usize = 16;

/// Lengths and widths of vehicles that TS 102 894-2 can express; larger values are "out of range".
const VEHICLE_LENGTHS: ValueKind<u16> =
    value_kind("number, 0.1 to 102.1", "a number of metres from 0.1 to 102.1", |value| {
        read_decimetres(value, 1021)
    });
const VEHICLE_WIDTHS: ValueKind<u8> =
    value_kind("number, 0.1 to 6", "a number of metres from 0.1 to 6", |value| {
        read_decimetres(value, 60).and_then(|width| u8::try_from(width).ok())
    });

static SEND_CAMS: Key<bool> =
    key_with_default("cam", kinds::BOOLEAN_KIND, "true", "Whether the station sends CAMs.");
static STATION_ID: OptionalKey<u32> = optional_key(
    "station_id",
    integer_kind(0, 4_294_967_295),
    "The station's number in messages. By default it is the last 32 bits of the GeoNetworking address, and
     changes with the address.",
);
static VEHICLE_LENGTH: OptionalKey<u16> = optional_key(
    "vehicle_length",
    VEHICLE_LENGTHS,
    "Length in metres, for CAMs, with the trailer if there is one.",
);
static VEHICLE_WIDTH: OptionalKey<u8> = optional_key("vehicle_width", VEHICLE_WIDTHS, "Width in metres.");
static ROLE: Key<VehicleRole> = key_with_default(
    "role",
    named_words_kind("role", &VehicleRole::NAMES),
    "\"default\"",
    "What the vehicle is doing. A role that has a container of its own in CAMs (public transport, rescue and
     so on) sends it.",
);
static KEEP_ALIVE: Key<bool> = key_with_default(
    "keep_alive",
    kinds::BOOLEAN_KIND,
    "true",
    "Whether the station repeats the DENM of another station if no station has done so for a while and this
     station is where the event matters (EN 302 637-3 6.1.4).",
);
static LDM_STATIONS: Key<u32> = key_with_default(
    "ldm_stations",
    integer_kind(1, 100_000),
    "4096",
    "Stations that the map holds at most; each takes some hundred octets.",
);
static LDM_EVENTS: Key<u32> = key_with_default(
    "ldm_events",
    integer_kind(1, 10_000),
    "256",
    "Events of other stations that the map holds, and remembers, at most.",
);
static SERVICES: TableKey = table_array(
    "service",
    &SERVICE_TABLE,
    "Services that the station announces, see [[[facilities.service]]](#facilitiesservice).",
);

/// Keys of the config table `[facilities]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[facilities]",
    "facilities",
    &[
        &SEND_CAMS,
        &STATION_ID,
        &VEHICLE_LENGTH,
        &VEHICLE_WIDTH,
        &ROLE,
        &KEEP_ALIVE,
        &LDM_STATIONS,
        &LDM_EVENTS,
        &SERVICES,
    ],
);

static ITS_AID: Key<u32> = required_key(
    "its_aid",
    integer_kind(0, 270_549_119),
    "Kind of service: its ITS application identifier (ISO 17419, ETSI TS 102 965).",
);
static ADDRESS: OptionalKey<Ipv6Addr> = optional_key(
    "address",
    text_kind("IPv6 address", "an IPv6 address", parse_service_address),
    "Address of the service.",
);
static PORT: OptionalKey<u16> =
    optional_key("port", integer_kind(1, 65_535), "Port of the service at the address, or its BTP port.");

/// Keys of the config table `[[facilities.service]]`.
static SERVICE_TABLE: Section =
    Section::new("[[facilities.service]]", "facilities.service", &[&ITS_AID, &ADDRESS, &PORT]);

/// Position of the table in the file, and its values.
pub(super) struct UncheckedFacilities {
    pub table_offset: usize,
    /// Whether the config has a station ID.
    pub has_station_id: bool,
    /// Config of the table; `None` if the table has an error.
    pub config: Option<Facilities>,
}

impl UncheckedFacilities {
    pub(super) fn read_table(table: &Table<'_>) -> UncheckedFacilities {
        let config = all!(Facilities {
            sends_cams: table.read_key(&SEND_CAMS),
            station_id: table.read_key(&STATION_ID),
            vehicle_length_dm: table.read_key(&VEHICLE_LENGTH),
            vehicle_width_dm: table.read_key(&VEHICLE_WIDTH),
            vehicle_role: table.read_key(&ROLE),
            keep_alive: table.read_key(&KEEP_ALIVE),
            max_ldm_stations: table.read_key(&LDM_STATIONS),
            max_ldm_events: table.read_key(&LDM_EVENTS),
            announced_services: read_services(table),
        });
        let has_station_id = config.as_ref().is_some_and(|config| config.station_id.is_some());
        UncheckedFacilities { table_offset: table.table_offset(), has_station_id, config }
    }
}

fn read_services(table: &Table<'_>) -> Option<Vec<Service>> {
    let tables = table.subtables(&SERVICES)?;
    if let Some(value) = table.value_of_key(&SERVICES).filter(|_| tables.len() > MAX_SERVICES) {
        value.report_error(&format!("{} services, expected at most {MAX_SERVICES}", tables.len()));
        return None;
    }
    let service = |table: &Table<'_>| {
        all!(Service {
            its_aid: table.read_key(&ITS_AID),
            address: table.read_key(&ADDRESS),
            port: table.read_key(&PORT),
        })
    };
    // Reads all services, so that every error is reported.
    let services: Vec<Option<Service>> = tables.iter().map(service).collect();
    services.into_iter().collect()
}

fn parse_service_address(text: &str) -> Result<Ipv6Addr, String> {
    text.parse().map_err(|_| "no IPv6 address".to_owned())
}

/// Reads a number of metres, to the decimetre.
fn read_decimetres(value: &LocatedValue<'_>, max: u16) -> Option<u16> {
    let expected = format!("a number of metres from 0.1 to {}", f64::from(max) / 10.0);
    value.read_number(&expected, |metres| {
        let decimetres = (metres * 10.0).round();
        if (1.0..=f64::from(max)).contains(&decimetres) {
            Ok(decimetres as u16)
        } else {
            Err(format!("{metres} is out of range, expected {expected}"))
        }
    })
}
