//! Shows the progress of an evaluation: by a bar on a terminal, otherwise by a line for each experiment.

use std::io::IsTerminal;

use carnet_testbed::clock::{SECOND, monotonic_now};
use carnet_testbed::console;

/// Width of the bar in cells.
const BAR_WIDTH: usize = 24;

/// Progress of the run, measured in expected seconds of the experiments.
#[derive(Debug)]
pub struct EvaluationProgress {
    expected_seconds: f64,
    done_seconds: f64,
    started_at: u64,
    last_drawn_at: u64,
    draws_bar: bool,
    label: String,
}

impl EvaluationProgress {
    /// Creates the progress of a run that is expected to take `total` seconds.
    pub fn new(total: f64) -> EvaluationProgress {
        let bar = std::io::stderr().is_terminal();
        EvaluationProgress {
            expected_seconds: total,
            done_seconds: 0.0,
            started_at: monotonic_now(),
            last_drawn_at: 0,
            draws_bar: bar,
            label: String::new(),
        }
    }

    /// Shows the label of the experiment that begins.
    pub fn set_label(&mut self, label: &str) {
        self.label = label.into();
        if self.draws_bar {
            self.draw_if_due();
        } else {
            console::print_step(&format!("{:3.0} %  {label}", self.percent()));
        }
    }

    /// Adds `seconds` of finished work.
    pub fn add_finished_work(&mut self, seconds: f64) {
        self.done_seconds += seconds;
        if self.draws_bar && monotonic_now() - self.last_drawn_at > SECOND / 10 {
            self.draw_if_due();
        }
    }

    /// Ends the progress and removes the bar.
    pub fn remove_bar(&self) {
        console::remove_progress_bar();
    }

    fn percent(&self) -> f64 {
        (100.0 * self.done_seconds / self.expected_seconds.max(1e-9)).min(100.0)
    }

    fn draw_if_due(&mut self) {
        self.last_drawn_at = monotonic_now();
        let line = progress_line(
            self.percent(),
            (self.last_drawn_at - self.started_at) as f64 / 1e9,
            self.expected_seconds,
            &self.label,
        );
        console::draw_progress_bar(&line);
    }
}

/// Formats the bar, the percentage, the remaining time, and the label of the experiment.
fn progress_line(percent: f64, elapsed: f64, total: f64, label: &str) -> String {
    let full = ((percent / 100.0) * BAR_WIDTH as f64) as usize;
    // The more progress the run has made, the more the measured speed counts, compared with the expected
    // speed.
    let expected = total * (1.0 - percent / 100.0);
    let by_now = if percent > 5.0 { elapsed * (100.0 - percent) / percent } else { expected };
    let left = by_now.round() as u64;
    let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR_WIDTH - full));
    format!("  [{bar}] {percent:3.0} %, {}:{:02} left  {label}", left / 60, left % 60)
}

#[cfg(test)]
mod tests {
    use super::progress_line;

    #[test]
    fn progress_bar_estimates_remaining_time() {
        assert_eq!(progress_line(0.0, 0.0, 90.0, "x"), format!("  [{}]   0 %, 1:30 left  x", ".".repeat(24)));
        assert_eq!(
            progress_line(50.0, 30.0, 90.0, "x"),
            format!("  [{}{}]  50 %, 0:30 left  x", "#".repeat(12), ".".repeat(12))
        );
    }
}
