//! Creates random events, a series of actions that a seed determines.
//!
//! Each event impairs a link, or returns it to the scenario's state. The time is divided into slots, and each
//! slot has one event at a random moment, as RFC 2330 11.1.3 describes for probes.

use serde::Deserialize;
use toml::Spanned;

use super::emulation::{Emulation, LinkDegradation};
use super::scenario_error::ErrorAtPlace;
use super::{Action, Duration, LinkEnd, Scenario};
use crate::medium::chance::{RandomDecisionKind, draw_uniform, random_bits};

/// Random events.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomLinkEvents {
    /// First part of the actions' names: `NAME-1`, `NAME-2` and so on.
    pub name: String,
    /// Number of events.
    pub count: usize,
    /// Earliest time of the first event.
    pub from: Duration,
    /// Time at which the last event is over.
    pub to: Duration,
    /// For each emulated link that events may impair, the end that loses its carrier.
    pub links: Vec<Spanned<LinkEnd>>,
    /// Kinds of possible events.
    pub kinds: Vec<LinkEventKind>,
    /// Minimum number of links that are unimpaired at any time.
    #[serde(default = "default_alive_links")]
    pub alive: usize,
    /// Properties of a link in an event of kind `degrade`.
    #[serde(default)]
    pub degrade: Emulation,
}

fn default_alive_links() -> usize {
    1
}

/// Kind of event on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkEventKind {
    /// The link loses its carrier.
    Carrier,
    /// The link accepts all frames and delivers none.
    Blackhole,
    /// The link gets the properties of `degrade`.
    Degrade,
}

/// Converts the random events of a scenario to actions of its timetable.
pub(super) fn expand_random_actions(scenario: &mut Scenario) -> Result<(), ErrorAtPlace> {
    let Some(random) = scenario.random.clone() else { return Ok(()) };
    let (span, random) = (random.span(), random.into_inner());
    let wrong = |message: &str| Err((span.clone(), message.to_string()));
    if random.count == 0 || random.links.is_empty() || random.kinds.is_empty() {
        return wrong("random events have a count, links and kinds");
    }
    if random.from >= random.to || random.to > scenario.timetable.duration {
        return wrong("random events are from a time to a later one, within the duration of the timetable");
    }
    if random.alive >= random.links.len() {
        return wrong("random events leave fewer links alone than there are");
    }
    scenario.actions.extend(draw_actions(&random, scenario.seed));
    scenario.actions.sort_by_key(|a| a.at);
    Ok(())
}

fn draw_actions(random: &RandomLinkEvents, seed: u64) -> Vec<Action> {
    let mut hit: Vec<bool> = vec![false; random.links.len()];
    let slot = (random.to.0 - random.from.0) / random.count as u64;
    (0..random.count as u64)
        .map(|n| {
            let mut dice = 0;
            let mut pick = |of: usize| {
                dice += 1;
                (random_bits(seed, RandomDecisionKind::Event, &[n, dice]) % of as u64) as usize
            };
            let alive = hit.iter().filter(|h| !**h).count();
            // If only `alive` links are unimpaired, choose an impaired link, which the event restores.
            let may: Vec<usize> = (0..hit.len()).filter(|l| hit[*l] || alive > random.alive).collect();
            let link = may[pick(may.len())];
            let end = &random.links[link];
            let moment = (draw_uniform(seed, RandomDecisionKind::Event, &[n, 0]) * slot as f64) as u64;
            let number = n + 1;
            let mut action = Action {
                name: Spanned::new(0..0, format!("{}-{number}", random.name)),
                at: Duration(random.from.0 + n * slot + moment),
                ..Action::default()
            };
            let name = end.get_ref();
            hit[link] = !hit[link];
            if !hit[link] {
                action.label = format!("{name} is as it was");
                action.restore = Some(end.clone());
                return action;
            }
            match random.kinds[pick(random.kinds.len())] {
                LinkEventKind::Carrier => {
                    action.label = format!("{name} loses its carrier");
                    action.carrier_off = Some(end.clone());
                }
                LinkEventKind::Blackhole => {
                    action.label = format!("{name} is a black hole");
                    action.blackhole = Some(end.clone());
                }
                LinkEventKind::Degrade => {
                    action.label = format!("{name} gets bad");
                    let to = Spanned::new(0..0, random.degrade.clone());
                    action.degrade = Some(LinkDegradation { link: end.clone(), to });
                }
            }
            action
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;

    fn test_events() -> RandomLinkEvents {
        let end = |n: usize| Spanned::new(0..0, LinkEnd { node: "mr".into(), interface: format!("w{n}") });
        RandomLinkEvents {
            name: "e".into(),
            count: 50,
            from: Duration(2 * SECOND),
            to: Duration(52 * SECOND),
            links: (0..3).map(end).collect(),
            kinds: vec![LinkEventKind::Carrier, LinkEventKind::Blackhole, LinkEventKind::Degrade],
            alive: 1,
            degrade: Emulation::default(),
        }
    }

    #[test]
    fn random_actions_keep_one_link_and_use_every_kind() {
        for seed in 0..50 {
            let actions = draw_actions(&test_events(), seed);
            assert_eq!(actions.len(), 50);
            let mut hit = std::collections::BTreeSet::new();
            let mut kinds = [0; 4];
            for (n, a) in actions.iter().enumerate() {
                let slot = Duration((n as u64 + 2) * SECOND)..Duration((n as u64 + 3) * SECOND);
                assert!(slot.contains(&a.at), "{:?}", a.at);
                let taken = [
                    a.carrier_off.as_ref(),
                    a.blackhole.as_ref(),
                    a.degrade.as_ref().map(|d| &d.link),
                    a.restore.as_ref(),
                ];
                let kind = taken.iter().position(Option::is_some).expect("something happens");
                let end = taken[kind].expect("is there").get_ref().to_string();
                kinds[kind] += 1;
                assert_eq!(kind == 3, hit.contains(&end), "only what was hit is restored");
                if kind == 3 {
                    hit.remove(&end)
                } else {
                    hit.insert(end)
                };
                assert!(hit.len() < 3, "one is left alone");
            }
            assert!(kinds.iter().all(|k| *k >= 2), "{kinds:?}");
        }
    }

    #[test]
    fn random_actions_depend_only_on_seed() {
        let labels =
            |seed| draw_actions(&test_events(), seed).iter().map(|a| a.label.clone()).collect::<Vec<_>>();
        assert_eq!(labels(1), labels(1));
        assert_ne!(labels(1), labels(2));
    }
}
