//! Packets of hosts that leave without the tunnel, and packets of the router's own programs in the tunnel.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use carnet_wire::checksum;
use nix::sys::signal::Signal;

use crate::hosts::{Host, RunningProgram, can_run_or_report, output_text, seconds, wait_until};
use crate::ipv4::{dual_stack_testbed, start_with_changed_configs};
use crate::on_board::{DNS_SERVER, run_dig};
use crate::station::Station;
use crate::testbed::{
    CARE_OF_ADDRESSES, CORRESPONDENT, HOME_ADDRESS, HOME_AGENT_ADDRESS, ON_BOARD_HOST, Testbed, parse_address,
};
use crate::traffic::{PacketSniffer, RawSender};

const IPV4_PREFIX: &str = "10.42.7.0/24";
const INTERNET_SERVER: &str = "198.51.100.1";

/// Returns the testbed with IPv4 on board and on the outer links. The host has an address of each family.
fn testbed_with_two_uplinks() -> Testbed {
    let bed = dual_stack_testbed();
    bed.core.run_ip(&format!("route add {IPV4_PREFIX} via 198.51.100.2"));
    bed.host.run_ip("addr add 10.42.7.5/24 dev eth0");
    bed.host.run_ip("route add default via 10.42.7.1");
    bed
}

/// Adds the IPv4 prefix to the config of the home agent or of the mobile router.
fn config_with_ipv4(config: &str) -> String {
    let prefixes = "prefixes = ['2001:db8:a::/64']\n";
    assert_eq!(config.matches(prefixes).count(), 1);
    config.replace(prefixes, &format!("{prefixes}ipv4_prefixes = ['{IPV4_PREFIX}']\n"))
}

/// Starts both stations. The router's config gets the lines `router_keys` in `[mobile_router]`, and the
/// tables `further_tables`.
fn start_with_settings(
    bed: &Testbed,
    path: &str,
    router_keys: &str,
    further_tables: &str,
) -> (Station, Station) {
    let keys = |config: String| {
        config_with_ipv4(&config).replacen("lan = ['lan0']\n", &format!("lan = ['lan0']\n{router_keys}\n"), 1)
    };
    let dataplane = format!("\n[dataplane]\npath = '{path}'\n");
    start_with_changed_configs(
        bed,
        |config| config_with_ipv4(&config) + &dataplane,
        |config| keys(config) + further_tables + &dataplane,
    )
}

/// Returns the source address that a program on this host would use for a destination.
fn source_for_destination(host: &Host, destination: &str) -> String {
    let route = host.run_ip(&format!("route get {destination}"));
    let mut words = route.split_whitespace();
    words
        .find(|word| *word == "src")
        .map_or_else(|| panic!("{route}"), |_| words.next().unwrap_or_default().into())
}

#[test]
fn local_programs_of_the_router_use_the_tunnel_if_configured() {
    if !can_run_or_report() {
        return;
    }
    for path in ["tun", "bpf"] {
        let bed = testbed_with_two_uplinks();
        let before = bed.router.kernel_state();
        let (_agent, mut router) = start_with_settings(&bed, path, "own_traffic = 'tunnel'", "");
        wait_until("IPv4 of the router takes the tunnel", seconds(10), || {
            bed.router.can_ping_ipv4(INTERNET_SERVER)
        });
        assert_eq!(source_for_destination(&bed.router, INTERNET_SERVER), "10.42.7.1");
        assert_eq!(source_for_destination(&bed.router, CORRESPONDENT), HOME_ADDRESS);
        let sent = || router.sum_of_counters("tunnel") + router.sum_of_counters("forwarder.encapsulated");
        let earlier = sent();
        assert!(bed.router.can_ping(CORRESPONDENT), "{}", router.log_text());
        assert!(sent() > earlier, "{}", output_text(&router.run_command(&["show", "counters"])));
        // Packets to addresses on the router's links, packets to the home agent, and packets from an uplink's
        // own address stay outside the tunnel.
        for near in ["2001:db8:f1::1", HOME_AGENT_ADDRESS] {
            assert_eq!(source_for_destination(&bed.router, near), CARE_OF_ADDRESSES[0], "{near}");
        }
        assert_eq!(source_for_destination(&bed.router, "192.0.2.1"), "192.0.2.10");
        let other = bed.router.run_ip(&format!("route get {CORRESPONDENT} from {}", CARE_OF_ADDRESSES[1]));
        assert!(other.contains("dev wwan0"), "{other}");
        let marked = bed.router.run_ip(&format!("route get {CORRESPONDENT} mark 1"));
        assert!(marked.contains("dev wlan0"), "{marked}");
        let output = router.run_command(&["handover", "wwan0"]);
        assert!(output.status.success(), "{}", output_text(&output));
        assert!(
            bed.router.can_ping(CORRESPONDENT) && bed.router.can_ping_ipv4(INTERNET_SERVER),
            "{}",
            router.log_text()
        );
        assert!(router.end_by_signal(Signal::SIGTERM).status.success(), "{}", router.log_text());
        assert_eq!(bed.router.kernel_state(), before);
    }
}

/// Policies: packets of hosts on board to UDP port 5300 and to TCP port 8080 leave without the tunnel.
fn breakout_config(uplinks: &str) -> String {
    let selectors =
        [("streams", "protocol = 'udp'\nports = [5300]"), ("maps", "protocol = 'tcp'\nports = [8080]")];
    let policy = |(name, selector): (&str, &str)| {
        format!(
            "\n[[mobile_router.policy]]\nname = '{name}'\n{selector}\nlan = ['lan0']\n\
             action = 'breakout'\n{uplinks}\n"
        )
    };
    selectors.map(policy).concat()
}

/// Sends a request from the host on board to a server in the core. Returns the source address that the server
/// saw; `None` without an answer.
fn address_seen_by_server(bed: &Testbed, server: &str, port: u16) -> Option<String> {
    let limit = Some(Duration::from_millis(500));
    let at = SocketAddr::new(server.parse().expect("an address"), port);
    let listener = bed.core.run_in_namespace(move || UdpSocket::bind(at).expect("a socket"));
    listener.set_read_timeout(limit).expect("a timeout");
    let own: IpAddr = ON_BOARD_ADDRESSES[usize::from(at.is_ipv4())].parse().expect("an address");
    // All requests use the same source port, so connection tracking must separate those inside the tunnel
    // from those outside.
    let client = bed.host.run_in_namespace(move || UdpSocket::bind((own, 40_000)).expect("a socket"));
    client.set_read_timeout(limit).expect("a timeout");
    client.send_to(b"request", at).ok()?;
    let (_, source) = listener.recv_from(&mut [0; 100]).ok()?;
    listener.send_to(b"answer", source).ok()?;
    client.recv_from(&mut [0; 100]).ok()?;
    Some(source.ip().to_string())
}

fn check_address_seen(bed: &Testbed, port: u16, addresses: [&str; 2]) {
    for (server, address) in [CORRESPONDENT, INTERNET_SERVER].into_iter().zip(addresses) {
        wait_until(&format!("{server} sees {address} at port {port}"), seconds(10), || {
            address_seen_by_server(bed, server, port).as_deref() == Some(address)
        });
    }
}

/// Returns the packets and octets of the first policy that left by an uplink, and those that came back.
fn packets_outside_tunnel(router: &Station, uplink: &str) -> Vec<u64> {
    let outside = router.show_json("policies")[0]["outside"][uplink].clone();
    let names = ["packets_out", "octets_out", "packets_in", "octets_in"];
    names.iter().map(|name| outside[*name].as_u64().expect("a number")).collect()
}

/// Opens a TCP connection from the host on board, and checks that it carries data.
fn connect_to_server(bed: &Testbed, server: &str) -> (TcpStream, TcpStream) {
    let at = SocketAddr::new(server.parse().expect("an address"), 8080);
    let listener = bed.core.run_in_namespace(move || TcpListener::bind(at).expect("a listener"));
    let mut client = bed
        .host
        .run_in_namespace(move || TcpStream::connect_timeout(&at, seconds(10)).expect("a connection"));
    let (mut served, _) = listener.accept().expect("a connection");
    for stream in [&client, &served] {
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    }
    client.write_all(b"hello").expect("data");
    let mut octets = [0; 5];
    served.read_exact(&mut octets).expect("data");
    (client, served)
}

const FIRST_UPLINK_ADDRESSES: [&str; 2] = [CARE_OF_ADDRESSES[0], "192.0.2.10"];
const SECOND_UPLINK_ADDRESSES: [&str; 2] = [CARE_OF_ADDRESSES[1], "203.0.113.10"];
const ON_BOARD_ADDRESSES: [&str; 2] = [ON_BOARD_HOST, "10.42.7.5"];

#[test]
fn breakout_policy_sends_selected_packets_by_the_active_uplink() {
    if !can_run_or_report() {
        return;
    }
    for path in ["tun", "bpf"] {
        let bed = testbed_with_two_uplinks();
        let before = bed.router.kernel_state();
        let (_agent, mut router) = start_with_settings(&bed, path, "", &breakout_config(""));
        check_address_seen(&bed, 5300, FIRST_UPLINK_ADDRESSES);
        check_address_seen(&bed, 5301, ON_BOARD_ADDRESSES);
        check_address_seen(&bed, 5300, FIRST_UPLINK_ADDRESSES);
        let policies = router.show_json("policies");
        assert_eq!(policies[0]["name"], "streams");
        assert_eq!((&policies[0]["action"], &policies[0]["takes"][0]), (&"breakout".into(), &"wlan0".into()));

        let counted = packets_outside_tunnel(&router, "wlan0");
        assert!(counted.iter().all(|count| *count > 0), "{counted:?}");
        assert!(packets_outside_tunnel(&router, "wwan0").iter().all(|count| *count == 0));
        let label = "{policy=\"streams\",interface=\"wlan0\",direction=\"out\"} ";
        let metrics = crate::portal::read_metrics(&router.control_socket);
        assert!(metrics.contains(&format!("carnet_breakout_bytes_total{label}")), "{metrics}");

        // These connections keep the source address of the former uplink, so they end. New connections have
        // the address of the new uplink.
        let mut old: Vec<_> =
            [CORRESPONDENT, INTERNET_SERVER].map(|server| connect_to_server(&bed, server)).into();
        let output = router.run_command(&["handover", "wwan0"]);
        assert!(output.status.success(), "{}", output_text(&output));
        check_address_seen(&bed, 5300, SECOND_UPLINK_ADDRESSES);
        check_address_seen(&bed, 5301, ON_BOARD_ADDRESSES);
        // The new rules must continue the counts of the rules that they replaced.
        assert!(
            packets_outside_tunnel(&router, "wlan0") >= counted,
            "{:?} after {counted:?}",
            packets_outside_tunnel(&router, "wlan0")
        );
        assert!(packets_outside_tunnel(&router, "wwan0").iter().all(|count| *count > 0));
        for (client, _served) in &mut old {
            wait_until("the old connection ends", seconds(20), || client.write_all(b"more").is_err());
        }
        for server in [CORRESPONDENT, INTERNET_SERVER] {
            let (_client, served) = connect_to_server(&bed, server);
            let peer = served.peer_addr().expect("a peer").ip().to_string();
            assert!(SECOND_UPLINK_ADDRESSES.contains(&peer.as_str()), "{peer}");
        }

        // A packet from outside that bypasses the home agent must not reach the host.
        bed.core.run_ip("route replace 10.42.7.0/24 via 203.0.113.10");
        bed.core.run_ip("-6 route replace 2001:db8:a::/64 via 2001:db8:f2::10");
        assert!(!bed.core.can_ping(ON_BOARD_HOST) && !bed.core.can_ping_ipv4("10.42.7.5"));
        // The router does not forward between its uplinks.
        let through = "route replace 203.0.113.99/32 via 192.0.2.10";
        bed.core.run_ip(through);
        assert!(!bed.core.can_ping_ipv4("203.0.113.99"));

        // After `kill -9` the rules stay in force. The next start takes them over, and an orderly end removes
        // them.
        router.end_by_signal(Signal::SIGKILL);
        check_address_seen(&bed, 5300, SECOND_UPLINK_ADDRESSES);
        bed.core.run_ip("route replace 10.42.7.0/24 via 198.51.100.2");
        bed.core.run_ip("-6 route replace 2001:db8:a::/64 via 2001:db8:f0::2");
        let config = std::fs::read_to_string(&router.config_file).expect("the config");
        let mut router = Station::start(&bed.router, &config);
        router.wait_until_registered();
        check_address_seen(&bed, 5300, FIRST_UPLINK_ADDRESSES);
        check_address_seen(&bed, 5301, ON_BOARD_ADDRESSES);
        assert!(router.end_by_signal(Signal::SIGTERM).status.success(), "{}", router.log_text());
        assert_eq!(bed.router.kernel_state(), before);
        let tables = bed.router.run_program(&["nft", "list", "tables"]);
        assert_eq!(String::from_utf8_lossy(&tables.stdout), "");
    }
}

/// NAT changes no messages of Neighbor Discovery and Multicast Listener Discovery, and no answers to
/// connections that began outside. So the router must not send them out without the tunnel.
#[test]
fn router_drops_breakout_packets_that_nat_does_not_translate() {
    if !can_run_or_report() {
        return;
    }
    let bed = testbed_with_two_uplinks();
    let policy = "\n[[mobile_router.policy]]\nname = 'all'\nlan = ['lan0']\naction = 'breakout'\n";
    let (_agent, _router) = start_with_settings(&bed, "tun", "", policy);
    check_address_seen(&bed, 5300, FIRST_UPLINK_ADDRESSES);
    let sniffer = PacketSniffer::start(&bed.core, &["wlan", "wwan"]);
    let cannon = RawSender::new(&bed.host);
    let (from, to) = (parse_address(ON_BOARD_HOST), parse_address(CORRESPONDENT));
    for kind in 128..=160_u8 {
        let head = [&[0x60, 0, 0, 0, 0, 24, 58, 255], &from.octets()[..], &to.octets()].concat();
        let mut message = [&[kind, 0, 0, 0][..], &[0; 20]].concat();
        // Connection tracking ignores a message with a wrong checksum.
        let sum = checksum::upper_layer_checksum(from, to, 58, &message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        assert!(cannon.send_packet(&[&head[..], &message].concat(), to, 0), "{kind}");
    }
    // The answers to a ping from outside must return through the tunnel.
    assert!(bed.core.can_ping(ON_BOARD_HOST));
    // A host on board forges a tunnel packet of the router.
    let agent = parse_address(HOME_AGENT_ADDRESS);
    let inner = [&[0x60, 0, 0, 0, 0, 0, 59, 64], &from.octets()[..], &to.octets()].concat();
    let head = [&[0x60, 0, 0, 0, 0, 40, 41, 64], &from.octets()[..], &agent.octets()].concat();
    assert!(cannon.send_packet(&[&head[..], &inner].concat(), agent, 0));
    std::thread::sleep(seconds(1));
    let heard = sniffer.stop();
    let foreign = heard.iter().filter(|packet| packet.get(8..24) == Some(&from.octets()[..]));
    assert_eq!(foreign.map(|packet| packet[40]).collect::<Vec<_>>(), Vec::<u8>::new());
    assert!(heard.iter().all(|packet| packet.get(40..) != Some(&inner[..])), "{heard:02x?}");
}

#[test]
fn hosts_break_out_only_while_the_home_agent_is_unreachable() {
    if !can_run_or_report() {
        return;
    }
    for (path, when) in [("tun", "breakout"), ("bpf", "breakout"), ("bpf", "block")] {
        let bed = testbed_with_two_uplinks();
        let words = ["/usr/bin/python3", "-c", DNS_SERVER].map(str::to_owned);
        let _server = RunningProgram(bed.core.spawn_program(&words, |_| {}));
        let keys = format!(
            "heartbeat = '100ms'\nwhen_home_agent_is_away = '{when}'\ndns_forward = ['{CORRESPONDENT}']"
        );
        let (mut agent, mut router) = start_with_settings(&bed, path, &keys, "");
        check_address_seen(&bed, 5300, ON_BOARD_ADDRESSES);
        let config = std::fs::read_to_string(&agent.config_file).expect("the config");
        agent.end_by_signal(Signal::SIGKILL);
        if when == "block" {
            // Wait longer than the pause after which packets could leave without the tunnel. After the router
            // was killed, no packet may leave either.
            std::thread::sleep(seconds(12));
            router.end_by_signal(Signal::SIGKILL);
            for server in [CORRESPONDENT, INTERNET_SERVER] {
                assert_eq!(address_seen_by_server(&bed, server, 5300), None, "{}", router.log_text());
            }
            continue;
        }
        wait_until("the router notices", seconds(30), || {
            router.log_text().contains("the home agent is away")
        });
        check_address_seen(&bed, 5300, FIRST_UPLINK_ADDRESSES);
        assert_eq!(router.show_json("policies")[0]["name"], "when_home_agent_is_away");
        assert_eq!(router.show_json("status")["mobile_router"]["breaks_out"], true);
        // The DNS forwarder, too, sends its queries by the uplink.
        assert_eq!(
            run_dig(&bed, "@2001:db8:a::1 www.example.net AAAA"),
            "2001:db8:77::7",
            "{}",
            router.log_text()
        );
        let _agent = Station::start(&bed.agent, &config);
        wait_until("the router notices", seconds(60), || {
            router.log_text().contains("the home agent is back")
        });
        check_address_seen(&bed, 5300, ON_BOARD_ADDRESSES);
        assert_eq!(router.show_json("policies"), serde_json::json!([]));
        assert_eq!(router.show_json("status")["mobile_router"]["breaks_out"], false);
        assert_eq!(
            run_dig(&bed, "@2001:db8:a::1 two.example.net AAAA"),
            "2001:db8:77::7",
            "{}",
            router.log_text()
        );
    }
}
