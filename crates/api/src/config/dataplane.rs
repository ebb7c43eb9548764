//! `[dataplane]`: the data path of packets.

use super::keys::{Key, Section, key_with_default, words_kind};
use super::table::{Table, all};

/// `[dataplane]`: the data path of packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataplane {
    /// Value of the key `path`: the data path.
    pub path: DataplanePath,
}

/// Value of the config key `dataplane.path`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataplanePath {
    /// The fastest data path that the kernel offers.
    Auto,
    /// BPF programs at tc ingress.
    Bpf,
    /// XDP programs.
    Xdp,
    /// Tunnel devices of the kernel.
    Kernel,
    /// The TUN device `carnet0`.
    Tun,
}

static PATH_KEY: Key<DataplanePath> = key_with_default(
    "path",
    words_kind(&[
        ("auto", DataplanePath::Auto),
        ("bpf", DataplanePath::Bpf),
        ("xdp", DataplanePath::Xdp),
        ("kernel", DataplanePath::Kernel),
        ("tun", DataplanePath::Tun),
    ]),
    "\"auto\"",
    r#"`"tun"`: the TUN device `carnet0`, which works on any kernel. `"bpf"`, `"xdp"`: BPF programs forward
       most packets before they reach that device, on socket buffers or in the drivers of the interfaces.
       `"kernel"`: tunnel devices `cn0`, `cn1` and so on of the kernel's module ip6_tunnel do so. A path that
       the machine does not support is an error. `"auto"` tries `"bpf"`, `"kernel"`, then `"tun"`, and logs
       why. If all tunnels are encrypted, `"auto"` is `"tun"`. On virtual Ethernet `"xdp"` works only if the
       other end has GRO on: see [operating.md](operating.md#dataplanepath--xdp-on-virtual-ethernet). With
       `"bpf"`, `"xdp"` and `"auto"` GeoNetworking has BPF programs of its own. They forward GeoUnicast
       packets of IPv6 at `ipv6_interface` and at the radio. They do not if the radio is UDP or reports
       acknowledgements (802.11), or if `unicast` is not `"greedy"`. They forward packets of other stations
       only if `mib.max_packet_data_rate` is 0."#,
);

/// Keys of the config table `[dataplane]`.
pub(in crate::config) static SECTION: Section = Section::new("[dataplane]", "dataplane", &[&PATH_KEY]);

/// Reads the table; `None` if it has an error.
pub(super) fn read_table(table: &Table<'_>) -> Option<Dataplane> {
    all!(Dataplane { path: table.read_key(&PATH_KEY) })
}
