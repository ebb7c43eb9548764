//! The state of the NEMO plane that survives a restart.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use carnet_mobility::home_agent::StoredBinding;
use carnet_mobility::mobile_router::{StoredSequence, StoredVolume};
use serde::{Deserialize, Serialize};

use crate::config::NemoConfig;

/// State of a station that survives a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersistentState {
    /// The home agent's bindings and replay protection.
    #[serde(default)]
    pub home_agent: Vec<StoredBinding>,
    /// Number of starts at which the home agent found its bindings lost (RFC 5847 3.2); `None` if this
    /// station has not been a home agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_counter: Option<u32>,
    /// Sequence number of the mobile router's last Binding Update; `None` if this station has not been a
    /// mobile router.
    #[serde(default)]
    pub mobile_router: Option<StoredSequence>,
    /// Octets counted on the mobile router's uplinks, by interface.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub volumes: BTreeMap<String, StoredVolume>,
}

/// A part of the state that survives a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredStatePart {
    /// State of the home agent for the node with this home address: [`crate::Nemo::stored_binding`].
    Node(Ipv6Addr),
    /// All other state of the station: [`crate::Nemo::current_persistent_state`].
    Own,
}

/// Removes from `persistent` the stored state of roles that `config` does not have, and returns it.
pub(crate) fn take_inactive_state(config: &NemoConfig, persistent: &mut PersistentState) -> PersistentState {
    let mut dormant = PersistentState::default();
    if config.home_agent.is_none() {
        dormant.home_agent = std::mem::take(&mut persistent.home_agent);
        dormant.home_agent.sort_by_key(|node| node.home_address);
        dormant.restart_counter = persistent.restart_counter.take();
    }
    if config.mobile_router.is_none() {
        dormant.mobile_router = persistent.mobile_router.take();
        dormant.volumes = std::mem::take(&mut persistent.volumes);
    }
    dormant
}
