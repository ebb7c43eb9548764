//! Reads the emulated links of a scenario, and the changes of links by its actions.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use super::scenario_error::ErrorAtPlace;
use super::{Duration, LinkEnd, LinkRate, Octets, Scenario, ScenarioError};
use crate::emulation::link::LinkProperties;
use crate::emulation::loss;
use crate::emulation::runner::EmulatedLink;
use crate::emulation::trace::Trace;
use crate::emulation::way::DirectionProperties;

/// Properties of an emulated link. An absent property keeps its value; at first the link is like a wire.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Emulation {
    /// One-way delay.
    #[serde(default)]
    pub delay: Option<Duration>,
    /// Maximum additional delay of a frame.
    #[serde(default)]
    pub jitter: Option<Duration>,
    /// Whether the jitter may reorder frames.
    #[serde(default)]
    pub reorder: Option<bool>,
    /// Rate of the bottleneck.
    #[serde(default)]
    pub rate: Option<LinkRate>,
    /// Capacity of the queue before the bottleneck.
    #[serde(default)]
    pub queue: Option<Octets>,
    /// Probability of loss for each frame independently.
    #[serde(default)]
    pub loss: Option<f64>,
    /// Loss in bursts.
    #[serde(default)]
    pub burst: Option<Burst>,
    /// Signal strength in dBm.
    #[serde(default)]
    pub signal: Option<f64>,
    /// Properties of the direction from the second end to the first, if they differ.
    #[serde(default)]
    pub back: Option<Box<Emulation>>,
    /// File with changes over time.
    #[serde(default)]
    pub trace: Option<Spanned<String>>,
}

/// Loss in bursts.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Probability, for each frame, that a burst begins.
    pub enter: f64,
    /// Probability, for each frame, that a burst ends.
    pub leave: f64,
    /// Probability of loss in a burst.
    #[serde(default = "default_burst_loss")]
    pub loss: f64,
}

fn default_burst_loss() -> f64 {
    1.0
}

/// New properties of a link.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkDegradation {
    /// An end of the link.
    pub link: Spanned<LinkEnd>,
    /// New properties; absent properties stay unchanged.
    pub to: Spanned<Emulation>,
}

impl Emulation {
    /// Returns the initial properties of the link.
    pub fn link_properties(&self) -> LinkProperties {
        self.applied_to(&LinkProperties::default())
    }

    /// Returns the properties in `nature` with the changes of this emulation.
    pub fn applied_to(&self, nature: &LinkProperties) -> LinkProperties {
        let mut nature = nature.clone();
        nature.directions.iter_mut().for_each(|way| self.apply_to_direction(way));
        if let Some(back) = &self.back {
            back.apply_to_direction(&mut nature.directions[1]);
        }
        nature.signal_dbm = self.signal.or(nature.signal_dbm);
        nature
    }

    fn apply_to_direction(&self, way: &mut DirectionProperties) {
        way.delay = self.delay.map_or(way.delay, |d| d.0);
        way.jitter = self.jitter.map_or(way.jitter, |d| d.0);
        way.may_reorder = self.reorder.unwrap_or(way.may_reorder);
        way.rate = self.rate.map(|r| r.0).or(way.rate);
        way.queue_octets = self.queue.map_or(way.queue_octets, |q| q.0);
        way.loss.random_loss = self.loss.unwrap_or(way.loss.random_loss);
        let burst = self.burst.map(|b| loss::Burst {
            enter_probability: b.enter,
            leave_probability: b.leave,
            loss_in_burst: b.loss,
        });
        way.loss.burst = burst.or(way.loss.burst);
    }

    /// Returns an error message about the emulation; `None` if it is valid. `trace` says whether a trace is
    /// allowed here: only a link as a whole has one. `back` says that this is the direction back, which has
    /// no signal strength of its own.
    fn find_mistake(&self, trace: bool, back: bool) -> Option<String> {
        let probability = |name: &str, value: Option<f64>| {
            let value = value.filter(|v| !(0.0..=1.0).contains(v))?;
            Some(format!("{name} is {value}, expected a probability from 0 to 1"))
        };
        let burst = self.burst;
        if self.trace.is_some() && !trace {
            return Some("only a link has a trace".into());
        }
        if back && (self.signal.is_some() || self.back.is_some()) {
            return Some("the way back has neither a signal nor a way back".into());
        }
        if let Some(signal) = self.signal.filter(|s| !(-200.0..=100.0).contains(s)) {
            return Some(format!("signal is {signal}, expected -200 to 100"));
        }
        probability("loss", self.loss)
            .or_else(|| probability("burst.enter", burst.map(|b| b.enter)))
            .or_else(|| probability("burst.leave", burst.map(|b| b.leave)))
            .or_else(|| probability("burst.loss", burst.map(|b| b.loss)))
            .or_else(|| self.back.as_ref()?.find_mistake(false, true))
    }
}

impl Scenario {
    /// Returns the indices of those links that are emulated.
    pub fn emulated_link_numbers(&self) -> Vec<usize> {
        (0..self.links.len()).filter(|l| self.links[*l].emulation.is_some()).collect()
    }

    /// Returns the emulated links.
    pub fn emulated_links(&self) -> Vec<EmulatedLink> {
        let link = |number: usize| {
            let link = &self.links[number];
            let [first, second] = [link.ends.first()?, link.ends.get(1)?];
            Some(EmulatedLink {
                index: number,
                ends: [first.get_ref().clone(), second.get_ref().clone()],
                properties: link.emulation.as_ref()?.get_ref().link_properties(),
                trace: self.traces.get(&number).cloned().unwrap_or_default(),
                seed: self.seed.wrapping_add(number as u64),
            })
        };
        self.emulated_link_numbers().into_iter().filter_map(link).collect()
    }
}

/// Checks all emulations, and that actions name emulated links.
pub(super) fn check_emulation(scenario: &Scenario) -> Result<(), ErrorAtPlace> {
    for link in &scenario.links {
        let Some(emulation) = &link.emulation else { continue };
        if link.bridge.is_some() {
            return Err((emulation.span(), "a link with a bridge cannot be emulated".into()));
        }
        if let Some(fault) = emulation.get_ref().find_mistake(true, false) {
            return Err((emulation.span(), fault));
        }
    }
    let emulated = |end: &Spanned<LinkEnd>| {
        let ends = scenario.links.iter().filter(|l| l.emulation.is_some()).flat_map(|l| &l.ends);
        if ends.clone().any(|e| e.get_ref() == end.get_ref()) {
            return Ok(());
        }
        let known: Vec<String> = ends.map(|e| e.get_ref().to_string()).collect();
        let known = super::scenario_error::join_quoted_names(known.iter().map(String::as_str).collect());
        Err((end.span(), format!("{} belongs to no emulated link; on one are: {known}", end.get_ref())))
    };
    for action in &scenario.actions {
        if let Some(degrade) = &action.degrade {
            emulated(&degrade.link)?;
            if let Some(fault) = degrade.to.get_ref().find_mistake(false, false) {
                return Err((degrade.to.span(), fault));
            }
        }
        let ends = [&action.blackhole, &action.restore].into_iter().flatten();
        for end in ends.filter(|end| !scenario.is_radio(end.get_ref())) {
            emulated(end)?;
        }
    }
    if let Some(random) = &scenario.random {
        random.get_ref().links.iter().try_for_each(emulated)?;
    }
    Ok(())
}

/// Reads the traces in `folder`, by index of the link.
pub(super) fn read_traces(
    scenario: &Scenario,
    folder: &Path,
    fault: impl Fn(std::ops::Range<usize>, String) -> ScenarioError,
) -> Result<BTreeMap<usize, Trace>, ScenarioError> {
    let mut traces = BTreeMap::new();
    for (number, link) in scenario.links.iter().enumerate() {
        let Some(name) = link.emulation.as_ref().and_then(|e| e.get_ref().trace.as_ref()) else { continue };
        let file = folder.join(name.get_ref());
        let text = std::fs::read_to_string(&file)
            .map_err(|e| fault(name.span(), format!("cannot read {:?} beside it: {e}", name.get_ref())))?;
        let trace = Trace::parse(&text).map_err(|m| ScenarioError {
            file: file.clone(),
            line: m.line,
            column: 1,
            message: m.message,
        })?;
        traces.insert(number, trace);
    }
    Ok(traces)
}
