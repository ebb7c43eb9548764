//! Where the vehicle came from: the path history of the low-frequency container (EN 302 637-2 B.23).
//!
//! A point is kept where the way bends or has gone on for a while, so that straight lines between the points stay
//! near the way. The latest point comes first; each is given from the one before, the first from the vehicle.

use std::collections::VecDeque;

use carnet_base::Time;
use carnet_geonet::geodesy::{LocalPlane, Position};

use crate::cdd::{DeltaAltitude, DeltaLatitude, DeltaLongitude, DeltaReferencePosition};
use crate::cdd::{PathDeltaTime, PathHistory, PathPoint};

/// Release 2 allows so many points (release 1: 40).
const POINTS: usize = 23;
/// Metres from point to point on a straight way, and where it bends.
const STRAIGHT: f64 = 50.0;
const BEND: f64 = 10.0;
/// Radians by which the way has to bend for a point.
const BENT: f64 = 4.0 * std::f64::consts::PI / 180.0;
/// A path is no longer than this, metres.
const LENGTH: f64 = 500.0;

/// Remembers the way of a vehicle.
#[derive(Debug, Clone, Default)]
pub struct PathRecorder {
    /// The latest first.
    points: VecDeque<(Time, Position)>,
    /// Where the vehicle was at last.
    latest: Option<(Time, Position)>,
}

impl PathRecorder {
    /// Forgets the way: with a new pseudonym nobody shall see where it led.
    pub fn clear(&mut self) {
        *self = PathRecorder::default();
    }

    /// The vehicle is at `position` now.
    pub fn handle_position(&mut self, now: Time, position: Position) {
        let Some((_, last)) = self.points.front().copied() else {
            self.points.push_front((now, position));
            self.latest = Some((now, position));
            return;
        };
        let plane = LocalPlane::new(last);
        let (east, north) = plane.offset(position);
        let gone = east.hypot(north);
        if gone > LENGTH {
            // A jump, or no fix for long: what was before has nothing to do with what is now.
            self.clear();
            return self.handle_position(now, position);
        }
        // The point is where the vehicle was before it turned away from the line.
        if let Some((at, latest)) = self.latest {
            let (latest_east, latest_north) = plane.offset(latest);
            let bent = (latest_east.hypot(latest_north) >= BEND)
                && turn((latest_east, latest_north), (east - latest_east, north - latest_north)) > BENT;
            if bent || gone >= STRAIGHT {
                self.points.push_front((at, latest));
            }
        }
        self.latest = Some((now, position));
        self.shorten();
    }

    /// Forgets what is too many or too far.
    fn shorten(&mut self) {
        self.points.truncate(POINTS);
        let mut length = 0.0;
        let mut previous = self.latest.map(|(_, position)| position);
        let mut kept = 0;
        for (_, point) in &self.points {
            length += previous.map_or(0.0, |previous| previous.distance(*point));
            if length > LENGTH {
                break;
            }
            previous = Some(*point);
            kept += 1;
        }
        self.points.truncate(kept.max(1));
    }

    /// The path from where the vehicle is.
    pub fn history(&self) -> PathHistory {
        let Some(mut previous) = self.latest else { return PathHistory::default() };
        let mut history = Vec::with_capacity(self.points.len());
        for (at, point) in &self.points {
            let delta = |from: i32, to: i32| to.wrapping_sub(from);
            let latitude = delta(previous.1.latitude, point.latitude);
            let longitude = delta(previous.1.longitude, point.longitude);
            if *point == previous.1 {
                continue;
            }
            // Near the poles and the date line a point is too far away for its field: the path ends there.
            let fits = |value: i32| (DeltaLatitude::LEAST..DeltaLatitude::MOST).contains(&value);
            if !fits(latitude) || !fits(longitude) {
                break;
            }
            let spent = previous.0.saturating_since(*at).as_millis() / 10;
            history.push(PathPoint {
                path_position: DeltaReferencePosition {
                    delta_latitude: DeltaLatitude(latitude),
                    delta_longitude: DeltaLongitude(longitude),
                    delta_altitude: DeltaAltitude::UNAVAILABLE,
                },
                path_delta_time: u32::try_from(spent)
                    .ok()
                    .filter(|spent| (1..=PathDeltaTime::MOST).contains(spent))
                    .map(PathDeltaTime),
            });
            previous = (*at, *point);
        }
        PathHistory(history)
    }
}

/// By how much the second direction turns away from the first, radians; 0 where there is no second.
fn turn((x, y): (f64, f64), (u, v): (f64, f64)) -> f64 {
    if u.hypot(v) < 0.5 {
        return 0.0;
    }
    (x * v - y * u).atan2(x * u + y * v).abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: Position = Position::new(488_375_000, 21_008_000);

    fn drive(recorder: &mut PathRecorder, way: &[(f64, f64)]) {
        let plane = LocalPlane::new(HOME);
        for (second, (east, north)) in way.iter().enumerate() {
            recorder.handle_position(Time::from_secs(second as u64), plane.position_at(*east, *north));
        }
    }

    /// The points of a history, from where the vehicle is, metres.
    fn points(recorder: &PathRecorder, from: (f64, f64)) -> Vec<(f64, f64)> {
        let plane = LocalPlane::new(HOME);
        let mut position = plane.position_at(from.0, from.1);
        recorder
            .history()
            .0
            .iter()
            .map(|point| {
                position.latitude += point.path_position.delta_latitude.0;
                position.longitude += point.path_position.delta_longitude.0;
                plane.offset(position)
            })
            .collect()
    }

    #[test]
    fn a_straight_way_has_a_point_every_fifty_metres() {
        let mut recorder = PathRecorder::default();
        let way: Vec<(f64, f64)> = (0..=30).map(|second| (0.0, 10.0 * f64::from(second))).collect();
        drive(&mut recorder, &way);
        let points = points(&recorder, (0.0, 300.0));
        assert!((6..=8).contains(&points.len()), "{points:?}");
        assert!(points.windows(2).all(|pair| pair[0].1 > pair[1].1), "{points:?}");
        assert!(points.iter().all(|point| point.0.abs() < 0.1), "{points:?}");
        assert!(points.last().is_some_and(|point| point.1.abs() < 0.1), "from the beginning: {points:?}");
        let spent: u32 =
            recorder.history().0.iter().filter_map(|point| point.path_delta_time).map(|t| t.0).sum();
        assert_eq!(spent, 3000, "30 s in units of 10 ms");
    }

    #[test]
    fn a_corner_is_a_point() {
        let mut recorder = PathRecorder::default();
        let mut way: Vec<(f64, f64)> = (0..=4).map(|step| (0.0, 10.0 * f64::from(step))).collect();
        way.extend((1..=4).map(|step| (10.0 * f64::from(step), 40.0)));
        drive(&mut recorder, &way);
        let points = points(&recorder, (40.0, 40.0));
        let corner = |point: &(f64, f64)| (point.0.hypot(point.1 - 40.0)) < 0.2;
        assert!(points.iter().any(corner), "{points:?}");
    }

    #[test]
    fn a_path_has_an_end() {
        let mut recorder = PathRecorder::default();
        let way: Vec<(f64, f64)> = (0..=500).map(|second| (0.0, 10.0 * f64::from(second))).collect();
        drive(&mut recorder, &way);
        let points = points(&recorder, (0.0, 5000.0));
        assert!((8..=POINTS).contains(&points.len()), "{points:?}");
        assert!(points.last().is_some_and(|point| point.1 >= 4490.0), "{points:?}");
    }

    #[test]
    fn a_jump_begins_anew() {
        let mut recorder = PathRecorder::default();
        drive(&mut recorder, &[(0.0, 0.0), (0.0, 60.0), (0.0, 120.0), (900.0, 0.0)]);
        assert_eq!(recorder.history().0, []);
    }
}
