//! Services for hosts of the mobile network, without I/O.
//!
//! The program passes received packets and the time to a service, and sends the packets that the service
//! returns. So the tests run in virtual time. A service never influences the registration of the mobile
//! router: if it fails, hosts with addresses stay connected.
//!
//! * [`dhcpv4`] gives hosts IPv4 addresses (RFC 2131).
//! * [`dhcpv6`] sends hosts the addresses of DNS servers, and delegates prefixes to routers (RFC 8415).
//! * [`dns`] forwards DNS queries of hosts, and knows the names of hosts on board.
#![forbid(unsafe_code)]

pub mod dhcpv4;
pub mod dhcpv6;
pub mod dns;

/// A 48-bit link-layer address.
pub type LinkAddress = [u8; 6];
