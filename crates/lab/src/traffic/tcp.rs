//! What `iperf3 --json` tells about a transfer in both directions.

use anyhow::{Context, bail};
use serde_json::Value;

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
    /// What ended it before its time.
    pub error: Option<String>,
}

/// Reads the client's JSON.
pub fn parse(text: &str) -> anyhow::Result<Transfer> {
    let v: Value = serde_json::from_str(text).context("iperf3 printed no JSON")?;
    let mut transfer = Transfer { error: v["error"].as_str().map(str::to_string), ..Transfer::default() };
    let intervals = v["intervals"].as_array().context("iperf3 told no intervals")?;
    if intervals.is_empty() && transfer.error.is_none() {
        bail!("iperf3 told no intervals");
    }
    let real = |v: &Value| v.as_f64().unwrap_or(0.0);
    for i in intervals {
        let (up, down) = (&i["sum"], &i["sum_bidir_reverse"]);
        transfer.intervals.push((
            real(&up["start"]),
            real(&up["end"]),
            real(&up["bits_per_second"]),
            real(&down["bits_per_second"]),
        ));
    }
    let end = &v["end"];
    transfer.up = end["sum_received"]["bytes"].as_u64().unwrap_or(0);
    transfer.down = end["sum_received_bidir_reverse"]["bytes"].as_u64().unwrap_or(0);
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
        longest(|i| i.2).max(longest(|i| i.3))
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
        let t = parse(text).expect("is good");
        assert_eq!((t.up, t.down, t.retransmits, t.error.clone()), (100, 200, 5, None));
        assert_eq!(t.stall(), 0.5);
        assert_eq!(t.intervals.len(), 3);
    }

    #[test]
    fn an_error_is_kept() {
        let t = parse(r#"{"intervals":[],"end":{},"error":"connection reset"}"#).expect("is good");
        assert_eq!(t.error.as_deref(), Some("connection reset"));
        assert!(parse("iperf3: no").is_err());
        assert!(parse(r#"{"intervals":[]}"#).is_err());
    }
}
