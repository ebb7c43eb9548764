//! Flows on the fast path that rules of the packet filter must see: rules of the inbound filter, and rules of
//! an operator.

use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use crate::bursts::segment_counts;
use crate::door::{agent_config_with_table, run_nft};
use crate::hosts::{Host, can_run_or_report, output_text, seconds, wait_until};
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, Testbed};
use crate::traffic::EchoTraffic;

/// Duration of a measurement.
const MEASUREMENT_TIME: Duration = Duration::from_secs(2);

/// Returns the packets that went through the router's TUN device.
fn slow_path_packets(bed: &Testbed) -> u64 {
    let (out, back) = segment_counts(&bed.router);
    out + back
}

/// Returns the number of answers during [`MEASUREMENT_TIME`], and the number of packets that took the
/// router's slow path in that time.
fn measure_answers(bed: &Testbed, echo: &EchoTraffic) -> (u64, u64) {
    let (answered, by_slow) = (echo.answered_packets(), slow_path_packets(bed));
    thread::sleep(MEASUREMENT_TIME);
    (echo.answered_packets() - answered, slow_path_packets(bed) - by_slow)
}

/// Waits until the fast path carries most packets of an echo.
fn wait_until_fast(bed: &Testbed, echo: &EchoTraffic) {
    wait_until("the fast path carries the flow", seconds(20), || {
        let (answered, by_slow) = measure_answers(bed, echo);
        answered > 20 && by_slow < answered / 4
    });
}

/// Deletes all entries of a host's connection tracking, as `conntrack -F` does.
fn flush_connections(host: &Host) {
    let script = "import socket, struct
s = socket.socket(16, 3, 12)
s.bind((0, 0))
s.send(struct.pack('IHHIIBBH', 20, 0x102, 5, 1, 0, 0, 0, 0))
assert struct.unpack_from('i', s.recv(4096), 16)[0] == 0";
    let output = host.run_program(&["python3", "-c", script]);
    assert!(output.status.success(), "{}", output_text(&output));
}

/// Sets a timeout of a host's connection tracking in seconds.
fn set_timeout(host: &Host, name: &str, value: u32) {
    let output = host.run_program(&["sysctl", "-q", &format!("net.netfilter.nf_conntrack_{name}={value}")]);
    assert!(output.status.success(), "{}", output_text(&output));
}

/// Returns whether connection tracking accepts TCP packets outside of the window that it has seen.
fn accepts_tcp_outside_window(host: &Host) -> bool {
    let output = host.run_program(&["sysctl", "-n", "net.netfilter.nf_conntrack_tcp_be_liberal"]);
    String::from_utf8_lossy(&output.stdout).trim() == "1"
}

/// Returns whether the router's kernel has the connection tracking functions that the BPF programs call.
fn kernel_has_connection_tracking_functions() -> bool {
    let types = std::fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
    let name = b"\0bpf_ct_change_timeout\0";
    let has = types.windows(name.len()).any(|octets| octets == name);
    if !has {
        println!("\nSKIPPED: this kernel has no bpf_ct_change_timeout");
    }
    has
}

/// Starts home agent and router on this data path. The router's inbound filter lets only packets of
/// connections pass that hosts began.
fn start_with_inbound_filter(path: &str) -> (Testbed, Station, Station) {
    let bed = Testbed::new();
    if path == "xdp" {
        // A veth accepts redirected frames only if its peer uses NAPI, and XDP needs complete checksums.
        for (host, interface) in
            [(&bed.core, "ha"), (&bed.core, "wlan"), (&bed.core, "wwan"), (&bed.host, "eth0")]
        {
            let output = host.run_program(&["ethtool", "-K", interface, "gro", "on", "tx", "off"]);
            assert!(output.status.success(), "ethtool (Debian package ethtool): {}", output_text(&output));
        }
    }
    let agent = Station::start(&bed.agent, &bed.agent_config());
    let router = Station::start(&bed.router, &agent_config_with_table(&bed, "", path));
    router.wait_until_registered();
    router.wait_for_fast_path();
    wait_until("a ping", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    (bed, agent, router)
}

/// Waits for a second after a change of the rules. Returns whether packets are still answered.
fn flow_continues(echo: &EchoTraffic) -> bool {
    thread::sleep(seconds(1));
    let before = echo.answered_packets();
    thread::sleep(seconds(1));
    echo.answered_packets() > before
}

fn check_rules_hold(path: &str) {
    if !can_run_or_report() || !kernel_has_connection_tracking_functions() {
        return;
    }
    let (bed, _agent, mut router) = start_with_inbound_filter(path);
    let echo = bed.start_echo(100);
    echo.wait_for_further_answers();
    wait_until_fast(&bed, &echo);
    assert!(accepts_tcp_outside_window(&bed.router));

    // A rule that drops the flow takes effect within a second, and counts the packets.
    run_nft(&bed.router, "add table inet op");
    run_nft(&bed.router, "add chain inet op f { type filter hook forward priority 0 ; }");
    run_nft(&bed.router, "add rule inet op f udp dport 4242 counter drop");
    assert!(!flow_continues(&echo), "a drop rule has no effect on {path}");
    assert!(!run_nft(&bed.router, "list table inet op").contains("counter packets 0 "));

    // The operator changes a set that the rule uses.
    run_nft(&bed.router, "flush chain inet op f");
    run_nft(&bed.router, "add set inet op ports { type inet_service ; }");
    run_nft(&bed.router, "add rule inet op f udp sport @ports drop");
    echo.wait_for_further_answers();
    wait_until_fast(&bed, &echo);
    run_nft(&bed.router, "add element inet op ports { 4242 }");
    assert!(!flow_continues(&echo), "a changed set has no effect on {path}");

    // After its entry in connection tracking was deleted, the flow counts as new.
    run_nft(&bed.router, "flush chain inet op f");
    run_nft(&bed.router, "add rule inet op f ct state new udp dport 4242 drop");
    echo.wait_for_further_answers();
    wait_until_fast(&bed, &echo);
    flush_connections(&bed.router);
    assert!(!flow_continues(&echo), "conntrack -F has no effect on {path}");

    // A rule that depends on single packets moves all packets to the slow path. The log names the rule.
    run_nft(&bed.router, "flush chain inet op f");
    echo.wait_for_further_answers();
    wait_until_fast(&bed, &echo);
    run_nft(&bed.router, "add rule inet op f limit rate 1000/second accept");
    wait_until("the rule is in the log", seconds(5), || router.log_text().contains("chain f handle"));
    thread::sleep(seconds(1));
    let (answered, by_slow) = measure_answers(&bed, &echo);
    assert!(answered > 20 && by_slow >= answered, "{by_slow} of {answered} packets on the slow path");
    assert!(router.log_text().contains("table inet op chain f handle"), "{}", router.log_text());
    run_nft(&bed.router, "delete table inet op");
    wait_until_fast(&bed, &echo);
    let _ = echo.stop();
    router.terminate();
    assert!(!accepts_tcp_outside_window(&bed.router));
}

#[test]
fn firewall_rules_apply_to_tracked_flows_of_bpf_programs() {
    check_rules_hold("bpf");
}

#[test]
fn firewall_rules_apply_to_tracked_flows_of_xdp_programs() {
    check_rules_hold("xdp");
}

fn run_python(host: &Host, script: &str, arguments: &[&str]) -> Child {
    let words = [&["python3", "-c", script], arguments].concat();
    let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    host.spawn_program(&words, |command| {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    })
}

/// A UDP flow and a TCP connection stay alive beyond the timeouts of connection tracking although only the
/// fast path sees their packets. The packets that end the connection pass the inbound filter.
fn check_connections_stay_alive(path: &str) {
    if !can_run_or_report() || !kernel_has_connection_tracking_functions() {
        return;
    }
    let (bed, _agent, _router) = start_with_inbound_filter(path);
    let seconds_of_silence = 4;
    for name in ["udp_timeout_stream", "tcp_timeout_established", "tcp_timeout_unacknowledged"] {
        set_timeout(&bed.router, name, seconds_of_silence);
    }
    // With `tcp_loose` 0, a connection whose entry was deleted gets no new entry from packets in its middle.
    set_timeout(&bed.router, "tcp_loose", 0);
    // Each answer comes from outside, so without an entry of connection tracking the inbound filter drops it.
    let server = "import socket
s = socket.socket(socket.AF_INET6)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('::', 4343)); s.listen(); c = s.accept()[0]
while (d := c.recv(100)): c.send(d)
c.close(); print('closed')";
    let client = "import socket, sys, time
for _ in range(50):
    try: s = socket.create_connection((sys.argv[1], 4343), 5); break
    except OSError: time.sleep(0.1)
u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); u.connect((sys.argv[1], 4242)); u.settimeout(1)
for number in range(24):
    s.send(b'x'); assert s.recv(100) == b'x'
    u.send(b'y' * 8)
    u.recv(100)
    time.sleep(0.5)
s.shutdown(socket.SHUT_WR); assert s.recv(100) == b''; print('whole')";
    let server = run_python(&bed.core, server, &[]);
    // The echo server also answers the UDP packets of this test's client.
    let echo = bed.start_echo(1);
    let client = run_python(&bed.host, client, &[CORRESPONDENT]);
    thread::sleep(seconds(6));
    let before = slow_path_packets(&bed);
    thread::sleep(seconds(4));
    let by_slow = slow_path_packets(&bed) - before;
    let ends = [client, server].map(|child| child.wait_with_output().expect("an end"));
    let [client, server] = ends.each_ref().map(output_text);
    assert!(client.contains("whole") && server.contains("closed"), "{path}: {client} {server}");
    // In four seconds the ends send about 50 packets. Only the packets that create a new entry for a flow may
    // take the slow path.
    assert!(by_slow < 12, "{path}: {by_slow} packets took the slow path");
    let _ = echo.stop();
}

#[test]
fn bpf_programs_keep_connections_alive() {
    check_connections_stay_alive("bpf");
}

#[test]
fn xdp_programs_keep_connections_alive() {
    check_connections_stay_alive("xdp");
}
