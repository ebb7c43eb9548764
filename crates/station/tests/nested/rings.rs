//! Rings of nested routers, in which each router would be behind itself (RFC 4888 2.8). Each router refuses
//! the ring with a reason, and no storm of packets arises.

use std::time::Duration;

use carnet_wire::nd::{self, NdOption, NestingInformation, RouterAdvertisementRepr, nd_option::option_type};

use crate::world::{CORRESPONDENT_ADDRESS, NestedNetwork, address, host_address_of};

/// Returns two routers, each with an uplink to a visited link and an uplink into the other router's network.
fn network_with_two_routers(nesting: bool) -> NestedNetwork {
    let mut world = NestedNetwork::new(3);
    world.add_router(1, &[("w0", "v1"), ("u0", "n2")], nesting);
    world.add_router(2, &[("w0", "v2"), ("u0", "n1")], nesting);
    world.advance_seconds(20);
    world
}

fn assert_no_packet_storm(world: &mut NestedNetwork) {
    let (carried, said) = (world.link_transmission_count, world.sent_neighbor_messages);
    world.advance_seconds(60);
    let (carried, said) = (world.link_transmission_count - carried, world.sent_neighbor_messages - said);
    assert!(carried < 500 && said < 100, "{carried} packets, {said} messages in a minute");
}

#[test]
fn router_does_not_select_its_own_nested_router_as_parent() {
    for nesting in [true, false] {
        let mut world = network_with_two_routers(nesting);
        assert_eq!(world.uplink_state(1, "w0"), "active");
        // Router 1 loses its own link and moves behind router 2. From then on, router 2 must not move behind
        // router 1.
        world.set_carrier(1, "w0", false);
        world.advance_seconds(10);
        assert_eq!(world.uplink_state(1, "u0"), "active");
        // Without nesting no router announces its home address, so router 2 cannot know which routers are
        // behind it.
        if nesting {
            assert_eq!(
                world.uplink_state(2, "u0"),
                "down: the default router is itself behind this mobile router"
            );
        }
        world.clear_records();
        world.send_from_host(1, address(CORRESPONDENT_ADDRESS), 100);
        world.advance_seconds(1);
        assert_eq!(world.count_arrived(host_address_of(1), address(CORRESPONDENT_ADDRESS)), 1);
        assert_no_packet_storm(&mut world);
    }
}

#[test]
fn two_routers_without_uplinks_do_not_attach_to_each_other() {
    for nesting in [true, false] {
        let mut world = network_with_two_routers(nesting);
        // Both routers lose their links at once, and neither knows that the other has lost its link, too.
        world.set_carrier(1, "w0", false);
        world.set_carrier(2, "w0", false);
        let carried = world.link_transmission_count;
        world.advance_with(Duration::from_secs(10), |world| {
            world.send_from_host(1, address(CORRESPONDENT_ADDRESS), 1280);
            world.send_from_host(2, host_address_of(1), 1280);
        });
        for n in (1..=2).filter(|_| nesting) {
            assert_eq!(
                world.uplink_state(n, "u0"),
                "down: the default router is a mobile router without a working uplink",
                "router {n}"
            );
        }
        // In the ring, each packet of the test may cause at most one error. Without nesting the routers do
        // not see the ring, and the Tunnel Encapsulation Limit of 4 (RFC 2473 4.1.1) ends the loop.
        let carried = world.link_transmission_count - carried;
        let limit = if nesting { 2100 } else { 2000 * 5 };
        assert!(carried <= limit, "{carried} packets for 2000, expected at most {limit}");
        assert_no_packet_storm(&mut world);
        // When one of the routers has a visited link again, the other reaches it through this router.
        world.set_carrier(1, "w0", true);
        world.add_router(3, &[("w0", "v1")], nesting);
        // Without nesting, router 2 has tried to register until now, with growing pauses.
        world.advance_seconds(if nesting { 20 } else { 60 });
        assert_eq!(world.uplink_state(1, "w0"), "active");
        assert_eq!(world.uplink_state(2, "u0"), "active");
    }
}

fn advertisement_with(information: &NestingInformation) -> Vec<u8> {
    let data = information.emit_data();
    let options = [
        NdOption::SourceLinkAddress([2, 0, 0, 0, 0, 9]),
        NdOption::Unknown { option_type: option_type::EXPERIMENT_1, data: &data },
    ];
    nd::emit_router_advertisement(&RouterAdvertisementRepr {
        router_lifetime: 1800,
        options: &options,
        ..RouterAdvertisementRepr::default()
    })
}

#[test]
fn chain_of_nested_routers_is_bounded() {
    let mut world = NestedNetwork::new(1);
    world.add_router(1, &[("w0", "v1")], true);
    world.advance_seconds(5);
    let mut information =
        NestingInformation { grounded: true, prefixes: vec![], path_home_addresses: vec![] };
    for n in 0..8_u16 {
        information.path_home_addresses.push(format!("2001:db8:77::{n:x}").parse().expect("an address"));
    }
    let router = address("fe80::ffff");
    world.send_to_all_nodes("mr1", "w0", router, advertisement_with(&information));
    world.advance_seconds(1);
    assert_eq!(world.uplink_state(1, "w0"), "down: too many mobile routers behind each other");
    information.path_home_addresses.truncate(7);
    world.send_to_all_nodes("mr1", "w0", router, advertisement_with(&information));
    world.advance_seconds(1);
    assert_eq!(world.uplink_state(1, "w0"), "active");
    // A property that a parent router has announced once and does not repeat is no longer valid.
    information.path_home_addresses[3] = address("2001:db8:1::1234");
    world.send_to_all_nodes("mr1", "w0", router, advertisement_with(&information));
    world.advance_seconds(1);
    assert_eq!(world.uplink_state(1, "w0"), "down: the default router is itself behind this mobile router");
}
