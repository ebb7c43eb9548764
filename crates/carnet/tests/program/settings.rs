//! Another program changes settings and rules that a station needs. Nothing else changes: all addresses are
//! static, routers send no advertisements, and interfaces stay.

use std::fs;

use crate::hosts::{Host, possible, seconds, wait_until};
use crate::ipv4::{dual, identified, start_both, without_ipv6};
use crate::station::Station;
use crate::testbed::Testbed;

/// Words about the home agent that must not be in the station's log if the fault is on its own machine.
const BLAME: [&str; 3] = ["does not know", "SPI", "MAC"];

fn ipv4_setting(host: &Host, name: &str) -> String {
    let path = format!("/proc/sys/net/ipv4/conf/{name}");
    host.run(move || fs::read_to_string(path).expect("a setting").trim().to_owned())
}

/// Waits until the station logs `text`. Checks that the log does not blame the home agent.
fn says_why(station: &Station, text: &str) {
    wait_until("the station says why", seconds(5), || station.log().contains(text));
    for blame in BLAME {
        assert!(!station.log().contains(blame), "{blame}: {}", station.log());
    }
}

#[test]
fn carnet_turns_forwarding_on_again() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router) = bed.start();
    let traffic = bed.echo(50);
    traffic.flows();
    for (host, station) in [(&bed.router, &router), (&bed.agent, &agent)] {
        host.set("all/forwarding", "0");
        wait_until("the machine forwards again", seconds(2), || host.get("all/forwarding") == "1");
        traffic.flows();
        says_why(station, "net.ipv6.conf.all.forwarding is 0, 1 is needed");
    }
    assert_eq!(bed.router.get("wlan0/forwarding"), "0", "an uplink stays a host");
    let report = traffic.stop();
    assert!(report.silence < seconds(2) + 2 * report.stalled, "{report:?}");
    println!("forwarding turned off at both ends: {report:?}");
}

#[test]
fn carnet_turns_forwarding_of_uplink_off_again() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let (_agent, router) = bed.start();
    bed.router.set("wlan0/forwarding", "1");
    wait_until("the uplink is a host again", seconds(2), || bed.router.get("wlan0/forwarding") == "0");
    says_why(&router, "net.ipv6.conf.wlan0.forwarding is 1, 0 is needed");
}

#[test]
fn strict_reverse_path_filter_does_not_stop_an_ipv4_standby() {
    if !possible() {
        return;
    }
    let bed = dual();
    without_ipv6(&bed, &[0, 1]);
    let (_agent, router) = start_both(&bed, |config| config, identified);
    let traffic = bed.echo(50);
    traffic.flows();
    bed.router.run(|| fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "1").expect("a setting"));
    for uplink in ["wlan0", "wwan0"] {
        wait_until("the uplink is loose", seconds(2), || {
            ipv4_setting(&bed.router, &format!("{uplink}/rp_filter")) == "2"
        });
    }
    assert_eq!(ipv4_setting(&bed.router, "all/rp_filter"), "1", "the operator's");
    says_why(&router, "net.ipv4.conf.all.rp_filter is 1, 2 is needed");
    bed.core.ip("link set wlan down");
    traffic.flows();
    traffic.stop();
}

#[test]
fn carnet_moves_local_rule_again() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let (_agent, router) = bed.start();
    let traffic = bed.echo(50);
    traffic.flows();
    let is_back = || bed.router.ip("-6 rule show pref 0").contains("lookup local");
    for _ in 0..3 {
        bed.router.ip("-6 rule add pref 0 lookup local");
        wait_until("the rule is gone again", seconds(2), || !is_back());
    }
    // carnet makes later repairs only after pauses. During a pause, status and uplinks must name the
    // obstacle.
    for _ in 0..3 {
        bed.router.ip("-6 rule add pref 0 lookup local");
        let obstacle = "another program has moved the rule for the `local` table back to priority 0";
        wait_until("status tells", seconds(5), || {
            router.show("status")["obstacles"].to_string().contains(obstacle)
        });
        let shown = router.ask(&["show", "uplinks"]);
        assert!(String::from_utf8_lossy(&shown.stdout).contains(obstacle), "{shown:?}");
        wait_until("the rule is gone again", seconds(10), || !is_back());
    }
    says_why(&router, "back to priority 0");
    traffic.flows();
    traffic.stop();
}
