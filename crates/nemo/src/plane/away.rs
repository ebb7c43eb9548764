//! Absence of the home agent, after which packets of hosts on board may leave without the tunnel.
//!
//! A connection does not survive the change of its address. So the home agent counts as away only after
//! [`PATIENCE`] without service. Then no tunnel carries packets, or no answer comes over the tunnel's uplink.
//! It is back as soon as it answers.

use std::time::Duration;

use carnet_base::Time;
use carnet_mobility::flow::{Ipv6Selector, TrafficSelector};

use super::Router;
use crate::forwarding::BreakoutPolicy;

/// Time without service after which the home agent counts as away.
const PATIENCE: Duration = Duration::from_secs(10);
/// Name of the policy in the status.
const NAME: &str = "when_home_agent_is_away";

/// Whether the home agent is away.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Absence {
    /// Whether the config asks for a reaction.
    is_watched: bool,
    /// Time since which the home agent gives no service; `None` while it does.
    since: Option<Time>,
    is_away: bool,
}

impl Absence {
    pub(super) fn new(is_watched: bool) -> Absence {
        Absence { is_watched, since: None, is_away: false }
    }

    /// Takes over the state before a change of the config.
    pub(super) fn adopt(&mut self, old: Absence) {
        if self.is_watched {
            (self.since, self.is_away) = (old.since, old.is_away);
        }
    }

    /// Notes whether the home agent gives service. Returns `Some(true)` if the home agent now counts as away,
    /// `Some(false)` if it is back, and `None` without a change.
    fn update(&mut self, now: Time, is_served: bool) -> Option<bool> {
        if !self.is_watched {
            return None;
        }
        let since = if is_served { None } else { Some(self.since.unwrap_or(now)) };
        self.since = since;
        let is_away = since.is_some_and(|since| now.saturating_since(since) >= PATIENCE);
        let changed = is_away != self.is_away;
        self.is_away = is_away;
        changed.then_some(is_away)
    }

    /// Returns when the home agent counts as away.
    pub(super) fn poll_timeout(self) -> Option<Time> {
        self.since.filter(|_| !self.is_away).map(|since| since + PATIENCE)
    }
}

impl Router {
    /// Notes whether the home agent gives service. Returns a message for the operator after a change,
    /// otherwise `None`.
    pub(super) fn follow_absence(&mut self, now: Time) -> Option<&'static str> {
        if !self.absence.is_watched {
            return None;
        }
        let is_served = self.machine.is_served();
        self.absence.update(now, is_served).map(|is_away| match is_away {
            true => "the home agent is away: packets of hosts on board leave by the uplinks",
            false => "the home agent is back: packets of hosts on board take the tunnel",
        })
    }

    /// Returns whether packets leave without the tunnel now because the home agent is away.
    pub(crate) fn breaks_out_now(&self) -> bool {
        self.absence.is_away && !self.machine.is_home()
    }

    /// Returns whether packets may ever leave without the tunnel.
    pub(super) fn may_break_out(&self) -> bool {
        self.absence.is_watched || self.breakouts.iter().any(|policy| policy.breaks_out)
    }

    /// Returns the policies about packets that leave without the tunnel now.
    pub(crate) fn breakouts(&self) -> Vec<BreakoutPolicy> {
        let mut policies = self.breakouts.clone();
        if self.absence.is_away {
            policies.push(BreakoutPolicy {
                name: NAME.to_owned(),
                breaks_out: true,
                selectors: vec![TrafficSelector::Ipv6(Ipv6Selector::default())],
                lan: Vec::new(),
                uplinks: Vec::new(),
                // All other policies precede this one.
                flows_before: usize::MAX,
            });
        }
        policies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_agent_is_away_after_ten_seconds_and_back_at_once() {
        let at = Time::from_secs;
        let mut absence = Absence::new(true);
        assert_eq!(absence.update(at(100), true), None);
        assert_eq!(absence.poll_timeout(), None);
        assert_eq!(absence.update(at(101), false), None);
        assert_eq!(absence.poll_timeout(), Some(at(111)));
        assert_eq!(absence.update(at(105), true), None, "a short outage changes nothing");
        assert_eq!(absence.update(at(106), false), None);
        assert_eq!(absence.update(at(115), false), None);
        assert_eq!(absence.update(at(116), false), Some(true));
        assert_eq!((absence.update(at(117), false), absence.poll_timeout()), (None, None));
        let mut reloaded = Absence::new(true);
        reloaded.adopt(absence);
        assert_eq!(reloaded.update(at(118), true), Some(false));
        let mut without = Absence::new(false);
        without.adopt(absence);
        assert_eq!((without.update(at(200), false), without.poll_timeout()), (None, None));
    }
}
