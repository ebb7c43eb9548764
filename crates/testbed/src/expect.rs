//! Judges the expectations of a scenario.
//!
//! An expectation names a metric, the section of the run, and bounds for the value. If the run has not
//! measured the metric, the expectation fails. In a run without captures, the lab skips expectations that
//! need a capture, and the report says so.

use serde::{Deserialize, Serialize};

use crate::metrics::{Metrics, find_metric};
use crate::scenario::{Expectation, WHOLE_RUN_SECTION};

/// Outcome of an expectation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectationOutcome {
    /// The measured value meets the expectation.
    Pass,
    /// The measured value does not meet the expectation.
    Fail,
    /// The lab did not judge the expectation.
    Skipped,
}

/// An expectation and the measured value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JudgedExpectation {
    /// Description of the expectation.
    pub what: String,
    /// Section of the run.
    pub section: String,
    /// Metric name.
    pub metric: String,
    /// The bounds in words, for example `below 100`.
    pub expected: String,
    /// Measured value; `None` if the run did not measure it.
    pub measured: Option<f64>,
    /// Unit of the value. With the unit `yes`, the report shows 1 as "yes" and 0 as "no".
    #[serde(default)]
    pub unit: String,
    /// Whether the expectation is met.
    pub outcome: ExpectationOutcome,
    /// Reason why the lab did not judge the expectation, or why there is no value.
    pub why: Option<String>,
}

/// Properties of a run that determine which expectations the lab can judge.
#[derive(Debug, Clone, Copy)]
pub struct RunProperties<'a> {
    /// Whether the lab has made packet captures and could read them; the error says why not.
    pub captures_are_readable: Result<(), &'a str>,
    /// Whether the radios report acknowledgements to their nodes.
    pub has_feedback: bool,
    /// Whether the lab skips expectations about times.
    pub is_slow_machine: bool,
    /// Whether carnet-lab, and so probably carnet, is an optimised build.
    pub is_optimised: bool,
}

impl RunProperties<'_> {
    /// Returns why the lab cannot judge an expectation; `None` if it can.
    fn reason_to_skip(&self, e: &Expectation) -> Option<String> {
        if let (true, Err(why)) = (e.needs_pcap, self.captures_are_readable) {
            return Some(why.into());
        }
        if e.needs_feedback && !self.has_feedback {
            return Some("needs --radio hwsim".into());
        }
        if e.needs_optimised && !self.is_optimised {
            return Some("needs an optimised build".into());
        }
        (self.is_slow_machine && matches!(e.unit.as_str(), "s" | "ms" | "us"))
            .then(|| "times do not count (--slow)".into())
    }
}

/// Judges all expectations.
pub fn judge_expectations(
    expectations: &[Expectation],
    metrics: &Metrics,
    judging: &RunProperties<'_>,
) -> Vec<JudgedExpectation> {
    expectations.iter().map(|e| judge_expectation(e, metrics, judging)).collect()
}

fn judge_expectation(e: &Expectation, metrics: &Metrics, judging: &RunProperties<'_>) -> JudgedExpectation {
    let section = e.after.as_ref().map_or(WHOLE_RUN_SECTION, |s| s.get_ref());
    let measured = find_metric(metrics, section, &e.metric);
    let mut judged = JudgedExpectation {
        what: e.what.clone(),
        section: section.into(),
        metric: e.metric.clone(),
        expected: String::new(),
        measured,
        unit: e.unit.clone(),
        outcome: ExpectationOutcome::Fail,
        why: None,
    };
    let other = |name: &Option<String>, without: f64| {
        name.as_ref().map_or(Some(without), |name| find_metric(metrics, WHOLE_RUN_SECTION, name))
    };
    let (factor, extra) = (other(&e.times, 1.0), other(&e.plus, 0.0));
    let bound = |b: f64| b * factor.unwrap_or(1.0) + extra.unwrap_or(0.0);
    let bounds = [("", e.equals), ("below ", e.below), ("at most ", e.at_most), ("at least ", e.at_least)];
    let words: Vec<String> = bounds
        .iter()
        .filter_map(|(word, value)| value.map(|b| format!("{word}{}", format_value(Some(bound(b)), &e.unit))))
        .collect();
    judged.expected = words.join(", ");
    if let Some(why) = judging.reason_to_skip(e) {
        judged.outcome = ExpectationOutcome::Skipped;
        judged.why = Some(why);
        return judged;
    }
    let Some(value) = measured else {
        judged.why = Some(reason_not_measured(metrics, section, &e.metric).into());
        return judged;
    };
    let missing = [(&e.plus, extra), (&e.times, factor)].into_iter().find(|(_, value)| value.is_none());
    if let Some((name, _)) = missing {
        judged.why = Some(format!("{} was not measured", name.as_deref().unwrap_or_default()));
        return judged;
    }
    let holds = e.equals.is_none_or(|b| (value - bound(b)).abs() < 1e-9)
        && e.below.is_none_or(|b| value < bound(b))
        && e.at_most.is_none_or(|b| value <= bound(b))
        && e.at_least.is_none_or(|b| value >= bound(b));
    judged.outcome = if holds { ExpectationOutcome::Pass } else { ExpectationOutcome::Fail };
    judged
}

/// Returns why a metric has no value: for example, a flow sent nothing, or none of its packets arrived.
fn reason_not_measured(metrics: &Metrics, section: &str, metric: &str) -> &'static str {
    let mut flow = metric;
    while let Some((shorter, _)) = flow.rsplit_once('.') {
        flow = shorter;
        let get = |name: &str| find_metric(metrics, section, &format!("{flow}.{name}"));
        match get("sent") {
            Some(0.0) => return "nothing was sent",
            Some(sent) if get("lost") == Some(sent) => return "nothing arrived",
            _ => {}
        }
    }
    "not measured"
}

/// Formats a value with its unit for the report.
pub fn format_value(value: Option<f64>, unit: &str) -> String {
    match (value, unit) {
        (None, _) => "not measured".into(),
        (Some(v), "yes") => if v == 0.0 { "no" } else { "yes" }.into(),
        (Some(v), "bytes") if v >= 1e6 => format!("{} MB", format_number((v / 1e4).round() / 100.0)),
        (Some(1.0), "packets") => "1 packet".into(),
        (Some(1.0), "hops") => "1 hop".into(),
        (Some(v), "") => format_number(v),
        (Some(v), unit) => format!("{} {unit}", format_number(v)),
    }
}

/// Formats a number for the report: at most three digits after the point, without trailing zeros; a small
/// number has two significant digits.
pub fn format_number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 1000.0 || v.fract() == 0.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        v if v < 0.01 => (1.0 - v.log10().floor()).min(8.0) as usize,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_metrics() -> Metrics {
        let mut m = Metrics::new();
        m.entry(WHOLE_RUN_SECTION.into()).or_default().extend([("lost".into(), 3.0), ("rtt".into(), 0.5)]);
        m.entry("cut".into()).or_default().insert("outage".into(), 100.2);
        m
    }

    const PROPERTIES_OF_COMPLETE_RUN: RunProperties<'static> = RunProperties {
        captures_are_readable: Ok(()),
        has_feedback: true,
        is_slow_machine: false,
        is_optimised: true,
    };
    const PROPERTIES_OF_MINIMAL_RUN: RunProperties<'static> = RunProperties {
        captures_are_readable: Err("no pcap"),
        has_feedback: false,
        is_slow_machine: true,
        is_optimised: false,
    };

    fn outcome_of(e: &Expectation) -> ExpectationOutcome {
        judge_expectation(e, &test_metrics(), &PROPERTIES_OF_MINIMAL_RUN).outcome
    }

    fn expectation_of(metric: &str) -> Expectation {
        Expectation { what: "w".into(), metric: metric.into(), ..Expectation::default() }
    }

    #[test]
    fn every_comparison_of_an_expectation_works() {
        let e = expectation_of("lost");
        assert_eq!(outcome_of(&Expectation { equals: Some(3.0), ..e.clone() }), ExpectationOutcome::Pass);
        assert_eq!(outcome_of(&Expectation { equals: Some(2.0), ..e.clone() }), ExpectationOutcome::Fail);
        assert_eq!(outcome_of(&Expectation { below: Some(3.0), ..e.clone() }), ExpectationOutcome::Fail);
        assert_eq!(outcome_of(&Expectation { below: Some(3.1), ..e.clone() }), ExpectationOutcome::Pass);
        assert_eq!(outcome_of(&Expectation { at_most: Some(3.0), ..e.clone() }), ExpectationOutcome::Pass);
        assert_eq!(outcome_of(&Expectation { at_least: Some(3.0), ..e.clone() }), ExpectationOutcome::Pass);
        assert_eq!(
            outcome_of(&Expectation { at_least: Some(1.0), at_most: Some(2.0), ..e }),
            ExpectationOutcome::Fail
        );
    }

    #[test]
    fn expectation_bound_may_refer_to_a_metric() {
        let after = Some(toml::Spanned::new(0..0, "cut".to_string()));
        let e = Expectation { below: Some(100.0), after, ..expectation_of("outage") };
        assert_eq!(outcome_of(&e), ExpectationOutcome::Fail);
        let with = Expectation { plus: Some("rtt".into()), ..e.clone() };
        assert_eq!(outcome_of(&with), ExpectationOutcome::Pass);
        assert_eq!(
            judge_expectation(&with, &test_metrics(), &PROPERTIES_OF_COMPLETE_RUN).expected,
            "below 100.5"
        );
        assert_eq!(
            outcome_of(&Expectation { plus: Some("none".into()), ..e.clone() }),
            ExpectationOutcome::Fail
        );
        // Here the bound is 250 times the metric `rtt`, which is 0.5 ms.
        let times = Expectation { below: Some(250.0), times: Some("rtt".into()), ..e };
        assert_eq!(
            judge_expectation(&times, &test_metrics(), &PROPERTIES_OF_MINIMAL_RUN).expected,
            "below 125"
        );
        assert_eq!(outcome_of(&times), ExpectationOutcome::Pass);
        assert_eq!(
            outcome_of(&Expectation { times: Some("none".into()), ..times.clone() }),
            ExpectationOutcome::Fail
        );
        let elsewhere = Expectation { times: Some("cut/outage".into()), below: Some(1.0), ..times };
        assert_eq!(
            judge_expectation(&elsewhere, &test_metrics(), &PROPERTIES_OF_COMPLETE_RUN).expected,
            "below 100.2"
        );
    }

    #[test]
    fn expectation_of_unmeasured_metric_fails() {
        let judged = judge_expectation(
            &Expectation { equals: Some(0.0), ..expectation_of("none") },
            &test_metrics(),
            &PROPERTIES_OF_COMPLETE_RUN,
        );
        assert_eq!((judged.outcome, judged.why.as_deref()), (ExpectationOutcome::Fail, Some("not measured")));
        let mut m = test_metrics();
        let run = m.entry(WHOLE_RUN_SECTION.into()).or_default();
        run.extend(
            [("none.sent", 0.0), ("all.sent", 5.0), ("all.lost", 5.0)].map(|(n, v)| (n.to_string(), v)),
        );
        for (metric, why) in [
            ("none.lost", "nothing was sent"),
            ("all.delay_us.p50", "nothing arrived"),
            ("x.y", "not measured"),
        ] {
            let judged = judge_expectation(
                &Expectation { equals: Some(0.0), ..expectation_of(metric) },
                &m,
                &PROPERTIES_OF_COMPLETE_RUN,
            );
            assert_eq!(
                (judged.outcome, judged.why.as_deref()),
                (ExpectationOutcome::Fail, Some(why)),
                "{metric}"
            );
        }
    }

    #[test]
    fn expectations_on_captures_are_skipped_without_capture() {
        let e = Expectation { needs_pcap: true, equals: Some(0.0), ..expectation_of("none") };
        assert_eq!(outcome_of(&e), ExpectationOutcome::Skipped);
        assert_eq!(
            judge_expectation(&e, &test_metrics(), &PROPERTIES_OF_COMPLETE_RUN).outcome,
            ExpectationOutcome::Fail
        );
    }

    #[test]
    fn expectations_that_the_run_cannot_measure_are_skipped() {
        let e = Expectation { below: Some(1.0), ..expectation_of("rtt") };
        for e in [
            Expectation { needs_feedback: true, ..e.clone() },
            Expectation { needs_optimised: true, ..e.clone() },
            Expectation { unit: "ms".into(), ..e.clone() },
        ] {
            assert_eq!(outcome_of(&e), ExpectationOutcome::Skipped);
            assert_eq!(
                judge_expectation(&e, &test_metrics(), &PROPERTIES_OF_COMPLETE_RUN).outcome,
                ExpectationOutcome::Pass
            );
        }
        assert_eq!(outcome_of(&e), ExpectationOutcome::Pass);
    }

    #[test]
    fn expectation_values_with_units_are_parsed() {
        assert_eq!(
            (format_value(Some(0.0), "packets"), format_value(Some(1.0), "packets")),
            ("0 packets".into(), "1 packet".into())
        );
        assert_eq!(format_value(Some(123_456_789.0), "bytes"), "123.5 MB");
        assert_eq!(format_value(Some(1.25), ""), "1.25");
        assert_eq!(
            (format_value(Some(1.0), "yes"), format_value(Some(0.0), "yes")),
            ("yes".into(), "no".into())
        );
        assert_eq!(format_value(None, "ms"), "not measured");
    }

    #[test]
    fn measured_numbers_are_rounded_for_display() {
        let shown: Vec<String> = [0.0, 3.0, 0.1234, 12.345, 100.25, 1234.5, -0.05].map(format_number).into();
        assert_eq!(shown, ["0", "3", "0.123", "12.35", "100.2", "1234", "-0.05"]);
    }
}
