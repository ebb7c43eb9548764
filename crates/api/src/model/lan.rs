//! The mobile network, as `GET /v1/lan` shows it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carnet_nemo::status::{LanAdvertisement, LanAllowed};
use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

/// Interface of the mobile network, and the values that carnet gives hosts there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lan {
    /// Name of the interface.
    pub interface: String,
    /// `up`, `no_carrier` or `no_such_interface`.
    pub state: String,
    /// Packets from outside that reach hosts: `any`, or `established` for those of connections that hosts
    /// began.
    #[serde(default)]
    pub inbound: String,
    /// Exceptions: packets from outside that reach hosts nevertheless.
    #[serde(default)]
    pub allow: Vec<LanAllowed>,
    /// Whether no packets pass between this interface and others on board.
    #[serde(default)]
    pub isolated: bool,
    /// Reason why the router forwards no packet to this interface, or `null` if it forwards packets.
    #[serde(default)]
    pub closed: Option<String>,
    /// First IPv4 prefix of the interface, or `null`.
    pub ipv4_prefix: Option<Ipv4Net>,
    /// Content of the Router Advertisements, or `null` if carnet sends none.
    pub advertisement: Option<LanAdvertisement>,
    /// The DHCP server, or `null` where carnet gives hosts no addresses.
    pub dhcp: Option<LanDhcp>,
    /// Addresses at which carnet answers DNS queries; none without `dns_forward`.
    pub dns: Vec<LanDns>,
    /// Length of the prefixes that routers on the interface get, or `null` if they get none.
    #[serde(default)]
    pub delegate: Option<u8>,
    /// The prefixes that routers on the interface have.
    #[serde(default)]
    pub delegated: Vec<LanDelegation>,
    /// The hosts with a lease, by address.
    pub hosts: Vec<LanHost>,
}

/// The DHCP server of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanDhcp {
    /// Address of the server, or `null` while the interface has no address in the prefix.
    pub address: Option<Ipv4Addr>,
    /// First address for hosts without reservation.
    pub first: Ipv4Addr,
    /// Last address for hosts without reservation.
    pub last: Ipv4Addr,
    /// Number of addresses for hosts without reservation.
    pub addresses: u64,
    /// Number of addresses for hosts without reservation that are free now.
    pub free: u64,
    /// Lease time in seconds.
    pub lease_s: u64,
    /// Reason why the DHCP server does not run now, or `null`.
    pub failure: Option<String>,
    /// Another DHCP server that answers hosts on the interface, or `null`.
    pub other_server: Option<Ipv4Addr>,
}

/// An address at which carnet answers DNS queries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanDns {
    /// The address.
    pub address: IpAddr,
    /// Reason why carnet does not answer DNS queries at this address now, or `null`.
    pub failure: Option<String>,
}

/// A prefix that a router on board has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanDelegation {
    /// The prefix.
    pub prefix: Ipv6Net,
    /// Link-local address of the router.
    pub router: Ipv6Addr,
    /// Identity of the router (DUID), in hexadecimal digits.
    pub duid: String,
    /// Seconds until the delegation ends.
    pub remaining_s: u64,
}

/// A host with a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanHost {
    /// Address of the host.
    pub address: Ipv4Addr,
    /// Link-layer address of the host, `xx:xx:xx:xx:xx:xx`.
    pub mac: String,
    /// Name of the host, or `null`.
    pub name: Option<String>,
    /// Seconds until the lease ends.
    pub remaining_s: u64,
    /// Whether the config reserves the address for the host.
    pub reserved: bool,
}
