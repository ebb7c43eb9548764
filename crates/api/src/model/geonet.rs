//! GeoNetworking: what a station knows of others, and what it sends and receives for an operator.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use ipnet::Ipv6Net;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::address::{GnAddress, MacAddress, Octets, as_string};

/// The GeoNetworking router in a few words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GeonetStatus {
    /// Address of this station; `null` as long as it waits for its interface to make it of.
    pub gn_address: Option<GnAddress>,
    /// What the router waits for before it can begin, in words.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// State of the link: `up`, `down` or `missing`.
    #[serde(default)]
    pub link: String,
    /// The way that packets over GeoNetworking take: `bpf` or `tun`.
    #[serde(default)]
    pub path: String,
    /// The way that they will take when the kernel has its programs, which a thread loads; `null` otherwise.
    #[serde(default)]
    pub path_loading: Option<String>,
    /// State of the positioning, in one snake_case word, such as `fix` or `no_fix`.
    pub position: String,
    /// Own latitude in degrees, north positive; `null` before the first position.
    pub latitude: Option<f64>,
    /// Own longitude in degrees, east positive; `null` before the first position.
    pub longitude: Option<f64>,
    /// Stations in range.
    pub neighbours: u64,
    /// Stations whose position is known, neighbours included.
    pub locations: u64,
}

/// A station whose position is known: an entry of the location table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Location {
    /// GeoNetworking address.
    pub gn_address: GnAddress,
    /// Link-layer address.
    pub mac: MacAddress,
    /// Degrees, north positive.
    pub latitude: f64,
    /// Degrees, east positive.
    pub longitude: f64,
    /// Speed in metres per second, negative backwards.
    pub speed_mps: f64,
    /// Degrees clockwise from North.
    pub heading_deg: f64,
    /// Milliseconds since the station was there.
    pub age_ms: u64,
    /// True where the station is in range.
    pub neighbour: bool,
}

/// An area that has a name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Area {
    /// Its name; of one that was learnt, its interface's.
    pub name: String,
    /// Who says that there is one.
    #[serde(default)]
    pub origin: AreaOrigin,
    /// Its shape.
    pub shape: AreaShape,
    /// What its centre moves with: `here` or a station; `null` if it does not move.
    #[serde(default)]
    pub around: Option<GnAround>,
    /// Latitude of the centre in degrees, north positive; `null` while it is not known.
    pub latitude: Option<f64>,
    /// Longitude of the centre in degrees, east positive; `null` while it is not known.
    pub longitude: Option<f64>,
    /// Metres from the centre to the edge: the radius; or along the angle.
    pub distance_a_m: u16,
    /// Metres from the centre to the edge across the angle; `null` for a circle.
    pub distance_b_m: Option<u16>,
    /// Degrees clockwise from North; `null` for a circle.
    pub angle_deg: Option<u16>,
    /// Whether this station is inside; `null` while it does not know where it is, or where the area is.
    pub inside: Option<bool>,
    /// IPv6 multicast group of all hosts inside the area.
    #[serde(default)]
    pub group: Option<Ipv6Addr>,
    /// The IPv6 subnets of the area.
    #[serde(default)]
    pub prefixes: Vec<Ipv6Net>,
    /// The interface to everybody inside.
    #[serde(default)]
    pub ipv6_interface: Option<String>,
    /// Seconds until it ends by itself; `null` if it does not.
    #[serde(default)]
    pub remaining_s: Option<u32>,
}

/// Who says that there is an area.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AreaOrigin {
    /// The config.
    #[default]
    Config,
    /// An operator, by `POST /v1/areas`.
    Api,
    /// A Router Advertisement that came over GeoNetworking.
    Learnt,
}

/// What an area is around: a string, or an object for a place.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GnAround {
    /// This station, wherever it goes: `"here"`.
    Here,
    /// Another station, wherever it goes: `{"station": "1400:0200:0000:000a"}`.
    Station(GnStation),
    /// A place: `{"place": {"latitude": 48.8375, "longitude": 2.1008}}`.
    Place(GnPlace),
}

/// An IPv6 multicast group that somebody in the mobile network listens to, by an interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The group.
    pub group: Ipv6Addr,
    /// The interface of the mobile network.
    pub interface: String,
    /// True: all sources but these are wanted; false: these alone.
    pub exclude: bool,
    /// The sources.
    pub sources: Vec<Ipv6Addr>,
    /// Whether the group leads to an area.
    pub mapped: bool,
    /// The other router that asks there who listens; `null` if it is this one.
    pub querier: Option<Ipv6Addr>,
    /// Seconds until the router takes the group for one without listeners, unless a host reports it again.
    pub remaining_s: Option<f64>,
}

/// Congestion control: the gate in front of the radio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dcc {
    /// `reactive` or `adaptive`.
    pub algorithm: String,
    /// How busy the channel is, percent: as it was told, or else as the config assumes.
    pub busy_percent: f64,
    /// Milliseconds since it was told; `null` where that is too long ago, or never was.
    pub told_ms: Option<u64>,
    /// Reactive: `relaxed`, `active_1` to `active_3` or `restrictive`.
    pub state: Option<String>,
    /// Adaptive: the share of the channel that this station may have, percent.
    pub duty_cycle_percent: Option<f64>,
    /// Milliseconds until the next packet may go; 0 where the gate is open.
    pub closed_ms: f64,
    /// Packets that wait, DP0 to DP3.
    pub waiting: Vec<u64>,
}

/// Body of `POST /v1/channel`: somebody has measured it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelRequest {
    /// For how much of the time the GeoNetworking channel was busy, 0 to 100.
    pub busy_percent: f64,
}

/// A place on the ground.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GnPlace {
    /// Latitude in degrees, north positive.
    pub latitude: f64,
    /// Longitude in degrees, east positive.
    pub longitude: f64,
}

/// Body of `POST /v1/areas`: there shall be this area from now on. One that was set before with the same name
/// is replaced.
///
/// ```
/// use carnet_api::model::{AreaRequest, AreaShape, GnAround};
/// let request = r#"{"name": "near", "around": "here", "distance_a_m": 300, "group": "ff1e::42", "lifetime_ms": 600000}"#;
/// let request: AreaRequest = serde_json::from_str(request).expect("a request");
/// assert_eq!((request.around, request.shape), (GnAround::Here, AreaShape::Circle));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AreaRequest {
    /// Its name, 1 to 64 characters; not that of an area of the config.
    pub name: String,
    /// Where its centre is.
    pub around: GnAround,
    /// Its shape; a circle where it is absent.
    #[serde(default)]
    pub shape: AreaShape,
    /// Metres from the centre to the edge: the radius; or along the angle.
    pub distance_a_m: u16,
    /// Metres from the centre to the edge across the angle; `null` for a circle.
    #[serde(default)]
    pub distance_b_m: Option<u16>,
    /// Degrees clockwise from North; `null` for 0.
    #[serde(default)]
    pub angle_deg: Option<u16>,
    /// The IPv6 multicast group of everybody inside; `null` for none.
    #[serde(default)]
    pub group: Option<Ipv6Addr>,
    /// Milliseconds until it ends by itself; `null`: when it is removed, or the station ends.
    #[serde(default)]
    pub lifetime_ms: Option<u64>,
}

/// Body of `POST /v1/areas/remove`: an area that was set ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AreaRemoval {
    /// Its name.
    pub name: String,
}

/// The shape of an area.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AreaShape {
    /// A circle.
    #[default]
    Circle,
    /// A rectangle.
    Rectangle,
    /// An ellipse.
    Ellipse,
}

/// A station that is meant, by one of its addresses: a string.
///
/// The three kinds cannot be mistaken for each other: four groups of four digits, six groups of two, or an
/// IPv6 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GnStation {
    /// Its GeoNetworking address.
    Address(GnAddress),
    /// Its link-layer address.
    Mac(MacAddress),
    /// Its IPv6 address on the GeoNetworking link.
    Ipv6(Ipv6Addr),
}

/// Who shall answer a ping: a string, an address or `area:NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GnTarget {
    /// One station.
    Station(GnStation),
    /// Every station in an area with a name.
    Area(String),
}

/// A text that names no station or no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{found:?} is no {what}, expected a GeoNetworking address (1400:0200:0000:000a), a MAC address, \
         an IPv6 address{more}"
)]
pub struct ParseTargetError {
    found: String,
    what: &'static str,
    more: &'static str,
}

impl FromStr for GnStation {
    type Err = ParseTargetError;

    fn from_str(text: &str) -> Result<GnStation, ParseTargetError> {
        let address = text.parse().map(GnStation::Address).ok();
        let mac = || text.parse().map(GnStation::Mac).ok();
        let ipv6 = || text.parse().map(GnStation::Ipv6).ok();
        address.or_else(mac).or_else(ipv6).ok_or_else(|| ParseTargetError {
            found: text.to_owned(),
            what: "station",
            more: "",
        })
    }
}

impl FromStr for GnTarget {
    type Err = ParseTargetError;

    fn from_str(text: &str) -> Result<GnTarget, ParseTargetError> {
        match text.strip_prefix("area:") {
            Some(name) if !name.is_empty() => Ok(GnTarget::Area(name.to_owned())),
            _ => text.parse().map(GnTarget::Station).map_err(|error: ParseTargetError| ParseTargetError {
                what: "target",
                more: " or area:NAME",
                ..error
            }),
        }
    }
}

impl fmt::Display for GnStation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GnStation::Address(address) => address.fmt(f),
            GnStation::Mac(address) => address.fmt(f),
            GnStation::Ipv6(address) => address.fmt(f),
        }
    }
}

impl fmt::Display for GnTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GnTarget::Station(station) => station.fmt(f),
            GnTarget::Area(name) => write!(f, "area:{name}"),
        }
    }
}

as_string!(GnStation, GnTarget);

/// Body of `POST /v1/gnping`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GnPingRequest {
    /// Who shall answer.
    pub target: GnTarget,
    /// How many requests are sent, 1 to 65535.
    pub count: u32,
    /// Milliseconds from one request to the next.
    pub interval_ms: u64,
    /// Milliseconds that answers to a request are waited for.
    pub timeout_ms: u64,
}

/// What comes of a ping. The stream ends after [`GnPingEvent::Done`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum GnPingEvent {
    /// A station answered. To a ping of an area there may be many answers.
    Answer(GnPingAnswer),
    /// Nobody answered a request in time.
    Timeout {
        /// Number of the request, from 1.
        sequence: u32,
    },
    /// All requests were sent, and have been answered or waited for.
    Done {
        /// Requests that were sent.
        sent: u32,
        /// Requests that at least one station answered.
        answered: u32,
    },
}

/// An answer to a ping.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GnPingAnswer {
    /// Number of the request, from 1.
    pub sequence: u32,
    /// Who answered.
    pub gn_address: GnAddress,
    /// Its link-layer address.
    pub mac: MacAddress,
    /// Where it is: degrees, north positive.
    pub latitude: f64,
    /// Where it is: degrees, east positive.
    pub longitude: f64,
    /// Milliseconds from the request to the answer.
    pub rtt_ms: f64,
    /// Hops that the request went; 1 to a neighbour.
    pub hops: u8,
    /// The stations that the request passed, the answering one last; `null` where they were not written
    /// down on the way.
    pub path: Option<Vec<GnAddress>>,
}

/// Body of `POST /v1/gnsend`: one packet.
///
/// ```
/// use carnet_api::model::GnSendRequest;
/// let request = r#"{
///     "transport": {"type": "gbc", "area": {"circle": {"latitude": 48.8375, "longitude": 2.1008,
///                   "radius_m": 300}}},
///     "next_header": "btp-b", "port": 2002, "payload": "0102"
/// }"#;
/// let request: GnSendRequest = serde_json::from_str(request).expect("a request");
/// assert_eq!((request.port, request.scf, request.lifetime_ms), (Some(2002), false, None));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GnSendRequest {
    /// How it travels, and to whom.
    pub transport: GnTransport,
    /// What the payload is; `any` where it is absent.
    #[serde(default)]
    pub next_header: GnNextHeader,
    /// Destination port of a BTP header that is put before the payload; `null`: the payload is sent as it
    /// is. Only with a next header of BTP.
    #[serde(default)]
    pub port: Option<u16>,
    /// How many hops it may go; `null` for the default, and for `shb`, which goes one.
    #[serde(default)]
    pub hop_limit: Option<u8>,
    /// Milliseconds that the packet may be on its way; `null` for the default.
    #[serde(default)]
    pub lifetime_ms: Option<u64>,
    /// Store, carry and forward: a station without a next hop keeps the packet until there is one.
    #[serde(default)]
    pub scf: bool,
    /// The payload.
    pub payload: Octets,
}

/// How a packet travels, and to whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum GnTransport {
    /// GeoUnicast: to a station.
    Guc {
        /// The station.
        to: GnStation,
    },
    /// GeoAnycast: to anybody in an area.
    Gac {
        /// The area.
        area: GnArea,
    },
    /// GeoBroadcast: to everybody in an area.
    Gbc {
        /// The area.
        area: GnArea,
    },
    /// Topologically-scoped broadcast: to everybody within some hops.
    Tsb {},
    /// Single-hop broadcast: to everybody in range.
    Shb {},
}

impl GnTransport {
    /// Its kind of packet.
    pub fn packet_type(&self) -> GnPacketType {
        match self {
            GnTransport::Guc { .. } => GnPacketType::Guc,
            GnTransport::Gac { .. } => GnPacketType::Gac,
            GnTransport::Gbc { .. } => GnPacketType::Gbc,
            GnTransport::Tsb {} => GnPacketType::Tsb,
            GnTransport::Shb {} => GnPacketType::Shb,
        }
    }
}

/// Where a packet shall go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GnArea {
    /// An area with a name: `{"name": "crossing"}`.
    Name(String),
    /// A circle: `{"circle": {"latitude": 48.8375, "longitude": 2.1008, "radius_m": 300}}`.
    Circle(GnCircle),
}

/// A circle on the ground.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GnCircle {
    /// Latitude of the centre in degrees, north positive.
    pub latitude: f64,
    /// Longitude of the centre in degrees, east positive.
    pub longitude: f64,
    /// Radius in metres.
    pub radius_m: u16,
}

/// A kind of packet with a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GnPacketType {
    /// GeoUnicast.
    Guc,
    /// GeoAnycast.
    Gac,
    /// GeoBroadcast.
    Gbc,
    /// Topologically-scoped broadcast.
    Tsb,
    /// Single-hop broadcast.
    Shb,
}

/// What a payload is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GnNextHeader {
    /// Unspecified.
    #[default]
    Any,
    /// BTP-A: interactive packet transport.
    BtpA,
    /// BTP-B: non-interactive packet transport.
    BtpB,
    /// An IPv6 packet.
    Ipv6,
}

/// A payload that was delivered to the upper layer: a message of `GET /v1/gnrecv`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GnReceived {
    /// How it came.
    #[serde(rename = "type")]
    pub packet_type: GnPacketType,
    /// What the payload is.
    pub next_header: GnNextHeader,
    /// Destination port of the BTP header (EN 302 636-5-1); `null` where there is none.
    #[serde(default)]
    pub port: Option<u16>,
    /// Source port, with BTP-A.
    #[serde(default)]
    pub source_port: Option<u16>,
    /// Destination port info, with BTP-B.
    #[serde(default)]
    pub port_info: Option<u16>,
    /// Who sent it.
    pub source: GnAddress,
    /// Where that was: degrees, north positive.
    pub latitude: f64,
    /// Where that was: degrees, east positive.
    pub longitude: f64,
    /// Remaining hop limit as it was received.
    pub remaining_hop_limit: u8,
    /// What the upper layer gets: the payload of the packet, without the BTP header where there is one.
    pub payload: Octets,
}

#[cfg(test)]
mod tests;
