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

use super::dead_reckoning::wrap_longitude;
use super::{FixMode, PositionEvent, PositionFix, PositionLossReason, PositionOptions};
use crate::error::{Error, Result};

/// If the seconds in the first line are at least this number, all seconds are UNIX time.
const UNIX_TIME_THRESHOLD: f64 = 1e9;
/// Metres per degree of latitude, precise enough to compute the speed between two lines.
const METRES_PER_DEGREE: f64 = 111_194.9;
/// Confidence in metres of a position from a trace.
const TRACE_CONFIDENCE_M: f64 = 1.0;

#[derive(Debug, Clone, PartialEq)]
struct TracePoint {
    time_seconds: f64,
    position: Option<TracePosition>,
}

#[derive(Debug, Clone, PartialEq)]
struct TracePosition {
    latitude: f64,
    longitude: f64,
    /// Speed and heading, if the line has them.
    speed_and_heading: Option<(f64, f64)>,
}

/// A journey: positions of a station with their times.
#[derive(Debug, Clone, PartialEq)]
pub struct PositionTrace {
    trace_points: Vec<TracePoint>,
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

impl PositionTrace {
    /// Reads and parses a trace file.
    pub fn read_trace(path: &Path) -> Result<PositionTrace> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::from_kernel_refusal(format!("read the trace {}", path.display()), e))?;
        PositionTrace::parse(&text).map_err(|(line, expected, got)| Error::Invalid {
            what: format!("{}:{line}", path.display()),
            expected: expected.into(),
            got: format!("`{got}`"),
        })
    }

    /// Parses a text. The error has the number of the line, the expected format and the found text.
    pub fn parse(text: &str) -> std::result::Result<PositionTrace, (usize, &'static str, String)> {
        let mut points: Vec<TracePoint> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or_default();
            let mut words = content.split_whitespace();
            let Some(first) = words.next() else { continue };
            let rest: Vec<&str> = words.collect();
            let wrong = |expected| (number + 1, expected, content.trim().to_owned());
            let seconds = parse_number_within(first, 0.0, 1e10).ok_or_else(|| wrong("seconds, 0 or more"))?;
            if points.last().is_some_and(|last| last.time_seconds >= seconds) {
                return Err(wrong("more seconds than in the line before"));
            }
            let place = match rest[..] {
                ["lost"] => None,
                [latitude, longitude, ref motion @ ..] if matches!(motion.len(), 0 | 2) => {
                    let motion = match motion {
                        [speed, heading] => Some((
                            parse_number_within(speed, 0.0, 1000.0)
                                .ok_or_else(|| wrong("a speed of 0 to 1000"))?,
                            parse_number_within(heading, 0.0, 360.0)
                                .ok_or_else(|| wrong("a heading of 0 to 360"))?,
                        )),
                        _ => None,
                    };
                    Some(TracePosition {
                        latitude: parse_number_within(latitude, -90.0, 90.0)
                            .ok_or_else(|| wrong("a latitude of -90 to 90"))?,
                        longitude: parse_number_within(longitude, -180.0, 180.0)
                            .ok_or_else(|| wrong("a longitude of -180 to 180"))?,
                        speed_and_heading: motion,
                    })
                }
                _ => return Err(wrong("`seconds latitude longitude [speed heading]` or `seconds lost`")),
            };
            points.push(TracePoint { time_seconds: seconds, position: place });
        }
        if points.is_empty() {
            return Err((1, "at least one line", "nothing".to_owned()));
        }
        Ok(PositionTrace { trace_points: points })
    }

    /// Returns whether the seconds are UNIX time.
    pub fn uses_unix_time(&self) -> bool {
        self.trace_points.first().is_some_and(|point| point.time_seconds >= UNIX_TIME_THRESHOLD)
    }

    /// Returns the state of the station at this time of the trace.
    pub fn state_at(&self, seconds: f64) -> TraceState {
        let next = self.trace_points.partition_point(|point| point.time_seconds <= seconds);
        let Some(before) = next.checked_sub(1).map(|index| &self.trace_points[index]) else {
            return TraceState::Lost;
        };
        match (self.trace_points.get(next), &before.position) {
            // At the time of the last line the station is still at the last position; afterwards the trace
            // has ended.
            (None, _) if before.time_seconds < seconds => TraceState::Ended,
            (_, None) => TraceState::Lost,
            (Some(TracePoint { time_seconds: end, position: Some(to) }), Some(from)) => {
                let share = (seconds - before.time_seconds) / (end - before.time_seconds);
                state_between(from, to, share, end - before.time_seconds)
            }
            // No position follows this line: the trace ends, or says `lost`. Until then the station keeps its
            // last speed and heading.
            (_, Some(from)) => {
                match self.trace_points[..next].iter().rev().nth(1).map(|p| (p.time_seconds, &p.position)) {
                    Some((start, Some(previous))) if before.time_seconds == seconds => {
                        state_between(previous, from, 1.0, before.time_seconds - start)
                    }
                    _ => state_at_rest(from),
                }
            }
        }
    }
}

fn parse_number_within(text: &str, low: f64, high: f64) -> Option<f64> {
    text.parse().ok().filter(|value| (low..=high).contains(value))
}

fn state_at_rest(place: &TracePosition) -> TraceState {
    let (speed, heading) = place.speed_and_heading.unwrap_or((0.0, 0.0));
    TraceState::At { latitude: place.latitude, longitude: place.longitude, speed, heading: heading % 360.0 }
}

/// Returns the state of a station on the way between two positions. `share` is the covered part of the way,
/// from 0 to 1. The whole way takes `duration` seconds.
fn state_between(from: &TracePosition, to: &TracePosition, share: f64, duration: f64) -> TraceState {
    let north = to.latitude - from.latitude;
    let east = wrap_longitude(to.longitude - from.longitude);
    let metres_north = north * METRES_PER_DEGREE;
    let metres_east = east * METRES_PER_DEGREE * ((from.latitude + to.latitude) / 2.0).to_radians().cos();
    let (speed, heading) = match (from.speed_and_heading, to.speed_and_heading) {
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
    trace: PositionTrace,
    interval: Duration,
    leap_seconds: i64,
    started_at: Option<Time>,
    next_event_at: Option<Time>,
    fix_mode: FixMode,
    lost_reason: Option<PositionLossReason>,
    pending_event: Option<PositionEvent>,
}

impl TracePlayer {
    /// Creates a player for `trace`, which reports a position once per interval of the options.
    pub fn new(trace: PositionTrace, options: &PositionOptions) -> TracePlayer {
        TracePlayer {
            trace,
            interval: options.interval,
            leap_seconds: options.leap_seconds,
            started_at: None,
            next_event_at: None,
            fix_mode: FixMode::None,
            lost_reason: None,
            pending_event: None,
        }
    }

    /// Returns the number of leap seconds since 2004 from the options.
    pub fn leap_seconds(&self) -> i64 {
        self.leap_seconds
    }

    /// Returns the time at which the next event is due; [`Time::MAX`] after the end of the trace.
    pub fn next_event_due(&self, now: Time) -> Time {
        self.next_event_at.unwrap_or(now)
    }

    /// Returns the next event whose time has come, if any.
    pub fn next_due_event(&mut self, now: Time, wall: WallTime) -> Option<PositionEvent> {
        if let Some(event) = self.pending_event.take() {
            self.next_event_at = Some(self.next_report_time(now));
            return Some(event);
        }
        let start = *self.started_at.get_or_insert(now);
        let seconds = match self.trace.uses_unix_time() {
            true => wall.as_unix_nanos() as f64 / 1e9,
            false => now.saturating_since(start).as_secs_f64(),
        };
        let (mode, event) = match self.trace.state_at(seconds) {
            TraceState::At { latitude, longitude, speed, heading } => {
                self.lost_reason = None;
                let fix = PositionFix {
                    received_at: now,
                    time: wall,
                    latitude,
                    longitude,
                    altitude: None,
                    speed: Some(speed),
                    course_degrees: Some(heading),
                    climb_rate: None,
                    fix_mode: FixMode::TwoD,
                    confidence_radius: Some(TRACE_CONFIDENCE_M),
                };
                (FixMode::TwoD, Some(PositionEvent::Fix(fix)))
            }
            TraceState::Lost => (FixMode::None, self.report_loss(PositionLossReason::NoFix)),
            TraceState::Ended => (FixMode::None, self.report_loss(PositionLossReason::EndOfTrace)),
        };
        if self.fix_mode != mode {
            self.fix_mode = mode;
            self.pending_event = event;
            return Some(PositionEvent::Mode(mode));
        }
        self.next_event_at = Some(self.next_report_time(now));
        event
    }

    /// Returns the time of the next report: one interval after the last due time, or after `now` if that has
    /// passed.
    fn next_report_time(&self, now: Time) -> Time {
        if self.lost_reason == Some(PositionLossReason::EndOfTrace) {
            return Time::MAX;
        }
        let due = self.next_event_at.unwrap_or(now) + self.interval;
        if due > now { due } else { now + self.interval }
    }

    fn report_loss(&mut self, reason: PositionLossReason) -> Option<PositionEvent> {
        if self.lost_reason.as_ref() == Some(&reason) {
            return None;
        }
        self.lost_reason = Some(reason.clone());
        Some(PositionEvent::Lost { reason })
    }
}
