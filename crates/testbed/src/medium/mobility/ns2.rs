//! Reads movement files of ns-2, as its `setdest`, SUMO's traceExporter and BonnMotion write them.
//!
//! ```text
//! $node_(0) set X_ 100.0
//! $node_(0) set Y_ 50.0
//! $ns_ at 2.5 "$node_(0) setdest 300.0 50.0 13.9"
//! ```
//!
//! From the time of a `setdest` on, the node moves straight to the place at the speed in metres per second. A
//! later `setdest` begins at the node's place at that time. The parser ignores Z, other commands (`$god_`,
//! `create-god`) and comments.

use std::collections::BTreeMap;

use super::{Track, TrackFileError};
use crate::medium::geometry::Point;

/// The movement of one node.
#[derive(Debug, Default)]
struct MovingNode {
    x: f64,
    y: f64,
    /// The node's `setdest` commands: time, destination, speed.
    movements: Vec<(f64, Point, f64)>,
}

/// Parses the text of a file and returns the track of each node, by its number.
///
/// # Errors
/// The error contains the line of the mistake.
pub fn parse(text: &str) -> Result<BTreeMap<u32, Track>, TrackFileError> {
    let mut nodes: BTreeMap<u32, MovingNode> = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let content = line.split('#').next().unwrap_or_default().trim();
        let wrong =
            |message: &str| TrackFileError { line: number + 1, message: format!("{message}: {content:?}") };
        let words: Vec<&str> =
            content.split(|c: char| c.is_whitespace() || c == '"').filter(|w| !w.is_empty()).collect();
        match words[..] {
            [node, "set", axis, value] if node.starts_with("$node_") => {
                let value = parse_real(value).ok_or_else(|| wrong("expected a number of metres"))?;
                let node =
                    nodes.entry(parse_index(node).ok_or_else(|| wrong("expected $node_(N)"))?).or_default();
                match axis {
                    "X_" => node.x = value,
                    "Y_" => node.y = value,
                    _ => {}
                }
            }
            ["$ns_", "at", time, node, "setdest", x, y, speed] => {
                let time = parse_real(time).filter(|t| *t >= 0.0).ok_or_else(|| wrong("expected a time"))?;
                let node =
                    nodes.entry(parse_index(node).ok_or_else(|| wrong("expected $node_(N)"))?).or_default();
                let (Some(x), Some(y), Some(speed)) = (parse_real(x), parse_real(y), parse_real(speed))
                else {
                    return Err(wrong("expected setdest X Y SPEED"));
                };
                if speed < 0.0 {
                    return Err(wrong("expected a speed of 0 or more"));
                }
                node.movements.push((time, Point { x, y }, speed));
            }
            [_, "at", _, _, "setdest", ..] => return Err(wrong("expected setdest X Y SPEED")),
            _ => {}
        }
    }
    Ok(nodes.into_iter().map(|(number, node)| (number, node.into_track())).collect())
}

impl MovingNode {
    fn into_track(mut self) -> Track {
        self.movements.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut place = Point { x: self.x, y: self.y };
        let mut points = vec![(0.0, place)];
        let mut go = |seconds: f64, place: Point| match points.last_mut() {
            Some(last) if last.0 >= seconds => *last = (last.0, place),
            _ => points.push((seconds, place)),
        };
        for (n, (start, to, speed)) in self.movements.iter().enumerate() {
            go(*start, place);
            let distance = place.distance_to(*to);
            if *speed == 0.0 || distance == 0.0 {
                continue;
            }
            let arrival = start + distance / speed;
            match self.movements.get(n + 1) {
                Some((next, ..)) if *next < arrival => {
                    place = place.point_towards(*to, (next - start) / (arrival - start));
                }
                _ => {
                    place = *to;
                    go(arrival, place);
                }
            }
        }
        Track::moving(points).unwrap_or_default()
    }
}

fn parse_real(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

fn parse_index(text: &str) -> Option<u32> {
    text.strip_prefix("$node_(")?.strip_suffix(')')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ns2_node_moves_to_its_destination() {
        let text = "# made by hand\n$node_(0) set X_ 100.0\n$node_(0) set Y_ 50\n$node_(0) set Z_ 0\n\
            $god_ set-dist 0 1 1\n\
            $ns_ at 2.0 \"$node_(0) setdest 200.0 50.0 10.0\"\n\
            $ns_ at 5.0 \"$node_(0) setdest 130.0 90.0 20.0\"\n\
            $ns_ at 0.0 \"$node_(7) setdest 3 4 1\"\n";
        let tracks = parse(text).expect("is good");
        let places = [0.0, 2.0, 4.0, 5.0, 6.0, 7.0, 99.0].map(|t| {
            let place = tracks[&0].position_at(t).expect("is there");
            (place.x, place.y)
        });
        // At 5 s the node is at 130, 50, and turns to the north.
        assert_eq!(
            places,
            [
                (100.0, 50.0),
                (100.0, 50.0),
                (120.0, 50.0),
                (130.0, 50.0),
                (130.0, 70.0),
                (130.0, 90.0),
                (130.0, 90.0)
            ]
        );
        assert_eq!(tracks[&7].position_at(5.0), Some(Point { x: 3.0, y: 4.0 }));
    }

    #[test]
    fn ns2_node_without_movement_stays() {
        let tracks = parse("$node_(1) set X_ 5\n$ns_ at 3 \"$node_(1) setdest 9 9 0\"\n").expect("is good");
        assert_eq!(tracks[&1].position_at(10.0), Some(Point { x: 5.0, y: 0.0 }));
    }

    #[test]
    fn ns2_errors_name_the_line() {
        for (text, line, message) in [
            ("\n$node_(0) set X_ far", 2, "expected a number of metres"),
            ("$node_(x) set X_ 1", 1, "expected $node_(N)"),
            ("$ns_ at 1 \"$node_(0) setdest 1 2\"", 1, "expected setdest X Y SPEED"),
            ("$ns_ at 1 \"$node_(0) setdest 1 2 -3\"", 1, "expected a speed of 0 or more"),
            ("$ns_ at soon \"$node_(0) setdest 1 2 3\"", 1, "expected a time"),
        ] {
            let mistake = parse(text).expect_err("is bad");
            assert_eq!(mistake.line, line, "{text}");
            assert!(mistake.message.starts_with(message), "{}", mistake.message);
        }
    }
}
