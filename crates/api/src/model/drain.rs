//! Planned maintenance of a home agent, and the end of single bindings.

use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

/// Body of `POST /v1/drain`: all mobile routers are asked to go to another home agent (RFC 5142).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    /// The home agents to go to; any that is known when empty.
    #[serde(default)]
    pub to: Vec<Ipv6Addr>,
    /// How long they are asked, in seconds.
    pub within_s: u32,
}

/// How a drain stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// `running`, `done` (all have left) or `expired` (time is up, and some have not).
    pub state: String,
    /// The home agents to go to.
    pub to: Vec<Ipv6Addr>,
    /// Mobile routers that were registered when it began.
    pub routers: u64,
    /// Home addresses of those that are registered now.
    pub left: Vec<Ipv6Addr>,
}

/// Body of `POST /v1/revoke`: bindings of a mobile router end (RFC 5846).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokeRequest {
    /// Its home address.
    pub home_address: Ipv6Addr,
    /// Binding Identifiers; all of its bindings when empty.
    #[serde(default)]
    pub bids: Vec<u16>,
}
