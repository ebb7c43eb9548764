//! Position and time of the station.
//!
//! A [`PositionSource`] reports a station's position as a stream of [`PositionEvent`]s, from one of three
//! origins:
//!
//! * `gpsd://HOST:PORT[/DEVICE]`: a receiver behind gpsd ([`gpsd`], [`tracker`]). The connection is opened
//!   again when it breaks. A receiver without fix, or a silent one, is reported.
//! * `fixed:LATITUDE,LONGITUDE`: a fixed place, for roadside units ([`fixed`]).
//! * `trace:FILE`: a journey from a file, for tests and the lab ([`trace`]).
//!
//! [`reckoning`] extrapolates a fix to the present and decides whether it is accurate enough for PAI.
//! [`leap`] has the leap seconds between UTC and the time of position vectors.
//!
//! All angles are degrees: latitude and longitude on WGS 84, courses clockwise from true North. Speeds are
//! metres per second. Confidences are the radius in metres of the circle that holds the true position with 95
//! % probability.

pub mod fixed;
pub mod gpsd;
pub mod leap;
pub mod reckoning;
pub mod trace;
pub mod tracker;

mod config;
mod connection;
mod date;

use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_wire::geonet::{GnAddress, LongPositionVector, Timestamp};

pub use config::PositionConfig;
pub use connection::Connection;

use crate::clock;
use crate::error::Result;

/// Kind of fix of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FixMode {
    /// No position is known.
    None,
    /// Latitude and longitude are known.
    TwoD,
    /// Latitude, longitude and altitude are known.
    ThreeD,
}

/// A position and the velocity of the station.
#[derive(Debug, Clone, PartialEq)]
pub struct Fix {
    /// Time of arrival, on this machine's monotonic clock.
    pub received: Time,
    /// Time of the position in UTC, by the receiver's clock or, for sources without one, this machine's.
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
    pub track: Option<f64>,
    /// Vertical speed in metres per second, upwards positive.
    pub climb: Option<f64>,
    /// Whether the fix has two or three dimensions.
    pub mode: FixMode,
    /// Radius in metres of the circle that holds the position with 95 % probability; `None` if unknown.
    pub confidence: Option<f64>,
}

impl Fix {
    /// Returns the time of the fix in the format of position vectors. `leap_seconds` are those since 2004
    /// (see [`leap`]).
    pub fn timestamp(&self, leap_seconds: i64) -> Timestamp {
        let milliseconds = i64::try_from(self.time.as_unix_nanos() / 1_000_000).unwrap_or(i64::MAX);
        Timestamp::from_unix_milliseconds(milliseconds, leap_seconds)
    }

    /// Returns the fix as the position vector of the station with this address. Values that the receiver left
    /// out are 0; a position with unknown confidence is not accurate. `pai_interval` is `itsGnPaiInterval` in
    /// metres.
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
            accurate: reckoning::is_accurate(self.confidence, pai_interval),
            speed: (self.speed.unwrap_or(0.0) * 100.0).round() as i16,
            heading: ((self.track.unwrap_or(0.0).rem_euclid(360.0) * 10.0).round() as u16) % 3600,
        }
    }
}

/// Reason for a missing position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LostReason {
    /// No connection to gpsd. The text has the reason.
    Disconnected(String),
    /// gpsd has no receiver.
    NoDevice,
    /// The receiver has no fix, or a trace has not begun or says `lost`.
    NoFix,
    /// The receiver has become silent.
    Stale,
    /// The receiver repeats the same time. The text is its path.
    Frozen(String),
    /// The receiver claims a fix, but its time or place is invalid. The text has the error.
    Unusable(String),
    /// The trace has ended.
    EndOfTrace,
}

/// Error of this machine's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockDifference {
    /// System clock minus the receiver's in milliseconds: positive if the system clock is fast.
    pub milliseconds: i64,
    /// Whether a pulse per second was the reference. Otherwise the difference contains the delay of the
    /// receiver's report, up to a second and more.
    pub precise: bool,
    /// Whether the difference exceeds the tolerance.
    pub wrong: bool,
}

/// Event of a position source.
#[derive(Debug, Clone, PartialEq)]
pub enum PositionEvent {
    /// A position.
    Fix(Fix),
    /// The kind of fix changed; precedes the [`PositionEvent::Fix`] or [`PositionEvent::Lost`] with that
    /// kind.
    Mode(FixMode),
    /// The position is lost or not known yet. Reported once per reason, until the next fix.
    Lost {
        /// Reason for the missing position.
        reason: LostReason,
    },
    /// The connection to gpsd is open.
    Connected {
        /// Release of gpsd.
        release: String,
    },
    /// The system clock has become wrong, has another error than before, or is right again.
    Clock(ClockDifference),
    /// The number of leap seconds since 2004 has changed.
    LeapSeconds(i64),
}

/// Settings of any source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionOptions {
    /// Interval between the reports of a source with a schedule of its own (a trace, a fixed place).
    pub interval: Duration,
    /// Time without a fix after which a receiver's position is lost.
    pub stale_after: Duration,
    /// Tolerance of the system clock against the receiver's, without a pulse per second.
    pub clock_tolerance: Duration,
    /// Tolerance of the system clock against the pulse per second.
    pub pulse_tolerance: Duration,
    /// Known leap seconds since 2004. A receiver may report more.
    pub leap_seconds: i64,
}

impl Default for PositionOptions {
    fn default() -> PositionOptions {
        PositionOptions {
            // `itsGnMinUpdateFrequencyLPV`
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
    Fixed(fixed::Fixed),
    /// A journey from a file.
    Trace(trace::Player),
    /// A receiver behind gpsd.
    Gpsd(Box<Connection>),
}

impl PositionSource {
    /// Opens the source: reads a trace, or begins to connect to gpsd. The calling thread must be one of a
    /// tokio runtime.
    pub fn open(config: &PositionConfig, mut options: PositionOptions) -> Result<PositionSource> {
        options.leap_seconds = leap::since_2004(options.leap_seconds, clock::tai_offset());
        Ok(match config {
            PositionConfig::Fixed { latitude, longitude } => {
                PositionSource::Fixed(fixed::Fixed::new(*latitude, *longitude, &options))
            }
            PositionConfig::Trace(path) => {
                PositionSource::Trace(trace::Player::new(trace::Trace::read(path)?, &options))
            }
            PositionConfig::Gpsd { host, port, device } => {
                PositionSource::Gpsd(Box::new(Connection::new(host.clone(), *port, device.clone(), options)))
            }
        })
    }

    /// Returns the next event of the source. Safe to cancel.
    pub async fn next_event(&mut self) -> PositionEvent {
        match self {
            PositionSource::Fixed(fixed) => {
                sleep_until(fixed.due(clock::now())).await;
                fixed.tell(clock::now(), clock::wall())
            }
            PositionSource::Trace(player) => loop {
                sleep_until(player.due(clock::now())).await;
                if let Some(event) = player.tell(clock::now(), clock::wall()) {
                    return event;
                }
            },
            PositionSource::Gpsd(connection) => connection.next_event().await,
        }
    }

    /// Returns the leap seconds since 2004 as far as this source knows.
    pub fn leap_seconds(&self) -> i64 {
        match self {
            PositionSource::Gpsd(connection) => connection.leap_seconds(),
            PositionSource::Fixed(fixed) => fixed.leap_seconds(),
            PositionSource::Trace(player) => player.leap_seconds(),
        }
    }
}

/// Waits until `due` on this machine's monotonic clock.
async fn sleep_until(due: Time) {
    tokio::time::sleep(due.saturating_since(clock::now())).await;
}
