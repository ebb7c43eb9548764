//! Computes our numbers, which stand beside those of the papers. The paper's file says how to compute each
//! number from samples (`ours`). Each number has a range.
//!
//! The module computes a number from the medians of its points. For the range, it computes the same number
//! from the first repetition of each point alone, from the second, and so on. If the number is a mean over
//! points with one repetition each, for example over moves, the range is that of the points.

use super::paper::{CurveNumber, Figure, NumberConversion, NumberSelector, Paper};
use super::results::{CurvePoint, Results};
use carnet_testbed::expect::format_number;

/// A number and its range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredNumber {
    /// Value computed from the medians.
    pub value: f64,
    /// Lowest and highest value; `None` with a single repetition.
    pub repetition_range: Option<(f64, f64)>,
}

/// Formats a range in brackets; returns an empty text without a range, or if both ends look equal.
pub fn format_spread(range: Option<(f64, f64)>) -> String {
    let shown = range.map(|(low, high)| (format_number(low), format_number(high)));
    shown.filter(|(low, high)| low != high).map_or(String::new(), |(low, high)| format!("({low} to {high})"))
}

/// A point of a curve: its place on the axis, the value from the medians, and the value of the selected
/// repetition.
#[derive(Debug, Clone, Copy)]
struct AxisPoint {
    x: f64,
    median: f64,
    value: f64,
}

/// Function that selects the value of a sample that counts: one of its repetitions, or their median.
type ValueOfPoint<'a> = &'a dyn Fn(&CurvePoint) -> Option<f64>;

/// Samples and rule from which a number is computed.
struct NumberSource<'a> {
    results: &'a Results,
    paper: &'a str,
    experiment: &'a str,
    quantity: Option<&'a str>,
    selector: &'a NumberSelector,
}

impl Results {
    /// Returns our number for a number of the paper; `None` if it was not measured.
    pub fn number_of_figure(
        &self,
        paper: &Paper,
        figure: &Figure,
        ours: &NumberSelector,
    ) -> Option<MeasuredNumber> {
        let source = NumberSource {
            results: self,
            paper: &paper.name,
            experiment: figure.experiment.as_deref()?,
            quantity: ours.metric.as_deref().or(figure.quantity.as_deref()),
            selector: ours,
        };
        let taken: ValueOfPoint<'_> = match ours.of {
            CurveNumber::Deviation => &|one| standard_deviation(&one.values.rounds),
            _ => &|one| Some(one.values.median),
        };
        let value = source.selected_number(taken)?;
        let others = match ours.of {
            CurveNumber::Deviation => Vec::new(),
            _ => source.numbers_of_repetitions(),
        };
        let range = (others.len() > 1).then(|| {
            others.iter().fold((value, value), |(low, high), one| (f64::min(low, *one), f64::max(high, *one)))
        });
        Some(MeasuredNumber { value, repetition_range: range })
    }
}

impl NumberSource<'_> {
    /// Returns the places of a curve; `None` if a place has no selected value.
    fn axis_points(&self, experiment: &str, series: &str, taken: ValueOfPoint<'_>) -> Option<Vec<AxisPoint>> {
        let curves = self.results.curves(self.paper, experiment, self.quantity);
        let wanted = |key: &(&str, Option<&str>)| {
            key.0 == series && self.selector.with.as_deref().is_none_or(|with| key.1 == Some(with))
        };
        let points = curves.into_iter().filter(|(key, _)| wanted(key)).flat_map(|(_, points)| points);
        let within = |one: &&CurvePoint| self.selector.up_to.is_none_or(|most| one.x.unwrap_or(0.0) <= most);
        let place = |one: &CurvePoint| {
            Some(AxisPoint { x: one.x.unwrap_or(0.0), median: one.values.median, value: taken(one)? })
        };
        points.filter(within).map(place).collect()
    }

    /// Returns the points of the second curve. The number of the figure is the first curve divided by the
    /// second one, or their difference. Returns `None` if `taken` selects no value of a point, `Some(None)`
    /// if the number needs no second curve.
    fn base_axis_points(&self, taken: ValueOfPoint<'_>) -> Option<Option<Vec<AxisPoint>>> {
        let ours = self.selector;
        let base = match (&ours.over, &ours.minus, &ours.over_experiment) {
            (Some(series), ..) | (_, Some(series), _) => self.axis_points(self.experiment, series, taken)?,
            (.., Some(experiment)) => self.axis_points(experiment, &ours.series, taken)?,
            _ => return Some(None),
        };
        Some(Some(base))
    }

    fn combine_with_base(&self, a: f64, b: f64) -> f64 {
        if self.selector.minus.is_some() { a - b } else { a / b }
    }

    /// Divides each point of a curve by the point of the second curve at the same place, or subtracts that
    /// point.
    fn combine_axis_points(&self, own: &[AxisPoint], base: &[AxisPoint]) -> Vec<AxisPoint> {
        let both = |own: &AxisPoint| {
            let base = base.iter().find(|base| base.x == own.x)?;
            let [median, value] = [(own.median, base.median), (own.value, base.value)]
                .map(|(a, b)| self.combine_with_base(a, b));
            Some(AxisPoint { x: own.x, median, value })
        };
        own.iter().filter_map(both).collect()
    }

    fn convert_value(&self, value: f64) -> Option<f64> {
        let value = value * self.selector.times.unwrap_or(1.0);
        let value = match self.selector.shape {
            None => value,
            Some(NumberConversion::Percent) => 100.0 * value,
            Some(NumberConversion::Decay) => 100.0 * (1.0 - value),
        };
        Some(value).filter(|value| value.is_finite())
    }

    /// Returns the number for the selected values; `None` if a value is missing.
    fn selected_number(&self, taken: ValueOfPoint<'_>) -> Option<f64> {
        let own = self.axis_points(self.experiment, &self.selector.series, taken)?;
        self.convert_value(match self.base_axis_points(taken)? {
            None => select_number(&own, self.selector)?,
            Some(base) if self.selector.each => {
                select_number(&self.combine_axis_points(&own, &base), self.selector)?
            }
            Some(base) => self
                .combine_with_base(select_number(&own, self.selector)?, select_number(&base, self.selector)?),
        })
    }

    /// Returns the number of each repetition alone. For a mean over points that were measured once, returns
    /// the value of each point.
    fn numbers_of_repetitions(&self) -> Vec<f64> {
        let of_it = |one: &&CurvePoint| one.paper == self.paper && one.experiment == self.experiment;
        let samples = self.results.curve_points.iter().filter(of_it);
        let last = samples.filter_map(|one| Some(self.results.values_by_repetition(one).last()?.0)).max();
        let rounds = 0..last.map_or(0, |last| last + 1);
        if rounds.len() == 1 && self.selector.of == CurveNumber::Mean {
            return self.numbers_of_points().unwrap_or_default();
        }
        let of_round = |round: usize| {
            self.selected_number(&|one| {
                Some(self.results.values_by_repetition(one).into_iter().find(|it| it.0 == round)?.1)
            })
        };
        rounds.filter_map(of_round).collect()
    }

    fn numbers_of_points(&self) -> Option<Vec<f64>> {
        let taken: ValueOfPoint<'_> = &|one| Some(one.values.median);
        let own = self.axis_points(self.experiment, &self.selector.series, taken)?;
        let places =
            self.base_axis_points(taken)?.map(|base| self.combine_axis_points(&own, &base)).unwrap_or(own);
        places.iter().map(|place| self.convert_value(place.value)).collect()
    }
}

/// Returns the selected value of a curve: that of one place, or the mean of all places. The medians decide
/// which place is the highest or lowest. `None` if the curve lacks the place.
fn select_number(places: &[AxisPoint], ours: &NumberSelector) -> Option<f64> {
    let by_median = |a: &&AxisPoint, b: &&AxisPoint| a.median.total_cmp(&b.median);
    let place = match ours.of {
        CurveNumber::Mean => {
            let sum: f64 = places.iter().map(|place| place.value).sum();
            return (!places.is_empty()).then(|| sum / places.len() as f64);
        }
        CurveNumber::Highest => places.iter().max_by(by_median),
        CurveNumber::Lowest => places.iter().min_by(by_median),
        CurveNumber::At if ours.x.is_some() => places.iter().find(|place| Some(place.x) == ours.x),
        CurveNumber::At | CurveNumber::Only | CurveNumber::Deviation => places.first(),
    };
    place.map(|place| place.value)
}

/// Returns the standard deviation of a sample; `None` for a single value.
fn standard_deviation(values: &[f64]) -> Option<f64> {
    let count = values.len();
    let mean = values.iter().sum::<f64>() / count.max(1) as f64;
    let sum: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (count > 1).then(|| (sum / (count - 1) as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::{self, Effort};
    use crate::results::MeasurementFailure;
    use crate::results::tests::{test_point, test_results};

    fn number_of_row(results: &Results, figure: &str, what: &str) -> Option<MeasuredNumber> {
        let papers = paper::papers_named(&["nemo-basic-support".into()], Effort::Full).expect("is good");
        let figure = papers[0].figures.iter().find(|one| one.id == figure).expect("is there");
        let value = figure.values.iter().find(|one| one.what.starts_with(what)).expect("is there");
        let found = results.number_of_figure(&papers[0], figure, value.ours.as_ref().expect("is there"))?;
        let round = |value: f64| (value * 1e3).round() / 1e3;
        let range = found.repetition_range.map(|(low, high)| (round(low), round(high)));
        Some(MeasuredNumber { value: round(found.value), repetition_range: range })
    }

    #[test]
    fn measured_numbers_select_the_values_of_the_paper() {
        let results = test_results();
        let is = |value, range| Some(MeasuredNumber { value, repetition_range: range });
        assert_eq!(number_of_row(&results, "fig2", "highest, router"), is(92.1, Some((92.0, 92.2))));
        // Each repetition has its own ratio to plain routing.
        assert_eq!(number_of_row(&results, "fig2", "the mobile router"), is(2.172, Some((2.169, 2.174))));
        assert_eq!(number_of_row(&results, "table1-added", "added by NEPL"), is(0.01, None));
        assert_eq!(number_of_row(&results, "fig3-threshold", "router"), None);
    }

    #[test]
    fn failed_repetition_is_not_in_the_range() {
        let mut results = test_results();
        // The highest point of plain routing keeps only two of four repetitions: the second and the fourth.
        let key = test_point("udp-rates", "plain", Some(95.0), "mbit", "Mbit/s");
        results.curve_points.retain(|one| !(one.series == "plain" && one.x == Some(95.0)));
        for (round, value) in [(1, 93.0), (3, 94.0)] {
            results
                .failures
                .push(MeasurementFailure { repetition: round - 1, ..MeasurementFailure::of_sample(&key) });
            results.add(key.clone(), value);
        }
        let decay = number_of_row(&results, "fig2", "the mobile router").expect("is there");
        // The medians give 90.1 of 93.5. Only the second repetition has a value of both curves, so the number
        // has no range.
        assert_eq!(decay, MeasuredNumber { value: 3.636, repetition_range: None });
        let own = number_of_row(&results, "fig2", "highest, mobile router").expect("is there");
        assert_eq!(own.repetition_range, Some((90.0, 90.2)));
    }

    #[test]
    fn mean_handover_value_has_lowest_and_highest_handover() {
        let mut results = test_results();
        for (x, host, router) in [(1.0, 5.0, 4.0), (2.0, 3.0, 4.0), (3.0, 9.0, 6.0)] {
            results.add(test_point("handover", "subject", Some(x), "ms", "ms"), host);
            results.add(test_point("handover", "router", Some(x), "ms", "ms"), router);
        }
        assert_eq!(
            number_of_row(&results, "fig6", "host's gap"),
            Some(MeasuredNumber { value: 1.0, repetition_range: Some((-1.0, 3.0)) })
        );
    }

    #[test]
    fn range_is_printed_if_repetitions_differ() {
        assert_eq!(format_spread(Some((0.25, 1.0))), "(0.25 to 1)");
        assert_eq!(format_spread(Some((92.0, 92.0))), "");
        assert_eq!(format_spread(None), "");
        assert_eq!(standard_deviation(&[1.0, 2.0, 3.0]), Some(1.0));
        assert_eq!(standard_deviation(&[1.0]), None);
    }
}
