//! The whole config file: its tables and their values.
//!
//! [`UncheckedConfig`] has every value that the checks between tables compare, with its position in the file.
//! It also has the config of each table that has no errors.

use toml::de::DeTable;

use super::dataplane::Dataplane;
use super::errors::ErrorSink;
use super::keys::{Section, TableKey, optional_table, required_table};
use super::station::Station;
use super::table::Table;
use super::{
    Config, conformance, dataplane, facilities, geonet, home_agent, mobile_router, security, station,
};

static STATION: TableKey =
    required_table("station", &station::SECTION, "a table [station] with a `name`", "");
static DATAPLANE: TableKey = optional_table("dataplane", &dataplane::SECTION, "");
static HOME_AGENT: TableKey = optional_table("home_agent", &home_agent::SECTION, "");
static MOBILE_ROUTER: TableKey = optional_table("mobile_router", &mobile_router::SECTION, "");
static MOBILE_NODE: TableKey = optional_table("mobile_node", &mobile_router::SECTION_OF_NODE, "");
static GEONET: TableKey = optional_table("geonet", &geonet::SECTION, "");
static FACILITIES: TableKey = optional_table("facilities", &facilities::SECTION, "");
static SECURITY: TableKey = optional_table("security", &security::SECTION, "");
static CONFORMANCE: TableKey = optional_table("conformance", &conformance::SECTION, "");

/// The top level of the file, which contains the tables.
pub(super) static ROOT_TABLE: Section = Section::new(
    "the config",
    "",
    &[
        &STATION,
        &DATAPLANE,
        &HOME_AGENT,
        &MOBILE_ROUTER,
        &MOBILE_NODE,
        &GEONET,
        &FACILITIES,
        &SECURITY,
        &CONFORMANCE,
    ],
);

/// Returns all tables below the top level, each before the tables inside it.
pub(super) fn all_sections() -> Vec<&'static Section> {
    fn add_section(section: &'static Section, found: &mut Vec<&'static Section>) {
        let below = section.declared_keys.iter().filter_map(|key| key.declaration().subsection);
        for section in below {
            if !found.iter().any(|other| other.path == section.path) {
                found.push(section);
                add_section(section, found);
            }
        }
    }
    let mut found = Vec::new();
    add_section(&ROOT_TABLE, &mut found);
    found
}

/// Values of a whole config file before the checks between tables.
pub(super) struct UncheckedConfig {
    pub station: Option<Station>,
    pub dataplane: Option<Dataplane>,
    /// `[home_agent]`; `None` if absent.
    pub home_agent: Option<home_agent::UncheckedHomeAgent>,
    /// `[mobile_router]` or `[mobile_node]`; `None` if both are absent.
    pub mobile_router: Option<mobile_router::UncheckedMobileRouter>,
    /// `[geonet]`; `None` if absent.
    pub geonet: Option<geonet::UncheckedGeonet>,
    /// `[facilities]`; `None` if absent.
    pub facilities: Option<facilities::UncheckedFacilities>,
    /// `[security]`; `None` if absent.
    pub security: Option<security::UncheckedSecurity>,
    /// `[conformance]`; `None` if absent.
    pub conformance: Option<conformance::UncheckedConformance>,
    /// Whether the file has a table of any role, with or without errors.
    pub has_role: bool,
}

impl UncheckedConfig {
    /// Reads all tables of a parsed config file. Reports their errors to `sink`.
    pub(super) fn read_document(document: &DeTable<'_>, sink: &ErrorSink<'_>) -> UncheckedConfig {
        let root = Table::open_table(&ROOT_TABLE, 0, document, sink);
        let open = |key| root.subtable(key).flatten();
        // Without the Cargo feature `geonet`, a table of GeoNetworking is an error, and the reader does not
        // read it.
        let of_geonet = |key| if cfg!(feature = "geonet") { open(key) } else { None };
        let station = open(&STATION);
        if let (Some(_), Some(node)) = (root.value_of_key(&MOBILE_ROUTER), root.value_of_key(&MOBILE_NODE)) {
            node.report_error("found [mobile_router] and [mobile_node], expected one of the two");
        }
        if !cfg!(feature = "geonet") {
            for key in [&GEONET, &FACILITIES, &SECURITY, &CONFORMANCE] {
                if let Some(value) = root.value_of_key(key) {
                    value
                        .report_error("this program was built without GeoNetworking, expected no such table");
                }
            }
        }
        let roles = [&HOME_AGENT, &MOBILE_ROUTER, &MOBILE_NODE, &GEONET];
        UncheckedConfig {
            has_role: roles.iter().any(|role| root.value_of_key(*role).is_some()),
            station: station.and_then(|table| station::read_table(&table)),
            dataplane: root.table_or_defaults(&DATAPLANE).and_then(|table| dataplane::read_table(&table)),
            home_agent: open(&HOME_AGENT).map(|table| home_agent::UncheckedHomeAgent::read_table(&table)),
            mobile_router: match root.value_of_key(&MOBILE_ROUTER) {
                Some(_) => {
                    open(&MOBILE_ROUTER).map(|table| mobile_router::UncheckedMobileRouter::read_table(&table))
                }
                None => open(&MOBILE_NODE)
                    .map(|table| mobile_router::UncheckedMobileRouter::read_mobile_node(&table)),
            },
            geonet: of_geonet(&GEONET).map(|table| geonet::UncheckedGeonet::read_table(&table)),
            facilities: of_geonet(&FACILITIES)
                .map(|table| facilities::UncheckedFacilities::read_table(&table)),
            security: of_geonet(&SECURITY).map(|table| security::UncheckedSecurity::read_table(&table)),
            conformance: of_geonet(&CONFORMANCE)
                .map(|table| conformance::UncheckedConformance::read_table(&table)),
        }
    }

    /// Returns the config if no table has an error.
    pub(super) fn into_config(self) -> Option<Config> {
        /// Returns the config of an optional table. The outer `None` means that the table has an error, the
        /// inner `None` that the file has no such table.
        fn config_of_table<D, C>(draft: Option<D>, config: impl FnOnce(D) -> Option<C>) -> Option<Option<C>> {
            match draft {
                Some(draft) => config(draft).map(Some),
                None => Some(None),
            }
        }
        Some(Config {
            station: self.station?,
            dataplane: self.dataplane?,
            home_agent: config_of_table(self.home_agent, |draft| draft.config)?,
            mobile_router: config_of_table(self.mobile_router, |draft| draft.config)?,
            geonet: config_of_table(self.geonet, |draft| draft.config)?,
            facilities: config_of_table(self.facilities, |draft| draft.config)?,
            security: config_of_table(self.security, |draft| draft.config)?,
            conformance: config_of_table(self.conformance, |draft| draft.config)?,
        })
    }
}
