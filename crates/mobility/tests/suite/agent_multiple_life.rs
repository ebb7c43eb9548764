//! Home agent: several care-of addresses over time: their ends, the home link, a restart (RFC 5648 5.4 and
//! 6.2).

use std::collections::BTreeMap;

use carnet_base::{Endpoint, Rng};
use carnet_mobility::home_agent::{HomeAgentConfig, MAX_BINDINGS, StoredBinding};
use carnet_mobility::{Event, MobilityDrop};

use crate::agent::{Agent, authenticated, config};
use crate::agent_multiple::two;
use crate::craft::*;
use crate::several::*;

/// Conformance item 54; RFC 5648 5.4, 6.2: an update de-registers one binding, and the others stay; status
/// 133 for an unknown BID.
#[test]
fn one_of_several_bindings_is_deregistered() {
    let mut agent = two();
    let answer = agent.accept(&Update::implicit(3).lifetime(0).known_bid(1));
    assert_eq!((answer.lifetime(), said(&answer).bids), (0, vec![(1, 0)]));
    assert_eq!(bindings(&agent), expected(&[(2, OTHER_CARE_OF)]));
    assert!(agent.machine.bindings().accepts(addr(HOME), addr(CARE_OF).into()), "for a moment");
    agent.refuse(&Update::implicit(4).lifetime(0).known_bid(1), 133);
    agent.refuse(&Update::implicit(4).lifetime(0).bid(9, CARE_OF), 133);
    let answer = agent.ask(&Update::implicit(4).lifetime(0).known_bid(9).known_bid(2).known_bid(2));
    assert_eq!((answer.status(), said(&answer).bids), (4, vec![(9, 133), (2, 0), (2, 133)]));
    assert!(bindings(&agent).is_empty());
}

/// RFC 5648 6.2: "If the 'O' flag is set in the de-registering Binding Update, it is ignored."
#[test]
fn deregistration_ignores_o_flag() {
    let mut agent = two();
    agent.accept(&Update::implicit(3).overwriting().lifetime(0).known_bid(1));
    assert_eq!(bindings(&agent), expected(&[(2, OTHER_CARE_OF)]));
}

/// Conformance item 48; RFC 5648 5.4, 6.2: a de-registration without BIDs ends all bindings, from any source.
#[test]
fn deregistration_without_bid_ends_all_bindings() {
    for update in [Update::implicit(3).lifetime(0), Update::implicit(3).at_home().lifetime(15)] {
        let mut agent = two();
        agent.accept(&update);
        assert!(bindings(&agent).is_empty());
        assert_eq!(agent.machine.bindings().former(addr(HOME)).len(), 2);
        // RFC 6275 10.3.2: a late update has an old number.
        agent.refuse(&Update::explicit(2).bid(1, CARE_OF), 135);
        agent.wait(10.1);
        agent.accept(&Update::explicit(1).bid(1, CARE_OF));
    }
}

/// Each binding has its own lifetime. The home agent forgets the sequence number when the last binding ends.
#[test]
fn bindings_end_one_by_one() {
    let mut agent = two();
    agent.wait(30.0);
    agent.accept(&Update::explicit(3).bid(1, CARE_OF));
    agent.wait(30.1);
    assert_eq!(bindings(&agent), expected(&[(1, CARE_OF)]));
    let ended = |event: &&Event| matches!(event, Event::BindingRemoved { bid: Some(2), .. });
    assert_eq!(agent.events.iter().filter(ended).count(), 1);
    agent.refuse(&Update::explicit(3).bid(1, CARE_OF), 135);
    agent.wait(30.0);
    assert!(bindings(&agent).is_empty());
    agent.accept(&Update::explicit(1).bid(1, CARE_OF));
}

/// RFC 6275 10.3.1: the home agent runs one duplicate address detection for the home address, and then
/// answers each update that has arrived meanwhile.
#[test]
fn the_home_address_is_tested_once_for_all_bindings() {
    let mut agent = Agent::on_home_link(config());
    assert!(agent.send(&Update::explicit(1).overwriting().bid(1, CARE_OF)).is_empty());
    assert_eq!(agent.probes(), [addr(HOME)]);
    assert!(agent.send(&Update::explicit(2).from(OTHER_CARE_OF).bid(2, OTHER_CARE_OF)).is_empty());
    // A retransmission of the first update takes its place.
    assert!(agent.send(&Update::explicit(3).bid(1, CARE_OF)).is_empty());
    assert!(agent.probes().is_empty());
    assert!(bindings(&agent).is_empty());
    let answers = agent.wait(1.0);
    let said: Vec<_> = answers.iter().map(|a| (a.sequence(), a.status(), a.destination)).collect();
    assert_eq!(said, [(2, 0, addr(OTHER_CARE_OF)), (3, 0, addr(CARE_OF))]);
    assert_eq!(bindings(&agent), expected(&[(1, CARE_OF), (2, OTHER_CARE_OF)]));
    agent.refuse(&Update::explicit(3).known_bid(1), 135);
    // A further binding needs no test.
    agent.accept(&Update::explicit(4).bid(3, THIRD_CARE_OF));
    assert!(agent.probes().is_empty());
    // The home agent advertises only the home address, one series of at most three advertisements.
    let announced = agent.advertisements();
    assert!(announced.iter().all(|a| a.target == addr(HOME)) && announced.len() <= 3, "{announced:?}");
}

/// RFC 6275 10.3.1: another node has the address: every waiting update gets status 134, and nothing is bound.
#[test]
fn home_address_conflict_refuses_all_waiting_bindings() {
    let mut agent = Agent::on_home_link(config());
    agent.send(&Update::explicit(1).bid(1, CARE_OF));
    agent.send(&Update::explicit(2).bid(2, OTHER_CARE_OF));
    let answers = agent.claim(HOME);
    let said: Vec<_> = answers.iter().map(|a| (a.sequence(), a.status())).collect();
    assert_eq!(said, [(1, 134), (2, 134)]);
    agent.wait(5.0);
    assert!(bindings(&agent).is_empty());
    assert!(agent.machine.poll_timeout().is_none());
}

/// The number of waiting updates is bounded, however many sets of bindings the node asks for within the
/// second.
#[test]
fn number_of_updates_waiting_for_dad_is_bounded() {
    let mut agent = Agent::on_home_link(config());
    for sequence in 1..=200_u16 {
        let other = sequence % 15 + 2;
        let both =
            Update::explicit(sequence).bid(other, CARE_OF).bid((sequence / 15) % 15 + 2, OTHER_CARE_OF);
        assert!(agent.send(&both.known_bid(1)).is_empty(), "{sequence}");
    }
    let answers = agent.wait(1.0);
    assert!(answers.len() <= MAX_BINDINGS, "{}", answers.len());
    assert!(bindings(&agent).len() <= MAX_BINDINGS);
}

/// A de-registration can end a registration that still waits for duplicate address detection.
#[test]
fn binding_under_test_can_be_deregistered() {
    let mut agent = Agent::on_home_link(config());
    agent.send(&Update::explicit(1).bid(1, CARE_OF).bid(2, OTHER_CARE_OF));
    let answer = agent.accept(&Update::implicit(2).lifetime(0).known_bid(1));
    assert_eq!(said(&answer).bids, [(1, 0)]);
    agent.wait(1.0);
    assert_eq!(bindings(&agent), expected(&[(2, OTHER_CARE_OF)]));

    let mut agent = Agent::on_home_link(config());
    agent.send(&Update::explicit(1).bid(1, CARE_OF));
    agent.accept(&Update::implicit(2).lifetime(0));
    assert!(agent.wait(20.0).is_empty());
    assert!(bindings(&agent).is_empty());
}

/// The home agent defends the home address until the last binding has ended.
#[test]
fn the_home_address_is_defended_while_any_binding_lasts() {
    let mut agent = Agent::on_home_link(config());
    agent.send(&Update::explicit(1).bid(1, CARE_OF).bid(2, OTHER_CARE_OF));
    agent.wait(1.0);
    agent.accept(&Update::implicit(2).lifetime(0).known_bid(1));
    assert_eq!(agent.solicit(HOME, "2001:db8:1::77").len(), 1);
    agent.accept(&Update::implicit(3).lifetime(0).known_bid(2));
    assert!(agent.solicit(HOME, "2001:db8:1::77").is_empty());
}

fn restart(agent: &Agent, pause: f64, config: HomeAgentConfig, stored: Vec<StoredBinding>) -> Agent {
    let mut next = Agent::new(config);
    next.now = agent.now + std::time::Duration::from_secs_f64(pause);
    let (now, wall) = (next.now, next.wall());
    next.machine.restore(now, wall, stored);
    next.drain();
    next
}

/// A restart restores all bindings, flows and former care-of addresses. Restoring one state twice gives the
/// same bindings.
#[test]
fn several_bindings_survive_a_restart() {
    let mut agent = Agent::new(authenticated());
    agent.accept(&Update::explicit(1).overwriting().bid(1, CARE_OF).bid(2, OTHER_CARE_OF).signed());
    agent.accept(&Update::explicit(2).bid(2, THIRD_CARE_OF).flow(1, 10, 5000, &[1, 2]).signed());
    let stored = agent.machine.stored(agent.now, agent.wall());
    let mut next = restart(&agent, 1.0, authenticated(), stored.clone());
    assert_eq!(next.machine.stored(next.now, next.wall()), stored);
    assert_eq!(bindings(&next), bindings(&agent));
    assert_eq!(next.machine.flows(addr(HOME)), agent.machine.flows(addr(HOME)));
    assert!(next.machine.bindings().accepts(addr(HOME), addr(OTHER_CARE_OF).into()), "for a moment");
    next.wait(4.5);
    assert!(!next.machine.bindings().accepts(addr(HOME), addr(OTHER_CARE_OF).into()));
    next.refuse(&Update::explicit(2).known_bid(1).signed(), 135);
    next.wait(60.0);
    assert!(bindings(&next).is_empty());
    assert!(next.machine.flows(addr(HOME)).is_empty());
}

/// The home agent restores no more bindings than the limit, and no invalid ones, whatever the state file
/// holds.
#[test]
fn restored_bindings_are_checked_and_limited() {
    let mut agent = two();
    let mut stored = agent.machine.stored(agent.now, agent.wall());
    let one = stored[0].identified[0].clone();
    for bid in 10..200 {
        let mut more = one.clone();
        more.bid = Some(bid);
        more.care_of_address = Endpoint::Ipv6(format!("2001:db8:f1::{bid:x}").parse().expect("address"));
        stored[0].identified.push(more);
    }
    stored[0].identified[0].care_of_address = Endpoint::Ipv6(addr(AGENT));
    stored[0].identified[1].bid = None;
    let next = restart(&agent, 0.0, config(), stored);
    assert!(bindings(&next).len() <= MAX_BINDINGS);
    assert!(next.machine.bindings().iter().all(|b| b.bid.is_some() && b.care_of_address != addr(AGENT)));
    agent.accept(&Update::explicit(3).bid(1, CARE_OF));
}

/// Compares random orders of updates, ends, time and restarts with a model of RFC 5648.
#[test]
fn random_updates_of_several_bindings_follow_rfc_5648() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut agent = Agent::new(config());
        // Key: BID (`None` for the plain binding). Value: care-of address and end of life.
        let mut model: BTreeMap<Option<u16>, (Endpoint, f64)> = BTreeMap::new();
        let mut clock = 0.0;
        for sequence in 1..150_u16 {
            let step = rng.below(12) as f64;
            agent.wait(step);
            clock += step;
            model.retain(|_, (_, ends)| *ends > clock);
            if rng.chance(0.05) {
                let stored = agent.machine.stored(agent.now, agent.wall());
                agent = restart(&agent, 0.0, config(), stored);
            }
            let bid = rng.below(4) as u16 + 1;
            let care_of = format!("2001:db8:f{bid}::{:x}", rng.below(3) + 1);
            let end = Endpoint::Ipv6(addr(&care_of));
            let mut update = Update::explicit(sequence).from(&care_of);
            let lifetime = if rng.chance(0.25) { 0 } else { rng.below(6) as u16 + 1 };
            let ends = clock + f64::from(lifetime) * 4.0;
            let plain = rng.chance(0.1);
            let overwrite = rng.chance(0.15);
            if overwrite {
                update = update.overwriting();
            }
            update = update.lifetime(lifetime);
            let expected = match (plain, lifetime) {
                (true, 0) if model.is_empty() => 133,
                (true, 0) => {
                    model.clear();
                    0
                }
                (true, _) => {
                    model.clear();
                    model.insert(None, (end, ends));
                    0
                }
                (false, 0) => {
                    update = update.known_bid(bid);
                    if model.remove(&Some(bid)).is_some() { 0 } else { 133 }
                }
                (false, _) => {
                    update = update.bid(bid, &care_of);
                    if model.contains_key(&None) && !overwrite {
                        165
                    } else {
                        if overwrite {
                            model.clear();
                        }
                        model.insert(Some(bid), (end, ends));
                        0
                    }
                }
            };
            let answers = agent.send(&update);
            match answers.as_slice() {
                [answer] => assert_eq!(answer.status(), expected, "seed {seed}, {update:?}"),
                [] => assert!(expected >= 128 && agent.dropped == Some(MobilityDrop::RateLimited)),
                more => panic!("{more:?}"),
            }
            let mut found: Vec<_> = bindings(&agent);
            found.sort();
            let wanted: Vec<_> = model.iter().map(|(bid, (end, _))| (*bid, *end)).collect();
            assert_eq!(found, wanted, "seed {seed} after {update:?}");
            let former = agent.machine.bindings().former(addr(HOME));
            assert!(former.iter().all(|path| !found.iter().any(|(_, end)| *end == path.care_of_address)));
        }
        agent.wait(60.0);
        assert!(bindings(&agent).is_empty());
        assert!(agent.machine.poll_timeout().is_none(), "seed {seed}: nothing is left of the timers");
    }
}
