//! Points in time: [`Time`] on a monotonic clock, and [`WallTime`] for dates. Durations are
//! `core::time::Duration`.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point on a monotonic clock, in nanoseconds since an origin that the program chooses.
///
/// Unlike `std::time::Instant`, a `Time` can be made from a number, so that a simulator or a recording can
/// supply it. Arithmetic saturates, so a huge lifetime from an attacker cannot wrap the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(u64);

impl Time {
    /// The origin of the clock.
    pub const ZERO: Time = Time(0);
    /// A time later than any event.
    pub const MAX: Time = Time(u64::MAX);

    /// Returns the time `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Returns the time `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Time {
        Time(millis.saturating_mul(1_000_000))
    }

    /// Returns the time `secs` seconds after the origin.
    pub const fn from_secs(secs: u64) -> Time {
        Time(secs.saturating_mul(1_000_000_000))
    }

    /// Returns the nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the seconds since the origin, for display.
    pub fn as_secs_f64(self) -> f64 {
        Duration::from_nanos(self.0).as_secs_f64()
    }

    /// Returns the span from `earlier` to `self`; zero if `earlier` is later.
    pub const fn saturating_since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, span: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, span: Duration) -> Time {
        Time(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}s", self.as_secs_f64())
    }
}

/// A date, in nanoseconds since the UNIX epoch (UTC). Use it only for fields on the wire that carry a date,
/// and for decisions by the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallTime(u64);

impl WallTime {
    /// Seconds between the start of NTP era 0 (1900) and the UNIX epoch (1970), RFC 5905 figure 4.
    const NTP_TO_UNIX_SECONDS: u64 = 2_208_988_800;

    /// Returns the date `nanos` nanoseconds after the UNIX epoch.
    pub const fn from_unix_nanos(nanos: u64) -> WallTime {
        WallTime(nanos)
    }

    /// Returns the nanoseconds since the UNIX epoch.
    pub const fn as_unix_nanos(self) -> u64 {
        self.0
    }

    /// Returns the 64-bit NTP timestamp (RFC 5905 6), which RFC 4285 puts into its Message-ID option. The
    /// timestamp does not contain the era: it wraps on 2036-02-07.
    pub fn to_ntp(self) -> u64 {
        let seconds = (self.0 / 1_000_000_000 + Self::NTP_TO_UNIX_SECONDS) & 0xffff_ffff;
        let fraction = ((self.0 % 1_000_000_000) << 32) / 1_000_000_000;
        (seconds << 32) | fraction
    }

    /// Returns the date of a 64-bit NTP timestamp that is nearest to `near` and not before 1970. The
    /// timestamp does not contain the era, so the caller gives it by `near` (RFC 5905 6).
    pub fn from_ntp(ntp: u64, near: WallTime) -> WallTime {
        let seconds_now = near.0 / 1_000_000_000 + Self::NTP_TO_UNIX_SECONDS;
        // Seconds from `near` to the timestamp, in the shorter direction.
        let ahead = ((ntp >> 32) as u32).wrapping_sub(seconds_now as u32).cast_signed();
        let mut seconds = i128::from(seconds_now) + i128::from(ahead) - i128::from(Self::NTP_TO_UNIX_SECONDS);
        if seconds < 0 {
            seconds += 1 << 32;
        }
        let nanos = ((ntp & 0xffff_ffff) * 1_000_000_000) >> 32;
        WallTime(u64::try_from(seconds * 1_000_000_000 + i128::from(nanos)).unwrap_or(u64::MAX))
    }

    /// Returns the absolute difference between two dates.
    pub fn absolute_difference(self, other: WallTime) -> Duration {
        Duration::from_nanos(self.0.abs_diff(other.0))
    }
}

impl Add<Duration> for WallTime {
    type Output = WallTime;
    fn add(self, span: Duration) -> WallTime {
        WallTime(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for WallTime {
    type Output = WallTime;
    fn sub(self, span: Duration) -> WallTime {
        WallTime(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_saturates_instead_of_wrapping() {
        assert_eq!(Time::MAX + Duration::from_secs(1), Time::MAX);
        assert_eq!(Time::ZERO - Duration::from_secs(1), Time::ZERO);
        assert_eq!(Time::ZERO + Duration::MAX, Time::MAX);
        assert_eq!(Time::from_secs(1).saturating_since(Time::from_secs(2)), Duration::ZERO);
    }

    #[test]
    fn ntp_timestamp_of_a_known_date() {
        // 2000-01-01T00:00:00Z is NTP second 3155673600.
        let date = WallTime::from_unix_nanos(946_684_800_500_000_000);
        assert_eq!(date.to_ntp() >> 32, 3_155_673_600);
        assert_eq!(date.to_ntp() & 0xffff_ffff, 0x8000_0000);
        assert_eq!(WallTime::from_ntp(date.to_ntp(), date), date);
    }

    /// NTP era 1 begins on 2036-02-07T06:28:16Z.
    #[test]
    fn ntp_timestamps_across_the_end_of_the_era() {
        let end = WallTime::from_unix_nanos(2_085_978_496_000_000_000);
        let before = WallTime::from_unix_nanos(end.as_unix_nanos() - 1_500_000_000);
        let after = end + Duration::from_millis(2_500);
        assert_eq!(end.to_ntp(), 0);
        assert_eq!(before.to_ntp() >> 32, 0xffff_fffe);
        assert_eq!(after.to_ntp() >> 32, 2);
        for near in [before, end, after, after + Duration::from_secs(86_400 * 365 * 60)] {
            assert_eq!(WallTime::from_ntp(before.to_ntp(), near), before);
            assert_eq!(WallTime::from_ntp(after.to_ntp(), near), after);
        }
        // A clock that was never set shows 1970. Even then, a timestamp of the present converts to the right
        // date.
        assert_eq!(WallTime::from_ntp(after.to_ntp(), WallTime::default()), after);
    }
}
