//! Home agent: registration of several care-of addresses, and the answers (RFC 5648 6.2, RFC 6089 4.1).

use carnet_mobility::home_agent::{HomeAgentConfig, MAX_BINDINGS, MultipleCareOfAddresses};
use carnet_wire::mobility::MobilityOption;

use crate::agent::{TestAgent, authenticated_config, authorized_node, config};
use crate::several_care_of_addresses::*;
use crate::test_messages::*;

/// Creates a home agent with two bindings: BID 1 at [`CARE_OF_ADDRESS`] and BID 2 at
/// [`OTHER_CARE_OF_ADDRESS`]. The next sequence number is 3.
pub fn agent_with_two_bindings() -> TestAgent {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(
        &TestUpdate::explicit_update(1).with_overwrite_flag().with_bid(1, CARE_OF_ADDRESS),
    );
    agent.expect_acceptance(
        &TestUpdate::explicit_update(2).from(OTHER_CARE_OF_ADDRESS).with_bid(2, OTHER_CARE_OF_ADDRESS),
    );
    agent
}

/// Conformance item 46; RFC 5648 6.2: an update without the O flag adds a binding. Conformance item 53: the
/// answer echoes the option.
#[test]
fn bindings_are_added_one_by_one() {
    let mut agent = TestAgent::new(config());
    let answer = agent.expect_acceptance(
        &TestUpdate::explicit_update(1).with_overwrite_flag().with_bid(1, CARE_OF_ADDRESS),
    );
    assert_eq!(acknowledgement_options(&answer).bid_statuses, [(1, 0)]);
    let answer = agent.expect_acceptance(
        &TestUpdate::explicit_update(2).from(OTHER_CARE_OF_ADDRESS).with_bid(2, OTHER_CARE_OF_ADDRESS),
    );
    assert_eq!(answer.destination, addr(OTHER_CARE_OF_ADDRESS), "it goes where the update came from");
    assert_eq!(acknowledgement_options(&answer).bid_statuses, [(2, 0)]);
    assert_eq!(
        bindings_of_home(&agent),
        expected_bindings(&[(1, CARE_OF_ADDRESS), (2, OTHER_CARE_OF_ADDRESS)])
    );
    let prefixes = agent
        .home_agent
        .bindings()
        .bindings_of(addr(HOME_ADDRESS))
        .all(|binding| *binding.prefixes == [net(MOBILE_NETWORK_PREFIX)]);
    assert!(prefixes, "each binding forwards the prefixes of the node");
}

/// RFC 5648 5.3: one update registers several bindings.
#[test]
fn bulk_registration_creates_all_bindings() {
    let mut agent = TestAgent::new(config());
    let bulk = TestUpdate::explicit_update(1)
        .with_overwrite_flag()
        .with_bid(1, CARE_OF_ADDRESS)
        .with_bid(2, OTHER_CARE_OF_ADDRESS)
        .with_bid(3, THIRD_CARE_OF_ADDRESS);
    let answer = agent.expect_acceptance(&bulk);
    assert_eq!(acknowledgement_options(&answer).bid_statuses, [(1, 0), (2, 0), (3, 0)]);
    assert_eq!(answer.lifetime(), 15);
    assert_eq!(
        bindings_of_home(&agent),
        expected_bindings(&[(1, CARE_OF_ADDRESS), (2, OTHER_CARE_OF_ADDRESS), (3, THIRD_CARE_OF_ADDRESS)])
    );
}

/// RFC 6089 4.1, 5.1.1: the binding with the lowest BID-PRI is the best; a binding without BID-PRI comes
/// last.
#[test]
fn bindings_are_ordered_by_priority() {
    let mut agent = TestAgent::new(config());
    let option = |bid, priority, care_of: &str| MobilityOption::BindingIdentifier {
        bid,
        status: 0,
        home: false,
        priority,
        care_of_address: Some(addr(care_of).into()),
    };
    let update = TestUpdate::explicit_update(1)
        .with_overwrite_flag()
        .with_option(option(1, 0, CARE_OF_ADDRESS))
        .with_option(option(2, 127, OTHER_CARE_OF_ADDRESS))
        .with_option(option(3, 5, THIRD_CARE_OF_ADDRESS))
        .with_option(option(4, 5, "2001:db8:f4::10"));
    assert_eq!(agent.send_and_get_acknowledgement(&update).status(), 0);
    let order: Vec<_> = agent
        .home_agent
        .bindings()
        .bindings_of(addr(HOME_ADDRESS))
        .filter_map(|binding| binding.bid)
        .collect();
    assert_eq!(order, [3, 4, 2, 1]);
    assert_eq!(agent.registered_care_of_address(), Some(addr(THIRD_CARE_OF_ADDRESS)));
}

/// Conformance item 46; RFC 5648 6.2: "the same BID but different care-of address" moves the binding. The
/// home agent still accepts packets from the old address.
#[test]
fn known_bid_with_another_address_moves_its_binding() {
    let mut agent = agent_with_two_bindings();
    agent.expect_acceptance(
        &TestUpdate::explicit_update(3).from(THIRD_CARE_OF_ADDRESS).with_bid(1, THIRD_CARE_OF_ADDRESS),
    );
    assert_eq!(
        bindings_of_home(&agent),
        expected_bindings(&[(1, THIRD_CARE_OF_ADDRESS), (2, OTHER_CARE_OF_ADDRESS)])
    );
    let accepts = |agent: &TestAgent, address| {
        agent.home_agent.bindings().accepts_packets_from(addr(HOME_ADDRESS), addr(address).into())
    };
    assert!(accepts(&agent, CARE_OF_ADDRESS));
    agent.advance_time(5.1);
    assert!(!accepts(&agent, CARE_OF_ADDRESS));
    assert!(accepts(&agent, OTHER_CARE_OF_ADDRESS) && accepts(&agent, THIRD_CARE_OF_ADDRESS));
}

/// Conformance item 47; RFC 5648 4.2: an update with the O flag removes all bindings that it does not name.
#[test]
fn o_flag_replaces_all_bindings() {
    let mut agent = agent_with_two_bindings();
    agent.expect_acceptance(
        &TestUpdate::explicit_update(3)
            .from(THIRD_CARE_OF_ADDRESS)
            .with_overwrite_flag()
            .with_bid(3, THIRD_CARE_OF_ADDRESS),
    );
    assert_eq!(bindings_of_home(&agent), expected_bindings(&[(3, THIRD_CARE_OF_ADDRESS)]));
    // The home agent still accepts packets that are on their way from the removed bindings.
    assert_eq!(agent.home_agent.bindings().former_paths(addr(HOME_ADDRESS)).len(), 2);
    agent.advance_time(5.1);
    assert!(agent.home_agent.bindings().former_paths(addr(HOME_ADDRESS)).is_empty());
    assert_eq!(bindings_of_home(&agent), expected_bindings(&[(3, THIRD_CARE_OF_ADDRESS)]));
}

/// Conformance item 48; RFC 5648 6.2: a Binding Update without identifiers "MUST replace all the existing
/// bindings".
#[test]
fn update_without_bid_replaces_all_bindings() {
    let mut agent = agent_with_two_bindings();
    agent.expect_acceptance(&TestUpdate::explicit_update(3).from(OTHER_CARE_OF_ADDRESS));
    assert_eq!(bindings_of_home(&agent), [(None, addr(OTHER_CARE_OF_ADDRESS).into())]);
    let former = agent.home_agent.bindings().former_paths(addr(HOME_ADDRESS));
    assert_eq!(former.len(), 1, "the path that goes on is none that was left: {former:?}");
    agent.advance_time(100.0);
    assert!(agent.home_agent.poll_timeout().is_none(), "nothing is left of the timers");
}

/// Conformance item 49; RFC 5648 6.2: status 165 while a plain binding exists, unless the O flag replaces it.
#[test]
fn bid_beside_binding_without_bid_gets_status_165() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    let answer = agent.expect_refusal(&TestUpdate::explicit_update(2).with_bid(1, CARE_OF_ADDRESS), 165);
    assert_eq!(acknowledgement_options(&answer).bid_statuses, [(1, 0)], "the status of the message counts");
    agent.expect_acceptance(
        &TestUpdate::explicit_update(3).with_overwrite_flag().with_bid(1, CARE_OF_ADDRESS),
    );
    assert_eq!(bindings_of_home(&agent), expected_bindings(&[(1, CARE_OF_ADDRESS)]));
    assert!(agent.home_agent.bindings().former_paths(addr(HOME_ADDRESS)).is_empty(), "the same path");
}

/// Conformance item 50; RFC 5648 6.2: an option length other than 4, 8 and 20 refuses the message.
#[test]
fn bid_option_with_wrong_length_gets_status_164() {
    let mut agent = agent_with_two_bindings();
    for length in [0, 3, 5, 7, 9, 19, 21] {
        let data: &'static [u8] = vec![0; length].leak();
        let odd = TestUpdate::explicit_update(3)
            .with_bid(1, THIRD_CARE_OF_ADDRESS)
            .with_option(MobilityOption::Unknown { option_type: 35, data });
        let answer = agent.expect_refusal(&odd, 164);
        assert_eq!(acknowledgement_options(&answer).bid_statuses, [(1, 0)]);
        agent.advance_time(1.0);
    }
}

/// Conformance item 50; RFC 5648 6.2: status 164 for an option whose address is not unicast and routable, and
/// for BID 0 (4.3).
#[test]
fn bid_option_with_invalid_address_gets_status_164() {
    let mut agent = agent_with_two_bindings();
    let bad = ["ff02::1", "fe80::1", "::", "::1", "::ffff:192.0.2.1", "0.0.0.0", "224.0.0.1", "127.0.0.1"];
    for address in bad {
        let answer = agent.expect_refusal(&TestUpdate::explicit_update(3).with_bid(1, address), 164);
        assert_eq!(acknowledgement_options(&answer).bid_statuses, [(1, 0)], "{address}");
        agent.advance_time(1.0);
    }
    agent.expect_refusal(&TestUpdate::explicit_update(3).with_bid(0, CARE_OF_ADDRESS), 164);
    // The home agent refuses only the invalid one of several options. The update's sequence number counts as
    // used, so the next number is 4.
    let answer = agent.send_and_get_acknowledgement(
        &TestUpdate::explicit_update(3)
            .with_bid(1, THIRD_CARE_OF_ADDRESS)
            .with_bid(3, "ff02::1")
            .with_bid(0, CARE_OF_ADDRESS),
    );
    assert_eq!(answer.status(), 4);
    assert_eq!(acknowledgement_options(&answer).bid_statuses, [(1, 0), (3, 164), (0, 164)]);
    // If two options have one BID, the home agent accepts the first.
    let answer = agent.send_and_get_acknowledgement(
        &TestUpdate::explicit_update(4).with_bid(1, CARE_OF_ADDRESS).with_bid(1, THIRD_CARE_OF_ADDRESS),
    );
    assert_eq!((answer.status(), acknowledgement_options(&answer).bid_statuses), (4, vec![(1, 0), (1, 164)]));
    assert_eq!(
        bindings_of_home(&agent),
        expected_bindings(&[(1, CARE_OF_ADDRESS), (2, OTHER_CARE_OF_ADDRESS)])
    );
}

/// Conformance item 51; RFC 5648 6.2: an option without an address needs a known BID.
#[test]
fn unknown_bid_without_address_gets_status_167_in_its_option() {
    let mut agent = agent_with_two_bindings();
    let answer = agent.expect_refusal(&TestUpdate::explicit_update(3).with_known_bid(7), 4);
    assert_eq!(acknowledgement_options(&answer).bid_statuses, [(7, 167)]);
    agent.advance_time(1.0);
    // An update refreshes both bindings by their BIDs alone.
    agent.advance_time(30.0);
    let answer = agent.expect_acceptance(&TestUpdate::explicit_update(3).with_known_bid(1).with_known_bid(2));
    assert_eq!(acknowledgement_options(&answer).bid_statuses, [(1, 0), (2, 0)]);
    agent.advance_time(40.0);
    assert_eq!(
        bindings_of_home(&agent),
        expected_bindings(&[(1, CARE_OF_ADDRESS), (2, OTHER_CARE_OF_ADDRESS)])
    );
}

/// Conformance item 52; RFC 5648 6.2: a bulk registration registers the valid options, and the answer has
/// status 4.
#[test]
fn one_invalid_binding_of_several_gets_status_4() {
    let mut agent = agent_with_two_bindings();
    let bulk = TestUpdate::explicit_update(3)
        .with_bid(1, THIRD_CARE_OF_ADDRESS)
        .with_bid(3, HOME_ADDRESS)
        .with_bid(4, HOME_AGENT_ADDRESS)
        .with_known_bid(9);
    let answer = agent.send_and_get_acknowledgement(&bulk);
    assert_eq!(answer.status(), 4);
    assert_eq!(acknowledgement_options(&answer).bid_statuses, [(1, 0), (3, 174), (4, 174), (9, 167)]);
    assert_eq!(answer.lifetime(), 15);
    assert_eq!(
        bindings_of_home(&agent),
        expected_bindings(&[(1, THIRD_CARE_OF_ADDRESS), (2, OTHER_CARE_OF_ADDRESS)])
    );
    // Without a valid option nothing changes, and the sequence number does not count as used.
    let answer = agent.expect_refusal(
        &TestUpdate::explicit_update(4).with_bid(1, HOME_ADDRESS).with_bid(2, HOME_AGENT_ADDRESS),
        4,
    );
    assert_eq!(acknowledgement_options(&answer).bid_statuses, [(1, 174), (2, 174)]);
    agent.expect_acceptance(&TestUpdate::explicit_update(4).with_bid(1, CARE_OF_ADDRESS));
}

/// RFC 5648 4.4, 5.6: the home agent refuses a binding to the home link beside other bindings with status
/// 169.
#[test]
fn h_flag_in_bid_option_gets_status_169() {
    let mut agent = agent_with_two_bindings();
    let home = MobilityOption::BindingIdentifier {
        bid: 3,
        status: 0,
        home: true,
        priority: 30,
        care_of_address: Some(addr(HOME_ADDRESS).into()),
    };
    agent.expect_refusal(&TestUpdate::explicit_update(3).with_option(home), 169);
    let answer = agent.send_and_get_acknowledgement(
        &TestUpdate::explicit_update(3).with_bid(1, THIRD_CARE_OF_ADDRESS).with_option(home),
    );
    assert_eq!((answer.status(), acknowledgement_options(&answer).bid_statuses), (4, vec![(1, 0), (3, 169)]));
}

/// RFC 5648 4.4: the operator's config causes status 166 or 168.
#[test]
fn config_without_multiple_care_of_addresses_causes_status_166_or_168() {
    let with = |multiple_care_of_addresses| {
        TestAgent::new(HomeAgentConfig { multiple_care_of_addresses, ..config() })
    };
    let mut agent = with(MultipleCareOfAddresses::Prohibited);
    agent.expect_refusal(&TestUpdate::explicit_update(1).with_bid(1, CARE_OF_ADDRESS), 166);
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    let mut agent = with(MultipleCareOfAddresses::Single);
    let answer = agent.expect_refusal(
        &TestUpdate::explicit_update(1).with_bid(1, CARE_OF_ADDRESS).with_bid(2, OTHER_CARE_OF_ADDRESS),
        168,
    );
    assert_eq!(acknowledgement_options(&answer).bid_statuses, [(1, 0), (2, 0)]);
    agent.expect_acceptance(&TestUpdate::explicit_update(1).with_bid(1, CARE_OF_ADDRESS));
    agent.expect_acceptance(&TestUpdate::explicit_update(2).with_bid(2, OTHER_CARE_OF_ADDRESS));
    assert_eq!(bindings_of_home(&agent).len(), 2);
}

/// The home agent refuses bindings beyond the limit of a node with status 130. After the end of a binding it
/// accepts another one.
#[test]
fn number_of_bindings_of_a_node_is_bounded() {
    let mut agent = TestAgent::new(config());
    let address = |bid: u16| format!("2001:db8:f1::{bid:x}");
    for bid in 1..=MAX_BINDINGS as u16 {
        agent.expect_acceptance(&TestUpdate::explicit_update(bid).with_bid(bid, &address(bid)));
    }
    agent.advance_time(2.0); // The node's allowance of Binding Updates is full again.
    agent.expect_refusal(&TestUpdate::explicit_update(100).with_bid(100, &address(100)), 130);
    agent.expect_acceptance(&TestUpdate::explicit_update(100).with_bid(1, &address(101)));
    agent.expect_acceptance(&TestUpdate::implicit_update(101).lifetime(0).with_known_bid(1));
    agent.expect_acceptance(&TestUpdate::explicit_update(102).with_bid(100, &address(100)));
    assert_eq!(bindings_of_home(&agent).len(), MAX_BINDINGS);
    // An update with the O flag replaces all bindings and names one more than the limit: the home agent
    // refuses only that one.
    let mut bulk = TestUpdate::explicit_update(103).with_overwrite_flag();
    for bid in 200..=200 + MAX_BINDINGS as u16 {
        bulk = bulk.with_bid(bid, &address(bid));
    }
    let answer = agent.send_and_get_acknowledgement(&bulk);
    assert_eq!(answer.status(), 4);
    let refused: Vec<_> = acknowledgement_options(&answer)
        .bid_statuses
        .into_iter()
        .filter(|(_, status)| *status != 0)
        .collect();
    assert_eq!(refused, [(200 + MAX_BINDINGS as u16, 130)]);
    assert_eq!(bindings_of_home(&agent).len(), MAX_BINDINGS);
    // A message with more options than any valid one is malformed.
    let mut many = TestUpdate::explicit_update(104);
    for bid in 1..40 {
        many = many.with_known_bid(bid);
    }
    agent.expect_refusal(&many, 164);
}

/// Former care-of addresses are bounded too, so moves do not fill the memory.
#[test]
fn number_of_former_care_of_addresses_is_bounded() {
    let mut agent = TestAgent::new(config());
    for sequence in 1..200_u16 {
        agent.expect_acceptance(
            &TestUpdate::explicit_update(sequence).with_bid(1, &format!("2001:db8:f1::{sequence:x}")),
        );
        agent.advance_time(0.125); // The node's allowance permits no higher rate.
    }
    agent.expect_acceptance(&TestUpdate::explicit_update(200).with_bid(1, "2001:db8:f1::c8"));
    assert!(agent.home_agent.bindings().former_paths(addr(HOME_ADDRESS)).len() <= 2 * MAX_BINDINGS);
    let last = addr("2001:db8:f1::c7").into();
    assert!(
        agent.home_agent.bindings().accepts_packets_from(addr(HOME_ADDRESS), last),
        "the latest is among them"
    );
    agent.advance_time(5.1);
    assert!(agent.home_agent.bindings().former_paths(addr(HOME_ADDRESS)).is_empty());
}

/// Conformance item 55; RFC 5648 4.1: all bindings of a node share one sequence number.
#[test]
fn the_sequence_number_is_shared_by_all_bindings() {
    let mut agent = agent_with_two_bindings();
    assert_eq!(
        agent.expect_refusal(&TestUpdate::explicit_update(2).with_bid(1, CARE_OF_ADDRESS), 135).sequence(),
        2
    );
    assert_eq!(
        agent
            .expect_refusal(
                &TestUpdate::explicit_update(1)
                    .from(OTHER_CARE_OF_ADDRESS)
                    .with_bid(2, OTHER_CARE_OF_ADDRESS),
                135
            )
            .sequence(),
        2
    );
    agent.expect_acceptance(&TestUpdate::explicit_update(3).with_bid(1, CARE_OF_ADDRESS));
    assert!(agent.home_agent.bindings().bindings_of(addr(HOME_ADDRESS)).all(|binding| binding.sequence == 3));
}

/// RFC 3963 6.2: each Binding Update names all prefixes of the node, and the R flag does not change while the
/// node is bound.
#[test]
fn prefixes_and_r_flag_belong_to_all_bindings_of_a_node() {
    let two_prefixes = HomeAgentConfig {
        nodes: vec![authorized_node(HOME_ADDRESS, &[MOBILE_NETWORK_PREFIX, SECOND_MOBILE_NETWORK_PREFIX])],
        ..config()
    };
    let mut agent = TestAgent::new(two_prefixes);
    agent.expect_acceptance(
        &TestUpdate::explicit_update(1)
            .prefix(SECOND_MOBILE_NETWORK_PREFIX)
            .with_overwrite_flag()
            .with_bid(1, CARE_OF_ADDRESS),
    );
    agent.expect_acceptance(&TestUpdate::explicit_update(2).with_bid(2, OTHER_CARE_OF_ADDRESS));
    assert!(
        agent
            .home_agent
            .bindings()
            .bindings_of(addr(HOME_ADDRESS))
            .all(|binding| *binding.prefixes == [net(MOBILE_NETWORK_PREFIX)])
    );
    agent.expect_refusal(&TestUpdate::node_update(3).with_bid(2, OTHER_CARE_OF_ADDRESS), 139);
    agent.expect_refusal(
        &TestUpdate::implicit_update(3).prefix("2001:db8:99::/64").with_bid(2, OTHER_CARE_OF_ADDRESS),
        142,
    );
}

/// Design: the MAC covers the first care-of address that a Binding Identifier option names, not the source.
#[test]
fn mac_covers_the_first_care_of_address_in_a_bid_option() {
    let mut agent = TestAgent::new(authenticated_config());
    let update = TestUpdate::explicit_update(1)
        .from(THIRD_CARE_OF_ADDRESS)
        .with_overwrite_flag()
        .with_bid(1, CARE_OF_ADDRESS)
        .with_bid(2, OTHER_CARE_OF_ADDRESS);
    let answer = agent.expect_acceptance(&update.clone().with_signature());
    assert!(answer.is_signed(&test_association(), CARE_OF_ADDRESS, HOME_ADDRESS));
    assert_eq!(answer.destination, addr(THIRD_CARE_OF_ADDRESS));
    // Without an address in any option the MAC covers the source.
    let answer = agent.expect_acceptance(
        &TestUpdate::explicit_update(2)
            .from(OTHER_CARE_OF_ADDRESS)
            .with_known_bid(1)
            .with_known_bid(2)
            .with_signature(),
    );
    assert!(answer.is_signed(&test_association(), OTHER_CARE_OF_ADDRESS, HOME_ADDRESS));
    // The MAC detects an option that an attacker has added or changed.
    let mut forged = update.clone().with_bid(3, THIRD_CARE_OF_ADDRESS).with_signature();
    forged.sequence = 3;
    let mut octets = forged.mobility_header();
    let at = octets.windows(4).position(|four| four == [35, 20, 0, 3]).expect("the third option");
    octets[at + 3] = 4;
    let packet = forged.packet_around(&mut octets);
    agent.expect_drop(&packet);
    assert_eq!(bindings_of_home(&agent).len(), 2);
}

/// A care-of address in the node's own prefix gets status 174 in its option (RFC 6275 6.1.8). So does one
/// that closes a ring through other nodes.
#[test]
fn tunnel_loops_are_found_through_every_binding() {
    let second = "2001:db8:1::5678";
    let third = "2001:db8:1::9abc";
    let mut agent = TestAgent::new(HomeAgentConfig {
        nodes: vec![
            authorized_node(HOME_ADDRESS, &[MOBILE_NETWORK_PREFIX]),
            authorized_node(second, &[SECOND_MOBILE_NETWORK_PREFIX]),
            authorized_node(third, &["2001:db8:c::/64"]),
        ],
        ..config()
    });
    agent.expect_refusal(&TestUpdate::explicit_update(1).with_bid(1, "2001:db8:a::77"), 174);
    // Of the second node's bindings, only the second lies in the first node's network.
    let behind = TestUpdate::implicit_update(1)
        .for_home_address(second)
        .with_bid(1, OTHER_CARE_OF_ADDRESS)
        .with_bid(2, "2001:db8:a::10");
    agent.expect_acceptance(&behind);
    // The third node is in the network of the second.
    agent.expect_acceptance(
        &TestUpdate::implicit_update(1)
            .for_home_address(third)
            .with_bid(1, CARE_OF_ADDRESS)
            .with_bid(2, "2001:db8:b::10"),
    );
    // A care-of address of the first node in the third node's network would close the ring. The home agent
    // refuses this binding and accepts the second binding in the update.
    let answer = agent.send_and_get_acknowledgement(
        &TestUpdate::explicit_update(1).with_bid(1, "2001:db8:c::10").with_bid(2, THIRD_CARE_OF_ADDRESS),
    );
    assert_eq!((answer.status(), acknowledgement_options(&answer).bid_statuses), (4, vec![(1, 174), (2, 0)]));
    agent.expect_refusal(&TestUpdate::explicit_update(2).with_bid(1, "2001:db8:b::10"), 174);
    // The second node leaves the first node's network, so the ring is open.
    agent.expect_acceptance(
        &TestUpdate::implicit_update(2).for_home_address(second).lifetime(0).with_known_bid(2),
    );
    agent.expect_acceptance(&TestUpdate::explicit_update(2).with_bid(1, "2001:db8:c::10"));
}
