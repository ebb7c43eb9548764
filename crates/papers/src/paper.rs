//! Reads the files about the papers (`eval/papers`): the content of each figure, and the experiment with
//! which the lab measures the same.
//!
//! The files contain no code, and the code contains no data of a paper. So a further paper needs only a
//! further file. A figure names the experiment whose samples it draws. For each number of the paper it says
//! how to compute our number.

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

/// The files of the papers, in the order of the report.
const PAPER_FILES: [&str; 4] = [
    include_str!("../../../eval/papers/nemo-basic-support.toml"),
    include_str!("../../../eval/papers/nemo-low-end.toml"),
    include_str!("../../../eval/papers/nemo-wimax.toml"),
    include_str!("../../../eval/papers/cargeo6.toml"),
];

/// Number of points and repetitions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// All points and repetitions.
    #[default]
    Full,
    /// Fewer points and repetitions.
    Quick,
    /// Only checks that everything works; the numbers have no meaning.
    Smoke,
}

/// A paper with its experiments and figures.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Short name, as on the command line.
    pub name: String,
    /// Title.
    pub title: String,
    /// Authors.
    pub authors: String,
    /// Year of publication.
    pub year: u32,
    /// Hardware and software of the paper's measurements.
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
pub enum ExperimentKind {
    /// UDP at a given rate, by iperf3.
    Udp,
    /// TCP as fast as possible, by iperf3.
    Tcp,
    /// Round trips, by ping.
    Rtt,
    /// Round trips of UDP, with a resolution of a nanosecond.
    Echo,
    /// The largest echo that passes in one piece.
    PathMtu,
    /// Longest time without packets when the uplink changes.
    Handover,
    /// Packets per second without loss.
    Packets,
    /// UDP at a given rate, by mgen; the kernel counts the packets that arrive.
    Mgen,
    /// Metrics of a scenario.
    Scenario,
}

/// Network of an experiment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExperimentNetwork {
    /// Mobile router and home agent.
    #[default]
    Routers,
    /// Two vehicles.
    OneHop,
    /// Two vehicles and a relay between them.
    TwoHops,
}

/// Variable on the horizontal axis. The figure has one curve for each value of the other variable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureAxis {
    /// Size of the payload in octets.
    #[default]
    Size,
    /// Offered Mbit/s.
    Mbit,
}

/// An experiment. The valid keys depend on its kind.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name within the paper.
    pub id: String,
    /// Kind of the measurement.
    pub kind: ExperimentKind,
    /// Testbed on which the experiment runs.
    #[serde(default, rename = "bed")]
    pub place: ExperimentNetwork,
    /// Rate of the access link, in tc's format; `None` for no limit.
    #[serde(default)]
    pub link: Option<String>,
    /// Whether the lab also measures IPv4 without a tunnel.
    #[serde(default)]
    pub ipv4: bool,
    /// Whether the packets go to the mobile network.
    #[serde(default)]
    pub down: bool,
    /// Sizes of the payload in octets; for the kinds packets and mgen, sizes of the packet.
    #[serde(default)]
    pub sizes: Vec<u32>,
    /// Rates in Mbit/s; 0 is as fast as possible.
    #[serde(default)]
    pub mbit: Vec<f64>,
    /// Variable of the axis.
    #[serde(default)]
    pub across: FigureAxis,
    /// TCP windows in KiB.
    #[serde(default)]
    pub windows: Vec<u32>,
    /// TCP segments in octets.
    #[serde(default)]
    pub segments: Vec<u32>,
    /// Duration of each measurement in seconds.
    #[serde(default)]
    pub seconds: u64,
    /// Duration of each measurement of packets in milliseconds.
    #[serde(default)]
    pub milliseconds: u64,
    /// Number of echoes in each measurement.
    #[serde(default)]
    pub echoes: u32,
    /// Number of moves.
    #[serde(default)]
    pub moves: usize,
    /// Share of a core that the mobile router gets; `None` for a whole core.
    #[serde(default)]
    pub share: Option<f64>,
    /// Number of measurements of each point.
    #[serde(default = "default_repetitions")]
    pub repeat: usize,
    /// Whether the lab measures each series once in advance, without recording the result.
    #[serde(default = "default_true")]
    pub warm_up: bool,
    /// Folder of the scenario.
    #[serde(default)]
    pub scenario: Option<String>,
    /// Factor for the times of the scenario's timetable. With 0 the lab does not run the scenario.
    #[serde(default)]
    pub factor: f64,
}

fn default_repetitions() -> usize {
    1
}

fn default_true() -> bool {
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
    /// Description of the figure, in the words of this project.
    pub shows: String,
    /// Experiment whose samples the figure draws.
    #[serde(default)]
    pub experiment: Option<String>,
    /// Second experiment whose samples the figure draws as another series.
    #[serde(default)]
    pub against: Option<String>,
    /// Quantity that the figure draws; `None` for the first quantity that the experiment measures.
    #[serde(default)]
    pub quantity: Option<String>,
    /// Label of the horizontal axis.
    #[serde(default)]
    pub x: Option<String>,
    /// Label of the vertical axis.
    #[serde(default)]
    pub y: Option<String>,
    /// Name of the scenario's ping that the figure draws against time.
    #[serde(default)]
    pub trace: Option<String>,
    /// Scale of the vertical axis; with `None` the data determine it.
    #[serde(default)]
    pub scale: Option<String>,
    /// Reason why the lab measures nothing for the figure.
    #[serde(default)]
    pub not_measured: Option<String>,
    /// Differences that prevent a comparison, with their reason.
    #[serde(default)]
    pub differs: Vec<String>,
    /// The numbers that the paper gives.
    #[serde(default, rename = "value")]
    pub values: Vec<Value>,
}

/// Whether higher or lower numbers are better.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BetterDirection {
    /// More is better.
    #[default]
    Higher,
    /// Less is better.
    Lower,
    /// The number has no better direction.
    None,
}

/// A number that the paper gives.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// Measured quantity of the number.
    pub what: String,
    /// The paper's value.
    pub paper: f64,
    /// Unit of the value.
    pub unit: String,
    /// Place of the number in the paper.
    pub place: String,
    /// Whether higher or lower is better.
    #[serde(default)]
    pub better: BetterDirection,
    /// Rule by which our number is computed.
    #[serde(default)]
    pub ours: Option<NumberSelector>,
    /// Reason why this run has no number.
    #[serde(default)]
    pub incomparable: Option<String>,
    /// Whether the figure's picture against time marks the number.
    #[serde(default)]
    pub marked: bool,
}

/// Which number to take from a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CurveNumber {
    /// The highest value.
    Highest,
    /// The lowest value.
    Lowest,
    /// The mean over the axis.
    Mean,
    /// The value at `x`, or of `metric`.
    At,
    /// The value of the curve's single point.
    Only,
    /// The standard deviation of the repetitions.
    Deviation,
}

/// Conversion of the final number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NumberConversion {
    /// The ratio in per cent.
    Percent,
    /// Difference to 1, in per cent.
    Decay,
}

/// Rule by which a number is computed from samples.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumberSelector {
    /// Which number to take from the curve.
    pub of: CurveNumber,
    /// Name of the curve.
    pub series: String,
    /// Place on the axis.
    #[serde(default)]
    pub x: Option<f64>,
    /// Last place on the axis that counts for the number; `None` for the whole axis.
    #[serde(default)]
    pub up_to: Option<f64>,
    /// Value of the second variable, which selects the curve.
    #[serde(default)]
    pub with: Option<String>,
    /// Name of the scenario's metric.
    #[serde(default)]
    pub metric: Option<String>,
    /// Series whose number is the divisor.
    #[serde(default)]
    pub over: Option<String>,
    /// Series whose number is subtracted.
    #[serde(default)]
    pub minus: Option<String>,
    /// Experiment whose number of the same series is the divisor.
    #[serde(default)]
    pub over_experiment: Option<String>,
    /// Whether to divide or subtract the curves point by point, before the number is taken from the result.
    #[serde(default)]
    pub each: bool,
    /// Factor by which the number is multiplied.
    #[serde(default)]
    pub times: Option<f64>,
    /// Conversion of the number.
    #[serde(default, rename = "as")]
    pub shape: Option<NumberConversion>,
}

impl Paper {
    /// Returns the experiment of this name; `None` if the paper has none.
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
        paper.check_consistency().with_context(|| format!("paper {}", paper.name))?;
        Ok(paper)
    }

    /// Checks that every name refers to an object, and that every figure has the required texts.
    fn check_consistency(&self) -> anyhow::Result<()> {
        for figure in &self.figures {
            for id in figure.experiment.iter().chain(&figure.against) {
                ensure!(
                    self.experiment(id).is_some(),
                    "{}: expected the name of an experiment of this paper, found {id:?}",
                    figure.id
                );
            }
            ensure!(
                figure.experiment.is_some() != figure.not_measured.is_some(),
                "figure {}: expected either the key experiment or the key not_measured, found both or none",
                figure.id
            );
            let experiment = figure.experiment.as_ref().and_then(|id| self.experiment(id));
            let scenario = experiment.is_some_and(|one| one.scenario.is_some());
            ensure!(
                figure.trace.is_none() || scenario,
                "{}: expected `trace` only in an experiment that runs a scenario of the lab",
                figure.id
            );
            for value in &figure.values {
                ensure!(
                    value.ours.is_some() != value.incomparable.is_some(),
                    "figure {}, {}: expected either the key ours or the key incomparable, found both or none",
                    figure.id,
                    value.what
                );
                let other = value.ours.as_ref().and_then(|ours| ours.over_experiment.as_ref());
                ensure!(
                    other.is_none_or(|id| self.experiment(id).is_some()),
                    "{}, {}: expected the name of an experiment of this paper, found {other:?}",
                    figure.id,
                    value.what
                );
            }
        }
        Ok(())
    }
}

/// Returns all papers, with points and repetitions for this effort.
pub fn all_papers(effort: Effort) -> anyhow::Result<Vec<Paper>> {
    PAPER_FILES.iter().map(|text| Paper::parse(text, effort)).collect()
}

/// Returns the papers with these names, in the order of the names. Without names, or with `all`, returns all
/// papers.
pub fn papers_named(names: &[String], effort: Effort) -> anyhow::Result<Vec<Paper>> {
    let all = all_papers(effort)?;
    let known: Vec<&str> = all.iter().map(|paper| paper.name.as_str()).collect();
    if let Some(unknown) = names.iter().find(|name| *name != "all" && !known.contains(&name.as_str())) {
        bail!("expected the name of a paper ({}, all), found {unknown:?}", known.join(", "));
    }
    let every = names.is_empty() || names.iter().any(|name| name == "all");
    Ok(all.into_iter().filter(|paper| every || names.contains(&paper.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_paper_file_is_complete_for_every_effort() {
        for effort in [Effort::Full, Effort::Quick, Effort::Smoke] {
            let papers = all_papers(effort).expect("are good");
            assert_eq!(papers.len(), PAPER_FILES.len());
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
    fn effort_overrides_only_named_parameters() {
        let text = "name='a'\ntitle='t'\nauthors='x'\nyear=1\nsetting=''\n\
                    [[experiment]]\nid='e'\nkind='udp'\nsizes=[1,2]\nseconds=5\nquick={sizes=[1]}\n\
                    [[figure]]\nid='f'\ntitle=''\nshows=''\nexperiment='e'\n";
        let sizes = |effort| Paper::parse(text, effort).expect("is good").experiments[0].sizes.clone();
        assert_eq!((sizes(Effort::Full), sizes(Effort::Quick)), (vec![1, 2], vec![1]));
        assert_eq!(sizes(Effort::Smoke), [1, 2]);
        let told = Paper::parse(&text.replace("experiment='e'", "experiment='g'"), Effort::Full);
        assert_eq!(
            format!("{:#}", told.expect_err("is bad")),
            "paper a: f: expected the name of an experiment of this paper, found \"g\""
        );
        let told = papers_named(&["none".into()], Effort::Full).expect_err("is bad").to_string();
        assert!(told.starts_with("expected the name of a paper (nemo-basic-support, "), "{told}");
    }
}
