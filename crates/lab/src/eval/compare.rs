//! What became slower between two runs, and how sure that is.
//!
//! A machine is not equally fast on two days. Plain routing was measured in the same run and by turns with what is
//! compared, so each repetition is divided by that of plain routing beside it, and these ratios are compared; where
//! there is no plain routing, the values are. Each curve is one question, asked of all of its points at once by the rank
//! sum test of Wilcoxon stratified by point (van Elteren): no distribution is assumed, and points may lie apart by
//! whatever. As several curves are asked, the probabilities are corrected by Holm's method.

use std::fmt::Write;

use anyhow::ensure;

use super::bed::{PLAIN, SUBJECT};
use super::results::{Results, Sample};
use crate::bench::table::aligned;

/// Above this probability of chance nothing is claimed.
const CHANCE: f64 = 0.05;
/// Repetitions, of all points of a curve together and in each run, below which nothing is claimed.
const ENOUGH: usize = 5;
/// A change that is smaller is not told, however sure.
const SMALL: f64 = 0.005;

/// What became of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Worse.
    Slower,
    /// Better.
    Faster,
    /// Nothing that could not be chance.
    Same,
    /// Too few repetitions to say.
    Unknown,
}

/// A curve in both runs.
#[derive(Debug, Clone, PartialEq)]
struct Compared {
    what: String,
    /// New divided by old, the mean over the points.
    ratio: f64,
    /// Probability that chance alone makes as much, corrected.
    chance: Option<f64>,
    change: Change,
}

/// The verdict.
#[derive(Debug)]
pub struct Verdict {
    compared: Vec<Compared>,
    notes: Vec<String>,
}

impl Verdict {
    /// Whether anything became slower.
    pub fn slower(&self) -> bool {
        self.compared.iter().any(|one| one.change == Change::Slower)
    }

    /// For the terminal.
    pub fn text(&self) -> String {
        let mut rows = vec![["", "new / old", "by chance", "", ""].map(str::to_owned).to_vec()];
        for one in &self.compared {
            let word = match one.change {
                Change::Slower => "SLOWER",
                Change::Faster => "faster",
                Change::Same => "no difference",
                Change::Unknown => "too few to say",
            };
            let chance = one.chance.map_or("-".into(), |chance| format!("{chance:.3}"));
            rows.push(vec![one.what.clone(), format!("{:.3}", one.ratio), chance, word.into()]);
        }
        let mut text = aligned(&rows);
        for note in &self.notes {
            let _ = writeln!(text, "NOTE: {note}");
        }
        let count = |change| self.compared.iter().filter(|one| one.change == change).count();
        let _ = writeln!(
            text,
            "{} slower, {} faster, {} without a difference, {} with too few repetitions",
            count(Change::Slower),
            count(Change::Faster),
            count(Change::Same),
            count(Change::Unknown)
        );
        text
    }
}

/// Whether more of a quantity is better.
fn more_is_better(sample: &Sample) -> bool {
    !matches!(sample.unit.as_str(), "ms") && sample.quantity != "loss" && !sample.quantity.contains("lost")
}

/// A repetition of the subject beside that of plain routing, where there is one.
fn beside(sample: &Sample, all: &[Sample]) -> Vec<f64> {
    let plain = all.iter().find(|one| {
        let same = Sample { series: sample.series.clone(), values: sample.values.clone(), ..(*one).clone() };
        one.series == PLAIN && same == *sample
    });
    let own = &sample.values.rounds;
    match plain.filter(|plain| plain.values.rounds.iter().all(|value| *value > 0.0)) {
        Some(plain) if plain.values.rounds.len() == own.len() => {
            own.iter().zip(&plain.values.rounds).map(|(own, plain)| own / plain).collect()
        }
        _ => own.clone(),
    }
}

/// Compares two runs.
///
/// # Errors
/// When one is of an emulated machine and the other is not: not even the ratios to plain routing are of one kind then,
/// for an emulator makes some instructions many times slower and others hardly.
pub fn compare(old: &Results, new: &Results) -> anyhow::Result<Verdict> {
    let kind = |run: &Results| if run.machine.emulated { "an emulated" } else { "a real" };
    ensure!(
        old.machine.emulated == new.machine.emulated,
        "the old run is of {} machine ({}), the new one of {} machine ({}); expected both of one kind",
        kind(old),
        old.machine.cpu,
        kind(new),
        new.machine.cpu
    );
    let mut notes = Vec::new();
    for (which, run) in [("old", old), ("new", new)] {
        notes.extend(run.warnings().iter().map(|warning| format!("{which}: {warning}")));
    }
    if (&old.machine.cpu, old.machine.cores) != (&new.machine.cpu, new.machine.cores) {
        notes.push(format!("other machines: {} and {}", old.machine.cpu, new.machine.cpu));
    }
    if old.subject != new.subject {
        notes.push(format!("different things were measured: {} and {}", old.subject.name, new.subject.name));
    }
    let mut names: Vec<(&str, &str, &str)> = Vec::new();
    for sample in new.samples.iter().filter(|one| one.series == SUBJECT) {
        let name = (sample.paper.as_str(), sample.experiment.as_str(), sample.quantity.as_str());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut compared: Vec<Compared> = names.into_iter().filter_map(|name| curve(name, old, new)).collect();
    correct(&mut compared);
    Ok(Verdict { compared, notes })
}

fn curve(name: (&str, &str, &str), old: &Results, new: &Results) -> Option<Compared> {
    let of_it = |one: &&Sample| {
        one.series == SUBJECT && (one.paper.as_str(), one.experiment.as_str(), one.quantity.as_str()) == name
    };
    let mut strata = Vec::new();
    let mut better = true;
    for sample in new.samples.iter().filter(of_it) {
        let there = |one: &&Sample| of_it(one) && one.x == sample.x && one.with == sample.with;
        let Some(before) = old.samples.iter().find(there) else { continue };
        better = more_is_better(sample);
        strata.push((beside(before, &old.samples), beside(sample, &new.samples)));
    }
    if strata.is_empty() {
        return None;
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let ratios: Vec<f64> = strata
        .iter()
        .map(|(old, new)| (median(old), median(new)))
        .filter(|(old, _)| *old > 0.0)
        .map(|(old, new)| new / old)
        .collect();
    let count = |which: fn(&(Vec<f64>, Vec<f64>)) -> usize| strata.iter().map(which).sum::<usize>();
    let enough = count(|one| one.0.len()) >= ENOUGH && count(|one| one.1.len()) >= ENOUGH;
    let ratio = if ratios.is_empty() { 1.0 } else { mean(&ratios) };
    let chance = enough.then(|| chance(&strata));
    let change = match (chance.is_some(), (ratio > 1.0) == better) {
        (false, _) => Change::Unknown,
        (true, true) => Change::Faster,
        (true, false) => Change::Slower,
    };
    Some(Compared { what: format!("{}, {}: {}", name.0, name.1, name.2), ratio, chance, change })
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    crate::bench::figures::median(&sorted)
}

/// Holm: the smallest probability times the number of questions, the next times one less, and none below the one before.
/// What is left above the limit, or is small, is no difference.
fn correct(compared: &mut [Compared]) {
    let mut order: Vec<usize> = (0..compared.len()).filter(|at| compared[*at].chance.is_some()).collect();
    let probability = |one: &Compared| one.chance.unwrap_or(1.0);
    order.sort_by(|a, b| probability(&compared[*a]).total_cmp(&probability(&compared[*b])));
    let mut least = 0.0_f64;
    for (rank, at) in order.iter().enumerate() {
        least = (probability(&compared[*at]) * (order.len() - rank) as f64).max(least).min(1.0);
        let one = &mut compared[*at];
        one.chance = Some(least);
        if least > CHANCE || (one.ratio - 1.0).abs() < SMALL {
            one.change = Change::Same;
        }
    }
}

/// The probability that values as different as these, in pairs of old and new ones, come from the same: van Elteren's
/// test, two-sided, with ties.
fn chance(strata: &[(Vec<f64>, Vec<f64>)]) -> f64 {
    let (mut sum, mut variance) = (0.0, 0.0);
    for (old, new) in strata {
        let (m, n) = (old.len() as f64, new.len() as f64);
        let total = m + n;
        if old.is_empty() || new.is_empty() {
            continue;
        }
        let mut all: Vec<(f64, bool)> =
            old.iter().map(|value| (*value, false)).chain(new.iter().map(|value| (*value, true))).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut ranks, mut ties, mut at) = (0.0, 0.0, 0);
        while at < all.len() {
            let equal = all[at..].iter().take_while(|one| one.0 == all[at].0).count();
            // Equal values share the mean of their ranks.
            let rank = at as f64 + (equal as f64 + 1.0) / 2.0;
            ranks += rank * all[at..at + equal].iter().filter(|one| one.1).count() as f64;
            ties += (equal as f64).powi(3) - equal as f64;
            at += equal;
        }
        let weight = 1.0 / (total + 1.0);
        sum += weight * (ranks - n * (total + 1.0) / 2.0);
        let spread = m * n / 12.0 * ((total + 1.0) - ties / (total * (total - 1.0)));
        variance += weight * weight * spread;
    }
    if variance <= 0.0 {
        return 1.0;
    }
    2.0 * above(sum.abs() / variance.sqrt())
}

/// The probability of a normal value above `z` (Abramowitz and Stegun 26.2.17, to 7.5e-8).
fn above(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let terms = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let polynomial = terms.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * polynomial
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::results::tests::{results, sample};

    fn run(subject: &[f64], plain: &[f64]) -> Results {
        let mut run = Results::default();
        for (series, values) in [(PLAIN, plain), (SUBJECT, subject)] {
            for value in values {
                run.add(sample("tcp", series, None, "mbit", "Mbit/s"), *value);
            }
        }
        run
    }

    #[test]
    fn the_machine_falls_out() {
        let old = run(&[90.0, 91.0, 92.0, 90.5, 91.5, 90.2], &[100.0, 101.0, 102.0, 100.5, 101.5, 100.2]);
        // Everything half as fast, and nothing else.
        let half = |values: &[f64]| values.iter().map(|value| value / 2.0).collect::<Vec<_>>();
        let new = run(&half(&old.samples[1].values.rounds), &half(&old.samples[0].values.rounds));
        let verdict = compare(&old, &new).expect("are of one kind");
        assert_eq!((verdict.compared[0].change, verdict.slower()), (Change::Same, false), "{verdict:?}");
        // The subject alone is 10 % slower.
        let less: Vec<f64> = old.samples[1].values.rounds.iter().map(|value| value * 0.9).collect();
        let verdict = compare(&old, &run(&less, &old.samples[0].values.rounds)).expect("are of one kind");
        assert!(verdict.slower() && (verdict.compared[0].ratio - 0.9).abs() < 1e-9, "{verdict:?}");
        assert!(verdict.text().contains("SLOWER"), "{}", verdict.text());
        let verdict = compare(&run(&less, &old.samples[0].values.rounds), &old).expect("are of one kind");
        assert_eq!(verdict.compared[0].change, Change::Faster);
    }

    #[test]
    fn a_longer_round_trip_is_slower_and_few_say_nothing() {
        let mut old = results();
        let mut new = results();
        for (run, factor) in [(&mut old, 1.0), (&mut new, 1.5)] {
            for round in 0..8 {
                let value = 0.06 * factor + f64::from(round) * 1e-4;
                run.add(sample("rtt", SUBJECT, Some(56.0), "ms", "ms"), value);
            }
        }
        let verdict = compare(&old, &new).expect("are of one kind");
        let found = |what: &str| {
            verdict.compared.iter().find(|one| one.what.contains(what)).expect("is there").change
        };
        assert_eq!(found("rtt: ms"), Change::Slower);
        assert_eq!(found("udp-rates"), Change::Same);
        let few = compare(&run(&[1.0], &[1.0]), &run(&[0.5], &[1.0])).expect("are of one kind");
        assert_eq!(few.compared[0].change, Change::Unknown);
    }

    #[test]
    fn an_emulated_machine_is_compared_with_another_only() {
        let real = run(&[1.0], &[1.0]);
        let mut emulated = real.clone();
        emulated.machine.emulated = true;
        emulated.machine.cpu = "QEMU TCG CPU".into();
        let told = compare(&real, &emulated).expect_err("are of two kinds").to_string();
        let expected =
            "the old run is of a real machine (), the new one of an emulated machine (QEMU TCG CPU); ";
        assert!(told.starts_with(expected), "{told}");
        assert!(compare(&emulated, &real).is_err());
        let text = compare(&emulated, &emulated).expect("are of one kind").text();
        assert!(text.contains("NOTE: new: an emulated machine: "), "{text}");
    }

    #[test]
    fn probabilities_are_those_of_the_tables() {
        assert!((above(1.96) - 0.025).abs() < 1e-4, "{}", above(1.96));
        // Complete separation of 5 and 5: W - E = 12.5, variance 22.9.
        let apart = [((1..=5).map(f64::from).collect(), (6..=10).map(f64::from).collect())];
        assert!((chance(&apart) - 0.009).abs() < 1e-3, "{}", chance(&apart));
        let same = [(vec![1.0, 2.0, 3.0], vec![1.0, 2.0, 3.0])];
        assert!((chance(&same) - 1.0).abs() < 1e-6);
    }
}
