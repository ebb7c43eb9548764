//! Home agent: the state that survives a restart.

use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_mobility::home_agent::{HomeAgentConfig, StoredBinding};

use crate::agent::{TestAgent, authenticated_config, authorized_node, config};
use crate::test_messages::*;

/// Stores the state, waits `pause` seconds while nothing runs, and starts a new home agent with another
/// origin of the monotonic clock.
fn restarted_agent(agent: &TestAgent, pause: f64, config: HomeAgentConfig) -> TestAgent {
    let stored = agent.home_agent.stored_bindings(agent.now, agent.wall_time());
    let mut next = TestAgent::new(config);
    next.now = agent.now + Duration::from_secs_f64(pause);
    let (now, wall) = (next.now, next.wall_time());
    next.home_agent.restore(now, wall, stored);
    assert!(next.take_answers().is_empty());
    next
}

#[test]
fn a_restored_binding_has_its_remaining_lifetime() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(7));
    agent.advance_time(10.0);
    let mut next = restarted_agent(&agent, 20.0, config());
    assert_eq!(next.forwarding_changes, 1);
    let binding = next.home_binding().expect("bound");
    assert_eq!(binding.care_of_address, addr(CARE_OF_ADDRESS));
    assert_eq!(*binding.prefixes, [net(MOBILE_NETWORK_PREFIX)]);
    assert!(binding.mobile_router);
    next.expect_refusal(&TestUpdate::explicit_update(7), 135);
    next.advance_time(29.0);
    assert!(next.home_binding().is_some());
    next.advance_time(2.0);
    assert!(next.home_binding().is_none());
}

/// The time since a node's last move survives refreshes and restarts, and begins anew with a move.
#[test]
fn time_at_care_of_address_survives_a_restart() {
    let stay = |agent: &TestAgent| {
        agent
            .home_binding()
            .expect("bound")
            .care_of_address_age
            .age_at(agent.now)
            .map(|length| length.as_secs_f64())
    };
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    agent.advance_time(10.0);
    agent.expect_acceptance(&TestUpdate::explicit_update(2));
    agent.advance_time(5.0);
    assert_eq!(stay(&agent), Some(15.0));
    agent.expect_acceptance(&TestUpdate::explicit_update(3).from(OTHER_CARE_OF_ADDRESS));
    agent.advance_time(7.0);
    assert_eq!(stay(&agent), Some(7.0));

    // A restarted machine has a new monotonic clock. The time in which the home agent did not run still
    // counts.
    let stored = agent.home_agent.stored_bindings(agent.now, agent.wall_time());
    let after = |wall: WallTime, stored: Vec<StoredBinding>| {
        let mut next = TestAgent::new(config());
        next.now = Time::ZERO;
        next.home_agent.restore(next.now, wall, stored);
        next.take_answers();
        next
    };
    let wall = agent.wall_time() + Duration::from_secs(20);
    let mut next = after(wall, stored.clone());
    assert_eq!(stay(&next), Some(27.0));
    next.advance_time(3.0);
    next.expect_acceptance(&TestUpdate::explicit_update(4).from(OTHER_CARE_OF_ADDRESS));
    assert_eq!(stay(&next), Some(30.0));

    // The time of the last move is unknown until the next move. First a clock was set back, then the file is
    // of an earlier version.
    let set_back = after(WallTime::from_unix_nanos(1), stored.clone());
    assert_eq!(stay(&set_back), None);
    let mut earlier = stored;
    earlier[0].registration.as_mut().expect("a plain binding").since = None;
    let mut next = after(wall, earlier);
    next.expect_acceptance(&TestUpdate::explicit_update(4).from(OTHER_CARE_OF_ADDRESS));
    assert_eq!(stay(&next), None);
    let again = next.home_agent.stored_bindings(next.now, wall);
    assert_eq!(again[0].registration.as_ref().expect("a plain binding").since, None);
    next.expect_acceptance(&TestUpdate::explicit_update(5));
    next.advance_time(1.0);
    assert_eq!(stay(&next), Some(1.0));
}

/// The home agent accepts packets from the old care-of address for the rest of the grace period, also after a
/// reload.
#[test]
fn restored_old_care_of_address_keeps_the_rest_of_its_grace_period() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    agent.expect_acceptance(&TestUpdate::explicit_update(2).from(OTHER_CARE_OF_ADDRESS));
    agent.advance_time(1.0);
    let mut next = restarted_agent(&agent, 1.0, config());
    let accepts = |agent: &TestAgent| {
        agent.home_agent.bindings().accepts_packets_from(addr(HOME_ADDRESS), addr(CARE_OF_ADDRESS).into())
    };
    assert!(accepts(&next));
    next.advance_time(2.9);
    assert!(accepts(&next));
    next.advance_time(0.2);
    assert!(!accepts(&next));
    assert!(!accepts(&restarted_agent(&agent, 10.0, config())));
}

#[test]
fn storing_state_twice_gives_equal_records() {
    let mut agent = TestAgent::new(authenticated_config());
    agent.expect_acceptance(&TestUpdate::explicit_update(7).with_signature());
    let next = restarted_agent(&agent, 1.0, authenticated_config());
    assert_eq!(
        next.home_agent.stored_bindings(next.now, next.wall_time()),
        agent.home_agent.stored_bindings(agent.now, agent.wall_time())
    );
}

#[test]
fn expired_binding_is_not_restored_after_a_restart() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(7));
    let next = restarted_agent(&agent, 60.0, config());
    assert!(next.home_binding().is_none());
    assert_eq!(next.forwarding_changes, 0);
}

#[test]
fn a_clock_set_back_does_not_prolong_a_binding() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(7));
    let stored = agent.home_agent.stored_bindings(agent.now, agent.wall_time());
    let mut next = TestAgent::new(config());
    next.now = Time::ZERO;
    let (now, wall) = (next.now, next.wall_time());
    next.home_agent.restore(now, wall, stored);
    next.take_answers();
    assert!(next.home_binding().is_some());
    next.advance_time(60.1);
    assert!(next.home_binding().is_none());
}

#[test]
fn bindings_outside_the_config_are_not_restored() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(7));
    let mut other_prefix = config();
    other_prefix.nodes = vec![authorized_node(HOME_ADDRESS, &[SECOND_MOBILE_NETWORK_PREFIX])];
    assert!(restarted_agent(&agent, 1.0, other_prefix).home_binding().is_none());
    let mut other_node = config();
    other_node.nodes = vec![authorized_node("2001:db8:1::5678", &[MOBILE_NETWORK_PREFIX])];
    assert!(restarted_agent(&agent, 1.0, other_node).home_agent.bindings().iter().next().is_none());
}

#[test]
fn a_shorter_lifetime_limit_shortens_restored_bindings() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(7).lifetime(150));
    let mut shorter = config();
    shorter.max_lifetime = Duration::from_secs(60);
    let mut next = restarted_agent(&agent, 1.0, shorter);
    next.advance_time(60.1);
    assert!(next.home_binding().is_none());
}

/// RFC 6275 9.5.1: the sequence number of a node with a key survives a restart, with or without a binding.
#[test]
fn the_sequence_number_of_a_node_with_a_key_survives() {
    let mut agent = TestAgent::new(authenticated_config());
    agent.expect_acceptance(&TestUpdate::explicit_update(7).with_signature());
    agent.expect_acceptance(&TestUpdate::implicit_update(8).lifetime(0).with_signature());
    let mut next = restarted_agent(&agent, 100.0, authenticated_config());
    assert!(next.home_binding().is_none());
    assert_eq!(next.expect_refusal(&TestUpdate::explicit_update(8).with_signature(), 135).sequence(), 8);
    next.expect_acceptance(&TestUpdate::explicit_update(9).with_signature());
}

/// After a restart the home agent advertises restored bindings on the home link again, without duplicate
/// address detection.
#[test]
fn restored_bindings_are_advertised_on_the_home_link() {
    let mut agent = TestAgent::on_home_link(config());
    agent.send_update(&TestUpdate::explicit_update(1));
    agent.advance_time(2.0);
    let stored: Vec<StoredBinding> = agent.home_agent.stored_bindings(agent.now, agent.wall_time());
    let mut on_link = config();
    on_link.home_link = Some("h0".into());
    let mut next = TestAgent::new(on_link);
    next.now = agent.now;
    let (now, wall) = (next.now, next.wall_time());
    next.home_agent.restore(now, wall, stored);
    next.take_answers();
    next.set_home_link_running(true);
    assert!(next.take_dad_targets().is_empty());
    assert!(next.take_advertisements().iter().any(|a| a.target == addr(HOME_ADDRESS)));
    // A refresh needs no duplicate address detection either.
    next.expect_acceptance(&TestUpdate::explicit_update(2));
}

/// An accepted update and the end of a binding make the home agent store its state before the answer leaves.
#[test]
fn each_state_change_requests_storage() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1).lifetime(5));
    assert_eq!(agent.persisted_count, 1);
    agent.expect_acceptance(&TestUpdate::explicit_update(2).lifetime(0));
    assert_eq!(agent.persisted_count, 2);
    agent.expect_acceptance(&TestUpdate::explicit_update(3).lifetime(1));
    agent.advance_time(5.0);
    assert_eq!(agent.persisted_count, 4);
    agent.expect_refusal(&TestUpdate::implicit_update(4).prefix(SECOND_MOBILE_NETWORK_PREFIX), 142);
    assert_eq!(agent.persisted_count, 4);
}
