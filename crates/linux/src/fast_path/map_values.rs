//! Values of the programs' maps, with the layout of the structures in `bpf/state.h`.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddrV4};

use carnet_base::Endpoint;

use super::TunnelEnds;

/// Maximum number of paths of a binding (`PATHS` in C).
pub(crate) const MAX_PATHS_PER_BINDING: usize = 4;
/// Maximum number of different prefix lengths at one tunnel end (`LENGTHS_MAX` in C).
pub(crate) const MAX_PREFIX_LENGTHS: usize = 16;
/// Copy of `struct path` in C: addresses and ports in network byte order, IPv4 addresses mapped.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PathValue {
    pub(crate) local: [u8; 16],
    pub(crate) remote: [u8; 16],
    pub(crate) udp_ports: [[u8; 2]; 2],
    pub(crate) interface_index: u32,
}

impl PathValue {
    pub(crate) fn new((local, remote): TunnelEnds, interface: u32) -> PathValue {
        let address = |end: Endpoint| match end.address() {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        let ports = [local, remote].map(|end| end.port().unwrap_or(0).to_be_bytes());
        PathValue {
            local: address(local),
            remote: address(remote),
            udp_ports: ports,
            interface_index: interface,
        }
    }

    /// Returns the ends of the path's tunnel.
    pub(crate) fn tunnel_ends(&self) -> TunnelEnds {
        let end = |address: [u8; 16], port: [u8; 2]| {
            let address = Ipv6Addr::from(address);
            match (address.to_ipv4_mapped(), u16::from_be_bytes(port)) {
                (None, _) => Endpoint::Ipv6(address),
                (Some(address), 0) => Endpoint::Ipv4(address),
                (Some(address), port) => Endpoint::Udp(SocketAddrV4::new(address, port)),
            }
        };
        (end(self.local, self.udp_ports[0]), end(self.remote, self.udp_ports[1]))
    }
}

/// Copy of `struct binding` in C.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BindingValue {
    pub(crate) paths: [PathValue; MAX_PATHS_PER_BINDING],
    pub(crate) path_mtus: [u32; MAX_PATHS_PER_BINDING],
    pub(crate) accepting_paths: u32,
    pub(crate) transmitting_paths: u32,
    pub(crate) traffic_slot: u32,
    /// Number of the binding's rule set; see `MapOperation::SetRules` in `binding_table`.
    pub(crate) rule_list_number: u32,
}

impl BindingValue {
    /// Returns the tunnel ends of the paths. Paths for sending come first.
    pub(crate) fn path_ends(&self) -> impl Iterator<Item = TunnelEnds> {
        self.paths.iter().take(self.accepting_paths as usize).map(PathValue::tunnel_ends)
    }
}

/// Copy of `struct prefix` in C.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PrefixKey {
    pub(crate) high_bits: u64,
    pub(crate) low_bits: u64,
    pub(crate) length: u32,
    pub(crate) tunnel_end: u32,
}

impl PrefixKey {
    pub(crate) fn address_bits(&self) -> u128 {
        u128::from(self.high_bits) << 64 | u128::from(self.low_bits)
    }

    /// Returns the prefix of this length that contains this prefix.
    pub(crate) fn shorten_to(&self, length: u32) -> PrefixKey {
        let bits = self.address_bits() & u128::MAX.checked_shl(128 - length).unwrap_or(0);
        PrefixKey {
            high_bits: (bits >> 64) as u64,
            low_bits: bits as u64,
            length,
            tunnel_end: self.tunnel_end,
        }
    }
}

/// Copy of `struct lengths` in C.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LengthsValue {
    pub(crate) length_count: u32,
    pub(crate) lengths: [u32; MAX_PREFIX_LENGTHS],
}

impl LengthsValue {
    pub(crate) fn used_lengths(&self) -> impl Iterator<Item = u32> + '_ {
        self.lengths.iter().copied().take(self.length_count as usize)
    }

    /// Creates the list of these prefix lengths. If there are more than [`MAX_PREFIX_LENGTHS`], the list is
    /// empty.
    pub(crate) fn new(lengths: &BTreeSet<u32>) -> LengthsValue {
        let mut value = LengthsValue::default();
        if lengths.len() <= MAX_PREFIX_LENGTHS {
            for (to, length) in value.lengths.iter_mut().zip(lengths.iter().rev()) {
                *to = *length;
                value.length_count += 1;
            }
        }
        value
    }

    pub(crate) fn merge_lengths(&self, other: &LengthsValue) -> LengthsValue {
        LengthsValue::new(&self.used_lengths().chain(other.used_lengths()).collect())
    }
}

/// How much of a packet the rules of the packet filter use (`enum filter` in C).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum RuleScope {
    /// No rule uses the packets.
    #[default]
    Nothing = 0,
    /// Rules use only interfaces, addresses, protocol, ports and connection state.
    Flow = 1,
    /// A rule uses other fields or properties of a packet, so the kernel must see each packet.
    Packet = 2,
}

/// Copy of `struct ruleset` in C.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RulesetValue {
    /// Number that changes with the rules; 0 while carnet does not know them.
    pub(crate) ruleset_generation: u32,
    /// [`RuleScope`] of the rules for IPv4, and for IPv6.
    pub(crate) ipv4_scope: u32,
    pub(crate) ipv6_scope: u32,
    /// Timeouts of connection tracking in milliseconds: TCP connections, TCP connections of which only one
    /// end sends, and UDP flows with packets in both directions.
    pub(crate) tcp_timeout_ms: u32,
    pub(crate) unacknowledged_timeout_ms: u32,
    pub(crate) udp_timeout_ms: u32,
}

/// Value of the map `POLICY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RoutingPolicy {
    /// Whether the kernel routes arriving packets by interface and destination only.
    pub(super) arriving_by_destination: bool,
    /// Whether the kernel routes packets from the tunnel device by interface and destination only.
    pub(super) leaving_by_destination: bool,
    /// Whether carnet knows the destinations of all routes with prefixes longer than 64 bits.
    pub(super) knows_long_prefixes: bool,
}
