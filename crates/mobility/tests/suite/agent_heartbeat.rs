//! Home agent: heartbeats (RFC 5847 3).

use carnet_mobility::MobilityDrop;
use carnet_wire::mobility::{MobilityHeader, MobilityHeaderBuilder, MobilityOption, ParsedMobilityMessage};

use crate::agent::{TestAgent, config};
use crate::agent_multiple::agent_with_two_bindings;
use crate::several_care_of_addresses::*;
use crate::test_messages::*;

const AGENT_ENDPOINT: &str = "udp:10.0.0.1:4191";
const NODE_ENDPOINT: &str = "udp:198.51.100.9:40123";

pub fn heartbeat_request(source: &str, sequence: u32) -> Vec<u8> {
    let from = TestUpdate::implicit_update(0).from(source);
    TestUpdate { home_address: None, ..from }
        .packet_around(&mut MobilityHeaderBuilder::heartbeat_request(sequence).finish())
}

/// Returns sequence number and restart counter of a response.
fn parse_response(seen: &ReceivedPacket) -> (u32, u32) {
    let header = MobilityHeader::parse(&seen.mobility_header).expect("a Mobility Header");
    let Ok(ParsedMobilityMessage::Heartbeat(heartbeat)) = header.message() else { panic!("{seen:?}") };
    assert!(heartbeat.response && !heartbeat.unsolicited);
    let options: Vec<_> = heartbeat.options.iter().collect();
    let [Ok(MobilityOption::RestartCounter(counter))] = options[..] else { panic!("{options:?}") };
    (heartbeat.sequence, counter)
}

/// RFC 5847 3, 3.2: the home agent answers a request over a registered path with the request's number and its
/// own restart counter.
#[test]
fn heartbeat_of_registered_node_is_answered_over_each_path() {
    let mut agent = agent_with_two_bindings();
    agent.home_agent.set_restart_counter(41);
    for (sequence, source) in [(7, CARE_OF_ADDRESS), (8, OTHER_CARE_OF_ADDRESS)] {
        let answers = agent.receive_packet(&heartbeat_request(source, sequence));
        assert_eq!(agent.last_drop_reason, None);
        assert_eq!(answers.len(), 1);
        assert_eq!((answers[0].source, answers[0].destination), (addr(HOME_AGENT_ADDRESS), addr(source)));
        assert_eq!(answers[0].routing_home_address, None);
        assert_eq!(parse_response(&answers[0]), (sequence, 41));
    }
}

/// A request inside UDP gets its answer inside UDP, at the address and port that it came from.
#[test]
fn heartbeat_inside_udp_is_answered() {
    let mut agent = TestAgent::new(config());
    agent.receive_inside_tunnel(
        AGENT_ENDPOINT,
        NODE_ENDPOINT,
        &TestUpdate::explicit_update(1).sent_on_ipv4_network().with_bid(1, "192.0.2.77").to_packet(),
    );
    let answers =
        agent.receive_inside_tunnel(AGENT_ENDPOINT, NODE_ENDPOINT, &heartbeat_request(HOME_ADDRESS, 9));
    assert_eq!(parse_response(&answers[0]), (9, 0));
    assert_eq!(answers[0].destination, addr(HOME_ADDRESS));
    // A request from another port matches no binding, because the NAT has lost its mapping. A Binding Error
    // makes the node register.
    let other = "udp:198.51.100.9:40124";
    let answers = agent.receive_inside_tunnel(AGENT_ENDPOINT, other, &heartbeat_request(HOME_ADDRESS, 10));
    assert_eq!(agent.last_drop_reason, Some(MobilityDrop::WrongParty));
    assert_eq!(
        answers[0].message,
        ReceivedMessage::BindingError { status: 1, home_address: addr(HOME_ADDRESS) }
    );
    // The home agent sends no Binding Error to an unknown home address.
    assert!(
        agent
            .receive_inside_tunnel(AGENT_ENDPOINT, other, &heartbeat_request("2001:db8:99::1", 11))
            .is_empty()
    );
}

/// The home agent sends a response only to a current care-of address of the node. It does not answer a
/// response.
#[test]
fn heartbeat_of_unregistered_node_gets_no_answer() {
    let mut agent = agent_with_two_bindings();
    for source in [THIRD_CARE_OF_ADDRESS, HOME_ADDRESS] {
        assert_eq!(agent.expect_drop(&heartbeat_request(source, 1)), MobilityDrop::WrongParty);
    }
    agent.expect_acceptance(&TestUpdate::implicit_update(3).lifetime(0).with_known_bid(1));
    assert_eq!(agent.expect_drop(&heartbeat_request(CARE_OF_ADDRESS, 1)), MobilityDrop::WrongParty);
    let mut response = MobilityHeaderBuilder::heartbeat_response(1).finish();
    let from = TestUpdate::implicit_update(0).from(OTHER_CARE_OF_ADDRESS);
    let packet = TestUpdate { home_address: None, ..from }.packet_around(&mut response);
    assert_eq!(agent.expect_drop(&packet), MobilityDrop::Unexpected);
}

/// The home agent answers several paths with a few requests a second each. It does so also while an attacker
/// sends a thousand requests a second in the node's name. It limits its answers to an unbounded flood.
#[test]
fn flood_of_heartbeats_is_rate_limited() {
    let mut agent = agent_with_two_bindings();
    for round in 0..200 {
        for forged in 0..50 {
            agent.receive_packet(&heartbeat_request(CARE_OF_ADDRESS, 7_000_000 + forged));
        }
        for source in [CARE_OF_ADDRESS, OTHER_CARE_OF_ADDRESS] {
            assert_eq!(agent.receive_packet(&heartbeat_request(source, round)).len(), 1);
        }
        agent.advance_time(0.05);
    }
    agent.advance_time(2.0);
    let mut answered = 0;
    for round in 0..20_000 {
        answered += agent.receive_packet(&heartbeat_request(CARE_OF_ADDRESS, round)).len();
    }
    assert!(answered <= 1_281, "{answered} at one instant");
    assert_eq!(agent.last_drop_reason, Some(MobilityDrop::RateLimited));
}

/// A heartbeat that is too short is malformed.
#[test]
fn truncated_heartbeat_is_malformed() {
    let mut agent = agent_with_two_bindings();
    let from = TestUpdate::implicit_update(0).from(CARE_OF_ADDRESS);
    let packet = TestUpdate { home_address: None, ..from }.packet_around(&mut [59, 0, 13, 0, 0, 0, 0, 0]);
    let answers = agent.receive_packet(&packet);
    assert_eq!(agent.last_drop_reason, Some(MobilityDrop::Malformed));
    assert!(matches!(answers[0].message, ReceivedMessage::ParameterProblem { code: 0, .. }));
}
