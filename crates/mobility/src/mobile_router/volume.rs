//! How much has gone over an uplink in a period: the one that its volume is for, a month where it has none.
//!
//! The platform tells what the interface's counters show, both directions together: that is what an operator of a
//! network bills, whoever sent it. What they have grown by since the last time is what was used. They begin anew with
//! the machine and with the interface (a modem that was pulled out and put in again); then [`Octets::epoch`] is another,
//! and all that they show is new. Only with the very first sample of an uplink nobody knows what of it belongs to the
//! period: it is where counting begins.
//!
//! Periods are those of the calendar, in UTC. A clock that was not set yet does not begin one.

use carnet_base::{Time, WallTime};
use serde::{Deserialize, Serialize};

use super::MobileRouter;
use crate::Output;

/// Between two times that the counts are stored because they have grown, seconds.
const STORE_INTERVAL_S: u64 = 60;
/// Growth that is not worth storing, octets.
const STORE_OCTETS: u64 = 1_000_000;
/// 2020-01-01, in days since 1970-01-01: a clock that shows less has not been set.
const SET_CLOCK: u64 = 18_262;
const DAY_NANOS: u64 = 86_400 * 1_000_000_000;

/// What a volume is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VolumePeriod {
    /// From midnight to midnight.
    Day,
    /// From Monday to Sunday.
    Week,
    /// From the first to the last of a month.
    #[default]
    Month,
}

impl VolumePeriod {
    /// Its name: `day`, `week` or `month`.
    pub fn name(self) -> &'static str {
        match self {
            VolumePeriod::Day => "day",
            VolumePeriod::Week => "week",
            VolumePeriod::Month => "month",
        }
    }

    /// The number of the period that a date is in; they count up. `None` where the clock has not been set.
    fn number(self, wall: WallTime) -> Option<u32> {
        let days = wall.as_unix_nanos() / DAY_NANOS;
        if days < SET_CLOCK {
            return None;
        }
        let number = match self {
            VolumePeriod::Day => days,
            // 1970-01-01 was a Thursday.
            VolumePeriod::Week => (days + 3) / 7,
            VolumePeriod::Month => month(days),
        };
        u32::try_from(number).ok()
    }
}

/// Months since January of the year 0, of a day since 1970-01-01.
fn month(days: u64) -> u64 {
    // In years that begin in March the leap day is the last: the months before it have a fixed pattern of 153 days in
    // five months. 719468 days are from 0000-03-01 to 1970-01-01, 146097 days are 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    (era * 400 + year) * 12 + month + 2
}

/// What the counters of an interface show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Octets {
    /// Another one whenever they have begun anew.
    pub epoch: u64,
    /// Octets, received and sent.
    pub total: u64,
    /// Those received.
    #[serde(default)]
    pub received: u64,
}

/// What has gone over an uplink; survives a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredVolume {
    /// The number of the period; zero while no clock has told.
    pub period: u32,
    /// Octets in it.
    pub used: u64,
    /// What the counters showed last.
    pub octets: Octets,
}

impl StoredVolume {
    fn new(octets: Octets) -> StoredVolume {
        StoredVolume { period: 0, used: 0, octets }
    }

    /// Takes in what the counters show; whether a new period has begun.
    fn count(&mut self, octets: Octets, period: Option<u32>) -> bool {
        let known = if octets.epoch == self.octets.epoch { self.octets.total } else { 0 };
        // Counters that fall have begun anew, whatever their epoch says.
        let more = octets.total.checked_sub(known).unwrap_or(octets.total);
        self.octets = octets;
        // A little earlier is a clock that was put right. Much earlier: what it showed before was wrong.
        let begins =
            period.is_some_and(|period| period > self.period || period.saturating_add(1) < self.period);
        let first = self.period == 0;
        if let Some(period) = period.filter(|_| begins) {
            self.period = period;
        }
        if begins && !first {
            self.used = 0;
        }
        self.used = self.used.saturating_add(more);
        begins
    }
}

/// The volume of an uplink.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Meter {
    pub(super) volume: Option<StoredVolume>,
    /// What was stored last, and when.
    stored: Option<(u64, Time)>,
}

impl MobileRouter {
    /// What the counters of an uplink's interface show now. Where it has no volume that is for show alone, and is stored
    /// with what else is.
    pub fn handle_octets(&mut self, now: Time, wall: WallTime, interface: &str, octets: Octets) {
        self.assert_drained();
        let Some(index) = self.uplinks.iter().position(|u| u.config.interface == interface) else { return };
        let uplink = &mut self.uplinks[index];
        let limited = uplink.config.volume.is_some();
        let first = uplink.meter.volume.is_none();
        let volume = uplink.meter.volume.get_or_insert_with(|| StoredVolume::new(octets));
        let begins = volume.count(octets, uplink.config.volume_period.number(wall));
        let used = volume.used;
        let was_used_up = uplink.is_used_up();
        let due = uplink.meter.stored.is_none_or(|(stored, at)| {
            let grown = used.abs_diff(stored) >= STORE_OCTETS;
            grown && now.saturating_since(at).as_secs() >= STORE_INTERVAL_S
        });
        self.handle_volume(now, wall, interface, used);
        let uplink = &mut self.uplinks[index];
        if limited && (first || begins || due || uplink.is_used_up() != was_used_up) {
            uplink.meter.stored = Some((used, now));
            self.outputs.push_back(Output::Persist(self.config.home_address));
        }
        self.gauge(now, wall, index, octets);
    }

    /// What has gone over the uplinks, to survive a restart.
    pub fn volumes(&self) -> impl Iterator<Item = (&str, StoredVolume)> {
        self.uplinks.iter().filter_map(|u| Some((u.config.interface.as_str(), u.meter.volume?)))
    }

    /// Takes back one of what [`Self::volumes`] gave, before anything else is told.
    pub fn restore_volume(&mut self, interface: &str, volume: StoredVolume) {
        if let Some(uplink) = self.uplinks.iter_mut().find(|u| u.config.interface == interface) {
            uplink.used = volume.used;
            uplink.meter.volume = Some(volume);
        }
    }

    /// What was used since it was last stored is stored before the end.
    pub(super) fn store_volumes(&mut self) {
        let news = |meter: &Meter| {
            meter.volume.is_some_and(|v| meter.stored.is_none_or(|(stored, _)| stored != v.used))
        };
        if self.uplinks.iter().any(|uplink| news(&uplink.meter)) {
            self.outputs.push_back(Output::Persist(self.config.home_address));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn wall(days: u64) -> WallTime {
        WallTime::from_unix_nanos(days * DAY_NANOS + DAY_NANOS / 2)
    }

    fn octets(epoch: u64, total: u64) -> Octets {
        Octets { epoch, total, received: 0 }
    }

    #[test]
    fn months_are_those_of_the_calendar() {
        // Days since 1970-01-01 of 2024-02-29, 2024-03-01, 2024-12-31, 2025-01-01 and 2100-02-28, 2100-03-01.
        let expected = [
            (19_782, 2024 * 12 + 1),
            (19_783, 2024 * 12 + 2),
            (20_088, 2024 * 12 + 11),
            (20_089, 2025 * 12),
            (47_540, 2100 * 12 + 1),
            (47_541, 2100 * 12 + 2),
        ];
        for (days, number) in expected {
            assert_eq!(VolumePeriod::Month.number(wall(days)), Some(number), "day {days}");
        }
        assert_eq!(VolumePeriod::Month.number(wall(30)), None);
    }

    #[test]
    fn weeks_begin_on_monday() {
        // 2024-02-25 was a Sunday.
        let [sunday, monday, next] = [19_778, 19_779, 19_785].map(|day| VolumePeriod::Week.number(wall(day)));
        assert_eq!(monday.zip(sunday).map(|(a, b)| a - b), Some(1));
        assert_eq!(monday, next);
        assert_eq!(VolumePeriod::Day.number(wall(19_778)), Some(19_778));
    }

    #[test]
    fn what_the_counters_grow_by_is_used() {
        let mut volume = StoredVolume::new(octets(1, 500));
        volume.count(octets(1, 500), Some(10));
        assert_eq!(volume.used, 0);
        volume.count(octets(1, 700), Some(10));
        assert_eq!(volume.used, 200);
        // Another interface of this name, or another boot.
        volume.count(octets(2, 900), Some(10));
        assert_eq!(volume.used, 1100);
        // Counters that fall.
        volume.count(octets(2, 50), Some(10));
        assert_eq!(volume.used, 1150);
        volume.count(octets(2, u64::MAX), Some(10));
        volume.count(octets(3, u64::MAX), Some(10));
        assert_eq!(volume.used, u64::MAX);
    }

    #[test]
    fn a_period_begins_with_nothing_used() {
        let mut volume = StoredVolume::new(octets(1, 0));
        // Before the clock is set everything counts, and goes to the first period.
        volume.count(octets(1, 100), None);
        assert!(volume.count(octets(1, 150), Some(10)));
        assert_eq!(volume.used, 150);
        assert!(volume.count(octets(1, 160), Some(11)));
        assert_eq!(volume.used, 10);
        // The clock is put right by a little, or not set after a start.
        assert!(!volume.count(octets(1, 170), Some(10)));
        assert!(!volume.count(octets(1, 180), None));
        assert_eq!((volume.used, volume.period), (30, 11));
        // It had been years ahead.
        volume.count(octets(1, 190), Some(900));
        assert!(volume.count(octets(1, 195), Some(11)));
        assert_eq!((volume.used, volume.period), (5, 11));
    }
}
