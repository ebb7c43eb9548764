//! `carnet key rotate` between the real programs: it loses no packet under traffic, and survives `kill -9` in
//! the middle.

use std::fs;
use std::process::Output;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::hosts::can_run_or_report;
use crate::sessions::{configs_with_keys, start_with_two_uplinks};
use crate::station::{Station, run_carnet};
use crate::testbed::Testbed;

fn config_path_of(station: &Station) -> String {
    station.config_file.display().to_string()
}

/// Runs `carnet key rotate` for a station.
fn rotate_key(station: &Station) -> Output {
    run_carnet(&["key", "rotate", "--config", &config_path_of(station)])
}

/// Returns the newest public key that a command has printed.
fn last_printed_key(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).expect("text");
    text.split_whitespace().last().unwrap_or_default().to_owned()
}

#[test]
fn keys_of_both_ends_change_without_loss() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router) = configs_with_keys(&bed);
    let (agent, router) = start_with_two_uplinks(&bed, &agent, router);
    let old: Vec<String> = [&agent, &router].map(newest_public_key).into();
    let traffic = bed.start_echo(1000);
    traffic.wait_for_further_answers();
    for round in 0..3 {
        // In the last round both ends change their keys at the same time.
        let ends = [&router, &agent];
        let results: Vec<Output> = match round {
            2 => thread::scope(|scope| {
                let threads = ends.map(|end| scope.spawn(move || rotate_key(end)));
                threads.map(|thread| thread.join().expect("no panic")).into()
            }),
            one => {
                thread::sleep(Duration::from_millis(500));
                vec![rotate_key(ends[one])]
            }
        };
        for result in &results {
            assert!(result.status.success(), "{result:?}\n{}\n{}", agent.log_text(), router.log_text());
        }
        traffic.wait_for_further_answers();
    }
    let report = traffic.stop();
    println!(
        "changes of keys: {} packets, longest silence {:?}",
        report.sent_packets, report.longest_silence
    );
    assert_eq!(report.lost_packets, 0, "{report:?}");
    for (station, old) in [&agent, &router].into_iter().zip(&old) {
        let keys = station.show_json("keys");
        assert_eq!(keys["public_keys"].as_array().map(Vec::len), Some(1), "{keys}");
        assert_ne!(&newest_public_key(station), old);
        assert_eq!(keys["missing"], serde_json::json!([]));
    }
    assert!(agent.log_text().contains("announced its next public key"), "{}", agent.log_text());
}

fn newest_public_key(station: &Station) -> String {
    station.show_json("keys")["public_keys"][0].as_str().unwrap_or_default().to_owned()
}

/// Kills each end at several points of a key change. The two ends connect again, and the change completes.
#[test]
fn change_of_a_key_continues_after_a_kill() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent_config, router_config) = configs_with_keys(&bed);
    let mut agent = Station::start(&bed.agent, &agent_config);
    let mut router = Station::start(&bed.router, &router_config);
    router.wait_until_registered();
    let traffic = bed.start_echo(100);
    for (changes_router, kills_router, after) in
        [(true, false, 0), (true, true, 40), (false, true, 10), (false, false, 80)]
    {
        let changed = if changes_router { &router } else { &agent };
        let config = config_path_of(changed);
        let command = thread::spawn(move || run_carnet(&["key", "rotate", "--config", &config]));
        thread::sleep(Duration::from_millis(after));
        if kills_router {
            router.end_by_signal(Signal::SIGKILL);
            router = Station::start(&bed.router, &router_config);
        } else {
            agent.end_by_signal(Signal::SIGKILL);
            agent = Station::start(&bed.agent, &agent_config);
        }
        let first = command.join().expect("no panic");
        println!("killed after {after} ms: the first command ended with {}", first.status);
        let changed = if changes_router { &router } else { &agent };
        let finished = match first.status.success() {
            true => first,
            // When the command runs again, it continues the change.
            false => rotate_key(changed),
        };
        let logs = || format!("{}\n{}", agent.log_text(), router.log_text());
        assert!(finished.status.success(), "{finished:?}\n{}", logs());
        assert_eq!(newest_public_key(changed), last_printed_key(&finished));
        traffic.wait_for_further_answers();
    }
    traffic.stop();
    assert_eq!(router.mobile_router_state(), "registered");
}

#[test]
fn key_rotation_waits_for_offline_router_unless_operator_ends_it() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent, _) = configs_with_keys(&bed);
    let agent = Station::start(&bed.agent, &agent);
    let (old, config) = (newest_public_key(&agent), config_path_of(&agent));
    let rotate = |more: &[&str]| {
        run_carnet(&[&["key", "rotate", "--config", &config, "--timeout", "1s"], more].concat())
    };
    let waits = rotate(&[]);
    assert!(!waits.status.success());
    let error = String::from_utf8(waits.stderr).expect("text");
    assert!(
        error.contains("both keys stay valid: 1 remote ends have not used the next key: mobile router"),
        "{error}"
    );
    let keys = agent.show_json("keys");
    assert_eq!(keys["public_keys"][1], old);
    let next = keys["public_keys"][0].clone();
    let ended = rotate(&["--finish"]);
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(agent.show_json("keys")["public_keys"], serde_json::json!([next]));
    assert_eq!(last_printed_key(&ended), next);
    assert!(!fs::exists(bed.scratch.path_of("agent.key.next")).expect("a path"));
}

#[test]
fn change_of_a_key_needs_a_running_station_and_a_key_file() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent_config, _) = configs_with_keys(&bed);
    let mut agent = Station::start(&bed.agent, &agent_config);
    let config = config_path_of(&agent);
    agent.terminate();
    let refused = run_carnet(&["key", "rotate", "--config", &config]);
    let error = String::from_utf8(refused.stderr).expect("text");
    assert!(error.contains("the station does not announce the key in"), "{error}");
    // The home agent announces its new key after its start.
    let agent = Station::start(&bed.agent, &agent_config);
    assert_eq!(agent.show_json("keys")["public_keys"].as_array().map(Vec::len), Some(2));
    fs::write(&config, bed.agent_config().as_bytes()).expect("a config");
    let refused = run_carnet(&["key", "rotate", "--config", &config]);
    let error = String::from_utf8(refused.stderr).expect("text");
    assert!(error.contains("expected station.private_key_file"), "{error}");
}
