//! What a bad scenario is told.

use super::*;

const GOOD: &str = r#"
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
metric = "probe.lost"
after = "cut"
equals = 0
"#;

fn fault(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "the good scenario has no {from:?}");
    parse(Path::new("s.toml"), &GOOD.replacen(from, to, 1)).expect_err("is refused").to_string()
}

#[test]
fn a_good_scenario_is_read() {
    let s = parse(Path::new("s.toml"), GOOD).expect("is good");
    assert_eq!(s.actions[0].at, Duration(2_500_000_000));
    assert_eq!(s.links[0].ends[1].get_ref(), &End { node: "b".into(), interface: "e0".into() });
    assert_eq!(s.expect[0].equals, Some(0.0));
}

#[test]
fn syntax_errors_have_line_and_column() {
    let told = fault("duration = \"10s\"", "duration = ");
    assert!(told.starts_with("s.toml:10:"), "{told}");
}

#[test]
fn unknown_keys_are_errors() {
    let told = fault("label = \"cut\"", "lable = \"cut\"");
    assert!(told.starts_with("s.toml:13:1: unknown field `lable`"), "{told}");
}

#[test]
fn a_bad_time_is_shown_where_it_is() {
    let told = fault("2.5s", "soon");
    assert_eq!(told, "s.toml:14:6: \"soon\" is no time, expected for example \"20s\"");
}

#[test]
fn unknown_nodes_and_interfaces_are_named_with_those_that_exist() {
    assert_eq!(fault("\"b:e0\"]", "\"c:e0\"]"), "s.toml:8:17: there is no node \"c\"; the nodes are: a, b");
    let told = fault("link_down = \"a:e0\"", "link_down = \"a:e9\"");
    assert_eq!(told, "s.toml:15:13: node \"a\" has no interface \"e9\"; it has: e0");
    assert!(fault("[\"a:e0\", \"b:e0\"]", "[\"a\", \"b:e0\"]").contains("expected \"NODE:INTERFACE\""));
}

#[test]
fn an_interface_is_on_one_link_only() {
    let told = fault("\"b:e0\"]", "\"a:e0\"]");
    assert_eq!(told, "s.toml:8:17: a:e0 is on a link already");
}

#[test]
fn actions_do_exactly_one_thing_within_the_timetable() {
    assert!(fault("link_down = \"a:e0\"\n", "").contains("exactly one of"));
    assert!(fault("\"2.5s\"", "\"11s\"").starts_with("s.toml:12:8: actions stand in order"));
}

#[test]
fn expectations_refer_to_actions_and_have_a_bound() {
    let told = fault("after = \"cut\"", "after = \"cat\"");
    assert_eq!(told, "s.toml:19:9: there is no action \"cat\"; the actions are: cut");
    assert!(fault("equals = 0\n", "").contains("has none of equals"));
}

#[test]
fn config_files_must_exist() {
    let told = fault("[nodes.b]", "[nodes.b]\ncarnet = \"none.toml\"");
    assert_eq!(told, "s.toml:6:10: there is no file \"none.toml\" beside it");
}

#[test]
fn prefixes_contain_addresses() {
    let p = Prefix { address: "2001:db8:a::".parse().expect("address"), length: 64 };
    assert!(p.contains("2001:db8:a::1".parse().expect("address")));
    assert!(!p.contains("2001:db8:b::1".parse().expect("address")));
    assert!(Prefix { length: 0, ..p }.contains(Ipv6Addr::LOCALHOST));
}

#[test]
fn the_scenarios_of_the_repository_are_good() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let all = names(&folder);
    assert!(all.contains(&"two-uplinks".to_string()), "{all:?}");
    for name in all {
        load(&folder.join(name)).expect("is good");
    }
}
