//! The clocks and the entropy that the protocol crates must be handed.
//!
//! Timers run on `CLOCK_BOOTTIME`, which goes on while the machine sleeps: a binding whose lifetime passed
//! during a suspend has expired, whatever the machine noticed of it.

use std::io;

use carnet_base::{Time, WallTime};
use nix::time::{ClockId, clock_gettime};

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

/// A seed from the kernel's random number generator, for [`carnet_base::Rng::new`].
///
/// Waits until that generator has been initialised, which matters only in the first seconds after boot.
pub fn random_seed() -> io::Result<u64> {
    let mut seed = [0u8; 8];
    let mut filled = 0;
    while filled < seed.len() {
        let rest = &mut seed[filled..];
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
    Ok(u64::from_ne_bytes(seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_forward_and_seeds_differ() {
        let (first, second) = (now(), now());
        assert!(second >= first && first > Time::ZERO);
        // 2020-01-01: a machine whose clock is further back cannot build this crate.
        assert!(wall() > WallTime::from_unix_nanos(1_577_836_800_000_000_000));
        assert!((0..100).contains(&tai_offset()));
        assert_ne!(random_seed().expect("getrandom"), random_seed().expect("getrandom"));
    }
}
