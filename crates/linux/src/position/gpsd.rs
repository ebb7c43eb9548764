//! Parses the parts of gpsd's JSON protocol (`gpsd_json(5)`) that carnet needs, without I/O.
//!
//! gpsd sends one JSON object per line, each with a `class`. [`ReportReader`] cuts the received octets into
//! lines and parses them. It ignores unknown classes and fields, because every release of gpsd adds some. It
//! counts and skips a line that is no such object, and a line longer than [`MAX_LINE_LENGTH`], so that its
//! memory stays bounded.
//!
//! gpsd gives its error estimates (`eph`, `epx`, `epy`) without a definition. If gpsd computes them itself,
//! it aims at 95 % probability, so carnet takes all of them as 95 % values. Without `eph`, carnet takes the
//! diagonal of `epx` and `epy` as the radius, which is rather too large than too small.

use carnet_base::{Time, WallTime};
use serde::Deserialize;

use super::iso_date;
use super::{FixMode, PositionFix};

/// Returns the command that makes gpsd send reports, of all receivers, or of the given one.
pub fn watch_command(device: Option<&str>) -> String {
    let mut watch = serde_json::json!({ "enable": true, "json": true, "pps": true });
    if let Some(device) = device {
        watch["device"] = device.into();
    }
    format!("?WATCH={watch};\n")
}

/// A command that gpsd always answers. carnet sends it to check whether gpsd still runs.
pub const PROBE_COMMAND: &str = "?VERSION;\n";

/// 2004-01-01 in nanoseconds since 1970, the earliest time that a message can express (TimestampIts).
const EARLIEST_CREDIBLE_UNIX_NANOS: u64 = 1_072_915_200 * 1_000_000_000;

/// Maximum length of an accepted line in octets; gpsd's own limit is 10,240.
pub const MAX_LINE_LENGTH: usize = 16 * 1024;

/// A report of gpsd, one per line.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "class")]
pub enum GpsdReport {
    /// The greeting of gpsd.
    #[serde(rename = "VERSION")]
    Version {
        /// Release of gpsd.
        #[serde(default)]
        release: String,
    },
    /// A report of time, position and velocity (TPV).
    #[serde(rename = "TPV")]
    Tpv(Box<Tpv>),
    /// A report of a pulse per second, with the time of both clocks at the pulse.
    #[serde(rename = "PPS")]
    Pulse(ClockOffset),
    /// A report of the arrival of the first octet that the receiver sends after the end of a second, with the
    /// time of both clocks.
    #[serde(rename = "TOFF")]
    TimeOffset(ClockOffset),
    /// The list of gpsd's receivers.
    #[serde(rename = "DEVICES")]
    Devices {
        /// One object per receiver.
        #[serde(default)]
        devices: Vec<GpsdDevice>,
    },
    /// A receiver was added, changed or removed.
    #[serde(rename = "DEVICE")]
    Device(GpsdDevice),
    /// gpsd reports an invalid command or another error.
    #[serde(rename = "ERROR")]
    Error {
        /// Text of the error.
        #[serde(default)]
        message: String,
    },
    /// A report of another class.
    #[serde(other)]
    Other,
}

/// A receiver of gpsd.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct GpsdDevice {
    /// Path of the receiver.
    #[serde(default)]
    pub path: String,
    /// Time since which the receiver is in use; the number 0 if it is not in use.
    #[serde(default)]
    pub activated: serde_json::Value,
}

impl GpsdDevice {
    /// Returns whether gpsd no longer uses the receiver.
    pub fn is_unused(&self) -> bool {
        self.activated.as_f64() == Some(0.0)
    }
}

/// Times of the receiver's clock and of the clock of gpsd's machine at the same moment.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ClockOffset {
    /// Path of the receiver.
    #[serde(default)]
    pub device: String,
    real_sec: i64,
    real_nsec: i64,
    clock_sec: i64,
    clock_nsec: i64,
}

impl ClockOffset {
    /// Returns the time of gpsd's machine minus the time of the receiver, in milliseconds.
    pub fn clock_difference_ms(&self) -> i64 {
        let seconds = self.clock_sec.saturating_sub(self.real_sec);
        let nanos = self.clock_nsec.saturating_sub(self.real_nsec);
        seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000)
    }
}

/// Time, position and velocity. Values that the receiver does not know are missing.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Tpv {
    /// Path of the receiver.
    pub device: String,
    /// Kind of fix: 2 in two dimensions, 3 in three; 0 and 1 without a fix.
    pub mode: u8,
    /// Time of the fix, ISO 8601 in UTC.
    pub time: Option<String>,
    /// GPS time minus UTC in seconds, as the receiver knows it.
    pub leapseconds: Option<i64>,
    /// Latitude in degrees.
    pub lat: Option<f64>,
    /// Longitude in degrees.
    pub lon: Option<f64>,
    /// Altitude in metres above the ellipsoid.
    #[serde(rename = "altHAE")]
    pub alt_hae: Option<f64>,
    /// Speed over ground in metres per second.
    pub speed: Option<f64>,
    /// Course in degrees clockwise from true North.
    pub track: Option<f64>,
    /// Vertical speed in metres per second.
    pub climb: Option<f64>,
    /// Estimated horizontal error in metres.
    pub eph: Option<f64>,
    /// Estimated error of the longitude in metres.
    pub epx: Option<f64>,
    /// Estimated error of the latitude in metres.
    pub epy: Option<f64>,
}

impl Tpv {
    /// Returns the kind of fix that the receiver claims.
    pub fn fix_mode(&self) -> FixMode {
        match self.mode {
            0 | 1 => FixMode::None,
            2 => FixMode::TwoD,
            _ => FixMode::ThreeD,
        }
    }

    /// Returns the fix that arrived at `received`; `None` without a fix, or if the fix is incomplete or not
    /// on the globe.
    pub fn to_fix(&self, received: Time) -> Option<PositionFix> {
        self.read_fix(received).ok()
    }

    /// Returns the fix that arrived at `received`.
    ///
    /// # Errors
    /// Returns why the report has no usable fix, as a text for the operator.
    pub fn read_fix(&self, received: Time) -> Result<PositionFix, String> {
        let mode = self.fix_mode();
        if mode == FixMode::None {
            return Err("no fix".into());
        }
        let time = self.wall_time().filter(|time| time.as_unix_nanos() >= EARLIEST_CREDIBLE_UNIX_NANOS);
        let time = time.ok_or_else(|| match &self.time {
            // gpsd's text goes into the log, so escape special characters and limit its length.
            Some(text) => {
                format!("time {:?}, expected a date from 2004 on", text.chars().take(40).collect::<String>())
            }
            None => "no time".into(),
        })?;
        let degrees = |name: &str, value: Option<f64>, most: f64| match value {
            Some(value) if (-most..=most).contains(&value) => Ok(value),
            Some(value) => Err(format!("{name} {value:e}, expected -{most} to {most} degrees")),
            None => Err(format!("no {name}")),
        };
        let (latitude, longitude) =
            (degrees("latitude", self.lat, 90.0)?, degrees("longitude", self.lon, 180.0)?);
        if latitude == 0.0 && longitude == 0.0 {
            return Err("latitude 0 and longitude 0, which receivers send when they have no position".into());
        }
        let within = |value: Option<f64>, low: f64, high: f64| value.filter(|v| (low..=high).contains(v));
        let error = |value: Option<f64>| within(value, 0.0, 1e9);
        let diagonal = error(self.epx).zip(error(self.epy)).map(|(x, y)| x.hypot(y));
        Ok(PositionFix {
            received_at: received,
            time,
            latitude,
            longitude,
            altitude: within(self.alt_hae, -12_000.0, 1e8),
            speed: within(self.speed, 0.0, 12_000.0),
            course_degrees: within(self.track, -360.0, 360.0).map(|track| track.rem_euclid(360.0) % 360.0),
            climb_rate: within(self.climb, -12_000.0, 12_000.0),
            fix_mode: mode,
            confidence_radius: error(self.eph).or(diagonal),
        })
    }

    fn wall_time(&self) -> Option<WallTime> {
        self.time.as_deref().and_then(iso_date::parse)
    }
}

/// Counters of the lines that a reader has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReaderCounters {
    /// Number of valid lines, including lines of a class that carnet does not know.
    pub valid_lines: u64,
    /// Lines that are no JSON object with a `class`.
    pub invalid_lines: u64,
    /// Lines of more than [`MAX_LINE_LENGTH`] octets.
    pub overlong_lines: u64,
}

/// Splits gpsd's stream into lines and parses each line.
#[derive(Debug, Default)]
pub struct ReportReader {
    incomplete_line: Vec<u8>,
    /// Whether the reader skips the rest of a too long line.
    skips_rest_of_line: bool,
    counters: ReaderCounters,
}

impl ReportReader {
    /// Adds received octets, and passes every report that they complete to `take`.
    pub fn push(&mut self, octets: &[u8], mut take: impl FnMut(GpsdReport)) {
        let mut rest = octets;
        while let Some(end) = rest.iter().position(|octet| *octet == b'\n') {
            self.append_octets(&rest[..end]);
            rest = &rest[end + 1..];
            if !std::mem::take(&mut self.skips_rest_of_line) {
                let line = self.incomplete_line.trim_ascii();
                if !line.is_empty() {
                    match serde_json::from_slice(line) {
                        Ok(report) => {
                            self.counters.valid_lines += 1;
                            take(report);
                        }
                        Err(_) => self.counters.invalid_lines += 1,
                    }
                }
            }
            self.incomplete_line.clear();
        }
        self.append_octets(rest);
    }

    /// Appends octets to the incomplete line, up to [`MAX_LINE_LENGTH`].
    fn append_octets(&mut self, octets: &[u8]) {
        if self.skips_rest_of_line {
            return;
        }
        if self.incomplete_line.len() + octets.len() > MAX_LINE_LENGTH {
            self.counters.overlong_lines += 1;
            self.skips_rest_of_line = true;
            self.incomplete_line.clear();
        } else {
            self.incomplete_line.extend_from_slice(octets);
        }
    }

    /// Discards an incomplete line: a new connection begins with a new line.
    pub fn discard_incomplete_line(&mut self) {
        self.incomplete_line.clear();
        self.skips_rest_of_line = false;
    }

    /// Returns the counters since the start of the reader.
    pub fn counters(&self) -> ReaderCounters {
        self.counters
    }
}
