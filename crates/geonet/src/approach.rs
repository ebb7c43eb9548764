//! Distance of two stations at a later time, by dead reckoning: both keep the speed and heading of their
//! position vectors.

use std::time::Duration;

use carnet_wire::geonet::LongPositionVector;

use crate::geodesy::{LocalPlane, Position};

/// Longest extrapolation of a position vector, seconds.
const MAX_EXTRAPOLATION_S: f64 = 30.0;

/// Returns the predicted distance of two stations in metres. The prediction is for `ahead` after the
/// timestamp of the later position vector.
pub fn predicted_distance(own: &LongPositionVector, other: &LongPositionVector, ahead: Duration) -> f64 {
    let apart = own.timestamp.milliseconds_since(other.timestamp) as f64 / 1000.0;
    let ahead = ahead.as_secs_f64();
    let time = |behind: f64| (ahead + behind.max(0.0)).min(MAX_EXTRAPOLATION_S);
    let plane = LocalPlane::new(Position::new(own.latitude, own.longitude));
    let (east, north) = plane.offset_of(Position::new(other.latitude, other.longitude));
    let (own_east, own_north) = distance_travelled(own, time(-apart));
    let (other_east, other_north) = distance_travelled(other, time(apart));
    (east + other_east - own_east).hypot(north + other_north - own_north)
}

/// Returns how many metres a station travels to the east and to the north in this number of seconds.
fn distance_travelled(vector: &LongPositionVector, seconds: f64) -> (f64, f64) {
    let metres = f64::from(vector.speed) / 100.0 * seconds;
    let (sin, cos) = (f64::from(vector.heading) / 10.0).to_radians().sin_cos();
    (metres * sin, metres * cos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use carnet_wire::geonet::{GnAddress, Timestamp};

    fn position_vector(timestamp: u32, longitude: i32, speed: i16, heading: u16) -> LongPositionVector {
        LongPositionVector {
            address: GnAddress(1),
            timestamp: Timestamp(timestamp),
            latitude: 488_375_000,
            longitude,
            accurate: true,
            speed,
            heading,
        }
    }

    #[test]
    fn predicted_distance_extrapolates_both_position_vectors() {
        let own = position_vector(10_000, 21_008_000, 2000, 900);
        let close = |distance: f64, expected: f64| (distance - expected).abs() < 0.5;
        let there = |seconds| predicted_distance(&own, &own, Duration::from_secs(seconds));
        assert!(close(there(0), 0.0) && close(there(10), 0.0));
        // The other station moves towards this station, and its position vector is two seconds old.
        let other = LongPositionVector { longitude: 21_008_000 + 13_640, heading: 2700, ..own };
        let met = predicted_distance(&own, &other, Duration::ZERO);
        assert!(close(met, 100.1), "{met}");
        let other = LongPositionVector { timestamp: Timestamp(8_000), ..other };
        for (seconds, expected) in [(0, 60.1), (1, 20.1), (2, 19.9), (3, 59.9)] {
            let found = predicted_distance(&own, &other, Duration::from_secs(seconds));
            assert!(close(found, expected), "{seconds}: {found}");
        }
        // The position vector of the other station is newer than this station's own vector.
        let other = LongPositionVector { timestamp: Timestamp(12_000), speed: 0, ..other };
        let found = predicted_distance(&own, &other, Duration::ZERO);
        assert!(close(found, 60.1), "{found}");
    }
}
