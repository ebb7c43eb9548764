//! Finds the number of leap seconds, by which UTC differs from the time of position vectors.
//!
//! A position vector counts milliseconds of TAI since 2004-01-01T00:00:00 UTC (EN 302 636-4-1 9.5.2), but
//! receivers and system clocks give UTC. The difference is the number of leap seconds since 2004, five in
//! 2026. carnet takes the number from these sources, in this order:
//!
//! 1. gpsd, whose reports carry GPS time minus UTC (`leapseconds`, 13 on 2004-01-01), if the result is not
//!    below the configured number. After a cold start a receiver reports the value in its firmware until it
//!    has received the almanac, up to 12.5 minutes.
//! 2. the kernel, whose TAI offset (32 on 2004-01-01) an NTP or PTP daemon may have set, if the result is not
//!    below the configured number. Without such a daemon the kernel reports 0.
//! 3. the configured number, by default [`Timestamp::LEAP_SECONDS`].
//!
//! If UTC ever gets a negative leap second, the operator must lower the configured number.
//!
//! [`Timestamp::LEAP_SECONDS`]: carnet_wire::geonet::Timestamp::LEAP_SECONDS

/// GPS time minus UTC on 2004-01-01 in seconds.
const GPS_LEAP_SECONDS_IN_2004: i64 = 13;
/// TAI minus UTC on 2004-01-01 in seconds.
const TAI_OFFSET_IN_2004: i64 = 32;
/// Largest number of leap seconds beyond the configured number that carnet accepts. Since 1980 there was at
/// most one a year.
const MAX_NEW_LEAP_SECONDS: i64 = 20;

/// Converts gpsd's `leapseconds` to leap seconds since 2004. Returns `None` if the result is below the
/// configured number `known`, or more than `MAX_NEW_LEAP_SECONDS` above it.
pub fn from_gps_offset(gps_minus_utc: i64, known: i64) -> Option<i64> {
    credible_leap_seconds(gps_minus_utc.saturating_sub(GPS_LEAP_SECONDS_IN_2004), known)
}

/// Converts a TAI offset to leap seconds since 2004. Returns `None` if the result is below the configured
/// number `known`, or more than `MAX_NEW_LEAP_SECONDS` above it.
pub fn from_tai_offset(tai_minus_utc: i64, known: i64) -> Option<i64> {
    credible_leap_seconds(tai_minus_utc.saturating_sub(TAI_OFFSET_IN_2004), known)
}

fn credible_leap_seconds(leap_seconds: i64, known: i64) -> Option<i64> {
    (known..=known.saturating_add(MAX_NEW_LEAP_SECONDS)).contains(&leap_seconds).then_some(leap_seconds)
}

/// Returns the leap seconds since 2004 by the kernel's TAI offset if it is plausible, otherwise the
/// configured number `known`.
pub fn leap_seconds_since_2004(known: i64, tai_minus_utc: i64) -> i64 {
    from_tai_offset(tai_minus_utc, known).unwrap_or(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use carnet_wire::geonet::Timestamp;

    #[test]
    fn tai_offset_is_five_seconds_since_2004() {
        assert_eq!(from_gps_offset(18, 5), Some(5));
        assert_eq!(from_tai_offset(37, 5), Some(5));
        assert_eq!(leap_seconds_since_2004(5, 37), 5);
    }

    #[test]
    fn future_leap_second_is_accepted_and_outdated_offset_ignored() {
        assert_eq!(from_gps_offset(19, 5), Some(6));
        for wrong in [0, 13, 16, 17, 60, -18, i64::MIN, i64::MAX] {
            assert_eq!(from_gps_offset(wrong, 5), None, "{wrong}");
        }
        assert_eq!(leap_seconds_since_2004(5, 0), 5);
        assert_eq!(leap_seconds_since_2004(6, 37), 6);
        assert_eq!(leap_seconds_since_2004(6, 38), 6);
        assert_eq!(leap_seconds_since_2004(6, 39), 7);
        // UTC has had a negative leap second: the kernel reports a TAI offset of 36 s instead of 37 s.
        assert_eq!(leap_seconds_since_2004(4, 36), 4);
    }

    /// 2026-11-21T12:00:00Z; the expected value was computed by hand from the standard.
    #[test]
    fn known_date_has_its_leap_seconds() {
        assert_eq!(
            Timestamp::from_unix_milliseconds(1_795_262_400_000, leap_seconds_since_2004(5, 37)).0,
            0x2F3F_A188
        );
    }
}
