//! Home agent: registrations by RFC 6275 9.5 and 10.3.1.

use std::time::Duration;

use carnet_mobility::MobilityDrop;
use carnet_mobility::home_agent::HomeAgentConfig;
use carnet_wire::mobility::{BindingUpdateFlags, MobilityOption};

use crate::agent::{TestAgent, authorized_node, config};
use crate::test_messages::*;

/// Conformance item 22, TAHI HA_2_1_1 and 2_1_2; RFC 6275 10.3.1: the home agent answers "Regardless of the
/// setting of the Acknowledge (A) bit".
#[test]
fn a_binding_update_is_acknowledged_with_and_without_the_a_flag() {
    for acknowledge in [true, false] {
        let mut agent = TestAgent::new(config());
        let flags = BindingUpdateFlags { acknowledge, ..ROUTER_FLAGS };
        let answer = agent.expect_acceptance(&TestUpdate::explicit_update(1).with_flags(flags));
        assert_eq!(answer.lifetime(), 15);
        assert_eq!(agent.registered_care_of_address(), Some(addr(CARE_OF_ADDRESS)));
    }
}

/// Conformance item 23; RFC 6275 9.5.4: the answer to an update with a Home Address option has a type 2
/// routing header.
#[test]
fn acknowledgement_contains_home_address_in_type_2_routing_header() {
    let mut agent = TestAgent::new(config());
    let answer = agent.expect_acceptance(&TestUpdate::explicit_update(1));
    assert_eq!(answer.source, addr(HOME_AGENT_ADDRESS));
    assert_eq!(answer.destination, addr(CARE_OF_ADDRESS));
    assert_eq!(answer.routing_home_address, Some(addr(HOME_ADDRESS)));
    assert_eq!(answer.home_address, None);
    assert_eq!(answer.hop_limit, 64);
}

/// Conformance item 23; RFC 6275 9.5.4: "the routing header MUST NOT be used" when the source is the home
/// address.
#[test]
fn an_acknowledgement_to_the_home_address_has_no_routing_header() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    let answer = agent.expect_acceptance(&TestUpdate::explicit_update(2).sent_on_home_link().lifetime(0));
    assert_eq!(answer.destination, addr(HOME_ADDRESS));
    assert_eq!(answer.routing_home_address, None);
}

/// Conformance items 24 and 26; RFC 6275 9.5.1, 9.5.4: the home agent registers the option's address and
/// answers to the source.
#[test]
fn home_agent_binds_alternate_care_of_address_and_answers_the_source() {
    let mut agent = TestAgent::new(config());
    let answer = agent.expect_acceptance(
        &TestUpdate::explicit_update(1).with_alternate_care_of_address(OTHER_CARE_OF_ADDRESS),
    );
    assert_eq!(answer.destination, addr(CARE_OF_ADDRESS));
    assert_eq!(agent.registered_care_of_address(), Some(addr(OTHER_CARE_OF_ADDRESS)));
}

/// Conformance item 27; RFC 6275 6.1.7 and 9.5.1: a care-of address must be unicast and routable.
#[test]
fn updates_with_an_invalid_care_of_address_get_no_answer() {
    let mut agent = TestAgent::new(config());
    for alternate in ["ff02::1", "ff0e::1", "fe80::1", "::", "::1"] {
        let update = TestUpdate::explicit_update(1).with_alternate_care_of_address(alternate);
        assert_eq!(agent.expect_drop(&update.to_packet()), MobilityDrop::CareOfAddress, "{alternate}");
    }
    for source in ["fe80::1", "ff02::1", "::"] {
        agent.expect_drop(&TestUpdate::explicit_update(1).from(source).to_packet());
    }
}

/// TAHI HA_2_2_9, 2_2_10, 2_2_13; RFC 6275 9.5.1: an update "MUST contain a unicast routable home address".
#[test]
fn updates_with_an_invalid_home_address_get_no_answer() {
    let mut agent = TestAgent::new(config());
    for home in ["ff02::1", "ff1e::1", "fe80::1234", "::"] {
        let update = TestUpdate::explicit_update(1).for_home_address(home);
        assert_eq!(agent.expect_drop(&update.to_packet()), MobilityDrop::HomeAddress, "{home}");
    }
}

/// RFC 6275 9.5.1 and 10.3.1: a Binding Acknowledgement copies the sequence number of the Binding Update.
/// With status 135 it has the last accepted sequence number instead.
#[test]
fn refusal_of_old_sequence_number_contains_the_last_accepted_one() {
    let mut agent = TestAgent::new(config());
    assert_eq!(agent.expect_acceptance(&TestUpdate::explicit_update(15)).sequence(), 15);
    // TAHI SEQ: 32783 is old, as the example in RFC 6275 9.5.1 says.
    for old in [15, 14, 0, 65_535, 32_784, 32_783] {
        let answer = agent.expect_refusal(&TestUpdate::explicit_update(old).from(OTHER_CARE_OF_ADDRESS), 135);
        assert_eq!(answer.sequence(), 15, "{old}");
        assert_eq!(answer.destination, addr(OTHER_CARE_OF_ADDRESS));
    }
    assert_eq!(agent.expect_acceptance(&TestUpdate::explicit_update(16)).sequence(), 16);
    assert_eq!(agent.expect_acceptance(&TestUpdate::explicit_update(32_783)).sequence(), 32_783);
    assert_eq!(agent.expect_acceptance(&TestUpdate::explicit_update(65_535)).sequence(), 65_535);
    assert_eq!(agent.expect_acceptance(&TestUpdate::explicit_update(0)).sequence(), 0);
}

/// RFC 6275 9.5.1: without an entry "it MUST accept any Sequence Number".
#[test]
fn without_a_binding_any_sequence_number_is_accepted() {
    for first in [0, 1, 32_768, 65_535] {
        TestAgent::new(config()).expect_acceptance(&TestUpdate::explicit_update(first));
    }
}

/// A refused Binding Update is no "previous valid Binding Update": its number is not remembered (9.5.1).
#[test]
fn home_agent_does_not_store_sequence_number_of_refused_update() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(10));
    agent.expect_refusal(&TestUpdate::implicit_update(500).prefix(SECOND_MOBILE_NETWORK_PREFIX), 142);
    agent.expect_acceptance(&TestUpdate::explicit_update(11));
}

/// Conformance item 34, TAHI HA_2_1_3; RFC 6275 10.3.1: the granted lifetime is at most the requested one and
/// at most the operator's limit.
#[test]
fn lifetimes_are_as_requested_up_to_the_limit() {
    let mut agent = TestAgent::new(config());
    assert_eq!(agent.expect_acceptance(&TestUpdate::explicit_update(1).lifetime(15)).lifetime(), 15);
    assert_eq!(agent.expect_acceptance(&TestUpdate::explicit_update(2).lifetime(3)).lifetime(), 3);
    assert_eq!(agent.expect_acceptance(&TestUpdate::explicit_update(3).lifetime(1)).lifetime(), 1);
    assert_eq!(agent.expect_acceptance(&TestUpdate::explicit_update(4).lifetime(0xffff)).lifetime(), 150);
    assert_eq!(agent.home_binding().expect("bound").lifetime, Duration::from_secs(600));
    let odd = HomeAgentConfig { max_lifetime: Duration::from_secs(63), ..config() };
    assert_eq!(
        TestAgent::new(odd).expect_acceptance(&TestUpdate::explicit_update(1).lifetime(100)).lifetime(),
        15
    );
}

/// TAHI HA_2_1_4; RFC 6275 10.3.1: a binding "MUST be deleted by the home agent after the expiration of this
/// lifetime".
#[test]
fn a_binding_ends_with_its_lifetime() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1).lifetime(2));
    agent.advance_time(7.9);
    assert!(agent.home_binding().is_some());
    let changes = agent.forwarding_changes;
    agent.advance_time(0.2);
    assert!(agent.home_binding().is_none());
    assert_eq!(agent.forwarding_changes, changes + 1);
}

/// The lifetime of a refresh counts from its arrival, and the earlier end is void.
#[test]
fn a_refresh_prolongs_the_binding() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1).lifetime(5));
    agent.advance_time(15.0);
    agent.expect_acceptance(&TestUpdate::explicit_update(2).lifetime(5));
    agent.advance_time(15.0);
    assert!(agent.home_binding().is_some());
    agent.advance_time(5.1);
    assert!(agent.home_binding().is_none());
}

/// Returns as text the parts of a binding that forwarding uses.
fn describe_forwarding(agent: &TestAgent) -> String {
    let binding = agent.home_binding().expect("bound");
    format!(
        "{} {:?} {:?} {:?} {} {:?}",
        binding.home_address,
        binding.tunnel_ends(),
        agent.home_agent.bindings().former_paths(addr(HOME_ADDRESS)),
        binding.prefixes,
        binding.mobile_router,
        binding.state
    )
}

/// RFC 6275 10.3.1: a refresh with the same care-of address changes nothing that forwarding uses.
#[test]
fn a_refresh_with_the_same_care_of_address_changes_no_forwarding_state() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    let before = describe_forwarding(&agent);
    for sequence in 2..20 {
        agent.advance_time(3.0);
        agent.expect_acceptance(&TestUpdate::explicit_update(sequence));
        assert_eq!(describe_forwarding(&agent), before);
    }
}

/// A refresh within the grace period of a move does not change how long the old care-of address is accepted.
#[test]
fn the_old_care_of_address_is_kept_for_the_grace_period() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    agent.expect_acceptance(&TestUpdate::explicit_update(2).from(OTHER_CARE_OF_ADDRESS));
    let previous = |agent: &TestAgent| {
        let former = agent.home_agent.bindings().former_paths(addr(HOME_ADDRESS));
        assert!(former.len() <= 1);
        former.first().and_then(|path| path.care_of_address.ipv6())
    };
    assert_eq!(previous(&agent), Some(addr(CARE_OF_ADDRESS)));
    agent.advance_time(3.0);
    agent.expect_acceptance(&TestUpdate::explicit_update(3).from(OTHER_CARE_OF_ADDRESS));
    assert_eq!(previous(&agent), Some(addr(CARE_OF_ADDRESS)));
    agent.advance_time(2.1);
    assert_eq!(previous(&agent), None);
}

/// Conformance item 36; RFC 6275 9.5.1: an update without the H flag for a home registration gets status 139.
#[test]
fn update_without_h_flag_for_a_home_registration_gets_status_139() {
    let mut agent = TestAgent::new(config());
    let correspondent =
        TestUpdate::implicit_update(2).with_flags(BindingUpdateFlags { acknowledge: true, ..NO_FLAGS });
    assert_eq!(agent.expect_drop(&correspondent.to_packet()), MobilityDrop::NotHomeRegistration);
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    agent.expect_refusal(&correspondent, 139);
}

/// TAHI HA_2_2_7; RFC 6275 9.5.1: "the Nonce Indices mobility option MUST NOT be present" with H.
#[test]
fn home_registration_with_nonce_indices_gets_no_answer() {
    let mut agent = TestAgent::new(config());
    let nonces = MobilityOption::Unknown { option_type: 4, data: &[0, 1, 0, 2] };
    assert_eq!(
        agent.expect_drop(&TestUpdate::explicit_update(1).with_option(nonces).to_packet()),
        MobilityDrop::NonceIndices
    );
}

/// TAHI HA_2_2_1, 2_2_2; RFC 6275 10.3.1: status 132 with and without the A flag; RFC 3963 6.2 (item 14).
#[test]
fn home_address_outside_every_served_prefix_gets_status_132() {
    let mut agent = TestAgent::new(config());
    for acknowledge in [true, false] {
        let flags = BindingUpdateFlags { acknowledge, ..ROUTER_FLAGS };
        agent.expect_refusal(
            &TestUpdate::explicit_update(1).for_home_address("2001:db8:99::1").with_flags(flags),
            132,
        );
    }
}

/// TAHI HA_2_2_3, item 43; RFC 6275 10.3.1: the home agent drops an update for a home address that no node
/// has.
#[test]
fn updates_for_an_unassigned_home_address_get_no_answer() {
    let mut agent = TestAgent::new(config());
    for home in ["2001:db8:1::1235", HOME_AGENT_ADDRESS, "2001:db8:a::1"] {
        let update = TestUpdate::explicit_update(1).for_home_address(home);
        assert_eq!(agent.expect_drop(&update.to_packet()), MobilityDrop::Unauthorized, "{home}");
    }
}

/// RFC 6275 10.3.1: "A Home Address destination option MUST be present" in a registration.
#[test]
fn a_registration_without_a_home_address_option_is_refused() {
    let mut agent = TestAgent::new(config());
    agent.expect_refusal(
        &TestUpdate::explicit_update(1).sent_on_home_link().with_alternate_care_of_address(CARE_OF_ADDRESS),
        128,
    );
}

/// TAHI HA_2_1_14; RFC 6275 6.1.7: reserved bits "MUST be ignored by the receiver".
#[test]
fn reserved_bits_are_ignored() {
    let mut agent = TestAgent::new(config());
    let update = TestUpdate::explicit_update(1);
    let mut header = update.mobility_header();
    header[3] = 0xff; // reserved octet of the Mobility Header
    header[9] |= 0x3f; // flags that no standard defines
    let answers = agent.receive_packet(&update.packet_around(&mut header));
    assert_eq!(answers[0].status(), 0);
    assert!(agent.home_binding().is_some());
}

/// TAHI HA_2_1_10, 2_1_11; RFC 6275 10.3.1: K requires dynamically keyed IPsec, which carnet does not
/// support.
#[test]
fn acknowledgement_always_clears_the_k_flag() {
    let mut agent = TestAgent::new(config());
    for (sequence, key_management) in [(1, true), (2, false)] {
        let answer = agent.expect_acceptance(
            &TestUpdate::explicit_update(sequence)
                .with_flags(BindingUpdateFlags { key_management, ..ROUTER_FLAGS }),
        );
        assert!(matches!(answer.message, ReceivedMessage::Acknowledgement { key_management: false, .. }));
    }
}

/// Conformance item 42; RFC 6275 10.3.1, 10.3.2: the home agent sends no Binding Refresh Advice, since it
/// stores its bindings, and none in answers to de-registrations.
#[test]
fn acknowledgement_has_no_refresh_advice() {
    let mut agent = TestAgent::new(config());
    assert_eq!(agent.expect_acceptance(&TestUpdate::explicit_update(1)).options().refresh_advice, None);
    assert_eq!(
        agent.expect_acceptance(&TestUpdate::explicit_update(2).lifetime(0)).options().refresh_advice,
        None
    );
}

/// The bindings of several nodes are independent.
#[test]
fn home_agent_keeps_separate_bindings_for_each_home_address() {
    let mut two = config();
    two.nodes.push(authorized_node("2001:db8:1::5678", &[SECOND_MOBILE_NETWORK_PREFIX]));
    let mut agent = TestAgent::new(two);
    agent.expect_acceptance(&TestUpdate::explicit_update(100));
    agent.expect_acceptance(
        &TestUpdate::implicit_update(5)
            .for_home_address("2001:db8:1::5678")
            .from(OTHER_CARE_OF_ADDRESS)
            .prefix(SECOND_MOBILE_NETWORK_PREFIX),
    );
    agent.expect_acceptance(
        &TestUpdate::implicit_update(6)
            .for_home_address("2001:db8:1::5678")
            .from(OTHER_CARE_OF_ADDRESS)
            .lifetime(0),
    );
    assert_eq!(agent.registered_care_of_address(), Some(addr(CARE_OF_ADDRESS)));
    assert!(agent.binding_of("2001:db8:1::5678").is_none());
}

/// An update that renews a binding unchanged reports no change of forwarding, so the station does not
/// recompute it. Every other update reports one.
#[test]
fn a_renewed_binding_reports_no_change_of_forwarding() {
    let two_prefixes = HomeAgentConfig {
        nodes: vec![authorized_node(HOME_ADDRESS, &[MOBILE_NETWORK_PREFIX, SECOND_MOBILE_NETWORK_PREFIX])],
        ..config()
    };
    let mut agent = TestAgent::new(two_prefixes);
    let changes = |agent: &mut TestAgent, update: &TestUpdate| {
        let before = agent.forwarding_changes;
        agent.expect_acceptance(update);
        agent.forwarding_changes - before
    };
    assert_eq!(changes(&mut agent, &TestUpdate::explicit_update(1)), 1, "it begins");
    assert_eq!(changes(&mut agent, &TestUpdate::explicit_update(2)), 0, "renewed");
    assert_eq!(changes(&mut agent, &TestUpdate::explicit_update(3).lifetime(5)), 0, "for another lifetime");
    assert_eq!(
        changes(&mut agent, &TestUpdate::explicit_update(4).from(OTHER_CARE_OF_ADDRESS)),
        1,
        "elsewhere"
    );
    assert_eq!(
        changes(&mut agent, &TestUpdate::explicit_update(5).from(OTHER_CARE_OF_ADDRESS)),
        0,
        "renewed there"
    );
    assert_eq!(
        changes(&mut agent, &TestUpdate::explicit_update(6)),
        1,
        "back again, and no more a path that was left"
    );
    assert_eq!(changes(&mut agent, &TestUpdate::implicit_update(7)), 1, "with another prefix");
    assert_eq!(changes(&mut agent, &TestUpdate::explicit_update(8).lifetime(0)), 1, "it ends");
}
