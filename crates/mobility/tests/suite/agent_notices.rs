//! Messages that the home agent sends unsolicited: Binding Refresh Request, Home Agent Switch and Binding
//! Revocation. The last tests check the home link while a node changes to another home agent there.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_mobility::home_agent::{HomeAgentConfig, OtherAgents, Peer};
use carnet_mobility::{Event, HomeAgent, MobilityDrop, Output};
use carnet_wire::extension::Extensions;
use carnet_wire::icmpv6;
use carnet_wire::ipv6::Header;
use carnet_wire::mobility::revocation::revocation_status;
use carnet_wire::mobility::{
    Builder, Message, MobilityHeader, MobilityOption, RevocationFlags, RevocationKind,
};
use carnet_wire::nd::{
    self, HomeAgentInformation, NdOption, PrefixInformation, RouterAdvertisementRepr, router_advertisement,
};

use crate::agent::{Agent, WALL_START, authenticated, config, end};
use crate::craft::*;
use crate::pair::{Pair, Setup};
use crate::road::Road;

const OTHER: &str = "2001:db8:1::2";

fn with_peer(mut config: HomeAgentConfig) -> HomeAgentConfig {
    config.others =
        OtherAgents { peers: vec![Peer { address: addr(OTHER), preference: 0 }], ..OtherAgents::default() };
    config
}

/// Takes the packets with a Mobility Header that the home agent sends now, unparsed.
fn sent(machine: &mut HomeAgent) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| machine.poll_output())
        .filter_map(|output| match output {
            Output::Packet(packet) => Some(packet),
            _ => None,
        })
        .collect()
}

/// Returns the Mobility Header of a packet to the care-of address with a type 2 routing header.
fn header_of(packet: &[u8]) -> &[u8] {
    let header = Header::parse(packet).expect("a packet");
    let extensions = Extensions::parse(packet).expect("extension headers");
    assert_eq!((header.source, header.destination), (addr(AGENT), addr(CARE_OF)));
    assert_eq!(extensions.routing_home_address, Some(addr(HOME)), "RFC 6275 6.4");
    let octets = &packet[extensions.upper_layer_offset..];
    MobilityHeader::parse_verified(octets, addr(AGENT), addr(HOME)).expect("a mobility header");
    octets
}

fn timestamp(options: carnet_wire::mobility::Options<'_>) -> Option<u64> {
    options.iter().find_map(|option| match option {
        Ok(MobilityOption::MessageIdentifier(time)) => Some(time),
        _ => None,
    })
}

/// Lets `seconds` pass, and returns the packets that the home agent sent meanwhile.
fn wait(agent: &mut Agent, seconds: f64) -> Vec<Vec<u8>> {
    let end = agent.now + Duration::from_secs_f64(seconds);
    let mut packets = Vec::new();
    while let Some(at) = agent.machine.poll_timeout().filter(|at| *at <= end) {
        agent.now = agent.now.max(at);
        agent.machine.handle_timeout(agent.now);
        packets.extend(sent(&mut agent.machine));
    }
    agent.now = end;
    packets
}

/// RFC 6275 9.5.5: the home agent sends one Binding Refresh Request before a binding ends.
#[test]
fn the_home_agent_requests_the_refresh_of_an_expiring_binding_once() {
    let mut agent = Agent::new(config());
    agent.accept(&Update::explicit(1).lifetime(15));
    assert!(wait(&mut agent, 52.0).is_empty(), "a node renews by itself before that");
    let packets = wait(&mut agent, 7.0);
    assert_eq!(packets.len(), 1);
    let header = MobilityHeader::parse(header_of(&packets[0])).expect("a header");
    assert!(matches!(header.message(), Ok(Message::BindingRefreshRequest(_))));
    // A renewed binding draws no Binding Refresh Request.
    agent.accept(&Update::explicit(2).lifetime(15));
    wait(&mut agent, 40.0);
    agent.accept(&Update::explicit(3).lifetime(15));
    assert!(wait(&mut agent, 40.0).is_empty());
}

/// RFC 5142 5, with RFC 4285 instead of IPsec: the home agent signs and repeats the Home Agent Switch until
/// the node de-registers.
#[test]
fn a_switch_is_signed_repeated_and_answered_by_leaving() {
    let mut agent = Agent::new(with_peer(authenticated()));
    agent.accept(&Update::explicit(1).signed());
    let wall = agent.wall();
    agent.machine.handle_drain(agent.now, wall, &[], Duration::from_secs(60)).expect("there is a peer");
    let mut packets = sent(&mut agent.machine);
    // INITIAL-HA-SWITCH-TIMEOUT, doubled up to MAX-HA-SWITCH-TIMEOUT: after 5, 10 and 20 s.
    for (span, count) in [(4.9, 1), (0.2, 2), (9.7, 2), (0.4, 3), (19.5, 3), (0.5, 4)] {
        packets.extend(wait(&mut agent, span));
        assert_eq!(packets.len(), count, "after {span}");
    }
    let mut last = 0;
    for packet in &packets {
        let octets = header_of(packet);
        association().verify(octets, addr(CARE_OF), addr(HOME)).expect("signed for the care-of address");
        let header = MobilityHeader::parse(octets).expect("a header");
        let Ok(Message::HomeAgentSwitch(switch)) = header.message() else { panic!("{header:?}") };
        assert_eq!(switch.addresses().collect::<Vec<_>>(), [addr(OTHER)]);
        let time = timestamp(switch.options).expect("a Message-ID option");
        assert!(time > last, "each is newer than all before");
        last = time;
    }
    // During the drain a renewal lasts until its end at most, and the home agent refuses new nodes.
    let renewed = agent.ask(&Update::explicit(2).lifetime(100).signed());
    assert_eq!(renewed.status(), 0);
    assert!((16..=28).contains(&(u32::from(renewed.lifetime()) * 4)), "{renewed:?}");
    let gone = agent.ask(&Update::explicit(3).lifetime(0).signed());
    assert_eq!(gone.status(), 0);
    assert_eq!(agent.machine.relay(addr(HOME)).expect("a relay").to, addr(OTHER));
    // RFC 5142 5.3: after it has left, the node gets "status value 129".
    let back = agent.ask(&Update::explicit(4).signed());
    assert_eq!(back.status(), 129);
    wait(&mut agent, 1.0);
    agent.machine.handle_drain_end().expect("a drain");
    assert_eq!(agent.ask(&Update::explicit(5).signed()).status(), 0);
    assert!(agent.machine.relay(addr(HOME)).is_none());
}

/// RFC 5905 6: on 2036-02-07 at 06:28:16 the NTP seconds begin anew; later messages are still newer.
#[test]
fn messages_after_2036_are_newer_than_before() {
    let mut agent = Agent::new(with_peer(authenticated()));
    agent.now = Time::ZERO + WallTime::from_unix_nanos(2_085_978_493_000_000_000).distance(WALL_START);
    agent.accept(&Update::explicit(1).signed());
    let mut last: Option<u64> = None;
    for _ in 0..8 {
        let wall = agent.wall();
        agent.machine.handle_drain(agent.now, wall, &[], Duration::from_secs(60)).expect("there is a peer");
        for packet in sent(&mut agent.machine) {
            let header = MobilityHeader::parse(header_of(&packet)).expect("a header");
            let Ok(Message::HomeAgentSwitch(switch)) = header.message() else { panic!("{header:?}") };
            let time = timestamp(switch.options).expect("a Message-ID option");
            assert_eq!(WallTime::from_ntp(time, wall).distance(wall).as_millis(), 0, "{time:x}");
            let is_newer = last.is_none_or(|last| time.wrapping_sub(last).cast_signed() > 0);
            assert!(is_newer, "{last:x?}, then {time:x}");
            last = Some(time);
        }
        agent.machine.handle_drain_end().expect("a drain");
        agent.now += Duration::from_secs(1);
    }
    assert!(last.is_some_and(|last| last >> 32 < 10), "{last:x?}");
}

/// RFC 5142 7: the home agent asks only a few nodes at a time, and further ones as nodes leave.
#[test]
fn drain_asks_at_most_sixteen_nodes_at_a_time() {
    let homes: Vec<String> = (0..100).map(|n| format!("2001:db8:1::1:{n:x}")).collect();
    let mut with_many = with_peer(config());
    with_many.nodes = homes.iter().map(|home| crate::agent::node(home, &[])).collect();
    let mut agent = Agent::new(with_many);
    for (n, home) in homes.iter().enumerate() {
        agent.accept(&Update::node(1).of(home).from(&format!("2001:db8:f1::1:{n:x}")));
    }
    let wall = agent.wall();
    agent.machine.handle_drain(agent.now, wall, &[], Duration::from_secs(60)).expect("there is a peer");
    let first = sent(&mut agent.machine).len();
    assert!((1..=16).contains(&first), "{first}");
    let destination = |packet: &[u8]| Header::parse(packet).expect("a packet").destination;
    // Each node that leaves makes room for the next.
    let mut asked: Vec<Ipv6Addr> = Vec::new();
    for (n, home) in homes.iter().enumerate().take(40) {
        agent.accept(&Update::node(2).of(home).from(&format!("2001:db8:f1::1:{n:x}")).lifetime(0));
        asked.extend(wait(&mut agent, 0.02).iter().map(|packet| destination(packet)));
    }
    assert_eq!(asked.len(), 40, "one more for each that left");
    let status = agent.machine.drain().expect("a drain");
    assert_eq!((status.routers, status.left.len()), (100, 60));
}

/// No message reports to which home agent a node has gone. The home agent assumes that the node followed the
/// last switch.
#[test]
fn drain_names_next_home_agent_after_timeout() {
    let mut with_two = with_peer(authenticated());
    with_two.others.peers[0].preference = 2;
    let third = "2001:db8:1::3";
    with_two.others.peers.push(Peer { address: addr(third), preference: 1 });
    let mut agent = Agent::new(with_two);
    agent.accept(&Update::explicit(1).signed().lifetime(100));
    let wall = agent.wall();
    agent.machine.handle_drain(agent.now, wall, &[], Duration::from_secs(120)).expect("there are peers");
    let mut packets = sent(&mut agent.machine);
    packets.extend(wait(&mut agent, 56.0));
    let named = |packet: &Vec<u8>| {
        let header = MobilityHeader::parse(header_of(packet)).expect("a header");
        let Ok(Message::HomeAgentSwitch(switch)) = header.message() else { panic!("{header:?}") };
        switch.addresses().collect::<Vec<_>>()
    };
    let named: Vec<Vec<Ipv6Addr>> = packets.iter().map(named).collect();
    let (two, three) = (vec![addr(OTHER)], vec![addr(third)]);
    // The home agent sends a switch at 0, 5, 15, 35 and 55 s.
    assert_eq!(named, [two.clone(), two.clone(), two, three.clone(), three]);
    agent.ask(&Update::explicit(2).lifetime(0).signed());
    assert_eq!(agent.machine.relay(addr(HOME)).expect("a relay").to, addr(third));
    let day = 24.0 * 3600.0;
    wait(&mut agent, day - 10.0);
    // A restart or a reload does not prolong the relay.
    let stored = agent.machine.stored(agent.now, agent.wall());
    let mut anew = Agent::new(agent.machine.config().clone());
    anew.now = agent.now;
    anew.machine.restore(agent.now, agent.wall(), stored.clone());
    for mut agent in [agent, anew] {
        sent(&mut agent.machine);
        assert!(agent.machine.relay(addr(HOME)).is_some());
        wait(&mut agent, 11.0);
        assert!(agent.machine.relay(addr(HOME)).is_none());
        let stored = agent.machine.stored(agent.now, agent.wall());
        assert!(stored.iter().all(|node| node.relay.is_none()), "{stored:?}");
    }
}

/// Nodes that do not answer do not delay the switches of other nodes.
#[test]
fn silent_node_does_not_delay_drain_of_others() {
    let homes: Vec<String> = (0..40).map(|n| format!("2001:db8:1::1:{n:x}")).collect();
    let mut with_many = with_peer(config());
    with_many.nodes = homes.iter().map(|home| crate::agent::node(home, &[])).collect();
    let mut agent = Agent::new(with_many);
    for (n, home) in homes.iter().enumerate() {
        agent.accept(&Update::node(1).of(home).from(&format!("2001:db8:f1::1:{n:x}")).lifetime(100));
    }
    let wall = agent.wall();
    agent.machine.handle_drain(agent.now, wall, &[], Duration::from_secs(60)).expect("there is a peer");
    let mut packets = sent(&mut agent.machine);
    packets.extend(wait(&mut agent, 14.0));
    let asked: std::collections::BTreeSet<Ipv6Addr> =
        packets.iter().map(|packet| Header::parse(packet).expect("a packet").destination).collect();
    assert_eq!(asked.len(), 40, "16 in five seconds");
    // After it has asked all nodes, the home agent repeats the switch to the nodes that have not answered.
    let again = wait(&mut agent, 5.0).len();
    assert!((8..=16).contains(&again), "{again}");
}

fn acknowledgement(sequence: u16, status: u8) -> Vec<u8> {
    let kind = RevocationKind::Acknowledgement { status };
    let mut header = Builder::binding_revocation(kind, sequence, RevocationFlags::default())
        .option(&association().blank_option())
        .finish();
    association().sign(&mut header, addr(CARE_OF), addr(HOME));
    header
}

/// RFC 5846 6.2.2, 6.3 and 7: only the acknowledgement with the right number and MAC ends a revocation.
#[test]
fn a_revocation_ends_only_with_its_own_acknowledgement() {
    let mut agent = Agent::new(authenticated());
    agent.accept(&Update::explicit(1).signed());
    let wall = agent.wall();
    agent.machine.handle_revocation(agent.now, wall, addr(HOME), &[]).expect("bound");
    let packets = sent(&mut agent.machine);
    assert_eq!(packets.len(), 1);
    let octets = header_of(&packets[0]);
    association().verify(octets, addr(CARE_OF), addr(HOME)).expect("signed");
    let header = MobilityHeader::parse(octets).expect("a header");
    let Ok(Message::BindingRevocation(indication)) = header.message() else { panic!("{header:?}") };
    assert_eq!(indication.kind, RevocationKind::Indication { trigger: 1 });

    let around = |header: &mut [u8]| Update::explicit(0).around(header);
    let mut wrong = acknowledgement(indication.sequence.wrapping_add(1), 0);
    assert_eq!(agent.ignore(&around(&mut wrong)), MobilityDrop::Unexpected);
    let mut forged = acknowledgement(indication.sequence, 0);
    let last = forged.len() - 3;
    forged[last] ^= 1;
    assert_eq!(agent.ignore(&around(&mut forged)), MobilityDrop::AuthenticationFailed);
    // The node cannot register again while the home agent revokes its binding.
    assert_eq!(agent.ask(&Update::explicit(2).signed()).status(), 129);
    assert!(agent.binding().is_some());
    let mut right = acknowledgement(indication.sequence, revocation_status::SUCCESS);
    assert!(agent.receive(&around(&mut right)).is_empty());
    assert!(agent.binding().is_none());
    assert!(agent.machine.bindings().former(addr(HOME)).is_empty(), "nothing more comes from there");
    assert!(wait(&mut agent, 20.0).is_empty());
}

/// RFC 5846 6.3: without an answer the home agent repeats the revocation, and then "the initiator SHOULD
/// clean up".
#[test]
fn unanswered_revocation_is_repeated_and_then_final() {
    let mut agent = Agent::new(config());
    agent.accept(&Update::explicit(1));
    let wall = agent.wall();
    assert!(agent.machine.handle_revocation(agent.now, wall, addr(OTHER), &[]).is_err());
    agent.machine.handle_revocation(agent.now, wall, addr(HOME), &[]).expect("bound");
    let mut packets = sent(&mut agent.machine);
    packets.extend(wait(&mut agent, 4.5));
    assert_eq!(packets.len(), 3, "after 1 and 2 s");
    assert!(agent.binding().is_some());
    wait(&mut agent, 1.0);
    assert!(agent.binding().is_none());
}

/// Returns the packet of a Binding Revocation Indication that the home agent of this pair would send now.
fn indication(pair: &mut Pair) -> Vec<u8> {
    let (now, wall) = (pair.now, pair.wall());
    pair.agent.handle_revocation(now, wall, addr(HOME), &[]).expect("bound");
    sent(&mut pair.agent).pop().expect("an indication")
}

/// A pair whose router has been registered for `seconds`.
fn registered_for(seconds: f64) -> Pair {
    let mut pair = Pair::new(Setup::authenticated());
    pair.attach_both();
    pair.register();
    pair.run(seconds);
    assert!(pair.is_registered(0));
    pair
}

#[test]
fn router_refuses_revocation_that_an_attacker_has_withheld() {
    let withheld = indication(&mut registered_for(10.0));
    let mut pair = registered_for(10.0);
    assert_eq!(pair.router_receives(0, &withheld), Ok(()));
    assert!(!pair.is_registered(0), "one that comes at once counts");
    for seconds in [90.0, 400.0, 4000.0] {
        let mut pair = registered_for(seconds);
        assert_eq!(pair.router_receives(0, &withheld), Err(MobilityDrop::Timestamp), "after {seconds} s");
        assert!(pair.is_registered(0), "after {seconds} s");
        // The router still accepts an indication that the home agent sends now.
        let present = indication(&mut pair);
        assert_eq!(pair.router_receives(0, &present), Ok(()), "after {seconds} s");
        assert!(!pair.is_registered(0));
    }
}

/// The acknowledgement of a de-registration carries no timestamp of the home agent.
#[test]
fn router_refuses_withheld_revocation_after_the_removal_of_another_binding() {
    let indication = |road: &mut Road| {
        let wall = WALL_START + road.now.saturating_since(Time::ZERO);
        road.agent.handle_revocation(road.now, wall, addr(HOME), &[]).expect("bound");
        sent(&mut road.agent).pop().expect("an indication")
    };
    let withheld = indication(&mut Road::registered());
    let mut road = Road::registered();
    road.run(1000.0);
    road.detach("sat");
    road.run_while(5.0, "sat is removed", |road| road.bound_bids().contains(&3));
    road.run(0.5);
    road.forget();
    road.router_receives(None, &withheld);
    assert_eq!(road.drops, [MobilityDrop::Timestamp]);
    assert_eq!(road.bound_bids(), [1, 2]);
}

/// The home agent's clock was ahead and is right again. When an acknowledgement has told the router the right
/// time, the router accepts present timestamps, although they are smaller than earlier ones.
#[test]
fn router_follows_revocation_after_the_clock_of_the_home_agent_was_ahead() {
    let mut pair = registered_for(10.0);
    let year = Duration::from_secs(31_536_000);
    let ordinary = pair.wall_start;
    pair.wall_start = ordinary + year;
    pair.run(1000.0);
    let early = indication(&mut pair);
    pair.wall_start = ordinary;
    let mut pair = registered_for(10.0);
    pair.wall_start = ordinary + year;
    pair.run(1000.0);
    assert_eq!(pair.router_receives(0, &early), Ok(()));
    pair.wall_start = ordinary;
    pair.run(2000.0);
    assert!(pair.is_registered(0), "it has asked again, and was told the right time");
    let present = indication(&mut pair);
    assert_eq!(pair.router_receives(0, &present), Ok(()));
    assert!(!pair.is_registered(0));
}

/// A second revocation covers the bindings of the first as well.
#[test]
fn second_revocation_includes_the_first() {
    for (first, second) in [(&[][..], &[2][..]), (&[1], &[2]), (&[1], &[]), (&[2, 1], &[1])] {
        let mut agent = crate::agent_multiple::two();
        let wall = agent.wall();
        agent.machine.handle_revocation(agent.now, wall, addr(HOME), first).expect("bound");
        sent(&mut agent.machine);
        agent.machine.handle_revocation(agent.now, wall, addr(HOME), second).expect("bound");
        sent(&mut agent.machine);
        wait(&mut agent, 6.0);
        assert_eq!(agent.machine.bindings().of(addr(HOME)).count(), 0, "{first:?}, {second:?}");
    }
}

/// Sends a Router Advertisement of another home agent on the home link.
fn other_agent(agent: &mut Agent) {
    let message = router_advertisement(&RouterAdvertisementRepr {
        home_agent: true,
        options: &[
            NdOption::PrefixInformation(PrefixInformation {
                prefix: addr(OTHER),
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
    agent.hear("fe80::2", "ff02::1", message);
    assert_eq!(agent.dropped, None);
}

fn claim_of_other(agent: &mut Agent) {
    let advertisement = nd::NeighborAdvertisement {
        target: addr(HOME),
        router: true,
        solicited: false,
        override_: true,
        target_link_address: Some([2, 0, 0, 0, 0, 2]),
    };
    agent.hear("fe80::2", "ff02::1", advertisement.emit());
}

/// Duplicate address detection protects against other nodes only: the former home agent answers for the home
/// address until the node has left it.
#[test]
fn a_node_may_come_from_another_home_agent_of_the_home_link() {
    let mut agent = Agent::on_home_link(config());
    other_agent(&mut agent);
    assert!(agent.send(&Update::explicit(1)).is_empty(), "it is being tested");
    claim_of_other(&mut agent);
    let answers = agent.wait(1.1);
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].status(), 0);
    // The node may go to the other home agent after a Home Agent Switch, so the home agent reports no
    // conflict with that one.
    let wall = agent.wall();
    agent.machine.handle_drain(agent.now, wall, &[], Duration::from_secs(60)).expect("there is another");
    sent(&mut agent.machine);
    claim_of_other(&mut agent);
    assert!(agent.warnings().is_empty(), "{:?}", agent.warnings());
    // An advertisement of another node is a conflict.
    agent.claim(HOME);
    assert_eq!(agent.warnings().len(), 1);
}

/// A node that sends Router Advertisements with the H bit and claims a defended address causes a warning.
#[test]
fn conflicting_home_agent_on_link_is_reported() {
    let mut agent = Agent::on_home_link(config());
    agent.send(&Update::explicit(1));
    agent.wait(1.1);
    assert!(agent.binding().is_some());
    other_agent(&mut agent);
    claim_of_other(&mut agent);
    assert_eq!(agent.warnings().len(), 1, "{:?}", agent.warnings());
}

/// RFC 4861 7.2.7: other home agents may have the anycast address as well.
#[test]
fn proxy_answer_for_anycast_address_lacks_override_flag() {
    let mut config = config();
    config.others.dhaad = true;
    let mut agent = Agent::on_home_link(config);
    let anycast = "2001:db8:1:0:fdff:ffff:ffff:fffe";
    let answers = agent.solicit(anycast, "fe80::9");
    assert_eq!(answers.len(), 1);
    assert!(!answers[0].override_ && answers[0].solicited);
    let answers = agent.solicit(AGENT, "fe80::9");
    assert!(answers[0].override_);
    // An advertisement of another home agent for the anycast address is no conflict.
    agent.claim(anycast);
    assert!(agent.warnings().is_empty());
}

/// RFC 5555: the packet itself has the home address as destination, so the MAC covers the home address.
#[test]
fn a_node_behind_ipv4_receives_the_message_inside_ipv4() {
    let mut agent = Agent::new(with_peer(authenticated()));
    let (local, remote) = ("udp:192.0.2.1:4191", "udp:198.51.100.7:31000");
    let ends = [end(local), end(remote)];
    let here = MobilityOption::Ipv4CareOfAddress([10, 0, 0, 9].into());
    let update = Update::explicit(1).inside().with(here).signed();
    let answers = agent.receive_inside(local, remote, &update.packet());
    assert_eq!(answers[0].status(), 0);
    let wall = agent.wall();
    agent.machine.handle_drain(agent.now, wall, &[], Duration::from_secs(60)).expect("there is a peer");
    let outputs: Vec<Output> = std::iter::from_fn(|| agent.machine.poll_output()).collect();
    let packet = outputs.iter().find_map(|output| match output {
        Output::Encapsulated { local, remote, packet } if [*local, *remote] == ends => Some(packet),
        _ => None,
    });
    let packet = packet.expect("inside UDP");
    let header = Header::parse(packet).expect("a packet");
    assert_eq!(header.destination, addr(HOME));
    association().verify(&packet[40..], addr(HOME), addr(HOME)).expect("signed for the home address");
    assert!(!outputs.iter().any(|output| matches!(output, Output::Event(Event::Warning { .. }))));
}

/// RFC 6275 10.6.3: each node gets answers to Mobile Prefix Solicitations, however many another node sends.
#[test]
fn prefix_solicitations_are_limited_for_each_node() {
    let second = "2001:db8:1::5678";
    let mut two = config();
    two.nodes.push(crate::agent::node(second, &[]));
    let mut agent = Agent::new(two);
    agent.accept(&Update::explicit(1));
    agent.accept(&Update::node(1).of(second).from(OTHER_CARE_OF));
    let mut ask = |home: &str, care_of: &str| {
        let mut message = vec![146, 0, 0, 0, 0, 7, 0, 0];
        icmpv6::set_checksum(&mut message, addr(home), addr(AGENT));
        let result = agent.machine.handle_prefix_solicitation(agent.now, addr(care_of), addr(home), &message);
        assert_eq!(sent(&mut agent.machine).len(), usize::from(result.is_ok()));
        result
    };
    let answered = (0..100).filter(|_| ask(HOME, CARE_OF).is_ok()).count();
    assert_eq!(answered, 3);
    assert_eq!(ask(HOME, CARE_OF), Err(MobilityDrop::RateLimited));
    assert_eq!(ask(second, OTHER_CARE_OF), Ok(()));
}
