//! Another program changes settings and rules that a station needs. All else is static: addresses,
//! interfaces, and no Router Advertisements.

use std::fs;

use crate::hosts::{Host, can_run_or_report, seconds, wait_until};
use crate::ipv4::{config_with_identifiers, dual_stack_testbed, remove_ipv6, start_with_changed_configs};
use crate::station::Station;
use crate::testbed::Testbed;

/// Texts about the home agent. They must not be in the station's log if its own machine has the fault.
const MISLEADING_TEXTS: [&str; 3] = ["does not know", "SPI", "MAC"];

fn ipv4_setting(host: &Host, name: &str) -> String {
    let path = format!("/proc/sys/net/ipv4/conf/{name}");
    host.run_in_namespace(move || fs::read_to_string(path).expect("a setting").trim().to_owned())
}

/// Waits until the station logs `text`. Checks that the log does not blame the home agent.
fn wait_for_reason_in_log(station: &Station, text: &str) {
    wait_until("the station says why", seconds(5), || station.log_text().contains(text));
    for blame in MISLEADING_TEXTS {
        assert!(!station.log_text().contains(blame), "{blame}: {}", station.log_text());
    }
}

#[test]
fn carnet_turns_forwarding_on_again() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router) = bed.start_stations();
    let traffic = bed.start_echo(50);
    traffic.wait_for_further_answers();
    for (host, station) in [(&bed.router, &router), (&bed.agent, &agent)] {
        host.write_sysctl("all/forwarding", "0");
        wait_until("the machine forwards again", seconds(2), || host.read_sysctl("all/forwarding") == "1");
        traffic.wait_for_further_answers();
        wait_for_reason_in_log(station, "net.ipv6.conf.all.forwarding is 0, 1 is needed");
    }
    assert_eq!(bed.router.read_sysctl("wlan0/forwarding"), "0", "an uplink stays a host");
    let report = traffic.stop();
    assert!(report.longest_silence < seconds(2) + 2 * report.longest_send_stall, "{report:?}");
    println!("forwarding turned off at both ends: {report:?}");
}

#[test]
fn carnet_turns_forwarding_of_uplink_off_again() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (_agent, router) = bed.start_stations();
    bed.router.write_sysctl("wlan0/forwarding", "1");
    wait_until("the uplink is a host again", seconds(2), || {
        bed.router.read_sysctl("wlan0/forwarding") == "0"
    });
    wait_for_reason_in_log(&router, "net.ipv6.conf.wlan0.forwarding is 1, 0 is needed");
}

#[test]
fn strict_reverse_path_filter_does_not_stop_an_ipv4_standby() {
    if !can_run_or_report() {
        return;
    }
    let bed = dual_stack_testbed();
    remove_ipv6(&bed, &[0, 1]);
    let (_agent, router) = start_with_changed_configs(&bed, |config| config, config_with_identifiers);
    let traffic = bed.start_echo(50);
    traffic.wait_for_further_answers();
    bed.router
        .run_in_namespace(|| fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "1").expect("a setting"));
    for uplink in ["wlan0", "wwan0"] {
        wait_until("the uplink is loose", seconds(2), || {
            ipv4_setting(&bed.router, &format!("{uplink}/rp_filter")) == "2"
        });
    }
    assert_eq!(ipv4_setting(&bed.router, "all/rp_filter"), "1", "the operator's");
    wait_for_reason_in_log(&router, "net.ipv4.conf.all.rp_filter is 1, 2 is needed");
    bed.core.run_ip("link set wlan down");
    traffic.wait_for_further_answers();
    traffic.stop();
}

#[test]
fn carnet_moves_local_rule_again() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (_agent, router) = bed.start_stations();
    let traffic = bed.start_echo(50);
    traffic.wait_for_further_answers();
    let is_back = || bed.router.run_ip("-6 rule show pref 0").contains("lookup local");
    // carnet repairs three times at once, then after pauses of one second and two seconds.
    for _ in 0..5 {
        bed.router.run_ip("-6 rule add pref 0 lookup local");
        wait_until("the rule is gone again", seconds(5), || !is_back());
    }
    // In the pause of four seconds before the sixth repair, status and uplinks must name the obstacle. The
    // shorter pauses can pass before a busy machine has asked for the status.
    bed.router.run_ip("-6 rule add pref 0 lookup local");
    let obstacle = "another program has moved the rule for the `local` table back to priority 0";
    wait_until("status tells", seconds(5), || {
        router.show_json("status")["obstacles"].to_string().contains(obstacle)
    });
    let shown = router.run_command(&["show", "uplinks"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains(obstacle), "{shown:?}");
    wait_until("the rule is gone again", seconds(10), || !is_back());
    wait_for_reason_in_log(&router, "back to priority 0");
    traffic.wait_for_further_answers();
    traffic.stop();
}
