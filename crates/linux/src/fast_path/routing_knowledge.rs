//! Finds out whether the kernel routes by interface and destination only. While that is so, the programs
//! cache next hops instead of asking the kernel for each flow (`bpf/ways.h`).
//!
//! An obstacle is a route or rule that uses other fields of a packet. First carnet writes a new obstacle into
//! the map `POLICY`. Then it invalidates the programs' caches. It removes a past obstacle from the map after
//! that. So entries that the programs cache in between are invalid, too.

use crate::netlink::{NetlinkRequests, RoutingFields, use_only_interface_and_destination};

use super::bpf_programs::LoadedPrograms;
use super::map_values::RoutingPolicy;

/// State of the kernel's routes and rules.
#[derive(Debug, Default)]
pub(super) struct RoutingKnowledge {
    /// Packet fields that the kernel's routes use, from the last reading of all routes and the events since
    /// then.
    routing_fields: RoutingFields,
    /// Whether the kernel's rules use interface and destination only: for arriving packets, and for packets
    /// that leave the tunnel device.
    uses_destination_only: (bool, bool),
    /// Whether carnet has read all routes, and no later event was lost.
    is_complete: bool,
}

impl RoutingKnowledge {
    fn routing_policy(&self) -> RoutingPolicy {
        let routes = self.is_complete && !self.routing_fields.has_source_or_multipath_route;
        RoutingPolicy {
            arriving_by_destination: routes && self.uses_destination_only.0,
            leaving_by_destination: routes && self.uses_destination_only.1,
            knows_long_prefixes: !self.routing_fields.has_too_many_prefixes,
        }
    }

    /// Returns whether carnet should read all routes again, because an obstacle to the fast path may be gone.
    pub(super) fn may_remove_obstacle(&self) -> bool {
        !self.is_complete
            || (self.routing_fields.has_source_or_multipath_route
                && self.routing_fields.removed_source_or_multipath_route)
    }

    /// Marks the known routes and rules as incomplete, so that carnet reads all of them again.
    pub(super) fn mark_incomplete(&mut self) {
        self.is_complete = false;
    }

    /// Writes the known properties of routes and rules into newly loaded programs.
    pub(super) fn write_to_programs(&self, programs: &mut LoadedPrograms) -> Result<(), String> {
        for half in &self.routing_fields.upper_halves_of_long_prefixes {
            programs.add_long_prefix_half(*half)?;
        }
        programs.set_policy(self.routing_policy())
    }

    /// Reads all rules and routes of the kernel. After a failure, the programs ask the kernel for each flow
    /// and cache no next hops.
    pub(super) fn read_all_routes_and_rules(
        &mut self,
        programs: &mut LoadedPrograms,
        requests: &mut NetlinkRequests,
    ) -> Result<(), String> {
        match complete_kernel_answer(requests, RoutingFields::read_from_all_routes) {
            Some(heard) => {
                // Forget the known obstacles before reading, because the reading reports those that still
                // exist.
                let crowded = std::mem::take(&mut self.routing_fields.upper_halves_of_long_prefixes);
                let full = self.routing_fields.has_too_many_prefixes;
                self.routing_fields = heard;
                self.routing_fields.add_long_prefix_halves(crowded, full);
                self.is_complete = true;
            }
            None => self.is_complete = false,
        }
        self.read_rules(requests);
        for half in &self.routing_fields.upper_halves_of_long_prefixes {
            programs.add_long_prefix_half(*half)?;
        }
        programs.invalidate_lookups()?;
        programs.set_policy(self.routing_policy())
    }

    fn read_rules(&mut self, requests: &mut NetlinkRequests) {
        self.uses_destination_only =
            complete_kernel_answer(requests, |requests| requests.rule_requests().list_rules())
                .map_or((false, false), |rules| use_only_interface_and_destination(&rules));
    }

    /// Handles a change of routes or rules, and invalidates the programs' cached lookups.
    pub(super) fn handle_changes(
        &mut self,
        programs: &mut LoadedPrograms,
        requests: &mut NetlinkRequests,
        heard: RoutingFields,
    ) -> Result<(), String> {
        let RoutingFields {
            upper_halves_of_long_prefixes: crowded,
            has_too_many_prefixes: full,
            has_source_or_multipath_route: forked,
            removed_source_or_multipath_route: unforked,
            rules_changed: rules,
            may_have_missed_events: missed,
        } = heard;
        for half in &crowded {
            programs.add_long_prefix_half(*half)?;
        }
        self.routing_fields.add_long_prefix_halves(crowded, full);
        // Routes with several next hops may have appeared and vanished in any order. carnet knows the result
        // only after it has read all routes again.
        self.routing_fields.removed_source_or_multipath_route =
            unforked || (self.routing_fields.removed_source_or_multipath_route && !forked);
        self.routing_fields.has_source_or_multipath_route |= forked;
        if rules || missed {
            self.uses_destination_only = (false, false);
        }
        self.is_complete &= !missed;
        programs.set_policy(self.routing_policy())?;
        programs.invalidate_lookups()?;
        // Rules matter only for cached next hops, which only a home agent has.
        if (rules || missed) && programs.interface_roles.is_home_agent {
            self.read_rules(requests);
            programs.set_policy(self.routing_policy())?;
        }
        Ok(())
    }
}

/// Returns the kernel's answer only if carnet could parse all its messages.
fn complete_kernel_answer<T>(
    requests: &mut NetlinkRequests,
    ask: impl FnOnce(&mut NetlinkRequests) -> crate::error::Result<T>,
) -> Option<T> {
    let unparsed = requests.unparsed_answers;
    match ask(requests) {
        Ok(answer) => (requests.unparsed_answers == unparsed).then_some(answer),
        Err(error) => {
            tracing::debug!("{error}");
            None
        }
    }
}
