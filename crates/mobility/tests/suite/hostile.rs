//! Mutated packets: a hundred thousand against each side.
//!
//! The tests check for every packet:
//!
//! * The home agent and the mobile router do not panic.
//! * The home agent binds no node without the key.
//! * The answers to one packet are few (the fixtures count them).
//! * The memory stays bounded.

use carnet_base::Rng;
use carnet_wire::extension::ExtensionHeaders;
use carnet_wire::ipv6::{Header, protocol};
use carnet_wire::mobility::{MobilityHeaderBuilder, MobilityOption, set_checksum};

use crate::agent::{TestAgent, authenticated_config, config};
use crate::agent_and_routers::{AgentAndRouters, Link, PairSetup};
use crate::several_care_of_addresses::*;
use crate::test_messages::*;

/// Number of mutated packets; `CARNET_ROUNDS` overrides it.
const MUTATION_COUNT: usize = match option_env!("CARNET_ROUNDS") {
    Some(text) => match usize::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("CARNET_ROUNDS is no number"),
    },
    None => 100_000,
};

/// Changes some octets. In half of all cases the Mobility Header gets a right checksum again, so that the
/// receiver examines the change itself.
pub fn mutate_packet(rng: &mut Rng, golden: &[u8]) -> Vec<u8> {
    let mut packet = golden.to_vec();
    for _ in 0..1 + rng.number_below(4) {
        let at = rng.number_below(packet.len() as u64) as usize;
        // Changes octets mostly behind the IPv6 header.
        let at = if at < 40 && rng.is_true_with_probability(0.8) {
            40 + at % (packet.len() - 40).max(1)
        } else {
            at
        };
        match rng.number_below(6) {
            0 => packet[at] ^= 1 << rng.number_below(8),
            1 => packet[at] = rng.random_u16() as u8,
            2 => packet[at] = [0, 1, 2, 0x7f, 0x80, 0xff][rng.number_below(6) as usize],
            3 => packet.truncate(at.max(41)),
            4 => packet.extend((0..rng.number_below(40)).map(|n| n as u8)),
            _ => {
                let octet = packet[at];
                packet.insert(at, octet);
            }
        }
    }
    if rng.is_true_with_probability(0.7) {
        let length = u16::try_from(packet.len() - 40).expect("short").to_be_bytes();
        packet[4..6].copy_from_slice(&length);
    }
    if rng.is_true_with_probability(0.5)
        && let Ok(header) = Header::parse(&packet)
        && let Ok(extensions) = ExtensionHeaders::parse(&packet)
        && extensions.protocol == protocol::MOBILITY
    {
        let end = 40 + usize::from(header.payload_length);
        let length =
            packet.get(extensions.upper_layer_offset + 1).map_or(0, |units| (usize::from(*units) + 1) * 8);
        let end = end.min(extensions.upper_layer_offset + length);
        if let Some(octets) = packet.get_mut(extensions.upper_layer_offset..end) {
            let source = extensions.home_address.unwrap_or(header.source);
            set_checksum(octets, source, extensions.routing_home_address.unwrap_or(header.destination));
        }
    }
    packet
}

/// Returns whether a receiver's parser accepts the packet.
pub fn is_parsed(packet: &[u8]) -> bool {
    Header::parse(packet).is_ok()
        && ExtensionHeaders::parse(packet).is_ok_and(|extensions| {
            extensions.protocol == protocol::MOBILITY && extensions.fragment.is_none()
        })
}

fn example_updates() -> Vec<Vec<u8>> {
    vec![
        TestUpdate::explicit_update(10)
            .with_alternate_care_of_address(CARE_OF_ADDRESS)
            .with_signature()
            .to_packet(),
        TestUpdate::implicit_update(10).with_signature().to_packet(),
        TestUpdate::implicit_update(10).lifetime(0).with_signature().to_packet(),
        TestUpdate::explicit_update(10).prefix(SECOND_MOBILE_NETWORK_PREFIX).with_signature().to_packet(),
        TestUpdate::node_update(10)
            .with_option(MobilityOption::MessageIdentifier(1 << 40))
            .with_signature()
            .to_packet(),
        TestUpdate::implicit_update(10).sent_on_home_link().lifetime(0).with_signature().to_packet(),
        // A Binding Update that another program made, with the same key, another prefix and sequence number
        // 0x8100.
        octets_of_hex(
            "60000000004c3c40 20010db800f100000000000000000010 20010db8000100000000000000000001
             870201020000c910 20010db8000100000000000000001234
             3b0605000f810003c400003c061200402001 0db80002000000000000000000000911 010000012c99119f05ec6a
             bd2b938bc15101020000",
        ),
    ]
}

/// Only the home agent has this key: the mutated packets must cause no binding.
#[test]
fn mutated_updates_with_another_key_create_no_binding() {
    let mut rng = Rng::new(1);
    let mut other = authenticated_config();
    other.nodes[0].authentication =
        carnet_mobility::Authentication::SharedKey(carnet_mobility::SecurityAssociation {
            key: [0x5a; 16].into(),
            ..test_association()
        });
    let mut agent = TestAgent::new(other);
    let goldens = example_updates();
    let mut delivered = 0;
    for _ in 0..MUTATION_COUNT {
        let golden = &goldens[rng.number_below(goldens.len() as u64) as usize];
        let packet = mutate_packet(&mut rng, golden);
        if is_parsed(&packet) {
            delivered += 1;
            let _ = agent.receive_packet(&packet);
            assert!(agent.home_agent.bindings().iter().next().is_none(), "{packet:02x?}");
            assert!(agent.home_agent.stored_bindings(agent.now, agent.wall_time()).is_empty());
        }
        if rng.is_true_with_probability(0.1) {
            agent.advance_time(0.05);
        }
    }
    assert!(delivered > MUTATION_COUNT / 10, "{delivered} delivered");
    agent.advance_time(100.0);
    assert!(agent.home_agent.poll_timeout().is_none());
}

/// With the right key, the home agent creates only the bindings of the packets before their mutation.
#[test]
fn mutated_updates_bind_only_signed_addresses() {
    let mut rng = Rng::new(2);
    let goldens = example_updates();
    let mut agent = TestAgent::new(authenticated_config());
    for round in 0..MUTATION_COUNT {
        let golden = &goldens[rng.number_below(goldens.len() as u64) as usize];
        let packet = mutate_packet(&mut rng, golden);
        if is_parsed(&packet) {
            let _ = agent.receive_packet(&packet);
        }
        for binding in agent.home_agent.bindings().iter() {
            assert_eq!(binding.home_address, addr(HOME_ADDRESS));
            assert_eq!(binding.care_of_address, addr(CARE_OF_ADDRESS));
            assert!(binding.prefixes.iter().all(|prefix| *prefix == net(MOBILE_NETWORK_PREFIX)));
        }
        agent.events.clear();
        if round % 100 == 0 {
            agent = TestAgent::new(authenticated_config());
        }
    }
}

/// With several care-of addresses and flows, the home agent creates only bindings that were signed.
#[test]
fn mutated_updates_of_several_bindings_bind_only_signed_addresses() {
    let mut rng = Rng::new(12);
    let goldens = [
        TestUpdate::explicit_update(10)
            .with_overwrite_flag()
            .with_bid(1, CARE_OF_ADDRESS)
            .with_bid(2, OTHER_CARE_OF_ADDRESS)
            .with_signature()
            .to_packet(),
        TestUpdate::explicit_update(10)
            .with_bid(2, OTHER_CARE_OF_ADDRESS)
            .with_flow(1, 1, 5000, &[2])
            .with_flow_summary(&[2, 3])
            .with_signature()
            .to_packet(),
        TestUpdate::explicit_update(11)
            .with_known_bid(1)
            .with_known_bid(2)
            .with_flow(1, 1, 5000, &[1, 2])
            .with_signature()
            .to_packet(),
        TestUpdate::implicit_update(12).lifetime(0).with_known_bid(1).with_signature().to_packet(),
    ];
    let mut agent = TestAgent::new(authenticated_config());
    let mut most = 0;
    for round in 0..MUTATION_COUNT {
        let golden = &goldens[rng.number_below(goldens.len() as u64) as usize];
        let packet = mutate_packet(&mut rng, golden);
        if is_parsed(&packet) {
            let _ = agent.receive_packet(&packet);
        }
        let mut count = 0;
        for binding in agent.home_agent.bindings().iter() {
            count += 1;
            assert_eq!(binding.home_address, addr(HOME_ADDRESS));
            let signed = [(Some(1), addr(CARE_OF_ADDRESS)), (Some(2), addr(OTHER_CARE_OF_ADDRESS))];
            let found = (binding.bid, binding.care_of_address.ipv6().expect("IPv6"));
            assert!(signed.contains(&found), "{found:?}");
        }
        most = most.max(count);
        for flow in agent.home_agent.flows(addr(HOME_ADDRESS)) {
            assert_eq!((flow.fid, flow.selector), (1, udp_selector(5000)));
        }
        agent.events.clear();
        if round % 50 == 0 {
            agent = TestAgent::new(authenticated_config());
        }
    }
    assert_eq!(most, 2, "some of the mutations changed nothing that is covered");
}

/// Without a key any binding may exist, but the limits hold and all bindings end.
#[test]
fn mutated_updates_of_several_bindings_stay_within_bounds() {
    let mut rng = Rng::new(13);
    let mut agent = TestAgent::on_home_link(config());
    for round in 0..MUTATION_COUNT {
        let bid = rng.number_below(30) as u16;
        let mut update = TestUpdate::explicit_update(round as u16)
            .with_bid(bid, &format!("2001:db8:f1::{:x}", rng.number_below(9) + 1));
        if rng.is_true_with_probability(0.3) {
            update =
                update.with_bid(bid + 1, OTHER_CARE_OF_ADDRESS).with_flow(bid, bid, 5000, &[bid, bid + 1]);
        }
        if rng.is_true_with_probability(0.5) {
            update = update.with_flow_summary(&[bid, bid + 1, 7]);
        }
        let packet = update.to_packet();
        let packet =
            if rng.is_true_with_probability(0.5) { mutate_packet(&mut rng, &packet) } else { packet };
        if is_parsed(&packet) {
            let _ = agent.receive_packet(&packet);
        }
        let home = addr(HOME_ADDRESS);
        assert!(agent.home_agent.bindings().iter().count() <= carnet_mobility::home_agent::MAX_BINDINGS);
        assert!(
            agent.home_agent.bindings().former_paths(home).len()
                <= 2 * carnet_mobility::home_agent::MAX_BINDINGS
        );
        assert!(agent.home_agent.flows(home).len() <= carnet_mobility::home_agent::MAX_FLOWS);
        if rng.is_true_with_probability(0.05) {
            agent.advance_time(1.0);
        }
        agent.events.clear();
        agent.link_messages.clear();
    }
    agent.advance_time(300_000.0);
    assert!(agent.home_agent.bindings().iter().next().is_none());
    assert!(agent.home_agent.flows(addr(HOME_ADDRESS)).is_empty());
    assert!(agent.home_agent.poll_timeout().is_none());
}

/// Without authentication any sender may register, but only configured addresses and prefixes, also on a home
/// link.
#[test]
fn mutated_updates_without_authentication_stay_within_the_configuration() {
    let mut rng = Rng::new(3);
    let goldens = example_updates();
    let mut agent = TestAgent::on_home_link(config());
    for _ in 0..MUTATION_COUNT {
        let golden = &goldens[rng.number_below(goldens.len() as u64) as usize];
        let packet = mutate_packet(&mut rng, golden);
        if is_parsed(&packet) {
            let _ = agent.receive_packet(&packet);
        }
        if rng.is_true_with_probability(0.02) {
            agent.advance_time(1.0);
        }
        let mut count = 0;
        for binding in agent.home_agent.bindings().iter() {
            count += 1;
            assert_eq!(binding.home_address, addr(HOME_ADDRESS));
            let care_of_address = binding.care_of_address.ipv6().expect("IPv6");
            assert!(carnet_mobility::is_unicast_routable(care_of_address));
            assert!(binding.prefixes.iter().all(|prefix| net(MOBILE_NETWORK_PREFIX).contains(prefix)));
        }
        assert!(count <= 1);
        agent.events.clear();
        agent.link_messages.clear();
    }
}

/// The mobile router: only acknowledgements of the home agent register or end anything.
#[test]
fn mutated_acknowledgements_create_no_registration() {
    let mut rng = Rng::new(4);
    let mut pair = AgentAndRouters::new(PairSetup::authenticated_setup());
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    for round in 0..MUTATION_COUNT {
        let update = pair.last_update();
        let status = [0, 1, 128, 133, 135, 139, 140, 141, 142, 144, 146][rng.number_below(11) as usize];
        let mut answer = TestAcknowledgement::answering(&update, status);
        answer.association =
            Some(carnet_mobility::SecurityAssociation { key: [0x5a; 16].into(), ..test_association() });
        let golden = match rng.number_below(5) {
            0 => control_packet(
                addr(HOME_AGENT_ADDRESS),
                addr(CARE_OF_ADDRESS),
                Some(addr(HOME_ADDRESS)),
                &mut MobilityHeaderBuilder::binding_error(1, addr(HOME_ADDRESS)).finish(),
            ),
            1 => control_packet(
                addr(HOME_AGENT_ADDRESS),
                addr(CARE_OF_ADDRESS),
                Some(addr(HOME_ADDRESS)),
                &mut MobilityHeaderBuilder::binding_refresh_request().finish(),
            ),
            _ => answer.to_packet(),
        };
        let packet = mutate_packet(&mut rng, &golden);
        if is_parsed(&packet) {
            let _ = pair.deliver_to_router(0, &packet);
        }
        assert!(pair.first_router().registration().is_none());
        assert!(pair.first_router().may_advertise());
        if round % 20 == 0 {
            pair.advance_seconds(0.1);
        }
        if round % 1000 == 0 {
            pair.events.clear();
            pair.dropped_messages.clear();
            let keep = pair.sent_packets.pop();
            pair.sent_packets.clear();
            pair.sent_packets.extend(keep);
        }
    }
    assert_eq!(pair.first_router().uplinks().len(), 2);
}

/// The mobile router without a key: it sends no flood of packets and no data from an address that it lacks
/// (the pair checks both). After the operator's command the router registers again.
#[test]
fn mutated_acknowledgements_without_authentication_do_no_lasting_harm() {
    let mut rng = Rng::new(5);
    let mut pair = AgentAndRouters::new(PairSetup::plain_setup());
    pair.link_conditions = Link::LOSES_EVERYTHING;
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    for round in 0..MUTATION_COUNT {
        let status = [0, 1, 128, 133, 135, 139, 140, 141, 142, 144, 146][rng.number_below(11) as usize];
        let golden = TestAcknowledgement::answering(&pair.last_update(), status).to_packet();
        let packet = mutate_packet(&mut rng, &golden);
        if is_parsed(&packet) {
            let _ = pair.deliver_to_router(0, &packet);
        }
        pair.advance_seconds(0.05);
        if round % 50 == 0 {
            pair.run_on_router(0, |machine, now, wall| machine.handle_handover(now, wall, None))
                .expect("handover");
            pair.attach_uplink(
                0,
                "wifi",
                if round % 100 == 0 { CARE_OF_ADDRESS } else { OTHER_CARE_OF_ADDRESS },
            );
            pair.events.clear();
            pair.dropped_messages.clear();
            let keep = pair.sent_updates().pop().map(|(at, seen)| crate::agent_and_routers::SentPacket {
                sent_at: at,
                sending_router: Some(0),
                received_packet: seen,
            });
            pair.sent_packets.clear();
            pair.sent_packets.extend(keep);
        }
    }
    pair.link_conditions = Link::LOSSLESS;
    pair.run_on_router(0, |machine, now, wall| machine.handle_handover(now, wall, None)).expect("handover");
    pair.register_router();
}
