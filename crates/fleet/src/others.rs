//! The other members, by what they say of themselves while they wait for the seat.

use std::collections::BTreeMap;
use std::time::Duration;

use carnet_base::Time;

use crate::config::SeatConfig;

/// After so long without a word a member is gone.
pub const GONE: Duration = Duration::from_secs(3);

/// One of them.
#[derive(Debug)]
struct Other {
    /// Since when it has been there, and not cut off.
    since: Time,
    /// When it was heard last.
    last: Time,
    cut_off: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Others(BTreeMap<String, Other>);

impl Others {
    /// Takes what one says. The caller sees to it that it is one of the members.
    pub(crate) fn hear(&mut self, now: Time, name: String, cut_off: bool) {
        let other = self.0.entry(name).or_insert(Other { since: now, last: now, cut_off });
        if other.cut_off || cut_off || now.saturating_since(other.last) > GONE {
            other.since = now;
        }
        (other.last, other.cut_off) = (now, cut_off);
    }

    /// It waits no longer.
    pub(crate) fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// The first of these members of which this holds, among those that are there and not cut off.
    fn first(&self, now: Time, members: &[String], holds: impl Fn(&Other) -> bool) -> Option<String> {
        let is_there = |other: &Other| now.saturating_since(other.last) < GONE && !other.cut_off;
        let found = members
            .iter()
            .find(|name| self.0.get(name.as_str()).is_some_and(|other| is_there(other) && holds(other)));
        found.cloned()
    }

    /// One that is to have the seat rather than this member, and has been there for a while.
    pub(crate) fn better(&self, now: Time, config: &SeatConfig) -> Option<String> {
        let before = config.members.get(..config.rank_of(&config.member)).unwrap_or_default();
        self.first(now, before, |other| other.last.saturating_since(other.since) >= config.settled)
    }

    /// One that has said after this moment that it is not cut off.
    pub(crate) fn connected(&self, now: Time, after: Time, config: &SeatConfig) -> Option<String> {
        self.first(now, &config.members, |other| other.last >= after)
    }

    /// Until when there is one that is not cut off, as far as is known now.
    pub(crate) fn connected_until(&self) -> Time {
        let connected = self.0.values().filter(|other| !other.cut_off);
        connected.map(|other| other.last + GONE).max().unwrap_or(Time::ZERO)
    }
}
