//! IPv4 on board (RFC 5555): a host with only IPv4, behind a mobile router with two uplinks. The first uplink
//! has only IPv6. The second uplink has only IPv4, behind a NAT.
//!
//! The mobile network is 10.42.7.0/24. The core is the correspondent, 198.51.100.1.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::bursts::segment_counts;
use crate::hosts::{Host, can_run_or_report, output_text, seconds, wait_until};
use crate::ipv4::{
    dual_stack_testbed, first_tunnel, put_uplink_behind_nat, remove_ipv6, start_with_changed_configs,
};
use crate::station::Station;
use crate::testbed::Testbed;

const IPV4_PREFIX: &str = "10.42.7.0/24";
const ON_BOARD_HOST: &str = "10.42.7.5";
const INTERNET_SERVER: &str = "198.51.100.1";

/// Returns the testbed with an IPv4-only host on board.
fn testbed_with_ipv4_network() -> Testbed {
    let bed = dual_stack_testbed();
    remove_ipv6(&bed, &[1]);
    bed.router.run_ip("-4 addr flush dev wlan0 scope global");
    bed.core.run_ip(&format!("route add {IPV4_PREFIX} via 198.51.100.2"));
    bed.host.run_ip("-6 addr flush dev eth0 scope global");
    bed.host.run_ip(&format!("addr add {ON_BOARD_HOST}/24 dev eth0"));
    bed.host.run_ip("route add default via 10.42.7.1");
    bed
}

/// Adds the IPv4 prefix to the config of the home agent or of the mobile router.
fn config_with_ipv4(config: &str) -> String {
    let prefixes = "prefixes = ['2001:db8:a::/64']\n";
    assert_eq!(config.matches(prefixes).count(), 1);
    config.replace(prefixes, &format!("{prefixes}ipv4_prefixes = ['{IPV4_PREFIX}']\n"))
}

fn start_with_section(bed: &Testbed, section: &str) -> (Station, Station) {
    start_with_changed_configs(
        bed,
        |config| config_with_ipv4(&config) + section,
        |config| config_with_ipv4(&config) + section,
    )
}

/// A TCP connection from the host on board, on which the server returns every octet.
struct TcpConnection {
    has_to_end: Arc<AtomicBool>,
    answered_rounds: Arc<AtomicU64>,
    client_thread: JoinHandle<Duration>,
}

impl TcpConnection {
    fn start(bed: &Testbed) -> TcpConnection {
        TcpConnection::start_to_server(bed, INTERNET_SERVER)
    }

    fn start_to_server(bed: &Testbed, server: &'static str) -> TcpConnection {
        let listener = bed.core.run_in_namespace(move || TcpListener::bind((server, 0)).expect("a listener"));
        let port = listener.local_addr().expect("bound").port();
        std::thread::spawn(move || {
            let (mut stream, peer) = listener.accept().expect("a connection");
            assert_eq!(
                peer.ip().to_string(),
                ON_BOARD_HOST,
                "no NAT before the home agent changes the address"
            );
            let mut octets = [0; 4096];
            while let Ok(length) = stream.read(&mut octets) {
                if length == 0 || stream.write_all(&octets[..length]).is_err() {
                    break;
                }
            }
        });
        let to = SocketAddr::from((server.parse::<Ipv4Addr>().expect("an address"), port));
        let mut stream = bed.host.run_in_namespace(move || {
            TcpStream::connect_timeout(&to, Duration::from_secs(10)).expect("a connection")
        });
        stream.set_read_timeout(Some(seconds(30))).expect("a timeout");
        let (ends, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (has_end, count) = (ends.clone(), rounds.clone());
        let client = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !has_end.load(Ordering::Relaxed) {
                // The data fills several TCP segments of full size.
                let number = count.load(Ordering::Relaxed) as u8;
                let sent = vec![number; 5000];
                let began = Instant::now();
                stream.write_all(&sent).expect("the connection holds");
                let mut back = vec![0; sent.len()];
                stream.read_exact(&mut back).expect("the connection holds");
                assert_eq!(back, sent);
                longest = longest.max(began.elapsed());
                count.fetch_add(1, Ordering::Relaxed);
            }
            longest
        });
        TcpConnection { has_to_end: ends, answered_rounds: rounds, client_thread: client }
    }

    /// Waits until the connection has carried further data in both directions.
    fn wait_until_data_flows(&self) {
        let before = self.answered_rounds.load(Ordering::Relaxed);
        wait_until("TCP flows", seconds(20), || self.answered_rounds.load(Ordering::Relaxed) > before + 10);
    }

    /// Ends the connection. Returns the longest time that passed before sent data came back.
    fn stop_and_get_longest_pause(self) -> Duration {
        self.has_to_end.store(true, Ordering::Relaxed);
        self.client_thread.join().expect("every octet came back")
    }
}

/// Checks that datagrams of every size pass in both directions, with DF and without.
fn check_packet_sizes_pass(bed: &Testbed) {
    for (from, to, source, destination) in [
        (&bed.host, &bed.core, ON_BOARD_HOST, INTERNET_SERVER),
        (&bed.core, &bed.host, INTERNET_SERVER, ON_BOARD_HOST),
    ] {
        let sender = from.run_in_namespace(move || UdpSocket::bind((source, 0)).expect("a socket"));
        let receiver = to.run_in_namespace(move || UdpSocket::bind((destination, 0)).expect("a socket"));
        let port = receiver.local_addr().expect("bound").port();
        receiver.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        for length in [1, 100, 1252, 1400, 1472, 4000] {
            wait_until(&format!("a datagram of {length} octets arrives"), seconds(20), || {
                // After "fragmentation needed" the kernel refuses one datagram, and fragments the next ones.
                let _ = sender.send_to(&vec![7; length], (destination, port));
                receiver.recv(&mut [0; 5000]).is_ok_and(|found| found == length)
            });
        }
    }
}

#[test]
fn ipv4_only_host_keeps_its_connections_over_ipv6_and_nat_uplinks() {
    if !can_run_or_report() {
        return;
    }
    for path in ["tun", "bpf"] {
        let bed = testbed_with_ipv4_network();
        let _nat = put_uplink_behind_nat(&bed, 1);
        // Some distributions set the reverse path filter to 1, so the stations must work with this value.
        for host in [&bed.router, &bed.agent] {
            host.run_in_namespace(|| {
                fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "1").expect("a switch")
            });
        }
        let before = bed.router.kernel_state();
        let (mut agent, mut router) = start_with_section(&bed, &format!("\n[dataplane]\npath = '{path}'\n"));
        wait_until("the host on board is reached", seconds(10), || bed.host.can_ping_ipv4(INTERNET_SERVER));
        assert!(bed.router.run_ip("-4 addr show dev lan0").contains("10.42.7.1/24"));
        let connection = TcpConnection::start(&bed);
        connection.wait_until_data_flows();
        check_packet_sizes_pass(&bed);
        for (uplink, kind) in [("wwan0", "udp"), ("wlan0", "ipv6")] {
            let output = router.run_command(&["handover", uplink]);
            assert!(output.status.success(), "{}", output_text(&output));
            wait_until("the agent knows", seconds(20), || first_tunnel(&agent).0 == kind);
            connection.wait_until_data_flows();
            assert!(
                bed.host.can_ping_ipv4(INTERNET_SERVER) && bed.core.can_ping_ipv4(ON_BOARD_HOST),
                "{kind}"
            );
            check_packet_sizes_pass(&bed);
        }
        // The first uplink loses its carrier.
        bed.core.run_ip("link set wlan down");
        wait_until("the other uplink carries IPv4", seconds(20), || first_tunnel(&agent).0 == "udp");
        connection.wait_until_data_flows();
        let longest = connection.stop_and_get_longest_pause();
        assert!(longest < seconds(15), "{path}: {longest:?}");
        for station in [&agent, &router] {
            assert_eq!(station.counter("tunnel.dropped.inner_source"), 0);
        }
        bed.core.run_ip("link set wlan up");
        router.terminate();
        let ipv4 = |text: &str| {
            text.split_once("== IPv4")
                .and_then(|(_, rest)| rest.split_once("== link"))
                .map(|it| it.0.to_owned())
        };
        assert_eq!(ipv4(&bed.router.kernel_state()), ipv4(&before), "nothing of carnet's is left");
        agent.terminate();
    }
}

/// The home agent neither sends nor accepts ICMP redirects of IPv4. When it ends, both settings have the
/// operator's values again, although the kernel changes one of them together with `forwarding`.
#[test]
fn home_agent_restores_settings_about_redirects() {
    if !can_run_or_report() {
        return;
    }
    let bed = testbed_with_ipv4_network();
    let setting = |of: &str| format!("/proc/sys/net/ipv4/conf/{of}_redirects");
    let value = |of: &str| {
        let path = setting(of);
        bed.agent.run_in_namespace(move || fs::read_to_string(path).expect("a setting")).trim().to_owned()
    };
    for former in ["0", "1"] {
        let path = setting("all/accept");
        bed.agent.run_in_namespace(move || fs::write(path, former).expect("a setting"));
        let mut agent = Station::start(&bed.agent, &config_with_ipv4(&bed.agent_config()));
        for of in ["all/accept", "all/send", "carnet0/send"] {
            wait_until(of, seconds(5), || value(of) == "0");
        }
        agent.terminate();
        let left = ["all/accept", "all/send", "default/send"].map(value);
        assert_eq!(left, [former, "1", "1"]);
    }
}

/// Address of a server in the operator's own network. The home agent uses no NAT for it.
const PRIVATE_SERVER: &str = "10.99.0.1";

/// Sends datagrams from the host on board to the private server, which returns each. Returns the number of
/// answers.
fn echoed_datagrams(bed: &Testbed, datagrams: usize) -> usize {
    let server = bed.core.run_in_namespace(|| UdpSocket::bind((PRIVATE_SERVER, 0)).expect("a socket"));
    let port = server.local_addr().expect("bound").port();
    server.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    let echo = std::thread::spawn(move || {
        let mut octets = [0; 2000];
        while let Ok((length, from)) = server.recv_from(&mut octets) {
            let _ = server.send_to(&octets[..length], from);
        }
    });
    let client = bed.host.run_in_namespace(|| UdpSocket::bind((ON_BOARD_HOST, 0)).expect("a socket"));
    client.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let mut answers = 0;
    for number in 0..datagrams {
        let sent = vec![number as u8; 1 + number % 1200];
        client.send_to(&sent, (PRIVATE_SERVER, port)).expect("a datagram");
        let mut back = [0; 2000];
        answers += usize::from(client.recv(&mut back).is_ok_and(|length| back[..length] == sent));
    }
    echo.join().expect("the echo ends");
    answers
}

/// Prepares the virtual links of a host for XDP: an interface accepts redirected frames only with GRO, and
/// its own frames must have complete checksums.
fn disable_offloads_for_xdp(host: &Host) {
    let links = host.run_ip("-o link show");
    let names = links.lines().filter_map(|line| line.split(": ").nth(1)?.split('@').next());
    for name in names.filter(|name| *name != "lo") {
        let output = host.run_program(&["ethtool", "-K", name, "gro", "on", "tx", "off"]);
        assert!(output.status.success(), "ethtool (Debian package ethtool): {}", output_text(&output));
    }
}

/// The fast path carries IPv4 in both directions: first inside IPv6, and after a move inside IPv4.
#[test]
fn ipv4_packets_on_board_take_the_fast_path_before_and_after_a_move() {
    if !can_run_or_report() {
        return;
    }
    for path in ["bpf", "xdp"] {
        let bed = testbed_with_ipv4_network();
        bed.core.run_ip(&format!("addr add {PRIVATE_SERVER}/32 dev ha"));
        // XDP programs can look up the routes of tunnels over IPv4 only while the uplink forwards IPv4.
        let forwarding = "/proc/sys/net/ipv4/conf/wwan0/forwarding";
        bed.router.run_in_namespace(move || fs::write(forwarding, "1").expect("a switch"));
        if path == "xdp" {
            [&bed.core, &bed.host, &bed.router, &bed.agent].into_iter().for_each(disable_offloads_for_xdp);
        }
        let (agent, router) = start_with_section(&bed, &format!("\n[dataplane]\npath = '{path}'\n"));
        for station in [&agent, &router] {
            wait_until("the path is in use", seconds(20), || station.show_json("tunnels")[0]["path"] == path);
        }
        for (uplink, kind) in [("wlan0", "ipv6"), ("wwan0", "ipv4")] {
            let output = router.run_command(&["handover", uplink]);
            assert!(output.status.success(), "{}", output_text(&output));
            wait_until("the agent knows", seconds(20), || first_tunnel(&agent).0 == kind);
            // These packets also make the kernel resolve the next hops.
            wait_until("IPv4 flows", seconds(20), || echoed_datagrams(&bed, 5) == 5);
            let count = |name: &str| [&router, &agent].map(|station| station.counter(name));
            let slow =
                || [&bed.router, &bed.agent].map(|host| segment_counts(host).0 + segment_counts(host).1);
            let before = (count("tunnel.encapsulated"), count("tunnel.decapsulated"), slow());
            let datagrams = 400;
            let answers = echoed_datagrams(&bed, datagrams);
            let after = (count("tunnel.encapsulated"), count("tunnel.decapsulated"), slow());
            println!("{path}, {kind}: {answers} answers; {before:?}, {after:?}");
            assert!(answers > datagrams - 20, "{path}, {kind}: {answers} of {datagrams}");
            for station in 0..2 {
                let carried = [after.0[station] - before.0[station], after.1[station] - before.1[station]];
                assert!(carried.iter().all(|number| *number > 380), "{path}, {kind}: {carried:?}");
                let by_slow = after.2[station] - before.2[station];
                assert!(by_slow < 40, "{path}, {kind}: {by_slow} packets took the slow path");
            }
            // TCP sends super packets (GSO), which the programs forward in one piece.
            let connection = TcpConnection::start_to_server(&bed, PRIVATE_SERVER);
            connection.wait_until_data_flows();
            connection.stop_and_get_longest_pause();
        }
        for station in [&agent, &router] {
            for reason in ["failed", "malformed", "inner_source"] {
                assert_eq!(station.counter(&format!("fast_path.left.{reason}")), 0, "{path}: {reason}");
            }
        }
        check_packet_sizes_pass(&bed);
        let connection = TcpConnection::start(&bed);
        connection.wait_until_data_flows();
        connection.stop_and_get_longest_pause();
    }
}

/// The second uplink has no NAT here, so its tunnel is IPv4 in IPv4 (protocol 4).
#[test]
fn ipv4_packets_travel_inside_plain_ipv4_without_a_nat() {
    if !can_run_or_report() {
        return;
    }
    let bed = testbed_with_ipv4_network();
    bed.router.run_ip("link set wlan0 down");
    let (agent, router) = start_with_section(&bed, "\n[dataplane]\npath = 'tun'\n");
    assert_eq!(first_tunnel(&router).0, "ipv4");
    wait_until("the host on board is reached", seconds(10), || bed.host.can_ping_ipv4(INTERNET_SERVER));
    check_packet_sizes_pass(&bed);
    let connection = TcpConnection::start(&bed);
    connection.wait_until_data_flows();
    connection.stop_and_get_longest_pause();
    assert_eq!(agent.counter("tunnel.dropped.inner_source"), 0);
}

/// Attacks: a host on board sends with a source of another network, and packets arrive that do not come from
/// the home agent.
#[test]
fn ipv4_packets_with_foreign_addresses_pass_in_no_direction() {
    if !can_run_or_report() {
        return;
    }
    let bed = testbed_with_ipv4_network();
    let (_agent, router) = start_with_section(&bed, "\n[dataplane]\npath = 'tun'\n");
    wait_until("the host on board is reached", seconds(10), || bed.host.can_ping_ipv4(INTERNET_SERVER));
    bed.host.run_ip("addr add 10.42.9.5/24 dev eth0");
    bed.core.run_ip("route add 10.42.9.0/24 via 198.51.100.2");
    let receiver = bed.core.run_in_namespace(|| UdpSocket::bind((INTERNET_SERVER, 0)).expect("a socket"));
    receiver.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    let port = receiver.local_addr().expect("bound").port();
    let from = |source: &'static str| {
        let socket = bed.host.run_in_namespace(move || UdpSocket::bind((source, 0)).expect("a socket"));
        let _ = socket.send_to(b"x", (INTERNET_SERVER, port));
        receiver.recv(&mut [0; 10]).is_ok()
    };
    assert!(from(ON_BOARD_HOST) && !from("10.42.9.5"));
    // The core sends packets for the mobile network straight into the visited network, past the home agent.
    bed.core.run_ip("route replace 10.42.7.0/24 via 203.0.113.10 dev wwan");
    assert!(!bed.core.can_ping_ipv4(ON_BOARD_HOST));
    bed.core.run_ip("route replace 10.42.7.0/24 via 198.51.100.2");
    assert!(bed.core.can_ping_ipv4(ON_BOARD_HOST));
    assert_eq!(router.mobile_router_state(), "registered");
}

/// The inbound filter also protects the IPv4 network. Only packets of connections that the host began pass,
/// and pings if the config permits them.
#[test]
fn inbound_filter_protects_ipv4_hosts() {
    if !can_run_or_report() {
        return;
    }
    let bed = testbed_with_ipv4_network();
    let shut = |config: &str, keys: &str| {
        let table = format!("\n[[mobile_router.lan]]\ninterface = 'lan0'\n{keys}\n");
        config_with_ipv4(config).replace("lan = ['lan0']\n", "") + &table
    };
    let (_agent, router) = start_with_changed_configs(
        &bed,
        |config| config_with_ipv4(&config),
        |config| shut(&config, "dhcp_enabled = false"),
    );
    wait_until("the host on board reaches the server", seconds(10), || {
        bed.host.can_ping_ipv4(INTERNET_SERVER)
    });
    assert!(!bed.core.can_ping_ipv4(ON_BOARD_HOST));
    let connection = TcpConnection::start(&bed);
    connection.wait_until_data_flows();
    connection.stop_and_get_longest_pause();
    let text = fs::read_to_string(&router.config_file).expect("a config");
    let allow = "dhcp_enabled = false\nallow = [{ protocol = 'icmp', to = ['10.42.7.5'] }]\n";
    router.reload(&text.replace("dhcp_enabled = false\n", allow));
    wait_until("the exception passes", seconds(10), || bed.core.can_ping_ipv4(ON_BOARD_HOST));
}

/// The home agent's config does not permit the IPv4 prefix of the router, so the home agent refuses this
/// prefix. IPv6 continues, and the host on board gets an ICMP error at once.
#[test]
fn router_with_refused_ipv4_prefix_still_forwards_ipv6() {
    if !can_run_or_report() {
        return;
    }
    let bed = testbed_with_ipv4_network();
    bed.host.run_ip("-6 addr add 2001:db8:a::10/64 dev eth0");
    let (agent, router) =
        start_with_changed_configs(&bed, |config| config, |config| config_with_ipv4(&config));
    assert_eq!(router.mobile_router_state(), "registered");
    assert!(!bed.host.can_ping_ipv4(INTERNET_SERVER));
    wait_until("IPv6 flows", seconds(10), || bed.host.can_ping(crate::testbed::CORRESPONDENT));
    wait_until("the log says so", seconds(10), || {
        router.log_text().contains("no tunnel for the IPv4 prefix 10.42.7.0/24")
    });
    assert!(router.log_text().contains("prefix allocation unauthorized"), "{}", router.log_text());
    let status = output_text(&router.run_command(&["status"]));
    assert!(status.contains("10.42.7.0/24: refused with status 133"), "{status}");
    // The operator adds the prefix to the home agent's config. The next Binding Update registers it.
    let address = "address = '2001:db8:1::1'\n";
    let config = bed.agent_config().replace(address, &format!("{address}ipv4_address = '198.51.100.2'\n"));
    agent.reload(&config_with_ipv4(&config));
    let output = router.run_command(&["handover", "wlan0"]);
    assert!(output.status.success(), "{}", output_text(&output));
    wait_until("the host on board is reached", seconds(60), || bed.host.can_ping_ipv4(INTERNET_SERVER));
}
