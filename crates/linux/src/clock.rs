//! The clocks and the entropy that the protocol crates must be handed.
//!
//! Timers run on `CLOCK_BOOTTIME`, which continues while the machine sleeps. So a binding whose lifetime
//! ended during a suspend has expired.

use std::io;

use carnet_base::{Time, WallTime};
use nix::time::{ClockId, clock_getres, clock_gettime};

/// Nanoseconds that a clock shows; 0 where the kernel refuses the clock, which none since 2.6.39 does.
fn nanos(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |t| {
        let seconds = u64::try_from(t.tv_sec()).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(t.tv_nsec()).unwrap_or(0))
    })
}

/// The monotonic time since the machine was started, time asleep included.
pub fn now() -> Time {
    Time::from_nanos(nanos(ClockId::CLOCK_BOOTTIME))
}

/// The kernel's other monotonic time, without the time asleep: that of BPF programs.
pub(crate) fn monotonic() -> Time {
    Time::from_nanos(nanos(ClockId::CLOCK_MONOTONIC))
}

/// How often in a second the kernel's timer ticks (`CONFIG_HZ`): a coarse clock shows each tick. The least
/// that kernels are built with where it does not tell.
pub(crate) fn ticks_of_a_second() -> u32 {
    const LEAST: u32 = 100;
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).map_or(0, |tick| tick.tv_nsec());
    match u32::try_from(tick) {
        // Rounded: a third of ten milliseconds is shown as 3,333,333 ns.
        Ok(tick @ 1..=10_000_000) => (1_000_000_000 + tick / 2) / tick,
        _ => LEAST,
    }
}

/// The date.
pub fn wall() -> WallTime {
    WallTime::from_unix_nanos(nanos(ClockId::CLOCK_REALTIME))
}

/// TAI minus UTC in seconds as the kernel has it: 0 where no NTP or PTP daemon has told it.
pub fn tai_offset() -> i64 {
    let utc = nanos(ClockId::CLOCK_REALTIME);
    let tai = nanos(ClockId::CLOCK_TAI);
    // Rounded, because some time passes between the two readings.
    (tai.saturating_sub(utc).saturating_add(500_000_000) / 1_000_000_000) as i64
}

/// Octets from the kernel's random number generator.
///
/// Waits until that generator has been initialised, which matters only in the first seconds after boot.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut octets = [0; N];
    let mut filled = 0;
    while filled < octets.len() {
        let rest = &mut octets[filled..];
        // SAFETY: `rest` is a live, writable slice of exactly the length given.
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
        // 2020-01-01: a machine whose clock is further back cannot build this crate.
        assert!(wall() > WallTime::from_unix_nanos(1_577_836_800_000_000_000));
        assert!((0..100).contains(&tai_offset()));
        assert_ne!(random::<8>().expect("getrandom"), random::<8>().expect("getrandom"));
        assert!((100..=10_000).contains(&ticks_of_a_second()), "{}", ticks_of_a_second());
    }
}
