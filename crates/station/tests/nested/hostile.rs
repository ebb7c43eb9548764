//! Attackers that register addresses of other nodes, answer Neighbor Solicitations for them, and advertise
//! them.

use carnet_base::{LinkMessage, Time};
use carnet_station::io::Input;
use carnet_wire::icmpv6;
use carnet_wire::nd::{
    self, AddressRegistration, NdOption, NeighborAdvertisement, NeighborSolicitation, NestingInformation,
    RouterAdvertisementRepr, nd_option::option_type,
};
use proptest::prelude::*;
use std::net::Ipv6Addr;

use crate::world::{
    CORRESPONDENT_ADDRESS, KNOWN_ROUTER_MAC, NestedNetwork, WALL_START, address, data, host_address_of,
    link_local, net,
};

fn nested_world() -> NestedNetwork {
    let mut world = NestedNetwork::new(2);
    world.add_router(1, &[("w0", "v1")], true);
    world.advance_seconds(2);
    world.add_router(2, &[("u0", "n1")], true);
    world.advance_seconds(20);
    assert!(net("2001:db8:f1::/64").contains(&world.care_of_address(2).expect("registered")));
    world
}

const UNKNOWN_NODE_ADDRESS: &str = "fe80::bad";
const UNKNOWN_NODE_MAC: [u8; 6] = [2, 0, 0, 0, 0xba, 0xd0];

fn neighbor_message(interface: &str, source: &str, hop_limit: u8, octets: Vec<u8>) -> Input {
    neighbor_message_by(UNKNOWN_NODE_MAC, interface, source, hop_limit, octets)
}

fn neighbor_message_by(
    link_address: [u8; 6],
    interface: &str,
    source: &str,
    hop_limit: u8,
    mut octets: Vec<u8>,
) -> Input {
    let (source, destination) = (address(source), nd::ALL_NODES);
    icmpv6::set_checksum(&mut octets, source, destination);
    Input::Icmpv6(LinkMessage {
        interface: interface.into(),
        source,
        destination,
        hop_limit,
        peer: Some(link_address),
        message: octets,
    })
}

fn registration_message(target: Ipv6Addr, registration: AddressRegistration) -> Vec<u8> {
    registration_message_by(UNKNOWN_NODE_MAC, target, registration)
}

fn registration_message_by(
    link_address: [u8; 6],
    target: Ipv6Addr,
    registration: AddressRegistration,
) -> Vec<u8> {
    let mut octets = NeighborSolicitation { target, source_link_address: Some(link_address) }.emit();
    registration.emit_into(&mut octets);
    octets
}

fn registration_request(owner: u64) -> AddressRegistration {
    AddressRegistration { status: 0, transaction_id: 241, lifetime: 10, ownership_verifier: owner }
}

fn counter_of(world: &NestedNetwork, n: usize, name: &str) -> u64 {
    let counters = world.router_station(n).counters();
    counters.into_iter().find(|(known, _)| known == name).map_or(0, |(_, count)| count)
}

fn feed_router(world: &mut NestedNetwork, n: usize, input: Input) {
    let node = world.nodes.get_mut(&format!("mr{n}")).expect("a node");
    node.station.handle_input(world.now, WALL_START, input).expect("accepted");
    while node.station.poll_output().is_some() {}
}

fn nested_routes(world: &NestedNetwork) -> Vec<(Ipv6Addr, Ipv6Addr)> {
    let nesting = world.router_station(1).nemo().nesting_state().expect("a mobile router");
    nesting.routes().map(|route| (route.address, route.gateway)).collect()
}

#[test]
fn router_cannot_register_address_of_another() {
    let mut world = nested_world();
    let before = nested_routes(&world);
    let (theirs, root) = (world.care_of_address(2).expect("one"), world.care_of_address(1).expect("one"));
    for (target, reason) in [
        (theirs, "duplicate"),
        (root, "duplicate"),
        (address("2001:db8:f1::"), "duplicate"),
        (address("2001:db8:f2::9"), "not_offered"),
        (address("2001:db8:1:a::9"), "not_offered"),
    ] {
        let name = format!("nesting.dropped.{reason}");
        let count = counter_of(&world, 1, &name);
        feed_router(
            &mut world,
            1,
            neighbor_message(
                "i0",
                UNKNOWN_NODE_ADDRESS,
                255,
                registration_message(target, registration_request(9)),
            ),
        );
        assert_eq!(counter_of(&world, 1, &name), count + 1, "{target}");
    }
    assert_eq!(nested_routes(&world), before);
    // Three messages that register no address: the hop limit is not 255, the source is not link-local, or the
    // message arrives on the uplink.
    let free = address("2001:db8:f1::99");
    for input in [
        neighbor_message("i0", UNKNOWN_NODE_ADDRESS, 64, registration_message(free, registration_request(9))),
        neighbor_message("i0", "2001:db8:1:a::9", 255, registration_message(free, registration_request(9))),
        neighbor_message(
            "w0",
            UNKNOWN_NODE_ADDRESS,
            255,
            registration_message(free, registration_request(9)),
        ),
    ] {
        feed_router(&mut world, 1, input);
    }
    world.advance_seconds(3);
    assert_eq!(nested_routes(&world), before);
    assert_eq!(counter_of(&world, 1, "nesting.dropped.neighbor_discovery"), 2);
}

#[test]
fn older_nested_registration_does_not_replace_newer() {
    let mut world = nested_world();
    let free = address("2001:db8:f1::99");
    feed_router(
        &mut world,
        1,
        neighbor_message(
            "i0",
            UNKNOWN_NODE_ADDRESS,
            255,
            registration_message(free, registration_request(9)),
        ),
    );
    world.advance_seconds(2);
    assert!(nested_routes(&world).contains(&(free, address(UNKNOWN_NODE_ADDRESS))));
    for (transaction, gateway) in [(240, UNKNOWN_NODE_ADDRESS), (242, "fe80::2"), (241, UNKNOWN_NODE_ADDRESS)]
    {
        let again = AddressRegistration { transaction_id: transaction, ..registration_request(9) };
        let source = if transaction == 242 { "fe80::2" } else { UNKNOWN_NODE_ADDRESS };
        feed_router(&mut world, 1, neighbor_message("i0", source, 255, registration_message(free, again)));
        world.advance_seconds(1);
        let expected = if transaction == 240 { UNKNOWN_NODE_ADDRESS } else { "fe80::2" };
        assert!(nested_routes(&world).contains(&(free, address(expected))), "{transaction} {gateway}");
    }
    assert_eq!(counter_of(&world, 1, "nesting.dropped.stale"), 2);
    // Without renewal the registration expires after ten minutes.
    world.advance_seconds(601);
    assert!(!nested_routes(&world).iter().any(|(known, _)| *known == free));
}

#[test]
fn number_of_nested_registrations_is_bounded() {
    let mut world = nested_world();
    for n in 0..200_u64 {
        let target = Ipv6Addr::from(u128::from(address("2001:db8:f1::1:0")) + u128::from(n));
        feed_router(
            &mut world,
            1,
            neighbor_message(
                "i0",
                UNKNOWN_NODE_ADDRESS,
                255,
                registration_message(target, registration_request(n)),
            ),
        );
        world.advance_seconds(0);
        world.now += std::time::Duration::from_millis(100);
    }
    world.advance_seconds(3);
    assert_eq!(
        nested_routes(&world).len(),
        8,
        "of senders that are not named, the router that was there among them"
    );
    assert!(counter_of(&world, 1, "nesting.dropped.too_many") > 100);
    // The attacker uses many invented link-layer addresses, and still registers no more addresses.
    for n in 0..200_u8 {
        let link_address = [2, 0, 0, 0, 1, n];
        let target = Ipv6Addr::from(u128::from(address("2001:db8:f1::3:0")) + u128::from(n));
        let octets = registration_message_by(link_address, target, registration_request(1000 + u64::from(n)));
        feed_router(
            &mut world,
            1,
            neighbor_message_by(link_address, "i0", &format!("fe80::3:{n:x}"), 255, octets),
        );
        world.now += std::time::Duration::from_millis(100);
    }
    world.advance_seconds(3);
    assert_eq!(nested_routes(&world).len(), 8);
    // A router that the config names is not subject to the limit for unknown routers.
    for n in 0..200_u64 {
        let target = Ipv6Addr::from(u128::from(address("2001:db8:f1::2:0")) + u128::from(n));
        let octets = registration_message_by(KNOWN_ROUTER_MAC, target, registration_request(2000 + n));
        feed_router(&mut world, 1, neighbor_message_by(KNOWN_ROUTER_MAC, "i0", "fe80::2:2", 255, octets));
        world.now += std::time::Duration::from_millis(100);
    }
    world.advance_seconds(3);
    assert_eq!(nested_routes(&world).len(), 8 + 16);
    // The routers that had registered before the attack still receive their packets.
    world.clear_records();
    world.send_from_host(2, address(CORRESPONDENT_ADDRESS), 100);
    world.advance_seconds(1);
    assert_eq!(world.count_arrived(host_address_of(2), address(CORRESPONDENT_ADDRESS)), 1);
}

/// A router that has registered stays registered during a flood of other requests.
#[test]
fn flood_of_nested_requests_does_not_delay_other_senders() {
    let mut world = nested_world();
    let mut n = 0_u64;
    // The flood lasts 150 s. A registration lasts two minutes, and the router renews it every 20 s. So it
    // only stays if the renewals succeed during the flood.
    world.advance_with(std::time::Duration::from_secs(150), |world| {
        for _ in 0..2 {
            n += 1;
            let target = Ipv6Addr::from(u128::from(address("2001:db8:f1::1:0")) + u128::from(n));
            feed_router(
                world,
                1,
                neighbor_message(
                    "i0",
                    UNKNOWN_NODE_ADDRESS,
                    255,
                    registration_message(target, registration_request(n)),
                ),
            );
        }
    });
    assert!(counter_of(&world, 1, "nesting.dropped.rate_limited") > 1000);
    let kept = world.care_of_address(2).expect("registered");
    assert!(net("2001:db8:f1::/64").contains(&kept));
    assert!(nested_routes(&world).iter().any(|(known, _)| *known == kept));
}

#[test]
fn nested_router_accepts_answers_only_from_parent() {
    let mut world = nested_world();
    let own = world.care_of_address(2).expect("one");
    let answer = |status, owner| {
        let advertisement = NeighborAdvertisement {
            target: own,
            router: true,
            solicited: true,
            override_: false,
            target_link_address: None,
        };
        let mut octets = advertisement.emit();
        AddressRegistration { status, transaction_id: 250, lifetime: 2, ownership_verifier: owner }
            .emit_into(&mut octets);
        octets
    };
    for status in [1, 3, 4] {
        feed_router(&mut world, 2, neighbor_message("u0", UNKNOWN_NODE_ADDRESS, 255, answer(status, 9)));
    }
    world.advance_seconds(5);
    assert_eq!(world.care_of_address(2), Some(own));
    assert_eq!(counter_of(&world, 2, "nesting.dropped.unexpected"), 3);
}

/// The parent router answers a registration with status 3 (Moved, RFC 8505): a newer message has registered
/// the address on another path. The nested router takes another address at once.
#[test]
fn moved_nested_address_is_replaced_at_once() {
    let mut world = nested_world();
    let own = world.care_of_address(2).expect("one");
    let asked = world.registrations.iter().rev().find(|(name, _)| name == "mr2").expect("one").1;
    let advertisement = NeighborAdvertisement {
        target: own,
        router: true,
        solicited: true,
        override_: false,
        target_link_address: None,
    };
    let mut octets = advertisement.emit();
    AddressRegistration { status: 3, ..asked }.emit_into(&mut octets);
    world.send_to_all_nodes("mr2", "u0", link_local("mr1", "i0").0, octets);
    world.advance_seconds(5);
    let other = world.care_of_address(2).expect("one");
    assert!(other != own && net("2001:db8:f1::/64").contains(&other), "{own}, then {other}");
}

#[test]
fn hosts_on_board_cannot_bypass_the_tunnel() {
    let mut world = nested_world();
    let free = address("2001:db8:f1::99");
    feed_router(
        &mut world,
        1,
        neighbor_message(
            "i0",
            UNKNOWN_NODE_ADDRESS,
            255,
            registration_message(free, registration_request(9)),
        ),
    );
    world.advance_seconds(2);
    world.clear_records();
    // A nested router sends only tunnelled packets, and only from its registered address. So the parent
    // router must drop both an ordinary packet from this address and a tunnelled packet from another one.
    world.deliver_packet("mr1", "i0", data(free, address(CORRESPONDENT_ADDRESS), 100));
    world.deliver_packet("mr1", "i0", tunnelled_packet(address("2001:db8:f1::98")));
    world.advance_seconds(1);
    assert_eq!(world.dropped_packets.get("mr1"), Some(&2));
    assert!(world.outer_header_counts.is_empty());
    world.deliver_packet("mr1", "i0", tunnelled_packet(free));
    world.advance_seconds(1);
    assert_eq!(world.dropped_packets.get("mr1"), Some(&2));
    assert!(world.outer_header_counts.contains_key(&(host_address_of(2), address(CORRESPONDENT_ADDRESS))));
}

#[test]
fn parent_passes_only_tunnel_packets_to_a_nested_address() {
    let mut world = nested_world();
    let free = address("2001:db8:f1::99");
    feed_router(
        &mut world,
        1,
        neighbor_message(
            "i0",
            UNKNOWN_NODE_ADDRESS,
            255,
            registration_message(free, registration_request(9)),
        ),
    );
    world.advance_seconds(2);
    world.clear_records();
    let to_nested = |mut packet: Vec<u8>| {
        packet[24..40].copy_from_slice(&free.octets());
        packet
    };
    // Next headers of UDP, TCP and an unknown protocol.
    for next_header in [17, 6, 253] {
        let mut packet = to_nested(data(address(CORRESPONDENT_ADDRESS), free, 100));
        packet[6] = next_header;
        world.deliver_packet("mr1", "w0", packet);
    }
    world.advance_seconds(1);
    assert_eq!(world.dropped_packets.get("mr1"), Some(&3));
    world.deliver_packet("mr1", "w0", to_nested(tunnelled_packet(address("2001:db8:2::1"))));
    world.advance_seconds(1);
    assert_eq!(world.dropped_packets.get("mr1"), Some(&3), "a tunnel's packet passes");
}

/// Datagrams of an encrypted session have port 4191 at the nested router. Other ports do not pass, but
/// fragments pass, because they have no port.
#[test]
fn parent_passes_encrypted_sessions_and_no_other_datagrams() {
    let mut world = nested_world();
    let free = address("2001:db8:f1::99");
    feed_router(
        &mut world,
        1,
        neighbor_message(
            "i0",
            UNKNOWN_NODE_ADDRESS,
            255,
            registration_message(free, registration_request(9)),
        ),
    );
    world.advance_seconds(2);
    world.clear_records();
    let correspondent = address(CORRESPONDENT_ADDRESS);
    let datagram = |from, to, ports: [u16; 2]| {
        let mut packet = data(from, to, 100);
        packet[6] = 17;
        packet[40..42].copy_from_slice(&ports[0].to_be_bytes());
        packet[42..44].copy_from_slice(&ports[1].to_be_bytes());
        packet
    };
    let fragment_of = |mut packet: Vec<u8>| {
        // Fragment with the last eight octets of a packet, whose octets 0 to 71 came before.
        packet[6] = 44;
        packet[40..48].copy_from_slice(&[17, 0, 0, 72, 0, 0, 0, 9]);
        packet
    };
    let mut dropped = 0;
    for (near, passes) in [(4191, true), (4190, false), (4192, false), (1, false), (65534, false)] {
        let outward = datagram(free, correspondent, [near, 51820]);
        world.deliver_packet("mr1", "i0", outward.clone());
        world.deliver_packet("mr1", "w0", datagram(correspondent, free, [51820, near]));
        world.advance_seconds(1);
        dropped += if passes { 0 } else { 2 };
        assert_eq!(world.dropped_packets.get("mr1").copied().unwrap_or_default(), dropped, "port {near}");
    }
    // The port of the nested router must be 4191; the port of the correspondent does not count.
    world.deliver_packet("mr1", "i0", datagram(free, correspondent, [5000, 4191]));
    world.deliver_packet("mr1", "w0", datagram(correspondent, free, [4191, 5000]));
    world.advance_seconds(1);
    assert_eq!(world.dropped_packets.get("mr1"), Some(&(dropped + 2)));
    world.deliver_packet("mr1", "i0", fragment_of(datagram(free, correspondent, [4191, 51820])));
    world.deliver_packet("mr1", "w0", fragment_of(datagram(correspondent, free, [51820, 4191])));
    // A nested router cannot use encrypted sessions from an address that it has not registered.
    world.deliver_packet("mr1", "i0", datagram(address("2001:db8:f1::98"), correspondent, [4191, 51820]));
    world.advance_seconds(1);
    assert_eq!(world.dropped_packets.get("mr1"), Some(&(dropped + 3)));
}

fn tunnelled_packet(from: Ipv6Addr) -> Vec<u8> {
    let inner = data(host_address_of(2), address(CORRESPONDENT_ADDRESS), 60);
    let mut outer = data(from, address("2001:db8:2::1"), 40 + inner.len());
    outer[6] = 41;
    outer[40..].copy_from_slice(&inner);
    outer
}

#[test]
fn nested_router_ignores_nesting_offer_of_its_own_network() {
    let mut world = NestedNetwork::new(1);
    world.add_router(1, &[("w0", "v1")], true);
    world.advance_seconds(5);
    let said = world.sent_neighbor_messages;
    let prefixes = ["2001:db8:1:a::", "2001:db8:1::", "ff02::", "fe80::"].map(address).to_vec();
    let path = vec![address("2001:db8:77::1")];
    let information = NestingInformation { grounded: true, prefixes, path_home_addresses: path };
    let data = information.emit_data();
    let options = [
        NdOption::SourceLinkAddress([2, 0, 0, 0, 0, 9]),
        NdOption::Unknown { option_type: option_type::EXPERIMENT_1, data: &data },
    ];
    let repr = RouterAdvertisementRepr { router_lifetime: 1800, options: &options, ..Default::default() };
    world.send_to_all_nodes("mr1", "w0", address("fe80::ffff"), nd::emit_router_advertisement(&repr));
    world.advance_seconds(5);
    assert_eq!(world.uplink_state(1, "w0"), "active");
    // In five seconds the router sends at most four Neighbor Discovery messages: it does not try to register
    // addresses of its own network.
    assert!(world.sent_neighbor_messages - said <= 4, "{} messages", world.sent_neighbor_messages - said);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// With any messages on either side, the station does not panic, its memory does not grow, and registered
    /// routers still get their packets.
    #[test]
    fn random_messages_change_no_nested_registration(messages in prop::collection::vec(
        (any::<bool>(), prop::sample::select(vec![133_u8, 134, 135, 136]), any::<u8>(),
         prop::collection::vec(any::<u8>(), 0..60), any::<u64>(), any::<u8>(), any::<u16>()),
        1..40,
    )) {
        let mut world = nested_world();
        for (lan, kind, status, tail, owner, transaction, lifetime) in messages {
            let mut octets = vec![kind, 0, 0, 0, 0, 0, 0, 0];
            octets.extend(Ipv6Addr::from(u128::from(address("2001:db8:f1::")) | u128::from(owner)).octets());
            AddressRegistration {
                status,
                transaction_id: transaction,
                lifetime,
                ownership_verifier: owner,
            }
            .emit_into(&mut octets);
            octets.extend(tail);
            let interface = if lan { "i0" } else { "w0" };
            feed_router(&mut world, 1, neighbor_message(interface, UNKNOWN_NODE_ADDRESS, 255, octets));
        }
        prop_assert!(nested_routes(&world).len() <= 1 + 16);
        world.advance_seconds(60);
        world.clear_records();
        world.send_from_host(2, address(CORRESPONDENT_ADDRESS), 100);
        world.advance_seconds(2);
        prop_assert_eq!(world.count_arrived(host_address_of(2), address(CORRESPONDENT_ADDRESS)), 1);
        prop_assert!(world.now > Time::ZERO);
    }
}
