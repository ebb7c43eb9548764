//! Ranks uplinks by the operator's priority and by temporary disadvantages.
//!
//! The router leaves an uplink when its signal falls to the threshold `poor`, and returns to it when the
//! signal reaches `good`. Between the thresholds nothing changes. It also avoids an uplink that has used up
//! its volume, that has just come up, or that works again after a failure. An avoided uplink stays
//! registered, and carries all traffic if no better uplink exists.

use super::Uplink;
use super::uplinks::Uplinks;

/// Signal thresholds of an uplink, in dBm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalThresholds {
    /// Signal strength at or above which the router uses the uplink.
    pub good_dbm: i32,
    /// Signal strength at or below which the router leaves the uplink.
    pub poor_dbm: i32,
}

/// BID-PRI of the uplink that the operator has selected.
const FORCED_UPLINK_PRIORITY: u8 = 1;
/// Lowest BID-PRI of avoided uplinks.
const AVOIDED_UPLINK_PRIORITY: u8 = 100;

impl Uplink {
    /// Returns whether the volume of the uplink is used up.
    pub(super) fn is_volume_used_up(&self) -> bool {
        self.config.volume_octets.is_some_and(|volume| self.used_octets >= volume)
    }

    /// Takes over the signal strength, in dBm. If the router must now leave the uplink or may use it again,
    /// returns the reason, otherwise `None`.
    pub(super) fn update_signal(&mut self, dbm: Option<i32>) -> Option<&'static str> {
        self.signal_dbm = dbm;
        let was_poor = self.has_poor_signal;
        self.has_poor_signal = match (self.config.signal, dbm) {
            (Some(thresholds), Some(dbm)) if dbm >= thresholds.good_dbm => false,
            (Some(thresholds), Some(dbm)) if dbm <= thresholds.poor_dbm => true,
            // Between the thresholds nothing changes; an uplink whose signal was never good stays avoided.
            (Some(_), Some(_)) => was_poor || !self.was_signal_reported,
            _ => false,
        };
        self.was_signal_reported = dbm.is_some();
        (self.has_poor_signal != was_poor).then_some(match (self.has_poor_signal, dbm) {
            (true, _) => "the signal is poor",
            (false, Some(_)) => "the signal is good",
            (false, None) => "the signal is unknown",
        })
    }
}

impl Uplinks {
    /// Returns whether the router prefers other uplinks to the uplink `index`, whatever their priorities.
    pub(super) fn is_uplink_avoided(&self, index: usize) -> bool {
        let Some(uplink) = self.get(index) else { return true };
        self.forced_uplink != Some(index)
            && (uplink.has_poor_signal
                || uplink.is_volume_used_up()
                || uplink.demoted_until.is_some()
                || uplink.is_settling
                || self.has_path_failed(index)
                || self.is_path_recovering(index))
    }

    /// Returns an uplink's BID-PRI, 1 to 127; the lower value wins (RFC 6089 4.1). It is the configured
    /// priority if that is in this range. Of two uplinks with equal priority the one with the lower cost is
    /// better.
    pub(super) fn priority(&self, index: usize) -> u8 {
        let Some(uplink) = self.get(index) else { return 127 };
        if self.forced_uplink == Some(index) {
            return FORCED_UPLINK_PRIORITY;
        }
        let cheaper = |other: &&Uplink| {
            other.config.priority == uplink.config.priority && other.config.cost < uplink.config.cost
        };
        let cheaper = u32::try_from(self.iter().filter(cheaper).count()).unwrap_or(u32::MAX);
        if self.is_uplink_avoided(index) {
            // A used-up volume is worse than a poor signal, because it costs money.
            let better = |other: &&Uplink| other.config.priority < uplink.config.priority;
            let rank = self.iter().filter(better).count() + if uplink.is_volume_used_up() { 14 } else { 0 };
            return AVOIDED_UPLINK_PRIORITY + u8::try_from(rank.min(27)).unwrap_or(27);
        }
        let priority = uplink.config.priority.saturating_add(cheaper);
        u8::try_from(priority.clamp(2, u32::from(AVOIDED_UPLINK_PRIORITY) - 1))
            .unwrap_or(AVOIDED_UPLINK_PRIORITY - 1)
    }

    /// Returns the weights of uplinks for balanced flows. They are in units of 100 kbit/s if all capacities
    /// are known; otherwise they are equal.
    pub(super) fn balancing_weights(&self, uplinks: &[usize]) -> Vec<u16> {
        let capacities = uplinks.iter().map(|index| self.get(*index)?.capacity);
        let weight = |kbit_s: u32| u16::try_from((kbit_s / 100).max(1)).unwrap_or(u16::MAX);
        match capacities.collect::<Option<Vec<u32>>>() {
            Some(capacities) => capacities.into_iter().map(weight).collect(),
            None => vec![1; uplinks.len()],
        }
    }
}
