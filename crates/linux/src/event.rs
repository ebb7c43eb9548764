//! The events that the platform reports to the station.

use std::net::Ipv6Addr;

use carnet_base::Endpoint;
use carnet_station::io::{Interface, LinkMessage};

use crate::fast_path::DataPath;

/// Event of the platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlatformEvent {
    /// State of an interface, at the start and after each change. The platform does not report the TUN
    /// device.
    Interface(Interface),
    /// An interface has vanished.
    InterfaceGone {
        /// Name of the interface.
        name: String,
    },
    /// The kernel has verified that a neighbour on an interface of the mobile network answers at an IPv6
    /// address ([`crate::InterfaceRoles::lan_interfaces`]). If events of the kernel are lost, this event is
    /// lost too.
    NeighbourReachable {
        /// Name of the interface.
        interface: String,
        /// Address of the neighbour.
        address: Ipv6Addr,
        /// Link-layer address at which the neighbour has answered.
        link_address: [u8; 6],
    },
    /// The fast path has sent packets into this tunnel since the last such event. The platform checks one
    /// tunnel after the other, which takes ten seconds with few tunnels and minutes with many.
    TunnelUsed {
        /// Local end of the tunnel.
        local: Endpoint,
        /// Remote end of the tunnel.
        remote: Endpoint,
    },
    /// Destinations of packets that the fast path has sent into the tunnel to the home agent
    /// ([`crate::InterfaceRoles::direct_routes_enabled`]).
    Destinations(Vec<Ipv6Addr>),
    /// A thread has finished loading the programs of the fast paths. [`crate::Platform::data_path`] tells
    /// which data path is in use now. The event lists the fast paths that are unavailable, each with the
    /// reason ([`crate::Platform::open_fast_path`]).
    DataPath(Vec<(DataPath, String)>),
    /// The rules of packet filter and NAT are in force, or the text says why they are not.
    PacketRules(Option<String>),
    /// Another program on this machine has changed a setting that the station needs. The text is for the
    /// operator.
    Notice(String),
    /// An ICMPv6 message received on a watched link. The types are errors (1 to 4), Neighbor Discovery (133
    /// to 136) and the answer to home agent discovery (145).
    Icmpv6(LinkMessage),
}
