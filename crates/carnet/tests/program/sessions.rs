//! Encrypted sessions between the real programs: signalling and traffic over IPv6 and IPv4, handover,
//! captures on the uplinks, and packets of senders without a key.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::hosts::{can_run_or_report, seconds, time_factor, wait_until};
use crate::ipv4::{config_with_identifiers, dual_stack_testbed, remove_ipv6};
use crate::station::{CARNET_PROGRAM, Station, run_carnet};
use crate::testbed::{
    CARE_OF_ADDRESSES, CORRESPONDENT, HOME_ADDRESS, HOME_AGENT_ADDRESS, ON_BOARD_HOST, Testbed,
    config_with_station_line, parse_address,
};
use crate::traffic::{PacketSniffer, RawSender};

const AUTH_CONFIG: &str = "auth = { spi = 300, key = '000102030405060708090a0b0c0d0e0f' }";
/// Octets that the test sends through the tunnel and looks for in captures.
pub const PAYLOAD_MARKER: &[u8] = b"MARKER-of-the-payload-0123456789";
const TUNNEL_PORT: u16 = 51820;

/// Makes a key pair. Returns the path of the private key and the public key.
pub fn make_key_pair(bed: &Testbed, name: &str) -> (String, String) {
    let path = bed.scratch.path_of(name).display().to_string();
    let made = run_carnet(&["key", "--out", &path]);
    assert!(made.status.success(), "{made:?}");
    (path, String::from_utf8(made.stdout).expect("text").trim().to_owned())
}

fn config_with_state_directory(bed: &Testbed, config: &str) -> String {
    config_with_station_line(config, &format!("state_dir = '{}'", bed.scratch.path_of("").display()))
}

/// Returns the configs of home agent and mobile router with key pairs.
pub fn configs_with_keys(bed: &Testbed) -> (String, String) {
    let (agent_file, agent_key) = make_key_pair(bed, "agent.key");
    let (router_file, router_key) = make_key_pair(bed, "router.key");
    let agent = bed.agent_config().replace(AUTH_CONFIG, &format!("auth = {{ public_key = '{router_key}' }}"));
    let router = bed.router_config().replace(AUTH_CONFIG, &format!("home_agent_key = '{agent_key}'"));
    let agent = config_with_station_line(
        &config_with_state_directory(bed, &agent),
        &format!("private_key_file = '{agent_file}'"),
    );
    let router = config_with_station_line(
        &config_with_state_directory(bed, &router),
        &format!("private_key_file = '{router_file}'"),
    );
    (agent, router)
}

/// Starts home agent and mobile router, and waits until both uplinks are registered.
pub fn start_with_two_uplinks(bed: &Testbed, agent: &str, router: String) -> (Station, Station) {
    let agent = Station::start(&bed.agent, agent);
    let router = Station::start(&bed.router, &config_with_identifiers(router));
    router.wait_until_registered();
    wait_until("both uplinks are registered", seconds(20), || agent.bindings().len() == 2);
    (agent, router)
}

/// Checks that captured packets between mobile router and home agent are WireGuard's messages alone, and
/// returns the number of data messages.
pub fn only_sessions_pass(
    packets: &[Vec<u8>],
    is_end: impl Fn(&[u8]) -> bool,
    header: usize,
    protocol: usize,
) -> usize {
    let (mut data, mut types) = (0, [0; 5]);
    for packet in packets {
        assert!(
            !packet.windows(16).any(|octets| octets == &PAYLOAD_MARKER[..16]),
            "the marker is in the clear"
        );
        if !is_end(packet) {
            continue;
        }
        assert_eq!(packet[protocol], 17, "not UDP: {packet:02x?}");
        let mut messages = &packet[header + 8..];
        // The kernel shows datagrams that a station has sent together as one packet (UDP GSO).
        while let Some(first) = messages.first() {
            let kind = usize::from(*first);
            let lengths = [0, 148, 92, 64, messages.len()];
            assert!((1..=4).contains(&kind) && messages[1..4] == [0; 3], "{messages:02x?}");
            assert!(messages.len() >= lengths[kind], "type {kind} with {} octets", messages.len());
            messages = &messages[lengths[kind]..];
            types[kind] += 1;
            data += usize::from(kind == 4);
        }
    }
    println!("messages by type: {types:?}");
    data
}

pub fn is_to_or_from_home_agent(packet: &[u8]) -> bool {
    let agent = parse_address(HOME_AGENT_ADDRESS).octets();
    packet[8..24] == agent || packet[24..40] == agent
}

/// Sends packets with the marker in both directions.
fn send_marked_packets(bed: &Testbed) {
    for (from, source, to, destination) in [
        (&bed.host, ON_BOARD_HOST, &bed.core, CORRESPONDENT),
        (&bed.core, CORRESPONDENT, &bed.host, ON_BOARD_HOST),
    ] {
        let socket = |at: &'static str| move || UdpSocket::bind((parse_address(at), 0)).expect("a socket");
        let (sender, receiver) =
            (from.run_in_namespace(socket(source)), to.run_in_namespace(socket(destination)));
        let port = receiver.local_addr().expect("bound").port();
        receiver.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        for length in [PAYLOAD_MARKER.len(), 1000, 1340] {
            let content: Vec<u8> = PAYLOAD_MARKER.iter().copied().cycle().take(length).collect();
            wait_until(&format!("a datagram of {length} octets arrives"), seconds(20), || {
                let _ = sender.send_to(&content, (parse_address(destination), port));
                let mut found = [0; 2000];
                receiver.recv(&mut found).is_ok_and(|count| found[..count] == content)
            });
        }
    }
}

#[test]
fn signalling_and_traffic_over_ipv6_are_encrypted() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router) = configs_with_keys(&bed);
    let sniffer = PacketSniffer::start(&bed.core, &["wlan", "wwan", "ha"]);
    let agent = Station::start(&bed.agent, &agent);
    let router = Station::start(&bed.router, &router);
    router.wait_until_registered();
    assert_eq!(agent.bindings()[0].1, CARE_OF_ADDRESSES[0]);
    send_marked_packets(&bed);
    let packets = sniffer.stop();
    // Packets of the correspondent and of hosts in the mobile network also pass the interface `ha`, outside
    // of the tunnel.
    let tunnelled: Vec<Vec<u8>> =
        packets.into_iter().filter(|packet| is_to_or_from_home_agent(packet)).collect();
    assert!(only_sessions_pass(&tunnelled, is_to_or_from_home_agent, 40, 6) > 10);
    for station in [&agent, &router] {
        let tunnels = station.show_json("tunnels");
        assert_eq!(tunnels[0]["encryption"], "encrypted", "{tunnels}");
        assert_eq!(tunnels[0]["path"], "tun", "{tunnels}");
        assert_eq!(tunnels[0]["mtu"], 1392, "{tunnels}");
    }
}

#[test]
fn traffic_over_ipv4_alone_is_encrypted() {
    if !can_run_or_report() {
        return;
    }
    let bed = dual_stack_testbed();
    remove_ipv6(&bed, &[0, 1]);
    let (agent, router) = configs_with_keys(&bed);
    let at_agent = format!("address = '{HOME_AGENT_ADDRESS}'\n");
    let agent = agent.replace(&at_agent, &format!("{at_agent}ipv4_address = '198.51.100.2'\n"));
    let at_router = format!("home_agent = '{HOME_AGENT_ADDRESS}'\n");
    let router = router.replace(&at_router, &format!("{at_router}home_agent_ipv4 = '198.51.100.2'\n"));
    // Both ends also have a preshared key.
    let (shared, _) = make_key_pair(&bed, "shared.key");
    let psk = format!("preshared_key_file = '{shared}'");
    let agent = agent.replace("public_key = ", &format!("{psk}, public_key = "));
    let router = router.replace("home_agent_key = ", &format!("{psk}\nhome_agent_key = "));
    assert!(agent.contains(&psk) && router.contains(&psk));
    let sniffer = PacketSniffer::start_for(&bed.core, &["wlan", "wwan", "ha"], 4);
    let agent = Station::start(&bed.agent, &agent);
    let router = Station::start(&bed.router, &router);
    router.wait_until_registered();
    send_marked_packets(&bed);
    let packets = sniffer.stop();
    let is_end = |packet: &[u8]| packet[12..16] == [198, 51, 100, 2] || packet[16..20] == [198, 51, 100, 2];
    assert!(only_sessions_pass(&packets, is_end, 20, 9) > 10);
    for station in [&agent, &router] {
        let tunnels = station.show_json("tunnels");
        assert_eq!(tunnels[0]["encryption"], "encrypted", "{tunnels}");
        assert_eq!(tunnels[0]["mtu"], 1424, "{tunnels}");
    }
}

#[test]
fn handover_by_order_loses_no_packet() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router) = configs_with_keys(&bed);
    let (_agent, router) = start_with_two_uplinks(&bed, &agent, router);
    let sniffer = PacketSniffer::start(&bed.core, &["wlan", "wwan"]);
    let traffic = bed.start_echo(1000);
    traffic.wait_for_further_answers();
    for uplink in ["wwan0", "wlan0", "wwan0"] {
        let answer = router.run_command(&["handover", uplink]);
        assert!(answer.status.success(), "{answer:?}");
        traffic.wait_for_further_answers();
        std::thread::sleep(Duration::from_millis(700));
    }
    let report = traffic.stop();
    println!(
        "handovers by order: {} packets, longest silence {:?}",
        report.sent_packets, report.longest_silence
    );
    assert_eq!(report.lost_packets, 0, "{report:?}");
    // Beside the tunnel, the uplinks carry only packets of the link: Neighbor Discovery, Multicast Listener
    // Discovery.
    let packets = sniffer.stop();
    let is_of_link = |packet: &Vec<u8>| {
        let is_nd = packet[6] == 58 && packet[7] == 255;
        is_nd || packet[8..10] == [0xfe, 0x80] || packet[8..24] == [0; 16] || packet[24] == 0xff
    };
    let other = packets.iter().find(|packet| !is_of_link(packet) && !is_to_or_from_home_agent(packet));
    assert_eq!(other, None, "a packet past the tunnel");
    // Most packets of the echo pass one of the two uplinks in this direction.
    let count = only_sessions_pass(&packets, is_to_or_from_home_agent, 40, 6);
    assert!(count as u64 > report.sent_packets / 2, "{count} packets of sessions, {report:?}");
}

/// The cable of an uplink is pulled. The router moves to the other uplink, and no longer uses the session of
/// the first one.
#[test]
fn router_moves_session_from_dead_uplink() {
    if !can_run_or_report() {
        return;
    }
    for is_encrypted in [false, true] {
        let bed = Testbed::new();
        let (agent, router) = match is_encrypted {
            true => configs_with_keys(&bed),
            // Both ends store their state on the disk, as with sessions. So a Binding Update waits for the
            // disk in both cases.
            false => (
                config_with_state_directory(&bed, &bed.agent_config()),
                config_with_state_directory(&bed, &bed.router_config()),
            ),
        };
        let (agent, router) = start_with_two_uplinks(&bed, &agent, router);
        let traffic = bed.start_echo(200);
        traffic.wait_for_further_answers();
        bed.core.run_ip("link set wlan down");
        traffic.wait_for_further_answers();
        let report = traffic.stop();
        println!(
            "dead uplink, encrypted {is_encrypted}: silence {:?}, lost {}",
            report.longest_silence, report.lost_packets
        );
        assert!(report.longest_silence < Duration::from_millis(150) * time_factor(), "{report:?}");
        // The operator knows that the uplink is down: no warning about its binding or its session follows.
        std::thread::sleep(Duration::from_secs(10));
        let is_warning = |line: &&str| {
            line.contains("WARN") && (line.contains("no answer") || line.contains("status 133"))
        };
        let logs = router.log_text() + &agent.log_text();
        let warnings: Vec<&str> = logs.lines().filter(is_warning).collect();
        assert!(warnings.is_empty(), "{warnings:?}");
    }
}

/// A restarted home agent has lost its sessions. The router notices this because it gets no answers.
#[test]
fn router_gets_back_to_a_home_agent_that_has_restarted() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent_config, router) = configs_with_keys(&bed);
    let mut agent = Station::start(&bed.agent, &agent_config);
    let router = Station::start(&bed.router, &config_with_identifiers(router));
    router.wait_until_registered();
    let traffic = bed.start_echo(200);
    traffic.wait_for_further_answers();
    agent.end_by_signal(Signal::SIGKILL);
    let agent = Station::start(&bed.agent, &agent_config);
    let start = std::time::Instant::now();
    traffic.wait_for_further_answers();
    println!("traffic flows {:?} after the home agent was back", start.elapsed());
    assert!(!agent.bindings().is_empty());
    traffic.stop();
    assert_eq!(router.mobile_router_state(), "registered");
}

/// The home agent answers no packet at its port that comes from a sender without a key.
#[test]
fn home_agent_gives_strangers_no_answer() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent_config, router) = configs_with_keys(&bed);
    let agent = Station::start(&bed.agent, &agent_config);
    let (_, stranger) = make_key_pair(&bed, "stranger.key");
    assert!(!agent_config.contains(&stranger));
    let answers_in = |sniffer: PacketSniffer| -> Vec<Vec<u8>> {
        let is_answer = |packet: &Vec<u8>| packet[8..24] == parse_address(HOME_AGENT_ADDRESS).octets();
        sniffer.stop().into_iter().filter(is_answer).collect()
    };
    let mut sniffer = PacketSniffer::start(&bed.core, &["ha"]);
    let sender =
        bed.core.run_in_namespace(|| UdpSocket::bind((parse_address(CORRESPONDENT), 0)).expect("a socket"));
    // `make test-strangers` sends a million packets.
    let rounds =
        std::env::var("CARNET_STRANGER_ROUNDS").map_or(200, |rounds| rounds.parse().expect("a number"));
    for round in 0..rounds {
        // Pause after every ten rounds, so that the home agent can read all datagrams, and the sniffer has
        // room for the packets.
        if round % 10 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        if round % 10_000 == 9_999 {
            let full = std::mem::replace(&mut sniffer, PacketSniffer::start(&bed.core, &["ha"]));
            assert_eq!(answers_in(full), Vec::<Vec<u8>>::new());
        }
        for (kind, length) in [(1, 148), (2, 92), (3, 64), (4, 128), (4, 32), (1, 147), (0, 20), (9, 1300)] {
            let mut content: Vec<u8> = (0..length).map(|at: u32| (at * 31 + round) as u8).collect();
            content[..4].copy_from_slice(&[kind, 0, 0, 0]);
            let _ = sender.send_to(&content, (parse_address(HOME_AGENT_ADDRESS), TUNNEL_PORT));
        }
    }
    // A router with a wrong key: the home agent does not answer it either.
    let wrong = router
        .replace(&format!("private_key_file = '{}'", bed.scratch.path_of("router.key").display()), &{
            format!("private_key_file = '{}'", bed.scratch.path_of("stranger.key").display())
        });
    assert_ne!(wrong, router);
    let router = Station::spawn_without_wait(&bed.router, &wrong, &[], CARNET_PROGRAM);
    wait_until("the router says that nothing answers", seconds(30), || {
        router.log_text().contains("no answer: key, clock or path")
    });
    let sends_to = format!("to UDP port {TUNNEL_PORT} of {HOME_AGENT_ADDRESS}");
    assert!(router.log_text().contains(&sends_to), "{}", router.log_text());
    assert_eq!(answers_in(sniffer), Vec::<Vec<u8>>::new());
    assert!(agent.bindings().is_empty());
    let reports: Vec<String> =
        agent.log_text().lines().filter(|line| line.contains("unknown key:")).map(str::to_owned).collect();
    assert!(matches!(&reports[..], [report] if report.contains(&stranger)), "{reports:?}");
    assert!(reports[0].contains("no mobile router in the config has this key"), "{reports:?}");
    let dropped = agent.sum_of_counters("session.dropped.");
    println!("the home agent dropped {dropped} of {} packets silently", rounds * 8);
    // Full queues of the kernel may drop some of the packets before the home agent reads them.
    assert!(dropped > u64::from(rounds) * 4, "{dropped}");
    assert!(agent.counter("session.dropped.mac") + agent.counter("session.dropped.unknown_key") > 200);
}

/// The home agent does not accept a Binding Update or a tunnel packet in the clear in place of one from the
/// session.
#[test]
fn packets_in_the_clear_are_refused_for_a_router_with_a_key() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router) = configs_with_keys(&bed);
    let agent = Station::start(&bed.agent, &agent);
    let router = Station::start(&bed.router, &router);
    router.wait_until_registered();
    send_marked_packets(&bed);
    // An IPv6-in-IPv6 packet in the clear, from the router's care-of address.
    let header = |next_header, length: u8, source, destination| {
        let octets = |text| parse_address(text).octets();
        [&[0x60, 0, 0, 0, 0, length, next_header, 64][..], &octets(source), &octets(destination)].concat()
    };
    let inner = [header(59, 8, ON_BOARD_HOST, CORRESPONDENT), vec![7; 8]].concat();
    let packet = [header(41, 48, CARE_OF_ADDRESSES[0], HOME_AGENT_ADDRESS), inner].concat();
    let cannon = RawSender::new(&bed.router);
    let before = agent.counter("tunnel.dropped.not_in_session");
    wait_until("the packet is dropped", seconds(10), || {
        assert!(cannon.send_packet(&packet, parse_address(HOME_AGENT_ADDRESS), 0));
        agent.counter("tunnel.dropped.not_in_session") > before
    });
    assert_eq!(agent.bindings()[0].0, HOME_ADDRESS);
}

/// A restarted router begins with a later timestamp than before.
#[test]
fn restarted_router_registers_again() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router_config) = configs_with_keys(&bed);
    let agent = Station::start(&bed.agent, &agent);
    let mut router = Station::start(&bed.router, &router_config);
    router.wait_until_registered();
    router.terminate();
    let stored = fs::read_to_string(bed.scratch.path_of("router.sessions")).expect("the timestamps");
    assert!(stored.contains("newest"), "{stored}");
    let router = Station::start(&bed.router, &router_config);
    router.wait_until_registered();
    assert!(!agent.bindings().is_empty());
}

#[test]
fn key_file_readable_by_others_is_refused() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent, _) = configs_with_keys(&bed);
    fs::set_permissions(bed.scratch.path_of("agent.key"), fs::Permissions::from_mode(0o644)).expect("a mode");
    let file = bed.scratch.path_of("open.toml");
    fs::write(&file, &agent).expect("a config");
    let checked = run_carnet(&["check", &file.display().to_string()]);
    let said =
        String::from_utf8_lossy(&checked.stderr).into_owned() + &String::from_utf8_lossy(&checked.stdout);
    assert!(!checked.status.success() && said.contains("expected mode 0600 (chmod 600)"), "{said}");
}

/// The recording has the packets that came out of sessions, so a replay gives the same outputs.
#[test]
fn recording_of_sessions_replays() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router) = configs_with_keys(&bed);
    let recording = bed.scratch.path_of("router.jsonl").display().to_string();
    let config = config_with_station_line(&router, &format!("record = '{recording}'"));
    let _agent = Station::start(&bed.agent, &agent);
    let mut router = Station::start(&bed.router, &config);
    router.wait_until_registered();
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    router.terminate();
    let config = router.config_file.display().to_string();
    let replay = || run_carnet(&["replay", "--config", &config, &recording]);
    let first = replay();
    assert!(first.status.success(), "{first:?}");
    assert_eq!(first.stdout, replay().stdout);
    let outputs = String::from_utf8(first.stdout).expect("text");
    assert!(outputs.contains("\"registered\"") && outputs.contains("\"session\""), "{outputs}");
}
