//! Tests the messages about invalid scenarios.

use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

const VALID_SCENARIO: &str = r#"
title = "t"
[nodes.a]
addresses.e0 = ["2001:db8::1/64"]
[nodes.b]
addresses.e0 = ["2001:db8::2/64"]
[[links]]
ends = ["a:e0", "b:e0"]
[timetable]
duration = "10s"
[[actions]]
name = "cut"
label = "cut"
at = "2.5s"
link_down = "a:e0"
[[expect]]
what = "nothing is lost"
metric = "a.exit_status"
after = "cut"
equals = 0
"#;

fn parse_error_after_replacing(from: &str, to: &str) -> String {
    assert!(VALID_SCENARIO.contains(from), "the good scenario has no {from:?}");
    parse_scenario(Path::new("s.toml"), &VALID_SCENARIO.replacen(from, to, 1))
        .expect_err("is refused")
        .to_string()
}

#[test]
fn valid_scenario_is_parsed() {
    let s = parse_scenario(Path::new("s.toml"), VALID_SCENARIO).expect("is good");
    assert_eq!(s.actions[0].at, Duration(2_500_000_000));
    assert_eq!(s.links[0].ends[1].get_ref(), &LinkEnd { node: "b".into(), interface: "e0".into() });
    assert_eq!(s.expect[0].equals, Some(0.0));
}

#[test]
fn syntax_errors_have_line_and_column() {
    let told = parse_error_after_replacing("duration = \"10s\"", "duration = ");
    assert!(told.starts_with("s.toml:10:"), "{told}");
}

#[test]
fn unknown_keys_are_errors() {
    let told = parse_error_after_replacing("label = \"cut\"", "lable = \"cut\"");
    assert!(told.starts_with("s.toml:13:1: unknown field `lable`"), "{told}");
}

#[test]
fn invalid_scenario_time_is_reported_with_line_and_column() {
    let told = parse_error_after_replacing("2.5s", "soon");
    assert_eq!(told, "s.toml:14:6: \"soon\" is no time, expected for example \"20s\"");
}

#[test]
fn scenario_error_of_unknown_node_lists_existing_nodes_and_interfaces() {
    assert_eq!(
        parse_error_after_replacing("\"b:e0\"]", "\"c:e0\"]"),
        "s.toml:8:17: there is no node \"c\"; the nodes are: a, b"
    );
    let told = parse_error_after_replacing("link_down = \"a:e0\"", "link_down = \"a:e9\"");
    assert_eq!(told, "s.toml:15:13: node \"a\" has no interface \"e9\"; it has: e0");
    assert!(
        parse_error_after_replacing("[\"a:e0\", \"b:e0\"]", "[\"a\", \"b:e0\"]")
            .contains("expected \"NODE:INTERFACE\"")
    );
}

#[test]
fn scenario_with_an_interface_on_two_links_is_refused() {
    let told = parse_error_after_replacing("\"b:e0\"]", "\"a:e0\"]");
    assert_eq!(told, "s.toml:8:17: a:e0 is on a link already");
}

#[test]
fn actions_do_exactly_one_thing_within_the_timetable() {
    assert!(parse_error_after_replacing("link_down = \"a:e0\"\n", "").contains("exactly one of"));
    assert!(
        parse_error_after_replacing("\"2.5s\"", "\"11s\"").starts_with("s.toml:12:8: actions stand in order")
    );
}

#[test]
fn expectations_refer_to_actions_and_have_a_bound() {
    let told = parse_error_after_replacing("after = \"cut\"", "after = \"cat\"");
    assert_eq!(told, "s.toml:19:9: there is no action \"cat\"; the actions are: cut");
    assert!(parse_error_after_replacing("equals = 0\n", "").contains("has none of equals"));
}

#[test]
fn derived_metric_has_exactly_one_definition() {
    let derived = |ways: &str| format!("[[derived]]\nname = \"d\"\nof = \"a\"\n{ways}[[expect]]");
    let told = parse_error_after_replacing("[[expect]]", &derived("plus = \"b\"\nover = \"c\"\n"));
    assert!(told.contains("exactly one of plus, minus, over"), "{told}");
    assert!(
        parse_error_after_replacing("[[expect]]", &derived("")).contains("exactly one of plus, minus, over")
    );
}

#[test]
fn scenario_with_transfer_that_ends_before_it_begins_is_refused() {
    let tcp = "[[traffic.tcp]]\nname = \"t\"\nclient = \"a\"\nserver = \"b\"\nrate = \"0\"\n";
    let told = parse_error_after_replacing(
        "[timetable]",
        &format!("{tcp}begin = \"3s\"\nend = \"2s\"\n[timetable]"),
    );
    assert_eq!(told, "s.toml:11:10: the transfer \"t\" ends before it begins");
    assert!(
        parse_error_after_replacing("[timetable]", &format!("{tcp}begin = \"12s\"\n[timetable]"))
            .contains("ends before")
    );
}

#[test]
fn config_files_must_exist() {
    let told = parse_error_after_replacing("[nodes.b]", "[nodes.b]\ncarnet = \"none.toml\"");
    assert_eq!(told, "s.toml:6:10: there is no file \"none.toml\" beside it");
}

const RADIO_SCENARIO: &str = r#"
title = "t"
[medium]
range = "400m"
loss = 0.1
[nodes."car{n}"]
count = 3
first = 1
role = "car {n}"
carnet = "car.toml"
radio = { interface = "wlan1", place = [10, 20], step = [100, 0] }
[nodes.rsu]
carnet = "car.toml"
radio = { interface = "wlan1", waypoints = [[0, 0, 0], [10, 50, 0]] }
[[traffic.gnping]]
name = "ping"
from = "car1"
to = "car3"
interval = "100ms"
[[traffic.gnbroadcast]]
name = "flood"
from = "rsu"
radius = "300m"
interval = "1s"
[timetable]
duration = "10s"
"#;

/// Creates a folder with the files that the scenario refers to.
fn folder_with_movement_files() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("carnet-lab-radio-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("folder");
    std::fs::write(folder.join("car.toml"), "").expect("file");
    std::fs::write(folder.join("a.ns2"), "$node_(0) set X_ 5\n$node_(1) set X_ 6\n").expect("file");
    std::fs::write(folder.join("bad.ns2"), "\n$node_(0) set X_ far\n").expect("file");
    let fcd = "<timestep time=\"0\"><vehicle id=\"v1\" x=\"1\" y=\"2\"/></timestep>";
    std::fs::write(folder.join("a.xml"), fcd).expect("file");
    folder
}

fn parse_radio_scenario_with(from: &str, to: &str) -> Result<Scenario, String> {
    assert!(RADIO_SCENARIO.contains(from), "the good scenario has no {from:?}");
    let folder = folder_with_movement_files();
    let file = folder.join("scenario.toml");
    let told = parse_scenario(&file, &RADIO_SCENARIO.replacen(from, to, 1)).map_err(|f| f.to_string());
    std::fs::remove_dir_all(folder).expect("remove");
    told.map_err(|t| t.rsplit_once('/').map_or(t.clone(), |(_, t)| t.to_string()))
}

#[test]
fn node_series_creates_nodes() {
    let s = parse_radio_scenario_with("t", "t").expect("is good");
    assert_eq!(s.nodes.keys().collect::<Vec<_>>(), ["car1", "car2", "car3", "rsu"]);
    assert_eq!((s.nodes["car2"].role.as_str(), s.nodes["car2"].series), ("car 2", Some(2)));
    let place = |name: &str, t: f64| s.tracks[name].position_at(t).map(|p| (p.x, p.y));
    assert_eq!((place("car1", 0.0), place("car3", 9.0)), (Some((10.0, 20.0)), Some((210.0, 20.0))));
    assert_eq!(place("rsu", 5.0), Some((25.0, 0.0)));
    let parameters = s.medium.expect("is there").channel_parameters();
    assert_eq!(
        (
            parameters.loss_probability,
            parameters.propagation.sense_range_metres,
            parameters.capture_threshold_db
        ),
        (0.1, 400.0, None)
    );
}

#[test]
fn node_movements_are_read_from_files() {
    let s = parse_radio_scenario_with("place = [10, 20]", "ns2 = { file = \"a.ns2\", node = 0 }");
    assert_eq!(s.expect_err("has no third"), "scenario.toml:11:47: a.ns2 has no $node_(2)");
    let s = parse_radio_scenario_with("count = 3", "count = 2").map(|_| ());
    assert!(s.expect_err("there is no car3").starts_with("scenario.toml:18:6: no node \"car3\" has a radio"));
    let to = "fcd = { file = \"a.xml\", vehicle = \"v{n}\" }";
    let told = parse_radio_scenario_with("place = [10, 20]", to).expect_err("has no second");
    assert!(told.contains("a.xml has no vehicle \"v2\""), "{told}");
    let told = parse_radio_scenario_with("place = [10, 20]", "ns2 = { file = \"bad.ns2\", node = 0 }")
        .expect_err("is bad");
    assert!(told.starts_with("bad.ns2:2:1: expected a number of metres"), "{told}");
    let told = parse_radio_scenario_with("place = [10, 20]", "ns2 = { file = \"none\", node = 0 }")
        .expect_err("is not there");
    assert!(told.starts_with("scenario.toml:11:47: cannot read \"none\" beside it"), "{told}");
}

#[test]
fn radio_settings_are_checked() {
    for (from, to, told) in [
        (
            "[medium]\nrange = \"400m\"\nloss = 0.1\n",
            "",
            "node \"car1\" has a radio, but the scenario has no [medium]",
        ),
        ("loss = 0.1", "loss = 1.5", "scenario.toml:5:8: loss is 1.5, expected 0 to 1"),
        ("\"400m\"", "\"400\"", "scenario.toml:4:9: \"400\" is no distance, expected for example \"400m\""),
        ("loss = 0.1", "sense_range = \"10m\"", "scenario.toml:5:15: sense_range is shorter than range"),
        ("loss = 0.1", "bit_rate = \"6\"", "scenario.toml:5:12: \"6\" is no bit rate"),
        (
            "place = [10, 20]",
            "ns2 = { file = \"a\", node = 1 }, place = [1, 2]",
            "scenario.toml:11:9: a radio has exactly one of place, waypoints, ns2, fcd",
        ),
        (
            "place = [10, 20]",
            "place = [10, 9e9]",
            "scenario.toml:11:9: node \"car1\" at second 0, 10 m east, 9000000000 m north: latitude ",
        ),
        (
            "step = [100, 0]",
            "step = [3e7, 0]",
            "scenario.toml:11:9: node \"car2\" at second 0, 30000010 m east",
        ),
        ("[10, 50, 0]]", "[10, nan, 0]]", "node \"rsu\" at second 10, NaN m east, 0 m north: latitude "),
        (
            "radius = \"300m\"",
            "center = [0, -2e7]\nradius = \"300m\"",
            "the centre of broadcast \"flood\": latitude ",
        ),
        ("[10, 50, 0]]", "[0, 50, 0]]", "scenario.toml:14:9: waypoints are [SECONDS, EAST, NORTH]"),
        (
            "count = 3\n",
            "",
            "scenario.toml:6:9: node \"car{n}\": a series of nodes has {n} in its name, and a count",
        ),
        ("count = 3", "count = 0", "scenario.toml:7:9: count is 0, expected 1 to 1000"),
        ("[nodes.rsu]", "[nodes.car2]", "scenario.toml:7:9: there is a node \"car2\" already"),
        ("interval = \"1s\"", "interval = \"1ms\"", "expected an interval of 10ms or more"),
        ("\"300m\"", "\"3km\"", "no circle is larger than 10 square kilometres"),
        (
            "from = \"rsu\"",
            "from = \"nobody\"",
            "scenario.toml:22:8: no node \"nobody\" has a radio and carnet; those that do: car1, car2, car3, \
             rsu",
        ),
    ] {
        let found = parse_radio_scenario_with(from, to).expect_err("is refused");
        assert!(found.contains(told), "{found}");
    }
}

#[test]
fn prefixes_contain_addresses() {
    let p = Prefix { address: "2001:db8:a::".parse().expect("address"), length: 64 };
    assert!(p.contains("2001:db8:a::1".parse().expect("address")));
    assert!(!p.contains("2001:db8:b::1".parse().expect("address")));
    assert!(Prefix { length: 0, ..p }.contains(Ipv6Addr::LOCALHOST));
}

#[test]
fn scenarios_of_the_repository_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let all = scenario_names(&folder);
    assert!(all.contains(&"two-uplinks".to_string()), "{all:?}");
    for name in all {
        load_scenario(&folder.join(name), None).expect("is good");
    }
}

#[test]
fn scenario_with_isolated_non_port_or_too_small_probe_is_refused() {
    let told = parse_error_after_replacing(
        "ends = [\"a:e0\", \"b:e0\"]",
        "ends = [\"a:e0\", \"b:e0\"]\nisolated = [\"a:e0\"]",
    );
    assert_eq!(told, "s.toml:9:13: a:e0 is no end of this bridge");
    let bridge = "bridge = \"air\"\nends = [\"a:e0\", \"b:e0\"]\nisolated = ";
    let told = parse_error_after_replacing("ends = [\"a:e0\", \"b:e0\"]", &format!("{bridge}[\"b:e1\"]"));
    assert_eq!(told, "s.toml:10:13: b:e1 is no end of this bridge");
    let good = VALID_SCENARIO.replacen("ends = [\"a:e0\", \"b:e0\"]", &format!("{bridge}[\"b:e0\"]"), 1);
    parse_scenario(Path::new("s.toml"), &good).expect("is good");
    let probe =
        "[[traffic.probe]]\nname = \"p\"\nbetween = [\"a\", \"b\"]\nrate = 10\nsize = 23\n[timetable]";
    let told = parse_error_after_replacing("[timetable]", probe);
    assert_eq!(told, "s.toml:13:8: a probe has 24 octets at least, \"p\" has fewer");
}

const SERIES_SCENARIO: &str = r#"
title = "t"
[nodes.ar]
addresses.w0 = ["2001:db8::1/64"]
[nodes."mr{n}"]
count = 50
first = 3
addresses.i0 = ["2001:db8:a:{n}::1/64"]
[nodes."h{n}"]
count = 50
first = 3
addresses.i0 = ["2001:db8:a:{n}::5/64"]
[[links]]
bridge = "visited"
ends = ["ar:w0", "mr{n}:w0"]
isolated = ["mr{n}:w0"]
[[links]]
ends = ["mr{n}:i0", "h{n}:i0"]
[[traffic.probe]]
name = "p{n}"
between = ["h{n}", "ar"]
rate = 20
[timetable]
duration = "1s"
"#;

#[test]
fn node_series_may_have_links_and_probes() {
    let s = parse_with_series_size(Path::new("s.toml"), SERIES_SCENARIO, Some(2)).expect("is good");
    let ends = |l: usize| s.links[l].ends.iter().map(|e| e.get_ref().to_string()).collect::<Vec<_>>();
    assert_eq!(ends(0), ["ar:w0", "mr3:w0", "mr4:w0"]);
    assert_eq!(s.links[0].isolated.len(), 2);
    assert_eq!(
        (ends(1), ends(2)),
        (vec!["mr3:i0".into(), "h3:i0".into()], vec!["mr4:i0".into(), "h4:i0".into()])
    );
    let probe = &s.traffic.probe[1];
    assert_eq!((probe.name.as_str(), probe.series.as_deref()), ("p4", Some("p{n}")));
    assert_eq!((probe.between.0.get_ref().as_str(), probe.between.1.get_ref().as_str()), ("h4", "ar"));
    let whole = parse_scenario(Path::new("s.toml"), SERIES_SCENARIO).expect("is good");
    assert_eq!((whole.nodes.len(), whole.links.len(), whole.traffic.probe.len()), (101, 51, 50));
}

#[test]
fn errors_in_a_node_series_are_reported() {
    let told = |from: &str, to: &str| {
        assert!(SERIES_SCENARIO.contains(from), "there is no {from:?}");
        parse_scenario(Path::new("s.toml"), &SERIES_SCENARIO.replacen(from, to, 1))
            .expect_err("is refused")
            .to_string()
    };
    let told_of = [
        told("\"mr{n}:i0\"", "\"bus{n}:i0\""),
        told(
            "count = 50\nfirst = 3\naddresses.i0 = [\"2001:db8:a:{n}::5/64\"]",
            "count = 50\naddresses.i0 = [\"2001:db8:a:{n}::5/64\"]",
        ),
        told("name = \"p{n}\"", "name = \"p\""),
    ];
    let expected = [
        "s.toml:18:9: there is no series \"bus{n}\"; the series are: h{n}, mr{n}",
        "s.toml:17:21: the nodes of \"h{n}\" have other numbers than those before",
        "s.toml:21:12: the probe \"p\" is one for each node, so it has {n} in its name and no port",
    ];
    assert_eq!(told_of, expected);
    let told = parse_with_series_size(Path::new("s.toml"), SERIES_SCENARIO, Some(0))
        .expect_err("is refused")
        .to_string();
    assert_eq!(told, "s.toml:10:9: count is 0, expected 1 to 1000");
}
