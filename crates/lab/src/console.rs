//! What the lab says on the terminal while it works and at the end.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::expect::{Outcome, shown};
use crate::results::Results;

/// Whether a bar stands where the next line is to be.
static BAR: AtomicBool = AtomicBool::new(false);

/// Draws a bar in the line of the cursor, in the place of the last one.
pub fn bar(line: &str) {
    let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
    BAR.store(true, Ordering::Relaxed);
}

/// Takes the bar away, if there is one.
pub fn no_bar() {
    if BAR.swap(false, Ordering::Relaxed) {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

/// What is begun.
pub fn heading(text: &str) {
    no_bar();
    println!("{text}");
}

/// A step that was taken.
pub fn step(text: &str) {
    no_bar();
    println!("  {text}");
}

/// Something that happens in the timetable.
pub fn at(seconds: f64, text: &str) {
    no_bar();
    println!("  {seconds:6.2} s  {text}");
}

/// The final table.
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
            Outcome::Pass => "pass",
            Outcome::Fail => "FAIL",
            Outcome::Skipped => "skip",
        };
        let measured = e.why.clone().unwrap_or_else(|| shown(e.measured, &e.unit));
        println!("  {word}  {:w$}  {measured} (expected {})", e.what, e.expected);
    }
    let count = |o: Outcome| results.expectations.iter().filter(|e| e.outcome == o).count();
    println!(
        "\n  {}: {} held, {} failed, {} skipped\n  {}\n  {}",
        if results.passed { "PASS" } else { "FAIL" },
        count(Outcome::Pass),
        count(Outcome::Fail),
        count(Outcome::Skipped),
        out.join("report.html").display(),
        out.join("results.json").display()
    );
}
