//! Home agent: the operator changes the key of a registered node (RFC 4285 5.1: the SPI names the security
//! association).

use std::time::Duration;

use carnet_mobility::home_agent::{HomeAgentConfig, OtherAgents, PeerHomeAgent};
use carnet_mobility::{
    Authentication, Event, HomeAgent, MobilityDrop, Output, ReplayProtection, SecurityAssociation, SharedKeys,
};
use carnet_wire::mobility::{MobilityHeader, MobilityOption, ParsedMobilityMessage};

use crate::agent::{TestAgent, authenticated_config, authorized_node};
use crate::agent_and_routers::{AgentAndRouters, PairSetup};
use crate::test_messages::*;

/// Security association with SPI 301. It replaces [`test_association`], which has SPI 300.
fn new_association() -> SecurityAssociation {
    SecurityAssociation { spi: 301, key: [7; 16].into(), ..test_association() }
}

fn shared_keys(associations: &[SecurityAssociation]) -> Authentication {
    Authentication::SharedKeys(Box::new(SharedKeys {
        associations: associations.to_vec(),
        derives_key_per_agent: false,
    }))
}

/// Returns the config of a home agent whose node has this authentication.
fn config_with_authentication(authentication: Authentication) -> HomeAgentConfig {
    let mut config = authenticated_config();
    config.nodes[0].authentication = authentication;
    config
}

fn config_with_both_keys() -> HomeAgentConfig {
    config_with_authentication(shared_keys(&[new_association(), test_association()]))
}

fn config_with_new_key() -> HomeAgentConfig {
    config_with_authentication(Authentication::SharedKey(new_association()))
}

/// Reloads the config, as a station does.
fn reload_config(agent: &mut TestAgent, config: HomeAgentConfig) {
    let stored = agent.home_agent.stored_bindings(agent.now, agent.wall_time());
    let old = std::mem::replace(&mut agent.home_agent, HomeAgent::new(config));
    let (now, wall) = (agent.now, agent.wall_time());
    agent.home_agent.restore(now, wall, stored);
    agent.home_agent.adopt_state(now, old);
    assert!(agent.take_answers().is_empty(), "nobody is told anything");
}

#[test]
fn acknowledgement_is_signed_with_key_of_its_update() {
    let mut agent = TestAgent::new(config_with_both_keys());
    for (sequence, key) in (1..).zip([test_association(), new_association(), test_association()]) {
        let answer =
            agent.expect_acceptance(&TestUpdate::explicit_update(sequence).with_signature_by(key.clone()));
        assert!(answer.is_signed(&key, CARE_OF_ADDRESS, HOME_ADDRESS), "{key:?}");
        // The home agent signs refusals with the update's key as well: status 135 for an old number, 146 for
        // a wrong MAC.
        let answer =
            agent.expect_refusal(&TestUpdate::explicit_update(sequence).with_signature_by(key.clone()), 135);
        assert!(answer.is_signed(&key, CARE_OF_ADDRESS, HOME_ADDRESS), "{key:?}");
        let wrong = SecurityAssociation { key: [9; 16].into(), ..key.clone() };
        agent.advance_time(10.0);
        let answer =
            agent.expect_refusal(&TestUpdate::explicit_update(sequence + 1).with_signature_by(wrong), 146);
        assert!(answer.is_signed(&key, CARE_OF_ADDRESS, HOME_ADDRESS), "{key:?}");
    }
    let unknown = SecurityAssociation { spi: 302, ..new_association() };
    agent.events.clear();
    assert_eq!(
        agent.expect_drop(&TestUpdate::explicit_update(9).with_signature_by(unknown).to_packet()),
        MobilityDrop::UnknownSpi
    );
    assert!(agent.warnings()[0].contains("SPI is 302, expected 301 or 300"), "{:?}", agent.warnings());
}

/// The home agent refuses a message whose MAC was made with the key of another SPI.
#[test]
fn a_key_under_another_spi_is_wrong() {
    let mut agent = TestAgent::new(config_with_both_keys());
    let crossed = SecurityAssociation { spi: 300, ..new_association() };
    agent.expect_refusal(&TestUpdate::explicit_update(1).with_signature_by(crossed), 146);
    let crossed = SecurityAssociation { spi: 301, ..test_association() };
    assert_eq!(
        agent.expect_drop(&TestUpdate::explicit_update(1).with_signature_by(crossed).to_packet()),
        MobilityDrop::RateLimited,
        "status 146 is said once for the node"
    );
}

/// The home agent accepts each number once, under whichever key.
#[test]
fn update_recorded_under_the_old_key_is_refused_after_key_change() {
    let mut agent = TestAgent::new(config_with_authentication(Authentication::SharedKey(test_association())));
    let recorded = TestUpdate::explicit_update(10).with_signature();
    agent.expect_acceptance(&recorded);
    reload_config(&mut agent, config_with_both_keys());
    assert_eq!(agent.expect_refusal(&recorded, 135).sequence(), 10);
    agent.expect_acceptance(&TestUpdate::explicit_update(11).with_signature_by(new_association()));
    assert_eq!(agent.expect_refusal(&recorded, 135).sequence(), 11);
    agent
        .expect_acceptance(&TestUpdate::implicit_update(12).lifetime(0).with_signature_by(new_association()));
    agent.advance_time(3600.0);
    assert_eq!(agent.expect_refusal(&recorded, 135).sequence(), 12, "beyond the binding, too");
}

#[test]
fn timestamp_seen_under_the_old_key_is_refused_under_the_new_key() {
    let timed = |of| SecurityAssociation {
        replay: ReplayProtection::Timestamp { window: Duration::from_secs(7) },
        ..of
    };
    let mut agent = TestAgent::new(config_with_authentication(shared_keys(&[
        timed(new_association()),
        timed(test_association()),
    ])));
    let stamped = |agent: &TestAgent, sequence: u16, key| {
        let option = MobilityOption::MessageIdentifier(agent.wall_time().to_ntp());
        TestUpdate::explicit_update(sequence).with_option(option).with_signature_by(key)
    };
    let recorded = stamped(&agent, 1, test_association());
    agent.advance_time(0.5);
    let later = stamped(&agent, 2, new_association());
    agent.expect_acceptance(&later);
    agent.expect_refusal(&recorded, 144);
}

/// A node was out of the config, or needed no key for a while, and gets its old key back: replayed updates
/// are still old.
#[test]
fn update_recorded_before_its_node_left_the_config_is_refused_later() {
    let mut without = authenticated_config();
    without.nodes = vec![authorized_node("2001:db8:1::9", &["2001:db8:99::/64"])];
    let by_word = config_with_authentication(Authentication::None);
    let timed = SecurityAssociation {
        replay: ReplayProtection::Timestamp { window: Duration::from_secs(7) },
        ..test_association()
    };
    let ways = [
        vec![without.clone()],
        vec![by_word.clone()],
        vec![config_with_authentication(Authentication::Ipsec)],
        vec![without.clone(), by_word.clone(), without.clone()],
        // In between the home agent has a config with several keys, but receives no update under them.
        vec![without.clone(), config_with_both_keys(), without.clone()],
        vec![by_word.clone(), config_with_both_keys(), by_word.clone()],
        vec![config_with_both_keys(), by_word.clone(), config_with_both_keys(), without.clone()],
        vec![config_with_both_keys(), without, by_word, config_with_new_key()],
    ];
    for (way, meanwhile) in ways.into_iter().enumerate() {
        for key in [test_association(), timed.clone()] {
            let served = config_with_authentication(Authentication::SharedKey(key.clone()));
            let mut agent = TestAgent::new(served.clone());
            let stamp = |agent: &TestAgent, update: TestUpdate| {
                let option = MobilityOption::MessageIdentifier(agent.wall_time().to_ntp());
                update.with_option(option).with_signature_by(key.clone())
            };
            let recorded = stamp(&agent, TestUpdate::explicit_update(10));
            agent.expect_acceptance(&recorded);
            agent.advance_time(1.0);
            let last = stamp(&agent, TestUpdate::explicit_update(11).from(OTHER_CARE_OF_ADDRESS).lifetime(0));
            agent.expect_acceptance(&last);
            for config in &meanwhile {
                reload_config(&mut agent, config.clone());
                if matches!(config.nodes[0].authentication, Authentication::None)
                    && agent.home_agent.node(addr(HOME_ADDRESS)).is_some()
                {
                    // While the home agent demands no key, it accepts any number for a node without a
                    // binding. But the number of an existing binding counts until the binding ends, also
                    // after a reload.
                    agent.expect_acceptance(&TestUpdate::explicit_update(3));
                    reload_config(&mut agent, config.clone());
                    agent.expect_refusal(&TestUpdate::explicit_update(3), 135);
                    agent.expect_acceptance(&TestUpdate::explicit_update(4).lifetime(0));
                }
            }
            reload_config(&mut agent, served.clone());
            assert!(agent.home_binding().is_none());
            match key.replay {
                ReplayProtection::Sequence => {
                    assert_eq!(agent.expect_refusal(&recorded, 135).sequence(), 11, "way {way}");
                    agent.expect_acceptance(&TestUpdate::explicit_update(12).with_signature());
                }
                ReplayProtection::Timestamp { .. } => {
                    agent.expect_refusal(&recorded, 144);
                    agent.advance_time(1.0);
                    let next = stamp(&agent, TestUpdate::explicit_update(12));
                    agent.expect_acceptance(&next);
                }
            }
        }
    }
}

/// Updates that the router signed while the home agent demanded no key are old as well, as long as the
/// binding lasts.
#[test]
fn sequence_number_accepted_without_key_is_old_under_the_key() {
    let mut agent = TestAgent::new(authenticated_config());
    agent.expect_acceptance(&TestUpdate::explicit_update(10).with_signature());
    reload_config(&mut agent, config_with_authentication(Authentication::None));
    let recorded = TestUpdate::explicit_update(15).with_signature();
    agent.expect_acceptance(&recorded);
    agent.expect_acceptance(&TestUpdate::explicit_update(20).from(OTHER_CARE_OF_ADDRESS).with_signature());
    reload_config(&mut agent, authenticated_config());
    assert_eq!(agent.expect_refusal(&recorded, 135).sequence(), 20);
    assert_eq!(agent.home_binding().expect("a binding").care_of_address, addr(OTHER_CARE_OF_ADDRESS));
    agent.expect_acceptance(&TestUpdate::explicit_update(21).with_signature());
}

/// While the home agent demands no key, an attacker can send any number. When it demands the key again, the
/// updates signed before are still old.
#[test]
fn unauthenticated_sequence_number_makes_no_recorded_update_valid() {
    for (ahead, last) in [(32_767, 1000), (4097, 1000), (4096, 5096)] {
        let mut agent = TestAgent::new(authenticated_config());
        let recorded = TestUpdate::explicit_update(9).with_signature();
        agent.expect_acceptance(&recorded);
        agent.expect_acceptance(
            &TestUpdate::explicit_update(1000).from(OTHER_CARE_OF_ADDRESS).with_signature(),
        );
        reload_config(&mut agent, config_with_authentication(Authentication::None));
        agent.expect_acceptance(&TestUpdate::explicit_update(1000 + ahead).from(OTHER_CARE_OF_ADDRESS));
        reload_config(&mut agent, authenticated_config());
        assert_eq!(agent.expect_refusal(&recorded, 135).sequence(), last, "{ahead}");
        assert_eq!(agent.home_binding().expect("a binding").care_of_address, addr(OTHER_CARE_OF_ADDRESS));
        agent.expect_acceptance(&TestUpdate::explicit_update(last + 1).with_signature());
    }
}

/// Earlier versions stored no SPI. If possible, the home agent takes a stored number without SPI for the
/// number of a signed message.
#[test]
fn stored_sequence_number_without_spi_counts_as_signed() {
    let mut agent = TestAgent::new(authenticated_config());
    let recorded = TestUpdate::explicit_update(10).with_signature();
    agent.expect_acceptance(&recorded);
    agent.expect_acceptance(&TestUpdate::explicit_update(11).lifetime(0).with_signature());
    let mut stored = agent.home_agent.stored_bindings(agent.now, agent.wall_time());
    assert_eq!((stored.len(), stored[0].sequence), (1, Some(11)));
    (stored[0].spi, stored[0].signed_sequence) = (None, None);
    let mut next = TestAgent::new(config_with_authentication(Authentication::None));
    next.now = agent.now;
    let (now, wall) = (next.now, next.wall_time());
    next.home_agent.restore(now, wall, stored);
    reload_config(&mut next, authenticated_config());
    assert_eq!(next.expect_refusal(&recorded, 135).sequence(), 11);
}

/// The key changes in three steps, and the router renews its binding after each. No binding ends, every
/// update is answered, and forwarding does not change.
#[test]
fn a_change_of_key_in_three_steps_ends_no_binding() {
    let mut agent = TestAgent::new(config_with_authentication(Authentication::SharedKey(test_association())));
    agent.expect_acceptance(&TestUpdate::explicit_update(1).with_signature());
    let steps = [
        (config_with_both_keys(), test_association()),
        // The operator has given the new key to the mobile router.
        (config_with_both_keys(), new_association()),
        (config_with_new_key(), new_association()),
    ];
    for (sequence, (config, key)) in (2..).zip(steps) {
        reload_config(&mut agent, config);
        assert!(agent.home_binding().is_some());
        let before = agent.forwarding_changes;
        let answer =
            agent.expect_acceptance(&TestUpdate::explicit_update(sequence).with_signature_by(key.clone()));
        assert!(answer.is_signed(&key, CARE_OF_ADDRESS, HOME_ADDRESS));
        assert_eq!(agent.forwarding_changes, before, "a refresh changes nothing");
    }
    assert_eq!(
        agent.expect_drop(&TestUpdate::explicit_update(9).with_signature().to_packet()),
        MobilityDrop::UnknownSpi
    );
}

/// After the reload that drops a key, the home agent accepts no update signed with it, even if its SPI has
/// another key now.
#[test]
fn a_removed_key_verifies_no_message() {
    let mut agent = TestAgent::new(config_with_both_keys());
    agent.expect_acceptance(&TestUpdate::explicit_update(1).with_signature());
    reload_config(&mut agent, config_with_new_key());
    assert_eq!(
        agent.expect_drop(&TestUpdate::explicit_update(2).with_signature().to_packet()),
        MobilityDrop::UnknownSpi
    );
    let same_spi = SecurityAssociation { spi: 300, ..new_association() };
    reload_config(&mut agent, config_with_authentication(Authentication::SharedKey(same_spi.clone())));
    agent.expect_refusal(&TestUpdate::explicit_update(2).with_signature(), 146);
    agent.expect_acceptance(&TestUpdate::explicit_update(2).with_signature_by(same_spi));
}

/// The home agent signs unsolicited messages with the key that the node used last, so that the node can
/// verify them. It remembers this key over a reload and a restart.
#[test]
fn unsolicited_messages_are_signed_with_last_used_key() {
    let signed_with = |agent: &mut TestAgent, order: &str| {
        let (now, wall) = (agent.now, agent.wall_time());
        match order {
            "revocation" => {
                agent.home_agent.handle_revocation(now, wall, addr(HOME_ADDRESS), &[]).expect("bound")
            }
            _ => agent.home_agent.handle_drain(now, wall, &[], Duration::from_secs(60)).expect("another"),
        }
        let packet = std::iter::from_fn(|| agent.home_agent.poll_output()).find_map(|output| match output {
            Output::Packet(packet) => Some(packet),
            _ => None,
        });
        let packet = packet.expect("a message to the node");
        let octets = &packet[packet.len() - usize::from(packet[5]) - 256 * usize::from(packet[4]) + 24..];
        let header = MobilityHeader::parse(octets).expect("a Mobility Header");
        assert!(matches!(
            header.message(),
            Ok(ParsedMobilityMessage::BindingRevocation(_) | ParsedMobilityMessage::HomeAgentSwitch(_))
        ));
        let keys = [test_association(), new_association()];
        let with = keys
            .into_iter()
            .find(|key| key.verify(octets, addr(CARE_OF_ADDRESS), addr(HOME_ADDRESS)).is_ok());
        with.expect("one of the keys").spi
    };
    for order in ["revocation", "drain"] {
        let with_peer = |mut config: HomeAgentConfig| {
            let peer = PeerHomeAgent { address: addr("2001:db8:1::2"), preference: 0 };
            config.other_agents = OtherAgents { peers: vec![peer], ..OtherAgents::default() };
            config
        };
        // Before the node has used the new key, the old key signs.
        let old = with_peer(config_with_authentication(Authentication::SharedKey(test_association())));
        let mut agent = TestAgent::new(old);
        agent.expect_acceptance(&TestUpdate::explicit_update(1).with_signature());
        reload_config(&mut agent, with_peer(config_with_both_keys()));
        assert_eq!(signed_with(&mut agent, order), 300, "{order}");
        // After the node has used the new key, the new key signs.
        let mut agent = TestAgent::new(with_peer(config_with_both_keys()));
        agent.expect_acceptance(&TestUpdate::explicit_update(1).with_signature());
        agent.expect_acceptance(&TestUpdate::explicit_update(2).with_signature_by(new_association()));
        // A replay of an update under the old key changes nothing.
        agent.expect_refusal(&TestUpdate::explicit_update(1).with_signature(), 135);
        reload_config(&mut agent, with_peer(config_with_both_keys()));
        assert_eq!(signed_with(&mut agent, order), 301, "{order}");
        // The key that the node used last has left the config: the remaining key signs.
        let mut agent = TestAgent::new(with_peer(config_with_both_keys()));
        agent.expect_acceptance(&TestUpdate::explicit_update(1).with_signature());
        reload_config(&mut agent, with_peer(config_with_new_key()));
        assert_eq!(signed_with(&mut agent, order), 301, "{order}");
    }
}

/// Router and home agent over a simulated network. The operator gives the router the new key while it is
/// registered, and then the old key again.
#[test]
fn a_router_that_is_given_a_new_key_stays_registered() {
    let mut setup = PairSetup::authenticated_setup();
    setup.agent.nodes[0].authentication = shared_keys(&[new_association(), test_association()]);
    let mut pair = AgentAndRouters::new(setup);
    pair.attach_both_uplinks();
    pair.register_router();
    for key in [new_association(), test_association()] {
        pair.clear_records();
        pair.routers[0].config.authentication = Authentication::SharedKey(key.clone());
        pair.reconfigure_router(0);
        pair.advance_seconds(5.0);
        assert!(pair.is_registered(0));
        assert!(pair.dropped_messages.is_empty(), "{:?}", pair.dropped_messages);
        assert_eq!(pair.last_update().options().spi, Some(key.spi));
        let lost = |event: &Event| matches!(event, Event::BindingRemoved { .. } | Event::Rejected { .. });
        assert!(!pair.events.iter().any(|(_, _, event)| lost(event)), "{:?}", pair.events);
    }
}
