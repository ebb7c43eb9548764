//! Converts the config of the mobile network's interfaces to settings of the services for hosts.

use std::net::IpAddr;

use carnet_api::config::{Config, Lan};
use carnet_lan::dhcpv4::{AddressReservation, DhcpServerConfig};
use carnet_lan::dhcpv6::Dhcpv6Config;
use carnet_lan::dhcpv6::delegation::{DelegatingInterface, DelegatorConfig};
use ipnet::Ipv4Net;

/// Returns the interfaces on which carnet gives hosts IPv4 addresses, with the config of their servers.
pub fn dhcp_servers(config: &Config) -> Vec<(String, DhcpServerConfig)> {
    let Some(router) = &config.mobile_router else { return Vec::new() };
    let servers = router.lans_with_ipv4_prefix().filter_map(|(lan, prefix)| {
        let forwards = !router.dns_forward_servers.is_empty();
        Some((lan.interface.clone(), dhcp_server_config(lan, prefix?, forwards)?))
    });
    servers.collect()
}

/// Returns the interfaces on which carnet answers DHCPv6 requests, with the values for hosts. If carnet
/// itself is the DNS server on an interface, the values lack this server's address.
pub fn dhcpv6_servers(config: &Config) -> Vec<(String, Dhcpv6Config)> {
    let Some(router) = &config.mobile_router else { return Vec::new() };
    let forwards = !router.dns_forward_servers.is_empty();
    let lans = router.lan_interfaces.iter().filter(|lan| lan.has_dhcpv6(forwards));
    let servers = lans.map(|lan| {
        let dns = lan.dns_servers.iter().filter_map(|server| match server {
            IpAddr::V6(server) => Some(*server),
            IpAddr::V4(_) => None,
        });
        let (search, captive_portal) = (lan.search_domains.clone(), lan.captive_portal.clone());
        (
            lan.interface.clone(),
            Dhcpv6Config { dns_servers: dns.collect(), search_domains: search, captive_portal },
        )
    });
    servers.collect()
}

/// Returns the config of prefix delegation: the mobile network prefixes, and their parts that are in use.
pub fn delegator_config(config: &Config) -> DelegatorConfig {
    let Some(router) = &config.mobile_router else { return DelegatorConfig::default() };
    let interfaces = router.lan_interfaces.iter().filter_map(|lan| {
        let length =
            lan.delegated_prefix_length.filter(|_| lan.sends_router_advertisements && lan.dhcp.enabled)?;
        let (name, lifetime) = (lan.interface.clone(), lan.dhcp.lease_time);
        Some(DelegatingInterface {
            name,
            prefix_length: length,
            delegation_lifetime: lifetime,
            networks_of_other_interfaces: router.networks_of_other_lans(lan),
        })
    });
    DelegatorConfig {
        prefixes: router.prefixes.clone(),
        networks_in_use: router.undelegated_networks(),
        interfaces: interfaces.collect(),
    }
}

/// Returns the domains of hosts on board: of each interface, the first domain of its search list.
pub fn host_domains(config: &Config) -> Vec<String> {
    let mut domains: Vec<String> = Vec::new();
    for lan in config.mobile_router.iter().flat_map(|router| &router.lan_interfaces) {
        domains.extend(lan.search_domains.first().filter(|domain| !domains.contains(domain)).cloned());
    }
    domains
}

/// Returns the config of an interface's DHCP server; `None` if the interface has no server. `forwards` says
/// whether carnet forwards DNS queries.
fn dhcp_server_config(lan: &Lan, prefix: Ipv4Net, forwards: bool) -> Option<DhcpServerConfig> {
    let range = lan.dhcp.default_range_in(prefix).filter(|_| lan.dhcp.enabled)?;
    let reservations = lan.dhcp.reservations.iter().map(|reservation| AddressReservation {
        link_address: reservation.mac.0,
        address: reservation.address,
        name: reservation.name.clone(),
    });
    let dns = lan.dns_servers.iter().filter_map(|server| match server {
        IpAddr::V4(server) => Some(*server),
        IpAddr::V6(_) => None,
    });
    Some(DhcpServerConfig {
        prefix,
        address_range: range,
        lease_time: lan.dhcp.lease_time,
        reservations: reservations.collect(),
        options: lan.dhcp.options.iter().map(|option| (option.code, option.value.clone())).collect(),
        dns_servers: dns.collect(),
        is_dns_server: forwards && lan.dns_servers.is_empty(),
        search_domains: lan.search_domains.clone(),
        mtu: lan.mtu.and_then(|mtu| u16::try_from(mtu).ok()),
        prefers_ipv6_only: lan.nat64_prefix.is_some(),
        captive_portal: lan.captive_portal.clone(),
    })
}
