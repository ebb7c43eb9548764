//! A small table of named timers, in the manner of quinn: one deadline per timer, none running twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::Time;

/// Deadlines by key, with the earliest at hand.
///
/// Setting a timer replaces its previous deadline. Every operation is O(log n), so that a home agent may
/// keep one timer per binding.
#[derive(Debug, Clone)]
pub struct TimerTable<K> {
    deadlines: BTreeMap<K, Time>,
    order: BTreeSet<(Time, K)>,
}

impl<K: Ord + Copy> TimerTable<K> {
    /// A table in which nothing runs.
    pub fn new() -> Self {
        TimerTable { deadlines: BTreeMap::new(), order: BTreeSet::new() }
    }

    /// Lets `timer` run out at `deadline`, whatever it was set to before.
    pub fn set(&mut self, timer: K, deadline: Time) {
        if let Some(previous) = self.deadlines.insert(timer, deadline) {
            self.order.remove(&(previous, timer));
        }
        self.order.insert((deadline, timer));
    }

    /// Stops `timer`; nothing happens when it does not run.
    pub fn stop(&mut self, timer: K) {
        if let Some(previous) = self.deadlines.remove(&timer) {
            self.order.remove(&(previous, timer));
        }
    }

    /// When `timer` runs out, if it runs.
    pub fn get(&self, timer: K) -> Option<Time> {
        self.deadlines.get(&timer).copied()
    }

    /// The earliest deadline of all.
    pub fn next_deadline(&self) -> Option<Time> {
        self.first().map(|(deadline, _)| deadline)
    }

    /// The same with its timer, the least of those that have it.
    pub fn first(&self) -> Option<(Time, K)> {
        self.order.first().copied()
    }

    /// Takes one timer that has run out by `now`, the earliest first.
    pub fn pop_expired(&mut self, now: Time) -> Option<K> {
        let (deadline, timer) = *self.order.first()?;
        if deadline > now {
            return None;
        }
        self.order.pop_first();
        self.deadlines.remove(&timer);
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
    fn timers_run_out_in_order_and_once() {
        let mut table = TimerTable::new();
        table.set('b', Time::from_secs(2));
        table.set('a', Time::from_secs(3));
        table.set('a', Time::from_secs(1));
        table.set('c', Time::from_secs(1));
        table.stop('c');
        table.stop('z');
        assert_eq!(table.next_deadline(), Some(Time::from_secs(1)));
        assert_eq!(table.first(), Some((Time::from_secs(1), 'a')));
        assert_eq!(table.pop_expired(Time::ZERO), None);
        assert_eq!(table.pop_expired(Time::from_secs(5)), Some('a'));
        assert_eq!(table.pop_expired(Time::from_secs(5)), Some('b'));
        assert_eq!(table.pop_expired(Time::from_secs(5)), None);
        assert_eq!(table.next_deadline(), None);
    }
}
