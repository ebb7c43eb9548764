//! Config of the DHCP server of one interface.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;

use crate::LinkAddress;

/// Config of the server of one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DhcpServerConfig {
    /// IPv4 prefix of the interface.
    pub prefix: Ipv4Net,
    /// First and last address that the server gives to hosts without reservation.
    pub address_range: (Ipv4Addr, Ipv4Addr),
    /// Lease time.
    pub lease_time: Duration,
    /// Addresses for certain hosts.
    pub reservations: Vec<AddressReservation>,
    /// Further DHCP options that the operator has configured: code and value.
    pub options: Vec<(u8, Vec<u8>)>,
    /// DNS servers.
    pub dns_servers: Vec<Ipv4Addr>,
    /// Whether the server's own address is the first DNS server.
    pub is_dns_server: bool,
    /// Domain names that hosts append to short names.
    pub search_domains: Vec<String>,
    /// MTU of the link that the server sends to hosts; `None` for the MTU of the tunnel.
    pub mtu: Option<u16>,
    /// Whether the link has a NAT64. Hosts that work without IPv4 then need no IPv4 address (RFC 8925).
    pub prefers_ipv6_only: bool,
    /// URI of the captive portal's API (RFC 8910).
    pub captive_portal: Option<String>,
}

/// An address for one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressReservation {
    /// Link-layer address of the host.
    pub link_address: LinkAddress,
    /// Address of the host.
    pub address: Ipv4Addr,
    /// Name of the host; `None` for the name that the host sends.
    pub name: Option<String>,
}

impl DhcpServerConfig {
    /// Returns the reservation of a host.
    pub fn reservation_for(&self, link_address: LinkAddress) -> Option<&AddressReservation> {
        self.reservations.iter().find(|reservation| reservation.link_address == link_address)
    }

    /// Returns whether the host may have this address. A reserved address belongs to its host only, and a
    /// host with a reservation gets no other address.
    pub fn may_host_have_address(&self, link_address: LinkAddress, address: Ipv4Addr) -> bool {
        match self.reservation_for(link_address) {
            Some(reservation) => reservation.address == address,
            None => self.is_in_dynamic_range(address),
        }
    }

    /// Returns whether the server may give this address to a host without reservation.
    pub fn is_in_dynamic_range(&self, address: Ipv4Addr) -> bool {
        let (first, last) = self.address_range;
        let is_reserved = || self.reservations.iter().any(|reservation| reservation.address == address);
        (first..=last).contains(&address) && !is_reserved()
    }
}
