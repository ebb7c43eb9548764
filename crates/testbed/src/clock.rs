//! Reads the clocks that the lab uses, and sleeps.
//!
//! All times are nanoseconds of the kernel's monotonic clock, which all nodes of a testbed share. So a
//! one-way delay is a plain difference. Wall-clock time serves only for the heading of a report and for the
//! time stamps of `ping -D`.

use nix::sys::socket::{ControlMessageOwned, LinkAddr, RecvMsg};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;
/// Nanoseconds in a millisecond.
pub const MILLISECOND: u64 = 1_000_000;

fn read_clock(clock: ClockId) -> u64 {
    // Every Linux has both clocks, so the call fails only for a wrong clock number.
    let t = clock_gettime(clock).expect("the system clock can be read");
    (t.tv_sec() as u64) * SECOND + t.tv_nsec() as u64
}

/// Returns nanoseconds on the monotonic clock.
pub fn monotonic_now() -> u64 {
    read_clock(ClockId::CLOCK_MONOTONIC)
}

/// Returns nanoseconds since 1970 on the wall clock.
pub fn realtime_now() -> u64 {
    read_clock(ClockId::CLOCK_REALTIME)
}

/// Returns the difference from the wall clock to the monotonic one, in nanoseconds. The difference changes
/// when a program sets the wall clock.
pub fn wall_to_monotonic_offset() -> i64 {
    monotonic_now() as i64 - realtime_now() as i64
}

/// Returns when the kernel received this frame, on the monotonic clock. Returns the present time for a frame
/// without a stamp. The kernel's stamp (`SO_TIMESTAMPNS`) is a time of the wall clock; `shift` is the result
/// of [`wall_to_monotonic_offset`].
pub fn arrival_time(message: &RecvMsg<'_, '_, LinkAddr>, shift: i64) -> u64 {
    let stamp = message.cmsgs().ok().into_iter().flatten().find_map(|c| match c {
        ControlMessageOwned::ScmTimestampns(t) => Some(t),
        _ => None,
    });
    stamp.map_or_else(monotonic_now, |t| {
        let wall = t.tv_sec() * SECOND as i64 + t.tv_nsec();
        u64::try_from(wall + shift).unwrap_or(0)
    })
}

/// Sleeps until the monotonic clock shows `at` nanoseconds; returns at once if that time has passed.
pub fn sleep_until(at: u64) {
    let t = TimeSpec::new((at / SECOND) as _, (at % SECOND) as _);
    // If a signal interrupts the sleep, sleep again until `at`.
    while clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &t).is_err()
        && monotonic_now() < at
    {}
}

/// Sleeps for `duration` nanoseconds.
pub fn sleep(duration: u64) {
    sleep_until(monotonic_now() + duration);
}

/// Formats a wall-clock time as `2026-01-31 12:34:56 UTC`.
pub fn format_utc(ns: u64) -> String {
    let seconds = ns / SECOND;
    let (days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
    // Converts days to a civil date, counting in eras of 400 years that begin on March 1.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let m = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * m + 2) / 5 + 1;
    let month = if m < 10 { m + 3 } else { m - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_unix_times_are_formatted_as_utc() {
        assert_eq!(format_utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(format_utc(951_782_400 * SECOND), "2000-02-29 00:00:00 UTC");
        assert_eq!(format_utc(1_798_761_599 * SECOND), "2026-12-31 23:59:59 UTC");
    }

    #[test]
    fn sleep_until_a_past_time_returns_at_once() {
        let before = monotonic_now();
        sleep_until(before.saturating_sub(SECOND));
        assert!(monotonic_now() - before < SECOND);
    }
}
