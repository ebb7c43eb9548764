//! State of an interface, and the ICMPv6 messages that a station receives and sends on it.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Deserializer, Serialize};

use crate::hex;

/// An ICMPv6 message on a link, without its IPv6 header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkMessage {
    /// Name of the interface.
    pub interface: String,
    /// IPv6 source.
    pub source: Ipv6Addr,
    /// IPv6 destination.
    pub destination: Ipv6Addr,
    /// Hop limit of the IPv6 header: receivers accept Neighbor Discovery only with 255 (RFC 4861 6.1, 7.1).
    pub hop_limit: u8,
    /// Link-layer address of the peer: of the sender for a received message, of the receiver for a sent one.
    /// `None` if the link has no such addresses, or for a multicast destination.
    pub peer: Option<[u8; 6]>,
    /// The ICMPv6 message with its checksum, which the receiver of this value verifies.
    #[serde(with = "hex")]
    pub message: Vec<u8>,
}

/// State of an interface in the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// Whether the interface is administratively up and has carrier (`IFF_UP` and `IFF_LOWER_UP`).
    pub running: bool,
    /// Link MTU in octets.
    pub mtu: u32,
    /// The 48-bit link-layer address; `None` if the interface has none.
    pub link_address: Option<[u8; 6]>,
    /// IPv6 addresses of the interface.
    pub addresses: Vec<Address>,
    /// Default routes that the kernel would use for packets on this interface, from the tables that its rules
    /// name. The order is that of the kernel: longest source prefix, lowest metric, highest preference (RFC
    /// 4191 3.2). The list omits expired routes.
    pub routers: Vec<Ipv6Router>,
    /// IPv4 addresses of the interface with their prefix lengths, primary addresses first. The list omits
    /// link-local (RFC 3927) and loopback addresses.
    #[serde(default, deserialize_with = "deserialize_ipv4_addresses")]
    pub ipv4_addresses: Vec<Ipv4Net>,
    /// The IPv4 default routes, ordered like [`Self::routers`]. The list is empty if the interface reaches
    /// only hosts on its link.
    #[serde(default)]
    pub ipv4_routers: Vec<Ipv4Router>,
}

/// One next hop of a default route. Recordings of earlier versions contain only the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "SerializedRoute<A, N>", bound(deserialize = "A: Deserialize<'de>, N: Deserialize<'de>"))]
pub struct DefaultRoute<A, N> {
    /// Address of the router; unspecified for a route without gateway, as on point-to-point links.
    pub gateway: A,
    /// Source prefix: the route applies only to packets with a source address in this prefix (`default from
    /// PREFIX`). `None` if the route applies to all sources.
    pub source: Option<N>,
    /// Preferred source address of the route (`src`, `RTA_PREFSRC`). `None` if the route names none.
    pub preferred_source: Option<A>,
    /// State of the router in the kernel's neighbour cache.
    pub neighbour: NeighbourState,
}

/// The forms of a default route in recordings.
#[derive(Deserialize)]
#[serde(untagged)]
enum SerializedRoute<A, N> {
    Whole { gateway: A, source: Option<N>, preferred_source: Option<A>, neighbour: NeighbourState },
    Gateway(A),
}

impl<A, N> From<SerializedRoute<A, N>> for DefaultRoute<A, N> {
    fn from(written: SerializedRoute<A, N>) -> Self {
        match written {
            SerializedRoute::Whole { gateway, source, preferred_source, neighbour } => {
                DefaultRoute { gateway, source, preferred_source, neighbour }
            }
            SerializedRoute::Gateway(gateway) => gateway.into(),
        }
    }
}

/// Reads IPv4 addresses with the length of their subnet. Recordings of earlier versions lack the length.
fn deserialize_ipv4_addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Ipv4Net>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum SerializedAddress {
        Net(Ipv4Net),
        Address(Ipv4Addr),
    }
    let written = Vec::<SerializedAddress>::deserialize(deserializer)?;
    let net = |written| match written {
        SerializedAddress::Net(net) => net,
        SerializedAddress::Address(address) => Ipv4Net::from(address),
    };
    Ok(written.into_iter().map(net).collect())
}

/// A default route of IPv6.
pub type Ipv6Router = DefaultRoute<Ipv6Addr, Ipv6Net>;
/// A default route of IPv4.
pub type Ipv4Router = DefaultRoute<Ipv4Addr, Ipv4Net>;

impl<A, N> From<A> for DefaultRoute<A, N> {
    /// Returns a default route to this gateway that applies to all source addresses.
    fn from(gateway: A) -> Self {
        DefaultRoute { gateway, source: None, preferred_source: None, neighbour: NeighbourState::Unknown }
    }
}

/// Whether a neighbour is reachable (RFC 4861 7.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NeighbourState {
    /// The kernel has no entry, or the link needs none.
    #[default]
    Unknown,
    /// Address resolution is in progress.
    Incomplete,
    /// The kernel knows the link-layer address: REACHABLE, STALE, DELAY or PROBE.
    Known,
    /// The neighbour did not answer Neighbor Unreachability Detection or address resolution.
    Failed,
}

/// An address on an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address.
    pub address: Ipv6Addr,
    /// Prefix length of the address.
    pub prefix_length: u8,
    /// Whether duplicate address detection is still in progress (RFC 4862 5.4), and the address is not
    /// optimistic.
    pub tentative: bool,
    /// Whether duplicate address detection has found that another node has the address.
    pub duplicate: bool,
    /// Whether the preferred lifetime of the address has ended.
    pub deprecated: bool,
    /// Whether the address is temporary (RFC 8981). Such an address is no care-of address while a stable
    /// address is available.
    pub temporary: bool,
    /// Whether the operator or a program has set the address without a lifetime, so that it is not from
    /// autoconfiguration.
    #[serde(default)]
    pub permanent: bool,
}
