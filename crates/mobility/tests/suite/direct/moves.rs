//! Handovers on direct routes: with a gap between two links, under a flood of forgeries, and with a
//! de-registration under the former key.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_mobility::direct::Output;
use carnet_wire::mobility::{DirectRoute, DirectRouteKind};

use super::direct_route_network::{DirectRouteNetwork, address, care_of_address_of, parse_message, prefix};
use super::world_with_direct_route;

/// Returns an address in an unrelated network, from which an unauthenticated source asks.
fn unrelated_address() -> Ipv6Addr {
    address("2001:db8:dead::1")
}

fn care_of_test_init() -> DirectRoute {
    DirectRoute {
        home_address: address("2001:db8:9::9"),
        care_of_address: unrelated_address(),
        ..DirectRoute::new(DirectRouteKind::CareOfTestInit)
    }
}

/// Only routers with a registration learn a care-of address (RFC 4882).
#[test]
fn direct_request_without_proof_reveals_no_care_of_address() {
    let heartbeat = DirectRoute { kind: DirectRouteKind::Heartbeat, ..care_of_test_init() };
    for question in [care_of_test_init(), heartbeat] {
        let mut world = DirectRouteNetwork::new(1);
        world.sends_data = false;
        let now = world.now;
        let _ = world.routers[0].handle_unencrypted_message(
            now,
            unrelated_address(),
            care_of_address_of(0, 0),
            &question,
        );
        world.take_router_outputs(0);
        assert!(!world.sent_packets_log.is_empty(), "{:?} is answered", question.kind);
        assert!(
            world
                .sent_packets_log
                .iter()
                .all(|packet| parse_message(&packet.octets).home_address.is_unspecified())
        );
    }
}

/// The home tokens are still valid, so the router asks only for a new care-of token.
#[test]
fn direct_route_resumes_quickly_after_link_gap() {
    let after = |gap: Duration| {
        let mut world = world_with_direct_route();
        if !gap.is_zero() {
            world.addresses_with_link.remove(&care_of_address_of(0, 0));
            world.set_care_of(0, &[]);
            world.advance_time(gap);
        }
        let moved = world.now;
        world.set_care_of(0, &[care_of_address_of(0, 1)]);
        let straight = |world: &DirectRouteNetwork| {
            let moved = world.routers[1].routes().any(|route| route.remote == Some(care_of_address_of(0, 1)));
            moved && world.is_direct(0, 1) && world.is_direct(1, 0)
        };
        while !straight(&world) {
            world.advance_time(Duration::from_millis(5));
            assert!(world.now.saturating_since(moved) < Duration::from_secs(3), "after {gap:?}");
        }
        world.now.saturating_since(moved)
    };
    let without = after(Duration::ZERO);
    for gap in [50, 100, 300].map(Duration::from_millis) {
        let took = after(gap);
        assert!(took <= without, "{took:?} after {gap:?}, {without:?} without");
    }
}

/// The acknowledgement of router 1 is lost. So router 1 has a new key, while router 0 de-registers under the
/// former one.
#[test]
fn end_of_direct_route_with_former_key_is_accepted() {
    let mut world = world_with_direct_route();
    world.step_duration = Duration::from_millis(100);
    world.filter = Box::new(|packet, message| {
        !(message.kind == DirectRouteKind::BindingAcknowledgement && packet.from == 1)
    });
    let before = world.routers[1].counters().accepted_peer_updates;
    while world.routers[1].counters().accepted_peer_updates == before {
        world.advance_time(Duration::from_millis(100));
    }
    world.advance_time(Duration::from_millis(200));
    assert!(world.is_direct(1, 0));
    let now = world.now;
    world.routers[0].handle_shutdown(now);
    world.take_router_outputs(0);
    world.advance_time(Duration::from_millis(100));
    assert!(!world.is_direct(1, 0));
}

/// A thousand forged updates a second look like updates of a new address. Packets go by the home agents after
/// the detection time at most, and no acknowledgement over another path revives the dead address.
#[test]
fn forged_messages_delay_a_handover_by_at_most_one_detection_time() {
    let mut world = world_with_direct_route();
    let now = world.now;
    world.routers[1]
        .handle_unencrypted_message(now, unrelated_address(), care_of_address_of(1, 0), &care_of_test_init())
        .expect("an answer");
    let answers = std::iter::from_fn(|| world.routers[1].poll_output());
    let straight = answers.filter_map(|output| match output {
        Output::Straight(packet) => Some(parse_message(&packet).care_of_nonce),
        _ => None,
    });
    let nonce = straight.last().expect("a nonce's index");
    let forged = DirectRoute {
        lifetime: 100,
        sequence: 7,
        home_nonce: nonce,
        care_of_nonce: nonce,
        prefixes: vec![prefix("2001:db8:a5::/64")],
        authenticator: [3; 12],
        kind: DirectRouteKind::BindingUpdate,
        ..care_of_test_init()
    };
    world.step_duration = Duration::from_millis(1);
    world.reported_paths.clear();
    for millisecond in 0..8000 {
        if millisecond == 300 {
            world.set_care_of(0, &[care_of_address_of(0, 1)]);
        }
        for _ in 0..if millisecond == 0 { 200 } else { 1 } {
            let now = world.now;
            let _ = world.routers[1].handle_unencrypted_message(
                now,
                unrelated_address(),
                care_of_address_of(1, 0),
                &forged,
            );
        }
        world.take_router_outputs(1);
        world.advance_time(Duration::from_millis(1));
        if millisecond % 100 == 0 {
            world.sent_packets_log.clear();
        }
    }
    let again = world.reported_paths.iter().filter(|(by, _, direct)| *by == 1 && *direct).count();
    assert_eq!(again, 0, "the dead way is not taken again");
}
