//! Direct routes between mobile routers: their begin, moves and end in virtual time (RFC 6275 5.2, 9.5,
//! 11.7.2).

mod direct_route_network;
mod encrypted;
mod hostile;
mod limits;
mod moves;

use std::time::Duration;

use carnet_mobility::direct::MAX_RR_BINDING_LIFETIME;
use carnet_wire::mobility::DirectRouteKind;
use direct_route_network::{DirectRouteNetwork, PacketPath, care_of_address_of, home_address_of, network_of};

const SECOND: Duration = Duration::from_secs(1);

/// Creates two routers with a direct route between them.
fn world_with_direct_route() -> DirectRouteNetwork {
    let mut world = DirectRouteNetwork::new(2);
    world.advance_time(SECOND * 2);
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
    world.advance_time(SECOND);
    world.clear_packet_counts();
    world
}

#[test]
fn two_routers_find_each_other_by_their_traffic_and_lose_nothing() {
    let mut world = DirectRouteNetwork::new(2);
    world.advance_time(SECOND * 5);
    for (from, to) in [(0, 1), (1, 0)] {
        let seen = world.take_packet_counts(from, to);
        assert_eq!(seen.lost_packets, 0, "{seen:?}");
        // Packets go by the home agents only while the tests of both directions last.
        assert!(seen.sent_through_home < 60 && seen.sent_directly > 400, "{seen:?}");
        let route = world.routers[from].routes().next().expect("a route");
        assert_eq!((route.home_address, route.has_proven_binding), (home_address_of(to), true));
        assert_eq!(route.prefixes, [network_of(to)]);
        assert_eq!(
            (route.local, route.remote),
            (Some(care_of_address_of(from, 0)), Some(care_of_address_of(to, 0)))
        );
        assert_eq!(route.rtt, Some(Duration::from_millis(14)));
    }
}

#[test]
fn no_lookup_is_sent_without_traffic_or_for_other_networks() {
    let mut world = DirectRouteNetwork::new(2);
    world.sends_data = false;
    world.advance_time(SECOND * 60);
    world.routers[0].handle_used_destination(world.now, direct_route_network::address("2001:db8:77::1"));
    world.routers[0].handle_used_destination(world.now, direct_route_network::host_address_of(0));
    world.advance_time(SECOND * 10);
    assert!(world.sent_packets_log.is_empty());
}

/// If no mobile router answers for a destination, the router sends three requests, and repeats them after 30,
/// 60 and more seconds.
#[test]
fn destination_without_router_is_asked_at_growing_intervals() {
    let mut world = DirectRouteNetwork::new(2);
    world.filter = Box::new(|packet, _| packet.packet_path == PacketPath::Straight);
    world.step_duration = SECOND;
    world.advance_time(SECOND * 600);
    let asked = world.sent_packets_log.iter().filter(|packet| packet.from == 0).count();
    assert!((12..=18).contains(&asked), "{asked}");
    assert_eq!(world.take_packet_counts(0, 1).lost_packets, 0);
}

#[test]
fn a_route_is_renewed_while_it_is_used_and_ends_when_it_is_not() {
    let mut world = world_with_direct_route();
    world.step_duration = SECOND;
    world.advance_time(MAX_RR_BINDING_LIFETIME * 3);
    let seen = world.take_packet_counts(0, 1);
    assert_eq!((seen.lost_packets, seen.sent_through_home), (0, 0));
    assert_eq!(world.routers[0].counters().ended_routes, 0, "not for a moment");
    world.sends_data = false;
    world.advance_time(SECOND * 60);
    assert!(world.is_direct(0, 1), "not at once");
    world.advance_time(MAX_RR_BINDING_LIFETIME * 3);
    assert_eq!(world.routers[0].routes().count() + world.routers[1].routes().count(), 0);
    let sent = world.sent_packets_log.len();
    world.advance_time(SECOND * 600);
    assert_eq!(world.sent_packets_log.len(), sent, "silence");
}

/// Traffic in one direction is enough to keep a route.
#[test]
fn direct_route_used_in_one_direction_stays() {
    let mut world = world_with_direct_route();
    world.sends_data = false;
    world.step_duration = SECOND;
    for _ in 0..900 {
        world.routers[0].handle_used_destination(world.now, direct_route_network::host_address_of(1));
        world.advance_time(SECOND);
    }
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
}

#[test]
fn a_handover_while_the_old_link_is_up_loses_no_packet() {
    let mut world = world_with_direct_route();
    world.set_care_of(0, &[care_of_address_of(0, 1), care_of_address_of(0, 0)]);
    world.advance_time(SECOND);
    for (from, to) in [(0, 1), (1, 0)] {
        let seen = world.take_packet_counts(from, to);
        assert_eq!((seen.lost_packets, seen.sent_through_home), (0, 0), "{from}");
    }
    assert_eq!(
        world.routers[0].routes().next().and_then(|route| route.local),
        Some(care_of_address_of(0, 1))
    );
    world.set_care_of(0, &[care_of_address_of(0, 1)]);
    world.advance_time(SECOND * 10);
    assert_eq!(world.take_packet_counts(0, 1).lost_packets + world.take_packet_counts(1, 0).lost_packets, 0);
}

#[test]
fn a_simultaneous_handover_of_both_routers_loses_no_packet() {
    let mut world = world_with_direct_route();
    world.set_care_of(0, &[care_of_address_of(0, 1), care_of_address_of(0, 0)]);
    world.set_care_of(1, &[care_of_address_of(1, 1), care_of_address_of(1, 0)]);
    world.advance_time(SECOND);
    world.set_care_of(0, &[care_of_address_of(0, 1)]);
    world.set_care_of(1, &[care_of_address_of(1, 1)]);
    world.advance_time(SECOND * 10);
    for (from, to) in [(0, 1), (1, 0)] {
        let seen = world.take_packet_counts(from, to);
        assert_eq!((seen.lost_packets, seen.sent_through_home), (0, 0), "{from}");
    }
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
}

/// After the old link is lost, packets of this router go by the home agent at once. Packets to this router
/// are lost until the other router knows that the direct route has ended.
#[test]
fn a_handover_after_a_lost_link_loses_a_round_trip_or_two() {
    let mut world = world_with_direct_route();
    world.set_care_of(0, &[care_of_address_of(0, 1)]);
    world.advance_time(SECOND * 3);
    // Only packets on their way out of the old link are lost.
    assert!(world.take_packet_counts(0, 1).lost_packets <= 1);
    let seen = world.take_packet_counts(1, 0);
    assert!(seen.lost_packets <= 4, "{seen:?}");
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
}

/// Both routers have moved and cannot reach each other directly, but can by the home agents.
#[test]
fn two_routers_that_move_together_restore_direct_route() {
    let mut world = world_with_direct_route();
    world.set_care_of(0, &[care_of_address_of(0, 1)]);
    world.set_care_of(1, &[care_of_address_of(1, 1)]);
    world.advance_time(SECOND * 10);
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
    for (from, to) in [(0, 1), (1, 0)] {
        let seen = world.take_packet_counts(from, to);
        // Only packets on their way are lost: each router knows that its own care-of address is gone.
        assert!(seen.lost_packets <= 1, "{seen:?}");
    }
}

/// The router detects the failure within the time that the module documents: 450 ms and twice 200 ms.
#[test]
fn silent_failure_of_direct_route_is_detected_and_repaired() {
    for offset in (0..25).step_by(3) {
        let mut world = world_with_direct_route();
        world.advance_time(Duration::from_millis(10 * offset));
        world.clear_packet_counts();
        world.is_direct_path_cut = true;
        world.advance_time(SECOND * 10);
        for (from, to) in [(0, 1), (1, 0)] {
            let seen = world.take_packet_counts(from, to);
            assert!((30..=87).contains(&seen.lost_packets), "{seen:?}");
            assert!(seen.sent_through_home > 900, "{seen:?}");
        }
        world.is_direct_path_cut = false;
        world.advance_time(SECOND * 10);
        assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
        let seen = world.take_packet_counts(0, 1);
        assert_eq!(seen.lost_packets, 0);
    }
}

#[test]
fn icmp_error_ends_direct_route_at_once() {
    let mut world = world_with_direct_route();
    world.is_direct_path_cut = true;
    let (now, local, remote) = (world.now, care_of_address_of(0, 0), care_of_address_of(1, 0));
    world.routers[0].handle_unreachable_peer(now, local, direct_route_network::address("2001:db8:f9::1"));
    assert!(world.is_direct(0, 1), "about somebody else");
    world.routers[0].handle_unreachable_peer(now, local, remote);
    assert!(!world.is_direct(0, 1));
    world.take_router_outputs(0);
    world.advance_time(SECOND);
    assert_eq!(world.take_packet_counts(0, 1).lost_packets, 0);
}

/// A restarted router has no bindings; the other end learns that by its next heartbeat.
#[test]
fn a_router_reports_the_loss_of_its_bindings() {
    let mut world = world_with_direct_route();
    world.routers[1] =
        carnet_mobility::DirectRouteState::new(direct_route_network::config(1), carnet_base::Rng::new(99));
    world.set_care_of(1, &[care_of_address_of(1, 0)]);
    world.advance_time(SECOND * 5);
    let seen = world.take_packet_counts(0, 1);
    assert!(seen.lost_packets <= 27, "a heartbeat later at most: {seen:?}");
    assert_eq!(world.take_packet_counts(1, 0).lost_packets, 0);
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
}

#[test]
fn a_router_that_stops_announces_it_and_no_packet_is_lost() {
    let mut world = world_with_direct_route();
    let now = world.now;
    // When a station stops, its data path lasts until its last messages have left.
    world.routers[0].handle_shutdown(now);
    world.take_router_outputs(0);
    world.sends_data = false;
    world.advance_time(SECOND);
    assert!(!world.is_direct(1, 0));
    assert!(world.routers[1].tunnels().is_empty());
}

/// Every message may be lost: the routers repeat messages and lose no data packets.
#[test]
fn lost_messages_cost_time_and_no_packets() {
    for kind in [
        DirectRouteKind::HomeTestInit,
        DirectRouteKind::HomeTest,
        DirectRouteKind::PrefixTest,
        DirectRouteKind::CareOfTestInit,
        DirectRouteKind::CareOfTest,
        DirectRouteKind::BindingUpdate,
        DirectRouteKind::BindingAcknowledgement,
        DirectRouteKind::Heartbeat,
        DirectRouteKind::HeartbeatResponse,
    ] {
        let mut world = DirectRouteNetwork::new(2);
        let mut lost = [0; 2];
        world.filter = Box::new(move |packet, message| {
            let is = message.kind == kind && lost[packet.from] < 2;
            lost[packet.from] += u32::from(is);
            !is
        });
        world.advance_time(SECOND * 15);
        assert!(world.is_direct(0, 1) && world.is_direct(1, 0), "{kind:?}");
        assert_eq!(
            world.take_packet_counts(0, 1).lost_packets + world.take_packet_counts(1, 0).lost_packets,
            0,
            "{kind:?}"
        );
    }
}

/// The access network of one uplink drops direct packets: the router uses another uplink.
#[test]
fn direct_route_uses_next_uplink_if_best_drops_it() {
    let mut world = DirectRouteNetwork::new(2);
    world.filter = Box::new(|packet, message| {
        packet.packet_path == PacketPath::Home
            || (message.care_of_address != care_of_address_of(0, 0) || packet.from != 0)
    });
    world.set_care_of(0, &[care_of_address_of(0, 0), care_of_address_of(0, 1)]);
    world.advance_time(SECOND * 10);
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
    assert_eq!(
        world.routers[0].routes().next().and_then(|route| route.local),
        Some(care_of_address_of(0, 1))
    );
}

#[test]
fn without_an_ipv6_care_of_address_all_packets_use_the_home_agent() {
    let mut world = world_with_direct_route();
    world.set_care_of(0, &[]);
    world.advance_time(SECOND * 10);
    assert!(!world.is_direct(0, 1) && !world.is_direct(1, 0));
    world.set_care_of(0, &[care_of_address_of(0, 0)]);
    world.step_duration = Duration::from_millis(100);
    world.advance_time(SECOND * 70);
    assert!(world.is_direct(0, 1) && world.is_direct(1, 0));
}

/// A router that has come home reports it; the other end need not detect it by silence.
#[test]
fn a_router_without_care_of_address_reports_it() {
    let mut world = world_with_direct_route();
    let now = world.now;
    world.routers[0].handle_care_of_addresses(now, Vec::new(), true);
    world.take_router_outputs(0);
    world.advance_time(SECOND * 3);
    assert!(!world.is_direct(1, 0));
    let seen = world.take_packet_counts(1, 0);
    assert!(seen.lost_packets <= 3, "those that were under way: {seen:?}");
}

/// A report that packets take another path names the prefixes.
#[test]
fn direct_route_events_name_the_prefixes() {
    let mut world = DirectRouteNetwork::new(2);
    world.sends_data = false;
    // Only router 0 sends Home Test Inits, so router 1 knows the prefixes from the binding alone.
    for _ in 0..100 {
        world.routers[0].handle_used_destination(world.now, direct_route_network::host_address_of(1));
        world.advance_time(Duration::from_millis(100));
    }
    assert!(world.is_direct(1, 0));
    let now = world.now;
    world.routers[0].handle_shutdown(now);
    world.take_router_outputs(0);
    world.advance_time(SECOND);
    let told: Vec<_> = world.reported_paths.iter().filter(|(by, ..)| *by == 1).collect();
    assert_eq!(told, [&(1, vec![network_of(0)], true), &(1, vec![network_of(0)], false)]);
}

#[test]
fn five_routers_have_a_route_each_with_each() {
    let mut world = DirectRouteNetwork::new(5);
    world.advance_time(SECOND * 20);
    for from in 0..5 {
        for to in (0..5).filter(|to| *to != from) {
            assert!(world.is_direct(from, to), "{from} {to}");
            assert_eq!(world.take_packet_counts(from, to).lost_packets, 0);
        }
    }
}
