//! Two mobile routers with a direct route between them. If both have keys, the route goes through encrypted
//! sessions. It is in the clear only by the operator's order.

use std::net::UdpSocket;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::hosts::{Host, can_run_or_report, seconds, wait_until};
use crate::sessions::{PAYLOAD_MARKER, configs_with_keys, make_key_pair, only_sessions_pass};
use crate::station::Station;
use crate::testbed::{CARE_OF_ADDRESSES, ON_BOARD_HOST, Testbed, config_with_station_line, parse_address};
use crate::theft::add_neighbour;
use crate::traffic::{EchoTraffic, PacketSniffer};

const SECOND_AUTH: &str = "auth = { spi = 301, key = '0f0e0d0c0b0a09080706050403020100' }";
const SECOND_CARE_OF_ADDRESS: &str = "2001:db8:f3::10";
const SECOND_HOST: &str = "2001:db8:b::10";

/// Adds the options of direct routes to a router's config.
fn with_direct_routes(config: &str, encryption: &str) -> String {
    let lan = "lan = ['lan0']\n";
    let networks = "direct_routes = ['2001:db8:a::/48', '2001:db8:b::/48']\n";
    assert!(config.contains(lan));
    config.replace(lan, &format!("{lan}{networks}{encryption}"))
}

/// Home agent, two mobile routers and their hosts, with the configs.
struct TwoRouters {
    bed: Testbed,
    second_router: Host,
    second_host: Host,
    agent: String,
    first: String,
    second: String,
}

/// Makes the configs of two routers with keys and direct routes.
fn two_routers_with_keys(encryption: &str) -> TwoRouters {
    let bed = Testbed::new();
    let (second_router, second_host, second) = add_neighbour(&bed);
    second_host.wait_until_settled();
    let (agent, first) = configs_with_keys(&bed);
    let (file, public_key) = make_key_pair(&bed, "second.key");
    let agent = format!(
        "{agent}\n[[home_agent.mobile_router]]\nhome_address = '2001:db8:1::5678'\n\
         prefixes = ['2001:db8:b::/64']\nauth = {{ public_key = '{public_key}' }}\n"
    );
    let key_line = first.lines().find(|line| line.starts_with("home_agent_key")).expect("a key");
    assert!(second.contains(SECOND_AUTH));
    let second = second.replace(SECOND_AUTH, key_line);
    let second = config_with_station_line(&second, &format!("private_key_file = '{file}'"));
    let first = with_direct_routes(&first, encryption);
    let second = with_direct_routes(&second, encryption);
    TwoRouters { bed, second_router, second_host, agent, first, second }
}

impl TwoRouters {
    fn start_traffic(&self, per_second: u32) -> EchoTraffic {
        let (from, to) = (parse_address(ON_BOARD_HOST), parse_address(SECOND_HOST));
        let traffic = EchoTraffic::start(&self.bed.host, from, &self.second_host, to, per_second);
        traffic.wait_for_further_answers();
        traffic
    }

    /// Sends datagrams with the marker between the hosts, in both directions.
    fn exchange_marked(&self) {
        let ends = [(&self.bed.host, ON_BOARD_HOST), (&self.second_host, SECOND_HOST)];
        for [(from, source), (to, destination)] in [ends, [ends[1], ends[0]]] {
            let socket =
                |at: &'static str| move || UdpSocket::bind((parse_address(at), 0)).expect("a socket");
            let sender = from.run_in_namespace(socket(source));
            let receiver = to.run_in_namespace(socket(destination));
            receiver.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
            let port = receiver.local_addr().expect("bound").port();
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
}

fn wait_for_direct_route(station: &Station, encryption: &str) {
    wait_until("a direct route", seconds(30), || {
        let routes = station.show_json("routes");
        let mut routes = routes.as_array().into_iter().flatten();
        routes.any(|route| route["path"] == "direct" && route["encryption"] == encryption)
    });
}

/// Returns whether a packet goes from a care-of address of one router to one of the other router.
fn is_between_routers(packet: &[u8]) -> bool {
    let is_first = |octets: &[u8]| CARE_OF_ADDRESSES.iter().any(|own| octets == parse_address(own).octets());
    let is_second = |octets: &[u8]| octets == parse_address(SECOND_CARE_OF_ADDRESS).octets();
    let (source, destination) = (&packet[8..24], &packet[24..40]);
    is_first(source) && is_second(destination) || is_second(source) && is_first(destination)
}

#[test]
fn direct_route_between_routers_with_keys_is_encrypted_through_handover_and_restart() {
    if !can_run_or_report() {
        return;
    }
    let routers = two_routers_with_keys("");
    let sniffer = PacketSniffer::start(&routers.bed.core, &["wlan", "wwan", "third"]);
    let _agent = Station::start(&routers.bed.agent, &routers.agent);
    let first = Station::start(&routers.bed.router, &routers.first);
    let second = Station::start(&routers.second_router, &routers.second);
    first.wait_until_registered();
    second.wait_until_registered();
    assert!(first.log_text().contains("tunnels: encrypted, by"), "{}", first.log_text());
    let traffic = routers.start_traffic(200);
    for station in [&first, &second] {
        wait_for_direct_route(station, "encrypted");
        let tunnels = station.show_json("tunnels");
        for tunnel in tunnels.as_array().expect("tunnels") {
            assert_eq!((&tunnel["encryption"], &tunnel["mtu"]), (&"encrypted".into(), &1392.into()));
        }
    }
    routers.exchange_marked();
    // On command, the first router moves to its other uplink and back. Its direct route follows.
    for (uplink, local) in [("wwan0", CARE_OF_ADDRESSES[1]), ("wlan0", CARE_OF_ADDRESSES[0])] {
        let moved = first.run_command(&["handover", uplink]);
        assert!(moved.status.success(), "{moved:?}");
        wait_until("the direct route has moved", seconds(20), || {
            let tunnels = first.show_json("tunnels");
            let mut tunnels = tunnels.as_array().into_iter().flatten();
            tunnels.any(|it| it["home_address"] == "2001:db8:1::5678" && it["local"] == local)
        });
        routers.exchange_marked();
        std::thread::sleep(Duration::from_millis(500));
    }
    let report = traffic.stop();
    assert_eq!(report.lost_packets, 0, "{report:?}");
    assert_eq!(first.counter("direct.ended"), 0);
    assert!(only_sessions_pass(&sniffer.stop(), is_between_routers, 40, 6) > 100);
    // The second router dies and comes back without its sessions.
    second.send_signal(Signal::SIGKILL);
    drop(second);
    let second = Station::start(&routers.second_router, &routers.second);
    // While the second router's program did not run, its kernel has answered "port unreachable".
    let sniffer = PacketSniffer::start(&routers.bed.core, &["wlan", "wwan", "third"]);
    second.wait_until_registered();
    let traffic = routers.start_traffic(100);
    wait_for_direct_route(&second, "encrypted");
    wait_for_direct_route(&first, "encrypted");
    routers.exchange_marked();
    traffic.stop();
    assert!(only_sessions_pass(&sniffer.stop(), is_between_routers, 40, 6) > 10);
}

/// The second router has no key pair, as a router of an earlier version.
#[test]
fn router_without_key_pair_gets_no_direct_route_and_packets_stay_encrypted() {
    if !can_run_or_report() {
        return;
    }
    let routers = two_routers_with_keys("");
    let (agent, _) = routers.agent.rsplit_once("auth = ").expect("the second router's key");
    let agent = format!("{agent}{SECOND_AUTH}\n");
    let lines = routers.second.lines().filter(|line| !line.starts_with("private_key_file"));
    let second: Vec<&str> =
        lines.map(|line| if line.starts_with("home_agent_key") { SECOND_AUTH } else { line }).collect();
    let _agent = Station::start(&routers.bed.agent, &agent);
    let first = Station::start(&routers.bed.router, &routers.first);
    let second = Station::start(&routers.second_router, &second.join("\n"));
    first.wait_until_registered();
    second.wait_until_registered();
    let sniffer = PacketSniffer::start(&routers.bed.core, &["wlan", "wwan", "third"]);
    let traffic = routers.start_traffic(50);
    wait_until("the status says why", seconds(20), || {
        let routes = first.show_json("routes");
        let mut routes = routes.as_array().into_iter().flatten();
        routes.any(|route| {
            route["prefix"] == "2001:db8:b::/64"
                && route["path"] == "home_agent"
                && route["reason"] == "it has no key for an encrypted route"
        })
    });
    assert!(first.log_text().contains("no direct route to the mobile router 2001:db8:1::5678"));
    assert_eq!(traffic.stop().lost_packets, 0);
    assert!(!sniffer.stop().iter().any(|packet| is_between_routers(packet)));
}

#[test]
fn direct_route_in_the_clear_needs_an_order_and_loses_no_packet() {
    if !can_run_or_report() {
        return;
    }
    let routers = two_routers_with_keys("direct_encryption = 'off'\n");
    let _agent = Station::start(&routers.bed.agent, &routers.agent);
    let first = Station::start(&routers.bed.router, &routers.first);
    let second = Station::start(&routers.second_router, &routers.second);
    first.wait_until_registered();
    second.wait_until_registered();
    let said = "tunnels: encrypted, packets between vehicles in the clear";
    assert!(first.log_text().contains(said), "{}", first.log_text());

    let sniffer = PacketSniffer::start(&routers.bed.core, &["third"]);
    let traffic = routers.start_traffic(200);
    for station in [&first, &second] {
        wait_for_direct_route(station, "in the clear");
    }
    std::thread::sleep(Duration::from_millis(500));
    let report = traffic.stop();
    assert_eq!(report.lost_packets, 0, "{report:?}");
    let ends = [SECOND_CARE_OF_ADDRESS, CARE_OF_ADDRESSES[0]].map(|end| parse_address(end).octets()).concat();
    let direct = sniffer.stop().iter().filter(|packet| packet[6] == 41 && packet[8..40] == ends).count();
    assert!(direct > 10, "{direct} packets by the direct route");
    // The tunnels to the home agent stay encrypted.
    let tunnels = first.show_json("tunnels");
    for tunnel in tunnels.as_array().expect("tunnels") {
        let is_direct = tunnel["home_address"] == "2001:db8:1::5678";
        let expected = if is_direct { "in the clear" } else { "encrypted" };
        assert_eq!(tunnel["encryption"], expected, "{tunnels}");
    }
}
