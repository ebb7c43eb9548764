//! Home agent: the state that survives a restart.

use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_mobility::home_agent::{HomeAgentConfig, StoredBinding};

use crate::agent::{Agent, authenticated, config, node};
use crate::craft::*;

/// Stores the state, waits `pause` seconds while nothing runs, and starts a new home agent with another
/// origin of the monotonic clock.
fn restart(agent: &Agent, pause: f64, config: HomeAgentConfig) -> Agent {
    let stored = agent.machine.stored(agent.now, agent.wall());
    let mut next = Agent::new(config);
    next.now = agent.now + Duration::from_secs_f64(pause);
    let (now, wall) = (next.now, next.wall());
    next.machine.restore(now, wall, stored);
    assert!(next.drain().is_empty());
    next
}

#[test]
fn a_restored_binding_has_its_remaining_lifetime() {
    let mut agent = Agent::new(config());
    agent.accept(&Update::explicit(7));
    agent.wait(10.0);
    let mut next = restart(&agent, 20.0, config());
    assert_eq!(next.forwarding_changes, 1);
    let binding = next.binding().expect("bound");
    assert_eq!(binding.care_of_address, addr(CARE_OF));
    assert_eq!(*binding.prefixes, [net(PREFIX)]);
    assert!(binding.mobile_router);
    next.refuse(&Update::explicit(7), 135);
    next.wait(29.0);
    assert!(next.binding().is_some());
    next.wait(2.0);
    assert!(next.binding().is_none());
}

/// The time since a node's last move survives refreshes and restarts, and begins anew with a move.
#[test]
fn time_at_care_of_address_survives_a_restart() {
    let stay = |agent: &Agent| {
        agent
            .binding()
            .expect("bound")
            .care_of_address_age
            .length(agent.now)
            .map(|length| length.as_secs_f64())
    };
    let mut agent = Agent::new(config());
    agent.accept(&Update::explicit(1));
    agent.wait(10.0);
    agent.accept(&Update::explicit(2));
    agent.wait(5.0);
    assert_eq!(stay(&agent), Some(15.0));
    agent.accept(&Update::explicit(3).from(OTHER_CARE_OF));
    agent.wait(7.0);
    assert_eq!(stay(&agent), Some(7.0));

    // The monotonic clock begins anew with the machine. The pause while the home agent did not run counts.
    let stored = agent.machine.stored(agent.now, agent.wall());
    let after = |wall: WallTime, stored: Vec<StoredBinding>| {
        let mut next = Agent::new(config());
        next.now = Time::ZERO;
        next.machine.restore(next.now, wall, stored);
        next.drain();
        next
    };
    let wall = agent.wall() + Duration::from_secs(20);
    let mut next = after(wall, stored.clone());
    assert_eq!(stay(&next), Some(27.0));
    next.wait(3.0);
    next.accept(&Update::explicit(4).from(OTHER_CARE_OF));
    assert_eq!(stay(&next), Some(30.0));

    // A clock was set back, or the file is of an earlier version: the time of the last move is unknown until
    // the next move.
    let set_back = after(WallTime::from_unix_nanos(1), stored.clone());
    assert_eq!(stay(&set_back), None);
    let mut earlier = stored;
    earlier[0].registration.as_mut().expect("a plain binding").since = None;
    let mut next = after(wall, earlier);
    next.accept(&Update::explicit(4).from(OTHER_CARE_OF));
    assert_eq!(stay(&next), None);
    let again = next.machine.stored(next.now, wall);
    assert_eq!(again[0].registration.as_ref().expect("a plain binding").since, None);
    next.accept(&Update::explicit(5));
    next.wait(1.0);
    assert_eq!(stay(&next), Some(1.0));
}

/// The home agent accepts packets from the old care-of address for the rest of the grace period, also after a
/// reload.
#[test]
fn the_old_care_of_address_is_kept_for_the_rest_of_its_grace() {
    let mut agent = Agent::new(config());
    agent.accept(&Update::explicit(1));
    agent.accept(&Update::explicit(2).from(OTHER_CARE_OF));
    agent.wait(1.0);
    let mut next = restart(&agent, 1.0, config());
    let accepts = |agent: &Agent| agent.machine.bindings().accepts(addr(HOME), addr(CARE_OF).into());
    assert!(accepts(&next));
    next.wait(2.9);
    assert!(accepts(&next));
    next.wait(0.2);
    assert!(!accepts(&next));
    assert!(!accepts(&restart(&agent, 10.0, config())));
}

#[test]
fn storing_state_twice_gives_equal_records() {
    let mut agent = Agent::new(authenticated());
    agent.accept(&Update::explicit(7).signed());
    let next = restart(&agent, 1.0, authenticated());
    assert_eq!(next.machine.stored(next.now, next.wall()), agent.machine.stored(agent.now, agent.wall()));
}

#[test]
fn a_binding_whose_lifetime_has_ended_does_not_come_back() {
    let mut agent = Agent::new(config());
    agent.accept(&Update::explicit(7));
    let next = restart(&agent, 60.0, config());
    assert!(next.binding().is_none());
    assert_eq!(next.forwarding_changes, 0);
}

#[test]
fn a_clock_set_back_does_not_prolong_a_binding() {
    let mut agent = Agent::new(config());
    agent.accept(&Update::explicit(7));
    let stored = agent.machine.stored(agent.now, agent.wall());
    let mut next = Agent::new(config());
    next.now = Time::ZERO;
    let (now, wall) = (next.now, next.wall());
    next.machine.restore(now, wall, stored);
    next.drain();
    assert!(next.binding().is_some());
    next.wait(60.1);
    assert!(next.binding().is_none());
}

#[test]
fn bindings_outside_the_config_are_not_restored() {
    let mut agent = Agent::new(config());
    agent.accept(&Update::explicit(7));
    let mut other_prefix = config();
    other_prefix.nodes = vec![node(HOME, &[SECOND_PREFIX])];
    assert!(restart(&agent, 1.0, other_prefix).binding().is_none());
    let mut other_node = config();
    other_node.nodes = vec![node("2001:db8:1::5678", &[PREFIX])];
    assert!(restart(&agent, 1.0, other_node).machine.bindings().iter().next().is_none());
}

#[test]
fn a_shorter_lifetime_limit_shortens_restored_bindings() {
    let mut agent = Agent::new(config());
    agent.accept(&Update::explicit(7).lifetime(150));
    let mut shorter = config();
    shorter.max_lifetime = Duration::from_secs(60);
    let mut next = restart(&agent, 1.0, shorter);
    next.wait(60.1);
    assert!(next.binding().is_none());
}

/// RFC 6275 9.5.1: the sequence number of a node with a key survives a restart, with or without a binding.
#[test]
fn the_sequence_number_of_a_node_with_a_key_survives() {
    let mut agent = Agent::new(authenticated());
    agent.accept(&Update::explicit(7).signed());
    agent.accept(&Update::implicit(8).lifetime(0).signed());
    let mut next = restart(&agent, 100.0, authenticated());
    assert!(next.binding().is_none());
    assert_eq!(next.refuse(&Update::explicit(8).signed(), 135).sequence(), 8);
    next.accept(&Update::explicit(9).signed());
}

/// After a restart the home agent advertises restored bindings on the home link again, without duplicate
/// address detection.
#[test]
fn restored_bindings_are_advertised_on_the_home_link() {
    let mut agent = Agent::on_home_link(config());
    agent.send(&Update::explicit(1));
    agent.wait(2.0);
    let stored: Vec<StoredBinding> = agent.machine.stored(agent.now, agent.wall());
    let mut on_link = config();
    on_link.home_link = Some("h0".into());
    let mut next = Agent::new(on_link);
    next.now = agent.now;
    let (now, wall) = (next.now, next.wall());
    next.machine.restore(now, wall, stored);
    next.drain();
    next.home_link(true);
    assert!(next.probes().is_empty());
    assert!(next.advertisements().iter().any(|a| a.target == addr(HOME)));
    // A refresh needs no duplicate address detection either.
    next.accept(&Update::explicit(2));
}

/// An accepted update and the end of a binding make the home agent store its state before the answer leaves.
#[test]
fn each_state_change_requests_storage() {
    let mut agent = Agent::new(config());
    agent.accept(&Update::explicit(1).lifetime(5));
    assert_eq!(agent.persisted, 1);
    agent.accept(&Update::explicit(2).lifetime(0));
    assert_eq!(agent.persisted, 2);
    agent.accept(&Update::explicit(3).lifetime(1));
    agent.wait(5.0);
    assert_eq!(agent.persisted, 4);
    agent.refuse(&Update::implicit(4).prefix(SECOND_PREFIX), 142);
    assert_eq!(agent.persisted, 4);
}
