//! Time of the next beacon (10.2.3).
//!
//! With fixed beacons, the interval after the last beacon or SHB is the sum of
//! `itsGnBeaconServiceRetransmitTimer` and a random time of at most `itsGnBeaconServiceMaxJitter`. With
//! adaptive beacons, after Chen and Gerla, "TCP over Geo-routing for High Mobility", the interval is I = R /
//! (k speed) between two bounds. A station then receives k beacons of a passing neighbour. The interval grows
//! if the beacons of all stations nearby would exceed a limit. A quarter of the interval is random.

use std::time::Duration;

use carnet_base::Rng;

use crate::Mib;
use crate::mib::BeaconInterval;

/// Returns the shortest time until the next beacon, and the upper limit of a random time that the router adds
/// to it. `speed` is in 0.01 m/s.
pub(crate) fn fixed_and_random_interval(mib: &Mib, speed: i16, neighbours: usize) -> (Duration, Duration) {
    match mib.beacon_interval {
        BeaconInterval::Fixed => (mib.beacon_retransmit_timer, mib.beacon_max_jitter),
        BeaconInterval::Adaptive { k, shortest, longest, load_limit } => {
            let metres_per_second = f64::from(speed.unsigned_abs()) / 100.0;
            let seconds = mib.max_communication_range / (k * metres_per_second);
            let crowded = (neighbours as f64 + 1.0) / load_limit;
            let seconds =
                seconds.min(longest.as_secs_f64()).max(shortest.as_secs_f64()).max(crowded).min(60.0);
            let whole = Duration::try_from_secs_f64(seconds).unwrap_or(longest);
            let least = whole.mul_f64(0.75).max(shortest.min(whole));
            (least, whole - least)
        }
    }
}

/// Returns the random time between a beacon and the next one.
pub(crate) fn time_to_next_beacon(mib: &Mib, speed: i16, neighbours: usize, rng: &mut Rng) -> Duration {
    let (fixed, jitter) = fixed_and_random_interval(mib, speed, neighbours);
    rng.duration_between(fixed, fixed + jitter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval_range_seconds(speed: f64, neighbours: usize) -> (f64, f64) {
        let mib = Mib {
            beacon_interval: BeaconInterval::ADAPTIVE,
            max_communication_range: 250.0,
            ..Mib::default()
        };
        let mut rng = Rng::new(1);
        let all: Vec<f64> = (0..500)
            .map(|_| time_to_next_beacon(&mib, (speed * 100.0) as i16, neighbours, &mut rng).as_secs_f64())
            .collect();
        (all.iter().copied().fold(f64::MAX, f64::min), all.iter().copied().fold(0.0, f64::max))
    }

    /// The interval follows formula (1) of Chen and Gerla: max(min(R / (k speed), 2), 0.1).
    #[test]
    fn beacon_interval_adapts_to_speed_and_neighbours() {
        for (speed, interval) in [(0.0, 2.0), (5.0, 2.0), (10.0, 1.5625), (30.0, 0.5208), (100.0, 0.15625)] {
            let (least, most) = interval_range_seconds(speed, 10);
            assert!(most <= interval + 1e-3 && most > 0.95 * interval, "{speed} m/s: {most}");
            assert!(least >= 0.75 * interval - 1e-3 && least >= 0.1, "{speed} m/s: {least}");
        }
        // 100 m/s backwards give the same interval as 100 m/s forwards; more neighbours make the interval
        // longer.
        assert!(interval_range_seconds(-100.0, 10).1 < 0.16);
        let (least, most) = interval_range_seconds(100.0, 999);
        assert!(least >= 1.5 && most <= 2.001, "{least} {most}");
    }

    /// PON_BEA_TI_01: fixed intervals are 3.00 to 3.75 s.
    #[test]
    fn fixed_beacon_interval_has_jitter() {
        let mut rng = Rng::new(1);
        for _ in 0..1000 {
            let span = time_to_next_beacon(&Mib::default(), 0, 0, &mut rng);
            assert!((Duration::from_secs(3)..Duration::from_millis(3750)).contains(&span));
        }
    }
}
