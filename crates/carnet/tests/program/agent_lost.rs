//! The home agent is unreachable, or has been restarted.

use std::time::Instant;

use nix::sys::signal::Signal;

use crate::hosts::{can_run_or_report, seconds, wait_until};
use crate::station::Station;
use crate::testbed::{CARE_OF_ADDRESSES, Testbed, config_with_station_line};

#[test]
fn a_router_retries_until_its_home_agent_answers() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let mut router = Station::start(&bed.router, &bed.router_config());
    wait_until("it tries", seconds(10), || router.mobile_router_state() == "registering");
    std::thread::sleep(seconds(1));
    assert_eq!(router.mobile_router_state(), "registering");
    let mut agent = Station::start(&bed.agent, &bed.agent_config());
    // A router without an answer repeats its Binding Update after pauses of 1.5, 3, 6 s and so on, up to 32
    // s.
    wait_until("registered within the back-off", seconds(40), || {
        router.mobile_router_state() == "registered"
    });
    router.terminate();
    agent.terminate();

    // After a long outage the router pauses for long between Binding Updates. A packet that waits for the
    // tunnel shortens the pause.
    let router = Station::start(&bed.router, &bed.router_config());
    let reachable = || router.show_json("status")["mobile_router"]["reachable"].as_bool();
    assert_eq!(reachable(), Some(true), "nobody knows better yet");
    wait_until("three without an answer", seconds(30), || reachable() == Some(false));
    assert_eq!(router.mobile_router_state(), "registering");
    let _agent = Station::start(&bed.agent, &bed.agent_config());
    let start = Instant::now();
    let traffic = bed.start_echo(20);
    wait_until("registered soon, because of traffic", seconds(5), || {
        router.mobile_router_state() == "registered"
    });
    println!("home agent back, traffic waiting: registered after {:?}", start.elapsed());
    assert_eq!(reachable(), Some(true));
    traffic.wait_for_further_answers();
    traffic.stop();
}

#[test]
fn router_registers_within_three_seconds_at_home_agent_without_state() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (mut agent, router) = bed.start_stations();
    let traffic = bed.start_echo(20);
    traffic.wait_for_further_answers();
    agent.end_by_signal(Signal::SIGKILL);
    std::thread::sleep(seconds(2));
    let answered = traffic.answered_packets();
    let start = Instant::now();
    let agent = Station::start(&bed.agent, &bed.agent_config());
    wait_until("a binding, within 3 s of the restart", seconds(3), || !agent.bindings().is_empty());
    println!("home agent restarted without state: registered {:?} after its start", start.elapsed());
    wait_until("traffic flows again", seconds(5), || traffic.answered_packets() > answered + 2);
    println!("home agent restarted without state: traffic flows {:?} after its start", start.elapsed());
    assert_eq!(router.counter("mobility.received.binding_error"), 0, "{}", router.show_json("counters"));
    assert_eq!(agent.bindings()[0].1, CARE_OF_ADDRESSES[0]);
    traffic.stop();
}

#[test]
fn home_agent_with_state_dir_needs_no_registration_after_crash() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let directory = bed.scratch.path_of("state");
    let config =
        config_with_station_line(&bed.agent_config(), &format!("state_dir = '{}'", directory.display()));
    let mut agent = Station::start(&bed.agent, &config);
    let router = Station::start(&bed.router, &bed.router_config());
    router.wait_until_registered();
    let traffic = bed.start_echo(20);
    traffic.wait_for_further_answers();
    let before = agent.bindings();
    agent.end_by_signal(Signal::SIGKILL);
    std::thread::sleep(seconds(1));
    let answered = traffic.answered_packets();
    let agent = Station::start(&bed.agent, &config);
    wait_until("traffic flows again", seconds(5), || traffic.answered_packets() > answered + 5);
    assert_eq!(agent.counter("mobility.received.binding_update"), 0);
    assert_eq!(router.counter("mobility.received.binding_error"), 0);
    assert_eq!(agent.bindings(), before);
    traffic.stop();
}
