//! Computes the present position from the last fix (dead reckoning), its confidence, and the position
//! accuracy indicator (PAI).
//!
//! The computation assumes that a station moves straight at constant speed between two fixes. The possible
//! error grows with time. A road vehicle that brakes or turns has an acceleration `a` of up to
//! [`MAX_ACCELERATION`]. So after `t` seconds the true position is at most `a`·`t`²/2 away from the computed
//! position. The radius of the confidence circle grows by this distance. A fix with a confidence of 5 m is
//! therefore no longer accurate, in the sense of PAI, after about 4 seconds. In this way a station without
//! GNSS reception stops claiming an accurate position.
//!
//! A [`PositionReckoner`] stores the last fix and computes the position at any moment. EN 302 636-4-1 10.2.2
//! calls this the update of the local position vector. So a packet contains the position at the time of
//! sending.

use std::time::Duration;

use carnet_base::{Time, WallTime};

use super::PositionFix;

/// Distance in metres (`itsGnPaiInterval`, EN 302 636-4-1 annex H) with which carnet compares the confidence
/// of a position, to set the position accuracy indicator.
pub const PAI_INTERVAL_M: f64 = 80.0;

/// Largest acceleration of a road vehicle that brakes or turns without an emergency, in metres per second
/// squared.
pub const MAX_ACCELERATION: f64 = 4.0;

/// Time without a fix after which carnet computes no further movement.
pub const MAX_TIME_WITHOUT_FIX: Duration = Duration::from_secs(10);

/// Largest step back of a receiver's time that carnet takes for a late report. A larger step means that the
/// receiver's clock has been set to another time.
const MAX_LATENESS: Duration = Duration::from_secs(2);

/// Equatorial radius of WGS 84 in metres.
const EARTH_SEMI_MAJOR_AXIS: f64 = 6_378_137.0;
/// First eccentricity of WGS 84, squared.
const EARTH_ECCENTRICITY_SQUARED: f64 = 6.694_379_990_141_316e-3;

/// Returns whether a position is accurate (PAI = 1): its 95 % radius is less than half of `pai_interval` (EN
/// 302 636-4-1 9.5.2). Without a known radius it is not accurate.
pub fn is_accurate(confidence: Option<f64>, pai_interval: f64) -> bool {
    confidence.is_some_and(|radius| (0.0..pai_interval / 2.0).contains(&radius))
}

/// Returns the radius of confidence in metres after dead reckoning for `elapsed`.
pub fn confidence_after(confidence: f64, elapsed: Duration) -> f64 {
    confidence + 0.5 * MAX_ACCELERATION * elapsed.as_secs_f64().powi(2)
}

/// Returns the position after `elapsed` from `latitude`, `longitude` (degrees), with `speed` (metres per
/// second, backwards negative) towards `track` (degrees clockwise from North).
///
/// The path lies on the ellipsoid, along a line of constant course. At 60 degrees of latitude the path
/// deviates from the geodesic by 1 mm after 80 m, and by 15 cm after a kilometre. The path crosses the
/// antimeridian, but stops at a pole.
pub fn position_after(
    latitude: f64,
    longitude: f64,
    speed: f64,
    track: f64,
    elapsed: Duration,
) -> (f64, f64) {
    let distance = speed * elapsed.as_secs_f64();
    let (sin_track, cos_track) = track.to_radians().sin_cos();
    // Use the radii of curvature in the middle of the path, so that errors of second order cancel.
    let radii = |latitude: f64| {
        let (sin, cos) = latitude.to_radians().sin_cos();
        let w2 = 1.0 - EARTH_ECCENTRICITY_SQUARED * sin * sin;
        (
            EARTH_SEMI_MAJOR_AXIS * (1.0 - EARTH_ECCENTRICITY_SQUARED) / (w2 * w2.sqrt()),
            EARTH_SEMI_MAJOR_AXIS / w2.sqrt() * cos,
        )
    };
    let north = |at: f64| (distance * cos_track / radii(at).0).to_degrees();
    let middle = (latitude + north(latitude) / 2.0).clamp(-89.99, 89.99);
    let there = (latitude + north(middle)).clamp(-90.0, 90.0);
    let east = (distance * sin_track / radii(middle).1).to_degrees();
    (there, wrap_longitude(longitude + east))
}

/// Returns the fix extrapolated to the time `elapsed` after its reception.
pub fn fix_after(fix: &PositionFix, elapsed: Duration) -> PositionFix {
    let mut later = fix.clone();
    if let (Some(speed), Some(track)) = (fix.speed, fix.course_degrees) {
        (later.latitude, later.longitude) =
            position_after(fix.latitude, fix.longitude, speed, track, elapsed);
    }
    if let (Some(altitude), Some(climb)) = (fix.altitude, fix.climb_rate) {
        later.altitude = Some(altitude + climb * elapsed.as_secs_f64());
    }
    later.time = fix.time + elapsed;
    later.received_at = fix.received_at + elapsed;
    later.confidence_radius = fix.confidence_radius.map(|confidence| confidence_after(confidence, elapsed));
    later
}

/// Computes the station's position at any moment from the last fix (dead reckoning).
#[derive(Debug, Clone, Default)]
pub struct PositionReckoner {
    last_fix: Option<PositionFix>,
    /// Whether the source has lost the position.
    is_position_lost: bool,
    /// Whether the station never moves. The confidence of its position then does not get worse with time.
    is_stationary: bool,
    /// Time in the last position that [`Self::present_position`] returned; `None` before the first position.
    last_returned_time: Option<WallTime>,
}

impl PositionReckoner {
    /// Creates a reckoner without a fix. `stays` says that the station never moves.
    pub fn new(stays: bool) -> PositionReckoner {
        PositionReckoner { is_stationary: stays, ..PositionReckoner::default() }
    }

    /// Stores a fix.
    pub fn handle_fix(&mut self, fix: PositionFix) {
        self.is_position_lost = false;
        self.last_fix = Some(fix);
    }

    /// Notes that the source has no fixes at present.
    pub fn handle_position_loss(&mut self) {
        self.is_position_lost = true;
    }

    /// Returns the station's speed in metres per second, or 0 if it is unknown.
    pub fn speed(&self) -> f64 {
        self.last_fix.as_ref().and_then(|fix| fix.speed).map_or(0.0, f64::abs)
    }

    /// Returns the present position, with a time later than in the previous result. The confidence is `None`
    /// while the source has lost the position. Returns `None` before the first fix.
    pub fn present_position(&mut self, now: Time) -> Option<PositionFix> {
        let fix = self.last_fix.as_ref()?;
        let mut elapsed = now.saturating_since(fix.received_at);
        // The computed time may step back if this fix took longer to arrive than the previous fix. In this
        // case use the previous time plus 1 ms.
        if let Some(told) = self.last_returned_time
            && fix.time + elapsed <= told
        {
            let back = told.absolute_difference(fix.time + elapsed);
            if back < MAX_LATENESS {
                elapsed += back + Duration::from_millis(1);
            }
        }
        let mut position = fix_after(fix, elapsed.min(MAX_TIME_WITHOUT_FIX));
        if elapsed > MAX_TIME_WITHOUT_FIX {
            (position.speed, position.course_degrees, position.climb_rate) = (None, None, None);
        }
        position.time = fix.time + elapsed;
        position.received_at = now;
        position.confidence_radius = match (self.is_position_lost, self.is_stationary) {
            (true, _) => None,
            (false, true) => fix.confidence_radius,
            (false, false) => fix.confidence_radius.map(|confidence| confidence_after(confidence, elapsed)),
        };
        self.last_returned_time = Some(position.time);
        Some(position)
    }
}

/// Converts a longitude to the range from -180 to 180 degrees.
pub(super) fn wrap_longitude(degrees: f64) -> f64 {
    if (-180.0..=180.0).contains(&degrees) { degrees } else { (degrees + 180.0).rem_euclid(360.0) - 180.0 }
}
