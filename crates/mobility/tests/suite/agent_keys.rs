//! Home agent: the operator changes the key of a registered node (RFC 4285 5.1: the SPI names the security
//! association).

use std::time::Duration;

use carnet_mobility::home_agent::{HomeAgentConfig, OtherAgents, Peer};
use carnet_mobility::{
    Authentication, Event, HomeAgent, MobilityDrop, Output, ReplayProtection, SecurityAssociation, SharedKeys,
};
use carnet_wire::mobility::{Message, MobilityHeader, MobilityOption};

use crate::agent::{Agent, authenticated, node};
use crate::craft::*;
use crate::pair::{Pair, Setup};

/// Security association with SPI 301. It replaces [`association`], which has SPI 300.
fn new_key() -> SecurityAssociation {
    SecurityAssociation { spi: 301, key: [7; 16].into(), ..association() }
}

fn keys(associations: &[SecurityAssociation]) -> Authentication {
    Authentication::SharedKeys(Box::new(SharedKeys { associations: associations.to_vec(), per_agent: false }))
}

/// Returns the config of a home agent whose node has this authentication.
fn with(authentication: Authentication) -> HomeAgentConfig {
    let mut config = authenticated();
    config.nodes[0].authentication = authentication;
    config
}

fn both() -> HomeAgentConfig {
    with(keys(&[new_key(), association()]))
}

fn new_alone() -> HomeAgentConfig {
    with(Authentication::SharedKey(new_key()))
}

/// Reloads the config, as a station does.
fn reload(agent: &mut Agent, config: HomeAgentConfig) {
    let stored = agent.machine.stored(agent.now, agent.wall());
    let old = std::mem::replace(&mut agent.machine, HomeAgent::new(config));
    let (now, wall) = (agent.now, agent.wall());
    agent.machine.restore(now, wall, stored);
    agent.machine.adopt(now, old);
    assert!(agent.drain().is_empty(), "nobody is told anything");
}

#[test]
fn acknowledgement_is_signed_with_key_of_its_update() {
    let mut agent = Agent::new(both());
    for (sequence, key) in (1..).zip([association(), new_key(), association()]) {
        let answer = agent.accept(&Update::explicit(sequence).signed_by(key.clone()));
        assert!(answer.is_signed(&key, CARE_OF, HOME), "{key:?}");
        // The home agent signs refusals with the update's key as well: status 135 for an old number, 146 for
        // a wrong MAC.
        let answer = agent.refuse(&Update::explicit(sequence).signed_by(key.clone()), 135);
        assert!(answer.is_signed(&key, CARE_OF, HOME), "{key:?}");
        let wrong = SecurityAssociation { key: [9; 16].into(), ..key.clone() };
        agent.wait(10.0);
        let answer = agent.refuse(&Update::explicit(sequence + 1).signed_by(wrong), 146);
        assert!(answer.is_signed(&key, CARE_OF, HOME), "{key:?}");
    }
    let unknown = SecurityAssociation { spi: 302, ..new_key() };
    agent.events.clear();
    assert_eq!(agent.ignore(&Update::explicit(9).signed_by(unknown).packet()), MobilityDrop::UnknownSpi);
    assert!(agent.warnings()[0].contains("SPI is 302, expected 301 or 300"), "{:?}", agent.warnings());
}

/// A MAC by the key of one SPI under another SPI is wrong.
#[test]
fn a_key_under_another_spi_is_wrong() {
    let mut agent = Agent::new(both());
    let crossed = SecurityAssociation { spi: 300, ..new_key() };
    agent.refuse(&Update::explicit(1).signed_by(crossed), 146);
    let crossed = SecurityAssociation { spi: 301, ..association() };
    assert_eq!(
        agent.ignore(&Update::explicit(1).signed_by(crossed).packet()),
        MobilityDrop::RateLimited,
        "status 146 is said once for the node"
    );
}

/// The home agent accepts each number once, under whichever key.
#[test]
fn a_recording_under_the_old_key_is_old_under_every_key() {
    let mut agent = Agent::new(with(Authentication::SharedKey(association())));
    let recorded = Update::explicit(10).signed();
    agent.accept(&recorded);
    reload(&mut agent, both());
    assert_eq!(agent.refuse(&recorded, 135).sequence(), 10);
    agent.accept(&Update::explicit(11).signed_by(new_key()));
    assert_eq!(agent.refuse(&recorded, 135).sequence(), 11);
    agent.accept(&Update::implicit(12).lifetime(0).signed_by(new_key()));
    agent.wait(3600.0);
    assert_eq!(agent.refuse(&recorded, 135).sequence(), 12, "beyond the binding, too");
}

#[test]
fn a_timestamp_under_the_old_key_is_old_under_every_key() {
    let timed = |of| SecurityAssociation {
        replay: ReplayProtection::Timestamp { window: Duration::from_secs(7) },
        ..of
    };
    let mut agent = Agent::new(with(keys(&[timed(new_key()), timed(association())])));
    let stamped = |agent: &Agent, sequence: u16, key| {
        let option = MobilityOption::MessageIdentifier(agent.wall().to_ntp());
        Update::explicit(sequence).with(option).signed_by(key)
    };
    let recorded = stamped(&agent, 1, association());
    agent.wait(0.5);
    let later = stamped(&agent, 2, new_key());
    agent.accept(&later);
    agent.refuse(&recorded, 144);
}

/// A node that was out of the config, or that needed no key meanwhile, has its old key again: replayed
/// updates stay old.
#[test]
fn a_recording_is_old_when_its_node_comes_back() {
    let mut without = authenticated();
    without.nodes = vec![node("2001:db8:1::9", &["2001:db8:99::/64"])];
    let by_word = with(Authentication::None);
    let timed = SecurityAssociation {
        replay: ReplayProtection::Timestamp { window: Duration::from_secs(7) },
        ..association()
    };
    let ways = [
        vec![without.clone()],
        vec![by_word.clone()],
        vec![with(Authentication::Ipsec)],
        vec![without.clone(), by_word.clone(), without.clone()],
        // The home agent accepts several keys, but has seen no update under them since.
        vec![without.clone(), both(), without.clone()],
        vec![by_word.clone(), both(), by_word.clone()],
        vec![both(), by_word.clone(), both(), without.clone()],
        vec![both(), without, by_word, new_alone()],
    ];
    for (way, meanwhile) in ways.into_iter().enumerate() {
        for key in [association(), timed.clone()] {
            let served = with(Authentication::SharedKey(key.clone()));
            let mut agent = Agent::new(served.clone());
            let stamp = |agent: &Agent, update: Update| {
                let option = MobilityOption::MessageIdentifier(agent.wall().to_ntp());
                update.with(option).signed_by(key.clone())
            };
            let recorded = stamp(&agent, Update::explicit(10));
            agent.accept(&recorded);
            agent.wait(1.0);
            let last = stamp(&agent, Update::explicit(11).from(OTHER_CARE_OF).lifetime(0));
            agent.accept(&last);
            for config in &meanwhile {
                reload(&mut agent, config.clone());
                if matches!(config.nodes[0].authentication, Authentication::None)
                    && agent.machine.node(addr(HOME)).is_some()
                {
                    // Without a key the node's numbers begin anew, but the numbers of its bindings count
                    // until the bindings end.
                    agent.accept(&Update::explicit(3));
                    reload(&mut agent, config.clone());
                    agent.refuse(&Update::explicit(3), 135);
                    agent.accept(&Update::explicit(4).lifetime(0));
                }
            }
            reload(&mut agent, served.clone());
            assert!(agent.binding().is_none());
            match key.replay {
                ReplayProtection::Sequence => {
                    assert_eq!(agent.refuse(&recorded, 135).sequence(), 11, "way {way}");
                    agent.accept(&Update::explicit(12).signed());
                }
                ReplayProtection::Timestamp { .. } => {
                    agent.refuse(&recorded, 144);
                    agent.wait(1.0);
                    let next = stamp(&agent, Update::explicit(12));
                    agent.accept(&next);
                }
            }
        }
    }
}

/// Updates that the router signed while the home agent demanded no key are old as well, as long as the
/// binding lasts.
#[test]
fn a_number_that_was_taken_without_a_key_is_old_under_the_key() {
    let mut agent = Agent::new(authenticated());
    agent.accept(&Update::explicit(10).signed());
    reload(&mut agent, with(Authentication::None));
    let recorded = Update::explicit(15).signed();
    agent.accept(&recorded);
    agent.accept(&Update::explicit(20).from(OTHER_CARE_OF).signed());
    reload(&mut agent, authenticated());
    assert_eq!(agent.refuse(&recorded, 135).sequence(), 20);
    assert_eq!(agent.binding().expect("a binding").care_of_address, addr(OTHER_CARE_OF));
    agent.accept(&Update::explicit(21).signed());
}

/// While the home agent demands no key, an attacker can send any number. When it demands the key again, the
/// updates signed before are still old.
#[test]
fn a_number_far_ahead_that_was_taken_without_a_key_makes_no_recording_new() {
    for (ahead, last) in [(32_767, 1000), (4097, 1000), (4096, 5096)] {
        let mut agent = Agent::new(authenticated());
        let recorded = Update::explicit(9).signed();
        agent.accept(&recorded);
        agent.accept(&Update::explicit(1000).from(OTHER_CARE_OF).signed());
        reload(&mut agent, with(Authentication::None));
        agent.accept(&Update::explicit(1000 + ahead).from(OTHER_CARE_OF));
        reload(&mut agent, authenticated());
        assert_eq!(agent.refuse(&recorded, 135).sequence(), last, "{ahead}");
        assert_eq!(agent.binding().expect("a binding").care_of_address, addr(OTHER_CARE_OF));
        agent.accept(&Update::explicit(last + 1).signed());
    }
}

/// Earlier versions stored no SPI. If possible, the home agent takes a stored number without SPI for the
/// number of a signed message.
#[test]
fn a_record_without_spi_is_of_signed_messages_where_it_can_be() {
    let mut agent = Agent::new(authenticated());
    let recorded = Update::explicit(10).signed();
    agent.accept(&recorded);
    agent.accept(&Update::explicit(11).lifetime(0).signed());
    let mut stored = agent.machine.stored(agent.now, agent.wall());
    assert_eq!((stored.len(), stored[0].sequence), (1, Some(11)));
    (stored[0].spi, stored[0].signed_sequence) = (None, None);
    let mut next = Agent::new(with(Authentication::None));
    next.now = agent.now;
    let (now, wall) = (next.now, next.wall());
    next.machine.restore(now, wall, stored);
    reload(&mut next, authenticated());
    assert_eq!(next.refuse(&recorded, 135).sequence(), 11);
}

/// The key changes in three steps, and the router renews its binding after each. No binding ends, every
/// update is answered, and forwarding does not change.
#[test]
fn a_change_of_key_in_three_steps_ends_no_binding() {
    let mut agent = Agent::new(with(Authentication::SharedKey(association())));
    agent.accept(&Update::explicit(1).signed());
    let steps = [
        (both(), association()),
        (both(), new_key()), // the operator has given the new key to the mobile router
        (new_alone(), new_key()),
    ];
    for (sequence, (config, key)) in (2..).zip(steps) {
        reload(&mut agent, config);
        assert!(agent.binding().is_some());
        let before = agent.forwarding_changes;
        let answer = agent.accept(&Update::explicit(sequence).signed_by(key.clone()));
        assert!(answer.is_signed(&key, CARE_OF, HOME));
        assert_eq!(agent.forwarding_changes, before, "a refresh changes nothing");
    }
    assert_eq!(agent.ignore(&Update::explicit(9).signed().packet()), MobilityDrop::UnknownSpi);
}

/// After the reload that drops a key, the home agent accepts no update signed with it, even if its SPI has
/// another key now.
#[test]
fn a_removed_key_verifies_no_message() {
    let mut agent = Agent::new(both());
    agent.accept(&Update::explicit(1).signed());
    reload(&mut agent, new_alone());
    assert_eq!(agent.ignore(&Update::explicit(2).signed().packet()), MobilityDrop::UnknownSpi);
    let same_spi = SecurityAssociation { spi: 300, ..new_key() };
    reload(&mut agent, with(Authentication::SharedKey(same_spi.clone())));
    agent.refuse(&Update::explicit(2).signed(), 146);
    agent.accept(&Update::explicit(2).signed_by(same_spi));
}

/// The home agent signs unsolicited messages with the key that the node used last, so that the node can
/// verify them. It remembers this key over a reload and a restart.
#[test]
fn unsolicited_messages_are_signed_with_last_used_key() {
    let signed_with = |agent: &mut Agent, order: &str| {
        let (now, wall) = (agent.now, agent.wall());
        match order {
            "revocation" => agent.machine.handle_revocation(now, wall, addr(HOME), &[]).expect("bound"),
            _ => agent.machine.handle_drain(now, wall, &[], Duration::from_secs(60)).expect("another"),
        }
        let packet = std::iter::from_fn(|| agent.machine.poll_output()).find_map(|output| match output {
            Output::Packet(packet) => Some(packet),
            _ => None,
        });
        let packet = packet.expect("a message to the node");
        let octets = &packet[packet.len() - usize::from(packet[5]) - 256 * usize::from(packet[4]) + 24..];
        let header = MobilityHeader::parse(octets).expect("a Mobility Header");
        assert!(matches!(header.message(), Ok(Message::BindingRevocation(_) | Message::HomeAgentSwitch(_))));
        let keys = [association(), new_key()];
        let with = keys.into_iter().find(|key| key.verify(octets, addr(CARE_OF), addr(HOME)).is_ok());
        with.expect("one of the keys").spi
    };
    for order in ["revocation", "drain"] {
        let with_peer = |mut config: HomeAgentConfig| {
            let peer = Peer { address: addr("2001:db8:1::2"), preference: 0 };
            config.others = OtherAgents { peers: vec![peer], ..OtherAgents::default() };
            config
        };
        // Before the node has used the new key, the old key signs.
        let old = with_peer(with(Authentication::SharedKey(association())));
        let mut agent = Agent::new(old);
        agent.accept(&Update::explicit(1).signed());
        reload(&mut agent, with_peer(both()));
        assert_eq!(signed_with(&mut agent, order), 300, "{order}");
        // After the node has used the new key, the new key signs.
        let mut agent = Agent::new(with_peer(both()));
        agent.accept(&Update::explicit(1).signed());
        agent.accept(&Update::explicit(2).signed_by(new_key()));
        // A replay of an update under the old key changes nothing.
        agent.refuse(&Update::explicit(1).signed(), 135);
        reload(&mut agent, with_peer(both()));
        assert_eq!(signed_with(&mut agent, order), 301, "{order}");
        // The key that the node used last has left the config: the remaining key signs.
        let mut agent = Agent::new(with_peer(both()));
        agent.accept(&Update::explicit(1).signed());
        reload(&mut agent, with_peer(new_alone()));
        assert_eq!(signed_with(&mut agent, order), 301, "{order}");
    }
}

/// Router and home agent over a simulated network. The operator gives the router the new key while it is
/// registered, and then the old key again.
#[test]
fn a_router_that_is_given_a_new_key_stays_registered() {
    let mut setup = Setup::authenticated();
    setup.agent.nodes[0].authentication = keys(&[new_key(), association()]);
    let mut pair = Pair::new(setup);
    pair.attach_both();
    pair.register();
    for key in [new_key(), association()] {
        pair.forget();
        pair.routers[0].config.authentication = Authentication::SharedKey(key.clone());
        pair.reconfigure_router(0);
        pair.run(5.0);
        assert!(pair.is_registered(0));
        assert!(pair.drops.is_empty(), "{:?}", pair.drops);
        assert_eq!(pair.last_update().options().spi, Some(key.spi));
        let lost = |event: &Event| matches!(event, Event::BindingRemoved { .. } | Event::Rejected { .. });
        assert!(!pair.events.iter().any(|(_, _, event)| lost(event)), "{:?}", pair.events);
    }
}
