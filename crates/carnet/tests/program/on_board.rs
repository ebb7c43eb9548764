//! The services for hosts on board with real clients: DHCP, DHCPv6 and DNS.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;

use crate::hosts::{can_run_or_report, output_text, seconds, time_factor, wait_for, wait_until};
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, ON_BOARD_HOST, Testbed, config_with_station_line};

const CLIENTS_PROGRAM: &str = include_str!("dhcp_clients.py");

/// Returns whether a program exists. If not, prints that the test needs it.
pub(crate) fn has_program(program: &str) -> bool {
    let words = format!("command -v {program}");
    let there = Command::new("sh").args(["-c", &words]).output().is_ok_and(|it| it.status.success());
    if !there {
        assert_ne!(std::env::var("CARNET_REQUIRE_TOOLS").as_deref(), Ok("1"), "{program} is missing");
        println!("SKIPPED: {program} is missing");
    }
    there
}

/// Returns the config of a router that serves hosts on `lan0` and stores their leases.
pub(crate) fn on_board_config(bed: &Testbed, of_router: &str, of_lan: &str) -> String {
    let state = format!("state_dir = '{}'", bed.scratch.path_of("state").display());
    let lan = format!("[[mobile_router.lan]]\ninterface = 'lan0'\n{of_lan}\n");
    let of_router = format!("ipv4_prefixes = ['10.42.4.0/22']\n{of_router}\n");
    config_with_station_line(&bed.router_config(), &state).replace("lan = ['lan0']\n", &of_router) + &lan
}

/// Gives the router its IPv4 address on board.
pub(crate) fn add_ipv4_address(bed: &Testbed) {
    bed.router.run_ip("-4 addr add 10.42.4.1/22 dev lan0");
}

/// Returns the hosts with a lease: link-layer address, address and name.
pub(crate) fn leases_of(router: &Station) -> Vec<(String, String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let lans = router.show_json("lan");
    let hosts = lans[0]["hosts"].as_array().cloned().unwrap_or_default();
    hosts.iter().map(|host| (text(&host["mac"]), text(&host["address"]), text(&host["name"]))).collect()
}

/// Makes the host request an address with busybox's DHCP client. Returns the variables that the client passes
/// to its script.
pub(crate) fn run_udhcpc(bed: &Testbed, name: &str) -> BTreeMap<String, String> {
    let script = bed.scratch.path_of("udhcpc.sh");
    std::fs::write(&script, "#!/bin/sh\n[ \"$1\" = bound ] && env\ntrue\n").expect("a script");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("a mode");
    let (script, hostname) = (script.display().to_string(), format!("hostname:{name}"));
    let words = ["busybox", "udhcpc", "-i", "eth0", "-f", "-q", "-n", "-t", "10", "-T", "2"];
    let more = ["-s", &script, "-x", &hostname, "-O", "search", "-O", "mtu", "-O", "114"];
    let output = bed.host.run_program(&[&words[..], &more[..]].concat());
    assert!(output.status.success(), "{}", output_text(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter_map(|line| line.split_once('=')).map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
}

#[test]
fn dhcp_clients_keep_their_addresses_over_a_kill_of_carnet() {
    if !can_run_or_report() || !has_program("busybox") {
        return;
    }
    let bed = Testbed::new();
    add_ipv4_address(&bed);
    let config = on_board_config(
        &bed,
        "",
        "search = ['bus.example']\nmtu = 1400\ndhcp_range = '10.42.4.10-10.42.4.19'\ndns = ['10.42.4.1']",
    );
    let mut router = Station::start(&bed.router, &config);
    let bound = run_udhcpc(&bed, "Tablet_1");
    let value = |name: &str| bound.get(name).map(String::as_str);
    assert_eq!(value("ip"), Some("10.42.4.10"), "{bound:?}");
    assert_eq!((value("subnet"), value("router")), (Some("255.255.252.0"), Some("10.42.4.1")));
    assert_eq!((value("dns"), value("mtu")), (Some("10.42.4.1"), Some("1400")));
    assert_eq!((value("domain"), value("search")), (Some("bus.example"), Some("bus.example")));
    let before = leases_of(&router);
    assert!(matches!(&before[..], [(_, _, name)] if name == "tablet-1"), "{before:?}");
    assert!(router.log_text().contains("given to"), "{}", router.log_text());

    // After `kill -9` of the router, the client still has its address, and another client gets another
    // address.
    router.end_by_signal(Signal::SIGKILL);
    let router = Station::start(&bed.router, &config);
    assert_eq!(leases_of(&router), before);
    bed.host.run_ip("link set eth0 address 02:00:00:00:00:42");
    assert_eq!(run_udhcpc(&bed, "other").get("ip").map(String::as_str), Some("10.42.4.11"));
    assert_eq!(leases_of(&router).len(), 2);
    assert_eq!(router.counter("lan.dhcp.acks"), 1);
}

#[test]
fn dhclient_gets_and_releases_an_address() {
    if !can_run_or_report() || !has_program("dhclient") {
        return;
    }
    let bed = Testbed::new();
    add_ipv4_address(&bed);
    let router = Station::start(&bed.router, &on_board_config(&bed, "", "search = ['bus.example']"));
    let file = |name: &str| bed.scratch.path_of(name).display().to_string();
    let (leases_file, pid, config_file) = (file("leases"), file("pid"), file("dhclient.conf"));
    std::fs::write(&config_file, "request subnet-mask, routers, domain-search;\n").expect("a file");
    let words = ["dhclient", "-4", "-1", "-cf", &config_file, "-lf", &leases_file, "-pf", &pid];
    let run = |more: &[&str]| {
        let output = bed.host.run_program(&[&words[..], more].concat());
        assert!(output.status.success(), "{}", output_text(&output));
    };
    run(&["-sf", "/bin/true", "eth0"]);
    let stored = std::fs::read_to_string(&leases_file).expect("leases");
    assert!(stored.contains("fixed-address 10.42.6.0;"), "the upper half of the prefix: {stored}");
    assert!(stored.contains("domain-search \"bus.example.\""), "{stored}");
    wait_until("a lease", seconds(5), || leases_of(&router).len() == 1);
    // The test sets the client's address, because the client's script does not. Without it the client could
    // not send its release.
    bed.host.run_ip("-4 addr add 10.42.6.0/22 dev eth0");
    run(&["-sf", "/bin/true", "-r", "eth0"]);
    wait_until("the lease is given back", seconds(5), || leases_of(&router).is_empty());
    assert_eq!(router.counter("lan.dhcp.releases"), 1);
}

#[test]
fn thousand_dhcp_clients_get_distinct_addresses_over_three_kills() {
    if !can_run_or_report() || !has_program("python3") {
        return;
    }
    let bed = Testbed::new();
    add_ipv4_address(&bed);
    let config = on_board_config(&bed, "", "dhcp_range = '10.42.4.2-10.42.7.254'");
    let mut router = Station::start(&bed.router, &config);
    let script = bed.scratch.path_of("clients.py");
    std::fs::write(&script, CLIENTS_PROGRAM).expect("a script");
    let limit = (60 * time_factor()).to_string();
    let words = ["/usr/bin/python3", script.to_str().expect("a path"), "eth0", "1000", "150", &limit];
    let mut clients = bed.host.spawn_program(&words.map(str::to_owned), |command| {
        command.stdout(Stdio::piped());
    });
    let lines = BufReader::new(clients.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let mut given: BTreeMap<String, String> = BTreeMap::new();
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    let (mut took, mut kills) = (None, vec![800, 500, 200]);
    for line in lines {
        let (mac, address) = line.split_once(' ').expect("two words");
        if mac == "seconds" {
            took = address.parse::<f64>().ok();
            break;
        }
        let owner = owners.entry(address.to_owned()).or_insert_with(|| mac.to_owned());
        assert_eq!(owner, mac, "{address} has two hosts: {}", router.log_text());
        given.insert(mac.to_owned(), address.to_owned());
        if kills.last() == Some(&given.len()) {
            kills.pop();
            router.end_by_signal(Signal::SIGKILL);
            router = Station::start(&bed.router, &config);
        }
    }
    let _ = clients.wait();
    let addresses: BTreeSet<&String> = given.values().collect();
    assert_eq!((given.len(), addresses.len()), (1000, 1000), "{}", router.log_text());
    assert!(kills.is_empty(), "{kills:?}");
    println!("1,000 clients had addresses after {took:?} s");
    let held: BTreeMap<String, String> =
        leases_of(&router).into_iter().map(|(mac, address, _)| (mac, address)).collect();
    assert_eq!(held, given);
    // The log must not have a line for each of the 1000 leases.
    let events = router.log_text().matches("given to").count();
    assert!(events < 300, "{events}");
}

#[test]
fn dhcp_server_leaves_fixed_addresses_and_an_occupied_port_alone() {
    if !can_run_or_report() || !has_program("busybox") {
        return;
    }
    let bed = Testbed::new();
    add_ipv4_address(&bed);
    // A host uses a fixed address inside the server's range. The DHCP client is in a second namespace on the
    // same link.
    bed.host.run_ip("link add second link eth0 type macvlan mode bridge");
    bed.host.run_ip("link set second up");
    bed.host.run_ip("-4 addr add 10.42.4.10/22 dev second");
    let config = on_board_config(&bed, "", "dhcp_range = '10.42.4.10-10.42.4.19'");
    let blocker = bed.router.run_in_namespace(|| std::net::UdpSocket::bind("0.0.0.0:67").expect("the port"));
    let router = Station::start(&bed.router, &config);
    wait_until("a warning", seconds(10), || {
        router.log_text().contains("another program of this machine has port 67")
    });
    let lan = router.show_json("lan");
    assert_eq!(lan[0]["dhcp"]["failure"], "another program of this machine has port 67");
    drop(blocker);
    wait_until("the server is up", seconds(20), || {
        router.log_text().contains("the DHCP server on lan0 is up")
    });
    assert_eq!(run_udhcpc(&bed, "client").get("ip").map(String::as_str), Some("10.42.4.11"));
    assert!(router.log_text().contains("10.42.4.10 on lan0 is in use by"), "{}", router.log_text());
    assert_eq!(router.counter("lan.dhcp.conflicts"), 1);
}

/// A DNS server on the Internet. It answers each query for an IPv6 address, and prints the source of the
/// query.
pub const DNS_SERVER: &str = r#"
import socket
server = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
server.bind(("2001:db8:c::1", 53))
while True:
    query, client = server.recvfrom(4096)
    end = query.index(b"\0", 12) + 5
    answer = b"\xc0\x0c" + query[end - 4:end] + (300).to_bytes(4, "big")
    answer += (16).to_bytes(2, "big") + socket.inet_pton(socket.AF_INET6, "2001:db8:77::7")
    head = query[:2] + b"\x81\x80" + b"\0\x01\0\x01\0\0\0\0"
    print(client[0], client[1], query[:2].hex(), flush=True)
    server.sendto(head + query[12:end] + answer, client)
"#;

/// Returns the answer of `dig` on the host, one line for each value.
pub fn run_dig(bed: &Testbed, arguments: &str) -> String {
    let words = ["dig", "+time=9", "+tries=1", "+short"].into_iter().chain(arguments.split(' '));
    let output = bed.host.run_program(&words.collect::<Vec<_>>());
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn dns_forwarder_resolves_through_the_tunnel_and_knows_hosts_on_board() {
    if !can_run_or_report() || !has_program("dig") || !has_program("busybox") || !has_program("python3") {
        return;
    }
    let bed = Testbed::new();
    add_ipv4_address(&bed);
    let words = ["/usr/bin/python3", "-c", DNS_SERVER].map(str::to_owned);
    let mut server = bed.core.spawn_program(&words, |command| {
        command.stdout(Stdio::piped());
    });
    let asked = BufReader::new(server.stdout.take().expect("a pipe")).lines();
    let forward = format!("dns_forward = ['{CORRESPONDENT}']");
    let config = on_board_config(&bed, &forward, "search = ['bus.example']");
    let _agent = Station::start(&bed.agent, &bed.agent_config());
    let router = Station::start(&bed.router, &config);
    router.wait_until_registered();
    // Router Advertisements and DHCP name the mobile router as the DNS server.
    let bound = run_udhcpc(&bed, "tablet");
    let address = bound.get("ip").cloned().expect("an address");
    assert_eq!(bound.get("dns").map(String::as_str), Some("10.42.4.1"));
    wait_for("the router advertises itself", seconds(10), || {
        (router.show_json("lan")[0]["advertisement"]["dns"][0] == "2001:db8:a::1").then_some(())
    });
    bed.host.run_ip(&format!("-4 addr add {address}/22 dev eth0"));

    let server_says = "2001:db8:77::7";
    assert_eq!(run_dig(&bed, "@2001:db8:a::1 www.example.net AAAA"), server_says, "{}", router.log_text());
    assert_eq!(run_dig(&bed, "@10.42.4.1 WWW.example.net AAAA"), server_says);
    assert_eq!(run_dig(&bed, "+tcp @10.42.4.1 www.example.net AAAA"), server_says);
    assert_eq!(router.counter("lan.dns.asked"), 1);
    // The uplink in use now drops all packets, so the next query has to wait for the handover.
    bed.core.run_ip("link set wlan down");
    assert_eq!(run_dig(&bed, "@2001:db8:a::1 two.example.net AAAA"), server_says, "{}", router.log_text());
    // The forwarder itself resolves the names of hosts on board.
    assert_eq!(run_dig(&bed, "@10.42.4.1 tablet.bus.example A"), address);
    assert_eq!(run_dig(&bed, "@10.42.4.1 tablet.lan A"), address);
    assert_eq!(run_dig(&bed, &format!("@2001:db8:a::1 -x {address}")), "tablet.bus.example.");
    // The forwarder must not pass queries about names and addresses on board on to the server on the
    // Internet. That server would answer each with a wrong address.
    let asked_before = router.counter("lan.dns.asked");
    for name in ["tablet.bus.example MX", "tablet.lan MX", "tablet MX", "nobody.lan AAAA", "nobody AAAA"] {
        assert_eq!(run_dig(&bed, &format!("@10.42.4.1 {name}")), "", "{name}");
    }
    for address in ["2001:db8:a::77", "10.42.5.9"] {
        assert_eq!(run_dig(&bed, &format!("@2001:db8:a::1 -x {address}")), "", "{address}");
    }
    assert_eq!(router.counter("lan.dns.asked"), asked_before, "local names left the vehicle");
    let _ = (server.kill(), server.wait());
    let asked: Vec<String> = asked.map_while(Result::ok).collect();
    assert!(asked.iter().all(|line| line.starts_with("2001:db8:a::1 ")), "on-board source: {asked:?}");
    let ports: BTreeSet<&str> = asked.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(ports.len(), asked.len(), "a port for each query: {asked:?}");
    // The forwarder must not answer queries from outside the mobile network.
    let outside = bed.core.run_program(&["dig", "+time=1", "+tries=1", "@2001:db8:a::1", "tablet.lan", "A"]);
    assert!(!outside.status.success(), "{}", output_text(&outside));
}

/// Sends a Neighbor Solicitation from a forged address, with another host's link-layer address.
const CLAIM_ADDRESS_PROGRAM: &str = "
import sys
from scapy.all import Ether, ICMPv6ND_NS, ICMPv6NDOptSrcLLAddr, IPv6, sendp
victim, address = sys.argv[1:]
packet = Ether(src='02:00:00:00:00:99', dst='33:33:ff:00:00:01') / IPv6(src=address, dst='ff02::1:ff00:1')
packet /= ICMPv6ND_NS(tgt='2001:db8:a::1') / ICMPv6NDOptSrcLLAddr(lladdr=victim)
sendp(packet, iface='eth0', verbose=False)
";

#[test]
fn forwarder_answers_with_ipv6_addresses_that_the_host_defends() {
    if !can_run_or_report() || !has_program("dig") || !has_program("busybox") || !has_program("scapy") {
        return;
    }
    let bed = Testbed::new();
    add_ipv4_address(&bed);
    let forward = format!("dns_forward = ['{CORRESPONDENT}']");
    let router = Station::start(&bed.router, &on_board_config(&bed, &forward, "search = ['bus.example']"));
    const EARLIER_ADDRESS: &str = "2001:db8:a::77";
    bed.host.run_ip(&format!("-6 addr add {EARLIER_ADDRESS}/64 dev eth0 nodad"));
    let ping_from = |address: &str| {
        let ping =
            bed.host.run_program(&["ping", "-6", "-c", "1", "-W", "5", "-I", address, "2001:db8:a::1"]);
        assert!(ping.status.success(), "{}", output_text(&ping));
    };
    let neighbour = |address: &str| bed.router.run_ip(&format!("-6 neigh show {address} dev lan0"));
    // Waits until the kernel has verified an address. Then ends the neighbour state REACHABLE of this
    // address, before a query.
    let verify_and_make_stale = |address: &str| {
        wait_until("the address is verified", seconds(30), || neighbour(address).contains("REACHABLE"));
        bed.router.run_ip(&format!("-6 neigh change {address} dev lan0 nud stale"));
    };
    ping_from(EARLIER_ADDRESS);
    verify_and_make_stale(EARLIER_ADDRESS);
    run_udhcpc(&bed, "tablet");
    // Because of the new lease, carnet makes the kernel verify the address again.
    verify_and_make_stale(EARLIER_ADDRESS);
    let (mac, address, _) = leases_of(&router)[0].clone();
    bed.host.run_ip(&format!("-4 addr add {address}/22 dev eth0"));
    // Returns whether the host's name has this IPv6 address. The host has further addresses from Router
    // Advertisements.
    let has_address =
        |address: &str| run_dig(&bed, "@10.42.4.1 tablet.lan AAAA").lines().any(|known| known == address);
    assert!(has_address(EARLIER_ADDRESS), "the first answer lacks the address of before the lease");
    assert!(!has_address(ON_BOARD_HOST), "the host has not answered there yet");
    ping_from(ON_BOARD_HOST);
    verify_and_make_stale(ON_BOARD_HOST);
    assert!(has_address(ON_BOARD_HOST), "carnet has forgotten the answer that came between two queries");
    assert_eq!(run_dig(&bed, &format!("@10.42.4.1 -x {ON_BOARD_HOST}")), "tablet.bus.example.");

    // Another host on board claims that its own address belongs to the host's link-layer address.
    const FORGED_ADDRESS: &str = "2001:db8:a::666";
    let claim =
        bed.host.run_program(&["/usr/bin/python3", "-c", CLAIM_ADDRESS_PROGRAM, &mac, FORGED_ADDRESS]);
    assert!(claim.status.success(), "{}", output_text(&claim));
    wait_until("the kernel believes the claim", seconds(10), || neighbour(FORGED_ADDRESS).contains(&mac));
    wait_until("the kernel has verified the claim", seconds(60), || {
        assert!(has_address(ON_BOARD_HOST) && !has_address(FORGED_ADDRESS));
        !neighbour(FORGED_ADDRESS).contains(&mac)
    });
    assert!(has_address(ON_BOARD_HOST) && !has_address(FORGED_ADDRESS));
    assert_eq!(router.counter("lan.dns.asked"), 0);
}

#[test]
fn dhcpv6_client_without_addresses_gets_dns_and_search_list() {
    if !can_run_or_report() || !has_program("dhclient") {
        return;
    }
    let bed = Testbed::new();
    let router = Station::start(
        &bed.router,
        &on_board_config(&bed, "", "dns = ['2001:db8:53::53']\nsearch = ['bus.example']"),
    );
    let file = |name: &str| bed.scratch.path_of(name).display().to_string();
    let (leases, pid, script) = (file("leases6"), file("pid6"), file("script6"));
    let values = file("values6");
    std::fs::write(&script, format!("#!/bin/sh\nenv > {values}\n")).expect("a script");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("a mode");
    let words = ["dhclient", "-6", "-S", "-1", "-lf", &leases, "-pf", &pid, "-sf", &script, "eth0"];
    let output = bed.host.run_program(&words);
    assert!(output.status.success(), "{}\n{}", output_text(&output), router.log_text());
    let found = std::fs::read_to_string(&values).expect("values");
    assert!(found.contains("new_dhcp6_name_servers=2001:db8:53::53"), "{found}");
    assert!(found.contains("new_dhcp6_domain_search=bus.example"), "{found}");
    assert_eq!(router.counter("lan.dhcpv6.replies"), 1);
}
