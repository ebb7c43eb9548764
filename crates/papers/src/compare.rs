//! Finds which figures became slower between two runs, and with which certainty.
//!
//! A machine is not equally fast on two days. But each run has measured plain routing and the subject by
//! turns. So the comparison divides each repetition of the subject by the repetition of plain routing beside
//! it. If one of the runs has no plain routing at a point, the comparison uses the values themselves. Each
//! curve is one question about all of its points at once. The test is the rank sum test of Wilcoxon
//! stratified by point (van Elteren), with its exact distribution. Under the hypothesis of equal runs, all
//! ways to distribute the values of a point among the two runs are equally probable. The test assumes no
//! distribution of the values, and points may differ by any amount. Many questions at once need a correction.
//! Curves with so few repetitions that they could not show a change do not count as questions (Tarone).
//! Holm's method corrects the probabilities of the other curves. The sign of the statistic gives the
//! direction of a change, so the test also works for a share of losses that was 0.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::ensure;

use super::results::{CurvePoint, Results};
use super::test_networks::{PLAIN_SERIES, SUBJECT_SERIES};
use carnet_bench::table::align_columns;
use carnet_testbed::expect::format_number;

/// Largest probability of chance at which the comparison claims a change.
const SIGNIFICANCE_LEVEL: f64 = 0.05;
/// Smallest relative change that the comparison reports.
const SMALLEST_REPORTED_CHANGE: f64 = 0.005;
/// Number of repetitions of a point, in both runs together, above which the normal distribution is exact
/// enough.
const MAX_VALUES_FOR_EXACT_TEST: usize = 60;
/// Largest number of values for which the test computes the exact distribution; with more, it uses the normal
/// distribution.
const MAX_VALUES_FOR_EXACT_DISTRIBUTION: usize = 200_000;

/// Change of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CurveChange {
    /// The new run is worse.
    Slower,
    /// The new run is better.
    Faster,
    /// Chance can explain the difference.
    Same,
    /// The runs have too few repetitions to show any difference.
    Unknown,
}

/// A curve in both runs.
#[derive(Debug, Clone, PartialEq)]
struct ComparedCurve {
    curve_name: String,
    /// Median over the points of the new value divided by the old one; `None` if an old value is 0.
    median_ratio: Option<f64>,
    /// Mean of the points' medians in the old run, and in the new run; used if there is no ratio.
    means: [f64; 2],
    /// Result of the test of the curve's values.
    rank_test: RankTest,
    /// Probability that chance alone causes a difference this large, corrected by Holm's method.
    corrected_probability: Option<f64>,
    /// Whether higher values are better.
    more_is_better: bool,
    change: CurveChange,
}

/// Result of the comparison.
#[derive(Debug)]
pub struct ComparisonResult {
    compared_curves: Vec<ComparedCurve>,
    notes: Vec<String>,
    /// Curves of the old run that the new run could not measure.
    missing_curves: Vec<String>,
}

impl ComparisonResult {
    /// Returns whether a curve became slower or could not be measured any more.
    pub fn has_slower_or_lost_curve(&self) -> bool {
        !self.missing_curves.is_empty()
            || self.compared_curves.iter().any(|one| one.change == CurveChange::Slower)
    }

    /// Returns the verdict for the terminal.
    pub fn report_text(&self) -> String {
        let mut rows = vec![["", "new / old", "by chance", "", ""].map(str::to_owned).to_vec()];
        for one in &self.compared_curves {
            let word = match one.change {
                CurveChange::Slower => "SLOWER",
                CurveChange::Faster => "faster",
                CurveChange::Same => "no difference",
                CurveChange::Unknown => "too few to say",
            };
            let chance = one.corrected_probability.map_or("-".into(), |chance| format!("{chance:.3}"));
            let [old, new] = one.means.map(format_number);
            let ratio = one.median_ratio.map_or(format!("{old} -> {new}"), |ratio| format!("{ratio:.3}"));
            rows.push(vec![one.curve_name.clone(), ratio, chance, word.into()]);
        }
        let mut text = align_columns(&rows);
        for note in &self.notes {
            let _ = writeln!(text, "NOTE: {note}");
        }
        for lost in &self.missing_curves {
            let _ = writeln!(text, "LOST: {lost}");
        }
        let count = |change| self.compared_curves.iter().filter(|one| one.change == change).count();
        let _ = writeln!(
            text,
            "{} slower, {} faster, {} without a difference, {} with too few repetitions, {} no longer \
             measured",
            count(CurveChange::Slower),
            count(CurveChange::Faster),
            count(CurveChange::Same),
            count(CurveChange::Unknown),
            self.missing_curves.len()
        );
        text
    }
}

/// Returns whether higher values of a quantity are better.
fn is_more_better(sample: &CurvePoint) -> bool {
    !matches!(sample.unit.as_str(), "ms") && sample.quantity != "loss" && !sample.quantity.contains("lost")
}

/// Returns a point's values in the old and in the new run, one for each repetition of the subject. If both
/// runs have plain routing at the point, divides each value by that of plain routing beside it. Leaves out a
/// repetition in which plain routing passed no packets.
fn values_of_both_runs(
    old: (&Results, &CurvePoint),
    new: (&Results, &CurvePoint),
    notes: &mut Vec<String>,
) -> (Vec<f64>, Vec<f64>) {
    let plain = |(run, sample): (&Results, &CurvePoint)| -> Option<Vec<(usize, f64)>> {
        let same = |one: &&CurvePoint| {
            one.series == PLAIN_SERIES
                && (&one.paper, &one.experiment, &one.quantity, &one.second_variable, one.x)
                    == (
                        &sample.paper,
                        &sample.experiment,
                        &sample.quantity,
                        &sample.second_variable,
                        sample.x,
                    )
        };
        run.curve_points.iter().find(same).map(|one| run.values_by_repetition(one))
    };
    let raw = |sample: &CurvePoint| sample.values.rounds.clone();
    let (before, after) = match (plain(old), plain(new)) {
        (Some(before), Some(after)) => (before, after),
        (None, None) => return (raw(old.1), raw(new.1)),
        _ => {
            notes.push(format!(
                "{}: only one run measured plain routing, so values are compared instead of ratios",
                point_name(new.1)
            ));
            return (raw(old.1), raw(new.1));
        }
    };
    // If a repetition is missing and no failure says which, the repetitions of both runs cannot be paired.
    let whole = |run: &Results, sample: &CurvePoint| {
        sample.values.rounds.len()
            + run.failures.iter().filter(|one| one.concerns_curve_point(sample)).count()
    };
    let uneven = |(run, sample): (&Results, &CurvePoint)| {
        let plain = CurvePoint { series: PLAIN_SERIES.into(), ..sample.clone() };
        let same =
            |one: &&CurvePoint| CurvePoint { values: sample.values.clone(), ..(**one).clone() } == plain;
        run.curve_points.iter().find(same).is_some_and(|plain| whole(run, plain) != whole(run, sample))
    };
    if uneven(old) || uneven(new) {
        notes.push(format!(
            "{}: plain routing has fewer repetitions, so values are compared instead of ratios",
            point_name(new.1)
        ));
        return (raw(old.1), raw(new.1));
    }
    // Losses, and other quantities that are 0 for plain routing, cannot be divided by the value of plain
    // routing.
    let nothing = before.iter().chain(&after).all(|(_, value)| *value == 0.0);
    if nothing || old.1.quantity == "loss" {
        return (raw(old.1), raw(new.1));
    }
    let mut ratios = |which: &str, (run, sample): (&Results, &CurvePoint), plain: Vec<(usize, f64)>| {
        let plain: BTreeMap<usize, f64> = plain.into_iter().collect();
        let own = run.values_by_repetition(sample);
        let count = own.len();
        let ratios: Vec<f64> = own
            .into_iter()
            .filter_map(|(round, own)| Some((own, *plain.get(&round)?)))
            .filter(|(_, plain)| *plain > 0.0)
            .map(|(own, plain)| own / plain)
            .collect();
        if ratios.len() < count {
            let less = count - ratios.len();
            notes.push(format!(
                "{which}: {}: {less} repetitions have no measurement of plain routing",
                point_name(sample)
            ));
        }
        ratios
    };
    (ratios("old", old, before), ratios("new", new, after))
}

/// Returns the text that names a point in messages.
fn point_name(sample: &CurvePoint) -> String {
    let with = sample.second_variable.as_ref().map_or(String::new(), |with| format!(", {with}"));
    let x = sample.x.map_or(String::new(), |x| format!(" at {x}"));
    format!("{}, {}: {}{with}{x}", sample.paper, sample.experiment, sample.quantity)
}

/// Paper, experiment and quantity of a curve, for which the comparison makes one test.
type CurveKey<'a> = (&'a str, &'a str, &'a str);

/// Returns the curves of a run that are separate questions. It leaves out quantities that follow from others.
/// The megabits of a transfer follow from its packets, and the delivered share from received and offered
/// packets.
fn curve_keys_of_run(run: &Results) -> Vec<CurveKey<'_>> {
    let mut names: Vec<CurveKey<'_>> = Vec::new();
    for sample in run.curve_points.iter().filter(|one| one.series == SUBJECT_SERIES) {
        let name = (sample.paper.as_str(), sample.experiment.as_str(), sample.quantity.as_str());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let has = |name: &CurveKey<'_>, quantity| names.contains(&(name.0, name.1, quantity));
    let again = |name: &CurveKey<'_>| match name.2 {
        "delivered" => has(name, "mbit") || has(name, "packets"),
        "mbit" => has(name, "packets"),
        _ => false,
    };
    names.iter().filter(|name| !again(name)).copied().collect()
}

/// Compares two runs.
///
/// # Errors
/// Fails if only one run is of an emulated machine. An emulator makes some instructions many times slower
/// than others, so even ratios to plain routing cannot be compared. Fails also if the runs have no curve in
/// common.
pub fn compare_runs(old: &Results, new: &Results) -> anyhow::Result<ComparisonResult> {
    let kind = |run: &Results| if run.machine.emulated { "an emulated" } else { "a real" };
    ensure!(
        old.machine.emulated == new.machine.emulated,
        "expected two runs from machines of one kind, found the old run from {} machine ({}) and the new run \
         from {} machine ({})",
        kind(old),
        old.machine.cpu,
        kind(new),
        new.machine.cpu
    );
    let mut notes = Vec::new();
    for (which, run) in [("old", old), ("new", new)] {
        notes.extend(run.warnings_about_machine().iter().map(|warning| format!("{which}: {warning}")));
        notes.extend(
            run.omitted_experiments
                .iter()
                .map(|one| format!("{which}: {}, {}: {}", one.paper, one.experiment, one.reason)),
        );
        if let Some(first) = run.failures.first() {
            let (count, why) = (run.failures.len(), &first.error_message);
            notes.push(format!("{which}: {count} measurements failed, the first: {why}"));
        }
    }
    if (&old.machine.cpu, old.machine.cores) != (&new.machine.cpu, new.machine.cores) {
        notes.push(format!(
            "the runs come from different machines: {} and {}",
            old.machine.cpu, new.machine.cpu
        ));
    }
    if old.machine.mitigations != new.machine.mitigations {
        notes.push(format!(
            "other mitigations of the processor's faults: {} and {}",
            old.machine.mitigations_text(),
            new.machine.mitigations_text()
        ));
    }
    if old.subject != new.subject {
        notes.push(format!(
            "the runs measured different subjects: {} and {}",
            old.subject.name, new.subject.name
        ));
    }
    let (before, after) = (curve_keys_of_run(old), curve_keys_of_run(new));
    let (mut lost, mut compared) = (Vec::new(), Vec::new());
    for name in &after {
        let what = format!("{}, {}: {}", name.0, name.1, name.2);
        if !before.contains(name) {
            notes.push(format!("only in the new run: {what}"));
        } else if let Some(why) = difference_of_experiments(name, old, new) {
            notes.push(format!("not compared: {what}: {why}"));
        } else {
            compared.extend(compare_curve(*name, old, new, &mut notes, &mut lost));
        }
    }
    for name in before.iter().filter(|name| !after.contains(name)) {
        let what = format!("{}, {}: {}", name.0, name.1, name.2);
        match new.reason_for_omission(name.0, name.1).or_else(|| failure_of_experiment(new, name.0, name.1)) {
            Some(why) => lost.push(format!("{what}: {why}")),
            None => notes.push(format!("only in the old run: {what}")),
        }
    }
    ensure!(
        !compared.is_empty() || !lost.is_empty(),
        "the two runs have no curve in common; expected the same experiments with the same parameters{}",
        notes.iter().map(|note| format!("\n  {note}")).collect::<String>()
    );
    correct_for_multiple_tests(&mut compared);
    Ok(ComparisonResult { compared_curves: compared, notes, missing_curves: lost })
}

/// Returns why the first failed measurement of an experiment's subject failed; `None` if none failed.
fn failure_of_experiment<'a>(run: &'a Results, paper: &str, experiment: &str) -> Option<&'a str> {
    let of_it = run
        .failures
        .iter()
        .find(|one| one.series == SUBJECT_SERIES && one.paper == paper && one.experiment == experiment);
    of_it.map(|one| one.error_message.as_str())
}

/// Returns a text about the parameters of an experiment that differ between the runs; `None` if they are
/// equal. A parameter that a file lacks counts as equal.
fn difference_of_experiments(name: &CurveKey<'_>, old: &Results, new: &Results) -> Option<String> {
    let [before, after] = [old, new].map(|run| run.parameters_of(name.0, name.1));
    let (before, after) = (before?, after?);
    let key = before.keys().chain(after.keys()).find(|key| before.get(*key) != after.get(*key))?;
    let told = |one: &serde_json::Map<String, serde_json::Value>| {
        one.get(key).map_or("none".to_owned(), serde_json::Value::to_string)
    };
    Some(format!("{key} is {} in the old run and {} in the new one", told(&before), told(&after)))
}

fn compare_curve(
    name: CurveKey<'_>,
    old: &Results,
    new: &Results,
    notes: &mut Vec<String>,
    lost: &mut Vec<String>,
) -> Option<ComparedCurve> {
    let of_it = |one: &&CurvePoint| {
        one.series == SUBJECT_SERIES
            && (one.paper.as_str(), one.experiment.as_str(), one.quantity.as_str()) == name
    };
    let mut strata = Vec::new();
    let mut better = true;
    for sample in new.curve_points.iter().filter(of_it) {
        let there = |one: &&CurvePoint| {
            of_it(one) && one.x == sample.x && one.second_variable == sample.second_variable
        };
        let Some(before) = old.curve_points.iter().find(there) else {
            notes.push(format!("only in the new run: {}", point_name(sample)));
            continue;
        };
        better = is_more_better(sample);
        strata.push(values_of_both_runs((old, before), (new, sample), notes));
    }
    for sample in old.curve_points.iter().filter(of_it) {
        let there = |one: &CurvePoint| {
            of_it(&one) && one.x == sample.x && one.second_variable == sample.second_variable
        };
        if !new.curve_points.iter().any(there) {
            let failure = new
                .failures
                .iter()
                .find(|one| one.concerns_curve_point(sample))
                .map(|one| one.error_message.as_str());
            match failure.or_else(|| new.reason_for_omission(name.0, name.1)) {
                Some(why) => lost.push(format!("{}: {why}", point_name(sample))),
                None => notes.push(format!("only in the old run: {}", point_name(sample))),
            }
        }
    }
    strata.retain(|(old, new)| !old.is_empty() && !new.is_empty());
    if strata.is_empty() {
        return None;
    }
    let medians: Vec<(f64, f64)> = strata.iter().map(|(old, new)| (median(old), median(new))).collect();
    let ratios: Vec<f64> = medians.iter().filter(|(old, _)| *old > 0.0).map(|(old, new)| new / old).collect();
    let mean = |which: fn(&(f64, f64)) -> f64| medians.iter().map(which).sum::<f64>() / medians.len() as f64;
    Some(ComparedCurve {
        curve_name: format!("{}, {}: {}", name.0, name.1, name.2),
        median_ratio: (ratios.len() == medians.len()).then(|| median(&ratios)),
        means: [mean(|one| one.0), mean(|one| one.1)],
        rank_test: rank_test(&strata),
        corrected_probability: None,
        more_is_better: better,
        change: CurveChange::Unknown,
    })
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    carnet_bench::figures::median(&sorted)
}

/// Decides which changes the comparison may claim. First, by Tarone, only those curves count that could have
/// shown a change at the limit for this number of questions. Then, by Holm, the smallest probability is
/// multiplied by the number of questions, the next one by one less, and so on. No result may be below the one
/// before. A probability above the limit, or a small change, counts as no difference.
fn correct_for_multiple_tests(compared: &mut [ComparedCurve]) {
    let able = |many: usize| {
        let limit = SIGNIFICANCE_LEVEL / many as f64;
        (0..compared.len())
            .filter(|at| compared[*at].rank_test.least_possible_probability <= limit)
            .collect::<Vec<_>>()
    };
    // Tarone's method: find the smallest number of questions for which no more curves than this number could
    // show a change.
    let family = (1..=compared.len().max(1)).find(|many| able(*many).len() <= *many);
    let mut order = family.map(able).unwrap_or_default();
    order.sort_by(|a, b| {
        compared[*a].rank_test.probability_by_chance.total_cmp(&compared[*b].rank_test.probability_by_chance)
    });
    let mut least = 0.0_f64;
    let many = order.len();
    for (rank, at) in order.into_iter().enumerate() {
        let one = &mut compared[at];
        least = (one.rank_test.probability_by_chance * (many - rank) as f64).max(least).min(1.0);
        one.corrected_probability = Some(least);
        let small = one.median_ratio.is_some_and(|ratio| (ratio - 1.0).abs() < SMALLEST_REPORTED_CHANGE);
        one.change = match (
            least > SIGNIFICANCE_LEVEL || small,
            (one.rank_test.direction > 0.0) == one.more_is_better,
        ) {
            (true, _) => CurveChange::Same,
            (false, true) => CurveChange::Faster,
            (false, false) => CurveChange::Slower,
        };
    }
    for one in compared
        .iter_mut()
        .filter(|one| one.corrected_probability.is_none() && one.rank_test.all_values_equal)
    {
        one.change = CurveChange::Same;
    }
}

/// Result of van Elteren's test for pairs of old and new values.
#[derive(Debug, Clone, Copy, PartialEq)]
struct RankTest {
    /// Van Elteren's statistic minus its expected value for equal runs: above 0 if the new values are higher.
    direction: f64,
    /// Probability that equal runs differ this much, in either direction.
    probability_by_chance: f64,
    /// Smallest probability that the test can give for these numbers of values and ties.
    least_possible_probability: f64,
    /// Whether all values of each point are equal, although there are enough of them to show a difference.
    all_values_equal: bool,
}

/// Ranks the values of both runs together, and returns each rank times two, because the mean rank of equal
/// values may end in a half. Each flag says whether the value is of the new run.
fn doubled_ranks(old: &[f64], new: &[f64]) -> (Vec<i64>, Vec<bool>) {
    let mut all: Vec<(f64, bool)> =
        old.iter().map(|value| (*value, false)).chain(new.iter().map(|value| (*value, true))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut ranks = Vec::new();
    while ranks.len() < all.len() {
        let at = ranks.len();
        let equal = all[at..].iter().take_while(|one| one.0 == all[at].0).count().max(1);
        ranks.extend(std::iter::repeat_n((2 * at + equal + 1) as i64, equal));
    }
    (ranks, all.iter().map(|one| one.1).collect())
}

/// Returns the probability of each value of a statistic: the sum of `chosen` of these doubled ranks, minus
/// its mean.
fn rank_sum_distribution(ranks: &[i64], chosen: usize) -> BTreeMap<i64, f64> {
    // For each number of chosen ranks: the number of ways to get each sum.
    let mut ways: Vec<BTreeMap<i64, f64>> = vec![BTreeMap::new(); chosen + 1];
    ways[0].insert(0, 1.0);
    for rank in ranks {
        for count in (0..chosen).rev() {
            let more: Vec<(i64, f64)> = ways[count].iter().map(|(sum, many)| (sum + rank, *many)).collect();
            for (sum, many) in more {
                *ways[count + 1].entry(sum).or_default() += many;
            }
        }
    }
    let ways = ways.swap_remove(chosen);
    let all: f64 = ways.values().sum();
    let mean = (chosen * (ranks.len() + 1)) as i64;
    ways.into_iter().map(|(sum, many)| (sum - mean, many / all)).collect()
}

/// Performs van Elteren's test, two-sided, with ties. The test is exact, except for large numbers of values,
/// for which the normal distribution is as good.
fn rank_test(strata: &[(Vec<f64>, Vec<f64>)]) -> RankTest {
    let ranked: Vec<_> = strata.iter().map(|(old, new)| doubled_ranks(old, new)).collect();
    // A point with N values has the weight 1 / (N + 1). All weights are multiplied by the least common
    // multiple of the denominators, so that they are whole numbers and equal sums are exactly equal.
    let multiple = ranked.iter().try_fold(1_i64, |multiple, (ranks, _)| {
        let with = ranks.len() as i64 + 1;
        (multiple / greatest_common_divisor(multiple, with))
            .checked_mul(with)
            .filter(|multiple| *multiple < 1 << 40)
    });
    let (mut direction, mut variance, mut untied) = (0.0, 0.0, 1.0_f64);
    for ((ranks, of_new), (old, new)) in ranked.iter().zip(strata) {
        let (m, n, total) = (old.len() as f64, new.len() as f64, ranks.len() as f64);
        let sum = ranks
            .iter()
            .zip(of_new)
            .filter(|(_, new)| **new)
            .map(|(rank, _)| *rank as f64 / 2.0)
            .sum::<f64>();
        let mean = (total + 1.0) / 2.0;
        let squares: f64 = ranks.iter().map(|rank| (*rank as f64 / 2.0 - mean).powi(2)).sum();
        let weight = 1.0 / (total + 1.0);
        direction += weight * (sum - n * mean);
        variance += weight * weight * m * n * squares / (total * (total - 1.0)).max(1.0);
        untied /= (1..=new.len()).map(|at| (m + at as f64) / at as f64).product::<f64>();
    }
    let alike = variance <= 0.0;
    let normal = RankTest {
        direction,
        probability_by_chance: if alike {
            1.0
        } else {
            2.0 * normal_tail_probability(direction.abs() / variance.sqrt())
        },
        least_possible_probability: if alike { 1.0 } else { 2.0 * untied },
        all_values_equal: alike && 2.0 * untied <= SIGNIFICANCE_LEVEL,
    };
    let few = ranked.iter().all(|(ranks, _)| ranks.len() <= MAX_VALUES_FOR_EXACT_TEST);
    let Some(multiple) = multiple.filter(|_| few && !alike) else { return normal };
    let (mut all, mut found) = (BTreeMap::from([(0_i64, 1.0_f64)]), 0_i64);
    for ((ranks, of_new), (_, new)) in ranked.iter().zip(strata) {
        let weight = multiple / (ranks.len() as i64 + 1);
        let sum: i64 = ranks.iter().zip(of_new).filter(|(_, new)| **new).map(|(rank, _)| *rank).sum();
        found += weight * (sum - (new.len() * (ranks.len() + 1)) as i64);
        let own = rank_sum_distribution(ranks, new.len());
        let mut both: BTreeMap<i64, f64> = BTreeMap::new();
        for (a, first) in &all {
            for (b, second) in &own {
                *both.entry(a + weight * b).or_default() += first * second;
            }
        }
        all = both;
        if all.len() > MAX_VALUES_FOR_EXACT_DISTRIBUTION {
            return normal;
        }
    }
    let beyond = |limit: i64| {
        let sum: f64 = all.iter().filter(|(at, _)| at.abs() >= limit).map(|(_, share)| share).sum();
        sum.min(1.0)
    };
    let most = all.keys().map(|at| at.abs()).max().unwrap_or(0);
    RankTest {
        probability_by_chance: beyond(found.abs()),
        least_possible_probability: beyond(most),
        ..normal
    }
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Returns the probability of a value above `z` in the standard normal distribution (Abramowitz and Stegun
/// 26.2.17, with an error below 7.5e-8).
fn normal_tail_probability(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let terms = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let polynomial = terms.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * polynomial
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{test_point, test_results};
    use crate::results::{ExperimentParameters, MeasurementFailure};

    fn results_with_values(subject: &[f64], plain: &[f64]) -> Results {
        let mut run = Results::default();
        for (series, values) in [(PLAIN_SERIES, plain), (SUBJECT_SERIES, subject)] {
            for value in values {
                run.add(test_point("tcp", series, None, "mbit", "Mbit/s"), *value);
            }
        }
        run
    }

    #[test]
    fn comparison_does_not_depend_on_machine_speed() {
        let old = results_with_values(
            &[90.0, 91.0, 92.0, 90.5, 91.5, 90.2],
            &[100.0, 101.0, 102.0, 100.5, 101.5, 100.2],
        );
        // Plain routing and the subject are both half as fast: no change.
        let half = |values: &[f64]| values.iter().map(|value| value / 2.0).collect::<Vec<_>>();
        let new = results_with_values(
            &half(&old.curve_points[1].values.rounds),
            &half(&old.curve_points[0].values.rounds),
        );
        let verdict = compare_runs(&old, &new).expect("both runs come from the same kind of machine");
        assert_eq!(
            (verdict.compared_curves[0].change, verdict.has_slower_or_lost_curve()),
            (CurveChange::Same, false),
            "{verdict:?}"
        );
        // Only the subject is 10 % slower; plain routing is unchanged.
        let less: Vec<f64> = old.curve_points[1].values.rounds.iter().map(|value| value * 0.9).collect();
        let verdict = compare_runs(&old, &results_with_values(&less, &old.curve_points[0].values.rounds))
            .expect("both runs come from the same kind of machine");
        assert!(
            verdict.has_slower_or_lost_curve()
                && verdict.compared_curves[0].median_ratio.is_some_and(|ratio| (ratio - 0.9).abs() < 1e-9),
            "{verdict:?}"
        );
        assert!(verdict.report_text().contains("SLOWER"), "{}", verdict.report_text());
        let verdict = compare_runs(&results_with_values(&less, &old.curve_points[0].values.rounds), &old)
            .expect("both runs come from the same kind of machine");
        assert_eq!(verdict.compared_curves[0].change, CurveChange::Faster);
    }

    #[test]
    fn longer_round_trips_are_slower_if_repetitions_suffice() {
        let mut old = test_results();
        let mut new = test_results();
        for (run, factor) in [(&mut old, 1.0), (&mut new, 1.5)] {
            for round in 0..8 {
                let value = 0.06 * factor + f64::from(round) * 1e-4;
                run.add(test_point("rtt", SUBJECT_SERIES, Some(56.0), "ms", "ms"), value);
            }
        }
        let verdict = compare_runs(&old, &new).expect("both runs come from the same kind of machine");
        let found = |what: &str| {
            verdict.compared_curves.iter().find(|one| one.curve_name.contains(what)).expect("is there").change
        };
        assert_eq!(found("rtt: ms"), CurveChange::Slower);
        assert_eq!(found("udp-rates"), CurveChange::Same);
        let few = compare_runs(&results_with_values(&[1.0], &[1.0]), &results_with_values(&[0.5], &[1.0]))
            .expect("both runs come from the same kind of machine");
        assert_eq!(few.compared_curves[0].change, CurveChange::Unknown);
    }

    #[test]
    fn comparison_refuses_a_real_and_an_emulated_machine() {
        let real = results_with_values(&[1.0], &[1.0]);
        let mut emulated = real.clone();
        emulated.machine.emulated = true;
        emulated.machine.cpu = "QEMU TCG CPU".into();
        let told = compare_runs(&real, &emulated).expect_err("are of two kinds").to_string();
        let expected =
            "the old run from a real machine () and the new run from an emulated machine (QEMU TCG CPU)";
        assert!(told.ends_with(expected), "{told}");
        assert!(compare_runs(&emulated, &real).is_err());
        let text = compare_runs(&emulated, &emulated)
            .expect("both runs come from the same kind of machine")
            .report_text();
        assert!(text.contains("NOTE: new: an emulated machine: "), "{text}");
    }

    #[test]
    fn rank_test_probabilities_are_exact() {
        assert!((normal_tail_probability(1.96) - 0.025).abs() < 1e-4, "{}", normal_tail_probability(1.96));
        // The 5 old values are all below the 5 new values. Of the 252 ways to distribute ten values, 2 are
        // this extreme.
        let apart = [((1..=5).map(f64::from).collect(), (6..=10).map(f64::from).collect())];
        let found = rank_test(&apart);
        assert!((found.probability_by_chance - 2.0 / 252.0).abs() < 1e-12, "{found:?}");
        assert!(
            (found.least_possible_probability - 2.0 / 252.0).abs() < 1e-12 && found.direction > 0.0,
            "{found:?}"
        );
        // There are two points with one old and two new values. In each direction, complete separation is 1
        // of 9 ways. The normal distribution would give 0.08.
        let two = [(vec![1.0], vec![2.0, 3.0]), (vec![10.0], vec![20.0, 30.0])];
        let found = rank_test(&two);
        assert!((found.probability_by_chance - 2.0 / 9.0).abs() < 1e-12, "{found:?}");
        // With ties the ranks are 1.5, 1.5, 3.5 and 3.5. Of the six ways to choose two ranks, one has the
        // highest sum and one the lowest.
        let ties = rank_test(&[(vec![1.0, 1.0], vec![2.0, 2.0])]);
        assert!((ties.probability_by_chance - 2.0 / 6.0).abs() < 1e-12, "{ties:?}");
        // With this many values the test uses the normal distribution.
        let many = [((0..40).map(f64::from).collect(), (20..60).map(f64::from).collect())];
        assert!(rank_test(&many).probability_by_chance < 1e-4, "{:?}", rank_test(&many));
        let same = rank_test(&[(vec![1.0, 2.0, 3.0], vec![1.0, 2.0, 3.0])]);
        assert!((same.probability_by_chance - 1.0).abs() < 1e-6 && same.direction == 0.0, "{same:?}");
    }

    /// Returns a run with this loss at points of plain routing and of the subject.
    fn results_with_loss(plain: f64, subject: &[f64]) -> Results {
        let mut run = Results::default();
        for value in subject {
            run.add(test_point("rtt", PLAIN_SERIES, Some(56.0), "loss", "%"), plain);
            run.add(test_point("rtt", SUBJECT_SERIES, Some(56.0), "loss", "%"), *value);
        }
        run
    }

    #[test]
    fn loss_that_rises_from_zero_is_reported() {
        let (old, new) =
            (results_with_loss(0.0, &[0.0; 7]), results_with_loss(0.0, &[3.0, 4.0, 2.0, 5.0, 3.0, 4.0, 2.5]));
        let verdict = compare_runs(&old, &new).expect("both runs come from the same kind of machine");
        assert_eq!(verdict.compared_curves[0].change, CurveChange::Slower, "{verdict:?}");
        assert!(verdict.report_text().contains("0 -> 3"), "{}", verdict.report_text());
        let back = compare_runs(&new, &old).expect("both runs come from the same kind of machine");
        assert_eq!(back.compared_curves[0].change, CurveChange::Faster, "{back:?}");
        let same = compare_runs(&old, &old).expect("both runs come from the same kind of machine");
        assert_eq!(same.compared_curves[0].change, CurveChange::Same, "all are 0 in both: {same:?}");
    }

    #[test]
    fn change_direction_follows_rank_test() {
        // The subject is slower at nine points and ten times as fast at one: the mean of the ratios is above
        // 1.
        let (mut old, mut new) = (Results::default(), Results::default());
        for x in 0..10_u32 {
            for round in 0..5_u32 {
                let value = 100.0 + f64::from(round);
                old.add(test_point("tcp", SUBJECT_SERIES, Some(f64::from(x)), "mbit", "Mbit/s"), value);
                let factor = if x == 0 { 10.0 } else { 0.8 };
                new.add(
                    test_point("tcp", SUBJECT_SERIES, Some(f64::from(x)), "mbit", "Mbit/s"),
                    value * factor,
                );
            }
        }
        let verdict = compare_runs(&old, &new).expect("both runs come from the same kind of machine");
        assert_eq!(verdict.compared_curves[0].change, CurveChange::Slower, "{verdict:?}");
        let ratio = verdict.compared_curves[0].median_ratio.expect("is there");
        assert!((ratio - 0.8).abs() < 1e-9, "{ratio}");
    }

    #[test]
    fn curve_with_too_few_repetitions_does_not_weaken_correction() {
        let (mut old, mut new) = (Results::default(), Results::default());
        for (run, value) in [(&mut old, 100.0), (&mut new, 50.0)] {
            for round in 0..5 {
                run.add(test_point("tcp", SUBJECT_SERIES, None, "mbit", "Mbit/s"), value + f64::from(round));
            }
            // 12 of the curves have 2 repetitions each. If they counted as questions, the probability 13 * 2
            // / 252 would be above the limit.
            for number in 0..12 {
                for round in 0..2 {
                    let name = format!("few{number}");
                    run.add(
                        test_point(&name, SUBJECT_SERIES, None, "mbit", "Mbit/s"),
                        value + f64::from(round),
                    );
                }
            }
        }
        let verdict = compare_runs(&old, &new).expect("both runs come from the same kind of machine");
        assert_eq!(verdict.compared_curves[0].change, CurveChange::Slower, "{verdict:?}");
        assert!(
            verdict.compared_curves[1..].iter().all(|one| one.change == CurveChange::Unknown),
            "{verdict:?}"
        );
    }

    #[test]
    fn packets_and_rate_of_one_transfer_count_once() {
        let mut run = Results::default();
        for (experiment, quantity) in [
            ("udp", "mbit"),
            ("udp", "delivered"),
            ("packets", "packets"),
            ("packets", "mbit"),
            ("mgen", "packets"),
        ] {
            run.add(test_point(experiment, SUBJECT_SERIES, None, quantity, ""), 1.0);
        }
        run.add(test_point("mgen", SUBJECT_SERIES, None, "delivered", "%"), 1.0);
        let asked: Vec<_> = curve_keys_of_run(&run).into_iter().map(|name| (name.1, name.2)).collect();
        assert_eq!(asked, [("udp", "mbit"), ("packets", "packets"), ("mgen", "packets")]);
    }

    #[test]
    fn missing_curves_are_listed_and_lost_ones_count_as_slower() {
        let old = test_results();
        let mut new = test_results();
        new.curve_points.retain(|one| one.experiment != "echo");
        let told = compare_runs(&old, &new).expect("both runs have a curve in common");
        assert!(
            !told.has_slower_or_lost_curve()
                && told.report_text().contains("only in the old run: nemo-basic-support, echo: ms")
        );
        let why = "the host on board does not answer";
        new.omitted_experiments.push(crate::results::OmittedExperiment {
            paper: "nemo-basic-support".into(),
            experiment: "echo".into(),
            reason: why.into(),
        });
        let told = compare_runs(&old, &new).expect("both runs have a curve in common");
        assert!(
            told.has_slower_or_lost_curve() && told.report_text().contains(&format!("echo: ms: {why}")),
            "{}",
            told.report_text()
        );
        // A point that is missing in the new run counts as lost only if a failure names it.
        let mut new = test_results();
        new.curve_points.retain(|one| one.x != Some(92.0));
        let told = compare_runs(&old, &new).expect("both runs have a curve in common");
        assert!(!told.has_slower_or_lost_curve(), "{}", told.report_text());
        new.failures.push(MeasurementFailure {
            repetition: 0,
            error_message: "unable to connect".into(),
            ..MeasurementFailure::of_sample(&test_point(
                "udp-rates",
                SUBJECT_SERIES,
                Some(92.0),
                "mbit",
                "Mbit/s",
            ))
        });
        let told = compare_runs(&old, &new).expect("both runs have a curve in common");
        assert!(
            told.has_slower_or_lost_curve() && told.report_text().contains("at 92: unable to connect"),
            "{}",
            told.report_text()
        );
        let error = compare_runs(&old, &results_with_loss(0.0, &[0.0]))
            .expect_err("have nothing in common")
            .to_string();
        assert!(error.starts_with("the two runs have no curve in common"), "{error}");
    }

    #[test]
    fn comparison_drops_repetitions_without_plain_routing_value() {
        let own = [90.0, 91.0, 92.0, 90.5, 91.5, 90.2];
        let plain = [100.0, 101.0, 102.0, 100.5, 101.5, 100.2];
        let old = results_with_values(&own, &plain);
        // In one repetition plain routing forwarded nothing, so this pair does not count.
        let mut broken = plain;
        broken[2] = 0.0;
        let verdict = compare_runs(&old, &results_with_values(&own, &broken))
            .expect("both runs come from the same kind of machine");
        assert_eq!(verdict.compared_curves[0].change, CurveChange::Same, "{verdict:?}");
        assert!(
            verdict.report_text().contains("1 repetitions have no measurement of plain routing"),
            "{}",
            verdict.report_text()
        );
        // One repetition failed: the other repetitions still form pairs.
        let mut fewer = results_with_values(&own, &plain);
        fewer.curve_points[0].values =
            carnet_bench::figures::Series::of_rounds([&plain[..2], &plain[3..]].concat());
        fewer.failures.push(MeasurementFailure {
            repetition: 2,
            error_message: "timed out".into(),
            ..MeasurementFailure::of_sample(&fewer.curve_points[0])
        });
        let verdict = compare_runs(&old, &fewer).expect("both runs come from the same kind of machine");
        assert_eq!(verdict.compared_curves[0].change, CurveChange::Same, "{verdict:?}");
        let mut without = results_with_values(&own, &plain);
        without.curve_points.retain(|one| one.series == SUBJECT_SERIES);
        let verdict = compare_runs(&old, &without).expect("both runs come from the same kind of machine");
        assert_eq!(verdict.compared_curves[0].median_ratio, Some(1.0), "{verdict:?}");
        assert!(
            verdict.report_text().contains("only one run measured plain routing"),
            "{}",
            verdict.report_text()
        );
    }

    #[test]
    fn experiments_with_other_parameters_are_not_compared() {
        let made = |seconds: u64, sizes: &[u32]| {
            let mut run = test_results();
            run.experiments.push(ExperimentParameters {
                paper: "nemo-basic-support".into(),
                experiment: "udp-rates".into(),
                parameters: serde_json::json!({
                    "seconds": seconds, "sizes": sizes, "mbit": [89], "across": "mbit", "repeat": 3,
                }),
            });
            run
        };
        let asked = |old: &Results, new: &Results| {
            let verdict = compare_runs(old, new).expect("both runs have a curve in common");
            verdict.compared_curves.iter().any(|one| one.curve_name.contains("udp-rates"))
        };
        assert!(asked(&made(2, &[1192]), &made(2, &[1192])));
        assert!(!asked(&made(2, &[1192]), &made(1, &[1192])));
        assert!(!asked(&made(2, &[1192]), &made(2, &[1000])));
        assert!(asked(&made(2, &[1192, 1]), &made(2, &[1192, 2])), "curves of their own");
        assert!(asked(&made(2, &[1192]), &test_results()), "an older file does not tell");
    }
}
