//! Prints the tables of docs/evaluation.md and of the terminal, with a row for every figure, table and number
//! of the papers.

use std::fmt::Write;

use anyhow::{Context, ensure};

use super::figure_numbers::format_spread;
use super::paper::{self, BetterDirection, Figure, Paper};
use super::results::Results;
use super::test_networks::{PLAIN_SERIES, SUBJECT_SERIES};
use carnet_bench::figures::Series;
use carnet_testbed::expect::{format_number, format_value};

/// Lines that mark begin and end of the tables in the page.
const TABLES_BEGIN_MARKER: &str = "<!-- tables of carnet-lab eval -->";
const TABLES_END_MARKER: &str = "<!-- end -->";

/// A number in a paper, and the same number as measured by this run.
#[derive(Debug, Clone, PartialEq)]
pub struct PaperNumber {
    /// Measured quantity of the number.
    pub what: String,
    /// The paper's number with its unit.
    pub paper: String,
    /// Number that this run measured, with its unit.
    pub measured: String,
    /// Range of the measured number in brackets, if repetitions gave different results.
    pub spread: String,
    /// Our number divided by the paper's, if the ratio is meaningful.
    pub ratio_to_paper: Option<f64>,
    /// Place of the number in the paper.
    pub place_in_paper: String,
    /// Reason why this run has no number.
    pub reason_not_measured: Option<String>,
    /// Whether higher or lower is better.
    pub better: BetterDirection,
}

impl PaperNumber {
    /// Returns the number that this run measured, with its range.
    fn measured_with_spread(&self) -> String {
        join_value_and_spread(&self.measured, &self.spread)
    }

    /// Returns the style in which the page shows the ratio.
    pub fn ratio_css_class(&self) -> &'static str {
        match (self.better, self.ratio_to_paper) {
            (BetterDirection::Higher, Some(ratio)) if ratio >= 1.0 => "pass",
            (BetterDirection::Lower, Some(ratio)) if ratio <= 1.0 => "pass",
            _ => "",
        }
    }
}

fn join_value_and_spread(value: &str, spread: &str) -> String {
    if spread.is_empty() { value.into() } else { format!("{value} {spread}") }
}

/// Formats a ratio for the tables.
pub fn format_ratio(value: Option<f64>) -> String {
    match value {
        None => "\u{2013}".into(),
        Some(value) if value < 0.01 => format_number(value),
        Some(value) => format!("{value:.3}"),
    }
}

/// Returns the rows of a figure: one for each number that the paper gives.
pub fn paper_numbers(paper: &Paper, figure: &Figure, results: &Results) -> Vec<PaperNumber> {
    let row = |value: &paper::Value| {
        let ours = value.ours.as_ref().and_then(|ours| results.number_of_figure(paper, figure, ours));
        let left = figure.experiment.as_ref().and_then(|id| results.reason_for_omission(&paper.name, id));
        let number = ours.map(|ours| ours.value);
        let why = match (&value.incomparable, number) {
            (Some(why), _) => Some(why.clone()),
            (None, None) => Some(left.map_or("not part of this run".into(), |why| first_line(why).into())),
            _ => None,
        };
        PaperNumber {
            what: value.what.clone(),
            paper: format_value(Some(value.paper), &value.unit),
            measured: format_value(number, &value.unit),
            spread: format_spread(ours.and_then(|ours| ours.repetition_range)),
            ratio_to_paper: number
                .filter(|ours| value.paper != 0.0 && *ours >= 0.0)
                .map(|ours| ours / value.paper),
            place_in_paper: value.place.clone(),
            reason_not_measured: why,
            better: value.better,
        }
    };
    figure.values.iter().map(row).collect()
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("")
}

/// Describes the measured curves of a figure for which the paper gives no numbers. The text has both series
/// with their ratio, or the range of the ratios of their points. Returns `None` if a series was not measured.
fn measured_summary(paper: &Paper, figure: &Figure, results: &Results) -> Option<String> {
    let experiment = figure.experiment.as_deref()?;
    let curves = results.curves(&paper.name, experiment, figure.quantity.as_deref());
    let of = |name: &str| {
        let mut all = curves.iter().filter(|((series, _), _)| *series == name);
        let points: Vec<_> = all.by_ref().flat_map(|(_, points)| points).copied().collect();
        (!points.is_empty()).then_some(points)
    };
    let (plain, own) = (of(PLAIN_SERIES)?, of(SUBJECT_SERIES)?);
    if let ([plain], [own]) = (&plain[..], &own[..]) {
        let both = [own, plain].map(|one| {
            let range = Some((one.values.lowest, one.values.highest));
            join_value_and_spread(&format_value(Some(one.values.median), &one.unit), &format_spread(range))
        });
        let (text, base) = (both.join(" beside "), plain.values.median);
        return Some(if base > 0.0 {
            format!("{:.3} of plain: {text}", own.values.median / base)
        } else {
            text
        });
    }
    let ratios: Vec<f64> = own
        .iter()
        .filter_map(|own| {
            let plain = plain
                .iter()
                .find(|plain| plain.x == own.x && plain.second_variable == own.second_variable)?;
            (plain.values.median > 0.0).then(|| own.values.median / plain.values.median)
        })
        .collect();
    let of_points = Series::of_rounds(ratios);
    let count = of_points.rounds.len();
    let range = format_spread(Some((of_points.lowest, of_points.highest)));
    let text = join_value_and_spread(&format!("{:.3} of plain", of_points.median), &range);
    let lost = match plain.len().saturating_sub(count) {
        0 => String::new(),
        lost => format!("; no value at {lost} more"),
    };
    (count > 0).then(|| format!("{text}, the median of {count} points{lost}"))
}

/// Returns all rows of a paper as cells: figure, quantity, paper, here, ratio.
fn table_cells(paper: &Paper, results: &Results) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for figure in &paper.figures {
        for row in paper_numbers(paper, figure, results) {
            // If an experiment was interrupted, the row shows its values and says so.
            let broken =
                figure.experiment.as_ref().and_then(|id| results.reason_for_omission(&paper.name, id));
            let (here, ratio) = match (&row.reason_not_measured, broken) {
                (Some(why), _) => (why.clone(), format_ratio(None)),
                (None, Some(why)) => (
                    format!("{} (broken off: {})", row.measured_with_spread(), first_line(why)),
                    format_ratio(row.ratio_to_paper),
                ),
                (None, None) => (row.measured_with_spread(), format_ratio(row.ratio_to_paper)),
            };
            all.push(vec![figure.title.clone(), row.what, row.paper, here, ratio]);
        }
        let none = "\u{2013}".to_owned();
        if let Some(why) = figure.not_measured.as_ref().filter(|_| figure.values.is_empty()) {
            all.push(vec![figure.title.clone(), String::new(), none.clone(), why.clone(), none]);
        } else if figure.values.iter().all(|value| value.ours.is_none()) && figure.experiment.is_some() {
            let left = figure.experiment.as_ref().and_then(|id| results.reason_for_omission(&paper.name, id));
            let broken = left.map_or(String::new(), |why| format!(" (broken off: {})", first_line(why)));
            let here = measured_summary(paper, figure, results)
                .map(|here| format!("{here}{broken}"))
                .or_else(|| left.map(|why| first_line(why).to_owned()))
                .unwrap_or_else(|| "not part of this run".into());
            all.push(vec![
                figure.title.clone(),
                "beside plain routing".into(),
                "no number".into(),
                here,
                none,
            ]);
        }
    }
    all
}

/// Maximum number of characters of a quantity, and of our number, in one line on a terminal.
const DESCRIPTION_WIDTH: usize = 32;
const MEASURED_WIDTH: usize = 60;
/// Maximum number of characters of a text in a separate line.
const LINE_WIDTH: usize = 76;

/// Returns the heading of the column with our numbers.
pub fn own_numbers_heading(results: &Results) -> &'static str {
    if results.machine.emulated { "here, emulated" } else { "here" }
}

fn table_heading(results: &Results) -> [&'static str; 5] {
    ["figure", "", "paper", own_numbers_heading(results), "here / paper"]
}

/// Returns the figures for the terminal, one below the other, each with its numbers.
pub fn results_summary(results: &Results) -> anyhow::Result<String> {
    let mut text = String::new();
    for paper in paper::papers_named(&results.papers, results.effort)? {
        let _ = writeln!(text, "{} ({})\n", paper.title, paper.year);
        let [_, what, theirs, ours, _] = table_heading(results);
        let _ = writeln!(text, "  {what:DESCRIPTION_WIDTH$}  {theirs:>11}  {:>7}  {ours}", "ratio");
        let mut last = String::new();
        for row in table_cells(&paper, results) {
            let [figure, what, theirs, ours, ratio] = &row[..] else { continue };
            if *figure != last {
                let _ = writeln!(text, "{figure}");
                last.clone_from(figure);
            }
            if what.is_empty() {
                let _ = writeln!(text, "  {}", shorten_text(ours, LINE_WIDTH));
                continue;
            }
            let (what, ours) = (shorten_text(what, DESCRIPTION_WIDTH), shorten_text(ours, MEASURED_WIDTH));
            let _ = writeln!(text, "  {what:DESCRIPTION_WIDTH$}  {theirs:>11}  {ratio:>7}  {ours}");
        }
        text.push('\n');
    }
    Ok(text)
}

fn shorten_text(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 3).chain("...".chars()).collect(),
        false => text.into(),
    }
}

/// Returns the tables as Markdown.
fn result_tables(results: &Results) -> anyhow::Result<String> {
    let m = &results.machine;
    let mut text = format!(
        "{}, {} MiB; Linux {}, {}; {}{}; {}; load before {:.2}; measured beside plain routing: {}.\n",
        m.processor_text(),
        m.memory_mib,
        m.kernel,
        m.system,
        m.carnet,
        m.commit.as_ref().map_or(String::new(), |commit| format!(" ({commit})")),
        results.time,
        results.load_before[0],
        results.subject.name
    );
    if !m.mitigations.is_empty() {
        let _ = write!(text, "\nFaults of the processor: {}.\n", m.mitigations_text());
    }
    for warning in results.warnings_about_machine() {
        let _ = write!(text, "\n**These numbers are not reliable: {warning}.**\n");
    }
    for paper in paper::papers_named(&results.papers, results.effort)? {
        let _ = write!(text, "\n### {} ({})\n\n", paper.title, paper.year);
        let _ = writeln!(text, "| {} |\n|---|---|---:|---:|---:|", table_heading(results).join(" | "));
        for row in table_cells(&paper, results) {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        let _ = write!(text, "\nNot comparable:\n\n");
        for figure in paper.figures.iter().filter(|figure| !figure.differs.is_empty()) {
            let _ = writeln!(text, "* **{}.** {}", figure.title, figure.differs.join(" "));
        }
    }
    Ok(text)
}

/// Returns a page with its tables replaced.
pub fn fill_tables(page: &str, results: &Results) -> anyhow::Result<String> {
    let (before, rest) = page
        .split_once(TABLES_BEGIN_MARKER)
        .with_context(|| format!("cannot insert the tables: the page has no line {TABLES_BEGIN_MARKER}"))?;
    let (_, after) = rest.split_once(TABLES_END_MARKER).with_context(|| {
        format!(
            "cannot insert the tables: the page has no line {TABLES_END_MARKER} after {TABLES_BEGIN_MARKER}"
        )
    })?;
    ensure!(
        !after.contains(TABLES_BEGIN_MARKER),
        "cannot insert the tables: expected one line {TABLES_BEGIN_MARKER} in the page, found two"
    );
    Ok(format!("{before}{TABLES_BEGIN_MARKER}\n{}{TABLES_END_MARKER}{after}", result_tables(results)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::test_results;

    #[test]
    fn every_figure_has_a_row() {
        let results = test_results();
        let page = format!("# Head\n\n{TABLES_BEGIN_MARKER}\nformer\n{TABLES_END_MARKER}\n\nTail\n");
        let made = fill_tables(&page, &results).expect("is good");
        assert!(
            made.starts_with("# Head\n") && made.ends_with("Tail\n") && !made.contains("former"),
            "{made}"
        );
        assert!(made.contains(
            "| Figure 2: UDP throughput with and without NEMO | highest, router | 92.8 Mbit/s | 92.1 Mbit/s \
             (92 to 92.2) | 0.992 |"
        ));
        let paper = &paper::papers_named(&results.papers, results.effort).expect("is good")[0];
        for figure in &paper.figures {
            assert!(made.contains(&format!("| {} |", figure.title)), "{}", figure.title);
        }
        assert_eq!(fill_tables(&made, &results).expect("is good"), made);
        assert!(fill_tables("# Head\n", &results).is_err());
        // If plain routing has a value and the subject lacks it, the row says so.
        let mut holes = results.clone();
        holes.curve_points.retain(|one| one.series == "plain" || one.x != Some(95.0));
        let figure = paper.figures.iter().find(|one| one.id == "fig2").expect("is there");
        let told = |results: &Results| measured_summary(paper, figure, results).expect("is there");
        assert_eq!(told(&results), "0.978 of plain (0.978 to 1), the median of 3 points");
        assert_eq!(told(&holes), "0.989 of plain (0.978 to 1), the median of 2 points; no value at 1 more");
        // The table marks an interrupted experiment beside its numbers.
        let mut broken = results.clone();
        broken.omitted_experiments.push(crate::results::OmittedExperiment {
            paper: "nemo-basic-support".into(),
            experiment: "udp-rates".into(),
            reason: "the disk is full\nand more".into(),
        });
        let made = fill_tables(&page, &broken).expect("is good");
        let row = "| highest, router | 92.8 Mbit/s | 92.1 Mbit/s (92 to 92.2) (broken off: the disk is full) \
                   | 0.992 |";
        assert!(made.contains(row), "{made}");
        let mut emulated = results;
        emulated.machine.emulated = true;
        let made = fill_tables(&page, &emulated).expect("is good");
        assert!(made.contains("**These numbers are not reliable: an emulated machine: "), "{made}");
        assert!(made.contains("| figure |  | paper | here, emulated | here / paper |"), "{made}");
        let text = results_summary(&emulated).expect("is good");
        assert!(text.contains("here, emulated"), "{text}");
        let row = "\n  highest, router                   92.8 Mbit/s    0.992  92.1 Mbit/s (92 to 92.2)\n";
        assert!(text.contains(row), "{text}");
        assert!(
            text.contains("Figure 1: the test network\n  The figure is a drawing without measurements. "),
            "{text}"
        );
    }
}
