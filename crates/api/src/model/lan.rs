//! The mobile network, as `GET /v1/lan` shows it.

use std::net::{IpAddr, Ipv4Addr};

use carnet_nemo::status::LanAdvertisement;
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

/// An interface of the mobile network, with what carnet tells the hosts on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lan {
    /// Its name.
    pub interface: String,
    /// `up`, `no_carrier` or `no_such_interface`.
    pub state: String,
    /// Its first IPv4 prefix, or `null`.
    pub ipv4_prefix: Option<Ipv4Net>,
    /// What Router Advertisements say, or `null` where carnet sends none.
    pub advertisement: Option<LanAdvertisement>,
    /// The DHCP server, or `null` where carnet gives hosts no addresses.
    pub dhcp: Option<LanDhcp>,
    /// Addresses at which carnet answers DNS queries; none without `dns_forward`.
    pub dns: Vec<LanDns>,
    /// The hosts with a lease, by address.
    pub hosts: Vec<LanHost>,
}

/// The DHCP server of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanDhcp {
    /// Its address, or `null` while the interface has none in the prefix.
    pub address: Option<Ipv4Addr>,
    /// First address for hosts without reservation.
    pub first: Ipv4Addr,
    /// Last address for hosts without reservation.
    pub last: Ipv4Addr,
    /// How many addresses hosts without reservation can have.
    pub addresses: u64,
    /// How many of them are free.
    pub free: u64,
    /// Lease time in seconds.
    pub lease_s: u64,
    /// Why it does not run now, or `null`.
    pub failure: Option<String>,
    /// Another DHCP server that answers hosts on the interface, or `null`.
    pub other_server: Option<Ipv4Addr>,
}

/// An address at which carnet answers DNS queries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanDns {
    /// The address.
    pub address: IpAddr,
    /// Why it does not answer there now, or `null`.
    pub failure: Option<String>,
}

/// A host with a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanHost {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its link-layer address, `xx:xx:xx:xx:xx:xx`.
    pub mac: String,
    /// Its name, or `null`.
    pub name: Option<String>,
    /// Seconds until the lease ends.
    pub remaining_s: u64,
    /// Whether the config reserves the address for it.
    pub reserved: bool,
}
