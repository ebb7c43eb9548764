//! Compares the state of the simulated kernel with the desired state.

use std::collections::BTreeSet;

use carnet_nemo::forwarding::desired::{
    ForwardingEntry, Ipv4Route, Route, RouteAction, TUNNEL_DEVICE, priority,
};

use super::kernel::{
    KernelState, ObjectOwner, SimulatedIpv4Route, SimulatedIpv4Rule, SimulatedRoute, SimulatedRouteAction,
    SimulatedRule, local_rule,
};
use crate::ROUTE_PROTOCOL;
use crate::netlink::effective_metric;

/// Returns a text for each difference between the kernel's state and the desired entries.
pub(super) fn differences_from<'a>(
    state: &KernelState,
    wanted: impl Iterator<Item = &'a ForwardingEntry> + Clone,
) -> Vec<String> {
    let mut found: Vec<String> = wanted
        .clone()
        .filter(|entry| !is_installed(state, entry))
        .map(|entry| format!("missing entry: {entry:?}"))
        .collect();
    let routes: BTreeSet<_> = wanted
        .clone()
        .filter_map(|entry| match entry {
            ForwardingEntry::Route(it) => Some((it.table, it.destination, effective_metric(it.metric))),
            _ => None,
        })
        .collect();
    let is_made =
        |it: &&SimulatedRoute| it.created_by == ObjectOwner::Station && it.protocol == ROUTE_PROTOCOL;
    let stale = state.routes.iter().filter(is_made);
    found.extend(
        stale
            .filter(|it| !routes.contains(&(it.table, it.destination, it.metric)))
            .map(|it| format!("superfluous entry: {it:?}")),
    );
    let rules: BTreeSet<_> = wanted
        .clone()
        .filter_map(|entry| match entry {
            ForwardingEntry::Rule(rule) => Some(rule.clone()),
            _ => None,
        })
        .collect();
    let is_early = rules.iter().any(|rule| rule.priority < priority::LOCAL_TABLE_RULE);
    let moved = local_rule(priority::LOCAL_TABLE_RULE);
    let is_ours = |it: &&SimulatedRule| it.protocol == ROUTE_PROTOCOL;
    found.extend(
        state
            .rules
            .iter()
            .filter(is_ours)
            .filter(|it| !(rules.contains(&it.rule) || is_early && it.rule == moved))
            .map(|it| format!("superfluous entry: {it:?}")),
    );
    let has = |rule| state.rules.iter().any(|it| it.rule == rule);
    if (is_early, !is_early) != (has(moved), has(local_rule(0))) {
        found.push(format!("the local rule is in the wrong place: {:?}", state.rules));
    }
    found.extend(leftover_ipv4_entries(state, wanted.clone()));
    let addresses: BTreeSet<_> = wanted
        .filter_map(|entry| match entry {
            ForwardingEntry::Address(it) => {
                state.find_link(&it.interface).map(|link| (link.index, it.address, it.prefix_length))
            }
            _ => None,
        })
        .collect();
    let stale = state.addresses.iter().filter(|it| it.created_by == ObjectOwner::Station);
    found.extend(
        stale
            .filter(|it| !addresses.contains(&(it.index, it.address, it.prefix_length)))
            .map(|it| format!("superfluous entry: {it:?}")),
    );
    found
}

/// Returns whether a desired entry is installed, or cannot be installed now.
fn is_installed(state: &KernelState, entry: &ForwardingEntry) -> bool {
    match entry {
        ForwardingEntry::Setting(setting) => match state.setting_value(&setting.interface, &setting.name) {
            // Another program has set `accept_ra` to 0, so carnet leaves it.
            Some(is) if setting.name == "accept_ra" && is == "0" => true,
            Some(is) => is == setting.value,
            None => true,
        },
        ForwardingEntry::Address(it) => state.find_link(&it.interface).is_none_or(|link| {
            state.addresses.iter().any(|there| (there.index, there.address) == (link.index, it.address))
        }),
        ForwardingEntry::Rule(rule) => {
            state.rules.iter().any(|it| it.protocol == ROUTE_PROTOCOL && it.rule == **rule)
        }
        ForwardingEntry::Route(route) => is_route_installed(state, route),
        // The simulation has no packet filter.
        ForwardingEntry::PacketRule(_)
        | ForwardingEntry::Tunnel(_)
        | ForwardingEntry::Distribution(_)
        | ForwardingEntry::Socket(_) => true,
        ForwardingEntry::Ipv4Route(route) => is_ipv4_route_installed(state, route),
        ForwardingEntry::Ipv4Rule(rule) => {
            state.ipv4_rules.iter().any(|it| it.protocol == ROUTE_PROTOCOL && it.rule == **rule)
        }
    }
}

fn is_ipv4_route_installed(state: &KernelState, route: &Ipv4Route) -> bool {
    let Some(link) = state.find_link(&route.interface).filter(|link| link.is_up) else { return true };
    let key = (route.table, route.destination);
    let there = state.ipv4_routes.iter().find(|it| (it.table, it.destination) == key);
    there.is_some_and(|it| {
        it.created_by == ObjectOwner::Other || (it.index, it.gateway) == (link.index, route.gateway)
    })
}

/// Returns carnet's IPv4 routes and rules that no desired entry needs.
fn leftover_ipv4_entries<'a>(
    state: &KernelState,
    wanted: impl Iterator<Item = &'a ForwardingEntry>,
) -> Vec<String> {
    let (mut routes, mut rules) = (BTreeSet::new(), BTreeSet::new());
    for entry in wanted {
        match entry {
            ForwardingEntry::Ipv4Route(it) => drop(routes.insert((it.table, it.destination))),
            ForwardingEntry::Ipv4Rule(rule) => drop(rules.insert(rule.clone())),
            _ => {}
        }
    }
    let is_stale = |it: &&SimulatedIpv4Route| {
        it.created_by == ObjectOwner::Station && !routes.contains(&(it.table, it.destination))
    };
    let stale = state.ipv4_routes.iter().filter(is_stale).map(|it| format!("superfluous entry: {it:?}"));
    let is_own = |it: &&SimulatedIpv4Rule| it.created_by == ObjectOwner::Station && !rules.contains(&it.rule);
    let stale_rules = state.ipv4_rules.iter().filter(is_own).map(|it| format!("superfluous entry: {it:?}"));
    stale.chain(stale_rules).collect()
}

fn is_route_installed(state: &KernelState, route: &Route) -> bool {
    let action = match &*route.action {
        RouteAction::Unreachable => SimulatedRouteAction::Unreachable,
        RouteAction::Local => {
            SimulatedRouteAction::Local(state.find_link(TUNNEL_DEVICE).map_or(0, |link| link.index))
        }
        RouteAction::Forward { interface, gateway } => match state.find_link(interface) {
            Some(link) if link.is_up => SimulatedRouteAction::Forward(link.index, *gateway),
            _ => return true,
        },
    };
    let key = (route.table, route.destination, effective_metric(route.metric));
    let there = state.routes.iter().find(|it| (it.table, it.destination, it.metric) == key);
    // If an operator's route has the same content, carnet uses it instead of a route of its own.
    there.is_some_and(|it| it.created_by == ObjectOwner::Other || it.route_action == action)
}
