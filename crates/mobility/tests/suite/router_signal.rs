//! Mobile router: it takes and leaves uplinks by their signal, with hysteresis.

use std::time::Duration;

use carnet_mobility::mobile_router::SignalThresholds;

use crate::agent_and_routers::{AgentAndRouters, PairSetup};
use crate::test_messages::*;

/// Signal thresholds of a testbed of NEMO over Mobile WiMAX (`eval/papers/nemo-wimax.toml`).
const SIGNAL_THRESHOLDS: SignalThresholds = SignalThresholds { good_dbm: -49, poor_dbm: -69 };

/// Creates a router on `wifi`, which has thresholds, with `cell` as second uplink.
fn pair_on_wifi() -> AgentAndRouters {
    let mut setup = PairSetup::plain_setup();
    setup.routers[0].uplinks[0].signal = Some(SIGNAL_THRESHOLDS);
    let mut pair = AgentAndRouters::new(setup);
    pair.attach_both_uplinks();
    pair.register_router();
    pair.advance_seconds(5.0);
    assert_eq!(pair.path_of_first_router(), Some(addr(CARE_OF_ADDRESS)), "without a reading like any other");
    pair
}

/// Reports this signal strength of `wifi` to the router, and returns whether `wifi` carries the traffic.
fn stays_on_wifi(pair: &mut AgentAndRouters, dbm: i32) -> bool {
    pair.run_on_router(0, |machine, now, wall| machine.handle_signal(now, wall, "wifi", Some(dbm)));
    pair.advance_seconds(1.0);
    assert_eq!(pair.first_router().uplinks()[0].signal_dbm, Some(dbm));
    pair.path_of_first_router() == Some(addr(CARE_OF_ADDRESS))
}

#[test]
fn router_leaves_uplink_at_poor_signal_and_returns_at_good_signal() {
    let mut pair = pair_on_wifi();
    let readings = [
        (-49, true),
        (-60, true),
        (-68, true),
        (-69, false),
        (-68, false),
        (-50, false),
        (-90, false),
        (-50, false),
        (-49, true),
        (-68, true),
        (-70, false),
        (-30, true),
    ];
    for (n, (dbm, expected)) in readings.into_iter().enumerate() {
        assert_eq!(stays_on_wifi(&mut pair, dbm), expected, "reading {n}, {dbm} dBm");
    }
}

/// A signal strength that is not reported again in time becomes unknown. A repeated report of the same value
/// keeps it known.
#[test]
fn a_signal_that_is_not_renewed_expires() {
    let mut setup = PairSetup::plain_setup();
    setup.routers[0].uplinks[0].signal = Some(SIGNAL_THRESHOLDS);
    setup.routers[0].uplinks[0].signal_timeout = Some(Duration::from_secs(60));
    let mut pair = AgentAndRouters::new(setup);
    pair.attach_both_uplinks();
    pair.register_router();
    for _ in 0..5 {
        assert!(!stays_on_wifi(&mut pair, -80));
        pair.advance_seconds(58.0);
        assert_eq!(pair.first_router().uplinks()[0].signal_dbm, Some(-80));
    }
    pair.advance_seconds(3.0);
    assert_eq!(pair.first_router().uplinks()[0].signal_dbm, None);
    assert_eq!(pair.path_of_first_router(), Some(addr(CARE_OF_ADDRESS)), "without a reading like any other");
    // After the expiry, a strength between the thresholds counts as poor, as at the start.
    assert!(!stays_on_wifi(&mut pair, -60));
}

#[test]
fn a_poor_uplink_is_used_if_there_is_no_other_uplink() {
    let mut pair = pair_on_wifi();
    assert!(!stays_on_wifi(&mut pair, -80));
    pair.detach_uplink(0, "cell");
    pair.advance_seconds(1.0);
    assert_eq!(pair.path_of_first_router(), Some(addr(CARE_OF_ADDRESS)));
}

#[test]
fn first_signal_between_thresholds_counts_as_poor() {
    let mut pair = pair_on_wifi();
    assert!(!stays_on_wifi(&mut pair, -60));
    assert!(stays_on_wifi(&mut pair, -49));
}
