//! Home agent: messages that are wrong, unknown or not for a home agent (RFC 6275 9.2, 9.3.3).

use carnet_base::Time;
use carnet_mobility::MobilityDrop;
use carnet_wire::mobility::MobilityOption;

use crate::agent::{TestAgent, config, parse_endpoint};
use crate::test_messages::*;

/// Length of IPv6 header and Destination Options header, in octets: the offset of the Mobility Header of a
/// Binding Update.
const MOBILITY_HEADER_OFFSET: u32 = 64;

/// Changes the Mobility Header of an update before the checksum is computed.
fn altered_packet(update: &TestUpdate, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut header = update.mobility_header();
    change(&mut header);
    update.packet_around(&mut header)
}

/// Conformance item 28, TAHI HA_1_1_3; RFC 6275 9.2, about the checksum: "If invalid, the node MUST silently
/// discard".
#[test]
fn message_with_wrong_checksum_gets_no_answer() {
    let mut agent = TestAgent::new(config());
    let mut packet = TestUpdate::explicit_update(1).to_packet();
    packet[MOBILITY_HEADER_OFFSET as usize + 4] ^= 0x55;
    assert_eq!(agent.expect_drop(&packet), MobilityDrop::BadChecksum);
}

/// RFC 6275 9.2: the home agent checks the checksum first, and drops a wrong one without an answer whatever
/// else is wrong.
#[test]
fn wrong_checksum_takes_precedence_over_other_errors() {
    for at in [0, 1, 2] {
        let mut agent = TestAgent::new(config());
        let mut packet = TestUpdate::explicit_update(1).to_packet();
        packet[MOBILITY_HEADER_OFFSET as usize + at] = if at == 2 { 255 } else { 0 };
        assert_eq!(agent.expect_drop(&packet), MobilityDrop::BadChecksum, "octet {at}");
    }
}

/// RFC 6275 6.1.1: the checksum's pseudo-header has the home address, not the care-of address.
#[test]
fn checksum_over_the_care_of_address_is_refused() {
    let mut agent = TestAgent::new(config());
    let update = TestUpdate::explicit_update(1);
    let mut header = update.mobility_header();
    carnet_wire::mobility::set_checksum(&mut header, addr(CARE_OF_ADDRESS), addr(HOME_AGENT_ADDRESS));
    let mut packet = update.to_packet();
    packet[MOBILITY_HEADER_OFFSET as usize..].copy_from_slice(&header);
    assert_eq!(agent.expect_drop(&packet), MobilityDrop::BadChecksum);
}

/// Conformance item 29, TAHI HA_1_1_1 and 1_1_5; RFC 6275 9.2, 9.3.3: a Binding Error with status 2, with and
/// without a binding.
#[test]
fn unknown_message_type_draws_a_binding_error() {
    let mut agent = TestAgent::new(config());
    for sequence in 1..3 {
        let answers =
            agent.receive_packet(&altered_packet(&TestUpdate::explicit_update(1), |header| header[2] = 255));
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].destination, addr(CARE_OF_ADDRESS));
        assert_eq!(
            answers[0].message,
            ReceivedMessage::BindingError { status: 2, home_address: addr(HOME_ADDRESS) }
        );
        assert_eq!(agent.last_drop_reason, Some(MobilityDrop::UnknownType));
        agent.expect_acceptance(&TestUpdate::explicit_update(sequence));
    }
}

/// RFC 6275 9.3.3: the home address of the Binding Error is unspecified if no option named one.
#[test]
fn binding_error_for_packet_without_home_address_has_unspecified_address() {
    let mut agent = TestAgent::new(config());
    let mut update = TestUpdate::explicit_update(1);
    update.home_address = None;
    let answers = agent.receive_packet(&altered_packet(&update, |header| header[2] = 255));
    assert_eq!(answers[0].message, ReceivedMessage::BindingError { status: 2, home_address: addr("::") });
}

/// Known message types that a home agent does not expect draw no Binding Error.
#[test]
fn home_agent_does_not_answer_message_types_for_other_roles() {
    let mut agent = TestAgent::new(config());
    for kind in [0, 6] {
        let packet = altered_packet(&TestUpdate::explicit_update(1), |header| header[2] = kind);
        assert_eq!(agent.expect_drop(&packet), MobilityDrop::UnknownType, "type {kind}");
    }
}

/// Conformance item 30, TAHI HA_1_1_2 and 1_1_6; RFC 6275 9.2: Parameter Problem 0 at the Payload Proto
/// field.
#[test]
fn wrong_payload_proto_draws_a_parameter_problem() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    let before = agent.describe_bindings();
    let answers =
        agent.receive_packet(&altered_packet(&TestUpdate::explicit_update(2), |header| header[0] = 58));
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].destination, addr(CARE_OF_ADDRESS));
    assert_eq!(
        answers[0].message,
        ReceivedMessage::ParameterProblem { code: 0, pointer: MOBILITY_HEADER_OFFSET }
    );
    assert_eq!(agent.last_drop_reason, Some(MobilityDrop::PayloadProtocol));
    assert_eq!(agent.describe_bindings(), before);
}

/// Conformance item 31, TAHI HA_1_1_4 and 1_1_7; RFC 6275 9.2: Parameter Problem 0 at the Header Len field.
#[test]
fn too_short_mobility_header_draws_a_parameter_problem() {
    let mut agent = TestAgent::new(config());
    let packet = altered_packet(&TestUpdate::explicit_update(1), |header| {
        header.truncate(8);
        header[1] = 0;
    });
    let answers = agent.receive_packet(&packet);
    assert_eq!(answers.len(), 1);
    assert_eq!(
        answers[0].message,
        ReceivedMessage::ParameterProblem { code: 0, pointer: MOBILITY_HEADER_OFFSET + 1 }
    );
    assert_eq!(agent.last_drop_reason, Some(MobilityDrop::Malformed));
}

/// RFC 6275 9.2: a header that is shorter on the wire than its length field has no checksum to verify.
#[test]
fn truncated_mobility_header_gets_no_answer() {
    let mut agent = TestAgent::new(config());
    let packet = altered_packet(&TestUpdate::explicit_update(1), |header| header[1] = 200);
    assert_eq!(agent.expect_drop(&packet), MobilityDrop::Malformed);
}

/// Conformance item 32; RFC 6275 6.2.1: a receiver "MUST" ignore an unknown option.
#[test]
fn unknown_mobility_options_are_skipped() {
    let mut agent = TestAgent::new(config());
    let unknown = MobilityOption::Unknown { option_type: 200, data: &[1, 2, 3, 4, 5] };
    agent.expect_acceptance(
        &TestUpdate::implicit_update(1).with_option(unknown).prefix(MOBILE_NETWORK_PREFIX),
    );
    assert_eq!(*agent.home_binding().expect("bound").prefixes, [net(MOBILE_NETWORK_PREFIX)]);
}

/// Conformance item 33: the home agent drops a message with an option that runs past the end.
#[test]
fn update_with_option_beyond_its_end_gets_no_answer() {
    let mut agent = TestAgent::new(config());
    let packet = altered_packet(&TestUpdate::explicit_update(1), |header| {
        // The prefix option claims more octets than are left.
        let at = header.iter().rposition(|octet| *octet == 18).expect("the length of the prefix option");
        header[at] = 100;
    });
    assert_eq!(agent.expect_drop(&packet), MobilityDrop::Malformed);
}

/// The home agent drops a message with a known option of a wrong length.
#[test]
fn known_option_with_wrong_length_gets_no_answer() {
    let mut agent = TestAgent::new(config());
    let short = MobilityOption::Unknown { option_type: 3, data: &[0; 15] };
    assert_eq!(
        agent.expect_drop(&TestUpdate::explicit_update(1).with_option(short).to_packet()),
        MobilityDrop::Malformed
    );
}

/// The home agent answers unauthenticated sources a few times per second, not once for each packet, so it is
/// no reflector.
#[test]
fn answers_to_unknown_sources_are_rate_limited() {
    let mut agent = TestAgent::new(config());
    let mut answers = 0;
    for _ in 0..1000 {
        answers += agent
            .receive_packet(&altered_packet(&TestUpdate::explicit_update(1), |header| header[2] = 255))
            .len();
        answers += agent
            .receive_packet(&altered_packet(&TestUpdate::explicit_update(1), |header| header[0] = 0))
            .len();
        answers +=
            agent.send_update(&TestUpdate::explicit_update(1).for_home_address("2001:db8:99::1")).len();
    }
    assert!(answers < 100, "{answers} answers at one instant");
}

/// Answers to unknown message types have their own limit: a burst of 20, then 20 per second, as documented.
/// Sources that use it up do not delay the Binding Errors that report lost bindings.
#[test]
fn answers_to_unknown_message_types_are_rate_limited() {
    let mut agent = TestAgent::new(config());
    let unknown = altered_packet(&TestUpdate::explicit_update(1), |header| header[2] = 255);
    let answered =
        |agent: &mut TestAgent| (0..1000).map(|_| agent.receive_packet(&unknown).len()).sum::<usize>();
    assert_eq!(answered(&mut agent), 20);
    assert_eq!(agent.last_drop_reason, Some(MobilityDrop::RateLimited));
    let now = agent.now;
    agent.home_agent.answer_unbound_packet(
        now,
        addr(HOME_AGENT_ADDRESS).into(),
        addr(CARE_OF_ADDRESS).into(),
        addr(HOME_ADDRESS),
    );
    assert_eq!(agent.take_answers().len(), 1);
    agent.advance_time(1.0);
    assert_eq!(answered(&mut agent), 20);
}

/// Design, "a home agent that lost its bindings": the home agent sends a Binding Error to its own nodes only.
#[test]
fn home_address_option_without_binding_draws_a_binding_error() {
    let mut agent = TestAgent::new(config());
    let unbound = |agent: &mut TestAgent, outer: &str, inner: &str| {
        let now = agent.now;
        agent.home_agent.answer_unbound_packet(
            now,
            addr(HOME_AGENT_ADDRESS).into(),
            addr(outer).into(),
            addr(inner),
        );
        agent.take_answers()
    };
    for inner in [HOME_ADDRESS, "2001:db8:a::77"] {
        let answers = unbound(&mut agent, CARE_OF_ADDRESS, inner);
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].destination, addr(CARE_OF_ADDRESS));
        assert_eq!(
            answers[0].message,
            ReceivedMessage::BindingError { status: 1, home_address: addr(HOME_ADDRESS) }
        );
    }
    assert!(unbound(&mut agent, CARE_OF_ADDRESS, "2001:db8:99::1").is_empty());
    assert!(unbound(&mut agent, "fe80::1", HOME_ADDRESS).is_empty());
    assert!(unbound(&mut agent, "ff02::1", HOME_ADDRESS).is_empty());
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    assert!(unbound(&mut agent, CARE_OF_ADDRESS, HOME_ADDRESS).is_empty());
    assert_eq!(
        agent.home_agent.home_address_without_binding(parse_endpoint(CARE_OF_ADDRESS), addr(HOME_ADDRESS)),
        None
    );
    assert_eq!(
        agent
            .home_agent
            .home_address_without_binding(parse_endpoint(OTHER_CARE_OF_ADDRESS), addr(HOME_ADDRESS)),
        Some(addr(HOME_ADDRESS))
    );
}

/// RFC 6275 9.3.1: the sender has a binding, but to another care-of address, so it gets a Binding Error.
#[test]
fn a_home_address_option_from_another_care_of_address_draws_a_binding_error() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    agent.expect_acceptance(&TestUpdate::explicit_update(2).from(OTHER_CARE_OF_ADDRESS));
    let now: Time = agent.now;
    agent.home_agent.answer_unbound_packet(
        now,
        addr(HOME_AGENT_ADDRESS).into(),
        addr(CARE_OF_ADDRESS).into(),
        addr(HOME_ADDRESS),
    );
    assert!(agent.take_answers().is_empty(), "the grace of the move");
    agent.advance_time(6.0);
    let now = agent.now;
    agent.home_agent.answer_unbound_packet(
        now,
        addr(HOME_AGENT_ADDRESS).into(),
        addr(CARE_OF_ADDRESS).into(),
        addr(HOME_ADDRESS),
    );
    let answers = agent.take_answers();
    assert_eq!(answers.len(), 1);
    assert_eq!(
        answers[0].message,
        ReceivedMessage::BindingError { status: 1, home_address: addr(HOME_ADDRESS) }
    );
}
