//! Home networks that contain the mobile networks (RFC 4887): extended (5) and aggregated (6).

use carnet_base::LinkMessage;
use carnet_mobility::home_agent::HomeAgentConfig;
use carnet_mobility::mobile_router::State;
use carnet_wire::{icmpv6, nd};

use crate::agent::{TestAgent, authorized_node, config};
use crate::agent_and_routers::{ADDRESS_ON_HOME_LINK, AgentAndRouters, PairSetup};
use crate::test_messages::*;

/// Home network, which contains the prefixes of two vehicles.
const HOME_NETWORK: &str = "2001:db8:1::/48";
const PREFIX_ON_BOARD: &str = "2001:db8:1:a::/64";
const PREFIX_OF_OTHER_VEHICLE: &str = "2001:db8:1:b::/64";
const HOST_ON_BOARD: &str = "2001:db8:1:a::5";

fn agent_with_home_network() -> TestAgent {
    let nodes = vec![
        authorized_node(HOME_ADDRESS, &[PREFIX_ON_BOARD]),
        authorized_node("2001:db8:1::5678", &[PREFIX_OF_OTHER_VEHICLE]),
    ];
    TestAgent::on_home_link(HomeAgentConfig { home_prefix: net(HOME_NETWORK), nodes, ..config() })
}

fn setup_with_home_network() -> PairSetup {
    let mut setup = PairSetup::plain_setup();
    setup.agent = HomeAgentConfig {
        home_prefix: net(HOME_NETWORK),
        nodes: vec![authorized_node(HOME_ADDRESS, &[PREFIX_ON_BOARD])],
        ..config()
    };
    setup.routers[0].home_prefix = net(HOME_NETWORK);
    setup.routers[0].prefixes = vec![net(PREFIX_ON_BOARD)];
    setup
}

/// RFC 4887 6.4.1: "the Home Agent must intercept all the packets for ALL the Mobile Network Nodes on the
/// registered prefixes". A visitor gets no address out of these prefixes. The home agent does not answer for
/// unregistered prefixes.
#[test]
fn home_agent_answers_solicitations_for_registered_mobile_networks() {
    let mut agent = agent_with_home_network();
    assert!(agent.send_solicitation(HOST_ON_BOARD, "fe80::9").is_empty());
    agent.send_update(&TestUpdate::implicit_update(1).prefix(PREFIX_ON_BOARD));
    agent.advance_time(5.0);
    let answers = agent.send_solicitation(HOST_ON_BOARD, "fe80::9");
    assert_eq!(answers.len(), 1);
    let said = &answers[0];
    assert_eq!(
        (said.target, said.router, said.solicited, said.override_),
        (addr(HOST_ON_BOARD), false, true, true)
    );
    let visitor = agent.send_solicitation(HOST_ON_BOARD, "::");
    assert!(matches!(visitor.as_slice(), [said] if !said.solicited), "{visitor:?}");
    for nobody in ["2001:db8:1:b::5", "2001:db8:1:c::5", "2001:db8:1::42", "2001:db8:2::5"] {
        assert!(agent.send_solicitation(nobody, "fe80::9").is_empty(), "{nobody}");
    }
    agent.send_update(&TestUpdate::implicit_update(2).sent_on_home_link().lifetime(0));
    assert!(agent.send_solicitation(HOST_ON_BOARD, "fe80::9").is_empty());
}

/// In an extended home network the mobile networks are outside the home link's prefix, so the home agent does
/// not answer for them.
#[test]
fn no_answer_is_sent_for_addresses_outside_the_home_prefix() {
    let mut agent = TestAgent::on_home_link(config());
    agent.send_update(&TestUpdate::explicit_update(1));
    agent.advance_time(5.0);
    assert!(agent.home_binding().is_some());
    assert!(agent.send_solicitation("2001:db8:a::5", "fe80::9").is_empty());
}

/// RFC 4887 5.3, about a home address outside the home link: "it will know that it should not perform any
/// DAD".
#[test]
fn home_address_outside_the_home_link_needs_no_dad() {
    let home = "2001:db8:a::1";
    let nodes = vec![authorized_node(home, &[MOBILE_NETWORK_PREFIX])];
    let mut agent = TestAgent::on_home_link(HomeAgentConfig { nodes, ..config() });
    let answer = agent.send_and_get_acknowledgement(&TestUpdate::explicit_update(1).for_home_address(home));
    assert_eq!((answer.status(), agent.take_dad_targets().len()), (0, 0));
}

/// RFC 4887 6.2: a router in another vehicle, whose prefix is a part of the home prefix, is not at home.
#[test]
fn router_in_another_mobile_network_is_away_from_home() {
    let guest = "2001:db8:1:b::10";
    let mut pair = AgentAndRouters::new(setup_with_home_network());
    pair.attach_uplink(0, "wifi", guest);
    pair.register_router();
    assert_eq!(pair.registered_care_of_address(), Some(addr(guest)));
    pair.receive_router_advertisement("wifi", "fe80::1", &[PREFIX_OF_OTHER_VEHICLE]);
    pair.advance_seconds(5.0);
    assert_eq!(pair.first_router().state(), State::Registered);
    // An advertisement of the aggregate on another link does not make it the home link: the vehicle's prefix
    // does not contain the home agent.
    assert_eq!(pair.registered_care_of_address(), Some(addr(guest)));
}

/// A link is the home link if its prefix is a part of the home prefix and contains the home agent's address.
#[test]
fn home_link_is_identified_by_the_prefix_of_the_home_agents_address() {
    let mut pair = AgentAndRouters::new(setup_with_home_network().with_home_link());
    pair.attach_uplink(0, "cell", OTHER_CARE_OF_ADDRESS);
    pair.register_router();
    pair.attach_uplink(0, "wifi", ADDRESS_ON_HOME_LINK);
    pair.advance_seconds(3.0);
    assert_eq!((pair.first_router().state(), pair.registered_care_of_address()), (State::Home, None));
}

fn solicitation(target: &str, source: &str) -> LinkMessage {
    let mac = (source != "::").then_some([2, 0, 0, 0, 0, 9]);
    let mut message = nd::NeighborSolicitation { target: addr(target), source_link_address: mac }.emit();
    let destination = nd::solicited_node_address(addr(target));
    icmpv6::set_checksum(&mut message, addr(source), destination);
    let (interface, source) = ("wifi".into(), addr(source));
    LinkMessage { interface, source, destination, hop_limit: 255, peer: mac, message }
}

/// Returns the router's answers to a neighbour's solicitation for an address.
fn answers_to_solicitation(
    pair: &mut AgentAndRouters,
    target: &str,
    source: &str,
) -> Vec<nd::NeighborAdvertisement> {
    pair.link_messages.clear();
    let message = solicitation(target, source);
    pair.run_on_router(0, |machine, now, wall| machine.handle_link_message(now, wall, &message))
        .expect("no error");
    pair.link_messages
        .iter()
        .filter(|(_, from, message)| {
            *from == Some(0) && message.message[0] == icmpv6::message_type::NEIGHBOR_ADVERTISEMENT
        })
        .map(|(_, _, message)| {
            icmpv6::verify_checksum(message.source, message.destination, &message.message).expect("checksum");
            assert_eq!((message.hop_limit, message.source), (255, addr("fe80::77")));
            nd::NeighborAdvertisement::parse(&message.message).expect("advertisement")
        })
        .collect()
}

/// RFC 4887 6.2.1: at home the router performs "ND proxying for all addresses in its MNPs", only for these
/// addresses and only at home.
#[test]
fn router_at_home_answers_solicitations_for_hosts_on_board() {
    let mut pair = AgentAndRouters::new(setup_with_home_network().with_home_link());
    pair.attach_uplink(0, "cell", OTHER_CARE_OF_ADDRESS);
    pair.register_router();
    assert!(answers_to_solicitation(&mut pair, HOST_ON_BOARD, "fe80::9").is_empty(), "away");
    pair.set_interface(0, "wifi", true, &["fe80::77", ADDRESS_ON_HOME_LINK], &["fe80::1"]);
    pair.advance_seconds(3.0);
    assert_eq!(pair.first_router().state(), State::Home);
    let said = answers_to_solicitation(&mut pair, HOST_ON_BOARD, "fe80::9");
    assert!(matches!(
        said.as_slice(),
        [said] if said.target == addr(HOST_ON_BOARD) && said.solicited && !said.router
    ));
    assert!(matches!(
        answers_to_solicitation(&mut pair, HOST_ON_BOARD, "::").as_slice(),
        [said] if !said.solicited
    ));
    for others in ["2001:db8:1:b::5", HOME_ADDRESS, ADDRESS_ON_HOME_LINK] {
        assert!(answers_to_solicitation(&mut pair, others, "fe80::9").is_empty(), "{others}");
    }
    pair.detach_uplink(0, "wifi");
    pair.advance_seconds(3.0);
    assert!(answers_to_solicitation(&mut pair, HOST_ON_BOARD, "fe80::9").is_empty(), "away again");
}
