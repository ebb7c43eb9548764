//! The data paths that the benchmark compares.

use serde::{Deserialize, Serialize};

/// A data path for packets.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[clap(rename_all = "snake_case")]
pub enum Path {
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

impl Path {
    /// All data paths.
    pub const ALL_PATHS: [Path; 6] = [Path::Plain, Path::Seg6, Path::Bpf, Path::Xdp, Path::Kernel, Path::Tun];

    /// Returns the name of the data path, as in the config.
    pub fn name(self) -> &'static str {
        match self {
            Path::Plain => "plain",
            Path::Seg6 => "seg6",
            Path::Bpf => "bpf",
            Path::Xdp => "xdp",
            Path::Kernel => "kernel",
            Path::Tun => "tun",
        }
    }

    /// Returns a description of the data path for the tables.
    pub fn path_description(self) -> &'static str {
        match self {
            Path::Plain => "Linux forwards, no tunnel",
            Path::Seg6 => "the kernel's own tunnel: seg6 encap.red and End.DT6",
            Path::Bpf => "carnet, BPF programs at tc ingress",
            Path::Xdp => "carnet, XDP programs",
            Path::Kernel => "carnet, the kernel's ip6_tunnel",
            Path::Tun => "carnet, TUN device",
        }
    }

    /// Returns whether the benchmark sends IPv4 over the path. The kernel's own tunnel carries IPv6 alone,
    /// because `End.DT4` needs a VRF.
    pub fn carries_ipv4(self) -> bool {
        self != Path::Seg6
    }

    /// Returns whether carnet runs in the routers.
    pub fn is_carnet(self) -> bool {
        !matches!(self, Path::Plain | Path::Seg6)
    }
}
