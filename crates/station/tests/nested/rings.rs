//! Rings of nested routers, in which each router would be behind itself (RFC 4888 2.8). Each router refuses
//! the ring with a reason, and no storm of packets arises.

use std::time::Duration;

use carnet_wire::nd::{self, NdOption, NestingInformation, RouterAdvertisementRepr, option::option_type};

use crate::world::{CORRESPONDENT, World, address, host};

/// Returns two routers, each with an uplink to a visited link and an uplink into the other router's network.
fn two(nesting: bool) -> World {
    let mut world = World::new(3);
    world.add_router(1, &[("w0", "v1"), ("u0", "n2")], nesting);
    world.add_router(2, &[("w0", "v2"), ("u0", "n1")], nesting);
    world.wait(20);
    world
}

fn quiet(world: &mut World) {
    let (carried, said) = (world.carried, world.said);
    world.wait(60);
    let (carried, said) = (world.carried - carried, world.said - said);
    assert!(carried < 500 && said < 100, "{carried} packets, {said} messages in a minute");
}

#[test]
fn router_behind_this_router_is_no_parent() {
    for nesting in [true, false] {
        let mut world = two(nesting);
        assert_eq!(world.uplink(1, "w0"), "active");
        // Router 1 loses its own link and moves behind router 2. Router 2 must then not move behind router 1.
        world.carrier(1, "w0", false);
        world.wait(10);
        assert_eq!(world.uplink(1, "u0"), "active");
        // Without nesting no router tells its home address, so router 2 cannot know who is behind it.
        if nesting {
            assert_eq!(world.uplink(2, "u0"), "down: the default router is itself behind this mobile router");
        }
        world.forget();
        world.send_up(1, address(CORRESPONDENT), 100);
        world.wait(1);
        assert_eq!(world.count(host(1), address(CORRESPONDENT)), 1);
        quiet(&mut world);
    }
}

#[test]
fn two_routers_without_a_way_out_do_not_attach_to_each_other() {
    for nesting in [true, false] {
        let mut world = two(nesting);
        // Both routers lose their links at once, and neither knows that the other has lost its link, too.
        world.carrier(1, "w0", false);
        world.carrier(2, "w0", false);
        let carried = world.carried;
        world.run(Duration::from_secs(10), |world| {
            world.send_up(1, address(CORRESPONDENT), 1280);
            world.send_up(2, host(1), 1280);
        });
        for n in (1..=2).filter(|_| nesting) {
            assert_eq!(
                world.uplink(n, "u0"),
                "down: the default router is a mobile router without a working uplink",
                "router {n}"
            );
        }
        // In the ring, each packet of the test may cause at most one error. Without nesting the routers do
        // not see the ring, and the Tunnel Encapsulation Limit of 4 (RFC 2473 4.1.1) ends the loop.
        let carried = world.carried - carried;
        let limit = if nesting { 2100 } else { 2000 * 5 };
        assert!(carried <= limit, "{carried} packets for 2000, expected at most {limit}");
        quiet(&mut world);
        // When one of the routers has a visited link again, the other reaches it through this router.
        world.carrier(1, "w0", true);
        world.add_router(3, &[("w0", "v1")], nesting);
        // Without nesting router 2 has registered in vain until now, with back-off.
        world.wait(if nesting { 20 } else { 60 });
        assert_eq!(world.uplink(1, "w0"), "active");
        assert_eq!(world.uplink(2, "u0"), "active");
    }
}

fn advertisement(information: &NestingInformation) -> Vec<u8> {
    let data = information.emit_data();
    let options = [
        NdOption::SourceLinkAddress([2, 0, 0, 0, 0, 9]),
        NdOption::Unknown { option_type: option_type::EXPERIMENT_1, data: &data },
    ];
    nd::router_advertisement(&RouterAdvertisementRepr {
        router_lifetime: 1800,
        options: &options,
        ..RouterAdvertisementRepr::default()
    })
}

#[test]
fn chain_of_nested_routers_is_bounded() {
    let mut world = World::new(1);
    world.add_router(1, &[("w0", "v1")], true);
    world.wait(5);
    let mut information = NestingInformation { grounded: true, prefixes: vec![], path: vec![] };
    for n in 0..8_u16 {
        information.path.push(format!("2001:db8:77::{n:x}").parse().expect("an address"));
    }
    let router = address("fe80::ffff");
    world.tell("mr1", "w0", router, advertisement(&information));
    world.wait(1);
    assert_eq!(world.uplink(1, "w0"), "down: too many mobile routers behind each other");
    information.path.truncate(7);
    world.tell("mr1", "w0", router, advertisement(&information));
    world.wait(1);
    assert_eq!(world.uplink(1, "w0"), "active");
    // If a parent router announced a property and does not repeat it, the property is no longer valid.
    information.path[3] = address("2001:db8:1::1234");
    world.tell("mr1", "w0", router, advertisement(&information));
    world.wait(1);
    assert_eq!(world.uplink(1, "w0"), "down: the default router is itself behind this mobile router");
}
