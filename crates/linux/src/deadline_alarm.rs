//! An alarm with the precision of the kernel's timers.
//!
//! A runtime's own timers count milliseconds and round up. That is too coarse for the farthest receiver of a
//! broadcast, which repeats it after one millisecond (EN 302 636-4-1 annex F.3). The alarm is a `timerfd` on
//! the clock of [`crate::clock::now`], watched by the runtime.
//!
//! A deadline that stays the same or moves to a later time costs no system call. If the deadline has moved to
//! a later time, the timer expires once too early, and the alarm sets it again.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use carnet_base::Time;
use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::unix::AsyncFd;

use crate::async_descriptor::{DescriptorOwner, watch_readable};
use crate::clock;
use crate::error::{Error, Result};

/// Wakes the task that awaits [`DeadlineAlarm::wait_until`] when a deadline has passed.
#[derive(Debug)]
pub struct DeadlineAlarm {
    deadline_timer: AsyncFd<Timer>,
    /// Time for which the kernel's timer is set.
    timer_deadline: Option<Time>,
}

#[derive(Debug)]
struct Timer(TimerFd);

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl DescriptorOwner for Timer {}

impl DeadlineAlarm {
    /// Creates an alarm without a deadline. The calling thread must belong to a tokio runtime.
    ///
    /// # Errors
    ///
    /// Fails if the kernel creates no timer.
    pub fn new() -> Result<DeadlineAlarm> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)
            .map_err(io::Error::from)
            .and_then(|timer| watch_readable(Timer(timer)))
            .map_err(|e| Error::from_kernel_refusal("make a timer", e))?;
        Ok(DeadlineAlarm { deadline_timer: timer, timer_deadline: None })
    }

    /// Waits until `deadline`; with `None`, never returns. The future may be dropped; the next call may have
    /// another deadline.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses to set the timer.
    pub async fn wait_until(&mut self, deadline: Option<Time>) -> Result<()> {
        let Some(deadline) = deadline else { return std::future::pending().await };
        let failed = |e: io::Error| Error::from_kernel_refusal("wait for a timer", e);
        loop {
            if self.timer_deadline.is_none_or(|set| set > deadline) {
                self.set_timer(deadline).map_err(|e| failed(e.into()))?;
            }
            let mut guard = self.deadline_timer.readable().await.map_err(failed)?;
            // After this read, the timer's descriptor is readable only when the timer expires again.
            match guard.get_inner().0.wait() {
                Ok(()) => self.timer_deadline = None,
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(error) => return Err(failed(error.into())),
            }
            guard.clear_ready();
            if self.timer_deadline.is_none() && deadline <= clock::now() {
                return Ok(());
            }
        }
    }

    fn set_timer(&mut self, deadline: Time) -> nix::Result<()> {
        // The kernel disarms a timer that is set to zero.
        let nanoseconds = deadline.as_nanos().max(1);
        let time = TimeSpec::new((nanoseconds / 1_000_000_000) as _, (nanoseconds % 1_000_000_000) as _);
        self.deadline_timer
            .get_ref()
            .0
            .set(Expiration::OneShot(time), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        self.timer_deadline = Some(deadline);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn run_with_runtime(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(test);
    }

    #[test]
    fn alarm_fires_at_its_deadline() {
        run_with_runtime(async {
            let mut alarm = DeadlineAlarm::new().expect("an alarm");
            for _ in 0..50 {
                let due = clock::now() + Duration::from_micros(700);
                alarm.wait_until(Some(due)).await.expect("a timer");
                assert!(clock::now() >= due);
            }
        });
    }

    #[test]
    fn a_deadline_may_be_past_or_move_in_either_direction() {
        run_with_runtime(async {
            let mut alarm = DeadlineAlarm::new().expect("an alarm");
            alarm.wait_until(Some(Time::ZERO)).await.expect("a timer");
            let start = clock::now();
            let never = timeout(Duration::from_millis(5), alarm.wait_until(None)).await;
            assert!(never.is_err());
            let far =
                timeout(Duration::from_millis(5), alarm.wait_until(Some(start + Duration::from_secs(60))))
                    .await;
            assert!(far.is_err());
            let near = start + Duration::from_millis(30);
            timeout(Duration::from_secs(20), alarm.wait_until(Some(near)))
                .await
                .expect("in time")
                .expect("a timer");
            assert!(clock::now() >= near);
            // The deadline of the second wait is later than that of the first.
            let (early, late) =
                (clock::now() + Duration::from_millis(20), clock::now() + Duration::from_millis(60));
            let cut = timeout(Duration::from_millis(1), alarm.wait_until(Some(early))).await;
            assert!(cut.is_err());
            alarm.wait_until(Some(late)).await.expect("a timer");
            assert!(clock::now() >= late);
        });
    }
}
