//! Events of a virtual world in the order of their times.

use std::collections::BTreeMap;

use carnet_base::Time;

/// Pending events, the earliest first. Events of one time have the order in which they were scheduled.
#[derive(Debug, Clone)]
pub struct Timeline<E> {
    pending_events: BTreeMap<(Time, u64), E>,
    /// Number of events scheduled so far.
    scheduled_count: u64,
}

impl<E> Default for Timeline<E> {
    fn default() -> Timeline<E> {
        Timeline { pending_events: BTreeMap::new(), scheduled_count: 0 }
    }
}

impl<E> Timeline<E> {
    /// Adds an event at `at`.
    pub fn schedule_at(&mut self, at: Time, event: E) {
        self.scheduled_count += 1;
        self.pending_events.insert((at, self.scheduled_count), event);
    }

    /// Returns the number of pending events.
    pub fn len(&self) -> usize {
        self.pending_events.len()
    }

    /// Returns whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.pending_events.is_empty()
    }

    /// Returns the time of the earliest event; `None` if no event is pending.
    pub fn next_event_at(&self) -> Option<Time> {
        self.pending_events.first_key_value().map(|((at, _), _)| *at)
    }

    /// Removes and returns the earliest event if it is due at `now`; otherwise `None`.
    pub fn pop_due_event(&mut self, now: Time) -> Option<E> {
        self.pending_events.first_entry().filter(|entry| entry.key().0 <= now).map(|entry| entry.remove())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeline_orders_events_by_time_then_insertion() {
        let mut timeline = Timeline::default();
        for (at, event) in [(2, "second"), (1, "first"), (2, "third"), (3, "later")] {
            timeline.schedule_at(Time::from_secs(at), event);
        }
        assert_eq!((timeline.len(), timeline.is_empty()), (4, false));
        assert_eq!(timeline.next_event_at(), Some(Time::from_secs(1)));
        let due: Vec<_> = std::iter::from_fn(|| timeline.pop_due_event(Time::from_secs(2))).collect();
        assert_eq!(due, ["first", "second", "third"]);
        assert_eq!(timeline.next_event_at(), Some(Time::from_secs(3)));
    }
}
