//! `carnet portal`: one host on board reaches the captive portal of an uplink, and another host does not.
//!
//! The core acts as the access network of the first uplink. It redirects web requests to the portal's own
//! server, answers DNS queries, and drops all other packets. So the router is registered over the second
//! uplink, and hosts reach the web server beyond the home agent through the tunnel.

use std::fs;
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::hosts::{Host, RunningProgram, can_run_or_report, output_text, seconds, wait_until};
use crate::ipv4::{config_with_identifiers, dual_stack_testbed, load_nft_rules, start_with_changed_configs};
use crate::portal::read_metrics;
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, Testbed};

/// Address of the web server beyond the home agent.
const PORTAL_SERVER: &str = "198.51.100.80";
/// Address of the access network's router, which is its DNS server as well.
const ACCESS_GATEWAY: &str = "192.0.2.1";
const IPV4_PREFIX: &str = "10.42.7.0/24";

/// DNS server that answers each query with its own address.
const DNS_PROGRAM: &str = r#"
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], 53))
while True:
    query, client = server.recvfrom(512)
    question = query[12:query.index(0, 12) + 5]
    record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(sys.argv[1])
    server.sendto(query[:2] + b"\x81\x80\0\1\0\1\0\0\0\0" + question + record, client)
"#;

/// The testbed with two hosts on board, which share one link.
struct PortalTestbed {
    bed: Testbed,
    other_host: Host,
    _servers: [RunningProgram; 3],
}

fn run_in_background(host: &Host, words: &[&str]) -> RunningProgram {
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    RunningProgram(host.spawn_program(&words, |command| {
        command.stdout(Stdio::null()).stderr(Stdio::null());
    }))
}

/// Starts a web server in the core whose only page says where the server is.
fn start_web_server(bed: &Testbed, place: &str, port: &str) -> RunningProgram {
    let folder = bed.scratch.path_of(place);
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("index.html"), place).expect("a page");
    run_in_background(&bed.core, &["busybox", "httpd", "-f", "-p", port, "-h", &folder.display().to_string()])
}

impl PortalTestbed {
    fn new() -> PortalTestbed {
        let bed = dual_stack_testbed();
        bed.core.run_ip(&format!("addr add {PORTAL_SERVER}/32 dev lo"));
        bed.core.run_ip(&format!("route add {IPV4_PREFIX} via 198.51.100.2"));
        let other = Host::new();
        bed.host.run_ip(&format!(
            "link add link eth0 name eth1 netns {} type macvlan mode private",
            other.thread_id()
        ));
        other.run_ip("link set eth1 up");
        other.run_ip_batch(
            "addr add 2001:db8:a::11/64 dev eth1\nroute add default via 2001:db8:a::1 metric 10",
        );
        for (host, interface, address) in [(&bed.host, "eth0", "10.42.7.5"), (&other, "eth1", "10.42.7.6")] {
            host.run_ip(&format!("addr add {address}/24 dev {interface}"));
            host.run_ip("route add default via 10.42.7.1");
        }
        load_nft_rules(
            &bed.core,
            &[
                "add table inet portal",
                "add chain inet portal lead { type nat hook prerouting priority -100 ; }",
                "add rule inet portal lead iifname wlan tcp dport 80 redirect to :8080",
                "add chain inet portal own { type filter hook input priority 0 ; }",
                "add rule inet portal own iifname wlan tcp dport 8080 accept",
                "add rule inet portal own iifname wlan udp dport 53 accept",
                "add rule inet portal own iifname wlan icmpv6 type 133-137 accept",
                "add rule inet portal own iifname wlan drop",
                "add chain inet portal pass { type filter hook forward priority 0 ; }",
                "add rule inet portal pass iifname wlan drop",
            ],
        );
        let python = std::env::var("CARNET_PYTHON").unwrap_or_else(|_| "/usr/bin/python3".into());
        let servers = [
            start_web_server(&bed, "beyond", "80"),
            start_web_server(&bed, "portal", "8080"),
            run_in_background(&bed.core, &[&python, "-c", DNS_PROGRAM, ACCESS_GATEWAY]),
        ];
        PortalTestbed { bed, other_host: other, _servers: servers }
    }

    /// Starts both stations. The router is registered over the second uplink.
    fn start_on_path(&self, path: &str) -> (Station, Station) {
        let prefixes = "prefixes = ['2001:db8:a::/64']\n";
        let ipv4 = format!("{prefixes}ipv4_prefixes = ['{IPV4_PREFIX}']\n");
        let dataplane = format!("\n[dataplane]\npath = '{path}'\n");
        let of_both = |config: String| config.replace(prefixes, &ipv4) + &dataplane;
        let stations =
            start_with_changed_configs(&self.bed, of_both, |config| config_with_identifiers(of_both(config)));
        wait_until("the tunnel carries packets", seconds(30), || self.hosts_see_pages("beyond", "beyond"));
        stations
    }

    /// Returns whether the two hosts get the pages `first` and `second`, over both address families.
    fn hosts_see_pages(&self, first: &str, second: &str) -> bool {
        let gets = |host: &Host, expected: &str| {
            let urls = [format!("http://{PORTAL_SERVER}/"), format!("http://[{CORRESPONDENT}]/")];
            urls.iter().all(|url| fetch_page(host, url) == expected)
        };
        gets(&self.bed.host, first) && gets(&self.other_host, second)
    }

    fn host_mac(&self) -> String {
        let link = self.bed.host.run_ip("-o link show dev eth0");
        let mut words = link.split_whitespace().skip_while(|word| *word != "link/ether");
        words.nth(1).expect("a MAC address").to_owned()
    }
}

/// Returns the page at a URL; empty without an answer.
fn fetch_page(host: &Host, url: &str) -> String {
    let output = host.run_program(&["curl", "--silent", "--globoff", "--max-time", "2", url]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the answer to a query for the portal's name, sent to the router on board; empty without an answer.
fn resolved_address(host: &Host) -> String {
    let words = ["dig", "+short", "+tries=1", "+time=1", "@10.42.7.1", "portal.example"];
    let output = String::from_utf8_lossy(&host.run_program(&words).stdout).into_owned();
    // Lines with a semicolon are remarks about the query.
    output.lines().filter(|line| !line.starts_with(';')).collect()
}

fn run_access_command(router: &Station, arguments: &[&str]) {
    let output = router.run_command(&[&["portal", "wlan0"], arguments].concat());
    assert!(output.status.success(), "{}", output_text(&output));
}

fn assert_access_refused(router: &Station, arguments: &[&str], expected: &str) {
    let output = router.run_command(&[&["portal"], arguments].concat());
    assert!(!output.status.success() && output_text(&output).contains(expected), "{}", output_text(&output));
}

/// Returns the packets and octets that left by the first uplink to its portal, and those that came back.
fn portal_traffic_counts(router: &Station) -> Vec<u64> {
    let outside = router.show_json("uplinks")[0]["portal_outside"].clone();
    let names = ["packets_out", "octets_out", "packets_in", "octets_in"];
    names.iter().map(|name| outside[*name].as_u64().expect("a number")).collect()
}

fn assert_access_ended(router: &Station, reason: &str) {
    wait_until(reason, seconds(30), || {
        router.log_text().contains(&format!("to the captive portal has ended: {reason}"))
    });
    assert_eq!(router.show_json("uplinks")[0]["portal_access"], Value::Null);
}

fn check_only_host_reaches_portal(path: &str) {
    if !can_run_or_report() {
        return;
    }
    let bench = PortalTestbed::new();
    let before = bench.bed.router.kernel_state();
    let (_agent, mut router) = bench.start_on_path(path);
    let mac = bench.host_mac();
    assert_eq!(resolved_address(&bench.bed.host), "");

    run_access_command(&router, &["--host", &mac, "--dns", ACCESS_GATEWAY]);
    wait_until("the host reaches the portal", seconds(10), || bench.hosts_see_pages("portal", "beyond"));
    assert_eq!(
        (resolved_address(&bench.bed.host).as_str(), resolved_address(&bench.other_host).as_str()),
        (ACCESS_GATEWAY, "")
    );
    let access = router.show_json("uplinks")[0]["portal_access"].clone();
    assert_eq!((&access["host"], &access["interface"]), (&mac.as_str().into(), &"lan0".into()));
    let shown = output_text(&router.run_command(&["show", "uplinks"]));
    assert!(
        shown.contains(&format!("wlan0: host {mac} at lan0 has access to the captive portal")),
        "{shown}"
    );

    let counted = portal_traffic_counts(&router);
    assert!(counted.iter().all(|count| *count > 0), "{counted:?}");
    let metric = "carnet_portal_packets_total{interface=\"wlan0\",direction=\"in\"} ";
    assert!(
        read_metrics(&router.control_socket).contains(metric),
        "{}",
        read_metrics(&router.control_socket)
    );

    run_access_command(&router, &["--end"]);
    wait_until("the host takes the tunnel", seconds(10), || bench.hosts_see_pages("beyond", "beyond"));
    assert_eq!(resolved_address(&bench.bed.host), "");
    assert_access_ended(&router, "an operator has ended it");
    // The counts stay when the rules are removed, and grow with the next access.
    let counted_later = portal_traffic_counts(&router);
    assert!(counted_later >= counted, "{counted_later:?} after {counted:?}");

    run_access_command(&router, &["--host", &mac, "--for", "8s"]);
    wait_until("the host reaches the portal", seconds(8), || bench.hosts_see_pages("portal", "beyond"));
    assert_access_ended(&router, "its time is over");
    assert!(
        portal_traffic_counts(&router)[0] > counted_later[0],
        "{:?} after {counted_later:?}",
        portal_traffic_counts(&router)
    );
    assert!(bench.hosts_see_pages("beyond", "beyond"), "{}", router.log_text());

    // A restart of the station ends the access.
    run_access_command(&router, &["--host", &mac]);
    wait_until("the host reaches the portal", seconds(10), || bench.hosts_see_pages("portal", "beyond"));
    router.end_by_signal(Signal::SIGKILL);
    let config = fs::read_to_string(&router.config_file).expect("the config");
    let mut router = Station::start(&bench.bed.router, &config);
    router.wait_until_registered();
    wait_until("the host takes the tunnel", seconds(30), || bench.hosts_see_pages("beyond", "beyond"));
    assert_eq!(router.show_json("uplinks")[0]["portal_access"], Value::Null);

    assert_access_refused(
        &router,
        &["wlan9", "--host", &mac],
        "cannot find the uplink wlan9, expected one of: wlan0, wwan0",
    );
    assert_access_refused(
        &router,
        &["wlan0", "--host", "02:00:00:00:00:99"],
        "cannot find the host 02:00:00:00:00:99",
    );
    assert_access_refused(
        &router,
        &["wlan0", "--host", "02:00"],
        "expected six groups of two hexadecimal digits",
    );
    assert_access_refused(
        &router,
        &["wlan0", "--host", &mac, "--for", "2h"],
        "expected a time from 1s to 1h",
    );
    assert_access_refused(&router, &["wlan0", "--end"], "no host has access to it");

    assert!(router.end_by_signal(Signal::SIGTERM).status.success(), "{}", router.log_text());
    assert_eq!(bench.bed.router.kernel_state(), before);
    let tables = bench.bed.router.run_program(&["nft", "list", "tables"]);
    assert_eq!(String::from_utf8_lossy(&tables.stdout), "");
}

#[test]
fn only_the_permitted_host_reaches_the_portal_on_the_slow_path() {
    check_only_host_reaches_portal("tun");
}

#[test]
fn only_the_permitted_host_reaches_the_portal_beside_the_bpf_path() {
    check_only_host_reaches_portal("bpf");
}

#[test]
fn only_the_permitted_host_reaches_the_portal_beside_the_xdp_path() {
    // Only in a run with `xdp` do the interfaces of the testbed have the settings that XDP needs.
    if std::env::var("CARNET_TEST_PATH").as_deref() == Ok("xdp") {
        check_only_host_reaches_portal("xdp");
    }
}

#[test]
fn portal_access_ends_when_its_uplink_goes_down() {
    if !can_run_or_report() {
        return;
    }
    let bench = PortalTestbed::new();
    let (_agent, mut router) = bench.start_on_path("tun");
    run_access_command(&router, &["--host", &bench.host_mac()]);
    wait_until("the host reaches the portal", seconds(10), || bench.hosts_see_pages("portal", "beyond"));
    bench.bed.router.run_ip("link set wlan0 down");
    assert_access_ended(&router, "the uplink has no address with a default router");
    wait_until("the host takes the tunnel", seconds(10), || bench.hosts_see_pages("beyond", "beyond"));
    router.terminate();
}

#[test]
fn portal_access_takes_dns_servers_of_dhclients_lease() {
    if !can_run_or_report()
        || !crate::on_board::has_program("dhclient")
        || !crate::on_board::has_program("busybox")
    {
        return;
    }
    let bench = PortalTestbed::new();
    let (_agent, mut router) = bench.start_on_path("tun");
    // The access network gives the uplink an address by DHCP, from busybox's server.
    let leases = bench.bed.scratch.path_of("dhcp");
    fs::create_dir(&leases).expect("a folder");
    let conf = bench.bed.scratch.path_of("udhcpd.conf");
    let (lease_file, pid) =
        (bench.bed.scratch.path_of("udhcpd.leases"), bench.bed.scratch.path_of("udhcpd.pid"));
    fs::write(&lease_file, "").expect("a file");
    let text = format!(
        "start 192.0.2.100\nend 192.0.2.110\ninterface wlan\nlease_file {}\npidfile {}\n\
         opt dns {ACCESS_GATEWAY} 192.0.2.7\nopt subnet 255.255.255.0\nopt router {ACCESS_GATEWAY}\n",
        lease_file.display(),
        pid.display()
    );
    fs::write(&conf, text).expect("a config");
    load_nft_rules(&bench.bed.core, &["insert rule inet portal own iifname wlan udp dport 67 accept"]);
    let _server =
        run_in_background(&bench.bed.core, &["busybox", "udhcpd", "-f", &conf.display().to_string()]);
    let file = |name: &str| leases.join(name).display().to_string();
    // The test uses only the lease file: the uplink keeps its static address.
    let (own, id) = (file("dhclient.wlan0.leases"), file("pid"));
    let words =
        ["timeout", "60", "dhclient", "-4", "-1", "-sf", "/bin/true", "-lf", &own, "-pf", &id, "wlan0"];
    let output = bench.bed.router.run_program(&words);
    let lease = fs::read_to_string(&own).unwrap_or_default();
    assert!(lease.contains("domain-name-servers"), "{}\n{lease}", output_text(&output));
    bench.bed.router.run_program(&["sh", "-c", &format!("kill $(cat {id})")]);

    let socket = router.control_socket.display().to_string();
    let order = |more: &str| {
        let script = format!(
            "mount --make-rprivate / && mkdir -p /var/lib/dhcp && mount --bind {} /var/lib/dhcp && \
             exec {} portal wlan0 --host {} --socket {socket} {more}",
            leases.display(),
            env!("CARGO_BIN_EXE_carnet"),
            bench.host_mac()
        );
        let output = bench.bed.router.run_program(&["unshare", "--mount", "sh", "-c", &script]);
        assert!(output.status.success(), "{}", output_text(&output));
        router.show_json("uplinks")[0]["portal_access"]["dns"].clone()
    };
    assert_eq!(order(""), serde_json::json!([ACCESS_GATEWAY, "192.0.2.7"]));
    wait_until("the portal's DNS", seconds(10), || resolved_address(&bench.bed.host) == ACCESS_GATEWAY);
    // Servers that the operator names come before those of the lease.
    assert_eq!(order("--dns 192.0.2.8"), serde_json::json!(["192.0.2.8"]));
    router.terminate();
}
