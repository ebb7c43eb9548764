//! Results of an evaluation (`eval.json`).
//!
//! A sample is one point of one curve with all of its repetitions, without averages. Reports, documentation
//! and comparisons are computed from samples (`numbers`), so the file is sufficient to make each of them
//! again.

use serde::{Deserialize, Serialize};

use super::paper::Effort;
use super::trace::Trace;
use carnet_bench::figures::Series;
use carnet_testbed::machine::MachineDescription;

/// Version of the file's format, as in `eval/carnet_eval/results.schema.json`.
pub const SCHEMA_VERSION: u32 = 1;

/// Content of `eval.json`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Results {
    /// Version of the file's format.
    pub schema_version: u32,
    /// The machine of the run.
    pub machine: MachineDescription,
    /// Time when the run began, in UTC.
    pub time: String,
    /// Number of points and repetitions.
    pub effort: Effort,
    /// Duration of the run in seconds.
    pub duration_s: f64,
    /// Load averages before the run.
    pub load_before: [f64; 3],
    /// Shares of all cores that other programs, and a hypervisor's other guests, used during the run.
    #[serde(rename = "others")]
    pub core_shares_of_others: [f64; 2],
    /// Reasons why the figures are not reliable; empty for a quiet machine.
    pub disturbed: Vec<String>,
    /// The implementation that was measured beside plain routing (the subject).
    pub subject: MeasuredSubject,
    /// Names of the papers.
    pub papers: Vec<String>,
    /// Measured samples.
    #[serde(rename = "samples")]
    pub curve_points: Vec<CurvePoint>,
    /// Experiments that were left out, each with the reason.
    #[serde(rename = "left_out")]
    pub omitted_experiments: Vec<OmittedExperiment>,
    /// Measurements without a value. Absent in files of earlier versions.
    #[serde(default)]
    pub failures: Vec<MeasurementFailure>,
    /// Parameters of the experiments.
    #[serde(default)]
    pub experiments: Vec<ExperimentParameters>,
    /// Values against time. Absent in files of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traces: Vec<Trace>,
}

/// The implementation that was measured beside plain routing (the subject).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredSubject {
    /// Name of the implementation under test.
    pub name: String,
    /// Command of the mobile router, if given.
    pub mr: Option<String>,
    /// Command of the home agent, if given.
    pub ha: Option<String>,
}

/// A point of a curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Name of the paper.
    pub paper: String,
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the curve: `plain` and `ipv4` are forwarding without a tunnel, `subject` is the implementation
    /// under test, and `router` is the mobile router's own ping.
    pub series: String,
    /// Text of the second variable's value.
    #[serde(rename = "with")]
    pub second_variable: Option<String>,
    /// Place on the axis.
    pub x: Option<f64>,
    /// Measured quantity: `mbit`, `delivered`, `ms`, `loss`, `octets`, `packets`, or the metric of a
    /// scenario.
    pub quantity: String,
    /// Unit of the quantity.
    pub unit: String,
    /// Values of all repetitions.
    pub values: Series,
}

/// An experiment that was not measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OmittedExperiment {
    /// Name of the paper.
    pub paper: String,
    /// Name of the experiment.
    pub experiment: String,
    /// Reason why the experiment was left out.
    #[serde(rename = "why")]
    pub reason: String,
}

/// A measurement without a value. It does not count as 0, because the measuring program may have failed and
/// not the subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasurementFailure {
    /// Name of the paper.
    pub paper: String,
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the curve, as in [`CurvePoint`].
    pub series: String,
    /// Value of the experiment's second variable; `None` if the experiment has one variable only.
    #[serde(rename = "with")]
    pub second_variable: Option<String>,
    /// Value of the experiment's first variable, on the horizontal axis, as in [`CurvePoint`].
    pub x: Option<f64>,
    /// Quantity without a value; `None` for all quantities.
    pub quantity: Option<String>,
    /// Number of the repetition, from 0.
    #[serde(rename = "round")]
    pub repetition: usize,
    /// Reason: the error output of the program.
    #[serde(rename = "said")]
    pub error_message: String,
}

impl MeasurementFailure {
    /// Returns a failure in the first repetition of a sample's point, for all quantities.
    pub fn of_sample(sample: &CurvePoint) -> MeasurementFailure {
        MeasurementFailure {
            paper: sample.paper.clone(),
            experiment: sample.experiment.clone(),
            series: sample.series.clone(),
            second_variable: sample.second_variable.clone(),
            x: sample.x,
            quantity: None,
            repetition: 0,
            error_message: String::new(),
        }
    }

    /// Returns whether this failure is a missing repetition of the sample.
    pub fn concerns_curve_point(&self, sample: &CurvePoint) -> bool {
        (&self.paper, &self.experiment, &self.series, &self.second_variable, self.x)
            == (&sample.paper, &sample.experiment, &sample.series, &sample.second_variable, sample.x)
            && self.quantity.as_ref().is_none_or(|quantity| *quantity == sample.quantity)
    }
}

/// Parameters of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExperimentParameters {
    /// Name of the paper.
    pub paper: String,
    /// Name of the experiment.
    pub experiment: String,
    /// Keys of the experiment as in eval/papers, with the points and repetitions of this run's effort.
    pub parameters: serde_json::Value,
}

/// The curves of an experiment's quantity, each with its points in order.
pub type CurvesByName<'a> = Vec<((&'a str, Option<&'a str>), Vec<&'a CurvePoint>)>;

impl Results {
    /// Adds the value of a repetition to the sample with this key, or creates the sample.
    pub fn add(&mut self, key: CurvePoint, value: f64) {
        let same = |one: &&mut CurvePoint| CurvePoint { values: Series::default(), ..(**one).clone() } == key;
        match self.curve_points.iter_mut().find(same) {
            Some(sample) => {
                let mut rounds = std::mem::take(&mut sample.values.rounds);
                rounds.push(value);
                sample.values = Series::of_rounds(rounds);
            }
            None => self.curve_points.push(CurvePoint { values: Series::of_rounds(vec![value]), ..key }),
        }
    }

    /// Returns the repetitions of a sample with their numbers. Failed repetitions have no value and no entry.
    pub fn values_by_repetition(&self, sample: &CurvePoint) -> Vec<(usize, f64)> {
        let failed = |round: &usize| {
            self.failures.iter().any(|one| one.repetition == *round && one.concerns_curve_point(sample))
        };
        (0..).filter(|round| !failed(round)).zip(sample.values.rounds.iter().copied()).collect()
    }

    /// Returns the parameters that all points of an experiment have in common; `None` if the file does not
    /// have them. Leaves out the number of points and repetitions, and a parameter that has a curve for each
    /// value.
    pub fn parameters_of(
        &self,
        paper: &str,
        experiment: &str,
    ) -> Option<serde_json::Map<String, serde_json::Value>> {
        let made = self.experiments.iter().find(|one| one.paper == paper && one.experiment == experiment)?;
        let mut keys = made.parameters.as_object()?.clone();
        for key in ["id", "repeat", "warm_up", "moves", "windows", "segments"] {
            keys.remove(key);
        }
        let across = if keys.get("across").is_some_and(|across| across == "mbit") { "mbit" } else { "sizes" };
        for key in ["sizes", "mbit"] {
            let many = keys.get(key).and_then(serde_json::Value::as_array).is_some_and(|all| all.len() > 1);
            if many || key == across {
                keys.remove(key);
            }
        }
        Some(keys)
    }

    /// Returns the curves of an experiment's quantity; of the first quantity if `quantity` is `None`.
    pub fn curves(&self, paper: &str, experiment: &str, quantity: Option<&str>) -> CurvesByName<'_> {
        let of_it = |one: &&CurvePoint| one.paper == paper && one.experiment == experiment;
        let first = self.curve_points.iter().find(of_it).map(|one| one.quantity.as_str());
        let Some(quantity) = quantity.or(first) else { return Vec::new() };
        let mut curves: CurvesByName<'_> = Vec::new();
        for sample in self.curve_points.iter().filter(|one| of_it(one) && one.quantity == quantity) {
            let key = (sample.series.as_str(), sample.second_variable.as_deref());
            match curves.iter_mut().find(|(other, _)| *other == key) {
                Some((_, points)) => points.push(sample),
                None => curves.push((key, vec![sample])),
            }
        }
        for (_, points) in &mut curves {
            points.sort_by(|a, b| a.x.unwrap_or(0.0).total_cmp(&b.x.unwrap_or(0.0)));
        }
        curves
    }

    /// Returns why an experiment was left out; `None` if it was not left out.
    pub fn reason_for_omission(&self, paper: &str, experiment: &str) -> Option<&str> {
        let left =
            self.omitted_experiments.iter().find(|one| one.paper == paper && one.experiment == experiment)?;
        Some(&left.reason)
    }

    /// Returns warnings about the run, which a reader needs before the results.
    pub fn warnings_about_machine(&self) -> Vec<String> {
        let mut told = match self.effort {
            Effort::Full => Vec::new(),
            Effort::Quick => vec!["a quick run: few repetitions, short".to_owned()],
            Effort::Smoke => vec!["a run that only shows that it works: its figures mean nothing".to_owned()],
        };
        told.splice(0..0, self.machine.emulation_warning());
        told.extend(self.disturbed.iter().map(|why| format!("the machine was busy: {why}")));
        told
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns results for the paper on NEMO Basic Support: plain routing at 92 Mbit/s, a mobile router at
    /// 90.
    pub fn test_results() -> Results {
        let mut results = Results { schema_version: SCHEMA_VERSION, ..Results::default() };
        results.time = "2026-01-01 00:00:00 UTC".into();
        results.subject.name = "carnet".into();
        results.papers = vec!["nemo-basic-support".into()];
        for (series, top) in [("plain", 92.0), ("subject", 90.0)] {
            for x in [89.0, 92.0, 95.0_f64] {
                for round in 0..3 {
                    let value = x.min(top) + f64::from(round) * 0.1;
                    results.add(test_point("udp-rates", series, Some(x), "mbit", "Mbit/s"), value);
                }
            }
        }
        for (series, value) in [("plain", 0.05), ("subject", 0.06)] {
            results.add(test_point("echo", series, None, "ms", "ms"), value);
        }
        results.add(test_point("rtt", "plain", Some(56.0), "ms", "ms"), 0.05);
        results.add(test_point("rtt", "subject", Some(56.0), "ms", "ms"), 0.06);
        results
    }

    /// Returns a sample without values.
    pub fn test_point(
        experiment: &str,
        series: &str,
        x: Option<f64>,
        quantity: &str,
        unit: &str,
    ) -> CurvePoint {
        CurvePoint {
            paper: "nemo-basic-support".into(),
            experiment: experiment.into(),
            series: series.into(),
            second_variable: None,
            x,
            quantity: quantity.into(),
            unit: unit.into(),
            values: Series::default(),
        }
    }

    #[test]
    fn repetitions_of_a_measurement_point_form_one_sample() {
        let results = test_results();
        let curves = results.curves("nemo-basic-support", "udp-rates", None);
        let found: Vec<(&str, usize, usize)> = curves
            .iter()
            .map(|((series, _), points)| (*series, points.len(), points[0].values.rounds.len()))
            .collect();
        assert_eq!(found, [("plain", 3, 3), ("subject", 3, 3)]);
    }
}
