//! A small table of named timers, modelled on quinn: each timer has at most one deadline.

use std::collections::{BTreeMap, BTreeSet};

use crate::Time;

/// Deadlines by key, with fast access to the earliest.
///
/// Setting a timer replaces its previous deadline. Every operation is O(log n), so a home agent may have one
/// timer per binding.
#[derive(Debug, Clone)]
pub struct TimerTable<K> {
    deadline_by_timer: BTreeMap<K, Time>,
    timers_by_deadline: BTreeSet<(Time, K)>,
}

impl<K: Ord + Copy> TimerTable<K> {
    /// Creates a table without running timers.
    pub fn new() -> Self {
        TimerTable { deadline_by_timer: BTreeMap::new(), timers_by_deadline: BTreeSet::new() }
    }

    /// Sets the deadline of `timer` and replaces a previous one.
    pub fn set_deadline(&mut self, timer: K, deadline: Time) {
        if let Some(previous) = self.deadline_by_timer.insert(timer, deadline) {
            self.timers_by_deadline.remove(&(previous, timer));
        }
        self.timers_by_deadline.insert((deadline, timer));
    }

    /// Stops `timer` if it runs.
    pub fn stop_timer(&mut self, timer: K) {
        if let Some(previous) = self.deadline_by_timer.remove(&timer) {
            self.timers_by_deadline.remove(&(previous, timer));
        }
    }

    /// Returns the deadline of `timer`; `None` if it does not run.
    pub fn get(&self, timer: K) -> Option<Time> {
        self.deadline_by_timer.get(&timer).copied()
    }

    /// Returns the earliest deadline; `None` if no timer runs.
    pub fn next_deadline(&self) -> Option<Time> {
        self.next_timer().map(|(deadline, _)| deadline)
    }

    /// Returns the earliest deadline and its timer; `None` if no timer runs. If several timers have this
    /// deadline, returns the least of them.
    pub fn next_timer(&self) -> Option<(Time, K)> {
        self.timers_by_deadline.first().copied()
    }

    /// Removes and returns the timer with the earliest deadline if it is at or before `now`.
    pub fn pop_expired(&mut self, now: Time) -> Option<K> {
        let (deadline, timer) = *self.timers_by_deadline.first()?;
        if deadline > now {
            return None;
        }
        self.timers_by_deadline.pop_first();
        self.deadline_by_timer.remove(&timer);
        Some(timer)
    }
}

impl<K: Ord + Copy> Default for TimerTable<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_expire_in_order_and_once() {
        let mut table = TimerTable::new();
        table.set_deadline('b', Time::from_secs(2));
        table.set_deadline('a', Time::from_secs(3));
        table.set_deadline('a', Time::from_secs(1));
        table.set_deadline('c', Time::from_secs(1));
        table.stop_timer('c');
        table.stop_timer('z');
        assert_eq!(table.next_deadline(), Some(Time::from_secs(1)));
        assert_eq!(table.next_timer(), Some((Time::from_secs(1), 'a')));
        assert_eq!(table.pop_expired(Time::ZERO), None);
        assert_eq!(table.pop_expired(Time::from_secs(5)), Some('a'));
        assert_eq!(table.pop_expired(Time::from_secs(5)), Some('b'));
        assert_eq!(table.pop_expired(Time::from_secs(5)), None);
        assert_eq!(table.next_deadline(), None);
    }
}
