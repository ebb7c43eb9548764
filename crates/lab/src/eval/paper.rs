//! The papers as data (`eval/papers`): what each of their figures shows and states, and the experiment that
//! is made for it here.
//!
//! Nothing in them is code, and nothing of them is in the code: another paper is another file. A figure names
//! the experiment whose samples it draws, and for each number that the paper gives, how ours is got from
//! them.

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

/// The files, in the order in which they are shown.
const FILES: [&str; 4] = [
    include_str!("../../../../eval/papers/nemo-basic-support.toml"),
    include_str!("../../../../eval/papers/nemo-low-end.toml"),
    include_str!("../../../../eval/papers/nemo-wimax.toml"),
    include_str!("../../../../eval/papers/cargeo6.toml"),
];

/// How much is measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// Everything.
    #[default]
    Full,
    /// Fewer points and repetitions.
    Quick,
    /// Only whether it works.
    Smoke,
}

/// A paper.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Short name, as on the command line.
    pub name: String,
    /// Title.
    pub title: String,
    /// Authors.
    pub authors: String,
    /// When.
    pub year: u32,
    /// With what they measured.
    pub setting: String,
    /// Experiments that the lab repeats.
    #[serde(rename = "experiment")]
    pub experiments: Vec<Experiment>,
    /// Figures of the paper.
    #[serde(rename = "figure")]
    pub figures: Vec<Figure>,
}

/// Kind of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// UDP at a rate, by iperf3.
    Udp,
    /// TCP as fast as it goes, by iperf3.
    Tcp,
    /// Round trips, by ping.
    Rtt,
    /// Round trips of UDP, to the nanosecond.
    Echo,
    /// The largest echo that goes in one piece.
    PathMtu,
    /// How long nothing comes when the uplink changes.
    Handover,
    /// Packets a second that pass without loss.
    Packets,
    /// UDP at a rate, by mgen; what arrives is counted.
    Mgen,
    /// Metrics of a scenario.
    Scenario,
}

/// Where an experiment is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Mobile router and home agent.
    #[default]
    Routers,
    /// Two vehicles.
    OneHop,
    /// Two vehicles and one between them.
    TwoHops,
}

/// Axis of the figure; the other of the two variables has one curve for each value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Across {
    /// Octets of payload.
    #[default]
    Size,
    /// Offered Mbit/s.
    Mbit,
}

/// An experiment. Which of the keys it has depends on its kind.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name within the paper.
    pub id: String,
    /// Kind of the measurement.
    pub kind: Kind,
    /// Where.
    #[serde(default, rename = "bed")]
    pub place: Place,
    /// Rate of the access link, as tc has it; without a limit if absent.
    #[serde(default)]
    pub link: Option<String>,
    /// Also IPv4 without a tunnel.
    #[serde(default)]
    pub ipv4: bool,
    /// To the mobile network.
    #[serde(default)]
    pub down: bool,
    /// Octets: of payload, or of the packet where packets are counted (kinds packets, mgen).
    #[serde(default)]
    pub sizes: Vec<u32>,
    /// Offered Mbit/s; 0 is as fast as it goes.
    #[serde(default)]
    pub mbit: Vec<f64>,
    /// The axis.
    #[serde(default)]
    pub across: Across,
    /// TCP windows in KiB.
    #[serde(default)]
    pub windows: Vec<u32>,
    /// TCP segments in octets.
    #[serde(default)]
    pub segments: Vec<u32>,
    /// Seconds of each measurement.
    #[serde(default)]
    pub seconds: u64,
    /// Milliseconds of each measurement of packets.
    #[serde(default)]
    pub milliseconds: u64,
    /// Echoes of each measurement.
    #[serde(default)]
    pub echoes: u32,
    /// Moves.
    #[serde(default)]
    pub moves: usize,
    /// The share of a core that the mobile router has; all of it if absent.
    #[serde(default)]
    pub share: Option<f64>,
    /// Measurements of each point.
    #[serde(default = "once")]
    pub repeat: usize,
    /// Whether each series is measured once before it counts.
    #[serde(default = "yes")]
    pub warm_up: bool,
    /// Folder of the scenario.
    #[serde(default)]
    pub scenario: Option<String>,
    /// Factor of its timetable; 0 leaves it out.
    #[serde(default)]
    pub factor: f64,
}

fn once() -> usize {
    1
}

fn yes() -> bool {
    true
}

/// A figure of the paper.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Name within the paper.
    pub id: String,
    /// Heading.
    pub title: String,
    /// Description of the figure, in our words.
    pub shows: String,
    /// The experiment that is drawn.
    #[serde(default)]
    pub experiment: Option<String>,
    /// One that is drawn beside it, as a series of its own.
    #[serde(default)]
    pub against: Option<String>,
    /// Which of its quantities, if not the first.
    #[serde(default)]
    pub quantity: Option<String>,
    /// Axis.
    #[serde(default)]
    pub x: Option<String>,
    /// Axis.
    #[serde(default)]
    pub y: Option<String>,
    /// The ping of its scenario that is drawn against time.
    #[serde(default)]
    pub trace: Option<String>,
    /// Scale of the vertical axis, if it is for the data to choose otherwise.
    #[serde(default)]
    pub scale: Option<String>,
    /// Why nothing is measured for it.
    #[serde(default)]
    pub not_measured: Option<String>,
    /// Differences that prevent a comparison, with their reason.
    #[serde(default)]
    pub differs: Vec<String>,
    /// The numbers that the paper gives.
    #[serde(default, rename = "value")]
    pub values: Vec<Value>,
}

/// Which way a number is good.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More is better.
    #[default]
    Higher,
    /// Less is better.
    Lower,
    /// Neither.
    None,
}

/// A number that the paper gives.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// Of what.
    pub what: String,
    /// The number.
    pub paper: f64,
    /// Its unit.
    pub unit: String,
    /// Where in the paper it is.
    pub place: String,
    /// Which way it is good.
    #[serde(default)]
    pub better: Better,
    /// How ours is got.
    #[serde(default)]
    pub ours: Option<Selector>,
    /// Reason for a missing figure of ours.
    #[serde(default)]
    pub incomparable: Option<String>,
    /// Whether it stands in the figure's picture against time.
    #[serde(default)]
    pub marked: bool,
}

/// Which number of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    /// The highest.
    Highest,
    /// The lowest.
    Lowest,
    /// The mean over the axis.
    Mean,
    /// That at `x`, or of `metric`.
    At,
    /// There is one.
    Only,
    /// The standard deviation of the repetitions.
    Deviation,
}

/// Conversion of a number at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum As {
    /// A ratio in per cent.
    Percent,
    /// Difference to 1, in per cent.
    Decay,
}

/// How a number is got from samples.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selector {
    /// Which number of the curve.
    pub of: Of,
    /// The curve.
    pub series: String,
    /// Where on the axis.
    #[serde(default)]
    pub x: Option<f64>,
    /// The axis up to here only.
    #[serde(default)]
    pub up_to: Option<f64>,
    /// Which curve, where a second thing is varied.
    #[serde(default)]
    pub with: Option<String>,
    /// The metric of a scenario.
    #[serde(default)]
    pub metric: Option<String>,
    /// Divided by that of this series.
    #[serde(default)]
    pub over: Option<String>,
    /// Less that of this series.
    #[serde(default)]
    pub minus: Option<String>,
    /// Divided by that of the same series in another experiment.
    #[serde(default)]
    pub over_experiment: Option<String>,
    /// Point by point first, then which number of the result.
    #[serde(default)]
    pub each: bool,
    /// Multiplied with.
    #[serde(default)]
    pub times: Option<f64>,
    /// Conversion of the number.
    #[serde(default, rename = "as")]
    pub shape: Option<As>,
}

impl Paper {
    /// The experiment of this name.
    pub fn experiment(&self, id: &str) -> Option<&Experiment> {
        self.experiments.iter().find(|one| one.id == id)
    }

    fn parse(text: &str, effort: Effort) -> anyhow::Result<Paper> {
        let mut table: toml::Table = text.parse()?;
        let experiments = table.get_mut("experiment").and_then(toml::Value::as_array_mut);
        for experiment in experiments.into_iter().flatten().filter_map(toml::Value::as_table_mut) {
            for (name, of) in [("quick", Effort::Quick), ("smoke", Effort::Smoke)] {
                let other = experiment.remove(name);
                if let Some(other) = other.filter(|_| of == effort).as_ref().and_then(toml::Value::as_table) {
                    experiment.extend(other.clone());
                }
            }
        }
        let paper: Paper = table.try_into()?;
        paper.check().with_context(|| format!("paper {}", paper.name))?;
        Ok(paper)
    }

    /// Every name refers to something, and every figure says what there is to say.
    fn check(&self) -> anyhow::Result<()> {
        for figure in &self.figures {
            for id in figure.experiment.iter().chain(&figure.against) {
                ensure!(self.experiment(id).is_some(), "{}: there is no experiment {id:?}", figure.id);
            }
            ensure!(
                figure.experiment.is_some() != figure.not_measured.is_some(),
                "{}: expected either experiment or not_measured",
                figure.id
            );
            let experiment = figure.experiment.as_ref().and_then(|id| self.experiment(id));
            let scenario = experiment.is_some_and(|one| one.scenario.is_some());
            ensure!(figure.trace.is_none() || scenario, "{}: only a scenario has a trace", figure.id);
            for value in &figure.values {
                ensure!(
                    value.ours.is_some() != value.incomparable.is_some(),
                    "{}, {}: expected either ours or incomparable",
                    figure.id,
                    value.what
                );
                let other = value.ours.as_ref().and_then(|ours| ours.over_experiment.as_ref());
                ensure!(
                    other.is_none_or(|id| self.experiment(id).is_some()),
                    "{}, {}: there is no experiment {other:?}",
                    figure.id,
                    value.what
                );
            }
        }
        Ok(())
    }
}

/// All papers, as they are measured with this effort.
pub fn all(effort: Effort) -> anyhow::Result<Vec<Paper>> {
    FILES.iter().map(|text| Paper::parse(text, effort)).collect()
}

/// The papers of these names, in their order; all of them for none, or for `all`.
pub fn named(names: &[String], effort: Effort) -> anyhow::Result<Vec<Paper>> {
    let all = all(effort)?;
    let known: Vec<&str> = all.iter().map(|paper| paper.name.as_str()).collect();
    if let Some(unknown) = names.iter().find(|name| *name != "all" && !known.contains(&name.as_str())) {
        bail!("there is no paper {unknown:?}; there are: {}, all", known.join(", "));
    }
    let every = names.is_empty() || names.iter().any(|name| name == "all");
    Ok(all.into_iter().filter(|paper| every || names.contains(&paper.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_paper_is_whole_with_every_effort() {
        for effort in [Effort::Full, Effort::Quick, Effort::Smoke] {
            let papers = all(effort).expect("are good");
            assert_eq!(papers.len(), FILES.len());
            for paper in papers {
                let used = |id: &str| {
                    paper
                        .figures
                        .iter()
                        .any(|f| [&f.experiment, &f.against].into_iter().flatten().any(|e| e == id))
                };
                for experiment in &paper.experiments {
                    assert!(used(&experiment.id), "{}: no figure shows {}", paper.name, experiment.id);
                }
            }
        }
    }

    #[test]
    fn an_effort_changes_what_it_names() {
        let text = "name='a'\ntitle='t'\nauthors='x'\nyear=1\nsetting=''\n\
                    [[experiment]]\nid='e'\nkind='udp'\nsizes=[1,2]\nseconds=5\nquick={sizes=[1]}\n\
                    [[figure]]\nid='f'\ntitle=''\nshows=''\nexperiment='e'\n";
        let sizes = |effort| Paper::parse(text, effort).expect("is good").experiments[0].sizes.clone();
        assert_eq!((sizes(Effort::Full), sizes(Effort::Quick)), (vec![1, 2], vec![1]));
        assert_eq!(sizes(Effort::Smoke), [1, 2]);
        let told = Paper::parse(&text.replace("experiment='e'", "experiment='g'"), Effort::Full);
        assert_eq!(format!("{:#}", told.expect_err("is bad")), "paper a: f: there is no experiment \"g\"");
        let told = named(&["none".into()], Effort::Full).expect_err("is bad").to_string();
        assert!(told.starts_with("there is no paper \"none\"; there are: nemo-basic-support, "), "{told}");
    }
}
