//! Sources of the station's position and time.
//!
//! A [`PositionSource`] reports a station's position as a stream of [`PositionEvent`]s, from one of three
//! origins:
//!
//! * `gpsd://HOST:PORT[/DEVICE]`: a receiver behind gpsd ([`gpsd`], [`fix_tracker`]). carnet opens the
//!   connection again when it breaks. It reports when a receiver has no fix or is silent.
//! * `fixed:LATITUDE,LONGITUDE`: a fixed place, for roadside units ([`fixed_position`]).
//! * `trace:FILE`: a journey from a file, for tests and the lab ([`position_trace`]).
//!
//! [`dead_reckoning`] extrapolates a fix to the present and decides whether it is accurate enough for PAI.
//! [`leap_second_checks`] finds the leap seconds between UTC and the time of position vectors.
//!
//! All angles are degrees: latitude and longitude on WGS 84, courses clockwise from true North. Speeds are
//! metres per second. Confidences are the radius in metres of the circle that holds the true position with 95
//! % probability.

pub mod dead_reckoning;
pub mod fix_tracker;
pub mod fixed_position;
pub mod gpsd;
pub mod leap_second_checks;
pub mod position_trace;

mod config;
mod gpsd_connection;
mod iso_date;

use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_wire::geonet::{GnAddress, LongPositionVector, Timestamp};

pub use config::PositionConfig;
pub use gpsd_connection::GpsdConnection;

use crate::clock;
use crate::error::Result;

/// Kind of fix of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FixMode {
    /// The receiver has no position.
    None,
    /// The receiver has latitude and longitude.
    TwoD,
    /// The receiver has latitude, longitude and altitude.
    ThreeD,
}

/// A position and the velocity of the station.
#[derive(Debug, Clone, PartialEq)]
pub struct PositionFix {
    /// Time of arrival, on this machine's monotonic clock.
    pub received_at: Time,
    /// Time of the position in UTC, by the receiver's clock; for sources without a receiver, by this
    /// machine's clock.
    pub time: WallTime,
    /// Latitude in degrees, north positive.
    pub latitude: f64,
    /// Longitude in degrees, east positive, -180 to 180.
    pub longitude: f64,
    /// Altitude in metres above the WGS 84 ellipsoid.
    pub altitude: Option<f64>,
    /// Speed in metres per second over ground.
    pub speed: Option<f64>,
    /// Course over ground in degrees clockwise from true North, 0 to below 360. Receivers omit it at rest.
    pub course_degrees: Option<f64>,
    /// Vertical speed in metres per second, upwards positive.
    pub climb_rate: Option<f64>,
    /// Whether the fix has two or three dimensions.
    pub fix_mode: FixMode,
    /// Radius in metres of a circle that contains the true position with 95 % probability; `None` if the
    /// receiver does not say.
    pub confidence_radius: Option<f64>,
}

impl PositionFix {
    /// Returns the time of the fix as the timestamp of a position vector. `leap_seconds` is the number of
    /// leap seconds since 2004 (see [`leap_second_checks`]).
    pub fn timestamp(&self, leap_seconds: i64) -> Timestamp {
        let milliseconds = i64::try_from(self.time.as_unix_nanos() / 1_000_000).unwrap_or(i64::MAX);
        Timestamp::from_unix_milliseconds(milliseconds, leap_seconds)
    }

    /// Returns the fix as a position vector of the station with this address. Missing values become 0, and a
    /// position without confidence is not accurate. `pai_interval` is `itsGnPaiInterval` in metres.
    pub fn position_vector(
        &self,
        address: GnAddress,
        leap_seconds: i64,
        pai_interval: f64,
    ) -> LongPositionVector {
        LongPositionVector {
            address,
            timestamp: self.timestamp(leap_seconds),
            // A cast saturates, and converts NaN to 0.
            latitude: (self.latitude * 1e7).round() as i32,
            longitude: (self.longitude * 1e7).round() as i32,
            accurate: dead_reckoning::is_accurate(self.confidence_radius, pai_interval),
            speed: (self.speed.unwrap_or(0.0) * 100.0).round() as i16,
            heading: ((self.course_degrees.unwrap_or(0.0).rem_euclid(360.0) * 10.0).round() as u16) % 3600,
        }
    }
}

/// Reason for a missing position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PositionLossReason {
    /// carnet has no connection to gpsd. The text has the reason.
    Disconnected(String),
    /// gpsd has no receiver.
    NoDevice,
    /// The receiver has no fix. In a trace: the trace has not begun, or says `lost`.
    NoFix,
    /// The receiver has become silent.
    Stale,
    /// The receiver sends reports, but always with the same time. The text is the path of the receiver.
    Frozen(String),
    /// The receiver claims a fix, but its time or position is invalid. The text has the error.
    Unusable(String),
    /// The trace has ended.
    EndOfTrace,
}

/// Difference between this machine's clock and the receiver's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockDifference {
    /// Time of the system clock minus the receiver's time, in milliseconds: positive if the system clock is
    /// fast.
    pub milliseconds_ahead: i64,
    /// Whether the difference was measured by a pulse per second. Otherwise it includes the delay of the
    /// receiver's report, up to a second and more.
    pub is_precise: bool,
    /// Whether the difference exceeds the configured tolerance.
    pub is_clock_wrong: bool,
}

/// Event of a position source.
#[derive(Debug, Clone, PartialEq)]
pub enum PositionEvent {
    /// A new position.
    Fix(PositionFix),
    /// The kind of fix has changed. A [`PositionEvent::Fix`] or [`PositionEvent::Lost`] follows.
    Mode(FixMode),
    /// The source has no position. It reports each reason once until the next fix.
    Lost {
        /// Reason for the missing position.
        reason: PositionLossReason,
    },
    /// The connection to gpsd is open.
    Connected {
        /// Release of gpsd.
        release: String,
    },
    /// The system clock has become wrong, its error has changed, or it has become correct again.
    Clock(ClockDifference),
    /// The number of leap seconds since 2004 has changed.
    LeapSeconds(i64),
}

/// Options of every kind of position source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionOptions {
    /// Interval between the reports of a trace or a fixed position.
    pub interval: Duration,
    /// Time without a fix after which the position of a receiver counts as lost.
    pub stale_after: Duration,
    /// Tolerated difference between the system clock and the receiver's time, without a pulse per second.
    pub clock_tolerance: Duration,
    /// Tolerated difference between the system clock and the pulse per second.
    pub pulse_tolerance: Duration,
    /// Configured number of leap seconds since 2004. A receiver may report more.
    pub leap_seconds: i64,
}

impl Default for PositionOptions {
    fn default() -> PositionOptions {
        PositionOptions {
            // MIB parameter `itsGnMinUpdateFrequencyLPV` of EN 302 636-4-1.
            interval: Duration::from_millis(1000),
            stale_after: Duration::from_secs(3),
            clock_tolerance: Duration::from_secs(2),
            pulse_tolerance: Duration::from_millis(100),
            leap_seconds: Timestamp::LEAP_SECONDS,
        }
    }
}

/// Source of a station's position.
#[derive(Debug)]
pub enum PositionSource {
    /// A fixed place.
    Fixed(fixed_position::FixedPosition),
    /// A journey from a file.
    Trace(position_trace::TracePlayer),
    /// A receiver behind gpsd.
    Gpsd(Box<GpsdConnection>),
}

impl PositionSource {
    /// Opens the source: reads a trace, or begins to connect to gpsd. The calling thread must be one of a
    /// tokio runtime.
    pub fn open(config: &PositionConfig, mut options: PositionOptions) -> Result<PositionSource> {
        options.leap_seconds =
            leap_second_checks::leap_seconds_since_2004(options.leap_seconds, clock::tai_offset());
        Ok(match config {
            PositionConfig::Fixed { latitude, longitude } => {
                PositionSource::Fixed(fixed_position::FixedPosition::new(*latitude, *longitude, &options))
            }
            PositionConfig::Trace(path) => PositionSource::Trace(position_trace::TracePlayer::new(
                position_trace::PositionTrace::read_trace(path)?,
                &options,
            )),
            PositionConfig::Gpsd { host, port, device } => PositionSource::Gpsd(Box::new(
                GpsdConnection::new(host.clone(), *port, device.clone(), options),
            )),
        })
    }

    /// Waits for the next event of the position source. The future may be dropped.
    pub async fn next_event(&mut self) -> PositionEvent {
        match self {
            PositionSource::Fixed(fixed) => {
                sleep_until_due(fixed.next_report_due(clock::now())).await;
                fixed.report_position(clock::now(), clock::wall_time())
            }
            PositionSource::Trace(player) => loop {
                sleep_until_due(player.next_event_due(clock::now())).await;
                if let Some(event) = player.next_due_event(clock::now(), clock::wall_time()) {
                    return event;
                }
            },
            PositionSource::Gpsd(connection) => connection.next_event().await,
        }
    }

    /// Returns the number of leap seconds since 2004 by this source.
    pub fn leap_seconds(&self) -> i64 {
        match self {
            PositionSource::Gpsd(connection) => connection.leap_seconds(),
            PositionSource::Fixed(fixed) => fixed.leap_seconds(),
            PositionSource::Trace(player) => player.leap_seconds(),
        }
    }
}

/// Waits until the time `due` on this machine's monotonic clock.
async fn sleep_until_due(due: Time) {
    tokio::time::sleep(due.saturating_since(clock::now())).await;
}
