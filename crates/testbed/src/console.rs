//! Prints the lab's output on the terminal, during its work and at the end.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::expect::{ExpectationOutcome, format_value};
use crate::results::{FlowLine, Results};

/// Whether the terminal shows a progress bar in the cursor's line.
static BAR_IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// Draws a progress bar in the line of the cursor, in place of the previous bar.
pub fn draw_progress_bar(line: &str) {
    let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
    BAR_IS_SHOWN.store(true, Ordering::Relaxed);
}

/// Removes the progress bar from the terminal.
pub fn remove_progress_bar() {
    if BAR_IS_SHOWN.swap(false, Ordering::Relaxed) {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

/// Prints the heading of a step.
pub fn print_heading(text: &str) {
    remove_progress_bar();
    println!("{text}");
}

/// Prints a finished step.
pub fn print_step(text: &str) {
    remove_progress_bar();
    println!("  {text}");
}

/// Prints an event of the timetable with its time.
pub fn print_at_time(seconds: f64, text: &str) {
    remove_progress_bar();
    println!("  {seconds:6.2} s  {text}");
}

/// Returns the verdict on the run in words.
fn verdict_text(results: &Results) -> String {
    let count = |o: ExpectationOutcome| results.expectations.iter().filter(|e| e.outcome == o).count();
    let (held, failed, skipped) = (
        count(ExpectationOutcome::Pass),
        count(ExpectationOutcome::Fail),
        count(ExpectationOutcome::Skipped),
    );
    let counts = format!("{held} held, {failed} failed, {skipped} skipped");
    match &results.no_verdict {
        Some(why) => format!("NO VERDICT: {why}; {counts}"),
        None if !results.passed => format!("FAIL: {counts}"),
        None if results.has_verdict() => format!("PASS: {counts}"),
        None if skipped > 0 => format!("NOTHING JUDGED: {skipped} skipped"),
        None => "NOTHING JUDGED: the scenario has no [[expect]]".into(),
    }
}

/// Returns a line of text for each flow.
fn flow_lines(results: &Results) -> Vec<String> {
    let width = |of: fn(&FlowLine) -> &str| results.flows.iter().map(|f| of(f).chars().count()).max();
    let names = width(|f| &f.name).unwrap_or(0);
    let kinds = width(|f| &f.kind).unwrap_or(0);
    let line = |flow: &FlowLine| {
        let figure = |(what, value, unit): &(String, Option<f64>, String)| {
            format!("{what} {}", format_value(*value, unit))
        };
        let figures: Vec<String> = flow.figures.iter().map(figure).collect();
        format!("{:names$}  {:kinds$}  {}", flow.name, flow.kind, figures.join(", "))
    };
    results.flows.iter().map(line).collect()
}

/// Prints the results at the end of a run.
pub fn print_summary(results: &Results, out: &Path) {
    let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    println!();
    let w = width(&mut results.headline.iter().map(|h| h.label.chars().count()));
    for h in &results.headline {
        let beside = if h.beside.is_empty() { String::new() } else { format!("   ({})", h.beside) };
        println!("  {:w$}  {}{beside}", h.label, format_value(h.value, &h.unit));
    }
    println!();
    let w = width(&mut results.expectations.iter().map(|e| e.what.chars().count()));
    for e in &results.expectations {
        let word = match e.outcome {
            ExpectationOutcome::Pass => "pass",
            ExpectationOutcome::Fail => "FAIL",
            ExpectationOutcome::Skipped => "skip",
        };
        let measured = e.why.clone().unwrap_or_else(|| format_value(e.measured, &e.unit));
        println!("  {word}  {:w$}  {measured} (expected {})", e.what, e.expected);
    }
    if !results.has_verdict() {
        for line in flow_lines(results) {
            println!("  {line}");
        }
    }
    for warning in &results.warnings {
        println!("  NOTE: {warning}");
    }
    println!(
        "\n  {}\n  {}\n  {}",
        verdict_text(results),
        out.join("report.html").display(),
        out.join("results.json").display()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expect::JudgedExpectation;

    #[test]
    fn run_without_expectations_shows_its_flows_and_no_pass() {
        let figures =
            vec![("sent".into(), Some(9.0), "packets".into()), ("lost".into(), None, "packets".into())];
        let flow = FlowLine { name: "rtt".into(), kind: "ping".into(), figures };
        let mut results = Results { flows: vec![flow], passed: true, ..Results::default() };
        assert_eq!(flow_lines(&results), ["rtt  ping  sent 9 packets, lost not measured"]);
        assert_eq!(verdict_text(&results), "NOTHING JUDGED: the scenario has no [[expect]]");
        let judged = |outcome| JudgedExpectation {
            what: String::new(),
            section: String::new(),
            metric: String::new(),
            expected: String::new(),
            measured: None,
            unit: String::new(),
            outcome,
            why: None,
        };
        results.expectations = vec![judged(ExpectationOutcome::Skipped)];
        assert_eq!(verdict_text(&results), "NOTHING JUDGED: 1 skipped");
        results.expectations.push(judged(ExpectationOutcome::Pass));
        assert_eq!(verdict_text(&results), "PASS: 1 held, 0 failed, 1 skipped");
        results.no_verdict = Some("late".into());
        assert_eq!(verdict_text(&results), "NO VERDICT: late; 1 held, 0 failed, 1 skipped");
    }
}
