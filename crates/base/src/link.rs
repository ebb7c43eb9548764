//! State of an interface, and the ICMPv6 messages that a station receives and sends there.

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
    /// Hop limit of the IPv6 header: Neighbor Discovery is only believed at 255 (RFC 4861 6.1, 7.1).
    pub hop_limit: u8,
    /// Link-layer address of the other side: the sender's of a message that came in, the receiver's of one
    /// that goes out. `None` where the link has none, or for a multicast destination.
    pub peer: Option<[u8; 6]>,
    /// The ICMPv6 message with its checksum, which the receiver of this value verifies.
    #[serde(with = "hex")]
    pub message: Vec<u8>,
}

/// The state of an interface as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Administratively up and with carrier (`IFF_UP` and `IFF_LOWER_UP`).
    pub running: bool,
    /// Link MTU in octets.
    pub mtu: u32,
    /// The 48-bit link-layer address, where there is one.
    pub link_address: Option<[u8; 6]>,
    /// The IPv6 addresses that the kernel has on it.
    pub addresses: Vec<Address>,
    /// Default routes that the kernel would use for packets that leave by this interface, from the tables
    /// that its rules name. Order of the kernel: longest source prefix, lowest metric, highest preference
    /// (RFC 4191 3.2). Expired routes are left out.
    pub routers: Vec<Ipv6Router>,
    /// IPv4 addresses of the interface with their prefix lengths, primary addresses first. Link-local (RFC
    /// 3927) and loopback addresses are left out.
    #[serde(default, deserialize_with = "ipv4_addresses")]
    pub ipv4_addresses: Vec<Ipv4Net>,
    /// The IPv4 default routes, as [`Self::routers`]. An interface without one has hosts on its link here, each of
    /// which has a route of its own.
    #[serde(default)]
    pub ipv4_routers: Vec<Ipv4Router>,
}

/// One next hop of a default route. A recording may have the gateway alone, as versions before this type
/// wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenRoute<A, N>", bound(deserialize = "A: Deserialize<'de>, N: Deserialize<'de>"))]
pub struct DefaultRoute<A, N> {
    /// The router; unspecified for a route without gateway, as point-to-point links have it.
    pub gateway: A,
    /// The route is for packets with a source address in this prefix only (`default from PREFIX`).
    pub source: Option<N>,
    /// The source address that the route recommends (`src`, `RTA_PREFSRC`).
    pub preferred_source: Option<A>,
    /// State of the router in the kernel's neighbour cache.
    pub neighbour: NeighbourState,
}

/// The forms in which a recording has a default route.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenRoute<A, N> {
    Whole { gateway: A, source: Option<N>, preferred_source: Option<A>, neighbour: NeighbourState },
    Gateway(A),
}

impl<A, N> From<WrittenRoute<A, N>> for DefaultRoute<A, N> {
    fn from(written: WrittenRoute<A, N>) -> Self {
        match written {
            WrittenRoute::Whole { gateway, source, preferred_source, neighbour } => {
                DefaultRoute { gateway, source, preferred_source, neighbour }
            }
            WrittenRoute::Gateway(gateway) => gateway.into(),
        }
    }
}

/// Reads IPv4 addresses with the length of their subnet, or, from recordings of earlier versions, without.
fn ipv4_addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Ipv4Net>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Net(Ipv4Net),
        Address(Ipv4Addr),
    }
    let written = Vec::<Written>::deserialize(deserializer)?;
    let net = |written| match written {
        Written::Net(net) => net,
        Written::Address(address) => Ipv4Net::from(address),
    };
    Ok(written.into_iter().map(net).collect())
}

/// A default route of IPv6.
pub type Ipv6Router = DefaultRoute<Ipv6Addr, Ipv6Net>;
/// A default route of IPv4.
pub type Ipv4Router = DefaultRoute<Ipv4Addr, Ipv4Net>;

impl<A, N> From<A> for DefaultRoute<A, N> {
    /// The plain default route by a router of which no more is known.
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
    /// Address resolution is under way.
    Incomplete,
    /// Its link-layer address is known: REACHABLE, STALE, DELAY or PROBE.
    Known,
    /// It did not answer Neighbor Unreachability Detection or address resolution.
    Failed,
}

/// An address on an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address.
    pub address: Ipv6Addr,
    /// Its prefix length.
    pub prefix_length: u8,
    /// Duplicate address detection is still under way (RFC 4862 5.4), and the address is not optimistic.
    pub tentative: bool,
    /// Duplicate address detection found that another node has it.
    pub duplicate: bool,
    /// Past its preferred lifetime.
    pub deprecated: bool,
    /// A temporary address (RFC 8981): never a care-of address while a stable one is there.
    pub temporary: bool,
    /// The operator, or a program for him, has set it without a lifetime: autoconfiguration has not made it.
    #[serde(default)]
    pub permanent: bool,
}
