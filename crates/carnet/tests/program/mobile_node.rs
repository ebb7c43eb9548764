//! A mobile node: on board of a vehicle whose router moves, away from the vehicle, and at home.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::hosts::{Host, possible, seconds, wait_until};
use crate::ipv4::{behind_nat, dual, first_tunnel, without_ipv6};
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, HOME_AGENT, INSIDE, Testbed, address};
use crate::traffic::Echo;

/// Home address of the mobile node.
const NODE: &str = "2001:db8:1::77";
const PORT: u16 = 4343;

/// Returns the config of the home agent that serves the router and the node.
fn agent_config(bed: &Testbed, more: &str) -> String {
    format!(
        "{}\n[[home_agent.mobile_router]]\nhome_address = '{NODE}'\n\
         auth = {{ spi = 301, key = '0f0e0d0c0b0a09080706050403020100' }}\n",
        bed.agent_config().replace("[home_agent]\n", &format!("[home_agent]\n{more}\n"))
    )
}

fn node_config(bed: &Testbed, uplinks: &[&str]) -> String {
    let uplinks: String =
        uplinks.iter().map(|uplink| format!("[[mobile_node.uplink]]\ninterface = '{uplink}'\n")).collect();
    format!(
        "[station]\nname = 'node'\nsocket = '{}'\n\n\
         [mobile_node]\nhome_address = '{NODE}'\nhome_prefix = '2001:db8:1::/64'\nhome_agent = \
         '{HOME_AGENT}'\nauth = {{ spi = 301, key = '0f0e0d0c0b0a09080706050403020100' }}\n{uplinks}",
        bed.scratch.path("node.sock").display()
    )
}

/// Starts a server on a host. The server returns all data of one client, until the client closes the
/// connection.
fn serve(host: &Host) {
    host.run(|| {
        let listener = TcpListener::bind((address(CORRESPONDENT), PORT)).expect("a listener");
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
fn goes_on(connection: &mut TcpStream) {
    let sent = [0x5a; 3000];
    connection.set_read_timeout(Some(seconds(10))).expect("a timeout");
    connection.write_all(&sent).expect("written");
    let mut back = [0; 3000];
    connection.read_exact(&mut back).expect("what was sent comes back");
    assert_eq!(back, sent);
}

#[test]
fn a_visiting_node_keeps_its_sessions_while_the_vehicle_moves() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let _agent = Station::start(&bed.agent, &agent_config(&bed, ""));
    let router = Station::start(&bed.router, &bed.router_config());
    router.registered();
    let rules = bed.host.ip("-6 rule");
    let mut node = Station::start(&bed.host, &node_config(&bed, &["eth0"]));
    node.registered();
    assert_eq!(node.show("bindings")[0]["role"], "mobile_node");
    assert!(String::from_utf8_lossy(&node.ask(&["status"]).stdout).contains("mobile node"));
    // RFC 6275 11.3.1: a program that selects no address gets the home address. A program that has selected
    // the care-of address keeps the care-of address.
    let chosen = bed.host.ip(&format!("-6 route get {CORRESPONDENT}"));
    assert!(chosen.contains("dev carnet0") && chosen.contains(&format!("src {NODE}")), "{chosen}");
    let bound = bed.host.ip(&format!("-6 route get {CORRESPONDENT} from {INSIDE}"));
    assert!(bound.contains("dev eth0"), "{bound}");
    serve(&bed.core);
    let mut session =
        bed.host.run(|| TcpStream::connect((address(CORRESPONDENT), PORT)).expect("a connection"));
    assert_eq!(session.local_addr().expect("an address").ip(), address(NODE));
    let traffic = Echo::start(&bed.host, address(NODE), &bed.core, address(CORRESPONDENT), 200);
    traffic.flows();
    for uplink in ["wwan0", "wlan0"] {
        assert!(router.ask(&["handover", uplink]).status.success());
        wait_until("the vehicle has moved", seconds(10), || {
            router.show("status")["mobile_router"]["uplink"] == uplink
        });
        let before = traffic.answered();
        wait_until("traffic goes on for a while", seconds(10), || traffic.answered() > before + 40);
        goes_on(&mut session);
    }
    let report = traffic.stop();
    assert_eq!((report.lost, report.sent > 80), (0, true), "{report:?}");
    drop(session);
    node.terminate();
    assert_eq!(bed.host.ip("-6 rule"), rules);
    assert!(!bed.host.ip("-6 addr show").contains(NODE));
}

/// IPv4 home address of the mobile node, and of the correspondent.
const NODE_IPV4: &str = "10.42.7.7";
const SERVER_IPV4: &str = "198.51.100.1";

/// A machine with an IPv4 home address (RFC 5555) and two uplinks, one with IPv6 alone, one with IPv4 alone
/// behind a NAT.
#[test]
fn mobile_node_keeps_its_ipv4_home_address_over_ipv6_and_nat_uplinks() {
    if !possible() {
        return;
    }
    for path in ["tun", "bpf"] {
        let bed = dual();
        without_ipv6(&bed, &[1]);
        bed.router.ip("-4 addr flush dev wlan0 scope global");
        let _nat = behind_nat(&bed, 1);
        bed.core.ip(&format!("route add {NODE_IPV4} via 198.51.100.2"));
        let key = format!("address = '{HOME_AGENT}'\n");
        let data_path = format!("\n[dataplane]\npath = '{path}'\n");
        let of_agent = agent_config(&bed, "").replace(&key, &format!("{key}ipv4_address = '198.51.100.2'\n"));
        let of_agent = format!("{of_agent}ipv4_prefixes = ['{NODE_IPV4}/32']\n{data_path}");
        let mut agent = Station::start(&bed.agent, &of_agent);
        let key = format!("home_agent = '{HOME_AGENT}'\n");
        let ipv4 = format!(
            "{key}home_agent_ipv4 = '198.51.100.2'\nipv4_home_address = '{NODE_IPV4}'\nlifetime = '12s'\n"
        );
        let of_node = node_config(&bed, &["wlan0", "wwan0"]).replace(&key, &ipv4) + &data_path;
        let before = bed.router.snapshot();
        let mut node = Station::start(&bed.router, &of_node);
        node.registered();
        wait_until("the home agent accepts the address", seconds(10), || {
            agent.show("bindings")[0]["ipv4_prefixes"][0] == format!("{NODE_IPV4}/32")
        });
        wait_until("a program gets the address", seconds(10), || {
            let chosen = bed.router.ip(&format!("route get {SERVER_IPV4}"));
            chosen.contains("dev carnet0") && chosen.contains(&format!("src {NODE_IPV4}"))
        });
        for kind in ["ipv6", "udp"] {
            wait_until("the uplink carries the tunnel", seconds(20), || first_tunnel(&agent).0 == kind);
            wait_until("the correspondent answers", seconds(10), || bed.router.pings_v4(SERVER_IPV4));
            assert!(bed.core.pings_v4(NODE_IPV4), "{kind}");
            if kind == "ipv6" {
                assert!(node.ask(&["handover", "wwan0"]).status.success());
            }
        }
        // The home agent no longer accepts the address: IPv4 leaves by the routes of the system.
        agent.reload(&of_agent.replace(&format!("ipv4_prefixes = ['{NODE_IPV4}/32']\n"), ""));
        wait_until("IPv4 takes the uplink", seconds(30), || {
            bed.router.ip(&format!("route get {SERVER_IPV4}")).contains("dev wwan0")
        });
        node.terminate();
        assert_eq!(bed.router.snapshot(), before, "nothing of carnet's is left");
        agent.terminate();
    }
}

/// Home agent and node share a link, which is the home link: RFC 6275 11.5.5, 10.4.1.
#[test]
fn a_node_comes_home_and_leaves_again() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let node_host = &bed.router;
    bed.agent.link("home0", node_host, "eth9");
    bed.agent.ip("-6 addr add 2001:db8:1::ff/64 dev home0");
    for host in [&bed.agent, node_host] {
        host.settle();
    }
    let agent = Station::start(&bed.agent, &agent_config(&bed, "home_link = 'home0'"));
    let node = Station::start(node_host, &node_config(&bed, &["eth9", "wlan0"]));
    let state = || node.state();
    node.registered();
    let traffic = Echo::start(node_host, address(NODE), &bed.core, address(CORRESPONDENT), 100);
    traffic.flows();
    node_host.ip("-6 addr add 2001:db8:1::99/64 dev eth9");
    wait_until("it is at home", seconds(20), || state() == "home" || state() == "at_home");
    wait_until("the home agent knows it", seconds(10), || agent.bindings().is_empty());
    traffic.flows();
    // The node has another address on the home link; the kernel must not choose it.
    let chosen = node_host.ip(&format!("-6 route get {CORRESPONDENT}"));
    assert!(chosen.contains("dev eth9") && chosen.contains(&format!("src {NODE}")), "{chosen}");
    node_host.ip("link set eth9 down");
    wait_until("it is away again", seconds(20), || !agent.bindings().is_empty());
    traffic.flows();
    traffic.stop();
    let chosen = node_host.ip(&format!("-6 route get {CORRESPONDENT}"));
    assert!(chosen.contains("dev carnet0") && chosen.contains(&format!("src {NODE}")), "{chosen}");
}
