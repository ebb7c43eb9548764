//! Interfaces of virtual hosts, with operator-configured addresses.

use std::net::Ipv6Addr;

use carnet_base::{Address, Interface};

use crate::packet::address;

/// Returns an address that the operator has configured, with a prefix of 64 bits.
pub fn configured_address(address: Ipv6Addr) -> Address {
    Address {
        address,
        prefix_length: 64,
        tentative: false,
        duplicate: false,
        deprecated: false,
        temporary: false,
        permanent: true,
    }
}

/// Parses addresses, and returns them as [configured addresses](configured_address).
pub fn configured_addresses(texts: &[&str]) -> Vec<Address> {
    texts.iter().map(|text| configured_address(address(text))).collect()
}

/// Returns a running interface with an MTU of 1500 octets, without a default router.
pub fn running_interface(name: &str, link_address: [u8; 6], addresses: Vec<Address>) -> Interface {
    Interface {
        name: name.into(),
        running: true,
        mtu: 1500,
        link_address: Some(link_address),
        addresses,
        ..Interface::default()
    }
}
