//! Home agent: a key has 2^15 sequence numbers (RFC 6275 15.3). After that the home agent demands timestamps
//! or another key.

use std::time::Duration;

use carnet_base::WallTime;
use carnet_mobility::home_agent::HomeAgentConfig;
use carnet_mobility::{Authentication, Event, HomeAgent, SecurityAssociation, SharedKeys};
use carnet_wire::mobility::MobilityOption;

use crate::agent::{TestAgent, authenticated_config, authorized_node};
use crate::agent_and_routers::{AgentAndRouters, PairSetup};
use crate::test_messages::*;

fn new_association() -> SecurityAssociation {
    SecurityAssociation { spi: 301, key: [7; 16].into(), ..test_association() }
}

fn config_with_keys(associations: &[SecurityAssociation]) -> HomeAgentConfig {
    let mut config = authenticated_config();
    config.nodes[0].authentication = match associations {
        [one] => Authentication::SharedKey(one.clone()),
        several => {
            let keys = SharedKeys { associations: several.to_vec(), derives_key_per_agent: false };
            Authentication::SharedKeys(Box::new(keys))
        }
    };
    config
}

fn reload_config(agent: &mut TestAgent, config: HomeAgentConfig) {
    let stored = agent.home_agent.stored_bindings(agent.now, agent.wall_time());
    let text = serde_json::to_string(&stored).expect("a state");
    agent.home_agent = HomeAgent::new(config);
    let (now, wall) = (agent.now, agent.wall_time());
    agent.home_agent.restore(now, wall, serde_json::from_str(&text).expect("a state"));
    agent.take_answers();
}

fn update_with_timestamp(agent: &TestAgent, sequence: u16) -> TestUpdate {
    let option = MobilityOption::MessageIdentifier(agent.wall_time().to_ntp());
    TestUpdate::explicit_update(sequence).with_option(option).with_signature()
}

/// RFC 6275 9.5.1 and 15.3: a number 32,767 ahead is newer, and then the key has no number left.
#[test]
fn key_without_remaining_sequence_numbers_requires_timestamps() {
    let mut agent = TestAgent::new(authenticated_config());
    let recorded = TestUpdate::explicit_update(10).with_signature();
    agent.expect_acceptance(&recorded);
    agent.expect_acceptance(&TestUpdate::explicit_update(32_777).with_signature());
    agent.advance_time(1.0);
    let answer = agent.expect_refusal(&TestUpdate::explicit_update(32_778).with_signature(), 145);
    assert!(answer.is_signed(&test_association(), CARE_OF_ADDRESS, HOME_ADDRESS));
    agent.expect_refusal(&recorded, 135);
    let timely = update_with_timestamp(&agent, 32_779);
    agent.expect_acceptance(&timely);
    agent.advance_time(1.0);
    // By its number the recorded update now counts as newer; the demand for a timestamp refuses it.
    agent.expect_refusal(&recorded, 145);
    agent.expect_refusal(&timely, 144);
    let next = update_with_timestamp(&agent, 10);
    agent.expect_acceptance(&next);
    agent.advance_time(1.0);
    agent.expect_refusal(&TestUpdate::explicit_update(32_000).with_signature(), 145);
    // A restart preserves the demand for timestamps.
    reload_config(&mut agent, authenticated_config());
    agent.advance_time(1.0);
    agent.expect_refusal(&recorded, 145);
    agent.expect_refusal(&TestUpdate::explicit_update(11).with_signature(), 145);
    agent.expect_refusal(&timely, 144);
}

/// The log distinguishes an old number from a wrong MAC, and mentions keys only for a wrong MAC.
#[test]
fn log_of_a_refusal_distinguishes_old_sequence_number_from_wrong_mac() {
    let reasons = |agent: &mut TestAgent| {
        let reason = |event: Event| match event {
            Event::BindingRefused { status, reason, .. } => Some((status, reason)),
            _ => None,
        };
        agent.events.drain(..).filter_map(reason).collect::<Vec<_>>()
    };
    let mut agent = TestAgent::new(authenticated_config());
    agent.expect_acceptance(&TestUpdate::explicit_update(10).with_signature());
    agent.expect_refusal(&TestUpdate::explicit_update(9).with_signature(), 135);
    assert_eq!(reasons(&mut agent), [(135, "old number 9: the last one accepted is 10".to_owned())]);
    let wrong = SecurityAssociation { key: [9; 16].into(), ..test_association() };
    agent.expect_refusal(&TestUpdate::explicit_update(11).with_signature_by(wrong), 146);
    assert_eq!(reasons(&mut agent), [(146, "wrong MAC under SPI 300".to_owned())]);
    agent.expect_refusal(
        &TestUpdate::explicit_update(11).prefix(SECOND_MOBILE_NETWORK_PREFIX).with_signature(),
        142,
    );
    assert!(reasons(&mut agent).iter().all(|(_, reason)| !reason.to_lowercase().contains("key")));
}

#[test]
fn the_operator_is_warned_of_a_key_that_has_few_sequence_numbers_left() {
    let mut agent = TestAgent::new(authenticated_config());
    let waiting = |agent: &TestAgent| agent.home_agent.nodes_needing_new_key().collect::<Vec<_>>();
    agent.expect_acceptance(&TestUpdate::explicit_update(1).with_signature());
    agent.expect_acceptance(&TestUpdate::explicit_update(24_575).with_signature());
    assert!(agent.warnings().is_empty() && waiting(&agent).is_empty());
    for sequence in 24_576..24_580 {
        agent.expect_acceptance(&TestUpdate::explicit_update(sequence).with_signature());
        agent.advance_time(1.0);
    }
    let warnings = agent.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("SPI 300") && warnings[0].contains("8192 of 32768"), "{warnings:?}");
    assert_eq!(waiting(&agent), [addr(HOME_ADDRESS)]);
    agent.events.clear();
    agent.expect_acceptance(&TestUpdate::explicit_update(32_768).with_signature());
    for sequence in 32_769..32_780 {
        agent.expect_refusal(&TestUpdate::explicit_update(sequence).with_signature(), 145);
        agent.advance_time(1.0);
    }
    let warnings = agent.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("has to send timestamps") && warnings[0].contains(HOME_ADDRESS),
        "{warnings:?}"
    );
    agent.events.clear();
    let next = update_with_timestamp(&agent, 32_780);
    agent.expect_acceptance(&next);
    assert!(waiting(&agent).is_empty() && agent.warnings().is_empty(), "it sends timestamps");
}

/// All keys share the node's numbers. So after 32,768 numbers under the new key, an update that was recorded
/// under the old key counts as newer again. Only the demand for a timestamp refuses it.
#[test]
fn all_keys_of_a_node_share_its_sequence_numbers() {
    let mut agent = TestAgent::new(config_with_keys(&[new_association(), test_association()]));
    let recorded = TestUpdate::explicit_update(1).with_signature();
    agent.expect_acceptance(&recorded);
    agent.expect_acceptance(&TestUpdate::explicit_update(30_000).with_signature_by(new_association()));
    agent.expect_acceptance(&TestUpdate::explicit_update(60_000).with_signature_by(new_association()));
    agent.advance_time(1.0);
    agent.expect_refusal(&recorded, 145);
    // The config lists the keys in another order, and the home agent restarts. It still knows how many
    // numbers each key has used.
    reload_config(&mut agent, config_with_keys(&[test_association(), new_association()]));
    agent.expect_acceptance(&TestUpdate::explicit_update(60_001).with_signature_by(new_association()));
    agent.expect_refusal(&recorded, 145);
    agent.expect_refusal(&TestUpdate::explicit_update(60_002).with_signature(), 145);
}

/// A new key has all numbers, under a new SPI or the old one. An old key that comes back has only those that
/// it had left.
#[test]
fn a_new_key_has_all_sequence_numbers() {
    for new_key in [new_association(), SecurityAssociation { spi: 300, ..new_association() }] {
        let mut agent = TestAgent::new(authenticated_config());
        agent.expect_acceptance(&TestUpdate::explicit_update(1).with_signature());
        agent.expect_acceptance(&TestUpdate::explicit_update(32_768).with_signature());
        agent.expect_refusal(&TestUpdate::explicit_update(32_769).with_signature(), 145);
        reload_config(&mut agent, config_with_keys(std::slice::from_ref(&new_key)));
        agent.expect_acceptance(&TestUpdate::explicit_update(32_769).with_signature_by(new_key.clone()));
        agent.expect_acceptance(&TestUpdate::explicit_update(65_000).with_signature_by(new_key.clone()));
        for meanwhile in [vec![], vec![authorized_node(HOME_ADDRESS, &[MOBILE_NETWORK_PREFIX])]] {
            let mut config = authenticated_config();
            config.nodes = meanwhile;
            reload_config(&mut agent, config);
        }
        reload_config(&mut agent, authenticated_config());
        agent.advance_time(1.0);
        agent.expect_refusal(&TestUpdate::explicit_update(10_001).with_signature(), 145);
    }
}

/// The home agent reads the state of an earlier version, which has no counts of numbers. It counts from then
/// on.
#[test]
fn home_agent_reads_stored_state_without_sequence_number_counts() {
    let mut agent = TestAgent::new(authenticated_config());
    agent.expect_acceptance(&TestUpdate::explicit_update(7).with_signature());
    let mut stored = agent.home_agent.stored_bindings(agent.now, agent.wall_time());
    assert_eq!(stored[0].keys.len(), 1);
    stored[0].keys.clear();
    let text = serde_json::to_string(&stored).expect("a state");
    assert!(!text.contains("keys"), "{text}");
    let mut next = TestAgent::new(authenticated_config());
    next.now = agent.now;
    let (now, wall) = (next.now, next.wall_time());
    next.home_agent.restore(now, wall, serde_json::from_str(&text).expect("a state"));
    next.take_answers();
    next.expect_refusal(&TestUpdate::explicit_update(7).with_signature(), 135);
    next.expect_acceptance(&TestUpdate::explicit_update(8).with_signature());
    next.expect_acceptance(&TestUpdate::explicit_update(32_775).with_signature());
    next.expect_refusal(&TestUpdate::explicit_update(32_776).with_signature(), 145);
}

/// The clock was ahead for a while, or is not set after a start. Timestamps continue from the last one: the
/// home agent neither refuses the node until the clock has caught up nor accepts an update twice.
#[test]
fn a_clock_behind_the_last_timestamp_does_not_refuse_updates_for_long() {
    let mut agent = TestAgent::new(authenticated_config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1).with_signature());
    agent.expect_acceptance(&TestUpdate::explicit_update(32_768).with_signature());
    let ahead = MobilityOption::MessageIdentifier((agent.wall_time() + Duration::from_secs(86_400)).to_ntp());
    // The clock is a day ahead, and is corrected later.
    let (now, wall) = (agent.now, agent.wall_time() + Duration::from_secs(86_400));
    let recorded = TestUpdate::explicit_update(32_769).with_option(ahead).with_signature();
    receive_at_wall_time(&mut agent, &recorded, wall);
    agent.now = now + Duration::from_secs(1);
    let update = update_with_timestamp(&agent, 32_770);
    let told = agent.expect_refusal(&update, 144).options().timestamp.expect("a timestamp");
    let near = WallTime::from_ntp(told, wall).absolute_difference(wall);
    assert!(near <= Duration::from_secs(2), "{near:?}");
    let followed = TestUpdate::explicit_update(32_771)
        .with_option(MobilityOption::MessageIdentifier(told))
        .with_signature();
    agent.expect_acceptance(&followed);
    agent.expect_refusal(&recorded, 144);
}

fn receive_at_wall_time(agent: &mut TestAgent, update: &TestUpdate, wall: WallTime) {
    use carnet_mobility::MobilityMessage;
    use carnet_wire::extension::ExtensionHeaders;
    use carnet_wire::ipv6::Header;
    let packet = update.to_packet();
    let header = Header::parse(&packet).expect("an IPv6 header");
    let extensions = ExtensionHeaders::parse(&packet).expect("extension headers");
    let message = MobilityMessage::new(&packet, &header, &extensions).expect("a mobility message");
    agent.home_agent.handle_message(agent.now, wall, message).expect("accepted");
    agent.take_answers();
}

/// Router and home agent over a simulated network: the router uses timestamps on demand, also if its clock is
/// wrong, and stays registered.
#[test]
fn router_uses_timestamps_when_its_key_has_no_sequence_numbers_left() {
    for clock_ahead in [0, 100_000] {
        let mut pair = AgentAndRouters::new(PairSetup::authenticated_setup());
        pair.routers[0].clock_lead = Duration::from_secs(clock_ahead);
        pair.attach_both_uplinks();
        pair.register_router();
        pair.advance_seconds(100.0);
        // The key has used as many numbers as a router uses in 17 days.
        for key in &mut pair.agent_stored_bindings[0].keys {
            key.numbers = 32_766;
        }
        pair.restart_agent(true);
        pair.clear_records();
        for _ in 0..40 {
            pair.advance_seconds(10.0);
            assert!(pair.is_registered(0), "clock {clock_ahead}");
        }
        assert!(pair.last_update().options().timestamp.is_some());
        // After a restart without state the home agent demands a timestamp once more. Then the router is
        // registered.
        pair.restart_router(0, false);
        pair.register_router();
        assert!(pair.last_update().options().timestamp.is_some());
    }
}

/// Without stored state a router starts with a number from the minutes of its clock. So restarts do not use
/// up a fleet's key.
#[test]
fn router_without_state_derives_first_sequence_number_from_its_clock() {
    let mut pair = AgentAndRouters::new(PairSetup::authenticated_setup());
    pair.attach_both_uplinks();
    pair.register_router();
    let first = pair.last_update().sequence();
    for _ in 0..50 {
        pair.advance_seconds(600.0);
        pair.restart_router(0, false);
        pair.register_router();
    }
    let used = pair.agent_stored_bindings[0].keys[0].numbers;
    let apart = pair.last_update().sequence().wrapping_sub(first);
    assert!((500..2000).contains(&apart), "{apart} numbers in 500 minutes and as many refreshes");
    assert_eq!(used, u32::from(apart) + 1);
}
