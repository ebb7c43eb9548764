//! Reads the traffic of a scenario.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::{Duration, Metres};

/// Traffic while the timetable runs.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// Round-trip times by ping.
    #[serde(default)]
    pub ping: Vec<Ping>,
    /// TCP transfers by iperf3, by default one connection in each direction.
    #[serde(default)]
    pub tcp: Vec<Tcp>,
    /// One-way probes by the lab itself, in both directions at the same time.
    #[serde(default)]
    pub probe: Vec<Probe>,
    /// Round-trip times by `carnet gnping`.
    #[serde(default)]
    pub gnping: Vec<GnPing>,
    /// GeoBroadcasts to a circle. The lab records which nodes receive them.
    #[serde(default)]
    pub gnbroadcast: Vec<GnBroadcast>,
    /// Packets of a host in a vehicle to an IPv6 multicast group. The lab records which hosts in a circle
    /// receive them.
    #[serde(default)]
    pub multicast: Vec<Multicast>,
    /// Attackers that record frames of the radio medium and send them again.
    #[serde(default)]
    pub replay: Vec<Replay>,
}

/// A ping.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ping {
    /// Prefix of the ping's metrics.
    pub name: String,
    /// Label for the legend.
    #[serde(default)]
    pub label: String,
    /// Node that sends the requests.
    pub from: Spanned<String>,
    /// Node that answers.
    pub to: Spanned<String>,
    /// Time between two requests.
    pub interval: Duration,
    /// Size of the data in a request, in octets; ping's default if absent.
    #[serde(default)]
    pub size: Option<u16>,
    /// Interface through which the requests leave; `None` if the routes decide.
    #[serde(default)]
    pub via: Option<String>,
}

/// A TCP transfer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tcp {
    /// Prefix of the transfer's metrics.
    pub name: String,
    /// Label for the legend.
    #[serde(default)]
    pub label: String,
    /// Node that opens the connection.
    pub client: Spanned<String>,
    /// Node that listens.
    pub server: Spanned<String>,
    /// Rate limit of each connection and direction in iperf3's notation, for example `20M` (bit/s); `0` means
    /// unlimited.
    pub rate: String,
    /// Number of simultaneous connections.
    #[serde(default = "default_flow_count")]
    pub flows: u32,
    /// Directions of the data.
    #[serde(default)]
    pub direction: Direction,
    /// IP version of the connections.
    #[serde(default)]
    pub family: Family,
    /// Begin of the transfer in the timetable; with `None` it begins before the timetable.
    #[serde(default)]
    pub begin: Option<Duration>,
    /// End of the transfer in the timetable; with `None` it ends after the timetable.
    #[serde(default)]
    pub end: Option<Duration>,
}

fn default_flow_count() -> u32 {
    1
}

/// Directions of a transfer or a probe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// In both directions at the same time.
    #[default]
    Both,
    /// From the client to the server, or from the first node to the second.
    Up,
    /// From the server to the client, or from the second node to the first.
    Down,
}

/// IP version of a transfer or a probe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// IPv6.
    #[default]
    Ipv6,
    /// IPv4.
    Ipv4,
}

impl Direction {
    /// Returns whether data flows from the end with the index `from` to the other end.
    pub fn sends_data_from(self, from: usize) -> bool {
        matches!((self, from), (Direction::Both, _) | (Direction::Up, 0) | (Direction::Down, 1))
    }
}

/// A one-way probe, by default in both directions.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Prefix of the probe's metrics.
    pub name: String,
    /// Name of the series with `{n}`, if the probe belongs to one.
    #[serde(skip)]
    pub series: Option<String>,
    /// The two nodes of the probe.
    pub between: (Spanned<String>, Spanned<String>),
    /// Packets per second in each direction.
    pub rate: u32,
    /// Size of the data in a packet in octets, at least 24.
    #[serde(default = "default_probe_size")]
    pub size: Spanned<u16>,
    /// Begin of the probe in the timetable; with `None` it begins before the timetable.
    #[serde(default)]
    pub begin: Option<Duration>,
    /// UDP port of both ends; with `None` the lab selects a port that no other probe has.
    #[serde(default)]
    pub port: Option<u16>,
    /// Directions of the packets.
    #[serde(default)]
    pub direction: Direction,
    /// IP version of the packets.
    #[serde(default)]
    pub family: Family,
}

fn default_probe_size() -> Spanned<u16> {
    Spanned::new(0..0, 64)
}

/// A ping over GeoNetworking.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GnPing {
    /// Prefix of the ping's metrics.
    pub name: String,
    /// Label for the legend.
    #[serde(default)]
    pub label: String,
    /// Node that sends the requests.
    pub from: Spanned<String>,
    /// Node that answers, or `area:NAME` with an area in the config of the sender.
    pub to: Spanned<String>,
    /// Time between two requests.
    pub interval: Spanned<Duration>,
    /// Maximum time to wait for an answer.
    #[serde(default = "default_gnping_timeout")]
    pub timeout: Duration,
}

/// Repeated GeoBroadcasts to a circle.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GnBroadcast {
    /// Prefix of the broadcast's metrics.
    pub name: String,
    /// Label for the legend.
    #[serde(default)]
    pub label: String,
    /// Node that sends the packets.
    pub from: Spanned<String>,
    /// Centre of the circle in metres to the east and north of the origin; with `None` it is the sender's
    /// place.
    #[serde(default)]
    pub center: Option<(f64, f64)>,
    /// Radius of the circle.
    pub radius: Spanned<Metres>,
    /// Time between two packets.
    pub interval: Spanned<Duration>,
    /// Size of the payload in octets.
    #[serde(default = "default_broadcast_size")]
    pub size: Spanned<usize>,
    /// Whether the node sends road events at the centre (DENM) instead of plain packets. A node has received
    /// an event when the node's map shows the event.
    #[serde(default)]
    pub denm: bool,
}

/// A host that sends repeatedly to an IPv6 multicast group. The stations map the group to a circle.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Multicast {
    /// Prefix of the traffic's metrics.
    pub name: String,
    /// Label for the legend.
    #[serde(default)]
    pub label: String,
    /// Host that sends the packets.
    pub from: Spanned<String>,
    /// Multicast group to which the host sends.
    pub group: Spanned<std::net::Ipv6Addr>,
    /// Hosts that have joined the group, each with the node whose radio serves it.
    pub members: BTreeMap<Spanned<String>, Spanned<String>>,
    /// Hosts that have not joined the group, each with the node whose radio serves it. The lab counts the
    /// packets that arrive at these hosts anyway.
    #[serde(default)]
    pub strangers: BTreeMap<Spanned<String>, Spanned<String>>,
    /// Centre of the circle in metres to the east and north of the origin.
    pub center: (f64, f64),
    /// Radius of the circle.
    pub radius: Spanned<Metres>,
    /// Time between two packets.
    pub interval: Spanned<Duration>,
}

/// An attacker that records the frames of a radio and sends them again unchanged.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// Prefix of the replay's metrics.
    pub name: String,
    /// Attacker's node, which has a radio and no carnet.
    pub from: Spanned<String>,
    /// Delays from the reception of a frame to its replays; each delay causes one replay.
    pub after: Vec<Duration>,
    /// Replay only every n-th frame; the default is every frame.
    #[serde(default = "default_flow_count")]
    pub every: u32,
}

fn default_gnping_timeout() -> Duration {
    Duration(crate::clock::SECOND)
}

fn default_broadcast_size() -> Spanned<usize> {
    Spanned::new(0..0, 100)
}
