//! Home agent: the test of a new care-of address. RFC 6275 15.3 leaves it to the home agent which addresses
//! it trusts.

use std::time::Duration;

use carnet_base::Rng;
use carnet_mobility::home_agent::{HomeAgentConfig, StoredBinding};
use carnet_wire::icmpv6;
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wire::mobility::MobilityOption;

use crate::agent::{TestAgent, authenticated_config, config, parse_endpoint};
use crate::test_messages::*;

fn config_with_care_of_test() -> HomeAgentConfig {
    let mut config = config();
    config.nodes[0].care_of_test = true;
    config
}

fn from(care_of_address: &str, sequence: u16) -> TestUpdate {
    TestUpdate { source: addr(care_of_address), ..TestUpdate::explicit_update(sequence) }
}

/// Takes the Echo Requests that the home agent sent, each with its destination.
fn take_echo_requests(agent: &mut TestAgent) -> Vec<(String, Vec<u8>)> {
    let probes = std::mem::take(&mut agent.tunnelled_packets);
    probes.into_iter().map(|(_, remote, packet)| (remote.to_string(), packet)).collect()
}

fn is_care_of_address_tested(agent: &TestAgent) -> bool {
    agent.home_binding().expect("a binding").is_care_of_tested
}

/// Answers the last Echo Request as the node.
fn answer_last_echo_request(agent: &mut TestAgent) -> bool {
    let (_, probe) = take_echo_requests(agent).pop().expect("a probe");
    let is_answer =
        agent.home_agent.handle_care_of_test_answer(&icmpv6::answer_echo_request(&probe).expect("a reply"));
    assert!(agent.take_answers().is_empty());
    is_answer
}

fn restarted_agent(agent: &TestAgent, stored: Vec<StoredBinding>, config: HomeAgentConfig) -> TestAgent {
    let mut next = TestAgent::new(config);
    next.now = agent.now + Duration::from_secs(2);
    let wall = next.wall_time();
    next.home_agent.restore(next.now, wall, stored);
    assert!(next.take_answers().is_empty());
    next
}

#[test]
fn home_agent_tests_new_care_of_address_by_echo_no_longer_than_the_update() {
    let mut agent = TestAgent::new(config_with_care_of_test());
    let update = from(CARE_OF_ADDRESS, 1);
    agent.expect_acceptance(&update);
    assert!(!is_care_of_address_tested(&agent));
    let sent = take_echo_requests(&mut agent);
    let [(to, probe)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(to, CARE_OF_ADDRESS);
    let header = Header::parse(probe).expect("an inner packet");
    assert_eq!((header.source, header.destination), (addr(HOME_AGENT_ADDRESS), addr(HOME_ADDRESS)));
    assert_eq!((header.next_header, probe[HEADER_LEN]), (protocol::ICMPV6, 128));
    assert_eq!(probe.len(), 56);
    // The shortest update that can be signed: it has no prefix and no option but the authenticator.
    let shortest = TestUpdate::implicit_update(1).with_signature().to_packet().len();
    assert!(HEADER_LEN + probe.len() <= shortest, "{} > {shortest}", HEADER_LEN + probe.len());
    let reply = icmpv6::answer_echo_request(probe).expect("a reply");
    // A third party that does not see the request does not know the token.
    for octet in HEADER_LEN + 8..HEADER_LEN + 16 {
        let mut guess = reply.clone();
        guess[octet] ^= 1;
        let mut message = guess.split_off(HEADER_LEN);
        icmpv6::set_checksum(&mut message, addr(HOME_ADDRESS), addr(HOME_AGENT_ADDRESS));
        guess.extend(message);
        assert!(!agent.home_agent.handle_care_of_test_answer(&guess));
    }
    let (forwarding, persisted) = (agent.forwarding_changes, agent.persisted_count);
    assert!(agent.home_agent.handle_care_of_test_answer(&reply));
    agent.take_answers();
    assert!(is_care_of_address_tested(&agent));
    assert_eq!((agent.forwarding_changes, agent.persisted_count), (forwarding + 1, persisted + 1));
    assert_eq!(agent.home_agent.care_of_test_counters().passed_tests, 1);
    // The home agent sends no further Echo Request, and a renewal needs no test.
    agent.advance_time(30.0);
    agent.expect_acceptance(&from(CARE_OF_ADDRESS, 2));
    assert!(is_care_of_address_tested(&agent) && take_echo_requests(&mut agent).is_empty());
    assert!(!agent.home_agent.handle_care_of_test_answer(&reply), "an answer counts once");
}

#[test]
fn silent_care_of_address_gets_at_most_16_probes_for_each_update() {
    let mut agent = TestAgent::new(config_with_care_of_test());
    agent.expect_acceptance(&from(CARE_OF_ADDRESS, 1).lifetime(150));
    assert_eq!(agent.warnings().len(), 0);
    agent.advance_time(9.0);
    let warnings = agent.warnings();
    assert!(matches!(warnings[..], [one] if one.contains("does not answer")), "{warnings:?}");
    agent.advance_time(500.0);
    let sent = take_echo_requests(&mut agent);
    assert_eq!(sent.len(), 16);
    assert!(sent.iter().all(|(to, probe)| to == CARE_OF_ADDRESS && probe.len() == 56));
    assert!(!is_care_of_address_tested(&agent));
    // Even a node that moves all the time causes no more Echo Requests than its limit.
    for second in 0..100_u16 {
        for number in 0..4 {
            agent.send_update(&from(CARE_OF_ADDRESS, 2 + 4 * second + number));
        }
        agent.advance_time(1.0);
    }
    let sent = take_echo_requests(&mut agent).len();
    assert!((200..=48 + 2 * 101).contains(&sent), "{sent} probes in 100 s");
    // The test ends with its binding.
    agent.expect_acceptance(&from(CARE_OF_ADDRESS, 500).lifetime(0));
    agent.advance_time(3600.0);
    assert!(take_echo_requests(&mut agent).len() <= 1 && agent.home_agent.poll_timeout().is_none());
}

#[test]
fn home_agent_repeats_lost_probe_and_accepts_late_answer() {
    let mut agent = TestAgent::new(config_with_care_of_test());
    agent.expect_acceptance(&from(CARE_OF_ADDRESS, 1));
    let (_, first) = take_echo_requests(&mut agent).remove(0);
    agent.advance_time(1.0);
    assert_eq!(take_echo_requests(&mut agent).len(), 2, "after 250 and 750 ms");
    assert!(
        agent.home_agent.handle_care_of_test_answer(&icmpv6::answer_echo_request(&first).expect("a reply"))
    );
    agent.take_answers();
    assert!(is_care_of_address_tested(&agent));
    agent.advance_time(60.0);
    assert!(take_echo_requests(&mut agent).is_empty());
}

#[test]
fn only_a_recently_tested_care_of_address_needs_no_new_test() {
    let mut agent = TestAgent::new(config_with_care_of_test());
    agent.expect_acceptance(&from(CARE_OF_ADDRESS, 1));
    assert!(answer_last_echo_request(&mut agent));
    agent.expect_acceptance(&from(OTHER_CARE_OF_ADDRESS, 2));
    assert!(!is_care_of_address_tested(&agent));
    take_echo_requests(&mut agent);
    agent.expect_acceptance(&from(CARE_OF_ADDRESS, 3));
    assert!(is_care_of_address_tested(&agent) && take_echo_requests(&mut agent).is_empty());
    agent.expect_acceptance(&from(OTHER_CARE_OF_ADDRESS, 4));
    assert!(!is_care_of_address_tested(&agent));
    assert!(answer_last_echo_request(&mut agent));
    // After sixteen further addresses of the node the home agent has forgotten this tested address.
    for number in 0..17 {
        agent.advance_time(1.0);
        agent.expect_acceptance(&from(&format!("2001:db8:f3::{number:x}"), 5 + number));
        assert!(answer_last_echo_request(&mut agent), "{number}");
    }
    agent.expect_acceptance(&from("2001:db8:f3::1", 30));
    assert!(is_care_of_address_tested(&agent));
    agent.expect_acceptance(&from(CARE_OF_ADDRESS, 31));
    assert!(!is_care_of_address_tested(&agent), "forgotten");
    assert!(answer_last_echo_request(&mut agent));
    agent.expect_acceptance(&from("2001:db8:f3::1", 32));
    // A test that the address passed more than an hour ago no longer counts.
    for sequence in 33..45 {
        agent.advance_time(310.0);
        agent.expect_acceptance(&from("2001:db8:f3::1", sequence).lifetime(150));
    }
    agent.expect_acceptance(&from(CARE_OF_ADDRESS, 45));
    assert!(!is_care_of_address_tested(&agent));
}

#[test]
fn former_care_of_address_gets_packets_only_if_it_was_tested() {
    let mut agent = TestAgent::new(config_with_care_of_test());
    let former = |agent: &TestAgent| -> Vec<(String, bool)> {
        let former = agent.home_agent.bindings().former_paths(addr(HOME_ADDRESS)).iter();
        former.map(|path| (path.care_of_address.to_string(), path.is_care_of_tested)).collect()
    };
    agent.expect_acceptance(&from(CARE_OF_ADDRESS, 1));
    assert!(answer_last_echo_request(&mut agent));
    agent.expect_acceptance(&from(OTHER_CARE_OF_ADDRESS, 2));
    agent.expect_acceptance(&from("2001:db8:f3::1", 3));
    assert_eq!(former(&agent), [(CARE_OF_ADDRESS.into(), true), (OTHER_CARE_OF_ADDRESS.into(), false)]);
}

#[test]
fn care_of_test_results_survive_a_restart_and_open_tests_continue() {
    let mut agent = TestAgent::new(config_with_care_of_test());
    agent.expect_acceptance(&from(CARE_OF_ADDRESS, 1));
    let stored = |agent: &TestAgent| agent.home_agent.stored_bindings(agent.now, agent.wall_time());
    let untested = stored(&agent);
    let mut next = restarted_agent(&agent, untested.clone(), config_with_care_of_test());
    assert!(!is_care_of_address_tested(&next));
    next.advance_time(0.0);
    assert!(answer_last_echo_request(&mut next) && is_care_of_address_tested(&next));
    // The home agent stores tested bindings in the format of earlier versions.
    let tested = stored(&next);
    let text = serde_json::to_string(&tested).expect("a state");
    assert!(!text.contains("untested"), "{text}");
    assert!(serde_json::to_string(&untested).expect("a state").contains("\"untested\":true"));
    let mut next =
        restarted_agent(&next, serde_json::from_str(&text).expect("a state"), config_with_care_of_test());
    next.advance_time(1.0);
    assert!(is_care_of_address_tested(&next) && take_echo_requests(&mut next).is_empty());
    // With the test switched off in the config, the home agent tests nothing.
    let mut next = restarted_agent(&agent, untested, config());
    next.advance_time(1.0);
    assert!(is_care_of_address_tested(&next) && take_echo_requests(&mut next).is_empty());
}

#[test]
fn home_agent_without_care_of_test_accepts_every_authentic_address() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&from(CARE_OF_ADDRESS, 1));
    agent.expect_acceptance(&from(OTHER_CARE_OF_ADDRESS, 2));
    assert!(is_care_of_address_tested(&agent) && take_echo_requests(&mut agent).is_empty());
    assert!(
        agent
            .home_agent
            .bindings()
            .former_paths(addr(HOME_ADDRESS))
            .iter()
            .all(|path| path.is_care_of_tested)
    );
}

#[test]
fn each_binding_identifier_and_each_nat_port_has_its_own_care_of_test() {
    let mut agent = TestAgent::new(config_with_care_of_test());
    agent.expect_acceptance(
        &TestUpdate::explicit_update(1)
            .with_overwrite_flag()
            .with_bid(1, CARE_OF_ADDRESS)
            .with_bid(2, OTHER_CARE_OF_ADDRESS),
    );
    let sent = take_echo_requests(&mut agent);
    let to: Vec<&str> = sent.iter().map(|(to, _)| to.as_str()).collect();
    assert_eq!(to, [CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS]);
    assert_ne!(sent[0].1[HEADER_LEN + 8..], sent[1].1[HEADER_LEN + 8..], "tokens differ");
    // The answer may come from either care-of address; its token says which address passes the test.
    assert!(
        agent
            .home_agent
            .handle_care_of_test_answer(&icmpv6::answer_echo_request(&sent[1].1).expect("a reply"))
    );
    agent.take_answers();
    let tested: Vec<_> = agent
        .home_agent
        .bindings()
        .bindings_of(addr(HOME_ADDRESS))
        .map(|it| (it.bid, it.is_care_of_tested))
        .collect();
    assert_eq!(tested, [(Some(1), false), (Some(2), true)]);

    let mut config = config_with_care_of_test();
    config.ipv4_address = Some("198.51.100.1".parse().expect("an address"));
    let mut agent = TestAgent::new(config);
    let care_of_address = MobilityOption::Ipv4CareOfAddress("10.0.0.7".parse().expect("an address"));
    let update =
        |sequence| TestUpdate::explicit_update(sequence).sent_on_ipv4_network().with_option(care_of_address);
    let local = "udp:198.51.100.1:4191";
    for (sequence, remote) in [(1, "udp:192.0.2.7:40000"), (2, "udp:192.0.2.7:40001")] {
        agent.receive_inside_tunnel(local, remote, &update(sequence).to_packet());
        assert!(!is_care_of_address_tested(&agent), "{remote}");
        assert_eq!(
            agent.tunnelled_packets.last().map(|(from, to, _)| (*from, *to)),
            Some((parse_endpoint(local), parse_endpoint(remote)))
        );
        assert!(answer_last_echo_request(&mut agent) && is_care_of_address_tested(&agent));
    }
}

#[test]
fn care_of_test_tokens_do_not_repeat_after_a_reload() {
    let mut agent = TestAgent::new(config_with_care_of_test());
    agent.home_agent =
        carnet_mobility::HomeAgent::new(config_with_care_of_test()).with_token_rng(Rng::new(9));
    let mut tokens = std::collections::BTreeSet::new();
    for sequence in 1..5 {
        agent.expect_acceptance(&from(&format!("2001:db8:f4::{sequence}"), sequence));
        for (_, probe) in take_echo_requests(&mut agent) {
            assert!(tokens.insert(probe[HEADER_LEN + 8..].to_vec()));
        }
        let mut next =
            carnet_mobility::HomeAgent::new(config_with_care_of_test()).with_token_rng(Rng::new(9));
        next.restore(
            agent.now,
            agent.wall_time(),
            agent.home_agent.stored_bindings(agent.now, agent.wall_time()),
        );
        let old = std::mem::replace(&mut agent.home_agent, next);
        agent.home_agent.adopt_state(agent.now, old);
        agent.take_answers();
        agent.advance_time(0.0);
        for (_, probe) in take_echo_requests(&mut agent) {
            assert!(tokens.insert(probe[HEADER_LEN + 8..].to_vec()));
        }
    }
    assert_eq!(tokens.len(), 8);
}

#[test]
fn signed_update_with_address_of_third_party_stays_untested() {
    let mut config = authenticated_config();
    config.nodes[0].care_of_test = true;
    let mut agent = TestAgent::new(config);
    agent.expect_acceptance(&from(CARE_OF_ADDRESS, 1).with_signature());
    assert!(answer_last_echo_request(&mut agent));
    agent.expect_acceptance(&from("2001:db8:bad::1", 2).with_signature());
    assert!(!is_care_of_address_tested(&agent));
}

#[test]
fn update_with_16_bindings_keeps_its_probes_within_the_limit_of_its_node() {
    let mut agent = TestAgent::new(config_with_care_of_test());
    let mut update = TestUpdate::explicit_update(1).with_overwrite_flag().lifetime(150);
    for bid in 1..=16 {
        update = update.with_bid(bid, &format!("2001:db8:bad::{bid:x}"));
    }
    agent.expect_acceptance(&update);
    assert_eq!(take_echo_requests(&mut agent).len(), 16);
    let mut to = std::collections::BTreeMap::new();
    for second in 1..=500 {
        agent.advance_time(1.0);
        for (place, _) in take_echo_requests(&mut agent) {
            *to.entry(place).or_insert(1) += 1;
        }
        let sent: u32 = to.values().sum();
        assert!(sent <= 48 + 2 * (second + 1), "{sent} probes in {second} s");
    }
    assert!(to.len() == 16 && to.values().all(|count| *count == 16), "{to:?}");
}

#[test]
fn probe_answer_of_a_former_address_proves_no_other_address() {
    let mut agent = TestAgent::new(config_with_care_of_test());
    let reply = |agent: &mut TestAgent| {
        let (_, probe) = take_echo_requests(agent).pop().expect("a probe");
        icmpv6::answer_echo_request(&probe).expect("a reply")
    };
    agent.expect_acceptance(&from(CARE_OF_ADDRESS, 1));
    let first = reply(&mut agent);
    agent.expect_acceptance(&from(OTHER_CARE_OF_ADDRESS, 2));
    let second = reply(&mut agent);
    agent.expect_acceptance(&from(CARE_OF_ADDRESS, 3));
    let third = reply(&mut agent);
    for late in [&first, &second] {
        assert!(!agent.home_agent.handle_care_of_test_answer(late));
        assert!(agent.take_answers().is_empty() && !is_care_of_address_tested(&agent));
    }
    assert!(agent.home_agent.handle_care_of_test_answer(&third));
    assert!(agent.take_answers().is_empty() && is_care_of_address_tested(&agent));
}
