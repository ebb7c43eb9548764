//! Encrypted sessions between the real programs: signalling and traffic over IPv6 and IPv4, handover,
//! captures on the uplinks, and packets of strangers.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::hosts::{possible, seconds, slowness, wait_until};
use crate::ipv4::{dual, identified, without_ipv6};
use crate::station::{PROGRAM, Station, carnet};
use crate::testbed::{
    CARE_OF, CORRESPONDENT, HOME_ADDRESS, HOME_AGENT, INSIDE, Testbed, address, with_station,
};
use crate::traffic::{Cannon, Sniffer};

const AUTH: &str = "auth = { spi = 300, key = '000102030405060708090a0b0c0d0e0f' }";
/// Octets that the test sends through the tunnel and looks for in captures.
const MARKER: &[u8] = b"MARKER-of-the-payload-0123456789";
const TUNNEL_PORT: u16 = 51820;

/// Makes a key pair. Returns the path of the private key and the public key.
fn key(bed: &Testbed, name: &str) -> (String, String) {
    let path = bed.scratch.path(name).display().to_string();
    let made = carnet(&["key", "--out", &path]);
    assert!(made.status.success(), "{made:?}");
    (path, String::from_utf8(made.stdout).expect("text").trim().to_owned())
}

fn in_state_dir(bed: &Testbed, config: &str) -> String {
    with_station(config, &format!("state_dir = '{}'", bed.scratch.path("").display()))
}

/// Returns the configs of home agent and mobile router with key pairs.
fn with_keys(bed: &Testbed) -> (String, String) {
    let (agent_file, agent_key) = key(bed, "agent.key");
    let (router_file, router_key) = key(bed, "router.key");
    let agent = bed.agent_config().replace(AUTH, &format!("auth = {{ public_key = '{router_key}' }}"));
    let router = bed.router_config().replace(AUTH, &format!("home_agent_key = '{agent_key}'"));
    let agent = with_station(&in_state_dir(bed, &agent), &format!("private_key_file = '{agent_file}'"));
    let router = with_station(&in_state_dir(bed, &router), &format!("private_key_file = '{router_file}'"));
    (agent, router)
}

/// Checks that captured packets between mobile router and home agent are WireGuard's messages alone, and
/// returns the number of data messages.
fn only_sessions(
    packets: &[Vec<u8>],
    is_end: impl Fn(&[u8]) -> bool,
    header: usize,
    protocol: usize,
) -> usize {
    let (mut data, mut types) = (0, [0; 5]);
    for packet in packets {
        assert!(!packet.windows(16).any(|octets| octets == &MARKER[..16]), "the marker is in the clear");
        if !is_end(packet) {
            continue;
        }
        assert_eq!(packet[protocol], 17, "not UDP: {packet:02x?}");
        let message = &packet[header + 8..];
        let kind = usize::from(message[0]);
        let lengths = [0, 148, 92, 64, message.len()];
        assert!((1..=4).contains(&kind) && message[1..4] == [0; 3], "{message:02x?}");
        assert_eq!(message.len(), lengths[kind], "type {kind}");
        types[kind] += 1;
        data += usize::from(kind == 4);
    }
    println!("messages by type: {types:?}");
    data
}

fn in_ipv6(packet: &[u8]) -> bool {
    let agent = address(HOME_AGENT).octets();
    packet[8..24] == agent || packet[24..40] == agent
}

/// Sends packets with the marker in both directions.
fn send_marked(bed: &Testbed) {
    for (from, source, to, destination) in
        [(&bed.host, INSIDE, &bed.core, CORRESPONDENT), (&bed.core, CORRESPONDENT, &bed.host, INSIDE)]
    {
        let socket = |at: &'static str| move || UdpSocket::bind((address(at), 0)).expect("a socket");
        let (sender, receiver) = (from.run(socket(source)), to.run(socket(destination)));
        let port = receiver.local_addr().expect("bound").port();
        receiver.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        for length in [MARKER.len(), 1000, 1340] {
            let content: Vec<u8> = MARKER.iter().copied().cycle().take(length).collect();
            wait_until(&format!("a datagram of {length} octets arrives"), seconds(20), || {
                let _ = sender.send_to(&content, (address(destination), port));
                let mut found = [0; 2000];
                receiver.recv(&mut found).is_ok_and(|count| found[..count] == content)
            });
        }
    }
}

#[test]
fn signalling_and_traffic_over_ipv6_are_encrypted() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router) = with_keys(&bed);
    let sniffer = Sniffer::start(&bed.core, &["wlan", "wwan", "ha"]);
    let agent = Station::start(&bed.agent, &agent);
    let router = Station::start(&bed.router, &router);
    router.registered();
    assert_eq!(agent.bindings()[0].1, CARE_OF[0]);
    send_marked(&bed);
    let packets = sniffer.stop();
    // Packets of the correspondent and of hosts in the mobile network cross `ha` beside the tunnel.
    let tunnelled: Vec<Vec<u8>> = packets.into_iter().filter(|packet| in_ipv6(packet)).collect();
    assert!(only_sessions(&tunnelled, in_ipv6, 40, 6) > 10);
    for station in [&agent, &router] {
        let tunnels = station.show("tunnels");
        assert_eq!(tunnels[0]["encryption"], "encrypted", "{tunnels}");
        assert_eq!(tunnels[0]["path"], "tun", "{tunnels}");
        assert_eq!(tunnels[0]["mtu"], 1392, "{tunnels}");
    }
}

#[test]
fn traffic_over_ipv4_alone_is_encrypted() {
    if !possible() {
        return;
    }
    let bed = dual();
    without_ipv6(&bed, &[0, 1]);
    let (agent, router) = with_keys(&bed);
    let at_agent = format!("address = '{HOME_AGENT}'\n");
    let agent = agent.replace(&at_agent, &format!("{at_agent}ipv4_address = '198.51.100.2'\n"));
    let at_router = format!("home_agent = '{HOME_AGENT}'\n");
    let router = router.replace(&at_router, &format!("{at_router}home_agent_ipv4 = '198.51.100.2'\n"));
    // Both ends also have a preshared key.
    let (shared, _) = key(&bed, "shared.key");
    let psk = format!("preshared_key_file = '{shared}'");
    let agent = agent.replace("public_key = ", &format!("{psk}, public_key = "));
    let router = router.replace("home_agent_key = ", &format!("{psk}\nhome_agent_key = "));
    assert!(agent.contains(&psk) && router.contains(&psk));
    let sniffer = Sniffer::start_for(&bed.core, &["wlan", "wwan", "ha"], 4);
    let agent = Station::start(&bed.agent, &agent);
    let router = Station::start(&bed.router, &router);
    router.registered();
    send_marked(&bed);
    let packets = sniffer.stop();
    let is_end = |packet: &[u8]| packet[12..16] == [198, 51, 100, 2] || packet[16..20] == [198, 51, 100, 2];
    assert!(only_sessions(&packets, is_end, 20, 9) > 10);
    for station in [&agent, &router] {
        let tunnels = station.show("tunnels");
        assert_eq!(tunnels[0]["encryption"], "encrypted", "{tunnels}");
        assert_eq!(tunnels[0]["mtu"], 1424, "{tunnels}");
    }
}

#[test]
fn handover_by_order_loses_no_packet() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router) = with_keys(&bed);
    let agent = Station::start(&bed.agent, &agent);
    let router = Station::start(&bed.router, &identified(router));
    router.registered();
    wait_until("both uplinks are registered", seconds(20), || agent.bindings().len() == 2);
    let sniffer = Sniffer::start(&bed.core, &["wlan", "wwan"]);
    let traffic = bed.echo(1000);
    traffic.flows();
    for uplink in ["wwan0", "wlan0", "wwan0"] {
        let answer = router.ask(&["handover", uplink]);
        assert!(answer.status.success(), "{answer:?}");
        traffic.flows();
        std::thread::sleep(Duration::from_millis(700));
    }
    let report = traffic.stop();
    println!("handovers by order: {} packets, longest silence {:?}", report.sent, report.silence);
    assert_eq!(report.lost, 0, "{report:?}");
    // Beside the tunnel, the uplinks carry only packets of the link: Neighbor Discovery, Multicast Listener
    // Discovery.
    let packets = sniffer.stop();
    let is_of_link = |packet: &Vec<u8>| {
        let is_nd = packet[6] == 58 && packet[7] == 255;
        is_nd || packet[8..10] == [0xfe, 0x80] || packet[8..24] == [0; 16] || packet[24] == 0xff
    };
    let other = packets.iter().find(|packet| !is_of_link(packet) && !in_ipv6(packet));
    assert_eq!(other, None, "a packet past the tunnel");
    assert!(only_sessions(&packets, in_ipv6, 40, 6) > 1000);
}

/// A cable that is pulled: the router leaves the uplink, whose session is then unused.
#[test]
fn router_leaves_a_dead_uplink() {
    if !possible() {
        return;
    }
    for is_encrypted in [false, true] {
        let bed = Testbed::new();
        let (agent, router) = match is_encrypted {
            true => with_keys(&bed),
            // The same state directory: a Binding Update waits for the disk at either end.
            false => (in_state_dir(&bed, &bed.agent_config()), in_state_dir(&bed, &bed.router_config())),
        };
        let agent = Station::start(&bed.agent, &agent);
        let router = Station::start(&bed.router, &identified(router));
        router.registered();
        wait_until("both uplinks are registered", seconds(20), || agent.bindings().len() == 2);
        let traffic = bed.echo(200);
        traffic.flows();
        bed.core.ip("link set wlan down");
        traffic.flows();
        let report = traffic.stop();
        println!("dead uplink, encrypted {is_encrypted}: silence {:?}, lost {}", report.silence, report.lost);
        assert!(report.silence < Duration::from_millis(150) * slowness(), "{report:?}");
    }
}

/// The home agent has lost its sessions. The router notices it by missing answers.
#[test]
fn router_gets_back_to_a_home_agent_that_has_restarted() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let (agent_config, router) = with_keys(&bed);
    let mut agent = Station::start(&bed.agent, &agent_config);
    let router = Station::start(&bed.router, &identified(router));
    router.registered();
    let traffic = bed.echo(200);
    traffic.flows();
    agent.end_by(Signal::SIGKILL);
    let agent = Station::start(&bed.agent, &agent_config);
    let start = std::time::Instant::now();
    traffic.flows();
    println!("traffic flows {:?} after the home agent was back", start.elapsed());
    assert!(!agent.bindings().is_empty());
    traffic.stop();
    assert_eq!(router.state(), "registered");
}

/// The home agent answers no packet at its port that comes from a sender without a key.
#[test]
fn strangers_get_no_answer() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let (agent_config, router) = with_keys(&bed);
    let agent = Station::start(&bed.agent, &agent_config);
    let (_, stranger) = key(&bed, "stranger.key");
    assert!(!agent_config.contains(&stranger));
    let sniffer = Sniffer::start(&bed.core, &["ha"]);
    let sender = bed.core.run(|| UdpSocket::bind((address(CORRESPONDENT), 0)).expect("a socket"));
    for round in 0..200u32 {
        for (kind, length) in [(1, 148), (2, 92), (3, 64), (4, 128), (4, 32), (1, 147), (0, 20), (9, 1300)] {
            let mut content: Vec<u8> = (0..length).map(|at| (at as u32 * 31 + round) as u8).collect();
            content[..4].copy_from_slice(&[kind, 0, 0, 0]);
            let _ = sender.send_to(&content, (address(HOME_AGENT), TUNNEL_PORT));
        }
    }
    // A router with a wrong key: the home agent does not answer it either.
    let wrong = router
        .replace(&format!("private_key_file = '{}'", bed.scratch.path("router.key").display()), &{
            format!("private_key_file = '{}'", bed.scratch.path("stranger.key").display())
        });
    assert_ne!(wrong, router);
    let router = Station::spawn(&bed.router, &wrong, &[], PROGRAM);
    wait_until("the router says that nothing answers", seconds(30), || {
        router.log().contains("no answer: key, clock or path")
    });
    let answers: Vec<Vec<u8>> =
        sniffer.stop().into_iter().filter(|packet| packet[8..24] == address(HOME_AGENT).octets()).collect();
    assert_eq!(answers, Vec::<Vec<u8>>::new());
    assert!(agent.bindings().is_empty());
    assert!(agent.counter("session.dropped.mac") + agent.counter("session.dropped.unknown_key") > 200);
}

/// A Binding Update in the clear, or a tunnel packet in the clear, does not pass for one of the session.
#[test]
fn packets_in_the_clear_are_refused_for_a_router_with_a_key() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router) = with_keys(&bed);
    let agent = Station::start(&bed.agent, &agent);
    let router = Station::start(&bed.router, &router);
    router.registered();
    send_marked(&bed);
    // From the router's care-of address, in the clear: IPv6 in IPv6.
    let header = |next_header, length: u8, source, destination| {
        let octets = |text| address(text).octets();
        [&[0x60, 0, 0, 0, 0, length, next_header, 64][..], &octets(source), &octets(destination)].concat()
    };
    let inner = [header(59, 8, INSIDE, CORRESPONDENT), vec![7; 8]].concat();
    let packet = [header(41, 48, CARE_OF[0], HOME_AGENT), inner].concat();
    let cannon = Cannon::new(&bed.router);
    let before = agent.counter("tunnel.dropped.not_in_session");
    wait_until("the packet is dropped", seconds(10), || {
        assert!(cannon.fire(&packet, address(HOME_AGENT), 0));
        agent.counter("tunnel.dropped.not_in_session") > before
    });
    assert_eq!(agent.bindings()[0].0, HOME_ADDRESS);
}

/// A restarted router begins with a later timestamp than before.
#[test]
fn restarted_router_registers_again() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router_config) = with_keys(&bed);
    let agent = Station::start(&bed.agent, &agent);
    let mut router = Station::start(&bed.router, &router_config);
    router.registered();
    router.terminate();
    let stored = fs::read_to_string(bed.scratch.path("router.sessions")).expect("the timestamps");
    assert!(stored.contains("newest"), "{stored}");
    let router = Station::start(&bed.router, &router_config);
    router.registered();
    assert!(!agent.bindings().is_empty());
}

#[test]
fn open_key_file_is_refused() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let (agent, _) = with_keys(&bed);
    fs::set_permissions(bed.scratch.path("agent.key"), fs::Permissions::from_mode(0o644)).expect("a mode");
    let file = bed.scratch.path("open.toml");
    fs::write(&file, &agent).expect("a config");
    let checked = carnet(&["check", &file.display().to_string()]);
    let said =
        String::from_utf8_lossy(&checked.stderr).into_owned() + &String::from_utf8_lossy(&checked.stdout);
    assert!(!checked.status.success() && said.contains("expected mode 0600 (chmod 600)"), "{said}");
}

/// The recording has the packets that came out of sessions, so a replay gives the same outputs.
#[test]
fn recording_with_sessions_replays() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router) = with_keys(&bed);
    let recording = bed.scratch.path("router.jsonl").display().to_string();
    let config = with_station(&router, &format!("record = '{recording}'"));
    let _agent = Station::start(&bed.agent, &agent);
    let mut router = Station::start(&bed.router, &config);
    router.registered();
    wait_until("traffic flows", seconds(10), || bed.host.pings(CORRESPONDENT));
    router.terminate();
    let config = router.config.display().to_string();
    let replay = || carnet(&["replay", "--config", &config, &recording]);
    let first = replay();
    assert!(first.status.success(), "{first:?}");
    assert_eq!(first.stdout, replay().stdout);
    let outputs = String::from_utf8(first.stdout).expect("text");
    assert!(outputs.contains("\"registered\"") && outputs.contains("\"session\""), "{outputs}");
}
