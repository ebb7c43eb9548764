//! Paths of packets at each nesting level: their outer headers, the home agents on the path, and moves of
//! routers. Other tests cover plain NEMO, with nesting off.

use std::time::Duration;

use carnet_wire::ipv6::Header;
use ipnet::Ipv6Net;

use crate::world::{CORRESPONDENT_ADDRESS, NestedNetwork, address, host_address_of, innermost_header, net};

/// Returns a tree of nested routers. Router 1 is on both visited links. Router 2 is behind router 1 and on
/// the second link. Router 3 is behind routers 2 and 1.
fn network_with_tree_of_routers(nesting: [bool; 3]) -> NestedNetwork {
    let mut world = NestedNetwork::new(3);
    world.add_router(1, &[("w0", "v1"), ("w1", "v2")], nesting[0]);
    world.advance_seconds(2);
    world.add_router(2, &[("u0", "n1"), ("w1", "v2")], nesting[1]);
    world.advance_seconds(2);
    world.add_router(3, &[("u0", "n2"), ("u1", "n1")], nesting[2]);
    world.advance_seconds(20);
    world.clear_records();
    world
}

/// Sends a packet in each direction at each level of nesting. Returns the largest number of outer headers,
/// and the largest number of home agents on the path, for each level.
fn measure_paths(world: &mut NestedNetwork) -> Vec<(usize, usize)> {
    world.clear_records();
    let correspondent = address(CORRESPONDENT_ADDRESS);
    for n in 1..=3 {
        world.send_from_host(n, correspondent, 100);
        world.send_to_host(host_address_of(n), 100);
    }
    world.advance_seconds(1);
    let mut seen = Vec::new();
    for n in 1..=3 {
        for (from, to) in [(host_address_of(n), correspondent), (correspondent, host_address_of(n))] {
            assert_eq!(world.count_arrived(from, to), 1, "level {n}, to {to}");
            let crossed = world.agents_on_path.get(&(from, to)).map_or(0, Vec::len);
            seen.push((world.outer_header_counts[&(from, to)][0], crossed));
        }
    }
    assert!(seen.chunks(2).all(|both| both[0] == both[1]), "{seen:?}");
    seen.into_iter().step_by(2).collect()
}

fn visited_prefix(n: usize) -> Ipv6Net {
    net(&format!("2001:db8:f{n}::/64"))
}

#[test]
fn nesting_needs_one_header_and_one_home_agent_at_each_level() {
    let mut world = network_with_tree_of_routers([true; 3]);
    assert_eq!(measure_paths(&mut world), [(1, 1), (1, 1), (1, 1)]);
    for n in 1..=3 {
        let care_of_address = world.care_of_address(n).expect("registered");
        assert!(visited_prefix(1).contains(&care_of_address), "{n}: {care_of_address}");
    }
    // This packet goes from one mobile network to another.
    world.send_from_host(3, host_address_of(2), 100);
    world.advance_seconds(1);
    assert_eq!(world.count_arrived(host_address_of(3), host_address_of(2)), 1);
}

#[test]
fn plain_nemo_adds_a_header_and_a_home_agent_for_each_level() {
    let mut world = network_with_tree_of_routers([false; 3]);
    assert_eq!(measure_paths(&mut world), [(1, 1), (2, 2), (3, 3)]);
}

#[test]
fn router_without_nesting_support_adds_one_encapsulation_level() {
    // Router 2 has nesting switched off. So router 3 sends as a plain nested router behind router 2.
    let mut world = network_with_tree_of_routers([true, false, true]);
    assert_eq!(measure_paths(&mut world), [(1, 1), (2, 2), (3, 3)]);
    // Router 1 has nesting switched off, so the routers behind it treat its mobile network as an ordinary
    // visited link.
    let mut world = network_with_tree_of_routers([false, true, true]);
    assert_eq!(measure_paths(&mut world), [(1, 1), (2, 2), (2, 2)]);
}

/// Sends a packet in each direction at each level every 10 ms during an event. Returns the number of lost
/// packets of each level.
fn count_lost_while(world: &mut NestedNetwork, happens: impl FnOnce(&mut NestedNetwork)) -> [usize; 3] {
    world.clear_records();
    let correspondent = address(CORRESPONDENT_ADDRESS);
    let mut happens = Some(happens);
    let mut sent = 0;
    world.advance_with(Duration::from_secs(12), |world| {
        if sent == 50
            && let Some(happens) = happens.take()
        {
            happens(world);
        }
        for n in 1..=3 {
            world.send_from_host(n, correspondent, 100);
            world.send_to_host(host_address_of(n), 100);
        }
        sent += 1;
    });
    world.advance_seconds(1);
    let arrived = |n: usize| {
        world.count_arrived(host_address_of(n), correspondent).min(sent)
            + world.count_arrived(correspondent, host_address_of(n)).min(sent)
    };
    [1, 2, 3].map(|n| 2 * sent - arrived(n))
}

#[test]
fn handover_at_any_nesting_level_loses_no_packet() {
    let mut world = network_with_tree_of_routers([true; 3]);
    for (n, uplink, network) in
        [(1, Some("w1"), 2), (1, None, 1), (2, Some("w1"), 2), (2, None, 1), (3, Some("u1"), 1), (3, None, 1)]
    {
        let lost = count_lost_while(&mut world, |world| world.command_handover(n, uplink));
        assert_eq!(lost, [0, 0, 0], "router {n} to {uplink:?}");
        let moved = world.care_of_address(n).expect("registered");
        assert!(visited_prefix(network).contains(&moved), "router {n} to {uplink:?}: {moved}");
        assert_eq!(measure_paths(&mut world), [(1, 1), (1, 1), (1, 1)], "router {n} to {uplink:?}");
    }
}

#[test]
fn plain_nemo_handover_at_each_level_loses_no_packet() {
    let mut world = network_with_tree_of_routers([false; 3]);
    for (n, uplink) in [(1, Some("w1")), (1, None), (2, Some("w1")), (2, None), (3, Some("u1")), (3, None)] {
        let lost = count_lost_while(&mut world, |world| world.command_handover(n, uplink));
        assert_eq!(lost, [0, 0, 0], "router {n} to {uplink:?}");
    }
}

#[test]
fn nested_routers_lose_few_packets_when_the_link_of_the_root_is_cut() {
    let mut world = network_with_tree_of_routers([true; 3]);
    let lost = count_lost_while(&mut world, |world| world.set_carrier(1, "w0", false));
    // Each level sends two packets every 10 ms. Packets in transit at the event are lost, and packets that
    // are sent before the Binding Update has arrived.
    assert!(lost.iter().all(|lost| *lost <= 40), "{lost:?}");
    assert_eq!(measure_paths(&mut world), [(1, 1), (1, 1), (1, 1)]);
    assert!((1..=3).all(|n| visited_prefix(2).contains(&world.care_of_address(n).expect("registered"))));
}

#[test]
fn nesting_works_where_access_network_permits_one_address() {
    let mut world = NestedNetwork::new(3);
    world.add_router(1, &[("w0", "v1")], true);
    world.advance_seconds(2);
    let only = world.care_of_address(1).expect("registered");
    world.visited_links.get_mut("v1").expect("a link").allowed_sources = Some(vec![only]);
    world.add_router(2, &[("u0", "n1")], true);
    world.add_router(3, &[("u0", "n2")], true);
    world.advance_seconds(30);
    assert_eq!(measure_paths(&mut world), [(1, 1), (2, 2), (3, 3)]);
    assert!(net("2001:db8:1:a::/64").contains(&world.care_of_address(2).expect("registered")));
    // The routers behind router 1 have ended their attempts to use the visited link, and no packet is lost.
    let lost = count_lost_while(&mut world, |_| {});
    assert_eq!(lost, [0, 0, 0]);
}

#[test]
fn address_in_use_on_visited_link_is_not_registered() {
    let mut world = NestedNetwork::new(2);
    world.add_router(1, &[("w0", "v1")], true);
    world.advance_seconds(2);
    // Another node already has the address that router 2 would otherwise choose.
    let first = {
        let mut other = NestedNetwork::new(2);
        other.add_router(1, &[("w0", "v1")], true);
        other.advance_seconds(2);
        other.add_router(2, &[("u0", "n1")], true);
        other.advance_seconds(10);
        other.care_of_address(2).expect("registered")
    };
    assert!(visited_prefix(1).contains(&first));
    world.visited_links.get_mut("v1").expect("a link").taken_addresses = vec![first];
    world.add_router(2, &[("u0", "n1")], true);
    world.advance_seconds(10);
    let second = world.care_of_address(2).expect("registered");
    assert!(visited_prefix(1).contains(&second) && second != first, "{second}");
}

#[test]
fn advertised_mtu_fits_into_all_tunnels() {
    let mut world = network_with_tree_of_routers([false; 3]);
    let correspondent = address(CORRESPONDENT_ADDRESS);
    for (n, mtu) in [(1, 1460), (2, 1420), (3, 1380)] {
        let mut tunnels = world.router_station(n).nemo().slow_path_forwarder().tunnels();
        let (_, tunnel_mtu) = tunnels.find(|(tunnel, _)| tunnel.transmit).expect("a tunnel");
        assert_eq!(tunnel_mtu, mtu, "level {n}");
        drop(tunnels);
        let uplinks = world.router_station(n).mobile_router().expect("a mobile router").uplinks();
        assert_eq!(uplinks[0].mtu() as usize, mtu + 40, "level {n}, as advertised");
        world.clear_records();
        world.send_from_host(n, correspondent, mtu);
        world.send_from_host(n, correspondent, mtu + 1);
        world.advance_seconds(1);
        assert_eq!(world.count_arrived(host_address_of(n), correspondent), 1, "level {n}");
        let answers = world
            .arrived_packets
            .iter()
            .filter(|arrived| innermost_header(&arrived.packet).0.destination == host_address_of(n));
        let sizes: Vec<u32> = answers
            .filter_map(|arrived| {
                let message = arrived.packet.get(40..)?;
                match carnet_wire::icmpv6::parse_error(message).ok()?.0 {
                    carnet_wire::icmpv6::Icmpv6ErrorMessage::PacketTooBig { mtu } => Some(mtu),
                    _ => None,
                }
            })
            .collect();
        assert_eq!(sizes, [mtu as u32], "level {n}");
    }
    let header = Header::parse(&world.arrived_packets[0].packet).expect("a header");
    assert!(header.hop_limit > 0);
}
