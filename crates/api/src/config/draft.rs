//! The config file as it was read: every value that is in order, with its place, and gaps for the rest.
//!
//! A [`Draft`] is what the checks between values look at. When nothing is wrong it has no gaps, and
//! [`Draft::finish`] makes the [`Config`] of it.

mod conformance;
mod facilities;
mod geonet;
mod home_agents;
mod mib;
mod policies;
mod security;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use carnet_base::parts;
use ipnet::Ipv6Net;
use toml::de::DeTable;

use crate::address::MacAddress;

use super::auth::auth;
use super::errors::Sink;
use super::reader::{At, Table, Value};
use super::{
    AllowedRouter, Auth, Config, Dataplane, DataplanePath, Heartbeat, HomeAgent, Http, MobileRouter,
    MultipleCareOf, PeerAgent, Policy, ProbeUrl, Registration, Roaming, Sandbox, SignalThresholds, Station,
    Uplink, VolumeAction, VolumePeriod, schema, values,
};

pub(super) use conformance::ConformanceDraft;
pub(super) use facilities::FacilitiesDraft;
pub(super) use geonet::GeonetDraft;
pub(super) use home_agents::{HomeAgentsDraft, PeerDraft};
pub(super) use policies::PolicyDraft;
pub(super) use security::SecurityDraft;

const DEFAULT_MAX_LIFETIME: Duration = Duration::from_secs(600);
const DEFAULT_LIFETIME: Duration = Duration::from_secs(60);
const DEFAULT_PRIORITY: u8 = 10;
/// A path that leads nowhere is noticed within a second.
const DEFAULT_HEARTBEAT: Duration = Duration::from_millis(250);
const DEFAULT_HEARTBEAT_IDLE: Duration = Duration::from_secs(1);
/// A program that measures a signal does so every few seconds.
const DEFAULT_SIGNAL_TIMEOUT: Duration = Duration::from_secs(60);

/// A whole file.
pub(super) struct Draft {
    station: Option<Station>,
    pub dataplane: Option<Dataplane>,
    /// `[home_agent]`, where there is one.
    pub home_agent: Option<HomeAgentDraft>,
    /// `[mobile_router]` or `[mobile_node]`, where there is one.
    pub mobile_router: Option<MobileRouterDraft>,
    /// `[geonet]`, where there is one.
    pub geonet: Option<GeonetDraft>,
    /// `[facilities]`, where there is one.
    pub facilities: Option<FacilitiesDraft>,
    /// `[security]`, where there is one.
    pub security: Option<SecurityDraft>,
    /// `[conformance]`, where there is one.
    pub conformance: Option<ConformanceDraft>,
    /// Whether a table of any of these names is there at all.
    pub has_role: bool,
}

/// `[home_agent]`
pub(super) struct HomeAgentDraft {
    pub address: Option<At<Ipv6Addr>>,
    ipv4_address: Option<Option<Ipv4Addr>>,
    udp: Option<bool>,
    multiple_care_of: Option<MultipleCareOf>,
    care_of_test: Option<bool>,
    pub home_prefix: Option<At<Ipv6Net>>,
    pub home_network: Option<Option<At<Ipv6Net>>>,
    pub home_link: Option<Option<At<String>>>,
    max_lifetime: Option<Duration>,
    preference: Option<u16>,
    pub dhaad: Option<bool>,
    pub peers: Option<Vec<PeerDraft>>,
    pub routers: Option<Vec<AllowedRouterDraft>>,
}

/// `[[home_agent.mobile_router]]`
pub(super) struct AllowedRouterDraft {
    pub home_address: Option<At<Ipv6Addr>>,
    pub prefixes: List<Ipv6Net>,
    pub auth: Option<At<Auth>>,
    pub nat: Option<bool>,
    /// `None` within where the home agent's holds.
    care_of_test: Option<Option<bool>>,
}

/// `[mobile_router]`, or `[mobile_node]`
pub(super) struct MobileRouterDraft {
    /// Which of the two.
    pub is_router: bool,
    pub home_address: Option<At<Ipv6Addr>>,
    pub home_prefix: Option<At<Ipv6Net>>,
    pub home_agents: HomeAgentsDraft,
    udp: Option<bool>,
    heartbeat: Option<Option<Option<Duration>>>,
    heartbeat_idle: Option<Duration>,
    pub policies: Option<Vec<PolicyDraft>>,
    pub prefixes: List<Ipv6Net>,
    registration: Option<Registration>,
    lifetime: Option<Duration>,
    pub lan: List<String>,
    pub advertise: Option<bool>,
    nesting: Option<bool>,
    nested_routers: List<MacAddress>,
    pub direct_routes: List<Ipv6Net>,
    prefix_discovery: Option<bool>,
    captive_portal_probe: Option<Option<ProbeUrl>>,
    pub auth: Option<At<Auth>>,
    pub uplinks: Option<Vec<UplinkDraft>>,
}

/// `[[mobile_router.uplink]]`
pub(super) struct UplinkDraft {
    pub interface: Option<At<String>>,
    pub bid: Option<Option<At<u16>>>,
    cost: Option<u16>,
    capacity: Option<Option<u32>>,
    volume: Option<Option<u64>>,
    volume_period: Option<VolumePeriod>,
    volume_day: Option<u8>,
    volume_action: Option<VolumeAction>,
    roaming: Option<Roaming>,
    priority: Option<u8>,
    signal: Option<Option<SignalThresholds>>,
    signal_file: Option<Option<PathBuf>>,
    signal_timeout: Option<Duration>,
}

/// An array: the elements that are in order, and whether these are all.
pub(super) struct List<T> {
    pub items: Vec<At<T>>,
    pub whole: bool,
}

impl<T> List<T> {
    /// Reads an array of strings; an absent one is empty.
    fn read(
        value: Option<Value<'_>>,
        expected: &str,
        item: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> List<T> {
        let Some(value) = value else { return List { items: Vec::new(), whole: true } };
        let Some(found) = value.array(expected) else { return List { items: Vec::new(), whole: false } };
        let items: Vec<At<T>> = found.iter().filter_map(|value| value.parse(item, &parse)).collect();
        List { whole: items.len() == found.len(), items }
    }

    /// The elements, if these are all.
    fn finish(self) -> Option<Vec<T>> {
        self.whole.then(|| self.items.into_iter().map(|item| item.value).collect())
    }
}

impl Draft {
    /// Reads a document.
    pub(super) fn read(document: &DeTable<'_>, sink: &Sink<'_>) -> Draft {
        let root = Table::open(&schema::ROOT, 0, document, sink);
        let station = root.need("station", "a table [station] with a `name`");
        let dataplane = root.get("dataplane");
        let home_agent = root.get("home_agent");
        let mobile_router = root.get("mobile_router");
        let mobile_node = root.get("mobile_node");
        if let (Some(_), Some(node)) = (&mobile_router, &mobile_node) {
            node.refuse("there is a [mobile_router] already, expected one of the two");
        }
        let geonet = root.get("geonet");
        let facilities = root.get("facilities");
        let security = root.get("security");
        let conformance = root.get("conformance");
        let above = [&geonet, &facilities, &security, &conformance];
        if parts::geonet().is_none() {
            for value in above.into_iter().flatten() {
                value.refuse("this program was built without GeoNetworking, expected no such table");
            }
        }
        Draft {
            has_role: [&home_agent, &mobile_router, &mobile_node, &geonet].iter().any(|role| role.is_some()),
            station: station.and_then(|value| read_station(&value.table(&schema::STATION)?)),
            dataplane: match dataplane {
                Some(value) => value.table(&schema::DATAPLANE).and_then(|table| read_dataplane(&table)),
                None => Some(Dataplane::default()),
            },
            home_agent: home_agent
                .and_then(|value| Some(HomeAgentDraft::read(&value.table(&schema::HOME_AGENT)?, sink))),
            mobile_router: mobile_router
                .map(|value| (value, &ROUTER))
                .or(mobile_node.map(|value| (value, &NODE)))
                .and_then(|(value, kind)| {
                    Some(MobileRouterDraft::read(&value.table(kind.section)?, kind, sink))
                }),
            geonet: parts::geonet().zip(geonet).and_then(|(part, value)| {
                Some(GeonetDraft::read(part, &value.table(&schema::GEONET)?, sink))
            }),
            facilities: parts::geonet().and(facilities).and_then(|value| {
                Some(FacilitiesDraft::read(value.at(), &value.table(&schema::FACILITIES)?))
            }),
            security: parts::geonet().and(security).and_then(|value| {
                Some(SecurityDraft::read(value.at(), &value.table(&schema::SECURITY)?, sink))
            }),
            conformance: parts::geonet().and(conformance).and_then(|value| {
                Some(ConformanceDraft::read(value.at(), &value.table(&schema::CONFORMANCE)?))
            }),
        }
    }

    /// The config, if nothing is missing.
    pub(super) fn finish(self) -> Option<Config> {
        let home_agent = match self.home_agent {
            Some(draft) => Some(draft.finish()?),
            None => None,
        };
        let mobile_router = match self.mobile_router {
            Some(draft) => Some(draft.finish()?),
            None => None,
        };
        let geonet = match self.geonet {
            Some(draft) => Some(draft.finish()?),
            None => None,
        };
        let facilities = match self.facilities {
            Some(draft) => Some(draft.finish()?),
            None => None,
        };
        let security = match self.security {
            Some(draft) => Some(draft.finish()?),
            None => None,
        };
        let conformance = match self.conformance {
            Some(draft) => Some(draft.finish()?),
            None => None,
        };
        let (station, dataplane) = (self.station?, self.dataplane?);
        Some(Config {
            station,
            dataplane,
            home_agent,
            mobile_router,
            geonet,
            facilities,
            security,
            conformance,
        })
    }
}

/// What is expected of `http`.
const HTTP: &str = "an address of this machine with a port, such as \"127.0.0.1:8440\"";

/// Where packages put the dashboard.
const PAGES: &str = "/usr/share/carnet/web";

fn read_station(table: &Table<'_>) -> Option<Station> {
    let name = table.need("name", values::NAME).and_then(|value| value.parse(values::NAME, values::name));
    let socket = table.get("socket").map(|value| value.parse("a path", values::socket));
    let state_dir = path(table.get("state_dir"));
    let record = path(table.get("record"));
    let http = read_http(table);
    let words = [("auto", Sandbox::Auto), ("required", Sandbox::Required), ("off", Sandbox::Off)];
    let sandbox = match table.get("sandbox") {
        Some(value) => value.word(&words, &[]).map(|word| word.value),
        None => Some(Sandbox::default()),
    };
    let name = name?.value;
    let socket = match socket {
        Some(socket) => socket?.value,
        None => PathBuf::from(format!("/run/carnet/{name}.sock")),
    };
    Some(Station { name, socket, state_dir: state_dir?, record: record?, http: http?, sandbox: sandbox? })
}

/// `http` and what goes with it; the outer `None` means that they are wrong.
fn read_http(table: &Table<'_>) -> Option<Option<Http>> {
    let tokens = path(table.get("http_tokens"))?;
    let pages = path(table.get("http_pages"))?.unwrap_or_else(|| PathBuf::from(PAGES));
    let Some(value) = table.get("http") else {
        if let Some(tokens) = table.get("http_tokens") {
            tokens.refuse("without `station.http`, expected both");
            return None;
        }
        return Some(None);
    };
    let parse = |text: &str| match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 || address.ip().is_multicast() => {
            Err(format!("{text:?} is nothing to listen at, expected {HTTP}"))
        }
        Ok(address) if !address.ip().to_canonical().is_loopback() && tokens.is_none() => Err(format!(
            "{text:?} can be reached from afar, expected a loopback address, or http_tokens beside it"
        )),
        Ok(address) => Ok(address),
        Err(_) => Err(format!("{text:?} is no address with a port, expected {HTTP}")),
    };
    let address = value.parse(HTTP, parse)?.value;
    Some(Some(Http { address, tokens, pages }))
}

fn read_dataplane(table: &Table<'_>) -> Option<Dataplane> {
    let words = [
        ("auto", DataplanePath::Auto),
        ("bpf", DataplanePath::Bpf),
        ("xdp", DataplanePath::Xdp),
        ("kernel", DataplanePath::Kernel),
        ("tun", DataplanePath::Tun),
    ];
    let path = match table.get("path") {
        Some(value) => value.word(&words, &[])?.value,
        None => DataplanePath::default(),
    };
    Some(Dataplane { path })
}

/// `care_of_test`; `None` within where it is not said.
fn care_of_test(table: &Table<'_>) -> Option<Option<bool>> {
    match table.get("care_of_test") {
        Some(value) => value.word(&[("on", true), ("off", false)], &[]).map(|word| Some(word.value)),
        None => Some(None),
    }
}

impl HomeAgentDraft {
    fn read(table: &Table<'_>, sink: &Sink<'_>) -> HomeAgentDraft {
        let routers = table.get("mobile_router").map(|value| value.tables(&schema::ALLOWED_ROUTER));
        let care_of = [
            ("bulk", MultipleCareOf::Bulk),
            ("single", MultipleCareOf::Single),
            ("none", MultipleCareOf::None),
        ];
        HomeAgentDraft {
            address: address(table, "address"),
            ipv4_address: ipv4_address(table, "ipv4_address"),
            udp: boolean(table, "udp", false),
            multiple_care_of: match table.get("multiple_care_of") {
                Some(value) => value.word(&care_of, &[]).map(|word| word.value),
                None => Some(MultipleCareOf::default()),
            },
            care_of_test: care_of_test(table).map(|test| test.unwrap_or(true)),
            home_prefix: prefix(table, "home_prefix"),
            home_network: match table.get("home_network") {
                Some(value) => value.parse(values::PREFIX, values::prefix).map(Some),
                None => Some(None),
            },
            home_link: match table.get("home_link") {
                Some(value) => value.parse(values::INTERFACE, values::interface).map(Some),
                None => Some(None),
            },
            max_lifetime: duration(table, "max_lifetime", DEFAULT_MAX_LIFETIME, values::lifetime),
            preference: home_agents::preference(table),
            dhaad: boolean(table, "dhaad", false),
            peers: PeerDraft::read_all(table),
            routers: routers
                .unwrap_or(Some(Vec::new()))
                .map(|tables| tables.iter().map(|table| AllowedRouterDraft::read(table, sink)).collect()),
        }
    }

    fn finish(self) -> Option<HomeAgent> {
        let care_of_test = self.care_of_test?;
        Some(HomeAgent {
            address: self.address?.value,
            ipv4_address: self.ipv4_address?,
            udp: self.udp?,
            multiple_care_of: self.multiple_care_of?,
            care_of_test,
            home_prefix: self.home_prefix?.value,
            home_network: self.home_network?.map(|network| network.value),
            home_link: self.home_link?.map(|link| link.value),
            max_lifetime: self.max_lifetime?,
            preference: self.preference?,
            dhaad: self.dhaad?,
            peers: self.peers?.into_iter().map(PeerDraft::finish).collect::<Option<Vec<PeerAgent>>>()?,
            mobile_routers: self
                .routers?
                .into_iter()
                .map(|router| router.finish(care_of_test))
                .collect::<Option<Vec<AllowedRouter>>>()?,
        })
    }
}

impl AllowedRouterDraft {
    fn read(table: &Table<'_>, sink: &Sink<'_>) -> AllowedRouterDraft {
        AllowedRouterDraft {
            home_address: address(table, "home_address"),
            prefixes: prefixes(table.get("prefixes")),
            auth: auth(table, sink),
            nat: boolean(table, "nat", true),
            care_of_test: care_of_test(table),
        }
    }

    fn finish(self, care_of_test: bool) -> Option<AllowedRouter> {
        Some(AllowedRouter {
            home_address: self.home_address?.value,
            prefixes: self.prefixes.finish()?,
            auth: self.auth?.value,
            nat: self.nat?,
            care_of_test: self.care_of_test?.unwrap_or(care_of_test),
        })
    }
}

/// The tables of a mobile router, or of a mobile node.
struct Kind {
    section: &'static schema::Section,
    uplink: &'static schema::Section,
    uplinks: &'static str,
    policy: &'static schema::Section,
    is_router: bool,
}

const ROUTER: Kind = Kind {
    section: &schema::MOBILE_ROUTER,
    uplink: &schema::UPLINK,
    uplinks: "at least one table [[mobile_router.uplink]]",
    policy: &schema::POLICY,
    is_router: true,
};
const NODE: Kind = Kind {
    section: &schema::MOBILE_NODE,
    uplink: &schema::NODE_UPLINK,
    uplinks: "at least one table [[mobile_node.uplink]]",
    policy: &schema::NODE_POLICY,
    is_router: false,
};

impl MobileRouterDraft {
    fn read(table: &Table<'_>, kind: &Kind, sink: &Sink<'_>) -> MobileRouterDraft {
        // What only a mobile router has.
        let network = |name| if kind.is_router { table.get(name) } else { None };
        let words = [("explicit", Registration::Explicit), ("implicit", Registration::Implicit)];
        let uplinks = table.need("uplink", kind.uplinks).and_then(|value| {
            let tables = value.tables(kind.uplink)?;
            if value.is_empty() {
                value.refuse(&format!("there is no uplink, expected {}", kind.uplinks));
            }
            Some(tables.iter().map(UplinkDraft::read).collect())
        });
        MobileRouterDraft {
            is_router: kind.is_router,
            home_address: address(table, "home_address"),
            home_prefix: prefix(table, "home_prefix"),
            home_agents: HomeAgentsDraft::read(table),
            udp: boolean(table, "udp", false),
            heartbeat: match table.get("heartbeat") {
                Some(value) if value.as_str() == Some("off") => Some(Some(None)),
                Some(value) => value
                    .parse("a duration such as \"250ms\", or \"off\"", values::heartbeat)
                    .map(|interval| Some(Some(interval.value))),
                None => Some(None),
            },
            heartbeat_idle: duration(table, "heartbeat_idle", DEFAULT_HEARTBEAT_IDLE, values::heartbeat),
            policies: policies::policies(table.get("policy"), kind.policy),
            prefixes: prefixes(network("prefixes")),
            registration: match network("registration") {
                _ if !kind.is_router => Some(Registration::Host),
                Some(value) => value.word(&words, &[]).map(|registration| registration.value),
                None => Some(Registration::default()),
            },
            lifetime: duration(table, "lifetime", DEFAULT_LIFETIME, values::lifetime),
            lan: List::read(network("lan"), "an array of interfaces", values::INTERFACE, values::interface),
            advertise: match network("advertise") {
                Some(value) => value.boolean(),
                None => Some(true),
            },
            nesting: boolean(table, "nesting", false),
            nested_routers: List::read(
                network("nested_routers"),
                "an array of link-layer addresses",
                "a link-layer address such as 02:00:00:00:00:0a",
                values::geonet::own_mac,
            ),
            direct_routes: prefixes(network("direct_routes")),
            prefix_discovery: boolean(table, "prefix_discovery", false),
            captive_portal_probe: match table.get("captive_portal_probe") {
                Some(value) => value.parse(values::PROBE_URL, values::probe_url).map(|url| Some(url.value)),
                None => Some(None),
            },
            auth: auth(table, sink),
            uplinks,
        }
    }

    fn finish(self) -> Option<MobileRouter> {
        let uplinks = self.uplinks?.into_iter().map(UplinkDraft::finish).collect::<Option<Vec<Uplink>>>()?;
        let idle = self.heartbeat_idle?;
        let interval = match self.heartbeat? {
            Some(interval) => interval,
            // By themselves where several paths have to be told from each other.
            None => uplinks.iter().any(|uplink| uplink.bid.is_some()).then_some(DEFAULT_HEARTBEAT),
        };
        Some(MobileRouter {
            udp: self.udp?,
            heartbeat: interval.map(|busy| Heartbeat { busy, idle: idle.max(busy) }),
            policies: self.policies?.into_iter().map(PolicyDraft::finish).collect::<Option<Vec<Policy>>>()?,
            home_address: self.home_address?.value,
            home_prefix: self.home_prefix?.value,
            home_agents: self.home_agents.finish()?,
            prefixes: self.prefixes.finish()?,
            registration: self.registration?,
            lifetime: self.lifetime?,
            lan: self.lan.finish()?,
            advertise: self.advertise?,
            nesting: self.nesting?,
            nested_routers: self.nested_routers.finish()?,
            direct_routes: self.direct_routes.finish()?,
            prefix_discovery: self.prefix_discovery?,
            captive_portal_probe: self.captive_portal_probe?,
            auth: self.auth?.value,
            uplinks,
        })
    }
}

impl UplinkDraft {
    fn read(table: &Table<'_>) -> UplinkDraft {
        let interface = table.need("interface", values::INTERFACE);
        let periods =
            [("day", VolumePeriod::Day), ("week", VolumePeriod::Week), ("month", VolumePeriod::Month)];
        let actions = [("last_resort", VolumeAction::LastResort), ("stop", VolumeAction::Stop)];
        let roaming = [("allowed", Roaming::Allowed), ("never", Roaming::Never)];
        UplinkDraft {
            interface: interface.and_then(|value| value.parse(values::INTERFACE, values::interface)),
            bid: match table.get("bid") {
                // RFC 5648 4.1: zero is no identifier.
                Some(value) => value
                    .integer(1, u16::MAX.into())
                    .and_then(|n| Some(Some(At { at: n.at, value: u16::try_from(n.value).ok()? }))),
                None => Some(None),
            },
            priority: match table.get("priority") {
                // RFC 6089 4.1: seven bits, and never zero.
                Some(value) => value.integer(1, 127).and_then(|n| u8::try_from(n.value).ok()),
                None => Some(DEFAULT_PRIORITY),
            },
            capacity: match table.get("capacity") {
                Some(value) => value.integer(1, 100_000_000).map(|kbit_s| Some(kbit_s.value)),
                None => Some(None),
            },
            volume: match table.get("volume") {
                Some(value) => value.parse(values::VOLUME, values::volume).map(|octets| Some(octets.value)),
                None => Some(None),
            },
            volume_period: match table.get("volume_period") {
                Some(value) => value.word(&periods, &[]).map(|period| period.value),
                None => Some(VolumePeriod::default()),
            },
            volume_day: match table.get("volume_day") {
                Some(value) => value.integer(1, 31).and_then(|day| u8::try_from(day.value).ok()),
                None => Some(1),
            },
            volume_action: match table.get("volume_action") {
                Some(value) => value.word(&actions, &[]).map(|action| action.value),
                None => Some(VolumeAction::default()),
            },
            roaming: match table.get("roaming") {
                Some(value) => value.word(&roaming, &[]).map(|roaming| roaming.value),
                None => Some(Roaming::default()),
            },
            cost: match table.get("cost") {
                Some(value) => value.integer(0, 65_535).and_then(|cost| u16::try_from(cost.value).ok()),
                None => Some(0),
            },
            signal: match table.get("signal") {
                Some(value) => value.table(&schema::SIGNAL).and_then(|table| thresholds(&table)).map(Some),
                None => Some(None),
            },
            signal_file: path(table.get("signal_file")),
            signal_timeout: duration(table, "signal_timeout", DEFAULT_SIGNAL_TIMEOUT, values::signal_timeout),
        }
    }

    fn finish(self) -> Option<Uplink> {
        Some(Uplink {
            interface: self.interface?.value,
            bid: self.bid?.map(|bid| bid.value),
            cost: self.cost?,
            capacity: self.capacity?,
            volume: self.volume?,
            volume_period: self.volume_period?,
            volume_day: self.volume_day?,
            volume_action: self.volume_action?,
            roaming: self.roaming?,
            priority: self.priority?,
            signal: self.signal?,
            signal_file: self.signal_file?,
            signal_timeout: self.signal_timeout?,
        })
    }
}

/// The inline table of `signal`. Between the two an uplink stays what it was, so that it does not flap.
fn thresholds(table: &Table<'_>) -> Option<SignalThresholds> {
    let expected = "an integer from -200 to 100";
    let (good, poor) = (table.need("good", expected), table.need("poor", expected));
    let read = |value: &Value<'_>| value.signed(-200, 100).and_then(|dbm| i32::try_from(dbm).ok());
    let (good, poor_at) = (good.map(|value| read(&value)), poor);
    let poor = poor_at.as_ref().map(read);
    let (good, poor) = (good??, poor??);
    if let Some(at) = poor_at.filter(|_| poor >= good) {
        at.refuse(&format!("{poor} dBm is not less than `good`, expected less than {good}"));
        return None;
    }
    Some(SignalThresholds { good, poor })
}

/// An address that has to be there.
fn address(table: &Table<'_>, name: &'static str) -> Option<At<Ipv6Addr>> {
    table.need(name, values::ADDRESS)?.parse(values::ADDRESS, values::address)
}

/// A boolean with a default.
fn boolean(table: &Table<'_>, name: &'static str, default: bool) -> Option<bool> {
    table.get(name).map_or(Some(default), |value| value.boolean())
}

/// An optional IPv4 address; the outer `None` means that it is wrong.
fn ipv4_address(table: &Table<'_>, name: &'static str) -> Option<Option<Ipv4Addr>> {
    match table.get(name) {
        Some(value) => value.parse(values::IPV4_ADDRESS, values::ipv4_address).map(|found| Some(found.value)),
        None => Some(None),
    }
}

/// A prefix that has to be there.
fn prefix(table: &Table<'_>, name: &'static str) -> Option<At<Ipv6Net>> {
    table.need(name, values::PREFIX)?.parse(values::PREFIX, values::prefix)
}

/// Mobile network prefixes.
fn prefixes(value: Option<Value<'_>>) -> List<Ipv6Net> {
    List::read(value, "an array of prefixes", values::PREFIX, values::prefix)
}

/// An optional path; the outer `None` means that it is wrong.
fn path(value: Option<Value<'_>>) -> Option<Option<PathBuf>> {
    match value {
        Some(value) => value.parse("a path", values::path).map(|path| Some(path.value)),
        None => Some(None),
    }
}

/// A duration with a default.
pub(super) fn duration(
    table: &Table<'_>,
    name: &'static str,
    default: Duration,
    parse: fn(&str) -> Result<Duration, String>,
) -> Option<Duration> {
    match table.get(name) {
        Some(value) => value.parse(values::DURATION, parse).map(|duration| duration.value),
        None => Some(default),
    }
}
