//! Home agent: Binding Updates inside IPv4 and UDP (RFC 5555 4.2, 4.5; RFC 5648 8.1).

use std::net::Ipv4Addr;

use carnet_base::Rng;
use carnet_mobility::home_agent::HomeAgentConfig;
use carnet_mobility::{Event, MobilityDrop};
use carnet_wire::mobility::options::option_type;
use carnet_wire::mobility::{BindingUpdateFlags, MobilityHeader, MobilityOption, ParsedMobilityMessage};

use crate::agent::{TestAgent, WALL_START, authenticated_config, config, parse_endpoint};
use crate::several_care_of_addresses::*;
use crate::test_messages::*;

/// The home agent's end of the tunnel. It is a private address behind a static NAT.
const AGENT_ENDPOINT: &str = "udp:10.0.0.1:4191";
const NODE_IPV4_ADDRESS: &str = "192.0.2.77";
/// The node's end of the tunnel without a NAT.
const NODE_ENDPOINT: &str = "udp:192.0.2.77:4191";
/// The node's end of the tunnel behind a NAT, before the NAT has lost its mapping. `NEW_NAT_ENDPOINT` is the
/// end afterwards.
const NAT_ENDPOINT: &str = "udp:198.51.100.9:40123";
const NEW_NAT_ENDPOINT: &str = "udp:198.51.100.9:51000";

fn ipv4_care_of_address_option(text: &str) -> MobilityOption<'static> {
    MobilityOption::Ipv4CareOfAddress(text.parse().expect("an IPv4 address"))
}

/// Returns a registration without Binding Identifier from an IPv4 network.
fn plain_update(sequence: u16) -> TestUpdate {
    TestUpdate::explicit_update(sequence)
        .sent_on_ipv4_network()
        .with_option(ipv4_care_of_address_option(NODE_IPV4_ADDRESS))
}

/// Returns a registration with a Binding Identifier and no IPv4 Care-of Address option (RFC 5648 8.1).
fn update_with_identifier(sequence: u16) -> TestUpdate {
    TestUpdate::explicit_update(sequence).sent_on_ipv4_network().with_bid(1, NODE_IPV4_ADDRESS)
}

#[track_caller]
fn send_over_ipv4(agent: &mut TestAgent, remote: &str, update: &TestUpdate) -> ReceivedPacket {
    let mut answers = agent.receive_inside_tunnel(AGENT_ENDPOINT, remote, &update.to_packet());
    assert_eq!(answers.len(), 1, "dropped: {:?}", agent.last_drop_reason);
    answers.remove(0)
}

#[track_caller]
fn expect_acceptance_over_ipv4(agent: &mut TestAgent, remote: &str, update: &TestUpdate) -> ReceivedPacket {
    let answer = send_over_ipv4(agent, remote, update);
    assert_eq!(answer.status(), 0);
    answer
}

fn tunnel_ends_of_binding(agent: &TestAgent) -> (String, String) {
    let (here, there) = agent.home_binding().expect("bound").tunnel_ends();
    (here.to_string(), there.to_string())
}

fn endpoint_strings(here: &str, there: &str) -> (String, String) {
    (here.into(), there.into())
}

/// Conformance item 61; RFC 5555 4.2: the outer source equals the address in the option, so there is no NAT
/// and packets go in plain IPv4. The answer goes inside UDP to the home address, without a routing header.
#[test]
fn home_agent_encapsulates_in_plain_ipv4_without_a_nat() {
    for update in [plain_update(1), update_with_identifier(1)] {
        let mut agent = TestAgent::new(config());
        let answer = expect_acceptance_over_ipv4(&mut agent, NODE_ENDPOINT, &update);
        assert_eq!((answer.source, answer.destination), (addr(HOME_AGENT_ADDRESS), addr(HOME_ADDRESS)));
        assert_eq!(answer.routing_home_address, None);
        assert_eq!(acknowledgement_options(&answer).nat_detection, None);
        assert_eq!(tunnel_ends_of_binding(&agent), endpoint_strings("10.0.0.1", NODE_IPV4_ADDRESS));
        assert!(answer.mobile_router() && answer.lifetime() == 15);
    }
}

/// Conformance item 60; RFC 5555 4.2: the outer source differs from the address in the option, so there is a
/// NAT. Packets go in UDP to the outer address and port. The answer reports the NAT and the keepalive
/// interval to the node.
#[test]
fn home_agent_sends_in_udp_to_the_outer_address_of_node_behind_nat() {
    for update in [plain_update(1), update_with_identifier(1)] {
        let mut agent = TestAgent::new(config());
        let answer = expect_acceptance_over_ipv4(&mut agent, NAT_ENDPOINT, &update);
        assert_eq!(acknowledgement_options(&answer).nat_detection, Some((false, 25)));
        assert_eq!(tunnel_ends_of_binding(&agent), endpoint_strings(AGENT_ENDPOINT, NAT_ENDPOINT));
        assert!(agent.events.iter().any(|event| matches!(
            event,
            Event::Binding { care_of_address, .. } if *care_of_address == parse_endpoint(NAT_ENDPOINT)
        )));
    }
}

/// RFC 5555 4.2: the home agent assumes a NAT if the node names no IPv4 address.
#[test]
fn update_without_ipv4_address_counts_as_behind_nat() {
    let mut agent = TestAgent::new(config());
    let answer = expect_acceptance_over_ipv4(
        &mut agent,
        NODE_ENDPOINT,
        &TestUpdate::explicit_update(1).sent_on_ipv4_network(),
    );
    assert_eq!(acknowledgement_options(&answer).nat_detection, Some((false, 25)));
    assert_eq!(tunnel_ends_of_binding(&agent), endpoint_strings(AGENT_ENDPOINT, NODE_ENDPOINT));
}

/// RFC 5555 3.1.3, 4.5: the home agent grants the F flag; 3.2.2: "all 1s ... keepalives are not needed".
#[test]
fn home_agent_encapsulates_in_udp_if_node_or_operator_requests_it() {
    let forced = BindingUpdateFlags { force_udp: true, ..ROUTER_FLAGS };
    let mut agent = TestAgent::new(config());
    let answer = expect_acceptance_over_ipv4(&mut agent, NODE_ENDPOINT, &plain_update(1).with_flags(forced));
    assert_eq!(acknowledgement_options(&answer).nat_detection, Some((true, u32::MAX)));
    assert_eq!(tunnel_ends_of_binding(&agent), endpoint_strings(AGENT_ENDPOINT, NODE_ENDPOINT));
    // The next update asks for no UDP: the binding changes to plain IPv4.
    expect_acceptance_over_ipv4(&mut agent, NODE_ENDPOINT, &plain_update(2));
    assert_eq!(tunnel_ends_of_binding(&agent), endpoint_strings("10.0.0.1", NODE_IPV4_ADDRESS));
    assert!(
        agent.home_agent.bindings().accepts_packets_from(addr(HOME_ADDRESS), parse_endpoint(NODE_ENDPOINT)),
        "for a moment"
    );
    // The operator forces UDP, because only a UDP port reaches the home agent.
    let mut agent = TestAgent::new(HomeAgentConfig { force_udp: true, ..config() });
    let answer = expect_acceptance_over_ipv4(&mut agent, NODE_ENDPOINT, &plain_update(1));
    assert_eq!(acknowledgement_options(&answer).nat_detection, Some((true, u32::MAX)));
    assert_eq!(tunnel_ends_of_binding(&agent), endpoint_strings(AGENT_ENDPOINT, NODE_ENDPOINT));
}

/// A NAT has lost its mapping. The next Binding Update from the new address moves the binding; the home agent
/// accepts packets from the old address during the grace period.
#[test]
fn changed_nat_mapping_moves_binding_with_next_update() {
    for update in [
        plain_update(2),
        update_with_identifier(2),
        TestUpdate::explicit_update(2).sent_on_ipv4_network().with_known_bid(1),
    ] {
        let mut agent = TestAgent::new(config());
        let first = if update.options == plain_update(2).options {
            plain_update(1)
        } else {
            update_with_identifier(1)
        };
        expect_acceptance_over_ipv4(&mut agent, NAT_ENDPOINT, &first);
        let answer = expect_acceptance_over_ipv4(&mut agent, NEW_NAT_ENDPOINT, &update);
        assert_eq!(acknowledgement_options(&answer).nat_detection, Some((false, 25)));
        assert_eq!(tunnel_ends_of_binding(&agent), endpoint_strings(AGENT_ENDPOINT, NEW_NAT_ENDPOINT));
        assert!(
            agent
                .home_agent
                .bindings()
                .accepts_packets_from(addr(HOME_ADDRESS), parse_endpoint(NAT_ENDPOINT))
        );
        agent.advance_time(5.1);
        assert!(
            !agent
                .home_agent
                .bindings()
                .accepts_packets_from(addr(HOME_ADDRESS), parse_endpoint(NAT_ENDPOINT))
        );
    }
}

/// A packet from the new address moves no binding. The home agent sends a Binding Error over UDP to that
/// address, and the node registers.
#[test]
fn data_packet_from_unbound_address_draws_a_binding_error() {
    let mut agent = TestAgent::new(authenticated_config());
    expect_acceptance_over_ipv4(&mut agent, NAT_ENDPOINT, &update_with_identifier(1).with_signature());
    let before = agent.describe_bindings();
    let now = agent.now;
    agent.home_agent.answer_unbound_packet(
        now,
        parse_endpoint(AGENT_ENDPOINT),
        parse_endpoint(NEW_NAT_ENDPOINT),
        addr("2001:db8:a::77"),
    );
    assert!(agent.take_answers().is_empty());
    let (from, to, error) = agent.encapsulated_packets.pop().expect("a Binding Error");
    assert_eq!((from, to), (parse_endpoint(AGENT_ENDPOINT), parse_endpoint(NEW_NAT_ENDPOINT)));
    assert_eq!(error.message, ReceivedMessage::BindingError { status: 1, home_address: addr(HOME_ADDRESS) });
    assert_eq!((error.source, error.destination), (addr(HOME_AGENT_ADDRESS), addr(HOME_ADDRESS)));
    assert_eq!(agent.describe_bindings(), before);
    // Packets from the registered address, and packets with an unknown home address, draw no Binding Error.
    for (remote, inner) in [(NAT_ENDPOINT, HOME_ADDRESS), (NEW_NAT_ENDPOINT, "2001:db8:99::1")] {
        agent.home_agent.answer_unbound_packet(
            now,
            parse_endpoint(AGENT_ENDPOINT),
            parse_endpoint(remote),
            addr(inner),
        );
        assert!(agent.take_answers().is_empty() && agent.encapsulated_packets.is_empty());
    }
    // A forged Binding Update and a replayed one do not move the binding either.
    for (forged, remote) in [
        (update_with_identifier(2), NEW_NAT_ENDPOINT),
        (update_with_identifier(1).with_signature(), NEW_NAT_ENDPOINT),
    ] {
        agent.receive_inside_tunnel(AGENT_ENDPOINT, remote, &forged.to_packet());
        assert_eq!(agent.describe_bindings(), before);
        agent.advance_time(1.0);
    }
    expect_acceptance_over_ipv4(&mut agent, NEW_NAT_ENDPOINT, &update_with_identifier(2).with_signature());
    assert_eq!(tunnel_ends_of_binding(&agent), endpoint_strings(AGENT_ENDPOINT, NEW_NAT_ENDPOINT));
}

/// Design: the MAC covers the IPv4 care-of address that the node names, as an IPv4-mapped address, also in
/// the answer.
#[test]
fn mac_covers_the_ipv4_care_of_address_in_the_option() {
    let mapped = "::ffff:192.0.2.77";
    for update in [plain_update(1), update_with_identifier(1)] {
        let mut agent = TestAgent::new(authenticated_config());
        let answer = expect_acceptance_over_ipv4(&mut agent, NAT_ENDPOINT, &update.with_signature());
        assert!(answer.is_signed(&test_association(), mapped, HOME_ADDRESS));
    }
    // Without an IPv4 care-of address the MAC covers the IPv6 source, which is the home address.
    let mut agent = TestAgent::new(authenticated_config());
    let answer = expect_acceptance_over_ipv4(
        &mut agent,
        NAT_ENDPOINT,
        &TestUpdate::explicit_update(1).sent_on_ipv4_network().with_signature(),
    );
    assert!(answer.is_signed(&test_association(), HOME_ADDRESS, HOME_ADDRESS));
    // Status 146 is a signed message as well, and goes only to the address that the update would register.
    let wrong = carnet_mobility::SecurityAssociation { key: [9; 16].into(), ..test_association() };
    let mut agent = TestAgent::new(authenticated_config());
    assert!(
        agent
            .receive_inside_tunnel(
                AGENT_ENDPOINT,
                NAT_ENDPOINT,
                &update_with_identifier(1).with_signature_by(wrong.clone()).to_packet()
            )
            .is_empty()
    );
    assert_eq!(agent.last_drop_reason, Some(MobilityDrop::AuthenticationFailed));
    assert_eq!(
        send_over_ipv4(&mut agent, NODE_ENDPOINT, &update_with_identifier(1).with_signature_by(wrong))
            .status(),
        146
    );
}

/// RFC 5648 8.1: a node has IPv4 and IPv6 bindings at the same time, each with its own path.
#[test]
fn node_has_ipv4_and_ipv6_bindings_together() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(
        &TestUpdate::explicit_update(1).with_overwrite_flag().with_bid(2, CARE_OF_ADDRESS),
    );
    let answer = expect_acceptance_over_ipv4(&mut agent, NAT_ENDPOINT, &update_with_identifier(2));
    assert_eq!(acknowledgement_options(&answer).bid_statuses, [(1, 0)]);
    assert_eq!(bindings_of_home(&agent), expected_bindings(&[(1, NAT_ENDPOINT), (2, CARE_OF_ADDRESS)]));
    // A Binding Update over IPv6 renews the IPv4 binding and does not change its NAT state, which only an
    // update over IPv4 shows.
    let answer = agent.expect_acceptance(&TestUpdate::explicit_update(3).with_known_bid(1).with_known_bid(2));
    assert_eq!(acknowledgement_options(&answer).nat_detection, None);
    agent.expect_acceptance(
        &TestUpdate::explicit_update(4).with_bid(1, NODE_IPV4_ADDRESS).with_bid(2, CARE_OF_ADDRESS),
    );
    assert_eq!(bindings_of_home(&agent), expected_bindings(&[(1, NAT_ENDPOINT), (2, CARE_OF_ADDRESS)]));
    agent.expect_refusal(&TestUpdate::explicit_update(5).with_bid(3, NODE_IPV4_ADDRESS), 174);
    let answer = agent.send_and_get_acknowledgement(
        &TestUpdate::explicit_update(5).with_bid(3, NODE_IPV4_ADDRESS).with_known_bid(2),
    );
    assert_eq!((answer.status(), acknowledgement_options(&answer).bid_statuses), (4, vec![(3, 174), (2, 0)]));
    // Register the IPv4 binding without a NAT. From then on an update over IPv6 can renew it. To move it to
    // another IPv4 address, the node must send the update from that address.
    expect_acceptance_over_ipv4(
        &mut agent,
        NODE_ENDPOINT,
        &TestUpdate::explicit_update(6).sent_on_ipv4_network().with_bid(1, NODE_IPV4_ADDRESS),
    );
    agent.expect_refusal(&TestUpdate::explicit_update(7).with_bid(1, "192.0.2.78"), 174);
    agent.expect_acceptance(&TestUpdate::explicit_update(7).with_bid(1, NODE_IPV4_ADDRESS));
    assert_eq!(bindings_of_home(&agent), expected_bindings(&[(1, NODE_IPV4_ADDRESS), (2, CARE_OF_ADDRESS)]));
    // An update over IPv6 ends the IPv4 binding, and an update over IPv4 ends the IPv6 binding.
    agent.expect_acceptance(&TestUpdate::implicit_update(8).lifetime(0).with_known_bid(1));
    expect_acceptance_over_ipv4(
        &mut agent,
        NAT_ENDPOINT,
        &TestUpdate::implicit_update(9).sent_on_ipv4_network().lifetime(0).with_known_bid(2),
    );
    assert!(bindings_of_home(&agent).is_empty());
}

/// RFC 5648 8.1: "Bulk registration MUST NOT be used for the initial binding registration from an IPv4
/// care-of address". The home agent accepts the IPv4 binding only if no NAT is on the path, and always
/// accepts the IPv6 binding.
#[test]
fn bulk_registration_from_ipv4_network_is_accepted() {
    let mut agent = TestAgent::new(config());
    let bulk = TestUpdate::explicit_update(1)
        .sent_on_ipv4_network()
        .with_overwrite_flag()
        .with_bid(1, NODE_IPV4_ADDRESS)
        .with_bid(2, CARE_OF_ADDRESS);
    let answer = send_over_ipv4(&mut agent, NAT_ENDPOINT, &bulk);
    assert_eq!((answer.status(), acknowledgement_options(&answer).bid_statuses), (4, vec![(1, 174), (2, 0)]));
    assert_eq!(acknowledgement_options(&answer).nat_detection, None);
    let answer = expect_acceptance_over_ipv4(&mut agent, NODE_ENDPOINT, &TestUpdate { sequence: 2, ..bulk });
    assert_eq!(acknowledgement_options(&answer).bid_statuses, [(1, 0), (2, 0)]);
    assert_eq!(bindings_of_home(&agent), expected_bindings(&[(1, NODE_IPV4_ADDRESS), (2, CARE_OF_ADDRESS)]));
}

/// RFC 5555 4.4.2.1: a plain de-registration from the IPv4 network. Its IPv6 source is the home address, as
/// in a registration, so only the lifetime shows that it is a de-registration.
#[test]
fn registration_and_deregistration_work_inside_ipv4() {
    let mut agent = TestAgent::new(config());
    expect_acceptance_over_ipv4(&mut agent, NAT_ENDPOINT, &plain_update(1));
    let answer = expect_acceptance_over_ipv4(
        &mut agent,
        NAT_ENDPOINT,
        &TestUpdate::implicit_update(2).sent_on_ipv4_network().lifetime(0),
    );
    assert_eq!(answer.lifetime(), 0);
    assert!(agent.home_binding().is_none());
    assert!(
        agent.home_agent.bindings().accepts_packets_from(addr(HOME_ADDRESS), parse_endpoint(NAT_ENDPOINT)),
        "for a moment"
    );
    // A registration needs a Home Address option (RFC 6275 10.3.1) unless it comes inside IPv4.
    agent.expect_refusal(
        &TestUpdate::explicit_update(3).sent_on_home_link().with_bid(1, CARE_OF_ADDRESS),
        128,
    );
}

/// The home agent refuses addresses that no node can have as care-of address with status 174.
#[test]
fn home_agent_refuses_care_of_addresses_that_no_host_can_have() {
    for remote in [
        "udp:0.0.0.0:4191",
        "udp:127.0.0.1:4191",
        "udp:224.0.0.1:4191",
        "udp:255.255.255.255:4191",
        "udp:198.51.100.9:0",
        AGENT_ENDPOINT,
    ] {
        let mut agent = TestAgent::new(config());
        assert_eq!(send_over_ipv4(&mut agent, remote, &plain_update(1)).status(), 174, "{remote}");
        assert!(agent.home_binding().is_none());
    }
}

/// RFC 5555 4.5: a home agent that assigns no IPv4 home addresses refuses the option and accepts the
/// registration.
#[test]
fn ipv4_home_addresses_are_refused() {
    let home = |prefix_length, prefix, address: [u8; 4]| MobilityOption::Ipv4HomeAddress {
        prefix_length,
        prefix,
        address: Ipv4Addr::from(address),
    };
    let mut agent = TestAgent::new(config());
    let update = plain_update(1)
        .with_option(home(32, false, [0, 0, 0, 0]))
        .with_option(home(32, false, [192, 0, 2, 5]))
        .with_option(home(24, true, [0, 0, 0, 0]))
        .with_option(home(0, false, [192, 0, 2, 5]));
    let answer = expect_acceptance_over_ipv4(&mut agent, NAT_ENDPOINT, &update);
    let statuses: Vec<u8> =
        acknowledgement_options(&answer).ipv4_answers.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [132, 130, 133, 131]);
    assert_eq!(acknowledgement_options(&answer).ipv4_answers[1].1, Ipv4Addr::new(192, 0, 2, 5));
    // RFC 5648 8.2: an IPv4 Address Acknowledgement option "MUST be present before any Binding Identifier
    // mobility option".
    let several = update_with_identifier(2).with_option(home(32, false, [0, 0, 0, 0]));
    let answer = expect_acceptance_over_ipv4(&mut TestAgent::new(config()), NAT_ENDPOINT, &several);
    let header = MobilityHeader::parse(&answer.mobility_header).expect("a Mobility Header");
    let Ok(ParsedMobilityMessage::BindingAcknowledgement(acknowledgement)) = header.message() else {
        panic!("{answer:?}")
    };
    let types: Vec<u8> = acknowledgement.options.iter().flatten().map(|o| o.option_type()).collect();
    let at = |kind| types.iter().position(|found| *found == kind);
    assert!(at(option_type::IPV4_ADDRESS_ACKNOWLEDGEMENT) < at(option_type::BINDING_IDENTIFIER), "{types:?}");
    // The home agent answers the option also over IPv6 (RFC 5555 4.4.2), but not in the refusal of a Binding
    // Update.
    let answer =
        agent.expect_acceptance(&TestUpdate::explicit_update(2).with_option(home(32, false, [0, 0, 0, 0])));
    assert_eq!(acknowledgement_options(&answer).ipv4_answers.len(), 1);
    let answer =
        agent.expect_refusal(&TestUpdate::explicit_update(2).with_option(home(32, false, [0, 0, 0, 0])), 135);
    assert!(acknowledgement_options(&answer).ipv4_answers.is_empty());
}

/// Refusals, Binding Errors and Parameter Problems leave inside the encapsulation of the packet that caused
/// them.
#[test]
fn home_agent_answers_on_the_path_of_the_request() {
    let mut agent = TestAgent::new(config());
    expect_acceptance_over_ipv4(&mut agent, NAT_ENDPOINT, &plain_update(5));
    assert_eq!(send_over_ipv4(&mut agent, NEW_NAT_ENDPOINT, &plain_update(5)).status(), 135);
    let packet = plain_update(6).packet_around(&mut [59, 0, 200, 0, 0, 0, 0, 0]);
    let answers = agent.receive_inside_tunnel(AGENT_ENDPOINT, NEW_NAT_ENDPOINT, &packet);
    assert!(matches!(answers[0].message, ReceivedMessage::BindingError { status: 2, .. }));
    let packet = plain_update(6).packet_around(&mut [6, 1, 5, 0, 0, 0, 0, 6, 0xc4, 0, 0, 15, 0, 0, 0, 0]);
    let answers = agent.receive_inside_tunnel(AGENT_ENDPOINT, NEW_NAT_ENDPOINT, &packet);
    assert!(matches!(answers[0].message, ReceivedMessage::ParameterProblem { code: 0, .. }));
    assert_eq!(tunnel_ends_of_binding(&agent), endpoint_strings(AGENT_ENDPOINT, NAT_ENDPOINT));
}

/// On a home link the answer waits for duplicate address detection, and then leaves inside the encapsulation
/// of the update.
#[test]
fn acknowledgement_after_dad_uses_ipv4_path_of_request() {
    let mut agent = TestAgent::on_home_link(config());
    assert!(
        agent
            .receive_inside_tunnel(AGENT_ENDPOINT, NAT_ENDPOINT, &update_with_identifier(1).to_packet())
            .is_empty()
    );
    assert!(agent.advance_time(1.0).is_empty());
    let (from, to, answer) = agent.encapsulated_packets.pop().expect("an acknowledgement");
    assert_eq!(
        (from, to, answer.status()),
        (parse_endpoint(AGENT_ENDPOINT), parse_endpoint(NAT_ENDPOINT), 0)
    );
    assert_eq!(acknowledgement_options(&answer).nat_detection, Some((false, 25)));
}

/// Bindings with tunnel ends in plain IPv4, UDP and IPv6 survive a restart.
#[test]
fn bindings_of_every_tunnel_kind_survive_a_restart() {
    let mut agent = TestAgent::new(config());
    expect_acceptance_over_ipv4(&mut agent, NAT_ENDPOINT, &update_with_identifier(1));
    agent.expect_acceptance(&TestUpdate::explicit_update(2).with_bid(2, CARE_OF_ADDRESS));
    expect_acceptance_over_ipv4(
        &mut agent,
        NODE_ENDPOINT,
        &TestUpdate::explicit_update(3).sent_on_ipv4_network().with_bid(3, NODE_IPV4_ADDRESS),
    );
    expect_acceptance_over_ipv4(&mut agent, NEW_NAT_ENDPOINT, &update_with_identifier(4));
    let stored = agent.home_agent.stored_bindings(agent.now, agent.wall_time());
    let (now, wall) = (agent.now, agent.wall_time());
    let restart = |ipv4_address: Option<[u8; 4]>| {
        let ipv4_address = ipv4_address.map(Ipv4Addr::from);
        let mut next = TestAgent::new(HomeAgentConfig { ipv4_address, ..config() });
        next.now = now;
        next.home_agent.restore(now, wall, stored.clone());
        next.take_answers();
        next
    };
    // If the home agent's IPv4 address has changed or is missing, it drops the IPv4 bindings until their
    // nodes register again.
    for other in [None, Some([10, 0, 0, 2])] {
        assert_eq!(bindings_of_home(&restart(other)), expected_bindings(&[(2, CARE_OF_ADDRESS)]));
    }
    let next = restart(Some([10, 0, 0, 1]));
    assert_eq!(
        bindings_of_home(&next),
        expected_bindings(&[(1, NEW_NAT_ENDPOINT), (2, CARE_OF_ADDRESS), (3, NODE_IPV4_ADDRESS)])
    );
    assert_eq!(tunnel_ends_of_binding(&next), endpoint_strings(AGENT_ENDPOINT, NEW_NAT_ENDPOINT));
    assert!(
        next.home_agent.bindings().accepts_packets_from(addr(HOME_ADDRESS), parse_endpoint(NAT_ENDPOINT))
    );
    assert_eq!(next.home_agent.stored_bindings(now, wall), stored);
    assert!(wall > WALL_START);
}

/// Of updates inside UDP that are cut and changed at random, the home agent binds only what was signed.
#[test]
fn mutated_updates_inside_udp_bind_only_signed_addresses() {
    let mut rng = Rng::new(11);
    let mut agent = TestAgent::new(authenticated_config());
    let goldens = [
        plain_update(10).with_signature().to_packet(),
        update_with_identifier(10).with_signature().to_packet(),
        TestUpdate::explicit_update(10)
            .sent_on_ipv4_network()
            .with_overwrite_flag()
            .with_bid(1, NODE_IPV4_ADDRESS)
            .with_bid(2, CARE_OF_ADDRESS)
            .with_flow(1, 1, 5000, &[1])
            .with_signature()
            .to_packet(),
        TestUpdate::implicit_update(10)
            .sent_on_ipv4_network()
            .lifetime(0)
            .with_known_bid(1)
            .with_signature()
            .to_packet(),
    ];
    let mut bound = 0;
    for round in 0..20_000 {
        let golden = &goldens[rng.number_below(goldens.len() as u64) as usize];
        let packet = crate::hostile::mutate_packet(&mut rng, golden);
        if crate::hostile::is_parsed(&packet) {
            let remote = if rng.is_true_with_probability(0.5) { NAT_ENDPOINT } else { NODE_ENDPOINT };
            agent.receive_inside_tunnel(AGENT_ENDPOINT, remote, &packet);
        }
        for binding in agent.home_agent.bindings().iter() {
            bound += 1;
            assert_eq!(binding.home_address, addr(HOME_ADDRESS));
            let allowed = [
                parse_endpoint(NAT_ENDPOINT),
                parse_endpoint(NODE_ENDPOINT),
                parse_endpoint(NODE_IPV4_ADDRESS),
                parse_endpoint(CARE_OF_ADDRESS),
            ];
            assert!(allowed.contains(&binding.care_of_address), "{binding:?}");
            assert!(binding.prefixes.iter().all(|prefix| *prefix == net(MOBILE_NETWORK_PREFIX)));
        }
        agent.events.clear();
        if round % 100 == 0 {
            agent = TestAgent::new(authenticated_config());
        }
    }
    assert!(bound > 0, "some of the mutations changed nothing that is covered");
}
