//! Runs TCP transfers by iperf3, and parses the results of `iperf3 --json`.

use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::clock::SECOND;
use crate::process::{BackgroundProgram, command_in_node};
use crate::scenario::{Direction, Tcp};
use crate::tools;

/// A transfer that runs or is due later.
#[derive(Debug)]
pub struct TcpTransfer {
    /// Settings of the transfer in the scenario.
    pub settings: Tcp,
    port: u16,
    server_address: IpAddr,
    /// Begin and end of the data on the monotonic clock.
    planned_time: Range<u64>,
    log_file: PathBuf,
    iperf3_server: BackgroundProgram,
    /// The client and the time of its start; `None` until it runs.
    iperf3_client: Option<(BackgroundProgram, u64)>,
}

impl TcpTransfer {
    /// Starts the server, which listens at this address of its node.
    pub fn start_server(
        tcp: &Tcp,
        port: u16,
        server: IpAddr,
        time: Range<u64>,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let node = tcp.server.get_ref();
        let log = |end: &str| folder.join(format!("iperf3-{}-{end}.log", tcp.name));
        let mut command = command_in_node(node, tools::path_of_program("iperf3"));
        command.args([ip_version_option(server), "-s", "-1", "-p", &port.to_string()]);
        let listener =
            BackgroundProgram::start(&format!("iperf3 in node {node}"), &log("server"), &mut command)?;
        Ok(Self {
            settings: tcp.clone(),
            port,
            server_address: server,
            planned_time: time,
            log_file: log("client"),
            iperf3_server: listener,
            iperf3_client: None,
        })
    }

    /// Starts the client if it is due and does not run.
    pub fn start_client(&mut self, now: u64) -> anyhow::Result<()> {
        if self.iperf3_client.is_some() || now < self.planned_time.start {
            return Ok(());
        }
        let (tcp, node) = (&self.settings, self.settings.client.get_ref());
        let seconds = self.planned_time.end.saturating_sub(now).div_ceil(SECOND).max(1).to_string();
        let direction: &[&str] = match tcp.direction {
            Direction::Both => &["--bidir"],
            Direction::Up => &[],
            Direction::Down => &["--reverse"],
        };
        let mut command = command_in_node(node, tools::path_of_program("iperf3"));
        command.args([
            ip_version_option(self.server_address),
            "--json",
            "-i",
            "0.25",
            "-l",
            "8K",
            "-P",
            &tcp.flows.to_string(),
        ]);
        command.args(["-p", &self.port.to_string()]).args(direction);
        command.args(["-b", &tcp.rate, "-t", &seconds, "-c", &self.server_address.to_string()]);
        let sender =
            BackgroundProgram::start(&format!("iperf3 in node {node}"), &self.log_file, &mut command)?;
        self.iperf3_client = Some((sender, now));
        Ok(())
    }

    /// Waits for the end of the transfer. Returns its results and the time of its start.
    pub fn finish(&mut self) -> anyhow::Result<(TransferResult, u64)> {
        let Some((sender, started)) = &mut self.iperf3_client else {
            bail!("the TCP transfer {:?} has not begun", self.settings.name);
        };
        let status = sender.wait_at_most(15 * SECOND);
        self.iperf3_server.stop(Signal::SIGTERM);
        let text = std::fs::read(&sender.log_file)?;
        let direction = self.settings.direction;
        let mut told = parse_iperf3_result(&String::from_utf8_lossy(&text), direction).unwrap_or_else(|e| {
            TransferResult { error: Some(format!("{e:#}")), direction, ..TransferResult::default() }
        });
        told.planned_seconds = self.planned_time.end.saturating_sub(*started) as f64 / SECOND as f64;
        if told.error.is_none() && !status.is_some_and(|s| s.success()) {
            told.error = Some(status.map_or("iperf3 did not end".into(), |s| s.to_string()));
        }
        Ok((told, *started))
    }
}

/// Returns iperf3's option for the IP version of an address.
fn ip_version_option(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "-4" } else { "-6" }
}

/// Result of a transfer as reported by iperf3.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TransferResult {
    /// Octets of payload that the server received.
    pub octets_up: u64,
    /// Octets of payload that the client received.
    pub octets_down: u64,
    /// Number of segments sent again, in both directions.
    pub retransmits: u64,
    /// Rates in each interval: begin and end in seconds from the start of the transfer, bits per second up
    /// and down.
    pub interval_rates: Vec<(f64, f64, f64, f64)>,
    /// Directions that the scenario requires for the transfer.
    pub direction: Direction,
    /// Planned duration in seconds.
    pub planned_seconds: f64,
    /// Reason for an early end; `None` if the transfer finished.
    pub error: Option<String>,
}

/// Parses the JSON output of iperf3's client.
pub fn parse_iperf3_result(text: &str, direction: Direction) -> anyhow::Result<TransferResult> {
    let v: Value = serde_json::from_str(text).context("iperf3 printed no JSON")?;
    let error = v["error"].as_str().map(str::to_string);
    let mut told = TransferResult { error, direction, ..TransferResult::default() };
    // With a single direction, iperf3 reports this direction in the first field.
    let (up, down) = match direction {
        Direction::Both => ("", "_bidir_reverse"),
        Direction::Up => ("", "_none"),
        Direction::Down => ("_none", ""),
    };
    let intervals =
        v["intervals"].as_array().context("expected intervals in the report of iperf3, found none")?;
    if intervals.is_empty() && told.error.is_none() {
        bail!("expected intervals in the report of iperf3, found none");
    }
    let real = |v: &Value| v.as_f64().unwrap_or(0.0);
    for i in intervals {
        let rate = |which: &str| real(&i[format!("sum{which}")]["bits_per_second"]);
        told.interval_rates.push((real(&i["sum"]["start"]), real(&i["sum"]["end"]), rate(up), rate(down)));
    }
    let end = &v["end"];
    let bytes = |which: &str| end[format!("sum_received{which}")]["bytes"].as_u64().unwrap_or(0);
    (told.octets_up, told.octets_down) = (bytes(up), bytes(down));
    told.retransmits = [&end["sum_sent"], &end["sum_sent_bidir_reverse"]]
        .iter()
        .filter_map(|s| s["retransmits"].as_u64())
        .sum();
    Ok(told)
}

impl TransferResult {
    /// Returns the longest time in seconds in which a direction delivered nothing, in whole intervals. After
    /// an early end, the planned rest counts, too. `None` without intervals.
    pub fn longest_stall(&self) -> Option<f64> {
        let missing = self.missing_time();
        let longest = |rate: fn(&(f64, f64, f64, f64)) -> f64| {
            let (mut longest, mut current) = (0.0_f64, 0.0);
            for i in &self.interval_rates {
                current = if rate(i) > 0.0 { 0.0 } else { current + (i.1 - i.0) };
                longest = longest.max(current);
            }
            longest.max(current + (missing.end - missing.start).max(0.0))
        };
        self.interval_rates.last()?;
        Some(match self.direction {
            Direction::Both => longest(|i| i.2).max(longest(|i| i.3)),
            Direction::Up => longest(|i| i.2),
            Direction::Down => longest(|i| i.3),
        })
    }

    /// Returns the planned time without data after an early end, in seconds from the start.
    fn missing_time(&self) -> Range<f64> {
        let last = self.interval_rates.last().map_or(0.0, |i| i.1);
        // iperf3's last interval may end up to 0.5 s before the planned end. The transfer then counts as
        // complete.
        if self.planned_seconds - last > 0.5 { last..self.planned_seconds } else { last..last }
    }

    /// Returns true if the transfer lasted to its planned end and carried data in each direction.
    pub fn has_no_interruption(&self) -> bool {
        let (up, down) = (
            self.octets_up > 0 || self.direction == Direction::Down,
            self.octets_down > 0 || self.direction == Direction::Up,
        );
        self.error.is_none() && up && down
    }

    /// Returns the mean rates up and down, in Mbit/s. The means cover the intervals that are completely in a
    /// window. If the transfer ended early, they also cover the missing time in the window, with a rate of 0.
    /// The transfer started at `started`. `None` if nothing of the transfer is in the window.
    pub fn mean_rates(&self, started: u64, window: &Range<u64>) -> Option<(f64, f64)> {
        let at = |seconds: f64| started + (seconds * SECOND as f64) as u64;
        let inside = |i: &&(f64, f64, f64, f64)| at(i.0) >= window.start && at(i.1) <= window.end;
        let (mut span, mut up, mut down) = (0.0, 0.0, 0.0);
        for (from, to, there, back) in self.interval_rates.iter().filter(inside) {
            let length = to - from;
            (span, up, down) = (span + length, up + length * there, down + length * back);
        }
        let missing = self.missing_time();
        let left = at(missing.end).min(window.end).saturating_sub(at(missing.start).max(window.start));
        span += left as f64 / SECOND as f64;
        (span > 0.0).then(|| (up / span / 1e6, down / span / 1e6))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iperf3_results_of_both_directions_are_parsed() {
        let text = r#"{"start":{},"intervals":[
            {"sum":{"start":0,"end":0.25,"bits_per_second":8000},"sum_bidir_reverse":{"bits_per_second":0}},
            {"sum":{"start":0.25,"end":0.5,"bits_per_second":8000},"sum_bidir_reverse":{"bits_per_second":0}},
            {"sum":{"start":0.5,"end":0.75,"bits_per_second":8000},
             "sum_bidir_reverse":{"bits_per_second":1}}],
            "end":{"sum_sent":{"retransmits":2},"sum_received":{"bytes":100},
                   "sum_sent_bidir_reverse":{"retransmits":3},"sum_received_bidir_reverse":{"bytes":200}}}"#;
        let t = parse_iperf3_result(text, Direction::Both).expect("is good");
        assert_eq!((t.octets_up, t.octets_down, t.retransmits, t.error.clone()), (100, 200, 5, None));
        assert_eq!(t.longest_stall(), Some(0.5));
        assert_eq!(t.interval_rates.len(), 3);
        // The window contains the second and third interval, from 10.25 to 10.75 s on the clock.
        let rates = t.mean_rates(10 * SECOND, &(10_200_000_000..11 * SECOND)).expect("there are some");
        assert_eq!(rates, (0.008, 0.5e-6));
        assert_eq!(t.mean_rates(10 * SECOND, &(0..10_200_000_000)), None);
        assert!(t.has_no_interruption());
    }

    #[test]
    fn iperf3_result_of_one_direction_is_parsed() {
        let text = r#"{"intervals":[{"sum":{"start":0,"end":1,"bits_per_second":8}}],
            "end":{"sum_received":{"bytes":1}}}"#;
        let t = parse_iperf3_result(text, Direction::Down).expect("is good");
        assert_eq!(
            (t.octets_up, t.octets_down, t.longest_stall(), t.has_no_interruption()),
            (0, 1, Some(0.0), true)
        );
        let t = parse_iperf3_result(text, Direction::Up).expect("is good");
        assert_eq!(
            (t.octets_up, t.octets_down, t.longest_stall(), t.has_no_interruption()),
            (1, 0, Some(0.0), true)
        );
    }

    #[test]
    fn time_after_early_transfer_end_counts_as_outage() {
        let intervals = (0..4).map(|n| (f64::from(n), f64::from(n + 1), 8e6, 8e6)).collect();
        let lasted =
            TransferResult { interval_rates: intervals, planned_seconds: 4.2, ..TransferResult::default() };
        assert_eq!(lasted.longest_stall(), Some(0.0));
        assert_eq!(lasted.mean_rates(0, &(0..10 * SECOND)), Some((8.0, 8.0)));
        let ended = TransferResult { planned_seconds: 8.0, ..lasted };
        assert_eq!(ended.longest_stall(), Some(4.0));
        assert_eq!(ended.mean_rates(0, &(0..10 * SECOND)), Some((4.0, 4.0)));
        assert_eq!(ended.mean_rates(0, &(5 * SECOND..6 * SECOND)), Some((0.0, 0.0)));
        assert_eq!(
            TransferResult { planned_seconds: 8.0, ..TransferResult::default() }.longest_stall(),
            None
        );
    }

    #[test]
    fn iperf3_error_is_recorded() {
        let t =
            parse_iperf3_result(r#"{"intervals":[],"end":{},"error":"connection reset"}"#, Direction::Both)
                .expect("is good");
        assert_eq!(t.error.as_deref(), Some("connection reset"));
        assert!(parse_iperf3_result("iperf3: no", Direction::Both).is_err());
        assert!(parse_iperf3_result(r#"{"intervals":[]}"#, Direction::Both).is_err());
    }
}
