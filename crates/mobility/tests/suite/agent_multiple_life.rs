//! Home agent: several care-of addresses over time: their ends, the home link, a restart (RFC 5648 5.4 and
//! 6.2).

use std::collections::BTreeMap;

use carnet_base::{Endpoint, Rng};
use carnet_mobility::home_agent::{HomeAgentConfig, MAX_BINDINGS, StoredBinding};
use carnet_mobility::{Event, MobilityDrop};

use crate::agent::{TestAgent, authenticated_config, config};
use crate::agent_multiple::agent_with_two_bindings;
use crate::several_care_of_addresses::*;
use crate::test_messages::*;

/// Conformance item 54; RFC 5648 5.4, 6.2: an update de-registers one binding, and the others stay; status
/// 133 for an unknown BID.
#[test]
fn one_of_several_bindings_is_deregistered() {
    let mut agent = agent_with_two_bindings();
    let answer = agent.expect_acceptance(&TestUpdate::implicit_update(3).lifetime(0).with_known_bid(1));
    assert_eq!((answer.lifetime(), acknowledgement_options(&answer).bid_statuses), (0, vec![(1, 0)]));
    assert_eq!(bindings_of_home(&agent), expected_bindings(&[(2, OTHER_CARE_OF_ADDRESS)]));
    assert!(
        agent.home_agent.bindings().accepts_packets_from(addr(HOME_ADDRESS), addr(CARE_OF_ADDRESS).into()),
        "for a moment"
    );
    agent.expect_refusal(&TestUpdate::implicit_update(4).lifetime(0).with_known_bid(1), 133);
    agent.expect_refusal(&TestUpdate::implicit_update(4).lifetime(0).with_bid(9, CARE_OF_ADDRESS), 133);
    let answer = agent.send_and_get_acknowledgement(
        &TestUpdate::implicit_update(4).lifetime(0).with_known_bid(9).with_known_bid(2).with_known_bid(2),
    );
    assert_eq!(
        (answer.status(), acknowledgement_options(&answer).bid_statuses),
        (4, vec![(9, 133), (2, 0), (2, 133)])
    );
    assert!(bindings_of_home(&agent).is_empty());
}

/// RFC 5648 6.2: "If the 'O' flag is set in the de-registering Binding Update, it is ignored."
#[test]
fn deregistration_ignores_o_flag() {
    let mut agent = agent_with_two_bindings();
    agent.expect_acceptance(
        &TestUpdate::implicit_update(3).with_overwrite_flag().lifetime(0).with_known_bid(1),
    );
    assert_eq!(bindings_of_home(&agent), expected_bindings(&[(2, OTHER_CARE_OF_ADDRESS)]));
}

/// Conformance item 48; RFC 5648 5.4, 6.2: a de-registration without BIDs ends all bindings, from any source.
#[test]
fn deregistration_without_bid_ends_all_bindings() {
    for update in [
        TestUpdate::implicit_update(3).lifetime(0),
        TestUpdate::implicit_update(3).sent_on_home_link().lifetime(15),
    ] {
        let mut agent = agent_with_two_bindings();
        agent.expect_acceptance(&update);
        assert!(bindings_of_home(&agent).is_empty());
        assert_eq!(agent.home_agent.bindings().former_paths(addr(HOME_ADDRESS)).len(), 2);
        // RFC 6275 10.3.2: a late update has an old number.
        agent.expect_refusal(&TestUpdate::explicit_update(2).with_bid(1, CARE_OF_ADDRESS), 135);
        agent.advance_time(10.1);
        agent.expect_acceptance(&TestUpdate::explicit_update(1).with_bid(1, CARE_OF_ADDRESS));
    }
}

/// Each binding has its own lifetime. The home agent forgets the sequence number when the last binding ends.
#[test]
fn each_binding_of_a_node_expires_at_its_own_time() {
    let mut agent = agent_with_two_bindings();
    agent.advance_time(30.0);
    agent.expect_acceptance(&TestUpdate::explicit_update(3).with_bid(1, CARE_OF_ADDRESS));
    agent.advance_time(30.1);
    assert_eq!(bindings_of_home(&agent), expected_bindings(&[(1, CARE_OF_ADDRESS)]));
    let ended = |event: &&Event| matches!(event, Event::BindingRemoved { bid: Some(2), .. });
    assert_eq!(agent.events.iter().filter(ended).count(), 1);
    agent.expect_refusal(&TestUpdate::explicit_update(3).with_bid(1, CARE_OF_ADDRESS), 135);
    agent.advance_time(30.0);
    assert!(bindings_of_home(&agent).is_empty());
    agent.expect_acceptance(&TestUpdate::explicit_update(1).with_bid(1, CARE_OF_ADDRESS));
}

/// RFC 6275 10.3.1: the home agent runs one duplicate address detection for the home address, and then
/// answers each update that has arrived meanwhile.
#[test]
fn duplicate_address_detection_runs_once_for_all_bindings_of_a_node() {
    let mut agent = TestAgent::on_home_link(config());
    assert!(
        agent
            .send_update(&TestUpdate::explicit_update(1).with_overwrite_flag().with_bid(1, CARE_OF_ADDRESS))
            .is_empty()
    );
    assert_eq!(agent.take_dad_targets(), [addr(HOME_ADDRESS)]);
    assert!(
        agent
            .send_update(
                &TestUpdate::explicit_update(2)
                    .from(OTHER_CARE_OF_ADDRESS)
                    .with_bid(2, OTHER_CARE_OF_ADDRESS)
            )
            .is_empty()
    );
    // A retransmission of the first update replaces it among the waiting updates.
    assert!(agent.send_update(&TestUpdate::explicit_update(3).with_bid(1, CARE_OF_ADDRESS)).is_empty());
    assert!(agent.take_dad_targets().is_empty());
    assert!(bindings_of_home(&agent).is_empty());
    let answers = agent.advance_time(1.0);
    let said: Vec<_> = answers.iter().map(|a| (a.sequence(), a.status(), a.destination)).collect();
    assert_eq!(said, [(2, 0, addr(OTHER_CARE_OF_ADDRESS)), (3, 0, addr(CARE_OF_ADDRESS))]);
    assert_eq!(
        bindings_of_home(&agent),
        expected_bindings(&[(1, CARE_OF_ADDRESS), (2, OTHER_CARE_OF_ADDRESS)])
    );
    agent.expect_refusal(&TestUpdate::explicit_update(3).with_known_bid(1), 135);
    // A further binding needs no test.
    agent.expect_acceptance(&TestUpdate::explicit_update(4).with_bid(3, THIRD_CARE_OF_ADDRESS));
    assert!(agent.take_dad_targets().is_empty());
    // The home agent advertises only the home address, one series of at most three advertisements.
    let announced = agent.take_advertisements();
    assert!(
        announced.iter().all(|a| a.target == addr(HOME_ADDRESS)) && announced.len() <= 3,
        "{announced:?}"
    );
}

/// RFC 6275 10.3.1: if another node has the home address, every waiting update gets status 134, and the home
/// agent creates no binding.
#[test]
fn home_address_conflict_refuses_all_waiting_bindings() {
    let mut agent = TestAgent::on_home_link(config());
    agent.send_update(&TestUpdate::explicit_update(1).with_bid(1, CARE_OF_ADDRESS));
    agent.send_update(&TestUpdate::explicit_update(2).with_bid(2, OTHER_CARE_OF_ADDRESS));
    let answers = agent.send_foreign_advertisement(HOME_ADDRESS);
    let said: Vec<_> = answers.iter().map(|a| (a.sequence(), a.status())).collect();
    assert_eq!(said, [(1, 134), (2, 134)]);
    agent.advance_time(5.0);
    assert!(bindings_of_home(&agent).is_empty());
    assert!(agent.home_agent.poll_timeout().is_none());
}

/// The number of waiting updates is bounded, however many sets of bindings the node asks for within the
/// second.
#[test]
fn number_of_updates_waiting_for_dad_is_bounded() {
    let mut agent = TestAgent::on_home_link(config());
    for sequence in 1..=200_u16 {
        let other = sequence % 15 + 2;
        let both = TestUpdate::explicit_update(sequence)
            .with_bid(other, CARE_OF_ADDRESS)
            .with_bid((sequence / 15) % 15 + 2, OTHER_CARE_OF_ADDRESS);
        assert!(agent.send_update(&both.with_known_bid(1)).is_empty(), "{sequence}");
    }
    let answers = agent.advance_time(1.0);
    assert!(answers.len() <= MAX_BINDINGS, "{}", answers.len());
    assert!(bindings_of_home(&agent).len() <= MAX_BINDINGS);
}

/// A de-registration can end a registration that still waits for duplicate address detection.
#[test]
fn deregistration_of_a_binding_during_dad_is_accepted() {
    let mut agent = TestAgent::on_home_link(config());
    agent.send_update(
        &TestUpdate::explicit_update(1).with_bid(1, CARE_OF_ADDRESS).with_bid(2, OTHER_CARE_OF_ADDRESS),
    );
    let answer = agent.expect_acceptance(&TestUpdate::implicit_update(2).lifetime(0).with_known_bid(1));
    assert_eq!(acknowledgement_options(&answer).bid_statuses, [(1, 0)]);
    agent.advance_time(1.0);
    assert_eq!(bindings_of_home(&agent), expected_bindings(&[(2, OTHER_CARE_OF_ADDRESS)]));

    let mut agent = TestAgent::on_home_link(config());
    agent.send_update(&TestUpdate::explicit_update(1).with_bid(1, CARE_OF_ADDRESS));
    agent.expect_acceptance(&TestUpdate::implicit_update(2).lifetime(0));
    assert!(agent.advance_time(20.0).is_empty());
    assert!(bindings_of_home(&agent).is_empty());
}

/// A de-registration also ends a registration that still waits for duplicate address detection.
#[test]
fn home_agent_defends_home_address_while_any_binding_lasts() {
    let mut agent = TestAgent::on_home_link(config());
    agent.send_update(
        &TestUpdate::explicit_update(1).with_bid(1, CARE_OF_ADDRESS).with_bid(2, OTHER_CARE_OF_ADDRESS),
    );
    agent.advance_time(1.0);
    agent.expect_acceptance(&TestUpdate::implicit_update(2).lifetime(0).with_known_bid(1));
    assert_eq!(agent.send_solicitation(HOME_ADDRESS, "2001:db8:1::77").len(), 1);
    agent.expect_acceptance(&TestUpdate::implicit_update(3).lifetime(0).with_known_bid(2));
    assert!(agent.send_solicitation(HOME_ADDRESS, "2001:db8:1::77").is_empty());
}

fn restarted_agent(
    agent: &TestAgent,
    pause: f64,
    config: HomeAgentConfig,
    stored: Vec<StoredBinding>,
) -> TestAgent {
    let mut next = TestAgent::new(config);
    next.now = agent.now + std::time::Duration::from_secs_f64(pause);
    let (now, wall) = (next.now, next.wall_time());
    next.home_agent.restore(now, wall, stored);
    next.take_answers();
    next
}

/// A restart restores all bindings, flows and former care-of addresses. Restoring one state twice gives the
/// same bindings.
#[test]
fn several_bindings_survive_a_restart() {
    let mut agent = TestAgent::new(authenticated_config());
    agent.expect_acceptance(
        &TestUpdate::explicit_update(1)
            .with_overwrite_flag()
            .with_bid(1, CARE_OF_ADDRESS)
            .with_bid(2, OTHER_CARE_OF_ADDRESS)
            .with_signature(),
    );
    agent.expect_acceptance(
        &TestUpdate::explicit_update(2)
            .with_bid(2, THIRD_CARE_OF_ADDRESS)
            .with_flow(1, 10, 5000, &[1, 2])
            .with_signature(),
    );
    let stored = agent.home_agent.stored_bindings(agent.now, agent.wall_time());
    let mut next = restarted_agent(&agent, 1.0, authenticated_config(), stored.clone());
    assert_eq!(next.home_agent.stored_bindings(next.now, next.wall_time()), stored);
    assert_eq!(bindings_of_home(&next), bindings_of_home(&agent));
    assert_eq!(next.home_agent.flows(addr(HOME_ADDRESS)), agent.home_agent.flows(addr(HOME_ADDRESS)));
    assert!(
        next.home_agent
            .bindings()
            .accepts_packets_from(addr(HOME_ADDRESS), addr(OTHER_CARE_OF_ADDRESS).into()),
        "for a moment"
    );
    next.advance_time(4.5);
    assert!(
        !next
            .home_agent
            .bindings()
            .accepts_packets_from(addr(HOME_ADDRESS), addr(OTHER_CARE_OF_ADDRESS).into())
    );
    next.expect_refusal(&TestUpdate::explicit_update(2).with_known_bid(1).with_signature(), 135);
    next.advance_time(60.0);
    assert!(bindings_of_home(&next).is_empty());
    assert!(next.home_agent.flows(addr(HOME_ADDRESS)).is_empty());
}

/// The home agent restores no more bindings than the limit, and no invalid ones, whatever the state file
/// holds.
#[test]
fn restored_bindings_are_checked_and_limited() {
    let mut agent = agent_with_two_bindings();
    let mut stored = agent.home_agent.stored_bindings(agent.now, agent.wall_time());
    let one = stored[0].identified[0].clone();
    for bid in 10..200 {
        let mut more = one.clone();
        more.bid = Some(bid);
        more.care_of_address = Endpoint::Ipv6(format!("2001:db8:f1::{bid:x}").parse().expect("address"));
        stored[0].identified.push(more);
    }
    stored[0].identified[0].care_of_address = Endpoint::Ipv6(addr(HOME_AGENT_ADDRESS));
    stored[0].identified[1].bid = None;
    let next = restarted_agent(&agent, 0.0, config(), stored);
    assert!(bindings_of_home(&next).len() <= MAX_BINDINGS);
    assert!(
        next.home_agent
            .bindings()
            .iter()
            .all(|b| b.bid.is_some() && b.care_of_address != addr(HOME_AGENT_ADDRESS))
    );
    agent.expect_acceptance(&TestUpdate::explicit_update(3).with_bid(1, CARE_OF_ADDRESS));
}

/// Compares random orders of updates, ends, time and restarts with a model of RFC 5648.
#[test]
fn random_updates_of_several_bindings_follow_rfc_5648() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut agent = TestAgent::new(config());
        // Key: BID (`None` for the plain binding). Value: care-of address and end of life.
        let mut model: BTreeMap<Option<u16>, (Endpoint, f64)> = BTreeMap::new();
        let mut clock = 0.0;
        for sequence in 1..150_u16 {
            let step = rng.number_below(12) as f64;
            agent.advance_time(step);
            clock += step;
            model.retain(|_, (_, ends)| *ends > clock);
            if rng.is_true_with_probability(0.05) {
                let stored = agent.home_agent.stored_bindings(agent.now, agent.wall_time());
                agent = restarted_agent(&agent, 0.0, config(), stored);
            }
            let bid = rng.number_below(4) as u16 + 1;
            let care_of = format!("2001:db8:f{bid}::{:x}", rng.number_below(3) + 1);
            let end = Endpoint::Ipv6(addr(&care_of));
            let mut update = TestUpdate::explicit_update(sequence).from(&care_of);
            let lifetime =
                if rng.is_true_with_probability(0.25) { 0 } else { rng.number_below(6) as u16 + 1 };
            let ends = clock + f64::from(lifetime) * 4.0;
            let plain = rng.is_true_with_probability(0.1);
            let overwrite = rng.is_true_with_probability(0.15);
            if overwrite {
                update = update.with_overwrite_flag();
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
                    update = update.with_known_bid(bid);
                    if model.remove(&Some(bid)).is_some() { 0 } else { 133 }
                }
                (false, _) => {
                    update = update.with_bid(bid, &care_of);
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
            let answers = agent.send_update(&update);
            match answers.as_slice() {
                [answer] => assert_eq!(answer.status(), expected, "seed {seed}, {update:?}"),
                [] => assert!(expected >= 128 && agent.last_drop_reason == Some(MobilityDrop::RateLimited)),
                more => panic!("{more:?}"),
            }
            let mut found: Vec<_> = bindings_of_home(&agent);
            found.sort();
            let wanted: Vec<_> = model.iter().map(|(bid, (end, _))| (*bid, *end)).collect();
            assert_eq!(found, wanted, "seed {seed} after {update:?}");
            let former = agent.home_agent.bindings().former_paths(addr(HOME_ADDRESS));
            assert!(former.iter().all(|path| !found.iter().any(|(_, end)| *end == path.care_of_address)));
        }
        agent.advance_time(60.0);
        assert!(bindings_of_home(&agent).is_empty());
        assert!(agent.home_agent.poll_timeout().is_none(), "seed {seed}: nothing is left of the timers");
    }
}
