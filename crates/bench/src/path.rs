//! The data paths and the encrypted tunnels that the benchmark compares.

use serde::{Deserialize, Serialize};

/// A data path for packets.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[clap(rename_all = "snake_case")]
pub enum DataPath {
    /// Plain forwarding by the kernel, without a tunnel.
    Plain,
    /// The kernel's own tunnel: seg6 `encap.red` and `End.DT6`.
    Seg6,
    /// carnet, `dataplane.path = "bpf"`.
    Bpf,
    /// carnet, `dataplane.path = "xdp"`.
    Xdp,
    /// carnet, `dataplane.path = "kernel"`.
    Kernel,
    /// carnet, `dataplane.path = "tun"`.
    Tun,
}

impl DataPath {
    /// All data paths.
    pub const ALL_PATHS: [DataPath; 6] =
        [DataPath::Plain, DataPath::Seg6, DataPath::Bpf, DataPath::Xdp, DataPath::Kernel, DataPath::Tun];

    /// Returns the name of the data path, as in the config.
    pub fn name(self) -> &'static str {
        match self {
            DataPath::Plain => "plain",
            DataPath::Seg6 => "seg6",
            DataPath::Bpf => "bpf",
            DataPath::Xdp => "xdp",
            DataPath::Kernel => "kernel",
            DataPath::Tun => "tun",
        }
    }

    /// Returns a description of the data path for the tables.
    pub fn path_description(self) -> &'static str {
        match self {
            DataPath::Plain => "Linux forwards, no tunnel",
            DataPath::Seg6 => "the kernel's own tunnel: seg6 encap.red and End.DT6",
            DataPath::Bpf => "carnet, BPF programs at tc ingress",
            DataPath::Xdp => "carnet, XDP programs",
            DataPath::Kernel => "carnet, the kernel's ip6_tunnel",
            DataPath::Tun => "carnet, TUN device",
        }
    }

    /// Returns whether the benchmark sends IPv4 over the path. The kernel's own tunnel carries IPv6 alone,
    /// because `End.DT4` needs a VRF.
    pub fn carries_ipv4(self) -> bool {
        self != DataPath::Seg6
    }

    /// Returns whether carnet runs in the routers.
    pub fn uses_carnet(self) -> bool {
        !matches!(self, DataPath::Plain | DataPath::Seg6)
    }
}

/// A tunnel that the benchmark compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[clap(rename_all = "snake_case")]
pub enum SessionLane {
    /// Plain forwarding by the kernel, without a tunnel.
    Plain,
    /// carnet without encryption, `dataplane.path = "bpf"`.
    ClearBpf,
    /// carnet without encryption, `dataplane.path = "tun"`.
    ClearTun,
    /// The library alone, over IPv6.
    Library,
    /// carnet with key pairs, over IPv6.
    Encrypted,
    /// The library alone, over IPv4.
    LibraryIpv4,
    /// carnet with key pairs, over IPv4.
    EncryptedIpv4,
}

impl SessionLane {
    /// All lanes, in the order of the table.
    pub const ALL_LANES: [SessionLane; 7] = [
        SessionLane::Plain,
        SessionLane::ClearBpf,
        SessionLane::ClearTun,
        SessionLane::Library,
        SessionLane::Encrypted,
        SessionLane::LibraryIpv4,
        SessionLane::EncryptedIpv4,
    ];

    /// Returns a description of the lane for the tables.
    pub fn lane_description(self) -> &'static str {
        match self {
            SessionLane::Plain => "plain forwarding",
            SessionLane::ClearBpf => "carnet in the clear, bpf",
            SessionLane::ClearTun => "carnet in the clear, tun",
            SessionLane::Library => "library alone over IPv6",
            SessionLane::Encrypted => "carnet encrypted over IPv6",
            SessionLane::LibraryIpv4 => "library alone over IPv4",
            SessionLane::EncryptedIpv4 => "carnet encrypted over IPv4",
        }
    }

    /// Returns the lane of the library alone with the same outer header, for an encrypted lane.
    pub fn library_lane(self) -> Option<SessionLane> {
        match self {
            SessionLane::Encrypted => Some(SessionLane::Library),
            SessionLane::EncryptedIpv4 => Some(SessionLane::LibraryIpv4),
            _ => None,
        }
    }

    /// Returns whether IPv4 is outside.
    pub fn is_over_ipv4(self) -> bool {
        matches!(self, SessionLane::LibraryIpv4 | SessionLane::EncryptedIpv4)
    }

    /// Returns the name of the lane's test network.
    pub fn network_name(self) -> &'static str {
        match self {
            SessionLane::Plain => "sessions-plain",
            SessionLane::ClearBpf => "sessions-bpf",
            SessionLane::ClearTun => "sessions-tun",
            SessionLane::Library => "sessions-lib",
            SessionLane::Encrypted => "sessions-keys",
            SessionLane::LibraryIpv4 => "sessions-lib4",
            SessionLane::EncryptedIpv4 => "sessions-keys4",
        }
    }
}
