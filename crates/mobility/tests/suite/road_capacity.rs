//! The router measures the capacity of uplinks by their counters while round trips are long.

use std::time::Duration;

use carnet_mobility::flow::FlowAction;
use carnet_mobility::mobile_router::{InterfaceOctets, MobileRouterConfig, Policy};

use crate::test_messages::*;
use crate::vehicle_on_road::*;

/// One-way delay of an empty path, in milliseconds.
const EMPTY_PATH_DELAY_MS: u64 = 15;

fn config_with_balancing() -> MobileRouterConfig {
    let policy = Policy {
        name: "all".into(),
        selectors: vec![carnet_mobility::flow::TrafficSelector::Ipv6(Default::default())],
        action: FlowAction::Balance,
        uplinks: ["wifi", "cell"].map(str::to_string).into(),
    };
    MobileRouterConfig { policies: vec![policy], ..config() }
}

/// Vehicle on the road, with the octet counters of its uplinks.
struct LoadedRoad {
    road: VehicleOnRoad,
    octets: [InterfaceOctets; 2],
}

impl LoadedRoad {
    fn new(config: MobileRouterConfig) -> LoadedRoad {
        let mut road = VehicleOnRoad::new(config);
        road.attach_all_uplinks();
        let mut loaded =
            LoadedRoad { road, octets: [InterfaceOctets { epoch: 1, total: 0, received: 0 }; 2] };
        loaded.run_with_loads(5.0, [(0, 0, EMPTY_PATH_DELAY_MS); 2]);
        loaded
    }

    /// Runs for `seconds`. `loads` has for each uplink: kbit/s received, kbit/s sent, and one-way delay in
    /// ms.
    fn run_with_loads(&mut self, seconds: f64, loads: [(u64, u64, u64); 2]) {
        const CAPACITY_STEP: f64 = 0.75;
        for _ in 0..(seconds / CAPACITY_STEP) as usize {
            for ((name, (received, sent, delay)), octets) in
                ["wifi", "cell"].into_iter().zip(loads).zip(&mut self.octets)
            {
                self.road.network_mut(name).delay_range =
                    (Duration::from_millis(delay), Duration::from_millis(delay));
                // A kilobit has 125 octets.
                let of = |rate: u64| (rate as f64 * 125.0 * CAPACITY_STEP) as u64;
                octets.received += of(received);
                octets.total += of(received) + of(sent);
            }
            self.road.advance_seconds(CAPACITY_STEP);
            for (name, octets) in ["wifi", "cell"].into_iter().zip(self.octets) {
                self.road.run_on_router(|router, now, wall| router.handle_octets(now, wall, name, octets));
            }
        }
    }

    fn estimated_capacities(&self) -> [Option<u32>; 2] {
        let mut uplinks = self.road.router.uplinks().iter().map(|uplink| uplink.capacity);
        [uplinks.next().flatten(), uplinks.next().flatten()]
    }

    /// Returns the first uplink's share of the traffic, by the router's weights and by the home agent's.
    fn shares_of_first_uplink(&self) -> [f64; 2] {
        let flows = [self.road.router.flows(), self.road.agent.flows(addr(HOME_ADDRESS))];
        flows.map(|flows| {
            let bids = &flows[0].bids;
            let sum: u32 = bids.iter().map(|(_, weight)| u32::from(*weight)).sum();
            f64::from(bids[0].1) / f64::from(sum)
        })
    }
}

fn is_near(value: Option<u32>, expected: u32) -> bool {
    value.is_some_and(|value| value.abs_diff(expected) <= expected / 8)
}

#[test]
fn capacity_of_full_uplinks_sets_shares_at_both_ends() {
    let mut loaded = LoadedRoad::new(config_with_balancing());
    assert_eq!((loaded.estimated_capacities(), loaded.shares_of_first_uplink()), ([None; 2], [0.5; 2]));
    loaded.road.clear_records();
    // Downloads, with the acknowledgements of TCP in the other direction.
    loaded.run_with_loads(6.0, [(50_000, 900, 60), (20_000, 400, 80)]);
    let capacities = loaded.estimated_capacities();
    assert!(is_near(capacities[0], 50_000) && is_near(capacities[1], 20_000), "{capacities:?}");
    for share in loaded.shares_of_first_uplink() {
        assert!((share - 5.0 / 7.0).abs() < 0.05, "{:?}", loaded.shares_of_first_uplink());
    }
    let told = loaded.road.sent_updates.len();
    assert!((1..=3).contains(&told), "{told} Binding Updates");
    // The measured capacity stays when the load continues, and when it ends.
    let shares = loaded.shares_of_first_uplink();
    loaded.road.clear_records();
    loaded.run_with_loads(20.0, [(51_000, 900, 60), (19_500, 400, 80)]);
    loaded.run_with_loads(20.0, [(100, 100, EMPTY_PATH_DELAY_MS), (0, 0, EMPTY_PATH_DELAY_MS)]);
    assert_eq!(loaded.shares_of_first_uplink(), shares);
    assert!(loaded.road.sent_updates.len() <= 1, "no more than one that renews");
    let capacities = loaded.estimated_capacities();
    assert!(is_near(capacities[0], 50_000) && is_near(capacities[1], 20_000), "{capacities:?}");
}

#[test]
fn measured_capacity_follows_changes() {
    let mut loaded = LoadedRoad::new(config_with_balancing());
    loaded.run_with_loads(6.0, [(40_000, 0, 60), (20_000, 0, 80)]);
    // The radio link of the first uplink gets slower, and is still full.
    loaded.run_with_loads(20.0, [(10_000, 0, 90), (20_000, 0, 80)]);
    assert!(is_near(loaded.estimated_capacities()[0], 10_000), "{:?}", loaded.estimated_capacities());
    assert!(loaded.shares_of_first_uplink()[1] < 0.45, "{:?}", loaded.shares_of_first_uplink());
    // A higher receive rate raises the capacity, whether or not packets wait.
    loaded.run_with_loads(3.0, [(45_000, 0, EMPTY_PATH_DELAY_MS), (5000, 0, EMPTY_PATH_DELAY_MS)]);
    assert!(is_near(loaded.estimated_capacities()[0], 45_000), "{:?}", loaded.estimated_capacities());
    assert!(is_near(loaded.estimated_capacities()[1], 20_000), "{:?}", loaded.estimated_capacities());
}

/// Long round trips alone, or traffic alone, measure no capacity; packets that the router sends may wait in a
/// modem.
#[test]
fn idle_or_short_samples_do_not_measure_capacity() {
    let mut loaded = LoadedRoad::new(config_with_balancing());
    loaded.run_with_loads(6.0, [(200, 300, 90), (400, 100, 70)]);
    loaded
        .run_with_loads(6.0, [(30_000, 8000, EMPTY_PATH_DELAY_MS), (9000, 30_000, EMPTY_PATH_DELAY_MS + 2)]);
    assert_eq!(loaded.estimated_capacities(), [None; 2]);
    // A single long round trip is no measurement.
    loaded.run_with_loads(0.75, [(30_000, 8000, 60), (9000, 30_000, 60)]);
    loaded.run_with_loads(3.0, [(30_000, 8000, EMPTY_PATH_DELAY_MS), (9000, 30_000, EMPTY_PATH_DELAY_MS)]);
    assert_eq!(loaded.estimated_capacities(), [None; 2]);
    // Uploads are measured as well.
    loaded.run_with_loads(6.0, [(500, 8000, 60), (300, 3000, 60)]);
    let capacities = loaded.estimated_capacities();
    assert!(is_near(capacities[0], 8000) && is_near(capacities[1], 3000), "{capacities:?}");
}

#[test]
fn configured_capacity_is_initial_and_largest_value() {
    let mut config = config_with_balancing();
    for (uplink, capacity) in config.uplinks.iter_mut().zip([30_000, 20_000]) {
        uplink.capacity = Some(capacity);
    }
    let mut loaded = LoadedRoad::new(config);
    assert!((loaded.shares_of_first_uplink()[1] - 0.6).abs() < 0.01);
    loaded.run_with_loads(6.0, [(60_000, 0, 60), (5000, 0, 60)]);
    assert_eq!(loaded.estimated_capacities()[0], Some(30_000));
    assert!(is_near(loaded.estimated_capacities()[1], 5000), "{:?}", loaded.estimated_capacities());
    // The uplink changes to another network.
    loaded.road.attach_uplink("cell", Some("2001:db8:f2::77"), None);
    assert_eq!(loaded.estimated_capacities()[1], Some(20_000));
}

/// The counters of a restarted interface begin at 0; the time of a suspended machine is no sample.
#[test]
fn restarted_interface_counters_are_not_traffic() {
    let mut loaded = LoadedRoad::new(config_with_balancing());
    for octets in &mut loaded.octets {
        *octets = InterfaceOctets { epoch: 2, total: 1 << 40, received: 1 << 39 };
    }
    loaded.run_with_loads(1.5, [(0, 0, 90); 2]);
    loaded.road.advance_seconds(100.0);
    for octets in &mut loaded.octets {
        octets.total += 1 << 40;
        octets.received += 1 << 39;
    }
    loaded.run_with_loads(0.75, [(0, 0, 90); 2]);
    assert_eq!(loaded.estimated_capacities(), [None; 2]);
}
