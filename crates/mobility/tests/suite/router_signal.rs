//! Mobile router: it takes and leaves uplinks by their signal, with hysteresis.

use std::time::Duration;

use carnet_mobility::mobile_router::SignalThresholds;

use crate::craft::*;
use crate::pair::{Pair, Setup};

/// The thresholds of the Mobile WiMAX testbed.
const THRESHOLDS: SignalThresholds = SignalThresholds { good: -49, poor: -69 };

/// A router on `wifi`, which has thresholds, with `cell` as second uplink.
fn on_wifi() -> Pair {
    let mut setup = Setup::plain();
    setup.routers[0].uplinks[0].signal = Some(THRESHOLDS);
    let mut pair = Pair::new(setup);
    pair.attach_both();
    pair.register();
    pair.run(5.0);
    assert_eq!(pair.path(), Some(addr(CARE_OF)), "without a reading like any other");
    pair
}

/// Hands in a reading of `wifi`, and returns whether `wifi` carries the traffic.
fn stays(pair: &mut Pair, dbm: i32) -> bool {
    pair.router_does(0, |machine, now, wall| machine.handle_signal(now, wall, "wifi", Some(dbm)));
    pair.run(1.0);
    assert_eq!(pair.machine().uplinks()[0].signal, Some(dbm));
    pair.path() == Some(addr(CARE_OF))
}

#[test]
fn an_uplink_is_left_at_poor_and_taken_at_good() {
    let mut pair = on_wifi();
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
        assert_eq!(stays(&mut pair, dbm), expected, "reading {n}, {dbm} dBm");
    }
}

/// A reading that is not renewed no longer counts. A reading that is renewed with the same value still
/// counts.
#[test]
fn a_signal_that_is_not_renewed_expires() {
    let mut setup = Setup::plain();
    setup.routers[0].uplinks[0].signal = Some(THRESHOLDS);
    setup.routers[0].uplinks[0].signal_timeout = Some(Duration::from_secs(60));
    let mut pair = Pair::new(setup);
    pair.attach_both();
    pair.register();
    for _ in 0..5 {
        assert!(!stays(&mut pair, -80));
        pair.run(58.0);
        assert_eq!(pair.machine().uplinks()[0].signal, Some(-80));
    }
    pair.run(3.0);
    assert_eq!(pair.machine().uplinks()[0].signal, None);
    assert_eq!(pair.path(), Some(addr(CARE_OF)), "without a reading like any other");
    // The next reading is a first one: between the thresholds it is poor.
    assert!(!stays(&mut pair, -60));
}

#[test]
fn a_poor_uplink_is_used_if_there_is_no_other_uplink() {
    let mut pair = on_wifi();
    assert!(!stays(&mut pair, -80));
    pair.detach(0, "cell");
    pair.run(1.0);
    assert_eq!(pair.path(), Some(addr(CARE_OF)));
}

#[test]
fn first_signal_between_thresholds_counts_as_poor() {
    let mut pair = on_wifi();
    assert!(!stays(&mut pair, -60));
    assert!(stays(&mut pair, -49));
}
