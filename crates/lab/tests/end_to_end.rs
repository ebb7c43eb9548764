//! Tests whole runs of scenarios, which take minutes and measure time. Most runs mostly wait, so the tests
//! execute a few runs at the same time. They repeat a run that fails alone. Runs that use the whole machine
//! are always alone.
//!
//! `two-uplinks` needs the carnet program beside the lab. The small scenarios of this file use a stand-in for
//! it.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use common::{As, LAB, command, folder, obstacle, repository, said, skipped};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Lock for the use of the machine. `--test-threads` limits the number of runs that share it.
static MACHINE: RwLock<()> = RwLock::new(());

/// Takes the lock for a run that may share the machine.
fn beside() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(|e| e.into_inner())
}

/// Takes the lock for a run that needs the machine alone.
fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(|e| e.into_inner())
}

fn carnet() -> Option<PathBuf> {
    let file = Path::new(LAB).with_file_name("carnet");
    let works = Command::new(&file).arg("--version").output().is_ok_and(|o| !o.stdout.is_empty());
    works.then_some(file)
}

/// Use of the machine in the first run of a scenario.
#[derive(Clone, Copy, PartialEq)]
enum First {
    /// Shares the machine with other runs.
    Beside,
    /// Has the machine alone.
    Alone,
}

/// Runs a scenario until it meets all its expectations, at most three times, and alone after the first run.
/// Expectations limit times, and a busy machine may be late once, but a real fault shows in each run.
fn holds(test: &str, scenario: &str, who: As) {
    holds_over(test, scenario, who, &["--path", "auto"]);
}

/// Calls [`holds`] with options of the command line, for example a data path.
fn holds_over(test: &str, scenario: &str, who: As, options: &[&str]) {
    holds_first(First::Beside, test, scenario, who, options);
}

fn holds_first(first: First, test: &str, scenario: &str, who: As, options: &[&str]) {
    let Some(carnet) = carnet() else {
        return skipped(test, "the carnet program is not built: cargo build -p carnet");
    };
    if let Some(why) = obstacle(who) {
        return skipped(test, &why);
    }
    let out = folder(test);
    let mut told = String::new();
    let held = (1..=3).any(|attempt| {
        let (_beside, _alone) = match (attempt, first) {
            (1, First::Beside) => (Some(beside()), None),
            _ => (None, Some(alone())),
        };
        let run = command(who, Path::new(LAB))
            .args(["run", scenario, "--quick"])
            .args(options)
            .arg("--out")
            .arg(&out)
            .arg("--carnet")
            .arg(&carnet)
            .arg("--scenarios")
            .arg(repository().join("scenarios"))
            .output()
            .expect("the lab starts");
        told = said(&run);
        if !run.status.success() {
            println!("{test}, attempt {attempt}:\n{told}");
        }
        run.status.success()
    });
    assert!(held, "{told}");
    let words = if who == As::Root { "as root" } else { "without root, in a user namespace" };
    assert!(told.contains(words), "{told}");
    let results: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("results.json")).expect("results")).expect("JSON");
    assert_eq!(results["schema_version"], 1);
    assert_eq!(results["passed"], true);
    let page = std::fs::read_to_string(out.join("report.html")).expect("report");
    assert!(!page.contains("http"), "the report has an address in it");
    std::fs::remove_dir_all(out).expect("remove");
}

#[test]
fn two_uplinks_as_root() {
    holds("two_uplinks_as_root", "two-uplinks", As::Root);
}

#[test]
fn two_uplinks_over_the_tun_device() {
    holds_over("two_uplinks_over_the_tun_device", "two-uplinks", As::Root, &["--path", "tun"]);
}

#[test]
fn two_uplinks_over_xdp() {
    holds_over("two_uplinks_over_xdp", "two-uplinks", As::Root, &["--path", "xdp"]);
}

/// Checks that no packet is lost or duplicated. Only a release build on an idle machine also judges by how
/// much packets are late.
#[test]
fn hosts_reach_each_other_over_geonetworking_over_one_hop_and_two() {
    let test = "hosts_reach_each_other_over_geonetworking_over_one_hop_and_two";
    for scenario in ["v2v-one-hop", "v2v-two-hops"] {
        holds_over(test, scenario, As::Root, &["--slow"]);
    }
}

/// The places of the hosts decide which hosts have to receive packets to the group.
#[test]
fn exactly_the_hosts_inside_get_what_a_host_sends_to_the_group() {
    let test = "exactly_the_hosts_inside_get_what_a_host_sends_to_the_group";
    holds_over(test, "geocast", As::Root, &["--slow"]);
}

#[test]
fn vehicles_meet_and_part() {
    holds("vehicles_meet_and_part", "v2v-meets-v2i", As::Root);
}

#[test]
fn along_roadside_units() {
    holds("along_roadside_units", "rsu-corridor", As::Root);
}

#[test]
fn two_uplinks_without_root() {
    holds("two_uplinks_without_root", "two-uplinks", As::Nobody);
}

#[test]
fn wifi_wimax() {
    holds("wifi_wimax", "wifi-wimax", As::Root);
}

#[test]
fn three_uplinks() {
    holds("three_uplinks", "three-uplinks", As::Root);
}

#[test]
fn two_ways() {
    holds("two_ways", "two-ways", As::Root);
}

#[test]
fn hard_cut() {
    // This scenario limits outages to 50 ms.
    holds_first(First::Alone, "hard_cut", "hard-cut", As::Root, &["--path", "auto"]);
}

#[test]
fn balance() {
    holds("balance", "balance", As::Root);
}

#[test]
fn flow_binding() {
    holds("flow_binding", "flow-binding", As::Root);
}

#[test]
fn any_access() {
    holds("any_access", "any-access", As::Root);
}

#[test]
fn nat_quiet() {
    holds("nat_quiet", "nat-quiet", As::Root);
}

#[test]
fn nat_cellular_as_root() {
    holds("nat_cellular_as_root", "nat-cellular", As::Root);
}

#[test]
fn tunnel_of_doom() {
    holds("tunnel_of_doom", "tunnel-of-doom", As::Root);
}

/// Captures show how many headers are around packets, and which home agents the packets cross.
#[test]
fn mobile_routers_behind_mobile_routers() {
    let test = "mobile_routers_behind_mobile_routers";
    holds_over(test, "nested", As::Root, &["--path", "auto", "--pcap"]);
}

/// No packet is lost when the direct route appears and when either end moves. When the direct route is cut,
/// at most the number that the scenario states is lost.
#[test]
fn mobile_routers_find_direct_routes() {
    holds("mobile_routers_find_direct_routes", "direct-routes", As::Root);
}

#[test]
fn a_drained_home_agent() {
    holds_over("a_drained_home_agent", "drain", As::Root, &["--size", "6"]);
}

#[test]
fn returning_home() {
    holds("returning_home", "returning-home", As::Root);
}

#[test]
fn visiting_node() {
    holds("visiting_node", "visiting-node", As::Root);
}

#[test]
fn a_platoon_as_root() {
    holds("a_platoon_as_root", "platoon", As::Root);
}

#[test]
fn a_platoon_without_root() {
    holds("a_platoon_without_root", "platoon", As::Nobody);
}

#[test]
fn a_crossing_as_root() {
    holds("a_crossing_as_root", "crossing", As::Root);
}

#[test]
fn a_crossing_without_root() {
    holds("a_crossing_without_root", "crossing", As::Nobody);
}

/// The scenario has receivers of an event, and four attackers whose messages no station accepts.
#[test]
fn a_crossing_with_signatures() {
    holds("a_crossing_with_signatures", "crossing-signed", As::Root);
}

#[test]
fn a_hundred_vehicles() {
    holds_first(First::Alone, "a_hundred_vehicles", "highway-100", As::Root, &["--path", "auto"]);
}

/// Emulated links have the configured properties. Nodes without carnet send one probe over a wire, one over a
/// link of 20 ms, and TCP over a link of 120 Mbit/s. Then actions degrade a link, make it a black hole,
/// remove its carrier, and make a NAT forget its mappings. The test compares delays with those of the wire in
/// the same run.
const LINKS: &str = r#"
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
fn emulated_links_do_what_they_are_told() {
    let _alone = alone();
    if !can_run_small("emulated_links") {
        return;
    }
    let place = small("links", "exit 3\n", "");
    std::fs::write(place.join("small/scenario.toml"), LINKS).expect("file");
    let mut told = String::new();
    // Try up to three times, because a busy machine may be late once.
    let held = (1..=3).any(|_| {
        let out = run_small(&place).output().expect("the lab starts");
        told = said(&out);
        out.status.success()
    });
    assert!(held, "{told}");
    std::fs::remove_dir_all(place).expect("remove");
}

/// A scenario of three nodes without carnet. `a` pings `b` over an emulated link, and `lost` through a router
/// that has no route to it.
const CUT: &str = r#"
title = "cut"
[nodes.a]
addresses.e0 = ["2001:db8:a::1/64"]
addresses.e1 = ["2001:db8:b::1/64"]
routes = ["2001:db8:c::/64 via 2001:db8:b::2"]
[nodes.b]
addresses.e0 = ["2001:db8:a::2/64"]
[nodes.router]
forwarding = true
addresses.e1 = ["2001:db8:b::2/64"]
[nodes.lost]
addresses.x = ["2001:db8:c::1/64"]
[nodes.other]
addresses.x = ["2001:db8:c::2/64"]
[[links]]
ends = ["a:e0", "b:e0"]
emulation = { delay = "1ms" }
[[links]]
ends = ["a:e1", "router:e1"]
[[links]]
ends = ["lost:x", "other:x"]
[[traffic.ping]]
name = "rtt"
from = "a"
to = "TARGET"
interval = "20ms"
[timetable]
duration = "8s"
[[actions]]
name = "cut"
label = "cut"
at = "3s"
ACTION
[[expect]]
what = "no ping is lost"
metric = "rtt.lost"
equals = 0
[[expect]]
what = "no ping is lost at last"
metric = "rtt.lost"
after = "cut"
equals = 0
"#;

/// Runs [`CUT`], which must not pass. Returns its output and its results.
fn cut(name: &str, target: &str, action: &str) -> (String, serde_json::Value) {
    let place = small(name, "exit 3\n", "");
    let text = CUT.replace("TARGET", target).replace("ACTION", action);
    std::fs::write(place.join("small/scenario.toml"), text).expect("file");
    let out = run_small(&place).output().expect("the lab starts");
    let told = said(&out);
    assert_eq!(out.status.code(), Some(1), "{told}");
    let results = std::fs::read(place.join("out/results.json")).unwrap_or_else(|_| panic!("{told}"));
    std::fs::remove_dir_all(place).expect("remove");
    (told, serde_json::from_slice(&results).expect("JSON"))
}

#[test]
fn wire_cut_for_good_fails_the_expectation_that_no_ping_is_lost() {
    let _beside = beside();
    if !can_run_small("wire_cut_for_good") {
        return;
    }
    for action in ["blackhole = \"b:e0\"", "carrier_off = \"a:e0\""] {
        let (told, results) = cut("cut", "b", action);
        assert!(told.contains("FAIL  no ping is lost "), "{action}: {told}");
        assert!(told.contains("FAIL  no ping is lost at last"), "{action}: {told}");
        let of =
            |section: &str, metric: &str| results["metrics"][section][metric].as_f64().expect("measured");
        // Of the requests after the cut one may have an answer, because one request may have left just before
        // the cut. Without carrier, the kernel also delays ping's requests.
        let (sent, lost) = (of("cut", "rtt.sent"), of("cut", "rtt.lost"));
        assert!(sent >= 10.0 && lost + 1.0 >= sent, "{action}: {lost} of {sent} lost: {told}");
        assert!(of("run", "rtt.lost") < of("run", "rtt.sent"), "{action}: {told}");
    }
}

#[test]
fn host_that_never_answers_fails_the_expectation_that_no_ping_is_lost() {
    let _beside = beside();
    if !can_run_small("host_that_never_answers") {
        return;
    }
    let (told, results) = cut("silent", "lost", "nothing = true");
    assert!(told.contains("FAIL  no ping is lost "), "{told}");
    let run = &results["metrics"]["run"];
    assert!(run["rtt.sent"].as_f64() > Some(200.0), "{told}");
    assert_eq!(run["rtt.lost"], run["rtt.sent"], "{told}");
}

/// Runs a changed copy of a scenario. Returns the exit status and the output.
fn changed(test: &str, scenario: &str, change: impl Fn(&str, String) -> String) -> Option<(bool, String)> {
    let Some(carnet) = carnet() else {
        skipped(test, "the carnet program is not built: cargo build -p carnet");
        return None;
    };
    if let Some(why) = obstacle(As::Root) {
        skipped(test, &why);
        return None;
    }
    let place = folder(test);
    let copy = place.join(scenario);
    std::fs::create_dir(&copy).expect("folder");
    for file in std::fs::read_dir(repository().join("scenarios").join(scenario)).expect("there").flatten() {
        let name = file.file_name().into_string().expect("a name");
        let text = change(&name, std::fs::read_to_string(file.path()).expect("text"));
        std::fs::write(copy.join(name), text).expect("file");
    }
    let mut held = (false, String::new());
    for attempt in 1..=3 {
        let (_beside, _alone) = if attempt == 1 { (Some(beside()), None) } else { (None, Some(alone())) };
        let mut lab = Command::new(LAB);
        // Pass the folder of the scenario, which the lab accepts in place of a name.
        lab.arg("run").arg(&copy).args(["--quick", "--slow", "--carnet"]).arg(&carnet);
        let run = lab.arg("--out").arg(place.join("out")).output().expect("the lab starts");
        held = (run.status.success(), said(&run));
        if held.0 {
            break;
        }
    }
    std::fs::remove_dir_all(place).expect("remove");
    Some(held)
}

#[test]
fn radios_have_the_addresses_that_stations_give_their_interfaces() {
    for (name, address) in [("managed", "managed:02:00:00:00:00:0{n}"), ("anonymous", "anonymous")] {
        let test = format!("radios_{name}");
        let with = |file: &str, text: String| match file {
            "vehicle.toml" => text.replace("[geonet]\n", &format!("[geonet]\naddress = \"{address}\"\n")),
            _ => text,
        };
        let Some((held, told)) = changed(&test, "platoon", with) else { return };
        assert!(held, "{address}: {told}");
    }
}

/// The config forbids the station to set the link-layer address that it announces, so other stations cannot
/// answer its requests.
#[test]
fn radio_without_the_address_of_its_station_fails_the_scenario() {
    let with = |file: &str, text: String| match file {
        "vehicle.toml" => {
            let keys = "[geonet]\naddress = \"managed:02:00:00:00:00:0{n}\"\nset_link_address = false\n";
            text.replace("[geonet]\n", keys)
        }
        _ => text,
    };
    let Some((held, told)) = changed("radio_without_address", "platoon", with) else { return };
    assert!(!held && told.contains("FAIL  end to end: every request is answered"), "{told}");
}

/// A vehicle that departs when the export begins has a place while the stations settle. A vehicle that
/// departs later loses its packets until then, and the report gives the reason.
const EXPORT: &str = r#"
title = "export"
[medium]
range = "300m"
settle = "3s"
[nodes."car{n}"]
count = 3
carnet = "vehicle.toml"
radio = { interface = "wlan1", fcd = { file = "fcd.xml", vehicle = "v{n}" } }
[[traffic.gnping]]
name = "ping"
from = "car0"
to = "car1"
interval = "100ms"
[[traffic.gnping]]
name = "early"
from = "car2"
to = "car1"
interval = "100ms"
[[traffic.gnbroadcast]]
name = "warning"
from = "car0"
radius = "200m"
interval = "500ms"
[[traffic.gnbroadcast]]
name = "first"
from = "car2"
radius = "200m"
interval = "250ms"
[timetable]
duration = "6s"
quick = 1
[[expect]]
what = "those who are there from the first lose nothing"
metric = "ping.lost"
equals = 0
[[expect]]
what = "nor do their warnings"
metric = "warning.delivered_percent"
equals = 100
[[expect]]
what = "what the late one was to send before it came is lost"
metric = "early.lost"
at_least = 10
[[expect]]
what = "but not all of it"
metric = "early.answers"
at_least = 10
[[expect]]
what = "and so are its warnings"
metric = "first.unsent"
at_least = 4
"#;

#[test]
fn export_that_begins_at_second_0_runs_and_packets_without_position_are_lost() {
    let mut export = String::from("<fcd-export>\n");
    for tenth in 0..100 {
        let seconds = f64::from(tenth) / 10.0;
        export += &format!("<timestep time=\"{seconds:.2}\">\n");
        for n in 0..3 {
            if n < 2 || tenth >= 20 {
                export += &format!(
                    "<vehicle id=\"v{n}\" x=\"{:.2}\" y=\"0\"/>\n",
                    100.0 * f64::from(n) + seconds * 10.0
                );
            }
        }
        export += "</timestep>\n";
    }
    export += "</fcd-export>\n";
    let Some(carnet) = carnet() else {
        return skipped("export_from_0", "the carnet program is not built: cargo build -p carnet");
    };
    if let Some(why) = obstacle(As::Root) {
        return skipped("export_from_0", &why);
    }
    let place = folder("export_from_0");
    let vehicle = repository().join("scenarios/platoon/vehicle.toml");
    std::fs::write(place.join("scenario.toml"), EXPORT).expect("file");
    std::fs::write(place.join("fcd.xml"), export).expect("file");
    std::fs::copy(vehicle, place.join("vehicle.toml")).expect("file");
    let mut told = String::new();
    let held = (1..=3).any(|attempt| {
        let (_beside, _alone) = if attempt == 1 { (Some(beside()), None) } else { (None, Some(alone())) };
        let mut lab = Command::new(LAB);
        lab.arg("run").arg(&place).args(["--slow", "--carnet"]).arg(&carnet);
        let run = lab.arg("--out").arg(place.join("out")).output().expect("the lab starts");
        told = said(&run);
        if !run.status.success() {
            println!("export_from_0, attempt {attempt}:\n{told}");
        }
        run.status.success()
    });
    assert!(held, "{told}");
    assert!(told.contains("NOTE: early: requests were not sent: no_position"), "{told}");
    assert!(told.contains("NOTE: first: packets were not sent"), "{told}");
    std::fs::remove_dir_all(place).expect("remove");
}

/// Creates a scenario with two nodes, for which the lab need not wait. `carnet` is a script.
fn small(name: &str, script: &str, more: &str) -> PathBuf {
    let place = folder(name);
    let scenario = place.join("small");
    std::fs::create_dir(&scenario).expect("folder");
    let text = format!(
        "title = \"small\"\n[nodes.a]\naddresses.e0 = [\"2001:db8::1/64\"]\ncarnet = \"a.toml\"\n\
         [nodes.b]\naddresses.e0 = [\"2001:db8::2/64\"]\n[[links]]\nends = [\"a:e0\", \"b:e0\"]\n\
         [timetable]\nduration = \"2s\"\n[[traffic.probe]]\nname = \"probe\"\nbetween = [\"a\", \"b\"]\n\
         rate = 200\n[[expect]]\nwhat = \"nothing is lost\"\nmetric = \"probe.lost\"\nequals = 0\n{more}"
    );
    std::fs::write(scenario.join("scenario.toml"), text).expect("file");
    std::fs::write(scenario.join("a.toml"), "[station]\nname = \"a\"\n").expect("file");
    let program = place.join("carnet");
    std::fs::write(&program, format!("#!/bin/sh\n{script}")).expect("file");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("rights");
    place
}

fn run_small(place: &Path) -> Command {
    let mut command = Command::new(LAB);
    command.args(["run", "small", "--scenarios"]).arg(place).arg("--carnet").arg(place.join("carnet"));
    command.arg("--out").arg(place.join("out"));
    command
}

/// A stand-in for carnet that has a socket and does nothing.
const IDLE: &str = r#"case "$1" in
run) exec python3 -c "
import socket
s = socket.socket(socket.AF_UNIX); s.bind('/run/carnet/a.sock'); s.listen()
while True: s.accept()[0].close()" ;;
show) echo '[]' ;;
watch) exec sleep 60 ;;
*) echo stand-in ;;
esac
"#;

fn can_run_small(test: &str) -> bool {
    let who = if nix::unistd::geteuid().is_root() { As::Root } else { As::Nobody };
    let why = obstacle(who).or_else(|| {
        let python = Command::new("python3").arg("--version").output();
        python.is_err().then(|| "python3 is not installed".to_string())
    });
    if let Some(why) = &why {
        skipped(test, why);
    }
    why.is_none()
}

#[test]
fn a_station_that_dies_ends_the_run_with_its_last_words() {
    let _beside = beside();
    if !can_run_small("a_station_that_dies") {
        return;
    }
    let place = small("dies", "echo the engine is cold; exit 3\n", "");
    let out = run_small(&place).output().expect("the lab starts");
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("carnet in node a ended (exit status: 3)"), "{}", said(&out));
    assert!(said(&out).contains("| the engine is cold"), "{}", said(&out));
    std::fs::remove_dir_all(place).expect("remove");
}

#[test]
fn expectations_decide_the_exit_status() {
    let _beside = beside();
    if !can_run_small("expectations_decide_the_exit_status") {
        return;
    }
    let place = small("holds", IDLE, "");
    let out = run_small(&place).output().expect("the lab starts");
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    std::fs::remove_dir_all(place).expect("remove");
    let more = "[[expect]]\nwhat = \"something is lost\"\nmetric = \"probe.lost\"\nat_least = 1\n";
    let place = small("fails", IDLE, more);
    let out = run_small(&place).output().expect("the lab starts");
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("FAIL  something is lost"), "{}", said(&out));
    std::fs::remove_dir_all(place).expect("remove");
}

/// If the stations start slowly, the lab begins the run again with more time, so that no vehicle moves before
/// its station runs.
#[test]
fn run_whose_stations_are_slow_begins_once_more_with_more_time() {
    let _beside = beside();
    if !can_run_small("run_whose_stations_are_slow") {
        return;
    }
    let radio = "[medium]\nrange = \"300m\"\nsettle = \"1s\"\n\
                 [nodes.a.radio]\ninterface = \"wlan1\"\nplace = [0, 0]\n";
    let place = small("slow", &IDLE.replace("run) exec", "run) sleep 5; exec"), radio);
    let out = run_small(&place).arg("--slow").output().expect("the lab starts");
    let told = said(&out);
    assert_eq!(out.status.code(), Some(0), "{told}");
    assert!(told.contains("s late; once more, with more time for them"), "{told}");
    assert!(told.contains("PASS: 1 held"), "{told}");
    std::fs::remove_dir_all(place).expect("remove");
}

#[test]
fn a_testbed_can_be_entered_and_nothing_of_it_stays() {
    let _beside = beside();
    if !can_run_small("a_testbed_can_be_entered") {
        return;
    }
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let place = small("held", IDLE, "");
        let mut lab = run_small(&place)
            .arg("--hold")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("start");
        let mut lines = BufReader::new(lab.stdout.take().expect("a pipe")).lines();
        let up = lines.by_ref().map_while(Result::ok).any(|l| l.contains("stays up until Ctrl-C"));
        assert!(up, "the testbed never stayed up");
        let shell =
            Command::new(LAB).args(["shell", "small", "b", "ip", "-6", "addr"]).output().expect("shell");
        assert!(said(&shell).contains("2001:db8::2/64"), "{}", said(&shell));
        let mark = place.to_str().expect("a name").to_string();
        assert!(alive(&mark) > 0, "the stand-in should be running");
        kill(Pid::from_raw(lab.id() as i32), signal).expect("signal");
        let status = lab.wait().expect("wait");
        // Read until the pipe ends, which happens when the last program in the testbed has ended.
        let _ = lines.by_ref().count();
        assert_eq!(alive(&mark), 0, "programs of the testbed are left after {signal}");
        if signal == Signal::SIGINT {
            assert_eq!(status.code(), Some(0), "a run that was held ends with its own outcome");
            assert!(place.join("out/report.html").exists());
        }
        std::fs::remove_dir_all(place).expect("remove");
    }
}

/// Returns the number of processes with this text on their command line.
fn alive(mark: &str) -> usize {
    let own = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").expect("proc").flatten();
    processes
        .filter(|p| p.file_name().to_str().is_some_and(|n| n != own && n.parse::<u32>().is_ok()))
        .filter(|p| {
            let mut line = Vec::new();
            let read =
                std::fs::File::open(p.path().join("cmdline")).and_then(|mut f| f.read_to_end(&mut line));
            read.is_ok() && String::from_utf8_lossy(&line).contains(mark)
        })
        .count()
}
