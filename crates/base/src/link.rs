//! What a station knows of an interface, and the ICMPv6 messages that it hears and sends there.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

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
    /// The ICMPv6 message with its checksum; whoever takes it in checks it.
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
    /// The default routers that the kernel knows on it (main table), the preferred one first. `::` stands for a
    /// default route without gateway, as point-to-point links have it.
    pub routers: Vec<Ipv6Addr>,
    /// The IPv4 addresses on it, without those of the link (RFC 3927) and of the machine itself; the primary ones
    /// first.
    #[serde(default)]
    pub ipv4_addresses: Vec<Ipv4Addr>,
    /// The IPv4 default routers, as [`Self::routers`]; `0.0.0.0` for a default route without gateway.
    #[serde(default)]
    pub ipv4_routers: Vec<Ipv4Addr>,
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
}
