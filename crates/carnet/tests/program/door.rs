//! The door of the mobile network. From outside, hosts get only packets of connections that they began. This
//! holds on each data path, and also while carnet is dead.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::hosts::{Host, possible, said, seconds, wait_until};
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, INSIDE, Testbed, address};
use crate::traffic::{Cannon, PORT as ECHO_PORT, Sniffer};

/// Number of packets of an attack.
const ATTACK: usize = 10_000;
/// Port that the test's exception permits.
const OPEN: u16 = 4433;

/// Returns the config with a table for `lan0`, and a data path.
pub fn with_table(bed: &Testbed, keys: &str, path: &str) -> String {
    format!("{}{keys}\n[dataplane]\npath = '{path}'\n", with_plain_table(bed))
}

/// Returns the router's config with a table for the interface on board, on the data path of this run.
fn with_plain_table(bed: &Testbed) -> String {
    let config = bed.router_config().replace("lan = ['lan0']\n", "");
    format!("{config}\n[[mobile_router.lan]]\ninterface = 'lan0'\n")
}

/// Returns an IPv6 packet.
fn packet(from: Ipv6Addr, to: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next_header, 64]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(payload);
    packet
}

fn udp(from: u16, to: u16) -> Vec<u8> {
    [&from.to_be_bytes()[..], &to.to_be_bytes(), &[0, 12, 1, 1], b"door"].concat()
}

fn tcp(from: u16, to: u16, flags: u8) -> Vec<u8> {
    let ports = [from.to_be_bytes(), to.to_be_bytes()].concat();
    [&ports[..], &[0, 0, 0, 9, 0, 0, 0, 9, 0x50, flags, 0xff, 0xff, 1, 1, 0, 0]].concat()
}

/// Returns the packet with this number of an attack from `from`: TCP with any flags, UDP, ICMPv6 messages and
/// errors, ESP, SCTP, tunnels, extension headers, fragments, unknown protocols.
fn attack(number: usize, from: Ipv6Addr, to: Ipv6Addr) -> Vec<u8> {
    let (low, high) = (number as u8, (number >> 8) as u16);
    let port = 1024 + number as u16;
    // A packet that the host on board could have sent, which ICMP errors of the attack quote.
    let inner = packet(to, from, 17, &udp(port, 53));
    let icmp = |kind: u8, rest: &[u8]| [&[kind, 0, 1, 1, 0, 0, 5, 0], rest].concat();
    match number % 16 {
        0 => packet(from, to, 17, &udp(port, high)),
        1 => packet(from, to, 6, &tcp(port, 443, 0x02)),
        2 => packet(from, to, 6, &tcp(443, port, low)),
        3 => packet(from, to, 58, &icmp(128, &[1, 2, 3, 4])),
        4 => packet(from, to, 58, &icmp(129, &[1, 2, 3, 4])),
        5 => packet(from, to, 58, &icmp(1 + low / 16 % 4, &inner)),
        6 => packet(from, to, 58, &icmp(low, &inner)),
        7 => packet(from, to, 50, &[low; 24]),
        8 => packet(from, to, 132, &[&port.to_be_bytes()[..], &[1, 187, 0, 0, 0, 0, 1, 1, 1, 1]].concat()),
        9 => packet(from, to, 41, &inner),
        10 => packet(from, to, 44, &[&[17, 0, 0, 0, 0, 0, high as u8, low], &udp(port, 53)[..]].concat()),
        11 => packet(from, to, 44, &[&[17, 0, 0, 8, 0, 0, high as u8, low], &[low; 16][..]].concat()),
        12 => packet(from, to, 60, &[&[17, 0, 1, 4, 0, 0, 0, 0], &udp(53, port)[..]].concat()),
        13 => packet(from, to, 0, &[&[6, 0, 1, 4, 0, 0, 0, 0], &tcp(port, 22, 0x12)[..]].concat()),
        14 => packet(from, to, 135, &[59, 0, low % 9, 0, 0, 0, 0, 0]),
        _ => packet(from, to, 64 + low % 190, &[low; 40]),
    }
}

/// Sends `count` packets of the attack from the core, with a pause after every hundred packets so that no
/// queue overflows.
fn fire(bed: &Testbed, count: usize) {
    let (from, to) = (address(CORRESPONDENT), address(INSIDE));
    let cannon = Cannon::new(&bed.core);
    for number in 0..count {
        cannon.fire(&attack(number, from, to), to, 0);
        if number % 100 == 99 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// Returns the captured packets from the correspondent.
fn from_outside(sniffer: Sniffer) -> Vec<Vec<u8>> {
    std::thread::sleep(seconds(1));
    let source = address(CORRESPONDENT).octets();
    sniffer.stop().into_iter().filter(|packet| packet.get(8..24) == Some(&source[..])).collect()
}

pub fn nft(host: &Host, words: &str) -> String {
    let words: Vec<&str> = ["nft"].into_iter().chain(words.split_whitespace()).collect();
    let output = host.output(&words);
    assert!(output.status.success(), "{words:?}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the number of packets that the door has refused.
fn refused(router: &Host) -> u64 {
    let table = nft(router, "list table inet carnet_rules");
    let line = table.lines().find(|line| line.contains("counter packets")).expect("a counting rule");
    let mut words = line.split_whitespace().skip_while(|word| *word != "packets");
    words.nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

fn holds(path: &str) {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let allow = format!("allow = [{{ protocol = 'udp', ports = [{OPEN}], to = ['{INSIDE}'] }}]");
    let config = with_table(&bed, &allow, path);
    let _agent = Station::start(&bed.agent, &bed.agent_config());
    let mut router = Station::start(&bed.router, &config);
    router.registered();
    router.accelerated();
    let lan = router.show("lan")[0].clone();
    let exception = serde_json::json!([{"protocol": "udp", "ports": [OPEN.to_string()], "to": [INSIDE]}]);
    assert_eq!((&lan["inbound"], &lan["allow"]), (&"established".into(), &exception), "{lan}");
    let echo = bed.echo(100);
    echo.flows();
    assert!(bed.host.pings(CORRESPONDENT) && !bed.core.pings(INSIDE));

    let sniffer = Sniffer::start(&bed.host, &["eth0"]);
    fire(&bed, ATTACK);
    // Packets from the echo server belong to a conversation that the host on board began.
    let began = |packet: &[u8]| packet[6] == 17 && packet[40..42] == ECHO_PORT.to_be_bytes();
    let passed: Vec<_> = from_outside(sniffer).into_iter().filter(|packet| !began(packet)).collect();
    assert!(passed.is_empty(), "{} packets pass on {path}: {:02x?}", passed.len(), passed[0]);
    // The home agent already drops packets that no tunnel may carry.
    let stopped = refused(&bed.router);
    assert!(stopped as usize > ATTACK / 2, "the door has seen {stopped} packets");
    if path != "tun" && router.show("status")["dataplane"] == path {
        assert!(router.counter("fast_path.left.filter") > 100, "{path}");
    }
    echo.flows();

    // From now on, the test attacks a door with the exception.
    let sniffer = Sniffer::start(&bed.host, &["eth0"]);
    let cannon = Cannon::new(&bed.core);
    let open = packet(address(CORRESPONDENT), address(INSIDE), 17, &udp(5, OPEN));
    assert!(cannon.fire(&open, address(INSIDE), 0));
    let is_open = |packet: &Vec<u8>| packet.get(42..44) == Some(&OPEN.to_be_bytes()[..]);
    wait_until("the exception passes", seconds(5), || sniffer.heard().iter().any(is_open));
    drop(sniffer.stop());
    let report = echo.stop();
    assert_eq!(report.lost, 0, "{report:?}");

    // The station is dead, and an attacker on the access network sends packets past the home agent. Only the
    // door protects the hosts, because the test removes the routing rules.
    router.end_by(Signal::SIGKILL);
    for priority in [115, 120, 140, 145] {
        while bed.router.output(&["ip", "-6", "rule", "del", "pref", &priority.to_string()]).status.success()
        {
        }
    }
    bed.core.ip("-6 route replace 2001:db8:a::/64 via 2001:db8:f1::10");
    bed.router.ip("-6 route add 2001:db8:a::/64 dev lan0 metric 1");
    bed.router.ip("-6 route get 2001:db8:a::10 from 2001:db8:c::1 iif wlan0");
    let before = refused(&bed.router);
    let sniffer = Sniffer::start(&bed.host, &["eth0"]);
    fire(&bed, ATTACK);
    let passed = from_outside(sniffer);
    assert!(passed.is_empty(), "{} packets pass a dead station", passed.len());
    assert!(refused(&bed.router) > before + ATTACK as u64 / 4, "{}", refused(&bed.router));
    bed.core.ip("-6 route replace 2001:db8:a::/64 via 2001:db8:f0::2");

    // The station starts again.
    let sniffer = Sniffer::start(&bed.host, &["eth0"]);
    let mut router = Station::start(&bed.router, &config);
    fire(&bed, ATTACK / 2);
    router.registered();
    router.accelerated();
    fire(&bed, ATTACK / 2);
    let passed = from_outside(sniffer);
    assert!(passed.is_empty(), "{} packets pass after the start", passed.len());

    // A rule of the operator in another nftables table also applies to packets that the door passes.
    wait_until("a ping", seconds(10), || bed.host.pings(CORRESPONDENT));
    nft(&bed.router, "add table inet op");
    nft(&bed.router, "add chain inet op f { type filter hook forward priority 0 ; }");
    nft(&bed.router, "add rule inet op f meta l4proto icmpv6 counter drop");
    assert!(!bed.host.pings(CORRESPONDENT));
    assert!(nft(&bed.router, "list table inet op").contains("counter packets 1 "));
    nft(&bed.router, "delete table inet op");
    assert!(bed.host.pings(CORRESPONDENT));

    // Another program deletes all nftables rules, including those of the door.
    nft(&bed.router, "flush ruleset");
    wait_until("the table is back", seconds(5), || nft(&bed.router, "list tables").contains("carnet_rules"));
    assert!(!bed.core.pings(INSIDE));
    router.terminate();
    assert_eq!(nft(&bed.router, "list tables"), "");
}

#[test]
fn door_holds_on_the_slow_path_and_while_carnet_is_dead() {
    holds("tun");
}

#[test]
fn door_holds_with_bpf_programs_and_while_carnet_is_dead() {
    holds("bpf");
}

#[test]
fn door_holds_with_xdp_programs_and_while_carnet_is_dead() {
    holds("xdp");
}

#[test]
fn open_door_has_no_rules_and_a_warning() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let (_agent, router) = bed.start();
    wait_until("a ping from outside", seconds(10), || bed.core.pings(INSIDE));
    assert_eq!(nft(&bed.router, "list tables"), "");
    assert!(router.log().contains("everyone outside reaches the hosts on lan0"), "{}", router.log());
    let lan = router.show("status")["mobile_router"]["lan"][0].clone();
    assert_eq!((&lan["inbound"], &lan["isolated"]), (&"any".into(), &false.into()), "{lan}");
    assert_eq!(router.show("lan")[0]["inbound"], "any");
    // After a reload with `inbound = "established"`, the door is shut.
    router.reload(&with_plain_table(&bed));
    assert!(!bed.core.pings(INSIDE), "{}", router.log());
    wait_until("a ping", seconds(10), || bed.host.pings(CORRESPONDENT));
    assert_eq!(router.show("status")["mobile_router"]["lan"][0]["inbound"], "established");
}

/// Timeout of connection tracking for a flow without packets, in seconds. The kernel's values are 2 minutes
/// for UDP, and 5 days for TCP.
const FORGOTTEN_AFTER: u64 = 4;
/// Number of rests of a flow. All rests together are twice as long as the timeout.
const RESTS: usize = 4;

/// A UDP flow and a TCP connection that a host on board has begun to the correspondent.
struct Flows {
    host_udp: UdpSocket,
    server_udp: UdpSocket,
    host_tcp: TcpStream,
    server_tcp: TcpStream,
}

impl Flows {
    fn begin(bed: &Testbed) -> Flows {
        let server = (address(CORRESPONDENT), 0);
        let (server_udp, listener) = bed.core.run(move || {
            (UdpSocket::bind(server).expect("a socket"), TcpListener::bind(server).expect("a listener"))
        });
        let to = server_udp.local_addr().expect("an address");
        let to_listener = listener.local_addr().expect("an address");
        let (host_udp, host_tcp) = bed.host.run(move || {
            let socket = UdpSocket::bind((address(INSIDE), 0)).expect("a socket");
            socket.connect(to).expect("connected");
            (socket, TcpStream::connect(to_listener).expect("a connection"))
        });
        let (server_tcp, _) = listener.accept().expect("a connection");
        let flows = Flows { host_udp, server_udp, host_tcp, server_tcp };
        flows.patience(seconds(20));
        flows.host_sends();
        let mut buffer = [0; 8];
        let (_, from) = flows.server_udp.recv_from(&mut buffer).expect("the host's datagram");
        flows.server_udp.connect(from).expect("connected");
        flows
    }

    /// Sets how long the ends wait for data.
    fn patience(&self, time: Duration) {
        for socket in [&self.host_udp, &self.server_udp] {
            socket.set_read_timeout(Some(time)).expect("a timeout");
        }
        for stream in [&self.host_tcp, &self.server_tcp] {
            stream.set_read_timeout(Some(time)).expect("a timeout");
            stream.set_nodelay(true).expect("an option");
        }
    }

    fn host_sends(&self) {
        self.host_udp.send(b"host").expect("sent");
        (&self.host_tcp).write_all(b"host").expect("sent");
    }

    fn server_sends(&self) {
        self.server_udp.send(b"serv").expect("sent");
        (&self.server_tcp).write_all(b"serv").expect("sent");
    }

    /// Returns whether the host receives what the server has sent in each flow.
    fn host_receives(&self) -> (bool, bool) {
        let mut buffer = [0; 4];
        // The end of a child of another test may interrupt the call.
        let received = std::iter::repeat_with(|| self.host_udp.recv(&mut buffer))
            .find(|received| !matches!(received, Err(error) if error.kind() == ErrorKind::Interrupted));
        let datagram = match received.expect("an endless iterator") {
            Ok(length) => length == 4 && buffer == *b"serv",
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
                false
            }
        };
        let data = match (&self.host_tcp).read_exact(&mut buffer) {
            Ok(()) => buffer == *b"serv",
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
                false
            }
        };
        (datagram, data)
    }
}

/// The flows rest several times for less than the timeout, and for twice the timeout in all: they go on.
/// After a longer rest, the door refuses packets of the correspondent until the host sends.
#[test]
fn idle_flows_pass_the_door_until_the_kernel_forgets_them() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let _agent = Station::start(&bed.agent, &bed.agent_config());
    for name in ["udp_timeout", "udp_timeout_stream", "tcp_timeout_established"] {
        let setting = format!("net.netfilter.nf_conntrack_{name}={FORGOTTEN_AFTER}");
        let output = bed.router.output(&["sysctl", "-qw", &setting]);
        assert!(output.status.success(), "{}", said(&output));
    }
    let mut router = Station::start(&bed.router, &with_table(&bed, "", "tun"));
    router.registered();
    wait_until("a ping", seconds(10), || bed.host.pings(CORRESPONDENT));
    let flows = Flows::begin(&bed);
    let (mut rests, began) = (0, Instant::now());
    while rests < RESTS {
        assert!(began.elapsed() < seconds(300), "the machine is too busy for this test");
        flows.host_sends();
        let resting = Instant::now();
        std::thread::sleep(seconds(FORGOTTEN_AFTER) / 2);
        flows.server_sends();
        // On a busy machine the rest may be too long, and shows nothing.
        if resting.elapsed() < seconds(FORGOTTEN_AFTER) * 3 / 4 {
            assert_eq!(flows.host_receives(), (true, true), "after rest {rests}");
            rests += 1;
        } else {
            flows.host_sends();
            flows.host_receives();
        }
    }
    assert!(began.elapsed() >= seconds(FORGOTTEN_AFTER) * 2, "{:?}", began.elapsed());

    std::thread::sleep(seconds(FORGOTTEN_AFTER + 1));
    let before = refused(&bed.router);
    flows.patience(seconds(1));
    flows.server_sends();
    assert_eq!(flows.host_receives(), (false, false), "after the timeout");
    assert!(refused(&bed.router) >= before + 2, "the door has refused {}", refused(&bed.router) - before);

    flows.patience(seconds(60));
    flows.host_sends();
    // The datagram was lost, and TCP sends its data again.
    flows.server_udp.send(b"serv").expect("sent");
    assert_eq!(flows.host_receives(), (true, true), "after the host has sent again");
    router.terminate();
}
