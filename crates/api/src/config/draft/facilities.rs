//! `[facilities]` as it was read.

use std::net::Ipv6Addr;

use super::super::facilities::{Facilities, Service, VehicleRole};
use super::super::reader::Table;
use super::super::schema;
use super::geonet::{integer, word};

/// TS 102 894-2: the longest vehicle that can be told, and the widest; beyond, values say "out of range".
const LONGEST_DM: u16 = 1021;
const WIDEST_DM: u16 = 60;
/// The largest ITS-AID that can be announced.
const LARGEST_ITS_AID: u32 = 270_549_119;
/// Services that one announcement has at most.
const MOST_SERVICES: usize = 16;

/// `[facilities]`
pub(in crate::config) struct FacilitiesDraft {
    /// Where the table stands in the file.
    pub at: usize,
    facilities: Option<Facilities>,
}

impl FacilitiesDraft {
    pub(in crate::config) fn read(at: usize, table: &Table<'_>) -> FacilitiesDraft {
        FacilitiesDraft { at, facilities: read(table) }
    }

    /// Whether the operator has given the station its number.
    pub(in crate::config) fn has_a_number(&self) -> bool {
        self.facilities.as_ref().is_some_and(|facilities| facilities.station_id.is_some())
    }

    pub(in crate::config) fn finish(self) -> Option<Facilities> {
        self.facilities
    }
}

fn read(table: &Table<'_>) -> Option<Facilities> {
    // All of them, so that all mistakes are told.
    let cam = boolean(table, "cam");
    let station_id = match table.get("station_id") {
        Some(value) => value.integer(0, u32::MAX).map(|number| Some(number.value)),
        None => Some(None),
    };
    let length = decimetres(table, "vehicle_length", LONGEST_DM);
    let width = decimetres(table, "vehicle_width", WIDEST_DM);
    let role = word(table, "role", &VehicleRole::NAMES);
    let keep_alive = boolean(table, "keep_alive");
    let ldm_stations = integer(table, "ldm_stations", 1, 100_000, 4096);
    let ldm_events = integer(table, "ldm_events", 1, 10_000, 256);
    let services = match table.get("service") {
        Some(value) => value.tables(&schema::SERVICE).and_then(|tables| {
            if tables.len() > MOST_SERVICES {
                value.refuse(&format!("{} services, expected at most {MOST_SERVICES}", tables.len()));
                return None;
            }
            // Each is read, so that all mistakes are told.
            let services: Vec<Option<Service>> = tables.iter().map(service).collect();
            services.into_iter().collect()
        }),
        None => Some(Vec::new()),
    };
    Some(Facilities {
        cam: cam?,
        station_id: station_id?,
        vehicle_length_dm: length?,
        vehicle_width_dm: width?.and_then(|width| u8::try_from(width).ok()),
        role: role?,
        keep_alive: keep_alive?,
        ldm_stations: ldm_stations?,
        ldm_events: ldm_events?,
        services: services?,
    })
}

fn service(table: &Table<'_>) -> Option<Service> {
    let its_aid = table
        .need("its_aid", "an integer from 0 to 270549119")
        .and_then(|value| value.integer(0, LARGEST_ITS_AID));
    let parse = |text: &str| text.parse::<Ipv6Addr>().map_err(|_| "no IPv6 address".to_owned());
    let address = match table.get("address") {
        Some(value) => value.parse("an IPv6 address", parse).map(|address| Some(address.value)),
        None => Some(None),
    };
    let port = match table.get("port") {
        Some(value) => value.integer(1, 65_535).map(|port| u16::try_from(port.value).ok()),
        None => Some(None),
    };
    Some(Service { its_aid: its_aid?.value, address: address?, port: port? })
}

/// True unless the file says something else.
fn boolean(table: &Table<'_>, name: &'static str) -> Option<bool> {
    table.get(name).map_or(Some(true), |value| value.boolean())
}

/// A number of metres, to the decimetre; `None` inside where it is absent.
fn decimetres(table: &Table<'_>, name: &'static str, most: u16) -> Option<Option<u16>> {
    let Some(value) = table.get(name) else { return Some(None) };
    let expected = format!("a number of metres from 0.1 to {}", f64::from(most) / 10.0);
    let check = |metres: f64| {
        let decimetres = (metres * 10.0).round();
        if (1.0..=f64::from(most)).contains(&decimetres) {
            Ok(Some(decimetres as u16))
        } else {
            Err(format!("{metres} is out of range, expected {expected}"))
        }
    };
    value.number(&expected, check)
}
