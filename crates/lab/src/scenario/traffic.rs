//! Traffic of a scenario.

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
    /// TCP by iperf3, in both directions over one connection each unless something else is said.
    #[serde(default)]
    pub tcp: Vec<Tcp>,
    /// The lab's own one-way probe, in both directions at once.
    #[serde(default)]
    pub probe: Vec<Probe>,
    /// Round-trip times by `carnet gnping`.
    #[serde(default)]
    pub gnping: Vec<GnPing>,
    /// GeoBroadcasts into a circle, and who gets them.
    #[serde(default)]
    pub gnbroadcast: Vec<GnBroadcast>,
    /// Packets of a host on board to an IPv6 multicast group, and the hosts in a circle that get them.
    #[serde(default)]
    pub multicast: Vec<Multicast>,
    /// Frames of a radio medium that an attacker records and sends again.
    #[serde(default)]
    pub replay: Vec<Replay>,
}

/// A ping.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ping {
    /// Prefix of its metrics.
    pub name: String,
    /// Label for the legend.
    #[serde(default)]
    pub label: String,
    /// Node that pings.
    pub from: Spanned<String>,
    /// Node that answers.
    pub to: Spanned<String>,
    /// Time between two requests.
    pub interval: Duration,
    /// Octets of data in a request; what ping has unless given.
    #[serde(default)]
    pub size: Option<u16>,
    /// The interface of the node that pings, where it is not for routing to choose.
    #[serde(default)]
    pub via: Option<String>,
}

/// A TCP transfer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tcp {
    /// Prefix of its metrics.
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
    /// Connections at once.
    #[serde(default = "single")]
    pub flows: u32,
    /// In which directions data flows.
    #[serde(default)]
    pub direction: Direction,
    /// When it begins in the timetable; before that, unless given.
    #[serde(default)]
    pub begin: Option<Duration>,
    /// When it ends; after the timetable, unless given.
    #[serde(default)]
    pub end: Option<Duration>,
}

fn single() -> u32 {
    1
}

/// Directions of a transfer or a probe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Both at once.
    #[default]
    Both,
    /// From the client to the server, from the first node to the second.
    Up,
    /// From the server to the client, from the second node to the first.
    Down,
}

impl Direction {
    /// Whether anything goes from the first end (0) or the second (1) to the other.
    pub fn has(self, from: usize) -> bool {
        matches!((self, from), (Direction::Both, _) | (Direction::Up, 0) | (Direction::Down, 1))
    }
}

/// A one-way probe, in both directions unless something else is said.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Prefix of its metrics.
    pub name: String,
    /// The name with `{n}` in it, for one of a series.
    #[serde(skip)]
    pub series: Option<String>,
    /// The two nodes.
    pub between: (Spanned<String>, Spanned<String>),
    /// Packets a second in each direction.
    pub rate: u32,
    /// Octets of data in a packet, 24 at least.
    #[serde(default = "probe_size")]
    pub size: Spanned<u16>,
    /// When it begins in the timetable; before that, unless given.
    #[serde(default)]
    pub begin: Option<Duration>,
    /// UDP port of both ends; one that no other probe has, unless given.
    #[serde(default)]
    pub port: Option<u16>,
    /// In which directions packets go.
    #[serde(default)]
    pub direction: Direction,
}

fn probe_size() -> Spanned<u16> {
    Spanned::new(0..0, 64)
}

/// A ping over GeoNetworking.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GnPing {
    /// Prefix of its metrics.
    pub name: String,
    /// Label for the legend.
    #[serde(default)]
    pub label: String,
    /// Node that pings.
    pub from: Spanned<String>,
    /// Node that answers, or `area:NAME` of the config of the node that pings.
    pub to: Spanned<String>,
    /// Time between two requests.
    pub interval: Spanned<Duration>,
    /// How long an answer is waited for.
    #[serde(default = "second")]
    pub timeout: Duration,
}

/// A GeoBroadcast into a circle, again and again.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GnBroadcast {
    /// Prefix of its metrics.
    pub name: String,
    /// Label for the legend.
    #[serde(default)]
    pub label: String,
    /// Node that sends.
    pub from: Spanned<String>,
    /// Centre of the circle in metres to the east and north of the origin; where the sender is unless given.
    #[serde(default)]
    pub center: Option<(f64, f64)>,
    /// Its radius.
    pub radius: Spanned<Metres>,
    /// Time from one packet to the next.
    pub interval: Spanned<Duration>,
    /// Octets of payload.
    #[serde(default = "hundred")]
    pub size: Spanned<usize>,
    /// Not packets but events on the road at the centre (DENM): who has one on his map has got it.
    #[serde(default)]
    pub denm: bool,
}

/// A host that sends to an IPv6 multicast group, again and again; the stations lead the group to a circle.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Multicast {
    /// Prefix of its metrics.
    pub name: String,
    /// Label for the legend.
    #[serde(default)]
    pub label: String,
    /// Host that sends.
    pub from: Spanned<String>,
    /// The group.
    pub group: Spanned<std::net::Ipv6Addr>,
    /// Hosts that have joined the group, each with the node with a radio that carries it.
    pub members: BTreeMap<Spanned<String>, Spanned<String>>,
    /// Hosts that have not, likewise; what comes over their wires is counted.
    #[serde(default)]
    pub strangers: BTreeMap<Spanned<String>, Spanned<String>>,
    /// Centre of the circle in metres to the east and north of the origin.
    pub center: (f64, f64),
    /// Its radius.
    pub radius: Spanned<Metres>,
    /// Time from one packet to the next.
    pub interval: Spanned<Duration>,
}

/// An attacker that records the frames of a radio and sends them again unchanged.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// Prefix of its metrics.
    pub name: String,
    /// The node, which has a radio and no carnet.
    pub from: Spanned<String>,
    /// How long after it was heard each frame is sent, once for each of these.
    pub after: Vec<Duration>,
    /// Only every n-th frame; every one by default.
    #[serde(default = "single")]
    pub every: u32,
}

fn second() -> Duration {
    Duration(crate::clock::SECOND)
}

fn hundred() -> Spanned<usize> {
    Spanned::new(0..0, 100)
}
