//! `[geonet]` as it was read.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::parts;
use ipnet::Ipv6Net;

use super::super::errors::Sink;
use super::super::geonet::{
    Area, AreaForwarding, AreaShape, Authorization, Beacon, BeaconInterval, Coordinates, Dcc, DccAlgorithm,
    DccTimeOnAir, Forwarding, Geonet, GeonetAddress, GeonetInterface, Ipv6, Mnpp, MultiHopBeacons, Multicast,
    Planarisation, PositionSource, Recovery, ReorderHold, ReorderRule, Standard, StationType,
    UnicastForwarding,
};
use super::super::mib::Mib;
use super::super::reader::{At, Table, Value};
use super::super::values::geonet as values;
use super::super::{schema, values as common};
use super::{List, mib};

const DEFAULT_RANGE_M: u16 = 1000;
const DEFAULT_INTERVAL: Duration = Duration::from_secs(3);
const DEFAULT_ANNOUNCEMENTS: Duration = Duration::from_secs(10);
/// The numbers of the paper behind adaptive beacons.
const DEFAULT_BEACONS_IN_RANGE: u32 = 16;
const DEFAULT_SHORTEST: Duration = Duration::from_millis(100);
const DEFAULT_LONGEST: Duration = Duration::from_secs(2);
const DEFAULT_LOAD_LIMIT: u32 = 500;
/// RFC 3810 9.2 and 9.3.
const DEFAULT_QUERY_INTERVAL: Duration = Duration::from_secs(125);
const DEFAULT_QUERY_RESPONSE_INTERVAL: Duration = Duration::from_secs(10);

/// `[geonet]`
pub(in crate::config) struct GeonetDraft {
    /// Without it there is none.
    _part: parts::Geonet,
    pub interface: Option<At<GeonetInterface>>,
    station_type: Option<StationType>,
    address: Option<GeonetAddress>,
    set_link_address: Option<bool>,
    position: Option<PositionSource>,
    pub ipv6_interface: Option<Option<At<String>>>,
    pub ipv6: Option<Ipv6Draft>,
    pub mnpp: Option<Option<At<Mnpp>>>,
    pub multicast: Option<Option<MulticastDraft>>,
    dcc: Option<Option<Dcc>>,
    forwarding: Option<Forwarding>,
    beacon: Option<Beacon>,
    range_m: Option<u16>,
    standard: Option<Standard>,
    mib: Option<Mib>,
    pub areas: Option<Vec<AreaDraft>>,
}

/// `[geonet.ipv6]`
pub(in crate::config) struct Ipv6Draft {
    /// Where it stands, if it is there.
    pub at: Option<usize>,
    pub dynamic_interface: Option<At<String>>,
    learnt_links: u8,
    hop_limit: Option<u8>,
    reorder_wait: Duration,
    reorder_rule: ReorderRule,
    reorder_hold: ReorderHold,
    congestion_mark: Option<u32>,
    fragments: bool,
}

/// `[geonet.multicast]`
pub(in crate::config) struct MulticastDraft {
    /// Where it stands.
    pub at: usize,
    pub lan: List<String>,
    unmapped: bool,
    robustness: u8,
    query_interval: Duration,
    query_response_interval: Duration,
}

/// `[[geonet.area]]`
pub(in crate::config) struct AreaDraft {
    pub name: Option<At<String>>,
    shape: Option<AreaShape>,
    center: Option<Coordinates>,
    /// Distances a and b, and the angle.
    extent: Option<(u16, u16, u16)>,
    pub group: Option<Option<At<Ipv6Addr>>>,
    prefix: Option<Option<At<Ipv6Net>>>,
    pub ipv6_interface: Option<Option<At<String>>>,
}

impl GeonetDraft {
    pub(in crate::config) fn read(part: parts::Geonet, table: &Table<'_>, sink: &Sink<'_>) -> GeonetDraft {
        let interface = table.need("interface", values::LINK);
        let position = table.need("position", values::POSITION);
        let standards =
            [("1.4.1", Standard::V1_4_1), ("1.3.1", Standard::V1_3_1), ("1.2.1", Standard::V1_3_1)];
        let forwarding = table.get("forwarding");
        let beacon = table.get("beacon");
        let mib = match table.get("mib") {
            Some(value) => value.table(&schema::MIB).and_then(|table| mib::read(&table)),
            None => Some(Mib::default()),
        };
        let max_area_size = mib.as_ref().map_or(Mib::default().max_area_size, |mib| mib.max_area_size);
        let areas = table.get("area").map(|value| value.tables(&schema::AREA));
        GeonetDraft {
            _part: part,
            interface: interface.and_then(|value| value.parse(values::LINK, values::link)),
            station_type: word(table, "station_type", &StationType::NAMES),
            address: match table.get("address") {
                Some(value) => {
                    value.parse(values::GN_ADDRESS, values::gn_address).map(|address| address.value)
                }
                None => Some(GeonetAddress::default()),
            },
            set_link_address: match table.get("set_link_address") {
                Some(value) => value.boolean(),
                None => Some(true),
            },
            position: position
                .and_then(|value| value.parse(values::POSITION, |text| values::position(text, sink.file())))
                .map(|position| position.value),
            ipv6_interface: interface_name(table, "ipv6_interface"),
            ipv6: match table.get("ipv6") {
                Some(value) => value.table(&schema::IPV6).and_then(|table| Ipv6Draft::read(&table)),
                None => Some(Ipv6Draft {
                    at: None,
                    dynamic_interface: None,
                    learnt_links: 0,
                    hop_limit: None,
                    reorder_wait: Duration::ZERO,
                    reorder_rule: ReorderRule::default(),
                    reorder_hold: ReorderHold::default(),
                    congestion_mark: None,
                    fragments: false,
                }),
            },
            mnpp: match table.get("mnpp") {
                Some(value) => value.table(&schema::MNPP).and_then(|table| read_mnpp(&table)).map(Some),
                None => Some(None),
            },
            multicast: match table.get("multicast") {
                Some(value) => {
                    value.table(&schema::MULTICAST).and_then(|table| MulticastDraft::read(&table)).map(Some)
                }
                None => Some(None),
            },
            dcc: match table.get("dcc") {
                Some(value) => value.table(&schema::DCC).and_then(|table| read_dcc(&table)).map(Some),
                None => Some(None),
            },
            forwarding: match forwarding {
                Some(value) => value.table(&schema::FORWARDING).and_then(|table| read_forwarding(&table)),
                None => Some(Forwarding::default()),
            },
            beacon: match beacon {
                Some(value) => value.table(&schema::BEACON).and_then(|table| read_beacon(&table)),
                None => Some(Beacon {
                    interval: BeaconInterval::Fixed {
                        interval: DEFAULT_INTERVAL,
                        jitter: DEFAULT_INTERVAL / 4,
                    },
                    company_speed: false,
                    deviation_m: None,
                    lifetime: None,
                    piggyback: false,
                    multi_hop: None,
                }),
            },
            range_m: match table.get("range") {
                Some(value) => value.parse(values::LENGTH, values::length).map(|range| range.value),
                None => Some(DEFAULT_RANGE_M),
            },
            standard: word(table, "standard", &standards),
            mib,
            areas: areas.unwrap_or(Some(Vec::new())).map(|tables| {
                tables.iter().map(|table| AreaDraft::read(table, max_area_size, sink)).collect()
            }),
        }
    }

    /// Whether its address is the security entity's business; also where the key could not be read.
    pub(in crate::config) fn is_anonymous(&self) -> bool {
        self.address.is_none_or(|address| address == GeonetAddress::Anonymous)
    }

    pub(in crate::config) fn finish(self) -> Option<Geonet> {
        let ipv6 = self.ipv6?;
        Some(Geonet {
            mnpp: self.mnpp?.map(|mnpp| mnpp.value),
            ipv6: self.ipv6_interface?.map(|interface| Ipv6 {
                interface: interface.value,
                dynamic_interface: ipv6.dynamic_interface.map(|interface| interface.value),
                learnt_links: ipv6.learnt_links,
                hop_limit: ipv6.hop_limit,
                reorder_wait: ipv6.reorder_wait,
                reorder_rule: ipv6.reorder_rule,
                reorder_hold: ipv6.reorder_hold,
                congestion_mark: ipv6.congestion_mark,
                fragments: ipv6.fragments,
            }),
            multicast: match self.multicast? {
                Some(multicast) => Some(multicast.finish()?),
                None => None,
            },
            interface: self.interface?.value,
            station_type: self.station_type?,
            address: self.address?,
            set_link_address: self.set_link_address?,
            position: self.position?,
            dcc: self.dcc?,
            forwarding: self.forwarding?,
            beacon: self.beacon?,
            range_m: self.range_m?,
            standard: self.standard?,
            mib: self.mib?,
            areas: self.areas?.into_iter().map(AreaDraft::finish).collect::<Option<Vec<Area>>>()?,
        })
    }
}

impl Ipv6Draft {
    fn read(table: &Table<'_>) -> Option<Ipv6Draft> {
        let dynamic_interface = interface_name(table, "dynamic_interface");
        let learnt_links = integer(table, "learnt_links", 0, 64, 0);
        let hop_limit = match table.get("hop_limit") {
            Some(value) => value.integer(1, 255).map(|limit| u8::try_from(limit.value).ok()),
            None => Some(None),
        };
        let reorder_wait = duration(table, "reorder_wait", Some(Duration::ZERO), values::reorder_wait);
        let rules = [
            ("shorter", ReorderRule::Shorter),
            ("changed", ReorderRule::Changed),
            ("always", ReorderRule::Always),
        ];
        let reorder_rule = word(table, "reorder_rule", &rules);
        let holds = [("packets", ReorderHold::Packets), ("acknowledgements", ReorderHold::Acknowledgements)];
        let reorder_hold = word(table, "reorder_hold", &holds);
        let congestion_mark = match table.get("congestion_mark") {
            Some(value) => value.integer(1, 10_000_000).map(|mark| Some(mark.value)),
            None => Some(None),
        };
        let fragments = match table.get("fragments") {
            Some(value) => value.boolean(),
            None => Some(false),
        };
        Some(Ipv6Draft {
            at: Some(table.at()),
            dynamic_interface: dynamic_interface?,
            learnt_links: u8::try_from(learnt_links?).ok()?,
            hop_limit: hop_limit?,
            reorder_wait: reorder_wait?,
            reorder_rule: reorder_rule?,
            reorder_hold: reorder_hold?,
            congestion_mark: congestion_mark?,
            fragments: fragments?,
        })
    }
}

impl MulticastDraft {
    fn read(table: &Table<'_>) -> Option<MulticastDraft> {
        let lan = table.need("lan", "an array of interfaces");
        let lan = List::read(lan, "an array of interfaces", common::INTERFACE, common::interface);
        let unmapped = match table.get("unmapped") {
            Some(value) => value.boolean(),
            None => Some(false),
        };
        let robustness = integer(table, "robustness", 1, 7, 2);
        let query_interval =
            duration(table, "query_interval", Some(DEFAULT_QUERY_INTERVAL), values::query_interval);
        let response = duration(
            table,
            "query_response_interval",
            Some(DEFAULT_QUERY_RESPONSE_INTERVAL),
            values::query_response_interval,
        );
        if let (Some(interval), Some(response), Some(value)) =
            (query_interval, response, table.get("query_response_interval").or(table.get("query_interval")))
            && response >= interval
        {
            // RFC 3810 9.3
            value.refuse(
                "hosts have no time to answer, expected a response interval shorter than the interval",
            );
        }
        Some(MulticastDraft {
            at: table.at(),
            lan,
            unmapped: unmapped?,
            robustness: u8::try_from(robustness?).ok()?,
            query_interval: query_interval?,
            query_response_interval: response?,
        })
    }

    fn finish(self) -> Option<Multicast> {
        Some(Multicast {
            lan: self.lan.finish()?,
            unmapped: self.unmapped,
            robustness: self.robustness,
            query_interval: self.query_interval,
            query_response_interval: self.query_response_interval,
        })
    }
}

impl AreaDraft {
    /// `largest` is in square kilometres.
    fn read(table: &Table<'_>, largest: u32, sink: &Sink<'_>) -> AreaDraft {
        let name = table.need("name", common::NAME);
        let shapes = [
            ("circle", AreaShape::Circle),
            ("rectangle", AreaShape::Rectangle),
            ("ellipse", AreaShape::Ellipse),
        ];
        let shape = table.need("shape", "\"circle\", \"rectangle\" or \"ellipse\"");
        let shape = shape.and_then(|value| value.word(&shapes, &[])).map(|shape| shape.value);
        AreaDraft {
            name: name.and_then(|value| value.parse(common::NAME, common::name)),
            shape,
            center: table.need("center", values::CENTER).and_then(|value| center(&value)),
            extent: extent(table, shape, largest, sink),
            group: match table.get("group") {
                Some(value) => value.parse(values::GROUP, values::group).map(Some),
                None => Some(None),
            },
            prefix: match table.get("prefix") {
                Some(value) => value.parse(common::PREFIX, values::subnet).map(Some),
                None => Some(None),
            },
            ipv6_interface: interface_name(table, "ipv6_interface"),
        }
    }

    fn finish(self) -> Option<Area> {
        let (distance_a_m, distance_b_m, angle_deg) = self.extent?;
        Some(Area {
            name: self.name?.value,
            shape: self.shape?,
            center: self.center?,
            distance_a_m,
            distance_b_m,
            angle_deg,
            group: self.group?.map(|group| group.value),
            prefix: self.prefix?.map(|prefix| prefix.value),
            ipv6_interface: self.ipv6_interface?.map(|interface| interface.value),
        })
    }
}

/// The name of an interface, if one is given.
fn interface_name(table: &Table<'_>, name: &'static str) -> Option<Option<At<String>>> {
    match table.get(name) {
        Some(value) => value.parse(common::INTERFACE, common::interface).map(Some),
        None => Some(None),
    }
}

/// How far an area reaches: a circle by its radius, any other by two distances and an angle.
fn extent(
    table: &Table<'_>,
    shape: Option<AreaShape>,
    largest: u32,
    sink: &Sink<'_>,
) -> Option<(u16, u16, u16)> {
    let names = ["radius", "distance_a", "distance_b"];
    let found = names.map(|name| table.get(name));
    let lengths = found.each_ref().map(|value| {
        value.as_ref().map(|value| value.parse(values::LENGTH, values::length).map(|length| length.value))
    });
    let angle = match table.get("angle") {
        Some(value) => value.integer(0, 359).and_then(|angle| u16::try_from(angle.value).ok()),
        None => Some(0),
    };
    let shape = shape?;
    let circle = shape == AreaShape::Circle;
    let (needed, others) = if circle { (&names[..1], &names[1..]) } else { (&names[1..], &names[..1]) };
    for name in others.iter().chain(circle.then_some(&"angle")) {
        if let Some(value) = table.get(name) {
            let (what, expected) = match circle {
                true => ("a circle has none", "`radius` alone"),
                false => ("only a circle has one", "`distance_a` and `distance_b`"),
            };
            value.refuse(&format!("{what}, expected {expected}"));
        }
    }
    for name in needed {
        table.need(name, values::LENGTH);
    }
    let [radius, distance_a, distance_b] = lengths;
    let (a, b) = if circle { (radius??, 0) } else { (distance_a??, distance_b??) };
    let (a_km, b_km) = (f64::from(a) / 1000.0, f64::from(b) / 1000.0);
    let size = match shape {
        AreaShape::Circle => std::f64::consts::PI * a_km * a_km,
        AreaShape::Rectangle => 4.0 * a_km * b_km,
        AreaShape::Ellipse => std::f64::consts::PI * a_km * b_km,
    };
    if size > f64::from(largest) {
        let at = found.iter().flatten().next().map_or(table.at(), Value::at);
        let message = format!("the area has {size:.2} square kilometres, expected {largest} at most");
        sink.push(at, message);
    }
    Some((a, b, angle?))
}

/// `[LATITUDE, LONGITUDE]`
fn center(value: &Value<'_>) -> Option<Coordinates> {
    let items = value.array(values::CENTER)?;
    let [latitude, longitude] = items.as_slice() else {
        value.refuse(&format!("an array of {} does not go here, expected {}", items.len(), values::CENTER));
        return None;
    };
    let latitude = latitude.number("a latitude from -90 to 90 degrees", values::latitude);
    let longitude = longitude.number("a longitude from -180 to 180 degrees", values::longitude);
    Some(Coordinates { latitude: latitude?, longitude: longitude? })
}

fn read_mnpp(table: &Table<'_>) -> Option<At<Mnpp>> {
    let authorization = word(
        table,
        "authorization",
        &[("home_agent", Authorization::HomeAgent), ("none", Authorization::None)],
    );
    let shortest_prefix = integer(table, "shortest_prefix", 1, 128, 64);
    let hops = integer(table, "hops", 1, 10, 1);
    let interval = duration(table, "interval", Some(DEFAULT_ANNOUNCEMENTS), values::announcement_interval);
    let value = Mnpp {
        authorization: authorization?,
        shortest_prefix: u8::try_from(shortest_prefix?).ok()?,
        hops: u8::try_from(hops?).ok()?,
        interval: interval?,
    };
    Some(At { value, at: table.at() })
}

fn read_forwarding(table: &Table<'_>) -> Option<Forwarding> {
    let unicast = [("greedy", UnicastForwarding::Greedy), ("cbf", UnicastForwarding::ContentionBased)];
    let area = [
        ("simple", AreaForwarding::Simple),
        ("cbf", AreaForwarding::ContentionBased),
        ("advanced", AreaForwarding::Advanced),
    ];
    let unicast = word(table, "unicast", &unicast);
    let area = word(table, "area", &area);
    let gpsr = match table.get("recovery") {
        Some(value) => value.word(&[("none", false), ("gpsr", true)], &[]).map(|word| word.value),
        None => Some(false),
    };
    let graphs = [("gabriel", Planarisation::Gabriel), ("rng", Planarisation::RelativeNeighbourhood)];
    let planarisation = word(table, "planarisation", &graphs);
    if let (Some(value), Some(false)) = (table.get("planarisation"), gpsr) {
        value.refuse(
            "a planarisation goes with perimeter recovery only, expected recovery = \"gpsr\" beside it",
        );
    }
    let planarisation = planarisation?;
    let recovery = if gpsr? { Recovery::Gpsr(planarisation) } else { Recovery::None };
    let link_lifetime = match table.get("link_lifetime") {
        Some(value) => value.parse(common::DURATION, values::link_lifetime).map(|span| Some(span.value)),
        None => Some(None),
    };
    Some(Forwarding { unicast: unicast?, area: area?, recovery, link_lifetime: link_lifetime? })
}

/// `geonet.dcc.data_rate`, Mbit/s; 4.5 is no integer.
const DCC_DATA_RATES: [u8; 7] = [3, 6, 9, 12, 18, 24, 27];

fn read_dcc(table: &Table<'_>) -> Option<Dcc> {
    let algorithms = [("reactive", DccAlgorithm::Reactive), ("adaptive", DccAlgorithm::Adaptive)];
    let algorithm = word(table, "algorithm", &algorithms);
    let times = [("1ms", DccTimeOnAir::Millisecond), ("500us", DccTimeOnAir::Half)];
    let time_on_air = word(table, "time_on_air", &times);
    let data_rate = match table.get("data_rate") {
        Some(value) => value.integer(3, 27).and_then(|rate| match u8::try_from(rate.value) {
            Ok(rate) if DCC_DATA_RATES.contains(&rate) => Some(rate),
            _ => {
                value.refuse(&format!(
                    "{} Mbit/s is no rate of 802.11p with 10 MHz, expected 3, 6, 9, 12, 18, 24 or 27",
                    rate.value
                ));
                None
            }
        }),
        None => Some(6),
    };
    // More would wait longer than anything is worth waiting for, and a second holds 20 packets at most.
    let queue_length = integer(table, "queue_length", 1, 100, 10);
    let assumed_busy = integer(table, "assumed_busy", 0, 100, 0);
    Some(Dcc {
        algorithm: algorithm?,
        time_on_air: time_on_air?,
        data_rate: data_rate?,
        queue_length: u16::try_from(queue_length?).ok()?,
        assumed_busy: u8::try_from(assumed_busy?).ok()?,
    })
}

fn read_beacon(table: &Table<'_>) -> Option<Beacon> {
    let adaptive = match table.get("adaptive") {
        Some(value) => value.boolean(),
        None => Some(false),
    };
    let interval = duration(table, "interval", Some(DEFAULT_INTERVAL), common::beacon_interval);
    let jitter = duration(table, "jitter", interval.map(|interval| interval / 4), common::jitter);
    let beacons_in_range = integer(table, "beacons_in_range", 1, 1000, DEFAULT_BEACONS_IN_RANGE);
    let shortest = duration(table, "shortest", Some(DEFAULT_SHORTEST), common::beacon_interval);
    let longest = duration(table, "longest", Some(DEFAULT_LONGEST), common::beacon_interval);
    let load_limit = integer(table, "load_limit", 0, 100_000, DEFAULT_LOAD_LIMIT);
    let piggyback = match table.get("piggyback") {
        Some(value) => value.boolean(),
        None => Some(false),
    };
    let hops = integer(table, "hops", 1, 255, 1);
    let every = integer(table, "every", 1, 10_000, 1);

    let company_speed = match table.get("company_speed") {
        Some(value) => value.boolean(),
        None => Some(false),
    };
    let deviation_m = match table.get("deviation") {
        Some(value) => value.parse(values::LENGTH, values::length).map(|length| Some(length.value)),
        None => Some(None),
    };
    let lifetime = match table.get("lifetime") {
        Some(value) => value.integer(1, 63).map(|intervals| u8::try_from(intervals.value).ok()),
        None => Some(None),
    };

    let (others, what) = match adaptive {
        Some(true) => {
            (&["interval", "jitter"][..], "goes with a fixed interval only, expected adaptive = false")
        }
        Some(false) => (
            &["beacons_in_range", "shortest", "longest", "load_limit", "company_speed", "deviation"][..],
            "goes with adaptive beacons only, expected adaptive = true beside it",
        ),
        None => (&[][..], ""),
    };
    for value in others.iter().filter_map(|name| table.get(name)) {
        value.refuse(what);
    }
    if let (Some(least), Some(most), Some(value)) =
        (shortest, longest, table.get("longest").or(table.get("shortest")))
        && least > most
    {
        value
            .refuse("the longest interval is shorter than the shortest, expected `shortest` up to `longest`");
    }
    let interval = if adaptive? {
        let load_limit = load_limit.map(|limit| (limit > 0).then_some(limit));
        BeaconInterval::Adaptive {
            beacons_in_range: beacons_in_range?,
            shortest: shortest?,
            longest: longest?,
            load_limit: load_limit?,
        }
    } else {
        BeaconInterval::Fixed { interval: interval?, jitter: jitter? }
    };
    let hops = u8::try_from(hops?).ok()?;
    let multi_hop = MultiHopBeacons { hops, every: every? };
    Some(Beacon {
        interval,
        company_speed: company_speed?,
        deviation_m: deviation_m?,
        lifetime: lifetime?,
        piggyback: piggyback?,
        multi_hop: (hops > 1).then_some(multi_hop),
    })
}

/// One of a few words, or the default.
pub(super) fn word<T: Copy + Default>(
    table: &Table<'_>,
    name: &'static str,
    words: &[(&str, T)],
) -> Option<T> {
    match table.get(name) {
        Some(value) => value.word(words, &[]).map(|word| word.value),
        None => Some(T::default()),
    }
}

pub(super) fn integer(
    table: &Table<'_>,
    name: &'static str,
    low: u32,
    high: u32,
    default: u32,
) -> Option<u32> {
    match table.get(name) {
        Some(value) => value.integer(low, high).map(|integer| integer.value),
        None => Some(default),
    }
}

/// A duration with a default, which may be missing because something else is.
fn duration(
    table: &Table<'_>,
    name: &'static str,
    default: Option<Duration>,
    parse: fn(&str) -> Result<Duration, String>,
) -> Option<Duration> {
    match table.get(name) {
        Some(value) => value.parse(common::DURATION, parse).map(|duration| duration.value),
        None => default,
    }
}
