//! Home agent: Binding Updates inside IPv4 and UDP (RFC 5555 4.2, 4.5; RFC 5648 8.1).

use std::net::Ipv4Addr;

use carnet_base::Rng;
use carnet_mobility::home_agent::HomeAgentConfig;
use carnet_mobility::{Event, MobilityDrop};
use carnet_wire::mobility::options::option_type;
use carnet_wire::mobility::{BindingUpdateFlags, Message, MobilityHeader, MobilityOption};

use crate::agent::{Agent, WALL_START, authenticated, config, end};
use crate::craft::*;
use crate::several::*;

/// The home agent's end. It is a private address behind a static NAT.
const HERE: &str = "udp:10.0.0.1:4191";
const V4: &str = "192.0.2.77";
/// The node's end without a NAT.
const DIRECT: &str = "udp:192.0.2.77:4191";
/// The node's end behind a NAT, before the NAT has lost its mapping. `REMAPPED` is the end afterwards.
const MAPPED: &str = "udp:198.51.100.9:40123";
const REMAPPED: &str = "udp:198.51.100.9:51000";

fn ipv4_care_of(text: &str) -> MobilityOption<'static> {
    MobilityOption::Ipv4CareOfAddress(text.parse().expect("an IPv4 address"))
}

/// A plain registration from an IPv4 network.
fn plain(sequence: u16) -> Update {
    Update::explicit(sequence).inside().with(ipv4_care_of(V4))
}

/// A registration with a Binding Identifier and no IPv4 Care-of Address option (RFC 5648 8.1).
fn identified(sequence: u16) -> Update {
    Update::explicit(sequence).inside().bid(1, V4)
}

#[track_caller]
fn ask(agent: &mut Agent, remote: &str, update: &Update) -> Seen {
    let mut answers = agent.receive_inside(HERE, remote, &update.packet());
    assert_eq!(answers.len(), 1, "dropped: {:?}", agent.dropped);
    answers.remove(0)
}

#[track_caller]
fn accept(agent: &mut Agent, remote: &str, update: &Update) -> Seen {
    let answer = ask(agent, remote, update);
    assert_eq!(answer.status(), 0);
    answer
}

fn ends(agent: &Agent) -> (String, String) {
    let (here, there) = agent.binding().expect("bound").ends();
    (here.to_string(), there.to_string())
}

fn strings(here: &str, there: &str) -> (String, String) {
    (here.into(), there.into())
}

/// Conformance item 61; RFC 5555 4.2: the outer source equals the address in the option, so there is no NAT
/// and packets go in plain IPv4. The answer goes inside UDP to the home address, without a routing header.
#[test]
fn without_a_nat_packets_go_in_plain_ipv4() {
    for update in [plain(1), identified(1)] {
        let mut agent = Agent::new(config());
        let answer = accept(&mut agent, DIRECT, &update);
        assert_eq!((answer.source, answer.destination), (addr(AGENT), addr(HOME)));
        assert_eq!(answer.routing_home_address, None);
        assert_eq!(said(&answer).nat, None);
        assert_eq!(ends(&agent), strings("10.0.0.1", V4));
        assert!(answer.mobile_router() && answer.lifetime() == 15);
    }
}

/// Conformance item 60; RFC 5555 4.2: the outer source differs from the address in the option, so there is a
/// NAT. Packets go in UDP to the outer address and port. The answer reports the NAT and the keepalive
/// interval to the node.
#[test]
fn behind_a_nat_packets_go_in_udp_to_the_address_that_we_see() {
    for update in [plain(1), identified(1)] {
        let mut agent = Agent::new(config());
        let answer = accept(&mut agent, MAPPED, &update);
        assert_eq!(said(&answer).nat, Some((false, 25)));
        assert_eq!(ends(&agent), strings(HERE, MAPPED));
        assert!(agent.events.iter().any(
            |event| matches!(event, Event::Binding { care_of_address, .. } if *care_of_address == end(MAPPED))
        ));
    }
}

/// RFC 5555 4.2: the home agent assumes a NAT if the node names no IPv4 address.
#[test]
fn update_without_ipv4_address_counts_as_behind_nat() {
    let mut agent = Agent::new(config());
    let answer = accept(&mut agent, DIRECT, &Update::explicit(1).inside());
    assert_eq!(said(&answer).nat, Some((false, 25)));
    assert_eq!(ends(&agent), strings(HERE, DIRECT));
}

/// RFC 5555 3.1.3, 4.5: the home agent grants the F flag; 3.2.2: "all 1s ... keepalives are not needed".
#[test]
fn udp_is_used_when_the_node_or_the_operator_wants_it() {
    let forced = BindingUpdateFlags { force_udp: true, ..ROUTER };
    let mut agent = Agent::new(config());
    let answer = accept(&mut agent, DIRECT, &plain(1).flags(forced));
    assert_eq!(said(&answer).nat, Some((true, u32::MAX)));
    assert_eq!(ends(&agent), strings(HERE, DIRECT));
    // The next update asks for no UDP: the binding changes to plain IPv4.
    accept(&mut agent, DIRECT, &plain(2));
    assert_eq!(ends(&agent), strings("10.0.0.1", V4));
    assert!(agent.machine.bindings().accepts(addr(HOME), end(DIRECT)), "for a moment");
    // The operator forces UDP, because only a UDP port reaches the home agent.
    let mut agent = Agent::new(HomeAgentConfig { force_udp: true, ..config() });
    let answer = accept(&mut agent, DIRECT, &plain(1));
    assert_eq!(said(&answer).nat, Some((true, u32::MAX)));
    assert_eq!(ends(&agent), strings(HERE, DIRECT));
}

/// A NAT has lost its mapping. The next Binding Update from the new address moves the binding; the home agent
/// accepts packets from the old address during the grace period.
#[test]
fn changed_nat_mapping_moves_binding_with_next_update() {
    for update in [plain(2), identified(2), Update::explicit(2).inside().known_bid(1)] {
        let mut agent = Agent::new(config());
        let first = if update.options == plain(2).options { plain(1) } else { identified(1) };
        accept(&mut agent, MAPPED, &first);
        let answer = accept(&mut agent, REMAPPED, &update);
        assert_eq!(said(&answer).nat, Some((false, 25)));
        assert_eq!(ends(&agent), strings(HERE, REMAPPED));
        assert!(agent.machine.bindings().accepts(addr(HOME), end(MAPPED)));
        agent.wait(5.1);
        assert!(!agent.machine.bindings().accepts(addr(HOME), end(MAPPED)));
    }
}

/// A packet from the new address moves no binding. The home agent sends a Binding Error over UDP to that
/// address, and the node registers.
#[test]
fn a_data_packet_from_an_unbound_address_gets_a_binding_error_and_changes_no_binding() {
    let mut agent = Agent::new(authenticated());
    accept(&mut agent, MAPPED, &identified(1).signed());
    let before = agent.snapshot();
    let now = agent.now;
    agent.machine.handle_unbound(now, end(HERE), end(REMAPPED), addr("2001:db8:a::77"));
    assert!(agent.drain().is_empty());
    let (from, to, error) = agent.encapsulated.pop().expect("a Binding Error");
    assert_eq!((from, to), (end(HERE), end(REMAPPED)));
    assert_eq!(error.message, SeenMessage::BindingError { status: 1, home_address: addr(HOME) });
    assert_eq!((error.source, error.destination), (addr(AGENT), addr(HOME)));
    assert_eq!(agent.snapshot(), before);
    // Packets from the registered address, and packets with an unknown home address, draw no Binding Error.
    for (remote, inner) in [(MAPPED, HOME), (REMAPPED, "2001:db8:99::1")] {
        agent.machine.handle_unbound(now, end(HERE), end(remote), addr(inner));
        assert!(agent.drain().is_empty() && agent.encapsulated.is_empty());
    }
    // A forged Binding Update and a replayed one do not move the binding either.
    for (forged, remote) in [(identified(2), REMAPPED), (identified(1).signed(), REMAPPED)] {
        agent.receive_inside(HERE, remote, &forged.packet());
        assert_eq!(agent.snapshot(), before);
        agent.wait(1.0);
    }
    accept(&mut agent, REMAPPED, &identified(2).signed());
    assert_eq!(ends(&agent), strings(HERE, REMAPPED));
}

/// Design: the MAC covers the IPv4 care-of address that the node names, as an IPv4-mapped address, also in
/// the answer.
#[test]
fn the_mac_covers_the_address_that_the_node_names() {
    let mapped = "::ffff:192.0.2.77";
    for update in [plain(1), identified(1)] {
        let mut agent = Agent::new(authenticated());
        let answer = accept(&mut agent, MAPPED, &update.signed());
        assert!(answer.is_signed(&association(), mapped, HOME));
    }
    // Without an IPv4 care-of address the MAC covers the IPv6 source, which is the home address.
    let mut agent = Agent::new(authenticated());
    let answer = accept(&mut agent, MAPPED, &Update::explicit(1).inside().signed());
    assert!(answer.is_signed(&association(), HOME, HOME));
    // Status 146 is a signed message as well, and goes only to the address that the update would register.
    let wrong = carnet_mobility::SecurityAssociation { key: [9; 16].into(), ..association() };
    let mut agent = Agent::new(authenticated());
    assert!(agent.receive_inside(HERE, MAPPED, &identified(1).signed_by(wrong.clone()).packet()).is_empty());
    assert_eq!(agent.dropped, Some(MobilityDrop::AuthenticationFailed));
    assert_eq!(ask(&mut agent, DIRECT, &identified(1).signed_by(wrong)).status(), 146);
}

/// RFC 5648 8.1: IPv4 and IPv6 bindings exist beside each other, each with its own path.
#[test]
fn node_has_ipv4_and_ipv6_bindings_together() {
    let mut agent = Agent::new(config());
    agent.accept(&Update::explicit(1).overwriting().bid(2, CARE_OF));
    let answer = accept(&mut agent, MAPPED, &identified(2));
    assert_eq!(said(&answer).bids, [(1, 0)]);
    assert_eq!(bindings(&agent), expected(&[(1, MAPPED), (2, CARE_OF)]));
    // A Binding Update over IPv6 renews the IPv4 binding and does not change its NAT state, which only an
    // update over IPv4 shows.
    let answer = agent.accept(&Update::explicit(3).known_bid(1).known_bid(2));
    assert_eq!(said(&answer).nat, None);
    agent.accept(&Update::explicit(4).bid(1, V4).bid(2, CARE_OF));
    assert_eq!(bindings(&agent), expected(&[(1, MAPPED), (2, CARE_OF)]));
    agent.refuse(&Update::explicit(5).bid(3, V4), 174);
    let answer = agent.ask(&Update::explicit(5).bid(3, V4).known_bid(2));
    assert_eq!((answer.status(), said(&answer).bids), (4, vec![(3, 174), (2, 0)]));
    // The binding is registered without a NAT. A new IPv4 address needs a Binding Update from that address.
    accept(&mut agent, DIRECT, &Update::explicit(6).inside().bid(1, V4));
    agent.refuse(&Update::explicit(7).bid(1, "192.0.2.78"), 174);
    agent.accept(&Update::explicit(7).bid(1, V4));
    assert_eq!(bindings(&agent), expected(&[(1, V4), (2, CARE_OF)]));
    // An update over IPv6 ends the IPv4 binding, and an update over IPv4 ends the IPv6 binding.
    agent.accept(&Update::implicit(8).lifetime(0).known_bid(1));
    accept(&mut agent, MAPPED, &Update::implicit(9).inside().lifetime(0).known_bid(2));
    assert!(bindings(&agent).is_empty());
}

/// RFC 5648 8.1: "Bulk registration MUST NOT be used for the initial binding registration from an IPv4
/// care-of address". The home agent accepts the bindings whose address is certain and refuses the rest.
#[test]
fn bulk_registration_from_ipv4_network_is_accepted() {
    let mut agent = Agent::new(config());
    let bulk = Update::explicit(1).inside().overwriting().bid(1, V4).bid(2, CARE_OF);
    let answer = ask(&mut agent, MAPPED, &bulk);
    assert_eq!((answer.status(), said(&answer).bids), (4, vec![(1, 174), (2, 0)]));
    assert_eq!(said(&answer).nat, None);
    let answer = accept(&mut agent, DIRECT, &Update { sequence: 2, ..bulk });
    assert_eq!(said(&answer).bids, [(1, 0), (2, 0)]);
    assert_eq!(bindings(&agent), expected(&[(1, V4), (2, CARE_OF)]));
}

/// RFC 5555 4.4.2.1: a plain de-registration from the IPv4 network. Its IPv6 source is the home address, as
/// in a registration, so only the lifetime shows that it is a de-registration.
#[test]
fn registration_and_deregistration_work_inside_ipv4() {
    let mut agent = Agent::new(config());
    accept(&mut agent, MAPPED, &plain(1));
    let answer = accept(&mut agent, MAPPED, &Update::implicit(2).inside().lifetime(0));
    assert_eq!(answer.lifetime(), 0);
    assert!(agent.binding().is_none());
    assert!(agent.machine.bindings().accepts(addr(HOME), end(MAPPED)), "for a moment");
    // A registration needs a Home Address option (RFC 6275 10.3.1) unless it comes inside IPv4.
    agent.refuse(&Update::explicit(3).at_home().bid(1, CARE_OF), 128);
}

/// The home agent refuses addresses that no node can have as care-of address: status 174.
#[test]
fn care_of_addresses_that_no_host_can_have_are_refused() {
    for remote in [
        "udp:0.0.0.0:4191",
        "udp:127.0.0.1:4191",
        "udp:224.0.0.1:4191",
        "udp:255.255.255.255:4191",
        "udp:198.51.100.9:0",
        HERE,
    ] {
        let mut agent = Agent::new(config());
        assert_eq!(ask(&mut agent, remote, &plain(1)).status(), 174, "{remote}");
        assert!(agent.binding().is_none());
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
    let mut agent = Agent::new(config());
    let update = plain(1)
        .with(home(32, false, [0, 0, 0, 0]))
        .with(home(32, false, [192, 0, 2, 5]))
        .with(home(24, true, [0, 0, 0, 0]))
        .with(home(0, false, [192, 0, 2, 5]));
    let answer = accept(&mut agent, MAPPED, &update);
    let statuses: Vec<u8> = said(&answer).ipv4.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [132, 130, 133, 131]);
    assert_eq!(said(&answer).ipv4[1].1, Ipv4Addr::new(192, 0, 2, 5));
    // RFC 5648 8.2: "MUST be present before any Binding Identifier mobility option".
    let several = identified(2).with(home(32, false, [0, 0, 0, 0]));
    let answer = accept(&mut Agent::new(config()), MAPPED, &several);
    let header = MobilityHeader::parse(&answer.mobility_header).expect("a Mobility Header");
    let Ok(Message::BindingAcknowledgement(acknowledgement)) = header.message() else { panic!("{answer:?}") };
    let types: Vec<u8> = acknowledgement.options.iter().flatten().map(|o| o.option_type()).collect();
    let at = |kind| types.iter().position(|found| *found == kind);
    assert!(at(option_type::IPV4_ADDRESS_ACKNOWLEDGEMENT) < at(option_type::BINDING_IDENTIFIER), "{types:?}");
    // The home agent answers the option also over IPv6 (RFC 5555 4.4.2), but not in the refusal of a Binding
    // Update.
    let answer = agent.accept(&Update::explicit(2).with(home(32, false, [0, 0, 0, 0])));
    assert_eq!(said(&answer).ipv4.len(), 1);
    let answer = agent.refuse(&Update::explicit(2).with(home(32, false, [0, 0, 0, 0])), 135);
    assert!(said(&answer).ipv4.is_empty());
}

/// Refusals, Binding Errors and Parameter Problems leave inside the encapsulation of the packet that caused
/// them.
#[test]
fn every_answer_is_sent_back_on_the_path_of_its_request() {
    let mut agent = Agent::new(config());
    accept(&mut agent, MAPPED, &plain(5));
    assert_eq!(ask(&mut agent, REMAPPED, &plain(5)).status(), 135);
    let packet = plain(6).around(&mut [59, 0, 200, 0, 0, 0, 0, 0]);
    let answers = agent.receive_inside(HERE, REMAPPED, &packet);
    assert!(matches!(answers[0].message, SeenMessage::BindingError { status: 2, .. }));
    let packet = plain(6).around(&mut [6, 1, 5, 0, 0, 0, 0, 6, 0xc4, 0, 0, 15, 0, 0, 0, 0]);
    let answers = agent.receive_inside(HERE, REMAPPED, &packet);
    assert!(matches!(answers[0].message, SeenMessage::ParameterProblem { code: 0, .. }));
    assert_eq!(ends(&agent), strings(HERE, MAPPED));
}

/// On a home link the answer waits for duplicate address detection, and then leaves inside the encapsulation
/// of the update.
#[test]
fn acknowledgement_after_dad_uses_ipv4_path_of_request() {
    let mut agent = Agent::on_home_link(config());
    assert!(agent.receive_inside(HERE, MAPPED, &identified(1).packet()).is_empty());
    assert!(agent.wait(1.0).is_empty());
    let (from, to, answer) = agent.encapsulated.pop().expect("an acknowledgement");
    assert_eq!((from, to, answer.status()), (end(HERE), end(MAPPED), 0));
    assert_eq!(said(&answer).nat, Some((false, 25)));
}

/// Plain IPv4, UDP and IPv6 ends survive a restart.
#[test]
fn bindings_of_every_tunnel_kind_survive_a_restart() {
    let mut agent = Agent::new(config());
    accept(&mut agent, MAPPED, &identified(1));
    agent.accept(&Update::explicit(2).bid(2, CARE_OF));
    accept(&mut agent, DIRECT, &Update::explicit(3).inside().bid(3, V4));
    accept(&mut agent, REMAPPED, &identified(4));
    let stored = agent.machine.stored(agent.now, agent.wall());
    let (now, wall) = (agent.now, agent.wall());
    let restart = |ipv4_address: Option<[u8; 4]>| {
        let ipv4_address = ipv4_address.map(Ipv4Addr::from);
        let mut next = Agent::new(HomeAgentConfig { ipv4_address, ..config() });
        next.now = now;
        next.machine.restore(now, wall, stored.clone());
        next.drain();
        next
    };
    // If the home agent's IPv4 address has changed or is missing, it drops the IPv4 bindings until their
    // nodes register again.
    for other in [None, Some([10, 0, 0, 2])] {
        assert_eq!(bindings(&restart(other)), expected(&[(2, CARE_OF)]));
    }
    let next = restart(Some([10, 0, 0, 1]));
    assert_eq!(bindings(&next), expected(&[(1, REMAPPED), (2, CARE_OF), (3, V4)]));
    assert_eq!(ends(&next), strings(HERE, REMAPPED));
    assert!(next.machine.bindings().accepts(addr(HOME), end(MAPPED)));
    assert_eq!(next.machine.stored(now, wall), stored);
    assert!(wall > WALL_START);
}

/// Of updates inside UDP that are cut and changed at random, the home agent binds only what was signed.
#[test]
fn mutated_updates_inside_udp_bind_only_signed_addresses() {
    let mut rng = Rng::new(11);
    let mut agent = Agent::new(authenticated());
    let goldens = [
        plain(10).signed().packet(),
        identified(10).signed().packet(),
        Update::explicit(10)
            .inside()
            .overwriting()
            .bid(1, V4)
            .bid(2, CARE_OF)
            .flow(1, 1, 5000, &[1])
            .signed()
            .packet(),
        Update::implicit(10).inside().lifetime(0).known_bid(1).signed().packet(),
    ];
    let mut bound = 0;
    for round in 0..20_000 {
        let golden = &goldens[rng.below(goldens.len() as u64) as usize];
        let packet = crate::hostile::mutate(&mut rng, golden);
        if crate::hostile::passes(&packet) {
            let remote = if rng.chance(0.5) { MAPPED } else { DIRECT };
            agent.receive_inside(HERE, remote, &packet);
        }
        for binding in agent.machine.bindings().iter() {
            bound += 1;
            assert_eq!(binding.home_address, addr(HOME));
            let allowed = [end(MAPPED), end(DIRECT), end(V4), end(CARE_OF)];
            assert!(allowed.contains(&binding.care_of_address), "{binding:?}");
            assert!(binding.prefixes.iter().all(|prefix| *prefix == net(PREFIX)));
        }
        agent.events.clear();
        if round % 100 == 0 {
            agent = Agent::new(authenticated());
        }
    }
    assert!(bound > 0, "some of the mutations changed nothing that is covered");
}
