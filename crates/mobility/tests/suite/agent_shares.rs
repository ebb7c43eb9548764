//! Home agent: rate limits for unauthenticated sources and for nodes with authentic messages.

use std::collections::BTreeMap;

use carnet_mobility::{Authentication, MobilityDrop, SecurityAssociation};
use carnet_wire::mobility::revocation::revocation_status;
use carnet_wire::mobility::{Builder, RevocationFlags, RevocationKind};

use crate::agent::{Agent, authenticated, config, node};
use crate::craft::*;

const HONEST: u32 = 1000;

fn home(number: u32) -> String {
    format!("2001:db8:1::a:{number:x}")
}

fn care_of(number: u32) -> String {
    format!("2001:db8:{:x}::10", 0x2000 + number)
}

/// A home agent for one greedy node (the first) and honest ones.
fn agent() -> Agent {
    let mut config = config();
    config.nodes = (0..=HONEST).map(|number| node(&home(number), &[])).collect();
    for node in &mut config.nodes {
        node.authentication = Authentication::SharedKey(association());
    }
    Agent::new(config)
}

/// An attacker has taken over a node and sends as many authentic Binding Updates as possible, each from
/// another care-of address.
#[test]
fn a_node_with_many_updates_gets_its_share_and_all_other_nodes_register() {
    let mut agent = agent();
    let mut sequences: BTreeMap<u32, u16> = BTreeMap::new();
    let (mut greedy, mut last) = (0, String::new());
    for number in 0..4 * HONEST {
        for round in 0..5 {
            let sequence = sequences.entry(0).and_modify(|it| *it += 1).or_insert(1);
            let from = care_of(number % 64 + round);
            agent.send(&Update::node(*sequence).of(&home(0)).from(&from).signed());
            match agent.dropped {
                None => (greedy, last) = (greedy + 1, from),
                Some(reason) => assert_eq!(reason, MobilityDrop::Share),
            }
        }
        // Within four seconds each honest node registers and renews three times.
        let honest = 1 + number % HONEST;
        let sequence = sequences.entry(honest).and_modify(|it| *it += 1).or_insert(1);
        agent.accept(&Update::node(*sequence).of(&home(honest)).from(&care_of(honest)).signed());
        agent.wait(0.001);
    }
    assert!((40..=16 + 8 * 4 + 1).contains(&greedy), "{greedy} of 20,000 in four seconds");
    assert_eq!(agent.persisted, greedy + 4 * HONEST as usize, "and each is written once");
    // The last accepted update holds. The dropped updates have not used up numbers of the node.
    assert_eq!(agent.binding_of(&home(0)).expect("bound").care_of_address.ipv6(), Some(addr(&last)));
    agent.wait(1.0);
    let sequence = sequences[&0];
    agent.accept(&Update::node(sequence).of(&home(0)).signed());
    assert_eq!(agent.binding_of(&home(0)).expect("bound").care_of_address.ipv6(), Some(addr(CARE_OF)));
}

/// The limit of a node suffices for sixteen care-of addresses that register separately, and for four
/// handovers a second.
#[test]
fn moving_node_stays_within_its_update_limit() {
    let mut agent = agent();
    for sequence in 1..=16 {
        agent.accept(&Update::node(sequence).of(&home(1)).from(&care_of(sequence.into())).signed());
    }
    agent.wait(1.0);
    for sequence in 17..100 {
        agent.accept(&Update::node(sequence).of(&home(1)).from(&care_of(sequence.into())).signed());
        agent.wait(0.25);
    }
}

/// Each message of a bulk registration (RFC 5648) counts once against the limit of its node.
#[test]
fn bulk_registrations_count_against_the_same_limit() {
    let mut agent = Agent::new(authenticated());
    let mut accepted = 0;
    for sequence in 1..=200 {
        let update = (1..=8).fold(Update::explicit(sequence), |update, bid| {
            update.with(carnet_wire::mobility::MobilityOption::BindingIdentifier {
                bid,
                status: 0,
                home: false,
                priority: 0,
                care_of_address: Some(addr(&care_of(bid.into())).into()),
            })
        });
        agent.send(&update.from(&care_of(1)).signed());
        accepted += usize::from(agent.dropped.is_none());
        assert!(matches!(agent.dropped, None | Some(MobilityDrop::Share)), "{:?}", agent.dropped);
    }
    assert_eq!(accepted, 16);
    assert_eq!(agent.machine.bindings().of(addr(HOME)).count(), 8);
}

/// Forged updates do not use up the limit of the node in whose name they are sent.
#[test]
fn forged_updates_cost_their_node_nothing_of_its_share() {
    let mut agent = agent();
    let wrong = SecurityAssociation { key: [9; 16].into(), ..association() };
    agent.accept(&Update::node(1).of(&home(1)).signed());
    for sequence in 2..1000 {
        agent.send(&Update::node(sequence).of(&home(1)).signed_by(wrong.clone()));
        assert_ne!(agent.dropped, Some(MobilityDrop::Share));
    }
    for sequence in 2..=16 {
        agent.accept(&Update::node(sequence).of(&home(1)).signed());
    }
}

/// A source that floods is limited before its messages are verified; other sources are not. Messages from a
/// node's bound care-of address are never limited by messages that others send in its name.
#[test]
fn a_source_that_floods_is_limited_before_its_messages_are_verified() {
    const FLOODER: &str = "2001:db8:bad::1";
    let mut agent = agent();
    agent.accept(&Update::node(1).of(&home(1)).from(&care_of(1)).signed());
    let wrong = SecurityAssociation { key: [9; 16].into(), ..association() };
    let forged = Update::node(7).of(&home(1)).from(FLOODER).signed_by(wrong.clone()).packet();
    let genuine = Update::node(1).of(&home(2)).from(FLOODER).signed();
    // The home agent verifies 20,000 a second from one source, and a burst of 100,000 more.
    let mut verified = 0;
    for _ in 0..130_000 {
        agent.receive(&forged);
        verified += usize::from(agent.dropped != Some(MobilityDrop::Flood));
    }
    assert!((120_000 - 2..120_000 + 10).contains(&verified), "{verified}");
    assert_eq!(agent.ignore(&genuine.packet()), MobilityDrop::Flood, "the MAC is not looked at");
    assert_eq!(
        agent.ignore(&Update::node(1).of(&home(2)).from("2001:db8:bad::2").signed().packet()),
        MobilityDrop::Flood,
        "nor that of its neighbour"
    );
    // Other nodes register. The node in whose name the flood was sent renews, also if the flood has its
    // address as source.
    agent.accept(&Update::node(1).of(&home(3)).from(&care_of(3)).signed());
    let in_his_name = Update::node(7).of(&home(1)).from(&care_of(1)).signed_by(wrong).packet();
    for _ in 0..110_000 {
        agent.receive(&in_his_name);
        assert_ne!(agent.dropped, Some(MobilityDrop::Flood));
    }
    agent.accept(&Update::node(2).of(&home(1)).from(&care_of(1)).signed());
    // The limit of the source grows again with time.
    agent.wait(0.01);
    agent.accept(&genuine);
}

/// Authentic updates that are refused cost as much verification, so they count too.
#[test]
fn refused_updates_of_a_node_are_within_its_share() {
    let mut agent = Agent::new(authenticated());
    agent.accept(&Update::explicit(1).signed());
    let foreign = Update::explicit(2).prefix("2001:db8:ffff::/64").signed();
    let (mut refused, mut answers) = (0, 0);
    for _ in 0..20_000 {
        answers += agent.send(&foreign).len();
        match agent.dropped {
            Some(MobilityDrop::Share) => {}
            other => {
                refused += 1;
                assert!(
                    matches!(other, Some(MobilityDrop::Refused | MobilityDrop::RateLimited)),
                    "{other:?}"
                );
            }
        }
        agent.wait(0.0001);
    }
    assert!((16..=16 + 2 * 8 + 1).contains(&refused), "{refused} of 20,000 in two seconds");
    assert!(answers > 0);
    // Recorded updates of the node, replayed from elsewhere, do not use up its limit.
    agent.wait(10.0);
    let recorded = Update { source: addr("2001:db8:bad::1"), ..foreign.alternate(CARE_OF).signed() };
    for _ in 0..100 {
        agent.send(&recorded);
        assert_ne!(agent.dropped, Some(MobilityDrop::Share));
    }
    agent.accept(&Update::explicit(3).signed());
}

/// A node that has lost its sequence number gets status 135, also while an attacker replays its messages from
/// its address.
#[test]
fn replayed_updates_do_not_use_up_answers_of_node() {
    let mut agent = Agent::new(authenticated());
    for sequence in [1000, 1001] {
        agent.accept(&Update::explicit(sequence).alternate(CARE_OF).signed());
    }
    let recorded = Update::explicit(1000).alternate(CARE_OF).signed();
    let played = Update { source: addr("2001:db8:bad::1"), ..recorded }.packet();
    let (mut to_node, mut elsewhere) = (0, 0);
    for number in 0..30_000 {
        elsewhere += agent.receive(&played).len();
        if number % 600 == 300 {
            let lost = Update::explicit(3).alternate(OTHER_CARE_OF).from(OTHER_CARE_OF);
            to_node += agent.send(&lost.signed()).len();
        }
        agent.wait(1.0 / 300.0);
    }
    assert_eq!(to_node, 50, "every two seconds");
    assert!((100..=400).contains(&elsewhere), "{elsewhere} in 100 seconds");
}

/// The home agent refuses an old number under any signature. Above its limit of answers it verifies no MAC of
/// such updates. It always serves a router that continues from its last number.
#[test]
fn recordings_that_are_not_answered_are_not_verified() {
    let mut agent = Agent::new(authenticated());
    agent.accept(&Update::explicit(1000).signed());
    let wrong = SecurityAssociation { key: [9; 16].into(), ..association() };
    let forged = Update::explicit(999).signed_by(wrong).packet();
    agent.receive(&forged);
    assert_eq!(agent.dropped, Some(MobilityDrop::AuthenticationFailed));
    let recorded = Update::explicit(999).signed().packet();
    while !agent.receive(&recorded).is_empty() {}
    for packet in [&recorded, &forged] {
        agent.receive(packet);
        assert_eq!(agent.dropped, Some(MobilityDrop::RateLimited));
    }
    agent.accept(&Update::explicit(1001).signed());
    agent.wait(11.0);
    agent.receive(&forged);
    assert_eq!(agent.dropped, Some(MobilityDrop::AuthenticationFailed), "there is an answer left");
}

/// The home agent verifies no MAC of an acknowledgement without an outstanding revocation.
#[test]
fn an_acknowledgement_of_no_revocation_is_not_verified() {
    let mut agent = Agent::new(authenticated());
    let wrong = SecurityAssociation { key: [9; 16].into(), ..association() };
    let kind = RevocationKind::Acknowledgement { status: revocation_status::SUCCESS };
    let mut header = Builder::binding_revocation(kind, 7, RevocationFlags::default())
        .option(&wrong.blank_option())
        .finish();
    wrong.sign(&mut header, addr("2001:db8:bad::1"), addr(HOME));
    agent.receive(&Update::explicit(0).from("2001:db8:bad::1").around(&mut header));
    assert_eq!(agent.dropped, Some(MobilityDrop::Unexpected));
}
