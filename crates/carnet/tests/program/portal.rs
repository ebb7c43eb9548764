//! A network with a captive portal: it redirects HTTP and forwards no other packets.
//!
//! The core is the access network. While the portal is closed, nftables redirects TCP port 80 of the first
//! uplink to the portal's own web server and drops all other packets.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use crate::hosts::{Host, RunningProgram, can_run_or_report, seconds, wait_until};
use crate::ipv4::{
    config_with_identifiers, dual_stack_testbed, load_nft_rules, remove_ipv6, start_with_changed_configs,
};
use crate::station::Station;

const PORTAL_URL: &str = "https://portal.example/terms?from=bus";
/// Address of the probe's web server, on the core beyond the access network.
const PROBE_SERVER: &str = "198.51.100.80";

/// Script that runs both web servers: the probe's server and the portal's server.
const SERVERS_PROGRAM: &str = r#"
import http.server, sys, threading

class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(204 if self.path == "/generate_204" else 404)
        self.end_headers()

class Portal(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(302)
        self.send_header("Location", sys.argv[2])
        self.end_headers()

portal = http.server.ThreadingHTTPServer(("0.0.0.0", 8080), Portal)
threading.Thread(target=portal.serve_forever, daemon=True).start()
http.server.ThreadingHTTPServer((sys.argv[1], 80), Server).serve_forever()
"#;

fn start_servers(core: &Host) -> RunningProgram {
    let python = std::env::var("CARNET_PYTHON").unwrap_or_else(|_| "/usr/bin/python3".into());
    let words = [&python, "-c", SERVERS_PROGRAM, PROBE_SERVER, PORTAL_URL].map(str::to_owned);
    let running = RunningProgram(core.spawn_program(&words, |command| {
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    }));
    wait_until("the web servers answer", seconds(20), || {
        core.run_in_namespace(|| std::net::TcpStream::connect((PROBE_SERVER, 80)).is_ok())
    });
    running
}

/// Closes the portal of the first uplink.
fn close_network(core: &Host) {
    load_nft_rules(
        core,
        &[
            "add table ip portal",
            "add chain ip portal lead { type nat hook prerouting priority -100 ; }",
            "add rule ip portal lead iifname wlan tcp dport 80 redirect to :8080",
            "add chain ip portal own { type filter hook input priority 0 ; }",
            "add rule ip portal own iifname wlan tcp dport 8080 accept",
            "add rule ip portal own iifname wlan drop",
            "add chain ip portal pass { type filter hook forward priority 0 ; }",
            "add rule ip portal pass iifname wlan drop",
        ],
    );
}

fn first_uplink(router: &Station) -> Value {
    router.show_json("uplinks")[0].clone()
}

/// Returns the metrics of a station.
pub fn read_metrics(socket: &Path) -> String {
    let mut stream = UnixStream::connect(socket).expect("the socket");
    let request = b"GET /metrics HTTP/1.1\r\nHost: carnet\r\nConnection: close\r\n\r\n";
    stream.write_all(request).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

fn has_metric(socket: &Path, line: &str) -> bool {
    read_metrics(socket).lines().any(|found| found == line)
}

#[test]
fn uplink_behind_captive_portal_is_reported_and_used_after_login() {
    if !can_run_or_report() {
        return;
    }
    let bed = dual_stack_testbed();
    remove_ipv6(&bed, &[0]);
    bed.core.run_ip(&format!("addr add {PROBE_SERVER}/32 dev lo"));
    let _servers = start_servers(&bed.core);
    close_network(&bed.core);
    let (_agent, mut router) = start_with_changed_configs(
        &bed,
        |config| config,
        |config| {
            let probe = format!(
                "captive_portal_probe = 'http://{PROBE_SERVER}/generate_204'\n[[mobile_router.uplink]]"
            );
            config_with_identifiers(config).replacen("[[mobile_router.uplink]]", &probe, 1)
        },
    );
    wait_until("the portal is named", seconds(60), || first_uplink(&router)["captive_portal"] == PORTAL_URL);
    assert_eq!(first_uplink(&router)["state"], "silent");
    let shown = String::from_utf8(router.run_command(&["show", "uplinks"]).stdout).expect("text");
    assert!(shown.contains(&format!("no answer, captive portal {PORTAL_URL}")), "{shown}");
    let status = String::from_utf8(router.run_command(&["status"]).stdout).expect("text");
    assert!(status.contains(&format!("captive portal {PORTAL_URL}")), "{status}");
    assert!(has_metric(&router.control_socket, "carnet_uplink_captive_portal{interface=\"wlan0\"} 1"));
    assert!(has_metric(&router.control_socket, "carnet_uplink_captive_portal{interface=\"wwan0\"} 0"));
    let event = format!("wlan0: captive portal {PORTAL_URL}: the access network redirects HTTP");
    assert_eq!(router.log_text().matches(&event).count(), 1, "{}", router.log_text());
    bed.start_echo(50).wait_for_further_answers();

    // A user agrees to the terms, so the portal opens.
    load_nft_rules(&bed.core, &["delete table ip portal"]);
    wait_until("the uplink carries traffic", seconds(60), || first_uplink(&router)["state"] == "active");
    // The router checks once a second on which uplinks the home agent answers.
    wait_until("the portal is forgotten", seconds(10), || first_uplink(&router)["captive_portal"].is_null());
    assert!(has_metric(&router.control_socket, "carnet_uplink_captive_portal{interface=\"wlan0\"} 0"));
    router.terminate();
}
