//! What the lab says on the terminal while it works and at the end.

use std::path::Path;

use crate::expect::{Outcome, number};
use crate::results::Results;

/// A step that was taken.
pub fn step(text: &str) {
    println!("  {text}");
}

/// Something that happens in the timetable.
pub fn at(seconds: f64, text: &str) {
    println!("  {seconds:6.2} s  {text}");
}

/// A value with its unit, for people.
pub fn value(value: Option<f64>, unit: &str) -> String {
    match (value, unit) {
        (None, _) => "not measured".into(),
        (Some(v), "bytes") if v >= 1e6 => format!("{} MB", number((v / 1e4).round() / 100.0)),
        (Some(v), "") => number(v),
        (Some(v), unit) => format!("{} {unit}", number(v)),
    }
}

/// The final table.
pub fn summary(results: &Results, out: &Path) {
    let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    println!();
    let w = width(&mut results.headline.iter().map(|h| h.label.chars().count()));
    for h in &results.headline {
        println!("  {:w$}  {}", h.label, value(h.value, &h.unit));
    }
    println!();
    let w = width(&mut results.expectations.iter().map(|e| e.what.chars().count()));
    for e in &results.expectations {
        let word = match e.outcome {
            Outcome::Pass => "pass",
            Outcome::Fail => "FAIL",
            Outcome::Skipped => "skip",
        };
        let measured = match (&e.why, e.measured) {
            (Some(why), _) => why.clone(),
            (None, Some(v)) => number(v),
            (None, None) => "not measured".into(),
        };
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

#[cfg(test)]
mod tests {
    #[test]
    fn values_with_units() {
        assert_eq!(super::value(Some(0.0), "packets"), "0 packets");
        assert_eq!(super::value(Some(123_456_789.0), "bytes"), "123.5 MB");
        assert_eq!(super::value(Some(1.25), ""), "1.25");
        assert_eq!(super::value(None, "ms"), "not measured");
    }
}
