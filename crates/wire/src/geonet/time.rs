//! Timestamps of position vectors (clause 9.5.2 table 2 and annex C.2).
//!
//! A timestamp counts milliseconds of International Atomic Time since 2004-01-01T00:00:00 UTC, modulo 2^32:
//! the count wraps every 49.7 days. TAI has no leap seconds, and UTC has had five since 2004. Until the next
//! leap second a timestamp is therefore five seconds ahead of a count of UTC seconds. Some stations omit the
//! five seconds, others add all 37 s by which TAI differs from UTC. Two timestamps of one such station still
//! compare correctly.

use std::time::Duration;

/// Milliseconds of TAI since 2004-01-01T00:00:00 UTC, modulo 2^32.
///
/// The type has no total order, because the numbers wrap: see [`Timestamp::is_newer_than`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Timestamp(pub u32);

/// The largest timestamp, called TSTmax in annex C.2.
const MAX: u32 = u32::MAX;

impl Timestamp {
    /// 2004-01-01T00:00:00 UTC in milliseconds since 1970-01-01T00:00:00 UTC, without leap seconds.
    pub const EPOCH_UNIX_MILLISECONDS: i64 = 1_072_915_200_000;

    /// Number of leap seconds from 2004 until the latest leap second, 2016-12-31.
    pub const LEAP_SECONDS: i64 = 5;

    /// Returns the timestamp of a UTC time. `milliseconds` counts from 1970-01-01T00:00:00 without leap
    /// seconds, as the system clock does. `leap_seconds` is the number of leap seconds since 2004
    /// ([`Timestamp::LEAP_SECONDS`]).
    pub const fn from_unix_milliseconds(milliseconds: i64, leap_seconds: i64) -> Timestamp {
        let since = milliseconds
            .wrapping_sub(Timestamp::EPOCH_UNIX_MILLISECONDS)
            .wrapping_add(leap_seconds.wrapping_mul(1000));
        // The cast takes the low 32 bits: the value modulo 2^32, also for a negative number.
        Timestamp(since as u32)
    }

    /// Returns whether this timestamp is later than the other by annex C.2: it is ahead by less than 2^31 ms,
    /// modulo 2^32. If the two timestamps differ by exactly 2^31 ms, the smaller number is the later one. A
    /// timestamp is not newer than itself.
    pub const fn is_newer_than(self, other: Timestamp) -> bool {
        (self.0 > other.0 && self.0 - other.0 <= MAX / 2) || (other.0 > self.0 && other.0 - self.0 > MAX / 2)
    }

    /// Returns the milliseconds from the other timestamp to this one, negative if this one is older. The
    /// result lies within 2^31 ms (24.8 days) and agrees with [`Timestamp::is_newer_than`].
    pub const fn milliseconds_since(self, other: Timestamp) -> i64 {
        let ahead = self.0.wrapping_sub(other.0);
        if self.is_newer_than(other) {
            ahead as i64
        } else {
            ahead as i64 - if ahead == 0 { 0 } else { 1 << 32 }
        }
    }

    /// Returns the timestamp that is `duration` later, without fractions of a millisecond.
    pub const fn wrapping_add(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.wrapping_add(duration.as_millis() as u32))
    }

    /// Returns the timestamp that is `duration` earlier, without fractions of a millisecond.
    pub const fn wrapping_sub(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.wrapping_sub(duration.as_millis() as u32))
    }
}
