//! The path history of the low-frequency container (EN 302 637-2 B.23): positions where the vehicle was
//! before.
//!
//! The recorder compares the path since the last kept point with the straight line from there to the vehicle.
//! If they differ by more than [`MAX_PATH_DEVIATION_M`], it keeps another point. SAE J2945/1 allows this
//! error in its concise path history (K_PHALLOWABLEERROR_M). The recorder also keeps a point after a straight
//! path of [`STRAIGHT_POINT_DISTANCE_M`]. So straight lines between the points stay near the path. The latest
//! point comes first. Each point is relative to the point before it in the list, the first point to the
//! vehicle.

use std::collections::VecDeque;

use carnet_base::Time;
use carnet_geonet::geodesy::{LocalPlane, Position};

use crate::cdd::{DeltaAltitude, DeltaLatitude, DeltaLongitude, DeltaReferencePosition};
use crate::cdd::{PathDeltaTime, PathHistory, PathPoint};

/// Largest number of points in release 2 (release 1: 40).
const MAX_PATH_POINTS: usize = 23;
/// Distance between two points on a straight path, metres.
const STRAIGHT_POINT_DISTANCE_M: f64 = 50.0;
/// Largest distance in metres between the path and the line through two recorded points. The standard allows
/// 0.47 m; two errors are subtracted: rounding to 0.1 microdegree, and the arc between two positions.
const MAX_PATH_DEVIATION_M: f64 = 0.4;
/// Largest number of stored positions between two recorded points. If a slow vehicle has more, the recorder
/// drops every second one.
const MAX_POSITIONS_BETWEEN_POINTS: usize = 64;
/// Longest path, metres.
const MAX_PATH_LENGTH_M: f64 = 500.0;

/// Records the path of a vehicle.
#[derive(Debug, Clone, Default)]
pub struct PathRecorder {
    /// Points of the path, the latest first.
    path_points: VecDeque<(Time, Position)>,
    /// Positions since the latest recorded point, in order of time.
    positions_since_point: Vec<(Time, Position)>,
}

impl PathRecorder {
    /// Removes all points. After a change of pseudonym no receiver may learn where the vehicle was before.
    pub fn clear(&mut self) {
        *self = PathRecorder::default();
    }

    /// Handles the present position of the vehicle.
    pub fn handle_position(&mut self, now: Time, position: Position) {
        let Some((_, last)) = self.path_points.front().copied() else {
            self.path_points.push_front((now, position));
            self.positions_since_point = vec![(now, position)];
            return;
        };
        let plane = LocalPlane::new(last);
        let here = plane.offset_of(position);
        let gone = here.0.hypot(here.1);
        if gone > MAX_PATH_LENGTH_M {
            // After a jump of the position, or a long time without a fix, the old path does not lead to the
            // present position.
            self.clear();
            return self.handle_position(now, position);
        }
        let left = self
            .positions_since_point
            .iter()
            .any(|(_, between)| distance_from_line(plane.offset_of(*between), here) > MAX_PATH_DEVIATION_M);
        if (left || gone >= STRAIGHT_POINT_DISTANCE_M)
            && let Some(latest) = self.positions_since_point.last().copied()
            && latest.1 != last
        {
            self.path_points.push_front(latest);
            self.positions_since_point.clear();
        }
        if self.positions_since_point.len() >= MAX_POSITIONS_BETWEEN_POINTS {
            let mut number = 0;
            self.positions_since_point.retain(|_| {
                number += 1;
                number % 2 == 0
            });
        }
        self.positions_since_point.push((now, position));
        self.remove_excess_points();
    }

    /// Removes points beyond the largest number or the longest path.
    fn remove_excess_points(&mut self) {
        self.path_points.truncate(MAX_PATH_POINTS);
        let mut length = 0.0;
        let mut previous = self.positions_since_point.last().map(|(_, position)| *position);
        let mut kept = 0;
        for (_, point) in &self.path_points {
            length += previous.map_or(0.0, |previous| previous.distance_to(*point));
            if length > MAX_PATH_LENGTH_M {
                break;
            }
            previous = Some(*point);
            kept += 1;
        }
        self.path_points.truncate(kept.max(1));
    }

    /// Returns the path from the present position of the vehicle backwards.
    pub fn path_history(&self) -> PathHistory {
        let Some(mut previous) = self.positions_since_point.last().copied() else {
            return PathHistory::default();
        };
        let mut history = Vec::with_capacity(self.path_points.len());
        for (at, point) in &self.path_points {
            let delta = |from: i32, to: i32| to.wrapping_sub(from);
            let latitude = delta(previous.1.latitude, point.latitude);
            let longitude = delta(previous.1.longitude, point.longitude);
            if *point == previous.1 {
                continue;
            }
            // Near a pole or the date line, an offset may not fit its field. The path history ends there.
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

/// Returns the distance of a place from the line between the origin and another place, metres.
fn distance_from_line((x, y): (f64, f64), (u, v): (f64, f64)) -> f64 {
    let length = u * u + v * v;
    let share = if length > 0.0 { ((x * u + y * v) / length).clamp(0.0, 1.0) } else { 0.0 };
    (x - share * u).hypot(y - share * v)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME_POSITION: Position = Position::new(488_375_000, 21_008_000);

    fn record_drive_along(recorder: &mut PathRecorder, way: &[(f64, f64)]) {
        let plane = LocalPlane::new(HOME_POSITION);
        for (second, (east, north)) in way.iter().enumerate() {
            recorder.handle_position(Time::from_secs(second as u64), plane.position_at(*east, *north));
        }
    }

    /// Returns the points of a path history in metres east and north of the test's origin; the vehicle is at
    /// `from`.
    fn points_of_history(recorder: &PathRecorder, from: (f64, f64)) -> Vec<(f64, f64)> {
        let plane = LocalPlane::new(HOME_POSITION);
        let mut position = plane.position_at(from.0, from.1);
        recorder
            .path_history()
            .0
            .iter()
            .map(|point| {
                position.latitude += point.path_position.delta_latitude.0;
                position.longitude += point.path_position.delta_longitude.0;
                plane.offset_of(position)
            })
            .collect()
    }

    #[test]
    fn straight_path_has_a_point_every_fifty_metres() {
        let mut recorder = PathRecorder::default();
        let way: Vec<(f64, f64)> = (0..=30).map(|second| (0.0, 10.0 * f64::from(second))).collect();
        record_drive_along(&mut recorder, &way);
        let points = points_of_history(&recorder, (0.0, 300.0));
        assert!((6..=8).contains(&points.len()), "{points:?}");
        assert!(points.windows(2).all(|pair| pair[0].1 > pair[1].1), "{points:?}");
        assert!(points.iter().all(|point| point.0.abs() < 0.1), "{points:?}");
        assert!(points.last().is_some_and(|point| point.1.abs() < 0.1), "from the beginning: {points:?}");
        let spent: u32 =
            recorder.path_history().0.iter().filter_map(|point| point.path_delta_time).map(|t| t.0).sum();
        assert_eq!(spent, 3000, "30 s in units of 10 ms");
    }

    #[test]
    fn path_history_has_a_point_at_each_corner() {
        let mut recorder = PathRecorder::default();
        let mut way: Vec<(f64, f64)> = (0..=4).map(|step| (0.0, 10.0 * f64::from(step))).collect();
        way.extend((1..=4).map(|step| (10.0 * f64::from(step), 40.0)));
        record_drive_along(&mut recorder, &way);
        let points = points_of_history(&recorder, (40.0, 40.0));
        let corner = |point: &(f64, f64)| (point.0.hypot(point.1 - 40.0)) < 0.2;
        assert!(points.iter().any(corner), "{points:?}");
    }

    /// J2945/1: lines between the points are at most 0.47 m from the path in any bend, and cover 200 m.
    #[test]
    fn lines_between_path_points_stay_near_the_path() {
        for (radius, speed) in [(30.0f64, 5.0f64), (60.0, 8.0), (120.0, 15.0), (300.0, 25.0), (1000.0, 30.0)]
        {
            let mut recorder = PathRecorder::default();
            let plane = LocalPlane::new(HOME_POSITION);
            let at = |metres: f64| {
                let angle = metres / radius;
                (radius * angle.sin(), radius * (1.0 - angle.cos()))
            };
            // The test gives ten positions a second, as positioning receivers do.
            let steps = (260.0 / speed * 10.0) as u64;
            let mut here = (0.0, 0.0);
            for step in 0..=steps {
                here = at(speed * step as f64 / 10.0);
                recorder.handle_position(Time::from_millis(100 * step), plane.position_at(here.0, here.1));
            }
            let mut line = vec![here];
            line.extend(points_of_history(&recorder, here));
            assert!(line.len() <= MAX_PATH_POINTS + 1, "{} points, radius {radius}", line.len());
            let near = |metres: f64| {
                let place = at(metres);
                line.windows(2)
                    .map(|pair| {
                        let [from, to] = pair else { return f64::MAX };
                        distance_from_line(
                            (place.0 - from.0, place.1 - from.1),
                            (to.0 - from.0, to.1 - from.1),
                        )
                    })
                    .fold(f64::MAX, f64::min)
            };
            let end = speed * steps as f64 / 10.0;
            let worst = (0..200).map(|back| near(end - f64::from(back))).fold(0.0, f64::max);
            assert!(worst <= 0.47, "radius {radius}: {worst} m");
        }
    }

    #[test]
    fn path_history_ends_after_its_longest_length() {
        let mut recorder = PathRecorder::default();
        let way: Vec<(f64, f64)> = (0..=500).map(|second| (0.0, 10.0 * f64::from(second))).collect();
        record_drive_along(&mut recorder, &way);
        let points = points_of_history(&recorder, (0.0, 5000.0));
        assert!((8..=MAX_PATH_POINTS).contains(&points.len()), "{points:?}");
        assert!(points.last().is_some_and(|point| point.1 >= 4490.0), "{points:?}");
    }

    #[test]
    fn jump_of_the_position_clears_the_path_history() {
        let mut recorder = PathRecorder::default();
        record_drive_along(&mut recorder, &[(0.0, 0.0), (0.0, 60.0), (0.0, 120.0), (900.0, 0.0)]);
        assert_eq!(recorder.path_history().0, []);
    }
}
