//! Home agent: a key has 2^15 sequence numbers (RFC 6275 15.3). After that the home agent demands timestamps
//! or another key.

use std::time::Duration;

use carnet_base::WallTime;
use carnet_mobility::home_agent::HomeAgentConfig;
use carnet_mobility::{Authentication, Event, HomeAgent, SecurityAssociation, SharedKeys};
use carnet_wire::mobility::MobilityOption;

use crate::agent::{Agent, authenticated, node};
use crate::craft::*;
use crate::pair::{Pair, Setup};

fn new_key() -> SecurityAssociation {
    SecurityAssociation { spi: 301, key: [7; 16].into(), ..association() }
}

fn with(associations: &[SecurityAssociation]) -> HomeAgentConfig {
    let mut config = authenticated();
    config.nodes[0].authentication = match associations {
        [one] => Authentication::SharedKey(one.clone()),
        several => {
            let keys = SharedKeys { associations: several.to_vec(), per_agent: false };
            Authentication::SharedKeys(Box::new(keys))
        }
    };
    config
}

fn reload(agent: &mut Agent, config: HomeAgentConfig) {
    let stored = agent.machine.stored(agent.now, agent.wall());
    let text = serde_json::to_string(&stored).expect("a state");
    agent.machine = HomeAgent::new(config);
    let (now, wall) = (agent.now, agent.wall());
    agent.machine.restore(now, wall, serde_json::from_str(&text).expect("a state"));
    agent.drain();
}

fn stamped(agent: &Agent, sequence: u16) -> Update {
    let option = MobilityOption::MessageIdentifier(agent.wall().to_ntp());
    Update::explicit(sequence).with(option).signed()
}

/// RFC 6275 9.5.1 and 15.3: a number 32,767 ahead is newer, and then the key has no number left.
#[test]
fn a_key_without_sequence_numbers_left_needs_timestamps() {
    let mut agent = Agent::new(authenticated());
    let recorded = Update::explicit(10).signed();
    agent.accept(&recorded);
    agent.accept(&Update::explicit(32_777).signed());
    agent.wait(1.0);
    let answer = agent.refuse(&Update::explicit(32_778).signed(), 145);
    assert!(answer.is_signed(&association(), CARE_OF, HOME));
    agent.refuse(&recorded, 135);
    let timely = stamped(&agent, 32_779);
    agent.accept(&timely);
    agent.wait(1.0);
    // By its number the recorded update now counts as newer; the demand for a timestamp refuses it.
    agent.refuse(&recorded, 145);
    agent.refuse(&timely, 144);
    let next = stamped(&agent, 10);
    agent.accept(&next);
    agent.wait(1.0);
    agent.refuse(&Update::explicit(32_000).signed(), 145);
    // A restart preserves the demand for timestamps.
    reload(&mut agent, authenticated());
    agent.wait(1.0);
    agent.refuse(&recorded, 145);
    agent.refuse(&Update::explicit(11).signed(), 145);
    agent.refuse(&timely, 144);
}

/// The log distinguishes an old number from a wrong MAC, and mentions keys only for a wrong MAC.
#[test]
fn a_refusal_says_whether_the_number_is_old_or_the_mac_is_wrong() {
    let reasons = |agent: &mut Agent| {
        let reason = |event: Event| match event {
            Event::BindingRefused { status, reason, .. } => Some((status, reason)),
            _ => None,
        };
        agent.events.drain(..).filter_map(reason).collect::<Vec<_>>()
    };
    let mut agent = Agent::new(authenticated());
    agent.accept(&Update::explicit(10).signed());
    agent.refuse(&Update::explicit(9).signed(), 135);
    assert_eq!(reasons(&mut agent), [(135, "old number 9: the last one accepted is 10".to_owned())]);
    let wrong = SecurityAssociation { key: [9; 16].into(), ..association() };
    agent.refuse(&Update::explicit(11).signed_by(wrong), 146);
    assert_eq!(reasons(&mut agent), [(146, "wrong MAC under SPI 300".to_owned())]);
    agent.refuse(&Update::explicit(11).prefix(SECOND_PREFIX).signed(), 142);
    assert!(reasons(&mut agent).iter().all(|(_, reason)| !reason.to_lowercase().contains("key")));
}

#[test]
fn the_operator_is_warned_of_a_key_that_has_few_sequence_numbers_left() {
    let mut agent = Agent::new(authenticated());
    let waiting = |agent: &Agent| agent.machine.keys_to_change().collect::<Vec<_>>();
    agent.accept(&Update::explicit(1).signed());
    agent.accept(&Update::explicit(24_575).signed());
    assert!(agent.warnings().is_empty() && waiting(&agent).is_empty());
    for sequence in 24_576..24_580 {
        agent.accept(&Update::explicit(sequence).signed());
        agent.wait(1.0);
    }
    let warnings = agent.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("SPI 300") && warnings[0].contains("8192 of 32768"), "{warnings:?}");
    assert_eq!(waiting(&agent), [addr(HOME)]);
    agent.events.clear();
    agent.accept(&Update::explicit(32_768).signed());
    for sequence in 32_769..32_780 {
        agent.refuse(&Update::explicit(sequence).signed(), 145);
        agent.wait(1.0);
    }
    let warnings = agent.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("has to send timestamps") && warnings[0].contains(HOME), "{warnings:?}");
    agent.events.clear();
    let next = stamped(&agent, 32_780);
    agent.accept(&next);
    assert!(waiting(&agent).is_empty() && agent.warnings().is_empty(), "it sends timestamps");
}

/// All keys share the node's numbers: numbers under the new key bring recordings under the old key closer to
/// being newer.
#[test]
fn the_numbers_of_one_key_count_for_the_others() {
    let mut agent = Agent::new(with(&[new_key(), association()]));
    let recorded = Update::explicit(1).signed();
    agent.accept(&recorded);
    agent.accept(&Update::explicit(30_000).signed_by(new_key()));
    agent.accept(&Update::explicit(60_000).signed_by(new_key()));
    agent.wait(1.0);
    agent.refuse(&recorded, 145);
    // Another order of the keys in the config, then a restart: each key keeps its own count.
    reload(&mut agent, with(&[association(), new_key()]));
    agent.accept(&Update::explicit(60_001).signed_by(new_key()));
    agent.refuse(&recorded, 145);
    agent.refuse(&Update::explicit(60_002).signed(), 145);
}

/// A new key has all numbers, under a new SPI or the old one. An old key that comes back has only those that
/// it had left.
#[test]
fn a_new_key_has_all_sequence_numbers() {
    for new_key in [new_key(), SecurityAssociation { spi: 300, ..new_key() }] {
        let mut agent = Agent::new(authenticated());
        agent.accept(&Update::explicit(1).signed());
        agent.accept(&Update::explicit(32_768).signed());
        agent.refuse(&Update::explicit(32_769).signed(), 145);
        reload(&mut agent, with(std::slice::from_ref(&new_key)));
        agent.accept(&Update::explicit(32_769).signed_by(new_key.clone()));
        agent.accept(&Update::explicit(65_000).signed_by(new_key.clone()));
        for meanwhile in [vec![], vec![node(HOME, &[PREFIX])]] {
            let mut config = authenticated();
            config.nodes = meanwhile;
            reload(&mut agent, config);
        }
        reload(&mut agent, authenticated());
        agent.wait(1.0);
        agent.refuse(&Update::explicit(10_001).signed(), 145);
    }
}

/// The home agent reads the state of an earlier version, which has no counts of numbers. It counts from then
/// on.
#[test]
fn state_without_counts_is_read() {
    let mut agent = Agent::new(authenticated());
    agent.accept(&Update::explicit(7).signed());
    let mut stored = agent.machine.stored(agent.now, agent.wall());
    assert_eq!(stored[0].keys.len(), 1);
    stored[0].keys.clear();
    let text = serde_json::to_string(&stored).expect("a state");
    assert!(!text.contains("keys"), "{text}");
    let mut next = Agent::new(authenticated());
    next.now = agent.now;
    let (now, wall) = (next.now, next.wall());
    next.machine.restore(now, wall, serde_json::from_str(&text).expect("a state"));
    next.drain();
    next.refuse(&Update::explicit(7).signed(), 135);
    next.accept(&Update::explicit(8).signed());
    next.accept(&Update::explicit(32_775).signed());
    next.refuse(&Update::explicit(32_776).signed(), 145);
}

/// The clock was ahead for a while, or is not set after a start. Timestamps continue from the last one: the
/// home agent neither refuses the node until the clock has caught up nor accepts an update twice.
#[test]
fn a_clock_behind_the_last_timestamp_does_not_refuse_updates_for_long() {
    let mut agent = Agent::new(authenticated());
    agent.accept(&Update::explicit(1).signed());
    agent.accept(&Update::explicit(32_768).signed());
    let ahead = MobilityOption::MessageIdentifier((agent.wall() + Duration::from_secs(86_400)).to_ntp());
    // The clock is a day ahead, and is corrected later.
    let (now, wall) = (agent.now, agent.wall() + Duration::from_secs(86_400));
    let recorded = Update::explicit(32_769).with(ahead).signed();
    receive_at(&mut agent, &recorded, wall);
    agent.now = now + Duration::from_secs(1);
    let update = stamped(&agent, 32_770);
    let told = agent.refuse(&update, 144).options().timestamp.expect("a timestamp");
    let near = WallTime::from_ntp(told, wall).distance(wall);
    assert!(near <= Duration::from_secs(2), "{near:?}");
    let followed = Update::explicit(32_771).with(MobilityOption::MessageIdentifier(told)).signed();
    agent.accept(&followed);
    agent.refuse(&recorded, 144);
}

fn receive_at(agent: &mut Agent, update: &Update, wall: WallTime) {
    use carnet_mobility::MobilityMessage;
    use carnet_wire::extension::Extensions;
    use carnet_wire::ipv6::Header;
    let packet = update.packet();
    let header = Header::parse(&packet).expect("an IPv6 header");
    let extensions = Extensions::parse(&packet).expect("extension headers");
    let message = MobilityMessage::new(&packet, &header, &extensions).expect("a mobility message");
    agent.machine.handle_message(agent.now, wall, message).expect("accepted");
    agent.drain();
}

/// Router and home agent over a simulated network: the router uses timestamps on demand, also if its clock is
/// wrong, and stays registered.
#[test]
fn a_router_takes_up_timestamps_when_its_key_has_no_numbers_left() {
    for clock_ahead in [0, 100_000] {
        let mut pair = Pair::new(Setup::authenticated());
        pair.routers[0].clock_ahead = Duration::from_secs(clock_ahead);
        pair.attach_both();
        pair.register();
        pair.run(100.0);
        // The key has used as many numbers as a router uses in 17 days.
        for key in &mut pair.agent_stored[0].keys {
            key.numbers = 32_766;
        }
        pair.restart_agent(true);
        pair.forget();
        for _ in 0..40 {
            pair.run(10.0);
            assert!(pair.is_registered(0), "clock {clock_ahead}");
        }
        assert!(pair.last_update().options().timestamp.is_some());
        // A restart without state draws one more demand, and then the router is registered.
        pair.restart_router(0, false);
        pair.register();
        assert!(pair.last_update().options().timestamp.is_some());
    }
}

/// Without stored state a router starts with a number from the minutes of its clock. So restarts do not use
/// up a fleet's key.
#[test]
fn a_router_without_state_starts_with_the_minutes_of_its_clock() {
    let mut pair = Pair::new(Setup::authenticated());
    pair.attach_both();
    pair.register();
    let first = pair.last_update().sequence();
    for _ in 0..50 {
        pair.run(600.0);
        pair.restart_router(0, false);
        pair.register();
    }
    let used = pair.agent_stored[0].keys[0].numbers;
    let apart = pair.last_update().sequence().wrapping_sub(first);
    assert!((500..2000).contains(&apart), "{apart} numbers in 500 minutes and as many refreshes");
    assert_eq!(used, u32::from(apart) + 1);
}
