//! Dates in certificates and headers (IEEE 1609.2 6.3.11, 6.4.14 to 6.4.16): TAI since 2004-01-01T00:00:00
//! UTC.

use std::fmt;
use std::time::Duration;

use carnet_base::WallTime;

/// Microseconds from 1970-01-01T00:00:00 UTC to 2004-01-01T00:00:00 UTC, without leap seconds.
const ITS_EPOCH_MICROSECONDS: u64 = 1_072_915_200_000_000;

/// Microseconds of TAI since 2004-01-01T00:00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Time64(pub u64);

/// Seconds of TAI since 2004-01-01T00:00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Time32(pub u32);

impl Time64 {
    /// Converts a wall clock date; `leap_seconds` is the number of leap seconds of UTC since 2004, five in
    /// 2026.
    pub fn from_wall_time(date: WallTime, leap_seconds: u32) -> Time64 {
        let since = (date.as_unix_nanos() / 1000).saturating_sub(ITS_EPOCH_MICROSECONDS);
        Time64(since.saturating_add(u64::from(leap_seconds) * 1_000_000))
    }

    /// Converts to a wall-clock date: the inverse of [`Time64::from_wall_time`].
    pub fn to_wall_time(self, leap_seconds: u32) -> WallTime {
        let since = self.0.saturating_sub(u64::from(leap_seconds) * 1_000_000);
        WallTime::from_unix_nanos(since.saturating_add(ITS_EPOCH_MICROSECONDS).saturating_mul(1000))
    }

    /// Returns the date in whole seconds, rounded down.
    pub fn to_seconds(self) -> Time32 {
        Time32(u32::try_from(self.0 / 1_000_000).unwrap_or(u32::MAX))
    }

    /// Returns the date that is `span` later.
    pub fn saturating_add(self, span: Duration) -> Time64 {
        Time64(self.0.saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }

    /// Returns the date that is `span` earlier.
    pub fn saturating_sub(self, span: Duration) -> Time64 {
        Time64(self.0.saturating_sub(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }

    /// Returns the span since `earlier`; zero if `earlier` is later.
    pub const fn saturating_since(self, earlier: Time64) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Time32 {
    /// Returns the date at which this second begins, in microseconds.
    pub fn start_of_second(self) -> Time64 {
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
    /// Every unit, in the order of the tags.
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
            // 6.4.15: a year has 31,556,952 seconds.
            DurationUnit::Years => 31_556_952_000_000,
        }
    }
}

/// Duration of a certificate's validity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ValidityDuration {
    /// Unit of the duration.
    pub unit: DurationUnit,
    /// Number of units.
    pub unit_count: u16,
}

/// Validity of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ValidityPeriod {
    /// Beginning of the validity.
    pub start: Time32,
    /// Duration of the validity.
    pub duration: ValidityDuration,
}

impl ValidityPeriod {
    /// Returns the first date that is no longer in the period.
    pub fn first_invalid_time(&self) -> Time64 {
        let length = u64::from(self.duration.unit_count) * self.duration.unit.microseconds();
        Time64(self.start.start_of_second().0.saturating_add(length))
    }

    /// Returns whether the certificate is valid at a moment.
    pub fn contains_time(&self, moment: Time64) -> bool {
        (self.start.start_of_second()..self.first_invalid_time()).contains(&moment)
    }

    /// Returns the moment if it is in the period, otherwise the beginning of the period.
    pub fn nearest_valid_time(&self, moment: Time64) -> Time64 {
        if self.contains_time(moment) { moment } else { self.start.start_of_second() }
    }

    /// Returns whether this period lies within the issuer's period (5.1.2.4).
    pub fn is_within(&self, issuer: &ValidityPeriod) -> bool {
        self.start >= issuer.start && self.first_invalid_time() <= issuer.first_invalid_time()
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
        write!(f, "{} {unit}", self.unit_count)
    }
}
