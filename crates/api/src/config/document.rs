//! The whole config file: its tables and their values.
//!
//! A [`Draft`] has every value that the checks compare, with its position in the file. It also has the config
//! of each table that has no errors.

use toml::de::DeTable;

use super::dataplane::Dataplane;
use super::errors::Sink;
use super::keys::{Section, Tables, required_table, table};
use super::station::Station;
use super::table::Table;
use super::{
    Config, conformance, dataplane, facilities, geonet, home_agent, mobile_router, security, station,
};

static STATION: Tables = required_table("station", &station::SECTION, "a table [station] with a `name`", "");
static DATAPLANE: Tables = table("dataplane", &dataplane::SECTION, "");
static HOME_AGENT: Tables = table("home_agent", &home_agent::SECTION, "");
static MOBILE_ROUTER: Tables = table("mobile_router", &mobile_router::SECTION, "");
static MOBILE_NODE: Tables = table("mobile_node", &mobile_router::SECTION_OF_NODE, "");
static GEONET: Tables = table("geonet", &geonet::SECTION, "");
static FACILITIES: Tables = table("facilities", &facilities::SECTION, "");
static SECURITY: Tables = table("security", &security::SECTION, "");
static CONFORMANCE: Tables = table("conformance", &conformance::SECTION, "");

/// The top level of the file, which contains the tables.
pub(super) static ROOT: Section = Section::new(
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
pub(super) fn sections() -> Vec<&'static Section> {
    fn add(section: &'static Section, found: &mut Vec<&'static Section>) {
        let below = section.keys.iter().filter_map(|key| key.declaration().below);
        for section in below {
            if !found.iter().any(|other| other.path == section.path) {
                found.push(section);
                add(section, found);
            }
        }
    }
    let mut found = Vec::new();
    add(&ROOT, &mut found);
    found
}

/// Values of a whole config file before the checks between tables.
pub(super) struct Draft {
    pub station: Option<Station>,
    pub dataplane: Option<Dataplane>,
    /// `[home_agent]`; `None` if absent.
    pub home_agent: Option<home_agent::Draft>,
    /// `[mobile_router]` or `[mobile_node]`; `None` if both are absent.
    pub mobile_router: Option<mobile_router::Draft>,
    /// `[geonet]`; `None` if absent.
    pub geonet: Option<geonet::Draft>,
    /// `[facilities]`; `None` if absent.
    pub facilities: Option<facilities::Draft>,
    /// `[security]`; `None` if absent.
    pub security: Option<security::Draft>,
    /// `[conformance]`; `None` if absent.
    pub conformance: Option<conformance::Draft>,
    /// Whether the file has a table of any role, with or without errors.
    pub has_role: bool,
}

impl Draft {
    /// Reads all tables of a parsed config file. Reports their errors to `sink`.
    pub(super) fn read(document: &DeTable<'_>, sink: &Sink<'_>) -> Draft {
        let root = Table::open(&ROOT, 0, document, sink);
        let open = |key| root.table(key).flatten();
        // Without the Cargo feature `geonet`, a table of GeoNetworking is an error, and the reader does not
        // read it.
        let of_geonet = |key| if cfg!(feature = "geonet") { open(key) } else { None };
        let station = open(&STATION);
        if let (Some(_), Some(node)) = (root.value(&MOBILE_ROUTER), root.value(&MOBILE_NODE)) {
            node.refuse("found [mobile_router] and [mobile_node], expected one of the two");
        }
        if !cfg!(feature = "geonet") {
            for key in [&GEONET, &FACILITIES, &SECURITY, &CONFORMANCE] {
                if let Some(value) = root.value(key) {
                    value.refuse("this program was built without GeoNetworking, expected no such table");
                }
            }
        }
        let roles = [&HOME_AGENT, &MOBILE_ROUTER, &MOBILE_NODE, &GEONET];
        Draft {
            has_role: roles.iter().any(|role| root.value(*role).is_some()),
            station: station.and_then(|table| station::read(&table)),
            dataplane: root.table_or_defaults(&DATAPLANE).and_then(|table| dataplane::read(&table)),
            home_agent: open(&HOME_AGENT).map(|table| home_agent::Draft::read(&table)),
            mobile_router: match root.value(&MOBILE_ROUTER) {
                Some(_) => open(&MOBILE_ROUTER).map(|table| mobile_router::Draft::read(&table)),
                None => open(&MOBILE_NODE).map(|table| mobile_router::Draft::read_node(&table)),
            },
            geonet: of_geonet(&GEONET).map(|table| geonet::Draft::read(&table)),
            facilities: of_geonet(&FACILITIES).map(|table| facilities::Draft::read(&table)),
            security: of_geonet(&SECURITY).map(|table| security::Draft::read(&table)),
            conformance: of_geonet(&CONFORMANCE).map(|table| conformance::Draft::read(&table)),
        }
    }

    /// Returns the config if no table has an error.
    pub(super) fn finish(self) -> Option<Config> {
        /// Returns the config of an optional table; the outer `None` means that the table has an error.
        fn config<D, C>(draft: Option<D>, config: impl FnOnce(D) -> Option<C>) -> Option<Option<C>> {
            match draft {
                Some(draft) => config(draft).map(Some),
                None => Some(None),
            }
        }
        Some(Config {
            station: self.station?,
            dataplane: self.dataplane?,
            home_agent: config(self.home_agent, |draft| draft.config)?,
            mobile_router: config(self.mobile_router, |draft| draft.config)?,
            geonet: config(self.geonet, |draft| draft.config)?,
            facilities: config(self.facilities, |draft| draft.config)?,
            security: config(self.security, |draft| draft.config)?,
            conformance: config(self.conformance, |draft| draft.config)?,
        })
    }
}
