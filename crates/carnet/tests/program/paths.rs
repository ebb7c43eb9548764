//! Uplinks without connectivity, and overloaded uplinks. The router has to tell the two apart while traffic
//! flows.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::hosts::{Host, can_run_or_report, output_text, seconds, time_factor, wait_until};
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, ON_BOARD_HOST, Testbed, parse_address};

/// Starts both stations. Both uplinks are registered, and heartbeats test them.
fn start_with_two_uplinks(bed: &Testbed) -> (Station, Station) {
    let config = bed.router_config();
    let config = config.replace("priority = 10\n", "priority = 10\nbid = 1\n");
    let config = config.replace("priority = 20\n", "priority = 20\nbid = 2\n");
    let agent = Station::start(&bed.agent, &bed.agent_config());
    let router = Station::start(&bed.router, &config);
    router.wait_until_registered();
    wait_until("both are registered", seconds(20), || agent.bindings().len() == 2);
    (agent, router)
}

fn active_uplink(router: &Station) -> String {
    let uplinks = router.show_json("uplinks");
    let active = uplinks.as_array().expect("uplinks").iter().find(|uplink| uplink["active"] == true);
    active.and_then(|uplink| uplink["interface"].as_str()).unwrap_or("none").to_string()
}

/// Packets flow in both directions when one uplink begins to drop all of them. Traffic must continue before
/// the second retransmission of a TCP sender, some 700 ms after the last acknowledgement.
#[test]
fn path_failure_under_traffic_ends_before_second_tcp_retransmission() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (mut agent, mut router) = start_with_two_uplinks(&bed);
    let echo = bed.start_echo(500);
    echo.wait_for_further_answers();
    thread::sleep(seconds(3));
    assert_eq!(active_uplink(&router), "wlan0");
    let rules = "add table ip6 hole
        add chain ip6 hole in { type filter hook prerouting priority 0 ; }
        add rule ip6 hole in iifname wlan drop
        add chain ip6 hole out { type filter hook postrouting priority 0 ; }
        add rule ip6 hole out oifname wlan drop";
    for rule in rules.lines() {
        let done = bed.core.run_program(&["nft", rule.trim()]);
        assert!(done.status.success(), "{}", output_text(&done));
    }
    wait_until("it is left", seconds(10), || active_uplink(&router) == "wwan0");
    thread::sleep(seconds(1));
    let report = echo.stop();
    println!("black hole under traffic: {report:?}");
    let limit = Duration::from_millis(450) * time_factor() + 2 * report.longest_send_stall;
    assert!(report.longest_silence <= limit, "{report:?}");
    router.terminate();
    agent.terminate();
}

/// Makes the neighbour entries of an interface permanent, so that they need no Neighbor Discovery.
fn add_permanent_neighbours(host: &Host, interface: &str) {
    let shown = host.run_program(&["ip", "-6", "-j", "neighbor", "show", "dev", interface]);
    let entries: Value = serde_json::from_slice(&shown.stdout).expect("neighbour entries");
    let entries: Vec<_> = entries
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|entry| Some((entry["dst"].as_str()?, entry["lladdr"].as_str()?)))
        .collect();
    assert!(!entries.is_empty(), "{}", output_text(&shown));
    for (address, lladdr) in entries {
        host.run_ip(&format!("-6 neighbor replace {address} lladdr {lladdr} dev {interface} nud permanent"));
    }
}

/// The test sends twice the capacity of the uplink, which has a queue of three seconds.
#[test]
fn a_fully_used_uplink_keeps_its_traffic_and_is_reported() {
    if !can_run_or_report() {
        return;
    }
    // Packets that an XDP program redirects bypass the queues of an interface, so they do not fill the queue
    // of this test.
    if std::env::var("CARNET_TEST_PATH").as_deref() == Ok("xdp") {
        return;
    }
    let bed = Testbed::new();
    let (mut agent, mut router) = start_with_two_uplinks(&bed);
    // The queue of this test stands for that of a modem. Neighbor Discovery on the link before a modem does
    // not wait in that queue. Here it would wait for three seconds: the access router would give up, and drop
    // all packets to the router.
    add_permanent_neighbours(&bed.router, "wlan0");
    add_permanent_neighbours(&bed.core, "wlan");
    let shape = "tc qdisc add dev wlan0 root tbf rate 2mbit burst 6kb latency 3s";
    let done = bed.router.run_program(&shape.split(' ').collect::<Vec<_>>());
    assert!(done.status.success(), "{}", output_text(&done));
    let echo = bed.start_echo(20);
    echo.wait_for_further_answers();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let load = bed.host.run_in_namespace(move || {
        // Queued packets count against their socket's send buffer, so a single socket would block.
        let socket = || UdpSocket::bind((parse_address(ON_BOARD_HOST), 0)).expect("a UDP socket");
        let sockets: Vec<UdpSocket> = (0..16).map(|_| socket()).collect();
        thread::spawn(move || {
            let (begun, mut sent) = (Instant::now(), 0_u32);
            for socket in sockets.iter().cycle() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                // Each socket sends 1000 octets every 2 ms.
                let _ = socket.send_to(&[0; 1000], (parse_address(CORRESPONDENT), 9));
                sent += 1;
                let due = begun + Duration::from_millis(2) * sent;
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        })
    });
    let is_full = || router.show_json("uplinks").as_array().expect("uplinks")[0]["full"] == true;
    wait_until("it is full", seconds(20), is_full);
    let mut full = 0;
    for _ in 0..100 {
        assert_eq!(active_uplink(&router), "wlan0");
        full += usize::from(is_full());
        thread::sleep(Duration::from_millis(150));
    }
    assert!(full >= 95, "{full} of 100");
    let shown = router.run_command(&["show", "uplinks"]);
    assert!(output_text(&shown).contains("full"), "{}", output_text(&shown));
    stop.store(true, Ordering::Relaxed);
    load.join().expect("the load");
    wait_until("it has room again", seconds(20), || !is_full());
    assert_eq!(active_uplink(&router), "wlan0");
    let queue = bed.router.run_program(&["tc", "-s", "qdisc", "show", "dev", "wlan0"]);
    println!("full uplink: {:?}, {}", echo.stop(), output_text(&queue));
    router.terminate();
    agent.terminate();
}
