//! The other members, by the presences that they write while they are standbys.

use std::collections::BTreeMap;
use std::time::Duration;

use carnet_base::Time;

use crate::config::LeadershipConfig;

/// Time after the last presence of a member from which the member counts as failed.
pub const MEMBER_TIMEOUT: Duration = Duration::from_secs(3);

/// State of another member.
#[derive(Debug)]
struct OtherMember {
    /// Time since which the member has written presences and was not cut off.
    connected_since: Time,
    /// Time of its last presence.
    last_presence_at: Time,
    is_cut_off: bool,
}

/// The other members by name.
#[derive(Debug, Default)]
pub(crate) struct OtherMembers(BTreeMap<String, OtherMember>);

impl OtherMembers {
    /// Handles the presence of a member. The caller checks that the name belongs to a member.
    pub(crate) fn handle_presence(&mut self, now: Time, name: String, cut_off: bool) {
        let other = self.0.entry(name).or_insert(OtherMember {
            connected_since: now,
            last_presence_at: now,
            is_cut_off: cut_off,
        });
        if other.is_cut_off || cut_off || now.saturating_since(other.last_presence_at) > MEMBER_TIMEOUT {
            other.connected_since = now;
        }
        (other.last_presence_at, other.is_cut_off) = (now, cut_off);
    }

    /// Removes a member that is no longer a standby.
    pub(crate) fn remove_member(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Returns the first of these members for which `holds` is true. Considers only members that are present
    /// and not cut off.
    fn first_present_member(
        &self,
        now: Time,
        members: &[String],
        holds: impl Fn(&OtherMember) -> bool,
    ) -> Option<String> {
        let is_there = |other: &OtherMember| {
            now.saturating_since(other.last_presence_at) < MEMBER_TIMEOUT && !other.is_cut_off
        };
        let found = members
            .iter()
            .find(|name| self.0.get(name.as_str()).is_some_and(|other| is_there(other) && holds(other)));
        found.cloned()
    }

    /// Returns a member that the config prefers to this one and that has been present for long enough; `None`
    /// if no member is.
    pub(crate) fn preferred_member(&self, now: Time, config: &LeadershipConfig) -> Option<String> {
        let before = config.member_names.get(..config.rank_of(&config.own_member_name)).unwrap_or_default();
        self.first_present_member(now, before, |other| {
            other.last_presence_at.saturating_since(other.connected_since) >= config.fail_back_delay
        })
    }

    /// Returns a member that has announced since `after` that it is not cut off; `None` if no member has.
    pub(crate) fn connected_member(
        &self,
        now: Time,
        after: Time,
        config: &LeadershipConfig,
    ) -> Option<String> {
        self.first_present_member(now, &config.member_names, |other| other.last_presence_at >= after)
    }

    /// Returns the time until which a member that is not cut off counts as present, without further
    /// presences.
    pub(crate) fn connected_until(&self) -> Time {
        let connected = self.0.values().filter(|other| !other.is_cut_off);
        connected.map(|other| other.last_presence_at + MEMBER_TIMEOUT).max().unwrap_or(Time::ZERO)
    }
}
