//! Interfaces that disappear and return, and addresses that change.

use crate::hosts::{can_run_or_report, seconds, wait_until};
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, HOME_ADDRESS, Testbed};

#[test]
fn removed_uplink_interface_that_returns_is_used_again() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent, mut router) = bed.start_stations();
    let care_of = || agent.bindings().first().map(|binding| binding.1.clone()).unwrap_or_default();
    let traffic = bed.start_echo(20);
    traffic.wait_for_further_answers();
    bed.router.run_ip("link del wlan0");
    wait_until("the other uplink carries on", seconds(10), || care_of() == "2001:db8:f2::10");
    traffic.wait_for_further_answers();
    bed.router.run_ip("link del wwan0");
    wait_until("no uplink is left", seconds(10), || {
        router.show_json("uplinks").to_string().matches("down").count() == 2
    });
    assert!(router.is_running());
    bed.add_uplink(0);
    wait_until("the uplink that returned is registered", seconds(20), || care_of() == "2001:db8:f1::10");
    traffic.wait_for_further_answers();
    // The new interface has the same settings as the old one.
    assert_eq!(
        (bed.router.read_sysctl("wlan0/accept_ra"), bed.router.read_sysctl("wlan0/forwarding")),
        ("2".into(), "0".into())
    );
    traffic.stop();
    router.terminate();
    assert_eq!(
        (bed.router.read_sysctl("wlan0/accept_ra"), bed.router.read_sysctl("wlan0/forwarding")),
        ("1".into(), "0".into())
    );
    assert_no_carnet_state_in_kernel(&bed);
}

/// The router reports once when its standby uplink goes down, and once when it returns, although this uplink
/// carries no traffic.
#[test]
fn standby_uplink_changes_are_reported_once_each() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let _agent = Station::start(&bed.agent, &bed.agent_config());
    let config = bed.router_config() + "\n[[mobile_router.uplink]]\ninterface = 'wwan7'\npriority = 30\n";
    let router = Station::start(&bed.router, &config);
    router.wait_until_registered();
    let said = |text: &str| router.log_text().matches(text).count();
    assert_eq!(said("mobile_router.uplink: the interface wwan7 does not exist"), 1, "{}", router.log_text());
    wait_until("the uplinks are told", seconds(10), || said("uplink wwan0 can be used") == 1);
    bed.core.run_ip("link set wwan down");
    wait_until("it is told", seconds(10), || said("uplink wwan0 cannot be used any more: no carrier") == 1);
    bed.core.run_ip("link set wwan up");
    wait_until("it is told", seconds(10), || said("uplink wwan0 can be used") == 2);
    assert_eq!(said("uplink wwan0 cannot be used"), 1, "{}", router.log_text());
    bed.router.run_ip("link del wwan0");
    wait_until("it is told", seconds(10), || {
        said("uplink wwan0 cannot be used any more: no such interface") == 1
    });
    assert_eq!(said("uplink wlan0 cannot"), 0, "{}", router.log_text());
}

#[test]
fn returning_lan_interface_gets_address_and_advertisements() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (_agent, mut router) = bed.start_stations();
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    let lan = || router.show_json("status")["mobile_router"]["lan"][0]["state"].clone();
    wait_until("the LAN is shown", seconds(10), || lan() == "up");
    let warnings =
        || router.log_text().matches("mobile_router.lan: the interface lan0 does not exist").count();
    assert_eq!(warnings(), 0, "{}", router.log_text());
    for round in 1..=2 {
        bed.router.run_ip("link del lan0");
        wait_until("the operator is told", seconds(10), || warnings() == round);
        assert_eq!(lan(), "no_such_interface");
        bed.add_lan();
        let address = || bed.router.run_ip("-6 addr show dev lan0").contains("2001:db8:a::1/64");
        wait_until("the LAN has its address", seconds(10), address);
        // The host's kernel configures an address and a default route from the advertisement.
        wait_until("the prefix is advertised", seconds(20), || {
            bed.host.run_ip("-6 addr show dev eth0").contains("mngtmpaddr")
                && bed.host.run_ip("-6 route show default").contains("proto ra")
        });
        wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    }
    // The config names an interface that has never existed, because of a typing error of the operator.
    let slip = bed.router_config().replace("'lan0'", "'lan7'").replace("\"lan0\"", "\"lan7\"");
    router.reload(&slip);
    wait_until("the operator is told", seconds(10), || {
        router.log_text().contains("mobile_router.lan: the interface lan7 does not exist")
    });
    assert_eq!(lan(), "no_such_interface");
    router.terminate();
    assert_no_carnet_state_in_kernel(&bed);
}

#[test]
fn changed_care_of_address_is_registered_without_lasting_outage() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent, _router) = bed.start_stations();
    let traffic = bed.start_echo(50);
    traffic.wait_for_further_answers();
    for (old, new, overlap) in [("10", "77", false), ("77", "78", true), ("78", "10", false)] {
        let address = |what, host| format!("-6 addr {what} 2001:db8:f1::{host}/64 dev wlan0");
        let (delete, add) = (address("del", old), address("add", new));
        for command in if overlap { [add, delete] } else { [delete, add] } {
            bed.router.run_ip(&command);
        }
        let expected =
            (HOME_ADDRESS.to_owned(), format!("2001:db8:f1::{new}"), "[\"2001:db8:a::/64\"]".to_owned());
        wait_until("the binding follows", seconds(10), || agent.bindings() == [expected.clone()]);
        traffic.wait_for_further_answers();
    }
    let report = traffic.stop();
    // Between the two `ip` commands, only the other uplink works, so the silence must be short.
    assert!(report.longest_silence < seconds(3) + 2 * report.longest_send_stall, "{report:?}");
    println!(
        "care-of address changed three times: {} of {} packets lost, longest silence {:?}",
        report.lost_packets, report.sent_packets, report.longest_silence
    );
}

/// Checks that the kernel has no entries with carnet's marks. Interfaces that were removed and added have new
/// indexes, so whole snapshots would differ.
fn assert_no_carnet_state_in_kernel(bed: &Testbed) {
    let rules: String = bed.router.run_ip("-6 rule");
    assert_eq!(rules.lines().count(), 2, "{rules}");
    let routes = bed.router.run_ip("-6 route show table all");
    assert!(!routes.contains("proto 135") && !routes.contains("carnet0"), "{routes}");
    assert!(!bed.router.run_ip("link").contains("carnet0"));
    assert!(!bed.router.run_ip("-6 addr").contains("2001:db8:a::1/64"));
    assert_eq!(bed.router.read_sysctl("all/forwarding"), "0");
    assert_eq!(bed.router.read_sysctl("lan0/forwarding"), "0");
}
