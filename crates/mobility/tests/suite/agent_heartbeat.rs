//! Home agent: heartbeats (RFC 5847 3).

use carnet_mobility::MobilityDrop;
use carnet_wire::mobility::{Builder, Message, MobilityHeader, MobilityOption};

use crate::agent::{Agent, config};
use crate::agent_multiple::two;
use crate::craft::*;
use crate::several::*;

const HERE: &str = "udp:10.0.0.1:4191";
const THERE: &str = "udp:198.51.100.9:40123";

pub fn request(source: &str, sequence: u32) -> Vec<u8> {
    let from = Update::implicit(0).from(source);
    Update { home_address: None, ..from }.around(&mut Builder::heartbeat_request(sequence).finish())
}

/// Returns sequence number and restart counter of a response.
fn response(seen: &Seen) -> (u32, u32) {
    let header = MobilityHeader::parse(&seen.mobility_header).expect("a Mobility Header");
    let Ok(Message::Heartbeat(heartbeat)) = header.message() else { panic!("{seen:?}") };
    assert!(heartbeat.response && !heartbeat.unsolicited);
    let options: Vec<_> = heartbeat.options.iter().collect();
    let [Ok(MobilityOption::RestartCounter(counter))] = options[..] else { panic!("{options:?}") };
    (heartbeat.sequence, counter)
}

/// RFC 5847 3, 3.2: the home agent answers a request over a registered path with the request's number and its
/// own restart counter.
#[test]
fn heartbeat_of_registered_node_is_answered_over_each_path() {
    let mut agent = two();
    agent.machine.set_restart_counter(41);
    for (sequence, source) in [(7, CARE_OF), (8, OTHER_CARE_OF)] {
        let answers = agent.receive(&request(source, sequence));
        assert_eq!(agent.dropped, None);
        assert_eq!(answers.len(), 1);
        assert_eq!((answers[0].source, answers[0].destination), (addr(AGENT), addr(source)));
        assert_eq!(answers[0].routing_home_address, None);
        assert_eq!(response(&answers[0]), (sequence, 41));
    }
}

/// A request inside UDP gets its answer inside UDP, at the address and port that it came from.
#[test]
fn heartbeat_inside_udp_is_answered() {
    let mut agent = Agent::new(config());
    agent.receive_inside(HERE, THERE, &Update::explicit(1).inside().bid(1, "192.0.2.77").packet());
    let answers = agent.receive_inside(HERE, THERE, &request(HOME, 9));
    assert_eq!(response(&answers[0]), (9, 0));
    assert_eq!(answers[0].destination, addr(HOME));
    // A request from another port matches no binding, because the NAT has lost its mapping. A Binding Error
    // makes the node register.
    let other = "udp:198.51.100.9:40124";
    let answers = agent.receive_inside(HERE, other, &request(HOME, 10));
    assert_eq!(agent.dropped, Some(MobilityDrop::WrongParty));
    assert_eq!(answers[0].message, SeenMessage::BindingError { status: 1, home_address: addr(HOME) });
    // The home agent sends no Binding Error to an unknown home address.
    assert!(agent.receive_inside(HERE, other, &request("2001:db8:99::1", 11)).is_empty());
}

/// The home agent sends a response only to a current care-of address of the node. It does not answer a
/// response.
#[test]
fn heartbeat_of_unregistered_node_gets_no_answer() {
    let mut agent = two();
    for source in [THIRD_CARE_OF, HOME] {
        assert_eq!(agent.ignore(&request(source, 1)), MobilityDrop::WrongParty);
    }
    agent.accept(&Update::implicit(3).lifetime(0).known_bid(1));
    assert_eq!(agent.ignore(&request(CARE_OF, 1)), MobilityDrop::WrongParty);
    let mut response = Builder::heartbeat_response(1).finish();
    let from = Update::implicit(0).from(OTHER_CARE_OF);
    let packet = Update { home_address: None, ..from }.around(&mut response);
    assert_eq!(agent.ignore(&packet), MobilityDrop::Unexpected);
}

/// The home agent answers several paths with a few requests a second each. It does so also while an attacker
/// sends a thousand requests a second in the node's name. It limits its answers to an unbounded flood.
#[test]
fn flood_of_heartbeats_is_rate_limited() {
    let mut agent = two();
    for round in 0..200 {
        for forged in 0..50 {
            agent.receive(&request(CARE_OF, 7_000_000 + forged));
        }
        for source in [CARE_OF, OTHER_CARE_OF] {
            assert_eq!(agent.receive(&request(source, round)).len(), 1);
        }
        agent.wait(0.05);
    }
    agent.wait(2.0);
    let mut answered = 0;
    for round in 0..20_000 {
        answered += agent.receive(&request(CARE_OF, round)).len();
    }
    assert!(answered <= 1_281, "{answered} at one instant");
    assert_eq!(agent.dropped, Some(MobilityDrop::RateLimited));
}

/// A heartbeat that is too short is malformed.
#[test]
fn truncated_heartbeat_is_malformed() {
    let mut agent = two();
    let from = Update::implicit(0).from(CARE_OF);
    let packet = Update { home_address: None, ..from }.around(&mut [59, 0, 13, 0, 0, 0, 0, 0]);
    let answers = agent.receive(&packet);
    assert_eq!(agent.dropped, Some(MobilityDrop::Malformed));
    assert!(matches!(answers[0].message, SeenMessage::ParameterProblem { code: 0, .. }));
}
