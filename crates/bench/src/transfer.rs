//! Makes a transfer by iperf3 between two hosts.

use anyhow::{Context, anyhow, bail};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::world::{CN, World};
use carnet_testbed::clock::{self, MILLISECOND, SECOND};
use carnet_testbed::isolate::{Interrupted, RUN, has_to_stop};
use carnet_testbed::process::{Daemon, in_node};
use carnet_testbed::tools;

/// Part of the time limit of a transfer: the limit is twice the transfer's duration plus this time. A longer
/// transfer takes longer to end.
const GRACE: u64 = 2 * SECOND;
/// Maximum time until iperf3 listens. It takes 10 ms, but seconds on an emulated or busy machine. The
/// measurement excludes it.
const STARTING: u64 = 30 * SECOND;

/// Settings of a transfer.
#[derive(Debug, Clone, Copy)]
pub struct TransferTask {
    /// Number of parallel streams.
    pub streams: usize,
    /// Whether the data is sent to the mobile network; otherwise from it.
    pub down: bool,
    /// Duration in seconds; 0 for a fraction of a second.
    pub seconds: u64,
    /// Rate in bits per second; `None` for as fast as possible.
    pub rate: Option<u64>,
}

/// Result of the transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Outcome {
    /// Number of octets of payload that arrived.
    pub octets: u64,
    /// Gbit/s of payload.
    pub gbit: f64,
    /// Number of retransmitted TCP segments.
    pub retransmits: u64,
}

/// Makes a transfer. The inner error says why the transfer did not finish, which is a result too.
pub fn transfer(world: &World, task: TransferTask) -> anyhow::Result<Result<Outcome, String>> {
    transfer_to(world, CN, task)
}

/// Makes a transfer as [`transfer`] does, with this address of the correspondent node.
pub fn transfer_to(
    world: &World,
    address: &str,
    task: TransferTask,
) -> anyhow::Result<Result<Outcome, String>> {
    let (seconds, streams) = (task.seconds.to_string(), task.streams.to_string());
    let amount = if task.seconds == 0 { ["-n", "2M"] } else { ["-t", &seconds] };
    let mut arguments: Vec<String> = ["-P", &streams].into_iter().chain(amount).map(str::to_owned).collect();
    if task.down {
        arguments.push("-R".into());
    }
    arguments.extend(task.rate.into_iter().flat_map(|rate| ["-b".into(), rate.to_string()]));
    let patience = 2 * task.seconds * SECOND + GRACE;
    match exchange(&world.node("cn"), &world.node("mnn"), address, &arguments, patience)? {
        Ok(told) => Ok(Ok(outcome(&told)?)),
        Err(why) => Ok(Err(why)),
    }
}

/// Runs one iperf3 from a client to a server in another node, with these arguments of the client. Returns the
/// output. The inner error says why iperf3 did not finish within `patience` nanoseconds.
pub fn exchange(
    server: &str,
    client: &str,
    address: &str,
    arguments: &[String],
    patience: u64,
) -> anyhow::Result<Result<Value, String>> {
    let file = |node: &str| std::path::Path::new(RUN).join(format!("{node}-iperf3.json"));
    let iperf3 = tools::path("iperf3");
    let mut command = in_node(server, &iperf3);
    command.args(["-s", "-1", "--forceflush", "-B", address]);
    let mut listener = Daemon::start("iperf3 -s", &file(server), &mut command)?;
    let ready = clock::monotonic() + STARTING;
    while !std::fs::read_to_string(&listener.log).unwrap_or_default().contains("listening") {
        listener.check_running()?;
        if clock::monotonic() > ready {
            bail!("cannot start the iperf3 server in node {server}:\n{}", listener.tail());
        }
        clock::sleep(5 * MILLISECOND);
    }
    let mut command = in_node(client, &iperf3);
    command.args(["-J", "-c", address, "--connect-timeout", "2000"]).args(arguments);
    let mut sender = Daemon::start("iperf3 -c", &file(client), &mut command)?;
    let end = clock::monotonic() + patience;
    while sender.ended().is_none() {
        if has_to_stop() {
            return Err(Interrupted.into());
        }
        if clock::monotonic() > end {
            sender.signal(Signal::SIGKILL);
            listener.signal(Signal::SIGKILL);
            return Ok(Err("did not come to its end".into()));
        }
        clock::sleep(5 * MILLISECOND);
    }
    let text = std::fs::read_to_string(&sender.log).context("cannot read what iperf3 printed")?;
    parse(&text)
}

fn parse(text: &str) -> anyhow::Result<Result<Value, String>> {
    // iperf3 prints warnings before the JSON.
    let json = text.find('{').map_or(text, |at| &text[at..]);
    let value: Value =
        serde_json::from_str(json).with_context(|| format!("iperf3 printed no JSON: {text}"))?;
    Ok(match value["error"].as_str() {
        Some(error) => Err(error.trim_start_matches("error - ").to_owned()),
        None => Ok(value),
    })
}

fn outcome(told: &Value) -> anyhow::Result<Outcome> {
    let received = &told["end"]["sum_received"];
    Ok(Outcome {
        octets: received["bytes"].as_u64().ok_or_else(|| {
            anyhow!("expected the number of received octets in iperf3's report, found none")
        })?,
        gbit: received["bits_per_second"].as_f64().unwrap_or(0.0) / 1e9,
        retransmits: told["end"]["sum_sent"]["retransmits"].as_u64().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iperf3_result_and_error_are_parsed() {
        let text = r#"{"end":{"sum_sent":{"retransmits":3},
            "sum_received":{"bytes":1000,"bits_per_second":2000000000.0}}}"#;
        let told = parse(text).expect("is good").expect("the transfer has succeeded");
        let expected = Outcome { octets: 1000, gbit: 2.0, retransmits: 3 };
        assert_eq!(outcome(&told).expect("is good"), expected);
        let text = r#"{"end":{},"error":"error - control socket has closed unexpectedly"}"#;
        assert_eq!(parse(text).expect("is good"), Err("control socket has closed unexpectedly".into()));
        assert!(parse("").is_err());
        let text = "warning: UDP block size 1360 exceeds TCP MSS 1326\n{\"end\":{}}";
        assert!(parse(text).expect("is good").is_ok());
    }
}
