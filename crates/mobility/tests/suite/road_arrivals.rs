//! Path failure detection by packets that arrive or are missing, besides heartbeats.

use std::net::Ipv4Addr;
use std::time::Duration;

use carnet_base::Rng;
use carnet_mobility::Event;
use carnet_mobility::mobile_router::{AgentResponse, MobileRouter, MobileRouterConfig, PathTraffic};

use crate::vehicle_on_road::*;

fn count_handovers(road: &VehicleOnRoad) -> usize {
    road.events.iter().filter(|(_, event)| matches!(event, Event::Handover { .. })).count()
}

/// Runs a flow for `seconds`. In each step of 5 ms it sends `sent` packets, and receives `received` packets
/// if the path works. Returns the longest interruption of the flow.
fn run_flow(road: &mut VehicleOnRoad, seconds: f64, sent: u64, received: u64) -> Duration {
    let end = road.now + Duration::from_secs_f64(seconds);
    let (mut stands_since, mut longest) = (road.now, Duration::ZERO);
    while road.now < end {
        let name = road.transmitting_uplinks().first().map(|name| (*name).to_string());
        if let Some(index) = name.and_then(|name| road.router.uplink_by_name(&name).ok()) {
            let carried = road.is_traffic_carried();
            let traffic = road.traffic_counts.entry(index).or_default();
            // TCP stops soon after packets cease to arrive.
            if carried {
                *traffic = PathTraffic { sent: traffic.sent + sent, received: traffic.received + received };
                stands_since = road.now;
            } else if received == 0 {
                traffic.sent += sent;
            }
            longest = longest.max(road.now.saturating_since(stands_since));
        }
        road.advance_seconds(0.005);
    }
    longest
}

/// A flow in both directions and a path that drops everything. The router detects the failure by the missing
/// packets, before the second retransmission of TCP.
#[test]
fn path_failure_under_traffic_is_detected_by_missing_packets() {
    for start in 0..20 {
        let mut road = VehicleOnRoad::with_registered_uplinks();
        road.network_mut("cell").delay_range = (Duration::from_millis(15), Duration::from_millis(15));
        run_flow(&mut road, 3.0 + f64::from(start) * 0.013, 5, 5);
        assert_eq!(count_handovers(&road), 0);
        road.set_losing_everything("wifi", true);
        let stands = run_flow(&mut road, 2.0, 5, 5);
        assert!(stands <= Duration::from_millis(360), "{stands:?}");
        assert_eq!((count_handovers(&road), road.transmitting_uplinks()[0]), (1, "cell"));
    }
}

/// A path that drops everything behind a queue of 100 ms, in which heartbeats wait: the router detects the
/// failure by the missing packets.
#[test]
fn path_failure_after_a_queue_is_detected_by_missing_packets() {
    for start in 0..20 {
        let mut road = VehicleOnRoad::with_registered_uplinks();
        road.network_mut("wifi").delay_range = (Duration::from_millis(40), Duration::from_millis(60));
        road.network_mut("cell").delay_range = (Duration::from_millis(15), Duration::from_millis(15));
        run_flow(&mut road, 5.0 + f64::from(start) * 0.013, 5, 5);
        assert_eq!(count_handovers(&road), 0);
        road.set_losing_everything("wifi", true);
        let stands = run_flow(&mut road, 2.0, 5, 5);
        assert!(stands <= Duration::from_millis(450), "{stands:?}");
        assert_eq!((count_handovers(&road), road.transmitting_uplinks()[0]), (1, "cell"));
    }
}

/// Flows that end, that pause, or that have one direction only are no sign of a failure.
#[test]
fn a_flow_that_stops_causes_no_move() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    for network in road.networks.values_mut() {
        network.delay_range = (Duration::from_millis(5), Duration::from_millis(25));
        network.loss_probability = 0.01;
    }
    for round in 0..100 {
        let (sent, received) = [(5, 5), (5, 0), (0, 5), (1, 1)][round % 4];
        run_flow(&mut road, 0.3 + 0.017 * (round % 7) as f64, sent, received);
        road.advance_seconds(0.05 + 0.031 * (round % 11) as f64);
    }
    assert_eq!(count_handovers(&road), 0);
}

/// For a minute a flow sends twice the capacity of an uplink, behind a queue of three seconds. The uplink is
/// full, and has not failed.
#[test]
fn a_fully_used_uplink_keeps_its_traffic() {
    for seed in 1..=10 {
        for replies in [0, 1] {
            let mut road = VehicleOnRoad::with_configs(config(), agent_config(), seed);
            road.attach_all_uplinks();
            road.advance_seconds(5.0);
            road.clear_records();
            let now = road.now;
            road.network_mut("wifi").queue = Some(LoadedQueue::new(now, 2.0, 3.0));
            let mut full = 0;
            for second in 0..60 {
                // Without replies only heartbeats arrive; with replies, one packet each 50 ms arrives behind
                // the queue.
                for _ in 0..20 {
                    let traffic = road.traffic_counts.entry(0).or_default();
                    traffic.sent += 50;
                    traffic.received += if second >= 2 { replies } else { 0 };
                    road.advance_seconds(0.05);
                }
                full += usize::from(road.router.is_path_saturated(0));
            }
            assert_eq!(count_handovers(&road), 0, "seed {seed}: {:?}", road.events);
            assert_eq!(road.transmitting_uplinks()[0], "wifi");
            assert!(full >= 55, "full for {full} s");
            assert!(!road.router.is_path_saturated(1));
            // The load of the other stations ends.
            road.network_mut("wifi").queue.as_mut().expect("a queue").load_share = 0.0;
            road.advance_seconds(10.0);
            assert!(!road.router.is_path_saturated(0));
            assert_eq!(count_handovers(&road), 0);
        }
    }
}

/// The router leaves a full uplink that fails.
#[test]
fn router_leaves_full_uplink_that_fails() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    let now = road.now;
    road.network_mut("wifi").queue = Some(LoadedQueue::new(now, 2.0, 3.0));
    road.advance_seconds(10.0);
    assert!(road.router.is_path_saturated(0));
    road.set_losing_everything("wifi", true);
    let took = road.advance_while(7.0, "carried over cell", |road| !road.is_traffic_carried());
    assert!(took <= Duration::from_millis(6500), "{took:?}");
}

/// Only heartbeats show that an uplink is full, and that it no longer is. After a reload without heartbeats
/// the uplink does not count as full.
#[test]
fn reload_without_heartbeats_clears_the_full_state_of_an_uplink() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    let now = road.now;
    road.network_mut("wifi").queue = Some(LoadedQueue::new(now, 2.0, 3.0));
    road.advance_seconds(10.0);
    assert!(road.router.is_path_saturated(0));
    road.network_mut("wifi").queue = None;
    let without = MobileRouterConfig { liveness: None, ..config() };
    let old = std::mem::replace(&mut road.router, MobileRouter::new(without, &mut Rng::new(3)));
    road.run_on_router(|router, now, wall| router.adopt_state_of(now, wall, &old));
    for interface in road.interfaces.values().cloned().collect::<Vec<_>>() {
        road.run_on_router(|router, now, wall| router.handle_interface(now, wall, &interface));
    }
    road.advance_seconds(60.0);
    assert!(!road.router.is_path_saturated(0));
}

/// The uplink delivers packets to the router but loses all that the router sends.
#[test]
fn router_leaves_uplink_that_loses_every_sent_packet() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    run_flow(&mut road, 1.0, 5, 5);
    road.network_mut("wifi").loss_probability = 1.0;
    for _ in 0..1600 {
        road.traffic_counts.entry(0).or_default().received += 5;
        road.advance_seconds(0.005);
    }
    assert_eq!(road.transmitting_uplinks()[0], "cell");
}

/// A load lasts for ten minutes, so the shortest round trip of the last minutes is long as well. The uplink
/// still counts as full.
#[test]
fn uplink_that_is_full_for_long_stays_full() {
    for replies in [0, 1] {
        let mut road = VehicleOnRoad::with_registered_uplinks();
        let now = road.now;
        road.network_mut("wifi").queue = Some(LoadedQueue::new(now, 2.0, 3.0));
        road.advance_seconds(10.0);
        let mut full = 0;
        for _ in 0..600 {
            for _ in 0..20 {
                let traffic = road.traffic_counts.entry(0).or_default();
                (traffic.sent, traffic.received) = (traffic.sent + 50, traffic.received + replies);
                road.advance_seconds(0.05);
            }
            full += usize::from(road.router.is_path_saturated(0));
        }
        assert_eq!(count_handovers(&road), 0, "{:?}", road.events);
        assert!(full >= 580, "full for {full} of 600 s");
    }
}

/// An uplink without traffic has long round trips for another reason than a queue. The shortest round trip of
/// the last minutes becomes the new base.
#[test]
fn uplink_with_permanently_longer_delay_stops_counting_as_full() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    run_flow(&mut road, 1.0, 5, 5);
    road.network_mut("wifi").delay_range = (Duration::from_millis(500), Duration::from_millis(510));
    run_flow(&mut road, 5.0, 5, 5);
    assert!(road.router.is_path_saturated(0));
    road.advance_seconds(600.0);
    assert!(!road.router.is_path_saturated(0));
}

/// A Binding Update over a full uplink takes seconds. The router sends the updates of other uplinks first, so
/// that they do not overtake it (RFC 6275 9.5.1).
#[test]
fn router_sends_update_over_full_uplink_after_updates_over_others() {
    for seed in 1..=15 {
        let mut road = VehicleOnRoad::with_configs(config(), agent_config(), seed);
        for (number, name) in ["wifi", "cell", "sat"].into_iter().enumerate() {
            road.attach_uplink(name, None, Some(Ipv4Addr::new(203, 0, 113, 5 + number as u8)));
        }
        road.advance_seconds(5.0);
        let now = road.now;
        road.network_mut("wifi").queue = Some(LoadedQueue::new(now, 2.0, 3.0));
        for _ in 0..6000 {
            let traffic = road.traffic_counts.entry(0).or_default();
            (traffic.sent, traffic.received) = (traffic.sent + 50, traffic.received + 1);
            road.advance_seconds(0.05);
        }
        assert!(road.router.is_path_saturated(0));
        let refused: Vec<&Event> =
            road.agent_events.iter().filter(|event| matches!(event, Event::BindingRefused { .. })).collect();
        assert!(refused.is_empty(), "seed {seed}: {refused:?}");
    }
}

/// Over IPv4 each Binding Update must leave by its own uplink, and the queue of a full uplink drops half of
/// them. The lifetime must last until one update and its acknowledgement have passed.
#[test]
fn a_fully_used_ipv4_uplink_keeps_its_traffic() {
    let mut plain = config();
    plain.uplinks.iter_mut().for_each(|uplink| uplink.bid = None);
    for (nat, config) in [(false, config()), (true, config()), (false, plain.clone()), (true, plain)] {
        let has_identifiers = config.uplinks[0].bid.is_some();
        for seed in 1..=4 {
            let mut road = VehicleOnRoad::with_configs(config.clone(), agent_config(), seed);
            for (number, name) in ["wifi", "cell", "sat"].into_iter().enumerate() {
                let number = number as u8;
                if nat {
                    let outside = Ipv4Addr::new(198, 18, 0, 1 + number);
                    road.network_mut(name).nat = Some(TestNat::new(outside, Duration::from_secs(60)));
                }
                road.attach_uplink(name, None, Some(Ipv4Addr::new(203, 0, 113, 5 + number)));
            }
            road.advance_seconds(5.0);
            road.clear_records();
            let now = road.now;
            road.network_mut("wifi").queue = Some(LoadedQueue::new(now, 2.0, 3.0));
            let (mut full, mut silent) = (0, 0);
            for _ in 0..6000 {
                let traffic = road.traffic_counts.entry(0).or_default();
                (traffic.sent, traffic.received) = (traffic.sent + 50, traffic.received + 1);
                road.advance_seconds(0.05);
                full += usize::from(road.router.is_path_saturated(0));
                silent += usize::from(matches!(road.router.agent_response(0), AgentResponse::Silent { .. }));
            }
            let case = format!("NAT {nat}, identifiers {has_identifiers}, seed {seed}");
            assert_eq!(count_handovers(&road), 0, "{case}: {:?}", road.events);
            assert!(full >= 5900, "{case}: full for {full} of 6000");
            assert_eq!(silent, 0, "{case}");
        }
    }
}
