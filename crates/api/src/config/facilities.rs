//! `[facilities]` of the config file: what stands above GeoNetworking.

/// `[facilities]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facilities {
    /// Whether the station sends CAMs.
    pub cam: bool,
    /// Its number in messages; `None`: made of its GN address.
    pub station_id: Option<u32>,
    /// Length of the vehicle, decimetres; `None`: nobody knows.
    pub vehicle_length_dm: Option<u16>,
    /// Width, likewise.
    pub vehicle_width_dm: Option<u8>,
    /// What the vehicle is doing.
    pub role: VehicleRole,
    /// Whether events of others are kept alive (EN 302 637-3 6.1.4).
    pub keep_alive: bool,
    /// How many stations the Local Dynamic Map has at most.
    pub ldm_stations: u32,
    /// How many events.
    pub ldm_events: u32,
    /// What the station announces.
    pub services: Vec<Service>,
}

/// `[[facilities.service]]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// What it is.
    pub its_aid: u32,
    /// Where it is reached.
    pub address: Option<std::net::Ipv6Addr>,
    /// Its port.
    pub port: Option<u16>,
}

/// `facilities.role`: the numbers are those of TS 102 894-2.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "named values of the standard")]
pub enum VehicleRole {
    #[default]
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
    /// All of them, with their names in the config file and the API.
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
