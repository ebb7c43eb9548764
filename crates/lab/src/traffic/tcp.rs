//! What `iperf3 --json` tells about a transfer.

use std::ops::Range;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::clock::SECOND;
use crate::scenario::Direction;

/// A TCP transfer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transfer {
    /// Bytes that the server received.
    pub up: u64,
    /// Bytes that the client received.
    pub down: u64,
    /// Segments sent again, both directions.
    pub retransmits: u64,
    /// Per interval: begin and end in seconds from the start of the transfer, bits a second up and down.
    pub intervals: Vec<(f64, f64, f64, f64)>,
    /// In which directions it was to carry data.
    pub direction: Direction,
    /// What ended it before its time.
    pub error: Option<String>,
}

/// Reads the client's JSON.
pub fn parse(text: &str, direction: Direction) -> anyhow::Result<Transfer> {
    let v: Value = serde_json::from_str(text).context("iperf3 printed no JSON")?;
    let error = v["error"].as_str().map(str::to_string);
    let mut transfer = Transfer { error, direction, ..Transfer::default() };
    // With one direction only, that is in the first place, whichever it is.
    let (up, down) = match direction {
        Direction::Both => ("", "_bidir_reverse"),
        Direction::Up => ("", "_none"),
        Direction::Down => ("_none", ""),
    };
    let intervals = v["intervals"].as_array().context("iperf3 told no intervals")?;
    if intervals.is_empty() && transfer.error.is_none() {
        bail!("iperf3 told no intervals");
    }
    let real = |v: &Value| v.as_f64().unwrap_or(0.0);
    for i in intervals {
        let rate = |which: &str| real(&i[format!("sum{which}")]["bits_per_second"]);
        transfer.intervals.push((real(&i["sum"]["start"]), real(&i["sum"]["end"]), rate(up), rate(down)));
    }
    let end = &v["end"];
    let bytes = |which: &str| end[format!("sum_received{which}")]["bytes"].as_u64().unwrap_or(0);
    (transfer.up, transfer.down) = (bytes(up), bytes(down));
    transfer.retransmits = [&end["sum_sent"], &end["sum_sent_bidir_reverse"]]
        .iter()
        .filter_map(|s| s["retransmits"].as_u64())
        .sum();
    Ok(transfer)
}

impl Transfer {
    /// The longest time, in seconds, in which a direction delivered nothing, within whole intervals.
    pub fn stall(&self) -> f64 {
        let longest = |rate: fn(&(f64, f64, f64, f64)) -> f64| {
            let (mut longest, mut current) = (0.0_f64, 0.0);
            for i in &self.intervals {
                current = if rate(i) > 0.0 { 0.0 } else { current + (i.1 - i.0) };
                longest = longest.max(current);
            }
            longest
        };
        match self.direction {
            Direction::Both => longest(|i| i.2).max(longest(|i| i.3)),
            Direction::Up => longest(|i| i.2),
            Direction::Down => longest(|i| i.3),
        }
    }

    /// True if it lasted to its end and carried data in each direction.
    pub fn unbroken(&self) -> bool {
        let (up, down) = (
            self.up > 0 || self.direction == Direction::Down,
            self.down > 0 || self.direction == Direction::Up,
        );
        self.error.is_none() && up && down
    }

    /// Mean rates up and down, in Mbit/s, over the intervals that are wholly in a window. It started at `started`.
    pub fn rates(&self, started: u64, window: &Range<u64>) -> Option<(f64, f64)> {
        let at = |seconds: f64| started + (seconds * SECOND as f64) as u64;
        let inside = |i: &&(f64, f64, f64, f64)| at(i.0) >= window.start && at(i.1) <= window.end;
        let (mut span, mut up, mut down) = (0.0, 0.0, 0.0);
        for (from, to, there, back) in self.intervals.iter().filter(inside) {
            let length = to - from;
            (span, up, down) = (span + length, up + length * there, down + length * back);
        }
        (span > 0.0).then(|| (up / span / 1e6, down / span / 1e6))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_are_read() {
        let text = r#"{"start":{},"intervals":[
            {"sum":{"start":0,"end":0.25,"bits_per_second":8000},"sum_bidir_reverse":{"bits_per_second":0}},
            {"sum":{"start":0.25,"end":0.5,"bits_per_second":8000},"sum_bidir_reverse":{"bits_per_second":0}},
            {"sum":{"start":0.5,"end":0.75,"bits_per_second":8000},"sum_bidir_reverse":{"bits_per_second":1}}],
            "end":{"sum_sent":{"retransmits":2},"sum_received":{"bytes":100},
                   "sum_sent_bidir_reverse":{"retransmits":3},"sum_received_bidir_reverse":{"bytes":200}}}"#;
        let t = parse(text, Direction::Both).expect("is good");
        assert_eq!((t.up, t.down, t.retransmits, t.error.clone()), (100, 200, 5, None));
        assert_eq!(t.stall(), 0.5);
        assert_eq!(t.intervals.len(), 3);
        // The second and third interval, from 10.25 to 10.75 s on the clock.
        let rates = t.rates(10 * SECOND, &(10_200_000_000..11 * SECOND)).expect("there are some");
        assert_eq!(rates, (0.008, 0.5e-6));
        assert_eq!(t.rates(10 * SECOND, &(0..10_200_000_000)), None);
        assert!(t.unbroken());
    }

    #[test]
    fn one_direction_stands_in_the_first_place() {
        let text = r#"{"intervals":[{"sum":{"start":0,"end":1,"bits_per_second":8}}],
            "end":{"sum_received":{"bytes":1}}}"#;
        let t = parse(text, Direction::Down).expect("is good");
        assert_eq!((t.up, t.down, t.stall(), t.unbroken()), (0, 1, 0.0, true));
        let t = parse(text, Direction::Up).expect("is good");
        assert_eq!((t.up, t.down, t.stall(), t.unbroken()), (1, 0, 0.0, true));
    }

    #[test]
    fn an_error_is_kept() {
        let t = parse(r#"{"intervals":[],"end":{},"error":"connection reset"}"#, Direction::Both)
            .expect("is good");
        assert_eq!(t.error.as_deref(), Some("connection reset"));
        assert!(parse("iperf3: no", Direction::Both).is_err());
        assert!(parse(r#"{"intervals":[]}"#, Direction::Both).is_err());
    }
}
