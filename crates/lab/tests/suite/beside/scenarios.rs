//! Runs of scenarios that share the machine. Most of them mostly wait. A run that fails is repeated alone.
//!
//! `two-uplinks` needs the carnet program beside the lab. The small scenarios of this file use a stand-in for
//! it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{
    LAB_PROGRAM, LabUser, new_output_folder, output_text, reason_not_to_run, report_skipped, repository_root,
    share_machine_lock, take_machine_lock,
};
use crate::play::{
    assert_passes, assert_passes_with_options, can_run_small_scenario, carnet_program, run_small_scenario,
    write_small_scenario,
};

#[test]
fn lab_scenario_two_uplinks_meets_its_expectations_as_root() {
    assert_passes("lab_scenario_two_uplinks_meets_its_expectations_as_root", "two-uplinks", LabUser::Root);
}

#[test]
fn lab_scenario_two_uplinks_meets_its_expectations_over_the_tun_device() {
    assert_passes_with_options(
        "lab_scenario_two_uplinks_meets_its_expectations_over_the_tun_device",
        "two-uplinks",
        LabUser::Root,
        &["--path", "tun"],
    );
}

#[test]
fn lab_scenario_two_uplinks_meets_its_expectations_over_xdp() {
    assert_passes_with_options(
        "lab_scenario_two_uplinks_meets_its_expectations_over_xdp",
        "two-uplinks",
        LabUser::Root,
        &["--path", "xdp"],
    );
}

/// Checks that no packet between the hosts is lost or duplicated. A release build on an idle machine also
/// checks how late packets are.
#[test]
fn hosts_reach_each_other_over_geonetworking_over_one_hop_and_two() {
    let test = "hosts_reach_each_other_over_geonetworking_over_one_hop_and_two";
    for scenario in ["v2v-one-hop", "v2v-two-hops"] {
        assert_passes_with_options(test, scenario, LabUser::Root, &["--slow"]);
    }
}

/// The places of the hosts decide which hosts have to receive packets to the group.
#[test]
fn geocast_reaches_exactly_the_hosts_inside_the_area() {
    let test = "geocast_reaches_exactly_the_hosts_inside_the_area";
    assert_passes_with_options(test, "geocast", LabUser::Root, &["--slow"]);
}

#[test]
fn scenario_with_passing_vehicles_passes() {
    assert_passes("scenario_with_passing_vehicles_passes", "v2v-meets-v2i", LabUser::Root);
}

#[test]
fn scenario_along_roadside_units_passes() {
    assert_passes("scenario_along_roadside_units_passes", "rsu-corridor", LabUser::Root);
}

#[test]
fn lab_scenario_two_uplinks_meets_its_expectations_without_root() {
    assert_passes(
        "lab_scenario_two_uplinks_meets_its_expectations_without_root",
        "two-uplinks",
        LabUser::Nobody,
    );
}

#[test]
fn lab_scenario_wifi_wimax_meets_its_expectations() {
    assert_passes("lab_scenario_wifi_wimax_meets_its_expectations", "wifi-wimax", LabUser::Root);
}

#[test]
fn lab_scenario_three_uplinks_meets_its_expectations() {
    assert_passes("lab_scenario_three_uplinks_meets_its_expectations", "three-uplinks", LabUser::Root);
}

#[test]
fn lab_scenario_two_ways_meets_its_expectations() {
    assert_passes("lab_scenario_two_ways_meets_its_expectations", "two-ways", LabUser::Root);
}

#[test]
fn lab_scenario_balance_meets_its_expectations() {
    assert_passes("lab_scenario_balance_meets_its_expectations", "balance", LabUser::Root);
}

#[test]
fn lab_scenario_flow_binding_meets_its_expectations() {
    assert_passes("lab_scenario_flow_binding_meets_its_expectations", "flow-binding", LabUser::Root);
}

#[test]
fn lab_scenario_any_access_meets_its_expectations() {
    assert_passes("lab_scenario_any_access_meets_its_expectations", "any-access", LabUser::Root);
}

#[test]
fn lab_scenario_nat_quiet_meets_its_expectations() {
    assert_passes("lab_scenario_nat_quiet_meets_its_expectations", "nat-quiet", LabUser::Root);
}

#[test]
fn lab_scenario_nat_cellular_meets_its_expectations_as_root() {
    assert_passes("lab_scenario_nat_cellular_meets_its_expectations_as_root", "nat-cellular", LabUser::Root);
}

#[test]
fn lab_scenario_tunnel_of_doom_meets_its_expectations() {
    assert_passes("lab_scenario_tunnel_of_doom_meets_its_expectations", "tunnel-of-doom", LabUser::Root);
}

/// Captures show how many headers are around packets, and which home agents the packets cross.
#[test]
fn lab_scenario_nested_routers_meets_its_expectations() {
    let test = "lab_scenario_nested_routers_meets_its_expectations";
    assert_passes_with_options(test, "nested", LabUser::Root, &["--path", "auto", "--pcap"]);
}

/// No packet is lost when the direct route appears and when either end moves. When the direct route is cut,
/// at most the number that the scenario states is lost.
#[test]
fn lab_scenario_direct_routes_meets_its_expectations() {
    assert_passes("lab_scenario_direct_routes_meets_its_expectations", "direct-routes", LabUser::Root);
}

#[test]
fn lab_scenario_drain_meets_its_expectations() {
    assert_passes_with_options(
        "lab_scenario_drain_meets_its_expectations",
        "drain",
        LabUser::Root,
        &["--size", "6"],
    );
}

#[test]
fn lab_scenario_returning_home_meets_its_expectations() {
    assert_passes("lab_scenario_returning_home_meets_its_expectations", "returning-home", LabUser::Root);
}

#[test]
fn lab_scenario_visiting_node_meets_its_expectations() {
    assert_passes("lab_scenario_visiting_node_meets_its_expectations", "visiting-node", LabUser::Root);
}

#[test]
fn lab_scenario_platoon_meets_its_expectations_as_root() {
    assert_passes("lab_scenario_platoon_meets_its_expectations_as_root", "platoon", LabUser::Root);
}

#[test]
fn lab_scenario_platoon_meets_its_expectations_without_root() {
    assert_passes("lab_scenario_platoon_meets_its_expectations_without_root", "platoon", LabUser::Nobody);
}

#[test]
fn lab_scenario_crossing_meets_its_expectations_as_root() {
    assert_passes("lab_scenario_crossing_meets_its_expectations_as_root", "crossing", LabUser::Root);
}

#[test]
fn lab_scenario_crossing_meets_its_expectations_without_root() {
    assert_passes("lab_scenario_crossing_meets_its_expectations_without_root", "crossing", LabUser::Nobody);
}

/// The scenario has receivers of an event, and four attackers whose messages no station may accept.
#[test]
fn lab_scenario_crossing_meets_its_expectations_with_signatures() {
    assert_passes(
        "lab_scenario_crossing_meets_its_expectations_with_signatures",
        "crossing-signed",
        LabUser::Root,
    );
}

/// A scenario of three nodes without carnet. `a` pings `b` over an emulated link, and `lost` through a router
/// that has no route to it.
const WIRE_CUT_SCENARIO: &str = r#"
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

/// Runs the scenario [`WIRE_CUT_SCENARIO`], which must fail. Returns the lab's output and its results.
fn run_wire_cut_scenario(name: &str, target: &str, action: &str) -> (String, serde_json::Value) {
    let place = write_small_scenario(name, "exit 3\n", "");
    let text = WIRE_CUT_SCENARIO.replace("TARGET", target).replace("ACTION", action);
    std::fs::write(place.join("small/scenario.toml"), text).expect("file");
    let out = run_small_scenario(&place).output().expect("the lab starts");
    let told = output_text(&out);
    assert_eq!(out.status.code(), Some(1), "{told}");
    let results = std::fs::read(place.join("out/results.json")).unwrap_or_else(|_| panic!("{told}"));
    std::fs::remove_dir_all(place).expect("remove");
    (told, serde_json::from_slice(&results).expect("JSON"))
}

#[test]
fn permanently_cut_link_fails_the_expectation_that_no_ping_is_lost() {
    let _beside = share_machine_lock();
    if !can_run_small_scenario("wire_cut_for_good") {
        return;
    }
    for action in ["blackhole = \"b:e0\"", "carrier_off = \"a:e0\""] {
        let (told, results) = run_wire_cut_scenario("cut", "b", action);
        assert!(told.contains("FAIL  no ping is lost "), "{action}: {told}");
        assert!(told.contains("FAIL  no ping is lost at last"), "{action}: {told}");
        let of =
            |section: &str, metric: &str| results["metrics"][section][metric].as_f64().expect("measured");
        // Of the requests after the cut, at most one has an answer: it left just before the cut. Without
        // carrier, the kernel also delays ping's requests.
        let (sent, lost) = (of("cut", "rtt.sent"), of("cut", "rtt.lost"));
        assert!(sent >= 10.0 && lost + 1.0 >= sent, "{action}: {lost} of {sent} lost: {told}");
        assert!(of("run", "rtt.lost") < of("run", "rtt.sent"), "{action}: {told}");
    }
}

#[test]
fn host_that_never_answers_fails_the_expectation_that_no_ping_is_lost() {
    let _beside = share_machine_lock();
    if !can_run_small_scenario("host_that_never_answers") {
        return;
    }
    let (told, results) = run_wire_cut_scenario("silent", "lost", "nothing = true");
    assert!(told.contains("FAIL  no ping is lost "), "{told}");
    let run = &results["metrics"]["run"];
    assert!(run["rtt.sent"].as_f64() > Some(200.0), "{told}");
    assert_eq!(run["rtt.lost"], run["rtt.sent"], "{told}");
}

/// Runs a changed copy of a scenario, at most three times until it passes. Returns whether it passed, and the
/// output. `None` if the test cannot run here.
fn run_changed_scenario(
    test: &str,
    scenario: &str,
    change: impl Fn(&str, String) -> String,
) -> Option<(bool, String)> {
    let Some(carnet) = carnet_program() else {
        report_skipped(test, "the carnet program is not built: cargo build -p carnet");
        return None;
    };
    if let Some(why) = reason_not_to_run(LabUser::Root) {
        report_skipped(test, &why);
        return None;
    }
    let place = new_output_folder(test);
    let copy = place.join(scenario);
    std::fs::create_dir(&copy).expect("folder");
    for file in
        std::fs::read_dir(repository_root().join("scenarios").join(scenario)).expect("there").flatten()
    {
        let name = file.file_name().into_string().expect("a name");
        let text = change(&name, std::fs::read_to_string(file.path()).expect("text"));
        std::fs::write(copy.join(name), text).expect("file");
    }
    let mut held = (false, String::new());
    for attempt in 1..=3 {
        let (_beside, _alone) =
            if attempt == 1 { (Some(share_machine_lock()), None) } else { (None, Some(take_machine_lock())) };
        let mut lab = Command::new(LAB_PROGRAM);
        // Pass the folder of the scenario, which the lab accepts in place of a name.
        lab.arg("run").arg(&copy).args(["--quick", "--slow", "--carnet"]).arg(&carnet);
        let run = lab.arg("--out").arg(place.join("out")).output().expect("the lab starts");
        held = (run.status.success(), output_text(&run));
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
        let Some((held, told)) = run_changed_scenario(&test, "platoon", with) else { return };
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
    let Some((held, told)) = run_changed_scenario("radio_without_address", "platoon", with) else { return };
    assert!(!held && told.contains("FAIL  end to end: every request is answered"), "{told}");
}

/// A vehicle that departs when SUMO's export begins has a place while the stations start. A vehicle that
/// departs later loses its packets until then, and the report gives the reason.
const SUMO_EXPORT_SCENARIO: &str = r#"
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
fn fcd_export_from_second_0_runs_and_loses_packets_without_position() {
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
    let Some(carnet) = carnet_program() else {
        return report_skipped("export_from_0", "the carnet program is not built: cargo build -p carnet");
    };
    if let Some(why) = reason_not_to_run(LabUser::Root) {
        return report_skipped("export_from_0", &why);
    }
    let place = new_output_folder("export_from_0");
    let vehicle = repository_root().join("scenarios/platoon/vehicle.toml");
    std::fs::write(place.join("scenario.toml"), SUMO_EXPORT_SCENARIO).expect("file");
    std::fs::write(place.join("fcd.xml"), export).expect("file");
    std::fs::copy(vehicle, place.join("vehicle.toml")).expect("file");
    let mut told = String::new();
    let held = (1..=3).any(|attempt| {
        let (_beside, _alone) =
            if attempt == 1 { (Some(share_machine_lock()), None) } else { (None, Some(take_machine_lock())) };
        let mut lab = Command::new(LAB_PROGRAM);
        lab.arg("run").arg(&place).args(["--slow", "--carnet"]).arg(&carnet);
        let run = lab.arg("--out").arg(place.join("out")).output().expect("the lab starts");
        told = output_text(&run);
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

/// A stand-in for carnet that only opens a socket, so that the lab believes the station is ready.
const IDLE_STATION_PROGRAM: &str = r#"case "$1" in
run) exec python3 -c "
import socket
s = socket.socket(socket.AF_UNIX); s.bind('/run/carnet/a.sock'); s.listen()
while True: s.accept()[0].close()" ;;
show) echo '[]' ;;
watch) exec sleep 60 ;;
*) echo stand-in ;;
esac
"#;

#[test]
fn lab_run_ends_with_log_of_dead_station() {
    let _beside = share_machine_lock();
    if !can_run_small_scenario("a_station_that_dies") {
        return;
    }
    let place = write_small_scenario("dies", "echo the engine is cold; exit 3\n", "");
    let out = run_small_scenario(&place).output().expect("the lab starts");
    assert_eq!(out.status.code(), Some(1), "{}", output_text(&out));
    assert!(output_text(&out).contains("carnet in node a ended (exit status: 3)"), "{}", output_text(&out));
    assert!(output_text(&out).contains("| the engine is cold"), "{}", output_text(&out));
    std::fs::remove_dir_all(place).expect("remove");
}

#[test]
fn expectations_decide_the_exit_status() {
    let _beside = share_machine_lock();
    if !can_run_small_scenario("expectations_decide_the_exit_status") {
        return;
    }
    let place = write_small_scenario("holds", IDLE_STATION_PROGRAM, "");
    let out = run_small_scenario(&place).output().expect("the lab starts");
    assert_eq!(out.status.code(), Some(0), "{}", output_text(&out));
    std::fs::remove_dir_all(place).expect("remove");
    let more = "[[expect]]\nwhat = \"something is lost\"\nmetric = \"probe.lost\"\nat_least = 1\n";
    let place = write_small_scenario("fails", IDLE_STATION_PROGRAM, more);
    let out = run_small_scenario(&place).output().expect("the lab starts");
    assert_eq!(out.status.code(), Some(1), "{}", output_text(&out));
    assert!(output_text(&out).contains("FAIL  something is lost"), "{}", output_text(&out));
    std::fs::remove_dir_all(place).expect("remove");
}

/// If the stations start slowly, the lab begins the run again with more time, so that no vehicle moves before
/// its station runs.
#[test]
fn lab_repeats_run_with_more_time_if_stations_start_slowly() {
    let _beside = share_machine_lock();
    if !can_run_small_scenario("run_whose_stations_are_slow") {
        return;
    }
    let radio = "[medium]\nrange = \"300m\"\nsettle = \"1s\"\n\
                 [nodes.a.radio]\ninterface = \"wlan1\"\nplace = [0, 0]\n";
    let place =
        write_small_scenario("slow", &IDLE_STATION_PROGRAM.replace("run) exec", "run) sleep 5; exec"), radio);
    let out = run_small_scenario(&place).arg("--slow").output().expect("the lab starts");
    let told = output_text(&out);
    assert_eq!(out.status.code(), Some(0), "{told}");
    assert!(told.contains("s late; once more, with more time for them"), "{told}");
    assert!(told.contains("PASS: 1 held"), "{told}");
    std::fs::remove_dir_all(place).expect("remove");
}

#[test]
fn shell_enters_testbed_and_testbed_is_removed() {
    let _beside = share_machine_lock();
    if !can_run_small_scenario("a_testbed_can_be_entered") {
        return;
    }
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let place = write_small_scenario("held", IDLE_STATION_PROGRAM, "");
        let mut lab = run_small_scenario(&place)
            .arg("--hold")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("start");
        let mut lines = BufReader::new(lab.stdout.take().expect("a pipe")).lines();
        let up = lines.by_ref().map_while(Result::ok).any(|l| l.contains("stays up until Ctrl-C"));
        assert!(up, "the testbed never stayed up");
        let shell = Command::new(LAB_PROGRAM)
            .args(["shell", "small", "b", "ip", "-6", "addr"])
            .output()
            .expect("shell");
        assert!(output_text(&shell).contains("2001:db8::2/64"), "{}", output_text(&shell));
        let mark = place.to_str().expect("a name").to_string();
        assert!(count_running_processes(&mark) > 0, "the stand-in should be running");
        kill(Pid::from_raw(lab.id() as i32), signal).expect("signal");
        let status = lab.wait().expect("wait");
        // Read until the pipe ends, which happens when the last program in the testbed has ended.
        let _ = lines.by_ref().count();
        assert_eq!(count_running_processes(&mark), 0, "programs of the testbed are left after {signal}");
        if signal == Signal::SIGINT {
            assert_eq!(status.code(), Some(0), "a run that was held ends with its own outcome");
            assert!(place.join("out/report.html").exists());
        }
        std::fs::remove_dir_all(place).expect("remove");
    }
}

/// Returns the number of processes, except this one, with this text on their command line.
fn count_running_processes(mark: &str) -> usize {
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
