//! Compares the length of a home agent's answers to unauthenticated sources with the table in
//! `docs/threats.md`.

mod common;

use carnet_base::{Rng, Time};
use carnet_mobility::home_agent::PeerHomeAgent;
use carnet_station::io::{Input, NemoOutput, Output};
use carnet_station::{PersistentState, Station, StationConfig};
use carnet_wire::checksum::upper_layer_checksum;
use carnet_wire::discovery::{HomeAgentDiscoveryRequest, home_agents_anycast};
use carnet_wire::ipv6::protocol;
use carnet_wire::mobility::MobilityHeaderBuilder;
use common::{AGENT_ADDRESS, HOST_ADDRESS, WALL_TIME, address, agent_config, data_packet_between};

const UNKNOWN_SOURCE: &str = "2001:db8:bad::5";

fn config() -> StationConfig {
    let mut config = agent_config(&["2001:db8:a::/64"]);
    if let Some(agent) = &mut config.home_agent {
        let peer = |n: u16| PeerHomeAgent {
            address: address(&format!("2001:db8:1::{:x}", 0x100 + n)),
            preference: 0,
        };
        agent.other_agents.answers_dhaad = true;
        agent.other_agents.peers = (0..60).map(peer).collect();
    }
    config
}

/// Returns an IPv6 packet. `checksum` is the offset of the payload's checksum, if it has one.
fn ipv6_packet(destination: &str, next_header: u8, checksum: Option<usize>, mut payload: Vec<u8>) -> Vec<u8> {
    let (source, destination) = (address(UNKNOWN_SOURCE), address(destination));
    if let Some(at) = checksum {
        payload[at..at + 2].copy_from_slice(&[0, 0]);
        let sum = upper_layer_checksum(source, destination, next_header, &payload);
        payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    carnet_virtual::packet(source, destination, next_header, &payload)
}

/// Returns the number of octets of all packets that a home agent sends because of one packet that it did not
/// request.
fn octets_of_answers_to(packet: Vec<u8>) -> usize {
    let mut station = Station::new(config(), PersistentState::default(), Rng::new(7), Time::ZERO, WALL_TIME);
    while station.poll_output().is_some() {}
    station.handle_input(Time::ZERO, WALL_TIME, Input::Packet(packet)).expect("accepted");
    std::iter::from_fn(|| station.poll_output())
        .map(|output| match output {
            Output::Nemo(NemoOutput::Packet(packet)) => packet.len(),
            Output::Nemo(NemoOutput::Encapsulated { packet, .. }) => packet.len(),
            _ => 0,
        })
        .sum()
}

/// Returns packets of unauthenticated sources to a home agent, with their names.
fn unauthenticated_packets() -> Vec<(&'static str, Vec<u8>)> {
    let anycast = home_agents_anycast(address(AGENT_ADDRESS)).to_string();
    let discovery = HomeAgentDiscoveryRequest { identifier: 9, mobile_router: true }.emit();
    let mobility = |kind: u8, length: u8| {
        let mut header = vec![59, length, kind, 0, 0, 0, 0, 0];
        header.resize(8 + 8 * usize::from(length), 0);
        header
    };
    let mut tcp = vec![0x10, 0x92, 0, 22, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0];
    tcp.resize(20, 0);
    let mut wrong_payload = mobility(5, 1);
    wrong_payload[0] = 17;
    let inner = data_packet_between(HOST_ADDRESS, "2001:db8:99::1");
    vec![
        (
            "Home Agent Address Discovery Request, 9 home agents or more",
            ipv6_packet(&anycast, 58, Some(2), discovery),
        ),
        ("Mobility Header of an unknown type", ipv6_packet(AGENT_ADDRESS, 135, Some(4), mobility(99, 0))),
        (
            "Mobility Header that is too short for its type",
            ipv6_packet(AGENT_ADDRESS, 135, Some(4), mobility(5, 0)),
        ),
        (
            "Mobility Header with a Payload Proto other than 59",
            ipv6_packet(AGENT_ADDRESS, 135, Some(4), wrong_payload),
        ),
        (
            "Heartbeat of somebody without a binding",
            ipv6_packet(AGENT_ADDRESS, 135, Some(4), MobilityHeaderBuilder::heartbeat_request(9).finish()),
        ),
        (
            "UDP to the home agent's address",
            ipv6_packet(AGENT_ADDRESS, 17, Some(6), vec![0x10, 0x92, 0, 53, 0, 8, 0, 0]),
        ),
        ("TCP to the home agent's address", ipv6_packet(AGENT_ADDRESS, 6, Some(16), tcp)),
        (
            "Destination option that is to be answered",
            ipv6_packet(AGENT_ADDRESS, 60, None, vec![59, 0, 0x80 | 0x3e, 4, 0, 0, 0, 0]),
        ),
        (
            "Routing header of an unknown type",
            ipv6_packet(AGENT_ADDRESS, 43, None, vec![59, 0, 200, 1, 0, 0, 0, 0]),
        ),
        ("Echo Request", ipv6_packet(AGENT_ADDRESS, 58, Some(2), vec![128, 0, 0, 0, 0, 1, 0, 1])),
        (
            "Tunnelled packet of a node without a binding",
            ipv6_packet(AGENT_ADDRESS, protocol::IPV6, None, inner),
        ),
    ]
}

#[test]
fn answers_of_home_agent_are_as_long_as_the_page_says() {
    let page = include_str!("../../../docs/threats.md");
    let mut table = vec!["| question | octets | answer | times |".to_owned(), "|---|---|---|---|".to_owned()];
    for (name, question) in unauthenticated_packets() {
        let (asked, answered) = (question.len(), octets_of_answers_to(question));
        let times = answered as f64 / asked as f64;
        table.push(format!("| {name} | {asked} | {answered} | {times:.2} |"));
        assert!(times < 3.7, "{name}: {answered} octets for {asked}");
    }
    let table = table.join("\n");
    assert!(page.contains(&table), "docs/threats.md says otherwise than:\n{table}");
}
