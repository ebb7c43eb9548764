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
//! | `GET /v1/lan` | array of [`Lan`] |
//! | `GET /v1/keys` | [`Keys`] |
//! | `POST /v1/keys/read` | none |
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
//! | `POST /v1/portal` with [`PortalRequest`] | none |
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
//! A stream is a `text/event-stream`, one object a message, or [`missed_events`]; "none" is status 204.
//! `docs/openapi.json` is made of this table and of the types (`tests/openapi`). The types of one protocol
//! family are in its wing: answers in `status.rs`, bodies of requests in `command.rs`.
//!
//! Every answer that is not a success carries an [`ErrorBody`]. Fields may be added, never renamed; a
//! value that is unknown or does not apply is `null`, its key is always there.

mod lan;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use carnet_base::{Counters, Role};
pub use carnet_cits::facilities::command::{Cause, DenmRequest, Triggered, Vehicle};
pub use carnet_cits::facilities::output::ActionId;
pub use carnet_cits::facilities::status::{AnnouncedService, Ldm, LdmEvent, LdmStation};
pub use carnet_cits::geonetworking::command::{
    AreaRemoval, AreaRequest, ChannelRequest, GnAround, GnNextHeader, GnPingRequest, GnSendRequest,
    GnStation, GnTarget, GnTransport, ParseTargetError,
};
pub use carnet_cits::geonetworking::output::GnPacketType;
pub use carnet_cits::geonetworking::status::{
    Area, AreaOrigin, Dcc, GeonetStatus, GnPingAnswer, GnPingEvent, GnReceived, Group, Location,
};
pub use carnet_cits::position::{AreaShape, GnArea, GnCircle, GnPlace};
pub use carnet_cits::security::command::PseudonymRequest;
pub use carnet_cits::security::status::{Security, SecurityTicket};
pub use carnet_nemo::command::{DrainRequest, HandoverRequest, PortalRequest, RevokeRequest, SignalRequest};
pub use carnet_nemo::status::{
    AddressFamily, Binding, Drain, HomeAgentStatus, LanInterface, MobileRouterStatus, NatStatus,
    NdpProxyStatus, OutsideCount, Policy, PortalAccess, Route, Tunnel, Uplink,
};
pub use carnet_nemo::status::{LanAdvertisement, LanAllowed};
pub use lan::{Lan, LanDelegation, LanDhcp, LanDns, LanHost};

/// Status of a station, in short.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// `station.name` of the config.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Seconds since the station started.
    pub uptime_s: f64,
    /// Roles of the station, such as mobile router or home agent.
    pub roles: Vec<Role>,
    /// Data path of tunnelled packets, such as `tun` or `bpf`; `null` if the station has no tunnels.
    pub dataplane: Option<String>,
    /// Data path that packets take once the kernel has loaded its BPF programs; `null` if no programs are
    /// being loaded.
    #[serde(default)]
    pub dataplane_loading: Option<String>,
    /// Encryption of the tunnels: `encrypted`, `in the clear`, or for a home agent how many mobile routers
    /// have encrypted sessions; `null` if the station has no tunnels.
    #[serde(default)]
    pub encryption: Option<String>,
    /// Status of the mobile router or mobile node; `null` if the station is neither.
    pub mobile_router: Option<MobileRouterStatus>,
    /// Status of the home agent; `null` if the station is no home agent.
    pub home_agent: Option<HomeAgentStatus>,
    /// Status of the GeoNetworking router; `null` if the station is no GeoNetworking router.
    pub geonet: Option<GeonetStatus>,
    /// Faults of this machine, and the station's reaction to each. Examples are a setting that another
    /// program changes again and again, and an entry that the kernel refuses. Empty without a fault.
    #[serde(default)]
    pub obstacles: Vec<String>,
    /// Limits of the process; `null` with `station.sandbox = "off"`.
    #[serde(default)]
    pub sandbox: Option<Sandbox>,
}

/// Keys of this station for encrypted sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// Public keys of this station, the newest one first. There are two while the key changes.
    pub public_keys: Vec<String>,
    /// Remote ends that have not yet used the newest key.
    pub missing: Vec<String>,
}

/// Limits that the process has set itself (`station.sandbox`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Capabilities that the process has kept, such as `CAP_NET_ADMIN`; it has given up all others.
    pub capabilities: Vec<String>,
    /// Version (ABI) of Landlock, which restricts the process's access to files and TCP ports; `null` if the
    /// kernel has no Landlock.
    pub landlock: Option<u32>,
    /// Whether seccomp filters the system calls of the process.
    pub seccomp: bool,
    /// Limits that the kernel does not enforce, each with the reason.
    pub lacking: Vec<String>,
}

/// Body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The error, in plain words.
    pub error: String,
}

/// Puts an event into its envelope: one flat object with `time` and the fields of the event.
///
/// `time` is in seconds since 1970 (UTC), with a fraction. `fields` is the event as the station serialises
/// it: an object whose `event` key is its kind in snake_case. If the event is not an object, the envelope has
/// it under the key `value`.
///
/// ```
/// use serde_json::json;
/// let event = carnet_api::model::event(1.5, json!({"event": "handover", "to": "wlan0"}));
/// assert_eq!(event, json!({"time": 1.5, "event": "handover", "to": "wlan0"}));
/// ```
///
/// A reader that is too slow for the stream gets [`missed_events`] in place of the events that it lost.
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
pub fn missed_events(time: f64, count: u64) -> Value {
    event(time, serde_json::json!({ "event": "missed", "count": count }))
}

#[cfg(test)]
mod tests;
