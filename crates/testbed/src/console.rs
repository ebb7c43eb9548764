//! Prints the lab's output on the terminal, during its work and at the end.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::expect::{ExpectationOutcome, shown};
use crate::results::{FlowLine, Results};

/// Whether the line of the cursor has a progress bar.
static BAR: AtomicBool = AtomicBool::new(false);

/// Draws a progress bar in the line of the cursor, in place of the previous bar.
pub fn bar(line: &str) {
    let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
    BAR.store(true, Ordering::Relaxed);
}

/// Removes the progress bar from the terminal.
pub fn no_bar() {
    if BAR.swap(false, Ordering::Relaxed) {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

/// Prints the heading of a step.
pub fn heading(text: &str) {
    no_bar();
    println!("{text}");
}

/// Prints a finished step.
pub fn step(text: &str) {
    no_bar();
    println!("  {text}");
}

/// Prints an event of the timetable with its time.
pub fn at(seconds: f64, text: &str) {
    no_bar();
    println!("  {seconds:6.2} s  {text}");
}

/// Returns the verdict in words.
fn verdict(results: &Results) -> String {
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
        None if results.judged() => format!("PASS: {counts}"),
        None if skipped > 0 => format!("NOTHING JUDGED: {skipped} skipped"),
        None => "NOTHING JUDGED: the scenario has no [[expect]]".into(),
    }
}

/// Returns a line of text for each flow.
fn flows(results: &Results) -> Vec<String> {
    let width = |of: fn(&FlowLine) -> &str| results.flows.iter().map(|f| of(f).chars().count()).max();
    let names = width(|f| &f.name).unwrap_or(0);
    let kinds = width(|f| &f.kind).unwrap_or(0);
    let line = |flow: &FlowLine| {
        let figure =
            |(what, value, unit): &(String, Option<f64>, String)| format!("{what} {}", shown(*value, unit));
        let figures: Vec<String> = flow.figures.iter().map(figure).collect();
        format!("{:names$}  {:kinds$}  {}", flow.name, flow.kind, figures.join(", "))
    };
    results.flows.iter().map(line).collect()
}

/// Prints the results at the end of a run.
pub fn summary(results: &Results, out: &Path) {
    let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    println!();
    let w = width(&mut results.headline.iter().map(|h| h.label.chars().count()));
    for h in &results.headline {
        let beside = if h.beside.is_empty() { String::new() } else { format!("   ({})", h.beside) };
        println!("  {:w$}  {}{beside}", h.label, shown(h.value, &h.unit));
    }
    println!();
    let w = width(&mut results.expectations.iter().map(|e| e.what.chars().count()));
    for e in &results.expectations {
        let word = match e.outcome {
            ExpectationOutcome::Pass => "pass",
            ExpectationOutcome::Fail => "FAIL",
            ExpectationOutcome::Skipped => "skip",
        };
        let measured = e.why.clone().unwrap_or_else(|| shown(e.measured, &e.unit));
        println!("  {word}  {:w$}  {measured} (expected {})", e.what, e.expected);
    }
    if !results.judged() {
        for line in flows(results) {
            println!("  {line}");
        }
    }
    for warning in &results.warnings {
        println!("  NOTE: {warning}");
    }
    println!(
        "\n  {}\n  {}\n  {}",
        verdict(results),
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
        assert_eq!(flows(&results), ["rtt  ping  sent 9 packets, lost not measured"]);
        assert_eq!(verdict(&results), "NOTHING JUDGED: the scenario has no [[expect]]");
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
        assert_eq!(verdict(&results), "NOTHING JUDGED: 1 skipped");
        results.expectations.push(judged(ExpectationOutcome::Pass));
        assert_eq!(verdict(&results), "PASS: 1 held, 0 failed, 1 skipped");
        results.no_verdict = Some("late".into());
        assert_eq!(verdict(&results), "NO VERDICT: late; 1 held, 0 failed, 1 skipped");
    }
}
