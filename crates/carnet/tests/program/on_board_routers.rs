//! Routers on board get prefixes of the mobile network by DHCPv6, from a real client: ISC's `dhclient -P`.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::hosts::{can_run_or_report, output_text, seconds, time_factor, wait_until};
use crate::on_board::{has_program, on_board_config};
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, Testbed};

/// Makes the host on `eth0` request or release a prefix. `client` names the files, and so the identity, of
/// the client.
fn run_dhclient(bed: &Testbed, client: &str, more: &[&str], limit: u32) -> bool {
    let file = |name: &str| bed.scratch.path_of(&format!("{client}.{name}")).display().to_string();
    let (leases, pid, config, script) = (file("leases"), file("pid"), file("conf"), file("script"));
    // Give each client its own DUID. Its script does nothing, because the test reads the lease file.
    let id = client.as_bytes()[0];
    std::fs::write(&config, format!("send dhcp6.client-id 0:3:0:1:2:0:0:0:0:{id:x};\n")).expect("a file");
    std::fs::write(&script, "#!/bin/sh\nexit 0\n").expect("a script");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("a mode");
    let limit = (limit * time_factor()).to_string();
    let words = ["timeout", &limit, "dhclient", "-6", "-P", "-d", "-1", "-cf", &config, "-lf", &leases];
    let words = [&words[..], &["-pf", &pid, "-sf", &script], more, &["eth0"]].concat();
    let output = bed.host.run_program(&words);
    let text = output_text(&output);
    println!("{text}");
    text.contains("PRC: Bound to lease") || (output.status.success() && more.contains(&"-r"))
}

/// Returns the prefixes that the router has delegated to routers on board.
fn delegated_prefixes(router: &Station) -> Vec<String> {
    let lan = router.show_json("lan")[0].clone();
    let prefixes = lan["delegated"].as_array().cloned().unwrap_or_default();
    prefixes.iter().map(|it| it["prefix"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Returns the router's route to a prefix, as text.
fn route_to_prefix(bed: &Testbed, prefix: &str) -> String {
    bed.router.run_ip(&format!("-6 route show {prefix} proto all"))
}

#[test]
fn dhclient_keeps_delegated_prefix_over_a_kill_and_releases_it() {
    if !can_run_or_report() || !has_program("dhclient") {
        return;
    }
    let bed = Testbed::new();
    bed.core.run_ip("-6 route replace 2001:db8:a::/62 via 2001:db8:f0::2");
    let wide = |config: &str| config.replace("2001:db8:a::/64", "2001:db8:a::/62");
    let _agent = Station::start(&bed.agent, &wide(&bed.agent_config()));
    let config = wide(&on_board_config(&bed, "", "delegate = 64\ndns = ['2001:db8:53::53']"));
    let mut router = Station::start(&bed.router, &config);
    router.wait_until_registered();
    // After the exchange of messages, dhclient keeps running until the time limit.
    assert!(run_dhclient(&bed, "a", &[], 8), "{}", router.log_text());
    let (first, second) = ("2001:db8:a:1::/64", "2001:db8:a:2::/64");
    assert_eq!(delegated_prefixes(&router), [first]);
    let via = route_to_prefix(&bed, first);
    assert!(via.contains("via fe80:") && via.contains("dev lan0"), "{via}");

    // A host behind the router on board begins a connection, whose packets may pass. The inbound filter
    // refuses all other packets to the host.
    bed.host.run_ip("-6 addr add 2001:db8:a:1::7/128 dev lo");
    let ping = || bed.host.run_program(&["ping", "-6", "-c1", "-W2", "-I", "2001:db8:a:1::7", CORRESPONDENT]);
    wait_until("a ping from the delegated prefix", seconds(10), || ping().status.success());
    assert!(!bed.core.can_ping("2001:db8:a:1::7"));

    // After `kill -9` the prefix still belongs to the first router.
    router.end_by_signal(Signal::SIGKILL);
    let mut router = Station::start(&bed.router, &config);
    router.wait_until_registered();
    assert_eq!(delegated_prefixes(&router), [first]);
    wait_until("the route after a restart", seconds(10), || {
        route_to_prefix(&bed, first).contains("via fe80:")
    });
    assert!(run_dhclient(&bed, "b", &[], 8), "{}", router.log_text());
    assert!(run_dhclient(&bed, "c", &[], 8), "{}", router.log_text());
    assert_eq!(delegated_prefixes(&router), [first, second, "2001:db8:a:3::/64"]);
    // All parts of the /62 have been given out, so a further router gets none.
    assert!(!run_dhclient(&bed, "d", &[], 4));
    assert!(router.counter("lan.dhcpv6.prefixes_refused") > 0);
    assert!(router.log_text().contains("no /64 is free for a router on lan0"), "{}", router.log_text());

    assert!(run_dhclient(&bed, "a", &["-r"], 8), "{}", router.log_text());
    wait_until("the end of the delegation", seconds(10), || delegated_prefixes(&router).len() == 2);
    assert_eq!(route_to_prefix(&bed, first), "");
    assert_eq!(router.counter("lan.dhcpv6.prefixes_released"), 1);
    assert!(run_dhclient(&bed, "d", &[], 8), "{}", router.log_text());
    assert_eq!(delegated_prefixes(&router).first().map(String::as_str), Some(first));

    let lan: Value = router.show_json("lan")[0].clone();
    assert_eq!((&lan["delegate"], &lan["inbound"]), (&64.into(), &"established".into()));
    // A reload without the key `delegate` removes the routes. The end of the station removes them too.
    router.reload(&config.replace("delegate = 64\n", ""));
    wait_until("the end of all delegations", seconds(10), || delegated_prefixes(&router).is_empty());
    assert_eq!(route_to_prefix(&bed, second), "");
    router.reload(&config);
    assert!(run_dhclient(&bed, "b", &[], 8), "{}", router.log_text());
    router.terminate();
    assert!(
        !bed.router.run_ip("-6 route show").contains("via fe80:"),
        "{}",
        bed.router.run_ip("-6 route show")
    );
}
