//! The data paths that the benchmark compares.

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
