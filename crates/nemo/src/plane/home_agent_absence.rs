//! Absence of the home agent, after which packets of hosts on board may leave without the tunnel.
//!
//! The home agent gives no service if no tunnel carries packets, or if no answer comes over the tunnel's
//! uplink. A connection does not survive the change of its address. So the home agent counts as away only
//! after [`TIME_UNTIL_ABSENCE`] without service. It counts as back as soon as it answers.

use std::time::Duration;

use carnet_base::Time;
use carnet_mobility::flow::{Ipv6Selector, TrafficSelector};

use super::RouterRole;
use crate::forwarding::BreakoutPolicy;

/// Time without service after which the home agent counts as away.
const TIME_UNTIL_ABSENCE: Duration = Duration::from_secs(10);
/// Name of the policy in the status.
const ABSENCE_POLICY_NAME: &str = "when_home_agent_is_away";

/// Whether the home agent is away.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HomeAgentAbsence {
    /// Whether the config lets packets of hosts on board leave without the tunnel while the home agent is
    /// away.
    is_enabled: bool,
    /// Time since which the home agent gives no service; `None` while it does.
    unserved_since: Option<Time>,
    is_home_agent_away: bool,
}

impl HomeAgentAbsence {
    pub(super) fn new(is_watched: bool) -> HomeAgentAbsence {
        HomeAgentAbsence { is_enabled: is_watched, unserved_since: None, is_home_agent_away: false }
    }

    /// Takes over the state before a change of the config.
    pub(super) fn take_over_state(&mut self, old: HomeAgentAbsence) {
        if self.is_enabled {
            (self.unserved_since, self.is_home_agent_away) = (old.unserved_since, old.is_home_agent_away);
        }
    }

    /// Stores whether the home agent gives service. Returns `Some(true)` if the home agent now counts as
    /// away, `Some(false)` if it is back, and `None` without a change.
    fn update_service(&mut self, now: Time, is_served: bool) -> Option<bool> {
        if !self.is_enabled {
            return None;
        }
        let since = if is_served { None } else { Some(self.unserved_since.unwrap_or(now)) };
        self.unserved_since = since;
        let is_home_agent_away = since.is_some_and(|since| now.saturating_since(since) >= TIME_UNTIL_ABSENCE);
        let changed = is_home_agent_away != self.is_home_agent_away;
        self.is_home_agent_away = is_home_agent_away;
        changed.then_some(is_home_agent_away)
    }

    /// Returns when the home agent will count as away; `None` while it gives service, and when it already
    /// counts as away.
    pub(super) fn poll_timeout(self) -> Option<Time> {
        self.unserved_since.filter(|_| !self.is_home_agent_away).map(|since| since + TIME_UNTIL_ABSENCE)
    }
}

impl RouterRole {
    /// Stores whether the home agent gives service. If the home agent is now away or back, returns a message
    /// for the operator, otherwise `None`.
    pub(super) fn apply_absence_policy(&mut self, now: Time) -> Option<&'static str> {
        if !self.home_agent_absence.is_enabled {
            return None;
        }
        let is_served = self.state_machine.is_served_by_home_agent();
        self.home_agent_absence.update_service(now, is_served).map(|is_home_agent_away| {
            match is_home_agent_away {
                true => "the home agent is away: packets of hosts on board leave by the uplinks",
                false => "the home agent is back: packets of hosts on board take the tunnel",
            }
        })
    }

    /// Returns whether packets leave without the tunnel now because the home agent is away.
    pub(crate) fn is_sending_outside_tunnel(&self) -> bool {
        self.home_agent_absence.is_home_agent_away && !self.state_machine.is_at_home()
    }

    /// Returns whether packets may ever leave without the tunnel.
    pub(super) fn may_ever_send_outside_tunnel(&self) -> bool {
        self.home_agent_absence.is_enabled || self.configured_breakouts.iter().any(|policy| policy.breaks_out)
    }

    /// Returns the policies about packets that leave without the tunnel now.
    pub(crate) fn breakout_policies(&self) -> Vec<BreakoutPolicy> {
        let mut policies = self.configured_breakouts.clone();
        if self.home_agent_absence.is_home_agent_away {
            policies.push(BreakoutPolicy {
                name: ABSENCE_POLICY_NAME.to_owned(),
                breaks_out: true,
                flow_selectors: vec![TrafficSelector::Ipv6(Ipv6Selector::default())],
                lan_interfaces: Vec::new(),
                uplinks: Vec::new(),
                // All other policies precede this one.
                flow_rules_before: usize::MAX,
            });
        }
        policies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_agent_counts_as_away_after_ten_seconds_and_as_back_at_once() {
        let at = Time::from_secs;
        let mut absence = HomeAgentAbsence::new(true);
        assert_eq!(absence.update_service(at(100), true), None);
        assert_eq!(absence.poll_timeout(), None);
        assert_eq!(absence.update_service(at(101), false), None);
        assert_eq!(absence.poll_timeout(), Some(at(111)));
        assert_eq!(absence.update_service(at(105), true), None, "a short outage changes nothing");
        assert_eq!(absence.update_service(at(106), false), None);
        assert_eq!(absence.update_service(at(115), false), None);
        assert_eq!(absence.update_service(at(116), false), Some(true));
        assert_eq!((absence.update_service(at(117), false), absence.poll_timeout()), (None, None));
        let mut reloaded = HomeAgentAbsence::new(true);
        reloaded.take_over_state(absence);
        assert_eq!(reloaded.update_service(at(118), true), Some(false));
        let mut without = HomeAgentAbsence::new(false);
        without.take_over_state(absence);
        assert_eq!((without.update_service(at(200), false), without.poll_timeout()), (None, None));
    }
}
