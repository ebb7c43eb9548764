//! The part of the roles' state that survives a restart.

use std::net::Ipv6Addr;

use carnet_base::{Time, WallTime};
use carnet_mobility::HomeAgent;
use carnet_mobility::home_agent::StoredBinding;

use super::{RouterRole, StationRoles};
use crate::persistent_state::PersistentState;

impl StationRoles {
    /// Returns the part of the present state that survives a restart.
    pub(super) fn persistent_state(&self, now: Time, wall: WallTime) -> PersistentState {
        let home_agent = match self.home_agent() {
            Some(agent) => agent.stored_bindings(now, wall),
            None => self.inactive_role_state.home_agent.clone(),
        };
        PersistentState { home_agent, ..self.current_persistent_state() }
    }

    /// Returns the state of one node of the home agent for stable storage; `None` if the node has no state.
    pub(super) fn stored_binding_of(
        &self,
        now: Time,
        wall: WallTime,
        home_address: Ipv6Addr,
    ) -> Option<StoredBinding> {
        if let Some(agent) = self.home_agent() {
            return agent.stored_node(now, wall, home_address);
        }
        let dormant = &self.inactive_role_state.home_agent;
        let place = dormant.binary_search_by_key(&home_address, |node| node.home_address).ok()?;
        dormant.get(place).cloned()
    }

    /// Returns the state for stable storage, without the home agent's nodes.
    pub(super) fn current_persistent_state(&self) -> PersistentState {
        let volumes = |router: &RouterRole| {
            let volumes = router.state_machine.volumes();
            volumes.map(|(interface, volume)| (interface.to_owned(), volume)).collect()
        };
        let PersistentState { restart_counter, mobile_router, volumes: dormant, .. } =
            &self.inactive_role_state;
        PersistentState {
            home_agent: Vec::new(),
            restart_counter: self.home_agent().map(HomeAgent::restart_counter).or(*restart_counter),
            mobile_router: self.router_role.as_ref().map(RouterRole::stored_sequence).or(*mobile_router),
            volumes: self.router_role.as_ref().map_or_else(|| dormant.clone(), volumes),
        }
    }
}
