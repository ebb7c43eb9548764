//! The timestamp of a handshake, and the path number in it.
//!
//! WireGuard's handshake carries a TAI64N timestamp: 64 bits of seconds and 32 bits of nanoseconds. The
//! responder only checks that the timestamp is later than the previous one. WireGuard in Linux and in Go sets
//! the low 24 bits of the nanoseconds to zero, because exact times of a sender help attackers. This module
//! writes a mark of 16 bits and the path number into these 24 bits. The handshake encrypts and authenticates
//! the timestamp. So an attacker cannot change the number, and a recorded handshake opens only its own path.

use std::time::{Duration, Instant};

use carnet_base::Time;

use crate::PathNumber;

/// Least difference between two timestamps of one sender and path, nanoseconds.
const TIMESTAMP_STEP: u32 = 1 << 24;
/// The bits 8 to 23 of the nanoseconds of a timestamp with a path number: "CA" in ASCII.
const PATH_NUMBER_MARK: u32 = 0x4341 << 8;
/// Latest date with which an engine starts. A damaged file may contain a later date, which would overflow the
/// timestamps.
const LATEST_START_DATE: Duration = Duration::from_secs(1 << 40);
/// Nanoseconds of one second.
const NANOSECONDS_PER_SECOND: u32 = 1_000_000_000;
// Check that no timestamp reaches the next second. The nanoseconds are a multiple of `TIMESTAMP_STEP`, plus
// the mark and the path number in the lower bits.
const _: () = assert!(
    (NANOSECONDS_PER_SECOND - 1) / TIMESTAMP_STEP * TIMESTAMP_STEP + PATH_NUMBER_MARK + 0xff
        < NANOSECONDS_PER_SECOND
);

/// The timestamp of a handshake initiation: seconds in the upper 64 bits, nanoseconds in the lower 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandshakeTimestamp(pub u128);

impl HandshakeTimestamp {
    /// Returns the path number in the timestamp; 0 if the timestamp has no mark.
    pub fn path_number(self) -> u8 {
        let nanos = self.0 as u32;
        if nanos & (TIMESTAMP_STEP - 1) & !0xff == PATH_NUMBER_MARK { nanos as u8 } else { 0 }
    }
}

/// Clock of handshakes: the caller's monotonic time, and the date that belongs to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandshakeClock {
    /// The library's time that corresponds to [`Time::ZERO`]. Only differences to this time matter, so its
    /// value has no meaning.
    instant_at_zero: Instant,
    /// The caller's time at the start of the engine.
    started_at: Time,
    /// The date at the start of the engine, as time since the UNIX epoch.
    unix_time_at_start: Duration,
}

impl HandshakeClock {
    pub(crate) fn new(start: Time, unix: Duration) -> HandshakeClock {
        HandshakeClock {
            instant_at_zero: Instant::now(),
            started_at: start,
            unix_time_at_start: unix.min(LATEST_START_DATE),
        }
    }

    /// Converts the caller's time to the library's time.
    pub(crate) fn instant_of(&self, now: Time) -> Instant {
        self.instant_at_zero + Duration::from_nanos(now.as_nanos())
    }

    /// Converts the library's time to the caller's time.
    pub(crate) fn time_of_instant(&self, instant: Instant) -> Time {
        Time::ZERO + instant.saturating_duration_since(self.instant_at_zero)
    }

    /// Returns the caller's time at the start, and the date at the start as time since the UNIX epoch.
    pub(crate) fn start_time_and_date(&self) -> (Time, Duration) {
        (self.started_at, self.unix_time_at_start)
    }

    /// Returns the first time not before `now` at which the date has the mark and `number` in its
    /// nanoseconds. This time is at most 17 ms after `now`, except at the end of a second.
    pub(crate) fn next_time_with_path_number(&self, now: Time, number: PathNumber) -> Time {
        let date = self.unix_time_at_start + now.saturating_since(self.started_at);
        let low = PATH_NUMBER_MARK | u32::from(number.get());
        let nanos = date.subsec_nanos();
        let mut marked = (nanos / TIMESTAMP_STEP * TIMESTAMP_STEP) | low;
        if marked < nanos {
            marked += TIMESTAMP_STEP;
        }
        let marked = if marked < NANOSECONDS_PER_SECOND {
            Duration::new(date.as_secs(), marked)
        } else {
            Duration::new(date.as_secs() + 1, low)
        };
        self.started_at + (marked - self.unix_time_at_start)
    }

    /// Returns the date at `now`, as the time since the UNIX epoch.
    pub(crate) fn unix_time_at(&self, now: Time) -> Duration {
        self.unix_time_at_start + now.saturating_since(self.started_at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn timestamp_of_another_implementation_has_no_path_number() {
        assert_eq!(HandshakeTimestamp(0x4000_0000_0000_002a_3b00_0000).path_number(), 0);
        assert_eq!(HandshakeTimestamp(0x4000_0000_0000_002a_3b43_4107).path_number(), 7);
        assert_eq!(HandshakeTimestamp(0x4000_0000_0000_002a_3b43_4207).path_number(), 0);
    }

    #[test]
    fn damaged_stored_date_causes_no_timestamp_overflow() {
        let clock = HandshakeClock::new(Time::ZERO, Duration::MAX);
        let number = PathNumber::new(3).expect("in range");
        assert!(
            clock.unix_time_at(clock.next_time_with_path_number(Time::from_secs(1), number))
                > LATEST_START_DATE
        );
    }

    proptest! {
        #[test]
        fn handshake_timestamp_contains_path_number_and_never_decreases(
            unix in 0u64..4_000_000_000_000_000_000,
            steps in proptest::collection::vec(0u64..2_000_000_000, 1..20),
            number in 0u8..=PathNumber::MAX_NUMBER,
        ) {
            let number = PathNumber::new(number).expect("in range");
            let clock = HandshakeClock::new(Time::from_secs(5), Duration::from_nanos(unix));
            let (mut now, mut last) = (Time::from_secs(5), Time::ZERO);
            for step in steps {
                now += Duration::from_nanos(step);
                let marked = clock.next_time_with_path_number(now, number);
                prop_assert!(marked >= now && marked >= last);
                prop_assert!(marked.saturating_since(now) <= Duration::from_millis(30));
                let date = clock.unix_time_at(marked);
                let timestamp = HandshakeTimestamp(u128::from(date.as_secs()) << 32
                    | u128::from(date.subsec_nanos()));
                prop_assert_eq!(timestamp.path_number(), number.get());
                last = marked;
            }
        }
    }
}
