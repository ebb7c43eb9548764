//! Random schedules of all events of three uplinks of three kinds. The main invariant: while one uplink works
//! and the home agent answers, the mobile network is cut off for a second at most.

use std::net::Ipv4Addr;
use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_mobility::flow::{FlowAction, Ipv6Selector, TrafficSelector};
use carnet_mobility::mobile_router::Policy;

use crate::vehicle_on_road::*;

const UPLINK_NAMES: [&str; 3] = ["wifi", "cell", "sat"];

/// Current state of an uplink.
#[derive(Debug, Clone, Copy, Default)]
struct UplinkState {
    is_up: bool,
    loses_everything: bool,
}

fn attach_uplink(road: &mut VehicleOnRoad, index: usize, number: u16) {
    let ipv6 = format!("2001:db8:f{}::{:x}", index + 1, 0x10 + number);
    let host = u8::try_from(number % 200).unwrap_or(0) + 2;
    match index {
        0 => road.attach_uplink("wifi", Some(&ipv6), None),
        1 => road.attach_uplink("cell", None, Some(Ipv4Addr::new(10, 0, 0, host))),
        _ => road.attach_uplink("sat", Some(&ipv6), Some(Ipv4Addr::new(203, 0, 113, host))),
    }
}

fn random_road(seed: u64) -> VehicleOnRoad {
    let mut config = config();
    config.policies = vec![Policy {
        name: "all".into(),
        selectors: vec![TrafficSelector::Ipv6(Ipv6Selector::default())],
        action: FlowAction::Balance,
        uplinks: UPLINK_NAMES.map(String::from).to_vec(),
    }];
    let mut road = VehicleOnRoad::with_configs(config, agent_config(), seed);
    road.network_mut("cell").nat =
        Some(TestNat::new(Ipv4Addr::new(203, 0, 113, 250), Duration::from_secs(30)));
    road
}

fn run_schedule(seed: u64, lossy: bool) {
    let mut rng = Rng::new(seed ^ 0x5eed);
    let mut road = random_road(seed);
    let mut links = [UplinkState::default(); 3];
    for (index, link) in links.iter_mut().enumerate() {
        attach_uplink(&mut road, index, 0);
        link.is_up = true;
    }
    road.advance_seconds(5.0);
    let mut number = 0_u16;
    // The schedule spares one uplink in each phase: it works during the whole phase, and had time to register
    // before.
    for phase in 0..6 {
        let spared = usize::try_from(rng.random_u64() % 3).unwrap_or(0);
        if !links[spared].is_up {
            number += 1;
            attach_uplink(&mut road, spared, number);
            links[spared].is_up = true;
        }
        road.set_losing_everything(UPLINK_NAMES[spared], false);
        links[spared].loses_everything = false;
        // Wait for the longest hold-down and one retransmission.
        let settle = road.now + Duration::from_secs(70);
        road.advance_while(80.0, "the spared uplink is registered", |road| {
            let bid = u16::try_from(spared + 1).unwrap_or(0);
            !road.bound_bids().contains(&bid) && road.now < settle
        });
        road.advance_seconds(3.0);
        let mut cut_since: Option<Time> = None;
        let mut deaf_since: Option<Time> = None;
        for _ in 0..12 {
            let index = usize::try_from(rng.random_u64() % 3).unwrap_or(0);
            if index != spared {
                number += 1;
                match rng.random_u64() % 4 {
                    0 => {
                        road.detach_uplink(UPLINK_NAMES[index]);
                        links[index].is_up = false;
                    }
                    1 => {
                        attach_uplink(&mut road, index, number);
                        links[index].is_up = true;
                    }
                    2 => {
                        links[index].loses_everything = !links[index].loses_everything;
                        let dead = links[index].loses_everything;
                        road.set_losing_everything(UPLINK_NAMES[index], dead);
                    }
                    _ => {
                        let choice = UPLINK_NAMES[usize::try_from(rng.random_u64() % 3).unwrap_or(0)];
                        let forced = rng.is_true_with_probability(0.5).then_some(choice);
                        road.run_on_router(|router, now, wall| router.handle_handover(now, wall, forced))
                            .expect("an uplink");
                    }
                }
            }
            if lossy {
                for name in UPLINK_NAMES {
                    road.network_mut(name).loss_probability =
                        if rng.is_true_with_probability(0.5) { 0.05 } else { 0.0 };
                }
            }
            let end = road.now + Duration::from_millis(50 + rng.random_u64() % 4000);
            loop {
                let more = road.handle_next_event(end);
                if !more {
                    road.advance_seconds(end.saturating_since(road.now).as_secs_f64());
                }
                if road.is_traffic_to_agent_carried() {
                    cut_since = None;
                } else {
                    let since = *cut_since.get_or_insert(road.now);
                    let cut = road.now.saturating_since(since);
                    // A lost acknowledgement costs a retransmission.
                    let limit = if lossy { 2.2 } else { 1.0 };
                    assert!(
                        cut.as_secs_f64() <= limit,
                        "seed {seed} phase {phase}: cut off for {cut:?}, spared {}, links {links:?}, {}",
                        UPLINK_NAMES[spared],
                        road.describe_state()
                    );
                }
                // Packets to the mobile network may be lost for up to 2 s. First the router must report a
                // failure to the home agent, with at most three Binding Updates per second.
                if road.is_traffic_to_router_carried() || lossy {
                    deaf_since = None;
                } else {
                    let since = *deaf_since.get_or_insert(road.now);
                    let deaf = road.now.saturating_since(since).as_secs_f64();
                    assert!(
                        deaf <= 2.0,
                        "seed {seed} phase {phase}: deaf for {deaf} s, {}",
                        road.describe_state()
                    );
                }
                if !more {
                    break;
                }
            }
        }
        road.run_on_router(|router, now, wall| router.handle_handover(now, wall, None)).expect("automatic");
    }
    // In the end all uplinks work: router and home agent agree on all bindings and flows.
    for (index, name) in UPLINK_NAMES.iter().enumerate() {
        road.network_mut(name).loss_probability = 0.0;
        road.set_losing_everything(name, false);
        attach_uplink(&mut road, index, 99);
    }
    road.advance_seconds(140.0);
    assert_eq!(road.bound_bids(), [1, 2, 3], "seed {seed}: {}", road.describe_state());
    assert!(road.is_traffic_carried(), "seed {seed}: {}", road.describe_state());
    assert_eq!(road.transmitting_uplinks(), ["wifi", "cell", "sat"], "seed {seed}");
    assert_eq!(road.router.flows()[0].bids.len(), 3, "seed {seed}");
    assert_eq!(road.agent.flows(road.config.home_address), road.router.flows(), "seed {seed}");
}

#[test]
fn outages_are_short_in_random_schedules() {
    for seed in 0..40 {
        run_schedule(seed, false);
    }
}

#[test]
fn outages_are_short_in_random_schedules_with_loss() {
    for seed in 100..140 {
        run_schedule(seed, true);
    }
}
