//! The other members, by the presences that they write while they are standbys.

use std::collections::BTreeMap;
use std::time::Duration;

use carnet_base::Time;

use crate::config::SeatConfig;

/// Time without a presence after which a member is gone.
pub const GONE: Duration = Duration::from_secs(3);

/// State of another member.
#[derive(Debug)]
struct Other {
    /// Time since which the member has been present and not cut off.
    since: Time,
    /// Time of its last presence.
    last: Time,
    cut_off: bool,
}

/// The other members by name.
#[derive(Debug, Default)]
pub(crate) struct Others(BTreeMap<String, Other>);

impl Others {
    /// Handles the presence of a member. The caller checks that the name belongs to a member.
    pub(crate) fn hear(&mut self, now: Time, name: String, cut_off: bool) {
        let other = self.0.entry(name).or_insert(Other { since: now, last: now, cut_off });
        if other.cut_off || cut_off || now.saturating_since(other.last) > GONE {
            other.since = now;
        }
        (other.last, other.cut_off) = (now, cut_off);
    }

    /// Removes a member that is no longer a standby.
    pub(crate) fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Returns the first of these members for which `holds` is true, among those that are present and not cut
    /// off.
    fn first(&self, now: Time, members: &[String], holds: impl Fn(&Other) -> bool) -> Option<String> {
        let is_there = |other: &Other| now.saturating_since(other.last) < GONE && !other.cut_off;
        let found = members
            .iter()
            .find(|name| self.0.get(name.as_str()).is_some_and(|other| is_there(other) && holds(other)));
        found.cloned()
    }

    /// Returns a member that precedes this one in the order of preference and has been present for long
    /// enough.
    pub(crate) fn better(&self, now: Time, config: &SeatConfig) -> Option<String> {
        let before = config.members.get(..config.rank_of(&config.member)).unwrap_or_default();
        self.first(now, before, |other| other.last.saturating_since(other.since) >= config.settled)
    }

    /// Returns a member that has announced after this moment that it is not cut off.
    pub(crate) fn connected(&self, now: Time, after: Time, config: &SeatConfig) -> Option<String> {
        self.first(now, &config.members, |other| other.last >= after)
    }

    /// Returns the time until which a member that is not cut off counts as present, as far as known now.
    pub(crate) fn connected_until(&self) -> Time {
        let connected = self.0.values().filter(|other| !other.cut_off);
        connected.map(|other| other.last + GONE).max().unwrap_or(Time::ZERO)
    }
}
