//! Which uplink is better: the operator's priority, and what speaks against an uplink for the moment.
//!
//! An uplink whose signal falls to its `poor` threshold is left, and taken again when it reaches `good`; in
//! between it stays what it was. One that has used up its volume, has only just come up, or answers again
//! after a failure, is avoided likewise. To be avoided is not to be gone: it stays registered, and where
//! there is nothing better it carries everything.

use carnet_base::{Time, WallTime};

use super::uplink::VOLUME_USED_UP;
use super::{MobileRouter, Timer, Uplink};
use crate::{Event, Output};

/// When an uplink is taken and left, in dBm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalThresholds {
    /// At this or more it is taken.
    pub good: i32,
    /// At this or less it is left.
    pub poor: i32,
}

/// BID-PRI of what the operator has forced.
const FORCED: u8 = 1;
/// BID-PRIs from here on are of uplinks that are avoided.
const AVOIDED: u8 = 100;

impl Uplink {
    /// Whether its volume is used up.
    pub(super) fn is_used_up(&self) -> bool {
        self.config.volume.is_some_and(|volume| self.used >= volume)
    }
}

impl MobileRouter {
    /// The signal strength of an uplink, in dBm; `None` when nobody knows it any more. One that is not told
    /// again within [`super::UplinkConfig::signal_timeout`], changed or not, is not known any more either.
    pub fn handle_signal(&mut self, now: Time, wall: WallTime, interface: &str, dbm: Option<i32>) {
        self.assert_drained();
        let Some(index) = self.uplinks.iter().position(|u| u.config.interface == interface) else { return };
        self.uplinks[index].signal_at = now;
        self.take_signal(now, wall, index, dbm);
        self.expect_signal(index);
    }

    /// Sets the timer of the signal that an uplink has.
    pub(super) fn expect_signal(&mut self, index: usize) {
        let uplink = &self.uplinks[index];
        match uplink.config.signal_timeout.filter(|_| uplink.signal.is_some()) {
            Some(timeout) => self.timers.set(Timer::Signal(index), uplink.signal_at + timeout),
            None => self.timers.stop(Timer::Signal(index)),
        }
    }

    /// Nobody has renewed the signal of an uplink: it counts no more, as if it had never been told.
    pub(super) fn signal_expired(&mut self, now: Time, wall: WallTime, index: usize) {
        let name = &self.uplinks[index].config.interface;
        let message = format!("the signal of {name} is unknown: nobody has renewed it");
        self.outputs.push_back(Output::Event(Event::Warning { message }));
        self.take_signal(now, wall, index, None);
    }

    fn take_signal(&mut self, now: Time, wall: WallTime, index: usize, dbm: Option<i32>) {
        let uplink = &mut self.uplinks[index];
        uplink.signal = dbm;
        let was_poor = uplink.poor;
        uplink.poor = match (uplink.config.signal, dbm) {
            (Some(thresholds), Some(dbm)) if dbm >= thresholds.good => false,
            (Some(thresholds), Some(dbm)) if dbm <= thresholds.poor => true,
            // Between the two nothing changes; one that was never good is not taken yet.
            (Some(_), Some(_)) => was_poor || !uplink.judged,
            _ => false,
        };
        uplink.judged = dbm.is_some();
        if uplink.poor != was_poor {
            let reason = match (uplink.poor, dbm) {
                (true, _) => "the signal is poor",
                (false, Some(_)) => "the signal is good",
                (false, None) => "the signal is unknown",
            };
            self.evaluate(now, wall, reason);
        }
    }

    /// Octets that have gone over an uplink in the period that its volume is for.
    pub fn handle_volume(&mut self, now: Time, wall: WallTime, interface: &str, octets: u64) {
        self.assert_drained();
        let Some(index) = self.uplinks.iter().position(|u| u.config.interface == interface) else { return };
        let before = self.uplinks[index].is_used_up();
        self.uplinks[index].used = octets;
        self.tell_volume(index);
        if self.uplinks[index].is_used_up() != before {
            let reason = if before { "a new period of its volume" } else { VOLUME_USED_UP };
            self.attach_anew(now, wall, index);
            self.evaluate(now, wall, reason);
        }
    }

    /// Whether the modem of an uplink is in a network that is not its own operator's; `None` when nobody
    /// knows.
    pub fn handle_roaming(&mut self, now: Time, wall: WallTime, interface: &str, roaming: Option<bool>) {
        self.assert_drained();
        let Some(index) = self.uplinks.iter().position(|u| u.config.interface == interface) else { return };
        if std::mem::replace(&mut self.uplinks[index].roaming, roaming) != roaming {
            self.attach_anew(now, wall, index);
        }
    }

    /// What keeps an uplink from being used may have changed.
    fn attach_anew(&mut self, now: Time, wall: WallTime, index: usize) {
        let before = self.uplinks[index].attachment;
        self.uplinks[index].attach(&self.config);
        self.watch_candidates(now, index);
        self.attachment_changed(now, wall, index, before);
    }

    /// What an uplink can carry, in kbit/s, as somebody else has measured it: the weight of its share where
    /// flows are balanced. What the router measures itself replaces it.
    pub fn handle_capacity(&mut self, now: Time, wall: WallTime, interface: &str, kbit_s: Option<u32>) {
        self.assert_drained();
        let Some(index) = self.uplinks.iter().position(|u| u.config.interface == interface) else { return };
        self.set_capacity(now, wall, index, kbit_s);
    }

    pub(super) fn set_capacity(&mut self, now: Time, wall: WallTime, index: usize, kbit_s: Option<u32>) {
        if self.uplinks[index].capacity != kbit_s {
            self.uplinks[index].capacity = kbit_s;
            self.reconcile(now, wall);
            self.forwarding_changed("the capacity of an uplink changed");
        }
    }

    /// Whether other uplinks come before this one, whatever the priorities.
    pub(super) fn is_avoided(&self, index: usize) -> bool {
        let Some(uplink) = self.uplinks.get(index) else { return true };
        self.uplinks.forced != Some(index)
            && (uplink.poor
                || uplink.is_used_up()
                || uplink.demoted_until.is_some()
                || uplink.settling
                || self.is_silent(index)
                || self.is_proving(index))
    }

    /// An uplink's BID-PRI: lower wins, 1 to 127 (RFC 6089 4.1). The configured priority, as far as it fits;
    /// of equals the cheaper is better.
    pub(super) fn priority(&self, index: usize) -> u8 {
        let Some(uplink) = self.uplinks.get(index) else { return 127 };
        if self.uplinks.forced == Some(index) {
            return FORCED;
        }
        let cheaper = |other: &&Uplink| {
            other.config.priority == uplink.config.priority && other.config.cost < uplink.config.cost
        };
        let cheaper = u32::try_from(self.uplinks.iter().filter(cheaper).count()).unwrap_or(u32::MAX);
        if self.is_avoided(index) {
            // Used up is worse than poor: the first costs money, the second only quality.
            let better = |other: &&Uplink| other.config.priority < uplink.config.priority;
            let rank = self.uplinks.iter().filter(better).count() + if uplink.is_used_up() { 14 } else { 0 };
            return AVOIDED + u8::try_from(rank.min(27)).unwrap_or(27);
        }
        let priority = uplink.config.priority.saturating_add(cheaper);
        u8::try_from(priority.clamp(2, u32::from(AVOIDED) - 1)).unwrap_or(AVOIDED - 1)
    }

    /// The weights of uplinks among which flows are shared out: in units of 100 kbit/s where the capacities
    /// of all are known.
    pub(super) fn weights(&self, uplinks: &[usize]) -> Vec<u16> {
        let capacities = uplinks.iter().map(|index| self.uplinks.get(*index)?.capacity);
        let weight = |kbit_s: u32| u16::try_from((kbit_s / 100).max(1)).unwrap_or(u16::MAX);
        match capacities.collect::<Option<Vec<u32>>>() {
            Some(capacities) => capacities.into_iter().map(weight).collect(),
            None => vec![1; uplinks.len()],
        }
    }
}
