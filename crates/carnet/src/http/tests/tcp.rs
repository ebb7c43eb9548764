//! Tests of the API over TCP, and of the requests of Prometheus.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use carnet_api::config::TcpApi;
use carnet_api::model::{
    AddressFamily, HomeAgentStatus, NatStatus, NdpProxyStatus, OutsideCount, Policy, Uplink,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

struct TestPort {
    address: SocketAddr,
    api_server: ApiServer,
    _scratch_folder: ScratchFolder,
}

impl TestPort {
    async fn open_port(tokens: Option<&str>) -> TestPort {
        let scratch = ScratchFolder::new();
        // Returns a port that was free a moment ago.
        let free = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = free.local_addr().expect("an address");
        drop(free);
        let tokens = tokens.map(|text| {
            let path = scratch.path().join("tokens");
            fs::write(&path, text).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
            path
        });
        let (requests, receiver) = mpsc::channel(4);
        let (events, _) = broadcast::channel(4);
        tokio::spawn(answer_requests(receiver));
        let socket = scratch.path().join("s.sock");
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
        let http = TcpApi { address, token_file: tokens, dashboard_directory: pages };
        let server = serve_api(&socket, Some(&http), requests, events).await.expect("a server");
        TestPort { address, api_server: server, _scratch_folder: scratch }
    }

    /// Sends a request, and returns the status and the whole answer of the server.
    async fn send_request(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).await.expect("a connection");
        let request = format!("{request}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, answer)
    }
}

#[tokio::test]
async fn loopback_port_answers_read_requests() {
    let port = TestPort::open_port(None).await;
    let (status, answer) = port.send_request("GET /v1/status HTTP/1.1\r\nHost: localhost").await;
    assert_eq!(status, 200);
    assert!(answer.contains("\"name\":\"bus-42\""), "{answer}");
    let (status, answer) = port.send_request("GET /v1/status HTTP/1.1\r\nHost: evil.example").await;
    assert_eq!(status, 403, "{answer}");
    let post = "POST /v1/handover HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Content-Length: 16";
    let (status, answer) = port.send_request(post).await;
    assert_eq!(status, 403, "{answer}");
    assert!(answer.contains("use the UNIX socket for commands"), "{answer}");
    port.api_server.shutdown().await;
    assert!(TcpStream::connect(port.address).await.is_err());
}

#[tokio::test]
async fn http_port_with_tokens_refuses_clients_without_one() {
    let port = TestPort::open_port(Some("read 0123456789abcdef\noperate fedcba9876543210\n")).await;
    let (status, answer) = port.send_request("GET /v1/status HTTP/1.1\r\nHost: localhost").await;
    assert_eq!(status, 401);
    assert!(answer.to_lowercase().contains("www-authenticate: bearer"), "{answer}");
    let get =
        |token: &str| format!("GET /v1/status HTTP/1.1\r\nHost: ha.example\r\nAuthorization: Bearer {token}");
    assert_eq!(port.send_request(&get("0123456789abcdef")).await.0, 200);
    assert_eq!(port.send_request(&get("0123456789abcdee")).await.0, 401);
    let body = "{\"uplink\":null}";
    let post = |token: &str| {
        format!(
            "POST /v1/handover HTTP/1.1\r\nHost: ha.example\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    };
    assert_eq!(port.send_request(&post("0123456789abcdef")).await.0, 403);
    assert_eq!(port.send_request(&post("fedcba9876543210")).await.0, 204);
}

/// Opens a connection from an address of this machine, and sends one octet of a header.
async fn begin_request(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind((from, 0).into()).expect("an address of this machine");
    let mut stream = socket.connect(to).await.expect("a connection");
    stream.write_all(b"G").await.expect("sent");
    stream
}

/// Returns whether the server has ended a connection.
async fn is_closed_by_server(stream: &mut TcpStream) -> bool {
    let read = tokio::time::timeout(Duration::from_millis(50), stream.read(&mut [0; 64])).await;
    read.is_ok_and(|read| !read.is_ok_and(|octets| octets > 0))
}

const READ_REQUEST: &str =
    "GET /v1/status HTTP/1.1\r\nHost: ha.example\r\nAuthorization: Bearer 0123456789abcdef";

/// Clients without a token, from one address or from many, do not keep other clients out. A client that has
/// presented a valid token stays connected.
#[tokio::test]
async fn server_closes_slow_unauthenticated_connections_to_accept_new_ones() {
    let port = TestPort::open_port(Some("read 0123456789abcdef\n")).await;
    let mut events = TcpStream::connect(port.address).await.expect("a connection");
    let request = READ_REQUEST.replace("status", "events");
    events.write_all(format!("{request}\r\n\r\n").as_bytes()).await.expect("sent");
    let mut begun = [0; 12];
    events.read_exact(&mut begun).await.expect("an answer");
    assert_eq!(&begun, b"HTTP/1.1 200");

    for from_one in [true, false] {
        let mut slow = Vec::new();
        for n in 0..80 {
            slow.push(
                begin_request(if from_one { [127, 0, 0, 9] } else { [127, 0, 1, n] }, port.address).await,
            );
        }
        let asked = tokio::time::timeout(Duration::from_secs(5), port.send_request(READ_REQUEST)).await;
        assert_eq!(asked.expect("an answer beside slow connections").0, 200);
        let mut left = 0;
        for stream in &mut slow {
            left += usize::from(!is_closed_by_server(stream).await);
        }
        // A single source address gets at most 8 connections. Many sources get all connections except two,
        // which the event stream and this request use.
        let expected = if from_one { 8 } else { 62 };
        assert!(left <= expected, "{left} of 80 slow connections are still served");
        // The server has ended the oldest connections, not the newest.
        assert!(left > 0 && !is_closed_by_server(&mut slow[79]).await, "{left} are left");
    }
    let mut rest = [0; 4096];
    let more = tokio::time::timeout(Duration::from_millis(50), events.read(&mut rest)).await;
    assert!(!more.is_ok_and(|read| read.is_ok_and(|octets| octets == 0)), "the events ended");
}

/// A client that sends single octets at long intervals cannot keep a connection without a request.
#[tokio::test]
async fn the_server_closes_a_connection_whose_request_header_is_late() {
    let port = TestPort::open_port(Some("read 0123456789abcdef\n")).await;
    let mut stream = begin_request([127, 0, 0, 1], port.address).await;
    for _ in 0..25 {
        let read = tokio::time::timeout(Duration::from_secs(1), stream.read(&mut [0; 64])).await;
        if read.is_ok_and(|read| !read.is_ok_and(|octets| octets > 0)) {
            return;
        }
        if stream.write_all(b"E").await.is_err() {
            return;
        }
    }
    panic!("a header of 25 s is still read");
}

/// A client without a valid token gets one answer, and then its connection ends.
#[tokio::test]
async fn a_connection_without_a_token_ends_after_its_answer() {
    let port = TestPort::open_port(Some("read 0123456789abcdef\n")).await;
    for (request, status) in [
        ("GET /v1/status HTTP/1.1\r\nHost: x", "401"),
        ("POST /v1/handover HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000", "401"),
        ("GET / HTTP/1.1\r\nHost: x", "200"),
        (READ_REQUEST, "200"),
    ] {
        let mut stream = TcpStream::connect(port.address).await.expect("a connection");
        let twice = format!("{request}\r\n\r\n{READ_REQUEST}\r\n\r\n");
        stream.write_all(twice.as_bytes()).await.expect("sent");
        let mut answer = Vec::new();
        let all = stream.read_to_end(&mut answer);
        let ended = tokio::time::timeout(Duration::from_secs(2), all).await.is_ok();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        let answers = answer.matches("HTTP/1.1 ").count();
        assert_eq!(
            (ended, answers),
            if request == READ_REQUEST { (false, 2) } else { (true, 1) },
            "{request}: {answer}"
        );
    }
}

#[tokio::test]
async fn busy_port_is_opened_once_it_is_free() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let scratch = ScratchFolder::new();
    let (requests, _receiver) = mpsc::channel(1);
    let (events, _) = broadcast::channel(1);
    let http = TcpApi { address, token_file: None, dashboard_directory: "/nowhere".into() };
    let socket = scratch.path().join("s.sock");
    let server = serve_api(&socket, Some(&http), requests, events).await.expect("a server");
    assert!(socket.exists(), "the socket does not wait for the port");
    drop(taken);
    let mut stream = loop {
        match TcpStream::connect(address).await {
            Ok(stream) => break stream,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let question = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(question).await.expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    server.shutdown().await;
}

#[tokio::test]
async fn only_dashboard_files_are_served_without_token() {
    let port = TestPort::open_port(Some("read 0123456789abcdef\n")).await;
    for (path, kind) in [("/", "text/html"), ("/main.js", "text/javascript"), ("/style.css", "text/css")] {
        let (status, answer) =
            port.send_request(&format!("GET {path} HTTP/1.1\r\nHost: station.example")).await;
        assert_eq!(status, 200, "{path}");
        assert!(answer.contains(&format!("content-type: {kind}; charset=utf-8\r\n")), "{path}: {answer}");
        assert!(
            answer.contains("content-security-policy: default-src 'none'; script-src 'self';"),
            "{answer}"
        );
        assert!(answer.contains("x-content-type-options: nosniff\r\n"), "{answer}");
    }
    // The server sends no file for a path that leads outside of the directory, nor a file that is not of the
    // dashboard.
    for path in [
        "/../README.md",
        "/%2e%2e/README.md",
        "/.html",
        "/web/main.js",
        "/main.js/",
        "/main",
        "/tokens",
        "//main.js",
    ] {
        assert_eq!(
            port.send_request(&format!("GET {path} HTTP/1.1\r\nHost: localhost")).await.0,
            401,
            "{path}"
        );
    }
    let (status, answer) = port.send_request("GET /nothing.html HTTP/1.1\r\nHost: localhost").await;
    assert!(status == 404 && answer.contains("the dashboard is not installed"), "{answer}");
    assert_eq!(
        port.send_request("POST /main.js HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0").await.0,
        401
    );
}

/// Returns the command for promtool, also if `tools/setup.sh test` has installed it. Without promtool it
/// prints this and returns `None`.
fn promtool_command() -> Option<Command> {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../out/tools/promtool");
    let tool = if unpacked.exists() { unpacked } else { "promtool".into() };
    let found = Command::new(&tool).arg("--version").output().is_ok();
    assert!(found || std::env::var("CARNET_REQUIRE_TOOLS").as_deref() != Ok("1"), "promtool is missing");
    if !found {
        eprintln!("skipped: promtool is missing (tools/setup.sh test)");
    }
    found.then(|| Command::new(tool))
}

#[tokio::test]
async fn metrics_have_the_format_of_prometheus() {
    let port = TestPort::open_port(None).await;
    let (status, answer) = port.send_request("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1").await;
    assert_eq!(status, 200);
    assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    assert!(answer.contains("\ncarnet_tunnel_encapsulated_total 18446744073709551615\n"), "{answer}");
    assert!(answer.contains("\ncarnet_uptime_seconds 1.5\n"), "{answer}");
}

#[test]
fn promtool_accepts_metrics_and_alerts() {
    let Some(mut tool) = promtool_command() else { return };
    let count = OutsideCount { packets_out: 3, octets_out: 300, packets_in: 2, octets_in: 1000 };
    let uplink = |interface: &str, state: &str, rtt_ms| Uplink {
        interface: interface.into(),
        state: state.into(),
        retry_s: None,
        full: false,
        care_of_address: None,
        bid: None,
        priority: 1,
        signal_dbm: Some(-71),
        rtt_ms,
        loss: Some(0.25),
        capacity_kbit_s: Some(5000),
        captive_portal: None,
        portal_access: None,
        portal_outside: Some(count),
        volume_used: Some(7),
        volume: None,
        volume_period: "month".into(),
        silent_router: None,
        obstacle: None,
        volume_action: "last_resort".into(),
        roaming: None,
        active: true,
    };
    let names = include_str!("../../../../../docs/counters.md").lines().filter_map(|line| {
        let name = line.strip_prefix("| `")?.split('`').next()?;
        Some((name.to_owned(), 7))
    });
    let uplinks = [uplink("wlan0", "active", Some(12.5)), uplink("wwan0", "down: no address", None)];
    let security = serde_json::json!({
        "policy": "strict", "ticket": {"name": "5a1f0c6be21d9f37", "from": 1, "until": 1_795_904_800},
        "tickets_now": 5, "tickets_later": 2, "tickets_until": 1_796_000_000, "issuers": 2, "signers": 11,
        "queued": 3, "queue": 256, "parked": 1, "parking": 64, "verifications_per_second": 2000,
        "received": 1, "verified": 1, "copies": 0, "plain": 0, "verifications": 1, "signed": 1, "dropped": {},
    });
    let security = serde_json::from_value(security).expect("security");
    let policies = [Policy {
        name: "stre\"ams".into(),
        action: "breakout".into(),
        selectors: 1,
        uplinks: Vec::new(),
        wanted_uplink: None,
        takes: Vec::new(),
        home_agent: "not_asked".into(),
        outside: [("wlan0".to_owned(), count)].into(),
    }];
    let mut status = test_status();
    status.home_agent = Some(HomeAgentStatus {
        address: "2001:db8:1::1".parse().expect("an address"),
        bindings: 2,
        keys_to_change: Vec::new(),
        nat: vec![NatStatus {
            family: AddressFamily::Ipv4,
            interface: "eth0".into(),
            in_force: true,
            failure: None,
            translated: count,
        }],
        ndp_proxy: Some(NdpProxyStatus {
            interface: "eth0".into(),
            state: "up".into(),
            addresses: 3,
            prefixes: 2,
            answered: 5,
            refused: 1,
        }),
    });
    let text = metrics::metrics_text(&status, &uplinks, &policies, Some(&security), &names.collect());
    for sample in [
        "carnet_home_agent_nat_in_force{family=\"ipv4\",interface=\"eth0\"} 1\n",
        "carnet_home_agent_nat_packets_total{family=\"ipv4\",interface=\"eth0\",direction=\"out\"} 3\n",
        "carnet_home_agent_nat_bytes_total{family=\"ipv4\",interface=\"eth0\",direction=\"in\"} 1000\n",
        "carnet_home_agent_ndp_proxy_up{interface=\"eth0\"} 1\n",
        "carnet_home_agent_ndp_proxy_addresses{interface=\"eth0\"} 3\n",
        "carnet_home_agent_ndp_proxy_refused_total{interface=\"eth0\"} 1\n",
        "carnet_breakout_packets_total{policy=\"stre\\\"ams\",interface=\"wlan0\",direction=\"out\"} 3\n",
        "carnet_breakout_bytes_total{policy=\"stre\\\"ams\",interface=\"wlan0\",direction=\"in\"} 1000\n",
        "carnet_portal_packets_total{interface=\"wwan0\",direction=\"in\"} 2\n",
        "carnet_portal_bytes_total{interface=\"wlan0\",direction=\"out\"} 300\n",
        "carnet_security_tickets{holds=\"later\"} 2\n",
        "carnet_security_ticket_end_timestamp_seconds 1795904800\n",
        "carnet_security_waiting{for=\"verification\"} 3\n",
    ] {
        assert!(text.contains(sample), "{sample}{text}");
    }
    assert!(text.contains("carnet_uplink_state{interface=\"wwan0\",state=\"down\"} 1\n"), "{text}");
    let mut check = tool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    check = check.stderr(Stdio::piped());
    let mut check = check.spawn().expect("promtool");
    std::io::Write::write_all(&mut check.stdin.take().expect("its input"), text.as_bytes()).expect("written");
    let said = check.wait_with_output().expect("its end");
    assert!(said.status.success(), "{}\n{text}", String::from_utf8_lossy(&said.stderr));

    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/prometheus");
    for arguments in [["check", "config", "prometheus.yml"], ["test", "rules", "carnet.rules.test.yml"]] {
        let said = promtool_command()
            .expect("promtool")
            .args(arguments)
            .current_dir(&folder)
            .output()
            .expect("its end");
        assert!(said.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said.stdout));
    }
    // Every metric that the alerts and the dashboard use must exist.
    let families: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    for file in ["carnet.rules.yml", "grafana.json"] {
        let content = fs::read_to_string(folder.join(file)).expect(file);
        for name in content.split(|c: char| !c.is_ascii_lowercase() && c != '_' && !c.is_ascii_digit()) {
            let is_metric = name.starts_with("carnet_");
            // Metrics of roles that the station in this test does not have.
            let elsewhere =
                name.starts_with("carnet_home_agent_") || name.starts_with("carnet_mobile_router_");
            let elsewhere = elsewhere || name == "carnet_uplink_volume_limit_bytes";
            assert!(!is_metric || elsewhere || families.contains(&name), "{file} asks for {name}");
        }
    }
}
