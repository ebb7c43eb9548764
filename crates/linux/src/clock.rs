//! Clocks and random numbers of the kernel, which a program passes to the protocol crates.
//!
//! Timers run on `CLOCK_BOOTTIME`, which continues while the machine sleeps. So a binding whose lifetime
//! ended during a suspend has expired.

use std::io;

use carnet_base::{Time, WallTime};
use nix::time::{ClockId, clock_getres, clock_gettime};

/// Returns the time of a clock in nanoseconds; 0 if the kernel lacks the clock, which is true only before
/// 2.6.39.
fn clock_nanoseconds(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |t| {
        let seconds = u64::try_from(t.tv_sec()).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(t.tv_nsec()).unwrap_or(0))
    })
}

/// Returns the monotonic time since the start of the machine, including the time in suspend.
pub fn now() -> Time {
    Time::from_nanos(clock_nanoseconds(ClockId::CLOCK_BOOTTIME))
}

/// Returns the kernel's monotonic time without the time in suspend, which BPF programs use.
pub(crate) fn monotonic_time() -> Time {
    Time::from_nanos(clock_nanoseconds(ClockId::CLOCK_MONOTONIC))
}

/// Returns the ticks per second of the kernel's timer (`CONFIG_HZ`), from the resolution of a coarse clock.
/// If the kernel does not report the resolution, returns the lowest rate that kernels use.
pub(crate) fn ticks_per_second() -> u32 {
    const LOWEST_TICK_RATE: u32 = 100;
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).map_or(0, |tick| tick.tv_nsec());
    match u32::try_from(tick) {
        // Rounds the quotient, because the kernel truncates a tick of 1/300 s to 3,333,333 ns.
        Ok(tick @ 1..=10_000_000) => (1_000_000_000 + tick / 2) / tick,
        _ => LOWEST_TICK_RATE,
    }
}

/// Returns the wall-clock time (`CLOCK_REALTIME`).
pub fn wall_time() -> WallTime {
    WallTime::from_unix_nanos(clock_nanoseconds(ClockId::CLOCK_REALTIME))
}

/// Returns the kernel's value of TAI minus UTC in seconds; 0 if no NTP or PTP daemon has set it.
pub fn tai_offset() -> i64 {
    let utc = clock_nanoseconds(ClockId::CLOCK_REALTIME);
    let tai = clock_nanoseconds(ClockId::CLOCK_TAI);
    // Round to whole seconds, because the TAI clock and the UTC clock are not read at the same moment.
    (tai.saturating_sub(utc).saturating_add(500_000_000) / 1_000_000_000) as i64
}

/// Returns random octets of the kernel.
///
/// The call waits until the kernel has initialised its generator, which can take seconds after boot.
pub fn random_octets<const N: usize>() -> io::Result<[u8; N]> {
    let mut octets = [0; N];
    let mut filled = 0;
    while filled < octets.len() {
        let rest = &mut octets[filled..];
        // SAFETY: `rest` is a live, writable slice of exactly the given length.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => filled += got,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_forward_and_random_octets_differ() {
        let (first, second) = (now(), now());
        assert!(second >= first && first > Time::ZERO);
        // 2020-01-01. The date of a machine that builds this crate is later.
        assert!(wall_time() > WallTime::from_unix_nanos(1_577_836_800_000_000_000));
        assert!((0..100).contains(&tai_offset()));
        assert_ne!(random_octets::<8>().expect("getrandom"), random_octets::<8>().expect("getrandom"));
        assert!((100..=10_000).contains(&ticks_per_second()), "{}", ticks_per_second());
    }
}
