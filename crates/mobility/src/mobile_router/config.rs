//! Config of a mobile router.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ipnet::{Ipv4Net, Ipv6Net};

use super::flows::Policy;
use super::liveness::HeartbeatIntervals;
use super::uplink::UplinkConfig;
use crate::Authentication;

/// Subject of the registration, and whether Binding Updates name the prefixes (RFC 3963 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistrationMode {
    /// The mobile network; Binding Updates name the prefixes.
    Explicit,
    /// The mobile network; the home agent has the prefixes in its config.
    Implicit,
    /// Only a home address: the node has no mobile network (RFC 6275). Its Binding Updates have no R flag
    /// (RFC 3963 5.1).
    Host,
}

/// Configuration of a mobile router.
#[derive(Debug, Clone)]
pub struct MobileRouterConfig {
    /// The home address of the router.
    pub home_address: Ipv6Addr,
    /// The home prefix. If an uplink has an address of this prefix, it is on the home link.
    pub home_prefix: Ipv6Net,
    /// Address of the home agent. It is unspecified until it is discovered, and the router does not register
    /// meanwhile.
    pub home_agent: Ipv6Addr,
    /// The IPv4 address of the home agent, if it has one. With it the router can use uplinks without IPv6
    /// (RFC 5555).
    pub home_agent_ipv4: Option<Ipv4Addr>,
    /// Whether packets from IPv4 care-of addresses always go inside UDP, even without a NAT.
    pub force_udp: bool,
    /// The mobile network prefixes; empty with [`RegistrationMode::Host`].
    pub prefixes: Vec<Ipv6Net>,
    /// The IPv4 prefixes of the mobile network (RFC 5555). With [`RegistrationMode::Host`] the only possible
    /// one is the IPv4 home address of the node, as a prefix of 32 bits.
    pub ipv4_prefixes: Vec<Ipv4Net>,
    /// Explicit or implicit, or no mobile network at all.
    pub mode: RegistrationMode,
    /// Lifetime that the router requests for its registrations.
    pub lifetime: Duration,
    /// Method by which home agents authenticate this router's messages.
    pub authentication: Authentication,
    /// The uplinks.
    pub uplinks: Vec<UplinkConfig>,
    /// Intervals of heartbeats, which detect failed paths; `None` without heartbeats.
    pub liveness: Option<HeartbeatIntervals>,
    /// Policies that select uplinks for packets. The first policy that matches a packet applies.
    pub policies: Vec<Policy>,
    /// Whether the router requests a URL over uplinks on which the home agent does not answer, to find
    /// captive portals ([`crate::Output::ProbePortal`]).
    pub probes_portals: bool,
}

impl MobileRouterConfig {
    /// Returns whether the node has a mobile network, which the R flag of Binding Updates says (RFC 3963
    /// 4.1).
    pub fn is_router(&self) -> bool {
        self.mode != RegistrationMode::Host
    }
}
