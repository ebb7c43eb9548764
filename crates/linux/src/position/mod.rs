//! Where the station is, and what time it is there.
//!
//! A [`PositionSource`] tells a station's position as a stream of [`PositionEvent`]s, from one of three
//! origins:
//!
//! * `gpsd://HOST:PORT[/DEVICE]`: a receiver behind gpsd ([`gpsd`], [`tracker`]). The connection is made
//!   again when it breaks; a receiver without fix, or one that has fallen silent, is reported.
//! * `fixed:LATITUDE,LONGITUDE`: a place, for roadside units ([`fixed`]).
//! * `trace:FILE`: a journey from a file, for tests and the lab ([`trace`]).
//!
//! [`reckoning`] carries a fix on to the present and decides whether it is accurate enough for PAI;
//! [`leap`] knows the leap seconds that stand between UTC and the time of position vectors.
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
    /// No position.
    None,
    /// Latitude and longitude.
    TwoD,
    /// Altitude as well.
    ThreeD,
}

/// A position, and how the station moved there.
#[derive(Debug, Clone, PartialEq)]
pub struct Fix {
    /// When it arrived here, by this machine's monotonic clock.
    pub received: Time,
    /// When the station was there, in UTC, by the receiver's clock or, of sources without one, this
    /// machine's.
    pub time: WallTime,
    /// Degrees, north positive.
    pub latitude: f64,
    /// Degrees, east positive, -180 to 180.
    pub longitude: f64,
    /// Metres above the WGS 84 ellipsoid.
    pub altitude: Option<f64>,
    /// Metres per second over ground.
    pub speed: Option<f64>,
    /// Course over ground in degrees clockwise from true North, 0 to below 360. Receivers leave it out at
    /// rest.
    pub track: Option<f64>,
    /// Metres per second upwards.
    pub climb: Option<f64>,
    /// Two or three dimensions.
    pub mode: FixMode,
    /// Radius in metres of the circle that holds the position with 95 % probability; `None` if unknown.
    pub confidence: Option<f64>,
}

impl Fix {
    /// The time of the fix as position vectors tell it. `leap_seconds` are those since 2004 (see [`leap`]).
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
            // A cast saturates, and takes what is not a number for 0.
            latitude: (self.latitude * 1e7).round() as i32,
            longitude: (self.longitude * 1e7).round() as i32,
            accurate: reckoning::is_accurate(self.confidence, pai_interval),
            speed: (self.speed.unwrap_or(0.0) * 100.0).round() as i16,
            heading: ((self.track.unwrap_or(0.0).rem_euclid(360.0) * 10.0).round() as u16) % 3600,
        }
    }
}

/// Why there is no position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LostReason {
    /// No connection to gpsd. The text says why.
    Disconnected(String),
    /// gpsd has no receiver.
    NoDevice,
    /// The receiver has no fix; or a trace has not begun, or says so.
    NoFix,
    /// The receiver has fallen silent.
    Stale,
    /// The receiver says the same time again and again. Which receiver.
    Frozen(String),
    /// The receiver says that it has a fix, and gives no time or place that can be one. The text says what is
    /// wrong.
    Unusable(String),
    /// The trace has come to its end.
    EndOfTrace,
}

/// How far this machine's clock is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockDifference {
    /// System clock minus the receiver's, milliseconds: positive when the system clock is fast.
    pub milliseconds: i64,
    /// Measured with a pulse per second; otherwise it contains what the receiver took to tell the time, up to
    /// a second and more.
    pub precise: bool,
    /// More than what is tolerated.
    pub wrong: bool,
}

/// Event of a source.
#[derive(Debug, Clone, PartialEq)]
pub enum PositionEvent {
    /// A position.
    Fix(Fix),
    /// The fix became better or worse; comes before the [`PositionEvent::Fix`] or [`PositionEvent::Lost`]
    /// that it is about.
    Mode(FixMode),
    /// There is no position any more, or not yet. Told once per reason; a fix ends it.
    Lost {
        /// Why.
        reason: LostReason,
    },
    /// The connection to gpsd stands.
    Connected {
        /// gpsd's release.
        release: String,
    },
    /// The system clock turned out wrong, is wrong by something else than before, or is right again.
    Clock(ClockDifference),
    /// The leap seconds since 2004 are others than they were taken for.
    LeapSeconds(i64),
}

/// Settings of any source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionOptions {
    /// A source with a schedule of its own (a trace, a place) tells a position once in so long.
    pub interval: Duration,
    /// A receiver that has told no fix for so long has lost it.
    pub stale_after: Duration,
    /// How far the system clock may be from the receiver's, where no pulse per second tells more exactly.
    pub clock_tolerance: Duration,
    /// How far it may be from the pulse per second.
    pub pulse_tolerance: Duration,
    /// Leap seconds since 2004 that are known to have been; a receiver that knows of more is believed.
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

/// A station's position, from wherever it comes.
#[derive(Debug)]
pub enum PositionSource {
    /// A place.
    Fixed(fixed::Fixed),
    /// A journey.
    Trace(trace::Player),
    /// A receiver.
    Gpsd(Box<Connection>),
}

impl PositionSource {
    /// Opens the source: reads a trace, begins to connect to gpsd. The calling thread must be one of a tokio
    /// runtime.
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

    /// The next thing that the source tells. Safe to cancel.
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

    /// Leap seconds since 2004 as far as this source knows.
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
