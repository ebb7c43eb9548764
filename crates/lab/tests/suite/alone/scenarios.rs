//! Runs of scenarios that use the whole machine, or limit times to a few milliseconds.

use crate::common::{LabUser, output_text, take_machine_lock};
use crate::play::{
    FirstRun, assert_passes_with_first_run, can_run_small_scenario, run_small_scenario, write_small_scenario,
};

#[test]
fn scenario_with_a_hundred_vehicles_passes() {
    assert_passes_with_first_run(
        FirstRun::Alone,
        "scenario_with_a_hundred_vehicles_passes",
        "highway-100",
        LabUser::Root,
        &["--path", "auto"],
    );
}

#[test]
fn lab_scenario_hard_cut_meets_its_expectations() {
    // The scenario `hard-cut` allows outages of at most 50 ms, so the run needs the machine alone.
    assert_passes_with_first_run(
        FirstRun::Alone,
        "lab_scenario_hard_cut_meets_its_expectations",
        "hard-cut",
        LabUser::Root,
        &["--path", "auto"],
    );
}

#[test]
fn lab_scenario_bus_meets_its_expectations() {
    // The scenario `bus` allows outages of at most 50 ms, so the run needs the machine alone.
    assert_passes_with_first_run(
        FirstRun::Alone,
        "lab_scenario_bus_meets_its_expectations",
        "bus",
        LabUser::Root,
        &["--path", "auto"],
    );
}

/// A scenario that tests whether emulated links have the configured properties. Nodes without carnet send one
/// probe over a wire, one over a link of 20 ms, and TCP over a link of 120 Mbit/s. Then actions degrade a
/// link, make it a black hole, remove its carrier, and make a NAT forget its mappings. The test compares
/// delays with those of the wire in the same run.
const EMULATED_LINKS_SCENARIO: &str = r#"
title = "links"
[nodes.a]
addresses.e0 = ["2001:db8:a::1/64"]
addresses.e1 = ["2001:db8:b::1/64"]
addresses.e2 = ["2001:db8:c::1/64"]
addresses.e3 = ["10.0.0.1/24"]
routes = ["192.0.2.0/24 via 10.0.0.2"]
[nodes.b]
addresses.e0 = ["2001:db8:a::2/64"]
[nodes.c]
addresses.e1 = ["2001:db8:b::2/64"]
routes = ["default via 2001:db8:b::1"]
[nodes.d]
addresses.e2 = ["2001:db8:c::2/64"]
routes = ["default via 2001:db8:c::1"]
[nodes.nat]
forwarding = true
addresses = { in = ["10.0.0.2/24"], out = ["192.0.2.1/24"] }
nft = '''
table ip nat {
  chain post { type nat hook postrouting priority srcnat; oifname "out" masquerade fully-random; }
}
'''
sysctl = { "net.netfilter.nf_conntrack_udp_timeout" = "10" }
[nodes.server]
addresses.e0 = ["192.0.2.2/24"]
[[links]]
ends = ["a:e0", "b:e0"]
[[links]]
ends = ["a:e1", "c:e1"]
emulation = { delay = "20ms" }
[[links]]
ends = ["a:e2", "d:e2"]
emulation = { delay = "5ms", rate = "120mbit", queue = "512kB", signal = -61.5 }
[[links]]
ends = ["a:e3", "nat:in"]
[[links]]
ends = ["nat:out", "server:e0"]
[[traffic.probe]]
name = "wire"
between = ["a", "b"]
rate = 500
[[traffic.probe]]
name = "far"
between = ["a", "c"]
rate = 500
[[traffic.tcp]]
name = "tcp"
client = "d"
server = "a"
rate = "0"
direction = "down"
[timetable]
duration = "7s"
quick = 1.0
[[actions]]
name = "measure"
label = "measure"
at = "500ms"
nothing = true
[[actions]]
name = "bad"
label = "bad"
at = "3.5s"
degrade = { link = "c:e1", to = { delay = "10ms", loss = 0.2 } }
[[actions]]
name = "hole"
label = "hole"
at = "4.5s"
blackhole = "a:e1"
[[actions]]
name = "again"
label = "again"
at = "5.2s"
restore = "c:e1"
[[actions]]
name = "cut"
label = "cut"
at = "6s"
carrier_off = "c:e1"
[[actions]]
name = "carrier"
label = "no carrier at this end"
at = "6.1s"
run = { node = "c", command = ["sh", "-c", "ip link show dev e1 | grep 'NO-CARRIER.*,UP'"] }
[[actions]]
name = "other"
label = "carrier at the other"
at = "6.15s"
run = { node = "a", command = ["sh", "-c", "ip link show dev e1 | grep LOWER_UP"] }
[[actions]]
name = "map"
label = "a mapping"
at = "6.2s"
run = { node = "a", command = ["sh", "-c", "ping -c 1 -W 1 192.0.2.2"] }
[[actions]]
name = "held"
label = "is held"
at = "6.6s"
run = { node = "nat", command = ["grep", "-v", "^0$", "/proc/sys/net/netfilter/nf_conntrack_count"] }
[[actions]]
name = "forget"
label = "forgotten"
at = "6.7s"
nat_forget = "nat"
[[actions]]
name = "gone"
label = "is gone"
at = "6.8s"
run = { node = "nat", command = ["grep", "^0$", "/proc/sys/net/netfilter/nf_conntrack_count"] }
[[derived]]
name = "added_us"
of = "far.delay_us.p50"
minus = "wire.delay_us.p50"
[[expect]]
what = "the median delay is right within 0.2 ms"
metric = "added_us"
after = "measure"
at_least = 19950
at_most = 20200
[[expect]]
what = "frames are handed out in time"
metric = "links.late_us.p50"
at_most = 200
[[expect]]
what = "nothing is lost"
metric = "far.lost"
after = "measure"
equals = 0
[[expect]]
what = "100 Mbit/s and more"
metric = "tcp.mbit_down"
after = "measure"
at_least = 100
at_most = 120
[[expect]]
what = "it got bad"
metric = "far.lost"
after = "bad"
at_least = 100
at_most = 300
[[expect]]
what = "and nearer"
metric = "added_us"
after = "bad"
at_least = 9000
at_most = 10500
[[expect]]
what = "nothing comes out of a black hole"
metric = "link.a.e1.delivered"
after = "hole"
at_most = 10
[[expect]]
what = "it is as it was"
metric = "added_us"
after = "again"
at_least = 19950
at_most = 20500
[[expect]]
what = "nothing without carrier"
metric = "far.lost"
after = "cut"
at_least = 60
"#;

#[test]
fn emulated_links_have_configured_delay_rate_and_loss() {
    let _alone = take_machine_lock();
    if !can_run_small_scenario("emulated_links") {
        return;
    }
    let place = write_small_scenario("links", "exit 3\n", "");
    std::fs::write(place.join("small/scenario.toml"), EMULATED_LINKS_SCENARIO).expect("file");
    let mut told = String::new();
    // Try up to three times, because a busy machine may be late once.
    let held = (1..=3).any(|_| {
        let out = run_small_scenario(&place).output().expect("the lab starts");
        told = output_text(&out);
        out.status.success()
    });
    assert!(held, "{told}");
    std::fs::remove_dir_all(place).expect("remove");
}
