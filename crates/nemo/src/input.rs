//! Input types of the NEMO plane that no other crate defines.

use std::fmt::Debug;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{Endpoint, Time, WallTime};
use carnet_mobility::SessionPeer;
use carnet_mobility::mnpp::StationObserver;
use carnet_wire::address::MacAddress;
use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

/// Number of packets of one tunnel that a fast path has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelTraffic {
    /// Local end of the tunnel.
    pub local: Endpoint,
    /// Remote end of the tunnel.
    pub remote: Endpoint,
    /// Number of packets that the fast path has sent into the tunnel.
    pub sent: u64,
    /// Number of packets that the fast path has received from the tunnel.
    pub received: u64,
}

/// The stations in radio range, as GeoNetworking knows them.
pub trait Stations: StationObserver + Debug {
    /// Returns the distance to a station in metres; infinity if its position is unknown.
    fn predicted_distance_of(&self, now: Time, station: [u8; 6]) -> f64;
    /// Returns the longest interval between two beacons of a station.
    fn beacon_interval(&self) -> Duration;
}

/// The stations in radio range; `None` without GeoNetworking.
pub type OptionalStations<'a> = Option<&'a dyn Stations>;

/// Time of a packet's arrival, with the stations in radio range at this time.
#[derive(Debug, Clone, Copy)]
pub struct PacketArrival<'a> {
    /// Monotonic time of the arrival.
    pub now: Time,
    /// Date of the arrival.
    pub wall_time: WallTime,
    /// Stations in radio range.
    pub stations_in_range: OptionalStations<'a>,
    /// Remote key of the encrypted session through which the packet came; `None` outside of a session.
    pub session_peer: Option<SessionPeer>,
}

/// A prefix that a router on board has got from this mobile router (RFC 8415).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegatedPrefix {
    /// The prefix, a part of the mobile network.
    pub prefix: Ipv6Net,
    /// Interface on board at which the router is.
    pub interface: String,
    /// Link-local address of the router.
    pub router: Ipv6Addr,
}

/// Command that gives a host on board access to the captive portal of an uplink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortalAccessRequest {
    /// Interface name of the uplink.
    pub uplink: String,
    /// Interface on board at which the host is.
    pub lan: String,
    /// Link-layer address of the host.
    pub host: MacAddress,
    /// Duration of the access in seconds.
    pub for_s: u32,
    /// DNS servers of the uplink. If none of them has an IPv6 address, the station adds the servers that
    /// Router Advertisements on the uplink name.
    pub dns: Vec<IpAddr>,
}

/// Returns whether hosts on board may send DNS queries to this address by an uplink. It must be a unicast
/// address that is valid beyond one link.
pub fn is_possible_dns_server(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => carnet_wire::ipv4::is_unicast_routable(address),
        IpAddr::V6(address) => carnet_wire::ipv6::is_unicast_routable(address),
    }
}
