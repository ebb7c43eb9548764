//! Source of positions for a station that does not move: a roadside unit, or a test.
//!
//! The operator has measured the position, so its confidence is one metre. The speed is 0, and the time comes
//! from the system clock.

use std::time::Duration;

use carnet_base::{Time, WallTime};

use super::{FixMode, PositionEvent, PositionFix, PositionOptions};

/// Confidence of a measured place in metres.
const FIXED_CONFIDENCE_M: f64 = 1.0;

/// A position source that reports a fixed position repeatedly.
#[derive(Debug, Clone)]
pub struct FixedPosition {
    latitude: f64,
    longitude: f64,
    interval: Duration,
    leap_seconds: i64,
    next_report_at: Option<Time>,
    was_announced: bool,
}

impl FixedPosition {
    /// Creates the source for a position in degrees, which the source reports once per interval of the
    /// options.
    pub fn new(latitude: f64, longitude: f64, options: &PositionOptions) -> FixedPosition {
        let PositionOptions { interval, leap_seconds, .. } = *options;
        FixedPosition {
            latitude,
            longitude,
            interval,
            leap_seconds,
            next_report_at: None,
            was_announced: false,
        }
    }

    /// Returns the time at which the next report is due.
    pub fn next_report_due(&self, now: Time) -> Time {
        self.next_report_at.unwrap_or(now)
    }

    /// Returns the number of leap seconds since 2004 from the options.
    pub fn leap_seconds(&self) -> i64 {
        self.leap_seconds
    }

    /// Returns a report of the fixed position with the present time.
    pub fn report_position(&mut self, now: Time, wall: WallTime) -> PositionEvent {
        if !std::mem::replace(&mut self.was_announced, true) {
            return PositionEvent::Mode(FixMode::TwoD);
        }
        self.next_report_at = Some(now + self.interval);
        PositionEvent::Fix(PositionFix {
            received_at: now,
            time: wall,
            latitude: self.latitude,
            longitude: self.longitude,
            altitude: None,
            speed: Some(0.0),
            course_degrees: None,
            climb_rate: None,
            fix_mode: FixMode::TwoD,
            confidence_radius: Some(FIXED_CONFIDENCE_M),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_position_is_reported_once_per_interval() {
        let mut fixed = FixedPosition::new(48.8375, 2.1008, &PositionOptions::default());
        let (now, wall) = (Time::from_secs(5), WallTime::from_unix_nanos(7));
        assert_eq!(fixed.next_report_due(now), now);
        assert_eq!(fixed.report_position(now, wall), PositionEvent::Mode(FixMode::TwoD));
        assert_eq!(fixed.next_report_due(now), now);
        let PositionEvent::Fix(fix) = fixed.report_position(now, wall) else { panic!("no fix") };
        assert_eq!((fix.latitude, fix.longitude, fix.time), (48.8375, 2.1008, wall));
        assert_eq!(fixed.next_report_due(now), Time::from_secs(6));
    }
}
