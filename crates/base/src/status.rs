//! Types of a status that several crates use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// All counters: dotted names, such as `mobility.received.binding_update`, and their values.
pub type Counters = BTreeMap<String, u64>;

/// A role of a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// RFC 3963 mobile router.
    MobileRouter,
    /// RFC 6275 mobile node, without a mobile network.
    MobileNode,
    /// RFC 6275 and RFC 3963 home agent.
    HomeAgent,
    /// EN 302 636-4-1 GeoNetworking router.
    Geonet,
}

impl Role {
    /// Returns the role as JSON and tables write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::MobileRouter => "mobile_router",
            Role::MobileNode => "mobile_node",
            Role::HomeAgent => "home_agent",
            Role::Geonet => "geonet",
        }
    }
}
