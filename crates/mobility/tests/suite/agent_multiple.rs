//! Home agent: registration of several care-of addresses, and the answers (RFC 5648 6.2, RFC 6089 4.1).

use carnet_mobility::home_agent::{HomeAgentConfig, MAX_BINDINGS, MultipleCareOfAddresses};
use carnet_wire::mobility::MobilityOption;

use crate::agent::{Agent, authenticated, config, node};
use crate::craft::*;
use crate::several::*;

/// A home agent with two bindings: BID 1 at [`CARE_OF`] and BID 2 at [`OTHER_CARE_OF`]. The next sequence
/// number is 3.
pub fn two() -> Agent {
    let mut agent = Agent::new(config());
    agent.accept(&Update::explicit(1).overwriting().bid(1, CARE_OF));
    agent.accept(&Update::explicit(2).from(OTHER_CARE_OF).bid(2, OTHER_CARE_OF));
    agent
}

/// Conformance item 46; RFC 5648 6.2: an update without the O flag adds a binding. Conformance item 53: the
/// answer echoes the option.
#[test]
fn bindings_are_added_one_by_one() {
    let mut agent = Agent::new(config());
    let answer = agent.accept(&Update::explicit(1).overwriting().bid(1, CARE_OF));
    assert_eq!(said(&answer).bids, [(1, 0)]);
    let answer = agent.accept(&Update::explicit(2).from(OTHER_CARE_OF).bid(2, OTHER_CARE_OF));
    assert_eq!(answer.destination, addr(OTHER_CARE_OF), "it goes where the update came from");
    assert_eq!(said(&answer).bids, [(2, 0)]);
    assert_eq!(bindings(&agent), expected(&[(1, CARE_OF), (2, OTHER_CARE_OF)]));
    let prefixes = agent.machine.bindings().of(addr(HOME)).all(|binding| *binding.prefixes == [net(PREFIX)]);
    assert!(prefixes, "each binding forwards the prefixes of the node");
}

/// RFC 5648 5.3: one update registers several bindings.
#[test]
fn bulk_registration_creates_all_bindings() {
    let mut agent = Agent::new(config());
    let bulk = Update::explicit(1).overwriting().bid(1, CARE_OF).bid(2, OTHER_CARE_OF).bid(3, THIRD_CARE_OF);
    let answer = agent.accept(&bulk);
    assert_eq!(said(&answer).bids, [(1, 0), (2, 0), (3, 0)]);
    assert_eq!(answer.lifetime(), 15);
    assert_eq!(bindings(&agent), expected(&[(1, CARE_OF), (2, OTHER_CARE_OF), (3, THIRD_CARE_OF)]));
}

/// RFC 6089 4.1, 5.1.1: the binding with the least BID-PRI is the best; a binding without BID-PRI comes last.
#[test]
fn bindings_are_ordered_by_priority() {
    let mut agent = Agent::new(config());
    let option = |bid, priority, care_of: &str| MobilityOption::BindingIdentifier {
        bid,
        status: 0,
        home: false,
        priority,
        care_of_address: Some(addr(care_of).into()),
    };
    let update = Update::explicit(1)
        .overwriting()
        .with(option(1, 0, CARE_OF))
        .with(option(2, 127, OTHER_CARE_OF))
        .with(option(3, 5, THIRD_CARE_OF))
        .with(option(4, 5, "2001:db8:f4::10"));
    assert_eq!(agent.ask(&update).status(), 0);
    let order: Vec<_> = agent.machine.bindings().of(addr(HOME)).filter_map(|binding| binding.bid).collect();
    assert_eq!(order, [3, 4, 2, 1]);
    assert_eq!(agent.care_of(), Some(addr(THIRD_CARE_OF)));
}

/// Conformance item 46; RFC 5648 6.2: "the same BID but different care-of address" moves the binding. The
/// home agent still accepts packets from the old address.
#[test]
fn a_known_bid_with_another_address_moves() {
    let mut agent = two();
    agent.accept(&Update::explicit(3).from(THIRD_CARE_OF).bid(1, THIRD_CARE_OF));
    assert_eq!(bindings(&agent), expected(&[(1, THIRD_CARE_OF), (2, OTHER_CARE_OF)]));
    let accepts = |agent: &Agent, address| agent.machine.bindings().accepts(addr(HOME), addr(address).into());
    assert!(accepts(&agent, CARE_OF));
    agent.wait(5.1);
    assert!(!accepts(&agent, CARE_OF));
    assert!(accepts(&agent, OTHER_CARE_OF) && accepts(&agent, THIRD_CARE_OF));
}

/// Conformance item 47; RFC 5648 4.2: an update with the O flag removes all bindings that it does not name.
#[test]
fn o_flag_replaces_all_bindings() {
    let mut agent = two();
    agent.accept(&Update::explicit(3).from(THIRD_CARE_OF).overwriting().bid(3, THIRD_CARE_OF));
    assert_eq!(bindings(&agent), expected(&[(3, THIRD_CARE_OF)]));
    // The home agent still accepts packets that are on their way from the removed bindings.
    assert_eq!(agent.machine.bindings().former(addr(HOME)).len(), 2);
    agent.wait(5.1);
    assert!(agent.machine.bindings().former(addr(HOME)).is_empty());
    assert_eq!(bindings(&agent), expected(&[(3, THIRD_CARE_OF)]));
}

/// Conformance item 48; RFC 5648 6.2: a Binding Update without identifiers "MUST replace all the existing
/// bindings".
#[test]
fn update_without_bid_replaces_all_bindings() {
    let mut agent = two();
    agent.accept(&Update::explicit(3).from(OTHER_CARE_OF));
    assert_eq!(bindings(&agent), [(None, addr(OTHER_CARE_OF).into())]);
    let former = agent.machine.bindings().former(addr(HOME));
    assert_eq!(former.len(), 1, "the path that goes on is none that was left: {former:?}");
    agent.wait(100.0);
    assert!(agent.machine.poll_timeout().is_none(), "nothing is left of the timers");
}

/// Conformance item 49; RFC 5648 6.2: status 165 while a plain binding exists, unless the O flag replaces it.
#[test]
fn bid_beside_binding_without_bid_gets_status_165() {
    let mut agent = Agent::new(config());
    agent.accept(&Update::explicit(1));
    let answer = agent.refuse(&Update::explicit(2).bid(1, CARE_OF), 165);
    assert_eq!(said(&answer).bids, [(1, 0)], "the status of the message counts");
    agent.accept(&Update::explicit(3).overwriting().bid(1, CARE_OF));
    assert_eq!(bindings(&agent), expected(&[(1, CARE_OF)]));
    assert!(agent.machine.bindings().former(addr(HOME)).is_empty(), "the same path");
}

/// Conformance item 50; RFC 5648 6.2: an option length other than 4, 8 and 20 refuses the message.
#[test]
fn bid_option_with_wrong_length_gets_status_164() {
    let mut agent = two();
    for length in [0, 3, 5, 7, 9, 19, 21] {
        let data: &'static [u8] = vec![0; length].leak();
        let odd =
            Update::explicit(3).bid(1, THIRD_CARE_OF).with(MobilityOption::Unknown { option_type: 35, data });
        let answer = agent.refuse(&odd, 164);
        assert_eq!(said(&answer).bids, [(1, 0)]);
        agent.wait(1.0);
    }
}

/// Conformance item 50; RFC 5648 6.2: status 164 for an option whose address is not unicast and routable, and
/// for BID 0 (4.3).
#[test]
fn bid_option_with_invalid_address_gets_status_164() {
    let mut agent = two();
    let bad = ["ff02::1", "fe80::1", "::", "::1", "::ffff:192.0.2.1", "0.0.0.0", "224.0.0.1", "127.0.0.1"];
    for address in bad {
        let answer = agent.refuse(&Update::explicit(3).bid(1, address), 164);
        assert_eq!(said(&answer).bids, [(1, 0)], "{address}");
        agent.wait(1.0);
    }
    agent.refuse(&Update::explicit(3).bid(0, CARE_OF), 164);
    // Of several options only the invalid one is refused. The number counts, so the next number is 4.
    let answer = agent.ask(&Update::explicit(3).bid(1, THIRD_CARE_OF).bid(3, "ff02::1").bid(0, CARE_OF));
    assert_eq!(answer.status(), 4);
    assert_eq!(said(&answer).bids, [(1, 0), (3, 164), (0, 164)]);
    // Of two options with one BID, the first counts.
    let answer = agent.ask(&Update::explicit(4).bid(1, CARE_OF).bid(1, THIRD_CARE_OF));
    assert_eq!((answer.status(), said(&answer).bids), (4, vec![(1, 0), (1, 164)]));
    assert_eq!(bindings(&agent), expected(&[(1, CARE_OF), (2, OTHER_CARE_OF)]));
}

/// Conformance item 51; RFC 5648 6.2: an option without an address needs a known BID.
#[test]
fn an_unknown_bid_without_address_is_167_in_its_option() {
    let mut agent = two();
    let answer = agent.refuse(&Update::explicit(3).known_bid(7), 4);
    assert_eq!(said(&answer).bids, [(7, 167)]);
    agent.wait(1.0);
    // An update refreshes both bindings by their BIDs alone.
    agent.wait(30.0);
    let answer = agent.accept(&Update::explicit(3).known_bid(1).known_bid(2));
    assert_eq!(said(&answer).bids, [(1, 0), (2, 0)]);
    agent.wait(40.0);
    assert_eq!(bindings(&agent), expected(&[(1, CARE_OF), (2, OTHER_CARE_OF)]));
}

/// Conformance item 52; RFC 5648 6.2: a bulk registration registers the valid options, and the answer has
/// status 4.
#[test]
fn one_invalid_binding_of_several_gets_status_4() {
    let mut agent = two();
    let bulk = Update::explicit(3).bid(1, THIRD_CARE_OF).bid(3, HOME).bid(4, AGENT).known_bid(9);
    let answer = agent.ask(&bulk);
    assert_eq!(answer.status(), 4);
    assert_eq!(said(&answer).bids, [(1, 0), (3, 174), (4, 174), (9, 167)]);
    assert_eq!(answer.lifetime(), 15);
    assert_eq!(bindings(&agent), expected(&[(1, THIRD_CARE_OF), (2, OTHER_CARE_OF)]));
    // Without a valid option nothing changes, and the sequence number does not count as used.
    let answer = agent.refuse(&Update::explicit(4).bid(1, HOME).bid(2, AGENT), 4);
    assert_eq!(said(&answer).bids, [(1, 174), (2, 174)]);
    agent.accept(&Update::explicit(4).bid(1, CARE_OF));
}

/// RFC 5648 4.4, 5.6: the home agent does not support a home link binding beside others: status 169.
#[test]
fn h_flag_in_bid_option_gets_status_169() {
    let mut agent = two();
    let home = MobilityOption::BindingIdentifier {
        bid: 3,
        status: 0,
        home: true,
        priority: 30,
        care_of_address: Some(addr(HOME).into()),
    };
    agent.refuse(&Update::explicit(3).with(home), 169);
    let answer = agent.ask(&Update::explicit(3).bid(1, THIRD_CARE_OF).with(home));
    assert_eq!((answer.status(), said(&answer).bids), (4, vec![(1, 0), (3, 169)]));
}

/// RFC 5648 4.4: the operator's config causes status 166 or 168.
#[test]
fn settings_of_the_operator_cause_status_166_or_168() {
    let with =
        |multiple_care_of_addresses| Agent::new(HomeAgentConfig { multiple_care_of_addresses, ..config() });
    let mut agent = with(MultipleCareOfAddresses::Prohibited);
    agent.refuse(&Update::explicit(1).bid(1, CARE_OF), 166);
    agent.accept(&Update::explicit(1));
    let mut agent = with(MultipleCareOfAddresses::Single);
    let answer = agent.refuse(&Update::explicit(1).bid(1, CARE_OF).bid(2, OTHER_CARE_OF), 168);
    assert_eq!(said(&answer).bids, [(1, 0), (2, 0)]);
    agent.accept(&Update::explicit(1).bid(1, CARE_OF));
    agent.accept(&Update::explicit(2).bid(2, OTHER_CARE_OF));
    assert_eq!(bindings(&agent).len(), 2);
}

/// The cache is bounded: status 130 for bindings beyond the limit, and room again after a binding has ended.
#[test]
fn number_of_bindings_of_a_node_is_bounded() {
    let mut agent = Agent::new(config());
    let address = |bid: u16| format!("2001:db8:f1::{bid:x}");
    for bid in 1..=MAX_BINDINGS as u16 {
        agent.accept(&Update::explicit(bid).bid(bid, &address(bid)));
    }
    agent.wait(2.0); // The node's allowance of Binding Updates is full again.
    agent.refuse(&Update::explicit(100).bid(100, &address(100)), 130);
    agent.accept(&Update::explicit(100).bid(1, &address(101)));
    agent.accept(&Update::implicit(101).lifetime(0).known_bid(1));
    agent.accept(&Update::explicit(102).bid(100, &address(100)));
    assert_eq!(bindings(&agent).len(), MAX_BINDINGS);
    // Replacing all bindings by as many others needs no more room.
    let mut bulk = Update::explicit(103).overwriting();
    for bid in 200..=200 + MAX_BINDINGS as u16 {
        bulk = bulk.bid(bid, &address(bid));
    }
    let answer = agent.ask(&bulk);
    assert_eq!(answer.status(), 4);
    let refused: Vec<_> = said(&answer).bids.into_iter().filter(|(_, status)| *status != 0).collect();
    assert_eq!(refused, [(200 + MAX_BINDINGS as u16, 130)]);
    assert_eq!(bindings(&agent).len(), MAX_BINDINGS);
    // A message with more options than any valid one is malformed.
    let mut many = Update::explicit(104);
    for bid in 1..40 {
        many = many.known_bid(bid);
    }
    agent.refuse(&many, 164);
}

/// Former care-of addresses are bounded too, so moves do not fill the memory.
#[test]
fn number_of_former_care_of_addresses_is_bounded() {
    let mut agent = Agent::new(config());
    for sequence in 1..200_u16 {
        agent.accept(&Update::explicit(sequence).bid(1, &format!("2001:db8:f1::{sequence:x}")));
        agent.wait(0.125); // The node's allowance permits no higher rate.
    }
    agent.accept(&Update::explicit(200).bid(1, "2001:db8:f1::c8"));
    assert!(agent.machine.bindings().former(addr(HOME)).len() <= 2 * MAX_BINDINGS);
    let last = addr("2001:db8:f1::c7").into();
    assert!(agent.machine.bindings().accepts(addr(HOME), last), "the latest is among them");
    agent.wait(5.1);
    assert!(agent.machine.bindings().former(addr(HOME)).is_empty());
}

/// Conformance item 55; RFC 5648 4.1: all bindings of a node share one sequence number.
#[test]
fn the_sequence_number_is_shared_by_all_bindings() {
    let mut agent = two();
    assert_eq!(agent.refuse(&Update::explicit(2).bid(1, CARE_OF), 135).sequence(), 2);
    assert_eq!(
        agent.refuse(&Update::explicit(1).from(OTHER_CARE_OF).bid(2, OTHER_CARE_OF), 135).sequence(),
        2
    );
    agent.accept(&Update::explicit(3).bid(1, CARE_OF));
    assert!(agent.machine.bindings().of(addr(HOME)).all(|binding| binding.sequence == 3));
}

/// RFC 3963 6.2: each Binding Update names all prefixes of the node, and the R flag does not change while the
/// node is bound.
#[test]
fn prefixes_and_r_flag_belong_to_all_bindings_of_a_node() {
    let two_prefixes = HomeAgentConfig { nodes: vec![node(HOME, &[PREFIX, SECOND_PREFIX])], ..config() };
    let mut agent = Agent::new(two_prefixes);
    agent.accept(&Update::explicit(1).prefix(SECOND_PREFIX).overwriting().bid(1, CARE_OF));
    agent.accept(&Update::explicit(2).bid(2, OTHER_CARE_OF));
    assert!(agent.machine.bindings().of(addr(HOME)).all(|binding| *binding.prefixes == [net(PREFIX)]));
    agent.refuse(&Update::node(3).bid(2, OTHER_CARE_OF), 139);
    agent.refuse(&Update::implicit(3).prefix("2001:db8:99::/64").bid(2, OTHER_CARE_OF), 142);
}

/// Design: the MAC covers the first care-of address that a Binding Identifier option names, not the source.
#[test]
fn the_mac_covers_the_address_that_the_option_names() {
    let mut agent = Agent::new(authenticated());
    let update = Update::explicit(1).from(THIRD_CARE_OF).overwriting().bid(1, CARE_OF).bid(2, OTHER_CARE_OF);
    let answer = agent.accept(&update.clone().signed());
    assert!(answer.is_signed(&association(), CARE_OF, HOME));
    assert_eq!(answer.destination, addr(THIRD_CARE_OF));
    // Without an address in any option the MAC covers the source.
    let answer = agent.accept(&Update::explicit(2).from(OTHER_CARE_OF).known_bid(1).known_bid(2).signed());
    assert!(answer.is_signed(&association(), OTHER_CARE_OF, HOME));
    // The MAC detects an option that an attacker has added or changed.
    let mut forged = update.clone().bid(3, THIRD_CARE_OF).signed();
    forged.sequence = 3;
    let mut octets = forged.header();
    let at = octets.windows(4).position(|four| four == [35, 20, 0, 3]).expect("the third option");
    octets[at + 3] = 4;
    let packet = forged.around(&mut octets);
    agent.ignore(&packet);
    assert_eq!(bindings(&agent).len(), 2);
}

/// Status 174 in an option: a care-of address in the node's own prefix, or a ring through other nodes (RFC
/// 6275 6.1.8).
#[test]
fn tunnel_loops_are_found_through_every_binding() {
    let second = "2001:db8:1::5678";
    let third = "2001:db8:1::9abc";
    let mut agent = Agent::new(HomeAgentConfig {
        nodes: vec![node(HOME, &[PREFIX]), node(second, &[SECOND_PREFIX]), node(third, &["2001:db8:c::/64"])],
        ..config()
    });
    agent.refuse(&Update::explicit(1).bid(1, "2001:db8:a::77"), 174);
    // Only the second binding of the second node lies in the first node's network.
    let behind = Update::implicit(1).of(second).bid(1, OTHER_CARE_OF).bid(2, "2001:db8:a::10");
    agent.accept(&behind);
    // The third node is in the network of the second.
    agent.accept(&Update::implicit(1).of(third).bid(1, CARE_OF).bid(2, "2001:db8:b::10"));
    // A care-of address of the first node behind the third would close the ring. Beside a valid binding only
    // that binding is refused.
    let answer = agent.ask(&Update::explicit(1).bid(1, "2001:db8:c::10").bid(2, THIRD_CARE_OF));
    assert_eq!((answer.status(), said(&answer).bids), (4, vec![(1, 174), (2, 0)]));
    agent.refuse(&Update::explicit(2).bid(1, "2001:db8:b::10"), 174);
    // The second node leaves the first node's network, so the ring is open.
    agent.accept(&Update::implicit(2).of(second).lifetime(0).known_bid(2));
    agent.accept(&Update::explicit(2).bid(1, "2001:db8:c::10"));
}
