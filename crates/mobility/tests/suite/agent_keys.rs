//! Home agent: the key of a node is changed while it is registered (RFC 4285 5.1: the SPI says which
//! association it is).

use std::time::Duration;

use carnet_mobility::home_agent::{HomeAgentConfig, OtherAgents, Peer};
use carnet_mobility::{
    Authentication, Event, HomeAgent, MobilityDrop, Output, ReplayProtection, SecurityAssociation, SharedKeys,
};
use carnet_wire::mobility::{Message, MobilityHeader, MobilityOption};

use crate::agent::{Agent, authenticated, node};
use crate::craft::*;
use crate::pair::{Pair, Setup};

/// What comes after [`association`], which has SPI 300.
fn new_key() -> SecurityAssociation {
    SecurityAssociation { spi: 301, key: [7; 16].into(), ..association() }
}

fn keys(associations: &[SecurityAssociation]) -> Authentication {
    Authentication::SharedKeys(Box::new(SharedKeys { associations: associations.to_vec(), per_agent: false }))
}

/// The config of a home agent whose node has this.
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

/// Has the home agent read its config again, as a station does it.
fn reload(agent: &mut Agent, config: HomeAgentConfig) {
    let stored = agent.machine.stored(agent.now, agent.wall());
    let old = std::mem::replace(&mut agent.machine, HomeAgent::new(config));
    let (now, wall) = (agent.now, agent.wall());
    agent.machine.restore(now, wall, stored);
    agent.machine.adopt(now, old);
    assert!(agent.drain().is_empty(), "nobody is told anything");
}

#[test]
fn the_answer_is_signed_with_the_key_of_the_question() {
    let mut agent = Agent::new(both());
    for (sequence, key) in (1..).zip([association(), new_key(), association()]) {
        let answer = agent.accept(&Update::explicit(sequence).signed_by(key.clone()));
        assert!(answer.is_signed(&key, CARE_OF, HOME), "{key:?}");
        // A refusal as well: a number that is old, a MAC that is wrong.
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

/// The key of one SPI with the number of the other is neither.
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

/// Whatever the key, a number counts once.
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

/// A node that was not served for a while, or that nothing but its word stood for, has its old key again.
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
        // Several keys, of which none was seen used since.
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
                    // Its numbers begin anew, and those of its bindings count until they end.
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

/// What a router goes on to sign while its home agent does not look is old as well, as long as it is bound.
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

/// Anybody can send the home agent a number while it asks for no key: what was signed before is old all the
/// same when it does.
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

/// Earlier versions did not write by which key.
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

/// Three steps, under each of which the router renews its binding: nothing ends, nothing is unanswered,
/// nothing is forwarded otherwise.
#[test]
fn a_key_is_changed_in_three_steps_and_nothing_ends() {
    let mut agent = Agent::new(with(Authentication::SharedKey(association())));
    agent.accept(&Update::explicit(1).signed());
    let steps = [
        (both(), association()),
        (both(), new_key()), // the mobile router has been given it
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

/// From the moment on that the config is without it, a key verifies nothing, also where its SPI has another
/// key now.
#[test]
fn a_key_that_was_dropped_verifies_nothing() {
    let mut agent = Agent::new(both());
    agent.accept(&Update::explicit(1).signed());
    reload(&mut agent, new_alone());
    assert_eq!(agent.ignore(&Update::explicit(2).signed().packet()), MobilityDrop::UnknownSpi);
    let same_spi = SecurityAssociation { spi: 300, ..new_key() };
    reload(&mut agent, with(Authentication::SharedKey(same_spi.clone())));
    agent.refuse(&Update::explicit(2).signed(), 146);
    agent.accept(&Update::explicit(2).signed_by(same_spi));
}

/// What the home agent says unasked the node has to be able to read: so it is signed with the key that the
/// node used last, which survives a reload of the config, and a restart.
#[test]
fn what_is_said_unasked_is_signed_with_the_key_that_the_node_used_last() {
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
        // Before anything was heard under the new key,
        let old = with_peer(with(Authentication::SharedKey(association())));
        let mut agent = Agent::new(old);
        agent.accept(&Update::explicit(1).signed());
        reload(&mut agent, with_peer(both()));
        assert_eq!(signed_with(&mut agent, order), 300, "{order}");
        // afterwards,
        let mut agent = Agent::new(with_peer(both()));
        agent.accept(&Update::explicit(1).signed());
        agent.accept(&Update::explicit(2).signed_by(new_key()));
        // also when somebody plays what was recorded before,
        agent.refuse(&Update::explicit(1).signed(), 135);
        reload(&mut agent, with_peer(both()));
        assert_eq!(signed_with(&mut agent, order), 301, "{order}");
        // and when the key that was used last is gone.
        let mut agent = Agent::new(with_peer(both()));
        agent.accept(&Update::explicit(1).signed());
        reload(&mut agent, with_peer(new_alone()));
        assert_eq!(signed_with(&mut agent, order), 301, "{order}");
    }
}

/// Both ends, over a road: the router is given the new key while it is registered, and again the old one.
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
