//! Knows the positions of the nodes at each time.
//!
//! A [`Track`] is a list of places with their seconds. Between two places a node moves straight at constant
//! speed. Tracks come from the scenario itself, from ns-2 movement files ([`ns2`]) or from SUMO's floating
//! car data ([`fcd`]). The lab writes each track as a trace for the station, in degrees. So medium and
//! station have the same position at the same time.

pub mod fcd;
pub mod ns2;

use std::fmt::Write;

use super::geometry::{MapOrigin, Point, check_degrees};

/// Number of seconds for which a station stays at the end of its track.
const SECONDS_AT_END_OF_TRACK: f64 = 1e6;

/// A mistake in a file of movements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackFileError {
    /// Line number, from 1.
    pub line: usize,
    /// Description of the error, with the expected value.
    pub message: String,
}

/// The movement of a node over time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Track {
    /// Points of the track: second and place, in order of time.
    waypoints: Vec<(f64, Point)>,
    /// Whether the node does not exist before the first point. If false, the node stands at the first point
    /// before that time.
    appears_at_first_point: bool,
    /// Whether the node no longer exists after the last point. If false, the node stays at the last point.
    disappears_at_last_point: bool,
}

impl Track {
    /// Creates the track of a node that does not move.
    pub fn fixed_at(place: Point) -> Track {
        Track {
            waypoints: vec![(0.0, place)],
            appears_at_first_point: false,
            disappears_at_last_point: false,
        }
    }

    /// Returns the track of a node that moves from point to point. `None` without points, or if the times do
    /// not increase.
    pub fn moving(points: Vec<(f64, Point)>) -> Option<Track> {
        let ordered = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        (ordered && !points.is_empty()).then_some(Track {
            waypoints: points,
            appears_at_first_point: false,
            disappears_at_last_point: false,
        })
    }

    /// Creates a track of a node that exists only from the first to the last point. Returns `None` without
    /// points, or if the times do not increase.
    pub fn appearing_and_disappearing(points: Vec<(f64, Point)>) -> Option<Track> {
        Some(Track { appears_at_first_point: true, disappears_at_last_point: true, ..Track::moving(points)? })
    }

    /// Returns the track of a node that is at its first point before the track begins, and disappears at the
    /// last point. `None` without points, or if the times do not increase.
    pub fn disappearing_at_end(points: Vec<(f64, Point)>) -> Option<Track> {
        Some(Track { disappears_at_last_point: true, ..Track::moving(points)? })
    }

    /// Returns the track shifted to `seconds` earlier.
    pub fn shifted_earlier(mut self, seconds: f64) -> Track {
        for (at, _) in &mut self.waypoints {
            *at -= seconds;
        }
        self
    }

    /// Returns the track moved by `x` and `y` metres.
    pub fn shifted_in_space(mut self, x: f64, y: f64) -> Track {
        for (_, place) in &mut self.waypoints {
            *place = Point { x: place.x + x, y: place.y + y };
        }
        self
    }

    /// Checks that all points of the track are on the globe.
    ///
    /// # Errors
    /// The error contains the time in seconds, the invalid degrees and the expected range.
    pub fn check_positions(&self, origin: &MapOrigin) -> Result<(), String> {
        self.waypoints.iter().try_for_each(|(at, place)| {
            check_degrees(origin.to_degrees(*place))
                .map_err(|wrong| format!("at second {at}, {} m east, {} m north: {wrong}", place.x, place.y))
        })
    }

    /// Returns the place of the node at this second; `None` while the node does not exist.
    pub fn position_at(&self, seconds: f64) -> Option<Point> {
        let next = self.waypoints.partition_point(|(at, _)| *at <= seconds);
        match (next.checked_sub(1).and_then(|n| self.waypoints.get(n)), self.waypoints.get(next)) {
            (Some((from, here)), Some((to, there))) => {
                Some(here.point_towards(*there, (seconds - from) / (to - from)))
            }
            (Some((at, last)), None) => (!self.disappears_at_last_point || seconds <= *at).then_some(*last),
            (None, Some((_, first))) => (!self.appears_at_first_point).then_some(*first),
            (None, None) => None,
        }
    }

    /// Returns the trace for a station: UNIX seconds, latitude, longitude. Second 0 of the track is at
    /// `epoch`, in UNIX seconds. The trace begins `SECONDS_AT_END_OF_TRACK` before the first point of the
    /// track, and ends as long after the last point.
    pub fn position_trace(&self, origin: &MapOrigin, epoch: f64) -> String {
        let mut text = String::from("# seconds latitude longitude\n");
        let mut last = f64::NEG_INFINITY;
        let mut line = |seconds: f64, place: Option<Point>| {
            // Leave out a point whose time would have the same digits in the trace as the time of the point
            // before.
            if seconds < last + 0.000_2 {
                return;
            }
            last = seconds;
            let _ = match place.map(|place| origin.to_degrees(place)) {
                Some((latitude, longitude)) => writeln!(text, "{seconds:.4} {latitude:.9} {longitude:.9}"),
                None => writeln!(text, "{seconds:.4} lost"),
            };
        };
        let (Some(first), Some(end)) = (self.waypoints.first(), self.waypoints.last()) else { return text };
        line(epoch + first.0 - SECONDS_AT_END_OF_TRACK, (!self.appears_at_first_point).then_some(first.1));
        for (seconds, place) in &self.waypoints {
            line(epoch + seconds, Some(*place));
        }
        // Just after the last point, the trace has a line with either the same place, or `lost`. The smallest
        // step that its digits can show is 0.001 s.
        let after = (!self.disappears_at_last_point).then_some(end.1);
        line(epoch + end.0 + 0.001, after);
        line(epoch + end.0 + SECONDS_AT_END_OF_TRACK, after);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point_at(x: f64, y: f64) -> Point {
        Point { x, y }
    }

    #[test]
    fn node_moves_straight_between_waypoints() {
        let track =
            Track::moving(vec![(2.0, point_at(0.0, 0.0)), (4.0, point_at(20.0, 10.0))]).expect("is good");
        let places = [0.0, 2.0, 3.0, 4.0, 9.0].map(|t| track.position_at(t).expect("is there"));
        assert_eq!(
            places,
            [
                point_at(0.0, 0.0),
                point_at(0.0, 0.0),
                point_at(10.0, 5.0),
                point_at(20.0, 10.0),
                point_at(20.0, 10.0)
            ]
        );
        assert_eq!(track.shifted_in_space(1.0, 2.0).position_at(3.0), Some(point_at(11.0, 7.0)));
        assert_eq!(Track::fixed_at(point_at(1.0, 1.0)).position_at(-5.0), Some(point_at(1.0, 1.0)));
        assert_eq!(Track::moving(vec![(2.0, point_at(0.0, 0.0)), (2.0, point_at(1.0, 0.0))]), None);
        assert_eq!(Track::moving(vec![]), None);
    }

    /// The parser accepts a randomly changed movement file, or refuses it and names the line of the error.
    #[test]
    fn parser_accepts_mutated_movement_file_or_names_line_of_error() {
        const FCD_FILE: &str = "<fcd-export>\n<timestep time=\"0.00\">\n<vehicle id=\"a\" x=\"10.00\" \
                           y=\"-1.60\"/>\n</timestep>\n<!-- <x> -->\n<timestep time=\"1.50\">\n<vehicle \
                           id=\"a\" x=\"23.90\" y=\"-1.60\"/>\n<person id=\"b\" x=\"0\" \
                           y=\"1.6\"/>\n</timestep>\n</fcd-export>\n";
        const NS2_FILE: &str = "$node_(0) set X_ 100.0\n$node_(0) set Y_ 50\n\
            $ns_ at 2.0 \"$node_(0) setdest 200.0 50.0 10.0\"\n$ns_ at 5.0 \"$node_(0) setdest 130.0 90.0 \
            20.0\"\n";
        const INSERTED_PIECES: [&str; 12] =
            ["1e308", "-1e308", "NaN", "inf", "1e-308", "\"", "<", ">", "/", "-->", "4294967296", "\u{e9}"];
        let origin = MapOrigin::new(48.8375, 2.1008);
        let mut rng = carnet_base::Rng::new(7);
        let mut below = |count: usize| usize::from(rng.random_u16()) % count.max(1);
        let mut taken = 0;
        for round in 0..20_000 {
            let mut text = (if round % 2 == 0 { FCD_FILE } else { NS2_FILE }).to_owned();
            for _ in 0..=below(3) {
                let (from, length) = (below(text.len() + 1), below(6));
                let to = (from + length).min(text.len());
                if text.is_char_boundary(from) && text.is_char_boundary(to) {
                    text.replace_range(from..to, INSERTED_PIECES[below(INSERTED_PIECES.len())]);
                }
            }
            let geo = (round % 4 == 0).then_some(&origin);
            let tracks: Result<Vec<Track>, TrackFileError> = match round % 2 {
                0 => fcd::parse(&text, geo).map(|tracks| tracks.into_values().collect()),
                _ => ns2::parse(&text).map(|tracks| tracks.into_values().collect()),
            };
            match tracks {
                Ok(tracks) => {
                    for track in tracks {
                        let _anywhere = [0.0, 1.0, 1e9].map(|seconds| track.position_at(seconds));
                        let trace = track.position_trace(&origin, 1_700_000_000.0);
                        // Count the traces that the station accepts; it refuses a place off the globe.
                        taken += usize::from(
                            carnet_linux::position::position_trace::PositionTrace::parse(&trace).is_ok(),
                        );
                    }
                }
                Err(mistake) => {
                    assert!((1..=text.lines().count() + 1).contains(&mistake.line), "{mistake:?}\n{text}");
                }
            }
        }
        assert!(taken > 1000, "{taken} tracks");
    }

    #[test]
    fn node_with_limited_presence_appears_and_disappears() {
        let track =
            Track::appearing_and_disappearing(vec![(2.0, point_at(0.0, 0.0)), (4.0, point_at(20.0, 0.0))])
                .expect("is good");
        let places = [1.9, 2.0, 3.0, 4.0, 4.1].map(|t| track.position_at(t).map(|p| p.x));
        assert_eq!(places, [None, Some(0.0), Some(10.0), Some(20.0), None]);
        let track = Track::disappearing_at_end(vec![(2.0, point_at(0.0, 0.0)), (4.0, point_at(20.0, 0.0))])
            .expect("is good");
        let places = [-9.0, 2.0, 4.0, 4.1].map(|t| track.position_at(t).map(|p| p.x));
        assert_eq!(places, [Some(0.0), Some(0.0), Some(20.0), None]);
        let trace = track.position_trace(&MapOrigin::new(48.8375, 2.1008), 1_700_000_000.0);
        assert_eq!(trace.lines().filter(|line| line.ends_with("lost")).count(), 2, "{trace}");
        let track = track.shifted_earlier(2.0);
        assert_eq!([1.0, 2.1].map(|t| track.position_at(t).map(|p| p.x)), [Some(10.0), None]);
    }

    #[test]
    fn exported_traces_have_degrees_and_unix_time() {
        let origin = MapOrigin::new(48.8375, 2.1008);
        let points = vec![(0.0, point_at(0.0, 0.0)), (10.0, point_at(0.0, 1000.0))];
        let lines = |track: Track| -> Vec<String> {
            track.position_trace(&origin, 1_700_000_000.0).lines().map(str::to_owned).collect()
        };
        assert_eq!(
            lines(Track::moving(points.clone()).expect("is good")),
            [
                "# seconds latitude longitude",
                "1699000000.0000 48.837500000 2.100800000",
                "1700000000.0000 48.837500000 2.100800000",
                "1700000010.0000 48.846492273 2.100800000",
                "1700000010.0010 48.846492273 2.100800000",
                "1701000010.0000 48.846492273 2.100800000",
            ]
        );
        let close = vec![
            (0.0, point_at(0.0, 0.0)),
            (4.999_99, point_at(0.0, 9.0)),
            (5.0, point_at(0.0, 9.0)),
            (6.0, point_at(1.0, 9.0)),
        ];
        let close = lines(Track::moving(close).expect("is good"));
        assert_eq!(close.iter().filter(|l| l.starts_with("1700000005") || l.contains("4.9999")).count(), 1);
        let visitor = lines(Track::appearing_and_disappearing(points).expect("is good"));
        assert_eq!(
            (visitor[1].as_str(), visitor[4].as_str()),
            ("1699000000.0000 lost", "1700000010.0010 lost")
        );
    }
}
