//! One iperf3 between the two hosts of a world.

use anyhow::{Context, anyhow, bail};
use nix::sys::signal::Signal;

use super::world::{CN, World};
use crate::clock::{self, MILLISECOND, SECOND};
use crate::isolate::{Interrupted, RUN, stopping};
use crate::process::{Daemon, in_node};
use crate::tools;

/// How long a transfer may take beyond its time: the longer it is, the longer it may be about its end.
const GRACE: u64 = 2 * SECOND;

/// What to transfer.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    /// Streams.
    pub streams: usize,
    /// To the mobile network.
    pub down: bool,
    /// Seconds, or a moment where it is 0.
    pub seconds: u64,
    /// Bits per second, as fast as it can where there is none.
    pub rate: Option<u64>,
}

/// What came of it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Outcome {
    /// Octets that arrived.
    pub octets: u64,
    /// Gbit/s.
    pub gbit: f64,
    /// Segments sent again.
    pub retransmits: u64,
}

/// Transfers. The inner error says why it did not come to its end, which is a result, too.
pub fn transfer(world: &World, task: Task) -> anyhow::Result<Result<Outcome, String>> {
    let file = |what: &str| std::path::Path::new(RUN).join(format!("{}-{what}.json", world.name));
    let iperf3 = tools::path("iperf3");
    let mut command = in_node(&world.node("cn"), &iperf3);
    command.args(["-s", "-1", "--forceflush", "-B", CN]);
    let mut server = Daemon::start("iperf3 -s", &file("server"), &mut command)?;
    let ready = clock::monotonic() + 5 * SECOND;
    while !std::fs::read_to_string(&server.log).unwrap_or_default().contains("listening") {
        server.check()?;
        if clock::monotonic() > ready {
            bail!("iperf3 -s in {} does not start:\n{}", world.node("cn"), server.tail());
        }
        clock::sleep(5 * MILLISECOND);
    }
    let mut command = in_node(&world.node("mnn"), &iperf3);
    let (seconds, streams) = (task.seconds.to_string(), task.streams.to_string());
    let amount = if task.seconds == 0 { ["-n", "2M"] } else { ["-t", &seconds] };
    command.args(["-J", "-c", CN, "-P", &streams, "--connect-timeout", "2000"]).args(amount);
    if task.down {
        command.arg("-R");
    }
    if let Some(rate) = task.rate {
        command.args(["-b", &rate.to_string()]);
    }
    let mut client = Daemon::start("iperf3 -c", &file("client"), &mut command)?;
    let end = clock::monotonic() + 2 * task.seconds * SECOND + GRACE;
    while client.ended().is_none() {
        if stopping() {
            return Err(Interrupted.into());
        }
        if clock::monotonic() > end {
            client.signal(Signal::SIGKILL);
            server.signal(Signal::SIGKILL);
            return Ok(Err("did not come to its end".into()));
        }
        clock::sleep(5 * MILLISECOND);
    }
    let text = std::fs::read_to_string(&client.log).context("cannot read what iperf3 printed")?;
    parse(&text)
}

fn parse(text: &str) -> anyhow::Result<Result<Outcome, String>> {
    let value: serde_json::Value =
        serde_json::from_str(text).with_context(|| format!("iperf3 printed no JSON: {text}"))?;
    if let Some(error) = value["error"].as_str() {
        return Ok(Err(error.trim_start_matches("error - ").to_owned()));
    }
    let received = &value["end"]["sum_received"];
    Ok(Ok(Outcome {
        octets: received["bytes"].as_u64().ok_or_else(|| anyhow!("iperf3 told no octets"))?,
        gbit: received["bits_per_second"].as_f64().unwrap_or(0.0) / 1e9,
        retransmits: value["end"]["sum_sent"]["retransmits"].as_u64().unwrap_or(0),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_and_an_error_are_read() {
        let text = r#"{"end":{"sum_sent":{"retransmits":3},
            "sum_received":{"bytes":1000,"bits_per_second":2000000000.0}}}"#;
        let outcome = Outcome { octets: 1000, gbit: 2.0, retransmits: 3 };
        assert_eq!(parse(text).expect("is good"), Ok(outcome));
        let text = r#"{"end":{},"error":"error - control socket has closed unexpectedly"}"#;
        assert_eq!(parse(text).expect("is good"), Err("control socket has closed unexpectedly".into()));
        assert!(parse("").is_err());
    }
}
