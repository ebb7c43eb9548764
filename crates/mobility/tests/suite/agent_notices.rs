//! Messages that the home agent sends unsolicited: Binding Refresh Request, Home Agent Switch and Binding
//! Revocation. The last tests check the home link while a node changes to another home agent there.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_mobility::home_agent::{HomeAgentConfig, OtherAgents, PeerHomeAgent};
use carnet_mobility::{Event, HomeAgent, MobilityDrop, Output};
use carnet_wire::extension::ExtensionHeaders;
use carnet_wire::icmpv6;
use carnet_wire::ipv6::Header;
use carnet_wire::mobility::revocation::revocation_status;
use carnet_wire::mobility::{
    MobilityHeader, MobilityHeaderBuilder, MobilityOption, ParsedMobilityMessage, RevocationFlags,
    RevocationKind,
};
use carnet_wire::nd::{
    self, HomeAgentInformation, NdOption, PrefixInformation, RouterAdvertisementRepr,
    emit_router_advertisement,
};

use crate::agent::{TestAgent, WALL_START, authenticated_config, config, parse_endpoint};
use crate::agent_and_routers::{AgentAndRouters, PairSetup};
use crate::test_messages::*;
use crate::vehicle_on_road::VehicleOnRoad;

const OTHER_HOME_AGENT: &str = "2001:db8:1::2";

fn config_with_peer(mut config: HomeAgentConfig) -> HomeAgentConfig {
    config.other_agents = OtherAgents {
        peers: vec![PeerHomeAgent { address: addr(OTHER_HOME_AGENT), preference: 0 }],
        ..OtherAgents::default()
    };
    config
}

/// Takes the packets with a Mobility Header that the home agent sends now, unparsed.
fn take_sent_packets(machine: &mut HomeAgent) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| machine.poll_output())
        .filter_map(|output| match output {
            Output::Packet(packet) => Some(packet),
            _ => None,
        })
        .collect()
}

/// Returns the Mobility Header of a packet to the care-of address with a type 2 routing header.
fn mobility_header_of(packet: &[u8]) -> &[u8] {
    let header = Header::parse(packet).expect("a packet");
    let extensions = ExtensionHeaders::parse(packet).expect("extension headers");
    assert_eq!((header.source, header.destination), (addr(HOME_AGENT_ADDRESS), addr(CARE_OF_ADDRESS)));
    assert_eq!(extensions.routing_home_address, Some(addr(HOME_ADDRESS)), "RFC 6275 6.4");
    let octets = &packet[extensions.upper_layer_offset..];
    MobilityHeader::parse_verified(octets, addr(HOME_AGENT_ADDRESS), addr(HOME_ADDRESS))
        .expect("a mobility header");
    octets
}

fn timestamp_option_of(options: carnet_wire::mobility::MobilityOptions<'_>) -> Option<u64> {
    options.iter().find_map(|option| match option {
        Ok(MobilityOption::MessageIdentifier(time)) => Some(time),
        _ => None,
    })
}

/// Lets `seconds` pass, and returns the packets that the home agent sent meanwhile.
fn advance_and_take_packets(agent: &mut TestAgent, seconds: f64) -> Vec<Vec<u8>> {
    let end = agent.now + Duration::from_secs_f64(seconds);
    let mut packets = Vec::new();
    while let Some(at) = agent.home_agent.poll_timeout().filter(|at| *at <= end) {
        agent.now = agent.now.max(at);
        agent.home_agent.handle_timeout(agent.now);
        packets.extend(take_sent_packets(&mut agent.home_agent));
    }
    agent.now = end;
    packets
}

/// RFC 6275 9.5.5: the home agent sends one Binding Refresh Request before a binding ends.
#[test]
fn the_home_agent_requests_the_refresh_of_an_expiring_binding_once() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1).lifetime(15));
    assert!(advance_and_take_packets(&mut agent, 52.0).is_empty(), "a node renews by itself before that");
    let packets = advance_and_take_packets(&mut agent, 7.0);
    assert_eq!(packets.len(), 1);
    let header = MobilityHeader::parse(mobility_header_of(&packets[0])).expect("a header");
    assert!(matches!(header.message(), Ok(ParsedMobilityMessage::BindingRefreshRequest(_))));
    // A renewed binding draws no Binding Refresh Request.
    agent.expect_acceptance(&TestUpdate::explicit_update(2).lifetime(15));
    advance_and_take_packets(&mut agent, 40.0);
    agent.expect_acceptance(&TestUpdate::explicit_update(3).lifetime(15));
    assert!(advance_and_take_packets(&mut agent, 40.0).is_empty());
}

/// RFC 5142 5, with RFC 4285 instead of IPsec: the home agent signs and repeats the Home Agent Switch until
/// the node de-registers.
#[test]
fn home_agent_repeats_signed_switch_until_node_deregisters() {
    let mut agent = TestAgent::new(config_with_peer(authenticated_config()));
    agent.expect_acceptance(&TestUpdate::explicit_update(1).with_signature());
    let wall = agent.wall_time();
    agent.home_agent.handle_drain(agent.now, wall, &[], Duration::from_secs(60)).expect("there is a peer");
    let mut packets = take_sent_packets(&mut agent.home_agent);
    // The home agent repeats the switch after 5, 10 and 20 s: INITIAL-HA-SWITCH-TIMEOUT, doubled up to
    // MAX-HA-SWITCH-TIMEOUT.
    for (span, count) in [(4.9, 1), (0.2, 2), (9.7, 2), (0.4, 3), (19.5, 3), (0.5, 4)] {
        packets.extend(advance_and_take_packets(&mut agent, span));
        assert_eq!(packets.len(), count, "after {span}");
    }
    let mut last = 0;
    for packet in &packets {
        let octets = mobility_header_of(packet);
        test_association()
            .verify(octets, addr(CARE_OF_ADDRESS), addr(HOME_ADDRESS))
            .expect("signed for the care-of address");
        let header = MobilityHeader::parse(octets).expect("a header");
        let Ok(ParsedMobilityMessage::HomeAgentSwitch(switch)) = header.message() else {
            panic!("{header:?}")
        };
        assert_eq!(switch.addresses().collect::<Vec<_>>(), [addr(OTHER_HOME_AGENT)]);
        let time = timestamp_option_of(switch.options).expect("a Message-ID option");
        assert!(time > last, "each is newer than all before");
        last = time;
    }
    // During the drain a renewal lasts until the end of the drain at most, and the home agent refuses new
    // nodes.
    let renewed =
        agent.send_and_get_acknowledgement(&TestUpdate::explicit_update(2).lifetime(100).with_signature());
    assert_eq!(renewed.status(), 0);
    assert!((16..=28).contains(&(u32::from(renewed.lifetime()) * 4)), "{renewed:?}");
    let gone =
        agent.send_and_get_acknowledgement(&TestUpdate::explicit_update(3).lifetime(0).with_signature());
    assert_eq!(gone.status(), 0);
    assert_eq!(
        agent.home_agent.relay_of_node(addr(HOME_ADDRESS)).expect("a relay").to,
        addr(OTHER_HOME_AGENT)
    );
    // RFC 5142 5.3: a node that has left and registers again gets "status value 129".
    let back = agent.send_and_get_acknowledgement(&TestUpdate::explicit_update(4).with_signature());
    assert_eq!(back.status(), 129);
    advance_and_take_packets(&mut agent, 1.0);
    agent.home_agent.handle_drain_end().expect("a drain");
    assert_eq!(
        agent.send_and_get_acknowledgement(&TestUpdate::explicit_update(5).with_signature()).status(),
        0
    );
    assert!(agent.home_agent.relay_of_node(addr(HOME_ADDRESS)).is_none());
}

/// RFC 5905 6: on 2036-02-07 at 06:28:16 the NTP seconds begin anew; later messages are still newer.
#[test]
fn messages_after_the_ntp_era_ends_in_2036_are_newer_than_before() {
    let mut agent = TestAgent::new(config_with_peer(authenticated_config()));
    agent.now =
        Time::ZERO + WallTime::from_unix_nanos(2_085_978_493_000_000_000).absolute_difference(WALL_START);
    agent.expect_acceptance(&TestUpdate::explicit_update(1).with_signature());
    let mut last: Option<u64> = None;
    for _ in 0..8 {
        let wall = agent.wall_time();
        agent
            .home_agent
            .handle_drain(agent.now, wall, &[], Duration::from_secs(60))
            .expect("there is a peer");
        for packet in take_sent_packets(&mut agent.home_agent) {
            let header = MobilityHeader::parse(mobility_header_of(&packet)).expect("a header");
            let Ok(ParsedMobilityMessage::HomeAgentSwitch(switch)) = header.message() else {
                panic!("{header:?}")
            };
            let time = timestamp_option_of(switch.options).expect("a Message-ID option");
            assert_eq!(WallTime::from_ntp(time, wall).absolute_difference(wall).as_millis(), 0, "{time:x}");
            let is_newer = last.is_none_or(|last| time.wrapping_sub(last).cast_signed() > 0);
            assert!(is_newer, "{last:x?}, then {time:x}");
            last = Some(time);
        }
        agent.home_agent.handle_drain_end().expect("a drain");
        agent.now += Duration::from_secs(1);
    }
    assert!(last.is_some_and(|last| last >> 32 < 10), "{last:x?}");
}

/// RFC 5142 7: the home agent asks only a few nodes at a time, and further ones as nodes leave.
#[test]
fn drain_asks_at_most_sixteen_nodes_at_a_time() {
    let homes: Vec<String> = (0..100).map(|n| format!("2001:db8:1::1:{n:x}")).collect();
    let mut with_many = config_with_peer(config());
    with_many.nodes = homes.iter().map(|home| crate::agent::authorized_node(home, &[])).collect();
    let mut agent = TestAgent::new(with_many);
    for (n, home) in homes.iter().enumerate() {
        agent.expect_acceptance(
            &TestUpdate::node_update(1).for_home_address(home).from(&format!("2001:db8:f1::1:{n:x}")),
        );
    }
    let wall = agent.wall_time();
    agent.home_agent.handle_drain(agent.now, wall, &[], Duration::from_secs(60)).expect("there is a peer");
    let first = take_sent_packets(&mut agent.home_agent).len();
    assert!((1..=16).contains(&first), "{first}");
    let destination = |packet: &[u8]| Header::parse(packet).expect("a packet").destination;
    // For each node that leaves, the home agent asks one more node.
    let mut asked: Vec<Ipv6Addr> = Vec::new();
    for (n, home) in homes.iter().enumerate().take(40) {
        agent.expect_acceptance(
            &TestUpdate::node_update(2)
                .for_home_address(home)
                .from(&format!("2001:db8:f1::1:{n:x}"))
                .lifetime(0),
        );
        asked.extend(advance_and_take_packets(&mut agent, 0.02).iter().map(|packet| destination(packet)));
    }
    assert_eq!(asked.len(), 40, "one more for each that left");
    let status = agent.home_agent.drain().expect("a drain");
    assert_eq!((status.routers, status.left.len()), (100, 60));
}

/// No message reports to which home agent a node has gone. The home agent assumes that the node followed the
/// last switch.
#[test]
fn drain_names_next_home_agent_after_timeout() {
    let mut with_two = config_with_peer(authenticated_config());
    with_two.other_agents.peers[0].preference = 2;
    let third = "2001:db8:1::3";
    with_two.other_agents.peers.push(PeerHomeAgent { address: addr(third), preference: 1 });
    let mut agent = TestAgent::new(with_two);
    agent.expect_acceptance(&TestUpdate::explicit_update(1).with_signature().lifetime(100));
    let wall = agent.wall_time();
    agent.home_agent.handle_drain(agent.now, wall, &[], Duration::from_secs(120)).expect("there are peers");
    let mut packets = take_sent_packets(&mut agent.home_agent);
    packets.extend(advance_and_take_packets(&mut agent, 56.0));
    let named = |packet: &Vec<u8>| {
        let header = MobilityHeader::parse(mobility_header_of(packet)).expect("a header");
        let Ok(ParsedMobilityMessage::HomeAgentSwitch(switch)) = header.message() else {
            panic!("{header:?}")
        };
        switch.addresses().collect::<Vec<_>>()
    };
    let named: Vec<Vec<Ipv6Addr>> = packets.iter().map(named).collect();
    let (two, three) = (vec![addr(OTHER_HOME_AGENT)], vec![addr(third)]);
    // The home agent sends a switch at 0, 5, 15, 35 and 55 s.
    assert_eq!(named, [two.clone(), two.clone(), two, three.clone(), three]);
    agent.send_and_get_acknowledgement(&TestUpdate::explicit_update(2).lifetime(0).with_signature());
    assert_eq!(agent.home_agent.relay_of_node(addr(HOME_ADDRESS)).expect("a relay").to, addr(third));
    let day = 24.0 * 3600.0;
    advance_and_take_packets(&mut agent, day - 10.0);
    // A restart or a reload does not prolong the relay.
    let stored = agent.home_agent.stored_bindings(agent.now, agent.wall_time());
    let mut anew = TestAgent::new(agent.home_agent.config().clone());
    anew.now = agent.now;
    anew.home_agent.restore(agent.now, agent.wall_time(), stored.clone());
    for mut agent in [agent, anew] {
        take_sent_packets(&mut agent.home_agent);
        assert!(agent.home_agent.relay_of_node(addr(HOME_ADDRESS)).is_some());
        advance_and_take_packets(&mut agent, 11.0);
        assert!(agent.home_agent.relay_of_node(addr(HOME_ADDRESS)).is_none());
        let stored = agent.home_agent.stored_bindings(agent.now, agent.wall_time());
        assert!(stored.iter().all(|node| node.relay.is_none()), "{stored:?}");
    }
}

/// Nodes that do not answer do not delay the switches of other nodes.
#[test]
fn silent_node_does_not_delay_drain_of_others() {
    let homes: Vec<String> = (0..40).map(|n| format!("2001:db8:1::1:{n:x}")).collect();
    let mut with_many = config_with_peer(config());
    with_many.nodes = homes.iter().map(|home| crate::agent::authorized_node(home, &[])).collect();
    let mut agent = TestAgent::new(with_many);
    for (n, home) in homes.iter().enumerate() {
        agent.expect_acceptance(
            &TestUpdate::node_update(1)
                .for_home_address(home)
                .from(&format!("2001:db8:f1::1:{n:x}"))
                .lifetime(100),
        );
    }
    let wall = agent.wall_time();
    agent.home_agent.handle_drain(agent.now, wall, &[], Duration::from_secs(60)).expect("there is a peer");
    let mut packets = take_sent_packets(&mut agent.home_agent);
    packets.extend(advance_and_take_packets(&mut agent, 14.0));
    let asked: std::collections::BTreeSet<Ipv6Addr> =
        packets.iter().map(|packet| Header::parse(packet).expect("a packet").destination).collect();
    assert_eq!(asked.len(), 40, "16 in five seconds");
    // After it has asked all nodes, the home agent repeats the switch to the nodes that have not answered.
    let again = advance_and_take_packets(&mut agent, 5.0).len();
    assert!((8..=16).contains(&again), "{again}");
}

fn revocation_acknowledgement(sequence: u16, status: u8) -> Vec<u8> {
    let kind = RevocationKind::Acknowledgement { status };
    let mut header = MobilityHeaderBuilder::binding_revocation(kind, sequence, RevocationFlags::default())
        .option(&test_association().empty_authentication_option())
        .finish();
    test_association().sign(&mut header, addr(CARE_OF_ADDRESS), addr(HOME_ADDRESS));
    header
}

/// RFC 5846 6.2.2, 6.3 and 7: only the acknowledgement with the right number and MAC ends a revocation.
#[test]
fn home_agent_accepts_only_the_acknowledgement_of_its_own_revocation() {
    let mut agent = TestAgent::new(authenticated_config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1).with_signature());
    let wall = agent.wall_time();
    agent.home_agent.handle_revocation(agent.now, wall, addr(HOME_ADDRESS), &[]).expect("bound");
    let packets = take_sent_packets(&mut agent.home_agent);
    assert_eq!(packets.len(), 1);
    let octets = mobility_header_of(&packets[0]);
    test_association().verify(octets, addr(CARE_OF_ADDRESS), addr(HOME_ADDRESS)).expect("signed");
    let header = MobilityHeader::parse(octets).expect("a header");
    let Ok(ParsedMobilityMessage::BindingRevocation(indication)) = header.message() else {
        panic!("{header:?}")
    };
    assert_eq!(indication.kind, RevocationKind::Indication { trigger: 1 });

    let around = |header: &mut [u8]| TestUpdate::explicit_update(0).packet_around(header);
    let mut wrong = revocation_acknowledgement(indication.sequence.wrapping_add(1), 0);
    assert_eq!(agent.expect_drop(&around(&mut wrong)), MobilityDrop::Unexpected);
    let mut forged = revocation_acknowledgement(indication.sequence, 0);
    let last = forged.len() - 3;
    forged[last] ^= 1;
    assert_eq!(agent.expect_drop(&around(&mut forged)), MobilityDrop::AuthenticationFailed);
    // The node cannot register again while the home agent revokes its binding.
    assert_eq!(
        agent.send_and_get_acknowledgement(&TestUpdate::explicit_update(2).with_signature()).status(),
        129
    );
    assert!(agent.home_binding().is_some());
    let mut right = revocation_acknowledgement(indication.sequence, revocation_status::SUCCESS);
    assert!(agent.receive_packet(&around(&mut right)).is_empty());
    assert!(agent.home_binding().is_none());
    assert!(
        agent.home_agent.bindings().former_paths(addr(HOME_ADDRESS)).is_empty(),
        "nothing more comes from there"
    );
    assert!(advance_and_take_packets(&mut agent, 20.0).is_empty());
}

/// RFC 5846 6.3: without an answer the home agent repeats the revocation, and then "the initiator SHOULD
/// clean up".
#[test]
fn home_agent_repeats_unanswered_revocation_and_then_removes_the_binding() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    let wall = agent.wall_time();
    assert!(agent.home_agent.handle_revocation(agent.now, wall, addr(OTHER_HOME_AGENT), &[]).is_err());
    agent.home_agent.handle_revocation(agent.now, wall, addr(HOME_ADDRESS), &[]).expect("bound");
    let mut packets = take_sent_packets(&mut agent.home_agent);
    packets.extend(advance_and_take_packets(&mut agent, 4.5));
    assert_eq!(packets.len(), 3, "after 1 and 2 s");
    assert!(agent.home_binding().is_some());
    advance_and_take_packets(&mut agent, 1.0);
    assert!(agent.home_binding().is_none());
}

/// Returns the packet of a Binding Revocation Indication that the home agent of this pair would send now.
fn revocation_indication(pair: &mut AgentAndRouters) -> Vec<u8> {
    let (now, wall) = (pair.now, pair.wall_time());
    pair.agent.handle_revocation(now, wall, addr(HOME_ADDRESS), &[]).expect("bound");
    take_sent_packets(&mut pair.agent).pop().expect("an indication")
}

/// Creates a home agent and a router that has been registered with it for `seconds`.
fn pair_registered_for(seconds: f64) -> AgentAndRouters {
    let mut pair = AgentAndRouters::new(PairSetup::authenticated_setup());
    pair.attach_both_uplinks();
    pair.register_router();
    pair.advance_seconds(seconds);
    assert!(pair.is_registered(0));
    pair
}

#[test]
fn router_refuses_revocation_that_an_attacker_delayed() {
    let withheld = revocation_indication(&mut pair_registered_for(10.0));
    let mut pair = pair_registered_for(10.0);
    assert_eq!(pair.deliver_to_router(0, &withheld), Ok(()));
    assert!(!pair.is_registered(0), "one that comes at once counts");
    for seconds in [90.0, 400.0, 4000.0] {
        let mut pair = pair_registered_for(seconds);
        assert_eq!(pair.deliver_to_router(0, &withheld), Err(MobilityDrop::Timestamp), "after {seconds} s");
        assert!(pair.is_registered(0), "after {seconds} s");
        // The router still accepts an indication that the home agent sends now.
        let present = revocation_indication(&mut pair);
        assert_eq!(pair.deliver_to_router(0, &present), Ok(()), "after {seconds} s");
        assert!(!pair.is_registered(0));
    }
}

/// The acknowledgement of a de-registration contains no time of the home agent. The time from the earlier
/// acknowledgement still shows the router that a revocation is late.
#[test]
fn router_refuses_delayed_revocation_after_removal_of_another_binding() {
    let indication = |road: &mut VehicleOnRoad| {
        let wall = WALL_START + road.now.saturating_since(Time::ZERO);
        road.agent.handle_revocation(road.now, wall, addr(HOME_ADDRESS), &[]).expect("bound");
        take_sent_packets(&mut road.agent).pop().expect("an indication")
    };
    let withheld = indication(&mut VehicleOnRoad::with_registered_uplinks());
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.advance_seconds(1000.0);
    road.detach_uplink("sat");
    road.advance_while(5.0, "sat is removed", |road| road.bound_bids().contains(&3));
    road.advance_seconds(0.5);
    road.clear_records();
    road.deliver_to_router(None, &withheld);
    assert_eq!(road.dropped_messages, [MobilityDrop::Timestamp]);
    assert_eq!(road.bound_bids(), [1, 2]);
}

/// The home agent's clock was ahead and is right again. When an acknowledgement has told the router the right
/// time, the router accepts present timestamps, although they are smaller than earlier ones.
#[test]
fn router_accepts_revocation_after_home_agent_corrects_its_clock() {
    let mut pair = pair_registered_for(10.0);
    let year = Duration::from_secs(31_536_000);
    let ordinary = pair.wall_start;
    pair.wall_start = ordinary + year;
    pair.advance_seconds(1000.0);
    let early = revocation_indication(&mut pair);
    pair.wall_start = ordinary;
    let mut pair = pair_registered_for(10.0);
    pair.wall_start = ordinary + year;
    pair.advance_seconds(1000.0);
    assert_eq!(pair.deliver_to_router(0, &early), Ok(()));
    pair.wall_start = ordinary;
    pair.advance_seconds(2000.0);
    assert!(pair.is_registered(0), "it has asked again, and was told the right time");
    let present = revocation_indication(&mut pair);
    assert_eq!(pair.deliver_to_router(0, &present), Ok(()));
    assert!(!pair.is_registered(0));
}

/// A second revocation also covers the bindings of one that is still running.
#[test]
fn second_revocation_covers_the_bindings_of_the_first() {
    for (first, second) in [(&[][..], &[2][..]), (&[1], &[2]), (&[1], &[]), (&[2, 1], &[1])] {
        let mut agent = crate::agent_multiple::agent_with_two_bindings();
        let wall = agent.wall_time();
        agent.home_agent.handle_revocation(agent.now, wall, addr(HOME_ADDRESS), first).expect("bound");
        take_sent_packets(&mut agent.home_agent);
        agent.home_agent.handle_revocation(agent.now, wall, addr(HOME_ADDRESS), second).expect("bound");
        take_sent_packets(&mut agent.home_agent);
        advance_and_take_packets(&mut agent, 6.0);
        assert_eq!(
            agent.home_agent.bindings().bindings_of(addr(HOME_ADDRESS)).count(),
            0,
            "{first:?}, {second:?}"
        );
    }
}

/// Sends a Router Advertisement of another home agent on the home link.
fn announce_other_agent(agent: &mut TestAgent) {
    let message = emit_router_advertisement(&RouterAdvertisementRepr {
        home_agent: true,
        options: &[
            NdOption::PrefixInformation(PrefixInformation {
                prefix: addr(OTHER_HOME_AGENT),
                prefix_length: 64,
                on_link: true,
                autonomous: false,
                router_address: true,
                valid_lifetime: 600,
                preferred_lifetime: 600,
            }),
            NdOption::HomeAgentInformation(HomeAgentInformation {
                mobile_router_support: true,
                preference: 1,
                lifetime: 600,
            }),
        ],
        ..RouterAdvertisementRepr::default()
    });
    agent.receive_link_message("fe80::2", "ff02::1", message);
    assert_eq!(agent.last_drop_reason, None);
}

fn claim_address_of_other_agent(agent: &mut TestAgent) {
    let advertisement = nd::NeighborAdvertisement {
        target: addr(HOME_ADDRESS),
        router: true,
        solicited: false,
        override_: true,
        target_link_address: Some([2, 0, 0, 0, 0, 2]),
    };
    agent.receive_link_message("fe80::2", "ff02::1", advertisement.emit());
}

/// An answer of another home agent to duplicate address detection is no conflict. The node's former home
/// agent answers for the home address until the node has left it.
#[test]
fn node_may_move_between_home_agents_of_the_home_link() {
    let mut agent = TestAgent::on_home_link(config());
    announce_other_agent(&mut agent);
    assert!(agent.send_update(&TestUpdate::explicit_update(1)).is_empty(), "it is being tested");
    claim_address_of_other_agent(&mut agent);
    let answers = agent.advance_time(1.1);
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].status(), 0);
    // The node may go to the other home agent after a Home Agent Switch, so an advertisement of that home
    // agent is no conflict.
    let wall = agent.wall_time();
    agent.home_agent.handle_drain(agent.now, wall, &[], Duration::from_secs(60)).expect("there is another");
    take_sent_packets(&mut agent.home_agent);
    claim_address_of_other_agent(&mut agent);
    assert!(agent.warnings().is_empty(), "{:?}", agent.warnings());
    // An advertisement of another node is a conflict.
    agent.send_foreign_advertisement(HOME_ADDRESS);
    assert_eq!(agent.warnings().len(), 1);
}

/// A node that sends Router Advertisements with the H bit and claims a defended address causes a warning.
#[test]
fn conflicting_home_agent_on_link_is_reported() {
    let mut agent = TestAgent::on_home_link(config());
    agent.send_update(&TestUpdate::explicit_update(1));
    agent.advance_time(1.1);
    assert!(agent.home_binding().is_some());
    announce_other_agent(&mut agent);
    claim_address_of_other_agent(&mut agent);
    assert_eq!(agent.warnings().len(), 1, "{:?}", agent.warnings());
}

/// RFC 4861 7.2.7: the answer for an anycast address has no Override flag, because other home agents may have
/// this address as well.
#[test]
fn proxy_answer_for_anycast_address_lacks_override_flag() {
    let mut config = config();
    config.other_agents.answers_dhaad = true;
    let mut agent = TestAgent::on_home_link(config);
    let anycast = "2001:db8:1:0:fdff:ffff:ffff:fffe";
    let answers = agent.send_solicitation(anycast, "fe80::9");
    assert_eq!(answers.len(), 1);
    assert!(!answers[0].override_ && answers[0].solicited);
    let answers = agent.send_solicitation(HOME_AGENT_ADDRESS, "fe80::9");
    assert!(answers[0].override_);
    // An advertisement of another home agent for the anycast address is no conflict.
    agent.send_foreign_advertisement(anycast);
    assert!(agent.warnings().is_empty());
}

/// RFC 5555: the packet itself has the home address as destination, so the MAC covers the home address.
#[test]
fn node_on_ipv4_uplink_receives_home_agent_messages_inside_ipv4() {
    let mut agent = TestAgent::new(config_with_peer(authenticated_config()));
    let (local, remote) = ("udp:192.0.2.1:4191", "udp:198.51.100.7:31000");
    let ends = [parse_endpoint(local), parse_endpoint(remote)];
    let here = MobilityOption::Ipv4CareOfAddress([10, 0, 0, 9].into());
    let update = TestUpdate::explicit_update(1).sent_on_ipv4_network().with_option(here).with_signature();
    let answers = agent.receive_inside_tunnel(local, remote, &update.to_packet());
    assert_eq!(answers[0].status(), 0);
    let wall = agent.wall_time();
    agent.home_agent.handle_drain(agent.now, wall, &[], Duration::from_secs(60)).expect("there is a peer");
    let outputs: Vec<Output> = std::iter::from_fn(|| agent.home_agent.poll_output()).collect();
    let packet = outputs.iter().find_map(|output| match output {
        Output::Encapsulated { local, remote, packet } if [*local, *remote] == ends => Some(packet),
        _ => None,
    });
    let packet = packet.expect("inside UDP");
    let header = Header::parse(packet).expect("a packet");
    assert_eq!(header.destination, addr(HOME_ADDRESS));
    test_association()
        .verify(&packet[40..], addr(HOME_ADDRESS), addr(HOME_ADDRESS))
        .expect("signed for the home address");
    assert!(!outputs.iter().any(|output| matches!(output, Output::Event(Event::Warning { .. }))));
}

/// RFC 6275 10.6.3: each node gets answers to Mobile Prefix Solicitations, however many another node sends.
#[test]
fn prefix_solicitations_are_limited_for_each_node() {
    let second = "2001:db8:1::5678";
    let mut two = config();
    two.nodes.push(crate::agent::authorized_node(second, &[]));
    let mut agent = TestAgent::new(two);
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    agent.expect_acceptance(&TestUpdate::node_update(1).for_home_address(second).from(OTHER_CARE_OF_ADDRESS));
    let mut ask = |home: &str, care_of: &str| {
        let mut message = vec![146, 0, 0, 0, 0, 7, 0, 0];
        icmpv6::set_checksum(&mut message, addr(home), addr(HOME_AGENT_ADDRESS));
        let result =
            agent.home_agent.handle_prefix_solicitation(agent.now, addr(care_of), addr(home), &message);
        assert_eq!(take_sent_packets(&mut agent.home_agent).len(), usize::from(result.is_ok()));
        result
    };
    let answered = (0..100).filter(|_| ask(HOME_ADDRESS, CARE_OF_ADDRESS).is_ok()).count();
    assert_eq!(answered, 3);
    assert_eq!(ask(HOME_ADDRESS, CARE_OF_ADDRESS), Err(MobilityDrop::RateLimited));
    assert_eq!(ask(second, OTHER_CARE_OF_ADDRESS), Ok(()));
}
