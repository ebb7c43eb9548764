//! Makes a transfer by iperf3 between two hosts.

use anyhow::{Context, anyhow, bail};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::world::{CORRESPONDENT_ADDRESS, TestNetwork};
use carnet_testbed::clock::{self, MILLISECOND, SECOND};
use carnet_testbed::isolate::{Interrupted, RUN_DIRECTORY, has_to_stop};
use carnet_testbed::process::{BackgroundProgram, command_in_node};
use carnet_testbed::tools;

/// Part of the time limit of a transfer: the limit is twice the transfer's duration plus this time. A longer
/// transfer takes longer to end.
const END_TIMEOUT: u64 = 2 * SECOND;
/// Maximum time until iperf3 listens. It takes 10 ms, but seconds on an emulated or busy machine. The
/// measurement excludes it.
const START_TIMEOUT: u64 = 30 * SECOND;

/// Settings of a transfer.
#[derive(Debug, Clone, Copy)]
pub struct TransferTask {
    /// Number of parallel streams.
    pub stream_count: usize,
    /// Whether the data is sent to the mobile network; otherwise from it.
    pub to_mobile_network: bool,
    /// Duration in seconds; 0 for a fraction of a second.
    pub duration_seconds: u64,
    /// Rate in bits per second; `None` for as fast as possible.
    pub bits_per_second: Option<u64>,
}

/// Result of the transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TransferResult {
    /// Number of octets of payload that arrived.
    pub octets: u64,
    /// Gbit/s of payload.
    pub gigabits_per_second: f64,
    /// Number of retransmitted TCP segments.
    pub retransmits: u64,
}

/// Makes a transfer. The inner error says why the transfer did not finish, which is a result too.
pub fn run_transfer(
    network: &TestNetwork,
    task: TransferTask,
) -> anyhow::Result<Result<TransferResult, String>> {
    transfer_to(network, CORRESPONDENT_ADDRESS, task)
}

/// Makes a transfer as [`run_transfer`] does, with this address of the correspondent node.
pub fn transfer_to(
    network: &TestNetwork,
    address: &str,
    task: TransferTask,
) -> anyhow::Result<Result<TransferResult, String>> {
    let (seconds, streams) = (task.duration_seconds.to_string(), task.stream_count.to_string());
    let amount = if task.duration_seconds == 0 { ["-n", "2M"] } else { ["-t", &seconds] };
    let mut arguments: Vec<String> = ["-P", &streams].into_iter().chain(amount).map(str::to_owned).collect();
    if task.to_mobile_network {
        arguments.push("-R".into());
    }
    arguments.extend(task.bits_per_second.into_iter().flat_map(|rate| ["-b".into(), rate.to_string()]));
    let patience = 2 * task.duration_seconds * SECOND + END_TIMEOUT;
    match run_iperf3(&network.node_name("cn"), &network.node_name("mnn"), address, &arguments, patience)? {
        Ok(told) => Ok(Ok(parse_transfer_result(&told)?)),
        Err(why) => Ok(Err(why)),
    }
}

/// Runs one iperf3 from a client to a server in another node, with these arguments of the client. Returns the
/// output. The inner error says why iperf3 did not finish within `patience` nanoseconds.
pub fn run_iperf3(
    server: &str,
    client: &str,
    address: &str,
    arguments: &[String],
    patience: u64,
) -> anyhow::Result<Result<Value, String>> {
    let file = |node: &str| std::path::Path::new(RUN_DIRECTORY).join(format!("{node}-iperf3.json"));
    let iperf3 = tools::path_of_program("iperf3");
    let mut command = command_in_node(server, &iperf3);
    command.args(["-s", "-1", "--forceflush", "-B", address]);
    let mut listener = BackgroundProgram::start("iperf3 -s", &file(server), &mut command)?;
    let ready = clock::monotonic_now() + START_TIMEOUT;
    while !std::fs::read_to_string(&listener.log_file).unwrap_or_default().contains("listening") {
        listener.check_running()?;
        if clock::monotonic_now() > ready {
            bail!("cannot start the iperf3 server in node {server}:\n{}", listener.log_tail());
        }
        clock::sleep(5 * MILLISECOND);
    }
    let mut command = command_in_node(client, &iperf3);
    command.args(["-J", "-c", address, "--connect-timeout", "2000"]).args(arguments);
    let mut sender = BackgroundProgram::start("iperf3 -c", &file(client), &mut command)?;
    let end = clock::monotonic_now() + patience;
    while sender.exit_status().is_none() {
        if has_to_stop() {
            return Err(Interrupted.into());
        }
        if clock::monotonic_now() > end {
            sender.send_signal(Signal::SIGKILL);
            listener.send_signal(Signal::SIGKILL);
            return Ok(Err("did not come to its end".into()));
        }
        clock::sleep(5 * MILLISECOND);
    }
    let text = std::fs::read_to_string(&sender.log_file).context("cannot read what iperf3 printed")?;
    parse_iperf3_output(&text)
}

fn parse_iperf3_output(text: &str) -> anyhow::Result<Result<Value, String>> {
    // iperf3 prints warnings before the JSON.
    let json = text.find('{').map_or(text, |at| &text[at..]);
    let value: Value =
        serde_json::from_str(json).with_context(|| format!("iperf3 printed no JSON: {text}"))?;
    Ok(match value["error"].as_str() {
        Some(error) => Err(error.trim_start_matches("error - ").to_owned()),
        None => Ok(value),
    })
}

fn parse_transfer_result(report: &Value) -> anyhow::Result<TransferResult> {
    let received = &report["end"]["sum_received"];
    Ok(TransferResult {
        octets: received["bytes"].as_u64().ok_or_else(|| {
            anyhow!("expected the number of received octets in iperf3's report, found none")
        })?,
        gigabits_per_second: received["bits_per_second"].as_f64().unwrap_or(0.0) / 1e9,
        retransmits: report["end"]["sum_sent"]["retransmits"].as_u64().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iperf3_result_and_error_are_parsed() {
        let text = r#"{"end":{"sum_sent":{"retransmits":3},
            "sum_received":{"bytes":1000,"bits_per_second":2000000000.0}}}"#;
        let told = parse_iperf3_output(text).expect("is good").expect("the transfer has succeeded");
        let expected = TransferResult { octets: 1000, gigabits_per_second: 2.0, retransmits: 3 };
        assert_eq!(parse_transfer_result(&told).expect("is good"), expected);
        let text = r#"{"end":{},"error":"error - control socket has closed unexpectedly"}"#;
        assert_eq!(
            parse_iperf3_output(text).expect("is good"),
            Err("control socket has closed unexpectedly".into())
        );
        assert!(parse_iperf3_output("").is_err());
        let text = "warning: UDP block size 1360 exceeds TCP MSS 1326\n{\"end\":{}}";
        assert!(parse_iperf3_output(text).expect("is good").is_ok());
    }
}
