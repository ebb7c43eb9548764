//! From a fix to the present: dead reckoning, its uncertainty, and the position accuracy indicator.
//!
//! Between two fixes a station is taken to go straight on at constant speed. How wrong that may be grows with
//! time: road vehicles brake and turn with up to [`ACCELERATION`] along or across, so that after `t` seconds the
//! true position is within half of that times `t` squared of the reckoned one. The confidence circle grows by
//! as much. A fix of 5 m is thus no longer accurate, in the sense of PAI, after some 4 seconds, whatever else
//! happened, which is how a station without GNSS reception stops to claim that it knows where it is.

use std::time::Duration;

use super::Fix;

/// `itsGnPaiInterval` in metres (EN 302 636-4-1 annex H).
pub const PAI_INTERVAL: f64 = 80.0;

/// How strongly a road vehicle brakes, or turns, short of an emergency: metres per second squared.
pub const ACCELERATION: f64 = 4.0;

/// The equatorial radius of WGS 84 in metres, and its first eccentricity squared.
const SEMI_MAJOR: f64 = 6_378_137.0;
const ECCENTRICITY_SQUARED: f64 = 6.694_379_990_141_316e-3;

/// Whether a position is accurate (PAI = 1): the radius of 95 % confidence is less than half of `pai_interval`
/// (EN 302 636-4-1 9.5.2). An unknown confidence is none.
pub fn is_accurate(confidence: Option<f64>, pai_interval: f64) -> bool {
    confidence.is_some_and(|radius| (0.0..pai_interval / 2.0).contains(&radius))
}

/// The confidence in metres after so long of dead reckoning.
pub fn confidence_after(confidence: f64, elapsed: Duration) -> f64 {
    confidence + 0.5 * ACCELERATION * elapsed.as_secs_f64().powi(2)
}

/// Where a station is that went from `latitude`, `longitude` (degrees) with `speed` (metres per second,
/// backwards negative) towards `track` (degrees clockwise from North) for so long.
///
/// On the ellipsoid, along a line of constant course: 1 mm from the geodesic after 80 m, and 15 cm after a
/// kilometre, at 60 degrees of latitude. Goes across the antimeridian, not across a pole, where it stays.
pub fn reckon(latitude: f64, longitude: f64, speed: f64, track: f64, elapsed: Duration) -> (f64, f64) {
    let distance = speed * elapsed.as_secs_f64();
    let (sin_track, cos_track) = track.to_radians().sin_cos();
    // Radii of curvature at the middle of the way, which cancels the second order.
    let radii = |latitude: f64| {
        let (sin, cos) = latitude.to_radians().sin_cos();
        let w2 = 1.0 - ECCENTRICITY_SQUARED * sin * sin;
        (SEMI_MAJOR * (1.0 - ECCENTRICITY_SQUARED) / (w2 * w2.sqrt()), SEMI_MAJOR / w2.sqrt() * cos)
    };
    let north = |at: f64| (distance * cos_track / radii(at).0).to_degrees();
    let middle = (latitude + north(latitude) / 2.0).clamp(-89.99, 89.99);
    let there = (latitude + north(middle)).clamp(-90.0, 90.0);
    let east = (distance * sin_track / radii(middle).1).to_degrees();
    (there, wrap_longitude(longitude + east))
}

/// The fix as it would be so long after it was received.
pub fn reckon_fix(fix: &Fix, elapsed: Duration) -> Fix {
    let mut later = fix.clone();
    if let (Some(speed), Some(track)) = (fix.speed, fix.track) {
        (later.latitude, later.longitude) = reckon(fix.latitude, fix.longitude, speed, track, elapsed);
    }
    if let (Some(altitude), Some(climb)) = (fix.altitude, fix.climb) {
        later.altitude = Some(altitude + climb * elapsed.as_secs_f64());
    }
    later.time = fix.time + elapsed;
    later.received = fix.received + elapsed;
    later.confidence = fix.confidence.map(|confidence| confidence_after(confidence, elapsed));
    later
}

/// Degrees of longitude, -180 to 180.
pub(super) fn wrap_longitude(degrees: f64) -> f64 {
    if (-180.0..=180.0).contains(&degrees) { degrees } else { (degrees + 180.0).rem_euclid(360.0) - 180.0 }
}
