//! `[conformance]` of the config file: what a test system needs and nobody else.

use std::net::{IpAddr, SocketAddr};

/// `[conformance]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conformance {
    /// Where ETSI's test system reaches the upper tester (UDP).
    pub upper_tester: SocketAddr,
}

/// Whether only this machine, or a neighbour on the link, can reach the address.
pub(super) fn is_near(address: SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(address) => address.is_loopback() || address.is_link_local(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local(),
    }
}
