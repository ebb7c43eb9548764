//! A station leaves its host unchanged, no matter how it ends.

use nix::sys::signal::Signal;

use crate::hosts::{Host, assert_same_state, can_run_or_report, seconds, wait_until};
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, Testbed};

/// Adds the interface `home0` as a real home link. Returns the config of the home agent on it.
fn add_home_link(bed: &Testbed) -> String {
    let other = Host::new();
    bed.agent.create_link("home0", &other, "home1");
    // A busy kernel notices the new carrier up to a second later.
    other.wait_until_settled();
    bed.agent.wait_until_settled();
    // The other end of the link would disappear with its namespace, so keep the namespace.
    std::mem::forget(other);
    bed.agent.wait_until_settled();
    bed.agent_config().replace("[home_agent]\n", "[home_agent]\nhome_link = 'home0'\n")
}

/// Checks that the directory has only files of the test itself.
fn assert_only_configs_and_logs_remain(bed: &Testbed) {
    for file in bed.scratch.file_names() {
        assert!(file.ends_with(".toml") || file.ends_with(".log"), "left behind: {file}");
    }
}

#[test]
fn sigterm_and_sigint_restore_all_kernel_settings() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let configs = [bed.agent_config(), add_home_link(&bed)];
    let (agent_before, router_before) = (bed.agent.kernel_state(), bed.router.kernel_state());
    for (config, signal) in
        [(&configs[0], Signal::SIGTERM), (&configs[1], Signal::SIGTERM), (&configs[0], Signal::SIGINT)]
    {
        let mut agent = Station::start(&bed.agent, config);
        let mut router = Station::start(&bed.router, &bed.router_config());
        router.wait_until_registered();
        wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
        assert_ne!(bed.router.kernel_state(), router_before);
        assert_ne!(bed.agent.kernel_state(), agent_before);
        for (station, host, before) in
            [(&mut router, &bed.router, &router_before), (&mut agent, &bed.agent, &agent_before)]
        {
            let end = station.end_by_signal(signal);
            assert!(end.status.success(), "{signal}: {}\n{}", end.status, station.log_text());
            assert_same_state(before, &host.kernel_state(), signal.as_str());
        }
        assert_only_configs_and_logs_remain(&bed);
        // The router has de-registered before the home agent ends.
        assert!(agent.log_text().contains("ended: the node de-registered"), "{}", agent.log_text());
    }
}

#[test]
fn sigterm_ends_router_without_reachable_home_agent() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let before = bed.router.kernel_state();
    let (mut agent, mut router) = bed.start_stations();
    agent.end_by_signal(Signal::SIGKILL);
    let end = router.end_by_signal(Signal::SIGTERM);
    assert!(end.status.success(), "{}", router.log_text());
    // The station waits one second for the acknowledgement of its de-registration; the rest of the limit is
    // for a busy machine.
    assert!(end.duration < seconds(5), "{:?}", end.duration);
    println!("SIGTERM without home agent: ended after {:?}", end.duration);
    assert_same_state(&before, &bed.router.kernel_state(), "after SIGTERM");

    // A router that has never registered does not wait when it ends.
    let mut router = Station::start(&bed.router, &bed.router_config());
    let end = router.end_by_signal(Signal::SIGTERM);
    assert!(end.status.success() && end.duration < seconds(5), "{:?}", end.duration);
    assert_same_state(&before, &bed.router.kernel_state(), "after SIGTERM");
    drop(agent);
}

#[test]
fn a_start_removes_the_settings_of_a_killed_run() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent_before, router_before) = (bed.agent.kernel_state(), bed.router.kernel_state());
    // Kill the station once, start it, and then kill it twice in a row.
    for kills in [1, 2] {
        for _ in 0..kills {
            let (mut agent, mut router) = bed.start_stations();
            wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
            router.end_by_signal(Signal::SIGKILL);
            agent.end_by_signal(Signal::SIGKILL);
        }
        // Control: carnet's entries exist now. If they did not, the test would prove nothing.
        assert!(bed.router.run_ip("-6 rule").contains("13501"), "{}", bed.router.run_ip("-6 rule"));
        assert_eq!(bed.router.read_sysctl("all/forwarding"), "1");
        assert_eq!(bed.agent.read_sysctl("all/forwarding"), "1");
        let (mut agent, mut router) = bed.start_stations();
        wait_until("traffic flows again", seconds(10), || bed.host.can_ping(CORRESPONDENT));
        router.terminate();
        agent.terminate();
        assert_same_state(&router_before, &bed.router.kernel_state(), "after a crash, a start and an end");
        assert_same_state(&agent_before, &bed.agent.kernel_state(), "after a crash, a start and an end");
        assert_only_configs_and_logs_remain(&bed);
    }
}

/// After a crash, the next start removes the entries of the crashed station even if the config now needs
/// fewer entries.
#[test]
fn a_start_removes_the_settings_of_a_run_with_another_config() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let before = bed.router.kernel_state();
    let (_agent, mut router) = bed.start_stations();
    router.end_by_signal(Signal::SIGKILL);
    let config = bed.router_config();
    let (smaller, _) =
        config.split_once("\n[[mobile_router.uplink]]\ninterface = 'wwan0'").expect("two uplinks");
    let smaller = smaller.replace("lan = ['lan0']\n", "");
    let mut router = Station::start(&bed.router, &smaller);
    router.wait_until_registered();
    assert!(!bed.router.run_ip("-6 addr show dev lan0").contains("2001:db8:a::1/64"));
    router.terminate();
    assert_same_state(&before, &bed.router.kernel_state(), "after a crash, a start and an end");
}
