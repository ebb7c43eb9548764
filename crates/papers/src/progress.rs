//! Shows the progress of an evaluation: by a bar on a terminal, otherwise by a line for each experiment.

use std::io::IsTerminal;

use carnet_testbed::clock::{SECOND, monotonic};
use carnet_testbed::console;

/// Width of the bar in cells.
const CELLS: usize = 24;

/// Progress of the run, measured in expected seconds of the experiments.
#[derive(Debug)]
pub struct Progress {
    total: f64,
    done: f64,
    begin: u64,
    drawn: u64,
    bar: bool,
    label: String,
}

impl Progress {
    /// Creates a progress of `total` expected seconds.
    pub fn new(total: f64) -> Progress {
        let bar = std::io::stderr().is_terminal();
        Progress { total, done: 0.0, begin: monotonic(), drawn: 0, bar, label: String::new() }
    }

    /// Shows the label of the experiment that begins.
    pub fn at(&mut self, label: &str) {
        self.label = label.into();
        if self.bar {
            self.draw();
        } else {
            console::step(&format!("{:3.0} %  {label}", self.percent()));
        }
    }

    /// Adds `seconds` of finished work.
    pub fn advance(&mut self, seconds: f64) {
        self.done += seconds;
        if self.bar && monotonic() - self.drawn > SECOND / 10 {
            self.draw();
        }
    }

    /// Ends the progress and removes the bar.
    pub fn end(&self) {
        console::no_bar();
    }

    fn percent(&self) -> f64 {
        (100.0 * self.done / self.total.max(1e-9)).min(100.0)
    }

    fn draw(&mut self) {
        self.drawn = monotonic();
        let line = line(self.percent(), (self.drawn - self.begin) as f64 / 1e9, self.total, &self.label);
        console::bar(&line);
    }
}

/// Formats the bar, the percentage, the remaining time, and the label of the experiment.
fn line(percent: f64, elapsed: f64, total: f64, label: &str) -> String {
    let full = ((percent / 100.0) * CELLS as f64) as usize;
    // The more progress the run has made, the more the measured speed counts, compared with the expected
    // speed.
    let expected = total * (1.0 - percent / 100.0);
    let by_now = if percent > 5.0 { elapsed * (100.0 - percent) / percent } else { expected };
    let left = by_now.round() as u64;
    let bar = format!("{}{}", "#".repeat(full), ".".repeat(CELLS - full));
    format!("  [{bar}] {percent:3.0} %, {}:{:02} left  {label}", left / 60, left % 60)
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn progress_bar_estimates_remaining_time() {
        assert_eq!(line(0.0, 0.0, 90.0, "x"), format!("  [{}]   0 %, 1:30 left  x", ".".repeat(24)));
        assert_eq!(
            line(50.0, 30.0, 90.0, "x"),
            format!("  [{}{}]  50 %, 0:30 left  x", "#".repeat(12), ".".repeat(12))
        );
    }
}
