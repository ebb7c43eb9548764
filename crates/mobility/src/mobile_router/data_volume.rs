//! Counts the octets that an uplink carries in each period of its volume. Without a volume the period is a
//! month.
//!
//! The platform reports the interface's counters, both directions together, because network operators charge
//! both. Their growth since the last report is the used volume. The counters restart at 0 with the machine,
//! and with the interface (after a modem was pulled out). Then [`InterfaceOctets::epoch`] changes, and the
//! whole count is new. At the first report of an uplink nothing shows how many of the counted octets belong
//! to this period, so counting starts there.
//!
//! Periods are those of the calendar, in UTC; a month may begin on another day than its first.
//!
//! No change of the clock loses counted octets. A vehicle without a battery-backed clock starts with any
//! date, and the clock is set later. So the octets since the machine's start are stored as [`OctetsOfDay`]s
//! with the *monotonic* time at which they were counted. The present clock decides to which period each count
//! belongs. If the clock is set, the counts move to the right period. At the next start of the machine, the
//! last date of the former start decides for good.
//!
//! Two kinds of dates are not believed: dates before 2020, and, after a start, dates before the last date of
//! the former start. Such a clock changes no period. It is believed when it has been set, or after it has run
//! unchanged for a day. Octets that were counted meanwhile belong to the period of the date that is then
//! believed.

use std::time::Duration;

use carnet_base::{Time, WallTime};
use serde::{Deserialize, Serialize};

use super::Uplink;
use crate::Event;

/// Minimum time in seconds between two writes of the counts because they have grown.
const STORE_INTERVAL_S: u64 = 60;
/// Growth of the counts in octets below which they are not written.
const OCTETS_BETWEEN_WRITES: u64 = 1_000_000;
/// 2020-01-01 in days since 1970-01-01. A clock that shows an earlier date has not been set.
const MIN_BELIEVED_DAY: u64 = 18_262;
const DAY_S: u64 = 86_400;
/// Difference in seconds between the progress of the time of day and of the monotonic clock, above which the
/// clock counts as set.
const MAX_CLOCK_STEP_S: u64 = 60;
/// Time in seconds after which an earlier date is believed although the clock was not set.
const DATE_DOUBT_S: u64 = DAY_S;
/// Maximum number of counts of one start of the machine: one per day, for more than a month.
const MAX_DAY_COUNTS: usize = 40;
/// Maximum number of periods with stored octets. Some of them may come from a wrong clock.
const MAX_SETTLED_PERIODS: usize = 12;
/// Percentages of a volume at which the router reports an event.
const REPORTED_PERCENTAGES: [u8; 3] = [75, 95, 100];

/// Period of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumePeriod {
    /// From midnight to midnight.
    Day,
    /// From Monday to Sunday.
    Week,
    /// From this day of a month to the day before it in the next month. If a month does not have the day, its
    /// last day is used.
    Month {
        /// Day of the month, 1 to 31.
        first_day: u8,
    },
}

impl Default for VolumePeriod {
    fn default() -> VolumePeriod {
        VolumePeriod::Month { first_day: 1 }
    }
}

impl VolumePeriod {
    /// Returns the name: `day`, `week` or `month`.
    pub fn name(self) -> &'static str {
        match self {
            VolumePeriod::Day => "day",
            VolumePeriod::Week => "week",
            VolumePeriod::Month { .. } => "month",
        }
    }

    /// Returns the number of the period of a date (seconds since 1970); later periods have greater numbers.
    /// `None` if the clock has not been set.
    fn period_number(self, wall_s: i64) -> Option<u32> {
        let days = u64::try_from(wall_s).ok()? / DAY_S;
        if days < MIN_BELIEVED_DAY {
            return None;
        }
        let number = match self {
            VolumePeriod::Day => days,
            // 1970-01-01 was a Thursday, and weeks begin on Monday.
            VolumePeriod::Week => (days + 3) / 7,
            VolumePeriod::Month { first_day } => {
                let date = CalendarDate::of_unix_day(days);
                if date.day_of_month >= u64::from(first_day).clamp(1, date.last_day_of_month) {
                    date.months_since_year_0
                } else {
                    date.months_since_year_0 - 1
                }
            }
        };
        u32::try_from(number).ok()
    }
}

/// A date.
struct CalendarDate {
    /// Months since January of the year 0.
    months_since_year_0: u64,
    /// Day of the month, 1 to 31.
    day_of_month: u64,
    /// Last day of the month.
    last_day_of_month: u64,
}

impl CalendarDate {
    /// Returns the date of a day since 1970-01-01.
    fn of_unix_day(days: u64) -> CalendarDate {
        // If years begin in March, the leap day is the last day of a year. Then the other months have a
        // fixed pattern of 153 days in five months. From 0000-03-01 to 1970-01-01 there are 719468 days; 400
        // years have 146097 days.
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day_of_year = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day_of_year + 2) / 153;
        let begin = |month: u64| (153 * month + 2) / 5;
        // February is the last month of a year that began in March, so the next calendar year decides
        // whether it has a leap day.
        let february = era * 400 + year + 1;
        let leap =
            february.is_multiple_of(4) && (!february.is_multiple_of(100) || february.is_multiple_of(400));
        CalendarDate {
            months_since_year_0: (era * 400 + year) * 12 + month + 2,
            day_of_month: day_of_year - begin(month) + 1,
            last_day_of_month: if month == 11 {
                28 + u64::from(leap)
            } else {
                begin(month + 1) - begin(month)
            },
        }
    }
}

/// Action for an uplink whose volume is used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeAction {
    /// The uplink carries traffic only if no other uplink works.
    #[default]
    LastResort,
    /// The uplink is not used until the next period.
    Stop,
}

impl VolumeAction {
    /// Returns the name: `last_resort` or `stop`.
    pub fn name(self) -> &'static str {
        match self {
            VolumeAction::LastResort => "last_resort",
            VolumeAction::Stop => "stop",
        }
    }
}

/// Counters of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceOctets {
    /// Number that changes when the counters restart at 0.
    pub epoch: u64,
    /// Octets received and sent.
    pub total: u64,
    /// Octets received.
    #[serde(default)]
    pub received: u64,
}

/// Octets that were counted since the present start of the machine, within one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct OctetsOfDay {
    /// Monotonic time of the first octet, in seconds.
    begin_s: u64,
    octets: u64,
}

/// Readings of both clocks when the octets were last counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct ClockReadings {
    /// Monotonic time in seconds.
    now_s: u64,
    /// Time of day in seconds since 1970.
    wall_s: u64,
    /// Monotonic time until which the date is not believed, unless the clock is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    doubted_until_s: Option<u64>,
}

impl ClockReadings {
    fn at_time(now: Time, wall: WallTime) -> ClockReadings {
        const NANOS: u64 = 1_000_000_000;
        ClockReadings {
            now_s: now.as_nanos() / NANOS,
            wall_s: wall.as_unix_nanos() / NANOS,
            doubted_until_s: None,
        }
    }

    /// Returns the date of a monotonic time by this clock.
    fn date_of(&self, now_s: u64) -> i64 {
        let wall = i64::try_from(self.wall_s).unwrap_or(i64::MAX);
        let (at, now) = (now_s.cast_signed(), self.now_s.cast_signed());
        wall.saturating_add(at.saturating_sub(now))
    }

    /// Returns whether the clock was set between `self` and `later`.
    fn is_set_before(&self, later: &ClockReadings) -> bool {
        self.date_of(later.now_s).abs_diff(later.wall_s.cast_signed()) > MAX_CLOCK_STEP_S
    }

    /// Returns the period that the clock shows; `None` if its date is not believed.
    fn current_period(&self, kind: VolumePeriod) -> Option<u32> {
        let believed = self.doubted_until_s.is_none_or(|until| self.now_s >= until);
        kind.period_number(self.wall_s.cast_signed()).filter(|_| believed)
    }
}

/// Octets that an uplink has carried, as the station stores them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredVolume {
    /// Number of the period; 0 if it is unknown.
    pub period: u32,
    /// Octets in the period.
    pub used: u64,
    /// Last reading of the interface's counters.
    pub octets: InterfaceOctets,
    /// Kind of the periods; `None` in the state of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<VolumePeriod>,
    /// Periods, each with the octets that the uplink carried in it before the last start of the machine. The
    /// latest period is at the end.
    #[serde(default)]
    settled: Vec<(u32, u64)>,
    /// Octets since the present start of the machine, the oldest first.
    #[serde(default)]
    pieces: Vec<OctetsOfDay>,
    #[serde(default)]
    clock: Option<ClockReadings>,
    /// Whether the state was restored and nothing has been counted since.
    #[serde(skip)]
    restored: bool,
}

impl StoredVolume {
    fn new(octets: InterfaceOctets) -> StoredVolume {
        StoredVolume {
            period: 0,
            used: 0,
            octets,
            kind: None,
            settled: Vec::new(),
            pieces: Vec::new(),
            clock: None,
            restored: false,
        }
    }

    /// Takes over the counters; returns whether another period has begun.
    fn count_octets(
        &mut self,
        now: Time,
        wall: WallTime,
        octets: InterfaceOctets,
        kind: VolumePeriod,
    ) -> bool {
        let same_epoch = octets.epoch == self.octets.epoch;
        let known = if same_epoch { self.octets.total } else { 0 };
        // A counter below its last reading has restarted at 0, even if the epoch is the same.
        let more = octets.total.checked_sub(known).unwrap_or(octets.total);
        self.octets = octets;
        let mut clock = ClockReadings::at_time(now, wall);
        let restored = std::mem::take(&mut self.restored);
        match self.clock {
            // At the first count after a restart of the program, assume that the machine has restarted too,
            // unless its counters or its clocks continue.
            Some(before)
                if restored
                    && (before.now_s > clock.now_s || !same_epoch && before.is_set_before(&clock)) =>
            {
                self.assign_octets_before_restart(before, clock.now_s);
                let behind = clock.wall_s.saturating_add(MAX_CLOCK_STEP_S) < before.wall_s;
                clock.doubted_until_s = behind.then(|| clock.now_s.saturating_add(DATE_DOUBT_S));
            }
            Some(before) if !before.is_set_before(&clock) => clock.doubted_until_s = before.doubted_until_s,
            _ => {}
        }
        self.clock = Some(clock);
        self.octets_by_period(kind, clock.now_s);
        self.add_octets(more, clock, kind);

        let shown = clock.current_period(kind);
        let begins = shown.is_some_and(|shown| shown != self.period);
        self.period = shown.unwrap_or(self.period);
        let in_period = |piece: &&OctetsOfDay| {
            // If the date is not believed, no period ends, so all counts belong to the present one.
            shown.is_none()
                || kind.period_number(clock.date_of(piece.begin_s)).is_none_or(|it| it == self.period)
        };
        let counted = self.pieces.iter().filter(in_period).map(|piece| piece.octets);
        self.used = counted.fold(self.settled_octets_in(self.period), u64::saturating_add);
        begins
    }

    fn add_octets(&mut self, more: u64, clock: ClockReadings, kind: VolumePeriod) {
        let belongs = |piece: &OctetsOfDay| {
            let together = kind.period_number(clock.date_of(piece.begin_s))
                == kind.period_number(clock.wall_s.cast_signed());
            together && clock.now_s.saturating_sub(piece.begin_s) < DAY_S
        };
        match self.pieces.last_mut().filter(|piece| belongs(piece)) {
            Some(piece) => piece.octets = piece.octets.saturating_add(more),
            None if more > 0 => self.pieces.push(OctetsOfDay { begin_s: clock.now_s, octets: more }),
            None => {}
        }
        if self.pieces.len() > MAX_DAY_COUNTS {
            let oldest = self.pieces.remove(0);
            match clock.current_period(kind).and_then(|_| kind.period_number(clock.date_of(oldest.begin_s))) {
                Some(period) => self.settle_octets(period, oldest.octets),
                None => self.pieces[0].octets = self.pieces[0].octets.saturating_add(oldest.octets),
            }
        }
    }

    /// Assigns the octets of the former start of the machine to a period, by the last date of that start. If
    /// that date was not believed, they become a count of this start, and a later date decides.
    fn assign_octets_before_restart(&mut self, before: ClockReadings, now_s: u64) {
        let kind = self.kind.unwrap_or_default();
        let mut unknown = 0_u64;
        for piece in std::mem::take(&mut self.pieces) {
            match before.current_period(kind).and_then(|_| kind.period_number(before.date_of(piece.begin_s)))
            {
                Some(period) => self.settle_octets(period, piece.octets),
                None => unknown = unknown.saturating_add(piece.octets),
            }
        }
        if unknown > 0 {
            self.pieces.push(OctetsOfDay { begin_s: now_s, octets: unknown });
        }
    }

    fn settle_octets(&mut self, period: u32, octets: u64) {
        let before = self.settled_octets_in(period);
        self.settled.retain(|(other, _)| *other != period);
        if self.settled.len() == MAX_SETTLED_PERIODS {
            self.settled.remove(0);
        }
        self.settled.push((period, before.saturating_add(octets)));
    }

    fn settled_octets_in(&self, period: u32) -> u64 {
        self.settled.iter().find(|(other, _)| *other == period).map_or(0, |(_, octets)| *octets)
    }

    /// Changes the kind of the periods, for example from months to weeks. The old period numbers are then
    /// meaningless, so the octets of the last period become a count of this start.
    fn octets_by_period(&mut self, kind: VolumePeriod, now_s: u64) {
        let before = self.kind.replace(kind);
        if before == Some(kind) {
            return;
        }
        let is_of_earlier_version = before.is_none() && self.settled.is_empty() && self.period > 0;
        let settled = match is_of_earlier_version {
            true => self.used,
            false => self.settled_octets_in(self.period),
        };
        if is_of_earlier_version && kind != VolumePeriod::Day && kind != VolumePeriod::Week {
            // Assign the octets of an earlier version, which supported only calendar months, to their month.
            self.settle_octets(self.period, settled);
            return;
        }
        self.settled.clear();
        self.period = 0;
        let unknown = if before.is_none() { self.used } else { settled };
        if unknown > 0 {
            self.pieces.push(OctetsOfDay { begin_s: now_s, octets: unknown });
        }
    }
}

/// Volume meter of an uplink.
#[derive(Debug, Clone, Default)]
pub(super) struct VolumeMeter {
    pub(super) stored_volume: Option<StoredVolume>,
    /// Octets of the period at the last write to stable storage, and the time of the write; `None` before the
    /// first write.
    last_write: Option<(u64, Time)>,
    /// Last of [`REPORTED_PERCENTAGES`] that was reported, 0 before the first.
    reported_percentage: u8,
}

impl Uplink {
    /// Returns the last of [`REPORTED_PERCENTAGES`] that the volume has reached; 0 before the first.
    fn reached_percentage(&self) -> u8 {
        let Some(volume) = self.config.volume_octets else { return 0 };
        let percent = u128::from(self.used_octets) * 100 / u128::from(volume.max(1));
        REPORTED_PERCENTAGES.into_iter().rfind(|level| percent >= u128::from(*level)).unwrap_or(0)
    }

    /// Returns whether the uplink must not be used because its volume is used up.
    pub(super) fn is_stopped_by_volume(&self) -> bool {
        self.config.volume_action == VolumeAction::Stop && self.is_volume_used_up()
    }

    /// Takes over the counters of the interface. Returns the octets of the period, and whether the caller
    /// must store them.
    pub(super) fn count_octets(&mut self, now: Time, wall: WallTime, octets: InterfaceOctets) -> (u64, bool) {
        let first = self.volume_meter.stored_volume.is_none();
        let volume = self.volume_meter.stored_volume.get_or_insert_with(|| StoredVolume::new(octets));
        let begins = volume.count_octets(now, wall, octets, self.config.volume_period);
        let used = volume.used;
        let due = self.volume_meter.last_write.is_none_or(|(stored, at)| {
            let grown = used.abs_diff(stored) >= OCTETS_BETWEEN_WRITES;
            grown && now.saturating_since(at) >= Duration::from_secs(STORE_INTERVAL_S)
        });
        (used, first || begins || due)
    }

    /// Records that the octets of the period are being stored.
    pub(super) fn volume_stored(&mut self, now: Time, used: u64) {
        self.volume_meter.last_write = Some((used, now));
    }

    /// Returns an event if the volume has reached another level in this period.
    pub(super) fn volume_event(&mut self) -> Option<Event> {
        let level = self.reached_percentage();
        let told = std::mem::replace(&mut self.volume_meter.reported_percentage, level);
        let volume = self.config.volume_octets.filter(|_| level > told)?;
        Some(Event::VolumeReached {
            uplink: self.config.interface.clone(),
            percent: level,
            used: self.used_octets,
            volume,
            period: self.config.volume_period.name().into(),
        })
    }

    /// Takes over the stored octets of an earlier run. That run has already reported the percentage that they
    /// reach.
    pub(super) fn restore_volume(&mut self, volume: StoredVolume) {
        self.used_octets = volume.used;
        self.volume_meter.stored_volume = Some(StoredVolume { restored: true, ..volume });
        self.volume_meter.reported_percentage = self.reached_percentage();
    }

    /// Returns whether octets were counted that are not stored yet.
    pub(super) fn has_unstored_volume(&self) -> bool {
        let used = self.volume_meter.stored_volume.as_ref().map(|volume| volume.used);
        used.is_some_and(|used| self.volume_meter.last_write.is_none_or(|(stored, _)| stored != used))
    }
}

#[cfg(test)]
mod tests;
