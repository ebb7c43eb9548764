//! Tests the engine with a WireGuard peer that is not carnet's, in both directions, over loopback. The peer
//! is wireguard-go, or with `CARNET_TEST_WIREGUARD=kernel` a `wireguard` device of the kernel. `wg`
//! configures both. tools/test-kernel.sh runs the test with the kernel's device.
//!
//! The test starts itself again in a network namespace of its own, which needs root. Without root or without
//! the two programs (tools/setup.sh unpacks them), the test prints a message and ends. With
//! `CARNET_REQUIRE_ROOT=1` it fails.
#![allow(clippy::disallowed_methods, reason = "the test runs programs in real time")]

use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use carnet_base::Time;
use carnet_wireguard::{
    DatagramRoute, EngineSettings, Output, PathNumber, PeerId, PresharedKey, PrivateKey, ReceivedDatagram,
    RemotePeer, SessionEngine, SessionPath, datagram_length,
};

const STOCK_PORT: u16 = 51820;
const TEST_PATH: SessionPath = SessionPath { peer_id: PeerId(1), path_number: PathNumber::UNNUMBERED };

fn tool_path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../out/tools/others/usr/bin").join(name)
}

#[test]
fn stock_peer_and_engine_exchange_packets_in_both_directions() {
    let ready = is_kernel_peer() || tool_path("wireguard-go").exists() && tool_path("wg").exists();
    let is_root =
        Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success());
    if !(ready && is_root) {
        assert!(std::env::var_os("CARNET_REQUIRE_ROOT").is_none(), "no root, or no wireguard-go");
        println!("skipped: the test needs root, wireguard-go and wg");
        return;
    }
    let itself = std::env::current_exe().expect("the test");
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child"])
        .arg(itself)
        .args(["--exact", "namespace_part_of_stock_peer_test", "--ignored", "--nocapture"])
        .output()
        .expect("unshare");
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Returns whether the other peer is a device of the kernel.
fn is_kernel_peer() -> bool {
    std::env::var("CARNET_TEST_WIREGUARD").is_ok_and(|peer| peer == "kernel")
}

/// Creates the device `wg0` of the other peer. Returns the process of wireguard-go; `None` for a device of
/// the kernel.
fn create_stock_device() -> Option<StockPeer> {
    if is_kernel_peer() {
        run_command(&["ip", "link", "add", "wg0", "type", "wireguard"]);
        return None;
    }
    let mut program = Command::new(tool_path("wireguard-go"));
    program.args(["--foreground", "wg0"]).env("LOG_LEVEL", "error").stdin(Stdio::null());
    let stock = StockPeer(program.spawn().expect("wireguard-go"));
    let begin = Instant::now();
    while !PathBuf::from("/var/run/wireguard/wg0.sock").exists() {
        assert!(begin.elapsed() < Duration::from_secs(60), "wireguard-go has no socket");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(stock)
}

/// Returns the program `wg`: the unpacked one, or the one of the system beside the kernel's device.
fn wg_program() -> String {
    match is_kernel_peer() {
        true => "wg".to_owned(),
        false => tool_path("wg").to_string_lossy().into_owned(),
    }
}

/// A process of wireguard-go in this namespace; dropping the value ends the process.
struct StockPeer(Child);

impl Drop for StockPeer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run_command(words: &[&str]) {
    let output = Command::new(words[0]).args(&words[1..]).output().expect(words[0]);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A host with the engine and its UDP socket.
struct TestHost {
    session_engine: SessionEngine,
    socket: UdpSocket,
    started_at: Instant,
    is_established: bool,
}

impl TestHost {
    fn now(&self) -> Time {
        Time::ZERO + self.started_at.elapsed()
    }

    fn send_payload(&mut self, payload: &[u8]) -> bool {
        let mut datagram = vec![0; datagram_length(payload.len())];
        let sent = self.session_engine.send_payload(self.now(), TEST_PATH, payload, &mut datagram);
        if let Ok((route, length)) = sent {
            self.socket.send_to(&datagram[..length], route.remote).expect("a datagram");
        }
        self.flush_outputs();
        sent.is_ok()
    }

    fn flush_outputs(&mut self) {
        while let Some(output) = self.session_engine.poll_output() {
            match output {
                Output::Send { route, datagram } => {
                    self.socket.send_to(&datagram, route.remote).expect("a datagram");
                }
                Output::Established { .. } => self.is_established = true,
                _ => {}
            }
        }
    }

    /// Waits a moment for datagrams. Returns the payload if one has arrived.
    fn receive_payload(&mut self) -> Option<Vec<u8>> {
        let mut datagram = [0; 2048];
        let mut payload = None;
        if let Ok((length, remote)) = self.socket.recv_from(&mut datagram) {
            let mut buffer = [0; 2048];
            let route = DatagramRoute { socket: 0, remote };
            match self.session_engine.receive_datagram(self.now(), route, &datagram[..length], &mut buffer) {
                ReceivedDatagram::Payload { payload: octets, .. } => payload = Some(octets.to_vec()),
                ReceivedDatagram::Dropped(reason) => panic!("dropped: {reason}"),
                ReceivedDatagram::Handled | ReceivedDatagram::Queued => {}
            }
        }
        let now = self.now();
        self.session_engine.handle_waiting_handshakes(now, 16);
        self.session_engine.handle_timeout(now);
        self.flush_outputs();
        payload
    }
}

fn internet_checksum(octets: &[u8]) -> [u8; 2] {
    let sum: u32 = octets.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
}

/// Returns an ICMP echo message in an IPv4 packet; `kind` 8 is a request and 0 a reply.
fn icmp_echo(kind: u8, source: [u8; 4], destination: [u8; 4], rest: &[u8]) -> Vec<u8> {
    let mut icmp = vec![kind, 0, 0, 0];
    icmp.extend(rest);
    let sum = internet_checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum);
    let length = (20 + icmp.len()) as u16;
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0];
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet.extend(source);
    packet.extend(destination);
    let sum = internet_checksum(&packet);
    packet[10..12].copy_from_slice(&sum);
    packet.extend(icmp);
    packet
}

#[test]
#[ignore = "the other test runs it in a namespace"]
fn namespace_part_of_stock_peer_test() {
    let (ours, theirs) = (PrivateKey::from_random([21; 32]), PrivateKey::from_random([22; 32]));
    let preshared_key = PresharedKey::from_random([23; 32]);
    run_command(&["mount", "-t", "tmpfs", "tmpfs", "/var/run"]);
    run_command(&["ip", "link", "set", "lo", "up"]);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    let port = socket.local_addr().expect("an address").port();

    let _stock = create_stock_device();
    let config = format!(
        "[Interface]\nPrivateKey = {}\nListenPort = {STOCK_PORT}\n[Peer]\nPublicKey = {}\nPresharedKey = {}\n\
         AllowedIPs = 10.9.0.2/32\nEndpoint = 127.0.0.1:{port}\n",
        *theirs.to_text(),
        ours.public_key(),
        *preshared_key.to_text(),
    );
    let wg = wg_program();
    let mut setconf = Command::new(&wg)
        .args(["setconf", "wg0", "/proc/self/fd/0"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("wg");
    setconf.stdin.take().expect("a pipe").write_all(config.as_bytes()).expect("a config");
    assert!(setconf.wait().expect("wg").success());
    run_command(&["ip", "address", "add", "10.9.0.1/24", "dev", "wg0"]);
    run_command(&["ip", "link", "set", "wg0", "up"]);

    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a date");
    let settings = |seed| EngineSettings {
        private_key: ours.clone(),
        random_seed: [seed; 32],
        now: Time::ZERO,
        unix_time_at_start: unix,
    };
    let peer = || RemotePeer {
        peer_id: TEST_PATH.peer_id,
        public_keys: vec![theirs.public_key()],
        preshared_key: Some(preshared_key.clone()),
    };
    let mut engine = SessionEngine::new(settings(24));
    assert!(engine.set_peer(Time::ZERO, peer()));
    let mut host =
        TestHost { session_engine: engine, socket, started_at: Instant::now(), is_established: false };
    let patience = Duration::from_secs(60);

    // The engine opens the session, and the other peer answers an echo request.
    let remote: SocketAddr = ([127, 0, 0, 1], STOCK_PORT).into();
    assert!(host.session_engine.open_session(Time::ZERO, TEST_PATH, DatagramRoute { socket: 0, remote }));
    host.flush_outputs();
    let request = icmp_echo(8, [10, 9, 0, 2], [10, 9, 0, 1], &[0, 7, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let mut sent = false;
    let reply = loop {
        assert!(host.started_at.elapsed() < patience, "no reply");
        if host.is_established && !sent {
            sent = host.send_payload(&request);
        }
        if let Some(payload) = host.receive_payload() {
            break payload;
        }
    };
    assert_eq!((reply[9], reply[20]), (1, 0), "an echo reply: {reply:?}");
    assert_eq!(reply[24..38], request[24..38]);
    let shown = Command::new(&wg).args(["show", "wg0"]).output().expect("wg");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("latest handshake") && shown.contains(&ours.public_key().to_string()), "{shown}");

    // Start an engine without a session. The other peer opens the session for its ping, and the engine
    // answers.
    host.session_engine = SessionEngine::new(settings(25));
    assert!(host.session_engine.set_peer(Time::ZERO, peer()));
    host.is_established = false;
    run_command(&[&wg, "set", "wg0", "peer", &ours.public_key().to_string(), "remove"]);
    let mut setconf = Command::new(&wg)
        .args(["addconf", "wg0", "/proc/self/fd/0"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("wg");
    let peers = &config[config.find("[Peer]").expect("a peer")..];
    setconf.stdin.take().expect("a pipe").write_all(peers.as_bytes()).expect("a config");
    assert!(setconf.wait().expect("wg").success());
    let mut ping = Command::new("ping").args(["-c", "1", "-W", "50", "10.9.0.2"]).spawn().expect("ping");
    let begin = Instant::now();
    let status = loop {
        assert!(begin.elapsed() < patience, "no ping");
        if let Some(request) = host.receive_payload()
            && request[9] == 1
            && request[20] == 8
        {
            let length = usize::from(u16::from_be_bytes([request[2], request[3]]));
            assert!(host.send_payload(&icmp_echo(0, [10, 9, 0, 2], [10, 9, 0, 1], &request[24..length])));
        }
        if let Some(status) = ping.try_wait().expect("ping") {
            break status;
        }
    };
    assert!(status.success(), "{status}");
    assert!(host.is_established);
}
