//! A home agent on a small rented server, whose prefix is only on its link, not routed to it (proxy Neighbor
//! Discovery). The home agent uses NAT for mobile networks with IPv4 and unique local IPv6.
//!
//! The core acts as the provider's router and as the correspondent. It has no routes to the mobile networks.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::hosts::{Host, can_run_or_report, seconds, wait_until};
use crate::ipv4::{dual_stack_testbed, start_with_changed_configs};
use crate::portal::read_metrics;
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, Testbed};

/// IPv4 address of the correspondent.
const WEB_SERVER: &str = "198.51.100.1";
/// Number of octets of the page that the correspondent serves.
const PAGE_LENGTH: usize = 200_000;

/// Returns the testbed with a host on board that has a private IPv4 address and a unique local IPv6 address.
fn testbed_with_web_server() -> Testbed {
    let bed = dual_stack_testbed();
    bed.core.run_ip("-6 route del 2001:db8:a::/64");
    bed.host.run_ip_batch(
        "addr flush dev eth0 scope global
         addr add fd00:a::10/64 dev eth0
         route add default via fd00:a::1",
    );
    bed.host.run_ip("addr add 10.42.7.5/24 dev eth0");
    bed.host.run_ip("route add default via 10.42.7.1");
    bed.host.wait_until_settled();
    bed
}

/// Replaces the mobile network in the config of the router or of the home agent.
fn config_with_networks(config: &str) -> String {
    let prefixes = "prefixes = ['2001:db8:a::/64']\n";
    assert_eq!(config.matches(prefixes).count(), 1);
    config.replace(prefixes, "prefixes = ['fd00:a::/64']\nipv4_prefixes = ['10.42.7.0/24']\n")
}

/// Serves one page on `server` by HTTP, and fetches it from `client`. Returns the request's source address as
/// the server saw it, and the number of octets that the client received. Returns `None` if the fetch fails.
fn fetch_page(client: &Host, server: &Host, address: &str) -> Option<(IpAddr, usize)> {
    fetch_page_at(client, server, address, address)
}

/// Serves a page at `server_address` and fetches it at `fetched_address`, because NAT changes the server's
/// address for the client.
/// Returns the same as `fetch_page`.
fn fetch_page_at(
    client: &Host,
    server: &Host,
    server_address: &str,
    fetched_address: &str,
) -> Option<(IpAddr, usize)> {
    let (server_address, fetched_address): (IpAddr, IpAddr) =
        (server_address.parse().expect("an address"), fetched_address.parse().expect("an address"));
    let listener =
        server.run_in_namespace(move || TcpListener::bind((server_address, 0)).expect("a listener"));
    let local = listener.local_addr().expect("bound");
    let to = SocketAddr::new(fetched_address, listener.local_addr().expect("bound").port());
    let served = std::thread::spawn(move || {
        let (mut stream, peer) = listener.accept().ok()?;
        stream.set_read_timeout(Some(seconds(10))).ok()?;
        let mut request = [0; 1000];
        let length = stream.read(&mut request).ok()?;
        assert!(request[..length].starts_with(b"GET / HTTP/1.0\r\n"));
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n").ok()?;
        stream.write_all(&vec![b'x'; PAGE_LENGTH]).ok()?;
        Some(peer.ip())
    });
    let received = client.run_in_namespace(move || {
        let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(5)).ok()?;
        stream.set_read_timeout(Some(seconds(10))).ok()?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        answer.strip_prefix(b"HTTP/1.0 200 OK\r\n\r\n").map(<[u8]>::len)
    });
    if received.is_none() {
        // Connect once more, so that the server's thread ends.
        server.run_in_namespace(move || drop(TcpStream::connect(local)));
    }
    Some((served.join().expect("a server")?, received?))
}

/// Checks that the host on board can fetch a page over both address families. The server must see the home
/// agent's addresses.
fn check_pages_on_path(bed: &Testbed, path: &str) {
    for (server, outside) in [(WEB_SERVER, "198.51.100.2"), (CORRESPONDENT, "2001:db8:f0::2")] {
        let page = fetch_page(&bed.host, &bed.core, server);
        assert_eq!(page, Some((outside.parse().expect("an address"), PAGE_LENGTH)), "{path}: {server}");
    }
}

/// Returns carnet's table of the packet filter; an empty text if it does not exist.
fn nat_table(host: &Host) -> String {
    let output = host.run_program(&["nft", "list", "table", "inet", "carnet_rules"]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn hosts_on_board_fetch_pages_through_nat_at_the_home_agent() {
    if !can_run_or_report() {
        return;
    }
    for path in ["tun", "bpf"] {
        let bed = testbed_with_web_server();
        let before = bed.agent.kernel_state();
        let dataplane = format!("\n[dataplane]\npath = '{path}'\n");
        let nat = |config: String| {
            let keys = "[home_agent]\nipv4_nat = 'ha0'\nipv6_nat = 'ha0'\n";
            config_with_networks(&config).replace("[home_agent]\n", keys) + &dataplane
        };
        let (mut agent, mut router) =
            start_with_changed_configs(&bed, nat, |config| config_with_networks(&config) + &dataplane);
        wait_until("the tunnel carries packets", seconds(10), || bed.host.can_ping(CORRESPONDENT));
        check_pages_on_path(&bed, path);
        let rules = nat_table(&bed.agent);
        assert_eq!(rules.matches("masquerade").count(), 2, "{rules}");
        check_shown_nat_counts(&agent, path);
        // The rules stay after the process was killed, and the next run works with them.
        agent.end_by_signal(Signal::SIGKILL);
        assert_eq!(nat_table(&bed.agent).matches("masquerade").count(), 2, "after the crash");
        let config = std::fs::read_to_string(agent_config_of_provider(&bed)).expect("the config");
        let mut agent = Station::start(&bed.agent, &config);
        wait_until("the router registers again", seconds(60), || bed.host.can_ping(CORRESPONDENT));
        check_pages_on_path(&bed, path);
        // A reload without the NAT keys removes the rules. The server's answers then have no route to the
        // host.
        agent.reload(&config.replace("ipv4_nat = 'ha0'\nipv6_nat = 'ha0'\n", ""));
        wait_until("the rules are gone", seconds(10), || nat_table(&bed.agent).is_empty());
        agent.reload(&config);
        wait_until("the rules are back", seconds(10), || nat_table(&bed.agent).contains("masquerade"));
        check_pages_on_path(&bed, path);
        router.terminate();
        agent.terminate();
        assert_eq!(nat_table(&bed.agent), "");
        crate::hosts::assert_same_state(&before, &bed.agent.kernel_state(), path);
    }
}

/// Returns whether the home agent's status shows the NAT of both families, with counts of all packets of a
/// page.
fn check_shown_nat_counts(agent: &Station, path: &str) {
    let status = agent.show_json("status");
    let nat = &status["home_agent"]["nat"];
    for (index, family) in ["ipv4", "ipv6"].into_iter().enumerate() {
        let nat = &nat[index];
        assert_eq!(nat["family"], family, "{nat}");
        assert_eq!((&nat["interface"], &nat["in_force"]), (&"ha0".into(), &true.into()), "{path}: {nat}");
        assert!(nat["failure"].is_null(), "{nat}");
        let count = |name: &str| nat["translated"][name].as_u64().expect("a number");
        // The packets from the server carry the octets of the page.
        assert!(count("octets_in") > PAGE_LENGTH as u64, "{path}: {nat}");
        assert!(count("octets_out") > 40 * count("packets_out") - 1, "{path}: {nat}");
        assert!(count("packets_out") > 5 && count("packets_in") > 5, "{path}: {nat}");
    }
    let metrics = read_metrics(&agent.control_socket);
    let sample = "carnet_home_agent_nat_packets_total{family=\"ipv6\",interface=\"ha0\",direction=\"in\"} ";
    assert!(metrics.contains(sample) && !metrics.contains(&format!("{sample}0\n")), "{metrics}");
    let shown = String::from_utf8_lossy(&agent.run_command(&["status"]).stdout).into_owned();
    assert!(shown.contains("  NAT of IPv4     ha0, in force, "), "{shown}");
}

#[test]
fn home_agent_translates_unique_local_prefix_in_both_directions() {
    if !can_run_or_report() {
        return;
    }
    for path in ["tun", "bpf"] {
        let bed = testbed_with_web_server();
        bed.core.run_ip("-6 route add 2001:db8:f7::/64 via 2001:db8:f0::2");
        let before = bed.agent.kernel_state();
        let dataplane = format!("\n[dataplane]\npath = '{path}'\n");
        let nat = |config: String| {
            let keys = "[home_agent]\nipv6_nat = 'ha0'\n\
                        ipv6_nat_prefixes = ['fd00:a::/64 2001:db8:f7::/64']\n";
            config_with_networks(&config).replace("[home_agent]\n", keys) + &dataplane
        };
        let (mut agent, mut router) =
            start_with_changed_configs(&bed, nat, |config| config_with_networks(&config) + &dataplane);
        wait_until("the tunnel carries packets", seconds(10), || bed.host.can_ping(CORRESPONDENT));
        // The server sees the host at an address of the routed prefix, and can reach the host there.
        let (source, octets) = fetch_page(&bed.host, &bed.core, CORRESPONDENT).expect("a page");
        assert!(source.to_string().starts_with("2001:db8:f7:") && octets == PAGE_LENGTH, "{path}: {source}");
        assert!(bed.core.can_ping("2001:db8:f7::10"), "{path}");
        let (own, seen) = ("fd00:a::10", "2001:db8:f7::10");
        let client = fetch_page_at(&bed.core, &bed.host, own, seen);
        assert_eq!(client.map(|(_, octets)| octets), Some(PAGE_LENGTH), "{path}");
        // Packets to other addresses of the prefix find no host.
        assert!(!bed.core.can_ping("2001:db8:f7::99"), "{path}");
        let rules = nat_table(&bed.agent);
        for rule in ["snat ip6 prefix to 2001:db8:f7::/64", "dnat ip6 prefix to fd00:a::/64"] {
            assert!(rules.contains(rule), "{rules}");
        }
        router.terminate();
        agent.terminate();
        assert_eq!(nat_table(&bed.agent), "");
        crate::hosts::assert_same_state(&before, &bed.agent.kernel_state(), path);
    }
}

fn agent_config_of_provider(bed: &Testbed) -> std::path::PathBuf {
    bed.scratch.path_of("agent.toml")
}

#[test]
fn providers_router_reaches_mobile_network_that_is_a_part_of_its_link() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    // The provider's router has 2001:db8:f0::/64 on its link, and no route to the home agent.
    for network in ["2001:db8:1::", "2001:db8:a::", "2001:db8:b::"] {
        bed.core.run_ip(&format!("-6 route del {network}/64"));
    }
    bed.host.run_ip_batch(
        "addr flush dev eth0 scope global
         addr add 2001:db8:f0:0:8001::10/80 dev eth0
         route add default via 2001:db8:f0:0:8001::1",
    );
    // With `advertise = false`, the operator must give the interface on board its address.
    bed.router.run_ip("-6 addr add 2001:db8:f0:0:8001::1/80 dev lan0");
    bed.host.wait_until_settled();
    bed.router.wait_until_settled();
    let on_link = |config: String| {
        config
            .replace("2001:db8:1::/64", "2001:db8:f0:0:8000::/80")
            .replace("2001:db8:1::", "2001:db8:f0:0:8000::")
            .replace("2001:db8:a::/64", "2001:db8:f0:0:8001::/80")
            .replace("[home_agent]\n", "[home_agent]\nndp_proxy = 'ha0'\n")
            .replace("lan = ['lan0']\n", "lan = ['lan0']\nadvertise = false\n")
    };
    let mut agent = Station::start(&bed.agent, &on_link(bed.agent_config()));
    assert!(!bed.core.can_ping("2001:db8:f0:0:8001::10"), "before the registration");
    let mut router = Station::start(&bed.router, &on_link(bed.router_config()));
    router.wait_until_registered();
    wait_until("the router reaches the host", seconds(20), || bed.core.can_ping("2001:db8:f0:0:8001::10"));
    assert!(bed.host.can_ping(CORRESPONDENT));
    let neighbor = |address: &str| bed.core.run_ip(&format!("-6 neigh show {address} dev ha"));
    let own = bed.agent.run_ip("-o link show ha0");
    let own = own.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next()).expect("an address");
    assert!(neighbor("2001:db8:f0:0:8001::10").contains(own), "{}", neighbor("2001:db8:f0:0:8001::10"));
    let proxy = agent.show_json("status")["home_agent"]["ndp_proxy"].clone();
    assert_eq!((&proxy["interface"], &proxy["state"]), (&"ha0".into(), &"up".into()), "{proxy}");
    // The home agent answers Neighbor Solicitations for its own address and for the router's home address.
    assert_eq!((&proxy["prefixes"], &proxy["refused"]), (&1.into(), &0.into()), "{proxy}");
    assert!(proxy["addresses"].as_u64() >= Some(2) && proxy["answered"].as_u64() >= Some(1), "{proxy}");
    // Other addresses of the link belong to other machines, so the home agent does not answer for them.
    assert!(!bed.core.can_ping("2001:db8:f0:0:8002::10"));
    assert!(!neighbor("2001:db8:f0:0:8002::10").contains(own));
    router.terminate();
    agent.terminate();
}
