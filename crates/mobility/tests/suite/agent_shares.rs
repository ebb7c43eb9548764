//! Home agent: rate limits for unauthenticated sources and for nodes with authentic messages.

use std::collections::BTreeMap;

use carnet_mobility::{Authentication, MobilityDrop, SecurityAssociation};
use carnet_wire::mobility::revocation::revocation_status;
use carnet_wire::mobility::{MobilityHeaderBuilder, RevocationFlags, RevocationKind};

use crate::agent::{TestAgent, authenticated_config, authorized_node, config};
use crate::test_messages::*;

const HONEST_NODES: u32 = 1000;

fn home_address_of(number: u32) -> String {
    format!("2001:db8:1::a:{number:x}")
}

fn care_of_address_of(number: u32) -> String {
    format!("2001:db8:{:x}::10", 0x2000 + number)
}

/// Creates a home agent for honest nodes and a greedy one, which is the first node.
fn agent_with_greedy_node() -> TestAgent {
    let mut config = config();
    config.nodes = (0..=HONEST_NODES).map(|number| authorized_node(&home_address_of(number), &[])).collect();
    for node in &mut config.nodes {
        node.authentication = Authentication::SharedKey(test_association());
    }
    TestAgent::new(config)
}

/// An attacker has taken over a node and sends as many authentic Binding Updates as possible, each from
/// another care-of address.
#[test]
fn node_with_many_updates_does_not_keep_other_nodes_from_registering() {
    let mut agent = agent_with_greedy_node();
    let mut sequences: BTreeMap<u32, u16> = BTreeMap::new();
    let (mut greedy, mut last) = (0, String::new());
    for number in 0..4 * HONEST_NODES {
        for round in 0..5 {
            let sequence = sequences.entry(0).and_modify(|it| *it += 1).or_insert(1);
            let from = care_of_address_of(number % 64 + round);
            agent.send_update(
                &TestUpdate::node_update(*sequence)
                    .for_home_address(&home_address_of(0))
                    .from(&from)
                    .with_signature(),
            );
            match agent.last_drop_reason {
                None => (greedy, last) = (greedy + 1, from),
                Some(reason) => assert_eq!(reason, MobilityDrop::Share),
            }
        }
        // Within four seconds each honest node registers and renews three times.
        let honest = 1 + number % HONEST_NODES;
        let sequence = sequences.entry(honest).and_modify(|it| *it += 1).or_insert(1);
        agent.expect_acceptance(
            &TestUpdate::node_update(*sequence)
                .for_home_address(&home_address_of(honest))
                .from(&care_of_address_of(honest))
                .with_signature(),
        );
        agent.advance_time(0.001);
    }
    assert!((40..=16 + 8 * 4 + 1).contains(&greedy), "{greedy} of 20,000 in four seconds");
    assert_eq!(agent.persisted_count, greedy + 4 * HONEST_NODES as usize, "and each is written once");
    // The binding is that of the last accepted update. The dropped updates have not used up numbers of the
    // node.
    assert_eq!(
        agent.binding_of(&home_address_of(0)).expect("bound").care_of_address.ipv6(),
        Some(addr(&last))
    );
    agent.advance_time(1.0);
    let sequence = sequences[&0];
    agent.expect_acceptance(
        &TestUpdate::node_update(sequence).for_home_address(&home_address_of(0)).with_signature(),
    );
    assert_eq!(
        agent.binding_of(&home_address_of(0)).expect("bound").care_of_address.ipv6(),
        Some(addr(CARE_OF_ADDRESS))
    );
}

/// The limit of a node suffices for sixteen care-of addresses that register separately, and for four
/// handovers a second.
#[test]
fn moving_node_stays_within_its_update_limit() {
    let mut agent = agent_with_greedy_node();
    for sequence in 1..=16 {
        agent.expect_acceptance(
            &TestUpdate::node_update(sequence)
                .for_home_address(&home_address_of(1))
                .from(&care_of_address_of(sequence.into()))
                .with_signature(),
        );
    }
    agent.advance_time(1.0);
    for sequence in 17..100 {
        agent.expect_acceptance(
            &TestUpdate::node_update(sequence)
                .for_home_address(&home_address_of(1))
                .from(&care_of_address_of(sequence.into()))
                .with_signature(),
        );
        agent.advance_time(0.25);
    }
}

/// Each message of a bulk registration (RFC 5648) counts once against the limit of its node.
#[test]
fn bulk_registrations_count_against_the_same_limit() {
    let mut agent = TestAgent::new(authenticated_config());
    let mut accepted = 0;
    for sequence in 1..=200 {
        let update = (1..=8).fold(TestUpdate::explicit_update(sequence), |update, bid| {
            update.with_option(carnet_wire::mobility::MobilityOption::BindingIdentifier {
                bid,
                status: 0,
                home: false,
                priority: 0,
                care_of_address: Some(addr(&care_of_address_of(bid.into())).into()),
            })
        });
        agent.send_update(&update.from(&care_of_address_of(1)).with_signature());
        accepted += usize::from(agent.last_drop_reason.is_none());
        assert!(
            matches!(agent.last_drop_reason, None | Some(MobilityDrop::Share)),
            "{:?}",
            agent.last_drop_reason
        );
    }
    assert_eq!(accepted, 16);
    assert_eq!(agent.home_agent.bindings().bindings_of(addr(HOME_ADDRESS)).count(), 8);
}

/// Forged updates do not use up the limit of the node in whose name they are sent.
#[test]
fn forged_updates_do_not_use_up_the_update_limit_of_the_node() {
    let mut agent = agent_with_greedy_node();
    let wrong = SecurityAssociation { key: [9; 16].into(), ..test_association() };
    agent.expect_acceptance(
        &TestUpdate::node_update(1).for_home_address(&home_address_of(1)).with_signature(),
    );
    for sequence in 2..1000 {
        agent.send_update(
            &TestUpdate::node_update(sequence)
                .for_home_address(&home_address_of(1))
                .with_signature_by(wrong.clone()),
        );
        assert_ne!(agent.last_drop_reason, Some(MobilityDrop::Share));
    }
    for sequence in 2..=16 {
        agent.expect_acceptance(
            &TestUpdate::node_update(sequence).for_home_address(&home_address_of(1)).with_signature(),
        );
    }
}

/// A source that floods is limited before its messages are verified; other sources are not. Messages from a
/// node's bound care-of address are never limited by messages that others send in its name.
#[test]
fn a_source_that_floods_is_limited_before_its_messages_are_verified() {
    const FLOODING_SOURCE: &str = "2001:db8:bad::1";
    let mut agent = agent_with_greedy_node();
    agent.expect_acceptance(
        &TestUpdate::node_update(1)
            .for_home_address(&home_address_of(1))
            .from(&care_of_address_of(1))
            .with_signature(),
    );
    let wrong = SecurityAssociation { key: [9; 16].into(), ..test_association() };
    let forged = TestUpdate::node_update(7)
        .for_home_address(&home_address_of(1))
        .from(FLOODING_SOURCE)
        .with_signature_by(wrong.clone())
        .to_packet();
    let genuine = TestUpdate::node_update(1)
        .for_home_address(&home_address_of(2))
        .from(FLOODING_SOURCE)
        .with_signature();
    // The home agent verifies 20,000 a second from one source, and a burst of 100,000 more.
    let mut verified = 0;
    for _ in 0..130_000 {
        agent.receive_packet(&forged);
        verified += usize::from(agent.last_drop_reason != Some(MobilityDrop::Flood));
    }
    assert!((120_000 - 2..120_000 + 10).contains(&verified), "{verified}");
    assert_eq!(agent.expect_drop(&genuine.to_packet()), MobilityDrop::Flood, "the MAC is not looked at");
    assert_eq!(
        agent.expect_drop(
            &TestUpdate::node_update(1)
                .for_home_address(&home_address_of(2))
                .from("2001:db8:bad::2")
                .with_signature()
                .to_packet()
        ),
        MobilityDrop::Flood,
        "nor that of its neighbour"
    );
    // Other nodes register. The node in whose name the flood was sent renews, also if the flood has its
    // address as source.
    agent.expect_acceptance(
        &TestUpdate::node_update(1)
            .for_home_address(&home_address_of(3))
            .from(&care_of_address_of(3))
            .with_signature(),
    );
    let in_his_name = TestUpdate::node_update(7)
        .for_home_address(&home_address_of(1))
        .from(&care_of_address_of(1))
        .with_signature_by(wrong)
        .to_packet();
    for _ in 0..110_000 {
        agent.receive_packet(&in_his_name);
        assert_ne!(agent.last_drop_reason, Some(MobilityDrop::Flood));
    }
    agent.expect_acceptance(
        &TestUpdate::node_update(2)
            .for_home_address(&home_address_of(1))
            .from(&care_of_address_of(1))
            .with_signature(),
    );
    // The limit of the source grows again with time.
    agent.advance_time(0.01);
    agent.expect_acceptance(&genuine);
}

/// Authentic updates that are refused cost as much verification, so they count against the limit too.
#[test]
fn refused_updates_count_against_the_update_limit_of_their_node() {
    let mut agent = TestAgent::new(authenticated_config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1).with_signature());
    let foreign = TestUpdate::explicit_update(2).prefix("2001:db8:ffff::/64").with_signature();
    let (mut refused, mut answers) = (0, 0);
    for _ in 0..20_000 {
        answers += agent.send_update(&foreign).len();
        match agent.last_drop_reason {
            Some(MobilityDrop::Share) => {}
            other => {
                refused += 1;
                assert!(
                    matches!(other, Some(MobilityDrop::Refused | MobilityDrop::RateLimited)),
                    "{other:?}"
                );
            }
        }
        agent.advance_time(0.0001);
    }
    assert!((16..=16 + 2 * 8 + 1).contains(&refused), "{refused} of 20,000 in two seconds");
    assert!(answers > 0);
    // Recorded updates of the node, replayed from elsewhere, do not use up its limit.
    agent.advance_time(10.0);
    let recorded = TestUpdate {
        source: addr("2001:db8:bad::1"),
        ..foreign.with_alternate_care_of_address(CARE_OF_ADDRESS).with_signature()
    };
    for _ in 0..100 {
        agent.send_update(&recorded);
        assert_ne!(agent.last_drop_reason, Some(MobilityDrop::Share));
    }
    agent.expect_acceptance(&TestUpdate::explicit_update(3).with_signature());
}

/// A node that has lost its sequence number gets status 135, also while an attacker replays its messages from
/// its address.
#[test]
fn replayed_updates_do_not_use_up_answers_of_node() {
    let mut agent = TestAgent::new(authenticated_config());
    for sequence in [1000, 1001] {
        agent.expect_acceptance(
            &TestUpdate::explicit_update(sequence)
                .with_alternate_care_of_address(CARE_OF_ADDRESS)
                .with_signature(),
        );
    }
    let recorded =
        TestUpdate::explicit_update(1000).with_alternate_care_of_address(CARE_OF_ADDRESS).with_signature();
    let played = TestUpdate { source: addr("2001:db8:bad::1"), ..recorded }.to_packet();
    let (mut to_node, mut elsewhere) = (0, 0);
    for number in 0..30_000 {
        elsewhere += agent.receive_packet(&played).len();
        if number % 600 == 300 {
            let lost = TestUpdate::explicit_update(3)
                .with_alternate_care_of_address(OTHER_CARE_OF_ADDRESS)
                .from(OTHER_CARE_OF_ADDRESS);
            to_node += agent.send_update(&lost.with_signature()).len();
        }
        agent.advance_time(1.0 / 300.0);
    }
    assert_eq!(to_node, 50, "every two seconds");
    assert!((100..=400).contains(&elsewhere), "{elsewhere} in 100 seconds");
}

/// The home agent refuses an old number under any signature. Above its limit of answers it verifies no MAC of
/// such updates. It always serves a router that continues from its last number.
#[test]
fn home_agent_verifies_no_mac_of_replayed_updates_above_its_answer_limit() {
    let mut agent = TestAgent::new(authenticated_config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1000).with_signature());
    let wrong = SecurityAssociation { key: [9; 16].into(), ..test_association() };
    let forged = TestUpdate::explicit_update(999).with_signature_by(wrong).to_packet();
    agent.receive_packet(&forged);
    assert_eq!(agent.last_drop_reason, Some(MobilityDrop::AuthenticationFailed));
    let recorded = TestUpdate::explicit_update(999).with_signature().to_packet();
    while !agent.receive_packet(&recorded).is_empty() {}
    for packet in [&recorded, &forged] {
        agent.receive_packet(packet);
        assert_eq!(agent.last_drop_reason, Some(MobilityDrop::RateLimited));
    }
    agent.expect_acceptance(&TestUpdate::explicit_update(1001).with_signature());
    agent.advance_time(11.0);
    agent.receive_packet(&forged);
    assert_eq!(agent.last_drop_reason, Some(MobilityDrop::AuthenticationFailed), "there is an answer left");
}

/// The home agent verifies no MAC of an acknowledgement without an outstanding revocation.
#[test]
fn home_agent_verifies_no_mac_of_unsolicited_revocation_acknowledgement() {
    let mut agent = TestAgent::new(authenticated_config());
    let wrong = SecurityAssociation { key: [9; 16].into(), ..test_association() };
    let kind = RevocationKind::Acknowledgement { status: revocation_status::SUCCESS };
    let mut header = MobilityHeaderBuilder::binding_revocation(kind, 7, RevocationFlags::default())
        .option(&wrong.empty_authentication_option())
        .finish();
    wrong.sign(&mut header, addr("2001:db8:bad::1"), addr(HOME_ADDRESS));
    agent.receive_packet(&TestUpdate::explicit_update(0).from("2001:db8:bad::1").packet_around(&mut header));
    assert_eq!(agent.last_drop_reason, Some(MobilityDrop::Unexpected));
}
