//! On SIGHUP the station reads its config again, and applies the differences.

use std::fs;

use crate::hosts::{assert_same_state, can_run_or_report, seconds, wait_until};
use crate::testbed::{CARE_OF_ADDRESSES, Testbed};

const ANOTHER_NODE_ENTRY: &str = "
[[home_agent.mobile_router]]
home_address = '2001:db8:1::9'
prefixes = ['2001:db8:9::/64']
auth = { spi = 309, key = '000102030405060708090a0b0c0d0e0f' }
";

#[test]
fn home_agent_reload_applies_only_differences_without_loss() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router) = bed.start_stations();
    let traffic = bed.start_echo(200);
    traffic.wait_for_further_answers();
    let before = bed.agent.kernel_state();
    let bindings = agent.bindings();

    // The operator adds a second router to the config, and removes it again.
    agent.reload(&(bed.agent_config() + ANOTHER_NODE_ENTRY));
    assert!(
        agent.log_text().contains("added home_agent.mobile_router 2001:db8:1::9"),
        "{}",
        agent.log_text()
    );
    assert!(
        bed.agent.run_ip("-6 route").contains("unreachable 2001:db8:9::/64"),
        "{}",
        bed.agent.run_ip("-6 route")
    );
    agent.reload(&bed.agent_config());
    assert!(
        agent.log_text().contains("removed home_agent.mobile_router 2001:db8:1::9"),
        "{}",
        agent.log_text()
    );
    assert_same_state(&before, &bed.agent.kernel_state(), "after a router was added and removed");
    assert_eq!(agent.bindings(), bindings);

    // A shorter lifetime applies from the next registration.
    let shorter = bed.agent_config().replace("[home_agent]\n", "[home_agent]\nmax_lifetime = '8s'\n");
    agent.reload(&shorter);
    router.reload(&bed.router_config());
    wait_until("the shorter lifetime", seconds(10), || agent.show_json("bindings")[0]["lifetime_s"] == 8);

    // The new config no longer has the registered router, so its binding has ended.
    let report = traffic.stop();
    assert_eq!(report.lost_packets, 0, "{report:?}");
    let (nobody, _) = shorter.split_once("\n[[home_agent.mobile_router]]").expect("a router");
    agent.reload(nobody);
    assert!(agent.bindings().is_empty());
    let ended = "binding of 2001:db8:1::1234 ended: the new config does not have its node";
    assert!(agent.log_text().contains(ended), "{}", agent.log_text());
    assert!(!bed.agent.run_ip("-6 route").contains("2001:db8:a::/64"), "{}", bed.agent.run_ip("-6 route"));
    // The new config has the router again.
    agent.reload(&bed.agent_config());
    let traffic = bed.start_echo(20);
    traffic.wait_for_further_answers();
    traffic.stop();
}

/// An operator's radvd replaces carnet's Router Advertisements. The router must keep its address on board,
/// which the hosts still need.
#[test]
fn reload_keeps_router_address_on_board_until_config_names_another() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (_agent, router) = bed.start_stations();
    let has = || bed.router.run_ip("-6 addr show dev lan0").contains("2001:db8:a::1/64");
    wait_until("carnet gives the address", seconds(10), has);
    let traffic = bed.start_echo(100);
    traffic.wait_for_further_answers();
    router.reload(&bed.router_config().replace("lan = ['lan0']\n", "lan = ['lan0']\nadvertise = false\n"));
    traffic.wait_for_further_answers();
    assert!(has(), "{}", router.log_text());
    let report = traffic.stop();
    assert_eq!(report.lost_packets, 0, "{report:?}");
    bed.router.run_ip("-6 addr add 2001:db8:a::2/64 dev lan0");
    wait_until("carnet takes its own away", seconds(10), || !has());
    let log = router.log_text();
    assert_eq!(log.matches("removed the address 2001:db8:a::1 from the interface lan0").count(), 1, "{log}");
}

#[test]
fn mobile_router_reload_applies_only_differences_without_loss() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent, mut router) = bed.start_stations();
    let before = bed.router.kernel_state();
    let traffic = bed.start_echo(200);
    traffic.wait_for_further_answers();
    let care_of = || agent.bindings().first().map(|binding| binding.1.clone()).unwrap_or_default();

    // For a time, the second uplink has the better priority.
    let other = bed.router_config().replace("priority = 10", "priority = 30");
    router.reload(&other);
    wait_until("the other uplink", seconds(10), || care_of() == CARE_OF_ADDRESSES[1]);
    router.reload(&bed.router_config());
    wait_until("the first uplink", seconds(10), || care_of() == CARE_OF_ADDRESSES[0]);

    // The router gets a second prefix. The operator first adds this prefix to the home agent's config.
    let two = "prefixes = ['2001:db8:a::/64', '2001:db8:b::/64']";
    let one = "prefixes = ['2001:db8:a::/64']";
    agent.reload(&bed.agent_config().replace(one, two));
    router.reload(&bed.router_config().replace(one, two));
    wait_until("both prefixes", seconds(10), || {
        agent.bindings()[0].2 == "[\"2001:db8:a::/64\",\"2001:db8:b::/64\"]"
    });
    assert!(bed.router.run_ip("-6 addr show dev lan0").contains("2001:db8:b::1/64"));
    bed.host.run_ip("-6 addr add 2001:db8:b::10/64 dev eth0");
    let ping = ["ping", "-6", "-c", "1", "-W", "1", "-I", "2001:db8:b::10", "2001:db8:c::1"];
    wait_until("the new prefix works", seconds(10), || bed.host.run_program(&ping).status.success());
    router.reload(&bed.router_config());
    wait_until("one prefix again", seconds(10), || agent.bindings()[0].2 == "[\"2001:db8:a::/64\"]");

    let report = traffic.stop();
    assert_eq!(report.lost_packets, 0, "{report:?}");
    println!(
        "five reloads: {} of {} packets lost, longest silence {:?}",
        report.lost_packets, report.sent_packets, report.longest_silence
    );
    wait_until("the old path is closed", seconds(30), || bed.router.kernel_state() == before);
    router.terminate();
}

#[test]
fn a_reload_with_errors_names_their_lines_and_changes_nothing() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent, mut router) = bed.start_stations();
    let traffic = bed.start_echo(200);
    traffic.wait_for_further_answers();
    let (before, bindings) = (bed.router.kernel_state(), agent.bindings());
    let updates = agent.counter("mobility.received.binding_update");
    let file = router.config_file.display().to_string();
    for (config, complaint) in [
        (bed.router_config().replace("priority = 20", "priority = 200"), format!("{file}:20:12: ")),
        (bed.router_config().replace("priority = 20", "priority = "), format!("{file}:20:")),
        (bed.router_config().replace("'lan0'", "'wlan0'"), format!("{file}:11:8: ")),
        (bed.router_config().replace("'router'", "'other'"), "a change in [station] needs a restart".into()),
    ] {
        router.reload(&config);
        assert!(router.log_text().contains(&complaint), "expected {complaint} in\n{}", router.log_text());
    }
    fs::remove_file(&router.config_file).expect("the config file");
    router.send_signal(nix::sys::signal::Signal::SIGHUP);
    let complaint = format!("{file}: cannot read the config");
    wait_until("it says that there is no file", seconds(10), || router.log_text().contains(&complaint));
    assert_eq!(agent.bindings(), bindings);
    assert_eq!(agent.counter("mobility.received.binding_update"), updates);
    assert_same_state(&before, &bed.router.kernel_state(), "after reloads that were refused");
    let report = traffic.stop();
    assert_eq!(report.lost_packets, 0, "{report:?}");
    assert!(router.is_running());
    router.terminate();
}
