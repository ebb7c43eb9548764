//! Makes measurements between two hosts with the programs that the papers used: iperf3, ping and mgen.

use std::net::UdpSocket;

use anyhow::{Context, anyhow, ensure};
use serde_json::Value;

use super::test_networks::HostPair;
use carnet_bench::transfer::run_iperf3;
use carnet_bench::world::run_in_node;
use carnet_testbed::clock::{self, MILLISECOND, SECOND};
use carnet_testbed::process::{command_in_node, run_for_output};
use carnet_testbed::tools;

/// Result of a measurement: quantity, unit and value.
pub type MeasuredValue = (&'static str, &'static str, f64);

/// Reason why a measurement has no value: the error output of the program. Other measurements continue.
#[derive(Debug)]
pub struct MeasurementError(pub String);

impl std::fmt::Display for MeasurementError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MeasurementError {}

/// Sends UDP at `mbit` Mbit/s (0: as fast as the sender can) in datagrams of `size` octets.
pub fn measure_udp(
    ends: &HostPair,
    size: u32,
    mbit: f64,
    down: bool,
    seconds: u64,
) -> anyhow::Result<Vec<MeasuredValue>> {
    let rate = format!("{}", (mbit * 1e6).round());
    let mut arguments: Vec<String> =
        ["-u", "-l", &size.to_string(), "-b", &rate, "-t", &seconds.to_string()].map(str::to_owned).into();
    if down {
        arguments.push("-R".into());
    }
    let patience = (2 * seconds + 5) * SECOND;
    let once = || run_iperf3(&ends.peer_node, &ends.host_node, &ends.peer_address, &arguments, patience);
    let told = match once()? {
        // The host has just learned the path MTU, so iperf3 reports an error: measure again.
        Err(why) if why.contains("Message too long") => once()?,
        told => told,
    };
    match told {
        Ok(told) => parse_udp_result(&told, size).with_context(|| format!("{size} octets at {mbit} Mbit/s")),
        Err(why) => Err(MeasurementError(format!("iperf3: {why}")).into()),
    }
}

fn parse_udp_result(told: &Value, size: u32) -> anyhow::Result<Vec<MeasuredValue>> {
    let sum = &told["end"]["sum"];
    let number = |key: &str| {
        sum[key]
            .as_f64()
            .ok_or_else(|| anyhow!("expected the number {key} in iperf3's UDP report, found none"))
    };
    let (packets, lost, seconds) = (number("packets")?, number("lost_packets")?, number("seconds")?);
    let received = (packets - lost).max(0.0);
    let mbit = received * f64::from(size) * 8.0 / seconds.max(1e-3) / 1e6;
    Ok(vec![("mbit", "Mbit/s", mbit), ("delivered", "%", 100.0 * received / packets.max(1.0))])
}

/// Destination port of mgen's datagrams.
const MGEN_PORT: u16 = 5000;
/// Length of the IPv6 and UDP headers in octets.
const HEADERS_LENGTH: u32 = 48;

/// Sends UDP of `mbit` Mbit/s by mgen in packets of `size` octets. No program reads the packets: the kernel
/// of the other host counts them.
pub fn measure_mgen(
    ends: &HostPair,
    size: u32,
    mbit: f64,
    seconds: u64,
) -> anyhow::Result<Vec<MeasuredValue>> {
    let program = tools::find_program("mgen").context("mgen is not installed (Debian's package mgen)")?;
    // Bind a socket, because otherwise the kernel would answer each packet with an ICMPv6 error.
    let _socket =
        run_in_node(&ends.peer_node, || Ok(UdpSocket::bind((ends.peer_address.as_str(), MGEN_PORT))?))?;
    let counts = || anyhow::Ok([sent_datagrams(&ends.host_node)?, arrived_datagrams(&ends.peer_node)?]);
    let rate = mbit * 1e6 / f64::from(size) / 8.0;
    let before = counts()?;
    let mut command = command_in_node(&ends.host_node, "timeout");
    command.arg((2 * seconds + 2).to_string()).arg(program).args(["ipv6", "nolog"]);
    let payload = size.saturating_sub(HEADERS_LENGTH);
    let begin = format!("0.0 ON 1 UDP DST {}/{MGEN_PORT} PERIODIC [{rate:.1} {payload}]", ends.peer_address);
    run_for_output(command.args(["event", &begin, "event", &format!("{seconds}.0 OFF 1")]))?;
    clock::sleep(50 * MILLISECOND);
    let after = counts()?;
    let [sent, arrived] = [0, 1].map(|at| (after[at] - before[at]) as f64);
    ensure!(sent > 0.0, "the traffic generator mgen sent no packets");
    // The kernel's counter of arrived packets includes other packets between the hosts, so it may be greater
    // than the number of sent packets.
    let arrived = arrived.min(sent);
    Ok(vec![("packets", "packets/s", arrived / seconds as f64), ("delivered", "%", 100.0 * arrived / sent)])
}

fn sent_datagrams(node: &str) -> anyhow::Result<u64> {
    parse_kernel_counter(
        &run_for_output(command_in_node(node, "cat").arg("/proc/net/snmp6"))?,
        "Udp6OutDatagrams",
    )
}

fn arrived_datagrams(node: &str) -> anyhow::Result<u64> {
    parse_kernel_counter(
        &run_for_output(command_in_node(node, "cat").arg("/proc/net/snmp6"))?,
        "Ip6InDelivers",
    )
}

fn parse_kernel_counter(text: &str, name: &str) -> anyhow::Result<u64> {
    let line = text.lines().map(str::split_whitespace).find_map(|mut words| {
        let found = words.next()? == name;
        found.then(|| words.next())?
    });
    line.and_then(|value| value.parse().ok()).with_context(|| format!("the kernel reports no {name}"))
}

/// Makes a TCP transfer. The window is in KiB, the segment in octets.
pub fn measure_tcp(
    ends: &HostPair,
    down: bool,
    seconds: u64,
    window: Option<u32>,
    segment: Option<u32>,
) -> anyhow::Result<Vec<MeasuredValue>> {
    let mut arguments: Vec<String> = vec!["-t".into(), seconds.to_string()];
    if down {
        arguments.push("-R".into());
    }
    arguments.extend(window.into_iter().flat_map(|kib| ["-w".into(), format!("{kib}K")]));
    arguments.extend(segment.into_iter().flat_map(|octets| ["-M".into(), octets.to_string()]));
    let patience = (2 * seconds + 5) * SECOND;
    tcp_values(run_iperf3(&ends.peer_node, &ends.host_node, &ends.peer_address, &arguments, patience)?)
}

fn tcp_values(told: Result<Value, String>) -> anyhow::Result<Vec<MeasuredValue>> {
    let told = told.map_err(|why| MeasurementError(format!("iperf3: {why}")))?;
    let rate = told["end"]["sum_received"]["bits_per_second"].as_f64();
    let rate =
        rate.ok_or_else(|| MeasurementError("iperf3 told no bits_per_second of what was received".into()))?;
    Ok(vec![("mbit", "Mbit/s", rate / 1e6)])
}

/// Sends echoes with `size` octets of data, each one as soon as the previous echo is answered. Returns their
/// average time and their loss.
pub fn measure_rtt(ends: &HostPair, size: u32, echoes: u32) -> anyhow::Result<Vec<MeasuredValue>> {
    let size = size.to_string();
    // First send large packets, so that both hosts learn the path MTU. These packets do not count.
    let mut first = command_in_node(&ends.host_node, tools::path_of_program("ping"));
    let _ = first
        .args(["-n", "-q", "-c", "3", "-i", "0.01", "-W", "0.1", "-s", &size, &ends.peer_address])
        .output();
    // Limit the time with `timeout`, because with its own time limit ping ends at the first error.
    let mut ping = command_in_node(&ends.host_node, "timeout");
    ping.args(["--signal=INT", "20"]).arg(tools::path_of_program("ping"));
    ping.args(["-n", "-q", "-f", "-W", "1", "-c", &echoes.to_string(), "-s", &size, &ends.peer_address]);
    // Ignore the exit status of ping: it only says whether an answer came.
    let said = ping.output().context("cannot start ping")?;
    let text = String::from_utf8_lossy(&said.stdout);
    parse_ping_summary(&text)
        .with_context(|| format!("ping said: {text}{}", String::from_utf8_lossy(&said.stderr)))
}

fn parse_ping_summary(text: &str) -> anyhow::Result<Vec<MeasuredValue>> {
    let line = text.lines().find(|line| line.contains("packets transmitted")).context("no statistics")?;
    let loss = line
        .split(", ")
        .find_map(|part| {
            part.trim().strip_suffix("packet loss")?.trim().strip_suffix('%')?.parse::<f64>().ok()
        })
        .context("no packet loss")?;
    let mut found = vec![("loss", "%", loss)];
    let average = text.lines().find_map(|line| {
        line.strip_prefix("rtt min/avg/max/mdev = ")?.split('/').nth(1)?.parse::<f64>().ok()
    });
    if let Some(average) = average {
        found.insert(0, ("ms", "ms", average));
    }
    Ok(found)
}

/// Returns the largest echo, in octets of data, that passes in one piece. Fragmentation is forbidden.
pub fn measure_path_mtu(ends: &HostPair) -> anyhow::Result<Vec<MeasuredValue>> {
    let passes = |size: u32| {
        // Try twice. A router answers the first echo that is too large with Packet Too Big, and then the host
        // itself refuses the next one.
        (0..2).any(|_| {
            let mut ping = command_in_node(&ends.host_node, tools::path_of_program("ping"));
            ping.args([
                "-n",
                "-q",
                "-c",
                "1",
                "-W",
                "1",
                "-M",
                "do",
                "-s",
                &size.to_string(),
                &ends.peer_address,
            ]);
            run_for_output(&mut ping).is_ok()
        })
    };
    let (mut least, mut most) = (1000, 1452);
    if !passes(least) {
        least = 56;
    }
    while least < most {
        let middle = (least + most).div_ceil(2);
        if passes(middle) { least = middle } else { most = middle - 1 }
    }
    Ok(vec![("octets", "octets", f64::from(least))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ping_summary_is_parsed() {
        let text = "PING 2001:db8::2(2001:db8::2) 56 data bytes\n\n--- 2001:db8::2 ping statistics ---\n\
                    50 packets transmitted, 45 received, 10% packet loss, time 4ms\n\
                    rtt min/avg/max/mdev = 0.030/0.047/0.120/0.010 ms, ipg/ewma 0.080/0.050 ms\n";
        assert_eq!(parse_ping_summary(text).expect("is good"), [("ms", "ms", 0.047), ("loss", "%", 10.0)]);
        let text = "5 packets transmitted, 0 received, +3 errors, 100% packet loss, time 40ms\n";
        assert_eq!(parse_ping_summary(text).expect("is good"), [("loss", "%", 100.0)]);
        assert!(parse_ping_summary("ping: unknown host").is_err());
    }

    #[test]
    fn kernel_counter_is_found_by_name() {
        let text = "Ip6InReceives                   \t7\nIp6InDelivers                   \t5\n";
        assert_eq!(parse_kernel_counter(text, "Ip6InDelivers").expect("is there"), 5);
        assert!(parse_kernel_counter(text, "Ip6In").is_err());
    }

    #[test]
    fn failed_measurement_gives_no_value() {
        let told = serde_json::json!({"end": {"sum_received": {"bits_per_second": 2e6}}});
        assert_eq!(tcp_values(Ok(told)).expect("is good"), [("mbit", "Mbit/s", 2.0)]);
        for (told, why) in [
            (Err("unable to connect".into()), "iperf3: unable to connect"),
            (Ok(serde_json::json!({})), "iperf3 told no bits_per_second of what was received"),
        ] {
            let error = tcp_values(told).expect_err("is no value");
            assert!(error.is::<MeasurementError>(), "{error:?}");
            assert_eq!(error.to_string(), why);
        }
    }

    #[test]
    fn iperf3_udp_result_is_parsed() {
        let told =
            serde_json::json!({"end": {"sum": {"packets": 1000, "lost_packets": 100, "seconds": 2.0}}});
        let found = parse_udp_result(&told, 1000).expect("is good");
        assert_eq!(found, [("mbit", "Mbit/s", 3.6), ("delivered", "%", 90.0)]);
        assert!(parse_udp_result(&serde_json::json!({}), 1000).is_err());
    }
}
