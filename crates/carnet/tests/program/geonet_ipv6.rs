//! IPv6 over GeoNetworking: three stations in a line, with real kernels.

use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::process::Output;
use std::time::Duration;

use serde_json::Value;

use crate::geonet::StationLine;
use crate::hosts::{Host, assert_same_state, can_run_or_report, output_text, seconds, wait_until};
use crate::station::{Station, run_carnet};

const FRAME_INTERFACES: [&str; 3] = ["radio", "br0", "radio"];
pub const MULTICAST_GROUP: &str = "ff3e:40:2001:db8:1::1";

/// Returns the config of a station with IPv6. It maps the multicast group of the subnet to the area `east`.
pub fn ipv6_config(line: &StationLine, index: usize, interface: &str, more: &str) -> String {
    line.station_config(index, interface, more)
        .replace("[geonet]\n", "[geonet]\nipv6_interface = 'gn0'\nmib = { max_packet_data_rate = 0 }\n")
        .replace("name = 'east'\n", &format!("name = 'east'\ngroup = '{MULTICAST_GROUP}'\n"))
}

fn start_stations(line: &StationLine, interfaces: [&str; 3]) -> [Station; 3] {
    start_stations_on_path(line, interfaces, "auto")
}

fn start_stations_on_path(line: &StationLine, interfaces: [&str; 3], path: &str) -> [Station; 3] {
    let stations = [0, 1, 2].map(|i| {
        let config = ipv6_config(line, i, interfaces[i], "") + &format!("[dataplane]\npath = '{path}'\n");
        Station::start(&line.hosts[i], &config)
    });
    for (station, neighbours) in stations.iter().zip([1, 2, 1]) {
        wait_until("everybody knows the neighbours", seconds(10), || {
            station.show_json("neighbours").as_array().map(Vec::len) == Some(neighbours)
        });
    }
    stations
}

/// Returns the link-local address of a host's virtual interface.
fn link_local_address(host: &Host) -> String {
    let shown = host.run_ip("-o -6 addr show dev gn0 scope link");
    let word = shown.split_whitespace().find(|word| word.contains('/')).expect("an address");
    word.trim_end_matches("/64").to_owned()
}

fn run_ping(host: &Host, target: &str, count: usize, size: usize) -> Output {
    let (count, size) = (count.to_string(), size.to_string());
    // After the last request, ping waits for two intervals, or for twice the longest round trip. A busy
    // machine may need this time.
    host.run_program(&["ping", "-6", "-c", &count, "-i", "0.1", "-W", "2", "-s", &size, target])
}

#[track_caller]
fn assert_all_answered(host: &Host, target: &str, count: usize, size: usize) {
    let output = run_ping(host, target, count, size);
    let text = output_text(&output);
    assert!(text.contains(&format!("{count} received")), "{target}, {size} octets: {text}");
    assert!(!text.contains("DUP!"), "{text}");
}

fn check_hosts_ping_each_other(interfaces: [&str; 3], path: &str) {
    if !can_run_or_report() {
        return;
    }
    let line = StationLine::new();
    let before: Vec<String> = line.hosts.iter().map(Host::kernel_state).collect();
    let mut stations = start_stations_on_path(&line, interfaces, path);
    let [west, middle, east] = &line.hosts;
    let shown = west.run_ip("link show dev gn0");
    assert!(shown.contains("mtu 1398"), "{shown}");
    for target in [middle, east] {
        let target = format!("{}%gn0", link_local_address(target));
        // A packet of the largest size takes two fragments.
        for size in [20, 1000, 1350, 1500] {
            assert_all_answered(west, &target, 10, size);
        }
    }
    // The stations sent no Neighbor Solicitation on the air, and dropped no packet because of its address.
    let counters = stations[0].show_json("counters");
    assert!(counters["geonet.ipv6.settled"].as_u64().is_some_and(|count| count >= 2), "{counters}");
    assert_eq!(counters["geonet.ipv6.dropped.spoofed_source"], 0);

    // For addresses that do not contain a MAC address, Neighbor Discovery messages go over both hops.
    for (index, host) in line.hosts.iter().enumerate() {
        host.run_ip(&format!("-6 addr add 2001:db8:6::{}/64 dev gn0", index + 1));
    }
    for target in ["2001:db8:6::2", "2001:db8:6::3"] {
        assert_all_answered(west, target, 5, 200);
    }
    let known = west.run_ip("-6 neigh show dev gn0");
    assert!(known.contains("2001:db8:6::3"), "{known}");

    // The slow path and the fast path count packets in the same way.
    for (name, counter) in [
        ("sent", "geonet.ipv6.sent"),
        ("delivered", "geonet.ipv6.received"),
        ("forwarded", "geonet.forwarded"),
    ] {
        let of = |counter: &str| stations.iter().map(|station| station.counter(counter)).sum::<u64>();
        wait_until("the fast path's packets are counted", seconds(5), || {
            let (fast, all) = (of(&format!("geonet.fast_path.{name}")), of(counter));
            if path == "bpf" { fast > 20 && all > fast } else { fast == 0 && all > 20 }
        });
    }
    assert_eq!(stations.iter().map(|station| station.counter("geonet.fast_path.failed")).sum::<u64>(), 0);

    stations.iter_mut().for_each(Station::terminate);
    for (host, before) in line.hosts.iter().zip(&before) {
        assert_same_state(before, &host.kernel_state(), "after the end");
    }
}

#[test]
fn hosts_ping_over_one_and_two_geonetworking_hops_by_ethernet_frames() {
    check_hosts_ping_each_other(FRAME_INTERFACES, "tun");
}

#[test]
fn hosts_ping_over_one_and_two_geonetworking_hops_by_the_fast_path() {
    check_hosts_ping_each_other(FRAME_INTERFACES, "bpf");
}

#[test]
fn hosts_ping_over_one_and_two_geonetworking_hops_by_udp() {
    check_hosts_ping_each_other(
        [
            "udp:192.0.2.1:8947,192.0.2.2:8947",
            "udp:192.0.2.2:8947,192.0.2.1:8947,192.0.2.3:8947",
            "udp:192.0.2.3:8947,192.0.2.2:8947",
        ],
        "auto",
    );
}

/// The kernel has the next hops in its tables. Changes of the tables cause netlink requests, but packets
/// cause none.
#[test]
fn sending_ipv6_over_geonetworking_makes_no_netlink_request() {
    if !can_run_or_report() {
        return;
    }
    for path in ["tun", "bpf"] {
        let line = StationLine::new();
        let stations = start_stations_on_path(&line, FRAME_INTERFACES, path);
        let [west, _, east] = &line.hosts;
        let target = format!("{}%gn0", link_local_address(east));
        assert_all_answered(west, &target, 2, 100);
        let questions = || [0, 2].map(|index| stations[index].counter("geonet.ipv6.interfaces.questions"));
        let (before, sent) = (questions(), stations[0].counter("geonet.ipv6.sent"));
        assert_all_answered(west, &target, 200, 100);
        assert_all_answered(west, &target, 50, 1500);
        assert_eq!(questions(), before, "{path}");
        wait_until("what went is counted", seconds(5), || {
            stations[0].counter("geonet.ipv6.sent") >= sent + 300
        });
        // Control: a changed address causes netlink requests.
        west.run_ip("-6 addr add 2001:db8:6::1/64 dev gn0");
        wait_until("the address is noticed", seconds(5), || questions()[0] > before[0]);
    }
}

/// Returns a socket on a host that has joined the multicast group on `gn0`.
fn open_group_socket(host: &Host) -> UdpSocket {
    let index = interface_index(host);
    host.run_in_namespace(move || {
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 4000)).expect("a socket");
        socket.join_multicast_v6(&MULTICAST_GROUP.parse().expect("a group"), index).expect("a member");
        socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        socket
    })
}

fn interface_index(host: &Host) -> u32 {
    let shown = host.run_ip("-o link show dev gn0");
    shown.split(':').next().and_then(|text| text.trim().parse().ok()).expect("an index")
}

fn receive_text(socket: &UdpSocket) -> Option<String> {
    let mut octets = [0; 64];
    let (length, _) = socket.recv_from(&mut octets).ok()?;
    Some(String::from_utf8_lossy(&octets[..length]).into_owned())
}

#[test]
fn a_multicast_group_is_received_only_inside_its_area() {
    if !can_run_or_report() {
        return;
    }
    let line = StationLine::new();
    let stations = start_stations(&line, FRAME_INTERFACES);
    let [west, middle, east] = &line.hosts;
    let (inside, outside) = (open_group_socket(east), open_group_socket(middle));
    west.run_ip("-6 route add multicast ff3e::/16 dev gn0 table local");
    let send = |text: &'static str| {
        west.run_in_namespace(move || {
            let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).expect("a socket");
            let group = SocketAddrV6::new(MULTICAST_GROUP.parse().expect("a group"), 4000, 0, 0);
            // The packet takes two hops of GeoNetworking, which are one hop for IPv6.
            socket.send_to(text.as_bytes(), group).expect("sent");
        });
    };
    send("one");
    send("two");
    assert_eq!(
        (receive_text(&inside).as_deref(), receive_text(&inside).as_deref()),
        (Some("one"), Some("two"))
    );
    assert_eq!((receive_text(&inside), receive_text(&outside)), (None, None));
    assert!(stations[1].counter("geonet.forwarded") >= 2);

    // All stations receive a packet to the group of all nodes.
    let output = west.run_program(&["ping", "-6", "-c", "1", "-W", "1", "-L", "ff02::1%gn0"]);
    let text = output_text(&output);
    assert!(output.status.success(), "{text}");
    let from = |host: &Host| text.contains(&format!("from {}%gn0", link_local_address(host)));
    assert!(from(middle) || from(east), "{text}");
}

#[test]
fn gnping_accepts_ipv6_address_and_listener_receives_ipv6_packets() {
    if !can_run_or_report() {
        return;
    }
    let line = StationLine::new();
    let stations = start_stations(&line, FRAME_INTERFACES);
    let target = link_local_address(&line.hosts[2]);
    let output = stations[0].run_command(&["gnping", &target, "--count", "2", "--interval", "50ms"]);
    assert!(output.status.success(), "{}", output_text(&output));
    let output = stations[0].run_command(&["gnping", "2001:db8::1", "--count", "1"]);
    assert!(output_text(&output).contains("does not name a station"), "{}", output_text(&output));

    let socket = stations[1].control_socket.to_str().expect("a path").to_owned();
    let path = line.scratch.path_of("received");
    let out = std::fs::File::create(&path).expect("a file");
    let mut listener = std::process::Command::new(crate::station::CARNET_PROGRAM)
        .args(["gnrecv", "--socket", &socket])
        .stdout(out)
        .spawn()
        .expect("the program");
    wait_until("a packet is overheard", seconds(10), || {
        assert_all_answered(&line.hosts[0], &format!("{}%gn0", link_local_address(&line.hosts[1])), 1, 20);
        let text = std::fs::read_to_string(&path).expect("a file");
        text.lines().next().and_then(|line| serde_json::from_str::<Value>(line).ok()).is_some_and(|heard| {
            assert_eq!((&heard["type"], &heard["next_header"]), (&"guc".into(), &"ipv6".into()), "{heard}");
            true
        })
    });
    let _ = (listener.kill(), listener.wait());
}

/// If the radio interface gets another address, the station and its virtual interface follow. If the virtual
/// interface is deleted, it returns.
#[test]
fn virtual_interface_follows_radio_and_is_created_again() {
    if !can_run_or_report() {
        return;
    }
    let line = StationLine::new();
    let _stations = start_stations(&line, FRAME_INTERFACES);
    let [west, middle, _] = &line.hosts;
    let old = link_local_address(west);
    assert_all_answered(middle, &format!("{old}%gn0"), 1, 20);
    west.run_ip("-6 addr add 2001:db8:6::1/64 dev gn0");
    west.run_ip("link set radio address 02:00:00:00:77:01");
    wait_until("the interface has the new address", seconds(10), || {
        west.run_ip("link show dev gn0").contains("02:00:00:00:77:01")
            && west.run_ip("-6 addr show dev gn0 scope link").contains("fe80::ff:fe00:7701/64")
    });
    let shown = west.run_ip("-6 addr show dev gn0");
    assert!(shown.contains("2001:db8:6::1/64") && !shown.contains(&old), "{shown}");
    wait_until("it is reached by it", seconds(10), || middle.can_ping("fe80::ff:fe00:7701%gn0"));
    west.run_ip("link del gn0");
    wait_until("the interface is back", seconds(10), || middle.can_ping("fe80::ff:fe00:7701%gn0"));
}

#[test]
fn station_does_not_start_if_its_virtual_interface_exists() {
    if !can_run_or_report() {
        return;
    }
    let line = StationLine::new();
    let west = &line.hosts[0];
    west.run_ip("link add gn0 type veth peer name other");
    let mut station = Station::spawn_without_wait(
        west,
        &ipv6_config(&line, 0, "radio", ""),
        &[],
        crate::station::CARNET_PROGRAM,
    );
    assert!(!station.wait_for_end(std::time::Instant::now()).status.success());
    let log = station.log_text();
    assert!(log.contains("cannot create geonet.ipv6_interface: gn0 exists already"), "{log}");
}

/// The recording has the packets of the virtual interface, and the BPF programs' reports about their packets.
/// So a replay gives the same outputs.
#[test]
fn recording_of_ipv6_over_geonetworking_replays_equally() {
    if !can_run_or_report() {
        return;
    }
    for (path, packets, told) in [("tun", 5, 0), ("bpf", 1, 3)] {
        let line = StationLine::new();
        let recording = line.scratch.path_of("recording");
        let more = format!("record = '{}'\n[dataplane]\npath = '{path}'\n", recording.display());
        let mut first = Station::start(&line.hosts[0], &ipv6_config(&line, 0, "radio", &more));
        let mut second = Station::start(&line.hosts[1], &ipv6_config(&line, 1, "br0", ""));
        let neighbours = || first.show_json("neighbours").as_array().map(Vec::len);
        wait_until("a neighbour", seconds(10), || neighbours() == Some(1));
        assert_all_answered(&line.hosts[0], &format!("{}%gn0", link_local_address(&line.hosts[1])), 5, 100);
        first.terminate();
        second.terminate();
        let config = first.config_file.to_str().expect("a path");
        let output = run_carnet(&["replay", "--config", config, recording.to_str().expect("a path")]);
        assert!(output.status.success(), "{}", output_text(&output));
        let text = String::from_utf8(output.stdout).expect("text");
        let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
        assert!(count("\"virtual_link\"") >= 1 && count("\"ipv6\":") >= packets, "{path}: {text}");
        assert!(count("\"accelerate\"") >= told, "{path}: {text}");
    }
}

/// After a reload, a mobile router whose new uplink is `gn0` uses roadside units; after a second reload it
/// does not.
#[test]
fn reload_adds_and_removes_an_uplink_over_geonetworking() {
    if !can_run_or_report() {
        return;
    }
    let line = StationLine::new();
    let west = &line.hosts[0];
    let before = west.kernel_state();
    let uplink = |name: &str| format!("[[mobile_router.uplink]]\ninterface = '{name}'\n");
    let plain = ipv6_config(&line, 0, "radio", "")
        + "[mobile_router]\n\
           home_address = '2001:db8:1::1234'\n\
           home_prefix = '2001:db8:1::/64'\n\
           home_agent = '2001:db8:1::1'\n\
           prefixes = ['2001:db8:a::/64']\n\
           auth = 'none'\n"
        + &uplink("wlan7");
    let mut station = Station::start(west, &plain);
    let seen = || {
        let uplinks = station.show_json("uplinks");
        let names = uplinks.as_array().map(|all| all.iter().map(|it| it["interface"].clone()).collect());
        (
            names.unwrap_or_default(),
            west.read_sysctl("gn0/accept_ra"),
            west.read_sysctl("gn0/accept_ra_defrtr"),
        )
    };
    let names = |names: &[&str]| names.iter().map(|name| Value::from(*name)).collect::<Vec<_>>();
    let not = (names(&["wlan7"]), "0".to_owned(), "0".to_owned());
    assert_eq!(seen(), not);
    for _ in 0..2 {
        station.reload(&(plain.clone() + &uplink("gn0")));
        assert_eq!(seen(), (names(&["wlan7", "gn0"]), "2".into(), "1".into()), "{}", station.log_text());
        station.reload(&plain);
        assert_eq!(seen(), not, "{}", station.log_text());
    }
    station.terminate();
    assert_same_state(&before, &west.kernel_state(), "after the end");
}

/// The pair of devices behind the virtual interface may survive when a process is killed. The next start
/// removes it.
#[test]
fn geonet_fast_path_is_rebuilt_after_crash() {
    if !can_run_or_report() {
        return;
    }
    let line = StationLine::new();
    let west = &line.hosts[0];
    let before = west.kernel_state();
    let config = ipv6_config(&line, 0, "radio", "[dataplane]\npath = 'bpf'\n");
    let mut station = Station::start(west, &config);
    assert!(west.run_ip("link show").contains("gn0-o"));
    let _killed = station.end_by_signal(nix::sys::signal::Signal::SIGKILL);
    assert!(west.run_ip("link show").contains("gn0-o"), "what is to be cleaned up");
    let mut station = Station::start(west, &config);
    assert!(
        station.log_text().contains("GeoNetworking packets take the data path \"bpf\""),
        "{}",
        station.log_text()
    );
    let _killed = station.end_by_signal(nix::sys::signal::Signal::SIGKILL);
    assert!(west.run_ip("link show").contains("gn0-o"), "what is to be cleaned up");
    let mut station = Station::start(west, &config.replace("'bpf'", "'tun'").replace("'gn0'", "'gn1'"));
    assert!(!west.run_ip("link show").contains("gn0-o"), "{}", station.log_text());
    station.terminate();
    assert_same_state(&before, &west.kernel_state(), "after the end");
}

/// Hosts send packets of 1500 octets over a radio whose frames carry 1500 octets, including GeoNetworking
/// headers. If both ends support fragmentation, they fragment these packets, on the slow path and on the fast
/// path. Otherwise the host gets a Packet Too Big.
#[test]
fn large_packets_are_fragmented_if_both_ends_agree() {
    if !can_run_or_report() {
        return;
    }
    for path in ["tun", "bpf"] {
        let line = StationLine::new();
        let stations: Vec<Station> = [(0, "radio", true), (1, "br0", false), (2, "radio", true)]
            .into_iter()
            .map(|(index, interface, fragments)| {
                let ipv6 = format!("ipv6_interface = 'gn0'\nipv6 = {{ fragments = {fragments} }}\n");
                let config =
                    ipv6_config(&line, index, interface, "").replace("ipv6_interface = 'gn0'\n", &ipv6);
                let config = config + &format!("[dataplane]\npath = '{path}'\n");
                Station::start(&line.hosts[index], &config)
            })
            .collect();
        for (station, neighbours) in stations.iter().zip([1, 2, 1]) {
            wait_until("everybody knows the neighbours", seconds(10), || {
                station.show_json("neighbours").as_array().map(Vec::len) == Some(neighbours)
            });
        }
        let [west, middle, east] = &line.hosts;
        assert!(west.run_ip("link show dev gn0").contains("mtu 1500"));
        assert!(middle.run_ip("link show dev gn0").contains("mtu 1398"));
        let whole = |target: &str, count: &str| {
            let target = format!("{target}%gn0");
            west.run_program(&[
                "ping", "-6", "-M", "do", "-c", count, "-i", "0.02", "-W", "3", "-s", "1452", &target,
            ])
        };
        let output = whole(&link_local_address(east), "20");
        assert!(output_text(&output).contains("20 received"), "{path}: {}", output_text(&output));
        assert_eq!(stations[0].counter("geonet.ipv6.fragments.cut"), 20);
        assert_eq!(stations[2].counter("geonet.ipv6.fragments.joined"), 20);
        // Smaller packets pass unfragmented, by the fast path if the station has one.
        assert_all_answered(west, &format!("{}%gn0", link_local_address(east)), 20, 1000);
        wait_until("they are counted", seconds(5), || {
            (stations[0].counter("geonet.fast_path.sent") >= 15) == (path == "bpf")
        });
        // The middle station forwards fragments, but does not reassemble them.
        let output = whole(&link_local_address(middle), "3");
        assert!(output_text(&output).contains("1398"), "{path}: {}", output_text(&output));
        assert_all_answered(west, &format!("{}%gn0", link_local_address(middle)), 3, 1452);
    }
}
