//! The JSON of a running station: the bodies of the HTTP API and the events of `carnet watch`.
//!
//! | Request | Body of the answer |
//! |---|---|
//! | `GET /v1/status` | [`Status`] |
//! | `GET /v1/bindings` | array of [`Binding`] |
//! | `GET /v1/uplinks` | array of [`Uplink`] |
//! | `GET /v1/tunnels` | array of [`Tunnel`] |
//! | `GET /v1/routes` | array of [`Route`] |
//! | `GET /v1/policies` | array of [`Policy`] |
//! | `GET /v1/counters` | [`Counters`] |
//! | `GET /metrics` | text, see `docs/api.md` |
//! | `GET /v1/neighbours` | array of [`Location`] |
//! | `GET /v1/locations` | array of [`Location`] |
//! | `GET /v1/areas` | array of [`Area`] |
//! | `POST /v1/areas` with [`AreaRequest`] | none |
//! | `POST /v1/areas/remove` with [`AreaRemoval`] | none |
//! | `GET /v1/groups` | array of [`Group`] |
//! | `GET /v1/dcc` | [`Dcc`] |
//! | `POST /v1/channel` with [`ChannelRequest`] | none |
//! | `GET /v1/security` | [`Security`] |
//! | `POST /v1/pseudonym` with [`PseudonymRequest`] | none |
//! | `GET /v1/events` | stream, see [`event`] |
//! | `GET /v1/drain` | null or [`Drain`] |
//! | `POST /v1/drain` with [`DrainRequest`] | none |
//! | `POST /v1/drain/end` | none |
//! | `POST /v1/revoke` with [`RevokeRequest`] | none |
//! | `POST /v1/handover` with [`HandoverRequest`] | none |
//! | `POST /v1/signal` with [`SignalRequest`] | none |
//! | `GET /v1/vehicle` | [`Vehicle`] |
//! | `PUT /v1/vehicle` with [`Vehicle`] | none |
//! | `POST /v1/denm` with [`DenmRequest`] | [`Triggered`] |
//! | `POST /v1/denm/update` with [`DenmRequest`] | none |
//! | `POST /v1/denm/cancel` with [`DenmRequest`] | none |
//! | `POST /v1/denm/negate` with [`DenmRequest`] | none |
//! | `GET /v1/ldm` | [`Ldm`] |
//! | `GET /v1/services` | array of [`AnnouncedService`] |
//! | `GET /v1/messages` | stream of CAMs and DENMs, see `docs/api.md` |
//! | `POST /v1/gnsend` with [`GnSendRequest`] | none |
//! | `POST /v1/gnping` with [`GnPingRequest`] | stream of [`GnPingEvent`] |
//! | `GET /v1/gnrecv` | stream of [`GnReceived`] |
//!
//! A stream is a `text/event-stream`, one object a message, or [`missed`]; "none" is status 204.
//! `docs/openapi.json` is made of this table and of the types (`tests/openapi.rs`).
//!
//! Every answer that is not a success carries an [`ErrorBody`]. Fields may be added, never renamed; a
//! value that is unknown or does not apply is `null`, its key is always there.

mod drain;
mod facilities;
mod geonet;
mod security;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::Ipv6Net;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

pub use drain::{Drain, DrainRequest, RevokeRequest};
pub use facilities::{
    ActionId, AnnouncedService, Cause, DenmRequest, Ldm, LdmEvent, LdmStation, Triggered, Vehicle,
};
pub use geonet::{
    Area, AreaOrigin, AreaRemoval, AreaRequest, AreaShape, ChannelRequest, Dcc, GeonetStatus, GnArea,
    GnAround, GnCircle, GnNextHeader, GnPacketType, GnPingAnswer, GnPingEvent, GnPingRequest, GnPlace,
    GnReceived, GnSendRequest, GnStation, GnTarget, GnTransport, Group, Location, ParseTargetError,
};
pub use security::{PseudonymRequest, Security, SecurityTicket};

/// A station in a few lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// `station.name` of the config.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Seconds since the station started.
    pub uptime_s: f64,
    /// The jobs that it does.
    pub roles: Vec<Role>,
    /// The way packets take into and out of tunnels, such as `tun` or `bpf`; `null` for a station that has
    /// none.
    pub dataplane: Option<String>,
    /// The way that packets will take when the kernel has its programs, which a thread loads; `null`
    /// otherwise.
    #[serde(default)]
    pub dataplane_loading: Option<String>,
    /// The mobile router or mobile node, where the station is one.
    pub mobile_router: Option<MobileRouterStatus>,
    /// The home agent, where the station is one.
    pub home_agent: Option<HomeAgentStatus>,
    /// The GeoNetworking router, where the station is one.
    pub geonet: Option<GeonetStatus>,
    /// What on this machine is not as the station needs it, and what the station does about it: a setting
    /// that another program changes again and again, an entry that the kernel refuses. Empty where nothing
    /// stands in the way.
    #[serde(default)]
    pub obstacles: Vec<String>,
    /// What holds the process; `null` with `station.sandbox = "off"`.
    #[serde(default)]
    pub sandbox: Option<Sandbox>,
}

/// What the process cannot do any more (`station.sandbox`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// The capabilities that it has kept, such as `CAP_NET_ADMIN`; all others are gone.
    pub capabilities: Vec<String>,
    /// Version (ABI) of Landlock, which keeps it from files and TCP ports; `null` where the kernel has none.
    pub landlock: Option<u32>,
    /// Whether its system calls are filtered.
    pub seccomp: bool,
    /// What does not hold, and why.
    pub lacking: Vec<String>,
}

/// A job of a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// RFC 3963 mobile router.
    MobileRouter,
    /// RFC 6275 mobile node, without a mobile network.
    MobileNode,
    /// RFC 6275 and RFC 3963 home agent.
    HomeAgent,
    /// EN 302 636-4-1 GeoNetworking router.
    Geonet,
}

impl Role {
    /// The role as it is written in JSON and in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::MobileRouter => "mobile_router",
            Role::MobileNode => "mobile_node",
            Role::HomeAgent => "home_agent",
            Role::Geonet => "geonet",
        }
    }
}

/// The mobile router in a few words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MobileRouterStatus {
    /// State of the registration, in one snake_case word, such as `registered` or `home`.
    pub state: String,
    /// Whether an uplink leads to the home agent now; false where each is down, or silent, whatever is
    /// registered.
    #[serde(default)]
    pub reachable: Option<bool>,
    /// With the state `refused`, why: the status of the home agent's answer and what that means; else `null`.
    #[serde(default)]
    pub refusal: Option<String>,
    /// Home address.
    pub home_address: Ipv6Addr,
    /// Home agent; `::` while it is not known which.
    pub home_agent: Ipv6Addr,
    /// All home agents that are known, in the order in which they are tried.
    #[serde(default)]
    pub home_agents: Vec<Ipv6Addr>,
    /// Care-of address that is registered without Binding Identifier, or `null`.
    pub care_of_address: Option<IpAddr>,
    /// All care-of addresses that are registered.
    #[serde(default)]
    pub care_of_addresses: Vec<IpAddr>,
    /// The mobile network prefixes.
    #[serde(default)]
    pub prefixes: Vec<Ipv6Net>,
    /// The interfaces of the mobile network.
    #[serde(default)]
    pub lan: Vec<LanInterface>,
    /// Interface that carries the traffic, or `null`.
    pub uplink: Option<String>,
    /// Interface that an operator asked for (`carnet handover`), or `null` when carnet chooses.
    pub wanted_uplink: Option<String>,
    /// Policies with an uplink that an operator asked for (`carnet handover --policy`), and that uplink.
    #[serde(default)]
    pub moved_policies: BTreeMap<String, String>,
}

/// An interface of the mobile network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanInterface {
    /// Its name.
    pub interface: String,
    /// `up`, `no_carrier` or `no_such_interface`.
    pub state: String,
}

/// The home agent in a few words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomeAgentStatus {
    /// Its address.
    pub address: Ipv6Addr,
    /// How many bindings it holds.
    pub bindings: u64,
    /// Home addresses of nodes whose key has used up three quarters or more of its 32,768 sequence numbers
    /// and that have sent no timestamp since (see `auth.replay`), the first 16.
    #[serde(default)]
    pub keys_to_change: Vec<Ipv6Addr>,
}

/// A binding: at a mobile router its own with the home agent, at a home agent one of its mobile nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The job in which this station has the binding.
    pub role: Role,
    /// Home address.
    pub home_address: Ipv6Addr,
    /// Care-of address; `null` while the node has none. A home agent shows the address that packets come
    /// from: for a node behind a NAT, the address of the NAT.
    pub care_of_address: Option<IpAddr>,
    /// The UDP port at the care-of address, when packets go there in UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_port: Option<u16>,
    /// Seconds that it has been at this care-of address; `null` while there is none, or where that is not
    /// known: a home agent's state is from a version that did not write it.
    #[serde(default)]
    pub stay_s: Option<u32>,
    /// Binding Identifier (RFC 5648), or `null` without one.
    pub bid: Option<u16>,
    /// Mobile network prefixes that go with it.
    pub prefixes: Vec<Ipv6Net>,
    /// State, in one snake_case word.
    pub state: String,
    /// Granted lifetime in seconds.
    pub lifetime_s: u32,
    /// Seconds that are left of it.
    pub remaining_s: u32,
    /// Sequence number of the last Binding Update.
    pub sequence: u16,
}

/// An uplink of a mobile router.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Uplink {
    /// Interface name.
    pub interface: String,
    /// State: `active`, `standby`, `registering`, `silent` (the home agent does not answer over it), `home`,
    /// `refused: ` or `down: ` and why.
    pub state: String,
    /// Seconds until a silent one is tried again, or `null` where that is not known.
    #[serde(default)]
    pub retry_s: Option<u32>,
    /// Care-of address on it, or `null` while there is none.
    pub care_of_address: Option<IpAddr>,
    /// Binding Identifier (RFC 5648), or `null` without one.
    pub bid: Option<u16>,
    /// Priority of the config; lower wins.
    pub priority: u8,
    /// Signal in dBm, or `null` where it is not measured, or not any more.
    pub signal_dbm: Option<i32>,
    /// Round-trip time to the home agent in milliseconds, or `null` where it is not measured.
    pub rtt_ms: Option<f64>,
    /// Share of lost probes, 0 to 1, or `null` where it is not measured.
    pub loss: Option<f64>,
    /// What it can carry in kbit/s, as configured or, where a policy balances, measured; else `null`.
    #[serde(default)]
    pub capacity_kbit_s: Option<u32>,
    /// URI of the captive portal to which the access network redirects HTTP, or which it announces (RFC
    /// 8910); `null` without a portal. The network forwards nothing until a user has agreed to the portal's
    /// terms.
    #[serde(default)]
    pub captive_portal: Option<String>,
    /// Octets that have gone over it in this period, both directions together, as its interface counts them
    /// (at least every five seconds); `null` before counting has begun.
    #[serde(default)]
    pub volume_used: Option<u64>,
    /// Octets that may, or `null` without a limit.
    #[serde(default)]
    pub volume: Option<u64>,
    /// The period: `day`, `week` or `month`, of the calendar in UTC, a month from `volume_day` on.
    #[serde(default)]
    pub volume_period: String,
    /// What becomes of the uplink once they are used up: `last_resort` or `stop`.
    #[serde(default)]
    pub volume_action: String,
    /// Whether its modem is in a network that is not its own operator's, or `null` where that is not known.
    #[serde(default)]
    pub roaming: Option<bool>,
    /// True for an uplink that carries the traffic now.
    pub active: bool,
    /// True where more is sent than it can carry: round trips have grown, and packets go on arriving. It
    /// keeps its traffic.
    #[serde(default)]
    pub full: bool,
    /// The router of the care-of address, if it does not answer either; else `null`.
    #[serde(default)]
    pub silent_router: Option<IpAddr>,
    /// The first of the station's `obstacles` (`GET /v1/status`), which concerns every uplink; `null` where
    /// nothing on this machine stands in the way.
    #[serde(default)]
    pub obstacle: Option<String>,
}

/// A tunnel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// Home address of the binding that it belongs to.
    #[serde(default)]
    pub home_address: Option<Ipv6Addr>,
    /// Address of this end.
    pub local: IpAddr,
    /// Address of the other end.
    pub remote: IpAddr,
    /// UDP port of the other end, as this end sees it; `null` without UDP.
    #[serde(default)]
    pub remote_port: Option<u16>,
    /// Binding Identifier (RFC 5648), or `null` without one.
    #[serde(default)]
    pub bid: Option<u16>,
    /// What inner packets are put into: `ipv6` (RFC 2473), `ipv4` (protocol 41) or `udp` (RFC 5555).
    pub encapsulation: String,
    /// Largest inner packet in octets.
    pub mtu: u32,
    /// The way packets take: `tun`.
    pub path: String,
    /// Inner packets that came through it, further copies of duplicated ones among them.
    #[serde(default)]
    pub packets_in: u64,
    /// Octets of these.
    #[serde(default)]
    pub octets_in: u64,
    /// Inner packets that went into it.
    #[serde(default)]
    pub packets_out: u64,
    /// Octets of these.
    #[serde(default)]
    pub octets_out: u64,
}

/// Which way a mobile router sends the packets for a network, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// The network; `::/0` for everything that has no way of its own.
    pub prefix: Ipv6Net,
    /// `direct` to the vehicle that has it, by way of the `home_agent`, on the `home` link, or `none`.
    pub path: String,
    /// The interface that packets leave by, or `null`.
    pub interface: Option<String>,
    /// Link-layer address of the vehicle in radio range that announces the network, `xx:xx:xx:xx:xx:xx`, or
    /// `null`.
    pub station: Option<String>,
    /// Link-local address of that vehicle, care-of address of one that is not in radio range, or the home
    /// agent, or `null`.
    pub next_hop: Option<Ipv6Addr>,
    /// Round-trip time to that vehicle in milliseconds, or `null` where it is not measured.
    pub rtt_ms: Option<f64>,
    /// Seconds for which it has been so, or `null`.
    pub age_s: Option<f64>,
    /// Why, in plain words.
    pub reason: String,
}

/// A policy of a mobile router: which uplinks its packets take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// What becomes of its packets: `failover`, `duplicate` or `balance`.
    pub action: String,
    /// How many traffic selectors it has.
    pub selectors: usize,
    /// The uplinks of the config, the preferred first.
    pub uplinks: Vec<String>,
    /// The uplink that an operator asked for (`carnet handover --policy`), or `null`.
    pub wanted_uplink: Option<String>,
    /// The uplinks that its packets take now; none: those of packets without a policy.
    pub takes: Vec<String>,
    /// What the home agent does about it: `agreed`, `asked`, `refused`, `unknown` (it knows no flow bindings)
    /// or `failover` (it knows no other action).
    pub home_agent: String,
}

/// All counters: dotted names, such as `mobility.received.binding_update`, and their values.
pub type Counters = BTreeMap<String, u64>;

/// Body of `POST /v1/handover`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandoverRequest {
    /// Interface name of the uplink to use; `null` ends an earlier wish. The key has to be there.
    #[serde(deserialize_with = "present")]
    pub uplink: Option<String>,
    /// Name of a policy: only its packets are meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

/// Body of `POST /v1/signal`: somebody has measured it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// Interface name of the uplink.
    pub uplink: String,
    /// How strong its signal is, in dBm.
    pub dbm: i32,
}

/// Reads an optional value whose key is not optional.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(deserializer)
}

/// Body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What is wrong, in plain words.
    pub error: String,
}

/// Puts an event into its envelope: one flat object, `time` first of meaning, then the fields of the event.
///
/// `time` is in seconds since 1970 (UTC), with a fraction. `fields` is the event as the station serialises
/// it: an object whose `event` key is its kind in snake_case. Anything else than an object is kept under
/// the key `value`.
///
/// ```
/// use serde_json::json;
/// let event = carnet_api::model::event(1.5, json!({"event": "handover", "to": "wlan0"}));
/// assert_eq!(event, json!({"time": 1.5, "event": "handover", "to": "wlan0"}));
/// ```
///
/// A reader that is too slow for the stream gets [`missed`] in place of the events that it lost.
pub fn event(time: f64, fields: Value) -> Value {
    let mut envelope = match fields {
        Value::Object(fields) => fields,
        value => {
            let mut fields = Map::new();
            fields.insert("value".to_owned(), value);
            fields
        }
    };
    envelope.insert("time".to_owned(), time.into());
    Value::Object(envelope)
}

/// The event that says how many events a slow reader lost: `{"time", "event": "missed", "count"}`.
pub fn missed(time: f64, count: u64) -> Value {
    event(time, serde_json::json!({ "event": "missed", "count": count }))
}
