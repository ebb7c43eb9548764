//! Configuration of a mobile router, as its operator gives it.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ipnet::Ipv6Net;

use super::flows::Policy;
use super::liveness::Liveness;
use super::uplink::UplinkConfig;
use crate::Authentication;

/// Subject of a registration, and whether Binding Updates name the prefixes (RFC 3963 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistrationMode {
    /// Binding Updates name the prefixes.
    Explicit,
    /// The home agent knows the prefixes.
    Implicit,
    /// A home address alone: the node has no mobile network (RFC 6275). Its Binding Updates have no R flag
    /// (RFC 3963 5.1).
    Host,
}

/// Configuration of a mobile router.
#[derive(Debug, Clone)]
pub struct MobileRouterConfig {
    /// The home address of the router.
    pub home_address: Ipv6Addr,
    /// The home prefix: an uplink with an address in it is on the home link.
    pub home_prefix: Ipv6Net,
    /// Address of the home agent; unspecified while it is unknown: then nothing is registered.
    pub home_agent: Ipv6Addr,
    /// The IPv4 address of the home agent, if it has one: then the router uses uplinks without IPv6 (RFC
    /// 5555).
    pub home_agent_ipv4: Option<Ipv4Addr>,
    /// Whether packets from IPv4 care-of addresses always go in UDP, also without a NAT.
    pub force_udp: bool,
    /// The mobile network prefixes; none with [`RegistrationMode::Host`].
    pub prefixes: Vec<Ipv6Net>,
    /// Explicit or implicit, or no mobile network at all.
    pub mode: RegistrationMode,
    /// Requested lifetime.
    pub lifetime: Duration,
    /// Method by which home agents authenticate this router's messages.
    pub authentication: Authentication,
    /// The uplinks.
    pub uplinks: Vec<UplinkConfig>,
    /// Intervals of heartbeats, which detect uplinks that lead nowhere; `None` without heartbeats.
    pub liveness: Option<Liveness>,
    /// Policies that choose uplinks for packets; the first that matches counts.
    pub policies: Vec<Policy>,
    /// Whether the router probes a URL over uplinks without answers, to find captive portals
    /// ([`crate::Output::ProbePortal`]).
    pub probes_portals: bool,
}

impl MobileRouterConfig {
    /// Whether there is a mobile network: the R flag of Binding Updates (RFC 3963 4.1).
    pub fn is_router(&self) -> bool {
        self.mode != RegistrationMode::Host
    }
}
