//! Reads the changes of a link over time (trace) from a file.
//!
//! The first line names the columns: `time`, then any of `delay`, `jitter`, `rate`, `loss` and `signal`. Each
//! other line has a time in seconds, not earlier than the previous line, and a value or `-` (unchanged) for
//! each column. Values hold until the next line. Times and rates are written as in a scenario (`47ms`,
//! `20mbit`), loss is a probability, signal is in dBm. A last line `TIME repeat` starts the trace again. Text
//! after `#` is a comment.

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;

use super::way::DirectionProperties;
use crate::clock::SECOND;
use crate::scenario_values::{Duration, LinkRate};

/// New values of a link; `None` leaves a value unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LinkChange {
    /// Delay, nanoseconds.
    pub delay: Option<u64>,
    /// Jitter, nanoseconds.
    pub jitter: Option<u64>,
    /// Rate, bit/s.
    pub rate: Option<u64>,
    /// Probability of loss.
    pub loss: Option<f64>,
    /// Signal, dBm.
    pub signal: Option<f64>,
}

impl LinkChange {
    /// Writes all new values into the properties of a direction, except the signal strength, which belongs to
    /// the link.
    pub fn apply_to(&self, properties: &mut DirectionProperties) {
        properties.delay = self.delay.unwrap_or(properties.delay);
        properties.jitter = self.jitter.unwrap_or(properties.jitter);
        properties.rate = self.rate.or(properties.rate);
        properties.loss.random_loss = self.loss.unwrap_or(properties.loss.random_loss);
    }
}

/// A trace of a link.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trace {
    /// Steps: nanoseconds from the begin of the trace, and the new values.
    timed_changes: Vec<(u64, LinkChange)>,
    /// Length of the trace in nanoseconds, after which it begins again; `None` if it does not repeat.
    repeat_period: Option<u64>,
}

/// A mistake in a trace file, with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceError {
    /// Line number, from 1.
    pub line: usize,
    /// Description of the mistake.
    pub message: String,
}

impl Trace {
    /// Parses the text of a trace file.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut columns: Option<Vec<&str>> = None;
        let mut trace = Self::default();
        for (n, line) in text.lines().enumerate() {
            let wrong = |message: String| TraceError { line: n + 1, message };
            let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
            let Some(first) = words.first() else { continue };
            let Some(columns) = &columns else {
                columns = Some(parse_header(&words).map_err(wrong)?);
                continue;
            };
            if trace.repeat_period.is_some() {
                return Err(wrong("nothing comes after the line with repeat".into()));
            }
            let at = first.parse().ok().filter(|s: &f64| (0.0..1e6).contains(s));
            let at = at.map(|s| (s * SECOND as f64).round() as u64);
            let at = at.ok_or_else(|| wrong(format!("{first:?} is not a time in seconds")))?;
            if trace.timed_changes.last().is_some_and(|(last, _)| at < *last) {
                return Err(wrong(format!("the time {first} s is earlier than in the line before")));
            }
            if words[1..] == ["repeat"] {
                if at == 0 {
                    return Err(wrong("a trace of no length cannot repeat".into()));
                }
                trace.repeat_period = Some(at);
                continue;
            }
            if words.len() != columns.len() {
                let (expected, found) = (columns.len(), words.len());
                return Err(wrong(format!(
                    "expected {expected} columns as in the first line, found {found}"
                )));
            }
            let mut change = LinkChange::default();
            for (column, word) in columns.iter().zip(&words).skip(1).filter(|(_, word)| **word != "-") {
                parse_value(&mut change, column, word).map_err(wrong)?;
            }
            trace.timed_changes.push((at, change));
        }
        if trace.timed_changes.is_empty() {
            return Err(TraceError {
                line: 1,
                message: "expected a line with column names and lines with values, found no line with values"
                    .into(),
            });
        }
        Ok(trace)
    }

    /// Returns step number `n` of the trace, counted over all repetitions: the time from the begin, and the
    /// new values. `None` if the trace has ended.
    pub fn nth_change(&self, n: usize) -> Option<(u64, &LinkChange)> {
        let count = self.timed_changes.len();
        let (at, change) = self.timed_changes.get(n.checked_rem(count)?)?;
        match (n / count, self.repeat_period) {
            (0, _) => Some((*at, change)),
            (round, Some(repeat)) => Some((round as u64 * repeat + at, change)),
            (_, None) => None,
        }
    }
}

fn parse_header<'a>(words: &[&'a str]) -> Result<Vec<&'a str>, String> {
    const KNOWN_COLUMNS: [&str; 5] = ["delay", "jitter", "rate", "loss", "signal"];
    if words[0] != "time" {
        return Err(format!("expected the names of the columns, time first, found {:?}", words[0]));
    }
    match words[1..].iter().find(|w| !KNOWN_COLUMNS.contains(w)) {
        Some(unknown) => {
            Err(format!("unknown column {unknown:?}; the columns are time, {}", KNOWN_COLUMNS.join(", ")))
        }
        None => Ok(words.to_vec()),
    }
}

fn parse_value(change: &mut LinkChange, column: &str, word: &str) -> Result<(), String> {
    fn parse_as<'de, T: Deserialize<'de>>(word: &'de str) -> Result<T, String> {
        T::deserialize(word.into_deserializer()).map_err(|e: ValueError| e.to_string())
    }
    let number = |low: f64, high: f64| {
        let number = word.parse().ok().filter(|n| (low..=high).contains(n));
        number.ok_or_else(|| format!("{column} is {word}, expected {low} to {high}"))
    };
    match column {
        "delay" => change.delay = Some(parse_as::<Duration>(word)?.0),
        "jitter" => change.jitter = Some(parse_as::<Duration>(word)?.0),
        "rate" => change.rate = Some(parse_as::<LinkRate>(word)?.0),
        "loss" => change.loss = Some(number(0.0, 1.0)?),
        _ => change.signal = Some(number(-200.0, 100.0)?),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MILLISECOND;

    const VALID_TRACE: &str =
        "# a loop\ntime delay rate signal\n0 1.5ms 20mbit -40\n0.5 - 5mbit -60.5 # far\n2 repeat\n";

    #[test]
    fn link_trace_repeats() {
        let trace = Trace::parse(VALID_TRACE).expect("is good");
        let first = LinkChange {
            delay: Some(1_500_000),
            rate: Some(20_000_000),
            signal: Some(-40.0),
            ..LinkChange::default()
        };
        assert_eq!(trace.nth_change(0), Some((0, &first)));
        let (at, far) = trace.nth_change(1).expect("is there");
        assert_eq!(
            (at, far.delay, far.rate, far.signal),
            (500 * MILLISECOND, None, Some(5_000_000), Some(-60.5))
        );
        assert_eq!(trace.nth_change(4).map(|s| s.0), Some(4 * SECOND));
        assert_eq!(trace.nth_change(5).map(|s| s.0), Some(4 * SECOND + 500 * MILLISECOND));
    }

    #[test]
    fn link_trace_without_repeat_ends() {
        let trace = Trace::parse("time loss\n1 0.5\n").expect("is good");
        assert_eq!(trace.nth_change(0).map(|s| (s.0, s.1.loss)), Some((SECOND, Some(0.5))));
        assert_eq!(trace.nth_change(1), None);
    }

    #[test]
    fn link_trace_errors_name_the_line() {
        let told = |from: &str, to: &str| {
            assert!(VALID_TRACE.contains(from));
            let mistake = Trace::parse(&VALID_TRACE.replacen(from, to, 1)).expect_err("is refused");
            format!("{}: {}", mistake.line, mistake.message)
        };
        assert_eq!(told("time", "t"), "2: expected the names of the columns, time first, found \"t\"");
        assert!(told("signal", "noise").starts_with("2: unknown column \"noise\""));
        assert_eq!(told("0.5 -", "0.5"), "4: expected 4 columns as in the first line, found 3");
        assert_eq!(told("-60.5", "-600"), "4: signal is -600, expected -200 to 100");
        assert!(told("1.5ms", "1.5").starts_with("3: \"1.5\" is"));
        assert!(told("2 repeat", "0.1 repeat").starts_with("5: the time 0.1 s is earlier"));
        assert!(Trace::parse("time rate\n").is_err());
        assert!(Trace::parse("").is_err());
    }
}
