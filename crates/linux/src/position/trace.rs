//! Plays a journey from a trace file.
//!
//! The file has one line per moment: `seconds latitude longitude [speed heading]`, separated by blanks.
//! Seconds are in ascending order and may have a fraction. Latitude and longitude are in degrees, the speed
//! in metres per second, the heading in degrees clockwise from North. The word `lost` in place of the
//! position says that the station has no fix from then until the next line. Text after a `#` is a comment.
//!
//! ```text
//! # seconds latitude longitude speed heading
//! 0    48.8375 2.1008  10 90
//! 10.5 48.8375 2.1022
//! 12   lost
//! 20   48.8375 2.1050
//! ```
//!
//! Seconds count from the opening of the source. If the first value is 1,000,000,000 or more, the seconds are
//! UNIX time of the system clock. So several stations can move in step. Between two lines the player
//! interpolates the position, the short way round the globe, and a speed and heading that both lines have. If
//! a line has no speed and heading, the player computes them from the two positions. Before the first line
//! the station has no fix, and after the last line the trace has ended.

use std::path::Path;
use std::time::Duration;

use carnet_base::{Time, WallTime};

use super::reckoning::wrap_longitude;
use super::{Fix, FixMode, LostReason, PositionEvent, PositionOptions};
use crate::error::{Error, Result};

/// If the seconds in the first line are at least this number, all seconds are UNIX time.
const UNIX_TIME: f64 = 1e9;
/// Metres per degree of latitude, precise enough to compute the speed between two lines.
const METRES_PER_DEGREE: f64 = 111_194.9;
/// Confidence in metres of a position from a trace.
const CONFIDENCE: f64 = 1.0;

#[derive(Debug, Clone, PartialEq)]
struct Point {
    seconds: f64,
    position: Option<TracePosition>,
}

#[derive(Debug, Clone, PartialEq)]
struct TracePosition {
    latitude: f64,
    longitude: f64,
    /// Speed and heading, if the line has them.
    motion: Option<(f64, f64)>,
}

/// A journey: positions of a station with their times.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    points: Vec<Point>,
}

/// State of the station at a moment of the trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TraceState {
    /// The station has no position: the trace has not begun, or says `lost`.
    Lost,
    /// The station is at this place.
    At {
        /// Latitude in degrees.
        latitude: f64,
        /// Longitude in degrees.
        longitude: f64,
        /// Speed in metres per second.
        speed: f64,
        /// Course in degrees clockwise from North, 0 to below 360.
        heading: f64,
    },
    /// The trace has ended.
    Ended,
}

impl Trace {
    /// Reads and parses a trace file.
    pub fn read(path: &Path) -> Result<Trace> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::kernel(format!("read the trace {}", path.display()), e))?;
        Trace::parse(&text).map_err(|(line, expected, got)| Error::Invalid {
            what: format!("{}:{line}", path.display()),
            expected: expected.into(),
            got: format!("`{got}`"),
        })
    }

    /// Parses a text. The error has the number of the line, the expected format and the found text.
    pub fn parse(text: &str) -> std::result::Result<Trace, (usize, &'static str, String)> {
        let mut points: Vec<Point> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or_default();
            let mut words = content.split_whitespace();
            let Some(first) = words.next() else { continue };
            let rest: Vec<&str> = words.collect();
            let wrong = |expected| (number + 1, expected, content.trim().to_owned());
            let seconds = parse_within(first, 0.0, 1e10).ok_or_else(|| wrong("seconds, 0 or more"))?;
            if points.last().is_some_and(|last| last.seconds >= seconds) {
                return Err(wrong("more seconds than in the line before"));
            }
            let place = match rest[..] {
                ["lost"] => None,
                [latitude, longitude, ref motion @ ..] if matches!(motion.len(), 0 | 2) => {
                    let motion = match motion {
                        [speed, heading] => Some((
                            parse_within(speed, 0.0, 1000.0).ok_or_else(|| wrong("a speed of 0 to 1000"))?,
                            parse_within(heading, 0.0, 360.0)
                                .ok_or_else(|| wrong("a heading of 0 to 360"))?,
                        )),
                        _ => None,
                    };
                    Some(TracePosition {
                        latitude: parse_within(latitude, -90.0, 90.0)
                            .ok_or_else(|| wrong("a latitude of -90 to 90"))?,
                        longitude: parse_within(longitude, -180.0, 180.0)
                            .ok_or_else(|| wrong("a longitude of -180 to 180"))?,
                        motion,
                    })
                }
                _ => return Err(wrong("`seconds latitude longitude [speed heading]` or `seconds lost`")),
            };
            points.push(Point { seconds, position: place });
        }
        if points.is_empty() {
            return Err((1, "at least one line", "nothing".to_owned()));
        }
        Ok(Trace { points })
    }

    /// Returns whether the seconds are UNIX time.
    pub fn is_absolute(&self) -> bool {
        self.points.first().is_some_and(|point| point.seconds >= UNIX_TIME)
    }

    /// Returns the state of the station at this time of the trace.
    pub fn at(&self, seconds: f64) -> TraceState {
        let next = self.points.partition_point(|point| point.seconds <= seconds);
        let Some(before) = next.checked_sub(1).map(|index| &self.points[index]) else {
            return TraceState::Lost;
        };
        match (self.points.get(next), &before.position) {
            // The last line holds only for its own time; afterwards the trace has ended.
            (None, _) if before.seconds < seconds => TraceState::Ended,
            (_, None) => TraceState::Lost,
            (Some(Point { seconds: end, position: Some(to) }), Some(from)) => {
                let share = (seconds - before.seconds) / (end - before.seconds);
                between(from, to, share, end - before.seconds)
            }
            // After this line the trace has no position: it ends, or says `lost`. The station keeps its last
            // known motion.
            (_, Some(from)) => {
                match self.points[..next].iter().rev().nth(1).map(|p| (p.seconds, &p.position)) {
                    Some((start, Some(previous))) if before.seconds == seconds => {
                        between(previous, from, 1.0, before.seconds - start)
                    }
                    _ => standing_at(from),
                }
            }
        }
    }
}

fn parse_within(text: &str, low: f64, high: f64) -> Option<f64> {
    text.parse().ok().filter(|value| (low..=high).contains(value))
}

fn standing_at(place: &TracePosition) -> TraceState {
    let (speed, heading) = place.motion.unwrap_or((0.0, 0.0));
    TraceState::At { latitude: place.latitude, longitude: place.longitude, speed, heading: heading % 360.0 }
}

/// Returns the state of a station on the way between two positions. `share` is the covered part of the way,
/// from 0 to 1. The whole way takes `duration` seconds.
fn between(from: &TracePosition, to: &TracePosition, share: f64, duration: f64) -> TraceState {
    let north = to.latitude - from.latitude;
    let east = wrap_longitude(to.longitude - from.longitude);
    let metres_north = north * METRES_PER_DEGREE;
    let metres_east = east * METRES_PER_DEGREE * ((from.latitude + to.latitude) / 2.0).to_radians().cos();
    let (speed, heading) = match (from.motion, to.motion) {
        (Some((speed, heading)), Some((to_speed, to_heading))) => {
            let turn = (to_heading - heading + 180.0).rem_euclid(360.0) - 180.0;
            (speed + share * (to_speed - speed), heading + share * turn)
        }
        _ => {
            let heading = metres_east.atan2(metres_north).to_degrees();
            (metres_north.hypot(metres_east) / duration, heading)
        }
    };
    TraceState::At {
        latitude: from.latitude + share * north,
        longitude: wrap_longitude(from.longitude + share * east),
        speed,
        heading: heading.rem_euclid(360.0) % 360.0,
    }
}

/// Reports the positions of a trace at their times, as a position source.
#[derive(Debug, Clone)]
pub struct TracePlayer {
    trace: Trace,
    interval: Duration,
    leap_seconds: i64,
    start: Option<Time>,
    next_event: Option<Time>,
    mode: FixMode,
    lost_reason: Option<LostReason>,
    pending: Option<PositionEvent>,
}

impl TracePlayer {
    /// Creates a player for `trace`, which reports a position once per interval of the options.
    pub fn new(trace: Trace, options: &PositionOptions) -> TracePlayer {
        TracePlayer {
            trace,
            interval: options.interval,
            leap_seconds: options.leap_seconds,
            start: None,
            next_event: None,
            mode: FixMode::None,
            lost_reason: None,
            pending: None,
        }
    }

    /// Returns the number of leap seconds since 2004 from the options.
    pub fn leap_seconds(&self) -> i64 {
        self.leap_seconds
    }

    /// Returns the time at which the next event is due; [`Time::MAX`] after the end of the trace.
    pub fn next_event_due(&self, now: Time) -> Time {
        self.next_event.unwrap_or(now)
    }

    /// Returns the next event whose time has come, if any.
    pub fn next_due_event(&mut self, now: Time, wall: WallTime) -> Option<PositionEvent> {
        if let Some(event) = self.pending.take() {
            self.next_event = Some(self.next(now));
            return Some(event);
        }
        let start = *self.start.get_or_insert(now);
        let seconds = match self.trace.is_absolute() {
            true => wall.as_unix_nanos() as f64 / 1e9,
            false => now.saturating_since(start).as_secs_f64(),
        };
        let (mode, event) = match self.trace.at(seconds) {
            TraceState::At { latitude, longitude, speed, heading } => {
                self.lost_reason = None;
                let fix = Fix {
                    received: now,
                    time: wall,
                    latitude,
                    longitude,
                    altitude: None,
                    speed: Some(speed),
                    track: Some(heading),
                    climb: None,
                    mode: FixMode::TwoD,
                    confidence: Some(CONFIDENCE),
                };
                (FixMode::TwoD, Some(PositionEvent::Fix(fix)))
            }
            TraceState::Lost => (FixMode::None, self.lose(LostReason::NoFix)),
            TraceState::Ended => (FixMode::None, self.lose(LostReason::EndOfTrace)),
        };
        if self.mode != mode {
            self.mode = mode;
            self.pending = event;
            return Some(PositionEvent::Mode(mode));
        }
        self.next_event = Some(self.next(now));
        event
    }

    /// Returns the time of the next report: one interval after the last due time, or after `now` if that has
    /// passed.
    fn next(&self, now: Time) -> Time {
        if self.lost_reason == Some(LostReason::EndOfTrace) {
            return Time::MAX;
        }
        let due = self.next_event.unwrap_or(now) + self.interval;
        if due > now { due } else { now + self.interval }
    }

    fn lose(&mut self, reason: LostReason) -> Option<PositionEvent> {
        if self.lost_reason.as_ref() == Some(&reason) {
            return None;
        }
        self.lost_reason = Some(reason.clone());
        Some(PositionEvent::Lost { reason })
    }
}
