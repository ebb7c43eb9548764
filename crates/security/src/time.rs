//! Dates in certificates and headers (IEEE 1609.2 6.3.11, 6.4.14 to 6.4.16): TAI since 2004-01-01T00:00:00
//! UTC.

use std::fmt;
use std::time::Duration;

use carnet_base::WallTime;

/// 2004-01-01T00:00:00 UTC in microseconds since 1970-01-01T00:00:00 UTC, leap seconds not counted.
const EPOCH: u64 = 1_072_915_200_000_000;

/// Microseconds of TAI since 2004-01-01T00:00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Time64(pub u64);

/// Seconds of TAI since 2004-01-01T00:00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Time32(pub u32);

impl Time64 {
    /// The date; `leap_seconds` are those that UTC had since 2004, five in 2026.
    pub fn from_wall_time(date: WallTime, leap_seconds: u32) -> Time64 {
        let since = (date.as_unix_nanos() / 1000).saturating_sub(EPOCH);
        Time64(since.saturating_add(u64::from(leap_seconds) * 1_000_000))
    }

    /// On the wall clock, see [`Time64::from_wall_time`].
    pub fn to_wall_time(self, leap_seconds: u32) -> WallTime {
        let since = self.0.saturating_sub(u64::from(leap_seconds) * 1_000_000);
        WallTime::from_unix_nanos(since.saturating_add(EPOCH).saturating_mul(1000))
    }

    /// The second in which it lies.
    pub fn seconds(self) -> Time32 {
        Time32(u32::try_from(self.0 / 1_000_000).unwrap_or(u32::MAX))
    }

    /// So much later.
    pub fn saturating_add(self, span: Duration) -> Time64 {
        Time64(self.0.saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }

    /// So much earlier.
    pub fn saturating_sub(self, span: Duration) -> Time64 {
        Time64(self.0.saturating_sub(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }

    /// The span since `earlier`, zero when that is later.
    pub const fn saturating_since(self, earlier: Time64) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Time32 {
    /// The beginning of the second.
    pub fn start(self) -> Time64 {
        Time64(u64::from(self.0) * 1_000_000)
    }
}

/// A unit of [`ValidityDuration`]; the tags of the CHOICE count from 0 in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the standard's and say it")]
pub enum DurationUnit {
    Microseconds,
    Milliseconds,
    Seconds,
    Minutes,
    Hours,
    SixtyHours,
    Years,
}

impl DurationUnit {
    /// Every unit, by tag.
    pub const ALL: [DurationUnit; 7] = [
        DurationUnit::Microseconds,
        DurationUnit::Milliseconds,
        DurationUnit::Seconds,
        DurationUnit::Minutes,
        DurationUnit::Hours,
        DurationUnit::SixtyHours,
        DurationUnit::Years,
    ];

    const fn microseconds(self) -> u64 {
        match self {
            DurationUnit::Microseconds => 1,
            DurationUnit::Milliseconds => 1_000,
            DurationUnit::Seconds => 1_000_000,
            DurationUnit::Minutes => 60_000_000,
            DurationUnit::Hours => 3_600_000_000,
            DurationUnit::SixtyHours => 60 * 3_600_000_000,
            // 6.4.15: a year is 31,556,952 seconds.
            DurationUnit::Years => 31_556_952_000_000,
        }
    }
}

/// How long a certificate holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ValidityDuration {
    /// In what it is counted.
    pub unit: DurationUnit,
    /// How many of them.
    pub count: u16,
}

/// When a certificate holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ValidityPeriod {
    /// From here on.
    pub start: Time32,
    /// For so long.
    pub duration: ValidityDuration,
}

impl ValidityPeriod {
    /// The first moment after it.
    pub fn end(&self) -> Time64 {
        let length = u64::from(self.duration.count) * self.duration.unit.microseconds();
        Time64(self.start.start().0.saturating_add(length))
    }

    /// Whether the certificate holds at that moment.
    pub fn contains(&self, moment: Time64) -> bool {
        (self.start.start()..self.end()).contains(&moment)
    }

    /// The moment itself, or the beginning where the certificate does not hold then.
    pub fn nearest(&self, moment: Time64) -> Time64 {
        if self.contains(moment) { moment } else { self.start.start() }
    }

    /// Whether it lies within that of the issuer (5.1.2.4).
    pub fn is_within(&self, issuer: &ValidityPeriod) -> bool {
        self.start >= issuer.start && self.end() <= issuer.end()
    }
}

impl fmt::Display for ValidityDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            DurationUnit::Microseconds => "us",
            DurationUnit::Milliseconds => "ms",
            DurationUnit::Seconds => "s",
            DurationUnit::Minutes => "min",
            DurationUnit::Hours => "h",
            DurationUnit::SixtyHours => "x 60 h",
            DurationUnit::Years => "years",
        };
        write!(f, "{} {unit}", self.count)
    }
}
