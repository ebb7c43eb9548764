//! Computes positions from gpsd's reports, without I/O.
//!
//! The tracker receives reports, connections and the time, and returns [`PositionEvent`]s:
//!
//! * **One receiver at a time.** The tracker uses the receiver that gave the last fix as long as it sends
//!   reports. It ignores other receivers meanwhile, so that positions do not jump between two antennas.
//! * **Silence.** A fix that is older than `stale_after` is lost, even if gpsd still lists the receiver.
//! * **A receiver that repeats itself.** A report with the same time as an earlier report is no new fix.
//!   After `stale_after` without a new fix the position is lost, and the event names the receiver as the
//!   cause. A receiver's time may step back for good, for example when a week number rolls over or a
//!   recording begins again. Once the position is lost, the tracker accepts the receiver's fixes again as
//!   soon as its time advances.
//! * **Invalid fixes** (no time, a place that is not on the globe) count as silence of the receiver. When the
//!   position is lost, the event contains the error.
//! * **The clock.** Every fix has the receiver's time, which the tracker compares with the system clock. The
//!   difference contains the delay of the report, so its tolerance is large. A report of a pulse per second
//!   (`PPS`, otherwise `TOFF`) from a gpsd on this machine is more precise, so the tracker prefers it. Bursts
//!   of old reports, as after the process was stopped, do not prove a wrong clock. The clock must be wrong
//!   for [`CLOCK_WARNING_DELAY`] before an event reports it.
//! * **Leap seconds**: the tracker reports their number, see [`super::leap_second_checks`].

use std::collections::VecDeque;
use std::time::Duration;

use carnet_base::{Time, WallTime};

use super::gpsd::{ClockOffset, GpsdReport, Tpv};
use super::{
    ClockDifference, FixMode, PositionEvent, PositionLossReason, PositionOptions, leap_second_checks,
};

/// Time for which the clock must be wrong before carnet reports it.
pub const CLOCK_WARNING_DELAY: Duration = Duration::from_secs(2);

/// Time for which carnet uses the last report of a pulse per second.
const PULSE_LIFETIME: Duration = Duration::from_secs(10);

/// Maximum number of letters of a receiver's name in an event.
const MAX_RECEIVER_NAME: usize = 64;

/// Selects one of the receivers of a gpsd, and computes positions from its reports.
#[derive(Debug)]
pub struct FixTracker {
    options: PositionOptions,
    leap_seconds: i64,
    fix_mode: FixMode,
    /// Reason of the last reported loss of the position; `None` while there is a position.
    lost_reason: Option<PositionLossReason>,
    /// Receiver of the last fix.
    receiver_device: String,
    /// Time at which the last fix arrived.
    last_fix_at: Option<Time>,
    /// Receiver's time in the last fix.
    last_fix_time: Option<WallTime>,
    /// Receiver's time in the last valid report, even if this report had no new fix; `None` before the first
    /// report.
    last_report_time: Option<WallTime>,
    /// Fault of the last report without a fix, and the time of this report; `None` after a fix.
    last_fault: Option<(Time, PositionLossReason)>,
    /// Time at which the receiver counts as silent.
    receiver_deadline: Option<Time>,
    /// Last comparison of receiver's clock and system clock, from a gpsd on this machine; `None` before the
    /// first comparison. It has the time of the report, the difference in milliseconds, and whether a pulse
    /// per second was used.
    last_clock_comparison: Option<(Time, i64, bool)>,
    /// Time since which the system clock has seemed wrong; `None` while it seems right.
    clock_suspect_since: Option<Time>,
    /// Difference that the last event about the clock reported; `None` before such an event.
    reported_clock_difference: Option<ClockDifference>,
    events: VecDeque<PositionEvent>,
    incomplete_reports: u64,
}

impl FixTracker {
    /// Creates a tracker without a receiver.
    pub fn new(options: PositionOptions) -> FixTracker {
        FixTracker {
            leap_seconds: options.leap_seconds,
            options,
            fix_mode: FixMode::None,
            lost_reason: None,
            receiver_device: String::new(),
            last_fix_at: None,
            last_fix_time: None,
            last_report_time: None,
            last_fault: None,
            receiver_deadline: None,
            last_clock_comparison: None,
            clock_suspect_since: None,
            reported_clock_difference: None,
            events: VecDeque::new(),
            incomplete_reports: 0,
        }
    }

    /// Handles a new connection to gpsd.
    pub fn handle_connected(&mut self, now: Time) {
        self.receiver_deadline = Some(now + self.options.stale_after);
    }

    /// Handles a broken connection to gpsd, or a failed attempt to connect.
    pub fn handle_disconnected(&mut self, reason: String) {
        self.last_clock_comparison = None;
        self.report_loss(PositionLossReason::Disconnected(reason));
    }

    /// Handles a report of gpsd. `wall` is the system clock; `local` says whether gpsd runs on this machine.
    pub fn handle_report(&mut self, now: Time, wall: WallTime, report: &GpsdReport, local: bool) {
        match report {
            GpsdReport::Version { release } => {
                self.events.push_back(PositionEvent::Connected { release: release.clone() });
            }
            GpsdReport::Tpv(tpv) => self.handle_tpv(now, wall, tpv),
            GpsdReport::Pulse(offset) => self.handle_clock_offset(now, offset, true, local),
            GpsdReport::TimeOffset(offset) => self.handle_clock_offset(now, offset, false, local),
            GpsdReport::Devices { devices } => {
                if devices.is_empty() {
                    self.report_loss(PositionLossReason::NoDevice);
                }
            }
            GpsdReport::Device(device) => {
                if device.is_unused()
                    && (device.path == self.receiver_device || self.receiver_device.is_empty())
                {
                    self.report_loss(PositionLossReason::NoDevice);
                }
            }
            GpsdReport::Error { message } => tracing::warn!("gpsd: {message}"),
            GpsdReport::Other => {}
        }
    }

    /// Handles the time `now`; the caller calls this at the time that [`FixTracker::poll_timeout`] returns.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.receiver_deadline.is_some_and(|deadline| deadline <= now) {
            // gpsd repeats its last report once when a receiver becomes silent. So an old fault means that
            // the receiver is silent, and a recent fault means that the receiver still sends.
            let goes_on = |at: Time| now.saturating_since(at) <= self.options.stale_after / 2;
            let fault = self.last_fault.take().filter(|(at, _)| goes_on(*at));
            self.report_loss(fault.map_or(PositionLossReason::Stale, |(_, fault)| fault));
        }
    }

    /// Returns the time at which the caller must call [`FixTracker::handle_timeout`]; `None` if no call is
    /// due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.receiver_deadline
    }

    /// Returns the next event, if any.
    pub fn poll_event(&mut self) -> Option<PositionEvent> {
        self.events.pop_front()
    }

    /// Returns the number of leap seconds since 2004, by gpsd or by the config.
    pub fn leap_seconds(&self) -> i64 {
        self.leap_seconds
    }

    /// Returns the number of reports that claimed a fix but lacked its time or position, or whose position is
    /// not on the globe.
    pub fn incomplete_reports(&self) -> u64 {
        self.incomplete_reports
    }

    fn handle_tpv(&mut self, now: Time, wall: WallTime, tpv: &Tpv) {
        let fresh =
            self.last_fix_at.is_some_and(|last| now.saturating_since(last) < self.options.stale_after);
        if fresh && tpv.device != self.receiver_device {
            return;
        }
        if tpv.fix_mode() == FixMode::None {
            self.last_fix_at = None;
            return self.report_loss(PositionLossReason::NoFix);
        }
        let fix = match tpv.read_fix(now) {
            Ok(fix) => fix,
            Err(mistake) => {
                self.incomplete_reports += 1;
                return self.handle_missing_fix(now, PositionLossReason::Unusable(mistake));
            }
        };
        let before = self.last_report_time.replace(fix.time);
        // While the position is known, the time of a new fix must be later than that of the last fix. After a
        // loss, it must be later than that of the last report.
        let before = if self.last_fix_at.is_some() && self.lost_reason.is_none() {
            self.last_fix_time
        } else {
            before
        };
        if tpv.device == self.receiver_device && before.is_some_and(|before| fix.time <= before) {
            let device: String = tpv.device.chars().take(MAX_RECEIVER_NAME).collect();
            return self.handle_missing_fix(now, PositionLossReason::Frozen(device));
        }
        if let Some(leap_seconds) = tpv.leapseconds.and_then(|offset| {
            leap_second_checks::from_gps_offset(offset, self.options.leap_seconds)
                .filter(|new| *new != self.leap_seconds)
        }) {
            self.leap_seconds = leap_seconds;
            self.events.push_back(PositionEvent::LeapSeconds(leap_seconds));
        }
        (self.lost_reason, self.last_fault, self.last_fix_time) = (None, None, Some(fix.time));
        self.receiver_device.clone_from(&tpv.device);
        self.last_fix_at = Some(now);
        self.receiver_deadline = Some(now + self.options.stale_after);
        self.set_mode(fix.fix_mode);
        let (ours, theirs) = (wall.as_unix_nanos() / 1_000_000, fix.time.as_unix_nanos() / 1_000_000);
        self.events.push_back(PositionEvent::Fix(fix));
        let (milliseconds, precise) = match self.last_clock_comparison {
            Some((at, offset, precise)) if now.saturating_since(at) < PULSE_LIFETIME => (offset, precise),
            _ => (ours as i64 - theirs as i64, false),
        };
        self.judge_clock(now, milliseconds, precise);
    }

    /// Handles a report without a fix. If the position is lost later, the event has this fault as its reason.
    fn handle_missing_fix(&mut self, now: Time, fault: PositionLossReason) {
        let same = |lost: &PositionLossReason| std::mem::discriminant(lost) == std::mem::discriminant(&fault);
        if self.receiver_deadline.is_none() && !self.lost_reason.as_ref().is_some_and(same) {
            self.receiver_deadline = Some(now + self.options.stale_after);
        }
        self.last_fault = Some((now, fault));
    }

    fn handle_clock_offset(&mut self, now: Time, offset: &ClockOffset, precise: bool, local: bool) {
        let better = matches!(self.last_clock_comparison, Some((at, _, true))
            if now.saturating_since(at) < PULSE_LIFETIME);
        if local && (precise || !better) {
            self.last_clock_comparison = Some((now, offset.clock_difference_ms(), precise));
        }
    }

    fn judge_clock(&mut self, now: Time, milliseconds: i64, precise: bool) {
        let tolerance = if precise { self.options.pulse_tolerance } else { self.options.clock_tolerance };
        let tolerance = u64::try_from(tolerance.as_millis()).unwrap_or(u64::MAX);
        let told_wrong = self.reported_clock_difference.is_some_and(|told| told.is_clock_wrong);
        // Use a lower limit while the clock counts as wrong, so that a clock near the limit does not
        // alternate between right and wrong.
        let limit = if told_wrong { tolerance / 4 * 3 } else { tolerance };
        let wrong = milliseconds.unsigned_abs() > limit;
        let difference =
            ClockDifference { milliseconds_ahead: milliseconds, is_precise: precise, is_clock_wrong: wrong };
        if !wrong {
            self.clock_suspect_since = None;
            if told_wrong {
                self.report_clock_difference(difference);
            }
            return;
        }
        let since = *self.clock_suspect_since.get_or_insert(now);
        let moved = |told: ClockDifference| told.milliseconds_ahead.abs_diff(milliseconds) > tolerance;
        if now.saturating_since(since) >= CLOCK_WARNING_DELAY
            && (!told_wrong || self.reported_clock_difference.is_some_and(moved))
        {
            self.report_clock_difference(difference);
        }
    }

    fn report_clock_difference(&mut self, difference: ClockDifference) {
        self.reported_clock_difference = Some(difference);
        self.events.push_back(PositionEvent::Clock(difference));
    }

    fn report_loss(&mut self, reason: PositionLossReason) {
        self.receiver_deadline = None;
        self.set_mode(FixMode::None);
        if self.lost_reason.as_ref() != Some(&reason) {
            self.lost_reason = Some(reason.clone());
            self.events.push_back(PositionEvent::Lost { reason });
        }
    }

    fn set_mode(&mut self, mode: FixMode) {
        if self.fix_mode != mode {
            self.fix_mode = mode;
            self.events.push_back(PositionEvent::Mode(mode));
        }
    }
}
