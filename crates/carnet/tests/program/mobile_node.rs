//! A mobile node: on board of a vehicle whose router moves, outside of the vehicle, and at home.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::hosts::{Host, can_run_or_report, seconds, wait_until};
use crate::ipv4::{dual_stack_testbed, first_tunnel, put_uplink_behind_nat, remove_ipv6};
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, HOME_AGENT_ADDRESS, ON_BOARD_HOST, Testbed, parse_address};
use crate::traffic::EchoTraffic;

/// Home address of the mobile node.
const NODE_HOME_ADDRESS: &str = "2001:db8:1::77";
const SERVER_PORT: u16 = 4343;

/// Returns the config of the home agent that serves the router and the node.
fn agent_config(bed: &Testbed, more: &str) -> String {
    format!(
        "{}\n[[home_agent.mobile_router]]\nhome_address = '{NODE_HOME_ADDRESS}'\n\
         auth = {{ spi = 301, key = '0f0e0d0c0b0a09080706050403020100' }}\n",
        bed.agent_config().replace("[home_agent]\n", &format!("[home_agent]\n{more}\n"))
    )
}

fn node_config(bed: &Testbed, uplinks: &[&str]) -> String {
    let uplinks: String =
        uplinks.iter().map(|uplink| format!("[[mobile_node.uplink]]\ninterface = '{uplink}'\n")).collect();
    format!(
        "[station]\nname = 'node'\nsocket = '{}'\n\n\
         [mobile_node]\nhome_address = '{NODE_HOME_ADDRESS}'\nhome_prefix = '2001:db8:1::/64'\nhome_agent = \
         '{HOME_AGENT_ADDRESS}'\nauth = {{ spi = 301, key = '0f0e0d0c0b0a09080706050403020100' }}\n{uplinks}",
        bed.scratch.path_of("node.sock").display()
    )
}

/// Starts a server on a host. The server returns all data of one client, until the client closes the
/// connection.
fn start_echo_server(host: &Host) {
    host.run_in_namespace(|| {
        let listener = TcpListener::bind((parse_address(CORRESPONDENT), SERVER_PORT)).expect("a listener");
        thread::spawn(move || {
            let (mut connection, _) = listener.accept().expect("a connection");
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = connection.read(&mut buffer) {
                if connection.write_all(&buffer[..length]).is_err() {
                    break;
                }
            }
        })
    });
}

/// Sends data over the connection, and checks that the same data come back.
fn check_connection_goes_on(connection: &mut TcpStream) {
    let sent = [0x5a; 3000];
    connection.set_read_timeout(Some(seconds(10))).expect("a timeout");
    connection.write_all(&sent).expect("written");
    let mut back = [0; 3000];
    connection.read_exact(&mut back).expect("what was sent comes back");
    assert_eq!(back, sent);
}

#[test]
fn a_visiting_node_keeps_its_sessions_while_the_vehicle_moves() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let _agent = Station::start(&bed.agent, &agent_config(&bed, ""));
    let router = Station::start(&bed.router, &bed.router_config());
    router.wait_until_registered();
    let rules = bed.host.run_ip("-6 rule");
    let mut node = Station::start(&bed.host, &node_config(&bed, &["eth0"]));
    node.wait_until_registered();
    assert_eq!(node.show_json("bindings")[0]["role"], "mobile_node");
    assert!(String::from_utf8_lossy(&node.run_command(&["status"]).stdout).contains("mobile node"));
    // RFC 6275 11.3.1: a program that selects no address gets the home address. A program that has selected
    // the care-of address keeps the care-of address.
    let chosen = bed.host.run_ip(&format!("-6 route get {CORRESPONDENT}"));
    assert!(
        chosen.contains("dev carnet0") && chosen.contains(&format!("src {NODE_HOME_ADDRESS}")),
        "{chosen}"
    );
    let bound = bed.host.run_ip(&format!("-6 route get {CORRESPONDENT} from {ON_BOARD_HOST}"));
    assert!(bound.contains("dev eth0"), "{bound}");
    start_echo_server(&bed.core);
    let mut session = bed.host.run_in_namespace(|| {
        TcpStream::connect((parse_address(CORRESPONDENT), SERVER_PORT)).expect("a connection")
    });
    assert_eq!(session.local_addr().expect("an address").ip(), parse_address(NODE_HOME_ADDRESS));
    let traffic = EchoTraffic::start(
        &bed.host,
        parse_address(NODE_HOME_ADDRESS),
        &bed.core,
        parse_address(CORRESPONDENT),
        200,
    );
    traffic.wait_for_further_answers();
    for uplink in ["wwan0", "wlan0"] {
        assert!(router.run_command(&["handover", uplink]).status.success());
        wait_until("the vehicle has moved", seconds(10), || {
            router.show_json("status")["mobile_router"]["uplink"] == uplink
        });
        let before = traffic.answered_packets();
        wait_until("traffic goes on for a while", seconds(10), || traffic.answered_packets() > before + 40);
        check_connection_goes_on(&mut session);
    }
    let report = traffic.stop();
    assert_eq!((report.lost_packets, report.sent_packets > 80), (0, true), "{report:?}");
    drop(session);
    node.terminate();
    assert_eq!(bed.host.run_ip("-6 rule"), rules);
    assert!(!bed.host.run_ip("-6 addr show").contains(NODE_HOME_ADDRESS));
}

/// IPv4 home address of the mobile node. `SERVER_IPV4` is the address of the correspondent.
const NODE_IPV4: &str = "10.42.7.7";
const SERVER_IPV4: &str = "198.51.100.1";

/// A mobile node has an IPv4 home address (RFC 5555) and two uplinks: one has only IPv6, the other only IPv4
/// behind a NAT.
#[test]
fn mobile_node_keeps_its_ipv4_home_address_over_ipv6_and_nat_uplinks() {
    if !can_run_or_report() {
        return;
    }
    for path in ["tun", "bpf"] {
        let bed = dual_stack_testbed();
        remove_ipv6(&bed, &[1]);
        bed.router.run_ip("-4 addr flush dev wlan0 scope global");
        let _nat = put_uplink_behind_nat(&bed, 1);
        bed.core.run_ip(&format!("route add {NODE_IPV4} via 198.51.100.2"));
        let key = format!("address = '{HOME_AGENT_ADDRESS}'\n");
        let data_path = format!("\n[dataplane]\npath = '{path}'\n");
        let of_agent = agent_config(&bed, "").replace(&key, &format!("{key}ipv4_address = '198.51.100.2'\n"));
        let of_agent = format!("{of_agent}ipv4_prefixes = ['{NODE_IPV4}/32']\n{data_path}");
        let mut agent = Station::start(&bed.agent, &of_agent);
        let key = format!("home_agent = '{HOME_AGENT_ADDRESS}'\n");
        let ipv4 = format!(
            "{key}home_agent_ipv4 = '198.51.100.2'\nipv4_home_address = '{NODE_IPV4}'\nlifetime = '12s'\n"
        );
        let of_node = node_config(&bed, &["wlan0", "wwan0"]).replace(&key, &ipv4) + &data_path;
        let before = bed.router.kernel_state();
        let mut node = Station::start(&bed.router, &of_node);
        node.wait_until_registered();
        wait_until("the home agent accepts the address", seconds(10), || {
            agent.show_json("bindings")[0]["ipv4_prefixes"][0] == format!("{NODE_IPV4}/32")
        });
        wait_until("a program gets the address", seconds(10), || {
            let chosen = bed.router.run_ip(&format!("route get {SERVER_IPV4}"));
            chosen.contains("dev carnet0") && chosen.contains(&format!("src {NODE_IPV4}"))
        });
        for kind in ["ipv6", "udp"] {
            wait_until("the uplink carries the tunnel", seconds(20), || first_tunnel(&agent).0 == kind);
            wait_until("the correspondent answers", seconds(10), || bed.router.can_ping_ipv4(SERVER_IPV4));
            assert!(bed.core.can_ping_ipv4(NODE_IPV4), "{kind}");
            if kind == "ipv6" {
                assert!(node.run_command(&["handover", "wwan0"]).status.success());
            }
        }
        // The home agent no longer accepts the IPv4 home address, so IPv4 packets leave by the system's own
        // routes.
        agent.reload(&of_agent.replace(&format!("ipv4_prefixes = ['{NODE_IPV4}/32']\n"), ""));
        wait_until("IPv4 takes the uplink", seconds(30), || {
            bed.router.run_ip(&format!("route get {SERVER_IPV4}")).contains("dev wwan0")
        });
        node.terminate();
        assert_eq!(bed.router.kernel_state(), before, "nothing of carnet's is left");
        agent.terminate();
    }
}

/// Home agent and mobile node are on the same link, which is the home link (RFC 6275 11.5.5, 10.4.1).
#[test]
fn mobile_node_comes_home_and_leaves_again() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let node_host = &bed.router;
    bed.agent.create_link("home0", node_host, "eth9");
    bed.agent.run_ip("-6 addr add 2001:db8:1::ff/64 dev home0");
    for host in [&bed.agent, node_host] {
        host.wait_until_settled();
    }
    let agent = Station::start(&bed.agent, &agent_config(&bed, "home_link = 'home0'"));
    let node = Station::start(node_host, &node_config(&bed, &["eth9", "wlan0"]));
    let state = || node.mobile_router_state();
    node.wait_until_registered();
    let traffic = EchoTraffic::start(
        node_host,
        parse_address(NODE_HOME_ADDRESS),
        &bed.core,
        parse_address(CORRESPONDENT),
        100,
    );
    traffic.wait_for_further_answers();
    node_host.run_ip("-6 addr add 2001:db8:1::99/64 dev eth9");
    wait_until("it is at home", seconds(20), || state() == "home" || state() == "at_home");
    wait_until("the home agent knows it", seconds(10), || agent.bindings().is_empty());
    traffic.wait_for_further_answers();
    // The node has a second address on the home link, which the kernel must not choose as a source.
    let chosen = node_host.run_ip(&format!("-6 route get {CORRESPONDENT}"));
    assert!(chosen.contains("dev eth9") && chosen.contains(&format!("src {NODE_HOME_ADDRESS}")), "{chosen}");
    node_host.run_ip("link set eth9 down");
    wait_until("it is away again", seconds(20), || !agent.bindings().is_empty());
    traffic.wait_for_further_answers();
    traffic.stop();
    let chosen = node_host.run_ip(&format!("-6 route get {CORRESPONDENT}"));
    assert!(
        chosen.contains("dev carnet0") && chosen.contains(&format!("src {NODE_HOME_ADDRESS}")),
        "{chosen}"
    );
}
